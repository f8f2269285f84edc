//! The kernel's files, read below a root that tests can replace.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Most bytes of a file that are read; /proc/stat has one line for each CPU, and one line with the
/// counts of all interrupts.
const BYTES_MAX: u64 = 1 << 20;
/// Most names of a folder that are read.
const NAMES_MAX: usize = 100_000;

/// The files below a root.
#[derive(Debug, Clone)]
pub(super) struct SystemFiles {
    root: PathBuf,
}

impl SystemFiles {
    /// Reads this machine's files.
    pub(super) fn of_this_machine() -> Self {
        Self::at(Path::new("/"))
    }

    /// Reads the files below a folder.
    pub(super) fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Returns the trimmed text of a file; `None` if the file cannot be read.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        let mut bytes = Vec::new();
        let file = File::open(self.root.join(path)).ok()?;
        file.take(BYTES_MAX).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// Returns the number that a file contains.
    pub(super) fn number(&self, path: &str) -> Option<i64> {
        self.text(path)?.parse().ok()
    }

    /// Returns the names in a folder, sorted; none if the folder cannot be read.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.root.join(path)) else { return Vec::new() };
        let names = entries.take(NAMES_MAX).filter_map(|entry| entry.ok());
        let mut names: Vec<String> =
            names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Returns the value after `name:` or `name :` on a line of its own.
    pub(super) fn value(&self, path: &str, name: &str) -> Option<String> {
        let text = self.text(path)?;
        text.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim().to_owned())
        })
    }
}
