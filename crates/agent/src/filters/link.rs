//! Links: made in the slow path, by one thread at a time in each of a few *lanes*, for whom nobody
//! waits for long, and whose place is taken if he never comes back ([`crate::holder`]).
//!
//! Who makes a link copies the session's block of filters, and looks whether the generation is
//! still the same: then it is the block of that generation, whole. All that follows is done with
//! the copy, in memory of this process alone.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering, fence};

use trackway_abi::record::PAYLOAD_BYTES_MAX;
use trackway_abi::session::{filters_place, flag};
use trackway_jit::block::{BLOCK_BYTES_MAX, Block, Entry};
use trackway_jit::frame::{self, Environment, Fill};
use trackway_jit::framer::{Application, Framer, FramerView, Rest, Unfit, Wanted};
use trackway_jit::meaning::Meanings;
use trackway_jit::object::{Alternative, Object};
use trackway_jit::verify::{Rules, State, VERIFIER_STATES, Verified, verify};
use trackway_jit::{INSTRUCTIONS_MAX, x86};
use trackway_schema::{FieldViews, Heading, Scalar, Shape};
use trackway_window::Window;

use super::code::Kind;
use super::plan::{Filter, Plan, Step};
use super::store::{NoRoom, Store};
use super::{Link, Says, cells, code, plan, quick};
use crate::decision::PROCESS;
use crate::holder::{Footprint, Held, Holder, Taken};
use crate::home::{Home, generation_of};
use crate::links::{self, place_of};
use crate::{application, known, thread};

/// How long somebody waits who finds another one at it, in ns: a few times as long as it takes, if
/// the other is not preempted. Else the event is counted as discarded, lest a thread of real time
/// wait for one that is not.
const PATIENCE_NS: u64 = 200_000;
/// Most filters about one event.
const STEPS_MAX: usize = 64;
/// Most programs of a filter that are made machine code of: others are interpreted.
const ENTRIES_MAX: usize = 32;

/// Why there is no link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// The session has another generation.
    Stale,
    /// Somebody else is at it, perhaps what this signal handler has interrupted.
    Busy,
    /// Memory is full, and may not be used anew yet.
    NoRoom,
}

/// How often it is waited in vain for the end of one turn; then it may never come. (A thread that
/// is merely preempted is back before, and there are other lanes.)
const VAIN_MAX: u64 = 8;
/// How many may be at it at a time. The first lane is everybody's, and waited for; the others are
/// for those who have interrupted who is at it, for those who find no room there, and where
/// somebody has left it in the middle who is not known to be gone yet.
pub(super) const LANES: usize = 4;

/// Where one at a time makes links.
struct Lane {
    held: Held,
    /// How often anybody was at it.
    turns: AtomicU64,
    /// The turn for whose end somebody has waited in vain last, and how often (the lowest eight
    /// bits).
    vain: AtomicU64,
    linker: UnsafeCell<Linker>,
}

// SAFETY: the linker is used by who holds the lane alone.
unsafe impl Sync for Lane {}

static ALL: [Lane; LANES] = [const { Lane::new() }; LANES];

/// Holds a lane.
struct Turn {
    lane: &'static Lane,
    number: usize,
    /// Whether who was at it before has left it in the middle.
    was_left: bool,
}

impl Lane {
    const fn new() -> Self {
        Self {
            held: Held::new(),
            turns: AtomicU64::new(0),
            vain: AtomicU64::new(0),
            linker: UnsafeCell::new(Linker::new()),
        }
    }

