//! Helpers of the end-to-end tests, which run the built programs like a user.
//!
//! Every test has a separate [`Fixture`]: a temporary folder, a folder of sessions, and a window
//! folder in /dev/shm that no other test uses. Dropping the fixture removes all three and ends its
//! background recorders, also when the test fails. No test touches the user's own window or
//! sessions.

pub mod bench;
pub mod cgroup;
mod compiled;
pub mod lttng;
pub mod machine;
pub mod steps;
pub mod terminal;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use compiled::CompilationInput;
pub use trackway_testkit::{is_root, lossy_text, report_skipped};

/// Returns the folder of the sources: this checkout, or the copy that `scripts/test` made for
/// another user.
pub fn source_dir() -> PathBuf {
    match std::env::var_os("TRACKWAY_SOURCE_DIR") {
        Some(dir) => dir.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join(".."),
    }
}

/// Environment of a recorder whose lease is 2 s instead of 5 s: tests suspend recorders for longer.
pub const SHORT_LEASE: (&str, &str) = ("TRACKWAY_TEST_LEASE_MS", "2000");
/// Time for which tests suspend a recorder with [`SHORT_LEASE`].
pub const LONGER_THAN_SHORT_LEASE: Duration = Duration::from_millis(2200);

/// Returns the folder of the built programs and libraries.
pub fn build_dir() -> PathBuf {
    match std::env::var_os("TRACKWAY_BUILD_DIR") {
        Some(dir) => dir.into(),
        None => source_dir().join("target/release"),
    }
}

/// Returns the writer path that all recordings must use, if `TRACKWAY_TEST_RESERVE` names one.
pub fn forced_writer_path() -> Option<String> {
    std::env::var("TRACKWAY_TEST_RESERVE").ok()
}

/// Returns true if all recordings use the lockless writer path. The test, which needs another path,
/// is then skipped for the reason `because`.
pub fn skip_if_lockless(because: &str) -> bool {
    let is = forced_writer_path().is_some_and(|way| way == "lockless");
    if is {
        report_skipped(format!("of a lockless buffer {because}"));
    }
    is
}

/// Returns true if a program is installed.
pub fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// Copies a program that a test will run. Another process does the copying: a child that another
/// thread forks would keep the copy open for writing until its exec, and every other exec of the
/// copy would fail meanwhile (ETXTBSY).
pub fn copy_program(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-p").arg(from).arg(to).status().expect("cp runs");
    assert!(status.success(), "cp {} {}", from.display(), to.display());
}

/// Folders that only one test uses.
pub struct Fixture {
    dir: PathBuf,
    window: PathBuf,
}

impl Fixture {
    /// Makes the folders.
    pub fn new(name: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let unique = format!("trackway-test-{}-{}-{number}", name, std::process::id());
        let dir = std::env::temp_dir().join(&unique);
        let window = Path::new("/dev/shm").join(&unique);
        for dir in [&dir, &window] {
            fs::create_dir_all(dir).expect("a temporary folder");
        }
        Self { dir, window }
    }

    /// Returns a path in the temporary folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Returns the folder of this fixture's window.
    pub fn window_dir(&self) -> &Path {
        &self.window
    }

    /// Returns the run folder of this fixture. It does not exist before the first recording.
    pub fn run_dir(&self) -> PathBuf {
        self.path("run")
    }

