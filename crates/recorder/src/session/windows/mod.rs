//! One session in the windows of all its users.
//!
//! A session usually has one window, that of its user. A session of root may have windows of
//! several users, added as those windows appear. The effects of the session's state machine
//! ([`machine`]) are applied to all windows, one after the other. Each window has its own trace, in
//! a folder below the session's folder.
//!
//! Main invariant: a window that cannot continue is reported and dropped, without effect on the
//! others. The state for a later window comes from [`SessionWindows`], never from a window's
//! contents.
//!
//! [`machine`]: trackway_session::machine

mod channels;
mod window;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use trackway_schema::EventDescription;
use trackway_session::FilterSpec;
use trackway_session::machine::{Reason, Snapshot};
use trackway_session::protocol::{ChannelStatus, Refusal, SnapshotFacts, UserStatus};
use trackway_sys::clock::{monotonic_ns, realtime_ns};
use trackway_sys::wait::PollEntry;

use self::window::{SessionWindow, finish_window};
use crate::control::RunFolder;
use crate::control::origin_file::{Origin, OriginFile};
use crate::elf::ProgramInstrumentation;
use crate::error::RecordError;
use crate::filters::{check, publish};
use crate::notices::Notices;
use crate::recording::{Recording, TraceLocation};
use crate::session::crash_watch::CrashWatch;
use crate::session::snapshot_quota::{SnapshotQuota, SnapshotTriggers};
use crate::session::window_watch::{Scope, WindowFinder};
use crate::session::write_stall::WriteStall;
use crate::summary::Summary;
use crate::trace::folder::TraceFolder;
use crate::trace::layout::WindowFolder;
use crate::trace::prepare::PreparedFolder;
use crate::window::handle::WindowHandle;
use crate::window::settings::{ChannelSettings, SessionSettings};

/// Time until the next poll if no window needs it sooner, in ns.
const IDLE_PERIOD_NS: u64 = 500_000_000;
/// Shortest time until the next poll while windows wait to be opened, in ns.
const PERIOD_MIN_NS: u64 = 100_000;
/// Period between two checks for removed windows, in ns.
const REMOVED_PERIOD_NS: u64 = 2_000_000_000;

/// One session in all the windows that it records.
#[derive(Debug)]
pub(crate) struct SessionWindows {
    finder: WindowFinder,
    session: SessionSettings,
    /// Folder of the session's trace.
    root: Arc<TraceFolder>,
    run: RunFolder,
    /// CLOCK_REALTIME − CLOCK_MONOTONIC, in ns. The traces of all windows use this value, even if a
    /// window is added late, so that their times are comparable.
    realtime_offset_ns: i64,
    /// Present channels, with the classes of their streams.
    channels: Vec<(ChannelSettings, u32)>,
    windows: Vec<SessionWindow>,
    /// Results of windows that ended before the session.
    ended: Summary,
    /// Number of windows that each user has had.
    numbers: BTreeMap<u32, u32>,
    watches_crashes: bool,
    snapshot_quota: SnapshotQuota,
    removed_due_ns: u64,
    /// Index of the removed window that is checked next.
    next_removed: usize,
}

/// Treatment of a request that succeeds in some windows and fails in others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FailurePolicy {
    /// The request succeeds if it succeeds in any window; the others go on without the change.
    AnyOk,
    /// The request fails if it fails in any window, except in dropped windows.
    AllOk,
}

/// Returns true if kernel events accept a filter, too.
pub(crate) type AcceptsFilter<'a> = &'a dyn Fn(&FilterSpec) -> bool;

