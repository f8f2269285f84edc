//! The recording path: from a staged payload to a committed record.
//!
//! Everything that happens for an ordinary record is here and inlined into one function, without a
//! loop, for events that one session wants, and into a second one for the others; see the first's
//! assembly (`make asm`) whenever this file or the ring's planning changes. Whatever is not
//! ordinary is handed to [`crate::emit::slow_path`], which starts again from the payload.

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use trackway_abi::record::context::{APPLICATIONS, PROCNAME};
use trackway_abi::record::{EXTENDED_BYTES, TAILROOM_BYTES};
use trackway_abi::session::SESSIONS_MAX;
use trackway_abi::window::EVENTS_MAX;
use trackway_ring::rseq::{Area, Bytes, Gate, commit};
use trackway_ring::{Geometry, write_header};
use trackway_window::{CPU_STRIDE, Window, ids_before, region_at};

use crate::abi::{EmitFn, Event};
use crate::app_contexts::Wanted;
use crate::emit::contexts;
use crate::emit::prefilter::Asked;
use crate::emit::slow_path;
use crate::emit::timestamp;
use crate::filters::single_sequence::{self, AtOnce, Emitted};
use crate::filters::{self, Judgement, NOT_JUDGED};
use crate::state::process::PROCESS;
use crate::state::session_cache::CPUS_AT;
use crate::state::thread;
use crate::state::window_map::{clock_of, generation_of};

/// Records `event` with its staged payload in every session that has it enabled:
/// `trackway_abi_emit_fn` of include/trackway/abi/abi.h, which states the contract.
///
/// Any thread, any signal handler; never blocks or allocates; errno is unchanged (the only calls
/// out are gettid, getpid and prctl, which cannot fail here). A `size` with [`CUT`] set is too
/// large for the path here: such records, which are rare, are counted in
/// [`crate::emit::slow_path`].
///
/// [`CUT`]: trackway_abi::record::CUT
///
/// # Safety
/// As the C declaration says: `event` is registered, and `payload` has `size` bytes with headroom
/// before and tailroom behind.
pub unsafe extern "C" fn emit(event: *mut Event, payload: *mut u8, size: usize) {
    // SAFETY: the caller's event and payload.
    unsafe {
        let (enabled, sessions) = aim_of(event);
        // A power of two, in the fewest instructions.
        let is_one = sessions != 0 && sessions & (sessions - 1) == 0;
        if is_one
            && try_record::<PLAIN>(sessions.trailing_zeros() as usize, enabled, payload, size, 0)
        {
            return;
        }
        // Nothing has been done: from the beginning. So nothing is kept above but the arguments.
        emit_in_each(event, payload, size);
    }
}

/// The event's enable word and what it holds. The word says which window and which event: its
/// address is all that is taken from there on, because the process may become another user's
/// meanwhile (see `privileges`).
///
/// # Safety
/// The event is registered.
#[inline(always)]
pub(crate) unsafe fn aim_of(event: *mut Event) -> (*mut AtomicU32, u32) {
    // SAFETY: the caller's event; `enabled` is replaced by `register` while sites may read it.
    let enabled = unsafe { AtomicPtr::from_ptr((&raw mut (*event).enabled).cast()) };
    let enabled: *mut AtomicU32 = enabled.load(Ordering::Relaxed);
    // SAFETY: the word is in a window or in the event itself.
    (enabled, unsafe { (*enabled).load(Ordering::Relaxed) })
}

/// As [`emit`], of an event that one session wants, with a filter that [`single_sequence`] is for.
/// Either function records any event in any case: which one a site calls is a hint, because what
/// only recording needs is looked at first there, and last here.
///
/// # Safety
/// As [`emit`].
pub(crate) unsafe extern "C" fn emit_filtered(event: *mut Event, payload: *mut u8, size: usize) {
    // SAFETY: the caller's event and payload.
    unsafe {
        let (enabled, sessions) = aim_of(event);
        let mut emitted = Emitted { event, payload, size };
        if sessions.is_power_of_two() {
            let (says, same) =
                single_sequence::judge(sessions.trailing_zeros() as usize, enabled, emitted);
            emitted = same;
            match says {
                AtOnce::Fails => return,
                AtOnce::Passes(number) => {
                    return emit_judged(emitted.event, emitted.payload, emitted.size, number);
                }
                AtOnce::Unknown => {}
                AtOnce::NotHere => say_filtered(emitted.event, false),
            }
        }
        emit_in_each(emitted.event, emitted.payload, emitted.size);
    }
}