    /// Takes the lane with this number, which this is; `None`: somebody else is at it, for longer
    /// than he is waited for.
    fn take(&'static self, number: usize, me: Holder) -> Option<Turn> {
        let mut deadline_ns = None;
        loop {
            let taken = self.held.take(me);
            match taken {
                Taken::Free | Taken::Left => {
                    self.turns.fetch_add(1, Ordering::Relaxed);
                    return Some(Turn { lane: self, number, was_left: taken == Taken::Left });
                }
                // A signal handler does not wait for what it has interrupted.
                Taken::Not(holder) if holder.is_of_thread_of(me) => return None,
                Taken::Not(_) => {}
            }
            let (turn, now_ns) =
                (self.turns.load(Ordering::Relaxed), trackway_sys::clock::monotonic_ns());
            let vain = self.vain.load(Ordering::Relaxed);
            let vain = if vain >> 8 == turn { vain } else { turn << 8 };
            if vain & 0xff >= VAIN_MAX {
                return None;
            }
            if deadline_ns.is_none() {
                deadline_ns = Some(thread::wait_until(now_ns, PATIENCE_NS)?);
            }
            if deadline_ns.is_some_and(|deadline_ns| now_ns > deadline_ns) {
                // (Of two that come at once, one may count for both.)
                self.vain.store(vain + 1, Ordering::Relaxed);
                return None;
            }
            core::hint::spin_loop();
        }
    }
}

impl Turn {
    /// The lane's linker, whatever state somebody has left it in.
    fn linker(&mut self, window: &Window) -> &mut Linker {
        // SAFETY: there is one holder.
        let linker = unsafe { &mut *self.lane.linker.get() };
        linker.store.be_of_lane(self.number);
        if core::mem::take(&mut self.was_left) {
            linker.recover(window);
        }
        linker
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.lane.held.let_go();
    }
}

/// Whether the calling thread is at it: then this is a signal handler. (Or it has been, and has
/// left it in the middle.)
pub(super) fn is_interrupted() -> bool {
    ALL.iter().any(|lane| lane.held.is_of_this_thread())
}

/// Forgets in a fork child what threads were at that it does not have.
pub(super) fn forget() {
    cells::forget();
    for (number, lane) in ALL.iter().enumerate() {
        // If not, a handler has forked, and this thread goes on there afterwards. What it makes is
        // for a decision of its parent's, which nobody asks for here.
        if !lane.held.is_of_this_thread() {
            // SAFETY: whoever held it is not here.
            let linker = unsafe { &mut *lane.linker.get() };
            linker.store.be_of_lane(number);
            linker.forget();
            lane.held.forget();
        }
    }
}

/// What is to be linked: an event in a session, of this generation, for the decision about it that
/// has this number, in the process of this stamp.
#[derive(Clone, Copy)]
pub(super) struct Wish {
    pub(super) home: &'static Home,
    pub(super) session: usize,
    pub(super) generation: u64,
    pub(super) event: usize,
    pub(super) decision: u32,
    pub(super) stamp: u64,
}

/// The link that is wished for: one that was made meanwhile, or a new one.
#[cold]
#[inline(never)]
pub(super) fn link(wish: &Wish) -> Result<Link, Failure> {
    // Who is killed in the memory of another process must not hold a lane of it.
    if thread::is_guest() {
        return Err(Failure::Busy);
    }
    let footprint = Footprint::new();
    let link = in_some_lane(wish, footprint.holder());
    footprint.end();
    link
}

fn in_some_lane(wish: &Wish, me: Holder) -> Result<Link, Failure> {
    /// Lanes that a thread may have in its hand, at any depth of its stack; further ones only where
    /// it is not far from the shallowest that it was ever seen at. It has left them, or is in a
    /// handler: handlers that interrupt each other and are jumped out of leave as many as they get.
    const DEEP_MAX: usize = 1;
    let holders = ALL.iter().filter_map(|lane| lane.held.holder());
    let own = holders.filter(|&other| other.is_of_thread_of(me) && !me.has_replaced(other)).count();
    let is_shallow = thread::is_shallow(core::ptr::from_ref(&own).addr());
    let is_full = own > DEEP_MAX && !is_shallow;
    let mut failure = Failure::Busy;
    for (number, lane) in ALL.iter().enumerate() {
        let is_ours = || lane.held.holder().is_some_and(|other| me.has_replaced(other));
        if is_full && !is_ours() {
            continue;
        }
        let Some(mut turn) = lane.take(number, me) else { continue };
        match in_lane(wish, &mut turn) {
            Err(Failure::NoRoom) => failure = Failure::NoRoom,
            made => return made,
        }
    }
    Err(failure)
}

