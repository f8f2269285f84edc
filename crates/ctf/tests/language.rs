//! TSDL is parsed like in babeltrace2; invalid text is refused, with its place.

mod support;

use support::{Folder, run_babeltrace};
use trackway_ctf::read::{EnvironmentValue, MetadataProblem, Trace, Value, read_stream};
use trackway_reader::{DataFile, Input, Selection, Settings, print_events};
use trackway_render::{LineOutput, Pretty, PrettyOptions, utc_date_time};

/// Compares our text for a trace of one stream with babeltrace2's; returns our text.
fn check_against_babeltrace(name: &str, metadata: &str, stream: &[u8]) -> String {
    let trace = Trace::parse(metadata.as_bytes()).unwrap_or_else(|error| panic!("{name}: {error}"));
    let files = vec![DataFile::new("stream".to_owned(), stream)];
    let input = Input { trace, folder: String::new(), files };
    let (mut ours, mut warnings) = (Vec::new(), Vec::new());
    let settings = Settings::default();
    print_events(
        vec![input],
        &Selection::default(),
        &mut LineOutput::new(Pretty::new(PrettyOptions::default(), utc_date_time), &mut ours),
        &settings,
        &mut warnings,
    )
    .expect("memory");
    let ours = String::from_utf8(ours).expect("UTF-8");
    assert_eq!(String::from_utf8_lossy(&warnings), "", "{name}");
    let folder = Folder::new(&format!("language-{name}"));
    folder.write("metadata", metadata.as_bytes());
    folder.write("stream", stream);
    if let Some((theirs, _)) = run_babeltrace(&folder.0) {
        assert_eq!(ours, String::from_utf8_lossy(&theirs), "{name}");
    }
    ours
}

const HEAD: &str = "/* CTF 1.8 */
trace { major = 1; minor = 8; byte_order = le; };
typealias integer { size = 8; } := uint8_t;
typealias integer { size = 32; align = 8; } := uint32_t;
";

