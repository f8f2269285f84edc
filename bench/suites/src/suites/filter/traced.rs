//! The cost of a filter in a traced program: events that no session records, events that are
//! recorded without a filter, and events that a filter takes or drops; of LTTng-UST and of
//! Trackway.
//!
//! LTTng's filter cannot be called alone. So a figure is a loop of tracepoints, and the filter's
//! share is the difference to another row of the same round: for dropped events, to a loop of
//! events that no session records; for accepted events, to a loop in which all are recorded.
//!
//! Main invariant: what is dropped leaves no record but that of the first event, which every filter
//! takes; and what is taken is recorded or counted, every event, by the tracer's own output.

use std::process::Command;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::child;
use trackway_bench_engine::host::workload;
use trackway_bench_engine::host::workspace::{Place, has};
use trackway_bench_engine::results::Account;
use trackway_bench_engine::settings::Settings;
use trackway_bench_engine::suite::{Entry, Sample};
use trackway_bench_engine::tracer::{Availability, Tracer as _};

use super::chains::{Chain, FilterTracer, Operands, predicates_words};
use super::program;
use super::questions::Question;
use crate::trace_check::{self, Size};
use crate::tracers::daemon::Daemon;
use crate::tracers::trackway::{
    account, availability, in_window, link_flags, off_window_dir, write_to,
};
use crate::tracers::ust_session::{self, SESSION, SUB_BUFFERS, UstSession, rings};
use crate::tracers::{Lttng, RING_BYTES};

/// Batches that do not count: until the ring has come round.
const WARM_UP: u32 = 20;
/// Batches that do.
const BATCHES: u32 = 80;
const BATCHES_QUICK: u32 = 20;
/// Events of a batch: less than a millisecond of the slowest, so that most batches are not
/// interrupted where others compete for the CPUs.
const EVENTS: u64 = 2_000;
/// Folder of traces, in the scratch folder.
const TRACE: &str = "filter-trace";

/// The treatment of a loop's events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Way {
    tracer: FilterTracer,
    operands: Operands,
    is_on: bool,
    /// The filter, if there is one, and how many predicates it has.
    chain: Option<Chain>,
    predicates: usize,
}

/// All of them.
#[derive(Default)]
pub(super) struct Traced {
    daemon: Option<Daemon>,
    batches: u32,
}

impl Traced {
    /// Compiles the programs, starts LTTng's daemon, and says which rows there are.
    pub(super) fn enter(
        place: &Place,
        settings: &Settings,
        counts: &[usize],
    ) -> Result<(Self, Vec<(Entry, Way)>)> {
        let batches = if settings.quick { BATCHES_QUICK } else { BATCHES };
        let mut traced = Self { daemon: None, batches };
        let mut rows = Vec::new();
        for tracer in FilterTracer::ALL {
            let name = tracer.name();
            if !settings.wants(name) {
                continue;
            }
            let missing = match tracer {
                FilterTracer::Lttng => Lttng::alone().availability(place),
                FilterTracer::Trackway => availability(&place.tools, has("cc")),
                FilterTracer::C if has("cc") => Availability::Ready,
                FilterTracer::C => Availability::Missing("there is no cc".to_owned()),
            };
            let mut ready = Entry {
                tracer: name.to_owned(),
                command: format!("trackway bench filter --tracers {name}"),
                ..Entry::default()
            };
            match missing {
                Availability::Missing(reason) => ready.absent = Some(reason),
                Availability::Ready => match traced.set_up(place, tracer) {
                    Ok(()) => {}
                    Err(Error::Interrupted) => return Err(Error::Interrupted),
                    Err(error) => ready.failed = Some(error.to_string()),
                },
            }
            let from = rows.len();
            rows.extend(ways(tracer, counts).into_iter().map(|way| (way.entry(&ready), way)));
            for row in from..rows.len() {
                let beside = rows[row].1.beside();
                rows[row].0.beside = rows.iter().position(|other| Some(other.1) == beside);
            }
        }
        Ok((traced, rows))
    }

