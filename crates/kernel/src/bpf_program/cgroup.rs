//! Control groups (version 2) whose threads are recorded: their folders, and a map of the groups,
//! with which programs test the current thread. A group includes the groups below it.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, RawFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::bpf_sys::bpf::DescriptorArray;
use trackway_console::IoError;

const MAP_TYPE_CGROUP_ARRAY: u32 = 8;
/// Most groups: programs test each group.
const GROUPS_MAX: usize = 16;
/// Most groups below one group that the recorder searches for threads.
const FOLDERS_MAX: usize = 1 << 16;

/// The reason why the threads of a control group cannot be recorded.
#[derive(Debug)]
pub enum CgroupError {
    /// The group does not exist.
    Missing(PathBuf),
    /// The path is not a control group, or a control group of version 1.
    NotCgroup2(PathBuf),
    /// There are too many groups.
    TooMany,
    /// An operation on this path failed.
    Io(PathBuf, IoError),
}

impl std::fmt::Display for CgroupError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing(path) => write!(f, "there is no cgroup {}", path.display()),
            Self::NotCgroup2(path) => write!(f, "{} is no cgroup of version 2", path.display()),
            Self::TooMany => write!(f, "more than {GROUPS_MAX} cgroups are selected"),
            Self::Io(path, error) => write!(f, "cannot record {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for CgroupError {}

/// The folders of control groups.
#[derive(Debug, Clone)]
pub struct CgroupFolders(Vec<PathBuf>);

/// Control groups in a map for programs.
#[derive(Debug)]
pub struct Cgroups {
    map: DescriptorArray,
    folders: CgroupFolders,
    /// Inode numbers of the groups; the kernel never reuses them.
    inodes: Vec<AtomicU64>,
    /// Flags of groups whose replacement groups could not be added.
    has_failed: Vec<AtomicBool>,
}

impl CgroupFolders {
    /// Finds control groups by paths: paths of folders, or paths as in /proc/PID/cgroup.
    ///
    /// # Errors
    ///
    /// If a group does not exist, or has version 1.
    pub fn find(paths: &[PathBuf]) -> Result<Self, CgroupError> {
        if paths.len() > GROUPS_MAX {
            return Err(CgroupError::TooMany);
        }
        let found = paths.iter().map(|path| {
            let folder = find_folder(path).ok_or_else(|| CgroupError::Missing(path.clone()))?;
            // Groups of version 1 have no such file.
            let is_one = folder.join("cgroup.controllers").exists();
            is_one.then_some(folder).ok_or_else(|| CgroupError::NotCgroup2(path.clone()))
        });
        found.collect::<Result<_, _>>().map(Self)
    }

    /// Returns the threads in the groups and in groups below them, and the first read error.
    pub fn threads(&self) -> (Vec<u32>, io::Result<()>) {
        let (mut threads, mut read) = (Vec::new(), Ok(()));
        let mut folders = self.0.clone();
        for _ in 0..FOLDERS_MAX {
            let Some(folder) = folders.pop() else { return (threads, read) };
            let more = read_group(&folder).map(|(text, below)| {
                threads.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
                folders.extend(below);
            });
            read = read.and(match more {
                // The group was removed meanwhile.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV)) => {
                    Ok(())
                }
                more => more,
            });
        }
        (threads, Err(io::Error::other("there are too many control groups")))
    }
}

/// Returns the thread list of a group, and the groups directly below it.
fn read_group(folder: &Path) -> io::Result<(String, Vec<PathBuf>)> {
    let text = fs::read_to_string(folder.join("cgroup.threads"))?;
    let mut below = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            below.push(entry.path());
        }
    }
    Ok((text, below))
}

