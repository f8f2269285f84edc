//! What Trackway set out to reach, held against what was measured. Reported, never asserted.

use crate::case::Case;
use crate::results::{Bar, Results, Verdict};
use crate::tracers::name::{
    CXX, CXX_OFF, EMPTY, LTTNG, LTTNG_OFF, LW_UST, RDTSC, RUST, RUST_OFF, TRACKWAY, TRACKWAY_OFF,
};

/// Most that an event may cost beyond the clock alone, in ns.
const ABOVE_CLOCK_NS: f64 = 8.0;
/// How much faster than LTTng-UST it must be.
const FASTER_THAN_LTTNG: f64 = 4.0;
/// How much worse than the clock it may do with two threads.
const TWO_THREADS: f64 = 1.10;
/// Most that an event may cost while it is off, in ns.
const OFF_NS: f64 = 0.6;
/// How much more than in C an event may cost in Rust: what one round differs from the next.
const RUST_AS_C: f64 = 1.05;
/// How much more than in C an event may cost in C++: what one round differs from the next.
const CXX_AS_C: f64 = 1.05;
/// How much faster than lttng_ust_tracef() trackway_printf() must be.
const FASTER_THAN_TRACEF: f64 = 2.0;
/// Most bytes of an event with one `u32`.
const EVENT_BYTES: f64 = 8.0;
/// Most that a program's start may cost, in µs.
const START_US: f64 = 200.0;

/// All bars.
pub(crate) fn all(results: &Results) -> Vec<Bar> {
    let one = Case::SIMPLEST;
    let ns = |tracer: &str| results.median_ns(tracer, &one);
    let printf_ns = |tracer: &str| results.median_ns(tracer, &Case::PRINTF);
    vec![
        at_most(
            &format!("one u32: at most rdtsc + {ABOVE_CLOCK_NS} ns"),
            difference(ns(TRACKWAY), ns(RDTSC)),
            ABOVE_CLOCK_NS,
            |above| format!("rdtsc {above:+.1} ns"),
        ),
        at_most(
            "one u32: less than LW-UST, the survey's lower bound",
            ratio(ns(TRACKWAY), ns(LW_UST)),
            1.0,
            |ratio| format!("{ratio:.2} of it"),
        ),
        at_least(
            &format!("one u32: {FASTER_THAN_LTTNG} times as fast as LTTng-UST (aim: 6)"),
            ratio(ns(LTTNG), ns(TRACKWAY)),
            FASTER_THAN_LTTNG,
        ),
        at_most(
            &format!("two threads: at most {TWO_THREADS:.2} of what two of rdtsc lose"),
            ratio(scaling(results, TRACKWAY), scaling(results, RDTSC)),
            TWO_THREADS,
            |ratio| format!("{ratio:.2}"),
        ),
        at_most(
            &format!("off: at most {OFF_NS} ns"),
            difference(ns(TRACKWAY_OFF), ns(EMPTY)),
            OFF_NS,
            |above| format!("empty loop {above:+.2} ns"),
        ),
        at_most(
            &format!("Rust, one u32: at most {RUST_AS_C:.2} of C"),
            ratio(ns(RUST), ns(TRACKWAY)),
            RUST_AS_C,
            |ratio| format!("{ratio:.2} of it"),
        ),
        at_most(
            &format!("C++, a view and a vector: at most {CXX_AS_C:.2} of C"),
            ratio(results.median_ns(CXX, &Case::VIEWS), results.median_ns(TRACKWAY, &Case::VIEWS)),
            CXX_AS_C,
            |ratio| format!("{ratio:.2} of it"),
        ),
        at_least(
            &format!("trackway_printf: {FASTER_THAN_TRACEF} times as fast as lttng_ust_tracef"),
            ratio(printf_ns(LTTNG), printf_ns(TRACKWAY)),
            FASTER_THAN_TRACEF,
        ),
        at_most(
            &format!("bytes of an event with one u32: at most {EVENT_BYTES}"),
            results
                .cell(TRACKWAY, &one)
                .and_then(|cell| cell.account?.bytes_per_event())
                // The long header, once in so many records, is not what is asked about.
                .map(|bytes| (bytes * 100.0).round() / 100.0),
            EVENT_BYTES,
            |bytes| format!("{bytes:.2}"),
        ),
        start(results),
    ]
}

