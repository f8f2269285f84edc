//! The cases of Letaief's thesis: what a routine takes that is bare, traced, beside an event that
//! is not hit, and instrumented while nobody traces; each time by itself, and all of them kept.
//!
//! Main invariant: nothing but the routine is between two readings of the processor's counter, and
//! it is the same loop, compiled with the same flags, in every case.

use super::programs::{Linked, Programs, Storage, Under};
use crate::child;
use crate::error::{Error, Result};
use crate::results::Account;
use crate::rows::Unit;
use crate::stats::merged;
use crate::suite::{About, Entry, Hall, Sample, Settings, Suite};
use crate::tracers::name;
use crate::workload::numbers;

/// Its name.
const NAME: &str = "cases";
/// Events between two pauses, so that who drains to disk keeps up: a buffer has room for twenty
/// times as many.
const BURST: u64 = 10_000;
/// How long a pause is, in µs.
const PAUSE_US: u64 = 2_000;
/// Bursts of a turn.
const BURSTS: u64 = 30;
const BURSTS_QUICK: u64 = 5;
/// Part of a turn's times, the least ones, of which a round's figure is the average. The rest are
/// interruptions, most of them; all are in the histogram.
const COUNTED: f64 = 0.99;
/// Each ns has a bucket up to here, and above it there are so many for each doubling.
const EXACT_NS: f64 = 128.0;
const STEPS: f64 = 32.0;

/// A case, as the thesis has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    /// 0: nothing is instrumented, and no tracer is there.
    Bare,
    /// 1: an event, recorded to disk.
    Active,
    /// 2: the program has an event elsewhere, which is recorded; none in the loop.
    NotHit,
    /// 3: an event in the loop, and the library, but no session.
    Off,
}

impl Case {
    const fn words(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Active => "active",
            Self::NotHit => "attached, not hit",
            Self::Off => "instrumented, off",
        }
    }
}

/// A tracer in a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Turn {
    tracer: &'static str,
    linked: Linked,
    case: Case,
    /// Name of the work in the program.
    work: &'static str,
    is_claim: bool,
}

impl Turn {
    const fn new(tracer: &'static str, linked: Linked, case: Case, work: &'static str) -> Self {
        Self { tracer, linked, case, work, is_claim: false }
    }

    const fn under(self) -> Under {
        let storage = match self.case {
            Case::Bare | Case::Off => Storage::Off,
            Case::Active | Case::NotHit => Storage::File,
        };
        Under { linked: self.linked, storage, is_claim: self.is_claim }
    }

    const fn program(self) -> &'static str {
        match self.linked {
            Linked::Nothing => "cases-bare",
            Linked::Trackway => "cases-trackway",
            Linked::Lttng => "cases-lttng",
        }
    }
}

/// All of them, in the order of their rows.
fn turns() -> Vec<Turn> {
    let (ours, theirs) = (Linked::Trackway, Linked::Lttng);
    let mut turns = vec![Turn::new("none", Linked::Nothing, Case::Bare, "bare")];
    for (tracer, linked) in [(name::TRACKWAY, ours), (name::LTTNG, theirs)] {
        turns.push(Turn::new(tracer, linked, Case::Active, "event"));
        turns.push(Turn::new(tracer, linked, Case::NotHit, "not-hit"));
        turns.push(Turn::new(tracer, linked, Case::Off, "event"));
    }
    let claim = Turn::new(name::TRACKWAY_CLAIM, ours, Case::Active, "event");
    turns.push(Turn { is_claim: true, ..claim });
    // The thesis's own event: a formatted message.
    for (tracer, linked) in [("trackway-printf", ours), ("lttng-ust-tracef", theirs)] {
        turns.push(Turn::new(tracer, linked, Case::Active, "message"));
        turns.push(Turn::new(tracer, linked, Case::Off, "message"));
    }
    turns
}

/// The suite.
#[derive(Debug, Default)]
pub(crate) struct Cases {
    programs: Programs,
    rows: Vec<Turn>,
}

