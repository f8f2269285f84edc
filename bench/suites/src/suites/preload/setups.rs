//! Setups: the conditions under which a program is run.

use std::path::{Path, PathBuf};
use std::process::Command;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::child;
use trackway_bench_engine::host::workload::{self, Batch};
use trackway_bench_engine::host::workspace::{BuildTools, Workspace, create_private_dir, has};
use trackway_bench_engine::results::Account;
use trackway_bench_engine::suite::{Entry, SuiteContext};

use super::programs::{InstalledProgram, set_neutral_environment};
use crate::trace_check::{self, RecorderSummary};
use crate::tracers::RING_BYTES;
use crate::tracers::command_tracer::{self, LTTNG_LIBC, Ust};
use crate::tracers::daemon::Daemon;
use crate::tracers::trackway::{read_summary, set_trace_output};
use crate::tracers::ust_session::{self, SESSION, SUB_BUFFERS, UstSession, ring_options};

/// Name of the workload.
const PROGRAM: &str = "allocate";
/// Name of the library that only interposes.
const INTERPOSED: &str = "interpose";
/// Folder of traces, in the scratch folder.
const TRACE_FOLDER: &str = "preload-trace";

/// A program that allocates (`workloads/allocate.c`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Program {
    /// Counts words in a hash table, with many allocations.
    Words,
    /// Builds and frees binary trees, mostly by allocator calls.
    Trees,
    /// Calls malloc and free in pairs, and nothing else.
    Pairs,
}

impl Program {
    /// All programs.
    pub(super) const ALL: [Self; 3] = [Self::Words, Self::Trees, Self::Pairs];

    /// Returns the program's name in the workload's arguments.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Words => "words",
            Self::Trees => "trees",
            Self::Pairs => "pairs",
        }
    }

    /// Returns the program's size argument, with which a batch takes some milliseconds.
    const fn size(self) -> &'static str {
        match self {
            Self::Words => "50000",
            Self::Trees => "16",
            Self::Pairs => "300000",
        }
    }
}

/// The libraries and the session with which a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Setup {
    /// The program alone.
    Plain,
    /// With a library that intercepts malloc and only calls the original function.
    Interposed,
    /// With the preload helper, without a session.
    Idle,
    /// With LTTng's wrapper and daemon, without a session.
    LttngIdle,
    /// With the preload helper, into a flight recorder.
    Recorded,
    /// With LTTng's wrapper, into a snapshot session.
    LttngRecorded,
}

impl Setup {
    /// All setups; the first is the baseline of the others.
    pub(super) const ALL: [Self; 6] = [
        Self::Plain,
        Self::Interposed,
        Self::Idle,
        Self::LttngIdle,
        Self::Recorded,
        Self::LttngRecorded,
    ];

    /// Returns the name of the setup's row.
    pub(super) const fn tracer(self) -> &'static str {
        match self {
            Self::Plain => "none",
            Self::Interposed => "function-between",
            Self::Idle => "trackway-libc-off",
            Self::LttngIdle => "lttng-libc-wrapper-off",
            Self::Recorded => "trackway-libc",
            Self::LttngRecorded => "lttng-libc-wrapper",
        }
    }
}

/// The result of a run.
pub(super) struct Run {
    pub(super) batches: Vec<Batch>,
    pub(super) account: Option<Account>,
}

/// All setups that are possible on this machine.
pub(super) struct Setups {
    /// Paths of libtrackway-libc.so and libtrackway.so, in the form of LD_PRELOAD.
    helper: Option<String>,
    lttng: LttngDaemon,
}

/// The state of LTTng's daemon.
enum LttngDaemon {
    Runs(Daemon),
    Absent(String),
    Failed(String),
}

