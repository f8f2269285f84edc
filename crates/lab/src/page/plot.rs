//! What all figures are drawn with: SVG within a page, whose colours are the page's.
//!
//! Main invariant: every figure is written beside its mark, so that nobody has to read it off an
//! axis, and no colour says anything that words do not say, too.

use std::fmt::Write as _;

use crate::rows::Row;

/// Width of a figure, in pixels.
pub(super) const WIDTH: f64 = 860.0;
/// From one row to the next.
pub(super) const ROW: f64 = 20.0;
/// Room for names on the left of bars.
pub(super) const NAMES: f64 = 220.0;
/// Colours of the page by what tracers' names begin with: the same in every figure. Others have
/// the last.
const FAMILIES: [(&str, &str); 9] = [
    ("trackway", "c0"),
    ("lttng", "c1"),
    ("perf", "c2"),
    ("ftrace", "c3"),
    ("bpftrace", "c4"),
    ("ebpf", "c4"),
    ("strace", "c5"),
    ("uftrace", "c5"),
    ("", "c6"),
];
/// Kinds of lines that one family's can have: whole, and broken in several ways.
const STROKES: usize = 5;
/// Most rows of a figure: what goes on a page of paper.
const ROWS_MAX: usize = 44;

/// Which line is a tracer's: its family's colour, and one that no other of the family has, as far
/// as there are so many.
#[derive(Debug, Default)]
pub(super) struct Strokes {
    seen: std::collections::BTreeMap<&'static str, usize>,
}

impl Strokes {
    /// Classes of the next tracer's line.
    pub(super) fn of(&mut self, tracer: &str) -> String {
        let class = colour(tracer);
        let count = self.seen.entry(class).or_default();
        *count += 1;
        format!("{class} stroke{}", (*count - 1) % STROKES)
    }
}

/// Rows by their cases, in as many parts as fit on a page each.
pub(super) fn in_parts<'a>(rows: &[&'a Row]) -> Vec<Vec<(&'a str, Vec<&'a Row>)>> {
    let mut cases: Vec<(&str, Vec<&Row>)> = Vec::new();
    for row in rows {
        let full = |case: &(&str, Vec<&Row>)| case.1.len() >= ROWS_MAX;
        match cases.iter_mut().find(|case| case.0 == row.case && !full(case)) {
            Some(case) => case.1.push(row),
            None => cases.push((&row.case, vec![row])),
        }
    }
    let mut parts: Vec<Vec<(&str, Vec<&Row>)>> = Vec::new();
    let mut room = 0;
    for case in cases {
        let needed = case.1.len() + 1;
        match parts.last_mut() {
            Some(part) if needed <= room => {
                part.push(case);
                room -= needed;
            }
            _ => {
                parts.push(vec![case]);
                room = (ROWS_MAX + 1).saturating_sub(needed);
            }
        }
    }
    parts
}

/// Words that fit: what is left out is in the middle, as names differ at their ends.
pub(super) fn clipped(words: &str, most: usize) -> String {
    let letters: Vec<char> = words.chars().collect();
    if letters.len() <= most {
        return words.to_owned();
    }
    let (begin, end) = (most / 2, most - most / 2 - 1);
    let ends = [&letters[..begin], &['…'], &letters[letters.len() - end..]];
    ends.concat().into_iter().collect()
}

/// Lines from the top to the bottom at a scale's figures, and these below.
pub(super) fn axis_below(
    plot: &mut Plot,
    scale: &Scale,
    (left, width): (f64, f64),
    (top, below): (f64, f64),
    words: &str,
) {
    let bottom = plot.height() - below;
    for at in scale.marks() {
        let x = left + width * scale.part(at);
        plot.line("grid", (x, top), (x, bottom));
        plot.words("middle", (x, bottom + 16.0), &mark(at));
    }
    let axis = format!("{words} ({} scale)", scale.kind());
    plot.words("middle", (left + width / 2.0, bottom + 36.0), &axis);
}

/// A figure while it is drawn.
#[derive(Debug)]
pub(super) struct Plot {
    text: String,
    height: f64,
}

