//! JSON and CSV keep all decoded values: their parsed output equals the values of the value reader.

#[path = "../../ctf/tests/support/mod.rs"]
mod support;

use serde_json::{Map, Number, Value as Parsed, json};
use support::random_trace;
use trackway_ctf::Literal;
use trackway_ctf::read::{
    Event, EventClass, StreamClass, StreamDecoder, Trace, Value, Window, read_stream,
};
use trackway_render::{
    Calendar, Csv, Json, Line, LineFormat, Pretty, PrettyOptions, Stamp, TraceName, event_columns,
    utc_date_time,
};

/// Returns a text format for tests that need no time of day.
fn pretty_format() -> Pretty<impl Calendar> {
    Pretty::new(PrettyOptions::default(), utc_date_time)
}

/// Encodes the `wanted` events as lines, in the order of their bytes.
fn encode_lines<F: LineFormat>(
    mut format: F,
    trace: &Trace,
    bytes: &[u8],
    wanted: impl Fn(&EventClass) -> bool,
) -> Vec<String> {
    let mut decoder = StreamDecoder::new(trace);
    let (mut lines, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let window = Window::whole(&bytes[at..]);
        let mut packet_prefix = Vec::new();
        let mut sink = format.packet_sink(&mut packet_prefix);
        let available = (bytes.len() - at) as u64;
        let packet = decoder.begin_packet(window, available, &mut sink, |_| {}).expect("a packet");
        drop(sink);
        let stream = decoder.class().expect("a stream class");
        while let Some(body) = decoder.begin_event(window).expect("a header") {
            let header = body.header;
            if !wanted(header.class) {
                body.skip().expect("a body");
                continue;
            }
            let [stream_prefix, class_prefix] = [
                format.stream_prefix(trace, TraceName { name: "", folder: "/t" }, stream),
                format.class_prefix(trace, stream, header.class),
            ];
            let mut prefix = Literal::default();
            prefix.set(&[&stream_prefix, &class_prefix, &packet_prefix]);
            let line = Line {
                stamp: header.time.map(|time| Stamp { time, clock: header.clock }),
                previous: None,
                stream_prefix: &stream_prefix,
                class_prefix: &class_prefix,
                packet_prefix: &packet_prefix,
                prefix: Some(&prefix).filter(|prefix| prefix.len() > 30),
            };
            let mut out = Vec::new();
            format.push_event(&mut out, line, body).expect("a body");
            lines.push(String::from_utf8(out).expect("UTF-8"));
        }
        at += packet.packet_bits.map_or(available, |bits| bits / 8) as usize;
    }
    lines
}

/// Returns the JSON form of a value, by the rules of the guide.
fn value_to_json(value: &Value) -> Parsed {
    match value {
        Value::Unsigned(value) => json!(value),
        Value::Signed(value) => json!(value),
        Value::Float(value) => Number::from_f64(*value).map_or_else(
            || {
                let infinity = if *value > 0.0 { "Infinity" } else { "-Infinity" };
                json!(if value.is_nan() { "NaN" } else { infinity })
            },
            Parsed::Number,
        ),
        Value::Text(bytes) => json!(String::from_utf8_lossy(bytes)),
        Value::Labelled(value, labels) => {
            json!({ "value": value_to_json(value), "labels": labels })
        }
        Value::Array(elements) => elements.iter().map(value_to_json).collect(),
        Value::Struct(members) => {
            let members = members.iter().map(|(name, value)| (name.clone(), value_to_json(value)));
            Parsed::Object(members.collect::<Map<_, _>>())
        }
        Value::Variant(option, value) => {
            Parsed::Object([(option.clone(), value_to_json(value))].into_iter().collect())
        }
        Value::Boolean(value) => json!(value),
        Value::Nothing => Parsed::Null,
    }
}

/// Returns the JSON object of an event.
fn event_to_json(event: &Event, stream_id: u64) -> Parsed {
    let mut object = json!({
        "time": event.time,
        "timestamp": event.time.map(|ns| {
            format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
        }),
        "hostname": "host",
        "name": event.name,
        "stream": stream_id,
        "fields": event.fields.as_ref().map_or(json!({}), value_to_json),
    });
    for (name, scope) in [
        ("packet", &event.packet_context),
        ("context", &event.stream_context),
        ("event_context", &event.event_context),
    ] {
        if let Some(value) = scope {
            object[name] = value_to_json(value);
        }
    }
    object
}