impl Setups {
    /// Compiles the programs, and starts LTTng's daemon.
    pub(super) fn set_up(context: &SuiteContext<'_>) -> Result<Self> {
        let workspace = context.workspace;
        if !has("cc") {
            return Err(Error::output("trackway bench preload", "no C compiler (cc) is installed"));
        }
        context.progress.show_step("compiling");
        workspace.compile(PROGRAM, &[])?;
        workspace.compile(INTERPOSED, &["-shared", "-fPIC", "-Wl,-z,now"])?;
        let helper = find_helper_and_library(&workspace.tools)
            .map(|[helper, library]| format!("{}:{}", helper.display(), library.display()));
        context.progress.show_step("setting up LTTng-UST");
        let lttng = match Ust::absence_of_libc(workspace) {
            Some(reason) => LttngDaemon::Absent(reason),
            None => match Daemon::start(workspace) {
                Ok(daemon) => LttngDaemon::Runs(daemon),
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) => LttngDaemon::Failed(error.to_string()),
            },
        };
        Ok(Self { helper, lttng })
    }

    /// Stores the reason in an entry if its setup is not possible.
    pub(super) fn set_absence(&self, setup: Setup, entry: Option<&mut Entry>) {
        let Some(entry) = entry else { return };
        match setup {
            Setup::Idle | Setup::Recorded if self.helper.is_none() => {
                let reason = "libtrackway-libc.so is not beside this executable";
                entry.absent = Some(reason.to_owned());
            }
            Setup::LttngIdle | Setup::LttngRecorded => match &self.lttng {
                LttngDaemon::Runs(_) => {}
                LttngDaemon::Absent(reason) => entry.absent = Some(reason.clone()),
                LttngDaemon::Failed(reason) => entry.failed = Some(reason.clone()),
            },
            _ => {}
        }
    }

    /// Runs a program, and checks that all expected events were recorded.
    pub(super) fn run(
        &self,
        workspace: &Workspace,
        setup: Setup,
        program: Program,
        batches: u32,
    ) -> Result<Run> {
        let workload = workspace.path(PROGRAM);
        let mut command = match setup {
            Setup::Recorded => {
                workspace.clear(TRACE_FOLDER);
                let mut command = Self::record_command(workspace);
                command.arg("--").arg(workload);
                command
            }
            Setup::LttngIdle | Setup::LttngRecorded => self.daemon()?.command(&workload),
            Setup::Plain | Setup::Interposed | Setup::Idle => Command::new(&workload),
        };
        self.set_environment(&mut command, workspace, setup)?;
        if matches!(setup, Setup::LttngIdle | Setup::LttngRecorded) {
            command.env("LD_PRELOAD", LTTNG_LIBC);
        }
        command.args([program.name(), &batches.to_string(), program.size()]);
        if setup == Setup::LttngRecorded {
            workspace.clear(TRACE_FOLDER);
            let session = UstSession {
                name: SESSION,
                is_snapshot: true,
                channel: &ring_options(RING_BYTES, SUB_BUFFERS),
                rules: &["lttng_ust_libc:*"],
                filter: None,
                contexts: &[],
            };
            session.begin_again(self.daemon()?, &workspace.path(TRACE_FOLDER))?;
        }
        let finished = child::run(&mut command, setup.tracer())?;
        let batches = workload::parse_batches(&finished.stdout)?;
        let calls: u64 = batches.iter().map(|batch| batch.events).sum();
        let account = match setup {
            Setup::Recorded => Some(read_account(&workspace.path(TRACE_FOLDER), calls)?),
            Setup::LttngRecorded => {
                ust_session::end_session(self.daemon()?, SESSION, true)?;
                Some(trace_check::account_of_unnumbered_overwrites(
                    &workspace.path(TRACE_FOLDER),
                    calls,
                )?)
            }
            _ => None,
        };
        Ok(Run { batches, account })
    }

    /// Sets the window and the libraries of a program for a setup.
    fn set_environment(
        &self,
        command: &mut Command,
        workspace: &Workspace,
        setup: Setup,
    ) -> Result<()> {
        command.env("TRACKWAY_WINDOW_DIR", Self::window_dir(workspace, setup)?);
        command.env_remove("TRACKWAY_TOKEN").env_remove("LD_PRELOAD");
        match setup {
            Setup::Interposed => command.env("LD_PRELOAD", workspace.path(INTERPOSED)),
            Setup::Idle => command.env("LD_PRELOAD", self.helper.as_deref().unwrap_or_default()),
            _ => command,
        };
        Ok(())
    }

    /// Returns the command of an installed program: alone, with a library that only interposes, or
    /// with the helper but without a session.
    pub(super) fn installed_command(
        &self,
        workspace: &Workspace,
        program: &InstalledProgram,
        setup: Setup,
    ) -> Result<Command> {
        let mut command = program.command();
        self.set_environment(&mut command, workspace, setup)?;
        Ok(command)
    }

    /// Records an installed program once; returns the number of its allocator calls.
    pub(super) fn count_calls(
        &self,
        workspace: &Workspace,
        program: &InstalledProgram,
    ) -> Result<u64> {
        workspace.clear(TRACE_FOLDER);
        let mut command = Self::record_command(workspace);
        command.arg("--").args(program.words());
        set_neutral_environment(&mut command);
        command.env("TRACKWAY_WINDOW_DIR", Self::window_dir(workspace, Setup::Recorded)?);
        child::run(&mut command, program.name)?;
        let calls = read_account(&workspace.path(TRACE_FOLDER), 0)?.emitted;
        if calls == 0 {
            return Err(Error::output(program.name, "it does not allocate"));
        }
        Ok(calls)
    }

    /// Makes the command `trackway record OPTIONS`, with the helper, into a flight recorder.
    fn record_command(workspace: &Workspace) -> Command {
        let mut command = Command::new(&workspace.tools.trackway);
        command.args(["record", "--flight-recorder", "--context", "none"]);
        command.args(["--preload", "libc", "--buffer-size", &RING_BYTES.to_string()]);
        set_trace_output(&mut command, &workspace.path(TRACE_FOLDER));
        command
    }

    /// Returns the folder of a window that only the bench uses. For a setup without a session, this
    /// window never had a session.
    fn window_dir(workspace: &Workspace, setup: Setup) -> Result<PathBuf> {
        if setup == Setup::Recorded {
            return Ok(workspace.window_dir().to_owned());
        }
        let folder = workspace.window_dir().join("idle");
        create_private_dir(&folder)?;
        Ok(folder)
    }

    fn daemon(&self) -> Result<&Daemon> {
        match &self.lttng {
            LttngDaemon::Runs(daemon) => Ok(daemon),
            _ => Err(Error::output("lttng-sessiond", "it is not running")),
        }
    }
}