    /// Ends the processes of this fixture: background recorders, and leftover processes of a failed
    /// test. Their environment has the window's folder, whose name contains this process's id.
    fn end_processes(&self) {
        let ours = format!("TRACKWAY_WINDOW_DIR={}", self.window.display());
        let is_ours = |pid: &u32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|entry| entry == ours.as_bytes())
        };
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        for pid in pids.filter(is_ours).collect::<Vec<u32>>() {
            steps::send_signal(pid.cast_signed(), libc::SIGKILL);
        }
    }

    /// Returns a command with this fixture's window and folder, and without an inherited tracing
    /// environment.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(&self.dir)
            .env("TRACKWAY_WINDOW_DIR", &self.window)
            .env("TRACKWAY_RUN_DIR", self.run_dir())
            .env("TZ", "UTC")
            .env_remove("TRACKWAY_TOKEN")
            .env_remove("LD_PRELOAD");
        command
    }

    /// Returns `trackway` with these arguments, in this fixture. Its recordings use the writer path
    /// of [`forced_writer_path`], so that the same tests cover all writer paths (`make ways`).
    pub fn trackway<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = self.command(build_dir().join("trackway"));
        let mut arguments = arguments.iter().map(AsRef::as_ref).peekable();
        if let Some(way) = forced_writer_path()
            && let Some(record) = arguments.next_if_eq(&OsStr::new("record"))
        {
            command.args([record, OsStr::new("--reserve"), OsStr::new(&way)]);
        }
        command.args(arguments);
        command
    }

    /// Runs `trackway record OPTIONS -o trace -- COMMAND` to its end.
    pub fn record<S: AsRef<OsStr>>(&self, options: &[&str], command: &[S]) -> Recording {
        let trace = self.path("trace");
        let mut recorder = self.trackway(&["record", "-o"]);
        recorder.arg(&trace).args(options).arg("--").args(command);
        let output = recorder.output().expect("trackway runs");
        Recording::new(trace, output)
    }

    /// Compiles a C program of this text, with the header, linked with libtrackway.so if `linked`.
    pub fn compile(&self, name: &str, text: &str, linked: bool, flags: &[&str]) -> PathBuf {
        self.compile_with("cc", &format!("{name}.c"), text, linked, flags)
    }

    /// Compiles a program like [`Self::compile`], with another compiler and a source file of this
    /// name; the program has the name of the file without its extension.
    pub fn compile_with(
        &self,
        compiler: &str,
        file: &str,
        text: &str,
        linked: bool,
        flags: &[&str],
    ) -> PathBuf {
        let source = self.path(file);
        fs::write(&source, text).expect("the source is written");
        let program = source.with_extension("");
        let compile = || self.run_compiler(compiler, &source, linked, flags);
        if self.has_headers() {
            compile();
            return program;
        }
        let [compiler, file, text] = [compiler, file, text].map(str::to_owned);
        let flags = flags.iter().map(ToString::to_string).collect();
        CompilationInput { compiler, file, text, is_linked: linked, flags }.put(&program, compile);
        program
    }

    /// Returns true if a program depends on headers of this fixture, so that the cache must not
    /// share it.
    fn has_headers(&self) -> bool {
        let entries = fs::read_dir(&self.dir).expect("its folder").flatten();
        let is_header = |path: PathBuf| path.extension().is_some_and(|end| end == "h");
        entries.into_iter().any(|entry| is_header(entry.path()))
    }

    /// Compiles `source` to a file with its name, without the extension.
    fn run_compiler(&self, compiler: &str, source: &Path, linked: bool, flags: &[&str]) {
        let mut cc = Command::new(compiler);
        cc.arg("-O2").arg("-I").arg(source_dir().join("include")).arg(source);
        cc.arg("-o").arg(source.with_extension("")).args(flags);
        if linked {
            let build = build_dir();
            // Some linkers leave out libraries to which a program has only weak references.
            cc.arg("-Wl,--no-as-needed").arg("-L").arg(&build).arg("-ltrackway");
            cc.arg(format!("-Wl,-rpath,{}", build.display()));
        }
        cc.arg("-lpthread");
        let output = cc.output().expect("cc runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Returns the standard output of `trackway print` for a trace.
    pub fn print(&self, trace: &Path) -> String {
        let output = self.trackway(&[OsStr::new("print"), trace.as_os_str()]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    /// Returns the output of babeltrace2 for a trace, or `None`, after printing the reason, if
    /// babeltrace2 is not installed.
    pub fn babeltrace(&self, trace: &Path) -> Option<Output> {
        if !has("babeltrace2") {
            report_skipped("babeltrace2 is not installed");
            return None;
        }
        let output = self.command("babeltrace2").arg(trace).output().expect("babeltrace2 runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(output)
    }
}

/// Returns true if two lists of printed lines agree as far as babeltrace2 is right. Version 2.0.4
/// prints the previous string in place of an empty string, so such lines are compared up to that
/// string. The same applies to system calls whose strings babeltrace2 does not take from the exit
/// event.
pub fn matches_babeltrace_lines(trackway: &str, babeltrace2: &str) -> bool {
    let lacks_text = |line: &str| {
        line.contains("syscall_entry_")
            && line.rsplit_once("incomplete = 0x").is_some_and(|(_, bits)| bits != "0 }")
    };
    let is_same = |(trackway, babeltrace2): (&str, &str)| match trackway.split_once(" = \"\"") {
        Some((before, _)) => babeltrace2.starts_with(before),
        None if trackway != babeltrace2 && lacks_text(babeltrace2) => {
            let fields = trackway.rfind(" }, { ").unwrap_or(0);
            let text = trackway[fields..].find(" = \"").map(|at| fields + at);
            text.is_some_and(|text| babeltrace2.starts_with(&trackway[..text]))
        }
        None => trackway == babeltrace2,
    };
    trackway.lines().count() == babeltrace2.lines().count()
        && trackway.lines().zip(babeltrace2.lines()).all(is_same)
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if self.run_dir().exists() {
            self.end_processes();
        }
        for dir in [&self.dir, &self.window] {
            // The folder may be read-only or partly removed; an error cannot be handled here.
            let _ = fs::remove_dir_all(dir);
        }
    }
}

/// Returns true if this machine can record kernel events; prints the reason if it cannot.
pub fn has_kernel_events(fixture: &Fixture) -> bool {
    if !is_root() {
        report_skipped("only root records the kernel's events");
        return false;
    }
    let output = fixture.trackway(&["list", "--kernel", "sched_switch"]).output().expect("it runs");
    if !output.status.success() {
        report_skipped("the kernel does not show its events here");
    }
    output.status.success()
}

/// Result of `trackway record`: its trace, its output and its exit status.
#[derive(Debug)]
pub struct Recording {
    /// The trace folder.
    pub trace: PathBuf,
    /// Exit status, output and messages.
    pub output: Output,
    /// The numbers of the summary line.
    pub summary: Summary,
}

/// The summary line: `trackway: N events recorded, M lost, P processes, B bytes in DIR`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Number of events in the trace.
    pub recorded: u64,
    /// Number of discarded events.
    pub lost: u64,
    /// Number of events overwritten by newer ones.
    pub overwritten: u64,
    /// Number of processes that took part.
    pub processes: u64,
}

impl Recording {
    /// Collects the results of a recorder that wrote to `trace`.
    pub fn new(trace: PathBuf, output: Output) -> Self {
        let summary = Summary::parse(&String::from_utf8_lossy(&output.stderr));
        Self { trace, output, summary }
    }

    /// Returns the messages of the recorder (and of the program).
    pub fn messages(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }
}

impl Summary {
    /// Finds the summary line in the recorder's messages; zeros if there is none.
    pub fn parse(messages: &str) -> Self {
        let line = messages
            .lines()
            .rfind(|line| line.starts_with("trackway: ") && line.contains(" recorded, "))
            .unwrap_or("");
        let number_before = |word: &str| -> u64 {
            let Some(at) = line.find(word) else { return 0 };
            let before = line[..at].trim_end();
            let digits: String = before
                .chars()
                .rev()
                .take_while(|digit| digit.is_ascii_digit() || *digit == ',')
                .filter(char::is_ascii_digit)
                .collect();
            digits.chars().rev().collect::<String>().parse().unwrap_or(0)
        };
        Self {
            recorded: number_before(" event"),
            lost: number_before(" lost"),
            overwritten: number_before(" overwritten"),
            processes: number_before(" process"),
        }
    }
}

/// Returns the number of events that babeltrace2 reports as discarded in its messages.
pub fn babeltrace_discarded_events(messages: &str) -> u64 {
    let mut sum = 0;
    for line in messages.lines() {
        // "… discarded 12 events between …"; discarded packets are overwritten packets of a flight
        // recorder.
        let Some((_, rest)) = line.split_once("discarded ") else { continue };
        let mut words = rest.split_whitespace();
        let number = words.next().and_then(|number| number.parse::<u64>().ok());
        if words.next().is_some_and(|word| word.starts_with("event")) {
            sum += number.unwrap_or(0);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discarded_events_are_read_and_packets_are_not() {
        let text = "WARNING: Tracer discarded 12 events between [1] and [2]\n\
                    WARNING: Tracer discarded 1 event between [1] and [2]\n\
                    WARNING: Tracer discarded 7 packets between [1] and [2]\n";
        assert_eq!(babeltrace_discarded_events(text), 13);
    }

    #[test]
    fn summary_lines_are_read() {
        let text = "x\ntrackway: 12 events recorded, 3 lost, 4 overwritten, 2 processes, \
                    5 bytes in d\n";
        let expected = Summary { recorded: 12, lost: 3, overwritten: 4, processes: 2 };
        assert_eq!(Summary::parse(text), expected);
        let one = Summary { recorded: 1, lost: 1234, ..Summary::default() };
        assert_eq!(Summary::parse("trackway: 1 event recorded, 1,234 lost, 5 bytes in d"), one);
        assert_eq!(Summary::parse("nothing"), Summary::default());
    }
}
