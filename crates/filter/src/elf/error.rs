//! Errors of a file, with their place.

use std::fmt;

/// Why a file is no filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The instruction that it is about, if it is about one.
    pub place: Option<Box<Location>>,
    /// The message, without a full stop.
    pub message: String,
    /// Advice.
    pub hint: Option<String>,
}

/// The location of an instruction in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The function that it is in.
    pub function: String,
    /// The section that the function is in.
    pub section: String,
    /// Its index in the section, as `llvm-objdump -d` counts.
    pub insn: usize,
    /// The instruction, as text.
    pub code: String,
    /// The line of the source that it is of, if the file says so.
    pub source: Option<String>,
}

impl Error {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { place: None, message: message.into(), hint: None }
    }

    pub(super) fn at(place: Location, message: impl Into<String>) -> Self {
        Self { place: Some(Box::new(place)), ..Self::new(message) }
    }

    pub(super) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)?;
        if let Some(place) = &self.place {
            write!(f, "\n  at {place}")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { function, section, insn, code, source } = self;
        write!(f, "instruction {insn} of section {section}, in {function}: {code}")?;
        match source {
            Some(source) => write!(f, "\n  of {source}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}
