//! What keeping writers apart costs: the 2012 paper's reserve and commit beside ours, a mutex, and
//! blocked signals, as the paper's tables and the survey's have it, in user space.
//!
//! ```text
//! staged     an event as its site leaves it
//! clock      what it is stamped with
//! memory     buffers, and what is found in them
//! ways       the writers
//! loops      what is timed
//! stepping   what is counted instruction by instruction
//! product    the same through `trackway record --reserve`
//! results    what was measured, as JSON; report shows it to people
//! ```
//!
//! Main invariant: all ways stage the same event, read the same clock, make the same header, and
//! write into buffers of the same size that are never full; and after each run as many records as
//! were taken are looked for in the bytes of the buffer. A figure without them is a failure.

mod clock;
mod loops;
mod memory;
mod product;
mod report;
mod results;
mod staged;
#[cfg(target_arch = "x86_64")]
mod stepping;
mod ways;

pub(crate) use loops::thread_cpu_ns;
pub use report::print as print_reserve;
pub use results::{
    ClockKind, EventCost, Path, PathCost, ProductCost, ReserveResults, SizeCost, Steps,
    StepsOnPath, Tally, ThreadsCost, Way,
};

use trackway_ring::Geometry;
use trackway_sys::thread::CpuSet;

use crate::case::{Payload, Plan};
use crate::error::{Error, Result};
use crate::machine::{Machine, allowed_cpus};
use crate::place::{Kit, Place};
use crate::progress::Progress;
use crate::results::{Account, Note};
use crate::signals;
use crate::stats::Spread;
use clock::{Line, Still, Unfenced};
use loops::Runner;
use results::FORMAT;
use ways::{Contender, Scale};

/// What the user asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReserveOptions {
    /// Some seconds instead of some minutes: to see that all works, not for figures.
    pub quick: bool,
    /// So many rounds, instead of ten.
    pub rounds: Option<u32>,
    /// Up to so many threads, instead of as many as there are CPUs.
    pub threads: Option<usize>,
}

/// Rounds, if nothing else is asked for.
const ROUNDS: u32 = 10;
/// Sub-buffers of the buffers in which nothing else is asked about: sixteen of 64 KiB.
const SHIFTS: (u32, u32) = (16, 4);
/// Sizes and numbers of sub-buffers, as powers of two: 4 KiB to 4 MiB, in rings of 1 MiB as long as
/// that is possible.
const SIZES: [(u32, u32); 6] = [(12, 8), (14, 6), (16, 4), (18, 2), (20, 1), (22, 1)];
/// How many of these are in rings of the same size.
const SAME_RING: usize = 4;
/// Payloads, in bytes: a `u32`, and eight of them.
const PAYLOADS: [usize; 2] = [4, 32];
/// Payload of threads at once, and of what is stepped through.
const BYTES: usize = PAYLOADS[0];
/// Payload where switches are looked at: the longer the records, the more of them switch.
const SIZES_BYTES: usize = 256;
/// Threads for each CPU, where there are too many.
const OVERSUBSCRIBED: [usize; 2] = [2, 8];
/// Switches that are stepped through, and events around each.
#[cfg(target_arch = "x86_64")]
const STEPPED: (u32, u64) = (4, 20);

impl ReserveOptions {
    fn rounds(self) -> u32 {
        self.rounds.unwrap_or(if self.quick { 1 } else { ROUNDS }).max(1)
    }

    const fn batches(self) -> u32 {
        if self.quick { 5 } else { 40 }
    }

    /// Events that go round a ring, so that a figure does not depend on who ran before.
    fn warm_up(self, geometry: Geometry, body_bytes: usize) -> u64 {
        let round = geometry.ring_bytes() / (body_bytes as u64 + 4);
        if self.quick { round / 20 } else { round }
    }

    const fn duration_ms(self) -> u32 {
        if self.quick { 20 } else { 150 }
    }

    const fn timed_events(self) -> u64 {
        if self.quick { 4_000 } else { 20_000 }
    }

    const fn plan(self) -> Plan {
        Plan { warm_up: if self.quick { 1 } else { 20 }, batches: if self.quick { 5 } else { 60 } }
    }

