//! Helpers on elements of sequences, and the comparison of floats, which needs no float arithmetic.

use trackway_jit::ELEMENTS_MAX;
use trackway_jit::insn::{alu, jump};

use crate::bpf_filter::scratch::HELPER_STATE_AT;
use crate::bpf_filter::text::{begin_turn, load_byte_at, split_word, write_loop};
use crate::bpf_filter::translate::{FilterAssembler, HelperFunction};
use crate::bpf_sys::asm::{Asm, Label};

/// The register that has the frame in functions that call other functions.
const FRAME: u8 = 6;
/// The helper state of `any`, separate because its function may use strings.
const OFFSET: i16 = HELPER_STATE_AT + 128;
const RESULT: i16 = OFFSET + 8;
const COUNT: i16 = OFFSET + 16;
/// The helper state of reductions, which visit all elements.
const FOLD_OFFSET: i16 = OFFSET + 24;
const FOLDED: i16 = OFFSET + 32;

/// The representation of elements: codes of `schema::Scalar`, which are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scalar {
    /// A signed integer, with log2 of its size.
    Signed(u8),
    Unsigned(u8),
    Bool,
}

impl Scalar {
    /// Returns the representation of a code. `None`: the code is unknown, or the code of 32-bit
    /// floats, which the kernel cannot widen.
    pub(crate) fn from_code(code: i64) -> Option<Self> {
        Some(match u8::try_from(code).ok()? {
            code @ 1..=4 => Self::Signed(code - 1),
            code @ 5..=8 => Self::Unsigned(code - 5),
            code @ 9..=12 => Self::Unsigned(code - 9),
            14 => Self::Unsigned(3),
            15 => Self::Bool,
            _ => return None,
        })
    }

    /// Returns the representation of an integer's code; `None` for floats.
    pub(crate) fn from_integer_code(code: i64) -> Option<Self> {
        Self::from_code(code).filter(|_| code != trackway_schema::Scalar::F64 as i64)
    }

    /// Returns true for unsigned integers of 64 bits.
    const fn is_wide(self) -> bool {
        matches!(self, Self::Unsigned(3))
    }

    const fn size_log2(self) -> u8 {
        match self {
            Self::Signed(log2) | Self::Unsigned(log2) => log2,
            Self::Bool => 0,
        }
    }
}

/// A reduction of a sequence's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fold {
    Sum,
    Least,
    Greatest,
}

impl Fold {
    /// Returns the initial value, and the comparison that keeps the previous value.
    const fn initial(self, is_wide: bool) -> (u64, Option<u8>) {
        match (self, is_wide) {
            (Self::Sum, _) => (0, None),
            (Self::Least, true) => (u64::MAX, Some(jump::JLE)),
            (Self::Least, false) => (i64::MAX as u64, Some(jump::JSLE)),
            (Self::Greatest, true) => (0, Some(jump::JGE)),
            (Self::Greatest, false) => (i64::MIN as u64, Some(jump::JSGE)),
        }
    }
}

/// Loads the element at the offset in register 2 into register 0, extended as in a slot. Changes
/// registers 2 and 3.
fn load_element(asm: &mut Asm, scalar: Scalar) {
    asm.movi(0, 0);
    for index in 0..1 << scalar.size_log2() {
        asm.mov(3, 2);
        asm.alui(alu::ADD, 3, index);
        load_byte_at(asm, 3);
        if index > 0 {
            asm.alui(alu::LSH, 3, 8 * index);
        }
        asm.alu(alu::OR, 0, 3);
    }
    match scalar {
        Scalar::Signed(log2) if log2 < 3 => {
            let unused = 64 - (8 << log2);
            asm.alui(alu::LSH, 0, unused);
            asm.alui(alu::ARSH, 0, unused);
        }
        Scalar::Bool => {
            let done = asm.new_label();
            asm.jumpi(jump::JEQ, 0, 0, done);
            asm.movi(0, 1);
            asm.place_label(done);
        }
        _ => {}
    }
}

/// Begins a helper: loads a sequence's offset into register 1 and its number of elements into
/// register 0.
fn begin_element_helper(assembler: &mut FilterAssembler, scalar: Scalar) {
    let word = assembler.label(HelperFunction::Word);
    let asm = &mut assembler.asm;
    asm.mov(FRAME, 1);
    asm.movi(3, scalar.size_log2().into());
    asm.call(word);
    split_word(asm);
    if scalar.size_log2() > 0 {
        asm.alui(alu::RSH, 0, scalar.size_log2().into());
    }
}

/// Writes the function for `element` with one element type.
pub(crate) fn write_element(assembler: &mut FilterAssembler, scalar: Scalar) {
    assembler.asm.mov(7, 4);
    begin_element_helper(assembler, scalar);
    let asm = &mut assembler.asm;
    let beyond = asm.new_label();
    asm.jump(jump::JGE, 7, 0, beyond);
    asm.mov(2, 7);
    asm.alui(alu::LSH, 2, scalar.size_log2().into());
    asm.alu(alu::ADD, 2, 1);
    load_element(asm, scalar);
    asm.exit();
    asm.place_label(beyond);
    asm.exit_with(0);
}

