//! Goals for filters, judged by the measured figures. Reported, never asserted.

use trackway_bench_engine::ratios::{ByRound, Estimate, Form, least, most_of_all};
use trackway_bench_engine::results::{Bar, SuiteRows};

use super::chains::{Chain, FilterTracer, Operands, Runner};
use super::isolated::case;
use super::{prepared, traced};

/// Number of times that a filter that drops an event must be faster than LTTng's, and the number of
/// its predicates, the last of which is false.
const OF_LTTNG: f64 = 10.0;
const OF_LTTNG_PREDICATES: usize = 9;
/// Largest ratio of Trackway's machine code to C, and the number of predicates.
const OF_C: f64 = 1.4;
const OF_C_PREDICATES: [usize; 2] = [1, 9];
/// Most that a filter may take from its text to its first answer, in ms.
const PREPARED_MS: f64 = 10.0;

/// Returns all bars.
pub(crate) fn bars(suite: &SuiteRows) -> Vec<Bar> {
    let mut bars = Vec::new();
    for operands in Operands::ALL {
        bars.extend(OF_C_PREDICATES.map(|predicates| of_c(suite, operands, predicates)));
    }
    bars.push(preparation(suite));
    bars.extend(Operands::ALL.map(|operands| of_lttng(suite, operands)));
    bars
}

/// Judges the worst chain of this length, relative to C.
fn of_c(suite: &SuiteRows, operands: Operands, predicates: usize) -> Bar {
    let row = |chain| suite.row(Runner::Compiled.name(), &case(operands, chain, predicates));
    // Some chains do not exist for one predicate.
    let rows = Chain::ALL.into_iter().filter_map(row);
    most_of_all(
        &format!("filter, {}: worst chain at most {OF_C} of C (aim 1.1)", of(operands, predicates)),
        rows.map(|row| Estimate::times(suite, Some(row))),
        OF_C,
        Form::of(2, ""),
    )
}

/// Returns the case in words.
fn of(operands: Operands, predicates: usize) -> String {
    let name = operands.name();
    let one = if predicates == 1 { name.trim_end_matches('s') } else { name };
    format!("{predicates} {one}")
}

fn preparation(suite: &SuiteRows) -> Bar {
    let row = |operands| suite.row(Runner::Compiled.name(), &prepared::case(operands));
    let ms = |us: Estimate| us.map(|us| us / 1e3);
    let told = |operands| ByRound::of(row(operands)).estimate().map(ms);
    most_of_all(
        &format!("filter, from text to first answer: at most {PREPARED_MS:.0} ms"),
        Operands::ALL.map(told),
        PREPARED_MS,
        Form::of(2, "ms"),
    )
}

/// Judges Trackway's filter that drops an event, relative to LTTng's.
fn of_lttng(suite: &SuiteRows, operands: Operands) -> Bar {
    let predicates = OF_LTTNG_PREDICATES;
    let case = traced::dropped(operands, predicates);
    let filter_ns =
        |tracer: FilterTracer| ByRound::above_baseline(suite, suite.row(tracer.name(), &case));
    let of = of(operands, predicates);
    least(
        &format!("filter, {of}, dropping: LTTng's at least {OF_LTTNG:.0} times ours"),
        filter_ns(FilterTracer::Lttng).over(&filter_ns(FilterTracer::Trackway)).estimate(),
        OF_LTTNG,
        Form::TIMES,
    )
}

#[cfg(test)]
mod tests {
    use trackway_bench_engine::results::fixtures::{steady, suite};
    use trackway_bench_engine::results::{Row, Verdict};
    use trackway_bench_engine::stats::Ratio;

    use super::*;

    #[test]
    fn bars_follow_the_worst_chain() {
        let (integers, of_c) = (Operands::Integers, Runner::Compiled.name());
        let relative_to_c = |chain, predicates, times| Row {
            times: Ratio::of(&[times; 8]),
            ..steady(of_c, &case(integers, chain, predicates), 2.0)
        };
        let dropped = |tracer: FilterTracer, ns| Row {
            baseline: Some(0),
            ..steady(tracer.name(), &traced::dropped(integers, 9), ns + 1.0)
        };
        let all = suite([
            steady("without a filter", "off", 1.0),
            relative_to_c(Chain::AndTrue, 1, 1.125),
            relative_to_c(Chain::AndFalseLast, 1, 1.25),
            relative_to_c(Chain::OrTrueLast, 9, 1.5),
            steady(of_c, &prepared::case(integers), 400.0),
            steady(of_c, &prepared::case(Operands::Strings), 800.0),
            dropped(FilterTracer::Lttng, 100.0),
            dropped(FilterTracer::Trackway, 8.0),
        ]);
        let told: Vec<(String, Verdict)> =
            bars(&all).into_iter().map(|bar| (bar.measured, bar.verdict)).collect();
        let expected = [
            ("1.25 (1.25 to 1.25)".to_owned(), Verdict::Holds),
            ("1.50 (1.50 to 1.50)".to_owned(), Verdict::Misses),
            ("not measured".to_owned(), Verdict::Unknown),
            ("not measured".to_owned(), Verdict::Unknown),
            ("0.80 ms (0.80 to 0.80)".to_owned(), Verdict::Holds),
            ("12.50 times (12.50 to 12.50)".to_owned(), Verdict::Holds),
            ("not measured".to_owned(), Verdict::Unknown),
        ];
        assert_eq!(told, expected);
    }
}
