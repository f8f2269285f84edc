//! A trace of the tortured program, and its internal checks: packets enclose their events, time
//! never goes backward, every record has the contents that follow from its lane and number.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use trackway_ctf::read::{
    Enumeration, EventSink, Integer, Member, Packet, Scope, Sink, StreamDecoder, Trace,
    VariantOption, Window,
};
use trackway_tests::{Fixture, babeltrace_discarded_events, has};

use crate::check::RoundTotals;
use crate::shared::Lane;

/// An event, reduced to the compared fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    /// Lane of the event's thread.
    pub(crate) lane: u32,
    /// Sequence number of the event in its lane.
    pub(crate) seq: u64,
    /// Time of the event, in ns.
    pub(crate) time: u64,
}

/// One stream file.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// File name of the stream.
    pub(crate) name: String,
    /// Events of the stream, in the order of their bytes.
    pub(crate) records: Vec<Record>,
    /// Number of lost events, from the stream's last packet.
    pub(crate) discarded: u64,
    /// Begin and end of each packet.
    pub(crate) packets: Vec<(u64, u64)>,
    /// True if packets before the first record were overwritten.
    pub(crate) overwritten: bool,
    /// Number of packets missing after the first record.
    pub(crate) missing: u64,
    /// Number of the next packet if none is missing.
    next_packet: u64,
}

/// The faults of a trace; an empty list is good.
#[derive(Debug, Default)]
pub(crate) struct Complaints(Vec<String>);

impl Complaints {
    /// Adds a fault; only the first few are kept.
    pub(crate) fn add(&mut self, complaint: String) {
        const COMPLAINTS_MAX: usize = 12;
        if self.0.len() < COMPLAINTS_MAX {
            self.0.push(complaint);
        }
    }

    /// Adds a fault if `holds` is false.
    pub(crate) fn unless(&mut self, holds: bool, complaint: impl FnOnce() -> String) {
        if !holds {
            self.add(complaint());
        }
    }

    /// Returns all faults, one per line.
    pub(crate) fn text(&self) -> Option<String> {
        (!self.0.is_empty()).then(|| self.0.join("\n"))
    }
}

/// Returns the folder of the only trace in `folder`, which is `folder` itself or lies below it.
pub(crate) fn find_trace_folder(folder: &Path) -> PathBuf {
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        if folder.join("metadata").is_file() {
            return folder;
        }
        let below = fs::read_dir(folder).into_iter().flatten().flatten();
        open.extend(below.map(|entry| entry.path()).filter(|path| path.is_dir()));
    }
    folder.to_owned()
}

/// Checks that babeltrace2 reads the trace without an error, with equal numbers of events and of
/// discarded events, and that `trackway print` prints the same text.
pub(crate) fn check_with_babeltrace(
    fixture: &Fixture,
    folder: &Path,
    totals: &RoundTotals,
    wrong: &mut Complaints,
) {
    if !has("babeltrace2") {
        return;
    }
    let theirs = fixture.command("babeltrace2").arg(folder).output().expect("babeltrace2 runs");
    let messages = String::from_utf8_lossy(&theirs.stderr);
    wrong.unless(theirs.status.success(), || format!("babeltrace2: {messages}"));
    let events = theirs.stdout.iter().filter(|&&byte| byte == b'\n').count() as u64;
    let discarded = babeltrace_discarded_events(&messages);
    wrong.unless((events, discarded) == (totals.recorded, totals.lost), || {
        let messages: String = messages.lines().take(5).collect();
        format!("babeltrace2 has {events} events, {discarded} discarded: {totals:?}\n{messages}")
    });
    let ours = fixture.trackway(&[OsStr::new("print"), folder.as_os_str()]).output();
    let ours = ours.expect("trackway runs");
    wrong.unless(ours.stdout == theirs.stdout, || {
        let lines = ours.stdout.split(|&byte| byte == b'\n');
        let differs = |(ours, theirs): &(&[u8], &[u8])| ours != theirs;
        let first = lines.zip(theirs.stdout.split(|&byte| byte == b'\n')).find(differs);
        let (ours, theirs) = first.unwrap_or_default();
        let text = |line| String::from_utf8_lossy(line).into_owned();
        format!("trackway print: {}\nbabeltrace2:    {}", text(ours), text(theirs))
    });
}

