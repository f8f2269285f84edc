//! Recovery of dead recorders' sessions: completes their traces and frees their slots.

pub(crate) mod dying_recorders;
pub(crate) mod in_passing;
mod origin_source;
pub(crate) mod recovered_trace;
mod reopen;
mod requested_trace;

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use trackway_abi::session::{SESSIONS_MAX, state};
use trackway_console::IoError;
use trackway_window::OpenError;

use self::origin_source::OriginSource;
use self::requested_trace::RequestedTrace;
use crate::control::RunFolder;
use crate::control::origin_file::{self, Origin};
use crate::error::RecordError;
use crate::kernel;
use crate::notices::Notices;
use crate::recording::abandoned_channel::{AbandonedChannel, Stranded};
use crate::recording::channel::Channel;
use crate::recording::region::RegionDrain;
use crate::recording::{Recording, UnwrittenPolicy, changes};
use crate::summary::Summary;
use crate::trace::completion::{self, CompletedBy};
use crate::trace::folder::TraceFolder;
use crate::trace::layout::{FACTS_FOLDER, Trace, WindowFolder};
use crate::trace::metadata::Metadata;
use crate::trace::prepare;
use crate::window::handle::WindowHandle;
use crate::window::shared_text::{self, uuid_of};
use crate::window::slot::Slot;

/// A session that was recovered, or whose recovery failed.
#[derive(Debug)]
#[non_exhaustive]
pub struct RecoveredSession {
    /// Folder of the recovered trace: the recorded path, or the path that the user gave.
    pub folder: PathBuf,
    /// Outcome for the session's records that were in memory.
    pub end: RecoveryEnd,
    /// Counts of the recovered trace; events from before the recorder's death are not counted.
    pub result: Result<Summary, RecordError>,
}

/// Result of [`recover`].
#[derive(Debug)]
pub struct Recovery {
    /// Sessions that had records in memory.
    pub sessions: Vec<RecoveredSession>,
    /// True if a trace without records in memory was completed, or could not be completed.
    pub has_completed_other: bool,
}

impl Recovery {
    /// Returns true if there was nothing to recover.
    pub const fn is_nothing(&self) -> bool {
        self.sessions.is_empty() && !self.has_completed_other
    }
}

/// Outcome for records that a dead recorder left in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecoveryEnd {
    /// The records are in the trace, or still in memory if recovery failed.
    InPlace,
    /// The records are in a new trace in this folder: the original trace was removed, or cannot be
    /// written.
    NewTrace(PathBuf),
    /// The records were discarded.
    Discarded,
}

/// Completes the traces of dead recorders and frees their slots: all traces of this user, or only
/// the trace in `only`, even if it was moved since it was recorded.
///
/// If no event of the trace in `only` is in memory any more, marks it as complete: it has all
/// events that were written.
pub fn recover(
    notices: &Notices,
    only: Option<&Path>,
    stranded: Stranded,
) -> Result<Recovery, RecordError> {
    recover_as(
        &crate::window::handle::window_folder(),
        Some(&RunFolder::new()),
        notices,
        only,
        stranded,
    )
}

/// Recovers like [`recover`], in the window in `folder`; creates new traces beside those that
/// cannot be completed.
pub fn recover_in(
    folder: &Path,
    notices: &Notices,
    only: Option<&Path>,
) -> Result<Vec<RecoveredSession>, RecordError> {
    recover_in_as(folder, notices, only, Stranded::NewTrace)
}

/// Recovers like [`recover`], in the window in `folder`.
pub fn recover_in_as(
    folder: &Path,
    notices: &Notices,
    only: Option<&Path>,
    stranded: Stranded,
) -> Result<Vec<RecoveredSession>, RecordError> {
    recover_as(folder, None, notices, only, stranded).map(|recovery| recovery.sessions)
}

/// Recovers like [`recover`], for a command with another purpose: discards nothing.
pub(crate) fn recover_in_passing(notices: &Notices) -> Result<Vec<RecoveredSession>, RecordError> {
    recover(notices, None, Stranded::Keep).map(|recovery| recovery.sessions)
}

