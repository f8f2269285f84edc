//! Links: made in the slow path, by one thread at a time in each of a few *lanes*, for whom nobody
//! waits for long, and whose place is taken if he never comes back
//! ([`crate::sync::recoverable_lock`]).
//!
//! Who makes a link copies the session's block of filters, and looks whether the generation is
//! still the same: then it is the block of that generation, whole. All that follows is done with
//! the copy, in memory of this process alone.

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering, fence};

use trackway_abi::session::filters_place;
use trackway_jit::INSTRUCTIONS_MAX;
use trackway_jit::block::BLOCK_BYTES_MAX;
use trackway_jit::framer::Framer;
use trackway_jit::verify::{State, VERIFIER_STATES};
use trackway_window::Window;

use super::arena::{Arena, ArenaFull};
use super::lanes::{ALL, LaneGuard};
use super::plan::Step;
use super::plan_builder::{PlanBuilder, STEPS_MAX};
use super::{Link, LinkAction, LinkRequest, filter_state};
use crate::app_contexts;
use crate::state::event_archive;
use crate::state::filter_links::place_of;
use crate::state::process::PROCESS;
use crate::state::thread;
use crate::state::window_map::MappedWindow;
use crate::sync::recoverable_lock::{StackMarker, StackOwner};

/// Why there is no link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// The session has another generation.
    Stale,
    /// Somebody else is at it, perhaps what this signal handler has interrupted.
    Busy,
    /// Memory is full, and may not be used anew yet.
    ArenaFull,
}

/// Whether the calling thread is at it: then this is a signal handler. (Or it has been, and has
/// left it in the middle.)
pub(super) fn is_interrupted() -> bool {
    ALL.iter().any(|lane| lane.lock.is_owned_by_this_thread())
}

/// Forgets in a fork child what threads were at that it does not have.
pub(super) fn reset_in_fork_child() {
    filter_state::reset();
    for (number, lane) in ALL.iter().enumerate() {
        // If not, a handler has forked, and this thread goes on there afterwards. What it makes is
        // for a tag of its parent's, which nobody asks for here.
        if !lane.lock.is_owned_by_this_thread() {
            // SAFETY: whoever held it is not here.
            let linker = unsafe { &mut *lane.linker.get() };
            linker.arena.set_lane(number);
            linker.reset_in_fork_child();
            lane.lock.release_in_fork_child();
        }
    }
}

/// The link that is wished for: one that was made meanwhile, or a new one.
#[cold]
#[inline(never)]
pub(super) fn find_or_make(request: &LinkRequest, tag: u32) -> Result<Link, Failure> {
    // Who is killed in the memory of another process must not hold a lane of it.
    if thread::runs_in_parent_memory() {
        return Err(Failure::Busy);
    }
    let marker = StackMarker::new();
    let link = link_in_any_lane(request, tag, marker.owner());
    marker.end();
    link
}

fn link_in_any_lane(request: &LinkRequest, tag: u32, me: StackOwner) -> Result<Link, Failure> {
    /// Lanes that a thread may have in its hand, at any depth of its stack; further ones only where
    /// it is not far from the shallowest that it was ever seen at. It has left them, or is in a
    /// handler: handlers that interrupt each other and are jumped out of leave as many as they get.
    const DEEP_MAX: usize = 1;
    let owners = ALL.iter().filter_map(|lane| lane.lock.owner());
    let own =
        owners.filter(|&other| other.shares_thread_with(me) && !me.proves_gone(other)).count();
    let is_shallow = thread::is_shallow(core::ptr::from_ref(&own).addr());
    let is_full = own > DEEP_MAX && !is_shallow;
    let mut failure = Failure::Busy;
    for (number, lane) in ALL.iter().enumerate() {
        let is_ours = || lane.lock.owner().is_some_and(|other| me.proves_gone(other));
        if is_full && !is_ours() {
            continue;
        }
        let Some(mut guard) = lane.acquire(number, me) else { continue };
        match link_in_lane(request, tag, &mut guard) {
            Err(Failure::ArenaFull) => failure = Failure::ArenaFull,
            made => return made,
        }
    }
    Err(failure)
}

