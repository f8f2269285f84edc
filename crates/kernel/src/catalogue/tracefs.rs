//! The tracefs file system, mounted at its usual path, or for this process alone, as a detached
//! mount that ends when its descriptor is closed.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use trackway_sys::file::Fd;
use trackway_sys::{Errno, mount};

use super::error::CatalogueError;

/// The usual mount point.
const DEFAULT_ROOT: &str = "/sys/kernel/tracing";
/// The mount point before Linux 4.1. The search tries this path last, because access mounts
/// tracefs.
const LEGACY_ROOT: &str = "/sys/kernel/debug/tracing";
/// The file system's magic number (linux/magic.h).
const TRACEFS_MAGIC: u64 = 0x7472_6163;

/// An open tracefs file system.
#[derive(Debug)]
pub struct Tracefs {
    root: PathBuf,
    /// The detached mount, if this process created one.
    _mount: Option<Fd>,
}

impl Tracefs {
    /// Finds tracefs, or mounts it for this process alone.
    ///
    /// # Errors
    ///
    /// If the kernel has no tracefs, or the process lacks privileges.
    pub fn open() -> Result<Self, CatalogueError> {
        let mounted = |path: &str| {
            let name = std::ffi::CString::new(path).unwrap_or_default();
            let is_there = mount::magic_of(&name) == Ok(TRACEFS_MAGIC);
            is_there.then(|| Self { root: path.into(), _mount: None })
        };
        if let Some(usual) = mounted(DEFAULT_ROOT) {
            return usual.check_access();
        }
        match mount::mount_detached(c"tracefs") {
            Ok(mount) => {
                let root = PathBuf::from(format!("/proc/self/fd/{}", mount.raw()));
                Self { root, _mount: Some(mount) }.check_access()
            }
            Err(errno) => match (mounted(LEGACY_ROOT), errno) {
                (Some(former), _) => former.check_access(),
                (None, Errno(libc::EPERM | libc::EACCES)) => Err(CatalogueError::PermissionDenied),
                (None, errno) => Err(CatalogueError::NoTracefs(errno)),
            },
        }
    }

    fn check_access(self) -> Result<Self, CatalogueError> {
        match File::open(self.root.join("available_events")) {
            Ok(_) => Ok(self),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Err(CatalogueError::PermissionDenied)
            }
            Err(error) => Err(CatalogueError::Io(self.root.join("available_events"), error.into())),
        }
    }

    /// Returns the path of the tracefs root for this process.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Reads a text file of at most `bytes_max` bytes into `into`.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, is longer, or is not text.
    pub fn read<'text>(
        &self,
        path: &str,
        bytes_max: usize,
        into: &'text mut Vec<u8>,
    ) -> io::Result<&'text str> {
        into.clear();
        let file = File::open(self.root.join(path))?;
        file.take(bytes_max as u64 + 1).read_to_end(into)?;
        let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
        if into.len() > bytes_max {
            return Err(invalid("longer than such files are"));
        }
        std::str::from_utf8(into).map_err(|_| invalid("not text"))
    }
}
