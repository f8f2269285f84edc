//! A stream's packets and events, decoded one after another from the part of a packet in memory.
//!
//! The decoder keeps its place in bits from the packet's start, so that its caller may hold only a
//! window of a large packet. If an event exceeds the window, the decoder returns
//! [`DecodeError::Truncated`] with nothing changed, and the caller retries with a larger window.

use super::cursor::Cursor;
use super::decode::{
    Counts, DecodeState, Sink, Skip, decode_field, decode_members, emit_placed_number,
};
use super::error::DecodeError;
use super::replace::{Replacement, Replacing};
use super::trace::{EventClass, StreamClass, Trace};
use crate::model::runs::{FlatLayout, PlacedNumber};
use crate::model::scope::{SCOPES, Scope};
use crate::model::types::{Role, Type};

/// First word of every packet.
pub(super) const PACKET_MAGIC: u64 = 0xC1FC_1FC1;
/// Number of elements that a packet's arrays may have in addition to one for each of its bits.
const SPARE_ELEMENTS: u64 = 4096;

/// A part of a packet in memory.
#[derive(Debug, Clone, Copy)]
pub struct Window<'bytes> {
    /// The bytes.
    pub bytes: &'bytes [u8],
    /// Start of the bytes in the packet; a multiple of 4096.
    pub start: u64,
}

impl<'bytes> Window<'bytes> {
    /// Returns a window on a packet that begins at the packet's start.
    pub const fn whole(bytes: &'bytes [u8]) -> Self {
        Self { bytes, start: 0 }
    }
}

/// Header and context of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// Index of the packet's stream class in [`Trace::streams`].
    pub stream: usize,
    /// Number of the packet's stream in its class, if the packet has one.
    pub stream_instance: Option<u64>,
    /// Size of header, context and events in bits; `None` if the packet fills the available bytes.
    pub content_bits: Option<u64>,
    /// Size of content and padding in bits, a multiple of 8.
    pub packet_bits: Option<u64>,
    /// Clock at the packet's begin.
    pub timestamp_begin: Option<u64>,
    /// Clock at the packet's end.
    pub timestamp_end: Option<u64>,
    /// Number of the packet in the stream.
    pub sequence: Option<u64>,
    /// Number of events that the stream has lost up to the packet's end.
    pub events_discarded: Option<u64>,
}

/// A loss of events or packets by the tracer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// Kind of the lost things.
    pub what: LossKind,
    /// Number of lost things; `None` if the first packet of a stream reports losses, because they
    /// may precede the stream.
    pub count: Option<u64>,
    /// Clock values before and after the loss, if the stream's packets have times.
    pub between: Option<(u64, u64)>,
}

/// The kind of things that a tracer can lose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossKind {
    /// Events.
    Events,
    /// Whole packets.
    Packets,
}

/// An event's header.
#[derive(Debug, Clone, Copy)]
pub struct EventHeader<'trace> {
    /// Class of the event.
    pub class: &'trace EventClass,
    /// The stream's clock at the event; 0 if it has none.
    pub clock: u64,
    /// Time in nanoseconds since the clock's origin, if the stream has a clock.
    pub time: Option<i64>,
}

/// A [`Sink`] for an event's parts, which is notified of each scope that begins.
pub trait EventSink: Sink {
    /// A scope with visible content begins.
    fn begin_scope(&mut self, scope: Scope);
}

impl EventSink for Skip {
    fn begin_scope(&mut self, _: Scope) {}
}

/// State of a stream between packets: enough to resume decoding at the next packet later, even with
/// metadata that has grown.
#[derive(Debug, Clone, Copy, Default)]
pub struct ResumeState {
    packet: Option<Packet>,
    clock: u64,
}

impl ResumeState {
    /// Returns the end time of the latest packet, by the stream's clock; `None` before the first
    /// packet or if packets have no end time.
    pub fn clock(&self) -> Option<u64> {
        self.packet?.timestamp_end
    }

    /// Returns the latest packet's number in its stream, if the packet has one.
    pub fn sequence(&self) -> Option<u64> {
        self.packet?.sequence
    }
}

