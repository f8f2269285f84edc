//! The measuring: in each round all tracers, in an order that is drawn anew.

use std::collections::BTreeMap;

use super::results::{CallCost, Drain, KernelAccount, LoadCost, Traced};
use super::tracer::{BUFFER_KIB, Job, KernelEvents, KernelTracer, PROGRAM, Ran};
use super::{Bench, KernelOptions};
use crate::error::{Error, Result};
use crate::place::has;
use crate::results::Note;
use crate::shuffle::Shuffle;
use crate::stats::{Ratio, Spread};

/// Batches of a run, of which the first do not count.
const BATCHES: u64 = 150;
const WARM_UP: u64 = 25;
/// Calls of a batch: a fraction of a millisecond, so that most batches are not interrupted, even
/// where others compete for the CPUs.
const GETPPID_EVENTS: u64 = 1000;
const OPENAT_EVENTS: u64 = 200;
/// Lengths of names that openat(2) gets, as the workload has them.
pub(super) const NAME_BYTES: [u64; 6] = [0, 15, 31, 63, 127, 255];
/// Calls in a turn of the paced workload, of a millisecond: a million events a second.
const PACED_CALLS: u64 = 500;
const PACED_US: u64 = 1000;
/// Tracers that programs run under, and that drain.
const RECORDERS: [KernelTracer; 6] = [
    KernelTracer::Untraced,
    KernelTracer::UntracedAgain,
    KernelTracer::Trackway,
    KernelTracer::TrackwayTracefs,
    KernelTracer::FtraceRaw,
    KernelTracer::Perf,
];

/// The figure of each tracer in a round.
type Round<T> = BTreeMap<KernelTracer, T>;

/// Figures of a key, over the rounds that have one.
fn figures<T>(rounds: &[Round<T>], of: impl Fn(&Round<T>) -> Option<f64>) -> Vec<f64> {
    rounds.iter().filter_map(of).collect()
}

/// Medians of batches, by the bytes of names.
type Batches = BTreeMap<u64, f64>;

fn medians(ran: &Ran) -> Result<Batches> {
    let mut all: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for line in ran.stdout.lines().filter(|line| line.starts_with("batch ")) {
        let [bytes, number, events, ns] = crate::workload::numbers(line, "batch")?;
        if number >= WARM_UP && events > 0 {
            all.entry(bytes).or_default().push(ns as f64 / events as f64);
        }
    }
    let median = |(bytes, all): (u64, Vec<f64>)| Some((bytes, Spread::of(&all)?.median));
    let medians: Batches = all.into_iter().filter_map(median).collect();
    if medians.is_empty() { Err(Error::output("workload", "no batches")) } else { Ok(medians) }
}

/// What became of the events of a run, where the tracer's own output shows them.
fn account(tracer: KernelTracer, ran: &Ran, emitted: u64) -> Result<Traced> {
    let found = ran.found.unwrap_or_default();
    // Where calls cannot be told apart, others' are among them.
    let recorded = found.of_call.unwrap_or(found.events).min(emitted);
    let each = |bytes: u64| bytes as f64 / found.events.max(1) as f64;
    let traced = Traced {
        emitted,
        recorded,
        lost: found.lost,
        bytes_per_event: (found.bytes > 0).then(|| each(found.bytes)),
        lttng_bytes_per_event: found.lttng_bytes.map(each),
    };
    if traced.is_complete() {
        return Ok(traced);
    }
    let message = format!(
        "of {emitted} events its output has {recorded}, and says that {} are lost",
        found.lost
    );
    Err(Error::output(tracer.name(), message))
}

impl Traced {
    fn add(&mut self, other: &Self) {
        self.emitted += other.emitted;
        self.recorded += other.recorded;
        self.lost += other.lost;
        // Of the last round: they differ by what else the machine did.
        self.bytes_per_event = other.bytes_per_event;
        self.lttng_bytes_per_event = other.lttng_bytes_per_event;
    }
}

