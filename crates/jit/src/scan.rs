//! Determines the contents of a register from the preceding straight-line instructions, to find the
//! arguments of helpers before the program runs.

use crate::insn::{CALL, EXIT, Insn, LDDW, LDDW_FUNCTION, alu, class, source};
use crate::program::Program;
use crate::verify::{InsnSet, jump_target};

/// The statically known contents of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KnownValue {
    /// A constant.
    Number(i64),
    /// A function of the program, by the index of its first instruction.
    Function(usize),
}

/// A program with its jump targets.
#[derive(Debug)]
pub struct Scan<'p> {
    program: Program<'p>,
    targets: InsnSet,
}

impl<'p> Scan<'p> {
    /// Scans a program once.
    pub fn new(program: Program<'p>) -> Self {
        let mut targets = InsnSet::NONE;
        for (at, insn) in program.insns() {
            let is_jump = matches!(insn.class(), class::JMP | class::JMP32);
            if is_jump && !matches!(insn.op, CALL | EXIT) {
                usize::try_from(jump_target(at, insn)).into_iter().for_each(|to| targets.set(to));
            }
        }
        Self { program, targets }
    }

    /// Returns the contents of `register` before the instruction at `at`. Returns `None` unless the
    /// instructions since the last jump target determine them.
    pub fn known(&self, at: usize, register: u8) -> Option<KnownValue> {
        for before in (0..at).rev() {
            if self.targets.has(before + 1) {
                return None;
            }
            let insn = self.program.insn(before);
            match insn.class() {
                // Calls change the argument registers. After other jumps, not all paths reach this
                // place.
                class::JMP | class::JMP32 => return None,
                // The second half of a wide load has no effect of its own.
                class::LD if insn.op != LDDW => {}
                class::LD | class::LDX | class::ALU | class::ALU64 if insn.dst == register => {
                    return known_result(before, insn);
                }
                _ => {}
            }
        }
        None
    }
}

fn known_result(at: usize, insn: Insn) -> Option<KnownValue> {
    let is_arithmetic = matches!(insn.class(), class::ALU | class::ALU64);
    if is_arithmetic && insn.op & (0xf0 | source::X) == alu::MOV {
        let is_narrow = insn.class() == class::ALU;
        let number = i64::from(insn.immediate);
        return Some(KnownValue::Number(if is_narrow { number & 0xffff_ffff } else { number }));
    }
    let is_function = insn.op == LDDW && insn.src == LDDW_FUNCTION;
    let start = usize::try_from(at as i64 + 1 + i64::from(insn.immediate)).ok()?;
    is_function.then_some(KnownValue::Function(start))
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;
    use crate::insn::{call, jump};

    const CALL_INSN: Insn = Insn { op: CALL, dst: 0, src: call::HELPER, offset: 0, immediate: 18 };

    fn mov_insn(dst: u8, immediate: i32) -> Insn {
        Insn { op: class::ALU64 | alu::MOV, dst, immediate, ..Insn::default() }
    }

    fn jump_insn(offset: i16) -> Insn {
        Insn { op: class::JMP | jump::JA, offset, ..Insn::default() }
    }

    /// Returns the known contents of register 2 before the last instruction.
    fn known_before_last(insns: &[Insn]) -> Option<KnownValue> {
        let bytes: Vec<u8> = insns.iter().flat_map(|insn| insn.encode()).collect();
        let program = Program::new(&bytes).expect("a program");
        Scan::new(program).known(insns.len() - 1, 2)
    }

    #[test]
    fn what_stands_straight_before_is_known() {
        let number = |number| Some(KnownValue::Number(number));
        assert_eq!(known_before_last(&[mov_insn(2, 3), CALL_INSN]), number(3));
        assert_eq!(known_before_last(&[mov_insn(2, -3), mov_insn(3, 9), CALL_INSN]), number(-3));
        assert_eq!(known_before_last(&[mov_insn(2, 3), mov_insn(2, 4), CALL_INSN]), number(4));
        assert_eq!(known_before_last(&[jump_insn(0), mov_insn(2, 3), CALL_INSN]), number(3));
        let narrow = Insn { op: class::ALU | alu::MOV, ..mov_insn(2, -1) };
        assert_eq!(known_before_last(&[narrow, CALL_INSN]), number(0xffff_ffff));
        let wide = Insn { op: LDDW, dst: 3, ..Insn::default() };
        assert_eq!(
            known_before_last(&[mov_insn(2, 3), wide, Insn::default(), CALL_INSN]),
            number(3)
        );
        let function = Insn { op: LDDW, src: LDDW_FUNCTION, immediate: 6, ..mov_insn(2, 0) };
        let function = Insn { immediate: 6, ..function };
        assert_eq!(
            known_before_last(&[function, Insn::default(), CALL_INSN]),
            Some(KnownValue::Function(7))
        );
    }

    #[test]
    fn what_may_be_anything_is_not_known() {
        assert_eq!(known_before_last(&[CALL_INSN]), None);
        assert_eq!(known_before_last(&[mov_insn(2, 3), CALL_INSN, CALL_INSN]), None);
        let copied = Insn { op: class::ALU64 | source::X | alu::MOV, dst: 2, ..Insn::default() };
        assert_eq!(known_before_last(&[mov_insn(2, 3), copied, CALL_INSN]), None);
        let wide = Insn { op: LDDW, dst: 2, ..Insn::default() };
        assert_eq!(known_before_last(&[mov_insn(2, 3), wide, Insn::default(), CALL_INSN]), None);
        // Two paths lead to the call, so the contents are unknown.
        assert_eq!(known_before_last(&[jump_insn(1), mov_insn(2, 3), CALL_INSN]), None);
    }
}
