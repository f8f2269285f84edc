//! LTTng-UST's sessions, with a session daemon of the lab's own.

use std::path::PathBuf;
use std::process::Command;

use super::host::{Buffers, Host, Kind, SESSION, Wanted, text};
use crate::error::{Error, Result};
use crate::place::Place;
use crate::readback::{self, Size};
use crate::results::Account;
use crate::tracers::RING_BYTES;
use crate::tracers::daemon::Daemon;
use crate::tracers::lttng::shared_bytes;

/// The workload.
const PROGRAM: &str = "sessions-lttng";
/// Sub-buffers of a ring; LTTng's default.
const SUB_BUFFERS: u64 = 4;

/// LTTng's sessions.
#[derive(Debug)]
pub(super) struct Theirs<'a> {
    place: &'a Place,
    daemon: &'a Daemon,
}

impl<'a> Theirs<'a> {
    /// Compiles the workload, and starts the daemon.
    pub(super) fn set_up(place: &Place) -> Result<Daemon> {
        let provider = text(&place.path("lttng-provider.c"));
        place.compile(PROGRAM, &[&provider, "-llttng-ust", "-ldl"])?;
        Daemon::start(place)
    }

    /// Those of a daemon.
    pub(super) const fn new(place: &'a Place, daemon: &'a Daemon) -> Self {
        Self { place, daemon }
    }

    /// `lttng VERB` for the event of a session.
    fn event(&self, verb: &str, session: &str) -> Result<()> {
        let of = format!("--session={session}");
        self.daemon.lttng(&[verb, "--userspace", &of, "--channel=channel", "lab:number"])
    }
}

impl Host for Theirs<'_> {
    fn create(&self, session: &str, wanted: Wanted) -> Result<()> {
        let folder = self.trace(session);
        // One may be left from the round before.
        let _ = std::fs::remove_dir_all(&folder);
        let output = format!("--output={}", folder.display());
        let of = format!("--session={session}");
        let size = format!("--subbuf-size={}", RING_BYTES / SUB_BUFFERS);
        let count = format!("--num-subbuf={SUB_BUFFERS}");
        let mut create = vec!["create", session, &output];
        if wanted.kind == Kind::Flight {
            create.push("--snapshot");
        }
        self.daemon.lttng(&create)?;
        let mut channel = vec!["enable-channel", "--userspace", &of];
        if wanted.buffers == Buffers::Ring {
            channel.extend([size.as_str(), &count]);
        }
        channel.push("channel");
        self.daemon.lttng(&channel)?;
        if wanted.is_on {
            self.event("enable-event", session)?;
        }
        self.daemon.lttng(&["start", session])
    }

    fn event_on(&self) -> Result<()> {
        self.event("enable-event", SESSION)
    }

    fn event_off(&self) -> Result<()> {
        self.event("disable-event", SESSION)
    }

    fn stop(&self, session: &str) -> Result<()> {
        self.daemon.lttng(&["stop", session])
    }

    fn start(&self) -> Result<()> {
        self.daemon.lttng(&["start", SESSION])
    }

    fn recorded(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    fn end(&self, session: &str, kind: Kind, emitted: u64) -> Result<Account> {
        if kind == Kind::Flight {
            // Destroying one that was destroyed already is an error; a stopped one is not.
            self.stop(session)?;
            self.daemon.lttng(&["snapshot", "record", &format!("--session={session}")])?;
        }
        self.daemon.lttng(&["destroy", session])?;
        let (trace, emitted) = (self.trace(session), &[emitted]);
        match kind {
            Kind::Flight => readback::overwritten(&trace, emitted, Size::Same),
            Kind::Disk => readback::kept(&trace, emitted),
        }
    }

    fn trace(&self, session: &str) -> PathBuf {
        self.place.path(&format!("lttng-{session}"))
    }

    fn recorders(&self) -> Result<Vec<u32>> {
        Ok(self.daemon.processes())
    }

    fn shared_bytes(&self) -> Result<u64> {
        let bytes = shared_bytes(&self.daemon.processes());
        bytes.ok_or_else(|| Error::output("lttng-sessiond", "its files may not be looked at"))
    }

    fn program(&self) -> Command {
        self.daemon.command(&self.place.path(PROGRAM))
    }

    fn program_off(&self) -> Result<Command> {
        Ok(self.program())
    }

    fn clear(&self) {
        // Fails if there is none, which is as well.
        let _ = self.daemon.lttng(&["destroy", "--all"]);
    }
}
