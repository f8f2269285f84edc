//! System errors in readable form: "No such file or directory", without the number that the
//! standard library adds ("(os error 2)").

use std::error::Error;
use std::fmt;
use std::io;
use std::ops::Deref;

/// An [`io::Error`] that is displayed without its number. Error types hold an `IoError`, so that no
/// message shows the number by accident.
#[derive(Debug)]
pub struct IoError(io::Error);

impl IoError {
    /// Returns the wrapped error.
    pub fn into_inner(self) -> io::Error {
        self.0
    }

    /// Returns the [`io::Error`] that `error` is or that it wraps as an [`IoError`].
    pub fn system_error<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e io::Error> {
        let own = || error.downcast_ref::<Self>().map(|error| &error.0);
        error.downcast_ref().or_else(own)
    }

    /// Returns the text of a borrowed error, without its number.
    pub fn text(error: &io::Error) -> String {
        // The text of an error that wraps another one ends with the number of the inner error.
        match (error.raw_os_error(), error.get_ref().and_then(|inner| inner.downcast_ref())) {
            (Some(number), _) => {
                let text = error.to_string();
                let suffix = format!(" (os error {number})");
                text.strip_suffix(&suffix).map_or(text.clone(), str::to_owned)
            }
            (None, Some(inner)) => Self::text(inner),
            (None, None) => error.to_string(),
        }
    }

    /// Returns the texts of an error and of its chain of sources, separated by colons.
    pub fn chain_text(error: &(dyn Error + 'static)) -> String {
        let text = match Self::system_error(error) {
            Some(error) => Self::text(error),
            None => error.to_string(),
        };
        match error.source() {
            Some(source) => format!("{text}: {}", Self::chain_text(source)),
            None => text,
        }
    }
}

impl From<io::Error> for IoError {
    fn from(error: io::Error) -> Self {
        Self(error)
    }
}

impl Deref for IoError {
    type Target = io::Error;

    fn deref(&self) -> &io::Error {
        &self.0
    }
}

impl fmt::Display for IoError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&Self::text(&self.0))
    }
}

impl Error for IoError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_words_without_numbers() {
        let absent = || io::Error::from_raw_os_error(2);
        assert_eq!(IoError::from(absent()).to_string(), "No such file or directory");
        assert_eq!(
            IoError::from(io::Error::other(absent())).to_string(),
            "No such file or directory"
        );
        assert_eq!(IoError::from(io::Error::other("own words")).to_string(), "own words");
        assert_eq!(IoError::from(absent()).kind(), io::ErrorKind::NotFound);
        for error in [&absent() as &(dyn Error + 'static), &IoError::from(absent())] {
            let found = IoError::system_error(error).expect("an error of the system");
            assert_eq!(found.kind(), io::ErrorKind::NotFound);
        }
        assert!(IoError::system_error(&fmt::Error).is_none());

        #[derive(Debug)]
        struct Outer(io::Error);
        impl fmt::Display for Outer {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("cannot open it")
            }
        }
        impl Error for Outer {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                Some(&self.0)
            }
        }
        assert_eq!(
            IoError::chain_text(&Outer(absent())),
            "cannot open it: No such file or directory"
        );
    }
}
