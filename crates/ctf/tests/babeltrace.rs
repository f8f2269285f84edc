//! Comparison with babeltrace2: it must read what this crate writes, and print the same text.

mod support;

use std::path::Path;

use support::{
    Folder, Header, START_NS, StreamWriter, TestTrace, event_description, random_trace,
    run_babeltrace, trace_description,
};
use trackway_ctf::read::Trace;
use trackway_ctf::write::{Contexts, PACKET_HEADER_BYTES, event_declaration, metadata_preamble};
use trackway_reader::{DataFile, Input, Selection, Settings, print_events};
use trackway_render::{LineOutput, Pretty, PrettyOptions, utc_date_time};
use trackway_schema::context::{PROCNAME, VPID, VTID};
use trackway_schema::{FieldKind, Label, Scalar};

/// Prints a trace with our reader; returns the events and the warnings.
fn print_trace(made: &TestTrace, folder: &Path) -> (Vec<u8>, String) {
    let trace = Trace::parse(made.metadata.as_bytes()).expect("metadata");
    let streams = made.streams.iter().enumerate().map(|(number, stream)| {
        let name = folder.join(format!("channel_{number}")).display().to_string();
        DataFile::new(name, &stream.bytes[..])
    });
    let input = Input { trace, folder: String::new(), files: streams.collect() };
    let (mut output, mut warnings) = (Vec::new(), Vec::new());
    let format = Pretty::new(PrettyOptions::default(), utc_date_time);
    let settings = Settings::default();
    let summary = print_events(
        vec![input],
        &Selection::default(),
        &mut LineOutput::new(format, &mut output),
        &settings,
        &mut warnings,
    );
    let warnings = String::from_utf8(warnings).expect("UTF-8");
    assert!(summary.expect("writing to memory").is_whole, "{warnings}");
    (output, warnings)
}

/// Compares our output with babeltrace2's; returns our text.
fn check_against_babeltrace(name: &str, made: &TestTrace) -> String {
    let folder = Folder::new(name);
    made.save(&folder);
    let ours = print_trace(made, &folder.0);
    let text = String::from_utf8_lossy(&ours.0).into_owned();
    if let Some(theirs) = run_babeltrace(&folder.0) {
        let their_text = String::from_utf8_lossy(&theirs.0);
        for (our_line, their_line) in text.lines().zip(their_text.lines()) {
            assert_eq!(our_line, their_line, "{name}");
        }
        assert_eq!(ours.0, theirs.0, "{name}");
        assert_eq!(ours.1, theirs.1, "{name}");
    }
    text
}

#[test]
fn random_traces_print_as_babeltrace2_prints_them() {
    for seed in 0..80 {
        let made = random_trace(seed);
        let text = check_against_babeltrace(&format!("random-{seed}"), &made);
        assert_eq!(text.lines().count(), made.events, "seed {seed}");
    }
}

#[test]
fn all_three_headers_are_read() {
    let contexts = Contexts::default();
    let mut metadata = metadata_preamble(&trace_description(contexts));
    for id in [0, 29, 30, 65_535, 65_536, u32::MAX] {
        let class =
            event_description(&format!("id{id}"), vec![("n", FieldKind::Scalar(Scalar::U32))]);
        metadata.push_str(&event_declaration(0, id, &class));
    }
    let mut stream = StreamWriter::new(0);
    // Just below a wrap of 27 bits.
    let begin = (START_NS | ((1 << 27) - 1)) - 2;
    stream.begin(begin);
    let mut time = begin;
    for (number, (header, id, step)) in [
        (Header::Compact, 0, 0),
        (Header::Compact, 29, 1),
        (Header::Compact, 0, 5),
        (Header::Medium, 30, 0),
        (Header::Medium, 65_535, (1 << 27) - 1),
        (Header::Medium, 3 - 3, 1),
        (Header::Extended, 65_536, 1 << 27),
        (Header::Extended, u32::MAX, 1 << 40),
        (Header::Extended, 0, 1),
        (Header::Compact, 29, (1 << 27) - 1),
    ]
    .into_iter()
    .enumerate()
    {
        time += step;
        stream.record_with(header, id, time, &(number as u32).to_le_bytes());
    }
    stream.end(time, 0);
    let text = check_against_babeltrace(
        "headers",
        &TestTrace { metadata, streams: vec![stream], events: 10 },
    );
    let expected = [
        ("?.?????????", "id0", 0),
        ("0.000000001", "id29", 1),
        ("0.000000005", "id0", 2),
        ("0.000000000", "id30", 3),
        ("0.134217727", "id65535", 4),
        ("0.000000001", "id0", 5),
        ("0.134217728", "id65536", 6),
        ("1099.511627776", "id4294967295", 7),
        ("0.000000001", "id0", 8),
        ("0.134217727", "id29", 9),
    ];
    assert_eq!(text.lines().count(), expected.len());
    for (line, (delta, name, number)) in text.lines().zip(expected) {
        let rest = format!("(+{delta}) host app:{name}: {{ cpu_id = 0 }}, {{ n = {number} }}");
        assert!(line.ends_with(&rest), "{line}\nnot {rest}");
    }
}

