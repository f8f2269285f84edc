//! The program's environment, as it was when the library was loaded: the folder of windows, and
//! whether reasons go to standard error.
//!
//! A program with more rights than its user has takes no settings from its environment.

use core::cell::UnsafeCell;
use core::ffi::CStr;

use trackway_sys::file::Fd;
use trackway_sys::process::{has_elevated_rights, outer_user};
use trackway_window::{NAME_BYTES, OpenError, Window, window_name};

/// Environment variable for the folder of windows, instead of /dev/shm.
const FOLDER_VARIABLE: &CStr = c"TRACKWAY_WINDOW_DIR";
/// Environment variable that enables reasons on standard error.
const DEBUG_VARIABLE: &CStr = c"TRACKWAY_DEBUG";
/// The default folder of windows.
const FOLDER: &CStr = c"/dev/shm";

/// Opens or makes the window of the effective user, `uid`.
///
/// The caller must close the descriptor at once: a program may close descriptors that it did not
/// open, or use their numbers.
pub(crate) fn open_window(uid: u32) -> Result<(Window, Fd), OpenError> {
    // SAFETY: `store_folder` alone writes it, before there is a window.
    let stored = unsafe { &*WINDOW_FOLDER.0.get() };
    let folder = CStr::from_bytes_until_nul(stored).map_err(|_| OpenError::PathTooLong)?;
    let mut name = [0; NAME_BYTES];
    let path = window_name(folder.to_bytes(), uid, &mut name)?;
    // The window nearly always exists, which proves that the name is the user's.
    if let Ok(found) = Window::open_as_guest(folder, path, uid, false) {
        return Ok(found);
    }
    // In a user namespace, another user may have that name outside. A user without an outer number
    // makes no window, because others would take it for the window of that number's user.
    let Some(known_as) = outer_user(uid) else { return Err(OpenError::NotOurs) };
    let path = window_name(folder.to_bytes(), known_as, &mut name)?;
    Window::open_as_guest(folder, path, uid, true)
}

/// The folder of windows at load time. The program may change its environment later.
static WINDOW_FOLDER: WindowFolder = WindowFolder(UnsafeCell::new([0; NAME_BYTES]));

struct WindowFolder(UnsafeCell<[u8; NAME_BYTES]>);

// SAFETY: written once, by the thread that loads the library, before any other thread uses it.
unsafe impl Sync for WindowFolder {}

/// Stores the folder's name. A name that is too long is stored without its end, and refused later.
pub(crate) fn store_folder() {
    let name = read_variable(FOLDER_VARIABLE).unwrap_or(FOLDER).to_bytes_with_nul();
    // SAFETY: no other thread is here yet.
    let stored = unsafe { &mut *WINDOW_FOLDER.0.get() };
    for (stored, byte) in stored.iter_mut().zip(name) {
        *stored = *byte;
    }
}

/// Returns the value of an environment variable. `None` if the program runs with more rights than
/// its user has: that environment is not trusted.
pub(crate) fn read_variable(name: &CStr) -> Option<&'static CStr> {
    if has_elevated_rights() {
        return None;
    }
    // SAFETY: the environment is only read, before main or by the thread that loads the library.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value))
    }
}

/// Writes a reason to standard error, if the environment enables reasons.
pub(crate) fn print_reason(reason: &CStr) {
    if read_variable(DEBUG_VARIABLE).is_some() {
        let text = reason.to_bytes();
        // SAFETY: the text is a constant, with its length.
        unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
    }
}
