//! Export of one file of packets: packet by packet, whole or cut.

use trackway_console::IoError;
use trackway_ctf::read::{
    ByteSource, Damage, EventHeader, Packet, Skip, SourceStream, StreamDecoder, StreamError, Trace,
};
use trackway_ctf::write::{NewPacket, PacketRewriter};

use super::output::PacketFile;
use super::{ExportError, ExportProgress, ExportSummary};
use crate::input::DataFile;
use crate::order::{EventPlace, Span, StreamOrder, check_packet_times};
use crate::workers::MessageSink;

/// Maximum number of bytes of a rewritten packet that wait to be written.
const WAITING_BYTES: usize = 256 << 10;

/// The target of packets, with counts of the work done.
pub(super) struct PacketTarget<'a> {
    pub(super) steps: &'a ExportProgress<'a>,
    pub(super) file: PacketFile,
    pub(super) done: ExportSummary,
    /// Receiver of damage reports.
    sink: &'a dyn MessageSink,
    /// Numbering of the written packets, if some packets are left out or cut in two.
    pub(super) numbers: Option<PacketNumbers>,
    /// Order of the stream's events, and of the current packet's events.
    order: StreamOrder,
    span: Span,
}

/// Consecutive numbers for the packets of a stream of which some are left out. Gaps remain where
/// packets were missing before.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PacketNumbers {
    /// Number of the latest packet read.
    read: Option<u64>,
    /// Number of the latest packet written.
    written: Option<u64>,
    /// Number of packets missing between the latest packet written and the latest packet read.
    missing: u64,
}

impl PacketNumbers {
    /// Records the number of a packet that was read.
    fn read(&mut self, sequence: Option<u64>) {
        if let (Some(before), Some(sequence)) = (self.read, sequence) {
            let step = sequence.wrapping_sub(before);
            // Like in readers: a step of 0 or 1 means that no packet is missing.
            self.missing = self.missing.wrapping_add(step.max(1) - 1);
        }
        self.read = sequence.or(self.read);
    }

    /// Returns the number for the next packet written.
    fn next(&mut self) -> Option<u64> {
        let first = self.read?;
        let next = self
            .written
            .map_or(first, |written| written.wrapping_add(1).wrapping_add(self.missing));
        self.missing = 0;
        self.written = Some(next);
        Some(next)
    }
}

impl<'a> PacketTarget<'a> {
    pub(super) fn new(
        steps: &'a ExportProgress<'a>,
        file: PacketFile,
        sink: &'a dyn MessageSink,
    ) -> Self {
        let done = ExportSummary { is_whole: true, ..ExportSummary::default() };
        let (order, span) = (StreamOrder::default(), Span::default());
        Self { steps, file, done, sink, numbers: None, order, span }
    }

    /// Reports that data could not be read.
    pub(super) fn report_damage(
        &mut self,
        name: &str,
        what: impl std::fmt::Display,
    ) -> Result<(), ExportError> {
        self.done.is_whole = false;
        // The thread that writes messages reports a failed write.
        let is_heard = self.sink.send_message(format!("{name}: {what}"));
        if is_heard { Ok(()) } else { Err(ExportError::Stopped) }
    }

    /// Begins the current packet of `source` again; returns false if it is damaged.
    pub(super) fn restart_packet<B: ByteSource>(
        &mut self,
        name: &str,
        source: &mut SourceStream<&B>,
        decoder: &mut StreamDecoder<'_>,
    ) -> Result<bool, ExportError> {
        let (number, at) = source.current();
        source.go_to(at, number);
        self.span = Span::default();
        match source.begin_packet(decoder, &mut Skip, |_| {}) {
            Ok(_) => Ok(true),
            Err(error) => self.report_damage(name, error).map(|()| false),
        }
    }

    /// Compares the times of the packet just read with earlier times; `damage` is an error in the
    /// times of its header.
    pub(super) fn check_order(
        &mut self,
        name: &str,
        damage: Option<StreamError>,
    ) -> Result<(), ExportError> {
        let mut span = std::mem::take(&mut self.span);
        span.add_damage(damage);
        let error = self.order.follow(span);
        error.map_or(Ok(()), |error| self.report_damage(name, error))
    }

