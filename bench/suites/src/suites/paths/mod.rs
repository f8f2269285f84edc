//! The cost of keeping writers apart, and the cost of each code path of an event. Compares
//! Trackway's protections with the 2012 paper's reserve and commit, a mutex, and blocked signals.
//! The buffers are measured alone, without a tracer.
//!
//! ```text
//! staged       a staged event
//! clock        clocks that stamp events
//! memory       buffers, and the search for records in them
//! protections  the writers
//! loops        timed loops
//! stepping     instructions, counted by single steps
//! goals        bounds for the figures
//! ```
//!
//! Main invariant: all protections stage the same event, read the same clock, write the same
//! header, and use buffers of the same size that are never full. After each run, the recorded
//! events are searched in the bytes of the buffers.

mod clock;
mod goals;
mod loops;
mod memory;
mod protections;
mod staged;
#[cfg(target_arch = "x86_64")]
mod stepping;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::affinity::run_on_cpu;
use trackway_bench_engine::host::machine::allowed_cpus;
use trackway_bench_engine::results::{Account, Unit};
use trackway_bench_engine::settings::Settings;
use trackway_bench_engine::signals;
use trackway_bench_engine::suite::{About, Entry, Sample, Suite, SuiteContext};
use trackway_ring::Geometry;

use super::shared_runs::SharedRuns;
pub(crate) use goals::judge_goals;

use clock::{ConstantClock, CounterClock, UnfencedClock};
use loops::Runner;
use protections::{Contender, ProtectionKind, Scale};

/// Name of the suite.
const SUITE_NAME: &str = "paths";
/// Size and number of sub-buffers, as powers of two, in rows that do not vary them: sixteen of 64
/// KiB.
const SHIFTS: (u32, u32) = (16, 4);
/// Sizes and numbers of sub-buffers, as powers of two: 4 KiB to 4 MiB, in rings of 1 MiB if
/// possible.
const SIZES: [(u32, u32); 6] = [(12, 8), (14, 6), (16, 4), (18, 2), (20, 1), (22, 1)];
/// Number of the first `SIZES` whose rings have equal size.
const SAME_RING: usize = 4;
/// Payloads, in bytes: a `u32`, and eight of them.
const PAYLOADS: [usize; 2] = [4, 32];
/// Payload of simultaneous threads, and of stepped events.
const BYTES: usize = PAYLOADS[0];
/// Payload in bytes for the measurement of switches: longer records switch more often.
const SIZES_BYTES: usize = 256;
/// Threads for each CPU in rows with more threads than CPUs.
const OVERSUBSCRIBED: [usize; 2] = [2, 8];
/// Number of switches that are stepped through, and number of events around each switch.
#[cfg(target_arch = "x86_64")]
const STEPPED: (u32, u64) = (2, 12);

/// Keys of the extra figures of rows.
const MILLIONS: &str = "million events/s";
const LOST: &str = "lost, %";
const RESTARTS: &str = "restarts in a million";
#[cfg(target_arch = "x86_64")]
const ATOMIC: &str = "atomic instructions";

/// The clock that stamps events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClockKind {
    /// The processor's counter, read as in the product.
    Counter,
    /// A constant clock.
    Still,
}

/// A code path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Path {
    /// The event stays in its sub-buffer.
    Fast,
    /// The event opens a sub-buffer.
    Switch,
}

/// The measurement of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RowKind {
    /// An event with a payload of this length, in a loop.
    Loop(usize, ClockKind),
    /// An event in sub-buffers of another size, in a loop.
    Size(usize),
    /// An event on a path, by itself.
    Single(Path),
    /// An event on a path in a loop, from the straight line through several sizes of sub-buffers.
    Line(Path),
    /// Simultaneous threads.
    Threads(usize),
    /// Number of instructions of an event on a path.
    Instructions(Path),
}

impl RowKind {
    fn words(self) -> String {
        let payload = |bytes| if bytes == BYTES { "u32".to_owned() } else { format!("{bytes} B") };
        match self {
            Self::Loop(bytes, ClockKind::Counter) => payload(bytes),
            Self::Loop(bytes, ClockKind::Still) => format!("{}, still clock", payload(bytes)),
            Self::Size(at) => format!("{SIZES_BYTES} B, sub-buffers of {} KiB", sub_buffer_kib(at)),
            Self::Single(Path::Fast) => "fast path, alone".to_owned(),
            Self::Single(Path::Switch) => "switch path, alone".to_owned(),
            Self::Line(Path::Fast) => "fast path, in a loop".to_owned(),
            Self::Line(Path::Switch) => "a switch adds, in a loop".to_owned(),
            Self::Threads(1) => "u32, 1 thread, shared buffers".to_owned(),
            Self::Threads(count) => format!("u32, {count} threads"),
            Self::Instructions(Path::Fast) => "instructions, fast path".to_owned(),
            Self::Instructions(Path::Switch) => "instructions, switch path".to_owned(),
        }
    }