impl SessionWindows {
    /// Begins a session with these channels; admits writers unless the channels are paused. Filters
    /// that `is_taken` accepts need not match user events: they apply to kernel events.
    pub(crate) fn begin(
        scope: Scope,
        (session, root): (SessionSettings, Arc<TraceFolder>),
        (channels, is_taken): (Vec<(ChannelSettings, u32)>, AcceptsFilter<'_>),
        watches_crashes: bool,
        notices: &Notices,
    ) -> Result<Self, RecordError> {
        if scope == Scope::Own {
            let handle = WindowHandle::open_or_make(notices)?;
            for (channel, _) in &channels {
                let hints = check::check_channel_filters(
                    channel,
                    handle.window(),
                    &ProgramInstrumentation::default(),
                    is_taken,
                )?;
                hints.iter().for_each(|hint| notices.report(format_args!("{hint}")));
            }
            return Self::begin_own(handle, (session, root), channels, watches_crashes);
        }
        let mut windows = Self::without_windows(scope, (session, root), channels, watches_crashes)?;
        let mut failure = None;
        for (uid, opened) in windows.finder.open_initial_windows(monotonic_ns(), notices) {
            if let Err(error) = opened.and_then(|handle| windows.record_window(handle)) {
                notices.report(format_args!("user {uid} is not recorded: {error}"));
                failure.get_or_insert(error);
            }
        }
        windows.find_windows(notices);
        // One call examines only some windows.
        while windows.finder.is_waiting() {
            windows.find_windows(notices);
        }
        match failure {
            Some(error) if windows.windows.is_empty() => Err(error),
            _ => Ok(windows),
        }
    }

    /// Begins a session of the calling user only, in this window.
    pub(crate) fn begin_own(
        handle: WindowHandle,
        session: (SessionSettings, Arc<TraceFolder>),
        channels: Vec<(ChannelSettings, u32)>,
        watches_crashes: bool,
    ) -> Result<Self, RecordError> {
        let mut windows = Self::without_windows(Scope::Own, session, channels, watches_crashes)?;
        let place = windows.trace_location(WindowFolder::own(), None);
        let built = Recording::build_part(handle, &windows.session, &place, &windows.channels)?;
        windows.add_recording(built, None);
        Ok(windows)
    }

    /// Begins a session that records no user events.
    pub(crate) fn begin_without_users(
        session: (SessionSettings, Arc<TraceFolder>),
    ) -> Result<Self, RecordError> {
        Self::without_windows(Scope::NoUser, session, Vec::new(), false)
    }

    fn without_windows(
        scope: Scope,
        (session, root): (SessionSettings, Arc<TraceFolder>),
        channels: Vec<(ChannelSettings, u32)>,
        watches_crashes: bool,
    ) -> Result<Self, RecordError> {
        Ok(Self {
            finder: WindowFinder::new(scope)?,
            session,
            root,
            run: RunFolder::new(),
            realtime_offset_ns: realtime_ns().wrapping_sub(monotonic_ns()).cast_signed(),
            channels,
            windows: Vec::new(),
            ended: Summary::default(),
            numbers: BTreeMap::new(),
            watches_crashes,
            snapshot_quota: SnapshotQuota::default(),
            removed_due_ns: 0,
            next_removed: 0,
        })
    }

    /// For the present windows, writes flight recorders' contents to the trace at the end, instead
    /// of dropping them.
    pub(crate) fn keep_flight_recorders(&mut self) {
        self.windows.iter_mut().for_each(|window| window.recording.drops_flight_recorders = false);
    }

    /// Returns the recording in the own user's window, if the session records that user only.
    pub(crate) fn own_recording(&self) -> Option<&Recording> {
        self.windows.first().filter(|_| self.is_own()).map(|window| &window.recording)
    }

    /// Returns CLOCK_REALTIME − CLOCK_MONOTONIC in the trace of the session's own user, in ns.
    /// Other recordings into that trace use the same clock.
    pub(crate) fn realtime_offset_ns(&self) -> i64 {
        let own = self.own_recording().and_then(|recording| recording.channels.first());
        own.map_or(self.realtime_offset_ns, |channel| {
            channel.session().realtime_offset_ns.load(Ordering::Relaxed).cast_signed()
        })
    }

    /// Returns true if the session records its own user only.
    fn is_own(&self) -> bool {
        *self.finder.scope() == Scope::Own
    }

    /// Returns true if the session records no user events.
    pub(crate) fn has_no_users(&self) -> bool {
        *self.finder.scope() == Scope::NoUser
    }

    fn trace_location(
        &self,
        folder: WindowFolder,
        realtime_offset_ns: Option<i64>,
    ) -> TraceLocation {
        TraceLocation { root: Arc::clone(&self.root), folder, realtime_offset_ns }
    }

    fn add_recording(&mut self, mut recording: Recording, kept: Option<OriginFile>) {
        recording.drops_flight_recorders = true;
        recording.activate();
        let crashes = self.watches_crashes.then(|| CrashWatch::of(recording.handle.uid()));
        let snapshot_requests = recording.snapshot_requests();
        let stuck = BTreeMap::new();
        self.windows.push(SessionWindow {
            recording,
            kept,
            stuck,
            crashes,
            snapshot_requests,
            stall: WriteStall::default(),
        });
    }

    /// Begins to record user events in a window.
    fn record_window(&mut self, handle: WindowHandle) -> Result<(), RecordError> {
        let (uid, file) = (handle.uid(), handle.file());
        let number = self.numbers.get(&uid).copied().unwrap_or_default() + 1;
        let folder = WindowFolder { uid, number };
        let uuid = crate::random::random_uuid()?;
        let origin = Origin { uuid, folder, root: self.session.path.clone() };
        let kept = OriginFile::new(&self.run, origin)?;
        // The window's user must not learn the session's name and path.
        let session = SessionSettings { name: String::new(), token: None, uuid, path: "".into() };
        let place = self.trace_location(folder, Some(self.realtime_offset_ns));
        handle.limit_lock_wait();
        match Recording::build_part(handle, &session, &place, &self.channels) {
            Ok(recording) => {
                self.numbers.insert(uid, number);
                self.finder.note_recorded(uid);
                self.add_recording(recording, Some(kept));
                Ok(())
            }
            Err(error) => {
                kept.remove();
                self.finder.note_refused(uid, file, monotonic_ns());
                Err(error)
            }
        }
    }

    /// Reports earlier recordings that were given up to make space for this session.
    pub(crate) fn report_given_up(&self, notices: &Notices) {
        self.windows.iter().for_each(|window| {
            crate::window::given_up::report_given_up(&window.recording.handle, notices)
        });
    }

    /// Records windows that have appeared, and ends the recordings in removed windows.
    pub(crate) fn find_windows(&mut self, notices: &Notices) {
        if self.is_own() {
            return self.report_removed_own_window(notices);
        }
        let now = monotonic_ns();
        let files: Vec<_> =
            self.windows.iter().map(|window| window.recording.handle.file()).collect();
        for (uid, opened) in self.finder.poll(now, &|file| files.contains(&file)) {
            let added = opened
                .and_then(|handle| self.record_window(handle).map_err(|error| error.to_string()));
            match added {
                Ok(()) => notices.report(format_args!("user {uid} is recorded, too")),
                Err(why) => notices.report(format_args!("user {uid} is not recorded: {why}")),
            }
            self.keep_alive();
        }
        if now >= self.removed_due_ns {
            self.removed_due_ns = now + REMOVED_PERIOD_NS;
            self.end_removed_window(notices);
        }
    }

    /// Reports, once, that the window of the session's own user was removed. New programs create
    /// another window, and nothing else would show that they are not recorded.
    fn report_removed_own_window(&mut self, notices: &Notices) {
        let now = monotonic_ns();
        let Some(window) = self.windows.first().filter(|_| now >= self.removed_due_ns) else {
            return;
        };
        self.removed_due_ns = now.saturating_add(REMOVED_PERIOD_NS);
        let handle = &window.recording.handle;
        if handle.is_current_file() {
            return;
        }
        self.removed_due_ns = u64::MAX;
        notices.report(format_args!(
            "the window {} was removed: programs that start from now on are not recorded, until \
             this session is destroyed and made again (systemd removes what a user has there when \
             he has logged out, unless he lingers: RemoveIPC= in logind.conf(5))",
            handle.path.display()
        ));
    }

    /// Ends the recording in one removed window whose processes have ended, if there is one: no
    /// process can find that window any more.
    fn end_removed_window(&mut self, notices: &Notices) {
        let is_removed = |place: &usize| {
            let file = self.windows[*place].recording.handle.allocator.file();
            file.status().is_ok_and(|status| status.links == 0)
        };
        let removed: Vec<usize> = (0..self.windows.len()).filter(is_removed).collect();
        // Check one window per call: searching all processes that a window names takes time, and a
        // user may name any process.
        self.next_removed = self.next_removed.wrapping_add(1);
        let Some(&place) = removed.get(self.next_removed % removed.len().max(1)) else { return };
        if self.windows[place].recording.handle.window().sweep_processes() > 0 {
            return;
        }
        let window = self.windows.remove(place);
        let uid = window.uid();
        let (summary, error) = finish_window(window, &|| false);
        self.ended.add_window(summary);
        if let Some(error) = error {
            notices.report(format_args!("user {uid}: {error}"));
        }
        self.keep_alive();
    }

    /// Applies a change in each window; drops windows that the change loses.
    fn apply_to_each(
        &mut self,
        policy: FailurePolicy,
        notices: &Notices,
        what: &mut dyn FnMut(&mut SessionWindow) -> Result<(), RecordError>,
    ) -> Result<(), RecordError> {
        if self.is_own() {
            let own = self.windows.first_mut();
            return what(own.ok_or(RecordError::Lost("it has ended"))?);
        }
        let (mut done, mut failure, mut lost) = (0, None, Vec::new());
        for place in 0..self.windows.len() {
            let window = &mut self.windows[place];
            window.recording.handle.limit_lock_wait();
            match what(window) {
                Ok(()) => done += 1,
                Err(error @ RecordError::Lost(_)) => lost.push((place, error)),
                Err(error) => {
                    if policy == FailurePolicy::AnyOk {
                        let uid = window.uid();
                        notices.report(format_args!("not done for user {uid}: {error}"));
                    }
                    failure.get_or_insert(error);
                }
            }
            self.keep_alive();
        }
        self.drop_windows(lost, notices);
        match failure {
            Some(error) if policy == FailurePolicy::AllOk || done == 0 => Err(error),
            _ => Ok(()),
        }
    }

    /// Drops windows that cannot continue, given by their indices in ascending order.
    fn drop_windows(&mut self, lost: Vec<(usize, RecordError)>, notices: &Notices) {
        for (place, error) in lost.into_iter().rev() {
            let window = self.windows.remove(place);
            let uid = window.uid();
            notices.report(format_args!("user {uid} is not recorded any more: {error}"));
            self.ended.add_window(window.recording.summary());
            self.finder.note_refused(uid, window.recording.handle.file(), monotonic_ns());
        }
    }

    fn set_paused(&mut self, is_paused: bool) {
        self.channels.iter_mut().for_each(|(settings, _)| settings.paused = is_paused);
    }

    /// Admits writers in all windows.
    pub(crate) fn start(&mut self) {
        self.set_paused(false);
        self.windows.iter_mut().for_each(|window| window.recording.start());
    }

    /// Stops writers in all windows.
    pub(crate) fn stop(&mut self, notices: &Notices) -> Result<(), RecordError> {
        self.set_paused(true);
        self.apply_to_each(FailurePolicy::AllOk, notices, &mut |window| window.recording.stop())
    }

    /// Returns the events that are registered in any of the session's windows.
    pub(crate) fn known_events(&self) -> Vec<EventDescription> {
        let of_window = |window: &SessionWindow| {
            publish::registered_events(window.recording.handle.window(), "*")
        };
        self.windows.iter().flat_map(of_window).collect()
    }

    /// Discards the recorded events.
    pub(crate) fn clear(&mut self, record: bool, notices: &Notices) -> Result<(), RecordError> {
        self.ended.forget_counts();
        self.apply_to_each(FailurePolicy::AllOk, notices, &mut |window| {
            window.recording.clear(record)
        })
    }

    /// Writes the contents of flight recorders to the folder that `prepare` creates. The caller
    /// commits the folder once everything is written.
    pub(crate) fn snapshot(
        &mut self,
        prepare: impl FnOnce() -> Result<PreparedFolder, RecordError>,
        snapshot: &Snapshot,
        notices: &Notices,
    ) -> Result<(SnapshotFacts, PreparedFolder), RecordError> {
        let (last_ns, reason) = (snapshot.last_ns, &snapshot.reason);
        if self.is_own() {
            let own = self.windows.first_mut().ok_or(RecordError::Lost("it has ended"))?;
            return own.recording.snapshot_in(prepare, last_ns, reason);
        }
        if self.windows.is_empty() && !self.has_no_users() {
            let why = "none of the session's users has run a program with events";
            return Err(RecordError::Refused(Refusal::new(why)));
        }
        self.snapshot_each(prepare, last_ns, reason, notices)
    }

    fn snapshot_each(
        &mut self,
        prepare: impl FnOnce() -> Result<PreparedFolder, RecordError>,
        last_ns: Option<u64>,
        reason: &Reason,
        notices: &Notices,
    ) -> Result<(SnapshotFacts, PreparedFolder), RecordError> {
        let since_ts = last_ns.map_or(0, |last| monotonic_ns().saturating_sub(last));
        let prepared_folder = prepare()?;
        let mut facts =
            SnapshotFacts { folder: prepared_folder.path.clone(), ..SnapshotFacts::default() };
        self.apply_to_each(FailurePolicy::AnyOk, notices, &mut |window| match window
            .recording
            .snapshot_into(&prepared_folder, since_ts, reason)
        {
            Ok(more) => {
                facts.events += more.events;
                facts.bytes += more.bytes;
                Ok(())
            }
            Err(error) => {
                facts.missing.push(format!("user {} is not in it: {error}", window.uid()));
                Err(error)
            }
        })?;
        Ok((facts, prepared_folder))
    }

    /// Ends the session: writes the buffers to the traces. Once `interrupted` returns true, the
    /// remaining buffers are left to `trackway recover`.
    pub(crate) fn finish(
        mut self,
        notices: &Notices,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Summary, RecordError> {
        let is_own = self.is_own();
        let (mut sum, mut failure) = (std::mem::take(&mut self.ended), None);
        while !self.windows.is_empty() {
            let window = self.windows.remove(0);
            let uid = window.uid();
            let (summary, error) = finish_window(window, interrupted);
            sum.add_window(summary);
            match error {
                None => {}
                Some(error) if is_own => return Err(error),
                Some(error) => {
                    notices
                        .report(format_args!("the trace of user {uid} is not complete: {error}"));
                    if !matches!(error, RecordError::Lost(_)) {
                        failure.get_or_insert(error);
                    }
                }
            }
            self.keep_alive();
        }
        failure.map_or(Ok(sum), Err)
    }

    /// Serves all windows once; returns the time until the next call, in ns. Drops windows that
    /// cannot continue.
    ///
    /// # Errors
    ///
    /// In a session of its own user only: if the trace cannot be written, perhaps temporarily, or
    /// the window is lost.
    pub(crate) fn tick(&mut self, notices: &Notices) -> Result<u64, RecordError> {
        if self.is_own() {
            let own = self.windows.first_mut().ok_or(RecordError::Lost("it has ended"))?;
            return own.recording.tick(notices);
        }
        let period_ns = self.finder.poll_timeout_ns().unwrap_or(IDLE_PERIOD_NS).max(PERIOD_MIN_NS);
        let (mut period_ns, mut lost) = (period_ns, Vec::new());
        for (place, window) in self.windows.iter_mut().enumerate() {
            match window.tick(notices) {
                Ok(part_ns) => period_ns = period_ns.min(part_ns),
                Err(error) => lost.push((place, error)),
            }
        }
        self.drop_windows(lost, notices);
        Ok(period_ns)
    }

    /// Copies the state of all regions, for a status request.
    pub(crate) fn poll(&mut self) {
        self.windows.iter_mut().for_each(|window| window.recording.poll());
    }

    /// Does urgent work while the recorder is busy with something else, such as lease renewal.
    pub(crate) fn keep_alive(&mut self) {
        self.windows.iter_mut().for_each(|window| window.recording.keep_alive());
    }

    /// Enables or disables undelayed writing of events to the traces.
    pub(crate) fn set_followed(&mut self, is_followed: bool) {
        self.windows.iter_mut().for_each(|window| window.recording.set_followed(is_followed));
    }

    /// Returns the snapshot triggers since the previous call, as far as their users' quotas allow
    /// another snapshot.
    pub(crate) fn take_snapshot_triggers(&mut self) -> SnapshotTriggers {
        for window in &mut self.windows {
            let requests = window.recording.snapshot_requests();
            let is_asked = std::mem::replace(&mut window.snapshot_requests, requests) != requests;
            let recording = &window.recording;
            let crashes = window.crashes.as_mut().map(|crashes| {
                crashes.poll(recording.handle.window());
                crashes.take(&recording.process_rules())
            });
            let reasons = SnapshotTriggers { is_asked, crashes: crashes.unwrap_or_default() };
            self.snapshot_quota.request(window.recording.handle.uid(), reasons);
        }
        self.snapshot_quota.due(monotonic_ns())
    }

    /// Returns the file descriptors to wait for.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = PollEntry> {
        let crashes = self.windows.iter().filter_map(|window| window.crashes.as_ref());
        let names = self.finder.fd().map(PollEntry::readable);
        crashes.flat_map(CrashWatch::awaited).chain(names)
    }

    /// Returns the results of the session so far.
    pub(crate) fn summary(&self) -> Summary {
        let mut sum = self.ended.clone();
        self.windows.iter().for_each(|window| sum.add_window(window.recording.summary()));
        sum
    }

    /// Returns the number of events recorded so far, in the traces or still in the buffers.
    pub(crate) fn recorded(&self) -> u64 {
        let of_parts = self.windows.iter().map(|window| window.recording.totals().events);
        of_parts.fold(self.ended.recorded, u64::saturating_add)
    }

    /// Returns the size of all traces in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let of_parts = self.windows.iter().map(|window| window.recording.totals().bytes);
        of_parts.fold(self.ended.bytes, u64::saturating_add)
    }

    /// Adds the counts of the channel of class `class` to `status`.
    pub(crate) fn fill_status(&self, class: u32, status: &mut ChannelStatus) {
        for window in &self.windows {
            window.recording.fill_status(window.class(class), status);
        }
    }

    /// Returns the status of each user; empty if the session records its own user only.
    pub(crate) fn user_statuses(&self) -> Vec<UserStatus> {
        let mut users: BTreeMap<u32, UserStatus> = BTreeMap::new();
        for window in self.windows.iter().filter(|_| !self.is_own()) {
            let (uid, summary) = (window.uid(), window.recording.summary());
            let user = users.entry(uid).or_default();
            user.uid = uid;
            user.recorded = user.recorded.saturating_add(window.recording.totals().events);
            user.lost = user.lost.saturating_add(summary.lost);
            user.processes = user.processes.saturating_add(summary.processes);
        }
        users.into_values().collect()
    }

    /// Returns the number of users that are not recorded because the limits are reached.
    pub(crate) fn excess_users(&self) -> usize {
        self.finder.excess_users()
    }
}
