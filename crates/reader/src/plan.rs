//! A stream cut into tasks: runs of packets that can be decoded by themselves.
//!
//! The planner walks along the headers of a stream's packets, just ahead of those who decode
//! them, and notes what decoding needs of the packets before: what the tracer had lost up to
//! there. Where packets depend on more than that (a clock of few bits that no packet sets
//! anew), there is one task at a time, which takes the planner along.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use trackway_ctf::read::{
    ByteSource, Packet, ResumeState, Skip, SourceStream, StreamDecoder, packets_stand_alone,
};

use crate::decode::DecodeTask;
use crate::input::HEADER_WINDOW_BYTES;
use crate::overlap::PacketAt;
use crate::stream::Stream;

/// Bytes that are searched at once for the packet after a damaged one.
const SEARCH_BYTES: usize = 64 << 10;
/// Most places in one stream that are tried as a packet's beginning after damage.
const SEARCHES_MAX: u32 = 1 << 16;
/// Small packets are decoded together up to this size, so that handing them out costs little.
const TASK_BYTES: u64 = 64 << 10;

/// Cuts one stream into tasks.
pub(crate) struct Planner<'t, B> {
    stream: &'t Stream<'t, B>,
    /// Start and number of the next packet of each file.
    next: Vec<(u64, u64)>,
    /// If there are several files: those with packets left, the earliest first.
    order: BinaryHeap<Reverse<(PacketRank, usize)>>,
    /// The state that the packets up to here leave.
    decoder: StreamDecoder<'t>,
    /// Number of places that were looked at after damage.
    searched: u32,
    is_begun: bool,
    /// True if all that follows is later than the requested time.
    is_over: bool,
}

/// The rank of a file's next packet among those of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PacketRank {
    /// It cannot be read: it comes first, so that its damage is reported.
    Damaged,
    /// It begins at this clock value, and has this number in its stream, if it says so. Behind one
    /// without events the next may begin at once.
    Begins(Option<u64>, Option<u64>),
}

/// A task, and what it means for the tasks after it.
pub(crate) struct Planned<'t, B> {
    pub(crate) task: DecodeTask<'t, B>,
    /// True if the next task can be planned before this one has ended; if not, the decoder that it
    /// leaves is to be given to [`Planner::resume`].
    pub(crate) stands_alone: bool,
    /// About when the next task begins: how urgent it is.
    pub(crate) until: i64,
}

impl<'t, B: ByteSource> Planner<'t, B> {
    /// A planner before a stream's first packet.
    pub(crate) fn new(stream: &'t Stream<'t, B>) -> Self {
        // The file that was read last says what came before.
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

    /// Goes on with what a task that does not stand alone left behind.
    pub(crate) fn resume(&mut self, decoder: StreamDecoder<'t>) {
        self.decoder = decoder;
    }

    /// The next task, if any requested packet is left. `memory` is for reading headers.
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

    /// Goes to the first packets that may be requested.
    fn begin(&mut self, memory: &mut Vec<u8>) -> Option<()> {
        for index in 0..self.next.len() {
            let mut source = self.source(index, memory)?;
            self.seek(index, &mut source);
            self.put_back(index, source, memory);
        }
        Some(())
    }

    /// Goes to the last packet before the range, which has the losses before the next one,
    /// if the file's index knows where that is.
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

    /// After damage that says nothing of where the next packet is: goes where the file's index
    /// says that one is, if the stream says the same; else to the next place that looks like one.
    fn find_next(&mut self, index: usize, damaged: u64, source: &mut SourceStream<&'t B>) {
        // Packets that are not read were not lost by the tracer.
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

    /// The next place from `from` on with the magic number of packets and what can be read as
    /// one's header. How often it is looked at more closely is bounded: a file may be full of such
    /// numbers.
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
            // What is cut off by the piece's end is in the next.
            from += filled.checked_sub(magic.len() - 1).filter(|&step| step > 0)? as u64;
        }
    }

    /// A task of the next packets of a file; `None` if the first of them is passed over.
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
                // This packet is read, for what was lost before it.
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

    /// The file whose next packet is the earliest. A packet that several files have (snapshots
    /// overlap) is read from the one that has most of it, and passed over in the others: a
    /// snapshot takes what is being written as far as it is.
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

    /// Returns true if the next packets of two files, which begin at the same time, are one.
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

    /// Returns true if the next packet of the chosen file comes before all others'.
    fn is_first(&self, source: &mut SourceStream<&'t B>) -> bool {
        let Some(&Reverse((other, _))) = self.order.peek() else { return true };
        self.place(source) < other
    }

    fn place(&self, source: &mut SourceStream<&'t B>) -> PacketRank {
        let packet = source.peek(&self.stream.trace.trace);
        let begins = |packet: Packet| PacketRank::Begins(packet.timestamp_begin, packet.sequence);
        packet.map_or(PacketRank::Damaged, begins)
    }

    /// A file, at its next packet. It is to be put back, or its memory.
    fn source(&self, index: usize, memory: &mut Vec<u8>) -> Option<SourceStream<&'t B>> {
        let file = self.stream.files.get(index)?;
        let &(at, number) = self.next.get(index)?;
        let source = SourceStream::new(&file.bytes);
        let mut source = source.with_window(HEADER_WINDOW_BYTES, std::mem::take(memory));
        source.go_to(at, number);
        Some(source)
    }

    /// Notes where a file's next packet is.
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
