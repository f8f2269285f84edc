//! The fate of records when buffers are full.

use serde::{Deserialize, Serialize};

/// The fate of a record that finds no room.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// It is discarded, and counted.
    #[default]
    Discard,
    /// It overwrites the oldest ones: a flight recorder.
    Overwrite,
}
