//! Options of `trackway doctor`.

use crate::common::format::Format;

/// Check what this machine allows, and what is missing.
///
/// Each part that is missing comes with what to do about it.
///
/// Examples:
///
///   trackway doctor
///   trackway doctor --format json
///
/// Nothing is changed. What is "limited" works, in a smaller or slower way; of what is "missing"
/// the last line says whether recording needs it. The exit status is 0 if recording works, and 1
/// if not.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Form of the report
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(super) format: Format,
}