#[test]
fn enumerations_keep_their_ranges() {
    let label = |name: &str, first, last| Label { name: name.to_owned(), first, last };
    let labels = vec![
        label("minus", -3, -1),
        label("zero", 0, 0),
        label("some", 1, 200),
        label("more", 100, i64::MAX),
        label("never", 5, 4),
        label("minus", 7, 7),
    ];
    let kinds = [Scalar::I8, Scalar::U8, Scalar::X16, Scalar::I64, Scalar::U64, Scalar::Bool];
    let fields = kinds.map(|scalar| ("e", FieldKind::Enumeration(scalar, labels.clone())));
    let mut metadata = metadata_preamble(&trace_description(Contexts::default()));
    metadata.push_str(&event_declaration(0, 0, &event_description("labels", fields.to_vec())));
    let mut stream = StreamWriter::new(3);
    stream.begin(START_NS);
    for value in [0_i64, -2, 7, 100, 127, -128, i64::MAX, i64::MIN] {
        let mut body = Vec::new();
        for scalar in kinds {
            body.extend(&value.to_le_bytes()[..scalar.size_bytes()]);
        }
        stream.record(0, START_NS, &body);
    }
    stream.end(START_NS, 5);
    let text = check_against_babeltrace(
        "labels",
        &TestTrace { metadata, streams: vec![stream], events: 8 },
    );
    let sixth = text.lines().nth(5).expect("sixth line");
    assert!(sixth.contains("e = ( <unknown> : container = -128 )"), "{sixth}");
    let second = text.lines().nth(1).expect("second line");
    assert!(second.contains("e = ( \"minus\" : container = -2 )"), "{second}");
    assert!(second.contains("e_3 = ( \"more\" : container = 0xFFFE )"), "{second}");
}

/// The rules for counting losses are in the documentation of `trackway_ctf::write`.
#[test]
fn losses_are_told_as_babeltrace2_tells_them() {
    let metadata = metadata_preamble(&trace_description(Contexts::default()));
    let metadata = metadata + &event_declaration(0, 0, &event_description("empty", vec![]));
    let mut streams = Vec::new();
    // An empty first packet makes the loss before the second countable.
    for (instance, first_is_empty) in [(0, true), (1, false)] {
        let mut stream = StreamWriter::new(instance);
        if first_is_empty {
            stream.begin(START_NS);
            stream.end(START_NS, 0);
        }
        for (number, discarded) in [(1, 5), (2, 5), (3, 6)] {
            stream.begin(START_NS + 10 * number);
            stream.record(0, START_NS + 10 * number, &[]);
            stream.fields.events_discarded = discarded;
            stream.fields.sequence += u64::from(number == 3) * 2;
            stream.end(START_NS + 10 * number + 5, 0);
        }
        streams.push(stream);
    }
    let made = TestTrace { metadata, streams, events: 6 };
    check_against_babeltrace("losses", &made);
    let (_, warnings) = print_trace(&made, Path::new("/t"));
    let starts: Vec<&str> =
        warnings.lines().map(|line| line.split(" between").next().unwrap_or_default()).collect();
    assert_eq!(
        starts,
        [
            "WARNING: Tracer discarded 5 events",
            "WARNING: Tracer may have discarded events",
            "WARNING: Tracer discarded 1 event",
            "WARNING: Tracer discarded 2 packets",
            "WARNING: Tracer discarded 1 event",
            "WARNING: Tracer discarded 2 packets",
        ]
    );
}

