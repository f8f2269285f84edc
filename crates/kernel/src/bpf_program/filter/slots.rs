//! Generates code that loads values for a frame's slots.

use trackway_jit::helper::Word;
use trackway_jit::insn::{STACK_END, alu, jump};
use trackway_schema::Scalar;

use super::NAME_BYTES;
use crate::bpf_filter::scratch::BYTES_AT;
use crate::bpf_program::arguments::NULL_TEXT;
use crate::bpf_program::codegen::{AT, CONTEXT, helper, stack};
use crate::bpf_program::plan::{Step, VARIABLE_BYTES_MAX};
use crate::bpf_sys::asm::{Asm, Register};
use crate::catalogue::model::Location;

/// Returns the size of a text's recorded part, with its NUL; 0: the step does not write a text.
pub(super) const fn text_bytes(step: &Step) -> u32 {
    match step {
        Step::Text { size, .. } => *size,
        Step::DynamicText(..) => VARIABLE_BYTES_MAX,
        Step::Argument(read) => read.bytes_max(),
        _ => 0,
    }
}

pub(in crate::bpf_program) const fn text_word(offset: u32, length: u32) -> u64 {
    Word { offset, length, is_constant: false }.to_bits()
}

/// Loads the address of offset `scratch_at` in the scratch bytes.
pub(in crate::bpf_program) fn load_scratch_address(
    asm: &mut Asm,
    register: Register,
    scratch_at: u32,
) {
    asm.mov(register, AT);
    asm.alui(alu::ADD, register, i32::from(BYTES_AT) + scratch_at as i32);
}

/// Loads an integer of the tracepoint's record into r1. The verifier requires each load at a
/// multiple of its size.
pub(in crate::bpf_program) fn load_from_record(asm: &mut Asm, offset: u32, size: u32) {
    let unit = [8, 4, 2, 1].into_iter().find(|unit| offset.is_multiple_of(*unit) && *unit <= size);
    let unit = unit.unwrap_or(1);
    asm.load_sized(unit, 1, CONTEXT, offset as i16);
    for done in (unit..size).step_by(unit as usize) {
        asm.load_sized(unit, 2, CONTEXT, (offset + done) as i16);
        asm.alui(alu::LSH, 2, 8 * done as i32);
        asm.alu(alu::OR, 1, 2);
    }
}

/// Extends a scalar in a register to a slot's 64 bits.
pub(in crate::bpf_program) fn extend_to_slot(asm: &mut Asm, scalar: Scalar, register: Register) {
    let unused = 64 - 8 * scalar.size_bytes() as i32;
    if unused > 0 {
        asm.alui(alu::LSH, register, unused);
        let shift = if scalar.is_signed() { alu::ARSH } else { alu::RSH };
        asm.alui(shift, register, unused);
    }
    if scalar == Scalar::Bool {
        let done = asm.new_label();
        asm.jumpi(jump::JEQ, register, 0, done);
        asm.movi(register, 1);
        asm.place_label(done);
    }
}

/// Loads into r3 the address that the word at `offset` refers to, and the word into r4.
pub(super) fn locate_data(asm: &mut Asm, offset: u32, location: Location) {
    asm.load_sized(4, 4, CONTEXT, offset as i16);
    asm.mov(3, 4);
    asm.alui(alu::AND, 3, 0xffff);
    if location == Location::Relative {
        asm.alui(alu::ADD, 3, offset as i32 + 4);
    }
    asm.alu(alu::ADD, 3, CONTEXT);
}

/// Reads a kernel text and stores its string word in r1.
pub(super) fn read_text(asm: &mut Asm, step: &Step, scratch_at: u32) {
    let is_read = asm.new_label();
    let helper = match *step {
        Step::Argument(read) => {
            read.load_text(asm);
            let is_there = asm.new_label();
            asm.jumpi(jump::JNE, 3, 0, is_there);
            load_scratch_address(asm, 1, scratch_at);
            asm.load_wide(2, u64::from_le_bytes(*NULL_TEXT));
            asm.store(1, 0, 2);
            asm.movi(0, 7);
            asm.goto(is_read);
            asm.place_label(is_there);
            helper::PROBE_READ_KERNEL_STR
        }
        Step::DynamicText(offset, location) => {
            locate_data(asm, offset, location);
            helper::PROBE_READ_KERNEL_STR
        }
        _ => {
            let offset = if let Step::Text { offset, .. } = step { *offset } else { 0 };
            asm.mov(3, CONTEXT);
            asm.alui(alu::ADD, 3, offset as i32);
            helper::PROBE_READ_KERNEL_STR
        }
    };
    load_scratch_address(asm, 1, scratch_at);
    asm.movi(2, text_bytes(step) as i32);
    asm.call_kernel(helper);
    asm.place_label(is_read);
    make_word(asm, scratch_at);
}

/// Stores in r1 the string word of the text at `scratch_at`, whose length with its NUL is in r0.
pub(in crate::bpf_program) fn make_word(asm: &mut Asm, scratch_at: u32) {
    let (is_read, done) = (asm.new_label(), asm.new_label());
    asm.movi(1, 0);
    asm.jumpi(jump::JSGT, 0, 0, is_read);
    asm.goto(done);
    asm.place_label(is_read);
    asm.mov(1, 0);
    asm.alui(alu::ADD, 1, -1);
    asm.alui(alu::LSH, 1, 32);
    asm.alui(alu::OR, 1, scratch_at as i32);
    asm.place_label(done);
}

/// Reads a sequence and stores its word in r1.
pub(super) fn read_sequence(
    asm: &mut Asm,
    (offset, location): (u32, Location),
    element: u32,
    scratch_at: u32,
) {
    let is_short = asm.new_label();
    locate_data(asm, offset, location);
    asm.alui(alu::RSH, 4, 16);
    asm.jumpi(jump::JLE, 4, VARIABLE_BYTES_MAX as i32, is_short);
    asm.movi(4, VARIABLE_BYTES_MAX as i32);
    asm.place_label(is_short);
    asm.mov(2, 4);
    asm.alui(alu::AND, 2, -(element as i32));
    asm.store(STACK_END, stack::NOW, 2);
    load_scratch_address(asm, 1, scratch_at);
    asm.call_kernel(helper::PROBE_READ_KERNEL);
    asm.load(1, STACK_END, stack::NOW);
    asm.alui(alu::RSH, 1, element.trailing_zeros() as i32);
    asm.alui(alu::LSH, 1, 32);
    asm.alui(alu::OR, 1, scratch_at as i32);
}

/// Stores the string word of the thread's name in r1.
pub(super) fn read_thread_name(asm: &mut Asm, scratch_at: u32) {
    load_scratch_address(asm, 1, scratch_at + NAME_BYTES);
    asm.movi(2, NAME_BYTES as i32);
    asm.call_kernel(helper::GET_CURRENT_COMM);
    // The second copy returns the length of the name.
    load_scratch_address(asm, 3, scratch_at + NAME_BYTES);
    load_scratch_address(asm, 1, scratch_at);
    asm.movi(2, NAME_BYTES as i32);
    asm.call_kernel(helper::PROBE_READ_KERNEL_STR);
    make_word(asm, scratch_at);
}
