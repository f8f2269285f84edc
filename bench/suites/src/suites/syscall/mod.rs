//! The cost of tracing system calls: getppid(2), and openat(2) with names of increasing length, one
//! after another; and the rate at which recorders write events to disk.
//!
//! One run of openat has all lengths, one after another: the openat rows of a tracer in a round
//! share this run.

mod goals;

use std::collections::BTreeMap;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::results::{Account, Row, SuiteRows, Unit};
use trackway_bench_engine::settings::Settings;
use trackway_bench_engine::stats::{self, Spread};
use trackway_bench_engine::suite::{About, Entry, Sample, Suite, SuiteContext};

use crate::tracers::kernel::{
    EventStorage, Job, KernelEvents, KernelTracer, KernelTracers, PROGRAM, TracedRun, Work,
};

pub(crate) use goals::judge_goals;

/// Batches of a run, and number of warm-up batches among them.
const BATCHES: u64 = 150;
const WARM_UP: u64 = 25;
/// Calls of a batch, which takes a fraction of a millisecond, so that most batches are not
/// interrupted, even if other processes compete for the CPUs.
const GETPPID_EVENTS: u64 = 1000;
const OPENAT_EVENTS: u64 = 200;
/// Number of calls that are measured individually.
const SINGLES: u64 = 20_000;
/// Divisor of the number of calls for strace, whose calls take much longer.
const STRACE_LESS: u64 = 100;
/// Lengths of the names for openat(2), equal to the workload's.
const NAME_BYTES: [u64; 6] = [0, 15, 31, 63, 127, 255];
/// Calls in a turn of the paced workload, and duration of a turn (a millisecond): a million events
/// per second.
const PACED_CALLS: u64 = 500;
const PACED_US: u64 = 1000;
/// Time for which recorders drain, in ms.
const DRAIN_MS: u64 = 1000;
const DRAIN_MS_QUICK: u64 = 300;
/// Cases that goals use.
const GETPPID: &str = "getppid";
const PACED: &str = "a million events/s asked for, to disk";
const FLAT_OUT: &str = "as many events/s as can be, to disk";

/// Keys of extra figures: the added cost, relative to ftrace's added cost in the same round;
const OF_FTRACE: &str = "added, in terms of what ftrace adds";
/// the bytes of an event in another layout;
const IN_LTTNGS: &str = "bytes of an event in LTTng's layout";
const OF_LTTNGS: &str = "bytes, in terms of LTTng's layout";
/// a recorder's share of a CPU, and the emitted events per second.
const RECORDER: &str = "recorder, % of a CPU";
const EMITTED: &str = "events/s emitted";
/// Percentage of the events that was still in buffers when the last event was emitted.
const LATER: &str = "written after the program's end, %";
/// The cost that was subtracted from each single call: reading the clock twice.
const CLOCK: &str = "measuring a single call, ns";
/// Number of events that the tracer reports as lost, over all traced processes.
const LOST: &str = "lost, of everything that was traced";

/// All tracers; the untraced calls come first, because they are the baseline.
const TRACERS: [KernelTracer; 11] = [
    KernelTracer::Untraced,
    KernelTracer::Trackway,
    KernelTracer::TrackwayTree,
    KernelTracer::TrackwayTracefs,
    KernelTracer::FtraceRaw,
    KernelTracer::FtraceSyscalls,
    KernelTracer::Perf,
    KernelTracer::Bpftrace,
    KernelTracer::Strace,
    KernelTracer::Sysdig,
    KernelTracer::Systemtap,
];
/// Tracers that keep events on disk.
const RECORDERS: [KernelTracer; 4] = [
    KernelTracer::Trackway,
    KernelTracer::TrackwayTracefs,
    KernelTracer::FtraceRaw,
    KernelTracer::Perf,
];

/// The measurement of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RowKind {
    /// getppid(2): ns of a call.
    Getppid,
    /// openat(2) of a name with a length of [`NAME_BYTES`], by its index: ns of a call.
    Openat(usize),
    /// A million events per second, to disk.
    Paced,
    /// The highest event rate of threads on all CPUs.
    FlatOut,
}

impl RowKind {
    fn words(self) -> String {
        match self {
            Self::Getppid => GETPPID.to_owned(),
            Self::Openat(at) => format!("openat, a name of {} bytes", NAME_BYTES[at]),
            Self::Paced => PACED.to_owned(),
            Self::FlatOut => FLAT_OUT.to_owned(),
        }
    }

    const fn is_call(self) -> bool {
        matches!(self, Self::Getppid | Self::Openat(_))
    }

    fn of(tracer: KernelTracer) -> Vec<Self> {
        let mut turns = vec![Self::Getppid];
        turns.extend((0..NAME_BYTES.len()).map(Self::Openat));
        if RECORDERS.contains(&tracer) {
            turns.extend([Self::Paced, Self::FlatOut]);
        }
        turns
    }
}