fn check_json(trace: &Trace, bytes: &[u8], events: &[Event]) {
    let lines = encode_lines(Json::new(pretty_format()), trace, bytes, |_| true);
    assert_eq!(lines.len(), events.len());
    for (line, event) in lines.iter().zip(events) {
        assert_eq!(line.find('\n'), Some(line.len() - 1), "one line: {line}");
        let parsed: Parsed = serde_json::from_str(line).expect("JSON");
        let stream = &trace.streams()[0];
        let mut expected = event_to_json(event, stream.id());
        let class = stream.events().iter().find(|class| class.name() == Some(&event.name));
        if let Some(level) = class.and_then(EventClass::level) {
            assert_eq!(level, 6);
            expected["level"] = json!("INFO");
        }
        assert_eq!(parsed, expected, "{line}");
    }
}

/// Parses the records of a CSV file by RFC 4180.
fn parse_csv_records(text: &str) -> Vec<Vec<String>> {
    let (mut records, mut record, mut cell) = (Vec::new(), Vec::new(), String::new());
    let mut rest = text.chars().peekable();
    let mut is_quoted = false;
    while let Some(next) = rest.next() {
        match next {
            '"' if is_quoted && rest.next_if_eq(&'"').is_some() => cell.push('"'),
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => record.push(std::mem::take(&mut cell)),
            '\n' if !is_quoted => {
                record.push(std::mem::take(&mut cell));
                records.push(std::mem::take(&mut record));
            }
            _ => cell.push(next),
        }
    }
    assert!(!is_quoted && cell.is_empty() && record.is_empty(), "whole: {text}");
    records
}

fn encode_csv_records<F: LineFormat>(
    format: F,
    trace: &Trace,
    bytes: &[u8],
    wanted: impl Fn(&EventClass) -> bool,
) -> Vec<Vec<String>> {
    let head = String::from_utf8(format.preamble()).expect("UTF-8");
    parse_csv_records(&(head + &encode_lines(format, trace, bytes, wanted).concat()))
}

/// Returns the common cells of an event's record.
fn common_cells(event: &Event, stream_id: u64) -> [String; 7] {
    let cpu = event.packet_context.as_ref().and_then(|context| context.member("cpu_id"));
    [
        event.time.map_or(String::new(), |time| time.to_string()),
        event.name.clone(),
        "host".to_owned(),
        String::new(),
        String::new(),
        stream_id.to_string(),
        cpu.map_or(String::new(), |cpu| value_to_json(cpu).to_string()),
    ]
}

fn check_csv(trace: &Trace, bytes: &[u8], events: &[Event]) {
    let stream_id = trace.streams()[0].id();
    let records = encode_csv_records(Csv::new(pretty_format()), trace, bytes, |_| true);
    let head = "time,name,hostname,procname,vpid,stream,cpu_id,context,event_context,fields";
    assert_eq!(records[0].join(","), head);
    assert_eq!(records.len(), events.len() + 1);
    for (record, event) in records[1..].iter().zip(events) {
        assert_eq!(record[..7], common_cells(event, stream_id));
        assert_eq!(record.len(), 10);
        let scopes = [&event.stream_context, &event.event_context, &event.fields];
        for (cell, scope) in record[7..].iter().zip(scopes) {
            let parsed: Option<Parsed> =
                (!cell.is_empty()).then(|| serde_json::from_str(cell).expect("JSON"));
            assert_eq!(parsed, scope.as_ref().map(value_to_json), "{record:?}");
        }
    }
}

/// Checks the cell of a single value.
fn check_cell(cell: &str, value: &Value) {
    match value {
        Value::Text(bytes) => assert_eq!(cell, String::from_utf8_lossy(bytes)),
        Value::Float(value) if value.is_nan() => assert_eq!(cell, "NaN"),
        // Python's parsing of floats.
        Value::Float(value) => {
            let parsed: f64 = cell.replace("Infinity", "inf").parse().expect("a number");
            assert_eq!(parsed.to_bits(), value.to_bits());
        }
        Value::Labelled(_, labels) if labels.len() == 1 => assert_eq!(cell, labels[0]),
        Value::Labelled(value, _) => check_cell(cell, value),
        _ => {
            let parsed: Parsed = serde_json::from_str(cell).expect("JSON");
            assert_eq!(parsed, value_to_json(value));
        }
    }
}

