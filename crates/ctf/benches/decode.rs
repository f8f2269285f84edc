//! Benchmark of the events per second that one core decodes: `cargo bench -p trackway-ctf`, or, for
//! one line of the table, `cargo bench -p trackway-ctf --bench decode -- 'trackway decode'`.
//!
//! The traces are built in memory, in the formats of `trackway record` and LTTng. Decoding passes
//! every value of every field to a [`Sink`], here a sink that adds them up: any further cost of a
//! value belongs to the sink's user. The table also shows the cost of skipping and printing.

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Instant;

use trackway_ctf::Literal;
use trackway_ctf::read::{
    Enumeration, EventSink, Integer, Scope, Sink, StreamDecoder, Trace, Window,
};
use trackway_ctf::write::{
    Contexts, Domain, PACKET_HEADER_BYTES, PacketFields, TraceDescription, event_declaration,
    metadata_preamble, packet_header,
};
use trackway_render::{EventEncoder as _, Line, Pretty, PrettyOptions, Stamp, utc_date_time};
use trackway_schema::context::VTID;
use trackway_schema::{EventDescription, Field, FieldKind, Scalar};

const UUID: [u8; 16] = *b"0123456789abcdef";
const START_NS: u64 = 1_000_000_000_000;
const PACKET_BYTES: usize = 256 << 10;
const PACKETS: usize = 64;
/// Number of rounds; each figure is the best of them.
const ROUNDS: usize = 5;

/// Adds up all values, so that the compiler cannot remove their decoding.
#[derive(Default)]
struct ValueSum(u64);

impl Sink for ValueSum {
    #[inline]
    fn integer(&mut self, _: &Integer, value: u64) {
        self.0 = self.0.wrapping_add(value);
    }
    #[inline]
    fn enumeration(&mut self, _: &Enumeration, value: u64) {
        self.0 = self.0.wrapping_add(value);
    }
    #[inline]
    fn float(&mut self, value: f64) {
        self.0 = self.0.wrapping_add(value.to_bits());
    }
    #[inline]
    fn text(&mut self, bytes: &[u8]) {
        self.0 = self.0.wrapping_add(bytes.len() as u64);
    }
}

impl EventSink for ValueSum {
    fn begin_scope(&mut self, _: Scope) {}
}

/// A trace of one stream in memory.
struct MemoryTrace {
    metadata: String,
    packets: Vec<Vec<u8>>,
}

/// Builds packets full of records: header word (five bits of id, 27 of time), then `body`.
fn build_packets(
    mut body: impl FnMut(u64, &mut Vec<u8>),
    header: fn(u64, &mut Vec<u8>),
) -> Vec<Vec<u8>> {
    let mut time = START_NS;
    (0..PACKETS as u64)
        .map(|sequence| {
            let mut records = Vec::with_capacity(PACKET_BYTES);
            let begin = time;
            while records.len() + PACKET_HEADER_BYTES + 256 < PACKET_BYTES {
                time += 21;
                header(time, &mut records);
                body(time, &mut records);
            }
            let content_bytes = (PACKET_HEADER_BYTES + records.len()) as u64;
            let fields = PacketFields {
                timestamp_begin: begin,
                timestamp_end: time,
                content_bytes,
                packet_bytes: PACKET_BYTES as u64,
                sequence,
                ..PacketFields::default()
            };
            let mut packet = packet_header(&UUID, &fields).to_vec();
            packet.append(&mut records);
            packet.resize(PACKET_BYTES, 0);
            packet
        })
        .collect()
}

fn push_compact_header(time: u64, record: &mut Vec<u8>) {
    record.extend((((time & ((1 << 27) - 1)) as u32) << 5).to_le_bytes());
}

fn build_preamble(vtid: bool) -> String {
    metadata_preamble(&TraceDescription {
        uuid: UUID,
        hostname: "host".to_owned(),
        domain: Domain::User(1000),
        trace_name: "session".to_owned(),
        creation_datetime: "20261121T025621+0000".to_owned(),
        boot_uuid: *b"fedcba9876543210",
        clock_offset_ns: 1_795_228_670_847_582_868,
        contexts: Contexts { bits: if vtid { VTID } else { 0 }, ..Contexts::default() },
    })
}

fn declare_event(fields: Vec<(&str, FieldKind)>) -> String {
    let fields =
        fields.into_iter().map(|(name, kind)| Field { name: name.to_owned(), kind }).collect();
    let (provider, name) = ("app".to_owned(), "request".to_owned());
    event_declaration(0, 0, &EventDescription { provider, name, level: 6, fields })
}

/// Builds a trace of one u32 and the thread's id, as `trackway record` writes its smallest useful
/// event.
fn build_trackway_trace() -> MemoryTrace {
    let metadata =
        build_preamble(true) + &declare_event(vec![("n", FieldKind::Scalar(Scalar::U32))]);
    let body = |time: u64, record: &mut Vec<u8>| {
        record.extend(4711_i32.to_le_bytes());
        record.extend((time as u32).to_le_bytes());
    };
    MemoryTrace { metadata, packets: build_packets(body, push_compact_header) }
}

