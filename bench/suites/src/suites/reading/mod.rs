//! The cost of reading a trace: `trackway print` next to babeltrace2.
//!
//! ```text
//! works   the readers, their work and their traces
//! traces  generated traces of Trackway; lttng records one
//! goals   goals for the reader
//! ```
//!
//! Main invariant: all readers do the same work, and the suite proves it. Before their times are
//! compared, the readers' texts of a trace must be equal byte by byte, and their counts must be
//! right.

mod goals;
mod lttng;
mod traces;
mod works;

pub(crate) use goals::judge_goals;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::machine::allowed_cpus;
use trackway_bench_engine::host::process_run::{self, OutputSummary};
use trackway_bench_engine::host::workspace::has;
use trackway_bench_engine::results::Unit;
use trackway_bench_engine::settings::Settings;
use trackway_bench_engine::suite::{About, Entry, Sample, Suite, SuiteContext};
use trackway_bench_engine::tracer::Tracer as _;

use crate::tracers::Lttng;
use traces::TraceFolder;
use works::{BABELTRACE2, Size, Tool, TraceKind, Work};

/// Events of a small trace, which babeltrace2 reads in some seconds.
const EVENTS: u64 = 1_000_000;
const EVENTS_QUICK: u64 = 200_000;
/// Ratio of events between a large trace and a small one. The goals use about 22 million events of
/// one kind of trace; the other large traces show that memory does not grow.
const LARGE_RATIO: u64 = 5;
const LARGER_NUMBERS: u64 = 22;
const MIB: f64 = 1_048_576.0;

/// Keys of a run's extra figures: the greatest resident set; the mean number of busy CPUs; the size
/// of the trace's streams.
const PEAK_MIB: &str = "most memory, MiB";
const BUSY_CPUS: &str = "CPUs busy";
const TRACE_MIB: &str = "trace, MiB";
/// Key of the extra figure for millions of events in the trace.
const EVENTS_M: &str = "events, M";

/// The measurement of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ReadingRow {
    tool: Tool,
    kind: TraceKind,
    size: Size,
    /// The work of the row; `None` for the first line of text.
    work: Option<Work>,
}

/// Returns the case of events per second.
fn speed_case(kind: TraceKind, work: Work, size: Size) -> String {
    format!("{}: {}{}", kind.words(), work.words(), size.words())
}

/// Returns the case of the time to the first line.
fn first_line_case(kind: TraceKind, size: Size) -> String {
    format!("{}: first line{}", kind.words(), size.words())
}

impl ReadingRow {
    fn case(self) -> String {
        match self.work {
            Some(work) => speed_case(self.kind, work, self.size),
            None => first_line_case(self.kind, self.size),
        }
    }

    /// Returns the row's baseline: the other reader of the same trace; for a large trace, the same
    /// reader of the small trace.
    fn baseline(self) -> Option<Self> {
        match (self.tool, self.size) {
            (Tool::Babeltrace2, _) => None,
            (_, Size::Large) if self.work.is_some() => Some(Self { size: Size::Small, ..self }),
            _ => Some(Self { tool: Tool::Babeltrace2, ..self }),
        }
    }
}

/// A trace of a kind in both sizes, or the reason for its absence.
struct TracePair {
    kind: TraceKind,
    made: std::result::Result<[TraceFolder; 2], MissingTrace>,
    /// Wrong outputs: the tool, the work, and the fault.
    wrong: Vec<(Tool, Work, String)>,
}

/// The reason for a missing trace.
enum MissingTrace {
    Absent(String),
    Failed(String),
}

/// The suite `reading`.
#[derive(Default)]
pub(crate) struct Reading {
    recorder: Option<Lttng>,
    traces: Vec<TracePair>,
    turns: Vec<ReadingRow>,
    cpus: Vec<usize>,
}

impl Suite for Reading {
    fn about(&self) -> About {
        About {
            name: "reading",
            title: "What reading a trace costs",
            repeats: "design, bars",
            unit: Unit::EventsPerSecond,
            x_axis: "",
        }
    }

    fn seconds(&self, settings: &Settings) -> f64 {
        if settings.quick { 13.0 } else { 270.0 }
    }

