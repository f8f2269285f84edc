//! Standard output and standard error, made safe and readable for people.
//!
//! Names in traces, and names of files, processes and hosts, are hostile: an escape sequence in one
//! of them must not reach a terminal. All text that Trackway's command prints passes through a
//! [`Stream`]. A stream to a terminal escapes control characters; a stream to a pipe or a file
//! passes all bytes on unchanged.
//!
//! Main invariant: a control sequence reaches a terminal only if this crate has made it. Colours
//! are [`Style`]s. A text contains them as *marks*, which hold a random number, so that no name can
//! contain a valid mark ([`mark`]).
#![deny(unsafe_code)]

mod escape;
mod io_error;
mod line;
mod mark;
mod stream;
mod target;

pub use escape::escape_unprintable;
pub use io_error::IoError;
pub use line::{can_show_progress, clear_progress, show_progress, write_line, write_lines};
pub use mark::Style;
pub use stream::{Stream, stderr, stdout, stdout_file, write_trusted};
pub use target::{ColourChoice, Target, set_colour_choice};

/// Writes one line to standard error, as `eprintln!` does. A line end in the text is escaped on a
/// terminal.
#[macro_export]
macro_rules! message {
    ($($argument:tt)*) => { $crate::write_line(format_args!($($argument)*)) };
}
