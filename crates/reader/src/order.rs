//! Detects time that goes backward within a stream.
//!
//! A stream's events are read and printed in the stream's order, whatever their times are. An event
//! that is earlier than its predecessor was recorded with a damaged clock. The first such event of
//! each stream is reported as damage. Several threads may decode one stream. Each thread checks the
//! events of one [`Span`], and [`StreamOrder`] compares each span with its predecessor.

use std::collections::{BTreeMap, HashMap};

use trackway_ctf::read::{Damage, Packet, StreamClass, StreamError, has_full_end_timestamp};

/// Maximum number of streams in [`StreamOrders`].
const STREAMS_MAX: usize = 1 << 16;

/// The place of an event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventPlace {
    /// Number of the event's packet in its file; `at` is the offset of the packet's first byte.
    pub(crate) packet: u64,
    pub(crate) at: u64,
    /// Start of the event in its packet, in bits.
    pub(crate) bit: u64,
}

impl EventPlace {
    /// Returns the damage, if the event at this place and `time` is earlier than its predecessor at
    /// `before`.
    pub(crate) fn compare(self, time: i64, before: i64) -> Option<StreamError> {
        let ns = before.abs_diff(time);
        let damage = Damage::Backward { bit: self.bit, ns };
        let error = StreamError { packet: self.packet, at: self.at, damage };
        (time < before).then_some(error)
    }
}

/// Returns the damage if a packet ends before it begins. An end of 0 is no damage: it marks a
/// packet that the tracer did not close, as lttng-crash(1) leaves it.
pub(crate) fn check_packet_times(packet: &Packet, class: &StreamClass) -> Option<Damage> {
    let (begin, end) = packet.timestamp_begin.zip(packet.timestamp_end.filter(|&end| end > 0))?;
    if begin <= end || !has_full_end_timestamp(class) {
        return None;
    }
    let ns = |cycles| class.clock()?.ns_from_origin(cycles).ok();
    Some(Damage::EndsFirst { ns: ns(begin)?.abs_diff(ns(end)?) })
}

/// Consecutive events of one stream, in one file.
#[derive(Debug, Default)]
pub(crate) struct Span {
    /// Time and place of the first event.
    first: Option<(i64, EventPlace)>,
    /// Time of the last event.
    last: Option<i64>,
    /// The first damage to the order within the span.
    damage: Option<StreamError>,
}

impl Span {
    /// Adds the next event to the span.
    #[inline]
    pub(crate) fn add(&mut self, time: Option<i64>, place: EventPlace) {
        let Some(time) = time else { return };
        match self.last.replace(time) {
            None => self.first = Some((time, place)),
            Some(before) if time < before && self.damage.is_none() => {
                self.damage = place.compare(time, before);
            }
            Some(_) => {}
        }
    }

    /// Adds an error in the times of a packet, after the packet's events.
    pub(crate) fn add_damage(&mut self, error: Option<StreamError>) {
        self.damage = self.damage.take().or(error);
    }
}

/// The state of a stream's order after its events so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StreamOrder {
    /// Time of the latest event.
    pub(crate) last: Option<i64>,
    /// True if damage to the order was reported.
    is_reported: bool,
}

impl StreamOrder {
    /// Returns the damage to report, if the next event is earlier than the latest one.
    pub(crate) fn begin(&mut self, time: i64, place: EventPlace) -> Option<StreamError> {
        let error = self.last.and_then(|last| place.compare(time, last))?;
        self.report().then_some(error)
    }

    /// Adds the next span. Returns the damage to report, if the span has any or its first event is
    /// earlier than the latest one.
    pub(crate) fn follow(&mut self, span: Span) -> Option<StreamError> {
        let last = self.last;
        self.last = span.last.or(last);
        let first = span.first.zip(last);
        let first = first.and_then(|((time, place), last)| place.compare(time, last));
        let error = match (first, span.damage) {
            (Some(first), Some(other)) if other.packet < first.packet => Some(other),
            (first, other) => first.or(other),
        };
        error.filter(|_| self.report())
    }

