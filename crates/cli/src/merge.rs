//! `trackway merge`: writes several traces into one folder.

use std::num::NonZero;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use trackway_console::stderr;
use trackway_reader::open_traces;

use crate::common::export::export_traces;
use crate::common::jobs::parse_thread_count;
use crate::{output_guard, session_traces};

/// Put traces together.
///
/// Examples:
///
///   trackway merge -o whole chunk-1 chunk-2 chunk-3
///   trackway merge -o all app-trace kernel-trace
///
/// Pieces of one trace (rotated chunks, snapshots; they have the same uuid, or in CTF 2 the
/// same namespace, name and uid) become one, in which packets that several of them have are
/// there once, if they say which stream they are of (as LTTng's and Trackway's do). Different
/// traces lie side by side, and are read as one by any reader. Damage is told on stderr, and
/// what is readable is written; the exit status is 1 then, and 2 if nothing was written.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Folders of traces, or names of sessions that record some (a folder comes first)
    #[arg(required = true, value_name = "DIR")]
    pub(crate) traces: Vec<PathBuf>,
    /// Folder to write to: new, or empty
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// Threads to work with [default: one for each processor]
    #[arg(short, long, value_name = "N", value_parser = parse_thread_count)]
    pub(crate) jobs: Option<NonZero<usize>>,
}

/// Writes traces into one folder.
///
/// # Errors
///
/// If a folder has no trace, or cannot be read; if nothing can be written.
pub(crate) fn run(mut arguments: Arguments) -> anyhow::Result<ExitCode> {
    session_traces::resolve_session_names(&mut arguments.traces);
    output_guard::refuse_folder(&arguments.output, &arguments.traces)?;
    let found = open_traces(&arguments.traces, &mut stderr())?;
    export_traces(found, &arguments.output, arguments.jobs, trackway_reader::merge_traces)
}