#[test]
fn types_have_names_of_all_forms() {
    let metadata = format!(
        "{HEAD}
typealias integer {{ size = 16; align = 8; byte_order = be; }} := late_t;
typealias integer {{ size = 24; }} := unsigned long int;
typealias integer {{ size = 24; }} := const unsigned long int;
typealias integer {{ size = 8; }} := uint8_t *;
typealias integer {{ size = 16; }} := const char * const *;
typedef integer {{ size = 4; align = 8; }} small_t;
struct named {{ uint8_t x; }} align(8);
enum labels : uint8_t {{ one = 1, two, \"three and more\" = 0x3 ... 07, nine = 99u }};
variant untagged {{ uint8_t one; late_t two; }};
event {{
    name = \"names\";
    fields := struct {{
        late_t late;
        unsigned long int words; const unsigned long int const_words;
        uint8_t *pointer; const char * const * deep;
        small_t a, b[2], c[1][2];
        struct named s; enum labels e; enum labels twice;
        typealias integer {{ size = 16; }} := uint8_t;
        struct {{ uint8_t inner; }} scoped;
        uint8_t wide;
        variant untagged <e> v;
        string text; string {{ encoding = ASCII; }} ascii;
    }};
}};
"
    );
    let mut stream = vec![0x12, 0x34];
    stream.extend([1, 0, 0, 2, 0, 0, 9, 10, 0]);
    stream.extend([1, 2, 3, 4, 5]);
    stream.extend([7, 2, 99]);
    stream.extend([11, 0, 12, 0]);
    stream.extend([0x0a, 0x0b]);
    stream.extend(b"text\0ascii\0");
    let text = check_against_babeltrace("names", &metadata, &stream);
    assert!(text.contains("late = 4660, words = 1, const_words = 2, pointer = 0x9"), "{text}");
    assert!(text.contains("e = ( \"two\" : container = 2 )"), "{text}");
    assert!(text.contains("twice = ( \"nine\" : container = 99 )"), "{text}");
    assert!(text.contains("v = { 2571 }"), "{text}");
}

/// Tests paths relative to the enclosing structures, and absolute paths from each scope.
#[test]
fn fields_are_found_by_their_paths() {
    let metadata = "/* CTF 1.8 */
typealias integer { size = 8; } := u8;
trace {
    major = 1; minor = 8; byte_order = le;
    packet.header := struct { u8 in_header; };
};
stream {
    packet.context := struct { u8 in_packet; struct { u8 deep; } inside; };
    event.header := struct { enum : u8 { first = 0 ... 100, second } id; };
    event.context := struct { u8 in_context; };
};
event {
    name = paths; id = 3; stream_id = 0;
    fields := struct {
        u8 n;
        struct { u8 a[n]; struct { u8 own; u8 b[own]; u8 c[n]; } s; } nested;
        u8 d[trace.packet.header.in_header];
        u8 e[stream.packet.context.in_packet];
        u8 f[stream.packet.context.inside.deep];
        u8 g[stream.event.context.in_context];
        u8 h[event.fields.nested.s.own];
    };
};";
    let mut stream = vec![1, 2, 1, 3, 2, 2, 5, 6, 1, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
    let text = check_against_babeltrace("paths", metadata, &stream);
    assert!(text.ends_with("g = [ [0] = 14, [1] = 15 ], h = [ [0] = 16 ] }\n"), "{text}");
    // babeltrace2 does not support absolute paths of tags.
    let tagged = "variant <stream.event.header.id> { u8 first; string second; } i;\n    };\n};";
    let metadata = metadata.replace("    };\n};", tagged);
    stream.push(17);
    let trace = Trace::parse(metadata.as_bytes()).expect("metadata");
    let read = read_stream(&trace, &stream);
    assert_eq!(read.damage, None);
    let fields = read.events[0].fields.as_ref().expect("fields");
    let chosen = Value::Variant("first".to_owned(), Box::new(Value::Unsigned(17)));
    assert_eq!(fields.member("i"), Some(&chosen));
}

#[test]
fn blocks_may_have_all_their_attributes() {
    let metadata = r#"/* CTF 1.8 */
env {
    sysname = "a\tb\\ \"quoted\" \x41\102\?\'"; number = -0x10; octal = 010UL; character = 'A';
    length = 2; word = hello;
};
trace { major = 1; minor = 8; byte_order = network;
    uuid = "01234567-89ab-cdef-0123-456789abcdef"; };
clock {
    name = "first"; uuid = "01234567-89ab-cdef-0123-456789abcdee"; description = "a \
clock"; freq = 1000; precision = 5; offset_s = -3; offset = 1500; absolute = true;
};
clock { name = second; freq = 7; };
callsite { name = "x"; func = "f"; file = "a.c"; line = 5; ip = 0x4000; };
typealias integer { size = 8; map = clock.second.value; } := time_t;
stream { event.header := struct { time_t timestamp; }; };
event {
    name = "e"; loglevel = 13; model.emf.uri = "http://example.org/";
    fields := struct { integer { size = 8; base = b; } a[env.length]; };
};
"#
    .replace("\\\nclock", "clock");
    let text = check_against_babeltrace("blocks", &metadata, &[7, 1, 2, 21, 3, 4]);
    assert!(text.starts_with("[00:00:01.000000000]"), "{text}");
    let trace = Trace::parse(metadata.as_bytes()).expect("metadata");
    let text = |value: &str| EnvironmentValue::Text(value.to_owned());
    let expected = [
        ("sysname", text("a\tb\\ \"quoted\" AB?'")),
        ("number", EnvironmentValue::Number(-16)),
        ("octal", EnvironmentValue::Number(8)),
        ("character", EnvironmentValue::Number(65)),
        ("length", EnvironmentValue::Number(2)),
        ("word", text("hello")),
    ];
    let entries: Vec<(&str, EnvironmentValue)> = trace
        .environment_entries()
        .iter()
        .map(|(name, value)| (name.as_str(), value.clone()))
        .collect();
    assert_eq!(entries, expected);
    let [first, second] = trace.clocks() else { panic!("{:?}", trace.clocks()) };
    assert_eq!((first.name(), first.frequency(), first.precision()), ("first", 1000, 5));
    assert_eq!((first.offset(), first.is_absolute()), ((-3, 1500), true));
    assert_eq!(first.description(), Some("a clock"));
    assert_eq!(first.uuid().map(|uuid| uuid[15]), Some(0xee));
    assert_eq!((second.name(), second.uuid(), second.is_absolute()), ("second", None, false));
    let stream = &trace.streams()[0];
    assert_eq!(stream.clock_name(), Some("second"));
    let event = stream.event(0).expect("event");
    assert_eq!((event.name(), event.level()), (Some("e"), Some(13)));
    assert_eq!(event.emf_uri(), Some("http://example.org/"));
}

/// The order of blocks does not matter to babeltrace2's rules, although it does to babeltrace2's
/// parser.
#[test]
fn blocks_may_stand_in_any_order() {
    let metadata = "event { name = e; stream_id = 5; fields := struct { late_t x[env.n]; }; };
        stream { id = 5; event.header := struct { late_t timestamp; }; };
        typealias integer { size = 8; map = clock.c.value; } := late_t;
        clock { name = c; freq = 1; };
        env { n = 2; };
        trace { packet.header := struct { late_id stream_id; }; };
        typealias integer { size = 8; } := late_id;";
    let trace = Trace::parse(metadata.as_bytes()).expect("metadata");
    let read = read_stream(&trace, &[5, 1, 2, 3]);
    assert_eq!((read.events.len(), read.damage), (1, None));
}

/// Tests babeltrace2's rule for a `timestamp` without a clock: it sets the only clock, or a new one
/// of 1 GHz.
#[test]
fn times_without_a_clock_set_the_only_one() {
    let types = "typealias integer { size = 8; } := u8;
stream { event.header := struct { u8 timestamp; }; };
event { name = e; };";
    let with_one = format!("{HEAD} clock {{ name = c; freq = 1; }}; {types}");
    assert!(
        check_against_babeltrace("one-clock", &with_one, &[5]).starts_with("[00:00:05.000000000]")
    );
    let with_none = format!("{HEAD} {types}");
    assert!(
        check_against_babeltrace("no-clock", &with_none, &[5]).starts_with("[00:00:00.000000005]")
    );
    let trace = Trace::parse(with_none.as_bytes()).expect("metadata");
    assert_eq!(trace.clocks()[0].name(), "default");
}

#[test]
fn what_is_not_tsdl_is_refused_with_its_place() {
    let problem = |text: &str| {
        let error = Trace::parse(text.as_bytes()).expect_err(text);
        (error.line, error.column, error.problem)
    };
    let value = MetadataProblem::Value;
    for (text, expected) in [
        ("trace { major = 1;\n minor = 9; };", (1, 1, MetadataProblem::Version("1.9".to_owned()))),
        ("env { a = \"\\q\"; };", (1, 13, value("escape"))),
        ("clock { name = c;\n freq = 0; };", (2, 10, value("clock frequency"))),
        ("clock { freq = 1; };", (1, 1, value("clock name"))),
        ("\nclock { name = c; offset_s = 9223372036854775807; };", (2, 1, value("clock offset"))),
        ("stream { };\n stream { };", (2, 2, MetadataProblem::Duplicate("stream"))),
        (
            "event { name = a;
 fields := struct { integer { size = 8; map = clock.c.value; } x; }; };",
            (2, 21, MetadataProblem::UnknownClock("c".to_owned())),
        ),
        (
            "clock { name = c; }; clock { name = d; };
stream { event.header := struct { integer { size = 8; map = clock.c.value; } x; };
 event.context := struct { integer { size = 8; map = clock.d.value; } y; }; };",
            (2, 1, MetadataProblem::SecondClock("d".to_owned())),
        ),
        (
            "clock { name = c; }; clock { name = d; };
stream { event.header := struct { integer { size = 8; } timestamp; }; };",
            (2, 1, MetadataProblem::Unsupported("time that sets none of several clocks")),
        ),
        (
            "event { fields := struct { variant { string a; } v; }; };",
            (1, 28, MetadataProblem::Unsupported("variant without tag")),
        ),
        (
            "event { fields := struct { integer { size = 8; signed = true; } n; string a[n]; }; };",
            (1, 77, MetadataProblem::UnknownField("n".to_owned())),
        ),
        (
            "event { fields := struct { floating_point { exp_dig = 5; mant_dig = 11; } f; }; };",
            (1, 75, MetadataProblem::Unsupported("floating-point format")),
        ),
        (
            "event { fields := struct { integer { size = 0; } n; }; };",
            (1, 50, value("integer size")),
        ),
        (
            "event { fields := string; };",
            (1, 19, MetadataProblem::Unsupported("scope that is no structure")),
        ),
        (
            "struct a {",
            (1, 11, MetadataProblem::Unexpected { found: "the end".to_owned(), expected: "'}'" }),
        ),
    ] {
        assert_eq!(problem(text), expected, "{text}");
    }
    let version = Trace::parse(b"trace { major = 1; minor = 9; };").expect_err("version");
    assert!(version.to_string().contains("CTF 1.9 is not supported"), "{version}");
}

/// Clocks of few bits wrap, whatever field they are in.
#[test]
fn clocks_of_any_width_go_round() {
    let metadata = format!(
        "{HEAD} clock {{ name = c; freq = 1; }};
stream {{ event.header := struct {{ integer {{ size = 3; map = clock.c.value; }} timestamp; }}; }};
event {{ name = e; fields := struct {{ integer {{ size = 5; map = clock.c.value; }} t; }}; }};"
    );
    // Three bits of the header, then five of the payload; the next header extends the clock from
    // them.
    let stream: Vec<u8> = [(1, 9), (2, 3), (7, 7)].iter().map(|(a, b)| a | b << 3).collect();
    let text = check_against_babeltrace("wrap", &metadata, &stream);
    let trace = Trace::parse(metadata.as_bytes()).expect("metadata");
    let read = read_stream(&trace, &stream);
    let clocks: Vec<u64> = read.events.iter().map(|event| event.clock).collect();
    assert_eq!(clocks, [1, 10, 39], "{text}");
}
