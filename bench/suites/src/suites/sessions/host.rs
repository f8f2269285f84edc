//! The interface through which sessions of Trackway or LTTng are created, changed and ended.

use std::path::{Path, PathBuf};
use std::process::Command;

use trackway_bench_engine::error::Result;
use trackway_bench_engine::results::Account;

/// Name of the session, if there is only one.
pub(super) const SESSION: &str = "lab";

/// Kinds of sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionKind {
    /// A flight recorder; LTTng's snapshot session.
    Flight,
    /// A session that writes to a folder; events that find no space are discarded.
    Disk,
}

impl SessionKind {
    /// Both kinds of sessions.
    pub(super) const ALL: [Self; 2] = [Self::Flight, Self::Disk];

    /// Returns the description of the kind in words.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Flight => "flight recorder",
            Self::Disk => "to a folder",
        }
    }
}

/// Buffers of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionBuffers {
    /// Buffers of [`crate::tracers::RING_BYTES`] for each CPU.
    Ring,
    /// The default buffers of a new session.
    Default,
}

/// The properties of a new session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SessionProperties {
    /// The kind of the session.
    pub(super) kind: SessionKind,
    /// The size of the session's buffers.
    pub(super) buffers: SessionBuffers,
    /// True if `lab:number` is enabled from the beginning.
    pub(super) is_on: bool,
    /// Number of possible CPUs of the simulated machine; `None` for this machine.
    pub(super) possible_cpus: Option<u32>,
}

impl SessionProperties {
    /// Makes the properties of a session that records with default buffers.
    pub(super) const fn of(kind: SessionKind) -> Self {
        Self { kind, buffers: SessionBuffers::Default, is_on: true, possible_cpus: None }
    }
}

/// An owner of sessions: Trackway or LTTng.
pub(super) trait SessionHost {
    /// Creates a session, and starts it.
    fn create(&self, session: &str, wanted: SessionProperties) -> Result<()>;

    /// Enables `lab:number` in [`SESSION`].
    fn event_on(&self) -> Result<()>;

    /// Disables `lab:number` in [`SESSION`].
    fn event_off(&self) -> Result<()>;

    /// Stops a session; the trace then contains all of its events, if the trace is a file.
    fn stop(&self, session: &str) -> Result<()>;

    /// Starts [`SESSION`] again after a stop.
    fn start(&self) -> Result<()>;

    /// Returns the number of events that [`SESSION`] has recorded, if the session reports it.
    fn recorded(&self) -> Result<Option<u64>>;

    /// Ends a session; returns the account of its events from its trace. The trace remains until
    /// the next session of that name.
    fn end(&self, session: &str, kind: SessionKind, emitted: u64) -> Result<Account>;

    /// Returns the folder of a session's trace.
    fn trace(&self, session: &str) -> PathBuf;

    /// Returns the ids of the processes that record [`SESSION`].
    fn recorders(&self) -> Result<Vec<u32>>;

    /// Returns the bytes of shared memory of all sessions.
    fn shared_bytes(&self) -> Result<u64>;

    /// Makes the command of the workload, which finds the sessions.
    fn program(&self) -> Command;

    /// Makes the command of the workload without a session.
    fn program_off(&self) -> Result<Command>;

    /// Ends all existing sessions, after a failure.
    fn clear(&self);
}

/// Returns a path as an argument.
pub(super) fn path_argument(path: &Path) -> String {
    path.display().to_string()
}
