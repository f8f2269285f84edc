//! Discovery of the windows that a session records: inotify reports them as they appear, in the
//! folder of all users' windows.
//!
//! Any user can create files with any name in that folder. A window belongs to a user if the file
//! belongs to that user; other faults are found when the window is opened. Every list here has a
//! named maximum.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use trackway_abi::ABI_VERSION;
use trackway_session::protocol::Refusal;
use trackway_session::{ALL_USERS, USERS_MAX};
use trackway_sys::clock::monotonic_ns;
use trackway_sys::inotify::Names;
use trackway_sys::process::outer_user;
use trackway_window::OpenError;

use crate::common::user::uid_of;
use crate::error::{RecordError, io_error};
use crate::notices::Notices;
use crate::window::handle::{self, WindowHandle};

/// Most windows of one user in a session's life: each takes address space permanently.
const WINDOWS_PER_USER_MAX: u32 = 16;
/// Most names that wait to be examined.
const PENDING_NAMES_MAX: usize = 4096;
/// Most names that are examined in one poll.
const NAMES_PER_POLL_MAX: usize = 16;
/// Most users without a recorded window that are kept and reported.
const REFUSED_MAX: usize = 256;
/// Shortest time between two reads of new names, in ns.
const READ_PERIOD_MIN_NS: u64 = 5_000_000;
/// Time until the next attempt after a transient failure to open a window, in ns; doubled after
/// each attempt.
const RETRY_NS: u64 = 5_000_000_000;
/// Time until the whole folder is read after names were dropped, in ns.
const RESCAN_NS: u64 = 1_000_000_000;

/// Users whose windows are recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Only the recorder's user: the default of sessions.
    Own,
    /// These users, even if they have no window yet.
    These(Vec<u32>),
    /// All users who have a window.
    All,
    /// No user: only kernel events are recorded.
    NoUser,
}

impl Scope {
    /// Parses a session's list of users.
    ///
    /// # Errors
    ///
    /// If a user does not exist, or this user may not record the user.
    pub(crate) fn of(users: &[String]) -> Result<Self, RecordError> {
        let own = crate::common::user::effective_uid();
        let refuse = |why: String| {
            let hint = "sudo trackway session create …, which has sessions of its own";
            RecordError::Refused(Refusal::new(why).with_hint(hint).with_root_needed())
        };
        if users.iter().any(|user| user == ALL_USERS) {
            return match own {
                0 => Ok(Self::All),
                _ => Err(refuse("only root may record the programs of all users".into())),
            };
        }
        let mut uids = BTreeSet::new();
        for user in users {
            let uid = uid_of(user).ok_or_else(|| {
                RecordError::Refused(Refusal::new(format!("there is no user '{user}'")))
            })?;
            if own != 0 && uid != own {
                return Err(refuse(format!("only root may record the programs of '{user}'")));
            }
            uids.insert(uid);
        }
        Ok(if uids.is_empty() { Self::Own } else { Self::These(uids.into_iter().collect()) })
    }

    /// Returns the users whose windows are created if missing, so that no event of their programs
    /// is lost: the named users, or else this user.
    fn users_needing_windows(&self) -> Vec<u32> {
        match self {
            Self::Own | Self::All => vec![crate::common::user::effective_uid()],
            Self::These(uids) => uids.clone(),
            Self::NoUser => Vec::new(),
        }
    }

    fn includes_user(&self, uid: u32) -> bool {
        match self {
            Self::Own => uid == crate::common::user::effective_uid(),
            Self::These(uids) => uids.contains(&uid),
            Self::All => true,
            Self::NoUser => false,
        }
    }
}

/// Finder of the windows of a session's users, as windows appear.
#[derive(Debug)]
pub(crate) struct WindowFinder {
    scope: Scope,
    folder: PathBuf,
    names: Option<Names>,
    /// User numbers in the names of windows to examine, in order of arrival.
    waiting: VecDeque<u32>,
    /// Time at which the whole folder must be read, in ns.
    rescan_ns: Option<u64>,
    /// Time at which names are read again, in ns. A process that creates files endlessly must not
    /// block the recorder.
    rest_ns: u64,
    /// Number of windows that were opened, by user.
    opened: BTreeMap<u32, u32>,
    refused: BTreeMap<u32, RefusedUser>,
    /// Users whose windows are not recorded because the limits are reached.
    excess_users: BTreeSet<u32>,
}

/// A user whose window is not recorded.
#[derive(Debug, Clone, Copy)]
struct RefusedUser {
    /// Device and inode of the refused window; another file may be valid.
    file: (u64, u64),
    /// Time of the next attempt, and the wait before it, in ns; `None` for no further attempt.
    retry: Option<(u64, u64)>,
}

