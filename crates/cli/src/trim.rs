//! `trackway trim`: copies a range of time, or some events, of traces to new traces.

use std::num::NonZero;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use trackway_console::stderr;
use trackway_reader::{Selection, first_packet_time, open_traces};

use crate::common::export::export_traces;
use crate::common::jobs::parse_thread_count;
use crate::common::selection::SelectionArguments;
use crate::patterns::Patterns;
use crate::{output_guard, session_traces, time_range};

/// Cut traces to a range of time, or to some events.
///
/// Examples:
///
///   trackway trim --begin 09:30 --end 09:31 -o minute DIR
///   trackway trim --event myapp --event '!myapp:noise' -o myapp DIR
///
/// What is written is a trace like the one that it was cut from. Damage is told on stderr, and
/// what is readable is written; packets that are not to be cut are copied as they are, damaged or
/// not. The exit status is 1 then, and 2 if nothing was written, also if nothing was to be.
///
/// A TIME is as for trackway print. All fields of an event stay as they were; so do the tracer's
/// counts of what it lost.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Folders of traces, or names of sessions; those below a folder keep their place there
    #[arg(required = true, value_name = "DIR")]
    pub(crate) traces: Vec<PathBuf>,
    /// Folder to write to: new, or empty
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) selection: SelectionArguments,
    /// Times are UTC instead of the local time zone
    #[arg(long)]
    pub(crate) clock_gmt: bool,
    /// Threads to work with [default: one for each processor]
    #[arg(short, long, value_name = "N", value_parser = parse_thread_count)]
    pub(crate) jobs: Option<NonZero<usize>>,
}

/// Writes the selected events of traces.
///
/// # Errors
///
/// If a folder has no trace, or cannot be read; if nothing can be written.
pub(crate) fn run(mut arguments: Arguments) -> anyhow::Result<ExitCode> {
    session_traces::resolve_session_names(&mut arguments.traces);
    let patterns = Patterns::new(&arguments.selection.event)?;
    output_guard::refuse_folder(&arguments.output, &arguments.traces)?;
    let found = open_traces(&arguments.traces, &mut stderr())?;
    let first = || first_packet_time(&found.inputs);
    let range = time_range::resolve_range(&arguments.selection, arguments.clock_gmt, first)?;
    let events = |name: &str| patterns.select(name);
    let selection = Selection { range, events: &events, ..Selection::default() };
    patterns.warn_if_none(&found.inputs, &mut stderr())?;
    export_traces(found, &arguments.output, arguments.jobs, |inputs, export, jobs, messages| {
        trackway_reader::trim_traces(inputs, &selection, export, jobs, messages)
    })
}