/// Decodes one stream, packet by packet. A clone continues from the same place.
#[derive(Debug, Clone)]
pub struct StreamDecoder<'trace> {
    trace: &'trace Trace,
    class: Option<(usize, &'trace StreamClass)>,
    state: DecodeState,
    packet: Option<Packet>,
    /// Next bit of the current packet.
    position: u64,
    /// End of the packet's content.
    end: u64,
}

impl<'trace> StreamDecoder<'trace> {
    /// Creates a decoder before the first packet of a stream.
    pub fn new(trace: &'trace Trace) -> Self {
        Self {
            trace,
            class: None,
            state: DecodeState::new(trace.slots),
            packet: None,
            position: 0,
            end: 0,
        }
    }

    /// Creates a decoder that continues after the packets that left `carry`.
    pub fn resume(trace: &'trace Trace, carry: ResumeState) -> Self {
        let mut decoder = Self::new(trace);
        decoder.packet = carry.packet;
        decoder.state.clock = carry.clock;
        decoder.class = carry
            .packet
            .and_then(|packet| Some((packet.stream, trace.streams.get(packet.stream)?)));
        decoder
    }

    /// Discards the latest packet's number: packets between it and the next exist, but are not
    /// read.
    pub const fn forget_sequence(&mut self) {
        if let Some(packet) = &mut self.packet {
            packet.sequence = None;
        }
    }

    /// Returns the state that the packets so far leave. Must be called between packets.
    pub const fn resume_state(&self) -> ResumeState {
        ResumeState { packet: self.packet, clock: self.state.clock }
    }

