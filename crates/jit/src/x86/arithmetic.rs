//! Arithmetic. x86 differs from eBPF in division, which traps, and in shifts, which use rcx.

use super::chunk::{
    Chunk, Condition, Group, R9, R10, R11, RAX, RCX, RDX, Reg, Width, map_register,
};
use crate::insn::{Insn, alu, class, source};

/// The operands of an instruction, with their width.
struct Operands {
    width: Width,
    dst: Reg,
    /// Source register; `None` for an immediate.
    src: Option<Reg>,
    immediate: i32,
}

pub(super) fn emit_arithmetic(chunk: &mut Chunk, insn: Insn) {
    let width = if insn.class() == class::ALU64 { Width::Wide } else { Width::Narrow };
    let src = (insn.op & source::X != 0).then_some(map_register(insn.src));
    let operands = Operands { width, dst: map_register(insn.dst), src, immediate: insn.immediate };
    match insn.op & 0xf0 {
        alu::ADD => emit_grouped(chunk, Group::Add, &operands),
        alu::SUB => emit_grouped(chunk, Group::Sub, &operands),
        alu::OR => emit_grouped(chunk, Group::Or, &operands),
        alu::AND => emit_grouped(chunk, Group::And, &operands),
        alu::XOR => emit_grouped(chunk, Group::Xor, &operands),
        alu::MUL => emit_multiply(chunk, &operands),
        alu::DIV => emit_divide(chunk, &operands, false, insn.offset != 0),
        alu::MOD => emit_divide(chunk, &operands, true, insn.offset != 0),
        alu::LSH => emit_shift(chunk, &operands, 4),
        alu::RSH => emit_shift(chunk, &operands, 5),
        alu::ARSH => emit_shift(chunk, &operands, 7),
        alu::NEG => chunk.single(width, 0xf7, 3, operands.dst),
        alu::MOV => emit_mov(chunk, &operands, insn.offset),
        _ => emit_byte_swap(chunk, insn),
    }
}

fn emit_grouped(chunk: &mut Chunk, group: Group, operands: &Operands) {
    let &Operands { width, dst, src, immediate } = operands;
    match src {
        Some(src) => chunk.group(group, width, dst, src),
        None => chunk.group_immediate(group, width, dst, immediate),
    }
}

fn emit_mov(chunk: &mut Chunk, operands: &Operands, bits: i16) {
    let &Operands { width, dst, src, immediate } = operands;
    match (src, bits) {
        (None, _) if width == Width::Wide => chunk.number(dst, immediate as i64 as u64),
        (None, _) => chunk.number(dst, u64::from(immediate as u32)),
        (Some(src), 8) => chunk.registers_byte(width, &[0x0f, 0xbe], dst, src),
        (Some(src), 16) => chunk.registers(width, &[0x0f, 0xbf], dst, src),
        (Some(src), 32) => chunk.registers(width, &[0x63], dst, src),
        (Some(src), _) => chunk.mov(width, dst, src),
    }
}

fn emit_multiply(chunk: &mut Chunk, operands: &Operands) {
    let &Operands { width, dst, src, immediate } = operands;
    match (src, i8::try_from(immediate)) {
        (Some(src), _) => chunk.registers(width, &[0x0f, 0xaf], dst, src),
        (None, Ok(short)) => {
            chunk.registers(width, &[0x6b], dst, dst);
            chunk.byte(short as u8);
        }
        (None, Err(_)) => {
            chunk.registers(width, &[0x69], dst, dst);
            chunk.i32(immediate);
        }
    }
}

fn emit_shift(chunk: &mut Chunk, operands: &Operands, extension: u8) {
    let &Operands { width, dst, src, immediate } = operands;
    match src {
        None => {
            let bits = if width == Width::Wide { 63 } else { 31 };
            match immediate & bits {
                0 => chunk.mov(width, dst, dst),
                1 => chunk.single(width, 0xd1, extension, dst),
                by => {
                    chunk.single(width, 0xc1, extension, dst);
                    chunk.byte(by as u8);
                }
            }
        }
        Some(RCX) if dst != RCX => chunk.single(width, 0xd3, extension, dst),
        Some(src) if dst == RCX => {
            chunk.mov(Width::Wide, R11, dst);
            chunk.mov(Width::Wide, RCX, src);
            chunk.single(width, 0xd3, extension, R11);
            chunk.mov(Width::Wide, RCX, R11);
        }
        Some(src) => {
            chunk.mov(Width::Wide, R11, RCX);
            chunk.mov(Width::Wide, RCX, src);
            chunk.single(width, 0xd3, extension, dst);
            chunk.mov(Width::Wide, RCX, R11);
        }
    }
}

