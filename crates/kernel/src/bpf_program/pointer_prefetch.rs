//! Reads user memory for filters, before the filters run.
//!
//! The steps that record a field also read it into the filter's scratch area; if the filter passes
//! the event, the program copies the field from there to the record. So each field is read once,
//! and the filter tests exactly the recorded value.
//!
//! ```text
//! scratch bytes: | length, a step's output, its structures | … | the filter's own |
//! ```
//!
//! A step has the same place in the scratch areas of all filters of an event. The first filter that
//! needs a step reads it; filters with another area copy the step's output from the first area.

use std::collections::BTreeMap;

use trackway_jit::helper::Word;
use trackway_jit::insn::{STACK_END, alu, jump};
use trackway_schema::{FieldKind, Scalar};

use super::codegen::{AT, CPU, ProgramBuilder, helper, insn_offset, stack};
use super::filter::{element_bytes, extend_to_slot, load_scratch_address, make_word, text_word};
use super::plan::{EventPlan, Step, VARIABLE_BYTES_MAX};
use super::pointer_fields::{
    RecordedMember, RecordedStructure, SOCKET_OTHER_BYTES_MAX, TEXTS_EACH_BYTES_MAX, TEXTS_MAX,
};
use crate::bpf_filter::scratch::{BYTES_AT, REGION_BYTES};
use crate::bpf_sys::asm::{Asm, Label};

/// Size of the length before a step's output.
const LENGTH_BYTES: u32 = 8;
/// Offsets in the output for a socket address (`ProgramBuilder::copy_socket_address`): lengths and
/// data.
const PORT_AT: u32 = 2;
const V4_LENGTH_AT: u32 = 4;
const V4_AT: u32 = 8;
/// The offset of the IPv6 address's length if the IPv4 address is empty.
const V6_LENGTH_AT: u32 = 8;
/// The offset of the data's length if both addresses are empty.
const DATA_LENGTH_AT: u32 = 12;
const PATHS_AT: u32 = 16;
const PATH_AT: u32 = 20;

/// Indices of the steps already read, with the map of the scratch area that has their output.
pub(super) type PrefetchMaps = BTreeMap<usize, i32>;

/// The part of a step's output that a filter reads. Offsets are relative to that output.
#[derive(Debug, Clone, Copy)]
pub(super) enum OutputPart {
    /// The whole output, a text.
    Text,
    Scalar {
        at: u32,
        scalar: Scalar,
    },
    Array {
        at: u32,
        length: u32,
    },
    /// Text in an array of this size.
    ArrayText {
        at: u32,
        bytes: u32,
    },
    Sequence(Elements),
    Element {
        of: Elements,
        index: u32,
        scalar: Scalar,
    },
    /// The path of a socket that has one.
    SocketPath,
    /// The text of a step that writes at most one text.
    OnlyText,
    /// The text with this index.
    TextAt(u32),
    /// An element that never exists.
    Absent,
    /// The mask of incomplete arguments collected so far.
    Incomplete,
}

/// The location of an array's elements in a step's output.
#[derive(Debug, Clone, Copy)]
pub(super) enum Elements {
    /// Elements after `head` bytes and `before` bytes for each element; at most `most` elements.
    Counted {
        head: u32,
        before: u32,
        most: u32,
    },
    /// The bytes of an IPv4 or IPv6 address.
    V4,
    V6,
    /// The data after the family in an address of another family.
    Data,
}

impl OutputPart {
    /// Returns the bytes of the filter's own scratch memory that the part needs.
    pub(super) const fn own_bytes(self) -> u32 {
        match self {
            Self::ArrayText { bytes, .. } => bytes,
            Self::TextAt(_) => TEXTS_EACH_BYTES_MAX,
            _ => 0,
        }
    }
}

/// Returns the step that writes a field, and the field's index among the fields of that step.
pub(super) fn owning_step(plan: &EventPlan, field: usize) -> Option<(usize, usize)> {
    let until = plan.steps.get(..=field)?;
    let owner = until.iter().rposition(|step| *step != Step::PartOfPrevious)?;
    Some((owner, field - owner))
}

/// Returns true if the program runs a step before filters.
pub(super) fn is_prefetched(step: &Step) -> bool {
    step.reads_user_memory() || *step == Step::Incomplete
}

