//! The followed folders, which remain the same folders wherever they are moved.
//!
//! A recorder that writes to the path of an earlier trace moves that trace aside. A reader of the
//! earlier trace needs its end, not the beginning of the new one. So each folder is kept open, and
//! is found through `/proc/self/fd` once its path leads elsewhere.

use std::fs::{self, File, Metadata};
use std::io::Write;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::folder::OpenError;
use crate::messages::write_message;

/// The open folders of the followed traces.
pub(super) struct FollowedFolders(Vec<FollowedFolder>);

/// A followed folder.
struct FollowedFolder {
    /// The given path.
    named: PathBuf,
    /// Current path.
    at: PathBuf,
    folder: File,
}

impl FollowedFolders {
    /// Opens the folders that are now at `paths`.
    ///
    /// # Errors
    ///
    /// Returns an error if one cannot be opened.
    pub(super) fn open(paths: &[PathBuf]) -> Result<Self, OpenError> {
        let open = |path: &PathBuf| {
            let folder =
                File::open(path).map_err(|error| OpenError::Path(path.clone(), error.into()))?;
            Ok(FollowedFolder { named: path.clone(), at: path.clone(), folder })
        };
        paths.iter().map(open).collect::<Result<_, _>>().map(Self)
    }

    /// Returns the folders' current paths; reports moved folders to `messages`.
    ///
    /// # Errors
    ///
    /// Returns an error if a folder was removed, or `messages` cannot be written.
    pub(super) fn current_paths(
        &mut self,
        messages: &mut dyn Write,
    ) -> Result<Vec<PathBuf>, OpenError> {
        for folder in &mut self.0 {
            let found = folder.find().ok_or_else(|| OpenError::Removed(folder.named.clone()))?;
            if found != folder.at {
                let (named, found) = (folder.named.display(), found.display());
                write_message(messages, &format!("{named} was moved, and is followed in {found}"))
                    .map_err(|error| OpenError::Message(error.into()))?;
            }
            folder.at = found;
        }
        Ok(self.0.iter().map(|folder| folder.at.clone()).collect())
    }
}

impl FollowedFolder {
    /// Returns the folder's current path; `None` if it was removed.
    fn find(&self) -> Option<PathBuf> {
        let ours = self.folder.metadata().ok()?;
        let is_there =
            |path: &Path| fs::metadata(path).is_ok_and(|there| is_same_file(&there, &ours));
        if is_there(&self.named) {
            return Some(self.named.clone());
        }
        let real = fs::canonicalize(format!("/proc/self/fd/{}", self.folder.as_raw_fd())).ok()?;
        is_there(&real).then_some(real)
    }
}

fn is_same_file(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(test)]
mod tests {
    use std::slice;

    use trackway_testkit::TemporaryFolder;

    use super::*;

    #[test]
    fn a_folder_is_found_where_it_was_moved_until_it_is_removed() {
        let folder = TemporaryFolder::new();
        let real = fs::canonicalize(folder.path()).expect("a folder");
        let (named, moved) = (folder.join("a"), real.join("b"));
        assert!(matches!(FollowedFolders::open(slice::from_ref(&named)), Err(OpenError::Path(..))));
        fs::create_dir(&named).expect("a folder");
        let mut folders = FollowedFolders::open(slice::from_ref(&named)).expect("a folder");
        let mut messages = Vec::new();
        assert_eq!(folders.current_paths(&mut messages).expect("there"), [named.as_path()]);
        fs::rename(&named, &moved).expect("a folder");
        // A new folder at the same path is a different folder.
        fs::create_dir(&named).expect("a folder");
        for _ in 0..2 {
            assert_eq!(folders.current_paths(&mut messages).expect("there"), [moved.as_path()]);
        }
        let text = String::from_utf8(messages).expect("text");
        assert_eq!(text.lines().count(), 1, "said once: {text}");
        assert!(text.contains("/a was moved, and is followed in "), "{text}");
        fs::remove_dir(&moved).expect("a folder");
        let gone = folders.current_paths(&mut std::io::sink()).expect_err("it is gone");
        assert!(matches!(&gone, OpenError::Removed(path) if *path == named), "{gone}");
    }
}
