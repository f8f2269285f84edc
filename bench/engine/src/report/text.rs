//! Formats a report as text: a table for each suite, with a row for each tracer and a column for
//! each case.

use std::io::{self, Write};

use super::table::Table;
use crate::figures::{format_figure, format_number, format_ratio_with_interval};
use crate::null_control;
use crate::results::{Bar, EndReason, Report, Row, RowStatus, SuiteRows};
use crate::stats::Spread;

/// Cell of a figure that was not measured.
const NOT_MEASURED_CELL: &str = "·";
/// Most columns that stand side by side; more columns go into another table below.
const COLUMNS_MAX: usize = 4;
/// Most characters of a line, if a table has more than one such column.
const LINE_WIDTH_MAX: usize = 100;

/// Writes the parts of the report that people need for decisions to `output`.
///
/// # Errors
///
/// Errors of `output`.
pub fn print_report(report: &Report, output: &mut dyn Write) -> io::Result<()> {
    writeln!(output, "{}", report.machine.words())?;
    for note in &report.notes {
        writeln!(output, "{}: {}", note.about, note.text)?;
    }
    if !report.notes.is_empty() {
        writeln!(output)?;
    }
    for (_, suite) in report.ordered() {
        writeln!(output, "{}", format_suite(suite))?;
    }
    if let Some(bars) = format_bars(&report.bars) {
        write!(output, "{bars}")?;
    }
    let controls = null_control::format_differing_controls(report);
    if !controls.is_empty() {
        writeln!(output, "\nControls that differ, so that no figure beside them decides anything")?;
    }
    for line in controls {
        writeln!(output, "  {line}")?;
    }
    if report.is_partial {
        writeln!(output, "\nIt ended before everything was measured.")?;
    }
    Ok(())
}

fn format_suite(suite: &SuiteRows) -> String {
    let units = suite.units();
    let words: Vec<String> = units
        .iter()
        .map(|unit| {
            let more = if unit.more_is_better() { ": more is better" } else { "" };
            format!("{}{more}", unit.words())
        })
        .collect();
    let (title, words) = (&suite.title, words.join(", "));
    let head = [words.as_str(), &suite.repeats].into_iter().filter(|words| !words.is_empty());
    let head: Vec<&str> = head.collect();
    let mut text = format!("{title} ({})\n{}\n\n", head.join("; "), format_method(suite));
    for unit in &units {
        if units.len() > 1 {
            text += &format!("In {}:\n\n", unit.words());
        }
        let rows = suite.measured_in(*unit);
        text +=
            &format_tables_of_columns(&list_cases(&rows), |some| format_table(suite, &rows, some));
        text += &format_tails(&rows);
        text += &format_extra_figures(&rows);
    }
    for row in suite.rows.iter().filter(|row| row.is_control) {
        text += &null_control::format_control_verdict(row)
            .map_or_else(String::new, |words| format!("  {words}\n"));
    }
    text += &format_measuring_cost(suite);
    text += &format_missing_figures(suite);
    text
}

/// Formats the tables of these columns, with as many columns in each table as fit.
fn format_tables_of_columns(columns: &[&str], table: impl Fn(&[&str]) -> String) -> String {
    let (mut text, mut left) = (String::new(), columns);
    while !left.is_empty() {
        let most = left.len().min(COLUMNS_MAX);
        let fits = |text: &str| text.lines().all(|line| line.chars().count() <= LINE_WIDTH_MAX);
        let fitting = (2..=most).rev().find(|&count| fits(&table(&left[..count])));
        let (here, rest) = left.split_at(fitting.unwrap_or(1));
        text += &(table(here) + "\n");
        left = rest;
    }
    text
}

/// Formats the distributions of single events, for rows that have them.
fn format_tails(rows: &[&Row]) -> String {
    let mut table = Table::default();
    let head = ["min", "mean", "deviation", "50 %", "90 %", "99 %", "99.9 %", "max"];
    table.row(["single events"].into_iter().chain(head));
    let mut is_empty = true;
    for row in rows {
        let Some(tail) = row.tail else { continue };
        let figures =
            [tail.mean, tail.deviation, tail.p50, tail.p90, tail.p99, tail.p999, tail.max];
        let cells = figures.map(|one| format_figure(row.unit, one));
        let min = tail
            .min
            .map_or_else(|| NOT_MEASURED_CELL.to_owned(), |one| format_figure(row.unit, one));
        table.row([format!("{}: {}", row.tracer, row.case), min].into_iter().chain(cells));
        is_empty = false;
    }
    if is_empty { String::new() } else { table.text() + "\n" }
}

/// Formats the extra figures.
fn format_extra_figures(rows: &[&Row]) -> String {
    format_tables_of_columns(&SuiteRows::extra_names(rows), |some| {
        let mut table = Table::default();
        table.row(["also"].iter().copied().chain(some.iter().copied()));
        let has_one = |row: &&&Row| some.iter().any(|name| row.extra.contains_key(*name));
        for row in rows.iter().filter(has_one) {
            let cells = some.iter().map(|name| {
                row.extra
                    .get(*name)
                    .map_or_else(|| NOT_MEASURED_CELL.to_owned(), |one| format_number(*one))
            });
            table.row([format!("{}: {}", row.tracer, row.case)].into_iter().chain(cells));
        }
        table.text()
    })
}

