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

/// Longest time that the workload has, in seconds.
const LIMIT_S: u64 = 60;

/// One turn: the event switched on, and off again.
struct SwitchTurn {
    /// Before the command was started, or the request sent.
    asked_ns: u64,
    /// After its end, or the answer.
    answered_ns: u64,
    /// When the program saw that its event is on.
    seen_ns: u64,
}

/// Switches the event of a program on that emits without a pause.
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
    // The times are read before the session ends: some tracers' traces are whole only then, but all
    // have the events before the stop.
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
        // Else the event might be on again before the program checks it.
        expect_line(running, &format!("unseen {number}"))?;
    }
    Ok(turns)
}

/// Computes the sample from the turns and the times and numbers of the trace: each turn's first
/// event must be there, and no event before it was switched on.
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
    // How often the program has emitted while it was on is known only of the first time.
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
