//! How large a buffer would have had to be to lose nothing.

/// Losses of one buffer, as its recorder sees them look by look.
///
/// A burst is what is lost from one look that finds no new losses to the next: in between, the
/// buffer was full whenever something was lost. Had it been larger by that much, the same burst
/// would have fitted, and the recorder would have taken it when it came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shortage {
    /// Records lost so far.
    lost: u64,
    /// Bytes lost in the burst that lasts.
    burst_bytes: u64,
    /// What would have held the largest burst, in bytes; 0: nothing was lost.
    needed_bytes: u64,
}

impl Shortage {
    /// After a look at a buffer of `size_bytes` that has lost so many records in all; as many bytes
    /// as `written_bytes` have `written` of its records.
    pub fn look(&mut self, lost: u64, size_bytes: u64, (written, written_bytes): (u64, u64)) {
        let new = lost.saturating_sub(self.lost);
        self.lost = lost;
        if new == 0 {
            self.burst_bytes = 0;
            return;
        }
        // Of records of which none could be written, nothing is known.
        let record_bytes = written_bytes.checked_div(written).unwrap_or(0) + 1;
        self.burst_bytes = self.burst_bytes.saturating_add(new.saturating_mul(record_bytes));
        self.needed_bytes = self.needed_bytes.max(size_bytes.saturating_add(self.burst_bytes));
    }

    /// How large it would have had to be, in bytes; `None` if nothing was lost.
    pub const fn needed_bytes(&self) -> Option<u64> {
        if self.needed_bytes == 0 { None } else { Some(self.needed_bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 4 << 20;

    #[test]
    fn nothing_lost_needs_nothing() {
        let mut shortage = Shortage::default();
        (0..5).for_each(|_| shortage.look(0, SIZE, (1000, 20_000)));
        assert_eq!(shortage.needed_bytes(), None);
    }

    #[test]
    fn the_largest_burst_decides() {
        let mut shortage = Shortage::default();
        let mut look = |lost| {
            shortage.look(lost, SIZE, (1000, 19_000));
            shortage.needed_bytes()
        };
        assert_eq!(look(0), None);
        assert_eq!(look(100), Some(SIZE + 100 * 20));
        assert_eq!(look(300), Some(SIZE + 300 * 20), "the burst lasts");
        assert_eq!(look(300), Some(SIZE + 300 * 20), "it is over");
        assert_eq!(look(450), Some(SIZE + 300 * 20), "a smaller one");
        assert_eq!(look(800), Some(SIZE + 500 * 20));
    }

    #[test]
    fn whatever_is_counted_it_does_not_wrap() {
        let mut shortage = Shortage::default();
        shortage.look(u64::MAX, u64::MAX, (0, u64::MAX));
        shortage.look(0, SIZE, (0, 0));
        shortage.look(u64::MAX, SIZE, (1, u64::MAX - 1));
        assert_eq!(shortage.needed_bytes(), Some(u64::MAX));
    }
}
