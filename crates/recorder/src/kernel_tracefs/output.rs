//! Records of tracefs, written as the packets of a trace: turned, asked about, put in order.
//!
//! Filters that remember something are asked in the order of time, of all CPUs, as whoever reads
//! the trace would ask them: so records wait in queues until nothing earlier can come
//! ([`Output::settle`]). Without such filters nothing waits.
//!
//! Packets of a flight recorder are held in memory, up to the size of the kernel's buffer, each
//! with a number: to read the kernel's buffer is to take out what is there, and the next snapshot
//! is to have it again, in the same packets, so that who merges snapshots has each once.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::{io, mem};

use trackway_abi::record::{
    COMPACT_BYTES, EXTENDED_BYTES, RECORD_BYTES_MAX, TAG_BITS, TAG_EXTENDED, TAG_MEDIUM, TIME_BITS,
};
use trackway_ctf::write::PACKET_HEADER_BYTES;
use trackway_kernel::tracefs::convert::{Converted, Converter, FilterState};
use trackway_kernel::tracefs::filter::Occurrence;
use trackway_kernel::tracefs::instance::BufferStats;
use trackway_kernel::tracefs::page::{MissedEvents, Page, PageFormat};
use trackway_session::Tracefiles;
use trackway_sys::clock::monotonic_ns;

use crate::losses::Losses;
use crate::stream::{Packet, Stream, StreamId};
use crate::trace::{self, Trace};

/// Most bytes of a packet.
const PACKET_BYTES_MAX: usize = 1 << 16;
/// Most bytes that wait of one CPU, beyond which no more is read: the kernel's buffer has room, and
/// counts what it has none for.
const QUEUE_BYTES_MAX: usize = 64 << 20;
/// How often filters may change while records from before wait to be read; then the oldest ones are
/// forgotten.
const FORMER_MAX: usize = 16;

/// A trace that records are written to.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) trace: Trace,
    converter: Arc<Converter>,
    /// What its filters remember.
    memory: FilterState,
    /// What was asked before, of records from then, the oldest first.
    former: VecDeque<Former>,
    /// Whether records wait for their turn.
    is_ordered: bool,
    /// Time before which nothing was recorded.
    pub(super) begin_ts: u64,
    /// Of a flight recorder: how much of what the kernel wrote is held of each CPU, in bytes.
    held_bytes: Option<u64>,
    tracefiles: Tracefiles,
    pub(super) streams: Vec<CpuStream>,
    /// Room for what a record becomes.
    record: Vec<u8>,
}

/// What was asked of records from before `until_ts`.
#[derive(Debug)]
struct Former {
    until_ts: u64,
    converter: Arc<Converter>,
    memory: FilterState,
}

/// A CPU's stream, and the packet that is next in it.
#[derive(Debug, Default)]
pub(super) struct CpuStream {
    cpu: u32,
    stream: Option<Stream>,
    packet: PacketBuffer,
    queue: Queue,
    /// Of what was read of it, whether it waits or not.
    last_ts: u64,
    /// What the kernel says was lost.
    pub(super) stats: BufferStats,
    /// Events that pages say were lost before them.
    pub(super) missed: u64,
    /// Events that could not be written, since there was no room on disk.
    pub(super) unwritten: u64,
    pub(super) written: u64,
    pub(super) damaged: u64,
    held: Held,
    /// What of [`Self::lost`] packets tell.
    losses: Losses<u64>,
}

/// Packets of a flight recorder, the oldest first.
#[derive(Debug, Clone, Default)]
pub(super) struct Held {
    packets: VecDeque<Arc<HeldPacket>>,
    /// Number of the next.
    number: u64,
    /// As many as there were overwritten when the latest one was added.
    told: u64,
    /// What the kernel wrote that became these.
    raw_bytes: u64,
    pub(super) bytes: u64,
    pub(super) events: u64,
    /// Events in packets that made room for newer ones.
    gone: u64,
}

#[derive(Debug)]
struct HeldPacket {
    number: u64,
    packet: PacketBuffer,
}

/// Records that wait, in the order of time.
#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    bytes: VecDeque<u8>,
    last_ts: u64,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    timestamp: u64,
    converted: Converted,
    bytes: usize,
    raw_bytes: usize,
}

