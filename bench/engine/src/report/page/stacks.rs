//! Stacks: the parts of one event, one after the other (survey, Figure 10), as a bar for each
//! tracer. The numbers of the parts refer to the list below the bar, which has a figure for each
//! part.

use super::plot::{FIGURE_WIDTH, Figure, Plot, axis_label, clip_middle, draw_axis_below};
use super::scale::Scale;
use crate::figures::format_figure;
use crate::results::{Row, WHOLE_EVENT};

/// Room above the first bar, distance between bars, and room below the last bar.
const TOP: f64 = 8.0;
const STEP: f64 = 76.0;
const BOTTOM: f64 = 20.0;
/// Room for names on the left.
const NAMES: f64 = 160.0;
/// Vertical positions of the numbers, the bar and the lines of words within a step.
const NUMBERS: f64 = 12.0;
const BAR: f64 = 16.0;
const BAR_HEIGHT: f64 = 16.0;
const WORDS: [f64; 2] = [46.0, 61.0];
/// Room on the right, for the sum.
const SUM: f64 = 130.0;
/// Least width of a part whose number is written above it.
const NUMBER_WIDTH: f64 = 9.0;
/// Colours of parts, by their order; neighbours differ.
const COLOURS: [&str; 10] =
    ["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c1 faint", "c0 faint", "c3 faint"];

/// Returns each tracer with a row for the whole event, and its other rows: the parts of the event,
/// in order.
pub(super) fn parts_by_tracer<'a>(rows: &[&'a Row]) -> Vec<(&'a str, Vec<&'a Row>)> {
    let is_whole = |row: &&&'a Row| row.case == WHOLE_EVENT;
    let wholes = rows.iter().filter(is_whole).filter(|row| !row.is_control);
    let of_whole = |whole: &&'a Row| {
        let is_part = |row: &&&'a Row| row.tracer == whole.tracer && !is_whole(row);
        (whole.tracer.as_str(), rows.iter().filter(is_part).copied().collect())
    };
    wholes.map(of_whole).collect()
}

/// Draws a bar for each tracer, of its parts in order; `None` if there is no figure to show.
pub(super) fn draw_stacks(stacks: &[(&str, Vec<&Row>)]) -> Option<Figure> {
    let most = stacks.iter().map(|stack| sum_of_medians(&stack.1)).fold(0.0, f64::max);
    let scale = Scale::covering(std::iter::once(most))?;
    let unit = stacks.first()?.1.first()?.unit;
    let title = "One event's parts, one behind the other";
    let bottom = TOP + STEP * stacks.len() as f64;
    let mut plot = Plot::new(title, (FIGURE_WIDTH, bottom + BOTTOM));
    let width = FIGURE_WIDTH - NAMES - SUM;
    draw_axis_below(&mut plot, &scale, (NAMES, width), (TOP, bottom));
    for (at, (tracer, parts)) in stacks.iter().enumerate() {
        draw_stack(&mut plot, &scale, width, TOP + STEP * at as f64, (tracer, parts));
    }
    let about = axis_label(unit, &scale);
    Some(Figure { title: title.to_owned(), about, panels: vec![plot.finish()] })
}

fn sum_of_medians(parts: &[&Row]) -> f64 {
    parts.iter().filter_map(|part| part.median()).sum()
}

fn draw_stack(
    plot: &mut Plot,
    scale: &Scale,
    width: f64,
    y: f64,
    (tracer, parts): (&str, &[&Row]),
) {
    plot.words("end", (NAMES - 8.0, y + BAR + 12.0), &clip_middle(tracer, 29));
    let x = |figure| NAMES + width * scale.part(figure);
    let mut before = 0.0;
    for (number, part) in parts.iter().enumerate() {
        let after = before + part.median().unwrap_or_default();
        let (from, to) = (x(before), x(after));
        let class = COLOURS[number % COLOURS.len()];
        plot.bar(class, (from, y + BAR), (to - from, BAR_HEIGHT));
        if to - from >= NUMBER_WIDTH {
            let place = (f64::midpoint(from, to), y + NUMBERS);
            plot.words("middle", place, &(number + 1).to_string());
        }
        before = after;
    }
    if let Some(part) = parts.first() {
        let place = (x(before) + 6.0, y + BAR + 12.0);
        plot.words("start", place, &format_figure(part.unit, before));
    }
    let words: Vec<String> = parts
        .iter()
        .enumerate()
        .map(|(at, part)| {
            let said = format_figure(part.unit, part.median().unwrap_or_default());
            format!("{} {} {said}", at + 1, part.case)
        })
        .collect();
    let lines = words.chunks(words.len().div_ceil(WORDS.len()).max(1));
    for (line, below) in lines.zip(WORDS) {
        plot.words("start", (NAMES, y + below), &line.join(" · "));
    }
}
