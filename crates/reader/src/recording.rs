//! The recording state of a trace: whether `trackway record` still writes it, and whether it was
//! finished.
//!
//! The recorder locks the folder that it records into (flock(2)), notes its calibrations in the
//! folder `trackway` beside the streams, and at the very end writes a mark there. While a reader
//! follows, it also writes there up to which time everything is written:
//!
//! ```text
//! trackway/live: sequence u64, flushed u64 (the trace's clock), !(sequence ^ flushed) u64
//!                                                                           all little endian
//! ```
//!
//! in place, after each time that it has written, with the sequence one higher. Traces that were
//! made of such traces, as by [`crate::trim_traces`], have no such folder: of them nothing is
//! known, as of other tracers'.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::folder;

/// A file of traces that `trackway record` wrote; `trackway_recorder` (`trace::layout`) names it.
const CALIBRATION_FILE: &str = "trackway/clock.csv";
/// A file of complete traces; `trackway_recorder` (`trace::completion`) names it.
const COMPLETE_FILE: &str = "trackway/complete";
/// The file in which their recorder publishes its progress.
const PROGRESS_FILE: &str = "trackway/live";
/// Folder of such facts.
const TRACKWAY_FOLDER: &str = "trackway";
/// Folder of kernel events, next to `ust`.
const KERNEL_FOLDER: &str = "kernel";
/// Attempts to read it, if it is being rewritten meanwhile.
const PROGRESS_READS_MAX: usize = 4;
/// Depth of the streams in the folder that is recorded into: `ust/uid/UID/64-bit`.
const STREAMS_DEPTH: usize = 4;

/// Returns the recording folders of the traces in `folders` that are not complete although no
/// recorder writes them any more: their recorder was killed. `trackway recover` completes them.
///
/// Where folders cannot be locked, it is not known of any.
pub fn find_unfinished_recordings(folders: &[PathBuf]) -> Vec<PathBuf> {
    find_unfinished_with(folders, &recorder_lock_state)
}

fn find_unfinished_with(folders: &[PathBuf], lock: &dyn Fn(&Path) -> LockState) -> Vec<PathBuf> {
    let is_unfinished = |folder: &&PathBuf| {
        is_incomplete(folder)
            && recording_root(folder).is_some_and(|root| lock(root) == LockState::Free)
            // It may have been finished, and let go of, between these two looks.
            && is_incomplete(folder)
    };
    let mut roots: Vec<PathBuf> = folders
        .iter()
        .filter(is_unfinished)
        .filter_map(|at| recording_root(at))
        .map(Path::to_owned)
        .collect();
    roots.sort();
    roots.dedup();
    roots
}

/// Returns true if a recorder writes the trace in `folder`, or may do so: where folders cannot be
/// locked, only those that are complete are known to have ended.
pub(crate) fn is_live(folder: &Path) -> bool {
    is_live_with(folder, &recorder_lock_state)
}

fn is_live_with(folder: &Path, lock: &dyn Fn(&Path) -> LockState) -> bool {
    recording_root(folder).is_some_and(|root| match lock(root) {
        LockState::Locked => true,
        LockState::Free => false,
        LockState::Unknown => is_incomplete(folder),
    })
}

/// Returns true if `trackway record` wrote the trace in `folder`, and it was not completed.
fn is_incomplete(folder: &Path) -> bool {
    // The kernel's clock is not calibrated.
    let is_ours = folder.join(CALIBRATION_FILE).is_file()
        || (is_kernel_folder(folder) && folder.join(TRACKWAY_FOLDER).is_dir());
    is_ours && !folder.join(COMPLETE_FILE).exists()
}

/// Returns true if the trace in `folder` was completed: nothing is added to it any more.
pub(crate) fn is_complete(folder: &Path) -> bool {
    folder.join(COMPLETE_FILE).exists()
}

/// The progress of a trace, as its recorder publishes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecorderProgress {
    /// One higher each time that it says so.
    sequence: u64,
    /// The value of the trace's clock up to which all events are in the files.
    pub(crate) clock: u64,
}

impl RecorderProgress {
    /// Decodes these bytes; `None` if they are not of one writing.
    fn of(bytes: [u8; 24]) -> Option<Self> {
        let mut words = bytes.chunks_exact(8).map_while(|word| word.first_chunk::<8>());
        let mut next = || words.next().map(|word| u64::from_le_bytes(*word));
        let (sequence, clock, check) = (next()?, next()?, next()?);
        (check == !(sequence ^ clock)).then_some(Self { sequence, clock })
    }
}

/// Returns the progress of the trace in `folder`; `None` if its recorder publishes none, or is
/// writing another one just now.
pub(crate) fn read_progress(folder: &Path) -> Option<RecorderProgress> {
    let file = folder::open_regular_file(&folder.join(PROGRESS_FILE)).ok()?;
    (0..PROGRESS_READS_MAX).find_map(|_| {
        let mut bytes = [0; 24];
        file.read_exact_at(&mut bytes, 0).ok()?;
        RecorderProgress::of(bytes)
    })
}

/// Returns true if a recorder writes into the folder `path`, or one below.
pub(crate) fn is_live_below(path: &Path, depth: usize) -> bool {
    if recorder_lock_state(path) == LockState::Locked {
        return true;
    }
    let below =
        if depth < folder::DEPTH_MAX { folder::list_subfolders(path) } else { return false };
    below.unwrap_or_default().iter().any(|folder| is_live_below(folder, depth + 1))
}

