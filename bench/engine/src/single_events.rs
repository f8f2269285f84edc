//! Single events, timed one by one by the workload programs (`workloads/singles.h`), and the cost
//! of timing itself.
//!
//! Main invariants: no event is dropped, however long it took. The cost of timing is in all events
//! alike, and is a separate figure, which the engine subtracts. Clocks advance in steps (of 10 ns
//! on some machines), so a median is no more precise than a step. A mean is more precise, since
//! readings fall anywhere between two ticks. So a row's figure, and the subtracted cost, is the
//! mean of the middle nine tenths, which outliers do not move.

use crate::error::{Error, Result};
use crate::host::workload::parse_numbers;
use crate::stats::merge_equal_figures;
use crate::suite::Sample;

/// Key of the extra figure for the clock's step, in ns.
const CLOCK_STEP_KEY: &str = "step of the clock";
/// Most buckets of a histogram, as in singles.h.
const BUCKETS_MAX: usize = 4096 + 52 * 128;
/// Most events of one bucket, so that the sum over all buckets does not overflow.
const COUNT_MAX: u64 = 1 << 40;
/// Part of the figures that is trimmed at each end; the middle nine tenths remain.
const TRIMMED_PART: f64 = 0.05;

/// A histogram of durations in ticks, in the order of the ticks: ticks, count.
type TickHistogram = Vec<(u64, u64)>;

/// Durations of single events, in ns.
#[derive(Debug, Clone, PartialEq)]
pub struct SingleEvents {
    /// Durations and their counts, the cost of timing included.
    pub histogram: Vec<(f64, u64)>,
    /// The mean of the middle nine tenths, the cost of timing included.
    pub typical: f64,
    /// The cost of timing: the same mean, of readings with no event in between.
    pub timing: f64,
    /// The step of the clock, in ns.
    pub step: f64,
}

impl SingleEvents {
    /// Parses a workload's output, which must have exactly `events` events, and at least one.
    pub fn parse(output: &str, events: u64) -> Result<Self> {
        let found = WorkloadLines::parse(output)?;
        for (what, histogram) in [("single", &found.single), ("timing", &found.timing)] {
            let count: u64 = histogram.iter().map(|one| one.1).sum();
            if count != events || events == 0 {
                return Err(invalid_output_error(format_args!(
                    "{count} × '{what}' of {events} events"
                )));
            }
        }
        let tick_ns = found.ns as f64 / found.ticks as f64;
        let in_ns = |&(ticks, count): &(u64, u64)| (ticks as f64 * tick_ns, count);
        let histogram: Vec<(f64, u64)> = found.single.iter().map(in_ns).collect();
        Ok(Self {
            histogram: merge_equal_figures(&histogram),
            typical: middle_mean(&found.single) * tick_ns,
            timing: middle_mean(&found.timing) * tick_ns,
            step: clock_step(&found) as f64 * tick_ns,
        })
    }
}

impl SingleEvents {
    /// Converts the durations to a sample, which includes the cost of timing until the engine
    /// subtracts it.
    pub fn sample(self) -> Sample {
        Sample {
            figure: self.typical,
            histogram: self.histogram,
            measuring: Some(self.timing),
            extra: vec![(CLOCK_STEP_KEY, self.step)],
            ..Sample::default()
        }
    }
}

/// The parsed lines of a workload's output.
#[derive(Debug, Default)]
struct WorkloadLines {
    timing: TickHistogram,
    single: TickHistogram,
    ticks: u64,
    ns: u64,
}

impl WorkloadLines {
    fn parse(output: &str) -> Result<Self> {
        let mut found = Self::default();
        for line in output.lines() {
            match line.split(' ').next() {
                Some("timing") => append_bucket(&mut found.timing, parse_numbers(line, "timing")?)?,
                Some("single") => append_bucket(&mut found.single, parse_numbers(line, "single")?)?,
                Some("timing-most") => {
                    set_greatest(&mut found.timing, parse_numbers(line, "timing-most")?)
                }
                Some("single-most") => {
                    set_greatest(&mut found.single, parse_numbers(line, "single-most")?)
                }
                _ => [found.ticks, found.ns] = parse_numbers(line, "ticks")?,
            }
        }
        if found.ticks == 0 || found.ns == 0 {
            return Err(invalid_output_error("it does not say what a tick is"));
        }
        Ok(found)
    }
}

