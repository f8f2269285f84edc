//! The command line, declared once: parsing, help, manual pages and completions come from here.

use std::ffi::OsString;
use std::num::NonZero;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use trackway_command_line::CommonArguments;
use trackway_command_line::help::{with_help_as_option, with_short_pages};

use crate::common::format::{Format, KernelWay};
use crate::help::{COMMAND_GROUPS, EVENTS, FORM, HELP, HOW_MUCH, MOST_USED, WHAT, WHERE, WHO};
use crate::session::arguments::{ChannelArguments, EventArguments, SessionArguments};

/// Trackway records, in time order, what programs do.
///
/// Examples:
///
///   trackway record -- ./app --its-args
///   trackway print trackway-20261121-093000
///
/// Events are recorded into buffers in shared memory, by restartable sequences; traces are CTF.
/// Without a command, trackway prints the first commands to try, with exit status 2.
#[derive(Debug, Parser)]
#[command(
    name = "trackway",
    bin_name = "trackway",
    version,
    verbatim_doc_comment,
    disable_help_flag = true,
    max_term_width = 100
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: CommonArguments,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

impl Arguments {
    /// Reads the command line.
    ///
    /// # Errors
    ///
    /// If it is wrong, or asks for what there is not; or for help or the version.
    pub(crate) fn read() -> Result<Self, clap::Error> {
        Self::parse_words(std::env::args_os().collect())?.checked()
    }

    /// Parses these words; `help` as a command is `--help` of what follows.
    pub(crate) fn parse_words(words: Vec<OsString>) -> Result<Self, clap::Error> {
        let command = with_short_pages(Self::command(), &COMMAND_GROUPS);
        let words = with_help_as_option(&command, words);
        let mut matches = command.try_get_matches_from(words)?;
        Self::from_arg_matches_mut(&mut matches)
    }

    /// Refuses what each option alone allows, but not all of them together.
    fn checked(self) -> Result<Self, clap::Error> {
        let Verb::Print(print) = &self.verb else { return Ok(self) };
        let Some(why) = print.has_no_form() else { return Ok(self) };
        let mut command = Self::command();
        // So that the verb's usage has the command's name in front.
        command.build();
        let verb = command.find_subcommand_mut("print");
        Err(verb.unwrap_or(&mut Self::command()).error(ErrorKind::ArgumentConflict, why))
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Record(RecordArguments),
    Session(SessionArguments),
    Channel(ChannelArguments),
    Event(EventArguments),
    Recover(RecoverArguments),
    List(ListArguments),
    Print(PrintArguments),
    Trim(TrimArguments),
    Merge(MergeArguments),
    Filter(crate::filter::Arguments),
    Doctor(crate::doctor::Arguments),
    Bench(crate::bench::Arguments),
    #[command(hide = true)]
    Completions(CompletionsArguments),
    #[command(hide = true)]
    Man(ManArguments),
}

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
pub(crate) struct RecordArguments {
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
    #[arg(long, value_name = "PATTERN", value_delimiter = ',', help_heading = MOST_USED)]
    pub(crate) on: Vec<String>,
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
    ///
    /// Of programs' events: vpid, vtid, procname, '$app.PROVIDER:NAME' of the program's own
    /// contexts (docs/guides/contexts.md), or none [default: vtid]. Of kernel events, which all
    /// have tid: vpid, vtid and procname, too, and pid, ppid, prio, nice, uid, euid, suid, gid,
    /// egid, sgid, cgroup_id, the namespaces cgroup_ns, ipc_ns, mnt_ns, net_ns, pid_ns, time_ns,
    /// user_ns, uts_ns, and preemptible, interruptible, need_reschedule, migratable where the
    /// kernel shows them.
    #[arg(long, value_name = "LIST", help_heading = WHAT)]
    pub(crate) context: Option<String>,
    /// Read channels, events, filters and buffers from FILE
    ///
    /// trackway session save writes such files; kernel events are in them, too.
    #[arg(long, value_name = "FILE", help_heading = WHAT,
        conflicts_with_all = ["on", "filter", "filter_object", "context", "buffer_size",
        "sub_buffers", "tracefile_size", "tracefile_count", "overwrite", "reserve"])]
    pub(crate) config: Option<PathBuf>,
    /// Record only events that this filter in C takes
    ///
    /// FILE is what clang -target bpf or trackway filter compile has made
    /// (docs/guides/filters-in-c.md).
    #[arg(long, value_name = "[PATTERN: ]FILE", help_heading = WHAT, hide_short_help = true)]
    pub(crate) filter_object: Vec<PathBuf>,
    /// Record kernel events only
    ///
    /// CMD runs without the library that records its events, whose own system calls would be among
    /// the kernel's.
    #[arg(long, requires = "kernel", help_heading = WHAT, hide_short_help = true,
        conflicts_with_all = ["on", "preload", "sub_buffers", "reserve", "config"])]
    pub(crate) kernel_only: bool,
    /// How kernel events are recorded
    ///
    /// By BPF programs, or by the kernel's tracefs, which does not give what programs point to,
    /// file names first of all, nor most contexts [default: bpf where the kernel allows it, else
    /// tracefs].
    #[arg(long, value_enum, value_name = "WAY", requires = "kernel", help_heading = WHAT,
        hide_short_help = true)]
    pub(crate) kernel_via: Option<KernelWay>,
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
    /// SIZE has K, M or G (KiB, MiB, GiB); memory for all of it is taken before the command starts.
    /// Without this option, machines with many CPUs begin with less and take more on need.
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
    /// How threads that write keep out of each other's way, for comparisons: by restartable
    /// sequence, by claim where that does not work; by claim alone; or by reserve and commit
    #[arg(long, value_enum, value_name = "WAY", default_value_t = ReserveBy::Rseq,
        help_heading = HOW_MUCH, hide_short_help = true)]
    pub(crate) reserve: ReserveBy,
    /// Without CMD: kernel events of this process
    ///
    /// Records this process, and what it starts from now on, until it has ended (of several, all of
    /// them), or Ctrl-C.
    #[arg(long, value_name = "PID", value_delimiter = ',', requires = "kernel",
        conflicts_with_all = ["system", "cgroup", "command"], help_heading = WHO,
        value_parser = crate::session::arguments::pid)]
    pub(crate) pid: Vec<u32>,
    /// Kernel events of all processes, not of CMD only
    #[arg(long, requires = "kernel", help_heading = WHO)]
    pub(crate) system: bool,
    /// Run CMD and write the trace as this user (needs root)
    #[arg(long, value_name = "NAME|UID", help_heading = WHO)]
    pub(crate) user: Option<String>,
    /// Kernel events of the processes in this control group (of version 2) and those below it,
    /// instead of those of the command: a folder, or as /proc/PID/cgroup has it
    #[arg(long, value_name = "PATH", requires = "kernel", conflicts_with = "system",
        help_heading = WHO, hide_short_help = true)]
    pub(crate) cgroup: Vec<PathBuf>,
    /// Kernel events of these CPUs alone, such as 0,2-3, whatever the process
    #[arg(long, value_name = "LIST", requires = "kernel", help_heading = WHO,
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
pub(crate) struct RecoverArguments {
    /// The trace's folder [default: all of this user's]
    #[arg(value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,

