//! Frequency polygons: figures and their frequencies, a line for each tracer (thesis, Figure 3.2).
//! Both axes are logarithmic: rare figures make up a tail.

use super::plot::{
    Figure, HEADING_LETTERS, PANEL_WIDTH, Plot, ROW_HEIGHT, axis_label, clip_middle,
    draw_axis_marks, group_by_case,
};
use super::scale::Scale;
use super::strokes::Strokes;
use super::words;
use crate::results::Row;
use crate::stats::scale_ends;

/// Space around the plot; the space below has the marks of the axis and the names of the lines.
const TOP: f64 = 24.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 22.0;
const MARKS: f64 = 26.0;
const BOTTOM_MARGIN: f64 = 10.0;
/// Height of the plot.
const HEIGHT: f64 = 180.0;
/// Number of sections of the axis in which figures are counted.
const SECTIONS: usize = 60;
/// Most distinguishable lines; a case with more has several plots.
const LINES_MAX: usize = 7;
/// Distance between two markers of a line, in sections.
const MARKER_EVERY: usize = 8;
/// Fewest events of a case for meaningful shares; a case with fewer events only has a box plot.
const EVENTS_MIN: u64 = 200;
/// Number of names side by side, and width of each.
const NAMES_ACROSS: usize = 2;
const NAME_WIDTH: f64 = 205.0;

/// Draws a plot for each case, with a line for each tracer that has figures of single events.
pub(super) fn draw_polygons(rows: &[&Row], strokes: &Strokes<'_>) -> Option<Figure> {
    let has_many = |row: &&Row| row.tail.is_some_and(|tail| tail.count >= EVENTS_MIN);
    let has_line = |row: &&Row| !row.histogram.is_empty() && !row.is_control && has_many(row);
    let rows: Vec<&Row> = rows.iter().copied().filter(has_line).collect();
    let along = Scale::covering(rows.iter().flat_map(|row| scale_ends(&row.histogram)))?;
    let parts = rows.iter().flat_map(|row| frequencies_by_section(row, &along));
    let up = Scale::logarithmic(parts)?;
    let mut panels = Vec::new();
    for (case, rows) in group_by_case(&rows) {
        for group in group_rows_for_plots(&rows) {
            panels.push(draw_panel(case, &group, (&along, &up), strokes));
        }
    }
    Some(Figure {
        title: "How often which figure was seen".to_owned(),
        about: format!(
            "{}; upwards: the share of all events",
            axis_label(rows.first()?.unit, &along)
        ),
        panels,
    })
}

/// Splits rows into groups that fit in a plot, ordered by their medians; each group includes the
/// baseline.
fn group_rows_for_plots<'a>(rows: &[&'a Row]) -> Vec<Vec<&'a Row>> {
    let middle = |row: &Row| row.tail.map_or(0.0, |tail| tail.p50);
    let sorted = |mut rows: Vec<&'a Row>| {
        rows.sort_by(|one, other| middle(one).total_cmp(&middle(other)));
        rows
    };
    if rows.len() <= LINES_MAX {
        return vec![sorted(rows.to_vec())];
    }
    let (reference, others) = match rows.iter().position(|row| row.baseline.is_none()) {
        Some(at) => (Some(rows[at]), [&rows[..at], &rows[at + 1..]].concat()),
        None => (None, rows.to_vec()),
    };
    let count = others.len().div_ceil(LINES_MAX - 1);
    let with_reference =
        |some: &[&'a Row]| sorted(reference.into_iter().chain(some.iter().copied()).collect());
    others.chunks(others.len().div_ceil(count)).map(with_reference).collect()
}

/// Returns the part of a row's figures in each section of the axis.
fn frequencies_by_section(row: &Row, scale: &Scale) -> Vec<f64> {
    let mut counts = vec![0_u64; SECTIONS];
    for (figure, times) in &row.histogram {
        let part = (scale.part(*figure) * SECTIONS as f64) as usize;
        counts[part.min(SECTIONS - 1)] += times;
    }
    let all: u64 = counts.iter().sum();
    counts.iter().map(|count| *count as f64 / all.max(1) as f64).collect()
}

