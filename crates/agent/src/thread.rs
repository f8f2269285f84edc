//! One line of thread-local memory, in the initial-exec model.
//!
//! Lazily allocated TLS would call malloc at the first event of a thread, which may be inside
//! malloc. Rust's `thread_local!` in a shared library is of that kind; so the line is defined in
//! assembly, in static TLS (64 bytes of the surplus that glibc keeps for such libraries).

/// What a thread remembers.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Thread {
    /// The process stamp for which the rest holds; zero: nothing holds. A fork child has another
    /// stamp, so a thread that it copied refreshes itself.
    pub(crate) stamp: u64,
    /// Thread id in its own namespace.
    pub(crate) tid: u32,
    /// Not zero in a vfork child: it shares this memory with its parent, whose rseq area it
    /// sees but does not have.
    pub(crate) vfork_depth: u32,
    /// Name, NUL-padded.
    pub(crate) name: [u8; 17],
}

/// Offset of `stamp`, for the vfork wrapper.
pub const THREAD_STAMP_OFFSET: usize = core::mem::offset_of!(Thread, stamp);
/// Offset of `vfork_depth`, for the vfork wrapper.
pub const THREAD_VFORK_OFFSET: usize = core::mem::offset_of!(Thread, vfork_depth);

const _: () = assert!(size_of::<Thread>() <= 64);

core::arch::global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".balign 64",
    ".globl trackway_thread",
    ".hidden trackway_thread",
    ".type trackway_thread,@object",
    ".size trackway_thread,64",
    "trackway_thread:",
    ".zero 64",
    ".popsection",
);

/// The calling thread's line.
#[inline(always)]
pub(crate) fn current() -> *mut Thread {
    let thread: *mut Thread;
    // SAFETY: reads the offset of the line from the GOT and adds the thread pointer (ELF TLS ABI,
    // initial-exec); both are constant for a thread.
    unsafe {
        core::arch::asm!(
            "mov {thread}, qword ptr [rip + trackway_thread@GOTTPOFF]",
            "add {thread}, qword ptr fs:[0]",
            thread = out(reg) thread,
            options(nostack, pure, readonly),
        );
    }
    thread
}

/// Whether the calling thread is a vfork child's.
pub(crate) fn in_vfork_child() -> bool {
    // SAFETY: the line is the calling thread's, or its suspended parent's.
    unsafe { (&raw const (*current()).vfork_depth).read_volatile() != 0 }
}

/// What the calling thread is, from its line if that holds for `stamp`, else afresh.
pub(crate) fn refresh_if_needed(stamp: u64) -> Identity {
    let thread = current();
    // SAFETY: the line is the calling thread's.
    unsafe {
        if stamp != 0 && (*thread).stamp == stamp {
            return Identity {
                tid: (*thread).tid,
                name: (*thread).name,
                in_vfork_child: (*thread).vfork_depth != 0,
            };
        }
    }
    refresh(stamp)
}

/// Fills in the calling thread's line for the process stamp `stamp`. In a vfork child the line is
/// the parent's: it is left alone, and the caller gets the child's own values.
fn refresh(stamp: u64) -> Identity {
    let thread = current();
    let tid = trackway_sys::thread::tid();
    let mut name = [0_u8; 17];
    // SAFETY: PR_GET_NAME writes at most 16 bytes, NUL included (prctl(2)).
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    // SAFETY: the line is the calling thread's. A signal handler that comes in between writes the
    // same values; `stamp` is last, so that it never vouches for values not there yet.
    unsafe {
        let in_vfork_child = in_vfork_child();
        if !in_vfork_child {
            (&raw mut (*thread).tid).write_volatile(tid);
            (&raw mut (*thread).name).write_volatile(name);
            (&raw mut (*thread).stamp).write_volatile(stamp);
        }
        Identity { tid, name, in_vfork_child }
    }
}

/// What contexts and claims need of a thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Identity {
    pub(crate) tid: u32,
    pub(crate) name: [u8; 17],
    pub(crate) in_vfork_child: bool,
}