/// Returns the steps to read for a part of `owner`. The mask of incomplete arguments needs all
/// steps.
pub(super) fn steps_to_prefetch(plan: &EventPlan, owner: usize) -> impl Iterator<Item = usize> {
    let is_all = plan.steps.get(owner) == Some(&Step::Incomplete);
    let steps = plan.steps.iter().enumerate();
    steps
        .filter(move |(at, step)| step.reads_user_memory() && (is_all || *at == owner))
        .map(|(at, _)| at)
}

/// Returns the offset of a step's length in the scratch bytes.
fn length_offset(plan: &EventPlan, step: usize) -> u32 {
    let before = plan.steps.iter().take(step).filter(|step| step.reads_user_memory());
    before
        .map(|step| LENGTH_BYTES + step.total_bytes_max(&plan.structures).next_multiple_of(8))
        .sum()
}

/// Returns the offset of the filters' own scratch bytes.
pub(super) fn own_bytes_offset(plan: &EventPlan) -> u32 {
    length_offset(plan, plan.steps.len())
}

/// Returns the part of a step's output for a field, or for an element of the field. `None`: the
/// part never exists.
pub(super) fn output_part(
    plan: &EventPlan,
    (owner, member): (usize, usize),
    field: &FieldKind,
    index: Option<u32>,
) -> Option<OutputPart> {
    let size = element_bytes(field);
    let scalar = match *field {
        FieldKind::Scalar(scalar) | FieldKind::Enumeration(scalar, _) => Some(scalar),
        FieldKind::Array(scalar, _) | FieldKind::Sequence(scalar) => Some(scalar),
        _ => None,
    };
    let fixed = |at: u32| match (field, index) {
        (FieldKind::Array(_, length), None) => {
            Some(OutputPart::Array { at, length: (*length).into() })
        }
        _ => Some(OutputPart::Scalar { at: at + index.unwrap_or(0) * size, scalar: scalar? }),
    };
    let some = |of: Elements| match index {
        None => Some(OutputPart::Sequence(of)),
        Some(index) if index < of.count_max() => {
            Some(OutputPart::Element { of, index, scalar: scalar? })
        }
        Some(_) => None,
    };
    let structure = |number: u8| plan.structures.get(usize::from(number));
    match *plan.steps.get(owner)? {
        Step::UserText(_) => Some(OutputPart::Text),
        Step::UserTextRetry(_) => {
            Some(if index? == 0 { OutputPart::OnlyText } else { OutputPart::Absent })
        }
        Step::UserTexts(_) => {
            Some(if index? < TEXTS_MAX { OutputPart::TextAt(index?) } else { OutputPart::Absent })
        }
        Step::UserBytes(..) => fixed(0),
        Step::UserElements(_, _, bytes) => {
            some(Elements::Counted { head: 4, before: 0, most: VARIABLE_BYTES_MAX / bytes })
        }
        Step::Structure(_, number) => {
            let of = structure(number)?;
            let &RecordedMember { offset, bytes, is_text } = of.members.get(member)?;
            // Reads the structure as it was in user memory, unless the record contains it
            // unchanged.
            let at = if of.is_packed() { offset } else { of.members_bytes() + offset };
            if is_text { Some(OutputPart::ArrayText { at, bytes }) } else { fixed(at) }
        }
        Step::Structures(_, _, number) => some(member_elements(structure(number)?, member)?),
        Step::SocketAddress(..) | Step::Message(_) => match member {
            0 => fixed(0),
            1 => fixed(PORT_AT),
            2 => some(Elements::V4),
            3 => some(Elements::V6),
            4 => some(Elements::Data),
            _ => Some(if index? == 0 { OutputPart::SocketPath } else { OutputPart::Absent }),
        },
        Step::Incomplete => Some(OutputPart::Incomplete),
        _ => None,
    }
}

/// Returns where the output has the values of one member: one value for each structure of an array.
fn member_elements(of: &RecordedStructure, member: usize) -> Option<Elements> {
    let before = of.members.get(..member)?.iter().map(|member| member.bytes).sum();
    let head = 4 * (member as u32 + 1);
    Some(Elements::Counted { head, before, most: of.count_max() })
}

impl Elements {
    const fn count_max(self) -> u32 {
        match self {
            Self::Counted { most, .. } => most,
            Self::V4 => 4,
            Self::V6 => 16,
            Self::Data => SOCKET_OTHER_BYTES_MAX - 2,
        }
    }

