//! The cost of a span in a Rust program: Trackway next to fastrace, tracy-client, and `tracing` to
//! a file.
//!
//! Trackway's spans are all accounted for. The other tracers have no such proof: the code in
//! `workloads/rust/spans.rs` shows their work for a span. So they are in this suite, and not in
//! suites of tracers whose own output proves their work.

use std::process::{Command, Stdio};
use std::time::Instant;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::cargo_workload;
use trackway_bench_engine::host::child;
use trackway_bench_engine::host::workload;
use trackway_bench_engine::host::workspace::{Workspace, has};
use trackway_bench_engine::ratios::{FigureFormat, FiguresByRound, bar_at_most};
use trackway_bench_engine::results::{Bar, SuiteRows, Unit};
use trackway_bench_engine::settings::Settings;
use trackway_bench_engine::signals;
use trackway_bench_engine::suite::{About, Entry, Sample, Suite, SuiteContext};
use trackway_bench_engine::tracer::Availability;

use crate::tracers::RING_BYTES;
use crate::tracers::trackway::{
    account_of_trace, check_availability, link_flags, make_idle_window_dir, set_trace_output,
    set_window,
};
use crate::workloads;

/// Name of the suite.
const SUITE_NAME: &str = "spans";
/// Name of the workload's source.
const SOURCE: &str = "rust-spans";
/// Folder of Trackway's traces, in the scratch folder.
const TRACE_FOLDER: &str = "spans-trace";
/// Spans of a batch, which takes about a millisecond.
const BATCH_SPANS: u64 = 5_000;
/// Number of process starts in each round.
const STARTS: usize = 20;
const STARTS_QUICK: usize = 5;

/// A tracer in one configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SpanVariant {
    name: &'static str,
    /// Name of the loop in the workload.
    work: &'static str,
    /// The program that contains the loop.
    program: Program,
    is_recorded: bool,
}

/// A build of the workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Program {
    /// With Trackway and `tracing`.
    Plain,
    /// With Trackway, `tracing` and fastrace.
    Fastrace,
    /// With Trackway, `tracing` and tracy-client.
    Tracy,
}

impl Program {
    const ALL: [Self; 3] = [Self::Plain, Self::Fastrace, Self::Tracy];

    /// Returns the name of the executable.
    const fn name(self) -> &'static str {
        match self {
            Self::Plain => "rust-spans",
            Self::Fastrace => "rust-spans-fastrace",
            Self::Tracy => "rust-spans-tracy",
        }
    }

    /// Returns the package's feature, and the options of the C compiler.
    const fn options(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Plain => ("", &[]),
            Self::Fastrace => ("fastrace", &["-DFASTRACE"]),
            Self::Tracy => ("tracy", &["-DTRACY", "-lstdc++"]),
        }
    }

    fn build(self, workspace: &Workspace) -> Result<()> {
        let (feature, more) = self.options();
        let library = workloads::SPANS.build(workspace, feature)?;
        let mut flags = link_flags(workspace)?;
        flags.extend([library.display().to_string(), "-ldl".to_owned(), "-lm".to_owned()]);
        let flags: Vec<&str> =
            flags.iter().map(String::as_str).chain(more.iter().copied()).collect();
        workspace.compile_as(SOURCE, self.name(), &flags).map(|_| ())
    }
}

const fn plain_variant(name: &'static str, work: &'static str) -> SpanVariant {
    SpanVariant { name, work, program: Program::Plain, is_recorded: false }
}

const SUBSCRIBER: &str = "trackway-subscriber";
const LAYER: &str = "trackway-layer";
const FASTRACE: &str = "fastrace";

