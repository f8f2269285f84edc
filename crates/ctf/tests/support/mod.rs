//! Traces made by the writer: a seeded generator, and helpers to compare its traces with
//! babeltrace2.
#![allow(dead_code, reason = "each test uses a part")]

mod random;
pub(crate) mod random_types;

use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) use random::Random;
use trackway_ctf::write::{
    Contexts, Domain, INDEX_ENTRY_BYTES, PACKET_HEADER_BYTES, PacketFields, TraceDescription,
    application_tag, event_declaration, index_entry, index_header, metadata_preamble,
    packet_header,
};
use trackway_schema::context::{PROCNAME, VPID, VTID};
use trackway_schema::{EventDescription, Field, FieldKind, Label, Scalar};

/// Begin time of all test traces.
pub(crate) const START_NS: u64 = 1_000_000_000_000;

/// A folder that is removed when it goes out of scope, even if the test fails.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("trackway-ctf-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("temporary folder");
        Self(path)
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.0.join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).expect("folder in the temporary folder");
        }
        std::fs::write(path, bytes).expect("file in the temporary folder");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns babeltrace2's standard output and error for a trace, with times in UTC. Returns `None`,
/// and prints a note, if babeltrace2 is not installed.
pub(crate) fn run_babeltrace(path: &Path) -> Option<(Vec<u8>, String)> {
    let output = Command::new("babeltrace2").arg(path).env("TZ", "UTC").output();
    let Ok(output) = output else {
        // Written without a macro, because the test harness captures macro output of tests that
        // pass.
        let line = b"\nskipped, because babeltrace2 is not installed\n";
        let _ = std::io::Write::write_all(&mut std::io::stderr(), line);
        return None;
    };
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "babeltrace2 refuses {path:?}: {talk}");
    Some((output.stdout, talk))
}

pub(crate) fn trace_description(contexts: Contexts) -> TraceDescription {
    TraceDescription {
        uuid: *b"0123456789abcdef",
        hostname: "host".to_owned(),
        domain: Domain::User(1000),
        trace_name: "session".to_owned(),
        creation_datetime: "20261121T025621+0000".to_owned(),
        boot_uuid: *b"fedcba9876543210",
        clock_offset_ns: 1_795_228_670_847_582_868,
        contexts,
    }
}

pub(crate) fn event_description(name: &str, fields: Vec<(&str, FieldKind)>) -> EventDescription {
    EventDescription {
        provider: "app".to_owned(),
        name: name.to_owned(),
        level: 6,
        fields: fields
            .into_iter()
            .map(|(name, kind)| Field { name: name.to_owned(), kind })
            .collect(),
    }
}

pub(crate) const SCALARS: [Scalar; 15] = [
    Scalar::I8,
    Scalar::I16,
    Scalar::I32,
    Scalar::I64,
    Scalar::U8,
    Scalar::U16,
    Scalar::U32,
    Scalar::U64,
    Scalar::X8,
    Scalar::X16,
    Scalar::X32,
    Scalar::X64,
    Scalar::F32,
    Scalar::F64,
    Scalar::Bool,
];

/// The layout of a record's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Header {
    Compact,
    Medium,
    Extended,
}

/// Returns the shortest header that `id` and the time since the last event allow.
pub(crate) fn shortest_header(id: u32, delta: u64) -> Header {
    match id {
        _ if delta >= 1 << 27 => Header::Extended,
        0..=29 => Header::Compact,
        30..=0xffff => Header::Medium,
        _ => Header::Extended,
    }
}

pub(crate) fn push_header(record: &mut Vec<u8>, header: Header, id: u32, time: u64) {
    let low = ((time & ((1 << 27) - 1)) as u32) << 5;
    match header {
        Header::Compact => record.extend((low | id).to_le_bytes()),
        Header::Medium => {
            record.extend((low | 30).to_le_bytes());
            record.extend((id as u16).to_le_bytes());
        }
        Header::Extended => {
            record.push(31);
            record.extend(id.to_le_bytes());
            record.extend(time.to_le_bytes());
        }
    }
}

/// Writer of one stream, packet by packet.
#[derive(Default)]
pub(crate) struct StreamWriter {
    pub(crate) bytes: Vec<u8>,
    pub(crate) index: Vec<u8>,
    pub(crate) fields: PacketFields,
    records: Vec<u8>,
    last_time: u64,
}

