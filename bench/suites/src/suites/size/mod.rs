//! Bytes on disk for the same events in every tracer that writes files.
//!
//! Each tracer writes two traces; the larger one has four times as many events. The additional
//! bytes of the larger trace, for each additional event, are the bytes of an event. They include
//! its part of packets, pages and indexes; the bytes of a trace without events are constant.

mod written;

use std::process::Command;

use trackway_bench_engine::case::{BatchPlan, BufferState, Case, Payload};
use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::child;
use trackway_bench_engine::host::workload;
use trackway_bench_engine::host::workspace::has;
use trackway_bench_engine::ratios::counted_bar_at_most;
use trackway_bench_engine::ratios::{FigureFormat, FiguresByRound, bar_at_most};
use trackway_bench_engine::results::{Account, Bar, SuiteRows, Unit};
use trackway_bench_engine::settings::Settings;
use trackway_bench_engine::suite::{About, Entry, Sample, Suite, SuiteContext};
use trackway_bench_engine::tracer::{Availability, Tracer};

use crate::tracers::{self, Trackway, name, paced_arguments};
use written::{CONSTANT_BYTES, WrittenTrace, bytes_on_disk, sample_of_traces};

/// Name of the suite.
const SUITE_NAME: &str = "size";
/// Events of a batch, and the pause after it in µs, so that no recorder loses events.
const BATCH_EVENTS: u64 = 2500;
const REST_US: u64 = 1000;
/// Batches of the smaller trace, and ratio of the larger trace to the smaller one.
const BATCHES: u32 = 10;
const TIMES: u32 = 4;

/// Tracer name for the text of Trackway's trace, written by babeltrace2: text is the format that
/// binary traces replace.
const TEXT: &str = "babeltrace2-text";
/// The case of an event after more than thirty others, whose header has an extended id.
const AMONG_MANY: &str = "u32, after 30 others";

/// Tracers that write files, and for each the buffer state in which it keeps all events.
const WRITERS: [(&str, BufferState); 8] = [
    (name::TRACKWAY, BufferState::Steady),
    (name::TRACKWAY_PRINTF, BufferState::Steady),
    (name::LTTNG, BufferState::Steady),
    (name::TRACEF, BufferState::Steady),
    (name::UFTRACE, BufferState::Steady),
    (name::FTRACE_MARKER, BufferState::Producer),
    (name::FTRACE_UPROBE, BufferState::Producer),
    (name::PERF, BufferState::Steady),
];

/// Returns the cases, each with its name.
fn titled_cases() -> [(Case, &'static str); 3] {
    let record = Case { payload: Payload::Record, ..Case::SIMPLEST };
    [Case::SIMPLEST, record, Case::PRINTF].map(|case| (case, case.payload.title()))
}

/// A row: the tracer, the case, and whether the trace is converted to text.
#[derive(Debug, Clone, Copy)]
struct Row {
    tracer: usize,
    mode: BufferState,
    case: Case,
    is_text: bool,
    /// True if numbers are written as digits: later numbers have more digits, so that the constant
    /// bytes of a trace cannot be computed.
    has_digits: bool,
}

/// The suite `size`.
#[derive(Default)]
pub(crate) struct Size {
    tracers: Vec<Box<dyn Tracer>>,
    rows: Vec<Row>,
}

impl Suite for Size {
    fn about(&self) -> About {
        About {
            name: SUITE_NAME,
            title: "Bytes on disk of an event",
            repeats: "design, bars",
            unit: Unit::BytesPerEvent,
            x_axis: "",
        }
    }

    fn seconds(&self, settings: &Settings) -> f64 {
        if settings.quick { 8.0 } else { 60.0 }
    }

    fn tracers(&self) -> Vec<&'static str> {
        WRITERS.iter().map(|writer| writer.0).chain([TEXT]).collect()
    }

    fn enter(&mut self, context: &SuiteContext<'_>) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for tracer in tracers::all_tracers() {
            let writer = WRITERS.iter().find(|writer| writer.0 == tracer.name());
            let Some(&(name, mode)) = writer else { continue };
            if context.settings.wants(name) || is_trackway(name) {
                self.add_rows(context, tracer, mode, &titled_cases(), &mut entries)?;
            }
            if name == name::TRACKWAY {
                let many = Box::new(Trackway::among_many());
                self.add_rows(context, many, mode, &[(Case::SIMPLEST, AMONG_MANY)], &mut entries)?;
            }
        }
        // Rows of text come last.
        let (rows, mut entries) = move_text_last(std::mem::take(&mut self.rows), entries);
        self.rows = rows;
        self.add_control(&mut entries);
        set_baselines(&mut entries);
        Ok(entries)
    }

    fn sample(&mut self, context: &SuiteContext<'_>, row: usize) -> Result<Sample> {
        let row = self.rows[row];
        let tracer = self.tracers[row.tracer].as_mut();
        let few = row.write_trace(tracer, context, BATCHES)?;
        let many = row.write_trace(tracer, context, BATCHES * TIMES)?;
        let mut found = sample_of_traces(tracer.name(), &few, &many)?;
        if row.has_digits {
            found.extra.retain(|extra| extra.0 != CONSTANT_BYTES);
        }
        Ok(found)
    }

    fn leave(&mut self) {
        for tracer in &mut self.tracers {
            tracer.tear_down();
        }
        self.tracers.clear();
        self.rows.clear();
    }
}

