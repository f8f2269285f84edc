//! Short-lived processes: as many a second as the machine can start, up to a thousand, each with a
//! few events. None may be missing, and nothing may be left. Programs that are started take most
//! machines longer than that; children that a program forks do not.

use std::process::Command;
use std::time::Duration;

use super::host::{Buffers, Host, text};
use super::ours::Ours;
use super::results::{Crowd, Kind, Left, Starts};
use super::usage;
use crate::child::Running;
use crate::error::{Error, Result};
use crate::place::Place;
use crate::readback;
use crate::workload;

const SESSION: &str = "lab-crowd";
/// Processes a second that are asked for.
const RATE: u64 = 1000;
/// Events of each.
const EVENTS: u64 = 5;
/// Most of them at a time.
const ALIVE_MAX: u64 = 16;
/// How long processes are started before anything is held against what is left, in seconds.
const WARM_UP_S: u64 = 1;
/// Until the recorder has looked at everything that it looks at.
const REST: Duration = Duration::from_secs(1);
/// How much longer than it should a run may take, in seconds.
const SPARE_S: u64 = 60;

/// What the launcher says.
struct Launched {
    processes: u64,
    ns: u64,
}

/// Starts processes for so many seconds.
pub(super) fn run(ours: &Ours<'_>, place: &Place, starts: Starts, seconds: u64) -> Result<Crowd> {
    let program = text(&ours.program_path()).to_owned();
    let launcher = match starts {
        Starts::Programs => vec![text(&place.compile("crowd", &[])?).to_owned(), program],
        Starts::Children => vec![program, "children".to_owned()],
    };
    ours.create(SESSION, Kind::Disk, Buffers::Default, true)?;
    let warm_up = launch(ours, &launcher, WARM_UP_S)?;
    let before = left(ours)?;
    // Their numbers begin anew.
    let launched = launch(ours, &launcher, seconds)?;
    let after = left(ours)?;
    let processes = warm_up.processes + launched.processes;
    let counted = ours.status(SESSION)?.counts.processes;
    let account = ours.end(SESSION, Kind::Disk, processes * EVENTS)?;
    let missing = missing(&readback::numbers(&ours.trace(SESSION))?, &[&warm_up, &launched]);
    Ok(Crowd {
        starts,
        seconds: launched.ns as f64 / 1e9,
        processes,
        rate: launched.processes as f64 / (launched.ns as f64 / 1e9),
        counted,
        account,
        missing,
        before,
        after,
    })
}

fn launch(ours: &Ours<'_>, launcher: &[String], seconds: u64) -> Result<Launched> {
    let (program, arguments) = launcher.split_first().expect("a launcher is a program");
    let mut command = Command::new(program);
    command.args(arguments);
    command.args([RATE, seconds, EVENTS, ALIVE_MAX].map(|number| number.to_string()));
    ours.enter(&mut command);
    let running = Running::start_for(&mut command, "short-lived processes", seconds + SPARE_S)?;
    let said = running.finish()?.stdout;
    let [processes, failed, ns] = workload::numbers(said.trim_end(), "crowd")?;
    match failed {
        0 => Ok(Launched { processes, ns }),
        _ => Err(Error::output("short-lived processes", format_args!("{failed} have failed"))),
    }
}

/// How many of the processes' events are not in the trace as often as they must be.
fn missing(found: &[(u64, u64)], runs: &[&Launched]) -> u64 {
    let most = runs.iter().map(|run| run.processes * EVENTS).max().unwrap_or_default();
    let mut owed = vec![0_i64; most as usize];
    for run in runs {
        owed.iter_mut().take((run.processes * EVENTS) as usize).for_each(|number| *number += 1);
    }
    let mut strange = 0;
    for &(_, number) in found {
        match owed.get_mut(number as usize) {
            Some(owed) => *owed -= 1,
            None => strange += 1,
        }
    }
    owed.iter().map(|owed| owed.unsigned_abs()).sum::<u64>() + strange
}

/// What there is while nothing happens.
fn left(ours: &Ours<'_>) -> Result<Left> {
    std::thread::sleep(REST);
    let pid = ours.status(SESSION)?.pid;
    let resident = usage::resident(&[pid])?;
    Ok(Left {
        window_bytes: ours.shared_bytes()?,
        resident_bytes: resident.all_bytes,
        own_bytes: resident.own_bytes,
        descriptors: usage::descriptors(pid)?,
        places: ours.listed_processes()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_owed_once_for_each_run() {
        let run = |processes| Launched { processes, ns: 1 };
        let (first, second) = (run(1), run(2));
        let all: Vec<(u64, u64)> = (0..5).chain(0..10).map(|number| (0, number)).collect();
        assert_eq!(missing(&all, &[&first, &second]), 0);
        assert_eq!(missing(&all[1..], &[&first, &second]), 1);
        let doubled: Vec<(u64, u64)> = all.iter().copied().chain([(0, 7), (0, 99)]).collect();
        assert_eq!(missing(&doubled, &[&first, &second]), 2);
    }
}