/// Recovers the windows in `folder`; `run` is the run folder with the origin files of sessions in
/// other users' windows.
fn recover_as(
    folder: &Path,
    run: Option<&RunFolder>,
    notices: &Notices,
    only: Option<&Path>,
    stranded: Stranded,
) -> Result<Recovery, RecordError> {
    let only = only.map(RequestedTrace::new);
    let recovery = Recoverer { folder, notices, stranded, may_be_here: run.is_some() };
    recovery.wait_for_dying_recorders(run)?;
    let mut in_memory = Vec::new();
    let mut recovered = recovery.recover_own_window(only.as_ref(), &mut in_memory)?;
    for part in recovery.find_session_parts(run, only.as_ref())? {
        let uuid = part.origin().uuid;
        match recovery.recover_part(part) {
            Ok(WindowContents::Nothing) => {}
            Ok(WindowContents::InMemory(one)) => {
                in_memory.push(uuid);
                recovered.extend(one);
            }
            Err((folder, error)) => {
                in_memory.push(uuid);
                recovered.push(RecoveredSession::failed(folder, error));
            }
        }
    }
    // Complete the kernel events separately: they are in no window.
    recovered
        .iter()
        .for_each(|one| _ = kernel::recover::complete_kernel_part(&one.folder, notices));
    let has_completed_other = match (&only, run) {
        (Some(named), _) => {
            let is_marked = named.mark_complete(&in_memory, notices)?;
            kernel::recover::complete_kernel_part(&named.path, notices) || is_marked
        }
        (None, Some(run)) => run.complete_kernel_parts(notices),
        (None, None) => false,
    };
    // Names that cannot be removed are harmless.
    let _ = run.map(|run| run.remove_recovered_names(folder));
    Ok(Recovery { sessions: recovered, has_completed_other })
}

/// State of a session in its user's window.
enum WindowContents {
    /// The window has nothing of the session.
    Nothing,
    /// Records are in memory; if the recorder was dead, the outcome of their recovery.
    InMemory(Option<RecoveredSession>),
}

/// Options of a recovery.
struct Recoverer<'a> {
    /// Folder of the windows.
    folder: &'a Path,
    notices: &'a Notices,
    stranded: Stranded,
    /// True if the current folder may get new traces: for requests at a command line.
    may_be_here: bool,
}