impl Size {
    /// Adds the rows of a tracer.
    fn add_rows(
        &mut self,
        context: &SuiteContext<'_>,
        mut tracer: Box<dyn Tracer>,
        mode: BufferState,
        cases: &[(Case, &str)],
        entries: &mut Vec<Entry>,
    ) -> Result<()> {
        let ready = set_up(context, tracer.as_mut())?;
        let name = tracer.name();
        for &(case, title) in cases.iter().filter(|(case, _)| tracer.supports(case)) {
            // Trackway's traces are also converted to text.
            let is_read = is_trackway(name) && title != AMONG_MANY && context.settings.wants(TEXT);
            let texts: &[bool] = if is_read { &[false, true] } else { &[false] };
            for &is_text in texts {
                let tracer = if is_text { TEXT } else { name };
                let mut entry = Entry {
                    tracer: tracer.to_owned(),
                    case: title.to_owned(),
                    command: format!("trackway bench {SUITE_NAME} --tracers {tracer}"),
                    ..ready.clone()
                };
                if is_text && !has("babeltrace2") {
                    entry.absent = Some("babeltrace2 is not installed".to_owned());
                }
                entries.push(entry);
                let is_formatted = case == Case::PRINTF || name == name::FTRACE_MARKER;
                let (tracer, has_digits) = (self.tracers.len(), is_text || is_formatted);
                self.rows.push(Row { tracer, mode, case, is_text, has_digits });
            }
        }
        self.tracers.push(tracer);
        Ok(())
    }

    /// Adds the control, which repeats the first row.
    fn add_control(&mut self, entries: &mut Vec<Entry>) {
        let Some(first) = entries.first().filter(|first| first.can_be_measured()) else { return };
        let tracer = format!("{} again", first.tracer);
        entries.push(Entry { is_control: true, baseline: Some(0), tracer, ..first.clone() });
        self.rows.push(self.rows[0]);
    }
}

/// Prepares a tracer; the entry has the reason if that is not possible.
fn set_up(context: &SuiteContext<'_>, tracer: &mut dyn Tracer) -> Result<Entry> {
    context.progress.show_step(&format!("setting up {}", tracer.name()));
    let ready = Entry { records: true, ..Entry::default() };
    match tracer.availability(context.workspace) {
        Availability::Missing(reason) => Ok(Entry { absent: Some(reason), ..ready }),
        Availability::Ready => match tracer.set_up(context.workspace) {
            Ok(()) => Ok(ready),
            Err(Error::Interrupted) => Err(Error::Interrupted),
            Err(error) => Ok(Entry { failed: Some(error.to_string()), ..ready }),
        },
    }
}

/// Returns true if the tracer is the baseline.
fn is_trackway(name: &str) -> bool {
    [name::TRACKWAY, name::TRACKWAY_PRINTF].contains(&name)
}

/// Moves the text rows and their entries to the end.
fn move_text_last(rows: Vec<Row>, entries: Vec<Entry>) -> (Vec<Row>, Vec<Entry>) {
    let both = rows.into_iter().zip(entries);
    let (text, others): (Vec<_>, Vec<_>) = both.partition(|one| one.0.is_text);
    others.into_iter().chain(text).unzip()
}

/// Sets Trackway's row of the same case as the baseline of each row; the baseline of formatted
/// events is the row of `trackway_printf`.
fn set_baselines(entries: &mut [Entry]) {
    for at in 0..entries.len() {
        let entry = &entries[at];
        let is_it = |one: &Entry| {
            is_trackway(&one.tracer) && one.case == entry.case && one.can_be_measured()
        };
        let ours = entries.iter().position(is_it).filter(|_| !is_trackway(&entry.tracer));
        entries[at].baseline = entry.baseline.or(ours);
    }
}

