//! The mark of a complete trace: `trackway/complete` beside the calibrations, one line with the
//! results of the recording.
//!
//! ```text
//! ended=20261121T093000Z by=record events=1234 lost=5 overwritten=0 damaged=0
//! ended=20261121T093000Z by=recover events=17 lost=5 overwritten=0 damaged=0
//! ended=20261121T093000Z by=recover memory=gone
//! ```
//!
//! The recorder writes the mark last. A trace without mark whose recorder is dead lacks the events
//! that were in memory, and readers report that. `events` of `recover` counts the events that were
//! found in memory; `damaged` counts sub-buffers. The mark does not prove that the streams are on
//! the disk: like any program's data, the latest writes may be lost if the machine loses its power.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use trackway_sys::clock::realtime_ns;

use crate::common::date::format_utc;
use crate::summary::Summary;
use crate::trace::progress_file;

/// File name of the mark; `reader::recording` reads the file.
const MARK_FILE: &str = "complete";

/// The process that completed a trace, with its results.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CompletedBy<'a> {
    /// The trace's recorder, when the session ended.
    Record(&'a Summary),
    /// A process that recovered the trace from memory, after its recorder was killed.
    Recover(&'a Summary),
    /// A process that recovered the trace after the memory was lost: the trace keeps what was
    /// written before.
    Assumption,
}

/// Writes the mark of a trace into its facts folder `folder`.
///
/// # Errors
///
/// If the mark cannot be written; an earlier mark then stays.
pub(crate) fn mark_complete(folder: &Path, by: CompletedBy<'_>) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let next = folder.join(".complete.next");
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&next)?;
    let written = file
        .write_all(format_mark(realtime_ns() / 1_000_000_000, by).as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&next, folder.join(MARK_FILE)));
    if let Err(error) = written {
        // A partial file would occupy scarce disk space.
        let _ = fs::remove_file(&next);
        return Err(error);
    }
    if matches!(by, CompletedBy::Recover(_) | CompletedBy::Assumption) {
        progress_file::remove_stale_file(folder);
    }
    // Not all file systems can sync a folder; the mark is written anyway.
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
    Ok(())
}

/// Removes any mark of an earlier trace from the facts folder `folder`.
///
/// # Errors
///
/// If a mark exists and cannot be removed.
pub(crate) fn remove_mark(folder: &Path) -> io::Result<()> {
    match fs::remove_file(folder.join(MARK_FILE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Returns true if the facts folder `folder` has a mark.
pub(crate) fn is_marked(folder: &Path) -> bool {
    folder.join(MARK_FILE).exists()
}

fn format_mark(ended_s: u64, by: CompletedBy<'_>) -> String {
    let counts = |summary: &Summary| {
        let Summary { recorded, lost, overwritten, damaged, .. } = summary;
        format!("events={recorded} lost={lost} overwritten={overwritten} damaged={damaged}")
    };
    let facts = match by {
        CompletedBy::Record(summary) => format!("by=record {}", counts(summary)),
        CompletedBy::Recover(summary) => format!("by=recover {}", counts(summary)),
        CompletedBy::Assumption => "by=recover memory=gone".to_owned(),
    };
    format!("ended={}Z {facts}\n", format_utc(ended_s))
}

#[cfg(test)]
mod tests {
    use trackway_testkit::TemporaryFolder;

    use super::*;

    #[test]
    fn the_mark_is_one_line_and_replaces_the_one_before() {
        let summary =
            Summary { recorded: 12, lost: 3, overwritten: 4, damaged: 1, ..Summary::default() };
        let text = format_mark(1_795_230_981, CompletedBy::Record(&summary));
        let facts = "by=record events=12 lost=3 overwritten=4 damaged=1\n";
        assert_eq!(text, format!("ended=20261121T031621Z {facts}"));
        let folder = TemporaryFolder::new();
        let facts = folder.join("facts");
        assert!(!is_marked(&facts));
        for (by, word) in [
            (CompletedBy::Assumption, "memory=gone"),
            (CompletedBy::Recover(&summary), "by=recover e"),
        ] {
            mark_complete(&facts, by).expect("a folder");
            let text = fs::read_to_string(facts.join(MARK_FILE)).expect("a mark");
            assert!(text.contains(word) && text.lines().count() == 1, "{text}");
            assert!(is_marked(&facts));
        }
        for _ in 0..2 {
            remove_mark(&facts).expect("a folder");
            assert!(!is_marked(&facts));
        }
        mark_complete(&facts, CompletedBy::Assumption).expect("a folder");
        let files = fs::read_dir(&facts).expect("a folder").count();
        assert_eq!(files, 1, "nothing else is left there");
    }
}
