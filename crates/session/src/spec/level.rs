//! Log levels as users write them.

use serde::{Deserialize, Serialize};
use trackway_schema::LEVEL_NAMES;

/// A log level of events, with LTTng's numbers: smaller numbers are more severe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Level(u8);

/// The error that a word is not a log level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LevelError(String);

impl core::fmt::Display for LevelError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let names: Vec<String> = Level::all().map(String::from).collect();
        write!(formatter, "no level '{}' (there are {})", self.0, names.join(", "))
    }
}

impl core::error::Error for LevelError {}

impl Level {
    /// Returns all levels, the most severe first.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..LEVEL_NAMES.len() as u8).map(Self)
    }

    /// Returns the level's number.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Parses a level: `warning`, `WARNING`, `TRACE_WARNING`, `debug-function`, `4`; also `error`
    /// and `critical`.
    pub fn parse(text: &str) -> Result<Self, LevelError> {
        let word = text.trim().to_ascii_uppercase().replace('-', "_");
        let word = word.strip_prefix("TRACE_").unwrap_or(&word);
        let word = match word {
            "ERROR" => "ERR",
            "CRITICAL" => "CRIT",
            "EMERGENCY" => "EMERG",
            "WARN" => "WARNING",
            word => word,
        };
        let named = LEVEL_NAMES.iter().position(|&name| name == word);
        let numbered = || word.parse().ok().filter(|&number: &usize| number < LEVEL_NAMES.len());
        let number = named.or_else(numbered).ok_or_else(|| LevelError(text.to_owned()))?;
        Ok(Self(number as u8))
    }
}

impl From<Level> for String {
    fn from(level: Level) -> Self {
        LEVEL_NAMES[usize::from(level.0)].to_ascii_lowercase().replace('_', "-")
    }
}

impl TryFrom<String> for Level {
    type Error = LevelError;

    fn try_from(text: String) -> Result<Self, LevelError> {
        Self::parse(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_read_however_they_are_written() {
        for text in ["warning", "WARNING", "TRACE_WARNING", "trace_warning", "4", "warn"] {
            assert_eq!(Level::parse(text).map(Level::number), Ok(4), "{text}");
        }
        assert_eq!(Level::parse("error").map(Level::number), Ok(3));
        for level in Level::all() {
            assert_eq!(Level::parse(&String::from(level)), Ok(level));
        }
        for text in ["", "15", "-1", "loud", "TRACE_"] {
            let error = Level::parse(text).expect_err(text).to_string();
            assert!(error.contains("emerg, alert") && error.contains("debug-line"), "{error}");
        }
    }
}
