//! Goals for filters, judged by the measured figures. The bench reports goals and never asserts
//! them.

use trackway_bench_engine::ratios::{
    Estimate, FigureFormat, FiguresByRound, bar_all_at_most, bar_at_least,
};
use trackway_bench_engine::results::{Bar, SuiteRows};

use super::chains::{Chain, FilterTracer, Operands, Runner};
use super::isolated::case_name;
use super::{prepared, traced};

/// Least ratio of LTTng's filter to Trackway's, for a filter that drops an event; and the number of
/// predicates of this filter, of which the last is false.
const LTTNG_RATIO_MIN: f64 = 10.0;
const LTTNG_PREDICATES: usize = 9;
/// Largest ratio of Trackway's machine code to C, and the numbers of predicates.
const C_RATIO_MAX: f64 = 1.4;
const C_PREDICATES: [usize; 2] = [1, 9];
/// Longest time from a filter's text to its first answer, in ms.
const PREPARATION_MS_MAX: f64 = 10.0;

/// Returns all goals for filters.
pub(crate) fn judge_goals(suite: &SuiteRows) -> Vec<Bar> {
    let mut bars = Vec::new();
    for operands in Operands::ALL {
        bars.extend(C_PREDICATES.map(|predicates| judge_against_c(suite, operands, predicates)));
    }
    bars.push(judge_preparation(suite));
    bars.extend(Operands::ALL.map(|operands| judge_against_lttng(suite, operands)));
    bars
}

/// Judges the worst chain with this number of predicates, relative to C.
fn judge_against_c(suite: &SuiteRows, operands: Operands, predicates: usize) -> Bar {
    let row = |chain| suite.row(Runner::Compiled.name(), &case_name(operands, chain, predicates));
    // Some chains do not exist for one predicate.
    let rows = Chain::ALL.into_iter().filter_map(row);
    bar_all_at_most(
        &format!(
            "filter, {}: worst chain at most {C_RATIO_MAX} of C (aim 1.1)",
            predicates_label(operands, predicates)
        ),
        rows.map(|row| Estimate::ratio_to_baseline(suite, Some(row))),
        C_RATIO_MAX,
        FigureFormat::of(2, ""),
    )
}

/// Returns operands and number of predicates in words.
fn predicates_label(operands: Operands, predicates: usize) -> String {
    let name = operands.name();
    let one = if predicates == 1 { name.trim_end_matches('s') } else { name };
    format!("{predicates} {one}")
}

fn judge_preparation(suite: &SuiteRows) -> Bar {
    let row = |operands| suite.row(Runner::Compiled.name(), &prepared::case_name(operands));
    let ms = |us: Estimate| us.map(|us| us / 1e3);
    let told = |operands| FiguresByRound::of(row(operands)).estimate().map(ms);
    bar_all_at_most(
        &format!("filter, from text to first answer: at most {PREPARATION_MS_MAX:.0} ms"),
        Operands::ALL.map(told),
        PREPARATION_MS_MAX,
        FigureFormat::of(2, "ms"),
    )
}

/// Judges Trackway's filter that drops an event, relative to LTTng's.
fn judge_against_lttng(suite: &SuiteRows, operands: Operands) -> Bar {
    let predicates = LTTNG_PREDICATES;
    let case = traced::dropped_case(operands, predicates);
    let filter_ns = |tracer: FilterTracer| {
        FiguresByRound::above_baseline(suite, suite.row(tracer.name(), &case))
    };
    let of = predicates_label(operands, predicates);
    bar_at_least(
        &format!("filter, {of}, dropping: LTTng's at least {LTTNG_RATIO_MIN:.0} times ours"),
        filter_ns(FilterTracer::Lttng).over(&filter_ns(FilterTracer::Trackway)).estimate(),
        LTTNG_RATIO_MIN,
        FigureFormat::TIMES,
    )
}

#[cfg(test)]
mod tests {
    use trackway_bench_engine::results::fixtures::{steady_row, suite_of_rows};
    use trackway_bench_engine::results::{Row, Verdict};
    use trackway_bench_engine::stats::Ratio;

    use super::*;

    #[test]
    fn bars_follow_the_worst_chain() {
        let (integers, of_c) = (Operands::Integers, Runner::Compiled.name());
        let relative_to_c = |chain, predicates, times| Row {
            times: Ratio::of(&[times; 8]),
            ..steady_row(of_c, &case_name(integers, chain, predicates), 2.0)
        };
        let dropped = |tracer: FilterTracer, ns| Row {
            baseline: Some(0),
            ..steady_row(tracer.name(), &traced::dropped_case(integers, 9), ns + 1.0)
        };
        let all = suite_of_rows([
            steady_row("without a filter", "off", 1.0),
            relative_to_c(Chain::AndTrue, 1, 1.125),
            relative_to_c(Chain::AndFalseLast, 1, 1.25),
            relative_to_c(Chain::OrTrueLast, 9, 1.5),
            steady_row(of_c, &prepared::case_name(integers), 400.0),
            steady_row(of_c, &prepared::case_name(Operands::Strings), 800.0),
            dropped(FilterTracer::Lttng, 100.0),
            dropped(FilterTracer::Trackway, 8.0),
        ]);
        let told: Vec<(String, Verdict)> =
            judge_goals(&all).into_iter().map(|bar| (bar.measured, bar.verdict)).collect();
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
