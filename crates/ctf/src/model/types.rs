//! Types of fields, compiled: names are resolved and constant texts prepared.
//!
//! A field whose value other fields depend on (a sequence's length, a variant's tag) has a *slot*,
//! in which the decoder keeps the field's latest value.

use std::sync::Arc;

use super::Literal;
use super::meaning::Meaning;
use super::runs::{ElementLayout, Run};

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
    /// Elements whose number is the value of an earlier field.
    Sequence(Sequence),
    /// One of several types, selected by the value of an earlier field.
    Variant(Variant),
    /// Text whose characters are wider than a byte, or whose length is the value of an earlier
    /// field.
    WideText(WideText),
}

/// The base in which an integer is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Base {
    Binary,
    Octal,
    Decimal,
    Hexadecimal,
}

/// The use of an integer by the reader itself.
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

/// Number of roles.
pub(crate) const ROLES: usize = Role::EventClass as usize + 1;

/// An integer of 1 to 64 bits.
#[derive(Debug, Clone)]
pub struct Integer {
    pub(crate) bits: u32,
    pub(crate) alignment: u64,
    pub(crate) signed: bool,
    pub(crate) big_endian: bool,
    pub(crate) base: Base,
    /// True if an array of this integer is text.
    pub(crate) character: bool,
    /// True if an array of this integer is a BLOB.
    pub(crate) blob: bool,
    /// Name of the clock that the integer's value sets.
    pub(crate) clock: Option<Arc<str>>,
    pub(crate) role: Role,
    /// True if the integer is never shown, even if another field depends on it: it has a role in
    /// CTF 2.
    pub(crate) concealed: bool,
    pub(crate) slot: Option<usize>,
    /// True if the reader does nothing with the integer except show it.
    pub(crate) plain: bool,
    /// True if the integer is a truth value: all but 0 is true.
    pub(crate) boolean: bool,
    /// True if the bits have the opposite order of the byte order's usual one.
    pub(crate) reversed: bool,
    /// True if the integer's length follows from its bytes (LEB128); it is at most `bits`.
    pub(crate) variable: bool,
    /// The meaning of the values, beyond what plain text shows.
    pub(crate) meaning: Option<Arc<Meaning>>,
}

impl Integer {
    /// Size in bits, 1 to 64.
    pub const fn bits(&self) -> u32 {
        self.bits
    }

    /// Returns true if the integer is signed; its value is then sign-extended to 64 bits.
    pub const fn is_signed(&self) -> bool {
        self.signed
    }

    /// Returns true if the integer's length follows from its bytes (LEB128).
    pub const fn is_variable(&self) -> bool {
        self.variable
    }

    /// Returns true if the integer is a truth value: all but 0 is true.
    pub const fn is_boolean(&self) -> bool {
        self.boolean
    }

    /// Returns the meaning of the values, if the trace gives one.
    pub fn meaning(&self) -> Option<&Meaning> {
        self.meaning.as_deref()
    }

    /// Returns the base in which the integer is shown.
    pub const fn base(&self) -> Base {
        self.base
    }

    /// Returns true if the integer's first byte is the most significant.
    pub const fn is_big_endian(&self) -> bool {
        self.big_endian
    }

    /// Returns the name of the clock that the integer's value sets.
    pub fn clock_name(&self) -> Option<&str> {
        self.clock.as_deref()
    }

    /// Returns the number of the slot that keeps the value, if another field depends on it.
    pub const fn slot(&self) -> Option<usize> {
        self.slot
    }
}

/// An integer with labels.
#[derive(Debug, Clone)]
pub struct Enumeration {
    pub(crate) integer: Integer,
    pub(crate) labels: Arc<[Mapping]>,
    /// True if labels belong to bits, numbered from the lowest, rather than to values.
    pub(crate) flags: bool,
    /// True if the enumeration comes from CTF 2.
    pub(crate) is_version_2: bool,
}

/// A label and its values.
#[derive(Debug, Clone)]
pub(crate) struct Mapping {
    pub(crate) label: String,
    /// Closed ranges of values, as two's complement.
    pub(crate) ranges: Vec<(u64, u64)>,
}

impl Mapping {
    pub(crate) fn contains(&self, value: u64, signed: bool) -> bool {
        self.ranges.iter().any(|&(first, last)| in_range(value, first, last, signed))
    }

    /// Returns true if `value` has a bit whose number is in one of the ranges.
    fn has_bit(&self, value: u64) -> bool {
        (0..64).any(|bit| value >> bit & 1 == 1 && self.contains(bit, false))
    }
}

