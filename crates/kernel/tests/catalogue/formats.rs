//! Tests the parser of format files.

use std::sync::Arc;

use trackway_kernel::catalogue::format::{EmptyLookup, Format, NameLookup, parse};
use trackway_kernel::catalogue::model::{Field, FieldShape, Location, Meaning, Symbols};
use trackway_schema::Scalar;

/// A name lookup in place of BTF.
struct FakeLookup;

impl NameLookup for FakeLookup {
    fn enumerator(&self, name: &str) -> Option<u64> {
        match name {
            "RED" => Some(1),
            "EXTENT_DIRTY" => Some(1),
            "EXTENT_LOCKED" => Some(2),
            "IOPRIO_CLASS_RT" => Some(1),
            _ => None,
        }
    }

    fn enumeration(&self, tag: &str) -> Option<Arc<Symbols>> {
        let symbol = |value, name: &'static str| trackway_kernel::catalogue::model::Symbol {
            value,
            name: name.into(),
        };
        let choices = vec![symbol(1, "RED"), symbol(u64::MAX, "NONE")];
        let symbols = Symbols { choice_mask: u64::MAX, choices, ..Symbols::default() };
        (tag == "colour").then(|| Arc::new(symbols))
    }

    fn integer(&self, _: &str) -> Option<Scalar> {
        None
    }
}

macro_rules! formats {
    ($($name:ident)*) => {
        /// The stored formats, by name.
        const FORMATS: &[(&str, &str)] = &[$({
            let name = stringify!($name);
            (name, include_str!(concat!("formats/", stringify!($name), ".txt")))
        }),*];
    };
}

formats!(
    block_rq_issue btrfs_set_extent_bit dma_map_sg ipi_send_cpumask made_up print sched_switch
    softirq_entry sys_enter sys_enter_openat tcp_probe timer_start
);

fn format_text(name: &str) -> &'static str {
    FORMATS.iter().find(|(of, _)| *of == name).map(|(_, text)| *text).expect("a kept format")
}

fn parse_kept_format(name: &str) -> Format<'static> {
    parse(format_text(name), &FakeLookup).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn find_field<'format>(format: &'format Format<'_>, name: &str) -> &'format Field {
    format.fields.iter().find(|field| field.name == name).expect("a field")
}

fn field_symbols(field: &Field) -> &Symbols {
    match &field.meaning {
        Meaning::Symbols(symbols) => symbols,
        other => panic!("{}: {other:?}", field.name),
    }
}

#[test]
fn a_format_says_what_is_where() {
    let format = parse_kept_format("sched_switch");
    assert_eq!((format.name, format.common.len(), format.fields.len()), ("sched_switch", 4, 7));
    let comm = find_field(&format, "prev_comm");
    assert_eq!((comm.kind, comm.offset, comm.size), (FieldShape::Text(16), 8, 16));
    assert_eq!(comm.type_text, "char[16]");
    let state = find_field(&format, "prev_state");
    assert_eq!((state.kind, state.offset), (FieldShape::Integer(Scalar::I64), 32));
    assert_eq!(field_symbols(state).show(0x1), "S");
    assert_eq!(field_symbols(state).show(0x82), "D|I");
    assert_eq!(
        (field_symbols(state).show(0), field_symbols(state).show(0x100)),
        ("R".into(), "R+".into())
    );
    assert!(format.print.starts_with("\"prev_comm=%s"));
}

