//! The measurement of a tracer in one turn, and the amount of work in a turn.

use trackway_bench_engine::case::{BatchPlan, BufferState, Case};
use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::workload::{self, Batch};
use trackway_bench_engine::results::{Account, Unit};
use trackway_bench_engine::single_events::SingleEvents;
use trackway_bench_engine::stats::Spread;
use trackway_bench_engine::suite::{Sample, SuiteContext};
use trackway_bench_engine::tracer::{Flow, Tracer};

use crate::tracers::{self, FLOW_BYTES, name, paced_arguments};

/// Number of program starts in a turn.
const STARTS: u32 = 25;
const STARTS_QUICK: u32 = 5;
/// Duration of emitting at full speed, in ms.
const FLOW_MS: u32 = 1000;
const FLOW_MS_QUICK: u32 = 100;
/// Events of a batch, which a recorder or a large buffer can take, and the pause before each batch,
/// in which the recorder drains: two million events per second.
const BATCH_EVENTS: u64 = 10_000;
const REST_US: u64 = 5000;
/// Events before the first timed event, which fill a ring of the table once: the shortest records
/// have 8 bytes.
const ROUND_EVENTS: u64 = 200_000;
/// Events before the first stepped event, and number of stepped events: few, as each instruction
/// takes some µs.
const STEPS_WARM: u64 = 20_000;
const STEPS_EVENTS: u64 = 8;

/// Key of the extra figure of program starts: threads in the program.
pub(crate) const THREADS: &str = "threads";
/// Keys of the extra figures of flows: events emitted; events lost; the time from the last event
/// until all were written; and the rate if all events must be on the disk, and not only in the page
/// cache.
const EMITTED: &str = "events/s emitted";
const LOST: &str = "lost, %";
const WRITTEN_AFTER: &str = "written after the end, ms";
const ON_DISK: &str = "events/s with fsync";
/// Key of the extra figure for several threads: the mean of all batches, including interrupted
/// ones.
pub(crate) const MEAN: &str = "mean with interruptions";

/// The measurement of a tracer in one turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Batches of a case, in ns per event.
    Batches(Case, BufferState),
    /// Single events of a case, in ns per event.
    Singles(Case, BufferState),
    /// Events of a case in single steps, in instructions per event.
    Steps(Case),
    /// Starts of the tracer's program, in µs.
    Starts,
    /// Two threads at full speed, to files, with per-CPU buffers of this number of bytes: events
    /// per second that reach the files.
    Flow(u64),
}

impl Turn {
    pub(super) fn words(self) -> String {
        match self {
            Self::Batches(case, BufferState::Overwrite) => case.words(),
            Self::Batches(case, mode) => format!("{}, {}", case.payload.title(), mode.words()),
            Self::Singles(case, mode) => {
                format!("{}, single events, {}", case.payload.title(), mode.words())
            }
            Self::Steps(case) => format!("{}, instructions", case.payload.title()),
            Self::Starts => "spawn, run, wait".to_owned(),
            Self::Flow(bytes) => format!("two threads, {} MiB a CPU", to_mebibytes(bytes)),
        }
    }

    /// Returns the size of the per-CPU buffers in MiB, if rows differ in it.
    pub(super) fn memory(self) -> Option<f64> {
        match self {
            Self::Flow(bytes) => Some(to_mebibytes(bytes)),
            _ => None,
        }
    }

    /// Returns the unit of the turn's figure, if it differs from the suite's.
    pub(super) const fn unit(self) -> Option<Unit> {
        match self {
            Self::Steps(_) => Some(Unit::InstructionsPerEvent),
            _ => None,
        }
    }

    /// Returns true if a tracer supports the turn.
    pub(super) fn is_for(self, tracer: &dyn Tracer) -> bool {
        let name = tracer.name();
        let has = |case: &Case, mode| tracer.supports(case) && tracer.modes().contains(&mode);
        match self {
            Self::Batches(case, BufferState::Overwrite) => tracer.supports(&case),
            Self::Batches(case, mode) => tracer.records() && has(&case, mode),
            // Events that take less than the clock's resolution are measured in loops only. So are
            // the C++ and Rust bindings, which have the same events as C.
            Self::Singles(case, mode) => {
                let is_bound = [name::CXX, name::RUST].contains(&name);
                has(&case, mode) && !name.ends_with("-off") && name != name::EMPTY && !is_bound
            }
            // The kernel's instructions for an event are not in the program.
            Self::Steps(case) => has(&case, BufferState::Overwrite) && !tracers::is_external(name),
            Self::Starts => tracer.starts_programs(),
            // The dependence on memory is measured for one variant of Trackway and of LTTng.
            Self::Flow(bytes) => {
                let is_asked = [name::TRACKWAY, name::LTTNG].contains(&name);
                tracer.streams() && (is_asked || bytes == FLOW_BYTES)
            }
        }
    }

