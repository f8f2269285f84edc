//! A decoding task: packets of one file, decoded into batches.
//!
//! A batch is bounded, however large a packet is. A full batch interrupts the task; the next call,
//! on any thread, continues with the next batch.

use std::ops::Range;

use trackway_ctf::read::{
    ByteSource, Damage, Loss, SourceStream, StreamClass, StreamDecoder, StreamError,
};
use trackway_render::{DeltaSlot, EventEncoder, LINE_BYTES_MAX, Line, Stamp};

use crate::batch::{Batch, Diagnostic, Mark};
use crate::call::LateEntry;
use crate::filter::{Gather, GatheredEvent};
use crate::input::{DataFile, FilePart};
use crate::order::{EventPlace, check_packet_times};
use crate::prefixes::Prefixes;
use crate::select::loss_times;
use crate::stream::{Stream, StreamClassPlan};

/// A value later than all events, so that the same comparison detects a task's first event.
const NO_TIME: i64 = i64::MAX;
/// Capacity in bytes that remains after a line that was too large.
const LINE_ROOM_BYTES: usize = 1 << 20;

/// Consecutive packets of one file that are decoded one after another.
pub(crate) struct DecodeTask<'t, B> {
    stream: &'t Stream<'t, B>,
    file: &'t DataFile<B>,
    source: SourceStream<&'t B>,
    /// End of the last packet, in bytes.
    end: u64,
    decoder: StreamDecoder<'t>,
    /// Common line parts of the current packet's class; `None` between packets.
    texts: Option<&'t StreamClassPlan>,
    /// Index of the current packet's stream class.
    class: usize,
    /// Common line part of the current packet.
    packet_prefix: Vec<u8>,
    prefixes: Prefixes,
    /// Values that filters need from the current event.
    gather: Gather,
    /// Number of begun events of the current packet, and range of its events that are wanted.
    events: u64,
    wanted: Range<u64>,
    /// Time of the latest written event.
    previous: Option<Stamp>,
    /// Time of the latest event, requested or not; [`NO_TIME`] before the first event.
    last_time: i64,
    /// An error in the current packet's times. It is noted only at the packet's end, because a
    /// place where time goes backward is more specific.
    ends_first: Option<Damage>,
    /// An open gap in which events may be missing, up to the next event.
    gap: Option<Gap>,
}

impl<'t, B: ByteSource> DecodeTask<'t, B> {
    /// Creates a task for the packets from byte `start.0` to byte `end`; the first has number
    /// `start.1`.
    pub(crate) fn new(
        stream: &'t Stream<'t, B>,
        file: &'t DataFile<B>,
        start: (u64, u64),
        end: u64,
        decoder: StreamDecoder<'t>,
    ) -> Self {
        let mut source = SourceStream::new(&file.bytes).until(end);
        source.go_to(start.0, start.1);
        Self {
            stream,
            file,
            source,
            end,
            decoder,
            texts: None,
            class: 0,
            packet_prefix: Vec::new(),
            prefixes: Prefixes::new(),
            gather: Gather::default(),
            events: 0,
            wanted: 0..u64::MAX,
            previous: None,
            last_time: NO_TIME,
            ends_first: None,
            gap: None,
        }
    }

    /// Sets the number of bytes per read, and the memory to be used as the window.
    pub(crate) fn with_window(self, window_bytes: usize, memory: Vec<u8>) -> Self {
        Self { source: self.source.with_window(window_bytes, memory), ..self }
    }

    /// Returns the file, the source of its packets, the end of the last packet in bytes, and the
    /// decoder after the previous packets.
    pub(crate) fn into_parts(
        self,
    ) -> (&'t DataFile<B>, SourceStream<&'t B>, u64, StreamDecoder<'t>) {
        (self.file, self.source, self.end, self.decoder)
    }

    /// Returns the time of the latest written event.
    pub(crate) fn reached(&self) -> Option<i64> {
        self.previous.map(|stamp| stamp.time)
    }

    /// Ends a finished task; returns the decoder after its packets, and its memory.
    pub(crate) fn finish(self) -> (StreamDecoder<'t>, Vec<u8>) {
        (self.decoder, self.source.into_memory())
    }

    /// Decodes events into `batch` up to about `size` bytes. Returns true if events are left for
    /// the next batch.
    pub(crate) fn fill(
        &mut self,
        format: &mut impl EventEncoder,
        batch: &mut Batch,
        size: usize,
    ) -> bool {
        while batch.size() < size {
            match self.texts {
                None if self.source.next().0 >= self.end => {
                    self.end_gap(i64::MAX, batch);
                    return false;
                }
                None => self.begin_packet(format, batch),
                Some(texts) => {
                    if let Err(error) = self.append_events(texts, format, batch, size) {
                        self.texts = None;
                        self.report_damage(&error, batch);
                        if error.is_padding() {
                            self.note_ends_first(batch);
                        }
                    }
                    batch.last_time = Some(self.last_time).filter(|&time| time != NO_TIME);
                }
            }
        }
        true
    }

