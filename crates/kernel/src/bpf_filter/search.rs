//! Searching of strings, as functions in BPF: in as many steps as text and pattern together have
//! bytes, whatever they are.
//!
//! A pattern that is known when the program is made is an [automaton](super::pattern), and a turn
//! of bpf_loop takes eight bytes of the text. (Sixteen take two thirds of the time in long texts,
//! but the kernel's verifier goes through them for each search that a program has.) Of another one
//! Knuth, Morris and Pratt's table ("Fast pattern matching in strings", 1977) is made first, behind
//! the area's constants ([`super::area::LETTERS_AT`]), and a turn is one step: a star begins a new
//! search, in what is left of the text, since what was taken before it was found first.

use trackway_jit::insn::{alu, jump};

use crate::bpf_filter::adapt::{Parts, Piece};
use crate::bpf_filter::area::{BYTES_AT, CHUNK_BYTES, LETTERS_AT, REGION_BYTES, SCRATCH_AT};
use crate::bpf_filter::pattern::MASKS_BYTES;
use crate::bpf_filter::text::{
    A_LENGTH, A_OFFSET, B_LENGTH, B_OFFSET, FRAME, OFFSET_MASK, RESULT, begin, byte, part, turn,
    turns,
};
use crate::bpf_sys::asm::{Asm, Label, OF_MASKS, Register};

/// How far a search is in text and pattern.
const A_INDEX: i16 = SCRATCH_AT + 40;
const B_INDEX: i16 = SCRATCH_AT + 48;
/// How many letters the pattern has.
const COUNT: i16 = SCRATCH_AT + 56;
/// How many of them are matched, or gone through.
const MATCHED: i16 = SCRATCH_AT + 64;
/// How many stand before the last star that was met.
const BASE: i16 = SCRATCH_AT + 72;
/// How many letters behind that star end what was gone through, and begin it; with those before it.
const BORDER: i16 = SCRATCH_AT + 80;
/// Of an automaton: where its masks are, its bits that stay, and its bits.
const MASKS: i16 = SCRATCH_AT + 88;
const STAY: i16 = SCRATCH_AT + 96;
const BITS: i16 = SCRATCH_AT + 104;

/// Bits of a letter's entry, of 32 bits: the letter, whether a star stands before it, and with how
/// many letters to go on where the text has another one.
const STAR: i32 = 1 << 8;
const NEXT_SHIFT: i32 = 16;
const ENTRY_LOG2: i32 = 2;

/// Where the masks of a program's automata are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Masks {
    /// The map of which they are the only value; `None`: that is not made yet.
    pub(crate) fd: Option<i32>,
    /// How many there are, in bytes: [`MASKS_BYTES`] times a power of two.
    pub(crate) bytes: usize,
}

/// `automaton(frame, word, offset of masks, bits that stay, bits to begin with)`
pub(crate) fn automaton(parts: &mut Parts, masks: Masks) {
    let word = parts.label(Piece::Word);
    let asm = &mut parts.asm;
    asm.mov(FRAME, 1);
    for (place, register) in [(MASKS, 3), (STAY, 4), (BITS, 5)] {
        asm.store(FRAME, place, register);
    }
    asm.movi(3, 0);
    asm.call(word);
    part(asm);
    asm.store(FRAME, A_OFFSET, 1);
    asm.store(FRAME, A_LENGTH, 0);
    // From memory, as in `any`.
    asm.load(1, FRAME, A_LENGTH);
    asm.alui(alu::ADD, 1, CHUNK_BYTES as i32 - 1);
    asm.alui(alu::RSH, 1, CHUNK_BYTES.trailing_zeros() as i32);
    turns(parts, Piece::AutomatonTurn(masks));
    let asm = &mut parts.asm;
    asm.load(0, FRAME, BITS);
    asm.alui(alu::RSH, 0, 63);
    asm.exit();
}

/// A chunk of the text, or what is left of it. Stops where the answer cannot change any more.
pub(crate) fn automaton_turn(asm: &mut Asm, masks: Masks) {
    let (done, stop) = (asm.label(), asm.label());
    let (bits, left, text, mask, stay) = (0, 5, 7, 8, 9);
    turn(asm);
    asm.alui(alu::LSH, 1, CHUNK_BYTES.trailing_zeros() as i32);
    asm.load(left, FRAME, A_LENGTH);
    asm.alu(alu::SUB, left, 1);
    asm.load(text, FRAME, A_OFFSET);
    asm.alu(alu::ADD, text, 1);
    asm.alui(alu::AND, text, OFFSET_MASK);
    asm.alu(alu::ADD, text, FRAME);
    asm.load(mask, FRAME, MASKS);
    asm.alui(alu::AND, mask, (masks.bytes - MASKS_BYTES) as i32);
    asm.map_value(1, masks.fd.unwrap_or(OF_MASKS));
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
    asm.place(done);
    asm.store(FRAME, BITS, bits);
    asm.jumpi(jump::JEQ, bits, 0, stop);
    asm.alu(alu::AND, bits, stay);
    asm.jumpi(jump::JSLT, bits, 0, stop);
    asm.answer(0);
    asm.place(stop);
    asm.answer(1);
}

