//! Where the user's window is, and opening it.

use std::ffi::{CString, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use trackway_window::{Allocator, NAME_BYTES, OpenError, Window, window_name};

use crate::RecordError;
use crate::report::Notices;

/// Environment variable that says where the window is, instead of /dev/shm; the library in traced
/// programs obeys it too.
const FOLDER_VARIABLE: &str = "TRACKWAY_WINDOW_DIR";
const FOLDER: &str = "/dev/shm";

/// The user's window, with what a recorder needs of it.
#[derive(Debug)]
pub struct Home {
    /// Hands out its memory.
    pub allocator: Allocator,
    /// The folder that it lies in.
    pub folder: PathBuf,
    /// Its file.
    pub path: PathBuf,
}

impl Home {
    /// Opens the calling user's window; makes it if there is none, and replaces one that nobody
    /// can use any more, saying so.
    pub fn open_or_make(notices: &Notices) -> Result<Self, RecordError> {
        let folder = folder();
        match Self::open_in(&folder, true) {
            Err(RecordError::Window(path, OpenError::Truncated | OpenError::NotAWindow)) => {
                let aside = set_aside(&path)?;
                notices.say(format_args!(
                    "the window {} was unusable (truncated or damaged); it is now {}",
                    path.display(),
                    aside.display()
                ));
                Self::open_in(&folder, true)
            }
            other => other,
        }
    }

    /// Opens the calling user's window, if there is one.
    pub fn open() -> Result<Option<Self>, RecordError> {
        match Self::open_in(&folder(), false) {
            Err(RecordError::Window(_, OpenError::Absent)) => Ok(None),
            other => other.map(Some),
        }
    }

    /// Opens (with `create`: or makes) the calling user's window in `folder`.
    pub fn open_in(folder: &Path, create: bool) -> Result<Self, RecordError> {
        let path_bytes = |path: &Path| CString::new(path.as_os_str().as_bytes()).ok();
        let mut name = [0; NAME_BYTES];
        let fail = |error| RecordError::Window(folder.to_owned(), error);
        // In a user namespace we share the folder with users outside, whose names count.
        let known_as = trackway_sys::process::outer_user(user())
            .ok_or_else(|| fail(OpenError::System(trackway_sys::Errno(libc::EOVERFLOW))))?;
        let name = window_name(folder.as_os_str().as_bytes(), known_as, &mut name).map_err(fail)?;
        let path = PathBuf::from(OsString::from_vec(name.to_bytes().to_vec()));
        let folder_name = path_bytes(folder).ok_or_else(|| fail(OpenError::PathTooLong))?;
        let (window, file) = Window::open(&folder_name, name, user(), create)
            .map_err(|error| RecordError::Window(path.clone(), error))?;
        Ok(Self { allocator: Allocator::new(window, file), folder: folder.to_owned(), path })
    }

    /// The window.
    pub const fn window(&self) -> &Window {
        self.allocator.window()
    }

    /// Whether the file is as long as the window says; if not, somebody truncated it.
    ///
    /// Other recorders lengthen the file before they say so, and say so before they shorten it:
    /// so it is as long as the lesser of what the window says before and after we look.
    pub fn is_whole(&self) -> bool {
        let before = self.window().usable_bytes();
        let status = self.allocator.file().status();
        let said = before.min(self.window().usable_bytes());
        !trackway_sys::signal::guard_was_hit() && status.is_ok_and(|status| status.bytes >= said)
    }
}

/// The folder that the window lies in.
pub(crate) fn folder() -> PathBuf {
    std::env::var_os(FOLDER_VARIABLE).map_or_else(|| PathBuf::from(FOLDER), PathBuf::from)
}

/// The user that we act for.
pub(crate) fn user() -> u32 {
    // SAFETY: geteuid has no preconditions.
    unsafe { libc::geteuid() }
}

fn set_aside(path: &Path) -> Result<PathBuf, RecordError> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!(".unusable-{}", trackway_sys::clock::realtime_ns() / 1_000_000));
    let aside = PathBuf::from(aside);
    std::fs::rename(path, &aside).map_err(RecordError::io("rename", path))?;
    Ok(aside)
}
