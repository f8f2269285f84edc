//! The linker: makes links in the slow path, one thread at a time in each lane ([`super::lanes`]).
//!
//! The linker copies the session's block of filters, then checks that the generation is still the
//! same. So the copy is the whole block of that generation. All further work uses the copy, in
//! memory of this process alone.

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering, fence};

use trackway_abi::session::filters_place;
use trackway_jit::INSTRUCTIONS_MAX;
use trackway_jit::block::BLOCK_BYTES_MAX;
use trackway_jit::framer::Framer;
use trackway_jit::verify::{State, VERIFIER_STATES};
use trackway_window::Window;

use super::arena::{Arena, ArenaFull};
use super::lanes::{LANES, LaneGuard};
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

/// The reason why there is no link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkError {
    /// The session has another generation.
    Stale,
    /// Another thread has the lane, or the code that this signal handler interrupted.
    Busy,
    /// Memory is full, and no part is free yet.
    ArenaFull,
}

/// Returns true if the calling thread owns a lane: then this is a signal handler. (Or the thread
/// has abandoned the lane.)
pub(super) fn is_interrupted() -> bool {
    LANES.iter().any(|lane| lane.lock.is_owned_by_this_thread())
}

/// Resets, in a fork child, the lanes of threads that the child does not have.
pub(super) fn reset_in_fork_child() {
    filter_state::reset_in_fork_child();
    for (number, lane) in LANES.iter().enumerate() {
        // A lane that this thread owns means that a signal handler has forked, and this thread
        // continues in the lane afterwards. Its link gets a tag of the parent process, which is
        // void here.
        if !lane.lock.is_owned_by_this_thread() {
            // SAFETY: the thread that owned the lane does not exist in the child.
            let linker = unsafe { &mut *lane.linker.get() };
            linker.arena.set_lane(number);
            linker.reset_in_fork_child();
            lane.lock.release_in_fork_child();
        }
    }
}

/// Returns the requested link: one that another thread made meanwhile, or a new one.
#[cold]
#[inline(never)]
pub(super) fn find_or_make(request: &LinkRequest, tag: u32) -> Result<Link, LinkError> {
    // A process that runs in its parent's memory must not own a lane of the parent: a kill would
    // leave the lane locked.
    if thread::runs_in_parent_memory() {
        return Err(LinkError::Busy);
    }
    let marker = StackMarker::new();
    let link = link_in_any_lane(request, tag, marker.owner());
    marker.end();
    link
}

fn link_in_any_lane(request: &LinkRequest, tag: u32, me: StackOwner) -> Result<Link, LinkError> {
    /// Number of lanes that a thread may own at any depth of its stack. It gets further lanes only
    /// near the shallowest depth so far. Such a thread has abandoned its lanes, or is in a handler:
    /// handlers that interrupt each other and jump out take all lanes that they can get.
    const DEEP_LANES_MAX: usize = 1;
    let owners = LANES.iter().filter_map(|lane| lane.lock.owner());
    let own =
        owners.filter(|&other| other.shares_thread_with(me) && !me.proves_gone(other)).count();
    let is_shallow = thread::is_shallow(core::ptr::from_ref(&own).addr());
    let is_full = own > DEEP_LANES_MAX && !is_shallow;
    let mut failure = LinkError::Busy;
    for (number, lane) in LANES.iter().enumerate() {
        let is_ours = || lane.lock.owner().is_some_and(|other| me.proves_gone(other));
        if is_full && !is_ours() {
            continue;
        }
        let Some(mut guard) = lane.acquire(number, me) else { continue };
        match link_in_lane(request, tag, &mut guard) {
            Err(LinkError::ArenaFull) => failure = LinkError::ArenaFull,
            made => return made,
        }
    }
    Err(failure)
}

