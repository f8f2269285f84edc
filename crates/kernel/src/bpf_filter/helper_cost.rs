//! Finds known arguments of string helpers, and derives an upper bound of the helpers' work.
//!
//! Jumps and calls go forward, as `jit`'s verifier requires. So a single pass visits each
//! instruction after all instructions that lead to it.

use std::collections::BTreeMap;

use trackway_jit::helper::{Helper, Word};
use trackway_jit::insn::{
    CALL, EXIT, FRAME, Insn, LDDW, alu, call, class, jump, mode, size, source,
};
use trackway_jit::verify::Verified;

use crate::bpf_filter::scratch::REGION_BYTES;
use crate::bpf_filter::translate::jump_target;

/// Number of registers, including the stack pointer.
const REGISTERS: usize = 11;
/// Registers with the strings that a helper takes.
const TEXT_REGISTER: usize = 2;
const OTHER_REGISTER: usize = 3;

/// The known contents of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KnownValue {
    /// The address of the frame.
    Frame,
    Constant(u64),
    /// The value of the frame slot with this index.
    Slot(usize),
    Unknown,
}

/// A call of a string helper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StringCall {
    /// The index of the call instruction.
    pub(crate) at: usize,
    pub(crate) helper: Helper,
    /// The first string, and the second string, if the helper takes two.
    pub(crate) text: KnownValue,
    pub(crate) other: KnownValue,
    /// The most executions of the call.
    pub(crate) times: u64,
}

type State = [KnownValue; REGISTERS];

/// Finds all calls of string helpers.
pub(crate) fn find_string_calls(verified: &Verified<'_>) -> Vec<StringCall> {
    let program = verified.program();
    let mut calls = Vec::new();
    let mut open: BTreeMap<usize, State> = BTreeMap::new();
    for (index, function) in verified.functions().iter().enumerate() {
        let mut now = Some([KnownValue::Unknown; REGISTERS]);
        if let Some(now) = now.as_mut().filter(|_| index == 0 || function.is_callback) {
            now[usize::from(FRAME)] = KnownValue::Frame;
        }
        for (at, insn) in program.insns().filter(|(at, _)| function.range().contains(at)) {
            if let Some(other) = open.remove(&at) {
                now = Some(now.map_or(other, |now| join_states(&now, &other)));
            }
            let Some(state) = &mut now else { continue };
            let helper = Helper::from_number(insn.immediate);
            if let (CALL, call::HELPER, Some(helper)) = (insn.op, insn.src, helper)
                && is_string_helper(helper)
            {
                let (text, other) = (state[TEXT_REGISTER], state[OTHER_REGISTER]);
                calls.push(StringCall { at, helper, text, other, times: function.times() });
            }
            if let Some(target) = jump_target(at, insn) {
                let known = open.get(&target).map_or(*state, |other| join_states(other, state));
                open.insert(target, known);
            }
            let wide = |at: usize| program.insn(at).immediate;
            update_state(state, insn, || u64::from(wide(at + 1) as u32) << 32);
            let is_jump = matches!(insn.class(), class::JMP | class::JMP32);
            if insn.op == EXIT || is_jump && insn.op != CALL && insn.op & 0xf0 == jump::JA {
                now = None;
            }
        }
    }
    calls
}

const fn is_string_helper(helper: Helper) -> bool {
    helper as i32 <= Helper::StringHash as i32
}

fn join_states(a: &State, b: &State) -> State {
    std::array::from_fn(|at| if a[at] == b[at] { a[at] } else { KnownValue::Unknown })
}

/// Updates the register state after an instruction; `upper` returns the upper half of a wide load.
fn update_state(state: &mut State, insn: Insn, upper: impl Fn() -> u64) {
    const LOAD: u8 = class::LDX | size::DW | mode::MEM;
    const MOV: u8 = class::ALU64 | alu::MOV;
    const MOV_REGISTER: u8 = MOV | source::X;
    let known = match insn.op {
        CALL => {
            let helper = Helper::from_number(insn.immediate).filter(|_| insn.src == call::HELPER);
            let frame = state[usize::from(FRAME)];
            state[..=5].fill(KnownValue::Unknown);
            if helper.is_some_and(Helper::keeps_frame) {
                state[usize::from(FRAME)] = frame;
            }
            return;
        }
        LDDW if insn.src == 0 => KnownValue::Constant(u64::from(insn.immediate as u32) | upper()),
        LOAD => match (state[usize::from(insn.src)], usize::try_from(insn.offset)) {
            (KnownValue::Frame, Ok(offset)) if offset.is_multiple_of(8) => {
                KnownValue::Slot(offset / 8)
            }
            _ => KnownValue::Unknown,
        },
        MOV => KnownValue::Constant(i64::from(insn.immediate) as u64),
        MOV_REGISTER if insn.offset == 0 => state[usize::from(insn.src)],
        _ => KnownValue::Unknown,
    };
    if matches!(insn.class(), class::LD | class::LDX | class::ALU | class::ALU64) {
        state[usize::from(insn.dst)] = known;
    }
}

