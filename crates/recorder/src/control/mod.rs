//! The control of sessions: a Unix socket for each, in a folder of the user's own.
//!
//! ```text
//! $TRACKWAY_RUN_DIR, /run/trackway (root), $XDG_RUNTIME_DIR/trackway, or /tmp/trackway-UID    0700
//!     NAME.sock    requests and answers, `trackway_session::protocol`    0600
//!     NAME.lock    locked (flock(2)) by the session's recorder; which trace it records: `dead`
//!     NAME.log     what the recorder had to say
//!     UUID.part    where the trace of a session in another user's window is: `origins`
//! ```
//!
//! Nobody but the user (and root) gets there; who connects is asked for by the kernel all the same.

pub mod client;
mod dead;
#[cfg(test)]
mod hostile;
mod requests;
pub(crate) mod server;

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, FileExt as _, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use trackway_session::is_name;

pub use dead::Dead;
pub(crate) use dead::Identity;
pub use requests::Requests;

use crate::RecordError;

/// Environment variable that says where control sockets are.
const FOLDER_VARIABLE: &str = "TRACKWAY_RUN_DIR";
const SOCKET: &str = "sock";
const LOCK: &str = "lock";
const LOG: &str = "log";

/// How often a name is tried, and how long between: whoever looks whether its recorder lives, or
/// removes what a dead one left, has the lock for a moment.
const CLAIM_TRIES: usize = 20;
const CLAIM_PAUSE: Duration = Duration::from_millis(1);

/// The folder of a user's control sockets.
#[derive(Debug, Clone)]
pub struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    /// The calling user's, which need not be there.
    pub fn new() -> Self {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR");
        let user = crate::home::user();
        Self { path: path_of(user, std::env::var_os(FOLDER_VARIABLE), runtime) }
    }

    /// Whether the environment names it (`TRACKWAY_RUN_DIR`).
    pub fn is_named() -> bool {
        std::env::var_os(FOLDER_VARIABLE).is_some_and(|value| !value.is_empty())
    }

    /// This one.
    #[cfg(test)]
    pub(crate) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes it, if it is not there.
    ///
    /// # Errors
    ///
    /// If it cannot be made, or somebody else could get there.
    pub fn make(&self) -> Result<(), RecordError> {
        match DirBuilder::new().mode(0o700).create(&self.path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(RecordError::io("make", &self.path)(error));
            }
            _ => {}
        }
        self.check().map(|_| ())
    }

    /// Whether it is there.
    ///
    /// # Errors
    ///
    /// If it is not this user's alone: who made it could answer in the place of a session.
    pub fn check(&self) -> Result<bool, RecordError> {
        let status = match fs::symlink_metadata(&self.path) {
            Ok(status) => status,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(RecordError::io("use", &self.path)(error)),
        };
        let is_ours = status.is_dir() && status.uid() == crate::home::user();
        if !is_ours || status.mode() & 0o077 != 0 {
            return Err(RecordError::RunFolder(self.path.clone()));
        }
        Ok(true)
    }

    /// Names of the sessions that have a socket, in order; their recorders may be gone.
    pub fn names(&self) -> Result<Vec<String>, RecordError> {
        if !self.check()? {
            return Ok(Vec::new());
        }
        let entries = fs::read_dir(&self.path).map_err(RecordError::io("read", &self.path))?;
        let mut names: Vec<String> = entries
            .filter_map(|entry| {
                let path = entry.ok()?.path();
                let is_socket = path.extension().is_some_and(|extension| extension == SOCKET);
                let name = path.file_stem()?.to_str()?.to_owned();
                (is_socket && is_name(&name)).then_some(name)
            })
            .collect();
        names.sort();
        Ok(names)
    }

    fn file(&self, name: &str, kind: &str) -> PathBuf {
        self.path.join(format!("{name}.{kind}"))
    }

    /// The socket of session `name`.
    pub(crate) fn socket(&self, name: &str) -> PathBuf {
        self.file(name, SOCKET)
    }

    /// What the recorder of session `name` had to say.
    pub fn log(&self, name: &str) -> PathBuf {
        self.file(name, LOG)
    }

    /// Whether the recorder of session `name` lives.
    pub fn is_alive(&self, name: &str) -> bool {
        File::open(self.file(name, LOCK))
            .is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    /// Removes what a dead recorder left.
    pub fn clean(&self, name: &str) {
        let lock = File::open(self.file(name, LOCK));
        // As long as we have the lock, nobody else takes the name.
        if lock.as_ref().is_ok_and(|lock| lock.try_lock().is_err()) {
            return;
        }
        for kind in [SOCKET, LOG, LOCK] {
            // What stays is no harm.
            let _ = fs::remove_file(self.file(name, kind));
        }
    }

    /// Takes the name of a session, for as long as what is returned lives.
    ///
    /// # Errors
    ///
    /// If there is one of that name, or the folder cannot be used.
    pub(crate) fn claim(&self, name: &str) -> Result<Claimed, RecordError> {
        self.make()?;
        for _ in 0..CLAIM_TRIES {
            if let Some(lock) = self.try_claim(name)? {
                let path = self.file(name, LOCK);
                lock.set_len(0).map_err(RecordError::io("make", path))?;
                return Ok(Claimed { folder: self.clone(), name: name.to_owned(), lock });
            }
            std::thread::sleep(CLAIM_PAUSE);
        }
        Err(RecordError::SessionExists(name.to_owned()))
    }

    /// Locks a name; `None`: somebody else has it.
    fn try_claim(&self, name: &str) -> Result<Option<File>, RecordError> {
        let path = self.file(name, LOCK);
        let open = || {
            fs::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW)
                .open(&path)
        };
        let lock = open().map_err(RecordError::io("make", &path))?;
        let is_there = |lock: &File| {
            let identity = |status: fs::Metadata| (status.dev(), status.ino());
            let ours = lock.metadata().map(identity);
            ours.is_ok_and(|ours| fs::metadata(&path).map(identity).is_ok_and(|it| it == ours))
        };
        match lock.try_lock() {
            // Whoever had it before may have removed it at its end.
            Ok(()) => Ok(is_there(&lock).then_some(lock)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(RecordError::io("lock", path)(error)),
        }
    }
}