impl Plot {
    /// An empty one, of this height, that says in words what it shows.
    pub(super) fn new(title: &str, height: f64) -> Self {
        let title = escaped(title);
        let text = format!(
            "<svg role=\"img\" viewBox=\"0 0 {WIDTH} {height:.0}\" \
             aria-label=\"{title}\"><title>{title}</title>\n"
        );
        Self { text, height }
    }

    /// Its height.
    pub(super) const fn height(&self) -> f64 {
        self.height
    }

    /// A line of one of the page's classes.
    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        // Into a string: it cannot fail; nor can the others.
        let _ = writeln!(
            self.text,
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        );
    }

    /// A rectangle of one of the page's classes.
    pub(super) fn bar(&mut self, class: &str, (x, y): (f64, f64), (width, height): (f64, f64)) {
        let _ = writeln!(
            self.text,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" \
             height=\"{height:.1}\"/>",
            width.max(1.0)
        );
    }

    /// Words that begin (`start`), end (`end`) or stand (`middle`) at a point.
    pub(super) fn words(&mut self, anchor: &str, (x, y): (f64, f64), words: &str) {
        let words = escaped(words);
        let _ = writeln!(
            self.text,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>"
        );
    }

    /// A line through points.
    pub(super) fn through(&mut self, class: &str, points: &[(f64, f64)]) {
        let mut text = String::new();
        for (x, y) in points {
            let _ = write!(text, "{x:.1},{y:.1} ");
        }
        let _ = writeln!(self.text, "<polyline class=\"{class}\" points=\"{}\"/>", text.trim_end());
    }

    /// A point.
    pub(super) fn point(&mut self, class: &str, (x, y): (f64, f64)) {
        let _ =
            writeln!(self.text, "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>");
    }

    /// A point of which there may be many.
    pub(super) fn small_point(&mut self, class: &str, (x, y): (f64, f64)) {
        let _ = writeln!(
            self.text,
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"1.6\"/>"
        );
    }

    /// As text.
    pub(super) fn finish(self) -> String {
        self.text + "</svg>\n"
    }
}

/// Class of a tracer: that of its family.
pub(super) fn colour(tracer: &str) -> &'static str {
    let found = FAMILIES.iter().find(|family| tracer.starts_with(family.0));
    found.map_or("c6", |family| family.1)
}

/// A logarithmic scale from left to right, or a linear one where all figures are of one power.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scale {
    from: f64,
    to: f64,
    is_log: bool,
}

impl Scale {
    /// Around these; `None` if there is none that can be shown. Where all are nought, there is
    /// nothing to see.
    pub(super) fn around(figures: impl Iterator<Item = f64>) -> Option<Self> {
        let figures: Vec<f64> = figures.filter(|figure| figure.is_finite()).collect();
        let deepest = figures.iter().copied().fold(0.0, f64::min);
        let (least, most) = bounds(figures.into_iter()).or((deepest < 0.0).then_some((1.0, 1.0)))?;
        // What measuring is taken out of may be less than nothing: not far on a scale of all.
        if deepest < -0.01 * most {
            return Some(Self { from: -nice(-deepest), to: nice(most), is_log: false });
        }
        if most <= 20.0 * least {
            return Some(Self { from: 0.0, to: nice(most), is_log: false });
        }
        Self::between(least, most)
    }

    /// The same, but logarithmic in any case.
    pub(super) fn logarithmic(figures: impl Iterator<Item = f64>) -> Option<Self> {
        let (least, most) = bounds(figures)?;
        Self::between(least, most)
    }

    fn between(least: f64, most: f64) -> Option<Self> {
        let from = 10_f64.powf(least.log10().floor());
        let to = 10_f64.powf(most.log10().ceil()).max(10.0 * from);
        Some(Self { from, to, is_log: true })
    }

    /// Where bars begin.
    pub(super) const fn base(&self) -> f64 {
        if self.is_log { self.from } else { 0.0 }
    }

    /// How far a figure is from the scale's beginning, as a part of it.
    pub(super) fn part(&self, figure: f64) -> f64 {
        let part = if self.is_log {
            (figure.max(self.from) / self.from).log10() / (self.to / self.from).log10()
        } else {
            (figure - self.from) / (self.to - self.from)
        };
        part.clamp(0.0, 1.0)
    }

