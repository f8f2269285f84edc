//! What dead recorders left: their traces completed, their slots freed.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use trackway_abi::session::{SESSIONS_MAX, Session, state};
use trackway_window::{OpenError, SessionLayout};

use crate::completion::{self, By};
use crate::metadata::Metadata;
use crate::recording::Recording;
use crate::report::Notices;
use crate::slot::{self, Slot};
use crate::stream::Stream;
use crate::trace::{self, CALIBRATIONS, FACTS, Trace, channel_of};
use crate::{Home, RecordError, Summary};

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
    recover_in(&crate::home::folder(), notices, only)
}

/// As [`recover`], in the window in `folder`.
pub fn recover_in(
    folder: &Path,
    notices: &Notices,
    only: Option<&Path>,
) -> Result<Vec<Recovered>, RecordError> {
    recover_as(folder, notices, only, Gone::Discard)
}

/// As [`recover`], for a command that the user gave for something else: nothing is discarded.
pub(crate) fn recover_in_passing(notices: &Notices) -> Result<Vec<Recovered>, RecordError> {
    recover_as(&crate::home::folder(), notices, None, Gone::Keep)
}

fn recover_as(
    folder: &Path,
    notices: &Notices,
    only: Option<&Path>,
    gone: Gone,
) -> Result<Vec<Recovered>, RecordError> {
    let only = only.map(Named::new);
    let (mut recovered, mut is_in_memory) = (Vec::new(), false);
    let open = || match Home::open_in(folder, false) {
        Err(RecordError::Window(_, OpenError::Absent)) => Ok(None),
        other => other.map(Some),
    };
    if let Some(home) = open()? {
        for index in 0..SESSIONS_MAX {
            let session = home.window().session(index);
            if session.state.load(Ordering::Relaxed) == state::FREE {
                continue;
            }
            let folder = match &only {
                Some(named) if !named.is_of(session)? => continue,
                Some(named) => named.path.clone(),
                None => slot::path_of(session),
            };
            is_in_memory = true;
            if let Some(slot) = Slot::take_over(&home, index)? {
                // An open file of its own, because it is kept with the session's parts.
                let Some(home) = open()? else { return Ok(recovered) };
                recovered.extend(recover_one(home, slot, folder, notices, gone));
            }
        }
    }
    if let Some(named) = only.filter(|_| !is_in_memory) {
        named.settle(notices)?;
    }
    Ok(recovered)
}

/// The trace that a user named.
struct Named {
    /// Absolute.
    path: PathBuf,
    /// Its identity, if it can be read.
    uuid: Option<[u8; 16]>,
}

impl Named {
    fn new(path: &Path) -> Self {
        let uuid = Metadata::uuid_in(&channel_of(path, crate::home::user()));
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        // Without a slash at the end, as `trace::prepare` makes it.
        Self { path: absolute.components().collect(), uuid }
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
        let there = channel_of(&place, crate::home::user());
        if !is_there && Metadata::uuid_in(&there) == Some(uuid) {
            return Err(RecordError::Copy(self.path.clone(), place));
        }
        Ok(true)
    }

    /// Marks the trace, of which nothing is in memory, if it was recorded here, is not complete,
    /// and nobody writes to it: it will not become more.
    ///
    /// # Errors
    ///
    /// If that cannot be known, as of a trace that is busy, cannot be opened or is not there.
    fn settle(&self, notices: &Notices) -> Result<(), RecordError> {
        let channel = channel_of(&self.path, crate::home::user());
        let facts = channel.join(FACTS);
        if let Err(error) = fs::metadata(facts.join(CALIBRATIONS)) {
            // Other tracers' traces, and those made of others, have nothing to recover.
            let is_other = error.kind() == ErrorKind::NotFound && !is_gone(&self.path);
            return if is_other { Ok(()) } else { Err(RecordError::io("open", &self.path)(error)) };
        }
        if completion::is_marked(&facts) {
            return Ok(());
        }
        if self.uuid.is_none() {
            // So it is not known what is in memory of it.
            let error = std::io::Error::new(ErrorKind::InvalidData, "it makes no sense");
            return Err(RecordError::Io("read", channel.join("metadata"), error));
        }
        let _lock = lock(&self.path)?;
        if completion::is_marked(&facts) {
            // Its recorder has just completed it.
            return Ok(());
        }
        completion::mark(&facts, By::Nobody).map_err(RecordError::io("write", facts))?;
        notices.say(format_args!(
            "nothing of {} is in memory any more: what is written is all there is",
            self.path.display()
        ));
        Ok(())
    }
}

/// Keeps recorders and others who recover away from the trace in `folder`, and lets readers see
/// that it is being written, until it is dropped.
fn lock(folder: &Path) -> Result<File, RecordError> {
    match trace::lock(folder) {
        Ok(Some(lock)) => Ok(lock),
        Ok(None) => Err(RecordError::io("open", folder)(ErrorKind::NotFound.into())),
        Err(RecordError::FolderBusy(folder)) => Err(RecordError::TraceBusy(folder)),
        Err(error) => Err(error),
    }
}

/// Identity of a session's trace.
fn uuid_of(session: &Session) -> [u8; 16] {
    let mut uuid = [0; 16];
    for (bytes, half) in uuid.chunks_exact_mut(8).zip(&session.trace_uuid) {
        bytes.copy_from_slice(&half.load(Ordering::Relaxed).to_le_bytes());
    }
    uuid
}

