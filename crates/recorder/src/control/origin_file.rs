//! Origin files: paths of the traces of sessions in other users' windows.
//!
//! A user can write the contents of the own window. So a recorder of several users' windows writes
//! no path into a window, and recovery trusts none from there. The path is in a file of the
//! recorder's user, in the run folder: one origin file for each recorded window.
//!
//! ```text
//! UUID.part    locked (flock(2)) while the recorder lives; gone once the window's part is complete
//!     uid=1000
//!     number=1
//!     folder=/var/log/traces/all         up to the file's end, whatever bytes it has
//! ```

use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::common::files::open_regular;
use crate::control::RunFolder;
use crate::error::RecordError;
use crate::trace::layout::WindowFolder;

const ORIGIN_EXTENSION: &str = "part";
/// Largest origin file that is read, in bytes: two numbers and a path.
const ORIGIN_BYTES_MAX: u64 = 16 << 10;

/// Location of a session's trace for one window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Identity of the trace, and of the session in the window.
    pub(crate) uuid: [u8; 16],
    /// User of the window, and the number of its folder in the trace.
    pub(crate) folder: WindowFolder,
    /// Absolute path of the session's trace.
    pub(crate) root: PathBuf,
}

/// An origin file that this process has locked: other recoveries skip it until this is dropped.
#[derive(Debug)]
pub(crate) struct OriginFile {
    pub(crate) origin: Origin,
    /// Open file, which holds the lock.
    _file: File,
    path: PathBuf,
}

impl OriginFile {
    /// Creates the origin file of a new origin.
    ///
    /// # Errors
    ///
    /// If the file cannot be created, or other users can access its folder.
    pub(crate) fn new(run: &RunFolder, origin: Origin) -> Result<Self, RecordError> {
        run.make()?;
        let path = origin_file_path(run, &origin.uuid);
        let fail = || RecordError::io("make", &path);
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(fail())?;
        // A recovery that runs before the lock is taken finds no text, and skips the file.
        let kept = match file.try_lock() {
            Ok(()) => Ok(()),
            Err(TryLockError::Error(error)) => Err(error),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
        };
        let written = kept.and_then(|()| (&file).write_all(&origin.text()));
        if let Err(error) = written {
            let _ = fs::remove_file(&path);
            return Err(fail()(error));
        }
        Ok(Self { origin, _file: file, path })
    }

    /// Removes the file, once no event of the session is in the window any more.
    pub(crate) fn remove(self) {
        // If the file stays, the next recovery finds no session for it.
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns the origin files of dead recorders, locked by this process until they are dropped.
///
/// # Errors
///
/// If the folder cannot be read, or other users can access it.
pub(crate) fn open_orphaned(run: &RunFolder) -> Result<Vec<OriginFile>, RecordError> {
    if !run.check()? {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(run.path()).map_err(RecordError::io("read", run.path()))?;
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == ORIGIN_EXTENSION))
        .collect();
    paths.sort();
    Ok(paths.into_iter().filter_map(|path| lock_and_read(&path)).collect())
}

fn lock_and_read(path: &Path) -> Option<OriginFile> {
    let file = open_regular(path, fs::OpenOptions::new().read(true)).ok()?;
    file.try_lock().ok()?;
    let mut text = Vec::new();
    (&file).take(ORIGIN_BYTES_MAX).read_to_end(&mut text).ok()?;
    let uuid = parse_uuid_digits(path.file_stem()?.to_str()?)?;
    Some(OriginFile { origin: Origin::parse(uuid, &text)?, _file: file, path: path.to_owned() })
}

impl Origin {
    fn text(&self) -> Vec<u8> {
        let WindowFolder { uid, number } = self.folder;
        let mut text = format!("uid={uid}\nnumber={number}\nfolder=").into_bytes();
        text.extend_from_slice(self.root.as_os_str().as_bytes());
        text
    }

    fn parse(uuid: [u8; 16], text: &[u8]) -> Option<Self> {
        let mut lines = text.splitn(3, |byte| *byte == b'\n');
        let mut value = |name: &str| lines.next()?.strip_prefix(name.as_bytes());
        let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse().ok();
        let folder =
            WindowFolder { uid: number(value("uid=")?)?, number: number(value("number=")?)? };
        let root = PathBuf::from(std::ffi::OsString::from_vec(value("folder=")?.to_vec()));
        root.is_absolute().then_some(Self { uuid, folder, root })
    }
}

fn origin_file_path(run: &RunFolder, uuid: &[u8; 16]) -> PathBuf {
    run.path().join(format!("{}.{ORIGIN_EXTENSION}", format_uuid_digits(uuid)))
}

/// Formats an identity as 32 hexadecimal digits.
pub(crate) fn format_uuid_digits(uuid: &[u8; 16]) -> String {
    uuid.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parses an identity from 32 hexadecimal digits.
pub(crate) fn parse_uuid_digits(digits: &str) -> Option<[u8; 16]> {
    let number = u128::from_str_radix(digits, 16).ok()?;
    (digits.len() == 32).then(|| number.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use trackway_testkit::TemporaryFolder;

    use super::*;

    fn build_origin(number: u8, root: &[u8]) -> Origin {
        let root = PathBuf::from(std::ffi::OsStr::from_bytes(root));
        let folder = WindowFolder { uid: 65_531, number: number.into() };
        Origin { uuid: [number; 16], folder, root }
    }

    #[test]
    fn what_a_dead_recorder_kept_is_found_and_what_a_live_one_keeps_is_not() {
        let temporary = TemporaryFolder::new();
        let run = RunFolder::from_path(temporary.join("run"));
        assert!(open_orphaned(&run).expect("nothing").is_empty());
        let dead = build_origin(1, b"/var/log/odd\nname \xff");
        drop(OriginFile::new(&run, dead.clone()).expect("kept"));
        let alive = OriginFile::new(&run, build_origin(2, b"/tmp/trace")).expect("kept");
        assert!(OriginFile::new(&run, dead.clone()).is_err(), "it is there");
        let found = open_orphaned(&run).expect("the folder");
        assert_eq!(found.iter().map(|kept| &kept.origin).collect::<Vec<_>>(), [&dead]);
        assert!(open_orphaned(&run).expect("the folder").is_empty(), "one at a time recovers");
        found.into_iter().for_each(OriginFile::remove);
        drop(alive);
        let found = open_orphaned(&run).expect("the folder");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].origin.uuid, [2; 16]);
    }

    #[test]
    fn what_makes_no_sense_is_left_alone() {
        let temporary = TemporaryFolder::new();
        let run = RunFolder::from_path(temporary.join("run"));
        run.make().expect("a folder");
        let name = "0".repeat(32);
        for (name, text) in [
            (name.as_str(), ""),
            (&name, "uid=7\nnumber=1\n"),
            (&name, "uid=7\nnumber=x\nfolder=/tmp"),
            (&name, "uid=-7\nnumber=1\nfolder=/tmp"),
            (&name, "uid=7\nnumber=1\nfolder=relative"),
            ("short", "uid=7\nnumber=1\nfolder=/tmp"),
        ] {
            let path = run.path().join(format!("{name}.{ORIGIN_EXTENSION}"));
            fs::write(&path, text).expect("a file");
            assert!(open_orphaned(&run).expect("the folder").is_empty(), "{text}");
            fs::remove_file(path).expect("ours");
        }
    }
}
