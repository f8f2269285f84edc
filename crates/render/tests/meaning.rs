//! Meanings of numbers, from the writer's declarations to the displayed lines. Other readers and
//! formats show plain numbers.
//!
//! Longer than 600 lines: the expected texts are tables.

#[path = "../../ctf/tests/support/mod.rs"]
mod support;

use std::sync::Arc;

use support::{
    Folder, START_NS, StreamWriter, TestTrace, event_description, run_babeltrace, trace_description,
};
use trackway_ctf::read::{StreamDecoder, Trace, Window};
use trackway_ctf::write::{
    Contexts, Meaning, ValueNames, event_declaration_meaning, metadata_preamble,
    parse_declared_type_name,
};
use trackway_render::{
    Csv, EventEncoder, Json, Line, LineFormat, Pretty, PrettyOptions, Stamp, Symbolic, TraceName,
    utc_date_time,
};
use trackway_schema::{EventDescription, FieldKind, Label, Scalar};

fn owned_names(names: &[(&str, u64)]) -> Vec<(String, u64)> {
    names.iter().map(|&(name, value)| (name.to_owned(), value)).collect()
}

/// Returns the flags of open(2); some flags include the bits of others.
fn open_flags() -> Meaning {
    Meaning::Names(Arc::new(ValueNames {
        choice_mask: 3,
        choices: owned_names(&[("O_RDONLY", 0), ("O_WRONLY", 1), ("O_RDWR", 2)]),
        flags: owned_names(&[
            ("O_CREAT", 0o100),
            ("O_SYNC", 0o4010000),
            ("O_DSYNC", 0o10000),
            ("O_TMPFILE", 0o20200000),
            ("O_DIRECTORY", 0o200000),
            ("O_CLOEXEC", 0o2000000),
        ]),
        hidden: 0,
    }))
}

fn result_meaning(is_address: bool) -> Meaning {
    let errors = owned_names(&[("ENOENT", 2), ("EACCES", 13)]);
    let errors = ValueNames { choice_mask: u64::MAX, choices: errors, ..ValueNames::default() };
    Meaning::Result { errors: Arc::new(errors), is_address }
}

/// Returns the states of a scheduler event: a name for no bit, a name of the value 0, and a name of
/// the highest bit.
fn states_meaning() -> Meaning {
    let flags = owned_names(&[("S", 1), ("a, \"b\" */", 2), ("top", 1 << 63), ("R", 0)]);
    Meaning::Names(Arc::new(ValueNames { flags, ..ValueNames::default() }))
}

/// An event, and the meanings of its fields.
type MeaningCase = (EventDescription, Vec<Option<Meaning>>);

fn kernel_event(name: &str, fields: Vec<(&str, FieldKind)>) -> EventDescription {
    EventDescription { provider: String::new(), ..event_description(name, fields) }
}

fn event_cases() -> Vec<MeaningCase> {
    let scalar = FieldKind::Scalar;
    let entry = kernel_event(
        "syscall_entry_openat",
        vec![
            ("dfd", scalar(Scalar::I32)),
            ("filename", FieldKind::Str),
            ("flags", scalar(Scalar::X32)),
            ("mode", scalar(Scalar::U16)),
        ],
    );
    let meanings = vec![Some(Meaning::Folder), None, Some(open_flags()), Some(Meaning::Octal)];
    let exit = kernel_event("syscall_exit_openat", vec![("ret", scalar(Scalar::I64))]);
    let read = kernel_event(
        "syscall_exit_mmap",
        vec![("ret", scalar(Scalar::I64)), ("buf", FieldKind::Sequence(Scalar::U8))],
    );
    let other = kernel_event(
        "sched_switch",
        vec![("prev_state", scalar(Scalar::I64)), ("dev", scalar(Scalar::U32))],
    );
    let asked = kernel_event(
        "syscall_entry_pipe2",
        vec![("flags", scalar(Scalar::I32)), ("incomplete", scalar(Scalar::X8))],
    );
    let answered = kernel_event(
        "syscall_exit_pipe2",
        vec![
            ("ret", scalar(Scalar::I64)),
            ("fildes", FieldKind::Sequence(Scalar::U8)),
            ("incomplete", scalar(Scalar::X8)),
        ],
    );
    vec![
        (entry, meanings),
        (exit, vec![Some(result_meaning(false))]),
        (read, vec![Some(result_meaning(true)), None]),
        (other, vec![Some(states_meaning()), Some(Meaning::Device)]),
        (asked, vec![None, None]),
        (answered, vec![Some(result_meaning(false)), None, None]),
    ]
    .into_iter()
    .chain(events_with_pointers())
    .collect()
}