fn in_lane(wish: &Wish, turn: &mut Turn) -> Result<Link, Failure> {
    let &Wish { home, session, generation, event, decision, stamp } = wish;
    let window = &home.window().ok_or(Failure::Stale)?;
    let place = place_of(session, event);
    // A signal handler may have forked before, and this be the child, which has not settled: from
    // here on it would find who it has interrupted (see `forget`).
    if PROCESS.stamp() != stamp {
        return Err(Failure::Busy);
    }
    let link = Link(place.load(Ordering::Relaxed));
    if link.is_of(decision) {
        return Ok(link);
    }
    let contexts_count = application::count();
    let linker = turn.linker(window);
    linker.copy_block(home, window, (session, generation))?;
    let mut made = linker.make(home, (session, generation), event, decision);
    if made == Err(NoRoom) {
        linker.store.turn(window).map_err(|NoRoom| Failure::NoRoom)?;
        made = linker.make(home, (session, generation), event, decision);
    }
    // What an empty part has no room for has none anywhere: nobody tries again at each event, and
    // takes other events' links away for it.
    let link = made.unwrap_or(Link::new(decision, Says::Counts));
    // Another lane's link for it may be there by now: who is inside by that goes on.
    // ORDERING: Release pairs with the Acquire of who finds it: what it leads to is there.
    place.store(link.0, Ordering::Release);
    // ORDERING: SeqCst: the link, then the look for a context that was declared meanwhile, after
    // which links are taken away (`links::void_context_dependent`): one of us sees the other.
    fence(Ordering::SeqCst);
    if application::count() != contexts_count {
        place.store(0, Ordering::Relaxed);
    }
    if link.says() == Says::Counts {
        // The recorder looks at the events again, and perhaps has something for this one.
        // ORDERING: Release, as in `Window::intern_event`.
        window.header().events_revision.fetch_add(1, Ordering::Release);
    }
    Ok(link)
}

/// What is needed to make links.
struct Linker {
    store: Store,
    /// The block that was copied last: of which window, session, generation.
    copied: (usize, usize, u64),
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
    const fn new() -> Self {
        Self {
            store: Store::new(),
            copied: (0, 0, 0),
            copied_bytes: 0,
            block: [0; BLOCK_BYTES_MAX / 8],
            states: [const { MaybeUninit::uninit() }; VERIFIER_STATES],
            places: [0; INSTRUCTIONS_MAX + 1],
            framer: MaybeUninit::uninit(),
            steps: [const { MaybeUninit::uninit() }; STEPS_MAX],
        }
    }

    fn forget(&mut self) {
        self.copied = (0, 0, 0);
        self.store.forget();
    }

    /// Goes on from whatever state somebody has left it in who is gone.
    fn recover(&mut self, window: &Window) {
        self.copied = (0, 0, 0);
        self.store.recover(window);
    }

