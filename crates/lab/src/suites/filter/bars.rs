//! What filters set out to reach, held against what was measured. Reported, never asserted.

use super::alone::case;
use super::chains::{Chain, FilterTracer, Operands, Runner};
use super::{prepared, traced};
use crate::bars::{at_least, at_most, ratio};
use crate::results::Bar;
use crate::rows::{Row, SuiteRows};

/// How many times less than LTTng's a filter is to take that drops an event, and of how many
/// predicates, the last of which is false.
const OF_LTTNG: f64 = 10.0;
const OF_LTTNG_PREDICATES: usize = 9;
/// Most that our machine code may take in terms of C, and for how many predicates.
const OF_C: f64 = 1.4;
const OF_C_PREDICATES: [usize; 2] = [1, 9];
/// Most that a filter may take from its text to its first answer, in ms.
const PREPARED_MS: f64 = 10.0;

/// All of them.
pub(crate) fn bars(suite: &SuiteRows) -> Vec<Bar> {
    let mut bars = Vec::new();
    for operands in Operands::ALL {
        bars.extend(OF_C_PREDICATES.map(|predicates| of_c(suite, operands, predicates)));
    }
    bars.push(preparation(suite));
    bars.extend(Operands::ALL.map(|operands| of_lttng(suite, operands)));
    bars
}

/// The worst chain of so many predicates, beside C.
fn of_c(suite: &SuiteRows, operands: Operands, predicates: usize) -> Bar {
    let times = |chain| {
        let row = suite.row(Runner::Compiled.name(), &case(operands, chain, predicates))?;
        Some(row.times?.median)
    };
    at_most(
        &format!("filter, {}: worst chain at most {OF_C} of C (aim 1.1)", of(operands, predicates)),
        Chain::ALL.into_iter().filter_map(times).max_by(f64::total_cmp),
        OF_C,
        |times| format!("{times:.2}"),
    )
}

/// So many predicates, in words.
fn of(operands: Operands, predicates: usize) -> String {
    let name = operands.name();
    let one = if predicates == 1 { name.trim_end_matches('s') } else { name };
    format!("{predicates} {one}")
}

fn preparation(suite: &SuiteRows) -> Bar {
    let us = |operands| suite.row(Runner::Compiled.name(), &prepared::case(operands))?.median();
    let slowest = Operands::ALL.into_iter().filter_map(us).max_by(f64::total_cmp);
    at_most(
        &format!("filter, from text to first answer: at most {PREPARED_MS:.0} ms"),
        slowest.map(|us| us / 1e3),
        PREPARED_MS,
        |ms| format!("{ms:.2} ms"),
    )
}

/// How many times less than LTTng's our filter takes that drops an event.
fn of_lttng(suite: &SuiteRows, operands: Operands) -> Bar {
    let predicates = OF_LTTNG_PREDICATES;
    let filter_ns = |tracer: FilterTracer| {
        let case = traced::dropped(operands, predicates);
        let row: &Row = suite.row(tracer.name(), &case)?;
        Some(row.added?.median)
    };
    let of = of(operands, predicates);
    at_least(
        &format!("filter, {of}, dropping: LTTng's at least {OF_LTTNG:.0} times ours"),
        ratio(filter_ns(FilterTracer::Lttng), filter_ns(FilterTracer::Trackway)),
        OF_LTTNG,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Verdict;
    use crate::rows::tests::{row, suite};
    use crate::stats::Ratio;

    #[test]
    fn bars_follow_the_worst_chain() {
        let (integers, of_c) = (Operands::Integers, Runner::Compiled.name());
        let known = |median| Some(Ratio { median, interval: None });
        let beside_c = |chain, predicates, times| Row {
            times: known(times),
            ..row(of_c, &case(integers, chain, predicates), 2.0)
        };
        let dropped = |tracer: FilterTracer, ns| Row {
            added: known(ns),
            ..row(tracer.name(), &traced::dropped(integers, 9), ns + 1.0)
        };
        let all = suite([
            beside_c(Chain::AndTrue, 1, 1.125),
            beside_c(Chain::AndFalseLast, 1, 1.25),
            beside_c(Chain::OrTrueLast, 9, 1.5),
            row(of_c, &prepared::case(integers), 400.0),
            row(of_c, &prepared::case(Operands::Strings), 800.0),
            dropped(FilterTracer::Lttng, 100.0),
            dropped(FilterTracer::Trackway, 8.0),
        ]);
        let told: Vec<(String, Verdict)> =
            bars(&all).into_iter().map(|bar| (bar.measured, bar.verdict)).collect();
        let expected = [
            ("1.25".to_owned(), Verdict::Holds),
            ("1.50".to_owned(), Verdict::Misses),
            ("not measured".to_owned(), Verdict::Unknown),
            ("not measured".to_owned(), Verdict::Unknown),
            ("0.80 ms".to_owned(), Verdict::Holds),
            ("12.50 times".to_owned(), Verdict::Holds),
            ("not measured".to_owned(), Verdict::Unknown),
        ];
        assert_eq!(told, expected);
    }
}
