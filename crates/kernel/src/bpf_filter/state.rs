//! Helpers on filter state, and the random helper. As in `jit`, each change of a cell is one atomic
//! instruction, so CPUs can share cells.

use trackway_jit::CELLS_MAX;
use trackway_jit::insn::{alu, jump};

use crate::bpf_filter::scratch::{CELLS_AT, HELPER_STATE_AT};
use crate::bpf_filter::text::{begin_turn, write_loop};
use crate::bpf_filter::translate::{FilterAssembler, HelperFunction};
use crate::bpf_sys::asm::{Asm, Register};

/// Atomic operation: adds, and returns the previous value.
const FETCH_ADD: i32 = 0x01;
/// Atomic operation: stores, and returns the previous value.
const EXCHANGE: i32 = 0xe1;
/// Atomic operation: stores if the value equals register 0; loads the previous value into register
/// 0.
const COMPARE_EXCHANGE: i32 = 0xf1;
/// `u64 bpf_ktime_get_ns(void)`: CLOCK_MONOTONIC.
pub(crate) const KTIME_NS_HELPER: i32 = 5;
/// `u32 bpf_get_prandom_u32(void)`
const PRANDOM_HELPER: i32 = 7;
/// Bits that `changed` inverts in the stored number, like `jit`.
const CHANGED_MASK: u64 = 0x9e6c_63d0_876a_3f1b;

/// Constants of `jit`: bits of `rate`'s cell for the count, next to the interval's number; the most
/// intervals by which a clock may lag behind; the most attempts to change a cell.
const PASSED_BITS: i32 = 28;
const LAG_MAX: i32 = 1 << 16;
const TRIES_MAX: i32 = 64;
/// Helper state of `rate`: the cell, the limit, the current interval, the result.
const CELL: i16 = HELPER_STATE_AT + 192;
const LIMIT: i16 = CELL + 8;
const CURRENT: i16 = CELL + 16;
const RESULT: i16 = CELL + 24;

/// The location and number of a filter's cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cells {
    /// Cells in the scratch area, with their number.
    Scratch(usize),
    /// Cells in the value of a map from this offset on, shared by all CPUs.
    Map { fd: i32, offset: i32, count: usize },
}

impl Cells {
    const fn count(self) -> usize {
        match self {
            Self::Scratch(count) | Self::Map { count, .. } => count,
        }
    }

    /// Converts a cell's index times eight in `cell` to an address, with the frame in `frame`;
    /// returns the cell's offset from this address. May change register 1.
    fn load_address(self, asm: &mut Asm, cell: Register, frame: Register) -> i16 {
        match self {
            Self::Scratch(_) => {
                asm.alu(alu::ADD, cell, frame);
                CELLS_AT
            }
            Self::Map { fd, offset, .. } => {
                asm.load_map_value_at(1, fd, offset);
                asm.alu(alu::ADD, cell, 1);
                0
            }
        }
    }
}

/// Begins a helper: sets register 2 so that the cell is at the returned offset from it; a missing
/// cell ends the helper with 0. Changes register 1.
fn load_cell_address(asm: &mut Asm, cells: Cells) -> i16 {
    let is_there = asm.new_label();
    asm.jumpi(jump::JLT, 2, cells.count() as i32, is_there);
    asm.exit_with(0);
    asm.place_label(is_there);
    asm.alui(alu::LSH, 2, 3);
    cells.load_address(asm, 2, 1)
}

/// Writes the function for `count`.
pub(crate) fn write_count(asm: &mut Asm, cells: Cells) {
    let at = load_cell_address(asm, cells);
    asm.movi(0, 1);
    asm.atomic(FETCH_ADD, 2, at, 0);
    asm.exit();
}

/// Writes the function for `changed`.
pub(crate) fn write_changed(asm: &mut Asm, cells: Cells) {
    let has_changed = asm.new_label();
    let at = load_cell_address(asm, cells);
    asm.load_wide(0, CHANGED_MASK);
    asm.alu(alu::XOR, 3, 0);
    asm.mov(0, 3);
    asm.atomic(EXCHANGE, 2, at, 3);
    asm.jump(jump::JNE, 3, 0, has_changed);
    // After inversion, exactly one number looks like an unused cell: zero.
    asm.jumpi(jump::JEQ, 0, 0, has_changed);
    asm.exit_with(0);
    asm.place_label(has_changed);
    asm.exit_with(1);
}

/// Writes the function for `random`.
pub(crate) fn write_random(asm: &mut Asm) {
    asm.call_kernel(PRANDOM_HELPER);
    asm.mov(6, 0);
    asm.call_kernel(PRANDOM_HELPER);
    asm.alui(alu::LSH, 6, 32);
    asm.alui(alu::LSH, 0, 32);
    asm.alui(alu::RSH, 0, 32);
    asm.alu(alu::OR, 0, 6);
    asm.exit();
}

/// Writes the function for `rate`.
pub(crate) fn write_rate(assembler: &mut FilterAssembler, cells: Cells) {
    let asm = &mut assembler.asm;
    let (is_there, has_length, is_few) = (asm.new_label(), asm.new_label(), asm.new_label());
    asm.jumpi(jump::JLT, 2, cells.count() as i32, is_there);
    asm.exit_with(0);
    asm.place_label(is_there);
    asm.mov(6, 1);
    asm.store(6, CELL, 2);
    asm.jumpi(jump::JLT, 3, 1 << PASSED_BITS, is_few);
    asm.movi(3, (1 << PASSED_BITS) - 1);
    asm.place_label(is_few);
    asm.store(6, LIMIT, 3);
    asm.jumpi(jump::JNE, 4, 0, has_length);
    asm.movi(4, 1);
    asm.place_label(has_length);
    asm.mov(7, 4);
    asm.call_kernel(KTIME_NS_HELPER);
    asm.alu(alu::DIV, 0, 7);
    asm.alui(alu::LSH, 0, PASSED_BITS);
    asm.alui(alu::RSH, 0, PASSED_BITS);
    asm.store(6, CURRENT, 0);
    asm.storei(6, RESULT, 0);
    asm.movi(1, TRIES_MAX);
    write_loop(assembler, HelperFunction::RateTurn(cells));
    assembler.asm.load(0, 6, RESULT);
    assembler.asm.exit();
}

/// Writes the loop body of `rate`: one attempt to change the cell.
pub(crate) fn write_rate_turn(asm: &mut Asm, cells: Cells) {
    let (running, again, stop) = (asm.new_label(), asm.new_label(), asm.new_label());
    begin_turn(asm);
    asm.load(7, 6, CELL);
    asm.jumpi(jump::JGE, 7, CELLS_MAX as i32, stop);
    asm.alui(alu::LSH, 7, 3);
    let at = cells.load_address(asm, 7, 6);
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
    asm.jumpi(jump::JLE, 4, LAG_MAX, running);
    asm.mov(1, 3);
    asm.movi(2, 0);
    asm.place_label(running);
    asm.load(4, 6, LIMIT);
    asm.jump(jump::JGE, 2, 4, stop);
    asm.alui(alu::ADD, 2, 1);
    asm.alui(alu::LSH, 1, PASSED_BITS);
    asm.alu(alu::OR, 1, 2);
    asm.mov(2, 0);
    asm.atomic(COMPARE_EXCHANGE, 7, at, 1);
    asm.jump(jump::JNE, 0, 2, again);
    asm.storei(6, RESULT, 1);
    asm.place_label(stop);
    asm.exit_with(1);
    asm.place_label(again);
    asm.exit_with(0);
}