impl Output {
    /// Into this trace, from these CPUs; of a flight recorder so much of each is held.
    pub(super) fn new(
        trace: Trace,
        converter: Arc<Converter>,
        (begin_ts, held_bytes): (u64, Option<u64>),
        tracefiles: Tracefiles,
        cpus: impl Iterator<Item = u32>,
    ) -> Self {
        Self {
            trace,
            memory: converter.new_state(),
            former: VecDeque::new(),
            is_ordered: converter.has_state(),
            converter,
            begin_ts,
            held_bytes,
            tracefiles,
            streams: cpus.map(|cpu| CpuStream { cpu, ..CpuStream::default() }).collect(),
            record: Vec::new(),
        }
    }

    /// Knows more events from here on.
    pub(super) fn extend(&mut self, converter: Arc<Converter>) {
        converter.extend_state(&mut self.memory);
        self.is_ordered |= converter.has_state();
        self.converter = converter;
    }

    /// Has records from now on asked what this asks of them; those from before, which may be read
    /// later, are asked what was asked until now.
    pub(super) fn ask_anew(&mut self, converter: Arc<Converter>) {
        let (memory, until_ts) = (converter.new_state(), monotonic_ns());
        self.is_ordered |= converter.has_state();
        let converter = mem::replace(&mut self.converter, converter);
        let memory = mem::replace(&mut self.memory, memory);
        if self.former.len() >= FORMER_MAX {
            self.former.pop_front();
        }
        self.former.push_back(Former { until_ts, converter, memory });
    }

    /// Takes the latest [`Self::ask_anew`] back: before, this was asked. Where that is forgotten,
    /// what it remembers begins anew.
    pub(super) fn ask_as_before(&mut self, converter: Arc<Converter>) {
        let is_it = |former: &mut Former| Arc::ptr_eq(&former.converter, &converter);
        match self.former.pop_back_if(is_it) {
            Some(former) => (self.converter, self.memory) = (former.converter, former.memory),
            None => self.ask_anew(converter),
        }
    }

    /// Knows that all records from before then were read.
    pub(super) fn has_all_until(&mut self, until_ts: u64) {
        self.former.retain(|former| former.until_ts > until_ts);
        let is_waiting = self.streams.iter().any(|stream| !stream.queue.waiting.is_empty());
        // Behind those that wait others would be out of order.
        if self.former.is_empty() && !is_waiting {
            self.is_ordered = self.converter.has_state();
        }
    }

    /// Whether filters take the record in [`Self::record`].
    fn takes(&self, converted: &Converted, occurrence: Occurrence) -> bool {
        let former = self.former.iter().find(|former| occurrence.time_ns < former.until_ts);
        let (converter, memory) =
            former.map_or((&self.converter, &self.memory), |of| (&of.converter, &of.memory));
        converter.passes(converted, &self.record, occurrence, memory)
    }

    /// Takes a page of the CPU in this place.
    ///
    /// # Errors
    ///
    /// If it cannot be written; what is lost by that is counted.
    pub(super) fn page(
        &mut self,
        place: usize,
        bytes: &[u8],
        format: &PageFormat,
    ) -> io::Result<()> {
        let stream = &mut self.streams[place];
        let Ok(page) = Page::new(format, bytes) else {
            stream.damaged += 1;
            return Ok(());
        };
        if let MissedEvents::Count(count) = page.missed {
            stream.missed = stream.missed.saturating_add(count);
        }
        let mut written = Ok(());
        for entry in page {
            let Ok(entry) = entry else {
                self.streams[place].damaged += 1;
                break;
            };
            let stream = &mut self.streams[place];
            stream.last_ts = stream.last_ts.max(entry.timestamp);
            self.record.clear();
            let Some(converted) = self.converter.convert(entry.bytes, &mut self.record) else {
                self.streams[place].damaged += 1;
                continue;
            };
            let raw_bytes = entry.bytes.len();
            if self.is_ordered {
                let queue = &mut self.streams[place].queue;
                queue.push(entry.timestamp, (converted, raw_bytes), &self.record);
                continue;
            }
            let stream = &self.streams[place];
            let occurrence = Occurrence { cpu: stream.cpu, time_ns: entry.timestamp };
            if self.takes(&converted, occurrence) {
                let of = (entry.timestamp, converted.event, raw_bytes);
                written = self.write(place, of).and(written);
            }
        }
        written
    }

    /// Whether the CPU in this place can be read: not too much of it waits.
    pub(super) fn has_room(&self, place: usize) -> bool {
        self.streams[place].queue.bytes.len() <= QUEUE_BYTES_MAX
    }

