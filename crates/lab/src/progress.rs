//! One line on standard error that says what is being done, where somebody looks at it.

use std::io::{IsTerminal, Write, stderr};

/// The line.
#[derive(Debug)]
pub(crate) struct Progress {
    is_shown: bool,
}

impl Progress {
    /// Shown if standard error is a terminal.
    pub(crate) fn new() -> Self {
        Self { is_shown: stderr().is_terminal() }
    }

    /// What is being done now.
    pub(crate) fn say(&self, what: &str) {
        if self.is_shown {
            // Not to be told about progress is no reason to stop.
            let _ = write!(stderr(), "\r\x1b[K{what}");
            let _ = stderr().flush();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.say("");
    }
}
