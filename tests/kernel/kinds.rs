//! Kinds of fields: each kind in the running kernel's events is recorded and printed.
//!
//! Most events cannot be caused at will: the machine lacks the disk, network or fault. But the BPF
//! program that records an event only reads the record of its tracepoint. So the test makes a
//! record with different bytes in each field, and runs the program by BPF_PROG_TEST_RUN as a
//! program of a raw tracepoint, which gets a context of up to 96 bytes. Longer records are made
//! field by field, until each kind has been covered. The recorded events become a trace. `trackway
//! print` (and babeltrace2, if it is installed) must print this trace according to the bytes, by
//! the rules of C.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::process::Command;

use trackway_ctf::write::{
    Contexts, Domain, PACKET_HEADER_BYTES, PacketFields, TraceDescription, event_declaration,
    metadata_preamble, packet_header,
};
use trackway_kernel::bpf_program::buffers::{BufferMode, Buffers};
use trackway_kernel::bpf_program::codegen::{EventNumber, ProgramMaps, generate_program};
use trackway_kernel::bpf_program::layout::{BufferLayout, LEVELS};
use trackway_kernel::bpf_program::plan::EventPlan;
use trackway_kernel::catalogue::Catalogue;
use trackway_kernel::catalogue::model::{
    Event, Field, FieldShape, Location, Meaning, Phase, Pointee, Source, Symbols,
};
use trackway_ring::Drained;
use trackway_schema::{EventDescription, FieldKind, Scalar};
use trackway_tests::{Fixture, has, is_root, report_skipped};

/// Most bytes of the context of a raw tracepoint's program in a test run.
const CONTEXT_BYTES_MAX: usize = 96;
/// Offset of a tracepoint's own fields. The fields before it are common to all tracepoints.
const FIELDS_OFFSET: u32 = 8;
/// Additional field of system calls with pointer arguments.
const INCOMPLETE_FIELD: &str = "incomplete";
/// String to which pointers refer.
const POINTED_TEXT: &str = "of the program";

/// Operation and flags of a block request, and LTTng's value for them.
const REQUEST_LETTERS: &[u8] = b"FWFM\0";
const REQUEST_FLAGS: &str = "0x641";

/// Attributes of BPF_PROG_LOAD.
#[repr(C)]
#[derive(Default)]
struct ProgramLoad {
    kind: u32,
    instructions: u32,
    code: u64,
    license: u64,
    log: [u64; 2],
    rest: [u64; 6],
}

/// Attributes of BPF_PROG_TEST_RUN.
#[repr(C)]
#[derive(Default)]
struct ProgramTestRun {
    program: u32,
    answer: u32,
    sizes: [u32; 2],
    data: [u64; 2],
    repeat: [u32; 2],
    context_bytes: u32,
    context_out_bytes: u32,
    context: u64,
    context_out: u64,
    rest: [u32; 4],
}

