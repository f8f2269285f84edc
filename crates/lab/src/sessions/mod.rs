//! What sessions cost: an event that several record, an event switched on, recorders, changes that
//! need a grace period, short-lived processes, memory; beside LTTng's sessions where it has such.
//!
//! ```text
//! host      the interface: ours and LTTng's (theirs)
//! cost      an event in 1, 2, 4 and 32 sessions
//! switch    from `event on` to the first event
//! load      what recorders take of the CPUs (usage)
//! grace     a session stopped, a channel given other buffers
//! live      an event's way to who follows the session
//! crowd     short-lived processes
//! idle      memory
//! results   what was measured, as JSON; report shows it to people
//! ```
//!
//! Main invariant: all ways take turns within each round, and every session's trace is read: its
//! events must add up to those emitted.

mod cost;
mod crowd;
mod grace;
mod host;
mod idle;
mod live;
mod load;
mod ours;
mod report;
mod results;
mod switch;
mod theirs;
mod usage;

pub use report::print as print_sessions;
pub use results::{
    By, Change, Crowd, Grace, IdleSession, Kind as SessionKind, Left, Live, Load, SessionCost,
    SessionsResults, Slope, Starts, SwitchOn, Who,
};

use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::place::{Kit, Place, has};
use crate::progress::Progress;
use crate::results::{Account, Note};
use crate::signals;
use crate::tracer::{Availability, Tracer as _};
use crate::tracers::{Lttng, trackway};
use host::Host;
use ours::Ours;
use results::{FORMAT, Kind};
use theirs::Theirs;

/// What the user asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SessionsOptions {
    /// One minute instead of eight: to see that all works, not for figures.
    pub quick: bool,
    /// So many rounds, instead of five.
    pub rounds: Option<u32>,
    /// Start short-lived processes for so many seconds, instead of a minute.
    pub seconds: Option<u32>,
}

/// Rounds, if nothing else is asked for.
const ROUNDS: u32 = 5;
/// How long short-lived processes are started, in seconds, if nothing else is asked for.
const CROWD_S: u32 = 60;
/// CPUs of the large machine that an idle session's memory is looked at on, too.
const MANY_CPUS: u32 = 256;
/// Programs that emit while a session is followed, for each turn.
const LIVE_PROGRAMS_A_TURN: u64 = 10;
/// How long short-lived processes are started in a quick run, in seconds.
const QUICK_CROWD_S: u32 = 5;

impl SessionsOptions {
    fn rounds(self) -> u32 {
        self.rounds.unwrap_or(if self.quick { 1 } else { ROUNDS }).max(1)
    }

    fn crowd_seconds(self) -> u32 {
        self.seconds.unwrap_or(if self.quick { QUICK_CROWD_S } else { CROWD_S }).max(1)
    }

    /// How much a run of the first table does.
    const fn plan(self) -> cost::Plan {
        match self.quick {
            true => cost::Plan { batches: 20, bursts: 10 },
            false => cost::Plan { batches: 120, bursts: 40 },
        }
    }

    /// How often an event is switched on, and a session changed.
    const fn turns(self) -> u32 {
        if self.quick { 5 } else { 40 }
    }

    /// How long a recorder's time is watched, in seconds.
    const fn load_seconds(self) -> u32 {
        if self.quick { 1 } else { 3 }
    }
}

/// What is measured with, and what is said of it.
struct Bench<'place> {
    place: &'place Place,
    progress: Progress,
    ours: Ours<'place>,
    theirs: Option<Theirs<'place>>,
    notes: Vec<Note>,
}

/// Measures what sessions cost on this machine.
///
/// LTTng is skipped with a note where it is not installed; what fails is noted and left out from
/// then on. Catches SIGINT, SIGTERM and SIGHUP: all that was started is ended and all that was
/// made is removed before it returns.
///
/// # Errors
///
/// [`Error::Interrupted`] if one of those signals came; others if nothing can be measured at all.
pub fn run_sessions(options: &SessionsOptions) -> std::result::Result<SessionsResults, Error> {
    signals::catch();
    let executable =
        std::env::current_exe().map_err(Error::io("cannot find our own executable"))?;
    let machine = Machine::here();
    let place = Place::new(Kit::of(executable))?;
    let mut bench = Bench::set_up(&place)?;
    let costs = bench.costs(options)?;
    let switches = bench.switches(options)?;
    let loads = bench.loads(options)?;
    let graces = bench.graces(options)?;
    let live = bench.live(options)?;
    let crowds = bench.crowds(options)?;
    let idle = bench.idle()?;
    let notes = std::mem::take(&mut bench.notes);
    let mut results = SessionsResults {
        format: FORMAT,
        machine,
        rounds: options.rounds(),
        slopes: cost::slopes(&costs),
        costs,
        switches,
        loads,
        graces,
        live,
        crowds,
        idle,
        bars: Vec::new(),
        notes,
    };
    note_missing_events(&mut results);
    results.bars = results.all_bars();
    Ok(results)
}

