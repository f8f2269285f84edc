//! Traces that lttng-tools records here, with a daemon of this test. The daemon runs as an ordinary
//! user with a home in the test's folder, and dies with the test. If the test runs as root, the
//! daemon runs as the user `nobody`, because root can have only one daemon.

use std::path::{Path, PathBuf};

use trackway_tests::lttng::{Daemon, PROGRAMS};
use trackway_tests::{Fixture, has, report_skipped};

use crate::support::{assert_agreement, has_babeltrace, losses, print, script, talk, traces_below};

/// A daemon, and an application that emits events of all kinds.
struct Recorder<'fixture> {
    daemon: Daemon<'fixture>,
    application: PathBuf,
}

impl<'fixture> Recorder<'fixture> {
    /// Starts the daemon; compiles the application.
    fn start(fixture: &'fixture Fixture) -> Self {
        let application = fixture.path("application");
        let mut cc = fixture.command("gcc");
        cc.arg("-I").arg(script("")).arg("-o").arg(&application);
        cc.args([script("lttng_app.c"), script("lttng_events.c")]).args(["-llttng-ust", "-ldl"]);
        let output = cc.output().expect("gcc runs");
        assert!(output.status.success(), "{}", talk(&output));
        Self { daemon: Daemon::start(fixture), application }
    }

    fn lttng(&self, arguments: &[&str]) {
        self.daemon.lttng(arguments);
    }

    /// Lets the application emit all its events so many times.
    fn run(&self, times: u32) {
        let mut command = self.daemon.command(&self.application);
        let output = command.arg(times.to_string()).output().expect("setpriv runs");
        assert!(output.status.success(), "{}", talk(&output));
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

/// Compares both readers on all of a session, and on each of its traces.
fn compare(fixture: &Fixture, session: &Path) -> String {
    let traces = traces_below(session);
    assert!(!traces.is_empty(), "nothing in {session:?}");
    for trace in &traces {
        assert_agreement(fixture, &[trace]);
    }
    let output = assert_agreement(fixture, &[session]);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Counts the application's own events: LTTng adds the libraries that it has loaded.
fn emitted(text: &str) -> usize {
    text.lines().filter(|line| !line.contains(" lttng_ust_statedump:")).count()
}

#[test]
fn traces_of_lttng_read_as_babeltrace2_reads_them() {
    if let Some(missing) = PROGRAMS.iter().find(|program| !has(program)) {
        return report_skipped(format!("{missing} is not installed"));
    }
    if !has_babeltrace() {
        return;
    }
    let fixture = Fixture::new("lttng");
    let recorder = Recorder::start(&fixture);
    per_user_with_contexts(&recorder);
    per_process_with_losses(&recorder);
    overwritten(&recorder);
    rotated(&recorder);
    snapshots(&recorder);
}

fn per_user_with_contexts(recorder: &Recorder<'_>) {
    let contexts = ["vpid", "vtid", "procname", "pthread_id", "ip", "vuid"];
    let session = recorder.session("user", &[], &["--buffers-uid"], &contexts);
    (0..2).for_each(|_| recorder.run(20));
    recorder.end();
    let text = compare(recorder.daemon.fixture, &session);
    // 35 kinds of events: the last ids are beyond the compact header's 0 to 30.
    assert_eq!(emitted(&text), 2 * 20 * 35);
    for part in ["all:many29:", "\"some greens\", \"greens too\"", "procname = \"application\""] {
        assert!(text.contains(part), "no {part}");
    }
    assert!(text.contains("lttng_ust_tracef:event:") && text.contains("lttng_ust_tracelog:"));
}

fn per_process_with_losses(recorder: &Recorder<'_>) {
    let channel = ["--buffers-pid", "--discard", "--subbuf-size=4096", "--num-subbuf=2"];
    let session = recorder.session("process", &[], &channel, &["vtid"]);
    (0..2).for_each(|_| recorder.run(3000));
    recorder.end();
    compare(recorder.daemon.fixture, &session);
    let output = print(recorder.daemon.fixture, &[&session]);
    assert!(!losses(&output).is_empty(), "buffers of 8 KB lost nothing: {}", talk(&output));
}

fn overwritten(recorder: &Recorder<'_>) {
    let channel = ["--buffers-uid", "--overwrite", "--subbuf-size=4096", "--num-subbuf=4"];
    let session = recorder.session("overwritten", &[], &channel, &[]);
    recorder.run(1000);
    recorder.end();
    compare(recorder.daemon.fixture, &session);
}

fn rotated(recorder: &Recorder<'_>) {
    let session = recorder.session("rotated", &[], &["--buffers-uid"], &["vpid"]);
    for _ in 0..3 {
        recorder.run(10);
        recorder.lttng(&["rotate"]);
    }
    recorder.end();
    let text = compare(recorder.daemon.fixture, &session);
    assert_eq!(emitted(&text), 3 * 10 * 35);
    assert!(traces_below(&session).len() >= 3, "archives");
}

fn snapshots(recorder: &Recorder<'_>) {
    let session = recorder.session("snapshot", &["--snapshot"], &["--subbuf-size=4096"], &["vtid"]);
    for _ in 0..2 {
        recorder.run(300);
        recorder.lttng(&["snapshot", "record"]);
    }
    recorder.end();
    for snapshot in traces_below(&session) {
        assert_agreement(recorder.daemon.fixture, &[&snapshot]);
    }
}
