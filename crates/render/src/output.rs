//! Outputs: receivers of events in time order, in any format.
//!
//! An output has an [`EventEncoder`], of which each thread takes a clone, and receives the encoded
//! events in time order. [`LineOutput`] is the output of all line formats. A binary format
//! implements [`EventOutput`] itself, and may use [`OutputBuffer`].

use std::io::{self, Write};
use std::time::{Duration, Instant};

use trackway_ctf::read::Loss;

use crate::format::{DeltaSlot, EventEncoder, LastShown, LineFormat, LossPlace, Stamp};

/// Number of buffered bytes that triggers a write.
const BUFFER_BYTES: usize = 128 << 10;

/// Maximum time that bytes stay buffered while there are more events to process.
const WRITE_PERIOD: Duration = Duration::from_millis(50);

/// Consecutive encoded events of one stream.
#[derive(Debug, Clone, Copy)]
pub struct EncodedRun<'a> {
    /// First event of the run.
    pub first: &'a [u8],
    /// Place in the first event that depends on the event before it, which may be of another
    /// stream.
    pub delta: DeltaSlot,
    /// Time of the first event; `None` if its stream has no clock.
    pub stamp: Option<Stamp>,
    /// Other events of the run; each was encoded as the successor of the one before it.
    pub rest: &'a [u8],
    /// Time of the last of these other events that has one.
    pub last: Option<Stamp>,
}

/// An output format with its writer: receives events in time order and writes them.
pub trait EventOutput {
    /// Encoder of events, used in threads.
    type Encoder: EventEncoder;

    /// Returns an encoder, of which each thread takes a clone.
    fn encoder(&self) -> Self::Encoder;

    /// Writes the data before all events.
    ///
    /// # Errors
    ///
    /// Returns the errors of the writer.
    fn begin(&mut self) -> io::Result<()>;

    /// Writes events that the encoder has encoded.
    ///
    /// # Errors
    ///
    /// See [`EventOutput::begin`].
    fn write_run(&mut self, run: EncodedRun<'_>) -> io::Result<()>;

    /// Records a loss of events; appends a message about it, with its newline, to `message`.
    fn report_loss(&mut self, place: LossPlace<'_>, loss: &Loss, message: &mut Vec<u8>);

    /// Writes buffered events that have waited for long. Must be called before a wait that may be
    /// long.
    ///
    /// # Errors
    ///
    /// See [`EventOutput::begin`].
    fn write_due(&mut self) -> io::Result<()>;

    /// Writes all buffered events, because no event is known to follow. If traces grow, more may
    /// follow nevertheless.
    ///
    /// # Errors
    ///
    /// See [`EventOutput::begin`].
    fn flush(&mut self) -> io::Result<()>;

    /// Writes the data after all events.
    ///
    /// # Errors
    ///
    /// See [`EventOutput::begin`].
    fn end(&mut self) -> io::Result<()>;
}

/// A buffer of bytes in front of a writer.
#[derive(Debug)]
pub struct OutputBuffer<W> {
    writer: W,
    bytes: Vec<u8>,
    /// Time of the latest write since the latest flush.
    written: Option<Instant>,
}

impl<W: Write> OutputBuffer<W> {
    /// Creates an empty buffer.
    pub const fn new(writer: W) -> Self {
        Self { writer, bytes: Vec::new(), written: None }
    }

    /// Returns the buffered bytes, to which callers append.
    #[inline]
    pub const fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Writes the bytes if the buffer is full.
    ///
    /// # Errors
    ///
    /// Returns the errors of the writer.
    #[inline]
    pub fn write_if_full(&mut self) -> io::Result<()> {
        if self.bytes.len() >= BUFFER_BYTES { self.write() } else { Ok(()) }
    }

    /// Writes the bytes if the latest write was long ago.
    ///
    /// # Errors
    ///
    /// See [`OutputBuffer::write_if_full`].
    pub fn write_if_due(&mut self) -> io::Result<()> {
        let is_due = self.written.is_none_or(|written| written.elapsed() >= WRITE_PERIOD);
        if is_due && !self.bytes.is_empty() { self.write() } else { Ok(()) }
    }

    /// Writes the bytes, and flushes the writer.
    ///
    /// # Errors
    ///
    /// See [`OutputBuffer::write_if_full`].
    pub fn flush(&mut self) -> io::Result<()> {
        self.write()?;
        self.written = None;
        self.writer.flush()
    }

    fn write(&mut self) -> io::Result<()> {
        self.written = Some(Instant::now());
        self.writer.write_all(&self.bytes)?;
        self.bytes.clear();
        Ok(())
    }
}

/// The output of a line format.
#[derive(Debug)]
pub struct LineOutput<F, W> {
    format: F,
    buffer: OutputBuffer<W>,
    shown: LastShown,
}

impl<F: LineFormat, W: Write> LineOutput<F, W> {
    /// Creates an output that writes lines of `format` to `writer`.
    pub fn new(format: F, writer: W) -> Self {
        Self { format, buffer: OutputBuffer::new(writer), shown: LastShown::default() }
    }

    /// Returns the writer.
    pub const fn writer(&self) -> &W {
        &self.buffer.writer
    }
}

impl<F: LineFormat, W: Write> EventOutput for LineOutput<F, W> {
    type Encoder = F;

    fn encoder(&self) -> F {
        self.format.clone()
    }

    fn begin(&mut self) -> io::Result<()> {
        // Buffered, and written with the first lines.
        self.buffer.bytes().extend(self.format.preamble());
        Ok(())
    }

    #[inline]
    fn write_run(&mut self, run: EncodedRun<'_>) -> io::Result<()> {
        let EncodedRun { first, delta, stamp, rest, last } = run;
        let (out, shown) = (self.buffer.bytes(), &mut self.shown);
        self.format.patch_delta(out, first, delta, stamp, shown);
        out.extend_from_slice(rest);
        if last.is_some() {
            shown.last = last;
        }
        self.buffer.write_if_full()
    }

    fn report_loss(&mut self, place: LossPlace<'_>, loss: &Loss, message: &mut Vec<u8>) {
        self.format.push_loss(message, place, loss, &mut self.shown);
    }

    fn write_due(&mut self) -> io::Result<()> {
        self.buffer.write_if_due()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.buffer.flush()
    }

    fn end(&mut self) -> io::Result<()> {
        Ok(())
    }
}
