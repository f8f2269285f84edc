//! Formats of figures and ratios for people.

use crate::results::Unit;
use crate::stats::Ratio;

/// Formats a figure with its unit.
pub fn format_figure(unit: Unit, figure: f64) -> String {
    if unit == Unit::EventsPerSecond {
        return format!("{:.2} M", figure / 1e6);
    }
    match figure.abs() {
        0.0..2.0 => format!("{figure:.2}"),
        2.0..1000.0 => format!("{figure:.1}"),
        _ => format!("{figure:.0}"),
    }
}

/// Formats a ratio with two decimals, or with two significant digits below 0.1.
pub fn format_ratio(times: f64) -> String {
    match times.abs() {
        0.0..0.001 => format!("{times:.5}"),
        0.001..0.01 => format!("{times:.4}"),
        0.01..0.1 => format!("{times:.3}"),
        100.0.. => format!("{times:.0}"),
        10.0.. => format!("{times:.1}"),
        _ => format!("{times:.2}"),
    }
}

/// Formats a ratio with its interval: `×6.00 (5.95–6.10)`.
pub fn format_ratio_with_interval(ratio: &Ratio) -> String {
    format_interval_using(ratio, format_ratio)
}

/// Formats a ratio with its interval; `times` formats each number.
pub fn format_interval_using(ratio: &Ratio, times: impl Fn(f64) -> String) -> String {
    let median = times(ratio.median);
    match ratio.interval {
        Some((low, high)) => format!("×{median} ({}–{})", times(low), times(high)),
        None => format!("×{median}"),
    }
}

/// Formats a number without a unit.
pub fn format_number(number: f64) -> String {
    match number.abs() {
        1e9.. => format!("{:.2} G", number / 1e9),
        1e6.. => format!("{:.2} M", number / 1e6),
        _ if number.fract() == 0.0 => format!("{number:.0}"),
        _ => format_figure(Unit::Ns, number),
    }
}
