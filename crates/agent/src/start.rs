//! The library's start, in its constructor: find the window, take a stamp, register events.
//!
//! Some twenty system calls, no thread, no handler, no wait. Where anything is missing the program
//! runs on untraced; with `TRACKWAY_DEBUG=1` the reason is written to standard error.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_int, c_void};

use trackway_sys::Errno;
use trackway_sys::file::Fd;
use trackway_sys::process::{has_more_rights, outer_user};
use trackway_window::{NAME_BYTES, OpenError, Window, window_name};

use crate::decision::PROCESS;
use crate::home::Home;
use crate::{blocking, filters, privileges, program, register, thread};

/// Environment variable that says where the window is, instead of /dev/shm.
const FOLDER_VARIABLE: &CStr = c"TRACKWAY_WINDOW_DIR";
/// Environment variable with the tokens that this process holds, in hexadecimal, by colons.
const TOKEN_VARIABLE: &CStr = c"TRACKWAY_TOKEN";
/// Environment variable that lets sessions make the program wait.
const BLOCKING_VARIABLE: &CStr = c"TRACKWAY_ALLOW_BLOCKING";
/// Environment variable that asks for reasons.
const DEBUG_VARIABLE: &CStr = c"TRACKWAY_DEBUG";
/// Where the window is.
const FOLDER: &CStr = c"/dev/shm";

/// Said where a recorder gave the process a token, and its session is not in this window: it has
/// ended, or is in the window of another version, or in that of another folder.
const STRANGER: &CStr = c"trackway: the recording of TRACKWAY_TOKEN has ended, or its `trackway` \
    and this library are of different versions: not traced by it\n";

/// Starts the library in this process. Called once, by its constructor.
pub fn start() {
    let errno = Errno::last(); // the program's is left as it was
    keep_folder();
    blocking::allow(variable(BLOCKING_VARIABLE));
    privileges::look_up_wrapped();
    match open_first_home() {
        Ok(home) => {
            if let Some(page) = trackway_sys::memory::wiped_on_fork() {
                let mut tokens = [0; 8];
                read_tokens(&mut tokens);
                program::look_up();
                filters::code::prepare();
                PROCESS.adopt(home, page, &tokens);
                let stamp = PROCESS.settled_stamp();
                // This thread's line, so that it needs no system call in a sandbox later. Not its
                // name: programs give their threads names after this.
                thread::identify(stamp, false);
                register::register_loaded_modules();
                if tokens != [0; 8] && !PROCESS.is_expected() {
                    explain(STRANGER);
                }
            } else {
                explain(c"trackway: no MADV_WIPEONFORK (Linux 4.14): not traced\n");
            }
        }
        Err(OpenError::Truncated) => {
            explain(c"trackway: the window has been truncated: not traced\n");
        }
        Err(OpenError::NotOurs) => explain(c"trackway: the window is not ours: not traced\n"),
        Err(_) => explain(c"trackway: no window can be opened or made: not traced\n"),
    }
    errno.set();
}

fn open_first_home() -> Result<&'static Home, OpenError> {
    // SAFETY: geteuid has no preconditions.
    let uid = unsafe { libc::geteuid() };
    // A user may truncate his window, which ends those who use it: not a program with more rights.
    if uid != 0 && has_more_rights() {
        return Err(OpenError::NotOurs);
    }
    let (window, fd) = open_window(uid)?;
    let status = fd.status()?;
    Home::found(window, uid, [status.device, status.inode]).ok_or(OpenError::Absent)
}

