//! Lines of tracers: the colour of the tracer's family, with a combination of dash and marker that
//! is unique in the suite, so that lines differ on grey paper, too.

use super::plot::colour_class;
use crate::results::TRACKWAY;

/// Number of line styles: one is solid, the others are dashed.
const DASHES: usize = 5;
/// Number of marker shapes: [`Shape::of`] has a shape for each smaller number.
const SHAPES: usize = 7;

/// The line of a tracer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stroke {
    /// Classes of the line in the style sheet.
    pub(super) class: String,
    /// The marker of the line's points.
    pub(super) shape: Shape,
}

/// The marker of a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Circle,
    Square,
    Triangle,
    Diamond,
    Cross,
    TriangleDown,
    Plus,
}

impl Shape {
    const fn of(number: usize) -> Self {
        match number % SHAPES {
            0 => Self::Circle,
            1 => Self::Square,
            2 => Self::Triangle,
            3 => Self::Diamond,
            4 => Self::Cross,
            5 => Self::TriangleDown,
            _ => Self::Plus,
        }
    }

    /// Returns the outline of the shape around a point, as the `d` of an SVG path.
    pub(super) fn path(self, (x, y): (f64, f64)) -> String {
        let corners: &[(f64, f64)] = match self {
            Self::Circle => {
                let (left, width) = (x - 3.0, 6.0);
                return format!("M{left:.1} {y:.1}a3 3 0 1 0 {width} 0a3 3 0 1 0 -{width} 0z");
            }
            Self::Cross => {
                let (left, top) = (x - 3.5, y - 3.5);
                return format!("M{left:.1} {top:.1}l7 7m0 -7l-7 7");
            }
            Self::Plus => {
                let left = x - 4.5;
                return format!("M{left:.1} {y:.1}h9m-4.5 -4.5v9");
            }
            Self::Square => &[(-3.0, -3.0), (3.0, -3.0), (3.0, 3.0), (-3.0, 3.0)],
            Self::Triangle => &[(0.0, -4.5), (4.0, 3.0), (-4.0, 3.0)],
            Self::TriangleDown => &[(0.0, 4.5), (4.0, -3.0), (-4.0, -3.0)],
            Self::Diamond => &[(0.0, -4.5), (4.5, 0.0), (0.0, 4.5), (-4.5, 0.0)],
        };
        let points: Vec<String> =
            corners.iter().map(|(dx, dy)| format!("{:.1} {:.1}", x + dx, y + dy)).collect();
        format!("M{}z", points.join("L"))
    }
}

/// Lines of a suite's tracers, equal in all figures of the suite.
#[derive(Debug)]
pub(super) struct Strokes<'a>(Vec<&'a str>);

impl<'a> Strokes<'a> {
    /// Makes the lines of these tracers, which may repeat. Trackway in its default use has the
    /// solid line.
    pub(super) fn of(tracers: impl IntoIterator<Item = &'a str>) -> Self {
        let mut known = vec![TRACKWAY];
        for tracer in tracers {
            if !known.contains(&tracer) {
                known.push(tracer);
            }
        }
        Self(known)
    }

    /// Returns the line of a tracer.
    pub(super) fn stroke(&self, tracer: &str) -> Stroke {
        let number = self.0.iter().position(|known| *known == tracer).unwrap_or(self.0.len());
        // The combinations of dash and marker repeat after `DASHES` × `SHAPES` tracers.
        let (dash, shape) = (number % DASHES, Shape::of(number));
        Stroke { class: format!("{} stroke{dash}", colour_class(tracer)), shape }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_tracers_have_one_dash_and_one_marker() {
        let names: Vec<String> =
            (1..DASHES * SHAPES).map(|one| format!("trackway-{one}")).collect();
        let strokes = Strokes::of(names.iter().chain(&names).map(String::as_str));
        let names = [&["trackway".to_owned()], &names[..]].concat();
        let all: Vec<Stroke> = names.iter().map(|name| strokes.stroke(name)).collect();
        for (at, one) in all.iter().enumerate() {
            assert!(!all[..at].contains(one), "{at}: {one:?}");
        }
        assert_eq!(all[0].class, "c0 stroke0");
        // All tracers of a family have one colour.
        assert!(all.iter().all(|one| one.class.starts_with("c0 ")));
    }

    #[test]
    fn markers_have_outlines_of_their_own() {
        let paths: Vec<String> = (0..SHAPES).map(|one| Shape::of(one).path((10.0, 20.0))).collect();
        for (at, path) in paths.iter().enumerate() {
            assert!(path.starts_with('M') && !paths[..at].contains(path), "{path}");
        }
    }
}
