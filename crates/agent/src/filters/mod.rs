//! Filters: whether an event is recorded, decided where it happens, before anything is reserved.
//!
//! docs/design/0008-filters.md, "In a traced program", has the argument. In short: a session action
//! that it has filters ([`flag::FILTERED`]); then an event goes the ordinary way only with a *link*
//! that was made for this process's decision about the session as it is now
//! ([`crate::state::filter_links`]). Emitter finds none makes it ([`linker`]): copies the session's
//! block of filters, verifies the copies, makes machine code of them ([`executable_memory`]) where
//! memory that is executed is to be had. Plans, and code, lie in parts that are used anew when
//! nobody is inside ([`arena`], [`readers`]).
//!
//! Whoever evaluates holds nothing, waits for nobody, and has no effect but on the filters' state.
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

/// How often somebody begins anew emitter finds a link that is gone a moment later.
const TRIES_MAX: usize = 16;

/// A link: the number of a decision (upper half), and what is to be done (lower half).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Link(u64);

/// What a link action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinkAction {
    /// No filter is about the event.
    Record,
    /// It lacks something that a filter needs.
    Drop,
    /// Something cannot be evaluated here: the recorder does not know the event well enough yet, or
    /// a filter is none.
    Discard,
    /// The plan at this place of the store, in bytes, action it.
    Plan(u32),
}

impl Link {
    const RECORD: u32 = 1;
    const DROP: u32 = 2;
    const DISCARD: u32 = 3;
    /// Plans begin at multiples of this, in bytes, and not at 0.
    const PLAN_ALIGNMENT: usize = 16;
    /// Added to the place of a plan that [`single_sequence`] is for.
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

    /// The same, of a plan that [`single_sequence`] is for.
    const fn quick(tag: u32, at: u32) -> Self {
        Self::new(tag, LinkAction::Plan(at | Self::QUICK))
    }

    /// The number of the decision that it is for.
    #[inline(always)]
    const fn tag(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The place of a plan that [`single_sequence`] is for.
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

/// What filters say of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FilterVerdict {
    /// It is recorded, in this generation of the session.
    Passes(u64),
    /// It is not.
    Fails,
    /// Ask [`judge_slowly`].
    Unknown,
}

/// Judges an event by its filters, if all that this takes is at hand. Calls `note_quick` where the
/// plan is one that [`single_sequence`] can run.
///
/// # Safety
/// `payload` has `size` bytes with headroom before them; `enabled` is the event's word.
#[inline(never)] // a frame, of which the stack of those emitter record has nothing
pub(crate) unsafe fn judge(
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
    // SAFETY: likewise.
    let passes = |plan: &Plan, emitter: &Emitter| Some(unsafe { plan.passes(staged, emitter) });
    judge_by(session, enabled, passes_quickly, passes)
}

/// The same of an event that is not staged yet.
///
/// # Safety
/// As `trackway_abi_ask_fn`; `enabled` is the event's word, and `known` its description's number.
#[inline(never)] // likewise
pub(crate) unsafe fn judge_unstaged(
    session: usize,
    enabled: *const AtomicU32,
    arguments: *const Argument,
    description_number: u32,
) -> FilterVerdict {
    // SAFETY: the caller's arguments; the plan looks whether they are those of its event.
    let passes = |plan: &Plan, emitter: &Emitter| unsafe {
        plan.passes_unstaged(arguments, description_number, emitter)
    };
    judge_by(session, enabled, |_: &Plan| None, passes)
}

/// What filters say, by two ways to evaluate a plan: without and with emitter emits. `None`: that
/// is not the way.
#[inline(always)] // each caller's code is its own
fn judge_by(
    session: usize,
    enabled: *const AtomicU32,
    passes_quickly: impl FnOnce(&Plan) -> Option<bool>,
    passes: impl FnOnce(&Plan, &Emitter) -> Option<bool>,
) -> FilterVerdict {
    let thread = thread::current();
    // SAFETY: the line is the calling thread's. Its stamp is zero until it was filled in.
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
    // What is recorded is checked when it is committed; what is not, only here.
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
    // ORDERING: Acquire pairs with the Release in `link`: the plan is there.
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
    // Before it enters: a handler that forks from here on has the part kept.
    thread::begin_filter(thread);
    let visit = readers::enter_by_sequence(arena::part_of(at), place, link.0, area);
    let Some(visit) = visit else {
        thread::end_filter(thread);
        return FilterVerdict::Unknown;
    };
    // Not in a fork child, which has come into being since: the code is its parent's.
    if PROCESS.stamp() != stamp {
        visit.leave();
        thread::end_filter(thread);
        return FilterVerdict::Unknown;
    }
    // SAFETY: the visit keeps the plan where it is, as the link action.
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

/// An event in a session of this generation, for which a link is needed, in the process with this
/// stamp.
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

/// What filters say of an event, whatever it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlowVerdict {
    /// It is recorded.
    Passes,
    /// It is not.
    Fails,
    /// It cannot be said here and now: the event is counted as discarded.
    Discarded,
    /// The session changed meanwhile.
    Stale,
}

/// As [`judge`], in a generation of the session, by whatever way. `stamp` is the process's.
///
/// # Safety
/// As [`crate::emit::fast_path::emit`], with the size of the payload alone.
#[cold]
#[inline(never)] // for the stack of those that do not come here
pub(crate) unsafe fn judge_slowly(request: &LinkRequest, staged: StagedPayload) -> SlowVerdict {
    let &LinkRequest { mapped, session, generation, event, stamp } = request;
    // A fork child that is being settled, by another thread or by what a signal handler has
    // interrupted: decisions and links are still its parent's, and so is the code.
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
        // ORDERING: Acquire, as in `judge`.
        let mut link = Link(place.load(Ordering::Acquire));
        if !link.has_tag(tag) {
            match linker::find_or_make(request, tag) {
                Ok(made) => link = made,
                Err(linker::Failure::Stale) => return SlowVerdict::Stale,
                Err(linker::Failure::Busy | linker::Failure::ArenaFull) => {
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
        let (line, in_vfork_child) = (thread::current(), thread::in_vfork_child());
        thread::begin_filter(line);
        let visit = readers::enter(arena::part_of(at), place, link.0, in_vfork_child);
        let Some(visit) = visit else {
            thread::end_filter(line);
            continue;
        };
        // As in `judge`.
        if PROCESS.stamp() != stamp {
            visit.leave();
            thread::end_filter(line);
            return SlowVerdict::Discarded;
        }
        // SAFETY: the visit keeps the plan where it is, as the link action.
        let plan = unsafe { arena::plan_at(at) };
        let thread = thread::identify(stamp, plan.takes_procname);
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

/// Forgets in a fork child what only its parent may do or know.
pub(crate) fn reset_in_fork_child() {
    executable_memory::reset_in_fork_child();
    linker::reset_in_fork_child();
}
