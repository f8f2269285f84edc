//! The cost of a filter in a traced program, for LTTng-UST and Trackway: events that no session
//! records, events that are recorded without a filter, and events that a filter accepts or drops.
//!
//! LTTng's filter cannot be called alone. So a figure is a loop of tracepoints, and the filter's
//! share is the difference to another row of the same round. For dropped events, the other row has
//! no session; for accepted events, the other row records all events.
//!
//! Main invariant: of a loop with dropped events, only the first event, which every filter accepts,
//! leaves a record; all accepted events are recorded or counted, by the tracer's own output.

use std::process::Command;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::child;
use trackway_bench_engine::host::workload;
use trackway_bench_engine::host::workspace::{Workspace, has};
use trackway_bench_engine::results::Account;
use trackway_bench_engine::settings::Settings;
use trackway_bench_engine::suite::{Entry, Sample};
use trackway_bench_engine::tracer::{Availability, Tracer as _};

use super::chains::{Chain, FilterTracer, Operands, predicates_words};
use super::program;
use super::questions::Question;
use crate::trace_check::{self, EventSizeKind};
use crate::tracers::daemon::Daemon;
use crate::tracers::trackway::{
    account_of_trace, check_availability, link_flags, make_idle_window_dir, set_trace_output,
    set_window,
};
use crate::tracers::ust_session::{self, SESSION, SUB_BUFFERS, UstSession, ring_options};
use crate::tracers::{Lttng, RING_BYTES};

/// Batches that are not counted, which fill the ring once.
const WARM_UP: u32 = 20;
/// Batches that are counted.
const BATCHES: u32 = 80;
const BATCHES_QUICK: u32 = 20;
/// Events of a batch, which take less than a millisecond in the slowest tracer, so that most
/// batches are not interrupted, even if other processes compete for the CPUs.
const BATCH_EVENTS: u64 = 2_000;
/// Folder of traces, in the scratch folder.
const TRACE_FOLDER: &str = "filter-trace";

/// The tracer, the fields and the filter of a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LoopSetup {
    tracer: FilterTracer,
    operands: Operands,
    is_on: bool,
    /// The filter, if there is one, and its number of predicates.
    chain: Option<Chain>,
    predicates: usize,
}

/// The rows of filters in traced programs.
#[derive(Default)]
pub(super) struct TracedFilters {
    daemon: Option<Daemon>,
    batches: u32,
}

impl TracedFilters {
    /// Compiles the programs, starts LTTng's daemon, and returns the rows.
    pub(super) fn enter(
        workspace: &Workspace,
        settings: &Settings,
        counts: &[usize],
    ) -> Result<(Self, Vec<(Entry, LoopSetup)>)> {
        let batches = if settings.quick { BATCHES_QUICK } else { BATCHES };
        let mut traced = Self { daemon: None, batches };
        let mut rows = Vec::new();
        for tracer in FilterTracer::ALL {
            let name = tracer.name();
            if !settings.wants(name) {
                continue;
            }
            let missing = match tracer {
                FilterTracer::Lttng => Lttng::with_own_daemon().availability(workspace),
                FilterTracer::Trackway => check_availability(&workspace.tools, has("cc")),
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
                Availability::Ready => match traced.set_up(workspace, tracer) {
                    Ok(()) => {}
                    Err(Error::Interrupted) => return Err(Error::Interrupted),
                    Err(error) => ready.failed = Some(error.to_string()),
                },
            }
            let from = rows.len();
            rows.extend(
                list_setups(tracer, counts).into_iter().map(|setup| (setup.entry(&ready), setup)),
            );
            for row in from..rows.len() {
                let baseline = rows[row].1.baseline();
                rows[row].0.baseline = rows.iter().position(|other| Some(other.1) == baseline);
            }
        }
        Ok((traced, rows))
    }

    /// Compiles a tracer's program, and starts its daemon.
    fn set_up(&mut self, workspace: &Workspace, tracer: FilterTracer) -> Result<()> {
        let write = |name: &str, text: String| {
            let path = workspace.path(name);
            std::fs::write(&path, text).map_err(Error::io(format!("cannot write {path:?}")))
        };
        let name = program_name(tracer);
        write(&format!("{name}.c"), program::program_source(tracer))?;
        match tracer {
            FilterTracer::Lttng => {
                write(program::PROVIDER_FILE, program::lttng_provider_source())?;
                workspace.compile(name, &["-llttng-ust", "-ldl"])?;
                self.daemon = Some(Daemon::start(workspace)?);
            }
            FilterTracer::Trackway => {
                let flags = link_flags(workspace)?;
                let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
                workspace.compile(name, &flags)?;
            }
            FilterTracer::C => {
                workspace.compile(name, &[])?;
            }
        }
        Ok(())
    }

