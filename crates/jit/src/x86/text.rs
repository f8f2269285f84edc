//! Comparisons of a string's bytes, without a call: the code checks their bounds and compares them,
//! in the registers that a call has for its arguments. `Frame::edges` and `Frame::differ` do the
//! same.

use super::chunk::{Chunk, Condition, Group, R9, RAX, RCX, RDI, RDX, RSI, Reg, Width};
use crate::frame::offset;
use crate::helper::Helper;

/// The code of a helper that compares `size` bytes at each edge: 1, 2, 4 or 8.
pub(super) fn emit_edges_compare(chunk: &mut Chunk, size: u8) {
    // eax: where the string begins. That of a constant has bit 31 set: beyond all bytes.
    chunk.mov(Width::Narrow, RAX, RSI);
    // shr rsi, 32: its length.
    chunk.single(Width::Wide, 0xc1, 5, RSI);
    chunk.byte(32);
    // cmp esi, size; jb
    chunk.single(Width::Narrow, 0x83, 7, RSI);
    chunk.byte(size);
    let short = chunk.jump_forward(Some(Condition::UnsignedLess));
    // r9: the bytes. rsi: where the string ends, which is less than 2^33.
    chunk.memory(Width::Wide, &[0x8b], R9, (RDI, offset::BYTES));
    chunk.group(Group::Add, Width::Wide, RSI, RAX);
    // cmp rsi, [rdi + …]; ja
    chunk.memory(Width::Wide, &[0x3b], RSI, (RDI, offset::SIZE_BYTES));
    let beyond = chunk.jump_forward(Some(Condition::UnsignedGreater));
    let (xor, or): (&[u8], &[u8]) = match size {
        // With rex.w and rex.b: rdx, rcx; r9 is the base.
        8 => (&[0x49, 0x33], &[0x48, 0x09]),
        4 => (&[0x41, 0x33], &[0x09]),
        2 => (&[0x66, 0x41, 0x33], &[0x66, 0x09]),
        _ => (&[0x41, 0x32], &[0x08]),
    };
    // xor rdx, [r9 + rax]; xor rcx, [r9 + rsi - size]; or rdx, rcx: zero if both are the same.
    chunk.raw(xor);
    chunk.raw(&[0x14, 0x01]);
    chunk.raw(xor);
    chunk.raw(&[0x4c, 0x31, size.wrapping_neg()]);
    chunk.raw(or);
    chunk.byte(0xca);
    // Who jumps here has compared what differs, so that "equal" is the answer on all ways.
    chunk.land(short);
    chunk.land(beyond);
    // sete al; movzx eax, al
    chunk.raw(&[0x0f, 0x94, 0xc0, 0x0f, 0xb6, 0xc0]);
}

/// The code of a helper that compares `count` bytes, 1 to 16, with numbers.
///
/// The result is the bits that differ, at no cost: the filter tests it for zero anyway. If the
/// bytes do not exist, the result is their end: not zero.
pub(super) fn emit_differing_bits(chunk: &mut Chunk, count: u8) {
    let (first, last) = Helper::number_bytes(count);
    // rsi: where they begin, without an upper half. rax: where they end, which is less than 2^33.
    chunk.mov(Width::Narrow, RSI, RSI);
    chunk.memory(Width::Wide, &[0x8d], RAX, (RSI, count.into()));
    // cmp rax, [rdi + …]; ja
    chunk.memory(Width::Wide, &[0x3b], RAX, (RDI, offset::SIZE_BYTES));
    let beyond = chunk.jump_forward(Some(Condition::UnsignedGreater));
    // add rsi, [rdi + …]: their address.
    chunk.memory(Width::Wide, &[0x03], RSI, (RDI, offset::BYTES));
    emit_xor(chunk, first, RDX, 0);
    let width = if first == 8 { Width::Wide } else { Width::Narrow };
    if last > 0 {
        emit_xor(chunk, last, RCX, count - last);
        chunk.group(Group::Or, width, RDX, RCX);
    }
    match first {
        // movzx eax, dx or dl
        2 => chunk.registers(width, &[0x0f, 0xb7], RAX, RDX),
        1 => chunk.registers(width, &[0x0f, 0xb6], RAX, RDX),
        _ => chunk.mov(width, RAX, RDX),
    }
    chunk.land(beyond);
}

/// In place of a number its difference from so many bytes, `from` bytes behind rsi. Above 4 bytes
/// of it there is nothing then.
fn emit_xor(chunk: &mut Chunk, size: u8, number: Reg, from: u8) {
    let place = (RSI, from.into());
    match size {
        8 => chunk.memory(Width::Wide, &[0x33], number, place),
        4 => chunk.memory(Width::Narrow, &[0x33], number, place),
        2 => {
            chunk.byte(0x66);
            chunk.memory(Width::Narrow, &[0x33], number, place);
        }
        _ => chunk.memory_byte(0x32, number, place),
    }
}
