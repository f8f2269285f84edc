//! What is known of how a trace was recorded: whether `trackway record` is still at it, and
//! whether it was finished.
//!
//! The recorder locks the folder that it records into (flock(2)), notes its calibrations in the
//! folder `trackway` beside the streams, and at the very end writes a mark there. Traces that were
//! made of such traces, as by [`crate::trim`], have no such folder: of them nothing is known, as of
//! other tracers'.

use std::fs::{File, TryLockError};
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
pub fn unfinished(folders: &[PathBuf]) -> Vec<PathBuf> {
    let is_unfinished = |folder: &&PathBuf| {
        folder.join(CALIBRATIONS).is_file()
            && !folder.join(MARK).exists()
            && root(folder).is_some_and(|root| !is_locked(root))
            // It may have been finished, and let go of, between these two looks.
            && !folder.join(MARK).exists()
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

/// Whether somebody records the trace in `folder`.
pub(crate) fn is_live(folder: &Path) -> bool {
    root(folder).is_some_and(is_locked)
}

/// Whether somebody records into the folder `path`, or one below.
pub(crate) fn is_live_below(path: &Path, depth: usize) -> bool {
    if is_locked(path) {
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

/// Whether the folder `path` is locked by a recorder.
fn is_locked(path: &Path) -> bool {
    let Ok(folder) = File::open(path) else { return false };
    matches!(folder.try_lock_shared(), Err(TryLockError::WouldBlock))
}

#[cfg(test)]
mod tests {
    use std::fs;

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
}
