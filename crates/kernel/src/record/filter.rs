//! Filters that the kernel asks before it records an event: docs/design/0011-kernel-recording.md.
//!
//! The filter is the function that it is everywhere in the kernel ([`crate::bpf_filter::adapt`]).
//! What is made here for each event stands in front of it, in the event's own program: what fills
//! the frame's slots from the event's ground, those that the filter asks for and no others. Frames
//! lie in [areas](crate::bpf_filter::area), one for each CPU and level: what interrupts a filter
//! has another one.
//!
//! Invariant: a filter that says no leaves nothing: the buffer has not been looked at, and nothing
//! is counted.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use trackway_console::IoError;
use trackway_jit::Kind;
use trackway_jit::helper::Word;
use trackway_jit::insn::{STACK_END, alu, jump};
use trackway_jit::object::{Alternative, Need, Object};
use trackway_jit::program::Program;
use trackway_jit::verify::{Rules, State, Verified, verify};
use trackway_jit::{CELLS_MAX, SLOTS_MAX};
use trackway_schema::{FieldKind, Scalar};

use super::ahead::{self, Homes, Part};
use super::arguments::{NULL_TEXT, Read};
use super::behind::USER_TEXT_BYTES_MAX;
use super::context::{self, Asked};
use super::layout::LEVELS;
use super::operation;
use super::program::{AT, CONTEXT, Code, Maker, helper, stack};
use super::staging::{Ground, Staged, Step, VARIABLE_BYTES_MAX};
use crate::bpf_filter::adapt::{self, Parts, Unfit};
use crate::bpf_filter::area::{AREA_BYTES_PLAIN, Area, BYTES_AT, REGION_BYTES};
use crate::bpf_filter::pattern::Automata;
use crate::bpf_filter::state::Cells;
use crate::bpf_filter::words::{self, Call};
use crate::bpf_sys::asm::{Asm, Label, Register};
use crate::bpf_sys::bpf::{ArrayMap, constant_map};
use crate::bpf_sys::btf;
use crate::catalogue::model::Location;

/// Bytes of a thread's name, with its NUL (TASK_COMM_LEN).
const NAME_BYTES: u32 = 16;
/// Bytes of a filter's cells.
const CELLS_BYTES: usize = 8 * CELLS_MAX;
/// The most steps that all filters of an event may take with strings, each about two nanoseconds:
/// the event may be one of an interrupt.
pub const STEPS_MAX: u64 = 1 << 17;

/// Memory of all filters of a recording: areas, and what filters remember.
#[derive(Debug)]
pub struct Memory {
    /// For each CPU and level an area; a map of them for filters with the same constants, those
    /// with letters apart.
    areas: BTreeMap<(bool, Vec<u8>), ArrayMap>,
    /// Masks of automata; a map for filters with the same ones.
    masks: BTreeMap<Vec<u8>, ArrayMap>,
    /// The cells of all filters, which all CPUs share.
    cells: ArrayMap,
    cpus: u32,
    filters: usize,
    contexts: Asked,
}

/// Why a filter cannot be asked in the kernel.
#[derive(Debug)]
pub enum FilterError {
    /// It makes no sense: why.
    Object(String),
    /// What it asks for of an event is not to be had there: its path, and why.
    Need(String, &'static str),
    /// The kernel cannot do what it does.
    Unfit(Unfit),
    /// Strings take it, and the other filters of the event, as many steps.
    Steps(u64),
    /// The kernel gives no memory.
    Memory(IoError),
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(why) => f.write_str(why),
            Self::Need(path, why) => write!(f, "'{path}' cannot be asked for in the kernel: {why}"),
            Self::Unfit(unfit) => unfit.fmt(f),
            Self::Steps(steps) => write!(
                f,
                "to compare and search strings may take {steps} steps for one event, with the \
                 event's other filters; in the kernel {STEPS_MAX} are the most"
            ),
            Self::Memory(error) => write!(f, "the kernel gives no memory: {error}"),
        }
    }
}

impl std::error::Error for FilterError {}

