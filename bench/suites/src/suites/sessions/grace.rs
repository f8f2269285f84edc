//! Duration of changes that need a grace period, while a program emits a million events per second:
//! a session's stop, new buffers for a channel, and the visit to every CPU alone.

use std::time::{Duration, Instant};

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::machine::allowed_cpus;
use trackway_bench_engine::results::Account;
use trackway_bench_engine::suite::Sample;
use trackway_sys::thread::CpuSet;

use super::host::{SESSION, SessionHost, SessionKind, SessionProperties};
use super::programs::while_emitting;
use super::trackway::TrackwaySessions;
use super::{TURNS, median_of, sample_of_turns};
use crate::trace_check;

/// Waiting time after which a stopped session counts as silent: the time of some bursts.
const SILENCE: Duration = Duration::from_millis(5);

/// Measures the stops of a session. After each stop, checks that no more events are recorded, if
/// the session reports a count.
pub(super) fn measure_stops(host: &dyn SessionHost) -> Result<Sample> {
    let created_us = measure_us(|| host.create(SESSION, SessionProperties::of(SessionKind::Disk)))?;
    let (mut stop_us, mut start_us) = (Vec::new(), Vec::new());
    while_emitting(host, || {
        for _ in 0..TURNS {
            stop_us.push(measure_us(|| host.stop(SESSION))?);
            let stopped = host.recorded()?;
            std::thread::sleep(SILENCE);
            let later = host.recorded()?;
            if later != stopped {
                let what = format!("{later:?} some time after it was stopped with {stopped:?}");
                return Err(Error::output(SESSION, what));
            }
            start_us.push(measure_us(|| host.start())?);
        }
        Ok(())
    })?;
    host.stop(SESSION)?;
    // Events emitted while the session was stopped belong to no session. The trace must contain the
    // events that the session reports as recorded.
    let events = trace_check::count_trace(&host.trace(SESSION))?.unwrap_or_default().events;
    let account = host.end(SESSION, SessionKind::Disk, events)?;
    let account = Account { emitted: account.recorded + account.lost, ..account };
    let extra = vec![("made, µs", created_us), ("started again, µs", median_of(&start_us)?)];
    Ok(Sample { account: Some(account), extra, ..sample_of_turns(&stop_us)? })
}

/// Measures changes of the channel's context, which replace the channel's buffers; no event may be
/// lost or doubled.
pub(super) fn measure_buffer_replacements(sessions: &TrackwaySessions<'_>) -> Result<Sample> {
    measure_during_session(sessions, || {
        let contexts = ["vtid", "none"].into_iter().cycle().take(TURNS as usize);
        contexts.map(|context| measure_us(|| sessions.set_context(context))).collect()
    })
}

/// Measures the recorder's method to end all earlier restartable sequences: it runs on every CPU
/// once, in this case in the bench's process.
pub(super) fn measure_cpu_visits(sessions: &TrackwaySessions<'_>) -> Result<Sample> {
    measure_during_session(sessions, || (0..TURNS).map(|_| measure_cpu_visit_us()).collect())
}

/// Measures the duration of an action, in µs, while a session records every event of a program.
fn measure_during_session(
    host: &dyn SessionHost,
    something: impl FnOnce() -> Result<Vec<f64>>,
) -> Result<Sample> {
    host.create(SESSION, SessionProperties::of(SessionKind::Disk))?;
    let (us, emitted) = while_emitting(host, something)?;
    let account = host.end(SESSION, SessionKind::Disk, emitted)?;
    Ok(Sample { account: Some(account), ..sample_of_turns(&us)? })
}

fn measure_cpu_visit_us() -> Result<f64> {
    let fail = |errno: trackway_sys::Errno| {
        Error::io("cannot move to another CPU")(std::io::Error::from_raw_os_error(errno.0))
    };
    let cpus = allowed_cpus()?;
    let before = CpuSet::current().map_err(fail)?;
    let us = measure_us(|| {
        for &cpu in &cpus {
            CpuSet::only(cpu as u32).apply().map_err(fail)?;
        }
        before.apply().map_err(fail)
    });
    // Restores the earlier CPU set, also after a failure.
    before.apply().map_err(fail)?;
    us
}

fn measure_us<T>(act: impl FnOnce() -> Result<T>) -> Result<f64> {
    let begin = Instant::now();
    act()?;
    Ok(begin.elapsed().as_secs_f64() * 1e6)
}
