//! String helpers as BPF functions, with results equal to `jit`'s helpers.
//!
//! The verifier accepts loops of unknown length only through bpf_loop, which calls a function for
//! each iteration. Loop state is in the [scratch area](crate::bpf_filter::scratch). Search is in
//! [`crate::bpf_filter::search`].

use trackway_jit::helper::Helper;
use trackway_jit::insn::{STACK_END, alu, jump};

use crate::bpf_filter::scratch::{
    BYTES_AT, BYTES_LENGTH_AT, CHUNK_BYTES, CONSTANTS_LENGTH_AT, HELPER_STATE_AT, OFFSET_BITS,
    REGION_BYTES,
};
use crate::bpf_filter::translate::{FilterAssembler, HelperFunction};
use crate::bpf_sys::asm::{Asm, Register};

/// The register that has the frame in functions that call other functions.
pub(crate) const FRAME: Register = 6;
/// `long bpf_loop(u32 turns, void *function, void *context, u64 flags)`, since Linux 5.17.
const BPF_LOOP: i32 = 181;
/// A mask for offsets in the bytes and the constants that follow the bytes.
pub(crate) const OFFSET_MASK: i32 = 2 * REGION_BYTES as i32 - 1;
/// The logarithm, base 2, of the constants' offset from the bytes.
const REGION_BITS: i32 = REGION_BYTES.trailing_zeros() as i32;

/// The offset of the first string in bytes and constants, and the string's length.
pub(crate) const A_OFFSET: i16 = HELPER_STATE_AT;
pub(crate) const A_LENGTH: i16 = HELPER_STATE_AT + 8;
/// The offset and length of the second string.
pub(crate) const B_OFFSET: i16 = HELPER_STATE_AT + 16;
pub(crate) const B_LENGTH: i16 = HELPER_STATE_AT + 24;
pub(crate) const RESULT: i16 = HELPER_STATE_AT + 32;
/// The number of compared bytes, and the number of bytes in an iteration.
const COMPARED: i16 = HELPER_STATE_AT + 40;
const WORD_BYTES: i32 = 8;
const _: () = assert!(WORD_BYTES as usize <= CHUNK_BYTES);
/// Replaces an offset in the bytes by the byte at that offset. Register 6 has the frame.
pub(crate) fn load_byte_at(asm: &mut Asm, register: Register) {
    asm.alui(alu::AND, register, OFFSET_MASK);
    asm.alu(alu::ADD, register, FRAME);
    asm.load_byte(register, register, BYTES_AT);
}

/// Writes `word(frame, word, log2 of an element's size)`, which returns the offset of a word's
/// bytes (lower half) and their length (upper half); 0 if the word is invalid.
pub(crate) fn write_word(asm: &mut Asm) {
    let (out, of_frame, check) = (asm.new_label(), asm.new_label(), asm.new_label());
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
    asm.place_label(of_frame);
    asm.load(3, 1, BYTES_LENGTH_AT);
    asm.place_label(check);
    asm.jump(jump::JGT, 5, 3, out);
    asm.alu(alu::SUB, 3, 5);
    asm.jump(jump::JGT, 4, 3, out);
    asm.alui(alu::LSH, 2, REGION_BITS);
    asm.alu(alu::ADD, 5, 2);
    asm.alui(alu::LSH, 4, 32);
    asm.alu(alu::OR, 4, 5);
    asm.mov(0, 4);
    asm.place_label(out);
    asm.exit();
}

/// Splits the result of `word` in register 0: moves the offset to register 1 and keeps the length.
pub(crate) fn split_word(asm: &mut Asm) {
    asm.mov(1, 0);
    asm.alui(alu::LSH, 1, 32);
    asm.alui(alu::RSH, 1, 32);
    asm.alui(alu::RSH, 0, 32);
}

