//! What a filter costs by itself: our machine code and our interpreter, beside the same test in C,
//! called through a pointer on the same frame, and beside rbpf, which runs our bytecode.
//!
//! ```text
//! questions  filters of 1 to 50 predicates: as text, as C, and events to ask about
//! peer       C, compiled and loaded
//! ours       from text to pages with machine code
//! contest    the contestants, and what is timed
//! program    programs with events that filters are asked about in turn
//! traced     what a filter costs in them: LTTng's, and ours
//! results    what was measured, as JSON; report shows it to people, figures draws it
//! ```
//!
//! Main invariant: before anything is measured, all contestants give the right answers about events
//! in which each predicate is the only true one, or the only false one; and every answer that is
//! timed is counted.

mod contest;
mod figures;
mod ours;
mod peer;
mod program;
mod questions;
mod report;
mod results;
mod traced;

pub use report::print as print_filter;
pub use results::{
    Chain, FilterCost, FilterResults, FilterTracer, Operands, Preparation, Runner, TracedCost,
};

use std::time::Instant;

use crate::error::{Error, Result};
use crate::machine::{Machine, allowed_cpus};
use crate::pinned::on;
use crate::place::{Kit, Place};
use crate::progress::Progress;
use crate::results::Note;
use crate::signals;
use crate::stats::Spread;
use contest::{Asked, Batch, HAS_CODE, calls_of_a_batch, per_call_ns};
use peer::Peer;
use questions::{Event, Question};
use results::{FORMAT, PREDICATES, PREPARED_PREDICATES};
use traced::Traced;

/// What the user asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FilterOptions {
    /// Some seconds instead of a minute: to see that all works, not for figures.
    pub quick: bool,
    /// So many rounds, instead of thirty.
    pub rounds: Option<u32>,
}

/// Rounds, if nothing else is asked for.
const ROUNDS: u32 = 30;

impl FilterOptions {
    fn rounds(self) -> u32 {
        self.rounds.unwrap_or(if self.quick { 1 } else { ROUNDS }).max(1)
    }

    /// Batches of a contestant in a round.
    const fn batches(self) -> usize {
        if self.quick { 2 } else { 5 }
    }

    /// How often a filter is prepared in a round.
    const fn preparations(self) -> usize {
        if self.quick { 3 } else { 10 }
    }
}

/// What is known so far of one who is timed.
#[derive(Default)]
struct Series {
    /// Calls of a batch.
    calls: u64,
    /// ns of a call, round by round.
    rounds_ns: Vec<f64>,
}

/// A chain that contestants answer about, in turns.
struct Contest {
    operands: Operands,
    chain: Chain,
    predicates: usize,
    /// In the order in which contestants are made, which does not change.
    series: Vec<(Runner, Series)>,
}

/// Times of a filter's preparation, in µs.
struct Prepared {
    operands: Operands,
    to_bytes_us: Vec<f64>,
    to_answer_us: Vec<f64>,
    us: Vec<f64>,
}

/// Measures what filters cost on this machine.
///
/// What is not here is skipped with a note, C also if it cannot be compiled. Catches SIGINT,
/// SIGTERM and SIGHUP: all that was started is ended and all that was made is removed before it
/// returns.
///
/// # Errors
///
/// [`Error::Interrupted`] if one of those signals came; others if contestants do not agree, or if
/// nothing can be measured at all.
pub fn run_filter(options: &FilterOptions) -> std::result::Result<FilterResults, Error> {
    signals::catch();
    let executable =
        std::env::current_exe().map_err(Error::io("cannot find our own executable"))?;
    let machine = Machine::here();
    let place = Place::new(Kit::of(executable))?;
    let progress = Progress::new();
    let mut notes = Vec::new();
    progress.say("compiling");
    let peer = in_c(&place, &mut notes)?;
    if !HAS_CODE {
        notes.push(Note::skipped("machine code", "it is made for x86-64 only"));
    }
    notes.push(Note::skipped("rbpf on strings", "it has other helpers"));
    progress.say("asking all contestants everything");
    for question in questions() {
        contest::check(&Asked::new(question, peer.as_ref())?)?;
        go_on()?;
    }
    progress.say("setting up tracers");
    let mut traced = Traced::new(&place, options.quick, &mut notes)?;
    let mut lab = Lab::new(*options, peer);
    let cpus = allowed_cpus()?;
    for round in 0..options.rounds() as usize {
        progress.say(&format!("round {}", round + 1));
        let cpu = cpus.get(round % cpus.len().max(1)).copied().unwrap_or_default();
        on(cpu, || lab.round(round))?;
        traced.round(&place, round, &mut notes)?;
    }
    Ok(lab.results(machine, traced.costs(), notes))
}