impl<'place> Bench<'place> {
    fn set_up(place: &'place Place) -> Result<Self> {
        if let Availability::Missing(reason) = trackway::availability(&place.kit, has("cc")) {
            return Err(Error::output("Trackway", reason));
        }
        let progress = Progress::new();
        progress.say("setting up");
        let ours = Ours::set_up(place)?;
        let mut notes = Vec::new();
        let theirs = match Lttng::alone().availability(place) {
            Availability::Missing(reason) => {
                notes.push(Note::skipped(Who::Lttng.name(), &reason));
                None
            }
            Availability::Ready => noted(Theirs::set_up(place), Who::Lttng.name(), &mut notes)?,
        };
        Ok(Self { place, progress, ours, theirs, notes })
    }

    fn hosts(&self) -> Vec<&dyn Host> {
        let theirs = self.theirs.as_ref().map(|theirs| theirs as &dyn Host);
        [&self.ours as &dyn Host].into_iter().chain(theirs).collect()
    }

    /// Does something with a host; what fails is noted, and its sessions are ended.
    fn attempt<T>(
        &mut self,
        who: Who,
        what: &str,
        act: impl FnOnce(&Self, &dyn Host) -> Result<T>,
    ) -> Result<Option<T>> {
        self.progress.say(what);
        let hosts = self.hosts();
        let Some(&host) = hosts.iter().find(|host| host.who() == who) else { return Ok(None) };
        let done = act(self, host);
        if done.is_err() {
            host.clear();
        }
        noted(done, what, &mut self.notes)
    }

    fn costs(&mut self, options: &SessionsOptions) -> Result<Vec<SessionCost>> {
        let mut series: Vec<cost::Series> =
            self.hosts().iter().flat_map(|host| cost::series(host.who())).collect();
        let mut failed = vec![false; series.len()];
        for round in 1..=options.rounds() {
            for (one, failed) in series.iter_mut().zip(&mut failed) {
                if !*failed {
                    let what = format!("round {round}: {}", one.words());
                    let done = self.attempt(one.who, &what, |bench, host| {
                        one.run(host, bench.place, &options.plan())
                    })?;
                    *failed = done.is_none();
                }
                // A round that failed has no figure, so that the others' rounds stay side by side.
                one.rounds_ns.resize(round as usize, None);
            }
        }
        Ok(series.iter().filter_map(|one| one.cost(&series)).collect())
    }

    fn switches(&mut self, options: &SessionsOptions) -> Result<Vec<SwitchOn>> {
        let turns = options.turns();
        let mut found = Vec::new();
        for who in Who::ALL {
            let what = format!("{}: event on", who.name());
            found.extend(self.attempt(who, &what, |_, host| switch::by_command(host, turns))?);
        }
        let what = "Trackway: event on, by the socket";
        let done =
            self.attempt(Who::Trackway, what, |bench, _| switch::by_socket(&bench.ours, turns))?;
        found.extend(done);
        found.sort_by_key(|one| one.who == Who::Lttng);
        Ok(found)
    }

    fn loads(&mut self, options: &SessionsOptions) -> Result<Vec<Load>> {
        let mut series: Vec<load::Series> =
            self.hosts().iter().flat_map(|host| load::series(host.who())).collect();
        let mut failed = vec![false; series.len()];
        for round in 1..=options.rounds() {
            for (one, failed) in series.iter_mut().zip(&mut failed).filter(|(_, failed)| !**failed)
            {
                let what = format!("round {round}: {}", one.words());
                let seconds = options.load_seconds();
                let done = self.attempt(one.who, &what, |_, host| one.run(host, seconds))?;
                *failed = done.is_none();
            }
        }
        Ok(series.iter().filter_map(load::Series::load).collect())
    }

    fn graces(&mut self, options: &SessionsOptions) -> Result<Vec<Grace>> {
        let turns = options.turns();
        let mut found = Vec::new();
        for who in Who::ALL {
            let what = format!("{}: stop", who.name());
            found.extend(self.attempt(who, &what, |_, host| grace::stops(host, turns))?);
        }
        for change in
            [Change::StopBySocket, Change::ReplaceByCommand, Change::ReplaceBySocket, Change::Visit]
        {
            let what = format!("Trackway: {}", change.name());
            let done = self.attempt(Who::Trackway, &what, |bench, _| match change {
                Change::Visit => grace::visits(&bench.ours, turns),
                Change::StopByCommand | Change::StopBySocket => {
                    grace::stops_by_socket(&bench.ours, turns)
                }
                _ => grace::replacements(&bench.ours, turns, change),
            })?;
            found.extend(done);
        }
        Ok(found)
    }

