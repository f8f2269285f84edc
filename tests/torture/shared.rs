//! The file that the tortured program and its test share: orders, and counts.
//!
//! ```text
//!    0  words, u64 each, as `enum word` of workload.c names them
//! 4096  lanes, 64 bytes each: started u64 | returned u64 | pid u32 | tid u32 | process u16
//!                             | thread u16 | in_signal u32 | credit u64 | seed u64 | name[16]
//! ```
//!
//! A lane is one writer: a thread, or the handler of one signal in a thread. Its counts survive the
//! writer. The contents of its events follow from the lane's seed, and this seed from the round's.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use trackway_tests::{Fixture, build_dir, source_dir};

/// Most lanes; `LANES_MAX` of workload.c.
const LANES_MAX: u64 = 1 << 16;
const LANES_OFFSET: u64 = 4096;
const LANE_BYTES: usize = 64;

/// Words of the file, in the order of `enum word` of workload.c.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SharedWord {
    Stop,
    LanesUsed,
    Budget,
    Driver,
    Seed,
    DurationMs,
    Processes,
    Threads,
    AlarmUs,
    DirectedUs,
    Forks,
    Execs,
    Vforks,
    Kills,
    Hops,
    Nices,
    Restarts,
    BodyMax,
    Claims,
    Pace,
    Stops,
    Killed,
    Started,
    EndNs,
}

/// Orders to the program: values of its words.
pub(crate) type WorkloadOrders = Vec<(SharedWord, u64)>;

/// The shared file.
pub(crate) struct SharedFile {
    path: PathBuf,
    file: File,
}

/// The counts of one writer, from the writer itself.
#[derive(Debug, Clone)]
pub(crate) struct Lane {
    /// Number of events begun.
    pub(crate) started: u64,
    /// Number of events whose call returned.
    pub(crate) returned: u64,
    /// Process id of the writer.
    pub(crate) pid: u32,
    /// Thread id of the writer.
    pub(crate) tid: u32,
    /// Number of the writer's process.
    pub(crate) process: u16,
    /// Number of the writer's thread in its process.
    pub(crate) thread: u16,
    /// True if the lane belongs to a signal handler.
    pub(crate) in_signal: bool,
    /// Seed from which the writer's events are computed.
    pub(crate) seed: u64,
    /// Name of the writer's thread.
    pub(crate) name: String,
}

impl SharedFile {
    /// Makes a file in `fixture` with these orders.
    pub(crate) fn new(fixture: &Fixture, orders: &WorkloadOrders) -> Self {
        let path = fixture.path("shared");
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true);
        let file = options.open(&path).expect("the shared file is made");
        let length = LANES_OFFSET + LANES_MAX * LANE_BYTES as u64;
        file.set_len(length).expect("the shared file has a length");
        let shared = Self { path, file };
        shared.set(SharedWord::LanesUsed, 1);
        shared.set(SharedWord::Budget, u64::MAX / 2);
        shared.set(SharedWord::Driver, u64::from(std::process::id()));
        for &(word, value) in orders {
            shared.set(word, value);
        }
        shared
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the value of a word.
    pub(crate) fn get(&self, word: SharedWord) -> u64 {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, word as u64 * 8).expect("the shared file is read");
        u64::from_le_bytes(bytes)
    }

    /// Changes a word.
    pub(crate) fn set(&self, word: SharedWord, value: u64) {
        let bytes = value.to_le_bytes();
        self.file.write_all_at(&bytes, word as u64 * 8).expect("the shared file is written");
    }

    /// Returns all used lanes, by number. Lane 0 is unused.
    pub(crate) fn lanes(&self) -> Vec<Lane> {
        let count = self.get(SharedWord::LanesUsed).min(LANES_MAX) as usize;
        let mut bytes = vec![0; count * LANE_BYTES];
        self.file.read_exact_at(&mut bytes, LANES_OFFSET).expect("the lanes are read");
        bytes.chunks_exact(LANE_BYTES).map(Lane::decode).collect()
    }
}

impl Lane {
    fn decode(bytes: &[u8]) -> Self {
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let int = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let name = bytes[48..64].split(|&byte| byte == 0).next().unwrap_or_default();
        Self {
            started: long(0),
            returned: long(8),
            pid: int(16),
            tid: int(20),
            process: short(24),
            thread: short(26),
            in_signal: int(28) != 0,
            seed: long(40),
            name: String::from_utf8_lossy(name).into_owned(),
        }
    }
}

/// Compiles the workload program in `fixture`.
pub(crate) fn compile_workload(fixture: &Fixture) -> PathBuf {
    let source = source_dir().join("tests/torture/workload.c");
    let text = fs::read_to_string(source).expect("the workload's source");
    let warnings = ["-Wall", "-Wextra", "-Werror"];
    let program = fixture.compile("trackway-test-workload", &text, true, &warnings);
    assert!(build_dir().join("libtrackway.so").exists(), "libtrackway.so is not built");
    program
}

