//! A running session in one window: the recorder polls, drains, grows and ends its channels, and
//! renews lease and clock.

pub(crate) mod abandoned_channel;
pub(crate) mod changes;
pub(crate) mod channel;
pub(crate) mod free_slot;
pub(crate) mod lockless;
pub(crate) mod memory_return;
pub(crate) mod region;
pub(crate) mod snapshot;
pub(crate) mod totals;

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use trackway_abi::session::PATH_BYTES_MAX;
use trackway_session::protocol::ChannelStatus;
use trackway_session::{Calibrator, Change, Line, Ticker};
use trackway_sys::clock::monotonic_ns;

use crate::error::RecordError;
use crate::notices::Notices;
use crate::recording::channel::{Channel, DrainEnd};
use crate::recording::region::RegionDrain;
use crate::summary::Summary;
use crate::trace::completion::{self, CompletedBy};
use crate::trace::folder::TraceFolder;
use crate::trace::layout::{FACTS_FOLDER, Trace, TraceProperties, WindowFolder};
use crate::trace::progress_file::ProgressFile;
use crate::window::cpu_barrier::Visits;
use crate::window::handle::WindowHandle;
use crate::window::lease::renewal_period_ns;
use crate::window::settings::{ChannelSettings, SessionSettings};
use crate::window::shared_text;
use crate::window::{clock_line, slot};

/// Period of the clock's calibration and of other slow checks, in ns.
const SLOW_PERIOD_NS: u64 = 100_000_000;
/// Period at which partly filled open sub-buffers are written, in ns. Readers that follow the trace
/// see events with at most this delay, even if events are few.
const FLUSH_PERIOD_NS: u64 = 500_000_000;
/// Longest period between ticks while regions give memory back that writers may need again, in ns.
const SHRINKING_PERIOD_NS: u64 = 1_000_000;
/// Period at which open sub-buffers are written while a reader follows through the control socket,
/// in ns.
const LIVE_PERIOD_NS: u64 = 20_000_000;
/// Longest delay between a record's timestamp and its commit for which the order of events holds,
/// in ns: a writer may be preempted between reading the clock and its sequence.
const LATE_NS_MAX: u64 = 5_000_000;
/// Shortest time between the first two readings of the clock.
const FIRST_BASELINE: Duration = Duration::from_millis(6);

/// The part of a session in one window, recorded by this process.
#[derive(Debug)]
pub struct Recording {
    pub(crate) handle: WindowHandle,
    pub(crate) trace: Trace,
    pub(crate) channels: Vec<Channel>,
    /// Settings of the session; `None` for a recovery.
    pub(crate) session: Option<SessionSettings>,
    /// Results of channels that ended before the session.
    pub(crate) ended: Summary,
    calibrator: Option<Calibrator>,
    epoch: u64,
    /// Clock line that writers use.
    line: Option<Line>,
    ticker: Ticker,
    /// True if this process completes the trace of another recorder.
    pub(crate) is_recovery: bool,
    /// The treatment of records that cannot be written.
    pub(crate) unwritten: UnwrittenPolicy,
    /// File that tells a following reader how far the trace is written; `Some` while one follows.
    live: Option<ProgressFile>,
    /// True if flight recorders end without writing their contents to the trace.
    pub(crate) drops_flight_recorders: bool,
    /// True if buffers of ended channels are left for `trackway recover`.
    pub(crate) has_left_behind: bool,
    /// True if a poll between two ticks found new records.
    has_data: bool,
    /// Event revision of the window at the latest check.
    events_revision: u32,
    visits: Visits,
    lease_due_ns: u64,
    slow_due_ns: u64,
    flush_due_ns: u64,
    pub(crate) buffer: Vec<u8>,
}

/// Policy for buffered records that cannot be written when the session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnwrittenPolicy {
    /// The records stay for recovery into their trace; if the trace was removed, they are
    /// discarded.
    KeepForTrace,
    /// The records stay even if their trace was removed: recovery can make another trace.
    Keep,
    /// The records are discarded.
    Discard,
}

