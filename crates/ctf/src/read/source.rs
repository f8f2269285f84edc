//! One stream read through a window, whatever its size: the bytes come from a [`ByteSource`],
//! mostly a file, and no more of them are held than a window's, or one event's if that is larger.
//!
//! Damage does not end a stream while the next packet can still be found.

use std::io;
use std::ops::Range;

use trackway_console::IoError;

use super::decode::Sink;
use super::error::DecodeError;
use super::stream::{EventBody, Loss, Packet, StreamDecoder, Window};
use super::trace::{StreamClass, Trace};
use crate::model::types::{Integer, Role, Type};

/// Something that has bytes at offsets.
pub trait ByteSource {
    /// Returns the number of bytes.
    fn length(&self) -> u64;
    /// Reads bytes at `offset` into `buffer`; how many. 0 is the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Reads as many bytes at `offset` as `buffer` has room for, or as there are; how many.
    fn fill_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.read_at(rest, offset.saturating_add(filled as u64)) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }
}

impl<B: ByteSource + ?Sized> ByteSource for &B {
    fn length(&self) -> u64 {
        (**self).length()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        (**self).read_at(buffer, offset)
    }
}

impl ByteSource for [u8] {
    fn length(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|at| self.get(at..)).unwrap_or_default();
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }
}

/// Number of bytes that are read at once, unless [`SourceStream::with_window`] sets another.
const WINDOW_BYTES: usize = 256 << 10;
/// Largest event; a larger one is damage.
const EVENT_BYTES_MAX: usize = 64 << 20;
/// Windows begin at multiples of this, so that alignment in a window is alignment in its packet.
const WINDOW_ALIGNMENT: u64 = 4096;

/// An error that stopped, or interrupted, the reading of a stream, and its place.
#[derive(Debug)]
pub struct StreamError {
    /// Number of the packet in the stream, from 0.
    pub packet: u64,
    /// Start of that packet in the stream, in bytes.
    pub at: u64,
    /// The damage.
    pub damage: Damage,
}

impl StreamError {
    /// Returns true if the packet has all its events.
    pub const fn is_padding(&self) -> bool {
        matches!(self.damage, Damage::Padding(_))
    }
}

/// Damage to a packet.
#[derive(Debug)]
#[non_exhaustive]
pub enum Damage {
    /// Its bytes could not be read.
    Read(IoError),
    /// It is damaged; reading goes on with the next, if that can be found.
    Packet(DecodeError),
    /// It is cut off: so many bytes of it are missing.
    Missing(u64),
    /// It is cut off in the padding behind its content: so many bytes of the padding are missing.
    /// All of its events are read.
    Padding(u64),
    /// An event in it, whose contexts and fields begin at this bit of it, has more text than a
    /// line may have.
    Line {
        /// Start of the contexts and fields of the event.
        bit: u64,
    },
    /// The event at this bit of it is earlier than the one before it in its stream. The event is
    /// read all the same.
    Backward {
        /// Start of the event.
        bit: u64,
        /// Number of nanoseconds by which the event is earlier.
        ns: u64,
    },
    /// It begins after it ends, by the clock. Its events are read all the same.
    EndsFirst {
        /// Number of nanoseconds by which the packet begins later.
        ns: u64,
    },
}

/// Nanoseconds shown as seconds.
struct DisplayAsSeconds(u64);

impl std::fmt::Display for DisplayAsSeconds {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const NS_PER_SECOND: u64 = 1_000_000_000;
        write!(formatter, "{}.{:09} s", self.0 / NS_PER_SECOND, self.0 % NS_PER_SECOND)
    }
}

impl std::fmt::Display for StreamError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "packet {} at byte {}: ", self.packet, self.at)?;
        match &self.damage {
            Damage::Read(error) => write!(formatter, "{error}"),
            Damage::Packet(error) => write!(formatter, "{error}"),
            Damage::Missing(bytes) => write!(formatter, "its last {bytes} bytes are missing"),
            Damage::Padding(bytes) => write!(
                formatter,
                "its last {bytes} bytes are missing; they are padding, all of its events are there"
            ),
            Damage::Line { bit } => {
                write!(formatter, "the text of the event at bit {bit} is too large")
            }
            Damage::Backward { bit, ns } => {
                let by = DisplayAsSeconds(*ns);
                write!(formatter, "time goes backward by {by} at the event at bit {bit}")
            }
            Damage::EndsFirst { ns } => {
                write!(formatter, "the packet ends {} before it begins", DisplayAsSeconds(*ns))
            }
        }
    }
}

impl std::error::Error for StreamError {}

