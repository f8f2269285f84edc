//! Programs that take part in sessions during a measurement.

use std::process::Command;
use std::time::Duration;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::child::{self, RunningProgram};
use trackway_bench_engine::host::workload::{self, Batch};

use super::host::SessionHost;

/// Events of a burst, and time from one burst to the next, in µs: a million events per second.
const BURST_EVENTS: u64 = 1000;
const PERIOD_US: u64 = 1000;
/// Number of bursts in a second.
pub(super) const BURSTS_PER_SECOND: u64 = 1_000_000 / PERIOD_US;
/// Longest life of a background program, in seconds, and its bursts until then: the bench ends the
/// program before.
const LIMIT_S: u64 = 120;
const BURSTS: u64 = 100_000;
/// Time in which a background program begins; otherwise the first action would have no writer to
/// wait for.
const BEGINNING: Duration = Duration::from_millis(100);

/// Makes the command `PROGRAM paced`: bursts of `events` events, one every `period_us`.
pub(super) fn paced_command(
    mut command: Command,
    bursts: u64,
    events: u64,
    period_us: u64,
) -> Command {
    command.arg("paced").args([bursts, events, period_us].map(|number| number.to_string()));
    command
}

/// Makes the command for a million events per second, in a number of bursts.
pub(super) fn million_events_command(host: &dyn SessionHost, bursts: u64) -> Command {
    paced_command(host.program(), bursts, BURST_EVENTS, PERIOD_US)
}

/// Runs a program that prints batches.
pub(super) fn run_batches(mut command: Command) -> Result<Vec<Batch>> {
    workload::parse_batches(&child::run(&mut command, "a program that emits")?.stdout)
}

/// Returns the number of events of all batches.
pub(super) fn count_events(batches: &[Batch]) -> u64 {
    batches.iter().map(|batch| batch.events).sum()
}

/// Runs an action while a program emits a million events per second; returns the result of the
/// action, and the number of events.
pub(super) fn while_emitting<T>(
    host: &dyn SessionHost,
    something: impl FnOnce() -> Result<T>,
) -> Result<(T, u64)> {
    let running = RunningProgram::start_for(
        &mut million_events_command(host, BURSTS),
        "a program that emits",
        LIMIT_S,
    )?;
    std::thread::sleep(BEGINNING);
    let done = something();
    running.terminate();
    let finished = running.finish();
    let done = done?;
    Ok((done, count_events(&workload::parse_batches(&finished?.stdout)?)))
}

/// Runs an action while a program runs without emitting events.
pub(super) fn while_sleeping<T>(
    host: &dyn SessionHost,
    milliseconds: u64,
    something: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let mut command = host.program();
    command.arg("idle").arg(milliseconds.to_string());
    let mut running = RunningProgram::start(&mut command, "a program that sleeps")?;
    let done = expect_line(&mut running, "ready").and_then(|()| something());
    running.finish()?;
    done
}

/// Checks that the next line of a program's output is `expected`.
pub(super) fn expect_line(running: &mut RunningProgram, expected: &str) -> Result<()> {
    let found = running.line()?;
    match found == expected {
        true => Ok(()),
        false => Err(Error::output("workload", format_args!("'{found}' is not '{expected}'"))),
    }
}
