//! Recording at full speed to files: how long it took until all was there, for all tracers alike.
//!
//! Main invariant: the clock runs from the threads' first event to the last write to any of the
//! trace's files, which the file system knows; so neither what a tracer takes to start nor how
//! often its command looks whether all is done is in it.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::text;
use crate::error::{Error, Result};
use crate::results::Account;
use crate::tracer::Flow;
use crate::workload;

/// Most files and folders of a trace that are looked at.
const FILES_MAX: usize = 10_000;

/// Arguments of a workload program that emits from two threads for so long.
pub(super) fn arguments(milliseconds: u32) -> [String; 4] {
    ["for".to_owned(), "number".to_owned(), text(2), text(milliseconds.into())]
}

/// What became of it, of what the workload printed, and of the trace, which is removed then; its
/// account is told the events that each thread emitted.
pub(super) fn of(
    output: &str,
    trace: &Path,
    account: impl FnOnce(&[u64]) -> Result<Account>,
) -> Result<Flow> {
    let (began, lines) = output.split_once('\n').unwrap_or((output, ""));
    let [began_ns] = workload::numbers(began, "began")?;
    let threads = workload::emitted(lines)?;
    let longest_ns = threads.iter().map(|thread| thread.ns).max().unwrap_or_default();
    let seconds = longest_ns as f64 / 1e9;
    let failed = || Error::io(format!("cannot look at the files of {trace:?}"));
    let files = files(trace).map_err(failed())?;
    let last_ns = last_write_ns(&files).map_err(failed())?;
    let begin = Instant::now();
    for (file, _) in &files {
        file.sync_data().map_err(failed())?;
    }
    let fsync_seconds = begin.elapsed().as_secs_f64();
    let emitted: Vec<u64> = threads.iter().map(|thread| thread.events).collect();
    let account = account(&emitted)?;
    // What cannot be removed goes with the scratch folder.
    let _ = fs::remove_dir_all(trace);
    Ok(Flow {
        emitting_seconds: seconds,
        // File systems round times down, to some ms.
        written_seconds: seconds.max(last_ns.saturating_sub(began_ns) as f64 / 1e9),
        fsync_seconds,
        account,
    })
}

/// All files in a folder and below it, and when each was written to last.
fn files(folder: &Path) -> std::io::Result<Vec<(File, SystemTime)>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            seen += 1;
            let kind = entry.file_type()?;
            if seen > FILES_MAX {
                return Err(std::io::Error::other("there are too many files"));
            } else if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                found.push((File::open(entry.path())?, entry.metadata()?.modified()?));
            }
        }
    }
    Ok(found)
}

/// When the last of them was written to, in ns since 1970.
fn last_write_ns(files: &[(File, SystemTime)]) -> std::io::Result<u64> {
    let last = files.iter().map(|file| file.1).max();
    let last = last.ok_or_else(|| std::io::Error::other("there are none"))?;
    let since = last.duration_since(UNIX_EPOCH).map_err(std::io::Error::other)?;
    u64::try_from(since.as_nanos()).map_err(std::io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lasts_until_the_last_write_wherever_that_was() {
        let trace = std::env::temp_dir().join(format!("trackway-flow-{}", std::process::id()));
        let inner = trace.join("ust").join("uid");
        fs::create_dir_all(&inner).expect("a folder");
        let began_ns = trackway_sys::clock::realtime_ns() / 1_000_000_000 * 1_000_000_000;
        let at = |seconds: u64| {
            UNIX_EPOCH + std::time::Duration::from_nanos(began_ns + seconds * 1_000_000_000)
        };
        for (path, seconds) in [(trace.join("metadata"), 1), (inner.join("stream"), 3)] {
            fs::write(&path, b"1234").expect("a file");
            File::options()
                .append(true)
                .open(&path)
                .and_then(|file| file.set_modified(at(seconds)))
                .expect("its time");
        }
        let output =
            format!("began {began_ns}\nemitted 0 7 2000000000 5\nemitted 1 8 1000000000 5\n");
        let account = |emitted: &[u64]| {
            Ok(Account { emitted: emitted.iter().sum(), recorded: 15, ..Account::default() })
        };
        let flow = of(&output, &trace, account).expect("a flow");
        assert_eq!((flow.emitting_seconds, flow.written_seconds), (2.0, 3.0));
        assert!(flow.account.is_complete() && !trace.exists());
        let missing = of(&output, &trace, account).unwrap_err().to_string();
        assert!(missing.contains("cannot look at the files"), "{missing}");
        of("emitted 0 7 2000000000 5\n", &trace, account).expect_err("no beginning");
    }
}