/// Begins a helper: copies the frame to register 6, and one or two words to the helper state.
pub(crate) fn begin_helper(assembler: &mut FilterAssembler, words: usize) {
    let word = assembler.label(HelperFunction::Word);
    let asm = &mut assembler.asm;
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
        split_word(asm);
        asm.store(FRAME, offset, 1);
        asm.store(FRAME, length, 0);
    }
    asm.storei(FRAME, RESULT, 0);
}

/// Writes a loop with as many iterations as register 1 contains.
pub(crate) fn write_loop(assembler: &mut FilterAssembler, turn: HelperFunction) {
    let turn = assembler.label(turn);
    let asm = &mut assembler.asm;
    asm.store(STACK_END, -8, FRAME);
    asm.load_function_address(2, turn);
    asm.mov(3, STACK_END);
    asm.alui(alu::ADD, 3, -8);
    asm.movi(4, 0);
    asm.call_kernel(BPF_LOOP);
}

/// Begins a loop body: its number is in register 1; copies the frame to register 6.
pub(crate) fn begin_turn(asm: &mut Asm) {
    asm.load(FRAME, 2, 0);
}

/// Writes the function for `string_compare`.
pub(crate) fn write_compare(assembler: &mut FilterAssembler) {
    begin_helper(assembler, 2);
    let asm = &mut assembler.asm;
    let (shorter, out) = (asm.new_label(), asm.new_label());
    asm.load(1, FRAME, A_LENGTH);
    asm.load(2, FRAME, B_LENGTH);
    asm.jump(jump::JLE, 1, 2, shorter);
    asm.mov(1, 2);
    asm.place_label(shorter);
    write_byte_comparison(assembler);
    let asm = &mut assembler.asm;
    asm.load(0, FRAME, RESULT);
    asm.jumpi(jump::JNE, 0, 0, out);
    asm.load(1, FRAME, A_LENGTH);
    asm.load(2, FRAME, B_LENGTH);
    asm.jump(jump::JEQ, 1, 2, out);
    asm.movi(0, 1);
    asm.jump(jump::JGT, 1, 2, out);
    asm.movi(0, -1);
    asm.place_label(out);
    asm.exit();
}

/// Writes code that compares as many bytes of both strings as register 1 contains.
fn write_byte_comparison(assembler: &mut FilterAssembler) {
    let asm = &mut assembler.asm;
    asm.store(FRAME, COMPARED, 1);
    // The verifier assumes nothing about a value from memory.
    asm.load(1, FRAME, COMPARED);
    asm.alui(alu::ADD, 1, WORD_BYTES - 1);
    asm.alui(alu::RSH, 1, WORD_BYTES.trailing_zeros() as i32);
    write_loop(assembler, HelperFunction::CompareTurn);
}

/// Writes a loop body that compares eight bytes of both strings, or the remaining bytes, as
/// big-endian numbers. Stops at a difference.
pub(crate) fn write_compare_turn(asm: &mut Asm) {
    let [whole, differ, below] = std::array::from_fn(|_| asm.new_label());
    begin_turn(asm);
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
    // Discards the bytes after the end.
    asm.movi(5, WORD_BYTES);
    asm.alu(alu::SUB, 5, 2);
    asm.alui(alu::LSH, 5, 3);
    asm.alu(alu::RSH, 3, 5);
    asm.alu(alu::RSH, 4, 5);
    asm.place_label(whole);
    asm.jump(jump::JNE, 3, 4, differ);
    asm.exit_with(0);
    asm.place_label(differ);
    asm.jump(jump::JLT, 3, 4, below);
    asm.storei(FRAME, RESULT, 1);
    asm.exit_with(1);
    asm.place_label(below);
    asm.storei(FRAME, RESULT, -1);
    asm.exit_with(1);
}

/// The end of a text at which another string must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Affix {
    Prefix,
    Suffix,
}

