//! The verifier: an accepted program terminates, and stays within its bounds, for all frame
//! contents.

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

/// Number of verifier states in the agent, which rejects filters that need more; enough for filters
/// that users write.
pub const VERIFIER_STATES: usize = 128;

/// Limits of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Number of slots of the frame, at most [`SLOTS_MAX`].
    pub slots: usize,
    /// Index of the program in its alternative: `tail_call` may only reach later programs.
    pub number: u8,
    /// Maximum number of steps.
    pub steps_max: u64,
}

impl Rules {
    /// Returns the limits for the entry program of an alternative with this many needs.
    pub const fn new(slots: usize) -> Self {
        let slots = if slots < SLOTS_MAX { slots } else { SLOTS_MAX };
        Self { slots, number: 0, steps_max: STEPS_MAX }
    }
}

/// A verified program. Only [`verify`] creates this type, and it borrows its bytes, so they cannot
/// change.
#[derive(Debug, Clone, Copy)]
pub struct Verified<'p> {
    pub(crate) program: Program<'p>,
    pub(crate) functions: functions::Functions,
    pub(crate) summary: Summary,
    pub(crate) rules: Rules,
}

/// Facts that the verifier found about a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Maximum stack in use at once, in bytes.
    pub stack_bytes: usize,
    /// Slots that the program reads: bit n for slot n.
    pub slots_read: u64,
    /// Helpers that the program calls: bit n for the helper with number n.
    pub helpers: u64,
    /// Maximum number of steps.
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

    /// Returns the verifier's facts.
    pub const fn summary(&self) -> Summary {
        self.summary
    }

    /// Returns the program's limits.
    pub const fn rules(&self) -> Rules {
        self.rules
    }
}

/// Verifies a program. `memory` stores the facts at jump targets ahead of the pass; as many states
/// as the program has jumps and functions are always enough.
///
/// # Errors
/// Returns the first instruction that breaks a rule, and the rule.
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