    /// When the latest record was that was read of the CPU in this place.
    pub(super) fn last_ts(&self, place: usize) -> u64 {
        self.streams[place].last_ts
    }

    /// Has filters asked about records up to `until_ts`: what comes later is later.
    ///
    /// # Errors
    ///
    /// As of [`Self::page`].
    pub(super) fn settle(&mut self, until_ts: u64) -> io::Result<()> {
        let next = |(place, stream): (usize, &CpuStream)| {
            stream.queue.waiting.front().map(|waiting| Reverse((waiting.timestamp, place)))
        };
        let mut heads: BinaryHeap<_> = self.streams.iter().enumerate().filter_map(next).collect();
        let mut written = Ok(());
        while let Some(Reverse((timestamp, place))) = heads.pop() {
            if timestamp > until_ts {
                break;
            }
            let stream = &mut self.streams[place];
            let Some((converted, raw_bytes)) = stream.queue.pop(&mut self.record) else { continue };
            let occurrence = Occurrence { cpu: stream.cpu, time_ns: timestamp };
            heads.extend(next((place, stream)));
            if self.takes(&converted, occurrence) {
                let of = (timestamp, converted.event, raw_bytes);
                written = self.write(place, of).and(written);
            }
        }
        written
    }

    /// Adds the record in [`Self::record`] to the CPU's packet.
    fn write(
        &mut self,
        place: usize,
        (timestamp, event, raw_bytes): (u64, u16, usize),
    ) -> io::Result<()> {
        let mut written = Ok(());
        if !self.streams[place].packet.has_room(self.record.len()) {
            written = self.packet(place);
        }
        let stream = &mut self.streams[place];
        match written {
            Ok(()) => {
                stream.packet.add(timestamp, event, &self.record);
                stream.packet.raw_bytes += raw_bytes as u64;
            }
            Err(_) => stream.unwritten += 1,
        }
        written
    }

    /// Writes the CPU's packet, if there is anything in it, or holds it. One that cannot be written
    /// is tried again.
    pub(super) fn packet(&mut self, place: usize) -> io::Result<()> {
        let stream = &mut self.streams[place];
        let mut packet = stream.packet.take();
        if packet.events == 0 {
            return Ok(());
        }
        if let Some(bytes_max) = self.held_bytes {
            let overwritten = stream.stats.overwritten.max(stream.missed);
            stream.held.add(packet, overwritten, bytes_max);
            return Ok(());
        }
        // How many packets they would have been nobody knows.
        let missing = u64::from(stream.stream.is_none() && stream.overwritten() > 0);
        let length = packet.bytes.len();
        let written = self.append(place, &mut packet, missing);
        if written.is_err() {
            packet.bytes.truncate(length);
            self.streams[place].packet = packet;
        }
        written
    }

    fn append(&mut self, place: usize, packet: &mut PacketBuffer, missing: u64) -> io::Result<()> {
        let stream = &mut self.streams[place];
        let fields = Packet {
            begin_ts: packet.begin_ts,
            end_ts: packet.last_ts,
            discarded: stream.losses.until(packet.last_ts),
            missing,
            events: packet.events,
        };
        stream.losses.see(stream.lost());
        self.open(place, packet.begin_ts)?.append(&mut packet.bytes, &fields)?;
        self.streams[place].written += packet.events;
        Ok(())
    }

    /// Writes the packets that are held of a CPU, but for those that ended before `since_ts`; from
    /// the first on that cannot be written they are lost.
    pub(super) fn write_held(
        &mut self,
        place: usize,
        held: &Held,
        since_ts: u64,
    ) -> io::Result<()> {
        let mut next = 0;
        let mut written = Ok(());
        for one in held.packets.iter().filter(|one| one.packet.last_ts >= since_ts) {
            if written.is_ok() {
                let mut packet = one.packet.clone();
                written = self.append(place, &mut packet, one.number.saturating_sub(next));
                next = one.number.saturating_add(1);
            }
            if written.is_err() {
                let stream = &mut self.streams[place];
                stream.unwritten = stream.unwritten.saturating_add(one.packet.events);
            }
        }
        written
    }

    /// What is held of the CPU in this place.
    pub(super) fn held(&self, place: usize) -> &Held {
        &self.streams[place].held
    }

