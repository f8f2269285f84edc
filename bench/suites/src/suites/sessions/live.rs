//! Latency from an event to its line in the output that follows the session.

use std::process::Command;
use std::time::Duration;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::child::{self, RunningProgram};
use trackway_bench_engine::suite::Sample;
use trackway_sys::clock::monotonic_ns;

use super::host::{SESSION, SessionHost as _, SessionKind, SessionProperties};
use super::sample_of_turns;
use super::trackway::TrackwaySessions;

/// Key of the extra figure for lines whose event is older than the previous line's event.
pub(super) const OUT_OF_ORDER: &str = "greatest number out of order";
/// Number of programs that emit while a session is followed.
const PROGRAMS: u64 = 50;
/// Number of events of each program, which runs on any CPU.
const EVENTS: u64 = 3;
/// Pause between two programs. It is no multiple of the recorder's interval, so that programs start
/// at different times within the interval.
const PAUSE: Duration = Duration::from_micros(7300);
/// Time limit of the follower, in seconds.
const LIMIT_S: u64 = 120;

/// A line of the follower's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FollowedLine {
    /// Time of the event, in CLOCK_MONOTONIC ns.
    event_ns: u64,
    /// Time at which the line was read, in CLOCK_MONOTONIC ns.
    seen_ns: u64,
}

/// Measures the latency of a follower of a session while programs emit.
pub(super) fn measure_follow_latency(sessions: &TrackwaySessions<'_>) -> Result<Sample> {
    sessions.create(SESSION, SessionProperties::of(SessionKind::Disk))?;
    let mut command = sessions.command();
    command.args(["print", "--follow", SESSION, "--clock-cycles", "--no-delta"]);
    let mut follower = RunningProgram::start_for(&mut command, "trackway print --follow", LIMIT_S)?;
    // The time before the follower is ready is not part of its latency.
    let first = run_emitting_program(sessions, 0).and_then(|()| read_line(&mut follower));
    let lines = std::thread::scope(|scope| {
        let emitting = scope.spawn(|| run_emitting_programs(sessions));
        let lines = first.and_then(|_| read_remaining_lines(&mut follower));
        if lines.is_err() {
            follower.terminate();
        }
        let emitted = emitting.join().unwrap_or_else(|_| Err(Error::output("workload", "gone")));
        emitted.and(lines)
    });
    let ended = sessions.end(SESSION, SessionKind::Disk, EVENTS * (PROGRAMS + 1));
    if ended.is_err() {
        follower.terminate();
    }
    let finished = follower.finish();
    let (lines, account) = (lines?, ended?);
    finished?;
    let us = |line: &FollowedLine| line.seen_ns.saturating_sub(line.event_ns) as f64 / 1e3;
    let delays: Vec<f64> = lines.iter().map(us).collect();
    let extra = vec![(OUT_OF_ORDER, count_out_of_order(&lines) as f64)];
    Ok(Sample { account: Some(account), extra, ..sample_of_turns(&delays)? })
}

fn run_emitting_programs(sessions: &TrackwaySessions<'_>) -> Result<()> {
    for program in 1..=PROGRAMS {
        std::thread::sleep(PAUSE);
        run_emitting_program(sessions, program)?;
    }
    Ok(())
}

/// Runs a program that emits a few events and ends.
fn run_emitting_program(sessions: &TrackwaySessions<'_>, program: u64) -> Result<()> {
    let mut command: Command = sessions.program();
    command.args(["few", &(program * EVENTS).to_string(), &EVENTS.to_string()]);
    child::run(&mut command, "a program that emits").map(|_| ())
}

/// Reads the lines of all programs except the first; one line of the first was already read.
fn read_remaining_lines(follower: &mut RunningProgram) -> Result<Vec<FollowedLine>> {
    for _ in 1..EVENTS {
        read_line(follower)?;
    }
    (0..PROGRAMS * EVENTS).map(|_| read_line(follower)).collect()
}

fn read_line(follower: &mut RunningProgram) -> Result<FollowedLine> {
    let line = follower.line()?;
    let seen_ns = monotonic_ns();
    let event_ns = parse_event_ns(&line)
        .ok_or_else(|| Error::output("trackway print", format_args!("'{line}' is no event")))?;
    Ok(FollowedLine { event_ns, seen_ns })
}

/// Parses the time at the beginning of a line: `[00000000819576267967] …`.
fn parse_event_ns(line: &str) -> Option<u64> {
    line.strip_prefix('[')?.split_once(']')?.0.parse().ok()
}

/// Returns the number of lines whose event is older than the previous line's event.
fn count_out_of_order(lines: &[FollowedLine]) -> u64 {
    lines.windows(2).filter(|pair| pair[1].event_ns < pair[0].event_ns).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_compared() {
        let line = "[00000000819576267967] vm lab:number: { cpu_id = 0 }, { value = 3 }";
        assert_eq!(parse_event_ns(line), Some(819_576_267_967));
        assert_eq!(parse_event_ns(""), None);
        assert_eq!(parse_event_ns("[x] vm"), None);
        let at = |event_ns| FollowedLine { event_ns, seen_ns: 9 };
        assert_eq!(count_out_of_order(&[at(1), at(3), at(2), at(2), at(4)]), 1);
    }
}
