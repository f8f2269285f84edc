//! Search for traces in folders, at any depth.
//!
//! A folder is a trace if it has a file `metadata`. All other regular files in it are streams,
//! except those whose names begin with a dot. The search does not follow symbolic links to folders,
//! which may form cycles. Files that are not regular are never opened: a FIFO would wait for its
//! writer, a device may do anything.

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _, Write};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use trackway_console::IoError;
use trackway_ctf::read::{ByteSource, MetadataError, Trace};

use crate::index::{Index, IndexError};
use crate::input::{DataFile, Input};
use crate::messages::write_message;

/// Name of the file that makes a folder a trace.
pub(crate) const METADATA: &str = "metadata";
/// Name of the folder in a trace that contains the streams' indexes.
const INDEX_FOLDER: &str = "index";
/// Maximum size of metadata in bytes.
const METADATA_BYTES_MAX: u64 = 256 << 20;
/// Maximum depth of the search, counted from the given folder.
pub(crate) const DEPTH_MAX: usize = 64;
/// Maximum number of data files of a trace.
const FILES_MAX: usize = 1 << 20;
/// Maximum number of files that are kept open; further files are opened again for each read.
const OPEN_FILES_MAX: usize = 512;

/// Returns the number of files that may be kept open: a quarter of this process's limit
/// (getrlimit(2)). Each file may have an index; reads and the caller need files, too.
fn open_files_limit() -> usize {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    soft.map_or(OPEN_FILES_MAX, |soft| (soft / 4).min(OPEN_FILES_MAX))
}

/// Reason why no trace can be read from a path.
///
/// A system error is the source, and not in the text.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// A given path cannot be read.
    Path(PathBuf, IoError),
    /// A given path leads to something that is not a folder.
    NotFolder(PathBuf),
    /// A given path contains no trace.
    NoTrace(PathBuf),
    /// A followed folder was removed.
    Removed(PathBuf),
    /// A message or the output could not be written.
    Message(IoError),
}

impl fmt::Display for OpenError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path, _) => write!(formatter, "cannot open {path:?}"),
            Self::NotFolder(path) => {
                write!(formatter, "{path:?} is not a trace: it is not a folder")
            }
            Self::NoTrace(path) => write!(
                formatter,
                "{path:?} is not a trace: neither it nor a folder in it has a file 'metadata'"
            ),
            Self::Removed(path) => write!(formatter, "{path:?} was removed while it was followed"),
            Self::Message(_) => formatter.write_str("cannot write"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Path(_, error) | Self::Message(error) => Some(error),
            Self::NotFolder(_) | Self::NoTrace(_) | Self::Removed(_) => None,
        }
    }
}

impl OpenError {
    /// Returns advice for the user, if there is any.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotFolder(path) => match path.parent().filter(|_| is_part_of_trace(path)) {
                Some(folder) => {
                    Some(format!("it is a part of a trace: give its folder, {folder:?}"))
                }
                None => Some(TRACE_HINT.to_owned()),
            },
            Self::NoTrace(_) => Some(TRACE_HINT.to_owned()),
            Self::Path(_, error) if error.kind() == io::ErrorKind::NotFound => Some(
                "there is no such folder, and no session of this name: trackway session list shows \
                 sessions"
                    .to_owned(),
            ),
            Self::Path(..) | Self::Removed(_) | Self::Message(_) => None,
        }
    }
}

const TRACE_HINT: &str = "a trace is a folder with a file 'metadata' and stream files (CTF), \
    as trackway record -o DIR, LTTng and barectf write it";

/// Returns true if the file's folder is a trace.
fn is_part_of_trace(path: &Path) -> bool {
    path.parent().is_some_and(|folder| folder.join("metadata").is_file())
}

/// Reason why a folder's trace, or one of its files, cannot be read.
#[derive(Debug)]
enum FileError {
    Io(IoError),
    Metadata(MetadataError),
    Index(IndexError),
    NotRegular,
    Empty,
    TooLarge(u64),
    TooMany,
}

impl fmt::Display for FileError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(formatter, "{error}"),
            Self::Metadata(error) => write!(formatter, "{error}"),
            Self::Index(error) => write!(formatter, "{error}"),
            Self::NotRegular => formatter.write_str("not a regular file"),
            Self::Empty => formatter.write_str("empty"),
            Self::TooLarge(bytes) => write!(formatter, "{bytes} bytes are too many"),
            Self::TooMany => write!(formatter, "more than {FILES_MAX} files"),
        }
    }
}

impl FileError {
    /// Returns true if the file does not exist.
    fn is_absence(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::NotFound)
    }

    fn into_io(self) -> io::Error {
        match self {
            Self::Io(error) => error.into_inner(),
            error => io::Error::other(error.to_string()),
        }
    }
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> Self {
        Self::Io(error.into())
    }
}

