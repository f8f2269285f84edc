//! All rows of one unit, with all of their figures: columns that no row needs are left out. Tables
//! that repeat a plot are folded, and not printed.

use std::fmt::Write as _;

use super::plot::escaped;
use super::words;
use crate::figures::{figure, number, times_between};
use crate::results::{Row, SuiteRows};
use crate::stats::{Spread, Tail};

/// A column: its head, and the text of a row in it.
type Column<'a> = (String, Box<dyn Fn(&Row) -> Option<String> + 'a>);

/// Formats the tables of measured rows, by their cases; empty if there are none.
pub(super) fn draw(suite: &SuiteRows, rows: &[&Row]) -> String {
    let Some(unit) = rows.first().map(|row| row.unit.words()) else { return String::new() };
    let mut also = accounts();
    for name in SuiteRows::extras(rows) {
        let of = |row: &Row| row.extra.get(name).map(|one| number(*one));
        also.push(column(&escaped(name), of));
    }
    let single = table(rows, tails());
    let mut html = String::new();
    if !single.is_empty() {
        html += &format!("<h4>Single events, in {unit}; none is left out</h4>\n{single}");
    }
    html += &folded(&format!("All rows, in {unit}"), &table(rows, figures(suite)));
    html + &folded("What else is known", &table(rows, also))
}

/// Puts a text under a line that unfolds it.
pub(super) fn folded(title: &str, html: &str) -> String {
    if html.is_empty() {
        return String::new();
    }
    format!("<details><summary>{title}</summary>\n{html}</details>\n")
}

/// Formats a table of the rows that have text in one of these columns.
fn table(rows: &[&Row], mut columns: Vec<Column<'_>>) -> String {
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
        let (wide, words) = (columns.len() + 1, escaped(&words::of_case(case)));
        let _ = writeln!(html, "<tr class=\"case\"><th colspan=\"{wide}\">{words}");
        for row in rows.iter().filter(|row| row.case == case) {
            let [tracer, command] = [&row.tracer, &row.command].map(|words| escaped(words));
            let _ = write!(html, "<tr><td title=\"{command}\">{tracer}");
            for (_, cell) in &columns {
                let _ = write!(html, "<td class=\"figure\">{}", cell(row).unwrap_or_default());
            }
            html.push('\n');
        }
    }
    html + "</table></div>\n"
}

/// Columns of the rounds' figures.
fn figures(suite: &SuiteRows) -> Vec<Column<'_>> {
    let spread = |of: fn(&Spread) -> f64| {
        move |row: &Row| row.spread.map(|spread| figure(row.unit, of(&spread)))
    };
    // With one round there is nothing that they span.
    let of_several = |of: fn(&Spread) -> f64| {
        move |row: &Row| {
            row.spread.filter(|one| one.count > 1).map(|one| figure(row.unit, of(&one)))
        }
    };
    let other = |row: &Row| {
        let other = row.baseline.and_then(|other| suite.rows.get(other))?;
        Some(if other.case == row.case {
            escaped(&other.tracer)
        } else {
            format!("{}, {}", escaped(&other.tracer), escaped(&other.case))
        })
    };
    vec![
        column("median", spread(|one| one.median)),
        column("5 %", of_several(|one| one.p5)),
        column("95 %", of_several(|one| one.p95)),
        column("least", of_several(|one| one.min)),
        column("most", of_several(|one| one.max)),
        column("times (95 % sure)", |row: &Row| row.times.map(|times| times_between(&times))),
        column("beyond", |row: &Row| row.added.map(|added| figure(row.unit, added.median))),
        column("in terms of", other),
    ]
}

/// Columns of how single events are distributed.
fn tails() -> Vec<Column<'static>> {
    let tail =
        |of: fn(&Tail) -> f64| move |row: &Row| row.tail.map(|tail| figure(row.unit, of(&tail)));
    vec![
        column("events", |row: &Row| row.tail.map(|tail| number(tail.count as f64))),
        column("min", |row: &Row| row.tail?.min.map(|min| figure(row.unit, min))),
        column("mean", tail(|one| one.mean)),
        column("deviation", tail(|one| one.deviation)),
        column("50 %", tail(|one| one.p50)),
        column("90 %", tail(|one| one.p90)),
        column("99 %", tail(|one| one.p99)),
        column("99.9 %", tail(|one| one.p999)),
        column("max", tail(|one| one.max)),
        column("measuring (taken out)", |row: &Row| {
            row.tail.and(row.measuring).map(|cost| figure(row.unit, cost))
        }),
    ]
}

/// Returns the columns of accounts.
fn accounts() -> Vec<Column<'static>> {
    let counted =
        |of: fn(&Row) -> Option<u64>| move |row: &Row| of(row).map(|count| number(count as f64));
    vec![
        column("emitted", counted(|row| row.emitted)),
        column("recorded", counted(|row| row.recorded)),
        column("lost", counted(|row| row.lost)),
        column("overwritten", counted(|row| row.overwritten)),
        column("bytes/event", |row: &Row| row.bytes_per_event.map(number)),
        column("measuring (taken out)", |row: &Row| {
            row.measuring.filter(|_| row.tail.is_none()).map(|cost| figure(row.unit, cost))
        }),
    ]
}

/// Makes a column with this head.
fn column<'a>(head: &str, cell: impl Fn(&Row) -> Option<String> + 'a) -> Column<'a> {
    (head.to_owned(), Box::new(cell))
}
