//! How a program is run: the same program, in surroundings that differ.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::programs::{Real, as_everywhere};
use super::results::{Program, Way};
use crate::child;
use crate::error::{Error, Result};
use crate::place::{Kit, Place, has, make_dir};
use crate::progress::Progress;
use crate::readback::{self, RecorderSummary};
use crate::results::Note;
use crate::tracer::{Availability, Tracer as _};
use crate::tracers::daemon::Daemon;
use crate::tracers::{Lttng, RING_BYTES};
use crate::workload::Batch;

/// The workload.
const PROGRAM: &str = "allocate";
/// What only comes between.
const INTERPOSED: &str = "interpose";
/// Where traces go, in the scratch folder.
const TRACE: &str = "preload-trace";
/// LTTng's library, wherever the loader finds it.
const LTTNG_LIBRARY: &str = "liblttng-ust-libc-wrapper.so.1";
/// Name of LTTng's sessions: there is one at a time.
const SESSION: &str = "lab";
/// Sub-buffers of each ring of LTTng's; its default.
const SUB_BUFFERS: u64 = 4;

/// All ways, as far as they can be gone here.
pub(super) struct Ways {
    gone: Vec<Way>,
    /// libtrackway-libc.so and libtrackway.so, as LD_PRELOAD has them.
    helper: String,
    daemon: Option<Daemon>,
}

impl Ways {
    /// Compiles the programs, starts LTTng's daemon, and notes what is not here.
    pub(super) fn set_up(
        place: &Place,
        progress: &Progress,
        notes: &mut Vec<Note>,
    ) -> Result<Self> {
        if !has("cc") {
            return Err(Error::output("trackway bench preload", "no C compiler (cc) is installed"));
        }
        progress.say("compiling");
        place.compile(PROGRAM, &[])?;
        place.compile(INTERPOSED, &["-shared", "-fPIC", "-Wl,-z,now"])?;
        let mut ways = Self { gone: Vec::new(), helper: String::new(), daemon: None };
        match helper(&place.kit) {
            Some([helper, library]) => {
                ways.helper = format!("{}:{}", helper.display(), library.display());
            }
            None => {
                ways.gone.extend([Way::Idle, Way::Recorded]);
                let reason = "libtrackway-libc.so is not beside this executable";
                notes.push(Note::skipped(Way::Idle.name(), reason));
            }
        }
        progress.say("setting up LTTng-UST");
        match lttng_availability(place) {
            Availability::Ready => ways.daemon = Some(Daemon::start(place)?),
            Availability::Missing(reason) => {
                ways.gone.extend([Way::LttngIdle, Way::LttngRecorded]);
                notes.push(Note::skipped("LTTng's libc-wrapper", &reason));
            }
        }
        Ok(ways)
    }

    /// Whether it can be gone.
    pub(super) fn has(&self, way: Way) -> bool {
        !self.gone.contains(&way)
    }

    /// It failed.
    pub(super) fn leave_out(&mut self, way: Way) {
        self.gone.push(way);
    }

    /// Runs a program, and checks that what should be recorded was.
    pub(super) fn run(
        &self,
        place: &Place,
        way: Way,
        program: Program,
        batches: u32,
    ) -> Result<Vec<Batch>> {
        let workload = place.path(PROGRAM);
        let mut command = match way {
            Way::Recorded => {
                place.clear(TRACE);
                let mut command = Self::recorder(place);
                command.arg("--").arg(workload);
                command
            }
            Way::LttngIdle | Way::LttngRecorded => self.daemon()?.command(&workload),
            Way::Plain | Way::Interposed | Way::Idle => Command::new(&workload),
        };
        command.env("TRACKWAY_WINDOW_DIR", self.window_dir(place, way)?);
        command.env_remove("TRACKWAY_TOKEN").env_remove("LD_PRELOAD");
        match way {
            Way::Interposed => command.env("LD_PRELOAD", place.path(INTERPOSED)),
            Way::Idle => command.env("LD_PRELOAD", &self.helper),
            Way::LttngIdle | Way::LttngRecorded => command.env("LD_PRELOAD", LTTNG_LIBRARY),
            Way::Plain | Way::Recorded => &mut command,
        };
        command.args([program.name(), &batches.to_string(), program.size()]);
        if way == Way::LttngRecorded {
            self.begin_lttng(place)?;
        }
        let finished = child::run(&mut command, way.name())?;
        let batches = super::batches(&finished.stdout)?;
        let calls: u64 = batches.iter().map(|batch| batch.events).sum();
        match way {
            Way::Recorded => check(way, recorded(&finished.stderr)?, calls)?,
            Way::LttngRecorded => check(way, self.end_lttng(place)?, 1)?,
            _ => {}
        }
        Ok(batches)
    }

    /// A program that is installed, alone, with what only comes between, or with our helper while
    /// nobody records.
    pub(super) fn real(&self, place: &Place, program: &Real, way: Way) -> Result<Command> {
        let mut command = program.command();
        command.env("TRACKWAY_WINDOW_DIR", self.window_dir(place, way)?);
        match way {
            Way::Interposed => command.env("LD_PRELOAD", place.path(INTERPOSED)),
            Way::Idle => command.env("LD_PRELOAD", &self.helper),
            _ => &mut command,
        };
        Ok(command)
    }

