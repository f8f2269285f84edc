//! Suites of `trackway bench` whose rows are filters, shared data and readers, as a user runs them:
//! measured rows, absent rows with their reasons, and accounts. No figure is asserted.

use std::fs;

use serde_json::Value;
use trackway_tests::bench::{rows_of_suite, run_suite};
use trackway_tests::{Fixture, has, report_skipped};

/// Runs a suite quickly with these tracers, without a failure; returns its rows.
fn measure_rows(fixture: &Fixture, suite: &str, tracers: &str) -> Vec<Value> {
    let (code, said, results) = run_suite(fixture, suite, tracers, |command| {
        command.env("TMPDIR", fixture.path(""));
    });
    assert_eq!((code, &results["is_partial"]), (Some(0), &Value::Bool(false)), "{said}");
    let left = fs::read_dir(fixture.path("")).expect("its folder").flatten();
    let is_left = |name: &str| name.starts_with("trackway-lab");
    let left: Vec<_> = left.filter(|entry| is_left(&entry.file_name().to_string_lossy())).collect();
    assert!(left.is_empty(), "{left:?}");
    rows_of_suite(&results, suite)
}

fn member_equals(row: &Value, member: &str, what: &str) -> bool {
    row[member].as_str().expect("text") == what
}

/// Returns the measured rows of a tracer.
fn measured_rows_of<'a>(rows: &'a [Value], tracer: &str) -> Vec<&'a Value> {
    let is_one = |row: &&Value| {
        member_equals(row, "tracer", tracer) && member_equals(row, "status", "measured")
    };
    rows.iter().filter(is_one).collect()
}

/// BENCH filters: Trackway's, and another project's interpreter. EXPECT every chain of each,
/// relative to C if there is a compiler, and all events of the traced programs accounted for: a
/// filter drops all events except one.
#[test]
fn filters_are_measured_alone_and_in_programs_whose_events_add_up() {
    let fixture = Fixture::new("bench-filter");
    let rows = measure_rows(&fixture, "filter", "trackway,rbpf-interpreted");
    // Chains of integers and of strings: 2 chains of one predicate, 5 chains of 9 and 5 of 50.
    let chains = 2 + 5 + 5;
    let has_code = cfg!(target_arch = "x86_64");
    let expected = [
        ("trackway-interpreted", 2 * chains),
        // Two more rows measure the time from text to answer.
        ("trackway-compiled", if has_code { 2 * chains + 2 } else { 0 }),
        ("trackway-compiled again", usize::from(has_code)),
        ("rbpf-interpreted", chains),
    ];
    for (tracer, count) in expected {
        assert_eq!(measured_rows_of(&rows, tracer).len(), count, "{tracer}");
    }
    let in_c = measured_rows_of(&rows, "c");
    assert_eq!(in_c.len(), if has("clang") || has("cc") { 2 * chains } else { 0 });
    for row in measured_rows_of(&rows, "trackway-interpreted") {
        assert_eq!(row["times"].is_object(), !in_c.is_empty(), "{row}");
    }
    let traced = measured_rows_of(&rows, "trackway");
    let is_absent = |row: &&Value| {
        member_equals(row, "tracer", "trackway") && member_equals(row, "status", "absent")
    };
    match rows.iter().find(is_absent) {
        Some(row) => report_skipped(format!("of traced programs: {}", row["reason"])),
        None => assert_eq!(traced.len(), 2 * 7),
    }
    for row in traced {
        let count = |member: &str| row[member].as_u64();
        let [emitted, recorded] = ["emitted", "recorded"].map(count);
        let case = row["case"].as_str().expect("text");
        if case.contains("dropped by the last, 0 ") {
            assert_eq!(emitted, None, "nobody records: {row}");
        } else if case.contains("dropped") {
            assert!(emitted > Some(1) && recorded == Some(1), "all but the first: {row}");
        } else {
            let all = recorded.expect("recorded") + count("lost").expect("lost");
            assert_eq!(Some(all + count("overwritten").expect("overwritten")), emitted, "{row}");
        }
        assert!(row["times"].is_object() || row["x"] == 0.0, "beside what has no filter: {row}");
    }
}

/// BENCH data shared with the kernel. EXPECT the row of memory, and for each method either an
/// interval of times or the reason for its absence.
#[test]
fn shared_data_is_read_and_updated_by_every_way_that_there_is() {
    let fixture = Fixture::new("bench-sharing");
    let rows = measure_rows(&fixture, "sharing", "");
    assert_eq!(measured_rows_of(&rows, "memory").len(), 2);
    let ways = ["mmap", "trackway-recorder", "bpf-program", "bpf-batch", "bpf-syscall"];
    for way in ways {
        let of_it: Vec<&Value> =
            rows.iter().filter(|row| member_equals(row, "tracer", way)).collect();
        assert_eq!(of_it.len(), if way == "trackway-recorder" { 1 } else { 2 });
        for row in of_it {
            let is_absent = member_equals(row, "status", "absent") && row["reason"].is_string();
            let is_told = row["times"].is_object() && row["tail"]["count"].as_u64() > Some(0);
            assert!(is_absent || is_told, "{row}");
        }
    }
}

/// BENCH Trackway's reader. EXPECT all works on all traces that can be made on this machine,
/// relative to babeltrace2 if it is installed.
#[test]
fn our_reader_is_measured_beside_the_other_one() {
    let fixture = Fixture::new("bench-reading");
    let rows = measure_rows(&fixture, "reading", "trackway");
    let ours = measured_rows_of(&rows, "trackway");
    let cases: Vec<&str> = ours.iter().map(|row| row["case"].as_str().expect("text")).collect();
    for kind in ["Trackway's, u32", "Trackway's, strings"] {
        for work in ["text", "decode only", "count", "first line"] {
            let case = format!("{kind}: {work}");
            assert!(cases.contains(&case.as_str()), "{case}: {cases:?}");
        }
    }
    let theirs = measured_rows_of(&rows, "babeltrace2");
    // Each kind of trace has three works, and first lines of two sizes; the large trace of numbers
    // is also decoded. Trackway also prints and decodes all large traces.
    let kinds = cases.len() / 7;
    assert_eq!(theirs.len(), if has("babeltrace2") { 5 * kinds + 1 } else { 0 });
    for row in ours {
        let is_larger = row["case"].as_str().expect("text").ends_with(", large trace");
        assert!(row["times"].is_object() || theirs.is_empty(), "{row}");
        assert!(!is_larger || row["tracer"] == "trackway", "{row}");
    }
}