/// Says to the event's sites by which of the two functions it goes from now on. Others may say so
/// at the same time: it is a hint.
///
/// # Safety
/// The caller's event, or one that nobody else has.
#[inline(always)]
pub(crate) unsafe fn say_filtered(event: *mut Event, is_filtered: bool) {
    let emit: EmitFn = if is_filtered { emit_filtered } else { emit };
    // SAFETY: the caller's event; sites read the pointer while it is changed, and never find null
    // there any more.
    let place = unsafe { AtomicPtr::from_ptr((&raw mut (*event).emit).cast::<*mut ()>()) };
    place.store(emit as *mut (), Ordering::Relaxed);
}

/// As [`emit`], of an event that one session wants, whose filters have let it pass by the decision
/// of this number. (They have no state: where that is none any more, they are asked again.)
///
/// # Safety
/// As [`emit`].
#[inline(never)] // for the stack of those that are dropped
unsafe extern "C" fn emit_judged(event: *mut Event, payload: *mut u8, size: usize, number: u32) {
    // SAFETY: the caller's payload and event.
    unsafe {
        let (enabled, sessions) = aim_of(event);
        let session = sessions.trailing_zeros() as usize % SESSIONS_MAX;
        let judged = PROCESS.decisions[session].generation_of(number, enabled);
        let (true, Some(generation)) = (sessions.is_power_of_two(), judged) else {
            return emit_in_each(event, payload, size);
        };
        if let Some(judged) = try_judged(session, enabled, payload, size, generation) {
            let _ = finish(event, (sessions, enabled), session, (payload, size), judged);
        }
    }
}

/// As [`emit`], for any number of sessions, by whatever way.
///
/// # Safety
/// As [`emit`].
#[inline(never)]
unsafe extern "C" fn emit_in_each(event: *mut Event, payload: *mut u8, size: usize) {
    // SAFETY: the caller's promise is the same.
    unsafe { emit_by(event, payload, size, |_| None) }
}

/// As [`emit`], of an event that was asked about: where it passes is not asked again.
///
/// # Safety
/// As [`emit`].
pub(crate) unsafe fn emit_asked(event: *mut Event, payload: *mut u8, size: usize, asked: Asked) {
    let judged = |session| {
        let is_it = session == asked.session && asked.is_here();
        is_it.then_some(asked.generation)
    };
    // SAFETY: the caller's promise is the same.
    unsafe { emit_by(event, payload, size, judged) }
}

/// As [`emit`]. `judged`: in which generation of a session its filters have let the event pass
/// already.
///
/// # Safety
/// As [`emit`].
#[inline(always)] // each caller's code is its own
unsafe fn emit_by(
    event: *mut Event,
    payload: *mut u8,
    size: usize,
    judged: impl Fn(usize) -> Option<u64>,
) {
    // SAFETY: the caller's event.
    let (enabled, named) = unsafe { aim_of(event) };
    let mut sessions = named;
    while sessions != 0 {
        let session = sessions.trailing_zeros() as usize;
        sessions &= sessions - 1;
        let left = match judged(session) {
            // SAFETY: the caller's payload.
            None => unsafe { try_in(session, enabled, payload, size, event) },
            // SAFETY: likewise.
            Some(generation) => unsafe { try_judged(session, enabled, payload, size, generation) },
        };
        let Some(judged) = left else { continue };
        let word = (named, enabled.cast_const());
        // SAFETY: likewise; the event is the caller's.
        if !unsafe { finish(event, word, session, (payload, size), judged) } {
            return;
        }
    }
}

/// Does what is left to be done in a session, where the event's word is `word` and names so many;
/// false if there are no others.
///
/// # Safety
/// As [`emit`].
#[inline(always)] // each caller's code is its own
unsafe fn finish(
    event: *mut Event,
    (named, word): (u32, *const AtomicU32),
    session: usize,
    (payload, size): (*mut u8, usize),
    judged: u64,
) -> bool {
    // SAFETY: the caller's payload.
    let is_done = unsafe { slow_path::record(session, (named, word), payload, size, judged) };
    if !is_done {
        // SAFETY: likewise; the event is the caller's.
        unsafe { slow_path::follow(session, event, word, payload, size) };
    }
    is_done
}

