//! Steps: programs that count their own events in memory that the test can read, and checks of the
//! trace against these counts. `tests/lives/steps.h` is the programs' part.
//!
//! Every event carries its stream, its number in the stream, and the ids of its process and thread.
//! So one check serves every test: no event twice, in the wrong order, or not emitted, contexts
//! equal to the program's values, and recorded + lost = emitted.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::{Fixture, Recording, source_dir};

/// Number of streams for which the file has space.
const STREAMS_MAX: usize = 12_000;
/// Number of bytes before the first stream.
const HEAD_BYTES: usize = 16;
/// Longest time that a test waits for any condition.
const WAIT_MAX: Duration = Duration::from_secs(40);

/// One event of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Stream of the event.
    pub stream: u32,
    /// Number of the event in its stream.
    pub number: u64,
    /// Id of the emitting process, from the event's field.
    pub pid: u32,
    /// Id of the emitting thread, from the event's field.
    pub tid: u32,
    /// Id of the emitting process, from the context.
    pub vpid: u32,
    /// Id of the emitting thread, from the context.
    pub vtid: u32,
}

/// The file in which programs count their steps.
pub struct Steps {
    path: PathBuf,
}

/// Counts that the programs reported.
pub struct StepCounts {
    /// Number of events begun, by stream.
    pub started: BTreeMap<u32, u64>,
    /// Number of calls that returned, by stream.
    pub returned: BTreeMap<u32, u64>,
}

impl StepCounts {
    /// Returns the number of events begun, in all streams.
    pub fn emitted(&self) -> u64 {
        self.started.values().sum()
    }

    /// Returns the number of calls that returned, in all streams.
    pub fn completed(&self) -> u64 {
        self.returned.values().sum()
    }
}

impl Steps {
    /// Makes a file of counters in `fixture`, all zero.
    pub fn new(fixture: &Fixture, name: &str) -> Self {
        let path = fixture.path(name);
        fs::write(&path, vec![0; HEAD_BYTES + STREAMS_MAX * 16]).expect("the counters' file");
        Self { path }
    }

