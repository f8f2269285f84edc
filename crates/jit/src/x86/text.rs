//! Inlined comparisons of a string's bytes: the code checks the bounds and compares the bytes in
//! the argument registers of a call. `Frame::edges` and `Frame::differ` compute the same results.

use super::chunk::{Chunk, Condition, Group, R9, RAX, RCX, RDI, RDX, RSI, Reg, Width};
use crate::frame::offset;
use crate::helper::Helper;

/// Emits a helper that compares `size` bytes at each end of a string: 1, 2, 4 or 8.
pub(super) fn emit_edges_compare(chunk: &mut Chunk, size: u8) {
    // eax: start of the string. A constant has bit 31 set, so it starts beyond all bytes.
    chunk.mov(Width::Narrow, RAX, RSI);
    // shr rsi, 32: length of the string.
    chunk.single(Width::Wide, 0xc1, 5, RSI);
    chunk.byte(32);
    // cmp esi, size; jb
    chunk.single(Width::Narrow, 0x83, 7, RSI);
    chunk.byte(size);
    let short = chunk.jump_forward(Some(Condition::UnsignedLess));
    // r9: the bytes. rsi: end of the string, less than 2^33.
    chunk.memory(Width::Wide, &[0x8b], R9, (RDI, offset::BYTES));
    chunk.group(Group::Add, Width::Wide, RSI, RAX);
    // cmp rsi, [rdi + …]; ja
    chunk.memory(Width::Wide, &[0x3b], RSI, (RDI, offset::SIZE_BYTES));
    let beyond = chunk.jump_forward(Some(Condition::UnsignedGreater));
    let (xor, or): (&[u8], &[u8]) = match size {
        // With rex.w and rex.b: operands rdx and rcx, base r9.
        8 => (&[0x49, 0x33], &[0x48, 0x09]),
        4 => (&[0x41, 0x33], &[0x09]),
        2 => (&[0x66, 0x41, 0x33], &[0x66, 0x09]),
        _ => (&[0x41, 0x32], &[0x08]),
    };
    // xor rdx, [r9 + rax]; xor rcx, [r9 + rsi - size]; or rdx, rcx: zero if both ends match.
    chunk.raw(xor);
    chunk.raw(&[0x14, 0x01]);
    chunk.raw(xor);
    chunk.raw(&[0x4c, 0x31, size.wrapping_neg()]);
    chunk.raw(or);
    chunk.byte(0xca);
    // Jumps to this point leave the flags at "not equal", so one `sete` serves all paths.
    chunk.land(short);
    chunk.land(beyond);
    // sete al; movzx eax, al
    chunk.raw(&[0x0f, 0x94, 0xc0, 0x0f, 0xb6, 0xc0]);
}

/// Emits a helper that compares `count` bytes, 1 to 16, with numbers.
///
/// The result is the differing bits, at no cost: the filter tests the result for zero anyway. If
/// the bytes do not exist, the result is their end offset, which is not zero.
pub(super) fn emit_differing_bits(chunk: &mut Chunk, count: u8) {
    let (first, last) = Helper::number_bytes(count);
    // rsi: start of the bytes, zero-extended. rax: end of the bytes, less than 2^33.
    chunk.mov(Width::Narrow, RSI, RSI);
    chunk.memory(Width::Wide, &[0x8d], RAX, (RSI, count.into()));
    // cmp rax, [rdi + …]; ja
    chunk.memory(Width::Wide, &[0x3b], RAX, (RDI, offset::SIZE_BYTES));
    let beyond = chunk.jump_forward(Some(Condition::UnsignedGreater));
    // add rsi, [rdi + …]: address of the bytes.
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

/// Replaces a number by its difference from the `size` bytes at rsi + `from`. With a size of 4
/// bytes, the upper half becomes zero.
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