fn plain_names(names: &[(&str, u64)]) -> Arc<ValueNames> {
    Arc::new(ValueNames {
        choice_mask: u64::MAX,
        choices: owned_names(names),
        ..ValueNames::default()
    })
}

fn flags_meaning(names: &[(&str, u64)]) -> Meaning {
    Meaning::Names(Arc::new(ValueNames { flags: owned_names(names), ..ValueNames::default() }))
}

/// Returns system calls with data behind their arguments, and one event with addresses.
// Longer than 70 lines: a table.
fn events_with_pointers() -> Vec<MeaningCase> {
    let scalar = FieldKind::Scalar;
    let array = FieldKind::Array;
    let signals =
        || plain_names(&[("SIGINT", 2), ("SIGKILL", 9), ("SIGSTOP", 19), ("SIGRT_3", 35)]);
    let null = || Some(Meaning::Address(plain_names(&[("NULL", 0)])));
    let handler = Some(Meaning::Address(plain_names(&[("SIG_DFL", 0), ("SIG_IGN", 1)])));
    let family =
        || Some(Meaning::Names(plain_names(&[("AF_UNIX", 1), ("AF_INET", 2), ("AF_INET6", 10)])));
    let socket_of = |family: FieldKind, port| {
        vec![
            ("family", family),
            (port, scalar(Scalar::U16)),
            ("v4addr", FieldKind::Sequence(Scalar::U8)),
            ("v6addr", FieldKind::Sequence(Scalar::X8)),
            ("path", FieldKind::Strings),
        ]
    };
    let socket = |port| socket_of(scalar(Scalar::U16), port);
    // LTTng's form: the names belong to the type.
    let label = Label { name: "AF_INET".into(), first: 2, last: 2 };
    let families = || FieldKind::Enumeration(Scalar::U16, vec![label.clone()]);
    let mut bind = vec![("umyaddr", scalar(Scalar::X64))];
    bind.extend(socket_of(families(), "dport"));
    bind.extend([("addrlen", scalar(Scalar::I32)), ("incomplete", scalar(Scalar::X8))]);
    let mut named = vec![("ret", scalar(Scalar::I64))];
    named.extend(socket_of(families(), "sport"));
    let mut connect = vec![("uservaddr", scalar(Scalar::X64))];
    connect.extend(socket("dport"));
    connect.extend([("addrlen", scalar(Scalar::I32)), ("incomplete", scalar(Scalar::X8))]);
    let mut accept = vec![("ret", scalar(Scalar::I64))];
    accept.extend(socket("sport"));
    let option =
        plain_names(&[("SO_DEBUG", 1 << 32 | 1), ("TCP_NODELAY", 6 << 32 | 1), ("NO", 6 << 32)]);
    let poll = flags_meaning(&[("POLLIN", 1), ("POLLPRI", 2)]);
    let own = ValueNames {
        flags: owned_names(&[("P", 1 << 20)]),
        hidden: !(1 << 20),
        ..ValueNames::default()
    };
    vec![
        (kernel_event("syscall_entry_connect", connect), vec![null(), family()]),
        (kernel_event("syscall_exit_accept", accept), vec![Some(result_meaning(false)), family()]),
        (
            kernel_event(
                "syscall_entry_poll",
                vec![
                    ("ufds", scalar(Scalar::X64)),
                    ("ufds_fd", FieldKind::Sequence(Scalar::I32)),
                    ("ufds_events", FieldKind::Sequence(Scalar::I16)),
                    ("nfds", scalar(Scalar::U32)),
                ],
            ),
            vec![null(), None, Some(poll), None],
        ),
        (
            kernel_event(
                "syscall_entry_rt_sigaction",
                vec![
                    ("act", scalar(Scalar::X64)),
                    ("act_sa_handler", scalar(Scalar::U64)),
                    ("act_sa_mask", scalar(Scalar::U64)),
                    ("oact", scalar(Scalar::X64)),
                    ("incomplete", scalar(Scalar::X8)),
                ],
            ),
            vec![null(), handler, Some(Meaning::Signals(signals())), null(), None],
        ),
        (
            kernel_event(
                "syscall_entry_setsockopt",
                vec![
                    ("level", scalar(Scalar::I32)),
                    ("optname", scalar(Scalar::I32)),
                    ("optlen", scalar(Scalar::X64)),
                    ("optlen_value", scalar(Scalar::I32)),
                ],
            ),
            vec![None, Some(Meaning::NamesBehind(option)), null(), None],
        ),
        (
            kernel_event(
                "syscall_exit_wait4",
                vec![
                    ("ret", scalar(Scalar::I64)),
                    ("stat_addr", scalar(Scalar::I32)),
                    ("st_mode", scalar(Scalar::U32)),
                    ("rmtp_tv_sec", scalar(Scalar::I64)),
                ],
            ),
            vec![
                Some(result_meaning(false)),
                Some(Meaning::Status(signals())),
                Some(Meaning::Mode(Arc::new(ValueNames {
                    choice_mask: 0o170_000,
                    choices: owned_names(&[("S_IFREG", 0o100_000)]),
                    ..ValueNames::default()
                }))),
                None,
            ],
        ),
        (
            kernel_event(
                "made_up",
                vec![
                    ("saddr", array(Scalar::X8, 4)),
                    ("saddr_v6", array(Scalar::X8, 16)),
                    ("peer", array(Scalar::X8, 28)),
                    ("mac", array(Scalar::U8, 6)),
                    ("uuid", array(Scalar::X8, 16)),
                    ("flags", scalar(Scalar::U32)),
                ],
            ),
            vec![
                Some(Meaning::Internet),
                Some(Meaning::Internet),
                Some(Meaning::Internet),
                Some(Meaning::Hardware),
                Some(Meaning::Uuid),
                Some(Meaning::Names(Arc::new(own))),
            ],
        ),
        (kernel_event("syscall_entry_bind", bind), vec![null(), None]),
        (kernel_event("syscall_exit_getsockname", named), vec![Some(result_meaning(false)), None]),
    ]
}