    /// Loads the number of elements into r2, and into r3 the offset of the first element from the
    /// output's beginning, which is at `base` in the area. Jumps to `out` if the data is invalid.
    fn load_range(self, asm: &mut Asm, base: i16, out: Label) {
        match self {
            Self::Counted { head, before, most } => {
                asm.load_sized(4, 2, AT, base);
                asm.jumpi(jump::JGT, 2, most as i32, out);
                asm.mov(3, 2);
                asm.alui(alu::MUL, 3, before as i32);
                asm.alui(alu::ADD, 3, head as i32);
            }
            Self::V4 => {
                asm.load_sized(4, 2, AT, base + V4_LENGTH_AT as i16);
                asm.jumpi(jump::JGT, 2, self.count_max() as i32, out);
                asm.movi(3, V4_AT as i32);
            }
            Self::V6 => {
                asm.load_sized(4, 3, AT, base + V4_LENGTH_AT as i16);
                asm.jumpi(jump::JGT, 3, Self::V4.count_max() as i32, out);
                asm.mov(4, AT);
                asm.alu(alu::ADD, 4, 3);
                asm.load_sized(4, 2, 4, base + V6_LENGTH_AT as i16);
                asm.jumpi(jump::JGT, 2, self.count_max() as i32, out);
                asm.alui(alu::ADD, 3, V6_LENGTH_AT as i32 + 4);
            }
            Self::Data => {
                Self::V6.load_range(asm, base, out);
                asm.alu(alu::ADD, 3, 2);
                asm.mov(4, AT);
                asm.alu(alu::ADD, 4, 3);
                asm.load_sized(4, 2, 4, base);
                asm.jumpi(jump::JGT, 2, self.count_max() as i32, out);
                asm.alui(alu::ADD, 3, 4);
            }
        }
    }
}

/// Returns the offsets of a step's length and of its output in an area.
fn step_offsets(plan: &EventPlan, step: usize) -> (i16, i16) {
    let length = BYTES_AT + insn_offset(length_offset(plan, step) as usize);
    (length, length + LENGTH_BYTES as i16)
}

