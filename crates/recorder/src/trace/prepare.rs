//! Preparation of a new trace's folder: locks it, and moves an earlier trace out of the way.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::error::RecordError;
use crate::trace::folder::TraceFolder;
use crate::trace::layout::{
    CALIBRATIONS_FILE, FACTS_FOLDER, KERNEL_FOLDER, SNAPSHOT_PREFIX, is_empty_folder,
    user_streams_folders,
};

/// A trace's folder that this process owns while the value lives: its directory is locked
/// (flock(2)).
#[derive(Debug)]
pub(crate) struct PreparedFolder {
    /// Absolute path of the folder.
    pub(crate) path: PathBuf,
    /// The parent folder, as opened before the folder was made.
    parent: ParentDir,
    /// True if the folder was made for this trace.
    is_new: bool,
    /// True after [`Self::commit`]: the folder will be used.
    is_used: bool,
    /// Earlier trace that was moved aside; `None` after [`Self::commit`].
    moved: Option<MovedTrace>,
    /// Open folder; it stays locked while a process has it open.
    place: Arc<TraceFolder>,
}

/// The parent folder of a trace. If another user owns a folder on its path, the path may change at
/// any time: entries are made, moved and removed below this open folder.
#[derive(Debug)]
struct ParentDir(TraceFolder);

impl ParentDir {
    /// Makes and opens the parent folder of `root`; it may already exist.
    fn make(root: &Path) -> io::Result<Self> {
        let path = root.parent().unwrap_or(root);
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        TraceFolder::open_to_find(path).map(Self)
    }

    /// Returns the path of the entry that `path` names, below this open folder.
    fn entry_path(&self, path: &Path) -> io::Result<PathBuf> {
        match path.file_name() {
            Some(name) => Ok(self.0.current_path()?.join(name)),
            // The path is `/` or ends in `..`.
            None => Ok(path.to_owned()),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(self.entry_path(from)?, self.entry_path(to)?)
    }

    /// Returns true if the folder has an entry with the name of `path`.
    fn has_entry(&self, path: &Path) -> bool {
        self.entry_path(path).and_then(fs::symlink_metadata).is_ok()
    }

    /// Removes the trace with the name of `path`; fails if other files were added to it.
    fn remove_trace(&self, path: &Path) -> io::Result<()> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let folder = self.0.open_folder(name)?;
        let now = folder.current_path()?;
        if !is_only_a_trace(&now) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        for entry in fs::read_dir(now)? {
            // This call follows no link.
            fs::remove_dir_all(entry?.path())?;
        }
        fs::remove_dir(self.entry_path(path)?)
    }
}

/// An earlier trace that was moved aside.
#[derive(Debug)]
struct MovedTrace {
    to: PathBuf,
    /// Path of an even earlier trace that waits for its removal.
    before: Option<PathBuf>,
}

impl MovedTrace {
    /// Moves the earlier trace back to `root`, over an empty folder made by this process. If that
    /// folder is not empty, both traces stay.
    fn undo(self, parent: &ParentDir, root: &Path) {
        if parent.rename(&self.to, root).is_ok()
            && let Some(before) = self.before
        {
            let _ = parent.rename(&before, &self.to);
        }
    }

    fn commit(self, parent: &ParentDir) -> PathBuf {
        if let Some(before) = &self.before {
            // The folder holds only a trace; users can remove the remaining files.
            let _ = parent.remove_trace(before);
        }
        self.to
    }
}

impl PreparedFolder {
    /// Confirms that the folder will be used. The earlier trace stays where it was moved, and the
    /// even earlier one is removed. Returns the earlier trace's path, if any.
    pub(crate) fn commit(&mut self) -> Option<PathBuf> {
        self.is_used = true;
        self.moved.take().map(|moved| moved.commit(&self.parent))
    }

    /// Returns the open folder, which can be found again after a move. The folder stays locked
    /// while the result lives.
    pub(crate) fn trace_folder(&self) -> Arc<TraceFolder> {
        Arc::clone(&self.place)
    }

