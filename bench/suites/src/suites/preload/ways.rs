//! Ways to run a program: the same program, in different surroundings.

use std::path::{Path, PathBuf};
use std::process::Command;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::child;
use trackway_bench_engine::host::workload::{self, Batch};
use trackway_bench_engine::host::workspace::{BuildTools, Place, has, make_dir};
use trackway_bench_engine::results::Account;
use trackway_bench_engine::suite::{Entry, SuiteContext};

use super::programs::{Real, as_everywhere};
use crate::trace_check::{self, RecorderSummary};
use crate::tracers::RING_BYTES;
use crate::tracers::command_tracer::{self, LTTNG_LIBC, Ust};
use crate::tracers::daemon::Daemon;
use crate::tracers::trackway::{summary, write_to};
use crate::tracers::ust_session::{self, SESSION, SUB_BUFFERS, UstSession, rings};

/// The workload.
const PROGRAM: &str = "allocate";
/// The library that only interposes.
const INTERPOSED: &str = "interpose";
/// Folder of traces, in the scratch folder.
const TRACE: &str = "preload-trace";

/// A program that allocates (`workloads/allocate.c`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Program {
    /// Counts words in a hash table: allocates a lot.
    Words,
    /// Builds and fells binary trees: does little else.
    Trees,
    /// malloc and free in pairs: does nothing else.
    Pairs,
}

impl Program {
    /// All of them.
    pub(super) const ALL: [Self; 3] = [Self::Words, Self::Trees, Self::Pairs];

    /// Its name, as the workload takes it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Words => "words",
            Self::Trees => "trees",
            Self::Pairs => "pairs",
        }
    }

    /// Its size: a batch takes some milliseconds.
    const fn size(self) -> &'static str {
        match self {
            Self::Words => "50000",
            Self::Trees => "16",
            Self::Pairs => "300000",
        }
    }
}

/// A way to run a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Alone.
    Plain,
    /// With a library between it and malloc that does nothing.
    Interposed,
    /// With the preload helper, without a session.
    Idle,
    /// With LTTng's wrapper and daemon, without a session.
    LttngIdle,
    /// With our helper, into a flight recorder.
    Recorded,
    /// With LTTng's, into a snapshot session.
    LttngRecorded,
}

impl Way {
    /// All of them; the first one is what the others are told in terms of.
    pub(super) const ALL: [Self; 6] = [
        Self::Plain,
        Self::Interposed,
        Self::Idle,
        Self::LttngIdle,
        Self::Recorded,
        Self::LttngRecorded,
    ];

    /// Its row.
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

/// All ways, as far as they can be gone here.
pub(super) struct Ways {
    /// libtrackway-libc.so and libtrackway.so, as LD_PRELOAD has them.
    helper: Option<String>,
    theirs: Theirs,
}

/// LTTng's daemon.
enum Theirs {
    Runs(Daemon),
    Absent(String),
    Failed(String),
}

impl Ways {
    /// Compiles the programs, and starts LTTng's daemon.
    pub(super) fn set_up(context: &SuiteContext<'_>) -> Result<Self> {
        let place = context.place;
        if !has("cc") {
            return Err(Error::output("trackway bench preload", "no C compiler (cc) is installed"));
        }
        context.progress.say("compiling");
        place.compile(PROGRAM, &[])?;
        place.compile(INTERPOSED, &["-shared", "-fPIC", "-Wl,-z,now"])?;
        let helper = helper(&place.tools)
            .map(|[helper, library]| format!("{}:{}", helper.display(), library.display()));
        context.progress.say("setting up LTTng-UST");
        let theirs = match Ust::absence_of_libc(place) {
            Some(reason) => Theirs::Absent(reason),
            None => match Daemon::start(place) {
                Ok(daemon) => Theirs::Runs(daemon),
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) => Theirs::Failed(error.to_string()),
            },
        };
        Ok(Self { helper, theirs })
    }

    /// Says in an entry why this way cannot be gone, if it cannot.
    pub(super) fn refuse(&self, way: Way, entry: Option<&mut Entry>) {
        let Some(entry) = entry else { return };
        match way {
            Way::Idle | Way::Recorded if self.helper.is_none() => {
                let reason = "libtrackway-libc.so is not beside this executable";
                entry.absent = Some(reason.to_owned());
            }
            Way::LttngIdle | Way::LttngRecorded => match &self.theirs {
                Theirs::Runs(_) => {}
                Theirs::Absent(reason) => entry.absent = Some(reason.clone()),
                Theirs::Failed(reason) => entry.failed = Some(reason.clone()),
            },
            _ => {}
        }
    }

