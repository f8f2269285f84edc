//! Filters decide at the site whether an event is recorded, before anything is reserved.
//!
//! docs/design/0008-filters.md, "In a traced program", has the argument. In short: a session with
//! filters sets [`flag::FILTERED`]. Then an event is recorded only by a *link* that was made for
//! this process's present decision about the session ([`crate::state::filter_links`]). Without a
//! link, the [`linker`] copies the session's block of filters, verifies the copies, and compiles
//! them if there is executable memory ([`executable_memory`]). Plans and code lie in parts that are
//! reused when no thread is inside ([`arena`], [`readers`]).
//!
//! An evaluation owns nothing, waits for nothing, and changes nothing but the state of filters.
//!
//! [`flag::FILTERED`]: trackway_abi::session::flag::FILTERED

mod arena;
pub(crate) mod executable_memory;
mod filter_state;
mod lanes;
mod linker;
mod plan;
mod plan_builder;
mod readers;
pub(crate) mod single_sequence;
mod unstaged;

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use trackway_abi::window::EVENTS_MAX;
use trackway_ring::rseq::Area;
use trackway_window::Window;

use crate::abi::Argument;
use crate::payload::StagedPayload;
use crate::state::filter_links::place_of;
use crate::state::process::PROCESS;
use crate::state::session_cache::LinkTag;
use crate::state::thread;
use crate::state::window_map::{MappedWindow, generation_of};
use plan::{Emitter, Plan};

/// The generation of a session in which its filters have passed an event, or none. One word, which
/// travels in a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PassedGeneration(u64);

impl PassedGeneration {
    /// Filters have not passed the event, or there are none. No session has this generation.
    pub(crate) const NONE: Self = Self(u64::MAX);

    #[inline(always)]
    pub(crate) const fn new(generation: u64) -> Self {
        Self(generation)
    }

    /// Returns true if filters have passed the event in this generation.
    #[inline(always)]
    pub(crate) const fn is(self, generation: u64) -> bool {
        generation == self.0
    }
}

/// Maximum number of restarts of an evaluation whose link vanished.
const TRIES_MAX: usize = 16;

/// A link: a decision's tag (upper half), and an action (lower half).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Link(u64);

/// The action of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinkAction {
    /// Records the event: no filter applies to it.
    Record,
    /// Drops the event: it lacks something that a filter needs.
    Drop,
    /// Discards and counts the event: no variant of a filter for the event exists yet, or a filter
    /// is invalid.
    Discard,
    /// Evaluates the plan at this place of the arena, in bytes.
    Plan(u32),
}

impl Link {
    const RECORD: u32 = 1;
    const DROP: u32 = 2;
    const DISCARD: u32 = 3;
    /// Alignment of plans, in bytes; none begins at 0.
    const PLAN_ALIGNMENT: usize = 16;
    /// Flag in the place of a plan that [`single_sequence`] can run.
    const QUICK: u32 = 8;

    const fn new(tag: u32, action: LinkAction) -> Self {
        let action = match action {
            LinkAction::Record => Self::RECORD,
            LinkAction::Drop => Self::DROP,
            LinkAction::Discard => Self::DISCARD,
            LinkAction::Plan(at) => at,
        };
        Self((tag as u64) << 32 | action as u64)
    }

    /// Makes a link to a plan that [`single_sequence`] can run.
    const fn to_quick_plan(tag: u32, at: u32) -> Self {
        Self::new(tag, LinkAction::Plan(at | Self::QUICK))
    }

    /// Returns the tag of the decision that the link belongs to.
    #[inline(always)]
    const fn tag(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Returns the place of a plan that [`single_sequence`] can run.
    #[inline(always)]
    const fn quick_plan(self) -> Option<u32> {
        let is_quick = self.0 as u32 & Self::QUICK != 0;
        if is_quick { Some(self.0 as u32 & !(Self::PLAN_ALIGNMENT as u32 - 1)) } else { None }
    }

    #[inline(always)]
    const fn has_tag(self, tag: u32) -> bool {
        self.tag() == tag
    }

    #[inline(always)]
    const fn action(self) -> LinkAction {
        match self.0 as u32 {
            Self::RECORD => LinkAction::Record,
            Self::DROP => LinkAction::Drop,
            at if at as usize >= Self::PLAN_ALIGNMENT => {
                LinkAction::Plan(at & !(Self::PLAN_ALIGNMENT as u32 - 1))
            }
            _ => LinkAction::Discard,
        }
    }
}

/// The verdict of filters about an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FilterVerdict {
    /// The event is recorded, in this generation of the session.
    Passes(u64),
    /// The event is not recorded.
    Fails,
    /// There is no verdict: [`judge_slowly`] gives one.
    Unknown,
}

