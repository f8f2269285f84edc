//! Selection of alternatives that depend on more than kinds.

use trackway_jit::Kind;
use trackway_jit::insn::Insn;
use trackway_jit::meaning::{HEAD, Meaning, Meanings, hash_of_labels};
use trackway_jit::object::{AlternativeParts, Need, Object, encode};
use trackway_schema::{Encoder, FieldViews, Scalar, Shape};

const NEEDS: [Need<'static>; 2] =
    [Need { kind: Kind::Unsigned, path: "state" }, Need { kind: Kind::Sequence, path: "xs" }];

fn encode_object() -> Vec<u8> {
    let exit = Insn { op: 0x95, dst: 0, src: 0, offset: 0, immediate: 0 };
    let parts = AlternativeParts { needs: &NEEDS, constants: b"", programs: &[&[exit]] };
    let mut bytes = vec![0; 256];
    let size = encode(0, &[parts], &mut bytes).expect("room");
    bytes.truncate(size);
    bytes
}

/// Encodes an event with a field of this type and labels, and a sequence of this element type.
fn encode_event(state: Scalar, labels: &[(&str, i64)], xs: Scalar) -> Vec<u8> {
    let mut buffer = [0; 256];
    let mut encoder = Encoder::new(&mut buffer, b"app", b"event", 6).expect("room");
    let added = encoder.add_field(b"state", Shape::Enumeration, Some(state), 0, labels.len());
    added.expect("room");
    for (name, value) in labels {
        encoder.add_label(name.as_bytes(), *value, *value).expect("room");
    }
    encoder.add_field(b"xs", Shape::Sequence, Some(xs), 0, 0).expect("room");
    encoder.finish().to_vec()
}

fn meets_meanings(event: &[u8], records: &[[u8; 8]]) -> bool {
    let bytes: Vec<u8> = HEAD.into_iter().chain(records.concat()).collect();
    let object = encode_object();
    let object = Object::decode(&object).expect("an object");
    let alternative = object.alternatives().next().expect("one");
    let fields = FieldViews::new(event).expect("a description");
    Meanings::decode(&bytes).expect("meanings").are_of(&fields, 0, &alternative)
}

fn label_hash_of(event: &[u8]) -> u32 {
    let field = FieldViews::new(event).expect("a description").next().expect("a field");
    hash_of_labels(field.labels)
}

#[test]
fn an_event_is_one_if_each_need_has_one_of_its_meanings() {
    let first = encode_event(Scalar::U8, &[("OK", 0), ("BAD", 1)], Scalar::U32);
    let second = encode_event(Scalar::U64, &[("OK", 0), ("BAD", 2)], Scalar::I8);
    assert_ne!(label_hash_of(&first), label_hash_of(&second));
    let narrow = Meaning { is_narrow: true, ..Meaning::default() };
    let wide = Meaning { is_wide: true, ..Meaning::default() };
    let of_array = Meaning { is_of_array: true, ..Meaning::default() };
    let labels = |event| Meaning { labels: Some(label_hash_of(event)), ..Meaning::default() };
    let elements = |of| Meaning { elements: Some(of), ..Meaning::default() };
    let nobodys = Meaning { is_nobodys: true, ..Meaning::default() };
    for (records, is_of_first, is_of_second) in [
        (vec![], true, true),
        (vec![narrow.record(0, 0)], true, false),
        (vec![wide.record(0, 0)], false, true),
        (vec![narrow.record(0, 0), wide.record(0, 0)], true, true),
        (vec![of_array.record(0, 1)], false, false),
        (vec![labels(&first).record(0, 0)], true, false),
        (vec![labels(&second).record(0, 0)], false, true),
        (vec![labels(&first).record(0, 0), labels(&second).record(0, 0)], true, true),
        (vec![elements(Scalar::U32).record(0, 1)], true, false),
        (vec![elements(Scalar::I8).record(0, 1)], false, true),
        (vec![narrow.record(0, 0), elements(Scalar::I8).record(0, 1)], false, false),
        (vec![nobodys.record(0, 0)], false, false),
        // A record of another alternative does not matter.
        (vec![nobodys.record(1, 0)], true, true),
    ] {
        assert_eq!(meets_meanings(&first, &records), is_of_first, "{records:?}");
        assert_eq!(meets_meanings(&second, &records), is_of_second, "{records:?}");
    }
}

#[test]
fn what_is_not_known_is_refused() {
    let with = |record: [u8; 8]| HEAD.into_iter().chain(record).collect::<Vec<u8>>();
    let record = Meaning { is_narrow: true, ..Meaning::default() }.record(0, 0);
    assert!(Meanings::decode(&with(record)).is_some());
    for (at, byte) in [(2, 32), (3, 0xff)] {
        let mut other = record;
        other[at] = byte;
        assert!(Meanings::decode(&with(other)).is_none(), "{other:?}");
    }
    assert!(Meanings::decode(b"").is_none());
    assert!(Meanings::decode(&HEAD[..7]).is_none());
    assert!(Meanings::decode(&with(record)[..15]).is_none());
    let mut later = with(record);
    later[3] += 1;
    assert!(Meanings::decode(&later).is_none());
}