/// Location of the trace of a session in one window.
#[derive(Debug, Clone)]
pub(crate) struct TraceLocation {
    /// The folder of the session's trace.
    pub(crate) root: Arc<TraceFolder>,
    /// Folder of the window's part, below `root`.
    pub(crate) folder: WindowFolder,
    /// CLOCK_REALTIME − CLOCK_MONOTONIC, in ns; all windows of a session use one value, so that
    /// times compare. `None`: the present value.
    pub(crate) realtime_offset_ns: Option<i64>,
}

impl TraceLocation {
    /// Returns the location for a session that records only the calling user's window.
    fn of(session: &SessionSettings) -> Result<Self, RecordError> {
        let (folder, path) = (WindowFolder::own(), &session.path);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        let root = made.and_then(|()| TraceFolder::open(path));
        let root = Arc::new(root.map_err(RecordError::io("use", path))?);
        Ok(Self { root, folder, realtime_offset_ns: None })
    }
}

impl Recording {
    /// Builds a session with one channel or more, each in a free slot, with streams of the classes
    /// 0, 1, …, and makes its trace folder. Writers may enter after [`Self::activate`].
    pub fn build(
        handle: WindowHandle,
        session: &SessionSettings,
        channels: &[ChannelSettings],
    ) -> Result<Self, RecordError> {
        let classes = |(class, settings): (u32, &ChannelSettings)| (settings.clone(), class);
        let channels: Vec<_> = (0..).zip(channels).map(classes).collect();
        let place = TraceLocation::of(session)?;
        Self::build_part(handle, session, &place, &channels)
    }

    /// Builds the part of a session in one window, with one channel or more and the classes of
    /// their streams. Stores the settings of `session` in the window; `place` has the trace's
    /// location and the clock offset.
    pub(crate) fn build_part(
        handle: WindowHandle,
        session: &SessionSettings,
        place: &TraceLocation,
        channels: &[(ChannelSettings, u32)],
    ) -> Result<Self, RecordError> {
        let mut calibrator = clock_line::counter_is_invariant().then(Calibrator::default);
        if let Some(calibrator) = &mut calibrator {
            calibrator.update(clock_line::read_clock());
        }
        let begun = Instant::now();
        if session.path.as_os_str().len() > PATH_BYTES_MAX {
            let why = format!("its absolute path is longer than {PATH_BYTES_MAX} bytes");
            return Err(RecordError::io("use", &session.path)(std::io::Error::other(why)));
        }
        let mut built = Vec::new();
        let made = build_channels(&handle, session, channels, &mut built).and_then(|()| {
            let here = channel::trace_properties(session.uuid, &built);
            let realtime_offset_ns = place.realtime_offset_ns.unwrap_or(here.realtime_offset_ns);
            let of = TraceProperties { folder: place.folder, realtime_offset_ns, ..here };
            Trace::create(&place.root, of)
        });
        let trace = match made {
            Ok(trace) => trace,
            Err(error) => {
                built.iter().for_each(|channel| channel.free_unused_slot(&handle));
                return Err(error);
            }
        };
        let mut recording = Self::assemble(handle, trace, built);
        recording.session = Some(session.clone());
        recording.calibrator = calibrator;
        recording.calibrate_first(begun);
        Ok(recording)
    }

    /// Assembles the recording without a calibrated clock.
    pub(crate) fn assemble(handle: WindowHandle, trace: Trace, channels: Vec<Channel>) -> Self {
        Self {
            handle,
            trace,
            channels,
            session: None,
            ended: Summary::default(),
            calibrator: None,
            epoch: 0,
            line: None,
            ticker: Ticker::default(),
            is_recovery: false,
            unwritten: UnwrittenPolicy::KeepForTrace,
            live: None,
            drops_flight_recorders: false,
            has_left_behind: false,
            has_data: false,
            events_revision: 0,
            visits: Visits::default(),
            lease_due_ns: 0,
            slow_due_ns: 0,
            flush_due_ns: 0,
            buffer: Vec::new(),
        }
    }

