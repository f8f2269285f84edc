//! Box plots: half of all figures are in the box, whiskers end at what is not unusual, and each
//! outlier is a mark. The form is Tukey's; what it shows is the thesis' Figure 3.1.

use std::collections::BTreeSet;

use super::plot::{NAMES, Plot, ROW, Scale, WIDTH, axis_below, clipped, colour, in_parts};
use crate::rows::Row;
use crate::stats::{Quarters, ends, merged};
use crate::text::figure;

/// Room above the boxes, and below them.
const TOP: f64 = 8.0;
const BOTTOM: f64 = 44.0;
/// Room on the right, for the middle figure and the greatest.
const FIGURES: f64 = 140.0;
/// Fewest rounds that a box says something of.
const ROUNDS_MIN: usize = 6;

/// Of single events, for rows that have them.
pub(super) fn of_events(title: &str, rows: &[&Row]) -> Vec<String> {
    draw(&format!("{title}: single events"), "single events, ", rows, |row| row.histogram.clone())
}

/// Of the figures of all rounds.
pub(super) fn of_rounds(title: &str, rows: &[&Row]) -> Vec<String> {
    let enough = |row: &&Row| row.samples.iter().flatten().count() >= ROUNDS_MIN;
    let rows: Vec<&Row> = rows.iter().copied().filter(enough).collect();
    draw(&format!("{title}: all rounds"), "rounds, ", &rows, |row| {
        let figures: Vec<(f64, u64)> = row.samples.iter().flatten().map(|one| (*one, 1)).collect();
        merged(&figures)
    })
}

fn draw(
    title: &str,
    of: &str,
    rows: &[&Row],
    figures: impl Fn(&Row) -> Vec<(f64, u64)>,
) -> Vec<String> {
    let ends = rows.iter().flat_map(|row| ends(&figures(row)));
    let Some(scale) = Scale::around(ends) else { return Vec::new() };
    let draw_part = |part: &Vec<(&str, Vec<&Row>)>| {
        let count: usize = part.iter().map(|case| case.1.len() + 1).sum();
        let mut plot = Plot::new(title, TOP + ROW * count as f64 + BOTTOM);
        let width = WIDTH - NAMES - FIGURES;
        let unit = part.first().and_then(|case| case.1.first()).map_or("", |row| row.unit.words());
        axis_below(&mut plot, &scale, (NAMES, width), (TOP, BOTTOM), &format!("{of}{unit}"));
        let mut y = TOP;
        for (case, rows) in part {
            plot.words("start", (4.0, y + 14.0), &clipped(case, 120));
            y += ROW;
            for row in rows {
                plot.words("end", (NAMES - 8.0, y + 14.0), &clipped(&row.tracer, 29));
                draw_row(&mut plot, &scale, width, y, row, &figures(row));
                y += ROW;
            }
        }
        plot.finish()
    };
    in_parts(rows).iter().map(draw_part).collect()
}

fn draw_row(plot: &mut Plot, scale: &Scale, width: f64, y: f64, row: &Row, figures: &[(f64, u64)]) {
    let Some(quarters) = Quarters::of(figures) else { return };
    let x = |figure| NAMES + width * scale.part(figure);
    let class = colour(&row.tracer);
    let middle = y + 10.0;
    let (low, high) = (x(quarters.low), x(quarters.high));
    for (from, to) in [(x(quarters.whiskers.0), low), (high, x(quarters.whiskers.1))] {
        plot.line("whisker", (from, middle), (to, middle));
    }
    for at in [quarters.whiskers.0, quarters.whiskers.1] {
        plot.line("whisker", (x(at), y + 6.5), (x(at), y + 13.5));
    }
    plot.bar(&format!("{class} faint"), (low, y + 4.0), (high - low, 12.0));
    plot.line("median", (x(quarters.median), y + 3.0), (x(quarters.median), y + 17.0));
    // Those that fall on the same half of a pixel are one mark.
    let mut seen = BTreeSet::new();
    for outlier in &quarters.outliers {
        let at = x(outlier.0);
        if seen.insert((at * 2.0).round() as i64) {
            plot.small_point(class, (at, middle));
        }
    }
    let most = figures.last().map_or(quarters.median, |one| one.0);
    let words = format!("{} … {}", figure(row.unit, quarters.median), figure(row.unit, most));
    plot.words("start", (x(most).max(high) + 8.0, y + 14.0), &words);
}
