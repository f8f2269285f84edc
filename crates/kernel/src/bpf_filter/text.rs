//! Helpers on strings, as functions in BPF: they answer what those of `jit` answer.
//!
//! The kernel's verifier accepts no loop of unknown length but by a helper of its own, bpf_loop,
//! which calls a function for each turn. What turns know of each other is in the scratch of the
//! [area](crate::bpf_filter::area). Searching is in [`crate::bpf_filter::search`].

use trackway_jit::helper::Helper;
use trackway_jit::insn::{STACK_END, alu, jump};

use crate::bpf_filter::adapt::{Parts, Piece};
use crate::bpf_filter::area::{
    BYTES_AT, BYTES_LENGTH_AT, CHUNK_BYTES, CONSTANTS_LENGTH_AT, OFFSET_BITS, REGION_BYTES,
    SCRATCH_AT,
};
use crate::bpf_sys::asm::{Asm, Register};

/// The frame, in functions that call others.
pub(crate) const FRAME: Register = 6;
/// `long bpf_loop(u32 turns, void *function, void *context, u64 flags)`, since Linux 5.17.
const BPF_LOOP: i32 = 181;
/// Offsets of bytes, and of constants behind them, have these bits.
pub(crate) const OFFSET_MASK: i32 = 2 * REGION_BYTES as i32 - 1;
/// log2 of where constants begin, from the bytes' beginning.
const REGION_BITS: i32 = REGION_BYTES.trailing_zeros() as i32;

/// A string: where it begins among bytes and constants, and its length.
pub(crate) const A_OFFSET: i16 = SCRATCH_AT;
pub(crate) const A_LENGTH: i16 = SCRATCH_AT + 8;
/// What it is compared with.
pub(crate) const B_OFFSET: i16 = SCRATCH_AT + 16;
pub(crate) const B_LENGTH: i16 = SCRATCH_AT + 24;
pub(crate) const RESULT: i16 = SCRATCH_AT + 32;
/// How many bytes of both are compared, and how many at a time.
const COMPARED: i16 = SCRATCH_AT + 40;
const WORD_BYTES: i32 = 8;
const _: () = assert!(WORD_BYTES as usize <= CHUNK_BYTES);
/// In place of an offset from the bytes' beginning, the byte there. The frame is in register 6.
pub(crate) fn byte(asm: &mut Asm, register: Register) {
    asm.alui(alu::AND, register, OFFSET_MASK);
    asm.alu(alu::ADD, register, FRAME);
    asm.load_byte(register, register, BYTES_AT);
}

/// `word(frame, word, log2 of an element's size)`: the offset of what the word speaks of (lower
/// half), and its length in bytes; both 0 if it makes no sense.
pub(crate) fn word(asm: &mut Asm) {
    let (out, of_frame, check) = (asm.label(), asm.label(), asm.label());
    asm.movi(0, 0);
    asm.mov(4, 2);
    asm.alui(alu::RSH, 4, 32);
    asm.alu(alu::LSH, 4, 3);
    asm.mov(5, 2);
    asm.alui(alu::LSH, 5, 64 - OFFSET_BITS);
    asm.alui(alu::RSH, 5, 64 - OFFSET_BITS);
    asm.alui(alu::RSH, 2, OFFSET_BITS);
    asm.alui(alu::AND, 2, 1);
    asm.jumpi(jump::JEQ, 2, 0, of_frame);
    asm.load(3, 1, CONSTANTS_LENGTH_AT);
    asm.goto(check);
    asm.place(of_frame);
    asm.load(3, 1, BYTES_LENGTH_AT);
    asm.place(check);
    asm.jump(jump::JGT, 5, 3, out);
    asm.alu(alu::SUB, 3, 5);
    asm.jump(jump::JGT, 4, 3, out);
    asm.alui(alu::LSH, 2, REGION_BITS);
    asm.alu(alu::ADD, 5, 2);
    asm.alui(alu::LSH, 4, 32);
    asm.alu(alu::OR, 4, 5);
    asm.mov(0, 4);
    asm.place(out);
    asm.exit();
}

/// Parts what `word` answered, in register 0: the offset into register 1, the length stays in 0.
pub(crate) fn part(asm: &mut Asm) {
    asm.mov(1, 0);
    asm.alui(alu::LSH, 1, 32);
    asm.alui(alu::RSH, 1, 32);
    asm.alui(alu::RSH, 0, 32);
}