impl StreamWriter {
    pub(crate) fn new(instance: u64) -> Self {
        let fields = PacketFields {
            stream_instance_id: instance,
            cpu_id: instance as u32,
            ..PacketFields::default()
        };
        Self { fields, index: index_header().to_vec(), ..Self::default() }
    }

    pub(crate) fn begin(&mut self, time: u64) {
        self.fields.timestamp_begin = time;
        self.last_time = time;
        self.records.clear();
    }

    pub(crate) fn record(&mut self, id: u32, time: u64, body: &[u8]) {
        let header = shortest_header(id, time - self.last_time);
        self.record_with(header, id, time, body);
    }

    pub(crate) fn record_with(&mut self, header: Header, id: u32, time: u64, body: &[u8]) {
        push_header(&mut self.records, header, id, time);
        self.records.extend_from_slice(body);
        self.last_time = time;
    }

    /// Ends the packet at `time`, with `padding` bytes after its content.
    pub(crate) fn end(&mut self, time: u64, padding: usize) {
        self.fields.timestamp_end = time;
        self.fields.content_bytes = (PACKET_HEADER_BYTES + self.records.len()) as u64;
        self.fields.packet_bytes = self.fields.content_bytes + padding as u64;
        let entry: [u8; INDEX_ENTRY_BYTES] = index_entry(self.bytes.len() as u64, &self.fields);
        self.index.extend(entry);
        self.bytes.extend(packet_header(b"0123456789abcdef", &self.fields));
        self.bytes.append(&mut self.records);
        self.bytes.resize(self.bytes.len() + padding, 0xee);
        self.fields.sequence += 1;
    }
}

/// A trace in memory.
pub(crate) struct TestTrace {
    pub(crate) metadata: String,
    pub(crate) streams: Vec<StreamWriter>,
    pub(crate) events: usize,
}

impl TestTrace {
    pub(crate) fn save(&self, folder: &Folder) {
        folder.write("metadata", self.metadata.as_bytes());
        for (number, stream) in self.streams.iter().enumerate() {
            folder.write(&format!("channel_{number}"), &stream.bytes);
            folder.write(&format!("index/channel_{number}.idx"), &stream.index);
        }
    }
}

fn random_kind(random: &mut Random) -> FieldKind {
    let scalar = SCALARS[random.next_below(15) as usize];
    match random.next_below(7) {
        0 => FieldKind::Scalar(scalar),
        1 => FieldKind::Str,
        2 => FieldKind::Text,
        3 => FieldKind::Array(scalar, 1 + random.next_below(5) as u16),
        4 => FieldKind::Sequence(scalar),
        5 => FieldKind::Strings,
        _ if scalar.is_float() => FieldKind::Scalar(scalar),
        _ => FieldKind::Enumeration(scalar, random_labels(random)),
    }
}

fn random_labels(random: &mut Random) -> Vec<Label> {
    let label = |number: u64, random: &mut Random| {
        let first = random.next_below(40) as i64 - 10;
        let name = format!("label {}", number % 4);
        Label { name, first, last: first + random.next_below(8) as i64 }
    };
    (0..1 + random.next_below(6)).map(|number| label(number, random)).collect()
}

/// Names that would be TSDL syntax errors if they were not escaped.
const NAMES: [&str; 8] = ["event", "struct", "a b", "x-y", "uint8_t", "_n_length", "n", "n"];

fn random_scalar(random: &mut Random, scalar: Scalar, body: &mut Vec<u8>) {
    let small = random.next_below(3) == 0;
    let value = if small { random.next_below(30).wrapping_sub(10) } else { random.next() };
    match scalar {
        Scalar::F32 => body.extend((value as i64 as f32 / 1000.0).to_le_bytes()),
        Scalar::F64 => body.extend(f64::from_bits(value).to_le_bytes()),
        _ => body.extend(&value.to_le_bytes()[..scalar.size_bytes()]),
    }
}

/// Appends a text that is never empty: babeltrace2 2.0.4 prints an empty string as the string
/// before it (bt_field_string_clear() sets its length but leaves the bytes).
fn random_text(random: &mut Random, body: &mut Vec<u8>) -> u32 {
    let length = 1 + random.next_below(12);
    for _ in 0..length {
        body.push(1 + random.next_below(255) as u8);
    }
    length as u32
}

