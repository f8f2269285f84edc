//! The cost of a span in a Rust program: Trackway next to fastrace, tracy-client, and `tracing` to
//! a file.
//!
//! Every span of Trackway's is accounted for. The others are believed: what they do with a span is
//! in `workloads/rust/spans.rs`. That is why they are here, and not beside tracers whose own output
//! shows what they did.

use std::process::{Command, Stdio};
use std::time::Instant;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::cargo_workload;
use trackway_bench_engine::host::child;
use trackway_bench_engine::host::workload;
use trackway_bench_engine::host::workspace::{Place, has};
use trackway_bench_engine::ratios::{ByRound, Form, most};
use trackway_bench_engine::results::{Bar, SuiteRows, Unit};
use trackway_bench_engine::settings::Settings;
use trackway_bench_engine::signals;
use trackway_bench_engine::suite::{About, Entry, Sample, Suite, SuiteContext};
use trackway_bench_engine::tracer::Availability;

use crate::tracers::RING_BYTES;
use crate::tracers::trackway::{
    account, availability, in_window, link_flags, off_window_dir, write_to,
};
use crate::workloads;

/// The suite's name.
const NAME: &str = "spans";
/// The workload's source.
const SOURCE: &str = "rust-spans";
/// Folder of Trackway's traces, in the scratch folder.
const TRACE: &str = "spans-trace";
/// Spans of a batch: a millisecond or so.
const BATCH_SPANS: u64 = 5_000;
/// Starts of a process in each round.
const STARTS: usize = 20;
const STARTS_QUICK: usize = 5;

/// A tracer in a way of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Way {
    name: &'static str,
    /// The loop in the workload.
    work: &'static str,
    /// The program that has it.
    program: Program,
    is_recorded: bool,
}

/// A build of the workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Program {
    /// With Trackway and `tracing`.
    Plain,
    /// With fastrace, too.
    Fastrace,
    /// With tracy-client, too.
    Tracy,
}

impl Program {
    const ALL: [Self; 3] = [Self::Plain, Self::Fastrace, Self::Tracy];

    /// The executable.
    const fn name(self) -> &'static str {
        match self {
            Self::Plain => "rust-spans",
            Self::Fastrace => "rust-spans-fastrace",
            Self::Tracy => "rust-spans-tracy",
        }
    }

    /// The package's feature, and what the C compiler is to be told.
    const fn options(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Plain => ("", &[]),
            Self::Fastrace => ("fastrace", &["-DFASTRACE"]),
            Self::Tracy => ("tracy", &["-DTRACY", "-lstdc++"]),
        }
    }

    fn build(self, place: &Place) -> Result<()> {
        let (feature, more) = self.options();
        let library = workloads::SPANS.build(place, feature)?;
        let mut flags = link_flags(place)?;
        flags.extend([library.display().to_string(), "-ldl".to_owned(), "-lm".to_owned()]);
        let flags: Vec<&str> =
            flags.iter().map(String::as_str).chain(more.iter().copied()).collect();
        place.compile_as(SOURCE, self.name(), &flags).map(|_| ())
    }
}

const fn way(name: &'static str, work: &'static str) -> Way {
    Way { name, work, program: Program::Plain, is_recorded: false }
}

const SUBSCRIBER: &str = "trackway-subscriber";
const LAYER: &str = "trackway-layer";
const FASTRACE: &str = "fastrace";

/// All of them. Each span carries its number, unless it says otherwise.
const WAYS: [Way; 10] = [
    way("tracing-registry", "registry"),
    way("trackway-layer-off", "layer"),
    way("trackway-subscriber-off", "subscriber"),
    Way { is_recorded: true, ..way("trackway-span", "macro") },
    Way { is_recorded: true, ..way(SUBSCRIBER, "subscriber") },
    Way { is_recorded: true, ..way(LAYER, "layer") },
    Way { program: Program::Fastrace, ..way(FASTRACE, "fastrace") },
    Way { program: Program::Fastrace, ..way("fastrace-no-number", "fastrace-bare") },
    Way { program: Program::Tracy, ..way("tracy-client", "tracy") },
    way("tracing-file", "file"),
];

/// The measurement of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// A span, in each of so many threads.
    Spans(u32),
    /// A process that makes one.
    Starts,
}

impl Turn {
    fn words(self) -> String {
        match self {
            Self::Spans(1) => "1 thread".to_owned(),
            Self::Spans(threads) => format!("{threads} threads"),
            Self::Starts => "a process with one".to_owned(),
        }
    }
}

/// The suite.
#[derive(Debug, Default)]
pub(crate) struct Spans {
    rows: Vec<(Way, Turn)>,
}