    fn begin_packet(&mut self, format: &impl EventEncoder, batch: &mut Batch) {
        self.packet_prefix.clear();
        self.prefixes.next_packet();
        self.events = 0;
        self.wanted = event_range_in_packet(&self.file.part, self.source.next().0);
        if let Some(gap) = &mut self.gap {
            gap.may_end = true;
        }
        let mut losses = Vec::new();
        let begun = {
            let mut sink = format.packet_sink(&mut self.packet_prefix);
            let lost = |loss| losses.push(loss);
            self.source.begin_packet(&mut self.decoder, &mut sink, lost)
        };
        match begun {
            Ok(packet) => {
                self.texts = self.stream.texts.get(packet.stream);
                self.class = packet.stream;
                // For a packet that was begun before, the losses have already been reported.
                if self.wanted.start == 0 {
                    losses.into_iter().for_each(|loss| self.report_loss(loss, batch));
                }
                self.ends_first =
                    self.decoder.class().and_then(|class| check_packet_times(&packet, class));
            }
            Err(error) => self.report_damage(&error, batch),
        }
    }

    fn report_loss(&mut self, loss: Loss, batch: &mut Batch) {
        let clock = self.decoder.class().and_then(StreamClass::clock);
        match loss_times(loss, clock) {
            Some(gap) => batch.gaps.push(gap),
            None => self.begin_gap(false),
        }
        if let Some((loss, between)) = self.stream.range.clip_clocked(loss, clock) {
            batch.note(Diagnostic::Loss(loss, between));
        }
    }

    /// Begins a gap after the latest event: events may be missing in skipped data, or (`may_end` is
    /// false) in the current packet, too.
    fn begin_gap(&mut self, may_end: bool) {
        let since = if self.last_time == NO_TIME { i64::MIN } else { self.last_time };
        let gap = self.gap.get_or_insert(Gap { since, may_end });
        gap.may_end &= may_end;
    }

    #[inline]
    fn end_gap(&mut self, time: i64, batch: &mut Batch) {
        if let Some(gap) = self.gap.take_if(|gap| gap.may_end || time == i64::MAX) {
            batch.gaps.push((gap.since, time));
        }
    }

    /// Appends events of the current packet, until it ends or the batch is full.
    fn append_events(
        &mut self,
        texts: &StreamClassPlan,
        format: &mut impl EventEncoder,
        batch: &mut Batch,
        size: usize,
    ) -> Result<(), StreamError> {
        while batch.size() < size {
            if self.events >= self.wanted.end {
                // The following event may be half written.
                self.texts = None;
                break;
            }
            if !self.append_event(texts, format, batch)? {
                self.texts = None;
                self.note_ends_first(batch);
                break;
            }
        }
        Ok(())
    }

    /// Notes an error in the current packet's times, after all of its events.
    fn note_ends_first(&mut self, batch: &mut Batch) {
        if let Some(damage) = self.ends_first.take() {
            let error = self.source.damaged(damage);
            batch.note(Diagnostic::Order(self.file.name.clone(), error));
        }
    }

    /// Appends the next event, if it is selected. Returns false at the packet's end.
    // Longer than 70 lines: the steps of decoding one event share their state.
    #[inline]
    fn append_event<F: EventEncoder>(
        &mut self,
        texts: &StreamClassPlan,
        format: &mut F,
        batch: &mut Batch,
    ) -> Result<bool, StreamError> {
        let is_wanted = self.events >= self.wanted.start;
        let bit = self.decoder.position_bits();
        let text = &mut batch.text;
        let start = text.len();
        let mut crossing = None;
        let read = self.source.read_event(&mut self.decoder, |mut body| {
            let header = body.header;
            let class = texts.events.get(header.class.index()).and_then(Option::as_ref);
            let call = texts.calls.get(header.class.index()).and_then(Option::as_ref);
            let call = call.filter(|_| is_wanted);
            let observed = call.and_then(|call| Some((call, call.observe(&mut body).ok()?)));
            crossing = observed.as_ref().and_then(|(_, observed)| observed.boundary(header.time));
            let is_wanted = is_wanted && self.stream.range.has(header.time);
            let Some(class) = class.filter(|_| is_wanted) else {
                return body.skip().map(|()| (header.time, None));
            };
            let mut late = None;
            if let Some((call, observed)) = observed.filter(|(_, observed)| observed.lacks_texts())
            {
                let line = Line {
                    stamp: header.time.map(|time| Stamp { time, clock: header.clock }),
                    previous: self.previous,
                    stream_prefix: &texts.stream,
                    class_prefix: &class.text,
                    packet_prefix: &self.packet_prefix,
                    prefix: None,
                };
                late = call
                    .build_late_entry(&observed, format, line, &body, class.filters.as_ref())
                    .map(Box::new);
            }
            // `skip` reports the damage instead.
            let mut question = None;
            match &class.filters {
                _ if late.is_some() => {}
                Some(filters) if filters.is_stateful() => question = filters.gather(&mut body).ok(),
                Some(filters) if !filters.accepts(&mut body, &mut self.gather).unwrap_or(false) => {
                    return body.skip().map(|()| (header.time, None));
                }
                _ => {}
            }
            let class_prefix = class.text.as_slice();
            let parts = [&texts.stream, class_prefix, &self.packet_prefix];
            let line = Line {
                stamp: header.time.map(|time| Stamp { time, clock: header.clock }),
                previous: self.previous,
                stream_prefix: &texts.stream,
                class_prefix,
                packet_prefix: &self.packet_prefix,
                prefix: if F::HAS_BYTES {
                    self.prefixes.of(header.class.index(), parts)
                } else {
                    None
                },
            };
            let (stamp, bit) = (line.stamp, body.position_bits());
            let head = format.push_event(text, line, body).inspect_err(|_| text.truncate(start))?;
            let is_asked = question.is_some() || late.is_some();
            let pending = is_asked.then(|| (header.class.index(), question, late));
            Ok((header.time, Some(WrittenEvent { stamp, head, bit, pending })))
        })?;
        if let Some(crossing) = crossing {
            batch.add_call_boundary(crossing);
        }
        let Some((time, written)) = read else { return Ok(false) };
        if let Some(time) = time {
            self.end_gap(time, batch);
            if time < self.last_time {
                self.note_order(time, bit, batch);
            }
            self.last_time = time;
        }
        self.events += 1;
        if let Some(written) = written {
            self.append::<F>(written, start, batch);
        }
        Ok(true)
    }

