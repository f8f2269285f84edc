//! Events of each trace that are decoded ahead of the merge, so that entries of system calls that
//! lack a file name get it from the event of the return ([`crate::call`]).
//!
//! The return is the next event of the same thread and call, in whichever stream of the trace. That
//! is certain only if every stream is decoded up to it, and nothing is missing in between: events
//! that were lost or damaged, or whose time goes backward, make a [gap](Gaps), and nothing is
//! found across a gap.
//!
//! Crossings are indexed once an entry lacks a name, and not before: most traces have few such
//! entries. Then a search takes O(log n) time, and a batch that is decoded for it is what the merge
//! would have decoded later. The bytes of such batches are bounded.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use trackway_ctf::read::ByteSource;

use crate::batch::Batch;
use crate::stream::Stream;

/// Most bytes of batches that are decoded ahead: some 30,000 events.
const BYTES_MAX: usize = 8 << 20;

/// A thread, and a call by its number among the trace's.
type Caller = (u64, usize);

/// The place of an event in a trace's order of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CrossingPlace {
    pub(crate) time: i64,
    pub(crate) stream: usize,
    /// The number of the crossing in its stream.
    pub(crate) number: u64,
}

/// The decoded events of all traces.
pub(crate) struct Lookahead {
    /// By the numbers of the streams; `None`: no call of their trace may lack a name.
    streams: Vec<Option<StreamProgress>>,
    traces: Vec<TraceIndex>,
    /// Bytes of the batches that are decoded and are not the next of their streams.
    bytes: usize,
}

/// The decoded events of one stream.
struct StreamProgress {
    trace: usize,
    /// The time of the last event; `None` before the first one.
    reached: Option<i64>,
    is_ended: bool,
    /// Number of crossings.
    crossings: u64,
    /// True if it is among its trace's streams to be indexed.
    is_listed: bool,
}

/// The decoded events of one trace.
#[derive(Default)]
struct TraceIndex {
    /// The streams that are not ended, by the times that they have reached.
    reached: BTreeSet<(Option<i64>, usize)>,
    /// Streams that have batches which are not indexed.
    unindexed: Vec<usize>,
    /// Entries and returns with their texts.
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

    /// Takes note of the next batch of a stream, while the merge is at `now`.
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

    /// Takes note that a stream has no more batches.
    pub(crate) fn end(&mut self, stream: usize) {
        let Some((of_stream, of_trace)) = self.of(stream) else { return };
        of_stream.is_ended = true;
        of_trace.reached.remove(&(of_stream.reached, stream));
    }

    /// Returns true if it is known that a stream has no more batches.
    pub(crate) fn is_ended(&self, stream: usize) -> bool {
        let of_stream = self.streams.get(stream).and_then(Option::as_ref);
        of_stream.is_some_and(|of_stream| of_stream.is_ended)
    }

    /// Forgets a batch that is merged.
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

    /// Takes note of a batch that is kept until the merge comes to it.
    pub(crate) fn keep(&mut self, batch: &Batch) {
        self.bytes += batch.size();
    }

    /// Takes note that such a batch is the next one of its stream.
    pub(crate) fn release(&mut self, batch: &Batch) {
        self.bytes -= batch.size();
    }

    /// Returns true if another batch may be decoded ahead.
    pub(crate) const fn has_room(&self) -> bool {
        self.bytes < BYTES_MAX
    }

    /// The streams of this stream's trace whose batches are to be [indexed](Self::index).
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

    /// Has searches find the entries and returns of a batch, whose texts it takes.
    pub(crate) fn index(&mut self, stream: usize, batch: &mut Batch) {
        let Some((_, of_trace)) = self.of(stream).filter(|_| !batch.is_indexed) else { return };
        batch.is_indexed = true;
        for (number, crossing) in (batch.first_crossing..).zip(&mut batch.crossings) {
            let of_caller = of_trace.crossings.entry(crossing.caller).or_default();
            let place = CrossingPlace { time: crossing.time, stream, number };
            of_caller.insert(place, std::mem::take(&mut crossing.texts));
        }
    }

    /// Returns the thread's next step after its entry at `entry`, among the indexed events: its
    /// return, or the next entry into that call, with its time and texts.
    pub(crate) fn next(&self, caller: Caller, entry: CrossingPlace) -> Option<(i64, &[Vec<u8>])> {
        let of_caller = self.trace(entry.stream)?.crossings.get(&caller)?;
        // Numbers are below that of any other crossing.
        let behind = CrossingPlace { number: entry.number + 1, ..entry };
        let (place, texts) = of_caller.range(behind..).next()?;
        Some((place.time, texts))
    }

    /// Returns a stream of the same trace that is not decoded up to `time` and is to be decoded
    /// next.
    pub(crate) fn lagging_stream(&self, stream: usize, time: i64) -> Option<usize> {
        let &(reached, behind) = self.trace(stream)?.reached.first()?;
        reached.is_none_or(|reached| reached < time).then_some(behind)
    }

    /// Returns true if events of the stream's trace may be missing between these times.
    pub(crate) fn has_gap(&self, stream: usize, begin: i64, end: i64) -> bool {
        self.trace(stream).is_some_and(|of_trace| of_trace.gaps.meet(begin, end))
    }
}

/// Times between which events may be missing, by their beginnings. No two of them meet.
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

    /// Forgets those before `now`.
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