impl Suite for Spans {
    fn about(&self) -> About {
        About {
            name: NAME,
            title: "What a span costs in a Rust program",
            repeats: "users of the crate `tracing`",
            unit: Unit::Ns,
            x_axis: "",
        }
    }

    fn is_only_by_name(&self) -> bool {
        // What it is compared with takes minutes to build.
        true
    }

    fn seconds(&self, settings: &Settings) -> f64 {
        if settings.quick { 120.0 } else { 300.0 }
    }

    fn tracers(&self) -> Vec<&'static str> {
        WAYS.map(|way| way.name).into()
    }

    fn enter(&mut self, context: &SuiteContext<'_>) -> Result<Vec<Entry>> {
        let missing = |availability: Availability| match availability {
            Availability::Missing(reason) => Some(reason),
            Availability::Ready => None,
        };
        let tools = &context.place.tools;
        let absent = missing(availability(tools, has("cc")))
            .or_else(|| missing(cargo_workload::availability(tools)));
        let wanted = |way: &Way| way.name == FASTRACE || context.settings.wants(way.name);
        let ways: Vec<Way> = WAYS.into_iter().filter(wanted).collect();
        let builds = match &absent {
            Some(reason) => Program::ALL.map(|_| Built::Absent(reason.clone())),
            None => build(context, &ways)?,
        };
        let threads = [1, 2].into_iter().filter(|&threads| threads as usize <= context.cpus);
        let turns: Vec<Turn> = threads.map(Turn::Spans).chain([Turn::Starts]).collect();
        let rows = ways.iter().flat_map(|way| turns.iter().map(|turn| (*way, *turn)));
        // A recorder's own start is no part of a program's.
        self.rows = rows.filter(|(way, turn)| *turn != Turn::Starts || !way.is_recorded).collect();
        let entries = self.rows.iter().map(|&(way, turn)| {
            let beside = self.rows.iter().position(|other| *other == (FASTRACE_WAY, turn));
            entry(way, turn, &builds[way.program as usize], beside)
        });
        Ok(entries.collect())
    }

    fn sample(&mut self, context: &SuiteContext<'_>, row: usize) -> Result<Sample> {
        let (way, turn) = self.rows[row];
        match turn {
            Turn::Spans(threads) => spans(context, way, threads),
            Turn::Starts => starts(context, way),
        }
    }

    fn leave(&mut self) {
        self.rows.clear();
    }
}

/// Baseline of the other rows.
const FASTRACE_WAY: Way = WAYS[6];

/// The result of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Built {
    There,
    Absent(String),
    Failed(String),
}

fn entry(way: Way, turn: Turn, built: &Built, beside: Option<usize>) -> Entry {
    let (mut absent, mut failed) = (None, None);
    match built {
        Built::There => {}
        Built::Absent(reason) => absent = Some(reason.clone()),
        Built::Failed(reason) => failed = Some(reason.clone()),
    }
    Entry {
        tracer: way.name.to_owned(),
        case: turn.words(),
        unit: (turn == Turn::Starts).then_some(Unit::Us),
        absent,
        failed,
        records: way.is_recorded,
        beside: beside.filter(|_| way != FASTRACE_WAY),
        command: format!("trackway bench {NAME} --tracers '{}'", way.name),
        ..Entry::default()
    }
}

/// Builds what these need: what is here already, and the others if their crates can be had.
fn build(context: &SuiteContext<'_>, ways: &[Way]) -> Result<[Built; 3]> {
    context.progress.say("building the programs: a minute or two");
    let mut built = Program::ALL.map(|_| Built::There);
    let fetched = match workloads::SPANS.fetch(context.place) {
        Err(Error::Interrupted) => return Err(Error::Interrupted),
        fetched => fetched.map_err(|error| format!("cargo cannot get its crates: {error}")),
    };
    for program in Program::ALL {
        if !ways.iter().any(|way| way.program == program) {
            continue;
        }
        built[program as usize] = match (&fetched, program) {
            (Err(reason), Program::Fastrace | Program::Tracy) => Built::Absent(reason.clone()),
            _ => match program.build(context.place) {
                Ok(()) => Built::There,
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) => Built::Failed(error.to_string()),
            },
        };
    }
    Ok(built)
}

/// Batches that do not count, and that do.
const fn batches(settings: &Settings) -> (u32, u32) {
    if settings.quick { (5, 10) } else { (20, 60) }
}

