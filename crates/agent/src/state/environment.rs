//! The program's environment, as it was when the library was loaded: the folder of windows, and
//! whether reasons go to standard error.
//!
//! A program with more rights than its user has does not get settings from its environment.

use core::cell::UnsafeCell;
use core::ffi::CStr;

use trackway_sys::file::Fd;
use trackway_sys::process::{has_more_rights, outer_user};
use trackway_window::{NAME_BYTES, OpenError, Window, window_name};

/// Environment read_variable that says where the window is, instead of /dev/shm.
const FOLDER_VARIABLE: &CStr = c"TRACKWAY_WINDOW_DIR";
/// Environment read_variable that asks for reasons.
const DEBUG_VARIABLE: &CStr = c"TRACKWAY_DEBUG";
/// Where the window is.
const FOLDER: &CStr = c"/dev/shm";

/// Opens or makes the window of user `uid`, who is the effective one.
///
/// The descriptor is to be closed at once: a program may close every descriptor that it did not
/// open, or use its number.
pub(crate) fn open_window(uid: u32) -> Result<(Window, Fd), OpenError> {
    // SAFETY: written by `store_folder` alone, before there is a mapped.
    let kept = unsafe { &*WINDOW_FOLDER.0.get() };
    let folder = CStr::from_bytes_until_nul(kept).map_err(|_| OpenError::PathTooLong)?;
    let mut name = [0; NAME_BYTES];
    let path = window_name(folder.to_bytes(), uid, &mut name)?;
    // Nearly always it is there, which says that this is the user's name.
    if let Ok(found) = Window::open_as_guest(folder, path, uid, false) {
        return Ok(found);
    }
    // Not in a user namespace, where another user may have that name outside. Who is nobody there
    // makes nothing: others would take it for the window of the user of that number.
    let Some(known_as) = outer_user(uid) else { return Err(OpenError::NotOurs) };
    let path = window_name(folder.to_bytes(), known_as, &mut name)?;
    Window::open_as_guest(folder, path, uid, true)
}

/// The window's folder, as it was said when the library was loaded: the environment is the
/// program's to change.
static WINDOW_FOLDER: WindowFolder = WindowFolder(UnsafeCell::new([0; NAME_BYTES]));

struct WindowFolder(UnsafeCell<[u8; NAME_BYTES]>);

// SAFETY: written once, by the thread that loads the library, before any other can be here.
unsafe impl Sync for WindowFolder {}

/// Keeps the folder's name; one that is too long is kept without its end, and refused later.
pub(crate) fn store_folder() {
    let name = read_variable(FOLDER_VARIABLE).unwrap_or(FOLDER).to_bytes_with_nul();
    // SAFETY: nobody else is here yet.
    let kept = unsafe { &mut *WINDOW_FOLDER.0.get() };
    for (kept, byte) in kept.iter_mut().zip(name) {
        *kept = *byte;
    }
}

/// The value of an environment read_variable. Nothing where the program runs with more rights than
/// its user has: there the environment is not to be believed.
pub(crate) fn read_variable(name: &CStr) -> Option<&'static CStr> {
    if has_more_rights() {
        return None;
    }
    // SAFETY: the environment is only read, before main or by the thread that loads the library.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value))
    }
}

/// Writes a reason to standard error, for who asked for reasons.
pub(crate) fn print_reason(reason: &CStr) {
    if read_variable(DEBUG_VARIABLE).is_some() {
        let text = reason.to_bytes();
        // SAFETY: the text is ours, with its length.
        unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
    }
}