    /// Numbers of threads: powers of two up to what is asked for, and too many.
    fn threads(self, cpus: usize) -> Vec<usize> {
        let most = self.threads.unwrap_or(cpus);
        let mut counts: Vec<usize> = std::iter::successors(Some(1), |count| Some(count * 2))
            .take_while(|n| *n < most)
            .collect();
        counts.push(most);
        counts.extend(OVERSUBSCRIBED.map(|times| times * cpus));
        counts.retain(|count| *count <= staged::THREADS_MAX);
        counts.sort_unstable();
        counts.dedup();
        counts
    }
}

/// What is measured in rounds, and what is known of it so far.
struct Series<K> {
    way: Way,
    what: K,
    /// Figures, round by round.
    rounds: Vec<f64>,
    is_in: bool,
}

impl<K> Series<K> {
    fn new(way: Way, what: K) -> Self {
        Self { way, what, rounds: Vec::new(), is_in: true }
    }
}

/// What a series of one thread is of.
struct Alone {
    bytes: usize,
    clock: ClockKind,
    geometry: Geometry,
    runner: Runner,
}

/// What a series of threads at once is of.
#[derive(Default)]
struct Threads {
    count: usize,
    tally: Tally,
    millions_per_second: Vec<f64>,
}

/// What one of the code paths is of.
#[derive(Default)]
struct Paths {
    fast_ns: Vec<f64>,
    switch_ns: Vec<f64>,
    line_fast_ns: Vec<f64>,
    line_switch_ns: Vec<f64>,
}

/// A run of the lab.
struct Lab {
    options: ReserveOptions,
    cpus: Vec<usize>,
    ways: Vec<Way>,
    line: Line,
    place: Place,
    progress: Progress,
    notes: Vec<Note>,
    has_product: bool,
    alone: Vec<Series<Alone>>,
    sizes: Vec<Series<Alone>>,
    paths: Vec<Series<Paths>>,
    threads: Vec<Series<Threads>>,
    product: Vec<Series<(Payload, usize, Account)>>,
}

/// Measures what keeping writers apart costs on this machine.
///
/// What is not here is skipped with a note; what fails is noted and left out from then on. Catches
/// SIGINT, SIGTERM and SIGHUP: all that was started is ended and all that was made is removed
/// before it returns.
///
/// # Errors
///
/// [`Error::Interrupted`] if one of those signals came; others if nothing can be measured at all.
pub fn run_reserve(options: &ReserveOptions) -> std::result::Result<ReserveResults, Error> {
    signals::catch();
    let executable =
        std::env::current_exe().map_err(Error::io("cannot find our own executable"))?;
    let mut lab = Lab::new(*options, Place::new(Kit::of(executable))?)?;
    let machine = Machine::here();
    lab.set_up()?;
    for round in 1..=options.rounds() {
        lab.round(round)?;
    }
    let steps = lab.steps()?;
    let mut results = lab.results(machine, steps);
    results.bars = results.all_bars();
    Ok(results)
}

/// Does `work` on one CPU, and comes back to all of them.
pub(crate) fn on<T>(cpu: usize, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let failed = |error| Error::output("sched_getaffinity", error);
    let before = CpuSet::current().map_err(failed)?;
    loops::pin(cpu)?;
    let done = work();
    before.apply().map_err(failed)?;
    done
}

/// Keeps what was measured, or leaves the series out from now on.
fn keep<K, T>(
    done: Result<T>,
    series: &mut Series<K>,
    about: &str,
    notes: &mut Vec<Note>,
) -> Result<Option<T>> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(Error::Interrupted) => Err(Error::Interrupted),
        Err(error) => {
            series.is_in = false;
            notes.push(Note::failed(&format!("{}, {about}", series.way.name()), &error));
            Ok(None)
        }
    }
}

fn geometry((sub_shift, count_shift): (u32, u32)) -> Result<Geometry> {
    Geometry::new(sub_shift, count_shift)
        .map_err(|_| Error::output("the lab", "a buffer of a size that no buffer may have"))
}

impl Lab {
    fn new(options: ReserveOptions, place: Place) -> Result<Self> {
        let mut notes = Vec::new();
        let ways = Way::ALL.into_iter().filter(|way| match ways::missing(*way) {
            None => true,
            Some(reason) => {
                notes.push(Note::skipped(way.name(), reason));
                false
            }
        });
        let ways = ways.collect();
        let has_product = match product::missing(&place) {
            None => true,
            Some(reason) => {
                notes.push(Note::skipped("trackway record", &reason));
                false
            }
        };
        Ok(Self {
            options,
            cpus: allowed_cpus()?,
            ways,
            line: Line::calibrated(),
            place,
            progress: Progress::new(),
            notes,
            has_product,
            alone: Vec::new(),
            sizes: Vec::new(),
            paths: Vec::new(),
            threads: Vec::new(),
            product: Vec::new(),
        })
    }

