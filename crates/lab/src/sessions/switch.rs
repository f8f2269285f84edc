//! How long it takes from `event on` until a running program's event is recorded.

use serde_json::json;
use trackway_sys::clock::monotonic_ns;

use super::host::{Buffers, Host};
use super::ours::Ours;
use super::results::{By, Kind, SwitchOn};
use crate::child::Running;
use crate::error::{Error, Result};
use crate::readback;
use crate::stats::Spread;
use crate::workload;

const SESSION: &str = "lab-switch";
/// Longest time that the workload has, in seconds.
const LIMIT_S: u64 = 300;

/// One turn: the event switched on, and off again.
struct Turn {
    /// Before the command was started, or the request sent.
    asked_ns: u64,
    /// After its end, or the answer.
    answered_ns: u64,
    /// When the program saw that its event is on.
    seen_ns: u64,
}

/// Switches on by the command.
pub(super) fn by_command(host: &dyn Host, turns: u32) -> Result<SwitchOn> {
    measure(host, By::Command, turns, &|| host.event_on(SESSION))
}

/// Switches on by the recorder's socket, as the command does.
pub(super) fn by_socket(ours: &Ours<'_>, turns: u32) -> Result<SwitchOn> {
    let request = json!({ "ask": "events-on", "rules": ["lab:*"] });
    measure(ours, By::Socket, turns, &|| ours.ask(SESSION, request.clone()).map(|_| ()))
}

fn measure(
    host: &dyn Host,
    by: By,
    turns: u32,
    event_on: &dyn Fn() -> Result<()>,
) -> Result<SwitchOn> {
    host.create(SESSION, Kind::Disk, Buffers::Default, false)?;
    let mut command = host.program();
    command.arg("watch").arg(turns.to_string());
    let mut running = Running::start_for(&mut command, "a program that waits", LIMIT_S)?;
    let done = take_turns(host, &mut running, turns, event_on);
    if done.is_err() {
        running.terminate();
    }
    let finished = running.finish();
    let turns = done?;
    finished?;
    host.stop(SESSION)?;
    // Before it is ended: some tracers' traces are whole only then, but none lacks what was before
    // the stop.
    let times = readback::numbers(&host.trace(SESSION))?;
    host.end(SESSION, Kind::Disk, times.len() as u64)?;
    summary(host, by, &turns, &times)
}

fn take_turns(
    host: &dyn Host,
    running: &mut Running,
    count: u32,
    event_on: &dyn Fn() -> Result<()>,
) -> Result<Vec<Turn>> {
    expect(&running.line()?, "ready")?;
    let mut turns = Vec::new();
    for number in 0..count {
        let asked_ns = monotonic_ns();
        event_on()?;
        let answered_ns = monotonic_ns();
        let line = running.line()?;
        let [turn, seen_ns] = workload::numbers(&line, "seen")?;
        expect(&turn.to_string(), &number.to_string())?;
        turns.push(Turn { asked_ns, answered_ns, seen_ns });
        host.event_off(SESSION)?;
        // Or it might be on again before the program looks.
        expect(&running.line()?, &format!("unseen {number}"))?;
    }
    Ok(turns)
}

fn expect(found: &str, expected: &str) -> Result<()> {
    match found == expected {
        true => Ok(()),
        false => Err(Error::output("workload", format_args!("'{found}' is not '{expected}'"))),
    }
}

/// What the turns and the times and numbers of the trace come to: each turn's first event is there,
/// and none was before it was asked for.
fn summary(host: &dyn Host, by: By, turns: &[Turn], times: &[(u64, u64)]) -> Result<SwitchOn> {
    let (mut event_us, mut seen_us, mut answered_us) = (Vec::new(), Vec::new(), Vec::new());
    for (number, turn) in (0..).zip(turns) {
        let of_turn = times.iter().filter(|one| one.1 == number).map(|one| one.0);
        let first_ns = of_turn.min().filter(|&first_ns| first_ns >= turn.asked_ns);
        let first_ns = first_ns.ok_or_else(|| {
            let what = format!("no event of turn {number} where one must be");
            Error::output(host.trace(SESSION).display().to_string(), what)
        })?;
        let us = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e3;
        event_us.push(us(turn.asked_ns, first_ns));
        seen_us.push(us(turn.seen_ns, first_ns));
        answered_us.push(us(turn.asked_ns, turn.answered_ns));
    }
    let spread = |figures: &[f64]| {
        Spread::of(figures).ok_or_else(|| Error::output("workload", "there were no turns"))
    };
    Ok(SwitchOn {
        who: host.who(),
        by,
        event_us: spread(&event_us)?,
        seen_us: spread(&seen_us)?,
        answered_us: spread(&answered_us)?,
    })
}
