//! Lanes: in each of a few, one thread at a time makes links. Nobody waits for it for long, and its
//! place is taken if it never comes back ([`crate::sync::recoverable_lock`]).

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};

use trackway_window::Window;

use super::linker::Linker;
use crate::state::thread;
use crate::sync::recoverable_lock::{Held, Holder, Taken};

/// How long somebody waits who finds another one at it, in ns: a few times as long as it takes, if
/// the other is not preempted. Else the event is counted as discarded, lest a thread of real time
/// wait for one that is not.
const PATIENCE_NS: u64 = 200_000;
/// How often it is waited in vain for the end of one turn; then it may never come. (A thread that
/// is merely preempted is back before, and there are other lanes.)
const VAIN_MAX: u64 = 8;
/// How many may be at it at a time. The first lane is everybody's, and waited for; the others are
/// for those who have interrupted who is at it, for those who find no room there, and where
/// somebody has left it in the middle who is not known to be gone yet.
pub(super) const LANES: usize = 4;

/// Where one at a time makes links.
pub(super) struct Lane {
    pub(super) held: Held,
    /// How often anybody was at it.
    turns: AtomicU64,
    /// The turn for whose end somebody has waited in vain last, and how often (the lowest eight
    /// bits).
    vain: AtomicU64,
    pub(super) linker: UnsafeCell<Linker>,
}

// SAFETY: the linker is used by who holds the lane alone.
unsafe impl Sync for Lane {}

pub(super) static ALL: [Lane; LANES] = [const { Lane::new() }; LANES];

/// Holds a lane.
pub(super) struct Turn {
    lane: &'static Lane,
    number: usize,
    /// Whether who was at it before has left it in the middle.
    was_left: bool,
}

impl Lane {
    const fn new() -> Self {
        Self {
            held: Held::new(),
            turns: AtomicU64::new(0),
            vain: AtomicU64::new(0),
            linker: UnsafeCell::new(Linker::new()),
        }
    }

    /// Takes the lane with this number, which this is; `None`: somebody else is at it, for longer
    /// than he is waited for.
    pub(super) fn take(&'static self, number: usize, me: Holder) -> Option<Turn> {
        let mut deadline_ns = None;
        loop {
            let taken = self.held.take(me);
            match taken {
                Taken::Free | Taken::Left => {
                    self.turns.fetch_add(1, Ordering::Relaxed);
                    return Some(Turn { lane: self, number, was_left: taken == Taken::Left });
                }
                // A signal handler does not wait for what it has interrupted.
                Taken::Not(holder) if holder.is_of_thread_of(me) => return None,
                Taken::Not(_) => {}
            }
            let (turn, now_ns) =
                (self.turns.load(Ordering::Relaxed), trackway_sys::clock::monotonic_ns());
            let vain = self.vain.load(Ordering::Relaxed);
            let vain = if vain >> 8 == turn { vain } else { turn << 8 };
            if vain & 0xff >= VAIN_MAX {
                return None;
            }
            if deadline_ns.is_none() {
                deadline_ns = Some(thread::wait_until(now_ns, PATIENCE_NS)?);
            }
            if deadline_ns.is_some_and(|deadline_ns| now_ns > deadline_ns) {
                // (Of two that come at once, one may count for both.)
                self.vain.store(vain + 1, Ordering::Relaxed);
                return None;
            }
            core::hint::spin_loop();
        }
    }
}

impl Turn {
    /// The lane's linker, whatever state somebody has left it in.
    pub(super) fn linker(&mut self, window: &Window) -> &mut Linker {
        // SAFETY: there is one holder.
        let linker = unsafe { &mut *self.lane.linker.get() };
        linker.store.be_of_lane(self.number);
        if core::mem::take(&mut self.was_left) {
            linker.recover(window);
        }
        linker
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.lane.held.let_go();
    }
}
