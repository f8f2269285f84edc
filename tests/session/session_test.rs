//! A fixture for sessions: the command, the program that counts, and checks of the trace.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

use serde_json::Value;
use trackway_tests::Fixture;
use trackway_tests::steps::{RunningProgram, Steps};

/// Numbers of each stream, in the order of the trace.
pub(crate) type StreamNumbers = BTreeMap<u32, Vec<u64>>;

/// Stream of programs that run to their end, distinct from the streams of continuing programs.
pub(crate) const RUN_ONCE_STREAM: u32 = 10_000;

/// A fixture with the program of `emitter.c`.
pub(crate) struct SessionTest {
    pub(crate) fixture: Fixture,
    pub(crate) emitter: PathBuf,
    _compiled: Arc<CompiledProgram>,
}

/// The program, compiled once for all tests of this process.
struct CompiledProgram {
    path: PathBuf,
    _fixture: Fixture,
}

impl CompiledProgram {
    fn get() -> Arc<Self> {
        static LAST: Mutex<Weak<CompiledProgram>> = Mutex::new(Weak::new());
        let mut last = LAST.lock().expect("it compiled the last time, too");
        if let Some(compiled) = last.upgrade() {
            return compiled;
        }
        let fixture = Fixture::new("session-emitter");
        let path = fixture.compile_file("session/emitter.c", true, &[]);
        let compiled = Arc::new(Self { path, _fixture: fixture });
        *last = Arc::downgrade(&compiled);
        compiled
    }
}

impl SessionTest {
    pub(crate) fn new(name: &str) -> Self {
        let compiled = CompiledProgram::get();
        Self { fixture: Fixture::new(name), emitter: compiled.path.clone(), _compiled: compiled }
    }

    /// Makes the command `trackway LINE`.
    pub(crate) fn command(&self, line: &str) -> Command {
        self.fixture.trackway(&line.split_whitespace().collect::<Vec<_>>())
    }

    /// Runs `trackway LINE` and returns its output.
    pub(crate) fn run(&self, line: &str) -> Output {
        self.command(line).output().expect("trackway runs")
    }

    /// Runs `trackway LINE`, which must succeed; returns its output and its messages.
    pub(crate) fn ok(&self, line: &str) -> (String, String) {
        let (is_success, text, talk) = command_result(&self.run(line));
        assert!(is_success, "trackway {line}: {talk}");
        (text, talk)
    }

    /// Runs `trackway LINE`, which must fail; returns its messages.
    pub(crate) fn refused(&self, line: &str) -> String {
        let (is_success, text, talk) = command_result(&self.run(line));
        assert!(!is_success && text.is_empty(), "trackway {line}: {text}{talk}");
        talk
    }

    /// Returns the status of a session.
    pub(crate) fn status(&self, session: &str) -> Value {
        let (text, _) = self.ok(&format!("session status {session} --format json"));
        serde_json::from_str(&text).expect("JSON")
    }

    /// Returns all sessions.
    pub(crate) fn list(&self) -> Vec<Value> {
        let (text, _) = self.ok("session list --format json");
        serde_json::from_str(&text).expect("JSON")
    }

    /// Returns the process id of a session's recorder.
    pub(crate) fn recorder_of(&self, session: &str) -> u32 {
        let pid = self.status(session)["pid"].as_u64().expect("a process id");
        u32::try_from(pid).expect("a process id")
    }

    /// Makes the command that runs the program, which counts in `steps`.
    pub(crate) fn program(&self, steps: &Steps, mode: &str, argument: u64) -> Command {
        let mut command = self.fixture.command(&self.emitter);
        command.arg(mode).arg(argument.to_string()).env("STEPS", steps.path());
        command
    }

    /// Runs the program in this mode to its end. It counts in the stream [`RUN_ONCE_STREAM`].
    pub(crate) fn emit(&self, mode: &str, argument: u64) -> Output {
        let steps = self.steps_of_one();
        let output = self.program(&steps, mode, argument).output().expect("the program runs");
        assert!(output.status.success(), "{output:?}");
        output
    }

    /// Returns the counters of a program that counts in the stream [`RUN_ONCE_STREAM`].
    pub(crate) fn steps_of_one(&self) -> Steps {
        self.steps_from(RUN_ONCE_STREAM)
    }

    /// Makes the counters of a program that counts in this stream and the following ones.
    pub(crate) fn steps_from(&self, first: u32) -> Steps {
        let steps = new_steps(self);
        write_word(&steps, 0, first);
        steps
    }

    /// Counts a trace's events by name.
    pub(crate) fn names(&self, trace: &str) -> BTreeMap<String, usize> {
        let mut names = BTreeMap::new();
        for line in self.fixture.print(&self.fixture.path(trace)).lines() {
            let (before, _) = line.split_once(": {").expect("an event");
            let name = before.rsplit(' ').next().expect("a name");
            *names.entry(name.to_owned()).or_default() += 1;
        }
        names
    }

    /// Returns the numbers in a trace, which must be equal from `trackway print` and babeltrace2.
    pub(crate) fn numbers(&self, trace: &str) -> StreamNumbers {
        let trace = self.fixture.path(trace);
        let numbers = parse_numbers(&self.fixture.print(&trace));
        if let Some(output) = self.fixture.babeltrace(&trace) {
            let theirs = parse_numbers(&String::from_utf8_lossy(&output.stdout));
            assert!(theirs == numbers, "babeltrace2 reads another trace");
        }
        numbers
    }

