//! Constructors of instructions, like in assembly.

use trackway_jit::helper::Helper;
use trackway_jit::insn::{
    CALL, EXIT, Insn, LDDW, LDDW_FUNCTION, alu, call, class, jump, mode, source,
};

const fn make_insn(op: u8, dst: u8, src: u8, offset: i16, immediate: i32) -> Insn {
    Insn { op, dst, src, offset, immediate }
}

pub(crate) const fn alu_immediate(operation: u8, dst: u8, immediate: i32) -> Insn {
    make_insn(class::ALU64 | source::K | operation, dst, 0, 0, immediate)
}

pub(crate) const fn alu_register(operation: u8, dst: u8, src: u8) -> Insn {
    make_insn(class::ALU64 | source::X | operation, dst, src, 0, 0)
}

pub(crate) const fn mov_immediate(dst: u8, immediate: i32) -> Insn {
    alu_immediate(alu::MOV, dst, immediate)
}

pub(crate) const fn mov_register(dst: u8, src: u8) -> Insn {
    alu_register(alu::MOV, dst, src)
}

pub(crate) const fn load_memory(size: u8, dst: u8, src: u8, offset: i16) -> Insn {
    make_insn(class::LDX | mode::MEM | size, dst, src, offset, 0)
}

pub(crate) const fn store_register(size: u8, dst: u8, offset: i16, src: u8) -> Insn {
    make_insn(class::STX | mode::MEM | size, dst, src, offset, 0)
}

pub(crate) const fn store_immediate(size: u8, dst: u8, offset: i16, immediate: i32) -> Insn {
    make_insn(class::ST | mode::MEM | size, dst, 0, offset, immediate)
}

pub(crate) const fn jump_if(operation: u8, dst: u8, immediate: i32, offset: i16) -> Insn {
    make_insn(class::JMP | source::K | operation, dst, 0, offset, immediate)
}

pub(crate) const fn jump_if_register(operation: u8, dst: u8, src: u8, offset: i16) -> Insn {
    make_insn(class::JMP | source::X | operation, dst, src, offset, 0)
}

pub(crate) const fn jump_always(offset: i16) -> Insn {
    make_insn(class::JMP | jump::JA, 0, 0, offset, 0)
}

pub(crate) const fn call_helper(helper: Helper) -> Insn {
    make_insn(CALL, 0, call::HELPER, 0, helper as i32)
}

pub(crate) const fn call_function(distance: i32) -> Insn {
    make_insn(CALL, 0, call::FUNCTION, 0, distance)
}

pub(crate) const fn load_immediate_64(dst: u8, number: u64) -> [Insn; 2] {
    let high = make_insn(0, 0, 0, 0, (number >> 32) as i32);
    [make_insn(LDDW, dst, 0, 0, number as i32), high]
}

pub(crate) const fn load_function_address(dst: u8, distance: i32) -> [Insn; 2] {
    [make_insn(LDDW, dst, LDDW_FUNCTION, 0, distance), make_insn(0, 0, 0, 0, 0)]
}

pub(crate) const EXIT_INSN: Insn = make_insn(EXIT, 0, 0, 0, 0);
