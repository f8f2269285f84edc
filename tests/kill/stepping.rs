//! One event, instruction by instruction, with every continuation after each instruction.

use std::ops::Range;
use std::sync::atomic::Ordering;

use trackway_abi::record::{EXTENDED_BYTES, TAILROOM_BYTES};
use trackway_window::{Owner, Window};

use crate::reading::{
    EventFate, EventKind, ExpectedEvents, FoundRecord, TEXT_LENGTH_BYTES, WindowState,
    compare_states, context_bytes,
};
use crate::stage::{ChangeableBytes, Stage, StageSettings, StageWriterPath};
use crate::tracee::{ActiveSequence, ProcessCheckpoint, Tracee};

/// Number of steps that exceeds the instructions of any event.
const STEPS_MAX: usize = 100_000;
/// Texts that another writer emits during the event: a short one, and one of some words.
const OTHER_WRITER_TEXTS: [Range<usize>; 2] = [300..303, 500..541];
/// Length of the largest text of earlier events.
const EARLIER_TEXT_BYTES_MAX: usize = 900;

/// Fit of the event that is stepped through in the region's open sub-buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fit {
    /// Room to spare; the region's head has this remainder of eight.
    Spare(u64),
    /// Exactly as much room as the event needs.
    Exact,
    /// One byte short of room: the next sub-buffer must be opened.
    Switch,
    /// Full: discarded, or the oldest sub-buffer overwritten.
    Full,
}

/// Relation of the clock to the time of the previous event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClockRelation {
    /// A little later: a compact header.
    Near,
    /// A second later: an extended header.
    Far,
    /// A second earlier: the record gets the time of the previous record.
    Back,
}

/// The scenario of a stepped event.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    /// Fit of the event in the open sub-buffer.
    pub(crate) fit: Fit,
    /// Relation of the clock to the previous event.
    pub(crate) time: ClockRelation,
    /// Bytes of the event's text; `None` if the event has no payload.
    pub(crate) text: Option<usize>,
    /// True if the event is the first of its process.
    pub(crate) is_cold: bool,
}

/// Result of stepping through one event.
#[derive(Debug, Default, Clone)]
pub(crate) struct StepCounts {
    /// Number of instructions executed.
    pub(crate) instructions: usize,
    /// Number of entries into a restartable sequence.
    pub(crate) entered: usize,
    /// Number of points at which the kernel would abort a restartable sequence.
    pub(crate) live: usize,
    /// Number of stores of a commit word.
    pub(crate) commits: usize,
    /// Number of different states of the window.
    pub(crate) states: usize,
    /// Number of points at which a region was claimed.
    pub(crate) claimed: usize,
    /// Number of forks that were read.
    pub(crate) forks: usize,
    /// Number of forks that a real `trackway recover` checked.
    pub(crate) recovered: usize,
}

impl std::ops::AddAssign<&Self> for StepCounts {
    fn add_assign(&mut self, other: &Self) {
        self.instructions += other.instructions;
        self.entered += other.entered;
        self.live += other.live;
        self.commits += other.commits;
        self.states += other.states;
        self.claimed += other.claimed;
        self.forks += other.forks;
        self.recovered += other.recovered;
    }
}

/// A point between two instructions of the writer.
pub(crate) struct StepPoint {
    /// Number of instructions executed so far.
    pub(crate) number: usize,
    /// Registers and private memory of the writer at this point.
    pub(crate) checkpoint: ProcessCheckpoint,
    /// Contents of the window at this point.
    pub(crate) bytes: ChangeableBytes,
    /// The restartable sequence of the writer, if the kernel would abort it at this point.
    pub(crate) live: Option<ActiveSequence>,
    /// Fate of the event, as far as readers find it.
    pub(crate) fate: EventFate,
}

