//! String search as BPF functions, linear in the bytes of text and pattern.
//!
//! A pattern known at generation is an [automaton](super::pattern), and an iteration of bpf_loop
//! takes eight bytes of the text. (Sixteen bytes take two thirds of the time in long texts, but the
//! verifier walks them for each search of a program.) For an unknown pattern, the function first
//! builds the table of Knuth, Morris and Pratt ("Fast pattern matching in strings", 1977) after the
//! area's constants ([`super::scratch::LETTERS_AT`]); then an iteration is one step. A star begins
//! a new search in the rest of the text, after the first match of the part before the star.

use trackway_jit::insn::{alu, jump};

use crate::bpf_filter::pattern::MASKS_BYTES;
use crate::bpf_filter::scratch::{
    BYTES_AT, CHUNK_BYTES, HELPER_STATE_AT, LETTERS_AT, REGION_BYTES,
};
use crate::bpf_filter::text::{
    A_LENGTH, A_OFFSET, B_LENGTH, B_OFFSET, FRAME, OFFSET_MASK, RESULT, begin_helper, begin_turn,
    load_byte_at, split_word, write_loop,
};
use crate::bpf_filter::translate::{FilterAssembler, HelperFunction};
use crate::bpf_sys::asm::{Asm, Label, MASKS_PLACEHOLDER, Register};

/// The current positions in text and pattern.
const A_INDEX: i16 = HELPER_STATE_AT + 40;
const B_INDEX: i16 = HELPER_STATE_AT + 48;
/// The number of letters of the pattern.
const COUNT: i16 = HELPER_STATE_AT + 56;
/// The number of matched letters, or of visited letters while the table is built.
const MATCHED: i16 = HELPER_STATE_AT + 64;
/// The number of letters before the last star.
const BASE: i16 = HELPER_STATE_AT + 72;
/// The length of the longest border of the visited letters after the last star, plus the number of
/// letters before that star.
const BORDER: i16 = HELPER_STATE_AT + 80;
/// An automaton's mask offset, bits that stay, and current bits.
const MASKS: i16 = HELPER_STATE_AT + 88;
const STAY: i16 = HELPER_STATE_AT + 96;
const BITS: i16 = HELPER_STATE_AT + 104;

/// A 32-bit entry for a letter: the letter, a flag for a star before the letter, and the number of
/// letters with which to continue after a mismatch.
const STAR: i32 = 1 << 8;
const NEXT_SHIFT: i32 = 16;
const ENTRY_LOG2: i32 = 2;

/// The kind of a search for an unknown pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SearchKind {
    /// A search for a literal part anywhere in the text.
    Part,
    /// A match of the whole text with a pattern that has stars.
    Glob,
}

/// The masks of a program's automata.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Masks {
    /// The map whose only value is the masks; `None`: not created yet.
    pub(crate) fd: Option<i32>,
    /// The size of the masks: [`MASKS_BYTES`] times a power of two.
    pub(crate) bytes: usize,
}

/// Writes `automaton(frame, word, offset of masks, bits that stay, initial bits)`.
pub(crate) fn write_automaton(assembler: &mut FilterAssembler, masks: Masks) {
    let word = assembler.label(HelperFunction::Word);
    let asm = &mut assembler.asm;
    asm.mov(FRAME, 1);
    for (place, register) in [(MASKS, 3), (STAY, 4), (BITS, 5)] {
        asm.store(FRAME, place, register);
    }
    asm.movi(3, 0);
    asm.call(word);
    split_word(asm);
    asm.store(FRAME, A_OFFSET, 1);
    asm.store(FRAME, A_LENGTH, 0);
    // Loads the length from memory for the reason in `value::write_any`.
    asm.load(1, FRAME, A_LENGTH);
    asm.alui(alu::ADD, 1, CHUNK_BYTES as i32 - 1);
    asm.alui(alu::RSH, 1, CHUNK_BYTES.trailing_zeros() as i32);
    write_loop(assembler, HelperFunction::AutomatonTurn(masks));
    let asm = &mut assembler.asm;
    asm.load(0, FRAME, BITS);
    asm.alui(alu::RSH, 0, 63);
    asm.exit();
}

