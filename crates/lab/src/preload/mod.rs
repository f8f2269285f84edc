//! What the preload helper `libc` costs a program that allocates: while nobody records and while
//! somebody does, beside LTTng's library of that kind; and what it costs programs that people use.
//!
//! ```text
//! ways      how the program is run: alone, with something between, with a helper, recorded
//! programs  installed programs, and what they have to do
//! results   what was measured, as JSON; report shows it to people
//! ```
//!
//! Main invariant: all ways take turns within each round, and a ratio is one of runs of the same
//! round. Where something records, its own account says that it recorded as much as was called.

mod programs;
mod report;
mod results;
mod ways;

pub use report::print as print_preload;
pub use results::{PreloadCost, PreloadResults, Program, RealCost, Way};

use crate::error::{Error, Result};
use crate::machine::{Machine, allowed_cpus};
use crate::place::{Kit, Place};
use crate::progress::Progress;
use crate::reader::measured;
use crate::results::Note;
use crate::signals;
use crate::stats::{Spread, median_interval};
use crate::workload::{self, Batch};
use programs::Real;
use results::FORMAT;
use ways::Ways;

/// What the user asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PreloadOptions {
    /// Some seconds instead of some minutes: to see that all works, not for figures.
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
    let real = match ways.has(Way::Idle) {
        true => real_programs(options, &place, &ways, &progress, &mut notes)?,
        false => Vec::new(),
    };
    let costs = series.iter().filter_map(|one| one.cost(&series)).collect();
    let mut results = PreloadResults {
        format: FORMAT,
        machine,
        rounds: options.rounds(),
        costs,
        real,
        bars: Vec::new(),
        notes,
    };
    results.bars = results.all_bars();
    Ok(results)
}

/// Measures what the idle helper costs the programs that are installed: in rounds of three runs,
/// one right after the other on the same CPU, each way first in every third round.
fn real_programs(
    options: &PreloadOptions,
    place: &Place,
    ways: &Ways,
    progress: &Progress,
    notes: &mut Vec<Note>,
) -> Result<Vec<RealCost>> {
    progress.say("making what programs read");
    let (programs, absent) = programs::all(place)?;
    notes.extend(absent.iter().map(|one| Note::skipped(one.name, &one.reason)));
    let cpus = allowed_cpus()?;
    let mut runs: Vec<Runs> = Vec::new();
    for program in programs {
        progress.say(&format!("{}: counting", program.name));
        match ways.count_calls(place, &program) {
            Ok(calls) => runs.push(Runs { program, calls, seconds: Default::default() }),
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => notes.push(Note::failed(program.name, &error)),
        }
    }
    for round in 0..options.rounds() {
        let cpu = &cpus[round as usize % cpus.len()..][..1];
        let mut failed = Vec::new();
        for (index, one) in runs.iter_mut().enumerate() {
            progress.say(&format!("round {}: {}", round + 1, one.program.name));
            match one.run(place, ways, cpu, round as usize) {
                Ok(()) => {}
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) => {
                    notes.push(Note::failed(one.program.name, &error));
                    failed.push(index);
                }
            }
        }
        for index in failed.into_iter().rev() {
            runs.remove(index);
        }
    }
    Ok(runs.iter().filter_map(Runs::cost).collect())
}

/// How installed programs are run.
const REAL_WAYS: [Way; 3] = [Way::Plain, Way::Interposed, Way::Idle];

/// What was measured of an installed program.
struct Runs {
    program: Real,
    calls: u64,
    /// Times on CPUs of each way, round by round.
    seconds: [Vec<f64>; REAL_WAYS.len()],
}

impl Runs {
    fn run(&mut self, place: &Place, ways: &Ways, cpu: &[usize], round: usize) -> Result<()> {
        for turn in 0..REAL_WAYS.len() {
            let index = (round + turn) % REAL_WAYS.len();
            let command = ways.real(place, &self.program, REAL_WAYS[index])?;
            let run = measured::run(command, self.program.name, cpu)?;
            self.seconds[index].push(run.cpu_seconds);
        }
        Ok(())
    }

    fn cost(&self) -> Option<RealCost> {
        let [alone, between, idle] = &self.seconds;
        let times = |ours: &[f64]| -> Vec<f64> {
            ours.iter().zip(alone).map(|(ours, alone)| ours / alone).collect()
        };
        let alone_ms: Vec<f64> = alone.iter().map(|seconds| seconds * 1e3).collect();
        Some(RealCost {
            name: self.program.name.to_owned(),
            calls: self.calls,
            cpu_ms: Spread::of(&alone_ms)?,
            between_times: Spread::of(&times(between))?,
            times: Spread::of(&times(idle))?,
            interval: median_interval(&times(idle)),
        })
    }
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
        let batch = |number, ns| Batch { thread: 0, number, events: 10, ns };
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

    #[test]
    fn costs_of_installed_programs_are_of_the_same_round() {
        let program = Real::of("sh", &["-c", "exit 0"]);
        let seconds = [vec![1.0, 2.0], vec![1.01, 2.04], vec![1.02, 2.08]];
        let runs = Runs { program, calls: 3_000, seconds };
        let cost = runs.cost().expect("a cost");
        assert!((cost.times.median - 1.03).abs() < 1e-9, "{cost:?}");
        assert!((cost.between_times.median - 1.015).abs() < 1e-9, "{cost:?}");
        assert_eq!((cost.calls_per_ms(), cost.interval), (2.0, None));
    }
}
