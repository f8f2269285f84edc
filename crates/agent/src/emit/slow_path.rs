//! The slow path: a first event, a new generation, a full sub-buffer, a stale clock, a thread that
//! cannot use restartable sequences.
//!
//! All this code may also run in a signal handler that interrupted it. Each record that enters is
//! either committed or counted, unless the session is not for this process.

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use trackway_abi::record::ORDINARY_BYTES_MAX;
use trackway_abi::record::context::{APPLICATIONS, PROCNAME};
use trackway_abi::session::{SESSIONS_MAX, flag, state};
use trackway_ring::Discard;
use trackway_sys::Errno;
use trackway_window::{SessionLayout, Window};

use super::attempt::{RecordAttempt, count_discarded_record};
use super::enabled_sessions::EnabledSessions;
use super::prefilter;
use crate::abi::Event;
use crate::app_contexts;
use crate::contexts;
use crate::filters::{self, LinkRequest, PassedGeneration, SlowVerdict};
use crate::fork_child::ensure_stamp;
use crate::payload::StagedPayload;
use crate::state::process::PROCESS;
use crate::state::window_map::MappedWindow;
use crate::state::{event_archive, thread};

/// Maximum number of successors of replaced sessions that a record follows: the number of slots,
/// because a stopped thread may continue after any number of replacements.
const SUCCESSORS_MAX: usize = SESSIONS_MAX;

/// The next step of an emission after the slow path.
pub(crate) enum NextStep {
    /// Nothing is left to do in this session.
    Done,
    /// The enable word is not in the present window: nothing was done.
    Retarget,
}

/// Records in a session by any writer path, or counts the record as discarded. `enabled` has all
/// sessions of the emission; the caller makes one call for each session.
///
/// # Safety
/// The contract of [`crate::emit::fast_path::emit`] applies.
#[cold]
#[inline(never)]
pub(crate) unsafe fn record_event(
    session: usize,
    enabled: EnabledSessions,
    staged: StagedPayload,
    passed: PassedGeneration,
) -> NextStep {
    // If the process leaves that window from here on, every read there yields zero: no session.
    let Some((mapped, event)) = MappedWindow::find_by_word(enabled.word) else {
        return NextStep::Retarget;
    };
    if !PROCESS.is_in(mapped) {
        return NextStep::Retarget;
    }
    // A fork child's first event may fail to open files in /proc, and change errno.
    let errno = Errno::last();
    let (mut slot, mut passed) = (session, passed);
    for _ in 0..SUCCESSORS_MAX {
        // SAFETY: the caller upholds the same contract.
        if unsafe { record_in_session(slot, mapped, event, staged, passed) } {
            break;
        }
        let successor =
            mapped.window().and_then(|window| successor_of(&window, slot, event, enabled.bits));
        let Some(successor) = successor else { break };
        (slot, passed) = (successor, PassedGeneration::NONE);
    }
    errno.set();
    NextStep::Done
}

/// Returns the slot that takes a record for slot `of`, whose session is over: the next successor
/// that has the event enabled now. `None` if that successor is in `named`, where the emission
/// records anyway.
fn successor_of(window: &Window, of: usize, event: usize, named: u32) -> Option<usize> {
    let mut slot = of;
    for _ in 0..SUCCESSORS_MAX {
        slot = window.session(slot).successor.load(Ordering::Relaxed).checked_sub(1)? as usize;
        if slot >= SESSIONS_MAX || !have_same_trace(window, slot, of) {
            // No recorder wrote this successor; or a recorder was killed during the replacement,
            // and another session has the slot by now.
            return None;
        }
        let bit = 1 << slot;
        // ORDERING: Acquire pairs with the recorder that moved the bit: the id was stored before.
        if window.event(event).enabled.load(Ordering::Acquire) & bit != 0 {
            return (named & bit == 0).then_some(slot);
        }
    }
    None
}

/// Returns true if two slots are channels of one session.
fn have_same_trace(window: &Window, one: usize, other: usize) -> bool {
    let uuid = |slot: usize| {
        window.session(slot).trace_uuid.each_ref().map(|half| half.load(Ordering::Relaxed))
    };
    uuid(one) == uuid(other)
}

/// Points an event, whose word is in a window that the process has left, at its word in the present
/// window. Returns the new word with its session bits. `None`: the event is not recorded there,
/// because the process is in no window, or `session` is not the lowest bit of an abandoned word.
///
/// # Safety
/// The event is registered; its word was `word`.
#[cold]
#[inline(never)]
pub(crate) unsafe fn retarget_event(
    session: usize,
    event: *mut Event,
    word: *const AtomicU32,
) -> Option<EnabledSessions> {
    // An emission that has recorded in lower sessions of the window that the process has just left
    // is complete.
    if session != event_archive::RETARGET.trailing_zeros() as usize {
        return None;
    }
    let found = event_archive::current_word(word)?;
    // SAFETY: the caller's event, as in `emit`.
    let place =
        unsafe { AtomicPtr::from_ptr((&raw mut (*event).enabled).cast::<*mut AtomicU32>()) };
    let target = core::ptr::from_ref(found).cast_mut();
    // Replaces only the word that was looked up: another thread may have retargeted the event to a
    // later window.
    // ORDERING: SeqCst, as in `register_event`.
    let _ = place.compare_exchange(word.cast_mut(), target, Ordering::SeqCst, Ordering::Relaxed);
    Some(EnabledSessions { word: found, bits: found.load(Ordering::Relaxed) })
}

