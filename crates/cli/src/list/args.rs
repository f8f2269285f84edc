//! Options of `trackway list`.

use clap::Args;

use crate::common::format::Format;

/// List what can be traced in running processes, or in the kernel.
///
/// Examples:
///
///   trackway list
///   trackway list --format json
///   sudo trackway list --kernel
///   sudo trackway list --kernel 'sched_*,irq,block:*rq*'
///   sudo trackway list --kernel syscalls:openat --format json
///   trackway list --contexts
///
/// Processes that have the library loaded, with their events, levels and fields; or kernel events,
/// with fields, types and meanings; or the contexts of events.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// List the kernel's events instead, by subsystem; for root
    #[arg(long)]
    pub(crate) kernel: bool,
    /// Only kernel events of this name (the kernel's, or LTTng's), of this subsystem, or
    /// subsystem:name; * stands for anything, ! in front excludes, commas separate
    #[arg(value_name = "PATTERN", requires = "kernel")]
    pub(crate) patterns: Vec<String>,
    /// List contexts instead: what --context records, and filters ask for as $ctx.NAME
    #[arg(long, conflicts_with = "kernel")]
    pub(crate) contexts: bool,
    /// Form of the list
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}
