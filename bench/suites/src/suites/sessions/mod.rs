//! The cost of sessions: an event that several sessions record, an event that is enabled,
//! recorders, changes that need a grace period, short-lived processes, memory. LTTng's sessions are
//! measured next to Trackway's if LTTng has the same operation.
//!
//! ```text
//! host      the interface; trackway, lttng: its two implementations
//! programs  background programs
//! cost      an event in 1, 2, 4 and 32 sessions
//! switch    from `event on` to the first event
//! load      the recorders' share of the CPUs (usage)
//! grace     a session stopped, a channel's buffers replaced
//! live      latency from an event to the session's follower
//! crowd     short-lived processes
//! memory    memory of an idle session
//! goals     goals for sessions
//! ```
//!
//! Main invariant: every session's trace is read. Its events must add up to the emitted events or,
//! if their number is unknown (a session that is stopped meanwhile), to the session's own count.

mod cost;
mod crowd;
mod goals;
mod grace;
mod host;
mod live;
mod load;
mod lttng;
mod memory;
mod programs;
mod switch;
mod trackway;
mod usage;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::workspace::has;
use trackway_bench_engine::results::{SuiteRows, Unit};
use trackway_bench_engine::settings::Settings;
use trackway_bench_engine::stats::{Spread, merge_equal_figures};
use trackway_bench_engine::suite::{About, Entry, Sample, Suite, SuiteContext};
use trackway_bench_engine::tracer::Availability;

use crate::tracers::command_tracer::Ust;
use crate::tracers::daemon::Daemon;
use crate::tracers::name::{LTTNG as THEIRS, LTTNG_OFF, TRACKWAY as OURS, TRACKWAY_OFF};
use crate::tracers::trackway::check_availability;
use host::{SessionHost, SessionKind, SessionProperties};
use lttng::LttngSessions;
use trackway::{RequestMethod, TrackwaySessions};

pub(crate) use goals::judge_goals;

/// The suite's name.
const SUITE_NAME: &str = "sessions";
/// Name of Trackway's rows that use the recorder's socket: the cost without the start of a command.
const SOCKET: &str = "trackway-socket";
/// Number of times that an event is enabled, or a session changed, in a round.
const TURNS: u32 = 5;
/// Number of CPUs of the simulated large machine, for the memory of an idle session.
const MANY_CPUS: u32 = 256;

/// The measurement of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    /// A disabled event.
    Off,
    /// An event that this number of sessions records.
    Event(SessionKind, u32),
    /// Enabling an event.
    Switch,
    /// The recorders' share of the CPUs.
    Load(SessionKind),
    /// Stopping a session.
    Stop,
    /// Replacing the buffers of a channel.
    Replace,
    /// The visit to every CPU alone, which stops and replacements need.
    Visit,
    /// Following a session.
    Live,
    /// Short-lived processes.
    Crowd(crowd::ProcessOrigin),
    /// Memory of an idle session, on this machine or on one with this number of possible CPUs.
    Memory(SessionKind, Option<u32>),
}

impl Work {
    fn case(self) -> String {
        match self {
            Self::Off => "no session".to_owned(),
            Self::Event(kind, sessions) => cost::case_name(kind, sessions),
            Self::Switch => "event on, to the first event".to_owned(),
            Self::Load(kind) => format!("recorders at a million events/s, {}", kind.words()),
            Self::Stop => "session stopped".to_owned(),
            Self::Replace => "channel given other buffers".to_owned(),
            Self::Visit => "visit to every CPU, alone".to_owned(),
            Self::Live => "followed: event to line".to_owned(),
            Self::Crowd(starts) => format!("memory {}", starts.words()),
            Self::Memory(kind, None) => format!("memory of an idle session, {}", kind.words()),
            Self::Memory(kind, Some(cpus)) => {
                format!("memory as if with {cpus} CPUs, {}", kind.words())
            }
        }
    }

    const fn unit(self) -> Unit {
        match self {
            Self::Off | Self::Event(..) => Unit::NsPerEvent,
            Self::Load(_) => Unit::PercentOfCpu,
            Self::Switch | Self::Stop | Self::Replace | Self::Visit | Self::Live => Unit::Us,
            Self::Crowd(_) | Self::Memory(..) => Unit::Kib,
        }
    }

    /// Returns the number of sessions that record the event.
    const fn sessions(self) -> Option<u32> {
        match self {
            Self::Event(_, sessions) => Some(sessions),
            _ => None,
        }
    }
}

