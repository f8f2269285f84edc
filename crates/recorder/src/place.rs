//! A folder that is found again wherever it is moved.
//!
//! Users move traces while they are recorded; files that are needed only later (the stream of a
//! CPU that nobody ran on before) have to go where the others are.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// How the links in /proc end whose targets were removed: proc(5).
const REMOVED: &[u8] = b" (deleted)";

/// Why nothing can be written to a folder that was removed.
#[derive(Debug)]
struct Removed;

impl core::fmt::Display for Removed {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("its folder was removed")
    }
}

impl std::error::Error for Removed {}

/// Whether an error says that a folder was removed: what was in it is gone for good.
pub(crate) fn says_removed(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Removed>())
}

/// A folder, opened.
#[derive(Debug)]
pub(crate) struct Place {
    folder: File,
    /// Where it was when it was opened: for messages, and where there is no /proc.
    path: PathBuf,
}

impl Place {
    /// The folder at `path`.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self::of(File::open(path)?, path))
    }

    /// This folder, which was opened at `path`.
    pub(crate) fn of(folder: File, path: &Path) -> Self {
        Self { folder, path: path.to_owned() }
    }

    /// A path that leads to it wherever it is now, in this process.
    ///
    /// # Errors
    ///
    /// If it was removed, or it cannot be known where it is: what is at its path then is not it.
    pub(crate) fn now(&self) -> io::Result<PathBuf> {
        if self.is_at(&self.link())? {
            return match self.is_removed() {
                true => Err(io::Error::new(io::ErrorKind::NotFound, Removed)),
                false => Ok(self.link()),
            };
        }
        // There is no /proc.
        match self.is_at(&self.path)? {
            true => Ok(self.path.clone()),
            false => Err(io::Error::new(io::ErrorKind::NotFound, "its folder was moved")),
        }
    }

    /// Its name now: `named`, if that is it, else the kernel's.
    ///
    /// # Errors
    ///
    /// As [`Self::now`].
    pub(crate) fn name(&self, named: &Path) -> io::Result<PathBuf> {
        if self.is_at(named)? {
            return Ok(named.to_owned());
        }
        let now = self.now()?;
        let name = fs::read_link(&now).unwrap_or(now);
        match self.is_at(&name)? {
            true => Ok(name),
            false => Err(io::Error::new(io::ErrorKind::NotFound, "its folder was moved")),
        }
    }

    /// Whether it is known that it was removed.
    pub(crate) fn is_removed(&self) -> bool {
        // Not all file systems say that a folder has no links any more; the kernel's name of it
        // does.
        fs::read_link(self.link()).is_ok_and(|target| {
            let is_said = target.as_os_str().as_bytes().ends_with(REMOVED);
            is_said && self.is_at(&target).is_ok_and(|is_its_name| !is_its_name)
        })
    }

    /// The kernel's link to it.
    fn link(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.folder.as_raw_fd()))
    }

    /// Whether it is at `path`.
    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let identity = |of: fs::Metadata| (of.dev(), of.ino());
        let ours = identity(self.folder.metadata()?);
        Ok(fs::metadata(path).is_ok_and(|there| identity(there) == ours))
    }

    /// Where it was when it was opened.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use trackway_testkit::TemporaryFolder;

    use super::*;

    #[test]
    fn a_folder_is_found_where_it_was_moved() {
        let folder = TemporaryFolder::new();
        let (before, after) = (folder.join("before"), folder.join("after"));
        fs::create_dir(&before).expect("a folder");
        let place = Place::open(&before).expect("a folder");
        fs::rename(&before, &after).expect("moved");
        assert_eq!(place.name(&before).expect("a name"), after.canonicalize().expect("there"));
        assert_eq!(place.name(&after).expect("a name"), after);
        fs::create_dir(&before).expect("another folder");
        assert_ne!(place.name(&before).expect("a name"), before);
        fs::write(place.now().expect("there").join("file"), "text").expect("written");
        assert_eq!(fs::read_to_string(after.join("file")).expect("read"), "text");
    }

    #[test]
    fn a_folder_that_was_removed_is_not_the_next_one_of_its_name() {
        let folder = TemporaryFolder::new();
        let path = folder.join("folder");
        fs::create_dir(&path).expect("a folder");
        let place = Place::open(&path).expect("a folder");
        fs::remove_dir(&path).expect("removed");
        assert!(place.now().is_err_and(|error| says_removed(&error)));
        fs::create_dir(&path).expect("a folder");
        assert!(place.now().is_err());
        // A name like those of removed ones.
        let odd = folder.join("odd (deleted)");
        fs::create_dir(&odd).expect("a folder");
        assert!(Place::open(&odd).expect("a folder").now().is_ok());
    }
}
