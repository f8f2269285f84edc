//! The functions of a program: their boundaries, and the verifier's facts about them.

use super::{Reason, form};
use crate::insn::{CALL, Insn, LDDW, LDDW_FUNCTION, call};
use crate::program::Program;
use crate::{FUNCTIONS_MAX, INSTRUCTIONS_MAX};

/// A function of a verified program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function {
    /// Index of the first instruction.
    pub start: u16,
    /// Index after the last instruction.
    pub end: u16,
    /// Stack that the function itself uses, in bytes; a multiple of 8.
    pub stack_bytes: u16,
    /// Maximum stack that the function's callers use, in bytes.
    pub stack_above: u16,
    /// Maximum call depth of the function, itself included.
    pub depth: u8,
    /// Bit n: the function writes register 6 + n, which the caller expects unchanged.
    pub saved: u8,
    /// True if the function uses the stack pointer register.
    pub has_stack: bool,
    /// True if the function makes calls. Inlined helpers ([`Helper::edge_bytes`]) do not count.
    ///
    /// [`Helper::edge_bytes`]: crate::helper::Helper::edge_bytes
    pub has_calls: bool,
    /// True if the program takes the function's address: `any` may call the function.
    pub is_callback: bool,
    /// Maximum number of times that the program calls the function.
    pub(super) times: u64,
    /// Bit n: the function calls function n.
    pub(super) callees: u32,
    /// True if `any` runs the function for elements, so that it must not call `any` itself.
    pub(super) in_any: bool,
}

impl Function {
    const EMPTY: Self = Self {
        start: 0,
        end: 0,
        stack_bytes: 0,
        stack_above: 0,
        depth: 0,
        saved: 0,
        has_stack: false,
        has_calls: false,
        is_callback: false,
        times: 0,
        callees: 0,
        in_any: false,
    };

    /// Returns the maximum number of times that the program calls the function.
    pub const fn times(&self) -> u64 {
        self.times
    }

    /// Returns the indices of the function's instructions.
    pub fn range(&self) -> core::ops::Range<usize> {
        self.start.into()..self.end.into()
    }
}

/// The functions of a program, in order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Functions {
    list: [Function; FUNCTIONS_MAX],
    count: usize,
}

impl Functions {
    pub(crate) fn all(&self) -> &[Function] {
        &self.list[..self.count]
    }

    pub(super) fn all_mut(&mut self) -> &mut [Function] {
        &mut self.list[..self.count]
    }

    /// Returns the index of the function that begins at this instruction.
    pub(crate) fn at(&self, start: usize) -> Option<usize> {
        self.all().binary_search_by_key(&start, |function| function.start.into()).ok()
    }
}

/// A set of instructions, one bit for each.
#[derive(Debug)]
pub(crate) struct InsnSet([u64; INSTRUCTIONS_MAX / 64]);

impl InsnSet {
    pub(crate) const NONE: Self = Self([0; INSTRUCTIONS_MAX / 64]);

    pub(crate) fn set(&mut self, insn: usize) {
        if let Some(word) = self.0.get_mut(insn / 64) {
            *word |= 1 << (insn % 64);
        }
    }

    pub(crate) fn has(&self, insn: usize) -> bool {
        self.0.get(insn / 64).is_some_and(|word| word >> (insn % 64) & 1 != 0)
    }
}

/// Returns the first instruction of the function that `insn` calls or takes the address of.
///
/// The distance counts from the instruction's index plus one, like in the kernel. This also applies
/// to [`LDDW`], whose second half is at that index.
pub(crate) fn referenced_function(index: usize, insn: Insn) -> Option<i64> {
    let is_call = insn.op == CALL && insn.src == call::FUNCTION;
    let is_address = insn.op == LDDW && insn.src == LDDW_FUNCTION;
    (is_call || is_address).then(|| index as i64 + 1 + i64::from(insn.immediate))
}

/// Checks the form of all instructions, and finds the starts of functions.
pub(super) fn find_functions(program: Program<'_>) -> Result<Functions, (usize, Reason)> {
    let mut starts = InsnSet::NONE;
    let mut halves = InsnSet::NONE;
    let len = program.len();
    starts.set(0);
    for (index, insn) in program.insns() {
        let next = (index + 1 < len).then(|| program.insn(index + 1));
        form::check_insn(insn, next).map_err(|reason| (index, reason))?;
        if insn.width() == 2 {
            halves.set(index + 1);
        }
        if let Some(target) = referenced_function(index, insn) {
            let behind =
                usize::try_from(target).ok().filter(|start| (index + 1..len).contains(start));
            starts.set(behind.ok_or((index, Reason::NoFunction))?);
        }
    }
    let mut functions = Functions { list: [Function::EMPTY; FUNCTIONS_MAX], count: 0 };
    for start in (0..len).filter(|&start| starts.has(start)) {
        if halves.has(start) {
            return Err((start - 1, Reason::NoFunction));
        }
        let Some(function) = functions.list.get_mut(functions.count) else {
            return Err((start, Reason::Functions));
        };
        function.start = start as u16;
        functions.count += 1;
        if let Some(before) = functions.count.checked_sub(2) {
            functions.list[before].end = start as u16;
        }
    }
    functions.list[functions.count - 1].end = len as u16;
    Ok(functions)
}
