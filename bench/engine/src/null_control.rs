//! Verdicts on controls: a control measures another row a second time, so their ratio must be 1.
//!
//! Main invariant: the verdict is "nil" only if the whole interval is near 1. An interval that
//! merely contains 1 shows no difference, and does not show that there is none.

use crate::figures::format_interval_using;
use crate::results::{Report, Row, SuiteRows};
use crate::stats::Ratio;

/// Largest distance from 1, in percent, at which a control counts as the same. Rounds continue
/// until ratios are known to 2 %, so the interval of a control is narrower only by chance, and its
/// median is not exactly 1. The closest goals of Trackway allow 5 %, the goal of the preload helper
/// 2 %.
pub const NIL_PERCENT: f64 = 3.0;

/// The verdict on a control.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ControlVerdict {
    /// The row has too few rounds for an interval.
    TooFewRounds,
    /// The whole interval is near 1.
    Nil,
    /// The interval contains 1, and reaches this far from 1, in percent.
    NotShown(f64),
    /// The interval does not contain 1; differences up to this, in percent, are within the noise.
    Differs(f64),
    /// The interval lies beyond the range that counts as the same.
    DiffersMuch(f64),
}

impl ControlVerdict {
    /// Judges the ratio of a control to the row that it repeats.
    pub fn of(ratio: &Ratio) -> Self {
        let Some((low, high)) = ratio.interval else { return Self::TooFewRounds };
        // To a thousandth: 1.03 is no more than 3 % from 1.
        let percent = |times: f64| ((times - 1.0) * 1e5).round() / 1e3;
        let (low, high) = (percent(low), percent(high));
        let most = low.abs().max(high.abs());
        match (low <= 0.0 && 0.0 <= high, most <= NIL_PERCENT) {
            (true, true) => Self::Nil,
            (true, false) => Self::NotShown(most),
            (false, _) if low > NIL_PERCENT || high < -NIL_PERCENT => Self::DiffersMuch(most),
            (false, _) => Self::Differs(most),
        }
    }

    /// Returns the verdict in words, to be written after the ratio.
    fn words(self) -> String {
        let below =
            |percent: f64| format!("differences below {:.0} % say nothing here", percent.ceil());
        match self {
            Self::TooFewRounds => "too few rounds to say".to_owned(),
            Self::Nil => format!("nil: all of it within {NIL_PERCENT} %"),
            Self::NotShown(most) => format!("not shown to differ: {}", below(most)),
            Self::Differs(most) | Self::DiffersMuch(most) => format!("differs: {}", below(most)),
        }
    }
}

/// Returns the verdict on a control as a line of a report; `None` if the row has no ratio.
pub fn format_control_verdict(row: &Row) -> Option<String> {
    let times = row.times?;
    let (tracer, ratio) = (&row.tracer, format_interval_using(&times, |one| format!("{one:.3}")));
    Some(format!("the same twice ({tracer}): {ratio}, {}", ControlVerdict::of(&times).words()))
}

/// Returns true if a row is a control that differs by more than [`NIL_PERCENT`].
pub fn is_differing_control(row: &Row) -> bool {
    let is_much =
        |times: &Ratio| matches!(ControlVerdict::of(times), ControlVerdict::DiffersMuch(_));
    row.is_control && row.times.as_ref().is_some_and(is_much)
}

/// Returns a line for each control of a report that differs too much, with the name of its suite.
pub fn format_differing_controls(report: &Report) -> Vec<String> {
    let of_suite = |(name, suite): (&str, &SuiteRows)| -> Vec<String> {
        let rows = suite.rows.iter().filter(|row| is_differing_control(row));
        rows.filter_map(format_control_verdict).map(|line| format!("{name}: {line}")).collect()
    };
    report.ordered().flat_map(of_suite).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::fixtures::{measured_row, report_of_suite};

    fn control_row(interval: Option<(f64, f64)>) -> Row {
        let times = interval.map_or(1.0, |(low, high)| f64::midpoint(low, high));
        let times = Some(Ratio { median: times, interval });
        Row { times, is_control: true, ..measured_row("trackway again", "u32", 1.0) }
    }

    #[test]
    fn nil_is_only_what_is_near_one_as_a_whole() {
        for (interval, expected) in [
            (None, "×1.000, too few rounds to say"),
            (Some((0.97, 1.03)), "×1.000 (0.970–1.030), nil: all of it within 3 %"),
            (
                Some((0.6, 1.4)),
                "×1.000 (0.600–1.400), not shown to differ: differences below 40 % \
                 say nothing here",
            ),
            (
                Some((1.01, 1.02)),
                "×1.015 (1.010–1.020), differs: differences below 2 % say nothing here",
            ),
            (
                Some((0.7, 0.9)),
                "×0.800 (0.700–0.900), differs: differences below 30 % say nothing here",
            ),
        ] {
            let line = format_control_verdict(&control_row(interval)).expect("a ratio");
            assert_eq!(line, format!("the same twice (trackway again): {expected}"));
        }
        assert_eq!(format_control_verdict(&Row { times: None, ..control_row(None) }), None);
    }

    #[test]
    fn what_differs_by_little_or_perhaps_is_not_held_against_others() {
        let differs = |interval| is_differing_control(&control_row(interval));
        for interval in [None, Some((0.6, 1.6)), Some((1.005, 1.02)), Some((1.02, 1.5))] {
            assert!(!differs(interval), "{interval:?}");
        }
        assert!(differs(Some((1.04, 1.5))) && differs(Some((0.5, 0.96))));
        let much = report_of_suite(
            "size",
            [control_row(Some((1.04, 1.5))), control_row(Some((0.6, 1.6)))],
        );
        let [found] = &format_differing_controls(&much)[..] else { panic!("one of two") };
        assert!(found.starts_with("size: the same twice (trackway again): ×1.270 (1.040"));
        let no_control = Row { is_control: false, ..control_row(Some((1.1, 1.2))) };
        assert!(!super::is_differing_control(&no_control));
    }
}
