//! Snapshots: the current contents of flight recorders, written to a new trace.
//!
//! A snapshot reads the regions while writers continue, and changes nothing in them. Its trace has
//! the session's identity, and a sub-buffer's packet has the same number in all snapshots. So
//! `trackway merge` combines several snapshots without duplicating an event.

use std::fs;
use std::path::Path;

use trackway_session::machine::Reason;
use trackway_session::protocol::SnapshotFacts;
use trackway_sys::clock::monotonic_ns;

use crate::error::RecordError;
use crate::recording::Recording;
use crate::recording::channel::{self, Channel};
use crate::recording::region::{DrainContext, RegionDrain};
use crate::summary::Summary;
use crate::trace::completion::{self, CompletedBy};
use crate::trace::layout::{FACTS_FOLDER, Trace, TraceProperties, WindowFolder};
use crate::trace::prepare::{self, PreparedFolder};
use crate::window::memory_pool::FileMemory;

/// Name of the file with the reason for a snapshot.
const REASON_FILE: &str = "reason";

/// Returns the line of the reason file: `by=user`, `by=program`, or `by=crash pid=1234 signal=11`.
fn format_reason(reason: &Reason) -> String {
    match reason {
        Reason::Requested => "by=user\n".into(),
        Reason::Program => "by=program\n".into(),
        Reason::Crash { pid, signal } => format!("by=crash pid={pid} signal={signal}\n"),
    }
}

/// Describes the regions that a snapshot lacks completely; `None` if it lacks none.
pub(crate) fn describe_missing(works: &[RegionDrain]) -> Option<String> {
    let missed: Vec<_> =
        works.iter().filter(|work| work.is_missed()).map(RegionDrain::name).collect();
    (!missed.is_empty()).then(|| {
        format!(
            "nothing is in it of {}: what was there was overwritten faster than it could be \
             copied; larger buffers hold it longer",
            missed.join(", ")
        )
    })
}

impl Recording {
    /// Writes the contents of flight recorders to a new trace in `folder`, while recording
    /// continues. With `last_ns`, writes only records of that many last nanoseconds, in whole
    /// sub-buffers.
    pub fn snapshot(
        &mut self,
        folder: &Path,
        last_ns: Option<u64>,
        reason: &Reason,
    ) -> Result<SnapshotFacts, RecordError> {
        let (facts, mut prepared_folder) =
            self.snapshot_in(|| prepare::prepare_trace_folder(folder), last_ns, reason)?;
        prepared_folder.commit();
        Ok(facts)
    }

    /// Writes a snapshot to the folder that `prepare` makes. Returns the folder, so that the caller
    /// can add further parts and then commit it.
    pub(crate) fn snapshot_in(
        &mut self,
        prepare: impl FnOnce() -> Result<PreparedFolder, RecordError>,
        last_ns: Option<u64>,
        reason: &Reason,
    ) -> Result<(SnapshotFacts, PreparedFolder), RecordError> {
        self.check_window()?;
        let since_ts = last_ns.map_or(0, |last| monotonic_ns().saturating_sub(last));
        let prepared_folder = prepare()?;
        let facts = self.snapshot_into(&prepared_folder, since_ts, reason)?;
        Ok((facts, prepared_folder))
    }

    /// Writes the records newer than `since_ts` (ns of CLOCK_MONOTONIC). If the disk is full,
    /// leaves no partial snapshot.
    pub(crate) fn snapshot_into(
        &mut self,
        prepared_folder: &PreparedFolder,
        since_ts: u64,
        reason: &Reason,
    ) -> Result<SnapshotFacts, RecordError> {
        self.check_window()?;
        let written = self.write_snapshot(prepared_folder, since_ts, reason);
        if written.is_err() {
            let folder = self.window_folder().unwrap_or_else(WindowFolder::own);
            // Readers would take a partial snapshot for a trace, and fail to open the other parts.
            // Files that cannot be removed stay.
            let _ = prepared_folder.trace_folder().remove_chain(&folder.names());
        }
        written
    }

    fn write_snapshot(
        &mut self,
        prepared_folder: &PreparedFolder,
        since_ts: u64,
        reason: &Reason,
    ) -> Result<SnapshotFacts, RecordError> {
        let mut trace =
            Trace::create(&prepared_folder.trace_folder(), self.snapshot_trace_properties())?;
        let mut summary = Summary::default();
        let mut buffer = Vec::new();
        // All regions are polled before any is copied, because copying takes long: a thread that
        // migrates between CPUs would leave a gap. (Overwritten regions are polled again.)
        let beside = |work: &RegionDrain| {
            let mut work = work.snapshot_view(since_ts);
            work.poll();
            work
        };
        let is_read = |channel: &&Channel| channel.is_overwriting() && !channel.is_lockless();
        let works: Vec<(u64, Vec<RegionDrain>)> = self
            .channels
            .iter()
            .filter(is_read)
            .map(|channel| (channel.begin_ts, channel.regions.iter().map(beside).collect()))
            .collect();
        let mut copied = Vec::new();
        for (begin_ts, works) in works {
            for mut work in works {
                self.copy_region(&mut work, begin_ts, &trace, &mut buffer)?;
                work.add_to(&mut summary);
                copied.push(work);
                self.keep_alive();
            }
        }
        // Ids are read after records, so that the id of every record is declared. The session's own
        // trace declares them first, so its metadata covers the declarations of every snapshot.
        for channel in &mut self.channels {
            channel.declare_events(self.handle.window(), &mut self.trace)?;
        }
        trace.metadata.copy_declarations(&self.trace.metadata);
        trace.metadata.write().map_err(RecordError::io("write", &prepared_folder.path))?;
        summary.bytes += trace.metadata.bytes();
        trace
            .facts_folder()
            .and_then(|facts| {
                fs::write(facts.join(REASON_FILE), format_reason(reason))?;
                completion::mark_complete(&facts, CompletedBy::Record(&summary))
            })
            .map_err(RecordError::io("write", prepared_folder.path.join(FACTS_FOLDER)))?;
        Ok(SnapshotFacts {
            folder: prepared_folder.path.clone(),
            events: summary.recorded,
            bytes: summary.bytes,
            missing: describe_missing(&copied).into_iter().collect(),
        })
    }

    /// Returns the folder of this recording's streams in a trace of several users; `None` if
    /// another process began the trace.
    pub(crate) fn window_folder(&self) -> Option<WindowFolder> {
        self.trace.of.as_ref().map(|of| of.folder)
    }

    fn snapshot_trace_properties(&self) -> TraceProperties {
        let now = channel::trace_properties(self.trace.uuid, &self.channels);
        // The clock offset is the one at session begin, so an event has one time in all snapshots.
        let Some(of) = &self.trace.of else { return now };
        TraceProperties { realtime_offset_ns: of.realtime_offset_ns, folder: of.folder, ..now }
    }

    /// Copies the contents of a region since its poll. The stream begins at the channel's begin
    /// time, so its empty first packet is the same in all snapshots.
    fn copy_region(
        &self,
        work: &mut RegionDrain,
        begin_ts: u64,
        trace: &Trace,
        buffer: &mut Vec<u8>,
    ) -> Result<(), RecordError> {
        let memory = FileMemory(self.handle.allocator.file());
        let mut with = DrainContext {
            memory: &memory,
            trace,
            begin_ts,
            partial: true,
            is_last: false,
            buffer,
        };
        work.drain(&mut with)
            .map_err(RecordError::io("write", trace.channel.path().join(work.name())))
    }
}