fn invalid_output_error(message: impl std::fmt::Display) -> Error {
    Error::output("workload, single events", message)
}

/// Appends a bucket to a histogram. Buckets must come in ascending order.
fn append_bucket(histogram: &mut TickHistogram, [ticks, count]: [u64; 2]) -> Result<()> {
    let is_next = histogram.last().is_none_or(|last| last.0 < ticks);
    if !is_next || histogram.len() >= BUCKETS_MAX || count == 0 || count > COUNT_MAX {
        return Err(invalid_output_error(format_args!("{count} × {ticks} ticks")));
    }
    histogram.push((ticks, count));
    Ok(())
}

/// Replaces an event of the last bucket by the greatest duration, which is known exactly.
fn set_greatest(histogram: &mut TickHistogram, [most]: [u64; 1]) {
    if let Some(last) = histogram.last_mut().filter(|last| last.0 != most) {
        last.1 -= 1;
        if last.1 == 0 {
            histogram.pop();
        }
        // The bucket is represented by its middle; the greatest duration may be less.
        histogram.push((most, 1));
        histogram.sort_unstable();
    }
}

/// Returns the mean of the middle nine tenths.
fn middle_mean(histogram: &TickHistogram) -> f64 {
    let all: u64 = histogram.iter().map(|one| one.1).sum();
    let (low, high) = (all as f64 * TRIMMED_PART, all as f64 * (1.0 - TRIMMED_PART));
    let mut before = 0.0;
    let mut sum = 0.0;
    for &(ticks, count) in histogram {
        let after = before + count as f64;
        // Weight: the part of this bucket within the middle nine tenths.
        sum += ticks as f64 * (after.min(high) - f64::max(before, low)).max(0.0);
        before = after;
    }
    sum / (high - low)
}

/// Returns the step of the clock: the greatest common divisor of all durations in buckets that are
/// one tick wide.
fn clock_step(found: &WorkloadLines) -> u64 {
    const LINEAR: u64 = 4096;
    let ticks = found.timing.iter().chain(&found.single).map(|one| one.0);
    ticks.filter(|&ticks| ticks < LINEAR).fold(0, greatest_common_divisor).max(1)
}

const fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten ticks are 4 ns; ninety of a hundred readings take 50 ticks, and ten take 76.
    const TEXT: &str = "timing 50 90\ntiming 76 10\ntiming-most 76\nsingle 76 98\nsingle 102 1\n\
                        single 1052672 1\nsingle-most 1052700\nticks 1000000 400000\n";

    #[test]
    fn timing_is_a_figure_of_its_own_and_nothing_is_dropped() {
        let singles = SingleEvents::parse(TEXT, 100).expect("all of it");
        // Of the middle ninety readings, eighty-five take 50 ticks and five take 76.
        let timing = (85.0 * 50.0 + 5.0 * 76.0) / 90.0 * 0.4;
        assert!((singles.timing - timing).abs() < 1e-9, "{singles:?}");
        assert!((singles.typical - 76.0 * 0.4).abs() < 1e-9, "{singles:?}");
        assert_eq!(singles.histogram.iter().map(|one| one.1).sum::<u64>(), 100);
        assert_eq!(singles.histogram.last(), Some(&(421_080.0, 1)));
        assert!((singles.step - 0.8).abs() < 1e-9, "{singles:?}");
    }

    #[test]
    fn what_is_not_whole_is_refused() {
        assert!(SingleEvents::parse(TEXT, 99).is_err());
        let without = |part: &str| TEXT.replacen(part, "", 1);
        for text in [
            without("ticks 1000000 400000\n"),
            without("single 102 1\n"),
            TEXT.replacen("single 102", "single 70", 1),
            TEXT.replacen("timing 76 10", "timing 76 ten", 1),
            TEXT.replacen("ticks 1000000 400000", "ticks 0 0", 1),
            TEXT.replacen("timing 50 90", "timing 50 18446744073709551615", 1),
            "something else\n".to_owned(),
            String::new(),
        ] {
            assert!(SingleEvents::parse(&text, 100).is_err(), "{text}");
        }
    }
}
