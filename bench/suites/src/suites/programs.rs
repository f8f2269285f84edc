//! Programs of a suite, recorded by Trackway or by LTTng-UST in the same way as users record.
//!
//! `prepare_command` makes the command that runs a program, and `finish_run` reads the account of
//! its events; the suite runs the program in between.

use std::path::{Path, PathBuf};
use std::process::Command;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::workspace::{Workspace, has};
use trackway_bench_engine::results::Account;
use trackway_bench_engine::tracer::{Availability, Tracer as _};

use crate::trace_check::{self, EventSizeKind};
use crate::tracers::daemon::Daemon;
use crate::tracers::lttng::Lttng;
use crate::tracers::trackway::{
    account_of_thread, check_availability, link_flags, make_idle_window_dir, set_trace_output,
    set_window,
};
use crate::tracers::ust_session::{self, SESSION, SUB_BUFFERS, UstSession, ring_options};
use crate::tracers::{FLOW_BYTES, RING_BYTES};

/// Folder of traces, in the scratch folder.
const TRACE_FOLDER: &str = "programs-trace";

/// The library that a program is linked with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkedLibrary {
    /// No library.
    Nothing,
    /// Trackway's library.
    Trackway,
    /// LTTng-UST's library.
    Lttng,
}

/// The destination of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Storage {
    /// No destination: there is no session.
    Off,
    /// A ring, which is read after the run.
    Ring,
    /// A file, written during the run.
    File,
}

/// The conditions under which a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Conditions {
    pub(crate) linked: LinkedLibrary,
    pub(crate) storage: Storage,
    /// True if the program does not use restartable sequences.
    pub(crate) is_claim: bool,
}

/// The parts that all programs of a suite share.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    daemon: Option<Daemon>,
}

impl Programs {
    /// Returns the reason if programs with this library are not available on this machine.
    pub(crate) fn absence(workspace: &Workspace, linked: LinkedLibrary) -> Option<String> {
        let found = match linked {
            LinkedLibrary::Nothing if has("cc") => Availability::Ready,
            LinkedLibrary::Nothing => {
                Availability::Missing("no C compiler (cc) is installed".to_owned())
            }
            LinkedLibrary::Trackway => check_availability(&workspace.tools, has("cc")),
            LinkedLibrary::Lttng => Lttng::with_own_daemon().availability(workspace),
        };
        match found {
            Availability::Ready => None,
            Availability::Missing(reason) => Some(reason),
        }
    }

    /// Compiles `NAME.c` of the workloads, and starts LTTng's daemon if the program needs it.
    pub(crate) fn set_up(
        &mut self,
        workspace: &Workspace,
        linked: LinkedLibrary,
        name: &str,
    ) -> Result<PathBuf> {
        let flags = match linked {
            LinkedLibrary::Nothing => Vec::new(),
            LinkedLibrary::Trackway => link_flags(workspace)?,
            LinkedLibrary::Lttng => {
                let provider = workspace.path("lttng-provider.c").display().to_string();
                vec![provider, "-llttng-ust".to_owned(), "-ldl".to_owned()]
            }
        };
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let program = workspace.compile(name, &flags)?;
        if linked == LinkedLibrary::Lttng && self.daemon.is_none() {
            self.daemon = Some(Daemon::start(workspace)?);
        }
        Ok(program)
    }

    fn daemon(&self) -> Result<&Daemon> {
        self.daemon.as_ref().ok_or_else(|| Error::output("lttng-sessiond", "it is not running"))
    }

    /// Makes a command that runs `words`, a program with its arguments, under these conditions. For
    /// LTTng, also starts the session, which `finish_run` ends.
    pub(crate) fn prepare_command(
        &self,
        workspace: &Workspace,
        conditions: Conditions,
        words: &[&str],
    ) -> Result<Command> {
        let [program, arguments @ ..] = words else {
            return Err(Error::output("trackway-bench", "no program"));
        };
        workspace.clear(TRACE_FOLDER);
        let mut command = match (conditions.linked, conditions.storage) {
            (LinkedLibrary::Nothing, _) => Command::new(program),
            (LinkedLibrary::Trackway, Storage::Off) => {
                let mut command = Command::new(program);
                set_window(&mut command, &make_idle_window_dir(workspace)?);
                command
            }
            (LinkedLibrary::Trackway, storage) => {
                record_command(workspace, conditions.is_claim, storage, program)
            }
            (LinkedLibrary::Lttng, storage) => {
                if storage != Storage::Off {
                    self.start_session(workspace, storage)?;
                }
                self.daemon()?.command(Path::new(program))
            }
        };
        command.args(arguments);
        Ok(command)
    }

    /// Makes and starts LTTng's session.
    fn start_session(&self, workspace: &Workspace, storage: Storage) -> Result<()> {
        let is_snapshot = storage != Storage::File;
        let bytes = if is_snapshot { RING_BYTES } else { FLOW_BYTES };
        let session = UstSession {
            name: SESSION,
            is_snapshot,
            channel: &ring_options(bytes, SUB_BUFFERS),
            rules: &["lab:*", "lttng_ust_tracef:*"],
            filter: None,
            contexts: &[],
        };
        session.begin_again(self.daemon()?, &workspace.path(TRACE_FOLDER))
    }

    /// Returns the account of the `emitted` events of a program that has ended; `None` without a
    /// session.
    pub(crate) fn finish_run(
        &self,
        workspace: &Workspace,
        conditions: Conditions,
        emitted: u64,
    ) -> Result<Option<Account>> {
        match (conditions.linked, conditions.storage) {
            (LinkedLibrary::Nothing, _) | (_, Storage::Off) => return Ok(None),
            (LinkedLibrary::Trackway, _) => {
                return account_of_thread(&workspace.path(TRACE_FOLDER), emitted).map(Some);
            }
            (LinkedLibrary::Lttng, storage) => {
                ust_session::end_session(self.daemon()?, SESSION, storage == Storage::Ring)?;
            }
        }
        let (trace, emitted) = (workspace.path(TRACE_FOLDER), &[emitted]);
        match conditions.storage {
            // Some of these events contain text.
            Storage::Ring => {
                trace_check::account_with_overwrites(&trace, emitted, EventSizeKind::Text).map(Some)
            }
            _ => trace_check::account_without_overwrites(&trace, emitted).map(Some),
        }
    }
}

/// Makes the command `trackway record … -- PROGRAM`.
fn record_command(
    workspace: &Workspace,
    is_claim: bool,
    storage: Storage,
    program: &str,
) -> Command {
    let mut command = Command::new(&workspace.tools.trackway);
    command.args(["record", "--context", "none"]);
    if is_claim {
        command.args(["--reserve", "claim"]);
    }
    let bytes = match storage {
        Storage::Ring | Storage::Off => {
            command.arg("--flight-recorder");
            RING_BYTES
        }
        Storage::File => FLOW_BYTES,
    };
    set_trace_output(
        command.args(["--buffer-size", &bytes.to_string()]),
        &workspace.path(TRACE_FOLDER),
    );
    command.arg("--").arg(program);
    set_window(&mut command, workspace.window_dir());
    command
}
