//! What a program's helpers on strings are given, as far as that is known when it is put together,
//! and from that how much they have to do at most.
//!
//! Jumps and calls go forward, as `jit`'s verifier wants it: so one pass meets each instruction
//! after all that come before it.

use std::collections::BTreeMap;

use trackway_jit::helper::{Helper, Word};
use trackway_jit::insn::{
    CALL, EXIT, FRAME, Insn, LDDW, alu, call, class, jump, mode, size, source,
};
use trackway_jit::verify::Verified;

use crate::adapt::jump_target;
use crate::area::REGION_BYTES;

/// Registers, with the stack's end.
const REGISTERS: usize = 11;
/// The registers of a helper's strings.
const TEXT: usize = 2;
const OTHER: usize = 3;

/// What is in a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// The frame.
    Frame,
    Constant(u64),
    /// What the slot of this number has.
    Slot(usize),
    Unknown,
}

/// A call of a helper on strings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call {
    /// Its instruction.
    pub(crate) at: usize,
    pub(crate) helper: Helper,
    /// The first string, and the second one, if it takes two.
    pub(crate) text: Known,
    pub(crate) other: Known,
    /// How often it is called at most.
    pub(crate) times: u64,
}

type State = [Known; REGISTERS];

/// All calls of helpers on strings.
pub(crate) fn calls(verified: &Verified<'_>) -> Vec<Call> {
    let program = verified.program();
    let mut calls = Vec::new();
    let mut open: BTreeMap<usize, State> = BTreeMap::new();
    for (index, function) in verified.functions().iter().enumerate() {
        let mut now = Some([Known::Unknown; REGISTERS]);
        if let Some(now) = now.as_mut().filter(|_| index == 0 || function.is_callback) {
            now[usize::from(FRAME)] = Known::Frame;
        }
        for (at, insn) in program.insns().filter(|(at, _)| function.range().contains(at)) {
            if let Some(other) = open.remove(&at) {
                now = Some(now.map_or(other, |now| joined(&now, &other)));
            }
            let Some(state) = &mut now else { continue };
            let helper = Helper::from_number(insn.immediate);
            if let (CALL, call::HELPER, Some(helper)) = (insn.op, insn.src, helper) {
                if is_on_strings(helper) {
                    let (text, other) = (state[TEXT], state[OTHER]);
                    calls.push(Call { at, helper, text, other, times: function.times() });
                }
            }
            if let Some(target) = jump_target(at, insn) {
                let known = open.get(&target).map_or(*state, |other| joined(other, state));
                open.insert(target, known);
            }
            let wide = |at: usize| program.insn(at).immediate;
            step(state, insn, || u64::from(wide(at + 1) as u32) << 32);
            let is_jump = matches!(insn.class(), class::JMP | class::JMP32);
            if insn.op == EXIT || is_jump && insn.op != CALL && insn.op & 0xf0 == jump::JA {
                now = None;
            }
        }
    }
    calls
}

const fn is_on_strings(helper: Helper) -> bool {
    helper as i32 <= Helper::StringHash as i32
}

fn joined(a: &State, b: &State) -> State {
    std::array::from_fn(|at| if a[at] == b[at] { a[at] } else { Known::Unknown })
}

/// What is known behind an instruction; `upper`: the upper half of what it loads.
fn step(state: &mut State, insn: Insn, upper: impl Fn() -> u64) {
    const LOAD: u8 = class::LDX | size::DW | mode::MEM;
    const MOV: u8 = class::ALU64 | alu::MOV;
    const MOV_REGISTER: u8 = MOV | source::X;
    let known = match insn.op {
        CALL => {
            let helper = Helper::from_number(insn.immediate).filter(|_| insn.src == call::HELPER);
            let frame = state[usize::from(FRAME)];
            state[..=5].fill(Known::Unknown);
            if helper.is_some_and(Helper::keeps_frame) {
                state[usize::from(FRAME)] = frame;
            }
            return;
        }
        LDDW if insn.src == 0 => Known::Constant(u64::from(insn.immediate as u32) | upper()),
        LOAD => match (state[usize::from(insn.src)], usize::try_from(insn.offset)) {
            (Known::Frame, Ok(offset)) if offset.is_multiple_of(8) => Known::Slot(offset / 8),
            _ => Known::Unknown,
        },
        MOV => Known::Constant(i64::from(insn.immediate) as u64),
        MOV_REGISTER if insn.offset == 0 => state[usize::from(insn.src)],
        _ => Known::Unknown,
    };
    if matches!(insn.class(), class::LD | class::LDX | class::ALU | class::ALU64) {
        state[usize::from(insn.dst)] = known;
    }
}

/// The most that all these calls have to do, in steps, if words in slots are of so many bytes at
/// most. A step is about a nanosecond. `is_known` says whether a call's pattern is an automaton.
pub(crate) fn steps(
    calls: &[Call],
    is_known: impl Fn(&Call) -> bool,
    slot_bytes: impl Fn(usize) -> u32,
) -> u64 {
    let bytes = |known: Known| match known {
        Known::Constant(bits) => Word::from_bits(bits).length.min(REGION_BYTES as u32),
        Known::Slot(slot) => slot_bytes(slot),
        Known::Frame | Known::Unknown => REGION_BYTES as u32,
    };
    let of = |call: &Call| {
        let (text, other) = (u64::from(bytes(call.text)), u64::from(bytes(call.other)));
        let steps = match call.helper {
            Helper::StringContains | Helper::StringMatches if is_known(call) => STEP * text,
            Helper::StringContains | Helper::StringMatches => SEARCH_STEP * (2 * text + 3 * other),
            Helper::StringHash => TURN * text,
            _ => TURN * text.min(other),
        };
        (CALL_STEPS + steps).saturating_mul(call.times)
    };
    calls.iter().fold(0, |sum, call| sum.saturating_add(of(call)))
}

/// A call of a helper.
const CALL_STEPS: u64 = 32;
/// A byte of a text that is held against an automaton.
const STEP: u64 = 1;
/// A byte that is compared.
const TURN: u64 = 4;
/// A step of a search for what is not known.
const SEARCH_STEP: u64 = 8;