/// What a program's start costs, without a session, in time and in threads.
fn start(results: &Results) -> Bar {
    let ours = results.startup.iter().find(|startup| startup.tracer == TRACKWAY_OFF);
    let added_us = ours.and_then(|ours| ours.added_us).map(|added| added.median);
    let threads = ours.map_or(0, |ours| ours.threads);
    let what = format!("start of a process: at most +{START_US} µs, and no thread");
    let mut bar = at_most(&what, added_us, START_US, |us| format!("{us:+.0} µs, {threads} thread"));
    if threads > 1 {
        bar.verdict = Verdict::Misses;
    }
    bar
}

/// What an event costs in each of two threads, in terms of what it costs in one.
fn scaling(results: &Results, tracer: &str) -> Option<f64> {
    let one = Case::SIMPLEST;
    ratio(results.median_ns(tracer, &one.with_threads(2)), results.median_ns(tracer, &one))
}

/// A ratio, where both are known and there is something to divide by.
pub(crate) fn ratio(over: Option<f64>, under: Option<f64>) -> Option<f64> {
    Some(over? / under.filter(|&under| under > 0.0)?)
}

fn difference(from: Option<f64>, less: Option<f64>) -> Option<f64> {
    Some(from? - less?)
}

/// A bar that figures up to `bound` hold.
pub(crate) fn at_most(
    what: &str,
    measured: Option<f64>,
    bound: f64,
    words: impl Fn(f64) -> String,
) -> Bar {
    bar(what, measured.map(words), measured.map(|measured| measured <= bound))
}

/// A bar that figures from `bound` on hold.
pub(crate) fn at_least(what: &str, measured: Option<f64>, bound: f64) -> Bar {
    let words = measured.map(|times| format!("{times:.2} times"));
    bar(what, words, measured.map(|measured| measured >= bound))
}

fn bar(what: &str, measured: Option<String>, holds: Option<bool>) -> Bar {
    Bar {
        what: what.to_owned(),
        measured: measured.unwrap_or_else(|| "not measured".to_owned()),
        verdict: match holds {
            Some(true) => Verdict::Holds,
            Some(false) => Verdict::Misses,
            None => Verdict::Unknown,
        },
    }
}

/// Names of the reference rows, for the ratios.
pub(crate) const REFERENCES: [&str; 2] = [RDTSC, LTTNG];
/// Rows whose starts are shown, in words.
pub(crate) const STARTS: [(&str, &str); 5] = [
    (EMPTY, "plain"),
    (TRACKWAY_OFF, "with libtrackway.so"),
    (RUST_OFF, "the same, with Rust's std"),
    (CXX_OFF, "the same, C++"),
    (LTTNG_OFF, "with LTTng-UST"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Startup;
    use crate::results::tests::example;
    use crate::stats::Spread;

    #[test]
    fn bars_follow_the_figures() {
        let bars = all(&example());
        let found: Vec<(&str, Verdict)> =
            bars.iter().map(|bar| (bar.measured.as_str(), bar.verdict)).collect();
        let expected = [
            ("rdtsc +5.8 ns", Verdict::Holds),
            ("not measured", Verdict::Unknown),
            ("6.00 times", Verdict::Holds),
            ("1.00", Verdict::Holds),
            ("not measured", Verdict::Unknown),
            ("not measured", Verdict::Unknown),
            ("not measured", Verdict::Unknown),
            ("not measured", Verdict::Unknown),
            ("8.00", Verdict::Holds),
            ("not measured", Verdict::Unknown),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_thread_misses_the_bar_however_fast_the_start() {
        let mut results = example();
        let added_us = Spread::of(&[150.0]);
        let plain = results.startup[0].clone();
        results.startup.push(Startup { tracer: TRACKWAY_OFF.to_owned(), added_us, ..plain });
        assert_eq!(start(&results).verdict, Verdict::Holds);
        results.startup[1].threads = 2;
        assert_eq!(start(&results).verdict, Verdict::Misses);
    }
}
