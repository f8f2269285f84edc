//! The written extent of a trace while a reader follows: the file `trackway/live` beside the
//! calibrations.
//!
//! ```text
//!  0  sequence    u64   raised by one each time
//!  8  flushed_ns  u64   every event up to this time is in the files, CLOCK_MONOTONIC ns
//! 16  check       u64   complement of the exclusive or of both
//! ```
//!
//! All words are little endian and rewritten in place. A reader that finds the file half written
//! detects that by the checksum. The recorder removes the file when no reader follows any more.
//! `reader::follow` reads it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use crate::trace::folder::TraceFolder;

const FILE_NAME: &str = "live";

/// The progress file, which exists while a reader follows.
#[derive(Debug)]
pub(crate) struct ProgressFile {
    file: File,
    facts: TraceFolder,
    sequence: u64,
}

impl ProgressFile {
    /// Makes the progress file in the facts folder.
    pub(crate) fn open(facts: &Path) -> io::Result<Self> {
        // The open folder lets the file be removed even after the trace has moved.
        let facts = TraceFolder::open(facts)?;
        let file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(facts.current_path()?.join(FILE_NAME))?;
        Ok(Self { file, facts, sequence: 0 })
    }

    /// Records that all events up to `flushed_ns` are in the trace files.
    pub(crate) fn note(&mut self, flushed_ns: u64) -> io::Result<()> {
        self.sequence += 1;
        let check = !(self.sequence ^ flushed_ns);
        let mut bytes = [0; 24];
        for (place, word) in bytes.chunks_exact_mut(8).zip([self.sequence, flushed_ns, check]) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        self.file.write_all_at(&bytes, 0)
    }
}

/// Removes the progress file of a recorder that was killed while a reader followed, since nothing
/// updates the file any more.
pub(crate) fn remove_stale_file(facts: &Path) {
    let _ = fs::remove_file(facts.join(FILE_NAME));
}

impl Drop for ProgressFile {
    fn drop(&mut self) {
        // Readers recognize a remaining file as old, because it does not change.
        let _ = self.facts.current_path().and_then(|facts| fs::remove_file(facts.join(FILE_NAME)));
    }
}
