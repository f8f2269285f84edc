//! The two ways to the kernel's events: by BPF ([`crate::kernel`]), or by tracefs
//! ([`crate::kernel_tracefs`]) where the former is refused, or somebody wants the latter. The
//! traces are the same, but for what tracefs does not give.

use std::path::{Path, PathBuf};

use trackway_kernel::ftrace::instance::{self, InstanceError};
use trackway_kernel::record::probe::{self, Refusal};

use trackway_session::protocol::KernelStatus;
use trackway_session::{KernelSpec, Tracefiles};

use crate::RecordError;
use crate::command::Entrance;
use crate::kernel_filters::KernelFilters;
use crate::kernel_tracefs::{self, ByTracefs};
use crate::report::Notices;
use crate::{KernelOptions, kernel};

/// A way to the kernel's events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelVia {
    /// Programs of ours, which record into buffers of ours.
    Bpf,
    /// The kernel's own buffers, converted.
    Tracefs,
}

/// Which ways are open here.
#[derive(Debug)]
pub struct KernelWays {
    /// Whether BPF is.
    pub bpf: Result<(), Refusal>,
    /// Whether tracefs is, and where that is.
    pub tracefs: Result<PathBuf, InstanceError>,
}

impl KernelWays {
    /// Looks, and changes nothing.
    pub fn look() -> Self {
        Self { bpf: probe::check(), tracefs: instance::check() }
    }
}

/// The kernel's events, ready to be recorded.
#[derive(Debug)]
pub(crate) enum Kernel {
    Bpf(Box<kernel::Kernel>),
    Tracefs(Box<ByTracefs>),
}

/// Buffers that a thread drains.
#[derive(Debug)]
pub(crate) enum Draining {
    Bpf(Box<kernel::Draining>),
    Tracefs(kernel_tracefs::Draining),
}

/// What was recorded.
#[derive(Debug)]
pub(crate) enum Summary {
    Bpf(Box<kernel::KernelSummary>),
    Tracefs(Result<kernel_tracefs::Summary, RecordError>),
}

impl Kernel {
    /// Prepares the recording: by the way that is wanted, or by the first one that is open.
    pub(crate) fn prepare(
        options: &KernelOptions,
        size_bytes: u64,
        overwrite: bool,
        notices: &Notices,
    ) -> Result<Self, RecordError> {
        let by_bpf = || {
            let made = kernel::Kernel::prepare(options, size_bytes, overwrite, notices);
            made.map(|made| Self::Bpf(Box::new(made)))
        };
        let by_tracefs = || {
            let made = ByTracefs::prepare(options, size_bytes, overwrite);
            made.map(|made| Self::Tracefs(Box::new(made)))
        };
        let made = match (options.via, probe::check()) {
            (Some(KernelVia::Bpf), _) | (None, Ok(())) => by_bpf()?,
            (Some(KernelVia::Tracefs), _) => by_tracefs()?,
            (None, Err(refusal)) => {
                let made = by_tracefs()?;
                notices.say(format_args!(
                    "the kernel's events are recorded by tracefs, since BPF is refused ({refusal})"
                ));
                if refusal.is_of_rights() {
                    notices.hint(format_args!("trackway doctor says what is missing"));
                }
                made
            }
        };
        if let Self::Tracefs(made) = &made {
            made.say_what_is_missing(notices);
        }
        Ok(made)
    }

    /// What its events are asked in the kernel, if they are.
    pub(crate) fn filters(&self) -> Option<&KernelFilters> {
        match self {
            Self::Bpf(kernel) => Some(kernel.filters()),
            Self::Tracefs(_) => None,
        }
    }

    /// Says it where buffers are not of the size that was asked for.
    pub(crate) fn say_size(&self, size_bytes: u64, notices: &Notices) {
        if let Self::Bpf(kernel) = self {
            kernel.say_size(size_bytes, notices);
        }
    }

    /// Writes what is recorded to the trace at `root`.
    pub(crate) fn begin(
        self,
        root: &Path,
        realtime_offset_ns: i64,
        tracefiles: Tracefiles,
    ) -> Result<Draining, RecordError> {
        Ok(match self {
            Self::Bpf(kernel) => {
                Draining::Bpf(Box::new(kernel.begin(root, realtime_offset_ns, tracefiles)?))
            }
            Self::Tracefs(_) if tracefiles.is_bounded() => {
                return Err(by_bpf_alone("cannot bound the size of the trace"));
            }
            Self::Tracefs(kernel) => Draining::Tracefs(kernel.begin(root, realtime_offset_ns)?),
        })
    }
}

