//! The reasons for which the verifier rejects a program, as messages.

use core::fmt;

use crate::insn::Insn;
use crate::listing::Line;
use crate::program::Program;
use crate::{DEPTH_MAX, FUNCTIONS_MAX, STACK_BYTES};

/// The first instruction that breaks a rule, and the rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rejection {
    /// Index of the instruction.
    pub insn: usize,
    /// Rule that the instruction breaks.
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
    /// The operation does not exist.
    Operation,
    /// The register does not exist.
    Register(u8),
    /// An unused field of the instruction is not zero, or a field has an invalid value.
    Field,
    /// A wide load lacks its second half.
    Half,
    /// A jump does not go forward.
    Backward,
    /// A jump does not lead to an instruction of the same function.
    Outside,
    /// No path leads to the instruction.
    Unreachable,
    /// The function continues past its end.
    NoEnd,
    /// A call or an address does not refer to a later function.
    NoFunction,
    /// The program has too many functions.
    Functions,
    /// Function calls are nested too deeply.
    Depth,
    /// The call chain to this function needs more stack than exists.
    StackSize(usize),
    /// The instruction reads a register that not all paths have written.
    Unwritten(u8),
    /// The instruction reads a register whose type or target differs between paths, or that points
    /// to the caller's stack.
    Mixed(u8),
    /// A pointer is used where a number is required.
    Pointer(u8),
    /// The stack pointer register is read-only.
    StackEnd,
    /// Pointer arithmetic other than adding a constant.
    PointerArithmetic(u8),
    /// A pointer moves too far from its target.
    PointerDistance(i64),
    /// A load or a store through a register that is no pointer to memory.
    NoMemory(u8),
    /// A load is outside the frame.
    OutsideFrame {
        /// Offset of the load, in bytes from the frame's beginning.
        offset: i64,
        /// Number of slots of the frame.
        slots: usize,
    },
    /// A load or store is outside the stack, at this offset in bytes from the stack's end.
    OutsideStack(i64),
    /// A load or a store is not aligned to its size.
    Unaligned(i64),
    /// A store writes to the frame.
    FrameStore,
    /// A load reads stack that not all paths have written, at this offset in bytes from the stack's
    /// end.
    StackUnwritten(i64),
    /// An instruction reads or writes part of a pointer on the stack.
    PartOfPointer,
    /// The helper does not exist.
    NoHelper(i32),
    /// A helper is called without the frame in register 1.
    NotFrame,
    /// The argument must be a function.
    NotFunction(u8),
    /// A callback of `any` calls `any`.
    AnyInsideAny,
    /// A function other than the entry makes a tail call.
    TailCallInFunction,
    /// The program may exceed the step limit.
    Steps {
        /// Maximum number of steps that the program may take.
        steps: u64,
        /// Step limit.
        max: u64,
    },
    /// The verifier's memory holds fewer states than the program needs.
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