impl WindowFinder {
    /// Creates a finder for these users, which watches the folder from now on.
    pub(crate) fn new(scope: Scope) -> Result<Self, RecordError> {
        let folder = handle::window_folder();
        let watch = || {
            let fail = |errno| RecordError::Io("watch", folder.clone(), io_error(errno).into());
            let path = CString::new(folder.as_os_str().as_bytes()).unwrap_or_default();
            Names::of(&path).map_err(fail)
        };
        let names = match scope {
            Scope::Own | Scope::NoUser => None,
            Scope::These(_) | Scope::All => Some(watch()?),
        };
        Ok(Self {
            scope,
            folder,
            names,
            waiting: VecDeque::new(),
            rescan_ns: Some(0),
            rest_ns: 0,
            opened: BTreeMap::new(),
            refused: BTreeMap::new(),
            excess_users: BTreeSet::new(),
        })
    }

    pub(crate) const fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Returns the inotify descriptor to wait for.
    pub(crate) fn fd(&self) -> Option<i32> {
        let names = self.names.as_ref().filter(|_| monotonic_ns() >= self.rest_ns);
        names.map(|names| names.fd().raw())
    }

    /// Returns the longest time until the next poll, in ns; `None`: until [`Self::fd`] is ready.
    pub(crate) fn poll_timeout_ns(&self) -> Option<u64> {
        let rest_ns = self.rest_ns.saturating_sub(monotonic_ns());
        (rest_ns > 0 || !self.waiting.is_empty()).then_some(rest_ns.min(READ_PERIOD_MIN_NS))
    }

    /// Returns true if some windows were found but not opened yet.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns the number of users that are not recorded because the limits are reached.
    pub(crate) fn excess_users(&self) -> usize {
        self.excess_users.len()
    }

    /// Opens the windows that exist at first, and creates missing windows of the named users.
    pub(crate) fn open_initial_windows(
        &mut self,
        now_ns: u64,
        notices: &Notices,
    ) -> Vec<(u32, Result<WindowHandle, RecordError>)> {
        let mut made = Vec::new();
        for uid in self.scope.users_needing_windows() {
            let opened = match uid == crate::common::user::effective_uid() {
                true => WindowHandle::open_or_make(notices),
                false => WindowHandle::open_for(&self.folder, uid, true),
            };
            *self.opened.entry(uid).or_default() += 1;
            if opened.is_err() {
                self.note_refused(
                    uid,
                    window_file_id(&self.folder, uid).unwrap_or_default(),
                    now_ns,
                );
            }
            made.push((uid, opened));
        }
        made
    }

    /// Returns new windows that must be recorded, and the errors of others. `is_recorded` returns
    /// true for a file that is already recorded.
    pub(crate) fn poll(
        &mut self,
        now_ns: u64,
        is_recorded: &dyn Fn((u64, u64)) -> bool,
    ) -> Vec<(u32, Result<WindowHandle, String>)> {
        if matches!(self.scope, Scope::Own | Scope::NoUser) {
            return Vec::new();
        }
        self.take_names(now_ns);
        let mut found = Vec::new();
        for _ in 0..NAMES_PER_POLL_MAX {
            let Some(number) = self.waiting.pop_front() else { break };
            found.extend(self.open_window(number, now_ns, is_recorded));
        }
        found
    }

    /// Queues the names that have arrived, and the refused users that are due again.
    fn take_names(&mut self, now_ns: u64) {
        if now_ns < self.rest_ns {
            return;
        }
        let (waiting, mut is_all, mut has_come) = (&mut self.waiting, true, false);
        let mut keep = |name: &[u8]| {
            has_come = true;
            if let Some(number) = parse_window_name(name) {
                is_all &= waiting.len() < PENDING_NAMES_MAX;
                if waiting.len() < PENDING_NAMES_MAX && !waiting.contains(&number) {
                    waiting.push_back(number);
                }
            }
        };
        let is_complete = self.names.as_ref().is_none_or(|names| names.take(&mut keep));
        if self.rescan_ns.is_some_and(|due| now_ns >= due) {
            self.rescan_ns = None;
            let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
            entries.for_each(|entry| keep(entry.file_name().as_bytes()));
        }
        if has_come || !is_complete {
            self.rest_ns = now_ns + READ_PERIOD_MIN_NS;
        }
        if !(is_complete && is_all) {
            self.rescan_ns.get_or_insert(now_ns + RESCAN_NS);
        }
        for (&uid, refused) in &mut self.refused {
            if let Some((due, waited)) = refused.retry
                && now_ns >= due
                && let Some(number) = outer_user(uid)
            {
                refused.retry = Some((now_ns + 2 * waited, 2 * waited));
                // Treat the file as unknown, so that it is examined again.
                refused.file = (0, 0);
                self.waiting.push_back(number);
            }
        }
    }

