//! What the report looks like, with figures made up.

use super::*;
use crate::results::tests::example;

#[test]
fn the_report_reads_as_intended() {
    let mut results = example();
    results.bars = crate::bars::all(&results);
    let mut output = Vec::new();
    print(&results, &mut output).expect("written");
    let text = String::from_utf8(output).expect("text");
    let (_, text) = text.split_once("not installed\n\n").expect("the notes come first");
    assert!(text == include_str!("expected.txt"), "instead of expected.txt:\n{text}");
}

#[test]
fn figures_with_missing_events_are_marked() {
    let mut results = example();
    let cell = &mut results.cells[2];
    assert_eq!(cost(cell), "21.2 ±0.5");
    cell.account.as_mut().expect("an account").recorded -= 1;
    assert_eq!(cost(cell), "!21.2 ±0.5");
}

#[test]
fn without_figures_there_is_only_the_head() {
    let mut results = example();
    (results.cells, results.startup) = (Vec::new(), Vec::new());
    (results.flows, results.memory, results.notes) = (Vec::new(), Vec::new(), Vec::new());
    let mut output = Vec::new();
    print(&results, &mut output).expect("written");
    assert_eq!(String::from_utf8(output).expect("text").lines().count(), 4);
}
