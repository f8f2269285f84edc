//! What a filter costs in a traced program: events that no session wants, events that are recorded
//! without a filter, and events that a filter takes or drops; of LTTng-UST and of ours.
//!
//! LTTng's filter cannot be called alone, so a figure is a loop of tracepoints, and the filter's
//! share a difference of the same round: for events that are dropped, beyond a loop of events that
//! nobody wants; for events that are taken, beyond a loop in which all are recorded.
//!
//! Main invariant: what is dropped leaves no record, and what is taken is recorded or counted,
//! every event, by the tracer's own output.

use std::process::Command;

use super::program;
use super::questions::Question;
use super::results::{Chain, FilterTracer, Operands, TRACED_PREDICATES, TracedCost};
use crate::child;
use crate::error::{Error, Result};
use crate::place::{Place, has};
use crate::readback;
use crate::results::{Account, Note};
use crate::stats::Spread;
use crate::tracer::{Availability, Tracer as _};
use crate::tracers::daemon::Daemon;
use crate::tracers::trackway::{account, availability, in_window, link_flags, off_window_dir};
use crate::tracers::{Lttng, RING_BYTES};
use crate::workload::{self, Batch};

/// Most rounds: each starts a hundred programs.
const ROUNDS_MAX: u32 = 5;
/// Batches that do not count: until the ring has come round.
const WARM_UP: u32 = 100;
/// Events of a batch: less than a millisecond of the slowest, so that most batches are not
/// interrupted where others compete for the CPUs.
const EVENTS: u64 = 2_000;
/// Name of LTTng's session.
const SESSION: &str = "filters";
/// Where traces go, in the scratch folder.
const TRACE: &str = "filter-trace";

/// What is done with a loop's events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Way {
    tracer: FilterTracer,
    operands: Operands,
    is_on: bool,
    /// The filter, if there is one, and how many predicates it has.
    chain: Option<Chain>,
    predicates: usize,
}

/// One of them, round by round.
struct Series {
    way: Way,
    rounds_ns: Vec<f64>,
}

/// All of them.
pub(super) struct Traced {
    daemon: Option<Daemon>,
    series: Vec<Series>,
    batches: u32,
}