/// The folder that the streams in `folder` were recorded into, if they lie as its recorder lays
/// them out.
fn recording_root(folder: &Path) -> Option<&Path> {
    if is_kernel_folder(folder) {
        return folder.parent();
    }
    let mut names = folder.ancestors().take(STREAMS_DEPTH).map(|path| path.file_name());
    let is_laid_out = names.next()? == Some("64-bit".as_ref())
        && names.next()?.is_some()
        && names.next()? == Some("uid".as_ref())
        && names.next()? == Some("ust".as_ref());
    folder.ancestors().nth(STREAMS_DEPTH).filter(|_| is_laid_out)
}

/// Returns true if a folder has the kernel events of a recording: beside user events.
fn is_kernel_folder(folder: &Path) -> bool {
    folder.file_name() == Some(KERNEL_FOLDER.as_ref())
        && folder.parent().is_some_and(|root| root.join("ust").is_dir())
}

/// The state of a recorder's lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LockState {
    /// A recorder has it.
    Locked,
    /// It is free.
    Free,
    /// It cannot be tested: not all file systems can lock folders, not all users may open them.
    Unknown,
}

impl From<Result<(), TryLockError>> for LockState {
    fn from(tried: Result<(), TryLockError>) -> Self {
        match tried {
            Ok(()) => Self::Free,
            Err(TryLockError::WouldBlock) => Self::Locked,
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::NotFound => Self::Free,
            Err(TryLockError::Error(_)) => Self::Unknown,
        }
    }
}

/// Returns the state of a recorder's lock on the folder `path`.
fn recorder_lock_state(path: &Path) -> LockState {
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
        let found = || find_unfinished_recordings(&[folder.clone(), folder.clone()]);
        fs::create_dir_all(folder.join("trackway")).expect("a folder");
        assert!(found().is_empty(), "nobody says that it was recorded");
        fs::write(folder.join(CALIBRATION_FILE), "").expect("a file");
        assert_eq!(found(), [root.path()]);
        let recorder = File::open(root.path()).expect("a folder");
        recorder.lock().expect("a lock");
        assert!(found().is_empty() && is_live(&folder), "it is being recorded");
        assert!(is_live_below(root.path(), 0) && !is_live_below(&folder, 0));
        drop(recorder);
        assert!(!is_live(&folder));
        fs::write(folder.join(COMPLETE_FILE), "").expect("a file");
        assert!(found().is_empty(), "it is complete");
        fs::remove_file(folder.join(COMPLETE_FILE)).expect("a file");
        let elsewhere = root.join("elsewhere");
        fs::rename(&folder, &elsewhere).expect("a folder");
        assert!(find_unfinished_recordings(&[elsewhere]).is_empty(), "recovery would not find it");
    }

    #[test]
    fn what_a_recorder_says_is_believed_if_it_is_of_one_writing() {
        let folder = TemporaryFolder::new();
        let say = |words: &[u64]| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            fs::write(folder.join(PROGRESS_FILE), bytes).expect("a file");
            read_progress(folder.path())
        };
        assert_eq!(read_progress(folder.path()), None, "there is no file");
        fs::create_dir_all(folder.join("trackway")).expect("a folder");
        assert_eq!(say(&[7, 500, !(7 ^ 500)]), Some(RecorderProgress { sequence: 7, clock: 500 }));
        assert_eq!(say(&[8, 500, !(7 ^ 500)]), None, "half of it is another's");
        assert_eq!(say(&[0, 0, 0]), None, "nothing was written yet");
        assert_eq!(say(&[7, 500]), None, "it is cut off");
        fs::remove_file(folder.join(PROGRESS_FILE)).expect("a file");
        fs::create_dir(folder.join(PROGRESS_FILE)).expect("a folder");
        assert_eq!(read_progress(folder.path()), None, "it is no file");
    }

    #[test]
    fn where_folders_cannot_be_locked_only_what_is_complete_has_ended() {
        let root = TemporaryFolder::new();
        let folder = root.join("ust/uid/7/64-bit");
        fs::create_dir_all(folder.join("trackway")).expect("a folder");
        let refused =
            |kind: ErrorKind| LockState::from(Err(TryLockError::Error(io::Error::from(kind))));
        let unknown = |_: &Path| refused(ErrorKind::Unsupported);
        let found = || {
            (
                find_unfinished_with(slice::from_ref(&folder), &unknown),
                is_live_with(&folder, &unknown),
            )
        };
        assert_eq!(found(), (Vec::new(), false), "nobody says that it was recorded");
        fs::write(folder.join(CALIBRATION_FILE), "").expect("a file");
        assert_eq!(found(), (Vec::new(), true), "it may be recorded");
        fs::write(folder.join(COMPLETE_FILE), "").expect("a file");
        assert_eq!(found(), (Vec::new(), false), "it is complete");
        assert_eq!(refused(ErrorKind::PermissionDenied), LockState::Unknown);
        assert_eq!(recorder_lock_state(&root.join("nothing")), LockState::Free);
        assert_eq!(recorder_lock_state(root.path()), LockState::Free);
        let held = File::open(root.path()).expect("a folder");
        held.lock().expect("a lock");
        assert_eq!(recorder_lock_state(root.path()), LockState::Locked);
    }
}
