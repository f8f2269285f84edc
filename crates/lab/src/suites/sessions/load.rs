//! What recording takes of the CPUs besides the program: while it emits a million events a second,
//! and while it emits none.

use std::time::{Duration, Instant};

use super::host::{Host, Kind, SESSION, Wanted};
use super::programs::{self, BURSTS_PER_SECOND};
use super::usage;
use crate::error::Result;
use crate::suite::{Sample, Settings};

/// How long a program that emits nothing is there besides, in ms.
const SPARE_MS: u64 = 200;

/// Percent of one CPU that a session's recorders take while a program emits.
pub(super) fn measure(host: &dyn Host, settings: &Settings, kind: Kind) -> Result<Sample> {
    let seconds = if settings.quick { 1 } else { 2 };
    host.create(SESSION, Wanted::of(kind))?;
    let recorders = host.recorders()?;
    let milliseconds = seconds * 1000;
    let idle = programs::beside_one_that_sleeps(host, milliseconds + SPARE_MS, || {
        let before = Moment::now(&recorders)?;
        std::thread::sleep(Duration::from_millis(milliseconds));
        before.until_now(&recorders)
    })?;
    let before = Moment::now(&recorders)?;
    let batches = programs::batches(programs::million(host, seconds * BURSTS_PER_SECOND))?;
    let busy = before.until_now(&recorders)?;
    let emitted = programs::emitted(&batches);
    let account = host.end(SESSION, kind, emitted)?;
    let extra = vec![
        ("while nothing happens, %", idle.percent),
        ("events a second", emitted as f64 / busy.seconds),
    ];
    Ok(Sample { figure: busy.percent, account: Some(account), extra, ..Sample::default() })
}

/// Time, and time on CPUs.
struct Moment {
    at: Instant,
    cpu_ns: u64,
}

/// What was between two moments.
struct Since {
    seconds: f64,
    /// Of one CPU.
    percent: f64,
}

impl Moment {
    fn now(pids: &[u32]) -> Result<Self> {
        Ok(Self { at: Instant::now(), cpu_ns: usage::cpu_ns(pids)? })
    }

    fn until_now(&self, pids: &[u32]) -> Result<Since> {
        let now = Self::now(pids)?;
        let seconds = (now.at - self.at).as_secs_f64();
        let cpu_seconds = now.cpu_ns.saturating_sub(self.cpu_ns) as f64 / 1e9;
        Ok(Since { seconds, percent: cpu_seconds / seconds * 100.0 })
    }
}
