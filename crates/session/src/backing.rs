//! Which sub-buffers of a region have memory, and how far writers may go.
//!
//! A region's ring is virtual: `count` places, of which a run has memory. In discard mode the run
//! begins at the first sub-buffer that is not drained; memory of drained ones moves to its end, so
//! the limit is always *first + backed*, and never more than one ring ahead. A flight recorder's
//! run begins at zero and grows until it is the whole ring; then there is no limit.
//!
//! Memory is known by offsets that we remember here: the table in the window is written, never
//! believed.

use std::collections::VecDeque;

/// What a region's writers did since the last look.
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
}

impl Backing {
    /// A region of `count` sub-buffers of `1 << sub_shift` bytes, none of them backed.
    pub fn new(sub_shift: u32, count: u64, overwrite: bool) -> Self {
        Self { sub_shift, count, overwrite, first: 0, memory: VecDeque::new(), discarded: 0 }
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
                // Nothing is backed: whoever adds memory begins there.
                self.first = first;
                return;
            };
            self.first += 1;
            self.memory.push_back(offset);
            back(self.first + self.backed() - 1, offset);
        }
    }

    /// How far writers may go.
    pub fn limit(&self) -> u64 {
        if self.overwrite && self.backed() == self.count {
            u64::MAX
        } else {
            (self.first + self.backed()) << self.sub_shift
        }
    }

    /// Whether a drained position is one that writers could have reached.
    pub fn is_possible(&self, head: u64) -> bool {
        head <= self.limit()
    }

    /// How many sub-buffers should be backed, after what writers did since the last look: twice as
    /// many as now when more than half were in use or records were lost. A region that nobody has
    /// used gets nothing.
    pub fn wanted(&mut self, seen: Use) -> u64 {
        let lost = seen.discarded != self.discarded;
        self.discarded = seen.discarded;
        if seen.head == 0 && !lost {
            return self.backed();
        }
        let used = (seen.head >> self.sub_shift).saturating_sub(self.first) + 1;
        let wanted = if lost || used * 2 > self.backed() { self.backed() * 2 } else { 0 };
        // The open sub-buffer is drained only once the next is open: two at least.
        wanted.max(self.backed()).max(2).min(self.count)
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

    proptest! {
        /// Whatever is added and drained in whatever order: no two live sub-buffers share memory,
        /// the run is what the limit says, and it is never longer than the ring.
        #[test]
        fn live_sub_buffers_never_share_memory(steps in prop::collection::vec(0_u64..6, 1..200)) {
            let mut backing = Backing::new(12, 8, false);
            let mut table = [0_u64; 8];
            let (mut drained, mut next) = (0_u64, 1_u64);
            for step in steps {
                if step == 0 {
                    if let Some(index) = backing.add(next << 12) {
                        table[(index % 8) as usize] = next << 12;
                        next += 1;
                    }
                } else {
                    drained = (drained + step * 1500).min(backing.limit());
                    backing.recycle(drained, |index, at| table[(index % 8) as usize] = at);
                }
                let first = drained >> 12;
                let end = backing.limit() >> 12;
                prop_assert_eq!(end - first, backing.backed());
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