    /// Compiles a tracer's program, and starts its daemon.
    fn set_up(&mut self, place: &Place, tracer: FilterTracer) -> Result<()> {
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

    /// The middle of the batches of one program, in ns of an event.
    pub(super) fn sample(&self, place: &Place, way: Way) -> Result<Sample> {
        place.clear(TRACE);
        let output = match way.tracer {
            FilterTracer::Lttng => self.by_lttng(place, way)?,
            FilterTracer::Trackway => self.by_trackway(place, way)?,
            FilterTracer::C => by_itself(place, way, self.arguments(way))?,
        };
        let batches = workload::batches(&output.stdout)?;
        let emitted = batches.iter().map(|batch| batch.events).sum();
        let mut account = None;
        if way.is_on && way.tracer != FilterTracer::C {
            let found = self.account(place, way, emitted)?;
            check(way, &found)?;
            account = Some(found);
        }
        let figure = workload::median_ns(&batches, WARM_UP)?;
        Ok(Sample { figure, account, ..Sample::default() })
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
            let filter = way.filter();
            let session = UstSession {
                name: SESSION,
                is_snapshot: true,
                channel: &rings(RING_BYTES, SUB_BUFFERS),
                rules: &[&format!("lab:{}", way.operands.name())],
                filter: filter.as_deref(),
                contexts: &[],
            };
            session.begin_anew(daemon, &place.path(TRACE))?;
        }
        let mut command = daemon.command(&place.path(program_name(way.tracer)));
        let finished = child::run(command.args(self.arguments(way)), lttng)?;
        if way.is_on {
            ust_session::end(daemon, SESSION, true)?;
        }
        Ok(finished)
    }

    fn by_trackway(&self, place: &Place, way: Way) -> Result<child::Finished> {
        let program = place.path(program_name(way.tracer));
        let mut command = if way.is_on {
            let mut command = Command::new(&place.tools.trackway);
            command.args(["record", "--flight-recorder", "--context", "none", "--buffer-size"]);
            command.arg(RING_BYTES.to_string());
            if let Some(filter) = way.filter() {
                command.arg("--filter").arg(format!("lab:{}: {filter}", way.operands.name()));
            }
            write_to(&mut command, &place.path(TRACE));
            command.arg("--").arg(program);
            in_window(&mut command, place.window_dir());
            command
        } else {
            let mut command = Command::new(program);
            in_window(&mut command, &off_window_dir(place)?);
            command
        };
        child::run(command.args(self.arguments(way)), way.tracer.name())
    }

    fn account(&self, place: &Place, way: Way, emitted: u64) -> Result<Account> {
        if way.tracer == FilterTracer::Trackway {
            return account(&place.path(TRACE), emitted);
        }
        trace_check::overwritten(&place.path(TRACE), &[emitted], Size::Same)
    }
}

impl Way {
    /// Returns true if a filter drops all of its events but the first.
    fn is_dropped(self) -> bool {
        self.chain.is_some_and(|chain| chain != Chain::AndTrue)
    }

    /// In words. What no session wants is what dropped events are told beyond, and so is among
    /// them as what no predicate drops; what has no filter is among those that are recorded.
    fn case(self) -> String {
        let fate = match self.chain {
            Some(Chain::AndFalseFirst) => "dropped by the first",
            Some(_) if self.is_dropped() => "dropped by the last",
            None if !self.is_on => "dropped by the last",
            _ => "recorded",
        };
        let of = predicates_words(self.predicates);
        format!("{} in a program, {fate}, {of}", self.operands.name())
    }

    fn entry(self, ready: &Entry) -> Entry {
        Entry {
            case: self.case(),
            x: Some(self.predicates as f64),
            records: self.is_on && !self.is_dropped() && self.tracer != FilterTracer::C,
            ..ready.clone()
        }
    }

    /// The filter's text.
    fn filter(self) -> Option<String> {
        Some(Question::of(self.operands, self.chain?, self.predicates).text())
    }

