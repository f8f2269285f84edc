//! Wake-up latency of a thread of real-time priority, traced and untraced: the same measurement as
//! cyclictest's, by a loop of the bench that may contain an event, next to cyclictest itself.

use std::process::Command;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::child;
use trackway_bench_engine::host::workspace::{Workspace, has};
use trackway_bench_engine::results::{Account, Unit};
use trackway_bench_engine::settings::Settings;
use trackway_bench_engine::stats::{Tail, merge_equal_figures};
use trackway_bench_engine::suite::{About, Entry, Sample, Suite, SuiteContext};
use trackway_bench_engine::tracer::Availability;

use crate::tracers::command_tracer::{self, KnownEvents, Ust};
use crate::tracers::kernel::{
    BUFFER_KIB, EventStorage, Job, KernelEvents, KernelTracer, KernelTracers, TracedRun, Work,
};
use crate::tracers::probed::{ProbedCommand, Prober};
use crate::tracers::trackway::{check_availability, link_flags, make_idle_window_dir, set_window};

/// Programs with the loop: without an event, with Trackway's event, with LTTng's, with a probe.
const PLAIN: &str = "latency";
const WITH_OURS: &str = "latency-trackway";
const WITH_LTTNGS: &str = "latency-lttng";
const WITH_A_PROBE: &str = "latency-usdt";
/// Number of words in the loop's command: program, mode, number of turns, and sleep time.
const LOOP_WORDS: usize = 4;
/// Sleep time of the loop in µs, and number of turns.
const INTERVAL_US: u64 = 200;
const LOOPS: u64 = 2500;
const LOOPS_QUICK: u64 = 500;
/// Bucket size of histograms in ns, equal to the loop's.
const STEP_NS: u64 = 100;
/// Options of cyclictest that match the loop; it prints each latency in ns.
const CYCLICTEST: &str = "-t 1 -m -N -q -v -p 80 -i 200";
/// The system call in which the loop sleeps.
const SLEEP_CALL: &str = "clock_nanosleep";
/// Bound of latency, in µs; the report counts the turns above it.
const LATE_US: f64 = 100.0;

/// Keys of the loop's extra figures.
const FIFO: &str = "real-time priority";
const MISSED: &str = "in all, turns missed";
const LATE: &str = "in all, later than 100 µs";

/// A tracer with its configuration, and the loop that it traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LoopTracer {
    /// No tracer.
    Untraced,
    /// cyclictest instead of the loop, without a tracer.
    Cyclictest,
    /// Trackway's event in the loop, without a session.
    Off,
    /// Trackway's event in the loop, in a session.
    Trackway(EventStorage),
    /// LTTng's event in the loop, in a session.
    Lttng,
    /// A probe in the loop, on which a tracer has put a breakpoint.
    Probed(Prober),
    /// Kernel events.
    Kernel(KernelTracer, KernelEvents, EventStorage),
}

/// All tracers of the loop, with their names.
const LOOP_TRACERS: [(&str, LoopTracer); 17] = {
    use KernelEvents::{Everything, OneCall};
    use KernelTracer::{Bpftrace, FtraceRaw, Perf, Trackway};
    [
        ("untraced", LoopTracer::Untraced),
        ("cyclictest", LoopTracer::Cyclictest),
        ("trackway-off", LoopTracer::Off),
        ("trackway", LoopTracer::Trackway(EventStorage::Disk)),
        ("trackway-flight", LoopTracer::Trackway(EventStorage::Flight)),
        ("lttng-ust", LoopTracer::Lttng),
        (Prober::Ftrace.name(), LoopTracer::Probed(Prober::Ftrace)),
        (Prober::Perf.name(), LoopTracer::Probed(Prober::Perf)),
        (Prober::Bpftrace.name(), LoopTracer::Probed(Prober::Bpftrace)),
        (
            "trackway-nanosleep",
            LoopTracer::Kernel(Trackway, OneCall(SLEEP_CALL), EventStorage::Disk),
        ),
        (
            "ftrace-nanosleep",
            LoopTracer::Kernel(FtraceRaw, OneCall(SLEEP_CALL), EventStorage::Disk),
        ),
        ("perf-nanosleep", LoopTracer::Kernel(Perf, OneCall(SLEEP_CALL), EventStorage::Disk)),
        (
            "bpftrace-nanosleep",
            LoopTracer::Kernel(Bpftrace, OneCall(SLEEP_CALL), EventStorage::Disk),
        ),
        ("trackway-everything", LoopTracer::Kernel(Trackway, Everything, EventStorage::Disk)),
        (
            "trackway-everything-flight",
            LoopTracer::Kernel(Trackway, Everything, EventStorage::Flight),
        ),
        ("ftrace-everything", LoopTracer::Kernel(FtraceRaw, Everything, EventStorage::Disk)),
        (
            "ftrace-everything-flight",
            LoopTracer::Kernel(FtraceRaw, Everything, EventStorage::Flight),
        ),
    ]
};

