//! Encoding of event descriptions into bytes, without allocation.
//!
//! ```text
//! description := version u8 | level u8 | field count u8 | provider | name | field*
//! name        := length u8 | bytes
//! field       := scalar u8 (0 for str and text) | shape u8 | length u16 LE (arrays; else 0)
//!                | label count u16 LE (enumerations; else 0) | name | label*
//! label       := first i64 LE | last i64 LE | name
//! ```

use crate::wire::{VERSION, is_name};
use crate::{ARRAY_LENGTH_MAX, FIELDS_MAX, LABELS_MAX, NAME_BYTES_MAX, Scalar, Shape};

/// Reason why a description cannot be encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeError {
    /// The buffer is too small.
    Full,
    /// A name is empty, too long, or has bytes that trace metadata cannot carry.
    Name,
    /// More than [`FIELDS_MAX`] fields or [`LABELS_MAX`] labels, or an array that is too long.
    Limit,
}

/// Encoder of one description into a caller's buffer.
pub struct Encoder<'buffer> {
    buffer: &'buffer mut [u8],
    length: usize,
    fields: u8,
}

const FIELD_COUNT_AT: usize = 2;

/// The beginning of an event's description: the part that rules match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heading<'bytes> {
    /// Provider of the event.
    pub provider: &'bytes [u8],
    /// Name of the event.
    pub name: &'bytes [u8],
    /// Log level of the event, 0–14.
    pub level: u8,
}

impl<'bytes> Heading<'bytes> {
    /// Greatest length of the beginning of a description that [`Self::read`] needs, in bytes.
    pub const BYTES_MAX: usize = FIELD_COUNT_AT + 1 + 2 * (1 + NAME_BYTES_MAX);

    /// Reads the heading, without allocation, from a description or its first [`Self::BYTES_MAX`]
    /// bytes. Returns `None` if no [`Encoder`] wrote the bytes.
    pub fn read(encoded: &'bytes [u8]) -> Option<Self> {
        let (&[version, level, _], rest) = encoded.split_first_chunk()?;
        let (&provider_bytes, rest) = rest.split_first()?;
        let (provider, rest) = rest.split_at_checked(provider_bytes.into())?;
        let (&name_bytes, rest) = rest.split_first()?;
        let name = rest.get(..name_bytes.into())?;
        let is_good = version == VERSION
            && usize::from(level) < crate::LEVEL_NAMES.len()
            && [provider, name].into_iter().all(is_full_name);
        is_good.then_some(Self { provider, name, level })
    }
}

/// Returns true if `name` is valid as a complete name.
fn is_full_name(name: &[u8]) -> bool {
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && is_name(name)
}

impl<'buffer> Encoder<'buffer> {
    /// Begins a description of `provider:name` at `level` (0–14).
    pub fn new(
        buffer: &'buffer mut [u8],
        provider: &[u8],
        name: &[u8],
        level: u8,
    ) -> Result<Self, EncodeError> {
        let mut encoder = Self { buffer, length: 0, fields: 0 };
        encoder.bytes(&[VERSION, level.min(14), 0])?;
        encoder.name(provider)?;
        encoder.name(name)?;
        Ok(encoder)
    }

    /// Adds a field. `scalar` is `None` for `Str` and `Text`; `length` is used for `Array` only.
    pub fn add_field(
        &mut self,
        name: &[u8],
        shape: Shape,
        scalar: Option<Scalar>,
        length: u16,
        label_count: usize,
    ) -> Result<(), EncodeError> {
        if usize::from(self.fields) == FIELDS_MAX
            || label_count > LABELS_MAX
            || length > ARRAY_LENGTH_MAX
        {
            return Err(EncodeError::Limit);
        }
        self.bytes(&[scalar.map_or(0, |scalar| scalar as u8), shape as u8])?;
        self.bytes(&length.to_le_bytes())?;
        self.bytes(&u16::try_from(label_count).map_err(|_| EncodeError::Limit)?.to_le_bytes())?;
        self.name(name)?;
        self.fields += 1;
        self.buffer[FIELD_COUNT_AT] = self.fields;
        Ok(())
    }

    /// Adds a label to the enumeration just begun; the caller must add `label_count` labels.
    pub fn add_label(&mut self, name: &[u8], first: i64, last: i64) -> Result<(), EncodeError> {
        self.bytes(&first.to_le_bytes())?;
        self.bytes(&last.to_le_bytes())?;
        self.name(name)
    }

    /// Returns the encoded bytes.
    pub fn finish(self) -> &'buffer [u8] {
        &self.buffer[..self.length]
    }

    fn name(&mut self, name: &[u8]) -> Result<(), EncodeError> {
        if !is_full_name(name) {
            return Err(EncodeError::Name);
        }
        self.bytes(&[name.len() as u8])?;
        self.bytes(name)
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        let end = self.length + bytes.len();
        self.buffer.get_mut(self.length..end).ok_or(EncodeError::Full)?.copy_from_slice(bytes);
        self.length = end;
        Ok(())
    }
}
