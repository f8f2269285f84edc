//! Panels: a case each, with a row for each tracer, all on one scale; two stand side by side.

use super::plot::{HEADING_LETTERS, PANEL, Plot, ROW, axis_below, by_case, clipped};
use super::scale::Scale;
use super::words;
use crate::results::Row;

/// Room for names on the left.
const NAMES: f64 = 152.0;
/// Room above the rows, and below them.
const TOP: f64 = 22.0;
const BOTTOM: f64 = 20.0;
/// Most characters of a name.
const NAME_LETTERS: usize = 21;

/// Width that is left for figures and words.
pub(super) const ROOM: f64 = PANEL - NAMES;

/// The horizontal scale of a panel.
pub(super) struct Across<'a> {
    scale: &'a Scale,
    width: f64,
}

impl Across<'_> {
    /// Returns the position of a figure.
    pub(super) fn x(&self, figure: f64) -> f64 {
        NAMES + self.width * self.scale.part(figure)
    }

    /// Returns the position at which bars begin.
    pub(super) fn base(&self) -> f64 {
        self.x(self.scale.base())
    }
}

/// Draws a panel for each case; of its [`ROOM`], `room` is left on the right, for words, and `draw`
/// draws a row from `y` on.
pub(super) fn draw(
    rows: &[&Row],
    scale: &Scale,
    room: f64,
    draw: impl Fn(&mut Plot, &Across<'_>, f64, &Row),
) -> Vec<String> {
    let across = Across { scale, width: ROOM - room };
    let of_case = |(case, rows): &(&str, Vec<&Row>)| {
        let bottom = TOP + ROW * rows.len() as f64;
        let title = words::of_case(case);
        let mut plot = Plot::new(&title, (PANEL, bottom + BOTTOM));
        axis_below(&mut plot, scale, (NAMES, across.width), (TOP, bottom));
        plot.heading((0.0, 13.0), &clipped(&title, HEADING_LETTERS));
        for (at, row) in rows.iter().enumerate() {
            let y = TOP + ROW * at as f64;
            plot.words("end", (NAMES - 6.0, y + 13.0), &clipped(&row.tracer, NAME_LETTERS));
            draw(&mut plot, &across, y, row);
        }
        plot.finish()
    };
    by_case(rows).iter().map(of_case).collect()
}
