//! `trackway man`: manual pages, made of the command line's declaration.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Command};

use crate::help;

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

/// Writes the manual pages of `command`.
///
/// # Errors
///
/// If the folder cannot be written.
pub(crate) fn run(arguments: Arguments, command: Command) -> anyhow::Result<ExitCode> {
    std::fs::create_dir_all(&arguments.output)
        .and_then(|()| clap_mangen::generate_to(help::for_manual(command), &arguments.output))
        .with_context(|| format!("cannot write manual pages to {}", arguments.output.display()))?;
    Ok(ExitCode::SUCCESS)
}
