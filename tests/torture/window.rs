//! Contents of a test's window, as bytes: leftovers of a recording, and the time until writers take
//! a dead recorder for dead.

use std::ffi::CString;
use std::mem::offset_of;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use trackway_abi::session::{SESSION_BYTES, SESSIONS_MAX, Session, state};
use trackway_abi::window as layout;
use trackway_tests::Fixture;
use trackway_window::{SessionLayout, Window};

use crate::trace::Complaints;

/// Returns true if there is a window.
pub(crate) fn window_exists(fixture: &Fixture) -> bool {
    std::fs::read_dir(fixture.window_dir()).is_ok_and(|mut files| files.next().is_some())
}

/// Returns the window's fixed part.
pub(crate) fn read_fixed_part(fixture: &Fixture) -> Vec<u8> {
    let mut files = std::fs::read_dir(fixture.window_dir()).expect("the window's folder");
    let path = files.next().expect("a window").expect("a window").path();
    let file = std::fs::File::open(path).expect("the window");
    let mut bytes = vec![0; layout::DATA_OFFSET];
    file.read_exact_at(&mut bytes, 0).expect("the window is read");
    bytes
}

/// Checks that no session is in use, no memory held, and no event enabled.
pub(crate) fn check_nothing_left(fixture: &Fixture, wrong: &mut Complaints) {
    let window = read_fixed_part(fixture);
    for index in 0..SESSIONS_MAX {
        let at = layout::SESSIONS_OFFSET + index * SESSION_BYTES + offset_of!(Session, state);
        let found = read_word(&window, at);
        wrong.unless(found == state::FREE, || format!("session {index} is in state {found}"));
    }
    let map = &window[layout::GRANULE_MAP_OFFSET..][..layout::GRANULES_MAX];
    let held = map.iter().filter(|&&owner| owner & layout::granule::DATA != 0).count();
    wrong.unless(held == 0, || {
        format!(
            "{held} granules of data are held, processes in the table: {}",
            describe_processes(&window)
        )
    });
    let enabled = count_enabled_events(&window);
    wrong.unless(enabled == 0, || format!("{enabled} events are still enabled"));
}

/// Returns true if writers still take the first session's recorder for alive.
pub(crate) fn is_lease_valid(fixture: &Fixture) -> bool {
    let at = layout::SESSIONS_OFFSET + offset_of!(Session, lease_until_ns);
    let lease_ns = read_fixed_part(fixture)[at..at + 8].try_into().map(u64::from_le_bytes);
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a timespec of ours.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    lease_ns.expect("8 bytes") > (now.tv_sec * 1_000_000_000 + now.tv_nsec).cast_unsigned()
}

/// Returns the number of events that a session has enabled.
pub(crate) fn count_enabled_events(window: &[u8]) -> usize {
    let enabled = |index: &usize| {
        let event = layout::EVENTS_OFFSET + index * size_of::<layout::Event>();
        read_word(window, event + offset_of!(layout::Event, enabled)) != 0
    };
    (0..layout::EVENTS_MAX).filter(enabled).count()
}

/// Returns true if the table of processes contains a process that cannot be proved dead. The PID
/// namespace of such a process is unknown, because its parent was gone before its first event.
pub(crate) fn has_process_of_unknown_namespace(fixture: &Fixture) -> bool {
    let window = read_fixed_part(fixture);
    (0..layout::PROCESSES_MAX).any(|index| {
        let at = layout::PROCESSES_OFFSET + index * size_of::<layout::Process>();
        read_word(&window, at + offset_of!(layout::Process, pid)) != 0
            && read_word(&window, at + offset_of!(layout::Process, pid_namespace)) == 0
    })
}

/// Returns true if a process that is not in the table of processes has made a reservation in a
/// lockless buffer of a session that still exists. A signal handler can do so while its process
/// registers itself. If such a process is killed then, its death cannot be detected.
pub(crate) fn has_unnamed_writer(fixture: &Fixture) -> bool {
    let path = std::fs::read_dir(fixture.window_dir()).expect("the window's folder");
    let path = path.flatten().next().expect("a window").path();
    let owner = std::fs::metadata(&path).expect("the window").uid();
    let text = |path: &Path| CString::new(path.as_os_str().as_bytes()).expect("a path");
    let opened = Window::open(&text(fixture.window_dir()), &text(&path), owner, false);
    let (window, _) = opened.expect("the window opens");
    (0..SESSIONS_MAX).filter_map(|index| SessionLayout::read_as_recorder(&window, index)).any(
        |layout| {
            let mut buffers = (0..layout.cpus).filter_map(|cpu| layout.lockless(&window, cpu));
            buffers.any(|buffer| !buffer.all_are_named())
        },
    )
}

/// Describes the processes in the table, and the kernel's current state of these process ids.
fn describe_processes(window: &[u8]) -> String {
    let mut text = String::new();
    for index in 0..layout::PROCESSES_MAX {
        let at = layout::PROCESSES_OFFSET + index * size_of::<layout::Process>();
        let pid = read_word(window, at + offset_of!(layout::Process, pid));
        if pid != 0 {
            let namespace = read_word(window, at + offset_of!(layout::Process, pid_namespace));
            let now = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            text.push_str(&format!("\n  {pid:#x} of {namespace}, now: {}", now.trim_end()));
        }
    }
    text
}

fn read_word(window: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(window[at..at + 4].try_into().expect("4 bytes"))
}