    fn live(&mut self, options: &SessionsOptions) -> Result<Option<Live>> {
        let programs = u64::from(options.turns()) * LIVE_PROGRAMS_A_TURN;
        let what = "a session that is followed";
        self.attempt(Who::Trackway, what, |bench, _| live::measure(&bench.ours, programs))
    }

    fn crowds(&mut self, options: &SessionsOptions) -> Result<Vec<Crowd>> {
        let seconds = u64::from(options.crowd_seconds());
        let mut found = Vec::new();
        for starts in Starts::ALL {
            let what = format!("short-lived processes, {}", starts.name());
            found.extend(self.attempt(Who::Trackway, &what, |bench, _| {
                crowd::run(&bench.ours, bench.place, starts, seconds)
            })?);
        }
        Ok(found)
    }

    fn idle(&mut self) -> Result<Vec<IdleSession>> {
        let mut found = Vec::new();
        for who in Who::ALL {
            for kind in Kind::ALL {
                let what = format!("{}, {}: memory", who.name(), kind.name());
                found.extend(self.attempt(who, &what, |_, host| idle::measure(host, kind))?);
                if who == Who::Trackway {
                    let done = self.attempt(who, &what, |bench, _| {
                        idle::measure_as_if(&bench.ours, kind, MANY_CPUS)
                    })?;
                    found.extend(done);
                }
            }
        }
        Ok(found)
    }
}

/// What was done, or a note of why not; only an interruption goes on upward.
fn noted<T>(done: Result<T>, what: &str, notes: &mut Vec<Note>) -> Result<Option<T>> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(Error::Interrupted) => Err(Error::Interrupted),
        Err(error) => {
            notes.push(Note::failed(what, &error));
            Ok(None)
        }
    }
}

/// A figure whose events are not all accounted for is a failure, and said so.
fn note_missing_events(results: &mut SessionsResults) {
    let costs = results.costs.iter().filter_map(|cost| {
        let about =
            format!("{}, {} sessions, {}", cost.who.name(), cost.sessions, cost.kind.name());
        Some((about, cost.account?))
    });
    let loads = results.loads.iter().map(|load| {
        (format!("{}, {}: time of recorders", load.who.name(), load.kind.name()), load.account)
    });
    let crowds = results.crowds.iter().map(|crowd| {
        // A number that is there twice makes up for none that is missing.
        let recorded = crowd.account.recorded.saturating_sub(crowd.missing);
        let about = format!("short-lived processes, {}", crowd.starts.name());
        (about, Account { recorded, ..crowd.account })
    });
    let live = results.live.iter().map(|live| ("a session that is followed".into(), live.account));
    let all = costs.chain(loads).chain(live).chain(crowds);
    let missing: Vec<Note> = all
        .filter(|(_, account)| !account.is_complete())
        .map(|(about, account)| {
            let text = format!("events do not add up: {}", account.words());
            Note { about, text, is_failure: true }
        })
        .collect();
    results.notes.extend(missing);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::results::tests::example;

    #[test]
    fn events_that_do_not_add_up_are_failures() {
        let mut results = example();
        note_missing_events(&mut results);
        // Of LTTng's two sessions one is missing.
        let note = results.notes.last().expect("a note");
        assert_eq!(note.about, "LTTng-UST, 2 sessions, flight recorder");
        assert_eq!(
            note.text,
            "events do not add up: 1000 emitted, 399 recorded, 0 lost, 600 overwritten"
        );
        assert!(results.has_failures());
    }

    #[test]
    fn an_event_of_a_short_lived_process_that_is_missing_is_a_failure() {
        let mut results = example();
        results.costs.clear();
        note_missing_events(&mut results);
        assert!(!results.has_failures());
        results.crowds[0].missing = 1;
        note_missing_events(&mut results);
        assert!(results.has_failures());
    }

    #[test]
    fn a_quick_run_is_short_unless_something_else_is_asked_for() {
        let quick = SessionsOptions { quick: true, ..SessionsOptions::default() };
        assert_eq!((quick.rounds(), quick.crowd_seconds()), (1, 5));
        let long = SessionsOptions { rounds: Some(0), seconds: Some(300), ..quick };
        assert_eq!((long.rounds(), long.crowd_seconds()), (1, 300));
        assert_eq!(SessionsOptions::default().crowd_seconds(), 60);
    }
}
