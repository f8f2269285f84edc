//! All tracers, case by case and round by round.
//!
//! A machine's speed wanders with its temperature, its neighbours and its host. So tracers take
//! turns within each case, and a figure is the median over rounds that are minutes' work apart,
//! never one long run per tracer.

use std::time::{Duration, Instant};

use crate::bars;
use crate::case::{Case, Plan};
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::place::{Kit, Place};
use crate::progress::Progress;
use crate::results::{Account, Cell, FORMAT, Note, Results};
use crate::sections;
use crate::signals;
use crate::stats::Spread;
use crate::tracer::{Availability, Tracer};
use crate::tracers;
use crate::workload::Batch;

/// What the user asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// About ten seconds instead of a minute: enough to see that all works, not for figures.
    pub quick: bool,
    /// So many rounds; else as many as there is time for.
    pub rounds: Option<u32>,
    /// Only tracers whose name contains this, in whatever case.
    pub only: Option<String>,
}

/// Time for the table, in seconds; the other sections take some fifteen more.
const TABLE_S: u64 = 45;
/// Most rounds that are made on our own account.
const ROUNDS_MAX: u32 = 30;
/// Fewest, so that there is a spread.
const ROUNDS_MIN: u32 = 3;

impl Options {
    /// How much each run does. The warm-up goes round the ring, so that each of its pages has
    /// been touched before anything counts.
    const fn plan(&self) -> Plan {
        Plan { warm_up: 20, batches: if self.quick { 20 } else { 120 } }
    }

    fn has_time(&self, rounds: u32, elapsed: Duration) -> bool {
        match self.rounds {
            Some(wanted) => rounds < wanted.max(1),
            None if self.quick => rounds < 1,
            None if rounds < ROUNDS_MIN => true,
            None => rounds < ROUNDS_MAX && elapsed < Duration::from_secs(TABLE_S),
        }
    }

    fn wants(&self, name: &str) -> bool {
        let pattern = self.only.as_deref().unwrap_or_default().to_lowercase();
        name.to_lowercase().contains(&pattern)
    }
}

/// A tracer that is measured, until it fails.
pub(crate) struct Contestant {
    /// The adapter.
    pub(crate) tracer: Box<dyn Tracer>,
    /// Whether it still takes part.
    pub(crate) is_in: bool,
}

/// What was measured of one tracer in one case.
struct Series {
    contestant: usize,
    case: Case,
    rounds_ns: Vec<f64>,
    batches_ns: Vec<f64>,
    account: Option<Account>,
}

/// Measures what tracing costs on this machine.
///
/// Tracers that are not installed are skipped with a note; those that fail are noted and left out
/// from then on. Catches SIGINT, SIGTERM and SIGHUP: all that was started is ended and all that
/// was made is removed before it returns.
///
/// # Errors
///
/// [`Error::Interrupted`] if one of those signals came; others if nothing can be measured at all.
pub fn run(options: &Options) -> std::result::Result<Results, Error> {
    signals::catch();
    let executable =
        std::env::current_exe().map_err(Error::io("cannot find our own executable"))?;
    let machine = Machine::here();
    let place = Place::new(Kit::of(executable))?;
    let progress = Progress::new();
    let mut notes = Vec::new();
    let mut contestants = enter(options, &place, &progress, &mut notes);
    let measured = measure(options, &place, machine, &progress, &mut contestants, notes);
    for contestant in &mut contestants {
        contestant.tracer.tear_down();
    }
    measured
}

/// Sets up all tracers that are wanted and can be.
fn enter(
    options: &Options,
    place: &Place,
    progress: &Progress,
    notes: &mut Vec<Note>,
) -> Vec<Contestant> {
    let mut contestants = Vec::new();
    for mut tracer in tracers::all() {
        if !options.wants(tracer.name()) || signals::stopped() {
            continue;
        }
        progress.say(&format!("setting up {}", tracer.name()));
        let note = match tracer.availability(place) {
            Availability::Missing(reason) => Some(Note::skipped(tracer.name(), &reason)),
            Availability::Ready => {
                let failed = tracer.set_up(place).err();
                failed.map(|error| Note::failed(tracer.name(), &error))
            }
        };
        let is_in = note.is_none();
        notes.extend(note);
        contestants.push(Contestant { tracer, is_in });
    }
    contestants
}

fn measure(
    options: &Options,
    place: &Place,
    machine: Machine,
    progress: &Progress,
    contestants: &mut [Contestant],
    mut notes: Vec<Note>,
) -> Result<Results> {
    let mut series = all_series(contestants, machine.cpus);
    let begin = Instant::now();
    let mut rounds = 0;
    while options.has_time(rounds, begin.elapsed()) && !series.is_empty() {
        rounds += 1;
        for one in &mut series {
            let contestant = &mut contestants[one.contestant];
            if contestant.is_in {
                let name = contestant.tracer.name();
                progress.say(&format!("round {rounds}: {name}: {}", one.case.words()));
                let done = turn(contestant.tracer.as_mut(), place, &options.plan(), one);
                keep(done, contestant, &mut notes)?;
            }
        }
    }
    let more = sections::measure(options.quick, place, progress, contestants, &mut notes)?;
    let mut results = Results {
        format: FORMAT,
        machine,
        rounds,
        cells: series.iter().filter_map(|one| one.cell(contestants)).collect(),
        startup: more.startup,
        flows: more.flows,
        memory: more.memory,
        bars: Vec::new(),
        notes,
    };
    note_missing_events(&mut results);
    results.bars = bars::all(&results);
    Ok(results)
}