/// Returns all rows; Trackway's rows, which are the baselines, come first.
fn list_rows() -> Vec<(&'static str, Work)> {
    let kinds = |of: fn(SessionKind) -> Work| SessionKind::ALL.map(of);
    let mut ours = Vec::new();
    ours.extend(
        SessionKind::ALL
            .map(|kind| cost::TRACKWAY_SESSION_COUNTS.map(|some| Work::Event(kind, some)))
            .concat(),
    );
    ours.extend([Work::Switch, Work::Stop, Work::Replace, Work::Visit, Work::Live]);
    ours.extend(kinds(Work::Load));
    ours.extend(crowd::ProcessOrigin::ALL.map(Work::Crowd));
    ours.extend(kinds(|kind| Work::Memory(kind, None)));
    ours.extend(kinds(|kind| Work::Memory(kind, Some(MANY_CPUS))));
    let mut theirs =
        SessionKind::ALL.map(|kind| cost::LTTNG_SESSION_COUNTS.map(|some| Work::Event(kind, some)));
    let mut theirs = theirs.as_mut_slice().concat();
    theirs.extend([Work::Switch, Work::Stop]);
    theirs.extend(kinds(Work::Load));
    theirs.extend(kinds(|kind| Work::Memory(kind, None)));
    let mut all: Vec<(&str, Work)> = ours.into_iter().map(|work| (OURS, work)).collect();
    all.extend([Work::Switch, Work::Stop, Work::Replace].map(|work| (SOCKET, work)));
    all.extend([(TRACKWAY_OFF, Work::Off), (LTTNG_OFF, Work::Off)]);
    all.extend(theirs.into_iter().map(|work| (THEIRS, work)));
    all
}

fn is_lttng(tracer: &str) -> bool {
    [THEIRS, LTTNG_OFF].contains(&tracer)
}

/// The suite `sessions`.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    daemon: Option<Daemon>,
    rows: Vec<(&'static str, Work)>,
}

impl Suite for Sessions {
    fn about(&self) -> About {
        About {
            name: SUITE_NAME,
            title: "What sessions cost",
            repeats: "LTTng's sessions",
            unit: Unit::NsPerEvent,
            x_axis: "sessions",
        }
    }

    fn is_only_by_name(&self) -> bool {
        true
    }

    fn seconds(&self, settings: &Settings) -> f64 {
        if settings.quick { 60.0 } else { 540.0 }
    }

    fn tracers(&self) -> Vec<&'static str> {
        vec![OURS, SOCKET, TRACKWAY_OFF, LTTNG_OFF, THEIRS]
    }

    fn enter(&mut self, context: &SuiteContext<'_>) -> Result<Vec<Entry>> {
        context.progress.show_step("setting up");
        let wants =
            |tracer: &str| [OURS, TRACKWAY_OFF].contains(&tracer) || context.settings.wants(tracer);
        self.rows = list_rows().into_iter().filter(|(tracer, _)| wants(tracer)).collect();
        let ours = set_up(check_availability(&context.workspace.tools, has("cc")), || {
            TrackwaySessions::set_up(context.workspace)
        })?;
        let mut theirs = Entry::default();
        if self.rows.iter().any(|(tracer, _)| is_lttng(tracer)) {
            let absence = Ust::absence(context.workspace);
            let there = absence.map_or(Availability::Ready, Availability::Missing);
            theirs = set_up(there, || {
                self.daemon = Some(LttngSessions::set_up(context.workspace)?);
                Ok(())
            })?;
        }
        let entry = |&(tracer, work): &(&str, Work)| {
            let same = |other: &(&str, Work)| other.1 == work;
            let baseline = self.rows.iter().position(same);
            let host = if is_lttng(tracer) { &theirs } else { &ours };
            Entry {
                tracer: tracer.to_owned(),
                case: work.case(),
                x: work.sessions().map(f64::from),
                unit: Some(work.unit()),
                records: work != Work::Off,
                baseline: baseline.filter(|&at| self.rows[at].0 != tracer),
                command: format!("trackway bench {SUITE_NAME} --tracers {tracer}"),
                ..host.clone()
            }
        };
        let mut entries: Vec<Entry> = self.rows.iter().map(entry).collect();
        if let Some(first) = entries.first().filter(|first| first.can_be_measured()) {
            let tracer = format!("{} again", first.tracer);
            entries.push(Entry { tracer, is_control: true, baseline: Some(0), ..first.clone() });
            self.rows.push(self.rows[0]);
        }
        Ok(entries)
    }

    fn sample(&mut self, context: &SuiteContext<'_>, row: usize) -> Result<Sample> {
        let (tracer, work) = self.rows[row];
        if is_lttng(tracer) {
            let daemon = self.daemon.as_ref();
            let daemon = daemon.ok_or_else(|| Error::output("lttng-sessiond", "not running"))?;
            let theirs = LttngSessions::new(context.workspace, daemon);
            return clear_on_error(&theirs, measure_common_row(&theirs, context.settings, work));
        }
        let by = if tracer == SOCKET { RequestMethod::Socket } else { RequestMethod::Command };
        let ours = TrackwaySessions::new(context.workspace, by);
        let sample = match work {
            Work::Replace => grace::measure_buffer_replacements(&ours),
            Work::Visit => grace::measure_cpu_visits(&ours),
            Work::Live => live::measure_follow_latency(&ours),
            Work::Crowd(starts) => crowd::measure_short_lived_processes(&ours, starts),
            _ => measure_common_row(&ours, context.settings, work),
        };
        clear_on_error(&ours, sample)
    }

    fn complete(&self, rows: &mut SuiteRows) {
        cost::add_relative_costs(rows);
    }

    fn leave(&mut self) {
        self.daemon = None;
        self.rows.clear();
    }
}

