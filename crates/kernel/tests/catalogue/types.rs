//! Tests the BTF reader on a few hand-made types, and on invalid bytes.

use trackway_kernel::catalogue::btf::{Btf, Class};
use trackway_kernel::catalogue::format::NameLookup as _;
use trackway_schema::Scalar;

/// A writer of BTF types.
#[derive(Default)]
struct BtfBuilder {
    types: Vec<u8>,
    strings: Vec<u8>,
}

impl BtfBuilder {
    fn name(&mut self, name: &str) -> u32 {
        if self.strings.is_empty() {
            self.strings.push(0);
        }
        if name.is_empty() {
            return 0;
        }
        let at = self.strings.len();
        self.strings.extend(name.bytes());
        self.strings.push(0);
        at as u32
    }

    /// Adds a type of this kind with its data.
    fn add(&mut self, name: &str, (kind, count, flag): (u32, u32, u32), of: u32, extra: &[u32]) {
        let name = self.name(name);
        for word in [name, flag << 31 | kind << 24 | count, of].iter().chain(extra) {
            self.types.extend(word.to_le_bytes());
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
        for word in [24, 0, types, types, strings] {
            bytes.extend(word.to_le_bytes());
        }
        [bytes, self.types.clone(), self.strings.clone()].concat()
    }
}

/// Returns `typedef void (*btf_trace_step)(void *, const struct pair *, enum colour)` with all its
/// types.
fn build_sample_types() -> Vec<u8> {
    let mut maker = BtfBuilder::default();
    let names = ["x", "y", "flags", "low", "RED", "NONE", "pair", "colour"];
    let [x, y, flags, low, red, none, first, second] = names.map(|name| maker.name(name));
    // Type 1: int, 2: the name of type 1, 3: an array of type 2.
    maker.add("int", (1, 0, 0), 4, &[1 << 24 | 32]);
    maker.add("pid_t", (8, 0, 0), 1, &[]);
    maker.add("", (3, 0, 0), 0, &[1, 1, 5]);
    // Type 4: struct pair { pid_t x; int y[5]; int flags: 3; union { int low; } }, 5: the union.
    let members = [x, 2, 0, y, 3, 32, flags, 1, 3 << 24 | 192, 0, 6, 224];
    maker.add("pair", (4, 4, 1), 32, &members);
    maker.add("", (10, 0, 0), 4, &[]);
    maker.add("", (5, 1, 0), 4, &[low, 1, 0]);
    // Type 7: enum colour { RED = 1, NONE = -1 }, 8: a pointer to const struct pair.
    maker.add("colour", (6, 2, 1), 4, &[red, 1, none, u32::MAX]);
    maker.add("", (2, 0, 0), 5, &[]);
    // Type 9: void *, 10: the prototype, 11: a pointer to type 10, 12: the name of type 11.
    maker.add("", (2, 0, 0), 0, &[]);
    maker.add("", (13, 3, 0), 0, &[0, 9, first, 8, second, 7]);
    maker.add("", (2, 0, 0), 10, &[]);
    maker.add("btf_trace_step", (8, 0, 0), 11, &[]);
    // Types 13 and 14: an endless chain. Type 15: a section. Type 16: 64-bit values.
    maker.add("a", (8, 0, 0), 14, &[]);
    maker.add("b", (8, 0, 0), 13, &[]);
    maker.add(".data", (15, 1, 0), 8, &[1, 4, 4]);
    let big = maker.name("BIG");
    maker.add("wide", (19, 1, 0), 8, &[big, 1, 2]);
    maker.bytes()
}

#[test]
fn types_are_found_by_name_with_all_their_parts() {
    let btf = Btf::parse(build_sample_types()).expect("types");
    assert_eq!(btf.len(), 16);
    let pair = btf.find(Class::Struct, "pair").expect("a structure");
    assert_eq!((pair.id, pair.size_or_type), (4, 32));
    assert!(btf.find(Class::Union, "pair").is_none() && btf.find(Class::Struct, "pai").is_none());
    let members: Vec<_> = btf.members(&pair).collect();
    let places: Vec<_> = members.iter().map(|of| (of.name, of.bit_offset, of.bits)).collect();
    assert_eq!(places, [("x", 0, 0), ("y", 32, 0), ("flags", 192, 3), ("", 224, 0)]);
    let structure = btf.structure("pair").expect("a structure");
    let scalars: Vec<_> =
        structure.members.iter().map(|of| (&*of.name, of.offset, of.scalar, of.count)).collect();
    assert_eq!(scalars, [("x", 0, Scalar::I32, 1), ("y", 4, Scalar::I32, 5)]);
    let place = |path| btf.find_member(4, path).map(|of| (of.bit_offset, of.bits, of.type_id));
    assert_eq!(place("flags"), Some((192, 3, 1)));
    assert_eq!(place("low"), Some((224, 0, 1)), "in a union without a name");
    assert_eq!((place("none"), place("x.y")), (None, None));
    let typedef = btf.find(Class::Typedef, "btf_trace_step").expect("a name");
    let prototype = btf.resolve(btf.resolve(typedef.id).expect("a pointer").size_or_type);
    let parameters: Vec<_> = btf.parameters(&prototype.expect("a prototype")).collect();
    assert_eq!(parameters, [("", 9), ("pair", 8), ("colour", 7)]);
    assert_eq!(btf.type_text(8), "const struct pair *");
    assert_eq!(btf.type_text(9), "void *");
    assert_eq!(
        (btf.scalar(2), btf.scalar(7), btf.scalar(4)),
        (Some(Scalar::I32), Some(Scalar::I32), None)
    );
    let section = btf.find(Class::Datasec, ".data").expect("a section");
    assert_eq!(
        btf.section_variables(&section).next().map(|of| (of.type_id, of.offset, of.size)),
        Some((1, 4, 4))
    );
    assert_eq!(btf.enumerator("NONE"), Some(u64::MAX));
    assert_eq!(btf.enumerator("BIG"), Some(2 << 32 | 1));
    assert_eq!(btf.enumerator("none"), None);
    assert_eq!(btf.enumeration("colour").expect("values").show(1), "RED");
    // Resolution of a circle of types ends.
    assert!(btf.resolve(13).is_none());
    assert!(btf.get(0).is_none() && btf.get(17).is_none());
}

#[test]
fn bytes_that_are_no_types_are_refused() {
    let good = build_sample_types();
    let refused = |bytes: &[u8]| Btf::parse(bytes.to_vec()).is_err();
    assert!((0..good.len()).all(|end| refused(&good[..end])), "cut off anywhere");
    for (at, byte) in [(0, 0), (2, 2), (4, 23), (11, 0xff), (12, 1), (31, 0), (31, 20)] {
        let mut bad = good.clone();
        assert_ne!(bad[at], byte);
        bad[at] = byte;
        assert!(refused(&bad), "byte {at}");
    }
}

/// RUN all queries on types, with every byte changed in turn. EXPECT that no query panics.
#[test]
fn wrong_types_are_survived() {
    let good = build_sample_types();
    for at in 0..good.len() {
        for change in [1, 0x80, 0xff] {
            let mut bad = good.clone();
            bad[at] ^= change;
            let Ok(btf) = Btf::parse(bad) else { continue };
            for of in btf.types() {
                let _ = (btf.members(&of).count(), btf.enumerators(&of).count());
                let _ =
                    (btf.scalar(of.id), btf.type_text(of.id), btf.section_variables(&of).count());
                let _ = (btf.structure(of.name), btf.enumeration(of.name));
                let _ = btf.parameters(&of).count();
            }
            let _ = (btf.enumerator("RED"), btf.find_member(4, "low"), btf.find_member(4, "y.low"));
        }
    }
}
