//! Formats a comparison as text: worse rows first; unchanged rows only as a number.

use std::io::{self, Write};

use super::{Comparison, ROUNDS_MIN, Reach, RowChange, RowVerdict};
use crate::figures::{format_figure, format_ratio};
use crate::report::table::Table;
use crate::results::Unit;

/// Writes the changed rows, or all rows, to `output`.
///
/// # Errors
///
/// Errors of `output`.
pub fn print_comparison(
    comparison: &Comparison,
    is_all: bool,
    output: &mut dyn Write,
) -> io::Result<()> {
    for (name, before, after) in &comparison.circumstances {
        let [name, before, after] =
            [name, before, after].map(|words| replace_control_characters(words));
        writeln!(output, "{name}: {before} -> {after}")?;
    }
    let builds = match comparison.is_same_build {
        Some(true) => "the same build of Trackway: what differs is not its doing",
        Some(false) => "two builds of Trackway",
        None => "which builds of Trackway they are of is not told by both",
    };
    writeln!(output, "{builds}\n")?;
    let order = [
        RowVerdict::Worse,
        RowVerdict::Broken,
        RowVerdict::Better,
        RowVerdict::OnlyBefore,
        RowVerdict::OnlyAfter,
        RowVerdict::Yardstick,
        RowVerdict::NothingBeside,
        RowVerdict::TooFewRounds,
        RowVerdict::NotShown,
        RowVerdict::Same,
    ];
    for verdict in order {
        let rows: Vec<&RowChange> =
            comparison.rows.iter().filter(|row| row.verdict == verdict).collect();
        let is_shown = is_all
            || matches!(verdict, RowVerdict::Worse | RowVerdict::Better | RowVerdict::Broken)
            || matches!(
                verdict,
                RowVerdict::OnlyBefore | RowVerdict::OnlyAfter | RowVerdict::Yardstick
            );
        if rows.is_empty() {
            continue;
        }
        writeln!(
            output,
            "{} {}: {}",
            rows.len(),
            row_or_rows(rows.len()),
            verdict_meaning(verdict)
        )?;
        if is_shown {
            write!(output, "\n{}\n", format_changes(&rows))?;
        }
    }
    let losing: Vec<&RowChange> = comparison.losing().collect();
    if !losing.is_empty() {
        let count = losing.len();
        writeln!(output, "{count} {}: another part of its events is lost", row_or_rows(count))?;
        write!(output, "\n{}\n", format_losses(&losing))?;
    }
    writeln!(output, "\n{}", format_certainty(comparison))
}

/// Formats the losses before and after.
fn format_losses(rows: &[&RowChange]) -> String {
    let mut table = Table::default();
    table.row(["", "lost before", "lost after", ""]);
    for row in rows {
        let Some((before, after)) = row.lost else { continue };
        table.row([
            format_row_name(row),
            format_percent(before),
            format_percent(after),
            replace_control_characters(verdict_word(row)),
        ]);
    }
    table.text()
}

/// Formats suite, tracer and case of a row.
fn format_row_name(row: &RowChange) -> String {
    let [suite, tracer, case] =
        [&row.suite, &row.tracer, &row.case].map(|name| replace_control_characters(name));
    format!("{suite}: {tracer}: {case}")
}

/// Formats a part in percent, with one decimal; a small part is not shown as zero.
fn format_percent(part: f64) -> String {
    match part * 100.0 {
        0.0 => "0 %".to_owned(),
        percent if percent < 0.1 => "< 0.1 %".to_owned(),
        percent => format!("{percent:.1} %"),
    }
}

const fn row_or_rows(count: usize) -> &'static str {
    if count == 1 { "row" } else { "rows" }
}

/// Returns the meaning of a verdict in words, for rows of all units.
const fn verdict_meaning(verdict: RowVerdict) -> &'static str {
    match verdict {
        RowVerdict::Worse => "slower, or larger, and not by chance",
        RowVerdict::Broken => "measured before, and FAILED now",
        RowVerdict::Better => "faster, or smaller, and not by chance",
        RowVerdict::Same => "the same, to 2 %",
        RowVerdict::NotShown => "no difference shown",
        RowVerdict::TooFewRounds => {
            "too few rounds to say anything (six or more in each are needed)"
        }
        RowVerdict::Yardstick => "what others are told in terms of: how the machine changed",
        RowVerdict::NothingBeside => "not comparable: nothing beside it to measure the machine by",
        RowVerdict::OnlyBefore => "only in the first",
        RowVerdict::OnlyAfter => "only in the second",
    }
}