/// What a slot is filled with. Offsets are in the event's ground; `place` is where in the area's
/// bytes something is put.
#[derive(Debug, Clone)]
enum Fill {
    Scalar {
        offset: u32,
        scalar: Scalar,
    },
    Argument {
        read: Read,
        scalar: Scalar,
    },
    /// Flags of the letters in so many bytes.
    Operation {
        offset: u32,
        size: u32,
    },
    Text {
        step: Step,
        place: u32,
    },
    Array {
        offset: u32,
        size: u32,
        length: u32,
        place: u32,
    },
    Sequence {
        offset: u32,
        location: Location,
        element: u32,
        place: u32,
    },
    Element {
        offset: u32,
        location: Location,
        scalar: Scalar,
        index: u32,
        place: u32,
    },
    /// A context that is a number.
    Context {
        at: context::Place,
        scalar: Scalar,
    },
    /// The thread's name.
    ThreadName {
        place: u32,
    },
    /// Of what the step of this number has read.
    Ahead {
        step: usize,
        part: Part,
        place: u32,
    },
}

/// A filter, as the program of one event asks it.
#[derive(Debug)]
pub struct Filter {
    /// Its instructions, which were verified.
    program: Vec<u8>,
    fills: Vec<Fill>,
    /// Numbers of the steps that are read before it is asked, in their order.
    ahead: Vec<usize>,
    ground: Ground,
    cells: Cells,
    automata: Automata,
    /// The map of the automata's masks, if there are some.
    masks_fd: Option<i32>,
    /// The map of its areas.
    areas_fd: i32,
    /// The most steps that it takes with strings.
    steps: u64,
}

impl Memory {
    /// For so many filters, which may ask for these contexts.
    ///
    /// # Errors
    ///
    /// If the kernel has no BPF, lets us have none, or has not as much memory.
    pub fn new(cpus: usize, filters: usize, contexts: Asked) -> io::Result<Self> {
        let cpus = u32::try_from(cpus).map_err(|_| io::ErrorKind::InvalidInput)?;
        let cells = ArrayMap::new(filters.max(1) * CELLS_BYTES, 1)?;
        let (areas, masks) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { areas, masks, cells, cpus, filters, contexts })
    }

    /// The contexts that they may ask for.
    pub const fn contexts(&self) -> &Asked {
        &self.contexts
    }

    /// The areas of filters with these constants, with letters or without.
    fn areas(&mut self, constants: &[u8], has_letters: bool) -> Result<i32, FilterError> {
        let key = (has_letters, constants.to_vec());
        if let Some(areas) = self.areas.get(&key) {
            return Ok(areas.fd());
        }
        let long =
            || FilterError::Object(format!("its strings have more than {REGION_BYTES} bytes"));
        let mut area = Area::new(constants).map_err(|_| long())?;
        // Words that its own program makes lie within.
        area.fill(&[], &[0; REGION_BYTES]).map_err(|_| long())?;
        let count = self.cpus * LEVELS as u32;
        let bytes = if has_letters { area.bytes().len() } else { AREA_BYTES_PLAIN };
        let areas =
            ArrayMap::new(bytes, count).map_err(|error| FilterError::Memory(error.into()))?;
        for number in 0..count {
            areas
                .set(number, &mut area.bytes_mut()[..bytes])
                .map_err(|error| FilterError::Memory(error.into()))?;
        }
        let fd = areas.fd();
        self.areas.insert(key, areas);
        Ok(fd)
    }

    /// The map of these masks, if there are some.
    fn masks(&mut self, masks: &[u8]) -> Result<Option<i32>, FilterError> {
        if let Some(known) = self.masks.get(masks) {
            return Ok(Some(known.fd()));
        }
        let Some(map) = constant_map(masks).map_err(|error| FilterError::Memory(error.into()))?
        else {
            return Ok(None);
        };
        let fd = map.fd();
        self.masks.insert(masks.to_vec(), map);
        Ok(Some(fd))
    }
}