/// Encodes the parts of a socket address in the recorder's order.
fn encode_socket_address(family: u16, port: u16, v4: &[u8], v6: &[u8], path: &[u8]) -> Vec<u8> {
    let sequence = |bytes: &[u8]| [&(bytes.len() as u32).to_le_bytes(), bytes].concat();
    let paths = u32::from(!path.is_empty()).to_le_bytes();
    let mut body = [family.to_le_bytes(), port.to_le_bytes()].concat();
    body.extend([sequence(v4), sequence(v6), paths.to_vec(), path.to_vec()].concat());
    body
}

/// Returns records of the events with pointers, each with the displayed text of its fields.
// Longer than 70 lines: a table.
fn records_with_pointers() -> Vec<(u32, Vec<u8>, &'static str)> {
    const LOCAL: [u8; 4] = [127, 0, 0, 1];
    let mut v6 = [0; 16];
    v6[..2].copy_from_slice(&[0x20, 1]);
    v6[15] = 0xff;
    let connect = |pointer: u64, socket: Vec<u8>, missing: u8| {
        [&pointer.to_le_bytes()[..], &socket, &16_i32.to_le_bytes(), &[missing]].concat()
    };
    let accept = |ret: i64, socket: Vec<u8>| [&ret.to_le_bytes()[..], &socket].concat();
    let poll = |pointer: u64, all: &[(i32, i16)]| {
        let length = (all.len() as u32).to_le_bytes();
        let mut body = [&pointer.to_le_bytes()[..], &length].concat();
        all.iter().for_each(|(fd, _)| body.extend(fd.to_le_bytes()));
        body.extend(length);
        all.iter().for_each(|(_, events)| body.extend(events.to_le_bytes()));
        body.extend(length);
        body
    };
    let words = |words: &[u64], rest: &[u8]| {
        let words: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        [&words, rest].concat()
    };
    let option = |level: i32, name: i32, pointer: u64, length: i32| {
        let numbers = [level.to_le_bytes(), name.to_le_bytes()].concat();
        [&numbers[..], &pointer.to_le_bytes(), &length.to_le_bytes()].concat()
    };
    let wait = |ret: i64, status: u32, mode: u32| {
        let numbers = [status.to_le_bytes(), mode.to_le_bytes()].concat();
        [&ret.to_le_bytes()[..], &numbers, &7_u64.to_le_bytes()].concat()
    };
    let made_up = |peer: &[u8], flags: u32| {
        let mut whole = [0; 28];
        whole[..peer.len()].copy_from_slice(peer);
        let uuid: Vec<u8> = (0..16).collect();
        [&LOCAL[..], &v6, &whole, &[2, 0, 94, 16, 0, 255], &uuid, &flags.to_le_bytes()].concat()
    };
    let peer = [&[2, 0, 0, 80][..], &LOCAL].concat();
    let v6_peer = [&[10, 0, 1, 187, 0, 0, 0, 0][..], &v6].concat();
    vec![
        (
            6,
            connect(64, encode_socket_address(2, 80, &LOCAL, &[], b""), 0),
            "connect({AF_INET, 127.0.0.1:80}, 16)",
        ),
        (
            6,
            connect(64, encode_socket_address(10, 443, &[], &v6, b""), 0),
            "connect({AF_INET6, [2001::ff]:443}, 16)",
        ),
        (
            6,
            connect(64, encode_socket_address(1, 0, &[], &[], b"/run/a \"b\"\0"), 0),
            r#"connect({AF_UNIX, "/run/a \"b\""}, 16)"#,
        ),
        (
            6,
            connect(64, encode_socket_address(1, 0, &[], &[], b"@hidden\0"), 0),
            r#"connect({AF_UNIX, "@hidden"}, 16)"#,
        ),
        (6, connect(64, encode_socket_address(16, 0, &[], &[], b""), 0), "connect({16}, 16)"),
        (6, connect(0, encode_socket_address(0, 0, &[], &[], b""), 0), "connect(NULL, 16)"),
        (
            6,
            connect(64, encode_socket_address(0, 0, &[], &[], b""), 1),
            "connect(0x40, 16), { incomplete = 0x1 }",
        ),
        (
            7,
            accept(3, encode_socket_address(2, 80, &LOCAL, &[], b"")),
            "accept = 3, { address = {AF_INET, 127.0.0.1:80} }",
        ),
        (7, accept(-13, encode_socket_address(2, 80, &LOCAL, &[], b"")), "accept = -13 (EACCES)"),
        (7, accept(3, encode_socket_address(0, 0, &[], &[], b"")), "accept = 3"),
        (
            8,
            poll(64, &[(3, 1), (-1, 0x13)]),
            "poll([{fd=3, events=POLLIN}, {fd=-1, events=POLLIN|POLLPRI|0x10}], 2)",
        ),
        (8, poll(64, &[]), "poll([], 0)"),
        (8, poll(0, &[]), "poll(NULL, 0)"),
        (
            9,
            words(&[64, 1, 1 << 1 | 1 << 34, 0], &[0]),
            "rt_sigaction({sa_handler=SIG_IGN, sa_mask=[INT RT_3]}, NULL)",
        ),
        (
            9,
            words(&[64, 0x7f00, !(1 << 8 | 1 << 18), 72], &[0]),
            "rt_sigaction({sa_handler=0x7F00, sa_mask=~[KILL STOP]}, 0x48)",
        ),
        (9, words(&[0, 0, 0, 0], &[0]), "rt_sigaction(NULL, NULL)"),
        (9, words(&[64, 0, 0, 0], &[1]), "rt_sigaction(0x40, NULL), { incomplete = 0x1 }"),
        (10, option(1, 1, 64, 4), "setsockopt(1, SO_DEBUG, [4])"),
        (10, option(6, 1, 0, 0), "setsockopt(6, TCP_NODELAY, NULL)"),
        (10, option(6, 0, 64, -1), "setsockopt(6, NO, [-1])"),
        (10, option(2, 1, 64, 0), "setsockopt(2, 1, [0])"),
        (10, option(6, -1, 64, 0), "setsockopt(6, -1, [0])"),
        (
            11,
            wait(9, 3 << 8, 0o100_644),
            "wait4 = 9, { stat_addr = 768 (exited 3), st_mode = S_IFREG|0644 }",
        ),
        (11, wait(9, 9, 0o755), "wait4 = 9, { stat_addr = 9 (killed by SIGKILL), st_mode = 0755 }"),
        (
            11,
            wait(9, 35 << 8 | 0x7f, 0),
            "wait4 = 9, { stat_addr = 9087 (stopped by SIGRT_3), st_mode = 0 }",
        ),
        (
            11,
            wait(9, 0x80 | 11, 0o100_000),
            "wait4 = 9, { stat_addr = 139 (killed by 11, dumped), st_mode = S_IFREG|0 }",
        ),
        (
            11,
            wait(9, 0xffff, 0o10_000),
            "wait4 = 9, { stat_addr = 65535 (continued), st_mode = 010000 }",
        ),
        // The remaining time is written only if the sleep was interrupted.
        (11, wait(-13, 0, 0), "wait4 = -13 (EACCES)"),
        (11, wait(-4, 0, 0), "wait4 = -4, { rmtp_tv_sec = 7 }"),
        (11, wait(-516, 0, 0), "wait4 = -516, { rmtp_tv_sec = 7 }"),
        (
            12,
            made_up(&peer, 3 << 20 | 7),
            "{ saddr = 127.0.0.1, saddr_v6 = 2001::ff, peer = 127.0.0.1:80, \
             mac = 02:00:5e:10:00:ff, uuid = 00010203-0405-0607-0809-0a0b0c0d0e0f, flags = P }",
        ),
        (
            12,
            made_up(&v6_peer, 7),
            "{ saddr = 127.0.0.1, saddr_v6 = 2001::ff, peer = [2001::ff]:443, \
             mac = 02:00:5e:10:00:ff, uuid = 00010203-0405-0607-0809-0a0b0c0d0e0f, flags = 0 }",
        ),
        (
            13,
            connect(64, encode_socket_address(2, 80, &LOCAL, &[], b""), 0),
            "bind({AF_INET, 127.0.0.1:80}, 16)",
        ),
        (13, connect(64, encode_socket_address(16, 0, &[], &[], b""), 0), "bind({16}, 16)"),
        (
            14,
            accept(3, encode_socket_address(2, 80, &LOCAL, &[], b"")),
            "getsockname = 3, { address = {AF_INET, 127.0.0.1:80} }",
        ),
    ]
}

