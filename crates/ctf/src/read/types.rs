//! Types of fields, compiled: every name resolved, every constant text prepared.
//!
//! A field whose value something else depends on (a sequence's length, a variant's tag) has a
//! *slot*: the decoder keeps its latest value there.

use std::sync::Arc;

use super::runs::{Elements, Run};

/// A field's type.
#[derive(Debug, Clone)]
pub enum Type {
    /// An integer.
    Integer(Integer),
    /// An integer with labels.
    Enumeration(Enumeration),
    /// A floating-point number.
    Float(Float),
    /// Bytes up to a NUL.
    Text,
    /// Members, one after another.
    Struct(Struct),
    /// A constant number of elements.
    Array(Array),
    /// As many elements as an earlier field says.
    Sequence(Sequence),
    /// One of several types, as an earlier field says.
    Variant(Variant),
}

/// In which base an integer is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Base {
    Binary,
    Octal,
    Decimal,
    Hexadecimal,
}

/// What an integer tells the reader itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    None,
    Magic,
    StreamClass,
    StreamInstance,
    TimestampBegin,
    TimestampEnd,
    ContentSize,
    PacketSize,
    Sequence,
    EventsDiscarded,
    EventClass,
}

/// How many roles there are.
pub(crate) const ROLES: usize = Role::EventClass as usize + 1;

/// An integer of 1 to 64 bits.
#[derive(Debug, Clone)]
pub struct Integer {
    pub(crate) bits: u32,
    pub(crate) alignment: u64,
    pub(crate) signed: bool,
    pub(crate) big_endian: bool,
    pub(crate) base: Base,
    /// Whether an array of it is text.
    pub(crate) character: bool,
    /// Name of the clock that its value sets.
    pub(crate) clock: Option<Arc<str>>,
    pub(crate) role: Role,
    pub(crate) slot: Option<usize>,
    /// Whether nothing but showing it is to be done with it.
    pub(crate) plain: bool,
}

impl Integer {
    /// Size in bits, 1 to 64.
    pub const fn bits(&self) -> u32 {
        self.bits
    }

    /// Whether it is signed; its value is then sign-extended to 64 bits.
    pub const fn is_signed(&self) -> bool {
        self.signed
    }

    /// In which base it is shown.
    pub const fn base(&self) -> Base {
        self.base
    }
}

/// An integer with labels.
#[derive(Debug, Clone)]
pub struct Enumeration {
    pub(crate) integer: Integer,
    pub(crate) labels: Arc<[Mapping]>,
}

/// A label and the values that it stands for.
#[derive(Debug, Clone)]
pub(crate) struct Mapping {
    pub(crate) label: String,
    /// Closed ranges, as two's complement.
    pub(crate) ranges: Vec<(u64, u64)>,
}

impl Mapping {
    pub(crate) fn contains(&self, value: u64, signed: bool) -> bool {
        self.ranges.iter().any(|&(first, last)| in_range(value, first, last, signed))
    }
}

/// Whether `value` is in the closed range, all as two's complement.
pub(crate) fn in_range(value: u64, first: u64, last: u64, signed: bool) -> bool {
    if signed {
        (first as i64..=last as i64).contains(&(value as i64))
    } else {
        (first..=last).contains(&value)
    }
}

impl Enumeration {
    /// The integer that holds the value.
    pub const fn integer(&self) -> &Integer {
        &self.integer
    }

    /// The labels of `value` (two's complement), in the order of their declaration.
    pub fn labels_of(&self, value: u64) -> impl Iterator<Item = &str> {
        let signed = self.integer.signed;
        self.labels
            .iter()
            .filter(move |mapping| mapping.contains(value, signed))
            .map(|mapping| mapping.label.as_str())
    }
}

/// An IEEE 754 number of 32 or 64 bits.
#[derive(Debug, Clone, Copy)]
pub struct Float {
    pub(crate) double: bool,
    pub(crate) alignment: u64,
    pub(crate) big_endian: bool,
}

