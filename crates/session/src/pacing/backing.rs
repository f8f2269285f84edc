//! The sub-buffers of a region that have memory, and the limit for writers.
//!
//! A region's ring is virtual: `count` places, of which a run has memory. In discard mode the run
//! begins at the first sub-buffer that is not drained; memory of drained ones moves to its end, so
//! the limit is always *first + backed*, and never more than one ring ahead. A flight recorder's
//! run begins at zero and grows until it is the whole ring; then there is no limit.
//!
//! Where next to nothing is written for a while, what the region did not begin with is released
//! from the run's end.
//!
//! Memory is known by offsets that we remember here: the table in the window is written, never
//! believed.

use std::collections::VecDeque;

/// The work of a region's writers since the last look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Use {
    /// End of the committed bytes.
    pub head: u64,
    /// Records discarded so far.
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
    /// Sub-buffers that it keeps although it does not need them.
    floor: u64,
    /// Head when it was decided last what is kept.
    head_before: u64,
    /// Head when memory was released last: until it moves, nothing is wanted back.
    released_at: Option<u64>,
}

impl Backing {
    /// A region of `count` sub-buffers of `1 << sub_shift` bytes, none of them backed.
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

    /// Keeps what it has now, or `least` if that is more.
    pub fn keep_from_here_on(&mut self, least: u64) {
        self.floor = self.backed().max(least);
    }

    /// Sub-buffers that have memory.
    pub fn backed(&self) -> u64 {
        self.memory.len() as u64
    }

    /// Adds memory at `offset`; the sub-buffer that it belongs to, or `None` if all have some.
    pub fn add(&mut self, offset: u64) -> Option<u64> {
        if self.backed() >= self.count {
            return None;
        }
        let index = self.first + self.backed();
        self.memory.push_back(offset);
        Some(index)
    }

    /// Moves the memory of sub-buffers that lie wholly below the drained `position` to the end of
    /// the run; calls `back(index, offset)` for each. In discard mode only; at most one ring.
    pub fn recycle(&mut self, position: u64, mut back: impl FnMut(u64, u64)) {
        if self.overwrite {
            return;
        }
        let first = position >> self.sub_shift;
        while self.first < first {
            let Some(offset) = self.memory.pop_front() else {
                // Nothing is backed: the next memory begins there.
                self.first = first;
                return;
            };
            self.first += 1;
            self.memory.push_back(offset);
            back(self.first + self.backed() - 1, offset);
        }
    }

    /// Returns the position that writers may not pass.
    pub fn limit(&self) -> u64 {
        if self.overwrite && self.backed() == self.count {
            u64::MAX
        } else {
            (self.first + self.backed()) << self.sub_shift
        }
    }

    /// Returns true if writers could have reached a drained position.
    pub fn is_possible(&self, head: u64) -> bool {
        head <= self.limit()
    }

    /// Returns the number of sub-buffers that should be backed, after the writers' work since the
    /// last call: twice as many as now when more than half were in use or records were lost. A
    /// region that is not used gets none.
    pub fn wanted(&mut self, usage: Use) -> u64 {
        let lost = usage.discarded != self.discarded;
        self.discarded = usage.discarded;
        if !lost && (usage.head == 0 || self.released_at == Some(usage.head)) {
            return self.backed();
        }
        self.released_at = None;
        let used = (usage.head >> self.sub_shift).saturating_sub(self.first) + 1;
        let wanted = if lost || used * 2 > self.backed() { self.backed() * 2 } else { 0 };
        // The open sub-buffer is drained only once the next is open: two at least.
        wanted.max(self.backed()).max(2).min(self.count)
    }

    /// Returns the number of sub-buffers to keep, after the writers' work since the last call, with
    /// the head at `head` now: what it began with, if there was next to no work; and two, if there
    /// was any. Else as many as there are: its writers need them. A flight recorder keeps all.
    pub fn keeps(&mut self, head: u64) -> u64 {
        let before = std::mem::replace(&mut self.head_before, head);
        let written = head.saturating_sub(before);
        if self.overwrite || written > 1 << self.sub_shift {
            return self.backed();
        }
        let least = if written == 0 { 0 } else { 2 };
        self.floor.max(least).min(self.backed())
    }

    /// Returns the limit for writers where only `kept` sub-buffers have memory.
    pub fn limit_of(&self, kept: u64) -> u64 {
        (self.first + kept) << self.sub_shift
    }

    /// Takes the memory of all but the first `kept` sub-buffers away, with the head at `head`: the
    /// sub-buffers and their offsets.
    pub fn release(&mut self, kept: u64, head: u64) -> Vec<(u64, u64)> {
        self.released_at = Some(head);
        let kept = kept.min(self.backed());
        let released = self.memory.split_off(kept as usize);
        (self.first + kept..).zip(released).collect()
    }

    /// Part of the backed memory that is in use at `head`, in 1/256.
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
        // A burst: five in use at once.
        assert_eq!(backing.wanted(Use { head: 5 << 12 | 100, discarded: 0 }), 16);
        backing.recycle(5 << 12, |_, _| ());
        assert_eq!(backing.keeps(5 << 12 | 100), 8, "who writes needs them");
        // Then a trickle.
        assert_eq!(backing.keeps(5 << 12 | 200), 2);
        assert_eq!(backing.limit_of(2), 7 << 12);
        let released = backing.release(2, 5 << 12 | 200);
        let indices: Vec<u64> = released.iter().map(|(index, _)| *index).collect();
        assert_eq!(indices, [7, 8, 9, 10, 11, 12]);
        assert_eq!(backing.limit(), 7 << 12);
        assert_eq!(backing.wanted(Use { head: 5 << 12 | 200, discarded: 0 }), 2);
        // Nothing at all.
        assert_eq!(backing.keeps(5 << 12 | 200), 1);
        backing.release(0, 5 << 12 | 200);
        assert_eq!((backing.backed(), backing.limit()), (0, 5 << 12), "not beyond the head");
        assert_eq!(backing.wanted(Use { head: 5 << 12 | 200, discarded: 0 }), 0);
        assert_eq!(backing.keeps(5 << 12 | 200), 0);
        // A loss requests more, and so does a record.
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
        /// In any order of additions and drains: no two live sub-buffers share memory, the run is
        /// what the limit says, and it is never longer than the ring.
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
