//! Traces in the format of `trackway record`, generated quickly without recording, and equal in
//! every run and on every machine.
//!
//! A trace has streams of four CPUs, whose events alternate like those of busy threads, in packets
//! of 64 KiB (the recorder's default sub-buffer). Each event has the thread's id as its context.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::workspace::{Workspace, create_private_dir};
use trackway_bench_engine::signals;
use trackway_ctf::write::{
    Contexts, Domain, PACKET_HEADER_BYTES, PacketFields, TraceDescription, event_declaration,
    metadata_preamble, packet_header,
};
use trackway_schema::context::VTID;
use trackway_schema::{EventDescription, Field, FieldKind, Scalar};

use super::works::TraceKind;

/// Number of streams of a trace.
const CPUS: u64 = 4;
/// Size of a packet, in bytes.
const PACKET_BYTES: usize = 64 << 10;
/// Mean time between the events of one CPU, in ns.
const STEP_NS: u64 = 400;
/// Begin of a trace, in ns on its clock.
const BEGIN_NS: u64 = 3_600_000_000_000;
/// Offset from 1970 to the zero of the clock, in ns: the traces are dated 2026.
const CLOCK_OFFSET_NS: i64 = 1_795_228_670_847_582_868;
/// UUID of the traces.
const UUID: [u8; 16] = *b"trackway reading";
/// Most bytes of an event in any of the traces.
const EVENT_BYTES_MAX: u64 = 64;

/// A trace on the disk.
#[derive(Debug, Clone)]
pub(super) struct TraceFolder {
    pub(super) path: PathBuf,
    pub(super) events: u64,
    /// Bytes of the trace's streams.
    pub(super) bytes: u64,
}

/// Fails unless there is disk space for these numbers of events of each kind.
pub(super) fn check_space(workspace: &Workspace, wanted: &[(TraceKind, u64)]) -> Result<()> {
    let folder = workspace.path("");
    let free = free_bytes(&folder)?;
    let bytes = |(kind, events): &(TraceKind, u64)| kind.bytes_per_event().saturating_mul(*events);
    let needed: u64 = wanted.iter().map(bytes).sum();
    if free < needed {
        let (needed, free) = (needed >> 20, free >> 20);
        let message = format!(
            "the traces need {needed} MiB, {free} MiB are free (TMPDIR names another folder, \
             --quick makes smaller traces)"
        );
        return Err(Error::output(folder.display().to_string(), message));
    }
    Ok(())
}

impl TraceKind {
    /// Returns an upper bound of an event's bytes on disk, including packet headers and padding.
    const fn bytes_per_event(self) -> u64 {
        match self {
            Self::Numbers => 14,
            Self::Lttng => 20,
            Self::Strings => EVENT_BYTES_MAX,
        }
    }
}

/// Returns the free bytes for this user on the file system of `folder`.
fn free_bytes(folder: &Path) -> Result<u64> {
    let what = || format!("cannot look at the file system of {folder:?}");
    let path = CString::new(folder.as_os_str().as_bytes())
        .map_err(|error| Error::output(what(), error))?;
    let mut status = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: `path` ends with a NUL; `status` has room for what is written; zeroed bytes are a
    // valid statvfs, whatever the call does.
    let (result, status) =
        unsafe { (libc::statvfs(path.as_ptr(), status.as_mut_ptr()), status.assume_init()) };
    if result != 0 {
        return Err(Error::io(what())(std::io::Error::last_os_error()));
    }
    Ok(status.f_bavail.saturating_mul(status.f_frsize))
}

/// Writes a trace with a number of events.
pub(super) fn write_trace(folder: &Path, kind: TraceKind, events: u64) -> Result<TraceFolder> {
    create_private_dir(folder)?;
    let metadata = folder.join("metadata");
    fs::write(&metadata, self::build_metadata(kind))
        .map_err(Error::io(format!("cannot write {metadata:?}")))?;
    let mut bytes = 0;
    for cpu in 0..CPUS {
        let share = events / CPUS + u64::from(cpu < events % CPUS);
        let path = folder.join(format!("stream_{cpu}"));
        let written = Stream::new(kind, cpu).write(&path, share)?;
        bytes += written;
    }
    Ok(TraceFolder { path: folder.to_owned(), events, bytes })
}

