//! A folder that is found again wherever it is moved.
//!
//! Users move traces while they are recorded; files that are needed only later (the stream of a
//! CPU that nobody ran on before) have to go where the others are.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

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
        Ok(Self { folder: File::open(path)?, path: path.to_owned() })
    }

    /// A path that leads to it wherever it is now, in this process.
    pub(crate) fn now(&self) -> PathBuf {
        let link = PathBuf::from(format!("/proc/self/fd/{}", self.folder.as_raw_fd()));
        let identity = |of: io::Result<fs::Metadata>| of.ok().map(|of| (of.dev(), of.ino()));
        let ours = identity(self.folder.metadata());
        let is_there = ours.is_some() && identity(fs::metadata(&link)) == ours;
        if is_there { link } else { self.path.clone() }
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
        fs::write(place.now().join("file"), "text").expect("written");
        assert_eq!(fs::read_to_string(after.join("file")).expect("read"), "text");
    }
}