impl Filter {
    /// The filter of this object for an event, with the memory of this number; `None`: the event
    /// lacks what it asks for.
    ///
    /// # Errors
    ///
    /// If it cannot be asked in the kernel.
    pub fn new(
        object: &[u8],
        number: usize,
        staged: &Staged,
        memory: &mut Memory,
    ) -> Result<Option<Self>, FilterError> {
        let object = Object::decode(object).map_err(|why| FilterError::Object(why.to_string()))?;
        for alternative in object.alternatives() {
            let Some(fills) = fills(alternative, staged, &memory.contexts)? else { continue };
            let program = alternative.programs().next().map(Program::bytes).unwrap_or_default();
            let at = number.min(memory.filters.saturating_sub(1)) * CELLS_BYTES;
            let count = object.cells().min(CELLS_MAX);
            let cells = Cells::Map { fd: memory.cells.fd(), offset: at as i32, count };
            let ahead = ahead_of(&fills, staged);
            let verified = verified(program, fills.len())?;
            let calls = words::calls(&verified);
            let (automata, masks) = Automata::of(&calls, alternative.constants());
            let steps = steps(&calls, &automata, alternative, &fills);
            let masks_fd = memory.masks(&masks)?;
            let memory_of = adapt::Memory { cells, automata: &automata, masks_fd };
            // Whether it can be put there at all.
            let mut parts = Parts::default();
            parts.filter(&verified, memory_of).map_err(FilterError::Unfit)?;
            let areas_fd = memory.areas(alternative.constants(), parts.has_letters())?;
            let (program, ground) = (program.to_vec(), staged.ground);
            return Ok(Some(Self {
                program,
                fills,
                ahead,
                ground,
                cells,
                automata,
                masks_fd,
                areas_fd,
                steps,
            }));
        }
        Ok(None)
    }

    /// Whether an event may be asked all of these.
    ///
    /// # Errors
    ///
    /// If they may take more than [`STEPS_MAX`].
    pub fn check_steps(filters: &[Self]) -> Result<(), FilterError> {
        let steps = filters.iter().fold(0_u64, |sum, filter| sum.saturating_add(filter.steps));
        if steps > STEPS_MAX { Err(FilterError::Steps(steps)) } else { Ok(()) }
    }

    /// Puts its functions into a program; the label of the first.
    pub(super) fn put(&self, parts: &mut Parts) -> Result<Label, FilterError> {
        let verified = verified(&self.program, self.fills.len())?;
        let Self { cells, ref automata, masks_fd, .. } = *self;
        let memory = adapt::Memory { cells, automata, masks_fd };
        parts.filter(&verified, memory).map_err(FilterError::Unfit)
    }

    /// Fills the frame and asks the filter, which is at this label: goes on behind if it says yes,
    /// else at `out`. The key is that of the CPU's and level's area.
    fn ask(&self, maker: &mut Maker<'_>, homes: &mut Homes, filter: Label, out: Label) {
        let goes_on = maker.asm.label();
        maker.find_area(self.areas_fd, out);
        maker.asm.mov(AT, 0);
        maker.read_ahead(&self.ahead, self.areas_fd, homes, out);
        for (slot, fill) in (0..).zip(&self.fills) {
            self.fill(maker, slot, fill, (goes_on, out));
        }
        let asm = &mut maker.asm;
        asm.mov(1, AT);
        asm.call(filter);
        asm.jumpi(jump::JEQ, 0, 0, out);
        asm.place(goes_on);
    }

    fn fill(&self, maker: &mut Maker<'_>, slot: i16, fill: &Fill, (goes_on, out): (Label, Label)) {
        if let Fill::Ahead { step, part, place } = *fill {
            maker.part((step, part), place, (goes_on, out));
        }
        let asm = &mut maker.asm;
        match *fill {
            Fill::Scalar { offset, scalar } => {
                match self.ground {
                    Ground::Registers => asm.load(1, CONTEXT, offset as i16),
                    _ => load_from_record(asm, offset, scalar.size_bytes() as u32),
                }
                widen(asm, scalar, 1);
            }
            Fill::Argument { read, scalar } => {
                read.load(asm);
                widen(asm, scalar, 1);
            }
            Fill::Operation { offset, size } => operation::load(asm, offset, size),
            Fill::Text { step, place } => text(asm, &step, place),
            Fill::Array { offset, size, length, place } => {
                into_bytes(asm, 1, place);
                asm.movi(2, size as i32);
                asm.mov(3, CONTEXT);
                asm.alui(alu::ADD, 3, offset as i32);
                asm.call_kernel(helper::PROBE_READ_KERNEL);
                asm.wide(1, word(place, length));
            }
            Fill::Sequence { offset, location, element, place } => {
                sequence(asm, (offset, location), element, place);
            }
            Fill::Element { offset, location, scalar, index, place } => {
                let size = scalar.size_bytes() as u32;
                locate(asm, offset, location);
                asm.alui(alu::RSH, 4, 16);
                asm.jumpi(jump::JLT, 4, (size * (index + 1)) as i32, out);
                asm.alui(alu::ADD, 3, (size * index) as i32);
                into_bytes(asm, 1, place);
                asm.movi(2, size as i32);
                asm.call_kernel(helper::PROBE_READ_KERNEL);
                asm.load_of(size, 1, AT, BYTES_AT + place as i16);
                widen(asm, scalar, 1);
            }
            Fill::Context { ref at, scalar } => {
                at.ask(asm, self.ground);
                widen(asm, scalar, 1);
            }
            Fill::ThreadName { place } => thread_name(asm, place),
            Fill::Ahead { .. } => {}
        }
        asm.store(AT, 8 * slot, 1);
    }
}