    /// Returns the path of the file: the value of the environment variable STEPS.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn word(&self, at: u64) -> u32 {
        let mut bytes = [0; 4];
        let file = fs::File::open(&self.path).expect("the counters' file");
        file.read_exact_at(&mut bytes, at).expect("its head");
        u32::from_le_bytes(bytes)
    }

    /// Returns the process id that the program stored.
    pub fn pid(&self) -> u32 {
        self.word(8)
    }

    /// Returns the step that the program has reached.
    pub fn ready(&self) -> u32 {
        self.word(12)
    }

    /// Notifies the program to end.
    pub fn stop(&self) {
        let file = fs::OpenOptions::new().write(true).open(&self.path).expect("the file");
        file.write_all_at(&1_u32.to_le_bytes(), 4).expect("its head");
    }

    /// Waits until the program has reached step `ready`.
    pub fn wait_ready(&self, ready: u32) {
        wait_for("the program to be ready", || self.ready() >= ready);
    }

    /// Waits until `more` events have been emitted from now on.
    pub fn wait_more(&self, more: u64) {
        let now = self.counts().completed();
        wait_for("more events", || self.counts().completed() >= now + more);
    }

    /// Returns the current counts.
    pub fn counts(&self) -> StepCounts {
        let bytes = fs::read(&self.path).expect("the counters' file");
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let mut counts = StepCounts { started: BTreeMap::new(), returned: BTreeMap::new() };
        for stream in 0..STREAMS_MAX {
            let at = HEAD_BYTES + stream * 16;
            if word(at) > 0 {
                counts.started.insert(stream as u32, word(at));
                counts.returned.insert(stream as u32, word(at + 8));
            }
        }
        counts
    }

    /// Checks that the trace of `recording` holds exactly the emitted events, less the reported
    /// losses.
    pub fn check(&self, fixture: &Fixture, recording: &Recording) {
        let counts = self.counts();
        assert_eq!(counts.started, counts.returned, "{}", recording.messages());
        self.check_killed(fixture, recording);
    }

    /// Checks the trace like [`Self::check`] if programs were killed: an event that was begun and
    /// never returned may be present or not.
    pub fn check_killed(&self, fixture: &Fixture, recording: &Recording) {
        let messages = recording.messages();
        let counts = self.counts();
        let found = self.check_order(fixture, recording);
        let (recorded, lost) = (recording.summary.recorded, recording.summary.lost);
        assert!(recorded > 0, "nothing was recorded: {messages}");
        let sum: u64 = found.values().sum();
        assert_eq!(sum, recorded, "the summary counts what the trace holds: {messages}");
        assert!(
            (counts.completed()..=counts.emitted()).contains(&(recorded + lost)),
            "recorded {recorded} + lost {lost}, emitted {}…{}: {messages}",
            counts.completed(),
            counts.emitted(),
        );
        if lost == 0 {
            for (stream, &returned) in &counts.returned {
                let found = found.get(stream).copied().unwrap_or(0);
                assert!(found >= returned, "stream {stream}: {found} of {returned}: {messages}");
            }
        }
    }

    /// Checks all conditions except the sums; returns the number of events of each stream.
    pub fn check_order(&self, fixture: &Fixture, recording: &Recording) -> BTreeMap<u32, u64> {
        let counts = self.counts();
        let mut found: BTreeMap<u32, u64> = BTreeMap::new();
        let mut next: BTreeMap<u32, u64> = BTreeMap::new();
        for step in parse_steps(&fixture.print(&recording.trace)) {
            assert_eq!((step.vpid, step.vtid), (step.pid, step.tid), "contexts of {step:?}");
            let expected = next.entry(step.stream).or_default();
            assert!(step.number >= *expected, "{step:?} after number {}", *expected - 1);
            *expected = step.number + 1;
            let emitted = counts.started.get(&step.stream).copied().unwrap_or(0);
            assert!(step.number < emitted, "{step:?} of {emitted}");
            *found.entry(step.stream).or_default() += 1;
        }
        found
    }
}

/// Returns the events `life:step` in the output of `trackway print`.
pub fn parse_steps(text: &str) -> Vec<Step> {
    text.lines().filter(|line| line.contains(" life:step: ")).map(parse_step).collect()
}

fn parse_step(line: &str) -> Step {
    let field = |name: &str| -> u64 {
        let (_, rest) = line.split_once(&format!(" {name} = ")).expect("a field");
        let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().expect("a number")
    };
    let small = |name: &str| u32::try_from(field(name)).expect("an id");
    Step {
        stream: small("who"),
        number: field("number"),
        pid: small("pid"),
        tid: small("tid"),
        vpid: small("vpid"),
        vtid: small("vtid"),
    }
}

/// Waits until `done` returns true.
///
/// # Panics
/// If the condition is not true after a long time.
pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < WAIT_MAX, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns true if a process exists and is not a zombie.
pub fn is_running(pid: u32) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    text.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// A started program that ends with the test, also if the test fails.
pub struct RunningProgram {
    child: Option<Child>,
    /// File of the program's steps, if a program that the command started must end, too.
    steps: Option<PathBuf>,
}

impl RunningProgram {
    /// Starts `command`, and keeps its output.
    pub fn start(command: &mut Command) -> Self {
        // SAFETY: prctl is async-signal-safe and touches nothing of ours.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        let steps = command
            .get_envs()
            .find_map(|(key, value)| (key == "STEPS").then(|| value.map(PathBuf::from)))
            .flatten();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self { child: Some(command.spawn().expect("the program starts")), steps }
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("it is there until it was waited for").id()
    }

    /// Sends a signal to the process.
    pub fn signal(&self, signal: i32) {
        send_signal(self.pid().cast_signed(), signal);
    }

    /// Returns true while the process has not ended.
    pub fn runs(&mut self) -> bool {
        let child = self.child.as_mut().expect("it is there until it was waited for");
        child.try_wait().expect("its state").is_none()
    }

