//! What dead recorders left: their traces completed, their slots freed.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use trackway_abi::session::{SESSIONS_MAX, Session, state};
use trackway_window::{OpenError, SessionLayout};

use crate::changes;
use crate::channel::Channel;
use crate::completion::{self, By};
use crate::control::RunFolder;
use crate::kernel;
use crate::metadata::Metadata;
use crate::origins::{self, Kept, Origin};
use crate::place::Place;
use crate::recording::Recording;
use crate::region::StreamNames;
use crate::report::Notices;
use crate::room;
use crate::slot::{self, Slot};
use crate::stream::is_progress_in;
use crate::trace::{self, CALIBRATIONS, FACTS, Trace, WindowFolder, channel_of};
use crate::{Home, RecordError, Summary, cpus, dying};

/// A session that was recovered.
#[derive(Debug)]
#[non_exhaustive]
pub struct Recovered {
    /// Its trace's folder.
    pub folder: PathBuf,
    /// How it went; events of before the recorder's death are not counted.
    pub result: Result<Summary, RecordError>,
}

/// What becomes of the records of a trace whose folder is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gone {
    /// They stay in memory: the folder may come back, as with a disk.
    Keep,
    /// The user asked, and sees that they are not recovered.
    Discard,
}

/// Completes the traces of recorders that are dead and frees their slots: all of this user's, or
/// only the one in `only`, wherever it was when it was recorded.
///
/// If nothing of the trace in `only` is in memory any more, it is marked as complete: what is
/// written of it is all there is.
pub fn recover(notices: &Notices, only: Option<&Path>) -> Result<Vec<Recovered>, RecordError> {
    recover_as(&crate::home::folder(), Some(&RunFolder::new()), notices, only, Gone::Discard)
}

/// As [`recover`], in the window in `folder`.
pub fn recover_in(
    folder: &Path,
    notices: &Notices,
    only: Option<&Path>,
) -> Result<Vec<Recovered>, RecordError> {
    recover_as(folder, None, notices, only, Gone::Discard)
}

/// As [`recover`], for a command that the user gave for something else: nothing is discarded.
pub(crate) fn recover_in_passing(notices: &Notices) -> Result<Vec<Recovered>, RecordError> {
    recover_as(&crate::home::folder(), Some(&RunFolder::new()), notices, None, Gone::Keep)
}

/// `run`: where it stands which traces sessions in other users' windows are of.
fn recover_as(
    folder: &Path,
    run: Option<&RunFolder>,
    notices: &Notices,
    only: Option<&Path>,
    gone: Gone,
) -> Result<Vec<Recovered>, RecordError> {
    let only = only.map(Named::new);
    let recovery = Recovery { folder, notices, gone };
    recovery.wait_for_the_dying(run)?;
    let mut in_memory = Vec::new();
    let mut recovered = recovery.own(only.as_ref(), &mut in_memory)?;
    for part in recovery.parts(run, only.as_ref())? {
        let uuid = part.origin().uuid;
        match recovery.part(part) {
            Ok(Found::Nothing) => {}
            Ok(Found::InMemory(one)) => {
                in_memory.push(uuid);
                recovered.extend(one);
            }
            Err((folder, error)) => {
                in_memory.push(uuid);
                recovered.push(Recovered { folder, result: Err(error) });
            }
        }
    }
    // What was recorded of the kernel is in no window.
    recovered.iter().for_each(|one| kernel::left::settle(&one.folder, notices));
    match &only {
        Some(named) => {
            named.settle(&in_memory, notices)?;
            kernel::left::settle(&named.path, notices);
        }
        None => run.into_iter().for_each(|run| run.settle_kernels(notices)),
    }
    // Names that stay are no harm.
    let _ = run.map(|run| run.clean_recovered(folder));
    Ok(recovered)
}

/// What was found of a part in its user's window.
enum Found {
    /// Nothing.
    Nothing,
    /// Something; if its recorder was dead, this is what became of it.
    InMemory(Option<Recovered>),
}

/// A part of a session over several users, whose recorder is dead.
enum Part {
    /// It stands where its recorder kept it.
    Kept(Kept),
    /// The user named its trace.
    Named(Origin),
}

impl Part {
    fn origin(&self) -> &Origin {
        match self {
            Self::Kept(kept) => &kept.origin,
            Self::Named(origin) => origin,
        }
    }

    fn forget(self) {
        if let Self::Kept(kept) = self {
            kept.forget();
        }
    }
}

/// What is recovered, and how.
struct Recovery<'a> {
    /// Of the windows.
    folder: &'a Path,
    notices: &'a Notices,
    gone: Gone,
}

