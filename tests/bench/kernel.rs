//! `trackway bench syscall`, `scaling`, `workload` and `latency`: the cost of tracing the kernel
//! and whole programs. The tests check that rows have their accounts and figures; people judge the
//! figures.

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;
use trackway_tests::bench::{
    self, assert_events_accounted_for, count_in_row, count_processes, is_measured,
};
use trackway_tests::steps::{send_signal, wait_for};
use trackway_tests::{Fixture, has, is_root, report_skipped};

/// Returns the measured rows of a tracer; its other rows must be absent, with a reason.
fn measured_rows_of<'a>(rows: &'a [Value], tracer: &str) -> Vec<&'a Value> {
    bench::rows_of_tracer(rows, tracer).into_iter().filter(|row| is_measured(row)).collect()
}

/// RUN the suite. EXPECT rows for each length of names, single calls, and all events of all calls;
/// tracers that are not installed are absent.
#[test]
fn each_call_has_its_two_events() {
    let fixture = Fixture::new("bench-syscall");
    let tracers = "trackway-tree,ftrace,strace";
    let Some(report) = bench::run_complete_suite(&fixture, "syscall", tracers) else { return };
    let rows = bench::rows_of_suite(&report, "syscall");
    assert_eq!(measured_rows_of(&rows, "untraced").len(), 7);
    assert_eq!(measured_rows_of(&rows, "untraced again").len(), 1);
    for tracer in ["trackway-tree", "ftrace", "strace"] {
        let mine = measured_rows_of(&rows, tracer);
        for row in &mine {
            assert_events_accounted_for(row);
            // A row of recorders at work has no baseline row.
            assert!(row["unit"] == "events/s" || row["added"]["median"].is_f64(), "{row}");
        }
        let mut lengths: Vec<u64> =
            mine.iter().filter_map(|row| row["x"].as_f64()).map(|bytes| bytes as u64).collect();
        lengths.sort_unstable();
        assert!(mine.is_empty() || lengths == [0, 15, 31, 63, 127, 255], "{tracer}: {lengths:?}");
        for row in mine.iter().filter(|row| row["case"] == "getppid") {
            // The row has 150 batches of calls, and single calls, with two events each.
            let singles = count_in_row(&row["tail"], "count");
            assert!(singles > 0 && count_in_row(row, "emitted") > 2 * singles, "{row}");
            if tracer == "trackway-tree" {
                assert!(row["extra"]["added, in terms of what ftrace adds"].is_f64(), "{row}");
                assert!(row["extra"]["bytes of an event in LTTng's layout"].is_f64(), "{row}");
            }
        }
    }
    let bars: Vec<&str> = report["bars"]
        .as_array()
        .expect("bars")
        .iter()
        .filter_map(|bar| bar["what"].as_str())
        .collect();
    assert!(bars.iter().any(|bar| bar.starts_with("getppid, one process tree")), "{bars:?}");
}

/// RUN the suite. EXPECT up to one thread for each CPU, with all events of all of the threads'
/// calls, for each of ftrace's clocks; and the rows of user events in the same table.
#[test]
fn calls_of_each_thread_have_their_events_by_every_clock() {
    let fixture = Fixture::new("bench-scaling");
    let tracers = "rdtsc,trackway-tracefs,ftrace";
    let Some(rows) = bench::measure_rows(&fixture, "scaling", tracers) else { return };
    let threads = |row: &Value| row["x"].as_f64().expect("threads") as u64;
    let counts = |rows: &[&Value]| rows.iter().map(|row| threads(row)).collect::<Vec<u64>>();
    let cpus = std::thread::available_parallelism().expect("CPUs").get() as u64;
    let doubled = |most| -> Vec<u64> {
        std::iter::successors(Some(1), |one| Some(one * 2)).take_while(|one| *one <= most).collect()
    };
    assert_eq!(counts(&measured_rows_of(&rows, "rdtsc")), doubled(4 * cpus));
    assert_eq!(counts(&measured_rows_of(&rows, "untraced")), doubled(cpus));
    assert_eq!(measured_rows_of(&rows, "untraced again").len(), 1);
    for tracer in ["ftrace", "ftrace-local", "ftrace-global", "ftrace-counter", "trackway-tracefs"]
    {
        let mine = measured_rows_of(&rows, tracer);
        assert!(mine.is_empty() || counts(&mine) == doubled(cpus), "{tracer}: {mine:?}");
        for row in mine {
            // Each thread makes fifty batches of four hundred calls, with two events each.
            let emitted = 2 * 50 * 400 * threads(row);
            assert_eq!(
                (count_in_row(row, "emitted"), count_in_row(row, "recorded")),
                (emitted, emitted)
            );
            assert_eq!(row["unit"], "ns/call", "{row}");
            let beside = &rows[row["beside"].as_u64().expect("beside") as usize];
            assert_eq!((&beside["tracer"], &beside["case"]), (&"untraced".into(), &row["case"]));
        }
    }
}

