//! Writers in front of standard output, standard error and files.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd as _, AsRawFd, RawFd};

use crate::escape::push_escaped;
use crate::mark::{self, Style};
use crate::target::{Target, has_colours, is_escaped};

/// A writer that escapes control characters if it leads to a terminal; otherwise it passes bytes
/// on, unchanged and uncopied.
#[derive(Debug)]
pub struct Stream<W: Write> {
    writer: W,
    filter: Option<Filter>,
}

/// The state of a stream to a terminal.
#[derive(Debug)]
struct Filter {
    has_colours: bool,
    /// An incomplete character or mark, until its last bytes are written.
    pending: Vec<u8>,
    escaped: Vec<u8>,
}

/// Returns a stream to standard output.
pub fn stdout() -> Stream<io::Stdout> {
    Stream::new(io::stdout())
}

/// Returns a stream to standard error.
pub fn stderr() -> Stream<io::Stderr> {
    Stream::new(io::stderr())
}

/// Returns standard output as a file, for bulk output: [`stdout`] searches everything for line
/// ends.
///
/// # Errors
///
/// Returns an error if the process has no descriptors left.
pub fn stdout_file() -> io::Result<Stream<File>> {
    Ok(Stream::of_file(File::from(io::stdout().as_fd().try_clone_to_owned()?)))
}

/// Writes a text without escaping its control sequences. The text must come from this program
/// alone, with no part from outside.
///
/// # Errors
///
/// Returns an error if the text cannot be written.
pub fn write_trusted(target: Target, text: &str) -> io::Result<()> {
    match target {
        Target::Output => io::stdout().write_all(text.as_bytes()),
        Target::Errors => io::stderr().write_all(text.as_bytes()),
    }
}

impl<W: Write + IsTerminal> Stream<W> {
    fn new(writer: W) -> Self {
        let is_terminal = writer.is_terminal();
        let filter = is_escaped(is_terminal).then(|| Filter {
            has_colours: has_colours(is_terminal),
            pending: Vec::new(),
            escaped: Vec::new(),
        });
        Self { writer, filter }
    }
}

impl Stream<File> {
    /// Returns a stream to a file, which may be a terminal.
    pub fn of_file(file: File) -> Self {
        Self::new(file)
    }
}

impl<W: Write> Stream<W> {
    /// Returns true if the stream escapes control characters.
    pub fn is_escaped(&self) -> bool {
        self.filter.is_some()
    }

    /// Returns the marks before and after a text in a style; empty if the stream has no colours.
    pub fn marks(&self, style: Style) -> (String, String) {
        match &self.filter {
            Some(filter) if filter.has_colours => mark::style_marks(style),
            _ => Default::default(),
        }
    }
}

impl<W: Write + IsTerminal> Stream<W> {
    /// Returns true if the stream leads to a terminal.
    pub fn is_terminal(&self) -> bool {
        self.writer.is_terminal()
    }
}

impl<W: Write + AsRawFd> AsRawFd for Stream<W> {
    fn as_raw_fd(&self) -> RawFd {
        self.writer.as_raw_fd()
    }
}

impl Filter {
    /// Escapes the pending bytes and `bytes`. An incomplete character or mark at the end becomes
    /// pending unless `is_last`.
    fn escape(&mut self, bytes: &[u8], is_last: bool) -> &[u8] {
        self.escaped.clear();
        if self.pending.is_empty() {
            let used = push_escaped(&mut self.escaped, bytes, self.has_colours, is_last);
            self.pending.extend_from_slice(&bytes[used..]);
        } else {
            self.pending.extend_from_slice(bytes);
            let used = push_escaped(&mut self.escaped, &self.pending, self.has_colours, is_last);
            self.pending.drain(..used);
        }
        &self.escaped
    }
}

impl<W: Write> Write for Stream<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.filter {
            None => self.writer.write(bytes),
            Some(filter) => {
                self.writer.write_all(filter.escape(bytes, false))?;
                Ok(bytes.len())
            }
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.filter {
            None => self.writer.write_all(bytes),
            Some(filter) => self.writer.write_all(filter.escape(bytes, false)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        if let Some(filter) = &mut self.filter {
            self.writer.write_all(filter.escape(&[], true))?;
        }
        self.writer.flush()
    }
}

impl<W: Write> Drop for Stream<W> {
    fn drop(&mut self) {
        if self.filter.as_ref().is_some_and(|filter| !filter.pending.is_empty()) {
            // No caller can handle an error in `drop`.
            let _ = self.flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_stream(filter: Option<Filter>) -> Stream<Vec<u8>> {
        Stream { writer: Vec::new(), filter }
    }

    #[test]
    fn a_pipe_gets_all_bytes_and_a_terminal_gets_none_that_control_it() {
        let hostile = b"\x1b[2J\x9b\xff\r\n";
        let mut pipe = test_stream(None);
        pipe.write_all(hostile).expect("room");
        assert_eq!(pipe.writer, hostile);
        let filter = Filter { has_colours: false, pending: Vec::new(), escaped: Vec::new() };
        let mut terminal = test_stream(Some(filter));
        for byte in hostile {
            terminal.write_all(&[*byte]).expect("room");
        }
        terminal.write_all(b"\xc3").expect("room");
        terminal.flush().expect("room");
        assert_eq!(terminal.writer, b"\\u001b[2J\\x9b\\xff\\r\n\\xc3");
    }
}