fn struct_members(scope: Option<&Value>) -> Vec<(String, Value)> {
    match scope {
        Some(Value::Struct(members)) => members.clone(),
        _ => Vec::new(),
    }
}

fn check_columns(trace: &Trace, bytes: &[u8], events: &[Event]) {
    let stream: &StreamClass = &trace.streams()[0];
    for class in stream.events() {
        let columns = event_columns(stream, class).expect("only structures");
        let format = Csv::with_columns(pretty_format(), columns.clone());
        let records = encode_csv_records(format, trace, bytes, |other| other.id() == class.id());
        assert_eq!(records[0][7..], columns);
        let own: Vec<&Event> =
            events.iter().filter(|event| Some(event.name.as_str()) == class.name()).collect();
        assert_eq!(records.len(), own.len() + 1);
        for (record, event) in records[1..].iter().zip(own) {
            assert_eq!(record[..7], common_cells(event, stream.id()));
            let scopes = [&event.stream_context, &event.event_context, &event.fields];
            let values: Vec<(String, Value)> =
                scopes.into_iter().flat_map(|scope| struct_members(scope.as_ref())).collect();
            assert_eq!(record.len(), 7 + values.len(), "{record:?}");
            for ((cell, column), (name, value)) in record[7..].iter().zip(&columns).zip(&values) {
                assert!(column == name || column.ends_with(&format!(".{name}")), "{column}");
                check_cell(cell, value);
            }
        }
    }
}

#[test]
fn random_traces_come_back_from_every_format() {
    let mut checked = 0;
    for seed in 0..60 {
        let made = random_trace(seed);
        let trace = Trace::parse(made.metadata.as_bytes()).expect("metadata");
        for stream in &made.streams {
            let read = read_stream(&trace, &stream.bytes);
            assert_eq!(read.damage, None);
            check_json(&trace, &stream.bytes, &read.events);
            check_csv(&trace, &stream.bytes, &read.events);
            check_columns(&trace, &stream.bytes, &read.events);
            checked += read.events.len();
        }
    }
    assert!(checked > 1000, "{checked} events");
}

/// Features that our own traces lack: nested structures, variants, several contexts, repeated
/// names, no clock.
const NESTED: &str = r#"/* CTF 1.8 */
typealias integer { size = 8; align = 8; } := u8;
typealias integer { size = 8; align = 8; signed = true; } := i8;
typealias integer { size = 16; align = 8; } := u16;
trace { major = 1; minor = 8; byte_order = le; };
env { hostname = "host"; };
stream {
    packet.context := struct { u16 content_size; u16 packet_size; u8 cpu_id; u8 other; };
    event.header := struct { u8 id; };
    event.context := struct { u8 n; };
};
event {
    name = "nested, \"event\"";
    id = 7;
    context := struct { u8 n; string s; };
    fields := struct {
        enum : u8 { small, large } tag;
        variant <tag> { struct { u8 x; struct { i8 y; } within; } small; string large; } v;
        struct { u8 time; u8 pair[2]; } parts[2];
        struct { } nothing;
    };
};
"#;

