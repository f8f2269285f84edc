//! The folder that is written to, and the files in it.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use trackway_ctf::read::Bytes;

use super::ExportError;
use crate::folder::{METADATA, metadata_bytes};

/// How much is gathered before it is written, and read at once to be copied.
const BUFFER_BYTES: usize = 1 << 20;

/// A folder that is written to in a folder of its own below it, which becomes its contents once all
/// is written, and else goes with all that is in it: nothing of anybody else's is touched.
pub(super) struct Folder {
    path: PathBuf,
    /// Folders that were made for it, innermost first.
    made: Vec<PathBuf>,
    staging: PathBuf,
    is_done: bool,
}

impl Folder {
    /// Makes the folder, or takes an empty one.
    pub(super) fn new(path: &Path) -> Result<Self, ExportError> {
        let failed = |error| ExportError::Write(path.to_owned(), error);
        let missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
        let made = path.ancestors().take_while(missing).map(Path::to_owned).collect();
        fs::create_dir_all(path).map_err(failed)?;
        let staging = path.join(format!(".trackway-{}", std::process::id()));
        // From here on, what was made goes again.
        let folder = Self { path: path.to_owned(), made, staging, is_done: false };
        if fs::read_dir(path).map_err(failed)?.next().is_some() {
            return Err(ExportError::NotEmpty(path.to_owned()));
        }
        fs::create_dir(&folder.staging).map_err(failed)?;
        Ok(folder)
    }

    /// Makes the folder of a trace at `place` in it, with the metadata of the trace at `from`;
    /// where that is.
    pub(super) fn trace(&self, place: &Path, from: &Path) -> Result<PathBuf, ExportError> {
        let to = self.staging.join(place);
        fs::create_dir_all(&to).map_err(ExportError::write(&to))?;
        let from = from.join(METADATA);
        let metadata = metadata_bytes(&from).map_err(ExportError::read(&from))?;
        let path = to.join(METADATA);
        fs::write(&path, metadata).map_err(ExportError::write(path))?;
        Ok(to)
    }

    /// What was written stays.
    pub(super) fn done(mut self) -> Result<(), ExportError> {
        let failed = |error| ExportError::Write(self.path.clone(), error);
        for entry in fs::read_dir(&self.staging).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            fs::rename(entry.path(), self.path.join(entry.file_name())).map_err(failed)?;
        }
        fs::remove_dir(&self.staging).map_err(failed)?;
        self.is_done = true;
        Ok(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        // What cannot be removed is left: there is an error already to be told of.
        let _ = fs::remove_dir_all(&self.staging);
        for made in &self.made {
            let _ = fs::remove_dir(made);
        }
    }
}

/// A file of packets while it is written; made with its first packet, so that a stream without
/// any leaves none.
pub(super) struct PacketFile {
    path: PathBuf,
    file: Option<File>,
    /// What was not written yet.
    buffer: Vec<u8>,
    /// Where in the file `buffer` begins.
    at: u64,
}

impl PacketFile {
    pub(super) const fn new(path: PathBuf) -> Self {
        Self { path, file: None, buffer: Vec::new(), at: 0 }
    }

    /// How long the file is.
    pub(super) const fn length(&self) -> u64 {
        self.at + self.buffer.len() as u64
    }

    /// Appends bytes through `write`, which gets the buffer's end.
    pub(super) fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), ExportError> {
        write(&mut self.buffer);
        if self.buffer.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    /// Appends `length` bytes of `from`, from `at` on, as long as `check` lets it; whether they
    /// were there.
    pub(super) fn copy(
        &mut self,
        from: &impl Bytes,
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

    /// Writes over bytes that were appended before.
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
        file.write_all_at(bytes, at).map_err(ExportError::write(&self.path))
    }

    /// Takes back what was appended from `length` on.
    pub(super) fn cut(&mut self, length: u64) -> Result<(), ExportError> {
        if let Some(keep) = length.checked_sub(self.at) {
            self.buffer.truncate(keep as usize);
            return Ok(());
        }
        self.buffer.clear();
        self.at = length;
        let Some(file) = &self.file else { return Ok(()) };
        file.set_len(length).map_err(ExportError::write(&self.path))
    }

    fn flush(&mut self) -> Result<(), ExportError> {
        let failed = || ExportError::write(&self.path);
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(File::create_new(&self.path).map_err(failed())?),
        };
        file.write_all_at(&self.buffer, self.at).map_err(failed())?;
        self.at += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Writes what is left; whether there is a file.
    pub(super) fn finish(mut self) -> Result<bool, ExportError> {
        if self.length() == 0 {
            if self.file.is_some() {
                fs::remove_file(&self.path).map_err(ExportError::write(&self.path))?;
            }
            return Ok(false);
        }
        self.flush()?;
        if let Some(file) = &mut self.file {
            file.flush().map_err(ExportError::write(&self.path))?;
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
            let folder = Folder::new(&path).unwrap();
            fs::create_dir(folder.staging.join("sub")).unwrap();
            fs::write(folder.staging.join("sub/file"), "x").unwrap();
            // Two at a time cannot write to one folder.
            assert!(matches!(Folder::new(&path), Err(ExportError::NotEmpty(_))));
            drop(folder);
            assert_eq!(path.exists(), was_there);
            assert_eq!(fs::read_dir(&path).into_iter().flatten().count(), 0);
        }
        drop(Folder::new(&place.join("deep/in/it")).unwrap());
        assert!(!place.join("deep").exists());
    }

    #[test]
    fn what_others_put_there_stays() {
        let place = TemporaryFolder::new();
        let folder = Folder::new(&place.join("out")).unwrap();
        fs::write(folder.staging.join("ours"), "x").unwrap();
        fs::write(place.join("out/theirs"), "x").unwrap();
        drop(folder);
        let left = fs::read_dir(place.join("out")).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(left.collect::<Vec<_>>(), ["theirs"]);
        assert!(matches!(Folder::new(&place.join("out")), Err(ExportError::NotEmpty(_))));
    }

    #[test]
    fn what_is_done_stays() {
        let place = TemporaryFolder::new();
        let folder = Folder::new(&place.join("out")).unwrap();
        fs::create_dir(folder.staging.join("sub")).unwrap();
        fs::write(folder.staging.join("sub/file"), "x").unwrap();
        folder.done().unwrap();
        assert!(place.join("out/sub/file").exists());
        assert_eq!(fs::read_dir(place.join("out")).unwrap().count(), 1);
    }

    #[test]
    fn files_are_written_over_and_cut_anywhere() {
        let place = TemporaryFolder::new();
        let bytes: Vec<u8> = (0..3 * BUFFER_BYTES + 7).map(|index| (index * 31) as u8).collect();
        let mut expected = bytes.clone();
        let mut file = PacketFile::new(place.join("file"));
        file.copy(&&bytes[..], 0, bytes.len() as u64, || Ok(())).unwrap().unwrap();
        for at in [0, BUFFER_BYTES - 1, 3 * BUFFER_BYTES - 1, 3 * BUFFER_BYTES + 4] {
            file.write_over(at as u64, b"new").unwrap();
            expected[at..at + 3].copy_from_slice(b"new");
        }
        assert!(file.copy(&&bytes[..], 5, bytes.len() as u64, || Ok(())).unwrap().is_err());
        for length in [3 * BUFFER_BYTES + 5, 2 * BUFFER_BYTES - 9] {
            file.cut(length as u64).unwrap();
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
