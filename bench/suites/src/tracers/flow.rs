//! Recording at full speed to files: the time until all events were written, for all tracers alike.
//!
//! Main invariant: the time is from the threads' first event to the last write to a stream of the
//! trace, by the file system's timestamps. So it includes neither the tracer's start nor the
//! polling of its command.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::{Instant, UNIX_EPOCH};

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::workload;
use trackway_bench_engine::results::Account;
use trackway_bench_engine::tracer::Flow;

use super::format_number;
use crate::trace_check;

/// Returns the arguments of a workload program that emits from two threads for this time.
pub(super) fn workload_arguments(milliseconds: u32) -> [String; 4] {
    ["for".to_owned(), "number".to_owned(), format_number(2), format_number(milliseconds.into())]
}

/// Computes the flow from the timings, the workload's output and the trace, and removes the trace.
/// `account` gets the number of events of each thread.
pub(super) fn compute_flow(
    output: &str,
    trace: &Path,
    account: impl FnOnce(&[u64]) -> Result<Account>,
) -> Result<Flow> {
    let (began, lines) = output.split_once('\n').unwrap_or((output, ""));
    let [began_ns] = workload::parse_numbers(began, "began")?;
    let threads = workload::parse_emitted(lines)?;
    let longest_ns = threads.iter().map(|thread| thread.ns).max().unwrap_or_default();
    let seconds = longest_ns as f64 / 1e9;
    let failed = || Error::io(format!("cannot look at the streams of {trace:?}"));
    let streams = trace_check::list_stream_files(trace)?.into_iter().map(File::open);
    let streams: Vec<File> = streams.collect::<io::Result<_>>().map_err(failed())?;
    let last_ns = last_write_ns(&streams).map_err(failed())?;
    let begin = Instant::now();
    for stream in &streams {
        stream.sync_data().map_err(failed())?;
    }
    let fsync_seconds = begin.elapsed().as_secs_f64();
    let emitted: Vec<u64> = threads.iter().map(|thread| thread.events).collect();
    let account = account(&emitted)?;
    // Files that cannot be removed now are removed with the scratch folder.
    let _ = fs::remove_dir_all(trace);
    Ok(Flow {
        emitting_seconds: seconds,
        // File systems round times down, to some ms.
        written_seconds: seconds.max(last_ns.saturating_sub(began_ns) as f64 / 1e9),
        fsync_seconds,
        account,
    })
}

/// Returns the time of the last write to any of these files, in ns since 1970.
fn last_write_ns(files: &[File]) -> io::Result<u64> {
    let mut last = None;
    for file in files {
        last = last.max(Some(file.metadata()?.modified()?));
    }
    let last = last.ok_or_else(|| io::Error::other("there are none"))?;
    let since = last.duration_since(UNIX_EPOCH).map_err(io::Error::other)?;
    u64::try_from(since.as_nanos()).map_err(io::Error::other)
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
        // The metadata may be written later; its time does not count.
        for (name, seconds) in [("metadata", 9), ("stream_0", 1), ("stream_1", 3)] {
            let mut options = File::options();
            let file = options.create(true).write(true).truncate(true).open(inner.join(name));
            file.and_then(|file| file.set_modified(at(seconds))).expect("a file");
        }
        let output =
            format!("began {began_ns}\nemitted 0 7 2000000000 5\nemitted 1 8 1000000000 5\n");
        let account = |emitted: &[u64]| {
            Ok(Account { emitted: emitted.iter().sum(), recorded: 15, ..Account::default() })
        };
        let flow = compute_flow(&output, &trace, account).expect("a flow");
        assert_eq!((flow.emitting_seconds, flow.written_seconds), (2.0, 3.0));
        assert!(flow.account.is_complete() && !trace.exists());
        let missing = compute_flow(&output, &trace, account).unwrap_err().to_string();
        assert!(missing.contains("cannot look at the streams"), "{missing}");
        compute_flow("emitted 0 7 2000000000 5\n", &trace, account).expect_err("no beginning");
    }
}