    fn open(&mut self, place: usize, first_ts: u64) -> io::Result<&mut Stream> {
        let (trace, of) = (&self.trace, &mut self.streams[place]);
        if of.stream.is_none() {
            let cpu = of.cpu;
            let name = format!("{}_{cpu}", trace::KERNEL);
            let id = StreamId { uuid: trace.uuid, class: 0, instance: cpu.into(), cpu };
            let begin_ts = self.begin_ts.min(first_ts);
            let made = Stream::create(&trace.channel, &name, self.tracefiles, id, begin_ts)?;
            of.stream = Some(made);
        }
        of.stream.as_mut().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Counts what waits of the CPU's, here and in the kernel's buffer, as lost: it can be written
    /// nowhere, and it is the end.
    pub(super) fn lose_the_rest(&mut self, place: usize) {
        let stream = &mut self.streams[place];
        let waiting = mem::take(&mut stream.queue).waiting.len() as u64;
        let rest = [stream.packet.take().events, waiting, stream.stats.entries];
        stream.unwritten = rest.into_iter().fold(stream.unwritten, u64::saturating_add);
    }

    /// Takes the largest of the streams' last packets out of the trace again, so that there is room
    /// for what says what was lost: whether there was one. Its events are lost.
    pub(super) fn give_largest_up(&mut self) -> bool {
        let largest = |of: &&mut CpuStream| of.stream.as_ref()?.last_bytes();
        let Some(of) = self.streams.iter_mut().max_by_key(largest) else { return false };
        let Some(events) = of.stream.as_mut().and_then(Stream::cut_last) else { return false };
        of.written = of.written.saturating_sub(events);
        of.unwritten = of.unwritten.saturating_add(events);
        true
    }

    /// Says in the trace what was lost at the end of the CPU's stream.
    pub(super) fn close(&mut self, place: usize) -> io::Result<()> {
        let stream = &self.streams[place];
        let discarded = stream.lost();
        if discarded <= stream.stream.as_ref().map_or(0, |stream| stream.discarded) {
            return Ok(());
        }
        let begin_ts = self.begin_ts;
        let stream = self.open(place, begin_ts)?;
        let end_ts = monotonic_ns().max(stream.end_ts);
        let mut empty = vec![0; PACKET_HEADER_BYTES];
        let packet = Packet { begin_ts: end_ts, end_ts, discarded, missing: 0, events: 0 };
        stream.append(&mut empty, &packet)
    }

    /// Has all streams last until then ([`Stream::extend`]).
    pub(super) fn extend_streams(&mut self, end_ts: u64) {
        let streams = self.streams.iter_mut().filter_map(|of| of.stream.as_mut());
        streams.for_each(|stream| stream.extend(end_ts));
    }

    /// Forgets what was recorded, but for what filters remember.
    pub(super) fn forget(&mut self) {
        for stream in &mut self.streams {
            *stream = CpuStream { cpu: stream.cpu, ..CpuStream::default() };
        }
    }

    /// Bytes of the trace.
    pub(super) fn bytes(&self) -> u64 {
        let of_streams = self.streams.iter().filter_map(|one| one.stream.as_ref());
        of_streams.map(Stream::bytes).fold(self.trace.metadata.bytes(), u64::saturating_add)
    }
}

impl CpuStream {
    pub(super) const fn lost(&self) -> u64 {
        self.stats.dropped.saturating_add(self.unwritten)
    }

    pub(super) fn overwritten(&self) -> u64 {
        self.stats.overwritten.max(self.missed).saturating_add(self.held.gone)
    }

    /// Events in files that were deleted for newer ones.
    pub(super) fn deleted(&self) -> u64 {
        self.stream.as_ref().map_or(0, Stream::deleted)
    }
}

impl Held {
    fn add(&mut self, packet: PacketBuffer, overwritten: u64, bytes_max: u64) {
        // How many packets they would have been nobody knows.
        self.number += u64::from(overwritten > mem::replace(&mut self.told, overwritten));
        self.raw_bytes += packet.raw_bytes;
        self.bytes += packet.bytes.len() as u64;
        self.events += packet.events;
        self.packets.push_back(Arc::new(HeldPacket { number: self.number, packet }));
        self.number += 1;
        while self.raw_bytes > bytes_max && self.packets.len() > 1 {
            let Some(oldest) = self.packets.pop_front() else { break };
            let PacketBuffer { raw_bytes, bytes, events, .. } = &oldest.packet;
            self.raw_bytes -= raw_bytes;
            self.bytes -= bytes.len() as u64;
            self.events -= events;
            self.gone += events;
        }
    }
}

impl Queue {
    /// Times of a CPU do not go back, here or in packets.
    fn push(&mut self, timestamp: u64, (converted, raw_bytes): (Converted, usize), bytes: &[u8]) {
        self.last_ts = self.last_ts.max(timestamp);
        let (timestamp, length) = (self.last_ts, bytes.len());
        self.bytes.extend(bytes);
        self.waiting.push_back(Waiting { timestamp, converted, bytes: length, raw_bytes });
    }