/// Prepares an available tracer; the entry has the reason if the tracer is absent or has failed.
fn set_up(there: Availability, make: impl FnOnce() -> Result<()>) -> Result<Entry> {
    if let Availability::Missing(reason) = there {
        return Ok(Entry { absent: Some(reason), ..Entry::default() });
    }
    match make() {
        Ok(()) => Ok(Entry::default()),
        Err(Error::Interrupted) => Err(Error::Interrupted),
        Err(error) => Ok(Entry { failed: Some(error.to_string()), ..Entry::default() }),
    }
}

/// Measures the rows that both tracers have.
fn measure_common_row(host: &dyn SessionHost, settings: &Settings, work: Work) -> Result<Sample> {
    match work {
        Work::Off => cost::measure_disabled_event(host, settings),
        Work::Event(kind, sessions) => cost::measure_recorded_event(host, settings, kind, sessions),
        Work::Switch => switch::measure_event_switch(host),
        Work::Load(kind) => load::measure_recorder_load(host, kind),
        Work::Stop => grace::measure_stops(host),
        Work::Memory(kind, possible_cpus) => memory::measure_idle_memory(
            host,
            SessionProperties { possible_cpus, ..SessionProperties::of(kind) },
        ),
        Work::Replace | Work::Visit | Work::Live | Work::Crowd(_) => {
            Err(Error::output(SUITE_NAME, format_args!("there is no '{}' of these", work.case())))
        }
    }
}

/// Ends the remaining sessions after a failure.
fn clear_on_error(host: &dyn SessionHost, sample: Result<Sample>) -> Result<Sample> {
    sample.inspect_err(|_| host.clear())
}

/// Returns the sample of a round of several turns: the median, and each turn as a single figure.
fn sample_of_turns(figures: &[f64]) -> Result<Sample> {
    let single: Vec<(f64, u64)> = figures.iter().map(|&figure| (figure, 1)).collect();
    Ok(Sample {
        figure: median_of(figures)?,
        histogram: merge_equal_figures(&single),
        ..Sample::default()
    })
}

fn median_of(figures: &[f64]) -> Result<f64> {
    let spread = Spread::of(figures);
    spread
        .map(|spread| spread.median)
        .ok_or_else(|| Error::output(SUITE_NAME, "there were no turns"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_have_nothing_that_ours_do_not_have() {
        let all = list_rows();
        let ours: Vec<Work> = all.iter().filter(|row| row.0 == OURS).map(|row| row.1).collect();
        for (tracer, work) in &all {
            let has_off = *work == Work::Off && !ours.contains(work);
            assert!(ours.contains(work) || has_off, "{tracer}: {work:?}");
        }
        // Each row occurs once, and has a unique name.
        let names: std::collections::BTreeSet<(&str, String)> =
            all.iter().map(|(tracer, work)| (*tracer, work.case())).collect();
        assert_eq!(names.len(), all.len());
    }

    #[test]
    fn turns_are_told_one_by_one_and_by_their_median() {
        let found = sample_of_turns(&[3.0, 1.0, 3.0]).expect("three");
        assert_eq!((found.figure, found.histogram), (3.0, vec![(1.0, 1), (3.0, 2)]));
        assert!(sample_of_turns(&[]).is_err());
    }
}