#[test]
fn names_of_values_are_found_in_how_the_kernel_prints_them() {
    let softirq = parse_kept_format("softirq_entry");
    assert_eq!(field_symbols(find_field(&softirq, "vec")).show(3), "NET_RX");
    // Only BTF has these names; unknown names are omitted.
    let extent = parse_kept_format("btrfs_set_extent_bit");
    let bits = field_symbols(find_field(&extent, "set_bits"));
    assert_eq!((bits.choice_mask, bits.show(7)), (0, "DIRTY|LOCKED|0x4".to_owned()));
    assert_eq!(field_symbols(find_field(&extent, "owner")).show(3), "INODE_IO");
    assert_eq!(find_field(&extent, "fsid").meaning, Meaning::Uuid);
    let without = parse(format_text("btrfs_set_extent_bit"), &EmptyLookup).expect("a format");
    assert_eq!(find_field(&without, "set_bits").meaning, Meaning::Plain, "a plain integer");
    // Some bits of a field have names; bits that are unknown to BTF have none.
    let issue = parse_kept_format("block_rq_issue");
    let priority = field_symbols(find_field(&issue, "ioprio"));
    assert_eq!((priority.choice_mask, &*priority.show(1 << 13 | 4)), (7 << 13, "rt|0x4"));
    assert_eq!(find_field(&issue, "dev").meaning, Meaning::Device);
    assert_eq!(find_field(&issue, "cmd").kind, FieldShape::DynamicText(Location::Absolute));
    // Bits that are not flags are displayed separately.
    let timer = parse_kept_format("timer_start");
    let flags = field_symbols(find_field(&timer, "flags"));
    assert_eq!((flags.show(0x0e40_0001 | 0x0018_0000), flags.show(7)), ("D|P".into(), "0".into()));
    let map = parse_kept_format("dma_map_sg");
    assert_eq!(field_symbols(find_field(&map, "dir")).show(2), "FROM_DEVICE");
    assert_eq!(
        find_field(&map, "phys_addrs").kind,
        FieldShape::Dynamic(Scalar::U64, Location::Absolute)
    );
}

#[test]
fn every_shape_of_field_is_known() {
    let kind = |format: &Format<'_>, name: &str| find_field(format, name).kind;
    let ipi = parse_kept_format("ipi_send_cpumask");
    assert_eq!(kind(&ipi, "cpumask"), FieldShape::Bitmask(Location::Absolute));
    assert_eq!(find_field(&ipi, "callsite").meaning, Meaning::Code);
    assert_eq!(kind(&parse_kept_format("sys_enter"), "args"), FieldShape::Array(Scalar::U64, 6));
    assert_eq!(kind(&parse_kept_format("print"), "buf"), FieldShape::TrailingText);
    let tcp = parse_kept_format("tcp_probe");
    assert_eq!(kind(&tcp, "saddr"), FieldShape::Array(Scalar::U8, 28));
    assert_eq!(find_field(&tcp, "saddr").meaning, Meaning::Internet);
    let made_up = parse_kept_format("made_up");
    for (name, expected) in [
        ("text", FieldShape::DynamicText(Location::Relative)),
        ("bits", FieldShape::Bitmask(Location::Relative)),
        ("pairs", FieldShape::Dynamic(Scalar::U8, Location::Absolute)),
        ("mac", FieldShape::Array(Scalar::U8, 6)),
        ("grid", FieldShape::Array(Scalar::U8, 6)),
        ("name", FieldShape::Text(16)),
        ("ports", FieldShape::Array(Scalar::U16, 4)),
        ("address", FieldShape::Bytes(16)),
        ("is_on", FieldShape::Integer(Scalar::Bool)),
        ("level", FieldShape::Integer(Scalar::I8)),
        ("mode", FieldShape::Integer(Scalar::U16)),
        ("caller", FieldShape::Integer(Scalar::U64)),
    ] {
        assert_eq!(kind(&made_up, name), expected, "{name}");
    }
}