    /// Copies the session's block, if it is of this generation.
    fn copy_block(
        &mut self,
        home: &Home,
        window: &Window,
        (session, generation): (usize, u64),
    ) -> Result<(), Failure> {
        let which = (window.base().addr(), session, generation);
        if self.copied == which {
            return Ok(());
        }
        self.copied = (0, 0, 0);
        let (session, moves) = (window.session(session), PROCESS.moves());
        // ORDERING: Acquire pairs with the recorder's Release: the block's bytes are there.
        let place = filters_place(session.filters.load(Ordering::Acquire));
        let (offset, bytes) = place.unwrap_or((0, 0));
        let end = offset.saturating_add(bytes.next_multiple_of(8) as u64);
        if bytes > BLOCK_BYTES_MAX || end > home.usable_bytes() {
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
        (self.copied, self.copied_bytes) = (which, bytes);
        Ok(())
    }

    /// Makes the link of an event, by the block that was copied.
    fn make(
        &mut self,
        home: &Home,
        (session, generation): (usize, u64),
        event: usize,
        decision: u32,
    ) -> Result<Link, NoRoom> {
        let is_one_of_ours = known::described(home, event);
        let Some((known, described)) = is_one_of_ours else {
            return Ok(Link::new(decision, Says::Counts));
        };
        let mark = self.store.mark();
        let mut maker = Maker {
            store: &mut self.store,
            states: &mut self.states,
            places: &mut self.places,
            framer: self.framer.write(Framer::EMPTY),
            steps: &mut self.steps,
            steps_count: 0,
            session,
            takes_procname: false,
            applications: application::Staged::default(),
            is_quick: false,
            direct: None,
            window: home.window(),
            generation,
            interprets: false,
        };
        // SAFETY: the bytes that were copied.
        let bytes = unsafe {
            core::slice::from_raw_parts(self.block.as_ptr().cast::<u8>(), self.copied_bytes)
        };
        let says = maker.go_through(bytes, described);
        let interprets = maker.interprets;
        let link = match says {
            Ok(Says::Plan(_)) => {
                maker.plan((session, event, known), whole_bytes(described), decision)
            }
            Ok(says) => Ok(Link::new(decision, says)),
            Err(no_room) => Err(no_room),
        };
        if !matches!(link.map(Link::says), Ok(Says::Plan(_))) {
            self.store.back_to(mark);
        } else if interprets {
            count_interpreter(home, session);
        }
        link
    }
}

/// Counts this process, once, among those that interpret filters of the session.
fn count_interpreter(home: &Home, slot: usize) {
    let Some(window) = &home.window() else { return };
    let session = window.session(slot);
    let trace = session.trace_uuid[0].load(Ordering::Relaxed) | 1;
    if home.interprets_in[slot].swap(trace, Ordering::Relaxed) != trace {
        session.interpreters.fetch_add(1, Ordering::Relaxed);
    }
}

/// A plan in the making.
struct Maker<'l> {
    store: &'l mut Store,
    states: &'l mut [MaybeUninit<State>; VERIFIER_STATES],
    places: &'l mut [u32; INSTRUCTIONS_MAX + 1],
    framer: &'l mut Framer,
    steps: &'l mut [MaybeUninit<Step>; STEPS_MAX],
    steps_count: usize,
    /// The session's slot.
    session: usize,
    takes_procname: bool,
    /// Contexts of applications that steps look at.
    applications: application::Staged,
    is_quick: bool,
    /// The code of the one step on payloads, and how long these are at least.
    direct: Option<(*const u8, usize)>,
    /// The window that event and session are in, and the session's generation.
    window: Option<Window>,
    generation: u64,
    interprets: bool,
}

