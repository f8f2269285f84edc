//! User-space tracers of whole commands, which record to disk or into flight recorders; and the
//! account of a command's events, from any number of processes.

use std::path::{Path, PathBuf};
use std::process::Command;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::child::{self, ProgramOutput};
use trackway_bench_engine::host::workspace::{BuildTools, Workspace};
use trackway_bench_engine::results::Account;
use trackway_bench_engine::tracer::{Availability, Tracer as _};

use super::daemon::Daemon;
use super::kernel::EventStorage;
use super::lttng::Lttng;
use super::trackway::{account_of_trace, set_trace_output, set_window};
use super::ust_session::{self, SESSION, SUB_BUFFERS, UstSession, ring_options};
use crate::trace_check;
use crate::trace_check::marks::{FoundMarks, MadeMarks, MarkEvent};

/// Folder of traces, in the scratch folder.
const TRACE_FOLDER: &str = "whole-trace";
/// Longest time of a command, in seconds.
const LIMIT_S: u64 = 60;
/// Name of LTTng's library that traces calls to the allocator; the dynamic loader finds it.
pub(crate) const LTTNG_LIBC: &str = "liblttng-ust-libc-wrapper.so.1";

/// The reason for missing events of the allocator, if the preload helper is not installed.
pub(crate) const NO_HELPER: &str = "libtrackway-libc.so is not beside this executable";

/// Returns the path of the preload helper, if it is installed.
pub(crate) fn find_preload_helper(tools: &BuildTools) -> Option<PathBuf> {
    let helper = tools.library.as_ref()?.with_file_name("libtrackway-libc.so");
    helper.is_file().then_some(helper)
}

/// The events of a command that the bench can check.
#[derive(Debug, Clone, Copy)]
pub(crate) enum KnownEvents {
    /// All events; their number is known.
    Count(u64),
    /// The marks of the command, which are among its calls to the allocator.
    Marks(EventStorage),
}

/// The result of a command.
#[derive(Debug)]
pub(crate) struct CommandOutcome {
    pub(crate) finished: ProgramOutput,
    /// The account of the known events.
    pub(crate) account: Account,
    /// Number of events that the tracer reports.
    pub(crate) events: u64,
}

impl CommandOutcome {
    /// Makes the outcome of a command whose trace is in a folder, given the account of all events
    /// by `tracer`.
    fn new(
        tracer: &str,
        trace: &Path,
        finished: ProgramOutput,
        known: KnownEvents,
        all: Account,
    ) -> Result<Self> {
        let events = all.recorded + all.lost + all.overwritten;
        let all = Account { emitted: events, ..all };
        let account = match known {
            KnownEvents::Count(emitted) => Account { emitted, ..all },
            KnownEvents::Marks(keep) => {
                let made = MadeMarks::of(&finished.stdout)?;
                let made = made.ok_or_else(|| Error::output("workload", "it makes no marks"))?;
                let seen = FoundMarks::read_trace(trace)?;
                made.account(tracer, (&seen, &[MarkEvent::Allocation]), keep, &all)?
            }
        };
        Ok(Self { finished, account, events })
    }
}

/// Runs a command under `trackway record OPTIONS`, with buffers of `bytes` for each CPU.
pub(crate) fn record_with_trackway(
    workspace: &Workspace,
    options: &[&str],
    bytes: u64,
    words: &[String],
    known: KnownEvents,
) -> Result<CommandOutcome> {
    workspace.clear(TRACE_FOLDER);
    let trace = workspace.path(TRACE_FOLDER);
    let mut command = Command::new(&workspace.tools.trackway);
    set_window(&mut command, workspace.window_dir());
    command.env("TRACKWAY_RUN_DIR", workspace.path("run"));
    command.arg("record").args(options).arg("--buffer-size").arg(bytes.to_string());
    set_trace_output(&mut command, &trace);
    command.arg("--").args(words);
    let finished = child::run_for(&mut command, "trackway record", LIMIT_S)?;
    let all = account_of_trace(&trace, 0)?;
    let whole = CommandOutcome::new("trackway record", &trace, finished, known, all);
    workspace.clear(TRACE_FOLDER);
    whole
}

/// LTTng-UST's daemon, and sessions that write to disk.
#[derive(Debug)]
pub(crate) struct Ust(Daemon);

impl Ust {
    /// Returns the reason if LTTng-UST is not available.
    pub(crate) fn absence(workspace: &Workspace) -> Option<String> {
        match Lttng::with_own_daemon().availability(workspace) {
            Availability::Ready => None,
            Availability::Missing(reason) => Some(reason),
        }
    }

    /// Returns the reason if LTTng's library for the allocator is absent: the dynamic loader only
    /// warns, and continues without the library.
    pub(crate) fn absence_of_libc(workspace: &Workspace) -> Option<String> {
        let loads = || {
            let [program, nothing] = workspace.tools.nothing();
            let mut command = Command::new(program);
            let tried = child::run(command.arg(nothing).env("LD_PRELOAD", LTTNG_LIBC), LTTNG_LIBC);
            tried.is_ok_and(|finished| finished.stderr.is_empty())
        };
        let missing = || (!loads()).then(|| format!("{LTTNG_LIBC} is not installed"));
        Self::absence(workspace).or_else(missing)
    }

    /// Starts the daemon.
    pub(crate) fn start(workspace: &Workspace) -> Result<Self> {
        Daemon::start(workspace).map(Self)
    }

    /// Returns the ids of the daemon's processes, as an argument of the workloads' `load`.
    pub(crate) fn processes(&self) -> String {
        let pids: Vec<String> = self.0.processes().iter().map(u32::to_string).collect();
        pids.join(",")
    }

    /// Runs a command with the library `preload`, while a session records the events of `rule` to
    /// disk.
    pub(crate) fn record(
        &self,
        workspace: &Workspace,
        (rule, preload, bytes): (&str, Option<&str>, u64),
        words: &[String],
        known: KnownEvents,
    ) -> Result<CommandOutcome> {
        workspace.clear(TRACE_FOLDER);
        let trace = workspace.path(TRACE_FOLDER);
        let session = UstSession {
            name: SESSION,
            is_snapshot: false,
            channel: &ring_options(bytes, SUB_BUFFERS),
            rules: &[rule],
            filter: None,
            contexts: &[],
        };
        let begun = session.begin_again(&self.0, &trace);
        let run = begun.and_then(|()| {
            let mut command = self.0.command(Path::new(&words[0]));
            command.args(&words[1..]);
            if let Some(preload) = preload {
                command.env("LD_PRELOAD", preload);
            }
            child::run_for(&mut command, "lttng-ust", LIMIT_S)
        });
        let ended = ust_session::end_session(&self.0, SESSION, false);
        let finished = run?;
        ended?;
        let all = trace_check::account_by_count(&trace, 0)?;
        let whole = CommandOutcome::new("lttng-ust", &trace, finished, known, all);
        workspace.clear(TRACE_FOLDER);
        whole
    }
}