/// Asks all filters, one after the other: goes on behind if none says no, else at `out`. The labels
/// of their functions, for [`finish`]; and what has been read for them.
pub(super) fn ask(maker: &mut Maker<'_>, filters: &[Filter], out: Label) -> (Vec<Label>, Homes) {
    let labels: Vec<Label> = filters.iter().map(|_| maker.asm.label()).collect();
    let mut homes = Homes::new();
    if filters.is_empty() {
        return (labels, homes);
    }
    maker.prepare();
    let asm = &mut maker.asm;
    asm.storei(STACK_END, stack::MISSING, 0);
    // The CPU's number becomes that of its area of this level.
    asm.load_of(4, 1, STACK_END, stack::KEY);
    asm.alui(alu::MUL, 1, LEVELS as i32);
    asm.load(2, STACK_END, stack::DEPTH);
    asm.alu(alu::ADD, 1, 2);
    asm.store_of(4, STACK_END, stack::KEY, 1);
    for (filter, label) in filters.iter().zip(&labels) {
        filter.ask(maker, &mut homes, *label, out);
    }
    (labels, homes)
}

/// A filter's program, of an event with so many slots.
fn verified(program: &[u8], slots: usize) -> Result<Verified<'_>, FilterError> {
    let none = || FilterError::Object("it has no program".into());
    let program = Program::new(program).ok_or_else(none)?;
    let mut states = vec![State::FREE; program.len() + 1];
    verify(program, Rules::new(slots), &mut states)
        .map_err(|rejection| FilterError::Object(rejection.to_string()))
}

/// The most steps that these calls take with strings.
fn steps(calls: &[Call], automata: &Automata, of: Alternative<'_>, fills: &[Fill]) -> u64 {
    let word_bytes = |(need, fill): (Need<'_>, &Fill)| match (need.kind, fill) {
        (Kind::String, Fill::Text { step, .. }) => text_bytes(step),
        (Kind::String, Fill::Context { .. }) => NAME_BYTES,
        (Kind::String, Fill::Ahead { part, .. }) => part.own_bytes().max(USER_TEXT_BYTES_MAX),
        // What the program takes for a word may speak of all there is.
        _ => REGION_BYTES as u32,
    };
    let bytes: Vec<u32> = of.needs().zip(fills).map(word_bytes).collect();
    let is_known = |call: &Call| automata.places.contains_key(&call.at);
    words::steps(calls, is_known, |slot| bytes.get(slot).copied().unwrap_or(REGION_BYTES as u32))
}

/// The steps that have to be read for these.
fn ahead_of(fills: &[Fill], staged: &Staged) -> Vec<usize> {
    let owners = fills.iter().filter_map(|fill| match fill {
        Fill::Ahead { step, .. } => Some(*step),
        _ => None,
    });
    let mut steps: Vec<usize> = owners.flat_map(|owner| ahead::steps_for(staged, owner)).collect();
    steps.sort_unstable();
    steps.dedup();
    steps
}

