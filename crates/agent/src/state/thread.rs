//! One line of thread-local memory, in the initial-exec model.
//!
//! Lazily allocated TLS would call malloc at the first event of a thread, which may be inside
//! malloc. Rust's `thread_local!` in a shared library is of that kind; so the line is defined in
//! assembly, in static TLS (64 bytes of the surplus that glibc keeps for such libraries).

use core::sync::atomic::Ordering;

use crate::state::executable;
use crate::state::process::PROCESS;
use crate::tls;

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
    /// sees but does not have. How many such children are under way, and [`SHARED`].
    pub(crate) vfork_depth: u32,
    /// The process stamp for which `name` holds.
    pub(crate) name_stamp: u64,
    /// Name, NUL-padded; asked for only where a session wants it, because the system call may be
    /// one that a sandbox forbids. In a fork child what it was in the parent.
    pub(crate) name: [u8; 17],
    /// How many filters are being evaluated: more than one where signal handlers emit.
    filter_depth: u8,
    /// Where [`random`] is.
    random: u32,
    /// Until when it waits for another thread, or has waited last, in ns.
    last_deadline_ns: u64,
    /// The highest address of its stack that [`is_shallow`] was asked about.
    shallowest: usize,
}

/// Offset of `stamp`, for the vfork wrapper.
pub const THREAD_STAMP_OFFSET: usize = core::mem::offset_of!(Thread, stamp);
/// Offset of `vfork_depth`, for the vfork wrapper.
pub const THREAD_VFORK_OFFSET: usize = core::mem::offset_of!(Thread, vfork_depth);

/// In `vfork_depth`: there was a child whose end nobody says, or the memory is a copy of what a
/// vfork child had. Then the process id says whose memory this is.
const SHARED: u32 = 1 << 31;

const _: () = assert!(size_of::<Thread>() <= tls::LINE_BYTES);

/// The calling thread's line.
#[inline(always)]
pub(crate) fn current() -> *mut Thread {
    tls::line()
}

/// Its stamp: zero until the line was filled in.
#[inline(always)]
pub(crate) fn stamp() -> u64 {
    const _: () = assert!(THREAD_STAMP_OFFSET == 0);
    tls::line_first_word()
}

fn vfork_depth() -> u32 {
    // SAFETY: the line is the calling thread's, or its parent's.
    unsafe { (&raw const (*current()).vfork_depth).read_volatile() }
}

/// Whether the calling thread may be a vfork child's, and then has no rseq area. After a clone(2)
/// that shares memory and does not wait, its parent is taken for one, too.
pub(crate) fn in_vfork_child() -> bool {
    vfork_depth() != 0
}

/// Whether the calling thread's process has the memory of another one, which is its parent: what
/// it remembered there would be remembered by both. Costs a system call after a clone(2) as above,
/// else none. (There, who is number 1 of its namespace as its parent is of its own is not told
/// from it.)
pub(crate) fn runs_in_parent_memory() -> bool {
    let depth = vfork_depth();
    if depth & SHARED != 0 && PROCESS.has_stamp() {
        // SAFETY: getpid has no preconditions.
        return PROCESS.pid.load(Ordering::Relaxed) != unsafe { libc::getpid() }.cast_unsigned();
    }
    // A fork child that has not settled: `clone` settles before it makes a child that goes on
    // beside its parent, so there is none.
    depth & !SHARED != 0
}

/// What the calling thread is, from its line if that holds for `stamp`, else afresh.
///
/// In a vfork child the line is the parent's: it is left alone.
pub(crate) fn identify(stamp: u64, with_name: bool) -> Identity {
    let thread = current();
    let in_vfork_child = in_vfork_child();
    let mut identity = Identity { tid: 0, name: [0; 17], in_vfork_child };
    // SAFETY: the line is the calling thread's. A signal handler that comes in between writes the
    // same values; a stamp is stored last, so that it never vouches for values not there yet.
    unsafe {
        if stamp != 0 && !in_vfork_child && (*thread).stamp == stamp {
            identity.tid = (*thread).tid;
        } else {
            identity.tid = trackway_sys::thread::tid();
            if !in_vfork_child {
                (&raw mut (*thread).tid).write_volatile(identity.tid);
                (&raw mut (*thread).stamp).write_volatile(stamp);
            }
        }
        if !with_name {
            return identity;
        }
        if stamp != 0 && !in_vfork_child && (*thread).name_stamp == stamp {
            identity.name = (*thread).name;
        } else {
            identity.name = (*thread).name;
            if !PROCESS.is_sandboxed() {
                identity.name = read_name();
            } else if identity.name[0] == 0 {
                identity.name = executable::loader_thread_name();
            }
            if !in_vfork_child {
                (&raw mut (*thread).name).write_volatile(identity.name);
                (&raw mut (*thread).name_stamp).write_volatile(stamp);
            }
        }
    }
    identity
}

/// The calling thread's name, by a system call.
pub(crate) fn read_name() -> [u8; 17] {
    let mut name = [0; 17];
    // SAFETY: PR_GET_NAME writes at most 16 bytes, NUL included (prctl(2)).
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    name
}

