//! Options of `trackway filter`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Look into filters on events.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(super) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    Explain(ExplainArguments),
    Header(super::header::Arguments),
    Compile(super::object::Arguments),
}

/// Show what becomes of a filter: its tree, its bytecode, its machine code.
///
/// Examples:
///
///   trackway filter explain 'status >= 400 && path == "/api/*"' --event myapp:request
///   trackway filter explain 'myapp:*: status >= 400'
///   trackway filter explain 'next_prio < 100' --event sched_switch --trace DIR
///   trackway filter explain --object slow.o
///
/// Events are those of programs that are, or were, there, as trackway list shows them, or those of
/// a trace. For each combination of types that the named fields have in them there is bytecode.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct ExplainArguments {
    /// The expression; PATTERN in front says which events it is about
    #[arg(
        value_name = "[PATTERN: ]EXPR",
        allow_hyphen_values = true,
        required_unless_present = "object"
    )]
    pub(super) filter: Option<String>,
    /// The event that it is about
    #[arg(long, value_name = "NAME")]
    pub(super) event: Option<String>,
    /// Look for events in this trace, or what a session of this name records
    #[arg(long, value_name = "DIR")]
    pub(super) trace: Option<PathBuf>,
    /// Instead of an expression: a filter in C, as clang -target bpf has compiled it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["filter", "event", "trace"])]
    pub(super) object: Option<PathBuf>,
}