/// Puts the filters' functions behind a program, and ends it; `None`: it is too long.
pub(super) fn finish(asm: Asm, filters: &[Filter], labels: &[Label]) -> Option<Code> {
    if filters.is_empty() {
        return Some(Code { bytes: asm.bytes()?, types: None });
    }
    let mut parts = Parts::default();
    parts.asm = asm;
    parts.asm.functions.push((0, "trackway".to_owned()));
    for (filter, label) in filters.iter().zip(labels) {
        let first = filter.put(&mut parts).ok()?;
        parts.asm.alias(*label, first);
    }
    parts.write_pieces();
    let types = btf::of(&parts.asm.functions);
    Some(Code { bytes: parts.asm.bytes()?, types: Some(types) })
}

/// How the slots of a frame are filled; `None`: the event lacks something.
fn fills(
    of: Alternative<'_>,
    staged: &Staged,
    contexts: &Asked,
) -> Result<Option<Vec<Fill>>, FilterError> {
    let mut used = ahead::end(staged);
    let mut fills = Vec::new();
    for need in of.needs().take(SLOTS_MAX) {
        let found = match need.path.strip_prefix("$ctx.") {
            Some(name) => context(contexts, name, need.kind, used),
            None => fill(need, staged, used)?,
        };
        let Some((fill, bytes)) = found else { return Ok(None) };
        used += bytes.next_multiple_of(8);
        if used > REGION_BYTES as u32 {
            let why = "there is no room for as many strings and sequences";
            return Err(FilterError::Need(need.path.to_owned(), why));
        }
        fills.push(fill);
    }
    Ok(Some(fills))
}

/// The same, with a context.
fn context(contexts: &Asked, name: &str, kind: Kind, place: u32) -> Option<(Fill, u32)> {
    let (context, at) = contexts.named(name)?;
    Some(match (context.scalar(), at) {
        (Some(scalar), Some(at)) if kind_of(scalar) == kind => {
            (Fill::Context { at: at.clone(), scalar }, 0)
        }
        (None, _) if kind == Kind::String => (Fill::ThreadName { place }, 2 * NAME_BYTES),
        _ => return None,
    })
}

/// How a slot is filled, and how many bytes that takes from `place` on.
fn fill(need: Need<'_>, staged: &Staged, place: u32) -> Result<Option<(Fill, u32)>, FilterError> {
    let (name, index) = split_index(need.path);
    let mut fields = staged.description.fields.iter().zip(&staged.steps).enumerate();
    let Some((number, (field, step))) = fields.find(|(_, (field, _))| field.name == name) else {
        return Ok(None);
    };
    let Some(kind) = kind_at(&field.kind, index).filter(|kind| *kind == need.kind) else {
        return Ok(None);
    };
    if let Some(owner) = ahead::owner(staged, number)
        && ahead::is_ahead(&staged.steps[owner.0])
    {
        let part = ahead::part(staged, owner, &field.kind, index);
        let fill = |part: Part| (Fill::Ahead { step: owner.0, part, place }, part.own_bytes());
        return Ok(part.map(fill));
    }
    let (index, size) = (index.unwrap_or(0), element_bytes(&field.kind));
    Ok(Some(match (kind, &field.kind, *step) {
        (
            Kind::Signed | Kind::Unsigned,
            FieldKind::Scalar(scalar)
            | FieldKind::Enumeration(scalar, _)
            | FieldKind::Array(scalar, _),
            Step::Copy { offset, .. } | Step::Register { offset, .. },
        ) => (Fill::Scalar { offset: offset + index * size, scalar: *scalar }, 0),
        (
            Kind::Signed | Kind::Unsigned,
            FieldKind::Scalar(scalar) | FieldKind::Enumeration(scalar, _),
            Step::Argument(read),
        ) => (Fill::Argument { read, scalar: *scalar }, 0),
        (Kind::Signed | Kind::Unsigned, _, Step::Operation { offset, size }) => {
            (Fill::Operation { offset, size }, 0)
        }
        (Kind::String, _, step) if text_bytes(&step) > 0 => {
            (Fill::Text { step, place }, text_bytes(&step))
        }
        (Kind::Sequence, FieldKind::Array(_, length), Step::Copy { offset, size }) => {
            (Fill::Array { offset, size, length: (*length).into(), place }, size)
        }
        (Kind::Sequence, FieldKind::Sequence(_), Step::Dynamic(offset, location, element)) => {
            (Fill::Sequence { offset, location, element, place }, VARIABLE_BYTES_MAX)
        }
        (_, FieldKind::Sequence(scalar), Step::Dynamic(offset, location, element)) => {
            if index >= VARIABLE_BYTES_MAX / element {
                // What would be behind what is recorded of it is not there.
                return Ok(None);
            }
            (Fill::Element { offset, location, scalar: *scalar, index, place }, 8)
        }
        _ => {
            let why = "it is looked for only when the event is recorded";
            return Err(FilterError::Need(name.to_owned(), why));
        }
    }))
}

