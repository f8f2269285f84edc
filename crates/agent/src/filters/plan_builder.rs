//! Builds the plan of an event from a session's filters: verifies their programs, makes machine
//! code of them, and puts all of it into the part of the arena that is being filled.

use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;

use trackway_abi::record::PAYLOAD_BYTES_MAX;
use trackway_abi::session::flag;
use trackway_jit::block::{Block, Entry};
use trackway_jit::frame::{self, Environment, Fill};
use trackway_jit::framer::{
    ApplicationContext, Framer, FramerView, Mismatch, RemainingSlot, WantedValue,
};
use trackway_jit::meaning::Meanings;
use trackway_jit::object::{Alternative, Object};
use trackway_jit::verify::{Rules, State, VERIFIER_STATES, Verified, verify};
use trackway_jit::{INSTRUCTIONS_MAX, x86};
use trackway_schema::{FieldViews, Heading, Scalar, Shape};
use trackway_window::Window;

use super::arena::{Arena, ArenaFull};
use super::executable_memory::CodeKind;
use super::plan::{Filter, Plan, Step};
use super::{Link, LinkAction, executable_memory, filter_state, plan, single_sequence};
use crate::app_contexts;
use crate::state::window_map::generation_of;
use crate::state::{filter_links, thread};

/// Maximum number of filters for one event.
pub(super) const STEPS_MAX: usize = 64;
/// Maximum number of a filter's programs that are compiled; with more, the filter is interpreted.
const ENTRIES_MAX: usize = 32;

/// A plan under construction.
pub(super) struct PlanBuilder<'l> {
    pub(super) arena: &'l mut Arena,
    pub(super) states: &'l mut [MaybeUninit<State>; VERIFIER_STATES],
    pub(super) places: &'l mut [u32; INSTRUCTIONS_MAX + 1],
    pub(super) framer: &'l mut Framer,
    pub(super) steps: &'l mut [MaybeUninit<Step>; STEPS_MAX],
    pub(super) steps_count: usize,
    /// The session's slot.
    pub(super) session: usize,
    pub(super) takes_procname: bool,
    /// Application contexts that steps read.
    pub(super) applications: app_contexts::StagedOffsets,
    pub(super) is_quick: bool,
    /// Machine code on payloads of the only step, and the minimum bytes of a payload.
    pub(super) direct: Option<(*const u8, usize)>,
    /// The window of event and session, and the session's generation.
    pub(super) window: Option<Window>,
    pub(super) generation: u64,
    pub(super) interprets: bool,
}

