//! Properties of this machine on which recorders depend, for commands that explain them.
//!
//! Each function makes the same checks as the recorder, so that the explanation and the behaviour
//! cannot differ. The functions change nothing, neither in the window nor elsewhere.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use trackway_abi::session::{SESSIONS_MAX, state};

use crate::command::launch;
use crate::error::RecordError;
use crate::window::handle::WindowHandle;
use crate::window::{clock_line, cpus, lease, memory_limit, rseq_self_test, shared_text};

/// The machine's CPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cpus {
    /// Number of possible CPUs.
    pub possible: u32,
    /// Ids of online CPUs.
    pub online: Vec<u32>,
    /// Ids of online CPUs on which this process may not run. It cannot wait there for earlier
    /// writers, so memory to which they could still write is not reused.
    pub withheld: Vec<u32>,
}

impl Cpus {
    /// Reads the machine's properties. For this, the calling thread runs briefly on each CPU.
    pub fn detect() -> Self {
        let online = cpus::online_cpus();
        let mut withheld = online.clone();
        cpus::visit_all_with(|visited| withheld.retain(|&cpu| cpu != visited));
        Self { possible: cpus::possible_cpu_count(), online, withheld }
    }
}

/// Owner of a slot of the window: a channel of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotOwner {
    /// Trace folder of the session; a description in words if the window has no path.
    pub folder: PathBuf,
    /// True if the recorder is dead, so that the session can be recovered.
    pub is_orphan: bool,
}

/// Returns the owners of the window's used slots; there are [`SESSIONS_MAX`] slots.
pub fn list_slot_owners(handle: &WindowHandle) -> Vec<SlotOwner> {
    let session = |index| handle.window().session(index);
    (0..SESSIONS_MAX)
        .map(session)
        .filter(|session| session.state.load(Ordering::Relaxed) != state::FREE)
        .map(|session| SlotOwner {
            folder: displayed_folder(shared_text::trace_path_of(session)),
            is_orphan: lease::recorder_is_dead(session),
        })
        .collect()
}

/// Returns a trace folder in the form that is shown; the window has no path for a session over
/// several users.
fn displayed_folder(folder: PathBuf) -> PathBuf {
    match folder.as_os_str().is_empty() {
        true => "(a session over several users)".into(),
        false => folder,
    }
}

/// Returns the number of bytes that may be allocated without coming near the limit of a control
/// group; `u64::MAX` without a limit.
pub fn headroom_bytes() -> u64 {
    memory_limit::headroom_bytes()
}

/// Returns true if the processor's counter has a constant rate in all sleep states. If not, every
/// record reads the system clock.
pub fn counter_is_invariant() -> bool {
    clock_line::counter_is_invariant()
}

/// Tests whether restartable sequences abort when preempted; takes some milliseconds. Returns
/// `None` without a result, for example without restartable sequences.
pub fn sequences_abort() -> Option<bool> {
    let has_area = !trackway_sys::thread::rseq_area().is_null();
    has_area.then(rseq_self_test::sequences_abort).flatten()
}

/// Returns true if the window marks restartable sequences as unusable: then writers reserve all
/// records by claim.
pub fn window_disables_sequences(handle: &WindowHandle) -> bool {
    handle.window().header().rseq_works.load(Ordering::Relaxed) == rseq_self_test::BROKEN
}

/// Returns the paths of these preload helpers and, last, of libtrackway.so, in the order in which
/// the traced command gets them.
///
/// # Errors
///
/// If a library is not beside this program, or its path cannot be preloaded.
pub fn find_preload_libraries(helpers: &[&'static str]) -> Result<Vec<PathBuf>, RecordError> {
    launch::find_preload_libraries(helpers)
}

/// Returns the folder of windows, which may not exist yet.
pub fn window_folder() -> PathBuf {
    crate::window::handle::window_folder()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cpu_that_is_online_is_visited_or_withheld() {
        let cpus = Cpus::detect();
        assert!(cpus.withheld.iter().all(|cpu| cpus.online.contains(cpu)));
        let allowed = trackway_sys::thread::CpuSet::current().expect("where we may run");
        let is_both = |cpu: &u32| cpus.withheld.contains(cpu) && allowed.contains(*cpu);
        assert!(!cpus.online.iter().any(is_both), "{cpus:?}");
        assert!(cpus.possible as usize >= cpus.online.len());
    }

    #[test]
    fn an_empty_window_has_no_occupants() {
        let folder = trackway_testkit::TemporaryFolder::new();
        let handle = WindowHandle::open_in(folder.path(), true).expect("a window");
        assert_eq!(list_slot_owners(&handle), []);
        assert!(!window_disables_sequences(&handle));
    }
}
