//! Checks of single instructions: operation, registers, and zeros in unused fields.
//!
//! This check rejects instructions that RFC 9669 leaves undefined or that filters do not use
//! (atomics, packet loads, maps), so that later code need not handle them.

use super::Reason;
use crate::insn::{
    CALL, EXIT, Insn, LDDW, LDDW_FUNCTION, REGISTERS, STACK_END, alu, call, class, jump, mode,
    size, source,
};

/// Checks the form of an instruction; `next` is the following one.
pub(super) fn check_insn(insn: Insn, next: Option<Insn>) -> Result<(), Reason> {
    match insn.class() {
        class::LD => check_wide_load(insn, next),
        class::LDX => {
            let signed = mode::MEMSX | size::DW;
            match insn.op & 0xe0 {
                mode::MEM => {}
                mode::MEMSX if insn.op & (0xe0 | size::DW) != signed => {}
                _ => return Err(Reason::Operation),
            }
            check_destination(insn)?;
            check_register(insn.src)?;
            check_unused_field(insn.immediate == 0)
        }
        class::ST | class::STX if insn.op & 0xe0 != mode::MEM => Err(Reason::Operation),
        class::ST => {
            check_register(insn.dst)?;
            check_unused_field(insn.src == 0)
        }
        class::STX => {
            check_register(insn.dst)?;
            check_register(insn.src)?;
            check_unused_field(insn.immediate == 0)
        }
        class::ALU | class::ALU64 => check_arithmetic(insn),
        _ => check_jump(insn),
    }
}

fn check_register(number: u8) -> Result<(), Reason> {
    if usize::from(number) < REGISTERS { Ok(()) } else { Err(Reason::Register(number)) }
}

/// Checks that the destination register is writable.
fn check_destination(insn: Insn) -> Result<(), Reason> {
    if insn.dst == STACK_END { Err(Reason::StackEnd) } else { check_register(insn.dst) }
}

fn check_unused_field(is_zero: bool) -> Result<(), Reason> {
    if is_zero { Ok(()) } else { Err(Reason::Field) }
}

fn check_wide_load(insn: Insn, next: Option<Insn>) -> Result<(), Reason> {
    if insn.op != LDDW {
        return Err(Reason::Operation);
    }
    check_destination(insn)?;
    let Some(next) = next.filter(|next| next.op == 0) else { return Err(Reason::Half) };
    let half = Insn { immediate: next.immediate, ..Insn::default() };
    check_unused_field(insn.offset == 0 && next == half)?;
    match insn.src {
        0 => Ok(()),
        LDDW_FUNCTION => check_unused_field(next.immediate == 0),
        _ => Err(Reason::Field),
    }
}

/// Checks the second operand: a register without an immediate, or an immediate without a register.
fn check_operand(insn: Insn) -> Result<(), Reason> {
    if insn.op & source::X == 0 {
        return check_unused_field(insn.src == 0);
    }
    check_register(insn.src)?;
    check_unused_field(insn.immediate == 0)
}

fn check_arithmetic(insn: Insn) -> Result<(), Reason> {
    let is_64 = insn.class() == class::ALU64;
    check_destination(insn)?;
    match insn.op & 0xf0 {
        alu::ADD..=alu::RSH | alu::MOD..=alu::ARSH => {}
        alu::NEG => {
            if insn.op & source::X != 0 {
                return Err(Reason::Operation);
            }
            return check_unused_field(insn.src == 0 && insn.offset == 0 && insn.immediate == 0);
        }
        alu::END => {
            if is_64 && insn.op & source::X != 0 {
                return Err(Reason::Operation);
            }
            let is_width = matches!(insn.immediate, 16 | 32 | 64);
            return check_unused_field(insn.src == 0 && insn.offset == 0 && is_width);
        }
        _ => return Err(Reason::Operation),
    }
    check_operand(insn)?;
    match (insn.op & 0xf0, insn.offset) {
        (_, 0) | (alu::DIV | alu::MOD, 1) => Ok(()),
        (alu::MOV, 8 | 16) if insn.op & source::X != 0 => Ok(()),
        (alu::MOV, 32) if insn.op & source::X != 0 && is_64 => Ok(()),
        _ => Err(Reason::Field),
    }
}

fn check_jump(insn: Insn) -> Result<(), Reason> {
    let is_32 = insn.class() == class::JMP32;
    match insn.op {
        EXIT => check_unused_field(insn == Insn { op: EXIT, ..Insn::default() }),
        CALL => {
            check_unused_field(insn.dst == 0 && insn.offset == 0)?;
            check_unused_field(matches!(insn.src, call::HELPER | call::FUNCTION))
        }
        _ => match insn.op & 0xf0 {
            jump::JA if insn.op & source::X != 0 => Err(Reason::Operation),
            jump::JA => {
                check_unused_field(insn.dst == 0 && insn.src == 0)?;
                check_unused_field(if is_32 { insn.offset == 0 } else { insn.immediate == 0 })
            }
            jump::CALL | jump::EXIT => Err(Reason::Operation),
            jump::JEQ..=jump::JSLE => {
                check_register(insn.dst)?;
                check_operand(insn)
            }
            _ => Err(Reason::Operation),
        },
    }
}