fn call_bpf<T>(command: i32, attribute: &mut T) -> io::Result<i32> {
    let bytes = size_of::<T>();
    // SAFETY: the attribute has the passed length; its addresses are of data that outlives the
    // call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attribute, bytes) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

/// Runs a program once, with this record.
fn test_run_program(code: &[u8], record: &[u8]) -> io::Result<()> {
    const PROG_LOAD: i32 = 5;
    const PROG_TEST_RUN: i32 = 10;
    const RAW_TRACEPOINT: u32 = 17;
    const LICENSE: &[u8] = b"Dual MIT/GPL\0";
    let mut load = ProgramLoad {
        kind: RAW_TRACEPOINT,
        instructions: (code.len() / 8) as u32,
        code: code.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        ..ProgramLoad::default()
    };
    // SAFETY: bpf(2) has just opened the descriptor, and no other code owns it.
    let program = unsafe { OwnedFd::from_raw_fd(call_bpf(PROG_LOAD, &mut load)?) };
    let mut run = ProgramTestRun {
        program: std::os::fd::AsRawFd::as_raw_fd(&program).cast_unsigned(),
        context_bytes: record.len() as u32,
        context: record.as_ptr() as u64,
        ..ProgramTestRun::default()
    };
    call_bpf(PROG_TEST_RUN, &mut run).map(drop)
}

/// Returns a key that distinguishes fields that are read or printed differently.
fn field_shape_key(field: &Field) -> String {
    let kind = match field.kind {
        FieldShape::Integer(scalar) => format!("integer {scalar:?}"),
        FieldShape::Array(scalar, _) => format!("array of {scalar:?}"),
        FieldShape::Text(_) => "text in an array".to_owned(),
        FieldShape::Bytes(_) => "bytes".to_owned(),
        FieldShape::Dynamic(scalar, location) => {
            format!("dynamic array of {scalar:?}, {location:?}")
        }
        FieldShape::DynamicText(location) => format!("dynamic text, {location:?}"),
        FieldShape::Bitmask(location) => format!("set of bits, {location:?}"),
        FieldShape::Trailing(scalar) => format!("trailing {scalar:?}"),
        FieldShape::TrailingText => "trailing text".to_owned(),
        FieldShape::RequestFlags(_) => "what a request is to do".to_owned(),
    };
    let meaning = format!("{:?}", field.meaning);
    let meaning = meaning.split(['(', ' ']).next().unwrap_or_default().to_owned();
    let text = if field.pointee == Some(Pointee::Text) { ", of text" } else { "" };
    format!("{kind}, {meaning}{text}")
}

/// Generator of bytes that differ from field to field.
struct ByteGenerator(u8);

impl ByteGenerator {
    fn byte(&mut self) -> u8 {
        self.0 = self.0.wrapping_mul(5).wrapping_add(113);
        self.0
    }

    fn letter(&mut self) -> u8 {
        b'a' + self.byte() % 26
    }
}

/// Returns a record in the layout of its tracepoint; `None` if it would be too long, or its layout
/// is unknown.
fn make_record(event: &Event, made: &mut ByteGenerator, text: u64) -> Option<Vec<u8>> {
    let end = event.fields.iter().map(|field| field.offset + field.size).max()?;
    let mut record = vec![0; (end as usize).max(FIELDS_OFFSET as usize)];
    for field in &event.fields {
        let (at, size) = (field.offset as usize, field.size as usize);
        let bytes = match field.kind {
            FieldShape::Integer(_) if points_to_text(event, field) => text.to_le_bytes().to_vec(),
            FieldShape::Integer(_) => make_integer(field, size, made),
            FieldShape::Array(..) | FieldShape::Bytes(_) => {
                (0..size).map(|_| made.byte()).collect()
            }
            // The letters of the field are placed elsewhere.
            FieldShape::RequestFlags(_) => continue,
            FieldShape::Text(_) if field.name == "rwbs" => {
                let mut text = REQUEST_LETTERS.to_vec();
                text.resize(size, b'S');
                text
            }
            FieldShape::Text(_) => {
                let letters = size.saturating_sub(1).min(5);
                let mut text: Vec<u8> = (0..letters).map(|_| made.letter()).collect();
                // The bytes after the NUL are not part of the text.
                text.push(0);
                text.resize(size, b'?');
                text
            }
            FieldShape::DynamicText(location) => {
                let data = [made.letter(), made.letter(), made.letter(), 0];
                append_dynamic_data(&mut record, field, location, &data)?
            }
            FieldShape::Dynamic(scalar, location) => {
                let data: Vec<u8> = (0..2 * scalar.size_bytes()).map(|_| made.byte()).collect();
                append_dynamic_data(&mut record, field, location, &data)?
            }
            FieldShape::Bitmask(location) => {
                let data: Vec<u8> = (0..8).map(|_| made.byte()).collect();
                append_dynamic_data(&mut record, field, location, &data)?
            }
            FieldShape::Trailing(_) | FieldShape::TrailingText => return None,
        };
        record.get_mut(at..at + size)?.copy_from_slice(bytes.get(..size)?);
    }
    // The kernel requires at least as many bytes as the program reads.
    record.resize(record.len().next_multiple_of(8), 0);
    (record.len() <= CONTEXT_BYTES_MAX).then_some(record)
}

fn points_to_text(event: &Event, field: &Field) -> bool {
    let is_entry = matches!(event.source, Source::Syscall { phase: Phase::Enter, .. });
    is_entry && field.size == 8 && field.pointee == Some(Pointee::Text)
}

/// Returns one of the field's named values, if there are any; otherwise any value.
fn make_integer(field: &Field, size: usize, made: &mut ByteGenerator) -> Vec<u8> {
    let random: Vec<u8> = (0..size).map(|_| made.byte()).collect();
    let Meaning::Symbols(symbols) = &field.meaning else { return random };
    let Symbols { choices, .. } = symbols.as_ref();
    let chosen = choices.get(usize::from(made.byte()) % choices.len().max(1));
    chosen.map_or(random, |symbol| symbol.value.to_le_bytes()[..size.min(8)].to_vec())
}

/// Appends data to a record, and returns its location.
fn append_dynamic_data(
    record: &mut Vec<u8>,
    field: &Field,
    location: Location,
    data: &[u8],
) -> Option<Vec<u8>> {
    record.resize(record.len().next_multiple_of(8), 0);
    let from = match location {
        Location::Absolute => 0,
        Location::Relative => field.offset as usize + 4,
    };
    let offset = record.len() - from;
    record.extend_from_slice(data);
    let word = u32::try_from(data.len() << 16 | offset).ok()?;
    Some(word.to_le_bytes().to_vec())
}

/// Formats the bytes of a scalar.
fn format_scalar(scalar: Scalar, bytes: &[u8]) -> String {
    let mut all = [0; 8];
    let size = scalar.size_bytes();
    all[..size].copy_from_slice(&bytes[..size]);
    let value = u64::from_le_bytes(all);
    let unused = 64 - 8 * size as u32;
    if scalar.is_hexadecimal() {
        format!("0x{value:X}")
    } else if scalar.is_signed() {
        format!("{}", (value << unused).cast_signed() >> unused)
    } else {
        format!("{value}")
    }
}

fn format_elements(scalar: Scalar, bytes: &[u8]) -> String {
    let all = bytes.chunks_exact(scalar.size_bytes()).enumerate();
    let all: Vec<String> =
        all.map(|(index, one)| format!("[{index}] = {}", format_scalar(scalar, one))).collect();
    format!("[ {} ]", all.join(", "))
}

/// Returns the expected output of a record's fields.
fn format_expected_fields(event: &Event, staged: &EventPlan, record: &[u8]) -> String {
    let is_there = |field: &&Field| !staged.omitted_fields.contains(&field.name);
    let fields = event.fields.iter().filter(is_there).zip(&staged.description.fields);
    let mut names = FieldNames::default();
    let shown: Vec<String> = fields
        .map(|(field, recorded)| {
            let at = field.offset as usize;
            let own = &record[at..at + field.size as usize];
            let dynamic = |location: Location| {
                let word = u32::from_le_bytes(own.try_into().expect("four bytes"));
                let base = if location == Location::Relative { at + 4 } else { 0 };
                let from = base + (word & 0xffff) as usize;
                &record[from..from + (word >> 16) as usize]
            };
            let until_nul = |bytes: &[u8]| {
                let text = bytes.split(|byte| *byte == 0).next().expect("a first part");
                format!("\"{}\"", String::from_utf8_lossy(text))
            };
            let value = match (field.kind, &recorded.kind) {
                _ if points_to_text(event, field) => format!("\"{POINTED_TEXT}\""),
                (FieldShape::Integer(_), FieldKind::Scalar(scalar)) => format_scalar(*scalar, own),
                (FieldShape::Array(..) | FieldShape::Bytes(_), FieldKind::Array(scalar, _)) => {
                    format_elements(*scalar, own)
                }
                (FieldShape::Text(_), FieldKind::Str) => until_nul(own),
                (FieldShape::RequestFlags(_), FieldKind::Scalar(_)) => REQUEST_FLAGS.to_owned(),
                (FieldShape::DynamicText(location), FieldKind::Str) => until_nul(dynamic(location)),
                (
                    FieldShape::Dynamic(_, location) | FieldShape::Bitmask(location),
                    FieldKind::Sequence(scalar),
                ) => {
                    let data = dynamic(location);
                    let length = data.len() / scalar.size_bytes();
                    let name = names.add(&format!("_{}_length", recorded.name));
                    let elements = format_elements(*scalar, data);
                    return format!(
                        "{name} = {length}, {} = {elements}",
                        names.add(&recorded.name)
                    );
                }
                (kind, recorded) => panic!("{kind:?} as {recorded:?}"),
            };
            format!("{} = {value}", names.add(&recorded.name))
        })
        .collect();
    // The field lists arguments that could not be read: none here.
    let has_more =
        staged.description.fields.last().is_some_and(|last| last.name == INCOMPLETE_FIELD);
    let shown: Vec<String> =
        shown.into_iter().chain(has_more.then(|| format!("{INCOMPLETE_FIELD} = 0x0"))).collect();
    if shown.is_empty() { "{ }".to_owned() } else { format!("{{ {} }}", shown.join(", ")) }
}

/// Names of fields in a trace; a repeated name gets a number.
#[derive(Default)]
struct FieldNames(BTreeSet<String>);

impl FieldNames {
    fn add(&mut self, name: &str) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let name: String = name.chars().map(plain).collect();
        let free = (2..).map(|number| format!("{name}_{number}"));
        let mut all = std::iter::once(name.clone()).chain(free);
        let free = all.find(|name| !self.0.contains(name)).expect("one is free");
        self.0.insert(free.clone());
        free
    }
}