/// What needs buffers of our own.
fn by_bpf_alone(what: &str) -> RecordError {
    kernel::failed(what, "the kernel's events are recorded by tracefs here")
}

impl Draining {
    /// That by BPF, which can do more than begin and end.
    pub(crate) fn by_bpf(&self) -> Result<&kernel::Draining, RecordError> {
        match self {
            Self::Bpf(draining) => Ok(draining),
            Self::Tracefs(_) => Err(by_bpf_alone("cannot change what is recorded")),
        }
    }

    /// The same, to change it.
    pub(crate) fn by_bpf_mut(&mut self) -> Result<&mut kernel::Draining, RecordError> {
        match self {
            Self::Bpf(draining) => Ok(draining),
            Self::Tracefs(_) => Err(by_bpf_alone("cannot change what is recorded")),
        }
    }

    /// What the command's process does before it runs the command, if anything: from there on it,
    /// and what it starts, is recorded.
    pub(crate) fn entrance(&self) -> Option<Entrance> {
        match self {
            Self::Bpf(draining) => draining.entrance(),
            Self::Tracefs(draining) => draining.entrance(),
        }
    }

    /// The limit on open files as it was before, if it was raised: the command is to have that.
    pub(crate) fn files_limit(&self) -> Option<u64> {
        self.by_bpf().ok().and_then(kernel::Draining::files_limit)
    }

    /// Writes events at once, because somebody follows, or not any more.
    pub(crate) fn set_followed(&self, is_followed: bool) {
        if let Self::Bpf(draining) = self {
            draining.set_followed(is_followed);
        }
    }

    /// Says what happened since it was looked at last.
    pub(crate) fn say_news(&self, notices: &Notices) {
        if let Self::Bpf(draining) = self {
            draining.say_news(notices);
        }
    }

    /// How it goes; nothing if nobody can say.
    pub(crate) fn status(&mut self, spec: KernelSpec) -> Option<KernelStatus> {
        self.by_bpf_mut().ok()?.status(spec)
    }

    /// Bytes of memory of buffers of our own.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.by_bpf().map_or(0, kernel::Draining::memory_bytes)
    }

    /// Leaves what is in a flight recorder out of the trace: snapshots have it.
    pub(crate) fn drop_flight_recorder(&mut self) {
        if let Self::Bpf(draining) = self {
            draining.drop_flight_recorder();
        }
    }

    /// Records nothing any more.
    pub(crate) fn stop(&mut self) {
        match self {
            Self::Bpf(draining) => draining.stop(),
            Self::Tracefs(draining) => draining.stop(),
        }
    }

    /// Records again.
    pub(crate) fn start(&mut self) {
        match self {
            Self::Bpf(draining) => draining.start(),
            Self::Tracefs(draining) => draining.start(),
        }
    }

    /// The same as [`Self::stop`]; and what was recorded is in the trace then, as far as it can be.
    pub(crate) fn stop_and_write(&mut self) -> Result<(), RecordError> {
        match self {
            Self::Bpf(draining) => draining.stop_and_write(),
            // Its thread writes it within moments.
            Self::Tracefs(draining) => {
                draining.stop();
                Ok(())
            }
        }
    }

    /// Forgets what was recorded and lost.
    pub(crate) fn clear(&mut self) -> Result<(), RecordError> {
        self.by_bpf_mut()?.clear()
    }

    /// Ends it, and writes what is left.
    pub(crate) fn finish(self) -> Summary {
        match self {
            Self::Bpf(draining) => Summary::Bpf(Box::new(draining.finish())),
            Self::Tracefs(draining) => Summary::Tracefs(draining.finish()),
        }
    }
}

impl Summary {
    /// Says what was recorded; and where, if nothing else says it.
    pub(crate) fn say(&self, folder: Option<&Path>, notices: &Notices) {
        match self {
            Self::Bpf(summary) => summary.say(folder, notices),
            Self::Tracefs(Ok(summary)) => summary.say(folder, notices),
            Self::Tracefs(Err(error)) => notices.say(format_args!("{error}")),
        }
    }
}
