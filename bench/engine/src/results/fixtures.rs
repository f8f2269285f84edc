//! Made-up rows, suites and reports, for tests.

use std::collections::BTreeMap;

use super::{EndReason, REPORT_FORMAT, Report, Row, RowStatus, SuiteRows, Unit};
use crate::stats::Spread;

/// Makes a row that was measured in three rounds.
pub fn measured_row(tracer: &str, case: &str, figure: f64) -> Row {
    let samples = [figure - 0.5, figure, figure + 0.5];
    Row {
        tracer: tracer.to_owned(),
        case: case.to_owned(),
        x: None,
        status: RowStatus::Measured,
        reason: None,
        failed_rounds: 0,
        unit: Unit::NsPerEvent,
        emitted: None,
        recorded: None,
        lost: None,
        overwritten: None,
        bytes_per_event: None,
        samples: samples.map(Some).to_vec(),
        spread: Spread::of(&samples),
        histogram: Vec::new(),
        tail: None,
        measuring: None,
        baseline: None,
        times: None,
        added: None,
        extra: BTreeMap::new(),
        extra_samples: BTreeMap::new(),
        is_control: false,
        command: String::new(),
    }
}

/// Makes a row that was measured in eight rounds with equal figures.
pub fn steady_row(tracer: &str, case: &str, figure: f64) -> Row {
    let samples = [figure; 8];
    let (spread, samples) = (Spread::of(&samples), samples.map(Some).to_vec());
    Row { samples, spread, ..measured_row(tracer, case, figure) }
}

/// Adds an extra figure, equal in all rounds.
pub fn with_extra_figure(mut row: Row, what: &str, figure: f64) -> Row {
    let samples = row.samples.iter().map(|sample| sample.map(|_| figure)).collect();
    row.extra.insert(what.to_owned(), figure);
    row.extra_samples.insert(what.to_owned(), samples);
    row
}

/// Makes a suite with these rows.
pub fn suite_of_rows(rows: impl IntoIterator<Item = Row>) -> SuiteRows {
    SuiteRows {
        title: "What an event costs".to_owned(),
        repeats: "survey, Tables IV and VI".to_owned(),
        x_axis: "threads".to_owned(),
        command: "trackway bench tracepoint".to_owned(),
        rounds: 3,
        seconds: 12.0,
        is_partial: false,
        ended: EndReason::Time,
        rows: rows.into_iter().collect(),
    }
}

/// Makes a report with one suite.
pub fn report_of_suite(name: &str, rows: impl IntoIterator<Item = Row>) -> Report {
    let suites = [(name.to_owned(), suite_of_rows(rows))].into_iter().collect();
    Report { format: REPORT_FORMAT, suites, ..Report::default() }
}
