//! A report as text: a table for each suite, tracers down, cases across.
//!
//! ```text
//! tails   single events, how they are distributed; and what else rows say
//! ```

mod tails;

use std::io::{self, Write};

use crate::report::bars_text;
use crate::rows::{Ended, Report, Row, RowStatus, SuiteRows, Unit};
use crate::stats::Ratio;
use crate::table::Table;

/// For what was not measured.
const NOTHING: &str = "·";
/// Most cases that stand side by side; more go below each other.
const ACROSS_MAX: usize = 4;

/// Writes everything that a person decides by to `output`.
///
/// # Errors
///
/// Those of `output`.
pub fn print_report(report: &Report, output: &mut dyn Write) -> io::Result<()> {
    writeln!(output, "{}", report.machine.words())?;
    for note in &report.notes {
        writeln!(output, "{}: {}", note.about, note.text)?;
    }
    if !report.notes.is_empty() {
        writeln!(output)?;
    }
    for (_, suite) in report.ordered() {
        writeln!(output, "{}", suite_text(suite))?;
    }
    if let Some(bars) = bars_text(&report.bars) {
        write!(output, "{bars}")?;
    }
    if report.is_partial {
        writeln!(output, "\nIt ended before everything was measured.")?;
    }
    Ok(())
}

fn suite_text(suite: &SuiteRows) -> String {
    let unit = suite.rows.first().map_or("", |row| row.unit.words());
    let mut text = format!("{} ({unit}; {})\n{}\n\n", suite.title, suite.repeats, method(suite));
    let across = cases(suite);
    for some in across.chunks(ACROSS_MAX) {
        let table = table(suite, some);
        text += &table;
        text.push('\n');
    }
    text += &tails::tails(suite);
    text += &tails::extras(suite);
    for row in suite.rows.iter().filter(|row| row.is_control) {
        text += &control(row);
    }
    text += &reasons(suite);
    text
}

/// How it was measured.
pub(crate) fn method(suite: &SuiteRows) -> String {
    let rounds = match suite.rounds {
        1 => "one round: to see that it works, not for figures".to_owned(),
        rounds => format!("medians of {rounds} rounds ± half of what nine in ten span"),
    };
    let ended = match suite.ended {
        Ended::Sure => ", which made all ratios sure to 2 %",
        Ended::Interrupted => ", when it was interrupted",
        Ended::Rounds | Ended::Time | Ended::Nothing => "",
    };
    rounds + ended
}

/// Cases, in the order of the rows, without those that have a table of their own.
fn cases(suite: &SuiteRows) -> Vec<&str> {
    let mut cases: Vec<&str> = Vec::new();
    for row in suite.rows.iter().filter(|row| row.status == RowStatus::Measured) {
        if row.tail.is_none() && !cases.contains(&row.case.as_str()) {
            cases.push(&row.case);
        }
    }
    cases
}

/// Tracers with a figure in one of these cases.
fn tracers<'a>(suite: &'a SuiteRows, cases: &[&str]) -> Vec<&'a str> {
    let mut tracers: Vec<&str> = Vec::new();
    for row in &suite.rows {
        let is_in = row.median().is_some() && cases.contains(&row.case.as_str());
        if is_in && !row.is_control && !tracers.contains(&row.tracer.as_str()) {
            tracers.push(&row.tracer);
        }
    }
    tracers
}

fn table(suite: &SuiteRows, cases: &[&str]) -> String {
    let mut table = Table::default();
    table.row([""].iter().copied().chain(cases.iter().copied()));
    for tracer in tracers(suite, cases) {
        let cells = cases.iter().map(|case| {
            suite.row(tracer, case).map_or_else(|| NOTHING.to_owned(), |row| cell(suite, row))
        });
        table.row([tracer.to_owned()].into_iter().chain(cells));
    }
    table.text()
}

/// The figure, and in terms of whose it is how much.
fn cell(suite: &SuiteRows, row: &Row) -> String {
    let Some(spread) = row.spread else { return NOTHING.to_owned() };
    let mut text = figure(row.unit, spread.median);
    if spread.count > 1 {
        text += &format!(" ±{}", figure(row.unit, (spread.p95 - spread.p5) / 2.0));
    }
    let other = row.beside.and_then(|other| suite.rows.get(other));
    match (row.times, other) {
        (Some(times), Some(_)) => text + &format!(" ×{}", self::times(times.median)),
        _ => text,
    }
}

