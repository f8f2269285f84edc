//! What is known of how a trace was recorded: whether `trackway record` is still at it, and
//! whether it was finished.
//!
//! The recorder locks the folder that it records into (flock(2)), notes its calibrations in the
//! folder `trackway` beside the streams, and at the very end writes a mark there. Traces that were
//! made of such traces, as by [`crate::trim`], have no such folder: of them nothing is known, as of
//! other tracers'.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::folder;

/// What traces have that `trackway record` wrote; `trackway_recorder::trace` names it.
const CALIBRATIONS: &str = "trackway/clock.csv";
/// What they have once they are complete; `trackway_recorder::completion` names it.
const MARK: &str = "trackway/complete";
/// Where the streams are in the folder that is recorded into: `ust/uid/UID/64-bit`.
const STREAMS_DEPTH: usize = 4;

/// The folders that were recorded into to which the traces in `folders` belong and that are not
/// complete, though nobody records into them any more: their recorder was killed. `trackway
/// recover` completes them.
///
/// Where folders cannot be locked, it is not known of any.
pub fn unfinished(folders: &[PathBuf]) -> Vec<PathBuf> {
    unfinished_by(folders, &lock)
}

fn unfinished_by(folders: &[PathBuf], lock: &dyn Fn(&Path) -> Lock) -> Vec<PathBuf> {
    let is_unfinished = |folder: &&PathBuf| {
        is_incomplete(folder)
            && root(folder).is_some_and(|root| lock(root) == Lock::Free)
            // It may have been finished, and let go of, between these two looks.
            && is_incomplete(folder)
    };
    let mut roots: Vec<PathBuf> = folders
        .iter()
        .filter(is_unfinished)
        .filter_map(|at| root(at))
        .map(Path::to_owned)
        .collect();
    roots.sort();
    roots.dedup();
    roots
}

/// Whether somebody records the trace in `folder`, or may do so: where folders cannot be locked,
/// only those that are complete are known to have ended.
pub(crate) fn is_live(folder: &Path) -> bool {
    is_live_by(folder, &lock)
}

fn is_live_by(folder: &Path, lock: &dyn Fn(&Path) -> Lock) -> bool {
    root(folder).is_some_and(|root| match lock(root) {
        Lock::Held => true,
        Lock::Free => false,
        Lock::Unknown => is_incomplete(folder),
    })
}

/// Whether `trackway record` wrote the trace in `folder`, and it was not completed.
fn is_incomplete(folder: &Path) -> bool {
    folder.join(CALIBRATIONS).is_file() && !folder.join(MARK).exists()
}

/// Whether somebody records into the folder `path`, or one below.
pub(crate) fn is_live_below(path: &Path, depth: usize) -> bool {
    if lock(path) == Lock::Held {
        return true;
    }
    let below = if depth < folder::DEPTH_MAX { folder::subfolders(path) } else { return false };
    below.unwrap_or_default().iter().any(|folder| is_live_below(folder, depth + 1))
}

/// The folder that the streams in `folder` were recorded into, if they lie as its recorder lays
/// them out.
fn root(folder: &Path) -> Option<&Path> {
    let mut names = folder.ancestors().take(STREAMS_DEPTH).map(|path| path.file_name());
    let is_laid_out = names.next()? == Some("64-bit".as_ref())
        && names.next()?.is_some()
        && names.next()? == Some("uid".as_ref())
        && names.next()? == Some("ust".as_ref());
    folder.ancestors().nth(STREAMS_DEPTH).filter(|_| is_laid_out)
}

/// What is known of a recorder's lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lock {
    /// A recorder has it.
    Held,
    /// Nobody has it.
    Free,
    /// It cannot be asked for: not all file systems can lock folders, not all users may open them.
    Unknown,
}

impl From<Result<(), TryLockError>> for Lock {
    fn from(tried: Result<(), TryLockError>) -> Self {
        match tried {
            Ok(()) => Self::Free,
            Err(TryLockError::WouldBlock) => Self::Held,
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::NotFound => Self::Free,
            Err(TryLockError::Error(_)) => Self::Unknown,
        }
    }
}

/// Whether the folder `path` is locked by a recorder.
fn lock(path: &Path) -> Lock {
    File::open(path).map_err(TryLockError::Error).and_then(|folder| folder.try_lock_shared()).into()
}

#[cfg(test)]
mod tests {
    use std::{fs, io, slice};

    use trackway_testkit::TemporaryFolder;

    use super::*;

    #[test]
    fn what_is_neither_complete_nor_being_recorded_is_unfinished() {
        let root = TemporaryFolder::new();
        let folder = root.join("ust/uid/7/64-bit");
        let found = || unfinished(&[folder.clone(), folder.clone()]);
        fs::create_dir_all(folder.join("trackway")).expect("a folder");
        assert!(found().is_empty(), "nobody says that it was recorded");
        fs::write(folder.join(CALIBRATIONS), "").expect("a file");
        assert_eq!(found(), [root.path()]);
        let recorder = File::open(root.path()).expect("a folder");
        recorder.lock().expect("a lock");
        assert!(found().is_empty() && is_live(&folder), "it is being recorded");
        assert!(is_live_below(root.path(), 0) && !is_live_below(&folder, 0));
        drop(recorder);
        assert!(!is_live(&folder));
        fs::write(folder.join(MARK), "").expect("a file");
        assert!(found().is_empty(), "it is complete");
        fs::remove_file(folder.join(MARK)).expect("a file");
        let elsewhere = root.join("elsewhere");
        fs::rename(&folder, &elsewhere).expect("a folder");
        assert!(unfinished(&[elsewhere]).is_empty(), "recovery would not find it");
    }

    #[test]
    fn where_folders_cannot_be_locked_only_what_is_complete_has_ended() {
        let root = TemporaryFolder::new();
        let folder = root.join("ust/uid/7/64-bit");
        fs::create_dir_all(folder.join("trackway")).expect("a folder");
        let refused = |kind: ErrorKind| Lock::from(Err(TryLockError::Error(io::Error::from(kind))));
        let unknown = |_: &Path| refused(ErrorKind::Unsupported);
        let found =
            || (unfinished_by(slice::from_ref(&folder), &unknown), is_live_by(&folder, &unknown));
        assert_eq!(found(), (Vec::new(), false), "nobody says that it was recorded");
        fs::write(folder.join(CALIBRATIONS), "").expect("a file");
        assert_eq!(found(), (Vec::new(), true), "it may be recorded");
        fs::write(folder.join(MARK), "").expect("a file");
        assert_eq!(found(), (Vec::new(), false), "it is complete");
        assert_eq!(refused(ErrorKind::PermissionDenied), Lock::Unknown);
        assert_eq!(lock(&root.join("nothing")), Lock::Free);
        assert_eq!(lock(root.path()), Lock::Free);
        let held = File::open(root.path()).expect("a folder");
        held.lock().expect("a lock");
        assert_eq!(lock(root.path()), Lock::Held);
    }
}