/// Hostile names and texts do not break out of the metadata.
#[test]
fn odd_texts_are_quoted() {
    let mut trace = trace_description(Contexts {
        bits: VPID | VTID | PROCNAME,
        kernel: Vec::new(),
        applications: vec!["a b:}; /*".into(), "a_b:}; */".into(), "_none:int".into()],
    });
    trace.hostname = "h\"o\\s\tt\n*/ \u{e9}7".to_owned();
    trace.trace_name = "}; env { a = 1; };".to_owned();
    let mut metadata = metadata_preamble(&trace);
    let odd = "} _x; /* $ ' ? ] := <unknown>";
    let class =
        event_description(odd, vec![(odd, FieldKind::Str), (odd, FieldKind::Sequence(Scalar::U8))]);
    metadata.push_str(&event_declaration(0, 0, &class));
    let mut stream = StreamWriter::new(0);
    stream.begin(START_NS);
    let mut body = vec![0; 25 + 3];
    body[8] = b'p';
    body.extend(b"x\0\x02\0\0\0\x07\x08");
    stream.record(0, START_NS, &body);
    stream.end(START_NS, 0);
    let text =
        check_against_babeltrace("odd", &TestTrace { metadata, streams: vec![stream], events: 1 });
    assert!(text.ends_with("= [ [0] = 7, [1] = 8 ] }\n"), "{text}");
}

/// babeltrace2 2.0.4 shows an empty string as the string before it; our reader shows it empty.
#[test]
fn empty_strings_are_empty() {
    let class = event_description("s", vec![("s", FieldKind::Str), ("t", FieldKind::Text)]);
    let metadata = metadata_preamble(&trace_description(Contexts::default()))
        + &event_declaration(0, 0, &class);
    let mut stream = StreamWriter::new(0);
    stream.begin(START_NS);
    stream.record(0, START_NS, b"before\0\x01\0\0\0x");
    stream.record(0, START_NS, b"\0\0\0\0\0");
    stream.end(START_NS, 0);
    let made = TestTrace { metadata, streams: vec![stream], events: 2 };
    let text = String::from_utf8(print_trace(&made, Path::new("/t")).0).expect("UTF-8");
    assert!(text.ends_with("{ s = \"\", _t_length = 0, t = \"\" }\n"), "{text}");
}

/// Builds packets of texts; `length` returns the n-th text's length.
fn build_text_trace(length: impl Fn(u32) -> u32) -> TestTrace {
    let class = event_description(
        "large",
        vec![("t", FieldKind::Text), ("n", FieldKind::Scalar(Scalar::U8))],
    );
    let metadata = metadata_preamble(&trace_description(Contexts::default()))
        + &event_declaration(0, 0, &class);
    let mut stream = StreamWriter::new(0);
    let mut time = START_NS;
    for packet in 0..3 {
        stream.begin(time);
        for number in 0..2000 {
            let length = length(number);
            let mut body = length.to_le_bytes().to_vec();
            body.resize(4 + length as usize, b'a' + (number % 26) as u8);
            body.push(packet);
            time += 1;
            stream.record(0, time, &body);
        }
        stream.end(time, 9000);
    }
    TestTrace { metadata, streams: vec![stream], events: 6000 }
}

/// Tests packets that are larger than a read window.
#[test]
fn large_packets_are_read_piece_by_piece() {
    check_against_babeltrace("large", &build_text_trace(|number| 100 + number % 500));
}

/// Tests events larger than a read window. No comparison: babeltrace2's time grows with the square
/// of a text's length.
#[test]
fn large_events_are_read_whole() {
    let length = |number: u32| if number % 999 == 5 { 700_000 } else { number };
    let text = String::from_utf8(print_trace(&build_text_trace(length), Path::new("/t")).0)
        .expect("UTF-8");
    assert_eq!(text.lines().count(), 6000);
    for (number, line) in text.lines().enumerate() {
        let number = (number % 2000) as u32;
        let quoted = line.split('"').nth(1).expect("a text in quotes");
        assert_eq!(quoted.len() as u32, length(number), "text {number}");
    }
}

/// If a packet's header lies across the end of the read window, it is read twice, but its content
/// must be shown once.
#[test]
fn packet_headers_lie_anywhere() {
    const WINDOW_BYTES: usize = 256 << 10;
    let class = event_description("e", vec![("n", FieldKind::Scalar(Scalar::U8))]);
    let metadata = metadata_preamble(&trace_description(Contexts::default()))
        + &event_declaration(0, 0, &class);
    for before in [1, 4, 40, 79, 80, 81, 83, 84, 85, 88] {
        let mut stream = StreamWriter::new(0);
        for packet in 0..2 {
            stream.begin(START_NS + packet);
            stream.record(0, START_NS + packet, &[7]);
            let content = PACKET_HEADER_BYTES + 4 + 1;
            let padding = if packet == 0 { WINDOW_BYTES - before - content } else { 0 };
            stream.end(START_NS + packet, padding);
        }
        let made = TestTrace { metadata: metadata.clone(), streams: vec![stream], events: 2 };
        let text = check_against_babeltrace(&format!("header-{before}"), &made);
        assert_eq!(text.matches("{ cpu_id").count(), 2, "{before}: {text}");
        assert!(!text.contains("{{"), "{before}: {text}");
    }
}
