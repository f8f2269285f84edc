//! CPU time of recording, in addition to the program's: while the program emits a million events
//! per second, and while it emits none.

use std::time::{Duration, Instant};

use trackway_bench_engine::error::Result;
use trackway_bench_engine::suite::Sample;

use super::host::{SESSION, SessionHost, SessionKind, SessionProperties};
use super::programs::{self, BURSTS_PER_SECOND};
use super::usage;

/// Time for which each program is observed, in ms, and additional time for which a program without
/// events runs.
const SECOND_MS: u64 = 1000;
const SPARE_MS: u64 = 200;

/// Measures the part of one CPU, in percent, that a session's recorders take while a program emits.
pub(super) fn measure_recorder_load(host: &dyn SessionHost, kind: SessionKind) -> Result<Sample> {
    host.create(SESSION, SessionProperties::of(kind))?;
    let recorders = host.recorders()?;
    let idle = programs::while_sleeping(host, SECOND_MS + SPARE_MS, || {
        let before = Moment::now(&recorders)?;
        std::thread::sleep(Duration::from_millis(SECOND_MS));
        before.until_now(&recorders)
    })?;
    let before = Moment::now(&recorders)?;
    let batches = programs::run_batches(programs::million_events_command(host, BURSTS_PER_SECOND))?;
    let busy = before.until_now(&recorders)?;
    let emitted = programs::count_events(&batches);
    let account = host.end(SESSION, kind, emitted)?;
    let extra = vec![
        ("while nothing happens, %", idle.percent),
        ("events a second", emitted as f64 / busy.seconds),
    ];
    Ok(Sample { figure: busy.percent, account: Some(account), extra, ..Sample::default() })
}

/// Time, and CPU time of the observed processes.
struct Moment {
    at: Instant,
    cpu_ns: u64,
}

/// The difference between two moments.
struct CpuUsage {
    seconds: f64,
    /// Percent of one CPU.
    percent: f64,
}

impl Moment {
    fn now(pids: &[u32]) -> Result<Self> {
        Ok(Self { at: Instant::now(), cpu_ns: usage::cpu_ns(pids)? })
    }

    fn until_now(&self, pids: &[u32]) -> Result<CpuUsage> {
        let now = Self::now(pids)?;
        let seconds = (now.at - self.at).as_secs_f64();
        let cpu_seconds = now.cpu_ns.saturating_sub(self.cpu_ns) as f64 / 1e9;
        Ok(CpuUsage { seconds, percent: cpu_seconds / seconds * 100.0 })
    }
}