    fn calibrate_first(&mut self, begun: Instant) {
        if self.calibrator.is_some() {
            // Usually most of the baseline has passed already.
            std::thread::sleep(FIRST_BASELINE.saturating_sub(begun.elapsed()));
        }
        self.publish_clock(None);
        self.calibrate();
        let now = monotonic_ns();
        self.channels.iter_mut().for_each(|channel| channel.begin_at(now));
    }

    /// Admits writers.
    pub fn activate(&mut self) {
        self.channels.iter_mut().for_each(Channel::activate);
        let now = monotonic_ns();
        self.lease_due_ns = now + renewal_period_ns();
        self.slow_due_ns = now + SLOW_PERIOD_NS / 2;
        self.flush_due_ns = now + FLUSH_PERIOD_NS;
    }

    /// Returns the folder of the trace.
    pub fn folder(&self) -> PathBuf {
        self.trace.root.clone()
    }

    /// Does all periodic work once: drains complete sub-buffers (twice a second also open ones),
    /// returns and adds buffer memory, renews lease and clock. Returns the time until the next
    /// call, in ns.
    pub fn tick(&mut self, notices: &Notices) -> Result<u64, RecordError> {
        self.check_window()?;
        let now = monotonic_ns();
        if is_due(&mut self.lease_due_ns, renewal_period_ns(), now) {
            self.channels.iter().for_each(|channel| channel.renew_lease(self.handle.window()));
        }
        self.visits.poll(self.handle.window().header(), now);
        let flush_period = if self.live.is_some() { LIVE_PERIOD_NS } else { FLUSH_PERIOD_NS };
        let partial = is_due(&mut self.flush_due_ns, flush_period, now);
        let (mut fill, mut is_shrinking) = (0, false);
        let mut data = std::mem::take(&mut self.has_data);
        for channel in &mut self.channels {
            let look = channel.poll();
            data |= look.data;
            if !channel.is_overwriting() {
                channel.drain(&self.handle, &mut self.trace, partial, &mut self.buffer)?;
            }
            channel.grow(&self.handle, notices);
            is_shrinking |= channel.return_unused_memory(&self.handle);
            fill = fill.max(look.fill);
        }
        if is_due(&mut self.slow_due_ns, SLOW_PERIOD_NS, now) {
            self.calibrate();
            let revision = self.handle.window().header().events_revision.load(Ordering::Relaxed);
            let is_news = std::mem::replace(&mut self.events_revision, revision) != revision;
            for channel in &mut self.channels {
                channel.free_claims_of_the_dead(self.handle.window());
                channel.adopt_regions(&self.handle);
                if is_news {
                    // Filters come first, so that no event of a new type passes unfiltered.
                    channel.compile_for_new_events(&self.handle, notices);
                    // The process that registered the events may have been killed before it set
                    // their enable bits.
                    slot::enable_selected(self.handle.window(), &channel.layout);
                }
            }
        }
        let mut period = self.ticker.next(fill, data);
        if is_shrinking {
            period = period.min(SHRINKING_PERIOD_NS);
        }
        match &mut self.live {
            Some(live) => {
                if partial {
                    // If this write fails, readers still follow, with a little delay.
                    let _ = live.note(now.saturating_sub(LATE_NS_MAX));
                }
                Ok(period.min(LIVE_PERIOD_NS))
            }
            None => Ok(period),
        }
    }

    /// Copies the state of all regions, so that counts are current. Without it, counts are as old
    /// as the latest poll, at most the longest period.
    pub(crate) fn poll(&mut self) {
        // The next tick handles a damaged window.
        if self.check_window().is_ok() {
            let looks = self.channels.iter_mut().map(|channel| channel.poll().data);
            self.has_data |= looks.fold(false, |found, data| found | data);
        }
    }

    /// Gives back all memory that writers have not needed since the last return, even a small
    /// amount. [`Self::tick`] does so periodically.
    pub fn trim(&mut self) {
        self.channels.iter_mut().for_each(|channel| channel.return_memory_now(&self.handle));
    }

