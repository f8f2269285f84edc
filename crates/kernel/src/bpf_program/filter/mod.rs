//! Filters that the kernel runs before it records an event: docs/design/0011-kernel-recording.md.
//! [`slots`] generates the code that loads values.
//!
//! Longer than 600 lines: slot sources and their code must agree.
//!
//! Like every filter in the kernel, the filter is a function ([`crate::bpf_filter::translate`]).
//! This module generates the code before it, in each event's program: the code fills the frame
//! slots that the filter reads, from the event's data source. Frames lie in [scratch
//! areas](crate::bpf_filter::scratch), one for each CPU and level, so an event that interrupts a
//! filter has another frame.
//!
//! Invariant: an event that a filter rejects has no effect: the program has not read the buffer's
//! state, and increments no counter.

mod slots;

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use trackway_console::IoError;
use trackway_jit::Kind;
use trackway_jit::insn::{STACK_END, alu, jump};
use trackway_jit::object::{Alternative, Need, Object};
use trackway_jit::program::Program;
use trackway_jit::verify::{Rules, State, Verified, verify};
use trackway_jit::{CELLS_MAX, SLOTS_MAX};
use trackway_schema::{FieldKind, Scalar};

use super::arguments::ArgumentRead;
use super::codegen::{AT, CONTEXT, ProgramBuilder, ProgramCode, helper, stack};
use super::contexts::{self, FilterContexts};
use super::layout::LEVELS;
use super::plan::{DataSource, EventPlan, Step, VARIABLE_BYTES_MAX};
use super::pointer_fields::USER_TEXT_BYTES_MAX;
use super::pointer_prefetch::{self, OutputPart, PrefetchMaps};
use super::request_flags;
use crate::bpf_filter::helper_cost::{self, StringCall};
use crate::bpf_filter::pattern::Automata;
use crate::bpf_filter::scratch::{AREA_BYTES_PLAIN, BYTES_AT, REGION_BYTES, ScratchArea};
use crate::bpf_filter::state::Cells;
use crate::bpf_filter::translate::{FilterAssembler, FilterMemory, Unsupported};
use crate::bpf_sys::asm::{Asm, Label};
use crate::bpf_sys::bpf::{ArrayMap, create_constant_map};
use crate::bpf_sys::btf;
use crate::catalogue::model::Location;

pub(in crate::bpf_program) use slots::{
    extend_to_slot, load_from_record, load_scratch_address, make_word, text_word,
};
use slots::{locate_data, read_sequence, read_text, read_thread_name, text_bytes};

/// Size of a thread's name, with its NUL (TASK_COMM_LEN).
const NAME_BYTES: u32 = 16;
/// Size of a filter's cells in bytes.
const CELLS_BYTES: usize = 8 * CELLS_MAX;
/// The most string steps of all filters of an event, about two nanoseconds for each step. The event
/// may occur in an interrupt.
pub const STEPS_MAX: u64 = 1 << 17;

/// Kernel maps for all filters of a recording: scratch areas, automata and filter state.
#[derive(Debug)]
pub struct FilterMaps {
    /// Maps of scratch areas for each CPU and level, one map for filters with equal constants;
    /// filters with an automaton's letters have separate maps.
    areas: BTreeMap<(bool, Vec<u8>), ArrayMap>,
    /// Maps of automaton masks, one map for filters with equal masks.
    masks: BTreeMap<Vec<u8>, ArrayMap>,
    /// The cells of all filters, shared by all CPUs.
    cells: ArrayMap,
    cpus: u32,
    filters: usize,
    contexts: FilterContexts,
}

