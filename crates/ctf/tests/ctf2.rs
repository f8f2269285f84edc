//! Features that only CTF 2 has: its field classes, its field locations, and what it refuses.

use trackway_ctf::read::{
    DecodeError, EnvironmentValue, MetadataProblem, Skip, StreamDecoder, Trace, Value, Window,
    read_stream,
};
use trackway_ctf::write::{NewPacket, PacketRewriter};
use trackway_render::{FieldWriter, ShownNames};

/// Returns metadata of a preamble and `fragments`.
fn join_fragments(fragments: &[&str]) -> String {
    let preamble = "{\n  \"type\": \"preamble\", \"version\": 2\n}";
    let fragments = std::iter::once(&preamble).chain(fragments);
    fragments.map(|fragment| format!("\x1e{fragment}\n")).collect()
}

/// Returns metadata of one event class without header, whose payload has `members`.
fn build_payload_metadata(members: &[(&str, &str)]) -> String {
    let members: Vec<String> = members
        .iter()
        .map(|(name, class)| format!("{{ \"name\": \"{name}\", \"field-class\": {class} }}"))
        .collect();
    let event = format!(
        "{{ \"type\": \"event-record-class\", \"name\": \"e\", \"payload-field-class\": {{
            \"type\": \"structure\", \"member-classes\": [{}] }} }}",
        members.join(",\n")
    );
    join_fragments(&["{ \"type\": \"data-stream-class\" }", &event])
}

