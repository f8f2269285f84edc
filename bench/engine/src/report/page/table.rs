//! Tables of all rows of one unit, with all of their figures; empty columns are left out. Tables
//! that repeat a plot are folded, and not printed.

use std::fmt::Write as _;

use super::plot::escape_html;
use super::words;
use crate::figures::{format_figure, format_number, format_ratio_with_interval};
use crate::results::{Row, SuiteRows};
use crate::stats::{Spread, Tail};

/// A column: its heading, and a function that returns its text for a row.
type Column<'a> = (String, Box<dyn Fn(&Row) -> Option<String> + 'a>);

/// Formats the tables of measured rows, one for each case; empty if there are no rows.
pub(super) fn format_tables(suite: &SuiteRows, rows: &[&Row]) -> String {
    let Some(unit) = rows.first().map(|row| row.unit.words()) else { return String::new() };
    let mut also = account_columns();
    for name in SuiteRows::extra_names(rows) {
        let of = |row: &Row| row.extra.get(name).map(|one| format_number(*one));
        also.push(build_column(&escape_html(name), of));
    }
    let single = format_table(rows, tail_columns());
    let mut html = String::new();
    if !single.is_empty() {
        html += &format!("<h4>Single events, in {unit}; none is left out</h4>\n{single}");
    }
    html +=
        &format_folded(&format!("All rows, in {unit}"), &format_table(rows, figure_columns(suite)));
    html + &format_folded("What else is known", &format_table(rows, also))
}

/// Folds HTML under a line with the title, which unfolds it.
pub(super) fn format_folded(title: &str, html: &str) -> String {
    if html.is_empty() {
        return String::new();
    }
    format!("<details><summary>{title}</summary>\n{html}</details>\n")
}

/// Formats a table of the rows that have text in one of these columns.
fn format_table(rows: &[&Row], mut columns: Vec<Column<'_>>) -> String {
    columns.retain(|column| rows.iter().any(|row| column.1(row).is_some()));
    let has_one = |row: &&&Row| columns.iter().any(|column| column.1(row).is_some());
    let rows: Vec<&Row> = rows.iter().filter(has_one).copied().collect();
    if columns.is_empty() {
        return String::new();
    }
    let mut html = "<div class=\"wide\"><table>\n<thead><tr><th>".to_owned();
    for (head, _) in &columns {
        let _ = write!(html, "<th>{head}");
    }
    html += "\n<tbody>\n";
    let mut cases: Vec<&str> = Vec::new();
    for row in &rows {
        if !cases.contains(&row.case.as_str()) {
            cases.push(&row.case);
        }
    }
    for case in cases {
        let (wide, words) = (columns.len() + 1, escape_html(&words::case_heading(case)));
        let _ = writeln!(html, "<tr class=\"case\"><th colspan=\"{wide}\">{words}");
        for row in rows.iter().filter(|row| row.case == case) {
            let [tracer, command] = [&row.tracer, &row.command].map(|words| escape_html(words));
            let _ = write!(html, "<tr><td title=\"{command}\">{tracer}");
            for (_, cell) in &columns {
                let _ = write!(html, "<td class=\"figure\">{}", cell(row).unwrap_or_default());
            }
            html.push('\n');
        }
    }
    html + "</table></div>\n"
}

/// Returns the columns of the rounds' figures.
fn figure_columns(suite: &SuiteRows) -> Vec<Column<'_>> {
    let spread = |of: fn(&Spread) -> f64| {
        move |row: &Row| row.spread.map(|spread| format_figure(row.unit, of(&spread)))
    };
    // A row with one round has no span.
    let of_several = |of: fn(&Spread) -> f64| {
        move |row: &Row| {
            row.spread.filter(|one| one.count > 1).map(|one| format_figure(row.unit, of(&one)))
        }
    };
    let other = |row: &Row| {
        let other = row.baseline.and_then(|other| suite.rows.get(other))?;
        Some(if other.case == row.case {
            escape_html(&other.tracer)
        } else {
            format!("{}, {}", escape_html(&other.tracer), escape_html(&other.case))
        })
    };
    vec![
        build_column("median", spread(|one| one.median)),
        build_column("5 %", of_several(|one| one.p5)),
        build_column("95 %", of_several(|one| one.p95)),
        build_column("least", of_several(|one| one.min)),
        build_column("most", of_several(|one| one.max)),
        build_column("times (95 % sure)", |row: &Row| {
            row.times.map(|times| format_ratio_with_interval(&times))
        }),
        build_column("beyond", |row: &Row| {
            row.added.map(|added| format_figure(row.unit, added.median))
        }),
        build_column("in terms of", other),
    ]
}

/// Returns the columns of the distribution of single events.
fn tail_columns() -> Vec<Column<'static>> {
    let tail = |of: fn(&Tail) -> f64| {
        move |row: &Row| row.tail.map(|tail| format_figure(row.unit, of(&tail)))
    };
    vec![
        build_column("events", |row: &Row| row.tail.map(|tail| format_number(tail.count as f64))),
        build_column("min", |row: &Row| row.tail?.min.map(|min| format_figure(row.unit, min))),
        build_column("mean", tail(|one| one.mean)),
        build_column("deviation", tail(|one| one.deviation)),
        build_column("50 %", tail(|one| one.p50)),
        build_column("90 %", tail(|one| one.p90)),
        build_column("99 %", tail(|one| one.p99)),
        build_column("99.9 %", tail(|one| one.p999)),
        build_column("max", tail(|one| one.max)),
        build_column("measuring (taken out)", |row: &Row| {
            row.tail.and(row.measuring).map(|cost| format_figure(row.unit, cost))
        }),
    ]
}

/// Returns the columns of event accounts.
fn account_columns() -> Vec<Column<'static>> {
    let counted = |of: fn(&Row) -> Option<u64>| {
        move |row: &Row| of(row).map(|count| format_number(count as f64))
    };
    vec![
        build_column("emitted", counted(|row| row.emitted)),
        build_column("recorded", counted(|row| row.recorded)),
        build_column("lost", counted(|row| row.lost)),
        build_column("overwritten", counted(|row| row.overwritten)),
        build_column("bytes/event", |row: &Row| row.bytes_per_event.map(format_number)),
        build_column("measuring (taken out)", |row: &Row| {
            row.measuring.filter(|_| row.tail.is_none()).map(|cost| format_figure(row.unit, cost))
        }),
    ]
}

/// Makes a column with the heading `head`.
fn build_column<'a>(head: &str, cell: impl Fn(&Row) -> Option<String> + 'a) -> Column<'a> {
    (head.to_owned(), Box::new(cell))
}
