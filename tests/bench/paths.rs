//! `trackway bench paths`, `cases` and `breakdown`: one run, with the tracers that are always
//! available.

use serde_json::Value;
use trackway_tests::bench::{self, assert_events_accounted_for, count_in_row, row_of_case};
use trackway_tests::{Fixture, report_skipped};

/// Runs a suite once and returns its rows.
fn measure_rows(suite: &str, tracers: &str) -> Option<Vec<Value>> {
    bench::measure_rows(&Fixture::new(&format!("bench-{suite}")), suite, tracers)
}

/// Returns true if a row was measured with all of its events. Panics if an absent row has no
/// reason.
fn is_measured(row: &Value) -> bool {
    let is_measured = bench::is_measured(row);
    if is_measured && row["emitted"].is_u64() {
        assert_events_accounted_for(row);
    }
    is_measured
}

/// RUN the suite of isolated buffers. EXPECT every event of every writer path to be found in its
/// buffer or counted, more instructions for an event that opens a sub-buffer, and an atomic
/// instruction for a claim.
#[test]
fn every_way_is_measured_on_either_path() {
    let Some(rows) = measure_rows("paths", "trackway-claim,trackway-lockless") else { return };
    for row in &rows {
        is_measured(row);
    }
    for tracer in ["trackway-no-protection", "trackway-claim", "trackway-lockless"] {
        for case in ["u32", "32 B, still clock", "fast path, alone", "switch path, alone"] {
            assert!(
                is_measured(row_of_case(&rows, tracer, case)) || case.ends_with("alone"),
                "{case}"
            );
        }
        let sizes = rows.iter().filter(|row| row["tracer"] == tracer && row["x"].is_number());
        assert_eq!(sizes.count(), 6, "{tracer}");
        let [fast, switch] = ["instructions, fast path", "instructions, switch path"]
            .map(|case| row_of_case(&rows, tracer, case));
        if is_measured(fast) && is_measured(switch) {
            let count = |row: &Value| row["samples"][0].as_f64().expect("a count");
            assert!(count(switch) > count(fast), "{fast}, {switch}");
            let atomic = fast["extra"]["atomic instructions"].as_f64().expect("a count");
            assert_eq!(atomic > 0.0, tracer != "trackway-no-protection", "{fast}");
        }
    }
}

/// RUN the thesis's cases. EXPECT every iteration of every case to be in a histogram; in the trace,
/// the events of the active case, the events outside the loop, and no others.
#[test]
fn every_iteration_of_every_case_is_in_a_histogram() {
    let Some(rows) = measure_rows("cases", "trackway,ftrace-uprobe,bpftrace") else { return };
    let cases = ["active", "attached, not hit", "instrumented, off"];
    let bare = row_of_case(&rows, "none", "bare");
    let count = |row: &Value| {
        let histogram = row["histogram"].as_array().expect("a histogram");
        assert!(histogram.len() <= 4096, "{}", histogram.len());
        histogram.iter().map(|bucket| bucket[1].as_u64().expect("a count")).sum::<u64>()
    };
    let all = count(bare);
    assert!(all > 0 && bare["emitted"].is_null(), "{bare}");
    for case in cases {
        let row = row_of_case(&rows, "trackway", case);
        assert!(is_measured(row), "{row}");
        assert_eq!(count(row), all, "{case}");
        // The cost of reading the counter is subtracted; both raw values are stored.
        assert!(row["measuring"].as_f64().is_some_and(|ns| ns > 0.0), "{row}");
        let histogram = row["histogram"].as_array().expect("a histogram");
        assert_eq!(row["tail"]["min"], histogram[0][0], "{case}");
        assert_eq!(row["tail"]["max"], histogram[histogram.len() - 1][0], "{case}");
    }
    let again = rows.iter().find(|row| row["is_control"] == true).expect("a control");
    assert_eq!(rows[again["beside"].as_u64().expect("a row") as usize]["case"], "active");
    // The first burst is emitted, but not timed.
    assert!(count_in_row(row_of_case(&rows, "trackway", "active"), "emitted") > all);
    assert_eq!(count_in_row(row_of_case(&rows, "trackway", "attached, not hit"), "recorded"), 100);
    assert!(row_of_case(&rows, "trackway", "instrumented, off")["emitted"].is_null());
    assert!(is_measured(row_of_case(&rows, "trackway-printf", "active")));
    for tracer in ["ftrace-uprobe", "bpftrace"] {
        let [active, beside, off] = cases.map(|case| row_of_case(&rows, tracer, case));
        // Cases with breakpoints emit a tenth of the events; all hits are in the tracer's own
        // output.
        if is_measured(active) {
            assert_eq!(count(active), all / 10, "{tracer}");
            assert_eq!(
                count_in_row(active, "recorded"),
                count_in_row(active, "emitted"),
                "{active}"
            );
            assert!(count_in_row(active, "emitted") > count(active), "{active}");
        }
        if is_measured(beside) {
            assert_eq!((count(beside), count_in_row(beside, "recorded")), (all, 100), "{beside}");
        }
        if is_measured(off) {
            assert!(count(off) == all && off["emitted"].is_null(), "{off}");
        }
    }
}

/// RUN the suite of an event's parts. EXPECT the parts to add up to the whole event, in time and in
/// instructions; or a reason for their absence.
#[test]
fn the_parts_of_an_event_add_up_to_the_whole() {
    let Some(rows) = measure_rows("breakdown", "trackway") else { return };
    for tracer in ["trackway", "trackway-claim"] {
        let whole = row_of_case(&rows, tracer, "whole event");
        if !is_measured(whole) {
            return report_skipped(whole["reason"].as_str().unwrap_or_default());
        }
        let of_tracer = |row: &&Value| row["tracer"] == tracer && row["case"] != "whole event";
        let parts: Vec<&Value> = rows.iter().filter(of_tracer).collect();
        assert_eq!(parts.len(), 9, "{tracer}");
        let figure = |row: &Value| row["samples"][0].as_f64().expect("a figure");
        let instructions = |row: &Value| row["extra"]["instructions"].as_f64().expect("a count");
        let sum: f64 = parts.iter().map(|part| figure(part)).sum();
        assert!((sum / figure(whole) - 1.0).abs() < 1e-6, "{sum}: {whole}");
        let sum: f64 = parts.iter().map(|part| instructions(part)).sum();
        assert_eq!(sum, instructions(whole), "{tracer}");
        let clock = row_of_case(&rows, tracer, "clock");
        assert!(instructions(clock) > 0.0 && figure(clock) > 0.0, "{clock}");
    }
}
