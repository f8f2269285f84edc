//! Merging of streams in time order, by a heap of each stream's next event.
//!
//! The heap has one entry per stream. If possible, events are not processed one by one: the longest
//! run of events of one stream before any other stream's is copied at once.
//!
//! Time may go backward within a stream whose clock is damaged. The merge never reorders a stream:
//! it always takes the stream whose next event is earliest. An event that is earlier than its
//! predecessor in the stream therefore follows at once. The other streams wait until the stream has
//! reached their times again. The merge reports the first such event of each stream
//! ([`crate::order`]).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{self, Write};
use std::mem::replace;

use trackway_ctf::read::ByteSource;
use trackway_render::{EncodedRun, EventOutput};

use crate::batch::{Batch, Diagnostic};
use crate::call::LateEntry;
use crate::filter::StatefulFilters;
use crate::lookahead::{CrossingPlace, Lookahead};
use crate::messages::write_message;
use crate::order::{StreamOrder, StreamOrders};
use crate::pipeline::{Pipeline, WorkerState};
use crate::stream::Stream;

/// The position of the merge in one stream.
#[derive(Default)]
struct Cursor {
    batch: Batch,
    /// Index of the next event in `batch`.
    mark: usize,
    /// Index of the next note in `batch`.
    note: usize,
    /// Index of the next pending event in `batch`.
    question: usize,
    order: StreamOrder,
    /// Batches after `batch` that are already decoded.
    decoded: VecDeque<Batch>,
}

/// Merges the streams of a pipeline.
pub(crate) struct Merge<'m, 't, B, O: EventOutput> {
    pub(crate) streams: &'m [Stream<'t, B>],
    pub(crate) pipeline: &'m Pipeline<'t, B>,
    pub(crate) tools: WorkerState<O::Encoder>,
    /// Encoder for texts that are known only in the merged order.
    pub(crate) encoder: O::Encoder,
    pub(crate) output: &'m mut O,
    pub(crate) messages: &'m mut dyn Write,
    /// True if nothing is damaged.
    pub(crate) is_whole: bool,
    /// Number of events that were written.
    pub(crate) events: u64,
    /// Called with the number of processed events.
    pub(crate) progress: Option<fn(u64)>,
    /// State of the filters that decide in the merged order.
    pub(crate) judge: StatefulFilters,
    /// Order of the earlier events, for streams that may grow.
    pub(crate) orders: StreamOrders,
    /// Index of entries and exits of system calls.
    pub(crate) lookahead: Lookahead,
}

/// The merge's decision about a pending event.
enum Decision {
    No,
    AsItIs,
    /// The event is accepted, with this line.
    With(Vec<u8>),
}

impl Cursor {
    /// Takes the next event, if it is an entry that lacks texts; returns it with its place.
    fn take_late(&mut self, stream: usize) -> Option<(Box<LateEntry>, CrossingPlace)> {
        let batch = &mut self.batch;
        let pending = batch.questions.get_mut(self.question)?;
        if pending.mark != self.mark {
            return None;
        }
        // Several crossings may have this mark; the last one is the entry, the others belong to
        // unselected events.
        let behind = batch.crossings.partition_point(|crossing| crossing.mark <= self.mark);
        let own = behind.checked_sub(1)?;
        let time = batch.crossings.get(own)?.time;
        let late = pending.late.take()?;
        Some((late, CrossingPlace { time, stream, number: batch.first_crossing + own as u64 }))
    }

    fn put_late(&mut self, late: Box<LateEntry>) {
        if let Some(pending) = self.batch.questions.get_mut(self.question) {
            pending.late = Some(late);
        }
    }

    fn batches(&mut self) -> impl Iterator<Item = &mut Batch> {
        std::iter::once(&mut self.batch).chain(&mut self.decoded)
    }
}

