//! The memory of a region's sub-buffers, and the limit for writers.
//!
//! A region's ring is virtual: it has `count` places, and a contiguous run of places has memory. In
//! discard mode the run begins at the first sub-buffer that is not drained; the memory of drained
//! sub-buffers moves to the run's end. So the limit is always *first + backed*, and at most one
//! ring ahead. A flight recorder's run begins at zero and grows to the whole ring; then there is no
//! limit.
//!
//! If writers write almost nothing for a while, the recorder releases memory from the run's end,
//! down to the initial memory.
//!
//! This module keeps the offsets of all memory: the recorder writes the table in the window, but
//! never trusts it.

use std::collections::VecDeque;

/// The state of a region's writers at a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Use {
    /// Position of the end of the committed bytes.
    pub head: u64,
    /// Number of records discarded so far.
    pub discarded: u64,
}

/// The memory of one region.
#[derive(Debug, Clone)]
pub struct Backing {
    sub_shift: u32,
    count: u64,
    overwrite: bool,
    /// Index of the first sub-buffer with memory.
    first: u64,
    /// Offsets of the memory of sub-buffers `first`, `first + 1`, ….
    memory: VecDeque<u64>,
    discarded: u64,
    /// Number of sub-buffers that the region keeps even if it does not need them.
    floor: u64,
    /// Position of the head at the previous decision about kept memory.
    head_before: u64,
    /// Position of the head at the last release; until the head moves, the region requests no
    /// memory.
    released_at: Option<u64>,
}

impl Backing {
    /// Creates the backing of a region with `count` sub-buffers of `1 << sub_shift` bytes and no
    /// memory.
    pub fn new(sub_shift: u32, count: u64, overwrite: bool) -> Self {
        Self {
            sub_shift,
            count,
            overwrite,
            first: 0,
            memory: VecDeque::new(),
            discarded: 0,
            floor: count,
            head_before: 0,
            released_at: None,
        }
    }

    /// Makes the region keep its current memory, or `least` sub-buffers if that is more.
    pub fn keep_from_here_on(&mut self, least: u64) {
        self.floor = self.backed().max(least);
    }

    /// Returns the number of sub-buffers that have memory.
    pub fn backed(&self) -> u64 {
        self.memory.len() as u64
    }

    /// Adds memory at `offset`; returns the index of its sub-buffer, or `None` if all sub-buffers
    /// have memory.
    pub fn add(&mut self, offset: u64) -> Option<u64> {
        if self.backed() >= self.count {
            return None;
        }
        let index = self.first + self.backed();
        self.memory.push_back(offset);
        Some(index)
    }

    /// Moves the memory of sub-buffers that end below the drained `position` to the end of the run;
    /// calls `back(index, offset)` for each. Has an effect in discard mode only; moves at most one
    /// ring.
    pub fn recycle(&mut self, position: u64, mut back: impl FnMut(u64, u64)) {
        if self.overwrite {
            return;
        }
        let first = position >> self.sub_shift;
        while self.first < first {
            let Some(offset) = self.memory.pop_front() else {
                // No sub-buffer has memory: the next memory begins at the drained position.
                self.first = first;
                return;
            };
            self.first += 1;
            self.memory.push_back(offset);
            back(self.first + self.backed() - 1, offset);
        }
    }

    /// Returns the position that writers must not pass.
    pub fn limit(&self) -> u64 {
        if self.overwrite && self.backed() == self.count {
            u64::MAX
        } else {
            (self.first + self.backed()) << self.sub_shift
        }
    }

    /// Returns true if writers could have reached position `head`.
    pub fn is_possible(&self, head: u64) -> bool {
        head <= self.limit()
    }

    /// Returns the number of sub-buffers that should have memory, from the writers' work since the
    /// last call: twice as many as now if more than half were in use or records were lost. An
    /// unused region gets no memory.
    pub fn wanted(&mut self, usage: Use) -> u64 {
        let lost = usage.discarded != self.discarded;
        self.discarded = usage.discarded;
        if !lost && (usage.head == 0 || self.released_at == Some(usage.head)) {
            return self.backed();
        }
        self.released_at = None;
        let used = (usage.head >> self.sub_shift).saturating_sub(self.first) + 1;
        let wanted = if lost || used * 2 > self.backed() { self.backed() * 2 } else { 0 };
        // A sub-buffer is drained only when the next one is open, so at least two need memory.
        wanted.max(self.backed()).max(2).min(self.count)
    }

    /// Returns the number of sub-buffers to keep, from the writers' work since the last call; the
    /// head is at `head` now. After almost no work, that is the initial number, and at least two
    /// after any work. Otherwise writers need all sub-buffers. A flight recorder keeps all.
    pub fn keeps(&mut self, head: u64) -> u64 {
        let before = std::mem::replace(&mut self.head_before, head);
        let written = head.saturating_sub(before);
        if self.overwrite || written > 1 << self.sub_shift {
            return self.backed();
        }
        let least = if written == 0 { 0 } else { 2 };
        self.floor.max(least).min(self.backed())
    }

    /// Returns the limit for writers if only `kept` sub-buffers have memory.
    pub fn limit_of(&self, kept: u64) -> u64 {
        (self.first + kept) << self.sub_shift
    }