/// Returns the account of a recording from its summary. There must be an event for each of `calls`
/// calls, and some more from the program's start and end.
fn read_account(trace: &Path, calls: u64) -> Result<Account> {
    account_of_summary(&read_summary(trace)?, calls)
}

fn account_of_summary(summary: &RecorderSummary, calls: u64) -> Result<Account> {
    let emitted = summary.recorded + summary.lost + summary.overwritten;
    if emitted < calls {
        return Err(Error::output(
            "trackway record",
            format_args!("{emitted} events of {calls} calls"),
        ));
    }
    Ok(Account {
        emitted,
        recorded: summary.recorded,
        lost: summary.lost,
        overwritten: summary.overwritten,
        record_bytes: 0,
    })
}

/// Returns the paths of the helper and the library, if both exist.
fn find_helper_and_library(tools: &BuildTools) -> Option<[PathBuf; 2]> {
    Some([command_tracer::find_preload_helper(tools)?, tools.library.clone()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_events_are_an_error() {
        let summary = RecorderSummary { recorded: 5, lost: 1, overwritten: 7 };
        let found = account_of_summary(&summary, 12).expect("enough");
        assert_eq!((found.emitted, found.is_complete()), (13, true));
        let error = account_of_summary(&summary, 14).unwrap_err().to_string();
        assert_eq!(error, "trackway record: 13 events of 14 calls");
    }
}
