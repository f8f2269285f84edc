//! All rows of one unit, with what is known of them: columns that no row needs are not there.

use std::fmt::Write as _;

use super::plot::escaped;
use crate::rows::{Row, SuiteRows};
use crate::stats::{Ratio, Spread, Tail};
use crate::text::{figure, number, times};

/// A column: its head, and what a row has there.
type Column<'a> = (String, Box<dyn Fn(&Row) -> Option<String> + 'a>);

/// The table of what was measured; nothing if that is nothing.
pub(super) fn draw(suite: &SuiteRows, rows: &[&Row]) -> String {
    let Some(unit) = rows.first().map(|row| row.unit.words()) else { return String::new() };
    let mut columns = columns(suite);
    for name in SuiteRows::extras(rows) {
        let of = |row: &Row| row.extra.get(name).map(|one| number(*one));
        columns.push((escaped(name), Box::new(of)));
    }
    columns.retain(|column| rows.iter().any(|row| column.1(row).is_some()));
    let mut html = format!(
        "<details open><summary>All rows, in {unit}</summary>\n<div class=\"wide\"><table>\n\
         <thead><tr><th>tracer<th>case"
    );
    for (head, _) in &columns {
        let _ = write!(html, "<th>{head}");
    }
    html += "\n<tbody>\n";
    let mut case = None;
    for row in rows {
        let [tracer, words] = [&row.tracer, &row.case].map(|words| escaped(words));
        // A line where another case begins.
        let class = if case.is_some_and(|case| case != &row.case) { " class=\"next\"" } else { "" };
        case = Some(&row.case);
        let title = escaped(&row.command);
        let _ = write!(html, "<tr{class}><td title=\"{title}\">{tracer}<td>{words}");
        for (_, cell) in &columns {
            let _ = write!(html, "<td class=\"figure\">{}", cell(row).unwrap_or_default());
        }
        html.push('\n');
    }
    html + "</table></div></details>\n"
}

/// All columns that there can be, but those of what else is known.
fn columns(suite: &SuiteRows) -> Vec<Column<'_>> {
    let spread = |of: fn(&Spread) -> f64| {
        move |row: &Row| row.spread.map(|spread| figure(row.unit, of(&spread)))
    };
    // With one round there is nothing that they span.
    let of_several = |of: fn(&Spread) -> f64| {
        move |row: &Row| {
            row.spread.filter(|one| one.count > 1).map(|one| figure(row.unit, of(&one)))
        }
    };
    let tail =
        |of: fn(&Tail) -> f64| move |row: &Row| row.tail.map(|tail| figure(row.unit, of(&tail)));
    let other = |row: &Row| {
        let other = row.beside.and_then(|other| suite.rows.get(other))?;
        Some(if other.case == row.case {
            escaped(&other.tracer)
        } else {
            format!("{}, {}", escaped(&other.tracer), escaped(&other.case))
        })
    };
    let added = |row: &Row| row.added.map(|added| figure(row.unit, added.median));
    let counted =
        |of: fn(&Row) -> Option<u64>| move |row: &Row| of(row).map(|count| number(count as f64));
    vec![
        column("median", spread(|one| one.median)),
        column("5 %", of_several(|one| one.p5)),
        column("95 %", of_several(|one| one.p95)),
        column("least", of_several(|one| one.min)),
        column("most", of_several(|one| one.max)),
        column("in terms of", other),
        column("times (95 % sure)", |row: &Row| row.times.map(|times| ratio(&times))),
        column("beyond it", added),
        column("single events: mean", tail(|one| one.mean)),
        column("deviation", tail(|one| one.deviation)),
        column("50 %", tail(|one| one.p50)),
        column("90 %", tail(|one| one.p90)),
        column("99 %", tail(|one| one.p99)),
        column("99.9 %", tail(|one| one.p999)),
        column("max", tail(|one| one.max)),
        column("measuring (taken out)", |row: &Row| {
            row.measuring.map(|cost| figure(row.unit, cost))
        }),
        column("recorded", counted(|row| row.recorded)),
        column("lost", counted(|row| row.lost)),
        column("overwritten", counted(|row| row.overwritten)),
        column("bytes/event", |row: &Row| row.bytes_per_event.map(number)),
    ]
}

/// A column of this head.
fn column<'a>(head: &str, cell: impl Fn(&Row) -> Option<String> + 'a) -> Column<'a> {
    (head.to_owned(), Box::new(cell))
}

fn ratio(ratio: &Ratio) -> String {
    match ratio.interval {
        Some((low, high)) => {
            format!("{} ({}–{})", times(ratio.median), times(low), times(high))
        }
        None => times(ratio.median),
    }
}
