//! The cases of Letaief's thesis: the duration of a routine that is bare, traced, next to an event
//! that is not hit, and instrumented without a session. Each duration is measured separately, and
//! all durations are kept.
//!
//! Main invariant: only the routine runs between two readings of the processor's counter, and every
//! case has the same loop, compiled with the same flags. The same loop around nothing measures the
//! cost of reading the counter in the same turn. This cost is subtracted: so *bare* must be zero.

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::child;
use trackway_bench_engine::host::workload::parse_numbers;
use trackway_bench_engine::host::workspace::Workspace;
use trackway_bench_engine::results::{Account, Unit};
use trackway_bench_engine::settings::Settings;
use trackway_bench_engine::single_events::SingleEvents;
use trackway_bench_engine::suite::{About, Entry, Sample, Suite, SuiteContext};

use super::programs::{Conditions, LinkedLibrary, Programs, Storage};
use crate::tracers::probed::{ProbedCommand, Prober};
use crate::tracers::{FLOW_BYTES, name};

/// Name of the suite.
const SUITE_NAME: &str = "cases";
/// Events between two pauses. The pauses let recorders to disk keep up: a buffer has room for
/// twenty times as many events.
const BURST_EVENTS: u64 = 10_000;
/// Events between two pauses if each event is a breakpoint, which takes ten times as long.
const BURST_HIT_EVENTS: u64 = 1_000;
/// Length of a pause, in µs.
const PAUSE_US: u64 = 2_000;
/// Bursts of a turn.
const BURSTS: u64 = 30;
const BURSTS_QUICK: u64 = 5;
/// Events that a program emits before a loop without events.
const NOT_HIT_EVENTS: u64 = 100;

/// A case of the thesis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    /// Case 0: nothing is instrumented, and no tracer runs.
    Bare,
    /// Case 1: the loop has an event, which is recorded to disk.
    Active,
    /// Case 2: the program has a recorded event before the loop; the loop has none.
    NotHit,
    /// Case 3: the loop has an event, and the program is linked with the library, but there is no
    /// session.
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
    linked: LinkedLibrary,
    case: Case,
    /// Name of the work in the program.
    work: &'static str,
    is_claim: bool,
    /// The tracer that puts a breakpoint on the probe, if the events come from a probe.
    prober: Option<Prober>,
}

impl Turn {
    const fn new(
        tracer: &'static str,
        linked: LinkedLibrary,
        case: Case,
        work: &'static str,
    ) -> Self {
        Self { tracer, linked, case, work, is_claim: false, prober: None }
    }

    /// Makes the turn of a tracer that puts a breakpoint on a probe.
    const fn probed(prober: Prober, case: Case, work: &'static str) -> Self {
        let turn = Self::new(prober.name(), LinkedLibrary::Nothing, case, work);
        Self { prober: Some(prober), ..turn }
    }

    /// Returns the tracer that puts a breakpoint on the probe in this case.
    fn attached(self) -> Option<Prober> {
        self.prober.filter(|_| self.case != Case::Off)
    }

    /// Returns the number of events between two pauses.
    fn burst(self) -> u64 {
        let is_hit = self.case == Case::Active && self.prober.is_some();
        if is_hit { BURST_HIT_EVENTS } else { BURST_EVENTS }
    }

    /// Returns the number of recorded events of a run, including the first burst, which warms up.
    fn emitted(self, bursts: u64) -> u64 {
        if self.case == Case::NotHit { NOT_HIT_EVENTS } else { (bursts + 1) * self.burst() }
    }

    const fn conditions(self) -> Conditions {
        let storage = match self.case {
            Case::Bare | Case::Off => Storage::Off,
            Case::Active | Case::NotHit => Storage::File,
        };
        Conditions { linked: self.linked, storage, is_claim: self.is_claim }
    }

    const fn program(self) -> &'static str {
        match self.linked {
            LinkedLibrary::Nothing if self.prober.is_some() => "cases-usdt",
            LinkedLibrary::Nothing => "cases-bare",
            LinkedLibrary::Trackway => "cases-trackway",
            LinkedLibrary::Lttng => "cases-lttng",
        }
    }
}

/// Returns all turns, in the order of their rows.
fn list_turns() -> Vec<Turn> {
    let (ours, theirs) = (LinkedLibrary::Trackway, LinkedLibrary::Lttng);
    let mut turns = vec![Turn::new("none", LinkedLibrary::Nothing, Case::Bare, "bare")];
    for (tracer, linked) in [(name::TRACKWAY, ours), (name::LTTNG, theirs)] {
        turns.push(Turn::new(tracer, linked, Case::Active, "event"));
        turns.push(Turn::new(tracer, linked, Case::NotHit, "not-hit"));
        turns.push(Turn::new(tracer, linked, Case::Off, "event"));
    }
    for prober in [Prober::Ftrace, Prober::Perf, Prober::Bpftrace] {
        turns.push(Turn::probed(prober, Case::Active, "event"));
        turns.push(Turn::probed(prober, Case::NotHit, "not-hit"));
        turns.push(Turn::probed(prober, Case::Off, "event"));
    }
    let claim = Turn::new(name::TRACKWAY_CLAIM, ours, Case::Active, "event");
    turns.push(Turn { is_claim: true, ..claim });
    // The thesis's own event is a formatted message.
    for (tracer, linked) in [("trackway-printf", ours), (name::TRACEF, theirs)] {
        turns.push(Turn::new(tracer, linked, Case::Active, "message"));
        turns.push(Turn::new(tracer, linked, Case::Off, "message"));
    }
    turns
}