/// Two writers on a stage.
pub(crate) struct WriterPair<'stage> {
    pub(crate) stage: &'stage Stage,
    /// The writer that is stepped through.
    pub(crate) writer: Tracee,
    /// The writer that emits events in between.
    pub(crate) other: Tracee,
    cold: (ProcessCheckpoint, ChangeableBytes),
    warm: (ProcessCheckpoint, ChangeableBytes),
    other_rests: ProcessCheckpoint,
    /// State of the window before the event.
    before: WindowState,
    probe: FoundRecord,
    probe_order: (EventKind, Range<usize>),
}

impl<'stage> WriterPair<'stage> {
    /// Starts both writers.
    pub(crate) fn new(stage: &'stage Stage) -> Self {
        let (mut writer, mut other) = (stage.writer(), stage.writer());
        let must = |result: Result<(), String>| result.expect("an undisturbed writer");
        must(stage.emit(&mut other, EventKind::Other, &OTHER_WRITER_TEXTS[0]));
        let other_rests = other.checkpoint();
        let cold = (writer.checkpoint(), stage.save());
        must(stage.emit(&mut writer, EventKind::Earlier, &(0..1)));
        let warm = (writer.checkpoint(), stage.save());
        let before = stage.read().expect("an undisturbed window");
        let probe = stage.found(EventKind::Empty, 0..0, &writer);
        let probe_order = (EventKind::Empty, 0..0);
        Self { stage, writer, other, cold, warm, other_rests, before, probe, probe_order }
    }

    /// Prepares a scenario: afterwards, the writer is about to emit its event.
    pub(crate) fn set(&mut self, scenario: &Scenario) {
        let (checkpoint, bytes) = if scenario.is_cold { &self.cold } else { &self.warm };
        self.writer.restore(checkpoint);
        self.stage.restore(bytes);
        self.other.restore(&self.other_rests);
        if !scenario.is_cold {
            self.go_to(scenario);
        }
        let base = &self.stage.live().session(self.stage.layout().index).clock.base_ns;
        let now = base.load(Ordering::Relaxed);
        let then = match scenario.time {
            ClockRelation::Near => now,
            ClockRelation::Far => now + 1_000_000_000,
            ClockRelation::Back => now.saturating_sub(1_000_000_000),
        };
        base.store(then, Ordering::Relaxed);
        self.before = self.stage.read().expect("a world that nobody disturbed");
        self.probe_order = match scenario.text {
            None => (EventKind::Empty, 0..0),
            Some(bytes) => (EventKind::Probe, 1000..1000 + bytes),
        };
        let (kind, text) = self.probe_order.clone();
        self.probe = self.stage.found(kind, text.clone(), &self.writer);
        self.stage.order(&self.writer, kind, &text);
    }

    fn emit_earlier(&mut self, text: usize) {
        self.emit(EventKind::Earlier, text);
    }

    fn emit(&mut self, kind: EventKind, text: usize) {
        let text = 2000..2000 + text;
        let emitted = self.stage.emit(&mut self.writer, kind, &text);
        emitted.expect("an undisturbed writer");
    }