/// Returns the text of a stream of one packet: for each event its name, its packet's context and
/// its payload.
fn format_stream(metadata: &str, stream: &[u8]) -> String {
    let trace = Trace::parse(metadata.as_bytes()).unwrap_or_else(|e| panic!("{e}\n{metadata}"));
    let mut decoder = StreamDecoder::new(&trace);
    let (window, mut context, mut out) = (Window::whole(stream), Vec::new(), Vec::new());
    let mut sink = FieldWriter::new(&mut context, ShownNames::default(), false);
    decoder.begin_packet(window, stream.len() as u64, &mut sink, |_| {}).expect("a packet");
    while let Some(event) = decoder.begin_event(window).expect("a header") {
        out.extend_from_slice(event.header.class.name().unwrap_or_default().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(&context);
        let mut sink = FieldWriter::new(&mut out, ShownNames::default(), !context.is_empty());
        event.read(&mut sink).expect("a body");
        out.push(b'\n');
    }
    String::from_utf8(out).expect("UTF-8")
}

/// Reads the value of the first event's member `x`.
fn read_member_x(metadata: &str, stream: &[u8]) -> Result<Value, DecodeError> {
    let trace = Trace::parse(metadata.as_bytes()).unwrap_or_else(|e| panic!("{e}\n{metadata}"));
    let read = read_stream(&trace, stream);
    match (read.events.first(), read.damage) {
        (Some(event), _) => {
            let fields = event.fields.as_ref().expect("fields");
            Ok(fields.member("x").expect("member x").clone())
        }
        (None, damage) => Err(damage.expect("damage").1),
    }
}

#[test]
fn integers_of_variable_length_are_leb128() {
    let class = |sign: &str| format!("{{ \"type\": \"variable-length-{sign}-integer\" }}");
    let (unsigned, signed) = (class("unsigned"), class("signed"));
    let (unsigned, signed) =
        (build_payload_metadata(&[("x", &unsigned)]), build_payload_metadata(&[("x", &signed)]));
    let nine = [0xff; 9];
    for (bytes, number) in [
        (&[0][..], 0),
        (&[0x7f], 127),
        (&[0x80, 1], 128),
        (&[0xe5, 0x8e, 0x26], 624_485),
        (&[0x80, 0x80, 0], 0),
        (&[&nine[..], &[1]].concat(), u64::MAX),
    ] {
        assert_eq!(read_member_x(&unsigned, bytes), Ok(Value::Unsigned(number)), "{bytes:x?}");
    }
    for (bytes, number) in [
        (&[0x40][..], -64),
        (&[0x3f], 63),
        (&[0x80, 0x7f], -128),
        (&[0xc0, 0xbb, 0x78], -123_456),
        (&[&[0x80; 9][..], &[0x7f]].concat(), i64::MIN),
        (&[&nine[..], &[0]].concat(), i64::MAX),
    ] {
        assert_eq!(read_member_x(&signed, bytes), Ok(Value::Signed(number)), "{bytes:x?}");
    }
    let too_long = Err(DecodeError::Integer { bit: 0 });
    assert_eq!(read_member_x(&unsigned, &[&nine[..], &[2]].concat()), too_long);
    assert_eq!(read_member_x(&signed, &[&nine[..], &[1]].concat()), too_long);
    assert_eq!(read_member_x(&unsigned, &[0x80; 20]), too_long);
    assert_eq!(read_member_x(&unsigned, &[0x80]), Err(DecodeError::Truncated { bit: 8 }));
}

#[test]
fn fields_of_bits_have_their_meanings() {
    let fixed = |kind: &str, rest: &str| {
        format!(
            "{{ \"type\": \"fixed-length-{kind}\", \"byte-order\": \"little-endian\", {rest} }}"
        )
    };
    let metadata = build_payload_metadata(&[
        ("no", &fixed("boolean", "\"length\": 8")),
        ("yes", &fixed("boolean", "\"length\": 3")),
        ("bits", &fixed("bit-array", "\"length\": 13")),
        (
            "map",
            &fixed(
                "bit-map",
                "\"length\": 8, \"flags\": { \"b\": [[0, 0], [7, 7]], \"a\": [[1, 2]] }",
            ),
        ),
        ("turned", &fixed("unsigned-integer", "\"length\": 8, \"bit-order\": \"last-to-first\"")),
        ("negative", &fixed("signed-integer", "\"length\": 4, \"bit-order\": \"last-to-first\"")),
        (
            "mapped",
            &fixed("signed-integer", "\"length\": 4, \"mappings\": { \"minus\": [[-8, -1]] }"),
        ),
        ("half", &fixed("floating-point-number", "\"length\": 16")),
    ]);
    let stream = [0, 0x12, 0x34, 0x84, 0x03, 0xf1, 0x00, 0xc0];
    let text = format_stream(&metadata, &stream);
    assert_eq!(
        text,
        "e: { no = false, yes = true, bits = 0x682, \
         map = 0x84 { \"a\", \"b\" }, turned = 192, negative = -8, \
         mapped = ( \"minus\" : container = -1 ), half = -2 }\n"
    );
}

#[test]
fn wide_texts_become_utf8() {
    let dynamic = "{ \"type\": \"dynamic-length-string\", \"encoding\": \"utf-16be\",
        \"length-field-location\": { \"path\": [\"n\"] } }";
    let metadata = build_payload_metadata(&[
        ("x", "{ \"type\": \"null-terminated-string\", \"encoding\": \"utf-16le\" }"),
        ("y", "{ \"type\": \"static-length-string\", \"encoding\": \"utf-32le\", \"length\": 12 }"),
        ("n", "{ \"type\": \"variable-length-unsigned-integer\" }"),
        ("z", dynamic),
        ("u", "{ \"type\": \"static-length-string\", \"length\": 3 }"),
    ]);
    let mut stream: Vec<u8> =
        "a\u{e9}\u{1f600}\0".encode_utf16().flat_map(u16::to_le_bytes).collect();
    stream.extend(['b' as u32, 0x11_0000, 0].iter().flat_map(|unit| unit.to_le_bytes()));
    // A lone surrogate, and an odd byte.
    stream.extend([5, 0, b'c', 0xd8, 0, 9]);
    stream.extend(b"d\0e");
    let text = format_stream(&metadata, &stream);
    let expected = "e: { x = \"a\u{e9}\u{1f600}\", y = \"b\u{fffd}\", n = 5, z = \"c\u{fffd}\", \
        u = \"d\" }\n";
    assert_eq!(text, expected);
}

#[test]
fn optionals_and_blobs_are_there_or_not() {
    let optional = |selector: &str, ranges: &str| {
        format!(
            "{{ \"type\": \"optional\",
            \"selector-field-location\": {{ \"path\": [\"{selector}\"] }},
            {ranges} \"field-class\": {{ \"type\": \"null-terminated-string\" }} }}"
        )
    };
    let metadata = build_payload_metadata(&[
        (
            "b",
            "{ \"type\": \"fixed-length-boolean\", \"length\": 8,
               \"byte-order\": \"big-endian\" }",
        ),
        ("n", "{ \"type\": \"variable-length-signed-integer\" }"),
        ("x", &optional("b", "")),
        ("y", &optional("n", "\"selector-field-ranges\": [[-3, -2], [7, 7]],")),
        ("blob", "{ \"type\": \"static-length-blob\", \"length\": 2 }"),
        (
            "more",
            "{ \"type\": \"dynamic-length-blob\", \"media-type\": \"text/csv\",
               \"length-field-location\": { \"origin\": \"event-record-payload\",
               \"path\": [\"b\"] } }",
        ),
    ]);
    // A boolean may not be a length in CTF 2, but it is accepted as an unsigned integer.
    let text = format_stream(&metadata, b"\x01\x7eyes\0on\0\xab\xcdz\0\x05\x01\x02");
    assert_eq!(
        text,
        "e: { b = true, n = -2, x = { \"yes\" }, y = { \"on\" }, \
         blob = { ab cd }, more = { 7a } }\n\
         e: { b = false, n = 5, x = <none>, y = <none>, blob = { 01 02 }, more = { } }\n"
    );
}

/// Tests locations that lead upwards, through variants, and within an array's element.
#[test]
fn locations_lead_to_the_field_meant() {
    let u8 = "{ \"type\": \"fixed-length-unsigned-integer\", \"length\": 8, \"alignment\": 8,
        \"byte-order\": \"little-endian\" }";
    let array = |path: &str| {
        format!(
            "{{ \"type\": \"dynamic-length-array\", \"element-field-class\": {u8},
            \"length-field-location\": {{ {path} }} }}"
        )
    };
    let element = format!(
        "{{ \"type\": \"structure\", \"member-classes\": [
            {{ \"name\": \"own\", \"field-class\": {u8} }},
            {{ \"name\": \"a\", \"field-class\": {} }},
            {{ \"name\": \"b\", \"field-class\": {} }}] }}",
        array("\"path\": [\"own\"]"),
        array("\"path\": [null, \"n\"]"),
    );
    let option = |range: &str, bits: u32| {
        format!(
            "{{ \"selector-field-ranges\": [{range}], \"field-class\": {{
            \"type\": \"fixed-length-unsigned-integer\", \"length\": {bits},
            \"byte-order\": \"big-endian\" }} }}"
        )
    };
    let variant = format!(
        "{{ \"type\": \"variant\", \"selector-field-location\": {{ \"path\": [\"n\"] }},
        \"options\": [{}, {}] }}",
        option("[0, 0]", 8),
        option("[1, 9]", 16)
    );
    let metadata = build_payload_metadata(&[
        ("n", u8),
        (
            "s",
            &format!(
                "{{ \"type\": \"static-length-array\", \"length\": 2, \"minimum-alignment\": 16,
                \"element-field-class\": {element} }}"
            ),
        ),
        ("length", &variant),
        ("x", &array("\"origin\": \"event-record-payload\", \"path\": [\"length\"]")),
    ]);
    let stream = [1, 0, 2, 3, 4, 5, 0, 6, 0, 2, 7, 8];
    let read = read_member_x(&metadata, &stream);
    assert_eq!(read, Ok(Value::Array(vec![Value::Unsigned(7), Value::Unsigned(8)])));
}

// Longer than 70 lines: one trace with all features of CTF 2.
#[test]
fn a_trace_says_what_it_is() {
    let uuid: Vec<String> = (0..16).map(|byte| byte.to_string()).collect();
    let roles = |name: &str, role: &str, bits: u32| {
        format!(
            "{{ \"name\": \"{name}\", \"field-class\": {{
            \"type\": \"fixed-length-unsigned-integer\",
            \"length\": {bits}, \"byte-order\": \"big-endian\", \"roles\": [\"{role}\"] }} }}"
        )
    };
    let structure = |members: &[String]| {
        format!("{{ \"type\": \"structure\", \"member-classes\": [{}] }}", members.join(", "))
    };
    let header = structure(&[
        roles("the magic", "packet-magic-number", 32),
        "{ \"name\": \"u\", \"field-class\": { \"type\": \"static-length-blob\", \"length\": 16,
            \"roles\": [\"metadata-stream-uuid\"] } }"
            .to_owned(),
        roles("class", "data-stream-class-id", 8),
        roles("id", "data-stream-id", 8),
    ]);
    let context = structure(&[
        roles("timestamp_end", "default-clock-timestamp", 16),
        roles("end", "packet-end-default-clock-timestamp", 16),
        roles("size", "packet-total-length", 16),
        roles("content", "packet-content-length", 16),
        roles("lost", "discarded-event-record-counter-snapshot", 8),
        roles("number", "packet-sequence-number", 8),
        "{ \"name\": \"_cpu id\", \"field-class\": \"byte\" }".to_owned(),
    ]);
    let event_header = structure(&[
        roles("what", "event-record-class-id", 8),
        roles("when", "default-clock-timestamp", 8),
    ]);
    let metadata = format!(
        "\x1e{{ \"type\": \"preamble\", \"version\": 2, \"uuid\": [{}],
            \"attributes\": {{ \"any\": null }}, \"extensions\": {{ \"empty\": {{}} }} }}\n\
        \x1e{{ \"type\": \"field-class-alias\", \"name\": \"byte\", \"field-class\": {{
            \"type\": \"fixed-length-unsigned-integer\", \"length\": 8,
            \"byte-order\": \"little-endian\" }} }}\n\
        \x1e{{ \"type\": \"trace-class\", \"name\": \"t\", \"packet-header-field-class\": {header},
            \"environment\": {{ \"hostname\": \"host\", \"answer\": -42 }} }}\n\
        \x1e{{ \"type\": \"clock-class\", \"id\": \"x\", \"name\": \"mono\", \"frequency\": 1000,
            \"origin\": \"unix-epoch\", \"precision\": 3, \"description\": \"ticks\",
            \"offset-from-origin\": {{ \"seconds\": 2, \"cycles\": 500 }} }}\n\
        \x1e{{ \"type\": \"data-stream-class\", \"id\": 3, \"default-clock-class-id\": \"x\",
            \"packet-context-field-class\": {context},
            \"event-record-header-field-class\": {event_header} }}\n\
        \x1e{{ \"type\": \"event-record-class\", \"id\": 9, \"data-stream-class-id\": 3,
            \"name\": \"odd one\", \"attributes\": {{ \"babeltrace.org,2020\": {{
            \"log-level\": \"debug:line\", \"emf-uri\": \"http://e\" }} }} }}\n",
        uuid.join(", ")
    );
    let mut stream = 0xc1fc_1fc1_u32.to_be_bytes().to_vec();
    stream.extend(0..16);
    stream.extend([3, 7, 1, 0, 1, 9, 1, 0x50, 1, 0x28, 0, 5, 6]);
    stream.extend([9, 2, 9, 1, 0xee, 0xee, 0xee, 0xee, 0xee]);
    let trace = Trace::parse(metadata.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(trace.uuid().map(|uuid| uuid[15]), Some(15));
    assert_eq!(trace.environment("answer"), Some(&EnvironmentValue::Number(-42)));
    let [clock] = trace.clocks() else { panic!("{:?}", trace.clocks()) };
    assert_eq!((clock.name(), clock.frequency(), clock.offset()), ("mono", 1000, (2, 500)));
    assert_eq!((clock.description(), clock.is_absolute()), (Some("ticks"), true));
    let event = trace.streams()[0].event(9).expect("event 9");
    assert_eq!((event.level(), event.emf_uri()), (Some(13), Some("http://e")));
    let read = read_stream(&trace, &stream);
    assert_eq!(read.damage, None);
    let [packet] = &read.packets[..] else { panic!("{:?}", read.packets) };
    assert_eq!((packet.stream_instance, packet.sequence), (Some(7), Some(5)));
    assert_eq!((packet.timestamp_begin, packet.timestamp_end), (Some(256), Some(265)));
    assert_eq!((packet.content_bits, packet.packet_bits), (Some(296), Some(336)));
    let times: Vec<Option<i64>> = read.events.iter().map(|event| event.time).collect();
    assert_eq!(times, [Some(2_758_000_000), Some(3_013_000_000)]);
    let text = format_stream(&metadata, &stream);
    let first = text.lines().next().expect("a line");
    assert!(first == "odd one: { _cpu id = 6 }", "{text}");
}

#[test]
fn clocks_without_names_are_moved_each_for_itself() {
    let clock = |id: &str, seconds: u32| {
        format!(
            "{{ \"type\": \"clock-class\", \"id\": \"{id}\", \"frequency\": 1000,
               \"offset-from-origin\": {{ \"seconds\": {seconds} }} }}"
        )
    };
    let stream = "{ \"type\": \"data-stream-class\", \"default-clock-class-id\": \"b\" }";
    let metadata = join_fragments(&[&clock("a", 10), &clock("b", 20), stream]);
    let mut trace = Trace::parse(metadata.as_bytes()).expect("metadata");
    let zero = |trace: &Trace| trace.streams()[0].clock().expect("a clock").ns_from_origin(0);
    assert_eq!(zero(&trace), Ok(20_000_000_000));
    assert!(trace.shift_clocks(3, 0));
    assert_eq!(zero(&trace), Ok(23_000_000_000));
}

#[test]
fn traces_are_known_by_namespace_name_and_unique_id() {
    let identity = |properties: &str| {
        let trace = format!("{{ \"type\": \"trace-class\"{properties} }}");
        let metadata = join_fragments(&[&trace, "{ \"type\": \"data-stream-class\" }"]);
        let trace = Trace::parse(metadata.as_bytes()).expect("metadata");
        let identity = trace.identity();
        (identity.is_unique(), identity.uid(), trace)
    };
    let (is_unique, uid, one) = identity(", \"name\": \"\", \"uid\": \"7\"");
    assert_eq!((is_unique, uid.as_deref()), (true, Some("7")));
    let (is_unique, _, other) =
        identity(", \"namespace\": \"example.org\", \"name\": \"\", \"uid\": \"7\"");
    assert!(is_unique && one.identity() != other.identity());
    // Without a name, a unique id identifies no trace.
    assert!(!identity(", \"uid\": \"7\"").0);
}

#[test]
fn what_is_not_ctf2_is_refused_with_its_place() {
    let integer = |rest: &str| {
        format!(
            "{{ \"type\": \"fixed-length-unsigned-integer\",
            \"byte-order\": \"big-endian\"{rest} }}"
        )
    };
    let property = |name: &str| MetadataProblem::Property(name.to_owned());
    let of = |class: &str| build_payload_metadata(&[("x", class)]);
    for (metadata, place, problem) in [
        ("\x1e{ \"type\": \"preamble\" }".to_owned(), (1, 2), property("version")),
        (
            "\x1e{ \"type\": \"preamble\", \"version\": 3 }".to_owned(),
            (1, 2),
            MetadataProblem::Version("3".to_owned()),
        ),
        ("\x1e{ \"type\": \"trace-class\" }".to_owned(), (1, 2), property("type")),
        ("\x1e".to_owned(), (1, 2), MetadataProblem::Missing("preamble")),
        (
            "\x1e{ \"type\": \"preamble\", \"version\": 2 }".to_owned(),
            (1, 2),
            MetadataProblem::Missing("data-stream-class"),
        ),
        (
            join_fragments(&["{ \"type\":\n  \"data-stream-class\" ]"]),
            (5, 23),
            MetadataProblem::Json("expected `,` or `}`".to_owned()),
        ),
        (
            "\x1e{ \"type\": \"preamble\", \"version\": 2,
                \"extensions\": { \"my\": { \"piano\": 1 } } }"
                .to_owned(),
            (1, 2),
            MetadataProblem::Extension("my/piano".to_owned()),
        ),
        (of("\"nothing\""), (5, 2), MetadataProblem::UnknownType("nothing".to_owned())),
        (of(&integer(", \"length\": 0")), (5, 2), property("length")),
        (
            of(&integer(", \"length\": 65")),
            (5, 2),
            MetadataProblem::Unsupported("field of more than 64 bits"),
        ),
        (of(&integer(", \"length\": 8, \"alignment\": 3")), (5, 2), property("alignment")),
        (of(&integer(", \"length\": 8, \"roles\": [\"king\"]")), (5, 2), property("roles")),
        (
            of("{ \"type\": \"fixed-length-floating-point-number\", \"length\": 128 }"),
            (5, 2),
            MetadataProblem::Unsupported("floating-point number of 128 bits"),
        ),
        (
            of("{ \"type\": \"dynamic-length-string\",
                \"length-field-location\": { \"path\": [\"n\"] } }"),
            (5, 2),
            MetadataProblem::UnknownField("_n".to_owned()),
        ),
        (
            of(&integer(", \"length\": 8, \"roles\": [\"default-clock-timestamp\"]")),
            (5, 2),
            MetadataProblem::UnknownClock("default-clock-class-id".to_owned()),
        ),
        (
            join_fragments(&["{ \"type\": \"event-record-class\" }"]),
            (4, 2),
            property("data-stream-class-id"),
        ),
    ] {
        let error = Trace::parse(metadata.as_bytes()).expect_err(&metadata);
        assert_eq!(((error.line, error.column), error.problem), (place, problem), "{metadata}");
    }
}

/// A rewritten packet with all events is unchanged; integers of variable length keep their length.
#[test]
fn packets_are_rewritten_as_they_were() {
    let role = |role: &str| {
        format!(
            "{{ \"name\": \"{role}\", \"field-class\": {{
            \"type\": \"fixed-length-unsigned-integer\", \"length\": 16,
            \"byte-order\": \"little-endian\", \"roles\": [\"{role}\"] }} }}"
        )
    };
    let stream_class = format!(
        "{{ \"type\": \"data-stream-class\", \"packet-context-field-class\": {{
            \"type\": \"structure\", \"member-classes\": [{}, {}] }} }}",
        role("packet-total-length"),
        role("packet-content-length"),
    );
    let event_class = "{ \"type\": \"event-record-class\", \"name\": \"e\",
        \"payload-field-class\": { \"type\": \"structure\", \"member-classes\": [
        { \"name\": \"n\", \"field-class\": { \"type\": \"variable-length-signed-integer\" } },
        { \"name\": \"wide\", \"field-class\": {
            \"type\": \"null-terminated-string\", \"encoding\": \"utf-16le\" } },
        { \"name\": \"maybe\", \"field-class\": {
            \"type\": \"optional\", \"selector-field-location\": { \"path\": [\"n\"] },
            \"selector-field-ranges\": [[-3, -3]],
            \"field-class\": { \"type\": \"null-terminated-string\" } } },
        { \"name\": \"turned\", \"field-class\": {
            \"type\": \"fixed-length-signed-integer\", \"length\": 5,
            \"byte-order\": \"big-endian\", \"bit-order\": \"first-to-last\" } }] } }";
    let metadata = join_fragments(&[&stream_class, event_class]);
    let trace = Trace::parse(metadata.as_bytes()).expect("metadata");
    // -3 in three bytes, and 2; the last field ends in the middle of a byte.
    let mut stream = vec![184, 0, 181, 0];
    stream.extend([0xfd, 0xff, 0x7f, b'x', 0, 0, 0, b'o', b'n', 0, 0x50]);
    stream.extend([0x82, 0x80, 0, b'y', 0, 0, 0, 0x58]);
    let window = Window::whole(&stream);
    let mut decoder = StreamDecoder::new(&trace);
    decoder.begin_packet(window, stream.len() as u64, &mut Skip, |_| {}).expect("a packet");
    let mut rewriter = PacketRewriter::new(&trace, &decoder, window).expect("a rewriter");
    let mut events = 0;
    while let Some(event) = decoder.begin_event(window).expect("a header") {
        rewriter.event(event.whole().expect("a body")).expect("it was decoded before");
        events += 1;
    }
    let mut behind = Vec::new();
    let head = rewriter.finish(&NewPacket::default(), &mut behind);
    assert_eq!((events, [head, behind].concat()), (2, stream));
}
