//! The command line of `trackway session`, `channel` and `event`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use trackway_recorder::Level;
use trackway_schema::context::join_names;

use crate::common::format::{Backend, Format};
use crate::help::{HELP, HOW_MUCH, MOST_USED, PROCESSES, SUBJECT, WHERE};

/// Record in the background, and say how it goes on.
///
/// Examples:
///
///   trackway session create web --event 'web:*'
///   trackway session create flight --flight-recorder
///   trackway session snapshot flight --last 10s
///   trackway session status web
///   trackway session destroy web
///
/// A session is a recorder in the background. It records all programs of the user that have events:
/// those that run, and those that are started later. Where there is only one session, commands need
/// not name it.
///
/// trackway record is the same recorder in the foreground, for one command: while it runs, it is
/// told what to do as session record-PID, by its process id. Commands that name no session mean one
/// in the background, if there is any.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct SessionArguments {
    #[command(subcommand)]
    pub(crate) verb: SessionVerb,
}

/// Subcommands of `trackway session`.
#[derive(Debug, Subcommand)]
pub(crate) enum SessionVerb {
    Create(Box<CreateArguments>),
    /// Record again
    Start(NameArguments),
    /// Stop recording; what was recorded before is in the trace when this returns
    Stop(NameArguments),
    /// End sessions; their traces are complete when this returns, and programs go on
    Destroy(DestroyArguments),
    /// List sessions
    List(ListArguments),
    /// Say how a session goes
    Status(StatusArguments),
    /// Write what is in a flight recorder
    Snapshot(SnapshotArguments),
    /// Forget what was recorded: the trace so far, and what is in flight recorders
    Clear(NameArguments),
    Save(SaveArguments),
    Load(LoadArguments),
    #[command(hide = true)]
    Recorder,
}

/// Begin a session.
///
/// Examples:
///
///   trackway session create web --event 'web:*,!web:noise' -o web-trace
///   trackway session create slow --filter 'web:request: duration > 10ms'
///   trackway session create flight --flight-recorder --snapshot-on-crash
///   sudo trackway session create sched --kernel 'sched_*' --flight-recorder
///   trackway session create errors --event '*' --level error
///   trackway session create slow --filter-object 'web:request: slow.o'
///   trackway session create nginx --executable nginx --context vtid,procname
///   sudo trackway session create all --user all -o /var/log/traces/all
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct CreateArguments {
    /// Name of the session, of letters, digits, '.', '-' and '_'
    ///
    /// With --load, the default is the name in the file.
    #[arg(value_name = "NAME", required_unless_present = "load")]
    pub(crate) name: Option<String>,
    /// Folder of the trace [default: trackway-NAME-DATE-TIME]
    ///
    /// The folder is new, empty, or holds an earlier trace and nothing else, which is moved to
    /// DIR.old (or DIR.old-2, …: nothing is deleted).
    #[arg(short, long, value_name = "DIR", help_heading = MOST_USED)]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) rules: RuleArguments,
    /// Record kernel events too: sched_*,syscalls (needs root)
    ///
    /// Records these events of everything that runs, or of the processes of --pid and what they
    /// start from then on: names or subsystems, with commas between them, ! in front excludes, as
    /// record --kernel has them. Sizes, trace files and --flight-recorder are for them, too; so are
    /// filters that name them, and contexts of theirs (pid, prio, …: see record --help-all).
    #[arg(long, value_name = "LIST", conflicts_with_all = ["executable", "pid_namespace"],
        help_heading = MOST_USED)]
    pub(crate) kernel: Vec<String>,
    /// Read the options of the session from FILE
    ///
    /// trackway session save writes such a file.
    #[arg(long, value_name = "FILE", help_heading = SUBJECT, hide_short_help = true,
        conflicts_with_all = ["event", "filter",
        "filter_object", "level", "level_only", "exclude",
        "context", "buffer_size", "sub_buffers", "tracefile_size", "tracefile_count",
        "overwrite", "blocking_timeout", "pid", "executable", "pid_namespace",
        "user", "kernel", "kernel_only", "kernel_backend", "cgroup", "cpu"])]
    pub(crate) load: Option<PathBuf>,
    /// Record kernel events only
    #[arg(long, requires = "kernel", help_heading = SUBJECT, hide_short_help = true,
        conflicts_with_all = ["event", "level", "level_only", "exclude",
        "filter_object", "sub_buffers", "blocking_timeout", "user", "snapshot_on_crash"])]
    pub(crate) kernel_only: bool,
    /// Backend for kernel events, as record --kernel-backend
    #[arg(long, alias = "kernel-via", value_enum, value_name = "BACKEND", requires = "kernel",
        help_heading = SUBJECT, hide_short_help = true)]
    pub(crate) kernel_backend: Option<Backend>,
    #[command(flatten)]
    pub(crate) channel: ChannelOptions,
    /// Write a snapshot when a traced process crashes
    ///
    /// A crash is a death by a signal such as SIGSEGV.
    #[arg(long, help_heading = HOW_MUCH)]
    pub(crate) snapshot_on_crash: bool,
    /// Record kernel events of the processes in this control group (of version 2) and those below
    /// it: a folder, or as /proc/PID/cgroup has it
    #[arg(long, value_name = "PATH", requires = "kernel", conflicts_with = "pid",
        help_heading = PROCESSES, hide_short_help = true)]
    pub(crate) cgroup: Vec<PathBuf>,
    /// Record kernel events of these CPUs alone, such as 0,2-3, whatever the process
    #[arg(long, value_name = "LIST", requires = "kernel", help_heading = PROCESSES,
        hide_short_help = true)]
    pub(crate) cpu: Option<String>,
    /// Programs of this user, or all (needs root)
    ///
    /// A user goes by name or number (several: again, or by commas) [default: your own programs].
    #[arg(long, value_name = "NAME|UID|all", value_delimiter = ',', help_heading = PROCESSES)]
    pub(crate) user: Vec<String>,
    /// Do not record yet; trackway session start does
    #[arg(long, help_heading = HELP, hide_short_help = true)]
    pub(crate) no_start: bool,
    /// Record in the foreground, until SIGTERM or Ctrl-C
    ///
    /// For service managers, which are told when it is there (sd_notify(3)). The exit status is 0,
    /// 1 if it ended without being told to, or 2 if it could not begin.
    #[arg(long, help_heading = HELP, hide_short_help = true)]
    pub(crate) foreground: bool,
    /// Print errors only
    #[arg(short, long, help_heading = HELP)]
    pub(crate) quiet: bool,
}