/// The questions in C, if there is a compiler.
fn in_c(place: &Place, notes: &mut Vec<Note>) -> Result<Option<Peer>> {
    let Some(compiler) = peer::compiler() else {
        notes.push(Note::skipped("C", "neither clang nor cc is installed"));
        return Ok(None);
    };
    match Peer::new(compiler, place, &questions()) {
        Ok(peer) => Ok(Some(peer)),
        Err(Error::Interrupted) => Err(Error::Interrupted),
        Err(error) => {
            notes.push(Note::failed("C", &error));
            Ok(None)
        }
    }
}

/// All filters.
fn questions() -> Vec<Question> {
    let mut all = Vec::new();
    for contest in contests() {
        let question = contest.question();
        if !all.contains(&question) {
            all.push(question);
        }
    }
    all
}

/// All that is measured.
fn contests() -> Vec<Contest> {
    let mut all = Vec::new();
    for operands in Operands::ALL {
        for predicates in PREDICATES {
            for chain in Chain::ALL.into_iter().filter(|chain| chain.is_of(predicates)) {
                all.push(Contest { operands, chain, predicates, series: Vec::new() });
            }
        }
    }
    all
}

/// Whether the user wants to.
fn go_on() -> Result<()> {
    if signals::stopped() { Err(Error::Interrupted) } else { Ok(()) }
}

/// A run of the lab.
struct Lab {
    options: FilterOptions,
    peer: Option<Peer>,
    empty: Series,
    contests: Vec<Contest>,
    prepared: Vec<Prepared>,
}

impl Lab {
    fn new(options: FilterOptions, peer: Option<Peer>) -> Self {
        let prepared = |operands| Prepared {
            operands,
            to_bytes_us: Vec::new(),
            to_answer_us: Vec::new(),
            us: Vec::new(),
        };
        Self {
            options,
            peer,
            empty: Series::default(),
            contests: contests(),
            prepared: Operands::ALL.map(prepared).into(),
        }
    }

    /// Everything once more.
    fn round(&mut self, round: usize) -> Result<()> {
        let batches = self.options.batches();
        let empty = &mut self.empty;
        contest::with_empty_frame(|batch| {
            empty.warm_up(batch, true)?;
            let figures = (0..batches).map(|_| per_call_ns(batch, empty.calls, true));
            empty.keep(&figures.collect::<Result<Vec<f64>>>()?)
        })?;
        for contest in &mut self.contests {
            go_on()?;
            contest.round(self.peer.as_ref(), round, batches)?;
        }
        if HAS_CODE {
            for prepared in &mut self.prepared {
                prepared.round(self.options.preparations())?;
            }
        }
        Ok(())
    }

    fn results(self, machine: Machine, traced: Vec<TracedCost>, notes: Vec<Note>) -> FilterResults {
        let mut results = FilterResults {
            format: FORMAT,
            machine,
            compiler: self.peer.map(|peer| peer.compiler),
            rounds: self.options.rounds(),
            empty_ns: Spread::of(&self.empty.rounds_ns),
            costs: self.contests.iter().flat_map(Contest::costs).collect(),
            preparations: self.prepared.iter().filter_map(Prepared::result).collect(),
            traced,
            bars: Vec::new(),
            notes,
        };
        results.bars = results.all_bars();
        results
    }
}

