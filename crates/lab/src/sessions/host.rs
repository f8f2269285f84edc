//! The interface through which sessions of either tracer are made, changed and ended.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::results::{Kind, Who};
use crate::error::Result;
use crate::results::Account;

/// Rings of sessions whose events' cost is measured, for each CPU, in bytes: the same for both.
pub(super) const RING_BYTES: u64 = 1 << 20;

/// Buffers of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Buffers {
    /// [`RING_BYTES`].
    Ring,
    /// What a user gets who says nothing.
    Default,
}

/// What holds sessions: ours or LTTng's.
pub(super) trait Host {
    /// Whose they are.
    fn who(&self) -> Who;

    /// Makes a session that records, with `lab:number` on or off.
    fn create(&self, session: &str, kind: Kind, buffers: Buffers, is_on: bool) -> Result<()>;

    /// Switches `lab:number` on.
    fn event_on(&self, session: &str) -> Result<()>;

    /// Switches it off.
    fn event_off(&self, session: &str) -> Result<()>;

    /// Records no more; all that was recorded is in the trace, if that is a file.
    fn stop(&self, session: &str) -> Result<()>;

    /// Records again.
    fn start(&self, session: &str) -> Result<()>;

    /// Ends the session: what became of its events, by its trace, which stays until [`Self::clear`]
    /// or the next session of that name.
    fn end(&self, session: &str, kind: Kind, emitted: u64) -> Result<Account>;

    /// Folder of the session's trace.
    fn trace(&self, session: &str) -> PathBuf;

    /// Ids of the processes that record the session.
    fn recorders(&self, session: &str) -> Result<Vec<u32>>;

    /// Bytes of shared memory that all sessions take.
    fn shared_bytes(&self) -> Result<u64>;

    /// The workload, in sight of the sessions.
    fn program(&self) -> Command;

    /// Ends all sessions that there are, as after a failure.
    fn clear(&self);
}

/// A command in words, for errors.
pub(super) fn words(program: &str, arguments: &[&str]) -> String {
    format!("{program} {}", arguments.join(" "))
}

/// A path as an argument.
pub(super) fn text(path: &Path) -> String {
    path.display().to_string()
}
