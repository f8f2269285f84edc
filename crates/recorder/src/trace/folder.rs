//! A folder handle that finds its folder again after a move.
//!
//! Users move traces while they are recorded. Files that are made later, such as the stream of a
//! CPU that was idle so far, must go to the folder of the existing files.
//!
//! Root also records into folders inside other users' folders. A user who may rename a folder's
//! parent can redirect every access by path. So the recorder makes, writes and removes files below
//! the open folder, one path component after the other, and follows no link
//! (docs/design/0004-privileges.md).

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::common::files::Removed;
use crate::trace::fuse_owner;

/// Suffix of /proc link targets that were removed: proc(5).
const REMOVED_SUFFIX: &[u8] = b" (deleted)";

/// An open folder of a trace.
#[derive(Debug)]
pub(crate) struct TraceFolder {
    folder: File,
    /// Path of the folder when it was opened: for messages, and for systems without /proc.
    path: PathBuf,
}

impl TraceFolder {
    /// Opens the folder at `path`.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self::of(File::open(path)?, path))
    }

    /// Opens a folder that need not be readable, only to find it again.
    pub(crate) fn open_to_find(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY);
        Ok(Self::of(options.open(path)?, path))
    }

    /// Makes the handle from an open folder, which was opened at `path`.
    pub(crate) fn of(folder: File, path: &Path) -> Self {
        Self { folder, path: path.to_owned() }
    }

    /// Opens the subfolder `name`, which must not be a link. The subfolder may belong to any user.
    pub(crate) fn open_folder(&self, name: impl AsRef<Path>) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW);
        let name = name.as_ref();
        Ok(Self::of(options.open(self.current_path()?.join(name))?, &self.path.join(name)))
    }

    /// Opens the folder at the path of these names. None of its folders is a link, and all belong
    /// to this user, so that no other user can replace one or add to it.
    pub(crate) fn open_below<N: AsRef<str>>(&self, names: &[N]) -> io::Result<Self> {
        let mut folder = self.reopen_folder()?;
        for name in names {
            folder = folder.open_folder(name.as_ref())?;
            folder.check_owner()?;
        }
        Ok(folder)
    }

    /// Opens the folder at the path of these names, like [`Self::open_below`], and makes missing
    /// folders.
    pub(crate) fn make_below<N: AsRef<str>>(&self, names: &[N]) -> io::Result<Self> {
        let mut folder = self.reopen_folder()?;
        for name in names {
            let path = folder.current_path()?.join(name.as_ref());
            match DirBuilder::new().mode(0o700).create(path) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                _ => folder = folder.open_below(&[name])?,
            }
        }
        Ok(folder)
    }

    /// Removes the folder at the path of these names with its contents; checks like
    /// [`Self::open_below`].
    pub(crate) fn remove_below<N: AsRef<str>>(&self, names: &[N]) -> io::Result<()> {
        let Some((last, above)) = names.split_last() else { return Ok(()) };
        let above = self.open_below(above)?;
        above.open_below(&[last])?;
        // This call follows no link, even if the folder was replaced meanwhile.
        fs::remove_dir_all(above.current_path()?.join(last.as_ref()))
    }

    /// Removes the folder at the path of these names, and then each parent on the path that is
    /// empty.
    pub(crate) fn remove_chain<N: AsRef<str>>(&self, names: &[N]) -> io::Result<()> {
        let removed = self.remove_below(names);
        for many in (1..names.len()).rev() {
            self.open_below(&names[..many])?.remove_if_empty()?;
        }
        removed
    }

    /// Removes the folder if it is empty.
    pub(crate) fn remove_if_empty(&self) -> io::Result<()> {
        let now = self.current_path()?;
        let name = fs::read_link(&now).unwrap_or_else(|_| now.clone());
        let name = name.file_name().ok_or(ErrorKind::InvalidInput)?;
        fs::remove_dir(now.join("..").join(name))
    }

    /// Opens the parent folder.
    pub(crate) fn parent(&self) -> io::Result<Self> {
        let path = self.path.parent().unwrap_or(&self.path);
        let above = Self::open_to_find(&self.current_path()?.join(".."))?;
        Ok(Self { path: path.to_owned(), ..above })
    }

    /// Opens another handle for the folder.
    pub(crate) fn reopen_folder(&self) -> io::Result<Self> {
        Ok(Self::of(self.folder.try_clone()?, &self.path))
    }

    /// Checks that the folder belongs to the user to whom new files in it belong. (A file system
    /// may map the recorder to another user, as NFS maps root, or map all files to one user.)
    fn check_owner(&self) -> io::Result<()> {
        /// Readers skip names that begin with a dot.
        const PROBE: &str = ".whose";
        // The owners that another user's FUSE server reports prove nothing.
        fuse_owner::check_server(&self.folder)?;
        let owner = self.folder.metadata()?.uid();
        if owner == crate::common::user::effective_uid() {
            return Ok(());
        }
        let why = || io::Error::new(ErrorKind::PermissionDenied, "it is another user's");
        let path = self.current_path()?.join(PROBE);
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let made = made.map_err(|_| why())?;
        let _ = fs::remove_file(path);
        if made.metadata()?.uid() == owner { Ok(()) } else { Err(why()) }
    }

    /// Returns the metadata of the open folder.
    pub(crate) fn metadata(&self) -> io::Result<fs::Metadata> {
        self.folder.metadata()
    }

    /// Returns a path, valid in this process, to the folder at its current place.
    ///
    /// # Errors
    ///
    /// If the folder was removed, or its place is unknown: another folder may be at its old path.
    pub(crate) fn current_path(&self) -> io::Result<PathBuf> {
        if self.is_at(&self.proc_link())? {
            return match self.is_removed() {
                true => Err(io::Error::new(io::ErrorKind::NotFound, Removed)),
                false => Ok(self.proc_link()),
            };
        }
        // This system has no /proc.
        match self.is_at(&self.path)? {
            true => Ok(self.path.clone()),
            false => Err(io::Error::new(io::ErrorKind::NotFound, "its folder was moved")),
        }
    }

    /// Returns the folder's current name: `named` if that leads to the folder, otherwise the
    /// kernel's name.
    ///
    /// # Errors
    ///
    /// See [`Self::current_path`].
    pub(crate) fn current_name(&self, named: &Path) -> io::Result<PathBuf> {
        if self.is_at(named)? {
            return Ok(named.to_owned());
        }
        let now = self.current_path()?;
        let name = fs::read_link(&now).unwrap_or(now);
        match self.is_at(&name)? {
            true => Ok(name),
            false => Err(io::Error::new(io::ErrorKind::NotFound, "its folder was moved")),
        }
    }

    /// Returns true if the folder is known to be removed.
    pub(crate) fn is_removed(&self) -> bool {
        // Some file systems do not report a link count of 0; the kernel's name of the folder shows
        // the removal.
        fs::read_link(self.proc_link()).is_ok_and(|target| {
            let is_said = target.as_os_str().as_bytes().ends_with(REMOVED_SUFFIX);
            is_said && self.is_at(&target).is_ok_and(|is_its_name| !is_its_name)
        })
    }

    /// Returns the path of the kernel's link to the folder.
    fn proc_link(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.folder.as_raw_fd()))
    }

    /// Returns true if the folder is at `path`.
    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let identity = |of: fs::Metadata| (of.dev(), of.ino());
        let ours = identity(self.folder.metadata()?);
        Ok(fs::metadata(path).is_ok_and(|there| identity(there) == ours))
    }

    /// Returns the folder's path when it was opened.
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
        let place = TraceFolder::open(&before).expect("a folder");
        fs::rename(&before, &after).expect("moved");
        assert_eq!(
            place.current_name(&before).expect("a name"),
            after.canonicalize().expect("there")
        );
        assert_eq!(place.current_name(&after).expect("a name"), after);
        fs::create_dir(&before).expect("another folder");
        assert_ne!(place.current_name(&before).expect("a name"), before);
        fs::write(place.current_path().expect("there").join("file"), "text").expect("written");
        assert_eq!(fs::read_to_string(after.join("file")).expect("read"), "text");
    }

    #[test]
    fn a_folder_that_was_removed_is_not_the_next_one_of_its_name() {
        let folder = TemporaryFolder::new();
        let path = folder.join("folder");
        fs::create_dir(&path).expect("a folder");
        let place = TraceFolder::open(&path).expect("a folder");
        fs::remove_dir(&path).expect("removed");
        assert!(
            place.current_path().is_err_and(|error| crate::common::files::reports_removal(&error))
        );
        fs::create_dir(&path).expect("a folder");
        assert!(place.current_path().is_err());
        // This name looks like the name of a removed folder.
        let odd = folder.join("odd (deleted)");
        fs::create_dir(&odd).expect("a folder");
        assert!(TraceFolder::open(&odd).expect("a folder").current_path().is_ok());
    }

    #[test]
    fn what_is_below_a_folder_is_ours_and_behind_no_link() {
        let base = TemporaryFolder::new();
        let [before, after, victim] = ["before", "after", "victim"].map(|name| base.join(name));
        fs::create_dir(&before).expect("a folder");
        fs::create_dir_all(victim.join("kernel/index")).expect("a folder");
        let place = TraceFolder::open(&before).expect("a folder");
        // A user who may rename the folder redirects accesses by path.
        fs::rename(&before, &after).expect("moved");
        std::os::unix::fs::symlink(&victim, &before).expect("a link");
        let made = place.make_below(&["kernel", "trackway"]).expect("made");
        assert_eq!(made.path(), before.join("kernel/trackway"));
        assert!(after.join("kernel/trackway").is_dir() && !victim.join("kernel/trackway").exists());
        assert!(place.make_below(&["kernel", "trackway"]).is_ok(), "it is there, and ours");
        place.remove_below(&["kernel"]).expect("ours");
        assert!(!after.join("kernel").exists() && victim.join("kernel/index").is_dir());
        // A user who may write to the parent folder also redirects accesses.
        std::os::unix::fs::symlink(victim.join("kernel"), after.join("kernel")).expect("a link");
        for names in [&["kernel"][..], &["kernel", "index"]] {
            assert!(
                place.open_below(names).is_err() && place.make_below(names).is_err(),
                "{names:?}"
            );
            assert!(place.remove_below(names).is_err(), "{names:?}");
        }
        assert!(
            place.make_below(&["kernel", "new"]).is_err() && !victim.join("kernel/new").exists()
        );
        assert!(victim.join("kernel/index").is_dir());
        if crate::common::user::effective_uid() == 0 {
            fs::create_dir_all(after.join("ust/uid")).expect("a folder");
            std::os::unix::fs::chown(after.join("ust"), Some(65_531), None).expect("root may");
            assert!(place.make_below(&["ust", "uid"]).is_err(), "another's");
            assert!(place.remove_below(&["ust"]).is_err() && after.join("ust/uid").is_dir());
            assert_eq!(fs::read_dir(after.join("ust")).expect("a folder").count(), 1);
        }
    }

    #[test]
    fn a_folder_goes_from_where_it_is_now_if_nothing_is_in_it() {
        let base = TemporaryFolder::new();
        let [before, after] = ["before", "after"].map(|name| base.join(name));
        fs::create_dir_all(before.join("in it")).expect("a folder");
        let place = TraceFolder::open(&before).expect("a folder");
        fs::rename(&before, &after).expect("moved");
        fs::create_dir(&before).expect("a folder");
        assert!(place.remove_if_empty().is_err());
        fs::remove_dir(after.join("in it")).expect("ours");
        place.remove_if_empty().expect("it is empty");
        assert!(before.is_dir() && !after.exists());
    }
}