    /// Figures to draw lines at.
    pub(super) fn marks(&self) -> Vec<f64> {
        if !self.is_log {
            let length = self.to - self.from;
            return (0..=4).map(|part| self.from + length * f64::from(part) / 4.0).collect();
        }
        let next = |mark: &f64| Some(mark * 10.0);
        let most = self.to * 1.001;
        std::iter::successors(Some(self.from), next).take_while(|mark| *mark <= most).collect()
    }

    /// In words, for the axis.
    pub(super) const fn kind(&self) -> &'static str {
        if self.is_log { "logarithmic" } else { "linear" }
    }
}

/// The least and the greatest that a logarithmic scale can show.
fn bounds(figures: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let shown = figures.filter(|figure| figure.is_finite() && *figure > 0.0);
    shown.fold(None, |bounds: Option<(f64, f64)>, figure| {
        let (least, most) = bounds.unwrap_or((figure, figure));
        Some((least.min(figure), most.max(figure)))
    })
}

/// The next figure above that has one digit, or ends in 5.
fn nice(figure: f64) -> f64 {
    let power = 10_f64.powf(figure.log10().floor());
    let steps = [1.0, 1.2, 1.6, 2.0, 2.4, 3.2, 4.0, 5.0, 6.0, 8.0, 10.0];
    steps.iter().map(|step| step * power).find(|nice| *nice >= figure).unwrap_or(10.0 * power)
}

/// A figure on an axis.
pub(super) fn mark(figure: f64) -> String {
    let (figure, letter) = match figure.abs() {
        1e9.. => (figure / 1e9, " G"),
        1e6.. => (figure / 1e6, " M"),
        1e4.. => (figure / 1e3, " k"),
        _ => (figure, ""),
    };
    let text = format!("{figure:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned() + letter
}

/// As text within HTML.
pub(crate) fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Places as near to these as can be that are at least a row from each other, and above `bottom`.
pub(super) fn apart(wanted: &[f64], bottom: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|&a, &b| wanted[a].total_cmp(&wanted[b]));
    let mut places = wanted.to_vec();
    for pair in order.windows(2) {
        places[pair[1]] = places[pair[1]].max(places[pair[0]] + ROW);
    }
    // What was moved below the plot pushes the others up again.
    let mut limit = bottom;
    for &at in order.iter().rev() {
        places[at] = places[at].min(limit);
        limit = places[at] - ROW;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_logarithmic_only_where_they_must_be() {
        let scale = Scale::around([1.1, 540.0, f64::NAN, 0.0].into_iter()).expect("figures");
        assert_eq!(scale.marks(), [1.0, 10.0, 100.0, 1000.0]);
        assert!((scale.part(10.0) - 1.0 / 3.0).abs() < 1e-9);
        assert_eq!((scale.part(0.1), scale.part(1e9)), (0.0, 1.0));
        let near = Scale::around([15.0, 110.0].into_iter()).expect("figures");
        assert_eq!((near.kind(), near.marks().last()), ("linear", Some(&120.0)));
        assert_eq!(Scale::around(std::iter::empty()), None);
        let deep = Scale::around([-3.0, 4.0].into_iter()).expect("figures");
        assert_eq!((deep.marks().len(), deep.base()), (5, 0.0));
        assert_eq!((deep.part(-3.2), deep.part(4.0)), (0.0, 1.0));
    }

    #[test]
    fn long_names_keep_their_ends() {
        assert_eq!(clipped("trackway-lockless-again", 11), "track…again");
        assert_eq!(clipped("short", 11), "short");
    }

    #[test]
    fn names_do_not_lie_over_each_other() {
        for wanted in [vec![100.0, 101.0, 99.0], vec![400.0; 5], vec![60.0, 300.0]] {
            let mut places = apart(&wanted, 400.0);
            places.sort_by(f64::total_cmp);
            assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= ROW - 1e-9), "{places:?}");
            assert!(places.iter().all(|place| *place <= 400.0), "{places:?}");
        }
    }

    #[test]
    fn what_pages_must_not_take_for_tags_is_escaped() {
        assert_eq!(escaped("a<b & \"c\""), "a&lt;b &amp; &quot;c&quot;");
        assert_eq!(
            (mark(0.25), mark(1200.0), mark(2.5e6)),
            ("0.25".into(), "1200".into(), "2.5 M".into())
        );
    }
}
