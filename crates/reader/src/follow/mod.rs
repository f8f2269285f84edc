//! Growing traces followed: what has come is written in time order, as soon as that is known.
//!
//! Ten times a second the traces are looked at, and fifty times where recorders say how far they
//! are written ([`live`]). Each look finds the packets that are new and whole, and says up to which
//! time no more events are to come ([`growth`]); events up to there are written through the same
//! pipeline as those of a trace that has ended. What comes later than it should (a tracer that
//! lags) is written when it comes.
//!
//! A trace that `trackway record` writes has ended when no recorder holds its folder's lock any
//! more; of others that cannot be known.

mod diagnostic_log;
mod followed_folders;
mod growth;
mod live;
mod open;
#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use trackway_ctf::read::Trace;
use trackway_render::EventOutput;

use crate::filter::Filters;
use crate::folder::{self, FoundTraces, MetadataCache, OpenError};
use crate::recording::{find_unfinished_recordings, is_live, is_live_below};
use crate::{PrintState, Range, Selection, Settings, first_packet_time, print_events_after};
use diagnostic_log::{CONFIRMATION_TIME, DiagnosticLog};
use followed_folders::FollowedFolders;
use growth::{Growth, LAG_NS};
use live::LiveRecorders;

/// Time between two looks at traces.
const POLL_PERIOD: Duration = Duration::from_millis(100);
/// The same where recorders publish their progress: as often as they do.
const LIVE_POLL_PERIOD: Duration = Duration::from_millis(20);
/// An entry of the environment of traces that `trackway record` wrote.
const VERSION_ENTRY: &str = "trackway_version";

/// The followed traces, and the settings.
pub struct FollowSettings<'a> {
    /// Folders of traces, or where there will be some.
    pub paths: &'a [PathBuf],
    /// Changes each trace that was read before it is used, mostly its clocks.
    pub prepare: &'a dyn Fn(&mut Trace),
    /// The time now on the clock of what `trackway record` writes, as `prepare` leaves it, in
    /// nanoseconds since 1970.
    pub now: &'a dyn Fn() -> i64,
    /// Returns true for names of wanted events.
    pub events: &'a (dyn Fn(&str) -> bool + Sync),
    /// Further conditions.
    pub filters: Option<&'a Filters>,
    /// Checks that the output still has a reader; returns the error of writing if not. Called at
    /// each look: without events, nothing is written for long.
    pub is_read: &'a dyn Fn() -> io::Result<()>,
    /// The settings of the reading.
    pub settings: Settings,
}

/// The wanted range of time of followed traces.
pub enum FollowedRange<'a, E> {
    /// These.
    Known(Range),
    /// A range that depends on when the first packet begins; `None`: it does not say so.
    OfFirst(&'a dyn Fn(Option<i64>) -> Result<Range, E>),
}

/// The result of following traces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowSummary {
    /// True if nothing was damaged.
    pub is_whole: bool,
    /// The folders whose recorder was killed, as [`crate::find_unfinished_recordings`] gives them.
    pub unfinished: Vec<PathBuf>,
}