/// A figure as people read it.
pub(crate) fn figure(unit: Unit, figure: f64) -> String {
    if unit == Unit::EventsPerSecond {
        return format!("{:.2} M", figure / 1e6);
    }
    match figure.abs() {
        0.0..2.0 => format!("{figure:.2}"),
        2.0..1000.0 => format!("{figure:.1}"),
        _ => format!("{figure:.0}"),
    }
}

/// So many times: to two decimals, or two digits if it is less.
pub(crate) fn times(times: f64) -> String {
    match times.abs() {
        0.0..0.001 => format!("{times:.5}"),
        0.001..0.01 => format!("{times:.4}"),
        0.01..0.1 => format!("{times:.3}"),
        _ => format!("{times:.2}"),
    }
}

/// What measuring the same thing twice differs by.
fn control(row: &Row) -> String {
    let Some(times) = row.times else { return String::new() };
    let verdict = match times.interval {
        None => "too few rounds to say",
        Some(_) if times.may_be(1.0) => "nil, as it must be",
        Some(_) => "NOT nil: what is smaller than that says nothing",
    };
    format!("  the same twice ({}): ×{}, {verdict}\n", row.tracer, ratio(&times))
}

fn ratio(ratio: &Ratio) -> String {
    match ratio.interval {
        Some((low, high)) => format!("{:.3} ({low:.3} to {high:.3})", ratio.median),
        None => format!("{:.3}", ratio.median),
    }
}

/// Why rows have no figures: once for each tracer and reason.
fn reasons(suite: &SuiteRows) -> String {
    let mut said: Vec<String> = Vec::new();
    for row in &suite.rows {
        let Some(reason) = &row.reason else { continue };
        let line = match row.status {
            RowStatus::Absent => format!("  {}: absent, because {reason}", row.tracer),
            _ => format!("  {}, {}: FAILED: {reason}", row.tracer, row.case),
        };
        if !said.contains(&line) {
            said.push(line);
        }
    }
    said.iter().map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::tests::{report, row};

    #[test]
    fn reports_have_tables_controls_and_reasons() {
        let times = |median| Ratio { median, interval: Some((median - 0.01, median + 0.01)) };
        let lttng =
            Row { beside: Some(0), times: Some(times(6.0)), ..row("lttng-ust", "u32", 126.0) };
        let control = Row {
            beside: Some(0),
            times: Some(times(1.0)),
            is_control: true,
            ..row("trackway again", "u32", 21.0)
        };
        let absent = Row {
            status: RowStatus::Absent,
            reason: Some("perf is not installed".to_owned()),
            spread: None,
            ..row("perf", "u32", 1.0)
        };
        let failed = Row {
            status: RowStatus::Failed,
            reason: Some("its own output shows no event".to_owned()),
            ..absent.clone()
        };
        let rows = [row("trackway", "u32", 21.0), lttng, control, absent, failed];
        let mut text = Vec::new();
        print_report(&report("tracepoint", rows), &mut text).expect("a string takes all");
        let text = String::from_utf8(text).expect("UTF-8");
        let expected = "\
What an event costs (ns/event; survey, Tables IV and VI)
medians of 3 rounds ± half of what nine in ten span

                          u32
  trackway         21.0 ±0.45
  lttng-ust  126.0 ±0.45 ×6.00

  the same twice (trackway again): ×1.000 (0.990 to 1.010), nil, as it must be
  perf: absent, because perf is not installed
  perf, u32: FAILED: its own output shows no event
";
        let from = text.find("What an event").expect("a heading");
        assert_eq!(text[from..].trim_end().replace(' ', ""), expected.trim_end().replace(' ', ""));
    }

    #[test]
    fn controls_that_differ_are_said() {
        let times = Some(Ratio { median: 1.2, interval: Some((1.1, 1.3)) });
        let text = control(&Row { times, is_control: true, ..row("trackway again", "u32", 1.0) });
        assert!(text.contains("NOT nil"), "{text}");
    }
}