impl Recoverer<'_> {
    fn open(&self, uid: u32) -> Result<Option<WindowHandle>, RecordError> {
        match WindowHandle::open_for(self.folder, uid, false) {
            Err(RecordError::Window(_, OpenError::Absent)) => Ok(None),
            other => other.map(Some),
        }
    }

    /// Waits for killed recorders that have not exited yet: those of the user's own window, and
    /// those that hold the locks of sessions.
    fn wait_for_dying_recorders(&self, run: Option<&RunFolder>) -> Result<(), RecordError> {
        let mut pids = Vec::new();
        if let Some(handle) = self.open(crate::common::user::effective_uid())? {
            let sessions = (0..SESSIONS_MAX).map(|index| handle.window().session(index));
            let used = sessions.filter(|of| of.state.load(Ordering::Relaxed) != state::FREE);
            pids.extend(used.map(|of| of.recorder_pid.load(Ordering::Relaxed)));
            handle.close();
        }
        let files = run.map(|run| fs::read_dir(run.path())).into_iter().flatten().flatten();
        let inodes = files.flatten().filter_map(|file| Some(file.metadata().ok()?.ino()));
        pids.extend(dying_recorders::lock_holders(&inodes.collect()));
        dying_recorders::wait_for_dying(pids.into_iter().filter(|&pid| pid != 0));
        Ok(())
    }

    /// Recovers sessions in the user's own window, except sessions over several users. Adds the
    /// identities of all found sessions to `in_memory`.
    fn recover_own_window(
        &self,
        only: Option<&RequestedTrace>,
        in_memory: &mut Vec<[u8; 16]>,
    ) -> Result<Vec<RecoveredSession>, RecordError> {
        let (mut recovered, mut left) = (Vec::new(), Vec::new());
        let Some(handle) = self.open(crate::common::user::effective_uid())? else {
            return Ok(recovered);
        };
        let mut elsewhere = 0;
        for index in 0..SESSIONS_MAX {
            let session = handle.window().session(index);
            let state = session.state.load(Ordering::Relaxed);
            let place = shared_text::trace_path_of(session);
            if state == state::FREE {
                continue;
            }
            if place.as_os_str().is_empty() && state != state::BUILDING {
                // The window lacks the path of the session's trace.
                elsewhere += u32::from(
                    session.uid.load(Ordering::Relaxed) != crate::common::user::effective_uid(),
                );
                continue;
            }
            let folder = match only {
                Some(named) if !named.is_of(session)? => continue,
                Some(named) => named.path.clone(),
                None => place,
            };
            in_memory.push(uuid_of(session));
            if let Some(slot) = Slot::take_over(&handle, index)? {
                match AbandonedChannel::of(&handle, slot, self.stranded) {
                    Ok(channel) => left.extend(channel.map(|channel| (folder, channel))),
                    Err(error) => recovered.push(RecoveredSession::failed(folder, error)),
                }
            }
        }
        if elsewhere > 0 && self.stranded != Stranded::Keep && only.is_none() {
            self.notices.report(format_args!(
                "{elsewhere} channels in this user's window are of another user's session, who \
                 recovers them"
            ));
        }
        while let Some((folder, channel)) = left.pop() {
            // Group the channels of one session, in the order of their slots.
            let uuid = uuid_of(channel.slot.session());
            let is_other =
                |(_, other): &(_, AbandonedChannel)| uuid_of(other.slot.session()) != uuid;
            let (others, mut channels): (Vec<_>, Vec<_>) = left.into_iter().partition(is_other);
            left = others;
            channels.push((folder, channel));
            let root = channels[0].0.clone();
            let channels = channels.into_iter().map(|(_, channel)| channel).collect();
            // Open the window separately, since the handle is kept with the session's origin.
            let Some(handle) = self.open(crate::common::user::effective_uid())? else {
                return Ok(recovered);
            };
            let origin = Origin { uuid, folder: WindowFolder::own(), root };
            recovered.extend(self.recover_session(handle, channels, &origin));
        }
        // Close only now: the slots that were taken over used the handle's memory.
        handle.close();
        Ok(recovered)
    }

    /// Returns the windows of dead sessions over several users: all windows, or only those of the
    /// trace that the user named.
    fn find_session_parts(
        &self,
        run: Option<&RunFolder>,
        only: Option<&RequestedTrace>,
    ) -> Result<Vec<OriginSource>, RecordError> {
        let kept = run.map(origin_file::open_orphaned).transpose()?.unwrap_or_default();
        let Some(named) = only else {
            return Ok(kept.into_iter().map(OriginSource::File).collect());
        };
        let mut parts = Vec::new();
        for mut one in kept {
            let Some(folder) = named.folder_of(&one.origin.uuid) else { continue };
            named.check_no_copy(&one.origin.root, folder, one.origin.uuid)?;
            one.origin.root.clone_from(&named.path);
            one.origin.folder = folder;
            parts.push(OriginSource::File(one));
        }
        for &(folder, uuid) in &named.parts {
            if run.is_some() && parts.iter().all(|part| part.origin().uuid != uuid) {
                let root = named.path.clone();
                parts.push(OriginSource::RequestedTrace(Origin { uuid, folder, root }));
            }
        }
        Ok(parts)
    }

    /// Recovers one session's part in a window, if the window has records of the session.
    fn recover_part(&self, part: OriginSource) -> Result<WindowContents, (PathBuf, RecordError)> {
        let origin = part.origin().clone();
        let fail = |error| (origin.root.clone(), error);
        let handle = match self.open(origin.folder.uid) {
            Ok(Some(handle)) => handle,
            // The records were lost with the window.
            Ok(None)
            | Err(RecordError::Window(
                _,
                OpenError::NotOurs | OpenError::Truncated | OpenError::NotAWindow,
            )) => {
                part.forget();
                return Ok(WindowContents::Nothing);
            }
            Err(error) => return Err(fail(error)),
        };
        let (mut is_there, mut left): (bool, Vec<AbandonedChannel>) = (false, Vec::new());
        for index in 0..SESSIONS_MAX {
            let session = handle.window().session(index);
            let is_free = session.state.load(Ordering::Relaxed) == state::FREE;
            // Slots with a path belong to a session of the window's user only.
            if is_free
                || uuid_of(session) != origin.uuid
                || !shared_text::trace_path_of(session).as_os_str().is_empty()
            {
                continue;
            }
            is_there = true;
            let Some(slot) = Slot::take_over(&handle, index).map_err(fail)? else { continue };
            let Some(channel) = AbandonedChannel::of(&handle, slot, self.stranded).map_err(fail)?
            else {
                continue;
            };
            // Each channel writes its own files; a slot with an equal class was overwritten.
            match left.iter().any(|other| other.names.class == channel.names.class) {
                true => channel.slot.abandon(),
                false => left.push(channel),
            }
        }
        if !is_there {
            part.forget();
            return Ok(WindowContents::Nothing);
        }
        if left.is_empty() {
            return Ok(WindowContents::InMemory(None));
        }
        let one = self.recover_session(handle, left, &origin);
        if one.as_ref().is_none_or(|one| one.result.is_ok()) {
            part.forget();
        }
        Ok(WindowContents::InMemory(one))
    }
}

