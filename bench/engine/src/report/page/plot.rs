//! Elements common to all figures: SVG within a page, in the page's colours.
//!
//! Main invariant: every figure is written next to its mark, so that readers do not measure along
//! an axis. Everything that a colour expresses is also written in words.

use std::fmt::Write as _;

use super::scale::{Scale, format_mark};
use super::strokes::Stroke;
use crate::results::{Row, Unit};

/// Width of a figure that has a line of the page alone, in pixels.
pub(super) const FIGURE_WIDTH: f64 = 860.0;
/// Width of a panel, of which two stand side by side.
pub(super) const PANEL_WIDTH: f64 = 430.0;
/// Most characters of a panel's heading.
pub(super) const HEADING_LETTERS: usize = 64;
/// Vertical distance between two rows.
pub(super) const ROW_HEIGHT: f64 = 18.0;
/// Colours of the page by the beginnings of tracer names, equal in every figure. All other tracers
/// have the last colour.
const TRACER_COLOURS: [(&str, &str); 10] = [
    ("trackway", "c0"),
    ("lttng", "c1"),
    ("babeltrace", "c1"),
    ("perf", "c2"),
    ("ftrace", "c3"),
    ("bpf", "c4"),
    ("rbpf", "c4"),
    ("strace", "c5"),
    ("uftrace", "c5"),
    ("", "c6"),
];
/// Most rows of a panel: half of a printed page.
const ROWS_MAX: usize = 32;
/// Least width for a number on an axis.
const MARK_WIDTH: f64 = 36.0;

/// Panels that are shown together, below one title and above the command that repeats the suite.
#[derive(Debug)]
pub(super) struct Figure {
    /// Title of the figure.
    pub(super) title: String,
    /// Unit of the numbers, and the direction that is better.
    pub(super) about: String,
    /// Panels as SVG; narrow ones stand side by side.
    pub(super) panels: Vec<String>,
}

/// Groups rows by case, in the order of the cases; a case with many rows has several groups.
pub(super) fn group_by_case<'a>(rows: &[&'a Row]) -> Vec<(&'a str, Vec<&'a Row>)> {
    let mut cases: Vec<(&str, Vec<&Row>)> = Vec::new();
    for row in rows {
        let has_room = |case: &&mut (&str, Vec<&Row>)| case.1.len() < ROWS_MAX;
        match cases.iter_mut().filter(has_room).find(|case| case.0 == row.case) {
            Some(case) => case.1.push(row),
            None => cases.push((&row.case, vec![row])),
        }
    }
    cases
}

/// Returns the label of an axis: `ns/event on a logarithmic scale; less is better`.
pub(super) fn axis_label(unit: Unit, scale: &Scale) -> String {
    format!("{} on a {} scale; {}", unit.words(), scale.kind(), unit.which_is_better())
}

/// Shortens words to at most `most` letters: the middle is left out, as names differ at their ends.
pub(super) fn clip_middle(words: &str, most: usize) -> String {
    let letters: Vec<char> = words.chars().collect();
    if letters.len() <= most {
        return words.to_owned();
    }
    let (begin, end) = (most / 2, most - most / 2 - 1);
    let ends = [&letters[..begin], &['…'], &letters[letters.len() - end..]];
    ends.concat().into_iter().collect()
}

/// Draws lines from the top to the bottom at a scale's marks, with their numbers below.
pub(super) fn draw_axis_below(
    plot: &mut Plot,
    scale: &Scale,
    (left, width): (f64, f64),
    (top, bottom): (f64, f64),
) {
    for at in scale.marks() {
        let x = left + width * scale.part(at);
        plot.line("grid", (x, top), (x, bottom));
    }
    draw_axis_marks(plot, scale, (left, width), bottom);
}

/// Draws the numbers of a scale's marks below an axis; leaves some out if there are too many.
pub(super) fn draw_axis_marks(
    plot: &mut Plot,
    scale: &Scale,
    (left, width): (f64, f64),
    bottom: f64,
) {
    let mut free = f64::NEG_INFINITY;
    for at in scale.marks() {
        let x = left + width * scale.part(at);
        plot.line("axis", (x, bottom), (x, bottom + 3.0));
        if x >= free {
            plot.words("middle", (x, bottom + 15.0), &format_mark(at));
            free = x + MARK_WIDTH;
        }
    }
}

/// A figure while it is drawn.
#[derive(Debug)]
pub(super) struct Plot {
    text: String,
}