/// What was done, or a note of why not; only an interruption goes on upward.
pub(crate) fn keep<T>(
    done: Result<T>,
    contestant: &mut Contestant,
    notes: &mut Vec<Note>,
) -> Result<Option<T>> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(Error::Interrupted) => Err(Error::Interrupted),
        Err(error) => {
            contestant.is_in = false;
            notes.push(Note::failed(contestant.tracer.name(), &error));
            Ok(None)
        }
    }
}

/// Case by case, so that the tracers of one case run one right after another.
fn all_series(contestants: &[Contestant], cpus: usize) -> Vec<Series> {
    let mut series = Vec::new();
    for case in Case::columns(cpus).into_iter().chain(Case::APART) {
        for (contestant, entry) in contestants.iter().enumerate() {
            if entry.is_in && entry.tracer.supports(&case) {
                let (rounds_ns, batches_ns) = (Vec::new(), Vec::new());
                series.push(Series { contestant, case, rounds_ns, batches_ns, account: None });
            }
        }
    }
    series
}

/// One run.
fn turn(tracer: &mut dyn Tracer, place: &Place, plan: &Plan, series: &mut Series) -> Result<()> {
    let batches = tracer.run(place, &series.case, plan)?;
    let counted = batches.iter().filter(|batch| batch.number >= plan.warm_up);
    let batches_ns: Vec<f64> = counted.map(Batch::event_ns).collect();
    if let Some(account) = tracer.read_back(place)? {
        series.account.get_or_insert_default().add(&account);
    }
    series.rounds_ns.extend(Spread::of(&batches_ns).map(|spread| spread.median));
    series.batches_ns.extend(batches_ns);
    Ok(())
}

impl Series {
    fn cell(&self, contestants: &[Contestant]) -> Option<Cell> {
        Some(Cell {
            tracer: contestants[self.contestant].tracer.name().to_owned(),
            case: self.case,
            rounds_ns: Spread::of(&self.rounds_ns)?,
            batches_ns: Spread::of(&self.batches_ns)?,
            account: self.account,
        })
    }
}

/// A figure whose events are not all accounted for is a failure, and said so.
fn note_missing_events(results: &mut Results) {
    let cells = results
        .cells
        .iter()
        .filter_map(|cell| Some((cell.tracer.as_str(), cell.case.words(), cell.account?)));
    let flows = results
        .flows
        .iter()
        .map(|flow| (flow.tracer.as_str(), "at full speed".to_owned(), flow.account));
    let missing = cells.chain(flows).filter(|(_, _, account)| !account.is_complete());
    let notes: Vec<Note> = missing
        .map(|(tracer, what, account)| {
            let message = format!("{what}: events do not add up: {}", account.words());
            Note { about: tracer.to_owned(), text: message, is_failure: true }
        })
        .collect();
    results.notes.extend(notes);
}

impl Note {
    /// Something is not here, or cannot be.
    pub(crate) fn skipped(about: &str, reason: &str) -> Self {
        let text = format!("skipped, because {reason}");
        Self { about: about.to_owned(), text, is_failure: false }
    }

    /// Something should have worked.
    pub(crate) fn failed(about: &str, error: &Error) -> Self {
        let text = format!("failed: {error}");
        Self { about: about.to_owned(), text, is_failure: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_bounded_by_time_or_by_wish() {
        let (soon, late) = (Duration::from_secs(1), Duration::from_secs(1000));
        let options = Options::default();
        assert!(options.has_time(29, soon) && !options.has_time(30, soon));
        assert!(options.has_time(2, late) && !options.has_time(3, late));
        let wished = Options { rounds: Some(5), ..Options::default() };
        assert!(wished.has_time(4, late) && !wished.has_time(5, soon));
        let quick = Options { quick: true, ..Options::default() };
        assert!(quick.has_time(0, late) && !quick.has_time(1, soon));
    }

    #[test]
    fn patterns_choose_tracers() {
        let options = Options { only: Some("trackway".to_owned()), ..Options::default() };
        assert!(options.wants("Trackway, claim") && !options.wants("rdtsc"));
        assert!(Options::default().wants("rdtsc"));
    }

    #[test]
    fn events_that_do_not_add_up_are_failures() {
        let mut results = crate::results::tests::example();
        note_missing_events(&mut results);
        assert!(!results.has_failures());
        results.flows[0].account.lost -= 1;
        note_missing_events(&mut results);
        let note = results.notes.last().expect("a note");
        assert_eq!(
            note.text,
            "at full speed: events do not add up: 1000 emitted, 400 recorded, 599 lost, 0 \
             overwritten"
        );
        assert!(results.has_failures());
    }
}
