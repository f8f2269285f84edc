//! Messages about damage, written as single lines: names in messages may contain line ends.

use std::io::{self, Write};

use trackway_console::Target;

/// Writes a message as one line, at once.
///
/// # Errors
///
/// Returns the errors of the writer.
pub(crate) fn write_message(messages: &mut (impl Write + ?Sized), message: &str) -> io::Result<()> {
    let line = format!("trackway: {}\n", Target::Errors.one_line(message));
    messages.write_all(line.as_bytes())
}
