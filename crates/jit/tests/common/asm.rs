//! Instructions, as one would write them.

use trackway_jit::helper::Helper;
use trackway_jit::insn::{
    CALL, EXIT, Insn, LDDW, LDDW_FUNCTION, alu, call, class, jump, mode, source,
};

const fn insn(op: u8, dst: u8, src: u8, offset: i16, immediate: i32) -> Insn {
    Insn { op, dst, src, offset, immediate }
}

pub(crate) const fn alu(operation: u8, dst: u8, immediate: i32) -> Insn {
    insn(class::ALU64 | source::K | operation, dst, 0, 0, immediate)
}

pub(crate) const fn alu_register(operation: u8, dst: u8, src: u8) -> Insn {
    insn(class::ALU64 | source::X | operation, dst, src, 0, 0)
}

pub(crate) const fn mov(dst: u8, immediate: i32) -> Insn {
    alu(alu::MOV, dst, immediate)
}

pub(crate) const fn copy(dst: u8, src: u8) -> Insn {
    alu_register(alu::MOV, dst, src)
}

pub(crate) const fn load(size: u8, dst: u8, src: u8, offset: i16) -> Insn {
    insn(class::LDX | mode::MEM | size, dst, src, offset, 0)
}

pub(crate) const fn store(size: u8, dst: u8, offset: i16, src: u8) -> Insn {
    insn(class::STX | mode::MEM | size, dst, src, offset, 0)
}

pub(crate) const fn store_number(size: u8, dst: u8, offset: i16, immediate: i32) -> Insn {
    insn(class::ST | mode::MEM | size, dst, 0, offset, immediate)
}

pub(crate) const fn jump_if(operation: u8, dst: u8, immediate: i32, offset: i16) -> Insn {
    insn(class::JMP | source::K | operation, dst, 0, offset, immediate)
}

pub(crate) const fn jump_if_register(operation: u8, dst: u8, src: u8, offset: i16) -> Insn {
    insn(class::JMP | source::X | operation, dst, src, offset, 0)
}

pub(crate) const fn goto(offset: i16) -> Insn {
    insn(class::JMP | jump::JA, 0, 0, offset, 0)
}

pub(crate) const fn help(helper: Helper) -> Insn {
    insn(CALL, 0, call::HELPER, 0, helper as i32)
}

pub(crate) const fn call_function(distance: i32) -> Insn {
    insn(CALL, 0, call::FUNCTION, 0, distance)
}

pub(crate) const fn wide(dst: u8, number: u64) -> [Insn; 2] {
    let high = insn(0, 0, 0, 0, (number >> 32) as i32);
    [insn(LDDW, dst, 0, 0, number as i32), high]
}

pub(crate) const fn function(dst: u8, distance: i32) -> [Insn; 2] {
    [insn(LDDW, dst, LDDW_FUNCTION, 0, distance), insn(0, 0, 0, 0, 0)]
}

pub(crate) const EXITS: Insn = insn(EXIT, 0, 0, 0, 0);
