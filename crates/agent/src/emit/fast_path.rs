//! The fast path: from a staged payload to a committed record.
//!
//! [`emit`] inlines everything that an ordinary record needs, without a loop, for events that one
//! session has enabled; another function does the same for events of several sessions. Check the
//! assembly of `emit` (`make asm`) after each change of this file or of the ring's planning. Every
//! other record goes to [`slow_path`], which starts again from the payload.

use core::sync::atomic::{AtomicPtr, Ordering};

use trackway_abi::record::context::{APPLICATIONS, PROCNAME};
use trackway_abi::record::{EXTENDED_BYTES, TAILROOM_BYTES};
use trackway_abi::session::SESSIONS_MAX;
use trackway_abi::window::EVENTS_MAX;
use trackway_ring::rseq::{Area, Bytes, Gate, commit};
use trackway_ring::{Geometry, write_header};
use trackway_window::{CPU_STRIDE, Window, ids_before, region_at};

use super::enabled_sessions::EnabledSessions;
use super::prefilter::PrefilterVerdict;
use super::{slow_path, timestamp};
use crate::abi::{EmitFn, Event};
use crate::app_contexts::SessionContexts;
use crate::contexts;
use crate::filters::single_sequence::{self, EmitArguments, QuickVerdict};
use crate::filters::{self, FilterVerdict, PassedGeneration};
use crate::payload::StagedPayload;
use crate::state::process::PROCESS;
use crate::state::session_cache::CPUS_AT;
use crate::state::thread;
use crate::state::window_map::{clock_of, generation_of};

/// The outcome of the fast path in one session.
enum Attempt {
    /// The record is committed, or filters rejected the event.
    Done,
    /// Nothing is committed: the slow path must record the event, which filters have passed in this
    /// generation.
    Left(PassedGeneration),
}

/// Records `event` with its staged payload in every session that has it enabled:
/// `trackway_abi_emit_fn` of include/trackway/abi/abi.h, which states the contract.
///
/// Runs in any thread and any signal handler; never blocks or allocates; errno is unchanged (the
/// only calls out are gettid, getpid and prctl, which cannot fail here). A `size` with [`CUT`] set
/// is too large for the fast path: such records, which are rare, are counted in [`slow_path`].
///
/// [`CUT`]: trackway_abi::record::CUT
///
/// # Safety
/// The C declaration states the contract: `event` is registered, and `payload` has `size` bytes
/// with headroom before and tailroom after.
pub unsafe extern "C" fn emit(event: *mut Event, payload: *mut u8, size: usize) {
    // SAFETY: the caller's event and payload.
    unsafe {
        let enabled = EnabledSessions::load(event);
        let staged = StagedPayload::new(payload, size);
        // Tests for a power of two, in the fewest instructions. In a method of `EnabledSessions`,
        // the compiler loses the fact that the word is not zero, which costs seven instructions.
        let bits = enabled.bits;
        let is_one = bits != 0 && bits & (bits - 1) == 0;
        if is_one
            && try_record::<{ Path::PLAIN }>(
                bits.trailing_zeros() as usize,
                enabled,
                staged,
                PassedGeneration::NONE,
            )
        {
            return;
        }
        // `try_record` had no effect, so this call starts again and keeps nothing but the
        // arguments.
        emit_in_all(event, payload, size);
    }
}

/// Records an event that one session has enabled with a filter that [`single_sequence`] can run.
/// [`emit`] and this function record any event correctly. The function that a site calls is a hint:
/// this one runs the filter first, and reads last everything that only recording needs.
///
/// # Safety
/// The contract of [`emit`] applies.
pub(crate) unsafe extern "C" fn emit_filtered(event: *mut Event, payload: *mut u8, size: usize) {
    // SAFETY: the caller's event and payload.
    unsafe {
        let enabled = EnabledSessions::load(event);
        let mut arguments = EmitArguments { event, payload: StagedPayload::new(payload, size) };
        if enabled.bits.is_power_of_two() {
            let (verdict, same) =
                single_sequence::judge_in_sequence(enabled.first(), enabled.word, arguments);
            arguments = same;
            let EmitArguments { event, payload } = arguments;
            match verdict {
                QuickVerdict::Fails => return,
                QuickVerdict::Passes(tag) => {
                    return emit_passed(event, payload.start, payload.size_and_flags, tag);
                }
                QuickVerdict::Unknown => {}
                QuickVerdict::Unsupported => set_emit_function(event, false),
            }
        }
        let EmitArguments { event, payload } = arguments;
        emit_in_all(event, payload.start, payload.size_and_flags);
    }
}

