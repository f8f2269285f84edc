//! Losses over time: which packet reports which loss.
//!
//! Readers of a stream take it that what a packet tells first was lost between the end of the
//! packet before and its own end. So no packet may tell what was lost behind its last record, as
//! all is for which there was no room. When something was lost a recorder does not see, only that
//! it was there when it looked: that is told by the first packet that ends later.

use trackway_sys::clock::monotonic_ns;

/// Losses, counted as `T`, between being seen and being told.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Losses<T> {
    /// There at `observed_ns`.
    observed: T,
    observed_ns: u64,
    /// The part of it that packets report.
    reported: T,
}

impl<T: Copy + PartialEq> Losses<T> {
    /// Takes note of what is lost so far.
    pub(crate) fn observe(&mut self, now: T) {
        // What no packet has told yet stays: were it always the newest, none might ever.
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