/// Records in one session, with filters or without, if nothing is out of the ordinary and they say
/// so. What is left to be done is [`slow_path`]'s; then the generation in which filters have let
/// the event pass already, or [`NOT_JUDGED`].
///
/// # Safety
/// As [`emit`].
#[inline(never)] // for the stack of what is left to be done
unsafe fn try_in(
    session: usize,
    enabled: *const AtomicU32,
    payload: *mut u8,
    size: usize,
    event: *mut Event,
) -> Option<u64> {
    // Of an older decision: then both ways end in `slow`.
    if PROCESS.decisions[session].links.load(Ordering::Relaxed) != 0 {
        // SAFETY: the caller's payload.
        return unsafe { try_filtered(session, enabled, payload, size, event) };
    }
    // SAFETY: likewise.
    if unsafe { try_record::<PLAIN>(session, enabled, payload, size, 0) } {
        return None;
    }
    // SAFETY: likewise.
    unsafe { try_with_applications(session, enabled, payload, size, NOT_JUDGED) }
}

/// As [`try_in`], in a session that records contexts of applications; in others it does nothing.
/// `judged`: the generation in which filters have let the event pass, if there are some.
///
/// # Safety
/// As [`emit`].
#[inline(never)] // for the stack of those that have none
unsafe fn try_with_applications(
    session: usize,
    enabled: *const AtomicU32,
    payload: *mut u8,
    size: usize,
    judged: u64,
) -> Option<u64> {
    let contexts = PROCESS.decisions[session].contexts.load(Ordering::Relaxed);
    // SAFETY: the caller's payload.
    let done = contexts & APPLICATIONS != 0
        && unsafe { try_record::<APPLIED>(session, enabled, payload, size, judged) };
    (!done).then_some(judged)
}

/// As [`try_in`], in a session with filters.
///
/// # Safety
/// As [`emit`].
#[inline(never)] // for the stack of those that have none
unsafe fn try_filtered(
    session: usize,
    enabled: *const AtomicU32,
    payload: *mut u8,
    size: usize,
    event: *mut Event,
) -> Option<u64> {
    // SAFETY: the caller's event.
    let note_quick = move || unsafe { say_filtered(event, true) };
    // SAFETY: the caller's payload.
    match unsafe { filters::judge(session, enabled, payload, size, note_quick) } {
        Judgement::Fails => None,
        Judgement::Unknown => Some(NOT_JUDGED),
        // SAFETY: likewise.
        Judgement::Passes(generation) => unsafe {
            try_judged(session, enabled, payload, size, generation)
        },
    }
}

/// As [`try_in`], where filters have let the event pass in this generation.
///
/// # Safety
/// As [`emit`].
#[inline(always)] // each caller's code is its own
unsafe fn try_judged(
    session: usize,
    enabled: *const AtomicU32,
    payload: *mut u8,
    size: usize,
    generation: u64,
) -> Option<u64> {
    // SAFETY: the caller's payload.
    if unsafe { try_record::<FILTERED>(session, enabled, payload, size, generation) } {
        return None;
    }
    // SAFETY: likewise.
    unsafe { try_with_applications(session, enabled, payload, size, generation) }
}

/// A road of [`try_record`]: the session has neither filters nor contexts of applications.
const PLAIN: u8 = 0;
/// It has filters, which have let the event pass in the generation `judged`.
const FILTERED: u8 = 1;
/// It has contexts of applications; and filters as above, or none.
const APPLIED: u8 = 2;