    /// Begins the next packet of `source`; returns its place and header, or `None` if it is
    /// damaged.
    pub(super) fn begin_packet<B: ByteSource>(
        &mut self,
        name: &str,
        source: &mut SourceStream<&B>,
        decoder: &mut StreamDecoder<'_>,
    ) -> Result<Option<PacketPlace>, ExportError> {
        let (at, _) = source.next();
        let packet = match source.begin_packet(decoder, &mut Skip, |_| {}) {
            Ok(packet) => packet,
            Err(error) => {
                self.report_damage(name, error)?;
                return Ok(None);
            }
        };
        if let Some(numbers) = &mut self.numbers {
            numbers.read(packet.sequence);
        }
        let bytes = source.next().0 - at;
        let is_complete = packet.packet_bits.is_none_or(|bits| bits / 8 == bytes);
        let ends_first = decoder.class().and_then(|class| check_packet_times(&packet, class));
        Ok(Some(PacketPlace { at, bytes, packet, is_complete, ends_first }))
    }

    /// Reads the events of the packet just begun and reports damage. Returns true if `keep` holds
    /// for all of them; stops at the first event for which it does not hold.
    pub(super) fn check_events<B: ByteSource>(
        &mut self,
        name: &str,
        source: &mut SourceStream<&B>,
        decoder: &mut StreamDecoder<'_>,
        keep: impl Fn(&EventHeader<'_>) -> bool,
    ) -> Result<bool, ExportError> {
        let (packet, at) = source.current();
        loop {
            let bit = decoder.position_bits();
            let read = source.read_event(decoder, |event| {
                let header = event.header;
                event.skip().map(|()| (header.time, keep(&header)))
            });
            match read {
                Ok(Some((time, true))) => {
                    self.span.add(time, EventPlace { packet, at, bit });
                    self.steps.check_stop()?;
                }
                Ok(Some((_, false))) => return Ok(false),
                Ok(None) => return Ok(true),
                Err(error) => return self.report_damage(name, error).map(|()| true),
            }
        }
    }

    /// Copies a packet unchanged.
    pub(super) fn copy_packet<B: ByteSource>(
        &mut self,
        file: &DataFile<B>,
        place: &PacketPlace,
    ) -> Result<(), ExportError> {
        let start = self.file.length();
        let check = || self.steps.check_stop();
        if let Err(error) = self.file.append_from(&file.bytes, place.at, place.bytes, check)? {
            self.report_damage(&file.name, IoError::from(error))?;
            return self.file.truncate(start);
        }
        self.done.packets += 1;
        self.done.bytes += place.bytes;
        Ok(())
    }

    /// Writes the events of the packet just begun that `keep` selects; writes no packet if there
    /// are none.
    pub(super) fn cut_packet<B: ByteSource>(
        &mut self,
        trace: &Trace,
        name: &str,
        source: &mut SourceStream<&B>,
        decoder: &mut StreamDecoder<'_>,
        keep: impl Fn(&EventHeader<'_>) -> bool,
    ) -> Result<(), ExportError> {
        // The window still holds the header, which was just read.
        let Some(empty) = PacketRewriter::new(trace, decoder, source.window()) else {
            return self.report_damage(name, "a packet that does not say its size cannot be cut");
        };
        let mut cut = PacketCut { empty, written: None, clock: 0, is_skipping: false };
        loop {
            self.steps.check_stop()?;
            match cut.next(source, decoder, &keep, &mut self.span) {
                Ok(CutStep::End) => break,
                Ok(CutStep::Event) => cut.drain(&mut self.file)?,
                Ok(CutStep::TooFar) => self.finish_cut_packet(&mut cut)?,
                Err(error) => {
                    self.report_damage(name, error)?;
                    break;
                }
            }
        }
        self.finish_cut_packet(&mut cut)
    }

    /// Ends the output packet, if there is one.
    fn finish_cut_packet(&mut self, cut: &mut PacketCut<'_>) -> Result<(), ExportError> {
        let Some(CutOutput { rewriter, at: Some(at), times }) = cut.written.take() else {
            return Ok(());
        };
        let sequence = self.numbers.as_mut().and_then(PacketNumbers::next);
        let mut head = Vec::new();
        self.file.append(|out| head = rewriter.finish(&NewPacket { sequence, ..times }, out))?;
        self.file.write_over(at, &head)?;
        self.done.packets += 1;
        self.done.rewritten += 1;
        self.done.bytes += self.file.length() - at;
        Ok(())
    }
}

/// A packet in a file.
pub(super) struct PacketPlace {
    /// Start of the packet in the file, in bytes.
    pub(super) at: u64,
    /// Number of the packet's bytes that exist.
    pub(super) bytes: u64,
    /// Header of the packet.
    pub(super) packet: Packet,
    /// True if all of the packet's bytes exist.
    pub(super) is_complete: bool,
    /// An error in the times of the packet's header.
    pub(super) ends_first: Option<Damage>,
}

/// The state of cutting one packet.
struct PacketCut<'t> {
    /// Rewriter with the packet's header and no events.
    empty: PacketRewriter<'t>,
    written: Option<CutOutput<'t>>,
    /// Clock at the latest kept event.
    clock: u64,
    /// True if events were left out since the latest kept event.
    is_skipping: bool,
}

/// An output packet.
struct CutOutput<'t> {
    rewriter: PacketRewriter<'t>,
    /// Start of the packet in the file, once a part of it is written.
    at: Option<u64>,
    times: NewPacket,
}