    /// The CPU of what has one thread.
    fn cpu(&self) -> usize {
        self.cpus.first().copied().unwrap_or(0)
    }

    fn contender(&self, way: Way, clock: ClockKind, scale: Scale) -> Result<Contender> {
        match (way, clock) {
            (Way::LocklessUnfenced, _) => Contender::new(way, scale, Unfenced(self.line.again())),
            (_, ClockKind::Counter) => Contender::new(way, scale, self.line.again()),
            (_, ClockKind::Still) => Contender::new(way, scale, Still::new()),
        }
    }

    fn alone(
        &self,
        way: Way,
        shifts: (u32, u32),
        bytes: usize,
        clock: ClockKind,
    ) -> Result<Series<Alone>> {
        let geometry = geometry(shifts)?;
        let scale = Scale { geometry, cpus: self.cpu() + 1, threads: 1 };
        let runner = Runner::new(self.contender(way, clock, scale)?, bytes);
        Ok(Series::new(way, Alone { bytes, clock, geometry, runner }))
    }

    fn set_up(&mut self) -> Result<()> {
        self.progress.say("setting up");
        for clock in [ClockKind::Counter, ClockKind::Still] {
            for bytes in PAYLOADS {
                for &way in &self.ways {
                    if clock == ClockKind::Counter || way != Way::LocklessUnfenced {
                        let series = self.alone(way, SHIFTS, bytes, clock)?;
                        self.alone.push(series);
                    }
                }
            }
        }
        let in_use: Vec<Way> = Way::in_use().filter(|way| self.ways.contains(way)).collect();
        for shifts in SIZES {
            for &way in &in_use {
                let series = self.alone(way, shifts, SIZES_BYTES, ClockKind::Counter)?;
                self.sizes.push(series);
            }
        }
        self.paths = in_use.iter().map(|&way| Series::new(way, Paths::default())).collect();
        let threads = self.options.threads(self.cpus.len());
        for &count in &threads {
            let of = |&way: &Way| Series::new(way, Threads { count, ..Threads::default() });
            self.threads.extend(in_use.iter().map(of));
        }
        if self.has_product {
            product::set_up(&self.place)?;
            let (some, many) = (self.cpus.len(), *threads.last().unwrap_or(&1));
            let number = Payload::Number;
            for (payload, count) in
                [(number, 1), (Payload::Record, 1), (number, some), (number, many)]
            {
                // Where there are no sequences, the product claims, whatever it is asked for.
                let ways = product::WAYS.into_iter().filter(|way| in_use.contains(way));
                let of = |way| Series::new(way, (payload, count, Account::default()));
                self.product.extend(ways.map(of));
            }
        }
        Ok(())
    }

    fn say(&self, round: u32, what: &str, way: Way) -> Result<()> {
        if signals::stopped() {
            return Err(Error::Interrupted);
        }
        self.progress.say(&format!("round {round}: {what}: {}", way.name()));
        Ok(())
    }

    /// Everything, once. Ways take turns within what is asked, and another one begins each time.
    fn round(&mut self, round: u32) -> Result<()> {
        self.one_thread(round)?;
        self.code_paths(round)?;
        self.threads_at_once(round)?;
        self.products(round)
    }

    /// In which order the ways take turns.
    fn turns(round: u32, count: usize) -> impl Iterator<Item = usize> {
        (0..count).map(move |turn| (turn + round as usize) % count)
    }

    fn one_thread(&mut self, round: u32) -> Result<()> {
        let cpu = self.cpu();
        for part in [true, false] {
            let mut all = std::mem::take(if part { &mut self.alone } else { &mut self.sizes });
            for index in Self::turns(round, all.len()) {
                let series = &mut all[index];
                if !series.is_in {
                    continue;
                }
                self.say(round, "one thread", series.way)?;
                let Alone { bytes, geometry, ref mut runner, .. } = series.what;
                let (warm_up, batches) =
                    (self.options.warm_up(geometry, bytes), self.options.batches());
                let done = on(cpu, || runner.median_ns(warm_up, batches));
                let ns = keep(done, series, "one thread", &mut self.notes)?;
                series.rounds.push(ns.unwrap_or(f64::NAN));
            }
            *(if part { &mut self.alone } else { &mut self.sizes }) = all;
        }
        Ok(())
    }

