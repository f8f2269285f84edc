//! What Trackway set out to reach, held against what was measured. Reported, never asserted.

use crate::case::Case;
use crate::results::{Bar, Verdict};
use crate::rows::{Report, Row};
use crate::suites;
use crate::suites::events::THREADS;
use crate::tracers::name::{BPFTRACE, CXX, EMPTY, FTRACE_UPROBE, LTTNG, LW_UST, RDTSC, RUST};
use crate::tracers::name::{TRACEF, TRACKWAY, TRACKWAY_OFF, TRACKWAY_PRINTF};

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
/// How much faster than a probe of the kernel's on the same site it must be.
const FASTER_THAN_PROBES: f64 = 10.0;
/// Most bytes of an event with one `u32`.
const EVENT_BYTES: f64 = 8.0;
/// Most that a program's start may cost, in µs.
const START_US: f64 = 200.0;

/// All bars that the suites of a report are about.
pub(crate) fn all(report: &Report) -> Vec<Bar> {
    let mut bars = Vec::new();
    if report.suites.contains_key("tracepoint") {
        bars.extend(events(report));
        bars.extend(events_beside_others(report));
    }
    bars.extend(report.suites.contains_key("scaling").then(|| two_threads(report)));
    bars.extend(suites::paths::bars(report));
    bars.extend(suites::size::bars(report));
    bars.extend(report.suites.contains_key("startup").then(|| start(report)));
    bars.extend(suites::syscall::bars(report));
    bars.extend(report.suites.get("filter").into_iter().flat_map(suites::filter::bars));
    bars.extend(report.suites.get("sharing").into_iter().flat_map(suites::sharing::bars));
    bars.extend(report.suites.get("reading").into_iter().flat_map(suites::reading::bars));
    bars.extend(suites::spans::bars(report));
    bars.extend(suites::preload::bars(report));
    bars.extend(report.suites.get("sessions").into_iter().flat_map(suites::sessions::bars));
    bars
}

fn row<'a>(report: &'a Report, suite: &str, tracer: &str, case: &Case) -> Option<&'a Row> {
    report.suites.get(suite)?.row(tracer, &case.words())
}

/// The median cost of an event, in ns; of a tracer that did not do its work there is none.
fn event_ns(report: &Report, tracer: &str, case: &Case) -> Option<f64> {
    row(report, "tracepoint", tracer, case)?.median()
}

fn events(report: &Report) -> Vec<Bar> {
    let one = Case::SIMPLEST;
    let ns = |tracer: &str| event_ns(report, tracer, &one);
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
            ratio(event_ns(report, CXX, &Case::VIEWS), event_ns(report, TRACKWAY, &Case::VIEWS)),
            CXX_AS_C,
            |ratio| format!("{ratio:.2} of it"),
        ),
    ]
}

/// The same beside what formats text, and what asks the kernel; and in bytes.
fn events_beside_others(report: &Report) -> Vec<Bar> {
    let one = Case::SIMPLEST;
    let ns = |tracer: &str| event_ns(report, tracer, &one);
    let printf_ns = |tracer: &str| event_ns(report, tracer, &Case::PRINTF);
    vec![
        at_least(
            &format!("trackway_printf: {FASTER_THAN_TRACEF} times as fast as lttng_ust_tracef"),
            ratio(printf_ns(TRACEF), printf_ns(TRACKWAY_PRINTF)),
            FASTER_THAN_TRACEF,
        ),
        at_least(
            &format!("one u32: {FASTER_THAN_PROBES} times as fast as USDT by ftrace's uprobe"),
            ratio(ns(FTRACE_UPROBE), ns(TRACKWAY)),
            FASTER_THAN_PROBES,
        ),
        at_least(
            &format!("one u32: {FASTER_THAN_PROBES} times as fast as USDT by bpftrace"),
            ratio(ns(BPFTRACE), ns(TRACKWAY)),
            FASTER_THAN_PROBES,
        ),
        at_most(
            &format!("bytes of an event with one u32: at most {EVENT_BYTES}"),
            row(report, "tracepoint", TRACKWAY, &one)
                .and_then(|row| row.bytes_per_event)
                // The long header, once in so many records, is not what is asked about.
                .map(|bytes| (bytes * 100.0).round() / 100.0),
            EVENT_BYTES,
            |bytes| format!("{bytes:.2}"),
        ),
    ]
}