fn link_in_lane(request: &LinkRequest, tag: u32, guard: &mut LaneGuard) -> Result<Link, LinkError> {
    let &LinkRequest { mapped, session, event, stamp, .. } = request;
    let window = &mapped.window().ok_or(LinkError::Stale)?;
    let place = place_of(session, event);
    // A signal handler may have forked earlier, and this may be the child, without a stamp. From
    // here on the child finds the interrupted owner (see `reset_in_fork_child`).
    if PROCESS.stamp() != stamp {
        return Err(LinkError::Busy);
    }
    let link = Link(place.load(Ordering::Relaxed));
    if link.has_tag(tag) {
        return Ok(link);
    }
    let contexts_count = app_contexts::contexts_count();
    let linker = guard.linker(window);
    linker.copy_block(request, window)?;
    let mut made = linker.make_link(request, tag);
    if made == Err(ArenaFull) {
        linker.arena.switch_part(window).map_err(|ArenaFull| LinkError::ArenaFull)?;
        made = linker.make_link(request, tag);
    }
    // A plan that does not fit an empty part fits no part. This link stops further tries at each
    // event, which would remove other events' links.
    let link = made.unwrap_or(Link::new(tag, LinkAction::Discard));
    // Another lane may have stored its link meanwhile: a thread that entered by it continues.
    // ORDERING: Release pairs with the Acquire of readers: the plan is there.
    place.store(link.0, Ordering::Release);
    // ORDERING: SeqCst: the link is stored before the check for a context that was declared
    // meanwhile, which removes links (`filter_links::void_context_dependent_links`): one of the two
    // finds the other.
    fence(Ordering::SeqCst);
    if app_contexts::contexts_count() != contexts_count {
        place.store(0, Ordering::Relaxed);
    }
    if link.action() == LinkAction::Discard {
        // The recorder examines the events again, and may add an alternative for this one.
        // ORDERING: Release, as in `Window::intern_event`.
        window.header().events_revision.fetch_add(1, Ordering::Release);
    }
    Ok(link)
}

/// The identity of a block of filters.
#[derive(Clone, Copy, PartialEq, Eq)]
struct BlockKey {
    /// Address of the block's window; 0: no block.
    window: usize,
    session: usize,
    generation: u64,
}

impl BlockKey {
    const NONE: Self = Self { window: 0, session: 0, generation: 0 };
}

/// The linker's memory.
pub(super) struct Linker {
    pub(super) arena: Arena,
    /// The block that was copied last.
    copied_block: BlockKey,
    copied_bytes: usize,
    block: [u64; BLOCK_BYTES_MAX / 8],
    /// The verifier's memory.
    states: [MaybeUninit<State>; VERIFIER_STATES],
    /// Offsets of instructions in the machine code.
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

    /// Recovers the linker from any state that a gone owner left.
    pub(super) fn recover(&mut self, window: &Window) {
        self.copied_block = BlockKey::NONE;
        self.arena.recover(window);
    }

    /// Copies the session's block, if the block belongs to the request's generation.
    fn copy_block(&mut self, request: &LinkRequest, window: &Window) -> Result<(), LinkError> {
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
            return Err(LinkError::Stale);
        }
        for (index, word) in self.block[..bytes.div_ceil(8)].iter_mut().enumerate() {
            let at = window.base().wrapping_add(offset as usize + 8 * index);
            // SAFETY: within the backed part of the window; a block lies in memory that is never
            // given back, at a multiple of 64 bytes.
            *word = unsafe { AtomicU64::from_ptr(at.cast()) }.load(Ordering::Relaxed);
        }
        // ORDERING: Acquire keeps the bytes before the check of the generation: a block is
        // overwritten only after the generation was raised past it.
        fence(Ordering::Acquire);
        // A process that left the window meanwhile has read zeros in its place.
        if session.generation.load(Ordering::Relaxed) != generation || PROCESS.moves() != moves {
            return Err(LinkError::Stale);
        }
        (self.copied_block, self.copied_bytes) = (which, bytes);
        Ok(())
    }

    /// Makes an event's link from the copied block.
    fn make_link(&mut self, request: &LinkRequest, tag: u32) -> Result<Link, ArenaFull> {
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
        // SAFETY: `copy_block` initialized these bytes.
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

/// Counts this process, once, among the session's interpreters of filters.
fn count_interpreter(mapped: &MappedWindow, slot: usize) {
    let Some(window) = &mapped.window() else { return };
    let session = window.session(slot);
    let trace = session.trace_uuid[0].load(Ordering::Relaxed) | 1;
    if mapped.interpreter_traces[slot].swap(trace, Ordering::Relaxed) != trace {
        session.interpreters.fetch_add(1, Ordering::Relaxed);
    }
}
