//! The progress that recorders publish for their traces (`trackway/live`, beside the streams).
//!
//! While it knows that a reader follows, a recorder writes all that was committed some fifty times
//! a second, and then the time of that. The file is read before the streams: so they have all that
//! it covers. It is believed once it was seen to change, and for as long as it changes: a file that
//! stays the same belongs to a recorder that is gone, or that does not know of a reader.

use std::path::PathBuf;
use std::time::Duration;

use trackway_ctf::read::{Clock, StreamClass, Trace};

use super::told::PATIENCE;
use crate::folder::Found;
use crate::recording::{Flushed, flushed, is_complete};

/// The state of the recorders of the followed traces.
#[derive(Default)]
pub(super) struct Live(Vec<Recorded>);

/// A trace, and what its recorder says.
struct Recorded {
    folder: PathBuf,
    /// The clock that it speaks of.
    clock: Option<Clock>,
    /// Its last progress, and since when.
    said: Option<(Flushed, Duration)>,
    /// True if its progress was seen to change.
    has_changed: bool,
    is_complete: bool,
}

impl Live {
    /// Reads what the recorders of the known traces say at the instant `now`.
    pub(super) fn look(&mut self, now: Duration) {
        self.0.iter_mut().for_each(|trace| trace.look(now));
    }

    /// Knows the traces that were found, and no others. Of those that are new it is not known yet
    /// what their recorders say: that would not be from before their files were looked at.
    pub(super) fn know(&mut self, found: &Found) {
        let mut known = std::mem::take(&mut self.0);
        self.0.extend(found.folders.iter().zip(&found.inputs).map(|(folder, input)| {
            let same = known.iter().position(|trace| trace.folder == *folder);
            let clock = clock(&input.trace);
            match same.map(|index| known.swap_remove(index)) {
                Some(same) => Recorded { clock, ..same },
                None => Recorded {
                    folder: folder.clone(),
                    clock,
                    said: None,
                    has_changed: false,
                    is_complete: false,
                },
            }
        }));
    }

    /// Up to when, in nanoseconds since the clocks' origin, all events of all traces are in the
    /// files, as far as those were looked at after [`Self::look`]; `None` if it is not known of
    /// all traces.
    pub(super) fn horizon(&self, now: Duration) -> Option<i64> {
        // None is less than any.
        self.0.iter().map(|trace| trace.horizon(now)).min().flatten()
    }

    /// Returns true if a recorder publishes progress at the instant `now`, as far as that can be
    /// told.
    pub(super) fn is_heard(&self, now: Duration) -> bool {
        self.0.iter().any(|trace| trace.is_heard(now))
    }
}

impl Recorded {
    fn look(&mut self, now: Duration) {
        self.is_complete = is_complete(&self.folder);
        let Some(says) = flushed(&self.folder) else { return };
        let before = self.said.map(|(said, _)| said);
        if before != Some(says) {
            self.has_changed |= before.is_some();
            self.said = Some((says, now));
        }
    }

    /// Returns true if its recorder has changed its progress lately.
    fn is_heard(&self, now: Duration) -> bool {
        let is_recent = |(_, since): (_, Duration)| now.saturating_sub(since) < PATIENCE;
        !self.is_complete && self.said.is_some_and(is_recent)
    }

    /// Up to when all its events are in its files.
    fn horizon(&self, now: Duration) -> Option<i64> {
        if self.is_complete {
            return Some(i64::MAX);
        }
        let (said, _) = self.said.filter(|_| self.has_changed && self.is_heard(now))?;
        self.clock?.ns_from_origin(said.clock).ok()
    }
}

/// The clock of a trace that has only one.
fn clock(trace: &Trace) -> Option<Clock> {
    let mut clocks = trace.streams().iter().filter_map(StreamClass::clock);
    let clock = *clocks.next()?;
    clocks.all(|other| *other == clock).then_some(clock)
}
