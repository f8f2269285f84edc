//! Kernel backends: BPF ([`crate::kernel::bpf`]), and tracefs ([`crate::kernel::tracefs`]) for
//! machines that refuse BPF, or on request. Both backends write the same trace, except for data
//! that tracefs lacks.

use std::path::{Path, PathBuf};

use trackway_kernel::bpf_program::support::{self, Refusal};
use trackway_kernel::tracefs::instance::{self, InstanceError};

use trackway_session::protocol::KernelStatus;
use trackway_session::{ByteCount, FilterSpec, KernelSpec, Tracefiles};

use crate::command::launch::PreExecHook;
use crate::error::RecordError;
use crate::kernel::bpf::{self, KernelSnapshot};
use crate::kernel::error;
use crate::kernel::filters::AcceptedFilters;
use crate::kernel::request::KernelRequest;
use crate::kernel::tracefs::{self, PreparedTracefs};
use crate::notices::Notices;
use crate::recording::region::RegionDrain;
use crate::trace::folder::TraceFolder;

pub use trackway_session::KernelBackend;

/// Kernel backends that can be used on this machine.
#[derive(Debug)]
pub struct KernelBackends {
    /// `Ok` if BPF can be used, else the reason.
    pub bpf: Result<(), Refusal>,
    /// Mount point of tracefs, if tracefs can be used.
    pub tracefs: Result<PathBuf, InstanceError>,
}

impl KernelBackends {
    /// Detects the backends, without side effects.
    pub fn detect() -> Self {
        Self { bpf: support::check_support(), tracefs: instance::check_support() }
    }
}

/// Prepared recording of kernel events, by one of the backends.
#[derive(Debug)]
pub(crate) enum PreparedKernel {
    Bpf(Box<bpf::PreparedBpf>),
    Tracefs(Box<PreparedTracefs>),
}

/// Active recording of kernel events, whose buffers a thread drains.
#[derive(Debug)]
pub(crate) enum KernelRecording {
    Bpf(Box<bpf::BpfRecording>),
    Tracefs(Box<tracefs::TracefsRecording>),
}

/// Results of a finished recording of kernel events.
#[derive(Debug)]
pub(crate) enum Summary {
    Bpf(Box<bpf::KernelSummary>),
    Tracefs(Box<tracefs::Summary>),
}

impl PreparedKernel {
    /// Prepares the recording with the specified backend, or with the first available one.
    pub(crate) fn prepare(
        request: &KernelRequest<'_>,
        notices: &Notices,
    ) -> Result<Self, RecordError> {
        let by_bpf = || {
            let made = bpf::PreparedBpf::prepare(request, notices);
            made.map(|made| Self::Bpf(Box::new(made)))
        };
        let by_tracefs = || {
            let made = PreparedTracefs::prepare(request);
            made.map(|made| Self::Tracefs(Box::new(made)))
        };
        let made = match (request.spec.via, support::check_support()) {
            (Some(KernelBackend::Bpf), _) | (None, Ok(())) => by_bpf()?,
            (Some(KernelBackend::Tracefs), _) => by_tracefs()?,
            (None, Err(refusal)) => {
                let made = by_tracefs()?;
                notices.report(format_args!(
                    "the kernel's events are recorded by tracefs, since BPF is refused ({refusal})"
                ));
                if refusal.is_permission_denied() {
                    notices.hint(format_args!("trackway doctor says what is missing"));
                }
                made
            }
        };
        if let Self::Tracefs(made) = &made {
            made.report_missing_data(notices);
        }
        made.report_size(request.size_bytes(), notices);
        Ok(made)
    }

    /// Returns the filters on the recorded kernel events.
    pub(crate) fn filters(&self) -> &AcceptedFilters {
        match self {
            Self::Bpf(kernel) => kernel.filters().accepted(),
            Self::Tracefs(kernel) => kernel.filters(),
        }
    }

    /// Reports if a CPU's buffers differ from the specified size, or else from the default size.
    fn report_size(&self, size_bytes: u64, notices: &Notices) {
        let (cpu_bytes, sizes) = match self {
            Self::Bpf(kernel) => (kernel.cpu_bytes(), bpf::PreparedBpf::format_possible_sizes()),
            Self::Tracefs(kernel) => (kernel.cpu_bytes(), PreparedTracefs::format_possible_sizes()),
        };
        report_other_size(size_bytes, cpu_bytes, &sizes, notices);
    }