    /// Removes the folder if it was made for this trace and is empty.
    pub(crate) fn remove_new(&self) {
        if self.is_new {
            // A folder that cannot be removed is harmless.
            let _ = self.place.remove_if_empty();
        }
    }
}

impl Drop for PreparedFolder {
    /// Restores the former state if the folder was not committed.
    fn drop(&mut self) {
        if !self.is_used {
            self.remove_new();
        }
        if let Some(moved) = self.moved.take() {
            moved.undo(&self.parent, &self.path);
        }
    }
}

/// Number of attempts to lock a folder, and the pause between them: readers briefly take the lock
/// to check for a recorder.
const LOCK_TRIES: usize = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(1);
/// Most attempts to prepare a folder that other processes make and move at the same time.
const FOLDER_TRIES_MAX: usize = 8;
/// Most names to try for a folder that the user did not name.
const NAMES_MAX: usize = 1000;

/// Treatment of the trace at `root.old` when the trace at `root` takes its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExistingTrace {
    /// The older trace is removed, like in perf(1): the user has repeated a command.
    Remove,
    /// The older trace stays, and the trace at `root` becomes `root.old-2`, and so on: a service
    /// manager may restart a command after repeated crashes.
    Keep,
}

/// Prepares a folder for a session's trace at `root`, like [`prepare_trace_folder`].
///
/// # Errors
///
/// Also if the folder would be inside another trace.
pub(crate) fn prepare_session(
    root: &Path,
    older: ExistingTrace,
) -> Result<PreparedFolder, RecordError> {
    check_outside_traces(root)?;
    prepare_with_policy(root, older)
}

/// Prepares a folder for a trace at `root`. Moves an earlier trace there to `root.old`; once
/// [committed](PreparedFolder::commit), it replaces an even earlier one. Leaves folders alone that
/// hold anything else, or that are being recorded into.
pub(crate) fn prepare_trace_folder(root: &Path) -> Result<PreparedFolder, RecordError> {
    prepare_with_policy(root, ExistingTrace::Remove)
}

fn prepare_with_policy(root: &Path, older: ExistingTrace) -> Result<PreparedFolder, RecordError> {
    let absolute = std::path::absolute(root).map_err(RecordError::io("use", root))?;
    // The path must not end with a slash: otherwise `root.old` would be inside the folder.
    let root: PathBuf = absolute.components().collect();
    let parent = ParentDir::make(&root).map_err(RecordError::io("make", &root))?;
    prepare_in(parent, root, older)
}

/// Prepares the folder of the trace named by `path` below the open folder `parent`, wherever that
/// path leads.
pub(crate) fn prepare_below(
    parent: TraceFolder,
    path: PathBuf,
) -> Result<PreparedFolder, RecordError> {
    prepare_in(ParentDir(parent), path, ExistingTrace::Remove)
}

fn prepare_in(
    parent: ParentDir,
    root: PathBuf,
    older: ExistingTrace,
) -> Result<PreparedFolder, RecordError> {
    let (mut moved, mut is_new) = (None, false);
    match make_locked_folder(&parent, &root, older, (&mut moved, &mut is_new)) {
        Ok(place) => {
            // The earlier trace is moved back over the new folder.
            let is_new = is_new && moved.is_none();
            let place = Arc::new(place);
            Ok(PreparedFolder { path: root, parent, is_new, is_used: false, moved, place })
        }
        Err(error) => {
            if is_new {
                let _ = parent.entry_path(&root).and_then(fs::remove_dir);
            }
            if let Some(moved) = moved {
                moved.undo(&parent, &root);
            }
            Err(error)
        }
    }
}

