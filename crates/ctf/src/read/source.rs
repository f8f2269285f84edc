//! One stream read through a window, whatever its size: the bytes come from a [`Bytes`], mostly
//! a file, and no more of them are held than [`WINDOW_BYTES`], or one event if that is larger.
//!
//! Damage does not end a stream while the next packet can still be found.

use std::io;

use super::decode::Sink;
use super::error::DecodeError;
use super::stream::{EventHeader, Loss, Packet, StreamDecoder, Window};
use super::trace::Trace;

/// Something that has bytes at offsets.
pub trait Bytes {
    /// How many bytes there are.
    fn length(&self) -> u64;
    /// Reads bytes at `offset` into `buffer`; how many. 0 is the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl Bytes for &[u8] {
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

/// How many bytes are read at once.
const WINDOW_BYTES: usize = 256 << 10;
/// Largest event; a larger one is damage.
const EVENT_BYTES_MAX: usize = 64 << 20;
/// Windows begin at multiples of this, so that alignment in a window is alignment in its packet.
const WINDOW_ALIGNMENT: u64 = 4096;

/// What stopped, or interrupted, the reading of a stream.
#[derive(Debug)]
#[non_exhaustive]
pub enum StreamError {
    /// The bytes could not be read.
    Read(io::Error),
    /// The packet at this byte is damaged; reading goes on with the next, if that can be found.
    Packet(u64, DecodeError),
    /// The packet at this byte is cut off: so many bytes of it are missing.
    Missing(u64, u64),
}

impl std::fmt::Display for StreamError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Read(error) => write!(formatter, "{error}"),
            Self::Packet(at, error) => write!(formatter, "packet at byte {at}: {error}"),
            Self::Missing(at, bytes) => {
                write!(formatter, "packet at byte {at}: its last {bytes} bytes are missing")
            }
        }
    }
}

impl std::error::Error for StreamError {}

/// What comes next in a stream.
#[derive(Debug)]
pub enum Next<'trace> {
    /// An event; its body is to be read with [`SourceStream::body`].
    Event(EventHeader<'trace>),
    /// The packet has no more events.
    PacketEnd,
}

/// Reads one stream of bytes.
pub struct SourceStream<B> {
    bytes: B,
    length: u64,
    buffer: Vec<u8>,
    /// Where in the stream `buffer` begins.
    buffer_at: u64,
    /// Where the current packet begins.
    packet_at: u64,
    /// How many bytes of the current packet there are.
    available: u64,
    /// Where the window begins in the packet.
    window_start: u64,
    /// Where the next packet begins.
    next_at: u64,
}

impl<B: Bytes> SourceStream<B> {
    /// A reader before the first packet.
    pub fn new(bytes: B) -> Self {
        let length = bytes.length();
        Self {
            bytes,
            length,
            buffer: Vec::new(),
            buffer_at: 0,
            packet_at: 0,
            available: 0,
            window_start: 0,
            next_at: 0,
        }
    }

    /// Whether no packet is left.
    pub const fn is_at_end(&self) -> bool {
        self.next_at >= self.length
    }

    /// What the next packet says of itself, if it can be read; it stays the next.
    pub fn peek(&mut self, trace: &Trace) -> Option<Packet> {
        let mut decoder = StreamDecoder::new(trace);
        let next_at = self.next_at;
        let packet = self.begin(&mut decoder, &mut super::decode::Skip, |_| {}).ok();
        self.next_at = next_at;
        packet
    }

    /// Passes over the next packet without reading it.
    pub fn skip(&mut self, packet: &Packet) {
        let bytes = packet.packet_bits.map_or(u64::MAX, |bits| bits / 8);
        self.next_at = self.next_at.saturating_add(bytes).min(self.length);
    }

