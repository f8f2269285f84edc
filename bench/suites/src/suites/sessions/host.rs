//! The interface through which sessions of either tracer are made, changed and ended.

use std::path::{Path, PathBuf};
use std::process::Command;

use trackway_bench_engine::error::Result;
use trackway_bench_engine::results::Account;

/// Name of the session, where there is one.
pub(super) const SESSION: &str = "lab";

/// Kinds of sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionKind {
    /// A flight recorder; LTTng's snapshot session.
    Flight,
    /// Into a folder; events that find no space are discarded.
    Disk,
}

impl SessionKind {
    /// Both.
    pub(super) const ALL: [Self; 2] = [Self::Flight, Self::Disk];

    /// Returns the description in words.
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
    /// [`crate::tracers::RING_BYTES`] for each CPU.
    Ring,
    /// The default of a new session.
    Default,
}

/// The properties of a new session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SessionProperties {
    /// The kind of the session.
    pub(super) kind: SessionKind,
    /// The size of its buffers.
    pub(super) buffers: SessionBuffers,
    /// True if `lab:number` is on from the beginning.
    pub(super) is_on: bool,
    /// Number of possible CPUs of the simulated machine; `None`: of this machine.
    pub(super) possible_cpus: Option<u32>,
}

impl SessionProperties {
    /// Makes the request for a recording session with default buffers.
    pub(super) const fn of(kind: SessionKind) -> Self {
        Self { kind, buffers: SessionBuffers::Default, is_on: true, possible_cpus: None }
    }
}

/// An owner of sessions: Trackway or LTTng.
pub(super) trait SessionHost {
    /// Makes a session, and starts it.
    fn create(&self, session: &str, wanted: SessionProperties) -> Result<()>;

    /// Switches `lab:number` on in [`SESSION`].
    fn event_on(&self) -> Result<()>;

    /// Switches it off.
    fn event_off(&self) -> Result<()>;

    /// Stops a session; all of its events are then in the trace, if that is a file.
    fn stop(&self, session: &str) -> Result<()>;

    /// Lets [`SESSION`] record again.
    fn start(&self) -> Result<()>;

    /// Returns the number of events that [`SESSION`] has recorded, if it reports that.
    fn recorded(&self) -> Result<Option<u64>>;

    /// Ends a session; returns the account of its events, by its trace, which stays until the next
    /// session of that name.
    fn end(&self, session: &str, kind: SessionKind, emitted: u64) -> Result<Account>;

    /// Returns the folder of a session's trace.
    fn trace(&self, session: &str) -> PathBuf;

    /// Ids of the processes that record [`SESSION`].
    fn recorders(&self) -> Result<Vec<u32>>;

    /// Bytes of shared memory that all sessions take.
    fn shared_bytes(&self) -> Result<u64>;

    /// Makes the command of the workload, which finds the sessions.
    fn program(&self) -> Command;

    /// Makes the command of the workload without a session.
    fn program_off(&self) -> Result<Command>;

    /// Ends all sessions that there are, as after a failure.
    fn clear(&self);
}

/// Returns a path as an argument.
pub(super) fn path_argument(path: &Path) -> String {
    path.display().to_string()
}