impl Cases {
    /// Compiles what a turn needs: an entry that says why it cannot be had, if it cannot.
    fn set_up(&mut self, hall: &Hall<'_>, turn: Turn) -> Result<Entry> {
        hall.progress.say(&format!("setting up {}", turn.tracer));
        if let Some(reason) = Programs::missing(hall.place, turn.linked) {
            return Ok(Entry { absent: Some(reason), ..Entry::default() });
        }
        match self.programs.set_up(hall.place, turn.linked, turn.program()) {
            Ok(_) => Ok(Entry::default()),
            Err(Error::Interrupted) => Err(Error::Interrupted),
            Err(error) => Ok(Entry { failed: Some(error.to_string()), ..Entry::default() }),
        }
    }
}

impl Suite for Cases {
    fn about(&self) -> About {
        About {
            name: NAME,
            title: "What a routine takes: bare, traced, not hit, off",
            repeats: "thesis, Table 3.1, Figures 3.1 and 3.2",
            unit: Unit::Ns,
            x_axis: "",
        }
    }

    fn seconds(&self, settings: &Settings) -> f64 {
        if settings.quick { 7.0 } else { 90.0 }
    }

    fn tracers(&self) -> Vec<&'static str> {
        turns().iter().map(|turn| turn.tracer).collect()
    }

    fn enter(&mut self, hall: &Hall<'_>) -> Result<Vec<Entry>> {
        let is_wanted = |turn: &Turn| turn.case == Case::Bare || hall.settings.wants(turn.tracer);
        let mut entries = Vec::new();
        for turn in turns().into_iter().filter(is_wanted) {
            entries.push(Entry {
                tracer: turn.tracer.to_owned(),
                case: turn.case.words().to_owned(),
                records: turn.under().storage != Storage::Off,
                beside: (turn.case != Case::Bare).then_some(0),
                command: format!("trackway bench {NAME} --tracers {}", turn.tracer),
                ..self.set_up(hall, turn)?
            });
            self.rows.push(turn);
        }
        if let Some(bare) = entries.first().cloned() {
            let tracer = format!("{} again", bare.tracer);
            entries.push(Entry { tracer, beside: Some(0), is_control: true, ..bare });
            self.rows.push(self.rows[0]);
        }
        Ok(entries)
    }

    fn sample(&mut self, hall: &Hall<'_>, row: usize) -> Result<Sample> {
        let turn = self.rows[row];
        let bursts = if hall.settings.quick { BURSTS_QUICK } else { BURSTS };
        let program = hall.place.path(turn.program()).display().to_string();
        let numbers = [bursts, BURST, PAUSE_US].map(|number| number.to_string());
        let [bursts, burst, pause] = &numbers;
        let words = [program.as_str(), turn.work, bursts, burst, pause];
        let mut command = self.programs.begin(hall.place, turn.under(), &words)?;
        let finished = child::run(&mut command, turn.tracer)?;
        let timed = Timed::parse(&finished.stdout)?;
        let account: Option<Account> =
            self.programs.end(hall.place, turn.under(), &finished.stderr, timed.emitted)?;
        let extra =
            vec![("greatest, ns", timed.greatest_ns), ("counter's step, ns", timed.step_ns)];
        Ok(Sample {
            figure: timed.figure_ns,
            histogram: timed.histogram,
            account,
            extra,
            ..Sample::default()
        })
    }

    fn leave(&mut self) {
        *self = Self::default();
    }
}

/// What a program of these measured.
#[derive(Debug, Clone, PartialEq)]
struct Timed {
    /// Events that it emitted, whether they were timed or not.
    emitted: u64,
    /// Average of all times but the longest.
    figure_ns: f64,
    /// How often it took how long.
    histogram: Vec<(f64, u64)>,
    greatest_ns: f64,
    /// By how much two neighbouring times differ at least: what the counter goes on by.
    step_ns: f64,
}