    /// Waits until the process ends; returns its output.
    pub fn finish(mut self) -> Output {
        let mut child = self.child.take().expect("it is there until now");
        let begin = Instant::now();
        // Separate threads read the pipes to their ends, so that the process never waits for the
        // test.
        let streams = (child.stdout.take(), child.stderr.take());
        let reader = |stream: Option<Box<dyn Read + Send>>| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                if let Some(mut stream) = stream {
                    let _ = stream.read_to_end(&mut bytes);
                }
                bytes
            })
        };
        let stdout = reader(streams.0.map(|stream| Box::new(stream) as _));
        let stderr = reader(streams.1.map(|stream| Box::new(stream) as _));
        let status = loop {
            if let Some(status) = child.try_wait().expect("its state") {
                break status;
            }
            if begin.elapsed() > WAIT_MAX {
                let pid = child.id();
                self.child = Some(child);
                drop(self);
                panic!("process {pid} did not end: {}", lossy_thread_output(stderr.join()));
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let take = |thread: std::thread::JoinHandle<Vec<u8>>| thread.join().expect("a reader");
        Output { status, stdout: take(stdout), stderr: take(stderr) }
    }
}

fn lossy_thread_output(bytes: std::thread::Result<Vec<u8>>) -> String {
    String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
}

/// Restores the default actions of signals for a command. Under nohup(1), or in the background of a
/// shell, the tests and all their processes would ignore some signals.
pub fn restore_signal_actions(command: &mut Command) {
    // SAFETY: signal(2) may be called between fork and exec.
    unsafe {
        command.pre_exec(|| {
            for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        });
    }
}

/// Sends a signal to a process, or to a process group if `pid` is negative.
pub fn send_signal(pid: i32, signal: i32) {
    assert!(pid != 0 && pid != -1, "only what the test started");
    // SAFETY: kill has no memory of ours.
    unsafe { libc::kill(pid, signal) };
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        let Some(child) = &mut self.child else { return };
        // A recorder's command ends first: its file of steps identifies it.
        if let Some(path) = self.steps.take() {
            let pid = Steps { path }.pid();
            if pid != 0 && is_running(pid) {
                send_signal(pid.cast_signed(), libc::SIGKILL);
            }
        }
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Fixture {
    /// Compiles `tests/FOLDER/NAME.c`.
    pub fn compile_file(&self, file: &str, linked: bool, flags: &[&str]) -> PathBuf {
        let path = source_dir().join("tests").join(file);
        let text = fs::read_to_string(&path).expect("a test's source");
        let folder = format!("-I{}", path.parent().expect("a folder").display());
        let mut all = vec![folder.as_str()];
        all.extend(flags);
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        self.compile(&name, &text, linked, &all)
    }

    /// Makes the command `trackway record OPTIONS -o TRACE -- COMMAND`; the command counts in
    /// `steps`.
    pub fn recorder<S: AsRef<std::ffi::OsStr>>(
        &self,
        steps: &Steps,
        trace: &Path,
        options: &[&str],
        command: &[S],
    ) -> Command {
        let mut recorder =
            self.trackway(&["record", "--event", "life:*", "--context", "vpid,vtid"]);
        recorder.arg("-o").arg(trace).args(options).arg("--").args(command);
        recorder.env("STEPS", steps.path());
        recorder
    }

    /// Records a program of steps to its end.
    pub fn record_steps<S: AsRef<std::ffi::OsStr>>(
        &self,
        steps: &Steps,
        options: &[&str],
        command: &[S],
    ) -> Recording {
        let trace = self.path("trace");
        let mut recorder = self.recorder(steps, &trace, options, command);
        Recording::new(trace, RunningProgram::start(&mut recorder).finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let line = "[03:00:00.000000001] (+?.?????????) h life:step: { cpu_id = 1 }, \
                    { vpid = 5, vtid = 6 }, { who = 3, number = 4, pid = 7, tid = 8 }";
        let expected = Step { stream: 3, number: 4, pid: 7, tid: 8, vpid: 5, vtid: 6 };
        assert_eq!(parse_steps(line), [expected]);
    }
}