    const fn unit(self) -> Option<Unit> {
        match self {
            Self::Single(_) | Self::Line(_) => Some(Unit::Ns),
            Self::Instructions(_) => Some(Unit::InstructionsPerEvent),
            Self::Loop(..) | Self::Size(_) | Self::Threads(_) => None,
        }
    }

    /// Returns all rows, for a number of CPUs.
    fn all(cpus: usize) -> Vec<Self> {
        let clocks = [ClockKind::Counter, ClockKind::Still];
        let loops = clocks.iter().flat_map(|&clock| PAYLOADS.map(|bytes| Self::Loop(bytes, clock)));
        let mut all: Vec<Self> = loops.collect();
        all.extend([Path::Fast, Path::Switch].map(Self::Single));
        all.extend([Path::Fast, Path::Switch].map(Self::Line));
        all.extend((0..SIZES.len()).map(Self::Size));
        all.extend(thread_counts(cpus).into_iter().map(Self::Threads));
        all.extend([Path::Fast, Path::Switch].map(Self::Instructions));
        all
    }

    /// Returns true if a protection has this row. A protection that is not fit for use only has the
    /// rows that show the reason for its listing.
    const fn is_for(self, protection: ProtectionKind) -> bool {
        match self {
            Self::Loop(_, ClockKind::Counter) | Self::Instructions(_) => true,
            _ => !matches!(protection, ProtectionKind::LocklessUnfenced),
        }
    }
}

const fn sub_buffer_kib(size: usize) -> u64 {
    1 << (SIZES[size].0 - 10)
}

/// Returns numbers of threads: powers of two below the number of CPUs, one for each CPU, and more
/// than CPUs.
fn thread_counts(cpus: usize) -> Vec<usize> {
    let doubled = std::iter::successors(Some(1), |count| Some(count * 2));
    let mut counts: Vec<usize> = doubled.take_while(|count| *count < cpus).collect();
    counts.push(cpus);
    counts.extend(OVERSUBSCRIBED.map(|times| times * cpus));
    counts.retain(|count| *count <= staged::THREADS_MAX);
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// The amount of work in a run.
#[derive(Debug, Clone, Copy)]
struct WorkAmount {
    /// Divisor of the part of a ring that is filled before events count, so that a figure does not
    /// depend on the earlier content of the caches.
    warm_up: u64,
    batches: u32,
    duration_ns: u64,
    timed_events: u64,
}

impl WorkAmount {
    const fn of(settings: &Settings) -> Self {
        if settings.quick {
            Self { warm_up: 10, batches: 5, duration_ns: 20_000_000, timed_events: 8_000 }
        } else {
            Self { warm_up: 1, batches: 30, duration_ns: 50_000_000, timed_events: 20_000 }
        }
    }

    const fn warm_up(self, geometry: Geometry, bytes: usize) -> u64 {
        geometry.ring_bytes() / (bytes as u64 + 4) / self.warm_up
    }
}

/// Figures of one run for the fast path and the switch path, and the account of the events.
#[derive(Debug, Clone, Copy)]
struct PathFigures {
    fast: f64,
    switch: f64,
    account: Account,
}

/// The kind of a run that gives figures for two rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunKind {
    Single,
    Line,
}

/// The suite `paths`.
pub(crate) struct Paths {
    line: Option<CounterClock>,
    cpus: Vec<usize>,
    rows: Vec<(ProtectionKind, RowKind)>,
    path_figures: SharedRuns<(ProtectionKind, RunKind), PathFigures>,
    #[cfg(target_arch = "x86_64")]
    stepped: SharedRuns<ProtectionKind, Stepped>,
}

/// The steps of each event, and the account of the events.
#[cfg(target_arch = "x86_64")]
type Stepped = (Vec<(staged::RecordOutcome, stepping::Steps)>, Account);

fn geometry_of_shifts((sub_shift, count_shift): (u32, u32)) -> Result<Geometry> {
    Geometry::new(sub_shift, count_shift)
        .map_err(|_| Error::output("trackway-bench", "a buffer of a size that no buffer may have"))
}

