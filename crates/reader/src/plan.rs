//! The division of a stream into tasks: runs of packets that can be decoded independently.
//!
//! The planner reads the headers of a stream's packets, just ahead of decoding. It records the
//! state that decoding needs from earlier packets: the counts of losses. If packets depend on more
//! than that (a short clock that no packet sets anew), tasks are sequential, and each takes the
//! planner along.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use trackway_ctf::read::{
    ByteSource, Packet, ResumeState, Skip, SourceStream, StreamDecoder, packets_stand_alone,
};

use crate::decode::DecodeTask;
use crate::input::HEADER_WINDOW_BYTES;
use crate::overlap::PacketAt;
use crate::stream::Stream;

/// Number of bytes per read in the search for a packet after damage.
const SEARCH_BYTES: usize = 64 << 10;
/// Maximum number of candidate places in one stream in searches after damage.
const SEARCHES_MAX: u32 = 1 << 16;
/// Small packets are combined up to this size in bytes, to limit the overhead per task.
const TASK_BYTES: u64 = 64 << 10;

/// Divides one stream into tasks.
pub(crate) struct Planner<'t, B> {
    stream: &'t Stream<'t, B>,
    /// Offset and number of the next packet of each file.
    next: Vec<(u64, u64)>,
    /// If there are several files: those with packets left, earliest packet first.
    order: BinaryHeap<Reverse<(PacketRank, usize)>>,
    /// Decoder with the state after all planned packets.
    decoder: StreamDecoder<'t>,
    /// Number of candidate places tried after damage.
    searched: u32,
    is_begun: bool,
    /// True if all remaining packets are later than the requested range.
    is_over: bool,
}

/// The rank of a file's next packet among those of other files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PacketRank {
    /// The packet is unreadable: it comes first, so that its damage is reported.
    Damaged,
    /// Clock value of the packet's begin, and its number in the stream, if it has them. Packets may
    /// begin at the same time: after a packet without events, the next one can follow at once.
    Begins(Option<u64>, Option<u64>),
}

/// A task, and its effect on the planning of later tasks.
pub(crate) struct Planned<'t, B> {
    pub(crate) task: DecodeTask<'t, B>,
    /// True if the next task can be planned before this task has ended. Otherwise
    /// [`Planner::resume`] needs the task's decoder first.
    pub(crate) stands_alone: bool,
    /// Approximate begin time of the next task, which is its urgency.
    pub(crate) until: i64,
}

impl<'t, B: ByteSource> Planner<'t, B> {
    /// Creates a planner before a stream's first packet.
    pub(crate) fn new(stream: &'t Stream<'t, B>) -> Self {
        // The file that was read last has the state before the next packets.
        let carry = stream.files.iter().map(|file| file.part.carry);
        let carry = carry.max_by_key(ResumeState::clock).unwrap_or_default();
        Self {
            stream,
            next: stream.files.iter().map(|file| file.part.from).collect(),
            order: BinaryHeap::new(),
            decoder: StreamDecoder::resume(&stream.trace.trace, carry),
            searched: 0,
            is_begun: false,
            is_over: false,
        }
    }

    /// Continues with the state after a task that does not stand alone.
    pub(crate) fn resume(&mut self, decoder: StreamDecoder<'t>) {
        self.decoder = decoder;
    }

