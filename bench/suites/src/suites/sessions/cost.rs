//! The cost of an event that no session records, that one records, and that several record.

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::workload::{self, Batch};
use trackway_bench_engine::results::{Account, Row, SuiteRows};
use trackway_bench_engine::settings::Settings;
use trackway_bench_engine::stats::Spread;
use trackway_bench_engine::suite::Sample;

use super::host::{SessionBuffers, SessionHost, SessionKind, SessionProperties};
use super::programs::{count_events, paced_command, run_batches};
use super::{OURS, THEIRS};

/// Numbers of sessions for Trackway; a window has room for 32.
pub(super) const TRACKWAY_SESSION_COUNTS: [u32; 4] = [1, 2, 4, 32];
/// Numbers of sessions for LTTng.
pub(super) const LTTNG_SESSION_COUNTS: [u32; 3] = [1, 2, 4];
/// Events of a batch that one session records. With more sessions, batches have fewer events, so
/// that each takes a fraction of a millisecond, and most are not interrupted; but not too few.
const BATCH_EVENTS: u64 = 10_000;
const BATCH_EVENTS_MIN: u64 = 1000;
/// Number of events that fill a ring once.
const ROUND_EVENTS: u64 = 200_000;
/// Events of a batch with a disabled event, and number of warm-up batches.
const OFF_EVENTS: u64 = 400_000;
const OFF_WARM_UP: u32 = 1;
/// Number of warm-up bursts that are recorded to a folder.
const DISK_WARM_UP: u32 = 10;
/// Time from one burst to the next while a recorder drains, in µs: long enough for 32 recorders.
const PERIOD_US: u64 = 50_000;

/// Keys of extra figures that are computed from several rows.
const EACH_FURTHER: &str = "each further session, ns";
const RATIO_TO_ONE_SESSION: &str = "in terms of 1 session";

/// Returns the name of the case.
pub(super) fn case_name(kind: SessionKind, sessions: u32) -> String {
    let plural = if sessions == 1 { "" } else { "s" };
    format!("{sessions} session{plural}, {}", kind.words())
}

/// Returns the number of counted batches.
const fn counted_batches(settings: &Settings, kind: SessionKind) -> u32 {
    match (kind, settings.quick) {
        (SessionKind::Flight, true) => 20,
        (SessionKind::Flight, false) => 120,
        (SessionKind::Disk, true) => 10,
        (SessionKind::Disk, false) => 20,
    }
}

/// Measures a disabled event.
pub(super) fn measure_disabled_event(
    host: &dyn SessionHost,
    settings: &Settings,
) -> Result<Sample> {
    let mut command = host.program_off()?;
    let all = OFF_WARM_UP + counted_batches(settings, SessionKind::Flight);
    command.args(["batches", "number", "1", &all.to_string(), &OFF_EVENTS.to_string()]);
    sample_of_batches(&run_batches(command)?, OFF_WARM_UP)
}

/// Measures an event in several sessions: creates the sessions, emits events, and searches each
/// session's trace for all of the events.
pub(super) fn measure_recorded_event(
    host: &dyn SessionHost,
    settings: &Settings,
    kind: SessionKind,
    sessions: u32,
) -> Result<Sample> {
    let names: Vec<String> = (1..=sessions).map(|number| format!("lab-{number}")).collect();
    for name in &names {
        host.create(
            name,
            SessionProperties { buffers: SessionBuffers::Ring, ..SessionProperties::of(kind) },
        )?;
    }
    let (warm_up, events) = (warm_up_batches(kind, sessions), events_per_batch(sessions));
    let all = warm_up + counted_batches(settings, kind);
    let mut command = host.program();
    let command = match kind {
        SessionKind::Flight => {
            command.args(["batches", "number", "1", &all.to_string(), &events.to_string()]);
            command
        }
        SessionKind::Disk => paced_command(command, all.into(), events, PERIOD_US),
    };
    let batches = run_batches(command)?;
    let mut account = Account::default();
    for name in &names {
        let of_one = host.end(name, kind, count_events(&batches))?;
        if !of_one.is_complete() {
            // A surplus in one session must not make up for a loss in another.
            let message = format!("events do not add up: {}", of_one.words());
            return Err(Error::output(name, message));
        }
        account.add(&of_one);
    }
    Ok(Sample { account: Some(account), ..sample_of_batches(&batches, warm_up)? })
}

fn sample_of_batches(batches: &[Batch], warm_up: u32) -> Result<Sample> {
    let figure = workload::median_event_ns(batches, warm_up)?;
    Ok(Sample { figure, ..Sample::default() })
}

