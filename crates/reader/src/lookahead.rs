//! Events that are decoded ahead of the merge. System call entries that lack a file name get it
//! from the exit event ([`crate::call`]).
//!
//! The exit is the next event of the same thread and call, in any stream of the trace. This is
//! certain only if all streams are decoded up to it and no event before it is missing. Lost or
//! damaged events, or times that go backward, make a [gap](Gaps), and no search crosses a gap.
//!
//! Entries and exits are called crossings. They are indexed only once an entry lacks a name,
//! because most traces have few such entries. A search then takes O(log n) time. A batch decoded
//! for it is one that the merge needs later anyway. The size of such batches is bounded.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use trackway_ctf::read::ByteSource;

use crate::batch::Batch;
use crate::stream::Stream;

/// Maximum size of the batches decoded ahead, in bytes: some 30,000 events.
const BYTES_MAX: usize = 8 << 20;

/// Thread id, and number of a call in the trace.
type Caller = (u64, usize);

/// The place of an entry or exit in a trace's order of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CrossingPlace {
    pub(crate) time: i64,
    pub(crate) stream: usize,
    /// Number of the crossing in its stream.
    pub(crate) number: u64,
}

/// The index of decoded entries and exits of all traces.
pub(crate) struct Lookahead {
    /// Progress by stream number; `None` if no call in the stream's trace can lack a name.
    streams: Vec<Option<StreamProgress>>,
    traces: Vec<TraceIndex>,
    /// Size of the batches that are decoded ahead of the merge, in bytes.
    bytes: usize,
}

/// The decoding progress of one stream.
struct StreamProgress {
    trace: usize,
    /// Time of the last decoded event; `None` before the first.
    reached: Option<i64>,
    is_ended: bool,
    /// Number of decoded crossings.
    crossings: u64,
    /// True if the stream is in its trace's list of unindexed streams.
    is_listed: bool,
}

/// The index of one trace.
#[derive(Default)]
struct TraceIndex {
    /// Streams that have not ended, ordered by the times that they have reached.
    reached: BTreeSet<(Option<i64>, usize)>,
    /// Streams with batches that are not indexed.
    unindexed: Vec<usize>,
    /// Entries and exits by caller, with their texts.
    crossings: HashMap<Caller, BTreeMap<CrossingPlace, Vec<Vec<u8>>>>,
    gaps: Gaps,
}