/// Options that select events.
#[derive(Debug, Args)]
pub(crate) struct RuleArguments {
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
    /// several filters for an event, all must be true (docs/guides/filters.md).
    #[arg(long, value_name = "EXPR", allow_hyphen_values = true, help_heading = MOST_USED)]
    pub(crate) filter: Vec<String>,
    #[command(flatten)]
    pub(crate) levels: LevelArguments,
    /// Record none of the events that match: the same as --event '!PATTERN'
    #[arg(long, value_name = "PATTERN", value_delimiter = ',', help_heading = SUBJECT,
        hide_short_help = true)]
    pub(crate) exclude: Vec<String>,
    /// Record only events that this filter in C takes
    ///
    /// FILE is what clang -target bpf or trackway filter compile has made; its bytes stay with the
    /// session (docs/guides/filters-in-c.md).
    #[arg(long, value_name = "[PATTERN: ]FILE", help_heading = SUBJECT, hide_short_help = true)]
    pub(crate) filter_object: Vec<PathBuf>,
}

/// Options that select levels.
#[derive(Debug, Args)]
pub(crate) struct LevelArguments {
    /// Only events of this level and more severe ones
    ///
    /// Levels: emerg, alert, crit, error, warning, notice, info, debug-system, … debug.
    #[arg(long, value_name = "LEVEL", value_parser = parse_level, help_heading = SUBJECT)]
    pub(crate) level: Option<Level>,
    /// Only events of exactly this level
    #[arg(long, value_name = "LEVEL", value_parser = parse_level, conflicts_with = "level",
        help_heading = SUBJECT, hide_short_help = true)]
    pub(crate) level_only: Option<Level>,
}

/// Help on `--context`: the contexts of programs are the names that [`join_names`] returns.
fn context_help() -> String {
    format!(
        "Record with each event: vtid, vpid, procname, ..., none\n\n{}, '$app.PROVIDER:NAME' of \
         programs' own contexts (docs/guides/contexts.md), or none [default: vtid].",
        join_names()
    )
}

