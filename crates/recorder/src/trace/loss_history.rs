//! The times of losses, which decide which packet reports which loss.
//!
//! If a packet is the first to report losses, readers assume that they occurred between the end of
//! the previous packet and its own end. So no packet may report losses after its last record, where
//! all losses for lack of space are. A recorder cannot observe the time of a loss, only that it
//! occurred before a poll: the first packet that ends after the poll reports it.

use trackway_sys::clock::monotonic_ns;

/// Losses, counted as `T`, from their observation until a packet reports them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Losses<T> {
    /// Number of losses at `observed_ns`.
    observed: T,
    observed_ns: u64,
    /// Number of losses that packets have reported.
    reported: T,
}

impl<T: Copy + PartialEq> Losses<T> {
    /// Observes the current number of losses.
    pub(crate) fn observe(&mut self, now: T) {
        // Unreported losses stay: if the newest always replaced them, a packet might never report
        // any.
        if self.observed == self.reported {
            (self.observed, self.observed_ns) = (now, monotonic_ns());
        }
    }

    /// Returns the number of losses that certainly occurred before `end_ts`, the end of a packet.
    pub(crate) fn until(&mut self, end_ts: u64) -> T {
        if end_ts >= self.observed_ns {
            self.reported = self.observed;
        }
        self.reported
    }
}
