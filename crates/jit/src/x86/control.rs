//! Jumps and calls, and the prologues and epilogues of functions.

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

/// Marks a target of indirect jumps for processors that check them (IBT); otherwise a no-op.
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

impl Emitter<'_, '_> {
    /// Appends a load of 64 bits.
    pub(super) fn wide(&self, chunk: &mut Chunk, index: usize, insn: Insn) {
        let dst = map_register(insn.dst);
        match (insn.src, referenced_function(index, insn)) {
            (LDDW_FUNCTION, Some(target)) => chunk.address(dst, self.distance(target)),
            _ => chunk.number(dst, self.verified.program().wide(index)),
        }
    }

    /// Appends a jump, a call, or an exit.
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
                // A jump to the next instruction needs no code.
                0 => {}
                distance => {
                    let condition = emit_compare(chunk, insn);
                    chunk.out(condition, distance);
                }
            },
        }
    }

    /// Appends a call of a helper, or the helper's inlined code.
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

/// Appends the comparison of a jump; returns the jump's condition, or `None` if unconditional.
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
            // A nonnegative immediate has no bits above the lower 32.
            let width = if insn.immediate >= 0 { Width::Narrow } else { width };
            chunk.single(width, 0xf7, 0, dst);
            chunk.i32(insn.immediate);
        }
        // `test` sets the same flags as a comparison with 0, and is shorter.
        (None, false) if insn.immediate == 0 => chunk.test(width, dst, dst),
        (None, false) => chunk.group_immediate(Group::Cmp, width, dst, insn.immediate),
    }
    Some(condition)
}

/// Returns the callee-saved registers that the function changes, in the order of saving.
fn saved_registers(function: &Function) -> impl DoubleEndedIterator<Item = Reg> {
    let mask = function.saved;
    [RBX, R13, R14, R15]
        .into_iter()
        .enumerate()
        .filter(move |(i, _)| mask >> i & 1 != 0)
        .map(|(_, reg)| reg)
}

/// Returns true if a function with calls must pad its stack by 8 bytes for 16-byte alignment.
fn is_stack_misaligned(function: &Function) -> bool {
    let pushed = 1 + usize::from(function.has_stack) + saved_registers(function).count();
    let words = pushed + usize::from(function.stack_bytes) / 8;
    function.has_calls && !words.is_multiple_of(2)
}

/// Builds the prologue of a function.
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
        // Pushes any register: the shortest way to move rsp.
        chunk.push(RAX);
    }
    saved_registers(function).for_each(|reg| chunk.push(reg));
    chunk
}

/// Appends the reverse of the prologue.
fn emit_epilogue(chunk: &mut Chunk, function: &Function) {
    saved_registers(function).rev().for_each(|reg| chunk.pop(reg));
    if function.has_stack {
        // leave: sets rsp to rbp, and restores the caller's rbp.
        chunk.byte(0xc9);
    } else if is_stack_misaligned(function) {
        // Pops into eBPF register 4, which is dead at a function's end.
        chunk.pop(RCX);
    }
}

/// Appends a jump to a later program of the alternative, if register 2 holds such a number.
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
