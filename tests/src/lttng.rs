//! lttng-sessiond for a test. The daemon runs as an ordinary user with a home in the test's folder,
//! and dies with the test. If the test runs as root, the daemon runs as the user `nobody`, because
//! root can have only one daemon.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Output, Stdio};

use crate::steps::wait_for;
use crate::{Fixture, is_root};

/// Programs that a daemon and its applications need.
pub const NEEDED_PROGRAMS: [&str; 5] =
    ["lttng", "lttng-sessiond", "lttng-gen-tp", "setpriv", "gcc"];

/// The running daemon; dropping this value ends it, by its id.
pub struct LttngDaemon<'fixture> {
    /// Fixture whose folder is the daemon's home.
    pub fixture: &'fixture Fixture,
    child: Child,
}

impl<'fixture> LttngDaemon<'fixture> {
    /// Starts the daemon and waits until it answers.
    ///
    /// # Panics
    /// If the daemon does not answer.
    pub fn start(fixture: &'fixture Fixture) -> Self {
        let home = fixture.path("home");
        std::fs::create_dir(&home).unwrap();
        for folder in [&fixture.path(""), &home] {
            std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777)).unwrap();
        }
        let mut command = unprivileged_command(fixture, "lttng-sessiond");
        command.args(["--no-kernel", "--quiet"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("setpriv runs");
        let daemon = Self { fixture, child };
        wait_for("lttng-sessiond answers", || {
            daemon.lttng_command(&["list"]).output().is_ok_and(|output| output.status.success())
        });
        daemon
    }

    /// Makes a command that runs as the recording user.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        unprivileged_command(self.fixture, program)
    }

    fn lttng_command(&self, arguments: &[&str]) -> Command {
        let mut command = self.command("lttng");
        command.args(["--no-sessiond", "--quiet"]).args(arguments);
        command
    }

    /// Runs `lttng ARGUMENTS`, and returns its output whether it succeeds or fails.
    ///
    /// # Panics
    /// If `lttng` cannot be run.
    pub fn lttng_output(&self, arguments: &[&str]) -> Output {
        self.lttng_command(arguments).output().expect("setpriv runs")
    }

    /// Runs `lttng ARGUMENTS`.
    ///
    /// # Panics
    /// If `lttng` fails.
    pub fn lttng(&self, arguments: &[&str]) {
        let output = self.lttng_output(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "lttng {arguments:?}: {said}");
    }
}

impl Drop for LttngDaemon<'_> {
    fn drop(&mut self) {
        // SAFETY: kill has no preconditions; the process is ours and not yet waited for.
        unsafe { libc::kill(self.child.id().cast_signed(), libc::SIGTERM) };
        // The daemon ends its consumer daemons first.
        let _ = self.child.wait();
    }
}

fn unprivileged_command(fixture: &Fixture, program: impl AsRef<OsStr>) -> Command {
    let mut command = fixture.command("setpriv");
    if is_root() {
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    }
    // If the test is killed, its children are killed, too.
    command.args(["--pdeathsig", "TERM"]).arg(program);
    command.env("LTTNG_HOME", fixture.path("home")).env("LTTNG_UST_REGISTER_TIMEOUT", "-1");
    command.env_remove("LTTNG_RUNDIR");
    command
}