/// The result of one step of cutting.
enum CutStep {
    /// An event was kept or left out.
    Event,
    /// The event cannot be in one packet with the preceding kept event.
    TooFar,
    /// The packet has ended.
    End,
}

impl<'t> PacketCut<'t> {
    fn next<B: ByteSource>(
        &mut self,
        source: &mut SourceStream<&B>,
        decoder: &mut StreamDecoder<'_>,
        keep: impl Fn(&EventHeader<'_>) -> bool,
        span: &mut Span,
    ) -> Result<CutStep, StreamError> {
        let ((packet, at), bit) = (source.current(), decoder.position_bits());
        let mut time = None;
        let step = source.read_event(decoder, |event| {
            let header = event.header;
            time = header.time;
            if !keep(&header) {
                event.skip()?;
                self.leave_out();
                return Ok(CutStep::Event);
            }
            if self.is_too_far(header.clock) {
                return Ok(CutStep::TooFar);
            }
            let event = event.whole()?;
            self.take(header.clock).event(event).map(|()| CutStep::Event)
        })?;
        if let Some(CutStep::Event) = step {
            span.add(time, EventPlace { packet, at, bit });
        }
        Ok(step.unwrap_or(CutStep::End))
    }

    /// Notes that an event is left out. The output packet ends with the latest kept event, unless
    /// another one follows.
    fn leave_out(&mut self) {
        self.is_skipping = true;
        if let Some(written) = &mut self.written {
            written.times.timestamp_end = Some(self.clock);
        }
    }

    /// Returns true if the event's header has too few bits of the time for readers to extend it
    /// from the latest kept event.
    fn is_too_far(&self, clock: u64) -> bool {
        let distance = clock.wrapping_sub(self.clock);
        let is_beyond = self.empty.reach_cycles().is_some_and(|reach| distance >= reach);
        self.is_skipping && self.written.is_some() && is_beyond
    }

    /// Returns the output packet for an event at `clock`. If events before the first kept one were
    /// left out, the packet begins with that event.
    fn take(&mut self, clock: u64) -> &mut PacketRewriter<'t> {
        let is_skipping = std::mem::take(&mut self.is_skipping);
        self.clock = clock;
        let written = self.written.get_or_insert_with(|| CutOutput {
            rewriter: self.empty.clone(),
            at: None,
            times: NewPacket {
                timestamp_begin: is_skipping.then_some(clock),
                ..NewPacket::default()
            },
        });
        written.times.timestamp_end = None;
        &mut written.rewriter
    }

    /// Writes finished bytes to `file`.
    fn drain(&mut self, file: &mut PacketFile) -> Result<(), ExportError> {
        let Some(CutOutput { rewriter, at, .. }) = &mut self.written else { return Ok(()) };
        if at.is_none() {
            *at = Some(file.length());
            // Space for the header, which is complete only at the end.
            file.append(|out| out.resize(out.len() + rewriter.head_bytes(), 0))?;
        }
        if rewriter.waiting_bytes() >= WAITING_BYTES {
            file.append(|out| rewriter.drain(out))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::PacketNumbers;

    #[test]
    fn numbers_have_the_gaps_that_there_were() {
        let mut numbers = PacketNumbers::default();
        // Packets read, written or left out; the input has a gap of two after the second.
        let steps = [(5, true), (6, false), (9, true), (10, true), (11, false), (12, true)];
        let mut written = Vec::new();
        for (sequence, is_written) in steps {
            numbers.read(Some(sequence));
            if is_written {
                written.extend(numbers.next());
            }
        }
        assert_eq!(written, [5, 8, 9, 10]);
        // One packet becomes two.
        numbers.read(Some(13));
        assert_eq!([numbers.next(), numbers.next()], [Some(11), Some(12)]);
        assert_eq!(PacketNumbers::default().next(), None);
    }
}
