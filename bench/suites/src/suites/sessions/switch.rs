//! Time from `event on` until a running program's event is recorded.

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::child::RunningProgram;
use trackway_bench_engine::host::workload;
use trackway_bench_engine::results::Account;
use trackway_bench_engine::suite::Sample;
use trackway_sys::clock::monotonic_ns;

use super::host::{SESSION, SessionHost, SessionKind, SessionProperties};
use super::programs::expect_line;
use super::{TURNS, median_of, sample_of_turns};
use crate::trace_check;

/// Time limit of the workload, in seconds.
const LIMIT_S: u64 = 60;

/// One turn, in which the event is enabled and disabled again.
struct SwitchTurn {
    /// Time before the command was started or the request sent.
    asked_ns: u64,
    /// Time after the end of the command or the answer.
    answered_ns: u64,
    /// Time at which the program found its event enabled.
    seen_ns: u64,
}

/// Measures the enabling of an event in a program that emits without a pause.
pub(super) fn measure_event_switch(host: &dyn SessionHost) -> Result<Sample> {
    host.create(
        SESSION,
        SessionProperties { is_on: false, ..SessionProperties::of(SessionKind::Disk) },
    )?;
    let mut command = host.program();
    command.arg("watch").arg(TURNS.to_string());
    let mut running = RunningProgram::start_for(&mut command, "a program that waits", LIMIT_S)?;
    let done = switch_repeatedly(host, &mut running);
    if done.is_err() {
        running.terminate();
    }
    let finished = running.finish();
    let turns = done?;
    finished?;
    host.stop(SESSION)?;
    // The times are read before the session ends. Some tracers complete the trace only at the end,
    // but all have written the events before the stop.
    let times = trace_check::read_event_numbers(&host.trace(SESSION))?;
    host.end(SESSION, SessionKind::Disk, times.len() as u64)?;
    sample_of_switches(&turns, &times)
}

fn switch_repeatedly(
    host: &dyn SessionHost,
    running: &mut RunningProgram,
) -> Result<Vec<SwitchTurn>> {
    expect_line(running, "ready")?;
    let mut turns = Vec::new();
    for number in 0..u64::from(TURNS) {
        let asked_ns = monotonic_ns();
        host.event_on()?;
        let answered_ns = monotonic_ns();
        let line = running.line()?;
        let [turn, seen_ns] = workload::parse_numbers(&line, "seen")?;
        if turn != number {
            return Err(Error::output("workload", format_args!("'{line}' in turn {number}")));
        }
        turns.push(SwitchTurn { asked_ns, answered_ns, seen_ns });
        host.event_off()?;
        // Otherwise the event might be enabled again before the program checks it.
        expect_line(running, &format!("unseen {number}"))?;
    }
    Ok(turns)
}

/// Computes the sample from the turns, and from the times and numbers in the trace. The trace must
/// contain the first event of each turn, and no event from before the enabling.
fn sample_of_switches(turns: &[SwitchTurn], times: &[(u64, u64)]) -> Result<Sample> {
    let (mut event_us, mut seen_us, mut answer_us) = (Vec::new(), Vec::new(), Vec::new());
    for (number, turn) in (0..).zip(turns) {
        let of_turn = times.iter().filter(|one| one.1 == number).map(|one| one.0);
        let Some(first_ns) = of_turn.min().filter(|&first_ns| first_ns >= turn.asked_ns) else {
            let what = format_args!("no event of turn {number} where one must be");
            return Err(Error::output("trace", what));
        };
        let us = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e3;
        event_us.push(us(turn.asked_ns, first_ns));
        seen_us.push(us(turn.seen_ns, first_ns));
        answer_us.push(us(turn.asked_ns, turn.answered_ns));
    }
    // Only the first event of each turn is expected: the number of further events is unknown.
    let all = turns.len() as u64;
    let account = Account { emitted: all, recorded: all, ..Account::default() };
    let extra = vec![
        ("from seeing that it is on, µs", median_of(&seen_us)?),
        ("greatest from seeing it, µs", seen_us.iter().copied().fold(0.0, f64::max)),
        ("to the answer, µs", median_of(&answer_us)?),
        ("greatest to the answer, µs", answer_us.iter().copied().fold(0.0, f64::max)),
    ];
    Ok(Sample { account: Some(account), extra, ..sample_of_turns(&event_us)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_event_of_each_turn_counts_if_it_was_asked_for() {
        let turn = |asked_ns| SwitchTurn {
            asked_ns,
            answered_ns: asked_ns + 9000,
            seen_ns: asked_ns + 1000,
        };
        let turns = [turn(10_000), turn(50_000)];
        let times = [(13_000, 0), (12_000, 0), (54_000, 1)];
        let found = sample_of_switches(&turns, &times).expect("both");
        assert_eq!((found.figure, found.extra[0].1, found.extra[1].1), (3.0, 2.0, 3.0));
        assert_eq!(found.account.map(|one| (one.recorded, one.is_complete())), Some((2, true)));
        assert!(sample_of_switches(&turns, &times[..2]).is_err(), "one turn has none");
        assert!(sample_of_switches(&turns, &[(9000, 0), (54_000, 1)]).is_err(), "one is too early");
    }
}
