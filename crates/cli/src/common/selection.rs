//! Options that select events of traces, and times.

use clap::Args;

use crate::help::{EVENTS, MOST_USED};

/// Options that select events.
#[derive(Debug, Args)]
pub(crate) struct SelectionArguments {
    /// Only events of this name, such as 'web:*,!web:noise'
    ///
    /// A PATTERN matches provider:name; * stands for anything, a provider alone for all of its
    /// events, ! in front excludes (several: again, or by commas).
    #[arg(long, alias = "on", value_name = "PATTERN", value_delimiter = ',',
        help_heading = MOST_USED)]
    pub(crate) event: Vec<String>,
    /// Only events at and after this time, such as 09:30
    #[arg(short, long, value_name = "TIME", allow_hyphen_values = true,
        help_heading = MOST_USED)]
    pub(crate) begin: Option<String>,
    /// Only events up to this time
    #[arg(short, long, value_name = "TIME", allow_hyphen_values = true, help_heading = EVENTS)]
    pub(crate) end: Option<String>,
    /// Only events of this time: BEGIN,END
    #[arg(long, value_name = "RANGE", allow_hyphen_values = true, help_heading = EVENTS,
        hide_short_help = true, conflicts_with_all = ["begin", "end"])]
    pub(crate) timerange: Option<String>,
}
