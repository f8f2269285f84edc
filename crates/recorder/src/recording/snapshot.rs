//! Snapshots: what is in flight recorders at a moment, as a trace of its own.
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
use crate::recording::region::{Drain, RegionWork};
use crate::summary::Summary;
use crate::trace::completion::{self, By};
use crate::trace::layout::{FACTS, Particulars, Trace, WindowFolder};
use crate::trace::prepare::{self, Room};
use crate::window::memory_pool::FileMemory;

/// Name of the file that says why there is a snapshot.
const REASON: &str = "reason";

/// What it says: `by=user`, `by=program`, or `by=crash pid=1234 signal=11`.
fn line_of(reason: &Reason) -> String {
    match reason {
        Reason::Requested => "by=user\n".into(),
        Reason::Program => "by=program\n".into(),
        Reason::Crash { pid, signal } => format!("by=crash pid={pid} signal={signal}\n"),
    }
}

/// What a snapshot lacks of these, if it is anything that its streams do not say.
pub(crate) fn missing_of(works: &[RegionWork]) -> Option<String> {
    let missed: Vec<_> =
        works.iter().filter(|work| work.is_missed()).map(RegionWork::name).collect();
    (!missed.is_empty()).then(|| {
        format!(
            "nothing is in it of {}: what was there was overwritten faster than it could be \
             copied; larger buffers hold it longer",
            missed.join(", ")
        )
    })
}

impl Recording {
    /// Writes what is in flight recorders to a new trace in `folder`: all, or what is newer than
    /// `last_ns` nanoseconds, in whole sub-buffers. Recording goes on meanwhile.
    pub fn snapshot(
        &mut self,
        folder: &Path,
        last_ns: Option<u64>,
        reason: &Reason,
    ) -> Result<SnapshotFacts, RecordError> {
        let (facts, mut room) = self.snapshot_in(|| prepare::prepare(folder), last_ns, reason)?;
        room.settle();
        Ok(facts)
    }

    /// The same, in what `prepare` makes; that, too, for what else goes into it, to be settled
    /// then.
    pub(crate) fn snapshot_in(
        &mut self,
        prepare: impl FnOnce() -> Result<Room, RecordError>,
        last_ns: Option<u64>,
        reason: &Reason,
    ) -> Result<(SnapshotFacts, Room), RecordError> {
        self.check_window()?;
        let since_ts = last_ns.map_or(0, |last| monotonic_ns().saturating_sub(last));
        let room = prepare()?;
        let facts = self.snapshot_into(&room, since_ts, reason)?;
        Ok((facts, room))
    }

    /// The same, of what is newer than `since_ts` (ns of CLOCK_MONOTONIC), where there is room: all
    /// of it, or nothing.
    pub(crate) fn snapshot_into(
        &mut self,
        room: &Room,
        since_ts: u64,
        reason: &Reason,
    ) -> Result<SnapshotFacts, RecordError> {
        self.check_window()?;
        let written = self.write_snapshot(room, since_ts, reason);
        if written.is_err() {
            let folder = self.window_folder().unwrap_or_else(WindowFolder::own);
            // Half of it would be taken for a trace, and keep others from being read. What cannot
            // be removed stays.
            let _ = room.place().remove_chain(&folder.names());
        }
        written
    }

    fn write_snapshot(
        &mut self,
        room: &Room,
        since_ts: u64,
        reason: &Reason,
    ) -> Result<SnapshotFacts, RecordError> {
        let mut trace = Trace::create(&room.place(), self.particulars())?;
        let mut summary = Summary::default();
        let mut buffer = Vec::new();
        // All are looked at before any is copied, which takes long: a thread that goes from one CPU
        // to another meanwhile would else leave a gap. (What is overwritten is looked at again.)
        let beside = |work: &RegionWork| {
            let mut work = work.beside(since_ts);
            work.look();
            work
        };
        let is_read = |channel: &&Channel| channel.is_overwriting() && !channel.is_lockless();
        let works: Vec<(u64, Vec<RegionWork>)> = self
            .channels
            .iter()
            .filter(is_read)
            .map(|channel| (channel.begin_ts, channel.regions.iter().map(beside).collect()))
            .collect();
        let mut copied = Vec::new();
        for (begin_ts, works) in works {
            for mut work in works {
                self.copy(&mut work, begin_ts, &trace, &mut buffer)?;
                work.add_to(&mut summary);
                copied.push(work);
                self.keep_alive();
            }
        }
        // Records first, ids then: so the id of every record is declared. And first in the
        // session's own trace, whose metadata thus declares all that any piece of it does.
        for channel in &mut self.channels {
            channel.declare_events(self.home.window(), &mut self.trace)?;
        }
        trace.metadata.declare_as(&self.trace.metadata);
        trace.metadata.write().map_err(RecordError::io("write", &room.path))?;
        summary.bytes += trace.metadata.bytes();
        trace
            .facts()
            .and_then(|facts| {
                fs::write(facts.join(REASON), line_of(reason))?;
                completion::mark(&facts, By::Record(&summary))
            })
            .map_err(RecordError::io("write", room.path.join(FACTS)))?;
        Ok(SnapshotFacts {
            folder: room.path.clone(),
            events: summary.recorded,
            bytes: summary.bytes,
            missing: missing_of(&copied).into_iter().collect(),
        })
    }

    /// Where its streams are in a trace of several users; none: the trace was not begun here.
    pub(crate) fn window_folder(&self) -> Option<WindowFolder> {
        self.trace.of.as_ref().map(|of| of.folder)
    }

    fn particulars(&self) -> Particulars {
        let now = channel::particulars(self.trace.uuid, &self.channels);
        // The clock's offset is that of the session's begin: what is in two snapshots has one time.
        let Some(of) = &self.trace.of else { return now };
        Particulars { realtime_offset_ns: of.realtime_offset_ns, folder: of.folder, ..now }
    }

    /// Copies what a region had when it was looked at. Its stream begins when the channel did: so
    /// the empty packet that it begins with is the same in all snapshots.
    fn copy(
        &self,
        work: &mut RegionWork,
        begin_ts: u64,
        trace: &Trace,
        buffer: &mut Vec<u8>,
    ) -> Result<(), RecordError> {
        let memory = FileMemory(self.home.allocator.file());
        let mut with =
            Drain { memory: &memory, trace, begin_ts, partial: true, is_last: false, buffer };
        work.drain(&mut with)
            .map_err(RecordError::io("write", trace.channel.path().join(work.name())))
    }
}
