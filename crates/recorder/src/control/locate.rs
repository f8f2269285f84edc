//! Paths of users' run folders, and the sessions that root may control in addition to its own.
//!
//! Main invariant: in another user's folder, root only sends requests. Root creates, locks and
//! removes no file there, and trusts no path that is written there. The answering process must
//! belong to that user.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::{FOLDER_VARIABLE, RunFolder};
use crate::error::RecordError;

/// Folder in which systemd-logind(8) creates users' runtime folders.
const RUNTIME_FOLDERS: &str = "/run/user";

impl RunFolder {
    /// Returns the calling user's run folder, which need not exist.
    pub fn new() -> Self {
        let user = crate::common::user::effective_uid();
        let called_by_sudo = sudo_user().filter(|caller| *caller == user);
        // After root's process switched to this user, the environment may still name root's folder.
        let is_ours = |folder: &OsString| {
            fs::symlink_metadata(folder).map_or(true, |status| status.uid() == user)
        };
        let runtime = std::env::var_os("XDG_RUNTIME_DIR")
            .filter(is_ours)
            .or_else(|| runtime_folder_of(Path::new(RUNTIME_FOLDERS), called_by_sudo?));
        Self { path: run_folder_path(user, std::env::var_os(FOLDER_VARIABLE), runtime) }
    }

    /// Returns true if the environment names the run folder (`TRACKWAY_RUN_DIR`).
    pub fn is_named() -> bool {
        std::env::var_os(FOLDER_VARIABLE).is_some_and(|value| !value.is_empty())
    }

    /// Returns the calling user's run folder and, under sudo(8), the folder of the user who called
    /// sudo: it has the sessions of `sudo trackway record`, which records as that user.
    pub fn all() -> Vec<Self> {
        let caller =
            sudo_user().filter(|_| crate::common::user::effective_uid() == 0 && !Self::is_named());
        let others = caller.map(|caller| {
            let runtime = std::env::var_os("XDG_RUNTIME_DIR")
                .or_else(|| runtime_folder_of(Path::new(RUNTIME_FOLDERS), caller));
            Self { path: run_folder_path(caller, None, runtime) }
        });
        std::iter::once(Self::new()).chain(others).collect()
    }

    /// Returns the run folder of session `name`: the first folder of [`Self::all`] that has its
    /// socket, or else the calling user's folder.
    pub fn of(name: &str) -> Self {
        let has_it = |folder: &Self| fs::symlink_metadata(folder.socket(name)).is_ok();
        Self::all().into_iter().find(has_it).unwrap_or_default()
    }

    /// Returns true if the folder belongs to the calling user, or does not exist.
    pub fn is_own(&self) -> bool {
        self.check().is_ok()
    }

    /// Returns the owner of the folder, if the calling user may control sessions there; `None` if
    /// the folder does not exist.
    ///
    /// # Errors
    ///
    /// If other users can write to the folder, so that they could answer instead of a session. Root
    /// may send requests in a folder that only its owner can write.
    pub(crate) fn owner(&self) -> Result<Option<u32>, RecordError> {
        let refused = match self.check() {
            Ok(is_there) => return Ok(is_there.then(crate::common::user::effective_uid)),
            Err(error) => error,
        };
        let status =
            fs::symlink_metadata(&self.path).map_err(RecordError::io("use", &self.path))?;
        let is_alone = status.is_dir() && status.uid() != 0 && status.mode() & 0o022 == 0;
        match crate::common::user::effective_uid() == 0 && is_alone {
            true => Ok(Some(status.uid())),
            false => Err(refused),
        }
    }
}

/// Returns the user who called sudo(8), unless that is root.
fn sudo_user() -> Option<u32> {
    std::env::var("SUDO_UID").ok()?.parse().ok().filter(|uid| *uid != 0)
}

/// Returns a user's runtime folder if no environment variable names it, as under sudo(8). The
/// user's own commands use that folder.
fn runtime_folder_of(base: &Path, user: u32) -> Option<OsString> {
    let path = base.join(user.to_string());
    let is_his = |status: fs::Metadata| {
        status.is_dir() && status.uid() == user && status.mode() & 0o077 == 0
    };
    fs::symlink_metadata(&path).is_ok_and(is_his).then(|| path.into())
}

/// Returns the path of a user's run folder. Unless the path is `named`, root's folder is fixed and
/// independent of `runtime`: a shell must find sessions that systemd started.
fn run_folder_path(user: u32, named: Option<OsString>, runtime: Option<OsString>) -> PathBuf {
    // The XDG basedir specification requires that relative paths are ignored.
    let runtime = runtime.map(PathBuf::from).filter(|path| path.is_absolute());
    match (named.filter(|path| !path.is_empty()), runtime) {
        (Some(named), _) => named.into(),
        (None, _) if user == 0 => "/run/trackway".into(),
        (None, Some(runtime)) => runtime.join("trackway"),
        (None, None) => format!("/tmp/trackway-{user}").into(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use trackway_testkit::TemporaryFolder;

    use super::*;

    #[test]
    fn sockets_are_found_by_user_and_environment() {
        let folder = |user, named: Option<&str>, runtime: Option<&str>| {
            run_folder_path(user, named.map(OsString::from), runtime.map(OsString::from))
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
    fn a_user_s_run_time_is_where_it_is_his_alone() {
        let base = TemporaryFolder::new();
        let user = crate::common::user::effective_uid();
        assert_eq!(runtime_folder_of(base.path(), user), None);
        let path = base.join(user.to_string());
        fs::create_dir(&path).expect("a folder");
        for (mode, is_his) in [(0o700, true), (0o755, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("ours");
            assert_eq!(runtime_folder_of(base.path(), user).is_some(), is_his);
        }
        fs::rename(&path, base.join((user + 1).to_string())).expect("ours");
        assert_eq!(runtime_folder_of(base.path(), user + 1), None, "another's");
    }

    #[test]
    fn root_asks_in_a_folder_that_is_another_user_s_alone() {
        let temporary = TemporaryFolder::new();
        let folder = RunFolder::from_path(temporary.join("run"));
        assert!(matches!(folder.owner(), Ok(None)));
        folder.make().expect("a folder");
        assert!(
            matches!(folder.owner(), Ok(Some(user)) if user == crate::common::user::effective_uid())
        );
        if crate::common::user::effective_uid() != 0 {
            return;
        }
        let mode = |mode| fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode));
        std::os::unix::fs::chown(folder.path(), Some(65_531), None).expect("root may");
        assert!(matches!(folder.owner(), Ok(Some(65_531))) && !folder.is_own());
        assert!(folder.claim("web").is_err() && fs::read_dir(folder.path()).unwrap().count() == 0);
        mode(0o770).expect("root may");
        assert!(matches!(folder.owner(), Err(RecordError::RunFolder(_))));
    }
}
