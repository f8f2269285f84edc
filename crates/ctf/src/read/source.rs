//! A stream of any size, read through a window. The bytes come from a [`ByteSource`], mostly a
//! file; at most one window of them is in memory, or one event if that is larger.
//!
//! Damage does not end a stream as long as the next packet can be found.

use std::io;
use std::ops::Range;

use trackway_console::IoError;

use super::decode::Sink;
use super::error::DecodeError;
use super::stream::{EventBody, Loss, Packet, StreamDecoder, Window};
use super::trace::{StreamClass, Trace};
use crate::model::types::{Integer, Role, Type};

/// A source of bytes at offsets.
pub trait ByteSource {
    /// Returns the number of bytes.
    fn length(&self) -> u64;
    /// Reads bytes at `offset` into `buffer`; returns their number, 0 at the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Reads bytes at `offset` until `buffer` is full or the source ends; returns their number.
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

/// Number of bytes per read, unless [`SourceStream::with_window`] sets another.
const WINDOW_BYTES: usize = 256 << 10;
/// Size limit of an event in bytes; a larger event counts as damage.
const EVENT_BYTES_MAX: usize = 64 << 20;
/// Windows begin at multiples of this number of bytes, so that alignment in a window is alignment
/// in its packet.
const WINDOW_ALIGNMENT: u64 = 4096;

/// An error that stopped or interrupted the reading of a stream, and its place.
#[derive(Debug)]
pub struct StreamError {
    /// Number of the packet in the stream, from 0.
    pub packet: u64,
    /// Start of the packet in the stream, in bytes.
    pub at: u64,
    /// The damage.
    pub damage: Damage,
}

impl StreamError {
    /// Returns true if only padding is missing, so that the packet has all its events.
    pub const fn is_padding(&self) -> bool {
        matches!(self.damage, Damage::Padding(_))
    }
}

/// Damage to a packet.
#[derive(Debug)]
#[non_exhaustive]
pub enum Damage {
    /// The bytes of the packet could not be read.
    Read(IoError),
    /// The packet is damaged; reading continues with the next one if that can be found.
    Packet(DecodeError),
    /// The packet is cut off: this number of its bytes is missing.
    Missing(u64),
    /// The packet is cut off in the padding after its content: this number of padding bytes is
    /// missing. All of its events are read.
    Padding(u64),
    /// An event in the packet has more text than a line may have.
    Line {
        /// Start of the contexts and fields of the event.
        bit: u64,
    },
    /// An event in the packet is earlier than the previous event of its stream. The event is read
    /// nevertheless.
    Backward {
        /// Start of the event.
        bit: u64,
        /// Nanoseconds by which the event is earlier.
        ns: u64,
    },
    /// The packet begins after its end, by the clock. Its events are read nevertheless.
    EndsFirst {
        /// Nanoseconds between the packet's end and its later begin.
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
    /// Number of bytes per read.
    window_bytes: usize,
    /// End of the needed bytes, as far as known; nothing behind it is read ahead.
    wanted_to: u64,
    buffer: Vec<u8>,
    /// Number of valid bytes in `buffer`. The others have no meaning; clearing them each time would
    /// take too long.
    filled: usize,
    /// Start of `buffer` in the stream.
    buffer_at: u64,
    /// Number of the current packet.
    packet: u64,
    /// Start of the current packet.
    packet_at: u64,
    /// Number of bytes of the current packet that exist.
    available: u64,
    /// Number of bytes by which the current packet is shorter than the size in its header.
    missing: u64,
    /// Start of the window in the packet.
    window_start: u64,
    /// Range of the window in `buffer`.
    window: Range<usize>,
    /// Start of the next packet.
    next_at: u64,
    /// Number of the next packet.
    next: u64,
}

impl<B: ByteSource> SourceStream<B> {
    /// Creates a reader before the first packet.
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

    /// Sets the number of bytes per read (not 0), and the memory to be used as the buffer.
    pub fn with_window(self, window_bytes: usize, memory: Vec<u8>) -> Self {
        Self { window_bytes: window_bytes.max(1), buffer: memory, filled: 0, ..self }
    }

    /// Sets the end of the needed bytes, to limit reading ahead.
    pub fn until(self, end: u64) -> Self {
        Self { wanted_to: end, ..self }
    }

