//! Isolated filters, without an event around them: all contestants evaluate one question for one
//! event, in turns.
//!
//! Main invariants: the contestants of one chain are measured together, in interleaved batches, and
//! each row takes its figure from that measurement; a contestant with a wrong answer has no figure.

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::affinity::run_on_cpu;
use trackway_bench_engine::host::machine::allowed_cpus;
use trackway_bench_engine::host::workspace::Workspace;
use trackway_bench_engine::settings::Settings;
use trackway_bench_engine::stats::Spread;
use trackway_bench_engine::suite::Entry;

use super::chains::{Chain, Operands, Runner, predicates_words};
use super::contest::{
    self, Batch, HAS_MACHINE_CODE, PreparedQuestion, find_batch_calls, measure_call_ns,
    run_with_empty_frame,
};
use super::peer::{self, CLibrary};
use super::questions::Question;

/// Batches of a contestant in a round.
const BATCHES: usize = 5;
const BATCHES_QUICK: usize = 2;
/// The chain that is measured a second time.
const CONTROL_CHAIN: (Operands, Chain, usize) = (Operands::Integers, Chain::AndTrue, 9);
/// The row of a call of an empty function.
pub(super) const EMPTY_CALL: &str = "call-of-nothing";

/// A chain that contestants evaluate.
struct Contest {
    operands: Operands,
    chain: Chain,
    predicates: usize,
    /// Contestants of the chain, one for each row.
    answerers: Vec<Answerer>,
    /// Number of measurements.
    rounds: usize,
}

/// A contestant of a chain.
struct Answerer {
    runner: Runner,
    /// Calls of a batch; 0 if not determined yet.
    calls: u64,
    /// The latest measurement until a row takes it, in ns of a call.
    found: Option<Result<f64>>,
}

/// The measurement of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// A call of an empty function.
    Empty,
    /// A contestant in a contest.
    Answer { contest: usize, answerer: usize },
}

/// All rows of isolated filters.
pub(super) struct IsolatedFilters {
    peer: Option<CLibrary>,
    contests: Vec<Contest>,
    empty_calls: u64,
    batches: usize,
    cpus: Vec<usize>,
}

impl Contest {
    const fn question(&self) -> Question {
        Question::of(self.operands, self.chain, self.predicates)
    }

    fn case(&self) -> String {
        case_name(self.operands, self.chain, self.predicates)
    }
}

/// Returns the name of a chain's case.
pub(super) fn case_name(operands: Operands, chain: Chain, predicates: usize) -> String {
    format!("{}, {}, {}", operands.name(), chain.name(), predicates_words(predicates))
}

/// The reasons for missing C contestants.
#[derive(Default)]
struct MissingContestants {
    /// The reason if there is no C compiler.
    compiler: Option<String>,
    /// The reason if the C compiler has failed.
    failure: Option<String>,
}

impl MissingContestants {
    fn absent(&self, runner: Runner) -> Option<String> {
        let no_code = runner.is_code() && !HAS_MACHINE_CODE;
        let no_code = no_code.then(|| "machine code is made for x86-64 only".to_owned());
        no_code.or_else(|| self.compiler.clone().filter(|_| runner == Runner::C))
    }

    fn failed(&self, runner: Runner) -> Option<String> {
        self.failure.clone().filter(|_| runner == Runner::C)
    }
}

