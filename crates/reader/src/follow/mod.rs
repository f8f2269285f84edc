//! Following of growing traces: new events are written in time order, as soon as their order is
//! known.
//!
//! The reader polls the traces ten times a second, and fifty times if recorders publish their
//! progress ([`live`]). Each poll finds new, complete packets and the time up to which no more
//! events are expected ([`growth`]). Events up to that time pass through the same pipeline as those
//! of a finished trace. Events that arrive too late (from a tracer that lags) are written when they
//! arrive.
//!
//! A trace of `trackway record` has ended when no recorder holds its folder's lock. For traces of
//! other tracers, the end is unknown.

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

/// Time between two polls of the traces.
const POLL_PERIOD: Duration = Duration::from_millis(100);
/// Time between two polls if recorders publish their progress: the recorders' own period.
const LIVE_POLL_PERIOD: Duration = Duration::from_millis(20);
/// Environment entry of all traces that `trackway record` wrote.
const VERSION_ENTRY: &str = "trackway_version";

/// The followed traces, and the settings.
pub struct FollowSettings<'a> {
    /// Folders of existing or future traces.
    pub paths: &'a [PathBuf],
    /// Modifies each trace after its metadata is read, mostly its clocks.
    pub prepare: &'a dyn Fn(&mut Trace),
    /// Returns the current time on the clock of `trackway record`'s traces, as changed by
    /// `prepare`, in nanoseconds since 1970.
    pub now: &'a dyn Fn() -> i64,
    /// Returns true for names of wanted events.
    pub events: &'a (dyn Fn(&str) -> bool + Sync),
    /// Further conditions on events.
    pub filters: Option<&'a Filters>,
    /// Checks that the output still has a reader; returns the write error if not. Called at each
    /// poll, because without events nothing is written for long.
    pub is_read: &'a dyn Fn() -> io::Result<()>,
    /// Settings for decoding and merging.
    pub settings: Settings,
}

/// The wanted range of time of followed traces.
pub enum FollowedRange<'a, E> {
    /// A known range.
    Known(Range),
    /// A range that depends on the first packet's begin; the argument is `None` if that is not
    /// known.
    OfFirst(&'a dyn Fn(Option<i64>) -> Result<Range, E>),
}

/// The result of following traces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowSummary {
    /// True if nothing was damaged.
    pub is_whole: bool,
    /// Folders whose recorder was killed; see [`crate::find_unfinished_recordings`].
    pub unfinished: Vec<PathBuf>,
}

/// Writes the existing events of traces like [`crate::print_events`], and then new ones. Returns
/// when the traces are known to have ended, or the range is over; otherwise the program must be
/// ended.
///
/// # Errors
///
/// Returns an error if a folder cannot be read or is removed, if `output` or `messages` cannot be
/// written, or if the range's function fails. Waits for a trace in a folder that has none yet, and
/// follows a moved folder to its new place.
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
        // Before the files: then the files contain all events that the progress covers.
        follower.live.read_progress(follower.begin.elapsed());
        let paths = follower.followed_folders.current_paths(messages)?;
        let is_changed = follower.sizes_changed(&paths);
        // After the file sizes: then the next reading finds all data that was written before the
        // end.
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

/// The state of following.
struct Follower<'a> {
    following: &'a FollowSettings<'a>,
    /// Wanted range of time, once known.
    range: Option<Range>,
    followed_folders: FollowedFolders,
    /// Origin of all instants.
    begin: Instant,
    /// File sizes at the latest poll, and the instant of their latest change.
    sizes: Option<Vec<(u64, u64, u64)>>,
    changed: Duration,
    /// Instant of the latest check for the end of the traces.
    asked_for_end: Duration,
    known: MetadataCache,
    live: LiveRecorders,
    growth: Growth,
    diagnostics: DiagnosticLog,
    /// State after the written events, for later ones.
    before: PrintState,
    /// True if `trackway record` wrote all traces found so far.
    is_ours: bool,
    /// True if the latest reading found no damage.
    is_whole: bool,
}

impl Follower<'_> {
    /// Returns true if files have appeared, grown or disappeared since the last call.
    fn sizes_changed(&mut self, paths: &[PathBuf]) -> bool {
        let sizes = Some(folder::file_sizes(paths));
        let is_changed = sizes != self.sizes;
        if is_changed {
            (self.sizes, self.changed) = (sizes, self.begin.elapsed());
        }
        is_changed
    }

    /// Returns true if the next reading may find more although no file has changed.
    fn is_waiting(&self) -> bool {
        self.growth.is_waiting() || self.diagnostics.is_doubtful()
    }

    /// Returns the unfinished traces if all traces are known to have ended and the latest reading
    /// found all data; otherwise `None`.
    fn find_end(&mut self, paths: &[PathBuf]) -> Option<Vec<PathBuf>> {
        let now = self.begin.elapsed();
        if now.saturating_sub(self.asked_for_end) < POLL_PERIOD {
            return None;
        }
        self.asked_for_end = now;
        // The cheap check comes first: it runs ten times a second while nothing happens.
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

    /// Returns the unfinished traces if no more events of the wanted range are expected; otherwise
    /// `None`. Unfinished traces matter, because events of the range may still be in memory.
    fn end_of_range(&self, paths: &[PathBuf]) -> Option<Vec<PathBuf>> {
        if !self.is_range_over() {
            return None;
        }
        let found = folder::open_traces(paths, &mut io::sink());
        self.once_quiet(find_unfinished_recordings(
            &found.map(|found| found.folders).unwrap_or_default(),
        ))
    }

    /// Returns `unfinished`, if it is empty or nothing has changed for a while.
    fn once_quiet(&self, unfinished: Vec<PathBuf>) -> Option<Vec<PathBuf>> {
        // A command may be about to recover the trace, or a recorder may write from a system that
        // does not share locks.
        let is_quiet = self.begin.elapsed().saturating_sub(self.changed) >= CONFIRMATION_TIME;
        (unfinished.is_empty() || is_quiet).then_some(unfinished)
    }

    /// Returns true if no more events of the wanted range are expected.
    fn is_range_over(&self) -> bool {
        let Some(end) = self.range.and_then(|range| range.end) else { return false };
        let is_past = match self.growth.is_begun() {
            true => self.growth.is_past(end, self.begin.elapsed()),
            // No time in the traces is known yet, but they have this system's clock.
            false => self.is_ours && (self.following.now)().saturating_sub(LAG_NS) >= end,
        };
        is_past && !self.growth.is_doubtful() && !self.diagnostics.is_doubtful()
    }

    /// Opens the existing traces. Errors in them are reported if the traces have `ended`, or when
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
            // Damaged data may be half written.
            false => self.diagnostics.report_if_lasting(&lines, self.begin.elapsed(), messages),
        };
        reported.map_err(|error| OpenError::Message(error.into()))?;
        found.inputs.iter_mut().for_each(|input| (self.following.prepare)(&mut input.trace));
        (self.is_ours, self.is_whole) = (is_recorded_by_trackway(&found), found.is_whole);
        self.live.update_traces(&found);
        Ok(found)
    }

    /// Writes the events of the found parts.
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

/// Returns true if at least one trace was found, and `trackway record` wrote all of them.
fn is_recorded_by_trackway(found: &FoundTraces) -> bool {
    !found.inputs.is_empty()
        && found.inputs.iter().all(|input| input.trace.environment(VERSION_ENTRY).is_some())
}
