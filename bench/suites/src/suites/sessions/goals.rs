//! Goals for sessions.

use trackway_bench_engine::ratios::counted_bar_at_most;
use trackway_bench_engine::ratios::{FigureFormat, FiguresByRound, bar_at_most};
use trackway_bench_engine::results::{Bar, Row, SuiteRows};

use super::crowd::{DESCRIPTORS, LEFT_KIB, NOT_COUNTED, PLACES, ProcessOrigin};
use super::host::SessionKind;
use super::{OURS, THEIRS, Work, cost, live};

/// Memory that may remain after some thousand short-lived processes, in KiB: allocators sometimes
/// grow.
const LEFT_MOST_KIB: f64 = 256.0;
/// Longest time until a follower of a session shows an event, in ms.
const LIVE_MS: f64 = 100.0;

/// Returns the goals for sessions.
pub(crate) fn judge_goals(suite: &SuiteRows) -> Vec<Bar> {
    let of = |tracer: &str, case: &str| FiguresByRound::of(suite.row(tracer, case));
    let less = |what: String, case: &str| {
        bar_at_most(
            &what,
            of(OURS, case).over(&of(THEIRS, case)).estimate(),
            1.0,
            FigureFormat::PART,
        )
    };
    let mut bars: Vec<Bar> = [1, 2, 4]
        .map(|sessions| {
            let plural = if sessions == 1 { "" } else { "s" };
            let what = format!("{sessions} session{plural}: an event costs less than LTTng's");
            less(what, &cost::case_name(SessionKind::Flight, sessions))
        })
        .into();
    let what = "event on: the first event is there sooner than LTTng's".to_owned();
    bars.push(less(what, &Work::Switch.case()));
    let followed = suite.row(OURS, &Work::Live.case());
    bars.push(counted_bar_at_most(
        "followed: every event is shown, in order, within 100 ms",
        followed.and_then(live_ms),
        LIVE_MS,
        |ms| format!("{ms:.1} ms at worst"),
    ));
    bars.extend(judge_short_lived_processes(suite));
    bars
}

/// Returns the longest latency from an event to the reader, in ms; infinity if an event is out of
/// order.
fn live_ms(row: &Row) -> Option<f64> {
    match row.extra.get(live::OUT_OF_ORDER)? {
        0.0 => Some(row.tail?.max / 1e3),
        _ => Some(f64::INFINITY),
    }
}

/// Judges the leftovers of short-lived processes, for each origin of processes.
fn judge_short_lived_processes(suite: &SuiteRows) -> [Bar; 3] {
    // A failed row gives no figure, even if some of its rounds were good.
    let row = |starts: ProcessOrigin| suite.row(OURS, &Work::Crowd(starts).case());
    let rows = ProcessOrigin::ALL.map(|starts| row(starts).filter(|row| row.spread.is_some()));
    // Returns the sum over both origins, if both were measured.
    let sum = |of: &dyn Fn(&Row) -> Option<f64>| rows.iter().map(|row| of((*row)?)).sum();
    let extra = |name: &'static str| move |row: &Row| row.extra.get(name).copied();
    let lost: Option<f64> = sum(&|row| Some(row.lost? as f64));
    let of_events: Option<f64> = sum(&|row| Some(row.emitted? as f64));
    let wrong: Option<f64> = sum(&|row| Some(extra(NOT_COUNTED)(row)? + extra(PLACES)(row)?));
    let (descriptors, kib): (Option<f64>, Option<f64>) =
        (sum(&extra(DESCRIPTORS)), sum(&extra(LEFT_KIB)));
    // A remaining descriptor is too much, however little memory remains.
    let left = descriptors.zip(kib);
    let worst = left.map(|(descriptors, kib)| if descriptors > 0.0 { f64::INFINITY } else { kib });
    [
        counted_bar_at_most("short-lived processes: no event is missing", lost, 0.0, |lost| {
            format!("{lost:.0} of {:.0}", of_events.unwrap_or_default())
        }),
        counted_bar_at_most(
            "short-lived processes: each is counted, none keeps its place",
            wrong,
            0.0,
            |one| format!("{one:.0} at worst"),
        ),
        counted_bar_at_most(
            "short-lived processes: no descriptor, at most 256 KiB is left",
            worst,
            LEFT_MOST_KIB,
            |_| left.map_or_else(String::new, |(files, kib)| format!("{files:.0}, {kib:.0} KiB")),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use trackway_bench_engine::results::Verdict;
    use trackway_bench_engine::results::fixtures::{measured_row, steady_row, suite_of_rows};
    use trackway_bench_engine::stats::Tail;

    use super::*;

    #[test]
    fn bars_follow_the_figures() {
        let pair = |case: &str, ours, theirs| {
            [steady_row(OURS, case, ours), steady_row(THEIRS, case, theirs)]
        };
        let crowd = |starts: ProcessOrigin, kib| Row {
            emitted: Some(1000),
            lost: Some(0),
            extra: [(NOT_COUNTED, 0.0), (PLACES, 0.0), (DESCRIPTORS, 0.0), (LEFT_KIB, kib)]
                .map(|(name, figure)| (name.to_owned(), figure))
                .into(),
            ..measured_row(OURS, &Work::Crowd(starts).case(), 4000.0)
        };
        let followed = Row {
            tail: Tail::of(&[(10_000.0, 5), (20_000.0, 1)]),
            extra: [(live::OUT_OF_ORDER.to_owned(), 0.0)].into(),
            ..measured_row(OURS, &Work::Live.case(), 10_000.0)
        };
        let mut rows = vec![
            followed,
            crowd(ProcessOrigin::Programs, 4.0),
            crowd(ProcessOrigin::Children, 40.0),
        ];
        rows.extend(pair(&cost::case_name(SessionKind::Flight, 1), 20.0, 100.0));
        rows.extend(pair(&Work::Switch.case(), 4.0, 2.0));
        let mut found = suite_of_rows(rows);
        let told = |suite: &SuiteRows| -> Vec<(String, Verdict)> {
            judge_goals(suite).into_iter().map(|bar| (bar.measured, bar.verdict)).collect()
        };
        let expected = [
            ("0.20 of it (0.20 to 0.20)", Verdict::Holds),
            ("not measured", Verdict::Unknown),
            ("not measured", Verdict::Unknown),
            ("2.00 of it (2.00 to 2.00)", Verdict::Misses),
            ("20.0 ms at worst", Verdict::Holds),
            ("0 of 2000", Verdict::Holds),
            ("0 at worst", Verdict::Holds),
            ("0, 44 KiB", Verdict::Holds),
        ];
        assert_eq!(told(&found), expected.map(|(text, verdict)| (text.to_owned(), verdict)));
        for (at, name) in [(0, live::OUT_OF_ORDER), (1, NOT_COUNTED), (2, PLACES), (1, DESCRIPTORS)]
        {
            found.rows[at].extra.insert(name.to_owned(), 1.0);
        }
        found.rows[2].lost = Some(2);
        let expected = [
            ("2 of 2000", Verdict::Misses),
            ("2 at worst", Verdict::Misses),
            ("1, 44 KiB", Verdict::Misses),
        ];
        let told = told(&found);
        assert_eq!(told[4].1, Verdict::Misses);
        assert_eq!(told[5..], expected.map(|(text, verdict)| (text.to_owned(), verdict)));
    }
}
