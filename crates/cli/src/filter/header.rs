//! `trackway filter header`: fields of events as a C header, for filters in C.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use trackway_filter::header::generate_header;
use trackway_filter::layout::Layout;

use super::{load_event_layouts, no_event_message};
use crate::patterns::matches_event_name;

/// Print a C header that describes events to filters in C.
///
/// Examples:
///
///   trackway filter header myapp:request > myapp.h
///   trackway filter header 'myapp:*' 'other:read' --trace DIR > events.h
///
/// For each event it has a struct of fields and contexts, constants for labels of enumerations, and
/// for elements of sequences. A filter that includes it is compiled by
/// clang -O2 -target bpf -fno-jump-tables -c; <trackway/filter.h> says what may be in it. Events
/// are found as by trackway filter explain.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Arguments {
    /// Events, or patterns of their names
    #[arg(value_name = "PROVIDER:EVENT", required = true)]
    events: Vec<String>,
    /// Look for events in this trace, or what a session of this name records
    #[arg(long, value_name = "DIR")]
    trace: Option<PathBuf>,
}

/// Prints the header for the selected events.
///
/// # Errors
///
/// If a pattern matches no known event.
pub(super) fn run(arguments: Arguments, output: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let known = load_event_layouts(arguments.trace)?;
    for pattern in &arguments.events {
        let is_there = known.iter().any(|layout| matches_event_name(pattern, &layout.event));
        anyhow::ensure!(is_there, "{pattern}: {}", no_event_message(!known.is_empty()));
    }
    let is_meant = |layout: &Layout| {
        arguments.events.iter().any(|pattern| matches_event_name(pattern, &layout.event))
    };
    let meant: Vec<Layout> = known.into_iter().filter(is_meant).collect();
    output.write_all(generate_header(&meant).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