impl IsolatedFilters {
    /// Compiles the questions, checks all contestants' answers, and returns the rows.
    pub(super) fn enter(
        workspace: &Workspace,
        settings: &Settings,
        counts: &[usize],
    ) -> Result<(Self, Vec<(Entry, Turn)>)> {
        let mut isolated = Self {
            peer: None,
            contests: list_contests(counts),
            empty_calls: 0,
            batches: if settings.quick { BATCHES_QUICK } else { BATCHES },
            cpus: allowed_cpus()?,
        };
        let mut missing_contestants = MissingContestants::default();
        let runners = selected_runners(settings);
        match peer::find_compiler() {
            _ if !runners.contains(&Runner::C) => {}
            None => {
                missing_contestants.compiler = Some("neither clang nor cc is installed".to_owned())
            }
            Some(compiler) => match CLibrary::new(compiler, workspace, &isolated.questions()) {
                Ok(peer) => isolated.peer = Some(peer),
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) => missing_contestants.failure = Some(error.to_string()),
            },
        }
        let mut rows = Vec::new();
        if settings.wants(EMPTY_CALL) {
            rows.push((build_entry(EMPTY_CALL, "nothing is asked".to_owned(), None), Turn::Empty));
        }
        rows.extend(isolated.rows_of_chains(&runners, &missing_contestants)?);
        for runner in runners.into_iter().filter(|runner| runner.is_rbpf()) {
            let absent = Some("it has other helpers for strings".to_owned());
            let entry = build_entry(runner.name(), "strings".to_owned(), None);
            rows.push((Entry { absent, ..entry }, Turn::Empty));
        }
        Ok((isolated, rows))
    }

    /// Returns the questions of all contests, each once.
    fn questions(&self) -> Vec<Question> {
        let mut all = Vec::new();
        for question in self.contests.iter().map(Contest::question) {
            if !all.contains(&question) {
                all.push(question);
            }
        }
        all
    }

    fn rows_of_chains(
        &mut self,
        runners: &[Runner],
        missing_contestants: &MissingContestants,
    ) -> Result<Vec<(Entry, Turn)>> {
        let wrong = self.wrong_answers(runners, missing_contestants)?;
        let mut rows = Vec::new();
        for (number, contest) in self.contests.iter_mut().enumerate() {
            let (question, case) = (contest.question(), contest.case());
            let takes_part =
                |runner: &&Runner| contest.operands == Operands::Integers || !runner.is_rbpf();
            let mut taking_part: Vec<Runner> = runners.iter().filter(takes_part).copied().collect();
            let is_twice = (contest.operands, contest.chain, contest.predicates) == CONTROL_CHAIN;
            if is_twice && runners.contains(&Runner::Compiled) {
                taking_part.push(Runner::Compiled);
            }
            for (answerer, &runner) in taking_part.iter().enumerate() {
                let is_control = taking_part[..answerer].contains(&runner);
                let again = if is_control { " again" } else { "" };
                let name = format!("{}{again}", runner.name());
                let found = wrong.iter().find(|one| (one.0, one.1) == (question, runner));
                let entry = Entry {
                    absent: missing_contestants.absent(runner),
                    failed: missing_contestants
                        .failed(runner)
                        .or_else(|| found.map(|one| one.2.clone())),
                    is_control,
                    ..build_entry(&name, case.clone(), Some(contest.predicates))
                };
                rows.push((entry, Turn::Answer { contest: number, answerer }));
            }
            let new = |runner| Answerer { runner, calls: 0, found: None };
            contest.answerers = taking_part.into_iter().map(new).collect();
        }
        Ok(rows)
    }

    /// Returns the contestants with wrong answers, and the chain of each, before the measurement.
    fn wrong_answers(
        &self,
        runners: &[Runner],
        missing_contestants: &MissingContestants,
    ) -> Result<Vec<(Question, Runner, String)>> {
        let mut wrong = Vec::new();
        for question in self.questions() {
            let prepared = PreparedQuestion::new(question, self.peer.as_ref())?;
            let can = |runner: &&Runner| {
                missing_contestants
                    .absent(**runner)
                    .or(missing_contestants.failed(**runner))
                    .is_none()
                    && (question.operands == Operands::Integers || !runner.is_rbpf())
            };
            for &runner in runners.iter().filter(can) {
                check_not_interrupted()?;
                if let Err(error) = contest::check_answers(&prepared, runner) {
                    wrong.push((question, runner, error.to_string()));
                }
            }
        }
        Ok(wrong)
    }

    /// Returns this round's figure of a row, in ns of a call.
    pub(super) fn sample(&mut self, turn: Turn) -> Result<f64> {
        check_not_interrupted()?;
        match turn {
            Turn::Empty => self.empty(),
            Turn::Answer { contest, answerer } => self.answer(contest, answerer),
        }
    }

    fn empty(&mut self) -> Result<f64> {
        let (calls, batches) = (&mut self.empty_calls, self.batches);
        run_with_empty_frame(|batch| {
            warm_up(batch, calls, true)?;
            let figures = (0..batches).map(|_| measure_call_ns(batch, *calls, true));
            median_figure(&figures.collect::<Result<Vec<f64>>>()?)
        })
    }

    fn answer(&mut self, contest: usize, answerer: usize) -> Result<f64> {
        let missing = || Error::output("the contest", "there is no such row");
        let contest = self.contests.get_mut(contest).ok_or_else(missing)?;
        let found = contest.answerers.get_mut(answerer).and_then(|answerer| answerer.found.take());
        if let Some(found) = found {
            return found;
        }
        // The first sampled row of this chain in this round measures all contestants.
        let cpu = self.cpus.get(contest.rounds % self.cpus.len().max(1)).copied();
        let (peer, batches) = (self.peer.as_ref(), self.batches);
        run_on_cpu(cpu.unwrap_or_default(), || contest.measure(peer, batches))?;
        let found = contest.answerers.get_mut(answerer).and_then(|answerer| answerer.found.take());
        found.ok_or_else(missing)?
    }
}