/// Records in one session. Returns false, without any effect, if that session is over.
///
/// # Safety
/// The contract of [`crate::emit::fast_path::emit`] applies.
// Longer than 70 lines: one attempt after the other, each with the state of the last.
unsafe fn record_in_session(
    index: usize,
    mapped: &'static MappedWindow,
    event: usize,
    staged: StagedPayload,
    mut passed: PassedGeneration,
) -> bool {
    let Some(window) = &mapped.window() else { return true };
    let stamp = ensure_stamp();
    let session = window.session(index);
    // ORDERING: Acquire pairs with the recorder's Release of a generation.
    let generation = session.generation.load(Ordering::Acquire);
    let is_over = || session.state.load(Ordering::Relaxed) != state::ACTIVE;
    if PROCESS.decisions[index].participation(window, generation) == Some(false) {
        return !is_over();
    }
    // A generation may change between decision and commit; more than a few changes in a row mean a
    // broken recorder.
    const DECISIONS_MAX: usize = 64;
    let mut layout = None;
    let mut budget = None;
    for _ in 0..DECISIONS_MAX {
        let Some(decided) = prefilter::decide_participation(mapped, index) else {
            // ORDERING: Acquire pairs with the recorder's Release of a generation.
            let generation = session.generation.load(Ordering::Acquire);
            let known = PROCESS.decisions[index].participation(window, generation);
            if known == Some(false) || is_over() {
                return !is_over();
            }
            continue; // the generation was raised in between
        };
        let layout: &SessionLayout = layout.insert(decided);
        let thread = thread::identify_thread(stamp, layout.contexts & PROCNAME != 0);
        // ORDERING: Acquire pairs with the Release in `enable_if_selected`.
        let Some(id) = layout.id(window, event).load(Ordering::Acquire).checked_sub(1) else {
            return true;
        };
        if layout.flags & flag::FILTERED != 0 && !passed.is(layout.generation) {
            let request =
                LinkRequest { mapped, session: index, generation: layout.generation, event, stamp };
            // SAFETY: the caller's payload.
            match unsafe { filters::judge_slowly(&request, staged) } {
                // Filters run once for a generation, because stateful filters count events.
                SlowVerdict::Passes => passed = PassedGeneration::new(layout.generation),
                SlowVerdict::Fails => return true,
                SlowVerdict::Discarded => break,
                SlowVerdict::Stale => continue,
            }
        }
        let mut is_cut = staged.is_cut();
        let mut applied_bytes = 0;
        if layout.contexts & APPLICATIONS != 0 {
            // SAFETY: the payload's headroom is ours.
            let Some((bytes, is_value_cut)) =
                (unsafe { write_app_contexts(window, layout, staged) })
            else {
                continue;
            };
            (applied_bytes, is_cut) = (bytes, is_cut || is_value_cut);
        }
        let pid = PROCESS.pid_for(&thread);
        // SAFETY: the payload's headroom is ours; the name has as many bytes.
        let context_bytes = applied_bytes
            + unsafe {
                let end = staged.start.wrapping_sub(applied_bytes);
                contexts::write_contexts(
                    end,
                    layout.contexts,
                    pid,
                    thread.tid,
                    thread.name.as_ptr(),
                )
            };
        let attempt = RecordAttempt {
            mapped,
            window,
            layout,
            event,
            id,
            thread: &thread,
            stamp,
            body: staged.start.wrapping_sub(context_bytes),
            body_bytes: context_bytes + staged.size(),
            is_cut,
        };
        if attempt.commit_or_count(&mut budget) {
            return true;
        }
    }
    if let Some(layout) = &layout {
        count_discarded_record(
            window,
            layout,
            event,
            trackway_sys::thread::current_cpu(),
            Discard::Other,
        );
    }
    true
}

/// Writes application contexts before the payload. Returns their size in bytes, and true if a value
/// was cut. `None` if the session has changed.
///
/// # Safety
/// The payload's headroom is the caller's.
#[inline(never)] // keeps its frame off the stack of sessions without them
unsafe fn write_app_contexts(
    window: &Window,
    layout: &SessionLayout,
    staged: StagedPayload,
) -> Option<(usize, bool)> {
    let wanted = app_contexts::read_session_list(window, layout.index, layout.generation)?;
    // SAFETY: the caller upholds the contract.
    let (bytes, is_cut) = unsafe { wanted.write(staged.start, true) };
    if bytes + ORDINARY_BYTES_MAX + staged.size() <= layout.geometry.record_bytes_max() {
        return Some((bytes, is_cut));
    }
    // The longest payloads leave no bytes for values.
    // SAFETY: the payload's headroom is the caller's.
    let (bytes, is_cut_too) = unsafe { wanted.write(staged.start, false) };
    Some((bytes, is_cut || is_cut_too))
}
