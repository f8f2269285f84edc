//! A test's own window.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use trackway_schema::{Encoder, Scalar, Shape};
use trackway_window::{NAME_BYTES, OpenError, Window, window_name};

/// A folder in /dev/shm; removed with its contents on drop.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = format!("/dev/shm/trackway-test-window-{name}-{}", std::process::id());
        std::fs::create_dir_all(&path).expect("a folder in /dev/shm");
        Self(path.into())
    }

    pub(crate) fn file(&self) -> PathBuf {
        let mut name = [0; NAME_BYTES];
        let path = window_name(self.0.as_os_str().as_bytes(), effective_uid(), &mut name).unwrap();
        Path::new(std::ffi::OsStr::from_bytes(path.to_bytes())).to_owned()
    }

    pub(crate) fn open(&self, create: bool) -> Result<(Window, trackway_sys::file::Fd), OpenError> {
        self.open_for(effective_uid(), create)
    }

    /// Opens the file of this user's window as the window of `user`.
    pub(crate) fn open_for(
        &self,
        user: u32,
        create: bool,
    ) -> Result<(Window, trackway_sys::file::Fd), OpenError> {
        let folder = CString::new(self.0.as_os_str().as_bytes()).unwrap();
        let path = CString::new(self.file().as_os_str().as_bytes()).unwrap();
        Window::open(&folder, &path, user, create)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns the user who owns the test's window.
pub(crate) fn effective_uid() -> u32 {
    // SAFETY: geteuid has no preconditions.
    unsafe { libc::geteuid() }
}

/// Returns an encoded event `app:name` of level INFO.
pub(crate) fn encode_event(name: &str) -> Vec<u8> {
    let mut buffer = [0; 512];
    let mut encoder = Encoder::new(&mut buffer, b"app", name.as_bytes(), 6).unwrap();
    encoder.add_field(b"n", Shape::Scalar, Some(Scalar::U32), 0, 0).unwrap();
    encoder.finish().to_vec()
}