    /// Returns the memory of the buffer.
    pub fn into_memory(self) -> Vec<u8> {
        self.buffer
    }

    /// Makes the packet at byte `at`, with number `number`, the next one.
    pub fn go_to(&mut self, at: u64, number: u64) {
        self.next_at = at.min(self.length);
        self.next = number;
    }

    /// Returns the start of the next packet, and its number.
    pub const fn next(&self) -> (u64, u64) {
        (self.next_at, self.next)
    }

    /// Returns the number and the start of the current packet.
    pub const fn current(&self) -> (u64, u64) {
        (self.packet, self.packet_at)
    }

    /// Returns true if no packet is left.
    pub const fn is_at_end(&self) -> bool {
        self.next_at >= self.length
    }

    /// Returns the header of the next packet, if it can be read. The packet remains the next one.
    pub fn peek(&mut self, trace: &Trace) -> Option<Packet> {
        let mut decoder = StreamDecoder::new(trace);
        let (next_at, next) = self.next();
        let packet = self.begin_packet(&mut decoder, &mut super::decode::Skip, |_| {}).ok();
        self.go_to(next_at, next);
        packet
    }

    /// Skips the next packet, whose header is `packet`, without reading it.
    pub fn skip(&mut self, packet: &Packet) {
        let bytes = packet.packet_bits.map_or(u64::MAX, |bits| bits / 8);
        self.go_to(self.next_at.saturating_add(bytes), self.next + 1);
    }

    /// Begins the next packet, which must exist; see [`StreamDecoder::begin_packet`].
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
                        // Without the packet's size, the start of the next packet is unknown.
                        self.next_at = self.length;
                        more?;
                        return Err(self.damaged(Damage::Packet(error)));
                    }
                }
            }
        }
    }

    /// Reads the next event: `read` gets the event and must read or skip its body. Returns the
    /// result of `read`; `None` at the packet's end, or [`Damage::Padding`] if the packet's padding
    /// is cut off.
    ///
    /// If `read` returns [`DecodeError::Truncated`] and the packet has more bytes, it is called
    /// again with a larger window: it must have changed nothing before.
    ///
    /// An error ends the current packet.
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

    /// Ends the current packet after its content was read.
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

    /// Returns the current packet's bytes in memory: until an event is read, they begin at the
    /// packet's start.
    #[inline]
    pub fn window(&self) -> Window<'_> {
        let bytes = self.buffer.get(self.window.clone()).unwrap_or_default();
        Window { bytes, start: self.window_start }
    }

    /// Sets the window to the packet's bytes in the buffer from `window_start` on.
    fn set_window(&mut self) {
        let from = (self.packet_at + self.window_start).checked_sub(self.buffer_at);
        let from = from.and_then(|from| usize::try_from(from).ok()).unwrap_or(usize::MAX);
        let from = from.min(self.filled);
        let most = self.available.saturating_sub(self.window_start);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        self.window = from..from.saturating_add(most).min(self.filled);
    }

    /// Moves the window to `position` in the packet, or enlarges a window that begins there.
    /// Returns true if the window has new bytes.
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
        // A packet may claim bytes after the needed ones; then only the end of the source is a
        // limit.
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

/// Returns true if each packet of a class can be decoded alone: its output does not depend on the
/// clock at the end of earlier packets.
pub fn packets_stand_alone(class: &StreamClass) -> bool {
    let sets_clock = |integer: &Integer| {
        integer.role == Role::TimestampBegin && integer.clock.is_some() && !integer.signed
    };
    class.clock.is_none() || context_has_64_bit_integer(class, sets_clock)
}

/// Returns true if the end timestamps in the packets of a class have all 64 bits. Shorter ones are
/// not extended.
pub fn has_full_end_timestamp(class: &StreamClass) -> bool {
    context_has_64_bit_integer(class, |integer| integer.role == Role::TimestampEnd)
}

/// Returns true if `holds` is true of a 64-bit integer in the packet context of a class.
fn context_has_64_bit_integer(class: &StreamClass, holds: impl Fn(&Integer) -> bool) -> bool {
    let members = match &class.packet_context {
        Some(Type::Struct(context)) => &context.members[..],
        _ => &[],
    };
    let holds = |kind: &Type| matches!(kind, Type::Integer(i) if i.bits == 64 && holds(i));
    members.iter().any(|member| holds(&member.kind))
}