/// Completes the trace of a session, which is in `folder`.
fn recover_one(
    home: Home,
    slot: Slot,
    folder: PathBuf,
    notices: &Notices,
    gone: Gone,
) -> Option<Recovered> {
    let session = slot.session();
    let fail = |error| Some(Recovered { folder: folder.clone(), result: Err(error) });
    let state = session.state.load(Ordering::Relaxed);
    let layout = SessionLayout::read(home.window(), slot.index);
    let no_sequence = slot.deactivate();
    let Some(layout) = layout else {
        let was_let_in_to =
            state != state::BUILDING && session.control_offset.load(Ordering::Relaxed) != 0;
        // A process of little address space (RLIMIT_AS) does not see all.
        let window = home.window();
        let may_be_elsewhere =
            home.allocator.file().status().is_ok_and(|file| file.bytes > window.mapped_bytes());
        if was_let_in_to && !slot.is_complete && (gone == Gone::Keep || may_be_elsewhere) {
            slot.abandon();
            return fail(RecordError::Lost("its session in the window makes no sense"));
        }
        return slot.free(&home, no_sequence).err().and_then(|error| {
            slot.abandon_complete();
            fail(error)
        });
    };
    if slot.is_complete {
        return slot.discard(&home, &layout, no_sequence).err().and_then(fail);
    }
    let uid = crate::home::user();
    let opened =
        lock(&folder).and_then(|lock| Ok((lock, Trace::reopen(&folder, uid, uuid_of(session))?)));
    let (_lock, trace) = match opened {
        Ok(opened) => opened,
        Err(_) if gone == Gone::Discard && is_gone(&folder) => {
            notices.say(format_args!("the trace {} is gone: nothing recovered", folder.display()));
            return slot.discard(&home, &layout, no_sequence).err().and_then(fail);
        }
        Err(error) => {
            slot.abandon();
            // Which says so itself, and for how long.
            if !matches!(error, RecordError::OtherTrace(_)) {
                say_kept(notices, &folder);
            }
            return fail(error);
        }
    };
    let mut recording = Recording::assemble(home, slot, layout, trace, false);
    recording.is_recovery = true;
    if let Err(error) = recording.reopen_streams() {
        recording.slot.abandon();
        say_kept(notices, &folder);
        return fail(error);
    }
    let result = recording.finish(&|| false);
    Some(Recovered { folder, result })
}

fn is_same_folder(one: &Path, other: &Path) -> bool {
    let identity = |folder| fs::metadata(folder).map(|found| (found.dev(), found.ino())).ok();
    identity(one).is_some_and(|one| identity(other) == Some(one))
}

fn is_gone(folder: &Path) -> bool {
    let found = fs::symlink_metadata(folder);
    found.is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

fn say_kept(notices: &Notices, folder: &Path) {
    notices.say(format_args!(
        "events of {} stay in memory until the trace can be opened",
        folder.display()
    ));
}

impl Recording {
    /// Goes on where the progress in the window says that the dead recorder was.
    fn reopen_streams(&mut self) -> Result<(), RecordError> {
        let channel = &self.trace.channel;
        let folder = channel.now().map_err(RecordError::io("open", channel.path()))?;
        for work in &mut self.regions {
            let drained = work.region.0.control.drained();
            work.drained = drained;
            if drained.file_bytes == 0 && drained.packets == 0 {
                continue;
            }
            let id = work.stream_id(self.trace.uuid);
            match Stream::reopen(&folder, &work.name(), id, &drained) {
                Ok(stream) => work.stream = Some(stream),
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
    use trackway_session::{BufferOptions, Reserve};
    use trackway_testkit::TemporaryFolder;
    use trackway_window::{ProcessSlot, Way};

    use super::*;
    use crate::SessionSettings;

    fn home(folder: &TemporaryFolder) -> Home {
        Home::open_in(folder.path(), true).expect("a window")
    }

    /// A recording to `trace` in `folder`, whose window is there too.
    fn record(folder: &TemporaryFolder, uuid: u8) -> Recording {
        let buffers =
            BufferOptions { size_bytes: Some(64 << 10), sub_buffers: Some(4), overwrite: false };
        let settings = SessionSettings {
            buffers: buffers.plan().expect("sizes"),
            overwrite: false,
            reserve: Reserve::Rseq,
            contexts: 0,
            rules: "*".into(),
            token: None,
            uuid: [uuid; 16],
            path: folder.join("trace"),
        };
        let mut recording = Recording::build(home(folder), &settings).expect("a recording");
        recording.activate();
        recording
    }

    /// One whose recorder is dead.
    fn left(folder: &TemporaryFolder, uuid: u8) {
        record(folder, uuid).slot.abandon();
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
            let recovered = recover_as(folder.path(), &notices, None, gone).expect("a window");
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
        let slot = first.slot.index;
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
        let recover = |gone| recover_as(folder.path(), &notices, None, gone).expect("a window");
        assert!(recover(Gone::Keep)[0].result.is_err());
        assert!(notices.all()[0].contains("stay in memory"), "{:?}", notices.all());
        fs::rename(folder.join("disk"), folder.join("trace")).expect("a folder");
        assert!(recover(Gone::Keep)[0].result.is_ok());

        let recording = record(&folder, 7);
        recording.slot.abandon();
        let held = recording.regions.iter().find(|work| work.way != Way::Sequence).expect("one");
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
