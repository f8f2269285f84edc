//! Panels: one panel for each case, with a row for each tracer, all on one scale; two stand side by
//! side.

use super::plot::{
    HEADING_LETTERS, PANEL_WIDTH, Plot, ROW_HEIGHT, clip_middle, draw_axis_below, group_by_case,
};
use super::scale::Scale;
use super::words;
use crate::results::Row;

/// Room for names on the left.
const NAMES_WIDTH: f64 = 152.0;
/// Room above the rows, and below them.
const TOP: f64 = 22.0;
const BOTTOM: f64 = 20.0;
/// Most characters of a name.
const NAME_LETTERS: usize = 21;

/// Width for figures and words, without the names.
pub(super) const CONTENT_WIDTH: f64 = PANEL_WIDTH - NAMES_WIDTH;

/// The horizontal scale of a panel.
pub(super) struct PanelScale<'a> {
    scale: &'a Scale,
    width: f64,
}

impl PanelScale<'_> {
    /// Returns the position of a figure.
    pub(super) fn x(&self, figure: f64) -> f64 {
        NAMES_WIDTH + self.width * self.scale.part(figure)
    }

    /// Returns the horizontal position at which bars begin.
    pub(super) fn base(&self) -> f64 {
        self.x(self.scale.base())
    }
}

/// Draws a panel for each case. In each panel, `room` of the [`CONTENT_WIDTH`] is kept free on the
/// right for words, and `draw` draws a row at the vertical position `y`.
pub(super) fn draw_panels(
    rows: &[&Row],
    scale: &Scale,
    room: f64,
    draw: impl Fn(&mut Plot, &PanelScale<'_>, f64, &Row),
) -> Vec<String> {
    let across = PanelScale { scale, width: CONTENT_WIDTH - room };
    let of_case = |(case, rows): &(&str, Vec<&Row>)| {
        let bottom = TOP + ROW_HEIGHT * rows.len() as f64;
        let title = words::case_heading(case);
        let mut plot = Plot::new(&title, (PANEL_WIDTH, bottom + BOTTOM));
        draw_axis_below(&mut plot, scale, (NAMES_WIDTH, across.width), (TOP, bottom));
        plot.heading((0.0, 13.0), &clip_middle(&title, HEADING_LETTERS));
        for (at, row) in rows.iter().enumerate() {
            let y = TOP + ROW_HEIGHT * at as f64;
            plot.words(
                "end",
                (NAMES_WIDTH - 6.0, y + 13.0),
                &clip_middle(&row.tracer, NAME_LETTERS),
            );
            draw(&mut plot, &across, y, row);
        }
        plot.finish()
    };
    group_by_case(rows).iter().map(of_case).collect()
}