impl Contest {
    /// Runs batches of the contestants in turns; each turn and each round begins with another
    /// contestant.
    fn measure(&mut self, peer: Option<&CLibrary>, batches: usize) -> Result<()> {
        let question = self.question();
        let truths = self.chain.truths(self.predicates);
        let (event, answer) = (question.event(&truths), question.answer(&truths));
        let prepared = PreparedQuestion::new(question, peer)?;
        let can = |answerer: &Answerer| match answerer.runner {
            Runner::C => peer.is_some(),
            runner => HAS_MACHINE_CODE || !runner.is_code(),
        };
        let round = self.rounds;
        self.rounds += 1;
        let mut answerers: Vec<&mut Answerer> =
            self.answerers.iter_mut().filter(|answerer| can(answerer)).collect();
        let runners: Vec<Runner> = answerers.iter().map(|answerer| answerer.runner).collect();
        prepared.run_with_runners(&event, &runners, |contestants| {
            let count = contestants.len();
            let mut figures: Vec<Result<Vec<f64>>> = Vec::with_capacity(count);
            for (answerer, batch) in answerers.iter_mut().zip(contestants.iter_mut()) {
                figures.push(warm_up(batch, &mut answerer.calls, answer).map(|()| Vec::new()));
            }
            for turn in 0..batches * count {
                let this = (turn + turn / count + round) % count;
                if let Ok(so_far) = &mut figures[this] {
                    match measure_call_ns(&mut contestants[this], answerers[this].calls, answer) {
                        Ok(ns) => so_far.push(ns),
                        Err(error) => figures[this] = Err(error),
                    }
                }
            }
            for (answerer, figures) in answerers.iter_mut().zip(figures) {
                answerer.found = Some(figures.and_then(|figures| median_figure(&figures)));
            }
            Ok(())
        })
    }
}

/// Runs a batch that is not counted; the first call also determines the size of batches.
fn warm_up(batch: &mut Batch<'_>, calls: &mut u64, answer: bool) -> Result<()> {
    if *calls == 0 {
        *calls = find_batch_calls(batch, answer)?;
    }
    measure_call_ns(batch, *calls, answer).map(|_| ())
}

/// Returns the median of a round's figures.
fn median_figure(figures: &[f64]) -> Result<f64> {
    let spread = Spread::of(figures).ok_or_else(|| Error::output("the loop", "no batch"))?;
    Ok(spread.median)
}