impl Traced {
    /// Whatever can be traced here; why the rest cannot goes to `notes`.
    pub(super) fn new(place: &Place, is_quick: bool, notes: &mut Vec<Note>) -> Result<Self> {
        let mut traced =
            Self { daemon: None, series: Vec::new(), batches: if is_quick { 100 } else { 300 } };
        for tracer in FilterTracer::ALL {
            let name = tracer.name();
            let about = format!("{name}, traced programs");
            let missing = match tracer {
                FilterTracer::Lttng => Lttng::alone().availability(place),
                FilterTracer::Trackway => availability(&place.kit, has("cc")),
                FilterTracer::C if has("cc") => Availability::Ready,
                FilterTracer::C => Availability::Missing("there is no cc".to_owned()),
            };
            if let Availability::Missing(reason) = missing {
                notes.push(Note::skipped(&about, &reason));
                continue;
            }
            match traced.enter(place, tracer) {
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) => notes.push(Note::failed(&about, &error)),
                Ok(()) => {
                    let new = |way| Series { way, rounds_ns: Vec::new() };
                    traced.series.extend(ways(tracer).into_iter().map(new));
                }
            }
        }
        Ok(traced)
    }

    /// Compiles a tracer's program, and starts its daemon.
    fn enter(&mut self, place: &Place, tracer: FilterTracer) -> Result<()> {
        let write = |name: &str, text: String| {
            let path = place.path(name);
            std::fs::write(&path, text).map_err(Error::io(format!("cannot write {path:?}")))
        };
        let name = program_name(tracer);
        write(&format!("{name}.c"), program::source(tracer))?;
        match tracer {
            FilterTracer::Lttng => {
                write(program::PROVIDER, program::provider())?;
                place.compile(name, &["-llttng-ust", "-ldl"])?;
                self.daemon = Some(Daemon::start(place)?);
            }
            FilterTracer::Trackway => {
                let flags = link_flags(place)?;
                let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
                place.compile(name, &flags)?;
            }
            FilterTracer::C => {
                place.compile(name, &[])?;
            }
        }
        Ok(())
    }

    /// Everything once more, another one first in each round.
    pub(super) fn round(
        &mut self,
        place: &Place,
        round: usize,
        notes: &mut Vec<Note>,
    ) -> Result<()> {
        if round >= ROUNDS_MAX as usize {
            return Ok(());
        }
        let count = self.series.len();
        let mut failed: Vec<FilterTracer> = Vec::new();
        for turn in 0..count {
            let this = (turn + round * count / ROUNDS_MAX as usize) % count;
            let way = self.series[this].way;
            if failed.contains(&way.tracer) {
                continue;
            }
            match self.run(place, way) {
                Ok(ns) => self.series[this].rounds_ns.push(ns),
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) => {
                    let about = format!("{}, traced programs", way.tracer.name());
                    notes.push(Note::failed(&about, &error));
                    failed.push(way.tracer);
                }
            }
        }
        self.series.retain(|series| !failed.contains(&series.way.tracer));
        Ok(())
    }

    /// The middle of the batches of one program, in ns per event.
    fn run(&self, place: &Place, way: Way) -> Result<f64> {
        place.clear(TRACE);
        let output = match way.tracer {
            FilterTracer::Lttng => self.by_lttng(place, way)?,
            FilterTracer::Trackway => self.by_trackway(place, way)?,
            FilterTracer::C => by_itself(place, way, self.arguments(way))?,
        };
        let batches = workload::batches(&output.stdout)?;
        let emitted = batches.iter().map(|batch| batch.events).sum();
        if way.is_on && way.tracer != FilterTracer::C {
            check(way, &self.account(place, way, &output.stderr, emitted)?)?;
        }
        let counted = batches.iter().filter(|batch| batch.number >= WARM_UP);
        let figures: Vec<f64> = counted.map(Batch::event_ns).collect();
        let spread = Spread::of(&figures);
        Ok(spread.ok_or_else(|| Error::output(way.tracer.name(), "no batch"))?.median)
    }

    fn arguments(&self, way: Way) -> [String; 5] {
        let work = program::work(way.operands, way.chain, way.predicates);
        let batches = WARM_UP + self.batches;
        ["batches".into(), work, "1".into(), batches.to_string(), EVENTS.to_string()]
    }

    fn by_lttng(&self, place: &Place, way: Way) -> Result<child::Finished> {
        let lttng = FilterTracer::Lttng.name();
        let daemon = self.daemon.as_ref();
        let daemon = daemon.ok_or_else(|| Error::output(lttng, "no daemon"))?;
        if way.is_on {
            // One may be left from a run that failed.
            let _ = daemon.lttng(&["destroy", SESSION]);
            let output = format!("--output={}", place.path(TRACE).display());
            daemon.lttng(&["create", SESSION, "--snapshot", &output])?;
            let size = format!("--subbuf-size={}", RING_BYTES / 4);
            daemon.lttng(&["enable-channel", "--userspace", &size, "--num-subbuf=4", "channel"])?;
            let event = format!("lab:{}", way.operands.name());
            let mut rule = vec!["enable-event", "--userspace", "--channel=channel", &event];
            let filter = way.filter();
            rule.extend(filter.iter().flat_map(|filter| ["--filter", filter]));
            daemon.lttng(&rule)?;
            daemon.lttng(&["start"])?;
        }
        let mut command = daemon.command(&place.path(program_name(way.tracer)));
        let finished = child::run(command.args(self.arguments(way)), lttng)?;
        if way.is_on {
            daemon.lttng(&["stop"])?;
            daemon.lttng(&["snapshot", "record"])?;
            daemon.lttng(&["destroy", SESSION])?;
        }
        Ok(finished)
    }

    fn by_trackway(&self, place: &Place, way: Way) -> Result<child::Finished> {
        let program = place.path(program_name(way.tracer));
        let mut command = if way.is_on {
            let mut command = Command::new(&place.kit.trackway);
            command.args(["record", "--flight-recorder", "--context", "none", "--buffer-size"]);
            command.arg(RING_BYTES.to_string());
            if let Some(filter) = way.filter() {
                command.arg("--filter").arg(format!("lab:{}: {filter}", way.operands.name()));
            }
            command.arg("-o").arg(place.path(TRACE)).arg("--").arg(program);
            in_window(&mut command, place.window_dir());
            command
        } else {
            let mut command = Command::new(program);
            in_window(&mut command, &off_window_dir(place)?);
            command
        };
        child::run(command.args(self.arguments(way)), way.tracer.name())
    }

    fn account(&self, place: &Place, way: Way, messages: &str, emitted: u64) -> Result<Account> {
        if way.tracer == FilterTracer::Trackway {
            return account(&place.path(TRACE), messages, emitted);
        }
        let counted = readback::count(&place.path(TRACE))?.unwrap_or_default();
        Ok(Account {
            emitted,
            recorded: counted.events,
            lost: counted.discarded,
            overwritten: counted.before_first,
            record_bytes: counted.record_bytes,
        })
    }

    /// What was measured.
    pub(super) fn costs(&self) -> Vec<TracedCost> {
        let rounds_of = |way: Way| {
            let series = self.series.iter().find(|series| series.way == way)?;
            Some(&series.rounds_ns)
        };
        let cost = |series: &Series| {
            let way = series.way;
            let beside = way.beside().and_then(rounds_of);
            let filter_ns = beside.and_then(|beside| {
                let pairs = series.rounds_ns.iter().zip(beside);
                Spread::of(&pairs.map(|(this, beside)| this - beside).collect::<Vec<f64>>())
            });
            Some(TracedCost {
                tracer: way.tracer,
                operands: way.operands,
                is_on: way.is_on,
                chain: way.chain,
                predicates: way.predicates,
                ns: Spread::of(&series.rounds_ns)?,
                filter_ns,
            })
        };
        self.series.iter().filter_map(cost).collect()
    }
}