/// Where a user's sockets are. Root's are in one place, if none is `named`, whatever the folder for
/// its run time is: those that systemd started are to be found from a shell.
fn path_of(user: u32, named: Option<OsString>, runtime: Option<OsString>) -> PathBuf {
    // basedir-spec: a relative one is to be ignored.
    let runtime = runtime.map(PathBuf::from).filter(|path| path.is_absolute());
    match (named.filter(|path| !path.is_empty()), runtime) {
        (Some(named), _) => named.into(),
        (None, _) if user == 0 => "/run/trackway".into(),
        (None, Some(runtime)) => runtime.join("trackway"),
        (None, None) => format!("/tmp/trackway-{user}").into(),
    }
}

impl Default for RunFolder {
    fn default() -> Self {
        Self::new()
    }
}

/// The name of a session that is ours. Its files go with it, but for the log, if there was
/// something to say.
#[derive(Debug)]
pub(crate) struct Claimed {
    pub(crate) folder: RunFolder,
    pub(crate) name: String,
    lock: File,
}

impl Claimed {
    /// Writes down which trace is recorded, for whoever finds this name if we are killed.
    pub(crate) fn keep(&self, identity: &Identity) -> Result<(), RecordError> {
        let path = self.folder.file(&self.name, LOCK);
        let written = self.lock.set_len(0).and_then(|()| {
            // From its begin: it may have been written before.
            self.lock.write_all_at(&identity.text(), 0)
        });
        written.map_err(RecordError::io("write", path))
    }

    /// Opens the log, anew.
    pub(crate) fn open_log(&self) -> Result<File, RecordError> {
        let path = self.folder.log(&self.name);
        fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path)
            .map_err(RecordError::io("make", path))
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        // The lock last: until it is gone, the name is taken.
        for kind in [SOCKET, LOG, LOCK] {
            let _ = fs::remove_file(self.folder.file(&self.name, kind));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use trackway_testkit::TemporaryFolder;

    use super::*;

    fn folder(inside: &TemporaryFolder) -> RunFolder {
        RunFolder { path: inside.join("run") }
    }

    #[test]
    fn sockets_are_found_by_user_and_environment() {
        let folder = |user, named: Option<&str>, runtime: Option<&str>| {
            path_of(user, named.map(OsString::from), runtime.map(OsString::from))
        };
        for (user, named, runtime, expected) in [
            (7, None, Some("/run/user/7"), "/run/user/7/trackway"),
            (7, None, Some(""), "/tmp/trackway-7"),
            (7, None, Some("here"), "/tmp/trackway-7"),
            (7, None, None, "/tmp/trackway-7"),
            (7, Some(""), None, "/tmp/trackway-7"),
            (7, Some("/mine"), Some("/run/user/7"), "/mine"),
            (0, None, Some("/run/user/0"), "/run/trackway"),
            (0, Some("/mine"), None, "/mine"),
        ] {
            assert_eq!(folder(user, named, runtime), Path::new(expected));
        }
    }

    #[test]
    fn a_name_is_one_recorder_s() {
        let temporary = TemporaryFolder::new();
        let folder = folder(&temporary);
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
        let folder = folder(&temporary);
        folder.make().expect("a folder");
        for kind in [SOCKET, LOCK, LOG] {
            fs::write(folder.file("dead", kind), "").expect("a file");
        }
        assert_eq!(folder.names().expect("names"), ["dead"]);
        folder.clean("dead");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }

    #[test]
    fn a_folder_that_others_get_to_is_refused() {
        let temporary = TemporaryFolder::new();
        let folder = folder(&temporary);
        folder.make().expect("a folder");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("ours");
        assert!(matches!(folder.names(), Err(RecordError::RunFolder(_))));
        assert!(matches!(folder.claim("web"), Err(RecordError::RunFolder(_))));
        fs::remove_dir(folder.path()).expect("ours");
        std::os::unix::fs::symlink(temporary.path(), folder.path()).expect("a link");
        assert!(matches!(folder.make(), Err(RecordError::RunFolder(_))));
    }
}