    /// Begins the next packet; see [`StreamDecoder::begin_packet`]. There must be one.
    pub fn begin<S: Sink>(
        &mut self,
        decoder: &mut StreamDecoder<'_>,
        sink: &mut S,
        mut lost: impl FnMut(Loss),
    ) -> Result<Packet, StreamError> {
        self.packet_at = self.next_at;
        self.available = self.length.saturating_sub(self.packet_at);
        self.window_start = 0;
        loop {
            let window = self.window();
            match decoder.begin_packet(window, self.available, sink, &mut lost) {
                Ok(packet) => {
                    let whole = packet.packet_bits.map_or(self.available, |bits| bits / 8);
                    self.available = self.available.min(whole);
                    self.next_at = self.packet_at.saturating_add(whole).min(self.length);
                    return Ok(packet);
                }
                Err(DecodeError::Truncated { .. })
                    if self.extend(0).map_err(StreamError::Read)? => {}
                Err(error) => {
                    // Without its size there is no telling where the next packet begins.
                    self.next_at = self.length;
                    return Err(StreamError::Packet(self.packet_at, error));
                }
            }
        }
    }

    /// Reads the next event's header.
    ///
    /// After an error, the current packet is over.
    pub fn header<'trace>(
        &mut self,
        decoder: &mut StreamDecoder<'trace>,
    ) -> Result<Next<'trace>, StreamError> {
        loop {
            match decoder.event_header(self.window()) {
                Ok(Some(header)) => return Ok(Next::Event(header)),
                Ok(None) => return Ok(Next::PacketEnd),
                Err(error) => self.extend_or_fail(decoder, error)?,
            }
        }
    }

    /// Reads an event's body by `read`, which is called again with a larger window if its answer
    /// is [`DecodeError::Truncated`] and there is more; it must have changed nothing then.
    ///
    /// After an error, the current packet is over.
    pub fn body<'trace>(
        &mut self,
        decoder: &mut StreamDecoder<'trace>,
        mut read: impl FnMut(&mut StreamDecoder<'trace>, Window<'_>) -> Result<(), DecodeError>,
    ) -> Result<(), StreamError> {
        loop {
            match read(decoder, self.window()) {
                Ok(()) => return Ok(()),
                Err(error) => self.extend_or_fail(decoder, error)?,
            }
        }
    }

    fn extend_or_fail(
        &mut self,
        decoder: &StreamDecoder<'_>,
        error: DecodeError,
    ) -> Result<(), StreamError> {
        if matches!(error, DecodeError::Truncated { .. }) {
            if self.extend(decoder.position_bits() / 8).map_err(StreamError::Read)? {
                return Ok(());
            }
            let missing = (decoder.content_bits() / 8).saturating_sub(self.available);
            if missing > 0 {
                return Err(StreamError::Missing(self.packet_at, missing));
            }
        }
        Err(StreamError::Packet(self.packet_at, error))
    }

    fn window(&self) -> Window<'_> {
        let from = (self.packet_at + self.window_start).checked_sub(self.buffer_at);
        let from = from.and_then(|from| usize::try_from(from).ok()).unwrap_or(usize::MAX);
        let most = self.available.saturating_sub(self.window_start);
        let bytes = self.buffer.get(from..).unwrap_or_default();
        let length = usize::try_from(most).unwrap_or(usize::MAX).min(bytes.len());
        Window { bytes: &bytes[..length], start: self.window_start }
    }

    /// Moves the window to `position` in the packet, or enlarges it if it is there already.
    /// Whether there is anything new in it.
    fn extend(&mut self, position: u64) -> io::Result<bool> {
        let seen = self.window_start + self.window().bytes.len() as u64;
        if seen >= self.available {
            return Ok(false);
        }
        self.window_start = position - position % WINDOW_ALIGNMENT;
        let at = self.packet_at + self.window_start;
        let mut wanted = WINDOW_BYTES;
        if at == self.buffer_at && !self.buffer.is_empty() {
            wanted = self.buffer.len().saturating_mul(2);
        }
        if wanted > EVENT_BYTES_MAX {
            return Ok(false);
        }
        self.fill(at, wanted)?;
        Ok(self.window_start + self.window().bytes.len() as u64 > seen)
    }

    fn fill(&mut self, at: u64, wanted: usize) -> io::Result<()> {
        let rest = usize::try_from(self.length.saturating_sub(at)).unwrap_or(usize::MAX);
        self.buffer_at = at;
        self.buffer.resize(wanted.min(rest), 0);
        let mut filled = 0;
        while filled < self.buffer.len() {
            match self.bytes.read_at(&mut self.buffer[filled..], at + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.buffer.truncate(filled);
        Ok(())
    }
}
