//! Where the kernel describes its events: tracefs, mounted where it mostly is, or for us alone, as
//! a mount that no folder shows and that goes with its descriptor.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use trackway_sys::file::Fd;
use trackway_sys::{Errno, mount};

use super::error::CatalogueError;

/// Where it is mounted, if it is.
const USUAL: &str = "/sys/kernel/tracing";
/// Where it was before Linux 4.1. Last, because looking there mounts it.
const FORMER: &str = "/sys/kernel/debug/tracing";
/// linux/magic.h.
const TRACEFS_MAGIC: u64 = 0x7472_6163;

/// The file system, open.
#[derive(Debug)]
pub struct Tracefs {
    root: PathBuf,
    /// Its mount, if it is ours.
    _mount: Option<Fd>,
}

impl Tracefs {
    /// Finds it, or mounts it where nobody sees.
    ///
    /// # Errors
    ///
    /// If the kernel has none, or we have not the right to see it.
    pub fn open() -> Result<Self, CatalogueError> {
        let mounted = |path: &str| {
            let name = std::ffi::CString::new(path).unwrap_or_default();
            let is_there = mount::magic_of(&name) == Ok(TRACEFS_MAGIC);
            is_there.then(|| Self { root: path.into(), _mount: None })
        };
        if let Some(usual) = mounted(USUAL) {
            return usual.usable();
        }
        match mount::detached(c"tracefs") {
            Ok(mount) => {
                let root = PathBuf::from(format!("/proc/self/fd/{}", mount.raw()));
                Self { root, _mount: Some(mount) }.usable()
            }
            Err(errno) => match (mounted(FORMER), errno) {
                (Some(former), _) => former.usable(),
                (None, Errno(libc::EPERM | libc::EACCES)) => Err(CatalogueError::NoRights),
                (None, errno) => Err(CatalogueError::NoTracefs(errno)),
            },
        }
    }

    fn usable(self) -> Result<Self, CatalogueError> {
        match File::open(self.root.join("available_events")) {
            Ok(_) => Ok(self),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Err(CatalogueError::NoRights)
            }
            Err(error) => Err(CatalogueError::Io(self.root.join("available_events"), error.into())),
        }
    }

    /// Where it is, as this process can reach it.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The text of a file, of at most so many bytes, into `into`.
    ///
    /// # Errors
    ///
    /// If it cannot be read, is longer, or is no text.
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