/// The reason why a filter cannot run in the kernel.
#[derive(Debug)]
pub enum FilterError {
    /// The filter object is invalid, for this reason.
    Object(String),
    /// The program cannot read a field of the event: its path, and the reason.
    MissingField(String, &'static str),
    /// The kernel cannot run an instruction of the filter.
    Unsupported(Unsupported),
    /// The string steps of the event's filters exceed [`STEPS_MAX`].
    Steps(u64),
    /// The kernel has no memory for the filter's maps.
    Memory(IoError),
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(why) => f.write_str(why),
            Self::MissingField(path, why) => {
                write!(f, "the kernel cannot filter on '{path}': {why}")
            }
            Self::Unsupported(reason) => reason.fmt(f),
            Self::Steps(steps) => write!(
                f,
                "the string operations of the event's filters may take {steps} steps; the kernel \
                 allows {STEPS_MAX}"
            ),
            Self::Memory(error) => write!(f, "cannot allocate kernel memory: {error}"),
        }
    }
}

impl std::error::Error for FilterError {}

/// The source of a slot's value. Offsets refer to the event's data source; `scratch_at` is an
/// offset in the scratch bytes.
#[derive(Debug, Clone)]
enum SlotSource {
    Scalar {
        offset: u32,
        scalar: Scalar,
    },
    Argument {
        read: ArgumentRead,
        scalar: Scalar,
    },
    /// The flags that a block request's letters represent.
    Operation {
        offset: u32,
        size: u32,
    },
    Text {
        step: Step,
        scratch_at: u32,
    },
    Array {
        offset: u32,
        size: u32,
        length: u32,
        scratch_at: u32,
    },
    Sequence {
        offset: u32,
        location: Location,
        element: u32,
        scratch_at: u32,
    },
    Element {
        offset: u32,
        location: Location,
        scalar: Scalar,
        index: u32,
        scratch_at: u32,
    },
    /// A numeric context.
    Context {
        at: contexts::ContextLocation,
        scalar: Scalar,
    },
    /// The thread's name.
    ThreadName {
        scratch_at: u32,
    },
    /// A part of the prefetched output of step `step`.
    Prefetched {
        step: usize,
        part: OutputPart,
        scratch_at: u32,
    },
}

/// A filter prepared for one event's program.
#[derive(Debug)]
pub struct Filter {
    /// The verified instructions of the filter.
    program: Vec<u8>,
    sources: Vec<SlotSource>,
    /// Indices of the steps to read before the filter runs, in order.
    prefetched: Vec<usize>,
    data_source: DataSource,
    cells: Cells,
    automata: Automata,
    /// The map of the automata's masks, if the filter has automata.
    masks_fd: Option<i32>,
    /// The map of the scratch areas.
    areas_fd: i32,
    /// The most string steps that the filter takes.
    steps: u64,
}

impl FilterMaps {
    /// Creates maps for `filters` filters that may read these contexts.
    ///
    /// # Errors
    ///
    /// If BPF is not available to this process, or the kernel has too little memory.
    pub fn new(cpus: usize, filters: usize, contexts: FilterContexts) -> io::Result<Self> {
        let cpus = u32::try_from(cpus).map_err(|_| io::ErrorKind::InvalidInput)?;
        let cells = ArrayMap::new(filters.max(1) * CELLS_BYTES, 1)?;
        let (areas, masks) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { areas, masks, cells, cpus, filters, contexts })
    }

    /// Returns the contexts that filters may read.
    pub const fn contexts(&self) -> &FilterContexts {
        &self.contexts
    }

    /// Returns the map of scratch areas for filters with these constants.
    fn areas(&mut self, constants: &[u8], has_letters: bool) -> Result<i32, FilterError> {
        let key = (has_letters, constants.to_vec());
        if let Some(areas) = self.areas.get(&key) {
            return Ok(areas.fd());
        }
        let long = || FilterError::Object(format!("its strings exceed {REGION_BYTES} bytes"));
        let mut area = ScratchArea::new(constants).map_err(|_| long())?;
        // The words that the program writes are within this range.
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

    /// Returns the map of these masks; `None`: there are no masks.
    fn masks(&mut self, masks: &[u8]) -> Result<Option<i32>, FilterError> {
        if let Some(known) = self.masks.get(masks) {
            return Ok(Some(known.fd()));
        }
        let Some(map) =
            create_constant_map(masks).map_err(|error| FilterError::Memory(error.into()))?
        else {
            return Ok(None);
        };
        let fd = map.fd();
        self.masks.insert(masks.to_vec(), map);
        Ok(Some(fd))
    }
}