/// Writes the loop body of an automaton: matches a chunk of the text, or the remaining bytes. Stops
/// when the result is final.
pub(crate) fn write_automaton_turn(asm: &mut Asm, masks: Masks) {
    let (done, stop) = (asm.new_label(), asm.new_label());
    let (bits, left, text, mask, stay) = (0, 5, 7, 8, 9);
    begin_turn(asm);
    asm.alui(alu::LSH, 1, CHUNK_BYTES.trailing_zeros() as i32);
    asm.load(left, FRAME, A_LENGTH);
    asm.alu(alu::SUB, left, 1);
    asm.load(text, FRAME, A_OFFSET);
    asm.alu(alu::ADD, text, 1);
    asm.alui(alu::AND, text, OFFSET_MASK);
    asm.alu(alu::ADD, text, FRAME);
    asm.load(mask, FRAME, MASKS);
    asm.alui(alu::AND, mask, (masks.bytes - MASKS_BYTES) as i32);
    asm.load_map_value(1, masks.fd.unwrap_or(MASKS_PLACEHOLDER));
    asm.alu(alu::ADD, mask, 1);
    asm.load(stay, FRAME, STAY);
    asm.load(bits, FRAME, BITS);
    for place in 0..CHUNK_BYTES as i16 {
        if place > 0 {
            asm.jumpi(jump::JLE, left, place.into(), done);
        }
        asm.load_byte(2, text, BYTES_AT + place);
        asm.alui(alu::LSH, 2, 3);
        asm.alu(alu::ADD, 2, mask);
        asm.load(2, 2, 0);
        asm.mov(3, bits);
        asm.alu(alu::AND, 3, stay);
        asm.alui(alu::LSH, bits, 1);
        asm.alu(alu::AND, bits, 2);
        asm.alu(alu::OR, bits, 3);
    }
    asm.place_label(done);
    asm.store(FRAME, BITS, bits);
    asm.jumpi(jump::JEQ, bits, 0, stop);
    asm.alu(alu::AND, bits, stay);
    asm.jumpi(jump::JSLT, bits, 0, stop);
    asm.exit_with(0);
    asm.place_label(stop);
    asm.exit_with(1);
}

/// Writes `string_contains`, or `string_matches` for [`SearchKind::Glob`], with an unknown pattern.
pub(crate) fn write_search(assembler: &mut FilterAssembler, kind: SearchKind) {
    begin_helper(assembler, 2);
    let asm = &mut assembler.asm;
    let out = asm.new_label();
    for place in [A_INDEX, B_INDEX, COUNT, MATCHED, BASE, BORDER] {
        asm.storei(FRAME, place, 0);
    }
    // A part that may occur anywhere has stars before and after it.
    let star = if kind == SearchKind::Glob { 0 } else { STAR };
    asm.storei_sized(4, FRAME, LETTERS_AT, star);
    asm.load(1, FRAME, B_LENGTH);
    asm.alui(alu::ADD, 1, 1);
    write_loop(assembler, HelperFunction::LettersTurn(kind));
    let asm = &mut assembler.asm;
    asm.load(0, FRAME, RESULT);
    asm.jumpi(jump::JNE, 0, 0, out);
    if kind == SearchKind::Part {
        asm.load(2, FRAME, COUNT);
        load_entry_address(asm, 2, out);
        asm.movi(3, STAR);
        asm.store_sized(4, 2, LETTERS_AT, 3);
    }
    asm.load(1, FRAME, COUNT);
    asm.alui(alu::LSH, 1, 1);
    write_loop(assembler, HelperFunction::BordersTurn);
    let asm = &mut assembler.asm;
    asm.storei(FRAME, MATCHED, 0);
    asm.storei(FRAME, BASE, 0);
    // Each iteration takes a byte of the text, or gives up matched letters.
    asm.load(1, FRAME, A_LENGTH);
    asm.alui(alu::ADD, 1, 1);
    asm.alui(alu::LSH, 1, 1);
    write_loop(assembler, HelperFunction::SearchTurn);
    let asm = &mut assembler.asm;
    asm.place_label(out);
    asm.load(0, FRAME, RESULT);
    asm.alui(alu::AND, 0, 1);
    asm.exit();
}

