//! Sessions with dead recorders: their identities and their remains.
//!
//! A recorder writes the identity of its trace into the lock file of the session's name. The file
//! stays when the recorder is killed, so that the name leads to the trace for recovery. It is
//! removed once no event of the session is in memory any more.
//!
//! ```text
//! uuid=0123…cdef      identity of the trace, and of the session in the user's own window
//! folder=/tmp/trace   up to the file's end, whatever bytes it has
//! ```

use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use trackway_abi::session::{SESSIONS_MAX, state};
use trackway_window::OpenError;

use super::{LOCK_EXTENSION, RunFolder};
use crate::common::files::open_regular;
use crate::control::origin_file;
use crate::error::RecordError;
use crate::kernel;
use crate::notices::Notices;
use crate::window::handle::WindowHandle;
use crate::window::shared_text::uuid_of;

/// Largest lock file that is read, in bytes: an identity and a path.
const LOCK_BYTES_MAX: u64 = 16 << 10;

/// Remains of a session whose recorder is dead.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadSession {
    /// Absolute path of the trace's folder; `None` if the recorder was killed before it created
    /// one.
    pub folder: Option<PathBuf>,
    /// True if events of the session are still in memory; false after recovery.
    pub is_in_memory: bool,
    /// True if the trace has kernel events that are not completed.
    pub is_kernel_left: bool,
}

impl DeadSession {
    /// Returns true if the session has anything to recover.
    pub const fn is_recoverable(&self) -> bool {
        self.is_in_memory || self.is_kernel_left
    }
}

/// Identity of a session, which its recorder writes into the lock file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionIdentity {
    /// Identity of the trace, and of the session in the user's own window.
    pub(crate) uuid: [u8; 16],
    /// Absolute path of the trace.
    pub(crate) folder: PathBuf,
}

impl SessionIdentity {
    pub(super) fn text(&self) -> Vec<u8> {
        let mut text =
            format!("uuid={}\nfolder=", origin_file::format_uuid_digits(&self.uuid)).into_bytes();
        text.extend_from_slice(self.folder.as_os_str().as_bytes());
        text
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let mut lines = text.splitn(2, |byte| *byte == b'\n');
        let mut value = |name: &str| lines.next()?.strip_prefix(name.as_bytes());
        let uuid = origin_file::parse_uuid_digits(std::str::from_utf8(value("uuid=")?).ok()?)?;
        let folder = PathBuf::from(std::ffi::OsString::from_vec(value("folder=")?.to_vec()));
        folder.is_absolute().then_some(Self { uuid, folder })
    }
}

/// Sessions in windows that may still need recovery.
struct UnrecoveredSessions {
    /// Identities of sessions in the user's own window.
    uuids: Vec<[u8; 16]>,
    /// Folders of sessions over several users that are not yet recovered in all windows.
    folders: Vec<PathBuf>,
}

impl UnrecoveredSessions {
    /// Reads the user's window in the folder `windows`, and the origin files in `run`.
    fn read(run: &RunFolder, windows: &Path) -> Result<Self, RecordError> {
        let kept = origin_file::open_orphaned(run)?;
        let folders = kept.into_iter().map(|kept| kept.origin.root).collect();
        let handle =
            match WindowHandle::open_for(windows, crate::common::user::effective_uid(), false) {
                Ok(handle) => handle,
                // The contents of the window are lost.
                Err(RecordError::Window(
                    _,
                    OpenError::Absent | OpenError::Truncated | OpenError::NotAWindow,
                )) => return Ok(Self { uuids: Vec::new(), folders }),
                Err(error) => return Err(error),
            };
        let sessions = (0..SESSIONS_MAX).map(|index| handle.window().session(index));
        let there = sessions.filter(|it| it.state.load(Ordering::Relaxed) != state::FREE);
        let uuids = there.map(uuid_of).collect();
        handle.close();
        Ok(Self { uuids, folders })
    }

    fn has(&self, identity: &SessionIdentity) -> bool {
        self.uuids.contains(&identity.uuid) || self.folders.contains(&identity.folder)
    }
}

impl RunFolder {
    /// Returns the remains of session `name`, whose recorder is dead.
    ///
    /// # Errors
    ///
    /// If the remains cannot be determined, for example because the user's window cannot be opened.
    /// If the folder belongs to another user, whose files must not be trusted.
    pub fn find_dead_session(&self, name: &str) -> Result<DeadSession, RecordError> {
        self.check()?;
        let Some(identity) = self.identity_of(name) else { return Ok(DeadSession::default()) };
        let is_in_memory =
            UnrecoveredSessions::read(self, &crate::window::handle::window_folder())?
                .has(&identity);
        let is_kernel_left = kernel::recover::is_incomplete(&identity.folder);
        Ok(DeadSession { folder: Some(identity.folder), is_in_memory, is_kernel_left })
    }