/// A row. `again` marks the control, which is the second untraced row.
#[derive(Debug, Clone, Copy)]
struct RowSpec {
    tracer: KernelTracer,
    turn: RowKind,
    again: bool,
}

/// Samples of an openat run that rows of other lengths have not taken yet.
type PendingSamples = BTreeMap<(KernelTracer, bool), [Option<Sample>; NAME_BYTES.len()]>;

/// The suite `syscall`.
#[derive(Debug, Default)]
pub(crate) struct Syscall {
    tracers: Option<KernelTracers>,
    rows: Vec<RowSpec>,
    pending: PendingSamples,
}

impl Syscall {
    fn set_up(&mut self, context: &SuiteContext<'_>) -> Vec<Entry> {
        let mut entries = Vec::new();
        for tracer in TRACERS {
            let name = tracer.name();
            if tracer != KernelTracer::Untraced && !context.settings.wants(name) {
                continue;
            }
            context.progress.show_step(&format!("setting up {name}"));
            let absent =
                self.tracers.as_ref().and_then(|all| all.absence(context.workspace, tracer));
            // An absent tracer has one row.
            let turns = if absent.is_some() { vec![RowKind::Getppid] } else { RowKind::of(tracer) };
            for turn in turns {
                entries.push(build_entry(tracer, turn, absent.clone()));
                self.rows.push(RowSpec { tracer, turn, again: false });
            }
        }
        let control = Entry {
            tracer: format!("{} again", KernelTracer::Untraced.name()),
            is_control: true,
            ..build_entry(KernelTracer::Untraced, RowKind::Getppid, None)
        };
        entries.push(control);
        let (tracer, turn) = (KernelTracer::Untraced, RowKind::Getppid);
        self.rows.push(RowSpec { tracer, turn, again: true });
        entries
    }

    /// Returns each row's baseline: the untraced row of the same case, or Trackway's row for events
    /// on disk.
    fn baselines(&self) -> Vec<Option<usize>> {
        let other = |row: &RowSpec| {
            let tracer =
                if row.turn.is_call() { KernelTracer::Untraced } else { KernelTracer::Trackway };
            let is_it =
                |other: &RowSpec| other.tracer == tracer && other.turn == row.turn && !other.again;
            let found = self.rows.iter().position(is_it)?;
            (tracer != row.tracer || row.again).then_some(found)
        };
        self.rows.iter().map(other).collect()
    }

    fn run(&self, tracer: KernelTracer, job: &Job<'_>) -> Result<TracedRun> {
        let tracers = self.tracers.as_ref();
        let tracers = tracers.ok_or_else(|| Error::output(tracer.name(), "it is not set up"))?;
        tracers.run(tracer, job)
    }

    fn sample_getppid(&self, context: &SuiteContext<'_>, tracer: KernelTracer) -> Result<Sample> {
        let less = call_count_divisor(tracer, context.settings);
        let (events, singles) = ((GETPPID_EVENTS / less).max(10), SINGLES / less);
        let arguments = workload_arguments(GETPPID, &[BATCHES, events, singles]);
        let job = make_calls_job(context, &arguments, GETPPID);
        let ran = self.run(tracer, &job)?;
        let mut medians = medians_by_name_length(&ran)?;
        let figure = medians.remove(&0).ok_or_else(|| Error::output("workload", "no batches"))?;
        let emitted = 2 * (BATCHES * events + singles);
        let (histogram, clock_ns) = parse_single_calls(&ran)?;
        let (account, mut extra) = account_and_extras(&ran, emitted);
        extra.extend(clock_ns.map(|ns| (CLOCK, ns)));
        Ok(Sample { figure, histogram, account, extra, ..Sample::default() })
    }

    /// Returns the sample of one length; the run's other samples are stored for their rows.
    fn sample_openat(
        &mut self,
        context: &SuiteContext<'_>,
        tracer: KernelTracer,
        again: bool,
        at: usize,
    ) -> Result<Sample> {
        let key = (tracer, again);
        if let Some(sample) = self.pending.get_mut(&key).and_then(|pending| pending[at].take()) {
            return Ok(sample);
        }
        let events = (OPENAT_EVENTS / call_count_divisor(tracer, context.settings)).max(10);
        let arguments = workload_arguments("openat", &[BATCHES, events]);
        let job = make_calls_job(context, &arguments, "openat");
        let ran = self.run(tracer, &job)?;
        let mut samples = samples_by_name_length(&ran, 2 * BATCHES * events)?;
        let sample = samples[at].take();
        self.pending.insert(key, samples);
        sample.ok_or_else(|| Error::output("workload", "no batches of that length"))
    }