impl Recovery<'_> {
    fn open(&self, uid: u32) -> Result<Option<Home>, RecordError> {
        match Home::open_for(self.folder, uid, false) {
            Err(RecordError::Window(_, OpenError::Absent)) => Ok(None),
            other => other.map(Some),
        }
    }

    /// Waits for recorders that were killed, and are not gone yet: those of the user's own window,
    /// and those who hold the locks of sessions.
    fn wait_for_the_dying(&self, run: Option<&RunFolder>) -> Result<(), RecordError> {
        let mut pids = Vec::new();
        if let Some(home) = self.open(crate::home::user())? {
            let sessions = (0..SESSIONS_MAX).map(|index| home.window().session(index));
            let used = sessions.filter(|of| of.state.load(Ordering::Relaxed) != state::FREE);
            pids.extend(used.map(|of| of.recorder_pid.load(Ordering::Relaxed)));
        }
        let files = run.map(|run| fs::read_dir(run.path())).into_iter().flatten().flatten();
        let inodes = files.flatten().filter_map(|file| Some(file.metadata().ok()?.ino()));
        pids.extend(dying::holders(&inodes.collect()));
        dying::wait_for(pids.into_iter().filter(|&pid| pid != 0));
        Ok(())
    }

    /// Recovers what is in the user's own window, but for parts of sessions over several users.
    /// Identities of what was found goes to `in_memory`.
    fn own(
        &self,
        only: Option<&Named>,
        in_memory: &mut Vec<[u8; 16]>,
    ) -> Result<Vec<Recovered>, RecordError> {
        let (mut recovered, mut left) = (Vec::new(), Vec::new());
        let Some(home) = self.open(crate::home::user())? else { return Ok(recovered) };
        let mut elsewhere = 0;
        for index in 0..SESSIONS_MAX {
            let session = home.window().session(index);
            let state = session.state.load(Ordering::Relaxed);
            let place = slot::path_of(session);
            if state == state::FREE {
                continue;
            }
            if place.as_os_str().is_empty() && state != state::BUILDING {
                // Where its trace is does not stand in the window.
                elsewhere += u32::from(session.uid.load(Ordering::Relaxed) != crate::home::user());
                continue;
            }
            let folder = match only {
                Some(named) if !named.is_of(session)? => continue,
                Some(named) => named.path.clone(),
                None => place,
            };
            in_memory.push(uuid_of(session));
            if let Some(slot) = Slot::take_over(&home, index)? {
                match Left::of(&home, slot, self.gone) {
                    Ok(channel) => left.extend(channel.map(|channel| (folder, channel))),
                    Err(error) => recovered.push(Recovered { folder, result: Err(error) }),
                }
            }
        }
        if elsewhere > 0 && self.gone == Gone::Discard && only.is_none() {
            self.notices.say(format_args!(
                "{elsewhere} channels in this user's window are of another user's session, who \
                 recovers them"
            ));
        }
        while let Some((folder, channel)) = left.pop() {
            // The channels of one session, in the order of their slots.
            let uuid = uuid_of(channel.slot.session());
            let is_other = |(_, other): &(_, Left)| uuid_of(other.slot.session()) != uuid;
            let (others, mut channels): (Vec<_>, Vec<_>) = left.into_iter().partition(is_other);
            left = others;
            channels.push((folder, channel));
            let root = channels[0].0.clone();
            let channels = channels.into_iter().map(|(_, channel)| channel).collect();
            // An open file of its own, because it is kept with the session's parts.
            let Some(home) = self.open(crate::home::user())? else { return Ok(recovered) };
            let origin = Origin { uuid, folder: WindowFolder::own(), root };
            recovered.extend(self.one(home, channels, &origin));
        }
        Ok(recovered)
    }

    /// The parts of sessions over several users whose recorders are dead: all, or those of the
    /// trace that the user named.
    fn parts(
        &self,
        run: Option<&RunFolder>,
        only: Option<&Named>,
    ) -> Result<Vec<Part>, RecordError> {
        let kept = run.map(origins::left_behind).transpose()?.unwrap_or_default();
        let Some(named) = only else { return Ok(kept.into_iter().map(Part::Kept).collect()) };
        let mut parts = Vec::new();
        for mut one in kept {
            let Some(folder) = named.folder_of(&one.origin.uuid) else { continue };
            named.check_no_copy(&one.origin.root, folder, one.origin.uuid)?;
            one.origin.root.clone_from(&named.path);
            one.origin.folder = folder;
            parts.push(Part::Kept(one));
        }
        for &(folder, uuid) in &named.parts {
            if run.is_some() && parts.iter().all(|part| part.origin().uuid != uuid) {
                let root = named.path.clone();
                parts.push(Part::Named(Origin { uuid, folder, root }));
            }
        }
        Ok(parts)
    }

    /// Recovers one part, if something of it is in its user's window.
    fn part(&self, part: Part) -> Result<Found, (PathBuf, RecordError)> {
        let origin = part.origin().clone();
        let fail = |error| (origin.root.clone(), error);
        let home = match self.open(origin.folder.uid) {
            Ok(Some(home)) => home,
            // Its memory went with it.
            Ok(None)
            | Err(RecordError::Window(
                _,
                OpenError::NotOurs | OpenError::Truncated | OpenError::NotAWindow,
            )) => {
                part.forget();
                return Ok(Found::Nothing);
            }
            Err(error) => return Err(fail(error)),
        };
        let (mut is_there, mut left): (bool, Vec<Left>) = (false, Vec::new());
        for index in 0..SESSIONS_MAX {
            let session = home.window().session(index);
            let is_free = session.state.load(Ordering::Relaxed) == state::FREE;
            // Those with a path are of a session of the window's user alone.
            if is_free
                || uuid_of(session) != origin.uuid
                || !slot::path_of(session).as_os_str().is_empty()
            {
                continue;
            }
            is_there = true;
            let Some(slot) = Slot::take_over(&home, index).map_err(fail)? else { continue };
            let Some(channel) = Left::of(&home, slot, self.gone).map_err(fail)? else { continue };
            // Each writes to files of its own; who says otherwise wrote over the window.
            match left.iter().any(|other| other.names.class == channel.names.class) {
                true => channel.slot.abandon(),
                false => left.push(channel),
            }
        }
        if !is_there {
            part.forget();
            return Ok(Found::Nothing);
        }
        if left.is_empty() {
            return Ok(Found::InMemory(None));
        }
        let one = self.one(home, left, &origin);
        if one.as_ref().is_none_or(|one| one.result.is_ok()) {
            part.forget();
        }
        Ok(Found::InMemory(one))
    }
}

