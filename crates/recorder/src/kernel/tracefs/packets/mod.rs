//! Packets of a trace, made from tracefs records: converted, filtered and sorted.
//!
//! Filters with state must evaluate the records of all CPUs in the order of time, like a reader of
//! the trace. So records wait in queues until no earlier record can arrive
//! ([`PacketOutput::process_until`]). Without filters with state no record waits.
//!
//! A flight recorder's packets are held in memory, each with a number, up to the size of the
//! kernel's buffer. Reading the kernel's buffer empties it. But the next snapshot needs the same
//! events in the same packets, so that a merge of snapshots has each event once.

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

use crate::trace::layout::{self, Trace};
use crate::trace::loss_history::Losses;
use crate::trace::stream::{Packet, Stream, StreamId};

/// Highest size of a packet, in bytes.
const PACKET_BYTES_MAX: usize = 1 << 16;
/// Most bytes of one CPU's waiting records. Beyond that, records stay in the kernel's buffer, which
/// counts events that find no space.
const QUEUE_BYTES_MAX: usize = 64 << 20;
/// Most former filters that are kept for earlier records that are still unread; beyond that, the
/// oldest are dropped.
const FORMER_FILTERS_MAX: usize = 16;

/// Trace to which records are written as packets.
#[derive(Debug)]
pub(super) struct PacketOutput {
    pub(super) trace: Trace,
    converter: Arc<Converter>,
    /// State of the filters in `converter`.
    memory: FilterState,
    /// Former filters for records of their time, oldest first.
    former: VecDeque<FormerFilters>,
    /// True if records wait in queues until they can be sorted by time.
    is_ordered: bool,
    /// Time of the beginning: nothing was recorded before.
    pub(super) begin_ts: u64,
    /// In a flight recorder, the most bytes of kernel records that are held for each CPU.
    held_bytes: Option<u64>,
    tracefiles: Tracefiles,
    pub(super) streams: Vec<CpuStream>,
    /// Buffer for a converted record.
    record: Vec<u8>,
}

/// Filters for records from before `until_ts`.
#[derive(Debug)]
struct FormerFilters {
    until_ts: u64,
    converter: Arc<Converter>,
    memory: FilterState,
}

/// Stream of a CPU, and the packet that is written to it next.
#[derive(Debug, Default)]
pub(super) struct CpuStream {
    cpu: u32,
    stream: Option<Stream>,
    packet: PacketBuffer,
    queue: RecordQueue,
    /// Time of the latest record that was read from this CPU, waiting or not.
    last_ts: u64,
    /// Losses that the kernel reports.
    pub(super) stats: BufferStats,
    /// Number of events that the kernel lost before a page, by the counts in the pages.
    pub(super) missed: u64,
    /// Number of events that could not be written because the disk was full.
    pub(super) unwritten: u64,
    pub(super) written: u64,
    pub(super) damaged: u64,
    held: HeldPackets,
    /// The losses of [`Self::lost`] that packets have reported.
    losses: Losses<u64>,
}

/// Packets of a flight recorder, the oldest first.
#[derive(Debug, Clone, Default)]
pub(super) struct HeldPackets {
    packets: VecDeque<Arc<HeldPacket>>,
    /// Number of the next packet.
    number: u64,
    /// Number of overwritten events when the latest packet was added.
    reported_overwritten: u64,
    /// Size of these packets' records in the kernel's buffer, in bytes.
    raw_bytes: u64,
    pub(super) bytes: u64,
    pub(super) events: u64,
    /// Number of events in packets that were dropped for newer packets.
    gone: u64,
}

#[derive(Debug)]
struct HeldPacket {
    number: u64,
    packet: PacketBuffer,
}

/// Records that wait to be sorted, in the order of time.
#[derive(Debug, Default)]
struct RecordQueue {
    waiting: VecDeque<QueuedRecord>,
    bytes: VecDeque<u8>,
    last_ts: u64,
}