    /// Fast path and switch: one by one, and by the line through the sizes.
    fn code_paths(&mut self, round: u32) -> Result<()> {
        let (cpu, events) = (self.cpu(), self.options.timed_events());
        let ticks_per_ns = self.line.ticks_per_ns();
        for index in 0..self.paths.len() {
            let way = self.paths[index].way;
            self.say(round, "code paths", way)?;
            let of_way = self.sizes.iter_mut().filter(|one| one.way == way);
            let mut of_way: Vec<&mut Series<Alone>> = of_way.take(SAME_RING).collect();
            let points: Vec<(f64, f64)> = of_way
                .iter()
                .map(|one| (one.what.runner.switches_per_event(), latest(one)))
                .collect();
            let Some(smallest) = of_way.first_mut().filter(|one| one.is_in) else { continue };
            let done = on(cpu, || smallest.what.runner.ticks_of_paths(events));
            let series = &mut self.paths[index];
            let ticks = keep(done, series, "one by one", &mut self.notes)?.flatten();
            if let Some(((fast, switch), rate)) = ticks.zip(ticks_per_ns) {
                series.what.fast_ns.push(fast / rate);
                series.what.switch_ns.push(switch / rate);
            }
            if let Some((fast, switch)) = line_through(&points) {
                series.what.line_fast_ns.push(fast);
                series.what.line_switch_ns.push(switch);
            }
        }
        Ok(())
    }

    fn threads_at_once(&mut self, round: u32) -> Result<()> {
        let cpus = self.cpus.last().map_or(1, |last| last + 1);
        let duration_ns = u64::from(self.options.duration_ms()) * 1_000_000;
        let mut all = std::mem::take(&mut self.threads);
        for index in Self::turns(round, all.len()) {
            let series = &mut all[index];
            if !series.is_in {
                continue;
            }
            let threads = series.what.count;
            self.say(round, &format!("{threads} threads"), series.way)?;
            let scale = Scale { geometry: geometry(SHIFTS)?, cpus, threads };
            let contender = self.contender(series.way, ClockKind::Counter, scale)?;
            let done = loops::at_once(&contender, (threads, &self.cpus), BYTES, duration_ns);
            if let Some(run) = keep(done, series, "threads at once", &mut self.notes)? {
                let recorded = run.tally.recorded as f64;
                series.rounds.push(run.cpu_ns as f64 / recorded);
                series.what.millions_per_second.push(recorded * 1e3 / run.ns as f64);
                series.what.tally.add(&run.tally);
            }
        }
        self.threads = all;
        Ok(())
    }

    fn products(&mut self, round: u32) -> Result<()> {
        let mut all = std::mem::take(&mut self.product);
        for index in Self::turns(round, all.len()) {
            let series = &mut all[index];
            if !series.is_in {
                continue;
            }
            let (payload, threads, _) = series.what;
            self.say(round, "trackway record", series.way)?;
            let done = match threads {
                1 => product::alone(&self.place, series.way, payload, &self.options.plan()),
                threads => {
                    let milliseconds = self.options.duration_ms() + 100;
                    product::at_once(&self.place, series.way, threads, milliseconds)
                }
            };
            if let Some(run) = keep(done, series, "trackway record", &mut self.notes)? {
                series.rounds.push(run.ns);
                series.what.2.add(&run.account);
                if !run.account.is_complete() {
                    series.is_in = false;
                    let text = format!("events do not add up: {}", run.account.words());
                    let about = format!("{}, trackway record", series.way.name());
                    self.notes.push(Note { about, text, is_failure: true });
                }
            }
        }
        self.product = all;
        Ok(())
    }

    #[cfg(target_arch = "x86_64")]
    fn steps(&mut self) -> Result<Vec<StepsOnPath>> {
        let mut found = Vec::new();
        for way in self.ways.clone() {
            self.say(0, "stepping", way)?;
            match on(self.cpu(), || stepping::step_way(self.cpu(), way, STEPPED)) {
                Ok(Some(events)) => found.extend(stepping::on_paths(way, &events)),
                Ok(None) => {
                    self.notes.push(Note::skipped("stepping", "ptrace is not allowed here"));
                    break;
                }
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) => {
                    let about = format!("{}, stepping", way.name());
                    self.notes.push(Note::failed(&about, &error));
                }
            }
        }
        Ok(found)
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn steps(&mut self) -> Result<Vec<StepsOnPath>> {
        let reason = "instructions are told apart on x86-64 only";
        self.notes.push(Note::skipped("stepping", reason));
        Ok(Vec::new())
    }