fn link_in_lane(request: &LinkRequest, tag: u32, guard: &mut LaneGuard) -> Result<Link, Failure> {
    let &LinkRequest { mapped, session, event, stamp, .. } = request;
    let window = &mapped.window().ok_or(Failure::Stale)?;
    let place = place_of(session, event);
    // A signal handler may have forked before, and this be the child, which has not settled: from
    // here on it would find who it has interrupted (see `forget`).
    if PROCESS.stamp() != stamp {
        return Err(Failure::Busy);
    }
    let link = Link(place.load(Ordering::Relaxed));
    if link.has_tag(tag) {
        return Ok(link);
    }
    let contexts_count = app_contexts::count();
    let linker = guard.linker(window);
    linker.copy_block(request, window)?;
    let mut made = linker.make(request, tag);
    if made == Err(ArenaFull) {
        linker.arena.switch_part(window).map_err(|ArenaFull| Failure::ArenaFull)?;
        made = linker.make(request, tag);
    }
    // What an empty part has no room for has none anywhere: nobody tries again at each event, and
    // takes other events' links away for it.
    let link = made.unwrap_or(Link::new(tag, LinkAction::Discard));
    // Another lane's link for it may be there by now: who is inside by that goes on.
    // ORDERING: Release pairs with the Acquire of who finds it: what it leads to is there.
    place.store(link.0, Ordering::Release);
    // ORDERING: SeqCst: the link, then the look for a context that was declared meanwhile, after
    // which links are taken away (`filter_links::void_context_dependent`): one of us sees the
    // other.
    fence(Ordering::SeqCst);
    if app_contexts::count() != contexts_count {
        place.store(0, Ordering::Relaxed);
    }
    if link.action() == LinkAction::Discard {
        // The recorder looks at the events again, and perhaps has something for this one.
        // ORDERING: Release, as in `Window::intern_event`.
        window.header().events_revision.fetch_add(1, Ordering::Release);
    }
    Ok(link)
}

/// A block of filters.
#[derive(Clone, Copy, PartialEq, Eq)]
struct BlockKey {
    /// The address of its window; 0: no block.
    window: usize,
    session: usize,
    generation: u64,
}

impl BlockKey {
    const NONE: Self = Self { window: 0, session: 0, generation: 0 };
}

/// What is needed to make links.
pub(super) struct Linker {
    pub(super) arena: Arena,
    /// The block that was copied last: of which window, session, generation.
    copied_block: BlockKey,
    copied_bytes: usize,
    block: [u64; BLOCK_BYTES_MAX / 8],
    /// The verifier's memory.
    states: [MaybeUninit<State>; VERIFIER_STATES],
    /// Where instructions' code is.
    places: [u32; INSTRUCTIONS_MAX + 1],
    framer: MaybeUninit<Framer>,
    steps: [MaybeUninit<Step>; STEPS_MAX],
}

impl Linker {
    pub(super) const fn new() -> Self {
        Self {
            arena: Arena::new(),
            copied_block: BlockKey::NONE,
            copied_bytes: 0,
            block: [0; BLOCK_BYTES_MAX / 8],
            states: [const { MaybeUninit::uninit() }; VERIFIER_STATES],
            places: [0; INSTRUCTIONS_MAX + 1],
            framer: MaybeUninit::uninit(),
            steps: [const { MaybeUninit::uninit() }; STEPS_MAX],
        }
    }

    fn reset_in_fork_child(&mut self) {
        self.copied_block = BlockKey::NONE;
        self.arena.reset_in_fork_child();
    }

    /// Goes on from whatever state somebody has left it in who is gone.
    pub(super) fn recover(&mut self, window: &Window) {
        self.copied_block = BlockKey::NONE;
        self.arena.recover(window);
    }

