//! clone(2), for children that share the thread-local storage of their parent.

use core::ffi::{c_int, c_void};

use trackway_sys::Errno;

use crate::fork_child::ensure_stamp;
use crate::state::thread;

/// Calls clone(2) as the C library does, for a child that may share the caller's thread-local
/// storage: with CLONE_VM and without CLONE_SETTLS.
///
/// Such a child is like a vfork child: its memory has the parent's rseq area, which is not
/// registered for the child. So both record by claim. If the parent waits (CLONE_VFORK), both do so
/// until the call ends; else for ever, because nothing reports the child's end. The process id then
/// shows which process owns the memory, so that the parent remains the owner.
///
/// # Safety
/// The contract of clone(2) applies: the C library's function is called with the same arguments.
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
        // Precedes the time when two processes share this memory: see
        // `thread::runs_in_parent_memory`.
        let errno = Errno::last();
        ensure_stamp();
        errno.set();
        before = thread::share_tls();
    }
    // SAFETY: the caller upholds the contract. The child runs `function` on `stack`, not this code.
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
        thread::unshare_tls(before);
    }
    result
}

/// The arguments of [`clone`]. Arguments that the caller did not pass have arbitrary values.
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