    /// Give up what cannot be completed where it was recorded, instead of writing it beside
    #[arg(long)]
    pub(crate) discard: bool,
}

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
/// Processes that have the library loaded, with their events, levels and fields; or the events of
/// the running kernel, with fields, types and meanings; or what is known of whoever an event
/// happens in.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct ListArguments {
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

/// Print traces as text, as babeltrace2 prints them.
///
/// Examples:
///
///   trackway print trackway-20261121-093000
///   trackway print --on 'myapp:req*' --begin 09:30 --end 09:31 DIR
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
pub(crate) struct PrintArguments {
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
    /// Which names to show: payload, context, header, scope, all, none
    #[arg(short, long, value_name = "LIST", help_heading = FORM, hide_short_help = true)]
    pub(crate) names: Option<String>,
    /// What to show before events' names: trace, trace:hostname, trace:domain, trace:procname,
    /// trace:vpid, loglevel, emf, callsite, all, none
    #[arg(short, long, value_name = "LIST", help_heading = FORM, hide_short_help = true)]
    pub(crate) fields: Option<String>,
    /// Write to this file [default: standard output]
    #[arg(short, long, value_name = "FILE", help_heading = WHERE)]
    pub(crate) output: Option<PathBuf>,
    /// Threads to read with [default: one for each processor]
    #[arg(short, long, value_name = "N", value_parser = jobs, help_heading = FORM,
        hide_short_help = true)]
    pub(crate) jobs: Option<NonZero<usize>>,
}

impl PrintArguments {
    /// Why there is nothing to print in the form that was asked for, if so.
    fn has_no_form(&self) -> Option<&'static str> {
        match self.format {
            EventFormat::Csv if self.details => Some(
                "--details has no --format csv: what traces say of themselves is no table; \
                 use --format json",
            ),
            EventFormat::None if self.details || self.stats => Some(
                "--format none prints nothing: leave it out with --stats and --details, or leave \
                 these out to see whether something is damaged",
            ),
            _ => None,
        }
    }
}