#[derive(Debug, Clone, Copy)]
struct QueuedRecord {
    timestamp: u64,
    converted: Converted,
    bytes: usize,
    raw_bytes: usize,
}

impl PacketOutput {
    /// Creates the output to this trace, from these CPUs. A flight recorder holds at most
    /// `held_bytes` bytes of each CPU.
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

    /// Adds the new events of `converter`, from now on.
    pub(super) fn extend(&mut self, converter: Arc<Converter>) {
        converter.extend_state(&mut self.memory);
        self.is_ordered |= converter.has_state();
        self.converter = converter;
    }

    /// Replaces the filters for records from now on. The former filters still test earlier records,
    /// which may be read later.
    pub(super) fn replace_filters(&mut self, converter: Arc<Converter>) {
        let (memory, until_ts) = (converter.new_state(), monotonic_ns());
        self.is_ordered |= converter.has_state();
        let converter = mem::replace(&mut self.converter, converter);
        let memory = mem::replace(&mut self.memory, memory);
        if self.former.len() >= FORMER_FILTERS_MAX {
            self.former.pop_front();
        }
        self.former.push_back(FormerFilters { until_ts, converter, memory });
    }

    /// Undoes the latest [`Self::replace_filters`]: restores the former filters with their state.
    /// Former filters that are no longer kept start with a new state.
    pub(super) fn restore_filters(&mut self, converter: Arc<Converter>) {
        let is_it = |former: &mut FormerFilters| Arc::ptr_eq(&former.converter, &converter);
        match self.former.pop_back_if(is_it) {
            Some(former) => (self.converter, self.memory) = (former.converter, former.memory),
            None => self.replace_filters(converter),
        }
    }

    /// Notes that all records before `until_ts` were read; drops the filters for these records.
    pub(super) fn mark_read_until(&mut self, until_ts: u64) {
        self.former.retain(|former| former.until_ts > until_ts);
        let is_waiting = self.streams.iter().any(|stream| !stream.queue.waiting.is_empty());
        // New records must not overtake waiting records.
        if self.former.is_empty() && !is_waiting {
            self.is_ordered = self.converter.has_state();
        }
    }

    /// Returns true if the filters pass the record in [`Self::record`].
    fn passes_filters(&self, converted: &Converted, occurrence: Occurrence) -> bool {
        let former = self.former.iter().find(|former| occurrence.time_ns < former.until_ts);
        let (converter, memory) =
            former.map_or((&self.converter, &self.memory), |of| (&of.converter, &of.memory));
        converter.passes(converted, &self.record, occurrence, memory)
    }

