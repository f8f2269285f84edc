//! Lines: a figure for each x, of each tracer.

use super::plot::{Plot, ROW, Scale, WIDTH, apart, colour, mark};
use crate::rows::{Row, SuiteRows};
use crate::text::figure;

/// Room around the plot.
const TOP: f64 = 12.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 230.0;
const BOTTOM: f64 = 48.0;
/// Least height of the plot.
const HEIGHT: f64 = 320.0;

/// A line for each tracer that has a figure for two x; `None` if there is none.
pub(super) fn draw(suite: &SuiteRows, tracers: &[&str], x_axis: &str) -> Option<String> {
    let rows: Vec<&Row> = suite.rows.iter().filter(|row| row.median().is_some()).collect();
    let unit = rows.first()?.unit;
    let lines: Vec<(&str, Vec<(f64, f64)>)> = tracers
        .iter()
        .map(|tracer| (*tracer, points(&rows, tracer)))
        .filter(|line| line.1.len() > 1)
        .collect();
    let figures = || lines.iter().flat_map(|line| &line.1);
    let scale = Scale::around(figures().map(|point| point.1))?;
    let mut marks: Vec<f64> = figures().map(|point| point.0).collect();
    marks.sort_by(f64::total_cmp);
    marks.dedup();
    let (first, last) = (*marks.first()?, *marks.last()?);
    // What doubles is read best if its steps are alike.
    let doubles = first > 0.0 && last / first >= 8.0;
    let along = |x: f64| {
        if doubles {
            (x / first).log2() / (last / first).log2()
        } else {
            (x - first) / (last - first)
        }
    };
    let height = HEIGHT.max(ROW * lines.len() as f64);
    let mut plot = Plot::new(&suite.title, TOP + height + BOTTOM);
    let right = WIDTH - RIGHT;
    let x_of = |x: f64| LEFT + (right - LEFT) * along(x);
    let y_of = |figure: f64| TOP + height * (1.0 - scale.part(figure));
    for at in scale.marks() {
        plot.line("grid", (LEFT, y_of(at)), (right, y_of(at)));
        plot.words("end", (LEFT - 8.0, y_of(at) + 4.0), &mark(at));
    }
    let bottom = TOP + height;
    for at in &marks {
        plot.line("axis", (x_of(*at), bottom), (x_of(*at), bottom + 5.0));
        plot.words("middle", (x_of(*at), bottom + 18.0), &mark(*at));
    }
    let axis = format!("{x_axis}; upwards: {} ({} scale)", unit.words(), scale.kind());
    plot.words("middle", (f64::midpoint(LEFT, right), bottom + 40.0), &axis);
    let ends: Vec<f64> =
        lines.iter().filter_map(|line| line.1.last()).map(|end| y_of(end.1)).collect();
    let mut seen = std::collections::BTreeSet::new();
    for ((tracer, points), y) in lines.iter().zip(apart(&ends, bottom)) {
        let class = colour(tracer);
        // One of each family is whole, its others are broken.
        let is_first = seen.insert(class);
        let kind = if is_first { class.to_owned() } else { format!("{class} broken") };
        let drawn: Vec<(f64, f64)> = points.iter().map(|one| (x_of(one.0), y_of(one.1))).collect();
        plot.through(&kind, &drawn);
        for point in &drawn {
            plot.point(class, *point);
        }
        let (Some(at), Some(end)) = (drawn.last(), points.last()) else { continue };
        // From the line's end to its name, which may have had to move.
        plot.line(class, (at.0 + 4.0, at.1), (right + 18.0, y));
        let words = format!("{}  {tracer}", figure(unit, end.1));
        plot.words("start", (right + 22.0, y + 4.0), &words);
    }
    Some(plot.finish())
}

/// A tracer's figures in the order of x.
fn points(rows: &[&Row], tracer: &str) -> Vec<(f64, f64)> {
    let of_it = rows.iter().filter(|row| row.tracer == tracer);
    let mut points: Vec<(f64, f64)> =
        of_it.filter_map(|row| Some((row.x?, row.median()?))).collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    points
}
