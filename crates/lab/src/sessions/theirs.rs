//! LTTng-UST's sessions, with a session daemon of the lab's own.

use std::path::PathBuf;
use std::process::Command;

use super::host::{Buffers, Host, RING_BYTES, text};
use super::results::{Kind, Who};
use crate::error::{Error, Result};
use crate::place::Place;
use crate::readback;
use crate::results::Account;
use crate::tracers::daemon::Daemon;
use crate::tracers::lttng::shared_bytes;

/// The workload.
const PROGRAM: &str = "sessions-lttng";
/// Sub-buffers of a ring; LTTng's default.
const SUB_BUFFERS: u64 = 4;

/// LTTng's sessions.
#[derive(Debug)]
pub(super) struct Theirs<'place> {
    place: &'place Place,
    daemon: Daemon,
}

impl<'place> Theirs<'place> {
    /// Compiles the workload, and starts the daemon.
    pub(super) fn set_up(place: &'place Place) -> Result<Self> {
        let provider = text(&place.path("lttng-provider.c"));
        place.compile(PROGRAM, &[&provider, "-llttng-ust", "-ldl"])?;
        Ok(Self { place, daemon: Daemon::start(place)? })
    }
}

impl Host for Theirs<'_> {
    fn who(&self) -> Who {
        Who::Lttng
    }

    fn create(&self, session: &str, kind: Kind, buffers: Buffers, is_on: bool) -> Result<()> {
        let folder = self.trace(session);
        // One may be left from the round before.
        let _ = std::fs::remove_dir_all(&folder);
        let output = format!("--output={}", folder.display());
        let of = format!("--session={session}");
        let size = format!("--subbuf-size={}", RING_BYTES / SUB_BUFFERS);
        let count = format!("--num-subbuf={SUB_BUFFERS}");
        let mut create = vec!["create", session, &output];
        if kind == Kind::Flight {
            create.push("--snapshot");
        }
        self.daemon.lttng(&create)?;
        let mut channel = vec!["enable-channel", "--userspace", &of];
        if buffers == Buffers::Ring {
            channel.extend([size.as_str(), &count]);
        }
        channel.push("channel");
        self.daemon.lttng(&channel)?;
        if is_on {
            self.event_on(session)?;
        }
        self.start(session)
    }

    fn event_on(&self, session: &str) -> Result<()> {
        let of = format!("--session={session}");
        let arguments = ["enable-event", "--userspace", &of, "--channel=channel", "lab:number"];
        self.daemon.lttng(&arguments)
    }

    fn event_off(&self, session: &str) -> Result<()> {
        let of = format!("--session={session}");
        let arguments = ["disable-event", "--userspace", &of, "--channel=channel", "lab:number"];
        self.daemon.lttng(&arguments)
    }

    fn stop(&self, session: &str) -> Result<()> {
        self.daemon.lttng(&["stop", session])
    }

    fn start(&self, session: &str) -> Result<()> {
        self.daemon.lttng(&["start", session])
    }

    fn end(&self, session: &str, kind: Kind, emitted: u64) -> Result<Account> {
        if kind == Kind::Flight {
            // Destroying one that was destroyed already is an error; a stopped one is not.
            self.stop(session)?;
            self.daemon.lttng(&["snapshot", "record", &format!("--session={session}")])?;
        }
        self.daemon.lttng(&["destroy", session])?;
        let counted = readback::count(&self.trace(session))?.unwrap_or_default();
        // A stream that is no flight recorder begins with what was discarded before, if anything
        // was: that is counted already.
        let overwritten = if kind == Kind::Flight { counted.before_first } else { 0 };
        if kind == Kind::Flight && counted.gaps > 0 {
            let message = format!("{} numbers are missing within its snapshot", counted.gaps);
            return Err(Error::output(session, message));
        }
        Ok(Account {
            emitted,
            recorded: counted.events,
            lost: counted.discarded,
            overwritten,
            record_bytes: counted.record_bytes,
        })
    }

    fn trace(&self, session: &str) -> PathBuf {
        self.place.path(&format!("lttng-{session}"))
    }

    fn recorders(&self, _session: &str) -> Result<Vec<u32>> {
        Ok(self.daemon.processes())
    }

    fn shared_bytes(&self) -> Result<u64> {
        let bytes = shared_bytes(&self.daemon.processes());
        bytes.ok_or_else(|| Error::output("lttng-sessiond", "its files may not be looked at"))
    }

    fn program(&self) -> Command {
        self.daemon.command(&self.place.path(PROGRAM))
    }

    fn clear(&self) {
        // Fails if there is none, which is as well.
        let _ = self.daemon.lttng(&["destroy", "--all"]);
    }
}