impl Bench<'_> {
    /// System calls under all tracers.
    pub(super) fn calls(
        &mut self,
        options: &KernelOptions,
    ) -> Result<(Vec<CallCost>, Vec<KernelAccount>)> {
        let (mut costs, mut accounts) = (Vec::new(), Vec::new());
        for (call, lengths) in [("getppid", &[0][..]), ("openat", &NAME_BYTES[..])] {
            let mut rounds: Vec<Round<Batches>> = Vec::new();
            let mut traced: Round<Traced> = Round::new();
            let mut shuffle = Shuffle::new();
            for number in 1..=options.rounds() {
                let mut order = self.here(&KernelTracer::ALL);
                shuffle.order(&mut order);
                let mut round = Round::new();
                for tracer in order {
                    self.progress.say(&format!("round {number}: {call}, {}", tracer.name()));
                    if let Some((batches, account)) = self.call(options, tracer, call, lengths)? {
                        round.insert(tracer, batches);
                        if let Some(account) = account {
                            traced.entry(tracer).or_default().add(&account);
                        }
                    }
                }
                rounds.push(round);
            }
            for &bytes in lengths {
                let name_bytes = (call == "openat").then_some(bytes);
                let all = KernelTracer::ALL.into_iter();
                costs.extend(all.filter_map(|tracer| call_cost(&rounds, tracer, call, name_bytes)));
            }
            let call = call.to_owned();
            let account = |(tracer, traced)| KernelAccount { tracer, call: call.clone(), traced };
            accounts.extend(traced.into_iter().map(account));
        }
        Ok((costs, accounts))
    }

    /// One run of calls, and what became of their events.
    fn call(
        &mut self,
        options: &KernelOptions,
        tracer: KernelTracer,
        call: &str,
        lengths: &[u64],
    ) -> Result<Option<(Batches, Option<Traced>)>> {
        let events = if call == "getppid" { GETPPID_EVENTS } else { OPENAT_EVENTS };
        let less = tracer.patience() * if options.quick { 5 } else { 1 };
        let events = (events / less).max(10);
        let arguments = [call.to_owned(), BATCHES.to_string(), events.to_string()];
        let job = Job {
            place: self.place,
            events: KernelEvents::Calls,
            arguments: &arguments,
            is_load: false,
        };
        let Some(ran) = self.attempt(tracer, &job, call)? else { return Ok(None) };
        let batches = medians(&ran)?;
        if tracer.is_untraced() {
            return Ok(Some((batches, None)));
        }
        let emitted = 2 * BATCHES * events * lengths.len() as u64;
        match account(tracer, &ran, emitted) {
            Ok(account) => Ok(Some((batches, Some(account)))),
            Err(error) => {
                self.fail(tracer, &error);
                Ok(None)
            }
        }
    }

    /// Whole programs under tracers that record.
    pub(super) fn loads(&mut self, options: &KernelOptions) -> Result<Vec<LoadCost>> {
        let mut costs = Vec::new();
        for command in commands(options.quick) {
            if !has(&command[0]) {
                self.notes.push(Note::skipped(
                    &command[0],
                    "it is not installed (Debian has hackbench in rt-tests, and stress-ng)",
                ));
                continue;
            }
            for events in [KernelEvents::Sched, KernelEvents::Everything] {
                costs.extend(self.load(options, &command, events)?);
            }
        }
        Ok(costs)
    }

    fn load(
        &mut self,
        options: &KernelOptions,
        command: &[String],
        events: KernelEvents,
    ) -> Result<Vec<LoadCost>> {
        let mut rounds: Vec<Round<Load>> = Vec::new();
        let mut shuffle = Shuffle::new();
        // To detach takes long: a third of the rounds.
        let count = options.rounds.unwrap_or(options.rounds().div_ceil(3));
        for number in 1..=count {
            let mut order = self.here(&RECORDERS);
            shuffle.order(&mut order);
            let mut round = Round::new();
            for tracer in order {
                let words = [&command[0], events.name(), tracer.name()].join(", ");
                self.progress.say(&format!("round {number}: {words}"));
                let job = Job { place: self.place, events, arguments: command, is_load: true };
                if let Some(ran) = self.attempt(tracer, &job, "")? {
                    round.insert(tracer, Load::of(&ran)?);
                }
            }
            rounds.push(round);
        }
        let command = command.join(" ");
        let of = |tracer| load_cost(&rounds, tracer, events, &command);
        Ok(RECORDERS.into_iter().filter_map(of).collect())
    }

    /// Recorders at a million events a second, and at what there is.
    pub(super) fn drains(&mut self, options: &KernelOptions) -> Result<Vec<Drain>> {
        let seconds = if options.quick { 1 } else { 5 };
        let text = |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<_>>();
        let bursts = seconds * 1_000_000 / PACED_US;
        let paced = [vec!["paced".into()], text(&[bursts, PACED_CALLS, PACED_US])].concat();
        let cpus = std::thread::available_parallelism().map_or(1, usize::from) as u64;
        let flat_out = [vec!["for".into()], text(&[cpus, seconds * 1000])].concat();
        let rate = (2 * PACED_CALLS * 1_000_000 / PACED_US) as f64;
        let mut drains = Vec::new();
        for (arguments, asked) in [(paced, Some(rate)), (flat_out, None)] {
            let mut tracers = self.here(&RECORDERS);
            tracers.retain(|tracer| !tracer.is_untraced());
            for tracer in tracers {
                self.progress.say(&format!("draining: {}", tracer.name()));
                drains.extend(self.drain(tracer, &arguments, asked)?);
            }
        }
        Ok(drains)
    }

    fn drain(
        &mut self,
        tracer: KernelTracer,
        arguments: &[String],
        asked: Option<f64>,
    ) -> Result<Option<Drain>> {
        let program = self.place.path(PROGRAM).display().to_string();
        let arguments = [&[program], arguments].concat();
        let events = KernelEvents::OneCall;
        let job = Job { place: self.place, events, arguments: &arguments, is_load: true };
        let Some(ran) = self.attempt(tracer, &job, "getppid")? else { return Ok(None) };
        let lines: Vec<&str> =
            ran.stdout.lines().filter(|line| line.starts_with("emitted ")).collect();
        let threads = crate::workload::emitted(&lines.join("\n"))?;
        let emitted = 2 * threads.iter().map(|thread| thread.events).sum::<u64>();
        let longest_ns = threads.iter().map(|thread| thread.ns).max().unwrap_or(0);
        let seconds = longest_ns as f64 / 1e9;
        let load = Load::of(&ran)?;
        let found = match account(tracer, &ran, emitted) {
            Ok(found) => found,
            Err(error) => {
                self.fail(tracer, &error);
                return Ok(None);
            }
        };
        Ok(Some(Drain {
            tracer,
            asked,
            emitted_per_second: emitted as f64 / seconds,
            recorded_per_second: found.recorded as f64 / seconds,
            emitted,
            lost: found.lost,
            recorder_percent: load.tracers_ns / load.ns * 100.0,
            buffer_bytes: BUFFER_KIB << 10,
        }))
    }
}

