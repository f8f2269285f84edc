//! Errors of the bench.

use std::fmt;
use std::io;

use trackway_console::IoError;

/// The reason why something could not be measured.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The user stopped the run.
    Interrupted,
    /// The system returned an error.
    Io {
        /// The operation that failed.
        what: String,
        /// The error of the operating system.
        source: IoError,
    },
    /// A program failed.
    Program {
        /// The program or step that failed.
        what: String,
        /// The exit status and the messages of the program.
        message: String,
    },
    /// A program did not end in time, and was ended.
    Overdue {
        /// The program or step that did not end in time.
        what: String,
        /// The time limit of the program, in seconds.
        limit_s: u64,
    },
    /// A program's output or a trace is not as expected.
    Output {
        /// The program or file that wrote the output.
        what: String,
        /// The fault in the output.
        message: String,
    },
}

/// Result with the bench's error.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Returns a map for errors of the system: `.map_err(Error::io("cannot write 'x'"))`.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source: source.into() }
    }

    /// Makes an error about the output of `what`.
    pub fn output(what: impl Into<String>, message: impl fmt::Display) -> Self {
        Self::Output { what: what.into(), message: message.to_string() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interrupted => formatter.write_str("interrupted"),
            Self::Io { what, source } => write!(formatter, "{what}: {source}"),
            Self::Program { what, message } => write!(formatter, "{what}: {message}"),
            Self::Overdue { what, limit_s } => {
                write!(formatter, "{what}: did not end within {limit_s} s")
            }
            Self::Output { what, message } => write!(formatter, "{what}: {message}"),
        }
    }
}

impl std::error::Error for Error {}
