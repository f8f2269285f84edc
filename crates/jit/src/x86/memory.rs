//! Loads and stores.

use super::chunk::{Chunk, RAX, Width, map_register};
use crate::insn::{Insn, class, mode, size};

pub(super) fn emit_load(chunk: &mut Chunk, insn: Insn) {
    let is_signed = insn.op & 0xe0 == mode::MEMSX;
    let (width, operation): (_, &[u8]) = match (insn.op & size::DW, is_signed) {
        (size::B, false) => (Width::Narrow, &[0x0f, 0xb6]),
        (size::H, false) => (Width::Narrow, &[0x0f, 0xb7]),
        (size::W, false) => (Width::Narrow, &[0x8b]),
        (size::B, true) => (Width::Wide, &[0x0f, 0xbe]),
        (size::H, true) => (Width::Wide, &[0x0f, 0xbf]),
        (size::W, true) => (Width::Wide, &[0x63]),
        _ => (Width::Wide, &[0x8b]),
    };
    chunk.memory(
        width,
        operation,
        map_register(insn.dst),
        (map_register(insn.src), insn.offset.into()),
    );
}

pub(super) fn emit_store(chunk: &mut Chunk, insn: Insn) {
    let at = (map_register(insn.dst), insn.offset.into());
    let is_register = insn.class() == class::STX;
    let reg = map_register(insn.src);
    let width = if insn.op & size::DW == size::DW { Width::Wide } else { Width::Narrow };
    if insn.op & size::DW == size::H {
        chunk.byte(0x66);
    }
    let [low, high, ..] = insn.immediate.to_le_bytes();
    match (insn.op & size::DW, is_register) {
        (size::B, true) => chunk.memory_byte(0x88, reg, at),
        (_, true) => chunk.memory(width, &[0x89], reg, at),
        (size::B, false) => {
            chunk.memory(width, &[0xc6], RAX, at);
            chunk.byte(low);
        }
        (size::H, false) => {
            chunk.memory(width, &[0xc7], RAX, at);
            chunk.raw(&[low, high]);
        }
        (_, false) => {
            chunk.memory(width, &[0xc7], RAX, at);
            chunk.i32(insn.immediate);
        }
    }
}
