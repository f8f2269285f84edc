//! The clock line: converts the processor's counter to CLOCK_MONOTONIC in ns.
//!
//! About every 100 ms, the calibrator receives a reading (counter, time). It returns a line that
//! begins at the current time of the previous line, so that writers observe no step back. The line
//! meets the true clock one period later. A reading far from the line means that the clock or the
//! counter jumped: then a new epoch begins.

use std::collections::VecDeque;

/// A reading of the clock between two readings of the counter, the tightest of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// The value of the counter.
    pub tsc: u64,
    /// The time on CLOCK_MONOTONIC, in ns.
    pub ns: u64,
    /// Distance between the two readings of the counter, in ticks: twice the uncertainty.
    pub width: u64,
}

/// A clock line: `ns = base_ns + ((tsc − base_tsc) × multiplier >> 32)`, while `tsc − base_tsc ≤
/// span`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// Value of the counter at the line's base.
    pub base_tsc: u64,
    /// Slope in ns per tick, with 32 fractional bits.
    pub multiplier: u64,
    /// Time at the line's base, in ns.
    pub base_ns: u64,
    /// Number of ticks for which the line is valid.
    pub span: u64,
}

impl Line {
    /// Returns the time at counter value `tsc`; `None` before the line's base.
    pub fn at(&self, tsc: u64) -> Option<u64> {
        let ticks = tsc.checked_sub(self.base_tsc)?;
        let scaled = (u128::from(ticks) * u128::from(self.multiplier)) >> 32;
        self.base_ns.checked_add(u64::try_from(scaled).ok()?)
    }
}

/// The result of a new reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// No new line: the reading is too inaccurate, or too early.
    Keep,
    /// The recorder must publish this line.
    Line(Line),
    /// The clock jumped: the recorder must begin a new epoch, then publish this line.
    Jump(Line),
}

/// Largest distance between line and clock, in ns; a larger distance is a jump.
const JUMP_NS: i128 = 1_000_000;
/// Least distance between the readings for a slope, in ns, after the first slope.
const BASELINE_MIN_NS: u64 = 50_000_000;
/// Least distance between the readings for the first slope, in ns.
const BASELINE_FIRST_NS: u64 = 5_000_000;
/// Most readings that are kept: the oldest and the newest give the slope.
const READINGS_MAX: usize = 12;
/// Time for which a line is valid, in ns.
const SPAN_NS: u64 = 2_000_000_000;
/// Time at which the new line meets the true clock, in ns after the line's base.
const MEET_NS: i128 = 100_000_000;
/// Largest correction of a line, as a divisor of the slope.
const SLEW_PARTS: i128 = 2000;
/// The calibrator ignores a reading that is more than this many times wider than the tightest.
const WIDTH_FACTOR: u64 = 8;
/// Bounds of plausible slopes, in ns per tick with 32 fractional bits: a counter slower than 500
/// kHz (Arm's system counter has at least 1 MHz) or faster than 100 GHz does not exist.
const SLOPE_MAX: i128 = 2000 << 32;
const SLOPE_MIN: i128 = (1 << 32) / 100;

/// Calculates clock lines from readings.
#[derive(Debug, Clone, Default)]
pub struct Calibrator {
    readings: VecDeque<Reading>,
    line: Option<Line>,
    tightest: u64,
    refused: u32,
}

/// Number of successive wide readings after which one is accepted: the machine is slower now.
const REFUSED_MAX: u32 = 5;

impl Calibrator {
    /// Returns the current line.
    pub fn line(&self) -> Option<Line> {
        self.line
    }

    /// Processes a reading; returns the resulting change.
    pub fn update(&mut self, reading: Reading) -> Change {
        if self.is_outlier(&reading) {
            return Change::Keep;
        }
        let error = self.line.map(|line| {
            line.at(reading.tsc).map_or(JUMP_NS + 1, |ns| i128::from(reading.ns) - i128::from(ns))
        });
        if error.is_some_and(|error| error.abs() > JUMP_NS) {
            return self.jump(reading);
        }
        self.readings.push_back(reading);
        if self.readings.len() > READINGS_MAX {
            self.readings.pop_front();
        }
        let Some(slope) = self.slope(&reading) else { return Change::Keep };
        let error = error.unwrap_or(0);
        let base_ns = (i128::from(reading.ns) - error) as u64;
        let correction = (slope * error / MEET_NS).clamp(-slope / SLEW_PARTS, slope / SLEW_PARTS);
        let line = Line {
            base_tsc: reading.tsc,
            multiplier: (slope + correction) as u64,
            base_ns,
            span: span_ticks(slope),
        };
        self.line = Some(line);
        Change::Line(line)
    }

    fn is_outlier(&mut self, reading: &Reading) -> bool {
        if self.tightest == 0 || reading.width < self.tightest {
            self.tightest = reading.width.max(1);
        }
        let wide = reading.width / WIDTH_FACTOR > self.tightest;
        self.refused = if wide { self.refused + 1 } else { 0 };
        if self.refused > REFUSED_MAX {
            self.tightest = reading.width;
            self.refused = 0;
            return false;
        }
        wide
    }

    /// Returns the slope in ns per tick with 32 fractional bits, from the oldest reading to this
    /// one.
    fn slope(&self, reading: &Reading) -> Option<i128> {
        let oldest = self.readings.front()?;
        let ns = reading.ns.checked_sub(oldest.ns)?;
        let ticks = reading.tsc.checked_sub(oldest.tsc)?;
        let least = if self.line.is_some() { BASELINE_MIN_NS } else { BASELINE_FIRST_NS };
        if ns < least || ticks == 0 {
            return None;
        }
        let slope = (i128::from(ns) << 32) / i128::from(ticks);
        (SLOPE_MIN..=SLOPE_MAX).contains(&slope).then_some(slope)
    }

