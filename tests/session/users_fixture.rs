//! Several users with programs and windows, for sessions of root over these users.
//!
//! The folder of windows has the mode of /dev/shm: every user may make files there, and remove only
//! their own files. The user ids belong to no account.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use trackway_tests::steps::{Steps, wait_for};
use trackway_tests::{build_dir, has, is_root, report_skipped};

use crate::session_test::{BurstProgram, SessionTest, StreamNumbers, assert_range_present};

pub(crate) const ANN_UID: u32 = 65_531;
pub(crate) const BOB_UID: u32 = 65_532;
pub(crate) const EVE_UID: u32 = 65_533;
/// Number of events of a burst, and of programs that run once.
pub(crate) const BURST_EVENTS: u64 = 200;

/// A fixture with several users.
pub(crate) struct UsersTest {
    pub(crate) test: SessionTest,
}

impl UsersTest {
    /// Makes a fixture of several users; returns `None`, after printing the reason, if that is
    /// impossible.
    pub(crate) fn new(name: &str) -> Option<Self> {
        if !is_root() || !has("setpriv") {
            report_skipped("only root has sessions over several users");
            return None;
        }
        let test = SessionTest::new(name);
        for path in [test.fixture.window_dir(), test.fixture.path("").as_path()] {
            fs::set_permissions(path, PermissionsExt::from_mode(0o1777)).expect("ours");
        }
        let users = Self { test };
        for path in [&build_dir().join("libtrackway.so"), &users.test.emitter] {
            let read = users.as_user(ANN_UID, "test").arg("-r").arg(path).status();
            if !read.is_ok_and(|status| status.success()) {
                report_skipped("what was built is not readable by other users");
                return None;
            }
        }
        Some(users)
    }

    /// Makes the command that runs a program as another user.
    pub(crate) fn as_user(&self, uid: u32, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = self.test.fixture.command("setpriv");
        command.arg(format!("--reuid={uid}")).arg(format!("--regid={uid}"));
        command.args(["--clear-groups", "--inh-caps=-all"]).arg(program);
        command
    }

    /// Runs `trackway LINE` as another user, with another run folder; returns its output.
    pub(crate) fn trackway_as(&self, uid: u32, line: &str) -> Output {
        let run = self.test.fixture.path(&format!("run-{uid}"));
        let mut command = self.as_user(uid, build_dir().join("trackway"));
        command.env("TRACKWAY_RUN_DIR", run).args(line.split_whitespace());
        command.output().expect("setpriv runs")
    }

    /// Returns the counting program, run as another user, with its counters. Its streams begin at
    /// the last digits of the user's id, so that each user has separate streams.
    pub(crate) fn program(&self, uid: u32, mode: &str) -> (Steps, Command) {
        self.program_of(uid, mode, BURST_EVENTS)
    }

    /// Returns the counting program like [`Self::program`], with an argument other than the number
    /// of steps at a time.
    pub(crate) fn program_of(&self, uid: u32, mode: &str, argument: u64) -> (Steps, Command) {
        let steps = self.test.steps_from(first_stream_of(uid));
        fs::set_permissions(steps.path(), PermissionsExt::from_mode(0o666)).expect("ours");
        let mut command = self.as_user(uid, &self.test.emitter);
        command.args([mode, &argument.to_string()]).env("STEPS", steps.path());
        (steps, command)
    }

    /// Runs the program to its end, as another user.
    pub(crate) fn emit(&self, uid: u32) {
        let (_, mut program) = self.program(uid, "steps");
        let output = program.output().expect("setpriv runs");
        assert!(output.status.success(), "{output:?}");
    }

    /// Starts the program as another user and waits for its first burst.
    pub(crate) fn bursts(&self, uid: u32) -> BurstProgram {
        let (steps, mut program) = self.program(uid, "bursts");
        BurstProgram::begin(steps, &mut program)
    }

    /// Returns the path of a user's window.
    pub(crate) fn window(&self, uid: u32) -> PathBuf {
        let folder = self.test.fixture.window_dir();
        let mine = fs::read_dir(folder).expect("a folder").flatten().find(|entry| {
            entry.file_name().to_string_lossy().starts_with(&format!("trackway-{uid}-v"))
        });
        mine.map_or_else(|| folder.join(self.window_name(uid)), |entry| entry.path())
    }

    /// Returns the file name of a user's window; root's window is in the same folder.
    pub(crate) fn window_name(&self, uid: u32) -> String {
        let root = self.window(0);
        let name = root.file_name().expect("a name").to_string_lossy();
        name.replacen("-0-", &format!("-{uid}-"), 1)
    }

    /// Waits until a session records this user.
    pub(crate) fn wait_for(&self, session: &str, uid: u32) {
        wait_for("the user's window", || self.users_of(session).contains_key(&uid));
    }

    /// Returns the users that a session records, with the number of events of each.
    pub(crate) fn users_of(&self, session: &str) -> BTreeMap<u32, u64> {
        let status = self.test.status(session);
        let number = |value: &serde_json::Value| value.as_u64().expect("a number");
        let user = |user: &serde_json::Value| {
            (u32::try_from(number(&user["uid"])).expect("a user"), number(&user["recorded"]))
        };
        status["users"].as_array().into_iter().flatten().map(user).collect()
    }

    pub(crate) fn notices(&self, session: &str) -> String {
        self.test.status(session)["notices"].to_string()
    }

    /// Returns the numbers in a trace, which must be in order of time.
    pub(crate) fn numbers(&self, trace: &str) -> StreamNumbers {
        let text = self.test.fixture.print(&self.test.fixture.path(trace));
        let times: Vec<&str> = text.lines().filter_map(|line| line.get(..20)).collect();
        assert!(times.is_sorted(), "{text}");
        self.test.numbers(trace)
    }

    /// Returns the folders of streams in a trace, in the form `UID/64-bit`.
    pub(crate) fn parts(&self, trace: &str) -> Vec<String> {
        let mut found = Vec::new();
        let below = |path: &Path| {
            fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path())
        };
        for user in below(&self.test.fixture.path(trace).join("ust/uid")) {
            for part in below(&user) {
                let names = [&user, &part].map(|path| path.file_name().expect("a name"));
                found.push(names.map(|name| name.to_string_lossy().into_owned()).join("/"));
            }
        }
        found.sort();
        found
    }

    /// Returns the number of files in the run folder for parts that are not complete.
    pub(crate) fn unfinished_parts(&self) -> usize {
        let entries = fs::read_dir(self.test.fixture.run_dir()).into_iter().flatten().flatten();
        entries.filter(|entry| entry.path().extension().is_some_and(|it| it == "part")).count()
    }
}

pub(crate) fn first_stream_of(uid: u32) -> u32 {
    10 * (uid % 100)
}

/// Asserts that these bursts of a user are in a trace.
pub(crate) fn assert_bursts_present(
    numbers: &StreamNumbers,
    uid: u32,
    bursts: std::ops::Range<u64>,
) {
    assert_range_present(
        numbers,
        first_stream_of(uid),
        bursts.start * BURST_EVENTS..bursts.end * BURST_EVENTS,
    );
}
