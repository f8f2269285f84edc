//! Progress of long work: a line on standard error that replaces the previous one.

use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use trackway_console::{can_show_progress, clear_progress, show_progress, stderr};
use trackway_render::format_grouped;

/// Time after which the progress line is first shown.
const SHOW_DELAY: Duration = Duration::from_secs(2);
/// Shortest time between two updates of the line.
const UPDATE_INTERVAL: Duration = Duration::from_millis(500);

/// The beginning of the work, and the last update of the line. A process works on one command.
static PROGRESS_LINE: Mutex<ProgressLine> = Mutex::new(ProgressLine { begun: None, shown: None });

struct ProgressLine {
    begun: Option<Instant>,
    shown: Option<Instant>,
}

/// Returns the function that receives the number of processed events; `None` if no terminal shows
/// the line, or if the terminal shows the events themselves.
pub(crate) fn choose_reporter(is_output_terminal: bool) -> Option<fn(u64)> {
    (can_show_progress() && !is_output_terminal).then_some(show_event_count)
}

fn show_event_count(events: u64) {
    let mut line = PROGRESS_LINE.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Instant::now();
    let begun = *line.begun.get_or_insert(now);
    let is_due = line.shown.is_none_or(|shown| now - shown >= UPDATE_INTERVAL);
    if now - begun >= SHOW_DELAY && is_due {
        line.shown = Some(now);
        show_progress(format_args!("trackway: {} events", format_grouped(events)));
    }
}

/// Removes the progress line, if it is shown.
pub(crate) fn clear_line() {
    let mut line = PROGRESS_LINE.lock().unwrap_or_else(PoisonError::into_inner);
    if line.shown.take().is_some() {
        clear_progress();
    }
}

/// Standard error for messages, which replace the progress line.
pub(crate) struct Messages;

impl Write for Messages {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        clear_line();
        stderr().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
