//! clone(2), for children that share the thread-local storage of their parent.

use core::ffi::{c_int, c_void};

use trackway_sys::Errno;

use crate::fork_child::ensure_stamp;
use crate::state::thread;

/// Calls clone(2) as the C library does, for a child that may share the caller's thread-local
/// storage: with CLONE_VM and without CLONE_SETTLS.
///
/// Such a child is like a vfork child: it sees its parent's rseq area, which is not registered for
/// it. So both record by claim. If the parent waits (CLONE_VFORK), that ends with the call; else it
/// lasts, because the child's end is never reported. The process id then shows whose memory this
/// is, so that the parent remains its owner.
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
        // Before two processes have this memory: see `thread::runs_in_parent_memory`.
        let errno = Errno::last();
        ensure_stamp();
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
        thread::unshare_tls(before);
    }
    result
}

/// The arguments of [`clone`]; those that the caller did not pass hold anything.
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
