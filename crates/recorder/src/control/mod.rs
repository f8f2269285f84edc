//! Control of sessions: each has a Unix socket, in a folder that belongs to its user.
//!
//! ```text
//! $TRACKWAY_RUN_DIR, /run/trackway (root), $XDG_RUNTIME_DIR/trackway, or /tmp/trackway-UID    0700
//!     NAME.sock    requests and answers, `trackway_session::protocol`    0600
//!     NAME.lock    locked (flock(2)) by the session's recorder; its trace: `dead_sessions`
//!     NAME.log     what the recorder had to say
//!     UUID.part    where the trace of a session in another user's window is: `origin_file`
//! ```
//!
//! Only the user and root can access the folder; the kernel also reports the user of each
//! connection. For root in another user's folder, see `locate`.

pub mod client;
mod dead_sessions;
mod locate;
pub(crate) mod origin_file;
mod request_parser;
pub(crate) mod server;

use std::cell::Cell;
use std::fs::{self, DirBuilder, File, FileTimes, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileExt as _, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use trackway_session::is_valid_name;

pub use dead_sessions::DeadSession;
pub(crate) use dead_sessions::SessionIdentity;
pub use request_parser::RequestParser;

use crate::common::files::open_regular;
use crate::error::RecordError;

/// Environment variable that names the folder of control sockets.
const FOLDER_VARIABLE: &str = "TRACKWAY_RUN_DIR";
const SOCKET_EXTENSION: &str = "sock";
const LOCK_EXTENSION: &str = "lock";
const LOG_EXTENSION: &str = "log";

/// Number of attempts to claim a name. Another process may hold the lock for a moment: to check if
/// the recorder lives, or to remove a dead recorder's files.
const CLAIM_TRIES: usize = 20;
/// Pause between two attempts to claim a name.
const CLAIM_PAUSE: Duration = Duration::from_millis(1);

/// Folder of a user's control sockets.
#[derive(Debug, Clone)]
pub struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    /// Returns the run folder with this path.
    #[cfg(test)]
    pub(crate) fn from_path(path: PathBuf) -> Self {
        Self { path }
    }

    /// Returns the path of the run folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the run folder, if it does not exist.
    ///
    /// # Errors
    ///
    /// If the folder cannot be created, or other users can access it.
    pub fn make(&self) -> Result<(), RecordError> {
        match DirBuilder::new().mode(0o700).create(&self.path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(RecordError::io("make", &self.path)(error));
            }
            _ => {}
        }
        self.check().map(|_| ())
    }

    /// Returns true if the run folder exists.
    ///
    /// # Errors
    ///
    /// If it does not belong to this user only: its owner could answer instead of a session.
    pub fn check(&self) -> Result<bool, RecordError> {
        let status = match fs::symlink_metadata(&self.path) {
            Ok(status) => status,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(RecordError::io("use", &self.path)(error)),
        };
        let is_ours = status.is_dir() && status.uid() == crate::common::user::effective_uid();
        if !is_ours || status.mode() & 0o077 != 0 {
            return Err(RecordError::RunFolder(self.path.clone()));
        }
        Ok(true)
    }

    /// Returns the sorted names of the sessions that have a socket; their recorders may be dead.
    ///
    /// # Errors
    ///
    /// If other users could answer instead of the sessions, or the folder cannot be read.
    pub fn names(&self) -> Result<Vec<String>, RecordError> {
        if self.owner()?.is_none() {
            return Ok(Vec::new());
        }
        let entries = fs::read_dir(&self.path).map_err(RecordError::io("read", &self.path))?;
        let mut names: Vec<String> = entries
            .filter_map(|entry| {
                let path = entry.ok()?.path();
                let is_socket =
                    path.extension().is_some_and(|extension| extension == SOCKET_EXTENSION);
                let name = path.file_stem()?.to_str()?.to_owned();
                (is_socket && is_valid_name(&name)).then_some(name)
            })
            .collect();
        names.sort();
        Ok(names)
    }

    fn file(&self, name: &str, kind: &str) -> PathBuf {
        self.path.join(format!("{name}.{kind}"))
    }

    /// Returns the path of the control socket of session `name`.
    pub(crate) fn socket(&self, name: &str) -> PathBuf {
        self.file(name, SOCKET_EXTENSION)
    }

    /// Returns the path of the log of session `name`.
    pub fn log(&self, name: &str) -> PathBuf {
        self.file(name, LOG_EXTENSION)
    }

    /// Returns true if the recorder of session `name` lives.
    pub fn is_alive(&self, name: &str) -> bool {
        open_regular(&self.file(name, LOCK_EXTENSION), fs::OpenOptions::new().read(true))
            .is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
            || self.accepts_connections(name)
    }

    /// Removes the files of a dead recorder; keeps files that may belong to a living recorder.
    pub fn clean(&self, name: &str) {
        if !self.is_own() {
            return;
        }
        // No other process can claim the name while this process holds the lock.
        let Ok(Some(lock)) = self.try_lock(name) else { return };
        // A recorder whose lock file was removed still owns the name.
        match self.accepts_connections(name) {
            true => self.remove_lock(name),
            false => self.remove(name),
        }
        drop(lock);
    }

    /// Returns true if a recorder accepts connections at the socket of session `name`. If its lock
    /// file was removed, like old temporary files are, nothing else shows that it lives.
    fn accepts_connections(&self, name: &str) -> bool {
        UnixStream::connect(self.socket(name)).is_ok()
    }

    /// Removes the lock file that this process created: the name belongs to a living recorder.
    fn remove_lock(&self, name: &str) {
        // The living recorder creates its own lock file again.
        let _ = fs::remove_file(self.file(name, LOCK_EXTENSION));
    }

    /// Removes the files of session `name`, which this process owns.
    fn remove(&self, name: &str) {
        // Remove the lock file last: it reserves the name. Other files that stay are harmless.
        for kind in [SOCKET_EXTENSION, LOG_EXTENSION, LOCK_EXTENSION] {
            let _ = fs::remove_file(self.file(name, kind));
        }
    }

    /// Claims the name of a session, for the lifetime of the result.
    ///
    /// # Errors
    ///
    /// If a session with this name exists, or the folder cannot be used.
    pub(crate) fn claim(&self, name: &str) -> Result<ClaimedName, RecordError> {
        self.make()?;
        for _ in 0..CLAIM_TRIES {
            let held = self.try_lock(name);
            if let Some(lock) =
                held.map_err(RecordError::io("lock", self.file(name, LOCK_EXTENSION)))?
            {
                if self.accepts_connections(name) {
                    self.remove_lock(name);
                    break;
                }
                // The dead session's identity stays until this process writes its own.
                let is_of_the_dead = Cell::new(self.identity_of(name).is_some());
                let (folder, name) = (self.clone(), name.to_owned());
                return Ok(ClaimedName { folder, name, lock, identity: None, is_of_the_dead });
            }
            std::thread::sleep(CLAIM_PAUSE);
        }
        Err(RecordError::SessionExists(name.to_owned()))
    }

    /// Locks a name; returns `None` if another process holds the lock.
    fn try_lock(&self, name: &str) -> io::Result<Option<File>> {
        let path = self.file(name, LOCK_EXTENSION);
        let mut options = fs::OpenOptions::new();
        let options = options.write(true).create(true).truncate(false).mode(0o600);
        let lock = open_regular(&path, options)?;
        match lock.try_lock() {
            // The previous owner may have removed the lock file at its end.
            Ok(()) => Ok(is_file_at(&lock, &path).then_some(lock)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// Replaces the contents of a file by `text`.
fn replace_contents(file: &File, text: &[u8]) -> io::Result<()> {
    // Write from the beginning: the file may have older contents.
    file.set_len(0).and_then(|()| file.write_all_at(text, 0))
}

/// Returns true if `file` is the file at `path`.
fn is_file_at(file: &File, path: &Path) -> bool {
    let identity = |status: fs::Metadata| (status.dev(), status.ino());
    let ours = file.metadata().map(identity);
    ours.is_ok_and(|ours| fs::metadata(path).map(identity).is_ok_and(|it| it == ours))
}

impl Default for RunFolder {
    fn default() -> Self {
        Self::new()
    }
}

/// Name of a session that this process owns. Dropping it removes the session's files, unless they
/// have the identity of a dead session that is not recovered.
#[derive(Debug)]
pub(crate) struct ClaimedName {
    pub(crate) folder: RunFolder,
    pub(crate) name: String,
    lock: File,
    /// Identity that was written to the lock file.
    identity: Option<SessionIdentity>,
    /// True if the lock file still has the identity of a dead recorder's trace.
    is_of_the_dead: Cell<bool>,
}

impl ClaimedName {
    /// Writes the identity of the trace to the lock file, for recovery if this process is killed.
    pub(crate) fn write_identity(&mut self, identity: SessionIdentity) -> Result<(), RecordError> {
        let path = self.folder.file(&self.name, LOCK_EXTENSION);
        self.is_of_the_dead.set(false);
        let written = replace_contents(&self.lock, &identity.text());
        self.identity = Some(identity);
        written.map_err(RecordError::io("write", path))
    }

    /// Returns the trace folder of the dead recorder that had this name, until this process writes
    /// its own identity.
    pub(crate) fn dead_session_folder(&self) -> Option<PathBuf> {
        let is_there = self.is_of_the_dead.get();
        is_there.then(|| self.folder.identity_of(&self.name)).flatten().map(|dead| dead.folder)
    }

    /// Keeps the lock file present and recent: creates it again if it was removed, and updates its
    /// times so that tools do not remove it. The next call retries after an error.
    pub(crate) fn refresh(&mut self) {
        if !self.restore_lock() {
            return;
        }
        let now = SystemTime::now();
        let _ = self.lock.set_times(FileTimes::new().set_accessed(now).set_modified(now));
    }

    /// Creates the lock file again if it was removed. Returns true if this process holds the lock
    /// then. Another process may hold it, for a moment to check if the name is free, or permanently
    /// after all files of this session were removed.
    fn restore_lock(&mut self) -> bool {
        if is_file_at(&self.lock, &self.folder.file(&self.name, LOCK_EXTENSION)) {
            return true;
        }
        let _ = self.folder.make();
        let Ok(Some(lock)) = self.folder.try_lock(&self.name) else { return false };
        let text = self.identity.as_ref().map(SessionIdentity::text).unwrap_or_default();
        let _ = replace_contents(&lock, &text);
        self.lock = lock;
        true
    }

    /// Opens the session's log and empties it.
    pub(crate) fn open_log(&self) -> Result<File, RecordError> {
        let path = self.folder.log(&self.name);
        let mut options = fs::OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        open_regular(&path, options).map_err(RecordError::io("make", path))
    }
}

impl Drop for ClaimedName {
    fn drop(&mut self) {
        if !self.restore_lock() {
            return;
        }
        // If the remains cannot be determined, records may be left.
        let is_over =
            || self.folder.find_dead_session(&self.name).is_ok_and(|left| !left.is_recoverable());
        if !self.is_of_the_dead.get() || is_over() {
            self.folder.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    mod hostile;

    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixListener;
    use std::sync::atomic::{AtomicBool, Ordering};

    use trackway_testkit::TemporaryFolder;

    use super::*;

    fn build_run_folder(inside: &TemporaryFolder) -> RunFolder {
        RunFolder { path: inside.join("run") }
    }

    #[test]
    fn a_name_is_one_recorder_s() {
        let temporary = TemporaryFolder::new();
        let folder = build_run_folder(&temporary);
        assert!(folder.names().expect("none").is_empty() && !folder.is_alive("web"));
        let web = folder.claim("web").expect("the name");
        assert!(
            matches!(folder.claim("web"), Err(RecordError::SessionExists(name)) if name == "web")
        );
        assert!(folder.is_alive("web"));
        let _other = folder.claim("other").expect("the name");
        fs::write(folder.socket("web"), "").expect("a file");
        folder.clean("web");
        assert_eq!(folder.names().expect("names"), ["web"], "the living keep what is theirs");
        drop(web);
        assert!(folder.names().expect("names").is_empty() && !folder.is_alive("web"));
        folder.claim("web").expect("the name again");
    }

    #[test]
    fn what_the_dead_left_is_cleaned() {
        let temporary = TemporaryFolder::new();
        let folder = build_run_folder(&temporary);
        folder.make().expect("a folder");
        for kind in [SOCKET_EXTENSION, LOCK_EXTENSION, LOG_EXTENSION] {
            fs::write(folder.file("dead", kind), "").expect("a file");
        }
        assert_eq!(folder.names().expect("names"), ["dead"]);
        folder.clean("dead");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }

    /// Tests a name that another process owns, whose lock file was replaced or removed, like a tool
    /// for old temporary files does.
    #[test]
    fn what_is_left_of_the_living_is_not_cleaned() {
        let temporary = TemporaryFolder::new();
        let folder = build_run_folder(&temporary);
        folder.make().expect("a folder");
        let listener = UnixListener::bind(folder.socket("web")).expect("a socket");
        fs::write(folder.log("web"), "said").expect("a file");
        for has_lock in [false, true] {
            if has_lock {
                fs::write(folder.file("web", LOCK_EXTENSION), "").expect("a file");
            }
            assert!(folder.is_alive("web"));
            let taken = folder.claim("web");
            assert!(matches!(taken, Err(RecordError::SessionExists(_))), "{taken:?}");
            folder.clean("web");
            assert!(folder.socket("web").exists() && folder.log("web").exists(), "it is answered");
            assert!(!folder.file("web", LOCK_EXTENSION).exists(), "nothing new is left either");
        }
        drop(listener);
        folder.clean("web");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0, "nobody's");
    }

    #[test]
    fn a_lock_file_that_was_removed_is_made_again_and_kept_new() {
        let temporary = TemporaryFolder::new();
        let folder = build_run_folder(&temporary);
        let mut web = folder.claim("web").expect("the name");
        web.write_identity(SessionIdentity { uuid: [7; 16], folder: "/t".into() })
            .expect("written");
        let path = folder.file("web", LOCK_EXTENSION);
        fs::remove_file(&path).expect("ours");
        assert!(!folder.is_alive("web"));
        web.refresh();
        assert!(folder.is_alive("web"));
        assert_eq!(folder.identity_of("web").map(|it| it.folder), Some("/t".into()));
        let long_ago = SystemTime::UNIX_EPOCH;
        let times = FileTimes::new().set_accessed(long_ago).set_modified(long_ago);
        web.lock.set_times(times).expect("ours");
        web.refresh();
        let status = fs::metadata(&path).expect("it is there");
        let times = [status.accessed(), status.modified()].map(|time| time.expect("a time"));
        assert!(times.iter().all(|time| *time > long_ago + Duration::from_secs(3600)));
        // Another process that holds the lock at that moment is not disturbed.
        fs::remove_file(&path).expect("ours");
        let other = folder.try_lock("web").expect("a file").expect("it is free");
        web.refresh();
        assert!(is_file_at(&other, &path));
        drop(other);
        web.refresh();
        assert!(is_file_at(&web.lock, &path) && folder.is_alive("web"));
        // The files of a process that claimed the name after all files were removed stay, too.
        fs::remove_dir_all(folder.path()).expect("ours");
        let other = folder.claim("web").expect("it is free");
        other.open_log().expect("a file");
        web.refresh();
        drop(web);
        assert!(folder.is_alive("web") && folder.log("web").exists());
    }

    /// Tests that a lock on the previous lock file locks nothing.
    #[test]
    fn a_lock_on_the_file_of_the_one_before_is_none() {
        let temporary = TemporaryFolder::new();
        let folder = build_run_folder(&temporary);
        folder.make().expect("a folder");
        let path = folder.file("web", LOCK_EXTENSION);
        let before = File::create(&path).expect("a file");
        assert!(is_file_at(&before, &path));
        fs::remove_file(&path).expect("ours");
        assert!(!is_file_at(&before, &path));
        let _web = folder.claim("web").expect("the name");
        assert!(!is_file_at(&before, &path) && before.try_lock().is_ok());
    }

    /// Tests sessions of one name that begin and end while another thread cleans the name
    /// repeatedly. Each session keeps its files as long as it lives.
    #[test]
    fn cleaning_takes_nothing_from_those_who_come_and_go() {
        let temporary = TemporaryFolder::new();
        let folder = build_run_folder(&temporary);
        folder.make().expect("a folder");
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        folder.clean("web");
                    }
                });
            }
            let lost = (0..500).filter_map(|_| folder.claim("web").ok()).any(|web| {
                fs::write(folder.socket("web"), "").expect("a file");
                std::thread::yield_now();
                let is_there = folder.socket("web").exists()
                    && is_file_at(&web.lock, &folder.file("web", LOCK_EXTENSION));
                drop(web);
                !is_there
            });
            is_over.store(true, Ordering::Relaxed);
            assert!(!lost, "files of the living were removed");
        });
    }

    /// Tests named pipes instead of files: opening one would wait for the other end.
    #[test]
    fn a_pipe_in_the_place_of_a_file_is_waited_for_by_nobody() {
        let temporary = TemporaryFolder::new();
        let folder = build_run_folder(&temporary);
        folder.make().expect("a folder");
        fs::write(folder.socket("web"), "").expect("a file");
        let web = folder.claim("web").expect("the name");
        for kind in [LOCK_EXTENSION, LOG_EXTENSION] {
            let path = folder.file("web", kind);
            let _ = fs::remove_file(&path);
            let made = std::process::Command::new("mkfifo").arg(&path).status();
            assert!(made.expect("mkfifo runs").success());
        }
        assert!(web.open_log().is_err() && folder.claim("web").is_err());
        let dead = RecordError::SessionDead("web".into(), folder.log("web"));
        assert!(dead.to_string().ends_with("is gone"));
        assert!(!folder.is_alive("web") && folder.identity_of("web").is_none());
        folder.clean("web");
        assert_eq!(folder.names().expect("names"), ["web"]);
    }

    #[test]
    fn a_folder_that_others_get_to_is_refused() {
        let temporary = TemporaryFolder::new();
        let folder = build_run_folder(&temporary);
        folder.make().expect("a folder");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("ours");
        assert!(matches!(folder.names(), Err(RecordError::RunFolder(_))));
        assert!(matches!(folder.claim("web"), Err(RecordError::RunFolder(_))));
        fs::remove_dir(folder.path()).expect("ours");
        std::os::unix::fs::symlink(temporary.path(), folder.path()).expect("a link");
        assert!(matches!(folder.make(), Err(RecordError::RunFolder(_))));
    }
}
