//! Filters as traced programs run them: eBPF instructions, and what is needed to run them.
//!
//! A filter comes from memory that others can write. So its user copies it, verifies the copy, and
//! interprets it or makes machine code of it, one instruction at a time (Sharma, Dagenais 2015,
//! section 4.4). The data of a filter, the helpers, and the bytes of an object are in
//! docs/design/0008-filters.md. Nothing here allocates, blocks, or makes a system call except
//! through helpers that it is given.
#![no_std]
#![deny(unsafe_code)]

mod alu;
pub mod block;
mod call;
pub mod frame;
pub mod framer;
pub mod helper;
mod helpers;
pub mod insn;
pub mod interpret;
pub mod listing;
pub mod meaning;
pub mod object;
pub mod program;
mod scalar;
pub mod scan;
pub mod verify;
pub mod x86;

/// Most instructions of a program.
pub const INSTRUCTIONS_MAX: usize = 4096;
/// Most needs of a filter, which are slots of its frame.
pub const SLOTS_MAX: usize = 64;
/// Most cells of state.
pub const CELLS_MAX: usize = 64;
/// Most functions of a program.
pub const FUNCTIONS_MAX: usize = 32;
/// Size of the stack of a program and all functions that it calls.
pub const STACK_BYTES: usize = 512;
/// Most nested function calls, with the program itself.
pub const DEPTH_MAX: usize = 8;
/// Most elements that a helper visits.
pub const ELEMENTS_MAX: usize = 4096;
/// Most steps of a program without another limit.
pub const STEPS_MAX: u64 = 1_000_000;

/// The kind of a field or context in a filter. Values are part of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A signed integer, sign-extended to 64 bits.
    Signed = 1,
    /// An unsigned integer, or a Boolean.
    Unsigned = 2,
    /// Bits of an `f64`.
    Float = 3,
    /// A word: offset and length in bytes.
    String = 4,
    /// A word: offset in bytes and number of elements.
    Sequence = 5,
}

impl Kind {
    /// All kinds, in the order of their codes.
    pub const ALL: [Self; 5] =
        [Self::Signed, Self::Unsigned, Self::Float, Self::String, Self::Sequence];

    /// Returns the name for users and C headers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Signed => "signed",
            Self::Unsigned => "unsigned",
            Self::Float => "float",
            Self::String => "string",
            Self::Sequence => "sequence",
        }
    }

    /// Returns the kind with this code, if there is one.
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Signed,
            2 => Self::Unsigned,
            3 => Self::Float,
            4 => Self::String,
            5 => Self::Sequence,
            _ => return None,
        })
    }
}