/// Judges an event by its filters, if a valid link and the thread's data are at hand. Calls
/// `note_quick` if [`single_sequence`] can run the plan.
///
/// # Safety
/// The payload is staged for the event; `enabled` is the event's word.
#[inline(never)] // keeps its frame off the stack of recording
pub(crate) unsafe fn judge_staged(
    session: usize,
    enabled: *const AtomicU32,
    staged: StagedPayload,
    note_quick: impl Fn(),
) -> FilterVerdict {
    if staged.is_cut() {
        return FilterVerdict::Unknown;
    }
    let passes_quickly = |plan: &Plan| {
        if plan.has_direct() {
            note_quick();
        }
        // SAFETY: the caller's payload.
        unsafe { plan.passes_quickly(staged) }
    };
    // SAFETY: the caller's payload.
    let passes = |plan: &Plan, emitter: &Emitter| Some(unsafe { plan.passes(staged, emitter) });
    judge_by_plan(session, enabled, passes_quickly, passes)
}

/// Judges an event that is not staged yet.
///
/// # Safety
/// The contract of `trackway_abi_ask_fn` applies; `enabled` is the event's word, and
/// `description_number` the number of its description.
#[inline(never)] // keeps its frame off its callers' stack
pub(crate) unsafe fn judge_unstaged(
    session: usize,
    enabled: *const AtomicU32,
    arguments: *const Argument,
    description_number: u32,
) -> FilterVerdict {
    // SAFETY: the caller's arguments; the plan checks that they belong to its event.
    let passes = |plan: &Plan, emitter: &Emitter| unsafe {
        plan.passes_unstaged(arguments, description_number, emitter)
    };
    judge_by_plan(session, enabled, |_: &Plan| None, passes)
}

/// Judges an event by a plan, with two evaluators: one without and one with the emitter's identity.
/// An evaluator returns `None` if it does not apply.
// Longer than 70 lines: the filter path is one function, so that its values stay in registers.
#[inline(always)] // compiled for each caller
fn judge_by_plan(
    session: usize,
    enabled: *const AtomicU32,
    passes_quickly: impl FnOnce(&Plan) -> Option<bool>,
    passes: impl FnOnce(&Plan, &Emitter) -> Option<bool>,
) -> FilterVerdict {
    let thread = thread::current_thread();
    // SAFETY: the line is the calling thread's. Its stamp is zero until the line is filled in.
    let (stamp, tid, name_stamp) =
        unsafe { ((*thread).stamp, (*thread).tid, (*thread).name_stamp) };
    if stamp != PROCESS.stamp() || stamp == 0 {
        return FilterVerdict::Unknown;
    }
    let decision = &PROCESS.decisions[session];
    // ORDERING: Acquire pairs with the Release in `Decision::publish`.
    let sequence = decision.sequence.load(Ordering::Acquire);
    let (base, tag) =
        (decision.base.load(Ordering::Relaxed), decision.link_tag.load(Ordering::Relaxed));
    let generation = decision.generation.load(Ordering::Relaxed);
    if tag == 0 || !decision.unchanged_since(sequence) {
        return FilterVerdict::Unknown;
    }
    // The commit checks the generation of recorded events; only this code checks it for rejected
    // ones.
    // SAFETY: a decision with links names a window, mapped for good; the index is below 32.
    let now = unsafe { AtomicU64::from_ptr(generation_of(base, session).cast_mut()) };
    if now.load(Ordering::Relaxed) != generation {
        return FilterVerdict::Unknown;
    }
    let event = Window::event_at(base, enabled);
    if event >= EVENTS_MAX {
        return FilterVerdict::Unknown; // the decision is about another window
    }
    let place = place_of(session, event);
    // ORDERING: Acquire pairs with the Release in `linker`: the plan is there.
    let link = Link(place.load(Ordering::Acquire));
    if !link.has_tag(tag) {
        return FilterVerdict::Unknown;
    }
    let at = match link.action() {
        LinkAction::Record => return FilterVerdict::Passes(generation),
        LinkAction::Drop => return FilterVerdict::Fails,
        LinkAction::Discard => return FilterVerdict::Unknown,
        LinkAction::Plan(at) => at,
    };
    let area = trackway_sys::thread::rseq_area();
    if area.is_null() {
        return FilterVerdict::Unknown;
    }
    // SAFETY: glibc registered this thread's area; a vfork child, which has none, has no stamp.
    let area = unsafe { Area::new(area) };
    // Precedes the entry: a handler that forks from here on pins the part.
    thread::begin_filter(thread);
    let visit = readers::enter_by_sequence(arena::part_of(at), place, link.0, area);
    let Some(visit) = visit else {
        thread::end_filter(thread);
        return FilterVerdict::Unknown;
    };
    // Not in a fork child made since then: the code belongs to its parent.
    if PROCESS.stamp() != stamp {
        visit.leave();
        thread::end_filter(thread);
        return FilterVerdict::Unknown;
    }
    // SAFETY: the visit keeps the plan at the place in the link.
    let plan = unsafe { arena::plan_at(at) };
    let passes = match passes_quickly(plan) {
        Some(passes) => Some(passes),
        None if plan.takes_procname && name_stamp != stamp => None,
        None => {
            // SAFETY: the line is the calling thread's.
            let name = unsafe { (&raw const (*thread).name).cast() };
            let emitter = Emitter { pid: PROCESS.pid.load(Ordering::Relaxed), tid, name };
            passes(plan, &emitter)
        }
    };
    visit.leave();
    thread::end_filter(thread);
    match passes {
        Some(true) => FilterVerdict::Passes(generation),
        Some(false) => FilterVerdict::Fails,
        None => FilterVerdict::Unknown,
    }
}

