//! Descendants of the traced command that cannot be traced: static programs, processes of other
//! users, and processes with another library version.
//!
//! A thread of its own samples /proc, so that many descendants do not delay the draining of
//! buffers. A sample may miss a short-lived process: reports give numbers as "at least".

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use trackway_abi::window::{PROCESS_ENTERING, PROCESSES_MAX};
use trackway_window::Window;

use crate::command::library_versions::{self, Windows};
use crate::elf;
use crate::notices::Notices;
use crate::window::processes::command_name_of;

/// Time from the start of the command to the first sample.
const FIRST_SAMPLE_DELAY: Duration = Duration::from_millis(10);
/// Shortest time between samples.
const PERIOD_MIN: Duration = Duration::from_millis(50);
/// Factor between the duration of a sample and the pause after it.
const PAUSE_FACTOR: u32 = 50;
/// Most processes that a sample examines.
const PROCESSES_SAMPLED_MAX: usize = 4096;
/// Most untraced processes that are kept; further ones are not examined.
const UNTRACED_MAX: usize = 1 << 16;

/// Reason why a process cannot be traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum UntracedReason {
    OtherUser,
    /// The program is static, and the process has not mapped the window through a library.
    Static,
    /// The process has a library of this other version.
    Library(u32),
}

impl std::fmt::Display for UntracedReason {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::OtherUser => formatter.write_str("other user"),
            Self::Static => formatter.write_str("static"),
            Self::Library(version) => {
                write!(formatter, "{} library", library_versions::describe_age(*version))
            }
        }
    }
}

/// A process that cannot be traced.
#[derive(Debug)]
struct UntracedProcess {
    name: String,
    reason: UntracedReason,
}

/// The thread that samples the descendants of one process.
#[derive(Debug)]
pub(crate) struct DescendantSampler {
    /// Sends nothing: dropping it ends the thread.
    end: Option<Sender<()>>,
    /// `None` if the thread could not be started.
    thread: Option<JoinHandle<Descendants>>,
}

impl DescendantSampler {
    /// Samples the descendants of `root` until [`Self::finish`]. The thread has the caller's signal
    /// mask.
    pub(crate) fn start(root: u32) -> Self {
        let (end, is_over) = mpsc::channel::<()>();
        let sample = move || {
            let mut descendants = Descendants::of(root);
            let mut pause = FIRST_SAMPLE_DELAY;
            while is_over.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let start = Instant::now();
                descendants.sample();
                pause = PERIOD_MIN.max(start.elapsed() * PAUSE_FACTOR);
            }
            descendants
        };
        let thread = thread::Builder::new().name("trackway-descendants".into()).spawn(sample);
        Self { end: Some(end), thread: thread.ok() }
    }

    /// Ends the thread after its current sample. Returns the descendants found; a second call
    /// returns none.
    pub(crate) fn finish(&mut self) -> Descendants {
        self.end = None;
        let found = self.thread.take().and_then(|thread| thread.join().ok());
        found.unwrap_or_default()
    }
}

/// Returns the processes in a window's table, live or dead, by their ids in their own pid
/// namespaces.
pub(crate) fn registered_pids(window: &Window) -> HashSet<u32> {
    let pids = (0..PROCESSES_MAX).map(|index| window.identity_at(index).pid);
    pids.filter(|&pid| pid != 0 && pid & PROCESS_ENTERING == 0).collect()
}

/// The known descendants of one process.
#[derive(Debug, Default)]
pub(crate) struct Descendants {
    root: u32,
    /// Examined programs, with true for a static program.
    programs: HashMap<PathBuf, bool>,
    untraced: BTreeMap<u32, UntracedProcess>,
    /// Windows of the user at the latest sample.
    windows: Windows,
}

impl Descendants {
    fn of(root: u32) -> Self {
        Self { root, ..Self::default() }
    }

    fn sample(&mut self) {
        self.windows = Windows::scan();
        let mut open = vec![self.root];
        let mut seen = HashSet::new();
        while let Some(pid) = open.pop() {
            if seen.len() < PROCESSES_SAMPLED_MAX && seen.insert(pid) {
                self.examine(pid);
                open.extend(read_children(pid));
            }
        }
    }

