//! How much a recording has so far: for the status line and the summary.

use std::sync::atomic::Ordering;

use trackway_abi::window::EVENTS_MAX;
use trackway_schema::EventDescription;

use crate::report::LOST_SHOWN_MAX;
use crate::{Recording, Summary};

/// How much there is so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Events recorded: in the trace, or still in the buffers.
    pub events: u64,
    /// Events lost.
    pub lost: u64,
    /// Bytes of the trace.
    pub bytes: u64,
    /// Processes that took part.
    pub processes: u64,
}

impl Recording {
    /// How much there is so far.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals {
            processes: self.session().processes.load(Ordering::Relaxed).into(),
            bytes: self.trace.metadata.bytes(),
            ..Totals::default()
        };
        for work in &self.regions {
            let seen = work.snapshot.and_then(|snapshot| snapshot.events).unwrap_or(work.written);
            totals.events = totals.events.saturating_add(seen);
            totals.lost = totals.lost.saturating_add(work.discarded());
            totals.bytes += work.stream.as_ref().map_or(0, |stream| stream.bytes);
        }
        totals
    }

    /// Full names of the events that have an id in this session.
    pub fn event_names(&self) -> Vec<String> {
        let window = self.home.window();
        (0..EVENTS_MAX)
            .filter(|&event| self.layout.id(window, event).load(Ordering::Relaxed) != 0)
            .filter_map(|event| self.event_name(event))
            .collect()
    }

    pub(crate) fn summary(&self) -> Summary {
        let totals = self.totals();
        let mut summary = Summary {
            lost: totals.lost,
            processes: totals.processes,
            departed: self.session().departed.load(Ordering::Relaxed).into(),
            bytes: totals.bytes,
            cut: self.session().records_cut.load(Ordering::Relaxed),
            cut_last: self.event_name(self.session().cut_event.load(Ordering::Relaxed) as usize),
            lost_by_event: if totals.lost > 0 { self.lost_by_event() } else { Vec::new() },
            ..Summary::default()
        };
        for work in &self.regions {
            summary.recorded = summary.recorded.saturating_add(work.written);
            summary.overwritten = summary.overwritten.saturating_add(work.overwritten);
            summary.damaged = summary.damaged.saturating_add(work.damaged);
            summary.holes += work.lockless.as_ref().map_or(0, |lockless| lockless.holes);
        }
        summary
    }

    fn event_name(&self, event: usize) -> Option<String> {
        let bytes = self.home.window().description(event)?;
        Some(EventDescription::decode(bytes.as_slice()).ok()?.full_name())
    }

    fn lost_by_event(&self) -> Vec<(String, u64)> {
        let window = self.home.window();
        let mut lost: Vec<(usize, u64)> = (0..EVENTS_MAX)
            .map(|event| (event, self.layout.discards(window, event).load(Ordering::Relaxed)))
            .filter(|&(_, lost)| lost > 0)
            .collect();
        lost.sort_by_key(|&(_, lost)| std::cmp::Reverse(lost));
        lost.truncate(LOST_SHOWN_MAX);
        lost.into_iter().filter_map(|(event, lost)| Some((self.event_name(event)?, lost))).collect()
    }
}