/// Returns the command of the workload: `trackway-test-workload FILE ROLE 0`, if `claiming` without
/// restartable sequences. `main` outlives all its children; a `process` ends at `Word::EndNs`.
pub(crate) fn workload_command(
    program: &Path,
    shared: &SharedFile,
    role: &str,
    claiming: bool,
) -> Vec<String> {
    let mut command = Vec::new();
    if claiming {
        command.extend(["env".to_owned(), "GLIBC_TUNABLES=glibc.pthread.rseq=0".to_owned()]);
    }
    command.extend([program.display().to_string(), shared.path().display().to_string()]);
    command.extend([role.to_owned(), "0".to_owned()]);
    command
}

/// A process and its group, which end when this value is dropped, also when the test fails.
pub(crate) struct ProcessGroup {
    child: Child,
    stop: Option<File>,
}

impl ProcessGroup {
    /// Starts `command` as the leader of a new process group. The `STOP` word of the file `shared`
    /// ends processes that left the group, or whose leader has ended.
    pub(crate) fn start(command: &mut Command, shared: Option<&SharedFile>) -> Self {
        use std::os::unix::process::CommandExt;
        // SAFETY: between fork and exec it makes one system call, and touches no memory.
        unsafe {
            command.pre_exec(|| {
                // The process ends with the test's thread, even if that thread cannot run `drop`.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        let stop = shared.map(|shared| shared.file.try_clone().expect("a second descriptor"));
        Self { child: command.process_group(0).spawn().expect("the command starts"), stop }
    }

    /// Waits at most `limit` until the leader ends.
    pub(crate) fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait().expect("our child") {
                return Some(status);
            }
            if Instant::now() > deadline {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Describes the program's threads, one per line: name, state, and place in the kernel.
    pub(crate) fn describe(&self) -> String {
        let mut text = String::new();
        for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let of_process = |name| fs::read_to_string(process.path().join(name));
            // After the name, which may contain any characters: state, parent, process group.
            let group = of_process("stat").ok().and_then(|stat| {
                let rest = stat.rsplit_once(')')?.1.to_owned();
                rest.split_whitespace().nth(2)?.parse::<u32>().ok()
            });
            if group != Some(self.child.id()) {
                continue;
            }
            for thread in fs::read_dir(process.path().join("task")).into_iter().flatten().flatten()
            {
                let of_thread = |name| fs::read_to_string(thread.path().join(name));
                let facts = ["comm", "stat", "wchan", "syscall"].map(of_thread);
                let facts = facts.map(|fact| fact.unwrap_or_default().trim_end().to_owned());
                let number = thread.file_name().to_string_lossy().into_owned();
                text.push_str(&format!("{number} {}\n", facts.join(" | ")));
            }
        }
        text
    }

    /// Sends a signal only to the leader, which is not reaped yet.
    pub(crate) fn signal(&self, signal: libc::c_int) {
        // SAFETY: kill has no preconditions; the child is ours and not reaped.
        unsafe { libc::kill(self.child.id().cast_signed(), signal) };
    }

    /// Sends a signal to the whole process group.
    pub(crate) fn signal_all(&self, signal: libc::c_int) {
        // SAFETY: kill has no preconditions. The leader is our child and is not reaped, so its
        // group's number cannot belong to another group.
        unsafe { libc::kill(-self.child.id().cast_signed(), signal) };
    }

    /// Waits until no process holds the program's standard output, which is a pipe, and all threads
    /// of its leader are dead. The leader is not reaped, so that its id is not reused.
    pub(crate) fn wait_for_all(&mut self) {
        if let Some(mut output) = self.child.stdout.take() {
            let mut rest = Vec::new();
            std::io::Read::read_to_end(&mut output, &mut rest).expect("a pipe is read");
        }
        self.wait_for_leader();
    }

    /// Waits until the leader is dead. The leader is not reaped, so that its id is not reused.
    pub(crate) fn wait_for_leader(&self) {
        // SAFETY: `ended` is a siginfo_t of ours, for which zeroes are valid; the child is ours.
        let status = unsafe {
            let mut ended: libc::siginfo_t = std::mem::zeroed();
            let how = libc::WEXITED | libc::WNOWAIT;
            libc::waitid(libc::P_PID, self.child.id(), &raw mut ended, how)
        };
        assert_eq!(status, 0, "the leader is waited for");
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(stop) = &self.stop {
            // The file may be removed already; a process that has mapped it still reads the word.
            let _ = stop.write_all_at(&1_u64.to_le_bytes(), SharedWord::Stop as u64 * 8);
        }
        self.signal_all(libc::SIGKILL);
        let _ = self.child.wait();
    }
}