/// Reads every stream of the trace in `folder`.
pub(crate) fn read_streams(
    folder: &Path,
    lanes: &[Lane],
    body_max: u64,
    wrong: &mut Complaints,
) -> Vec<Stream> {
    let metadata = match fs::read(folder.join("metadata")) {
        Ok(metadata) => metadata,
        Err(error) => {
            wrong.add(format!("{}: no metadata: {error}", folder.display()));
            return Vec::new();
        }
    };
    let trace = match Trace::parse(&metadata) {
        Ok(trace) => trace,
        Err(error) => {
            wrong.add(format!("metadata: {error}"));
            return Vec::new();
        }
    };
    let mut streams = Vec::new();
    let mut entries: Vec<_> = fs::read_dir(folder).expect("a trace folder").flatten().collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries.iter().filter(|entry| entry.path().is_file()) {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name != "metadata" && !name.starts_with('.') {
            let bytes = fs::read(entry.path()).expect("a stream file");
            let reader = StreamReader { trace: &trace, lanes, body_max, name: &name };
            streams.push(reader.read(&bytes, wrong));
        }
    }
    streams
}

struct StreamReader<'a> {
    trace: &'a Trace,
    lanes: &'a [Lane],
    body_max: u64,
    name: &'a str,
}

impl StreamReader<'_> {
    fn read(&self, bytes: &[u8], wrong: &mut Complaints) -> Stream {
        let mut stream = Stream { name: self.name.to_owned(), ..Stream::default() };
        let mut decoder = StreamDecoder::new(self.trace);
        let mut at = 0;
        let mut last_time = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let mut ignored = EventBody::default();
            let begun =
                decoder.begin_packet(Window::whole(rest), rest.len() as u64, &mut ignored, |_| {});
            let packet = match begun {
                Ok(packet) => packet,
                Err(error) => {
                    wrong.add(format!("{}: packet at byte {at}: {error}", self.name));
                    break;
                }
            };
            self.check_packet(&packet, &mut stream, wrong);
            self.read_packet(&mut decoder, rest, &packet, &mut stream, wrong);
            let end = stream.packets.last().map_or(0, |packet| packet.1);
            let first_of_packet = last_time;
            last_time = end.max(last_time);
            wrong.unless(end >= first_of_packet, || {
                format!("{}: packet at byte {at} ends before the one before", self.name)
            });
            let size = packet.packet_bits.unwrap_or(8 * rest.len() as u64) / 8;
            if size > rest.len() as u64 {
                wrong.add(format!("{}: packet at byte {at} is cut off", self.name));
                break;
            }
            at += size as usize;
        }
        stream
    }

    fn check_packet(&self, packet: &Packet, stream: &mut Stream, wrong: &mut Complaints) {
        let begin = packet.timestamp_begin.unwrap_or(0);
        let end = packet.timestamp_end.unwrap_or(0);
        wrong.unless(begin <= end, || format!("{}: packet {begin}…{end}", self.name));
        if let Some(&(_, before)) = stream.packets.last() {
            wrong.unless(before <= begin, || {
                format!("{}: packet begins at {begin}, the one before ends at {before}", self.name)
            });
        }
        let sequence = packet.sequence.unwrap_or(stream.next_packet);
        if sequence != stream.next_packet {
            stream.overwritten |= stream.records.is_empty();
            if !stream.records.is_empty() {
                stream.missing += sequence.wrapping_sub(stream.next_packet);
            }
        }
        stream.next_packet = sequence + 1;
        let discarded = packet.events_discarded.unwrap_or(0);
        wrong.unless(stream.discarded <= discarded, || {
            format!("{}: {discarded} discarded after {}", self.name, stream.discarded)
        });
        stream.discarded = discarded;
        stream.packets.push((begin, end));
    }

    fn read_packet(
        &self,
        decoder: &mut StreamDecoder<'_>,
        bytes: &[u8],
        packet: &Packet,
        stream: &mut Stream,
        wrong: &mut Complaints,
    ) {
        let window = Window::whole(bytes);
        let begin = packet.timestamp_begin.unwrap_or(0);
        let end = packet.timestamp_end.unwrap_or(u64::MAX);
        let mut last = begin;
        loop {
            let event = match decoder.begin_event(window) {
                Ok(Some(event)) => event,
                Ok(None) => return,
                Err(error) => {
                    return wrong.add(format!("{}: {error}", self.name));
                }
            };
            let (header, mut body) = (event.header, EventBody::default());
            if let Err(error) = event.read(&mut body) {
                return wrong.add(format!("{}: {error}", self.name));
            }
            let time = header.clock;
            wrong.unless(last <= time && time <= end, || {
                format!("{}: event at {time} after {last} in packet {begin}…{end}", self.name)
            });
            last = time;
            let name = header.class.name().unwrap_or_default();
            if let Some(problem) = self.check_body(name, &body) {
                wrong.add(format!("{}: {name} at {time}: {problem}: {body:?}", self.name));
                continue;
            }
            stream.records.push(Record { lane: body.lane(), seq: body.seq(), time });
        }
    }

    /// Returns the first fault in an event's fields and contexts, if there is one.
    fn check_body(&self, name: &str, body: &EventBody) -> Option<&'static str> {
        let Some(lane) = self.lanes.get(body.lane() as usize).filter(|_| body.lane() > 0) else {
            return Some("no such lane");
        };
        if body.seq() >= lane.started {
            return Some("was never emitted");
        }
        let contexts_fit = body.vpid.is_none_or(|pid| pid == u64::from(lane.pid))
            && body.vtid.is_none_or(|tid| tid == u64::from(lane.tid))
            && body.procname.as_ref().is_none_or(|name| *name == lane.name.as_bytes());
        if !contexts_fit {
            return Some("contexts of another thread");
        }
        let hash = hash_event(lane.seed, body.seq());
        if hash & 3 != 0 {
            let expected = format!("torture:tiny{}", (hash >> 8) % TINY_EVENTS_COUNT);
            return (name != expected).then_some("another event's number");
        }
        if name != "torture:full" {
            return Some("another event's number");
        }
        let expected = EventBody::expected(lane, hash, self.body_max);
        let same = body.text == expected.text
            && body.numbers == expected.numbers
            && body.process == expected.process
            && body.thread == expected.thread
            && body.in_signal == expected.in_signal;
        (!same).then_some("damaged")
    }
}

