//! The output folder of an export, and the files in it.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use trackway_ctf::read::ByteSource;

use super::ExportError;
use crate::folder::{METADATA, read_metadata_file};

/// Number of bytes that are buffered before a write, and that are copied per read.
const BUFFER_BYTES: usize = 1 << 20;

/// A folder that stays open: files are created in this folder, even if a parent folder is renamed
/// and replaced (docs/design/0004-privileges.md).
struct OpenFolder {
    folder: File,
    /// Path of the folder when it was opened, for systems without /proc.
    opened: PathBuf,
}

impl OpenFolder {
    /// Opens the folder, with additional flags (open(2)).
    fn open(path: PathBuf, flags: i32) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_DIRECTORY | flags);
        Ok(Self { folder: options.open(&path)?, opened: path })
    }

    /// Creates the subfolder `name`, with no access for others.
    fn make(&self, name: &str) -> io::Result<Self> {
        let path = self.path().join(name);
        DirBuilder::new().mode(0o700).create(&path)?;
        Self::open_just_made(path.clone()).inspect_err(|_| {
            // The new folder is empty: a folder with content belongs to others, and stays.
            let _ = fs::remove_dir(path);
        })
    }

    /// Opens a folder that was just created. Its owner must be the owner of files that this process
    /// creates; a folder that replaced it has another owner.
    fn open_just_made(path: PathBuf) -> io::Result<Self> {
        let made = Self::open(path, libc::O_NOFOLLOW)?;
        let probe = made.path().join(".whose");
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&probe)?;
        let _ = fs::remove_file(probe);
        match file.metadata()?.uid() == made.folder.metadata()?.uid() {
            true => Ok(made),
            false => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }

    /// Returns a path that leads to the folder in this process.
    fn path(&self) -> PathBuf {
        let link = PathBuf::from(format!("{DESCRIPTOR_LINKS}/{}", self.folder.as_raw_fd()));
        if link.exists() { link } else { self.opened.clone() }
    }

    /// Removes the folder, if it is empty; returns its parent folder.
    fn remove(self) -> io::Result<Self> {
        let path = self.path();
        let above = Self::open(path.join(".."), libc::O_PATH)?;
        let path = fs::read_link(&path).unwrap_or(path);
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        fs::remove_dir(above.path().join(name))?;
        Ok(above)
    }
}

/// Folder with the links to a process's own open files.
const DESCRIPTOR_LINKS: &str = "/proc/self/fd";

/// Returns a readable path: a path below an [`OpenFolder`] gets the folder's current place.
pub(super) fn resolve_descriptor_path(path: PathBuf) -> PathBuf {
    let Ok(below) = path.strip_prefix(DESCRIPTOR_LINKS) else { return path };
    let mut names = below.components();
    let link = names.next().map(|number| Path::new(DESCRIPTOR_LINKS).join(number));
    match link.and_then(|link| fs::read_link(link).ok()) {
        Some(folder) => folder.join(names.as_path()),
        None => path,
    }
}

/// The output folder of an export. A staging folder inside receives all files; in the end its
/// contents move up, or, after a failure, it is removed. Nothing else is touched.
pub(super) struct OutputFolder {
    path: PathBuf,
    held: OpenFolder,
    /// Number of created folders: the output folder, and its missing parents.
    made: usize,
    /// Name of the staging folder.
    name: String,
    /// Staging folder, once created.
    staging: Option<OpenFolder>,
    is_done: bool,
}

impl OutputFolder {
    /// Creates the folder, or takes an existing empty one.
    pub(super) fn new(path: &Path) -> Result<Self, ExportError> {
        let failed = |error: io::Error| ExportError::Write(path.to_owned(), error.into());
        let missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
        let made = path.ancestors().take_while(missing).count();
        fs::create_dir_all(path).map_err(failed)?;
        let held = OpenFolder::open(path.to_owned(), 0).map_err(failed)?;
        let name = format!(".trackway-{}", std::process::id());
        // From here on, an error removes the created folders.
        let mut folder =
            Self { path: path.to_owned(), held, made, name, staging: None, is_done: false };
        if fs::read_dir(folder.held.path()).map_err(failed)?.next().is_some() {
            return Err(ExportError::NotEmpty(path.to_owned()));
        }
        folder.staging = Some(folder.held.make(&folder.name).map_err(failed)?);
        Ok(folder)
    }

    /// Returns the path of the staging folder.
    fn staging(&self) -> PathBuf {
        self.staging.as_ref().map_or_else(|| self.held.path().join(&self.name), OpenFolder::path)
    }