/// Replaces a letter's index by the address [`LETTERS_AT`] bytes before the letter's entry. Jumps
/// to `no_entry` if there is no such entry, which never happens.
fn load_entry_address(asm: &mut Asm, register: Register, no_entry: Label) {
    asm.jumpi(jump::JGT, register, REGION_BYTES as i32, no_entry);
    asm.alui(alu::LSH, register, ENTRY_LOG2);
    asm.alu(alu::ADD, register, FRAME);
}

/// Writes the loop body for one letter or star of the pattern. Stops if the pattern has more
/// letters than the text has bytes: then the result is false, but nonzero until the end.
pub(crate) fn write_letters_turn(asm: &mut Asm, kind: SearchKind) {
    let (letter, stop, many) = (asm.new_label(), asm.new_label(), asm.new_label());
    begin_turn(asm);
    asm.load(1, FRAME, B_INDEX);
    asm.load(4, FRAME, B_LENGTH);
    asm.jump(jump::JGE, 1, 4, stop);
    asm.load(7, FRAME, COUNT);
    asm.mov(8, 7);
    load_entry_address(asm, 8, stop);
    asm.load(3, FRAME, B_OFFSET);
    asm.alu(alu::ADD, 3, 1);
    asm.alui(alu::ADD, 1, 1);
    asm.mov(5, 3);
    load_byte_at(asm, 5);
    if kind == SearchKind::Glob {
        let no_star = asm.new_label();
        asm.jumpi(jump::JNE, 5, i32::from(b'*'), no_star);
        asm.store(FRAME, B_INDEX, 1);
        asm.storei_sized(4, 8, LETTERS_AT, STAR);
        asm.exit_with(0);
        asm.place_label(no_star);
        asm.jumpi(jump::JNE, 5, i32::from(b'\\'), letter);
        asm.jump(jump::JGE, 1, 4, letter);
        asm.alui(alu::ADD, 1, 1);
        asm.mov(5, 3);
        asm.alui(alu::ADD, 5, 1);
        load_byte_at(asm, 5);
    }
    asm.place_label(letter);
    asm.load(2, FRAME, A_LENGTH);
    asm.jump(jump::JGE, 7, 2, many);
    asm.store(FRAME, B_INDEX, 1);
    asm.load_sized(4, 1, 8, LETTERS_AT);
    asm.alu(alu::OR, 1, 5);
    asm.store_sized(4, 8, LETTERS_AT, 1);
    asm.alui(alu::ADD, 7, 1);
    asm.store(FRAME, COUNT, 7);
    load_entry_address(asm, 7, stop);
    asm.storei_sized(4, 7, LETTERS_AT, 0);
    asm.exit_with(0);
    asm.place_label(many);
    asm.storei(FRAME, RESULT, 2);
    asm.place_label(stop);
    asm.exit_with(1);
}