impl Cgroups {
    /// Opens control groups by paths: paths of folders, or paths as in /proc/PID/cgroup.
    ///
    /// # Errors
    ///
    /// If a group does not exist, or BPF is not available to this process.
    pub fn open(paths: &[PathBuf]) -> Result<Self, CgroupError> {
        let io = |path: &Path| {
            let path = path.to_owned();
            |error: io::Error| CgroupError::Io(path, error.into())
        };
        let first = paths.first().map_or(Path::new(""), PathBuf::as_path);
        let folders = CgroupFolders::find(paths)?;
        let count = paths.len().max(1) as u32;
        let map = DescriptorArray::new(MAP_TYPE_CGROUP_ARRAY, count).map_err(io(first))?;
        let mut inodes = Vec::new();
        for ((index, path), folder) in (0..).zip(paths).zip(&folders.0) {
            let group = File::open(folder).map_err(io(path))?;
            map.set(index, group.as_fd()).map_err(|error| match error.raw_os_error() {
                Some(libc::EBADF) => CgroupError::NotCgroup2(path.clone()),
                _ => io(path)(error),
            })?;
            inodes.push(AtomicU64::new(group.metadata().map_err(io(path))?.ino()));
        }
        let has_failed = paths.iter().map(|_| AtomicBool::new(false)).collect();
        Ok(Self { map, folders, inodes, has_failed })
    }

    /// Replaces groups that were removed and created again, as systemd does when a service
    /// restarts. Returns the folders of these groups with the outcomes.
    pub(super) fn refresh(&self) -> Vec<(&Path, io::Result<()>)> {
        let mut refreshed = Vec::new();
        let all = (0..).zip(&self.folders.0).zip(&self.inodes).zip(&self.has_failed);
        for (((index, folder), inode), has_failed) in all {
            // A missing group has no threads.
            let Ok(now) = fs::metadata(folder).map(|of| of.ino()) else { continue };
            if inode.load(Ordering::Relaxed) == now {
                continue;
            }
            let replaced =
                self.replace(index, folder).map(|ino| inode.store(ino, Ordering::Relaxed));
            // A failed replacement is retried but reported once.
            let had_failed = has_failed.swap(replaced.is_err(), Ordering::Relaxed);
            if replaced.is_ok() || !had_failed {
                refreshed.push((&**folder, replaced));
            }
        }
        refreshed
    }

    /// Stores the group that is now at `folder` at `index`; returns its inode number.
    fn replace(&self, index: u32, folder: &Path) -> io::Result<u64> {
        let group = File::open(folder)?;
        let inode = group.metadata()?.ino();
        self.map.set(index, group.as_fd())?;
        Ok(inode)
    }

    /// Returns the map's descriptor.
    pub(super) fn map_fd(&self) -> RawFd {
        self.map.fd()
    }

    /// Returns the number of groups.
    pub(super) fn count(&self) -> i32 {
        self.folders.0.len() as i32
    }

    /// Returns the threads in the groups: see [`CgroupFolders::threads`].
    pub(super) fn threads(&self) -> (Vec<u32>, io::Result<()>) {
        self.folders.threads()
    }
}

/// Finds the folder of a group: the path itself, or the path below a mount of version 2.
fn find_folder(path: &Path) -> Option<PathBuf> {
    if path.is_dir() && path.join("cgroup.procs").exists() {
        return Some(path.to_owned());
    }
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mounted = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (at, kind) = (words.next()?, words.next()?);
        (kind == "cgroup2").then_some(at)
    });
    let below = path.strip_prefix("/").unwrap_or(path);
    let found = mounted.map(|at| Path::new(at).join(below)).find(|folder| folder.is_dir());
    // The caller reports a folder that is not a control group.
    found.or_else(|| path.is_dir().then(|| path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_threads_are_reported_with_readable_ones() {
        let place = trackway_testkit::TemporaryFolder::new();
        let group = |name: &str| {
            let folder = place.join(name);
            fs::create_dir(&folder).expect("a folder");
            for file in ["cgroup.procs", "cgroup.controllers"] {
                fs::write(folder.join(file), "").expect("a file");
            }
            folder
        };
        let (whole, other) = (group("whole"), group("other"));
        fs::write(whole.join("cgroup.threads"), "7\n9\n").expect("a file");
        fs::write(other.join("cgroup.threads"), "3\n").expect("a file");
        let folders = CgroupFolders::find(&[whole, other.clone()]).expect("groups");
        let (mut threads, read) = folders.threads();
        threads.sort_unstable();
        assert!(read.is_ok() && threads == [3, 7, 9], "{threads:?}");
        // A thread list that cannot be read.
        fs::remove_file(other.join("cgroup.threads")).expect("ours");
        fs::create_dir(other.join("cgroup.threads")).expect("a folder");
        let (threads, read) = folders.threads();
        assert!(read.is_err() && threads == [7, 9], "{threads:?}");
    }
}
