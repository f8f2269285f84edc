//! Translates graphs to eBPF: lines in order, registers for values, instructions.
//!
//! The code resembles clang's output for the same test in C: a load, a conditional jump to the end,
//! the next load, and a single exit. Values that live across a call use registers 6 to 9; others
//! use caller-saved registers. Values without a register are read from the frame again, or live on
//! the stack. Jumps go forward.

mod line;
mod register;
mod write;

use std::collections::HashMap;

use trackway_jit::helper::Word;
use trackway_jit::insn::Insn;
use trackway_jit::{ELEMENTS_MAX, FUNCTIONS_MAX, INSTRUCTIONS_MAX, STACK_BYTES, STEPS_MAX};

use crate::graph::{Graph, Unsupported, is_immediate};

/// A program: the filter's instructions, then its functions' instructions, and the constants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Code {
    pub(crate) instructions: Vec<Insn>,
    pub(crate) constants: Vec<u8>,
}

/// The constant strings that instructions refer to.
struct Constants<'graph> {
    texts: &'graph [Vec<u8>],
    bytes: Vec<u8>,
    words: HashMap<usize, Word>,
}

impl Constants<'_> {
    /// Returns the word of a constant string, by its number.
    fn word(&mut self, text: usize) -> Word {
        *self.words.entry(text).or_insert_with(|| {
            let bytes = &self.texts[text];
            let (offset, length) = (self.bytes.len() as u32, bytes.len() as u32);
            self.bytes.extend_from_slice(bytes);
            Word { offset, length, is_constant: true }
        })
    }
}

/// Returns the maximum number of steps of the program, counted like the verifier: each call of a
/// function counts for the maximum number of elements.
fn steps_max(count: usize, starts: &[usize], called: impl Iterator<Item = usize>) -> u64 {
    let size_of = |start: usize| {
        let end = starts.iter().copied().find(|&next| next > start).unwrap_or(count);
        (end - start) as u64
    };
    size_of(0) + called.map(|start| size_of(start) * ELEMENTS_MAX as u64).sum::<u64>()
}

/// Generates instructions from graphs.
pub(crate) fn emit_code(graph: &Graph) -> Result<Code, Unsupported> {
    let mut constants = Constants { texts: &graph.texts, bytes: Vec::new(), words: HashMap::new() };
    let mut instructions = Vec::new();
    let mut starts = Vec::new();
    let mut start_of = vec![0; graph.functions.len()];
    let mut addresses: Vec<(usize, usize)> = Vec::new();
    let mut stack_bytes = [0; 2];
    for (number, function) in graph.functions.iter().enumerate() {
        // Functions are called only by earlier ones; functions without calls are omitted.
        if number > 0 && addresses.iter().all(|(_, called)| *called != number) {
            continue;
        }
        starts.push(instructions.len());
        start_of[number] = instructions.len();
        let lines = line::build_lines(function);
        let plan = register::allocate_registers(&lines, &function.values);
        let depth = usize::from(number > 0);
        stack_bytes[depth] = stack_bytes[depth].max(plan.stack_bytes);
        let mut output = write::Output {
            instructions: &mut instructions,
            addresses: &mut addresses,
            constants: &mut constants,
        };
        write::write_instructions(&lines, &function.values, &plan, &mut output);
        if instructions.len() > INSTRUCTIONS_MAX {
            return Err(crate::graph::too_long());
        }
    }
    if starts.len() > FUNCTIONS_MAX {
        return Err(Unsupported(format!("the filter has more than {FUNCTIONS_MAX} functions")));
    }
    let called = addresses.iter().map(|&(_, function)| start_of[function]);
    let steps = steps_max(instructions.len(), &starts, called);
    if steps > STEPS_MAX {
        return Err(Unsupported(format!(
            "the filter may take {steps} steps; {STEPS_MAX} are the most"
        )));
    }
    if constants.bytes.len() > usize::from(u16::MAX) {
        return Err(Unsupported("the filter's strings have more than 65535 bytes".into()));
    }
    if stack_bytes.iter().sum::<usize>() > STACK_BYTES {
        return Err(Unsupported("the filter has too many values at a time".into()));
    }
    for (at, function) in addresses {
        instructions[at].immediate = start_of[function] as i32 - at as i32 - 1;
    }
    Ok(Code { instructions, constants: constants.bytes })
}