/// All variants. Each span records its number, unless noted otherwise.
const VARIANTS: [SpanVariant; 10] = [
    plain_variant("tracing-registry", "registry"),
    plain_variant("trackway-layer-off", "layer"),
    plain_variant("trackway-subscriber-off", "subscriber"),
    SpanVariant { is_recorded: true, ..plain_variant("trackway-span", "macro") },
    SpanVariant { is_recorded: true, ..plain_variant(SUBSCRIBER, "subscriber") },
    SpanVariant { is_recorded: true, ..plain_variant(LAYER, "layer") },
    SpanVariant { program: Program::Fastrace, ..plain_variant(FASTRACE, "fastrace") },
    SpanVariant {
        program: Program::Fastrace,
        ..plain_variant("fastrace-no-number", "fastrace-bare")
    },
    SpanVariant { program: Program::Tracy, ..plain_variant("tracy-client", "tracy") },
    plain_variant("tracing-file", "file"),
];

/// The measurement of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RowKind {
    /// A span, in each of several threads.
    Spans(u32),
    /// The start of a process that makes one span.
    Starts,
}

impl RowKind {
    fn words(self) -> String {
        match self {
            Self::Spans(1) => "1 thread".to_owned(),
            Self::Spans(threads) => format!("{threads} threads"),
            Self::Starts => "a process with one".to_owned(),
        }
    }
}

/// The suite `spans`.
#[derive(Debug, Default)]
pub(crate) struct Spans {
    rows: Vec<(SpanVariant, RowKind)>,
}

impl Suite for Spans {
    fn about(&self) -> About {
        About {
            name: SUITE_NAME,
            title: "What a span costs in a Rust program",
            repeats: "users of the crate `tracing`",
            unit: Unit::Ns,
            x_axis: "",
        }
    }

    fn is_only_by_name(&self) -> bool {
        // The crates of the other tracers take minutes to build.
        true
    }

    fn seconds(&self, settings: &Settings) -> f64 {
        if settings.quick { 120.0 } else { 300.0 }
    }

    fn tracers(&self) -> Vec<&'static str> {
        VARIANTS.map(|variant| variant.name).into()
    }

    fn enter(&mut self, context: &SuiteContext<'_>) -> Result<Vec<Entry>> {
        let missing = |availability: Availability| match availability {
            Availability::Missing(reason) => Some(reason),
            Availability::Ready => None,
        };
        let tools = &context.workspace.tools;
        let absent = missing(check_availability(tools, has("cc")))
            .or_else(|| missing(cargo_workload::check_availability(tools)));
        let wanted = |variant: &SpanVariant| {
            variant.name == FASTRACE || context.settings.wants(variant.name)
        };
        let variants: Vec<SpanVariant> = VARIANTS.into_iter().filter(wanted).collect();
        let builds = match &absent {
            Some(reason) => Program::ALL.map(|_| BuildOutcome::Absent(reason.clone())),
            None => build_programs(context, &variants)?,
        };
        let threads = [1, 2].into_iter().filter(|&threads| threads as usize <= context.cpus);
        let turns: Vec<RowKind> = threads.map(RowKind::Spans).chain([RowKind::Starts]).collect();
        let rows = variants.iter().flat_map(|variant| turns.iter().map(|turn| (*variant, *turn)));
        // The start of a recorder is not part of a program's start.
        self.rows = rows
            .filter(|(variant, turn)| *turn != RowKind::Starts || !variant.is_recorded)
            .collect();
        let entries = self.rows.iter().map(|&(variant, turn)| {
            let baseline = self.rows.iter().position(|other| *other == (FASTRACE_VARIANT, turn));
            build_entry(variant, turn, &builds[variant.program as usize], baseline)
        });
        Ok(entries.collect())
    }

    fn sample(&mut self, context: &SuiteContext<'_>, row: usize) -> Result<Sample> {
        let (variant, turn) = self.rows[row];
        match turn {
            RowKind::Spans(threads) => measure_spans(context, variant, threads),
            RowKind::Starts => measure_process_starts(context, variant),
        }
    }

    fn leave(&mut self) {
        self.rows.clear();
    }
}

/// The variant that is the baseline of the other rows.
const FASTRACE_VARIANT: SpanVariant = VARIANTS[6];