/// Returns true if `value` is in the closed range from `first` to `last`, all as two's complement.
pub(crate) fn in_range(value: u64, first: u64, last: u64, signed: bool) -> bool {
    if signed {
        (first as i64..=last as i64).contains(&(value as i64))
    } else {
        (first..=last).contains(&value)
    }
}

impl Enumeration {
    /// Returns the integer that holds the value.
    pub const fn integer(&self) -> &Integer {
        &self.integer
    }

    /// Returns true if labels belong to bits rather than to values.
    pub const fn is_flags(&self) -> bool {
        self.flags
    }

    /// Returns true if the enumeration comes from CTF 2. For those, babeltrace2 shows several
    /// labels in braces.
    pub const fn is_version_2(&self) -> bool {
        self.is_version_2
    }

    /// Returns the labels, once for each of their ranges, with the range's first and last value
    /// (two's complement).
    pub fn ranges(&self) -> impl Iterator<Item = (&str, u64, u64)> {
        self.labels.iter().flat_map(|mapping| {
            let named = |&(first, last)| (mapping.label.as_str(), first, last);
            mapping.ranges.iter().map(named)
        })
    }

    /// Returns the labels of `value` (two's complement), in the order of their declaration.
    pub fn labels_of(&self, value: u64) -> impl Iterator<Item = &str> {
        let (signed, flags) = (self.integer.signed, self.flags);
        self.labels
            .iter()
            .filter(
                move |mapping| {
                    if flags { mapping.has_bit(value) } else { mapping.contains(value, signed) }
                },
            )
            .map(|mapping| mapping.label.as_str())
    }
}

/// An IEEE 754 number of 16, 32 or 64 bits.
#[derive(Debug, Clone, Copy)]
pub struct Float {
    pub(crate) bits: u32,
    /// True if the bits have the opposite order of the byte order's usual one.
    pub(crate) reversed: bool,
    pub(crate) alignment: u64,
    pub(crate) big_endian: bool,
}

/// Members, one after another.
#[derive(Debug, Clone)]
pub struct Struct {
    pub(crate) members: Vec<Member>,
    pub(crate) alignment: u64,
    /// True if the structure has something to show: a member that is not only for the reader, or,
    /// if the structure is empty, its emptiness. (In CTF 2, only packet contexts can have nothing
    /// to show.)
    pub(crate) shown: bool,
    /// Runs of members whose places are known, in order; empty until all members are compiled.
    pub(crate) runs: Vec<Run>,
}

impl Struct {
    /// Returns the members, in the order of their bytes.
    pub fn members(&self) -> &[Member] {
        &self.members
    }
}

/// A member of a structure.
#[derive(Debug, Clone)]
pub struct Member {
    pub(crate) raw_name: String,
    pub(crate) kind: Type,
    /// True if the member is only for the reader, such as a timestamp.
    pub(crate) hidden: bool,
    /// Text before the member's value: ` name = ` or `, name = `.
    pub(crate) lead: Literal,
    /// True if another member has the same name, ignoring a leading underscore. Then the raw name
    /// is used.
    pub(crate) is_ambiguous: bool,
}

impl Member {
    /// Returns true if the member is only for the reader: sinks do not get it.
    pub const fn is_hidden(&self) -> bool {
        self.hidden
    }

    /// Returns the name as its user wrote it: without the underscore that keeps it apart from
    /// TSDL's keywords.
    pub fn name(&self) -> &str {
        display_name(&self.raw_name)
    }

    /// Returns a name that is unique in the structure: with the underscore if names differ in
    /// nothing else.
    pub fn key(&self) -> &str {
        if self.is_ambiguous { &self.raw_name } else { self.name() }
    }

    /// Returns the member's type.
    pub const fn kind(&self) -> &Type {
        &self.kind
    }

    /// Returns the text before the value: ` name = ` for a structure's first member, otherwise
    /// `, name = `.
    pub const fn lead(&self) -> &Literal {
        &self.lead
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
    pub(crate) blob: bool,
    /// Layout of the elements, if their places are known.
    pub(crate) elements: Option<ElementLayout>,
}

/// Elements whose number is the value of an earlier field.
#[derive(Debug, Clone)]
pub struct Sequence {
    pub(crate) element: Box<Type>,
    pub(crate) slot: usize,
    pub(crate) alignment: u64,
    pub(crate) text: bool,
    pub(crate) blob: bool,
    /// Layout of the elements, if their places are known.
    pub(crate) elements: Option<ElementLayout>,
}

/// One of several types, selected by the value of an earlier field.
#[derive(Debug, Clone)]
pub struct Variant {
    pub(crate) slot: usize,
    pub(crate) signed: bool,
    pub(crate) options: Vec<VariantOption>,
    /// True if the variant is empty where its tag selects no option.
    pub(crate) optional: bool,
}

impl Variant {
    /// Returns the number of the slot whose value selects the type.
    pub const fn slot(&self) -> usize {
        self.slot
    }