/// Opens or makes the window of user `uid`, who is the effective one.
///
/// The descriptor is to be closed at once: a program may close every descriptor that it did not
/// open, or use its number.
pub(crate) fn open_window(uid: u32) -> Result<(Window, Fd), OpenError> {
    // SAFETY: written by `keep_folder` alone, before there is a home.
    let kept = unsafe { &*KEPT_FOLDER.0.get() };
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
static KEPT_FOLDER: KeptFolder = KeptFolder(UnsafeCell::new([0; NAME_BYTES]));

struct KeptFolder(UnsafeCell<[u8; NAME_BYTES]>);

// SAFETY: written once, by the thread that loads the library, before any other can be here.
unsafe impl Sync for KeptFolder {}

/// Keeps the folder's name; one that is too long is kept without its end, and refused later.
fn keep_folder() {
    let name = variable(FOLDER_VARIABLE).unwrap_or(FOLDER).to_bytes_with_nul();
    // SAFETY: nobody else is here yet.
    let kept = unsafe { &mut *KEPT_FOLDER.0.get() };
    for (kept, byte) in kept.iter_mut().zip(name) {
        *kept = *byte;
    }
}

/// The value of an environment variable. Nothing where the program runs with more rights than its
/// user has: there the environment is not to be believed.
fn variable(name: &CStr) -> Option<&'static CStr> {
    if has_more_rights() {
        return None;
    }
    // SAFETY: the environment is only read, before main or by the thread that loads the library.
    unsafe {
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

/// Writes a reason to standard error, for who asked for reasons.
pub(crate) fn explain(reason: &CStr) {
    if variable(DEBUG_VARIABLE).is_some() {
        let text = reason.to_bytes();
        // SAFETY: the text is ours, with its length.
        unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
    }
}

/// clone(2) as the C library has it, for a child that may share the caller's thread-local storage:
/// with CLONE_VM and without CLONE_SETTLS. Such a child is what a vfork child is: it sees its
/// parent's rseq area, which is not registered for it, so both go by claim. Where the parent waits
/// (CLONE_VFORK) that ends with the call; else it lasts, because nobody says when the child ends.
/// Which of them is whose is then said by the process id, so that the parent is its own master.
///
/// # Safety
/// As clone(2): the C library's function is called with the same arguments.
pub unsafe fn clone(arguments: &CloneArguments) -> c_int {
    unsafe extern "C" {
        fn __clone(
            function: *mut c_void,
            stack: *mut c_void,
            flags: c_int,
            argument: *mut c_void,
            ...
        ) -> c_int;
    }
    let flags = arguments.flags;
    let shares_tls = flags & libc::CLONE_VM != 0 && flags & libc::CLONE_SETTLS == 0;
    let waits = flags & libc::CLONE_VFORK != 0;
    let mut before = 0;
    if shares_tls && waits {
        thread::begin_shared_tls();
    } else if shares_tls {
        // Before there are two with this memory: see `thread::is_guest`.
        let errno = Errno::last();
        PROCESS.settled_stamp();
        errno.set();
        before = thread::share_tls();
    }
    // SAFETY: the caller's promise. The child runs `function` on `stack` and does not come here.
    let result = unsafe {
        __clone(
            arguments.function,
            arguments.stack,
            flags,
            arguments.argument,
            arguments.parent_tid,
            arguments.tls,
            arguments.child_tid,
        )
    };
    if shares_tls && waits {
        thread::end_shared_tls();
    } else if shares_tls && result < 0 {
        thread::take_back(before);
    }
    result
}

/// Arguments of [`clone`]; those that the caller did not give hold anything.
#[derive(Debug)]
#[expect(missing_docs, reason = "clone(2) explains them")]
pub struct CloneArguments {
    pub function: *mut c_void,
    pub stack: *mut c_void,
    pub flags: c_int,
    pub argument: *mut c_void,
    pub parent_tid: *mut c_void,
    pub tls: *mut c_void,
    pub child_tid: *mut c_void,
}

/// Whether what the program finds under this name is in the same module as `own`.
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
    // An old copy does not have the name; then each believes to be alone.
    first.is_null() || module(first) == module(own)
}

/// Ends the process: for the panic handler.
pub fn abort() -> ! {
    // SAFETY: abort has no preconditions.
    unsafe { libc::abort() }
}