/// Makes an empty folder and locks it. Stores the trace that was moved aside, and true for a new
/// folder, in the last two parameters, also on failure.
fn make_locked_folder(
    parent: &ParentDir,
    root: &Path,
    older: ExistingTrace,
    (moved, is_new): (&mut Option<MovedTrace>, &mut bool),
) -> Result<TraceFolder, RecordError> {
    for _ in 0..FOLDER_TRIES_MAX {
        let here = parent.entry_path(root).map_err(RecordError::io("use", root))?;
        *is_new |= make_folder(&here).map_err(RecordError::io("make", root))?;
        let Some(lock) = lock_at(&here, root)? else { continue };
        let place = TraceFolder::of(lock, root);
        let now = place.current_path().map_err(RecordError::io("use", root))?;
        if is_empty_folder(&now).map_err(RecordError::io("use", root))? {
            return Ok(place);
        }
        // A second trace there is from a faster recorder: keep it, and remove the even earlier one.
        if let Some(before) = moved.replace(move_aside((root, &place), parent, older)?) {
            before.commit(parent);
        }
    }
    Err(RecordError::FolderBusy(root.to_owned()))
}

/// Checks that a new trace at `root` would not be inside another trace. Readers would take it for a
/// piece of the outer trace, and it would move with that trace.
///
/// # Errors
///
/// If the new trace would be inside another one, even one that is being recorded.
pub(crate) fn check_outside_traces(root: &Path) -> Result<(), RecordError> {
    let absolute = std::path::absolute(root).map_err(RecordError::io("use", root))?;
    // Names prove nothing: the folder, or its first existing parent, may be a link.
    let there = absolute.ancestors().enumerate();
    let mut found = there.filter_map(|(level, path)| Some((level, path.canonicalize().ok()?)));
    let Some((level, there)) = found.next() else { return Ok(()) };
    let mut outer = there.ancestors().skip(usize::from(level == 0));
    match outer.find(|folder| is_recorded_here(folder)) {
        Some(outer) => Err(RecordError::FolderInside(root.to_owned(), outer.to_owned())),
        None => Ok(()),
    }
}

/// Returns true if the folder `root` has a trace that Trackway recorded or is recording.
fn is_recorded_here(root: &Path) -> bool {
    let has_calibrations =
        |channel: &PathBuf| channel.join(FACTS_FOLDER).join(CALIBRATIONS_FILE).is_file();
    // Kernel traces have no calibrations; traces of other tracers have no facts folder.
    let kernel = root.join(KERNEL_FOLDER);
    let has_kernel = || kernel.join("metadata").is_file() && kernel.join(FACTS_FOLDER).is_dir();
    user_streams_folders(root).iter().any(has_calibrations) || has_kernel()
}

/// Makes a new folder for a trace, named `trackway-DATE-TIME` in UTC, in the current folder. A
/// session's name precedes the date.
pub(crate) fn prepare_new(session: &str) -> Result<(PathBuf, PreparedFolder), RecordError> {
    let time = crate::common::date::format_utc(trackway_sys::clock::realtime_ns() / 1_000_000_000)
        .replace('T', "-");
    let stamp = if session.is_empty() { time } else { format!("{session}-{time}") };
    let mut name = PathBuf::from(format!("trackway-{stamp}"));
    check_outside_traces(&name)?;
    // This opens the current folder itself, wherever its path leads later.
    let here = TraceFolder::open_to_find(Path::new(".")).map_err(RecordError::io("use", "."))?;
    for number in 2..NAMES_MAX {
        match DirBuilder::new().mode(0o700).create(&name) {
            Ok(()) => {
                let parent = here.reopen_folder().map_err(RecordError::io("use", "."))?;
                let path = std::path::absolute(&name).map_err(RecordError::io("use", &name))?;
                let prepared_folder = prepare_below(parent, path);
                let mut prepared_folder =
                    prepared_folder.inspect_err(|_| drop(fs::remove_dir(&name)))?;
                prepared_folder.is_new = true;
                return Ok((name, prepared_folder));
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                name = PathBuf::from(format!("trackway-{stamp}-{number}"));
            }
            Err(error) => return Err(RecordError::io("make", &name)(error)),
        }
    }
    Err(RecordError::FolderInUse(name))
}

