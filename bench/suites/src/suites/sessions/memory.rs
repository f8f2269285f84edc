//! Memory of a session with a program that emits no events.

use std::time::Duration;

use trackway_bench_engine::error::Result;
use trackway_bench_engine::suite::Sample;

use super::host::{SESSION, SessionHost, SessionProperties};
use super::programs;
use super::usage::{self, KIB};

/// Running time of the idle program, in ms.
const STAY_MS: u64 = 500;
/// Events of a second program after the measurement, which show that the session records.
const EVENTS: u64 = 100;

/// Measures an idle session: KiB of additional shared memory, and of its recorders' private memory.
pub(super) fn measure_idle_memory(
    host: &dyn SessionHost,
    wanted: SessionProperties,
) -> Result<Sample> {
    let before = settled_shared_bytes(host)?;
    host.create(SESSION, wanted)?;
    let (shared_bytes, resident) = programs::while_sleeping(host, STAY_MS, || {
        Ok((host.shared_bytes()?, usage::resident_memory(&host.recorders()?)?))
    })?;
    let batches = programs::run_batches(programs::paced_command(host.program(), 1, EVENTS, 1))?;
    let account = host.end(SESSION, wanted.kind, programs::count_events(&batches))?;
    let shared = shared_bytes.saturating_sub(before) as f64 / KIB;
    let own = resident.own_bytes as f64 / KIB;
    let extra = vec![
        ("shared memory, KiB", shared),
        ("recorders' own, KiB", own),
        ("recorders, resident, KiB", resident.all_bytes as f64 / KIB),
    ];
    Ok(Sample { figure: shared + own, account: Some(account), extra, ..Sample::default() })
}

/// Returns the shared memory while there is no session: the least of a second's readings, because
/// the memory of the previous session may be released later.
fn settled_shared_bytes(host: &dyn SessionHost) -> Result<u64> {
    let mut least = host.shared_bytes()?;
    for _ in 0..10 {
        std::thread::sleep(Duration::from_millis(100));
        least = least.min(host.shared_bytes()?);
    }
    Ok(least)
}
