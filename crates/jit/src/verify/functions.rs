//! Functions of a program: where they begin and end, and what is known of each.

use super::{Reason, form};
use crate::insn::{CALL, Insn, LDDW, LDDW_FUNCTION, call};
use crate::program::Program;
use crate::{FUNCTIONS_MAX, INSTRUCTIONS_MAX};

/// A function of a verified program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function {
    /// Its first instruction.
    pub start: u16,
    /// The instruction behind its last.
    pub end: u16,
    /// Bytes of stack that it uses itself, a multiple of 8.
    pub stack_bytes: u16,
    /// Most bytes of stack that those use which have called it.
    pub stack_above: u16,
    /// Greatest depth of calls when the function runs, itself included.
    pub depth: u8,
    /// Bit n: it writes register 6 + n, which belongs to who has called it.
    pub saved: u8,
    /// True if the function reads the stack's end.
    pub has_stack: bool,
    /// True if the function calls anything; a helper whose code is in the call's place
    /// ([`Helper::edge_bytes`]) is not called.
    ///
    /// [`Helper::edge_bytes`]: crate::helper::Helper::edge_bytes
    pub has_calls: bool,
    /// True if the function's address is taken: `any` may call it.
    pub is_callback: bool,
    /// Greatest number of calls.
    pub(super) times: u64,
    /// Bit n: it calls function n.
    pub(super) callees: u32,
    /// True if the function runs for elements, so that it may call no `any`.
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

    /// Returns the greatest number of calls.
    pub const fn times(&self) -> u64 {
        self.times
    }

    /// Its instructions' indexes.
    pub fn range(&self) -> core::ops::Range<usize> {
        self.start.into()..self.end.into()
    }
}

/// Functions of one program, in order.
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

    /// The place in the list of the one that begins at this instruction.
    pub(crate) fn at(&self, start: usize) -> Option<usize> {
        self.all().binary_search_by_key(&start, |function| function.start.into()).ok()
    }
}

/// One bit for each instruction.
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

/// The instruction at which the function begins that this one calls, or takes the address of.
///
/// The distance counts from the instruction's index and one, also for [`LDDW`], whose second half
/// is there: so the kernel reads it.
pub(crate) fn referenced_function(index: usize, insn: Insn) -> Option<i64> {
    let is_call = insn.op == CALL && insn.src == call::FUNCTION;
    let is_address = insn.op == LDDW && insn.src == LDDW_FUNCTION;
    (is_call || is_address).then(|| index as i64 + 1 + i64::from(insn.immediate))
}

/// Checks the form of all instructions, and finds where functions begin.
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
