//! Processes whose libtrackway.so has another version. They use another window, which a recorder of
//! this version does not serve, so without a report they would silently be missing.
//!
//! The file name of a window has its version, so a process's mapping shows the version of its
//! library. Device and inode identify the files, not the name in /proc: the process that made a
//! window mapped it before it had a name, and /proc never shows that name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use trackway_abi::ABI_VERSION;

use crate::window::processes::read_proc;

/// Returns processes of this user by the version of their window, if /proc shows a version other
/// than this recorder's.
pub fn other_versions() -> BTreeMap<u32, Vec<u32>> {
    let mut found: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let windows = Windows::scan();
    if windows.is_ours_alone() {
        return found;
    }
    let Ok(processes) = fs::read_dir("/proc") else { return found };
    let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    for pid in pids {
        if let Some(version) = windows.other_version_of(pid) {
            found.entry(version).or_default().push(pid);
        }
    }
    found
}

/// The user's windows, of all versions.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Windows {
    /// Version and file of each window; the file as device and inode in the form of
    /// proc_pid_maps(5).
    files: Vec<(u32, String)>,
}

impl Windows {
    /// Returns the calling user's existing windows.
    pub(crate) fn scan() -> Self {
        Self::scan_users([crate::common::user::effective_uid()])
    }

    /// Returns the existing windows of these users and of the calling user.
    pub(crate) fn scan_users(users: impl IntoIterator<Item = u32>) -> Self {
        let folder = crate::window::handle::window_folder();
        let mut users: BTreeSet<u32> = users.into_iter().collect();
        users.insert(crate::common::user::effective_uid());
        let files = users.into_iter().flat_map(|user| Self::of(&folder, user).files);
        Self { files: files.collect() }
    }

    fn of(folder: &Path, user: u32) -> Self {
        let prefix = format!("trackway-{user}-v");
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let files = entries.filter_map(|entry| {
            let name = entry.file_name();
            let version = name.to_str()?.strip_prefix(&prefix)?.parse().ok()?;
            let status = entry.metadata().ok()?;
            let (major, minor) = (libc::major(status.dev()), libc::minor(status.dev()));
            Some((version, format!("{major:02x}:{minor:02x} {}", status.ino())))
        });
        Self { files: files.collect() }
    }

    /// Returns true if no window has another version: then no process needs to be checked.
    pub(crate) fn is_ours_alone(&self) -> bool {
        self.files.iter().all(|(version, _)| *version == ABI_VERSION)
    }

    /// Returns true if a process has mapped a window of this version.
    pub(crate) fn is_ours_in(&self, pid: u32) -> bool {
        let Ok(maps) = read_proc(&format!("/proc/{pid}/maps")) else { return false };
        self.versions_in(&maps).any(|version| version == ABI_VERSION)
    }

    /// Returns the version of a process's window if it differs from this recorder's.
    pub(crate) fn other_version_of(&self, pid: u32) -> Option<u32> {
        if self.is_ours_alone() {
            return None;
        }
        self.other_version_in(&read_proc(&format!("/proc/{pid}/maps")).ok()?)
    }

    /// Returns the other window version in proc_pid_maps(5); `None` if the process also has a
    /// window of this version, and so can be traced.
    fn other_version_in(&self, maps: &str) -> Option<u32> {
        let mut other = None;
        for version in self.versions_in(maps) {
            if version == ABI_VERSION {
                return None;
            }
            other = Some(version);
        }
        other
    }

    /// Returns the versions of the windows in proc_pid_maps(5).
    fn versions_in(&self, maps: &str) -> impl Iterator<Item = u32> {
        maps.lines().filter_map(|line| {
            let mut words = line.split_ascii_whitespace().skip(3);
            let file = format!("{} {}", words.next()?, words.next()?);
            self.files.iter().find(|(_, known)| *known == file).map(|(version, _)| *version)
        })
    }
}

/// Compares a version with this recorder's: "newer" or "older".
pub fn describe_age(version: u32) -> &'static str {
    if version > ABI_VERSION { "newer" } else { "older" }
}

/// Returns the remedy for processes with a library that is newer or older.
pub fn remedy_for_version(version: u32) -> &'static str {
    if version > ABI_VERSION {
        "update trackway, or use the one that came with that library"
    } else {
        "start them again with the library that came with trackway"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_of_other_versions_are_told_by_device_and_inode() {
        let (newer, older) = (ABI_VERSION + 1, ABI_VERSION - 1);
        let files = [(ABI_VERSION, "00:19 7"), (newer, "00:19 8"), (older, "00:19 9")];
        let files = files.map(|(version, file)| (version, file.to_owned())).to_vec();
        let windows = Windows { files };
        let line = |inode: u32| {
            format!("7f00-7f01 rw-s 00000000 00:19 {inode}   /dev/shm/#{inode} (deleted)\n")
        };
        assert_eq!(windows.other_version_in(&line(8)), Some(newer));
        assert_eq!(windows.other_version_in(&line(9)), Some(older));
        assert_eq!(windows.other_version_in(&line(10)), None, "another user's");
        assert_eq!(windows.other_version_in(&(line(8) + &line(7))), None);
        assert_eq!((describe_age(newer), describe_age(older)), ("newer", "older"));
        assert!(!windows.is_ours_alone() && Windows::default().is_ours_alone());
    }

    #[test]
    fn windows_are_found_by_their_names() {
        let folder = std::env::temp_dir().join(format!("trackway-versions-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        for name in ["trackway-7-v0", "trackway-7-v12", "trackway-77-v1", "trackway-7-v1.unusable"]
        {
            fs::write(folder.join(name), "").expect("a file");
        }
        let mut versions: Vec<u32> =
            Windows::of(&folder, 7).files.iter().map(|(version, _)| *version).collect();
        versions.sort_unstable();
        assert_eq!(versions, [0, 12]);
        fs::remove_dir_all(&folder).expect("removed");
    }
}