/// Returns the verdict on a row in one or two words.
fn verdict_word(row: &RowChange) -> &'static str {
    let less = (row.verdict == RowVerdict::Better) != row.unit.more_is_better();
    let is_counted = super::is_countable(row.unit);
    match row.verdict {
        RowVerdict::Worse | RowVerdict::Better if is_counted => ["more", "less"][usize::from(less)],
        RowVerdict::Worse => "slower",
        RowVerdict::Better => "faster",
        RowVerdict::Broken => "FAILED",
        RowVerdict::Same => "same",
        RowVerdict::NotShown => "not shown",
        RowVerdict::TooFewRounds => "too few",
        RowVerdict::Yardstick | RowVerdict::NothingBeside => "",
        RowVerdict::OnlyBefore => "gone",
        RowVerdict::OnlyAfter => "new",
    }
}

fn format_changes(rows: &[&RowChange]) -> String {
    let mut table = Table::default();
    table.row(["", "before", "after", "", "times", "relative", "to", ""]);
    for row in rows {
        let [before, after] = [row.before, row.after].map(|median| format_median(row.unit, median));
        let shift = |shift: Option<super::Shift>| {
            shift.map_or_else(String::new, |shift| match shift.interval {
                Some((low, high)) => {
                    format!(
                        "{} ({} to {})",
                        format_ratio(shift.times),
                        format_ratio(low),
                        format_ratio(high)
                    )
                }
                None => format_ratio(shift.times),
            })
        };
        let yardstick =
            row.yardstick.as_deref().map_or_else(String::new, replace_control_characters);
        let why = row.reason.as_deref().map_or_else(String::new, |why| format!(": {why}"));
        // A tracer that loses events has less work: a faster tracer is reported with its losses.
        let lost = row.lost.filter(|(before, after)| before + after > 0.0);
        let lost = lost.map_or_else(String::new, |(before, after)| {
            format!(", lost {} (before: {})", format_percent(after), format_percent(before))
        });
        let last = replace_control_characters(&format!("{}{lost}{why}", verdict_word(row)));
        table.row([
            format_row_name(row),
            before,
            after,
            row.unit.words().to_owned(),
            shift(row.figures),
            shift(row.relative),
            yardstick,
            last,
        ]);
    }
    table.text()
}

fn format_median(unit: Unit, median: Option<f64>) -> String {
    median.map_or_else(|| "·".to_owned(), |median| format_figure(unit, median))
}

/// Formats the paragraph on the certainty of the comparison.
fn format_certainty(comparison: &Comparison) -> String {
    let compared = comparison.compared;
    let how = format!(
        "{compared} {} compared. Of so many, {:.0} would differ by chance if each were looked \
         at by itself;\nso chances are held against their number. They know what wanders between \
         rounds of a run, and not what two runs\ndiffer by (memory elsewhere, another build's \
         layout, a neighbour): what is called different may differ by that.\nRun again, in turns, \
         before you believe it. Intervals are of the same kind. \"Relative\" is in terms of what \
         is not\nunder test, in the same rounds: it decides, as it leaves out what the machine \
         did, where the figures\nthemselves have changed that way, too.",
        row_or_rows(compared),
        comparison.by_chance
    );
    let words = [format_undetectable_changes(&comparison.reach), (compared > 0).then_some(how)];
    words.into_iter().flatten().collect::<Vec<String>>().join("\n")
}

/// Formats the number of rows whose changes cannot be shown, however large they are.
fn format_undetectable_changes(reach: &Reach) -> Option<String> {
    let Reach { rows, blind, rounds, rounds_needed } = *reach;
    let round = if rounds == 1 { "round" } else { "rounds" };
    let (row, needed) = (row_or_rows(rows), format!("{rounds_needed} rounds in each report would"));
    if blind == 0 {
        return None;
    }
    Some(match rounds {
        _ if blind < rows => format!(
            "{blind} of {rows} rows have too few rounds for so many rows: if one of them alone had \
             changed, that could not be shown; {needed}."
        ),
        ..ROUNDS_MIN => {
            format!("With {rows} {row} and {rounds} {round} nothing can be shown; {needed}.")
        }
        _ => format!(
            "With {rows} {row} and {rounds} {round} no row can be shown to have changed alone; \
             {needed}."
        ),
    })
}

/// Replaces control characters: names come from a file, which may hold anything, and must not
/// control the terminal.
fn replace_control_characters(text: &str) -> String {
    text.chars().take(200).map(|c| if c.is_control() { '?' } else { c }).collect()
}
