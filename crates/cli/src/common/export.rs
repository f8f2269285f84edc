//! Writes traces from traces, for `trackway trim` and `trackway merge`.
//!
//! Signals such as Ctrl-C's end the work in order: the command removes its incomplete output, and
//! ends by that signal, as if it had not caught it.

use std::io::{self, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use trackway_console::{can_show_progress, clear_progress, message, show_progress, stderr};
use trackway_reader::{ExportError, ExportSettings, ExportSummary, FoundTraces, Input, TraceFile};
use trackway_render::format_grouped;
use trackway_sys::signal::{self, SignalReader, SignalSet};
use trackway_sys::wait::wait_readable;

use super::counted::format_count;
use super::jobs::limit_thread_count;
use crate::EXIT_NEGATIVE;

/// A practically infinite wait: one day, in ns.
const FOREVER_NS: u64 = 86_400_000_000_000;
/// Shortest time between two updates of the progress line.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// A trace, and the folder that contains it.
pub(crate) type InputInFolder = (Input<TraceFile>, PathBuf);

/// Writes the result of `write`, for the traces in `found`, to `folder`.
///
/// # Errors
///
/// If there is no trace, or the result cannot be written.
pub(crate) fn export_traces(
    found: FoundTraces,
    folder: &Path,
    jobs: Option<NonZero<usize>>,
    write: impl FnOnce(
        Vec<InputInFolder>,
        &ExportSettings<'_>,
        NonZero<usize>,
        &mut dyn Write,
    ) -> Result<ExportSummary, ExportError>,
) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(!found.inputs.is_empty(), "there is no trace that can be read");
    let inputs: Vec<InputInFolder> = found.inputs.into_iter().zip(found.folders).collect();
    let jobs = limit_thread_count(jobs);
    let stop = Arc::new(StopRequest::default());
    StopRequest::catch_signals(&stop)?;
    let progress = Progress::new();
    let export = ExportSettings {
        folder: folder.to_owned(),
        stop: &stop.is_asked,
        progress: &|done, total| progress.show(done, total),
    };
    let result = write(inputs, &export, jobs, &mut Messages(&progress));
    progress.end();
    let done = match result {
        Err(ExportError::Stopped) => signal::end_by_signal(stop.signal.load(Ordering::Relaxed)),
        result => result?,
    };
    message!("trackway: {}", format_summary(&done, &folder.display().to_string()));
    let is_whole = done.is_whole && found.is_whole;
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::from(EXIT_NEGATIVE) })
}

/// Formats the amounts of written data.
fn format_summary(done: &ExportSummary, folder: &str) -> String {
    let rewritten = match done.rewritten {
        0 => String::new(),
        count => format!(" ({} rewritten)", format_grouped(count)),
    };
    format!(
        "{}, {}, {}{rewritten}, {:.1} MiB in {folder}",
        format_count(done.traces, "trace"),
        format_count(done.streams, "stream"),
        format_count(done.packets, "packet"),
        done.bytes as f64 / f64::from(1 << 20),
    )
}

/// A request by a signal to stop the work.
#[derive(Default)]
struct StopRequest {
    is_asked: AtomicBool,
    signal: AtomicI32,
}

impl StopRequest {
    /// Makes signals that end programs only set this request. The caller must have no other threads
    /// yet, because threads inherit the signal mask. The thread that waits for signals ends with
    /// the program.
    fn catch_signals(stop: &Arc<Self>) -> anyhow::Result<()> {
        let signals = SignalSet::of(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP]);
        signals.block();
        let reader = SignalReader::new(&signals).context("cannot wait for signals")?;
        let stop = Arc::clone(stop);
        let wait = move || {
            loop {
                // Ignores an error of the wait, and reads available signals in any case.
                let _ = wait_readable([Some(reader.fd()), None], FOREVER_NS);
                if let Some((signal, _)) = reader.next() {
                    stop.signal.store(signal, Ordering::SeqCst);
                    stop.is_asked.store(true, Ordering::SeqCst);
                    return;
                }
            }
        };
        Builder::new().spawn(wait).context("cannot wait for signals")?;
        Ok(())
    }
}

/// A line on standard error with the progress, if standard error is a terminal.
struct Progress {
    shown: Option<Mutex<Instant>>,
}

impl Progress {
    fn new() -> Self {
        Self { shown: can_show_progress().then(|| Mutex::new(Instant::now())) }
    }

    fn show(&self, done: u64, total: u64) {
        // If another thread is updating the line, this thread has no newer number.
        let Some(Ok(mut shown)) = self.shown.as_ref().map(Mutex::try_lock) else { return };
        if shown.elapsed() >= PROGRESS_INTERVAL {
            *shown = Instant::now();
            let percent = 100.0 * done as f64 / total.max(1) as f64;
            show_progress(format_args!("{percent:.0} % of {} MiB", total >> 20));
        }
    }

    fn end(&self) {
        if self.shown.is_some() {
            clear_progress();
        }
    }
}

/// Standard error for messages, which replace the progress line.
struct Messages<'a>(&'a Progress);

impl Write for Messages<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.end();
        stderr().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_read_as_intended() {
        let done = ExportSummary {
            traces: 1,
            streams: 2,
            packets: 1234,
            bytes: 3 << 19,
            is_whole: true,
            ..ExportSummary::default()
        };
        assert_eq!(format_summary(&done, "o"), "1 trace, 2 streams, 1,234 packets, 1.5 MiB in o");
        let done = ExportSummary { rewritten: 7, ..done };
        assert!(format_summary(&done, "o").contains("1,234 packets (7 rewritten), "));
    }
}