    /// Returns true if a trace is marked as complete.
    pub(crate) fn is_complete(&self, trace: &str) -> bool {
        self.fixture.path(trace).join("ust/uid").exists() && self.mark(trace).is_some()
    }

    /// Returns the path of the file that marks a complete trace.
    pub(crate) fn mark(&self, trace: &str) -> Option<PathBuf> {
        find_file(&self.fixture.path(trace), "complete")
    }
}

/// The running program, which counts continuously.
pub(crate) struct CountingProgram {
    pub(crate) steps: Steps,
    pub(crate) running: RunningProgram,
}

impl CountingProgram {
    /// Starts threads that count, and waits until they count.
    pub(crate) fn threads(test: &SessionTest, count: u64) -> Self {
        let steps = new_steps(test);
        let running = RunningProgram::start(&mut test.program(&steps, "threads", count));
        steps.wait_ready(1);
        Self { steps, running }
    }

    /// Ends the program, and checks that it succeeded.
    pub(crate) fn finish(self) -> Steps {
        self.steps.stop();
        let output = self.running.finish();
        assert!(output.status.success(), "{output:?}");
        self.steps
    }
}

/// The running program, which counts in bursts of equal size.
pub(crate) struct BurstProgram {
    pub(crate) steps: Steps,
    pub(crate) running: RunningProgram,
    done: u32,
}

impl BurstProgram {
    /// Starts the program and waits for its first burst.
    pub(crate) fn of(test: &SessionTest, count: u64) -> Self {
        let steps = new_steps(test);
        let mut program = test.program(&steps, "bursts", count);
        Self::begin(steps, &mut program)
    }

    /// Starts the program by this command; the program counts in `steps`.
    pub(crate) fn begin(steps: Steps, program: &mut Command) -> Self {
        let running = RunningProgram::start(program);
        steps.wait_ready(1);
        Self { steps, running, done: 1 }
    }

    /// Makes the program emit one more burst; returns after the burst.
    pub(crate) fn next(&mut self) {
        write_word(&self.steps, 4, self.done);
        self.done += 1;
        self.steps.wait_ready(self.done);
    }

    /// Ends the program; returns its output.
    pub(crate) fn finish(self) -> Output {
        write_word(&self.steps, 4, u32::MAX);
        self.running.finish()
    }
}

/// Makes separate counters for one program.
fn new_steps(test: &SessionTest) -> Steps {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    Steps::new(&test.fixture, &format!("counters-{number}"))
}

/// Writes a word in the head of a file of counters.
fn write_word(steps: &Steps, at: u64, word: u32) {
    let file = std::fs::OpenOptions::new().write(true).open(steps.path());
    let file = file.expect("the counters' file");
    file.write_all_at(&word.to_le_bytes(), at).expect("its head");
}

/// Returns the result of a command: true if it succeeded, its output, and its messages.
pub(crate) fn command_result(output: &Output) -> (bool, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

/// Returns the numbers in printed events. The thread's contexts must be right, if there are any.
pub(crate) fn parse_numbers(text: &str) -> StreamNumbers {
    let mut numbers = StreamNumbers::new();
    for line in text.lines().filter(|line| line.contains(" life:step: ")) {
        let field = |name: &str| {
            let (_, rest) = line.split_once(&format!(" {name} = "))?;
            let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
            rest[..end].parse::<u64>().ok()
        };
        for (context, own) in [("vpid", "pid"), ("vtid", "tid")] {
            assert!(field(context).is_none_or(|id| Some(id) == field(own)), "{line}");
        }
        let stream = field("who").and_then(|stream| u32::try_from(stream).ok()).expect("a stream");
        numbers.entry(stream).or_default().push(field("number").expect("a number"));
    }
    numbers
}

/// Asserts that every counted number is present, once and in order.
pub(crate) fn assert_all_present(numbers: &StreamNumbers, steps: &Steps) {
    let counts = steps.counts();
    assert_eq!(counts.started, counts.returned);
    assert!(counts.emitted() > 0, "nothing was emitted");
    for (stream, &count) in &counts.started {
        assert_range_present(numbers, *stream, 0..count);
    }
    let there: usize = numbers.values().map(Vec::len).sum();
    assert_eq!(there as u64, counts.emitted(), "more is there than was emitted");
}

/// Asserts that these numbers of a stream are present, once and in order.
pub(crate) fn assert_range_present(numbers: &StreamNumbers, stream: u32, range: Range<u64>) {
    let mut expected = range.clone();
    for &number in numbers.get(&stream).into_iter().flatten().filter(|it| range.contains(it)) {
        assert_eq!(Some(number), expected.next(), "stream {stream}, {range:?}");
    }
    assert_eq!(expected.next(), None, "stream {stream}, {range:?}");
}

/// Asserts that none of these numbers of a stream is present.
pub(crate) fn assert_range_absent(numbers: &StreamNumbers, stream: u32, range: Range<u64>) {
    let found = numbers.get(&stream).into_iter().flatten().find(|it| range.contains(it));
    assert_eq!(found, None, "stream {stream}, {range:?}");
}

/// Returns the first file of this name below a folder.
fn find_file(folder: &Path, name: &str) -> Option<PathBuf> {
    let entries: Vec<_> = std::fs::read_dir(folder).ok()?.flatten().collect();
    let path = folder.join(name);
    if path.is_file() {
        return Some(path);
    }
    let folders = entries.into_iter().filter(|entry| entry.path().is_dir());
    folders.into_iter().find_map(|entry| find_file(&entry.path(), name))
}