/// Members, one after another.
#[derive(Debug, Clone)]
pub struct Struct {
    pub(crate) members: Vec<Member>,
    pub(crate) alignment: u64,
    /// Whether it has something to show: a member that is not for the reader alone, or, if it
    /// is empty, its emptiness.
    pub(crate) shown: bool,
    /// Its members whose places are known, in order; empty until all is known of them.
    pub(crate) runs: Vec<Run>,
}

impl Struct {
    /// Its members, in the order of their bytes.
    pub fn members(&self) -> &[Member] {
        &self.members
    }
}

/// A member of a structure.
#[derive(Debug, Clone)]
pub struct Member {
    pub(crate) raw_name: String,
    pub(crate) kind: Type,
    /// Whether it is for the reader alone, such as a timestamp.
    pub(crate) hidden: bool,
    /// What stands before its value in text: ` name = ` or `, name = `.
    pub(crate) lead: String,
}

impl Member {
    /// Its name, as its user wrote it: without the underscore that keeps it from TSDL's keywords.
    pub fn name(&self) -> &str {
        display_name(&self.raw_name)
    }

    /// Its type.
    pub const fn kind(&self) -> &Type {
        &self.kind
    }
}

pub(crate) fn display_name(raw: &str) -> &str {
    raw.strip_prefix('_').unwrap_or(raw)
}

/// A constant number of elements.
#[derive(Debug, Clone)]
pub struct Array {
    pub(crate) element: Box<Type>,
    pub(crate) length: u64,
    pub(crate) alignment: u64,
    pub(crate) text: bool,
    /// Its elements, if their places are known.
    pub(crate) elements: Option<Elements>,
}

/// As many elements as an earlier field says.
#[derive(Debug, Clone)]
pub struct Sequence {
    pub(crate) element: Box<Type>,
    pub(crate) slot: usize,
    pub(crate) alignment: u64,
    pub(crate) text: bool,
    /// Its elements, if their places are known.
    pub(crate) elements: Option<Elements>,
}

/// One of several types, as an earlier field says.
#[derive(Debug, Clone)]
pub struct Variant {
    pub(crate) slot: usize,
    pub(crate) signed: bool,
    pub(crate) options: Vec<VariantOption>,
}

/// A type that a variant may have.
#[derive(Debug, Clone)]
pub struct VariantOption {
    pub(crate) raw_name: String,
    pub(crate) kind: Type,
    pub(crate) ranges: Vec<(u64, u64)>,
}

impl VariantOption {
    /// Its name.
    pub fn name(&self) -> &str {
        display_name(&self.raw_name)
    }
}

impl Type {
    /// Where a field of this type may begin: at multiples of this many bits.
    pub(crate) fn alignment(&self) -> u64 {
        match self {
            Self::Integer(integer) => integer.alignment,
            Self::Enumeration(enumeration) => enumeration.integer.alignment,
            Self::Float(float) => float.alignment,
            Self::Text => 8,
            Self::Struct(structure) => structure.alignment,
            Self::Array(array) => array.alignment,
            Self::Sequence(sequence) => sequence.alignment,
            Self::Variant(_) => 1,
        }
    }

    /// Whether the field is for the reader alone: babeltrace2 keeps integers that set a clock,
    /// or that tell about packets and events, to itself unless another field needs them.
    pub(crate) fn is_hidden(&self) -> bool {
        let hidden = |integer: &Integer| {
            (integer.clock.is_some() || integer.role != Role::None) && integer.slot.is_none()
        };
        match self {
            Self::Integer(integer) => hidden(integer),
            Self::Enumeration(enumeration) => hidden(&enumeration.integer),
            Self::Float(_) | Self::Text => false,
            Self::Struct(structure) => !structure.shown,
            Self::Array(array) => array.element.is_hidden(),
            Self::Sequence(sequence) => sequence.element.is_hidden(),
            Self::Variant(variant) => variant.options.iter().all(|option| option.kind.is_hidden()),
        }
    }

    pub(crate) fn integer_mut(&mut self) -> Option<&mut Integer> {
        match self {
            Self::Integer(integer) => Some(integer),
            Self::Enumeration(enumeration) => Some(&mut enumeration.integer),
            _ => None,
        }
    }
}