    /// Returns the next task, if a requested packet is left. `memory` is for reading headers.
    pub(crate) fn plan(&mut self, memory: &mut Vec<u8>) -> Option<Planned<'t, B>> {
        if !std::mem::replace(&mut self.is_begun, true) {
            self.begin(memory)?;
        }
        while !self.is_over {
            let index = self.choose(memory)?;
            let mut source = self.source(index, memory)?;
            let planned = self.plan_from(index, &mut source);
            self.put_back(index, source, memory);
            if planned.is_some() {
                return planned;
            }
        }
        None
    }

    /// Moves each file to its first packet that may be requested.
    fn begin(&mut self, memory: &mut Vec<u8>) -> Option<()> {
        for index in 0..self.next.len() {
            let mut source = self.source(index, memory)?;
            self.seek(index, &mut source);
            self.put_back(index, source, memory);
        }
        Some(())
    }

    /// Moves to the last packet before the range, if the file's index locates it: its totals show
    /// the losses before the next packet.
    fn seek(&self, index: usize, source: &mut SourceStream<&'t B>) -> Option<()> {
        let begin = self.stream.range.begin.filter(|_| source.next() == (0, 0))?;
        let packets = self.stream.files.get(index)?.index.as_ref()?;
        let trace = &self.stream.trace.trace;
        let class = trace.streams().get(source.peek(trace)?.stream)?;
        let clock = class.clock().filter(|_| packets_stand_alone(class))?;
        let is_before = |cycles| clock.ns_from_origin(cycles).is_ok_and(|time| time < begin);
        let entry = packets.last(|entry| is_before(entry.end))?;
        source.go_to(entry.offset, entry.number);
        if !source.peek(trace).is_some_and(|packet| entry.matches_packet(&packet)) {
            source.go_to(0, 0);
        }
        Some(())
    }

    /// Finds the next packet after damage of unknown extent: the packet of the index, if the stream
    /// has the same packet there; otherwise the next place that looks like a packet.
    fn find_next(&mut self, index: usize, damaged: u64, source: &mut SourceStream<&'t B>) {
        // The tracer did not lose the packets that are not read.
        self.decoder.forget_sequence();
        let Some(file) = self.stream.files.get(index) else { return };
        let (end, number) = source.next();
        if let Some(entry) = file.index.as_ref().and_then(|packets| packets.entry_after(damaged)) {
            source.go_to(entry.offset, entry.number);
            let packet = source.peek(&self.stream.trace.trace);
            if packet.is_some_and(|packet| entry.matches_packet(&packet)) {
                return;
            }
        }
        let at = self.search_packet(&file.bytes, damaged + 1, number, source);
        source.go_to(at.unwrap_or(end), number);
    }

    /// Returns the next place from `from` on that has the magic number and a readable packet
    /// header. The number of tried places is bounded, because a file may be full of magic numbers.
    fn search_packet(
        &mut self,
        bytes: &B,
        mut from: u64,
        number: u64,
        source: &mut SourceStream<&'t B>,
    ) -> Option<u64> {
        let trace = &self.stream.trace.trace;
        let magic = trace.packet_magic()?;
        let mut piece = vec![0; SEARCH_BYTES];
        loop {
            let filled = bytes.read_at(&mut piece, from).ok()?;
            let found = piece.get(..filled)?.windows(magic.len()).enumerate();
            for (at, _) in found.filter(|(_, window)| *window == magic) {
                let at = from + at as u64;
                self.searched = self.searched.checked_add(1).filter(|&n| n <= SEARCHES_MAX)?;
                source.go_to(at, number);
                if source.peek(trace).is_some() {
                    return Some(at);
                }
            }
            // A magic number that is cut off at the piece's end is in the next piece.
            from += filled.checked_sub(magic.len() - 1).filter(|&step| step > 0)? as u64;
        }
    }

    /// Plans a task of the next packets of a file; `None` if the first packet is skipped.
    fn plan_from(
        &mut self,
        index: usize,
        source: &mut SourceStream<&'t B>,
    ) -> Option<Planned<'t, B>> {
        let file = self.stream.files.get(index)?;
        let (start, number) = source.next();
        let decoder = self.decoder.clone();
        let mut until = None;
        loop {
            let (at, _) = source.next();
            let packet = source.begin_packet(&mut self.decoder, &mut Skip, |_| {}).ok();
            if packet.is_none() {
                self.find_next(index, at, source);
            }
            let bytes = source.next().0.saturating_sub(start);
            if let Some((packet, class)) = packet.zip(self.decoder.class()) {
                let clock = class.clock();
                let range = &self.stream.range;
                if range.is_after(&packet, clock) && packets_stand_alone(class) && until.is_none() {
                    return None;
                }
                let end = packet.timestamp_end.or(packet.timestamp_begin);
                until = end.zip(clock).and_then(|(end, clock)| clock.ns_from_origin(end).ok());
                // This packet is still read, for the losses before it.
                self.is_over = range.is_before(&packet, clock);
            }
            if packet.is_none()
                || self.is_over
                || source.is_at_end()
                || bytes >= TASK_BYTES
                || !self.is_first(source)
            {
                break;
            }
        }
        let (end, _) = source.next();
        let stands_alone = self.decoder.class().is_none_or(packets_stand_alone);
        if !stands_alone {
            self.decoder = decoder.clone();
        }
        let task = DecodeTask::new(self.stream, file, (start, number), end, decoder);
        Some(Planned { task, stands_alone, until: until.unwrap_or(i64::MIN) })
    }

    /// Returns the file whose next packet is the earliest. If several files have the same packet
    /// (snapshots overlap at the packet that is being written), returns the file with the longest
    /// copy, and skips the packet in the others.
    fn choose(&mut self, memory: &mut Vec<u8>) -> Option<usize> {
        if let [_] = self.next[..] {
            let source = self.source(0, memory)?;
            let is_at_end = source.is_at_end();
            *memory = source.into_memory();
            return (!is_at_end).then_some(0);
        }
        let Reverse((place, first)) = self.order.pop()?;
        let Some(mut longest) = self.peek(first, memory) else { return Some(first) };
        let mut chosen = first;
        let mut others = vec![(first, Some(longest))];
        while let Some(&Reverse((other, index))) = self.order.peek()
            && other == place
        {
            self.order.pop();
            let other = self.peek(index, memory);
            let same = other.filter(|&other| self.is_same((chosen, longest), (index, other)));
            if let Some(longer) = same.filter(|same| same.content_bits > longest.content_bits) {
                (chosen, longest) = (index, longer);
            }
            others.push((index, same));
        }
        for (index, same) in others.into_iter().filter(|&(index, _)| index != chosen) {
            let mut source = self.source(index, memory)?;
            if let Some(same) = same {
                source.skip(&same);
            }
            self.put_back(index, source, memory);
        }
        Some(chosen)
    }

    /// Returns true if the next packets of two files, which begin at the same time, are the same
    /// packet.
    fn is_same(&self, one: (usize, Packet), other: (usize, Packet)) -> bool {
        let packet_at = |(index, packet): (usize, Packet)| {
            let bytes = &self.stream.files.get(index)?.bytes;
            Some(PacketAt { bytes, at: *self.next.get(index)?, packet })
        };
        let both = packet_at(one).zip(packet_at(other));
        both.is_some_and(|(one, other)| one.is_of_same(&other, &self.stream.trace.trace))
    }

    fn peek(&self, index: usize, memory: &mut Vec<u8>) -> Option<Packet> {
        let mut source = self.source(index, memory)?;
        let packet = source.peek(&self.stream.trace.trace);
        *memory = source.into_memory();
        packet
    }

    /// Returns true if the next packet of the chosen file precedes the packets of all other files.
    fn is_first(&self, source: &mut SourceStream<&'t B>) -> bool {
        let Some(&Reverse((other, _))) = self.order.peek() else { return true };
        self.place(source) < other
    }

    fn place(&self, source: &mut SourceStream<&'t B>) -> PacketRank {
        let packet = source.peek(&self.stream.trace.trace);
        let begins = |packet: Packet| PacketRank::Begins(packet.timestamp_begin, packet.sequence);
        packet.map_or(PacketRank::Damaged, begins)
    }

    /// Returns a file at its next packet. The caller must return it by `put_back`, or return its
    /// memory.
    fn source(&self, index: usize, memory: &mut Vec<u8>) -> Option<SourceStream<&'t B>> {
        let file = self.stream.files.get(index)?;
        let &(at, number) = self.next.get(index)?;
        let source = SourceStream::new(&file.bytes);
        let mut source = source.with_window(HEADER_WINDOW_BYTES, std::mem::take(memory));
        source.go_to(at, number);
        Some(source)
    }

    /// Stores the place of a file's next packet, and takes back the memory.
    fn put_back(&mut self, index: usize, mut source: SourceStream<&'t B>, memory: &mut Vec<u8>) {
        if let Some(next) = self.next.get_mut(index) {
            *next = source.next();
        }
        if self.stream.files.len() > 1 && !source.is_at_end() {
            let place = self.place(&mut source);
            self.order.push(Reverse((place, index)));
        }
        *memory = source.into_memory();
    }
}