    fn examine(&mut self, pid: u32) {
        match self.untraced.get(&pid).map(|known| known.reason) {
            // Some static programs (valgrind's tools, emulators) load and run others, and then have
            // their library; any process may call exec.
            Some(UntracedReason::Static) => {
                if self.windows.is_ours_in(pid) {
                    self.untraced.remove(&pid);
                }
                return;
            }
            Some(_) => return,
            None if self.untraced.len() >= UNTRACED_MAX => return,
            None => {}
        }
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let Some(reason) = self.reason(pid, &folder) else { return };
        self.untraced.insert(pid, UntracedProcess { name: command_name_of(pid), reason });
    }

    /// Returns the reason why a process cannot be traced; `None` if the process can be traced or
    /// has ended.
    fn reason(&mut self, pid: u32, folder: &Path) -> Option<UntracedReason> {
        if fs::metadata(folder).ok()?.uid() != crate::common::user::effective_uid() {
            return Some(UntracedReason::OtherUser);
        }
        let program = fs::read_link(folder.join("exe")).ok()?;
        let is_static = *self.programs.entry(program).or_insert_with_key(|_| {
            // The path in /proc also reaches other mount namespaces and removed files.
            elf::read_module(&folder.join("exe")).is_some_and(|module| module.is_static)
        });
        if is_static && !self.windows.is_ours_in(pid) {
            return Some(UntracedReason::Static);
        }
        self.windows.other_version_of(pid).map(UntracedReason::Library)
    }

    /// Reports processes that could not be traced, except static programs whose process id is in
    /// `traced`: these ran another program that was traced.
    pub(crate) fn report(&self, traced: &HashSet<u32>, notices: &Notices) {
        const NAMED_MAX: usize = 8;
        let is_untraced = |(pid, untraced): &(&u32, &UntracedProcess)| {
            untraced.reason != UntracedReason::Static || !traced.contains(pid)
        };
        let mut programs: BTreeMap<(&str, UntracedReason), u64> = BTreeMap::new();
        for (_, untraced) in self.untraced.iter().filter(is_untraced) {
            *programs.entry((&untraced.name, untraced.reason)).or_default() += 1;
        }
        let count: u64 = programs.values().sum();
        if count == 0 {
            return;
        }
        let named = programs.keys().take(NAMED_MAX);
        let mut names: Vec<String> =
            named.map(|(name, reason)| format!("{name} ({reason})")).collect();
        if programs.len() > NAMED_MAX {
            names.push("…".into());
        }
        let processes = if count == 1 { "process" } else { "processes" };
        notices
            .report(format_args!("{count} {processes} could not be traced: {}", names.join(", ")));
        let versions = programs.keys().filter_map(|(_, reason)| match reason {
            UntracedReason::Library(version) => Some(*version),
            UntracedReason::OtherUser | UntracedReason::Static => None,
        });
        if let Some(version) = versions.max() {
            notices.report(format_args!(
                "a libtrackway.so {} than this trackway: {}",
                library_versions::describe_age(version),
                library_versions::remedy_for_version(version)
            ));
        }
    }
}

/// Returns the process and its descendants, at most as many as a sample examines.
pub(crate) fn find_process_tree(root: u32) -> BTreeSet<u32> {
    let mut open = vec![root];
    let mut family = BTreeSet::new();
    while let Some(pid) = open.pop() {
        if family.len() < PROCESSES_MAX && family.insert(pid) {
            open.extend(read_children(pid));
        }
    }
    family
}

fn read_children(pid: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|text| {
            text.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<u32>>()
        })
        .collect()
}

/// Returns the number of this user's processes that hold `token`, according to their environment at
/// the last exec.
pub(crate) fn count_token_holders(token: u64) -> usize {
    let wanted = format!("{token:x}");
    let Ok(entries) = fs::read_dir("/proc") else { return 0 };
    entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok())
        .filter_map(|entry| fs::read(entry.path().join("environ")).ok())
        .filter(|environment| {
            environment.split(|&byte| byte == 0).any(|line| {
                line.strip_prefix(b"TRACKWAY_TOKEN=").is_some_and(|tokens| {
                    tokens.split(|&byte| byte == b':').any(|held| held == wanted.as_bytes())
                })
            })
        })
        .count()
}