    /// Processes a page of the CPU with index `place`.
    ///
    /// # Errors
    ///
    /// If a packet cannot be written; the resulting losses are counted.
    pub(super) fn process_page(
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
            if self.passes_filters(&converted, occurrence) {
                let of = (entry.timestamp, converted.event, raw_bytes);
                written = self.write_record(place, of).and(written);
            }
        }
        written
    }

    /// Returns true if more of the CPU with index `place` can be read: its queue is not too long.
    pub(super) fn has_room(&self, place: usize) -> bool {
        self.streams[place].queue.bytes.len() <= QUEUE_BYTES_MAX
    }

    /// Returns the time of the latest record that was read from the CPU with index `place`.
    pub(super) fn last_ts(&self, place: usize) -> u64 {
        self.streams[place].last_ts
    }

    /// Filters the records up to `until_ts`; no earlier record arrives after this call.
    ///
    /// # Errors
    ///
    /// If a packet cannot be written; the resulting losses are counted.
    pub(super) fn process_until(&mut self, until_ts: u64) -> io::Result<()> {
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
            if self.passes_filters(&converted, occurrence) {
                let of = (timestamp, converted.event, raw_bytes);
                written = self.write_record(place, of).and(written);
            }
        }
        written
    }

    /// Adds the record in [`Self::record`] to the CPU's packet.
    fn write_record(
        &mut self,
        place: usize,
        (timestamp, event, raw_bytes): (u64, u16, usize),
    ) -> io::Result<()> {
        let mut written = Ok(());
        if !self.streams[place].packet.has_room(self.record.len()) {
            written = self.flush_packet(place);
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

    /// Writes the CPU's packet, or holds it in a flight recorder, unless it is empty. A failed
    /// write is tried again later.
    pub(super) fn flush_packet(&mut self, place: usize) -> io::Result<()> {
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
        // Add one: the number of packets that overwritten events would have filled is unknown.
        let missing = u64::from(stream.stream.is_none() && stream.overwritten() > 0);
        let length = packet.bytes.len();
        let written = self.append_packet(place, &mut packet, missing);
        if written.is_err() {
            packet.bytes.truncate(length);
            self.streams[place].packet = packet;
        }
        written
    }

    fn append_packet(
        &mut self,
        place: usize,
        packet: &mut PacketBuffer,
        missing: u64,
    ) -> io::Result<()> {
        let stream = &mut self.streams[place];
        let fields = Packet {
            begin_ts: packet.begin_ts,
            end_ts: packet.last_ts,
            discarded: stream.losses.until(packet.last_ts),
            missing,
            events: packet.events,
        };
        stream.losses.observe(stream.lost());
        self.open_stream(place, packet.begin_ts)?.append(&mut packet.bytes, &fields)?;
        self.streams[place].written += packet.events;
        Ok(())
    }

    /// Writes a CPU's held packets, except those that ended before `since_ts`. If a packet cannot
    /// be written, it and all later packets are lost.
    pub(super) fn write_held(
        &mut self,
        place: usize,
        held: &HeldPackets,
        since_ts: u64,
    ) -> io::Result<()> {
        let mut next = 0;
        let mut written = Ok(());
        for one in held.packets.iter().filter(|one| one.packet.last_ts >= since_ts) {
            if written.is_ok() {
                let mut packet = one.packet.clone();
                written = self.append_packet(place, &mut packet, one.number.saturating_sub(next));
                next = one.number.saturating_add(1);
            }
            if written.is_err() {
                let stream = &mut self.streams[place];
                stream.unwritten = stream.unwritten.saturating_add(one.packet.events);
            }
        }
        written
    }

    /// Returns the held packets of the CPU with index `place`.
    pub(super) fn held_packets(&self, place: usize) -> &HeldPackets {
        &self.streams[place].held
    }

    fn open_stream(&mut self, place: usize, first_ts: u64) -> io::Result<&mut Stream> {
        let (trace, of) = (&self.trace, &mut self.streams[place]);
        if of.stream.is_none() {
            let cpu = of.cpu;
            let name = format!("{}_{cpu}", layout::KERNEL_FOLDER);
            let id = StreamId { uuid: trace.uuid, class: 0, instance: cpu.into(), cpu };
            let begin_ts = self.begin_ts.min(first_ts);
            let made = Stream::create(&trace.channel, &name, self.tracefiles, id, begin_ts)?;
            of.stream = Some(made);
        }
        of.stream.as_mut().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Counts the CPU's waiting records, here and in the kernel's buffer, as lost: they cannot be
    /// written any more.
    pub(super) fn count_unwritten_as_lost(&mut self, place: usize) {
        let stream = &mut self.streams[place];
        let waiting = mem::take(&mut stream.queue).waiting.len() as u64;
        let rest = [stream.packet.take().events, waiting, stream.stats.entries];
        stream.unwritten = rest.into_iter().fold(stream.unwritten, u64::saturating_add);
    }

    /// Removes the largest of the streams' last packets from the trace, to make space for reports
    /// of losses. Its events are lost. Returns true if there was a packet.
    pub(super) fn drop_largest_packet(&mut self) -> bool {
        let largest = |of: &&mut CpuStream| of.stream.as_ref()?.last_packet_bytes();
        let Some(of) = self.streams.iter_mut().max_by_key(largest) else { return false };
        let Some(events) = of.stream.as_mut().and_then(Stream::cut_last_packet) else {
            return false;
        };
        of.written = of.written.saturating_sub(events);
        of.unwritten = of.unwritten.saturating_add(events);
        true
    }

    /// Writes the loss count at the end of the CPU's stream.
    pub(super) fn close_stream(&mut self, place: usize) -> io::Result<()> {
        let stream = &self.streams[place];
        let discarded = stream.lost();
        if discarded <= stream.stream.as_ref().map_or(0, |stream| stream.discarded) {
            return Ok(());
        }
        let begin_ts = self.begin_ts;
        let stream = self.open_stream(place, begin_ts)?;
        let end_ts = monotonic_ns().max(stream.end_ts);
        let mut empty = vec![0; PACKET_HEADER_BYTES];
        let packet = Packet { begin_ts: end_ts, end_ts, discarded, missing: 0, events: 0 };
        stream.append(&mut empty, &packet)
    }

    /// Extends all streams until `end_ts` ([`Stream::extend`]).
    pub(super) fn extend_streams(&mut self, end_ts: u64) {
        let streams = self.streams.iter_mut().filter_map(|of| of.stream.as_mut());
        streams.for_each(|stream| stream.extend(end_ts));
    }

    /// Discards the recorded events, but keeps the state of filters.
    pub(super) fn discard_recorded(&mut self) {
        for stream in &mut self.streams {
            *stream = CpuStream { cpu: stream.cpu, ..CpuStream::default() };
        }
    }

    /// Returns the size of the trace's streams and metadata, in bytes.
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

    /// Returns the number of events in files that were deleted for newer files.
    pub(super) fn deleted(&self) -> u64 {
        self.stream.as_ref().map_or(0, Stream::deleted)
    }
}

impl HeldPackets {
    fn add(&mut self, packet: PacketBuffer, overwritten: u64, bytes_max: u64) {
        // Add one: the number of packets that overwritten events would have filled is unknown.
        self.number +=
            u64::from(overwritten > mem::replace(&mut self.reported_overwritten, overwritten));
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

impl RecordQueue {
    /// Adds a record. A CPU's times never go back, neither in queues nor in packets.
    fn push(&mut self, timestamp: u64, (converted, raw_bytes): (Converted, usize), bytes: &[u8]) {
        self.last_ts = self.last_ts.max(timestamp);
        let (timestamp, length) = (self.last_ts, bytes.len());
        self.bytes.extend(bytes);
        self.waiting.push_back(QueuedRecord { timestamp, converted, bytes: length, raw_bytes });
    }

    fn pop(&mut self, into: &mut Vec<u8>) -> Option<(Converted, usize)> {
        let QueuedRecord { converted, bytes, raw_bytes, .. } = self.waiting.pop_front()?;
        into.clear();
        into.extend(self.bytes.drain(..bytes.min(self.bytes.len())));
        Some((converted, raw_bytes))
    }
}

/// Records of the next packet, after space for the packet's header.
#[derive(Debug, Default, Clone)]
struct PacketBuffer {
    bytes: Vec<u8>,
    /// Size of these records in the kernel's buffer, in bytes.
    raw_bytes: u64,
    begin_ts: u64,
    /// Time of the latest record, including records of earlier packets.
    last_ts: u64,
    events: u64,
}

impl PacketBuffer {
    fn has_room(&self, payload_bytes: usize) -> bool {
        self.events == 0 || self.bytes.len() + EXTENDED_BYTES + payload_bytes <= PACKET_BYTES_MAX
    }

    /// Adds a record. The kernel's clock may step back a little between an event and an event that
    /// interrupts it; times in a packet never do.
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

    /// Returns the contents, and leaves an empty packet.
    fn take(&mut self) -> Self {
        let next = Self { last_ts: self.last_ts, ..Self::default() };
        mem::replace(self, next)
    }
}

#[cfg(test)]
mod tests;