    /// Returns the class of the stream; `None` before its first packet.
    pub fn class(&self) -> Option<&'trace StreamClass> {
        self.class.map(|(_, class)| class)
    }

    /// Returns the place of the next event in the packet, in bits.
    pub const fn position_bits(&self) -> u64 {
        self.position
    }

    /// Returns the size of the current packet's content, in bits.
    pub const fn content_bits(&self) -> u64 {
        self.end
    }

    /// Reads a packet's header and context, and moves to its first event. `available` is the
    /// greatest possible number of the packet's bytes, e.g. up to its file's end. `sink` gets the
    /// context's visible members, `lost` the losses since the previous packet.
    ///
    /// After an error the decoder's place is unchanged.
    pub fn begin_packet<S: Sink>(
        &mut self,
        window: Window<'_>,
        available: u64,
        sink: &mut S,
        mut lost: impl FnMut(Loss),
    ) -> Result<Packet, DecodeError> {
        let mut state = self.state.clone();
        state.roles.fill(None);
        // The output of a packet must not depend on the fields of other packets.
        state.slots.fill(0);
        let available_bits = available.saturating_mul(8);
        state.budget = available_bits.saturating_add(SPARE_ELEMENTS);
        let mut cursor = Cursor::new(window.bytes, window.start, 0, available_bits);
        if let Some(header) = &self.trace.packet_header {
            decode_field(header, &mut cursor, &mut state, &mut Skip)?;
        }
        if let Some(found) = state.role(Role::Magic).filter(|&magic| magic != PACKET_MAGIC) {
            return Err(DecodeError::Magic { found });
        }
        let (index, class) = self.stream_class(&state)?;
        if let Some(context) = &class.packet_context {
            // First without `sink`, which gets all of a context or nothing: a caller whose window
            // was too small tries again.
            let (mut again, mut state_again) = (cursor, state.clone());
            decode_field(context, &mut cursor, &mut state, &mut Skip)?;
            if !context.is_hidden() {
                decode_field(context, &mut again, &mut state_again, sink)?;
            }
        }
        let packet = packet_from_roles(index, &state);
        let content = packet.content_bits.unwrap_or(available_bits);
        let whole = packet.packet_bits.unwrap_or(available_bits);
        if content > whole || content < cursor.position() || !whole.is_multiple_of(8) || whole == 0
        {
            return Err(DecodeError::Sizes { content, packet: whole });
        }
        report_losses(self.packet.as_ref(), &packet, class, &mut lost);
        state.budget = content.saturating_add(SPARE_ELEMENTS);
        self.state = state;
        self.class = Some((index, class));
        self.packet = Some(packet);
        self.position = cursor.position();
        self.end = content;
        Ok(packet)
    }

    fn stream_class(
        &self,
        state: &DecodeState,
    ) -> Result<(usize, &'trace StreamClass), DecodeError> {
        let streams = &self.trace.streams;
        let mut found = streams.iter().enumerate();
        let id = state.role(Role::StreamClass);
        let found = match (id, streams.len()) {
            (None, 1) => found.next(),
            _ => found.find(|(_, stream)| stream.id == id.unwrap_or(0)),
        };
        let (index, class) = found.ok_or(DecodeError::UnknownStream { id: id.unwrap_or(0) })?;
        if self.class.is_some_and(|(before, _)| before != index) {
            return Err(DecodeError::StreamChanged { id: class.id });
        }
        Ok((index, class))
    }

    /// Reads the next event's header; `None` at the end of the packet's content. The event remains
    /// the next one until its body is read or skipped.
    ///
    /// After an error the decoder's place is unchanged.
    // Inlined, like the whole path of most events. Otherwise headers pass through memory in parts
    // of different sizes, which costs a third of decoding a small event.
    #[inline(always)]
    pub fn begin_event<'d, 'w>(
        &'d mut self,
        window: Window<'w>,
    ) -> Result<Option<EventBody<'d, 'w, 'trace>>, DecodeError> {
        let Some((_, stream)) = self.class.filter(|_| self.position < self.end) else {
            if let Some(end) = self.packet.and_then(|packet| packet.timestamp_end) {
                self.state.clock = self.state.clock.max(end);
            }
            return Ok(None);
        };
        let before = self.state.counts();
        let mut cursor = Cursor::new(window.bytes, window.start, self.position, self.end);
        let plan = stream.header_plan.as_ref();
        let id = match plan.and_then(|plan| plan.read(&mut cursor, &mut self.state)) {
            Some(id) => id,
            None => self.walk_header(stream, &mut cursor, before)?,
        };
        let class = match id {
            None if stream.events.len() == 1 => stream.events.first(),
            id => stream.event(id.unwrap_or(0)),
        };
        let clock = self.state.clock;
        let time = stream.clock.map(|clocked| clocked.ns_from_origin(clock)).transpose();
        match (class, time) {
            (Some(class), Ok(time)) => {
                let header = EventHeader { class, clock, time };
                Ok(Some(EventBody {
                    header,
                    stream,
                    cursor,
                    before,
                    replacement: None,
                    decoder: self,
                }))
            }
            (class, time) => {
                self.state.restore(before);
                let unknown = DecodeError::UnknownEvent { id: id.unwrap_or(0), bit: self.position };
                let far = DecodeError::Time { cycles: clock, bit: self.position };
                Err(class.and(time.err()).map_or(unknown, |_| far))
            }
        }
    }

    /// Reads a header of any type; returns the event's id, if it has one. `before` holds the counts
    /// to be restored after an error.
    #[inline(never)]
    fn walk_header(
        &mut self,
        class: &StreamClass,
        cursor: &mut Cursor<'_>,
        before: Counts,
    ) -> Result<Option<u64>, DecodeError> {
        self.state.roles[Role::EventClass as usize] = None;
        if let Some(header) = &class.event_header {
            let decoded = decode_field(header, cursor, &mut self.state, &mut Skip);
            decoded.inspect_err(|_| self.state.restore(before))?;
        }
        Ok(self.state.role(Role::EventClass))
    }
}

/// An event whose header has been read and whose body comes next.
#[derive(Debug)]
pub struct EventBody<'d, 'w, 'trace> {
    /// Content of the header.
    pub header: EventHeader<'trace>,
    stream: &'trace StreamClass,
    /// Cursor at the body.
    cursor: Cursor<'w>,
    /// Counts from before the header.
    before: Counts,
    /// Values that replace the event's own values.
    replacement: Option<Replacement<'d>>,
    /// Decoder of the stream, at the header. Only its state is already updated by the header.
    decoder: &'d mut StreamDecoder<'trace>,
}

