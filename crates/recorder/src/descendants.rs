//! The command's descendants that cannot be traced: static programs, other users' processes, those
//! whose library is of another version.
//!
//! Sampled from /proc, so a short-lived one may be missed: what we say is "at least".

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::elf;
use crate::report::Notices;
use crate::versions::{self, Windows};

/// Shortest time between samples.
const PERIOD_MIN: Duration = Duration::from_millis(50);
/// A sample may take at most one part in so many of the time.
const SHARE: u32 = 50;
/// Most processes that a sample looks at.
const PROCESSES_MAX: usize = 4096;

/// Watches the descendants of one process.
#[derive(Debug)]
pub(crate) struct Descendants {
    root: u32,
    due: Instant,
    /// Programs known to be static, or not.
    programs: HashMap<PathBuf, bool>,
    told: HashSet<u32>,
    /// Processes that could not be traced: how many, by program and reason.
    untraced: BTreeMap<(String, &'static str), u64>,
    /// The user's windows, at the latest sample.
    windows: Windows,
    /// Version of the latest one's library, if that is not ours.
    version: Option<u32>,
}

impl Descendants {
    pub(crate) fn of(root: u32) -> Self {
        Self {
            root,
            due: Instant::now() + PERIOD_MIN / 5,
            programs: HashMap::new(),
            told: HashSet::new(),
            untraced: BTreeMap::new(),
            windows: Windows::default(),
            version: None,
        }
    }

    /// Takes a sample if one is due.
    pub(crate) fn sample(&mut self) {
        let start = Instant::now();
        if start < self.due {
            return;
        }
        self.windows = Windows::here();
        let mut open = vec![self.root];
        let mut seen = HashSet::new();
        while let Some(pid) = open.pop() {
            if seen.len() < PROCESSES_MAX && seen.insert(pid) {
                self.look_at(pid);
                open.extend(children(pid));
            }
        }
        self.due = Instant::now() + PERIOD_MIN.max(start.elapsed() * SHARE);
    }

    fn look_at(&mut self, pid: u32) {
        if self.told.contains(&pid) {
            return;
        }
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let Ok(status) = fs::metadata(&folder) else { return };
        let reason = if status.uid() != crate::home::user() {
            "other user"
        } else {
            let Ok(program) = fs::read_link(folder.join("exe")) else { return };
            let is_static = *self.programs.entry(program).or_insert_with_key(|_| {
                // Through /proc, which also reaches other mount namespaces and removed files.
                elf::read(&folder.join("exe")).is_some_and(|module| module.is_static)
            });
            match self.windows.other_version_of(pid) {
                _ if is_static => "static",
                None => return,
                Some(version) => {
                    self.version = Some(version);
                    if versions::age(version) == "newer" {
                        "newer library"
                    } else {
                        "older library"
                    }
                }
            }
        };
        let name = fs::read_to_string(folder.join("comm")).unwrap_or_default();
        self.told.insert(pid);
        *self.untraced.entry((name.trim().to_owned(), reason)).or_default() += 1;
    }

    /// Says who could not be traced.
    pub(crate) fn say(&self, notices: &Notices) {
        const NAMED_MAX: usize = 8;
        let count: u64 = self.untraced.values().sum();
        if count == 0 {
            return;
        }
        let mut names: Vec<String> = self
            .untraced
            .iter()
            .take(NAMED_MAX)
            .map(|((name, reason), _)| format!("{name} ({reason})"))
            .collect();
        if self.untraced.len() > NAMED_MAX {
            names.push("…".into());
        }
        let processes = if count == 1 { "process" } else { "processes" };
        notices.say(format_args!("{count} {processes} could not be traced: {}", names.join(", ")));
        if let Some(version) = self.version {
            notices.say(format_args!(
                "a libtrackway.so {} than this trackway: {}",
                versions::age(version),
                versions::advice(version)
            ));
        }
    }
}

fn children(pid: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|text| {
            text.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<u32>>()
        })
        .collect()
}

/// Processes of this user that hold `token`, by their environment at their last exec.
pub(crate) fn holding(token: u64) -> usize {
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