    /// Starts writing recorded events to the trace at `root`.
    pub(crate) fn begin(
        self,
        root: &TraceFolder,
        realtime_offset_ns: i64,
        tracefiles: Tracefiles,
    ) -> Result<KernelRecording, RecordError> {
        Ok(match self {
            Self::Bpf(kernel) => KernelRecording::Bpf(Box::new(kernel.begin(
                root,
                realtime_offset_ns,
                tracefiles,
            )?)),
            Self::Tracefs(kernel) => KernelRecording::Tracefs(Box::new(kernel.begin(
                root,
                realtime_offset_ns,
                tracefiles,
            )?)),
        })
    }
}

/// Reports a CPU's buffers that differ from the specified size (0: the default size), with the
/// possible sizes.
fn report_other_size(size_bytes: u64, cpu_bytes: u64, sizes: &str, notices: &Notices) {
    let wanted_bytes = if size_bytes == 0 { bpf::CPU_BYTES } else { size_bytes };
    if cpu_bytes != wanted_bytes {
        let (is, wanted) = (ByteCount(cpu_bytes), ByteCount(wanted_bytes));
        notices.report(format_args!(
            "the kernel's buffers have {is} for each CPU, not {wanted}: {sizes}"
        ));
    }
}

/// Contents of a flight recorder at one moment.
#[derive(Debug)]
pub(crate) enum FlightContents {
    Bpf(Vec<RegionDrain>),
    Tracefs(tracefs::TracefsContents),
}

