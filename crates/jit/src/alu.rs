//! Arithmetic and comparisons by RFC 9669: for the interpreter, and for all code that must agree
//! with the interpreter.

use crate::insn::{Insn, alu, class, jump, source};

/// Returns the new value of the destination register; `None` if the instruction has no ALU class.
#[inline(always)]
pub(crate) fn compute_alu(insn: Insn, dst: u64, src: u64) -> Option<u64> {
    let is_64 = insn.class() == class::ALU64;
    match insn.op & 0xf0 {
        alu::END => swap_byte_order(insn, dst),
        alu::MOV if insn.offset != 0 => {
            let value = sign_extend(src, insn.offset.unsigned_abs().into());
            Some(if is_64 { value } else { u64::from(value as u32) })
        }
        _ if is_64 => compute_64_bit(insn.op & 0xf0, insn.offset != 0, dst, src),
        _ => compute_32(insn.op & 0xf0, insn.offset != 0, dst as u32, src as u32).map(u64::from),
    }
}

/// Sign-extends the lowest `bits` (1 to 64) of a number.
#[inline(always)]
pub(crate) fn sign_extend(value: u64, bits: u32) -> u64 {
    let unused = 64_u32.saturating_sub(bits);
    (value.wrapping_shl(unused) as i64).wrapping_shr(unused) as u64
}

#[inline(always)]
fn swap_byte_order(insn: Insn, value: u64) -> Option<u64> {
    let is_swapped = insn.class() == class::ALU64 || insn.op & source::X != 0;
    Some(match (insn.immediate, is_swapped) {
        (16, false) => u64::from(value as u16),
        (16, true) => u64::from((value as u16).swap_bytes()),
        (32, false) => u64::from(value as u32),
        (32, true) => u64::from((value as u32).swap_bytes()),
        (64, false) => value,
        (64, true) => value.swap_bytes(),
        _ => return None,
    })
}

#[inline(always)]
fn compute_64_bit(operation: u8, is_signed: bool, a: u64, b: u64) -> Option<u64> {
    let shift = b as u32 % 64;
    Some(match operation {
        alu::ADD => a.wrapping_add(b),
        alu::SUB => a.wrapping_sub(b),
        alu::MUL => a.wrapping_mul(b),
        alu::DIV if b == 0 => 0,
        alu::DIV if is_signed => (a as i64).wrapping_div(b as i64) as u64,
        alu::DIV => a / b,
        alu::OR => a | b,
        alu::AND => a & b,
        alu::LSH => a << shift,
        alu::RSH => a >> shift,
        alu::NEG => a.wrapping_neg(),
        alu::MOD if b == 0 => a,
        alu::MOD if is_signed => (a as i64).wrapping_rem(b as i64) as u64,
        alu::MOD => a % b,
        alu::XOR => a ^ b,
        alu::MOV => b,
        alu::ARSH => (a as i64 >> shift) as u64,
        _ => return None,
    })
}

#[inline(always)]
fn compute_32(operation: u8, is_signed: bool, a: u32, b: u32) -> Option<u32> {
    let shift = b % 32;
    Some(match operation {
        alu::ADD => a.wrapping_add(b),
        alu::SUB => a.wrapping_sub(b),
        alu::MUL => a.wrapping_mul(b),
        alu::DIV if b == 0 => 0,
        alu::DIV if is_signed => (a as i32).wrapping_div(b as i32) as u32,
        alu::DIV => a / b,
        alu::OR => a | b,
        alu::AND => a & b,
        alu::LSH => a << shift,
        alu::RSH => a >> shift,
        alu::NEG => a.wrapping_neg(),
        alu::MOD if b == 0 => a,
        alu::MOD if is_signed => (a as i32).wrapping_rem(b as i32) as u32,
        alu::MOD => a % b,
        alu::XOR => a ^ b,
        alu::MOV => b,
        alu::ARSH => (a as i32 >> shift) as u32,
        _ => return None,
    })
}

/// Returns true if a jump of class JMP or JMP32 is taken; `None` for other instructions.
#[inline(always)]
pub(crate) fn is_jump_taken(insn: Insn, dst: u64, src: u64) -> Option<bool> {
    let (a, b) = if insn.class() == class::JMP32 {
        // Sign extension keeps the order of 32-bit numbers, signed or not.
        (sign_extend(dst, 32), sign_extend(src, 32))
    } else {
        (dst, src)
    };
    let (signed_a, signed_b) = (a as i64, b as i64);
    Some(match insn.op & 0xf0 {
        jump::JA => true,
        jump::JEQ => a == b,
        jump::JGT => a > b,
        jump::JGE => a >= b,
        jump::JSET => a & b != 0,
        jump::JNE => a != b,
        jump::JSGT => signed_a > signed_b,
        jump::JSGE => signed_a >= signed_b,
        jump::JLT => a < b,
        jump::JLE => a <= b,
        jump::JSLT => signed_a < signed_b,
        jump::JSLE => signed_a <= signed_b,
        _ => return None,
    })
}
