//! Helpers on elements of sequences, and the one on floats that the kernel can do: to compare
//! needs no arithmetic.

use trackway_jit::ELEMENTS_MAX;
use trackway_jit::insn::{alu, jump};

use crate::bpf_filter::adapt::{Parts, Piece};
use crate::bpf_filter::area::SCRATCH_AT;
use crate::bpf_filter::text::{byte, part, turn, turns};
use crate::bpf_sys::asm::{Asm, Label};

/// The frame, in functions that call others.
const FRAME: u8 = 6;
/// `any`'s own scratch: what it calls for an element may use strings.
const OFFSET: i16 = SCRATCH_AT + 128;
const RESULT: i16 = OFFSET + 8;
const COUNT: i16 = OFFSET + 16;
/// That of what goes through elements by itself.
const FOLD_OFFSET: i16 = OFFSET + 24;
const FOLDED: i16 = OFFSET + 32;

/// How elements are stored: codes of `schema::Scalar`, part of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scalar {
    /// By log2 of the size.
    Signed(u8),
    Unsigned(u8),
    Bool,
}

impl Scalar {
    /// `None` for what there is not, and for floats of 32 bits: the kernel cannot widen them.
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

    /// As [`Self::from_code`], but for floats, which are no integers.
    pub(crate) fn integer(code: i64) -> Option<Self> {
        Self::from_code(code).filter(|_| code != trackway_schema::Scalar::F64 as i64)
    }

    /// Whether it takes all 64 bits, and has no sign.
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

/// What is made of all elements of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fold {
    Sum,
    Least,
    Greatest,
}

impl Fold {
    /// What it begins with, and by which comparison the one of before stays.
    const fn start(self, is_wide: bool) -> (u64, Option<u8>) {
        match (self, is_wide) {
            (Self::Sum, _) => (0, None),
            (Self::Least, true) => (u64::MAX, Some(jump::JLE)),
            (Self::Least, false) => (i64::MAX as u64, Some(jump::JSLE)),
            (Self::Greatest, true) => (0, Some(jump::JGE)),
            (Self::Greatest, false) => (i64::MIN as u64, Some(jump::JSGE)),
        }
    }
}

/// The element whose offset is in register 2, as a slot would have it, into register 0. Changes
/// registers 2 and 3.
fn read(asm: &mut Asm, scalar: Scalar) {
    asm.movi(0, 0);
    for index in 0..1 << scalar.size_log2() {
        asm.mov(3, 2);
        asm.alui(alu::ADD, 3, index);
        byte(asm, 3);
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
            let done = asm.label();
            asm.jumpi(jump::JEQ, 0, 0, done);
            asm.movi(0, 1);
            asm.place(done);
        }
        _ => {}
    }
}

/// Begins a helper: the offset of a sequence goes to register 1, its number of elements to 0.
fn begin(parts: &mut Parts, scalar: Scalar) {
    let word = parts.label(Piece::Word);
    let asm = &mut parts.asm;
    asm.mov(FRAME, 1);
    asm.movi(3, scalar.size_log2().into());
    asm.call(word);
    part(asm);
    if scalar.size_log2() > 0 {
        asm.alui(alu::RSH, 0, scalar.size_log2().into());
    }
}

/// `element`, of one type.
pub(crate) fn element(parts: &mut Parts, scalar: Scalar) {
    parts.asm.mov(7, 4);
    begin(parts, scalar);
    let asm = &mut parts.asm;
    let beyond = asm.label();
    asm.jump(jump::JGE, 7, 0, beyond);
    asm.mov(2, 7);
    asm.alui(alu::LSH, 2, scalar.size_log2().into());
    asm.alu(alu::ADD, 2, 1);
    read(asm, scalar);
    asm.exit();
    asm.place(beyond);
    asm.answer(0);
}

/// `any`, of elements of one type, with one function.
pub(crate) fn any(parts: &mut Parts, scalar: Scalar, turn: Piece) {
    begin(parts, scalar);
    let asm = &mut parts.asm;
    let few = asm.label();
    asm.store(FRAME, OFFSET, 1);
    asm.storei(FRAME, RESULT, 0);
    // Linux (6.18) takes a turn's function away if it knows that there are no turns, and then
    // misses it. Of what was in memory it knows nothing.
    asm.store(FRAME, COUNT, 0);
    asm.load(1, FRAME, COUNT);
    asm.jumpi(jump::JLE, 1, ELEMENTS_MAX as i32, few);
    asm.movi(1, ELEMENTS_MAX as i32);
    asm.place(few);
    turns(parts, turn);
    let asm = &mut parts.asm;
    asm.load(0, FRAME, RESULT);
    asm.exit();
}