impl Paths {
    /// Makes the suite without results.
    pub(crate) const fn new() -> Self {
        Self {
            line: None,
            cpus: Vec::new(),
            rows: Vec::new(),
            path_figures: SharedRuns::new(),
            #[cfg(target_arch = "x86_64")]
            stepped: SharedRuns::new(),
        }
    }

    /// Returns the CPU on which single threads run.
    fn cpu(&self) -> usize {
        self.cpus.first().copied().unwrap_or(0)
    }

    fn make_contender(
        &self,
        protection: ProtectionKind,
        clock: ClockKind,
        scale: Scale,
    ) -> Result<Contender> {
        let line = self.line.as_ref().ok_or_else(|| Error::output("the clock", "none"))?;
        match (protection, clock) {
            (ProtectionKind::LocklessUnfenced, _) => {
                Contender::new(protection, scale, UnfencedClock(line.duplicate()))
            }
            (_, ClockKind::Counter) => Contender::new(protection, scale, line.duplicate()),
            (_, ClockKind::Still) => Contender::new(protection, scale, ConstantClock::new()),
        }
    }

    /// Makes a thread that emits events of a length into empty buffers.
    fn make_runner(
        &self,
        protection: ProtectionKind,
        (shifts, bytes): ((u32, u32), usize),
        clock: ClockKind,
    ) -> Result<(Runner, Geometry)> {
        let geometry = geometry_of_shifts(shifts)?;
        let scale = Scale { geometry, cpus: self.cpu() + 1, threads: 1 };
        Ok((Runner::new(self.make_contender(protection, clock, scale)?, bytes), geometry))
    }

    /// Measures ns per event in a loop, and the part of events that switch sub-buffers.
    fn measure_in_loop(
        &self,
        protection: ProtectionKind,
        (shifts, bytes): ((u32, u32), usize),
        clock: ClockKind,
        dose: WorkAmount,
    ) -> Result<(f64, f64, Account)> {
        let (mut runner, geometry) = self.make_runner(protection, (shifts, bytes), clock)?;
        let ns = runner.median_ns(dose.warm_up(geometry, bytes), dose.batches)?;
        Ok((ns, runner.switches_per_event(), runner.check()?))
    }

    /// Measures ns per event on each path, between fences.
    fn measure_single_events(
        &self,
        protection: ProtectionKind,
        dose: WorkAmount,
    ) -> Result<PathFigures> {
        let shifts = (SIZES[0], SIZES_BYTES);
        let (mut runner, geometry) = self.make_runner(protection, shifts, ClockKind::Counter)?;
        runner.skip(dose.warm_up(geometry, SIZES_BYTES));
        let ticks = runner.ticks_of_paths(dose.timed_events)?;
        let rate = self.line.as_ref().and_then(CounterClock::ticks_per_ns);
        let ((fast, switch), rate) = ticks
            .zip(rate)
            .ok_or_else(|| Error::output(protection.name(), "no event on a path"))?;
        Ok(PathFigures { fast: fast / rate, switch: switch / rate, account: runner.check()? })
    }

    /// Returns ns per event in a loop without switches, and the additional cost of a switch. Both
    /// come from the straight line through the sizes whose rings have equal size.
    fn measure_by_line(&self, protection: ProtectionKind, dose: WorkAmount) -> Result<PathFigures> {
        let mut points = Vec::new();
        let mut account = Account::default();
        for shifts in &SIZES[..SAME_RING] {
            let shifts = (*shifts, SIZES_BYTES);
            let (ns, switches, became) =
                self.measure_in_loop(protection, shifts, ClockKind::Counter, dose)?;
            points.push((switches, ns));
            account.add(&became);
        }
        let line = line_through(&points);
        let (fast, switch) = line.ok_or_else(|| Error::output(protection.name(), "no line"))?;
        Ok(PathFigures { fast, switch, account })
    }

    fn sample_threads(
        &self,
        protection: ProtectionKind,
        count: usize,
        dose: WorkAmount,
    ) -> Result<Sample> {
        let cpus = self.cpus.last().map_or(1, |last| last + 1);
        let scale = Scale { geometry: geometry_of_shifts(SHIFTS)?, cpus, threads: count };
        let contender = self.make_contender(protection, ClockKind::Counter, scale)?;
        let run =
            loops::emit_from_threads(&contender, (count, &self.cpus), BYTES, dose.duration_ns)?;
        let recorded = run.tally.recorded as f64;
        let of_emitted = |number: u64| number as f64 / run.tally.emitted as f64;
        let extra = vec![
            (MILLIONS, recorded * 1e3 / run.ns as f64),
            (LOST, 100.0 * of_emitted(run.tally.lost())),
            (RESTARTS, 1e6 * of_emitted(run.tally.restarts)),
        ];
        let figure = run.cpu_ns as f64 / recorded;
        Ok(Sample { figure, account: Some(run.account), extra, ..Sample::default() })
    }

