//! Account of the user as whom a command must run, if root records it.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use trackway_session::protocol::Refusal;
use trackway_sys::users;

use crate::common::user::uid_of;
use crate::error::RecordError;
use crate::notices::Notices;

/// Account of a user as whom a command must run.
pub(crate) struct Account {
    uid: u32,
    gid: u32,
    name: String,
    home: OsString,
    /// Suffix of the notice that names the account.
    suffix: &'static str,
}

impl Account {
    const PATH_BYTES_MAX: usize = 4096;

    /// Returns the account of the user with this name or number.
    pub(crate) fn of(user: &str) -> Result<Self, RecordError> {
        let refused = |why: String, hint: &str| {
            RecordError::Refused(Refusal::new(why).with_hint(hint.to_owned()))
        };
        if crate::common::user::effective_uid() != 0 {
            let hint = "sudo trackway record … runs the command as you";
            let refusal = Refusal::new("only root runs commands as another user").with_hint(hint);
            return Err(RecordError::Refused(refusal.with_root_needed()));
        }
        let nobody = || refused(format!("there is no user '{user}'"), "see getent passwd");
        let uid = uid_of(user).ok_or_else(nobody)?;
        Self::of_number(uid).ok_or_else(nobody)
    }

    fn of_number(uid: u32) -> Option<Self> {
        let mut buffer = [0; Self::PATH_BYTES_MAX];
        let (gid, length) = users::account_of(uid, &mut buffer)?;
        let home = OsStr::from_bytes(&buffer[..length]).to_owned();
        let length = users::name_of(uid, &mut buffer);
        let name = String::from_utf8_lossy(&buffer[..length]).into_owned();
        Some(Self { uid, gid, name, home, suffix: "" })
    }

    /// Returns the account of the user who called sudo(8); `None` if sudo(8) was not used. Later
    /// steps need no root. So the command runs as that user, the trace belongs to that user, and
    /// the recorder serves that user's window.
    pub(crate) fn of_sudo_user() -> Result<Option<Self>, RecordError> {
        if crate::common::user::effective_uid() != 0 {
            return Ok(None);
        }
        let [uid, gid] = ["SUDO_UID", "SUDO_GID"].map(std::env::var_os);
        if uid.is_none() && gid.is_none() {
            return Ok(None);
        }
        let number = |text: Option<OsString>| text?.to_str()?.parse::<u32>().ok();
        let (Some(uid), Some(gid)) = (number(uid), number(gid)) else {
            let why = "SUDO_UID and SUDO_GID do not say who called sudo";
            let hint = "without both of them, trackway records as root";
            return Err(RecordError::Refused(Refusal::new(why).with_hint(hint)));
        };
        if uid == 0 {
            return Ok(None);
        }
        let unknown =
            || Self { uid, gid, name: format!("user {uid}"), home: "/".into(), suffix: "" };
        let account = Self::of_number(uid).unwrap_or_else(unknown);
        Ok(Some(Self { gid, suffix: " (sudo)", ..account }))
    }

    /// Switches this process to that user permanently.
    pub(crate) fn switch_user(&self, notices: &Notices) -> Result<(), RecordError> {
        let name = CString::new(self.name.as_str()).unwrap_or_default();
        trackway_sys::process::become_user(self.uid, self.gid, &name).map_err(RecordError::User)?;
        notices.report(format_args!("recording as {}{}", self.name, self.suffix));
        Ok(())
    }

    /// Returns environment variables for the user's programs, like runuser(1) sets them.
    pub(crate) fn environment(self) -> Vec<(&'static str, OsString)> {
        let Self { name, home, .. } = self;
        vec![("USER", name.clone().into()), ("LOGNAME", name.into()), ("HOME", home)]
    }
}