/// RUN the suite. EXPECT every installed program to have a figure in its own unit, and every event
/// to be accounted for, in flight recorders, too.
#[test]
fn programs_have_figures_of_their_own_and_their_events() {
    let fixture = Fixture::new("bench-workload");
    let Some(rows) =
        bench::measure_rows(&fixture, "workload", "trackway-sched-flight,trackway-libc")
    else {
        return;
    };
    for row in &rows {
        let unit = match row["case"].as_str().expect("a case") {
            "hackbench" | "compiler" => "ms",
            "apache2" | "redis" => "requests/s",
            other => panic!("{other}"),
        };
        assert_eq!(row["unit"], unit, "{row}");
    }
    // This test requires a compiler, so the compiler was measured.
    assert!(measured_rows_of(&rows, "untraced").iter().any(|row| row["case"] == "compiler"));
    for tracer in ["trackway-sched-flight", "trackway-libc"] {
        for row in measured_rows_of(&rows, tracer) {
            assert_events_accounted_for(row);
            assert!(row["times"]["median"].as_f64().is_some_and(|times| times > 0.0), "{row}");
        }
    }
}

/// RUN the suite. EXPECT all iterations of the loop in a histogram, with their events in the trace;
/// and the same for cyclictest, if it is installed and permitted.
#[test]
fn every_turn_of_the_loop_is_in_a_histogram() {
    let fixture = Fixture::new("bench-latency");
    let tracers =
        if is_root() { "trackway-off,trackway-flight,cyclictest" } else { "trackway-flight" };
    let Some(rows) = bench::measure_rows(&fixture, "latency", tracers) else { return };
    let count = |row: &Value| -> u64 {
        let histogram = row["histogram"].as_array().expect("a histogram");
        histogram.iter().map(|one| one[1].as_u64().expect("a count")).sum()
    };
    let turns = count(measured_rows_of(&rows, "untraced")[0]);
    assert!(turns > 0);
    for row in rows.iter().filter(|row| row["status"] == "measured") {
        assert_eq!((count(row), count_in_row(&row["tail"], "count")), (turns, turns), "{row}");
    }
    for row in measured_rows_of(&rows, "trackway-flight") {
        assert_events_accounted_for(row);
        assert_eq!(count_in_row(row, "emitted"), turns, "{row}");
    }
}