impl<'w, 'trace> EventBody<'_, 'w, 'trace> {
    /// Returns the start of the event's body in the packet, in bits.
    pub fn position_bits(&self) -> u64 {
        self.cursor.position()
    }

    /// Reads the event into `sink`, and moves to the next event.
    ///
    /// After an error the decoder is where it was before the event, but `sink` may have got a part.
    #[inline]
    pub fn read<S: EventSink>(mut self, sink: &mut S) -> Result<(), DecodeError> {
        if self.replacement.is_some() {
            let read = self.peek(sink);
            return read.and_then(|()| self.skip());
        }
        let classes = (self.stream, self.header.class);
        let read = read_body(classes, &mut self.cursor, &mut self.decoder.state, sink);
        self.end(read)
    }

    /// Skips the event, with the same effects as [`EventBody::read`]. Takes one step per scope if
    /// all events of the class have one size.
    pub fn skip(mut self) -> Result<(), DecodeError> {
        self.replacement = None;
        let cursor = &mut self.cursor;
        let skipped = self.header.class.fixed.as_ref().and_then(|parts| {
            parts.iter().try_for_each(|&(alignment, bits)| cursor.skip(alignment, bits))
        });
        match skipped {
            Some(()) => self.end(Ok(())),
            // Also if the body is cut off, because the walk reports the field in its error.
            None => self.read(&mut Skip),
        }
    }

    /// Reads the event into `sink` without moving on: the caller may read it again afterwards.
    ///
    /// # Errors
    ///
    /// See [`EventBody::read`]. The event may still be read, with the same error.
    pub fn peek<S: EventSink>(&mut self, sink: &mut S) -> Result<(), DecodeError> {
        let (mut cursor, state) = (self.cursor, &mut self.decoder.state);
        let (classes, counts) = ((self.stream, self.header.class), state.counts());
        let read = match self.replacement {
            None => read_body(classes, &mut cursor, state, sink),
            Some(by) => {
                decode_scopes(classes, 0, &mut cursor, state, &mut Replacing::new(sink, by))
            }
        };
        // A later `read` notes the values of fields again.
        state.restore(counts);
        read
    }

    /// Calls `use_it` with the event in which `by` replaces some values. The decoder does not move.
    pub fn with_replacement<R>(
        &self,
        by: Replacement<'_>,
        use_it: impl FnOnce(EventBody<'_, 'w, 'trace>) -> R,
    ) -> R {
        let mut decoder = self.decoder.clone();
        use_it(EventBody {
            header: self.header,
            stream: self.stream,
            cursor: self.cursor,
            before: self.before,
            replacement: Some(by),
            decoder: &mut decoder,
        })
    }

    /// Skips the event, and returns it with its header, to be copied.
    ///
    /// # Errors
    ///
    /// See [`EventBody::skip`].
    pub fn whole(self) -> Result<WholeEvent<'w, 'trace>, DecodeError> {
        let mut state = self.decoder.state.clone();
        state.restore(self.before);
        let cursor = self.cursor.at(self.decoder.position);
        let class = self.header.class;
        self.skip().map(|()| WholeEvent { class, cursor, state })
    }

    /// Moves to the next event; if reading failed, resets the decoder to the start of this event.
    #[inline(always)]
    fn end(self, read: Result<(), DecodeError>) -> Result<(), DecodeError> {
        let Self { cursor, before, decoder, .. } = self;
        let position = cursor.position();
        if read.is_ok() && position != decoder.position {
            decoder.position = position;
            return Ok(());
        }
        decoder.state.restore(before);
        read.and(Err(DecodeError::Empty { bit: position }))
    }
}

/// A decodable event as raw bytes.
#[derive(Debug, Clone)]
pub struct WholeEvent<'w, 'trace> {
    pub(crate) class: &'trace EventClass,
    /// Cursor at the header.
    pub(crate) cursor: Cursor<'w>,
    /// State of the decoder before the header.
    pub(crate) state: DecodeState,
}

/// Reads the part of an event after its header.
#[inline(always)]
fn read_body<S: EventSink>(
    (stream, class): (&StreamClass, &EventClass),
    cursor: &mut Cursor<'_>,
    state: &mut DecodeState,
    sink: &mut S,
) -> Result<(), DecodeError> {
    let scopes = match &class.flat {
        Some(flat) if let Some(bytes) = cursor.run(flat.alignment, flat.bits, flat.reach) => {
            read_flat(flat, bytes, cursor, state, sink)?;
            flat.scopes
        }
        _ => 0,
    };
    if scopes == SCOPES {
        return Ok(());
    }
    let mut others = *cursor;
    let read = decode_scopes((stream, class), scopes, &mut others, state, sink);
    *cursor = others;
    read
}

