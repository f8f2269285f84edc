//! Losses over time: which packet reports which loss.
//!
//! Readers of a stream assume that losses which a packet reports first occurred between the end of
//! the previous packet and its own end. So no packet may report losses after its last record, where
//! all losses for lack of space are. A recorder cannot observe the time of a loss, only that it
//! occurred before a poll: the first packet that ends later reports it.

use trackway_sys::clock::monotonic_ns;

/// Losses, counted as `T`, between their observation and their report.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Losses<T> {
    /// There at `observed_ns`.
    observed: T,
    observed_ns: u64,
    /// The part of it that packets report.
    reported: T,
}

impl<T: Copy + PartialEq> Losses<T> {
    /// Observes the losses so far.
    pub(crate) fn observe(&mut self, now: T) {
        // Losses that no packet has reported yet stay: if they were always replaced by the newest,
        // none might ever be reported.
        if self.observed == self.reported {
            (self.observed, self.observed_ns) = (now, monotonic_ns());
        }
    }

    /// Returns the losses that certainly occurred before a packet's end.
    pub(crate) fn until(&mut self, end_ts: u64) -> T {
        if end_ts >= self.observed_ns {
            self.reported = self.observed;
        }
        self.reported
    }
}