impl ProgramBuilder<'_> {
    /// Loads into r0 the address of the scratch area in map `fd` for this CPU and level.
    pub(super) fn find_scratch(&mut self, fd: i32, out: Label) {
        let asm = &mut self.asm;
        asm.load_map(1, fd);
        asm.mov(2, STACK_END);
        asm.alui(alu::ADD, 2, stack::KEY.into());
        asm.call_kernel(helper::MAP_LOOKUP_ELEM);
        // Each CPU and level has an area, so the lookup does not fail.
        asm.jumpi(jump::JEQ, 0, 0, out);
    }

    /// Fills the scratch area at [`AT`] with these steps: reads the steps that no filter has read
    /// yet, and copies the steps in another area.
    pub(super) fn prefetch(
        &mut self,
        steps: &[usize],
        fd: i32,
        prefetched: &mut PrefetchMaps,
        out: Label,
    ) {
        let mut read = Vec::new();
        for &step in steps {
            match prefetched.get(&step) {
                Some(&map_fd) if map_fd != fd => self.copy_from_scratch(step, map_fd, out),
                Some(_) => {}
                None => {
                    prefetched.insert(step, fd);
                    read.push(step);
                }
            }
        }
        if read.is_empty() {
            return;
        }
        // While these steps run, the scratch area takes the place of the CPU area.
        let plan = self.plan;
        self.asm.store(STACK_END, stack::PART, CPU);
        self.asm.mov(CPU, AT);
        let position_max =
            core::mem::replace(&mut self.position_max, BYTES_AT as usize + REGION_BYTES);
        for &number in &read {
            let (length, content) = step_offsets(plan, number);
            self.asm.movi(AT, content.into());
            self.write_user_step(&plan.steps[number]);
            self.asm.alui(alu::SUB, AT, content.into());
            self.asm.store(CPU, length, AT);
        }
        self.position_max = position_max;
        self.asm.mov(AT, CPU);
        self.asm.load(CPU, STACK_END, stack::PART);
        self.count_missing(&read);
    }

    fn copy_from_scratch(&mut self, step: usize, map_fd: i32, out: Label) {
        let (length, _) = step_offsets(self.plan, step);
        let bytes = LENGTH_BYTES + self.plan.steps[step].total_bytes_max(&self.plan.structures);
        self.find_scratch(map_fd, out);
        let asm = &mut self.asm;
        asm.mov(3, 0);
        asm.alui(alu::ADD, 3, length.into());
        asm.mov(1, AT);
        asm.alui(alu::ADD, 1, length.into());
        asm.movi(2, bytes as i32);
        asm.call_kernel(helper::PROBE_READ_KERNEL);
    }

    /// Counts the event once if the data of one of these steps was not in memory.
    fn count_missing(&mut self, steps: &[usize]) {
        let (is_missing, is_done) = (self.asm.new_label(), self.asm.new_label());
        for &step in steps {
            self.jump_if_missing(step, is_missing);
        }
        self.asm.goto(is_done);
        self.asm.place_label(is_missing);
        self.asm.load(1, STACK_END, stack::MISSING);
        self.asm.jumpi(jump::JNE, 1, 0, is_done);
        self.asm.storei(STACK_END, stack::MISSING, 1);
        self.count_unread();
        self.asm.place_label(is_done);
    }

    /// Jumps to `is_missing` if a step's data was not in memory. The mask also marks cut data, but
    /// cut data exists.
    fn jump_if_missing(&mut self, step: usize, is_missing: Label) {
        let (length, content) = step_offsets(self.plan, step);
        let of = &self.plan.steps[step];
        let bit = 1 << of.pointer_offset().map_or(7, |at| self.argument_index(at));
        let asm = &mut self.asm;
        let is_there = asm.new_label();
        asm.load(1, STACK_END, stack::INCOMPLETE);
        asm.alui(alu::AND, 1, bit);
        asm.jumpi(jump::JEQ, 1, 0, is_there);
        match of {
            Step::UserBytes(..) | Step::Structure(..) => asm.goto(is_missing),
            // A missing text is only a NUL.
            Step::UserText(_) => {
                asm.load(1, AT, length);
                asm.jumpi(jump::JEQ, 1, 1, is_missing);
            }
            // Missing data has no elements; a missing socket address has neither family nor port.
            _ => {
                asm.load_sized(4, 1, AT, content);
                asm.jumpi(jump::JEQ, 1, 0, is_missing);
            }
        }
        self.asm.place_label(is_there);
    }

    /// Loads the value of a slot into r1. `scratch_at` is the offset of the filter's own bytes.
    /// Jumps to `goes_on` if it is unknown whether the value exists, to `out` if a number does not
    /// exist. A missing text is [`Word::ABSENT`].
    // Longer than 70 lines: a case for each part of an output.
    pub(super) fn load_part(
        &mut self,
        (step, part): (usize, OutputPart),
        scratch_at: u32,
        (goes_on, out): (Label, Label),
    ) {
        if matches!(part, OutputPart::Text) {
            self.jump_if_missing(step, goes_on);
        }
        let (length, base) = step_offsets(self.plan, step);
        let offset = (base - BYTES_AT) as u32;
        let asm = &mut self.asm;
        let (is_absent, is_done) = (asm.new_label(), asm.new_label());
        match part {
            OutputPart::Text => load_text_word(asm, length, (offset, 0)),
            OutputPart::Scalar { at, scalar } => {
                asm.load_sized(scalar.size_bytes() as u32, 1, AT, base + at as i16);
                extend_to_slot(asm, scalar, 1);
            }
            OutputPart::Array { at, length } => asm.load_wide(1, text_word(offset + at, length)),
            OutputPart::ArrayText { at, bytes } => {
                asm.mov(3, AT);
                asm.alui(alu::ADD, 3, i32::from(base) + at as i32);
                load_scratch_address(asm, 1, scratch_at);
                asm.movi(2, bytes as i32);
                asm.call_kernel(helper::PROBE_READ_KERNEL_STR);
                make_word(asm, scratch_at);
            }
            OutputPart::Sequence(of) => {
                of.load_range(asm, base, out);
                asm.mov(1, 2);
                asm.alui(alu::LSH, 1, 32);
                asm.alui(alu::ADD, 3, offset as i32);
                asm.alu(alu::OR, 1, 3);
            }
            OutputPart::Element { of, index, scalar } => {
                let size = scalar.size_bytes() as u32;
                of.load_range(asm, base, out);
                asm.jumpi(jump::JLE, 2, index as i32, out);
                asm.alu(alu::ADD, 3, AT);
                asm.load_sized(size, 1, 3, base + (index * size) as i16);
                extend_to_slot(asm, scalar, 1);
            }
            OutputPart::SocketPath => {
                let lengths = [V4_LENGTH_AT, V6_LENGTH_AT, DATA_LENGTH_AT].map(|at| (at, 0));
                for (at, is) in lengths.into_iter().chain([(PATHS_AT, 1)]) {
                    asm.load_sized(4, 1, AT, base + at as i16);
                    asm.jumpi(jump::JNE, 1, is, is_absent);
                }
                load_text_word(asm, length, (offset, PATH_AT));
            }
            OutputPart::OnlyText => {
                asm.load_sized(4, 1, AT, base);
                asm.jumpi(jump::JEQ, 1, 0, is_absent);
                load_text_word(asm, length, (offset, 4));
            }
            OutputPart::TextAt(index) => load_text_at(asm, index, (base, scratch_at), is_absent),
            OutputPart::Absent => asm.goto(is_absent),
            OutputPart::Incomplete => asm.load(1, STACK_END, stack::INCOMPLETE),
        }
        if matches!(part, OutputPart::SocketPath | OutputPart::OnlyText | OutputPart::TextAt(_)) {
            asm.goto(is_done);
        }
        if matches!(
            part,
            OutputPart::SocketPath
                | OutputPart::OnlyText
                | OutputPart::TextAt(_)
                | OutputPart::Absent
        ) {
            asm.place_label(is_absent);
            asm.load_wide(1, Word::ABSENT);
        }
        asm.place_label(is_done);
    }

    /// Copies a step's output from a scratch area to the record at [`AT`], and advances [`AT`].
    pub(super) fn copy_prefetched(&mut self, step: usize, map_fd: i32, out: Label) {
        let (length, content) = step_offsets(self.plan, step);
        let of = &self.plan.steps[step];
        let most =
            of.total_bytes_max(&self.plan.structures) - of.scratch_bytes(&self.plan.structures);
        self.find_scratch(map_fd, out);
        let asm = &mut self.asm;
        let fits = asm.new_label();
        asm.load(2, 0, length);
        // The output always fits, which the verifier does not derive.
        asm.jumpi(jump::JLE, 2, most as i32, fits);
        asm.movi(2, most as i32);
        asm.place_label(fits);
        asm.store(STACK_END, stack::COUNT, 2);
        asm.mov(3, 0);
        asm.alui(alu::ADD, 3, content.into());
        asm.mov(1, CPU);
        asm.alu(alu::ADD, 1, AT);
        asm.call_kernel(helper::PROBE_READ_KERNEL);
        asm.load(2, STACK_END, stack::COUNT);
        asm.alu(alu::ADD, AT, 2);
    }
}