/// Records in one session if nothing is out of the ordinary, and the session is one for this road;
/// else has no effect and returns false.
///
/// # Safety
/// As [`emit`].
#[inline(always)]
unsafe fn try_record<const ROAD: u8>(
    session: usize,
    enabled: *const AtomicU32,
    payload: *mut u8,
    size: usize,
    judged: u64,
) -> bool {
    let process = &PROCESS;
    let thread = thread::current();
    // SAFETY: the line is the calling thread's. Its stamp is zero until it was filled in.
    let (thread_stamp, tid, name) =
        unsafe { ((*thread).stamp, (*thread).tid, (&raw const (*thread).name).cast()) };
    if thread_stamp != process.stamp() || thread_stamp == 0 {
        return false;
    }
    let decision = &process.decisions[session];
    // ORDERING: Acquire pairs with the Release in `Decision::publish`.
    let sequence = decision.sequence.load(Ordering::Acquire);
    let area = trackway_sys::thread::rseq_area();
    if area.is_null() {
        return false;
    }
    // SAFETY: glibc registered this thread's area; a vfork child, which has none, has no stamp.
    let area = unsafe { Area::new(area) };
    let Some(cpu) = area.cpu() else { return false };
    let cpus = match ROAD {
        PLAIN => decision.cpus.load(Ordering::Relaxed),
        FILTERED => decision.filtered_cpus.load(Ordering::Relaxed).into(),
        _ => decision.contexts.load(Ordering::Relaxed) >> CPUS_AT,
    };
    if cpu >= cpus {
        return false;
    }
    let geometry = Geometry::from_word(decision.geometry.load(Ordering::Relaxed));
    let controls = decision.controls.load(Ordering::Relaxed);
    let base = decision.base.load(Ordering::Relaxed);
    let expected = decision.generation.load(Ordering::Relaxed);
    if ROAD == FILTERED && expected != judged {
        return false;
    }
    if ROAD == APPLIED && decision.links.load(Ordering::Relaxed) != 0 && expected != judged {
        return false;
    }
    let gate = Gate { generation: generation_of(base, session), expected };
    let wanted = if ROAD == APPLIED { Wanted::known(session, expected) } else { None };
    let usable = decision.usable.load(Ordering::Relaxed);
    let contexts = decision.contexts.load(Ordering::Relaxed);
    if !decision.unchanged_since(sequence) {
        return false;
    }
    // SAFETY: the line is the calling thread's.
    if contexts & PROCNAME != 0 && unsafe { (*thread).name_stamp } != thread_stamp {
        return false;
    }
    let event = Window::event_at(base, enabled);
    if event >= EVENTS_MAX {
        return false; // the decision is about another window
    }
    // ORDERING: the fence in `unchanged_since` above keeps the id behind the enable word, whose bit
    // is set after the id was stored (`enable_if_selected`).
    // SAFETY: the decision is whole (just checked), so its addresses are those of a layout that
    // was checked; the CPU and the event's number are within it.
    let (region, id) = unsafe {
        let region = region_at(controls.add(cpu as usize * CPU_STRIDE), geometry);
        (region, (*ids_before(controls).add(event)).load(Ordering::Relaxed))
    };
    let Some(id) = id.checked_sub(1) else { return false };
    let mut applied_bytes = 0;
    if ROAD == APPLIED {
        let Some(wanted) = wanted else { return false };
        // SAFETY: the payload's headroom is ours.
        let (bytes, is_cut) = unsafe { wanted.write(payload, true) };
        if is_cut {
            return false; // to be counted
        }
        applied_bytes = bytes;
    }
    // SAFETY: the payload's headroom is ours; a thread's name has as many bytes.
    let context_bytes = applied_bytes
        + unsafe {
            let end = payload.wrapping_sub(applied_bytes);
            contexts::write(end, contexts, process.pid.load(Ordering::Relaxed), tid, name)
        };
    let body_bytes = context_bytes + size;
    if body_bytes + EXTENDED_BYTES > geometry.record_bytes_max() {
        return false;
    }
    let body = payload.wrapping_sub(context_bytes);
    let expected = region.expected();
    // SAFETY: a decision for a CPU names a window, mapped for good; the index is below 32.
    let clock = unsafe { clock_of(base, session) };
    let Some(now) = timestamp::from_line(clock) else { return false };
    let Ok((plan, header_bytes)) = region.plan_record(expected, now, id, body_bytes) else {
        return false;
    };
    let count = header_bytes + body_bytes;
    if plan.at + (count + TAILROOM_BYTES) as u64 > usable {
        return false;
    }
    // SAFETY: the header goes into the headroom before the contexts.
    unsafe { write_header(body, id, plan.timestamp, header_bytes) };
    let bytes = Bytes {
        target: base.wrapping_add(plan.at as usize),
        source: body.wrapping_sub(header_bytes),
        count,
    };
    // SAFETY: source and target were bounded above, with room for whole words behind both; the
    // generation is in the window's fixed part.
    unsafe { commit(area, cpu, &gate, region, &plan, bytes) }
}
