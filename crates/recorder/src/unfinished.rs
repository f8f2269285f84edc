//! What recordings of before left, whose recorders were killed: looked at before a new one begins.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use trackway_abi::session::{SESSIONS_MAX, state};

use crate::recover::{Left, Stranded, recover_in_passing, uuid_of};
use crate::report::Notices;
use crate::slot::{self, Slot};
use crate::{Home, RecordError};

/// How long a new recording waits for a place where others are about to end.
const ENDING_PATIENCE: Duration = Duration::from_secs(2);
/// How often it looks.
const ENDING_PERIOD: Duration = Duration::from_millis(5);

/// Completes what can be completed where it was recorded, saying so, and says in one line how much
/// there is besides.
pub(crate) fn settle(notices: &Notices) {
    match recover_in_passing(notices) {
        Ok(recovered) => {
            let (done, left): (Vec<_>, Vec<_>) =
                recovered.into_iter().partition(|one| one.result.is_ok());
            for one in done {
                notices.say(format_args!(
                    "recovered {}, whose recorder was killed",
                    one.folder.display()
                ));
            }
            match left.len() {
                0 => {}
                1 => notices.say(format_args!("1 unfinished recording: trackway recover")),
                many => notices.say(format_args!("{many} unfinished recordings: trackway recover")),
            }
        }
        Err(error) => notices.say(format_args!("cannot recover earlier recordings: {error}")),
    }
}

/// Takes a free slot of the window; where there is none, gives up the recording of a dead recorder,
/// the oldest first, for which [`tell_given_up`] has words later. Not in another user's window:
/// what is there is that user's.
///
/// # Errors
///
/// [`RecordError::NoSlot`] if all are taken by recorders that live.
pub(crate) fn take_slot(home: &Home) -> Result<Slot, RecordError> {
    let begun = Instant::now();
    loop {
        match Slot::take(home) {
            Err(RecordError::NoSlot) if home.uid() == crate::home::user() => {}
            other => return other,
        }
        let is_given_up = match oldest_dead(home) {
            Some((uuid, folder)) => {
                let is_given_up = give_up(home, uuid)?;
                home.given_up.borrow_mut().extend(is_given_up.then_some(folder));
                is_given_up
            }
            None => false,
        };
        if !is_given_up {
            // Another command may look at what is left just now: it holds all of it for a moment.
            if !is_ending(home) || begun.elapsed() >= ENDING_PATIENCE {
                return Err(RecordError::NoSlot);
            }
            std::thread::sleep(ENDING_PERIOD);
        }
    }
}

/// Whether a session ends, or is looked at by who recovers: a slot is about to be free, or its
/// recorder's death about to show again.
fn is_ending(home: &Home) -> bool {
    let state = |index| home.window().session(index).state.load(Ordering::Relaxed);
    (0..SESSIONS_MAX).any(|index| matches!(state(index), state::ENDING | state::FREE))
}

/// Says which recordings had to go for a new one.
pub(crate) fn tell_given_up(home: &Home, notices: &Notices) {
    for folder in home.given_up.take() {
        notices.say(format_args!(
            "gave up the unfinished recording of {}: all {SESSIONS_MAX} places were taken",
            folder.display()
        ));
    }
}

/// The recording whose dead recorder began first: its identity, and its trace's folder.
fn oldest_dead(home: &Home) -> Option<([u8; 16], PathBuf)> {
    let sessions = (0..SESSIONS_MAX).map(|index| home.window().session(index));
    let dead = sessions.filter(|session| {
        session.state.load(Ordering::Relaxed) != state::FREE && slot::recorder_is_dead(session)
    });
    let oldest = dead.min_by_key(|session| session.recorder_since_ns.load(Ordering::Relaxed))?;
    Some((uuid_of(oldest), slot::path_of(oldest)))
}

/// Gives up the channels of a recording, as far as its recorder is dead. Whether any was given up
/// by this process: two that do this at once take each place over once.
fn give_up(home: &Home, uuid: [u8; 16]) -> Result<bool, RecordError> {
    let mut is_given_up = false;
    for index in 0..SESSIONS_MAX {
        if uuid_of(home.window().session(index)) != uuid {
            continue;
        }
        let Some(slot) = Slot::take_over(home, index)? else { continue };
        if let Some(left) = Left::of(home, slot, Stranded::Discard)? {
            left.discard(home)?;
        }
        let state = home.window().session(index).state.load(Ordering::Relaxed);
        is_given_up |= state == state::FREE;
    }
    Ok(is_given_up)
}
