//! Line plots: the figures of each tracer by x, a plot for each family of cases.

use super::plot::{
    Figure, HEADING_LETTERS, PANEL_WIDTH, Plot, ROW_HEIGHT, clip_middle, spread_apart,
};
use super::scale::{Scale, format_mark};
use super::strokes::Strokes;
use super::words;
use crate::figures::format_figure;
use crate::results::{Row, SuiteRows};

/// Room around the plot; the names of the lines are on its right.
const TOP: f64 = 26.0;
const LEFT: f64 = 46.0;
const RIGHT: f64 = 206.0;
const BOTTOM: f64 = 38.0;
/// Least height of the plot.
const HEIGHT: f64 = 180.0;
/// Most letters of a name.
const NAME_LETTERS: usize = 20;

/// Draws line plots of rows that have an x; also returns the rows of families without two x.
pub(super) fn draw_lines<'a>(
    suite: &SuiteRows,
    rows: &[&'a Row],
    strokes: &Strokes<'_>,
) -> (Option<Figure>, Vec<&'a Row>) {
    let mut families: Vec<(String, Vec<&Row>)> = Vec::new();
    for row in rows {
        let name = words::case_family(&row.case, row.x.unwrap_or_default());
        match families.iter_mut().find(|family| family.0 == name) {
            Some(family) => family.1.push(row),
            None => families.push((name, vec![row])),
        }
    }
    let (mut panels, mut rest) = (Vec::new(), Vec::new());
    for (_, rows) in families {
        match draw_panel(&suite.x_axis, &rows, strokes) {
            Some(panel) => panels.push(panel),
            None => rest.extend(rows),
        }
    }
    let figure = rows.first().filter(|_| !panels.is_empty()).map(|row| Figure {
        title: format!("By {}", suite.x_axis),
        about: format!("Upwards: {}; {}", row.unit.words(), row.unit.which_is_better()),
        panels,
    });
    (figure, rest)
}

/// An axis of numbers: numbers that double have equal steps, and zero is one step before the first.
struct XAxis {
    marks: Vec<f64>,
    from: f64,
    to: f64,
    doubles: bool,
}

impl XAxis {
    fn of(lines: &[(&str, Vec<(f64, f64)>)]) -> Option<Self> {
        let mut marks: Vec<f64> =
            lines.iter().flat_map(|line| &line.1).map(|point| point.0).collect();
        marks.sort_by(f64::total_cmp);
        marks.dedup();
        let (first, to) = (*marks.first()?, *marks.last()?);
        let least = *marks.iter().find(|mark| **mark > 0.0)?;
        let doubles = first >= 0.0 && to / least >= 8.0;
        let from = if doubles && first == 0.0 { least / 2.0 } else { first };
        Some(Self { marks, from, to, doubles })
    }

    fn x(&self, at: f64) -> f64 {
        let part = if self.doubles {
            (at.max(self.from) / self.from).log2() / (self.to / self.from).log2()
        } else {
            (at - self.from) / (self.to - self.from)
        };
        LEFT + (PANEL_WIDTH - RIGHT - LEFT) * part
    }
}

/// Draws a line for each tracer that has figures for two x; `None` if no tracer has.
fn draw_panel(x_axis: &str, rows: &[&Row], strokes: &Strokes<'_>) -> Option<String> {
    let unit = rows.first()?.unit;
    let mut tracers: Vec<&str> = Vec::new();
    for row in rows {
        if !tracers.contains(&row.tracer.as_str()) {
            tracers.push(&row.tracer);
        }
    }
    let lines: Vec<(&str, Vec<(f64, f64)>)> = tracers
        .iter()
        .map(|tracer| (*tracer, points_of_tracer(rows, tracer)))
        .filter(|line| line.1.len() > 1)
        .collect();
    let scale = Scale::covering(lines.iter().flat_map(|line| &line.1).map(|point| point.1))?;
    let along = XAxis::of(&lines)?;
    let height = HEIGHT.max(ROW_HEIGHT * lines.len() as f64);
    let (right, bottom) = (PANEL_WIDTH - RIGHT, TOP + height);
    let title = words::family_heading(rows, x_axis);
    let mut plot = Plot::new(&title, (PANEL_WIDTH, bottom + BOTTOM));
    plot.heading((0.0, 13.0), &clip_middle(&title, HEADING_LETTERS));
    let y_of = |figure: f64| TOP + height * (1.0 - scale.part(figure));
    for at in scale.marks() {
        plot.line("grid", (LEFT, y_of(at)), (right, y_of(at)));
        plot.words("end", (LEFT - 6.0, y_of(at) + 4.0), &format_mark(at));
    }
    draw_axis(&mut plot, &along, bottom, &format!("{x_axis}; {} scale", scale.kind()));
    let ends: Vec<f64> =
        lines.iter().filter_map(|line| line.1.last()).map(|end| y_of(end.1)).collect();
    for ((tracer, points), y) in lines.iter().zip(spread_apart(&ends, bottom)) {
        let stroke = strokes.stroke(tracer);
        let drawn: Vec<(f64, f64)> =
            points.iter().map(|one| (along.x(one.0), y_of(one.1))).collect();
        plot.through(&stroke.class, &drawn);
        drawn.iter().for_each(|point| plot.marker(&stroke, *point));
        let (Some(at), Some(end)) = (drawn.last(), points.last()) else { continue };
        // A line leads from the last point to the name, which may have been moved.
        plot.line("lead", (at.0 + 5.0, at.1), (right + 16.0, y));
        plot.marker(&stroke, (right + 22.0, y));
        let words =
            format!("{}  {}", format_figure(unit, end.1), clip_middle(tracer, NAME_LETTERS));
        plot.words("start", (right + 30.0, y + 4.0), &words);
    }
    Some(plot.finish())
}

/// Draws the marks of all x, and the meaning of the axis.
fn draw_axis(plot: &mut Plot, along: &XAxis, bottom: f64, words: &str) {
    let mut free = f64::NEG_INFINITY;
    for at in &along.marks {
        let x = along.x(*at);
        plot.line("axis", (x, bottom), (x, bottom + 4.0));
        // If marks are close, only some of them get a number.
        if x >= free {
            plot.words("middle", (x, bottom + 16.0), &format_mark(*at));
            free = x + 28.0;
        }
    }
    plot.words("middle", (f64::midpoint(LEFT, PANEL_WIDTH - RIGHT), bottom + 32.0), words);
}

/// Returns a tracer's figures in the order of x.
fn points_of_tracer(rows: &[&Row], tracer: &str) -> Vec<(f64, f64)> {
    let of_it = rows.iter().filter(|row| row.tracer == tracer);
    let mut points: Vec<(f64, f64)> =
        of_it.filter_map(|row| Some((row.x?, row.median()?))).collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    points
}
