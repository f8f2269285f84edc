//! An estimate of the buffer size that would have lost nothing.

/// A buffer is nearly empty if at most `1 / EMPTY_PART` of its bytes are unread.
const EMPTY_PART: u64 = 4;

/// Losses of one full buffer, as the recorder observes them at each poll.
///
/// A burst lasts from the first poll with new losses to the first poll without, and with a nearly
/// empty buffer: until then, the recorder has not caught up. A buffer that is larger by the bytes
/// lost in the burst would have held the burst, if lost records are as large as written ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shortage {
    /// Number of records lost so far.
    lost: u64,
    /// Bytes lost in the current burst.
    burst_bytes: u64,
    /// Buffer size that would have held the largest burst, in bytes; 0: nothing was lost.
    needed_bytes: u64,
    /// True if records were lost before any record was written: their size is unknown.
    is_unknown: bool,
}

/// The state of a buffer before the recorder drains it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BufferUsage {
    /// Number of records lost so far because the buffer was full.
    pub lost: u64,
    /// Size of the buffer, in bytes.
    pub size_bytes: u64,
    /// Number of unread bytes.
    pub unread_bytes: u64,
    /// Number of records written so far.
    pub written: u64,
    /// Total size of the written records, in bytes.
    pub written_bytes: u64,
}

impl Shortage {
    /// Creates an estimate that ignores the first `lost` lost records.
    pub fn after_losses(lost: u64) -> Self {
        Self { lost, ..Self::default() }
    }

    /// Adds the buffer's state at a poll.
    pub fn update(&mut self, found: BufferUsage) {
        let BufferUsage { lost, size_bytes, unread_bytes, written, written_bytes } = found;
        let new = lost.saturating_sub(self.lost);
        self.lost = lost;
        if new == 0 {
            if unread_bytes <= size_bytes / EMPTY_PART {
                self.burst_bytes = 0;
            }
            return;
        }
        let Some(record_bytes) = written_bytes.checked_div(written) else {
            self.is_unknown = true;
            return;
        };
        let new_bytes = new.saturating_mul(record_bytes.saturating_add(1));
        self.burst_bytes = self.burst_bytes.saturating_add(new_bytes);
        self.needed_bytes = self.needed_bytes.max(size_bytes.saturating_add(self.burst_bytes));
    }

    /// Returns the buffer size that would have lost nothing, in bytes; `None` if nothing was lost,
    /// or the size is unknown.
    pub const fn needed_bytes(&self) -> Option<u64> {
        if self.needed_bytes == 0 || self.is_unknown { None } else { Some(self.needed_bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 4 << 20;

    /// Returns the state of a buffer with records of 20 bytes.
    fn usage_with(lost: u64, unread_bytes: u64) -> BufferUsage {
        BufferUsage { lost, size_bytes: SIZE, unread_bytes, written: 1000, written_bytes: 19_000 }
    }

    #[test]
    fn nothing_lost_needs_nothing() {
        let mut shortage = Shortage::after_losses(7);
        (0..5).for_each(|_| shortage.update(usage_with(7, SIZE)));
        assert_eq!(shortage.needed_bytes(), None);
    }

    #[test]
    fn the_largest_burst_decides() {
        let mut shortage = Shortage::default();
        let mut update = |lost, unread_bytes| {
            shortage.update(usage_with(lost, unread_bytes));
            shortage.needed_bytes()
        };
        assert_eq!(update(0, 0), None);
        assert_eq!(update(100, SIZE), Some(SIZE + 100 * 20));
        assert_eq!(update(300, SIZE), Some(SIZE + 300 * 20), "the burst lasts");
        assert_eq!(update(300, SIZE / 4), Some(SIZE + 300 * 20), "it is over");
        assert_eq!(update(450, SIZE), Some(SIZE + 300 * 20), "a smaller one");
        assert_eq!(update(800, SIZE), Some(SIZE + 500 * 20));
    }

    #[test]
    fn a_burst_lasts_until_the_recorder_has_caught_up() {
        let mut shortage = Shortage::default();
        for lost in 1..=10 {
            shortage.update(usage_with(100 * lost, SIZE));
            shortage.update(usage_with(100 * lost, SIZE / 4 + 1));
        }
        assert_eq!(shortage.needed_bytes(), Some(SIZE + 1000 * 20));
    }

    #[test]
    fn of_records_that_were_lost_before_any_was_written_nothing_is_known() {
        let mut shortage = Shortage::default();
        shortage.update(BufferUsage { written: 0, written_bytes: 0, ..usage_with(3, SIZE) });
        shortage.update(usage_with(5, SIZE));
        assert_eq!(shortage.needed_bytes(), None);
    }

    #[test]
    fn whatever_is_counted_it_does_not_wrap() {
        let most = u64::MAX;
        let all =
            BufferUsage { lost: most, size_bytes: most, unread_bytes: most, ..usage_with(0, 0) };
        let mut shortage = Shortage::default();
        shortage.update(BufferUsage { written: 1, written_bytes: most, ..all });
        shortage.update(usage_with(0, 0));
        shortage.update(all);
        assert_eq!(shortage.needed_bytes(), Some(most));
    }
}
