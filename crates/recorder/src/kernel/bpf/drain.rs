//! Draining of the buffers of BPF programs by a thread: the recorder uses [`BpfRecording`], the
//! thread uses [`BpfDrain`].

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use trackway_console::IoError;
use trackway_session::protocol::KernelStatus;
use trackway_session::{KernelSpec, Tracefiles};
use trackway_sys::clock::monotonic_ns;

use super::PreparedBpf;
use super::cpu_hotplug::NewCpus;
use super::drain_source::{BpfDrain, KernelCounts, create_region_drains};
use super::summary::KernelSummary;
use crate::command::launch::PreExecHook;
use crate::error::RecordError;
use crate::kernel::drain_thread::{DrainResult, DrainThread, unwritten_events_error};
use crate::notices::Notices;
use crate::recording::region::{CloseKind, DrainContext, RegionDrain};
use crate::recording::snapshot;
use crate::summary::{LOST_SHOWN_MAX, Summary};
use crate::trace::completion::{self, CompletedBy};
use crate::trace::folder::TraceFolder;
use crate::trace::layout::{self, Trace};
use crate::trace::metadata::{EMPTY_FIELDS, LEFT_OUT_FIELDS, format_field_list};
use crate::window::cpus;

/// Longest run time of a BPF program, if the kernel does not report when it has ended.
const PROGRAM_RUN_MAX: Duration = Duration::from_millis(20);

/// Active recording by BPF, whose buffers a thread drains.
#[derive(Debug)]
pub(crate) struct BpfRecording {
    pub(super) kernel: PreparedBpf,
    pub(super) thread: DrainThread<BpfDrain>,
    new_cpus: NewCpus,
    uuid: [u8; 16],
    realtime_offset_ns: i64,
    pub(super) is_stopped: bool,
    /// Time of the stop, CLOCK_MONOTONIC in ns; valid only while recording is stopped.
    stopped_ts: u64,
    /// True if a flight recorder's contents go into the trace at the end.
    keeps_flight_recorder: bool,
    /// Losses until the latest clear, which later counts exclude.
    forgotten: LossCounts,
}

/// Counts of losses by cause.
#[derive(Debug, Clone, Default)]
pub(super) struct LossCounts {
    /// For each event: losses for lack of buffer space.
    by_event: Vec<u64>,
    /// For each event: runs of its program that the kernel skipped.
    missed: Vec<u64>,
    /// Skipped runs of programs that serve several events.
    missed_of_none: u64,
    /// For each event: the part of `missed` that counts as lost.
    missed_lost: Vec<u64>,
    /// Losses because programs interrupted each other too deeply.
    too_deep: u64,
    unasked: u64,
    /// Not lost: for each event, records whose filters read data that was not in memory.
    unread: Vec<u64>,
    /// Not lost: for each event, kernel strings and sequences that were cut.
    cut: Vec<u64>,
    /// System calls by unknown numbers: by 64-bit numbers, and by 32-bit numbers.
    unknown_calls: [u64; 2],
}

impl LossCounts {
    /// Returns the losses since `before`.
    fn since(mut self, before: &Self) -> Self {
        let take = |now: &mut [u64], before: &[u64]| {
            for (now, before) in now.iter_mut().zip(before) {
                *now = now.saturating_sub(*before);
            }
        };
        take(&mut self.by_event, &before.by_event);
        take(&mut self.missed, &before.missed);
        take(&mut self.missed_lost, &before.missed_lost);
        take(&mut self.unread, &before.unread);
        take(&mut self.cut, &before.cut);
        take(&mut self.unknown_calls, &before.unknown_calls);
        self.missed_of_none = self.missed_of_none.saturating_sub(before.missed_of_none);
        self.too_deep = self.too_deep.saturating_sub(before.too_deep);
        self.unasked = self.unasked.saturating_sub(before.unasked);
        self
    }

    fn missed(&self) -> u64 {
        self.missed.iter().sum::<u64>().saturating_add(self.missed_of_none)
    }
}

/// Results of a snapshot of kernel events.
#[derive(Debug)]
pub(crate) struct KernelSnapshot {
    pub(crate) events: u64,
    pub(crate) bytes: u64,
    /// Description of the events that the snapshot lacks.
    pub(crate) missing: Option<String>,
}