    /// Runs a tracer's turn.
    pub(super) fn run(self, tracer: &mut dyn Tracer, context: &SuiteContext<'_>) -> Result<Sample> {
        let quick = context.settings.quick;
        match self {
            Self::Batches(case, BufferState::Overwrite) => {
                let plan = BatchPlan { warm_up: 20, batches: if quick { 20 } else { 120 } };
                let batches = tracer.run(context.workspace, &case, &plan)?;
                let account = tracer.read_back(context.workspace)?;
                let sample = Sample { account, ..sample_of_batches(&batches, &plan)? };
                // A single thread is hardly ever interrupted within a batch.
                let is_alone = case.threads == 1;
                let extra = if is_alone { Vec::new() } else { sample.extra };
                Ok(Sample { extra, ..sample })
            }
            Self::Batches(case, mode) => {
                let plan = BatchPlan { warm_up: 5, batches: if quick { 20 } else { 60 } };
                let rest_us = if mode == BufferState::Steady { REST_US } else { 0 };
                let pace = (BATCH_EVENTS, rest_us);
                let arguments = paced_arguments(tracer.work(&case), &case, &plan, pace);
                let output = tracer.emit(context.workspace, &case, mode, &arguments)?;
                let batches = workload::parse_batches(&output)?;
                let emitted = workload::count_events_by_thread(&batches);
                let account = tracer.account(context.workspace, &emitted)?;
                check_nothing_lost(tracer.name(), account.as_ref())?;
                Ok(Sample { account, extra: Vec::new(), ..sample_of_batches(&batches, &plan)? })
            }
            Self::Singles(case, mode) => sample_single_events(tracer, context, &case, mode),
            Self::Steps(case) => {
                let numbers = [STEPS_WARM, STEPS_EVENTS].map(|number| number.to_string());
                let arguments = join_arguments(["steps", tracer.work(&case)], numbers);
                let output =
                    tracer.emit(context.workspace, &case, BufferState::Overwrite, &arguments)?;
                let figure = workload::parse_instructions_per_event(&output)?;
                let account =
                    tracer.account(context.workspace, &[STEPS_WARM + 3 * STEPS_EVENTS])?;
                Ok(Sample { figure, account, ..Sample::default() })
            }
            Self::Starts => sample_starts(tracer, context),
            Self::Flow(bytes) => {
                let ms = if quick { FLOW_MS_QUICK } else { FLOW_MS };
                let flow = tracer.stream(context.workspace, bytes, ms)?;
                Ok(sample_of_flow(&flow.ok_or_else(|| Error::output(tracer.name(), "no stream"))?))
            }
        }
    }
}

/// Returns the sample of a flow: events per second until all were written, and extra figures.
fn sample_of_flow(flow: &Flow) -> Sample {
    let (recorded, emitted) = (flow.account.recorded as f64, flow.account.emitted as f64);
    let extra = vec![
        (EMITTED, emitted / flow.emitting_seconds),
        (LOST, flow.account.lost as f64 / emitted.max(1.0) * 100.0),
        (WRITTEN_AFTER, (flow.written_seconds - flow.emitting_seconds) * 1e3),
        (ON_DISK, recorded / (flow.written_seconds + flow.fsync_seconds)),
    ];
    let figure = recorded / flow.written_seconds;
    Sample { figure, account: Some(flow.account), extra, ..Sample::default() }
}

fn to_mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn join_arguments(first: [&str; 2], numbers: impl IntoIterator<Item = String>) -> Vec<String> {
    first.map(str::to_owned).into_iter().chain(numbers).collect()
}

/// Checks that no event is lost: buffers have room for all, or time to drain them.
fn check_nothing_lost(tracer: &str, account: Option<&Account>) -> Result<()> {
    match account {
        Some(account) if account.lost + account.overwritten > 0 => {
            Err(Error::output(tracer, format_args!("events were lost: {}", account.words())))
        }
        _ => Ok(()),
    }
}

fn sample_single_events(
    tracer: &mut dyn Tracer,
    context: &SuiteContext<'_>,
    case: &Case,
    mode: BufferState,
) -> Result<Sample> {
    let (warm, turns, events, rest_us) = match mode {
        BufferState::Overwrite => (ROUND_EVENTS, 20, 5000, 0),
        // There are more events than the buffers hold: the events that are not lost were drained
        // meanwhile.
        BufferState::Steady => (BATCH_EVENTS, 120, 5000, REST_US),
        BufferState::Producer => (BATCH_EVENTS, 20, 5000, 0),
    };
    let turns = if context.settings.quick { turns / 5 } else { turns };
    let numbers = [warm, turns, events, rest_us].map(|number| number.to_string());
    let arguments = join_arguments(["singles", tracer.work(case)], numbers);
    let output = tracer.emit(context.workspace, case, mode, &arguments)?;
    let singles = SingleEvents::parse(&output, turns * events)?;
    let account = tracer.account(context.workspace, &[warm + turns * events])?;
    if mode != BufferState::Overwrite {
        check_nothing_lost(tracer.name(), account.as_ref())?;
    }
    Ok(Sample { account, ..singles.sample() })
}