/// Locks the trace in `folder` against recorders and other recoveries, and signals readers that it
/// is being written, until the lock is dropped.
fn lock_trace(folder: &Path) -> Result<File, RecordError> {
    match prepare::lock_folder(folder) {
        Ok(Some(lock)) => Ok(lock),
        Ok(None) => Err(RecordError::io("open", folder)(std::io::ErrorKind::NotFound.into())),
        Err(RecordError::FolderBusy(folder)) => Err(RecordError::TraceBusy(folder)),
        Err(error) => Err(error),
    }
}

impl RecoveredSession {
    fn failed(folder: PathBuf, error: RecordError) -> Self {
        Self { folder, end: RecoveryEnd::InPlace, result: Err(error) }
    }
}

impl Recoverer<'_> {
    /// Completes the trace of a session with these channels. If that fails, treats the records as
    /// `stranded` specifies. Returns `None` if no record was left.
    fn recover_session(
        &self,
        handle: WindowHandle,
        channels: Vec<AbandonedChannel>,
        origin: &Origin,
    ) -> Option<RecoveredSession> {
        let Origin { root: folder, uuid, .. } = origin;
        let opened = lock_trace(folder).and_then(|lock| {
            let trace = Trace::reopen(folder, &lock, origin.folder, *uuid)?;
            Ok((lock, trace))
        });
        match opened {
            Ok((_lock, trace)) => Some(self.complete_in_place(handle, channels, trace, origin)),
            // The trace's own recorder is ending, or another process is recovering the trace.
            Err(RecordError::TraceBusy(_)) if is_at_recorded_path(origin) => Some(keep_in_memory(
                &channels,
                folder.clone(),
                RecordError::TraceBusy(folder.clone()),
            )),
            Err(_) if self.stranded == Stranded::Discard => {
                Some(discard_records(handle, &channels, folder.clone()))
            }
            Err(_) if self.stranded == Stranded::NewTrace => {
                let channels = assemble_channels(&handle, channels);
                Some(
                    match recovered_trace::create_beside_original(
                        origin,
                        &channels,
                        self.may_be_here,
                    ) {
                        Ok(made) => self.write_recovered_trace(handle, channels, made, origin),
                        Err(error) => {
                            channels.iter().for_each(|channel| channel.slot.abandon());
                            RecoveredSession::failed(folder.clone(), error)
                        }
                    },
                )
            }
            Err(error) => Some(keep_in_memory(&channels, folder.clone(), error)),
        }
    }

    /// Completes a trace in place.
    fn complete_in_place(
        &self,
        handle: WindowHandle,
        channels: Vec<AbandonedChannel>,
        trace: Trace,
        origin: &Origin,
    ) -> RecoveredSession {
        let folder = trace.root.clone();
        let channels = assemble_channels(&handle, channels);
        let mut recording = Recording::assemble(handle, trace, channels);
        recording.is_recovery = true;
        let channel = Arc::clone(&recording.trace.channel);
        if let Err(error) = recording.reopen_streams() {
            let made = match self.stranded {
                Stranded::NewTrace => recovered_trace::create_beside_original(
                    origin,
                    &recording.channels,
                    self.may_be_here,
                ),
                Stranded::Keep => Err(error),
                Stranded::Discard => {
                    let discarded = recording.discard();
                    return self.report_incomplete(folder, &channel, &error, discarded);
                }
            };
            return match made {
                Ok(made) => {
                    let Recording { handle, channels, .. } = recording;
                    self.write_recovered_trace(handle, channels, made, origin)
                }
                Err(error) => {
                    recording.channels.iter().for_each(|channel| channel.slot.abandon());
                    RecoveredSession::failed(folder, error)
                }
            };
        }
        if self.stranded == Stranded::Discard {
            recording.unwritten = UnwrittenPolicy::Discard;
        }
        let was_cleared =
            recording.trace.facts_folder().is_ok_and(|facts| changes::was_cleared(&facts));
        let result = recording.finish(&|| false);
        if was_cleared && result.is_ok() {
            self.notices.report(format_args!(
                "{} was being cleared when its recorder was killed: of what was recorded before, \
                 there is what had not been removed yet",
                folder.display()
            ));
        }
        match result {
            // In a lost window, nothing was discarded.
            Err(error)
                if self.stranded == Stranded::Discard && !matches!(error, RecordError::Lost(_)) =>
            {
                self.report_incomplete(folder, &channel, &error, Ok(()))
            }
            result => RecoveredSession { folder, end: RecoveryEnd::InPlace, result },
        }
    }

    /// Writes records in memory into a new trace. All records stay in memory until the new trace is
    /// complete; if it cannot be completed, it is removed.
    fn write_recovered_trace(
        &self,
        handle: WindowHandle,
        channels: Vec<Channel>,
        mut made: recovered_trace::RecoveredTrace,
        origin: &Origin,
    ) -> RecoveredSession {
        let mut recording = Recording::assemble(handle, made.trace, channels);
        recording.is_recovery = true;
        recording.unwritten = UnwrittenPolicy::Keep;
        let regions = recording.channels.iter_mut().flat_map(|channel| &mut channel.regions);
        regions.for_each(RegionDrain::begin_new_trace);
        match recording.finish(&|| false) {
            Ok(summary) => {
                made.prepared_folder.commit();
                let end = RecoveryEnd::NewTrace(made.prepared_folder.path.clone());
                RecoveredSession { folder: origin.root.clone(), end, result: Ok(summary) }
            }
            Err(error) => {
                if let Err(why) = recovered_trace::remove_unwritten_trace(&made.prepared_folder) {
                    self.notices.report(format_args!(
                        "{} is not complete, and cannot be removed: {}",
                        made.prepared_folder.path.display(),
                        IoError::from(why)
                    ));
                }
                RecoveredSession::failed(origin.root.clone(), error)
            }
        }
    }

    /// Reports a trace that could not be completed, and marks it as complete if its records in
    /// memory were `discarded`: it has all events that were written.
    fn report_incomplete(
        &self,
        folder: PathBuf,
        channel: &TraceFolder,
        error: &RecordError,
        discarded: Result<(), RecordError>,
    ) -> RecoveredSession {
        self.notices.report(format_args!("{} cannot be completed: {error}", folder.display()));
        if discarded.is_ok() {
            // On failure there is no mark, and readers correctly report the trace as incomplete.
            let _ = channel.current_path().and_then(|now| {
                completion::mark_complete(&now.join(FACTS_FOLDER), CompletedBy::Assumption)
            });
        }
        let result = discarded.map(|()| Summary::default());
        RecoveredSession { folder, end: RecoveryEnd::Discarded, result }
    }
}

