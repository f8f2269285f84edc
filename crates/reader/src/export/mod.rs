//! Traces written from traces: cut to a range ([`trim_traces()`]), put together
//! ([`merge_traces()`]).
//!
//! Packets go over as they are, byte for byte, wherever they can; what has to be cut is rewritten
//! by [`trackway_ctf::write::PacketRewriter`], which keeps every bit that it does not have to
//! change. Nothing is held but a window of a file and one packet's header, whatever the size.
//!
//! A folder that is written to is new or empty, and if the writing fails or is stopped, nothing
//! is left in it.

mod join;
mod output;
mod packets;
mod places;
mod streams;
mod trim;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use trackway_console::IoError;

pub use join::merge_traces;
pub use trim::trim_traces;

/// The settings of an export.
pub struct ExportSettings<'a> {
    /// The folder: new, or empty.
    pub folder: PathBuf,
    /// When this becomes true, the writing stops, and nothing is left.
    pub stop: &'a AtomicBool,
    /// Told now and then how many bytes of how many were read.
    pub progress: &'a (dyn Fn(u64, u64) + Sync),
}

/// The progress of the writing.
struct ExportProgress<'a> {
    export: &'a ExportSettings<'a>,
    /// Bytes to be read, and those that were.
    total: u64,
    done: AtomicU64,
}

impl<'a> ExportProgress<'a> {
    const fn new(export: &'a ExportSettings<'a>, total: u64) -> Self {
        Self { export, total, done: AtomicU64::new(0) }
    }

    /// Fails if the writing is to stop.
    fn check_stop(&self) -> Result<(), ExportError> {
        // A flag alone: nothing else is published with it.
        if self.export.stop.load(Ordering::Relaxed) { Err(ExportError::Stopped) } else { Ok(()) }
    }

    /// So many more bytes were read.
    fn read(&self, bytes: u64) {
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        (self.export.progress)(done, self.total);
    }
}

/// The result of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExportSummary {
    /// Traces.
    pub traces: u64,
    /// Files of packets.
    pub streams: u64,
    /// Packets, also rewritten ones.
    pub packets: u64,
    /// Packets that were rewritten.
    pub rewritten: u64,
    /// Bytes of packets.
    pub bytes: u64,
    /// True if nothing was damaged.
    pub is_whole: bool,
}

impl ExportSummary {
    fn add(&mut self, other: &Self) {
        self.streams += other.streams;
        self.packets += other.packets;
        self.rewritten += other.rewritten;
        self.bytes += other.bytes;
        self.is_whole &= other.is_whole;
    }
}

/// Why no trace was written. What the system said is its source, not in its text.
#[derive(Debug)]
#[non_exhaustive]
pub enum ExportError {
    /// The folder is there, and not empty.
    NotEmpty(PathBuf),
    /// Something that is to be copied could not be read.
    Read(PathBuf, IoError),
    /// Something could not be written.
    Write(PathBuf, IoError),
    /// A message could not be written.
    Message(IoError),
    /// No packet was to be written: none was readable, or no event was selected.
    Nothing,
    /// It was stopped.
    Stopped,
}

impl ExportError {
    /// A map for errors with the file `path`, which is read.
    fn read_error_at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Read(path.to_owned(), error.into())
    }

    /// A map for errors with the file or folder `path`.
    fn write_error_at(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self::Write(output::resolve_descriptor_path(path), error.into())
    }
}

impl fmt::Display for ExportError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotEmpty(path) => write!(formatter, "{} is not empty", path.display()),
            Self::Read(path, _) => write!(formatter, "cannot read {}", path.display()),
            Self::Write(path, _) => write!(formatter, "cannot write {}", path.display()),
            Self::Message(_) => formatter.write_str("cannot write messages"),
            Self::Nothing => formatter.write_str("nothing is left to be written"),
            Self::Stopped => formatter.write_str("stopped"),
        }
    }
}

impl std::error::Error for ExportError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read(_, error) | Self::Write(_, error) | Self::Message(error) => Some(error),
            Self::NotEmpty(_) | Self::Nothing | Self::Stopped => None,
        }
    }
}
