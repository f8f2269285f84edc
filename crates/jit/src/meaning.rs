//! Requirements of an alternative's bytecode in addition to the kinds of its needs: the labels of
//! an enumeration, the element type of a sequence, the width of an integer, and whether a value is
//! an element of an array.
//!
//! ```text
//! meanings := "twm" version u8 (1) | zeros u32 | record*
//! record   := alternative u8 | need u8 | flags u8 | scalar u8 (0: any) | hash of labels u32
//! flags    := 1: fewer than 64 bits | 2: with these labels | 4: met by no event
//!           | 8: 64 bits | 16: an element of an array
//! ```
//!
//! A need without a record may have any meaning of its kind; one with several records must match
//! one of them. In a block, meanings are a separate entry without rules, after the filter's entry.
//! An agent without support for meanings skips this entry, because it selects no event. The agent
//! reads meanings when it plans an event, never when it runs the filter.

use trackway_schema::{FieldView, FieldViews, Scalar, Shape};

use crate::framer::split_index;
use crate::object::Alternative;

/// Header of encoded meanings.
pub const HEAD: [u8; 8] = *b"twm\x01\0\0\0\0";
/// Size of a record, in bytes.
pub const RECORD_BYTES: usize = 8;
const IS_NARROW: u8 = 1;
const HAS_LABELS: u8 = 2;
const MATCHES_NO_EVENT: u8 = 4;
const IS_WIDE: u8 = 8;
const IS_OF_ARRAY: u8 = 16;
const FLAGS: u8 = IS_NARROW | HAS_LABELS | MATCHES_NO_EVENT | IS_WIDE | IS_OF_ARRAY;
/// Size of a 64-bit integer, in bytes.
const WIDE_BYTES: usize = 8;

/// Requirements on a need in addition to its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Meaning {
    /// The integer has fewer than 64 bits.
    pub is_narrow: bool,
    /// The integer has exactly 64 bits.
    pub is_wide: bool,
    /// The value is an element of an array. A sequence may lack the element, and the framer reads
    /// it before the filter runs.
    pub is_of_array: bool,
    /// Type of the elements.
    pub elements: Option<Scalar>,
    /// Hash of the labels, by [`hash_of_labels`].
    pub labels: Option<u32>,
    /// A requirement that no event meets: no alternative serves such events until one is compiled.
    pub is_nobodys: bool,
}

impl Meaning {
    /// Returns true if there are no requirements.
    pub fn is_any(&self) -> bool {
        *self == Self::default()
    }

    /// Encodes the record of this alternative and need.
    pub fn record(&self, alternative: u8, need: u8) -> [u8; RECORD_BYTES] {
        let flags = [
            (self.is_narrow, IS_NARROW),
            (self.labels.is_some(), HAS_LABELS),
            (self.is_nobodys, MATCHES_NO_EVENT),
            (self.is_wide, IS_WIDE),
            (self.is_of_array, IS_OF_ARRAY),
        ];
        let flags = flags.into_iter().fold(0, |all, (is, flag)| if is { all | flag } else { all });
        let [a, b, c, d] = self.labels.unwrap_or(0).to_le_bytes();
        let elements = self.elements.map_or(0, |scalar| scalar as u8);
        [alternative, need, flags, elements, a, b, c, d]
    }

    /// Decodes requirements; returns `None` if a part is unknown.
    fn read([flags, scalar, labels @ ..]: [u8; 6]) -> Option<Self> {
        let elements = match scalar {
            0 => None,
            code => Some(Scalar::from_code(code)?),
        };
        let has_labels = flags & HAS_LABELS != 0;
        let labels = has_labels.then_some(u32::from_le_bytes(labels));
        let is = |flag| flags & flag != 0;
        (flags & !FLAGS == 0).then_some(Self {
            is_narrow: is(IS_NARROW),
            is_wide: is(IS_WIDE),
            is_of_array: is(IS_OF_ARRAY),
            elements,
            labels,
            is_nobodys: is(MATCHES_NO_EVENT),
        })
    }

    fn is_of(&self, field: &FieldView<'_>) -> bool {
        let has = |is: fn(&usize, &usize) -> bool| {
            field.scalar.is_some_and(|scalar| is(&scalar.size_bytes(), &WIDE_BYTES))
        };
        !self.is_nobodys
            && (!self.is_narrow || has(usize::lt))
            && (!self.is_wide || has(usize::eq))
            && (!self.is_of_array || field.shape == Shape::Array)
            && (self.elements.is_none() || self.elements == field.scalar)
            && self.labels.is_none_or(|labels| labels == hash_of_labels(field.labels))
    }
}

/// Returns a hash (FNV-1a, folded to 32 bits) of an enumeration's labels, encoded one after another
/// as in an event description.
pub fn hash_of_labels(labels: &[u8]) -> u32 {
    let add = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = labels.iter().fold(0xcbf2_9ce4_8422_2325_u64, add);
    (hash ^ hash >> 32) as u32
}

/// The meanings of an object's alternatives.
#[derive(Debug, Clone, Copy, Default)]
pub struct Meanings<'a> {
    records: &'a [u8],
}

impl<'a> Meanings<'a> {
    /// Decodes meanings; returns `None` if the format is unknown.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let records = bytes.strip_prefix(&HEAD)?;
        let (whole, rest) = records.as_chunks::<RECORD_BYTES>();
        let is_known =
            |&[_, _, meaning @ ..]: &[u8; RECORD_BYTES]| Meaning::read(meaning).is_some();
        (rest.is_empty() && whole.iter().all(is_known)).then_some(Self { records })
    }

    /// Returns true if an event whose fields meet an alternative's needs also meets its meanings.
    pub fn are_of(
        &self,
        fields: &FieldViews<'_>,
        number: usize,
        alternative: &Alternative<'_>,
    ) -> bool {
        // Most objects have no meanings.
        if self.records.is_empty() {
            return true;
        }
        alternative.needs().zip(0..).all(|(need, at)| self.is_met(fields, number, need.path, at))
    }

    /// Returns the allowed meanings of a need; an empty list allows any meaning of its kind.
    pub fn of(&self, alternative: usize, need: usize) -> impl Iterator<Item = Meaning> + 'a {
        let (records, _) = self.records.as_chunks::<RECORD_BYTES>();
        records
            .iter()
            .filter(move |record| [record[0], record[1]].map(usize::from) == [alternative, need])
            .filter_map(|&[_, _, meaning @ ..]| Meaning::read(meaning))
    }

    fn is_met(&self, fields: &FieldViews<'_>, alternative: usize, path: &str, need: usize) -> bool {
        let mut own = self.of(alternative, need).peekable();
        if own.peek().is_none() {
            return true;
        }
        let Some((name, _)) = split_index(path.as_bytes()) else { return false };
        let field = fields.clone().find(|field| field.name == name);
        field.is_some_and(|field| own.any(|meaning| meaning.is_of(&field)))
    }
}
