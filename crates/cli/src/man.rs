//! `trackway man`: manual pages, generated from the command line's declaration.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Command};

/// Write the manual pages.
///
/// Examples:
///
///   trackway man --output man1
///   trackway man
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Folder to write them to
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) output: PathBuf,
}

/// Writes the manual pages of `command`, without those that trackway-bench writes.
///
/// # Errors
///
/// If the folder cannot be written.
pub(crate) fn run(arguments: Arguments, command: Command) -> anyhow::Result<ExitCode> {
    let output = &arguments.output;
    trackway_command_line::manual::write_pages(command, output, &["bench"])
        .with_context(|| format!("cannot write manual pages to {}", output.display()))?;
    Ok(ExitCode::SUCCESS)
}
