//! A fixture with a program whose system calls are distinguishable from all others.

use std::fs;
use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use trackway_tests::{Fixture, has, has_kernel_events, lossy_text};

/// Offset that is added to the program's numbers.
const NUMBER_BASE: u64 = 1_000_000_000;
/// Number of numbers that a test uses alone. Programs of other tests on this machine are recorded,
/// too.
const NUMBERS_PER_TEST: u64 = 250_000;
/// Number of tests for which the numbers suffice: numbers are process ids.
const TESTS_MAX: u64 = (i32::MAX as u64 - NUMBER_BASE) / NUMBERS_PER_TEST - 1;

/// Lock by which the tests run one at a time: each records all processes.
static TEST_LOCK: Mutex<()> = Mutex::new(());

/// A fixture with the program of `kernel/calls.c`.
pub(crate) struct KernelTest {
    pub(crate) fixture: Fixture,
    pub(crate) program: PathBuf,
    /// First number of the test, without the offset.
    first: u64,
    _turn: MutexGuard<'static, ()>,
}

impl KernelTest {
    /// Makes a fixture; returns `None`, after printing the reason, if kernel events cannot be
    /// recorded.
    pub(crate) fn new(name: &str) -> Option<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let turn = TEST_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        let fixture = Fixture::new(name);
        if !has_kernel_events(&fixture) {
            return None;
        }
        let program = fixture.compile_file("kernel/calls.c", true, &[]);
        let number = u64::from(std::process::id()) * 37 + NEXT.fetch_add(1, Ordering::Relaxed);
        Some(Self {
            fixture,
            program,
            first: (1 + number % TESTS_MAX) * NUMBERS_PER_TEST,
            _turn: turn,
        })
    }

    pub(crate) fn command(&self, line: &str) -> Command {
        self.fixture.trackway(&line.split_whitespace().collect::<Vec<_>>())
    }

    /// Runs `trackway LINE`, which must succeed; returns its output and its messages.
    pub(crate) fn ok(&self, line: &str) -> (String, String) {
        let output = self.command(line).output().expect("trackway runs");
        let told = (lossy_text(&output.stdout), lossy_text(&output.stderr));
        assert!(output.status.success(), "trackway {line}: {}", told.1);
        told
    }

    /// Runs `trackway LINE`, which must fail; returns its messages.
    pub(crate) fn refused(&self, line: &str) -> String {
        let output = self.command(line).output().expect("trackway runs");
        assert!(!output.status.success(), "trackway {line}: {}", lossy_text(&output.stdout));
        lossy_text(&output.stderr)
    }

    pub(crate) fn status(&self, session: &str) -> Value {
        let (text, _) = self.ok(&format!("session status {session} --format json"));
        serde_json::from_str(&text).expect("JSON")
    }

    /// Runs a program that makes calls with these numbers, one after the other, and ends.
    pub(crate) fn calls(&self, numbers: Range<u64>) {
        let mut program = self.fixture.command(&self.program);
        program.args([
            (numbers.end - numbers.start).to_string(),
            (self.first + numbers.start).to_string(),
        ]);
        let output = program.output().expect("it runs");
        assert!(output.status.success(), "{output:?}");
    }

    /// Returns the first number of the test for a program that another command runs: as the
    /// program's argument, and as the argument of the system call.
    pub(crate) fn first(&self) -> (u64, u64) {
        (self.first, NUMBER_BASE + self.first)
    }

    /// Starts a shell that runs the script, with the program as `$0`, and its first number as `$1`.
    pub(crate) fn shell(&self, script: &str) -> WaitingShell {
        let mut shell = self.fixture.command("sh");
        shell.args(["-c", script]).arg(&self.program).arg(self.first.to_string());
        shell.stdin(Stdio::piped());
        WaitingShell(shell.spawn().expect("a shell"))
    }

    /// Returns the lines of a trace. If babeltrace2 is installed, its lines must be equal.
    pub(crate) fn lines(&self, trace: &str) -> Vec<String> {
        let path = self.fixture.path(trace);
        let printed = self.fixture.print(&path);
        if has("babeltrace2") {
            let theirs = self.fixture.babeltrace(&path).expect("it is there");
            assert!(theirs.stdout == printed.as_bytes(), "babeltrace2 prints something else");
        }
        printed.lines().map(str::to_owned).collect()
    }

    /// Returns the number in a call's entry, if the test's program made the call.
    pub(crate) fn number(&self, line: &str) -> Option<u64> {
        let rest = line.split_once("{ pid = ")?.1;
        let number =
            rest.split(' ').next()?.parse::<u64>().ok()?.checked_sub(NUMBER_BASE + self.first)?;
        (number < NUMBERS_PER_TEST).then_some(number)
    }

    /// Returns the numbers of the calls' entries, in the order of the lines.
    pub(crate) fn numbers(&self, lines: &[String]) -> Vec<u64> {
        let is_it = |line: &&String| line.contains(" syscall_entry_getpgid: ");
        lines.iter().filter(is_it).filter_map(|line| self.number(line)).collect()
    }

    /// Asserts that a trace has these calls, in this order, and no other calls of the program.
    pub(crate) fn check(&self, trace: &str, expected: impl IntoIterator<Item = u64>) {
        let (found, expected) = (self.numbers(&self.lines(trace)), expected.into_iter());
        let expected: Vec<u64> = expected.collect();
        let ends = |list: &[u64]| (list.len(), list.first().copied(), list.last().copied());
        assert!(found == expected, "{trace}: {:?}, not {:?}", ends(&found), ends(&expected));
    }
}

/// A shell that waits for lines.
pub(crate) struct WaitingShell(Child);

impl WaitingShell {
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn go_on(&mut self) {
        let input = self.0.stdin.as_mut().expect("a pipe");
        input.write_all(b"\n").expect("it reads");
    }

    pub(crate) fn wait(&mut self) {
        assert!(self.0.wait().expect("a child").success());
    }
}

impl Drop for WaitingShell {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the names and sizes of the stream files in a folder.
pub(crate) fn stream_file_sizes(folder: &Path) -> Vec<(String, u64)> {
    let entries = fs::read_dir(folder).expect("a folder").flatten();
    let sized = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        name.starts_with("kernel")
            .then(|| entry.metadata().map(|status| (name, status.len())).ok())?
    });
    sized.collect()
}
