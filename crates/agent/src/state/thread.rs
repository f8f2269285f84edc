//! A thread's state: one line of thread-local memory ([`crate::tls`]).

use core::sync::atomic::Ordering;

use crate::state::executable;
use crate::state::process::PROCESS;
use crate::tls;

/// The state of a thread.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Thread {
    /// The process stamp for which the other fields are valid; zero: none is valid. A fork child
    /// has another stamp, so a copied thread refreshes its line.
    pub(crate) stamp: u64,
    /// Thread id in the thread's own pid namespace.
    pub(crate) tid: u32,
    /// Number of vfork children under way, and [`SHARED`]. Not zero in a vfork child, which shares
    /// this memory, and with it the parent's rseq area, which is not registered for the child.
    pub(crate) vfork_depth: u32,
    /// The process stamp for which `name` is valid.
    pub(crate) name_stamp: u64,
    /// Thread name, NUL-padded. Read only if a session records it, because a sandbox may forbid the
    /// system call. A fork child begins with its parent's name.
    pub(crate) name: [u8; 17],
    /// Number of filters under evaluation: more than one if signal handlers emit.
    filter_depth: u8,
    /// Number of calls of [`random_bits`].
    random: u32,
    /// Deadline of the thread's present or last wait for another thread, in ns.
    last_deadline_ns: u64,
    /// The highest stack address that [`is_shallow`] was called with.
    shallowest: usize,
}

/// Offset of `stamp`, for the vfork wrapper.
pub const THREAD_STAMP_OFFSET: usize = core::mem::offset_of!(Thread, stamp);
/// Offset of `vfork_depth`, for the vfork wrapper.
pub const THREAD_VFORK_OFFSET: usize = core::mem::offset_of!(Thread, vfork_depth);

/// A bit of `vfork_depth`: a child was made whose end is never reported, or the memory is a copy of
/// a vfork child's memory. Then the process id shows which process owns the memory.
const SHARED: u32 = 1 << 31;

const _: () = assert!(size_of::<Thread>() <= tls::LINE_BYTES);

/// Returns the calling thread's line.
#[inline(always)]
pub(crate) fn current_thread() -> *mut Thread {
    tls::thread_line()
}

/// Returns the line's stamp: zero until the line is filled in.
#[inline(always)]
pub(crate) fn thread_stamp() -> u64 {
    const _: () = assert!(THREAD_STAMP_OFFSET == 0);
    tls::line_first_word()
}

fn vfork_depth() -> u32 {
    // SAFETY: the line is the calling thread's, or its parent's.
    unsafe { (&raw const (*current_thread()).vfork_depth).read_volatile() }
}

/// Returns true if the calling thread may belong to a vfork child, which has no rseq area. After a
/// clone(2) that shares memory and does not wait, also returns true in the parent.
pub(crate) fn in_vfork_child() -> bool {
    vfork_depth() != 0
}

/// Returns true if the calling thread's process runs in its parent's memory: both processes would
/// read everything that it stores there. Makes a system call only after a clone(2) that shares
/// memory and does not wait. (In that case, a child with process id 1 is not detected if its parent
/// has id 1, too, in another namespace.)
pub(crate) fn runs_in_parent_memory() -> bool {
    let depth = vfork_depth();
    if depth & SHARED != 0 && PROCESS.has_stamp() {
        // SAFETY: getpid has no preconditions.
        return PROCESS.pid.load(Ordering::Relaxed) != unsafe { libc::getpid() }.cast_unsigned();
    }
    // A fork child without a stamp runs in its own memory: `clone` makes the stamp before it makes
    // a child that runs beside its parent.
    depth & !SHARED != 0
}

