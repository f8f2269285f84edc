//! Properties: an encoded description decodes to itself; any other bytes are an error, never a
//! panic.

use proptest::prelude::*;
use trackway_schema::{
    EncodeError, Encoder, EventDescription, Field, FieldKind, Heading, Label, Scalar, Shape,
};

fn encode_event(event: &EventDescription, buffer: &mut [u8]) -> Result<Vec<u8>, EncodeError> {
    let provider = event.provider.as_bytes();
    let mut encoder = Encoder::new(buffer, provider, event.name.as_bytes(), event.level)?;
    for field in &event.fields {
        let name = field.name.as_bytes();
        match &field.kind {
            FieldKind::Scalar(scalar) => {
                encoder.add_field(name, Shape::Scalar, Some(*scalar), 0, 0)?
            }
            FieldKind::Str => encoder.add_field(name, Shape::Str, None, 0, 0)?,
            FieldKind::Text => encoder.add_field(name, Shape::Text, None, 0, 0)?,
            FieldKind::Array(scalar, length) => {
                encoder.add_field(name, Shape::Array, Some(*scalar), *length, 0)?;
            }
            FieldKind::Sequence(scalar) => {
                encoder.add_field(name, Shape::Sequence, Some(*scalar), 0, 0)?;
            }
            FieldKind::Strings => unreachable!("it is never encoded"),
            FieldKind::Enumeration(scalar, labels) => {
                encoder.add_field(name, Shape::Enumeration, Some(*scalar), 0, labels.len())?;
                for label in labels {
                    encoder.add_label(label.name.as_bytes(), label.first, label.last)?;
                }
            }
        }
    }
    Ok(encoder.finish().to_vec())
}

fn any_name() -> impl Strategy<Value = String> {
    "[a-zA-Z_][a-zA-Z0-9_:.]{0,30}"
}

fn any_scalar() -> impl Strategy<Value = Scalar> {
    (1_u8..=15).prop_map(|code| Scalar::from_code(code).expect("a scalar's code"))
}

fn any_integer_scalar() -> impl Strategy<Value = Scalar> {
    (1_u8..=12).prop_map(|code| Scalar::from_code(code).expect("a scalar's code"))
}

fn any_field_kind() -> impl Strategy<Value = FieldKind> {
    let label = (any_name(), any::<i64>(), any::<i64>()).prop_map(|(name, first, last)| Label {
        name,
        first,
        last,
    });
    prop_oneof![
        any_scalar().prop_map(FieldKind::Scalar),
        Just(FieldKind::Str),
        Just(FieldKind::Text),
        (any_scalar(), 1_u16..=1024).prop_map(|(scalar, length)| FieldKind::Array(scalar, length)),
        any_scalar().prop_map(FieldKind::Sequence),
        (any_integer_scalar(), prop::collection::vec(label, 1..5))
            .prop_map(|(scalar, labels)| FieldKind::Enumeration(scalar, labels)),
    ]
}

fn any_event() -> impl Strategy<Value = EventDescription> {
    let field = (any_name(), any_field_kind()).prop_map(|(name, kind)| Field { name, kind });
    (any_name(), any_name(), 0_u8..=14, prop::collection::vec(field, 0..=32)).prop_map(
        |(provider, name, level, fields)| EventDescription { provider, name, level, fields },
    )
}

proptest! {
    #[test]
    fn decoding_undoes_encoding(event in any_event()) {
        let mut buffer = [0; 8192];
        let encoded = encode_event(&event, &mut buffer).expect("it fits");
        let heading = Heading {
            provider: event.provider.as_bytes(),
            name: event.name.as_bytes(),
            level: event.level,
        };
        let beginning = &encoded[..encoded.len().min(Heading::BYTES_MAX)];
        prop_assert_eq!(Heading::read(beginning), Some(heading));
        prop_assert_eq!(EventDescription::decode(&encoded), Ok(event));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = EventDescription::decode(&bytes);
        let _ = Heading::read(&bytes);
    }

    #[test]
    fn damaged_encodings_never_panic(event in any_event(), at in any::<usize>(), bits in 1_u8..) {
        let mut buffer = [0; 8192];
        let mut encoded = encode_event(&event, &mut buffer).expect("it fits");
        let at = at % encoded.len();
        encoded[at] ^= bits;
        if EventDescription::decode(&encoded).is_ok() {
            prop_assert!(Heading::read(&encoded).is_some());
        }
        let cut = EventDescription::decode(&encoded[..at]);
        prop_assert!(cut.is_err() || at == encoded.len());
    }

    #[test]
    fn a_buffer_that_is_too_small_is_an_error(event in any_event(), size in 0_usize..64) {
        let mut buffer = vec![0; size];
        let result = encode_event(&event, &mut buffer);
        prop_assert!(result.is_err() || result.is_ok_and(|bytes| bytes.len() <= size));
    }
}

#[test]
fn names_that_would_break_the_metadata_are_refused() {
    for bad in ["", "a\"b", "a\\b", "a\nb", "ä"] {
        let mut buffer = [0; 512];
        let refused = Encoder::new(&mut buffer, b"p", bad.as_bytes(), 6).err();
        assert_eq!(refused, Some(EncodeError::Name), "{bad:?}");
    }
}