    /// Completes the kernel events of dead sessions as far as possible, and reports that. Returns
    /// true if any session had such events.
    pub(crate) fn complete_kernel_parts(&self, notices: &Notices) -> bool {
        let names = self.check().and_then(|_| self.names()).unwrap_or_default();
        let dead = names.iter().filter(|name| !self.is_alive(name));
        let identities = dead.filter_map(|name| self.identity_of(name));
        let settled =
            identities.filter(|one| kernel::recover::complete_kernel_part(&one.folder, notices));
        settled.count() > 0
    }

    /// Removes the names of dead sessions whose traces are complete and whose events are in no
    /// window. `windows` is the folder of the user's own window.
    pub(crate) fn remove_recovered_names(&self, windows: &Path) -> Result<(), RecordError> {
        self.check()?;
        let mut names = self.names()?;
        names.retain(|name| !self.is_alive(name));
        if names.is_empty() {
            return Ok(());
        }
        let memory = UnrecoveredSessions::read(self, windows)?;
        let is_left = |name: &str| {
            self.identity_of(name).is_some_and(|identity| {
                memory.has(&identity) || kernel::recover::is_incomplete(&identity.folder)
            })
        };
        names.iter().filter(|name| !is_left(name)).for_each(|name| self.clean(name));
        Ok(())
    }

    pub(super) fn identity_of(&self, name: &str) -> Option<SessionIdentity> {
        let mut text = Vec::new();
        let path = self.file(name, LOCK_EXTENSION);
        let file = open_regular(&path, fs::OpenOptions::new().read(true)).ok()?;
        file.take(LOCK_BYTES_MAX).read_to_end(&mut text).ok()?;
        SessionIdentity::parse(&text)
    }
}

#[cfg(test)]
mod tests {
    use trackway_testkit::TemporaryFolder;

    use super::*;
    use crate::control::origin_file::{Origin, OriginFile};
    use crate::trace::layout::WindowFolder;

    fn build_identity(folder: &[u8]) -> SessionIdentity {
        let folder = PathBuf::from(std::ffi::OsStr::from_bytes(folder));
        SessionIdentity { uuid: [0xa5; 16], folder }
    }

    #[test]
    fn what_a_recorder_writes_of_its_session_is_read_back() {
        let temporary = TemporaryFolder::new();
        let run = RunFolder::from_path(temporary.join("run"));
        let mut claimed = run.claim("web").expect("the name");
        assert_eq!(run.identity_of("web"), None);
        for folder in [&b"/var/log/odd\nname \xff"[..], b"/t"] {
            claimed.write_identity(build_identity(folder)).expect("written");
            assert_eq!(run.identity_of("web"), Some(build_identity(folder)));
        }
        std::mem::forget(claimed);
        assert_eq!(run.identity_of("web"), Some(build_identity(b"/t")), "of the dead, too");
    }

    /// Tests a session over several users, with a window that is not recovered.
    #[test]
    fn who_does_not_begin_leaves_what_is_known_of_the_dead() {
        let temporary = TemporaryFolder::new();
        let run = RunFolder::from_path(temporary.join("run"));
        let (uuid, root) = ([0xa5; 16], PathBuf::from("/t"));
        let part = Origin { uuid, folder: WindowFolder::own(), root };
        let part = OriginFile::new(&run, part).expect("a part");
        fs::write(run.file("web", LOCK_EXTENSION), build_identity(b"/t").text()).expect("a file");
        fs::write(run.socket("web"), "").expect("a file");
        let living = run.claim("web").expect("the name");
        assert_eq!(run.identity_of("web"), Some(build_identity(b"/t")));
        // The recorder of the other part is dead, too: recovery skips a locked origin file.
        drop(part);
        drop(living);
        assert_eq!(run.identity_of("web"), Some(build_identity(b"/t")), "the create was refused");
        run.remove_recovered_names(temporary.path()).expect("there is no window");
        assert_eq!(run.names().expect("names"), ["web"], "it is not over");
    }

    #[test]
    fn what_makes_no_sense_is_nobody() {
        for text in ["", "uuid=", "uuid=00\nfolder=/t", "folder=/t"] {
            assert_eq!(SessionIdentity::parse(text.as_bytes()), None, "{text}");
        }
        let text = build_identity(b"relative").text();
        assert_eq!(SessionIdentity::parse(&text), None);
    }

    #[test]
    fn names_of_which_nothing_is_left_go_and_those_of_the_living_stay() {
        let temporary = TemporaryFolder::new();
        let run = RunFolder::from_path(temporary.join("run"));
        let alive = run.claim("alive").expect("the name");
        for name in ["alive", "dead", "unknown"] {
            fs::write(run.socket(name), "").expect("a file");
        }
        fs::write(run.file("dead", LOCK_EXTENSION), build_identity(b"/t").text()).expect("a file");
        run.remove_recovered_names(temporary.path()).expect("there is no window");
        assert_eq!(run.names().expect("names"), ["alive"]);
        drop(alive);
    }
}