impl KernelRecording {
    /// Records only the events that `patterns` select. Returns the number of added and of removed
    /// events. With `filters`, replaces all filters from now on. Calls `meanwhile` repeatedly
    /// during the work.
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
                draining.filters().accepted().report(notices);
                Ok(changed)
            }
            Self::Tracefs(draining) => draining.select(patterns, filters, meanwhile, notices),
        }
    }

    /// Returns the hook that the traced command's process calls before exec, if there is one. From
    /// the hook on, the process and its children are recorded.
    pub(crate) fn pre_exec_hook(&self) -> Option<PreExecHook> {
        match self {
            Self::Bpf(draining) => draining.pre_exec_hook(),
            Self::Tracefs(draining) => draining.pre_exec_hook(),
        }
    }

    /// Returns the limit on open files from before it was raised, for the traced command.
    pub(crate) fn files_limit(&self) -> Option<u64> {
        match self {
            Self::Bpf(draining) => draining.files_limit(),
            Self::Tracefs(_) => None,
        }
    }

    /// Enables undelayed writing while a reader follows the trace, and disables it otherwise.
    pub(crate) fn set_followed(&self, is_followed: bool) {
        match self {
            Self::Bpf(draining) => draining.set_followed(is_followed),
            Self::Tracefs(draining) => draining.set_followed(is_followed),
        }
    }

    /// Reports changes in the recording since the previous call.
    pub(crate) fn report_changes(&self, notices: &Notices) {
        match self {
            Self::Bpf(draining) => draining.report_changes(notices),
            Self::Tracefs(draining) => draining.report_changes(notices),
        }
    }

    /// Returns the status of the recording; `None` if it cannot be determined.
    pub(crate) fn status(&mut self, spec: KernelSpec) -> Option<KernelStatus> {
        let is_of_command = spec.pids.is_empty() && self.pre_exec_hook().is_some();
        let (status, is_by_tracefs) = match self {
            Self::Bpf(draining) => (draining.status(spec)?, false),
            Self::Tracefs(draining) => (draining.status(spec)?, true),
        };
        Some(KernelStatus { is_of_command, is_by_tracefs, ..status })
    }

    /// Returns the memory of the buffers, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        match self {
            Self::Bpf(draining) => draining.memory_bytes(),
            Self::Tracefs(draining) => draining.memory_bytes(),
        }
    }

    /// Excludes the flight recorder's contents from the trace, since only snapshots contain them.
    pub(crate) fn drop_flight_recorder(&mut self) {
        match self {
            Self::Bpf(draining) => draining.drop_flight_recorder(),
            Self::Tracefs(draining) => draining.drop_flight_recorder(),
        }
    }

    /// Stops recording. If that fails, [`Self::stop_and_write`] and [`Self::finish`] try again, and
    /// report a failure.
    pub(crate) fn stop(&mut self) {
        match self {
            Self::Bpf(draining) => draining.stop(),
            Self::Tracefs(draining) => drop(draining.stop()),
        }
    }

    /// Starts recording again.
    pub(crate) fn start(&mut self) -> Result<(), RecordError> {
        match self {
            Self::Bpf(draining) => draining.start(),
            Self::Tracefs(draining) => return draining.start(),
        }
        Ok(())
    }

    /// Stops recording like [`Self::stop`], and writes the recorded events to the trace, as far as
    /// possible.
    pub(crate) fn stop_and_write(&mut self) -> Result<(), RecordError> {
        match self {
            Self::Bpf(draining) => draining.stop_and_write(),
            Self::Tracefs(draining) => draining.stop_and_write(),
        }
    }

    /// Discards the recorded events and the counts of losses.
    pub(crate) fn clear(&mut self) -> Result<(), RecordError> {
        match self {
            Self::Bpf(draining) => draining.clear(),
            Self::Tracefs(draining) => draining.clear(),
        }
    }

    /// Returns the contents of a flight recorder, for [`Self::write_snapshot`]; `None` if the
    /// kernel's buffers are no flight recorder.
    pub(crate) fn begin_snapshot(
        &self,
        last_ns: Option<u64>,
    ) -> Result<Option<FlightContents>, RecordError> {
        match self {
            Self::Bpf(draining) if !draining.is_overwriting() => Ok(None),
            Self::Bpf(draining) => {
                draining.begin_snapshot(last_ns).map(FlightContents::Bpf).map(Some)
            }
            Self::Tracefs(draining) => {
                Ok(draining.begin_snapshot(last_ns)?.map(FlightContents::Tracefs))
            }
        }
    }

    /// Writes the contents from [`Self::begin_snapshot`] to the trace in `folder`. Returns the
    /// number of events and bytes. Calls `meanwhile` repeatedly during the work.
    pub(crate) fn write_snapshot(
        &self,
        contents: FlightContents,
        folder: &TraceFolder,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<KernelSnapshot, RecordError> {
        match (self, contents) {
            (Self::Bpf(draining), FlightContents::Bpf(contents)) => {
                draining.write_snapshot(contents, folder, meanwhile)
            }
            (Self::Tracefs(draining), FlightContents::Tracefs(contents)) => {
                let (events, bytes) = draining.write_snapshot(&contents, folder)?;
                Ok(KernelSnapshot { events, bytes, missing: None })
            }
            _ => Err(error::kernel_error("no snapshot", "it is of another recording")),
        }
    }

    /// Ends the recording, and writes the remaining events.
    pub(crate) fn finish(self) -> Summary {
        match self {
            Self::Bpf(draining) => Summary::Bpf(Box::new(draining.finish())),
            Self::Tracefs(draining) => Summary::Tracefs(Box::new(draining.finish())),
        }
    }
}

impl Summary {
    /// Reports the results, with the trace's folder unless another line names the folder.
    pub(crate) fn report(&self, folder: Option<&Path>, notices: &Notices) {
        match self {
            Self::Bpf(summary) => summary.report(folder, notices),
            Self::Tracefs(summary) => summary.report(folder, notices),
        }
    }

    /// Returns the counts of recorded and lost events.
    pub(crate) fn counts(&self) -> crate::summary::Summary {
        match self {
            Self::Bpf(summary) => summary.as_summary(),
            Self::Tracefs(summary) => summary.as_summary(),
        }
    }

    /// Returns true if the trace has all kernel events that were not lost or overwritten.
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
            let notices = Notices::in_memory();
            report_other_size(size_bytes, cpu_bytes, "as there are", &notices);
            notices.lines().join("|")
        };
        assert_eq!(said(0, bpf::CPU_BYTES), "");
        assert_eq!(said(1 << 20, 1 << 20), "");
        let with = "the kernel's buffers have";
        let said_of =
            |is: &str, not: &str| format!("{with} {is} for each CPU, not {not}: as there are");
        // With many CPUs, and with a size that is no power of two.
        assert_eq!(said(0, 2 << 20), said_of("2.0 MiB", "8.0 MiB"));
        assert_eq!(said(300 << 10, 256 << 10), said_of("256.0 KiB", "300.0 KiB"));
    }
}