/// Makes a folder if it does not exist. Returns true if it was made.
fn make_folder(folder: &Path) -> io::Result<bool> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        made => made.map(|()| true),
    }
}

/// Locks the folder. Returns `None` if it was moved away meanwhile.
pub(crate) fn lock_folder(folder: &Path) -> Result<Option<File>, RecordError> {
    lock_at(folder, folder)
}

/// Locks the folder at `here`; messages use the path `folder`.
fn lock_at(here: &Path, folder: &Path) -> Result<Option<File>, RecordError> {
    let opened = fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(here);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(RecordError::io("use", folder)(error)),
    };
    // File systems that cannot lock folders (NFS) do not exclude other processes.
    let mut tries = 1;
    while matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
        if tries == LOCK_TRIES {
            return Err(RecordError::FolderBusy(folder.to_owned()));
        }
        tries += 1;
        std::thread::sleep(LOCK_PAUSE);
    }
    Ok(is_at_path(&file, here).then_some(file))
}

/// Returns true if `path` leads to this open folder.
fn is_at_path(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(ours), Ok(there)) => (ours.dev(), ours.ino()) == (there.dev(), there.ino()),
        _ => false,
    }
}

/// Returns true if the folder contains only a trace or a session's snapshots.
fn is_only_a_trace(folder: &Path) -> bool {
    let has_only = |folder: &Path, is_ours: &dyn Fn(&Path) -> bool| {
        fs::read_dir(folder).is_ok_and(|mut entries| {
            entries.all(|entry| entry.is_ok_and(|entry| is_ours(&entry.path())))
        })
    };
    let is_named = |path: &Path, name: &str| path.file_name().is_some_and(|found| *found == *name);
    let is_a_trace = |path: &Path| {
        let is_uid = |path: &Path| is_named(path, "uid");
        is_named(path, "ust") && path.is_dir() && has_only(path, &is_uid)
    };
    // A kernel folder of Trackway is beside user events or has a facts folder: LTTng uses the same
    // name.
    let is_of_the_kernel = |path: &Path| {
        let is_unpublished = path.parent().is_some_and(|folder| folder.join("ust").is_dir());
        let is_ours = is_unpublished || path.join(FACTS_FOLDER).is_dir();
        is_named(path, KERNEL_FOLDER) && path.join("metadata").is_file() && is_ours
    };
    let is_a_snapshot = |path: &Path| {
        let number = path.file_name().and_then(|name| name.to_str()?.strip_prefix(SNAPSHOT_PREFIX));
        number.is_some_and(|number| number.parse::<u32>().is_ok())
            && has_only(path, &|path: &Path| is_a_trace(path) || is_of_the_kernel(path))
    };
    let is_ours = |path: &Path| is_a_trace(path) || is_a_snapshot(path) || is_of_the_kernel(path);
    !is_empty_folder(folder).unwrap_or(true) && has_only(folder, &is_ours)
}