    /// Copies the session's block, if it is of this generation.
    fn copy_block(&mut self, request: &LinkRequest, window: &Window) -> Result<(), Failure> {
        let &LinkRequest { mapped, session, generation, .. } = request;
        let which = BlockKey { window: window.base().addr(), session, generation };
        if self.copied_block == which {
            return Ok(());
        }
        self.copied_block = BlockKey::NONE;
        let (session, moves) = (window.session(session), PROCESS.moves());
        // ORDERING: Acquire pairs with the recorder's Release: the block's bytes are there.
        let place = filters_place(session.filters.load(Ordering::Acquire));
        let (offset, bytes) = place.unwrap_or((0, 0));
        let end = offset.saturating_add(bytes.next_multiple_of(8) as u64);
        if bytes > BLOCK_BYTES_MAX || end > mapped.usable_bytes() {
            return Err(Failure::Stale);
        }
        for (index, word) in self.block[..bytes.div_ceil(8)].iter_mut().enumerate() {
            let at = window.base().wrapping_add(offset as usize + 8 * index);
            // SAFETY: within what is backed of the window; a block lies in memory that is never
            // given back, and is a multiple of 64 from its beginning.
            *word = unsafe { AtomicU64::from_ptr(at.cast()) }.load(Ordering::Relaxed);
        }
        // ORDERING: Acquire keeps the bytes before the look at the generation: a block is written
        // over only after the generation was raised past it.
        fence(Ordering::Acquire);
        // Nor has the process been elsewhere meanwhile, with zeros in the window's place.
        if session.generation.load(Ordering::Relaxed) != generation || PROCESS.moves() != moves {
            return Err(Failure::Stale);
        }
        (self.copied_block, self.copied_bytes) = (which, bytes);
        Ok(())
    }

    /// Makes the link of an event, by the block that was copied.
    fn make(&mut self, request: &LinkRequest, tag: u32) -> Result<Link, ArenaFull> {
        let &LinkRequest { mapped, session, generation, event, .. } = request;
        let is_one_of_ours = event_archive::find_description(mapped, event);
        let Some((description_number, described)) = is_one_of_ours else {
            return Ok(Link::new(tag, LinkAction::Discard));
        };
        let mark = self.arena.mark();
        let mut builder = PlanBuilder {
            arena: &mut self.arena,
            states: &mut self.states,
            places: &mut self.places,
            framer: self.framer.write(Framer::EMPTY),
            steps: &mut self.steps,
            steps_count: 0,
            session,
            takes_procname: false,
            applications: app_contexts::StagedOffsets::default(),
            is_quick: false,
            direct: None,
            window: mapped.window(),
            generation,
            interprets: false,
        };
        // SAFETY: the bytes that were copied.
        let bytes = unsafe {
            core::slice::from_raw_parts(self.block.as_ptr().cast::<u8>(), self.copied_bytes)
        };
        let action = builder.add_filters(bytes, described);
        let interprets = builder.interprets;
        let link = match action {
            Ok(LinkAction::Plan(_)) => builder.finish(event, description_number, described, tag),
            Ok(action) => Ok(Link::new(tag, action)),
            Err(no_room) => Err(no_room),
        };
        if !matches!(link.map(Link::action), Ok(LinkAction::Plan(_))) {
            self.arena.truncate_to(mark);
        } else if interprets {
            count_interpreter(mapped, session);
        }
        link
    }
}

/// Counts this process, once, among those that keep_programs filters of the session.
fn count_interpreter(mapped: &MappedWindow, slot: usize) {
    let Some(window) = &mapped.window() else { return };
    let session = window.session(slot);
    let trace = session.trace_uuid[0].load(Ordering::Relaxed) | 1;
    if mapped.interpreter_traces[slot].swap(trace, Ordering::Relaxed) != trace {
        session.interpreters.fetch_add(1, Ordering::Relaxed);
    }
}
