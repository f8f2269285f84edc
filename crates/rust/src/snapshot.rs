//! A program asks for a snapshot of the flight recorders that record it: `trackway_snapshot()` of
//! the C header, which says more.

use core::ffi::{c_char, c_int};
use core::ptr;

use crate::weak::weak_function;

/// `trackway_abi_snapshot`.
type SnapshotFn = unsafe extern "C" fn(*const c_char) -> c_int;

/// Longest name of a session, in bytes: `NAME_BYTES_MAX` of crates/abi.
const NAME_BYTES_MAX: usize = 64;

/// Asks for a snapshot of what every flight recorder that records this process still has; how many
/// sessions were asked. None without the library.
///
/// ```
/// let latency_us = 12_000;
/// if latency_us > 10_000 {
///     trackway::snapshot();
/// }
/// ```
///
/// Recorders see it when they next look, some tenths of a second later, and take what was recorded
/// by then; requests that come meanwhile are one. It neither blocks nor allocates, and may be
/// called in signal handlers and fork children.
pub fn snapshot() -> usize {
    // SAFETY: null is no name.
    unsafe { request_snapshot(ptr::null()) }
}

/// Requests a snapshot like [`snapshot()`], of the session of this name alone.
///
/// ```
/// assert_eq!(trackway::snapshot_of("no such session"), 0);
/// ```
pub fn snapshot_of(session: &str) -> usize {
    let mut name = [0_u8; NAME_BYTES_MAX + 1];
    // What is longer, or has a NUL, is no session's name.
    let Some(room) = name[..NAME_BYTES_MAX].get_mut(..session.len()) else { return 0 };
    room.copy_from_slice(session.as_bytes());
    if session.contains('\0') {
        return 0;
    }
    // SAFETY: the name ends with a NUL.
    unsafe { request_snapshot(name.as_ptr().cast()) }
}

/// # Safety
/// `session` is null or a C string.
unsafe fn request_snapshot(session: *const c_char) -> usize {
    let Some(function) = weak_function!("trackway_abi_snapshot" as SnapshotFn) else { return 0 };
    // SAFETY: the caller's promise is the same.
    usize::try_from(unsafe { function(session) }).unwrap_or(0)
}