/// Formats the cost of measuring that was subtracted from the figures.
fn format_measuring_cost(suite: &SuiteRows) -> String {
    let rows: Vec<&Row> = suite.rows.iter().filter(|row| row.measuring.is_some()).collect();
    let costs: Vec<f64> = rows.iter().filter_map(|row| row.measuring).collect();
    let (Some(first), Some(spread)) = (rows.first(), Spread::of(&costs)) else {
        return String::new();
    };
    let [least, most] = [spread.min, spread.max].map(|cost| format_figure(first.unit, cost));
    let unit = first.unit.words();
    let how_many = costs.len();
    format!("  measuring itself takes {least} to {most} {unit}: taken out of {how_many} rows\n")
}

/// Formats the method of measurement.
pub fn format_method(suite: &SuiteRows) -> String {
    let rounds = match suite.rounds {
        0 => "nothing was measured in a whole round".to_owned(),
        1 => "one round: to see that it works, not for figures".to_owned(),
        rounds => format!("medians of {rounds} rounds ± half of what nine in ten span"),
    };
    let ended = match suite.ended {
        EndReason::Sure => ", which made all ratios sure to 2 %",
        EndReason::Interrupted => ", when it was interrupted",
        EndReason::Rounds | EndReason::Time | EndReason::Nothing => "",
    };
    rounds + ended
}

/// Returns the cases, in the order of the rows.
fn list_cases<'a>(rows: &[&'a Row]) -> Vec<&'a str> {
    let mut cases: Vec<&str> = Vec::new();
    for row in rows {
        if !cases.contains(&row.case.as_str()) {
            cases.push(&row.case);
        }
    }
    cases
}

/// Returns the tracers that have a figure in one of these cases.
fn list_tracers<'a>(rows: &[&'a Row], cases: &[&str]) -> Vec<&'a str> {
    let mut tracers: Vec<&str> = Vec::new();
    for row in rows {
        let is_in = cases.contains(&row.case.as_str());
        if is_in && !row.is_control && !tracers.contains(&row.tracer.as_str()) {
            tracers.push(&row.tracer);
        }
    }
    tracers
}

fn format_table(suite: &SuiteRows, rows: &[&Row], cases: &[&str]) -> String {
    let mut table = Table::default();
    table.row([""].iter().copied().chain(cases.iter().copied()));
    for tracer in list_tracers(rows, cases) {
        let cells = cases.iter().map(|case| {
            let row = rows.iter().find(|row| row.tracer == tracer && row.case == *case);
            row.map_or_else(|| NOT_MEASURED_CELL.to_owned(), |row| format_cell(suite, row))
        });
        table.row([tracer.to_owned()].into_iter().chain(cells));
    }
    table.text()
}

/// Formats a row's figure, and its ratio to the baseline.
fn format_cell(suite: &SuiteRows, row: &Row) -> String {
    let Some(spread) = row.spread else { return NOT_MEASURED_CELL.to_owned() };
    let mut text = format_figure(row.unit, spread.median);
    if spread.count > 1 {
        text += &format!(" ±{}", format_figure(row.unit, (spread.p95 - spread.p5) / 2.0));
    }
    let other = row.baseline.and_then(|other| suite.rows.get(other));
    match (row.times, other) {
        (Some(times), Some(_)) => text + " " + &format_ratio_with_interval(&times),
        _ => text,
    }
}

/// Formats the reasons for missing figures, once for each tracer and reason.
fn format_missing_figures(suite: &SuiteRows) -> String {
    let line = |(row, count): (&Row, usize)| {
        let reason = row.reason.as_deref().unwrap_or_default();
        match (row.status, count) {
            (RowStatus::Absent, 1) => format!("  {}: absent, because {reason}\n", row.tracer),
            (RowStatus::Absent, _) => {
                format!("  {}: absent, because {reason} ({count} rows)\n", row.tracer)
            }
            _ => format!("  {}, {}: {}: {reason}\n", row.tracer, row.case, row.fate()),
        }
    };
    suite.reasons().into_iter().map(line).collect()
}

