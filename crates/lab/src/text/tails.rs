//! Of rows whose single events were measured, how those are distributed; and what else rows say.

use std::collections::BTreeSet;

use super::{cell, figure};
use crate::rows::{Row, SuiteRows};
use crate::table::Table;

/// A table for each case that has single events: all of them are in it, whatever they took.
pub(super) fn tails(suite: &SuiteRows) -> String {
    let has_tail = |row: &&Row| row.tail.is_some() && !row.is_control;
    let mut cases: Vec<&str> =
        suite.rows.iter().filter(has_tail).map(|row| row.case.as_str()).collect();
    let mut seen = BTreeSet::new();
    cases.retain(|case| seen.insert(*case));
    let mut text = String::new();
    for case in cases {
        let mut table = Table::default();
        let head = [case, "typical", "average", "deviation", "90 %", "99 %", "99.9 %", "maximum"];
        table.row(head);
        for row in suite.rows.iter().filter(has_tail).filter(|row| row.case == case) {
            let Some(tail) = row.tail else { continue };
            let figures = [tail.mean, tail.deviation, tail.p90, tail.p99, tail.p999, tail.max];
            let cells = figures.map(|one| figure(row.unit, one));
            table.row([row.tracer.clone(), cell(suite, row)].into_iter().chain(cells));
        }
        text += &table.text();
        text.push('\n');
    }
    text
}

/// What else rows say of themselves: a column for each such thing.
pub(super) fn extras(suite: &SuiteRows) -> String {
    let rows = || suite.rows.iter().filter(|row| !row.extra.is_empty() && !row.is_control);
    let what: BTreeSet<&str> =
        rows().flat_map(|row| row.extra.keys().map(String::as_str)).collect();
    if what.is_empty() {
        return String::new();
    }
    let mut table = Table::default();
    table.row([""].into_iter().chain(what.iter().copied()));
    for row in rows() {
        let cells = what.iter().map(|what| {
            row.extra.get(*what).map_or_else(String::new, |extra| format!("{extra:.2}"))
        });
        table.row([format!("{}, {}", row.tracer, row.case)].into_iter().chain(cells));
    }
    table.text() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::tests::{row, suite};
    use crate::stats::Tail;

    #[test]
    fn tails_and_extras_are_told_case_by_case() {
        let mut ours = row("trackway", "u32, single events", 21.0);
        ours.tail = Tail::of(&[(20.0, 899), (30.0, 100), (5000.0, 1)]);
        ours.extra.insert("timing".to_owned(), 22.5);
        let found = suite([ours, row("trackway", "u32", 20.0)]);
        let expected = "\
\x20 u32, single events     typical  average  deviation  90 %  99 %  99.9 %  maximum
  trackway            21.0 ±0.45     26.0      157.4  30.0  30.0    30.0     5000

";
        assert_eq!(tails(&found), expected);
        let expected =
            "                                timing\n  trackway, u32, single events   22.50\n\n";
        assert_eq!(extras(&found), expected);
        assert_eq!(extras(&suite([row("trackway", "u32", 20.0)])), "");
    }
}