fn sample_starts(tracer: &mut dyn Tracer, context: &SuiteContext<'_>) -> Result<Sample> {
    let count = if context.settings.quick { STARTS_QUICK } else { STARTS };
    let starts = tracer.starts(context.workspace, count)?;
    // The figure is the fastest start: a start that the machine interrupts takes several times as
    // long.
    let starts = starts.ok_or_else(|| Error::output(tracer.name(), "no starts"))?;
    let fastest = Spread::of(&starts.us).map(|us| us.min);
    let figure = fastest.ok_or_else(|| Error::output(tracer.name(), "no starts"))?;
    let extra = vec![(THREADS, starts.threads as f64)];
    Ok(Sample { figure, extra, ..Sample::default() })
}

/// Returns ns per event over the counted batches: the median, which excludes interrupted batches,
/// and as an extra figure the mean, which includes them.
pub(crate) fn sample_of_batches(batches: &[Batch], plan: &BatchPlan) -> Result<Sample> {
    let counted = || batches.iter().filter(|batch| batch.number >= plan.warm_up);
    let all_ns: f64 = counted().map(|batch| batch.ns as f64).sum();
    let events: f64 = counted().map(|batch| batch.events as f64).sum();
    let figure = workload::median_event_ns(batches, plan.warm_up)?;
    Ok(Sample { figure, extra: vec![(MEAN, all_ns / events)], ..Sample::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tracers::{Baseline, Trackway};

    #[test]
    fn batches_of_the_warm_up_do_not_count() {
        let batch = |number, ns| Batch { thread: 0, number, events: 10, ns };
        let plan = BatchPlan { warm_up: 1, batches: 3 };
        let batches = [batch(0, 9000), batch(1, 200), batch(2, 300), batch(3, 1000)];
        let sample = sample_of_batches(&batches, &plan).expect("three");
        assert_eq!((sample.figure, sample.extra), (30.0, vec![(MEAN, 50.0)]));
        assert!(sample_of_batches(&batches[..1], &plan).is_err());
    }

    #[test]
    fn turns_are_for_tracers_that_have_them() {
        let one = Case::SIMPLEST;
        let for_each = |turn: Turn| {
            let tracers: [&dyn Tracer; 4] = [
                &Baseline::Empty,
                &Baseline::LwUst,
                &Trackway::without_session(),
                &Trackway::by_claim(),
            ];
            tracers.map(|tracer| turn.is_for(tracer))
        };
        assert_eq!(for_each(Turn::Batches(one, BufferState::Overwrite)), [true; 4]);
        assert_eq!(for_each(Turn::Batches(one, BufferState::Steady)), [false, false, false, true]);
        assert_eq!(
            for_each(Turn::Singles(one, BufferState::Overwrite)),
            [false, true, false, true]
        );
        assert_eq!(for_each(Turn::Steps(one)), [true; 4]);
        assert!(!Turn::Singles(one, BufferState::Overwrite).is_for(&Trackway::rust()));
        assert!(Turn::Steps(one).is_for(&Trackway::rust()));
    }

    #[test]
    fn events_arrive_until_all_are_written() {
        let account = Account { emitted: 4000, recorded: 3000, lost: 1000, ..Account::default() };
        let flow =
            Flow { emitting_seconds: 1.0, written_seconds: 1.5, fsync_seconds: 0.5, account };
        let sample = sample_of_flow(&flow);
        assert_eq!((sample.figure, sample.account), (2000.0, Some(account)));
        let expected = [(EMITTED, 4000.0), (LOST, 25.0), (WRITTEN_AFTER, 500.0), (ON_DISK, 1500.0)];
        assert_eq!(sample.extra, expected);
        let is_for = |tracer: Trackway, bytes| Turn::Flow(bytes).is_for(&tracer);
        assert!(is_for(Trackway::by_sequence(), 1 << 18) && !is_for(Trackway::by_claim(), 1 << 18));
        assert!(
            is_for(Trackway::by_claim(), FLOW_BYTES)
                && !is_for(Trackway::without_session(), FLOW_BYTES)
        );
    }

    #[test]
    fn what_is_lost_where_nothing_may_be_is_a_failure() {
        let account = Account { emitted: 3, recorded: 2, lost: 1, ..Account::default() };
        assert!(check_nothing_lost("x", Some(&account)).is_err());
        assert!(check_nothing_lost("x", Some(&Account { lost: 0, ..account })).is_ok());
        assert!(check_nothing_lost("x", None).is_ok());
    }
}