    /// Records it once: how often it calls the allocator.
    pub(super) fn count_calls(&self, place: &Place, program: &Real) -> Result<u64> {
        place.clear(TRACE);
        let mut command = Self::recorder(place);
        command.arg("--").args(program.words());
        as_everywhere(&mut command);
        command.env("TRACKWAY_WINDOW_DIR", self.window_dir(place, Way::Recorded)?);
        let finished = child::run(&mut command, program.name)?;
        let calls = recorded(&finished.stderr)?;
        if calls == 0 {
            return Err(Error::output(program.name, "it does not allocate"));
        }
        Ok(calls)
    }

    /// `trackway record OPTIONS`, with our helper, into a flight recorder.
    fn recorder(place: &Place) -> Command {
        let mut command = Command::new(&place.kit.trackway);
        command.args(["record", "--flight-recorder", "--context", "none"]);
        command.args(["--preload", "libc", "--buffer-size", &RING_BYTES.to_string()]);
        command.arg("-o").arg(place.path(TRACE));
        command
    }

    /// Of a window that only the lab uses; where nobody records, of one that no session was in.
    fn window_dir(&self, place: &Place, way: Way) -> Result<PathBuf> {
        if way == Way::Recorded {
            return Ok(place.window_dir().to_owned());
        }
        let folder = place.window_dir().join("idle");
        make_dir(&folder)?;
        Ok(folder)
    }

    fn daemon(&self) -> Result<&Daemon> {
        self.daemon.as_ref().ok_or_else(|| Error::output("lttng-sessiond", "it is not running"))
    }

    /// Makes and starts a session that keeps the newest events.
    fn begin_lttng(&self, place: &Place) -> Result<()> {
        place.clear(TRACE);
        let daemon = self.daemon()?;
        // One may be left from a run that failed.
        let _ = daemon.lttng(&["destroy", SESSION]);
        let output = format!("--output={}", place.path(TRACE).display());
        let size = format!("--subbuf-size={}", RING_BYTES / SUB_BUFFERS);
        let count = format!("--num-subbuf={SUB_BUFFERS}");
        daemon.lttng(&["create", SESSION, "--snapshot", &output])?;
        daemon.lttng(&["enable-channel", "--userspace", &size, &count, "channel"])?;
        let rule = "lttng_ust_libc:*";
        daemon.lttng(&["enable-event", "--userspace", "--channel=channel", rule])?;
        daemon.lttng(&["start"])
    }

    /// Ends it; how many events are in its trace, which does not say how many were overwritten.
    fn end_lttng(&self, place: &Place) -> Result<u64> {
        let daemon = self.daemon()?;
        daemon.lttng(&["stop"])?;
        daemon.lttng(&["snapshot", "record"])?;
        daemon.lttng(&["destroy", SESSION])?;
        Ok(readback::count(&place.path(TRACE))?.unwrap_or_default().events)
    }
}

/// Events that the recorder says there were, kept or not.
fn recorded(messages: &str) -> Result<u64> {
    let summary = RecorderSummary::parse(messages).ok_or_else(|| {
        Error::output("trackway record", format_args!("no summary in '{messages}'"))
    })?;
    Ok(summary.recorded + summary.lost + summary.overwritten)
}

fn check(way: Way, events: u64, least: u64) -> Result<()> {
    if events >= least {
        return Ok(());
    }
    Err(Error::output(way.name(), format_args!("{events} events of {least} calls")))
}

/// The helper and the library, if they are here.
fn helper(kit: &Kit) -> Option<[PathBuf; 2]> {
    let library = kit.library.clone()?;
    let helper = library.with_file_name("libtrackway-libc.so");
    helper.is_file().then_some([helper, library])
}

fn lttng_availability(place: &Place) -> Availability {
    match Lttng::alone().availability(place) {
        Availability::Ready if !loads(Path::new("true")) => {
            Availability::Missing(format!("{LTTNG_LIBRARY} is not installed"))
        }
        availability => availability,
    }
}

/// Whether the loader finds LTTng's library: it says so if not, and goes on without.
fn loads(program: &Path) -> bool {
    let mut command = Command::new(program);
    let output = command.env("LD_PRELOAD", LTTNG_LIBRARY).output();
    output.is_ok_and(|output| output.status.success() && output.stderr.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_events_are_an_error() {
        assert!(check(Way::Recorded, 10, 10).is_ok());
        let error = check(Way::Recorded, 9, 10).unwrap_err().to_string();
        assert_eq!(error, "Trackway's libc, recording: 9 events of 10 calls");
        let text = "trackway: 5 events recorded, 1 lost, 7 overwritten, 1 process, 9 bytes in d\n";
        assert_eq!(recorded(text).expect("a summary"), 13);
        assert!(recorded("nothing").is_err());
    }
}
