//! Helpers that record kernel events for the tests.

use std::process::Output;

use trackway_tests::Fixture;

/// Runs `trackway record OPTIONS -o trace -- COMMAND`.
pub(crate) fn run_record(fixture: &Fixture, options: &[&str], command: &[&str]) -> Output {
    run_record_into(fixture, "trace", options, command)
}

/// Runs `trackway record OPTIONS -o TRACE -- COMMAND`.
pub(crate) fn run_record_into(
    fixture: &Fixture,
    trace: &str,
    options: &[&str],
    command: &[&str],
) -> Output {
    let mut record = fixture.trackway(&["record", "-o", trace]);
    record.args(options).arg("--").args(command).output().expect("trackway runs")
}