/// The traces found in some folders.
pub struct FoundTraces {
    /// Inputs that can be read.
    pub inputs: Vec<Input<TraceFile>>,
    /// Folder of each input.
    pub folders: Vec<PathBuf>,
    /// True if nothing was damaged.
    pub is_whole: bool,
}

/// Opens all traces in the folders `paths`, at any depth; damage is reported to `messages`.
///
/// # Errors
///
/// Returns an error if one of `paths` cannot be read, or has no trace.
pub fn open_traces(paths: &[PathBuf], messages: &mut dyn Write) -> Result<FoundTraces, OpenError> {
    open_traces_with(paths, None, messages)
}

/// Opens traces repeatedly, like [`open_traces`]: `known` metadata whose file is unchanged is not
/// parsed again. Afterwards `known` holds the metadata of the found traces.
///
/// # Errors
///
/// See [`open_traces`].
pub(crate) fn reopen_traces(
    paths: &[PathBuf],
    known: &mut MetadataCache,
    messages: &mut dyn Write,
) -> Result<FoundTraces, OpenError> {
    open_traces_with(paths, Some(known), messages)
}

fn open_traces_with(
    paths: &[PathBuf],
    mut known: Option<&mut MetadataCache>,
    messages: &mut dyn Write,
) -> Result<FoundTraces, OpenError> {
    let mut search = Search {
        inputs: Vec::new(),
        folders: Vec::new(),
        is_whole: true,
        open_files: 0,
        open_max: open_files_limit(),
        known: known.as_deref_mut(),
        messages,
    };
    for path in paths {
        let cannot = |error: io::Error| OpenError::Path(path.clone(), error.into());
        // Absolute, like the stream names in babeltrace2's warnings.
        let root = fs::canonicalize(path).map_err(cannot)?;
        if !fs::metadata(&root).map_err(cannot)?.is_dir() {
            return Err(OpenError::NotFolder(path.clone()));
        }
        fs::read_dir(&root).map_err(cannot)?;
        if !search.folder(&root, &root, 0).map_err(|error| OpenError::Message(error.into()))? {
            return Err(OpenError::NoTrace(path.clone()));
        }
    }
    let Search { inputs, folders, is_whole, .. } = search;
    if let Some(MetadataCache(known)) = known {
        known.retain(|folder, _| folders.contains(folder));
    }
    Ok(FoundTraces { inputs, folders, is_whole })
}

/// Parsed metadata, by its trace's folder.
#[derive(Default)]
pub(crate) struct MetadataCache(HashMap<PathBuf, (FileStamp, Trace)>);

/// The properties of a file that change if it is replaced or written to.
#[derive(PartialEq, Eq)]
struct FileStamp {
    id: (u64, u64),
    length: u64,
    modified: (i64, i64),
}

impl FileStamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            id: (metadata.dev(), metadata.ino()),
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

/// Returns identities and lengths of the files of traces in the folders `paths`, at any depth: they
/// change if a trace grows. Files in which the recorder stores its own state change all the time,
/// and are not included.
pub(crate) fn file_sizes(paths: &[PathBuf]) -> Vec<(u64, u64, u64)> {
    fn add_sizes(folder: &Path, depth: usize, sizes: &mut Vec<(u64, u64, u64)>) {
        let Ok(entries) = fs::read_dir(folder) else { return };
        let is_read = folder.ends_with(INDEX_FOLDER) || folder.join(METADATA).is_file();
        for entry in entries.flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() && depth < DEPTH_MAX {
                add_sizes(&entry.path(), depth + 1, sizes);
            } else if metadata.is_file() && is_read {
                sizes.push((metadata.dev(), metadata.ino(), metadata.len()));
            }
        }
    }
    let mut sizes = Vec::new();
    paths.iter().for_each(|path| add_sizes(path, 0, &mut sizes));
    sizes.sort_unstable();
    sizes
}

struct Search<'m> {
    inputs: Vec<Input<TraceFile>>,
    folders: Vec<PathBuf>,
    is_whole: bool,
    open_files: usize,
    open_max: usize,
    known: Option<&'m mut MetadataCache>,
    messages: &'m mut dyn Write,
}

