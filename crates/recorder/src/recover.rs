//! What dead recorders left: their traces completed, their slots freed.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use trackway_abi::session::{SESSIONS_MAX, state};
use trackway_window::{OpenError, SessionLayout};

use crate::recording::Recording;
use crate::report::Notices;
use crate::slot::{self, Slot};
use crate::stream::Stream;
use crate::trace::Trace;
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

/// Completes the traces of recorders that are dead and frees their slots: all of this user's, or
/// only the one in `only`.
pub fn recover(notices: &Notices, only: Option<&Path>) -> Result<Vec<Recovered>, RecordError> {
    recover_in(&crate::home::folder(), notices, only)
}

/// As [`recover`], in the window in `folder`.
pub fn recover_in(
    folder: &Path,
    notices: &Notices,
    only: Option<&Path>,
) -> Result<Vec<Recovered>, RecordError> {
    let only = only.and_then(|path| std::path::absolute(path).ok());
    let mut recovered = Vec::new();
    let open = || match Home::open_in(folder, false) {
        Err(RecordError::Window(_, OpenError::Absent)) => Ok(None),
        other => other.map(Some),
    };
    let Some(home) = open()? else { return Ok(recovered) };
    for index in 0..SESSIONS_MAX {
        let session = home.window().session(index);
        if session.state.load(Ordering::Relaxed) == state::FREE
            || only.as_ref().is_some_and(|path| *path != slot::path_of(session))
        {
            continue;
        }
        if let Some(slot) = Slot::take_over(&home, index) {
            // An open file of its own, because it is kept with the session's parts.
            let Some(home) = open()? else { return Ok(recovered) };
            recovered.extend(recover_one(home, slot, notices));
        }
    }
    Ok(recovered)
}

fn recover_one(home: Home, slot: Slot, notices: &Notices) -> Option<Recovered> {
    let session = slot.session();
    let folder = slot::path_of(session);
    let state = session.state.load(Ordering::Relaxed);
    let layout = SessionLayout::read(home.window(), slot.index);
    let uid = crate::home::user();
    let mut uuid = [0; 16];
    for (bytes, half) in uuid.chunks_exact_mut(8).zip(&session.trace_uuid) {
        bytes.copy_from_slice(&half.load(Ordering::Relaxed).to_le_bytes());
    }
    let parts = layout
        .and_then(|layout| Trace::reopen(&folder, uid, uuid).ok().map(|trace| (layout, trace)));
    let Some((layout, trace)) = parts else {
        // It was never let in to, or its folder is gone: nothing can be completed.
        let no_writer = slot.deactivate();
        if let Err(error) = slot.free(&home, no_writer) {
            return Some(Recovered { folder, result: Err(error) });
        }
        if state != state::BUILDING {
            notices.say(format_args!("the trace {} is gone: nothing recovered", folder.display()));
        }
        return None;
    };
    let mut recording = Recording::assemble(home, slot, layout, trace, false);
    recording.reopen_streams();
    let result = recording.finish(&|| false);
    Some(Recovered { folder, result })
}

impl Recording {
    /// Goes on where the progress in the window says that the dead recorder was.
    fn reopen_streams(&mut self) {
        for work in &mut self.regions {
            let drained = work.region.0.control.drained();
            work.drained = drained;
            if drained.file_bytes == 0 && drained.packets == 0 {
                continue;
            }
            let id = work.stream_id(self.trace.uuid);
            match Stream::reopen(&self.trace.channel, &work.name(), id, &drained) {
                Ok(stream) => work.stream = Some(stream),
                // Somebody removed or cut the file, or wrote over the progress.
                Err(_) => {
                    work.given_up = true;
                    work.damaged += 1;
                }
            }
        }
    }
}
