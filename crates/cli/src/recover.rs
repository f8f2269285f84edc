//! `trackway recover`: completes the traces of recorders that were killed.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use trackway_recorder::{Notices, Stranded};

use crate::common::recovered::report_recovered;

/// Complete the traces of recorders that were killed.
///
/// Examples:
///
///   trackway recover
///   trackway recover trackway-20261121-093000
///   trackway recover --discard
///
/// What was committed and not yet written is taken from shared memory, and the memory is freed.
/// Where the trace is gone, or another one is in its place, what was in memory goes into a trace of
/// its own: DIR.recovered. Every trackway record does this first, for all traces that are where
/// they were recorded. A DIR may have been moved since, and another trace recorded in its place; a
/// copy of a trace that is still there is refused. If nothing of it is in memory any more (as after
/// the machine was restarted), it is marked as complete as it is.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// The trace's folder [default: all of this user's]
    #[arg(value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,

    /// Give up what cannot be completed where it was recorded, instead of writing it beside
    #[arg(long)]
    pub(crate) discard: bool,
}

/// Recovers the records of dead recorders.
pub(crate) fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let notices = Notices::new(false);
    let folder = arguments.folder.as_deref();
    let stranded = if arguments.discard { Stranded::Discard } else { Stranded::NewTrace };
    let recovered =
        trackway_recorder::recover(&notices, folder, stranded).map_err(anyhow::Error::new)?;
    if recovered.is_nothing() {
        notices.report(format_args!("nothing to recover"));
    }
    report_recovered(&notices, &recovered.sessions, stranded)?;
    Ok(ExitCode::SUCCESS)
}