    fn pop(&mut self, into: &mut Vec<u8>) -> Option<(Converted, usize)> {
        let Waiting { converted, bytes, raw_bytes, .. } = self.waiting.pop_front()?;
        into.clear();
        into.extend(self.bytes.drain(..bytes.min(self.bytes.len())));
        Some((converted, raw_bytes))
    }
}

/// Records that will be a packet, behind room for its header.
#[derive(Debug, Default, Clone)]
struct PacketBuffer {
    bytes: Vec<u8>,
    /// What the kernel wrote that became these.
    raw_bytes: u64,
    begin_ts: u64,
    /// Of the latest record, also of packets before.
    last_ts: u64,
    events: u64,
}

impl PacketBuffer {
    fn has_room(&self, payload_bytes: usize) -> bool {
        self.events == 0 || self.bytes.len() + EXTENDED_BYTES + payload_bytes <= PACKET_BYTES_MAX
    }

    /// Adds a record. The kernel's clock may step back a little between an event and one that
    /// interrupts it; times here do not.
    fn add(&mut self, timestamp: u64, id: u16, payload: &[u8]) {
        debug_assert!(payload.len() + EXTENDED_BYTES <= RECORD_BYTES_MAX, "as plans bound it");
        let timestamp = timestamp.max(self.last_ts);
        if self.events == 0 {
            self.bytes.clear();
            self.bytes.resize(PACKET_HEADER_BYTES, 0);
            (self.begin_ts, self.last_ts) = (timestamp, timestamp);
        }
        let time = (timestamp as u32) << TAG_BITS;
        let id = u32::from(id);
        if (timestamp - self.last_ts) >> TIME_BITS != 0 {
            self.bytes.push(TAG_EXTENDED as u8);
            self.bytes.extend(id.to_le_bytes());
            self.bytes.extend(timestamp.to_le_bytes());
        } else if id < TAG_MEDIUM {
            const _: () = assert!(COMPACT_BYTES == size_of::<u32>());
            self.bytes.extend((time | id).to_le_bytes());
        } else {
            self.bytes.extend((time | TAG_MEDIUM).to_le_bytes());
            self.bytes.extend((id as u16).to_le_bytes());
        }
        self.bytes.extend_from_slice(payload);
        self.last_ts = timestamp;
        self.events += 1;
    }

