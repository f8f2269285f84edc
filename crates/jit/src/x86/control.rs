//! Jumps, calls, and what stands at the beginning and the end of functions.

use super::chunk::{
    Chunk, Condition, Group, R13, R14, R15, RAX, RBP, RBX, RCX, RDI, RSI, RSP, Reg, Width,
    map_register,
};
use super::{Emitter, direct, text};
use crate::frame::offset;
use crate::helper::Helper;
use crate::helpers;
use crate::insn::{CALL, EXIT, Insn, LDDW_FUNCTION, call, class, jump, source};
use crate::verify::{Function, jump_target, referenced_function};

/// Marks a target of indirect jumps, where the processor checks those; elsewhere it does nothing.
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

impl Emitter<'_, '_> {
    /// A load of 64 bits.
    pub(super) fn wide(&self, chunk: &mut Chunk, index: usize, insn: Insn) {
        let dst = map_register(insn.dst);
        match (insn.src, referenced_function(index, insn)) {
            (LDDW_FUNCTION, Some(target)) => chunk.address(dst, self.distance(target)),
            _ => chunk.number(dst, self.verified.program().wide(index)),
        }
    }

    /// A jump, a call, or an exit.
    pub(super) fn control(&self, chunk: &mut Chunk, function: &Function, index: usize, insn: Insn) {
        match insn.op {
            EXIT => {
                if self.framer.is_some() {
                    direct::emit_boolean_answer(chunk);
                }
                emit_epilogue(chunk, function);
                chunk.byte(0xc3);
            }
            CALL if insn.src == call::FUNCTION => {
                chunk.byte(0xe8);
                chunk.i32(self.distance(referenced_function(index, insn).unwrap_or(0)));
            }
            CALL => self.helper(chunk, function, insn),
            _ => match self.distance(jump_target(index, insn)) {
                // To the next instruction, whether or not.
                0 => {}
                distance => {
                    let condition = emit_compare(chunk, insn);
                    chunk.out(condition, distance);
                }
            },
        }
    }

    /// Appends a call of a helper, or the helper's code in its place.
    fn helper(&self, chunk: &mut Chunk, function: &Function, insn: Insn) {
        let helper = Helper::from_number(insn.immediate);
        if let Some(size) = helper.and_then(Helper::edge_bytes) {
            text::emit_edges_compare(chunk, size);
        } else if let Some(count) = helper.and_then(Helper::compared_bytes) {
            text::emit_differing_bits(chunk, count);
        } else if let Some(address) = helper.and_then(helpers::helper_address) {
            chunk.number(RAX, address);
            chunk.single(Width::Narrow, 0xff, 2, RAX);
        } else {
            emit_tail_call(chunk, function, self.verified.rules().number);
        }
    }
}

/// The comparison before a jump, and the condition on which it is taken; `None` if always.
fn emit_compare(chunk: &mut Chunk, insn: Insn) -> Option<Condition> {
    let width = if insn.class() == class::JMP { Width::Wide } else { Width::Narrow };
    let condition = match insn.op & 0xf0 {
        jump::JEQ => Condition::Equal,
        jump::JGT => Condition::UnsignedGreater,
        jump::JGE => Condition::UnsignedGreaterEqual,
        jump::JNE | jump::JSET => Condition::NotEqual,
        jump::JSGT => Condition::Greater,
        jump::JSGE => Condition::GreaterEqual,
        jump::JLT => Condition::UnsignedLess,
        jump::JLE => Condition::UnsignedLessEqual,
        jump::JSLT => Condition::Less,
        jump::JSLE => Condition::LessEqual,
        _ => return None,
    };
    let dst = map_register(insn.dst);
    let src = (insn.op & source::X != 0).then_some(map_register(insn.src));
    match (src, insn.op & 0xf0 == jump::JSET) {
        (Some(src), true) => chunk.test(width, dst, src),
        (Some(src), false) => chunk.group(Group::Cmp, width, dst, src),
        (None, true) => {
            // Without a sign there is nothing above 32 bits to test.
            let width = if insn.immediate >= 0 { Width::Narrow } else { width };
            chunk.single(width, 0xf7, 0, dst);
            chunk.i32(insn.immediate);
        }
        // Sets the flags as a comparison with 0 does, and is shorter.
        (None, false) if insn.immediate == 0 => chunk.test(width, dst, dst),
        (None, false) => chunk.group_immediate(Group::Cmp, width, dst, insn.immediate),
    }
    Some(condition)
}

