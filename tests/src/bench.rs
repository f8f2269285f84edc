//! Suites of `trackway bench` in tests: one run of a suite, and its results by row.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::{Fixture, has, report_skipped};

/// Runs a suite once, with these tracers or with all; the test may change the command. Returns its
/// exit status, its messages, and its results.
pub fn run_suite(
    fixture: &Fixture,
    suite: &str,
    tracers: &str,
    change: impl FnOnce(&mut Command),
) -> (Option<i32>, String, Value) {
    let out = fixture.path(&format!("results-{suite}"));
    let mut command = fixture.trackway(&["bench", suite, "--quick", "--out"]);
    command.arg(&out);
    if !tracers.is_empty() {
        command.args(["--tracers", tracers]);
    }
    change(&mut command);
    let Output { status, stdout, stderr } = command.output().expect("trackway runs");
    let said = [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    let json = fs::read_to_string(out.join("results.json"));
    let json = json.unwrap_or_else(|error| panic!("{status}: {error}: {said}"));
    assert!(out.join("report.html").is_file());
    (status.code(), said, serde_json::from_str(&json).expect("JSON"))
}

/// Runs a suite once and returns its rows, or `None` like [`run_complete_suite`].
pub fn measure_rows(fixture: &Fixture, suite: &str, tracers: &str) -> Option<Vec<Value>> {
    run_complete_suite(fixture, suite, tracers).map(|report| rows_of_suite(&report, suite))
}

/// Runs a suite once, in which nothing may fail; returns its results, or `None` without a compiler.
pub fn run_complete_suite(fixture: &Fixture, suite: &str, tracers: &str) -> Option<Value> {
    if !has("cc") {
        report_skipped("no C compiler (cc) is installed");
        return None;
    }
    let (code, said, report) = run_suite(fixture, suite, tracers, |_| ());
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(report["is_partial"], false);
    Some(report)
}

/// Returns the rows of a suite in results.
pub fn rows_of_suite(report: &Value, suite: &str) -> Vec<Value> {
    report["suites"][suite]["rows"].as_array().expect("rows").clone()
}

/// Returns the rows of a tracer, at least one.
pub fn rows_of_tracer<'a>(rows: &'a [Value], tracer: &str) -> Vec<&'a Value> {
    let rows: Vec<&Value> = rows.iter().filter(|row| row["tracer"] == tracer).collect();
    assert!(!rows.is_empty(), "no row of {tracer}");
    rows
}

/// Returns the row of a tracer in a case.
pub fn row_of_case<'a>(rows: &'a [Value], tracer: &str, case: &str) -> &'a Value {
    let row = rows_of_tracer(rows, tracer).into_iter().find(|row| row["case"] == case);
    row.unwrap_or_else(|| panic!("no row of {tracer}: {case}"))
}

/// Returns a count of a row.
pub fn count_in_row(row: &Value, name: &str) -> u64 {
    row[name].as_u64().unwrap_or_else(|| panic!("no {name}: {row}"))
}

/// Returns true if a row was measured. Panics if the row failed, or is absent without a reason.
pub fn is_measured(row: &Value) -> bool {
    if row["status"] == "absent" {
        assert!(row["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{row}");
        return false;
    }
    assert_eq!(row["status"], "measured", "{row}");
    true
}

/// Asserts that a row was measured, with events, each of which is accounted for.
pub fn assert_events_accounted_for(row: &Value) {
    assert_eq!(row["status"], "measured", "{row}");
    let names = ["emitted", "recorded", "lost", "overwritten"];
    let [emitted, recorded, lost, overwritten] = names.map(|name| count_in_row(row, name));
    assert!(recorded > 0 && recorded + lost + overwritten == emitted, "{row}");
}

/// Returns the number of processes that have this folder for temporary files, and run a program
/// with one of these names, or with any name if the list is empty.
pub fn count_processes(folder: &Path, names: &[&str]) -> usize {
    let wanted = format!("TMPDIR={}", folder.display());
    let is_it = |pid: &Path| {
        let name = fs::read_to_string(pid.join("comm")).unwrap_or_default();
        let environment = fs::read(pid.join("environ")).unwrap_or_default();
        let mut variables = environment.split(|byte| *byte == 0);
        (names.is_empty() || names.contains(&name.trim_end()))
            && variables.any(|variable| variable == wanted.as_bytes())
    };
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    entries.filter(|entry| is_it(&entry.path())).count()
}

/// Writes scripts that replace the programs of their names in PATH.
pub fn write_scripts(folder: &Path, programs: &[(&str, &str)]) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::create_dir(folder).expect("a folder");
    for (name, script) in programs {
        fs::write(folder.join(name), script).expect("a program");
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder.join(name), mode).expect("executable");
    }
}
