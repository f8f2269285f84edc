//! Counts the state cells that a program uses, which the file does not list.

use trackway_jit::CELLS_MAX;
use trackway_jit::helper::Helper;
use trackway_jit::insn::{CALL, Insn, call};
use trackway_jit::program::Program;
use trackway_jit::scan::{KnownValue, Scan};

/// Register that holds a cell's number in a call.
const CELL: u8 = 2;

/// Returns the number of cells that the program's calls use. Returns the maximum if a cell number
/// is not a constant.
pub(super) fn count_cells(program: Program<'_>) -> usize {
    let scan = Scan::new(program);
    let calls = program.insns().filter(|(_, insn)| uses_cell(*insn));
    let cells = calls.map(|(at, _)| match scan.known(at, CELL) {
        Some(KnownValue::Number(number)) => match usize::try_from(number) {
            Ok(number) if number < CELLS_MAX => number + 1,
            // A number beyond the maximum refers to no cell, and the helper returns 0.
            _ => 0,
        },
        _ => CELLS_MAX,
    });
    cells.max().unwrap_or(0)
}

fn uses_cell(insn: Insn) -> bool {
    let helper = Helper::from_number(insn.immediate);
    let is_call = insn.op == CALL && insn.src == call::HELPER;
    is_call && matches!(helper, Some(Helper::Count | Helper::Changed | Helper::Rate))
}

#[cfg(test)]
mod tests {
    use trackway_jit::insn::{alu, class};

    use super::*;

    fn count_cells_of(insns: &[Insn]) -> usize {
        let bytes: Vec<u8> = insns.iter().flat_map(|insn| insn.encode()).collect();
        count_cells(Program::new(&bytes).expect("a program"))
    }

    #[test]
    fn cells_are_those_that_calls_name() {
        let mov =
            |immediate| Insn { op: class::ALU64 | alu::MOV, dst: 2, immediate, ..Insn::default() };
        let call = |helper: Helper| Insn { op: CALL, immediate: helper as i32, ..Insn::default() };
        assert_eq!(count_cells_of(&[mov(3), call(Helper::Count)]), 4);
        let two = [mov(0), call(Helper::Changed), mov(2), call(Helper::Rate)];
        assert_eq!(count_cells_of(&two), 3);
        assert_eq!(count_cells_of(&[mov(64), call(Helper::Count)]), 0, "there is no such cell");
        assert_eq!(count_cells_of(&[mov(-1), call(Helper::Count)]), 0);
        assert_eq!(count_cells_of(&[mov(5), call(Helper::StringHash)]), 0, "nothing is asked");
        assert_eq!(count_cells_of(&[call(Helper::Count)]), CELLS_MAX, "it may be any");
    }
}
