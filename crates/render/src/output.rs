//! Outputs: where events go in time order, in whatever format.
//!
//! An output has an [`EventEncoder`], of which each thread takes a clone, and receives what the
//! threads have encoded, in time order. [`LineOutput`] is the output of every format of lines; a
//! binary format implements [`EventOutput`] itself, and may use [`OutputBuffer`].

use std::io::{self, Write};
use std::time::{Duration, Instant};

use trackway_ctf::read::Loss;

use crate::format::{DeltaSlot, EventEncoder, LastShown, LineFormat, LossPlace, Stamp};

/// Number of bytes that are gathered before a write.
const BUFFER_BYTES: usize = 128 << 10;

/// Longest time that gathered bytes wait for more, while there are more events to process.
const WRITE_PERIOD: Duration = Duration::from_millis(50);

/// Encoded events of one stream, with none of other streams between them.
#[derive(Debug, Clone, Copy)]
pub struct EncodedRun<'a> {
    /// The first event.
    pub first: &'a [u8],
    /// Its place that depends on the event before it, which may be of another stream.
    pub delta: DeltaSlot,
    /// Its time; `None` if its stream has no clock.
    pub stamp: Option<Stamp>,
    /// The events after it: each was encoded as it is after the one before it.
    pub rest: &'a [u8],
    /// Time of the last of them that has one.
    pub last: Option<Stamp>,
}

/// Receives events in time order and writes them: an output format with its writer.
pub trait EventOutput {
    /// Encodes events, in threads.
    type Encoder: EventEncoder;

    /// An encoder, of which each thread takes a clone.
    fn encoder(&self) -> Self::Encoder;

    /// Writes what is before all events.
    ///
    /// # Errors
    ///
    /// Those of the writer; also in the other functions.
    fn begin(&mut self) -> io::Result<()>;

    /// Writes events that the encoder has encoded.
    ///
    /// # Errors
    ///
    /// As [`EventOutput::begin`].
    fn write_run(&mut self, run: EncodedRun<'_>) -> io::Result<()>;

    /// Takes note of events that the tracer lost; appends a message about it, with its newline.
    fn report_loss(&mut self, place: LossPlace<'_>, loss: &Loss, message: &mut Vec<u8>);

    /// Writes gathered events that have waited for long. Called before a wait that may be long.
    ///
    /// # Errors
    ///
    /// As [`EventOutput::begin`].
    fn write_due(&mut self) -> io::Result<()>;

    /// Writes all gathered events: nothing more is known to come. More may come even so, of traces
    /// that grow.
    ///
    /// # Errors
    ///
    /// As [`EventOutput::begin`].
    fn flush(&mut self) -> io::Result<()>;

    /// Writes what is after all events.
    ///
    /// # Errors
    ///
    /// As [`EventOutput::begin`].
    fn end(&mut self) -> io::Result<()>;
}

/// Bytes that are gathered for a writer.
#[derive(Debug)]
pub struct OutputBuffer<W> {
    writer: W,
    bytes: Vec<u8>,
    /// When bytes were written last, since the latest flush.
    written: Option<Instant>,
}

impl<W: Write> OutputBuffer<W> {
    /// An empty buffer.
    pub const fn new(writer: W) -> Self {
        Self { writer, bytes: Vec::new(), written: None }
    }

    /// The gathered bytes, to append to.
    #[inline]
    pub const fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Writes the bytes if there are many.
    ///
    /// # Errors
    ///
    /// Those of the writer; also in the other functions.
    #[inline]
    pub fn write_if_full(&mut self) -> io::Result<()> {
        if self.bytes.len() >= BUFFER_BYTES { self.write() } else { Ok(()) }
    }

    /// Writes the bytes if the latest write was long ago.
    ///
    /// # Errors
    ///
    /// As [`OutputBuffer::write_if_full`].
    pub fn write_if_due(&mut self) -> io::Result<()> {
        let is_due = self.written.is_none_or(|written| written.elapsed() >= WRITE_PERIOD);
        if is_due && !self.bytes.is_empty() { self.write() } else { Ok(()) }
    }

    /// Writes the bytes, and flushes the writer.
    ///
    /// # Errors
    ///
    /// As [`OutputBuffer::write_if_full`].
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

/// The output of a format of lines.
#[derive(Debug)]
pub struct LineOutput<F, W> {
    format: F,
    buffer: OutputBuffer<W>,
    shown: LastShown,
}

impl<F: LineFormat, W: Write> LineOutput<F, W> {
    /// An output that writes lines of `format` to `writer`.
    pub fn new(format: F, writer: W) -> Self {
        Self { format, buffer: OutputBuffer::new(writer), shown: LastShown::default() }
    }

    /// The writer.
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
        // Written with the first lines.
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
