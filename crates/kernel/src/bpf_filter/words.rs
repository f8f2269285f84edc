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

use crate::bpf_filter::adapt::jump_target;
use crate::bpf_filter::area::REGION_BYTES;

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
            if let (CALL, call::HELPER, Some(helper)) = (insn.op, insn.src, helper)
                && is_on_strings(helper)
            {
                let (text, other) = (state[TEXT], state[OTHER]);
                calls.push(Call { at, helper, text, other, times: function.times() });
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
/// most. A step is about two nanoseconds. `is_known` says whether a call's pattern is an automaton.
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
            Helper::StringHash => HASH_STEP * text,
            _ => STEP * text.min(other),
        };
        (CALL_STEPS + steps).saturating_mul(call.times)
    };
    calls.iter().fold(0, |sum, call| sum.saturating_add(of(call)))
}

/// A call of a helper.
const CALL_STEPS: u64 = 16;
/// A byte of a text that is compared, or held against an automaton.
const STEP: u64 = 1;
/// A byte of a text whose hash is made.
const HASH_STEP: u64 = 4;
/// A step of a search for what is not known.
const SEARCH_STEP: u64 = 4;

#[cfg(test)]
mod tests {
    use trackway_jit::insn::LDDW_FUNCTION;
    use trackway_jit::program::Program;
    use trackway_jit::verify::{Rules, State as Memory, verify};

    use super::*;

    const LOAD: u8 = class::LDX | size::DW | mode::MEM;
    const MOV: u8 = class::ALU64 | alu::MOV;
    const END: Insn = Insn { op: EXIT, dst: 0, src: 0, offset: 0, immediate: 0 };

    fn load(dst: u8, src: u8, slot: i16) -> Insn {
        Insn { op: LOAD, dst, src, offset: 8 * slot, immediate: 0 }
    }

    fn mov(dst: u8, src: u8) -> Insn {
        Insn { op: MOV | source::X, dst, src, ..Insn::default() }
    }

    fn constant(dst: u8, bits: u64) -> [Insn; 2] {
        let upper = Insn { immediate: (bits >> 32) as i32, ..Insn::default() };
        [Insn { op: LDDW, dst, immediate: bits as i32, ..Insn::default() }, upper]
    }

    fn ask(helper: Helper) -> Insn {
        Insn { op: CALL, immediate: helper as i32, ..Insn::default() }
    }

    fn known(insns: &[Insn]) -> Vec<Call> {
        let bytes: Vec<u8> = insns.iter().flat_map(|insn| insn.encode()).collect();
        let program = Program::new(&bytes).expect("a program");
        let mut states = vec![Memory::FREE; program.len() + 1];
        calls(&verify(program, Rules::new(3), &mut states).expect("verified"))
    }

    #[test]
    fn what_stays_in_registers_is_known_behind_calls_and_jumps() {
        let skip = Insn { op: class::JMP | jump::JEQ, offset: 1, ..Insn::default() };
        let mut insns = vec![mov(6, 1), load(7, 6, 2), mov(2, 7)];
        insns.extend(constant(3, 0xffff_0001_8000_0002));
        insns.extend([ask(Helper::StringContains), skip, load(7, 6, 1)]);
        insns.extend([mov(1, 6), mov(2, 7), load(3, 6, 0), ask(Helper::StringMatches)]);
        insns.extend([mov(1, 6), mov(3, 0), load(2, 6, 0), ask(Helper::StringCompare), END]);
        let found: Vec<_> = known(&insns).iter().map(|call| (call.text, call.other)).collect();
        let word = Known::Constant(0xffff_0001_8000_0002);
        let expected = [
            (Known::Slot(2), word),
            (Known::Unknown, Known::Slot(0)),
            (Known::Slot(0), Known::Unknown),
        ];
        assert_eq!(found, expected);
    }

    /// `any` gives its function the frame; what it asks counts for all elements.
    #[test]
    fn a_function_for_elements_is_counted_for_each() {
        let function = Insn { op: LDDW, dst: 4, src: LDDW_FUNCTION, immediate: 3, ..END };
        let three = Insn { op: MOV, dst: 3, immediate: 5, ..END };
        let insns = [
            load(2, 1, 0),
            three,
            function,
            Insn::default(),
            ask(Helper::Any),
            END,
            load(2, 1, 1),
            ask(Helper::StringHash),
            END,
        ];
        let calls = known(&insns);
        let times = trackway_jit::ELEMENTS_MAX as u64;
        assert_eq!((calls[0].text, calls[0].times, calls.len()), (Known::Slot(1), times, 1));
        assert_eq!(steps(&calls, |_| false, |_| 10), times * (CALL_STEPS + 10 * HASH_STEP));
    }

    #[test]
    fn steps_are_those_of_the_longest_texts() {
        let word = Word { offset: 0, length: 3, is_constant: true }.to_bits();
        let call = |helper, text, other| Call { at: 0, helper, text, other, times: 1 };
        let of = |call: Call, is_known: bool| {
            steps(&[call], |_| is_known, |slot| [100, 1000][slot]) - CALL_STEPS
        };
        let (short, long) = (Known::Slot(0), Known::Slot(1));
        let found = call(Helper::StringContains, long, Known::Constant(word));
        assert_eq!(of(found, true), 1000);
        assert_eq!(of(found, false), 4 * (2 * 1000 + 3 * 3));
        assert_eq!(of(call(Helper::StringCompare, long, short), false), 100);
        assert_eq!(of(call(Helper::StringMatches, Known::Unknown, short), false), 4 * 8492);
        let many = Call { times: u64::MAX, ..found };
        assert_eq!(steps(&[many, many], |_| true, |_| 1), u64::MAX);
    }
}