/// A request for a link: an event in a session of this generation, in the process with this stamp.
#[derive(Clone, Copy)]
pub(crate) struct LinkRequest {
    pub(crate) mapped: &'static MappedWindow,
    /// The session's slot.
    pub(crate) session: usize,
    pub(crate) generation: u64,
    /// The event's number in the window.
    pub(crate) event: usize,
    pub(crate) stamp: u64,
}

/// The verdict of filters about an event, in the slow path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlowVerdict {
    /// The event is recorded.
    Passes,
    /// The event is not recorded.
    Fails,
    /// There is no verdict: the event is counted as discarded.
    Discarded,
    /// The session has changed.
    Stale,
}

/// Judges an event in a generation of the session, in the slow path.
///
/// # Safety
/// The contract of [`crate::emit::fast_path::emit`] applies.
#[cold]
#[inline(never)] // keeps its frame off its callers' stack
pub(crate) unsafe fn judge_slowly(request: &LinkRequest, staged: StagedPayload) -> SlowVerdict {
    let &LinkRequest { mapped, session, generation, event, stamp } = request;
    // The stamp is zero in a fork child while another thread, or the code that this signal handler
    // interrupted, makes it. The child's decisions, links and code are still its parent's.
    if stamp == 0 {
        return SlowVerdict::Discarded;
    }
    let place = place_of(session, event);
    let Some(window) = &mapped.window() else { return SlowVerdict::Stale };
    for _ in 0..TRIES_MAX {
        let tag = PROCESS.decisions[session].current_link_tag(window, generation);
        let tag = match tag {
            LinkTag::Current(tag) => tag,
            LinkTag::Stale => return SlowVerdict::Stale,
            LinkTag::InReplacement => return SlowVerdict::Discarded,
        };
        // ORDERING: Acquire pairs with the Release in `linker`: the plan is there.
        let mut link = Link(place.load(Ordering::Acquire));
        if !link.has_tag(tag) {
            match linker::find_or_make(request, tag) {
                Ok(made) => link = made,
                Err(linker::LinkError::Stale) => return SlowVerdict::Stale,
                Err(linker::LinkError::Busy | linker::LinkError::ArenaFull) => {
                    return SlowVerdict::Discarded;
                }
            }
        }
        let at = match link.action() {
            LinkAction::Record => return SlowVerdict::Passes,
            LinkAction::Drop => return SlowVerdict::Fails,
            LinkAction::Discard => return SlowVerdict::Discarded,
            LinkAction::Plan(at) => at,
        };
        let (line, in_vfork_child) = (thread::current_thread(), thread::in_vfork_child());
        thread::begin_filter(line);
        let visit = readers::enter_part(arena::part_of(at), place, link.0, in_vfork_child);
        let Some(visit) = visit else {
            thread::end_filter(line);
            continue;
        };
        // Not in a fork child made since then: the code belongs to its parent.
        if PROCESS.stamp() != stamp {
            visit.leave();
            thread::end_filter(line);
            return SlowVerdict::Discarded;
        }
        // SAFETY: the visit keeps the plan at the place in the link.
        let plan = unsafe { arena::plan_at(at) };
        let thread = thread::identify_thread(stamp, plan.takes_procname);
        let (pid, tid) = (PROCESS.pid_for(&thread), thread.tid);
        let emitter = Emitter { pid, tid, name: thread.name.as_ptr() };
        // SAFETY: the caller's payload.
        let passes = unsafe { plan.passes(staged, &emitter) };
        visit.leave();
        thread::end_filter(line);
        return if passes { SlowVerdict::Passes } else { SlowVerdict::Fails };
    }
    SlowVerdict::Discarded
}

/// Resets, in a fork child, the state that belongs to its parent.
pub(crate) fn reset_in_fork_child() {
    executable_memory::reset_in_fork_child();
    linker::reset_in_fork_child();
}
