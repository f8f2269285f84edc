//! Filter state: cells that any number of threads and signal handlers change concurrently.
//!
//! Each change is one atomic instruction on one cell, and no other memory depends on it, so all
//! orderings are Relaxed.

use core::sync::atomic::Ordering::Relaxed;

use crate::frame::{Cell, Frame};

/// Maximum number of attempts to change a contended cell.
const TRIES_MAX: usize = 64;
/// Bits that `changed` inverts in the stored number, because 0 marks a cell without a number. The
/// one number that is then stored as 0 should not occur in practice.
const INVERTED_BITS: u64 = 0x9e6c_63d0_876a_3f1b;

impl Frame<'_> {
    /// Returns the cell with this number.
    pub(super) fn cell(&self, number: u64) -> Option<&Cell> {
        self.environment.cells.get(usize::try_from(number).ok()?)
    }
}

/// Returns the number of earlier calls.
pub(super) fn count_call(cell: &Cell) -> u64 {
    cell.fetch_add(1, Relaxed)
}

/// Returns true if the number differs from the previous one, or there was none.
pub(super) fn has_changed(cell: &Cell, number: u64) -> bool {
    let kept = number ^ INVERTED_BITS;
    cell.swap(kept, Relaxed) != kept || kept == 0
}

/// Bits of a `rate` cell that count events, which bounds the events per interval.
const PASSED_BITS: u32 = 28;
/// Maximum lag, in intervals, of a clock that was read before another thread's.
const LATE_INTERVALS_MAX: u64 = 1 << 16;

/// Returns true, and counts the event, if fewer than `most` events have passed in the current
/// interval of `length_ns`. Intervals begin at multiples of their length. Format of a cell:
///
/// ```text
/// number of passed events (bits 0 to 27) | lowest 36 bits of the interval's number
/// ```
pub(super) fn passes_rate_limit(cell: &Cell, most: u64, length_ns: u64, now_ns: u64) -> bool {
    const INTERVALS: u64 = u64::MAX >> PASSED_BITS;
    const PASSED: u64 = (1 << PASSED_BITS) - 1;
    let current = (now_ns / length_ns.max(1)) & INTERVALS;
    let mut kept = cell.load(Relaxed);
    for _ in 0..TRIES_MAX {
        let (interval, passed) = (kept >> PASSED_BITS, kept & PASSED);
        // A thread may read the clock before another thread begins an interval. Its event counts in
        // the new interval.
        let is_running = interval.wrapping_sub(current) & INTERVALS <= LATE_INTERVALS_MAX;
        let (interval, passed) = if is_running { (interval, passed) } else { (current, 0) };
        if passed >= most.min(PASSED) {
            return false;
        }
        let next = interval << PASSED_BITS | (passed + 1);
        match cell.compare_exchange_weak(kept, next, Relaxed, Relaxed) {
            Ok(_) => return true,
            Err(other) => kept = other,
        }
    }
    // At least that many other events have changed the cell meanwhile.
    false
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;

    #[test]
    fn counts_from_zero() {
        let cell = Cell::new(0);
        assert_eq!([count_call(&cell), count_call(&cell), count_call(&cell)], [0, 1, 2]);
    }

    #[test]
    fn changes_are_seen_whatever_the_number() {
        for number in [0, 1, u64::MAX, i64::MIN as u64] {
            let cell = Cell::new(0);
            assert!(has_changed(&cell, number), "there was none");
            assert!(!has_changed(&cell, number));
            assert!(has_changed(&cell, !number));
            assert!(has_changed(&cell, number));
        }
        // The one number that counts as a change on every call.
        let cell = Cell::new(0);
        assert!(has_changed(&cell, INVERTED_BITS) && has_changed(&cell, INVERTED_BITS));
    }

    #[test]
    fn so_many_pass_in_each_interval() {
        let cell = Cell::new(0);
        let passed = |from: u64| {
            (from..from + 10).filter(|&now| passes_rate_limit(&cell, 3, 10, now)).count()
        };
        assert_eq!([passed(0), passed(10), passed(20)], [3, 3, 3]);
        assert!(
            !passes_rate_limit(&cell, 3, 10, 19),
            "a late one counts in the interval that is running"
        );
        assert!(!passes_rate_limit(&cell, 0, 10, 1000), "none may pass");
        assert!(passes_rate_limit(&cell, 1, 0, 2000), "an interval of no length");
    }

    #[test]
    fn an_interval_far_away_is_not_the_running_one() {
        let cell = Cell::new(0);
        let day_ns = 86_400_000_000_000;
        for day in 0..5 {
            assert!(passes_rate_limit(&cell, 1, 1_000_000_000, day * day_ns));
            assert!(!passes_rate_limit(&cell, 1, 1_000_000_000, day * day_ns));
        }
    }

    /// Four threads change one cell: no count is duplicated or lost, and the limit holds.
    #[test]
    fn threads_share_cells() {
        let (counted, rated) = (Cell::new(0), Cell::new(0));
        let passes = || {
            count_call(&counted);
            passes_rate_limit(&rated, 100, 10, 7)
        };
        let passed: usize = std::thread::scope(|scope| {
            let thread = |_| scope.spawn(|| (0..5000).filter(|_| passes()).count());
            let threads: Vec<_> = (0..4).map(thread).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        assert_eq!((counted.into_inner(), passed), (20_000, 100));
    }
}