fn draw_panel(
    case: &str,
    rows: &[&Row],
    (along, up): (&Scale, &Scale),
    strokes: &Strokes<'_>,
) -> String {
    let title = words::case_heading(case);
    let bottom = TOP + HEIGHT;
    let names = ROW_HEIGHT * rows.len().div_ceil(NAMES_ACROSS) as f64;
    let mut plot = Plot::new(&title, (PANEL_WIDTH, bottom + MARKS + names + BOTTOM_MARGIN));
    plot.heading((0.0, 13.0), &clip_middle(&title, HEADING_LETTERS));
    let (right, width) = (PANEL_WIDTH - RIGHT, PANEL_WIDTH - RIGHT - LEFT);
    let y_of = |part: f64| TOP + HEIGHT * (1.0 - up.part(part));
    for at in up.marks() {
        plot.line("grid", (LEFT, y_of(at)), (right, y_of(at)));
        plot.words("end", (LEFT - 6.0, y_of(at) + 4.0), &format!("{} %", format_percent(at)));
    }
    let x_of = |part: f64| LEFT + width * part;
    draw_axis_marks(&mut plot, along, (LEFT, width), bottom);
    for (at, row) in rows.iter().enumerate() {
        let stroke = strokes.stroke(&row.tracer);
        let points = polygon_points(&frequencies_by_section(row, along), &x_of, &y_of);
        plot.through(&stroke.class, &points);
        // Each line has its markers at other sections.
        let marked = points.iter().skip(at * MARKER_EVERY / rows.len()).step_by(MARKER_EVERY);
        marked.for_each(|point| plot.marker(&stroke, *point));
        let x = 4.0 + NAME_WIDTH * (at % NAMES_ACROSS) as f64;
        let y = bottom + MARKS + ROW_HEIGHT * ((at / NAMES_ACROSS) as f64 + 0.5);
        plot.line(&stroke.class, (x, y), (x + 36.0, y));
        plot.marker(&stroke, (x + 18.0, y));
        plot.words("start", (x + 42.0, y + 4.0), &clip_middle(&row.tracer, 24));
    }
    plot.finish()
}

/// Returns the points of a line that begins at the bottom and returns to it in sections without
/// figures.
fn polygon_points(
    parts: &[f64],
    x_of: &dyn Fn(f64) -> f64,
    y_of: &dyn Fn(f64) -> f64,
) -> Vec<(f64, f64)> {
    let middle = |at: usize| x_of((at as f64 + 0.5) / SECTIONS as f64);
    let is_near = |at: usize| {
        let around = at.saturating_sub(1)..(at + 2).min(parts.len());
        parts[around].iter().any(|part| *part > 0.0)
    };
    let shown = (0..parts.len()).filter(|at| is_near(*at));
    shown.map(|at| (middle(at), y_of(parts[at]))).collect()
}

/// Formats a part in percent, as short as possible.
fn format_percent(part: f64) -> String {
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
    use super::*;
    use crate::results::fixtures::measured_row;

    #[test]
    fn powers_of_ten_are_told_in_as_many_digits_as_they_have() {
        let told = [1.0, 0.01, 1e-3, 1e-4, 0.1_f64.powi(6), 1e-7].map(format_percent);
        assert_eq!(told, ["100", "1", "0.1", "0.01", "0.0001", "0.00001"]);
    }

    #[test]
    fn many_lines_are_several_plots_each_with_what_they_are_told_in_terms_of() {
        let with = |at: usize| Row {
            baseline: (at > 0).then_some(0),
            ..measured_row(&format!("tracer-{at}"), "idle", 20.0)
        };
        for (count, plots) in [(7, 1), (8, 2), (14, 3)] {
            let rows: Vec<Row> = (0..count).map(with).collect();
            let groups = group_rows_for_plots(&rows.iter().collect::<Vec<&Row>>());
            assert_eq!(groups.len(), plots, "{count}");
            assert!(groups.iter().all(|group| group.len() <= LINES_MAX));
            for one in &rows {
                let times = groups.iter().flatten().filter(|row| row.tracer == one.tracer).count();
                assert_eq!(times, if one.baseline.is_none() { plots } else { 1 }, "{}", one.tracer);
            }
        }
    }
}
