//! A recording that was discarded to free a slot for a new one, and the notice about it.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use trackway_abi::session::{SESSIONS_MAX, Session};

use crate::notices::Notices;
use crate::window::handle::WindowHandle;
use crate::window::shared_text;

/// A recording that was given up to free its slot for a new one.
#[derive(Debug)]
pub(crate) enum GivenUpRecording {
    /// A recording of the window's user, with its trace folder.
    Own(PathBuf),
    /// The part of a session over several users that is in one user's window, with the id of the
    /// recorder's user.
    Part(u32),
}

impl GivenUpRecording {
    /// Returns the description of `session`. The window has no path for a trace over several users.
    pub(crate) fn of(session: &Session) -> Self {
        let folder = shared_text::trace_path_of(session);
        match folder.as_os_str().is_empty() {
            true => Self::Part(session.uid.load(Ordering::Relaxed)),
            false => Self::Own(folder),
        }
    }
}

impl core::fmt::Display for GivenUpRecording {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Own(folder) => {
                write!(formatter, "the unfinished recording of {}", folder.display())
            }
            Self::Part(uid) => write!(
                formatter,
                "this user's part of an unfinished session over several users, recorded by user \
                 {uid}"
            ),
        }
    }
}

/// Reports recordings that were given up for new ones.
pub(crate) fn report_given_up(handle: &WindowHandle, notices: &Notices) {
    for recording in handle.given_up.take() {
        notices.report(format_args!("gave up {recording}: all {SESSIONS_MAX} places were taken"));
    }
}
