//! Traces recorded here by lttng-tools, whose daemon is this test's own: it lives in the test's
//! folder as an ordinary user's (nobody's, if the test runs as root, whose daemon there can be
//! only one of), and dies with the test.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use trackway_tests::steps::wait_for;
use trackway_tests::{World, has, is_root, skipped};

use crate::support::{assert_agreement, has_babeltrace, losses, print, script, talk, traces_below};

/// Programs needed beside babeltrace2.
const PROGRAMS: [&str; 5] = ["lttng", "lttng-sessiond", "lttng-gen-tp", "setpriv", "gcc"];

/// lttng-sessiond while it runs.
struct Daemon<'world> {
    world: &'world World,
    child: Child,
    application: PathBuf,
}

/// A command of the user that records.
fn user_command(world: &World, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = world.command("setpriv");
    if is_root() {
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    }
    // Should the test be killed, so is what it started.
    command.args(["--pdeathsig", "TERM"]).arg(program);
    command.env("LTTNG_HOME", world.path("home")).env("LTTNG_UST_REGISTER_TIMEOUT", "-1");
    command.env_remove("LTTNG_RUNDIR");
    command
}

impl<'world> Daemon<'world> {
    /// Starts it and waits until it answers; compiles the application.
    fn start(world: &'world World) -> Self {
        let home = world.path("home");
        std::fs::create_dir(&home).unwrap();
        for folder in [&world.path(""), &home] {
            std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777)).unwrap();
        }
        let application = world.path("application");
        let mut cc = world.command("gcc");
        cc.arg("-I").arg(script("")).arg("-o").arg(&application);
        cc.args([script("lttng_app.c"), script("lttng_events.c")]).args(["-llttng-ust", "-ldl"]);
        let output = cc.output().expect("gcc runs");
        assert!(output.status.success(), "{}", talk(&output));
        let mut command = user_command(world, "lttng-sessiond");
        command.args(["--no-kernel", "--quiet"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("setpriv runs");
        let daemon = Self { world, child, application };
        wait_for("lttng-sessiond answers", || {
            daemon.lttng_command(&["list"]).output().is_ok_and(|output| output.status.success())
        });
        daemon
    }

    fn lttng_command(&self, arguments: &[&str]) -> Command {
        let mut command = user_command(self.world, "lttng");
        command.args(["--no-sessiond", "--quiet"]).args(arguments);
        command
    }

    fn lttng(&self, arguments: &[&str]) {
        let output = self.lttng_command(arguments).output().expect("setpriv runs");
        assert!(output.status.success(), "lttng {arguments:?}: {}", talk(&output));
    }

    /// Lets the application emit all its events so many times.
    fn run(&self, times: u32) {
        let mut command = user_command(self.world, &self.application);
        let output = command.arg(times.to_string()).output().expect("setpriv runs");
        assert!(output.status.success(), "{}", talk(&output));
    }

    /// A session with one channel; everything in it is recorded to the folder returned.
    fn session(&self, name: &str, create: &[&str], channel: &[&str], contexts: &[&str]) -> PathBuf {
        let output = self.world.path(name);
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

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        // SAFETY: kill has no preconditions; the process is ours and not yet waited for.
        unsafe { libc::kill(self.child.id().cast_signed(), libc::SIGTERM) };
        // It ends its consumer daemons first.
        let _ = self.child.wait();
    }
}

/// Both readers on all of a session, and on each of its traces alone.
fn compare(world: &World, session: &Path) -> String {
    let traces = traces_below(session);
    assert!(!traces.is_empty(), "nothing in {session:?}");
    for trace in &traces {
        assert_agreement(world, &[trace]);
    }
    let output = assert_agreement(world, &[session]);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Events of the application's own: LTTng adds what libraries it has loaded.
fn emitted(text: &str) -> usize {
    text.lines().filter(|line| !line.contains(" lttng_ust_statedump:")).count()
}

#[test]
fn what_lttng_records_reads_as_babeltrace2_reads_it() {
    if let Some(missing) = PROGRAMS.iter().find(|program| !has(program)) {
        return skipped(&format!("{missing} is not installed"));
    }
    if !has_babeltrace() {
        return;
    }
    let world = World::new("lttng");
    let daemon = Daemon::start(&world);
    per_user_with_contexts(&daemon);
    per_process_with_losses(&daemon);
    overwritten(&daemon);
    rotated(&daemon);
    snapshots(&daemon);
}

fn per_user_with_contexts(daemon: &Daemon<'_>) {
    let contexts = ["vpid", "vtid", "procname", "pthread_id", "ip", "vuid"];
    let session = daemon.session("user", &[], &["--buffers-uid"], &contexts);
    (0..2).for_each(|_| daemon.run(20));
    daemon.end();
    let text = compare(daemon.world, &session);
    // 35 kinds of events: the last ids are beyond the compact header's 0 to 30.
    assert_eq!(emitted(&text), 2 * 20 * 35);
    for part in ["all:many29:", "\"some greens\", \"greens too\"", "procname = \"application\""] {
        assert!(text.contains(part), "no {part}");
    }
    assert!(text.contains("lttng_ust_tracef:event:") && text.contains("lttng_ust_tracelog:"));
}

fn per_process_with_losses(daemon: &Daemon<'_>) {
    let channel = ["--buffers-pid", "--discard", "--subbuf-size=4096", "--num-subbuf=2"];
    let session = daemon.session("process", &[], &channel, &["vtid"]);
    (0..2).for_each(|_| daemon.run(3000));
    daemon.end();
    compare(daemon.world, &session);
    let output = print(daemon.world, &[&session]);
    assert!(!losses(&output).is_empty(), "buffers of 8 KB lost nothing: {}", talk(&output));
}

fn overwritten(daemon: &Daemon<'_>) {
    let channel = ["--buffers-uid", "--overwrite", "--subbuf-size=4096", "--num-subbuf=4"];
    let session = daemon.session("overwritten", &[], &channel, &[]);
    daemon.run(1000);
    daemon.end();
    compare(daemon.world, &session);
}

fn rotated(daemon: &Daemon<'_>) {
    let session = daemon.session("rotated", &[], &["--buffers-uid"], &["vpid"]);
    for _ in 0..3 {
        daemon.run(10);
        daemon.lttng(&["rotate"]);
    }
    daemon.end();
    let text = compare(daemon.world, &session);
    assert_eq!(emitted(&text), 3 * 10 * 35);
    assert!(traces_below(&session).len() >= 3, "archives");
}

fn snapshots(daemon: &Daemon<'_>) {
    let session = daemon.session("snapshot", &["--snapshot"], &["--subbuf-size=4096"], &["vtid"]);
    for _ in 0..2 {
        daemon.run(300);
        daemon.lttng(&["snapshot", "record"]);
    }
    daemon.end();
    for snapshot in traces_below(&session) {
        assert_agreement(daemon.world, &[&snapshot]);
    }
}