/// The result of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
enum BuildOutcome {
    Ready,
    Absent(String),
    Failed(String),
}

fn build_entry(
    variant: SpanVariant,
    turn: RowKind,
    built: &BuildOutcome,
    baseline: Option<usize>,
) -> Entry {
    let (mut absent, mut failed) = (None, None);
    match built {
        BuildOutcome::Ready => {}
        BuildOutcome::Absent(reason) => absent = Some(reason.clone()),
        BuildOutcome::Failed(reason) => failed = Some(reason.clone()),
    }
    Entry {
        tracer: variant.name.to_owned(),
        case: turn.words(),
        unit: (turn == RowKind::Starts).then_some(Unit::Us),
        absent,
        failed,
        records: variant.is_recorded,
        baseline: baseline.filter(|_| variant != FASTRACE_VARIANT),
        command: format!("trackway bench {SUITE_NAME} --tracers '{}'", variant.name),
        ..Entry::default()
    }
}

/// Builds the programs of these variants: programs whose crates are on this machine, and the others
/// if their crates can be fetched.
fn build_programs(
    context: &SuiteContext<'_>,
    variants: &[SpanVariant],
) -> Result<[BuildOutcome; 3]> {
    context.progress.show_step("building the programs: a minute or two");
    let mut built = Program::ALL.map(|_| BuildOutcome::Ready);
    let fetched = match workloads::SPANS.fetch(context.workspace) {
        Err(Error::Interrupted) => return Err(Error::Interrupted),
        fetched => fetched.map_err(|error| format!("cargo cannot get its crates: {error}")),
    };
    for program in Program::ALL {
        if !variants.iter().any(|variant| variant.program == program) {
            continue;
        }
        built[program as usize] = match (&fetched, program) {
            (Err(reason), Program::Fastrace | Program::Tracy) => {
                BuildOutcome::Absent(reason.clone())
            }
            _ => match program.build(context.workspace) {
                Ok(()) => BuildOutcome::Ready,
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) => BuildOutcome::Failed(error.to_string()),
            },
        };
    }
    Ok(built)
}

/// Returns the numbers of warm-up batches and of counted batches.
const fn batch_counts(settings: &Settings) -> (u32, u32) {
    if settings.quick { (5, 10) } else { (20, 60) }
}

/// Measures ns of a span: the median of the batches.
fn measure_spans(context: &SuiteContext<'_>, variant: SpanVariant, threads: u32) -> Result<Sample> {
    let (warm_up, batches) = batch_counts(context.settings);
    let (threads, all) = (threads.to_string(), (warm_up + batches).to_string());
    let mut command = if variant.is_recorded {
        record_command(context.workspace, variant)
    } else {
        unrecorded_command(context.workspace, variant)?
    };
    command.args(["batches", variant.work, &threads, &all, &BATCH_SPANS.to_string()]);
    let finished = child::run(&mut command, variant.name)?;
    let found = workload::parse_batches(&finished.stdout)?;
    let figure = workload::median_event_ns(&found, warm_up)?;
    // A span has an event at its begin and an event at its end.
    let emitted = 2 * found.iter().map(|batch| batch.events).sum::<u64>();
    let account = variant
        .is_recorded
        .then(|| account_of_trace(&context.workspace.path(TRACE_FOLDER), emitted));
    Ok(Sample { figure, account: account.transpose()?, ..Sample::default() })
}

/// Makes the command of the recorded program.
fn record_command(workspace: &Workspace, variant: SpanVariant) -> Command {
    workspace.clear(TRACE_FOLDER);
    let mut command = Command::new(&workspace.tools.trackway);
    command.args(["record", "--flight-recorder", "--context", "none", "--buffer-size"]);
    set_trace_output(command.arg(RING_BYTES.to_string()), &workspace.path(TRACE_FOLDER));
    command.arg("--").arg(workspace.path(variant.program.name()));
    set_window(&mut command, workspace.window_dir());
    command
}