    /// Removes the memory of all but the first `kept` sub-buffers, with the head at `head`; returns
    /// the sub-buffers and their offsets.
    pub fn release(&mut self, kept: u64, head: u64) -> Vec<(u64, u64)> {
        self.released_at = Some(head);
        let kept = kept.min(self.backed());
        let released = self.memory.split_off(kept as usize);
        (self.first + kept..).zip(released).collect()
    }

    /// Returns the part of the memory that is in use at `head`, in 1/256.
    pub fn fill(&self, head: u64) -> u64 {
        let bytes = self.backed() << self.sub_shift;
        let used = head.saturating_sub(self.first << self.sub_shift);
        used.saturating_mul(256).checked_div(bytes).unwrap_or(0).min(256)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_unused_region_gets_nothing_and_a_used_one_two() {
        let mut backing = Backing::new(12, 8, false);
        assert_eq!(backing.wanted(Use { head: 0, discarded: 0 }), 0);
        backing.add(4096);
        assert_eq!(backing.wanted(Use { head: 100, discarded: 0 }), 2);
        assert_eq!(backing.wanted(Use { head: 0, discarded: 1 }), 2);
    }

    #[test]
    fn a_flight_recorder_is_unlimited_once_it_is_whole() {
        let mut backing = Backing::new(12, 2, true);
        assert_eq!(backing.limit(), 0);
        backing.add(1 << 12);
        assert_eq!(backing.limit(), 4096);
        backing.add(2 << 12);
        assert_eq!(backing.limit(), u64::MAX);
        assert_eq!(backing.add(3 << 12), None);
    }

    #[test]
    fn what_is_not_needed_is_released_and_not_wanted_back_before_it_is() {
        let mut backing = Backing::new(12, 16, false);
        backing.add(1 << 12);
        backing.keep_from_here_on(0);
        assert_eq!(backing.keeps(0), 1, "what it began with");
        (2..=8).for_each(|page| assert!(backing.add(page << 12).is_some()));
        // A burst of writes: five sub-buffers in use at once.
        assert_eq!(backing.wanted(Use { head: 5 << 12 | 100, discarded: 0 }), 16);
        backing.recycle(5 << 12, |_, _| ());
        assert_eq!(backing.keeps(5 << 12 | 100), 8, "who writes needs them");
        // A few writes after the burst.
        assert_eq!(backing.keeps(5 << 12 | 200), 2);
        assert_eq!(backing.limit_of(2), 7 << 12);
        let released = backing.release(2, 5 << 12 | 200);
        let indices: Vec<u64> = released.iter().map(|(index, _)| *index).collect();
        assert_eq!(indices, [7, 8, 9, 10, 11, 12]);
        assert_eq!(backing.limit(), 7 << 12);
        assert_eq!(backing.wanted(Use { head: 5 << 12 | 200, discarded: 0 }), 2);
        // No writes at all.
        assert_eq!(backing.keeps(5 << 12 | 200), 1);
        backing.release(0, 5 << 12 | 200);
        assert_eq!((backing.backed(), backing.limit()), (0, 5 << 12), "not beyond the head");
        assert_eq!(backing.wanted(Use { head: 5 << 12 | 200, discarded: 0 }), 0);
        assert_eq!(backing.keeps(5 << 12 | 200), 0);
        // After a release, a loss requests memory, and so does a record.
        assert_eq!(backing.wanted(Use { head: 5 << 12 | 200, discarded: 1 }), 2);
        assert_eq!(backing.add(1 << 12), Some(5), "the one that is open");
    }

    #[test]
    fn a_flight_recorder_keeps_all() {
        let mut backing = Backing::new(12, 2, true);
        backing.keep_from_here_on(0);
        (1..=2).for_each(|page| assert!(backing.add(page << 12).is_some()));
        assert_eq!((backing.keeps(0), backing.keeps(0)), (2, 2));
    }

    proptest! {
        /// CHECK, for any order of additions and drains, that no two live sub-buffers share memory,
        /// that the limit agrees with the run, and that the run is never longer than the ring.
        #[test]
        fn live_sub_buffers_never_share_memory(steps in prop::collection::vec(0_u64..9, 1..200)) {
            let mut backing = Backing::new(12, 8, false);
            let mut table = [0_u64; 8];
            let (mut drained, mut next) = (0_u64, 1_u64);
            for step in steps {
                if step > 5 {
                    for (index, at) in backing.release(2 * (step - 6), drained) {
                        prop_assert_eq!(table[(index % 8) as usize], at);
                        table[(index % 8) as usize] = 0;
                    }
                    prop_assert!(backing.backed() <= 2 * (step - 6));
                } else if step == 0 {
                    if let Some(index) = backing.add(next << 12) {
                        table[(index % 8) as usize] = next << 12;
                        next += 1;
                    }
                } else {
                    drained = (drained + step * 1500).min(backing.limit()).max(drained);
                    backing.recycle(drained, |index, at| table[(index % 8) as usize] = at);
                }
                let first = drained >> 12;
                let end = backing.limit() >> 12;
                prop_assert_eq!(end - first, backing.backed(), "from the drained position on");
                prop_assert!(end - first <= 8);
                let mut live: Vec<u64> = (first..end).map(|i| table[(i % 8) as usize]).collect();
                prop_assert!(!live.contains(&0));
                live.sort_unstable();
                live.dedup();
                prop_assert_eq!(live.len() as u64, end - first);
            }
        }
    }
}