/// Returns the calling thread's identity, from its line if the line is valid for `stamp`, else from
/// the kernel.
///
/// Leaves a vfork child's line unchanged, because it is the parent's.
pub(crate) fn identify_thread(stamp: u64, with_name: bool) -> Identity {
    let thread = current_thread();
    let in_vfork_child = in_vfork_child();
    let mut identity = Identity { tid: 0, name: [0; 17], in_vfork_child };
    // SAFETY: the line is the calling thread's. A signal handler that interrupts this code writes
    // the same values. A stamp is stored last, so it never stands for values that are not there
    // yet.
    unsafe {
        if stamp != 0 && !in_vfork_child && (*thread).stamp == stamp {
            identity.tid = (*thread).tid;
        } else {
            identity.tid = trackway_sys::thread::current_tid();
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

/// Reads the calling thread's name, by a system call.
pub(crate) fn read_name() -> [u8; 17] {
    let mut name = [0; 17];
    // SAFETY: PR_GET_NAME writes at most 16 bytes, NUL included (prctl(2)).
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    name
}

/// Notes that the calling thread, with this line, begins to evaluate filters.
#[inline(always)]
pub(crate) fn begin_filter(line: *mut Thread) {
    // SAFETY: the line is the calling thread's, or that of its parent, which waits for it.
    unsafe {
        let depth = &raw mut (*line).filter_depth;
        depth.write_volatile(depth.read_volatile().wrapping_add(1));
    }
}

/// Notes that the calling thread ends an evaluation of filters.
#[inline(always)]
pub(crate) fn end_filter(line: *mut Thread) {
    // SAFETY: the line is the calling thread's, or that of its parent, which waits for it.
    unsafe {
        let depth = &raw mut (*line).filter_depth;
        depth.write_volatile(depth.read_volatile().wrapping_sub(1));
    }
}

/// Returns true if the calling thread evaluates filters: then this is a signal handler.
pub(crate) fn is_in_filter() -> bool {
    // SAFETY: the line is the calling thread's, or that of its parent, which waits for it.
    unsafe { (&raw const (*current_thread()).filter_depth).read_volatile() != 0 }
}

/// Returns the time, in ns, until which the calling thread may wait for another one, at most
/// `wait_ns_max` from now. `None`: the thread must not wait, because its last wait ended in vain a
/// moment ago. So signal handlers that interrupt a wait do not prolong it, and end faster than they
/// come.
pub(crate) fn wait_deadline_ns(now_ns: u64, wait_ns_max: u64) -> Option<u64> {
    /// Length of the pause after a vain wait, as a multiple of the maximum wait.
    const REST_FACTOR: u64 = 4;
    // SAFETY: the line is the calling thread's, or that of its parent, which waits for it. A value
    // that an interrupting handler writes is as good.
    unsafe {
        let until_ns = &raw mut (*current_thread()).last_deadline_ns;
        let before_ns = until_ns.read_volatile();
        if now_ns <= before_ns {
            return Some(before_ns.min(now_ns + wait_ns_max));
        }
        if now_ns - before_ns < REST_FACTOR * wait_ns_max {
            return None;
        }
        until_ns.write_volatile(now_ns + wait_ns_max);
        Some(now_ns + wait_ns_max)
    }
}

/// Returns true if a stack address of the calling thread is about as high as the highest in all
/// calls. Then the caller is probably no signal handler. The guess only decides about shares.
pub(crate) fn is_shallow(place: usize) -> bool {
    /// Maximum distance from the highest address, in bytes.
    const NEAR_BYTES: usize = 2048;
    // SAFETY: the line is the calling thread's, or that of its parent, which waits for it.
    unsafe {
        let shallowest = &raw mut (*current_thread()).shallowest;
        let before = shallowest.read_volatile();
        if place > before {
            shallowest.write_volatile(place);
        }
        place.saturating_add(NEAR_BYTES) > before
    }
}

/// Returns 64 random bits, for samples: SplitMix64 (Steele, Lea, Flood 2014) of the thread's count,
/// the time counter, and the thread.
pub(crate) fn random_bits() -> u64 {
    let thread = current_thread();
    // SAFETY: the line is the calling thread's, or its waiting parent's. An interrupting signal
    // handler uses the same count, at another time.
    let count = unsafe {
        let count = &raw mut (*thread).random;
        let next = count.read_volatile().wrapping_add(1);
        count.write_volatile(next);
        next
    };
    let time = if trackway_sys::clock::HAS_COUNTER {
        trackway_sys::clock::read_tsc()
    } else {
        trackway_sys::clock::monotonic_ns()
    };
    let mut mixed = (u64::from(count) << 40) ^ time ^ (thread.addr() as u64).rotate_left(24);
    mixed = mixed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Notes that the calling thread is about to make a child that shares its thread-local storage.
pub(crate) fn begin_shared_tls() {
    // SAFETY: the line is the calling thread's.
    unsafe {
        let thread = current_thread();
        (&raw mut (*thread).stamp).write_volatile(0);
        let depth = &raw mut (*thread).vfork_depth;
        depth.write_volatile(depth.read_volatile() + 1);
    }
}

/// Notes that the child after [`begin_shared_tls`] has ended.
pub(crate) fn end_shared_tls() {
    // SAFETY: the line is the calling thread's, which has it alone again.
    unsafe {
        let depth = &raw mut (*current_thread()).vfork_depth;
        let before = depth.read_volatile();
        // A child that shared this line may have counted at the same time.
        if before & !SHARED != 0 {
            depth.write_volatile(before - 1);
        }
    }
}

/// Notes that the calling thread is about to make a child that shares its thread-local storage and
/// whose end is not reported. Returns the earlier value for [`unshare_tls`].
pub(crate) fn share_tls() -> u32 {
    let before = vfork_depth();
    // SAFETY: the line is the calling thread's.
    unsafe {
        (&raw mut (*current_thread()).stamp).write_volatile(0);
        (&raw mut (*current_thread()).vfork_depth).write_volatile(before | SHARED);
    }
    before
}

/// Reverts [`share_tls`]: no child was made.
pub(crate) fn unshare_tls(before: u32) {
    // SAFETY: the line is the calling thread's.
    unsafe { (&raw mut (*current_thread()).vfork_depth).write_volatile(before) };
}

/// Notes that a fork child owns its memory, even if its parent was a vfork child. In that case it
/// is unknown whether this thread has an rseq area.
pub(crate) fn note_fork() {
    if vfork_depth() != 0 {
        // SAFETY: the line is the calling thread's.
        unsafe { (&raw mut (*current_thread()).vfork_depth).write_volatile(SHARED) };
    }
}

/// The identity of a thread, for contexts and claims.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Identity {
    pub(crate) tid: u32,
    pub(crate) name: [u8; 17],
    pub(crate) in_vfork_child: bool,
}