    fn tracers(&self) -> Vec<&'static str> {
        Tool::ALL.map(Tool::name).into()
    }

    fn enter(&mut self, context: &SuiteContext<'_>) -> Result<Vec<Entry>> {
        self.cpus = allowed_cpus()?;
        let tools = self.tools(context.settings);
        let here: Vec<Tool> =
            tools.iter().copied().filter(|tool| tool_absence(*tool).is_none()).collect();
        self.make_traces(context)?;
        for traces in &mut self.traces {
            traces.check_outputs(context, &here)?;
        }
        let mut entries = Vec::new();
        for turn in list_rows(&tools) {
            entries.push(self.entry(turn));
            self.turns.push(turn);
        }
        self.add_control(&mut entries);
        let baseline = self.turns.iter().map(|turn| turn.baseline());
        for (row, baseline) in baseline.enumerate().collect::<Vec<_>>() {
            let found = self.turns.iter().position(|other| Some(*other) == baseline);
            entries[row].baseline = entries[row].baseline.or(found);
        }
        Ok(entries)
    }

    fn sample(&mut self, context: &SuiteContext<'_>, row: usize) -> Result<Sample> {
        let missing = || Error::output("reading", "there is no such row");
        let turn = *self.turns.get(row).ok_or_else(missing)?;
        let trace = self.trace(turn).ok_or_else(missing)?;
        let command = |work| turn.tool.command(work, context.workspace, &trace.path);
        let cpus = if turn.tool == Tool::OneCpu { &self.cpus[..1] } else { &self.cpus[..] };
        let name = turn.tool.name();
        let Some(work) = turn.work else {
            let figure = process_run::measure_first_line_ms(command(Work::Text), name, cpus)?;
            return Ok(Sample { figure, ..Sample::default() });
        };
        let run = process_run::run(command(work), name, cpus)?;
        let extra = vec![
            (PEAK_MIB, run.peak_bytes as f64 / MIB),
            (BUSY_CPUS, run.cpu_seconds / run.seconds),
            (TRACE_MIB, trace.bytes as f64 / MIB),
            (EVENTS_M, trace.events as f64 / 1e6),
        ];
        Ok(Sample { figure: trace.events as f64 / run.seconds, extra, ..Sample::default() })
    }

    fn leave(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.tear_down();
        }
        for folder in self.traces.iter().flat_map(|traces| traces.made.iter().flatten()) {
            // Files that cannot be removed now are removed with the scratch folder.
            let _ = std::fs::remove_dir_all(&folder.path);
        }
        *self = Self::default();
    }
}

impl Reading {
    /// Returns the selected tools, and always babeltrace2, which is the baseline.
    fn tools(&self, settings: &Settings) -> Vec<Tool> {
        let is_in = |tool: &Tool| match tool {
            Tool::Babeltrace2 => true,
            Tool::OneCpu => self.cpus.len() > 1 && settings.wants(tool.name()),
            Tool::Trackway => settings.wants(tool.name()),
        };
        Tool::ALL.into_iter().filter(is_in).collect()
    }

    fn trace(&self, turn: ReadingRow) -> Option<&TraceFolder> {
        let traces = self.traces.iter().find(|traces| traces.kind == turn.kind)?;
        traces.made.as_ref().ok()?.get(usize::from(turn.size == Size::Large))
    }

    fn make_traces(&mut self, context: &SuiteContext<'_>) -> Result<()> {
        let quick = context.settings.quick;
        let all = TraceKind::ALL.map(|kind| (kind, event_counts(kind, quick).iter().sum()));
        traces::check_space(context.workspace, &all)?;
        for kind in TraceKind::ALL {
            let sizes = event_counts(kind, quick);
            let made = match lttng::check_availability(context.workspace) {
                Err(reason) if kind == TraceKind::Lttng => Err(MissingTrace::Absent(reason)),
                _ => match self.make_trace_pair(context, kind, sizes) {
                    Ok(made) => Ok(made),
                    Err(Error::Interrupted) => return Err(Error::Interrupted),
                    Err(error) => Err(MissingTrace::Failed(error.to_string())),
                },
            };
            self.traces.push(TracePair { kind, made, wrong: Vec::new() });
        }
        // The recorder's daemon must not use the CPUs while readers run.
        if let Some(mut recorder) = self.recorder.take() {
            recorder.tear_down();
        }
        Ok(())
    }