/// Loads the word of a text into r1. The text ends a step's output, with a NUL, and begins `skip`
/// bytes after the output's beginning at `offset`. The area has the output's length at `length`.
fn load_text_word(asm: &mut Asm, length: i16, (offset, skip): (u32, u32)) {
    asm.load(1, AT, length);
    asm.alui(alu::SUB, 1, skip as i32 + 1);
    asm.alui(alu::LSH, 1, 32);
    asm.alui(alu::OR, 1, (offset + skip) as i32);
}

/// Loads the word of the text with this index into r1. Copies each text to `scratch_at` to get its
/// length. Jumps to `is_absent` if the output has fewer texts.
fn load_text_at(asm: &mut Asm, index: u32, (base, scratch_at): (i16, u32), is_absent: Label) {
    let most = TEXTS_EACH_BYTES_MAX as i32;
    asm.load_sized(4, 1, AT, base);
    asm.jumpi(jump::JLE, 1, index as i32, is_absent);
    asm.mov(3, AT);
    asm.alui(alu::ADD, 3, i32::from(base) + 4);
    for number in 0..=index {
        asm.store(STACK_END, stack::POINTER, 3);
        load_scratch_address(asm, 1, scratch_at);
        asm.movi(2, most);
        asm.call_kernel(helper::PROBE_READ_KERNEL_STR);
        asm.jumpi(jump::JSLE, 0, 0, is_absent);
        if number < index {
            let is_short = asm.new_label();
            asm.jumpi(jump::JLE, 0, most, is_short);
            asm.movi(0, most);
            asm.place_label(is_short);
            asm.load(3, STACK_END, stack::POINTER);
            asm.alu(alu::ADD, 3, 0);
        }
    }
    make_word(asm, scratch_at);
}
