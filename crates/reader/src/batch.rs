//! A batch of encoded events of one stream, passed from decoding threads to the merge.

use trackway_ctf::read::{Loss, StreamError};
use trackway_render::{DeltaSlot, Stamp};

use crate::call::{CallBoundary, LateEntry};
use crate::filter::GatheredEvent;
use crate::order::EventPlace;

/// Encoded events that follow each other in one stream.
#[derive(Default)]
pub(crate) struct Batch {
    /// Lines of the events, one after another.
    pub(crate) text: Vec<u8>,
    /// Marks of the events with their times and the ends of their lines.
    pub(crate) marks: Vec<Mark>,
    /// Number of events without a mark, in formats without lines.
    pub(crate) unmarked: u64,
    /// Events on which the merge must decide, in the stream's order.
    pub(crate) questions: Vec<PendingEvent>,
    questions_bytes: usize,
    /// Entries and exits of system calls whose entries may lack texts.
    pub(crate) crossings: Vec<CallBoundary>,
    /// Number of the first crossing in its stream, and true if [`crate::lookahead`] has indexed the
    /// batch.
    pub(crate) first_crossing: u64,
    pub(crate) is_indexed: bool,
    /// Spans of time in which events of the stream may be missing.
    pub(crate) gaps: Vec<(i64, i64)>,
    /// Diagnostics to be reported between the events.
    pub(crate) notes: Vec<Note>,
    /// Time of the first event, if it is the first one of a task.
    pub(crate) first_time: Option<i64>,
    /// Time of the last decoded event, requested or not.
    pub(crate) last_time: Option<i64>,
}

/// An event on which the merge decides.
pub(crate) struct PendingEvent {
    /// Index of the event in the batch.
    pub(crate) mark: usize,
    /// Class of the event: the index of its stream class, and its index in that class.
    pub(crate) class: (usize, usize),
    /// Values that filters need; `None` if the event is accepted.
    pub(crate) question: Option<GatheredEvent>,
    /// Entry that lacks texts; it then holds the filters' values.
    pub(crate) late: Option<Box<LateEntry>>,
}

/// Time, line end and time difference of one event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    /// Time of the event; meaningless if `is_timed` is false.
    stamp: Stamp,
    /// End of the event's line in the batch's text.
    pub(crate) end: u32,
    pub(crate) delta: DeltaSlot,
    is_timed: bool,
}

impl Mark {
    pub(crate) fn new(stamp: Option<Stamp>, end: u32, delta: DeltaSlot) -> Self {
        let is_timed = stamp.is_some();
        Self { stamp: stamp.unwrap_or(Stamp { time: 0, clock: 0 }), end, delta, is_timed }
    }

    /// Returns the time of the event, if its stream has a clock.
    pub(crate) const fn stamp(&self) -> Option<Stamp> {
        if self.is_timed { Some(self.stamp) } else { None }
    }

    /// Returns the time for the merge order: an event without a time follows at once, at `now`.
    pub(crate) const fn time(&self, now: i64) -> i64 {
        if self.is_timed { self.stamp.time } else { now }
    }
}

/// A diagnostic with its place among the events.
pub(crate) struct Note {
    /// Index of the event that follows the diagnostic.
    pub(crate) before: usize,
    pub(crate) what: Diagnostic,
}

/// A report in addition to events.
pub(crate) enum Diagnostic {
    /// The tracer lost events between these times, in nanoseconds since the clock's origin. The
    /// merge reports the loss when output reaches its time.
    Loss(Loss, Option<(i64, i64)>),
    /// Damage. The merge reports it directly after the preceding event.
    Damage(String),
    /// The stream's times are out of order in the file of this name. The merge reports the first
    /// such place of each stream.
    Order(String, StreamError),
    /// The first event of a task: its file, time and place. The merge compares it with the stream's
    /// preceding event, which another thread may decode.
    First(String, i64, EventPlace),
}

impl Batch {
    /// Returns the memory size of the batch, in bytes.
    pub(crate) const fn size(&self) -> usize {
        self.text.len()
            + self.marks.len() * size_of::<Mark>()
            + self.notes.len() * NOTE_BYTES
            + self.gaps.len() * size_of::<(i64, i64)>()
            + self.questions_bytes
    }

    /// Adds the next event as pending: the merge decides whether it is accepted.
    pub(crate) fn add_pending(
        &mut self,
        class: (usize, usize),
        question: Option<GatheredEvent>,
        late: Option<Box<LateEntry>>,
    ) {
        self.questions_bytes += size_of::<PendingEvent>()
            + question.as_ref().map_or(0, GatheredEvent::size)
            + late.as_ref().map_or(0, |late| late.size());
        self.questions.push(PendingEvent { mark: self.marks.len(), class, question, late });
    }

    /// Adds an entry or exit of a system call.
    pub(crate) fn add_call_boundary(&mut self, mut crossing: CallBoundary) {
        self.questions_bytes += crossing.size();
        crossing.mark = self.marks.len();
        self.crossings.push(crossing);
    }

    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.marks.clear();
        self.unmarked = 0;
        self.questions.clear();
        self.questions_bytes = 0;
        self.crossings.clear();
        (self.first_crossing, self.is_indexed) = (0, false);
        self.gaps.clear();
        self.notes.clear();
        (self.first_time, self.last_time) = (None, None);
    }

    /// Returns the start of an event's line in the batch's text.
    pub(crate) fn start(&self, mark: usize) -> usize {
        let before = mark.checked_sub(1).and_then(|before| self.marks.get(before));
        before.map_or(0, |before| before.end as usize)
    }

    pub(crate) fn note(&mut self, what: Diagnostic) {
        self.notes.push(Note { before: self.marks.len(), what });
    }
}

/// Estimated size of a note in bytes: most notes are losses; a damage message is a line.
const NOTE_BYTES: usize = 2 * size_of::<Note>();
