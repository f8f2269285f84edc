//! The two ways to the kernel's events: by BPF ([`crate::kernel`]), or by tracefs
//! ([`crate::kernel_tracefs`]) where the former is refused, or somebody wants the latter. The
//! traces are the same, but for what tracefs does not give.

use std::path::{Path, PathBuf};

use trackway_kernel::ftrace::instance::{self, InstanceError};
use trackway_kernel::record::probe::{self, Refusal};

use crate::RecordError;
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
    Bpf(kernel::Kernel),
    Tracefs(Box<ByTracefs>),
}

/// Buffers that a thread drains.
pub(crate) enum Draining {
    Bpf(kernel::Draining),
    Tracefs(kernel_tracefs::Draining),
}

/// What was recorded.
#[derive(Debug)]
pub(crate) enum Summary {
    Bpf(kernel::KernelSummary),
    Tracefs(kernel_tracefs::Summary),
}

impl Kernel {
    /// Prepares the recording: by the way that is wanted, or by the first one that is open.
    pub(crate) fn prepare(
        options: &KernelOptions,
        size_bytes: u64,
        overwrite: bool,
        notices: &Notices,
    ) -> Result<Self, RecordError> {
        let by_bpf = || kernel::Kernel::prepare(options, size_bytes, overwrite).map(Self::Bpf);
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
    pub(crate) const fn filters(&self) -> Option<&KernelFilters> {
        match self {
            Self::Bpf(kernel) => Some(kernel.filters()),
            Self::Tracefs(_) => None,
        }
    }

    /// Writes what is recorded to the trace at `root`.
    pub(crate) fn begin(
        self,
        root: &Path,
        realtime_offset_ns: i64,
    ) -> Result<Draining, RecordError> {
        Ok(match self {
            Self::Bpf(kernel) => Draining::Bpf(kernel.begin(root, realtime_offset_ns)?),
            Self::Tracefs(kernel) => Draining::Tracefs(kernel.begin(root, realtime_offset_ns)?),
        })
    }
}

impl Draining {
    /// Whether the calling thread, and what it starts from now on, is recorded.
    pub(crate) fn scope(&self, is_recorded: bool) {
        match self {
            Self::Bpf(draining) => draining.scope(is_recorded),
            Self::Tracefs(draining) => draining.scope(is_recorded),
        }
    }

    /// Records nothing any more.
    pub(crate) fn stop(&self) {
        match self {
            Self::Bpf(draining) => draining.stop(),
            Self::Tracefs(draining) => draining.stop(),
        }
    }

    /// Ends it, and writes what is left.
    pub(crate) fn finish(self, notices: &Notices) -> Result<Summary, RecordError> {
        match self {
            Self::Bpf(draining) => draining.finish(notices).map(Summary::Bpf),
            Self::Tracefs(draining) => draining.finish().map(Summary::Tracefs),
        }
    }
}

impl Summary {
    /// Says what was recorded.
    pub(crate) fn say(&self, notices: &Notices) {
        match self {
            Self::Bpf(summary) => summary.say(notices),
            Self::Tracefs(summary) => summary.say(notices),
        }
    }
}
