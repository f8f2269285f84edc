//! Traces that lttng-tools records on this machine, with a daemon of this test. The daemon runs as
//! an ordinary user with a home in the test's folder, and dies with the test. If the test runs as
//! root, the daemon runs as the user `nobody`, because root can have only one daemon.

use std::path::{Path, PathBuf};

use trackway_tests::lttng::{LttngDaemon, NEEDED_PROGRAMS};
use trackway_tests::{Fixture, has, report_skipped};

use crate::support::{
    assert_readers_agree, find_traces_below, has_babeltrace, reported_losses, run_print,
    script_path, stderr_text,
};

/// A daemon, and an application that emits events of all kinds.
struct LttngRecorder<'fixture> {
    daemon: LttngDaemon<'fixture>,
    application: PathBuf,
}

impl<'fixture> LttngRecorder<'fixture> {
    /// Starts the daemon; compiles the application.
    fn start(fixture: &'fixture Fixture) -> Self {
        let application = fixture.path("application");
        let mut cc = fixture.command("gcc");
        cc.arg("-I").arg(script_path("")).arg("-o").arg(&application);
        cc.args([script_path("lttng_app.c"), script_path("lttng_events.c")])
            .args(["-llttng-ust", "-ldl"]);
        let output = cc.output().expect("gcc runs");
        assert!(output.status.success(), "{}", stderr_text(&output));
        Self { daemon: LttngDaemon::start(fixture), application }
    }

    fn lttng(&self, arguments: &[&str]) {
        self.daemon.lttng(arguments);
    }

    /// Makes the application emit all its events `times` times.
    fn run(&self, times: u32) {
        let mut command = self.daemon.command(&self.application);
        let output = command.arg(times.to_string()).output().expect("setpriv runs");
        assert!(output.status.success(), "{}", stderr_text(&output));
    }

    /// Makes a session with one channel, which records all events to the returned folder.
    fn session(&self, name: &str, create: &[&str], channel: &[&str], contexts: &[&str]) -> PathBuf {
        let output = self.daemon.fixture.path(name);
        let path = output.to_str().expect("text");
        self.lttng(&[&["create", name, "--output", path], create].concat());
        self.lttng(&[&["enable-channel", "-u", "c"], channel].concat());
        self.lttng(&["enable-event", "-u", "-c", "c", "-a"]);
        for context in contexts {
            self.lttng(&["add-context", "-u", "-c", "c", "-t", context]);
        }
        self.lttng(&["start"]);
        output
    }

    fn end(&self) {
        self.lttng(&["stop"]);
        self.lttng(&["destroy"]);
    }
}

/// Compares both readers on the whole folder of a session, and on each of its traces.
fn compare_readers(fixture: &Fixture, session: &Path) -> String {
    let traces = find_traces_below(session);
    assert!(!traces.is_empty(), "nothing in {session:?}");
    for trace in &traces {
        assert_readers_agree(fixture, &[trace]);
    }
    let output = assert_readers_agree(fixture, &[session]);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Counts the application's own events, without LTTng's events about loaded libraries.
fn count_application_events(text: &str) -> usize {
    text.lines().filter(|line| !line.contains(" lttng_ust_statedump:")).count()
}

#[test]
fn traces_of_lttng_read_as_babeltrace2_reads_them() {
    if let Some(missing) = NEEDED_PROGRAMS.iter().find(|program| !has(program)) {
        return report_skipped(format!("{missing} is not installed"));
    }
    if !has_babeltrace() {
        return;
    }
    let fixture = Fixture::new("lttng");
    let recorder = LttngRecorder::start(&fixture);
    check_per_user_buffers(&recorder);
    check_per_process_losses(&recorder);
    check_overwrite_mode(&recorder);
    check_rotation(&recorder);
    check_snapshots(&recorder);
}

fn check_per_user_buffers(recorder: &LttngRecorder<'_>) {
    let contexts = ["vpid", "vtid", "procname", "pthread_id", "ip", "vuid"];
    let session = recorder.session("user", &[], &["--buffers-uid"], &contexts);
    (0..2).for_each(|_| recorder.run(20));
    recorder.end();
    let text = compare_readers(recorder.daemon.fixture, &session);
    // 35 kinds of events: the last ids are beyond the compact header's 0 to 30.
    assert_eq!(count_application_events(&text), 2 * 20 * 35);
    for part in ["all:many29:", "\"some greens\", \"greens too\"", "procname = \"application\""] {
        assert!(text.contains(part), "no {part}");
    }
    assert!(text.contains("lttng_ust_tracef:event:") && text.contains("lttng_ust_tracelog:"));
}

fn check_per_process_losses(recorder: &LttngRecorder<'_>) {
    let channel = ["--buffers-pid", "--discard", "--subbuf-size=4096", "--num-subbuf=2"];
    let session = recorder.session("process", &[], &channel, &["vtid"]);
    (0..2).for_each(|_| recorder.run(3000));
    recorder.end();
    compare_readers(recorder.daemon.fixture, &session);
    let output = run_print(recorder.daemon.fixture, &[&session]);
    assert!(
        !reported_losses(&output).is_empty(),
        "buffers of 8 KB lost nothing: {}",
        stderr_text(&output)
    );
}

fn check_overwrite_mode(recorder: &LttngRecorder<'_>) {
    let channel = ["--buffers-uid", "--overwrite", "--subbuf-size=4096", "--num-subbuf=4"];
    let session = recorder.session("overwritten", &[], &channel, &[]);
    recorder.run(1000);
    recorder.end();
    compare_readers(recorder.daemon.fixture, &session);
}

fn check_rotation(recorder: &LttngRecorder<'_>) {
    let session = recorder.session("rotated", &[], &["--buffers-uid"], &["vpid"]);
    for _ in 0..3 {
        recorder.run(10);
        recorder.lttng(&["rotate"]);
    }
    recorder.end();
    let text = compare_readers(recorder.daemon.fixture, &session);
    assert_eq!(count_application_events(&text), 3 * 10 * 35);
    assert!(find_traces_below(&session).len() >= 3, "archives");
}

fn check_snapshots(recorder: &LttngRecorder<'_>) {
    let session = recorder.session("snapshot", &["--snapshot"], &["--subbuf-size=4096"], &["vtid"]);
    for _ in 0..2 {
        recorder.run(300);
        recorder.lttng(&["snapshot", "record"]);
    }
    recorder.end();
    for snapshot in find_traces_below(&session) {
        assert_readers_agree(recorder.daemon.fixture, &[&snapshot]);
    }
}