impl Lookahead {
    pub(crate) fn new<B: ByteSource>(streams: &[Stream<'_, B>]) -> Self {
        let mut lookahead = Self { streams: Vec::new(), traces: Vec::new(), bytes: 0 };
        let mut known = HashMap::new();
        for (number, stream) in streams.iter().enumerate() {
            let has_calls = stream.texts.iter().any(|texts| !texts.calls.is_empty());
            lookahead.streams.push(has_calls.then(|| {
                let trace = *known.entry(std::ptr::from_ref(stream.trace)).or_insert_with(|| {
                    lookahead.traces.push(TraceIndex::default());
                    lookahead.traces.len() - 1
                });
                lookahead.traces[trace].reached.insert((None, number));
                StreamProgress {
                    trace,
                    reached: None,
                    is_ended: false,
                    crossings: 0,
                    is_listed: false,
                }
            }));
        }
        lookahead
    }

    fn of(&mut self, stream: usize) -> Option<(&mut StreamProgress, &mut TraceIndex)> {
        let of_stream = self.streams.get_mut(stream)?.as_mut()?;
        let of_trace = self.traces.get_mut(of_stream.trace)?;
        Some((of_stream, of_trace))
    }

    fn trace(&self, stream: usize) -> Option<&TraceIndex> {
        self.traces.get(self.streams.get(stream)?.as_ref()?.trace)
    }

    /// Adds the next batch of a stream to its progress, while the merge is at `now`.
    pub(crate) fn receive(&mut self, stream: usize, batch: &mut Batch, now: i64) {
        let Some((of_stream, of_trace)) = self.of(stream) else { return };
        batch.first_crossing = of_stream.crossings;
        of_stream.crossings += batch.crossings.len() as u64;
        of_trace.gaps.forget(now);
        for &(begin, end) in &batch.gaps {
            of_trace.gaps.add(begin, end);
        }
        if let Some((before, first)) = of_stream.reached.zip(batch.first_time)
            && first < before
        {
            of_trace.gaps.add(first, before);
        }
        if let Some(last) = batch.last_time {
            of_trace.reached.remove(&(of_stream.reached, stream));
            of_stream.reached = Some(last);
            of_trace.reached.insert((Some(last), stream));
        }
        if !batch.crossings.is_empty() && !std::mem::replace(&mut of_stream.is_listed, true) {
            of_trace.unindexed.push(stream);
        }
    }

    /// Records that a stream has no more batches.
    pub(crate) fn end(&mut self, stream: usize) {
        let Some((of_stream, of_trace)) = self.of(stream) else { return };
        of_stream.is_ended = true;
        of_trace.reached.remove(&(of_stream.reached, stream));
    }

    /// Returns true if a stream is known to have no more batches.
    pub(crate) fn is_ended(&self, stream: usize) -> bool {
        let of_stream = self.streams.get(stream).and_then(Option::as_ref);
        of_stream.is_some_and(|of_stream| of_stream.is_ended)
    }

    /// Removes a merged batch from the index.
    pub(crate) fn leave(&mut self, stream: usize, batch: &Batch) {
        let Some((_, of_trace)) = self.of(stream).filter(|_| batch.is_indexed) else { return };
        for (number, crossing) in (batch.first_crossing..).zip(&batch.crossings) {
            let place = CrossingPlace { time: crossing.time, stream, number };
            if let Some(of_caller) = of_trace.crossings.get_mut(&crossing.caller) {
                of_caller.remove(&place);
                if of_caller.is_empty() {
                    of_trace.crossings.remove(&crossing.caller);
                }
            }
        }
    }

    /// Counts a batch that waits for the merge.
    pub(crate) fn keep(&mut self, batch: &Batch) {
        self.bytes += batch.size();
    }

    /// Stops counting a waiting batch that has become the next one of its stream.
    pub(crate) fn release(&mut self, batch: &Batch) {
        self.bytes -= batch.size();
    }

    /// Returns true if another batch may be decoded ahead.
    pub(crate) const fn has_room(&self) -> bool {
        self.bytes < BYTES_MAX
    }

    /// Returns, and clears, the list of streams of this stream's trace whose batches must be
    /// [indexed](Self::index).
    pub(crate) fn take_unindexed(&mut self, stream: usize) -> Vec<usize> {
        let Some((_, of_trace)) = self.of(stream) else { return Vec::new() };
        let streams = std::mem::take(&mut of_trace.unindexed);
        for &stream in &streams {
            if let Some(Some(of_stream)) = self.streams.get_mut(stream) {
                of_stream.is_listed = false;
            }
        }
        streams
    }

    /// Adds the entries and exits of a batch to the index, and takes their texts.
    pub(crate) fn index(&mut self, stream: usize, batch: &mut Batch) {
        let Some((_, of_trace)) = self.of(stream).filter(|_| !batch.is_indexed) else { return };
        batch.is_indexed = true;
        for (number, crossing) in (batch.first_crossing..).zip(&mut batch.crossings) {
            let of_caller = of_trace.crossings.entry(crossing.caller).or_default();
            let place = CrossingPlace { time: crossing.time, stream, number };
            of_caller.insert(place, std::mem::take(&mut crossing.texts));
        }
    }

    /// Returns the thread's indexed event after its entry at `entry`, with time and texts: the exit
    /// of the call, or the next entry into it.
    pub(crate) fn next(&self, caller: Caller, entry: CrossingPlace) -> Option<(i64, &[Vec<u8>])> {
        let of_caller = self.trace(entry.stream)?.crossings.get(&caller)?;
        // The place directly after the entry: numbers in a stream increase by one.
        let behind = CrossingPlace { number: entry.number + 1, ..entry };
        let (place, texts) = of_caller.range(behind..).next()?;
        Some((place.time, texts))
    }

    /// Returns the stream of the same trace that must be decoded next, because it is not decoded up
    /// to `time`; `None` if there is none.
    pub(crate) fn lagging_stream(&self, stream: usize, time: i64) -> Option<usize> {
        let &(reached, behind) = self.trace(stream)?.reached.first()?;
        reached.is_none_or(|reached| reached < time).then_some(behind)
    }

    /// Returns true if events of the stream's trace may be missing between `begin` and `end`.
    pub(crate) fn has_gap(&self, stream: usize, begin: i64, end: i64) -> bool {
        self.trace(stream).is_some_and(|of_trace| of_trace.gaps.meet(begin, end))
    }
}

/// Disjoint spans of time in which events may be missing: begins mapped to ends.
#[derive(Debug, Default)]
struct Gaps(BTreeMap<i64, i64>);

impl Gaps {
    fn add(&mut self, begin: i64, end: i64) {
        let (mut begin, mut end) = (begin.min(end), begin.max(end));
        while let Some((&other, &other_end)) = self.0.range(..=end).next_back() {
            if other_end < begin {
                break;
            }
            self.0.remove(&other);
            (begin, end) = (begin.min(other), end.max(other_end));
        }
        self.0.insert(begin, end);
    }

    fn meet(&self, begin: i64, end: i64) -> bool {
        self.0.range(..=end).next_back().is_some_and(|(_, &gap_end)| gap_end >= begin)
    }

    /// Removes the spans that end before `now`.
    fn forget(&mut self, now: i64) {
        while let Some(first) = self.0.first_entry().filter(|first| *first.get() < now) {
            first.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_that_meet_are_one() {
        let mut gaps = Gaps::default();
        gaps.add(10, 20);
        gaps.add(40, 30);
        assert!(gaps.meet(0, 10) && gaps.meet(20, 21) && gaps.meet(12, 13) && gaps.meet(0, 99));
        assert!(!gaps.meet(21, 29) && !gaps.meet(0, 9) && !gaps.meet(41, i64::MAX));
        gaps.add(20, 30);
        assert_eq!(gaps.0, BTreeMap::from([(10, 40)]));
        gaps.add(i64::MIN, 5);
        gaps.add(0, 9);
        gaps.forget(10);
        assert_eq!(gaps.0, BTreeMap::from([(10, 40)]));
        gaps.forget(41);
        assert!(!gaps.meet(i64::MIN, i64::MAX));
    }
}
