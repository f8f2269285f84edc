//! The noise of the machine, measured: the same loop again and again for a second.

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::CheckOutcome;
use crate::stats::Spread;

/// Steps of the loop: some ten microseconds.
const STEPS: u64 = 20_000;
/// Most turns of the loop that are kept.
const TURNS_MAX: usize = 1_000_000;
/// Ratio to the median at which a turn counts as interrupted.
const LONGER: f64 = 1.5;
/// Largest accepted span of nine in ten turns, as a part of the median.
const SPAN_MAX: f64 = 0.05;
/// Largest accepted part of the time that interruptions take.
const LOST_MAX: f64 = 0.005;

/// The measured noise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Noise {
    /// The span of nine in ten turns, as a part of the median.
    span: f64,
    /// Part of the time that interrupted turns took in excess of the median.
    lost: f64,
    /// Number of interruptions.
    interruptions: usize,
    /// The longest interruption, in µs.
    longest_us: f64,
}

impl Noise {
    /// Measures the noise during this time.
    pub(super) fn of(watched: Duration) -> Self {
        let begin = Instant::now();
        let mut turns = Vec::new();
        while begin.elapsed() < watched && turns.len() < TURNS_MAX {
            let turn = Instant::now();
            let mut state = black_box(1_u64);
            for _ in 0..STEPS {
                // Each step depends on the previous step, so the processor cannot run steps in
                // parallel, and the compiler cannot remove them.
                state = black_box(state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1));
            }
            turns.push(turn.elapsed().as_nanos() as f64);
        }
        // The first turns wake the CPU.
        let warm = turns.len() / 10;
        Self::from(&turns[warm..])
    }

    fn from(turns_ns: &[f64]) -> Self {
        let Some(spread) = Spread::of(turns_ns) else {
            return Self { span: 0.0, lost: 0.0, interruptions: 0, longest_us: 0.0 };
        };
        let long = turns_ns.iter().filter(|ns| **ns > LONGER * spread.median);
        let beyond: f64 = long.clone().map(|ns| ns - spread.median).sum();
        Self {
            span: (spread.p95 - spread.p5) / spread.median,
            lost: beyond / turns_ns.iter().sum::<f64>(),
            interruptions: long.count(),
            longest_us: (spread.max - spread.median).max(0.0) / 1000.0,
        }
    }

    pub(super) fn judge(&self) -> CheckOutcome {
        let fact = format!(
            "the same loop for a second: nine in ten turns span {:.1} %; {} interruptions took \
             {:.2} % of it, the longest {:.0} µs",
            self.span * 100.0,
            self.interruptions,
            self.lost * 100.0,
            self.longest_us
        );
        if self.span <= SPAN_MAX && self.lost <= LOST_MAX {
            return CheckOutcome::good("noise", fact);
        }
        let why = "what is measured wanders as much: ± of each row will be at least that";
        CheckOutcome::disturbance("noise", fact, why, "see above; or take more --rounds")
    }
}

#[cfg(test)]
mod tests {
    use super::super::CheckResult;
    use super::*;

    #[test]
    fn interruptions_are_told_from_what_wanders() {
        let mut turns = vec![10_000.0; 999];
        assert_eq!(Noise::from(&turns).judge().result, CheckResult::Good);
        turns.push(4_010_000.0);
        let noise = Noise::from(&turns);
        assert_eq!((noise.span, noise.interruptions, noise.longest_us), (0.0, 1, 4000.0));
        assert!((noise.lost - 4.0 / 14.0).abs() < 1e-9, "{noise:?}");
        assert_eq!(noise.judge().result, CheckResult::Disturbs);
        let wandering: Vec<f64> = (0..1000).map(|one| 10_000.0 + f64::from(one)).collect();
        let noise = Noise::from(&wandering);
        assert!(noise.interruptions == 0 && noise.span > 0.08, "{noise:?}");
        assert_eq!(noise.judge().result, CheckResult::Disturbs);
        assert_eq!(Noise::from(&[]).judge().result, CheckResult::Good);
    }
}
