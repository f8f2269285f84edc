//! Helpers on state, and chance. Cells are changed as `jit` changes them: each by one atomic
//! instruction. So those that CPUs share are as good as those of one.

use trackway_jit::CELLS_MAX;
use trackway_jit::insn::{alu, jump};

use crate::bpf_filter::adapt::{Parts, Piece};
use crate::bpf_filter::area::{CELLS_AT, SCRATCH_AT};
use crate::bpf_filter::text::{turn, turns};
use crate::bpf_sys::asm::{Asm, Register};

/// Adds, and gives what was there.
const FETCH_ADD: i32 = 0x01;
/// Stores, and gives what was there.
const EXCHANGE: i32 = 0xe1;
/// Stores if what is there is what register 0 says; that gets what was there.
const COMPARE_EXCHANGE: i32 = 0xf1;
/// `u64 bpf_ktime_get_ns(void)`: CLOCK_MONOTONIC.
pub(crate) const TIME_NS: i32 = 5;
/// `u32 bpf_get_prandom_u32(void)`
const RANDOM: i32 = 7;
/// As in `jit`: what `changed` keeps is the number with these bits turned over.
const TURNED: u64 = 0x9e6c_63d0_876a_3f1b;

/// As in `jit`: bits of a cell of `rate` that say how many have passed, and the number of its
/// interval in the others; how late an interval may be; how often a cell is tried.
const PASSED_BITS: i32 = 28;
const LATE_MAX: i32 = 1 << 16;
const TRIES_MAX: i32 = 64;
/// `rate`'s scratch: the number of its cell, how many may pass, the running
/// interval, the answer.
const CELL: i16 = SCRATCH_AT + 192;
const MOST: i16 = CELL + 8;
const CURRENT: i16 = CELL + 16;
const RESULT: i16 = CELL + 24;

/// Where a filter's cells are, and how many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cells {
    /// In the area.
    Area(usize),
    /// In the value of a map, from this offset on: all CPUs have the same.
    Map { fd: i32, offset: i32, count: usize },
}

impl Cells {
    const fn count(self) -> usize {
        match self {
            Self::Area(count) | Self::Map { count, .. } => count,
        }
    }

    /// From the number of a cell times eight in `cell`, and the frame in `frame`, makes in `cell`
    /// an address; how far behind it the cell is. Register 1 may be lost.
    fn address(self, asm: &mut Asm, cell: Register, frame: Register) -> i16 {
        match self {
            Self::Area(_) => {
                asm.alu(alu::ADD, cell, frame);
                CELLS_AT
            }
            Self::Map { fd, offset, .. } => {
                asm.map_value_at(1, fd, offset);
                asm.alu(alu::ADD, cell, 1);
                0
            }
        }
    }
}

/// Begins a helper: register 2 points so that the cell is where is answered; one that there is not
/// is answered with 0. Register 1 is lost.
fn cell(asm: &mut Asm, cells: Cells) -> i16 {
    let is_there = asm.label();
    asm.jumpi(jump::JLT, 2, cells.count() as i32, is_there);
    asm.answer(0);
    asm.place(is_there);
    asm.alui(alu::LSH, 2, 3);
    cells.address(asm, 2, 1)
}

/// `count`
pub(crate) fn count(asm: &mut Asm, cells: Cells) {
    let at = cell(asm, cells);
    asm.movi(0, 1);
    asm.atomic(FETCH_ADD, 2, at, 0);
    asm.exit();
}

/// `changed`
pub(crate) fn changed(asm: &mut Asm, cells: Cells) {
    let has_changed = asm.label();
    let at = cell(asm, cells);
    asm.wide(0, TURNED);
    asm.alu(alu::XOR, 3, 0);
    asm.mov(0, 3);
    asm.atomic(EXCHANGE, 2, at, 3);
    asm.jump(jump::JNE, 3, 0, has_changed);
    // The one number that looks as if there was none.
    asm.jumpi(jump::JEQ, 0, 0, has_changed);
    asm.answer(0);
    asm.place(has_changed);
    asm.answer(1);
}

/// `random`
pub(crate) fn random(asm: &mut Asm) {
    asm.call_kernel(RANDOM);
    asm.mov(6, 0);
    asm.call_kernel(RANDOM);
    asm.alui(alu::LSH, 6, 32);
    asm.alui(alu::LSH, 0, 32);
    asm.alui(alu::RSH, 0, 32);
    asm.alu(alu::OR, 0, 6);
    asm.exit();
}

/// `rate`
pub(crate) fn rate(parts: &mut Parts, cells: Cells) {
    let asm = &mut parts.asm;
    let (is_there, has_length, is_few) = (asm.label(), asm.label(), asm.label());
    asm.jumpi(jump::JLT, 2, cells.count() as i32, is_there);
    asm.answer(0);
    asm.place(is_there);
    asm.mov(6, 1);
    asm.store(6, CELL, 2);
    asm.jumpi(jump::JLT, 3, 1 << PASSED_BITS, is_few);
    asm.movi(3, (1 << PASSED_BITS) - 1);
    asm.place(is_few);
    asm.store(6, MOST, 3);
    asm.jumpi(jump::JNE, 4, 0, has_length);
    asm.movi(4, 1);
    asm.place(has_length);
    asm.mov(7, 4);
    asm.call_kernel(TIME_NS);
    asm.alu(alu::DIV, 0, 7);
    asm.alui(alu::LSH, 0, PASSED_BITS);
    asm.alui(alu::RSH, 0, PASSED_BITS);
    asm.store(6, CURRENT, 0);
    asm.storei(6, RESULT, 0);
    asm.movi(1, TRIES_MAX);
    turns(parts, Piece::RateTurn(cells));
    parts.asm.load(0, 6, RESULT);
    parts.asm.exit();
}

/// One try to change the cell.
pub(crate) fn rate_turn(asm: &mut Asm, cells: Cells) {
    let (running, again, stop) = (asm.label(), asm.label(), asm.label());
    turn(asm);
    asm.load(7, 6, CELL);
    asm.jumpi(jump::JGE, 7, CELLS_MAX as i32, stop);
    asm.alui(alu::LSH, 7, 3);
    let at = cells.address(asm, 7, 6);
    asm.load(0, 7, at);
    asm.mov(1, 0);
    asm.alui(alu::RSH, 1, PASSED_BITS);
    asm.mov(2, 0);
    asm.alui(alu::AND, 2, (1 << PASSED_BITS) - 1);
    asm.load(3, 6, CURRENT);
    asm.mov(4, 1);
    asm.alu(alu::SUB, 4, 3);
    asm.alui(alu::LSH, 4, PASSED_BITS);
    asm.alui(alu::RSH, 4, PASSED_BITS);
    asm.jumpi(jump::JLE, 4, LATE_MAX, running);
    asm.mov(1, 3);
    asm.movi(2, 0);
    asm.place(running);
    asm.load(4, 6, MOST);
    asm.jump(jump::JGE, 2, 4, stop);
    asm.alui(alu::ADD, 2, 1);
    asm.alui(alu::LSH, 1, PASSED_BITS);
    asm.alu(alu::OR, 1, 2);
    asm.mov(2, 0);
    asm.atomic(COMPARE_EXCHANGE, 7, at, 1);
    asm.jump(jump::JNE, 0, 2, again);
    asm.storei(6, RESULT, 1);
    asm.place(stop);
    asm.answer(1);
    asm.place(again);
    asm.answer(0);
}