    /// Emits events until the region's head has the scenario's fit.
    fn go_to(&mut self, scenario: &Scenario) {
        let stage = self.stage;
        let StageSettings { overwrite, wide_ids, contexts, by } = stage.settings();
        let context_bytes = if contexts { context_bytes(7) } else { 0 };
        let region = stage.region(stage.live());
        let geometry = region.geometry;
        let head = || stage.head();
        let body = context_bytes as u64
            + scenario.text.map_or(0, |bytes| (TEXT_LENGTH_BYTES + bytes) as u64);
        let header = if wide_ids { 6 } else { 4 };
        let needed = match by {
            // In a lockless buffer, the header is exactly as long as needed.
            StageWriterPath::Lockless => header + body,
            _ => (EXTENDED_BYTES + TAILROOM_BYTES) as u64 + body,
        };
        // Position in the sub-buffer at which the event no longer fits.
        let end = geometry.sub_bytes() - needed + 1;
        let around = geometry.ring_bytes() + geometry.sub_bytes();
        let within = match scenario.fit {
            Fit::Spare(remainder) => {
                let least = geometry.within(head()) + 200;
                least.next_multiple_of(8) + remainder
            }
            Fit::Exact => end - 1,
            Fit::Switch => end,
            Fit::Full if overwrite => {
                while head() < around {
                    self.emit_earlier(EARLIER_TEXT_BYTES_MAX);
                }
                end
            }
            Fit::Full => {
                // A claiming writer tries other regions: when it discards an event, all regions are
                // full for events of that size.
                while stage.discarded() == 0 {
                    match scenario.text {
                        Some(text) => self.emit_earlier(text),
                        None => self.emit(EventKind::Empty, 0),
                    }
                }
                return;
            }
        };
        let least = header + (context_bytes + TEXT_LENGTH_BYTES) as u64;
        loop {
            let missing = within.wrapping_sub(geometry.within(head()));
            if missing == 0 {
                return;
            }
            assert!(missing <= geometry.sub_bytes(), "{scenario:?} is not reached");
            let size = match missing {
                0..=EARLIER_TEXT_BYTES_MAX_U64 => missing,
                _ => (missing - 2 * least).min(EARLIER_TEXT_BYTES_MAX_U64),
            };
            self.emit_earlier(usize::try_from(size - least).expect("a text"));
        }
    }

    /// Returns the events that readers may find before the event has returned, if no other writer
    /// has emitted events.
    fn maybe(&self) -> ExpectedEvents {
        ExpectedEvents {
            probe: self.probe.clone(),
            probe_is_certain: false,
            probe_is_first: None,
            other_events: Vec::new(),
        }
    }

    /// Returns the events that the other writer emits.
    fn other_events(&self) -> Vec<FoundRecord> {
        OTHER_WRITER_TEXTS.map(|text| self.stage.found(EventKind::Other, text, &self.other)).into()
    }

    fn check_live(&self, expected: &ExpectedEvents) -> Result<EventFate, String> {
        compare_states(&self.before, &self.stage.read()?, expected)
    }

    /// Reads a fork in which the writer is dead, and returns the event's fate.
    pub(crate) fn check_fork(&self, bytes: &[u8]) -> Result<EventFate, String> {
        compare_states(&self.before, &self.stage.read_fork(bytes)?, &self.maybe())
    }

    /// Reads a window that another process changed, and returns the event's fate.
    pub(crate) fn check_window(&self, window: &Window) -> Result<EventFate, String> {
        compare_states(&self.before, &self.stage.read_window(window)?, &self.maybe())
    }

    /// Reads the live window, whose writer is dead, and returns the event's fate.
    pub(crate) fn check_after_death(&self) -> Result<EventFate, String> {
        self.check_live(&self.maybe())
    }

    /// Makes the other writer emit its events while the first writer is dead. Readers must then
    /// find the events `times` times.
    pub(crate) fn others_emit(&mut self, times: usize) -> Result<EventFate, String> {
        self.intervene()?;
        let other_events = std::iter::repeat_n(self.other_events(), times).flatten().collect();
        self.check_live(&ExpectedEvents { other_events, ..self.maybe() })
    }

    /// Returns the current point.
    fn point(
        &self,
        number: usize,
        sequence: Option<ActiveSequence>,
        last: Option<&StepPoint>,
    ) -> Result<StepPoint, String> {
        let checkpoint = self.writer.checkpoint();
        let bytes = self.stage.save();
        let at = self.writer.registers().rip;
        let live = sequence.filter(|sequence| sequence.is_live_at(at));
        let fate = match last {
            // Readers only depend on the window.
            Some(last) if last.bytes == bytes => last.fate,
            _ => self.check_fork(&bytes)?,
        };
        Ok(StepPoint { number, checkpoint, bytes, live, fate })
    }

    /// Restores the state of a point.
    pub(crate) fn go_back(&self, point: &StepPoint) {
        self.writer.restore(&point.checkpoint);
        self.stage.restore(&point.bytes);
    }