impl Filter {
    /// Prepares the filter of this object for an event; `number` selects the filter's cells.
    /// `None`: the event lacks a field that the filter reads.
    ///
    /// # Errors
    ///
    /// If the filter cannot run in the kernel.
    pub fn new(
        object: &[u8],
        number: usize,
        plan: &EventPlan,
        memory: &mut FilterMaps,
    ) -> Result<Option<Self>, FilterError> {
        let object = Object::decode(object).map_err(|why| FilterError::Object(why.to_string()))?;
        for alternative in object.alternatives() {
            let Some(sources) = slot_sources(alternative, plan, &memory.contexts)? else {
                continue;
            };
            let program = alternative.programs().next().map(Program::bytes).unwrap_or_default();
            let at = number.min(memory.filters.saturating_sub(1)) * CELLS_BYTES;
            let count = object.cells().min(CELLS_MAX);
            let cells = Cells::Map { fd: memory.cells.fd(), offset: at as i32, count };
            let prefetched = prefetched_steps(&sources, plan);
            let verified = verify_program(program, sources.len())?;
            let calls = helper_cost::find_string_calls(&verified);
            let (automata, masks) = Automata::build(&calls, alternative.constants());
            let steps = string_steps(&calls, &automata, alternative, &sources);
            let masks_fd = memory.masks(&masks)?;
            let memory_of = FilterMemory { cells, automata: &automata, masks_fd };
            // A trial run finds unsupported instructions.
            let mut assembler = FilterAssembler::default();
            assembler.add_filter(&verified, memory_of).map_err(FilterError::Unsupported)?;
            let areas_fd = memory.areas(alternative.constants(), assembler.has_letters())?;
            let (program, data_source) = (program.to_vec(), plan.data_source);
            return Ok(Some(Self {
                program,
                sources,
                prefetched,
                data_source,
                cells,
                automata,
                masks_fd,
                areas_fd,
                steps,
            }));
        }
        Ok(None)
    }

    /// Checks that an event may have all these filters together.
    ///
    /// # Errors
    ///
    /// If the filters may take more steps than [`STEPS_MAX`].
    pub fn check_steps(filters: &[Self]) -> Result<(), FilterError> {
        let steps = filters.iter().fold(0_u64, |sum, filter| sum.saturating_add(filter.steps));
        if steps > STEPS_MAX { Err(FilterError::Steps(steps)) } else { Ok(()) }
    }

    /// Adds the filter's functions to a program and returns the label of the first function.
    pub(super) fn add_functions(
        &self,
        assembler: &mut FilterAssembler,
    ) -> Result<Label, FilterError> {
        let verified = verify_program(&self.program, self.sources.len())?;
        let Self { cells, ref automata, masks_fd, .. } = *self;
        let memory = FilterMemory { cells, automata, masks_fd };
        assembler.add_filter(&verified, memory).map_err(FilterError::Unsupported)
    }

    /// Fills the frame and calls the filter at label `filter`. Continues if the filter passes the
    /// event, otherwise jumps to `out`. The key slot has the index of the scratch area.
    fn run(
        &self,
        builder: &mut ProgramBuilder<'_>,
        prefetched: &mut PrefetchMaps,
        filter: Label,
        out: Label,
    ) {
        let goes_on = builder.asm.new_label();
        builder.find_scratch(self.areas_fd, out);
        builder.asm.mov(AT, 0);
        builder.prefetch(&self.prefetched, self.areas_fd, prefetched, out);
        for (slot, source) in (0..).zip(&self.sources) {
            self.fill_slot(builder, slot, source, (goes_on, out));
        }
        let asm = &mut builder.asm;
        asm.mov(1, AT);
        asm.call(filter);
        asm.jumpi(jump::JEQ, 0, 0, out);
        asm.place_label(goes_on);
    }

