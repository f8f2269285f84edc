//! The verifier: programs that it accepts end inside their bounds, whatever the frame holds.
//!
//! Every jump and every call goes forward. So one pass in the order of instructions meets each of
//! them after all that can come before it, and nothing is gone through twice: what is known where
//! paths meet is what all of them know ([`State`]), and functions, whose callers stand before
//! them, begin with what all calls give them. The idea is the kernel's. That no instruction is
//! looked at twice, and that memory is needed only for jumps that are open at the same time, is
//! what the absence of loops buys. The rules: docs/design/0008-filters.md.

mod form;
mod functions;
mod rejection;
mod state;
mod walk;

pub use functions::Function;
pub(crate) use functions::{Marks, target};
pub use rejection::{Reason, Rejection};
pub use state::State;
pub(crate) use walk::{jump_distance, jump_target, size_bytes};

use crate::helper::Helper;
use crate::program::Program;
use crate::{SLOTS_MAX, STEPS_MAX};

/// States that are memory enough for any filter that people write; what needs more is rejected
/// where it is linked.
pub const VERIFIER_STATES: usize = 128;

/// What a program is held against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Slots of its frame; [`SLOTS_MAX`] at most, more are taken for that many.
    pub slots: usize,
    /// Its own place among the programs of its alternative: `tail_call` goes to later ones only.
    pub number: u8,
    /// Most steps.
    pub steps_max: u64,
}

impl Rules {
    /// Those of an alternative's entry with this many needs.
    pub const fn new(slots: usize) -> Self {
        let slots = if slots < SLOTS_MAX { slots } else { SLOTS_MAX };
        Self { slots, number: 0, steps_max: STEPS_MAX }
    }
}

/// A program that keeps the rules. Only [`verify`] makes one, and the bytes cannot change as long
/// as it lives: whoever has one need not look again.
#[derive(Debug, Clone, Copy)]
pub struct Verified<'p> {
    pub(crate) program: Program<'p>,
    pub(crate) functions: functions::Functions,
    pub(crate) summary: Summary,
    pub(crate) rules: Rules,
}

/// What the verifier has learned of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Most bytes of stack that are used at once.
    pub stack_bytes: usize,
    /// Bit n: slot n of the frame is read.
    pub slots_read: u64,
    /// Bit n: the helper with number n is called.
    pub helpers: u64,
    /// Most steps that it takes.
    pub steps: u64,
}

impl Summary {
    /// Whether it calls this helper.
    pub const fn calls(&self, helper: Helper) -> bool {
        self.helpers & 1 << helper as u64 != 0
    }
}

impl<'p> Verified<'p> {
    /// The program.
    pub const fn program(&self) -> Program<'p> {
        self.program
    }

    /// Its functions, in order; the first is where it begins.
    pub fn functions(&self) -> &[Function] {
        self.functions.all()
    }

    /// What was learned of it.
    pub const fn summary(&self) -> Summary {
        self.summary
    }

    /// What it was held against.
    pub const fn rules(&self) -> Rules {
        self.rules
    }
}

/// Verifies a program. `memory` holds what is known at targets of jumps that the pass has not yet
/// come to; with as many states as the program has jumps and functions it is always enough.
///
/// # Errors
/// Which instruction breaks a rule, and which rule.
pub fn verify<'p>(
    program: Program<'p>,
    rules: Rules,
    memory: &mut [State],
) -> Result<Verified<'p>, Rejection> {
    let rules = Rules { slots: rules.slots.min(SLOTS_MAX), ..rules };
    let at = |(insn, reason)| Rejection::new(program, insn, reason);
    let functions = functions::find(program).map_err(at)?;
    let mut walk = walk::Walk::new(program, rules, functions, memory);
    walk.run().map_err(at)?;
    Ok(Verified { program, functions: walk.functions, summary: walk.summary, rules })
}