/// Returns the number of events of a batch.
fn events_per_batch(sessions: u32) -> u64 {
    (BATCH_EVENTS / u64::from(sessions)).max(BATCH_EVENTS_MIN)
}

/// Returns the number of warm-up batches: until rings that are overwritten are full, and the other
/// rings have been written to.
fn warm_up_batches(kind: SessionKind, sessions: u32) -> u32 {
    match kind {
        SessionKind::Flight => ROUND_EVENTS.div_ceil(events_per_batch(sessions)) as u32,
        SessionKind::Disk => DISK_WARM_UP,
    }
}

/// Adds the cost of a further session, and the ratio of each row to one session in the same round.
pub(super) fn add_relative_costs(suite: &mut SuiteRows) {
    for (tracer, kind) in
        [OURS, THEIRS].iter().flat_map(|one| SessionKind::ALL.map(|kind| (*one, kind)))
    {
        let is_one = |row: &Row| row.tracer == tracer && row.case == case_name(kind, 1);
        let Some(one) = suite.rows.iter().find(|row| is_one(row)).cloned() else { continue };
        let mut points = Vec::new();
        for sessions in TRACKWAY_SESSION_COUNTS {
            let case = case_name(kind, sessions);
            let of_case = |row: &&mut Row| row.tracer == tracer && row.case == case;
            let Some(row) = suite.rows.iter_mut().find(of_case) else { continue };
            points.extend(row.median().map(|ns| (f64::from(sessions), ns)));
            if let Some(times) = median_ratio(&row.samples, &one.samples).filter(|_| sessions > 1) {
                row.extra.insert(RATIO_TO_ONE_SESSION.to_owned(), times);
            }
        }
        if let (Some(ns), Some(one)) =
            (least_squares_slope(&points), suite.rows.iter_mut().find(|row| is_one(row)))
        {
            one.extra.insert(EACH_FURTHER.to_owned(), ns);
        }
    }
}

/// Returns the median ratio of figures to baselines of the same round.
fn median_ratio(figures: &[Option<f64>], baselines: &[Option<f64>]) -> Option<f64> {
    let pairs = figures.iter().zip(baselines);
    let times: Vec<f64> = pairs.filter_map(|(one, other)| Some((*one)? / (*other)?)).collect();
    Spread::of(&times).map(|spread| spread.median)
}

/// Returns the slope of the line by least squares; `None` if the points determine no line.
fn least_squares_slope(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let over: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    let under: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    (under > 0.0).then(|| over / under)
}

#[cfg(test)]
mod tests {
    use trackway_bench_engine::results::fixtures::{measured_row, suite_of_rows};

    use super::*;

    #[test]
    fn the_slope_is_that_of_the_line() {
        assert_eq!(
            least_squares_slope(&[(1.0, 25.0), (2.0, 45.0), (4.0, 85.0), (32.0, 645.0)]),
            Some(20.0)
        );
        assert_eq!(
            least_squares_slope(&[(1.0, 3.0), (2.0, 4.0), (3.0, 3.0), (4.0, 6.0)]),
            Some(0.8)
        );
        assert_eq!(least_squares_slope(&[(1.0, 25.0)]), None);
        assert_eq!(least_squares_slope(&[]), None);
    }

    #[test]
    fn rings_come_round_before_batches_count() {
        assert_eq!((events_per_batch(1), warm_up_batches(SessionKind::Flight, 1)), (10_000, 20));
        assert_eq!((events_per_batch(32), warm_up_batches(SessionKind::Flight, 32)), (1000, 200));
        assert_eq!(warm_up_batches(SessionKind::Disk, 32), 10);
    }

    #[test]
    fn further_sessions_are_told_in_terms_of_one_of_the_same_round() {
        let of = |sessions, samples: &[Option<f64>]| Row {
            samples: samples.to_vec(),
            ..measured_row(
                OURS,
                &case_name(SessionKind::Flight, sessions),
                20.0 * f64::from(sessions),
            )
        };
        let mut rows = suite_of_rows([
            of(1, &[Some(10.0), Some(20.0), None]),
            of(2, &[Some(30.0), Some(60.0), Some(500.0)]),
            of(4, &[None, None, Some(1.0)]),
        ]);
        add_relative_costs(&mut rows);
        assert!((rows.rows[0].extra[EACH_FURTHER] - 20.0).abs() < 1e-9);
        assert_eq!(rows.rows[1].extra, [(RATIO_TO_ONE_SESSION.to_owned(), 3.0)].into());
        assert!(rows.rows[2].extra.is_empty());
    }
}
