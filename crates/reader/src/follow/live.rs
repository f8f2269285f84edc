//! The progress that recorders publish for their traces (`trackway/live`, beside the streams).
//!
//! A recorder with a reader that follows writes all committed events some fifty times a second, and
//! then their time. The reader reads this file before the streams, so the streams contain all
//! events that it covers. The file is valid once it was seen to change, and as long as it changes.
//! A file that does not change belongs to a recorder that is gone, or that does not know of a
//! reader.

use std::path::PathBuf;
use std::time::Duration;

use trackway_ctf::read::{Clock, StreamClass, Trace};

use super::diagnostic_log::CONFIRMATION_TIME;
use crate::folder::FoundTraces;
use crate::recording::{RecorderProgress, is_complete, read_progress};

/// The state of the recorders of the followed traces.
#[derive(Default)]
pub(super) struct LiveRecorders(Vec<TraceProgress>);

/// A trace, and the progress of its recorder.
struct TraceProgress {
    folder: PathBuf,
    /// Clock of the published times.
    clock: Option<Clock>,
    /// Latest progress, and the instant of its first appearance.
    progress: Option<(RecorderProgress, Duration)>,
    /// True if the progress was seen to change.
    has_changed: bool,
    is_complete: bool,
}

impl LiveRecorders {
    /// Reads the progress of the recorders of the known traces at the instant `now`.
    pub(super) fn read_progress(&mut self, now: Duration) {
        self.0.iter_mut().for_each(|trace| trace.read_progress(now));
    }

    /// Keeps only the found traces. New traces have no progress yet, because a progress read now
    /// would be newer than the contents of their files.
    pub(super) fn update_traces(&mut self, found: &FoundTraces) {
        let mut known = std::mem::take(&mut self.0);
        self.0.extend(found.folders.iter().zip(&found.inputs).map(|(folder, input)| {
            let same = known.iter().position(|trace| trace.folder == *folder);
            let clock = find_single_clock(&input.trace);
            match same.map(|index| known.swap_remove(index)) {
                Some(same) => TraceProgress { clock, ..same },
                None => TraceProgress {
                    folder: folder.clone(),
                    clock,
                    progress: None,
                    has_changed: false,
                    is_complete: false,
                },
            }
        }));
    }

    /// Returns the time, in nanoseconds since the clocks' origin, up to which the files of all
    /// traces contain all events, if the files were read after [`Self::read_progress`]. Returns
    /// `None` if it is not known for all traces.
    pub(super) fn horizon(&self, now: Duration) -> Option<i64> {
        // `None` is less than any time.
        self.0.iter().map(|trace| trace.horizon(now)).min().flatten()
    }

    /// Returns true if, as far as known, a recorder publishes progress at the instant `now`.
    pub(super) fn is_publishing(&self, now: Duration) -> bool {
        self.0.iter().any(|trace| trace.is_publishing(now))
    }
}

impl TraceProgress {
    fn read_progress(&mut self, now: Duration) {
        self.is_complete = is_complete(&self.folder);
        let Some(current) = read_progress(&self.folder) else { return };
        let before = self.progress.map(|(progress, _)| progress);
        if before != Some(current) {
            self.has_changed |= before.is_some();
            self.progress = Some((current, now));
        }
    }

    /// Returns true if the trace's recorder has changed its progress recently.
    fn is_publishing(&self, now: Duration) -> bool {
        let is_recent = |(_, since): (_, Duration)| now.saturating_sub(since) < CONFIRMATION_TIME;
        !self.is_complete && self.progress.is_some_and(is_recent)
    }

    /// Returns the time up to which the trace's files contain all events.
    fn horizon(&self, now: Duration) -> Option<i64> {
        if self.is_complete {
            return Some(i64::MAX);
        }
        let (progress, _) =
            self.progress.filter(|_| self.has_changed && self.is_publishing(now))?;
        self.clock?.ns_from_origin(progress.clock).ok()
    }
}

/// Returns the clock of a trace that has only one clock.
fn find_single_clock(trace: &Trace) -> Option<Clock> {
    let mut clocks = trace.streams().iter().filter_map(StreamClass::clock);
    let clock = *clocks.next()?;
    clocks.all(|other| *other == clock).then_some(clock)
}