/// The trace that a user named.
struct Named {
    /// Absolute.
    path: PathBuf,
    /// Its identity, if it can be read: of its part that is the calling user's window's.
    uuid: Option<[u8; 16]>,
    /// Its parts with their identities, as far as they are the calling user's to write.
    parts: Vec<(WindowFolder, [u8; 16])>,
}

impl Named {
    fn new(path: &Path) -> Self {
        let uuid = Metadata::uuid_in(&channel_of(path, crate::home::user()));
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        // Without a slash at the end, as `room::prepare` makes it.
        let path: PathBuf = absolute.components().collect();
        let part = |channel: PathBuf| {
            let is_ours = fs::metadata(&channel).is_ok_and(|it| it.uid() == crate::home::user());
            let folder = WindowFolder::of(&channel).filter(|_| is_ours)?;
            Some((folder, Metadata::uuid_in(&channel)?))
        };
        let parts = trace::channels_of(&path).into_iter().filter_map(part).collect();
        Self { path, uuid, parts }
    }

    /// Where in it the part with this identity is.
    fn folder_of(&self, uuid: &[u8; 16]) -> Option<WindowFolder> {
        self.parts.iter().find(|(_, part)| part == uuid).map(|(folder, _)| *folder)
    }

    /// Whether it is the trace of `session`, wherever it has been moved since. Where it was may be
    /// another one by now, so places tell only if its identity cannot be read.
    ///
    /// # Errors
    ///
    /// If it is a copy: the streams of a copy may end before those that the session goes on from,
    /// and what is in memory can be written only once.
    fn is_of(&self, session: &Session) -> Result<bool, RecordError> {
        let place = slot::path_of(session);
        let is_there = place == self.path || is_same_folder(&place, &self.path);
        let Some(uuid) = self.uuid else { return Ok(is_there) };
        if uuid != uuid_of(session) {
            return Ok(false);
        }
        self.check_no_copy(&place, WindowFolder::own(), uuid)?;
        Ok(true)
    }

    /// Whether the trace with this identity is not at `place` still.
    ///
    /// # Errors
    ///
    /// If it is, and this one a copy.
    fn check_no_copy(
        &self,
        place: &Path,
        folder: WindowFolder,
        uuid: [u8; 16],
    ) -> Result<(), RecordError> {
        let is_here = place == self.path || is_same_folder(place, &self.path);
        if !is_here && Metadata::uuid_in(&folder.in_trace(place)) == Some(uuid) {
            return Err(RecordError::Copy(self.path.clone(), place.to_owned()));
        }
        Ok(())
    }