    fn fill_slot(
        &self,
        builder: &mut ProgramBuilder<'_>,
        slot: i16,
        source: &SlotSource,
        (goes_on, out): (Label, Label),
    ) {
        if let SlotSource::Prefetched { step, part, scratch_at } = *source {
            builder.load_part((step, part), scratch_at, (goes_on, out));
        }
        let asm = &mut builder.asm;
        match *source {
            SlotSource::Scalar { offset, scalar } => {
                match self.data_source {
                    DataSource::Registers => asm.load(1, CONTEXT, offset as i16),
                    _ => load_from_record(asm, offset, scalar.size_bytes() as u32),
                }
                extend_to_slot(asm, scalar, 1);
            }
            SlotSource::Argument { read, scalar } => {
                read.load(asm);
                extend_to_slot(asm, scalar, 1);
            }
            SlotSource::Operation { offset, size } => request_flags::load_flags(asm, offset, size),
            SlotSource::Text { step, scratch_at } => read_text(asm, &step, scratch_at),
            SlotSource::Array { offset, size, length, scratch_at } => {
                load_scratch_address(asm, 1, scratch_at);
                asm.movi(2, size as i32);
                asm.mov(3, CONTEXT);
                asm.alui(alu::ADD, 3, offset as i32);
                asm.call_kernel(helper::PROBE_READ_KERNEL);
                asm.load_wide(1, text_word(scratch_at, length));
            }
            SlotSource::Sequence { offset, location, element, scratch_at } => {
                read_sequence(asm, (offset, location), element, scratch_at);
            }
            SlotSource::Element { offset, location, scalar, index, scratch_at } => {
                let size = scalar.size_bytes() as u32;
                locate_data(asm, offset, location);
                asm.alui(alu::RSH, 4, 16);
                asm.jumpi(jump::JLT, 4, (size * (index + 1)) as i32, out);
                asm.alui(alu::ADD, 3, (size * index) as i32);
                load_scratch_address(asm, 1, scratch_at);
                asm.movi(2, size as i32);
                asm.call_kernel(helper::PROBE_READ_KERNEL);
                asm.load_sized(size, 1, AT, BYTES_AT + scratch_at as i16);
                extend_to_slot(asm, scalar, 1);
            }
            SlotSource::Context { ref at, scalar } => {
                at.load_for_filter(asm, self.data_source);
                extend_to_slot(asm, scalar, 1);
            }
            SlotSource::ThreadName { scratch_at } => read_thread_name(asm, scratch_at),
            SlotSource::Prefetched { .. } => {}
        }
        asm.store(AT, 8 * slot, 1);
    }
}

/// Runs all filters in turn. Continues if all pass, otherwise jumps to `out`. Returns the labels of
/// the filter functions, for [`finish_program`], and the maps of prefetched steps.
pub(super) fn run_filters(
    builder: &mut ProgramBuilder<'_>,
    filters: &[Filter],
    out: Label,
) -> (Vec<Label>, PrefetchMaps) {
    let labels: Vec<Label> = filters.iter().map(|_| builder.asm.new_label()).collect();
    let mut prefetched = PrefetchMaps::new();
    if filters.is_empty() {
        return (labels, prefetched);
    }
    builder.init_user_steps();
    let asm = &mut builder.asm;
    asm.storei(STACK_END, stack::MISSING, 0);
    // Computes the index of this level's scratch area from the CPU's number.
    asm.load_sized(4, 1, STACK_END, stack::KEY);
    asm.alui(alu::MUL, 1, LEVELS as i32);
    asm.load(2, STACK_END, stack::DEPTH);
    asm.alu(alu::ADD, 1, 2);
    asm.store_sized(4, STACK_END, stack::KEY, 1);
    for (filter, label) in filters.iter().zip(&labels) {
        filter.run(builder, &mut prefetched, *label, out);
    }
    (labels, prefetched)
}

/// Verifies a filter's program for a frame with this number of slots.
fn verify_program(program: &[u8], slots: usize) -> Result<Verified<'_>, FilterError> {
    let none = || FilterError::Object("it has no program".into());
    let program = Program::new(program).ok_or_else(none)?;
    let mut states = vec![State::FREE; program.len() + 1];
    verify(program, Rules::new(slots), &mut states)
        .map_err(|rejection| FilterError::Object(rejection.to_string()))
}