/// Writes the contents of the buffers as a trace.
fn write_trace(fixture: &Fixture, buffers: &Buffers, events: &[EventDescription]) {
    let folder = fixture.path("trace");
    fs::create_dir(&folder).expect("a folder");
    let uuid = [7; 16];
    let mut metadata = metadata_preamble(&TraceDescription {
        uuid,
        hostname: "here".into(),
        domain: Domain::Kernel { release: "made up".into(), remarks: Vec::new() },
        trace_name: "kinds".into(),
        creation_datetime: "20260101T000000+0000".into(),
        boot_uuid: [8; 16],
        clock_offset_ns: 0,
        contexts: Contexts {
            kernel: trackway_kernel::bpf_program::contexts::Contexts::default().fields(),
            ..Contexts::default()
        },
    });
    for (id, event) in (0..).zip(events) {
        metadata += &event_declaration(0, id, event);
    }
    fs::write(folder.join("metadata"), metadata).expect("metadata");
    for cpu in 0..buffers.cpus() {
        for level in 0..LEVELS {
            let region = buffers.region(cpu, level).expect("it is there");
            let snapshot = region.snapshot().expect("it makes sense");
            let mut drained = Drained::default();
            let mut stream = Vec::new();
            while let Some(piece) =
                region.next_piece(buffers, &drained, &snapshot, true).expect("a piece")
            {
                let mut bytes = vec![0; (piece.end - piece.start) as usize];
                region.copy(buffers, &piece, &mut bytes).expect("its bytes");
                let content_bytes = (PACKET_HEADER_BYTES + bytes.len()) as u64;
                stream.extend_from_slice(&packet_header(
                    &uuid,
                    &PacketFields {
                        timestamp_begin: piece.begin_ts,
                        timestamp_end: piece.end_ts,
                        content_bytes,
                        packet_bytes: content_bytes,
                        cpu_id: cpu as u32,
                        stream_instance_id: (cpu * LEVELS + level) as u64,
                        ..PacketFields::default()
                    },
                ));
                stream.extend_from_slice(&bytes);
                if piece.resume == drained.position {
                    break;
                }
                drained = Drained {
                    position: piece.resume,
                    last_ts: piece.end_ts,
                    events: piece.events,
                    ..drained
                };
            }
            if !stream.is_empty() {
                fs::write(folder.join(format!("kernel{level}_{cpu}")), stream).expect("a stream");
            }
        }
    }
}

