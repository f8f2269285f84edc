//! Lanes: in each of a few, one thread at a time makes links. Nobody waits for it for long, and its
//! place is taken if it never comes back ([`crate::sync::recoverable_lock`]).

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};

use trackway_window::Window;

use super::linker::Linker;
use crate::state::thread;
use crate::sync::recoverable_lock::{LockResult, RecoverableLock, StackOwner};

/// How long somebody waits who finds another one at it, in ns: a few times as long as it takes, if
/// the other is not preempted. Else the event is counted as discarded, lest a thread of real time
/// wait for one that is not.
const PATIENCE_NS: u64 = 200_000;
/// How often it is waited in vain_waits for the end of one guard; then it may never come. (A thread
/// that is merely preempted is back before, and there are other lanes.)
const VAIN_WAITS_MAX: u64 = 8;
/// How many may be at it at a time. The first lane is everybody's, and waited for; the others are
/// for those who have interrupted who is at it, for those who find no room there, and where
/// somebody has left it in the middle who is not known to be gone yet.
pub(super) const LANES: usize = 4;

/// Where one at a time makes links.
pub(super) struct Lane {
    pub(super) lock: RecoverableLock,
    /// How often anybody was at it.
    turns: AtomicU64,
    /// The guard for whose end somebody has waited in vain_waits last, and how often (the lowest
    /// eight bits).
    vain_waits: AtomicU64,
    pub(super) linker: UnsafeCell<Linker>,
}

// SAFETY: the linker is used by who holds the lane alone.
unsafe impl Sync for Lane {}

pub(super) static ALL: [Lane; LANES] = [const { Lane::new() }; LANES];

/// Holds a lane.
pub(super) struct LaneGuard {
    lane: &'static Lane,
    number: usize,
    /// Whether who was at it before has left it in the middle.
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

    /// Takes the lane with this number, which this is; `None`: somebody else is at it, for longer
    /// than he is waited for.
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
                // A signal handler does not wait for what it has interrupted.
                LockResult::Held(holder) if holder.shares_thread_with(me) => return None,
                LockResult::Held(_) => {}
            }
            let (guard, now_ns) =
                (self.turns.load(Ordering::Relaxed), trackway_sys::clock::monotonic_ns());
            let vain_waits = self.vain_waits.load(Ordering::Relaxed);
            let vain_waits = if vain_waits >> 8 == guard { vain_waits } else { guard << 8 };
            if vain_waits & 0xff >= VAIN_WAITS_MAX {
                return None;
            }
            if deadline_ns.is_none() {
                deadline_ns = Some(thread::wait_deadline_ns(now_ns, PATIENCE_NS)?);
            }
            if deadline_ns.is_some_and(|deadline_ns| now_ns > deadline_ns) {
                // (Of two that come at once, one may count for both.)
                self.vain_waits.store(vain_waits + 1, Ordering::Relaxed);
                return None;
            }
            core::hint::spin_loop();
        }
    }
}

impl LaneGuard {
    /// The lane's linker, whatever state somebody has left it in.
    pub(super) fn linker(&mut self, window: &Window) -> &mut Linker {
        // SAFETY: there is one holder.
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
