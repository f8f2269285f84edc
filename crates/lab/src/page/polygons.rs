//! Frequency polygons: how often which figure was seen, a line for each tracer (thesis, Figure
//! 3.2). Both axes are logarithmic: what is rare is what a tail is made of.

use super::plot::{Plot, ROW, Scale, Strokes, WIDTH, clipped, mark};
use crate::rows::Row;
use crate::stats::ends;

/// Room around the plot.
const TOP: f64 = 28.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 230.0;
const BOTTOM: f64 = 48.0;
/// Least height of the plot.
const HEIGHT: f64 = 260.0;
/// Parts of the axis that figures are counted in.
const PARTS: usize = 90;
/// Fewest events of a case whose shares say something; of fewer there is the box plot.
const EVENTS_MIN: u64 = 200;

/// A figure for each case, with a line for each tracer whose single events are known.
pub(super) fn draw(title: &str, rows: &[&Row]) -> Vec<String> {
    let mut cases: Vec<&str> = Vec::new();
    let has_many = |row: &&&Row| row.tail.is_some_and(|tail| tail.count >= EVENTS_MIN);
    for row in rows.iter().filter(has_many) {
        if !cases.contains(&row.case.as_str()) {
            cases.push(&row.case);
        }
    }
    let of_case = |case: &&str| {
        let rows: Vec<&Row> =
            rows.iter().copied().filter(|row| row.case == *case && !row.is_control).collect();
        draw_case(title, case, &rows)
    };
    cases.iter().filter_map(of_case).collect()
}

/// What part of a tracer's figures is in each part of the axis.
fn counted(row: &Row, scale: &Scale) -> Vec<f64> {
    let mut counts = vec![0_u64; PARTS];
    for (figure, times) in &row.histogram {
        let part = (scale.part(*figure) * PARTS as f64) as usize;
        counts[part.min(PARTS - 1)] += times;
    }
    let all: u64 = counts.iter().sum();
    counts.iter().map(|count| *count as f64 / all.max(1) as f64).collect()
}

fn draw_case(title: &str, case: &str, rows: &[&Row]) -> Option<String> {
    let along = Scale::around(rows.iter().flat_map(|row| ends(&row.histogram)))?;
    let mut lines: Vec<(&Row, Vec<f64>)> =
        rows.iter().map(|row| (*row, counted(row, &along))).collect();
    // As they follow each other along the axis.
    let middle = |row: &Row| row.tail.map_or(0.0, |tail| tail.p50);
    lines.sort_by(|one, other| middle(one.0).total_cmp(&middle(other.0)));
    let parts = lines.iter().flat_map(|line| &line.1).copied();
    let up = Scale::logarithmic(parts)?;
    let height = HEIGHT.max(ROW * lines.len() as f64);
    let mut plot =
        Plot::new(&format!("{title}: how often which figure, {case}"), TOP + height + BOTTOM);
    let (right, bottom) = (WIDTH - RIGHT, TOP + height);
    plot.words("start", (4.0, 14.0), &clipped(case, 120));
    let y_of = |part: f64| TOP + height * (1.0 - up.part(part));
    for at in up.marks() {
        plot.line("grid", (LEFT, y_of(at)), (right, y_of(at)));
        plot.words("end", (LEFT - 8.0, y_of(at) + 4.0), &format!("{} %", percent(at)));
    }
    let x_of = |part: f64| LEFT + (right - LEFT) * part;
    for at in along.marks() {
        plot.line("axis", (x_of(along.part(at)), bottom), (x_of(along.part(at)), bottom + 5.0));
        plot.words("middle", (x_of(along.part(at)), bottom + 18.0), &mark(at));
    }
    let unit = rows.first()?.unit.words();
    let axis = format!("{unit} ({} scale); upwards: share of all events", along.kind());
    plot.words("middle", (f64::midpoint(LEFT, right), bottom + 40.0), &axis);
    let mut strokes = Strokes::default();
    for (at, (row, parts)) in lines.iter().enumerate() {
        let class = strokes.of(&row.tracer);
        plot.through(&class, &points(parts, &x_of, &y_of));
        let y = TOP + ROW * (at as f64 + 0.5);
        plot.line(&class, (right + 6.0, y), (right + 30.0, y));
        plot.words("start", (right + 36.0, y + 4.0), &clipped(&row.tracer, 26));
    }
    Some(plot.finish())
}

/// A line that comes from the bottom, and goes back to it where nothing was seen.
fn points(parts: &[f64], x_of: &dyn Fn(f64) -> f64, y_of: &dyn Fn(f64) -> f64) -> Vec<(f64, f64)> {
    let middle = |at: usize| x_of((at as f64 + 0.5) / PARTS as f64);
    let is_near = |at: usize| {
        let around = at.saturating_sub(1)..(at + 2).min(parts.len());
        parts[around].iter().any(|part| *part > 0.0)
    };
    let shown = (0..parts.len()).filter(|at| is_near(*at));
    shown.map(|at| (middle(at), y_of(parts[at]))).collect()
}

/// A part in percent, as short as it can be said.
fn percent(part: f64) -> String {
    let percent = part * 100.0;
    if percent >= 1.0 {
        return format!("{percent:.0}");
    }
    // Marks are powers of ten, which have no last digit in binary.
    let digits = (-percent.log10()).ceil().clamp(0.0, 12.0) as usize;
    format!("{percent:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::percent;

    #[test]
    fn powers_of_ten_are_told_in_as_many_digits_as_they_have() {
        let told = [1.0, 0.01, 1e-3, 1e-4, 0.1_f64.powi(6), 1e-7].map(percent);
        assert_eq!(told, ["100", "1", "0.1", "0.01", "0.0001", "0.00001"]);
    }
}
