//! Export of traces to new traces: cut to a range ([`trim_traces()`]), or merged
//! ([`merge_traces()`]).
//!
//! Packets are copied byte for byte where possible. Packets that must be cut are rewritten by
//! [`trackway_ctf::write::PacketRewriter`], which keeps all bits that need not change. Memory holds
//! only a window of a file and one packet's header, whatever the size.
//!
//! The output folder is new or empty; if the export fails or is stopped, no output remains.

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
    /// Output folder: new, or empty.
    pub folder: PathBuf,
    /// Flag that stops the export; then no output remains.
    pub stop: &'a AtomicBool,
    /// Called now and then with the number of bytes read, and their total.
    pub progress: &'a (dyn Fn(u64, u64) + Sync),
}

/// The progress of an export.
struct ExportProgress<'a> {
    export: &'a ExportSettings<'a>,
    /// Number of bytes to read, and of bytes already read.
    total: u64,
    done: AtomicU64,
}

impl<'a> ExportProgress<'a> {
    const fn new(export: &'a ExportSettings<'a>, total: u64) -> Self {
        Self { export, total, done: AtomicU64::new(0) }
    }

    /// Returns an error if the export must stop.
    fn check_stop(&self) -> Result<(), ExportError> {
        // The flag publishes no other data.
        if self.export.stop.load(Ordering::Relaxed) { Err(ExportError::Stopped) } else { Ok(()) }
    }

    /// Adds to the number of bytes read, and reports it.
    fn read(&self, bytes: u64) {
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        (self.export.progress)(done, self.total);
    }
}

/// The result of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExportSummary {
    /// Number of traces.
    pub traces: u64,
    /// Number of stream files.
    pub streams: u64,
    /// Number of packets, including rewritten ones.
    pub packets: u64,
    /// Number of rewritten packets.
    pub rewritten: u64,
    /// Size of the packets in bytes.
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

/// Reason why no trace was written. A system error is the source, and not in the text.
#[derive(Debug)]
#[non_exhaustive]
pub enum ExportError {
    /// The output folder exists and is not empty.
    NotEmpty(PathBuf),
    /// A file that must be copied could not be read.
    Read(PathBuf, IoError),
    /// A file or folder could not be written.
    Write(PathBuf, IoError),
    /// A message could not be written.
    Message(IoError),
    /// No packet to write: none was readable, or no event was selected.
    Nothing,
    /// The export was stopped.
    Stopped,
}

impl ExportError {
    /// Returns a function that wraps an error of reading the file `path`.
    fn read_error_at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Read(path.to_owned(), error.into())
    }

    /// Returns a function that wraps an error of writing the file or folder `path`.
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
