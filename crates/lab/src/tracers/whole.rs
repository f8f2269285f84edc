//! Tracers of user space around whole commands: what a command's events became, of however many
//! processes, recorded to disk or into flight recorders.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::daemon::Daemon;
use super::lttng::Lttng;
use super::trackway::{account, in_window};
use crate::child::{self, Finished};
use crate::error::{Error, Result};
use crate::place::{Kit, Place};
use crate::readback::{self, RecorderSummary};
use crate::results::Account;
use crate::tracer::{Availability, Tracer as _};

/// Where traces go, in the scratch folder.
const TRACE: &str = "whole-trace";
/// Longest that a command has, in seconds.
const LIMIT_S: u64 = 60;
/// LTTng's library that traces what programs ask of the allocator, wherever the loader finds it.
pub(crate) const LTTNG_LIBC: &str = "liblttng-ust-libc-wrapper.so.1";
/// Name of LTTng's sessions: there is one at a time.
const SESSION: &str = "lab";
/// Sub-buffers of each ring of LTTng's; its default.
const SUB_BUFFERS: u64 = 4;

/// Our helper that does, if it is here.
pub(crate) fn helper(kit: &Kit) -> Option<PathBuf> {
    let helper = kit.library.as_ref()?.with_file_name("libtrackway-libc.so");
    helper.is_file().then_some(helper)
}

/// Runs a command under `trackway record OPTIONS`, with so many bytes of buffers for each CPU. Of
/// `emitted` events, or of those that it says there were.
pub(crate) fn trackway(
    place: &Place,
    options: &[&str],
    bytes: u64,
    words: &[String],
    emitted: Option<u64>,
) -> Result<(Finished, Account)> {
    place.clear(TRACE);
    let trace = place.path(TRACE);
    let mut command = Command::new(&place.kit.trackway);
    in_window(&mut command, place.window_dir());
    command.env("TRACKWAY_RUN_DIR", place.path("run"));
    command.arg("record").args(options).arg("--buffer-size").arg(bytes.to_string());
    command.arg("-o").arg(&trace).arg("--").args(words);
    let finished = child::run_for(&mut command, "trackway record", LIMIT_S)?;
    let said = RecorderSummary::parse(&finished.stderr).unwrap_or_default();
    let emitted = emitted.unwrap_or(said.recorded + said.lost + said.overwritten);
    let account = account(&trace, &finished.stderr, emitted);
    place.clear(TRACE);
    Ok((finished, account?))
}

/// LTTng-UST's daemon, and sessions that write to disk.
#[derive(Debug)]
pub(crate) struct Ust(Daemon);

impl Ust {
    /// Why it cannot be had, if it cannot.
    pub(crate) fn absence(place: &Place) -> Option<String> {
        match Lttng::alone().availability(place) {
            Availability::Ready => None,
            Availability::Missing(reason) => Some(reason),
        }
    }

    /// The same of its library for the allocator: the loader says so if it is not there, and goes
    /// on without.
    pub(crate) fn absence_of_libc(place: &Place) -> Option<String> {
        let loads = || {
            let [program, nothing] = place.kit.nothing();
            let output = Command::new(program).arg(nothing).env("LD_PRELOAD", LTTNG_LIBC).output();
            output.is_ok_and(|output| output.status.success() && output.stderr.is_empty())
        };
        let missing = || (!loads()).then(|| format!("{LTTNG_LIBC} is not installed"));
        Self::absence(place).or_else(missing)
    }

    /// Starts the daemon.
    pub(crate) fn start(place: &Place) -> Result<Self> {
        Daemon::start(place).map(Self)
    }

    /// Its processes, as the workloads' `load` takes them.
    pub(crate) fn processes(&self) -> String {
        let pids: Vec<String> = self.0.processes().iter().map(u32::to_string).collect();
        pids.join(",")
    }

    /// Runs a command, with this library in front of it, while a session records what `rule`
    /// selects. Of `emitted` events, or of those that it says there were.
    pub(crate) fn record(
        &self,
        place: &Place,
        (rule, preload, bytes): (&str, Option<&str>, u64),
        words: &[String],
        emitted: Option<u64>,
    ) -> Result<(Finished, Account)> {
        place.clear(TRACE);
        let trace = place.path(TRACE);
        let begun = self.begin(&trace, rule, bytes);
        let run = begun.and_then(|()| {
            let mut command = self.0.command(Path::new(&words[0]));
            command.args(&words[1..]);
            if let Some(preload) = preload {
                command.env("LD_PRELOAD", preload);
            }
            child::run_for(&mut command, "lttng-ust", LIMIT_S)
        });
        let ended = self.0.lttng(&["destroy", SESSION]);
        let finished = run?;
        ended?;
        let counted = readback::count(&trace)?.unwrap_or_default();
        place.clear(TRACE);
        let account = Account {
            emitted: emitted.unwrap_or(counted.events + counted.discarded),
            recorded: counted.events,
            lost: counted.discarded,
            overwritten: 0,
            record_bytes: counted.record_bytes,
        };
        Ok((finished, account))
    }

    fn begin(&self, trace: &Path, rule: &str, bytes: u64) -> Result<()> {
        let output = trace.to_str().ok_or_else(|| Error::output("lttng", "no such folder"))?;
        let size = format!("--subbuf-size={}", bytes / SUB_BUFFERS);
        let count = format!("--num-subbuf={SUB_BUFFERS}");
        // One may be left from a run that failed.
        let _ = self.0.lttng(&["destroy", SESSION]);
        self.0.lttng(&["create", SESSION, &format!("--output={output}")])?;
        self.0.lttng(&["enable-channel", "--userspace", &size, &count, "channel"])?;
        self.0.lttng(&["enable-event", "--userspace", "--channel=channel", rule])?;
        self.0.lttng(&["start"])
    }
}
