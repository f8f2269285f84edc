//! The clock line: how a reading of the processor's counter becomes CLOCK_MONOTONIC ns.
//!
//! Readings (counter, time) come in every 100 ms or so; out comes a line that begins where the
//! line before stands now, so that no writer sees time step back, and that meets the true clock
//! one period later. A reading that is far from the line means that the clock or the counter
//! jumped: then a new epoch begins.

use std::collections::VecDeque;

/// A reading: the counter between two looks at the clock, the tightest of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// The counter.
    pub tsc: u64,
    /// CLOCK_MONOTONIC, ns.
    pub ns: u64,
    /// Distance of the two looks at the counter, in ticks: twice the uncertainty.
    pub width: u64,
}

/// A line: `ns = base_ns + ((tsc − base_tsc) × multiplier >> 32)`, while `tsc − base_tsc ≤ span`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// Counter at the base.
    pub base_tsc: u64,
    /// ns per tick, 32 fractional bits.
    pub multiplier: u64,
    /// Time at the base, ns.
    pub base_ns: u64,
    /// Ticks that the line holds.
    pub span: u64,
}

impl Line {
    /// The time at `tsc`; before its base the line does not reach.
    pub fn at(&self, tsc: u64) -> Option<u64> {
        let ticks = tsc.checked_sub(self.base_tsc)?;
        let scaled = (u128::from(ticks) * u128::from(self.multiplier)) >> 32;
        self.base_ns.checked_add(u64::try_from(scaled).ok()?)
    }
}

/// The result of a reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Nothing: the reading is not good enough, or too early.
    Keep,
    /// Publish this line.
    Line(Line),
    /// The clock jumped: begin a new epoch, then publish this line.
    Jump(Line),
}

/// Farthest that line and clock may be apart, in ns; more is a jump.
const JUMP_NS: i128 = 1_000_000;
/// Least distance of the readings of a slope, in ns, once there are such.
const BASELINE_MIN_NS: u64 = 50_000_000;
/// Least distance of the readings of the very first slope, in ns.
const BASELINE_FIRST_NS: u64 = 5_000_000;
/// Readings kept: the oldest and the newest give the slope.
const READINGS_MAX: usize = 12;
/// Validity of a line, in ns.
const SPAN_NS: u64 = 2_000_000_000;
/// Time at which the new line meets the true clock, in ns after the line's base.
const MEET_NS: i128 = 100_000_000;
/// Steepest correction, in parts of the slope.
const SLEW_PARTS: i128 = 2000;
/// A reading that is this many times wider than the tightest is not used.
const WIDTH_FACTOR: u64 = 8;
/// Slopes that no processor has, ns per tick with 32 fractional bits: slower than 500 kHz (Arm's
/// system counter has 1 MHz at least), faster than 100 GHz.
const SLOPE_MAX: i128 = 2000 << 32;
const SLOPE_MIN: i128 = (1 << 32) / 100;

/// Makes lines from readings.
#[derive(Debug, Clone, Default)]
pub struct Calibrator {
    readings: VecDeque<Reading>,
    line: Option<Line>,
    tightest: u64,
    refused: u32,
}

/// Wide readings in a row after which one is taken all the same: the machine is slower now.
const REFUSED_MAX: u32 = 5;

impl Calibrator {
    /// The line in force.
    pub fn line(&self) -> Option<Line> {
        self.line
    }

    /// Takes a reading.
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

    /// ns per tick with 32 fractional bits, from the oldest reading to this one.
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

    /// The slope of before is kept: a suspended machine has the same processor afterwards. If it
    /// has not, the next readings say so.
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

    /// A machine with a counter of `hz`, whose clock starts at `offset`.
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
        // A counter that went backwards (another socket, a restored machine) is one too.
        let back = Reading { tsc: 5, ns: after.ns + 1000, width: 60 };
        assert!(matches!(calibrator.update(back), Change::Jump(_)));
    }

    /// Arm's counters are: such lines are as true as the counter's steps are fine.
    #[test]
    fn slow_counters_have_lines() {
        for hz in [1_000_000_u64, 19_200_000, 62_500_000] {
            let mut calibrator = Calibrator::default();
            let mut error = 0;
            for step in 0..40 {
                // Not in step with the counter.
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
        /// However readings jitter and the clock is slewed: no line begins behind the one before,
        /// none runs backwards, and none strays from the clock.
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