impl PlanBuilder<'_> {
    /// Adds the filters of a block that apply to the event. Returns [`LinkAction::Plan`] if there
    /// are steps.
    pub(super) fn add_filters(
        &mut self,
        block: &[u8],
        described: &[u8],
    ) -> Result<LinkAction, ArenaFull> {
        if block.is_empty() {
            return Ok(LinkAction::Record); // the session's filters are being removed
        }
        let (Ok(block), Some(heading)) = (Block::decode(block), Heading::read(described)) else {
            return Ok(LinkAction::Discard);
        };
        let mut action = LinkAction::Record;
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
            let Some(meanings) = meanings else { return Ok(LinkAction::Discard) };
            match self.add_filter(&entry, meanings, described)? {
                LinkAction::Drop => return Ok(LinkAction::Drop),
                LinkAction::Discard => action = LinkAction::Discard,
                _ if action == LinkAction::Discard => {}
                step => action = step,
            }
        }
        Ok(action)
    }

    /// Adds a filter to the steps, if the event has everything that it needs.
    fn add_filter(
        &mut self,
        entry: &Entry<'_>,
        meanings: Meanings<'_>,
        described: &[u8],
    ) -> Result<LinkAction, ArenaFull> {
        let (Ok(object), Some(fields)) = (Object::decode(entry.object), FieldViews::new(described))
        else {
            return Ok(LinkAction::Discard);
        };
        let mut lacks = true;
        // Alternatives differ in the kinds of their contexts, not in the contexts.
        let mut lacks_application = false;
        let mut is_full = false;
        for (number, alternative) in object.alternatives().enumerate() {
            let wanted = alternative
                .needs()
                .map(|need| WantedValue { path: need.path.as_bytes(), kind: need.kind });
            let mut applications = self.applications;
            let find = |name: &[u8]| {
                filter_links::mark_context_dependent(self.session);
                let place = app_contexts::find_context(name);
                lacks_application |= place.is_none();
                let place = place?;
                let before = plan::add_offset(&mut applications, place);
                is_full |= before.is_none();
                Some(ApplicationContext { kind: place.kind(), before: before? })
            };
            if let Err(unfit) = self.framer.build_in_place_with(&fields, wanted, find) {
                lacks &= matches!(unfit, Mismatch::Lacks(_));
                continue;
            }
            // The event has all fields, and a field has another meaning.
            if !meanings.are_of(&fields, number, &alternative) {
                lacks = false;
                continue;
            }
            self.applications = applications;
            let Some(filter) = self.find_or_add_filter(entry.id, object.cells(), &alternative)?
            else {
                return Ok(LinkAction::Discard);
            };
            let made = self.build_step(filter)?;
            self.is_quick = self.steps_count == 0 && made.is_coded();
            self.direct = if self.is_quick { self.compile_direct(&alternative)? } else { None };
            let Some(step) = self.steps.get_mut(self.steps_count) else {
                return Ok(LinkAction::Discard);
            };
            self.steps_count += 1;
            step.write(made);
            return Ok(LinkAction::Plan(0));
        }
        Ok(if !is_full && (lacks || lacks_application) {
            LinkAction::Drop
        } else {
            LinkAction::Discard
        })
    }

    /// Builds the step of a filter, with its framer.
    fn build_step(&mut self, filter: *const Filter) -> Result<Step, ArenaFull> {
        let framer = self.framer.view();
        self.takes_procname |= framer.takes_procname();
        let (legs, takes) = (self.arena.push_all(framer.legs)?, self.arena.push_all(framer.takes)?);
        let rest = self.arena.allocate_for::<RemainingSlot>(framer.takes.len())?;
        let mut rest_count = 0;
        for (number, left) in framer.rest().enumerate() {
            // SAFETY: there is room for all takes.
            unsafe { rest.add(number).write(left) };
            rest_count += 1;
        }
        Ok(Step {
            filter,
            fill: compile_fill(self.arena, &framer)?,
            coded_bytes: framer.coded_bytes() as u32,
            legs_count: legs.len() as u8,
            takes_count: takes.len() as u8,
            rest_count,
            legs: legs.as_ptr(),
            takes: takes.as_ptr(),
            rest,
        })
    }

    /// Returns true if the session commits records by sequences, which the recorder aborts.
    fn has_sequences(&self) -> bool {
        self.window.is_some_and(|window| {
            let flags = window.session(self.session).flags.load(Ordering::Relaxed);
            flags & flag::CLAIM_ONLY == 0
        })
    }

    /// Compiles an alternative to code on payloads of the framer's event. Returns the code and the
    /// minimum bytes of these payloads. `None`: the compiler cannot, or a sequence is not possible
    /// here.
    fn compile_direct(
        &mut self,
        alternative: &Alternative<'_>,
    ) -> Result<Option<(*const u8, usize)>, ArenaFull> {
        let mut programs = alternative.programs();
        let (Some(program), None) = (programs.next(), programs.next()) else { return Ok(None) };
        if !single_sequence::is_available() || !self.has_sequences() {
            return Ok(None);
        }
        let rules = Rules::new(alternative.needs_count());
        let Ok(verified) = verify(program, rules, self.states()) else { return Ok(None) };
        let (part, used) = (self.arena.current(), self.arena.code_used(CodeKind::Leaf));
        // SAFETY: this thread fills the part, and nothing lies beyond `used`.
        let room =
            unsafe { executable_memory::free_code(CodeKind::Leaf, part, used) }.ok_or(ArenaFull)?;
        let most = room.len().min(program.len().saturating_mul(x86::INSN_CODE_BYTES_MAX));
        let framer = self.framer.view();
        match x86::emit_direct(&verified, framer, &mut room[..most], &mut self.places[..]) {
            Ok(Some(bytes)) => {
                self.arena.add_code_bytes(CodeKind::Leaf, bytes);
                // SAFETY: that code was just emitted there.
                Ok(Some((
                    unsafe { executable_memory::direct_entry(part, used) },
                    framer.coded_bytes(),
                )))
            }
            Ok(None) | Err(x86::EmitError::Unsupported) => Ok(None),
            // Another part or another lane may have memory for the code. If an empty part has not,
            // ordinary evaluation works, too.
            Err(x86::EmitError::NoRoom) if used > 0 => Err(ArenaFull),
            Err(x86::EmitError::NoRoom) => Ok(None),
        }
    }

    /// Returns the filter of an alternative: from the part that is being filled, or added to it.
    /// `None`: the alternative is invalid.
    fn find_or_add_filter(
        &mut self,
        id: u64,
        cells: usize,
        alternative: &Alternative<'_>,
    ) -> Result<Option<*const Filter>, ArenaFull> {
        let key = [id, hash_alternative(alternative)];
        let slots = alternative.needs_count();
        // Not the parent's code, in a child that was forked while a thread made a link.
        let is_it = |filter: &&Filter| {
            filter.key == key
                && filter.slots == slots
                && (filter.entry.is_none() || executable_memory::is_available())
        };
        if let Some(filter) = self.arena.filters().find(is_it) {
            self.interprets |= filter.entry.is_none();
            return Ok(Some(filter));
        }
        let environment = Environment::new(
            self.arena.push_all(alternative.constants())?,
            filter_state::find_cells(id, cells),
            time_ns,
            random_bits,
        );
        let (programs, programs_count) = (core::ptr::null(), 0);
        let next = core::ptr::null();
        let (entry, is_leaf) = (None, false);
        let mut filter =
            Filter { next, key, slots, environment, entry, is_leaf, programs, programs_count };
        let made = self.compile_programs(&mut filter, alternative)?;
        let made = if made { made } else { self.store_programs(&mut filter, alternative)? };
        self.interprets |= filter.entry.is_none();
        if made { self.arena.push_filter(filter).map(Some) } else { Ok(None) }
    }

    fn states(&mut self) -> &mut [State] {
        for state in self.states.iter_mut() {
            state.write(State::FREE);
        }
        // SAFETY: all of them were just written.
        unsafe { &mut *(core::ptr::from_mut(&mut self.states[..]) as *mut [State]) }
    }

    /// Compiles a filter's programs. Returns false if the compiler cannot.
    fn compile_programs(
        &mut self,
        filter: &mut Filter,
        alternative: &Alternative<'_>,
    ) -> Result<bool, ArenaFull> {
        let count = alternative.programs_count();
        if !executable_memory::is_available() || count > ENTRIES_MAX {
            return Ok(false);
        }
        let mut entries: [Option<frame::Entry>; ENTRIES_MAX] = [None; ENTRIES_MAX];
        for (number, program) in alternative.programs().enumerate() {
            let rules = Rules { number: number as u8, ..Rules::new(filter.slots) };
            let Ok(verified) = verify(program, rules, self.states()) else { return Ok(false) };
            // A tail call may lead to a program that is no leaf.
            let is_leaf = count == 1 && x86::is_leaf(&verified);
            let kind = if is_leaf { CodeKind::Leaf } else { CodeKind::Program };
            filter.is_leaf = is_leaf;
            let (part, used) = (self.arena.current(), self.arena.code_used(kind));
            // SAFETY: this thread fills the part, and nothing lies beyond `used`.
            let room =
                unsafe { executable_memory::free_code(kind, part, used) }.ok_or(ArenaFull)?;
            // The compiler touches only these bytes.
            let most = room.len().min(program.len().saturating_mul(x86::INSN_CODE_BYTES_MAX));
            match x86::emit_program(&verified, &mut room[..most], &mut self.places[..]) {
                Ok(code) => {
                    self.arena.add_code_bytes(kind, code.size_bytes);
                    // SAFETY: that code was just emitted there.
                    entries[number] =
                        Some(unsafe { executable_memory::program_entry(kind, part, used) });
                }
                // A filter that does not fit an empty part fits no part.
                Err(x86::EmitError::NoRoom) if used > 0 => return Err(ArenaFull),
                Err(_) => return Ok(false),
            }
        }
        filter.entry = entries[0];
        if count > 1 {
            let entries = self.arena.push_all(&entries[..count])?;
            // SAFETY: the entries were just emitted, for as many slots, and live as long as the
            // filter.
            filter.environment = unsafe { filter.environment.with_entries(entries) };
        }
        Ok(filter.entry.is_some())
    }

    /// Stores a filter's programs for the interpreter. Returns false if they are invalid.
    fn store_programs(
        &mut self,
        filter: &mut Filter,
        alternative: &Alternative<'_>,
    ) -> Result<bool, ArenaFull> {
        let count = alternative.programs_count();
        let kept = self.arena.allocate_for::<Verified<'static>>(count)?;
        for (number, program) in alternative.programs().enumerate() {
            let bytes = self.arena.push_all(program.bytes())?;
            let Some(program) = trackway_jit::program::Program::new(bytes) else {
                return Ok(false);
            };
            let rules = Rules { number: number as u8, ..Rules::new(filter.slots) };
            let Ok(verified) = verify(program, rules, self.states()) else { return Ok(false) };
            // SAFETY: as many were allocated.
            unsafe { kept.add(number).write(verified) };
        }
        (filter.programs, filter.programs_count) = (kept, count);
        Ok(count > 0)
    }

    /// Stores the plan of the added steps. Returns the plan's link.
    pub(super) fn finish(
        &mut self,
        event: usize,
        description_number: usize,
        described: &[u8],
        tag: u32,
    ) -> Result<Link, ArenaFull> {
        let steps = &self.steps[..self.steps_count];
        // SAFETY: `steps_count` steps were written.
        let steps = unsafe { &*(core::ptr::from_ref(steps) as *const [Step]) };
        let steps = self.arena.push_all(steps)?;
        let (direct, direct_bytes) = self.direct.unwrap_or((core::ptr::null(), 0));
        let plan = Plan {
            next: core::ptr::null(),
            session: self.session as u16,
            event: event as u16,
            description_number: description_number as u32 + 1,
            uncut_bytes: uncut_bytes(described),
            uses_headroom: self.takes_procname
                || self.applications != app_contexts::StagedOffsets::default(),
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
                .map_or(core::ptr::null(), |window| generation_of(window.base(), self.session)),
            expected: self.generation,
        };
        self.arena.push_plan(plan, tag)
    }
}

