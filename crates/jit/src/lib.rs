//! Runs filters in traced programs: eBPF instructions, verifier, interpreter and code generator.
//!
//! A filter comes from memory that other processes can write. So its user copies it, verifies the
//! copy, and interprets it or compiles it, one instruction at a time (Sharma, Dagenais 2015,
//! section 4.4). docs/design/0008-filters.md describes a filter's data, the helpers, and the object
//! format. This crate does not allocate, block, or make system calls, except through the helpers
//! that its caller provides.
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

/// Maximum number of instructions in a program.
pub const INSTRUCTIONS_MAX: usize = 4096;
/// Maximum number of needs of a filter, which are the slots of its frame.
pub const SLOTS_MAX: usize = 64;
/// Maximum number of state cells.
pub const CELLS_MAX: usize = 64;
/// Maximum number of functions in a program.
pub const FUNCTIONS_MAX: usize = 32;
/// Stack size of a program with all functions that it calls, in bytes.
pub const STACK_BYTES: usize = 512;
/// Maximum depth of function calls, including the program itself.
pub const DEPTH_MAX: usize = 8;
/// Maximum number of elements that a helper visits.
pub const ELEMENTS_MAX: usize = 4096;
/// Default limit on the steps of a program.
pub const STEPS_MAX: u64 = 1_000_000;

/// The kind of a field or context in a filter. Values are part of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A signed integer, sign-extended to 64 bits.
    Signed = 1,
    /// An unsigned integer, or a Boolean.
    Unsigned = 2,
    /// A float, as the bits of an `f64`.
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

    /// Returns the kind's name for users and C headers.
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