    /// Creates the folder of a trace at `place` below the staging folder, with the metadata of the
    /// trace at `from`; returns its path.
    pub(super) fn make_trace_folder(
        &self,
        place: &Path,
        from: &Path,
    ) -> Result<PathBuf, ExportError> {
        let to = self.staging().join(place);
        fs::create_dir_all(&to).map_err(ExportError::write_error_at(&to))?;
        let from = from.join(METADATA);
        let metadata = read_metadata_file(&from).map_err(ExportError::read_error_at(&from))?;
        let path = to.join(METADATA);
        fs::write(&path, metadata).map_err(ExportError::write_error_at(path))?;
        Ok(to)
    }

    /// Moves the written files to their final place.
    pub(super) fn keep_contents(mut self) -> Result<(), ExportError> {
        let mut moved = Vec::new();
        if let Err(error) = self.move_out(&mut moved) {
            // A partial output must not remain either.
            for name in moved {
                let _ = fs::rename(self.held.path().join(&name), self.staging().join(&name));
            }
            return Err(ExportError::Write(self.path.clone(), error.into()));
        }
        self.is_done = true;
        Ok(())
    }

    /// Moves all written files to the output folder; appends their names to `moved`.
    fn move_out(&self, moved: &mut Vec<OsString>) -> io::Result<()> {
        let folder = self.held.path();
        for entry in fs::read_dir(self.staging())? {
            let entry = entry?;
            fs::rename(entry.path(), folder.join(entry.file_name()))?;
            moved.push(entry.file_name());
        }
        fs::remove_dir(folder.join(&self.name))
    }
}

impl Drop for OutputFolder {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        // A folder that cannot be removed stays: the caller already reports an error.
        if self.staging.is_some() {
            let _ = fs::remove_dir_all(self.held.path().join(&self.name));
        }
        let mut made = OpenFolder::open(self.held.path(), 0);
        for _ in 0..self.made {
            made = made.and_then(OpenFolder::remove);
        }
    }
}

/// A file of packets during the export. The first packet creates it, so that a stream without
/// packets leaves no file.
pub(super) struct PacketFile {
    path: PathBuf,
    file: Option<File>,
    /// Bytes that are not yet written.
    buffer: Vec<u8>,
    /// Start of `buffer` in the file.
    at: u64,
}

impl PacketFile {
    pub(super) const fn new(path: PathBuf) -> Self {
        Self { path, file: None, buffer: Vec::new(), at: 0 }
    }

    /// Returns the length of the file.
    pub(super) const fn length(&self) -> u64 {
        self.at + self.buffer.len() as u64
    }