/// Sets the function that the event's sites call: [`emit_filtered`] or [`emit`]. Several threads
/// may set it at the same time, because it is a hint.
///
/// # Safety
/// The event is the caller's, or no other thread has it.
#[inline(always)]
pub(crate) unsafe fn set_emit_function(event: *mut Event, is_filtered: bool) {
    let emit: EmitFn = if is_filtered { emit_filtered } else { emit };
    // SAFETY: the caller's event; sites read the pointer while it changes, and never find null
    // there any more.
    let place = unsafe { AtomicPtr::from_ptr((&raw mut (*event).emit).cast::<*mut ()>()) };
    place.store(emit as *mut (), Ordering::Relaxed);
}

/// Records an event that the filters of its only session have passed under the decision with this
/// tag. These filters have no state: if the decision no longer holds, they run again.
///
/// # Safety
/// The contract of [`emit`] applies.
#[inline(never)] // keeps its frame off the stack of rejected events
unsafe extern "C" fn emit_passed(event: *mut Event, payload: *mut u8, size: usize, tag: u32) {
    // SAFETY: the caller's payload and event.
    unsafe {
        let enabled = EnabledSessions::load(event);
        let session = enabled.first() % SESSIONS_MAX;
        let generation = PROCESS.decisions[session].generation_of(tag, enabled.word);
        let (true, Some(generation)) = (enabled.bits.is_power_of_two(), generation) else {
            return emit_in_all(event, payload, size);
        };
        let (staged, passed) =
            (StagedPayload::new(payload, size), PassedGeneration::new(generation));
        let attempt = |session| try_passed(session, enabled, staged, passed);
        emit_in_sessions(event, enabled, staged, attempt);
    }
}

/// Records an event in all sessions that enable it, by any writer path.
///
/// # Safety
/// The contract of [`emit`] applies.
#[inline(never)]
unsafe extern "C" fn emit_in_all(event: *mut Event, payload: *mut u8, size: usize) {
    let staged = StagedPayload::new(payload, size);
    // SAFETY: the caller upholds the same contract.
    unsafe {
        let enabled = EnabledSessions::load(event);
        let attempt = |session| try_in(session, enabled, staged, event);
        emit_in_sessions(event, enabled, staged, attempt);
    }
}

/// Records an event that has a verdict already: filters do not run again in the verdict's session.
///
/// # Safety
/// The contract of [`emit`] applies.
pub(crate) unsafe fn emit_with_verdict(
    event: *mut Event,
    staged: StagedPayload,
    verdict: PrefilterVerdict,
) {
    // SAFETY: the caller upholds the same contract.
    unsafe {
        let enabled = EnabledSessions::load(event);
        let attempt = |session| {
            if session == verdict.session && verdict.is_current() {
                try_passed(session, enabled, staged, PassedGeneration::new(verdict.generation))
            } else {
                try_in(session, enabled, staged, event)
            }
        };
        emit_in_sessions(event, enabled, staged, attempt);
    }
}