#[test]
fn structures_and_variants_have_their_form() {
    let trace = Trace::parse(NESTED.as_bytes()).expect("metadata");
    let events = [
        &b"\x07\x01\x02a,b\0\x00\x05\xff\x01\x02\x03\x04\x05\x06"[..],
        b"\x07\x01\x02\0\x01\xff\0\x01\x02\x03\x04\x05\x06",
    ]
    .concat();
    let bits = (6 + events.len() as u16) * 8;
    let mut bytes = [bits.to_le_bytes(), bits.to_le_bytes(), [3, 9]].concat();
    bytes.extend(events);
    let read = read_stream(&trace, &bytes);
    assert_eq!((read.damage.as_ref(), read.events.len()), (None, 2));
    check_json(&trace, &bytes, &read.events);
    check_csv(&trace, &bytes, &read.events);
    check_columns(&trace, &bytes, &read.events);
    let json = encode_lines(Json::new(pretty_format()), &trace, &bytes, |_| true);
    assert_eq!(
        json[0],
        "{\"time\":null,\"timestamp\":null,\"name\":\"nested, \\\"event\\\"\",\
         \"hostname\":\"host\",\"stream\":0,\"packet\":{\"cpu_id\":3,\"other\":9},\
         \"context\":{\"n\":1},\"event_context\":{\"n\":2,\"s\":\"a,b\"},\
         \"fields\":{\"tag\":{\"value\":0,\"labels\":[\"small\"]},\
         \"v\":{\"small\":{\"x\":5,\"within\":{\"y\":-1}}},\
         \"parts\":[{\"time\":1,\"pair\":[2,3]},{\"time\":4,\"pair\":[5,6]}],\"nothing\":{}}}\n"
    );
    let class = &trace.streams()[0].events()[0];
    let columns = event_columns(&trace.streams()[0], class).expect("only structures");
    assert_eq!(columns.join(" "), "n event_context.n s tag v parts nothing");
}

/// Members whose names are shown without their underscore; one of them then equals another name.
const UNDERSCORES: &str = r#"/* CTF 1.8 */
typealias integer { size = 8; align = 8; } := u8;
trace {
    major = 1; minor = 8; byte_order = le;
    packet.header := struct { integer { size = 32; align = 8; } magic; };
};
stream { packet.context := struct { integer { size = 32; align = 8; } packet_size; }; };
event { name = "e"; loglevel = 1234; fields := struct { u8 a; u8 _a; u8 __a; u8 _b; u8 c; }; };
"#;

#[test]
fn names_that_differ_in_an_underscore_alone_stay_apart() {
    let trace = Trace::parse(UNDERSCORES.as_bytes()).expect("metadata");
    let bytes = [&[0xc1, 0x1f, 0xfc, 0xc1, 8 * 13, 0, 0, 0][..], &[1, 2, 3, 4, 5]].concat();
    let [line] = &encode_lines(Json::with_traces(pretty_format()), &trace, &bytes, |_| true)[..]
    else {
        panic!("one event");
    };
    let start =
        r#"{"time":null,"timestamp":null,"name":"e","level":"1234","trace":"/t","stream":0,"#;
    assert!(line.starts_with(start), "{line}");
    assert!(line.ends_with("\"fields\":{\"a\":1,\"_a\":2,\"__a\":3,\"b\":4,\"c\":5}}\n"), "{line}");
    let stream = &trace.streams()[0];
    let columns = event_columns(stream, &stream.events()[0]).expect("a structure");
    assert_eq!(columns, ["a", "_a", "__a", "b", "c"]);
}

/// CTF 2 shows names unchanged.
#[test]
fn names_of_ctf_2_are_shown_as_they_are() {
    let member = |name: &str| {
        format!(
            r#"{{"name":"{name}","field-class":{{"type":"fixed-length-unsigned-integer",
            "length":8,"byte-order":"little-endian"}}}}"#
        )
    };
    let members = ["x", "_x", "__x"].map(member).join(",");
    let fragments = [
        r#"{"type":"preamble","version":2}"#.to_owned(),
        r#"{"type":"data-stream-class"}"#.to_owned(),
        format!(
            r#"{{"type":"event-record-class","name":"e","payload-field-class":
            {{"type":"structure","member-classes":[{members}]}}}}"#
        ),
    ];
    let metadata: String = fragments.iter().map(|text| format!("\u{1e}{text}\n")).collect();
    let trace = Trace::parse(metadata.as_bytes()).expect("metadata");
    let [line] = &encode_lines(Json::new(pretty_format()), &trace, &[1, 2, 3], |_| true)[..] else {
        panic!("one event");
    };
    assert!(line.ends_with("{\"x\":1,\"_x\":2,\"__x\":3}}\n"), "{line}");
    let stream = &trace.streams()[0];
    let columns = event_columns(stream, &stream.events()[0]).expect("a structure");
    assert_eq!(columns, ["x", "_x", "__x"]);
}