impl PreparedBpf {
    /// Creates the kernel's folder in the trace at `root`, with all events in its metadata.
    fn make_trace(
        &self,
        root: &TraceFolder,
        uuid: [u8; 16],
        realtime_offset_ns: i64,
    ) -> Result<Trace, RecordError> {
        let contexts = self.contexts.fields();
        let remarks = self.env_remarks().into();
        let mut trace = Trace::create_kernel(root, uuid, realtime_offset_ns, contexts, remarks)?;
        for (id, event) in (0..).zip(&self.events) {
            trace.metadata.declare_event_with_meanings(0, id, &event.description, &event.meanings);
        }
        let path = || root.path().join(layout::KERNEL_FOLDER).join("metadata");
        trace.metadata.write().map_err(|error| RecordError::Io("write", path(), error.into()))?;
        Ok(trace)
    }

    /// Returns the `env` entries of the trace that list fields of all known events: fields that are
    /// always empty, and fields that are not recorded.
    pub(super) fn env_remarks(&self) -> [(&'static str, String); 2] {
        let empty = self.events.iter().flat_map(|known| {
            let event = known.description.name.as_str();
            known.empty.iter().map(move |field| (event, field.as_str()))
        });
        [
            (EMPTY_FIELDS, format_field_list(empty)),
            (LEFT_OUT_FIELDS, format_field_list(self.omitted_fields(0))),
        ]
    }

    /// Starts writing recorded events to the trace at `root`; `realtime_offset_ns` is the offset of
    /// the trace's clock from the time of day.
    pub(crate) fn begin(
        mut self,
        root: &TraceFolder,
        realtime_offset_ns: i64,
        tracefiles: Tracefiles,
    ) -> Result<BpfRecording, RecordError> {
        // From here on the recorder handles signals itself.
        self.leaving = None;
        let uuid = crate::random::random_uuid()?;
        let trace = self.make_trace(root, uuid, realtime_offset_ns)?;
        let mut works = create_region_drains(self.buffers, self.overwrite);
        if tracefiles.is_bounded() {
            works.iter_mut().for_each(|work| work.cut_into_files(tracefiles));
        }
        let thread = DrainThread::start(BpfDrain {
            buffers: self.buffers,
            trace,
            begin_ts: monotonic_ns(),
            works,
            buffer: Vec::new(),
            live: None,
            flushed: Instant::now(),
            missed_lost: 0,
            scope: self.scope.clone(),
        })?;
        let starts = self.starts;
        let mut draining = BpfRecording {
            new_cpus: NewCpus::new(self.buffers.cpus(), self.is_of_cpus),
            kernel: self,
            thread,
            uuid,
            realtime_offset_ns,
            is_stopped: true,
            stopped_ts: monotonic_ns(),
            keeps_flight_recorder: true,
            forgotten: LossCounts::default(),
        };
        // Start only once the thread drains; events missed until now were not to be recorded.
        if starts {
            draining.start();
        }
        Ok(draining)
    }
}

impl BpfRecording {
    /// Returns the hook from [`PreparedBpf::pre_exec_hook`].
    pub(crate) fn pre_exec_hook(&self) -> Option<PreExecHook> {
        self.kernel.pre_exec_hook()
    }

    /// Returns the limit from [`PreparedBpf::files_limit`].
    pub(crate) fn files_limit(&self) -> Option<u64> {
        self.kernel.files_limit()
    }

    /// Excludes the flight recorder's contents from the trace, since only snapshots contain them.
    pub(crate) fn drop_flight_recorder(&mut self) {
        self.keeps_flight_recorder = false;
    }

    /// Returns true if the buffers are a flight recorder.
    pub(crate) fn is_overwriting(&self) -> bool {
        self.kernel.overwrite
    }

    /// Returns the memory of the buffers, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.kernel.buffers.layout().cpu_bytes() * self.kernel.buffers.cpus()) as u64
    }

    /// Stops recording, until [`Self::start`].
    pub(crate) fn stop(&mut self) {
        if self.is_stopped {
            return;
        }
        self.kernel.buffers.stop();
        self.is_stopped = true;
        wait_for_running_programs();
        self.stopped_ts = monotonic_ns();
        self.kernel.count_missed();
    }

    /// Starts recording again.
    pub(crate) fn start(&mut self) {
        if self.is_stopped {
            self.kernel.skip_missed();
            self.kernel.buffers.start();
            self.is_stopped = false;
        }
    }

    /// Stops recording like [`Self::stop`], and writes recorded events to the trace, except those
    /// of a flight recorder.
    pub(crate) fn stop_and_write(&mut self) -> Result<(), RecordError> {
        self.stop();
        self.note_missed()?;
        let written = self.thread.run(|drainer| {
            drainer.turn(true, false)?;
            let is_flight = drainer.works.iter().any(|work| work.overwrite);
            if is_flight { Ok(()) } else { drainer.close_streams(CloseKind::ForNow) }
        })?;
        written.map_err(unwritten_events_error)
    }