/// What a program's start costs, without a session, in time and in threads.
fn start(report: &Report) -> Bar {
    let rows = || report.suites.get("startup").into_iter().flat_map(|suite| &suite.rows);
    let ours = rows().find(|row| row.tracer == TRACKWAY_OFF);
    let added_us = ours.and_then(|ours| ours.added).map(|added| added.median);
    let threads = ours.and_then(|ours| ours.extra.get(THREADS)).copied().unwrap_or_default();
    let what = format!("start of a process: at most +{START_US} µs, and no thread");
    let mut bar = at_most(&what, added_us, START_US, |us| format!("{us:+.0} µs, {threads} thread"));
    if threads > 1.0 {
        bar.verdict = Verdict::Misses;
    }
    bar
}

/// What an event costs in each of two threads, in terms of what it costs in one.
fn two_threads(report: &Report) -> Bar {
    let ns = |tracer, threads| {
        row(report, "scaling", tracer, &Case::SIMPLEST.with_threads(threads))?.median()
    };
    let scaling = |tracer| ratio(ns(tracer, 2), ns(tracer, 1));
    at_most(
        &format!("two threads: at most {TWO_THREADS:.2} of what two of rdtsc lose"),
        ratio(scaling(TRACKWAY), scaling(RDTSC)),
        TWO_THREADS,
        |ratio| format!("{ratio:.2}"),
    )
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::tests::{report, row};
    use crate::stats::Ratio;

    #[test]
    fn bars_follow_the_figures() {
        let one = Case::SIMPLEST.words();
        let ours = Row { bytes_per_event: Some(8.004), ..row(TRACKWAY, &one, 21.0) };
        let rows = [
            row(RDTSC, &one, 15.5),
            ours,
            row(LTTNG, &one, 126.0),
            row(FTRACE_UPROBE, &one, 105.0),
        ];
        let bars = all(&report("tracepoint", rows));
        let found: Vec<(&str, Verdict)> =
            bars.iter().map(|bar| (bar.measured.as_str(), bar.verdict)).collect();
        let expected = [
            ("rdtsc +5.5 ns", Verdict::Holds),
            ("not measured", Verdict::Unknown),
            ("6.00 times", Verdict::Holds),
            ("not measured", Verdict::Unknown),
            ("not measured", Verdict::Unknown),
            ("not measured", Verdict::Unknown),
            ("not measured", Verdict::Unknown),
            ("5.00 times", Verdict::Misses),
            ("not measured", Verdict::Unknown),
            ("8.00", Verdict::Holds),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn two_threads_are_held_against_two_of_the_clock() {
        let case = |threads| Case::SIMPLEST.with_threads(threads).words();
        let rows = [
            row(RDTSC, &case(1), 15.0),
            row(RDTSC, &case(2), 18.0),
            row(TRACKWAY, &case(1), 20.0),
            row(TRACKWAY, &case(2), 30.0),
        ];
        let bars = all(&report("scaling", rows));
        assert_eq!((bars[0].measured.as_str(), bars[0].verdict), ("1.25", Verdict::Misses));
    }

    #[test]
    fn a_thread_misses_the_bar_however_fast_the_start() {
        let started = |threads| {
            let mut ours = row(TRACKWAY_OFF, "spawn", 500.0);
            ours.added = Ratio::of(&[150.0]);
            ours.extra.insert(THREADS.to_owned(), threads);
            all(&report("startup", [ours]))[0].verdict
        };
        assert_eq!((started(1.0), started(2.0)), (Verdict::Holds, Verdict::Misses));
    }
}