    /// Sets whether events are written to the trace at once, for a reader that follows, or with the
    /// normal period.
    pub fn set_followed(&mut self, is_followed: bool) {
        if is_followed == self.live.is_some() {
            return;
        }
        self.live = None;
        if is_followed && let Ok(facts) = self.trace.facts_folder() {
            self.live = ProgressFile::open(&facts).ok();
            self.flush_due_ns = 0;
        }
    }

    pub(crate) fn check_window(&self) -> Result<(), RecordError> {
        if !self.handle.is_full_length() {
            return Err(RecordError::Lost("the window was truncated"));
        }
        if !self.channels.iter().all(|channel| channel.slot.is_ours()) {
            return Err(RecordError::Lost(
                "another program wrote over the session, or another recorder took it over",
            ));
        }
        Ok(())
    }

    fn calibrate(&mut self) {
        let Some(calibrator) = &mut self.calibrator else { return };
        match calibrator.update(clock_line::read_clock()) {
            Change::Keep => {}
            Change::Line(line) => self.publish_and_note_line(line),
            Change::Jump(line) => self.begin_epoch(line),
        }
    }

    /// Begins a clock epoch, as after a clock jump, so that no packet spans two epochs.
    pub fn begin_epoch(&mut self, line: Line) {
        self.epoch += 1;
        // Writers read the system clock until every region has begun a packet of the new epoch.
        self.publish_clock(None);
        self.channels.iter().for_each(|channel| channel.begin_epoch(&self.handle, self.epoch));
        self.publish_and_note_line(line);
    }

    fn publish_and_note_line(&mut self, line: Line) {
        self.publish_clock(Some(line));
        self.trace.note_calibration(self.epoch, &line);
    }

    fn publish_clock(&mut self, line: Option<Line>) {
        self.line = line;
        for channel in &self.channels {
            clock_line::publish_line(&channel.session().clock, line, self.epoch);
        }
    }

    /// Publishes the session's clock line to a channel that was built later.
    pub(crate) fn publish_clock_to(&self, channel: &Channel) {
        clock_line::publish_line(&channel.session().clock, self.line, self.epoch);
    }

    /// Renews the lease and the clock if due; called during long work.
    pub(crate) fn keep_alive(&mut self) {
        let now = monotonic_ns();
        if is_due(&mut self.lease_due_ns, renewal_period_ns(), now) {
            self.channels.iter().for_each(|channel| channel.renew_lease(self.handle.window()));
        }
        if is_due(&mut self.slow_due_ns, SLOW_PERIOD_NS, now) {
            self.calibrate();
        }
    }

    /// Ends the session: excludes writers, drains the buffers, marks the trace as complete, frees
    /// the slots. When `interrupted` returns true, leaves the remaining records to `trackway
    /// recover`.
    pub fn finish(mut self, interrupted: &dyn Fn() -> bool) -> Result<Summary, RecordError> {
        self.check_window()?;
        // Writers leave all channels before the drain, so that all channels end at one moment.
        let exclusion = channel::exclude_writers(self.handle.window(), &mut self.channels);
        let taken = self.drain_remaining(interrupted);
        let summary = self.summary();
        let ended = taken.and_then(|end| {
            if end == DrainEnd::Complete && !self.has_left_behind {
                self.mark_complete(&summary)?;
            }
            Ok(end)
        });
        for (channel, exclusion) in self.channels.iter().zip(exclusion) {
            match &ended {
                Ok(DrainEnd::Complete) => channel.free_slot_and_memory(&self.handle, exclusion),
                Err(_) if self.discards_unwritten() => {
                    channel.free_slot_and_memory(&self.handle, exclusion)
                }
                // Recovery writes the remaining records.
                Ok(DrainEnd::Interrupted) | Err(_) => {
                    channel.regions.iter().for_each(RegionDrain::leave_to_recovery);
                    channel.slot.abandon();
                }
            }
        }
        let ended = ended.and_then(|end| match end {
            DrainEnd::Complete if self.has_left_behind => {
                Err(RecordError::LeftBehind(self.trace.channel.path().to_owned()))
            }
            _ => Ok(summary),
        });
        if self.is_recovery {
            // Recovery also has the window open and compacts it at the end.
            self.handle.close();
        } else {
            self.handle.compact_soon();
        }
        ended
    }

