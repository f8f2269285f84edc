//! Suites of events that programs emit, one after another, in a loop: each tracer's program does a
//! case, and the figure is the median of its batches.

use crate::case::{Case, Plan};
use crate::error::{Error, Result};
use crate::results::Account;
use crate::rows::Unit;
use crate::stats::Spread;
use crate::suite::{About, Entry, Hall, Sample, Settings, Suite};
use crate::tracer::{Availability, Tracer};
use crate::tracers::{self, name};
use crate::workload::Batch;

/// Starts of a program in a turn.
const STARTS: u32 = 25;
const STARTS_QUICK: u32 = 5;
/// How long programs emit at full speed, in ms.
const FLOW_MS: u32 = 2000;
const FLOW_MS_QUICK: u32 = 300;

/// What else is known of starts: threads in the program.
pub(crate) const THREADS: &str = "threads";

/// What a turn of a tracer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// Batches of a case: ns of an event.
    Batches(Case),
    /// Starts of its program: µs.
    Starts,
    /// Two threads at full speed, to a file: events a second that arrive.
    Flow,
}

impl Turn {
    fn words(self) -> String {
        match self {
            Self::Batches(case) => case.words(),
            Self::Starts => "spawn, run, wait".to_owned(),
            Self::Flow => "two threads at full speed, to a file".to_owned(),
        }
    }
}

/// A row: which tracer does what.
#[derive(Debug, Clone, Copy)]
struct Place {
    tracer: usize,
    turn: Turn,
}

/// A suite of them.
pub(crate) struct Events {
    about: About,
    /// Seconds that a full run takes about.
    seconds: f64,
    /// What there is to do on so many CPUs.
    turns: fn(usize) -> Vec<Turn>,
    /// Whether the suite means anything for the tracer of this name.
    takes: fn(&str) -> bool,
    /// The tracer that others are told in terms of.
    beside: &'static str,
    tracers: Vec<Box<dyn Tracer>>,
    rows: Vec<Place>,
}

impl Events {
    fn new(about: About, seconds: f64, turns: fn(usize) -> Vec<Turn>) -> Self {
        let (tracers, rows) = (Vec::new(), Vec::new());
        let beside = name::TRACKWAY;
        Self { about, seconds, turns, takes: |_| true, beside, tracers, rows }
    }

    /// What an event costs.
    pub(crate) fn tracepoint() -> Self {
        let about = About {
            name: "tracepoint",
            title: "What an event costs",
            repeats: "survey, Tables IV and VI",
            unit: Unit::NsPerEvent,
            x_axis: "",
        };
        Self::new(about, 120.0, |_| {
            let mut cases = Case::columns(1);
            cases.extend(Case::APART);
            cases.into_iter().map(Turn::Batches).collect()
        })
    }

    /// What it costs where others emit at the same time.
    pub(crate) fn scaling() -> Self {
        let about = About {
            name: "scaling",
            title: "What an event costs in each of several threads",
            repeats: "survey, Figures 5, 6 and 8",
            unit: Unit::NsPerEvent,
            x_axis: "threads",
        };
        let mut suite = Self::new(about, 60.0, |cpus| {
            // Up to four threads for each CPU: what happens to who is preempted within an event.
            let most = 4 * cpus.max(1) as u32;
            let doubled = std::iter::successors(Some(1_u32), |threads| Some(threads * 2));
            let threads = doubled.take_while(|&threads| threads <= most);
            threads.map(|threads| Turn::Batches(Case::SIMPLEST.with_threads(threads))).collect()
        });
        suite.takes = |name| !name.ends_with("-off") && name != name::EMPTY;
        suite
    }

    /// What a program's start costs.
    pub(crate) fn startup() -> Self {
        let about = About {
            name: "startup",
            title: "Start of a program that is linked with a tracer",
            repeats: "design, bars",
            unit: Unit::Us,
            x_axis: "",
        };
        let mut suite = Self::new(about, 30.0, |_| vec![Turn::Starts]);
        suite.beside = name::EMPTY;
        suite
    }

    /// How much arrives on disk.
    pub(crate) fn drain() -> Self {
        let about = About {
            name: "drain",
            title: "Events a second that arrive on disk",
            repeats: "2012 paper, 6.2; design, bars",
            unit: Unit::EventsPerSecond,
            x_axis: "",
        };
        Self::new(about, 60.0, |_| vec![Turn::Flow])
    }