    /// Marks the parts of the trace of which nothing is in memory, if it was recorded here, is not
    /// complete, and nobody writes to it: it will not become more.
    ///
    /// # Errors
    ///
    /// If that cannot be known, as of a trace that is busy, cannot be opened or is not there.
    fn settle(&self, in_memory: &[[u8; 16]], notices: &Notices) -> Result<(), RecordError> {
        let mut is_news = false;
        for (folder, uuid) in &self.parts {
            if !in_memory.contains(uuid) {
                is_news |= self.settle_part(*folder, true)?;
            }
        }
        if self.parts.is_empty() && in_memory.is_empty() {
            is_news = self.settle_part(WindowFolder::own(), self.uuid.is_some())?;
        }
        if is_news {
            notices.say(format_args!(
                "nothing of {} is in memory any more: what is written is all there is",
                self.path.display()
            ));
        }
        Ok(())
    }

    /// The same of one part; whether it was marked.
    fn settle_part(&self, of: WindowFolder, is_known: bool) -> Result<bool, RecordError> {
        let channel = of.in_trace(&self.path);
        let facts = channel.join(FACTS);
        if let Err(error) = fs::metadata(facts.join(CALIBRATIONS)) {
            // Other tracers' traces, and those made of others, have nothing to recover.
            let is_other = error.kind() == ErrorKind::NotFound && !is_gone(&self.path);
            let fail = || RecordError::io("open", &self.path);
            return if is_other { Ok(false) } else { Err(fail()(error)) };
        }
        if completion::is_marked(&facts) {
            return Ok(false);
        }
        if !is_known {
            // So it is not known what is in memory of it.
            let error = std::io::Error::new(ErrorKind::InvalidData, "it makes no sense");
            return Err(RecordError::Io("read", channel.join("metadata"), error));
        }
        let lock = lock(&self.path)?;
        // What is at its path from here on may be another one.
        let fail = || RecordError::io("write", &facts);
        let open = Place::of(lock, &self.path).below(&of.names()).map_err(fail())?;
        let now = open.now().map_err(fail())?.join(FACTS);
        if completion::is_marked(&now) {
            // Its recorder has just completed it.
            return Ok(false);
        }
        completion::mark(&now, By::Nobody).map_err(fail())?;
        Ok(true)
    }
}

/// Keeps recorders and others who recover away from the trace in `folder`, and lets readers see
/// that it is being written, until it is dropped.
fn lock(folder: &Path) -> Result<File, RecordError> {
    match room::lock(folder) {
        Ok(Some(lock)) => Ok(lock),
        Ok(None) => Err(RecordError::io("open", folder)(ErrorKind::NotFound.into())),
        Err(RecordError::FolderBusy(folder)) => Err(RecordError::TraceBusy(folder)),
        Err(error) => Err(error),
    }
}

/// Identity of the trace that a session in a window is of.
pub(crate) fn uuid_of(session: &Session) -> [u8; 16] {
    let mut uuid = [0; 16];
    for (bytes, half) in uuid.chunks_exact_mut(8).zip(&session.trace_uuid) {
        bytes.copy_from_slice(&half.load(Ordering::Relaxed).to_le_bytes());
    }
    uuid
}

/// A channel whose recorder is dead, and in which nobody writes any more.
struct Left {
    slot: Slot,
    layout: SessionLayout,
    names: StreamNames,
    no_sequence: bool,
}

impl Left {
    /// Keeps writers out of a channel that was taken over; `None`: nothing is left of it.
    fn of(home: &Home, slot: Slot, gone: Gone) -> Result<Option<Self>, RecordError> {
        let session = slot.session();
        if session.state.load(Ordering::Relaxed) == state::BUILDING {
            let no_sequence = slot.deactivate_unbuilt();
            slot.free(home, no_sequence).inspect_err(|_| slot.abandon())?;
            return Ok(None);
        }
        // What lies elsewhere is another session's, whatever the slot says.
        let is_of_another = home.uid() != crate::home::user();
        let is_its = |layout: &SessionLayout| {
            // Each CPU takes memory of ours.
            (!is_of_another || layout.cpus <= cpus::possible())
                && slot::is_control_area(home, slot.index, &layout.control_area())
        };
        let layout = SessionLayout::read(home.window(), slot.index).filter(is_its);
        let class = session.stream_class.load(Ordering::Relaxed);
        let names = slot::channel_name(session).map(|name| StreamNames::new(&name, class));
        let no_sequence = slot.deactivate();
        let Some((layout, names)) = layout.zip(names) else {
            let was_let_in_to = session.control_offset.load(Ordering::Relaxed) != 0;
            // A process of little address space (RLIMIT_AS) does not see all.
            let window = home.window();
            let may_be_elsewhere =
                home.allocator.file().status().is_ok_and(|file| file.bytes > window.mapped_bytes());
            if was_let_in_to && !slot.is_complete && (gone == Gone::Keep || may_be_elsewhere) {
                slot.abandon();
                return Err(RecordError::Lost("its session in the window makes no sense"));
            }
            slot.free(home, no_sequence).inspect_err(|_| slot.abandon_complete())?;
            return Ok(None);
        };
        if slot.is_complete {
            slot.discard(home, &layout, no_sequence)?;
            return Ok(None);
        }
        Ok(Some(Self { slot, layout, names, no_sequence }))
    }

