//! Requests of the program for snapshots of the flight recorders that record it.
//!
//! A request adds one to a number in the window, which the session's recorder reads at its next
//! poll. Nothing here waits for the recorder or wakes it.

use core::ffi::{CStr, c_char};
use core::sync::atomic::Ordering;

use trackway_abi::session::{NAME_BYTES_MAX, SESSIONS_MAX, Session, flag};
use trackway_sys::Errno;

use crate::emit::prefilter;
use crate::fork_child::ensure_stamp;
use crate::state::process::PROCESS;
use crate::state::window_map::MappedWindow;

/// Requests a snapshot of each flight recorder session that records this process, or only of the
/// one with this name. Returns the number of these sessions: `trackway_abi_snapshot` of
/// include/trackway/abi/abi.h, which states the contract.
///
/// # Safety
/// `name` is null or a C string.
pub unsafe fn request_snapshots(name: *const c_char) -> usize {
    // SAFETY: the caller upholds the contract.
    let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_bytes());
    let Some(mapped) = PROCESS.current_window() else { return 0 };
    // A fork child's first call may fail to open files in /proc, and change errno.
    let errno = Errno::last();
    ensure_stamp();
    let count = request_snapshots_in(mapped, name);
    errno.set();
    count
}

fn request_snapshots_in(mapped: &MappedWindow, name: Option<&[u8]>) -> usize {
    let Some(window) = &mapped.window() else { return 0 };
    let mut traces = [[0; 2]; SESSIONS_MAX];
    let mut count = 0;
    for slot in window.active_sessions() {
        let session = window.session(slot);
        let is_requested = name.is_none_or(|name| has_name(session, name));
        let layout =
            if is_requested { prefilter::decide_participation(mapped, slot) } else { None };
        if layout.is_none_or(|layout| layout.flags & flag::OVERWRITE == 0) {
            continue;
        }
        // ORDERING: Release pairs with the recorder's Acquire: earlier records of this thread are
        // in the snapshot.
        session.snapshot_requests.fetch_add(1, Ordering::Release);
        // A session's channels share one trace, and count once.
        let trace = session.trace_uuid.each_ref().map(|half| half.load(Ordering::Relaxed));
        if !traces[..count].contains(&trace) {
            traces[count] = trace;
            count += 1;
        }
    }
    count
}

fn has_name(session: &Session, name: &[u8]) -> bool {
    let length = session.name_bytes.load(Ordering::Relaxed) as usize;
    length == name.len()
        && length <= NAME_BYTES_MAX
        && session.name.iter().zip(name).all(|(ours, its)| ours.load(Ordering::Relaxed) == *its)
}