    /// Appends the bytes that `write` adds to the buffer.
    pub(super) fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), ExportError> {
        write(&mut self.buffer);
        if self.buffer.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    /// Appends `length` bytes of `from`, from `at` on, until `check` fails. The inner result is an
    /// error if `from` cannot be read.
    pub(super) fn append_from(
        &mut self,
        from: &impl ByteSource,
        at: u64,
        length: u64,
        check: impl Fn() -> Result<(), ExportError>,
    ) -> Result<io::Result<()>, ExportError> {
        let mut left = length;
        while left > 0 {
            check()?;
            let count = left.min((BUFFER_BYTES - self.buffer.len().min(BUFFER_BYTES - 1)) as u64);
            let start = self.buffer.len();
            self.buffer.resize(start + count as usize, 0);
            let piece = self.buffer.get_mut(start..).unwrap_or_default();
            match from.fill_at(piece, at + (length - left)) {
                Ok(filled) if filled as u64 == count => {}
                Ok(_) => return Ok(Err(io::ErrorKind::UnexpectedEof.into())),
                Err(error) => return Ok(Err(error)),
            }
            left -= count;
            if self.buffer.len() >= BUFFER_BYTES {
                self.flush()?;
            }
        }
        Ok(Ok(()))
    }

    /// Overwrites bytes that were appended before.
    pub(super) fn write_over(&mut self, at: u64, bytes: &[u8]) -> Result<(), ExportError> {
        if let Some(start) = at.checked_sub(self.at)
            && let Some(place) = self.buffer.get_mut(start as usize..)
            && let Some(place) = place.get_mut(..bytes.len())
        {
            place.copy_from_slice(bytes);
            return Ok(());
        }
        self.flush()?;
        let Some(file) = &self.file else { return Ok(()) };
        file.write_all_at(bytes, at).map_err(ExportError::write_error_at(&self.path))
    }

    /// Removes the bytes appended after `length`.
    pub(super) fn truncate(&mut self, length: u64) -> Result<(), ExportError> {
        if let Some(keep) = length.checked_sub(self.at) {
            self.buffer.truncate(keep as usize);
            return Ok(());
        }
        self.buffer.clear();
        self.at = length;
        let Some(file) = &self.file else { return Ok(()) };
        file.set_len(length).map_err(ExportError::write_error_at(&self.path))
    }

    fn flush(&mut self) -> Result<(), ExportError> {
        let failed = || ExportError::write_error_at(&self.path);
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(File::create_new(&self.path).map_err(failed())?),
        };
        file.write_all_at(&self.buffer, self.at).map_err(failed())?;
        self.at += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Writes the remaining bytes; returns true if there is a file.
    pub(super) fn finish(mut self) -> Result<bool, ExportError> {
        if self.length() == 0 {
            if self.file.is_some() {
                fs::remove_file(&self.path).map_err(ExportError::write_error_at(&self.path))?;
            }
            return Ok(false);
        }
        self.flush()?;
        if let Some(file) = &mut self.file {
            file.flush().map_err(ExportError::write_error_at(&self.path))?;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use trackway_testkit::TemporaryFolder;

    use super::*;

    #[test]
    fn what_fails_leaves_nothing() {
        let place = TemporaryFolder::new();
        for was_there in [false, true] {
            let path = place.join("out");
            if was_there {
                fs::create_dir(&path).unwrap();
            }
            let folder = OutputFolder::new(&path).unwrap();
            fs::create_dir(folder.staging().join("sub")).unwrap();
            fs::write(folder.staging().join("sub/file"), "x").unwrap();
            // Two exports cannot write to one folder at the same time.
            assert!(matches!(OutputFolder::new(&path), Err(ExportError::NotEmpty(_))));
            drop(folder);
            assert_eq!(path.exists(), was_there);
            assert_eq!(fs::read_dir(&path).into_iter().flatten().count(), 0);
        }
        drop(OutputFolder::new(&place.join("deep/in/it")).unwrap());
        assert!(!place.join("deep").exists());
    }

    #[test]
    fn what_others_put_there_stays() {
        let place = TemporaryFolder::new();
        let folder = OutputFolder::new(&place.join("out")).unwrap();
        fs::write(folder.staging().join("ours"), "x").unwrap();
        fs::write(place.join("out/theirs"), "x").unwrap();
        drop(folder);
        let left = fs::read_dir(place.join("out")).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(left.collect::<Vec<_>>(), ["theirs"]);
        assert!(matches!(OutputFolder::new(&place.join("out")), Err(ExportError::NotEmpty(_))));
    }

    #[test]
    fn what_cannot_be_moved_to_its_place_leaves_nothing_there() {
        let place = TemporaryFolder::new();
        let folder = OutputFolder::new(&place.join("out")).unwrap();
        for name in ["a", "b", "c"] {
            fs::create_dir(folder.staging().join(name)).unwrap();
            fs::write(folder.staging().join(name).join("file"), "x").unwrap();
        }
        // Another process has created a folder with the name of an output file.
        fs::create_dir_all(place.join("out/b/theirs")).unwrap();
        assert!(matches!(folder.keep_contents(), Err(ExportError::Write(..))));
        let left = fs::read_dir(place.join("out")).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(left.collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn what_is_done_stays() {
        let place = TemporaryFolder::new();
        let folder = OutputFolder::new(&place.join("out")).unwrap();
        fs::create_dir(folder.staging().join("sub")).unwrap();
        fs::write(folder.staging().join("sub/file"), "x").unwrap();
        folder.keep_contents().unwrap();
        assert!(place.join("out/sub/file").exists());
        assert_eq!(fs::read_dir(place.join("out")).unwrap().count(), 1);
    }

    #[test]
    fn files_are_written_over_and_cut_anywhere() {
        let place = TemporaryFolder::new();
        let bytes: Vec<u8> = (0..3 * BUFFER_BYTES + 7).map(|index| (index * 31) as u8).collect();
        let mut expected = bytes.clone();
        let mut file = PacketFile::new(place.join("file"));
        file.append_from(&&bytes[..], 0, bytes.len() as u64, || Ok(())).unwrap().unwrap();
        for at in [0, BUFFER_BYTES - 1, 3 * BUFFER_BYTES - 1, 3 * BUFFER_BYTES + 4] {
            file.write_over(at as u64, b"new").unwrap();
            expected[at..at + 3].copy_from_slice(b"new");
        }
        assert!(file.append_from(&&bytes[..], 5, bytes.len() as u64, || Ok(())).unwrap().is_err());
        for length in [3 * BUFFER_BYTES + 5, 2 * BUFFER_BYTES - 9] {
            file.truncate(length as u64).unwrap();
            expected.truncate(length);
        }
        file.append(|buffer| buffer.extend(b"more")).unwrap();
        expected.extend(b"more");
        assert!(file.finish().unwrap());
        assert!(fs::read(place.join("file")).unwrap() == expected);
        assert!(!PacketFile::new(place.join("none")).finish().unwrap());
        assert!(!place.join("none").exists());
    }
}