    /// Steps through the event and calls `each` at every point. Stepping continues from the point,
    /// whatever `each` does.
    pub(crate) fn walk(
        &mut self,
        mut each: impl FnMut(&mut Self, &StepPoint, bool) -> Result<(), String>,
    ) -> Result<StepCounts, String> {
        let mut steps = StepCounts::default();
        let mut sequence = None;
        let mut last: Option<StepPoint> = None;
        let region = self.stage.region(self.stage.live());
        for number in 0..STEPS_MAX {
            let point = self.point(number, sequence, last.as_ref())?;
            let is_new = last.as_ref().is_none_or(|last| last.bytes != point.bytes);
            self.check_step(last.as_ref(), &point, &mut steps)?;
            steps.live += usize::from(point.live.is_some());
            steps.states += usize::from(is_new);
            steps.forks += usize::from(is_new);
            let owner = region.control.owner.load(Ordering::Relaxed);
            if owner != 0 {
                steps.claimed += 1;
                if self.stage.live().owner_is_dead(Owner::from_word(owner)) {
                    return Err("a living owner is taken for dead".into());
                }
            }
            each(self, &point, is_new)?;
            self.go_back(&point);
            if number > 0 && self.writer.is_at_breakpoint() {
                steps.instructions = number;
                return Ok(steps);
            }
            last = Some(point);
            self.writer.step();
            if let Some(entered) = self.writer.sequence() {
                self.writer.set_sequence(0);
                sequence = Some(entered);
                steps.entered += 1;
            }
        }
        Err(format!("not at its end after {STEPS_MAX} instructions"))
    }

    /// Checks the effect of an instruction: only the store of a commit word, or of a count of
    /// discarded events, makes the event visible.
    fn check_step(
        &self,
        last: Option<&StepPoint>,
        point: &StepPoint,
        steps: &mut StepCounts,
    ) -> Result<(), String> {
        let Some(last) = last else { return Ok(()) };
        let heads = |bytes: &[u8]| -> Result<u64, String> {
            let state = self.stage.read_fork(bytes)?;
            Ok(state.regions.iter().map(|region| region.head).sum())
        };
        let changed = last.bytes != point.bytes && heads(&last.bytes)? != heads(&point.bytes)?;
        steps.commits += usize::from(changed);
        if changed && self.stage.settings().by == StageWriterPath::Sequence {
            let at = self.writer.registers().rip;
            if last.live.is_none_or(|sequence| sequence.end != at) {
                return Err("a commit word was stored, and not at the end of a sequence".into());
            }
        }
        match (last.fate, point.fate) {
            (was, is) if was == is => Ok(()),
            (EventFate::Absent, EventFate::Recorded) if changed => Ok(()),
            (EventFate::Absent, EventFate::Discarded) if !changed => Ok(()),
            (was, is) => Err(format!("{was:?} became {is:?} at {}", point.number)),
        }
    }

    /// Continues the writer to its end; aborts its restartable sequence if there is one.
    fn finish_aborted(&mut self, point: &StepPoint) -> Result<(), String> {
        if let Some(sequence) = &point.live {
            self.writer.abort(sequence);
        }
        self.writer.run(0)
    }

    /// Aborts the sequence and continues the writer: the event must be recorded once.
    pub(crate) fn aborted(&mut self, point: &StepPoint) -> Result<(), String> {
        self.finish_aborted(point)?;
        self.check_live(&ExpectedEvents { probe_is_certain: true, ..self.maybe() })?;
        self.go_back(point);
        Ok(())
    }

    /// Makes the other writer emit its events. It does not use a region that is claimed.
    fn intervene(&mut self) -> Result<(), String> {
        let region = self.stage.region(self.stage.live());
        let owner = region.control.owner.load(Ordering::Relaxed);
        let word = region.expected();
        for text in OTHER_WRITER_TEXTS {
            self.stage.emit(&mut self.other, EventKind::Other, &text)?;
        }
        self.other.restore(&self.other_rests);
        if owner != 0
            && (region.control.owner.load(Ordering::Relaxed), region.expected()) != (owner, word)
        {
            return Err("a claimed region was written by another".into());
        }
        Ok(())
    }