    /// Opens the window whose name has this number, if the window must be recorded.
    fn open_window(
        &mut self,
        number: u32,
        now_ns: u64,
        is_recorded: &dyn Fn((u64, u64)) -> bool,
    ) -> Option<(u32, Result<WindowHandle, String>)> {
        let path = self.folder.join(format!("trackway-{number}-v{ABI_VERSION}"));
        let status = fs::symlink_metadata(path).ok()?;
        let (uid, file) = (status.uid(), (status.dev(), status.ino()));
        // The file belongs to another user than its name: no program of the named user would use
        // it.
        if !status.is_file() || outer_user(uid) != Some(number) || !self.scope.includes_user(uid) {
            return None;
        }
        if is_recorded(file) || self.refused.get(&uid).is_some_and(|refused| refused.file == file) {
            return None;
        }
        let is_known = self.opened.contains_key(&uid);
        let opened = self.opened.get(&uid).copied().unwrap_or_default();
        if !is_known && self.opened.len() >= USERS_MAX || opened >= WINDOWS_PER_USER_MAX {
            let is_news = self.excess_users.len() < REFUSED_MAX && self.excess_users.insert(uid);
            let why = match is_known {
                true => format!("it is window {} of that user", WINDOWS_PER_USER_MAX + 1),
                false => format!("{USERS_MAX} users are recorded already"),
            };
            return is_news.then_some((uid, Err(why)));
        }
        *self.opened.entry(uid).or_default() += 1;
        match WindowHandle::open_for(&self.folder, uid, false) {
            Ok(handle) => Some((uid, Ok(handle))),
            // The window was removed meanwhile.
            Err(RecordError::Window(_, OpenError::Absent)) => None,
            Err(error) => {
                self.note_refused(uid, file, now_ns);
                Some((uid, Err(error.to_string())))
            }
        }
    }

    /// Notes that a window could not be recorded, so that it is tried again later.
    pub(crate) fn note_refused(&mut self, uid: u32, file: (u64, u64), now_ns: u64) {
        let known = self.refused.get(&uid).and_then(|refused| refused.retry);
        let retry = known.or(Some((now_ns + RETRY_NS, RETRY_NS)));
        if self.refused.len() < REFUSED_MAX || self.refused.contains_key(&uid) {
            self.refused.insert(uid, RefusedUser { file, retry });
        }
    }

    /// Notes that the user's window is recorded.
    pub(crate) fn note_recorded(&mut self, uid: u32) {
        self.refused.remove(&uid);
    }
}

fn window_file_id(folder: &Path, uid: u32) -> Option<(u64, u64)> {
    let status = fs::symlink_metadata(handle::window_path(folder, uid).ok()?).ok()?;
    Some((status.dev(), status.ino()))
}

/// Parses the number in a window's name, if the name has this version of the window format.
fn parse_window_name(name: &[u8]) -> Option<u32> {
    let name = std::str::from_utf8(name).ok()?;
    let (number, version) = name.strip_prefix("trackway-")?.split_once("-v")?;
    let number: u32 = number.parse().ok().filter(|it: &u32| it.to_string() == number)?;
    (version == ABI_VERSION.to_string()).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_named_by_name_or_number_and_others_by_root_alone() {
        let of = |users: &[&str]| Scope::of(&users.iter().map(|&it| it.into()).collect::<Vec<_>>());
        assert_eq!(of(&[]).expect("all may"), Scope::Own);
        let own = crate::common::user::effective_uid();
        let own_only = of(&[&own.to_string()]).expect("all may");
        assert_eq!(own_only, Scope::These(vec![own]));
        for nobody in ["no such user", "-1", "4294967295", ""] {
            assert!(of(&[nobody]).is_err(), "{nobody}");
        }
        let others = (of(&["65531", "root", "65531"]), of(&["root", "all"]));
        match own {
            0 => {
                assert_eq!(others.0.expect("root may"), Scope::These(vec![0, 65_531]));
                assert_eq!(others.1.expect("root may"), Scope::All);
            }
            _ => assert!(others.0.is_err() && others.1.is_err()),
        }
    }

    #[test]
    fn names_of_windows_are_told_from_others() {
        let good = format!("trackway-65531-v{ABI_VERSION}");
        assert_eq!(parse_window_name(good.as_bytes()), Some(65_531));
        for bad in [
            "trackway-65531-v1.unusable-5",
            "trackway-65531-v0",
            "trackway-+5-v2",
            "trackway-05-v2",
            "trackway--v2",
            "trackway-test-5",
            "other",
            "trackway-99999999999-v2",
        ] {
            assert_eq!(parse_window_name(bad.as_bytes()), None, "{bad}");
        }
    }
}