    fn discard(&self, home: &Home) -> Result<(), RecordError> {
        self.slot.discard(home, &self.layout, self.no_sequence)
    }
}

impl Recovery<'_> {
    /// Completes the trace of a session with these channels.
    fn one(&self, home: Home, channels: Vec<Left>, origin: &Origin) -> Option<Recovered> {
        let Self { notices, gone, .. } = *self;
        let Origin { root: folder, uuid, .. } = origin;
        let fail = |error| Some(Recovered { folder: folder.clone(), result: Err(error) });
        let abandon = |channels: &[Left]| channels.iter().for_each(|left| left.slot.abandon());
        let opened = lock(folder).and_then(|lock| {
            let trace = Trace::reopen(folder, &lock, origin.folder, *uuid)?;
            Ok((lock, trace))
        });
        let (_lock, trace) = match opened {
            Ok(opened) => opened,
            Err(_) if gone == Gone::Discard && is_gone(folder) => {
                let folder = folder.display();
                notices.say(format_args!("the trace {folder} is gone: nothing recovered"));
                let discarded: Vec<_> = channels.iter().map(|left| left.discard(&home)).collect();
                return discarded.into_iter().find_map(Result::err).and_then(fail);
            }
            Err(error) => {
                abandon(&channels);
                // Which says so itself, and for how long.
                if !matches!(error, RecordError::OtherTrace(_)) {
                    say_kept(notices, folder);
                }
                return fail(error);
            }
        };
        let assemble =
            |left: Left| Channel::assemble(&home, left.slot, left.layout, left.names, false);
        let channels = channels.into_iter().map(assemble).collect();
        let mut recording = Recording::assemble(home, trace, channels);
        recording.is_recovery = true;
        if let Err(error) = recording.reopen_streams() {
            recording.channels.iter().for_each(|channel| channel.slot.abandon());
            say_kept(notices, folder);
            return fail(error);
        }
        let was_cleared = recording.trace.facts().is_ok_and(|facts| changes::was_cleared(&facts));
        let result = recording.finish(&|| false);
        if was_cleared && result.is_ok() {
            notices.say(format_args!(
                "{} was being cleared when its recorder was killed: of what was recorded before, \
                 there is what had not been removed yet",
                folder.display()
            ));
        }
        Some(Recovered { folder: folder.clone(), result })
    }
}

fn is_same_folder(one: &Path, other: &Path) -> bool {
    let identity = |folder| fs::metadata(folder).map(|found| (found.dev(), found.ino())).ok();
    identity(one).is_some_and(|one| identity(other) == Some(one))
}