/// ns of a span: the median of the batches.
fn spans(context: &SuiteContext<'_>, way: Way, threads: u32) -> Result<Sample> {
    let (warm_up, batches) = batches(context.settings);
    let (threads, all) = (threads.to_string(), (warm_up + batches).to_string());
    let mut command =
        if way.is_recorded { recorded(context.place, way) } else { plain(context.place, way)? };
    command.args(["batches", way.work, &threads, &all, &BATCH_SPANS.to_string()]);
    let finished = child::run(&mut command, way.name)?;
    let found = workload::batches(&finished.stdout)?;
    let figure = workload::median_ns(&found, warm_up)?;
    // An event at the beginning of a span, and one at its end.
    let emitted = 2 * found.iter().map(|batch| batch.events).sum::<u64>();
    let account = way.is_recorded.then(|| account(&context.place.path(TRACE), emitted));
    Ok(Sample { figure, account: account.transpose()?, ..Sample::default() })
}

/// The program, recorded.
fn recorded(place: &Place, way: Way) -> Command {
    place.clear(TRACE);
    let mut command = Command::new(&place.tools.trackway);
    command.args(["record", "--flight-recorder", "--context", "none", "--buffer-size"]);
    write_to(command.arg(RING_BYTES.to_string()), &place.path(TRACE));
    command.arg("--").arg(place.path(way.program.name()));
    in_window(&mut command, place.window_dir());
    command
}

/// The program, without a recorder.
fn plain(place: &Place, way: Way) -> Result<Command> {
    let mut command = Command::new(place.path(way.program.name()));
    command.current_dir(place.path("."));
    in_window(&mut command, &off_window_dir(place)?);
    Ok(command)
}

/// µs of a process that makes one span, from its start to its end: the fastest, since a start that
/// the machine interrupts takes several times as long.
fn starts(context: &SuiteContext<'_>, way: Way) -> Result<Sample> {
    let mut fastest = f64::INFINITY;
    for _ in 0..if context.settings.quick { STARTS_QUICK } else { STARTS } {
        let mut command = plain(context.place, way)?;
        command.args(["batches", way.work, "1", "1", "1"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let begin = Instant::now();
        let status = command.status().map_err(Error::io(format!("cannot run {}", way.name)))?;
        fastest = fastest.min(begin.elapsed().as_secs_f64() * 1e6);
        if !status.success() {
            return Err(Error::output(way.name, status));
        }
        if signals::stopped() {
            return Err(Error::Interrupted);
        }
    }
    Ok(Sample { figure: fastest, ..Sample::default() })
}

/// Returns the goals for Trackway's ways of recording the spans of `tracing`.
pub(crate) fn bars(suite: &SuiteRows) -> Vec<Bar> {
    let ns = |tracer: &str| ByRound::of(suite.row(tracer, &Turn::Spans(1).words()));
    let bar = |tracer: &str| {
        let what = format!("{tracer}: at most what fastrace costs");
        most(&what, ns(tracer).over(&ns(FASTRACE)).told(), 1.0, Form::PART)
    };
    [LAYER, SUBSCRIBER].map(bar).into()
}

#[cfg(test)]
mod tests {
    use trackway_bench_engine::results::fixtures::{steady, suite};
    use trackway_bench_engine::results::{RowStatus, Verdict};

    use super::*;

    #[test]
    fn bars_follow_the_figures() {
        let verdicts = |suite: &SuiteRows| -> Vec<Verdict> {
            bars(suite).iter().map(|bar| bar.verdict).collect()
        };
        let ns = |tracer: &str, ns: f64| steady(tracer, "1 thread", ns);
        let mut found = suite([ns(FASTRACE, 200.0), ns(LAYER, 150.0), ns(SUBSCRIBER, 210.0)]);
        assert_eq!(verdicts(&found), [Verdict::Holds, Verdict::Misses]);
        let rows = &mut found.rows;
        // A figure of spans that were not recorded says nothing.
        (rows[1].status, rows[1].spread) = (RowStatus::Failed, None);
        assert_eq!(verdicts(&found), [Verdict::Unknown, Verdict::Misses]);
    }

    #[test]
    fn what_cannot_be_built_is_absent_or_has_failed() {
        assert_eq!(FASTRACE_WAY.name, FASTRACE);
        let of = |built| entry(WAYS[8], Turn::Spans(2), &built, Some(6));
        let absent = of(Built::Absent("no crates".to_owned()));
        assert_eq!((absent.absent.as_deref(), absent.failed), (Some("no crates"), None));
        assert!(!of(Built::Failed("an error".to_owned())).can_be_measured());
        let there = of(Built::There);
        assert!(there.can_be_measured() && there.beside == Some(6) && !there.records);
        let beside = entry(FASTRACE_WAY, Turn::Starts, &Built::There, Some(6));
        assert_eq!((beside.beside, beside.unit), (None, Some(Unit::Us)));
    }
}