impl Way {
    /// The filter's text.
    fn filter(self) -> Option<String> {
        Some(Question::of(self.operands, self.chain?, self.predicates).text())
    }

    /// The loop that lacks nothing but the filter.
    fn beside(self) -> Option<Self> {
        let is_taken = self.chain? == Chain::AndTrue;
        Some(Self { is_on: is_taken, chain: None, predicates: 0, ..self })
    }
}

/// The program in which the test stands itself: it says how many events have passed it.
fn by_itself(place: &Place, way: Way, arguments: [String; 5]) -> Result<child::Finished> {
    let name = way.tracer.name();
    let mut command = Command::new(place.path(program_name(way.tracer)));
    let finished = child::run(command.args(arguments), name)?;
    match finished.stderr.trim() {
        "passed 0" => Ok(finished),
        said => Err(Error::output(name, format!("events do not add up: {way:?}: {said}"))),
    }
}

/// Everything that is measured of a tracer; what C records is nothing, and strings are LTTng's and
/// ours.
fn ways(tracer: FilterTracer) -> Vec<Way> {
    let mut all = Vec::new();
    for operands in Operands::ALL {
        for is_on in [false, true] {
            all.push(Way { tracer, operands, is_on, chain: None, predicates: 0 });
        }
        for predicates in TRACED_PREDICATES {
            let chains = FilterTracer::CHAINS.into_iter().filter(|chain| chain.is_of(predicates));
            let way = |chain| Way { tracer, operands, is_on: true, chain: Some(chain), predicates };
            all.extend(chains.map(way));
        }
    }
    let is_in_c = |way: &Way| {
        let is_dropped = way.chain.is_some_and(|chain| chain != Chain::AndTrue);
        way.operands == Operands::Integers
            && way.is_on == is_dropped
            && way.chain.is_some() == is_dropped
    };
    all.retain(|way| tracer != FilterTracer::C || is_in_c(way));
    all
}

fn program_name(tracer: FilterTracer) -> &'static str {
    match tracer {
        FilterTracer::Lttng => "filter-lttng",
        FilterTracer::Trackway => "filter-trackway",
        FilterTracer::C => "filter-c",
    }
}

/// Whether all events are accounted for: none if they were dropped.
fn check(way: Way, account: &Account) -> Result<()> {
    let is_dropped = way.chain.is_some_and(|chain| chain != Chain::AndTrue);
    let is_right = match is_dropped {
        true => account.recorded + account.lost + account.overwritten == 0,
        false => account.is_complete() && account.recorded > 0,
    };
    let words = || format!("events do not add up: {way:?}: {}", account.words());
    if is_right { Ok(()) } else { Err(Error::output(way.tracer.name(), words())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_held_against_the_same_loop_without_one() {
        let all = ways(FilterTracer::Lttng);
        for way in all.iter().filter(|way| way.chain.is_some()) {
            let beside = way.beside().expect("a loop");
            assert!(all.contains(&beside), "{way:?}");
            assert_eq!(beside.is_on, way.chain == Some(Chain::AndTrue));
        }
        let ours = ways(FilterTracer::Trackway).into_iter();
        let as_theirs = |way| Way { tracer: FilterTracer::Lttng, ..way };
        assert!(ours.map(as_theirs).eq(all), "both are asked the same");
    }

    #[test]
    fn an_event_that_should_have_been_dropped_is_found() {
        let way = |chain| Way {
            tracer: FilterTracer::Lttng,
            operands: Operands::Integers,
            is_on: true,
            chain: Some(chain),
            predicates: 3,
        };
        let account = |recorded| Account { emitted: 10, recorded, ..Account::default() };
        check(way(Chain::AndFalseLast), &account(0)).expect("dropped");
        check(way(Chain::AndFalseLast), &account(1)).unwrap_err();
        check(way(Chain::AndTrue), &account(10)).expect("taken");
        check(way(Chain::AndTrue), &account(9)).unwrap_err();
        check(way(Chain::AndTrue), &account(0)).unwrap_err();
    }
}