/// What a field, or an element of it, can be taken for; `None`: for nothing.
pub(crate) const fn kind_at(field: &FieldKind, index: Option<u32>) -> Option<Kind> {
    Some(match (field, index) {
        (FieldKind::Scalar(scalar) | FieldKind::Enumeration(scalar, _), None) => kind_of(*scalar),
        (FieldKind::Array(scalar, length), Some(index)) if index < *length as u32 => {
            kind_of(*scalar)
        }
        (FieldKind::Sequence(scalar), Some(_)) => kind_of(*scalar),
        (FieldKind::Array(..) | FieldKind::Sequence(_), None) => Kind::Sequence,
        (FieldKind::Str | FieldKind::Text, None) | (FieldKind::Strings, Some(_)) => Kind::String,
        _ => return None,
    })
}

/// Bytes of an integer of a field.
pub(super) fn element_bytes(field: &FieldKind) -> u32 {
    match field {
        FieldKind::Scalar(scalar)
        | FieldKind::Enumeration(scalar, _)
        | FieldKind::Array(scalar, _)
        | FieldKind::Sequence(scalar) => scalar.size_bytes() as u32,
        _ => 0,
    }
}

/// As much of a text as is recorded, with its NUL, in bytes; 0 of what is none.
const fn text_bytes(step: &Step) -> u32 {
    match step {
        Step::Text { size, .. } => *size,
        Step::DynamicText(..) => VARIABLE_BYTES_MAX,
        Step::Argument(read) => read.bytes_max(),
        _ => 0,
    }
}

/// A path's name and index: `ids[3]`.
pub(crate) fn split_index(path: &str) -> (&str, Option<u32>) {
    let parts = path.strip_suffix(']').and_then(|inner| inner.rsplit_once('['));
    match parts.map(|(name, index)| (name, index.parse())) {
        Some((name, Ok(index))) => (name, Some(index)),
        _ => (path, None),
    }
}

const fn kind_of(scalar: Scalar) -> Kind {
    match scalar {
        _ if scalar.is_float() => Kind::Float,
        _ if scalar.is_signed() => Kind::Signed,
        _ => Kind::Unsigned,
    }
}

pub(super) const fn word(offset: u32, length: u32) -> u64 {
    Word { offset, length, is_constant: false }.to_bits()
}

/// Where in the area's bytes something is put.
pub(super) fn into_bytes(asm: &mut Asm, register: Register, place: u32) {
    asm.mov(register, AT);
    asm.alui(alu::ADD, register, i32::from(BYTES_AT) + place as i32);
}

/// Loads so many bytes of the tracepoint's record into register 1. The verifier has each load at a
/// multiple of its size.
pub(super) fn load_from_record(asm: &mut Asm, offset: u32, size: u32) {
    let unit = [8, 4, 2, 1].into_iter().find(|unit| offset.is_multiple_of(*unit) && *unit <= size);
    let unit = unit.unwrap_or(1);
    asm.load_of(unit, 1, CONTEXT, offset as i16);
    for done in (unit..size).step_by(unit as usize) {
        asm.load_of(unit, 2, CONTEXT, (offset + done) as i16);
        asm.alui(alu::LSH, 2, 8 * done as i32);
        asm.alu(alu::OR, 1, 2);
    }
}

/// Of what is in a register, as many bytes as the scalar has, as a slot has it.
pub(super) fn widen(asm: &mut Asm, scalar: Scalar, register: Register) {
    let unused = 64 - 8 * scalar.size_bytes() as i32;
    if unused > 0 {
        asm.alui(alu::LSH, register, unused);
        let shift = if scalar.is_signed() { alu::ARSH } else { alu::RSH };
        asm.alui(shift, register, unused);
    }
    if scalar == Scalar::Bool {
        let done = asm.label();
        asm.jumpi(jump::JEQ, register, 0, done);
        asm.movi(register, 1);
        asm.place(done);
    }
}

