//! `trackway bench`: misspelt names, the results of an interrupted run, the page of a report, and
//! the comparison of two runs. No time is asserted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use trackway_tests::{Fixture, has, lossy_text, report_skipped};

fn run_bench(fixture: &Fixture, arguments: &[&str]) -> Output {
    let words: Vec<&str> = ["bench"].iter().chain(arguments).copied().collect();
    fixture.trackway(&words).output().expect("it runs")
}

fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("a file")).expect("JSON")
}

/// Runs the shortest suite quickly, in this folder; returns `None` without a compiler.
fn run_startup_suite(fixture: &Fixture, folder: &str) -> Option<PathBuf> {
    if !has("cc") {
        report_skipped("cc is not installed");
        return None;
    }
    let out = fixture.path(folder);
    let shown = out.to_str().expect("a path");
    let wanted = ["startup", "--quick", "--tracers", "trackway-off", "--out", shown];
    let output = run_bench(fixture, &wanted);
    assert_eq!(output.status.code(), Some(0), "{}", lossy_text(&output.stderr));
    Some(out.join("results.json"))
}

#[test]
fn misspelt_names_are_refused_before_measuring() {
    let fixture = Fixture::new("bench-misspelt");
    for (arguments, expected) in [
        (&["tracepiont"][..], "a similar value exists: 'tracepoint'"),
        (&["startup", "--tracers", "pref"], "pref: no tracer has such a name; do you mean perf?"),
        (&["startup", "--tracers", "lttng,"], "an empty name would be all tracers'"),
        (&["compare", "/dev/null", "/dev/null"], "/dev/null: it is not a report of trackway bench"),
        (&["compare", "none.json", "none.json"], "cannot open none.json"),
        (&["page", "/dev/zero"], "/dev/zero: it is too large for a report"),
    ] {
        let output = run_bench(&fixture, arguments);
        let said = lossy_text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
    let list = run_bench(&fixture, &["--list"]);
    assert!(lossy_text(&list.stdout).lines().last().is_some_and(|line| line.starts_with("in all")));
}

#[test]
fn runs_are_kept_drawn_and_compared() {
    let fixture = Fixture::new("bench-compare");
    let Some(results) = run_startup_suite(&fixture, "one") else { return };
    let first = read_json(&results);
    assert!(first["settings"]["seed"].is_u64() && first["is_partial"] == false, "{first}");
    let shown = results.to_str().expect("a path");
    let page =
        run_bench(&fixture, &["page", shown, "--out", fixture.path("two").to_str().expect("it")]);
    assert_eq!(page.status.code(), Some(0), "{}", lossy_text(&page.stderr));
    let page = fs::read_to_string(fixture.path("two").join("report.html")).expect("a page");
    assert!(page.contains("<section id=\"startup\">") && page.contains("<svg"));

    let alone = run_bench(&fixture, &["compare", shown, shown, "--fail-on", "slower"]);
    assert_eq!(alone.status.code(), Some(0), "{}", lossy_text(&alone.stderr));
    let said = lossy_text(&alone.stdout);
    assert!(said.contains("too few rounds"), "{said}");
    assert!(said.contains("rows and 1 round nothing can be shown; 6 rounds in each"), "{said}");

    // The same report with twelve rounds, in which Trackway's rows are twice as slow in the second
    // file.
    for (name, ours) in [("before.json", 1.0), ("after.json", 2.0)] {
        let mut report = first.clone();
        for row in report["suites"]["startup"]["rows"].as_array_mut().expect("rows") {
            let is_ours = row["tracer"].as_str().is_some_and(|name| name.starts_with("trackway"));
            let times = if is_ours { ours } else { 1.0 };
            let rounds: Vec<f64> =
                (0..12).map(|round| times * (100.0 + f64::from(round % 4) * 0.1)).collect();
            row["samples"] = json!(rounds);
        }
        fs::write(fixture.path(name), report.to_string()).expect("a file");
    }
    let (before, after) = (fixture.path("before.json"), fixture.path("after.json"));
    let (before, after) = (before.to_str().expect("a path"), after.to_str().expect("a path"));
    let worse = run_bench(&fixture, &["compare", before, after, "--fail-on", "slower"]);
    assert_eq!(worse.status.code(), Some(1), "{}", lossy_text(&worse.stderr));
    let said = lossy_text(&worse.stdout);
    assert!(said.contains("slower") && said.contains("trackway-off"), "{said}");
    let better = run_bench(&fixture, &["compare", after, before, "--fail-on", "slower", "--json"]);
    assert_eq!(better.status.code(), Some(0), "{}", lossy_text(&better.stderr));
    let found: Value = serde_json::from_slice(&better.stdout).expect("JSON");
    let rows = found["rows"].as_array().expect("rows");
    let ours = rows.iter().find(|row| row["tracer"] == "trackway-off").expect("our row");
    assert_eq!((&ours["verdict"], &ours["yardstick"]), (&json!("better"), &json!("empty-loop")));
}

#[test]
fn the_command_of_a_figure_repeats_it() {
    if !has("cc") {
        report_skipped("cc is not installed");
        return;
    }
    let fixture = Fixture::new("bench-command");
    let suite = |arguments: &[&str], folder: &str| {
        let out = fixture.path(folder);
        let out = out.to_str().expect("a path");
        let output = run_bench(&fixture, &[arguments, &["--out", out]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", lossy_text(&output.stderr));
        // The expected duration is also printed without a terminal.
        let said = lossy_text(&output.stderr);
        assert!(
            said.starts_with("at most about ") && said.contains(" s, with results in "),
            "{said}"
        );
        read_json(&fixture.path(folder).join("results.json"))
    };
    let wanted =
        ["startup", "--quick", "--rounds", "2", "--tracers", "trackway-off", "--seed", "7"];
    let first = suite(&wanted, "one");
    let command = first["suites"]["startup"]["command"].as_str().expect("a command").to_owned();
    let page = fs::read_to_string(fixture.path("one").join("report.html")).expect("a page");
    assert!(page.contains(&format!("<figcaption>Again: <code>{command}</code>")), "{command}");
    let words: Vec<&str> = command.split(' ').collect();
    let (program, words) = words.split_at(2);
    assert_eq!(program, ["trackway", "bench"]);
    let again = suite(words, "again");
    assert_eq!(again["settings"], first["settings"]);
    let [first, again] = [&first, &again].map(|report| &report["suites"]["startup"]);
    assert_eq!((&again["command"], &again["rounds"]), (&first["command"], &json!(2)));
    let rows = |suite: &Value| -> Vec<Value> {
        let rows = suite["rows"].as_array().expect("rows").iter();
        rows.map(|row| json!([row["tracer"], row["case"], row["status"]])).collect()
    };
    assert_eq!(rows(again), rows(first));
}

#[test]
fn payloads_are_accounted_for_and_their_bytes_told() {
    let fixture = Fixture::new("bench-payload");
    if !has("cc") {
        report_skipped("cc is not installed");
        return;
    }
    let out = fixture.path("out");
    let shown = out.to_str().expect("a path");
    let wanted = ["payload", "--quick", "--tracers", "trackway", "--out", shown];
    let output = run_bench(&fixture, &wanted);
    assert_eq!(output.status.code(), Some(0), "{}", lossy_text(&output.stderr));
    let report = read_json(&out.join("results.json"));
    let rows = report["suites"]["payload"]["rows"].as_array().expect("rows");
    let bytes = |case: &str| {
        let row = rows.iter().find(|row| row["case"] == case && row["tracer"] == "trackway");
        row.expect("a row")["extra"]["bytes of an event"].as_f64().expect("bytes")
    };
    // An extended header, which few records have, is not part of the comparison.
    let is_about = |bytes: f64, expected: f64| (bytes - expected).abs() < 0.5;
    assert!(is_about(bytes("u32"), 8.0) && is_about(bytes("u32 + vtid"), 12.0));
    let (long, short) = (bytes("sequence of 1024 bytes, u32"), bytes("sequence of 64 bytes, u32"));
    assert!(is_about(long - short, 960.0), "{long} {short}");
    for row in rows {
        let count = |what: &str| row[what].as_u64().expect("a count");
        assert_eq!(row["status"], "measured", "{row}");
        assert!(count("recorded") > 0 && count("emitted") > 0);
        let found = count("recorded") + count("lost") + count("overwritten");
        assert_eq!(found, count("emitted"), "{row}");
    }
}

#[test]
fn an_interrupted_run_keeps_what_was_measured_and_leaves_nothing() {
    if !has("cc") {
        report_skipped("cc is not installed");
        return;
    }
    let fixture = Fixture::new("bench-interrupted");
    let out = fixture.path("out");
    let temp = fixture.path("tmp");
    fs::create_dir_all(&temp).expect("a folder");
    let mut command = fixture.trackway(&["bench", "startup", "--rounds", "1000", "--tracers"]);
    let command = command.arg("trackway-off").arg("--out").arg(&out).env("TMPDIR", &temp);
    let mut child = command.spawn().expect("it runs");
    let begin = Instant::now();
    // The results are written after each round.
    while !out.join("results.json").exists() && begin.elapsed() < Duration::from_secs(120) {
        assert!(child.try_wait().expect("ours").is_none(), "it has ended by itself");
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = child.id().to_string();
    let told = Command::new("kill").args(["-INT", &pid]).status().expect("kill runs");
    assert!(told.success());
    let status = child.wait().expect("ours");
    assert_eq!(status.code(), Some(130));
    let report = read_json(&out.join("results.json"));
    assert_eq!(
        (&report["is_partial"], &report["suites"]["startup"]["ended"]),
        (&json!(true), &json!("interrupted"))
    );
    let rows = report["suites"]["startup"]["rows"].as_array().expect("rows");
    assert!(rows.iter().any(|row| row["status"] == "measured"), "{report}");
    assert!(out.join("report.html").exists());
    assert_eq!(fs::read_dir(&temp).expect("a folder").count(), 0);
}

#[test]
fn disturbances_are_reported_with_remedies() {
    let fixture = Fixture::new("bench-doctor");
    let output = run_bench(&fixture, &["doctor", "--json"]);
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let disturbing = found["disturbing"].as_u64().expect("a number");
    assert_eq!(output.status.code(), Some(i32::from(disturbing > 0)), "{found}");
    let checks = found["checks"].as_array().expect("checks");
    let disturbs = |check: &&Value| check["result"] == "disturbs";
    assert_eq!(checks.iter().filter(disturbs).count() as u64, disturbing);
    for check in checks.iter().filter(disturbs) {
        assert!(check["why"].is_string() && check["hint"].is_string(), "{check}");
    }
    for name in ["others", "stolen time", "clock", "noise", "tracefs", "programs", "permissions"] {
        assert!(checks.iter().any(|check| check["name"] == name), "{name}: {found}");
    }
}