    fn make_trace_pair(
        &mut self,
        context: &SuiteContext<'_>,
        kind: TraceKind,
        sizes: [u64; 2],
    ) -> Result<[TraceFolder; 2]> {
        let mut make = |events: u64| {
            let name = kind.name();
            context
                .progress
                .show_step(&format!("making a trace: {}, {events} events", kind.words()));
            let path = context.workspace.path(&format!("{name}-{events}"));
            match kind {
                TraceKind::Lttng => {
                    lttng::record_trace(&mut self.recorder, context.workspace, &path, events)
                }
                _ => traces::write_trace(&path, kind, events),
            }
        };
        Ok([make(sizes[0])?, make(sizes[1])?])
    }

    fn entry(&self, turn: ReadingRow) -> Entry {
        let name = turn.tool.name();
        let traces = self.traces.iter().find(|traces| traces.kind == turn.kind);
        let mut entry = Entry {
            tracer: name.to_owned(),
            case: turn.case(),
            absent: tool_absence(turn.tool),
            unit: turn.work.is_none().then_some(Unit::Ms),
            command: turn.tool.words(turn.work.unwrap_or(Work::Text), "TRACE").join(" "),
            ..Entry::default()
        };
        match traces.map(|traces| &traces.made) {
            Some(Err(MissingTrace::Absent(reason))) => entry.absent = Some(reason.clone()),
            Some(Err(MissingTrace::Failed(reason))) => entry.failed = Some(reason.clone()),
            _ => {}
        }
        let work = turn.work.unwrap_or(Work::Text);
        let wrong = traces.into_iter().flat_map(|traces| &traces.wrong);
        let wrong =
            wrong.into_iter().find(|wrong| wrong.1 == work && is_same_program(wrong.0, turn.tool));
        entry.failed = entry.failed.or_else(|| wrong.map(|wrong| wrong.2.clone()));
        entry
    }

    /// Adds the control, which repeats the first row.
    fn add_control(&mut self, entries: &mut Vec<Entry>) {
        let first = entries.iter().position(|entry| entry.tracer != BABELTRACE2);
        let Some(first) = first.filter(|&first| entries[first].can_be_measured()) else { return };
        let control = Entry { is_control: true, baseline: Some(first), ..entries[first].clone() };
        let tracer = format!("{} again", control.tracer);
        entries.push(Entry { tracer, ..control });
        self.turns.push(self.turns[first]);
    }
}

/// Returns the numbers of events of the small and the large trace of a kind.
const fn event_counts(kind: TraceKind, quick: bool) -> [u64; 2] {
    match (quick, kind) {
        (true, _) => [EVENTS_QUICK, LARGE_RATIO * EVENTS_QUICK],
        (false, TraceKind::Numbers) => [EVENTS, LARGER_NUMBERS * EVENTS],
        (false, _) => [EVENTS, LARGE_RATIO * EVENTS],
    }
}

/// Returns true if both tools are the same program.
fn is_same_program(one: Tool, other: Tool) -> bool {
    (one == Tool::Babeltrace2) == (other == Tool::Babeltrace2)
}

/// Returns the reason if a reader is not available on this machine.
fn tool_absence(tool: Tool) -> Option<String> {
    let is_missing = tool == Tool::Babeltrace2 && !has(BABELTRACE2);
    is_missing.then(|| "babeltrace2 is not installed".to_owned())
}