/// The load of the machine by other work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MachineLoad {
    Idle,
    Loaded,
}

impl MachineLoad {
    const fn words(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Loaded => "a busy process on each CPU",
        }
    }
}

/// The suite `latency`.
#[derive(Debug, Default)]
pub(crate) struct Latency {
    kernel: Option<KernelTracers>,
    ust: Option<Ust>,
    rows: Vec<(LoopTracer, MachineLoad)>,
}

impl Latency {
    /// Prepares a tracer; the entry has the reason if it is absent or has failed.
    fn set_up(&mut self, workspace: &Workspace, loop_tracer: LoopTracer) -> Result<Entry> {
        let absent = match loop_tracer {
            LoopTracer::Untraced => None,
            LoopTracer::Cyclictest => cyclictest_absence(),
            LoopTracer::Off | LoopTracer::Trackway(_) => {
                match check_availability(&workspace.tools, true) {
                    Availability::Missing(reason) => Some(reason),
                    Availability::Ready => None,
                }
            }
            LoopTracer::Lttng => Ust::absence(workspace),
            LoopTracer::Probed(prober) => prober.absence(workspace),
            LoopTracer::Kernel(tracer, _, _) => {
                self.kernel.as_ref().and_then(|all| all.absence(workspace, tracer))
            }
        };
        if absent.is_some() {
            return Ok(Entry { absent, ..Entry::default() });
        }
        match self.compile(workspace, loop_tracer) {
            Ok(()) => Ok(Entry::default()),
            Err(Error::Interrupted) => Err(Error::Interrupted),
            Err(error) => Ok(Entry { failed: Some(error.to_string()), ..Entry::default() }),
        }
    }

    fn compile(&mut self, workspace: &Workspace, loop_tracer: LoopTracer) -> Result<()> {
        match loop_tracer {
            LoopTracer::Off | LoopTracer::Trackway(_) => {
                let flags = link_flags(workspace)?;
                let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
                workspace.compile(WITH_OURS, &flags).map(drop)
            }
            LoopTracer::Lttng => {
                let provider = workspace.path("lttng-provider.c").display().to_string();
                workspace.compile(WITH_LTTNGS, &[&provider, "-llttng-ust", "-ldl"])?;
                if self.ust.is_none() {
                    self.ust = Some(Ust::start(workspace)?);
                }
                Ok(())
            }
            LoopTracer::Probed(_) => workspace.compile(WITH_A_PROBE, &[]).map(drop),
            _ => workspace.compile(PLAIN, &[]).map(drop),
        }
    }

