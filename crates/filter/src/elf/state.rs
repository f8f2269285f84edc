//! How many cells of state a program uses, which nothing in a file says.

use trackway_jit::CELLS_MAX;
use trackway_jit::helper::Helper;
use trackway_jit::insn::{CALL, EXIT, Insn, LDDW, alu, call, class, jump, source};

/// The register that has a cell's number.
const CELL: u8 = 2;

/// As many cells as the program's calls name by constants; all there are if one names another.
pub(super) fn cells(insns: &[Insn]) -> usize {
    let is_target = targets(insns);
    let calls = insns.iter().enumerate().filter(|(_, insn)| asks_cell(**insn));
    let cells = calls.map(|(at, _)| match constant(insns, &is_target, at) {
        // What is beyond the last cell there can be is none, and answers 0.
        Some(number @ 0..CELLS_MAX) => number + 1,
        Some(_) => 0,
        None => CELLS_MAX,
    });
    cells.max().unwrap_or(0)
}

fn asks_cell(insn: Insn) -> bool {
    let helper = Helper::from_number(insn.immediate);
    let is_call = insn.op == CALL && insn.src == call::HELPER;
    is_call && matches!(helper, Some(Helper::Count | Helper::Changed | Helper::Rate))
}

/// Which instructions jumps lead to.
fn targets(insns: &[Insn]) -> Vec<bool> {
    let mut is_target = vec![false; insns.len()];
    for (at, insn) in insns.iter().enumerate() {
        let is_jump = matches!(insn.class(), class::JMP | class::JMP32);
        if !is_jump || matches!(insn.op, CALL | EXIT) {
            continue;
        }
        let is_long = insn.op == class::JMP32 | jump::JA;
        let by = if is_long { insn.immediate as i64 } else { insn.offset.into() };
        let target = usize::try_from(at as i64 + 1 + by).ok();
        if let Some(target) = target.and_then(|target| is_target.get_mut(target)) {
            *target = true;
        }
    }
    is_target
}

/// The constant that is in the register at a call, if nothing but what stands straight before it
/// can have put it there.
fn constant(insns: &[Insn], is_target: &[bool], call: usize) -> Option<usize> {
    for at in (0..call).rev() {
        if is_target[at + 1] {
            return None;
        }
        let insn = insns[at];
        match insn.class() {
            class::JMP | class::JMP32 => return None,
            class::LD if insn.op == LDDW && insn.dst == CELL => return None,
            class::LDX if insn.dst == CELL => return None,
            class::ALU | class::ALU64 if insn.dst == CELL => {
                let is_constant = insn.op & 0xf0 == alu::MOV && insn.op & source::X == 0;
                let value = is_constant.then_some(insn.immediate)?;
                return Some(usize::try_from(value).unwrap_or(usize::MAX));
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mov(dst: u8, immediate: i32) -> Insn {
        Insn { op: class::ALU64 | alu::MOV, dst, immediate, ..Insn::default() }
    }

    fn count() -> Insn {
        Insn { op: CALL, immediate: Helper::Count as i32, ..Insn::default() }
    }

    fn goto(offset: i16) -> Insn {
        Insn { op: class::JMP | jump::JA, offset, ..Insn::default() }
    }

    #[test]
    fn constants_straight_before_a_call_are_seen() {
        assert_eq!(cells(&[mov(2, 3), count()]), 4);
        assert_eq!(cells(&[mov(2, 3), mov(3, 9), count(), mov(2, 1), count()]), 4);
        assert_eq!(cells(&[mov(2, 64), count()]), 0, "there is no such cell");
        assert_eq!(cells(&[mov(2, -1), count()]), 0);
        assert_eq!(cells(&[mov(2, 5)]), 0, "nothing is asked");
        assert_eq!(cells(&[]), 0);
    }

    #[test]
    fn what_may_be_anything_is_all_there_are() {
        assert_eq!(cells(&[count()]), CELLS_MAX);
        assert_eq!(cells(&[mov(2, 3), count(), count()]), CELLS_MAX);
        let copied = Insn { op: class::ALU64 | source::X | alu::MOV, dst: 2, ..Insn::default() };
        assert_eq!(cells(&[mov(2, 3), copied, count()]), CELLS_MAX);
        // Two ways lead to the call.
        assert_eq!(cells(&[goto(1), mov(2, 3), count()]), CELLS_MAX);
        assert_eq!(cells(&[goto(0), mov(2, 3), count()]), 4);
    }
}
