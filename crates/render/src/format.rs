//! The interfaces that formats implement: [`EventEncoder`] all of them, [`LineFormat`] those of
//! lines.
//!
//! Lines are written by many threads, each for a piece of one stream; only when the streams are
//! merged does it become known which event comes before which. So a format writes a line as if
//! the event before it in its own stream were the one before it in all, says where in the line
//! that shows ([`DeltaSlot`]), and mends it in the merged text where it is not so
//! ([`LineFormat::patch_delta`]). Runs of events of one stream are copied without another look.

use trackway_ctf::Literal;
use trackway_ctf::read::{
    DecodeError, EventBody, EventClass, Loss, Sink, StreamClass, Trace, TraceIdentity,
};

/// Largest line that is written, in bytes; a larger one is damage. The largest event that is read
/// (64 MiB) has a line of that size if it is one string, all of it escaped. If it is an array of
/// bits, its line would be many times larger, and of no use as text.
pub const LINE_BYTES_MAX: usize = 256 << 20;

/// Lets a line that is too large grow no further: what is in `out` is cut to `limit`, and what is
/// written next will make it too large again. To be called where lines grow without end, that is
/// before each element of an array.
#[inline]
pub(crate) fn truncate_line(out: &mut Vec<u8>, limit: usize) {
    out.truncate(limit);
}

/// Appends what `push` writes between its quotes.
pub(crate) fn push_without_quotes(out: &mut Vec<u8>, text: &[u8], push: fn(&mut Vec<u8>, &[u8])) {
    let begin = out.len();
    push(out, text);
    out.pop();
    out.remove(begin);
}

/// When an event was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Nanoseconds since the clock's origin.
    pub time: i64,
    /// Value of the stream's clock.
    pub clock: u64,
}

/// Names of a trace.
#[derive(Debug, Clone, Copy, Default)]
pub struct TraceName<'a> {
    /// By messages: its host, and its folder below the one that was searched.
    pub name: &'a str,
    /// The folder that it is in; of several pieces, one of theirs.
    pub folder: &'a str,
}

/// Parts of a line in addition to its event's fields.
#[derive(Debug, Clone, Copy)]
pub struct Line<'a> {
    /// When the event was; `None` if its stream has no clock.
    pub stamp: Option<Stamp>,
    /// When the event before it in its stream was, if that is known here.
    pub previous: Option<Stamp>,
    /// Result of [`EventEncoder::stream_prefix`].
    pub stream_prefix: &'a [u8],
    /// Result of [`EventEncoder::class_prefix`].
    pub class_prefix: &'a [u8],
    /// Output of [`EventEncoder::packet_sink`].
    pub packet_prefix: &'a [u8],
    /// The three together, in this order, if that is at hand.
    pub prefix: Option<&'a Literal>,
}

/// The place in an encoded event that depends on the events before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeltaSlot {
    /// Offset of the difference to the event before, with its sign.
    pub at: u8,
    /// Length of the difference; 0 if the line shows none.
    pub bytes: u8,
    /// True if more than the difference depends on events before, so that
    /// [`LineFormat::patch_delta`] must process the line even if the previous event is also the
    /// previous one in its stream.
    pub always: bool,
}

/// The event that was shown last, of all streams, and what was shown of it.
#[derive(Debug, Clone, Copy, Default)]
pub struct LastShown {
    /// When the latest event that has a time was.
    pub last: Option<Stamp>,
    /// Difference between that event and the one before it, in nanoseconds or cycles.
    pub difference: Option<Difference>,
    /// True if a time before the clock's origin was shown.
    pub negative: bool,
}

/// Time from the previous event to this one, in nanoseconds or cycles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Difference {
    /// True if the event is earlier than the previous one.
    pub is_negative: bool,
    /// The difference without its sign.
    pub magnitude: u64,
}

/// The place and time of a loss.
#[derive(Debug, Clone, Copy)]
pub struct LossPlace<'a> {
    /// The trace's name.
    pub trace_name: &'a str,
    /// Identity of the trace.
    pub identity: TraceIdentity<'a>,
    /// Between which times, in nanoseconds since the clock's origin, if that is known.
    pub between: Option<(i64, i64)>,
    /// The stream's name: the path of its first file.
    pub stream_name: &'a str,
    /// Id of the stream's class.
    pub class_id: u64,
    /// Id of the stream, unique in its class.
    pub stream_id: u64,
}

/// Encodes events: the part of an output that many threads do at once, each with its own clone.
///
/// A thread encodes a piece of one stream. The merge, which knows the order of all events, passes
/// the bytes on to the [`EventOutput`](crate::EventOutput).
pub trait EventEncoder: Clone + Send + Sync {
    /// True if encoding an event yields bytes of output. Without output the order of events does
    /// not matter, so none is buffered.
    const HAS_BYTES: bool = true;
    /// True if a text within an encoded event can be replaced by the result of
    /// [`EventEncoder::push_text`] for another text, of another length. False for formats that
    /// write lengths.
    const CAN_EXCHANGE_TEXTS: bool = true;

    /// Returns the text at the beginning of all events of a stream's class.
    fn stream_prefix(&self, trace: &Trace, name: TraceName<'_>, stream: &StreamClass) -> Vec<u8>;

    /// Returns the text that follows in all events of an event's class.
    fn class_prefix(&self, trace: &Trace, stream: &StreamClass, event: &EventClass) -> Vec<u8>;

    /// Takes the visible members of a packet's context, of which it makes, at the end of `out`,
    /// what all events of the packet have in common. Called with an empty `out`.
    fn packet_sink(&self, out: &mut Vec<u8>) -> impl Sink;

    /// Appends the event that `body` belongs to, as it is after the event before it in its stream;
    /// a line with its newline. After an error, the caller removes what was appended.
    ///
    /// # Errors
    ///
    /// Those of [`EventBody::read`].
    fn push_event(
        &mut self,
        out: &mut Vec<u8>,
        line: Line<'_>,
        body: EventBody<'_, '_, '_>,
    ) -> Result<DeltaSlot, DecodeError>;

    /// Appends what stands for a text in an event, where for letters and digits the same stand:
    /// that takes the place of such a text in what [`EventEncoder::push_event`] wrote.
    fn push_text(&self, out: &mut Vec<u8>, text: &[u8]);
}

/// A format of lines: what [`LineOutput`](crate::LineOutput) writes.
pub trait LineFormat: EventEncoder {
    /// Text before the first line; empty for most formats.
    fn preamble(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Appends `line`, which [`EventEncoder::push_event`] wrote, as it is after what was `shown`.
    fn patch_delta(
        &mut self,
        out: &mut Vec<u8>,
        line: &[u8],
        delta: DeltaSlot,
        stamp: Option<Stamp>,
        shown: &mut LastShown,
    );

    /// Appends a message about a loss, with its newline, for standard error.
    fn push_loss(
        &mut self,
        out: &mut Vec<u8>,
        place: LossPlace<'_>,
        loss: &Loss,
        shown: &mut LastShown,
    );
}