/// Writes the events of traces as [`crate::print_events`] does, and those that come, until the
/// traces have ended, if that can be known, or the range has, or the program is.
///
/// # Errors
///
/// If a folder cannot be read, or is removed, or `output` or `messages` cannot be written; or what
/// the range's function says. A folder that has no trace yet is waited for; one that is moved is
/// followed where it is.
pub fn follow_traces<E: From<OpenError>>(
    following: &FollowSettings<'_>,
    range: FollowedRange<'_, E>,
    output: &mut impl EventOutput,
    messages: &mut dyn Write,
) -> Result<FollowSummary, E> {
    let mut follower = Follower {
        following,
        range: None,
        followed_folders: FollowedFolders::open(following.paths)?,
        begin: Instant::now(),
        sizes: None,
        changed: Duration::ZERO,
        asked_for_end: Duration::ZERO,
        known: MetadataCache::default(),
        live: LiveRecorders::default(),
        growth: Growth::default(),
        diagnostics: DiagnosticLog::default(),
        before: PrintState::default(),
        is_ours: false,
        is_whole: false,
    };
    let resolve = match range {
        FollowedRange::Known(range) => {
            follower.range = Some(range);
            None
        }
        FollowedRange::OfFirst(resolve) => Some(resolve),
    };
    output.begin().map_err(|error| OpenError::Message(error.into()))?;
    loop {
        (following.is_read)().map_err(|error| OpenError::Message(error.into()))?;
        // Before the files: they have all that their recorders speak of.
        follower.live.read_progress(follower.begin.elapsed());
        let paths = follower.followed_folders.current_paths(messages)?;
        let is_changed = follower.sizes_changed(&paths);
        // In this order: what was written before the end is seen by the look after it.
        let unfinished = if is_changed { None } else { follower.find_end(&paths) };
        let has_ended = unfinished.is_some();
        if is_changed || has_ended || follower.is_waiting() {
            let mut found = follower.open_traces(&paths, has_ended, messages)?;
            let resolve = resolve.filter(|_| follower.range.is_none());
            let first = resolve.and_then(|_| first_packet_time(&found.inputs));
            let now = follower.begin.elapsed();
            follower.growth.set_flushed(follower.live.horizon(now));
            let is_news = follower.growth.update(&mut found.inputs, now, has_ended);
            if let Some(resolve) = resolve.filter(|_| is_news || first.is_some()) {
                follower.range = Some(resolve(first)?);
            }
            if is_news {
                follower.write(found, output, messages)?;
            }
        }
        let now = follower.begin.elapsed();
        follower.growth.set_flushed(follower.live.horizon(now));
        if let Some(unfinished) = unfinished.or_else(|| follower.end_of_range(&paths)) {
            output.end().map_err(|error| OpenError::Message(error.into()))?;
            return Ok(FollowSummary { is_whole: !follower.diagnostics.has_damage(), unfinished });
        }
        std::thread::sleep(if follower.live.is_publishing(now) {
            LIVE_POLL_PERIOD
        } else {
            POLL_PERIOD
        });
    }
}

/// The state of a reader that follows.
struct Follower<'a> {
    following: &'a FollowSettings<'a>,
    /// The wanted range of time, once that is known.
    range: Option<Range>,
    followed_folders: FollowedFolders,
    /// The origin of instants.
    begin: Instant,
    /// The result of the latest reading, and the time of its first appearance.
    sizes: Option<Vec<(u64, u64, u64)>>,
    changed: Duration,
    /// Time of the last check that the traces have ended.
    asked_for_end: Duration,
    known: MetadataCache,
    live: LiveRecorders,
    growth: Growth,
    diagnostics: DiagnosticLog,
    /// The state of what was written, for what comes.
    before: PrintState,
    /// True if `trackway record` writes all of the traces, as far as there are any.
    is_ours: bool,
    /// True if the latest look found none of them damaged.
    is_whole: bool,
}

