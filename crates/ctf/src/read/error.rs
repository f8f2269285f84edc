//! Errors in a trace, and their places.

use std::fmt;

/// The reason why metadata was refused, and its place in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataError {
    /// Line, counted from 1; 0 if the problem is in the metadata's packets, not in its text.
    pub line: u32,
    /// Column in bytes, counted from 1; 0 if `line` is 0.
    pub column: u32,
    /// The problem.
    pub problem: MetadataProblem,
}

impl MetadataError {
    /// Creates an error for a problem at a line and a column.
    pub(crate) const fn at((line, column): (u32, u32), problem: MetadataProblem) -> Self {
        Self { line, column, problem }
    }
}

/// A problem in metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetadataProblem {
    /// The header of a metadata packet is cut off, or its sizes contradict each other; with the
    /// packet's offset in bytes.
    Packet(usize),
    /// The metadata packet is compressed, encrypted or of another version of CTF; with its offset.
    Scheme(usize),
    /// The trace has this unsupported version of CTF.
    Version(String),
    /// Another token was expected here.
    Unexpected {
        /// The text found.
        found: String,
        /// The text expected.
        expected: &'static str,
    },
    /// The JSON is invalid; with the reason.
    Json(String),
    /// A property of a JSON object is missing or invalid.
    Property(String),
    /// A required JSON fragment is missing.
    Missing(&'static str),
    /// The trace uses an unknown extension, which may change the meaning of anything.
    Extension(String),
    /// No type has this name.
    UnknownType(String),
    /// No clock has this name.
    UnknownClock(String),
    /// The fields of one stream set this clock and another one; or the packet header sets this
    /// clock, but the header belongs to no stream.
    SecondClock(String),
    /// A sequence's length or a variant's tag refers to this name, but no earlier integer field has
    /// it.
    UnknownField(String),
    /// Possibly valid TSDL, but unsupported by this library.
    Unsupported(&'static str),
    /// A value that is out of its range.
    Value(&'static str),
    /// A declaration that may occur once is repeated.
    Duplicate(&'static str),
    /// More nesting or more fields than this library accepts.
    TooComplex,
}

impl MetadataProblem {
    /// Creates an error from a message of the JSON parser, without the message's place, because the
    /// error reports the place itself.
    pub(crate) fn from_json_error(error: &serde_json::Error) -> Self {
        let text = error.to_string();
        let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
        Self::Json(what.replace("EOF while", "it ends while"))
    }
}

impl fmt::Display for MetadataError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(formatter, "metadata line {}, column {}: ", self.line, self.column)?;
        }
        match &self.problem {
            MetadataProblem::Packet(at) => write!(formatter, "bad metadata packet at byte {at}"),
            MetadataProblem::Scheme(at) => {
                write!(formatter, "metadata packet at byte {at} is of an unsupported kind")
            }
            MetadataProblem::Version(version) => {
                write!(formatter, "CTF {version} is not supported (only 1.8 and 2)")
            }
            MetadataProblem::Json(what) => write!(formatter, "not JSON: {what}"),
            MetadataProblem::Property(name) => {
                write!(formatter, "property '{name}' is missing or wrong")
            }
            MetadataProblem::Missing(what) => write!(formatter, "there is no {what} fragment"),
            MetadataProblem::Extension(name) => {
                write!(formatter, "unsupported: extension '{name}'")
            }
            MetadataProblem::UnknownClock(name) => write!(formatter, "unknown clock '{name}'"),
            MetadataProblem::SecondClock(name) => {
                write!(formatter, "clock '{name}' is not the stream's only clock")
            }
            MetadataProblem::Unexpected { found, expected } => {
                write!(formatter, "expected {expected}, found {found}")
            }
            MetadataProblem::UnknownType(name) => write!(formatter, "unknown type '{name}'"),
            MetadataProblem::UnknownField(name) => {
                write!(formatter, "no integer field '{name}' before this one")
            }
            MetadataProblem::Unsupported(what) => write!(formatter, "unsupported: {what}"),
            MetadataProblem::Value(what) => write!(formatter, "{what} out of range"),
            MetadataProblem::Duplicate(what) => write!(formatter, "{what} declared twice"),
            MetadataProblem::TooComplex => formatter.write_str("too deep or too many types"),
        }
    }
}

impl std::error::Error for MetadataError {}

/// A clock value whose time does not fit 63 bits of nanoseconds since the clock's origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeError {
    /// Clock value.
    pub cycles: u64,
}

impl fmt::Display for TimeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "time {} out of range", self.cycles)
    }
}

impl std::error::Error for TimeError {}

/// The reason why bytes of a data stream cannot be decoded. Every `bit` counts from the packet's
/// start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// A field exceeds the content of its packet, or the bytes of the window.
    Truncated {
        /// Start of the field.
        bit: u64,
    },
    /// The packet does not begin with CTF's magic number.
    Magic {
        /// Value found in place of the magic number.
        found: u64,
    },
    /// The packet belongs to a stream class that the metadata does not declare.
    UnknownStream {
        /// Id of the stream class.
        id: u64,
    },
    /// The packet belongs to another stream class than the packet before it.
    StreamChanged {
        /// Id of the packet's stream class.
        id: u64,
    },
    /// An event that the metadata does not declare.
    UnknownEvent {
        /// Id of the event.
        id: u64,
        /// Start of the event.
        bit: u64,
    },
    /// The packet's content is larger than the packet, or smaller than its header, or its size
    /// is not a whole number of bytes.
    Sizes {
        /// Size of the content in bits.
        content: u64,
        /// Size of the packet in bits.
        packet: u64,
    },
    /// A sequence with more elements than the packet can hold.
    Length {
        /// Start of the sequence.
        bit: u64,
        /// Number of the sequence's elements.
        length: u64,
    },
    /// An integer of variable length that is longer than 64 bits.
    Integer {
        /// Start of the integer.
        bit: u64,
    },
    /// A variant whose tag selects none of its options.
    Tag {
        /// Start of the variant.
        bit: u64,
        /// Value of the tag.
        tag: u64,
    },
    /// An event that takes no space, so that the number of events is unknown.
    Empty {
        /// Start of the event.
        bit: u64,
    },
    /// A time that does not fit 63 bits of nanoseconds since the clock's origin.
    Time {
        /// Clock value.
        cycles: u64,
        /// Start of the event that has the field.
        bit: u64,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { bit } => write!(formatter, "field cut off at bit {bit}"),
            Self::Magic { found } => write!(formatter, "not a packet: magic number {found:#x}"),
            Self::UnknownStream { id } => write!(formatter, "undeclared stream class {id}"),
            Self::StreamChanged { id } => write!(formatter, "stream class changes to {id}"),
            Self::UnknownEvent { id, bit } => {
                write!(formatter, "undeclared event {id} at bit {bit}")
            }
            Self::Sizes { content, packet } => {
                write!(formatter, "bad packet sizes: content {content}, packet {packet} bits")
            }
            Self::Length { bit, length } => {
                write!(formatter, "sequence of {length} elements at bit {bit} cannot fit")
            }
            Self::Integer { bit } => {
                write!(formatter, "integer at bit {bit} is longer than 64 bits")
            }
            Self::Tag { bit, tag } => {
                write!(formatter, "tag {tag} of the variant at bit {bit} selects nothing")
            }
            Self::Empty { bit } => write!(formatter, "event without size at bit {bit}"),
            Self::Time { cycles, bit } => {
                write!(formatter, "time {cycles} at bit {bit} out of range")
            }
        }
    }
}

impl std::error::Error for DecodeError {}