impl Search<'_> {
    /// Adds the traces at and below `folder`, in the order of their names. Returns true if there
    /// are any, readable or not.
    fn folder(&mut self, folder: &Path, root: &Path, depth: usize) -> io::Result<bool> {
        let mut found = false;
        if fs::metadata(folder.join(METADATA)).is_ok_and(|metadata| metadata.is_file()) {
            found = true;
            match self.open_trace(folder, root)? {
                Ok(input) => {
                    self.inputs.push(input);
                    self.folders.push(folder.to_owned());
                }
                Err(error) => self.report_damage(&folder.join(METADATA), &error)?,
            }
        }
        if depth == DEPTH_MAX {
            return Ok(found);
        }
        let folders = match list_subfolders(folder) {
            Ok(folders) => folders,
            Err(error) => {
                self.report_damage(folder, &error.into())?;
                return Ok(found);
            }
        };
        for folder in folders {
            found |= self.folder(&folder, root, depth + 1)?;
        }
        Ok(found)
    }

    fn report_damage(&mut self, path: &Path, error: &FileError) -> io::Result<()> {
        self.is_whole = false;
        write_message(&mut self.messages, &format!("{}: {error}", path.display()))
    }

    /// Returns the index of a stream's file, if it exists and is not damaged.
    fn index(&mut self, file: &Path) -> io::Result<Option<Index<TraceFile>>> {
        let Some(path) = index_path_of(file) else { return Ok(None) };
        let opened = TraceFile::open(&path, false)
            .and_then(|bytes| Index::open(bytes).map_err(FileError::Index));
        match opened {
            Ok(index) => Ok(Some(index)),
            Err(error) if error.is_absence() => Ok(None),
            Err(error) => {
                self.report_damage(&path, &error)?;
                Ok(None)
            }
        }
    }

    /// Reads a trace's metadata.
    fn metadata(&mut self, folder: &Path) -> Result<Trace, FileError> {
        let file = open_if_regular(&folder.join(METADATA))?;
        let stamp = FileStamp::of(&file.metadata()?);
        let known = self.known.as_deref().and_then(|MetadataCache(known)| known.get(folder));
        if let Some((_, trace)) = known.filter(|(known, _)| *known == stamp) {
            return Ok(trace.clone());
        }
        let bytes = read_metadata(file)?;
        if bytes.is_empty() {
            return Err(FileError::Empty);
        }
        let trace = Trace::parse(&bytes).map_err(FileError::Metadata)?;
        if let Some(MetadataCache(known)) = &mut self.known {
            known.insert(folder.to_owned(), (stamp, trace.clone()));
        }
        Ok(trace)
    }

    /// Opens the data files at `paths`, with their current lengths.
    fn files(&self, paths: Vec<PathBuf>) -> Vec<(PathBuf, Result<TraceFile, FileError>)> {
        let mut open_files = self.open_files;
        let open = |path: PathBuf| {
            let opened = TraceFile::open(&path, open_files < self.open_max);
            open_files += usize::from(opened.is_ok());
            (path, opened)
        };
        paths.into_iter().map(open).collect()
    }

    fn open_trace(
        &mut self,
        folder: &Path,
        root: &Path,
    ) -> io::Result<Result<Input<TraceFile>, FileError>> {
        // The files are opened before the metadata is read: so the metadata of a growing trace
        // declares everything within the recorded lengths.
        let opened = list_data_files(folder).map(|paths| self.files(paths));
        let (trace, opened) = match self.metadata(folder).and_then(|trace| Ok((trace, opened?))) {
            Ok(read) => read,
            Err(error) => return Ok(Err(error)),
        };
        let mut files = Vec::new();
        for (path, opened) in opened {
            match opened {
                Ok(bytes) => {
                    self.open_files += 1;
                    let mut file = DataFile::new(path.display().to_string(), bytes);
                    file.index = self.index(&path)?;
                    files.push(file);
                }
                // Deleted since the listing, by a tracer that keeps only the newest files.
                Err(error) if error.is_absence() => {}
                Err(error) => self.report_damage(&path, &error)?,
            }
        }
        let relative = folder.strip_prefix(root).unwrap_or(folder).display().to_string();
        Ok(Ok(Input { trace, folder: relative, files }))
    }
}

/// Returns the path of the index of a stream's file, if the index exists.
fn index_path_of(file: &Path) -> Option<PathBuf> {
    let mut name = file.file_name()?.to_owned();
    name.push(".idx");
    let path = file.parent()?.join(INDEX_FOLDER).join(name);
    fs::metadata(&path).is_ok_and(|metadata| metadata.is_file()).then_some(path)
}

/// Returns the subfolders of a folder, by name; links to folders are excluded.
pub(crate) fn list_subfolders(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            folders.push(entry.path());
        }
    }
    folders.sort();
    Ok(folders)
}

/// Returns the bytes of the metadata at `path`.
pub(crate) fn read_metadata_file(path: &Path) -> io::Result<Vec<u8>> {
    open_if_regular(path).and_then(read_metadata).map_err(FileError::into_io)
}

