//! A user's window: finding and opening it.

use std::cell::RefCell;
use std::ffi::{CString, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use trackway_abi::session::SESSIONS_MAX;
use trackway_abi::session::state::FREE;
use trackway_sys::signal::Guard;
use trackway_window::{Allocator, NAME_BYTES, OpenError, Window, window_name};

use crate::error::RecordError;
use crate::notices::Notices;
use crate::window::given_up::GivenUpRecording;

/// Environment variable with the window's folder instead of /dev/shm; the library in traced
/// programs uses the variable, too.
const FOLDER_VARIABLE: &str = "TRACKWAY_WINDOW_DIR";
const DEFAULT_FOLDER: &str = "/dev/shm";

/// Longest wait for another user's window while a process has it locked, in ns.
const OTHER_USER_LOCK_WAIT_NS: u64 = 50_000_000;

/// A user's window, with the state that a recorder needs for it.
#[derive(Debug)]
pub struct WindowHandle {
    /// Allocator of the window's memory.
    pub allocator: Allocator,
    /// Folder of the window's file.
    pub folder: PathBuf,
    /// Path of the window's file.
    pub path: PathBuf,
    /// User that owns the window, by its id in this process's user namespace.
    uid: u32,
    /// Device and inode of the window's file.
    file: (u64, u64),
    guard: Guard,
    /// Recordings that were given up for lack of slots and are not reported yet.
    pub(crate) given_up: RefCell<Vec<GivenUpRecording>>,
}

impl WindowHandle {
    /// Opens the calling user's window. Creates a missing window; replaces an unusable one, with a
    /// notice.
    pub fn open_or_make(notices: &Notices) -> Result<Self, RecordError> {
        let folder = window_folder();
        match Self::open_in(&folder, true) {
            Err(RecordError::Window(path, OpenError::Truncated | OpenError::NotAWindow)) => {
                let aside = set_aside(&path)?;
                notices.report(format_args!(
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
        match Self::open_in(&window_folder(), false) {
            Err(RecordError::Window(_, OpenError::Absent)) => Ok(None),
            other => other.map(Some),
        }
    }

    /// Calls `inspect` with the calling user's window, like [`Self::inspect_user`].
    pub fn inspect<T>(inspect: impl FnOnce(&Window) -> T) -> Result<Option<T>, RecordError> {
        Self::inspect_user(crate::common::user::effective_uid(), inspect)
    }

    /// Calls `inspect` with the window of user `uid`; returns `None` if there is none. Only for
    /// commands that record nothing: compacts the window afterwards if no other process uses it.
    pub(crate) fn inspect_user<T>(
        uid: u32,
        inspect: impl FnOnce(&Window) -> T,
    ) -> Result<Option<T>, RecordError> {
        let handle = match Self::open_for(&window_folder(), uid, false) {
            Err(RecordError::Window(_, OpenError::Absent)) => return Ok(None),
            opened => opened?,
        };
        let result = inspect(handle.window());
        handle.compact_soon();
        handle.close();
        Ok(Some(result))
    }

    /// Opens the calling user's window in `folder`; with `create`, makes a missing one.
    pub fn open_in(folder: &Path, create: bool) -> Result<Self, RecordError> {
        Self::open_for(folder, crate::common::user::effective_uid(), create)
    }

    /// Opens the window of user `uid`. Waits only briefly for the lock of another user's window:
    /// see [`Self::limit_lock_wait`].
    pub(crate) fn open_for(folder: &Path, uid: u32, create: bool) -> Result<Self, RecordError> {
        let fail = |error| RecordError::Window(folder.to_owned(), error);
        let path = window_path(folder, uid)?;
        let c_string = |path: &Path| CString::new(path.as_os_str().as_bytes());
        let folder_name = c_string(folder).map_err(|_| fail(OpenError::PathTooLong))?;
        let name = c_string(&path).map_err(|_| fail(OpenError::PathTooLong))?;
        let of_window = |error| RecordError::Window(path.clone(), error);
        let (window, file, guard) =
            Window::open_guarded(&folder_name, &name, uid, create).map_err(of_window)?;
        let status = file.status().map_err(|errno| of_window(errno.into()))?;
        let handle = Self {
            allocator: Allocator::new(window, file),
            folder: folder.to_owned(),
            path,
            uid,
            file: (status.device, status.inode),
            guard,
            given_up: RefCell::default(),
        };
        handle.limit_lock_wait();
        Ok(handle)
    }

    /// Compacts the window if no process uses it. If no live process and no session remains, waits
    /// briefly for other handles that are about to close it.
    pub(crate) fn compact_soon(&self) {
        const LOOKS: u32 = 10;
        const PERIOD: Duration = Duration::from_millis(5);
        for _ in 0..LOOKS {
            if self.allocator.compact() != Ok(false) || self.is_used() {
                return;
            }
            std::thread::sleep(PERIOD);
        }
    }

    /// Returns true if the window has a session or a live process.
    fn is_used(&self) -> bool {
        let window = self.window();
        let state = |index| window.session(index).state.load(Ordering::Relaxed);
        (0..SESSIONS_MAX).any(|index| state(index) != FREE) || window.sweep_processes() > 0
    }

    /// Unmaps a window that was only read, if there is address space for that. Copies of
    /// [`Self::window`] show zeros afterwards.
    pub fn close(self) {
        let window = *self.window();
        drop(self);
        // A remaining mapping would keep other processes from compacting the window.
        let _ = window.blank(true, 0).and_then(|()| window.blank(false, 0));
    }

    /// Returns the id of the user that owns the window.
    pub(crate) const fn uid(&self) -> u32 {
        self.uid
    }

    /// Returns the device and inode of the window's file.
    pub(crate) const fn file(&self) -> (u64, u64) {
        self.file
    }

    /// Returns true if programs find this file at the window's path. A file that cannot be checked
    /// counts as present.
    pub(crate) fn is_current_file(&self) -> bool {
        match std::fs::symlink_metadata(&self.path) {
            Ok(status) => (status.dev(), status.ino()) == self.file,
            Err(error) => error.kind() != ErrorKind::NotFound,
        }
    }

    /// Limits waits for the lock of another user's window: that user must not be able to delay the
    /// recorder's other work.
    pub(crate) fn limit_lock_wait(&self) {
        if self.uid != crate::common::user::effective_uid() {
            self.allocator.limit_patience(OTHER_USER_LOCK_WAIT_NS);
        }
    }

    /// Returns the mapped window.
    pub const fn window(&self) -> &Window {
        self.allocator.window()
    }

    /// Returns true if the file is as long as the window declares; otherwise a process truncated
    /// it.
    ///
    /// Other recorders lengthen the file before they publish the new length, and publish a shorter
    /// length before they shorten the file. So the file is at least as long as the smaller of the
    /// lengths published before and after the check. The exception, a shortening and a lengthening
    /// in between, does not happen twice in a row.
    pub fn is_full_length(&self) -> bool {
        let is_long_enough = || {
            let before = self.window().usable_bytes();
            let status = self.allocator.file().status();
            let said = before.min(self.window().usable_bytes());
            status.is_ok_and(|status| status.bytes >= said)
        };
        !self.guard.was_hit() && (is_long_enough() || is_long_enough())
    }
}

impl Drop for WindowHandle {
    /// Compacts an unused window, so that it takes little memory.
    fn drop(&mut self) {
        // If this fails, the next process that opens the window tries again.
        let _ = self.allocator.compact();
    }
}

/// Returns the path of user `uid`'s window in `folder`.
pub(crate) fn window_path(folder: &Path, uid: u32) -> Result<PathBuf, RecordError> {
    let fail = |error| RecordError::Window(folder.to_owned(), error);
    let mut name = [0; NAME_BYTES];
    // A user namespace shares the folder with users outside, so the outer user id names the window.
    let known_as = trackway_sys::process::outer_user(uid)
        .ok_or_else(|| fail(OpenError::System(trackway_sys::Errno(libc::EOVERFLOW))))?;
    let name = window_name(folder.as_os_str().as_bytes(), known_as, &mut name).map_err(fail)?;
    Ok(PathBuf::from(OsString::from_vec(name.to_bytes().to_vec())))
}

/// Returns the folder of windows.
pub(crate) fn window_folder() -> PathBuf {
    std::env::var_os(FOLDER_VARIABLE).map_or_else(|| PathBuf::from(DEFAULT_FOLDER), PathBuf::from)
}

fn set_aside(path: &Path) -> Result<PathBuf, RecordError> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!(".unusable-{}", trackway_sys::clock::realtime_ns() / 1_000_000));
    let aside = PathBuf::from(aside);
    std::fs::rename(path, &aside).map_err(RecordError::io("rename", path))?;
    Ok(aside)
}