/// Buffers, contexts and processes of a channel. What is not said is as usual, or stays.
#[derive(Debug, Args)]
pub(crate) struct ChannelOptions {
    /// Keep the newest events
    ///
    /// They stay in memory, and the oldest are overwritten; snapshots write them.
    #[arg(long, visible_alias = "flight-recorder", help_heading = MOST_USED)]
    pub(crate) overwrite: bool,
    /// Record with each event: vtid, vpid, procname, ..., none
    #[arg(long, value_name = "LIST", help_heading = SUBJECT, long_help = context_help())]
    pub(crate) context: Option<String>,
    /// Cut each stream into files of at most SIZE
    ///
    /// SIZE has K, M or G (KiB, MiB, GiB), and is at least that of a sub-buffer; 0: one file, which
    /// grows [default: 0].
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = WHERE)]
    pub(crate) tracefile_size: Option<u64>,
    /// Keep only the newest N files of each stream
    ///
    /// The oldest file is deleted when a new one begins; a CPU has one stream, seldom two or three;
    /// 0: all [default: 0].
    #[arg(long, value_name = "N", help_heading = WHERE, hide_short_help = true)]
    pub(crate) tracefile_count: Option<u64>,
    /// Buffer size for each CPU, such as 16M [default: 4M]
    ///
    /// SIZE has K, M or G (KiB, MiB, GiB); all of it is allocated at the start. Without this
    /// option, memory is allocated as it is needed.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = HOW_MUCH)]
    pub(crate) buffer_size: Option<u64>,
    /// Sub-buffers for each CPU: a power of two, 2 to 256 [default: 64, or fewer of small buffers]
    #[arg(long, value_name = "N", help_heading = HOW_MUCH, hide_short_help = true)]
    pub(crate) sub_buffers: Option<u64>,
    /// Longest wait for buffer space of programs that were started with TRACKWAY_ALLOW_BLOCKING=1,
    /// such as 10ms; 0: they do not wait [default: 0]
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = HOW_MUCH,
        hide_short_help = true)]
    pub(crate) blocking_timeout: Option<std::time::Duration>,
    /// Only this process (several: again, or by commas)
    #[arg(long, value_name = "PID", value_delimiter = ',', value_parser = parse_pid,
        help_heading = PROCESSES)]
    pub(crate) pid: Vec<u32>,
    /// Only programs whose file name (or path) matches
    ///
    /// A PATTERN with a / in it is for the path of the executable, else for its file name.
    #[arg(long, value_name = "PATTERN", help_heading = PROCESSES)]
    pub(crate) executable: Vec<String>,
    /// Only processes of the process-id namespace with this inode number, as of a container:
    /// stat -Lc %i /proc/PID/ns/pid
    #[arg(long, value_name = "INODE", value_delimiter = ',', value_parser = parse_inode,
        help_heading = PROCESSES, hide_short_help = true)]
    pub(crate) pid_namespace: Vec<u64>,
}

/// Option for one session.
#[derive(Debug, Args)]
pub(crate) struct NameArguments {
    /// The session [default: the only one]
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
}

/// Options of `trackway session destroy`.
#[derive(Debug, Args)]
pub(crate) struct DestroyArguments {
    /// The session [default: the only one]
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// All sessions in the background, but not what trackway record records
    #[arg(long, conflicts_with = "name")]
    pub(crate) all: bool,
}

/// Options of `trackway session list`.
#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// Form of the list
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// Options of `trackway session status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArguments {
    /// The session [default: the only one]
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Form of the answer
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// Options of `trackway session snapshot`.
#[derive(Debug, Args)]
pub(crate) struct SnapshotArguments {
    /// The session [default: the only one]
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Folder to write to; an earlier trace there is moved to DIR.old, in the place of what was
    /// there [default: snapshot-1, -2, … in the session's folder; of trackway record,
    /// DIR.snapshot-1, -2, … beside its trace]
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Only the last so many seconds, in whole sub-buffers: 10s, 500ms, 2m
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) last: Option<std::time::Duration>,
}

/// Write what a session is to a file that trackway session load reads.
///
/// Examples:
///
///   trackway session save web -o web.toml
///   trackway session save web
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct SaveArguments {
    /// The session [default: the only one]
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// File to write to, which must not be there [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Write over the file, if it is there
    #[arg(short, long, requires = "output")]
    pub(crate) force: bool,
}

/// Begin a session as a file says.
///
/// Examples:
///
///   trackway session load web.toml
///   trackway session load web.toml other-name
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct LoadArguments {
    /// The file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The session's name [default: that in the file]
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Say nothing but errors
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// Add, change and remove channels of sessions, while they record.
///
/// Examples:
///
///   trackway channel add web rare --event 'web:error' --buffer-size 64K
///   trackway channel set web channel0 --context vtid,procname
///   trackway channel remove web rare
///
/// A channel has buffers, events, contexts and processes of its own. Other contexts or sizes begin
/// other streams in the trace; no event is lost by it.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct ChannelArguments {
    #[command(subcommand)]
    pub(crate) verb: ChannelVerb,
}

/// Subcommands of `trackway channel`.
#[derive(Debug, Subcommand)]
pub(crate) enum ChannelVerb {
    /// Add a channel
    Add(Box<AddArguments>),
    /// Change a channel
    Set(Box<SetArguments>),
    /// Remove a channel; what it recorded stays in the trace
    Remove(RemoveArguments),
}

/// The channel to add.
#[derive(Debug, Args)]
pub(crate) struct AddArguments {
    /// The session
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,
    /// The channel's name
    #[arg(value_name = "CHANNEL")]
    pub(crate) channel: String,
    #[command(flatten)]
    pub(crate) rules: RuleArguments,
    #[command(flatten)]
    pub(crate) options: ChannelOptions,
}

