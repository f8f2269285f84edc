//! Bars: tracers in groups of cases, all of a unit on one scale, with the interval that rounds
//! span.

use super::plot::{NAMES, Plot, ROW, Scale, WIDTH, colour, mark};
use crate::rows::{Row, SuiteRows, Unit};
use crate::text::{figure, times};

/// Room above the bars, and below them.
const TOP: f64 = 8.0;
const BOTTOM: f64 = 44.0;
/// Room behind the longest bar, for its figure.
const FIGURES: f64 = 130.0;

/// A figure for each unit, with a bar for each row that was measured; those of single events have
/// figures of their own.
pub(super) fn draw(suite: &SuiteRows) -> Vec<String> {
    let is_drawn = |row: &&Row| row.spread.is_some() && row.tail.is_none();
    let rows: Vec<&Row> = suite.rows.iter().filter(is_drawn).collect();
    let mut units: Vec<Unit> = Vec::new();
    for row in &rows {
        if !units.contains(&row.unit) {
            units.push(row.unit);
        }
    }
    let of = |unit| rows.iter().copied().filter(|row| row.unit == unit).collect();
    units.into_iter().filter_map(|unit| draw_rows(suite, unit, of(unit))).collect()
}

fn draw_rows(suite: &SuiteRows, unit: Unit, rows: Vec<&Row>) -> Option<String> {
    let scale = Scale::around(rows.iter().filter_map(|row| row.median()))?;
    let mut cases: Vec<&str> = rows.iter().map(|row| row.case.as_str()).collect();
    let mut seen = std::collections::BTreeSet::new();
    cases.retain(|case| seen.insert(*case));
    // A single case needs no heading.
    let headings = if cases.len() > 1 { cases.len() } else { 0 };
    let height = TOP + ROW * (rows.len() + headings) as f64 + BOTTOM;
    let mut plot = Plot::new(&suite.title, height);
    let width = WIDTH - NAMES - FIGURES;
    let bottom = plot.height() - BOTTOM;
    for at in scale.marks() {
        let x = NAMES + width * scale.part(at);
        plot.line("grid", (x, TOP), (x, bottom));
        plot.words("middle", (x, bottom + 16.0), &mark(at));
    }
    let axis = format!("{} ({} scale)", unit.words(), scale.kind());
    plot.words("middle", (NAMES + width / 2.0, bottom + 36.0), &axis);
    let mut y = TOP;
    for case in cases {
        if headings > 0 {
            plot.words("start", (4.0, y + 14.0), case);
            y += ROW;
        }
        for row in rows.iter().filter(|row| row.case == case) {
            draw_row(&mut plot, &scale, width, y, row);
            y += ROW;
        }
    }
    Some(plot.finish())
}

fn draw_row(plot: &mut Plot, scale: &Scale, width: f64, y: f64, row: &Row) {
    let Some(spread) = row.spread else { return };
    let x = |figure| NAMES + width * scale.part(figure);
    let end = x(spread.median);
    plot.words("end", (NAMES - 8.0, y + 14.0), &row.tracer);
    plot.bar(colour(&row.tracer), (NAMES, y + 4.0), (end - NAMES, 12.0));
    let mut beyond = end;
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