    /// Kills the writer and makes another writer continue.
    pub(crate) fn killed_and_others_go_on(&mut self, point: &StepPoint) -> Result<(), String> {
        self.intervene()?;
        let fate =
            self.check_live(&ExpectedEvents { other_events: self.other_events(), ..self.maybe() })?;
        self.go_back(point);
        if fate == point.fate { Ok(()) } else { Err(format!("then it was {fate:?}")) }
    }

    /// Lets another writer preempt the writer, which aborts its restartable sequence, and continues
    /// both. Without `aborting`, the sequence is not aborted, as if the kernel had failed.
    pub(crate) fn preempted(&mut self, point: &StepPoint, aborting: bool) -> Result<(), String> {
        self.intervene()?;
        let result = if aborting { self.finish_aborted(point) } else { self.writer.run(0) };
        let recorded = point.fate == EventFate::Recorded;
        let expected = ExpectedEvents {
            other_events: self.other_events(),
            probe_is_certain: true,
            probe_is_first: Some(recorded),
            ..self.maybe()
        };
        let looked = result.and_then(|()| self.check_live(&expected));
        self.go_back(point);
        looked.map(|_| ())
    }

    /// Sends a signal whose handler emits an event; the kernel aborts the restartable sequence.
    pub(crate) fn interrupted(&mut self, point: &StepPoint) -> Result<(), String> {
        if let Some(sequence) = &point.live {
            self.writer.set_sequence(sequence.descriptor);
        }
        self.writer.run(libc::SIGUSR1)?;
        let other_events = vec![self.stage.inner(&self.writer)];
        let probe_is_first = (point.fate == EventFate::Recorded).then_some(true);
        let expected =
            ExpectedEvents { other_events, probe_is_certain: true, probe_is_first, ..self.maybe() };
        self.check_live(&expected)?;
        self.go_back(point);
        Ok(())
    }

    /// Runs every continuation at a point; returns the number of forks that were read. If the
    /// window has not changed since the previous point, the test of other writers after a death is
    /// skipped.
    pub(crate) fn all_continuations(
        &mut self,
        point: &StepPoint,
        is_new: bool,
    ) -> Result<usize, String> {
        let number = point.number;
        let at = |what: &str| {
            let what = what.to_owned();
            move |wrong: String| format!("{what} after instruction {number}: {wrong}")
        };
        let mut forks = 2;
        if point.live.is_some() {
            // Outside a sequence there is nothing to abort, and the next step continues the writer
            // anyway.
            self.aborted(point).map_err(at("aborted"))?;
            forks += 1;
        }
        if is_new {
            forks += 1;
            self.killed_and_others_go_on(point).map_err(at("killed, others going on"))?;
        }
        self.preempted(point, true).map_err(at("preempted"))?;
        self.interrupted(point).map_err(at("interrupted"))?;
        Ok(forks)
    }

    /// Lets a real recorder take over the window, and reads its trace.
    pub(crate) fn recovered(&self, point: &StepPoint) -> Result<(), String> {
        let (lines, lost) = self.stage.recover()?;
        let state = self.stage.read()?;
        let of = |kind: EventKind| {
            let records = state.regions.iter().flat_map(|region| &region.records);
            records.filter(|found| found.kind == kind).count()
        };
        for kind in EventKind::ALL {
            let name = format!(" kill:{}: ", kind.name());
            let printed = lines.iter().filter(|line| line.contains(&name)).count();
            if printed != of(kind) {
                return Err(format!("{printed} of {} {kind:?} after {}", of(kind), point.number));
            }
        }
        if lost == state.discarded_in_regions() {
            Ok(())
        } else {
            Err(format!("{lost} lost after {}: {:?}", point.number, state.discarded))
        }
    }
}

const EARLIER_TEXT_BYTES_MAX_U64: u64 = EARLIER_TEXT_BYTES_MAX as u64;