/// Registers that belong to the caller and are changed, in the order in which they are saved.
fn saved_registers(function: &Function) -> impl DoubleEndedIterator<Item = Reg> {
    let mask = function.saved;
    [RBX, R13, R14, R15]
        .into_iter()
        .enumerate()
        .filter(move |(i, _)| mask >> i & 1 != 0)
        .map(|(_, reg)| reg)
}

/// Returns true if rsp is 8 bytes away from the alignment to 16 bytes that calls need.
fn is_stack_misaligned(function: &Function) -> bool {
    let pushed = 1 + usize::from(function.has_stack) + saved_registers(function).count();
    let words = pushed + usize::from(function.stack_bytes) / 8;
    function.has_calls && !words.is_multiple_of(2)
}

/// The beginning of a function.
pub(super) fn build_prologue(function: &Function, is_entry: bool) -> Chunk {
    let mut chunk = Chunk::new();
    if is_entry || function.is_callback {
        chunk.raw(&ENDBR64);
    }
    let pad = if is_stack_misaligned(function) { 8 } else { 0 };
    if function.has_stack {
        chunk.push(RBP);
        chunk.mov(Width::Wide, RBP, RSP);
        let bytes = i32::from(function.stack_bytes) + pad;
        if bytes != 0 {
            chunk.group_immediate(Group::Sub, Width::Wide, RSP, bytes);
        }
    } else if pad != 0 {
        // Any register does: the shortest way to move rsp.
        chunk.push(RAX);
    }
    saved_registers(function).for_each(|reg| chunk.push(reg));
    chunk
}

/// Appends the reverse of the prologue.
fn emit_epilogue(chunk: &mut Chunk, function: &Function) {
    saved_registers(function).rev().for_each(|reg| chunk.pop(reg));
    if function.has_stack {
        // leave: rsp = rbp, and the caller's rbp.
        chunk.byte(0xc9);
    } else if is_stack_misaligned(function) {
        // Register 4, which is not used after a function's end.
        chunk.pop(RCX);
    }
}

/// A jump to a later program of the alternative, if the number in register 2 is that of one.
fn emit_tail_call(chunk: &mut Chunk, function: &Function, number: u8) {
    chunk.group_immediate(Group::Cmp, Width::Wide, RSI, number.into());
    let earlier = chunk.jump_forward(Some(Condition::UnsignedLessEqual));
    chunk.memory(Width::Wide, &[0x8b], RAX, (RDI, offset::ENVIRONMENT));
    // cmp rsi, [rax + …]
    chunk.memory(Width::Wide, &[0x3b], RSI, (RAX, offset::ENTRIES_COUNT));
    let beyond = chunk.jump_forward(Some(Condition::UnsignedGreaterEqual));
    chunk.memory(Width::Wide, &[0x8b], RAX, (RAX, offset::ENTRIES));
    // mov rax, [rax + 8 * rsi]
    chunk.raw(&[0x48, 0x8b, 0x04, 0xf0]);
    chunk.test(Width::Wide, RAX, RAX);
    let none = chunk.jump_forward(Some(Condition::Equal));
    emit_epilogue(chunk, function);
    // jmp rax
    chunk.single(Width::Narrow, 0xff, 4, RAX);
    chunk.land(earlier);
    chunk.land(beyond);
    chunk.land(none);
    chunk.clear(RAX);
}