/// What a run of a whole program took.
struct Load {
    ns: f64,
    tracers_ns: f64,
    recorded: u64,
    lost: u64,
}

impl Load {
    fn of(ran: &Ran) -> Result<Self> {
        let [ns, _, tracers_ns] = ran.numbers("load")?;
        let found = ran.found.unwrap_or_default();
        let (ns, tracers_ns) = (ns.max(1) as f64, tracers_ns as f64);
        Ok(Self { ns, tracers_ns, recorded: found.events, lost: found.lost })
    }
}

/// The slides' programs: much scheduling, and much computing.
fn commands(quick: bool) -> Vec<Vec<String>> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let loops = if quick { 50 } else { 500 };
    let ops = cpus * if quick { 100 } else { 1000 };
    let words = |text: String| text.split(' ').map(str::to_owned).collect();
    vec![
        words(format!("hackbench -g {cpus} -l {loops}")),
        words(format!("stress-ng -q --cpu {cpus} --cpu-method ackermann --cpu-ops {ops}")),
    ]
}

fn call_cost(
    rounds: &[Round<Batches>],
    tracer: KernelTracer,
    call: &str,
    name_bytes: Option<u64>,
) -> Option<CallCost> {
    let key = name_bytes.unwrap_or(0);
    let ns = |round: &Round<Batches>, of: KernelTracer| round.get(&of)?.get(&key).copied();
    let added = |round: &Round<Batches>, of: KernelTracer| {
        Some(ns(round, of)? - ns(round, KernelTracer::Untraced)?)
    };
    let of_ftrace = |round: &Round<Batches>| {
        let theirs = added(round, KernelTracer::FtraceRaw).filter(|ns| *ns > 0.0)?;
        Some(added(round, tracer)? / theirs)
    };
    let is_untraced = tracer == KernelTracer::Untraced;
    let added = figures(rounds, |round| added(round, tracer).filter(|_| !is_untraced));
    let ratios = figures(rounds, |round| of_ftrace(round).filter(|_| !tracer.is_untraced()));
    Some(CallCost {
        tracer,
        call: call.to_owned(),
        name_bytes,
        unit: "ns".to_owned(),
        ns: Spread::of(&figures(rounds, |round| ns(round, tracer)))?,
        added_ns: Spread::of(&added),
        of_ftrace: Ratio::of(&ratios),
    })
}

