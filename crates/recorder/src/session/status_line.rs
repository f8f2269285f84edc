//! Line on a terminal that shows the progress of a recording.

use std::time::{Duration, Instant};

use crate::common::numbers::Grouped;
use crate::notices::Notices;
use crate::recording::Recording;

/// Period at which the line is updated.
const STATUS_PERIOD: Duration = Duration::from_secs(1);

/// Line that shows the number of events and their rate.
pub(crate) struct StatusLine {
    shown: Instant,
    events: u64,
}

impl StatusLine {
    pub(crate) fn new() -> Self {
        Self { shown: Instant::now(), events: 0 }
    }

    /// Shows the line, if [`STATUS_PERIOD`] has passed.
    pub(crate) fn show(&mut self, notices: &Notices, recording: &Recording) {
        let elapsed = self.shown.elapsed();
        if elapsed < STATUS_PERIOD {
            return;
        }
        let totals = recording.totals();
        let rate =
            totals.events.saturating_sub(self.events) as u128 * 1000 / elapsed.as_millis().max(1);
        notices.show_status_line(format_args!(
            "{} events, {}/s, {} lost, {}, {} process{}",
            Grouped(totals.events),
            Grouped(rate as u64),
            Grouped(totals.lost),
            trackway_session::ByteCount(totals.bytes),
            totals.processes,
            if totals.processes == 1 { "" } else { "es" },
        ));
        self.shown = Instant::now();
        self.events = totals.events;
    }
}