impl Follower<'_> {
    /// Returns true if files have come, grown or gone since the last call.
    fn sizes_changed(&mut self, paths: &[PathBuf]) -> bool {
        let sizes = Some(folder::file_sizes(paths));
        let is_changed = sizes != self.sizes;
        if is_changed {
            (self.sizes, self.changed) = (sizes, self.begin.elapsed());
        }
        is_changed
    }

    /// Returns true if a look may find more without any file having changed.
    fn is_waiting(&self) -> bool {
        self.growth.is_waiting() || self.diagnostics.is_doubtful()
    }

    /// If the traces are known to have ended, where the latest look saw all there is: those of them
    /// that were not finished.
    fn find_end(&mut self, paths: &[PathBuf]) -> Option<Vec<PathBuf>> {
        let now = self.begin.elapsed();
        if now.saturating_sub(self.asked_for_end) < POLL_PERIOD {
            return None;
        }
        self.asked_for_end = now;
        // The cheap check comes first: this runs ten times a second while nothing happens.
        let may_have_ended =
            self.is_ours && self.is_whole && !paths.iter().any(|path| is_live_below(path, 0));
        if !may_have_ended {
            return None;
        }
        let found = folder::reopen_traces(paths, &mut self.known, &mut io::sink()).ok()?;
        let has_ended = found.is_whole
            && is_recorded_by_trackway(&found)
            && !found.folders.iter().any(|folder| is_live(folder));
        if has_ended { self.once_quiet(find_unfinished_recordings(&found.folders)) } else { None }
    }

    /// If nothing more is to come of the times that are wanted: the traces that were not finished,
    /// because events of those times may be in memory still.
    fn end_of_range(&self, paths: &[PathBuf]) -> Option<Vec<PathBuf>> {
        if !self.is_range_over() {
            return None;
        }
        let found = folder::open_traces(paths, &mut io::sink());
        self.once_quiet(find_unfinished_recordings(
            &found.map(|found| found.folders).unwrap_or_default(),
        ))
    }

    /// The traces that were not finished, if there are none or nothing has happened for a while.
    fn once_quiet(&self, unfinished: Vec<PathBuf>) -> Option<Vec<PathBuf>> {
        // A command may be about to recover it, or writes from where locks are not shared.
        let is_quiet = self.begin.elapsed().saturating_sub(self.changed) >= CONFIRMATION_TIME;
        (unfinished.is_empty() || is_quiet).then_some(unfinished)
    }

    /// Returns true if no more events of the wanted times are to come.
    fn is_range_over(&self) -> bool {
        let Some(end) = self.range.and_then(|range| range.end) else { return false };
        let is_past = match self.growth.is_begun() {
            true => self.growth.is_past(end, self.begin.elapsed()),
            // The time there is unknown; but the clock here is the same.
            false => self.is_ours && (self.following.now)().saturating_sub(LAG_NS) >= end,
        };
        is_past && !self.growth.is_doubtful() && !self.diagnostics.is_doubtful()
    }

    /// Opens the traces that exist. Errors in them are reported if the traces have `ended`, or once
    /// the errors last.
    fn open_traces(
        &mut self,
        paths: &[PathBuf],
        ended: bool,
        messages: &mut dyn Write,
    ) -> Result<FoundTraces, OpenError> {
        let mut lines = Vec::new();
        let mut found = match folder::reopen_traces(paths, &mut self.known, &mut lines) {
            Err(OpenError::NoTrace(_)) => {
                FoundTraces { inputs: Vec::new(), folders: Vec::new(), is_whole: true }
            }
            found => found?,
        };
        let reported = match ended {
            true => self.diagnostics.report(&lines, messages),
            // What is wrong now may be half written.
            false => self.diagnostics.report_if_lasting(&lines, self.begin.elapsed(), messages),
        };
        reported.map_err(|error| OpenError::Message(error.into()))?;
        found.inputs.iter_mut().for_each(|input| (self.following.prepare)(&mut input.trace));
        (self.is_ours, self.is_whole) = (is_recorded_by_trackway(&found), found.is_whole);
        self.live.update_traces(&found);
        Ok(found)
    }

    /// Writes the events that were found.
    fn write(
        &mut self,
        found: FoundTraces,
        output: &mut impl EventOutput,
        messages: &mut dyn Write,
    ) -> Result<(), OpenError> {
        let range = self.range.unwrap_or_default();
        let FollowSettings { events, filters, .. } = *self.following;
        let selection = Selection { range, events, filters };
        let mut lines = Vec::new();
        let before = std::mem::take(&mut self.before);
        let settings = &self.following.settings;
        let printed =
            print_events_after(found.inputs, &selection, output, settings, before, &mut lines);
        (_, self.before) = printed.map_err(|error| OpenError::Message(error.into()))?;
        self.diagnostics.report(&lines, messages).map_err(|error| OpenError::Message(error.into()))
    }
}

/// Returns true if `trackway record` wrote all traces that were found, and there are some.
fn is_recorded_by_trackway(found: &FoundTraces) -> bool {
    !found.inputs.is_empty()
        && found.inputs.iter().all(|input| input.trace.environment(VERSION_ENTRY).is_some())
}
