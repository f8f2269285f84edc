//! Decoding of event descriptions from bytes that may be damaged or malicious.

use alloc::string::String;
use alloc::vec::Vec;

use crate::wire::{VERSION, is_name};
use crate::{ARRAY_LENGTH_MAX, FIELDS_MAX, LABELS_MAX, LEVEL_NAMES, Scalar, Shape};

/// An event as decoded from its description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventDescription {
    /// Provider: the part of the full name before the colon.
    pub provider: String,
    /// Name: the part of the full name after the colon.
    pub name: String,
    /// Log level: index into [`LEVEL_NAMES`].
    pub level: u8,
    /// Fields of the payload, in the order of their bytes.
    pub fields: Vec<Field>,
}

/// One field of an event's payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Name, as declared.
    pub name: String,
    /// Type.
    pub kind: FieldKind,
}

/// Type of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldKind {
    /// One scalar.
    Scalar(Scalar),
    /// A NUL-terminated string.
    Str,
    /// UTF-8 text: 32-bit length, then bytes.
    Text,
    /// A fixed number of scalars.
    Array(Scalar, u16),
    /// A 32-bit count, then scalars.
    Sequence(Scalar),
    /// An integer with labels.
    Enumeration(Scalar, Vec<Label>),
    /// A 32-bit count, then NUL-terminated strings. Only kernel events have it, and their
    /// descriptions are never encoded.
    Strings,
}

/// A label of an enumeration: a name for a closed range of values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Name of the label.
    pub name: String,
    /// First value, inclusive (unsigned 64-bit values as their two's complement).
    pub first: i64,
    /// Last value, inclusive.
    pub last: i64,
}

/// Reason why bytes are not a description; the number is the offset of the offending byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes end too early.
    Truncated(usize),
    /// The description has a version that this library does not support.
    Version(u8),
    /// A name is empty or contains a forbidden byte.
    Name(usize),
    /// A type, shape, level, count or length is out of its range.
    Value(usize),
}

impl core::fmt::Display for DecodeError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Truncated(at) => write!(formatter, "event description ends at byte {at}"),
            Self::Version(found) => write!(formatter, "event description of version {found}"),
            Self::Name(at) => write!(formatter, "bad name in event description at byte {at}"),
            Self::Value(at) => write!(formatter, "bad value in event description at byte {at}"),
        }
    }
}

impl core::error::Error for DecodeError {}

impl EventDescription {
    /// Decodes `bytes`, checking everything. Bytes after the description are ignored.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut cursor = Cursor { bytes, at: 0 };
        let version = cursor.u8()?;
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        let level = cursor.u8()?;
        if usize::from(level) >= LEVEL_NAMES.len() {
            return Err(DecodeError::Value(1));
        }
        let field_count = usize::from(cursor.u8()?);
        if field_count > FIELDS_MAX {
            return Err(DecodeError::Value(2));
        }
        let provider = cursor.name()?;
        let name = cursor.name()?;
        let mut fields = Vec::with_capacity(field_count);
        for _ in 0..field_count {
            fields.push(cursor.field()?);
        }
        Ok(Self { provider, name, level, fields })
    }

    /// Returns `provider:name`, the spelling in traces and rules.
    pub fn full_name(&self) -> String {
        alloc::format!("{}:{}", self.provider, self.name)
    }
}

struct Cursor<'bytes> {
    bytes: &'bytes [u8],
    at: usize,
}

impl<'bytes> Cursor<'bytes> {
    fn take(&mut self, length: usize) -> Result<&'bytes [u8], DecodeError> {
        let end = self.at.checked_add(length).ok_or(DecodeError::Truncated(self.at))?;
        let taken = self.bytes.get(self.at..end).ok_or(DecodeError::Truncated(self.at))?;
        self.at = end;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(self.take(1)?[0])
    }

    fn u16(&mut self) -> Result<u16, DecodeError> {
        let bytes = self.take(2)?;
        Ok(u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    fn i64(&mut self) -> Result<i64, DecodeError> {
        let mut value = [0; 8];
        value.copy_from_slice(self.take(8)?);
        Ok(i64::from_le_bytes(value))
    }

    fn name(&mut self) -> Result<String, DecodeError> {
        let at = self.at;
        let length = usize::from(self.u8()?);
        let bytes = self.take(length)?;
        if bytes.is_empty() || !is_name(bytes) {
            return Err(DecodeError::Name(at));
        }
        core::str::from_utf8(bytes).map(String::from).map_err(|_| DecodeError::Name(at))
    }

    fn field(&mut self) -> Result<Field, DecodeError> {
        let at = self.at;
        let scalar = self.u8()?;
        let shape = Shape::from_code(self.u8()?).ok_or(DecodeError::Value(at))?;
        let length = self.u16()?;
        let label_count = usize::from(self.u16()?);
        let name = self.name()?;
        let scalar = Scalar::from_code(scalar).ok_or(DecodeError::Value(at));
        let kind = match shape {
            Shape::Scalar => FieldKind::Scalar(scalar?),
            Shape::Str => FieldKind::Str,
            Shape::Text => FieldKind::Text,
            Shape::Array if length == 0 || length > ARRAY_LENGTH_MAX => {
                return Err(DecodeError::Value(at));
            }
            Shape::Array => FieldKind::Array(scalar?, length),
            Shape::Sequence => FieldKind::Sequence(scalar?),
            Shape::Enumeration => FieldKind::Enumeration(scalar?, self.labels(label_count, at)?),
        };
        if let FieldKind::Enumeration(scalar, _) = kind
            && scalar.is_float()
        {
            return Err(DecodeError::Value(at));
        }
        Ok(Field { name, kind })
    }

    fn labels(&mut self, count: usize, at: usize) -> Result<Vec<Label>, DecodeError> {
        if count == 0 || count > LABELS_MAX {
            return Err(DecodeError::Value(at));
        }
        let mut labels = Vec::with_capacity(count);
        for _ in 0..count {
            let first = self.i64()?;
            let last = self.i64()?;
            labels.push(Label { first, last, name: self.name()? });
        }
        Ok(labels)
    }
}