/// Writes the loop body of the table's construction: the next letter extends the longest border so
/// far, or the iteration tries the next shorter border.
pub(crate) fn write_borders_turn(asm: &mut Asm) {
    let (first, known, stop) = (asm.new_label(), asm.new_label(), asm.new_label());
    begin_turn(asm);
    asm.load(1, FRAME, MATCHED);
    asm.load(2, FRAME, COUNT);
    asm.jump(jump::JGE, 1, 2, stop);
    asm.mov(7, 1);
    load_entry_address(asm, 7, stop);
    asm.load_sized(4, 5, 7, LETTERS_AT);
    asm.load(4, FRAME, BASE);
    asm.jump(jump::JEQ, 1, 4, first);
    asm.mov(2, 5);
    asm.alui(alu::AND, 2, STAR);
    asm.jumpi(jump::JNE, 2, 0, first);
    asm.load(3, FRAME, BORDER);
    asm.mov(8, 3);
    load_entry_address(asm, 8, stop);
    asm.load_sized(4, 0, 8, LETTERS_AT);
    asm.mov(2, 0);
    asm.alu(alu::XOR, 2, 5);
    asm.alui(alu::AND, 2, 0xff);
    asm.alui(alu::ADD, 3, 1);
    asm.jumpi(jump::JEQ, 2, 0, known);
    asm.alui(alu::ADD, 3, -1);
    asm.jump(jump::JEQ, 3, 4, known);
    asm.alui(alu::RSH, 0, NEXT_SHIFT);
    asm.store(FRAME, BORDER, 0);
    asm.exit_with(0);
    asm.place_label(first);
    asm.store(FRAME, BASE, 1);
    asm.mov(3, 1);
    asm.place_label(known);
    asm.store(FRAME, BORDER, 3);
    asm.alui(alu::LSH, 3, NEXT_SHIFT);
    asm.alui(alu::ADD, 1, 1);
    asm.store(FRAME, MATCHED, 1);
    load_entry_address(asm, 1, stop);
    asm.load_sized(4, 2, 1, LETTERS_AT);
    asm.alu(alu::OR, 2, 3);
    asm.store_sized(4, 1, LETTERS_AT, 2);
    asm.exit_with(0);
    asm.place_label(stop);
    asm.exit_with(1);
}

/// Writes the loop body of the search: takes one byte of the text, or one border.
pub(crate) fn write_search_turn(asm: &mut Asm) {
    let [no_star, differs, at_base, over, found, stop] = std::array::from_fn(|_| asm.new_label());
    begin_turn(asm);
    asm.load(1, FRAME, MATCHED);
    asm.load(2, FRAME, COUNT);
    asm.load(3, FRAME, A_INDEX);
    asm.load(4, FRAME, BASE);
    asm.mov(7, 1);
    load_entry_address(asm, 7, stop);
    asm.load_sized(4, 5, 7, LETTERS_AT);
    asm.mov(0, 5);
    asm.alui(alu::AND, 0, STAR);
    asm.jumpi(jump::JEQ, 0, 0, no_star);
    // Any bytes may follow the last star.
    asm.jump(jump::JEQ, 1, 2, found);
    asm.mov(4, 1);
    asm.store(FRAME, BASE, 1);
    asm.place_label(no_star);
    asm.load(0, FRAME, A_LENGTH);
    asm.jump(jump::JGE, 3, 0, over);
    asm.jump(jump::JGE, 1, 2, differs);
    asm.load(0, FRAME, A_OFFSET);
    asm.alu(alu::ADD, 0, 3);
    load_byte_at(asm, 0);
    asm.alu(alu::XOR, 0, 5);
    asm.alui(alu::AND, 0, 0xff);
    asm.jumpi(jump::JNE, 0, 0, differs);
    asm.alui(alu::ADD, 1, 1);
    asm.store(FRAME, MATCHED, 1);
    asm.alui(alu::ADD, 3, 1);
    asm.store(FRAME, A_INDEX, 3);
    asm.exit_with(0);
    asm.place_label(differs);
    // A part without a star before it matches only at the text's beginning.
    asm.mov(8, 4);
    load_entry_address(asm, 8, stop);
    asm.load_sized(4, 0, 8, LETTERS_AT);
    asm.alui(alu::AND, 0, STAR);
    asm.jumpi(jump::JEQ, 0, 0, stop);
    asm.jump(jump::JEQ, 1, 4, at_base);
    asm.alui(alu::RSH, 5, NEXT_SHIFT);
    asm.store(FRAME, MATCHED, 5);
    asm.exit_with(0);
    asm.place_label(at_base);
    asm.alui(alu::ADD, 3, 1);
    asm.store(FRAME, A_INDEX, 3);
    asm.exit_with(0);
    asm.place_label(over);
    asm.jump(jump::JNE, 1, 2, stop);
    asm.place_label(found);
    asm.storei(FRAME, RESULT, 1);
    asm.place_label(stop);
    asm.exit_with(1);
}