impl Series {
    /// A batch that does not count, of a size that is found out the first time.
    fn warm_up(&mut self, batch: &mut Batch<'_>, answer: bool) -> Result<()> {
        if self.calls == 0 {
            self.calls = calls_of_a_batch(batch, answer)?;
        }
        per_call_ns(batch, self.calls, answer).map(|_| ())
    }

    /// Keeps the middle one of a round's figures.
    fn keep(&mut self, figures: &[f64]) -> Result<()> {
        let spread = Spread::of(figures).ok_or_else(|| Error::output("the loop", "no batch"))?;
        self.rounds_ns.push(spread.median);
        Ok(())
    }
}

impl Contest {
    const fn question(&self) -> Question {
        Question::of(self.operands, self.chain, self.predicates)
    }

    /// Lets the contestants take turns, another one first in each turn and in each round.
    fn round(&mut self, peer: Option<&Peer>, round: usize, batches: usize) -> Result<()> {
        let question = self.question();
        let truths = self.chain.truths(self.predicates);
        let (event, answer): (Event, bool) = (question.event(&truths), question.answer(&truths));
        let all = &mut self.series;
        Asked::new(question, peer)?.answered(&event, |contestants| {
            if all.is_empty() {
                all.extend(contestants.iter().map(|(runner, _)| (*runner, Series::default())));
            }
            let count = contestants.len();
            for ((_, series), (_, batch)) in all.iter_mut().zip(contestants.iter_mut()) {
                series.warm_up(batch, answer)?;
            }
            let mut figures = vec![Vec::with_capacity(batches); count];
            for turn in 0..batches * count {
                let this = (turn + turn / count + round) % count;
                let calls = all[this].1.calls;
                figures[this].push(per_call_ns(&mut contestants[this].1, calls, answer)?);
            }
            all.iter_mut().zip(figures).try_for_each(|((_, series), figures)| series.keep(&figures))
        })
    }

    fn costs(&self) -> impl Iterator<Item = FilterCost> {
        let c = self.series.iter().find(|(runner, _)| *runner == Runner::C);
        self.series.iter().filter_map(move |(runner, series)| {
            let of_c = c.and_then(|(_, c)| {
                let pairs = series.rounds_ns.iter().zip(&c.rounds_ns);
                Spread::of(&pairs.map(|(this, c)| this / c).collect::<Vec<f64>>())
            });
            Some(FilterCost {
                runner: *runner,
                operands: self.operands,
                chain: self.chain,
                predicates: self.predicates,
                ns: Spread::of(&series.rounds_ns)?,
                of_c,
            })
        })
    }
}

impl Prepared {
    /// Prepares the filter so many times, and keeps the middle ones of the times.
    fn round(&mut self, times: usize) -> Result<()> {
        let question = Question::of(self.operands, Chain::AndTrue, PREPARED_PREDICATES);
        let event = question.event(&Chain::AndTrue.truths(PREPARED_PREDICATES));
        let (text, layout) = (question.text(), question.layout());
        let mut figures = [(); 3].map(|()| Vec::with_capacity(times));
        for _ in 0..times {
            let begin = Instant::now();
            let bytes = ours::bytes(&text, &layout)?;
            let encoded = Instant::now();
            let answer = contest::first_answer(&bytes, &event)?;
            let end = Instant::now();
            if answer != 1 {
                return Err(Error::output(ours::WHAT, "its first answer was wrong"));
            }
            for (figures, (from, to)) in
                figures.iter_mut().zip([(begin, encoded), (encoded, end), (begin, end)])
            {
                figures.push(to.duration_since(from).as_secs_f64() * 1e6);
            }
        }
        let kept = [&mut self.to_bytes_us, &mut self.to_answer_us, &mut self.us];
        for (kept, figures) in kept.into_iter().zip(&figures) {
            kept.extend(Spread::of(figures).map(|spread| spread.median));
        }
        Ok(())
    }

    fn result(&self) -> Option<Preparation> {
        Some(Preparation {
            operands: self.operands,
            predicates: PREPARED_PREDICATES,
            to_bytes_us: Spread::of(&self.to_bytes_us)?,
            to_answer_us: Spread::of(&self.to_answer_us)?,
            us: Spread::of(&self.us)?,
        })
    }
}
