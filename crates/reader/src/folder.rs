//! Traces found in folders, at any depth, and opened.
//!
//! A folder is a trace if it has a file `metadata`; all other regular files in it are streams,
//! but those whose names begin with a dot. Folders are not searched through symbolic links, which
//! may lead in circles; what is no regular file is never opened: a FIFO would wait for its
//! writer, a device may do anything.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _, Write};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use trackway_ctf::read::{Bytes, MetadataError, Trace};

use crate::index::{Index, IndexError};
use crate::input::{DataFile, Input};

/// Name of the file that makes a folder a trace.
pub(crate) const METADATA: &str = "metadata";
/// Name of the folder in a trace that has its streams' indexes.
const INDEXES: &str = "index";
/// Largest metadata that is read, in bytes.
const METADATA_BYTES_MAX: u64 = 256 << 20;
/// Deepest folder that is searched for traces, counted from the one given.
pub(crate) const DEPTH_MAX: usize = 64;
/// Most data files of one trace.
const FILES_MAX: usize = 1 << 20;
/// Most files that are kept open; beyond them, a file is opened anew for each read.
const OPEN_MAX: usize = 512;

/// How many files may be kept open: a quarter of what the system lets this process have
/// (getrlimit(2)): their indexes are as many, and files are opened for reads, and by whoever calls.
fn open_max() -> usize {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    soft.map_or(OPEN_MAX, |soft| (soft / 4).min(OPEN_MAX))
}

/// Why no trace can be read from a path.
///
/// What the system said is its source, not in its text.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// A path that was given cannot be read.
    Path(PathBuf, io::Error),
    /// No trace is in a path that was given.
    NoTrace(PathBuf),
    /// A folder that was followed was removed.
    Gone(PathBuf),
    /// A message, or what was asked for, could not be written.
    Message(io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path, _) => write!(formatter, "cannot open {path:?}"),
            Self::NoTrace(path) => write!(formatter, "no trace in {path:?}"),
            Self::Gone(path) => write!(formatter, "{path:?} was removed while it was followed"),
            Self::Message(_) => formatter.write_str("cannot write"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Path(_, error) | Self::Message(error) => Some(error),
            Self::NoTrace(_) | Self::Gone(_) => None,
        }
    }
}

/// Why a folder's trace, or one of its files, cannot be read.
#[derive(Debug)]
enum FileError {
    Io(io::Error),
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
    fn into_io(self) -> io::Error {
        match self {
            Self::Io(error) => error,
            error => io::Error::other(error.to_string()),
        }
    }
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The traces in some folders.
pub struct Found {
    /// Those that can be read.
    pub inputs: Vec<Input<TraceFile>>,
    /// The folder of each of them.
    pub folders: Vec<PathBuf>,
    /// Whether nothing was damaged.
    pub is_whole: bool,
}

/// Opens all traces in the folders `paths`, at any depth; what is damaged is told to `messages`.
///
/// # Errors
///
/// If one of `paths` cannot be read, or has no trace.
pub fn open(paths: &[PathBuf], messages: &mut dyn Write) -> Result<Found, OpenError> {
    let (inputs, folders) = (Vec::new(), Vec::new());
    let mut search =
        Search { inputs, folders, is_whole: true, open_files: 0, open_max: open_max(), messages };
    for path in paths {
        let cannot = |error| OpenError::Path(path.clone(), error);
        // As babeltrace2, whose warnings name streams by their absolute path.
        let root = fs::canonicalize(path).map_err(cannot)?;
        fs::read_dir(&root).map_err(cannot)?;
        if !search.folder(&root, &root, 0).map_err(OpenError::Message)? {
            return Err(OpenError::NoTrace(path.clone()));
        }
    }
    let Search { inputs, folders, is_whole, .. } = search;
    Ok(Found { inputs, folders, is_whole })
}

/// Which files there are of traces in the folders `paths`, at any depth, and how long they are:
/// what changes if a trace grows. Facts that its recorder keeps beside it, which change all the
/// time, are no part of it.
pub(crate) fn sizes(paths: &[PathBuf]) -> Vec<(u64, u64, u64)> {
    fn add(folder: &Path, depth: usize, sizes: &mut Vec<(u64, u64, u64)>) {
        let Ok(entries) = fs::read_dir(folder) else { return };
        let is_read = folder.ends_with(INDEXES) || folder.join(METADATA).is_file();
        for entry in entries.flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() && depth < DEPTH_MAX {
                add(&entry.path(), depth + 1, sizes);
            } else if metadata.is_file() && is_read {
                sizes.push((metadata.dev(), metadata.ino(), metadata.len()));
            }
        }
    }
    let mut sizes = Vec::new();
    paths.iter().for_each(|path| add(path, 0, &mut sizes));
    sizes.sort_unstable();
    sizes
}

struct Search<'m> {
    inputs: Vec<Input<TraceFile>>,
    folders: Vec<PathBuf>,
    is_whole: bool,
    open_files: usize,
    open_max: usize,
    messages: &'m mut dyn Write,
}