    /// Begins a line at this reading with the previous slope: a suspended machine has the same
    /// processor afterwards. If not, the next readings correct the slope.
    fn jump(&mut self, reading: Reading) -> Change {
        self.readings.clear();
        self.readings.push_back(reading);
        let Some(old) = self.line else { return Change::Keep };
        let line = Line { base_tsc: reading.tsc, base_ns: reading.ns, ..old };
        self.line = Some(line);
        Change::Jump(line)
    }
}

fn span_ticks(slope: i128) -> u64 {
    ((i128::from(SPAN_NS) << 32) / slope) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns a reading of a machine with a counter of `hz`, whose clock starts at `offset`.
    fn reading_at(hz: u64, offset: u64, at_ns: u64) -> Reading {
        let tsc = 1_000_000 + (u128::from(at_ns) * u128::from(hz) / 1_000_000_000) as u64;
        Reading { tsc, ns: offset + at_ns, width: 60 }
    }

    fn expect_line(change: Change) -> Line {
        match change {
            Change::Line(line) => line,
            other => panic!("no line: {other:?}"),
        }
    }

    #[test]
    fn two_readings_make_a_line() {
        let mut calibrator = Calibrator::default();
        assert_eq!(calibrator.update(reading_at(2_100_000_000, 5_000, 0)), Change::Keep);
        let line = expect_line(calibrator.update(reading_at(2_100_000_000, 5_000, 10_000_000)));
        let later = reading_at(2_100_000_000, 5_000, 1_000_000_000);
        let error = line.at(later.tsc).unwrap().abs_diff(later.ns);
        assert!(error < 10, "{error} ns after a second");
        assert!(line.span > 4_000_000_000 && line.span < 4_400_000_000);
    }

    #[test]
    fn a_jump_begins_an_epoch() {
        let mut calibrator = Calibrator::default();
        calibrator.update(reading_at(1_000_000_000, 0, 0));
        calibrator.update(reading_at(1_000_000_000, 0, 10_000_000));
        let after = reading_at(1_000_000_000, 5_000_000_000, 110_000_000);
        let Change::Jump(line) = calibrator.update(after) else { panic!("no jump") };
        assert_eq!(line.at(after.tsc), Some(after.ns));
        // A counter that goes backwards (another socket, a restored machine) is a jump, too.
        let back = Reading { tsc: 5, ns: after.ns + 1000, width: 60 };
        assert!(matches!(calibrator.update(back), Change::Jump(_)));
    }

    /// RUN slow counters like Arm's. EXPECT lines as accurate as the counter's resolution.
    #[test]
    fn slow_counters_have_lines() {
        for hz in [1_000_000_u64, 19_200_000, 62_500_000] {
            let mut calibrator = Calibrator::default();
            let mut error = 0;
            for step in 0..40 {
                // The reading is not in step with the counter.
                let now = reading_at(hz, 7, step * 100_000_333);
                let line = match calibrator.update(Reading { width: 1, ..now }) {
                    Change::Line(line) => line,
                    Change::Keep if step == 0 => continue,
                    other => panic!("{hz} Hz, step {step}: {other:?}"),
                };
                error = line.at(now.tsc).unwrap().abs_diff(now.ns);
            }
            let step_ns = 1_000_000_000 / hz;
            assert!(error <= 2 * step_ns + 10, "{hz} Hz: {error} ns");
        }
    }

    #[test]
    fn a_wide_reading_is_not_used_unless_all_are_wide() {
        let mut calibrator = Calibrator::default();
        calibrator.update(reading_at(1_000_000_000, 0, 0));
        calibrator.update(reading_at(1_000_000_000, 0, 10_000_000));
        let mut taken = 0;
        for step in 2..12 {
            let wide =
                Reading { width: 60_000, ..reading_at(1_000_000_000, 0, step * 100_000_000) };
            taken += u64::from(calibrator.update(wide) != Change::Keep);
        }
        assert!((1..9).contains(&taken));
    }

    proptest! {
        /// CHECK, for any jitter of readings and slewing of the clock, that no line begins before
        /// the previous one, that no line runs backwards, and that no line strays from the clock.
        #[test]
        fn lines_are_continuous_and_true(
            hz in 500_000_000_u64..5_000_000_000,
            jitter in prop::collection::vec(0_u64..200, 30),
            skew_ppm in -400_i64..400,
        ) {
            let mut calibrator = Calibrator::default();
            let mut old: Option<Line> = None;
            for (step, jitter) in jitter.into_iter().enumerate() {
                let real = step as u64 * 100_000_000;
                let skewed = (real as i64 + real as i64 / 1_000_000 * skew_ppm) as u64;
                let mut now = reading_at(hz, 7, real);
                now.ns = skewed + 1_000 + jitter;
                if let Change::Line(line) = calibrator.update(now) {
                    prop_assert!(line.multiplier > 0);
                    if let Some(old) = old {
                        prop_assert!(line.at(now.tsc) >= old.at(now.tsc));
                    }
                    let error = line.at(now.tsc).unwrap().abs_diff(now.ns);
                    prop_assert!(error < 2_000, "{error} ns");
                    old = Some(line);
                }
            }
            prop_assert!(old.is_some());
        }

        #[test]
        fn no_reading_panics(readings in prop::collection::vec(any::<(u64, u64, u64)>(), 1..40)) {
            let mut calibrator = Calibrator::default();
            for (tsc, ns, width) in readings {
                calibrator.update(Reading { tsc, ns, width });
            }
        }
    }
}
