//! How long changes take that need a grace period: a session's stop, and other buffers for a
//! channel, while a program emits a million events a second; and the visit to every CPU alone.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use trackway_sys::thread::CpuSet;

use super::host::{Buffers, Host};
use super::ours::Ours;
use super::results::{Change, Grace, Kind};
use crate::child::Running;
use crate::error::{Error, Result};
use crate::machine::allowed_cpus;
use crate::readback;
use crate::stats::Spread;
use crate::workload;

const SESSION: &str = "lab-grace";
/// Longest time that the workload has, in seconds, and its bursts until then: it is ended before.
const LIMIT_S: u64 = 120;
const BURSTS: u64 = 100_000;
const BURST_EVENTS: u64 = 1000;
const PERIOD_US: u64 = 1000;
/// How long is waited to see that a stopped session records nothing: some bursts.
const SILENCE: Duration = Duration::from_millis(5);

/// The stops of a session, by its host's command.
pub(super) fn stops(host: &dyn Host, turns: u32) -> Result<Grace> {
    host.create(SESSION, Kind::Disk, Buffers::Default, true)?;
    let (us, _) = beside_a_program(host, || {
        let mut us = Vec::new();
        for _ in 0..turns {
            us.push(timed_us(|| host.stop(SESSION))?);
            host.start(SESSION)?;
        }
        Ok(us)
    })?;
    end(host)?;
    grace(host, Change::StopByCommand, &us)
}

/// The same by our recorder's socket; after each, nothing more is recorded.
pub(super) fn stops_by_socket(ours: &Ours<'_>, turns: u32) -> Result<Grace> {
    ours.create(SESSION, Kind::Disk, Buffers::Default, true)?;
    let (us, _) = beside_a_program(ours, || {
        let mut us = Vec::new();
        for _ in 0..turns {
            us.push(timed_us(|| ours.ask(SESSION, json!({ "ask": "stop" })))?);
            let stopped = ours.status(SESSION)?.counts;
            std::thread::sleep(SILENCE);
            let later = ours.status(SESSION)?.counts;
            if later != stopped {
                let what = format!("{later:?} some time after it was stopped with {stopped:?}");
                return Err(Error::output(SESSION, what));
            }
            ours.ask(SESSION, json!({ "ask": "start" }))?;
        }
        Ok(us)
    })?;
    end(ours)?;
    grace(ours, Change::StopBySocket, &us)
}

/// Ends a session that recorded at times: how much depends on when, but it recorded something, and
/// what its trace has is what it says.
fn end(host: &dyn Host) -> Result<()> {
    host.stop(SESSION)?;
    let events = readback::count(&host.trace(SESSION))?.unwrap_or_default().events;
    host.end(SESSION, Kind::Disk, events)?;
    match events {
        0 => Err(Error::output(SESSION, "it recorded nothing between its stops")),
        _ => Ok(()),
    }
}

/// Other contexts for the channel, which gives it other buffers: no event is lost or doubled.
pub(super) fn replacements(ours: &Ours<'_>, turns: u32, change: Change) -> Result<Grace> {
    ours.create(SESSION, Kind::Disk, Buffers::Default, true)?;
    let (us, emitted) = beside_a_program(ours, || {
        let mut us = Vec::new();
        for turn in 0..turns {
            let context = if turn % 2 == 0 { "vtid" } else { "none" };
            us.push(timed_us(|| match change {
                Change::ReplaceBySocket => ours.ask(SESSION, replacement(context)).map(|_| ()),
                _ => ours
                    .trackway(&["channel", "set", SESSION, "channel0", "--context", context])
                    .map(|_| ()),
            })?);
        }
        Ok(us)
    })?;
    let account = ours.end(SESSION, Kind::Disk, emitted)?;
    if !account.is_complete() {
        let what = format!("events do not add up: {}", account.words());
        return Err(Error::output(SESSION, what));
    }
    grace(ours, change, &us)
}

fn replacement(context: &str) -> Value {
    let contexts = if context == "none" { json!([]) } else { json!([context]) };
    json!({ "ask": "set-channel", "channel": "channel0", "contexts": contexts })
}

/// What the recorder does to know that no sequence of before is alive: it runs on every CPU once,
/// here by ourselves.
pub(super) fn visits(ours: &Ours<'_>, turns: u32) -> Result<Grace> {
    ours.create(SESSION, Kind::Disk, Buffers::Default, true)?;
    let (us, emitted) =
        beside_a_program(ours, || (0..turns).map(|_| visit_us()).collect::<Result<Vec<f64>>>())?;
    ours.end(SESSION, Kind::Disk, emitted)?;
    grace(ours, Change::Visit, &us)
}

fn visit_us() -> Result<f64> {
    let fail = |errno: trackway_sys::Errno| {
        Error::io("cannot move to another CPU")(std::io::Error::from_raw_os_error(errno.0))
    };
    let cpus = allowed_cpus()?;
    let before = CpuSet::current().map_err(fail)?;
    let us = timed_us(|| {
        for &cpu in &cpus {
            CpuSet::only(cpu as u32).apply().map_err(fail)?;
        }
        before.apply().map_err(fail)
    });
    // As it was before, also after a failure.
    before.apply().map_err(fail)?;
    us
}

/// Does something while a program emits; what came of it, and how many events there were.
fn beside_a_program<T>(host: &dyn Host, something: impl FnOnce() -> Result<T>) -> Result<(T, u64)> {
    let mut command = host.program();
    let numbers = [BURSTS, BURST_EVENTS, PERIOD_US].map(|number| number.to_string());
    command.arg("paced").args(numbers);
    let running = Running::start_for(&mut command, "a program that emits", LIMIT_S)?;
    // Until it has begun: else the first of them would find nothing to wait for.
    std::thread::sleep(Duration::from_millis(100));
    let done = something();
    running.terminate();
    let finished = running.finish();
    let done = done?;
    let batches = workload::batches(&finished?.stdout)?;
    Ok((done, batches.iter().map(|batch| batch.events).sum()))
}

fn timed_us<T>(act: impl FnOnce() -> Result<T>) -> Result<f64> {
    let begin = Instant::now();
    act()?;
    Ok(begin.elapsed().as_secs_f64() * 1e6)
}

fn grace(host: &dyn Host, change: Change, us: &[f64]) -> Result<Grace> {
    let us = Spread::of(us).ok_or_else(|| Error::output(SESSION, "there were no turns"))?;
    Ok(Grace { who: host.who(), change, us })
}
