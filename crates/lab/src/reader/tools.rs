//! The readers, and what each is asked to do.

use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::machine::first_line;
use crate::place::Place;

/// Name of the other reader's program.
pub(super) const BABELTRACE2: &str = "babeltrace2";

/// A program that reads traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tool {
    /// `trackway print`.
    Trackway,
    /// The reference implementation.
    Babeltrace2,
}

/// What a reader is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// All events as lines of text.
    Text,
    /// All fields of all events decoded, in the order of time, and no text.
    Decode,
}

impl Work {
    /// In words.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Decode => "decode only",
        }
    }
}

impl Tool {
    /// Its row in the tables.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Trackway => "Trackway",
            Self::Babeltrace2 => BABELTRACE2,
        }
    }

    /// The command for this work on the trace in `folder`.
    pub(super) fn command(self, work: Work, place: &Place, folder: &Path) -> Command {
        let mut command = match self {
            Self::Trackway => {
                let mut command = Command::new(&place.kit.trackway);
                command.arg("print");
                if work == Work::Decode {
                    command.args(["--format", "none"]);
                }
                command
            }
            Self::Babeltrace2 => {
                let mut command = Command::new(BABELTRACE2);
                if work == Work::Decode {
                    command.arg("--output-format=dummy");
                }
                command
            }
        };
        command.arg(folder);
        command
    }
}

/// Version of babeltrace2, if it is installed: from `Babeltrace 2.0.4 "…"`.
pub(super) fn babeltrace2_version() -> Option<String> {
    let line = first_line(BABELTRACE2, &["--version"])?;
    line.split(' ').nth(1).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_tools_are_asked_for_the_same() {
        let place = Place::at("trackway".into());
        let words = |tool: Tool, work| format!("{:?}", tool.command(work, &place, Path::new("t")));
        assert_eq!(words(Tool::Trackway, Work::Text), r#""trackway" "print" "t""#);
        assert_eq!(
            words(Tool::Trackway, Work::Decode),
            r#""trackway" "print" "--format" "none" "t""#
        );
        assert_eq!(words(Tool::Babeltrace2, Work::Text), r#""babeltrace2" "t""#);
        assert_eq!(
            words(Tool::Babeltrace2, Work::Decode),
            r#""babeltrace2" "--output-format=dummy" "t""#
        );
    }
}