/// Returns the most string steps that these calls take.
fn string_steps(
    calls: &[StringCall],
    automata: &Automata,
    of: Alternative<'_>,
    sources: &[SlotSource],
) -> u64 {
    let word_bytes = |(need, source): (Need<'_>, &SlotSource)| match (need.kind, source) {
        (Kind::String, SlotSource::Text { step, .. }) => text_bytes(step),
        (Kind::String, SlotSource::Context { .. }) => NAME_BYTES,
        (Kind::String, SlotSource::Prefetched { part, .. }) => {
            part.own_bytes().max(USER_TEXT_BYTES_MAX)
        }
        // The program may create a word that covers all bytes.
        _ => REGION_BYTES as u32,
    };
    let bytes: Vec<u32> = of.needs().zip(sources).map(word_bytes).collect();
    let is_known = |call: &StringCall| automata.by_call.contains_key(&call.at);
    helper_cost::steps_max(calls, is_known, |slot| {
        bytes.get(slot).copied().unwrap_or(REGION_BYTES as u32)
    })
}

/// Returns the steps that the program must prefetch for these slots.
fn prefetched_steps(sources: &[SlotSource], plan: &EventPlan) -> Vec<usize> {
    let owners = sources.iter().filter_map(|source| match source {
        SlotSource::Prefetched { step, .. } => Some(*step),
        _ => None,
    });
    let mut steps: Vec<usize> =
        owners.flat_map(|owner| pointer_prefetch::steps_to_prefetch(plan, owner)).collect();
    steps.sort_unstable();
    steps.dedup();
    steps
}

/// Adds the filters' functions after a program, and finishes it. `None`: the program is too long.
pub(super) fn finish_program(
    asm: Asm,
    filters: &[Filter],
    labels: &[Label],
) -> Option<ProgramCode> {
    if filters.is_empty() {
        return Some(ProgramCode { bytes: asm.bytes()?, types: None });
    }
    let mut assembler = FilterAssembler::default();
    assembler.asm = asm;
    assembler.asm.functions.push((0, "trackway".to_owned()));
    for (filter, label) in filters.iter().zip(labels) {
        let first = filter.add_functions(&mut assembler).ok()?;
        assembler.asm.alias_label(*label, first);
    }
    assembler.write_helpers();
    let types = btf::describe_functions(&assembler.asm.functions);
    Some(ProgramCode { bytes: assembler.asm.bytes()?, types: Some(types) })
}

/// Returns the sources of a frame's slots. `None`: the event lacks a field of the filter.
fn slot_sources(
    of: Alternative<'_>,
    plan: &EventPlan,
    contexts: &FilterContexts,
) -> Result<Option<Vec<SlotSource>>, FilterError> {
    let mut used = pointer_prefetch::own_bytes_offset(plan);
    let mut sources = Vec::new();
    for need in of.needs().take(SLOTS_MAX) {
        let found = match need.path.strip_prefix("$ctx.") {
            Some(name) => context_source(contexts, name, need.kind, used),
            None => field_source(need, plan, used)?,
        };
        let Some((source, bytes)) = found else { return Ok(None) };
        used += bytes.next_multiple_of(8);
        if used > REGION_BYTES as u32 {
            let why = "too many strings and sequences";
            return Err(FilterError::MissingField(need.path.to_owned(), why));
        }
        sources.push(source);
    }
    Ok(Some(sources))
}

/// Returns the source of a context, and its number of scratch bytes.
fn context_source(
    contexts: &FilterContexts,
    name: &str,
    kind: Kind,
    scratch_at: u32,
) -> Option<(SlotSource, u32)> {
    let (context, at) = contexts.named(name)?;
    Some(match (context.scalar(), at) {
        (Some(scalar), Some(at)) if kind_of(scalar) == kind => {
            (SlotSource::Context { at: at.clone(), scalar }, 0)
        }
        (None, _) if kind == Kind::String => {
            (SlotSource::ThreadName { scratch_at }, 2 * NAME_BYTES)
        }
        _ => return None,
    })
}