    /// Counts the instructions of events on both paths.
    #[cfg(target_arch = "x86_64")]
    fn step_events(&self, protection: ProtectionKind) -> Result<Stepped> {
        let geometry = geometry_of_shifts(SIZES[0])?;
        let scale = Scale { geometry, cpus: self.cpu() + 1, threads: 1 };
        // Stepping takes long; the clock must not advance meanwhile.
        let line = CounterClock::slow();
        let contender = match protection {
            ProtectionKind::LocklessUnfenced => {
                Contender::new(protection, scale, UnfencedClock(line))?
            }
            _ => Contender::new(protection, scale, line)?,
        };
        let mut runner = Runner::new(contender, BYTES);
        let found = stepping::step_around_switches(&mut runner, STEPPED, geometry.sub_bytes())?;
        let found = found.ok_or_else(|| Error::output("ptrace", "not allowed any more"))?;
        Ok((found, runner.check()?))
    }

    #[cfg(target_arch = "x86_64")]
    fn sample_instructions(
        &mut self,
        row: usize,
        protection: ProtectionKind,
        path: Path,
    ) -> Result<Sample> {
        let mut stepped = std::mem::replace(&mut self.stepped, SharedRuns::new());
        let found = stepped.take_or_run(protection, row, || {
            run_on_cpu(self.cpu(), || self.step_events(protection))
        });
        let did = match path {
            Path::Fast => staged::RecordOutcome::Recorded,
            Path::Switch => staged::RecordOutcome::Switched,
        };
        let sample = found.and_then(|(events, account)| {
            let usual = stepping::most_frequent_steps(events, did);
            let (steps, most) =
                usual.ok_or_else(|| Error::output(protection.name(), "no event"))?;
            let extra = vec![
                (ATOMIC, steps.locked as f64),
                ("fences", steps.fences as f64),
                ("clock readings", steps.clock_reads as f64),
                ("system calls", steps.system_calls as f64),
                ("most instructions", most as f64),
            ];
            let figure = steps.instructions as f64;
            Ok(Sample { figure, account: Some(*account), extra, ..Sample::default() })
        });
        self.stepped = stepped;
        sample
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn sample_instructions(
        &mut self,
        _row: usize,
        protection: ProtectionKind,
        _path: Path,
    ) -> Result<Sample> {
        Err(Error::output(protection.name(), "instructions are told apart on x86-64 only"))
    }

    fn path_figures(
        &mut self,
        row: usize,
        (protection, kind): (ProtectionKind, RunKind),
        dose: WorkAmount,
    ) -> Result<PathFigures> {
        let mut path_figures = std::mem::replace(&mut self.path_figures, SharedRuns::new());
        let run = || {
            run_on_cpu(self.cpu(), || match kind {
                RunKind::Single => self.measure_single_events(protection, dose),
                RunKind::Line => self.measure_by_line(protection, dose),
            })
        };
        let found = path_figures.take_or_run((protection, kind), row, run).copied();
        self.path_figures = path_figures;
        found
    }

    /// Returns the reason if a row cannot be measured on this machine.
    fn absence(&self, protection: ProtectionKind, question: RowKind) -> Option<String> {
        let has_counter = self.line.as_ref().and_then(CounterClock::ticks_per_ns).is_some();
        let reason = match question {
            RowKind::Single(_) if !has_counter => Some("this processor has no counter to read"),
            RowKind::Instructions(_) if cfg!(not(target_arch = "x86_64")) => {
                Some("instructions are told apart on x86-64 only")
            }
            RowKind::Instructions(_) if !can_step() => Some("ptrace is not allowed here"),
            _ => None,
        };
        protections::protection_absence(protection).or(reason).map(str::to_owned)
    }

    fn entry(&self, protection: ProtectionKind, question: RowKind) -> Entry {
        Entry {
            tracer: protection.name().to_owned(),
            case: question.words(),
            x: match question {
                RowKind::Size(at) => Some(sub_buffer_kib(at) as f64),
                _ => None,
            },
            absent: self.absence(protection, question),
            unit: question.unit(),
            records: true,
            command: format!("trackway bench {SUITE_NAME} --tracers {}", protection.name()),
            ..Entry::default()
        }
    }
}

/// Returns true if a child process can be stepped through.
fn can_step() -> bool {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the child runs an empty function.
    return matches!(
        unsafe { trackway_bench_engine::host::ptrace::Tracee::fork(|| ()) },
        Ok(Some(_))
    );
    #[cfg(not(target_arch = "x86_64"))]
    false
}

impl Suite for Paths {
    fn about(&self) -> About {
        About {
            name: SUITE_NAME,
            title: "What keeping writers apart costs, path by path",
            repeats: "survey, Figure 3d; 2012 paper, Tables 1 and 6, Figure 7",
            unit: Unit::NsPerEvent,
            x_axis: "sub-buffer, KiB",
        }
    }

