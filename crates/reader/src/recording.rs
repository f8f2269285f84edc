//! The recording state of a trace: still being written by `trackway record`, complete, or left
//! unfinished.
//!
//! The recorder locks the folder of the recording (flock(2)) and writes its calibrations to the
//! folder `trackway` beside the streams. At the very end it creates a completion mark there. While
//! a reader follows, the recorder also publishes there the time up to which all events are written:
//!
//! ```text
//! trackway/live: sequence u64, flushed u64 (the trace's clock), !(sequence ^ flushed) u64
//!                                                                           all little endian
//! ```
//!
//! The file is overwritten in place after each write of events, with the sequence incremented.
//! Traces that were exported from a recording, as by [`crate::trim_traces`], have no such folder:
//! like for other tracers, their state is unknown.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::folder;

/// File in traces of `trackway record`; `trackway_recorder` (`trace::layout`) defines its name.
const CALIBRATION_FILE: &str = "trackway/clock.csv";
/// File in complete traces; `trackway_recorder` (`trace::completion`) defines its name.
const COMPLETE_FILE: &str = "trackway/complete";
/// File in which a recorder publishes its progress.
const PROGRESS_FILE: &str = "trackway/live";
/// Folder of the recorder's state files in a trace.
const TRACKWAY_FOLDER: &str = "trackway";
/// Folder of kernel events, next to `ust`.
const KERNEL_FOLDER: &str = "kernel";
/// Maximum number of attempts to read the progress while the recorder overwrites it.
const PROGRESS_READS_MAX: usize = 4;
/// Depth of the streams' folder in the recording's folder: `ust/uid/UID/64-bit`.
const STREAMS_DEPTH: usize = 4;

/// Returns the recording folders of the traces in `folders` that are incomplete and without a
/// recorder: their recorder was killed. `trackway recover` completes them.
///
/// If folders cannot be locked, the state is unknown and the result empty.
pub fn find_unfinished_recordings(folders: &[PathBuf]) -> Vec<PathBuf> {
    find_unfinished_with(folders, &recorder_lock_state)
}

fn find_unfinished_with(folders: &[PathBuf], lock: &dyn Fn(&Path) -> LockState) -> Vec<PathBuf> {
    let is_unfinished = |folder: &&PathBuf| {
        is_incomplete(folder)
            && recording_root(folder).is_some_and(|root| lock(root) == LockState::Free)
            // The recorder may have completed the trace and unlocked it between these two checks.
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

/// Returns true if a recorder writes the trace in `folder`, or may do so: if folders cannot be
/// locked, only complete traces are known to have ended.
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

/// Returns true if `trackway record` wrote the trace in `folder`, and the trace is not complete.
fn is_incomplete(folder: &Path) -> bool {
    // Traces of kernel events have no calibration file.
    let is_ours = folder.join(CALIBRATION_FILE).is_file()
        || (is_kernel_folder(folder) && folder.join(TRACKWAY_FOLDER).is_dir());
    is_ours && !folder.join(COMPLETE_FILE).exists()
}

/// Returns true if the trace in `folder` is complete: nothing is added to it later.
pub(crate) fn is_complete(folder: &Path) -> bool {
    folder.join(COMPLETE_FILE).exists()
}

/// The progress that a recorder publishes for a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecorderProgress {
    /// Number that each publication increments.
    sequence: u64,
    /// Clock value up to which all events are in the files.
    pub(crate) clock: u64,
}

impl RecorderProgress {
    /// Decodes a published progress; `None` if the bytes are a mixture of two publications.
    fn of(bytes: [u8; 24]) -> Option<Self> {
        let mut words = bytes.chunks_exact(8).map_while(|word| word.first_chunk::<8>());
        let mut next = || words.next().map(|word| u64::from_le_bytes(*word));
        let (sequence, clock, check) = (next()?, next()?, next()?);
        (check == !(sequence ^ clock)).then_some(Self { sequence, clock })
    }
}

/// Returns the progress of the trace in `folder`; `None` if its recorder publishes none, or is
/// overwriting it at this moment.
pub(crate) fn read_progress(folder: &Path) -> Option<RecorderProgress> {
    let file = folder::open_regular_file(&folder.join(PROGRESS_FILE)).ok()?;
    (0..PROGRESS_READS_MAX).find_map(|_| {
        let mut bytes = [0; 24];
        file.read_exact_at(&mut bytes, 0).ok()?;
        RecorderProgress::of(bytes)
    })
}

/// Returns true if a recorder writes into the folder `path`, or into a folder below it.
pub(crate) fn is_live_below(path: &Path, depth: usize) -> bool {
    if recorder_lock_state(path) == LockState::Locked {
        return true;
    }
    let below =
        if depth < folder::DEPTH_MAX { folder::list_subfolders(path) } else { return false };
    below.unwrap_or_default().iter().any(|folder| is_live_below(folder, depth + 1))
}

/// Returns the recording's folder for the streams in `folder`, if their path has a recorder's
/// layout.
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

/// Returns true if the folder has the kernel events of a recording: its parent has user events,
/// too.
fn is_kernel_folder(folder: &Path) -> bool {
    folder.file_name() == Some(KERNEL_FOLDER.as_ref())
        && folder.parent().is_some_and(|root| root.join("ust").is_dir())
}

/// The state of a recorder's lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LockState {
    /// A recorder holds the lock.
    Locked,
    /// No recorder holds the lock.
    Free,
    /// The state cannot be tested: some file systems cannot lock folders, some users may not open
    /// them.
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
