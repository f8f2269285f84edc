//! LTTng-UST's sessions, with a session daemon that only the bench uses.

use std::path::PathBuf;
use std::process::Command;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::workspace::Workspace;
use trackway_bench_engine::results::Account;

use super::host::{
    SESSION, SessionBuffers, SessionHost, SessionKind, SessionProperties, path_argument,
};
use crate::trace_check::{self, EventSizeKind};
use crate::tracers::RING_BYTES;
use crate::tracers::daemon::Daemon;
use crate::tracers::lttng::shared_bytes;
use crate::tracers::ust_session::{self, SUB_BUFFERS, UstSession, ring_options};

/// Name of the workload.
const PROGRAM: &str = "sessions-lttng";
/// Name of the workload's event.
const EVENT: &str = "lab:number";

/// LTTng's sessions.
#[derive(Debug)]
pub(super) struct LttngSessions<'a> {
    workspace: &'a Workspace,
    daemon: &'a Daemon,
}

impl<'a> LttngSessions<'a> {
    /// Compiles the workload, and starts the daemon.
    pub(super) fn set_up(workspace: &Workspace) -> Result<Daemon> {
        let provider = path_argument(&workspace.path("lttng-provider.c"));
        workspace.compile(PROGRAM, &[&provider, "-llttng-ust", "-ldl"])?;
        Daemon::start(workspace)
    }

    /// Makes the sessions of a daemon.
    pub(super) const fn new(workspace: &'a Workspace, daemon: &'a Daemon) -> Self {
        Self { workspace, daemon }
    }
}

impl SessionHost for LttngSessions<'_> {
    fn create(&self, session: &str, wanted: SessionProperties) -> Result<()> {
        let folder = self.trace(session);
        // A trace of the previous round may remain.
        let _ = std::fs::remove_dir_all(&folder);
        let rings = ring_options(RING_BYTES, SUB_BUFFERS);
        let session = UstSession {
            name: session,
            is_snapshot: wanted.kind == SessionKind::Flight,
            channel: if wanted.buffers == SessionBuffers::Ring { &rings } else { &[] },
            rules: if wanted.is_on { &[EVENT] } else { &[] },
            filter: None,
            contexts: &[],
        };
        session.begin(self.daemon, &folder)
    }

    fn event_on(&self) -> Result<()> {
        ust_session::run_event_command(self.daemon, "enable-event", SESSION, EVENT, None)
    }

    fn event_off(&self) -> Result<()> {
        ust_session::run_event_command(self.daemon, "disable-event", SESSION, EVENT, None)
    }

    fn stop(&self, session: &str) -> Result<()> {
        self.daemon.run_lttng(&["stop", session])
    }

    fn start(&self) -> Result<()> {
        self.daemon.run_lttng(&["start", SESSION])
    }

    fn recorded(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    fn end(&self, session: &str, kind: SessionKind, emitted: u64) -> Result<Account> {
        ust_session::end_session(self.daemon, session, kind == SessionKind::Flight)?;
        let trace = self.trace(session);
        match kind {
            SessionKind::Flight => {
                trace_check::account_with_overwrites(&trace, &[emitted], EventSizeKind::Same)
            }
            // Each process numbers its own events, or only some of the numbers are recorded.
            SessionKind::Disk => trace_check::account_by_count(&trace, emitted),
        }
    }

    fn trace(&self, session: &str) -> PathBuf {
        self.workspace.path(&format!("lttng-{session}"))
    }

    fn recorders(&self) -> Result<Vec<u32>> {
        Ok(self.daemon.processes())
    }

    fn shared_bytes(&self) -> Result<u64> {
        let bytes = shared_bytes(&self.daemon.processes());
        bytes.ok_or_else(|| Error::output("lttng-sessiond", "its files may not be looked at"))
    }

    fn program(&self) -> Command {
        self.daemon.command(&self.workspace.path(PROGRAM))
    }

    fn program_off(&self) -> Result<Command> {
        Ok(self.program())
    }

    fn clear(&self) {
        // An error is ignored: there may be no session.
        let _ = self.daemon.run_lttng(&["destroy", "--all"]);
    }
}