/// RUN tracers that are on only at the beginning of the work, and tracers of other events. EXPECT
/// both to fail, whatever they recorded, and a tracer that is on all the time to succeed.
#[test]
fn a_tracer_that_was_not_on_all_the_time_has_no_figure() {
    // The real perf, which ends before the work does.
    const INTERRUPTED_PERF: &str = "#!/bin/sh\nPATH=${PATH#*:}\n\
        [ \"$1\" = record ] || exec perf \"$@\"\n\
        while [ \"$1\" != -- ]; do options=\"$options $1\"; shift; done; shift\n\
        ready=$(mktemp -u); mkfifo \"$ready\"\n\
        perf $options -- sh -c 'echo >\"$1\"; sleep 0.1' sh \"$ready\" &\n\
        read -r _ <\"$ready\"; rm \"$ready\"\n\
        \"$@\" && wait\n";
    // The real bpftrace, which records other processes for a moment.
    const UNRELATED_BPFTRACE: &str = "#!/bin/sh\nPATH=${PATH#*:}\n\
        bpftrace -f json -e \"$4\" -c \"$(command -v sleep) 0.2\" -o \"$8\" && $6\n";
    let fixture = Fixture::new("bench-liars");
    if !is_root() || ["cc", "perf", "bpftrace", "hackbench"].iter().any(|program| !has(program)) {
        return report_skipped("it takes root, cc, perf, bpftrace and hackbench");
    }
    let before = fixture.path("before");
    bench::write_scripts(&before, &[("perf", INTERRUPTED_PERF), ("bpftrace", UNRELATED_BPFTRACE)]);
    let out = fixture.path("results");
    let tracers = "perf-sched,bpftrace,ftrace-sched";
    let mut command =
        fixture.trackway(&["bench", "workload", "--rounds", "1", "--tracers", tracers]);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", before.display())).arg("--out").arg(&out);
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("it runs");
    let json = std::fs::read_to_string(out.join("results.json")).expect("results");
    let rows = bench::rows_of_suite(&serde_json::from_str(&json).expect("JSON"), "workload");
    let row = |tracer| bench::row_of_case(&rows, tracer, "hackbench");
    let honest = row("ftrace-sched");
    if honest["status"] == "absent" {
        return report_skipped("the kernel cannot be traced here");
    }
    assert_events_accounted_for(honest);
    assert_eq!(status.code(), Some(1), "{rows:?}");
    for (tracer, what) in [("perf-sched", "at the end"), ("bpftrace", "at the begin")] {
        let row = row(tracer);
        let reason = row["reason"].as_str().unwrap_or_default();
        assert_eq!(row["status"], "failed", "{row}");
        assert!(reason.contains("it was not on all the time") && reason.contains(what), "{row}");
        assert!(row["samples"].as_array().is_some_and(Vec::is_empty), "{row}");
    }
}

/// KILL the bench while a server is under load. EXPECT that no server remains.
#[test]
fn a_killed_bench_leaves_no_server() {
    const WAIT_MAX: Duration = Duration::from_secs(60);
    // A process has the name of its executable: all tools of redis-tools are one executable.
    const SERVER_PROGRAMS: &[&str] = &["apache2", "redis-server", "redis-check-rdb", "tbench_srv"];
    let fixture = Fixture::new("bench-server");
    // The suite reports the installed servers, and whether a network is possible.
    if !is_root() || !has("cc") || !(has("ab") || has("redis-benchmark")) {
        return report_skipped("there is no server that could be put under load");
    }
    let folder = fixture.path("scratch");
    std::fs::create_dir(&folder).expect("a folder");
    let out = fixture.path("results");
    let arguments = ["bench", "workload", "--rounds", "9", "--tracers", "none", "--out"];
    let mut command = fixture.trackway(&arguments);
    command.arg(&out).env("TMPDIR", &folder).stdout(Stdio::null()).stderr(Stdio::null());
    let mut bench = command.spawn().expect("trackway runs");
    let begin = Instant::now();
    let is_served = || count_processes(&folder, SERVER_PROGRAMS) > 0;
    while !is_served() && begin.elapsed() < WAIT_MAX && bench.try_wait().expect("it").is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let was_served = is_served();
    send_signal(bench.id().cast_signed(), libc::SIGKILL);
    bench.wait().expect("it ends");
    wait_for("all of it to end", || count_processes(&folder, &[]) == 0);
    wait_for("its folders to go", || {
        std::fs::read_dir(&folder).expect("it is there").next().is_none()
    });
    assert!(was_served, "there was no server");
}