impl Maker<'_> {
    /// Takes what is about the event from a block. [`Says::Plan`]: there are steps.
    fn go_through(&mut self, block: &[u8], described: &[u8]) -> Result<Says, NoRoom> {
        if block.is_empty() {
            return Ok(Says::Records); // they are being taken away
        }
        let (Ok(block), Some(heading)) = (Block::decode(block), Heading::read(described)) else {
            return Ok(Says::Counts);
        };
        let mut says = Says::Records;
        let mut entries = block.entries().peekable();
        while let Some(entry) = entries.next() {
            let meanings = entries.next_if(|next| next.is_of_meanings(&entry));
            let rules = trackway_schema::Rules::new(entry.rules);
            if !rules.selects(heading.provider, heading.name, heading.level) {
                continue;
            }
            let meanings = match meanings {
                None => Some(Meanings::default()),
                Some(meanings) => Meanings::decode(meanings.object),
            };
            let Some(meanings) = meanings else { return Ok(Says::Counts) };
            match self.step(&entry, meanings, described)? {
                Says::Drops => return Ok(Says::Drops),
                Says::Counts => says = Says::Counts,
                _ if says == Says::Counts => {}
                step => says = step,
            }
        }
        Ok(says)
    }

    /// Adds a filter to the steps, if the event has what it needs.
    fn step(
        &mut self,
        entry: &Entry<'_>,
        meanings: Meanings<'_>,
        described: &[u8],
    ) -> Result<Says, NoRoom> {
        let (Ok(object), Some(fields)) = (Object::decode(entry.object), FieldViews::new(described))
        else {
            return Ok(Says::Counts);
        };
        let mut lacks = true;
        // Alternatives differ in what they take contexts for, not in which.
        let mut lacks_application = false;
        let mut is_full = false;
        for (number, alternative) in object.alternatives().enumerate() {
            let wanted = alternative
                .needs()
                .map(|need| Wanted { path: need.path.as_bytes(), kind: need.kind });
            let mut applications = self.applications;
            let find = |name: &[u8]| {
                links::depend_on_contexts(self.session);
                let place = application::named(name);
                lacks_application |= place.is_none();
                let place = place?;
                let before = plan::before(&mut applications, place);
                is_full |= before.is_none();
                Some(Application { kind: place.kind(), before: before? })
            };
            if let Err(unfit) = self.framer.make_with(&fields, wanted, find) {
                lacks &= matches!(unfit, Unfit::Lacks(_));
                continue;
            }
            // It has all of it, and some of it means something else.
            if !meanings.are_of(&fields, number, &alternative) {
                lacks = false;
                continue;
            }
            self.applications = applications;
            let Some(filter) = self.filter(entry.id, object.cells(), &alternative)? else {
                return Ok(Says::Counts);
            };
            let made = self.framed(filter)?;
            self.is_quick = self.steps_count == 0 && made.is_coded();
            self.direct = if self.is_quick { self.direct(&alternative)? } else { None };
            let Some(step) = self.steps.get_mut(self.steps_count) else { return Ok(Says::Counts) };
            self.steps_count += 1;
            step.write(made);
            return Ok(Says::Plan(0));
        }
        Ok(if !is_full && (lacks || lacks_application) { Says::Drops } else { Says::Counts })
    }

    /// A filter with its framer.
    fn framed(&mut self, filter: *const Filter) -> Result<Step, NoRoom> {
        let framer = self.framer.view();
        self.takes_procname |= framer.takes_procname();
        let (legs, takes) = (self.store.put_all(framer.legs)?, self.store.put_all(framer.takes)?);
        let rest = self.store.room_for::<Rest>(framer.takes.len())?;
        let mut rest_count = 0;
        for (number, left) in framer.rest().enumerate() {
            // SAFETY: there is room for all takes.
            unsafe { rest.add(number).write(left) };
            rest_count += 1;
        }
        Ok(Step {
            filter,
            fill: fill(self.store, &framer)?,
            coded_bytes: framer.coded_bytes() as u32,
            legs_count: legs.len() as u8,
            takes_count: takes.len() as u8,
            rest_count,
            legs: legs.as_ptr(),
            takes: takes.as_ptr(),
            rest,
        })
    }

    /// Whether the session's records are committed by sequences: these are aborted here.
    fn has_sequences(&self) -> bool {
        self.window.is_some_and(|window| {
            let flags = window.session(self.session).flags.load(Ordering::Relaxed);
            flags & flag::CLAIM_ONLY == 0
        })
    }

    /// Machine code of an alternative on payloads of the framer's event, and how long these are at
    /// least; `None`: that cannot be, or not by a sequence here.
    fn direct(
        &mut self,
        alternative: &Alternative<'_>,
    ) -> Result<Option<(*const u8, usize)>, NoRoom> {
        let mut programs = alternative.programs();
        let (Some(program), None) = (programs.next(), programs.next()) else { return Ok(None) };
        if !quick::is_there() || !self.has_sequences() {
            return Ok(None);
        }
        let rules = Rules::new(alternative.needs_count());
        let Ok(verified) = verify(program, rules, self.states()) else { return Ok(None) };
        let (part, used) = (self.store.current(), self.store.code_used(Kind::Leaf));
        // SAFETY: the part is being filled by us, and beyond `used` there is nothing.
        let room = unsafe { code::room(Kind::Leaf, part, used) }.ok_or(NoRoom)?;
        let most = room.len().min(program.len().saturating_mul(x86::INSN_CODE_BYTES_MAX));
        let framer = self.framer.view();
        match x86::emit_direct(&verified, framer, &mut room[..most], &mut self.places[..]) {
            Ok(Some(bytes)) => {
                self.store.use_code(Kind::Leaf, bytes);
                // SAFETY: that is what was just emitted there.
                Ok(Some((unsafe { code::direct(part, used) }, framer.coded_bytes())))
            }
            Ok(None) | Err(x86::EmitError::Unsupported) => Ok(None),
            // Another part has room for it, or another lane; if an empty one has none, the ordinary
            // way is one, too.
            Err(x86::EmitError::NoRoom) if used > 0 => Err(NoRoom),
            Err(x86::EmitError::NoRoom) => Ok(None),
        }
    }

    /// The filter that an alternative is, from the part that is being filled, or put there. `None`:
    /// it is none.
    fn filter(
        &mut self,
        id: u64,
        cells: usize,
        alternative: &Alternative<'_>,
    ) -> Result<Option<*const Filter>, NoRoom> {
        let key = [id, hash_of(alternative)];
        let slots = alternative.needs_count();
        // (Not code of its parent, in a child that was forked in the middle of a link.)
        let is_it = |filter: &&Filter| {
            filter.key == key
                && filter.slots == slots
                && (filter.entry.is_none() || code::is_there())
        };
        if let Some(filter) = self.store.filters().find(is_it) {
            self.interprets |= filter.entry.is_none();
            return Ok(Some(filter));
        }
        let environment = Environment::new(
            self.store.put_all(alternative.constants())?,
            cells::of_filter(id, cells),
            time_ns,
            random,
        );
        let (programs, programs_count) = (core::ptr::null(), 0);
        let next = core::ptr::null();
        let (entry, is_leaf) = (None, false);
        let mut filter =
            Filter { next, key, slots, environment, entry, is_leaf, programs, programs_count };
        let made = self.compile(&mut filter, alternative)?;
        let made = if made { made } else { self.interpret(&mut filter, alternative)? };
        self.interprets |= filter.entry.is_none();
        if made { self.store.put_filter(filter).map(Some) } else { Ok(None) }
    }

    fn states(&mut self) -> &mut [State] {
        for state in self.states.iter_mut() {
            state.write(State::FREE);
        }
        // SAFETY: all of them were just written.
        unsafe { &mut *(core::ptr::from_mut(&mut self.states[..]) as *mut [State]) }
    }

    /// Makes machine code of a filter's programs; false if that cannot be.
    fn compile(
        &mut self,
        filter: &mut Filter,
        alternative: &Alternative<'_>,
    ) -> Result<bool, NoRoom> {
        let count = alternative.programs_count();
        if !code::is_there() || count > ENTRIES_MAX {
            return Ok(false);
        }
        let mut entries: [Option<frame::Entry>; ENTRIES_MAX] = [None; ENTRIES_MAX];
        for (number, program) in alternative.programs().enumerate() {
            let rules = Rules { number: number as u8, ..Rules::new(filter.slots) };
            let Ok(verified) = verify(program, rules, self.states()) else { return Ok(false) };
            // Who makes a tail call may come to one that is no leaf.
            let is_leaf = count == 1 && x86::is_leaf(&verified);
            let kind = if is_leaf { Kind::Leaf } else { Kind::Program };
            filter.is_leaf = is_leaf;
            let (part, used) = (self.store.current(), self.store.code_used(kind));
            // SAFETY: the part is being filled by us, and beyond `used` there is nothing.
            let room = unsafe { code::room(kind, part, used) }.ok_or(NoRoom)?;
            // Only so much memory is touched.
            let most = room.len().min(program.len().saturating_mul(x86::INSN_CODE_BYTES_MAX));
            match x86::emit(&verified, &mut room[..most], &mut self.places[..]) {
                Ok(code) => {
                    self.store.use_code(kind, code.size_bytes);
                    // SAFETY: that is what was just emitted there.
                    entries[number] = Some(unsafe { code::entry(kind, part, used) });
                }
                // In an empty part, it is too large for any.
                Err(x86::EmitError::NoRoom) if used > 0 => return Err(NoRoom),
                Err(_) => return Ok(false),
            }
        }
        filter.entry = entries[0];
        if count > 1 {
            let entries = self.store.put_all(&entries[..count])?;
            // SAFETY: they were just emitted, for as many slots, and stay as long as the filter.
            filter.environment = unsafe { filter.environment.with_entries(entries) };
        }
        Ok(filter.entry.is_some())
    }

    /// Keeps a filter's programs, for the interpreter; false if they are none.
    fn interpret(
        &mut self,
        filter: &mut Filter,
        alternative: &Alternative<'_>,
    ) -> Result<bool, NoRoom> {
        let count = alternative.programs_count();
        let kept = self.store.room_for::<Verified<'static>>(count)?;
        for (number, program) in alternative.programs().enumerate() {
            let bytes = self.store.put_all(program.bytes())?;
            let Some(program) = trackway_jit::program::Program::new(bytes) else {
                return Ok(false);
            };
            let rules = Rules { number: number as u8, ..Rules::new(filter.slots) };
            let Ok(verified) = verify(program, rules, self.states()) else { return Ok(false) };
            // SAFETY: there is room for as many.
            unsafe { kept.add(number).write(verified) };
        }
        (filter.programs, filter.programs_count) = (kept, count);
        Ok(count > 0)
    }

    /// The plan of these steps; its link.
    fn plan(
        &mut self,
        (session, event, known): (usize, usize, usize),
        whole_bytes: u16,
        decision: u32,
    ) -> Result<Link, NoRoom> {
        let steps = &self.steps[..self.steps_count];
        // SAFETY: so many were written.
        let steps = unsafe { &*(core::ptr::from_ref(steps) as *const [Step]) };
        let steps = self.store.put_all(steps)?;
        let (direct, direct_bytes) = self.direct.unwrap_or((core::ptr::null(), 0));
        let plan = Plan {
            next: core::ptr::null(),
            session: session as u16,
            event: event as u16,
            known: known as u32 + 1,
            whole_bytes,
            takes_more: self.takes_procname || self.applications != application::Staged::default(),
            takes_procname: self.takes_procname,
            applications: self.applications,
            is_quick: self.is_quick,
            steps_count: steps.len() as u16,
            steps: steps.as_ptr(),
            link: 0,
            direct,
            direct_bytes,
            enabled: self.window.map_or(core::ptr::null(), |window| &window.event(event).enabled),
            generation: self
                .window
                .map_or(core::ptr::null(), |window| generation_of(window.base(), session)),
            expected: self.generation,
        };
        self.store.put_plan(plan, decision)
    }
}

