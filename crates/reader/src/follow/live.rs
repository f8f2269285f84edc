//! How far recorders say that their traces are written (`trackway/live`, beside the streams).
//!
//! While it is told that somebody follows, a recorder writes all that was committed some fifty
//! times a second, and then up to when that is. What it says is read before the files are looked
//! at: so they have all that it speaks of. It is believed once it was seen to change, and for as
//! long as it changes: a file that stays the same is of a recorder that is gone, or of one that
//! nobody told.

use std::path::PathBuf;
use std::time::Duration;

use trackway_ctf::read::{Clock, StreamClass, Trace};

use super::told::PATIENCE;
use crate::folder::Found;
use crate::recording::{Flushed, flushed, is_complete};

/// What is known of the recorders of the traces that are followed.
#[derive(Default)]
pub(super) struct Live(Vec<Recorded>);

/// A trace, and what its recorder says.
struct Recorded {
    folder: PathBuf,
    /// The clock that it speaks of.
    clock: Option<Clock>,
    /// What it said last, and since when.
    said: Option<(Flushed, Duration)>,
    /// Whether it was seen to say something else before.
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

    /// Whether a recorder says something at the instant `now`, as far as that can be told.
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

    /// Whether its recorder has said something else lately.
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
