//! Values that are written and read back are equal.

mod support;

use proptest::prelude::*;
use support::{
    START_NS, StreamWriter, TestTrace, event_description, random_trace, trace_description,
};
use trackway_ctf::read::{LossKind, Trace, Value, read_stream, read_trace};
use trackway_ctf::write::{
    Contexts, application_member, application_tag, event_declaration, metadata_preamble,
};
use trackway_schema::context::{PROCNAME, VTID};
use trackway_schema::{FieldKind, Label, Scalar};

fn expect_integer(value: &Value) -> i128 {
    match value {
        Value::Unsigned(value) => i128::from(*value),
        Value::Signed(value) => i128::from(*value),
        other => panic!("no number: {other:?}"),
    }
}

#[test]
fn values_come_back() {
    let label = Label { name: "two".to_owned(), first: 2, last: 2 };
    let class = event_description(
        "all",
        vec![
            ("i", FieldKind::Scalar(Scalar::I16)),
            ("x", FieldKind::Scalar(Scalar::X64)),
            ("f", FieldKind::Scalar(Scalar::F32)),
            ("s", FieldKind::Str),
            ("t", FieldKind::Text),
            ("a", FieldKind::Array(Scalar::I8, 2)),
            ("q", FieldKind::Sequence(Scalar::U16)),
            ("e", FieldKind::Enumeration(Scalar::U8, vec![label])),
        ],
    );
    let applications = ["a:none", "a:text", "b:float"].map(str::to_owned).into();
    let kernel = Vec::new();
    let contexts = Contexts { bits: VTID | PROCNAME, kernel, applications };
    assert_eq!(contexts.size_bytes(), 21);
    let metadata =
        metadata_preamble(&trace_description(contexts)) + &event_declaration(0, 7, &class);
    let mut stream = StreamWriter::new(4);
    let mut body = 77_i32.to_le_bytes().to_vec();
    body.extend(b"name\0\0\0\0\0\0\0\0\0\0\0\0\0");
    body.extend([application_tag::NONE, application_tag::STRING]);
    body.extend(b"text\0");
    body.push(application_tag::FLOAT);
    body.extend(2.5_f64.to_le_bytes());
    body.extend((-2_i16).to_le_bytes());
    body.extend(u64::MAX.to_le_bytes());
    body.extend(0.5_f32.to_le_bytes());
    body.extend(b"str\0\x04\0\0\0text");
    body.extend([0xff, 1, 2, 0, 0, 0, 3, 0, 4, 0, 2]);
    stream.begin(START_NS);
    stream.record(7, START_NS + 9, &body);
    stream.end(START_NS + 9, 3);

    let trace = Trace::parse(metadata.as_bytes()).expect("metadata");
    let read = read_stream(&trace, &stream.bytes);
    assert_eq!(read.damage, None);
    let [event] = &read.events[..] else { panic!("{:?}", read.events) };
    assert_eq!((event.name.as_str(), event.clock), ("app:all", START_NS + 9));
    assert_eq!(event.time, Some(1_795_228_670_847_582_868 + START_NS as i64 + 9));
    let context = event.stream_context.as_ref().expect("context");
    assert_eq!(context.member("vtid"), Some(&Value::Signed(77)));
    assert_eq!(context.member("procname"), Some(&Value::Text(b"name".to_vec())));
    let of_program = |name: &str, option: &str, value| {
        let expected = Value::Variant(option.into(), Box::new(value));
        assert_eq!(context.member(&application_member(name)), Some(&expected));
    };
    of_program("a:none", "none", Value::Struct(Vec::new()));
    of_program("a:text", "string", Value::Text(b"text".to_vec()));
    of_program("b:float", "double", Value::Float(2.5));
    let packet = event.packet_context.as_ref().expect("packet context");
    assert_eq!(packet.member("cpu_id"), Some(&Value::Unsigned(4)));
    let fields = event.fields.as_ref().expect("fields");
    for (name, expected) in [
        ("i", Value::Signed(-2)),
        ("x", Value::Unsigned(u64::MAX)),
        ("f", Value::Float(0.5)),
        ("s", Value::Text(b"str".to_vec())),
        ("_t_length", Value::Unsigned(4)),
        ("t", Value::Text(b"text".to_vec())),
        ("a", Value::Array(vec![Value::Signed(-1), Value::Signed(1)])),
        ("q", Value::Array(vec![Value::Unsigned(3), Value::Unsigned(4)])),
        ("e", Value::Labelled(Box::new(Value::Unsigned(2)), vec!["two".to_owned()])),
    ] {
        assert_eq!(fields.member(name), Some(&expected), "{name}");
    }
}

