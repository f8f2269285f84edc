//! Box plots: the box contains half of all figures, whiskers end at the last usual figure, and each
//! outlier is a mark. The form is Tukey's; the content is from Figure 3.1 of the thesis.

use std::collections::BTreeSet;

use super::panels::{self, PanelScale};
use super::plot::{Figure, Plot, axis_label, colour_class};
use super::scale::Scale;
use crate::figures::format_figure;
use crate::results::Row;
use crate::stats::{Quartiles, merge_equal_figures, scale_ends};

/// Room on the right, for the median and the greatest figure.
const FIGURES_WIDTH: f64 = 112.0;
/// Fewest rounds for a box.
const ROUNDS_MIN: usize = 6;
/// Legend of a box.
const BOX_LEGEND: &str = "half are in the box, far ones are points; middle … greatest";

/// Draws the box plots of single events, for the rows that have them.
pub(super) fn draw_event_boxes(rows: &[&Row]) -> Option<Figure> {
    draw_boxes("Single events, one by one", rows, |row| row.histogram.clone())
}

/// Draws the box plots of the figures of all rounds.
pub(super) fn draw_round_boxes(rows: &[&Row]) -> Option<Figure> {
    let enough = |row: &&Row| row.samples.iter().flatten().count() >= ROUNDS_MIN;
    let rows: Vec<&Row> = rows.iter().copied().filter(enough).collect();
    draw_boxes("Every round", &rows, |row| {
        let figures: Vec<(f64, u64)> = row.samples.iter().flatten().map(|one| (*one, 1)).collect();
        merge_equal_figures(&figures)
    })
}

fn draw_boxes(
    title: &str,
    rows: &[&Row],
    figures: impl Fn(&Row) -> Vec<(f64, u64)>,
) -> Option<Figure> {
    let scale = Scale::covering(rows.iter().flat_map(|row| scale_ends(&figures(row))))?;
    let about = format!("{}; {BOX_LEGEND}", axis_label(rows.first()?.unit, &scale));
    let panels = panels::draw_panels(rows, &scale, FIGURES_WIDTH, |plot, across, y, row| {
        draw_row(plot, across, y, row, &figures(row));
    });
    Some(Figure { title: title.to_owned(), about, panels })
}

fn draw_row(plot: &mut Plot, across: &PanelScale<'_>, y: f64, row: &Row, figures: &[(f64, u64)]) {
    let Some(quarters) = Quartiles::of(figures) else { return };
    let x = |figure| across.x(figure);
    let class = colour_class(&row.tracer);
    let middle = y + 9.0;
    let (low, high) = (x(quarters.low), x(quarters.high));
    for (from, to) in [(x(quarters.whiskers.0), low), (high, x(quarters.whiskers.1))] {
        plot.line("whisker", (from, middle), (to, middle));
    }
    for at in [quarters.whiskers.0, quarters.whiskers.1] {
        plot.line("whisker", (x(at), y + 5.5), (x(at), y + 12.5));
    }
    plot.bar(&format!("{class} faint"), (low, y + 3.0), (high - low, 12.0));
    plot.line("median", (x(quarters.median), y + 2.0), (x(quarters.median), y + 16.0));
    // Points in the same half of a pixel become one mark.
    let mut seen = BTreeSet::new();
    for outlier in &quarters.outliers {
        let at = x(outlier.0);
        if seen.insert((at * 2.0).round() as i64) {
            plot.small_point(class, (at, middle));
        }
    }
    let most = figures.last().map_or(quarters.median, |one| one.0);
    let words =
        format!("{} … {}", format_figure(row.unit, quarters.median), format_figure(row.unit, most));
    plot.words("start", (x(most).max(high) + 6.0, y + 13.0), &words);
}
