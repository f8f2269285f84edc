//! `trackway bench` with other tracers: checks of their output, and of leftover objects.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;
use trackway_tests::bench::{
    assert_events_accounted_for, count_processes, is_measured, row_of_case, rows_of_suite,
    rows_of_tracer, run_suite, write_scripts,
};
use trackway_tests::steps::{send_signal, wait_for};
use trackway_tests::{Fixture, build_dir, has, is_root, report_skipped};

/// Runs a suite once with these tracers, and with these programs first on PATH; returns the exit
/// status and the rows.
fn run_suite_with_path(
    fixture: &Fixture,
    suite: &str,
    tracers: &str,
    before: &Path,
) -> (Option<i32>, Vec<Value>) {
    let path = std::env::var("PATH").unwrap_or_default();
    let (code, _, report) = run_suite(fixture, suite, tracers, |command| {
        command.env("PATH", format!("{}:{path}", before.display()));
    });
    (code, rows_of_suite(&report, suite))
}

/// RUN the suite `size`. EXPECT the documented size of Trackway's event, and a larger size of its
/// text.
#[test]
fn bytes_of_events_are_those_of_files() {
    let fixture = Fixture::new("bench-size");
    if !has("cc") {
        return report_skipped("no C compiler (cc) is installed");
    }
    let (status, rows) =
        run_suite_with_path(&fixture, "size", "babeltrace2-text", Path::new("/nonexistent"));
    assert_eq!(status, Some(0), "{rows:?}");
    let figure = |tracer: &str, case: &str| {
        let row = row_of_case(&rows, tracer, case);
        assert_events_accounted_for(row);
        assert_eq!(row["unit"], "bytes/event");
        row["spread"]["median"].as_f64().expect("a figure")
    };
    // A header of four bytes and a number; packet headers add about a hundredth.
    let ours = figure("trackway", "u32");
    assert!((8.0..8.2).contains(&ours), "{ours}");
    // The record has two more bytes if the header has an extended id.
    let later = figure("trackway", "u32, after 30 others");
    assert!((10.0..10.2).contains(&later), "{later}");
    assert!(figure("trackway", "str,u32,u64") > 4.0 + 16.0 + 4.0 + 8.0);
    if has("babeltrace2") {
        assert!(figure("babeltrace2-text", "u32") > 4.0 * ours);
    }
    let once = rows[0]["extra"]["bytes once"].as_f64().expect("what is there once");
    assert!(once > 0.0, "{once}");
}

/// RUN tracers that run the program and record nothing, and a tracer that records. EXPECT figures
/// only for the last.
#[test]
fn a_tracer_that_was_silently_off_has_no_figure() {
    let fixture = Fixture::new("bench-off");
    if !has("cc") {
        return report_skipped("no C compiler (cc) is installed");
    }
    // The arguments after the last option are the program, which the script runs without recording.
    let off = "#!/bin/sh\nwhile [ $# -gt 0 ]; do\n\
               case \"$1\" in */functions | */usdt) exec \"$@\" ;; esac; shift; done\n";
    let before = fixture.path("before");
    write_scripts(&before, &[("uftrace", off), ("perf", off)]);
    let (status, rows) = run_suite_with_path(&fixture, "tracepoint", "uftrace,perf", &before);
    assert_eq!(status, Some(1), "{rows:?}");
    for tracer in ["uftrace", "perf"] {
        for row in rows_of_tracer(&rows, tracer).into_iter().filter(|row| row["status"] != "absent")
        {
            assert_eq!(row["status"], "failed", "{row}");
            assert!(row["samples"].as_array().is_some_and(Vec::is_empty), "{row}");
        }
    }
    for row in rows_of_tracer(&rows, "uftrace") {
        assert_eq!(row["status"], "failed", "{row}");
    }
    rows_of_tracer(&rows, "trackway").into_iter().for_each(assert_events_accounted_for);
}

/// RUN an LTTng that never enables the event, and Trackway. EXPECT no figure for a traced routine
/// with LTTng.
#[test]
fn an_lttng_that_enables_nothing_has_no_figure() {
    let fixture = Fixture::new("bench-lttng-off");
    let before = fixture.path("before");
    let liar = "#!/bin/sh\nPATH=${PATH#*:}\n\
                for word; do [ \"$word\" = enable-event ] && exit 0; done\nexec lttng \"$@\"\n";
    write_scripts(&before, &[("lttng", liar)]);
    let (status, rows) = run_suite_with_path(&fixture, "cases", "lttng-ust", &before);
    let records = |row: &&Value| row["case"] != "instrumented, off";
    let traced: Vec<&Value> =
        rows_of_tracer(&rows, "lttng-ust").into_iter().filter(records).collect();
    if traced.iter().all(|row| row["status"] == "absent") {
        return report_skipped("LTTng-UST cannot be had here");
    }
    assert!(status == Some(1) && traced.len() == 2, "{rows:?}");
    for row in traced {
        assert_eq!(row["status"], "failed", "{row}");
        assert!(
            row["reason"].as_str().is_some_and(|reason| reason.contains("shows no event")),
            "{row}"
        );
        assert!(row["samples"].as_array().is_some_and(Vec::is_empty), "{row}");
    }
    assert_events_accounted_for(row_of_case(&rows, "trackway", "active"));
}