/// Whether nothing is where a trace was.
pub(crate) fn is_gone(folder: &Path) -> bool {
    let found = fs::symlink_metadata(folder);
    found.is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

fn say_kept(notices: &Notices, folder: &Path) {
    let or_else = if is_gone(folder) { "; trackway recover gives them up" } else { "" };
    notices.say(format_args!(
        "events of {} stay in memory until the trace can be opened{or_else}",
        folder.display()
    ));
}

impl Recording {
    /// Goes on where the progress in the window says that the dead recorder was.
    fn reopen_streams(&mut self) -> Result<(), RecordError> {
        let channel = &self.trace.channel;
        let folder = channel.now().map_err(RecordError::io("open", channel.path()))?;
        let is_of_another = self.home.uid() != crate::home::user();
        for work in self.channels.iter_mut().flat_map(|channel| &mut channel.regions) {
            let drained = work.region.0.control.drained();
            // What is written already is not that user's to take back.
            if is_of_another && !is_progress_in(&folder, &work.name(), &drained) {
                work.drained = drained;
                work.given_up = true;
                work.damaged += 1;
                continue;
            }
            match work.reopen_stream(&self.trace) {
                Ok(()) => {}
                // Somebody removed or cut the file, or wrote over the progress.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::NotFound | ErrorKind::UnexpectedEof | ErrorKind::InvalidData
                    ) =>
                {
                    work.given_up = true;
                    work.damaged += 1;
                }
                Err(error) => {
                    let path = channel.path().join(work.name());
                    return Err(RecordError::io("open", path)(error));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use trackway_ring::Drained;
    use trackway_session::{BufferOptions, Tracefiles};
    use trackway_testkit::TemporaryFolder;
    use trackway_window::{ProcessSlot, Way};

    use super::*;
    use crate::stream::{Packet, Stream, StreamId};
    use crate::{ChannelSettings, SessionSettings};

    fn home(folder: &TemporaryFolder) -> Home {
        Home::open_in(folder.path(), true).expect("a window")
    }

    /// A recording to `trace` in `folder`, whose window is there too.
    fn record(folder: &TemporaryFolder, uuid: u8) -> Recording {
        let buffers =
            BufferOptions { size_bytes: Some(64 << 10), sub_buffers: Some(4), overwrite: false };
        let settings = SessionSettings {
            name: String::new(),
            token: None,
            uuid: [uuid; 16],
            path: folder.join("trace"),
        };
        let channel = ChannelSettings {
            buffers: buffers.plan().expect("sizes"),
            ..ChannelSettings::default()
        };
        let built = Recording::build(home(folder), &settings, &[channel]);
        let mut recording = built.expect("a recording");
        recording.activate();
        recording
    }

    /// One whose recorder is dead.
    fn left(folder: &TemporaryFolder, uuid: u8) {
        abandon(&record(folder, uuid));
    }

    fn abandon(recording: &Recording) {
        recording.channels.iter().for_each(|channel| channel.slot.abandon());
    }

    /// The mark of the trace `name`.
    fn mark(folder: &TemporaryFolder, name: &str) -> Option<String> {
        let channel = channel_of(&folder.join(name), crate::home::user());
        fs::read_to_string(channel.join(FACTS).join("complete")).ok()
    }

    fn shared() -> TemporaryFolder {
        TemporaryFolder::below(Path::new("/dev/shm"))
    }

    #[test]
    fn what_was_recorded_is_written_only_into_its_own_trace() {
        let folder = shared();
        left(&folder, 1);
        fs::rename(folder.join("trace"), folder.join("moved")).expect("a folder");
        record(&folder, 2).finish(&|| false).expect("a trace");
        let theirs = mark(&folder, "trace").expect("a mark");
        let notices = Notices::kept();
        for gone in [Gone::Keep, Gone::Discard] {
            let recovered =
                recover_as(folder.path(), None, &notices, None, gone).expect("a window");
            assert!(matches!(recovered[0].result, Err(RecordError::OtherTrace(_))));
        }
        let recover_in = |name| recover_in(folder.path(), &notices, Some(&folder.join(name)));
        // The one that is there now is another, of which nothing is in memory.
        assert!(recover_in("trace").expect("a window").is_empty());
        assert_eq!(mark(&folder, "trace").as_ref(), Some(&theirs));
        assert_eq!(mark(&folder, "moved"), None);
        let recovered = recover_in("moved").expect("a window");
        assert!(recovered[0].result.is_ok(), "{recovered:?}");
        assert!(mark(&folder, "moved").is_some_and(|mark| mark.contains("by=recover events=")));
        assert_eq!(mark(&folder, "trace"), Some(theirs));
    }

    #[test]
    fn a_trace_that_was_removed_is_not_written_into_the_next_one() {
        let folder = shared();
        let first = record(&folder, 1);
        fs::remove_dir_all(folder.join("trace")).expect("a folder");
        let second = record(&folder, 2);
        let slot = first.channels[0].slot.index;
        let refused = first.finish(&|| false).expect_err("its folder is gone");
        assert!(refused.to_string().ends_with("its folder was removed"), "{refused}");
        assert_eq!(mark(&folder, "trace"), None);
        let session = home(&folder).window().session(slot).state.load(Ordering::Relaxed);
        assert_eq!(session, state::FREE, "nobody can use what it holds");
        second.finish(&|| false).expect("a trace");
        assert!(mark(&folder, "trace").is_some_and(|mark| mark.contains("by=record")));
        // A new recording is not complete, whatever was there.
        let third = record(&folder, 3);
        assert_eq!(mark(&folder, "trace"), None);
        third.finish(&|| false).expect("a trace");
    }

    #[test]
    fn progress_is_what_the_index_has_or_a_packet_less() {
        let folder = TemporaryFolder::new();
        fs::create_dir(folder.join("index")).expect("a folder");
        let progress = |file_bytes, packets| Drained { file_bytes, packets, ..Drained::default() };
        let is_there = |drained| is_progress_in(folder.path(), "channel0_0", &drained);
        assert!(is_there(progress(0, 0)) && !is_there(progress(4096, 1)), "no stream yet");
        let id = StreamId { uuid: [1; 16], class: 0, instance: 0, cpu: 0 };
        let place = std::sync::Arc::new(Place::open(folder.path()).expect("a folder"));
        let bounds = Tracefiles::default();
        let mut stream = Stream::create(&place, "channel0_0", bounds, id, 5).expect("a stream");
        let mut lengths = vec![0, stream.bytes()];
        // Its first packet, which may not have been said yet.
        assert!(is_there(progress(0, 0)) && is_there(progress(stream.bytes(), 1)));
        for _ in 0..3 {
            let packet = Packet { begin_ts: 5, end_ts: 5, discarded: 0, missing: 0, events: 0 };
            stream.append(&mut vec![0; 256], &packet).expect("written");
            lengths.push(stream.bytes());
        }
        for (packets, &bytes) in lengths.iter().enumerate() {
            let is_last = packets >= 3;
            assert_eq!(is_there(progress(bytes, packets as u64)), is_last, "{packets}");
        }
        assert!(!is_there(progress(lengths[4] - 8, 4)) && !is_there(progress(lengths[4], 5)));
        assert!(!is_there(progress(lengths[3], 4)) && !is_there(progress(lengths[4], 3)));
        assert!(!is_there(progress(u64::MAX, u64::MAX)));
        // In several files: the last one.
        assert!(!is_there(Drained { file: 1, ..progress(lengths[4], 4) }));
        for file in ["", "index/"] {
            let end = if file.is_empty() { "" } else { ".idx" };
            let path = |name: &str| folder.join(format!("{file}{name}{end}"));
            fs::copy(path("channel0_0"), path("channel0_0.7")).expect("a copy");
        }
        for (file, is_last) in [(0, false), (7, false), (8, true), (9, false)] {
            let drained = Drained { file, ..progress(lengths[4], 4) };
            assert_eq!(is_there(drained), is_last, "{file}");
        }
    }

    #[test]
    fn a_slot_that_was_being_built_leaves_nothing_of_its_earlier_life_to_recover() {
        let folder = shared();
        let first = record(&folder, 1);
        let index = first.channels[0].slot.index;
        first.finish(&|| false).expect("a trace");
        let complete = mark(&folder, "trace");
        let home = home(&folder);
        let session = home.window().session(index);
        // It has been free for long.
        session.lease_until_ns.store(0, Ordering::Relaxed);
        let taken = Slot::take(&home).expect("a slot");
        assert_eq!(taken.index, index);
        // Its recorder is killed, and so is who recovers it, before it is free.
        taken.abandon();
        let taken = Slot::take_over(&home, index).expect("a window").expect("it is left");
        let others = File::open(&home.path).expect("the window");
        others.lock().expect("a lock");
        let refused = Left::of(&home, taken, Gone::Keep).map(|left| left.is_some());
        assert!(matches!(refused, Err(RecordError::Io("lock the window", ..))), "{refused:?}");
        others.unlock().expect("ours");
        session.recorder_pid.store(0, Ordering::Relaxed);
        session.recorder_since_ns.store(0, Ordering::Relaxed);

        let enabled = &home.window().event(9).enabled;
        enabled.store(1 << index, Ordering::Relaxed);
        let recovered = recover_in(folder.path(), &Notices::kept(), None).expect("a window");
        assert!(recovered.is_empty(), "{recovered:?}");
        assert_eq!(session.state.load(Ordering::Relaxed), state::FREE);
        assert_eq!(mark(&folder, "trace"), complete);
        assert_eq!(enabled.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_trace_is_locked_while_it_is_recovered() {
        let folder = shared();
        left(&folder, 1);
        let room = File::open(folder.join("trace")).expect("a folder");
        let trace = folder.join("trace");
        let recover_it = |only| recover_in(folder.path(), &Notices::kept(), only);
        room.lock().expect("a lock");
        let recovered = recover_it(None).expect("a window");
        assert!(matches!(recovered[0].result, Err(RecordError::TraceBusy(_))), "{recovered:?}");
        assert_eq!(mark(&folder, "trace"), None);
        room.unlock().expect("ours");
        assert!(recover_it(None).expect("a window")[0].result.is_ok());

        // The same where nothing of it is in memory.
        let facts = channel_of(&folder.join("trace"), crate::home::user()).join(FACTS);
        completion::unmark(&facts).expect("a mark");
        room.lock().expect("a lock");
        let refused = recover_it(Some(&trace)).expect_err("it is busy");
        assert!(matches!(refused, RecordError::TraceBusy(_)), "{refused}");
        assert_eq!(mark(&folder, "trace"), None);
        room.unlock().expect("ours");
        assert!(recover_it(Some(&trace)).expect("a window").is_empty());
        assert!(mark(&folder, "trace").is_some_and(|mark| mark.contains("memory=gone")));
    }

    #[test]
    fn what_cannot_be_opened_is_said_and_what_is_no_recording_left_alone() {
        let folder = shared();
        let notices = Notices::kept();
        let recover_in = |path: &Path| recover_in(folder.path(), &notices, Some(path));
        let refused = recover_in(&folder.join("nothing")).expect_err("it is not there");
        assert!(matches!(refused, RecordError::Io("open", ..)), "{refused}");
        fs::create_dir(folder.join("theirs")).expect("a folder");
        assert!(recover_in(&folder.join("theirs")).expect("a window").is_empty());
        record(&folder, 1).finish(&|| false).expect("a trace");
        let channel = channel_of(&folder.join("trace"), crate::home::user());
        completion::unmark(&channel.join(FACTS)).expect("a mark");
        fs::write(channel.join("metadata"), "damaged").expect("a file");
        let refused = recover_in(&folder.join("trace")).expect_err("it may be in memory");
        assert!(matches!(refused, RecordError::Io("read", ..)), "{refused}");
        assert_eq!(mark(&folder, "trace"), None);
        assert!(notices.all().is_empty(), "{:?}", notices.all());
    }

    #[test]
    fn a_copy_is_not_taken_for_the_trace() {
        let folder = shared();
        left(&folder, 1);
        let (trace, copy) = (folder.join("trace"), folder.join("copy"));
        let from = channel_of(&trace, crate::home::user());
        let to = channel_of(&copy, crate::home::user());
        fs::create_dir_all(to.join(FACTS)).expect("a folder");
        for file in [Path::new("metadata"), &Path::new(FACTS).join(CALIBRATIONS)] {
            fs::copy(from.join(file), to.join(file)).expect("a copy");
        }
        let notices = Notices::kept();
        let recover_in = |path: &Path| recover_in(folder.path(), &notices, Some(path));
        let refused = recover_in(&copy).expect_err("a copy");
        assert!(matches!(&refused, RecordError::Copy(.., original) if *original == trace));
        assert_eq!(mark(&folder, "copy"), None);
        // What is left of it when the trace itself is gone is as good.
        fs::rename(&trace, folder.join("elsewhere")).expect("a folder");
        assert!(recover_in(&copy).expect("a window")[0].result.is_ok());
        assert!(mark(&folder, "copy").is_some());
    }

    #[test]
    fn a_trace_that_is_gone_is_given_up_only_for_who_asked() {
        let folder = shared();
        left(&folder, 7);
        fs::rename(folder.join("trace"), folder.join("disk")).expect("a folder");
        let notices = Notices::kept();
        let recover =
            |gone| recover_as(folder.path(), None, &notices, None, gone).expect("a window");
        assert!(recover(Gone::Keep)[0].result.is_err());
        let said = notices.all();
        assert!(said[0].contains("stay in memory") && said[0].contains("trackway recover gives"));
        fs::rename(folder.join("disk"), folder.join("trace")).expect("a folder");
        assert!(recover(Gone::Keep)[0].result.is_ok());

        let recording = record(&folder, 7);
        abandon(&recording);
        let regions = &recording.channels[0].regions;
        let held = regions.iter().find(|work| work.way != Way::Sequence).expect("one");
        let control = held.region.0.control;
        control.owner.store(ProcessSlot::NONE.owner_word(1), Ordering::Relaxed);
        drop(recording);
        fs::remove_dir_all(folder.join("trace")).expect("a folder");
        let used = || home(&folder).allocator.bytes_in_use();
        let before = used();
        assert!(recover(Gone::Discard).is_empty());
        assert_eq!(used(), before, "a claimer may write there");
        control.owner.store(0, Ordering::Relaxed);
        assert!(recover(Gone::Keep).is_empty());
        assert!(used() < before);
        assert_eq!(notices.all().len(), 2);
    }
}
