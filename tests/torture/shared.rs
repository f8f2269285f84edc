//! The file that the tortured program and its test share: what to do, and what was done.
//!
//! ```text
//!    0  words, u64 each, as `enum word` of workload.c names them
//! 4096  lanes, 64 bytes each: started u64 | returned u64 | pid u32 | tid u32
//!                             | process u16 | thread u16 | in_signal u32 | credit u64 | name[16]
//! ```
//!
//! A lane is one writer: a thread, or one signal's handler in a thread. Its numbers survive it.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use trackway_tests::{World, build_dir, source_dir};

/// Most lanes; `LANES_MAX` of workload.c.
const LANES_MAX: u64 = 1 << 16;
const LANES_AT: u64 = 4096;
const LANE_BYTES: usize = 64;

/// Words of the file, in the order of `enum word` of workload.c.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "workload.c explains them")]
pub enum Word {
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
    Killed,
    Started,
}

/// What the program is to do: values of its words.
pub type Orders = Vec<(Word, u64)>;

/// The file.
pub struct Shared {
    path: PathBuf,
    file: File,
}

/// One writer, as it counted itself.
#[derive(Debug, Clone)]
pub struct Lane {
    /// Events begun.
    pub started: u64,
    /// Events after which the call came back.
    pub returned: u64,
    /// Its process.
    pub pid: u32,
    /// Its thread.
    pub tid: u32,
    /// Number of its process.
    pub process: u16,
    /// Number of its thread in its process.
    pub thread: u16,
    /// Whether it is a handler.
    pub in_signal: bool,
    /// Name of its thread.
    pub name: String,
}

impl Shared {
    /// A new file in `world` with these orders.
    pub fn new(world: &World, orders: &Orders) -> Self {
        let path = world.path("shared");
        let file = File::options().read(true).write(true).create(true).truncate(true);
        let file = file.clone().open(&path).expect("the shared file is made");
        let length = LANES_AT + LANES_MAX * LANE_BYTES as u64;
        file.set_len(length).expect("the shared file has a length");
        let shared = Self { path, file };
        shared.set(Word::LanesUsed, 1);
        shared.set(Word::Budget, u64::MAX / 2);
        shared.set(Word::Driver, u64::from(std::process::id()));
        for &(word, value) in orders {
            shared.set(word, value);
        }
        shared
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The value of a word.
    pub fn get(&self, word: Word) -> u64 {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, word as u64 * 8).expect("the shared file is read");
        u64::from_le_bytes(bytes)
    }

    /// Changes a word.
    pub fn set(&self, word: Word, value: u64) {
        let bytes = value.to_le_bytes();
        self.file.write_all_at(&bytes, word as u64 * 8).expect("the shared file is written");
    }

    /// All lanes that were taken, by their number; the first is nobody's.
    pub fn lanes(&self) -> Vec<Lane> {
        let count = self.get(Word::LanesUsed).min(LANES_MAX) as usize;
        let mut bytes = vec![0; count * LANE_BYTES];
        self.file.read_exact_at(&mut bytes, LANES_AT).expect("the lanes are read");
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
            name: String::from_utf8_lossy(name).into_owned(),
        }
    }
}

/// Compiles the program that is tortured, in `world`.
pub fn compile_workload(world: &World) -> PathBuf {
    let source = source_dir().join("tests/torture/workload.c");
    let text = fs::read_to_string(source).expect("the workload's source");
    let warnings = ["-Wall", "-Wextra", "-Werror"];
    let program = world.compile("trackway-test-workload", &text, true, &warnings);
    assert!(build_dir().join("libtrackway.so").exists(), "libtrackway.so is not built");
    program
}

/// The command that runs it: `trackway-test-workload FILE main 0`, if `claiming` without
/// restartable sequences.
pub fn workload(program: &Path, shared: &Shared, claiming: bool) -> Vec<String> {
    let mut command = Vec::new();
    if claiming {
        command.extend(["env".to_owned(), "GLIBC_TUNABLES=glibc.pthread.rseq=0".to_owned()]);
    }
    command.extend([program.display().to_string(), shared.path().display().to_string()]);
    command.extend(["main".to_owned(), "0".to_owned()]);
    command
}

/// A process (and its group) that ends with this value, also when the test fails.
pub struct Group {
    child: std::process::Child,
    stop: Option<File>,
}

impl Group {
    /// Starts `command` as the leader of a new process group. `shared`: the file whose `STOP`
    /// word ends those who left the group, or whose leader is gone.
    pub fn start(command: &mut Command, shared: Option<&Shared>) -> Self {
        use std::os::unix::process::CommandExt;
        let stop = shared.map(|shared| shared.file.try_clone().expect("a second descriptor"));
        Self { child: command.process_group(0).spawn().expect("the command starts"), stop }
    }

    /// Its leader.
    pub fn child(&mut self) -> &mut std::process::Child {
        &mut self.child
    }

    /// Sends a signal to its leader only, which has not been waited for.
    pub fn signal(&self, signal: libc::c_int) {
        // SAFETY: kill has no preconditions; the child is ours and not reaped.
        unsafe { libc::kill(self.child.id().cast_signed(), signal) };
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(stop) = &self.stop {
            // It may be gone with its world; whoever maps it sees the word all the same.
            let _ = stop.write_all_at(&1_u64.to_le_bytes(), Word::Stop as u64 * 8);
        }
        // SAFETY: kill has no preconditions; the group's leader is our child, reaped below, so
        // that no other group can have its number.
        unsafe { libc::kill(-self.child.id().cast_signed(), libc::SIGKILL) };
        let _ = self.child.wait();
    }
}