/// The suite `cases`.
#[derive(Debug, Default)]
pub(crate) struct Cases {
    programs: Programs,
    rows: Vec<Turn>,
}

impl Cases {
    /// Compiles the program of a turn; the entry has the reason if the turn is not possible.
    fn set_up(&mut self, context: &SuiteContext<'_>, turn: Turn) -> Result<Entry> {
        context.progress.show_step(&format!("setting up {}", turn.tracer));
        let absent = match turn.prober {
            Some(prober) => prober.absence(context.workspace),
            None => Programs::absence(context.workspace, turn.linked),
        };
        if absent.is_some() {
            return Ok(Entry { absent, ..Entry::default() });
        }
        match self.programs.set_up(context.workspace, turn.linked, turn.program()) {
            Ok(_) => Ok(Entry::default()),
            Err(Error::Interrupted) => Err(Error::Interrupted),
            Err(error) => Ok(Entry { failed: Some(error.to_string()), ..Entry::default() }),
        }
    }

    /// Runs a turn's program; returns its output and the account of its events.
    fn run(
        &self,
        workspace: &Workspace,
        turn: Turn,
        bursts: u64,
    ) -> Result<(String, Option<Account>)> {
        let program = workspace.path(turn.program()).display().to_string();
        let [count, burst, pause] =
            [bursts, turn.burst(), PAUSE_US].map(|number| number.to_string());
        let words = [program, turn.work.to_owned(), count, burst, pause];
        if let Some(prober) = turn.attached() {
            let (emitted, buffer_kib) = (turn.emitted(bursts), FLOW_BYTES >> 10);
            let probed = ProbedCommand { before: &[], words: &words, emitted, buffer_kib };
            return prober.run(workspace, &probed).map(|(output, account)| (output, Some(account)));
        }
        let (conditions, words) = (turn.conditions(), words.each_ref().map(String::as_str));
        let mut command = self.programs.prepare_command(workspace, conditions, &words)?;
        let finished = child::run(&mut command, turn.tracer)?;
        let (emitted, _) = split_output(&finished.stdout)?;
        let account = self.programs.finish_run(workspace, conditions, emitted)?;
        Ok((finished.stdout, account))
    }

    /// Sets Trackway's row of the same work as the baseline of each recorded row. Rows that are
    /// zero except for noise get no ratio. Returns the index of Trackway's first row.
    fn set_baselines(&self, entries: &mut [Entry]) -> Option<usize> {
        let is_active = |turn: &Turn| turn.case == Case::Active;
        for (entry, turn) in entries.iter_mut().zip(&self.rows).filter(|one| is_active(one.1)) {
            let is_first = |other: &Turn| is_active(other) && other.work == turn.work;
            let first = self.rows.iter().position(is_first);
            entry.baseline = first.filter(|&first| self.rows[first] != *turn);
        }
        self.rows.iter().position(is_active)
    }
}

impl Suite for Cases {
    fn about(&self) -> About {
        About {
            name: SUITE_NAME,
            title: "What a routine takes: bare, traced, not hit, off",
            repeats: "thesis, Table 3.1, Figures 3.1 and 3.2",
            unit: Unit::Ns,
            x_axis: "",
        }
    }

    fn seconds(&self, settings: &Settings) -> f64 {
        if settings.quick { 10.0 } else { 130.0 }
    }