impl Timed {
    fn parse(output: &str) -> Result<Self> {
        let mut lines = output.lines();
        let mut next = || lines.next().unwrap_or_default();
        let [emitted] = numbers(next(), "emitted")?;
        let [ticks, ns] = numbers(next(), "rate")?;
        let [greatest] = numbers(next(), "greatest")?;
        if ticks == 0 || ns == 0 {
            return Err(Error::output("workload", "its counter stands still"));
        }
        let in_ns = |of: u64| of as f64 * ns as f64 / ticks as f64;
        let buckets: Vec<(u64, u64)> = lines
            .map(|line| numbers(line, "bucket").map(|[least, count]| (least, count)))
            .collect::<Result<_>>()?;
        let times: Vec<(f64, u64)> =
            buckets.iter().map(|&(least, count)| (in_ns(least), count)).collect();
        let figure_ns = average_of_least(&times, COUNTED)
            .ok_or_else(|| Error::output("workload", "it has timed nothing"))?;
        let step = buckets.windows(2).map(|pair| pair[1].0.saturating_sub(pair[0].0)).min();
        let rounded: Vec<(f64, u64)> =
            times.iter().map(|&(ns, count)| (bucket_ns(ns), count)).collect();
        Ok(Self {
            emitted,
            figure_ns,
            histogram: merged(&rounded),
            greatest_ns: in_ns(greatest),
            step_ns: in_ns(step.unwrap_or_default()),
        })
    }
}

/// Average of this part of all times, the least ones; `None` if there is none.
fn average_of_least(times: &[(f64, u64)], part: f64) -> Option<f64> {
    let all: u64 = times.iter().map(|time| time.1).sum();
    let wanted = (all as f64 * part).ceil();
    let (mut sum, mut left) = (0.0, wanted);
    for &(ns, count) in times {
        let taken = left.min(count as f64);
        sum += ns * taken;
        left -= taken;
    }
    (wanted > 0.0).then(|| sum / wanted)
}

/// The figure that stands for all times near this one: the same in each round, so that histograms
/// of rounds add up.
fn bucket_ns(ns: f64) -> f64 {
    if ns < EXACT_NS {
        return ns.round();
    }
    let doubling = ns.log2().floor().exp2();
    let width = doubling / STEPS;
    doubling + ((ns - doubling) / width).floor() * width
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tracer_is_in_the_thesiss_cases() {
        let cases_of = |tracer: &str| {
            let turns = turns().into_iter().filter(move |turn| turn.tracer == tracer);
            turns.map(|turn| turn.case).collect::<Vec<Case>>()
        };
        for tracer in [name::TRACKWAY, name::LTTNG] {
            assert_eq!(cases_of(tracer), [Case::Active, Case::NotHit, Case::Off]);
        }
        assert_eq!(turns()[0].case, Case::Bare);
    }

    #[test]
    fn programs_have_the_works_that_are_asked_for() {
        for turn in turns() {
            let name = format!("{}.c", turn.program());
            let mut sources = crate::workload::SOURCES.iter();
            let source = sources.find(|source| source.name == name).expect("a source");
            assert!(source.text.contains(&format!("{{\"{}\",", turn.work)), "{turn:?}");
        }
    }

    #[test]
    fn times_are_read_and_no_outlier_is_dropped() {
        let output = "emitted 200\nrate 2000 1000\ngreatest 2000000\n\
                      bucket 40 50\nbucket 60 49\nbucket 2000000 1\n";
        let timed = Timed::parse(output).expect("times");
        assert_eq!(timed.histogram, [(20.0, 50), (30.0, 49), (999_424.0, 1)]);
        assert_eq!((timed.emitted, timed.greatest_ns, timed.step_ns), (200, 1e6, 10.0));
        let expected = (20.0 * 50.0 + 30.0 * 49.0) / 99.0;
        assert!((timed.figure_ns - expected).abs() < 1e-9, "{timed:?}");
        for broken in ["", "emitted 1\nrate 1 1\ngreatest 1\n", "emitted 1\nrate 0 1\ngreatest 1\n"]
        {
            assert!(Timed::parse(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn buckets_are_few_and_near() {
        let mut seen = std::collections::BTreeSet::new();
        let mut ns = 1.0_f64;
        while ns < 1e6 {
            let bucket = bucket_ns(ns);
            assert!((bucket - ns).abs() <= f64::max(0.5, ns / STEPS), "{ns} in {bucket}");
            assert_eq!(bucket_ns(bucket), bucket);
            seen.insert(bucket as u64);
            ns *= 1.001;
        }
        assert!(seen.len() < 600, "{}", seen.len());
    }
}
