//! What numbers stand for, from what the writer says of them to the lines that show it; and that
//! nobody else sees any of it.

mod support;

use std::sync::Arc;

use support::{Folder, Made, START_NS, StreamWriter, babeltrace, description, event};
use trackway_ctf::read::{StreamDecoder, Trace, Window};
use trackway_ctf::text::{
    Csv, Json, Line, LineFormat, Pretty, PrettyOptions, Stamp, Symbolic, TraceName, utc,
};
use trackway_ctf::write::{
    Contexts, Meaning, Names, declared_type, event_declaration_meaning, metadata_preamble,
};
use trackway_schema::{EventDescription, FieldKind, Scalar};

fn table(names: &[(&str, u64)]) -> Vec<(String, u64)> {
    names.iter().map(|&(name, value)| (name.to_owned(), value)).collect()
}

/// As of open(2), with flags that others are part of.
fn open_flags() -> Meaning {
    Meaning::Names(Arc::new(Names {
        choice_mask: 3,
        choices: table(&[("O_RDONLY", 0), ("O_WRONLY", 1), ("O_RDWR", 2)]),
        flags: table(&[
            ("O_CREAT", 0o100),
            ("O_SYNC", 0o4010000),
            ("O_DSYNC", 0o10000),
            ("O_TMPFILE", 0o20200000),
            ("O_DIRECTORY", 0o200000),
            ("O_CLOEXEC", 0o2000000),
        ]),
    }))
}

fn result(is_address: bool) -> Meaning {
    let errors = table(&[("ENOENT", 2), ("EACCES", 13)]);
    let errors = Names { choice_mask: u64::MAX, choices: errors, flags: Vec::new() };
    Meaning::Result { errors: Arc::new(errors), is_address }
}

/// Of a scheduler's event: a name that is none, one for nothing, and one of the highest bit.
fn states() -> Meaning {
    let flags = table(&[("S", 1), ("a, \"b\" */", 2), ("top", 1 << 63), ("R", 0)]);
    Meaning::Names(Arc::new(Names { choice_mask: 0, choices: Vec::new(), flags }))
}

/// An event with what its fields stand for.
type Meant = (EventDescription, Vec<Option<Meaning>>);

fn of_kernel(name: &str, fields: Vec<(&str, FieldKind)>) -> EventDescription {
    EventDescription { provider: String::new(), ..event(name, fields) }
}

fn events() -> Vec<Meant> {
    let scalar = FieldKind::Scalar;
    let entry = of_kernel(
        "syscall_entry_openat",
        vec![
            ("dfd", scalar(Scalar::I32)),
            ("filename", FieldKind::Str),
            ("flags", scalar(Scalar::X32)),
            ("mode", scalar(Scalar::U16)),
        ],
    );
    let meanings = vec![Some(Meaning::Folder), None, Some(open_flags()), Some(Meaning::Octal)];
    let exit = of_kernel("syscall_exit_openat", vec![("ret", scalar(Scalar::I64))]);
    let read = of_kernel(
        "syscall_exit_mmap",
        vec![("ret", scalar(Scalar::I64)), ("buf", FieldKind::Sequence(Scalar::U8))],
    );
    let other = of_kernel(
        "sched_switch",
        vec![("prev_state", scalar(Scalar::I64)), ("dev", scalar(Scalar::U32))],
    );
    let asked = of_kernel(
        "syscall_entry_pipe2",
        vec![("flags", scalar(Scalar::I32)), ("incomplete", scalar(Scalar::X8))],
    );
    let answered = of_kernel(
        "syscall_exit_pipe2",
        vec![
            ("ret", scalar(Scalar::I64)),
            ("fildes", FieldKind::Sequence(Scalar::U8)),
            ("incomplete", scalar(Scalar::X8)),
        ],
    );
    vec![
        (entry, meanings),
        (exit, vec![Some(result(false))]),
        (read, vec![Some(result(true)), None]),
        (other, vec![Some(states()), Some(Meaning::Device)]),
        (asked, vec![None, None]),
        (answered, vec![Some(result(false)), None, None]),
    ]
}

/// Each type once, before the first event that uses it.
fn declare(text: &mut String, events: &[Meant]) {
    let mut declared = std::collections::HashSet::new();
    for (id, (event, meanings)) in events.iter().enumerate() {
        for (field, meaning) in event.fields.iter().zip(meanings) {
            let (FieldKind::Scalar(scalar), Some(meaning)) = (&field.kind, meaning) else {
                continue;
            };
            for declaration in meaning.declarations(*scalar) {
                assert_eq!(
                    declared_type(declaration.text.lines().next().expect("a line")),
                    Some(&*declaration.name)
                );
                if declared.insert(declaration.name) {
                    text.push_str(&declaration.text);
                }
            }
        }
        text.push_str(&event_declaration_meaning(0, id as u32, event, meanings));
    }
}

