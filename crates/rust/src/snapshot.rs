//! Requests snapshots of the flight recorders that record this program: `trackway_snapshot()` of
//! the C header, which has more documentation.

use core::ffi::{c_char, c_int};
use core::ptr;

use crate::weak::weak_function;

/// The type of `trackway_abi_snapshot`.
type SnapshotFn = unsafe extern "C" fn(*const c_char) -> c_int;

/// Longest name of a session, in bytes: `NAME_BYTES_MAX` of crates/abi.
const NAME_BYTES_MAX: usize = 64;

/// Requests a snapshot from every flight recorder that records this process; returns the number of
/// requests. Returns 0 without the library.
///
/// ```
/// let latency_us = 12_000;
/// if latency_us > 10_000 {
///     trackway::snapshot();
/// }
/// ```
///
/// Recorders detect a request at their next poll, some tenths of a second later, and write
/// everything recorded by then; requests before that poll count as one. The function neither blocks
/// nor allocates, and is permitted in signal handlers and fork children.
pub fn snapshot() -> usize {
    // SAFETY: a null pointer means any session.
    unsafe { request_snapshot(ptr::null()) }
}

/// Requests a snapshot like [`snapshot()`], but only from the session with this name.
///
/// ```
/// assert_eq!(trackway::snapshot_of("no such session"), 0);
/// ```
pub fn snapshot_of(session: &str) -> usize {
    let mut name = [0_u8; NAME_BYTES_MAX + 1];
    // No session has a longer name, or a name with a NUL.
    let Some(room) = name[..NAME_BYTES_MAX].get_mut(..session.len()) else { return 0 };
    room.copy_from_slice(session.as_bytes());
    if session.contains('\0') {
        return 0;
    }
    // SAFETY: the name ends with a NUL.
    unsafe { request_snapshot(name.as_ptr().cast()) }
}

/// # Safety
/// `session` must be null or a C string.
unsafe fn request_snapshot(session: *const c_char) -> usize {
    let Some(function) = weak_function!("trackway_abi_snapshot" as SnapshotFn) else { return 0 };
    // SAFETY: the caller makes the promise that the function requires.
    usize::try_from(unsafe { function(session) }).unwrap_or(0)
}