/// Emits a division. On x86, division by 0 and of the minimum by −1 traps; both cases are computed
/// without a division.
fn emit_divide(chunk: &mut Chunk, operands: &Operands, is_remainder: bool, is_signed: bool) {
    let &Operands { width, src, immediate, .. } = operands;
    match (src, immediate) {
        (None, 0) => emit_divide_by_zero(chunk, operands, is_remainder),
        (None, -1) if is_signed => emit_divide_by_minus_one(chunk, operands, is_remainder),
        (None, _) => {
            chunk.number(R11, immediate as i64 as u64);
            emit_divide_by_r11(chunk, operands, is_remainder, is_signed);
        }
        (Some(src), _) => {
            chunk.mov(Width::Wide, R11, src);
            chunk.test(width, R11, R11);
            let zero = chunk.jump_forward(Some(Condition::Equal));
            let minus_one = is_signed.then(|| {
                chunk.group_immediate(Group::Cmp, width, R11, -1);
                chunk.jump_forward(Some(Condition::Equal))
            });
            emit_divide_by_r11(chunk, operands, is_remainder, is_signed);
            let done = chunk.jump_forward(None);
            let done_too = minus_one.map(|minus_one| {
                chunk.land(minus_one);
                emit_divide_by_minus_one(chunk, operands, is_remainder);
                chunk.jump_forward(None)
            });
            chunk.land(zero);
            emit_divide_by_zero(chunk, operands, is_remainder);
            chunk.land(done);
            if let Some(done) = done_too {
                chunk.land(done);
            }
        }
    }
}

fn emit_divide_by_zero(chunk: &mut Chunk, operands: &Operands, is_remainder: bool) {
    if is_remainder {
        chunk.mov(operands.width, operands.dst, operands.dst);
    } else {
        chunk.clear(operands.dst);
    }
}

fn emit_divide_by_minus_one(chunk: &mut Chunk, operands: &Operands, is_remainder: bool) {
    if is_remainder {
        chunk.clear(operands.dst);
    } else {
        chunk.single(operands.width, 0xf7, 3, operands.dst);
    }
}

/// Divides by r11. Division uses rax and rdx, whose contents are saved in r9 and r10.
fn emit_divide_by_r11(chunk: &mut Chunk, operands: &Operands, is_remainder: bool, is_signed: bool) {
    let &Operands { width, dst, .. } = operands;
    let others = [(RAX, R9), (RDX, R10)].into_iter().filter(|&(reg, _)| reg != dst);
    for (reg, kept) in others.clone() {
        chunk.mov(Width::Wide, kept, reg);
    }
    if dst != RAX {
        chunk.mov(Width::Wide, RAX, dst);
    }
    if is_signed {
        // Sign-extends rax into rdx, or eax into edx.
        chunk.raw(if width == Width::Wide { &[0x48, 0x99] } else { &[0x99] });
        chunk.single(width, 0xf7, 7, R11);
    } else {
        chunk.clear(RDX);
        chunk.single(width, 0xf7, 6, R11);
    }
    // Narrow results already have a zero upper half.
    chunk.mov(Width::Wide, dst, if is_remainder { RDX } else { RAX });
    for (reg, kept) in others {
        chunk.mov(Width::Wide, reg, kept);
    }
}

/// Emits a byte order conversion; x86 is little-endian.
fn emit_byte_swap(chunk: &mut Chunk, insn: Insn) {
    let dst = map_register(insn.dst);
    let is_swapped = insn.class() == class::ALU64 || insn.op & source::X != 0;
    match (insn.immediate, is_swapped) {
        (16, _) => {
            if is_swapped {
                chunk.byte(0x66);
                chunk.single(Width::Narrow, 0xc1, 0, dst);
                chunk.byte(8);
            }
            chunk.registers(Width::Narrow, &[0x0f, 0xb7], dst, dst);
        }
        (32, true) => chunk.swap_bytes(Width::Narrow, dst),
        (32, false) => chunk.mov(Width::Narrow, dst, dst),
        (_, true) => chunk.swap_bytes(Width::Wide, dst),
        (_, false) => {}
    }
}
