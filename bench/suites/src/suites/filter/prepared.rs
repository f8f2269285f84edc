//! The time from a filter's text to its first answer.

use std::time::Instant;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::stats::Spread;
use trackway_bench_engine::suite::Sample;

use super::chains::{Chain, Operands, predicates_words};
use super::questions::Question;
use super::{contest, machine_code};

/// Number of predicates of the filter.
const PREDICATES: usize = 50;
/// Number of preparations in a round.
const PREPARATIONS: usize = 10;
const PREPARATIONS_QUICK: usize = 3;
/// Keys of extra figures: the time to parse, compile and encode; and the time to decode, verify,
/// generate machine code, and call it.
const TO_BYTES: &str = "text to bytecode, µs";
const TO_ANSWER: &str = "bytecode to answer, µs";

/// Returns the name of the case for these operands.
pub(super) fn case_name(operands: Operands) -> String {
    format!("{}, from text to answer, {}", operands.name(), predicates_words(PREDICATES))
}

/// Prepares the filter several times; the figure is the median time, in µs.
pub(super) fn measure_preparation(operands: Operands, is_quick: bool) -> Result<Sample> {
    let question = Question::of(operands, Chain::AndTrue, PREDICATES);
    let event = question.event(&Chain::AndTrue.truths(PREDICATES));
    let (text, layout) = (question.text(), question.layout());
    let mut figures = [const { Vec::new() }; 3];
    for _ in 0..if is_quick { PREPARATIONS_QUICK } else { PREPARATIONS } {
        let begin = Instant::now();
        let bytes = machine_code::compile_to_bytes(&text, &layout)?;
        let encoded = Instant::now();
        let answer = contest::first_answer(&bytes, &event)?;
        let end = Instant::now();
        if answer != 1 {
            return Err(Error::output(machine_code::FILTER_NAME, "its first answer was wrong"));
        }
        for (figures, (from, to)) in
            figures.iter_mut().zip([(begin, end), (begin, encoded), (encoded, end)])
        {
            figures.push(to.duration_since(from).as_secs_f64() * 1e6);
        }
    }
    let [us, to_bytes, to_answer] = figures.map(|figures| {
        let spread = Spread::of(&figures);
        spread
            .map(|spread| spread.median)
            .ok_or_else(|| Error::output(machine_code::FILTER_NAME, "no time"))
    });
    let extra = vec![(TO_BYTES, to_bytes?), (TO_ANSWER, to_answer?)];
    Ok(Sample { figure: us?, extra, ..Sample::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_less_than_the_whole() {
        if !contest::HAS_MACHINE_CODE {
            return;
        }
        for operands in Operands::ALL {
            let sample = measure_preparation(operands, true).expect("a time");
            assert!(sample.extra.iter().all(|part| part.1 > 0.0 && part.1 < sample.figure));
        }
    }
}
