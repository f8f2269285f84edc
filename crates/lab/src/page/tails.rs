//! Single events: of each tracer, from the median to the greatest, on one scale; every percentile
//! has its mark, and the greatest has one, too.

use super::plot::{NAMES, Plot, ROW, Scale, WIDTH, colour, mark};
use crate::rows::{Row, SuiteRows};
use crate::stats::Tail;
use crate::text::figure;

/// Room above the rows, and below them.
const TOP: f64 = 8.0;
const BOTTOM: f64 = 64.0;
/// Room behind the greatest, for figures.
const FIGURES: f64 = 130.0;

/// Figures of a row, from the left to the right.
fn marks_of(tail: &Tail) -> [f64; 5] {
    [tail.p50, tail.p90, tail.p99, tail.p999, tail.max]
}

/// A line for each row that has single events; `None` if none has.
pub(super) fn draw(suite: &SuiteRows) -> Option<String> {
    let rows: Vec<(&Row, Tail)> = suite
        .rows
        .iter()
        .filter(|row| !row.is_control)
        .filter_map(|row| Some((row, row.tail?)))
        .collect();
    // What is less than the clock's step may be nothing, which a logarithm has no place for.
    let least = 1.0;
    let figures = rows.iter().flat_map(|row| marks_of(&row.1)).map(|one| one.max(least));
    let scale = Scale::around(figures)?;
    let mut cases: Vec<&str> = rows.iter().map(|row| row.0.case.as_str()).collect();
    cases.dedup();
    let mut seen = std::collections::BTreeSet::new();
    cases.retain(|case| seen.insert(*case));
    let height = TOP + ROW * (rows.len() + cases.len()) as f64 + BOTTOM;
    let title = format!("{}: single events", suite.title);
    let mut plot = Plot::new(&title, height);
    let width = WIDTH - NAMES - FIGURES;
    let bottom = plot.height() - BOTTOM;
    for at in scale.marks() {
        let x = NAMES + width * scale.part(at);
        plot.line("grid", (x, TOP), (x, bottom));
        plot.words("middle", (x, bottom + 16.0), &mark(at));
    }
    let unit = rows.first()?.0.unit.words();
    let middle = NAMES + width / 2.0;
    plot.words("middle", (middle, bottom + 36.0), &format!("{unit} ({} scale)", scale.kind()));
    let legend = "bar: to the median; strokes: 90, 99 and 99.9 %; point: the greatest of all; \
                  figures: average, greatest";
    plot.words("middle", (middle, bottom + 54.0), legend);
    let mut y = TOP;
    for case in cases {
        plot.words("start", (4.0, y + 14.0), case);
        y += ROW;
        for (row, tail) in rows.iter().filter(|row| row.0.case == case) {
            draw_row(&mut plot, |one| NAMES + width * scale.part(one.max(least)), y, (row, tail));
            y += ROW;
        }
    }
    Some(plot.finish())
}

fn draw_row(plot: &mut Plot, x: impl Fn(f64) -> f64, y: f64, (row, tail): (&Row, &Tail)) {
    let class = colour(&row.tracer);
    plot.words("end", (NAMES - 8.0, y + 14.0), &row.tracer);
    plot.bar(class, (NAMES, y + 4.0), (x(tail.p50) - NAMES, 12.0));
    plot.line("whisker", (x(tail.p50), y + 10.0), (x(tail.max), y + 10.0));
    for at in [tail.p90, tail.p99, tail.p999] {
        plot.line("whisker", (x(at), y + 5.0), (x(at), y + 15.0));
    }
    plot.point(class, (x(tail.max), y + 10.0));
    let words = format!("{}, {}", figure(row.unit, tail.mean), mark(tail.max));
    plot.words("start", (x(tail.max) + 8.0, y + 14.0), &words);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::tests::{row, suite};

    #[test]
    fn each_row_of_single_events_has_its_marks() {
        let mut ours = row("trackway", "u32, single events", 21.0);
        ours.tail = Tail::of(&[(-0.1, 1), (20.0, 899), (30.0, 100), (5000.0, 1)]);
        let drawn = draw(&suite([ours, row("lttng-ust", "u32", 120.0)])).expect("a row");
        assert!(drawn.contains(">26.0, 5000<"), "{drawn}");
        assert!(!drawn.contains(">lttng-ust<"), "{drawn}");
        assert_eq!(drawn.matches("class=\"whisker\"").count(), 4);
        assert_eq!(draw(&suite([row("lttng-ust", "u32", 120.0)])), None);
    }
}