/// The address of what the word at `offset` speaks of, in r3; the word, in r4.
fn locate(asm: &mut Asm, offset: u32, location: Location) {
    asm.load_of(4, 4, CONTEXT, offset as i16);
    asm.mov(3, 4);
    asm.alui(alu::AND, 3, 0xffff);
    if location == Location::Relative {
        asm.alui(alu::ADD, 3, offset as i32 + 4);
    }
    asm.alu(alu::ADD, 3, CONTEXT);
}

/// Reads a text of the kernel's, and makes its word in r1.
fn text(asm: &mut Asm, step: &Step, place: u32) {
    let is_read = asm.label();
    let helper = match *step {
        Step::Argument(read) => {
            read.load_text(asm);
            let is_there = asm.label();
            asm.jumpi(jump::JNE, 3, 0, is_there);
            into_bytes(asm, 1, place);
            asm.wide(2, u64::from_le_bytes(*NULL_TEXT));
            asm.store(1, 0, 2);
            asm.movi(0, 7);
            asm.goto(is_read);
            asm.place(is_there);
            helper::PROBE_READ_KERNEL_STR
        }
        Step::DynamicText(offset, location) => {
            locate(asm, offset, location);
            helper::PROBE_READ_KERNEL_STR
        }
        _ => {
            let offset = if let Step::Text { offset, .. } = step { *offset } else { 0 };
            asm.mov(3, CONTEXT);
            asm.alui(alu::ADD, 3, offset as i32);
            helper::PROBE_READ_KERNEL_STR
        }
    };
    into_bytes(asm, 1, place);
    asm.movi(2, text_bytes(step) as i32);
    asm.call_kernel(helper);
    asm.place(is_read);
    length_to_word(asm, place);
}

/// Of the length, with its NUL, that r0 says, the word of the text at `place`, in r1.
pub(super) fn length_to_word(asm: &mut Asm, place: u32) {
    let (is_read, done) = (asm.label(), asm.label());
    asm.movi(1, 0);
    asm.jumpi(jump::JSGT, 0, 0, is_read);
    asm.goto(done);
    asm.place(is_read);
    asm.mov(1, 0);
    asm.alui(alu::ADD, 1, -1);
    asm.alui(alu::LSH, 1, 32);
    asm.alui(alu::OR, 1, place as i32);
    asm.place(done);
}

/// Reads a sequence, and makes its word in r1.
fn sequence(asm: &mut Asm, (offset, location): (u32, Location), element: u32, place: u32) {
    let is_short = asm.label();
    locate(asm, offset, location);
    asm.alui(alu::RSH, 4, 16);
    asm.jumpi(jump::JLE, 4, VARIABLE_BYTES_MAX as i32, is_short);
    asm.movi(4, VARIABLE_BYTES_MAX as i32);
    asm.place(is_short);
    asm.mov(2, 4);
    asm.alui(alu::AND, 2, -(element as i32));
    asm.store(STACK_END, stack::NOW, 2);
    into_bytes(asm, 1, place);
    asm.call_kernel(helper::PROBE_READ_KERNEL);
    asm.load(1, STACK_END, stack::NOW);
    asm.alui(alu::RSH, 1, element.trailing_zeros() as i32);
    asm.alui(alu::LSH, 1, 32);
    asm.alui(alu::OR, 1, place as i32);
}

/// The word of the thread's name, in r1.
fn thread_name(asm: &mut Asm, place: u32) {
    into_bytes(asm, 1, place + NAME_BYTES);
    asm.movi(2, NAME_BYTES as i32);
    asm.call_kernel(helper::GET_CURRENT_COMM);
    // Once more, to be told how long it is.
    into_bytes(asm, 3, place + NAME_BYTES);
    into_bytes(asm, 1, place);
    asm.movi(2, NAME_BYTES as i32);
    asm.call_kernel(helper::PROBE_READ_KERNEL_STR);
    length_to_word(asm, place);
}