/// The element with the turn's number is given to the function.
pub(crate) fn any_turn(asm: &mut Asm, scalar: Scalar, function: Label) {
    let next = asm.label();
    turn(asm);
    asm.load(2, FRAME, OFFSET);
    if scalar.size_log2() > 0 {
        asm.alui(alu::LSH, 1, scalar.size_log2().into());
    }
    asm.alu(alu::ADD, 2, 1);
    read(asm, scalar);
    asm.mov(2, 0);
    asm.mov(1, FRAME);
    asm.call(function);
    asm.jumpi(jump::JEQ, 0, 0, next);
    asm.storei(FRAME, RESULT, 1);
    asm.answer(1);
    asm.place(next);
    asm.answer(0);
}

/// `sum`, `least` and `greatest`, of elements of one type.
pub(crate) fn fold(parts: &mut Parts, scalar: Scalar, fold: Fold, turn: Piece) {
    begin(parts, scalar);
    let asm = &mut parts.asm;
    let (none, few) = (asm.label(), asm.label());
    asm.store(FRAME, FOLD_OFFSET, 1);
    // What is not known to the verifier, as in `any`.
    asm.store(FRAME, FOLDED, 0);
    asm.load(1, FRAME, FOLDED);
    asm.jumpi(jump::JEQ, 1, 0, none);
    asm.wide(2, fold.start(scalar.is_wide()).0);
    asm.store(FRAME, FOLDED, 2);
    asm.jumpi(jump::JLE, 1, ELEMENTS_MAX as i32, few);
    asm.movi(1, ELEMENTS_MAX as i32);
    asm.place(few);
    turns(parts, turn);
    let asm = &mut parts.asm;
    asm.load(0, FRAME, FOLDED);
    asm.exit();
    asm.place(none);
    asm.answer(0);
}

/// The element with the turn's number joins those of before.
pub(crate) fn fold_turn(asm: &mut Asm, scalar: Scalar, fold: Fold) {
    let stays = asm.label();
    turn(asm);
    asm.load(2, FRAME, FOLD_OFFSET);
    if scalar.size_log2() > 0 {
        asm.alui(alu::LSH, 1, scalar.size_log2().into());
    }
    asm.alu(alu::ADD, 2, 1);
    read(asm, scalar);
    asm.load(1, FRAME, FOLDED);
    match fold.start(scalar.is_wide()).1 {
        None => asm.alu(alu::ADD, 0, 1),
        Some(comparison) => asm.jump(comparison, 1, 0, stays),
    }
    asm.store(FRAME, FOLDED, 0);
    asm.place(stays);
    asm.answer(0);
}

/// `float_compare`: of bits that are no NaN, turned so that greater numbers have greater bits.
pub(crate) fn float_compare(asm: &mut Asm) {
    const SIGN: u64 = 1 << 63;
    let (unordered, equal, out) = (asm.label(), asm.label(), asm.label());
    asm.mov(4, 2);
    asm.alui(alu::LSH, 4, 1);
    asm.mov(5, 3);
    asm.alui(alu::LSH, 5, 1);
    asm.wide(0, f64::INFINITY.to_bits() << 1);
    asm.jump(jump::JGT, 4, 0, unordered);
    asm.jump(jump::JGT, 5, 0, unordered);
    asm.alu(alu::OR, 4, 5);
    asm.jumpi(jump::JEQ, 4, 0, equal);
    asm.wide(5, SIGN);
    for register in [2, 3] {
        let (negative, turned) = (asm.label(), asm.label());
        asm.jumpi(jump::JSLT, register, 0, negative);
        asm.alu(alu::XOR, register, 5);
        asm.goto(turned);
        asm.place(negative);
        asm.alui(alu::XOR, register, -1);
        asm.place(turned);
    }
    asm.jump(jump::JEQ, 2, 3, equal);
    asm.movi(0, 1);
    asm.jump(jump::JGT, 2, 3, out);
    asm.movi(0, -1);
    asm.place(out);
    asm.exit();
    asm.place(equal);
    asm.answer(0);
    asm.place(unordered);
    asm.answer(2);
}