/// `string_contains`, or `string_matches` if it `is_glob`, of a pattern that may be anything.
pub(crate) fn search(parts: &mut Parts, is_glob: bool) {
    begin(parts, 2);
    let asm = &mut parts.asm;
    let out = asm.label();
    for place in [A_INDEX, B_INDEX, COUNT, MATCHED, BASE, BORDER] {
        asm.storei(FRAME, place, 0);
    }
    // In front of, and behind what is to be anywhere, is a star.
    let star = if is_glob { 0 } else { STAR };
    asm.storei_of(4, FRAME, LETTERS_AT, star);
    asm.load(1, FRAME, B_LENGTH);
    asm.alui(alu::ADD, 1, 1);
    turns(parts, Piece::LettersTurn(is_glob));
    let asm = &mut parts.asm;
    asm.load(0, FRAME, RESULT);
    asm.jumpi(jump::JNE, 0, 0, out);
    if !is_glob {
        asm.load(2, FRAME, COUNT);
        entry(asm, 2, out);
        asm.movi(3, STAR);
        asm.store_of(4, 2, LETTERS_AT, 3);
    }
    asm.load(1, FRAME, COUNT);
    asm.alui(alu::LSH, 1, 1);
    turns(parts, Piece::BordersTurn);
    let asm = &mut parts.asm;
    asm.storei(FRAME, MATCHED, 0);
    asm.storei(FRAME, BASE, 0);
    // Each turn takes a byte of the text, or lets go of a letter that was matched with one.
    asm.load(1, FRAME, A_LENGTH);
    asm.alui(alu::ADD, 1, 1);
    asm.alui(alu::LSH, 1, 1);
    turns(parts, Piece::SearchTurn);
    let asm = &mut parts.asm;
    asm.place(out);
    asm.load(0, FRAME, RESULT);
    asm.alui(alu::AND, 0, 1);
    asm.exit();
}

/// In place of a letter's number, what is [`LETTERS_AT`] before its entry; at `beyond` if there is
/// none, which is never so.
fn entry(asm: &mut Asm, register: Register, beyond: Label) {
    asm.jumpi(jump::JGT, register, REGION_BYTES as i32, beyond);
    asm.alui(alu::LSH, register, ENTRY_LOG2);
    asm.alu(alu::ADD, register, FRAME);
}

/// One letter of the pattern, or star. Stops where there are more letters than bytes in the text:
/// then the answer is no, and the result is not zero for now.
pub(crate) fn letters_turn(asm: &mut Asm, is_glob: bool) {
    let (letter, stop, many) = (asm.label(), asm.label(), asm.label());
    turn(asm);
    asm.load(1, FRAME, B_INDEX);
    asm.load(4, FRAME, B_LENGTH);
    asm.jump(jump::JGE, 1, 4, stop);
    asm.load(7, FRAME, COUNT);
    asm.mov(8, 7);
    entry(asm, 8, stop);
    asm.load(3, FRAME, B_OFFSET);
    asm.alu(alu::ADD, 3, 1);
    asm.alui(alu::ADD, 1, 1);
    asm.mov(5, 3);
    byte(asm, 5);
    if is_glob {
        let no_star = asm.label();
        asm.jumpi(jump::JNE, 5, i32::from(b'*'), no_star);
        asm.store(FRAME, B_INDEX, 1);
        asm.storei_of(4, 8, LETTERS_AT, STAR);
        asm.answer(0);
        asm.place(no_star);
        asm.jumpi(jump::JNE, 5, i32::from(b'\\'), letter);
        asm.jump(jump::JGE, 1, 4, letter);
        asm.alui(alu::ADD, 1, 1);
        asm.mov(5, 3);
        asm.alui(alu::ADD, 5, 1);
        byte(asm, 5);
    }
    asm.place(letter);
    asm.load(2, FRAME, A_LENGTH);
    asm.jump(jump::JGE, 7, 2, many);
    asm.store(FRAME, B_INDEX, 1);
    asm.load_of(4, 1, 8, LETTERS_AT);
    asm.alu(alu::OR, 1, 5);
    asm.store_of(4, 8, LETTERS_AT, 1);
    asm.alui(alu::ADD, 7, 1);
    asm.store(FRAME, COUNT, 7);
    entry(asm, 7, stop);
    asm.storei_of(4, 7, LETTERS_AT, 0);
    asm.answer(0);
    asm.place(many);
    asm.storei(FRAME, RESULT, 2);
    asm.place(stop);
    asm.answer(1);
}