    fn run(
        &self,
        context: &SuiteContext<'_>,
        loop_tracer: LoopTracer,
        machine: MachineLoad,
    ) -> Result<Sample> {
        let workspace = context.workspace;
        let loops = loop_count(context.settings);
        let words = command_words(workspace, loop_tracer, machine, loops);
        let buffer = BUFFER_KIB << 10;
        let (stdout, account) = match loop_tracer {
            LoopTracer::Untraced | LoopTracer::Off => {
                let mut command = command_of_words(&words);
                set_window(&mut command, &make_idle_window_dir(workspace)?);
                (child::run(&mut command, PLAIN)?.stdout, None)
            }
            LoopTracer::Cyclictest => {
                let output = child::run(&mut command_of_words(&words), "cyclictest")?.stdout;
                return parse_cyclictest(&output, loops);
            }
            LoopTracer::Trackway(keep) => {
                let options: &[&str] = match keep {
                    EventStorage::Disk => &["--context", "none"],
                    EventStorage::Flight => &["--context", "none", "--flight-recorder"],
                };
                let known = KnownEvents::Count(loops);
                let ran = command_tracer::record_with_trackway(
                    workspace, options, buffer, &words, known,
                )?;
                (ran.finished.stdout, Some(ran.account))
            }
            LoopTracer::Lttng => {
                let ust = self.ust.as_ref();
                let ust = ust.ok_or_else(|| Error::output("lttng-sessiond", "is not running"))?;
                let session = ("lab:*", None, buffer);
                let ran = ust.record(workspace, session, &words, KnownEvents::Count(loops))?;
                (ran.finished.stdout, Some(ran.account))
            }
            LoopTracer::Probed(prober) => {
                let (before, words) = words.split_at(words.len() - LOOP_WORDS);
                let buffer_kib = BUFFER_KIB;
                let probed = ProbedCommand { before, words, emitted: loops, buffer_kib };
                let (stdout, account) = prober.run(workspace, &probed)?;
                (stdout, Some(account))
            }
            LoopTracer::Kernel(tracer, events, keep) => {
                let kernel = self.kernel.as_ref();
                let kernel =
                    kernel.ok_or_else(|| Error::output(tracer.name(), "it is not set up"))?;
                let call = if matches!(events, KernelEvents::OneCall(_)) { SLEEP_CALL } else { "" };
                let (program, rest) = words.split_at(1);
                let job = Job { workspace, events, keep, call, work: Work::Command(program, rest) };
                let ran = kernel.run(tracer, &job)?;
                let account = account_of_kernel_events(&ran, tracer, (events, keep), loops)?;
                (ran.stdout, account)
            }
        };
        let sample = parse_loop_output(&stdout)?;
        Ok(Sample { account, ..sample })
    }
}

/// Computes the account of kernel events. For one system call, checks entry and exit of each turn.
/// For all kernel events, checks the loop's marks, and that there are at least as many events as
/// entries and exits.
fn account_of_kernel_events(
    ran: &TracedRun,
    tracer: KernelTracer,
    (events, keep): (KernelEvents, EventStorage),
    loops: u64,
) -> Result<Option<Account>> {
    let Some(found) = &ran.found else { return Ok(None) };
    if matches!(events, KernelEvents::OneCall(_)) {
        return Ok(Some(found.account_of_call(2 * loops)));
    }
    let all = found.account();
    if all.emitted < 2 * loops {
        let message = format!("of {loops} turns it has no more than this: {}", all.words());
        return Err(Error::output(tracer.name(), message));
    }
    ran.account_of_marks(tracer, events, keep)
}

fn loop_count(settings: &Settings) -> u64 {
    if settings.quick { LOOPS_QUICK } else { LOOPS }
}

