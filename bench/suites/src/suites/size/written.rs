//! The bytes of written traces, and the straight line through two traces.

use std::fs;
use std::path::Path;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::results::Account;
use trackway_bench_engine::suite::Sample;

/// Deepest folder of a trace.
const DEPTH_MAX: u32 = 8;
/// Key of the extra figure for the bytes of a trace that belong to no event.
pub(super) const CONSTANT_BYTES: &str = "bytes once";
/// Key of the extra figure for the bytes of the larger trace divided by its number of events.
const TOTAL_BYTES_PER_EVENT: &str = "bytes/event of 100,000, all in all";

/// A written trace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct WrittenTrace {
    /// Bytes of all files of the trace.
    pub(super) bytes: u64,
    /// The account of the events.
    pub(super) account: Account,
}

/// Returns the bytes of a file, or of all files in a folder and below it.
pub(super) fn bytes_on_disk(path: &Path, depth: u32) -> Result<u64> {
    let what = || format!("cannot look at {path:?}");
    let metadata = fs::symlink_metadata(path).map_err(Error::io(what()))?;
    if !metadata.is_dir() {
        return Ok(if metadata.is_file() { metadata.len() } else { 0 });
    }
    if depth == DEPTH_MAX {
        return Err(Error::output(path.display().to_string(), "it is too deep for a trace"));
    }
    let mut sum = 0;
    for entry in fs::read_dir(path).map_err(Error::io(what()))? {
        sum += bytes_on_disk(&entry.map_err(Error::io(what()))?.path(), depth + 1)?;
    }
    Ok(sum)
}

/// Computes the straight line through two traces: its slope is the figure.
pub(super) fn sample_of_traces(
    tracer: &str,
    few: &WrittenTrace,
    many: &WrittenTrace,
) -> Result<Sample> {
    let more = many.account.recorded.saturating_sub(few.account.recorded);
    if more == 0 || many.bytes <= few.bytes {
        let message = format!(
            "{} events take {} bytes, {} take {}",
            few.account.recorded, few.bytes, many.account.recorded, many.bytes
        );
        return Err(Error::output(tracer, message));
    }
    let slope = (many.bytes - few.bytes) as f64 / more as f64;
    let once = few.bytes as f64 - slope * few.account.recorded as f64;
    let mut account = few.account;
    account.add(&many.account);
    let all = many.bytes as f64 / many.account.recorded as f64;
    let extra = vec![(CONSTANT_BYTES, once), (TOTAL_BYTES_PER_EVENT, all)];
    Ok(Sample { figure: slope, account: Some(account), extra, ..Sample::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_written_trace(bytes: u64, recorded: u64) -> WrittenTrace {
        WrittenTrace {
            bytes,
            account: Account { emitted: recorded, recorded, ..Account::default() },
        }
    }

    #[test]
    fn what_is_there_once_is_told_from_what_each_event_takes() {
        let found =
            sample_of_traces("it", &make_written_trace(1800, 100), &make_written_trace(4200, 400))
                .expect("a line");
        assert_eq!(found.figure, 8.0);
        assert_eq!(found.extra, [(CONSTANT_BYTES, 1000.0), (TOTAL_BYTES_PER_EVENT, 10.5)]);
        assert_eq!(found.account.map(|account| account.recorded), Some(500));
        for (few, many) in [((10, 1), (10, 2)), ((10, 2), (20, 2)), ((0, 0), (0, 0))] {
            assert!(
                sample_of_traces(
                    "it",
                    &make_written_trace(few.0, few.1),
                    &make_written_trace(many.0, many.1)
                )
                .is_err()
            );
        }
    }

    #[test]
    fn all_files_of_a_trace_count() {
        let dir = std::env::temp_dir().join(format!("trackway-size-{}", std::process::id()));
        fs::create_dir_all(dir.join("trace/index")).expect("folders");
        for (file, bytes) in [("trace/stream", 100), ("trace/index/stream", 10), ("metadata", 1)] {
            fs::write(dir.join(file), vec![0; bytes]).expect("a file");
        }
        std::os::unix::fs::symlink("/etc/passwd", dir.join("link")).expect("a link");
        assert_eq!(bytes_on_disk(&dir, 0).expect("bytes"), 111);
        assert_eq!(bytes_on_disk(&dir.join("trace/stream"), 0).expect("bytes"), 100);
        assert!(
            bytes_on_disk(&dir.join("none"), 0).is_err() && bytes_on_disk(&dir, DEPTH_MAX).is_err()
        );
        fs::remove_dir_all(dir).expect("removed");
    }
}