/// Records an event in each enabled session: by `attempt`, then by the slow path if `attempt`
/// leaves the event. If the word belongs to a window that the process has left, the loop continues
/// once with the event's word in the present window, by the slow path alone.
///
/// # Safety
/// The contract of [`emit`] applies.
#[inline(always)] // compiled for each caller
unsafe fn emit_in_sessions(
    event: *mut Event,
    mut enabled: EnabledSessions,
    staged: StagedPayload,
    attempt: impl Fn(usize) -> Attempt,
) {
    let mut left = enabled;
    let mut is_retargeted = false;
    while let Some(session) = left.take_first() {
        let attempt =
            if is_retargeted { Attempt::Left(PassedGeneration::NONE) } else { attempt(session) };
        let Attempt::Left(passed) = attempt else { continue };
        // SAFETY: the caller's payload.
        match unsafe { slow_path::record_event(session, enabled, staged, passed) } {
            slow_path::NextStep::Done => {}
            // The process has moved again: an event of that moment is not recorded.
            slow_path::NextStep::Retarget if is_retargeted => return,
            slow_path::NextStep::Retarget => {
                // SAFETY: the event is the caller's.
                let found = unsafe { slow_path::retarget_event(session, event, enabled.word) };
                let Some(found) = found else { return };
                (enabled, left, is_retargeted) = (found, found, true);
            }
        }
    }
}

/// Records in one session, with filters or without, if the fast path can and the filters pass the
/// event.
///
/// # Safety
/// The contract of [`emit`] applies.
#[inline(never)] // keeps its frame off the stack of the slow path
unsafe fn try_in(
    session: usize,
    enabled: EnabledSessions,
    staged: StagedPayload,
    event: *mut Event,
) -> Attempt {
    // The tag may belong to an older decision: then both branches end in the slow path.
    if PROCESS.decisions[session].link_tag.load(Ordering::Relaxed) != 0 {
        // SAFETY: the caller's payload.
        return unsafe { try_filtered(session, enabled, staged, event) };
    }
    // SAFETY: the caller's payload.
    if unsafe { try_record::<{ Path::PLAIN }>(session, enabled, staged, PassedGeneration::NONE) } {
        return Attempt::Done;
    }
    // SAFETY: the caller's payload.
    unsafe { try_with_app_contexts(session, enabled, staged, PassedGeneration::NONE) }
}

/// Records in a session that records application contexts; has no effect in others.
///
/// # Safety
/// The contract of [`emit`] applies.
#[inline(never)] // keeps its frame off the stack of sessions without application contexts
unsafe fn try_with_app_contexts(
    session: usize,
    enabled: EnabledSessions,
    staged: StagedPayload,
    passed: PassedGeneration,
) -> Attempt {
    let contexts = PROCESS.decisions[session].contexts.load(Ordering::Relaxed);
    // SAFETY: the caller's payload.
    let is_done = contexts & APPLICATIONS != 0
        && unsafe { try_record::<{ Path::APP_CONTEXTS }>(session, enabled, staged, passed) };
    if is_done { Attempt::Done } else { Attempt::Left(passed) }
}

/// Records in a session with filters, if they pass the event.
///
/// # Safety
/// The contract of [`emit`] applies.
#[inline(never)] // keeps its frame off the stack of sessions without filters
unsafe fn try_filtered(
    session: usize,
    enabled: EnabledSessions,
    staged: StagedPayload,
    event: *mut Event,
) -> Attempt {
    // SAFETY: the caller's event.
    let note_quick = move || unsafe { set_emit_function(event, true) };
    // SAFETY: the caller's payload.
    match unsafe { filters::judge_staged(session, enabled.word, staged, note_quick) } {
        FilterVerdict::Fails => Attempt::Done,
        FilterVerdict::Unknown => Attempt::Left(PassedGeneration::NONE),
        // SAFETY: the caller's payload.
        FilterVerdict::Passes(generation) => unsafe {
            try_passed(session, enabled, staged, PassedGeneration::new(generation))
        },
    }
}

/// Records in a session whose filters have passed the event.
///
/// # Safety
/// The contract of [`emit`] applies.
#[inline(always)] // compiled for each caller
unsafe fn try_passed(
    session: usize,
    enabled: EnabledSessions,
    staged: StagedPayload,
    passed: PassedGeneration,
) -> Attempt {
    // SAFETY: the caller's payload.
    if unsafe { try_record::<{ Path::FILTERED }>(session, enabled, staged, passed) } {
        return Attempt::Done;
    }
    // SAFETY: the caller's payload.
    unsafe { try_with_app_contexts(session, enabled, staged, passed) }
}

