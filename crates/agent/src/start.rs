//! The library's start, in its constructor: find the window, take a stamp, register events.
//!
//! Six system calls or so, no thread, no handler, no wait. Where anything is missing the program
//! runs on untraced; with `TRACKWAY_DEBUG=1` the reason is written to standard error.

use core::ffi::CStr;

use trackway_window::{NAME_BYTES, OpenError, Window, window_name};

use crate::decision::PROCESS;
use crate::register;

/// Environment variable that says where the window is, instead of /dev/shm.
const FOLDER_VARIABLE: &CStr = c"TRACKWAY_WINDOW_DIR";
/// Environment variable with the tokens that this process holds, in hexadecimal, by colons.
const TOKEN_VARIABLE: &CStr = c"TRACKWAY_TOKEN";
/// Environment variable that asks for reasons.
const DEBUG_VARIABLE: &CStr = c"TRACKWAY_DEBUG";
/// Where the window is.
const FOLDER: &CStr = c"/dev/shm";

/// Starts the library in this process. Called once, by its constructor.
pub fn start() {
    let errno = errno(); // the program's is left as it was
    match open_window() {
        Ok(window) => {
            let Some(stamp) = trackway_sys::memory::wiped_on_fork() else {
                return explain(c"trackway: no MADV_WIPEONFORK (Linux 4.14): not traced\n");
            };
            let mut tokens = [0; 8];
            read_tokens(&mut tokens);
            PROCESS.adopt(window, stamp, &tokens);
            PROCESS.settled_stamp();
            register::register_loaded_modules();
        }
        Err(OpenError::Truncated) => {
            explain(c"trackway: the window has been truncated: not traced\n");
        }
        Err(OpenError::NotOurs) => explain(c"trackway: the window is not ours: not traced\n"),
        Err(_) => explain(c"trackway: no window can be opened or made: not traced\n"),
    }
    set_errno(errno);
}

fn open_window() -> Result<Window, OpenError> {
    // SAFETY: geteuid has no preconditions.
    let uid = unsafe { libc::geteuid() };
    let folder = variable(FOLDER_VARIABLE).unwrap_or(FOLDER);
    let mut name = [0; NAME_BYTES];
    let path = window_name(folder.to_bytes(), uid, &mut name)?;
    // The descriptor is closed at once: a program may close every descriptor that it did not
    // open, or use its number.
    Window::open(folder, path, uid, true).map(|(window, _)| window)
}

/// The value of an environment variable. Nothing where the program runs with more rights than its
/// user has (AT_SECURE): there the environment is not to be believed.
fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: getauxval has no preconditions; the environment is only read, before main or by the
    // thread that loads the library.
    unsafe {
        if libc::getauxval(libc::AT_SECURE) != 0 {
            return None;
        }
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value))
    }
}

fn read_tokens(into: &mut [u64; 8]) {
    let Some(text) = variable(TOKEN_VARIABLE) else { return };
    // The innermost recording's token is the last.
    let tokens = text.to_bytes().rsplit(|&byte| byte == b':');
    for (slot, token) in into.iter_mut().zip(tokens) {
        let text = core::str::from_utf8(token).unwrap_or("");
        *slot = u64::from_str_radix(text, 16).unwrap_or(0);
    }
}

fn explain(reason: &CStr) {
    if variable(DEBUG_VARIABLE).is_some() {
        let text = reason.to_bytes();
        // SAFETY: the text is ours, with its length.
        unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
    }
}

/// The calling thread's errno.
pub(crate) fn errno() -> i32 {
    // SAFETY: errno's address is valid for the calling thread.
    unsafe { *libc::__errno_location() }
}

/// Sets the calling thread's errno.
pub fn set_errno(errno: i32) {
    // SAFETY: errno's address is valid for the calling thread.
    unsafe { *libc::__errno_location() = errno };
}

/// Ends the process: for the panic handler.
pub fn abort() -> ! {
    // SAFETY: abort has no preconditions.
    unsafe { libc::abort() }
}