fn command_of_words(words: &[String]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

/// Returns the command of the loop, word by word.
fn command_words(
    workspace: &Workspace,
    loop_tracer: LoopTracer,
    machine: MachineLoad,
    loops: u64,
) -> Vec<String> {
    let path = |program: &str| workspace.path(program).display().to_string();
    let mut words = Vec::new();
    if machine == MachineLoad::Loaded {
        words.extend([path(PLAIN), "busy".to_owned()]);
    }
    let program = match loop_tracer {
        LoopTracer::Cyclictest => {
            // cyclictest runs on the last CPU, like the loop.
            let cpus = trackway_bench_engine::host::machine::allowed_cpus().unwrap_or_default();
            let cpu = cpus.last().copied().unwrap_or_default();
            let arguments = format!("cyclictest -a {cpu} -l {loops} {CYCLICTEST}");
            words.extend(arguments.split(' ').map(str::to_owned));
            return words;
        }
        LoopTracer::Off | LoopTracer::Trackway(_) => WITH_OURS,
        LoopTracer::Lttng => WITH_LTTNGS,
        LoopTracer::Probed(_) => WITH_A_PROBE,
        LoopTracer::Untraced | LoopTracer::Kernel(..) => PLAIN,
    };
    let numbers = [loops, INTERVAL_US].map(|number| number.to_string());
    words.extend([path(program), "loop".to_owned()]);
    words.extend(numbers);
    words
}

/// Makes a sample of latencies in ns; the figure is their median, in µs.
fn sample_of_latencies(latencies: &[(u64, u64)]) -> Result<Sample> {
    let histogram: Vec<(f64, u64)> =
        latencies.iter().map(|&(ns, count)| (ns as f64 / 1000.0, count)).collect();
    let histogram = merge_equal_figures(&histogram);
    let tail = Tail::of(&histogram).ok_or_else(|| Error::output("workload", "no latencies"))?;
    let late: u64 = histogram.iter().filter(|one| one.0 > LATE_US).map(|one| one.1).sum();
    let extra = vec![(LATE, late as f64)];
    Ok(Sample { figure: tail.p50, histogram, extra, ..Sample::default() })
}

/// Parses the output of the loop.
fn parse_loop_output(stdout: &str) -> Result<Sample> {
    let mut latencies = Vec::new();
    for line in stdout.lines().filter(|line| line.starts_with("latency ")) {
        let [ns, count] = trackway_bench_engine::host::workload::parse_numbers(line, "latency")?;
        latencies.push((ns, count));
    }
    let mut sample = sample_of_latencies(&latencies)?;
    for (word, what) in [("fifo", FIFO), ("missed", MISSED)] {
        let is_it = |line: &&str| line.split(' ').next() == Some(word);
        let line = stdout.lines().find(is_it);
        let line = line.ok_or_else(|| Error::output("workload", format!("no line '{word}'")))?;
        let [number] = trackway_bench_engine::host::workload::parse_numbers(line, word)?;
        sample.extra.push((what, number as f64));
    }
    Ok(sample)
}

/// Returns the reason if cyclictest is not available; a trial run checks its priority.
fn cyclictest_absence() -> Option<String> {
    if !has("cyclictest") {
        return Some("cyclictest is not installed (Debian has it in rt-tests)".to_owned());
    }
    let words: Vec<String> =
        format!("cyclictest -l 1 {CYCLICTEST}").split(' ').map(str::to_owned).collect();
    let failure = child::run(&mut command_of_words(&words), "cyclictest").err()?.to_string();
    let said = failure.lines().skip(1).find(|line| !line.is_empty());
    Some(format!("cyclictest cannot run here: {}", said.unwrap_or(&failure)))
}

/// Parses the output of cyclictest: lines `THREAD: NUMBER: NS`, then the greatest latency.
fn parse_cyclictest(output: &str, loops: u64) -> Result<Sample> {
    let mut latencies: Vec<u64> = Vec::new();
    let mut greatest = None;
    for line in output.lines() {
        if let Some((_, rest)) = line.split_once(" Max:") {
            greatest = rest.trim().parse().ok();
        } else if let [thread, _, ns] = line.split(':').map(str::trim).collect::<Vec<_>>()[..]
            && thread == "0"
            && let Ok(ns) = ns.parse()
        {
            latencies.push(ns);
        }
    }
    let max = latencies.iter().max().copied();
    if latencies.len() as u64 != loops || max != greatest {
        let count = latencies.len();
        let message = format!("{count} latencies of {loops}, up to {max:?} of {greatest:?} ns");
        return Err(Error::output("cyclictest", message));
    }
    let latencies: Vec<(u64, u64)> =
        latencies.iter().map(|ns| (ns / STEP_NS * STEP_NS, 1)).collect();
    sample_of_latencies(&latencies)
}

impl Suite for Latency {
    fn about(&self) -> About {
        About {
            name: "latency",
            title: "How late a thread of real-time priority wakes up",
            repeats: "thesis, Figures 3.3 to 3.5",
            unit: Unit::Us,
            x_axis: "",
        }
    }

    fn seconds(&self, settings: &Settings) -> f64 {
        if settings.quick { 13.0 } else { 230.0 }
    }

    fn tracers(&self) -> Vec<&'static str> {
        LOOP_TRACERS.map(|loop_tracer| loop_tracer.0).into()
    }

    fn enter(&mut self, context: &SuiteContext<'_>) -> Result<Vec<Entry>> {
        self.kernel = Some(KernelTracers::set_up(context.workspace)?);
        context.workspace.compile(PLAIN, &[])?;
        let mut entries: Vec<Entry> = Vec::new();
        let machines: &[MachineLoad] = if context.settings.quick {
            &[MachineLoad::Idle]
        } else {
            &[MachineLoad::Idle, MachineLoad::Loaded]
        };
        for (name, loop_tracer) in LOOP_TRACERS {
            if loop_tracer != LoopTracer::Untraced && !context.settings.wants(name) {
                continue;
            }
            context.progress.show_step(&format!("setting up {name}"));
            let ready = self.set_up(context.workspace, loop_tracer)?;
            for (at, &machine) in machines.iter().enumerate() {
                entries.push(Entry {
                    tracer: name.to_owned(),
                    case: machine.words().to_owned(),
                    records: !matches!(
                        loop_tracer,
                        LoopTracer::Untraced | LoopTracer::Cyclictest | LoopTracer::Off
                    ),
                    // The untraced loop is the first row.
                    baseline: (loop_tracer != LoopTracer::Untraced).then_some(at),
                    command: format!("trackway bench latency --tracers {name}"),
                    ..ready.clone()
                });
                self.rows.push((loop_tracer, machine));
            }
        }
        let tracer = format!("{} again", entries[0].tracer);
        let control = Entry { tracer, is_control: true, baseline: Some(0), ..entries[0].clone() };
        entries.push(control);
        self.rows.push(self.rows[0]);
        Ok(entries)
    }

    fn sample(&mut self, context: &SuiteContext<'_>, row: usize) -> Result<Sample> {
        let (loop_tracer, machine) = self.rows[row];
        self.run(context, loop_tracer, machine)
    }

    fn leave(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_loop_says_is_read() {
        let text = "latency 12000 6\nlatency 15200 3\nlatency 150000 1\nfifo 1\nmissed 2\n\
                    emitted 0 10 2000000 100\n";
        let sample = parse_loop_output(text).expect("a sample");
        assert_eq!((sample.figure, sample.histogram.len()), (12.0, 3));
        assert_eq!(sample.histogram[1], (15.2, 3));
        assert_eq!(sample.extra, [(LATE, 1.0), (FIFO, 1.0), (MISSED, 2.0)]);
        for text in ["", "latency 12000 6\n", "latency x 6\nfifo 1\nmissed 0\n"] {
            assert!(parse_loop_output(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_cyclictest_says_is_read() {
        let text = "Max CPUs = 2\nThread 0 Interval: 700\n       0:       0:   12345\n\
                    \x20      0:       1:   12377\n       0:       2:  253936\n\
                    T: 0 ( 6996) P:80 I:200 C:      3 Min:  12345 Act: 12377 Avg: 5 Max:  253936\n";
        let sample = parse_cyclictest(text, 3).expect("a sample");
        assert_eq!(sample.histogram, [(12.3, 2), (253.9, 1)]);
        assert_eq!((sample.figure, &sample.extra[..]), (12.3, &[(LATE, 1.0)][..]));
        assert!(parse_cyclictest(text, 4).is_err(), "one is missing");
        assert!(parse_cyclictest(&text.replace("Max:  253936", "Max:  300000"), 3).is_err());
        assert!(parse_cyclictest("# Histogram\n", 0).is_err());
    }

    #[test]
    fn each_way_is_there_once_and_the_untraced_first() {
        assert_eq!(LOOP_TRACERS[0].1, LoopTracer::Untraced);
        let names: std::collections::BTreeSet<&str> =
            LOOP_TRACERS.iter().map(|loop_tracer| loop_tracer.0).collect();
        assert_eq!(names.len(), LOOP_TRACERS.len());
        for (name, loop_tracer) in LOOP_TRACERS {
            let is_ours = match loop_tracer {
                LoopTracer::Off | LoopTracer::Trackway(_) => true,
                LoopTracer::Kernel(tracer, _, _) => tracer == KernelTracer::Trackway,
                _ => false,
            };
            assert_eq!(name.starts_with("trackway"), is_ours, "{name}");
        }
    }
}
