//! The selection of events.

use trackway_ctf::read::{Clock, EventClass, Loss, Packet, StreamClass, Trace};

use crate::filter::Filters;

/// The selection of events.
#[derive(Clone, Copy)]
pub struct Selection<'s> {
    /// Range of time.
    pub range: Range,
    /// Returns true for names of wanted events.
    pub events: &'s (dyn Fn(&str) -> bool + Sync),
    /// Further conditions, which only [`crate::print_events()`] and [`crate::follow_traces()`] use.
    pub filters: Option<&'s Filters>,
}

impl Selection<'_> {
    /// Returns true if events of all names in `trace` are wanted.
    pub(crate) fn wants_all_names(&self, trace: &Trace) -> bool {
        let mut events = trace.streams().iter().flat_map(StreamClass::events);
        events.all(|event| self.wants(event))
    }

    /// Returns true if events of this class are wanted.
    pub(crate) fn wants(&self, event: &EventClass) -> bool {
        (self.events)(event.name().unwrap_or_default())
    }
}

impl Default for Selection<'_> {
    /// Selects all events.
    fn default() -> Self {
        Self { range: Range::default(), events: &|_| true, filters: None }
    }
}

/// A range of times, in nanoseconds since the clocks' origin; both ends are included. A range with
/// an end contains no events without a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Range {
    /// First time; `None` if the range has no begin.
    pub begin: Option<i64>,
    /// Last time; `None` if the range has no end.
    pub end: Option<i64>,
}

/// A loss, and the times before and after it.
type TimedLoss = (Loss, Option<(i64, i64)>);

impl Range {
    /// Returns true if the range contains an event at `time`.
    #[inline]
    pub(crate) fn has(&self, time: Option<i64>) -> bool {
        match (self.begin, self.end, time) {
            (None, None, _) => true,
            (_, _, None) => false,
            (begin, end, Some(time)) => {
                begin.is_none_or(|begin| begin <= time) && end.is_none_or(|end| time <= end)
            }
        }
    }

    /// Returns the part of a loss within the range. A part has no count, because the distribution
    /// of the lost events is not known; babeltrace2 does the same.
    fn clip(&self, loss: Loss, between: Option<(i64, i64)>) -> Option<TimedLoss> {
        let Some((mut from, mut to)) = between else { return Some((loss, between)) };
        let mut count = loss.count;
        if let Some(begin) = self.begin.filter(|&begin| from < begin) {
            if to < begin {
                return None;
            }
            (from, count) = (begin, None);
        }
        if let Some(end) = self.end.filter(|&end| to > end) {
            if from > end {
                return None;
            }
            (to, count) = (end, None);
        }
        Some((Loss { count, ..loss }, Some((from, to))))
    }

    /// Returns true if the range has no ends.
    pub(crate) const fn is_everything(&self) -> bool {
        self.begin.is_none() && self.end.is_none()
    }

    /// Returns true if the range contains the whole packet.
    pub(crate) fn contains(&self, packet: &Packet, clock: Option<&Clock>) -> bool {
        let times = packet_times(packet, clock);
        self.is_everything()
            || times.is_some_and(|(from, to)| self.has(Some(from)) && self.has(Some(to)))
    }

    /// Returns the part of a loss within the range, for a stream with this clock; see
    /// [`Range::clip`].
    pub(crate) fn clip_clocked(&self, loss: Loss, clock: Option<&Clock>) -> Option<TimedLoss> {
        self.clip(loss, loss_times(loss, clock))
    }

    /// Returns true if the packet ends before the range begins.
    pub(crate) fn is_after(&self, packet: &Packet, clock: Option<&Clock>) -> bool {
        let times = packet_times(packet, clock);
        self.begin.zip(times).is_some_and(|(begin, (from, to))| from <= to && to < begin)
    }

    /// Returns true if the packet begins after the range ends.
    pub(crate) fn is_before(&self, packet: &Packet, clock: Option<&Clock>) -> bool {
        let times = packet_times(packet, clock);
        self.end.zip(times).is_some_and(|(end, (from, to))| from <= to && end < from)
    }
}

/// Returns the times before and after a loss, in a stream with this clock, if known.
pub(crate) fn loss_times(loss: Loss, clock: Option<&Clock>) -> Option<(i64, i64)> {
    let (begin, end) = loss.between?;
    let time = |cycles: u64| clock?.ns_from_origin(cycles).ok();
    time(begin).zip(time(end))
}

/// Returns the begin and end times of a packet, if it has them.
fn packet_times(packet: &Packet, clock: Option<&Clock>) -> Option<(i64, i64)> {
    let time = |cycles: u64| clock?.ns_from_origin(cycles).ok();
    packet.timestamp_begin.and_then(time).zip(packet.timestamp_end.and_then(time))
}

#[cfg(test)]
mod tests {
    use super::*;
    use trackway_ctf::read::LossKind;

    #[test]
    fn losses_are_cut_to_the_range() {
        let range = Range { begin: Some(10), end: Some(20) };
        let loss = Loss { what: LossKind::Events, count: Some(3), between: None };
        let clipped = |from, to| {
            let (loss, between) = range.clip(loss, Some((from, to)))?;
            between.map(|between| (between, loss.count))
        };
        assert_eq!(clipped(10, 20), Some(((10, 20), Some(3))));
        assert_eq!(clipped(9, 20), Some(((10, 20), None)));
        assert_eq!(clipped(10, 21), Some(((10, 20), None)));
        assert_eq!(clipped(0, 10), Some(((10, 10), None)));
        assert_eq!(clipped(20, 30), Some(((20, 20), None)));
        assert_eq!(clipped(0, 9), None);
        assert_eq!(clipped(21, 30), None);
        assert!(range.has(Some(10)) && range.has(Some(20)) && !range.has(None));
        assert!(!range.has(Some(9)) && !range.has(Some(21)) && Range::default().has(None));
    }
}