    /// Discards recorded events and counts of losses; recording is stopped during that.
    pub(crate) fn clear(&mut self) -> Result<(), RecordError> {
        let was_stopped = self.is_stopped;
        self.stop();
        self.note_missed()?;
        let cleared = self.thread.clear();
        self.forgotten = self.lost();
        if !was_stopped {
            self.start();
        }
        cleared
    }

    /// Enables undelayed writing while a reader follows the trace, and disables it otherwise.
    pub(crate) fn set_followed(&self, is_followed: bool) {
        self.thread.set_followed(is_followed);
    }

    /// Reports changes in the recording since the previous call.
    pub(crate) fn report_changes(&self, notices: &Notices) {
        self.thread.report_changes(notices);
        self.new_cpus.report(notices);
    }

    /// Returns the counts of events and of losses so far.
    fn counts(&mut self) -> Result<(KernelCounts, LossCounts), RecordError> {
        if !self.is_stopped {
            self.kernel.count_missed();
        }
        let counts = self.thread.run(|drainer| {
            drainer.works.iter_mut().for_each(RegionDrain::poll);
            drainer.counts()
        })?;
        Ok((counts, self.lost().since(&self.forgotten)))
    }

    /// Returns the status of the recording; `None` if it cannot be determined.
    pub(crate) fn status(&mut self, spec: KernelSpec) -> Option<KernelStatus> {
        let (counts, lost) = self.counts().ok()?;
        Some(KernelStatus {
            spec,
            events: self.events_on(),
            recorded: counts.recorded,
            lost: self.total_lost(&lost),
            overwritten: counts.overwritten,
            deleted: counts.deleted,
            passed_over: lost.missed(),
            lost_by_event: self.lost_by_event(&lost),
            too_deep: lost.too_deep,
            unasked: lost.unasked,
            unread: lost.unread.iter().sum(),
            unknown_calls: lost.unknown_calls,
            has_calls_without_number: self.kernel.has_calls_without_number(),
            bytes: counts.bytes,
            memory_bytes: self.memory_bytes(),
            ..KernelStatus::default()
        })
    }

    /// Returns the positions of a flight recorder's regions, for [`Self::write_snapshot`].
    pub(crate) fn begin_snapshot(
        &self,
        last_ns: Option<u64>,
    ) -> Result<Vec<RegionDrain>, RecordError> {
        let since_ts = last_ns.map_or(0, |last| monotonic_ns().saturating_sub(last));
        self.thread.run(move |drainer| {
            drainer.works.iter().map(|work| work.snapshot_view(since_ts)).collect()
        })
    }