fn random_body(random: &mut Random, contexts: &Contexts, event: &EventDescription) -> Vec<u8> {
    let mut body = Vec::new();
    for wanted in [VPID, VTID].map(|bit| contexts.bits & bit != 0) {
        if wanted {
            body.extend((random.next_below(70_000) as i32 - 1).to_le_bytes());
        }
    }
    if contexts.bits & PROCNAME != 0 {
        let mut name = [0_u8; 17];
        let text = b"thread'name\n-of-15";
        let length = 1 + random.next_below(16) as usize;
        name[..length].copy_from_slice(&text[..length]);
        body.extend(name);
    }
    for _ in &contexts.applications {
        let tag = random.next_below(5) as u8;
        body.push(tag);
        match tag {
            application_tag::NONE => {}
            application_tag::STRING => {
                random_text(random, &mut body);
                body.push(0);
            }
            application_tag::FLOAT => {
                body.extend((random.next_below(9) as f64 / 4.0).to_le_bytes())
            }
            _ => random_scalar(random, Scalar::U64, &mut body),
        }
    }
    for field in &event.fields {
        match &field.kind {
            FieldKind::Scalar(scalar) | FieldKind::Enumeration(scalar, _) => {
                random_scalar(random, *scalar, &mut body);
            }
            FieldKind::Str => {
                random_text(random, &mut body);
                body.push(0);
            }
            FieldKind::Text => {
                let mut text = Vec::new();
                let length = random_text(random, &mut text);
                body.extend(length.to_le_bytes());
                body.extend(text);
            }
            FieldKind::Array(scalar, length) => {
                (0..*length).for_each(|_| random_scalar(random, *scalar, &mut body));
            }
            FieldKind::Strings => {
                let length = random.next_below(4) as u32;
                body.extend(length.to_le_bytes());
                for _ in 0..length {
                    random_text(random, &mut body);
                    body.push(0);
                }
            }
            FieldKind::Sequence(scalar) => {
                let length = random.next_below(5) as u32;
                body.extend(length.to_le_bytes());
                (0..length).for_each(|_| random_scalar(random, *scalar, &mut body));
            }
        }
    }
    body
}

/// Builds a trace of all that the writer can write, equal for equal seeds: all types, contexts or
/// none, ids that need each header, several streams with many equal times, padding, empty packets,
/// losses of events and packets.
pub(crate) fn random_trace(seed: u64) -> TestTrace {
    let mut random = Random(seed);
    let contexts = Contexts {
        bits: [VPID, VTID, PROCNAME]
            .map(|bit| if random.next_below(2) == 0 { bit } else { 0 })
            .iter()
            .sum(),
        kernel: Vec::new(),
        applications: (0..random.next_below(3)).map(|number| format!("app:{number}")).collect(),
    };
    let mut metadata = metadata_preamble(&trace_description(contexts.clone()));
    let mut classes = Vec::new();
    for number in 0..1 + random.next_below(5) as u32 {
        let id = match random.next_below(3) {
            0 => number,
            1 => 30 + number,
            _ => 70_000 + number,
        };
        let count = random.next_below(7);
        let fields = (0..count)
            .map(|_| (NAMES[random.next_below(8) as usize], random_kind(&mut random)))
            .collect();
        let class = event_description(&format!("event {number}"), fields);
        metadata.push_str(&event_declaration(0, id, &class));
        classes.push((id, class));
    }
    let mut streams = Vec::new();
    let mut events = 0;
    for instance in 0..1 + random.next_below(4) {
        let mut stream = StreamWriter::new(instance);
        let mut time = START_NS + random.next_below(3);
        stream.fields.sequence = random.next_below(3);
        for _ in 0..random.next_below(5) + 1 {
            stream.begin(time);
            for _ in 0..random.next_below(12) {
                time += match random.next_below(8) {
                    0..=4 => random.next_below(3),
                    5 | 6 => random.next_below(1 << 27),
                    _ => (1 << 27) + random.next_below(1 << 30),
                };
                let (id, class) = &classes[random.next_below(classes.len() as u64) as usize];
                stream.record(*id, time, &random_body(&mut random, &contexts, class));
                events += 1;
            }
            time += random.next_below(3);
            stream.fields.events_discarded += [0, 0, 1, 7][random.next_below(4) as usize];
            stream.end(time, random.next_below(40) as usize);
            stream.fields.sequence += u64::from(random.next_below(8) == 0) * 3;
        }
        streams.push(stream);
    }
    TestTrace { metadata, streams, events }
}
