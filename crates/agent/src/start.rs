//! The library's start, in its constructor: maps the window, makes the stamp, registers events.
//!
//! The start makes some twenty system calls, without a thread, a signal handler or a wait. If
//! anything is missing, the program runs untraced; with `TRACKWAY_DEBUG=1` the library writes the
//! reason to standard error.

use core::ffi::{CStr, c_void};

use trackway_sys::Errno;
use trackway_sys::process::has_elevated_rights;
use trackway_window::OpenError;

use crate::emit::blocking;
use crate::filters;
use crate::fork_child::ensure_stamp;
use crate::registration::register;
use crate::setuid;
use crate::state::environment::{open_window, print_reason, read_variable, store_folder};
use crate::state::executable;
use crate::state::process::PROCESS;
use crate::state::thread;
use crate::state::window_map::MappedWindow;

/// Environment variable for the process's tokens: hexadecimal, separated by colons.
const TOKEN_VARIABLE: &CStr = c"TRACKWAY_TOKEN";
/// Environment variable that lets sessions make the program wait.
const BLOCKING_VARIABLE: &CStr = c"TRACKWAY_ALLOW_BLOCKING";
/// The reason for a token without a session in this window: the session has ended, or is in the
/// window of another version or folder.
const UNKNOWN_TOKEN: &CStr =
    c"trackway: the recording of TRACKWAY_TOKEN has ended, or its `trackway` \
    and this library are of different versions: not traced by it\n";

/// Starts the library in this process. Its constructor calls this once.
pub fn start() {
    let errno = Errno::last(); // restored at the end
    store_folder();
    blocking::set_allowed(read_variable(BLOCKING_VARIABLE));
    setuid::resolve_wrapped_functions();
    match map_first_window() {
        Ok(mapped) => {
            if let Some(page) = trackway_sys::memory::map_wiped_on_fork() {
                let mut tokens = [0; 8];
                read_tokens(&mut tokens);
                executable::read_path_and_name();
                filters::executable_memory::map_code_memory();
                PROCESS.start(mapped, page, &tokens);
                let stamp = ensure_stamp();
                // Fills this thread's line, so that the thread needs no system call in a sandbox
                // later. Omits the thread's name, because programs name their threads later.
                thread::identify_thread(stamp, false);
                register::register_loaded_modules();
                if tokens != [0; 8] && !PROCESS.holds_awaited_token() {
                    print_reason(UNKNOWN_TOKEN);
                }
            } else {
                print_reason(c"trackway: no MADV_WIPEONFORK (Linux 4.14): not traced\n");
            }
        }
        Err(OpenError::Truncated) => {
            print_reason(c"trackway: the window has been truncated: not traced\n");
        }
        Err(OpenError::NotOurs) => print_reason(c"trackway: the window is not ours: not traced\n"),
        Err(_) => print_reason(c"trackway: no window can be opened or made: not traced\n"),
    }
    errno.set();
}

fn map_first_window() -> Result<&'static MappedWindow, OpenError> {
    // SAFETY: geteuid has no preconditions.
    let uid = unsafe { libc::geteuid() };
    // A user may truncate their window, which kills the processes that use it: so a process with
    // more rights stays out.
    if uid != 0 && has_elevated_rights() {
        return Err(OpenError::NotOurs);
    }
    let (window, fd) = open_window(uid)?;
    let status = fd.status()?;
    MappedWindow::add(window, uid, [status.device, status.inode]).ok_or(OpenError::Absent)
}

fn read_tokens(into: &mut [u64; 8]) {
    let Some(text) = read_variable(TOKEN_VARIABLE) else { return };
    // The innermost recording's token is the last.
    let tokens = text.to_bytes().rsplit(|&byte| byte == b':');
    for (slot, token) in into.iter_mut().zip(tokens) {
        let text = core::str::from_utf8(token).unwrap_or("");
        *slot = u64::from_str_radix(text, 16).unwrap_or(0);
    }
}

/// Returns true if the symbol that the program finds under this name is in the same module as
/// `own`.
pub fn is_first_copy(name: &CStr, own: *const c_void) -> bool {
    let module = |address: *const c_void| {
        let mut found = core::mem::MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: `found` has room for what dladdr writes, and zeros are valid where it does not.
        unsafe {
            libc::dladdr(address, found.as_mut_ptr());
            found.assume_init().dli_fbase
        }
    };
    // SAFETY: the name is a C string.
    let first = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    // An old copy of the library lacks the symbol; then each copy acts as the first.
    first.is_null() || module(first) == module(own)
}

/// Aborts the process, for the panic handler.
pub fn abort() -> ! {
    // SAFETY: abort has no preconditions.
    unsafe { libc::abort() }
}