    fn tracers(&self) -> Vec<&'static str> {
        list_turns().iter().map(|turn| turn.tracer).collect()
    }

    fn enter(&mut self, context: &SuiteContext<'_>) -> Result<Vec<Entry>> {
        let is_wanted = |turn: &Turn| {
            let is_first = turn.tracer == name::TRACKWAY && turn.case == Case::Active;
            turn.case == Case::Bare || is_first || context.settings.wants(turn.tracer)
        };
        let mut entries = Vec::new();
        for turn in list_turns().into_iter().filter(is_wanted) {
            entries.push(Entry {
                tracer: turn.tracer.to_owned(),
                case: turn.case.words().to_owned(),
                records: turn.conditions().storage != Storage::Off,
                command: format!("trackway bench {SUITE_NAME} --tracers {}", turn.tracer),
                ..self.set_up(context, turn)?
            });
            self.rows.push(turn);
        }
        let first = self.set_baselines(&mut entries);
        if let Some(first) = first.filter(|&first| entries[first].can_be_measured()) {
            let tracer = format!("{} again", entries[first].tracer);
            let control = Entry { tracer, is_control: true, ..entries[first].clone() };
            entries.push(Entry { baseline: Some(first), ..control });
            self.rows.push(self.rows[first]);
        }
        Ok(entries)
    }

    fn sample(&mut self, context: &SuiteContext<'_>, row: usize) -> Result<Sample> {
        let turn = self.rows[row];
        let bursts = if context.settings.quick { BURSTS_QUICK } else { BURSTS };
        let (output, account) = self.run(context.workspace, turn, bursts)?;
        let (emitted, singles) = split_output(&output)?;
        if let Some(account) = account.filter(|account| account.emitted != emitted) {
            let message = format!("{emitted} events were emitted: {}", account.words());
            return Err(Error::output(turn.tracer, message));
        }
        let singles = SingleEvents::parse(singles, bursts * turn.burst())?;
        Ok(Sample { account, ..singles.sample() })
    }

    fn leave(&mut self) {
        *self = Self::default();
    }
}

/// Splits a program's output into the number of events and the report on the timed events.
fn split_output(output: &str) -> Result<(u64, &str)> {
    let (first, rest) = output.split_once('\n').unwrap_or((output, ""));
    let [emitted] = parse_numbers(first, "emitted")?;
    Ok((emitted, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::SOURCES;

    #[test]
    fn each_tracer_is_in_the_thesiss_cases() {
        let cases_of = |tracer: &str| {
            let turns = list_turns().into_iter().filter(move |turn| turn.tracer == tracer);
            turns.map(|turn| turn.case).collect::<Vec<Case>>()
        };
        let probers = [Prober::Ftrace, Prober::Perf, Prober::Bpftrace].map(Prober::name);
        for tracer in [name::TRACKWAY, name::LTTNG].into_iter().chain(probers) {
            assert_eq!(cases_of(tracer), [Case::Active, Case::NotHit, Case::Off]);
        }
        assert_eq!(list_turns()[0].case, Case::Bare);
    }

    #[test]
    fn programs_have_the_works_that_are_asked_for() {
        for turn in list_turns() {
            let name = format!("{}.c", turn.program());
            let mut sources = SOURCES.iter();
            let source = sources.find(|source| source.name == name).expect("a source");
            assert!(source.text.contains(&format!("{{\"{}\",", turn.work)), "{turn:?}");
        }
    }

    #[test]
    fn only_what_takes_time_is_told_in_terms_of_something() {
        let rows = list_turns();
        let mut entries = vec![Entry::default(); rows.len()];
        let suite = Cases { rows, ..Cases::default() };
        assert_eq!(suite.set_baselines(&mut entries), Some(1));
        let told = entries.iter().zip(&suite.rows).filter_map(|(entry, turn)| {
            let other = suite.rows[entry.baseline?];
            Some((turn.tracer, other.tracer, turn.case == other.case))
        });
        let expected = [
            (name::LTTNG, name::TRACKWAY, true),
            (name::FTRACE_UPROBE, name::TRACKWAY, true),
            (name::PERF, name::TRACKWAY, true),
            (name::BPFTRACE, name::TRACKWAY, true),
            (name::TRACKWAY_CLAIM, name::TRACKWAY, true),
            (name::TRACEF, "trackway-printf", true),
        ];
        assert_eq!(told.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_is_emitted_comes_before_what_is_timed() {
        let text = "emitted 3\ntiming 1 2\nsingle 1 2\n";
        assert_eq!(split_output(text).expect("both"), (3, "timing 1 2\nsingle 1 2\n"));
        assert_eq!(split_output("emitted 3").expect("one"), (3, ""));
        assert!(split_output("timing 1 2\n").is_err());
    }

    #[test]
    fn a_breakpoint_is_hit_fewer_times_and_only_where_somebody_put_it() {
        let turn = |case| Turn::probed(Prober::Ftrace, case, "event");
        let [active, not_hit, off] = [Case::Active, Case::NotHit, Case::Off].map(turn);
        assert_eq!(
            (active.burst(), active.emitted(BURSTS)),
            (BURST_HIT_EVENTS, 31 * BURST_HIT_EVENTS)
        );
        assert_eq!((not_hit.burst(), not_hit.emitted(BURSTS)), (BURST_EVENTS, NOT_HIT_EVENTS));
        let attached = [active, not_hit, off].map(|turn| turn.attached().is_some());
        assert_eq!(attached, [true, true, false]);
        let works = SOURCES.iter().filter(|one| one.name.starts_with("cases-"));
        let has_some = |text: &str| text.contains(&format!("lab_bare, {NOT_HIT_EVENTS}}}"));
        assert_eq!(works.filter(|one| has_some(one.text)).count(), 3);
    }
}