/// Assembles channels from the slots of dead recorders.
fn assemble_channels(handle: &WindowHandle, channels: Vec<AbandonedChannel>) -> Vec<Channel> {
    let one = |left: AbandonedChannel| {
        Channel::assemble(handle, left.slot, left.layout, left.names, false)
    };
    channels.into_iter().map(one).collect()
}

/// Returns true if the trace is at its recorded path.
fn is_at_recorded_path(origin: &Origin) -> bool {
    Metadata::uuid_in(&origin.folder.in_trace(&origin.root)) == Some(origin.uuid)
}

/// Keeps records in memory.
fn keep_in_memory(
    channels: &[AbandonedChannel],
    folder: PathBuf,
    error: RecordError,
) -> RecoveredSession {
    channels.iter().for_each(|left| left.slot.abandon());
    RecoveredSession::failed(folder, error)
}

/// Discards records in memory.
fn discard_records(
    handle: WindowHandle,
    channels: &[AbandonedChannel],
    folder: PathBuf,
) -> RecoveredSession {
    let discarded: Vec<_> = channels.iter().map(|left| left.discard(&handle)).collect();
    handle.close();
    let result = discarded.into_iter().find_map(Result::err);
    let result = result.map_or_else(|| Ok(Summary::default()), Err);
    RecoveredSession { folder, end: RecoveryEnd::Discarded, result }
}

#[cfg(test)]
mod tests;
