//! Detection of periods in which the recorder process itself was stopped.

use std::time::{Duration, Instant};

use crate::notices::Notices;
use crate::window::lease::{lease_ns, renewal_period_ns};

/// Returns the lease time minus the longest time between two renewals.
fn standstill_min() -> Duration {
    Duration::from_nanos(lease_ns() - renewal_period_ns())
}

/// Detects that this process was stopped (SIGSTOP, a stuck disk) for so long that the lease may
/// have expired. Writers then treat the recorder as dead, and their events are lost without being
/// counted.
#[derive(Debug)]
pub(crate) struct SuspendCheck {
    looked: Instant,
    longest: Duration,
}

impl SuspendCheck {
    pub(crate) fn new() -> Self {
        Self { looked: Instant::now(), longest: Duration::ZERO }
    }

    /// Checks the time since the previous call; called in each round of the loop that renews the
    /// lease.
    pub(crate) fn check(&mut self, notices: &Notices) {
        let stood = self.looked.elapsed();
        self.looked = Instant::now();
        if stood >= standstill_min() {
            self.longest = self.longest.max(stood);
            Self::report_stop(notices, stood);
        }
    }

    /// Restarts the measurement after long work that is no stop.
    pub(crate) fn restart(&mut self) {
        self.looked = Instant::now();
    }

    /// Reports the longest stop again, at the end.
    pub(crate) fn report(&self, notices: &Notices) {
        if self.longest > Duration::ZERO {
            Self::report_stop(notices, self.longest);
        }
    }

    fn report_stop(notices: &Notices, stood: Duration) {
        notices.report(format_args!(
            "the recorder was stopped for {} s: events of that time may be missing, uncounted",
            stood.as_secs()
        ));
    }
}