/// Makes the command of the program without a recorder.
fn unrecorded_command(workspace: &Workspace, variant: SpanVariant) -> Result<Command> {
    let mut command = Command::new(workspace.path(variant.program.name()));
    command.current_dir(workspace.path("."));
    set_window(&mut command, &make_idle_window_dir(workspace)?);
    Ok(command)
}

/// Measures µs of a process that makes one span, from its start to its end. The figure is the
/// fastest start, since a start that the machine interrupts takes several times as long.
fn measure_process_starts(context: &SuiteContext<'_>, variant: SpanVariant) -> Result<Sample> {
    let mut fastest = f64::INFINITY;
    for _ in 0..if context.settings.quick { STARTS_QUICK } else { STARTS } {
        let mut command = unrecorded_command(context.workspace, variant)?;
        command.args(["batches", variant.work, "1", "1", "1"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let begin = Instant::now();
        let status = command.status().map_err(Error::io(format!("cannot run {}", variant.name)))?;
        fastest = fastest.min(begin.elapsed().as_secs_f64() * 1e6);
        if !status.success() {
            return Err(Error::output(variant.name, status));
        }
        if signals::is_stopped() {
            return Err(Error::Interrupted);
        }
    }
    Ok(Sample { figure: fastest, ..Sample::default() })
}

/// Returns the goals for Trackway's ways of recording the spans of `tracing`.
pub(crate) fn judge_goals(suite: &SuiteRows) -> Vec<Bar> {
    let ns = |tracer: &str| FiguresByRound::of(suite.row(tracer, &RowKind::Spans(1).words()));
    let bar = |tracer: &str| {
        let what = format!("{tracer}: at most what fastrace costs");
        bar_at_most(&what, ns(tracer).over(&ns(FASTRACE)).estimate(), 1.0, FigureFormat::PART)
    };
    [LAYER, SUBSCRIBER].map(bar).into()
}

#[cfg(test)]
mod tests {
    use trackway_bench_engine::results::fixtures::{steady_row, suite_of_rows};
    use trackway_bench_engine::results::{RowStatus, Verdict};

    use super::*;

    #[test]
    fn bars_follow_the_figures() {
        let verdicts = |suite: &SuiteRows| -> Vec<Verdict> {
            judge_goals(suite).iter().map(|bar| bar.verdict).collect()
        };
        let ns = |tracer: &str, ns: f64| steady_row(tracer, "1 thread", ns);
        let mut found =
            suite_of_rows([ns(FASTRACE, 200.0), ns(LAYER, 150.0), ns(SUBSCRIBER, 210.0)]);
        assert_eq!(verdicts(&found), [Verdict::Holds, Verdict::Misses]);
        let rows = &mut found.rows;
        // Spans that were not recorded give no figure.
        (rows[1].status, rows[1].spread) = (RowStatus::Failed, None);
        assert_eq!(verdicts(&found), [Verdict::Unknown, Verdict::Misses]);
    }

    #[test]
    fn what_cannot_be_built_is_absent_or_has_failed() {
        assert_eq!(FASTRACE_VARIANT.name, FASTRACE);
        let of = |built| build_entry(VARIANTS[8], RowKind::Spans(2), &built, Some(6));
        let absent = of(BuildOutcome::Absent("no crates".to_owned()));
        assert_eq!((absent.absent.as_deref(), absent.failed), (Some("no crates"), None));
        assert!(!of(BuildOutcome::Failed("an error".to_owned())).can_be_measured());
        let there = of(BuildOutcome::Ready);
        assert!(there.can_be_measured() && there.baseline == Some(6) && !there.records);
        let baseline =
            build_entry(FASTRACE_VARIANT, RowKind::Starts, &BuildOutcome::Ready, Some(6));
        assert_eq!((baseline.baseline, baseline.unit), (None, Some(Unit::Us)));
    }
}
