//! A piece of one stream as lines: what is handed from those who decode to the one who merges.

use trackway_ctf::read::{Loss, StreamError};
use trackway_render::{DeltaSlot, Stamp};

use crate::call::{CallBoundary, LateEntry};
use crate::filter::GatheredEvent;
use crate::order::EventPlace;

/// Lines of events that follow each other in one stream.
#[derive(Default)]
pub(crate) struct Batch {
    /// The lines, one after another.
    pub(crate) text: Vec<u8>,
    /// The events.
    pub(crate) marks: Vec<Mark>,
    /// Number of events beside them, of a format without lines.
    pub(crate) unmarked: u64,
    /// Questions about some of the events, in their order.
    pub(crate) questions: Vec<PendingEvent>,
    questions_bytes: usize,
    /// Entries and returns of calls whose entries may lack texts.
    pub(crate) crossings: Vec<CallBoundary>,
    /// The number of the first of them in its stream, and whether [`crate::lookahead`] has them.
    pub(crate) first_crossing: u64,
    pub(crate) is_indexed: bool,
    /// Between which times events of the stream may be missing.
    pub(crate) gaps: Vec<(i64, i64)>,
    /// Notes to be reported between them.
    pub(crate) notes: Vec<Note>,
    /// The time of the first event, if that is the first one of a task.
    pub(crate) first_time: Option<i64>,
    /// The time of the last event that was decoded, requested or not.
    pub(crate) last_time: Option<i64>,
}

/// An event about which the merge decides whether it is taken.
pub(crate) struct PendingEvent {
    /// The index of the event in the batch.
    pub(crate) mark: usize,
    /// Its class: the index of its stream's, and its own there.
    pub(crate) class: (usize, usize),
    /// The values that filters need; `None`: the event is taken.
    pub(crate) question: Option<GatheredEvent>,
    /// The event with the texts that it lacks; it has the question then.
    pub(crate) late: Option<Box<LateEntry>>,
}

/// An event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    /// When it was; meaningless if `is_timed` is false.
    stamp: Stamp,
    /// End of its line.
    pub(crate) end: u32,
    pub(crate) delta: DeltaSlot,
    is_timed: bool,
}

impl Mark {
    pub(crate) fn new(stamp: Option<Stamp>, end: u32, delta: DeltaSlot) -> Self {
        let is_timed = stamp.is_some();
        Self { stamp: stamp.unwrap_or(Stamp { time: 0, clock: 0 }), end, delta, is_timed }
    }

    /// When it was, if its stream has a clock.
    pub(crate) const fn stamp(&self) -> Option<Stamp> {
        if self.is_timed { Some(self.stamp) } else { None }
    }

    /// When it was, for the order of events: one without time comes at once, `now`.
    pub(crate) const fn time(&self, now: i64) -> i64 {
        if self.is_timed { self.stamp.time } else { now }
    }
}

/// A diagnostic, and its place among the events.
pub(crate) struct Note {
    /// Index of the batch's event that it precedes.
    pub(crate) before: usize,
    pub(crate) what: Diagnostic,
}

/// A report in addition to events.
pub(crate) enum Diagnostic {
    /// The tracer lost events between these times, in nanoseconds since the clock's origin. The
    /// merge reports the loss when output reaches its time.
    Loss(Loss, Option<(i64, i64)>),
    /// Something is damaged. The merge reports it right after the event before it.
    Damage(String),
    /// The stream's times are out of order in the file of this name. The merge reports the first
    /// such place of each stream as damage.
    Order(String, StreamError),
    /// The first event of a task: its file, time and place. The merge compares it with the stream's
    /// event before it, which another thread may decode.
    First(String, i64, EventPlace),
}

impl Batch {
    /// Returns the memory that it takes, in bytes.
    pub(crate) const fn size(&self) -> usize {
        self.text.len()
            + self.marks.len() * size_of::<Mark>()
            + self.notes.len() * NOTE_BYTES
            + self.gaps.len() * size_of::<(i64, i64)>()
            + self.questions_bytes
    }

    /// Adds the next event as pending: the merge decides whether it is taken.
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

    /// Notes an entry or a return.
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

    /// Returns the start of an event's line.
    pub(crate) fn start(&self, mark: usize) -> usize {
        let before = mark.checked_sub(1).and_then(|before| self.marks.get(before));
        before.map_or(0, |before| before.end as usize)
    }

    pub(crate) fn note(&mut self, what: Diagnostic) {
        self.notes.push(Note { before: self.marks.len(), what });
    }
}

/// About what a note takes: most of them are losses, a damage's message is a line.
const NOTE_BYTES: usize = 2 * size_of::<Note>();