impl TracePair {
    /// Runs each tool on the small trace, and checks its output.
    fn check_outputs(&mut self, context: &SuiteContext<'_>, tools: &[Tool]) -> Result<()> {
        let Ok([small, _]) = &self.made else { return Ok(()) };
        let mut first: Option<OutputSummary> = None;
        for tool in [Tool::Babeltrace2, Tool::Trackway] {
            if !tools.iter().any(|other| is_same_program(tool, *other)) {
                continue;
            }
            context.progress.show_step(&format!(
                "asking {} about {}",
                tool.name(),
                self.kind.words()
            ));
            let text = process_run::run_and_hash_output(
                tool.command(Work::Text, context.workspace, &small.path),
                tool.name(),
                |_| (),
            );
            let found = text.and_then(|text| {
                check_same_text(tool, text, *first.get_or_insert(text), small.events).map(|()| text)
            });
            keep_error(&mut self.wrong, tool, Work::Text, found.map(drop))?;
            let mut said = Vec::new();
            let count = tool.command(Work::Count, context.workspace, &small.path);
            let counted = process_run::run_and_hash_output(count, tool.name(), |piece| {
                // A count is never longer: additional output is dropped.
                let room = COUNT_OUTPUT_BYTES_MAX.saturating_sub(said.len());
                said.extend_from_slice(&piece[..piece.len().min(room)]);
            });
            let counted = counted.and_then(|_| tool.counted(&String::from_utf8_lossy(&said)));
            let counted = counted.and_then(|counted| match counted == small.events {
                true => Ok(()),
                false => {
                    let events = small.events;
                    let message = format!("it counts {counted} events where there are {events}");
                    Err(Error::output(tool.name(), message))
                }
            });
            keep_error(&mut self.wrong, tool, Work::Count, counted)?;
        }
        Ok(())
    }
}

/// Most bytes of a reader's output that are kept for a count.
const COUNT_OUTPUT_BYTES_MAX: usize = 1 << 20;

/// Stores an error for the report; only an interruption is returned.
fn keep_error(
    wrong: &mut Vec<(Tool, Work, String)>,
    tool: Tool,
    work: Work,
    found: Result<()>,
) -> Result<()> {
    match found {
        Ok(()) => Ok(()),
        Err(Error::Interrupted) => Err(Error::Interrupted),
        Err(error) => {
            wrong.push((tool, work, error.to_string()));
            Ok(())
        }
    }
}

/// Checks that a text equals the first text of the trace, and has a line for each event.
fn check_same_text(
    tool: Tool,
    text: OutputSummary,
    first: OutputSummary,
    events: u64,
) -> Result<()> {
    if text == first && text.lines == events {
        return Ok(());
    }
    let message = format!("texts are not the same: {text:?} and {first:?} of {events} events");
    Err(Error::output(tool.name(), message))
}

/// Returns all rows of these readers.
fn list_rows(tools: &[Tool]) -> Vec<ReadingRow> {
    let mut all = Vec::new();
    for kind in TraceKind::ALL {
        for work in Work::ALL {
            let turn = |&tool| ReadingRow { tool, kind, size: Size::Small, work: Some(work) };
            all.extend(tools.iter().map(turn));
        }
        // babeltrace2 takes half a minute for the text of 22 million events: it only decodes them.
        if kind == TraceKind::Numbers && tools.contains(&Tool::Babeltrace2) {
            let (tool, work) = (Tool::Babeltrace2, Some(Work::Decode));
            all.push(ReadingRow { tool, kind, size: Size::Large, work });
        }
        let ours = tools.iter().filter(|tool| **tool == Tool::Trackway);
        all.extend(ours.flat_map(|&tool| {
            let large = |work| ReadingRow { tool, kind, size: Size::Large, work: Some(work) };
            [Work::Text, Work::Decode].map(large)
        }));
        for size in Size::ALL {
            let with_all = tools.iter().filter(|tool| **tool != Tool::OneCpu);
            all.extend(with_all.map(|&tool| ReadingRow { tool, kind, size, work: None }));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_ours_is_told_in_terms_of_something_that_is_there() {
        let all = list_rows(&Tool::ALL);
        let names: std::collections::BTreeSet<(String, &str)> =
            all.iter().map(|turn| (turn.case(), turn.tool.name())).collect();
        assert_eq!(names.len(), all.len(), "each has a name of its own");
        for turn in &all {
            let baseline = turn.baseline();
            assert_eq!(baseline.is_none(), turn.tool == Tool::Babeltrace2);
            assert!(baseline.is_none_or(|baseline| all.contains(&baseline)), "{turn:?}");
        }
    }

    #[test]
    fn texts_that_differ_or_lack_lines_are_told() {
        let text = OutputSummary { lines: 5, bytes: 50, hash: 7 };
        check_same_text(Tool::Trackway, text, text, 5).expect("the same");
        check_same_text(Tool::Trackway, OutputSummary { hash: 8, ..text }, text, 5)
            .expect_err("other words");
        check_same_text(Tool::Trackway, text, text, 6).expect_err("one too few");
    }
}