/// Returns the selected contestants; C is always included as the baseline, if any are selected.
fn selected_runners(settings: &Settings) -> Vec<Runner> {
    let wants = |runner: &Runner| settings.wants(runner.name());
    let mut runners: Vec<Runner> = Runner::ALL.into_iter().filter(wants).collect();
    if !runners.is_empty() && !runners.contains(&Runner::C) {
        runners.insert(0, Runner::C);
    }
    runners
}

/// Returns all contests, for chains with these numbers of predicates.
fn list_contests(counts: &[usize]) -> Vec<Contest> {
    let mut all = Vec::new();
    for operands in Operands::ALL {
        for chain in Chain::ALL {
            for &predicates in counts.iter().filter(|count| chain.is_of(**count)) {
                let answerers = Vec::new();
                all.push(Contest { operands, chain, predicates, answerers, rounds: 0 });
            }
        }
    }
    all
}

fn build_entry(tracer: &str, case: String, predicates: Option<usize>) -> Entry {
    Entry {
        tracer: tracer.to_owned(),
        case,
        x: predicates.map(|predicates| predicates as f64),
        command: format!("trackway bench filter --tracers {}", tracer.trim_end_matches(" again")),
        ..Entry::default()
    }
}

/// Fails if the user has interrupted the run.
fn check_not_interrupted() -> Result<()> {
    if trackway_bench_engine::signals::is_stopped() { Err(Error::Interrupted) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::filter::chains::PREDICATES;

    #[test]
    fn every_chain_is_asked_once() {
        let all = list_contests(&PREDICATES);
        let cases: std::collections::BTreeSet<String> = all.iter().map(Contest::case).collect();
        // 2 chains of one predicate, 5 chains for each other number; with integers, and with
        // strings.
        assert_eq!((cases.len(), all.len()), (2 * (2 + 5 * 5), 2 * (2 + 5 * 5)));
        assert!(cases.contains(&case_name(CONTROL_CHAIN.0, CONTROL_CHAIN.1, CONTROL_CHAIN.2)));
    }

    #[test]
    fn c_answers_where_anybody_does() {
        let of = |tracer: &str| {
            let tracers = vec![tracer.to_owned()];
            selected_runners(&Settings { tracers, ..Settings::default() })
        };
        assert_eq!(of("trackway-interpreted"), [Runner::C, Runner::Interpreted]);
        assert!(of("lttng").is_empty());
        assert_eq!(selected_runners(&Settings::default()), Runner::ALL);
    }

    #[test]
    fn a_round_measures_all_who_answer_about_a_chain_at_once() {
        let (operands, chain, predicates) = CONTROL_CHAIN;
        let new = |runner| Answerer { runner, calls: 0, found: None };
        let answerers = [Runner::Interpreted, Runner::C, Runner::RbpfInterpreted].map(new).into();
        let contest = Contest { operands, chain, predicates, answerers, rounds: 0 };
        let mut isolated = IsolatedFilters {
            peer: None,
            contests: vec![contest],
            empty_calls: 0,
            batches: 2,
            cpus: allowed_cpus().expect("CPUs"),
        };
        let ns = |isolated: &mut IsolatedFilters, answerer| {
            isolated.sample(Turn::Answer { contest: 0, answerer })
        };
        assert!(ns(&mut isolated, 0).expect("a figure") > 0.0);
        let answerers = &isolated.contests[0].answerers;
        assert!(answerers[0].found.is_none() && matches!(answerers[2].found, Some(Ok(_))));
        assert!(ns(&mut isolated, 2).expect("a figure") > 0.0);
        assert_eq!(isolated.contests[0].rounds, 1);
        ns(&mut isolated, 1).expect_err("there is no C here");
        assert!(ns(&mut isolated, 0).expect("a figure of the next round") > 0.0);
    }
}