/// Reads the leading parts of an event: the numbers in `bytes`, whose places are known, and the
/// other members of these parts.
#[inline(always)]
fn read_flat<S: EventSink>(
    flat: &FlatLayout,
    bytes: &[u8],
    cursor: &mut Cursor<'_>,
    state: &mut DecodeState,
    sink: &mut S,
) -> Result<(), DecodeError> {
    for part in flat.parts() {
        sink.begin_scope(part.scope);
        sink.begin_struct();
        for PlacedNumber { place, member } in part.numbers.iter() {
            match &member.kind {
                // The common case, without a call.
                Type::Integer(integer) if integer.plain && !member.hidden => {
                    sink.member(member);
                    sink.integer(integer, place.read(bytes));
                }
                _ => emit_placed_number(member, place, bytes, state, sink),
            }
        }
        for member in part.texts.iter() {
            sink.member(member);
            sink.text(cursor.string()?);
        }
        if !part.rest.is_empty() {
            // A copy, so that the cursor itself can stay in registers: otherwise each string's end
            // would cost a store and a load before the next event.
            let mut others = *cursor;
            decode_members(&part.rest, &part.runs, &mut others, state, sink)?;
            *cursor = others;
        }
        sink.end_struct();
    }
    Ok(())
}

/// Reads the scopes of an event from number `first` on by the general walk.
#[inline(never)]
fn decode_scopes<S: EventSink>(
    (stream, class): (&StreamClass, &EventClass),
    first: usize,
    cursor: &mut Cursor<'_>,
    state: &mut DecodeState,
    sink: &mut S,
) -> Result<(), DecodeError> {
    let scopes = [
        (Scope::StreamContext, &stream.event_context),
        (Scope::EventContext, &class.context),
        (Scope::Fields, &class.fields),
    ];
    for (scope, kind) in scopes.into_iter().skip(first) {
        if let Some(kind) = kind {
            decode_scope(scope, kind, cursor, state, sink)?;
        }
    }
    Ok(())
}

/// Reads a scope of an event by the general walk.
fn decode_scope<S: EventSink>(
    scope: Scope,
    kind: &Type,
    cursor: &mut Cursor<'_>,
    state: &mut DecodeState,
    sink: &mut S,
) -> Result<(), DecodeError> {
    if kind.is_hidden() {
        return decode_field(kind, cursor, state, &mut Skip);
    }
    sink.begin_scope(scope);
    decode_field(kind, cursor, state, sink)
}

fn packet_from_roles(stream: usize, state: &DecodeState) -> Packet {
    let (content, packet) = (state.role(Role::ContentSize), state.role(Role::PacketSize));
    Packet {
        stream,
        stream_instance: state.role(Role::StreamInstance),
        content_bits: content.or(packet),
        packet_bits: packet.or(content),
        timestamp_begin: state.role(Role::TimestampBegin),
        timestamp_end: state.role(Role::TimestampEnd),
        sequence: state.role(Role::Sequence),
        events_discarded: state.role(Role::EventsDiscarded),
    }
}

/// Passes the losses between two packets to `lost`, by babeltrace2's rules (see the `write`
/// module).
fn report_losses(
    before: Option<&Packet>,
    packet: &Packet,
    class: &StreamClass,
    lost: &mut impl FnMut(Loss),
) {
    let timed = class.has_packet_times;
    let between = |from: Option<u64>, to: Option<u64>| from.zip(to).filter(|_| timed);
    if let Some(total) = packet.events_discarded {
        let previous = before.and_then(|before| before.events_discarded);
        let count = previous.map(|previous| total.wrapping_sub(previous));
        let from = match previous {
            Some(_) => before.and_then(|before| before.timestamp_end),
            None => packet.timestamp_begin,
        };
        if count.unwrap_or(total) != 0 {
            let between = between(from, packet.timestamp_end);
            lost(Loss { what: LossKind::Events, count, between });
        }
    }
    let previous = before.and_then(|before| before.sequence);
    let step = previous.zip(packet.sequence).map(|(before, now)| now.wrapping_sub(before));
    if let Some(step) = step.filter(|&step| step > 1) {
        let from = before.and_then(|before| before.timestamp_end);
        let (count, between) = (Some(step - 1), between(from, packet.timestamp_begin));
        lost(Loss { what: LossKind::Packets, count, between });
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