/// Returns the most steps of all these calls; a step takes about two nanoseconds. `slot_bytes`
/// bounds the words in slots; `is_known` is true for calls with an automaton.
pub(crate) fn steps_max(
    calls: &[StringCall],
    is_known: impl Fn(&StringCall) -> bool,
    slot_bytes: impl Fn(usize) -> u32,
) -> u64 {
    let bytes = |known: KnownValue| match known {
        KnownValue::Constant(bits) => Word::from_bits(bits).length.min(REGION_BYTES as u32),
        KnownValue::Slot(slot) => slot_bytes(slot),
        KnownValue::Frame | KnownValue::Unknown => REGION_BYTES as u32,
    };
    let of = |call: &StringCall| {
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

/// Steps for a call itself.
const CALL_STEPS: u64 = 16;
/// Steps for a byte that a helper compares, or an automaton matches.
const STEP: u64 = 1;
/// Steps for a hashed byte.
const HASH_STEP: u64 = 4;
/// Steps for a byte in a search with an unknown pattern.
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

    fn load_slot(dst: u8, src: u8, slot: i16) -> Insn {
        Insn { op: LOAD, dst, src, offset: 8 * slot, immediate: 0 }
    }

    fn move_register(dst: u8, src: u8) -> Insn {
        Insn { op: MOV | source::X, dst, src, ..Insn::default() }
    }

    fn load_constant(dst: u8, bits: u64) -> [Insn; 2] {
        let upper = Insn { immediate: (bits >> 32) as i32, ..Insn::default() };
        [Insn { op: LDDW, dst, immediate: bits as i32, ..Insn::default() }, upper]
    }

    fn call_helper(helper: Helper) -> Insn {
        Insn { op: CALL, immediate: helper as i32, ..Insn::default() }
    }

    fn find_calls_in(insns: &[Insn]) -> Vec<StringCall> {
        let bytes: Vec<u8> = insns.iter().flat_map(|insn| insn.encode()).collect();
        let program = Program::new(&bytes).expect("a program");
        let mut states = vec![Memory::FREE; program.len() + 1];
        find_string_calls(&verify(program, Rules::new(3), &mut states).expect("verified"))
    }

    #[test]
    fn registers_stay_known_after_calls_and_jumps() {
        let skip = Insn { op: class::JMP | jump::JEQ, offset: 1, ..Insn::default() };
        let mut insns = vec![move_register(6, 1), load_slot(7, 6, 2), move_register(2, 7)];
        insns.extend(load_constant(3, 0xffff_0001_8000_0002));
        insns.extend([call_helper(Helper::StringContains), skip, load_slot(7, 6, 1)]);
        insns.extend([
            move_register(1, 6),
            move_register(2, 7),
            load_slot(3, 6, 0),
            call_helper(Helper::StringMatches),
        ]);
        insns.extend([
            move_register(1, 6),
            move_register(3, 0),
            load_slot(2, 6, 0),
            call_helper(Helper::StringCompare),
            END,
        ]);
        let found: Vec<_> =
            find_calls_in(&insns).iter().map(|call| (call.text, call.other)).collect();
        let word = KnownValue::Constant(0xffff_0001_8000_0002);
        let expected = [
            (KnownValue::Slot(2), word),
            (KnownValue::Unknown, KnownValue::Slot(0)),
            (KnownValue::Slot(0), KnownValue::Unknown),
        ];
        assert_eq!(found, expected);
    }

    /// RUN a program with `any`, which passes the frame to its function. EXPECT that the function's
    /// work counts for each element.
    #[test]
    fn a_function_for_elements_is_counted_for_each() {
        let function = Insn { op: LDDW, dst: 4, src: LDDW_FUNCTION, immediate: 3, ..END };
        let three = Insn { op: MOV, dst: 3, immediate: 5, ..END };
        let insns = [
            load_slot(2, 1, 0),
            three,
            function,
            Insn::default(),
            call_helper(Helper::Any),
            END,
            load_slot(2, 1, 1),
            call_helper(Helper::StringHash),
            END,
        ];
        let calls = find_calls_in(&insns);
        let times = trackway_jit::ELEMENTS_MAX as u64;
        assert_eq!((calls[0].text, calls[0].times, calls.len()), (KnownValue::Slot(1), times, 1));
        assert_eq!(steps_max(&calls, |_| false, |_| 10), times * (CALL_STEPS + 10 * HASH_STEP));
    }

    #[test]
    fn steps_are_those_of_the_longest_texts() {
        let word = Word { offset: 0, length: 3, is_constant: true }.to_bits();
        let call = |helper, text, other| StringCall { at: 0, helper, text, other, times: 1 };
        let of = |call: StringCall, is_known: bool| {
            steps_max(&[call], |_| is_known, |slot| [100, 1000][slot]) - CALL_STEPS
        };
        let (short, long) = (KnownValue::Slot(0), KnownValue::Slot(1));
        let found = call(Helper::StringContains, long, KnownValue::Constant(word));
        assert_eq!(of(found, true), 1000);
        assert_eq!(of(found, false), 4 * (2 * 1000 + 3 * 3));
        assert_eq!(of(call(Helper::StringCompare, long, short), false), 100);
        assert_eq!(of(call(Helper::StringMatches, KnownValue::Unknown, short), false), 4 * 8492);
        let many = StringCall { times: u64::MAX, ..found };
        assert_eq!(steps_max(&[many, many], |_| true, |_| 1), u64::MAX);
    }
}