/// Begins a helper: the frame goes to register 6, one word or two to the scratch.
pub(crate) fn begin(parts: &mut Parts, words: usize) {
    let word = parts.label(Piece::Word);
    let asm = &mut parts.asm;
    asm.mov(FRAME, 1);
    if words > 1 {
        asm.mov(7, 3);
    }
    for (offset, length) in [(A_OFFSET, A_LENGTH), (B_OFFSET, B_LENGTH)].into_iter().take(words) {
        if offset == B_OFFSET {
            asm.mov(1, FRAME);
            asm.mov(2, 7);
        }
        asm.movi(3, 0);
        asm.call(word);
        part(asm);
        asm.store(FRAME, offset, 1);
        asm.store(FRAME, length, 0);
    }
    asm.storei(FRAME, RESULT, 0);
}

/// As many turns as register 1 says.
pub(crate) fn turns(parts: &mut Parts, turn: Piece) {
    let turn = parts.label(turn);
    let asm = &mut parts.asm;
    asm.store(STACK_END, -8, FRAME);
    asm.address(2, turn);
    asm.mov(3, STACK_END);
    asm.alui(alu::ADD, 3, -8);
    asm.movi(4, 0);
    asm.call_kernel(BPF_LOOP);
}

/// Begins a turn: its number is in register 1, the frame goes to register 6.
pub(crate) fn turn(asm: &mut Asm) {
    asm.load(FRAME, 2, 0);
}

/// `string_compare`
pub(crate) fn compare(parts: &mut Parts) {
    begin(parts, 2);
    let asm = &mut parts.asm;
    let (shorter, out) = (asm.label(), asm.label());
    asm.load(1, FRAME, A_LENGTH);
    asm.load(2, FRAME, B_LENGTH);
    asm.jump(jump::JLE, 1, 2, shorter);
    asm.mov(1, 2);
    asm.place(shorter);
    compare_bytes(parts);
    let asm = &mut parts.asm;
    asm.load(0, FRAME, RESULT);
    asm.jumpi(jump::JNE, 0, 0, out);
    asm.load(1, FRAME, A_LENGTH);
    asm.load(2, FRAME, B_LENGTH);
    asm.jump(jump::JEQ, 1, 2, out);
    asm.movi(0, 1);
    asm.jump(jump::JGT, 1, 2, out);
    asm.movi(0, -1);
    asm.place(out);
    asm.exit();
}

/// As many bytes of both strings as register 1 says.
fn compare_bytes(parts: &mut Parts) {
    let asm = &mut parts.asm;
    asm.store(FRAME, COMPARED, 1);
    // Of what was in memory the verifier knows nothing.
    asm.load(1, FRAME, COMPARED);
    asm.alui(alu::ADD, 1, WORD_BYTES - 1);
    asm.alui(alu::RSH, 1, WORD_BYTES.trailing_zeros() as i32);
    turns(parts, Piece::CompareTurn);
}

/// Eight bytes of both strings, or those that are left, as numbers whose first byte is the highest:
/// stops where they differ.
pub(crate) fn compare_turn(asm: &mut Asm) {
    let [whole, differ, below] = std::array::from_fn(|_| asm.label());
    turn(asm);
    asm.alui(alu::LSH, 1, WORD_BYTES.trailing_zeros() as i32);
    for (register, offset) in [(3, A_OFFSET), (4, B_OFFSET)] {
        asm.load(register, FRAME, offset);
        asm.alu(alu::ADD, register, 1);
        asm.alui(alu::AND, register, OFFSET_MASK);
        asm.alu(alu::ADD, register, FRAME);
        asm.load(register, register, BYTES_AT);
        asm.swap_to_big_endian(register);
    }
    asm.load(2, FRAME, COMPARED);
    asm.alu(alu::SUB, 2, 1);
    asm.jumpi(jump::JGE, 2, WORD_BYTES, whole);
    // What is behind the end is none of theirs.
    asm.movi(5, WORD_BYTES);
    asm.alu(alu::SUB, 5, 2);
    asm.alui(alu::LSH, 5, 3);
    asm.alu(alu::RSH, 3, 5);
    asm.alu(alu::RSH, 4, 5);
    asm.place(whole);
    asm.jump(jump::JNE, 3, 4, differ);
    asm.answer(0);
    asm.place(differ);
    asm.jump(jump::JLT, 3, 4, below);
    asm.storei(FRAME, RESULT, 1);
    asm.answer(1);
    asm.place(below);
    asm.storei(FRAME, RESULT, -1);
    asm.answer(1);
}

