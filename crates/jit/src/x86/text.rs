//! What is asked of a string's edges, without a call: a word is bounded, and both its ends are
//! compared, in the registers that a call has for its arguments. `Frame::edges` does the same.

use super::chunk::{Chunk, Condition, Group, R9, RAX, RDI, RSI, Width};
use crate::frame::offset;

/// The code of a helper that compares `size` bytes at each edge: 1, 2, 4 or 8.
pub(super) fn edges(chunk: &mut Chunk, size: u8) {
    // eax: where the string begins. That of a constant has bit 31 set: beyond all bytes.
    chunk.mov(Width::Narrow, RAX, RSI);
    // shr rsi, 32: its length.
    chunk.single(Width::Wide, 0xc1, 5, RSI);
    chunk.byte(32);
    // cmp esi, size; jb
    chunk.single(Width::Narrow, 0x83, 7, RSI);
    chunk.byte(size);
    let short = chunk.ahead(Some(Condition::Below));
    // r9: the bytes. rsi: where the string ends, which is less than 2^33.
    chunk.memory(Width::Wide, &[0x8b], R9, (RDI, offset::BYTES));
    chunk.group(Group::Add, Width::Wide, RSI, RAX);
    // cmp rsi, [rdi + …]; ja
    chunk.memory(Width::Wide, &[0x3b], RSI, (RDI, offset::SIZE_BYTES));
    let beyond = chunk.ahead(Some(Condition::Above));
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
    chunk.here(short);
    chunk.here(beyond);
    // sete al; movzx eax, al
    chunk.raw(&[0x0f, 0x94, 0xc0, 0x0f, 0xb6, 0xc0]);
}