impl Plot {
    /// Makes an empty plot of this width and height, with its title in words.
    pub(super) fn new(title: &str, (width, height): (f64, f64)) -> Self {
        let title = escape_html(title);
        let class = if width > PANEL_WIDTH { " class=\"whole\"" } else { "" };
        let text = format!(
            "<svg{class} role=\"img\" viewBox=\"0 0 {width} {height:.0}\" \
             aria-label=\"{title}\"><title>{title}</title>\n"
        );
        Self { text }
    }

    /// Draws a line of one of the page's classes.
    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        // Writing to a string cannot fail: this applies to all such calls below.
        let _ = writeln!(
            self.text,
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        );
    }

    /// Draws a rectangle of one of the page's classes.
    pub(super) fn bar(&mut self, class: &str, (x, y): (f64, f64), (width, height): (f64, f64)) {
        let _ = writeln!(
            self.text,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" \
             height=\"{height:.1}\"/>",
            width.max(1.0)
        );
    }

    /// Writes words that begin (`start`), end (`end`) or are centred (`middle`) at a point.
    pub(super) fn words(&mut self, anchor: &str, (x, y): (f64, f64), words: &str) {
        let words = escape_html(words);
        let _ = writeln!(
            self.text,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>"
        );
    }

    /// Draws the heading of a panel; its text begins at a point.
    pub(super) fn heading(&mut self, (x, y): (f64, f64), words: &str) {
        let words = escape_html(words);
        let _ =
            writeln!(self.text, "<text class=\"heading\" x=\"{x:.1}\" y=\"{y:.1}\">{words}</text>");
    }

    /// Draws a line through points.
    pub(super) fn through(&mut self, class: &str, points: &[(f64, f64)]) {
        let mut text = String::new();
        for (x, y) in points {
            let _ = write!(text, "{x:.1},{y:.1} ");
        }
        let _ = writeln!(self.text, "<polyline class=\"{class}\" points=\"{}\"/>", text.trim_end());
    }

    /// Draws a point with a tracer's marker.
    pub(super) fn marker(&mut self, stroke: &Stroke, at: (f64, f64)) {
        let (class, path) = (&stroke.class, stroke.shape.path(at));
        let _ = writeln!(self.text, "<path class=\"{class}\" d=\"{path}\"/>");
    }

    /// Draws a small point, for points that may be many.
    pub(super) fn small_point(&mut self, class: &str, (x, y): (f64, f64)) {
        let _ = writeln!(
            self.text,
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"1.6\"/>"
        );
    }

    /// Returns the SVG as text.
    pub(super) fn finish(self) -> String {
        self.text + "</svg>\n"
    }
}

/// Returns the colour class of the tracer's family.
pub(super) fn colour_class(tracer: &str) -> &'static str {
    let found = TRACER_COLOURS.iter().find(|family| tracer.starts_with(family.0));
    found.map_or("c6", |family| family.1)
}

/// Escapes a text for HTML.
pub(super) fn escape_html(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Returns positions that are near to the wanted ones, at least one row apart, and above `bottom`.
pub(super) fn spread_apart(wanted: &[f64], bottom: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|&a, &b| wanted[a].total_cmp(&wanted[b]));
    let mut places = wanted.to_vec();
    for pair in order.windows(2) {
        places[pair[1]] = places[pair[1]].max(places[pair[0]] + ROW_HEIGHT);
    }
    // Labels that were moved below the plot move the labels above them up again.
    let mut limit = bottom;
    for &at in order.iter().rev() {
        places[at] = places[at].min(limit);
        limit = places[at] - ROW_HEIGHT;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_keep_their_ends() {
        assert_eq!(clip_middle("trackway-lockless-again", 11), "track…again");
        assert_eq!(clip_middle("short", 11), "short");
    }

    #[test]
    fn names_do_not_lie_over_each_other() {
        for wanted in [vec![100.0, 101.0, 99.0], vec![400.0; 5], vec![60.0, 300.0]] {
            let mut places = spread_apart(&wanted, 400.0);
            places.sort_by(f64::total_cmp);
            assert!(
                places.windows(2).all(|pair| pair[1] - pair[0] >= ROW_HEIGHT - 1e-9),
                "{places:?}"
            );
            assert!(places.iter().all(|place| *place <= 400.0), "{places:?}");
        }
    }

    #[test]
    fn what_pages_must_not_take_for_tags_is_escaped() {
        assert_eq!(escape_html("a<b & \"c\""), "a&lt;b &amp; &quot;c&quot;");
    }
}
