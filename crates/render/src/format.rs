//! What it takes to write events as lines: the interface that every format implements.
//!
//! Lines are written by many threads, each for a piece of one stream; only when the streams are
//! merged does it become known which event comes before which. So a format writes a line as if
//! the event before it in its own stream were the one before it in all, says where in the line
//! that shows ([`DeltaSlot`]), and mends it in the merged text where it is not so
//! ([`LineFormat::patch_delta`]). Runs of events of one stream are copied without another look.

use trackway_ctf::Literal;
use trackway_ctf::read::{
    Body, DecodeError, EventClass, Loss, Sink, StreamClass, Trace, TraceIdentity,
};

/// Largest line that is written, in bytes; a larger one is damage. The largest event that is read
/// (64 MiB) has a line of that size if it is one string, all of it escaped, and one of many times
/// that if it is an array of bits, which nobody reads as text.
pub const LINE_BYTES_MAX: usize = 256 << 20;

/// Lets a line that is too large grow no further: what is in `out` is cut to `limit`, and what is
/// written next will make it too large again. To be called where lines grow without end, that is
/// before each element of an array.
#[inline]
pub(crate) fn bound(out: &mut Vec<u8>, limit: usize) {
    out.truncate(limit);
}

/// Appends what `push` writes between its quotes.
pub(crate) fn push_inner(out: &mut Vec<u8>, text: &[u8], push: fn(&mut Vec<u8>, &[u8])) {
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

/// What a trace is called.
#[derive(Debug, Clone, Copy, Default)]
pub struct TraceName<'a> {
    /// By messages: its host, and its folder below the one that was searched.
    pub name: &'a str,
    /// The folder that it is in; of several pieces, one of theirs.
    pub folder: &'a str,
}

/// What a line shows besides its event's fields.
#[derive(Debug, Clone, Copy)]
pub struct Line<'a> {
    /// When the event was; `None` if its stream has no clock.
    pub stamp: Option<Stamp>,
    /// When the event before it in its stream was, if that is known here.
    pub previous: Option<Stamp>,
    /// What [`LineFormat::stream_text`] gave.
    pub stream_text: &'a [u8],
    /// What [`LineFormat::class_text`] gave.
    pub class_text: &'a [u8],
    /// What [`LineFormat::packet_sink`] wrote.
    pub packet_text: &'a [u8],
    /// The three together, in this order, if that is at hand.
    pub prefix: Option<&'a Literal>,
}

/// What of a line depends on the events before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeltaSlot {
    /// Where in the line the difference to the event before stands, with its sign.
    pub delta_at: u8,
    /// How long it is; 0 if the line shows none.
    pub delta_bytes: u8,
    /// Whether more than the difference depends on events before, so that
    /// [`LineFormat::patch_delta`] must see the line even if the event before it is the one before it
    /// in its stream.
    pub always: bool,
}

/// What was shown so far, of all streams.
#[derive(Debug, Clone, Copy, Default)]
pub struct LastShown {
    /// When the latest event that has a time was.
    pub last: Option<Stamp>,
    /// What its difference to the one before was, in nanoseconds or cycles.
    pub difference: Option<Difference>,
    /// Whether a time before the clock's origin was shown.
    pub negative: bool,
}

/// How much later an event is than the one before it, in nanoseconds or cycles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Difference {
    /// Whether it is earlier.
    pub is_negative: bool,
    /// The difference without its sign.
    pub magnitude: u64,
}

/// Where and when a loss was.
#[derive(Debug, Clone, Copy)]
pub struct LossPlace<'a> {
    /// The trace's name.
    pub trace_name: &'a str,
    /// What tells the trace from others.
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

/// Writes events as lines. Each thread has its own, by `Clone`.
pub trait LineFormat: Clone + Send {
    /// Whether events have lines. If not, their order is of no matter: nothing is kept of them.
    const HAS_LINES: bool = true;

    /// What stands before the first line; mostly nothing.
    fn preamble(&self) -> Vec<u8> {
        Vec::new()
    }

    /// What all lines of a stream's class have in common.
    fn stream_text(&self, trace: &Trace, name: TraceName<'_>, stream: &StreamClass) -> Vec<u8>;

    /// What all lines of an event's class have in common.
    fn class_text(&self, trace: &Trace, stream: &StreamClass, event: &EventClass) -> Vec<u8>;

    /// Takes the visible members of a packet's context, of which it makes, at the end of `out`,
    /// what all lines of the packet have in common. Called with an empty `out`.
    fn packet_sink(&self, out: &mut Vec<u8>) -> impl Sink;

    /// Appends the line of the event that `body` belongs to, with its newline. After an error, what
    /// was appended is to be taken away again.
    ///
    /// # Errors
    ///
    /// Those of [`Body::read`].
    fn event(
        &mut self,
        out: &mut Vec<u8>,
        line: Line<'_>,
        body: Body<'_, '_, '_>,
    ) -> Result<DeltaSlot, DecodeError>;

    /// Appends what stands for a text in a line, where for letters and digits the same stand: that
    /// takes the place of such a text in a line that [`LineFormat::event`] wrote.
    fn push_text(&self, out: &mut Vec<u8>, text: &[u8]);

    /// Appends `line`, which [`LineFormat::event`] wrote, as it is after what was `shown`.
    fn patch_delta(
        &mut self,
        out: &mut Vec<u8>,
        line: &[u8],
        head: DeltaSlot,
        stamp: Option<Stamp>,
        shown: &mut LastShown,
    );

    /// Appends a message about a loss, with its newline, for standard error.
    fn loss(&mut self, out: &mut Vec<u8>, place: LossPlace<'_>, loss: &Loss, shown: &mut LastShown);
}