/// Reads one stream of bytes.
pub struct SourceStream<B> {
    bytes: B,
    length: u64,
    /// Number of bytes that are read at once.
    window_bytes: usize,
    /// Up to where bytes are wanted, as far as known: no more are read ahead.
    wanted_to: u64,
    buffer: Vec<u8>,
    /// Number of bytes of `buffer` that were read. The rest has no meaning; clearing it each time
    /// would take too long.
    filled: usize,
    /// Start of `buffer` in the stream.
    buffer_at: u64,
    /// The current packet's number.
    packet: u64,
    /// Start of the current packet.
    packet_at: u64,
    /// Number of bytes of the current packet that exist.
    available: u64,
    /// Number of bytes of the current packet that are missing, by the size in its header.
    missing: u64,
    /// Start of the window in the packet.
    window_start: u64,
    /// The window in `buffer`.
    window: Range<usize>,
    /// Start of the next packet.
    next_at: u64,
    /// The next packet's number.
    next: u64,
}

impl<B: ByteSource> SourceStream<B> {
    /// A reader before the first packet.
    pub fn new(bytes: B) -> Self {
        let length = bytes.length();
        Self {
            bytes,
            length,
            window_bytes: WINDOW_BYTES,
            wanted_to: u64::MAX,
            buffer: Vec::new(),
            filled: 0,
            buffer_at: 0,
            packet: 0,
            packet_at: 0,
            available: 0,
            missing: 0,
            window_start: 0,
            window: 0..0,
            next_at: 0,
            next: 0,
        }
    }

    /// The same, reading `window_bytes` (not 0) at once, into memory that is at hand.
    pub fn with_window(self, window_bytes: usize, memory: Vec<u8>) -> Self {
        Self { window_bytes: window_bytes.max(1), buffer: memory, filled: 0, ..self }
    }

    /// The same, where nothing from byte `end` on will be wanted.
    pub fn until(self, end: u64) -> Self {
        Self { wanted_to: end, ..self }
    }

    /// Gives its memory back.
    pub fn into_memory(self) -> Vec<u8> {
        self.buffer
    }

    /// Goes to the packet at byte `at`, whose number is `number`: it is the next.
    pub fn go_to(&mut self, at: u64, number: u64) {
        self.next_at = at.min(self.length);
        self.next = number;
    }

    /// Returns the start of the next packet, and its number.
    pub const fn next(&self) -> (u64, u64) {
        (self.next_at, self.next)
    }

    /// The number of the current packet, and where it begins.
    pub const fn current(&self) -> (u64, u64) {
        (self.packet, self.packet_at)
    }

    /// Returns true if no packet is left.
    pub const fn is_at_end(&self) -> bool {
        self.next_at >= self.length
    }

    /// Returns the header of the next packet, if it can be read; it stays the next.
    pub fn peek(&mut self, trace: &Trace) -> Option<Packet> {
        let mut decoder = StreamDecoder::new(trace);
        let (next_at, next) = self.next();
        let packet = self.begin_packet(&mut decoder, &mut super::decode::Skip, |_| {}).ok();
        self.go_to(next_at, next);
        packet
    }

    /// Passes over the next packet without reading it.
    pub fn skip(&mut self, packet: &Packet) {
        let bytes = packet.packet_bits.map_or(u64::MAX, |bits| bits / 8);
        self.go_to(self.next_at.saturating_add(bytes), self.next + 1);
    }

    /// Begins the next packet; see [`StreamDecoder::begin_packet`]. There must be one.
    pub fn begin_packet<S: Sink>(
        &mut self,
        decoder: &mut StreamDecoder<'_>,
        sink: &mut S,
        mut lost: impl FnMut(Loss),
    ) -> Result<Packet, StreamError> {
        (self.packet_at, self.packet) = self.next();
        self.next += 1;
        self.available = self.length.saturating_sub(self.packet_at);
        self.window_start = 0;
        self.set_window();
        loop {
            let window = self.window();
            match decoder.begin_packet(window, self.available, sink, &mut lost) {
                Ok(packet) => {
                    let whole = packet.packet_bits.map_or(self.available, |bits| bits / 8);
                    self.missing = whole.saturating_sub(self.available);
                    self.available = self.available.min(whole);
                    self.set_window();
                    self.next_at = self.packet_at.saturating_add(whole).min(self.length);
                    return Ok(packet);
                }
                Err(error) => {
                    let more = match error {
                        DecodeError::Truncated { .. } => self.extend(0),
                        _ => Ok(false),
                    };
                    if !matches!(more, Ok(true)) {
                        // Without its size there is no telling where the next packet begins.
                        self.next_at = self.length;
                        more?;
                        return Err(self.damaged(Damage::Packet(error)));
                    }
                }
            }
        }
    }

    /// Reads the next event: `read` gets its header and what reads its body, as it must do, or
    /// pass over it. What `read` gave; `None` at the packet's end, or [`Damage::Padding`] if the
    /// packet's padding is cut off.
    ///
    /// `read` is called again, with a larger window, if its answer is [`DecodeError::Truncated`]
    /// and there is more: it must have changed nothing then.
    ///
    /// After an error, the current packet is over.
    #[inline(always)]
    pub fn read_event<'trace, T>(
        &mut self,
        decoder: &mut StreamDecoder<'trace>,
        mut read: impl FnMut(EventBody<'_, '_, 'trace>) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, StreamError> {
        loop {
            let read = match decoder.begin_event(self.window()) {
                Ok(Some(body)) => read(body),
                Ok(None) => return self.end_packet().map(|()| None),
                Err(error) => Err(error),
            };
            match read {
                Ok(done) => return Ok(Some(done)),
                Err(error) => self.extend_or_fail(decoder, error)?,
            }
        }
    }