impl Row {
    /// Writes a trace of a number of batches.
    fn write_trace(
        self,
        tracer: &mut dyn Tracer,
        context: &SuiteContext<'_>,
        batches: u32,
    ) -> Result<WrittenTrace> {
        let workspace = context.workspace;
        let plan = BatchPlan { warm_up: 0, batches };
        let pace = (BATCH_EVENTS, REST_US);
        let arguments = paced_arguments(self.case.payload.work(), &self.case, &plan, pace);
        let output = tracer.emit(workspace, &self.case, self.mode, &arguments)?;
        let emitted = workload::count_events_by_thread(&workload::parse_batches(&output)?);
        let account = tracer.account(workspace, &emitted)?;
        let account = account.ok_or_else(|| Error::output(tracer.name(), "it says nothing"))?;
        let output = tracer.output(workspace);
        let output = output.ok_or_else(|| Error::output(tracer.name(), "it writes no files"))?;
        if !self.is_text {
            return Ok(WrittenTrace { bytes: bytes_on_disk(&output, 0)?, account });
        }
        let mut command = Command::new("babeltrace2");
        let text = child::run(command.arg(&output), TEXT)?.stdout;
        let (bytes, lines) = (text.len() as u64, text.lines().count() as u64);
        Ok(WrittenTrace { bytes, account: Account { recorded: lines, record_bytes: 0, ..account } })
    }
}

/// Most bytes of the record of an event with one `u32`: among the first thirty event classes of a
/// channel, and among later ones.
const RECORD_BYTES: f64 = 8.0;
const LATER_RECORD_BYTES: f64 = 10.0;

/// Returns Trackway's goals that this suite shows.
pub(crate) fn judge_goals(suite: &SuiteRows) -> Vec<Bar> {
    let one = Case::SIMPLEST.payload.title();
    // The extended header, which few records have, is not part of the goal.
    let round = |bytes: f64| (bytes * 100.0).round() / 100.0;
    let ours = |case: &str| suite.row(name::TRACKWAY, case).filter(|row| row.spread.is_some());
    let record = |case: &str| ours(case).and_then(|row| row.bytes_per_event).map(round);
    let on_disk = |tracer: &str| FiguresByRound::of(suite.row(tracer, one));
    let words = |bytes: f64| format!("{bytes:.2}");
    vec![
        counted_bar_at_most(
            &format!("record of an event with one u32: at most {RECORD_BYTES} bytes"),
            record(one),
            RECORD_BYTES,
            words,
        ),
        counted_bar_at_most(
            &format!("the same after thirty other kinds: at most {LATER_RECORD_BYTES} bytes"),
            record(AMONG_MANY),
            LATER_RECORD_BYTES,
            words,
        ),
        bar_at_most(
            "on disk, with packets and all: less than LTTng-UST's",
            on_disk(name::TRACKWAY).over(&on_disk(name::LTTNG)).estimate(),
            1.0,
            FigureFormat::PART,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use trackway_bench_engine::results::Row as Figures;
    use trackway_bench_engine::results::Verdict;
    use trackway_bench_engine::results::fixtures::{steady_row, suite_of_rows};

    use super::*;

    #[test]
    fn text_stands_beside_ours_of_the_same_case() {
        let entry = |tracer: &str, case: &str| Entry {
            tracer: tracer.to_owned(),
            case: case.to_owned(),
            ..Entry::default()
        };
        let mut entries = [
            entry(name::TRACKWAY, "u32"),
            entry(name::TRACKWAY_PRINTF, "text"),
            entry(TEXT, "u32"),
            entry(name::TRACEF, "text"),
            entry(name::PERF, "other"),
        ];
        set_baselines(&mut entries);
        let baseline: Vec<Option<usize>> = entries.iter().map(|entry| entry.baseline).collect();
        assert_eq!(baseline, [None, None, Some(0), Some(1), None]);
    }

    #[test]
    fn bars_are_of_records_and_of_files() {
        let ours =
            Figures { bytes_per_event: Some(8.004), ..steady_row(name::TRACKWAY, "u32", 8.02) };
        let later =
            Figures { bytes_per_event: Some(10.3), ..steady_row(name::TRACKWAY, AMONG_MANY, 10.4) };
        let bars =
            judge_goals(&suite_of_rows([ours, later, steady_row(name::LTTNG, "u32", 10.03)]));
        let found: Vec<(&str, Verdict)> =
            bars.iter().map(|bar| (bar.measured.as_str(), bar.verdict)).collect();
        let expected = [
            ("8.00", Verdict::Holds),
            ("10.30", Verdict::Misses),
            ("0.80 of it (0.80 to 0.80)", Verdict::Holds),
        ];
        assert_eq!(found, expected);
    }
}