impl<B: ByteSource, O: EventOutput> Merge<'_, '_, B, O> {
    /// Writes all events of all streams.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        let mut cursors: Vec<Cursor> = Vec::new();
        for stream in self.streams {
            let order = self.orders.get(&stream.key());
            cursors.push(Cursor { order, ..Cursor::default() });
        }
        let mut heap = BinaryHeap::with_capacity(cursors.len());
        let mut now = i64::MIN;
        for (index, cursor) in cursors.iter_mut().enumerate() {
            if let Some(time) = self.advance(cursor, index, now)? {
                heap.push(Reverse((time, index)));
            }
        }
        let mut next = heap.pop();
        while let Some(Reverse((time, index))) = next {
            let limit = heap.peek().map(|&Reverse(next)| next);
            self.find_return(&mut cursors, index);
            let Some(cursor) = cursors.get_mut(index) else { break };
            now = self.report_next(cursor, index, time, limit)?;
            next = match self.advance(cursor, index, now)? {
                None => heap.pop(),
                // Replaces the top of the heap, which is cheaper than a push and a pop.
                Some(time) if limit.is_some_and(|limit| (time, index) > limit) => {
                    heap.peek_mut().map(|mut top| replace(&mut *top, Reverse((time, index))))
                }
                Some(time) => Some(Reverse((time, index))),
            };
        }
        for (stream, cursor) in self.streams.iter().zip(&cursors) {
            self.orders.store(stream.key(), cursor.order);
        }
        self.output.flush()
    }

    /// Advances to the next loss or event, which must wait for its turn, and reports damage before
    /// it. Returns its time, or `None` at the stream's end.
    fn advance(&mut self, cursor: &mut Cursor, index: usize, now: i64) -> io::Result<Option<i64>> {
        loop {
            match cursor.batch.notes.get(cursor.note).filter(|note| note.before == cursor.mark) {
                Some(note) => match &note.what {
                    Diagnostic::Loss(_, between) => {
                        return Ok(Some(between.map_or(now, |(begin, _)| begin)));
                    }
                    Diagnostic::Damage(message) => {
                        self.is_whole = false;
                        write_message(self.messages, message)?;
                        cursor.note += 1;
                    }
                    Diagnostic::Order(file, error) => {
                        cursor.note += 1;
                        if cursor.order.report() {
                            self.is_whole = false;
                            write_message(self.messages, &format!("{file}: {error}"))?;
                        }
                    }
                    Diagnostic::First(file, time, place) => {
                        cursor.note += 1;
                        if let Some(error) = cursor.order.begin(*time, *place) {
                            self.is_whole = false;
                            write_message(self.messages, &format!("{file}: {error}"))?;
                        }
                    }
                },
                None => {
                    if let Some(mark) = cursor.batch.marks.get(cursor.mark) {
                        return Ok(Some(mark.time(now)));
                    }
                    self.output.write_due()?;
                    let used = std::mem::take(&mut cursor.batch);
                    cursor.order.last = used.last_time.or(cursor.order.last);
                    self.lookahead.leave(index, &used);
                    let next = match cursor.decoded.pop_front() {
                        Some(batch) => {
                            self.lookahead.release(&batch);
                            Some(batch)
                        }
                        None => self.receive(index, used, now),
                    };
                    match next {
                        Some(batch) => {
                            self.events += batch.unmarked;
                            if let Some(progress) = self.progress {
                                progress(self.events);
                            }
                            let (decoded, order) =
                                (std::mem::take(&mut cursor.decoded), cursor.order);
                            *cursor = Cursor { batch, order, decoded, ..Cursor::default() };
                        }
                        None => return Ok(None),
                    }
                }
            }
        }
    }

    /// Writes the next loss of a stream, or all its events up to `limit`, the next event of the
    /// other streams. Returns the reached time.
    fn report_next(
        &mut self,
        cursor: &mut Cursor,
        index: usize,
        mut now: i64,
        limit: Option<(i64, usize)>,
    ) -> io::Result<i64> {
        let note = cursor.batch.notes.get(cursor.note);
        if let Some(note) = note.filter(|note| note.before == cursor.mark) {
            cursor.note += 1;
            if let (Diagnostic::Loss(loss, between), Some(stream)) =
                (&note.what, self.streams.get(index))
            {
                let mut text = Vec::new();
                let place = stream.loss_place(*between);
                self.output.report_loss(place, loss, &mut text);
                self.messages.write_all(&text)?;
            }
            return Ok(now);
        }
        let first = cursor.mark;
        if let Some(taken) = self.judged(cursor, index) {
            now = cursor.batch.marks.get(first).map_or(now, |mark| mark.time(now));
            cursor.mark = first + 1;
            match taken {
                Decision::No => {}
                Decision::AsItIs => {
                    self.events += 1;
                    self.write_run(&cursor.batch, first, cursor.mark)?;
                }
                Decision::With(line) => {
                    self.events += 1;
                    if let Some(mark) = cursor.batch.marks.get(first) {
                        let (delta, stamp) = (mark.delta, mark.stamp());
                        let run = EncodedRun { first: &line, delta, stamp, rest: &[], last: None };
                        self.output.write_run(run)?;
                    }
                }
            }
            return Ok(now);
        }
        let pending = cursor.batch.questions.get(cursor.question).map(|pending| pending.mark);
        let note = cursor.batch.notes.get(cursor.note);
        let end = note.map_or(cursor.batch.marks.len(), |note| note.before);
        let end = pending.map_or(end, |pending| end.min(pending));
        let is_late = |time| limit.is_some_and(|limit| (time, index) > limit);
        let marks = cursor.batch.marks.get(first..end).unwrap_or_default();
        let mut run = 0;
        for mark in marks {
            let time = mark.time(now);
            if run > 0 && (mark.delta.always || is_late(time)) {
                break;
            }
            now = time;
            run += 1;
        }
        cursor.mark = first + run;
        self.events += run as u64;
        self.write_run(&cursor.batch, first, cursor.mark).map(|()| now)
    }

    /// Returns the decision about the next event, if it is pending.
    fn judged(&mut self, cursor: &mut Cursor, index: usize) -> Option<Decision> {
        let pending = cursor.batch.questions.get_mut(cursor.question)?;
        if pending.mark != cursor.mark {
            return None;
        }
        cursor.question += 1;
        if let Some(late) = &mut pending.late {
            late.answer();
        }
        let question = match &pending.late {
            Some(late) => late.question.as_ref(),
            None => pending.question.as_ref(),
        };
        if let Some(question) = question {
            let (class, event) = pending.class;
            let texts = self.streams.get(index)?.texts.get(class)?;
            let filters = texts.events.get(event)?.as_ref()?.filters.as_ref()?;
            if !self.judge.accepts(filters, question) {
                return Some(Decision::No);
            }
        }
        let line = pending.late.as_ref().and_then(|late| late.line(&self.encoder));
        Some(line.map_or(Decision::AsItIs, Decision::With))
    }

    /// Returns the next decoded batch of a stream, while the merge is at `now`.
    fn receive(&mut self, stream: usize, used: Batch, now: i64) -> Option<Batch> {
        if self.lookahead.is_ended(stream) {
            return None;
        }
        let mut batch = self.pipeline.take_batch(stream, used, &mut self.tools);
        match &mut batch {
            Some(batch) => self.lookahead.receive(stream, batch, now),
            None => self.lookahead.end(stream),
        }
        batch
    }

    /// If the next event of a stream is an entry that lacks texts, searches the exit event for
    /// them, within the limits of [`Lookahead`].
    fn find_return(&mut self, cursors: &mut [Cursor], stream: usize) {
        let late = cursors.get_mut(stream).and_then(|cursor| cursor.take_late(stream));
        let Some((mut late, entry)) = late else { return };
        for unindexed in self.lookahead.take_unindexed(stream) {
            let batches = cursors.get_mut(unindexed).into_iter().flat_map(Cursor::batches);
            batches.for_each(|batch| self.lookahead.index(unindexed, batch));
        }
        // Streams are not decoded completely after the end of the range.
        let end = self.streams.get(stream).and_then(|stream| stream.range.end).unwrap_or(i64::MAX);
        let time = loop {
            let found = self.lookahead.next(late.caller, entry).map(|(time, _)| time);
            let found = found.filter(|&time| time <= end);
            let Some(behind) = self.lookahead.lagging_stream(stream, found.unwrap_or(end)) else {
                break found;
            };
            if !self.lookahead.has_room() {
                // An undecoded event may be an earlier exit.
                break None;
            }
            let Some(mut batch) = self.receive(behind, Batch::default(), entry.time) else {
                continue;
            };
            self.lookahead.index(behind, &mut batch);
            self.lookahead.keep(&batch);
            if let Some(cursor) = cursors.get_mut(behind) {
                cursor.decoded.push_back(batch);
            }
        };
        let is_certain = time.is_some_and(|time| !self.lookahead.has_gap(stream, entry.time, time));
        if let Some((_, texts)) = self.lookahead.next(late.caller, entry).filter(|_| is_certain) {
            late.take(texts);
        }
        if let Some(cursor) = cursors.get_mut(stream) {
            cursor.put_late(late);
        }
    }

    /// Writes the events from `first` up to `end`.
    fn write_run(&mut self, batch: &Batch, first: usize, end: usize) -> io::Result<()> {
        let Some(mark) = batch.marks.get(first) else { return Ok(()) };
        let (start, rest) = (batch.start(first), mark.end as usize);
        let mut run = EncodedRun {
            first: batch.text.get(start..rest).unwrap_or_default(),
            delta: mark.delta,
            stamp: mark.stamp(),
            rest: &[],
            last: None,
        };
        if end - first > 1 {
            run.rest = batch.text.get(rest..batch.start(end)).unwrap_or_default();
            let marks = batch.marks.get(first..end).unwrap_or_default();
            run.last = marks.iter().rev().find_map(|mark| mark.stamp());
        }
        self.output.write_run(run)
    }
}
