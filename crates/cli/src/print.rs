//! `trackway print`: traces as text, byte for byte as babeltrace2 prints them by default.
//!
//! Reading, decoding and merging is `trackway_reader`'s, what lines look like is
//! `trackway_ctf::text`'s; here is only what was asked for.

use std::io::Write;

use trackway_ctf::text::Pretty;
use trackway_reader::{Settings, open, print};

use crate::arguments::PrintArguments;
use crate::local_time;

/// Prints traces to `output`, and what tracers lost and what is damaged to `messages`. Whether
/// everything was read: `false` if damage was told of.
///
/// # Errors
///
/// If a folder has no trace, or cannot be read; if `output` or `messages` cannot be written.
pub(crate) fn run(
    arguments: &PrintArguments,
    output: &mut dyn Write,
    messages: &mut dyn Write,
) -> anyhow::Result<bool> {
    let found = open(&arguments.traces, messages)?;
    let mut settings = Settings::default();
    settings.jobs = arguments.jobs.unwrap_or(settings.jobs);
    let format = Pretty::new(local_time::of_day);
    let summary = print(found.inputs, &format, &settings, output, messages)?;
    Ok(summary.is_whole && found.is_whole)
}
