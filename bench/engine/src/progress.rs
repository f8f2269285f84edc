//! A line on standard error, shown on a terminal only: the current step and the time left.

use std::cell::Cell;
use std::time::Instant;

use trackway_console::{can_show_progress, show_progress};

/// Characters of a terminal's line, if the terminal does not report them.
const DEFAULT_COLUMNS: usize = 80;

/// The progress line.
#[derive(Debug)]
pub struct Progress {
    is_shown: bool,
    /// The estimate of the remaining seconds, and the time at which it was made.
    left: Cell<Option<(Instant, f64)>>,
}

impl Progress {
    /// Makes a line that is shown if standard error is a terminal.
    pub fn new() -> Self {
        Self { is_shown: can_show_progress(), left: Cell::new(None) }
    }

    /// Sets the estimated time of the remaining work.
    pub fn expect(&self, seconds: f64) {
        self.left.set(Some((Instant::now(), seconds)));
    }

    /// Shows the current step.
    pub fn show_step(&self, what: &str) {
        if !self.is_shown {
            return;
        }
        let left = self.left.get().map_or_else(String::new, |(since, seconds)| {
            format_time_left(seconds - since.elapsed().as_secs_f64())
        });
        let line = fit_to_width(what, &left, terminal_columns());
        show_progress(format_args!("{line}"));
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.left.set(None);
        self.show_step("");
    }
}

/// Returns the remaining time in words.
fn format_time_left(seconds: f64) -> String {
    match seconds {
        90.0.. => format!("about {:.0} min left", seconds / 60.0),
        10.0.. => format!("about {seconds:.0} s left"),
        _ => "soon done".to_owned(),
    }
}

/// Returns the step and the remaining time in one line, shortened to the terminal's width: a longer
/// line could not be overwritten as a whole.
fn fit_to_width(what: &str, left: &str, columns: usize) -> String {
    if left.is_empty() {
        return what.chars().take(columns.saturating_sub(1)).collect();
    }
    let room = columns.saturating_sub(left.chars().count() + 5);
    let what: String = what.chars().take(room).collect();
    format!("{what}  ({left})").chars().take(columns.saturating_sub(1)).collect()
}

/// Returns the width of the terminal's line in characters.
fn terminal_columns() -> usize {
    // SAFETY: all-zero bytes are a valid size.
    let mut size = unsafe { std::mem::zeroed::<libc::winsize>() };
    // SAFETY: `size` is the structure that this request writes.
    let result = unsafe { libc::ioctl(libc::STDERR_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    match usize::from(size.ws_col) {
        columns if result == 0 && columns > 0 => columns,
        _ => DEFAULT_COLUMNS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_on_the_line_however_short_that_is() {
        assert_eq!(format_time_left(1234.0), "about 21 min left");
        assert_eq!(
            (format_time_left(42.3), format_time_left(-7.0)),
            ("about 42 s left".into(), "soon done".into())
        );
        let line = fit_to_width("a very long line about what is done", "soon done", 24);
        assert_eq!(line, "a very lon  (soon done)");
        assert_eq!(fit_to_width("what", "soon done", 80), "what  (soon done)");
        assert_eq!(
            (fit_to_width("what", "", 3), fit_to_width("", "", 0)),
            ("wh".into(), String::new())
        );
    }
}