    /// What is there, and goes on with nothing behind it.
    fn take(&mut self) -> Self {
        let next = Self { last_ts: self.last_ts, ..Self::default() };
        mem::replace(self, next)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use trackway_kernel::catalogue::format::{self, EmptyLookup};
    use trackway_kernel::catalogue::model::{Event, Source};
    use trackway_kernel::tracefs::contexts::{CommonLayout, Context};
    use trackway_kernel::tracefs::convert::plan_event;
    use trackway_kernel::tracefs::filter::Filter;
    use trackway_session::FilterSpec;
    use trackway_testkit::TemporaryFolder;

    use super::*;
    use crate::kernel_filters::{KernelFilters, Whose};

    const PAGE: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
        \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
        \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";
    const ENTRY: &str = "type_len : 5 bits\ntime_delta : 27 bits\npadding : type == 29\n\
        time_extend : type == 30\n";
    const FORMAT: &str = "name: made_up\nID: 300\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:int number;\toffset:8;\tsize:4;\tsigned:1;\n\nprint fmt: \"\"\n";

    /// A page with an event for each of these times and numbers.
    fn page(events: &[(u64, u32)]) -> Vec<u8> {
        let first = events.first().map_or(0, |&(time, _)| time);
        let mut bytes = first.to_le_bytes().to_vec();
        bytes.extend((16 * events.len() as u64).to_le_bytes());
        let mut before = first;
        for &(time, number) in events {
            bytes.extend((((time - before) as u32) << 5 | 3).to_le_bytes());
            [300, 77, number].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
            before = time;
        }
        bytes.resize(4096, 0);
        bytes
    }

    fn output(folder: &Path, filter: &str, held_bytes: Option<u64>) -> (Output, PageFormat) {
        let format = format::parse(FORMAT, &EmptyLookup).expect("a format");
        let common = CommonLayout::find(&format.common).expect("what all have");
        let event = Event {
            subsystem: "made".into(),
            name: "up".into(),
            id: Some(format.id),
            source: Source::Tracepoint,
            fields: format.fields,
        };
        let specs = [FilterSpec::new(filter)];
        let as_staged = |event: &Event| plan_event(event, 3500);
        let events = std::slice::from_ref(&event);
        let mut filters = KernelFilters::<Filter>::new(
            (&specs, Whose::Kernels(&[])),
            events,
            as_staged,
            (2, None),
        )
        .expect("it makes sense");
        let asked = [(&event, filters.take(0).expect("it has all"))];
        let converter =
            Converter::with_filters(asked.into_iter(), common, 3500, vec![Context::Tid]);
        let place = crate::place::Place::open(folder).expect("a folder");
        let trace = Trace::create_kernel(&place, [7; 16], 0, converter.contexts(), Vec::new());
        let (trace, bounds) = (trace.expect("a trace"), Tracefiles::default());
        let output = Output::new(trace, Arc::new(converter), (0, held_bytes), bounds, 0..2);
        (output, PageFormat::parse(PAGE, ENTRY).expect("known"))
    }

    /// The numbers in a packet: each record is header, thread, number.
    fn numbers(packet: &PacketBuffer) -> Vec<u32> {
        let records = packet.bytes.get(PACKET_HEADER_BYTES..).unwrap_or_default();
        let number = |of: &[u8; 12]| u32::from_le_bytes([of[8], of[9], of[10], of[11]]);
        records.as_chunks().0.iter().map(number).collect()
    }

    #[test]
    fn filters_that_remember_are_asked_in_the_order_of_time_of_all_cpus() {
        let folder = TemporaryFolder::new();
        let (mut output, format) = output(folder.path(), "made:up: count() % 3 == 0", None);
        // Read one after the other; by time: 0, 10, 1, 2, 11, 3, 12, 13, 14.
        let first = [(100, 0), (300, 1), (400, 2), (600, 3)];
        let second = [(200, 10), (500, 11), (700, 12), (800, 13), (900, 14)];
        output.page(0, &page(&first), &format).expect("it waits");
        output.page(1, &page(&second), &format).expect("it waits");
        assert_eq!((output.last_ts(0), output.last_ts(1)), (600, 900));
        assert!(output.streams.iter().all(|stream| stream.packet.events == 0));
        output.settle(600).expect("room");
        let taken = |output: &Output| [0, 1].map(|place| numbers(&output.streams[place].packet));
        assert_eq!(taken(&output), [vec![0, 2], vec![]]);
        output.settle(u64::MAX).expect("room");
        assert_eq!(taken(&output), [vec![0, 2], vec![12]]);
    }

    #[test]
    fn it_is_known_how_far_a_cpu_was_read_whether_records_wait_or_not() {
        for filter in ["made:up: number >= 0", "made:up: number < 0", "made:up: count() > 1"] {
            let folder = TemporaryFolder::new();
            let (mut output, format) = output(folder.path(), filter, None);
            assert_eq!(output.last_ts(1), 0);
            output.page(1, &page(&[(200, 1), (500, 2)]), &format).expect("room");
            assert_eq!((output.last_ts(0), output.last_ts(1)), (0, 500), "{filter}");
        }
    }

    #[test]
    fn records_are_asked_what_was_asked_when_they_were_made() {
        let folder = TemporaryFolder::new();
        let (mut output, format) = output(folder.path(), "made:up: number % 2 == 0", None);
        let before = Arc::clone(&output.converter);
        let anew = |count: &str| {
            let other = TemporaryFolder::new();
            let filter = format!("made:up: count() < {count}");
            Arc::clone(&self::output(other.path(), &filter, None).0.converter)
        };
        let page = |output: &mut Output, times: &[(u64, u32)]| {
            output.page(0, &page(times), &format).expect("room");
            output.settle(u64::MAX).expect("room");
            numbers(&output.streams[0].packet.take())
        };
        output.ask_anew(anew("2"));
        let then = output.former[0].until_ts;
        // Read later, of before and behind.
        let both = [(then - 3, 1), (then - 2, 2), (then - 1, 3), (then, 4), (then + 1, 5)];
        assert_eq!(page(&mut output, &both), [2, 4, 5]);
        // The new one takes no more; to be taken back is to ask as before.
        assert_eq!(page(&mut output, &[(then + 2, 6)]), [] as [u32; 0]);
        output.ask_as_before(Arc::clone(&before));
        assert!(Arc::ptr_eq(&before, &output.converter));
        assert_eq!(page(&mut output, &[(then + 3, 7), (then + 4, 8)]), [8]);
        // Also where that is forgotten.
        output.ask_anew(anew("1"));
        output.has_all_until(u64::MAX);
        output.ask_as_before(Arc::clone(&before));
        assert!(Arc::ptr_eq(&before, &output.converter));
        output.has_all_until(u64::MAX);
        // Forgotten once all of before is read; what remembers is asked in order no longer then.
        output.ask_anew(anew("1"));
        output.ask_anew(Arc::clone(&before));
        assert!(output.is_ordered && output.former.len() == 2);
        output.has_all_until(u64::MAX);
        assert!(!output.is_ordered && output.former.is_empty());
        for _ in 0..=FORMER_MAX {
            output.ask_anew(Arc::clone(&before));
        }
        assert_eq!(output.former.len(), FORMER_MAX);
    }

    #[test]
    fn a_flight_recorder_holds_the_newest_packets_and_each_once() {
        let folder = TemporaryFolder::new();
        let filter = "made:up: number >= 0";
        let (mut recording, format) = output(folder.path(), filter, Some(3 * 12 * 10));
        let times = |from: u32| (from..from + 10).map(|at| (u64::from(at), at)).collect::<Vec<_>>();
        for from in [100, 200, 300, 400] {
            recording.page(0, &page(&times(from)), &format).expect("it is held");
            recording.packet(0).expect("it is held");
        }
        let held = recording.held(0);
        assert_eq!((held.events, held.packets.len()), (30, 3));
        assert_eq!(recording.streams[0].overwritten(), 10);
        let last = held.packets.back().expect("packets");
        assert_eq!((last.number, numbers(&last.packet)[0]), (3, 400));
        // What the kernel overwrote before the next is a gap before it.
        let held = held.clone();
        recording.streams[0].stats.overwritten = 5;
        recording.page(0, &page(&times(500)), &format).expect("it is held");
        recording.packet(0).expect("it is held");
        assert_eq!(recording.held(0).packets.back().map(|one| one.number), Some(5));
        let other = TemporaryFolder::new();
        let (mut snapshot, _) = output(other.path(), filter, None);
        snapshot.write_held(0, &held, 300).expect("room");
        assert_eq!(snapshot.streams[0].written, 20);
    }

    #[test]
    fn packets_are_bounded_and_their_times_do_not_go_back() {
        let mut packet = PacketBuffer::default();
        let mut packets = 0;
        let mut before = 0;
        for number in 0..200_u64 {
            if !packet.has_room(1000) {
                let full = packet.take();
                assert!(full.bytes.len() <= PACKET_BYTES_MAX && full.begin_ts >= before);
                assert!(full.begin_ts <= full.last_ts);
                (before, packets) = (full.last_ts, packets + 1);
            }
            // Every other one claims to be earlier.
            packet.add(5000 + number - 100 * (number & 1), 7, &[0; 1000]);
        }
        assert_eq!((packets, packet.events), (3, 200 - 3 * 65));
    }

    #[test]
    fn headers_are_as_long_as_numbers_and_times_want() {
        let mut packet = PacketBuffer::default();
        let mut length = PACKET_HEADER_BYTES;
        let begin = 77 << 27;
        for (timestamp, id, header) in [
            (begin, 3, 4),
            (begin + 1, 29, 4),
            (begin + 2, 30, 6),
            (begin + (1 << 27) + 1, 40_000, 6),
            (begin + (1 << 28) + 1, 3, 13),
            (begin + (1 << 28) + 2, 3, 4),
        ] {
            packet.add(timestamp, id, b"payload");
            assert_eq!(packet.bytes.len(), length + header + 7, "{timestamp} {id}");
            length = packet.bytes.len();
        }
    }
}