impl Search<'_> {
    /// Adds the traces at and below `folder`, in the order of their names. Whether there are any,
    /// readable or not.
    fn folder(&mut self, folder: &Path, root: &Path, depth: usize) -> io::Result<bool> {
        let mut found = false;
        if fs::metadata(folder.join(METADATA)).is_ok_and(|metadata| metadata.is_file()) {
            found = true;
            match self.trace(folder, root)? {
                Ok(input) => {
                    self.inputs.push(input);
                    self.folders.push(folder.to_owned());
                }
                Err(error) => self.damaged(&folder.join(METADATA), &error)?,
            }
        }
        if depth == DEPTH_MAX {
            return Ok(found);
        }
        let folders = match subfolders(folder) {
            Ok(folders) => folders,
            Err(error) => {
                self.damaged(folder, &error.into())?;
                return Ok(found);
            }
        };
        for folder in folders {
            found |= self.folder(&folder, root, depth + 1)?;
        }
        Ok(found)
    }

    fn damaged(&mut self, path: &Path, error: &FileError) -> io::Result<()> {
        self.is_whole = false;
        writeln!(self.messages, "trackway: {}: {error}", path.display())
    }

    /// The index of a stream's file, if it has one and it is whole.
    fn index(&mut self, file: &Path) -> io::Result<Option<Index<TraceFile>>> {
        let Some(path) = index_of(file) else { return Ok(None) };
        let opened = TraceFile::open(&path, false)
            .and_then(|bytes| Index::open(bytes).map_err(FileError::Index));
        match opened {
            Ok(index) => Ok(Some(index)),
            Err(error) => {
                self.damaged(&path, &error)?;
                Ok(None)
            }
        }
    }

    fn trace(
        &mut self,
        folder: &Path,
        root: &Path,
    ) -> io::Result<Result<Input<TraceFile>, FileError>> {
        let (trace, paths) = match metadata(folder).and_then(|trace| Ok((trace, files(folder)?))) {
            Ok(read) => read,
            Err(error) => return Ok(Err(error)),
        };
        let mut files = Vec::new();
        for path in paths {
            match TraceFile::open(&path, self.open_files < self.open_max) {
                Ok(bytes) => {
                    self.open_files += 1;
                    let mut file = DataFile::new(path.display().to_string(), bytes);
                    file.index = self.index(&path)?;
                    files.push(file);
                }
                Err(error) => self.damaged(&path, &error)?,
            }
        }
        let relative = folder.strip_prefix(root).unwrap_or(folder).display().to_string();
        Ok(Ok(Input { trace, folder: relative, files }))
    }
}

/// Where the index of a stream's file is, if it has one.
fn index_of(file: &Path) -> Option<PathBuf> {
    let mut name = file.file_name()?.to_owned();
    name.push(".idx");
    let path = file.parent()?.join(INDEXES).join(name);
    fs::metadata(&path).is_ok_and(|metadata| metadata.is_file()).then_some(path)
}

/// The folders in a folder, by name; links to folders are none.
pub(crate) fn subfolders(folder: &Path) -> io::Result<Vec<PathBuf>> {
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

fn metadata(folder: &Path) -> Result<Trace, FileError> {
    let bytes = read_metadata(&folder.join(METADATA))?;
    if bytes.is_empty() {
        return Err(FileError::Empty);
    }
    Trace::parse(&bytes).map_err(FileError::Metadata)
}

/// The bytes of the metadata at `path`.
pub(crate) fn metadata_bytes(path: &Path) -> io::Result<Vec<u8>> {
    read_metadata(path).map_err(FileError::into_io)
}

fn read_metadata(path: &Path) -> Result<Vec<u8>, FileError> {
    let file = regular(path)?;
    let size = file.metadata()?.len();
    if size > METADATA_BYTES_MAX {
        return Err(FileError::TooLarge(size));
    }
    let mut bytes = Vec::new();
    // It may be growing.
    file.take(METADATA_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The data files of a trace.
fn files(folder: &Path) -> Result<Vec<PathBuf>, FileError> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (name, path) = (entry.file_name(), entry.path());
        let is_ignored = name == METADATA || name.as_encoded_bytes().starts_with(b".");
        // Through links: a file may lie elsewhere.
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

/// Opens a regular file.
fn regular(path: &Path) -> Result<File, FileError> {
    if !fs::metadata(path)?.is_file() {
        return Err(FileError::NotRegular);
    }
    // It may have become something else since: then this does not wait, and is found out.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(FileError::NotRegular);
    }
    Ok(file)
}

/// A data file, as long as it was when it was opened.
pub struct TraceFile {
    path: PathBuf,
    /// Device and inode: the same file, wherever it is moved.
    id: (u64, u64),
    /// `None` if it is opened anew for each read.
    file: Option<File>,
    length: u64,
}

impl TraceFile {
    fn open(path: &Path, keep: bool) -> Result<Self, FileError> {
        let file = regular(path)?;
        let metadata = file.metadata()?;
        let (id, length) = ((metadata.dev(), metadata.ino()), metadata.len());
        Ok(Self { path: path.to_owned(), id, file: keep.then_some(file), length })
    }

    /// Its device and inode.
    pub(crate) const fn id(&self) -> (u64, u64) {
        self.id
    }

    /// Lets it end at byte `length`.
    pub(crate) fn limit(&mut self, length: u64) {
        self.length = self.length.min(length);
    }
}

impl Bytes for TraceFile {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match &self.file {
            Some(file) => file.read_at(buffer, offset),
            None => regular(&self.path).map_err(FileError::into_io)?.read_at(buffer, offset),
        }
    }
}
