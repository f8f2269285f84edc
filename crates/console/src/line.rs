//! Lines on standard error: messages, and the progress line of long work.
//!
//! If standard error is closed, the lines are dropped, and the work goes on.

use std::fmt::Arguments;
use std::io::{self, IsTerminal as _, Write as _};

use crate::escape::escape_unprintable;
use crate::mark::Style;
use crate::stream;
use crate::target::{Target, is_dumb_terminal};

/// Control sequence that returns to the line's beginning and erases the line (ECMA-48).
const ERASE_LINE: &str = "\r\x1b[K";

/// Prefix of a hint.
const HINT: &str = "hint:";

/// Writes one line to standard error, with one write(2). The prefix `hint:` is coloured.
pub fn write_line(text: Arguments<'_>) {
    let mut text = text.to_string();
    if Target::Errors.is_escaped() {
        text = text.replace('\n', "\\n");
    }
    match text.strip_prefix(HINT) {
        Some(advice) => {
            let hint = Target::Errors.paint(Style::Hint, HINT);
            write_lines(format_args!("{hint}{advice}"));
        }
        None => write_lines(format_args!("{text}")),
    }
}

/// Writes a text of one or more lines to standard error, with one write(2). Keeps its line ends.
pub fn write_lines(text: Arguments<'_>) {
    let _ = stream::stderr().write_all(format!("{text}\n").as_bytes());
}

/// Returns true if a progress line can be shown: standard error is a terminal that can erase a
/// line.
pub fn can_show_progress() -> bool {
    io::stderr().is_terminal() && !is_dumb_terminal()
}

/// Shows the progress of long work, in place of the previous progress line.
pub fn show_progress(text: Arguments<'_>) {
    if can_show_progress() {
        let text = text.to_string();
        let _ =
            io::stderr().write_all(format!("{ERASE_LINE}{}", escape_unprintable(&text)).as_bytes());
    }
}

/// Erases the progress line.
pub fn clear_progress() {
    if can_show_progress() {
        let _ = io::stderr().write_all(ERASE_LINE.as_bytes());
    }
}