/// Which events.
#[derive(Debug, Args)]
pub(crate) struct SelectionArguments {
    /// Only events of this name, such as 'web:*,!web:noise'
    ///
    /// A PATTERN matches provider:name; * stands for anything, a provider alone for all of its
    /// events, ! in front excludes (several: again, or by commas).
    #[arg(long, value_name = "PATTERN", value_delimiter = ',', help_heading = MOST_USED)]
    pub(crate) on: Vec<String>,
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

/// Form of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EventFormat {
    /// As babeltrace2 prints it
    Text,
    /// An object on a line of its own
    Json,
    /// Comma-separated values, with a column for each field if all events are of one kind
    Csv,
    /// Nothing: read, decode, and tell of damage alone
    None,
}

/// Cut traces to a range of time, or to some events.
///
/// Examples:
///
///   trackway trim --begin 09:30 --end 09:31 -o minute DIR
///   trackway trim --on myapp --on '!myapp:noise' -o myapp DIR
///
/// What is written is a trace like the one that it was cut from. Damage is told on stderr, and
/// what is readable is written; packets that are not to be cut are copied as they are, damaged or
/// not. The exit status is 1 then, and 2 if nothing was written, also if nothing was to be.
///
/// A TIME is as for trackway print. All fields of an event stay as they were; so do the tracer's
/// counts of what it lost.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct TrimArguments {
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
    #[arg(short, long, value_name = "N", value_parser = jobs)]
    pub(crate) jobs: Option<NonZero<usize>>,
}

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
pub(crate) struct MergeArguments {
    /// Folders of traces, or names of sessions that record some (a folder comes first)
    #[arg(required = true, value_name = "DIR")]
    pub(crate) traces: Vec<PathBuf>,
    /// Folder to write to: new, or empty
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// Threads to work with [default: one for each processor]
    #[arg(short, long, value_name = "N", value_parser = jobs)]
    pub(crate) jobs: Option<NonZero<usize>>,
}

/// A number of threads, as it is typed.
fn jobs(text: &str) -> Result<NonZero<usize>, String> {
    let count = text.parse::<usize>().map_err(|_| "it is not a number of threads".to_owned())?;
    NonZero::new(count).ok_or_else(|| "at least one thread is needed".to_owned())
}

/// Threads to work with: as asked for, but no more than anybody can use.
pub(crate) fn threads(asked: Option<NonZero<usize>>) -> NonZero<usize> {
    const MOST: NonZero<usize> = NonZero::new(256).expect("not zero");
    asked.unwrap_or(trackway_reader::Settings::default().jobs).min(MOST)
}

/// Print a completion script.
///
/// Examples:
///
///   trackway completions bash > /usr/share/bash-completion/completions/trackway
///   trackway completions zsh > _trackway
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct CompletionsArguments {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

/// Write the manual pages.
///
/// Examples:
///
///   trackway man --output man1
///   trackway man
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct ManArguments {
    /// Folder to write them to
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) output: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Arguments, String> {
        let words = std::iter::once("trackway").chain(words.split(' ')).map(Into::into);
        let parsed = Arguments::parse_words(words.collect()).and_then(Arguments::checked);
        parsed.map_err(|error| error.to_string())
    }

    #[test]
    fn the_declaration_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn forms_that_would_print_nothing_are_refused() {
        for wrong in ["--details --format csv", "--details --format none", "--stats --format none"]
        {
            let error = parse(&format!("print {wrong} d")).expect_err(wrong);
            let (option, _) = wrong.split_once(' ').expect("two options");
            let advice = ["leave it out", "use --format json"];
            let has_advice = advice.iter().any(|advice| error.contains(advice));
            assert!(error.contains(option) && has_advice, "{error}");
            assert!(error.contains("Usage: trackway print "), "{error}");
        }
        for right in ["--details --format json", "--stats --format csv", "--format none"] {
            parse(&format!("print {right} d")).expect(right);
        }
        assert!(parse("print --count --format csv d").is_err());
    }

    #[test]
    fn numbers_of_threads_are_refused_in_words() {
        for verb in ["print d", "trim -o out d", "merge -o out d"] {
            let refused = |number| parse(&format!("{verb} -j {number}")).expect_err("refused");
            assert!(refused("0").contains("at least one thread is needed"), "{}", refused("0"));
            assert!(refused("two").contains("not a number of threads"), "{}", refused("two"));
            parse(&format!("{verb} -j 2")).expect("two threads");
        }
    }
}
