//! Lanes: in each, one thread at a time makes links. Waits for a lane are short, and a lane becomes
//! free if its owner is gone ([`crate::sync::recoverable_lock`]).

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};

use trackway_window::Window;

use super::linker::Linker;
use crate::state::thread;
use crate::sync::recoverable_lock::{LockResult, RecoverableLock, StackOwner};

/// Maximum wait for an occupied lane, in ns: a few times as long as a link takes, if its thread is
/// not preempted. After that the event is discarded, so that a real-time thread does not wait for
/// an ordinary one.
const WAIT_NS_MAX: u64 = 200_000;
/// Maximum number of vain waits for the end of one ownership; after that it may never end. (A
/// preempted thread is back earlier, and there are other lanes.)
const VAIN_WAITS_MAX: u64 = 8;
/// Number of lanes. Every thread waits for the first lane. The other lanes serve handlers that
/// interrupted its owner, threads for which it has no memory, and the time until an abandoned lane
/// is detected.
pub(super) const LANE_COUNT: usize = 4;

/// A lane: its lock and its linker.
pub(super) struct Lane {
    pub(super) lock: RecoverableLock,
    /// Number of acquisitions.
    turns: AtomicU64,
    /// The acquisition that a thread last waited for in vain, and the number of such waits (the
    /// lowest eight bits).
    vain_waits: AtomicU64,
    pub(super) linker: UnsafeCell<Linker>,
}

// SAFETY: only the lane's owner uses the linker.
unsafe impl Sync for Lane {}

pub(super) static LANES: [Lane; LANE_COUNT] = [const { Lane::new() }; LANE_COUNT];

/// Ownership of a lane.
pub(super) struct LaneGuard {
    lane: &'static Lane,
    number: usize,
    /// True if the last owner abandoned the lane.
    was_left: bool,
}

impl Lane {
    const fn new() -> Self {
        Self {
            lock: RecoverableLock::new(),
            turns: AtomicU64::new(0),
            vain_waits: AtomicU64::new(0),
            linker: UnsafeCell::new(Linker::new()),
        }
    }

    /// Acquires the lane, which has this number. `None`: another thread holds the lane for longer
    /// than the maximum wait.
    pub(super) fn acquire(&'static self, number: usize, me: StackOwner) -> Option<LaneGuard> {
        let mut deadline_ns = None;
        loop {
            let result = self.lock.acquire(me);
            match result {
                LockResult::Acquired | LockResult::Recovered => {
                    self.turns.fetch_add(1, Ordering::Relaxed);
                    return Some(LaneGuard {
                        lane: self,
                        number,
                        was_left: result == LockResult::Recovered,
                    });
                }
                // A signal handler does not wait for the code that it interrupted.
                LockResult::HeldBy(holder) if holder.shares_thread_with(me) => return None,
                LockResult::HeldBy(_) => {}
            }
            let (guard, now_ns) =
                (self.turns.load(Ordering::Relaxed), trackway_sys::clock::monotonic_ns());
            let vain_waits = self.vain_waits.load(Ordering::Relaxed);
            let vain_waits = if vain_waits >> 8 == guard { vain_waits } else { guard << 8 };
            if vain_waits & 0xff >= VAIN_WAITS_MAX {
                return None;
            }
            if deadline_ns.is_none() {
                deadline_ns = Some(thread::wait_deadline_ns(now_ns, WAIT_NS_MAX)?);
            }
            if deadline_ns.is_some_and(|deadline_ns| now_ns > deadline_ns) {
                // Two concurrent waits may count as one.
                self.vain_waits.store(vain_waits + 1, Ordering::Relaxed);
                return None;
            }
            core::hint::spin_loop();
        }
    }
}

impl LaneGuard {
    /// Returns the lane's linker, recovered if its last owner abandoned it.
    pub(super) fn linker(&mut self, window: &Window) -> &mut Linker {
        // SAFETY: the guard is the lane's only owner.
        let linker = unsafe { &mut *self.lane.linker.get() };
        linker.arena.set_lane(self.number);
        if core::mem::take(&mut self.was_left) {
            linker.recover(window);
        }
        linker
    }
}

impl Drop for LaneGuard {
    fn drop(&mut self) {
        self.lane.lock.release();
    }
}