    fn plan(settings: &Settings) -> Plan {
        Plan { warm_up: 20, batches: if settings.quick { 20 } else { 120 } }
    }

    /// Rows of a tracer: those of its cases that mean something.
    fn rows_of(&self, tracer: usize, hall: &Hall<'_>) -> Vec<Place> {
        let supports = |turn: &Turn| match turn {
            Turn::Batches(case) => self.tracers[tracer].supports(case),
            Turn::Starts => self.tracers[tracer].starts_programs(),
            Turn::Flow => self.tracers[tracer].streams(),
        };
        let turns = (self.turns)(hall.cpus).into_iter().filter(supports);
        turns.map(|turn| Place { tracer, turn }).collect()
    }

    /// Makes a tracer ready: an entry that says why it cannot be, if it cannot.
    fn set_up(&mut self, tracer: usize, hall: &Hall<'_>) -> Result<Entry> {
        let tracer = &mut self.tracers[tracer];
        if hall.settings.quick && hall.settings.tracers.is_empty() && tracer.is_slow_to_set_up() {
            let reason = "to build it takes longer than --quick has; --tracers names it";
            return Ok(Entry { absent: Some(reason.to_owned()), ..Entry::default() });
        }
        hall.progress.say(&format!("setting up {}", tracer.name()));
        match tracer.availability(hall.place) {
            Availability::Missing(reason) => Ok(Entry { absent: Some(reason), ..Entry::default() }),
            Availability::Ready => match tracer.set_up(hall.place) {
                Ok(()) => Ok(Entry::default()),
                Err(Error::Interrupted) => Err(Error::Interrupted),
                // It is here, and should have worked.
                Err(error) => Ok(Entry { failed: Some(error.to_string()), ..Entry::default() }),
            },
        }
    }

    fn entry(&self, place: Place, ready: &Entry) -> Entry {
        let tracer = &self.tracers[place.tracer];
        let name = tracer.name();
        let is_of_ours = name.starts_with("trackway") && !name.ends_with("-off");
        let records = (is_of_ours || name == name::LTTNG || tracers::is_external(name))
            && place.turn != Turn::Starts;
        Entry {
            tracer: name.to_owned(),
            case: place.turn.words(),
            x: match place.turn {
                Turn::Batches(case) if self.about.name == "scaling" => Some(case.threads.into()),
                _ => None,
            },
            absent: ready.absent.clone(),
            failed: ready.failed.clone(),
            records,
            command: format!("trackway bench {} --tracers {name}", self.about.name),
            ..Entry::default()
        }
    }

    fn run(&mut self, hall: &Hall<'_>, place: Place) -> Result<Sample> {
        let tracer = &mut self.tracers[place.tracer];
        let settings = hall.settings;
        match place.turn {
            Turn::Batches(case) => {
                let plan = Self::plan(settings);
                let batches = tracer.run(hall.place, &case, &plan)?;
                let account = tracer.read_back(hall.place)?;
                Ok(Sample { figure: median(&batches, &plan)?, account, ..Sample::default() })
            }
            Turn::Starts => {
                let count = if settings.quick { STARTS_QUICK } else { STARTS };
                let starts = tracer.starts(hall.place, count)?;
                // The fastest: a start that the machine interrupts takes several times as long.
                let starts = starts.ok_or_else(|| Error::output(tracer.name(), "no starts"))?;
                let fastest = Spread::of(&starts.us).map(|us| us.min);
                let figure = fastest.ok_or_else(|| Error::output(tracer.name(), "no starts"))?;
                let extra = vec![(THREADS, starts.threads as f64)];
                Ok(Sample { figure, extra, ..Sample::default() })
            }
            Turn::Flow => {
                let ms = if settings.quick { FLOW_MS_QUICK } else { FLOW_MS };
                let flow = tracer.stream(hall.place, ms)?;
                let flow = flow.ok_or_else(|| Error::output(tracer.name(), "no stream"))?;
                let account: Account = flow.account;
                let figure = account.recorded as f64 / flow.seconds;
                Ok(Sample { figure, account: Some(account), ..Sample::default() })
            }
        }
    }
}

