//! Errors of an ELF file, with their locations.

use std::fmt;

/// The reason why a file is no filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The faulty instruction, if the error concerns one.
    pub place: Option<Box<Location>>,
    /// The message, without a full stop.
    pub message: String,
    /// Advice for the user.
    pub hint: Option<String>,
}

/// The location of an instruction in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// Function that contains the instruction.
    pub function: String,
    /// Section that contains the function.
    pub section: String,
    /// Index of the instruction in the section, counted like `llvm-objdump -d`.
    pub insn: usize,
    /// The instruction, as text.
    pub code: String,
    /// Source line of the instruction, if the file has debug information.
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
