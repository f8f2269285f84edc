//! A comparison as text: worse rows first; the number of rows that are the same.

use std::io::{self, Write};

use super::{Changed, Comparison, ROUNDS_MIN, Reach, RowChange};
use crate::figures::{figure, times};
use crate::report::table::Table;
use crate::results::Unit;

/// Writes the changed rows to `output`, or all.
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
        let [name, before, after] = [name, before, after].map(|words| one_line(words));
        writeln!(output, "{name}: {before} -> {after}")?;
    }
    let builds = match comparison.is_same_build {
        Some(true) => "the same build of Trackway: what differs is not its doing",
        Some(false) => "two builds of Trackway",
        None => "which builds of Trackway they are of is not told by both",
    };
    writeln!(output, "{builds}\n")?;
    let order = [
        Changed::Worse,
        Changed::Broken,
        Changed::Better,
        Changed::OnlyBefore,
        Changed::OnlyAfter,
        Changed::Yardstick,
        Changed::NothingBeside,
        Changed::TooFewRounds,
        Changed::NotShown,
        Changed::Same,
    ];
    for verdict in order {
        let rows: Vec<&RowChange> =
            comparison.rows.iter().filter(|row| row.verdict == verdict).collect();
        let is_shown = is_all
            || matches!(verdict, Changed::Worse | Changed::Better | Changed::Broken)
            || matches!(verdict, Changed::OnlyBefore | Changed::OnlyAfter | Changed::Yardstick);
        if rows.is_empty() {
            continue;
        }
        writeln!(output, "{} {}: {}", rows.len(), plural(rows.len()), meaning(verdict))?;
        if is_shown {
            write!(output, "\n{}\n", table(&rows))?;
        }
    }
    let losing: Vec<&RowChange> = comparison.losing().collect();
    if !losing.is_empty() {
        let count = losing.len();
        writeln!(output, "{count} {}: another part of its events is lost", plural(count))?;
        write!(output, "\n{}\n", losses(&losing))?;
    }
    writeln!(output, "\n{}", sureness(comparison))
}

/// Formats the losses before and after.
fn losses(rows: &[&RowChange]) -> String {
    let mut table = Table::default();
    table.row(["", "lost before", "lost after", ""]);
    for row in rows {
        let Some((before, after)) = row.lost else { continue };
        table.row([name(row), percent(before), percent(after), one_line(word(row))]);
    }
    table.text()
}

/// Returns suite, tracer and case.
fn name(row: &RowChange) -> String {
    let [suite, tracer, case] = [&row.suite, &row.tracer, &row.case].map(|name| one_line(name));
    format!("{suite}: {tracer}: {case}")
}

/// Formats a part, to a tenth of a percent; a smaller part is not shown as zero.
fn percent(part: f64) -> String {
    match part * 100.0 {
        0.0 => "0 %".to_owned(),
        percent if percent < 0.1 => "< 0.1 %".to_owned(),
        percent => format!("{percent:.1} %"),
    }
}

const fn plural(count: usize) -> &'static str {
    if count == 1 { "row" } else { "rows" }
}

/// Returns the meaning of a verdict, for all units.
const fn meaning(verdict: Changed) -> &'static str {
    match verdict {
        Changed::Worse => "slower, or larger, and not by chance",
        Changed::Broken => "measured before, and FAILED now",
        Changed::Better => "faster, or smaller, and not by chance",
        Changed::Same => "the same, to 2 %",
        Changed::NotShown => "no difference shown",
        Changed::TooFewRounds => "too few rounds to say anything (six or more in each are needed)",
        Changed::Yardstick => "what others are told in terms of: how the machine changed",
        Changed::NothingBeside => "not comparable: nothing beside it to measure the machine by",
        Changed::OnlyBefore => "only in the first",
        Changed::OnlyAfter => "only in the second",
    }
}

/// Returns a verdict on a row, in a word or two.
fn word(row: &RowChange) -> &'static str {
    let less = (row.verdict == Changed::Better) != row.unit.more_is_better();
    let is_counted = super::is_countable(row.unit);
    match row.verdict {
        Changed::Worse | Changed::Better if is_counted => ["more", "less"][usize::from(less)],
        Changed::Worse => "slower",
        Changed::Better => "faster",
        Changed::Broken => "FAILED",
        Changed::Same => "same",
        Changed::NotShown => "not shown",
        Changed::TooFewRounds => "too few",
        Changed::Yardstick | Changed::NothingBeside => "",
        Changed::OnlyBefore => "gone",
        Changed::OnlyAfter => "new",
    }
}

fn table(rows: &[&RowChange]) -> String {
    let mut table = Table::default();
    table.row(["", "before", "after", "", "times", "relative", "to", ""]);
    for row in rows {
        let [before, after] = [row.before, row.after].map(|median| cell(row.unit, median));
        let shift = |shift: Option<super::Shift>| {
            shift.map_or_else(String::new, |shift| match shift.interval {
                Some((low, high)) => {
                    format!("{} ({} to {})", times(shift.times), times(low), times(high))
                }
                None => times(shift.times),
            })
        };
        let yardstick = row.yardstick.as_deref().map_or_else(String::new, one_line);
        let why = row.reason.as_deref().map_or_else(String::new, |why| format!(": {why}"));
        // A tracer that loses events has less to do: a faster one is reported with its losses.
        let lost = row.lost.filter(|(before, after)| before + after > 0.0);
        let lost = lost.map_or_else(String::new, |(before, after)| {
            format!(", lost {} (before: {})", percent(after), percent(before))
        });
        let last = one_line(&format!("{}{lost}{why}", word(row)));
        table.row([
            name(row),
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

fn cell(unit: Unit, median: Option<f64>) -> String {
    median.map_or_else(|| "·".to_owned(), |median| figure(unit, median))
}

/// Formats the certainty of the comparison.
fn sureness(comparison: &Comparison) -> String {
    let compared = comparison.compared;
    let how = format!(
        "{compared} {} compared. Of so many, {:.0} would differ by chance if each were looked \
         at by itself;\nso chances are held against their number. They know what wanders between \
         rounds of a run, and not what two runs\ndiffer by (memory elsewhere, another build's \
         layout, a neighbour): what is called different may differ by that.\nRun again, in turns, \
         before you believe it. Intervals are of the same kind. \"Relative\" is in terms of what \
         is not\nunder test, in the same rounds: it decides, as it leaves out what the machine \
         did, where the figures\nthemselves have changed that way, too.",
        plural(compared),
        comparison.by_chance
    );
    let words = [can_be_shown(&comparison.reach), (compared > 0).then_some(how)];
    words.into_iter().flatten().collect::<Vec<String>>().join("\n")
}

/// Formats the changes that could not have been shown, of any size.
fn can_be_shown(reach: &Reach) -> Option<String> {
    let Reach { rows, blind, rounds, rounds_needed } = *reach;
    let round = if rounds == 1 { "round" } else { "rounds" };
    let (row, needed) = (plural(rows), format!("{rounds_needed} rounds in each report would"));
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
fn one_line(text: &str) -> String {
    text.chars().take(200).map(|c| if c.is_control() { '?' } else { c }).collect()
}
