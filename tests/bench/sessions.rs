//! `trackway bench sessions`: one run with the tracers that are always available, and leftovers of
//! a killed run.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use trackway_tests::bench::{
    assert_events_accounted_for, count_in_row, is_measured, row_of_case, rows_of_suite,
    rows_of_tracer, run_complete_suite,
};
use trackway_tests::{Fixture, has, report_skipped};

/// Time limit for the end of killed processes and of the processes that they started.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// RUN the suite once. EXPECT every event to be accounted for in each session; the right number of
/// events of short-lived processes; each process to be counted; and no leftovers.
#[test]
fn every_event_of_every_session_is_accounted_for() {
    let Some(report) =
        run_complete_suite(&Fixture::new("bench-sessions"), "sessions", "trackway-socket")
    else {
        return;
    };
    let rows = rows_of_suite(&report, "sessions");
    for row in rows.iter().filter(|row| is_measured(row) && row["tracer"] != "trackway-off") {
        assert_events_accounted_for(row);
    }
    for (tracer, count) in [("trackway", 21), ("trackway-socket", 3), ("trackway again", 1)] {
        assert_eq!(rows_of_tracer(&rows, tracer).len(), count, "{tracer}");
    }
    for kind in ["flight recorder", "to a folder"] {
        let row = |sessions: &str| row_of_case(&rows, "trackway", &format!("{sessions}, {kind}"));
        // Each session records every event.
        assert!(count_in_row(row("4 sessions"), "emitted").is_multiple_of(4 * 2500));
        assert!(row("1 session")["extra"]["each further session, ns"].is_number());
        assert!(row("32 sessions")["extra"]["in terms of 1 session"].is_number());
    }
    for starts in ["programs that were started", "children that were forked"] {
        let row = row_of_case(&rows, "trackway", &format!("memory after {starts}"));
        assert_eq!(count_in_row(row, "recorded"), count_in_row(row, "emitted"), "{row}");
        for what in ["not counted", "of places kept", "of descriptors left"] {
            assert_eq!(row["extra"][format!("greatest number {what}")], 0.0, "{row}");
        }
    }
    let followed = row_of_case(&rows, "trackway", "followed: event to line");
    assert_eq!(followed["extra"]["greatest number out of order"], 0.0, "{followed}");
    let singles = row_of_case(&rows, "trackway-socket", "session stopped");
    assert_eq!(singles["tail"]["count"], 5, "{singles}");
    let bars = report["bars"].as_array().expect("bars");
    assert_eq!(bars.iter().filter(|bar| bar["suite"] == "sessions").count(), 8, "{bars:?}");
}

/// RUN the suite, and kill it while it has a session. EXPECT the session's recorder to end, and its
/// folder to be removed.
#[test]
fn recorders_of_a_run_that_is_killed_end() {
    if !has("cc") {
        return report_skipped("no C compiler (cc) is installed");
    }
    let fixture = Fixture::new("bench-sessions-killed");
    let temp = fixture.path("tmp");
    fs::create_dir_all(&temp).expect("a folder");
    let mut command = fixture.trackway(&["bench", "sessions", "--quick", "--tracers", "trackway"]);
    let command = command.arg("--out").arg(fixture.path("out")).env("TMPDIR", &temp);
    let mut bench = command.spawn().expect("it runs");
    let begin = Instant::now();
    while find_recorders(&temp).is_empty() {
        assert!(bench.try_wait().expect("ours").is_none(), "it has ended by itself");
        assert!(begin.elapsed() < WAIT_MAX, "it makes no session");
    }
    bench.kill().expect("ours");
    bench.wait().expect("ours");
    let begin = Instant::now();
    while !find_recorders(&temp).is_empty() || fs::read_dir(&temp).expect("a folder").count() > 0 {
        assert!(begin.elapsed() < WAIT_MAX, "{:?} are left", find_recorders(&temp));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns the recorders of sessions that have `folder` in their environment.
fn find_recorders(folder: &Path) -> Vec<String> {
    let folder = folder.to_str().expect("a path");
    let mut grep = Command::new("sh");
    grep.args(["-c", "grep -ls -e \"$1\" /proc/[0-9]*/environ", "sh", folder]);
    let found = String::from_utf8(grep.output().expect("sh runs").stdout).expect("paths");
    let is_recorder = |path: &&str| {
        let words = fs::read(path.replace("environ", "cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).contains("session\0recorder")
    };
    found.lines().filter(is_recorder).map(str::to_owned).collect()
}