    /// Returns the median of the batches of one program, in ns per event.
    pub(super) fn sample(&self, workspace: &Workspace, setup: LoopSetup) -> Result<Sample> {
        workspace.clear(TRACE_FOLDER);
        let output = match setup.tracer {
            FilterTracer::Lttng => self.by_lttng(workspace, setup)?,
            FilterTracer::Trackway => self.by_trackway(workspace, setup)?,
            FilterTracer::C => run_c_program(workspace, setup, self.arguments(setup))?,
        };
        let batches = workload::parse_batches(&output.stdout)?;
        let emitted = batches.iter().map(|batch| batch.events).sum();
        let mut account = None;
        if setup.is_on && setup.tracer != FilterTracer::C {
            let found = self.account(workspace, setup, emitted)?;
            check_account(setup, &found)?;
            account = Some(found);
        }
        let figure = workload::median_event_ns(&batches, WARM_UP)?;
        Ok(Sample { figure, account, ..Sample::default() })
    }

    fn arguments(&self, setup: LoopSetup) -> [String; 5] {
        let work = program::loop_name(setup.operands, setup.chain, setup.predicates);
        let batches = WARM_UP + self.batches;
        ["batches".into(), work, "1".into(), batches.to_string(), BATCH_EVENTS.to_string()]
    }

    fn by_lttng(&self, workspace: &Workspace, setup: LoopSetup) -> Result<child::ProgramOutput> {
        let lttng = FilterTracer::Lttng.name();
        let daemon = self.daemon.as_ref();
        let daemon = daemon.ok_or_else(|| Error::output(lttng, "no daemon"))?;
        if setup.is_on {
            let filter = setup.filter();
            let session = UstSession {
                name: SESSION,
                is_snapshot: true,
                channel: &ring_options(RING_BYTES, SUB_BUFFERS),
                rules: &[&format!("lab:{}", setup.operands.name())],
                filter: filter.as_deref(),
                contexts: &[],
            };
            session.begin_again(daemon, &workspace.path(TRACE_FOLDER))?;
        }
        let mut command = daemon.command(&workspace.path(program_name(setup.tracer)));
        let finished = child::run(command.args(self.arguments(setup)), lttng)?;
        if setup.is_on {
            ust_session::end_session(daemon, SESSION, true)?;
        }
        Ok(finished)
    }

    fn by_trackway(&self, workspace: &Workspace, setup: LoopSetup) -> Result<child::ProgramOutput> {
        let program = workspace.path(program_name(setup.tracer));
        let mut command = if setup.is_on {
            let mut command = Command::new(&workspace.tools.trackway);
            command.args(["record", "--flight-recorder", "--context", "none", "--buffer-size"]);
            command.arg(RING_BYTES.to_string());
            if let Some(filter) = setup.filter() {
                command.arg("--filter").arg(format!("lab:{}: {filter}", setup.operands.name()));
            }
            set_trace_output(&mut command, &workspace.path(TRACE_FOLDER));
            command.arg("--").arg(program);
            set_window(&mut command, workspace.window_dir());
            command
        } else {
            let mut command = Command::new(program);
            set_window(&mut command, &make_idle_window_dir(workspace)?);
            command
        };
        child::run(command.args(self.arguments(setup)), setup.tracer.name())
    }

    fn account(&self, workspace: &Workspace, setup: LoopSetup, emitted: u64) -> Result<Account> {
        if setup.tracer == FilterTracer::Trackway {
            return account_of_trace(&workspace.path(TRACE_FOLDER), emitted);
        }
        trace_check::account_with_overwrites(
            &workspace.path(TRACE_FOLDER),
            &[emitted],
            EventSizeKind::Same,
        )
    }
}

impl LoopSetup {
    /// Returns true if a filter drops all of its events but the first.
    fn is_dropped(self) -> bool {
        self.chain.is_some_and(|chain| chain != Chain::AndTrue)
    }

    /// Returns the case in words. Events that no session records are the baseline of dropped
    /// events, and so are listed among the dropped events with zero predicates. Events without a
    /// filter are listed among the recorded ones.
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

    /// Returns the text of the filter.
    fn filter(self) -> Option<String> {
        Some(Question::of(self.operands, self.chain?, self.predicates).text())
    }

    /// Returns the baseline: a loop without the filter.
    fn baseline(self) -> Option<Self> {
        self.chain?;
        Some(Self { is_on: !self.is_dropped(), chain: None, predicates: 0, ..self })
    }
}

