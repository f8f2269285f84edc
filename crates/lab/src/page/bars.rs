//! Bars: tracers in groups of cases, all on one scale, with the interval that rounds span.

use super::plot::{NAMES, Plot, ROW, Scale, WIDTH, axis_below, clipped, colour, in_parts};
use crate::rows::Row;
use crate::text::{figure, times};

/// Room above the bars, and below them.
const TOP: f64 = 8.0;
const BOTTOM: f64 = 44.0;
/// Room behind the longest bar, for its figure.
const FIGURES: f64 = 130.0;

/// A bar for each row of one unit; in so many figures that none is too long for a page.
pub(super) fn draw(title: &str, rows: &[&Row]) -> Vec<String> {
    let Some(scale) = Scale::around(rows.iter().filter_map(|row| row.median())) else {
        return Vec::new();
    };
    in_parts(rows).iter().map(|part| draw_part(title, &scale, part)).collect()
}

/// Cases with their rows.
fn draw_part(title: &str, scale: &Scale, part: &[(&str, Vec<&Row>)]) -> String {
    let rows: usize = part.iter().map(|case| case.1.len() + 1).sum();
    let mut plot = Plot::new(title, TOP + ROW * rows as f64 + BOTTOM);
    let width = WIDTH - NAMES - FIGURES;
    let unit = part.first().and_then(|case| case.1.first()).map_or("", |row| row.unit.words());
    axis_below(&mut plot, scale, (NAMES, width), (TOP, BOTTOM), unit);
    let mut y = TOP;
    for (case, rows) in part {
        plot.words("start", (4.0, y + 14.0), &clipped(case, 120));
        y += ROW;
        for row in rows {
            draw_row(&mut plot, scale, width, y, row);
            y += ROW;
        }
    }
    plot.finish()
}

fn draw_row(plot: &mut Plot, scale: &Scale, width: f64, y: f64, row: &Row) {
    let Some(spread) = row.spread else { return };
    let x = |figure| NAMES + width * scale.part(figure);
    let (from, end) = (x(scale.base()), x(spread.median));
    plot.words("end", (NAMES - 8.0, y + 14.0), &clipped(&row.tracer, 29));
    plot.bar(colour(&row.tracer), (from.min(end), y + 4.0), ((end - from).abs(), 12.0));
    let mut beyond = end.max(from);
    if spread.count > 1 {
        let (low, high) = (x(spread.p5), x(spread.p95));
        plot.line("whisker", (low, y + 10.0), (high, y + 10.0));
        for at in [low, high] {
            plot.line("whisker", (at, y + 6.5), (at, y + 13.5));
        }
        beyond = beyond.max(high);
    }
    let mut words = figure(row.unit, spread.median);
    if let Some(ratio) = row.times {
        words += &format!("  ×{}", times(ratio.median));
    }
    plot.words("start", (beyond + 6.0, y + 14.0), &words);
}
