//! Charts as SVG: bars and lines over a logarithmic scale of times.
//!
//! Main invariant: every figure is written beside its bar or at its line's end, so that nobody has
//! to read it off an axis, and no two names lie over each other.

use std::fmt::Write as _;

/// Width of a chart, in pixels.
const WIDTH: f64 = 860.0;
/// Room for names on the left of bars, and at the right of lines.
const NAMES_WIDTH: f64 = 240.0;
/// Room for the scale of times, left of lines.
const SCALE_WIDTH: f64 = 64.0;
/// Height of lines' plot.
const PLOT_HEIGHT: f64 = 360.0;
/// Room above a plot, for its title.
const TOP: f64 = 56.0;
/// Room below a plot, for its axis.
const BOTTOM: f64 = 52.0;
/// From one bar or one name to the next.
const ROW: f64 = 20.0;
/// Colours that differ also for those who see red and green alike (Okabe, Ito: *Color Universal
/// Design*, 2008).
const COLOURS: [&str; 7] =
    ["#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

/// Bars under a heading.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Group {
    /// Its heading.
    pub(crate) name: String,
    /// Bars: name, which colour, and time.
    pub(crate) bars: Vec<(String, usize, f64)>,
}

/// A line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Line {
    /// Its name.
    pub(crate) name: String,
    /// Which colour.
    pub(crate) colour: usize,
    /// Whether it is broken: of another kind than the others of its colour.
    pub(crate) is_broken: bool,
    /// Points, in order of x; times are more than 0.
    pub(crate) points: Vec<(f64, f64)>,
}

/// What stands around a plot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame<'a> {
    /// What is shown.
    pub(crate) title: &'a str,
    /// What times are of.
    pub(crate) times: &'a str,
    /// What x is, for lines.
    pub(crate) x: &'a str,
}

/// Powers of ten around figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Scale {
    from: i32,
    to: i32,
}

impl Scale {
    fn around(figures: impl Iterator<Item = f64>) -> Option<Self> {
        let mut bounds: Option<(f64, f64)> = None;
        for figure in figures.filter(|figure| figure.is_finite() && *figure > 0.0) {
            let (least, most) = bounds.unwrap_or((figure, figure));
            bounds = Some((least.min(figure), most.max(figure)));
        }
        let (least, most) = bounds?;
        let (from, to) = (least.log10().floor() as i32, most.log10().ceil() as i32);
        Some(Self { from, to: to.max(from + 1) })
    }

    /// How far a figure is from the scale's beginning, as a part of it.
    fn part(self, figure: f64) -> f64 {
        (figure.log10() - f64::from(self.from)) / f64::from(self.to - self.from)
    }

    fn powers(self) -> impl Iterator<Item = f64> {
        (self.from..=self.to).map(|power| 10_f64.powi(power))
    }
}

/// Groups of horizontal bars, all on one scale; `None` if there is nothing to show.
pub(crate) fn bars(frame: Frame<'_>, groups: &[Group]) -> Option<String> {
    let all = groups.iter().flat_map(|group| &group.bars);
    let scale = Scale::around(all.map(|(_, _, figure)| *figure))?;
    let rows: usize = groups.iter().map(|group| group.bars.len() + 1).sum();
    let bottom = TOP + ROW * rows as f64;
    // Behind the longest bar there is room for its figure.
    let width = WIDTH - NAMES_WIDTH - 70.0;
    let mut text = begin(frame.title, bottom + BOTTOM);
    for power in scale.powers() {
        let x = NAMES_WIDTH + width * scale.part(power);
        line(&mut text, (x, TOP), (x, bottom), "#dddddd");
        label(&mut text, (x, bottom + 18.0), "middle", &figure(power));
    }
    label(&mut text, (NAMES_WIDTH + width / 2.0, bottom + 38.0), "middle", frame.times);
    let mut y = TOP;
    for group in groups {
        y += ROW;
        label(&mut text, (8.0, y - 5.0), "start", &group.name);
        for (name, colour, time) in &group.bars {
            let length = width * scale.part(*time);
            let colour = COLOURS[colour % COLOURS.len()];
            // Into a string: it cannot fail.
            let _ = writeln!(
                text,
                "<rect x=\"{NAMES_WIDTH}\" y=\"{:.1}\" width=\"{length:.1}\" height=\"14\" \
                 fill=\"{colour}\"/>",
                y + 3.0
            );
            label(&mut text, (NAMES_WIDTH - 8.0, y + 14.0), "end", name);
            label(&mut text, (NAMES_WIDTH + length + 6.0, y + 14.0), "start", &figure(*time));
            y += ROW;
        }
    }
    Some(text + "</svg>\n")
}

