//! Counts of readers: entries to, and exits from, memory that will be reused.
//!
//! Memory that code runs in or reads lies in *parts*. A reader is counted before it enters, and
//! after it has left. A part that will be reused is removed from every place where it can be found
//! (*unlinked*), and is free when as many readers have left it as have entered it. This is an idea
//! of SRCU (McKenney: *Is Parallel Programming Hard*, section 9.5.3), with two changes: a
//! restartable sequence counts, so that each CPU has its own counters without an atomic
//! instruction; and parts replace phases, so that no new reader enters a part during the wait for
//! it.
//!
//! **Writers.** A thread with sequences adds one to the line of its CPU: to `entered` by
//! [`crate::rseq::add_one`], which checks in the same sequence that the link is still there; then
//! to `left` in the line of its CPU at that time. A thread without sequences adds to a line that
//! all such threads share, by atomic instructions, and checks the link afterwards.
//!
//! **Why no reader is inside.** The thread that reuses a part has
//!
//! 1. unlinked it;
//! 2. had every CPU visited: so each sequence that found the link has ended, and its count is
//!    visible, or it was aborted; later sequences do not find the link. (Threads without sequences
//!    count, then check the link; the reusing thread unlinks, then reads the counts; both have a
//!    full fence in between. So a reader finds no link, or the reusing thread finds its count.)
//! 3. found as many exits as entries, exits read first. All entries that there will ever be were
//!    there in 2 (but for readers that leave at once), so all that entered have left. A thread that
//!    observes an exit observes everything before it (Release, Acquire), so all reads of the part
//!    are over.
//!
//! Models of this algorithm are in `crates/ring/tests/loom/inside.rs`.

use crate::primitive::{AtomicU64, Ordering, fence};

/// Number of parts with counters of their own.
pub const PARTS: usize = 8;

/// Counters of one CPU, or of all threads without sequences: two cache lines.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Line {
    entered: [AtomicU64; PARTS],
    left: [AtomicU64; PARTS],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Line>() == 128);

impl Default for Line {
    fn default() -> Self {
        Self::new()
    }
}

impl Line {
    /// Creates a line without entries.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self {
            entered: [const { AtomicU64::new(0) }; PARTS],
            left: [const { AtomicU64::new(0) }; PARTS],
        }
    }

    /// Creates a line without entries.
    #[cfg(loom)]
    pub fn new() -> Self {
        let nobody = || core::array::from_fn(|_| AtomicU64::new(0));
        Self { entered: nobody(), left: nobody() }
    }

    /// Returns the counter of entries to a part: for sequences on this line's CPU.
    #[inline(always)]
    pub fn entered(&self, part: usize) -> &AtomicU64 {
        &self.entered[part % PARTS]
    }

    /// Returns the counter of exits from a part: for sequences on this line's CPU.
    #[inline(always)]
    pub fn left(&self, part: usize) -> &AtomicU64 {
        &self.left[part % PARTS]
    }

    /// Enters a part without a sequence, if it `is_linked`. Only for the line of such threads.
    pub fn enter(&self, part: usize, is_linked: impl FnOnce() -> bool) -> bool {
        self.entered(part).fetch_add(1, Ordering::Relaxed);
        // ORDERING: SeqCst, the counterpart of the fence in `is_part_empty`: see the module.
        fence(Ordering::SeqCst);
        let is_linked = is_linked();
        if !is_linked {
            self.leave(part);
        }
        is_linked
    }

    /// Leaves a part without a sequence, however it was entered. Only for the line of such threads.
    pub fn leave(&self, part: usize) {
        // ORDERING: Release pairs with the Acquire in `is_part_empty`: all reads are complete.
        self.left(part).fetch_add(1, Ordering::Release);
    }
}

/// Returns true if as many readers have left a part as have entered it. Must be called after the
/// part was unlinked, and every CPU was visited since. `lines` are all lines that exist.
pub fn is_part_empty<'l>(part: usize, lines: impl Iterator<Item = &'l Line> + Clone) -> bool {
    // ORDERING: SeqCst, after the part was unlinked, before the counts are read: see the module.
    fence(Ordering::SeqCst);
    let sum = |counter: fn(&Line, usize) -> &AtomicU64| {
        let counts = lines.clone().map(|line| {
            // ORDERING: Acquire pairs with the Release of readers that have left, and keeps the
            // exits before the entries, which are read second.
            counter(line, part).load(Ordering::Acquire)
        });
        counts.fold(0_u64, u64::wrapping_add)
    };
    let left = sum(Line::left);
    sum(Line::entered) == left
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn who_has_entered_is_inside_until_he_leaves() {
        let lines = [Line::new(), Line::new()];
        let is_empty = |part| is_part_empty(part, lines.iter());
        assert!(lines[0].enter(1, || true));
        assert!(!is_empty(1) && is_empty(0));
        assert!(!lines[0].enter(1, || false), "who does not find the link leaves at once");
        assert!(!is_empty(1));
        // The reader leaves on another CPU than that of the entry.
        lines[1].leave(1);
        assert!(is_empty(1));
    }
}