/// Most bytes that each field that can be cut may have without being cut: its share of the room
/// that those of fixed size leave (`trackway_i_share` of include/trackway/trackway.h).
fn whole_bytes(described: &[u8]) -> u16 {
    let Some(fields) = FieldViews::new(described) else { return 0 };
    let (mut fixed, mut spans) = (0, 0);
    for field in fields {
        let size = field.scalar.map_or(1, Scalar::size_bytes);
        fixed += match field.shape {
            Shape::Scalar | Shape::Enumeration => size,
            Shape::Array => size * usize::from(field.length),
            Shape::Str => 1,
            Shape::Text | Shape::Sequence => 4,
        };
        spans += usize::from(matches!(field.shape, Shape::Str | Shape::Text | Shape::Sequence));
    }
    (PAYLOAD_BYTES_MAX.saturating_sub(fixed) / spans.max(1)) as u16
}

/// Machine code that fills frames.
fn fill(store: &mut Store, framer: &FramerView<'_>) -> Result<Option<Fill>, NoRoom> {
    if !code::is_there() {
        return Ok(None);
    }
    let (part, used) = (store.current(), store.code_used(Kind::Leaf));
    // SAFETY: the part is being filled by us, and beyond `used` there is nothing.
    let room = unsafe { code::room(Kind::Leaf, part, used) }.ok_or(NoRoom)?;
    match x86::emit_fill(framer, room) {
        Ok(Some(bytes)) => {
            store.use_code(Kind::Leaf, bytes);
            // SAFETY: that is what was just emitted there.
            Ok(Some(unsafe { code::fill(part, used) }))
        }
        Ok(None) | Err(x86::EmitError::Unsupported) => Ok(None),
        Err(x86::EmitError::NoRoom) => Err(NoRoom),
    }
}

/// FNV-1a, of all that an alternative is.
fn hash_of(alternative: &Alternative<'_>) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |bytes: &[u8]| {
        for &byte in bytes {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    for need in alternative.needs() {
        add(&[need.kind as u8, need.path.len() as u8]);
        add(need.path.as_bytes());
    }
    add(alternative.constants());
    for program in alternative.programs() {
        add(&program.len().to_le_bytes());
        add(program.bytes());
    }
    hash
}

extern "C" fn time_ns() -> u64 {
    trackway_sys::clock::monotonic_ns()
}

extern "C" fn random() -> u64 {
    thread::random()
}
