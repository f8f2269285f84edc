//! The fate of records when buffers are full.

use serde::{Deserialize, Serialize};

/// The fate of a record for which the buffer has no room.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// The record is discarded, and counted.
    #[default]
    Discard,
    /// The record overwrites the oldest records: a flight recorder.
    Overwrite,
}
