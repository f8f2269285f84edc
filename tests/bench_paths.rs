//! `trackway bench paths`, `cases` and `breakdown`: with what is always there, once.

use std::process::Output;

use serde_json::Value;
use trackway_tests::{World, has, skipped};

/// Runs a suite once, with our own rows: its rows in the results; `None` if it cannot be.
fn rows(suite: &str, tracers: &str) -> Option<Vec<Value>> {
    if !has("cc") {
        skipped("no C compiler (cc) is installed");
        return None;
    }
    let world = World::new(&format!("bench-{suite}"));
    let out = world.path("results");
    let folder = out.to_str().expect("a path");
    let arguments = ["bench", suite, "--quick", "--tracers", tracers, "--out", folder];
    let Output { status, stdout, stderr } =
        world.trackway(&arguments).output().expect("trackway runs");
    let texts = [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(status.success(), "{status}: {texts:?}");
    let json = std::fs::read_to_string(out.join("results.json")).expect("results");
    let mut report: Value = serde_json::from_str(&json).expect("JSON");
    let Value::Array(rows) = report["suites"][suite]["rows"].take() else {
        panic!("no rows: {json}")
    };
    Some(rows)
}

fn of<'a>(rows: &'a [Value], tracer: &str, case: &str) -> &'a Value {
    let is_it = |row: &&Value| row["tracer"] == tracer && row["case"] == case;
    rows.iter().find(is_it).unwrap_or_else(|| panic!("no row of {tracer}: {case}"))
}

fn number(row: &Value, name: &str) -> u64 {
    row[name].as_u64().unwrap_or_else(|| panic!("no {name}: {row}"))
}

/// Whether it was measured, with all of its events; absent must say why.
fn is_measured(row: &Value) -> bool {
    if row["status"] == "absent" {
        assert!(!row["reason"].as_str().unwrap_or_default().is_empty(), "{row}");
        return false;
    }
    assert_eq!(row["status"], "measured", "{row}");
    if row["emitted"].is_u64() {
        let [recorded, lost, overwritten] =
            ["recorded", "lost", "overwritten"].map(|name| number(row, name));
        assert_eq!(recorded + lost + overwritten, number(row, "emitted"), "{row}");
        assert!(recorded > 0, "{row}");
    }
    true
}

/// RUN the suite of the buffers by themselves. EXPECT every event of every way to be found in its
/// buffer or counted, more instructions where a sub-buffer is opened, and an atomic one for a
/// claim.
#[test]
fn every_way_is_measured_on_either_path() {
    let Some(rows) = rows("paths", "trackway-claim,trackway-lockless,lockless") else { return };
    for row in &rows {
        is_measured(row);
    }
    for tracer in ["no-protection", "trackway-claim", "trackway-lockless"] {
        for case in ["u32", "32 B, still clock", "fast path, alone", "switch path, alone"] {
            assert!(is_measured(of(&rows, tracer, case)) || case.ends_with("alone"), "{case}");
        }
        let sizes = rows.iter().filter(|row| row["tracer"] == tracer && row["x"].is_number());
        assert_eq!(sizes.count(), 6, "{tracer}");
        let [fast, switch] = ["instructions, fast path", "instructions, switch path"]
            .map(|case| of(&rows, tracer, case));
        if is_measured(fast) && is_measured(switch) {
            let count = |row: &Value| row["samples"][0].as_f64().expect("a count");
            assert!(count(switch) > count(fast), "{fast}, {switch}");
            let atomic = fast["extra"]["atomic instructions"].as_f64().expect("a count");
            assert_eq!(atomic > 0.0, tracer != "no-protection", "{fast}");
        }
    }
}

/// RUN the thesis's cases. EXPECT every iteration to be in a histogram, whatever it does; the
/// events of the active case in the trace, and those that are beside the loop, and no others.
#[test]
fn every_iteration_of_every_case_is_in_a_histogram() {
    let Some(rows) = rows("cases", "trackway") else { return };
    let cases = ["active", "attached, not hit", "instrumented, off"];
    let bare = of(&rows, "none", "bare");
    let count = |row: &Value| {
        let histogram = row["histogram"].as_array().expect("a histogram");
        assert!(histogram.len() < 600, "{}", histogram.len());
        histogram.iter().map(|bucket| bucket[1].as_u64().expect("a count")).sum::<u64>()
    };
    let all = count(bare);
    assert!(all > 0 && bare["emitted"].is_null(), "{bare}");
    for case in cases {
        let row = of(&rows, "trackway", case);
        assert!(is_measured(row), "{row}");
        assert_eq!(count(row), all, "{case}");
        assert_eq!(row["beside"], 0, "{case}");
    }
    // The first burst is emitted, too, and not timed.
    assert!(number(of(&rows, "trackway", "active"), "emitted") > all);
    assert_eq!(number(of(&rows, "trackway", "attached, not hit"), "recorded"), 100);
    assert!(of(&rows, "trackway", "instrumented, off")["emitted"].is_null());
    assert!(is_measured(of(&rows, "trackway-printf", "active")));
}

/// RUN the suite of an event's parts. EXPECT the parts to add up to the whole, in time and in
/// instructions; or a reason.
#[test]
fn the_parts_of_an_event_add_up_to_the_whole() {
    let Some(rows) = rows("breakdown", "trackway") else { return };
    for tracer in ["trackway", "trackway-claim"] {
        let whole = of(&rows, tracer, "whole event");
        if !is_measured(whole) {
            return skipped(whole["reason"].as_str().unwrap_or_default());
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
        let clock = of(&rows, tracer, "clock");
        assert!(instructions(clock) > 0.0 && figure(clock) > 0.0, "{clock}");
    }
}