#[test]
fn conversions_say_what_fields_are() {
    let made_up = parse_kept_format("made_up");
    let meaning = |name: &str| find_field(&made_up, name).meaning.clone();
    assert_eq!(meaning("mac"), Meaning::Mac, "before a width that takes an argument");
    assert_eq!(meaning("reason"), Meaning::KernelText);
    assert_eq!(meaning("caller"), Meaning::Code, "cast");
    assert_eq!(meaning("address"), Meaning::Internet);
    assert_eq!(meaning("mode"), Meaning::Mode);
    // The names are for three bits of the field; one name has an unknown value.
    let state = field_symbols(find_field(&made_up, "state"));
    assert_eq!((state.choice_mask, state.choices.len()), (7, 2));
    assert_eq!((state.show(2), state.show(9)), ("busy".to_owned(), "0x9".to_owned()));
    assert_eq!(meaning("twice"), Meaning::Plain, "0 is a here and b there");
    assert_eq!(meaning("level"), Meaning::Plain, "what is computed from a field is not the field");
    // An enumeration stored in one byte.
    assert_eq!(field_symbols(find_field(&made_up, "colour")).show(0xff), "NONE");
}

#[test]
fn what_is_no_format_is_refused_with_its_line() {
    let good = format_text("made_up");
    for (from, to, line, what) in [
        ("name: made_up", "nome: made_up", 1, "'name: ' is expected"),
        ("made_up", "made/up", 1, "not a name"),
        ("65535", "65536", 2, "the ID is not a number of 16 bits"),
        ("format:\n", "format\n", 3, "'format:' is expected"),
        ("\tfield:bool", "field:bool", 14, "a field is expected"),
        ("\toffset:72", "\toffset:x", 14, "no offset"),
        ("\toffset:72", " offset:72", 14, "no offset"),
        ("size:1;\tsigned:0;\n\tfield:signed", "\tfield:signed", 14, "no size"),
        ("offset:8;\tsize:4;\tsigned:1;", "offset:8;\tsize:4;", 6, "neither signed nor unsigned"),
        ("offset:8;\tsize:4;", "offset:8;\tsize:5;", 6, "a place is 4 bytes"),
        (
            "signed:0;\n\tfield:signed",
            "signed:0;x\n\tfield:signed",
            14,
            "something behind the field",
        ),
        ("offset:72", "offset:4294967295", 14, "beyond the end of any record"),
        ("offset:72", "offset:70000", 14, "beyond the end of any record"),
        (
            "size:1;\tsigned:0;\n\tfield:signed",
            "size:0;\tsigned:0;\n\tfield:signed",
            14,
            "a field without bytes",
        ),
        ("bool is_on", "bool", 14, "a type and a name are expected"),
        ("bool is_on", "bool 8", 14, "not a name"),
        ("bool is_on", "bool is_on]", 14, "a bracket too many"),
        (
            "bool is_on",
            "bool is_on[1][1][1][1][1]",
            14,
            "an array of more dimensions than arrays have",
        ),
    ] {
        assert!(good.contains(from), "{from}");
        let bad = good.replacen(from, to, 1);
        let error = parse(&bad, &EmptyLookup).expect_err(to);
        assert_eq!((error.line, error.what), (line, what), "{to}");
    }
    let many = "\tfield:int x;\toffset:0;\tsize:4;\tsigned:1;\n".repeat(300);
    assert!(parse(&format!("name: a\nID: 1\nformat:\n{many}"), &EmptyLookup).is_err());
    assert!(parse(&" ".repeat(1 << 20), &EmptyLookup).is_err());
    assert!(parse("", &EmptyLookup).is_err());
}

/// RUN the parser on every prefix of the stored formats, and with one byte changed. EXPECT a result
/// without panic, with fields within a record.
#[test]
fn damaged_formats_are_survived() {
    let mut random = trackway_testkit::Random::new(8);
    let check = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        if let Ok(format) = parse(&text, &FakeLookup) {
            assert!(format.fields.iter().all(|of| of.offset + of.size <= 64 << 10));
        }
    };
    for (_, text) in FORMATS {
        (0..text.len()).for_each(|end| check(&text.as_bytes()[..end]));
        for _ in 0..300 {
            let mut bytes = text.as_bytes().to_vec();
            let at = random.next_below(bytes.len() as u64) as usize;
            bytes[at] = *random.pick(b"(){}[]\"\\,;:\t\n-0x9aZ&|<%*");
            check(&bytes);
        }
    }
}