/// Moves the earlier trace at `root`, which this process has locked and open, to `root.old`.
fn move_aside(
    (root, place): (&Path, &TraceFolder),
    parent: &ParentDir,
    older: ExistingTrace,
) -> Result<MovedTrace, RecordError> {
    let now = place.current_path().map_err(RecordError::io("use", root))?;
    let is_here = || File::open(".").is_ok_and(|here| is_at_path(&here, &now));
    if !is_only_a_trace(&now) || root.file_name().is_none() || is_here() {
        return Err(RecordError::FolderInUse(root.to_owned()));
    }
    let named = |end: &str| {
        let mut old = root.as_os_str().to_owned();
        old.push(end);
        PathBuf::from(old)
    };
    let old = named(".old");
    let others = || (2..NAMES_MAX).map(|number| named(&format!(".old-{number}")));
    let free = || {
        let free =
            std::iter::once(old.clone()).chain(others()).find(|path| !parent.has_entry(path));
        free.ok_or_else(|| RecordError::FolderInUse(old.clone()))
    };
    let (to, mut before) = match older {
        ExistingTrace::Remove => (old.clone(), None),
        ExistingTrace::Keep => (free()?, None),
    };
    if parent.has_entry(&to) {
        let here = parent.entry_path(&to).map_err(RecordError::io("use", &to))?;
        // A trace that is being recorded is locked and stays.
        let _lock = lock_at(&here, &to)?;
        let gone = is_empty_folder(&here).unwrap_or(false) || is_only_a_trace(&here);
        if !gone {
            return Err(RecordError::FolderInUse(to));
        }
        let aside = free()?;
        parent.rename(&to, &aside).map_err(RecordError::io("rename", &to))?;
        before = Some(aside);
    }
    match parent.rename(root, &to) {
        Ok(()) => Ok(MovedTrace { to, before }),
        Err(error) => {
            if let Some(before) = before {
                let _ = parent.rename(&before, &to);
            }
            Err(RecordError::io("rename", root)(error))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use trackway_testkit::TemporaryFolder;

    use super::*;

    #[test]
    fn only_earlier_traces_are_moved_and_only_idle_ones() {
        let base = std::env::temp_dir().join(format!("trackway-room-{}", std::process::id()));
        let root = base.join("a").join("trace");
        let put = |folder: &Path| fs::create_dir_all(folder.join("ust/uid/0")).unwrap();
        let mut prepared_folder = prepare_trace_folder(&root.join("")).unwrap();
        assert_eq!((prepared_folder.commit(), &prepared_folder.path), (None, &root));
        assert!(matches!(prepare_trace_folder(&root), Err(RecordError::FolderBusy(_))));
        put(&root);
        assert!(matches!(prepare_trace_folder(&root), Err(RecordError::FolderBusy(_))));
        drop(prepared_folder);
        let old = base.join("a").join("trace.old");
        for _ in 0..2 {
            let mut prepared_folder = prepare_trace_folder(&root).unwrap();
            assert_eq!(prepared_folder.commit().as_ref(), Some(&old));
            put(&root);
        }
        // With `ExistingTrace::Keep`, no trace is removed.
        for number in 2..4 {
            let mut prepared_folder = prepare_session(&root, ExistingTrace::Keep).unwrap();
            let other = base.join("a").join(format!("trace.old-{number}"));
            assert_eq!(prepared_folder.commit().as_ref(), Some(&other));
            put(&root);
        }
        assert!(old.join("ust").exists());
        put(&old.join("snapshot-12"));
        fs::remove_dir_all(old.join("ust")).unwrap();
        assert!(is_only_a_trace(&old));
        let kernel = base.join("kernel-only").join(KERNEL_FOLDER);
        fs::create_dir_all(&kernel).unwrap();
        fs::write(kernel.join("metadata"), "").unwrap();
        let inner = kernel.with_file_name("inner");
        assert!(!is_only_a_trace(kernel.parent().unwrap()), "it may be another tracer's");
        assert!(check_outside_traces(&inner).is_ok());
        fs::create_dir(kernel.join(FACTS_FOLDER)).unwrap();
        assert!(is_only_a_trace(kernel.parent().unwrap()));
        assert!(matches!(check_outside_traces(&inner), Err(RecordError::FolderInside(..))));
        fs::write(old.join("mine"), "").unwrap();
        let refused = prepare_trace_folder(&root);
        assert!(matches!(refused, Err(RecordError::FolderInUse(path)) if path == old));
        fs::write(root.join("mine"), "").unwrap();
        let refused = prepare_trace_folder(&root);
        assert!(matches!(refused, Err(RecordError::FolderInUse(path)) if path == root));
        assert!(root.join("ust").exists() && old.join("snapshot-12").exists());
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn what_was_moved_for_nothing_is_moved_back() {
        let base = TemporaryFolder::new();
        let (root, old) = (base.join("trace"), base.join("trace.old"));
        let put = |folder: &Path, uid: &str| {
            fs::create_dir_all(folder.join("ust/uid").join(uid)).expect("a folder");
        };
        put(&root, "1");
        put(&old, "2");
        let names = || {
            let entries = fs::read_dir(base.path()).expect("a folder").flatten();
            let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
            names.sort();
            names
        };
        for older in [ExistingTrace::Remove, ExistingTrace::Keep] {
            drop(prepare_session(&root, older).expect("room"));
            assert!(root.join("ust/uid/1").exists() && old.join("ust/uid/2").exists());
            assert_eq!(names(), ["trace", "trace.old"]);
        }
        // A file that was added meanwhile stays, and no file is overwritten.
        let prepared_folder = prepare_trace_folder(&root).expect("room");
        put(&root, "3");
        drop(prepared_folder);
        assert!(root.join("ust/uid/3").exists() && old.join("ust/uid/1").exists());
        assert!(base.join("trace.old-2/ust/uid/2").exists());
    }

    #[test]
    fn who_looks_whether_a_folder_is_recorded_into_keeps_no_recorder_away() {
        let base = std::env::temp_dir().join(format!("trackway-look-{}", std::process::id()));
        let root = base.join("trace");
        fs::create_dir_all(&root).expect("a folder");
        let looked = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let folder = File::open(&root).expect("a folder");
                folder.try_lock_shared().expect("a lock");
                looked.wait();
                std::thread::sleep(LOCK_PAUSE);
            });
            looked.wait();
            assert!(prepare_trace_folder(&root).is_ok());
        });
        fs::remove_dir_all(&base).expect("a folder");
    }

    #[test]
    fn what_an_earlier_trace_lay_in_is_held_while_it_is_moved_and_removed() {
        let base = TemporaryFolder::new();
        let [theirs, moved, victim] = ["theirs", "moved", "victim"].map(|name| base.join(name));
        let put = |folder: PathBuf| fs::create_dir_all(folder.join("ust/uid/0")).expect("a folder");
        let swap = || {
            fs::rename(&theirs, &moved).expect("ours");
            std::os::unix::fs::symlink(&victim, &theirs).expect("a link");
        };
        let back = || {
            fs::remove_file(&theirs).expect("the link");
            fs::rename(&moved, &theirs).expect("ours");
        };
        for name in ["trace", "trace.old"] {
            put(theirs.join(name));
        }
        for name in ["trace.old", "trace.old-2"] {
            put(victim.join(name));
        }
        let root = theirs.join("trace");
        let mut prepared_folder = prepare_trace_folder(&root).expect("room");
        assert!(theirs.join("trace.old-2").exists(), "until it is certain");
        swap();
        prepared_folder.commit();
        assert!(!moved.join("trace.old-2").exists() && moved.join("trace.old").exists());
        drop(prepared_folder);
        back();
        put(root.clone());
        let prepared_folder = prepare_trace_folder(&root).expect("room");
        swap();
        drop(prepared_folder);
        assert!(moved.join("trace/ust").exists() && moved.join("trace.old/ust").exists());
        for name in ["trace.old", "trace.old-2"] {
            assert!(victim.join(name).join("ust/uid/0").exists(), "{name}");
        }
        assert_eq!(fs::read_dir(&victim).expect("a folder").count(), 2);
        back();
    }

    #[test]
    fn a_folder_that_was_made_and_is_not_used_goes() {
        let base = TemporaryFolder::new();
        let (made, before) = (base.join("made"), base.join("before"));
        fs::create_dir(&before).expect("a folder");
        for root in [&made, &before] {
            drop(prepare_trace_folder(root).expect("room"));
        }
        assert!(!made.exists() && before.exists(), "whoever had a folder keeps it");
        let mut prepared_folder = prepare_trace_folder(&made).expect("room");
        prepared_folder.commit();
        drop(prepared_folder);
        assert!(made.exists());
    }
}