fn read_metadata(file: File) -> Result<Vec<u8>, FileError> {
    let size = file.metadata()?.len();
    if size > METADATA_BYTES_MAX {
        return Err(FileError::TooLarge(size));
    }
    let mut bytes = Vec::new();
    // The file may be growing.
    file.take(METADATA_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the data files of a trace.
fn list_data_files(folder: &Path) -> Result<Vec<PathBuf>, FileError> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (name, path) = (entry.file_name(), entry.path());
        let is_ignored = name == METADATA || name.as_encoded_bytes().starts_with(b".");
        // Follows links: a file may be elsewhere.
        if is_ignored || !fs::metadata(&path).is_ok_and(|metadata| metadata.is_file()) {
            continue;
        }
        if files.len() == FILES_MAX {
            return Err(FileError::TooMany);
        }
        files.push(path);
    }
    Ok(files)
}

/// Opens a regular file; returns an error for other files without waiting for them.
pub(crate) fn open_regular_file(path: &Path) -> io::Result<File> {
    open_if_regular(path).map_err(FileError::into_io)
}

fn open_if_regular(path: &Path) -> Result<File, FileError> {
    if !fs::metadata(path)?.is_file() {
        return Err(FileError::NotRegular);
    }
    // The file may have been replaced since the check: O_NONBLOCK avoids waiting, and the next
    // check detects it.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(FileError::NotRegular);
    }
    Ok(file)
}

/// A data file, with its length at the time of opening.
pub struct TraceFile {
    path: PathBuf,
    /// Device and inode, which identify the file wherever it is moved.
    id: (u64, u64),
    /// Open file; `None` if it is opened again for each read.
    file: Option<File>,
    length: u64,
}

impl TraceFile {
    fn open(path: &Path, keep: bool) -> Result<Self, FileError> {
        let file = open_if_regular(path)?;
        let metadata = file.metadata()?;
        let (id, length) = ((metadata.dev(), metadata.ino()), metadata.len());
        Ok(Self { path: path.to_owned(), id, file: keep.then_some(file), length })
    }

    /// Returns device and inode.
    pub(crate) const fn id(&self) -> (u64, u64) {
        self.id
    }

    /// Limits the file to `length` bytes.
    pub(crate) fn limit(&mut self, length: u64) {
        self.length = self.length.min(length);
    }
}

impl ByteSource for TraceFile {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match &self.file {
            Some(file) => file.read_at(buffer, offset),
            None => open_regular_file(&self.path)?.read_at(buffer, offset),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use trackway_testkit::TemporaryFolder;

    use super::*;

    #[test]
    fn metadata_is_parsed_anew_if_its_file_is_another_or_was_written_to() {
        let root = TemporaryFolder::new();
        let (folder, path) = (root.path().to_owned(), root.join(METADATA));
        let mut known = MetadataCache::default();
        let mut version = || {
            let found = reopen_traces(slice::from_ref(&folder), &mut known, &mut io::sink());
            let found = found.expect("a trace");
            found
                .inputs
                .first()
                .and_then(|input| Some(input.trace.environment_text("v")?.to_owned()))
        };
        let text = |version: &str| {
            format!(
                "/* CTF 1.8 */ trace {{ major = 1; minor = 8; byte_order = le; }};
            env {{ v = \"{version}\"; }};"
            )
        };
        fs::write(&path, text("1")).expect("a file");
        let modified = fs::metadata(&path).and_then(|file| file.modified()).expect("a time");
        let set_modified = |path: &Path| {
            let file = File::options().write(true).open(path);
            file.and_then(|file| file.set_modified(modified)).expect("a file");
        };
        assert_eq!(version().as_deref(), Some("1"));
        // The stamp does not change: version 1 proves that the file is not read again.
        fs::write(&path, text("2")).expect("a file");
        set_modified(&path);
        assert_eq!(version().as_deref(), Some("1"));
        // Recorders replace metadata; other tracers append to it.
        let next = root.join(".next");
        fs::write(&next, text("3")).expect("a file");
        set_modified(&next);
        fs::rename(&next, &path).expect("a file");
        assert_eq!(version().as_deref(), Some("3"));
        fs::write(&path, text("3") + "env { v = \"4\"; };").expect("a file");
        set_modified(&path);
        assert_eq!(version().as_deref(), Some("4"));
        // Unreadable metadata must not be replaced by its earlier content.
        fs::write(&path, "nonsense").expect("a file");
        assert_eq!(version(), None);
    }

    #[test]
    fn a_file_that_was_deleted_while_it_was_looked_for_is_no_damage() {
        let root = TemporaryFolder::new();
        fs::write(root.join("0"), "a stream").expect("a file");
        let gone = TraceFile::open(&root.join("1"), true).err().expect("it is not there");
        assert!(gone.is_absence());
        let other = TraceFile::open(root.path(), true).err().expect("a folder");
        assert!(!other.is_absence());
    }
}