/// Notes that the calling thread, whose line is given, begins to evaluate filters.
#[inline(always)]
pub(crate) fn begin_filter(line: *mut Thread) {
    // SAFETY: the line is the calling thread's, or its parent's, who waits for it.
    unsafe {
        let depth = &raw mut (*line).filter_depth;
        depth.write_volatile(depth.read_volatile().wrapping_add(1));
    }
}

/// Notes that it is through with it.
#[inline(always)]
pub(crate) fn end_filter(line: *mut Thread) {
    // SAFETY: as above.
    unsafe {
        let depth = &raw mut (*line).filter_depth;
        depth.write_volatile(depth.read_volatile().wrapping_sub(1));
    }
}

/// Whether it evaluates filters: then this is a signal handler.
pub(crate) fn is_in_filter() -> bool {
    // SAFETY: as above.
    unsafe { (&raw const (*current()).filter_depth).read_volatile() != 0 }
}

/// Until when, in ns, the calling thread may wait for another one that it has found at something,
/// for `patience_ns` at most; `None`: not at all, because it has waited in vain a moment ago. So
/// signal handlers that interrupt who waits wait no longer than he does, and do not come faster
/// than they end.
pub(crate) fn wait_deadline_ns(now_ns: u64, patience_ns: u64) -> Option<u64> {
    /// How many times as long as it has waited it waits no more.
    const REST: u64 = 4;
    // SAFETY: the line is the calling thread's, or its parent's, who waits for it. What a handler
    // writes that comes in between is as good.
    unsafe {
        let until_ns = &raw mut (*current()).last_deadline_ns;
        let before_ns = until_ns.read_volatile();
        if now_ns <= before_ns {
            return Some(before_ns.min(now_ns + patience_ns));
        }
        if now_ns - before_ns < REST * patience_ns {
            return None;
        }
        until_ns.write_volatile(now_ns + patience_ns);
        Some(now_ns + patience_ns)
    }
}

/// Whether a place on the calling thread's stack is about as high as the highest that this was ever
/// asked about: likely to be no signal handler's. A guess, for what is only to be shared out.
pub(crate) fn is_shallow(place: usize) -> bool {
    /// How far from there, in bytes.
    const NEAR: usize = 2048;
    // SAFETY: the line is the calling thread's, or its parent's, who waits for it.
    unsafe {
        let shallowest = &raw mut (*current()).shallowest;
        let before = shallowest.read_volatile();
        if place > before {
            shallowest.write_volatile(place);
        }
        place.saturating_add(NEAR) > before
    }
}

/// 64 random bits, for what takes samples. SplitMix64 (Steele, Lea, Flood 2014) of a count that
/// each thread has, of the counter of time, and of the thread.
pub(crate) fn random() -> u64 {
    let thread = current();
    // SAFETY: as above. A signal handler that comes in between takes the same number, at another
    // time.
    let count = unsafe {
        let count = &raw mut (*thread).random;
        let next = count.read_volatile().wrapping_add(1);
        count.write_volatile(next);
        next
    };
    let time = if trackway_sys::clock::HAS_COUNTER {
        trackway_sys::clock::tsc()
    } else {
        trackway_sys::clock::monotonic_ns()
    };
    let mut mixed = (u64::from(count) << 40) ^ time ^ (thread.addr() as u64).rotate_left(24);
    mixed = mixed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Notes that the calling thread is about to have a child that shares its thread-local storage.
pub(crate) fn begin_shared_tls() {
    // SAFETY: the line is the calling thread's.
    unsafe {
        let thread = current();
        (&raw mut (*thread).stamp).write_volatile(0);
        let depth = &raw mut (*thread).vfork_depth;
        depth.write_volatile(depth.read_volatile() + 1);
    }
}

/// Notes that the child is gone.
pub(crate) fn end_shared_tls() {
    // SAFETY: the line is the calling thread's, and has it alone again.
    unsafe {
        let depth = &raw mut (*current()).vfork_depth;
        let before = depth.read_volatile();
        // Who shared this line may have counted at the same time.
        if before & !SHARED != 0 {
            depth.write_volatile(before - 1);
        }
    }
}

/// Notes that the calling thread is about to have such a child, and that nobody will say when it is
/// gone; what there was before, for [`unshare_tls`].
pub(crate) fn share_tls() -> u32 {
    let before = vfork_depth();
    // SAFETY: the line is the calling thread's.
    unsafe {
        (&raw mut (*current()).stamp).write_volatile(0);
        (&raw mut (*current()).vfork_depth).write_volatile(before | SHARED);
    }
    before
}

/// Undoes [`share_tls`]: there is no child.
pub(crate) fn unshare_tls(before: u32) {
    // SAFETY: the line is the calling thread's.
    unsafe { (&raw mut (*current()).vfork_depth).write_volatile(before) };
}

/// Notes in a fork child that its memory is its own, whatever its parent was. Whether it has an
/// rseq area is not known if its parent was a vfork child.
pub(crate) fn note_fork() {
    if vfork_depth() != 0 {
        // SAFETY: the line is the calling thread's.
        unsafe { (&raw mut (*current()).vfork_depth).write_volatile(SHARED) };
    }
}

/// What contexts and claims need of a thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Identity {
    pub(crate) tid: u32,
    pub(crate) name: [u8; 17],
    pub(crate) in_vfork_child: bool,
}