    fn seconds(&self, settings: &Settings) -> f64 {
        if settings.quick { 4.0 } else { 60.0 }
    }

    fn tracers(&self) -> Vec<&'static str> {
        ProtectionKind::ALL.map(ProtectionKind::name).into()
    }

    fn enter(&mut self, context: &SuiteContext<'_>) -> Result<Vec<Entry>> {
        context.progress.show_step("comparing clocks");
        self.line = Some(CounterClock::calibrated());
        self.cpus = allowed_cpus()?;
        let is_wanted = |protection: &ProtectionKind| {
            *protection == ProtectionKind::Nothing || context.settings.wants(protection.name())
        };
        let protections: Vec<ProtectionKind> =
            ProtectionKind::ALL.into_iter().filter(is_wanted).collect();
        for question in RowKind::all(self.cpus.len()) {
            let of = protections.iter().filter(|protection| question.is_for(**protection));
            self.rows.extend(of.map(|protection| (*protection, question)));
        }
        let first = (ProtectionKind::Rseq, RowKind::Loop(BYTES, ClockKind::Counter));
        let control = self.rows.iter().position(|row| *row == first);
        self.rows.extend(control.map(|_| first));
        let mut entries: Vec<Entry> = self
            .rows
            .iter()
            .map(|&(protection, question)| self.entry(protection, question))
            .collect();
        for (entry, (protection, question)) in entries.iter_mut().zip(&self.rows) {
            let floor = (ProtectionKind::Nothing, *question);
            let floor = self.rows.iter().position(|row| *row == floor);
            entry.baseline = floor.filter(|_| *protection != ProtectionKind::Nothing);
        }
        if let Some((first, last)) = control.zip(entries.last_mut()) {
            last.tracer += " again";
            (last.baseline, last.is_control) = (Some(first), true);
        }
        Ok(entries)
    }

    fn sample(&mut self, context: &SuiteContext<'_>, row: usize) -> Result<Sample> {
        if signals::is_stopped() {
            return Err(Error::Interrupted);
        }
        let dose = WorkAmount::of(context.settings);
        let (protection, question) = self.rows[row];
        let in_loop = |shifts, clock| {
            let (figure, _, account) =
                run_on_cpu(self.cpu(), || self.measure_in_loop(protection, shifts, clock, dose))?;
            Ok(Sample { figure, account: Some(account), ..Sample::default() })
        };
        let of_both = |path_figures: PathFigures, path| Sample {
            figure: if path == Path::Fast { path_figures.fast } else { path_figures.switch },
            account: Some(path_figures.account),
            ..Sample::default()
        };
        match question {
            RowKind::Loop(bytes, clock) => in_loop((SHIFTS, bytes), clock),
            RowKind::Size(at) => in_loop((SIZES[at], SIZES_BYTES), ClockKind::Counter),
            RowKind::Single(path) => self
                .path_figures(row, (protection, RunKind::Single), dose)
                .map(|path_figures| of_both(path_figures, path)),
            RowKind::Line(path) => self
                .path_figures(row, (protection, RunKind::Line), dose)
                .map(|path_figures| of_both(path_figures, path)),
            RowKind::Threads(count) => self.sample_threads(protection, count, dose),
            RowKind::Instructions(path) => self.sample_instructions(row, protection, path),
        }
    }

    fn leave(&mut self) {
        *self = Self::new();
    }
}

/// Returns the straight line nearest to the points, by least squares: its intercept and its slope.
fn line_through(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(|point| point.0), mean(|point| point.1));
    let over: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let under: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let slope = over / under;
    let start = mean_y - slope * mean_x;
    (points.len() > 1 && slope.is_finite() && start.is_finite()).then_some((start, slope))
}

#[cfg(test)]
mod tests;