/// Ids of the event classes.
mod id {
    pub(super) const NUMBER: u32 = 0;
    pub(super) const REQUEST: u32 = 1;
    pub(super) const MESSAGE: u32 = 2;
}

fn build_metadata(kind: TraceKind) -> String {
    let trace = TraceDescription {
        uuid: UUID,
        hostname: "host".to_owned(),
        domain: Domain::User(1000),
        trace_name: kind.name().to_owned(),
        creation_datetime: "20261121T093000+0000".to_owned(),
        boot_uuid: UUID,
        clock_offset_ns: CLOCK_OFFSET_NS,
        contexts: Contexts { bits: VTID, ..Contexts::default() },
    };
    let mut text = metadata_preamble(&trace);
    text +=
        &event_declaration(0, id::NUMBER, &event_description("number", &[("n", Scalar::U32)], &[]));
    if kind == TraceKind::Strings {
        let fields = [("status", Scalar::U32), ("latency_us", Scalar::U64)];
        text +=
            &event_declaration(0, id::REQUEST, &event_description("request", &fields, &["path"]));
        text += &event_declaration(0, id::MESSAGE, &event_description("message", &[], &["text"]));
    }
    text
}

/// Describes an event with these integer fields, followed by these string fields.
fn event_description(name: &str, numbers: &[(&str, Scalar)], strings: &[&str]) -> EventDescription {
    let numbers = numbers.iter().map(|&(name, scalar)| (name, FieldKind::Scalar(scalar)));
    let strings = strings.iter().map(|&name| (name, FieldKind::Str));
    EventDescription {
        provider: "lab".to_owned(),
        name: name.to_owned(),
        level: 6,
        fields: numbers
            .chain(strings)
            .map(|(name, kind)| Field { name: name.to_owned(), kind })
            .collect(),
    }
}

/// One CPU's stream during generation.
struct Stream {
    kind: TraceKind,
    fields: PacketFields,
    random: Random,
    time_ns: u64,
    number: u32,
    packet: Vec<u8>,
}

impl Stream {
    fn new(kind: TraceKind, cpu: u64) -> Self {
        let cpu_id = cpu as u32;
        Self {
            kind,
            fields: PacketFields { stream_instance_id: cpu, cpu_id, ..PacketFields::default() },
            random: Random(cpu + 1),
            time_ns: BEGIN_NS,
            number: 0,
            packet: Vec::with_capacity(PACKET_BYTES),
        }
    }

    /// Writes events to the file `path`, and flushes the file to the disk, so that no write-back
    /// disturbs the readers. Returns the number of bytes.
    fn write(mut self, path: &Path, events: u64) -> Result<u64> {
        let failed = || format!("cannot write {path:?}");
        let mut file = File::create(path).map_err(Error::io(failed()))?;
        let mut event = Vec::with_capacity(EVENT_BYTES_MAX as usize);
        let mut bytes = 0;
        self.begin();
        for _ in 0..events {
            self.next_event(&mut event);
            if self.packet.len() + event.len() > PACKET_BYTES {
                // The event that did not fit begins the next packet.
                bytes += self.end();
                file.write_all(&self.packet).map_err(Error::io(failed()))?;
                self.begin();
                if signals::is_stopped() {
                    return Err(Error::Interrupted);
                }
            }
            self.packet.extend_from_slice(&event);
        }
        bytes += self.end();
        file.write_all(&self.packet).map_err(Error::io(failed()))?;
        file.sync_all().map_err(Error::io(failed()))?;
        Ok(bytes)
    }

    /// Begins a packet, at the time of the latest event.
    fn begin(&mut self) {
        self.packet.clear();
        self.packet.resize(PACKET_HEADER_BYTES, 0);
        self.fields.timestamp_begin = self.fields.timestamp_end.max(BEGIN_NS);
    }

    /// Fills in the packet's header, and pads the packet.
    fn end(&mut self) -> u64 {
        self.fields.timestamp_end = self.time_ns.max(self.fields.timestamp_begin);
        self.fields.content_bytes = self.packet.len() as u64;
        self.fields.packet_bytes = PACKET_BYTES as u64;
        self.packet[..PACKET_HEADER_BYTES].copy_from_slice(&packet_header(&UUID, &self.fields));
        self.packet.resize(PACKET_BYTES, 0);
        self.fields.sequence += 1;
        self.fields.packet_bytes
    }