/// ns of an event, of batches that count.
fn median(batches: &[Batch], plan: &Plan) -> Result<f64> {
    let counted = batches.iter().filter(|batch| batch.number >= plan.warm_up);
    let ns: Vec<f64> = counted.map(Batch::event_ns).collect();
    let spread = Spread::of(&ns).ok_or_else(|| Error::output("workload", "no batches"))?;
    Ok(spread.median)
}

impl Suite for Events {
    fn about(&self) -> About {
        self.about
    }

    fn seconds(&self, settings: &Settings) -> f64 {
        if settings.quick { self.seconds / 8.0 } else { self.seconds }
    }

    fn enter(&mut self, hall: &Hall<'_>) -> Result<Vec<Entry>> {
        let beside = self.beside;
        self.tracers = tracers::all();
        let takes = self.takes;
        self.tracers.retain(|tracer| {
            takes(tracer.name()) && (hall.settings.wants(tracer.name()) || tracer.name() == beside)
        });
        let mut entries = Vec::new();
        for tracer in 0..self.tracers.len() {
            let rows = self.rows_of(tracer, hall);
            if rows.is_empty() {
                continue;
            }
            let ready = self.set_up(tracer, hall)?;
            for place in rows {
                entries.push(self.entry(place, &ready));
                self.rows.push(place);
            }
        }
        self.add_control(&mut entries);
        tell_beside(&mut entries, self.beside);
        Ok(entries)
    }

    fn sample(&mut self, hall: &Hall<'_>, row: usize) -> Result<Sample> {
        self.run(hall, self.rows[row])
    }

    fn leave(&mut self) {
        for tracer in &mut self.tracers {
            tracer.tear_down();
        }
        self.tracers.clear();
        self.rows.clear();
    }
}

impl Events {
    /// The first row of the tracer that others are told in terms of, a second time.
    fn add_control(&mut self, entries: &mut Vec<Entry>) {
        let first = entries.iter().position(|entry| entry.tracer == self.beside);
        let Some(first) = first.filter(|&first| entries[first].can_be_measured()) else { return };
        let control = Entry { is_control: true, beside: Some(first), ..entries[first].clone() };
        let tracer = format!("{} again", control.tracer);
        entries.push(Entry { tracer, ..control });
        self.rows.push(self.rows[first]);
    }
}

/// Each row beside the one of the tracer `name` in the same case, unless it is that.
fn tell_beside(entries: &mut [Entry], name: &str) {
    let others: Vec<Option<usize>> = entries
        .iter()
        .map(|entry| {
            let is_it = |other: &Entry| {
                other.tracer == name && other.case == entry.case && other.can_be_measured()
            };
            entries.iter().position(is_it).filter(|_| entry.tracer != name)
        })
        .collect();
    for (entry, other) in entries.iter_mut().zip(others) {
        entry.beside = entry.beside.or(other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_double_up_to_four_for_each_cpu() {
        let turns = (Events::scaling().turns)(2);
        let threads: Vec<u32> = turns
            .iter()
            .map(|turn| match turn {
                Turn::Batches(case) => case.threads,
                Turn::Starts | Turn::Flow => 0,
            })
            .collect();
        assert_eq!(threads, [1, 2, 4, 8]);
    }

    #[test]
    fn rows_are_told_in_terms_of_the_same_case() {
        let entry = |tracer: &str, case: &str| Entry {
            tracer: tracer.to_owned(),
            case: case.to_owned(),
            ..Entry::default()
        };
        let mut entries =
            [entry("trackway", "a"), entry("trackway", "b"), entry("other", "b"), entry("x", "c")];
        tell_beside(&mut entries, "trackway");
        let beside: Vec<Option<usize>> = entries.iter().map(|entry| entry.beside).collect();
        assert_eq!(beside, [None, None, Some(1), None]);
    }

    #[test]
    fn batches_of_the_warm_up_do_not_count() {
        let batch = |number, ns| Batch { number, events: 10, ns };
        let plan = Plan { warm_up: 1, batches: 2 };
        let batches = [batch(0, 9000), batch(1, 200), batch(2, 300)];
        assert_eq!(median(&batches, &plan).expect("two"), 25.0);
        assert!(median(&batches[..1], &plan).is_err());
    }
}