/// Returns the source of a field, and its number of scratch bytes, which begin at `scratch_at`.
fn field_source(
    need: Need<'_>,
    plan: &EventPlan,
    scratch_at: u32,
) -> Result<Option<(SlotSource, u32)>, FilterError> {
    let (name, index) = split_index(need.path);
    let mut fields = plan.description.fields.iter().zip(&plan.steps).enumerate();
    let Some((number, (field, step))) = fields.find(|(_, (field, _))| field.name == name) else {
        return Ok(None);
    };
    let Some(kind) = kind_at(&field.kind, index).filter(|kind| *kind == need.kind) else {
        return Ok(None);
    };
    if let Some(owner) = pointer_prefetch::owning_step(plan, number)
        && pointer_prefetch::is_prefetched(&plan.steps[owner.0])
    {
        let part = pointer_prefetch::output_part(plan, owner, &field.kind, index);
        let source = |part: OutputPart| {
            (SlotSource::Prefetched { step: owner.0, part, scratch_at }, part.own_bytes())
        };
        return Ok(part.map(source));
    }
    let (index, size) = (index.unwrap_or(0), element_bytes(&field.kind));
    Ok(Some(match (kind, &field.kind, *step) {
        (
            Kind::Signed | Kind::Unsigned,
            FieldKind::Scalar(scalar)
            | FieldKind::Enumeration(scalar, _)
            | FieldKind::Array(scalar, _),
            Step::Copy { offset, .. } | Step::Register { offset, .. },
        ) => (SlotSource::Scalar { offset: offset + index * size, scalar: *scalar }, 0),
        (
            Kind::Signed | Kind::Unsigned,
            FieldKind::Scalar(scalar) | FieldKind::Enumeration(scalar, _),
            Step::Argument(read),
        ) => (SlotSource::Argument { read, scalar: *scalar }, 0),
        (Kind::Signed | Kind::Unsigned, _, Step::RequestFlags { offset, size }) => {
            (SlotSource::Operation { offset, size }, 0)
        }
        (Kind::String, _, step) if text_bytes(&step) > 0 => {
            (SlotSource::Text { step, scratch_at }, text_bytes(&step))
        }
        (Kind::Sequence, FieldKind::Array(_, length), Step::Copy { offset, size }) => {
            (SlotSource::Array { offset, size, length: (*length).into(), scratch_at }, size)
        }
        (Kind::Sequence, FieldKind::Sequence(_), Step::DynamicArray(offset, location, element)) => {
            (SlotSource::Sequence { offset, location, element, scratch_at }, VARIABLE_BYTES_MAX)
        }
        (_, FieldKind::Sequence(scalar), Step::DynamicArray(offset, location, element)) => {
            if index >= VARIABLE_BYTES_MAX / element {
                // Elements beyond the recorded part do not exist.
                return Ok(None);
            }
            (SlotSource::Element { offset, location, scalar: *scalar, index, scratch_at }, 8)
        }
        _ => {
            let why = "its value is computed only when the event is recorded";
            return Err(FilterError::MissingField(name.to_owned(), why));
        }
    }))
}

/// Returns the filter kind of a field or of its element; `None`: filters cannot read it.
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

/// Returns the size in bytes of a field's integers.
pub(super) fn element_bytes(field: &FieldKind) -> u32 {
    match field {
        FieldKind::Scalar(scalar)
        | FieldKind::Enumeration(scalar, _)
        | FieldKind::Array(scalar, _)
        | FieldKind::Sequence(scalar) => scalar.size_bytes() as u32,
        _ => 0,
    }
}

/// Splits a path such as `ids[3]` into name and index.
pub(crate) fn split_index(path: &str) -> (&str, Option<u32>) {
    let assembler = path.strip_suffix(']').and_then(|inner| inner.rsplit_once('['));
    match assembler.map(|(name, index)| (name, index.parse())) {
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
