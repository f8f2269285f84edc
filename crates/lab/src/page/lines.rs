//! Lines: a figure for each x, of each tracer, a plot for each family of cases.

use super::plot::{Plot, ROW, Scale, Strokes, WIDTH, apart, clipped, mark};
use crate::rows::{Row, SuiteRows};
use crate::text::figure;

/// Room around the plot.
const TOP: f64 = 28.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 230.0;
const BOTTOM: f64 = 48.0;
/// Least height of the plot.
const HEIGHT: f64 = 320.0;

/// Plots of rows that have an x, and those rows that are in none, because they have one x alone.
pub(super) fn draw<'a>(suite: &SuiteRows, rows: &[&'a Row]) -> (Vec<String>, Vec<&'a Row>) {
    let mut families: Vec<(String, Vec<&Row>)> = Vec::new();
    for row in rows {
        let name = family(&row.case, row.x.unwrap_or_default());
        match families.iter_mut().find(|family| family.0 == name) {
            Some(family) => family.1.push(row),
            None => families.push((name, vec![row])),
        }
    }
    let (mut drawn, mut rest) = (Vec::new(), Vec::new());
    for (name, rows) in families {
        match plot(suite, &name, &rows) {
            Some(plot) => drawn.push(plot),
            None => rest.extend(rows),
        }
    }
    (drawn, rest)
}

/// What cases have in common that differ in x: their words without the number, of which there may
/// be one or several.
fn family(case: &str, x: f64) -> String {
    let without = |word: &str| {
        let number = word.trim_matches(|letter: char| !letter.is_ascii_digit());
        let word = if number.parse() == Ok(x) { word.replacen(number, "", 1) } else { word.into() };
        let (word, comma) = word.strip_suffix(',').map_or((&*word, ""), |word| (word, ","));
        format!("{}{comma}", word.strip_suffix('s').unwrap_or(word))
    };
    let words: Vec<String> = case.split(' ').map(without).filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

/// A line for each tracer that has figures for two x; `None` if there is none.
fn plot(suite: &SuiteRows, name: &str, rows: &[&Row]) -> Option<String> {
    let unit = rows.first()?.unit;
    let mut tracers: Vec<&str> = Vec::new();
    for row in rows {
        if !tracers.contains(&row.tracer.as_str()) {
            tracers.push(&row.tracer);
        }
    }
    let lines: Vec<(&str, Vec<(f64, f64)>)> = tracers
        .iter()
        .map(|tracer| (*tracer, points(rows, tracer)))
        .filter(|line| line.1.len() > 1)
        .collect();
    let figures = || lines.iter().flat_map(|line| &line.1);
    let scale = Scale::around(figures().map(|point| point.1))?;
    let mut marks: Vec<f64> = figures().map(|point| point.0).collect();
    marks.sort_by(f64::total_cmp);
    marks.dedup();
    let (first, last) = (*marks.first()?, *marks.last()?);
    // What doubles is read best if its steps are alike; nought has its place a step before.
    let least = *marks.iter().find(|mark| **mark > 0.0)?;
    let doubles = first >= 0.0 && last / least >= 8.0;
    let from = if first == 0.0 { least / 2.0 } else { first };
    let along = |x: f64| {
        if doubles {
            (x.max(from) / from).log2() / (last / from).log2()
        } else {
            (x - first) / (last - first)
        }
    };
    let height = HEIGHT.max(ROW * lines.len() as f64);
    let title = format!("{}: {name}", suite.title);
    let mut plot = Plot::new(&title, TOP + height + BOTTOM);
    plot.words("start", (4.0, 14.0), &clipped(name, 120));
    let right = WIDTH - RIGHT;
    let x_of = |x: f64| LEFT + (right - LEFT) * along(x);
    let y_of = |figure: f64| TOP + height * (1.0 - scale.part(figure));
    for at in scale.marks() {
        plot.line("grid", (LEFT, y_of(at)), (right, y_of(at)));
        plot.words("end", (LEFT - 8.0, y_of(at) + 4.0), &mark(at));
    }
    let bottom = TOP + height;
    let mut free = f64::NEG_INFINITY;
    for at in &marks {
        plot.line("axis", (x_of(*at), bottom), (x_of(*at), bottom + 5.0));
        // Where they are too many, not each has its number.
        if x_of(*at) >= free {
            plot.words("middle", (x_of(*at), bottom + 18.0), &mark(*at));
            free = x_of(*at) + 30.0;
        }
    }
    let axis = format!("{}; upwards: {} ({} scale)", suite.x_axis, unit.words(), scale.kind());
    plot.words("middle", (f64::midpoint(LEFT, right), bottom + 40.0), &axis);
    let ends: Vec<f64> =
        lines.iter().filter_map(|line| line.1.last()).map(|end| y_of(end.1)).collect();
    let mut strokes = Strokes::default();
    for ((tracer, points), y) in lines.iter().zip(apart(&ends, bottom)) {
        let class = strokes.of(tracer);
        let drawn: Vec<(f64, f64)> = points.iter().map(|one| (x_of(one.0), y_of(one.1))).collect();
        plot.through(&class, &drawn);
        for point in &drawn {
            plot.point(&class, *point);
        }
        let (Some(at), Some(end)) = (drawn.last(), points.last()) else { continue };
        // From the line's end to its name, which may have had to move.
        plot.line(&class, (at.0 + 4.0, at.1), (right + 18.0, y));
        let words = format!("{}  {}", figure(unit, end.1), clipped(tracer, 22));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_that_differ_in_x_are_a_family() {
        assert_eq!(family("u32, 1 thread", 1.0), family("u32, 16 threads", 16.0));
        assert_eq!(family("9 predicates, last false", 9.0), "predicate, last false");
        assert_ne!(family("u32, 1 thread", 1.0), family("u64, 1 thread", 1.0));
        assert_eq!(family("str(64)", 64.0), family("str(8)", 8.0));
        assert_ne!(family("str(64)", 64.0), family("bytes(64)", 64.0));
    }
}