/// Equals `TINY_EVENTS_COUNT` in workload.c.
const TINY_EVENTS_COUNT: u64 = 40;

/// Computes the same hash as `hash` in workload.c.
fn hash_event(seed: u64, seq: u64) -> u64 {
    let mut x = seed.wrapping_add((seq + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Contexts and fields of an event.
#[derive(Default, Debug)]
struct EventBody {
    scope: Option<Scope>,
    member: String,
    vpid: Option<u64>,
    vtid: Option<u64>,
    procname: Option<Vec<u8>>,
    lane: u64,
    seq: u64,
    process: u64,
    thread: u64,
    in_signal: u64,
    text: Vec<u8>,
    numbers: Vec<u32>,
}

impl EventBody {
    const fn lane(&self) -> u32 {
        self.lane as u32
    }

    const fn seq(&self) -> u64 {
        self.seq
    }

    /// Returns the body that `emit_full` in workload.c emits.
    fn expected(lane: &Lane, hash: u64, body_max: u64) -> Self {
        const FIXED: u64 = 2 + 2 + 1 + 4 + 8 + 1 + 4;
        let most = match hash >> 8 & 63 {
            0 => body_max,
            1..8 => 512,
            _ => 64,
        };
        let room = most.min(body_max) - FIXED;
        let length = 1 + (hash >> 16) % room;
        let count = (hash >> 40) % ((room - length) / 4 + 1);
        Self {
            process: lane.process.into(),
            thread: lane.thread.into(),
            in_signal: lane.in_signal.into(),
            text: (0..length).map(|i| b'a' + (hash.wrapping_add(i * 7) % 26) as u8).collect(),
            numbers: (0..count).map(|i| hash.wrapping_add(i * 0x9e37_79b9) as u32).collect(),
            ..Self::default()
        }
    }
}

impl Sink for EventBody {
    fn integer(&mut self, _: &Integer, value: u64) {
        match self.member.as_str() {
            "vpid" => self.vpid = Some(value),
            "vtid" => self.vtid = Some(value),
            "lane" => self.lane = value,
            "seq" => self.seq = value,
            "process" => self.process = value,
            "thread" => self.thread = value,
            "in_signal" => self.in_signal = value,
            "numbers" => self.numbers.push(value as u32),
            _ => {}
        }
    }

    fn enumeration(&mut self, kind: &Enumeration, value: u64) {
        self.integer(kind.integer(), value);
    }

    fn float(&mut self, _: f64) {}

    fn text(&mut self, bytes: &[u8]) {
        match self.member.as_str() {
            "procname" => self.procname = Some(bytes.to_vec()),
            "text" => self.text = bytes.to_vec(),
            _ => {}
        }
    }

    fn begin_struct(&mut self) {}

    fn member(&mut self, member: &Member) {
        self.member.clear();
        self.member.push_str(member.name());
    }

    fn end_struct(&mut self) {}
    fn begin_array(&mut self) {}
    fn element(&mut self, _: u64) {}
    fn end_array(&mut self) {}
    fn begin_variant(&mut self, _: &VariantOption) {}
    fn end_variant(&mut self) {}
}

impl EventSink for EventBody {
    fn begin_scope(&mut self, scope: Scope) {
        self.scope = Some(scope);
    }
}