    fn discards_unwritten(&self) -> bool {
        match self.unwritten {
            UnwrittenPolicy::KeepForTrace => self.trace.channel.is_removed(),
            UnwrittenPolicy::Keep => false,
            UnwrittenPolicy::Discard => true,
        }
    }

    /// Ends a recovered session without writing: discards the buffers, frees the slots.
    pub(crate) fn discard(mut self) -> Result<(), RecordError> {
        self.check_window()?;
        let exclusion = channel::exclude_writers(self.handle.window(), &mut self.channels);
        for (channel, exclusion) in self.channels.iter().zip(exclusion) {
            channel.free_slot_and_memory(&self.handle, exclusion);
        }
        self.handle.close();
        Ok(())
    }

    fn drain_remaining(&mut self, interrupted: &dyn Fn() -> bool) -> Result<DrainEnd, RecordError> {
        let is_wanted =
            |channel: &&mut Channel| !self.drops_flight_recorders || !channel.is_overwriting();
        for channel in self.channels.iter_mut().filter(is_wanted) {
            let (trace, buffer) = (&mut self.trace, &mut self.buffer);
            let end = channel.drain_remaining(&self.handle, trace, buffer, interrupted)?;
            if end != DrainEnd::Complete {
                return Ok(end);
            }
        }
        Ok(DrainEnd::Complete)
    }

    /// Marks the trace as complete.
    fn mark_complete(&self, summary: &Summary) -> Result<(), RecordError> {
        let by = if self.is_recovery {
            CompletedBy::Recover(summary)
        } else {
            CompletedBy::Record(summary)
        };
        let path = self.trace.channel.path().join(FACTS_FOLDER);
        self.trace
            .facts_folder()
            .and_then(|facts| completion::mark_complete(&facts, by))
            .map_err(RecordError::io("write", path))
    }
}

fn build_channels(
    handle: &WindowHandle,
    session: &SessionSettings,
    channels: &[(ChannelSettings, u32)],
    built: &mut Vec<Channel>,
) -> Result<(), RecordError> {
    for (settings, class) in channels {
        built.push(Channel::build(handle, session, settings, *class, None)?);
    }
    Ok(())
}

/// Returns true if work that recurs every `period` is due, and schedules its next time.
fn is_due(due: &mut u64, period: u64, now: u64) -> bool {
    let is_due = now >= *due;
    if is_due {
        *due = now + period;
    }
    is_due
}

impl Recording {
    /// Returns true if the recording has a channel of class `class`.
    pub(crate) fn has_channel(&self, class: u32) -> bool {
        self.channels.iter().any(|channel| channel.names.class == class)
    }

    /// Adds the counts and memory use of the channel of class `class` to `status`.
    pub(crate) fn fill_status(&self, class: u32, status: &mut ChannelStatus) {
        let found = self.channels.iter().find(|channel| channel.names.class == class);
        let Some(channel) = found else { return };
        status.memory_bytes += channel.memory_bytes(&self.handle);
        // Any process may write to this counter: its value is arbitrary, so the sum saturates.
        let interpreters = channel.session().interpreters.load(Ordering::Relaxed);
        status.interpreters = status.interpreters.saturating_add(interpreters.into());
        for work in &channel.regions {
            status.recorded = status.recorded.saturating_add(work.committed());
            status.lost = status.lost.saturating_add(work.discarded());
        }
    }

    /// Returns the process rules of the flight recorder channels.
    pub(crate) fn process_rules(&self) -> Vec<String> {
        let flight = self.channels.iter().filter(|channel| channel.is_overwriting());
        flight.map(|channel| shared_text::process_rules(channel.session())).collect()
    }

    /// Returns the number of snapshots that programs have requested.
    pub(crate) fn snapshot_requests(&self) -> u32 {
        let requests = |session: &trackway_abi::session::Session| {
            session.snapshot_requests.load(Ordering::Relaxed)
        };
        let of_all = self.channels.iter().map(|channel| requests(channel.session()));
        of_all.fold(0, u32::wrapping_add)
    }
}
