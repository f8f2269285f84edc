//! Bars: tracers in groups of cases, all on one scale, with the interval that rounds span.

use super::panels::{self, PanelScale};
use super::plot::{Figure, Plot, axis_label, colour_class};
use super::scale::Scale;
use crate::figures::{format_figure, format_ratio_with_interval};
use crate::results::Row;
use crate::stats::Spread;

/// Width of a letter after a bar, equal to the width of a digit; and width of the constant part of
/// the label.
const LETTER_WIDTH: f64 = 6.3;
const LABEL_MARGIN: f64 = 10.0;
/// Least and greatest width of bars; the labels of the scale need the remaining width.
const BARS_MIN: f64 = 40.0;
const BARS_MAX: f64 = panels::CONTENT_WIDTH - 28.0;
/// Part of events that may be lost before it is shown next to the bar.
const LOST_PART_MIN: f64 = 0.000_5;
/// Part of the greatest figure from which on a figure extends the scale. A figure that is zero
/// except for noise would take most of a logarithmic scale.
const SCALE_PART_MIN: f64 = 0.000_1;

/// Draws a bar for each row of one unit.
pub(super) fn draw_bars(rows: &[&Row]) -> Option<Figure> {
    let scale = build_scale(&rows.iter().filter_map(|row| row.median()).collect::<Vec<f64>>())?;
    let unit = rows.first()?.unit;
    let mut about = axis_label(unit, &scale);
    if rows.iter().any(|row| row.times.is_some()) {
        about += "; ×: times its reference (95 % sure)";
    }
    // The scale leaves room after each bar for the label of the bar.
    let widest = |row: &&Row| {
        let words = LABEL_MARGIN + LETTER_WIDTH * bar_label(row).chars().count() as f64;
        (panels::CONTENT_WIDTH - words) / scale.part(bar_end(row)).max(0.01)
    };
    let width = rows.iter().map(widest).fold(BARS_MAX, f64::min).max(BARS_MIN);
    let panels = panels::draw_panels(rows, &scale, panels::CONTENT_WIDTH - width, draw_row);
    Some(Figure { title: "Each tracer's figure".to_owned(), about, panels })
}

/// Returns a scale for all figures that are more than noise.
fn build_scale(figures: &[f64]) -> Option<Scale> {
    let most = figures.iter().fold(0.0, |most, figure| f64::max(most, figure.abs()));
    Scale::covering(figures.iter().copied().filter(|figure| figure.abs() >= SCALE_PART_MIN * most))
}

fn draw_row(plot: &mut Plot, across: &PanelScale<'_>, y: f64, row: &Row) {
    let Some(spread) = row.spread else { return };
    let (from, end) = (across.base(), across.x(spread.median));
    plot.bar(colour_class(&row.tracer), (from.min(end), y + 3.0), ((end - from).abs(), 12.0));
    let mut beyond = end.max(from);
    if spread.count > 1 {
        let (low, high) = (across.x(spread.p5), across.x(spread.p95));
        plot.line("whisker", (low, y + 9.0), (high, y + 9.0));
        for at in [low, high] {
            plot.line("whisker", (at, y + 5.5), (at, y + 12.5));
        }
        beyond = beyond.max(high);
    }
    plot.words("start", (beyond + 5.0, y + 13.0), &bar_label(row));
}

/// Returns the end of a bar, including the interval that its rounds span.
fn bar_end(row: &Row) -> f64 {
    let end = |spread: Spread| if spread.count > 1 { spread.p95 } else { spread.median };
    row.spread.map_or(0.0, |spread| end(spread).max(spread.median))
}

/// Formats a row's figure, ratio and losses.
fn bar_label(row: &Row) -> String {
    let mut words = row.median().map_or_else(String::new, |median| format_figure(row.unit, median));
    if let Some(ratio) = row.times {
        words += &format!(" {}", format_ratio_with_interval(&ratio));
    }
    if let Some(lost) = reportable_loss(row) {
        words += &format!(", {:.1} % lost", lost * 100.0);
    }
    words
}

/// Returns the part of lost events, if it is large enough to report.
fn reportable_loss(row: &Row) -> Option<f64> {
    let part = row.lost? as f64 / row.emitted.filter(|&emitted| emitted > 0)? as f64;
    Some(part).filter(|part| *part >= LOST_PART_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_nought_but_for_noise_takes_no_part_of_the_scale() {
        let around = |figures: &[f64]| build_scale(figures).expect("figures");
        let (noisy, quiet) = (around(&[0.004, -0.02, 34.0, 1279.0]), around(&[34.0, 1279.0]));
        assert_eq!((noisy, noisy.part(0.004)), (quiet, 0.0));
        assert_eq!(around(&[0.13, 1279.0]).base(), 0.1);
        assert_eq!(build_scale(&[0.0, 0.0]), None);
    }
}
