//! The two ways to the kernel's events: by BPF ([`crate::kernel`]), or by tracefs
//! ([`crate::kernel_tracefs`]) where the former is refused, or somebody wants the latter. The
//! traces are the same, but for what tracefs does not give.

use std::path::{Path, PathBuf};

use trackway_kernel::bpf_program::support::{self, Refusal};
use trackway_kernel::tracefs::instance::{self, InstanceError};

use trackway_session::protocol::KernelStatus;
use trackway_session::{ByteCount, FilterSpec, KernelSpec, Tracefiles};

use crate::RecordError;
use crate::command::Entrance;
use crate::kernel::KernelSnapshot;
use crate::kernel_filters::TakenFilters;
use crate::kernel_tracefs::{self, ByTracefs};
use crate::notices::Notices;
use crate::place::Place;
use crate::region::RegionWork;
use crate::{KernelOptions, kernel};

pub use trackway_session::KernelVia;

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
        Self { bpf: support::check_support(), tracefs: instance::check_support() }
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
    Tracefs(Box<kernel_tracefs::Draining>),
}

/// What was recorded.
#[derive(Debug)]
pub(crate) enum Summary {
    Bpf(Box<kernel::KernelSummary>),
    Tracefs(Box<kernel_tracefs::Summary>),
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
        let made = match (options.via, support::check_support()) {
            (Some(KernelVia::Bpf), _) | (None, Ok(())) => by_bpf()?,
            (Some(KernelVia::Tracefs), _) => by_tracefs()?,
            (None, Err(refusal)) => {
                let made = by_tracefs()?;
                notices.say(format_args!(
                    "the kernel's events are recorded by tracefs, since BPF is refused ({refusal})"
                ));
                if refusal.is_permission_denied() {
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

    /// What its events are asked.
    pub(crate) fn filters(&self) -> &TakenFilters {
        match self {
            Self::Bpf(kernel) => kernel.filters().taken(),
            Self::Tracefs(kernel) => kernel.filters(),
        }
    }

    /// Says it where buffers are not of the size that was asked for, or not of the usual one.
    pub(crate) fn say_size(&self, size_bytes: u64, notices: &Notices) {
        let (cpu_bytes, sizes) = match self {
            Self::Bpf(kernel) => (kernel.cpu_bytes(), kernel::Kernel::sizes()),
            Self::Tracefs(kernel) => (kernel.cpu_bytes(), ByTracefs::sizes()),
        };
        say_other_size(size_bytes, cpu_bytes, &sizes, notices);
    }

    /// Writes what is recorded to the trace at `root`.
    pub(crate) fn begin(
        self,
        root: &Place,
        realtime_offset_ns: i64,
        tracefiles: Tracefiles,
    ) -> Result<Draining, RecordError> {
        Ok(match self {
            Self::Bpf(kernel) => {
                Draining::Bpf(Box::new(kernel.begin(root, realtime_offset_ns, tracefiles)?))
            }
            Self::Tracefs(kernel) => {
                Draining::Tracefs(Box::new(kernel.begin(root, realtime_offset_ns, tracefiles)?))
            }
        })
    }
}

/// Says it if a CPU's buffers are not of the size that was asked for (0: none was), and which there
/// can be.
fn say_other_size(size_bytes: u64, cpu_bytes: u64, sizes: &str, notices: &Notices) {
    let wanted_bytes = if size_bytes == 0 { kernel::CPU_BYTES } else { size_bytes };
    if cpu_bytes != wanted_bytes {
        let (is, wanted) = (ByteCount(cpu_bytes), ByteCount(wanted_bytes));
        notices.say(format_args!(
            "the kernel's buffers have {is} for each CPU, not {wanted}: {sizes}"
        ));
    }
}

/// What a flight recorder has at some moment.
#[derive(Debug)]
pub(crate) enum Seen {
    Bpf(Vec<RegionWork>),
    Tracefs(kernel_tracefs::Seen),
}

impl Draining {
    /// Records the events that these patterns select, and no others: how many are new, and how many
    /// have gone. With `filters`, those are asked from now on. `meanwhile` is called every now and
    /// then.
    pub(crate) fn select(
        &mut self,
        patterns: &[String],
        filters: Option<&[FilterSpec]>,
        meanwhile: &mut dyn FnMut(),
        notices: &Notices,
    ) -> Result<(usize, usize), RecordError> {
        match self {
            Self::Bpf(draining) => {
                let changed = draining.select(patterns, filters, meanwhile, notices)?;
                draining.filters().taken().say(notices);
                Ok(changed)
            }
            Self::Tracefs(draining) => draining.select(patterns, filters, meanwhile, notices),
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
        match self {
            Self::Bpf(draining) => draining.files_limit(),
            Self::Tracefs(_) => None,
        }
    }

    /// Writes events at once, because somebody follows, or not any more.
    pub(crate) fn set_followed(&self, is_followed: bool) {
        match self {
            Self::Bpf(draining) => draining.set_followed(is_followed),
            Self::Tracefs(draining) => draining.set_followed(is_followed),
        }
    }

    /// Says what happened since it was looked at last.
    pub(crate) fn say_news(&self, notices: &Notices) {
        match self {
            Self::Bpf(draining) => draining.say_news(notices),
            Self::Tracefs(draining) => draining.say_news(notices),
        }
    }

    /// How it goes; nothing if nobody can say.
    pub(crate) fn status(&mut self, spec: KernelSpec) -> Option<KernelStatus> {
        let is_of_command = spec.pids.is_empty() && self.entrance().is_some();
        let (status, is_by_tracefs) = match self {
            Self::Bpf(draining) => (draining.status(spec)?, false),
            Self::Tracefs(draining) => (draining.status(spec)?, true),
        };
        Some(KernelStatus { is_of_command, is_by_tracefs, ..status })
    }

    /// Bytes of memory of its buffers.
    pub(crate) fn memory_bytes(&self) -> u64 {
        match self {
            Self::Bpf(draining) => draining.memory_bytes(),
            Self::Tracefs(draining) => draining.memory_bytes(),
        }
    }

    /// Leaves what is in a flight recorder out of the trace: snapshots have it.
    pub(crate) fn drop_flight_recorder(&mut self) {
        match self {
            Self::Bpf(draining) => draining.drop_flight_recorder(),
            Self::Tracefs(draining) => draining.drop_flight_recorder(),
        }
    }

    /// Records nothing any more. Where that fails, what comes behind ([`Self::stop_and_write`],
    /// [`Self::finish`]) tries it again, and tells.
    pub(crate) fn stop(&mut self) {
        match self {
            Self::Bpf(draining) => draining.stop(),
            Self::Tracefs(draining) => drop(draining.stop()),
        }
    }

    /// Records again.
    pub(crate) fn start(&mut self) -> Result<(), RecordError> {
        match self {
            Self::Bpf(draining) => draining.start(),
            Self::Tracefs(draining) => return draining.start(),
        }
        Ok(())
    }

    /// The same as [`Self::stop`]; and what was recorded is in the trace then, as far as it can be.
    pub(crate) fn stop_and_write(&mut self) -> Result<(), RecordError> {
        match self {
            Self::Bpf(draining) => draining.stop_and_write(),
            Self::Tracefs(draining) => draining.stop_and_write(),
        }
    }

    /// Forgets what was recorded and lost.
    pub(crate) fn clear(&mut self) -> Result<(), RecordError> {
        match self {
            Self::Bpf(draining) => draining.clear(),
            Self::Tracefs(draining) => draining.clear(),
        }
    }

    /// What a flight recorder has now, to be written by [`Self::write_snapshot`]; none if it is no
    /// such.
    pub(crate) fn look_beside(&self, last_ns: Option<u64>) -> Result<Option<Seen>, RecordError> {
        match self {
            Self::Bpf(draining) if !draining.is_overwriting() => Ok(None),
            Self::Bpf(draining) => draining.look_beside(last_ns).map(Seen::Bpf).map(Some),
            Self::Tracefs(draining) => Ok(draining.look_beside(last_ns)?.map(Seen::Tracefs)),
        }
    }

    /// Writes what [`Self::look_beside`] saw to the trace in `folder`: how many events and bytes
    /// that is. `meanwhile` is called every now and then.
    pub(crate) fn write_snapshot(
        &self,
        seen: Seen,
        folder: &Place,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<KernelSnapshot, RecordError> {
        match (self, seen) {
            (Self::Bpf(draining), Seen::Bpf(seen)) => {
                draining.write_snapshot(seen, folder, meanwhile)
            }
            (Self::Tracefs(draining), Seen::Tracefs(seen)) => {
                let (events, bytes) = draining.write_snapshot(&seen, folder)?;
                Ok(KernelSnapshot { events, bytes, missing: None })
            }
            _ => Err(kernel::failed("no snapshot", "it is of another recording")),
        }
    }

    /// Ends it, and writes what is left.
    pub(crate) fn finish(self) -> Summary {
        match self {
            Self::Bpf(draining) => Summary::Bpf(Box::new(draining.finish())),
            Self::Tracefs(draining) => Summary::Tracefs(Box::new(draining.finish())),
        }
    }
}

impl Summary {
    /// Says what was recorded; and where, if nothing else says it.
    pub(crate) fn say(&self, folder: Option<&Path>, notices: &Notices) {
        match self {
            Self::Bpf(summary) => summary.say(folder, notices),
            Self::Tracefs(summary) => summary.say(folder, notices),
        }
    }

    /// What was counted.
    pub(crate) fn counts(&self) -> crate::Summary {
        match self {
            Self::Bpf(summary) => summary.as_summary(),
            Self::Tracefs(summary) => summary.as_summary(),
        }
    }

    /// Whether the trace has all of the kernel's events that were not lost or overwritten.
    pub(crate) fn is_whole(&self) -> bool {
        match self {
            Self::Bpf(summary) => summary.unwritten.is_none(),
            Self::Tracefs(summary) => summary.is_whole(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_another_size_are_said_whoever_chose_it() {
        let said = |size_bytes, cpu_bytes| {
            let notices = Notices::kept();
            say_other_size(size_bytes, cpu_bytes, "as there are", &notices);
            notices.lines().join("|")
        };
        assert_eq!(said(0, kernel::CPU_BYTES), "");
        assert_eq!(said(1 << 20, 1 << 20), "");
        let with = "the kernel's buffers have";
        let said_of =
            |is: &str, not: &str| format!("{with} {is} for each CPU, not {not}: as there are");
        // Of many CPUs, as of a size that is no power of two.
        assert_eq!(said(0, 2 << 20), said_of("2.0 MiB", "8.0 MiB"));
        assert_eq!(said(300 << 10, 256 << 10), said_of("256.0 KiB", "300.0 KiB"));
    }
}
