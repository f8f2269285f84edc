//! Encoded objects decode to the same contents; hostile bytes are rejected or decode within bounds.

use proptest::collection::vec;
use proptest::prelude::*;
use trackway_jit::insn::Insn;
use trackway_jit::object::{self, AlternativeParts, EncodeError, Need, Object};
use trackway_jit::{CELLS_MAX, INSTRUCTIONS_MAX, Kind, SLOTS_MAX};

/// An alternative that owns its contents.
type OwnedAlternative = (Vec<(u8, String)>, Vec<u8>, Vec<Vec<u64>>);

fn any_alternative() -> impl Strategy<Value = OwnedAlternative> {
    let need = (1..=5u8, "[a-z.é]{1,20}");
    (vec(need, 0..9), vec(any::<u8>(), 0..40), vec(vec(any::<u64>(), 1..20), 1..4))
}

fn encode_object(cells: u8, alternatives: &[OwnedAlternative]) -> Result<Vec<u8>, EncodeError> {
    let needs: Vec<Vec<Need<'_>>> =
        alternatives.iter().map(|(needs, ..)| needs.iter().map(make_need).collect()).collect();
    let programs: Vec<Vec<Vec<Insn>>> = alternatives
        .iter()
        .map(|(_, _, programs)| programs.iter().map(|bits| decode_insns(bits)).collect())
        .collect();
    let programs: Vec<Vec<&[Insn]>> =
        programs.iter().map(|programs| programs.iter().map(Vec::as_slice).collect()).collect();
    let parts: Vec<AlternativeParts<'_>> = (0..alternatives.len())
        .map(|i| AlternativeParts {
            needs: &needs[i],
            constants: &alternatives[i].1,
            programs: &programs[i],
        })
        .collect();
    let mut buffer = vec![0xaa; 1 << 20];
    let size = object::encode(cells, &parts, &mut buffer)?;
    let no_room = object::encode(cells, &parts, &mut vec![0; size - 1]);
    assert_eq!(no_room, Err(EncodeError::NoRoom));
    buffer.truncate(size);
    Ok(buffer)
}

fn make_need((kind, path): &(u8, String)) -> Need<'_> {
    Need { kind: Kind::from_code(*kind).expect("a kind"), path }
}

fn decode_insns(bits: &[u64]) -> Vec<Insn> {
    bits.iter().map(|bits| Insn::decode(bits.to_le_bytes())).collect()
}

fn decode_object(bytes: &[u8]) -> Option<(u8, Vec<OwnedAlternative>)> {
    let object = Object::decode(bytes).ok()?;
    let alternatives = object.alternatives().map(|alternative| {
        let needs = alternative.needs().map(|need| (need.kind as u8, need.path.to_owned()));
        let programs = alternative.programs().map(|program| {
            let bits = program.bytes().as_chunks().0.iter();
            bits.map(|bytes| u64::from_le_bytes(*bytes)).collect()
        });
        (needs.collect(), alternative.constants().to_vec(), programs.collect())
    });
    Some((object.cells().try_into().expect("few cells"), alternatives.collect()))
}

proptest! {
    #[test]
    fn what_was_encoded_comes_back(
        cells in 0..=CELLS_MAX as u8,
        alternatives in vec(any_alternative(), 1..5),
    ) {
        let bytes = encode_object(cells, &alternatives).expect("encoded");
        prop_assert_eq!(decode_object(&bytes), Some((cells, alternatives)));
    }

    /// Any truncation is detected, and a changed byte yields no object or other contents.
    #[test]
    fn damage_is_noticed(
        alternatives in vec(any_alternative(), 1..3),
        at in any::<prop::sample::Index>(),
        by in 1..=255u8,
    ) {
        let mut bytes = encode_object(3, &alternatives).expect("encoded");
        let at = at.index(bytes.len());
        prop_assert!(Object::decode(&bytes[..at]).is_err());
        bytes[at] ^= by;
        prop_assert_ne!(decode_object(&bytes), Some((3, alternatives)));
    }

    /// Hostile bytes after a valid header: no panic, and all decoded parts are inside the bytes.
    #[test]
    fn hostile_bytes_are_refused_or_consistent(
        head in (1..4u8, 0..70u8, 0..5u8, 0..3u8),
        tail in vec(prop_oneof![Just(0u8), 1..6u8, any::<u8>()], 0..200),
    ) {
        let (alternatives, cells, needs, programs) = head;
        let mut bytes = b"twf\x01".to_vec();
        bytes.extend([alternatives, cells, needs, programs]);
        bytes.extend(tail);
        if let Ok(object) = Object::decode(&bytes) {
            prop_assert_eq!(object.alternatives().count(), usize::from(alternatives));
            for alternative in object.alternatives() {
                prop_assert_eq!(alternative.needs().count(), alternative.needs_count());
                prop_assert_eq!(alternative.programs().count(), alternative.programs_count());
                prop_assert!(alternative.needs_count() <= SLOTS_MAX);
                for program in alternative.programs() {
                    prop_assert!((1..=INSTRUCTIONS_MAX).contains(&program.len()));
                }
            }
        }
    }
}

#[test]
fn bytes_are_those_of_the_contract() {
    let bytes = encode_object(2, &[(vec![(4, "path".into())], b"ab".to_vec(), vec![vec![0x95]])]);
    let expected = [
        b"twf\x01\x01\x02".as_slice(), // one alternative, two cells
        b"\x01\x01\x02\x00",           // one need, one program, two bytes of constants
        b"\x04\x04path",               // a string
        b"ab",                         // constants
        b"\0\0\0\0\0\0",               // to 24
        b"\x01\0\0\0\0\0\0\0",         // one instruction
        b"\x95\0\0\0\0\0\0\0",
    ];
    assert_eq!(bytes.expect("encoded"), expected.concat());
}

#[test]
fn what_would_not_be_read_is_not_written() {
    let one = || (vec![(1, "x".to_owned())], Vec::new(), vec![vec![0x95]]);
    let unfit = |cells, alternatives: &[OwnedAlternative]| {
        matches!(encode_object(cells, alternatives), Err(EncodeError::Invalid(_)))
    };
    assert!(!unfit(0, &[one()]));
    assert!(unfit(CELLS_MAX as u8 + 1, &[one()]), "too many cells");
    assert!(unfit(0, &[]), "no alternative");
    let alternatives: Vec<_> = (0..256).map(|_| one()).collect();
    assert!(unfit(0, &alternatives), "too many alternatives");
    assert!(unfit(0, &[(vec![(1, String::new())], vec![], vec![vec![0x95]])]), "no path");
    assert!(unfit(0, &[(vec![(1, "x".repeat(256))], vec![], vec![vec![0x95]])]), "a long path");
    assert!(unfit(0, &[(vec![(1, "x".into()); 65], vec![], vec![vec![0x95]])]), "many needs");
    assert!(unfit(0, &[(vec![], vec![0; 65536], vec![vec![0x95]])]), "many constants");
    assert!(unfit(0, &[(vec![], vec![], vec![])]), "no program");
    assert!(unfit(0, &[(vec![], vec![], vec![vec![]])]), "an empty program");
    let long = vec![0x95; INSTRUCTIONS_MAX + 1];
    assert!(unfit(0, &[(vec![], vec![], vec![long])]), "a long program");
}

#[test]
fn an_error_says_where() {
    let error = Object::decode(b"twf\x09\x01\x00").expect_err("another version");
    assert_eq!(error.to_string(), "a version of objects that is not known here at byte 6");
    let error = Object::decode(b"twf").expect_err("cut off");
    assert_eq!(error.to_string(), "the object is cut off at byte 3");
}