/// The channel to change, and how.
#[derive(Debug, Args)]
pub(crate) struct SetArguments {
    /// The session
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,
    /// The channel
    #[arg(value_name = "CHANNEL")]
    pub(crate) channel: String,
    #[command(flatten)]
    pub(crate) options: ChannelOptions,
    /// Discard events that find no room, instead of overwriting the oldest
    #[arg(long, conflicts_with = "overwrite", help_heading = HOW_MUCH)]
    pub(crate) discard: bool,
    /// Select any process
    #[arg(long, help_heading = PROCESSES,
        conflicts_with_all = ["pid", "executable", "pid_namespace"])]
    pub(crate) any_process: bool,
}

/// The channel to remove.
#[derive(Debug, Args)]
pub(crate) struct RemoveArguments {
    /// The session
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,
    /// The channel
    #[arg(value_name = "CHANNEL")]
    pub(crate) channel: String,
}

/// Switch events on and off, while sessions record.
///
/// Examples:
///
///   trackway event off web 'web:noise'
///   trackway event on web 'db:*' --level warning
///   trackway event on web 'web:request' --only
///   trackway event on web 'web:request' --filter 'status >= 400'
///   trackway event on web 'web:request' --filter-object slow.o
///   trackway event off web '!web:noise'
///   trackway event on web --kernel syscalls:openat --filter 'filename == "/etc/*"'
///
/// A PATTERN is for provider:name; * stands for anything, a provider alone for all of its events.
/// What is switched off is excluded from what other rules mean. Switching off what is exactly a
/// rule takes the rule back, and !PATTERN an exclusion: what other rules say of its events is so.
/// Filters that are about no other events go with it.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct EventArguments {
    #[command(subcommand)]
    pub(crate) verb: EventVerb,
}

/// Subcommands of `trackway event`.
#[derive(Debug, Subcommand)]
pub(crate) enum EventVerb {
    /// Record events that match
    On(OnArguments),
    /// Record events that match no more
    Off(OffArguments),
}

/// The events to switch on.
#[derive(Debug, Args)]
pub(crate) struct OnArguments {
    /// The session
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,
    /// Patterns of events
    #[arg(value_name = "PATTERN", required = true, value_delimiter = ',')]
    pub(crate) patterns: Vec<String>,
    /// The channel [default: the only one]
    #[arg(long, value_name = "CHANNEL")]
    pub(crate) channel: Option<String>,
    #[command(flatten)]
    pub(crate) levels: LevelArguments,
    /// Events of the kernel, of a session that records some (trackway list --kernel shows them)
    #[arg(long, conflicts_with_all = ["channel", "level", "level_only", "only"])]
    pub(crate) kernel: bool,
    /// These instead of those that were on
    #[arg(long)]
    pub(crate) only: bool,
    /// Record of them those of which EXPR is true, instead of what had to be true before; '' takes
    /// that away (docs/guides/filters.md)
    #[arg(long, value_name = "EXPR", allow_hyphen_values = true)]
    pub(crate) filter: Option<String>,
    /// The same by a filter in C, as clang -target bpf or trackway filter compile has made it
    /// (docs/guides/filters-in-c.md)
    #[arg(long, value_name = "FILE", conflicts_with = "filter")]
    pub(crate) filter_object: Option<PathBuf>,
}

/// The events to switch off.
#[derive(Debug, Args)]
pub(crate) struct OffArguments {
    /// The session
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,
    /// Patterns of events; with ! in front, the exclusion to take back
    #[arg(value_name = "PATTERN", required = true, value_delimiter = ',')]
    pub(crate) patterns: Vec<String>,
    /// The channel [default: the only one]
    #[arg(long, value_name = "CHANNEL")]
    pub(crate) channel: Option<String>,
    /// Events of the kernel
    #[arg(long, conflicts_with = "channel")]
    pub(crate) kernel: bool,
}

fn parse_level(text: &str) -> Result<Level, String> {
    Level::parse(text).map_err(|error| error.to_string())
}

fn parse_size(text: &str) -> Result<u64, String> {
    trackway_recorder::parse_size(text).map_err(|error| error.to_string())
}

pub(crate) fn parse_pid(text: &str) -> Result<u32, String> {
    let pid = text.parse().ok().filter(|pid| *pid > 0);
    pid.ok_or_else(|| "a process id is a number, as pgrep(1) finds it by a name".into())
}

fn parse_inode(text: &str) -> Result<u64, String> {
    let inode = text.parse().ok().filter(|inode| *inode > 0);
    inode.ok_or_else(|| "a namespace goes by its inode number: stat -Lc %i /proc/PID/ns/pid".into())
}

fn parse_time(text: &str) -> Result<std::time::Duration, String> {
    trackway_recorder::parse_duration(text).map_err(|error| error.to_string())
}