    fn sample_drain_rate(
        &self,
        context: &SuiteContext<'_>,
        tracer: KernelTracer,
        turn: RowKind,
    ) -> Result<Sample> {
        let ms = if context.settings.quick { DRAIN_MS_QUICK } else { DRAIN_MS };
        let arguments = if turn == RowKind::Paced {
            workload_arguments("paced", &[ms * 1000 / PACED_US, PACED_CALLS, PACED_US])
        } else {
            workload_arguments("for", &[context.cpus as u64, ms])
        };
        let program = context.workspace.path(PROGRAM).display().to_string();
        let folder = context.workspace.path("").display().to_string();
        let before = [program.clone(), "written".to_owned(), folder];
        let after = [&[program], arguments.as_slice()].concat();
        let job = Job {
            events: KernelEvents::OneCall(GETPPID),
            work: Work::WholeCommand(&before, &after),
            ..make_calls_job(context, &[], GETPPID)
        };
        sample_of_drain(&self.run(tracer, &job)?)
    }
}

fn build_entry(tracer: KernelTracer, turn: RowKind, absent: Option<String>) -> Entry {
    let name = tracer.name();
    Entry {
        tracer: name.to_owned(),
        case: turn.words(),
        x: match turn {
            RowKind::Openat(at) => Some(NAME_BYTES[at] as f64),
            _ => None,
        },
        absent,
        unit: (!turn.is_call()).then_some(Unit::EventsPerSecond),
        records: tracer != KernelTracer::Untraced,
        command: format!("trackway bench syscall --tracers {name}"),
        ..Entry::default()
    }
}

/// Returns the divisor of the number of calls.
fn call_count_divisor(tracer: KernelTracer, settings: &Settings) -> u64 {
    let strace = if tracer == KernelTracer::Strace { STRACE_LESS } else { 1 };
    strace * if settings.quick { 5 } else { 1 }
}

fn workload_arguments(word: &str, numbers: &[u64]) -> Vec<String> {
    [word.to_owned()].into_iter().chain(numbers.iter().map(u64::to_string)).collect()
}

/// Makes the job of calls one after another, with all system calls traced.
fn make_calls_job<'a>(
    context: &SuiteContext<'a>,
    arguments: &'a [String],
    call: &'a str,
) -> Job<'a> {
    let work = Work::Workload(arguments);
    Job {
        workspace: context.workspace,
        events: KernelEvents::Calls,
        keep: EventStorage::Disk,
        call,
        work,
    }
}

/// Returns the medians of batches, in ns per call, by the length of names.
fn medians_by_name_length(ran: &TracedRun) -> Result<BTreeMap<u64, f64>> {
    let mut all: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for line in ran.stdout.lines().filter(|line| line.starts_with("batch ")) {
        let [bytes, number, events, ns] =
            trackway_bench_engine::host::workload::parse_numbers(line, "batch")?;
        if number >= WARM_UP && events > 0 {
            all.entry(bytes).or_default().push(ns as f64 / events as f64);
        }
    }
    let median = |(bytes, all): (u64, Vec<f64>)| Some((bytes, Spread::of(&all)?.median));
    Ok(all.into_iter().filter_map(median).collect())
}

/// Figures and their counts.
type Histogram = Vec<(f64, u64)>;

/// Returns the durations of single calls, less the cost of measuring a call, and that cost, if the
/// workload reports it. A difference can be less than zero, because readings of the clock vary.
fn parse_single_calls(ran: &TracedRun) -> Result<(Histogram, Option<f64>)> {
    if !ran.stdout.lines().any(|line| line.starts_with("clock ")) {
        return Ok((Vec::new(), None));
    }
    let [clock] = ran.numbers("clock")?;
    let clock_ns = clock as f64;
    let mut histogram = Vec::new();
    for line in ran.stdout.lines().filter(|line| line.starts_with("single ")) {
        let [ns, count] = trackway_bench_engine::host::workload::parse_numbers(line, "single")?;
        histogram.push((stats::round_to_place(ns as f64 - clock_ns), count));
    }
    Ok((histogram, Some(clock_ns)))
}

