//! Properties of this machine on which recorders rely, for commands that explain them.
//!
//! Each function makes the same checks as the recorder, so that the explanation and the behaviour
//! cannot differ. No function changes anything, in the window or elsewhere.

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
    /// Number of CPUs that the machine could ever have.
    pub possible: u32,
    /// Ids of those that are online.
    pub online: Vec<u32>,
    /// Ids of online CPUs on which this process may not run: it cannot wait for earlier writers
    /// there, and memory that they could still write to is not reused.
    pub withheld: Vec<u32>,
}

impl Cpus {
    /// Reads the host's properties. For that the calling thread runs briefly on each CPU.
    pub fn detect() -> Self {
        let online = cpus::online_cpus();
        let mut withheld = online.clone();
        cpus::visit_all_with(|visited| withheld.retain(|&cpu| cpu != visited));
        Self { possible: cpus::possible_cpu_count(), online, withheld }
    }
}

/// The owner of a slot of the window: a channel of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotOwner {
    /// Its session's trace folder; words for one that does not stand in the window.
    pub folder: PathBuf,
    /// Its recorder is dead: it can be recovered.
    pub is_orphan: bool,
}

/// Returns the owners of the window's slots, of which there are [`SESSIONS_MAX`].
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

/// Returns a trace folder as it is shown: the place of a session over several users is unknown
/// here.
fn displayed_folder(folder: PathBuf) -> PathBuf {
    match folder.as_os_str().is_empty() {
        true => "(a session over several users)".into(),
        false => folder,
    }
}

/// Returns the bytes that may be allocated without coming near the limit of a control group;
/// `u64::MAX` if there is none.
pub fn headroom_bytes() -> u64 {
    memory_limit::headroom_bytes()
}

/// Returns true if the processor's counter runs at one speed in all states of sleep. If not, every
/// record reads the system's clock.
pub fn counter_is_invariant() -> bool {
    clock_line::counter_is_invariant()
}

/// Tests whether restartable sequences abort as they must; takes some milliseconds. Returns `None`
/// if the test cannot tell, also without sequences.
pub fn sequences_abort() -> Option<bool> {
    let has_area = !trackway_sys::thread::rseq_area().is_null();
    has_area.then(rseq_self_test::sequences_abort).flatten()
}

/// Returns true if the window marks restartable sequences as unusable: all records go by claim.
pub fn window_disables_sequences(handle: &WindowHandle) -> bool {
    handle.window().header().rseq_works.load(Ordering::Relaxed) == rseq_self_test::BROKEN
}

/// Returns the paths of these preload helpers and, last, of libtrackway.so, as they will be given
/// to the traced command.
///
/// # Errors
///
/// If one of them is not beside this program, or its path cannot be preloaded.
pub fn find_preload_libraries(helpers: &[&'static str]) -> Result<Vec<PathBuf>, RecordError> {
    launch::find_preload_libraries(helpers)
}

/// Returns the folder of the window, which may not exist yet.
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
