//! The model of an event: provider, name, level and typed fields; the encoding and hash of its
//! description; the rules that select events and processes.
//!
//! A description travels from a traced program (which wrote it as C structures) through the shared
//! window to the recorder, which turns it into trace metadata. Its readers must treat it as
//! hostile: [`EventDescription::decode`] checks every length, name and count. Encoding needs no
//! allocation, because it runs inside traced processes at load time.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod context;
mod decode;
mod encode;
mod process_rule;
mod rule;
mod view;
mod wire;

pub use decode::{DecodeError, EventDescription, Field, FieldKind, Label};
pub use encode::{EncodeError, Encoder, Heading};
pub use process_rule::{ProcessFacts, ProcessRules};
pub use rule::{Rules, glob_matches};
pub use view::{FieldView, FieldViews};

/// Maximum number of fields of an event.
pub const FIELDS_MAX: usize = 32;
/// Longest provider, event or field name, in bytes (LTTng's limit less its terminator).
pub const NAME_BYTES_MAX: usize = 254;
/// Maximum number of labels of an enumeration.
pub const LABELS_MAX: usize = 256;
/// Longest encoded description, in bytes.
pub const ENCODED_BYTES_MAX: usize = 8192;
/// Maximum number of elements of a fixed array.
pub const ARRAY_LENGTH_MAX: u16 = 1024;

/// Log levels, with LTTng's names and numbers (lttng-ust(3), "LOG LEVELS"): smaller is graver.
pub const LEVEL_NAMES: [&str; 15] = [
    "EMERG",
    "ALERT",
    "CRIT",
    "ERR",
    "WARNING",
    "NOTICE",
    "INFO",
    "DEBUG_SYSTEM",
    "DEBUG_PROGRAM",
    "DEBUG_PROCESS",
    "DEBUG_MODULE",
    "DEBUG_UNIT",
    "DEBUG_FUNCTION",
    "DEBUG_LINE",
    "DEBUG",
];

/// Type of a scalar, as the first byte of an encoded field and in `struct trackway_field`.
///
/// Values are part of the ABI: append, never renumber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are the C header's type names")]
pub enum Scalar {
    I8 = 1,
    I16 = 2,
    I32 = 3,
    I64 = 4,
    U8 = 5,
    U16 = 6,
    U32 = 7,
    U64 = 8,
    X8 = 9,
    X16 = 10,
    X32 = 11,
    X64 = 12,
    F32 = 13,
    F64 = 14,
    Bool = 15,
}

impl Scalar {
    /// Returns the scalar with this code, if there is one.
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::I8,
            2 => Self::I16,
            3 => Self::I32,
            4 => Self::I64,
            5 => Self::U8,
            6 => Self::U16,
            7 => Self::U32,
            8 => Self::U64,
            9 => Self::X8,
            10 => Self::X16,
            11 => Self::X32,
            12 => Self::X64,
            13 => Self::F32,
            14 => Self::F64,
            15 => Self::Bool,
            _ => return None,
        })
    }

    /// Returns the size of the scalar in a record, in bytes.
    pub const fn size_bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 | Self::X8 | Self::Bool => 1,
            Self::I16 | Self::U16 | Self::X16 => 2,
            Self::I32 | Self::U32 | Self::X32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::X64 | Self::F64 => 8,
        }
    }

    /// Returns true if the scalar is a signed integer.
    pub const fn is_signed(self) -> bool {
        matches!(self, Self::I8 | Self::I16 | Self::I32 | Self::I64)
    }

    /// Returns true if the scalar is printed in base 16.
    pub const fn is_hexadecimal(self) -> bool {
        matches!(self, Self::X8 | Self::X16 | Self::X32 | Self::X64)
    }

    /// Returns true if the scalar is a floating-point number.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }
}

/// Shape of a field: second byte of an encoded field. Values are part of the ABI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Shape {
    /// One scalar.
    Scalar = 0,
    /// A NUL-terminated string.
    Str = 1,
    /// UTF-8 text: 32-bit length in bytes, then the bytes.
    Text = 2,
    /// A fixed number of scalars.
    Array = 3,
    /// A 32-bit element count, then the scalars.
    Sequence = 4,
    /// An integer with labels.
    Enumeration = 5,
}

impl Shape {
    /// Returns the shape with this code, if there is one.
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Scalar,
            1 => Self::Str,
            2 => Self::Text,
            3 => Self::Array,
            4 => Self::Sequence,
            5 => Self::Enumeration,
            _ => return None,
        })
    }
}

/// Returns the hash of an encoded description (FNV-1a, 64 bits): the identity of an event in the
/// window.
///
/// Source: Fowler, Noll, Vo; draft-eastlake-fnv. When two hashes are equal, readers compare the
/// descriptions' bytes, so the hash must be quick, not strong.
pub fn fnv1a_hash(encoded: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for &byte in encoded {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    // Zero means "empty slot" in the window.
    if hash == 0 { 1 } else { hash }
}