/// Declares each type once, before the first event that uses it.
fn push_declarations(text: &mut String, events: &[MeaningCase]) {
    let mut declared = std::collections::HashSet::new();
    for (id, (event, meanings)) in events.iter().enumerate() {
        for (field, meaning) in event.fields.iter().zip(meanings) {
            let (Some(scalar), Some(meaning)) = (Meaning::scalar_of_field(&field.kind), meaning)
            else {
                continue;
            };
            for declaration in meaning.declarations(scalar) {
                assert_eq!(
                    parse_declared_type_name(declaration.text.lines().next().expect("a line")),
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

fn encode_openat_entry(dfd: i32, flags: u32, mode: u16) -> Vec<u8> {
    let mut body = dfd.to_le_bytes().to_vec();
    body.extend(b"/etc/hosts\0");
    body.extend(flags.to_le_bytes());
    body.extend(mode.to_le_bytes());
    body
}

/// Returns records, each with the displayed text of its fields.
fn expected_records() -> Vec<(u32, Vec<u8>, &'static str)> {
    let exit = |ret: i64| ret.to_le_bytes().to_vec();
    let mmap = |ret: i64, bytes: &[u8]| {
        let length = (bytes.len() as u32).to_le_bytes();
        [&ret.to_le_bytes()[..], &length, bytes].concat()
    };
    let switch = |state: i64, dev: u32| [&state.to_le_bytes()[..], &dev.to_le_bytes()].concat();
    vec![
        (
            0,
            encode_openat_entry(-100, 0o2000000, 0),
            r#"openat(AT_FDCWD, "/etc/hosts", O_RDONLY|O_CLOEXEC, 0)"#,
        ),
        (
            0,
            encode_openat_entry(3, 0o4010102, 0o644),
            r#"openat(3, "/etc/hosts", O_RDWR|O_CREAT|O_SYNC, 0644)"#,
        ),
        (
            0,
            encode_openat_entry(-1, 0o20210001, 0o7),
            r#"openat(-1, "/etc/hosts", O_WRONLY|O_DSYNC|O_TMPFILE, 07)"#,
        ),
        (
            0,
            encode_openat_entry(0, 0x4020_0003 | 0o200000, 0),
            r#"openat(0, "/etc/hosts", O_DIRECTORY|0x40200003, 0)"#,
        ),
        (1, exit(3), "openat = 3"),
        (1, exit(-2), "openat = -2 (ENOENT)"),
        (1, exit(-4000), "openat = -4000"),
        (1, exit(-13_000), "openat = -13000"),
        (2, mmap(0x7f00_0000_1000, &[]), "mmap = 0x7F0000001000"),
        (2, mmap(-13, &[7]), "mmap = -13 (EACCES)"),
        (3, switch(0, 8 << 20 | 17), "{ prev_state = R, dev = 8:17 }"),
        (3, switch(i64::MIN | 1, 0), "{ prev_state = S|top, dev = 0:0 }"),
        (3, switch(2, 1), r#"{ prev_state = "a, \"b\" */", dev = 0:1 }"#),
        (3, switch(4, 1), "{ prev_state = 4, dev = 0:1 }"),
        (4, vec![7, 0, 0, 0, 0], "pipe2(7)"),
        (4, vec![7, 0, 0, 0, 1], "pipe2(7), { incomplete = 0x1 }"),
        (5, [mmap(0, &[3]), vec![0]].concat(), "pipe2 = 0, { fildes = [3] }"),
        (5, [mmap(-13, &[]), vec![3]].concat(), "pipe2 = -13 (EACCES)"),
    ]
    .into_iter()
    .chain(records_with_pointers())
    .collect()
}

fn build_trace(with_meanings: bool) -> TestTrace {
    let mut metadata = metadata_preamble(&trace_description(Contexts::default()));
    let mut events = event_cases();
    if !with_meanings {
        events.iter_mut().for_each(|(_, meanings)| meanings.clear());
    }
    push_declarations(&mut metadata, &events);
    let mut stream = StreamWriter::new(0);
    stream.begin(START_NS);
    let records = expected_records();
    for (number, (id, body, _)) in (0..).zip(&records) {
        stream.record(*id, START_NS + number, body);
    }
    stream.end(START_NS + 1000, 0);
    TestTrace { metadata, streams: vec![stream], events: records.len() }
}

/// Encodes all events as lines.
fn encode_lines<F: LineFormat>(mut format: F, made: &TestTrace) -> Vec<String> {
    let trace = Trace::parse(made.metadata.as_bytes()).expect("metadata");
    let mut decoder = StreamDecoder::new(&trace);
    let bytes = &made.streams[0].bytes;
    let (window, mut packet_prefix) = (Window::whole(bytes), Vec::new());
    let mut sink = format.packet_sink(&mut packet_prefix);
    decoder.begin_packet(window, bytes.len() as u64, &mut sink, |_| {}).expect("a packet");
    drop(sink);
    let stream = decoder.class().expect("a stream class");
    let mut lines = Vec::new();
    while let Some(body) = decoder.begin_event(window).expect("a header") {
        let header = body.header;
        let line = Line {
            stamp: header.time.map(|time| Stamp { time, clock: header.clock }),
            previous: None,
            stream_prefix: &format.stream_prefix(&trace, TraceName::default(), stream),
            class_prefix: &format.class_prefix(&trace, stream, header.class),
            packet_prefix: &packet_prefix,
            prefix: None,
        };
        let mut out = Vec::new();
        format.push_event(&mut out, line, body).expect("a body");
        lines.push(String::from_utf8(out).expect("UTF-8"));
    }
    assert_eq!(lines.len(), made.events);
    lines
}

fn pretty_format() -> Pretty<impl trackway_render::Calendar> {
    Pretty::new(PrettyOptions::default(), utc_date_time)
}

#[test]
fn values_are_shown_by_what_they_stand_for() {
    for (line, (_, _, expected)) in encode_lines(Symbolic::new(pretty_format()), &build_trace(true))
        .iter()
        .zip(expected_records())
    {
        let shown = line.trim_end().split_once("{ cpu_id = 0 }, ").expect("contexts").1;
        assert_eq!(shown, expected, "{line}");
    }
}

#[test]
fn json_and_csv_have_names_beside_values_when_asked() {
    let made = build_trace(true);
    let json = encode_lines(Json::new(pretty_format()).symbolic(true), &made);
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
    let of = |event: &str| -> serde_json::Value {
        let found = json.iter().find(|line| line.contains(event)).expect("such an event");
        serde_json::from_str::<serde_json::Value>(found).expect("JSON")["fields"].clone()
    };
    // Names: by the preceding number; in a sequence; of a set; and a number that only text names.
    let option = of("entry_setsockopt")["optname"].clone();
    assert_eq!(option, serde_json::json!({ "value": 1, "labels": ["SO_DEBUG"] }));
    let events = of("entry_poll")["ufds_events"].clone();
    assert_eq!(events[0], serde_json::json!({ "value": 1, "labels": ["POLLIN"] }));
    let action = of("entry_rt_sigaction");
    assert_eq!(action["act_sa_mask"]["labels"], serde_json::json!(["SIGINT", "SIGRT_3"]));
    assert_eq!((&action["act"], &action["act_sa_handler"]), (&64.into(), &1.into()));
    let csv = encode_lines(Csv::new(pretty_format()).symbolic(true), &made);
    let flags = r#"""flags"":{""value"":524288,""labels"":[""O_RDONLY"",""O_CLOEXEC""]}"#;
    assert!(csv[0].contains(flags), "{}", csv[0]);
    let columns = ["dfd", "filename", "flags", "mode"].map(str::to_owned).to_vec();
    let csv = encode_lines(Csv::with_columns(pretty_format(), columns).symbolic(true), &made);
    assert!(csv[0].ends_with(",AT_FDCWD,/etc/hosts,O_RDONLY|O_CLOEXEC,0\n"), "{}", csv[0]);
    assert!(csv.iter().any(|line| line.ends_with(",6,TCP_NODELAY,NULL,0\n")), "{csv:?}");
}

/// Output without the option, and babeltrace2's output, do not change with meanings.
#[test]
fn nothing_else_changes() {
    let (with, without) = (build_trace(true), build_trace(false));
    assert!(with.metadata.len() > without.metadata.len());
    let plain = encode_lines(pretty_format(), &with);
    assert_eq!(plain, encode_lines(pretty_format(), &without));
    assert_eq!(
        encode_lines(Json::new(pretty_format()), &with),
        encode_lines(Json::new(pretty_format()), &without)
    );
    assert_eq!(
        encode_lines(Csv::new(pretty_format()), &with),
        encode_lines(Csv::new(pretty_format()), &without)
    );
    let folder = Folder::new("meaning");
    with.save(&folder);
    let Some((theirs, talk)) = run_babeltrace(&folder.0) else { return };
    assert_eq!(talk, "");
    let theirs = String::from_utf8(theirs).expect("UTF-8");
    let payload = |line: &str| line.split_once("{ cpu_id = 0 }, ").expect("contexts").1.to_owned();
    let theirs: Vec<String> = theirs.lines().map(payload).collect();
    let ours: Vec<String> = plain.iter().map(|line| payload(line.trim_end())).collect();
    assert_eq!(theirs, ours);
}

/// Damaged bytes and members in any order yield text or an error, never a panic.
#[test]
fn damaged_records_are_shown_as_far_as_they_can_be_read() {
    let made = build_trace(true);
    let renamed = made.metadata.replace("addrlen;", "family_1;").replace("oact;", "act_oact;");
    let mut shown = 0;
    for metadata in [&made.metadata, &renamed] {
        let trace = Trace::parse(metadata.as_bytes()).expect("metadata");
        for at in 0..made.streams[0].bytes.len() {
            let mut bytes = made.streams[0].bytes.clone();
            bytes[at] ^= 0xff;
            let mut decoder = StreamDecoder::new(&trace);
            let window = Window::whole(&bytes);
            let mut format = Symbolic::new(pretty_format());
            let mut packet_prefix = Vec::new();
            let mut sink = format.packet_sink(&mut packet_prefix);
            if decoder.begin_packet(window, bytes.len() as u64, &mut sink, |_| {}).is_err() {
                continue;
            }
            drop(sink);
            while let Ok(Some(body)) = decoder.begin_event(window) {
                let line = Line {
                    stamp: None,
                    previous: None,
                    stream_prefix: &[],
                    class_prefix: &[],
                    packet_prefix: &packet_prefix,
                    prefix: None,
                };
                let mut out = Vec::new();
                if format.push_event(&mut out, line, body).is_err() {
                    break;
                }
                shown += out.len();
            }
        }
    }
    assert!(shown > 0);
}

/// Type names that refer to no table are plain type names.
#[test]
fn what_is_no_table_is_no_meaning() {
    let made = build_trace(true);
    let shown = |metadata: String| {
        encode_lines(Symbolic::new(pretty_format()), &TestTrace { metadata, ..build_trace(true) })
    };
    let folder = "typealias integer { size = 32; align = 8; signed = 1; } := trackway_folder_i32;";
    let folders = format!(" := trackway_folders_i32;\n{folder}");
    for (from, to, expected) in [
        ("enum trackway_flags_", "enum trackway_others_", "O_RDWR|0x101040"),
        ("enum trackway_choices_", "enum trackway_others_", "O_CREAT|O_SYNC|0x2"),
        (" := trackway_folder_i32;", &folders, "O_RDWR|O_CREAT|O_SYNC"),
        // The first label is the mask only if its name is `&`.
        ("\"&\" = 3", "\"mask\" = 2", "O_RDWR|O_CREAT|O_SYNC"),
        ("\"O_CREAT\" = 64", "\"O_CREAT\" = -1", "O_RDWR|O_SYNC|0x40"),
    ] {
        let metadata = made.metadata.replace(from, to);
        assert_ne!(metadata, made.metadata, "{from}");
        let lines = shown(metadata);
        assert!(lines[1].contains(&format!(", {expected}, 0644)")), "{from}: {}", lines[1]);
    }
}