/// Returns the account of `emitted` events, and the tracer's extra figures.
fn account_and_extras(
    ran: &TracedRun,
    emitted: u64,
) -> (Option<Account>, Vec<(&'static str, f64)>) {
    let Some(found) = ran.found else { return (None, Vec::new()) };
    let mut extra = vec![(LOST, found.lost as f64)];
    if let Some(bytes) = found.lttng_bytes {
        extra.push((IN_LTTNGS, bytes as f64 / found.events.max(1) as f64));
        // Both byte counts are from one run: the time between events depends on other processes,
        // and differs between rounds.
        extra.push((OF_LTTNGS, found.bytes as f64 / bytes.max(1) as f64));
    }
    (Some(found.account_of_call(emitted)), extra)
}

/// Returns the samples of all lengths. No tracer reports the length of each event: each length gets
/// an equal part of the events.
fn samples_by_name_length(
    ran: &TracedRun,
    emitted_each: u64,
) -> Result<[Option<Sample>; NAME_BYTES.len()]> {
    let count = NAME_BYTES.len() as u64;
    let (account, extra) = account_and_extras(ran, emitted_each * count);
    if let Some(account) = account.filter(|account| !account.is_complete()) {
        let message = format!("events do not add up: {}", account.words());
        return Err(Error::output("openat", message));
    }
    let mut medians = medians_by_name_length(ran)?;
    let mut samples = [const { None }; NAME_BYTES.len()];
    for (at, bytes) in NAME_BYTES.iter().enumerate() {
        let Some(figure) = medians.remove(bytes) else { continue };
        let part = |of: u64| of / count + u64::from((at as u64) < of % count);
        let account = account.map(|all| Account {
            emitted: emitted_each,
            recorded: part(all.recorded),
            lost: emitted_each - part(all.recorded),
            overwritten: 0,
            record_bytes: part(all.record_bytes),
        });
        samples[at] = Some(Sample { figure, account, extra: extra.clone(), ..Sample::default() });
    }
    Ok(samples)
}

/// Returns the rate of events written to disk until the program ended, per second. It follows from
/// the part of the tracer's bytes that was written by then. The remaining events were in buffers,
/// which are written after the program's time.
fn sample_of_drain(ran: &TracedRun) -> Result<Sample> {
    let lines: Vec<&str> = ran.stdout.lines().filter(|line| line.starts_with("emitted ")).collect();
    let threads = trackway_bench_engine::host::workload::parse_emitted(&lines.join("\n"))?;
    let emitted = 2 * threads.iter().map(|thread| thread.events).sum::<u64>();
    let longest_ns = threads.iter().map(|thread| thread.ns).max().unwrap_or(0).max(1);
    let [ns, _, tracers_ns] = ran.numbers("load")?;
    let [written] = ran.numbers("written")?;
    let found = ran.found.unwrap_or_default();
    let account = found.account_of_call(emitted);
    // Written bytes include packet headers, which are in no event's bytes.
    let in_time = (written as f64 / found.bytes.max(1) as f64).min(1.0);
    let each_second = |events: f64| events / (longest_ns as f64 / 1e9);
    Ok(Sample {
        figure: each_second(account.recorded as f64 * in_time),
        account: Some(account),
        extra: vec![
            (EMITTED, each_second(emitted as f64)),
            (LATER, (1.0 - in_time) * 100.0),
            (RECORDER, tracers_ns as f64 / ns.max(1) as f64 * 100.0),
        ],
        ..Sample::default()
    })
}

impl Suite for Syscall {
    fn about(&self) -> About {
        About {
            name: "syscall",
            title: "What tracing system calls costs",
            repeats: "survey, Table V and Figure 9",
            unit: Unit::NsPerCall,
            x_axis: "bytes of the name",
        }
    }

    fn seconds(&self, settings: &Settings) -> f64 {
        if settings.quick { 15.0 } else { 170.0 }
    }

    fn tracers(&self) -> Vec<&'static str> {
        TRACERS.map(KernelTracer::name).into()
    }

    fn enter(&mut self, context: &SuiteContext<'_>) -> Result<Vec<Entry>> {
        self.tracers = Some(KernelTracers::set_up(context.workspace)?);
        let mut entries = self.set_up(context);
        for (entry, baseline) in entries.iter_mut().zip(self.baselines()) {
            entry.baseline = baseline;
        }
        Ok(entries)
    }

    fn sample(&mut self, context: &SuiteContext<'_>, row: usize) -> Result<Sample> {
        let RowSpec { tracer, turn, again } = self.rows[row];
        match turn {
            RowKind::Getppid => self.sample_getppid(context, tracer),
            RowKind::Openat(at) => self.sample_openat(context, tracer, again, at),
            RowKind::Paced | RowKind::FlatOut => self.sample_drain_rate(context, tracer, turn),
        }
    }

    fn complete(&self, rows: &mut SuiteRows) {
        let added = |rows: &SuiteRows, row: &Row| {
            goals::ratio_to_ftrace(rows, row).map(|estimate| estimate.ratio.median)
        };
        let ratios: Vec<Option<f64>> = rows.rows.iter().map(|row| added(rows, row)).collect();
        for (row, ratio) in rows.rows.iter_mut().zip(ratios) {
            row.extra.extend(ratio.map(|ratio| (OF_FTRACE.to_owned(), ratio)));
        }
    }

    fn leave(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests;