    /// The loop that lacks nothing but the filter.
    fn beside(self) -> Option<Self> {
        self.chain?;
        Some(Self { is_on: !self.is_dropped(), chain: None, predicates: 0, ..self })
    }
}

/// Returns the case of a filter that drops events by its last predicate.
pub(super) fn dropped(operands: Operands, predicates: usize) -> String {
    let (tracer, chain) = (FilterTracer::Trackway, Some(Chain::AndFalseLast));
    Way { tracer, operands, is_on: true, chain, predicates }.case()
}

/// The program in which the test stands itself: it says how many events have passed it.
fn by_itself(place: &Place, way: Way, arguments: [String; 5]) -> Result<child::Finished> {
    let name = way.tracer.name();
    let mut command = Command::new(place.path(program_name(way.tracer)));
    let finished = child::run(command.args(arguments), name)?;
    let expected = if way.is_on { "passed 1" } else { "passed 0" };
    match finished.stderr.trim() {
        said if said == expected => Ok(finished),
        said => Err(Error::output(name, format!("events do not add up: {way:?}: {said}"))),
    }
}

/// Everything that is measured of a tracer; what C records is nothing, and strings are LTTng's and
/// ours.
fn ways(tracer: FilterTracer, counts: &[usize]) -> Vec<Way> {
    let mut all = Vec::new();
    for operands in Operands::ALL {
        all.push(Way { tracer, operands, is_on: false, chain: None, predicates: 0 });
        for chain in Chain::TRACED {
            if chain == Chain::AndTrue {
                all.push(Way { tracer, operands, is_on: true, chain: None, predicates: 0 });
            }
            let of = counts.iter().filter(|count| chain.is_of(**count));
            let way =
                |&predicates| Way { tracer, operands, is_on: true, chain: Some(chain), predicates };
            all.extend(of.map(way));
        }
    }
    let is_in_c = |way: &Way| way.operands == Operands::Integers && way.is_on == way.is_dropped();
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

/// Checks that all events are accounted for: only the first one if the others were dropped.
fn check(way: Way, account: &Account) -> Result<()> {
    let is_right = match way.is_dropped() {
        true => account.recorded == 1 && account.lost + account.overwritten == 0,
        false => account.is_complete() && account.recorded > 0,
    };
    let words = || format!("events do not add up: {way:?}: {}", account.words());
    if is_right { Ok(()) } else { Err(Error::output(way.tracer.name(), words())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::filter::chains::TRACED_PREDICATES;

    #[test]
    fn filters_are_held_against_the_same_loop_without_one() {
        let all = ways(FilterTracer::Lttng, &TRACED_PREDICATES);
        for way in all.iter().filter(|way| way.chain.is_some()) {
            let beside = way.beside().expect("a loop");
            assert!(all.contains(&beside), "{way:?}");
            assert_eq!(beside.is_on, way.chain == Some(Chain::AndTrue));
        }
        let cases: std::collections::BTreeSet<String> = all.iter().map(|way| way.case()).collect();
        assert_eq!(cases.len(), all.len(), "each has a name of its own");
        let ours = ways(FilterTracer::Trackway, &TRACED_PREDICATES).into_iter();
        let as_theirs = |way| Way { tracer: FilterTracer::Lttng, ..way };
        assert!(ours.map(as_theirs).eq(all), "both are asked the same");
        let in_c = ways(FilterTracer::C, &TRACED_PREDICATES);
        assert!(in_c.iter().all(|way| way.is_dropped() || !way.is_on) && in_c.len() == 8);
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
        check(way(Chain::AndFalseLast), &account(1)).expect("dropped but for the first");
        check(way(Chain::AndFalseLast), &account(2)).unwrap_err();
        check(way(Chain::AndTrue), &account(10)).expect("taken");
        check(way(Chain::AndTrue), &account(9)).unwrap_err();
        for chain in [Chain::AndFalseLast, Chain::AndTrue] {
            check(way(chain), &account(0)).expect_err("it was silently off");
        }
    }
}
