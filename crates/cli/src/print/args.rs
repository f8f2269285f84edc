//! Options of `trackway print`.

use std::num::NonZero;
use std::path::PathBuf;

use clap::Args;

use super::format::EventFormat;
use crate::common::jobs::parse_thread_count;
use crate::common::selection::SelectionArguments;
use crate::help::{EVENTS, FORM, MOST_USED, WHERE};

/// Print traces as text, as babeltrace2 prints them.
///
/// Examples:
///
///   trackway print trackway-20261121-093000
///   trackway print --event 'myapp:req*' --begin 09:30 --end 09:31 DIR
///   trackway print --filter 'status >= 400 && path == "/api/*"' DIR
///   trackway print --filter-object slow.o DIR
///   trackway print --format json DIR | jq .fields
///   trackway print --stats DIR
///   trackway print --follow DIR
///
/// Several folders are printed as one, in time order. Losses and damage are told on stderr; with
/// damage the exit status is 1, and 2 if a folder holds no trace.
///
/// A TIME is 2026-11-21 09:30:00.5, 2026-11-21, 09:30:00.5 or 09:30 (of the first event's day),
/// or seconds since 1970.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Folders of traces, or names of sessions
    ///
    /// A session's name stands for the trace that it records; a folder of that name comes first.
    #[arg(required = true, value_name = "DIR")]
    pub(crate) traces: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) selection: SelectionArguments,
    /// Only events where EXPR is true, such as 'status >= 400'
    ///
    /// EXPR is an expression over fields and contexts. With 'PATTERN: EXPR', it is for the events
    /// whose name matches PATTERN, else for all; several must all be true.
    #[arg(long, value_name = "EXPR", allow_hyphen_values = true, help_heading = MOST_USED,
        conflicts_with_all = ["stats", "details"])]
    pub(crate) filter: Vec<String>,
    /// Print rates, sizes and losses instead of events
    ///
    /// Events by name with their number, rate and size, streams with their losses, times (--format
    /// csv: the events alone).
    #[arg(long, conflicts_with = "details", help_heading = MOST_USED)]
    pub(crate) stats: bool,
    /// Print events while they are recorded
    ///
    /// Goes on with what is written to the traces meanwhile, until trackway record ends them (those
    /// of other tracers: until Ctrl-C), or past the time of --end; events show one to two seconds
    /// after they happened, or at once where the recorder says how far it has written; the exit
    /// status is 1 if the recorder was killed.
    #[arg(long, conflicts_with_all = ["stats", "details", "count"], help_heading = MOST_USED)]
    pub(crate) follow: bool,
    /// Only events that this filter in C takes
    ///
    /// FILE is what clang -target bpf or trackway filter compile has made.
    #[arg(long, value_name = "[PATTERN: ]FILE", conflicts_with_all = ["stats", "details"],
        help_heading = EVENTS, hide_short_help = true)]
    pub(crate) filter_object: Vec<PathBuf>,
    /// Form of an event
    #[arg(long, value_enum, default_value_t = EventFormat::Text, help_heading = FORM)]
    pub(crate) format: EventFormat,
    /// Print clocks, and kinds of events with their fields
    ///
    /// Instead of events, what the traces say of themselves: where they are from, clocks, kinds of
    /// events with their fields.
    #[arg(long, help_heading = FORM)]
    pub(crate) details: bool,
    /// Print the number of events only
    #[arg(long, conflicts_with_all = ["format", "stats", "details", "follow"],
        help_heading = FORM)]
    pub(crate) count: bool,
    /// Show names for numbers, where the trace has them
    ///
    /// System calls as in C, flags and errors by name, modes in octal; in JSON names are beside
    /// their values (docs/guides/kernel.md).
    #[arg(long, conflicts_with_all = ["stats", "details", "count"], help_heading = FORM)]
    pub(crate) symbolic: bool,
    /// Show dates
    #[arg(long, help_heading = FORM)]
    pub(crate) clock_date: bool,
    /// Show times in UTC instead of the local time zone
    #[arg(long, help_heading = FORM)]
    pub(crate) clock_gmt: bool,
    /// Show times as seconds since 1970
    #[arg(long, help_heading = FORM, hide_short_help = true)]
    pub(crate) clock_seconds: bool,
    /// Show times as the clock's values
    #[arg(long, help_heading = FORM, hide_short_help = true)]
    pub(crate) clock_cycles: bool,
    /// Move all times by so many seconds
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true, default_value_t = 0,
        hide_default_value = true, help_heading = FORM, hide_short_help = true)]
    pub(crate) clock_offset: i64,
    /// Move all times by so many nanoseconds
    #[arg(long, value_name = "NS", allow_hyphen_values = true, default_value_t = 0,
        hide_default_value = true, help_heading = FORM, hide_short_help = true)]
    pub(crate) clock_offset_ns: i64,
    /// Nothing: clocks of several traces always share their origin here
    #[arg(long, hide = true)]
    pub(crate) clock_force_correlate: bool,
    /// Do not show the time since the previous event
    #[arg(long, help_heading = FORM, hide_short_help = true)]
    pub(crate) no_delta: bool,
    /// Names to show: payload, context, header, scope, all, none
    #[arg(short, long, value_name = "LIST", help_heading = FORM, hide_short_help = true)]
    pub(crate) names: Option<String>,
    /// Fields to show before the name of an event: trace, trace:hostname, trace:domain,
    /// trace:procname, trace:vpid, loglevel, emf, callsite, all, none
    #[arg(short, long, value_name = "LIST", help_heading = FORM, hide_short_help = true)]
    pub(crate) fields: Option<String>,
    /// Write to this file [default: standard output]
    #[arg(short, long, value_name = "FILE", help_heading = WHERE)]
    pub(crate) output: Option<PathBuf>,
    /// Threads to read with [default: one for each processor]
    #[arg(short, long, value_name = "N", value_parser = parse_thread_count, help_heading = FORM,
        hide_short_help = true)]
    pub(crate) jobs: Option<NonZero<usize>>,
}

impl Arguments {
    /// Returns the reason why the requested format lacks the requested output, if so.
    pub(crate) fn refusal(&self) -> Option<&'static str> {
        let has = self.format.capabilities();
        let requested = match (self.details, self.stats) {
            (true, _) => has.details,
            (false, true) => has.stats,
            (false, false) => has.events,
        };
        requested.err()
    }
}