    /// Generates the next event: header, thread, payload.
    fn next_event(&mut self, event: &mut Vec<u8>) {
        self.time_ns += 1 + self.random.less_than(2 * STEP_NS);
        self.number = self.number.wrapping_add(1);
        event.clear();
        let id = match self.kind {
            TraceKind::Strings => [id::NUMBER, id::REQUEST, id::MESSAGE][self.random.index(3)],
            TraceKind::Numbers | TraceKind::Lttng => id::NUMBER,
        };
        // The header has 27 bits of time above 5 bits of the id.
        let header = (self.time_ns as u32) << 5 | id;
        event.extend(header.to_le_bytes());
        event.extend((1000 + self.fields.cpu_id).to_le_bytes());
        match id {
            id::NUMBER => event.extend(self.number.to_le_bytes()),
            id::REQUEST => {
                let magnitude = 1 + self.random.index(20);
                let latency_us = self.random.less_than(1 << magnitude);
                event.extend([200_u32, 200, 304, 404][self.random.index(4)].to_le_bytes());
                event.extend(latency_us.to_le_bytes());
                event.extend_from_slice(PATHS[self.random.index(PATHS.len())]);
                event.push(0);
            }
            _ => {
                event.extend_from_slice(TEXTS[self.random.index(TEXTS.len())]);
                event.push(0);
            }
        }
    }
}

/// Paths in the events of requests.
const PATHS: [&[u8]; 4] =
    [b"/", b"/index.html", b"/static/images/logo.png", b"/api/v2/orders/31415/items"];
/// Texts of the messages: short, long, and with characters that need escapes.
const TEXTS: [&[u8]; 4] = [
    b"connected",
    b"cache miss: key 'user' not there",
    b"loaded modules in 42 ms, 17 of them new",
    b"retry",
];

/// Xorshift (Marsaglia 2003): small, and equal on every machine.
struct Random(u64);

impl Random {
    fn less_than(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn index(&mut self, bound: usize) -> usize {
        self.less_than(bound as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use trackway_ctf::read::{Trace, read_trace};

    use super::*;

    #[test]
    fn traces_have_the_events_that_were_asked_for() {
        for kind in [TraceKind::Numbers, TraceKind::Strings] {
            let folder = std::env::temp_dir().join(format!(
                "trackway-lab-traces-{}-{}",
                std::process::id(),
                kind.name()
            ));
            // The number of events fills more than one packet in each stream.
            let made = write_trace(&folder, kind, 40_003).expect("a trace");
            let trace = Trace::parse(&fs::read(folder.join("metadata")).expect("metadata"));
            let streams: Vec<Vec<u8>> = (0..CPUS)
                .map(|cpu| fs::read(folder.join(format!("stream_{cpu}"))).expect("a stream"))
                .collect();
            fs::remove_dir_all(&folder).expect("removed");
            let slices: Vec<&[u8]> = streams.iter().map(Vec::as_slice).collect();
            let (events, is_whole) = read_trace(&trace.expect("metadata"), &slices);
            assert_eq!((events.len(), is_whole), (40_003, true));
            assert_eq!(made.bytes, streams.iter().map(|stream| stream.len() as u64).sum::<u64>());
            assert!(made.bytes > CPUS * PACKET_BYTES as u64);
            // Events of the streams alternate; otherwise readers would have nothing to merge.
            let changes = events.windows(2).filter(|pair| pair[0].stream != pair[1].stream);
            assert!(changes.count() > 20_000);
            let times = [events.first(), events.last()].map(|event| event.and_then(|e| e.time));
            assert!(times[0] < times[1]);
        }
    }

    #[test]
    fn events_fit_in_the_space_that_is_asked_for() {
        let longest = |texts: &[&[u8]]| texts.iter().map(|text| text.len()).max().unwrap_or(0);
        let (head, request) = (8, 12);
        let greatest = head + (request + longest(&PATHS)).max(longest(&TEXTS)) + 1;
        assert!(greatest as u64 <= EVENT_BYTES_MAX);
    }
}