/// Lines over a linear x with these marks; `None` if there is nothing to show.
pub(crate) fn lines(frame: Frame<'_>, marks: &[f64], lines: &[Line]) -> Option<String> {
    let lines: Vec<&Line> = lines.iter().filter(|line| !line.points.is_empty()).collect();
    let scale = Scale::around(lines.iter().flat_map(|line| &line.points).map(|point| point.1))?;
    let (first, last) = (*marks.first()?, *marks.last()?);
    let right = WIDTH - NAMES_WIDTH - 40.0;
    let x_of = |x: f64| SCALE_WIDTH + (right - SCALE_WIDTH) * (x - first) / (last - first).max(1.0);
    let y_of = |time: f64| TOP + PLOT_HEIGHT * (1.0 - scale.part(time));
    let bottom = TOP + PLOT_HEIGHT;
    let mut text = begin(frame.title, bottom + BOTTOM);
    for power in scale.powers() {
        line(&mut text, (SCALE_WIDTH, y_of(power)), (right, y_of(power)), "#dddddd");
        label(&mut text, (SCALE_WIDTH - 8.0, y_of(power) + 4.0), "end", &figure(power));
    }
    label(&mut text, (8.0, TOP - 10.0), "start", frame.times);
    for mark in marks {
        line(&mut text, (x_of(*mark), bottom), (x_of(*mark), bottom + 5.0), "#888888");
        label(&mut text, (x_of(*mark), bottom + 18.0), "middle", &mark.to_string());
    }
    let middle = f64::midpoint(SCALE_WIDTH, right);
    label(&mut text, (middle, bottom + 38.0), "middle", frame.x);
    let ends = lines.iter().filter_map(|line| line.points.last()).map(|end| y_of(end.1));
    let names = apart(&ends.collect::<Vec<f64>>());
    for (one, y) in lines.iter().zip(names) {
        let points: Vec<String> = one
            .points
            .iter()
            .map(|&(x, time)| format!("{:.1},{:.1}", x_of(x), y_of(time)))
            .collect();
        let colour = COLOURS[one.colour % COLOURS.len()];
        let dashes = if one.is_broken { " stroke-dasharray=\"6 4\"" } else { "" };
        let _ = writeln!(
            text,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" \
             stroke-width=\"2\"{dashes}/>",
            points.join(" ")
        );
        for point in &points {
            let (x, y) = point.split_once(',').unwrap_or_default();
            let _ = writeln!(text, "<circle cx=\"{x}\" cy=\"{y}\" r=\"3\" fill=\"{colour}\"/>");
        }
        let end = one.points.last().copied().unwrap_or_default();
        // From the line's end to its name, which may have had to move.
        line(&mut text, (x_of(end.0) + 4.0, y_of(end.1)), (right + 20.0, y), colour);
        let name = format!("{}  {}", figure(end.1), one.name);
        label(&mut text, (right + 24.0, y + 4.0), "start", &name);
    }
    Some(text + "</svg>\n")
}

/// Places as near to these as can be that are at least a row from each other.
fn apart(wanted: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|&a, &b| wanted[a].total_cmp(&wanted[b]));
    let mut places = wanted.to_vec();
    for pair in order.windows(2) {
        places[pair[1]] = places[pair[1]].max(places[pair[0]] + ROW);
    }
    // What was moved below the plot pushes the others up again.
    let mut limit = TOP + PLOT_HEIGHT;
    for &at in order.iter().rev() {
        places[at] = places[at].min(limit);
        limit = places[at] - ROW;
    }
    places
}

fn begin(title: &str, height: f64) -> String {
    let title = escaped(title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"8\" y=\"22\" font-size=\"16\">{title}</text>\n"
    )
}

fn line(text: &mut String, from: (f64, f64), to: (f64, f64), colour: &str) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let _ = writeln!(
        text,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\"/>"
    );
}

fn label(text: &mut String, (x, y): (f64, f64), anchor: &str, words: &str) {
    let words = escaped(words);
    let _ =
        writeln!(text, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>");
}

/// A time as people read it.
fn figure(time: f64) -> String {
    match time {
        100.0.. => format!("{time:.0}"),
        10.0.. => format!("{time:.1}").trim_end_matches(".0").to_owned(),
        _ => format!("{time:.2}").trim_end_matches('0').trim_end_matches('.').to_owned(),
    }
}

fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Frame<'_> = Frame { title: "a && b", times: "ns", x: "predicates" };

    #[test]
    fn scales_are_powers_of_ten_around_all() {
        let scale = Scale::around([1.1, 540.0, f64::NAN, 0.0].into_iter());
        assert_eq!(scale, Some(Scale { from: 0, to: 3 }));
        assert_eq!(Scale::around([10.0].into_iter()), Some(Scale { from: 1, to: 2 }));
        assert_eq!(Scale::around(std::iter::empty()), None);
        assert!((Scale { from: 0, to: 2 }.part(10.0) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn names_do_not_lie_over_each_other() {
        let bottom = TOP + PLOT_HEIGHT;
        for wanted in [vec![100.0, 101.0, 99.0], vec![bottom; 5], vec![60.0, 300.0]] {
            let mut places = apart(&wanted);
            places.sort_by(f64::total_cmp);
            assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= ROW - 1e-9), "{places:?}");
            assert!(places.iter().all(|place| *place <= bottom), "{places:?}");
        }
        assert_eq!(apart(&[60.0, 300.0]), [60.0, 300.0]);
    }

    #[test]
    fn charts_hold_their_names_and_figures() {
        let bar = |name: &str, time| (name.to_owned(), 1, time);
        let group = Group { name: "some".into(), bars: vec![bar("C", 7.4), bar("ours", 812.3)] };
        let text = bars(FRAME, &[group]).expect("a chart");
        for part in ["a &amp;&amp; b", ">some<", ">C<", ">7.4<", ">812<", "</svg>"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let one = |name: &str, points: &[(f64, f64)]| Line {
            name: name.to_owned(),
            colour: 2,
            is_broken: false,
            points: points.to_vec(),
        };
        let all = [one("LTTng", &[(1.0, 20.0), (9.0, 331.4)]), one("none", &[])];
        let text = lines(FRAME, &[1.0, 9.0], &all).expect("a chart");
        assert!(text.contains(">331  LTTng<") && !text.contains("none<"), "{text}");
        assert_eq!(text.matches("<circle").count(), 2);
        assert_eq!(lines(FRAME, &[1.0], &[]), None);
    }
}