    /// Runs a program, and checks that what should be recorded was.
    pub(super) fn run(
        &self,
        place: &Place,
        way: Way,
        program: Program,
        batches: u32,
    ) -> Result<Run> {
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
        self.surround(&mut command, place, way)?;
        if matches!(way, Way::LttngIdle | Way::LttngRecorded) {
            command.env("LD_PRELOAD", LTTNG_LIBC);
        }
        command.args([program.name(), &batches.to_string(), program.size()]);
        if way == Way::LttngRecorded {
            place.clear(TRACE);
            let session = UstSession {
                name: SESSION,
                is_snapshot: true,
                channel: &rings(RING_BYTES, SUB_BUFFERS),
                rules: &["lttng_ust_libc:*"],
                filter: None,
                contexts: &[],
            };
            session.begin_anew(self.daemon()?, &place.path(TRACE))?;
        }
        let finished = child::run(&mut command, way.tracer())?;
        let batches = workload::batches(&finished.stdout)?;
        let calls: u64 = batches.iter().map(|batch| batch.events).sum();
        let account = match way {
            Way::Recorded => Some(account(&place.path(TRACE), calls)?),
            Way::LttngRecorded => {
                ust_session::end(self.daemon()?, SESSION, true)?;
                Some(trace_check::newest(&place.path(TRACE), calls)?)
            }
            _ => None,
        };
        Ok(Run { batches, account })
    }

    /// The window and the libraries that a program has in a way.
    fn surround(&self, command: &mut Command, place: &Place, way: Way) -> Result<()> {
        command.env("TRACKWAY_WINDOW_DIR", Self::window_dir(place, way)?);
        command.env_remove("TRACKWAY_TOKEN").env_remove("LD_PRELOAD");
        match way {
            Way::Interposed => command.env("LD_PRELOAD", place.path(INTERPOSED)),
            Way::Idle => command.env("LD_PRELOAD", self.helper.as_deref().unwrap_or_default()),
            _ => command,
        };
        Ok(())
    }

    /// Returns the command of an installed program: alone, with a library that only interposes, or
    /// with the helper without a session.
    pub(super) fn real(&self, place: &Place, program: &Real, way: Way) -> Result<Command> {
        let mut command = program.command();
        self.surround(&mut command, place, way)?;
        Ok(command)
    }

    /// Records it once: how often it calls the allocator.
    pub(super) fn count_calls(&self, place: &Place, program: &Real) -> Result<u64> {
        place.clear(TRACE);
        let mut command = Self::recorder(place);
        command.arg("--").args(program.words());
        as_everywhere(&mut command);
        command.env("TRACKWAY_WINDOW_DIR", Self::window_dir(place, Way::Recorded)?);
        child::run(&mut command, program.name)?;
        let calls = account(&place.path(TRACE), 0)?.emitted;
        if calls == 0 {
            return Err(Error::output(program.name, "it does not allocate"));
        }
        Ok(calls)
    }

    /// `trackway record OPTIONS`, with our helper, into a flight recorder.
    fn recorder(place: &Place) -> Command {
        let mut command = Command::new(&place.tools.trackway);
        command.args(["record", "--flight-recorder", "--context", "none"]);
        command.args(["--preload", "libc", "--buffer-size", &RING_BYTES.to_string()]);
        write_to(&mut command, &place.path(TRACE));
        command
    }

    /// Returns the folder of a window that only the bench uses; without a session, of one that
    /// never had a session.
    fn window_dir(place: &Place, way: Way) -> Result<PathBuf> {
        if way == Way::Recorded {
            return Ok(place.window_dir().to_owned());
        }
        let folder = place.window_dir().join("idle");
        make_dir(&folder)?;
        Ok(folder)
    }

    fn daemon(&self) -> Result<&Daemon> {
        match &self.theirs {
            Theirs::Runs(daemon) => Ok(daemon),
            _ => Err(Error::output("lttng-sessiond", "it is not running")),
        }
    }
}

/// Returns the account of a recording by its summary. There must be one event for each of these
/// calls, and some more, from the program's start and end.
fn account(trace: &Path, calls: u64) -> Result<Account> {
    account_of(&summary(trace)?, calls)
}

fn account_of(summary: &RecorderSummary, calls: u64) -> Result<Account> {
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

/// The helper and the library, if they are here.
fn helper(tools: &BuildTools) -> Option<[PathBuf; 2]> {
    Some([command_tracer::helper(tools)?, tools.library.clone()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_events_are_an_error() {
        let summary = RecorderSummary { recorded: 5, lost: 1, overwritten: 7 };
        let found = account_of(&summary, 12).expect("enough");
        assert_eq!((found.emitted, found.is_complete()), (13, true));
        let error = account_of(&summary, 14).unwrap_err().to_string();
        assert_eq!(error, "trackway record: 13 events of 14 calls");
    }
}