/// The variants of [`try_record`], each compiled separately.
struct Path;

impl Path {
    /// The session has neither filters nor application contexts.
    const PLAIN: u8 = 0;
    /// The session has filters, which have passed the event.
    const FILTERED: u8 = 1;
    /// The session has application contexts. It may have filters, which have passed the event.
    const APP_CONTEXTS: u8 = 2;
}

/// Records in one session if the record is ordinary and the session suits this path; else has no
/// effect and returns false.
///
/// # Safety
/// The contract of [`emit`] applies.
// Longer than 70 lines: the recording path is one function, so that its values stay in registers.
#[inline(always)]
unsafe fn try_record<const PATH: u8>(
    session: usize,
    enabled: EnabledSessions,
    staged: StagedPayload,
    passed: PassedGeneration,
) -> bool {
    let payload = staged.start;
    let process = &PROCESS;
    let thread = thread::current_thread();
    // SAFETY: the line is the calling thread's. Its stamp is zero until the line is filled in.
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
    let cpus = match PATH {
        Path::PLAIN => decision.cpus.load(Ordering::Relaxed),
        Path::FILTERED => decision.filtered_cpus.load(Ordering::Relaxed).into(),
        _ => decision.contexts.load(Ordering::Relaxed) >> CPUS_AT,
    };
    if cpu >= cpus {
        return false;
    }
    let geometry = Geometry::from_word(decision.geometry.load(Ordering::Relaxed));
    let controls = decision.controls.load(Ordering::Relaxed);
    let base = decision.base.load(Ordering::Relaxed);
    let expected = decision.generation.load(Ordering::Relaxed);
    if PATH == Path::FILTERED && !passed.is(expected) {
        return false;
    }
    if PATH == Path::APP_CONTEXTS
        && decision.link_tag.load(Ordering::Relaxed) != 0
        && !passed.is(expected)
    {
        return false;
    }
    let gate = Gate { generation: generation_of(base, session), expected };
    let wanted = if PATH == Path::APP_CONTEXTS {
        SessionContexts::find_cached(session, expected)
    } else {
        None
    };
    let usable = decision.usable.load(Ordering::Relaxed);
    let contexts = decision.contexts.load(Ordering::Relaxed);
    if !decision.unchanged_since(sequence) {
        return false;
    }
    // SAFETY: the line is the calling thread's.
    if contexts & PROCNAME != 0 && unsafe { (*thread).name_stamp } != thread_stamp {
        return false;
    }
    let event = Window::event_at(base, enabled.word);
    if event >= EVENTS_MAX {
        return false; // the decision is about another window
    }
    // ORDERING: the fence in `unchanged_since` above keeps the load of the id after that of the
    // enable word, whose bit is set after the id was stored (`enable_if_selected`).
    // SAFETY: the decision is whole (just checked), so its addresses are those of a layout that
    // was checked; the CPU and the event's number are within it.
    let (region, id) = unsafe {
        let region = region_at(controls.add(cpu as usize * CPU_STRIDE), geometry);
        (region, (*ids_before(controls).add(event)).load(Ordering::Relaxed))
    };
    let Some(id) = id.checked_sub(1) else { return false };
    let mut applied_bytes = 0;
    if PATH == Path::APP_CONTEXTS {
        let Some(wanted) = wanted else { return false };
        // SAFETY: the payload's headroom is ours.
        let (bytes, is_cut) = unsafe { wanted.write(payload, true) };
        if is_cut {
            return false; // the slow path counts the cut
        }
        applied_bytes = bytes;
    }
    // SAFETY: the payload's headroom is ours; a thread's name has as many bytes.
    let context_bytes = applied_bytes
        + unsafe {
            let end = payload.wrapping_sub(applied_bytes);
            contexts::write_contexts(end, contexts, process.pid.load(Ordering::Relaxed), tid, name)
        };
    let body_bytes = context_bytes + staged.size_and_flags;
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
    // SAFETY: source and target were bounded above, with whole words to spare after both; the
    // generation is in the window's fixed part.
    unsafe { commit(area, cpu, &gate, region, &plan, bytes) }
}