    /// Writes the contents of the snapshot's regions to the trace in `folder`. Calls `meanwhile`
    /// repeatedly. Streams end with their last packets, and are not extended to the snapshot's
    /// moment ([`RegionDrain::extend`]): the open packet continues in the next snapshot. In a merge
    /// of both snapshots, an empty packet for that moment would lie within the open packet.
    pub(crate) fn write_snapshot(
        &self,
        mut works: Vec<RegionDrain>,
        folder: &TraceFolder,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<KernelSnapshot, RecordError> {
        let trace = self.kernel.make_trace(folder, self.uuid, self.realtime_offset_ns)?;
        let fail = || RecordError::io("write", folder.path().join(layout::KERNEL_FOLDER));
        let begin_ts = self.thread.run(|drainer| drainer.begin_ts)?;
        let mut summary = Summary::default();
        // Poll late: writers go on. Poll all regions before draining any: threads change CPUs.
        works.iter_mut().for_each(RegionDrain::poll);
        for work in &mut works {
            let drained = work.drain(&mut DrainContext {
                memory: self.kernel.buffers,
                trace: &trace,
                begin_ts,
                partial: true,
                is_last: false,
                buffer: &mut Vec::new(),
            });
            drained.map_err(fail())?;
            work.add_to(&mut summary);
            meanwhile();
        }
        summary.bytes += trace.metadata.bytes();
        let facts = trace.facts_folder().map_err(fail())?;
        completion::mark_complete(&facts, CompletedBy::Record(&summary)).map_err(fail())?;
        let missing = snapshot::describe_missing(&works);
        Ok(KernelSnapshot { events: summary.recorded, bytes: summary.bytes, missing })
    }

    /// Ends the recording, and writes the remaining events.
    pub(crate) fn finish(mut self) -> KernelSummary {
        self.stop();
        let keeps = self.keeps_flight_recorder;
        let told = self.note_missed().map_err(|error| error.to_string());
        let end_ts = self.stopped_ts;
        let DrainResult { counts, written, closed } =
            self.thread.write_end(move |drainer| drainer.end(keeps, end_ts));
        let tells_all = told.is_ok() && closed.is_ok();
        let written = written.and(closed).map_err(|error| IoError::text(&error));
        let lost = self.lost().since(&self.forgotten);
        let events = &self.kernel.events;
        let mut summary = KernelSummary {
            recorded: counts.recorded,
            overwritten: counts.overwritten,
            deleted: counts.deleted,
            damaged: counts.damaged,
            bytes: counts.bytes,
            lost: self.total_lost(&lost).saturating_add(counts.unwritten),
            lost_at_end: counts.unwritten,
            lost_by_event: self.lost_by_event(&lost),
            too_deep: lost.too_deep,
            missed: lost.missed(),
            missed_lost: self.missed_lost(&lost),
            unasked: lost.unasked,
            had_no_room: lost.by_event.iter().any(|&lost| lost > 0),
            unknown_calls: lost.unknown_calls,
            has_calls_without_number: self.kernel.has_calls_without_number(),
            cpus_later: self.new_cpus.count(&cpus::online_cpus()),
            unwritten: told.and(written).err(),
            ..KernelSummary::default()
        };
        let of_each = |counts: &[u64]| {
            let some = events.iter().zip(counts).filter(|(_, count)| **count > 0);
            some.map(|(event, count)| (event.description.name.clone(), *count)).collect()
        };
        (summary.unread, summary.cut) = (of_each(&lost.unread), of_each(&lost.cut));
        if tells_all && (keeps || !self.is_overwriting()) {
            self.thread.mark(summary.as_summary());
        }
        let Self { kernel, thread, .. } = self;
        thread.end();
        drop(kernel);
        summary
    }

    /// Returns the number of missed events that are lost.
    fn missed_lost(&self, lost: &LossCounts) -> u64 {
        let of_none = if self.kernel.records_only_some() { 0 } else { lost.missed_of_none };
        lost.missed_lost.iter().fold(of_none, |sum, missed| sum.saturating_add(*missed))
    }

    /// Adds the missed events that count as lost to the streams' losses.
    fn note_missed(&self) -> Result<(), RecordError> {
        let missed = self.missed_lost(&self.lost());
        self.thread.run(move |drainer| {
            drainer.missed_lost = missed;
            drainer.note_uncounted_losses();
        })
    }

    /// Returns the losses since recording began.
    fn lost(&self) -> LossCounts {
        let PreparedBpf { buffers, events, .. } = &self.kernel;
        LossCounts {
            by_event: (0..events.len()).map(|event| buffers.lost(event)).collect(),
            missed: events.iter().map(|event| event.missed).collect(),
            missed_of_none: self.kernel.missed_of_none,
            missed_lost: events.iter().map(|event| event.missed_lost).collect(),
            too_deep: buffers.too_deep(),
            unasked: buffers.unfiltered_too_deep(),
            unread: (0..events.len()).map(|event| buffers.unread(event)).collect(),
            cut: (0..events.len()).map(|event| buffers.cut(event)).collect(),
            unknown_calls: self.kernel.unknown_calls(),
        }
    }

    /// Returns the events with the most losses, in descending order.
    fn lost_by_event(&self, lost: &LossCounts) -> Vec<(String, u64)> {
        let of_event = |number: usize| {
            let name = &self.kernel.events[number].description.name;
            (name.clone(), lost.by_event[number].saturating_add(lost.missed_lost[number]))
        };
        let numbers = 0..self.kernel.events.len();
        let mut all: Vec<_> = numbers.map(of_event).filter(|(_, lost)| *lost > 0).collect();
        all.sort_by_key(|&(_, lost)| Reverse(lost));
        all.truncate(LOST_SHOWN_MAX);
        all
    }

    /// Returns the number of lost events.
    fn total_lost(&self, lost: &LossCounts) -> u64 {
        let of_events = lost.by_event.iter().sum::<u64>();
        of_events.saturating_add(lost.too_deep).saturating_add(self.missed_lost(lost))
    }
}

/// Waits until the BPF programs that run now have completed their records. That usually takes less
/// than a microsecond, but a virtual CPU may pause for long.
pub(crate) fn wait_for_running_programs() {
    if trackway_sys::process::wait_for_readers_in_kernel().is_err() {
        std::thread::sleep(PROGRAM_RUN_MAX);
    }
}