/// Returns an event with only this field.
fn event_with_field(event: &Event, field: &Field) -> Event {
    let field = Field { offset: FIELDS_OFFSET, ..field.clone() };
    Event { fields: vec![field], ..event.clone() }
}

/// MAKE a record of each event of this kernel that fits, and of each kind of field that is then
/// still missing. EXPECT each record to be recorded and printed according to its bytes.
// Longer than 70 lines: a table.
#[test]
fn every_kind_of_field_is_recorded_and_printed() {
    let fixture = Fixture::new("kernel-kinds");
    if !is_root() {
        return report_skipped("only root records the kernel's events");
    }
    let catalogue = match Catalogue::open() {
        Ok(catalogue) => catalogue,
        Err(error) => return report_skipped(error.to_string()),
    };
    let mut all = catalogue.events(catalogue.names()).events;
    // Other targets of system call pointers are no kind of the kernel's formats.
    for field in all.iter_mut().flat_map(|event| &mut event.fields) {
        field.pointee.take_if(|behind| *behind != Pointee::Text);
    }
    let text = CString::new(POINTED_TEXT).expect("text");
    let mut made = ByteGenerator(1);
    let mut missing: BTreeMap<String, Event> = BTreeMap::new();
    let mut cases: Vec<(Event, Vec<u8>)> = Vec::new();
    let mut kinds = BTreeSet::new();
    for event in all.iter().filter(|event| event.id.is_some()) {
        let record = make_record(event, &mut made, text.as_ptr() as u64);
        for field in &event.fields {
            match record {
                Some(_) => drop(kinds.insert(field_shape_key(field))),
                None => drop(
                    missing
                        .entry(field_shape_key(field))
                        .or_insert_with(|| event_with_field(event, field)),
                ),
            }
        }
        cases.extend(record.map(|record| (event.clone(), record)));
    }
    for (key, event) in missing.into_iter().filter(|(key, _)| !kinds.contains(key)) {
        let made = make_record(&event, &mut made, text.as_ptr() as u64);
        let made = made.unwrap_or_else(|| panic!("{key}: {event:?} cannot be made up"));
        cases.push((event, made));
    }
    let layout = BufferLayout::new(16, 5, cases.len()).expect("a layout");
    let buffers = match Buffers::new(layout, configured_cpus(), BufferMode::Discard) {
        Ok(buffers) => buffers,
        Err(error) => return report_skipped(format!("the kernel gives no BPF: {error}")),
    };
    let (mut descriptions, mut lines) = (Vec::new(), Vec::new());
    let mut shown = BTreeSet::new();
    for (number, (event, bytes)) in cases.iter().enumerate() {
        let staged = EventPlan::from_record(event, 3000);
        let code = generate_program(
            &staged,
            &layout,
            ProgramMaps { buffers_fd: buffers.map_fd(), scope: None },
            EventNumber { id: number as u16, index: number },
        );
        let code = code.expect("it fits");
        test_run_program(&code, bytes)
            .unwrap_or_else(|error| panic!("{}: {error}", event.full_name()));
        let is_recorded = |field: &&Field| !staged.omitted_fields.contains(&field.name);
        shown.extend(event.fields.iter().filter(is_recorded).map(field_shape_key));
        let name = staged.description.name.clone();
        lines.push((name, format_expected_fields(event, &staged, bytes)));
        descriptions.push(staged.description);
    }
    write_trace(&fixture, &buffers, &descriptions);
    let printed = fixture.print(&fixture.path("trace"));
    assert_eq!(printed.lines().count(), lines.len());
    for (line, (name, fields)) in printed.lines().zip(&lines) {
        let (head, found) = line.split_once("}, { tid = ").expect("a thread");
        let (_, found) = found.split_once(" }, ").expect("fields");
        assert!(head.contains(&format!(" {name}: ")), "{line}\nnot {name}");
        assert_eq!(found, fields, "{name}");
    }
    assert_same_as_babeltrace(&fixture, &printed);
    let every: BTreeSet<String> = all
        .iter()
        .filter(|event| event.id.is_some())
        .flat_map(|event| &event.fields)
        .map(field_shape_key)
        .collect();
    println!("{} events, {} kinds: {every:#?}", lines.len(), every.len());
    let left: Vec<&String> = every.difference(&shown).collect();
    assert!(left.is_empty(), "never recorded: {left:?}");
    assert!(every.len() > 20 && lines.len() > 1000, "{} {}", every.len(), lines.len());
}

fn configured_cpus() -> usize {
    // SAFETY: no address is given.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    usize::try_from(count).expect("a number")
}

fn assert_same_as_babeltrace(fixture: &Fixture, printed: &str) {
    if !has("babeltrace2") {
        return;
    }
    let output = Command::new("babeltrace2").arg(fixture.path("trace")).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout == printed.as_bytes(), "babeltrace2 prints something else");
}