fn load_cost(
    rounds: &[Round<Load>],
    tracer: KernelTracer,
    events: KernelEvents,
    command: &str,
) -> Option<LoadCost> {
    let get = |round: &Round<Load>| round.get(&tracer).map(|load| load.ns);
    let times = figures(rounds, |round| {
        let plain = round.get(&KernelTracer::Untraced)?;
        (tracer != KernelTracer::Untraced).then_some(get(round)? / plain.ns)
    });
    let mine = || rounds.iter().filter_map(|round| round.get(&tracer));
    let percent: Vec<f64> = mine().map(|load| load.tracers_ns / load.ns * 100.0).collect();
    Some(LoadCost {
        tracer,
        events,
        command: command.to_owned(),
        ms: Spread::of(&figures(rounds, |round| get(round).map(|ns| ns / 1e6)))?,
        times: Ratio::of(&times),
        recorded: mine().map(|load| load.recorded).sum(),
        lost: mine().map(|load| load.lost).sum(),
        recorder_percent: Spread::of(&percent).filter(|_| !tracer.is_untraced()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::tracer::Found;

    #[test]
    fn ratios_are_of_the_same_round() {
        let round = |plain: f64, ours: f64, theirs: f64| {
            let figures = [
                (KernelTracer::Untraced, plain),
                (KernelTracer::Trackway, ours),
                (KernelTracer::FtraceRaw, theirs),
            ];
            figures.map(|(tracer, ns)| (tracer, Batches::from([(0, ns)]))).into()
        };
        // A machine that is three times as slow in the second round.
        let rounds = [round(100.0, 200.0, 300.0), round(300.0, 600.0, 900.0)];
        let cost = call_cost(&rounds, KernelTracer::Trackway, "getppid", None).expect("a cost");
        assert_eq!(cost.of_ftrace.expect("a ratio").median, 0.5);
        assert_eq!(cost.added_ns.expect("a cost").median, 200.0);
        let plain = call_cost(&rounds, KernelTracer::Untraced, "getppid", None).expect("a cost");
        assert_eq!((plain.added_ns, plain.of_ftrace), (None, None));
        assert!(call_cost(&rounds, KernelTracer::Perf, "getppid", None).is_none());
    }

    #[test]
    fn a_tracer_that_was_off_is_not_measured() {
        let ran = |found: Found| Ran { stdout: String::new(), found: Some(found) };
        let off = ran(Found::default());
        let error = account(KernelTracer::Perf, &off, 1000).unwrap_err().to_string();
        assert!(error.contains("of 1000 events its output has 0"), "{error}");
        // What is lost is said; what is neither there nor said is a failure.
        let some = Found { events: 900, lost: 99, bytes: 9000, ..Found::default() };
        assert!(account(KernelTracer::Perf, &ran(some), 1000).is_err());
        let some = Found { lost: 100, ..some };
        let traced = account(KernelTracer::Perf, &ran(some), 1000).expect("complete");
        assert_eq!((traced.recorded, traced.bytes_per_event), (900, Some(10.0)));
        let others = Found { of_call: Some(10), ..some };
        assert!(account(KernelTracer::Perf, &ran(others), 1000).is_err());
    }
}