    /// Marks damage as reported; returns true if it is the stream's first.
    pub(crate) const fn report(&mut self) -> bool {
        !std::mem::replace(&mut self.is_reported, true)
    }
}

/// The spans of a stream, which threads finish in any order, and which are compared in the stream's
/// order.
#[derive(Debug, Default)]
pub(crate) struct SpanQueue<'t> {
    order: StreamOrder,
    /// Number of the next span to compare.
    next: u64,
    /// Spans that finished before their predecessors, with their files' names. Their number is less
    /// than the number of threads.
    waiting: BTreeMap<u64, (&'t str, Span)>,
}

impl<'t> SpanQueue<'t> {
    /// Adds span `number`, from the file named `file`. Returns the damage to report, if any, and
    /// its file's name.
    pub(crate) fn add(
        &mut self,
        number: u64,
        file: &'t str,
        span: Span,
    ) -> Option<(&'t str, StreamError)> {
        self.waiting.insert(number, (file, span));
        let mut found = None;
        while let Some((file, span)) = self.waiting.remove(&self.next) {
            self.next += 1;
            let error = self.order.follow(span);
            found = found.or(error.map(|error| (file, error)));
        }
        found
    }
}

/// The state of the order of growing streams, between readings.
#[derive(Debug, Default)]
pub(crate) struct StreamOrders(HashMap<StreamKey, StreamOrder>);

/// Key of a stream of a growing trace, independent of its files: the trace, and the stream's class
/// and id.
pub(crate) type StreamKey = (String, u64, u64);

impl StreamOrders {
    /// Returns the state of a stream's order.
    pub(crate) fn get(&self, stream: &StreamKey) -> StreamOrder {
        self.0.get(stream).copied().unwrap_or_default()
    }

    /// Stores the state of a stream's order.
    pub(crate) fn store(&mut self, key: StreamKey, order: StreamOrder) {
        if self.0.len() == STREAMS_MAX && !self.0.contains_key(&key) {
            self.0.clear();
        }
        self.0.insert(key, order);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span_of_times(packet: u64, times: &[i64]) -> Span {
        let mut span = Span::default();
        for (number, &time) in times.iter().enumerate() {
            let bit = 10 * number as u64;
            span.add(Some(time), EventPlace { packet, at: 100 * packet, bit });
        }
        span
    }

    fn backward_place(error: &StreamError) -> (u64, u64, u64) {
        match error.damage {
            Damage::Backward { bit, ns } => (error.packet, bit, ns),
            _ => panic!("{error}"),
        }
    }

    #[test]
    fn spans_that_end_in_any_order_are_compared_in_the_streams() {
        let spans = [(0, &[1, 2, 2][..]), (1, &[]), (2, &[2, 3]), (3, &[1, 4, 2]), (4, &[0])];
        for rotation in 0..spans.len() {
            let mut queue = SpanQueue::default();
            let mut found = Vec::new();
            for step in 0..spans.len() {
                let (number, times) = spans[(rotation + step) % spans.len()];
                found.extend(queue.add(number, "file", span_of_times(number, times)));
            }
            let found: Vec<_> =
                found.iter().map(|(file, error)| (*file, backward_place(error))).collect();
            assert_eq!(found, [("file", (3, 0, 2))], "rotation {rotation}");
            assert!(queue.waiting.is_empty());
        }
    }

    #[test]
    fn only_the_first_damage_of_a_stream_is_reported() {
        let mut order = StreamOrder::default();
        assert!(order.follow(span_of_times(0, &[5, 6])).is_none());
        // Events without a time do not change the order.
        let mut untimed = Span::default();
        untimed.add(None, EventPlace { packet: 1, at: 0, bit: 0 });
        assert!(order.follow(untimed).is_none());
        let error = order.follow(span_of_times(2, &[6, 4, 3])).expect("time goes backward");
        assert_eq!(backward_place(&error), (2, 10, 2));
        assert!(order.follow(span_of_times(3, &[1])).is_none());
    }
}
