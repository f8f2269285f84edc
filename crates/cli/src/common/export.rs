//! Traces written from traces, by `trackway trim` and `trackway merge`.
//!
//! Ctrl-C and its like end it in order: what was begun is removed, and the command ends by that
//! signal, as if it had not caught it.

use std::io::{self, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use trackway_console::{clear_progress, has_progress, message, show_progress, stderr};
use trackway_reader::{Export, ExportError, Exported, Found, Input, TraceFile};
use trackway_render::grouped;
use trackway_sys::signal::{self, SignalReader, SignalSet};
use trackway_sys::wait::readable;

use super::counted::counted;
use super::jobs::threads;
use crate::NEGATIVE;

/// So long a wait that it is for ever: a day.
const FOREVER_NS: u64 = 86_400_000_000_000;
/// Shortest time between two updates of the progress.
const INTERVAL: Duration = Duration::from_millis(100);

/// A trace, and the folder that it was found in.
pub(crate) type InFolder = (Input<TraceFile>, PathBuf);

/// Writes to `folder` what `write` makes of the traces in `found`.
///
/// # Errors
///
/// If no trace was found, or nothing can be written.
pub(crate) fn export(
    found: Found,
    folder: &Path,
    jobs: Option<NonZero<usize>>,
    write: impl FnOnce(
        Vec<InFolder>,
        &Export<'_>,
        NonZero<usize>,
        &mut dyn Write,
    ) -> Result<Exported, ExportError>,
) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(!found.inputs.is_empty(), "there is no trace that can be read");
    let inputs: Vec<InFolder> = found.inputs.into_iter().zip(found.folders).collect();
    let jobs = threads(jobs);
    let stop = Arc::new(Stop::default());
    Stop::catch(&stop)?;
    let progress = Progress::new();
    let export = Export {
        folder: folder.to_owned(),
        stop: &stop.is_asked,
        progress: &|done, total| progress.show(done, total),
    };
    let result = write(inputs, &export, jobs, &mut Messages(&progress));
    progress.end();
    let done = match result {
        Err(ExportError::Stopped) => signal::die_of(stop.signal.load(Ordering::Relaxed)),
        result => result?,
    };
    message!("trackway: {}", summary(&done, &folder.display().to_string()));
    let is_whole = done.is_whole && found.is_whole;
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::from(NEGATIVE) })
}

/// Returns the amounts that were written, in words.
fn summary(done: &Exported, folder: &str) -> String {
    let rewritten = match done.rewritten {
        0 => String::new(),
        count => format!(" ({} rewritten)", grouped(count)),
    };
    format!(
        "{}, {}, {}{rewritten}, {:.1} MiB in {folder}",
        counted(done.traces, "trace"),
        counted(done.streams, "stream"),
        counted(done.packets, "packet"),
        done.bytes as f64 / f64::from(1 << 20),
    )
}

/// A signal's wish that all this should end.
#[derive(Default)]
struct Stop {
    is_asked: AtomicBool,
    signal: AtomicI32,
}

impl Stop {
    /// From now on, signals that end programs only ask for it; to be called before there are
    /// other threads, which inherit that. The thread that waits for them ends with the program.
    fn catch(stop: &Arc<Self>) -> anyhow::Result<()> {
        let signals = SignalSet::of(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP]);
        signals.block();
        let reader = SignalReader::new(&signals).context("cannot wait for signals")?;
        let stop = Arc::clone(stop);
        let wait = move || {
            loop {
                // Whatever it says, what there is is read.
                let _ = readable([Some(reader.fd()), None], FOREVER_NS);
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

/// A line on standard error with the progress, where it is a terminal.
struct Progress {
    shown: Option<Mutex<Instant>>,
}

impl Progress {
    fn new() -> Self {
        Self { shown: has_progress().then(|| Mutex::new(Instant::now())) }
    }

    fn show(&self, done: u64, total: u64) {
        // Who finds another thread at it has nothing newer to say.
        let Some(Ok(mut shown)) = self.shown.as_ref().map(Mutex::try_lock) else { return };
        if shown.elapsed() >= INTERVAL {
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

/// Standard error for messages, which take the line's place.
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
        let done = Exported {
            traces: 1,
            streams: 2,
            packets: 1234,
            bytes: 3 << 19,
            is_whole: true,
            ..Exported::default()
        };
        assert_eq!(summary(&done, "o"), "1 trace, 2 streams, 1,234 packets, 1.5 MiB in o");
        let done = Exported { rewritten: 7, ..done };
        assert!(summary(&done, "o").contains("1,234 packets (7 rewritten), "));
    }
}