/// Writes the function for `any` with one element type and one filter function.
pub(crate) fn write_any(assembler: &mut FilterAssembler, scalar: Scalar, turn: HelperFunction) {
    begin_element_helper(assembler, scalar);
    let asm = &mut assembler.asm;
    let few = asm.new_label();
    asm.store(FRAME, OFFSET, 1);
    asm.storei(FRAME, RESULT, 0);
    // If Linux (6.18) can prove that a loop has no iterations, it removes the loop's function, and
    // then fails to find that function. A value loaded from memory proves nothing.
    asm.store(FRAME, COUNT, 0);
    asm.load(1, FRAME, COUNT);
    asm.jumpi(jump::JLE, 1, ELEMENTS_MAX as i32, few);
    asm.movi(1, ELEMENTS_MAX as i32);
    asm.place_label(few);
    write_loop(assembler, turn);
    let asm = &mut assembler.asm;
    asm.load(0, FRAME, RESULT);
    asm.exit();
}

/// Writes the loop body of `any`, which passes an element to the filter's function.
pub(crate) fn write_any_turn(asm: &mut Asm, scalar: Scalar, function: Label) {
    let next = asm.new_label();
    begin_turn(asm);
    asm.load(2, FRAME, OFFSET);
    if scalar.size_log2() > 0 {
        asm.alui(alu::LSH, 1, scalar.size_log2().into());
    }
    asm.alu(alu::ADD, 2, 1);
    load_element(asm, scalar);
    asm.mov(2, 0);
    asm.mov(1, FRAME);
    asm.call(function);
    asm.jumpi(jump::JEQ, 0, 0, next);
    asm.storei(FRAME, RESULT, 1);
    asm.exit_with(1);
    asm.place_label(next);
    asm.exit_with(0);
}

/// Writes the function for `sum`, `least` or `greatest` with one element type.
pub(crate) fn write_fold(
    assembler: &mut FilterAssembler,
    scalar: Scalar,
    fold: Fold,
    turn: HelperFunction,
) {
    begin_element_helper(assembler, scalar);
    let asm = &mut assembler.asm;
    let (none, few) = (asm.new_label(), asm.new_label());
    asm.store(FRAME, FOLD_OFFSET, 1);
    // Loads the value from memory for the reason in `write_any`.
    asm.store(FRAME, FOLDED, 0);
    asm.load(1, FRAME, FOLDED);
    asm.jumpi(jump::JEQ, 1, 0, none);
    asm.load_wide(2, fold.initial(scalar.is_wide()).0);
    asm.store(FRAME, FOLDED, 2);
    asm.jumpi(jump::JLE, 1, ELEMENTS_MAX as i32, few);
    asm.movi(1, ELEMENTS_MAX as i32);
    asm.place_label(few);
    write_loop(assembler, turn);
    let asm = &mut assembler.asm;
    asm.load(0, FRAME, FOLDED);
    asm.exit();
    asm.place_label(none);
    asm.exit_with(0);
}

/// Writes the loop body of a reduction.
pub(crate) fn write_fold_turn(asm: &mut Asm, scalar: Scalar, fold: Fold) {
    let stays = asm.new_label();
    begin_turn(asm);
    asm.load(2, FRAME, FOLD_OFFSET);
    if scalar.size_log2() > 0 {
        asm.alui(alu::LSH, 1, scalar.size_log2().into());
    }
    asm.alu(alu::ADD, 2, 1);
    load_element(asm, scalar);
    asm.load(1, FRAME, FOLDED);
    match fold.initial(scalar.is_wide()).1 {
        None => asm.alu(alu::ADD, 0, 1),
        Some(comparison) => asm.jump(comparison, 1, 0, stays),
    }
    asm.store(FRAME, FOLDED, 0);
    asm.place_label(stays);
    asm.exit_with(0);
}

/// Writes `float_compare`: maps bits of floats that are not NaN to integers in the same order.
pub(crate) fn write_float_compare(asm: &mut Asm) {
    const SIGN: u64 = 1 << 63;
    let (unordered, equal, out) = (asm.new_label(), asm.new_label(), asm.new_label());
    asm.mov(4, 2);
    asm.alui(alu::LSH, 4, 1);
    asm.mov(5, 3);
    asm.alui(alu::LSH, 5, 1);
    asm.load_wide(0, f64::INFINITY.to_bits() << 1);
    asm.jump(jump::JGT, 4, 0, unordered);
    asm.jump(jump::JGT, 5, 0, unordered);
    asm.alu(alu::OR, 4, 5);
    asm.jumpi(jump::JEQ, 4, 0, equal);
    asm.load_wide(5, SIGN);
    for register in [2, 3] {
        let (negative, turned) = (asm.new_label(), asm.new_label());
        asm.jumpi(jump::JSLT, register, 0, negative);
        asm.alu(alu::XOR, register, 5);
        asm.goto(turned);
        asm.place_label(negative);
        asm.alui(alu::XOR, register, -1);
        asm.place_label(turned);
    }
    asm.jump(jump::JEQ, 2, 3, equal);
    asm.movi(0, 1);
    asm.jump(jump::JGT, 2, 3, out);
    asm.movi(0, -1);
    asm.place_label(out);
    asm.exit();
    asm.place_label(equal);
    asm.exit_with(0);
    asm.place_label(unordered);
    asm.exit_with(2);
}