/// Returns the case of a filter that drops events by its last predicate.
pub(super) fn dropped_case(operands: Operands, predicates: usize) -> String {
    let (tracer, chain) = (FilterTracer::Trackway, Some(Chain::AndFalseLast));
    LoopSetup { tracer, operands, is_on: true, chain, predicates }.case()
}

/// Runs the program that contains the test in C; the program reports the number of events that
/// passed.
fn run_c_program(
    workspace: &Workspace,
    setup: LoopSetup,
    arguments: [String; 5],
) -> Result<child::ProgramOutput> {
    let name = setup.tracer.name();
    let mut command = Command::new(workspace.path(program_name(setup.tracer)));
    let finished = child::run(command.args(arguments), name)?;
    let expected = if setup.is_on { "passed 1" } else { "passed 0" };
    match finished.stderr.trim() {
        said if said == expected => Ok(finished),
        said => Err(Error::output(name, format!("events do not add up: {setup:?}: {said}"))),
    }
}

/// Returns all rows of a tracer; C only has the rows with integers and dropped events.
fn list_setups(tracer: FilterTracer, counts: &[usize]) -> Vec<LoopSetup> {
    let mut all = Vec::new();
    for operands in Operands::ALL {
        all.push(LoopSetup { tracer, operands, is_on: false, chain: None, predicates: 0 });
        for chain in Chain::TRACED {
            if chain == Chain::AndTrue {
                all.push(LoopSetup { tracer, operands, is_on: true, chain: None, predicates: 0 });
            }
            let of = counts.iter().filter(|count| chain.is_of(**count));
            let setup = |&predicates| LoopSetup {
                tracer,
                operands,
                is_on: true,
                chain: Some(chain),
                predicates,
            };
            all.extend(of.map(setup));
        }
    }
    let is_in_c = |setup: &LoopSetup| {
        setup.operands == Operands::Integers && setup.is_on == setup.is_dropped()
    };
    all.retain(|setup| tracer != FilterTracer::C || is_in_c(setup));
    all
}

fn program_name(tracer: FilterTracer) -> &'static str {
    match tracer {
        FilterTracer::Lttng => "filter-lttng",
        FilterTracer::Trackway => "filter-trackway",
        FilterTracer::C => "filter-c",
    }
}

/// Checks the account of all events: only the first event is recorded if the filter drops the
/// others.
fn check_account(setup: LoopSetup, account: &Account) -> Result<()> {
    let is_right = match setup.is_dropped() {
        true => account.recorded == 1 && account.lost + account.overwritten == 0,
        false => account.is_complete() && account.recorded > 0,
    };
    let words = || format!("events do not add up: {setup:?}: {}", account.words());
    if is_right { Ok(()) } else { Err(Error::output(setup.tracer.name(), words())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::filter::chains::TRACED_PREDICATES;

    #[test]
    fn filters_are_held_against_the_same_loop_without_one() {
        let all = list_setups(FilterTracer::Lttng, &TRACED_PREDICATES);
        for setup in all.iter().filter(|setup| setup.chain.is_some()) {
            let baseline = setup.baseline().expect("a loop");
            assert!(all.contains(&baseline), "{setup:?}");
            assert_eq!(baseline.is_on, setup.chain == Some(Chain::AndTrue));
        }
        let cases: std::collections::BTreeSet<String> =
            all.iter().map(|setup| setup.case()).collect();
        assert_eq!(cases.len(), all.len(), "each has a name of its own");
        let trackway = list_setups(FilterTracer::Trackway, &TRACED_PREDICATES).into_iter();
        let as_theirs = |setup| LoopSetup { tracer: FilterTracer::Lttng, ..setup };
        assert!(trackway.map(as_theirs).eq(all), "both are asked the same");
        let in_c = list_setups(FilterTracer::C, &TRACED_PREDICATES);
        assert!(in_c.iter().all(|setup| setup.is_dropped() || !setup.is_on) && in_c.len() == 8);
    }

    #[test]
    fn an_event_that_should_have_been_dropped_is_found() {
        let setup = |chain| LoopSetup {
            tracer: FilterTracer::Lttng,
            operands: Operands::Integers,
            is_on: true,
            chain: Some(chain),
            predicates: 3,
        };
        let account = |recorded| Account { emitted: 10, recorded, ..Account::default() };
        check_account(setup(Chain::AndFalseLast), &account(1)).expect("dropped but for the first");
        check_account(setup(Chain::AndFalseLast), &account(2)).unwrap_err();
        check_account(setup(Chain::AndTrue), &account(10)).expect("taken");
        check_account(setup(Chain::AndTrue), &account(9)).unwrap_err();
        for chain in [Chain::AndFalseLast, Chain::AndTrue] {
            check_account(setup(chain), &account(0)).expect_err("it was silently off");
        }
    }
}
