//! Control groups for a single test.

use std::fs;
use std::path::{Path, PathBuf};

use crate::report_skipped;

/// A control group of version 2 with a group `below` in it; both are removed on drop.
#[derive(Debug)]
pub struct TestCgroup(PathBuf);

impl TestCgroup {
    /// Makes a control group; returns `None`, after printing the reason, if that is impossible.
    pub fn new(name: &str) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let mounted = mounts.lines().find_map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            (words.get(2) == Some(&"cgroup2")).then(|| PathBuf::from(words[1]))
        });
        let Some(mounted) = mounted else {
            report_skipped("no cgroups of version 2 are mounted");
            return None;
        };
        let path = mounted.join(format!("trackway-test-{name}-{}", std::process::id()));
        match fs::create_dir_all(path.join("below")) {
            Ok(()) => Some(Self(path)),
            Err(error) => {
                report_skipped(format!("no cgroup can be made: {error}"));
                None
            }
        }
    }

    /// Returns the folder of the control group.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// Returns the folder of the control group, as text.
    pub fn path(&self) -> String {
        self.0.display().to_string()
    }

    /// Moves a process into the group, or into a group below it; or out of it, to the root group.
    pub fn take(&self, pid: u32, to: &str) {
        let folder = if to == ".." { self.0.parent().expect("a group") } else { &self.0.join(to) };
        fs::write(folder.join("cgroup.procs"), pid.to_string()).expect("it can be moved");
    }

    /// Returns the shell command by which a shell moves itself into the group, or a group below it.
    pub fn enter(&self, below: &str) -> String {
        format!("echo 0 > {}", self.0.join(below).join("cgroup.procs").display())
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        // Processes of the group may take a moment to end.
        for _ in 0..100 {
            let _ = fs::remove_dir(self.0.join("below"));
            if fs::remove_dir(&self.0).is_ok() || !self.0.exists() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}