/// Builds a trace with fields of all kinds.
fn build_mixed_trace() -> MemoryTrace {
    let fields = vec![
        ("a", FieldKind::Scalar(Scalar::U64)),
        ("b", FieldKind::Scalar(Scalar::I16)),
        ("c", FieldKind::Scalar(Scalar::X64)),
        ("path", FieldKind::Str),
        ("f", FieldKind::Scalar(Scalar::F64)),
        ("list", FieldKind::Sequence(Scalar::U32)),
    ];
    let body = |time: u64, record: &mut Vec<u8>| {
        record.extend(4711_i32.to_le_bytes());
        record.extend(time.to_le_bytes());
        record.extend((-3_i16).to_le_bytes());
        record.extend(time.to_le_bytes());
        record.extend(b"/usr/share/zoneinfo\0");
        record.extend(0.25_f64.to_le_bytes());
        record.extend(3_u32.to_le_bytes());
        record.extend([time as u32, 2, 3].iter().flat_map(|value| value.to_le_bytes()));
    };
    MemoryTrace {
        metadata: build_preamble(true) + &declare_event(fields),
        packets: build_packets(body, push_compact_header),
    }
}

/// Builds a trace with LTTng-UST's headers for many events: 16 bits of id, 32 of time; one i32.
fn build_lttng_large_trace() -> MemoryTrace {
    let mut metadata = build_preamble(false);
    let large = "struct large {
        enum : uint16_t { compact = 0 ... 65534, extended = 65535 } id;
        variant <id> {
            struct { integer { size = 32; align = 8; map = clock.monotonic.value; } timestamp; }
                compact;
            struct { uint32_t id; uint64_clock_monotonic_t timestamp; } extended;
        } v;
    } align(8);\nstream {";
    metadata = metadata.replace("stream {", large).replace("struct event_header;", "struct large;");
    let _ = write!(metadata, "{}", declare_event(vec![("n", FieldKind::Scalar(Scalar::I32))]));
    let header = |time: u64, record: &mut Vec<u8>| {
        record.extend(0_u16.to_le_bytes());
        record.extend((time as u32).to_le_bytes());
    };
    let body = |time: u64, record: &mut Vec<u8>| record.extend((time as u32).to_le_bytes());
    MemoryTrace { metadata, packets: build_packets(body, header) }
}

/// The work done with each event.
#[derive(Clone, Copy)]
enum Work {
    Decode,
    Skip,
    Text,
}

/// Processes all events; returns their number and a checksum of the results.
fn process_packets(trace: &Trace, packets: &[Vec<u8>], work: Work) -> (u64, u64) {
    let mut decoder = StreamDecoder::new(trace);
    let (mut sum, mut events) = (ValueSum::default(), 0);
    let mut lines = Pretty::new(PrettyOptions::default(), utc_date_time);
    let mut text = Vec::with_capacity(1 << 20);
    let prefix = Literal::new(b"host app:event: { cpu_id = 0 }");
    for packet in packets {
        let window = Window::whole(packet);
        decoder.begin_packet(window, packet.len() as u64, &mut sum, |_| {}).expect("a packet");
        while let Some(body) = decoder.begin_event(window).expect("a header") {
            let header = body.header;
            match work {
                Work::Decode => body.read(&mut sum),
                Work::Skip => body.skip(),
                Work::Text => {
                    let line = Line {
                        stamp: header.time.map(|time| Stamp { time, clock: header.clock }),
                        previous: None,
                        stream_prefix: b"host ",
                        class_prefix: b"app:event: ",
                        packet_prefix: b"{ cpu_id = 0 }",
                        prefix: Some(&prefix),
                    };
                    lines.push_event(&mut text, line, body).map(|_| ())
                }
            }
            .expect("a body");
            sum.0 = sum.0.wrapping_add(header.time.unwrap_or(0) as u64);
            events += 1;
            if text.len() > 1 << 19 {
                black_box(&text);
                text.clear();
            }
        }
    }
    (events, sum.0)
}

fn main() {
    // Options that cargo adds (`--bench`) select no benchmark.
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    for (name, made) in [
        ("trackway", build_trackway_trace()),
        ("lttng large", build_lttng_large_trace()),
        ("mixed", build_mixed_trace()),
    ] {
        let trace = Trace::parse(made.metadata.as_bytes()).expect("metadata");
        for (what, work) in [("decode", Work::Decode), ("skip", Work::Skip), ("text", Work::Text)] {
            let label = format!("{name} {what}");
            if !wanted.is_empty() && !wanted.contains(&label) {
                continue;
            }
            let mut best = f64::MAX;
            let mut events = 0;
            for _ in 0..ROUNDS {
                let start = Instant::now();
                let (count, sum) = process_packets(&trace, black_box(&made.packets), work);
                best = best.min(start.elapsed().as_secs_f64());
                black_box(sum);
                events = count;
            }
            println!("{label:20} {:8.2} million events/s", events as f64 / best / 1e6);
        }
    }
}