/// `string_starts_with`, or `string_ends_with`.
pub(crate) fn is_at_end(parts: &mut Parts, is_last: bool) {
    begin(parts, 2);
    let asm = &mut parts.asm;
    let no = asm.label();
    asm.load(1, FRAME, B_LENGTH);
    asm.load(2, FRAME, A_LENGTH);
    asm.jump(jump::JGT, 1, 2, no);
    if is_last {
        asm.alu(alu::SUB, 2, 1);
        asm.load(3, FRAME, A_OFFSET);
        asm.alu(alu::ADD, 3, 2);
        asm.store(FRAME, A_OFFSET, 3);
    }
    compare_bytes(parts);
    let asm = &mut parts.asm;
    asm.load(1, FRAME, RESULT);
    asm.jumpi(jump::JNE, 1, 0, no);
    asm.answer(1);
    asm.place(no);
    asm.answer(0);
}

/// Whether a string of the event begins with the lowest bytes of one number, and ends with those of
/// another.
pub(crate) fn edges(parts: &mut Parts, bytes: u8) {
    let word = parts.label(Piece::Word);
    let asm = &mut parts.asm;
    let no = asm.label();
    asm.mov(FRAME, 1);
    asm.mov(7, 3);
    asm.mov(8, 4);
    asm.movi(3, 0);
    asm.call(word);
    part(asm);
    asm.jumpi(jump::JLT, 0, bytes.into(), no);
    // Constants are none of the event's strings.
    asm.mov(2, 1);
    asm.alui(alu::RSH, 2, REGION_BITS);
    asm.jumpi(jump::JNE, 2, 0, no);
    asm.mov(9, 1);
    asm.alu(alu::ADD, 9, 0);
    asm.alui(alu::ADD, 9, -i32::from(bytes));
    for (begin, edge) in [(1, 7), (9, 8)] {
        for place in 0..i32::from(bytes) {
            asm.mov(2, begin);
            asm.alui(alu::ADD, 2, place);
            byte(asm, 2);
            asm.mov(3, edge);
            asm.alui(alu::RSH, 3, 8 * place);
            asm.alui(alu::AND, 3, 0xff);
            asm.jump(jump::JNE, 2, 3, no);
        }
    }
    asm.answer(1);
    asm.place(no);
    asm.answer(0);
}

/// In which bits so many of the event's bytes differ from those of two numbers; where they would
/// end, if there are not so many.
pub(crate) fn differ(asm: &mut Asm, count: u8) {
    let out = asm.label();
    asm.mov(FRAME, 1);
    asm.alui(alu::LSH, 2, 32);
    asm.alui(alu::RSH, 2, 32);
    asm.mov(0, 2);
    asm.alui(alu::ADD, 0, count.into());
    asm.load(1, FRAME, BYTES_LENGTH_AT);
    asm.jump(jump::JGT, 0, 1, out);
    asm.movi(0, 0);
    let (first, last) = Helper::number_bytes(count);
    for (size, begin, number) in [(first, 0, 3), (last, count - last, 4)] {
        if size == 0 {
            continue;
        }
        // All at once, wherever they begin: the mask says to the kernel's verifier what is so.
        asm.mov(1, 2);
        asm.alui(alu::ADD, 1, begin.into());
        asm.alui(alu::AND, 1, REGION_BYTES as i32 - 1);
        asm.alu(alu::ADD, 1, FRAME);
        asm.load_of(size.into(), 1, 1, BYTES_AT);
        asm.alu(alu::XOR, 1, number);
        let above = 64 - 8 * i32::from(size);
        asm.alui(alu::LSH, 1, above);
        asm.alui(alu::RSH, 1, above);
        asm.alu(alu::OR, 0, 1);
    }
    asm.place(out);
    asm.exit();
}

/// `string_hash`
pub(crate) fn hash(parts: &mut Parts) {
    begin(parts, 1);
    let asm = &mut parts.asm;
    asm.wide(1, 0xcbf2_9ce4_8422_2325);
    asm.store(FRAME, RESULT, 1);
    asm.load(1, FRAME, A_LENGTH);
    turns(parts, Piece::HashTurn);
    let asm = &mut parts.asm;
    asm.load(0, FRAME, RESULT);
    asm.exit();
}

/// The byte with the turn's number.
pub(crate) fn hash_turn(asm: &mut Asm) {
    turn(asm);
    asm.load(3, FRAME, A_OFFSET);
    asm.alu(alu::ADD, 3, 1);
    byte(asm, 3);
    asm.load(4, FRAME, RESULT);
    asm.alu(alu::XOR, 4, 3);
    asm.wide(5, 0x100_0000_01b3);
    asm.alu(alu::MUL, 4, 5);
    asm.store(FRAME, RESULT, 4);
    asm.answer(0);
}