/// With how many letters to go on behind one more letter: it makes the longest border of those gone
/// through so far longer, or the next shorter one is tried.
pub(crate) fn borders_turn(asm: &mut Asm) {
    let (first, known, stop) = (asm.label(), asm.label(), asm.label());
    turn(asm);
    asm.load(1, FRAME, MATCHED);
    asm.load(2, FRAME, COUNT);
    asm.jump(jump::JGE, 1, 2, stop);
    asm.mov(7, 1);
    entry(asm, 7, stop);
    asm.load_of(4, 5, 7, LETTERS_AT);
    asm.load(4, FRAME, BASE);
    asm.jump(jump::JEQ, 1, 4, first);
    asm.mov(2, 5);
    asm.alui(alu::AND, 2, STAR);
    asm.jumpi(jump::JNE, 2, 0, first);
    asm.load(3, FRAME, BORDER);
    asm.mov(8, 3);
    entry(asm, 8, stop);
    asm.load_of(4, 0, 8, LETTERS_AT);
    asm.mov(2, 0);
    asm.alu(alu::XOR, 2, 5);
    asm.alui(alu::AND, 2, 0xff);
    asm.alui(alu::ADD, 3, 1);
    asm.jumpi(jump::JEQ, 2, 0, known);
    asm.alui(alu::ADD, 3, -1);
    asm.jump(jump::JEQ, 3, 4, known);
    asm.alui(alu::RSH, 0, NEXT_SHIFT);
    asm.store(FRAME, BORDER, 0);
    asm.answer(0);
    asm.place(first);
    asm.store(FRAME, BASE, 1);
    asm.mov(3, 1);
    asm.place(known);
    asm.store(FRAME, BORDER, 3);
    asm.alui(alu::LSH, 3, NEXT_SHIFT);
    asm.alui(alu::ADD, 1, 1);
    asm.store(FRAME, MATCHED, 1);
    entry(asm, 1, stop);
    asm.load_of(4, 2, 1, LETTERS_AT);
    asm.alu(alu::OR, 2, 3);
    asm.store_of(4, 1, LETTERS_AT, 2);
    asm.answer(0);
    asm.place(stop);
    asm.answer(1);
}

/// One byte of the text, or one border.
pub(crate) fn search_turn(asm: &mut Asm) {
    let [no_star, differs, at_base, over, found, stop] = std::array::from_fn(|_| asm.label());
    turn(asm);
    asm.load(1, FRAME, MATCHED);
    asm.load(2, FRAME, COUNT);
    asm.load(3, FRAME, A_INDEX);
    asm.load(4, FRAME, BASE);
    asm.mov(7, 1);
    entry(asm, 7, stop);
    asm.load_of(4, 5, 7, LETTERS_AT);
    asm.mov(0, 5);
    asm.alui(alu::AND, 0, STAR);
    asm.jumpi(jump::JEQ, 0, 0, no_star);
    // What is behind the last star may be anything.
    asm.jump(jump::JEQ, 1, 2, found);
    asm.mov(4, 1);
    asm.store(FRAME, BASE, 1);
    asm.place(no_star);
    asm.load(0, FRAME, A_LENGTH);
    asm.jump(jump::JGE, 3, 0, over);
    asm.jump(jump::JGE, 1, 2, differs);
    asm.load(0, FRAME, A_OFFSET);
    asm.alu(alu::ADD, 0, 3);
    byte(asm, 0);
    asm.alu(alu::XOR, 0, 5);
    asm.alui(alu::AND, 0, 0xff);
    asm.jumpi(jump::JNE, 0, 0, differs);
    asm.alui(alu::ADD, 1, 1);
    asm.store(FRAME, MATCHED, 1);
    asm.alui(alu::ADD, 3, 1);
    asm.store(FRAME, A_INDEX, 3);
    asm.answer(0);
    asm.place(differs);
    // What no star stands before is at the text's beginning, or nowhere.
    asm.mov(8, 4);
    entry(asm, 8, stop);
    asm.load_of(4, 0, 8, LETTERS_AT);
    asm.alui(alu::AND, 0, STAR);
    asm.jumpi(jump::JEQ, 0, 0, stop);
    asm.jump(jump::JEQ, 1, 4, at_base);
    asm.alui(alu::RSH, 5, NEXT_SHIFT);
    asm.store(FRAME, MATCHED, 5);
    asm.answer(0);
    asm.place(at_base);
    asm.alui(alu::ADD, 3, 1);
    asm.store(FRAME, A_INDEX, 3);
    asm.answer(0);
    asm.place(over);
    asm.jump(jump::JNE, 1, 2, stop);
    asm.place(found);
    asm.storei(FRAME, RESULT, 1);
    asm.place(stop);
    asm.answer(1);
}
