//! What the preload helper `libc` costs a program that allocates: while nobody records and while
//! somebody does, beside LTTng's library of that kind.
//!
//! ```text
//! ways     how the program is run: alone, with something between, with a helper, recorded
//! results  what was measured, as JSON; report shows it to people
//! ```
//!
//! Main invariant: all ways take turns within each round, and a ratio is one of runs of the same
//! round. Where something records, its own account says that it recorded as much as was called.

mod report;
mod results;
mod ways;

pub use report::print as print_preload;
pub use results::{PreloadCost, PreloadResults, Program, Way};

use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::place::{Kit, Place};
use crate::progress::Progress;
use crate::results::Note;
use crate::signals;
use crate::stats::Spread;
use crate::workload::{self, Batch};
use results::FORMAT;
use ways::Ways;

/// What the user asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PreloadOptions {
    /// Ten seconds instead of two minutes: to see that all works, not for figures.
    pub quick: bool,
    /// So many rounds, instead of forty.
    pub rounds: Option<u32>,
}

/// Rounds, if nothing else is asked for. Many short runs rather than few long ones: where a
/// process's memory happens to lie makes it some per cent faster or slower, for all of its life.
const ROUNDS: u32 = 40;
/// Batches of a run that do not count: the allocator gets its memory.
const WARM_UP: u32 = 3;

impl PreloadOptions {
    fn rounds(self) -> u32 {
        self.rounds.unwrap_or(if self.quick { 1 } else { ROUNDS }).max(1)
    }

    const fn batches(self) -> u32 {
        WARM_UP + if self.quick { 3 } else { 6 }
    }
}

/// What was measured of one program run in one way, round by round.
struct Series {
    way: Way,
    program: Program,
    /// ns per call; `None` where the run failed.
    rounds_ns: Vec<Option<f64>>,
}

/// Measures what the helper `libc` costs on this machine.
///
/// What is not installed is skipped with a note; what fails is noted and left out from then on.
/// Catches SIGINT, SIGTERM and SIGHUP: all that was started is ended and all that was made is
/// removed before it returns.
///
/// # Errors
///
/// [`Error::Interrupted`] if one of those signals came; others if nothing can be measured at all.
pub fn run_preload(options: &PreloadOptions) -> std::result::Result<PreloadResults, Error> {
    signals::catch();
    let executable =
        std::env::current_exe().map_err(Error::io("cannot find our own executable"))?;
    let machine = Machine::here();
    let place = Place::new(Kit::of(executable))?;
    let progress = Progress::new();
    let mut notes = Vec::new();
    let mut ways = Ways::set_up(&place, &progress, &mut notes)?;
    let mut series: Vec<Series> = Program::ALL
        .into_iter()
        .flat_map(|program| Way::ALL.map(|way| Series { way, program, rounds_ns: Vec::new() }))
        .collect();
    for round in 1..=options.rounds() {
        for one in &mut series {
            let mut measured = None;
            if ways.has(one.way) {
                progress.say(&format!("round {round}: {}: {}", one.way.name(), one.program.name()));
                match ways.run(&place, one.way, one.program, options.batches()) {
                    Ok(batches) => measured = median_ns(&batches),
                    Err(Error::Interrupted) => return Err(Error::Interrupted),
                    Err(error) => {
                        ways.leave_out(one.way);
                        notes.push(Note::failed(one.way.name(), &error));
                    }
                }
            }
            one.rounds_ns.push(measured);
        }
    }
    let costs = series.iter().filter_map(|one| one.cost(&series)).collect();
    let mut results = PreloadResults {
        format: FORMAT,
        machine,
        rounds: options.rounds(),
        costs,
        bars: Vec::new(),
        notes,
    };
    results.bars = results.all_bars();
    Ok(results)
}

/// ns per call in the middle one of the batches that count.
fn median_ns(batches: &[Batch]) -> Option<f64> {
    let counted = batches.iter().filter(|batch| batch.number >= WARM_UP);
    let figures: Vec<f64> = counted.map(Batch::event_ns).collect();
    Spread::of(&figures).map(|spread| spread.median)
}

impl Series {
    fn cost(&self, all: &[Self]) -> Option<PreloadCost> {
        let plain = all.iter().find(|one| one.way == Way::Plain && one.program == self.program)?;
        let pairs = self.rounds_ns.iter().zip(&plain.rounds_ns);
        let ratios: Vec<f64> =
            pairs.filter_map(|(ours, plain)| Some((*ours)? / (*plain)?)).collect();
        let figures: Vec<f64> = self.rounds_ns.iter().flatten().copied().collect();
        Some(PreloadCost {
            way: self.way,
            program: self.program,
            call_ns: Spread::of(&figures)?,
            times: Spread::of(&ratios)?,
        })
    }
}

/// The workload's batches.
fn batches(output: &str) -> Result<Vec<Batch>> {
    workload::batches(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_that_warm_up_do_not_count() {
        let batch = |number, ns| Batch { number, events: 10, ns };
        let batches = [batch(0, 9000), batch(2, 9000), batch(3, 10), batch(4, 30), batch(5, 20)];
        assert_eq!(median_ns(&batches), Some(2.0));
        assert_eq!(median_ns(&batches[..2]), None);
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        let series = |way, rounds_ns| Series { way, program: Program::Words, rounds_ns };
        let all = [
            series(Way::Plain, vec![Some(10.0), Some(20.0), None]),
            series(Way::Idle, vec![Some(11.0), Some(22.0), Some(500.0)]),
            series(Way::LttngIdle, vec![None, None, None]),
        ];
        let cost = all[1].cost(&all).expect("a cost");
        assert_eq!((cost.times.count, cost.times.median), (2, 1.1));
        assert!(all[2].cost(&all).is_none());
    }
}