/// Writes the function for `string_starts_with` or `string_ends_with`.
pub(crate) fn write_affix_test(assembler: &mut FilterAssembler, affix: Affix) {
    begin_helper(assembler, 2);
    let asm = &mut assembler.asm;
    let no = asm.new_label();
    asm.load(1, FRAME, B_LENGTH);
    asm.load(2, FRAME, A_LENGTH);
    asm.jump(jump::JGT, 1, 2, no);
    if affix == Affix::Suffix {
        asm.alu(alu::SUB, 2, 1);
        asm.load(3, FRAME, A_OFFSET);
        asm.alu(alu::ADD, 3, 2);
        asm.store(FRAME, A_OFFSET, 3);
    }
    write_byte_comparison(assembler);
    let asm = &mut assembler.asm;
    asm.load(1, FRAME, RESULT);
    asm.jumpi(jump::JNE, 1, 0, no);
    asm.exit_with(1);
    asm.place_label(no);
    asm.exit_with(0);
}

/// Writes the test for the edges of an event's string: it must begin with the lowest bytes of one
/// number and end with the lowest bytes of another number.
pub(crate) fn write_edges(assembler: &mut FilterAssembler, bytes: u8) {
    let word = assembler.label(HelperFunction::Word);
    let asm = &mut assembler.asm;
    let no = asm.new_label();
    asm.mov(FRAME, 1);
    asm.mov(7, 3);
    asm.mov(8, 4);
    asm.movi(3, 0);
    asm.call(word);
    split_word(asm);
    asm.jumpi(jump::JLT, 0, bytes.into(), no);
    // Constants are not strings of the event.
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
            load_byte_at(asm, 2);
            asm.mov(3, edge);
            asm.alui(alu::RSH, 3, 8 * place);
            asm.alui(alu::AND, 3, 0xff);
            asm.jump(jump::JNE, 2, 3, no);
        }
    }
    asm.exit_with(1);
    asm.place_label(no);
    asm.exit_with(0);
}

/// Writes the comparison of `count` bytes of the event with two numbers. The result contains the
/// bits that differ, or, if there are too few bytes, the end of the compared range.
pub(crate) fn write_differ(asm: &mut Asm, count: u8) {
    let out = asm.new_label();
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
        // A single load for any beginning: the mask is a bound for the verifier.
        asm.mov(1, 2);
        asm.alui(alu::ADD, 1, begin.into());
        asm.alui(alu::AND, 1, REGION_BYTES as i32 - 1);
        asm.alu(alu::ADD, 1, FRAME);
        asm.load_sized(size.into(), 1, 1, BYTES_AT);
        asm.alu(alu::XOR, 1, number);
        let above = 64 - 8 * i32::from(size);
        asm.alui(alu::LSH, 1, above);
        asm.alui(alu::RSH, 1, above);
        asm.alu(alu::OR, 0, 1);
    }
    asm.place_label(out);
    asm.exit();
}

/// Writes the function for `string_hash`.
pub(crate) fn write_hash(assembler: &mut FilterAssembler) {
    begin_helper(assembler, 1);
    let asm = &mut assembler.asm;
    asm.load_wide(1, 0xcbf2_9ce4_8422_2325);
    asm.store(FRAME, RESULT, 1);
    asm.load(1, FRAME, A_LENGTH);
    write_loop(assembler, HelperFunction::HashTurn);
    let asm = &mut assembler.asm;
    asm.load(0, FRAME, RESULT);
    asm.exit();
}

/// Writes the loop body that hashes one byte.
pub(crate) fn write_hash_turn(asm: &mut Asm) {
    begin_turn(asm);
    asm.load(3, FRAME, A_OFFSET);
    asm.alu(alu::ADD, 3, 1);
    load_byte_at(asm, 3);
    asm.load(4, FRAME, RESULT);
    asm.alu(alu::XOR, 4, 3);
    asm.load_wide(5, 0x100_0000_01b3);
    asm.alu(alu::MUL, 4, 5);
    asm.store(FRAME, RESULT, 4);
    asm.exit_with(0);
}