    fn results(self, machine: Machine, steps: Vec<StepsOnPath>) -> ReserveResults {
        let events = self.alone.iter().filter_map(|one| event_cost(one, &self.alone));
        let threads = self.threads.iter().filter(|one| one.is_in).filter_map(|one| {
            Some(ThreadsCost {
                way: one.way,
                threads: one.what.count,
                ns: Spread::of(&one.rounds)?,
                millions_per_second: Spread::of(&one.what.millions_per_second)?,
                tally: one.what.tally,
            })
        });
        let sizes = self.sizes.iter().filter(|one| one.is_in).filter_map(|one| {
            let geometry = one.what.geometry;
            Some(SizeCost {
                way: one.way,
                sub_bytes: geometry.sub_bytes(),
                sub_count: geometry.sub_count(),
                ns: Spread::of(&one.rounds)?,
                tally: one.what.runner.tally(),
            })
        });
        let paths = self.paths.iter().filter(|one| one.is_in).filter_map(|one| {
            let paths = &one.what;
            Some(PathCost {
                way: one.way,
                fast_ns: Spread::of(&paths.fast_ns),
                switch_ns: Spread::of(&paths.switch_ns),
                line_fast_ns: Spread::of(&paths.line_fast_ns)?,
                line_switch_ns: Spread::of(&paths.line_switch_ns)?,
            })
        });
        let product = self.product.iter().filter(|one| one.is_in).filter_map(|one| {
            let (payload, threads, account) = one.what;
            let ns = Spread::of(&one.rounds)?;
            Some(ProductCost { way: one.way, payload, threads, ns, account })
        });
        ReserveResults {
            format: FORMAT,
            machine,
            rounds: self.options.rounds(),
            ticks_per_ns: self.line.ticks_per_ns(),
            events: events.collect(),
            threads: threads.collect(),
            sizes: sizes.collect(),
            paths: paths.collect(),
            steps,
            product: product.collect(),
            bars: Vec::new(),
            notes: self.notes,
        }
    }
}

/// The figure of the latest round.
fn latest(series: &Series<Alone>) -> f64 {
    series.rounds.last().copied().unwrap_or(f64::NAN)
}

/// One way's figures, in ns and in terms of the floor of the same round.
fn event_cost(one: &Series<Alone>, all: &[Series<Alone>]) -> Option<EventCost> {
    let Alone { bytes, clock, ref runner, .. } = one.what;
    let floor = all.iter().find(|other| {
        other.way == Way::Nothing && (other.what.bytes, other.what.clock) == (bytes, clock)
    })?;
    let times: Vec<f64> =
        one.rounds.iter().zip(&floor.rounds).map(|(ours, floor)| ours / floor).collect();
    let cost = EventCost {
        way: one.way,
        payload_bytes: bytes,
        clock,
        ns: Spread::of(&one.rounds)?,
        times: Spread::of(&times)?,
        tally: runner.tally(),
    };
    one.is_in.then_some(cost)
}

/// The straight line nearest to points, by least squares: where it begins, and how steep it is.
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
mod tests {
    use super::*;

    #[test]
    fn threads_are_doubled_until_there_are_enough_and_then_too_many() {
        let threads =
            |threads, cpus| ReserveOptions { threads, ..ReserveOptions::default() }.threads(cpus);
        assert_eq!(threads(None, 2), [1, 2, 4, 16]);
        assert_eq!(threads(None, 1), [1, 2, 8]);
        assert_eq!(threads(Some(16), 16), [1, 2, 4, 8, 16, 32, 128]);
        assert_eq!(threads(Some(6), 16), [1, 2, 4, 6, 32, 128]);
        assert_eq!(threads(None, 512), [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]);
    }

    #[test]
    fn the_line_through_points_is_the_nearest() {
        let (start, slope) = line_through(&[(0.0, 20.0), (0.5, 60.0), (1.0, 100.0)]).expect("one");
        assert!((start - 20.0).abs() < 1e-9 && (slope - 80.0).abs() < 1e-9);
        assert_eq!(line_through(&[(0.5, 1.0)]), None);
        assert_eq!(line_through(&[(0.5, 1.0), (0.5, 2.0)]), None);
        assert_eq!(line_through(&[(0.5, f64::NAN), (1.0, 2.0)]), None);
    }
}
