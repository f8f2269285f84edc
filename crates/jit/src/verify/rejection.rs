//! Why a program was rejected, for people.

use core::fmt;

use crate::insn::Insn;
use crate::listing::Line;
use crate::program::Program;
use crate::{DEPTH_MAX, FUNCTIONS_MAX, STACK_BYTES};

/// The first instruction that breaks a rule, and the rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rejection {
    /// Its index.
    pub insn: usize,
    /// The rule that the program breaks.
    pub reason: Reason,
    code: Insn,
    next: Insn,
}

impl Rejection {
    pub(super) fn new(program: Program<'_>, insn: usize, reason: Reason) -> Self {
        Self { insn, reason, code: program.insn(insn), next: program.insn(insn.saturating_add(1)) }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = Line { insn: self.code, next: self.next };
        write!(f, "instruction {} ({line}): {}", self.insn, self.reason)
    }
}

impl core::error::Error for Rejection {}

/// Rules that an instruction may break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// No such instruction.
    Operation,
    /// No such register.
    Register(u8),
    /// A part of the instruction that it does not use is not zero, or has a value without meaning.
    Field,
    /// A load of 64 bits without its second half.
    Half,
    /// A jump that does not go forward.
    Backward,
    /// A jump to what is no instruction of the same function.
    Outside,
    /// No path leads here.
    Unreachable,
    /// The function goes on behind its end.
    NoEnd,
    /// A call or a load of what is no function behind this one.
    NoFunction,
    /// More functions than there may be.
    Functions,
    /// Functions that call each other too deep.
    Depth,
    /// The functions that are on the way here have more stack than there is.
    StackSize(usize),
    /// A register is read that not all paths have written.
    Unwritten(u8),
    /// A register is read that is a pointer on one path and not on another, or another one; or that
    /// is a pointer to the caller's stack.
    Mixed(u8),
    /// A pointer where a number belongs.
    Pointer(u8),
    /// The stack's end cannot be changed.
    StackEnd,
    /// Arithmetic on a pointer that is no addition of a constant.
    PointerArithmetic(u8),
    /// A pointer goes too far from what it points to.
    PointerDistance(i64),
    /// A load or a store through what points to no memory.
    NoMemory(u8),
    /// A load beyond the frame.
    OutsideFrame {
        /// From where, in bytes from the frame's beginning.
        offset: i64,
        /// Number of slots.
        slots: usize,
    },
    /// A load or store beyond the stack: from where, in bytes from its end.
    OutsideStack(i64),
    /// A load or a store that is not aligned to its size.
    Unaligned(i64),
    /// A store to the frame.
    FrameStore,
    /// A load from stack that not all paths have written: from where, in bytes from its end.
    StackUnwritten(i64),
    /// A pointer on the stack is read, or written, in part.
    PartOfPointer,
    /// No such helper.
    NoHelper(i32),
    /// A helper is not given the frame in register 1.
    NotFrame,
    /// A helper that needs a function is given something else.
    NotFunction(u8),
    /// A function that `any` calls for each element calls `any`.
    AnyInsideAny,
    /// `tail_call` within a function.
    TailCallInFunction,
    /// More steps than the limit.
    Steps {
        /// Steps that it may take.
        steps: u64,
        /// The limit.
        max: u64,
    },
    /// More jumps are open than the verifier was given memory for.
    Memory,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Operation => write!(f, "there is no such instruction"),
            Self::Register(register) => write!(f, "there is no register {register}"),
            Self::Field => write!(f, "a part of it that has no meaning here is not zero"),
            Self::Half => write!(f, "its second half is missing"),
            Self::Backward => write!(f, "the jump does not go forward"),
            Self::Outside => write!(f, "the jump leads to no instruction of this function"),
            Self::Unreachable => write!(f, "no path leads here"),
            Self::NoEnd => write!(f, "the function goes on behind its last instruction"),
            Self::NoFunction => write!(f, "this is no function that stands behind this one"),
            Self::Functions => write!(f, "there are more than {FUNCTIONS_MAX} functions"),
            Self::Depth => write!(f, "functions call each other more than {DEPTH_MAX} deep"),
            Self::StackSize(bytes) => write!(
                f,
                "with the functions that lead here, {bytes} bytes of stack are used; there are \
                 {STACK_BYTES}"
            ),
            Self::Unwritten(register) => {
                write!(f, "r{register} is not written on every path (calls lose r1 to r5)")
            }
            Self::Mixed(register) => {
                write!(f, "r{register} is not the same pointer on every path, or is the caller's")
            }
            Self::Pointer(register) => write!(f, "r{register} is a pointer, not a number"),
            Self::StackEnd => write!(f, "r10 cannot be changed"),
            Self::PointerArithmetic(register) => {
                write!(f, "r{register} is a pointer: only a constant can be added to it")
            }
            Self::PointerDistance(offset) => {
                write!(f, "the pointer would be {offset} bytes from what it points to")
            }
            Self::NoMemory(register) => write!(f, "r{register} does not point to memory"),
            Self::OutsideFrame { offset, slots } => write!(
                f,
                "it reads from byte {offset} of the frame, which has {slots} slots of 8 bytes"
            ),
            Self::OutsideStack(offset) => write!(
                f,
                "byte {offset}, counted from the end of the stack, is not within its {STACK_BYTES}"
            ),
            Self::Unaligned(offset) => write!(f, "byte {offset} is not aligned to the size"),
            Self::FrameStore => write!(f, "the frame cannot be written"),
            Self::StackUnwritten(offset) => write!(
                f,
                "the stack at byte {offset}, counted from its end, is not written on every path"
            ),
            Self::PartOfPointer => write!(f, "a pointer goes to and from the stack whole"),
            Self::NoHelper(number) => write!(f, "there is no helper {number}"),
            Self::NotFrame => write!(f, "a helper's r1 is the frame"),
            Self::NotFunction(register) => write!(f, "r{register} is no function"),
            Self::AnyInsideAny => write!(f, "a function that `any` calls calls no `any`"),
            Self::TailCallInFunction => write!(f, "only the program itself makes a tail call"),
            Self::Steps { steps, max } => {
                write!(f, "the program may take {steps} steps; {max} is the limit")
            }
            Self::Memory => write!(f, "more jumps are open here than there is memory for"),
        }
    }
}