    /// Adds an event to the batch; its line begins at byte `start` of the batch's text.
    #[inline]
    fn append<F: EventEncoder>(&mut self, written: WrittenEvent, start: usize, batch: &mut Batch) {
        let WrittenEvent { stamp, head, bit, pending } = written;
        if !F::HAS_BYTES && pending.is_none() {
            batch.unmarked += 1;
            return;
        }
        let text = &mut batch.text;
        let is_too_large = text.len() - start > LINE_BYTES_MAX;
        let Some(end) = u32::try_from(text.len()).ok().filter(|_| !is_too_large) else {
            text.truncate(start);
            text.shrink_to(LINE_ROOM_BYTES);
            let error = self.source.damaged(Damage::Line { bit });
            batch.note(Diagnostic::Damage(format!("{}: {error}", self.file.name)));
            return;
        };
        if let Some((event, question, late)) = pending {
            batch.add_pending((self.class, event), question, late);
        }
        batch.marks.push(Mark::new(stamp, end, head));
        self.previous = stamp.or(self.previous);
    }

    /// Returns the place of the event at `bit` of the current packet.
    const fn place(&self, bit: u64) -> EventPlace {
        let (packet, at) = self.source.current();
        EventPlace { packet, at, bit }
    }

    /// Notes that the event at `bit` of the current packet is the task's first event, or is earlier
    /// than the preceding event.
    #[cold]
    #[inline(never)]
    fn note_order(&self, time: i64, bit: u64, batch: &mut Batch) {
        match self.last_time {
            NO_TIME => batch.first_time = Some(time),
            before => batch.gaps.push((time, before)),
        }
        // An earlier task has compared the events that this task skips.
        if self.events < self.wanted.start {
            return;
        }
        let (name, place) = (self.file.name.clone(), self.place(bit));
        match self.last_time {
            NO_TIME => batch.note(Diagnostic::First(name, time, place)),
            before => {
                if let Some(error) = place.compare(time, before) {
                    batch.note(Diagnostic::Order(name, error));
                }
            }
        }
    }

    fn report_damage(&mut self, error: &StreamError, batch: &mut Batch) {
        if !error.is_padding() {
            self.begin_gap(true);
        }
        batch.note(Diagnostic::Damage(format!("{}: {error}", self.file.name)));
    }
}

/// A gap in which events may be missing: after `since`.
struct Gap {
    since: i64,
    /// True if the next event ends the gap.
    may_end: bool,
}

/// An event whose line was written.
struct WrittenEvent {
    /// A pending decision about the event or its texts: the index of its event class, the filters'
    /// values, and the late entry.
    pending: Option<(usize, Option<GatheredEvent>, Option<Box<LateEntry>>)>,
    stamp: Option<Stamp>,
    head: DeltaSlot,
    /// Start of the event's body in its packet, in bits.
    bit: u64,
}

/// Returns the range of wanted events of the packet that begins at byte `at`.
fn event_range_in_packet(part: &FilePart, at: u64) -> Range<u64> {
    let first = if at == part.from.0 { part.skip } else { 0 };
    let last = part.last.filter(|&(last, _)| last == at);
    first..last.map_or(u64::MAX, |(_, events)| events)
}