/// Returns the maximum bytes of each variable field that staging never cuts: one share of the bytes
/// that fixed fields leave (`trackway_i_share` of include/trackway/trackway.h).
fn uncut_bytes(described: &[u8]) -> u16 {
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

/// Compiles the code that fills frames.
fn compile_fill(arena: &mut Arena, framer: &FramerView<'_>) -> Result<Option<Fill>, ArenaFull> {
    if !executable_memory::is_available() {
        return Ok(None);
    }
    let (part, used) = (arena.current(), arena.code_used(CodeKind::Leaf));
    // SAFETY: this thread fills the part, and nothing lies beyond `used`.
    let room =
        unsafe { executable_memory::free_code(CodeKind::Leaf, part, used) }.ok_or(ArenaFull)?;
    match x86::emit_fill(framer, room) {
        Ok(Some(bytes)) => {
            arena.add_code_bytes(CodeKind::Leaf, bytes);
            // SAFETY: that code was just emitted there.
            Ok(Some(unsafe { executable_memory::fill_entry(part, used) }))
        }
        Ok(None) | Err(x86::EmitError::Unsupported) => Ok(None),
        Err(x86::EmitError::NoRoom) => Err(ArenaFull),
    }
}

/// Hashes everything in an alternative (FNV-1a).
fn hash_alternative(alternative: &Alternative<'_>) -> u64 {
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

extern "C" fn random_bits() -> u64 {
    thread::random_bits()
}
