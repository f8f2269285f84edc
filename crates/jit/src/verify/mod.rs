//! The verifier: a program that it accepts ends, and stays within its bounds, whatever the frame
//! has.

mod form;
mod functions;
mod rejection;
mod state;
mod walk;

pub use functions::Function;
pub(crate) use functions::{InsnSet, referenced_function};
pub use rejection::{Reason, Rejection};
pub use state::State;
pub(crate) use walk::{jump_distance, jump_target, size_bytes};

use crate::helper::Helper;
use crate::program::Program;
use crate::{SLOTS_MAX, STEPS_MAX};

/// Enough states for filters that users write; the agent rejects filters that need more.
pub const VERIFIER_STATES: usize = 128;

/// The bounds of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Slots of its frame, at most [`SLOTS_MAX`].
    pub slots: usize,
    /// Its index in its alternative: `tail_call` goes to later programs only.
    pub number: u8,
    /// Most steps.
    pub steps_max: u64,
}

impl Rules {
    /// Returns the bounds of the entry of an alternative with this many needs.
    pub const fn new(slots: usize) -> Self {
        let slots = if slots < SLOTS_MAX { slots } else { SLOTS_MAX };
        Self { slots, number: 0, steps_max: STEPS_MAX }
    }
}

/// A verified program. Only [`verify`] creates it, and its bytes are borrowed, so they cannot
/// change.
#[derive(Debug, Clone, Copy)]
pub struct Verified<'p> {
    pub(crate) program: Program<'p>,
    pub(crate) functions: functions::Functions,
    pub(crate) summary: Summary,
    pub(crate) rules: Rules,
}

/// The verifier's findings about a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Most bytes of stack in use at once.
    pub stack_bytes: usize,
    /// Bit n: the program reads slot n of the frame.
    pub slots_read: u64,
    /// Bit n: the program calls the helper with number n.
    pub helpers: u64,
    /// Most steps.
    pub steps: u64,
}

impl Summary {
    /// Returns true if the program calls this helper.
    pub const fn calls(&self, helper: Helper) -> bool {
        self.helpers & 1 << helper as u64 != 0
    }
}

impl<'p> Verified<'p> {
    /// Returns the program.
    pub const fn program(&self) -> Program<'p> {
        self.program
    }

    /// Returns the functions, in order; the first is the entry.
    pub fn functions(&self) -> &[Function] {
        self.functions.all()
    }

    /// Returns the findings.
    pub const fn summary(&self) -> Summary {
        self.summary
    }

    /// Returns the bounds.
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
    let functions = functions::find_functions(program).map_err(at)?;
    let mut walk = walk::Walk::new(program, rules, functions, memory);
    walk.run().map_err(at)?;
    Ok(Verified { program, functions: walk.functions, summary: walk.summary, rules })
}
