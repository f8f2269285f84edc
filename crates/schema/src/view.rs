//! Iterator over the fields of an encoded description, without allocation, for traced programs.

use crate::wire::VERSION;
use crate::{FIELDS_MAX, LABELS_MAX, Scalar, Shape};

/// A field of an encoded description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldView<'bytes> {
    /// Name of the field.
    pub name: &'bytes [u8],
    /// Shape of the field.
    pub shape: Shape,
    /// Scalar of the field; `None` for `Str` and `Text`.
    pub scalar: Option<Scalar>,
    /// Number of elements of an `Array`.
    pub length: u16,
    /// Labels in encoded form, one after another.
    pub labels: &'bytes [u8],
}

/// Iterator over the fields of an encoded description. It ends early if no [`crate::Encoder`] wrote
/// the bytes; [`Self::is_whole`] reports this.
#[derive(Debug, Clone)]
pub struct FieldViews<'bytes> {
    rest: &'bytes [u8],
    left: usize,
    is_whole: bool,
}

impl<'bytes> FieldViews<'bytes> {
    /// Creates the iterator; returns `None` if the bytes are no description.
    pub fn new(encoded: &'bytes [u8]) -> Option<Self> {
        let (&[version, _, count], rest) = encoded.split_first_chunk()?;
        let (_provider, rest) = split_name(rest)?;
        let (_name, rest) = split_name(rest)?;
        let left = usize::from(count);
        (version == VERSION && left <= FIELDS_MAX).then_some(Self { rest, left, is_whole: true })
    }

    /// Returns true if all fields so far were valid.
    pub const fn is_whole(&self) -> bool {
        self.is_whole
    }

    fn field(&mut self) -> Option<FieldView<'bytes>> {
        let (&[scalar, shape, low, high, labels_low, labels_high], rest) =
            self.rest.split_first_chunk()?;
        let shape = Shape::from_code(shape)?;
        let labels = usize::from(u16::from_le_bytes([labels_low, labels_high]));
        let (name, mut rest) = split_name(rest)?;
        if labels > LABELS_MAX {
            return None;
        }
        let labels_on = rest;
        for _ in 0..labels {
            let (_, behind) = rest.split_first_chunk::<16>()?;
            (_, rest) = self::split_name(behind)?;
        }
        let labels = &labels_on[..labels_on.len() - rest.len()];
        let scalar = Scalar::from_code(scalar);
        let has_scalar = !matches!(shape, Shape::Str | Shape::Text);
        if has_scalar && scalar.is_none() {
            return None;
        }
        self.rest = rest;
        let scalar = scalar.filter(|_| has_scalar);
        let length = u16::from_le_bytes([low, high]);
        Some(FieldView { name, shape, scalar, length, labels })
    }
}

impl<'bytes> Iterator for FieldViews<'bytes> {
    type Item = FieldView<'bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let field = self.field();
        if field.is_none() {
            (self.left, self.is_whole) = (0, false);
        }
        field
    }
}

/// Splits a name from the bytes behind it.
fn split_name(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&length, rest) = bytes.split_first()?;
    rest.split_at_checked(length.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EventDescription, FieldKind};
    use proptest::prelude::*;

    fn shape_of_kind(kind: &FieldKind) -> (Shape, Option<Scalar>, u16) {
        match kind {
            FieldKind::Scalar(scalar) => (Shape::Scalar, Some(*scalar), 0),
            FieldKind::Str => (Shape::Str, None, 0),
            FieldKind::Text => (Shape::Text, None, 0),
            FieldKind::Array(scalar, length) => (Shape::Array, Some(*scalar), *length),
            FieldKind::Sequence(scalar) => (Shape::Sequence, Some(*scalar), 0),
            FieldKind::Enumeration(scalar, _) => (Shape::Enumeration, Some(*scalar), 0),
            FieldKind::Strings => unreachable!("it is never decoded"),
        }
    }

    proptest! {
        /// If a description decodes, its view has the same fields; otherwise the view just ends.
        #[test]
        fn views_are_of_what_is_decoded(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = bytes;
            if let [version, level, count, ..] = bytes.as_mut_slice() {
                (*version, *level, *count) = (VERSION, *level % 15, *count % 5);
            }
            let views = FieldViews::new(&bytes).map(|mut views| {
                let all: Vec<_> = views.by_ref().collect();
                (all, views.is_whole())
            });
            if let Ok(description) = EventDescription::decode(&bytes) {
                let (views, is_whole) = views.expect("a description");
                prop_assert!(is_whole && views.len() == description.fields.len());
                for (view_, field) in views.iter().zip(&description.fields) {
                    prop_assert_eq!(view_.name, field.name.as_bytes());
                    let (shape, scalar, length) = shape_of_kind(&field.kind);
                    prop_assert_eq!((view_.shape, view_.scalar), (shape, scalar));
                    prop_assert!(shape != Shape::Array || view_.length == length);
                }
            }
        }
    }

    extern crate std;
    use std::vec::Vec;

    #[test]
    fn fields_are_seen_one_by_one() {
        let mut buffer = [0; 256];
        let mut encoder = crate::Encoder::new(&mut buffer, b"app", b"read", 6).expect("room");
        let mut field = |name: &[u8], shape, scalar, length, labels| {
            encoder.add_field(name, shape, scalar, length, labels).expect("room");
        };
        field(b"size", Shape::Scalar, Some(Scalar::U32), 0, 0);
        field(b"path", Shape::Str, None, 0, 0);
        field(b"pair", Shape::Array, Some(Scalar::I16), 2, 0);
        field(b"state", Shape::Enumeration, Some(Scalar::U8), 0, 2);
        encoder.add_label(b"idle", 0, 0).expect("room");
        encoder.add_label(b"busy", 1, 3).expect("room");
        encoder.add_field(b"last", Shape::Scalar, Some(Scalar::F64), 0, 0).expect("room");
        let encoded = encoder.finish();
        let mut views = FieldViews::new(encoded).expect("a description");
        let all: Vec<_> = views.by_ref().map(|field| (field.name, field.shape)).collect();
        let expected: [(&[u8], Shape); 5] = [
            (b"size", Shape::Scalar),
            (b"path", Shape::Str),
            (b"pair", Shape::Array),
            (b"state", Shape::Enumeration),
            (b"last", Shape::Scalar),
        ];
        assert_eq!(all, expected);
        assert!(views.is_whole());
        let mut cut = FieldViews::new(&encoded[..encoded.len() - 1]).expect("a description");
        assert_eq!((cut.by_ref().count(), cut.is_whole()), (4, false));
    }
}