#[test]
fn random_traces_come_back_whole_and_in_order() {
    for seed in 1000..1200 {
        let TestTrace { metadata, streams, events } = random_trace(seed);
        let trace = Trace::parse(metadata.as_bytes()).expect("metadata");
        let bytes: Vec<&[u8]> = streams.iter().map(|stream| &stream.bytes[..]).collect();
        let (read, whole) = read_trace(&trace, &bytes);
        assert!(whole, "seed {seed}");
        assert_eq!(read.len(), events, "seed {seed}");
        assert!(read.is_sorted_by_key(|event| event.time), "seed {seed}");
    }
}

#[test]
fn losses_add_up() {
    for seed in 0..100 {
        let TestTrace { metadata, streams, .. } = random_trace(seed);
        let trace = Trace::parse(metadata.as_bytes()).expect("metadata");
        for stream in &streams {
            let read = read_stream(&trace, &stream.bytes);
            let counted = read.losses.iter().filter(|loss| loss.what == LossKind::Events);
            let counted: u64 = counted.filter_map(|loss| loss.count).sum();
            let first = read.packets.first().and_then(|packet| packet.events_discarded);
            assert_eq!(counted + first.unwrap_or(0), stream.fields.events_discarded);
        }
    }
}

#[test]
fn metadata_in_packets_is_metadata() {
    let TestTrace { metadata, streams, events } = random_trace(5);
    let mut packets = Vec::new();
    for chunk in metadata.as_bytes().chunks(1000) {
        packets.extend(0x75d1_1d57_u32.to_be_bytes());
        packets.extend([7; 16]);
        packets.extend(0_u32.to_be_bytes());
        packets.extend((8 * (37 + chunk.len() as u32)).to_be_bytes());
        packets.extend((8 * (37 + chunk.len() as u32 + 11)).to_be_bytes());
        packets.extend([0, 0, 0, 1, 8]);
        packets.extend(chunk);
        packets.extend([0; 11]);
    }
    let trace = Trace::parse(&packets).expect("metadata");
    let read: usize =
        streams.iter().map(|stream| read_stream(&trace, &stream.bytes).events.len()).sum();
    assert_eq!(read, events);
}

proptest! {
    /// Writes any scalar, after any record header, at any time.
    #[test]
    fn scalars_come_back(value: i64, code in 1_u8..=15, id: u32, step in 0_u64..1 << 40) {
        let scalar = Scalar::from_code(code).expect("a scalar's code");
        prop_assume!(!scalar.is_float());
        let class = event_description("e", vec![("n", FieldKind::Scalar(scalar))]);
        let metadata = metadata_preamble(&trace_description(Contexts::default()))
            + &event_declaration(0, id, &class);
        let mut stream = StreamWriter::new(0);
        stream.begin(START_NS);
        stream.record(id, START_NS + step, &value.to_le_bytes()[..scalar.size_bytes()]);
        stream.end(START_NS + step, 0);
        let trace = Trace::parse(metadata.as_bytes()).expect("metadata");
        let read = read_stream(&trace, &stream.bytes);
        prop_assert_eq!(read.damage, None);
        prop_assert_eq!(read.events[0].clock, START_NS + step);
        let bits = 8 * scalar.size_bytes() as u32;
        let cut = i128::from(value) & ((1 << bits) - 1);
        let negative = scalar.is_signed() && cut >> (bits - 1) == 1;
        let expected = if negative { cut - (1 << bits) } else { cut };
        let fields = read.events[0].fields.as_ref().expect("fields");
        prop_assert_eq!(fields.member("n").map(expect_integer), Some(expected));
    }

    /// Metadata remains readable with any names of events and fields that a traced program may
    /// choose.
    #[test]
    fn any_name_is_declared(provider in "[ -~&&[^\"\\\\]]{1,20}", names in
        prop::collection::vec("[ -~&&[^\"\\\\]]{1,20}", 0..8)) {
        let fields = names.iter().map(|name| (name.as_str(), FieldKind::Text)).collect();
        let mut class = event_description("e", fields);
        class.provider = provider;
        let metadata = metadata_preamble(&trace_description(Contexts::default()))
            + &event_declaration(0, 0, &class);
        let trace = Trace::parse(metadata.as_bytes()).expect("metadata");
        let declared = &trace.streams()[0].events()[0];
        let full_name = class.full_name();
        prop_assert_eq!(declared.name(), Some(full_name.as_str()));
    }
}