    /// Ends the current packet, whose content was read.
    fn end_packet(&mut self) -> Result<(), StreamError> {
        match std::mem::take(&mut self.missing) {
            0 => Ok(()),
            bytes => Err(self.damaged(Damage::Padding(bytes))),
        }
    }

    #[cold]
    #[inline(never)]
    fn extend_or_fail(
        &mut self,
        decoder: &StreamDecoder<'_>,
        error: DecodeError,
    ) -> Result<(), StreamError> {
        if matches!(error, DecodeError::Truncated { .. }) {
            if self.extend(decoder.position_bits() / 8)? {
                return Ok(());
            }
            let missing = (decoder.content_bits() / 8).saturating_sub(self.available);
            if missing > 0 {
                return Err(self.damaged(Damage::Missing(missing)));
            }
        }
        Err(self.damaged(Damage::Packet(error)))
    }

    /// Returns an error for `damage` in the current packet.
    pub const fn damaged(&self, damage: Damage) -> StreamError {
        StreamError { packet: self.packet, at: self.packet_at, damage }
    }

    /// Returns the bytes of the current packet that are at hand: its start, until an event was
    /// read.
    #[inline]
    pub fn window(&self) -> Window<'_> {
        let bytes = self.buffer.get(self.window.clone()).unwrap_or_default();
        Window { bytes, start: self.window_start }
    }

    /// Lets the window be what the buffer has of the packet from `window_start` on.
    fn set_window(&mut self) {
        let from = (self.packet_at + self.window_start).checked_sub(self.buffer_at);
        let from = from.and_then(|from| usize::try_from(from).ok()).unwrap_or(usize::MAX);
        let from = from.min(self.filled);
        let most = self.available.saturating_sub(self.window_start);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        self.window = from..from.saturating_add(most).min(self.filled);
    }

    /// Moves the window to `position` in the packet, or enlarges it if it is there already.
    /// Whether there is anything new in it.
    fn extend(&mut self, position: u64) -> Result<bool, StreamError> {
        let seen = self.window_start + self.window().bytes.len() as u64;
        if seen >= self.available {
            return Ok(false);
        }
        self.window_start = position - position % WINDOW_ALIGNMENT;
        let at = self.packet_at + self.window_start;
        let mut wanted = self.window_bytes;
        if at == self.buffer_at && self.filled > 0 {
            wanted = self.filled.saturating_mul(2);
        }
        if wanted > EVENT_BYTES_MAX {
            return Ok(false);
        }
        let filled = self.fill(at, wanted);
        self.set_window();
        filled.map_err(|error| self.damaged(Damage::Read(error.into())))?;
        Ok(self.window_start + self.window().bytes.len() as u64 > seen)
    }

    fn fill(&mut self, at: u64, wanted: usize) -> io::Result<()> {
        // Beyond what is wanted too, if a packet says that it is there: only the end of the
        // bytes is certain.
        let end = if at < self.wanted_to { self.length.min(self.wanted_to) } else { self.length };
        let rest = usize::try_from(end.saturating_sub(at)).unwrap_or(usize::MAX);
        self.buffer_at = at;
        self.filled = 0;
        let wanted = wanted.min(rest);
        if self.buffer.len() < wanted {
            self.buffer.resize(wanted, 0);
        }
        let room = self.buffer.get_mut(..wanted).unwrap_or_default();
        self.filled = self.bytes.fill_at(room, at)?;
        Ok(())
    }
}

/// Returns true if each packet of a class can be decoded without the packets before it: nothing
/// that it shows depends on the clock at their end.
pub fn packets_stand_alone(class: &StreamClass) -> bool {
    let sets_clock = |integer: &Integer| {
        integer.role == Role::TimestampBegin && integer.clock.is_some() && !integer.signed
    };
    class.clock.is_none() || context_has_64_bit_integer(class, sets_clock)
}

/// Returns true if packets of a class have all bits of the clock at their end. Fewer bits are not
/// extended.
pub fn has_full_end_timestamp(class: &StreamClass) -> bool {
    context_has_64_bit_integer(class, |integer| integer.role == Role::TimestampEnd)
}

/// Returns true if the packet context of a class has an integer of 64 bits for which `holds` is
/// true.
fn context_has_64_bit_integer(class: &StreamClass, holds: impl Fn(&Integer) -> bool) -> bool {
    let members = match &class.packet_context {
        Some(Type::Struct(context)) => &context.members[..],
        _ => &[],
    };
    let holds = |kind: &Type| matches!(kind, Type::Integer(i) if i.bits == 64 && holds(i));
    members.iter().any(|member| holds(&member.kind))
}