fn entry(dfd: i32, flags: u32, mode: u16) -> Vec<u8> {
    let mut body = dfd.to_le_bytes().to_vec();
    body.extend(b"/etc/hosts\0");
    body.extend(flags.to_le_bytes());
    body.extend(mode.to_le_bytes());
    body
}

/// Records, each with what its fields are shown as.
fn records() -> Vec<(u32, Vec<u8>, &'static str)> {
    let exit = |ret: i64| ret.to_le_bytes().to_vec();
    let mmap = |ret: i64, bytes: &[u8]| {
        let length = (bytes.len() as u32).to_le_bytes();
        [&ret.to_le_bytes()[..], &length, bytes].concat()
    };
    let switch = |state: i64, dev: u32| [&state.to_le_bytes()[..], &dev.to_le_bytes()].concat();
    vec![
        (0, entry(-100, 0o2000000, 0), r#"openat(AT_FDCWD, "/etc/hosts", O_RDONLY|O_CLOEXEC, 0)"#),
        (0, entry(3, 0o4010102, 0o644), r#"openat(3, "/etc/hosts", O_RDWR|O_CREAT|O_SYNC, 0644)"#),
        (
            0,
            entry(-1, 0o20210001, 0o7),
            r#"openat(-1, "/etc/hosts", O_WRONLY|O_DSYNC|O_TMPFILE, 07)"#,
        ),
        (
            0,
            entry(0, 0x4020_0003 | 0o200000, 0),
            r#"openat(0, "/etc/hosts", O_DIRECTORY|0x40200003, 0)"#,
        ),
        (1, exit(3), "openat = 3"),
        (1, exit(-2), "openat = -2 (ENOENT)"),
        (1, exit(-4000), "openat = -4000"),
        (1, exit(-13_000), "openat = -13000"),
        (2, mmap(0x7f00_0000_1000, &[]), "mmap = 0x7F0000001000"),
        (2, mmap(-13, &[7]), "mmap = -13 (EACCES), { buf = [ [0] = 7 ] }"),
        (3, switch(0, 8 << 20 | 17), "{ prev_state = R, dev = 8:17 }"),
        (3, switch(i64::MIN | 1, 0), "{ prev_state = S|top, dev = 0:0 }"),
        (3, switch(2, 1), r#"{ prev_state = "a, \"b\" */", dev = 0:1 }"#),
        (3, switch(4, 1), "{ prev_state = 4, dev = 0:1 }"),
        (4, vec![7, 0, 0, 0, 0], "pipe2(7)"),
        (4, vec![7, 0, 0, 0, 1], "pipe2(7), { incomplete = 0x1 }"),
        (5, [mmap(0, &[3]), vec![0]].concat(), "pipe2 = 0, { fildes = [ [0] = 3 ] }"),
        (5, [mmap(-13, &[]), vec![3]].concat(), "pipe2 = -13 (EACCES), { incomplete = 0x3 }"),
    ]
}

fn trace(with_meanings: bool) -> Made {
    let mut metadata = metadata_preamble(&description(Contexts::default()));
    let mut events = events();
    if !with_meanings {
        events.iter_mut().for_each(|(_, meanings)| meanings.clear());
    }
    declare(&mut metadata, &events);
    let mut stream = StreamWriter::new(0);
    stream.begin(START_NS);
    let records = records();
    for (number, (id, body, _)) in (0..).zip(&records) {
        stream.record(*id, START_NS + number, body);
    }
    stream.end(START_NS + 1000, 0);
    Made { metadata, streams: vec![stream], events: records.len() }
}

/// The lines of all events.
fn lines<F: LineFormat>(mut format: F, made: &Made) -> Vec<String> {
    let trace = Trace::parse(made.metadata.as_bytes()).expect("metadata");
    let mut decoder = StreamDecoder::new(&trace);
    let bytes = &made.streams[0].bytes;
    let (window, mut packet_text) = (Window::whole(bytes), Vec::new());
    let mut sink = format.packet_sink(&mut packet_text);
    decoder.begin_packet(window, bytes.len() as u64, &mut sink, |_| {}).expect("a packet");
    drop(sink);
    let stream = decoder.class().expect("a stream class");
    let mut lines = Vec::new();
    while let Some(body) = decoder.event(window).expect("a header") {
        let header = body.header;
        let line = Line {
            stamp: header.time.map(|time| Stamp { time, clock: header.clock }),
            previous: None,
            stream_text: &format.stream_text(&trace, TraceName::default(), stream),
            class_text: &format.class_text(&trace, stream, header.class),
            packet_text: &packet_text,
            prefix: None,
        };
        let mut out = Vec::new();
        format.event(&mut out, line, body).expect("a body");
        lines.push(String::from_utf8(out).expect("UTF-8"));
    }
    assert_eq!(lines.len(), made.events);
    lines
}

fn pretty() -> Pretty<impl trackway_ctf::text::Calendar> {
    Pretty::new(PrettyOptions::default(), utc)
}

#[test]
fn values_are_shown_by_what_they_stand_for() {
    for (line, (_, _, expected)) in
        lines(Symbolic::new(pretty()), &trace(true)).iter().zip(records())
    {
        let shown = line.trim_end().split_once("{ cpu_id = 0 }, ").expect("contexts").1;
        assert_eq!(shown, expected, "{line}");
    }
}

#[test]
fn json_and_csv_have_names_beside_values_when_asked() {
    let made = trace(true);
    let json = lines(Json::new(pretty()).symbolic(true), &made);
    let fields = |line: usize| -> serde_json::Value {
        let parsed: serde_json::Value = serde_json::from_str(&json[line]).expect("JSON");
        parsed["fields"].clone()
    };
    let expected = serde_json::json!({
        "dfd": { "value": -100, "labels": ["AT_FDCWD"] },
        "filename": "/etc/hosts",
        "flags": { "value": 0o2000000, "labels": ["O_RDONLY", "O_CLOEXEC"] },
        "mode": 0,
    });
    assert_eq!(fields(0), expected);
    assert_eq!(fields(4)["ret"], serde_json::json!({ "value": 3, "labels": [] }));
    assert_eq!(fields(5)["ret"], serde_json::json!({ "value": -2, "labels": ["ENOENT"] }));
    let csv = lines(Csv::new(pretty()).symbolic(true), &made);
    let flags = r#"""flags"":{""value"":524288,""labels"":[""O_RDONLY"",""O_CLOEXEC""]}"#;
    assert!(csv[0].contains(flags), "{}", csv[0]);
    let columns = ["dfd", "filename", "flags", "mode"].map(str::to_owned).to_vec();
    let csv = lines(Csv::with_columns(pretty(), columns).symbolic(true), &made);
    assert!(csv[0].ends_with(",AT_FDCWD,/etc/hosts,O_RDONLY|O_CLOEXEC,0\n"), "{}", csv[0]);
}

/// Who does not ask, or does not know of it, sees what there is without it: babeltrace2, too.
#[test]
fn nothing_else_changes() {
    let (with, without) = (trace(true), trace(false));
    assert!(with.metadata.len() > without.metadata.len());
    let plain = lines(pretty(), &with);
    assert_eq!(plain, lines(pretty(), &without));
    assert_eq!(lines(Json::new(pretty()), &with), lines(Json::new(pretty()), &without));
    assert_eq!(lines(Csv::new(pretty()), &with), lines(Csv::new(pretty()), &without));
    let folder = Folder::new("meaning");
    with.save(&folder);
    let Some((theirs, talk)) = babeltrace(&folder.0) else { return };
    assert_eq!(talk, "");
    let theirs = String::from_utf8(theirs).expect("UTF-8");
    let payload = |line: &str| line.split_once("{ cpu_id = 0 }, ").expect("contexts").1.to_owned();
    let theirs: Vec<String> = theirs.lines().map(payload).collect();
    let ours: Vec<String> = plain.iter().map(|line| payload(line.trim_end())).collect();
    assert_eq!(theirs, ours);
}

/// Names of types that lead nowhere are names of types.
#[test]
fn what_is_no_table_is_no_meaning() {
    let made = trace(true);
    let shown =
        |metadata: String| lines(Symbolic::new(pretty()), &Made { metadata, ..trace(true) });
    let folder = "typealias integer { size = 32; align = 8; signed = 1; } := trackway_folder_i32;";
    let folders = format!(" := trackway_folders_i32;\n{folder}");
    for (from, to, expected) in [
        ("enum trackway_flags_", "enum trackway_others_", "O_RDWR|0x101040"),
        ("enum trackway_choices_", "enum trackway_others_", "O_CREAT|O_SYNC|0x2"),
        (" := trackway_folder_i32;", &folders, "O_RDWR|O_CREAT|O_SYNC"),
        // The mask is the first label, whatever it is called.
        ("\"&\" = 3", "\"mask\" = 2", "O_RDWR|O_CREAT|O_SYNC"),
        ("\"O_CREAT\" = 64", "\"O_CREAT\" = -1", "O_RDWR|O_SYNC|0x40"),
    ] {
        let metadata = made.metadata.replace(from, to);
        assert_ne!(metadata, made.metadata, "{from}");
        let lines = shown(metadata);
        assert!(lines[1].contains(&format!(", {expected}, 0644)")), "{from}: {}", lines[1]);
    }
}
