//! Snapshots: the contents of flight recorders at a moment, as a trace of its own.
//!
//! The regions are read beside the writers, as at the end of a recording, and nothing in them
//! changes. The trace has the session's identity, and each sub-buffer's packet the same number in
//! all snapshots: so `trackway merge` makes one of several, in which no event is there twice.

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

/// Returns its line: `by=user`, `by=program`, or `by=crash pid=1234 signal=11`.
fn format_reason(reason: &Reason) -> String {
    match reason {
        Reason::Requested => "by=user\n".into(),
        Reason::Program => "by=program\n".into(),
        Reason::Crash { pid, signal } => format!("by=crash pid={pid} signal={signal}\n"),
    }
}

/// Describes the parts of these that a snapshot lacks, if its streams do not show them.
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
    /// Writes the contents of flight recorders to a new trace in `folder`: all, or those newer than
    /// `last_ns` nanoseconds, in whole sub-buffers. Recording goes on.
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

    /// Writes a snapshot to the folder that `prepare` makes. Returns the folder, too, for further
    /// parts; the caller commits it then.
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

    /// Writes the records newer than `since_ts` (ns of CLOCK_MONOTONIC) if there is space: all of
    /// them, or none.
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
            // A partial snapshot would be taken for a trace, and make others unreadable. Files that
            // cannot be removed stay.
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
        // All are polled before any is copied, which takes long: a thread that moves from one CPU
        // to another in between would else leave a gap. (Overwritten ones are polled again.)
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
        // Records first, ids afterwards: so the id of every record is declared. And first in the
        // session's own trace, whose metadata thus declares everything that any piece declares.
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

    /// Returns the folder of its streams in a trace of several users; `None`: the trace was not
    /// begun here.
    pub(crate) fn window_folder(&self) -> Option<WindowFolder> {
        self.trace.of.as_ref().map(|of| of.folder)
    }

    fn snapshot_trace_properties(&self) -> TraceProperties {
        let now = channel::trace_properties(self.trace.uuid, &self.channels);
        // The clock's offset is that of the session's begin: an event in two snapshots has one
        // time.
        let Some(of) = &self.trace.of else { return now };
        TraceProperties { realtime_offset_ns: of.realtime_offset_ns, folder: of.folder, ..now }
    }

    /// Copies the contents of a region at its poll. Its stream begins when the channel did: so the
    /// empty packet that it begins with is the same in all snapshots.
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
