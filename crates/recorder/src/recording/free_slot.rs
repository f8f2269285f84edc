//! A free slot of the window for a new channel. If all slots are taken, frees one of a dead
//! recorder.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use trackway_abi::session::{SESSIONS_MAX, state};

use crate::error::RecordError;
use crate::recording::abandoned_channel::{AbandonedChannel, Stranded};
use crate::window::given_up::GivenUpRecording;
use crate::window::handle::WindowHandle;
use crate::window::lease;
use crate::window::shared_text::uuid_of;
use crate::window::slot::{self, Slot};

/// Longest wait of a new recording for a slot while others are about to end.
const ENDING_PATIENCE: Duration = Duration::from_secs(2);
/// Period between two checks for a free slot.
const ENDING_PERIOD: Duration = Duration::from_millis(5);

/// Takes a free slot of the window. If there is none, gives up the oldest recording of a dead
/// recorder; [`report_given_up`](crate::window::given_up::report_given_up) reports it later.
/// Recordings of the window's user go before parts of sessions over several users, whose records
/// belong to the recorder's user. In another user's window, gives up no recording.
///
/// # Errors
///
/// [`RecordError::NoSlot`] if live recorders hold all slots.
pub(crate) fn take_slot(handle: &WindowHandle) -> Result<Slot, RecordError> {
    let begun = Instant::now();
    loop {
        match Slot::take(handle) {
            Err(RecordError::NoSlot) if handle.uid() == crate::common::user::effective_uid() => {}
            other => return other,
        }
        let is_given_up = match find_oldest_dead(handle) {
            Some((uuid, recording)) => {
                let is_given_up = give_up_recording(handle, uuid)?;
                handle.given_up.borrow_mut().extend(recording.filter(|_| is_given_up));
                is_given_up
            }
            None => false,
        };
        if !is_given_up {
            // Another command may hold all slots for a moment while it examines dead recorders'
            // sessions.
            if !has_ending_session(handle) || begun.elapsed() >= ENDING_PATIENCE {
                return Err(RecordError::NoSlot);
            }
            std::thread::sleep(ENDING_PERIOD);
        }
    }
}

/// Returns true if a session is ending or under recovery: soon its slot is free, or its recorder
/// counts as dead again.
fn has_ending_session(handle: &WindowHandle) -> bool {
    let state = |index| handle.window().session(index).state.load(Ordering::Relaxed);
    (0..SESSIONS_MAX).any(|index| matches!(state(index), state::ENDING | state::FREE))
}

/// Returns the identity and the recording of the dead recorder that began first, preferably one of
/// the window's user. A complete recording need not be given up, but its slot can be freed.
fn find_oldest_dead(handle: &WindowHandle) -> Option<([u8; 16], Option<GivenUpRecording>)> {
    let sessions = (0..SESSIONS_MAX).map(|index| handle.window().session(index));
    let dead = sessions.filter(|session| {
        session.state.load(Ordering::Relaxed) != state::FREE && lease::recorder_is_dead(session)
    });
    let oldest = dead.min_by_key(|session| {
        let is_part = matches!(GivenUpRecording::of(session), GivenUpRecording::Part(_));
        let since_ns = session.recorder_since_ns.load(Ordering::Relaxed);
        (slot::is_complete(session), is_part, since_ns)
    })?;
    let recording = (!slot::is_complete(oldest)).then(|| GivenUpRecording::of(oldest));
    Some((uuid_of(oldest), recording))
}

/// Gives up the channels of a recording whose recorder is dead. Returns true if this process gave
/// up any channel: if two processes do so at once, only one takes over each slot.
fn give_up_recording(handle: &WindowHandle, uuid: [u8; 16]) -> Result<bool, RecordError> {
    let mut is_given_up = false;
    for index in 0..SESSIONS_MAX {
        if uuid_of(handle.window().session(index)) != uuid {
            continue;
        }
        let Some(slot) = Slot::take_over(handle, index)? else { continue };
        if let Some(left) = AbandonedChannel::of(handle, slot, Stranded::Discard)? {
            left.discard(handle)?;
        }
        let state = handle.window().session(index).state.load(Ordering::Relaxed);
        is_given_up |= state == state::FREE;
    }
    Ok(is_given_up)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use trackway_testkit::TemporaryFolder;

    use super::*;
    use crate::notices::Notices;
    use crate::recording::{Recording, TraceLocation};
    use crate::trace::layout::WindowFolder;
    use crate::window::given_up;
    use crate::window::settings::{ChannelSettings, SessionSettings};

    /// Leaves a dead recording with its trace in `folder`/`trace`. A part of a session over several
    /// users, here of user 65531, stores no path in the window.
    fn leave_dead_recording(folder: &TemporaryFolder, number: u8, trace: &str, is_part: bool) {
        let handle = WindowHandle::open_in(folder.path(), true).expect("a window");
        let path = folder.join(trace);
        std::fs::create_dir(&path).expect("a folder");
        let place = TraceLocation {
            root: std::sync::Arc::new(
                crate::trace::folder::TraceFolder::open(&path).expect("a folder"),
            ),
            folder: WindowFolder::own(),
            realtime_offset_ns: None,
        };
        let path = if is_part { PathBuf::new() } else { path };
        let session =
            SessionSettings { name: String::new(), token: None, uuid: [number; 16], path };
        let channels = [(ChannelSettings { starts_small: true, ..ChannelSettings::default() }, 0)];
        let built = Recording::build_part(handle, &session, &place, &channels);
        let recording = built.expect("a recording");
        if is_part {
            recording.channels[0].session().uid.store(65_531, Ordering::Relaxed);
        }
        recording.channels.iter().for_each(|channel| channel.slot.abandon());
    }

    #[test]
    fn own_recordings_are_given_up_before_parts_of_sessions_over_several_users() {
        let folder = TemporaryFolder::new_in(Path::new("/dev/shm"));
        for number in 0..SESSIONS_MAX {
            leave_dead_recording(
                &folder,
                number as u8 + 1,
                &format!("trace-{number}"),
                number != 2,
            );
        }
        let handle = WindowHandle::open_in(folder.path(), true).expect("a window");
        let taken = || {
            // The slot stays taken: its recorder is this process.
            take_slot(&handle).expect("a slot");
            let notices = Notices::in_memory();
            given_up::report_given_up(&handle, &notices);
            notices.lines()
        };
        let own = folder.join("trace-2");
        let all = format!("all {SESSIONS_MAX} places were taken");
        let first = format!("gave up the unfinished recording of {}: {all}", own.display());
        assert_eq!(taken(), [first], "it is not the oldest");
        let part = "gave up this user's part of an unfinished session over several users, \
                    recorded by user 65531";
        assert_eq!(taken(), [format!("{part}: {all}")]);
    }
}
