//! Short-lived processes: as many per second as the machine can start, up to a thousand, each with
//! a few events. No event may be missing, and no resource may be left. Most machines cannot start a
//! thousand programs per second, but can fork a thousand children.

use std::process::Command;
use std::time::Duration;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::child::RunningProgram;
use trackway_bench_engine::host::workload;
use trackway_bench_engine::results::Account;
use trackway_bench_engine::suite::Sample;

use super::host::{SESSION, SessionHost as _, SessionKind, SessionProperties};
use super::trackway::TrackwaySessions;
use super::usage::{self, KIB};
use crate::trace_check;

/// Processes started per second.
const RATE: u64 = 1000;
/// Number of events of each process.
const EVENTS: u64 = 5;
/// Most processes that exist at a time.
const ALIVE_MAX: u64 = 16;
/// Time during which processes are started, in seconds, and the time before leftovers are first
/// counted.
const SECONDS: u64 = 5;
const WARM_UP_S: u64 = 1;
/// Time in which the recorder visits all of its resources once.
const SETTLE_TIME: Duration = Duration::from_secs(1);
/// Time limit of a run beyond the planned time, in seconds.
const SPARE_S: u64 = 60;

/// Keys of extra figures; the number of events not counted must be zero.
pub(super) const NOT_COUNTED: &str = "greatest number not counted";
pub(super) const PLACES: &str = "greatest number of places kept";
pub(super) const DESCRIPTORS: &str = "greatest number of descriptors left";
pub(super) const LEFT_KIB: &str = "greatest KiB left";

/// The origin of short-lived processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcessOrigin {
    /// Programs that the launcher starts.
    Programs,
    /// Children that one program forks.
    Children,
}

impl ProcessOrigin {
    pub(super) const ALL: [Self; 2] = [Self::Programs, Self::Children];

    /// Returns the kind of the processes in words.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Programs => "after programs that were started",
            Self::Children => "after children that were forked",
        }
    }
}

/// The report of the launcher.
struct Launched {
    processes: u64,
    ns: u64,
}

/// Resources that ended processes could leave behind.
struct Leftovers {
    /// Bytes of the window, plus the recorder's private bytes.
    bytes: u64,
    /// Number of the recorder's open file descriptors.
    descriptors: u64,
    /// Number of used places in the table of processes, after the table was swept.
    places: u64,
}

/// Starts processes for some seconds; the figure is the growth of the window and of the recorder's
/// private memory, in KiB.
pub(super) fn measure_short_lived_processes(
    sessions: &TrackwaySessions<'_>,
    starts: ProcessOrigin,
) -> Result<Sample> {
    sessions.create(SESSION, SessionProperties::of(SessionKind::Disk))?;
    let warm_up = launch_processes(sessions, starts, WARM_UP_S)?;
    let before = measure_leftovers(sessions)?;
    // The numbers of the processes begin again.
    let launched = launch_processes(sessions, starts, SECONDS)?;
    let after = measure_leftovers(sessions)?;
    let processes = warm_up.processes + launched.processes;
    let counted = sessions.status(SESSION)?.counts.processes;
    let account = sessions.end(SESSION, SessionKind::Disk, processes * EVENTS)?;
    let missing = count_wrong_events(
        &trace_check::read_event_numbers(&sessions.trace(SESSION))?,
        &[&warm_up, &launched],
    );
    // A number that occurs twice does not compensate for a missing number.
    let recorded = account.recorded.saturating_sub(missing);
    let extra = vec![
        ("processes a second", launched.processes as f64 / (launched.ns as f64 / 1e9)),
        (NOT_COUNTED, processes.abs_diff(counted) as f64),
        (PLACES, after.places as f64),
        (DESCRIPTORS, after.descriptors.saturating_sub(before.descriptors) as f64),
        (LEFT_KIB, after.bytes.saturating_sub(before.bytes) as f64 / KIB),
    ];
    Ok(Sample {
        figure: after.bytes as f64 / KIB,
        account: Some(Account { recorded, ..account }),
        extra,
        ..Sample::default()
    })
}

fn launch_processes(
    sessions: &TrackwaySessions<'_>,
    starts: ProcessOrigin,
    seconds: u64,
) -> Result<Launched> {
    let mut command: Command = match starts {
        ProcessOrigin::Programs => sessions.launcher_of_programs(),
        ProcessOrigin::Children => sessions.launcher_of_children(),
    };
    command.args([RATE, seconds, EVENTS, ALIVE_MAX].map(|number| number.to_string()));
    let running =
        RunningProgram::start_for(&mut command, "short-lived processes", seconds + SPARE_S)?;
    let said = running.finish()?.stdout;
    let [processes, failed, ns] = workload::parse_numbers(said.trim_end(), "crowd")?;
    match failed {
        0 => Ok(Launched { processes, ns }),
        _ => Err(Error::output("short-lived processes", format_args!("{failed} have failed"))),
    }
}

/// Returns the number of event numbers whose count in the trace is wrong.
fn count_wrong_events(found: &[(u64, u64)], runs: &[&Launched]) -> u64 {
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

/// Counts the resources while no process runs.
fn measure_leftovers(sessions: &TrackwaySessions<'_>) -> Result<Leftovers> {
    std::thread::sleep(SETTLE_TIME);
    let pid = sessions.status(SESSION)?.pid;
    Ok(Leftovers {
        bytes: sessions.shared_bytes()? + usage::resident_memory(&[pid])?.own_bytes,
        descriptors: usage::count_descriptors(pid)?,
        places: sessions.listed_processes()?,
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
        assert_eq!(count_wrong_events(&all, &[&first, &second]), 0);
        assert_eq!(count_wrong_events(&all[1..], &[&first, &second]), 1);
        let doubled: Vec<(u64, u64)> = all.iter().copied().chain([(0, 7), (0, 99)]).collect();
        assert_eq!(count_wrong_events(&doubled, &[&first, &second]), 2);
    }
}
