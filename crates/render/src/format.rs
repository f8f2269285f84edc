//! The interfaces of output formats: all implement [`EventEncoder`]; formats of lines also
//! implement [`LineFormat`].
//!
//! Many threads write lines, each for a part of one stream. The order of all events is known only
//! when the streams are merged. So a format first writes a line as if its predecessor in the stream
//! were the last shown event, and reports the place that depends on it ([`DeltaSlot`]). If another
//! event precedes it, the merge corrects that place ([`LineFormat::patch_delta`]). Runs of events
//! of one stream are copied unchanged.

use trackway_ctf::Literal;
use trackway_ctf::read::{
    DecodeError, EventBody, EventClass, Loss, Sink, StreamClass, Trace, TraceIdentity,
};

/// Maximum size of a line in bytes; a larger line counts as damage. The largest event (64 MiB)
/// needs this size if it is one string in which every byte is escaped. If it is an array of bits,
/// its line would be many times larger, and useless as text.
pub const LINE_BYTES_MAX: usize = 256 << 20;

/// Cuts `out` to `limit` bytes, so that a line that is too large grows no further; the next text
/// makes it too large again. Must be called where lines can grow without end: before each element
/// of an array.
#[inline]
pub(crate) fn truncate_line(out: &mut Vec<u8>, limit: usize) {
    out.truncate(limit);
}

/// Appends the output of `push` without its surrounding quotes.
pub(crate) fn push_without_quotes(out: &mut Vec<u8>, text: &[u8], push: fn(&mut Vec<u8>, &[u8])) {
    let begin = out.len();
    push(out, text);
    out.pop();
    out.remove(begin);
}

/// The time of an event.
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
    /// Name of the trace in messages: its host, and its folder relative to the searched one.
    pub name: &'a str,
    /// Folder of the trace; the folder of one part if the trace has several.
    pub folder: &'a str,
}

/// Parts of a line in addition to its event's fields.
#[derive(Debug, Clone, Copy)]
pub struct Line<'a> {
    /// Time of the event; `None` if its stream has no clock.
    pub stamp: Option<Stamp>,
    /// Time of the previous event in the stream, if it is known.
    pub previous: Option<Stamp>,
    /// Result of [`EventEncoder::stream_prefix`].
    pub stream_prefix: &'a [u8],
    /// Result of [`EventEncoder::class_prefix`].
    pub class_prefix: &'a [u8],
    /// Output of [`EventEncoder::packet_sink`].
    pub packet_prefix: &'a [u8],
    /// Concatenation of stream, class and packet prefix, if it has been computed.
    pub prefix: Option<&'a Literal>,
}

/// The place in an encoded event that depends on the events before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeltaSlot {
    /// Offset of the difference to the previous event, with its sign.
    pub at: u8,
    /// Length of the difference; 0 if the line shows none.
    pub bytes: u8,
    /// True if other parts of the line also depend on the events before. Then
    /// [`LineFormat::patch_delta`] must process the line even if the order of the stream is kept.
    pub always: bool,
}

/// The last event shown, of all streams, and the state that its line leaves.
#[derive(Debug, Clone, Copy, Default)]
pub struct LastShown {
    /// Time of the latest event that has one.
    pub last: Option<Stamp>,
    /// Difference between the latest event and its predecessor, in nanoseconds or cycles.
    pub difference: Option<Difference>,
    /// True after a time before the clock's origin was shown.
    pub negative: bool,
}

/// Time from one event to the next, in nanoseconds or cycles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Difference {
    /// True if the later event has the earlier time.
    pub is_negative: bool,
    /// Absolute value of the difference.
    pub magnitude: u64,
}

/// The place and time of a loss.
#[derive(Debug, Clone, Copy)]
pub struct LossPlace<'a> {
    /// Name of the trace.
    pub trace_name: &'a str,
    /// Identity of the trace.
    pub identity: TraceIdentity<'a>,
    /// Times before and after the loss, in nanoseconds since the clock's origin, if known.
    pub between: Option<(i64, i64)>,
    /// Name of the stream: the path of its first file.
    pub stream_name: &'a str,
    /// Id of the stream class.
    pub class_id: u64,
    /// Id of the stream, unique in its class.
    pub stream_id: u64,
}

/// Encodes events: the part of an output that many threads execute in parallel, each with its own
/// clone.
///
/// A thread encodes a part of one stream. The merge, which knows the order of all events, passes
/// the bytes to the [`EventOutput`](crate::EventOutput).
pub trait EventEncoder: Clone + Send + Sync {
    /// True if encoding an event yields output. Otherwise the order of events does not matter, and
    /// the merge buffers none.
    const HAS_BYTES: bool = true;
    /// True if a text in an encoded event can be replaced by another one, of any length, encoded by
    /// [`EventEncoder::push_text`]. False for formats that write lengths.
    const CAN_EXCHANGE_TEXTS: bool = true;

    /// Returns the common prefix of all events of a stream class.
    fn stream_prefix(&self, trace: &Trace, name: TraceName<'_>, stream: &StreamClass) -> Vec<u8>;

    /// Returns the prefix that all events of an event class share; it follows the stream's prefix.
    fn class_prefix(&self, trace: &Trace, stream: &StreamClass, event: &EventClass) -> Vec<u8>;

    /// Returns a sink for the visible members of a packet's context, which writes the common part
    /// of all events of the packet to `out`. `out` must be empty.
    fn packet_sink(&self, out: &mut Vec<u8>) -> impl Sink;

    /// Appends the event of `body` as it looks after its predecessor in the stream; a line includes
    /// its newline. After an error, the caller removes the appended bytes.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`EventBody::read`].
    fn push_event(
        &mut self,
        out: &mut Vec<u8>,
        line: Line<'_>,
        body: EventBody<'_, '_, '_>,
    ) -> Result<DeltaSlot, DecodeError>;

    /// Appends the encoding of `text` inside an event; letters and digits encode to themselves. The
    /// result can replace such a text in the output of [`EventEncoder::push_event`].
    fn push_text(&self, out: &mut Vec<u8>, text: &[u8]);
}

/// A format of lines, for [`LineOutput`](crate::LineOutput).
pub trait LineFormat: EventEncoder {
    /// Returns the text before the first line; empty for most formats.
    fn preamble(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Appends `line`, which [`EventEncoder::push_event`] wrote, corrected for the events in
    /// `shown`.
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