/// Formats the goals, line by line, under the suites that show them.
fn format_bars(bars: &[Bar]) -> Option<String> {
    /// Least widths of the columns of goals and figures.
    const WIDTHS: (usize, usize) = (62, 20);
    let most = |of: fn(&Bar) -> &str| bars.iter().map(|bar| of(bar).chars().count()).max();
    let (asked, width) = (most(|bar| &bar.what)?.max(WIDTHS.0), most(|bar| &bar.measured)?);
    let width = width.max(WIDTHS.1);
    let mut text = "What Trackway set out to reach\n".to_owned();
    let mut heading = None;
    for bar in bars {
        // A suite that was not measured has no rounds; the goals of such suites name their suite in
        // their text.
        let suite = if bar.rounds > 0 { bar.suite.as_str() } else { "" };
        if heading != Some(suite) {
            text.push('\n');
            text += suite;
            text += if suite.is_empty() { "" } else { "\n" };
            heading = Some(suite);
        }
        let (what, measured, standing) = (&bar.what, &bar.measured, bar.standing());
        let line = format!("  {what:<asked$}  {measured:<width$}  {standing}");
        text += line.trim_end();
        text.push('\n');
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Unit;
    use crate::results::fixtures::{measured_row, report_of_suite};
    use crate::stats::{Ratio, Tail};

    #[test]
    fn reports_have_tables_controls_and_reasons() {
        let times = |median| Ratio { median, interval: Some((median - 0.01, median + 0.01)) };
        let lttng = Row {
            baseline: Some(0),
            times: Some(times(6.0)),
            ..measured_row("lttng-ust", "u32", 126.0)
        };
        let control = Row {
            baseline: Some(0),
            times: Some(times(1.0)),
            is_control: true,
            ..measured_row("trackway again", "u32", 21.0)
        };
        let absent = Row {
            status: RowStatus::Absent,
            reason: Some("perf is not installed".to_owned()),
            spread: None,
            ..measured_row("perf", "u32", 1.0)
        };
        let failed = Row {
            status: RowStatus::Failed,
            reason: Some("its own output shows no event".to_owned()),
            ..absent.clone()
        };
        let reason = Some("too late".to_owned());
        let late = Row { reason, failed_rounds: 1, ..measured_row("trackway", "u32", 21.0) };
        let rows = [late, lttng, control, absent, failed];
        let mut text = Vec::new();
        print_report(&report_of_suite("tracepoint", rows), &mut text).expect("a string takes all");
        let text = String::from_utf8(text).expect("UTF-8");
        let expected = "\
What an event costs (ns/event; survey, Tables IV and VI)
medians of 3 rounds ± half of what nine in ten span

                          u32
  trackway         21.0 ±0.45
  lttng-ust  126.0 ±0.45 ×6.00 (5.99–6.01)

  the same twice (trackway again): ×1.000 (0.990–1.010), nil: all of it within 3 %
  trackway, u32: measured, but for a round that failed: too late
  perf: absent, because perf is not installed
  perf, u32: FAILED: its own output shows no event
";
        let from = text.find("What an event").expect("a heading");
        assert_eq!(text[from..].trim_end().replace(' ', ""), expected.trim_end().replace(' ', ""));
    }

    #[test]
    fn tables_are_as_wide_as_a_terminal_and_leave_no_case_out() {
        let times = Some(Ratio { median: 6.5, interval: Some((6.25, 6.75)) });
        let case = |at: usize| format!("case {at}, as long as some are");
        let rows = (0..7).flat_map(|at| {
            let theirs =
                Row { baseline: Some(0), times, ..measured_row("lttng-ust", &case(at), 126.0) };
            [measured_row("trackway", &case(at), 21.0), theirs]
        });
        let text = format_suite(&crate::results::fixtures::suite_of_rows(rows));
        assert!(text.lines().all(|line| line.chars().count() <= LINE_WIDTH_MAX), "{text}");
        assert_eq!(text.matches("×6.50 (6.25–6.75)").count(), 7);
        assert!((0..7).all(|at| text.matches(&case(at)).count() == 1), "{text}");
        // Columns that do not fit get a table of their own.
        let wide = "a case ".repeat(20);
        let alone = format_tables_of_columns(&[&wide, "b", "c"], |some| some.join(" "));
        assert_eq!(alone, format!("{wide}\nb c\n"));
    }

    #[test]
    fn units_are_apart_and_tails_and_extras_have_tables() {
        let tail = Tail::of(&[(20.0, 990), (900.0, 10)]);
        let extra = [("bytes/event".to_owned(), 12.5), ("threads".to_owned(), 2.0)].into();
        let ours =
            Row { tail, extra, measuring: Some(7.0), ..measured_row("trackway", "u32", 20.0) };
        let steps =
            Row { unit: Unit::InstructionsPerEvent, ..measured_row("trackway", "u32", 60.0) };
        let text = format_suite(&crate::results::fixtures::suite_of_rows([ours, steps]));
        let lines: Vec<String> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        for expected in [
            "What an event costs (ns/event, instructions/event; survey, Tables IV and VI)",
            "In ns/event:",
            "trackway 20.0 ±0.45",
            "single events min mean deviation 50 % 90 % 99 % 99.9 % max",
            "trackway: u32 20.0 28.8 87.6 20.0 20.0 20.0 900.0 900.0",
            "also bytes/event threads",
            "trackway: u32 12.5 2",
            "In instructions/event:",
            "trackway 60.0 ±0.45",
            "measuring itself takes 7.0 to 7.0 ns/event: taken out of 1 rows",
        ] {
            assert!(lines.iter().any(|line| line == expected), "{expected}: {lines:#?}");
        }
    }
}
