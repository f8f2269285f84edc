//! Options of `trackway record`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use trackway_schema::context::join_names;

use crate::common::format::Backend;
use crate::help::{HELP, HOW_MUCH, MOST_USED, PROCESSES, SUBJECT, WHERE};

/// Record a command and its children.
///
/// Examples:
///
///   trackway record -- ./app --its-args
///   trackway record --preload libc,pthread -- xz -T2 big.tar
///   sudo trackway record --kernel 'sched_*,syscalls' -- make -j2
///   trackway record --filter 'web:*: status >= 400' -- ./server
///   trackway record --filter-object 'web:request: slow.o' -- ./server
///   sudo trackway record --kernel syscalls --filter 'syscalls:openat: filename == "/etc/*"' -- ls
///   sudo trackway record --kernel 'block,irq_*'
///
/// The command runs as it would without trackway: its input, output and exit status are its own.
/// Signals are passed on to it. If it does not end, a second one ends the recording, or 10
/// seconds, or three times Ctrl-C within 2 seconds: the trace is complete, the command goes on,
/// and the exit status is 128 plus the signal.
/// Trackway's own errors before the command starts end with status 125, a command that cannot be
/// executed with 126, one that is not found with 127. The trace opens with trackway print,
/// babeltrace2 and Trace Compass.
///
/// Signals that are sent to trackway reach the command. Under sudo, command and recording run as,
/// and the trace belongs to, the user who called sudo.
///
/// While it records, trackway session, channel and event tell it what to do: it is the session
/// record-PID, by its process id.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    override_usage = "trackway record [OPTIONS] -- <CMD>...\n       \
    trackway record --kernel <LIST> [OPTIONS] [-- <CMD>...]"
)]
pub(crate) struct Arguments {
    /// Folder of the trace [default: trackway-DATE-TIME]
    ///
    /// The folder is new, empty, or holds an earlier trace and nothing else, which is moved to
    /// DIR.old, in the place of what was there.
    #[arg(short, long, value_name = "DIR", help_heading = MOST_USED)]
    pub(crate) output: Option<PathBuf>,
    /// Record only these events, such as 'web:*,!web:noise'
    ///
    /// A PATTERN matches provider:name; * stands for anything, a provider alone for all of its
    /// events, ! in front excludes (several: again, or by commas) [default: all events].
    #[arg(long, alias = "on", value_name = "PATTERN", value_delimiter = ',',
        help_heading = MOST_USED)]
    pub(crate) event: Vec<String>,
    /// Record only events where EXPR is true: 'status >= 400'
    ///
    /// With 'PATTERN: EXPR', the filter is for the events that match PATTERN, else for all. Of
    /// several filters for an event, all must be true (docs/guides/filters.md). Patterns as of
    /// --kernel are for kernel events.
    #[arg(long, value_name = "EXPR", allow_hyphen_values = true, help_heading = MOST_USED)]
    pub(crate) filter: Vec<String>,
    /// Trace C library calls: libc, pthread, dl, fd, fork, all
    ///
    /// Works with any program: libc (allocations), pthread (locks and waits), dl (shared objects),
    /// fd (file descriptors), fork (processes), or all.
    #[arg(long, value_name = "LIST", help_heading = MOST_USED)]
    pub(crate) preload: Option<String>,
    /// Record kernel events too: sched_*,syscalls (needs root)
    ///
    /// Records these events of the command and of what it starts: names or subsystems, with commas
    /// between them, such as sched_*,syscalls,irq_*; * stands for anything, ! in front excludes
    /// (trackway list --kernel shows them). Under sudo the command does not run as root.
    #[arg(long, value_name = "LIST", help_heading = MOST_USED)]
    pub(crate) kernel: Vec<String>,
    /// Record with each event: vtid, vpid, procname, ..., none
    #[arg(long, value_name = "LIST", help_heading = SUBJECT, long_help = context_help())]
    pub(crate) context: Option<String>,
    /// Read channels, events, filters and buffers from FILE
    ///
    /// trackway session save writes such files; kernel events are in them, too.
    #[arg(long, value_name = "FILE", help_heading = SUBJECT,
        conflicts_with_all = ["event", "filter", "filter_object", "context", "buffer_size",
        "sub_buffers", "tracefile_size", "tracefile_count", "overwrite", "reserve"])]
    pub(crate) config: Option<PathBuf>,
    /// Record only events that this filter in C takes
    ///
    /// FILE is what clang -target bpf or trackway filter compile has made
    /// (docs/guides/filters-in-c.md).
    #[arg(long, value_name = "[PATTERN: ]FILE", help_heading = SUBJECT, hide_short_help = true)]
    pub(crate) filter_object: Vec<PathBuf>,
    /// Record kernel events only
    ///
    /// CMD runs without the library that records its events, whose own system calls would be among
    /// the kernel's.
    #[arg(long, requires = "kernel", help_heading = SUBJECT, hide_short_help = true,
        conflicts_with_all = ["event", "preload", "sub_buffers", "reserve", "config"])]
    pub(crate) kernel_only: bool,
    /// Backend for kernel events
    ///
    /// By BPF programs, or by the kernel's tracefs, which does not give what programs point to,
    /// file names first of all, nor most contexts [default: bpf where the kernel allows it, else
    /// tracefs].
    #[arg(long, alias = "kernel-via", value_enum, value_name = "BACKEND", requires = "kernel",
        help_heading = SUBJECT, hide_short_help = true)]
    pub(crate) kernel_backend: Option<Backend>,
    /// Write how it went into FILE, as JSON
    ///
    /// Events, losses, bytes, how the command ended, and the messages: for scripts
    /// (docs/guides/reading.md).
    #[arg(long, value_name = "FILE", help_heading = WHERE, hide_short_help = true)]
    pub(crate) summary_json: Option<PathBuf>,
    /// Cut each stream into files of at most SIZE
    ///
    /// SIZE has K, M or G (KiB, MiB, GiB), and is at least that of a sub-buffer [default: one file,
    /// which grows].
    #[arg(long, value_name = "SIZE", help_heading = WHERE)]
    pub(crate) tracefile_size: Option<String>,
    /// Keep only the newest N files of each stream
    ///
    /// The oldest file is deleted when a new one begins; a CPU has one stream, seldom two or three
    /// [default: all].
    #[arg(long, value_name = "N", help_heading = WHERE, hide_short_help = true)]
    pub(crate) tracefile_count: Option<u64>,
    /// Buffer size for each CPU, such as 16M [default: 4M]
    ///
    /// SIZE is a number with K, M or G (KiB, MiB, GiB). The buffers of all CPUs are allocated
    /// before the command starts. Without this option, machines with many CPUs start with smaller
    /// buffers, which grow on demand.
    #[arg(long, value_name = "SIZE", help_heading = HOW_MUCH)]
    pub(crate) buffer_size: Option<String>,
    /// Keep the newest events
    ///
    /// The oldest events are overwritten, and the trace is written at the end.
    #[arg(long, visible_alias = "flight-recorder", help_heading = HOW_MUCH)]
    pub(crate) overwrite: bool,
    /// Sub-buffers for each CPU: a power of two, 2 to 256 [default: 64, or fewer of small buffers]
    #[arg(long, value_name = "N", help_heading = HOW_MUCH, hide_short_help = true)]
    pub(crate) sub_buffers: Option<u64>,
    /// Writer path, for comparisons: restartable sequences, with claims where those do not work;
    /// claims alone; or reserve and commit
    #[arg(long, value_enum, value_name = "WAY", default_value_t = ReserveBy::Rseq,
        help_heading = HOW_MUCH, hide_short_help = true)]
    pub(crate) reserve: ReserveBy,
    /// Without CMD: kernel events of this process
    ///
    /// Records this process, and what it starts from now on, until it has ended (of several, all of
    /// them), or Ctrl-C.
    #[arg(long, value_name = "PID", value_delimiter = ',', requires = "kernel",
        conflicts_with_all = ["system_wide", "cgroup", "command"], help_heading = PROCESSES,
        value_parser = crate::session::args::parse_pid)]
    pub(crate) pid: Vec<u32>,
    /// Kernel events of all processes, not of CMD only
    #[arg(long, alias = "system", requires = "kernel", help_heading = PROCESSES)]
    pub(crate) system_wide: bool,
    /// Run CMD and write the trace as this user (needs root)
    #[arg(long, value_name = "NAME|UID", help_heading = PROCESSES)]
    pub(crate) user: Option<String>,
    /// Kernel events of the processes in this control group (of version 2) and those below it,
    /// instead of those of the command: a folder, or as /proc/PID/cgroup has it
    #[arg(long, value_name = "PATH", requires = "kernel", conflicts_with = "system_wide",
        help_heading = PROCESSES, hide_short_help = true)]
    pub(crate) cgroup: Vec<PathBuf>,
    /// Kernel events of these CPUs alone, such as 0,2-3, whatever the process
    #[arg(long, value_name = "LIST", requires = "kernel", help_heading = PROCESSES,
        hide_short_help = true)]
    pub(crate) cpu: Option<String>,
    /// Print errors only
    #[arg(short, long, help_heading = HELP)]
    pub(crate) quiet: bool,
    /// The command and its arguments; with --kernel there may be none: everything is recorded then,
    /// until Ctrl-C
    #[arg(required_unless_present_any = ["kernel", "pid"], trailing_var_arg = true,
        value_name = "CMD", hide_short_help = true)]
    pub(crate) command: Vec<OsString>,
}

/// Values of `--reserve`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ReserveBy {
    /// Restartable sequences; claims where they do not work
    Rseq,
    /// Claims of a region by compare-and-swap
    Claim,
    /// The algorithm of LTTng's buffers: a writer killed in the middle loses what is in its
    /// sub-buffer, and all that comes a round later
    Lockless,
}

/// Help on `--context`: the contexts of programs are the names that [`join_names`] returns.
fn context_help() -> String {
    format!(
        "Record with each event: vtid, vpid, procname, ..., none\n\nOf programs' events: {}, \
         '$app.PROVIDER:NAME' of the program's own contexts (docs/guides/contexts.md), or none \
         [default: vtid]. Of kernel events, which all have tid: vpid, vtid and procname, too, and \
         pid, ppid, prio, nice, uid, euid, suid, gid, egid, sgid, cgroup_id, the namespaces \
         cgroup_ns, ipc_ns, mnt_ns, net_ns, pid_ns, time_ns, user_ns, uts_ns, and preemptible, \
         interruptible, need_reschedule, migratable where the kernel shows them.",
        join_names()
    )
}