    /// Returns the types that the variant may have.
    pub fn options(&self) -> &[VariantOption] {
        &self.options
    }

    /// Returns true if the variant may be empty.
    pub const fn is_optional(&self) -> bool {
        self.optional
    }
}

/// Encoding of wide characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Encoding {
    Utf16Be,
    Utf16Le,
    Utf32Be,
    Utf32Le,
}

impl Encoding {
    /// Returns the size of a code unit in bytes: 2 or 4.
    pub const fn unit_bytes(self) -> usize {
        match self {
            Self::Utf16Be | Self::Utf16Le => 2,
            Self::Utf32Be | Self::Utf32Le => 4,
        }
    }
}

/// The rule for the end of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextEnd {
    /// The text ends with a character 0.
    Nul,
    /// The text has a constant size in bytes.
    Bytes(u64),
    /// The text's size in bytes is the value of a slot.
    Slot(usize),
}

/// Text of characters of 16 or 32 bits.
#[derive(Debug, Clone, Copy)]
pub struct WideText {
    pub(crate) encoding: Encoding,
    pub(crate) end: TextEnd,
}

impl WideText {
    /// Returns the encoding of the characters.
    pub const fn encoding(&self) -> Encoding {
        self.encoding
    }
}

/// A type that a variant may have.
#[derive(Debug, Clone)]
pub struct VariantOption {
    pub(crate) raw_name: String,
    pub(crate) kind: Type,
    pub(crate) ranges: Vec<(u64, u64)>,
}

impl VariantOption {
    /// Returns the option's name.
    pub fn name(&self) -> &str {
        display_name(&self.raw_name)
    }

    /// Returns the option's type.
    pub const fn kind(&self) -> &Type {
        &self.kind
    }
}

impl Array {
    /// Returns the type of the elements.
    pub fn element(&self) -> &Type {
        &self.element
    }

    /// Returns the number of elements.
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// Returns true if the array is text rather than elements.
    pub const fn is_text(&self) -> bool {
        self.text
    }
}

impl Sequence {
    /// Returns the type of the elements.
    pub fn element(&self) -> &Type {
        &self.element
    }

    /// Returns the number of the slot whose value is the length.
    pub const fn slot(&self) -> usize {
        self.slot
    }

    /// Returns true if the sequence is text rather than elements.
    pub const fn is_text(&self) -> bool {
        self.text
    }
}

impl Float {
    /// Returns the size in bits: 16, 32 or 64.
    pub const fn bits(&self) -> u32 {
        self.bits
    }

    /// Returns true if the first byte contains the sign.
    pub const fn is_big_endian(&self) -> bool {
        self.big_endian
    }
}

impl Type {
    /// Returns the alignment of a field of this type, in bits.
    pub(crate) fn alignment(&self) -> u64 {
        match self {
            Self::Integer(integer) => integer.alignment,
            Self::Enumeration(enumeration) => enumeration.integer.alignment,
            Self::Float(float) => float.alignment,
            Self::Text | Self::WideText(_) => 8,
            Self::Struct(structure) => structure.alignment,
            Self::Array(array) => array.alignment,
            Self::Sequence(sequence) => sequence.alignment,
            Self::Variant(_) => 1,
        }
    }

    /// Returns true if the field is only for the reader. Like babeltrace2, hides integers that set
    /// a clock or describe packets and events, unless another field needs them.
    #[inline]
    pub fn is_hidden(&self) -> bool {
        // The common case: the parts of events are structures.
        if let Self::Struct(structure) = self {
            return !structure.shown;
        }
        self.is_part_hidden()
    }

    fn is_part_hidden(&self) -> bool {
        let hidden = |integer: &Integer| {
            let tells = integer.clock.is_some() || integer.role != Role::None;
            integer.concealed || tells && integer.slot.is_none()
        };
        match self {
            Self::Integer(integer) => hidden(integer),
            Self::Enumeration(enumeration) => hidden(&enumeration.integer),
            Self::Float(_) | Self::Text | Self::WideText(_) => false,
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
