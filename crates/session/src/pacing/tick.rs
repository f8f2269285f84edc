//! Chooses when the recorder polls next: often while buffers fill, rarely while they are idle.

/// Shortest period, in ns.
const PERIOD_MIN_NS: u64 = 1_000_000;
/// Longest period while data flows, in ns.
const PERIOD_BUSY_MAX_NS: u64 = 20_000_000;
/// Longest period, in ns.
const PERIOD_IDLE_MAX_NS: u64 = 100_000_000;
/// Time without data after which the recorder polls less often, in ns.
const IDLE_AFTER_NS: u64 = 2_000_000_000;

/// Chooses the polling period.
#[derive(Debug, Clone)]
pub struct Ticker {
    period_ns: u64,
    idle_ns: u64,
}

impl Default for Ticker {
    fn default() -> Self {
        Self { period_ns: PERIOD_MIN_NS, idle_ns: 0 }
    }
}

impl Ticker {
    /// Returns the next period after a poll: the fullest region was filled to `fill` / 256, and
    /// `data` is true if there was new data.
    pub fn next(&mut self, fill: u64, data: bool) -> u64 {
        if data {
            self.idle_ns = 0;
        } else {
            self.idle_ns = self.idle_ns.saturating_add(self.period_ns);
        }
        let most =
            if self.idle_ns > IDLE_AFTER_NS { PERIOD_IDLE_MAX_NS } else { PERIOD_BUSY_MAX_NS };
        let period = match fill {
            // The region could be full before the next poll.
            128.. => PERIOD_MIN_NS,
            48.. => self.period_ns / 2,
            16.. => self.period_ns,
            _ => self.period_ns + self.period_ns / 4,
        };
        self.period_ns = period.clamp(PERIOD_MIN_NS, most);
        self.period_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_period_follows_the_data() {
        let mut ticker = Ticker::default();
        assert_eq!(ticker.next(200, true), PERIOD_MIN_NS);
        let mut period = 0;
        for _ in 0..100 {
            period = ticker.next(1, true);
        }
        assert_eq!(period, PERIOD_BUSY_MAX_NS);
        for _ in 0..500 {
            period = ticker.next(0, false);
        }
        assert_eq!(period, PERIOD_IDLE_MAX_NS);
        assert_eq!(ticker.next(1, true), PERIOD_BUSY_MAX_NS);
        assert_eq!(ticker.next(255, true), PERIOD_MIN_NS);
    }
}