/// RUN kernel tracers. EXPECT each to have all events or a reason, and to leave no object behind.
#[test]
fn tracers_by_the_kernel_have_all_events() {
    let fixture = Fixture::new("bench-kernel-events");
    if !has("cc") {
        return report_skipped("no C compiler (cc) is installed");
    }
    let tracers = "ftrace-uprobe,ftrace-marker,bpftrace";
    let (status, rows) =
        run_suite_with_path(&fixture, "tracepoint", tracers, Path::new("/nonexistent"));
    assert_eq!(status, Some(0), "{rows:?}");
    for tracer in ["ftrace-uprobe", "ftrace-marker", "bpftrace"] {
        for row in rows_of_tracer(&rows, tracer) {
            if is_measured(row) {
                assert_events_accounted_for(row);
            }
        }
    }
}

/// KILL the bench while it has a uprobe event. EXPECT that neither the event nor its instance
/// remains.
#[test]
fn a_killed_bench_leaves_no_uprobe_event() {
    const SCRIPT: &str = "
        tracing=/sys/kernel/tracing
        [ -d $tracing/instances ] || mount -t tracefs nodev $tracing || exit 90
        [ -e $tracing/uprobe_events ] || exit 90
        \"$1\" bench tracepoint --tracers ftrace-uprobe >/dev/null 2>&1 & bench=$!
        there() { grep -q \"^p:trackway_lab_$bench/\" $tracing/uprobe_events; }
        i=0; until there; do
            kill -0 $bench 2>/dev/null && [ $i -lt 2000 ] || exit 91; sleep 0.02; i=$((i+1))
        done
        kill -9 $bench
        i=0; while there || [ -d $tracing/instances/trackway-lab-$bench-ftrace-uprobe ]; do
            [ $i -lt 2000 ] || exit 92; sleep 0.02; i=$((i+1))
        done";
    let fixture = Fixture::new("bench-uprobe");
    let header = "/usr/include/x86_64-linux-gnu/sys/sdt.h";
    if !is_root() || !Path::new(header).is_file() {
        return report_skipped("it takes root, and systemtap-sdt-dev");
    }
    let mut command = fixture.command("unshare");
    command.args(["-m", "sh", "-c", SCRIPT, "sh"]).arg(build_dir().join("trackway"));
    match command.status().expect("unshare runs").code() {
        Some(90) => report_skipped("tracefs cannot be mounted here, or has no uprobes"),
        code => assert_eq!(code, Some(0), "91: no event, 92: it stays"),
    }
}

/// KILL the bench while LTTng traces for it. EXPECT that no daemon, folder or shared memory of the
/// bench's LTTng remains, and nothing in the socket folder of root's daemons.
#[test]
fn a_killed_bench_leaves_no_daemon_of_lttngs() {
    const WAIT_MAX: Duration = Duration::from_secs(60);
    const DAEMONS: &[&str] = &["lttng-sessiond", "lttng-consumerd"];
    let fixture = Fixture::new("bench-lttng");
    let multiarch = format!("/usr/include/{}-linux-gnu/lttng", std::env::consts::ARCH);
    let has_header = ["/usr/include/lttng", &multiarch].iter().any(|path| Path::new(path).is_dir());
    if !is_root() || !has("cc") || !has("lttng-sessiond") || !has_header {
        return report_skipped("it takes root, LTTng and a compiler");
    }
    let shared = || {
        let entries = fs::read_dir("/dev/shm").expect("shared memory").flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        // Counts windows of the bench, and LTTng's buffers: other tests use separate windows
        // meanwhile.
        names.filter(|name| name.starts_with("trackway-lab-") || name.starts_with("ust-")).count()
    };
    let sockets = Path::new("/var/run/lttng");
    let was_there = sockets.exists();
    let before = shared();
    let folder = fixture.path("scratch");
    fs::create_dir(&folder).expect("a folder");
    let arguments = ["bench", "tracepoint", "--rounds", "9", "--tracers", "lttng-ust", "--out"];
    let mut command = fixture.trackway(&arguments);
    command.arg(fixture.path("results")).env("TMPDIR", &folder);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut bench = command.spawn().expect("trackway runs");
    let begin = Instant::now();
    // Waits until LTTng traces, which is when its consumer exists.
    let traces = || count_processes(&folder, DAEMONS) >= DAEMONS.len();
    while !traces() && begin.elapsed() < WAIT_MAX && bench.try_wait().expect("it").is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let was_traced = traces();
    let was_made = sockets.exists();
    send_signal(bench.id().cast_signed(), libc::SIGKILL);
    bench.wait().expect("it ends");
    wait_for("all of it to end", || count_processes(&folder, &[]) == 0);
    wait_for("its folders to go", || {
        fs::read_dir(&folder).expect("it is there").next().is_none() && shared() <= before
    });
    assert!(was_traced, "nothing was traced");
    assert!(was_there || !(was_made || sockets.exists()));
}
