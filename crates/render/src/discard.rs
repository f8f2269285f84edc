//! Formats that show no events: they decode events, to find damage or to measure decoding, or only
//! count them.

use trackway_ctf::read::{
    DecodeError, Enumeration, EventBody, EventClass, EventSink, Integer, Loss, Scope, Sink,
    StreamClass, Trace,
};

use crate::format::{
    DeltaSlot, EventEncoder, LastShown, Line, LineFormat, LossPlace, Stamp, TraceName,
};
use crate::pretty::Pretty;
use crate::time::Calendar;

/// A format without output for events. Reports losses like [`Pretty`].
#[derive(Debug, Clone)]
pub struct Discard<C> {
    messages: Pretty<C>,
    sum: ValueSum,
    is_decoded: bool,
}

impl<C> Discard<C> {
    /// Creates a format that decodes every field of every event; `messages` reports losses.
    pub const fn new(messages: Pretty<C>) -> Self {
        Self { messages, sum: ValueSum(0), is_decoded: true }
    }

    /// Creates a format that only counts events: it skips their fields. `messages` reports losses.
    pub const fn without_decoding(messages: Pretty<C>) -> Self {
        Self { messages, sum: ValueSum(0), is_decoded: false }
    }
}

impl<C: Calendar> EventEncoder for Discard<C> {
    const HAS_BYTES: bool = false;

    fn stream_prefix(&self, _: &Trace, _: TraceName<'_>, _: &StreamClass) -> Vec<u8> {
        Vec::new()
    }

    fn class_prefix(&self, _: &Trace, _: &StreamClass, _: &EventClass) -> Vec<u8> {
        Vec::new()
    }

    fn packet_sink(&self, _: &mut Vec<u8>) -> impl Sink {
        ValueSum(0)
    }

    #[inline]
    fn push_event(
        &mut self,
        _: &mut Vec<u8>,
        _: Line<'_>,
        body: EventBody<'_, '_, '_>,
    ) -> Result<DeltaSlot, DecodeError> {
        if !self.is_decoded {
            body.skip()?;
            return Ok(DeltaSlot::default());
        }
        body.read(&mut self.sum)?;
        // Makes the compiler assume that the sum is used, so that it removes no value.
        std::hint::black_box(&self.sum);
        Ok(DeltaSlot::default())
    }

    fn push_text(&self, out: &mut Vec<u8>, text: &[u8]) {
        out.extend_from_slice(text);
    }
}

impl<C: Calendar> LineFormat for Discard<C> {
    fn patch_delta(
        &mut self,
        _: &mut Vec<u8>,
        _: &[u8],
        _: DeltaSlot,
        _: Option<Stamp>,
        _: &mut LastShown,
    ) {
    }

    fn push_loss(
        &mut self,
        out: &mut Vec<u8>,
        place: LossPlace<'_>,
        loss: &Loss,
        shown: &mut LastShown,
    ) {
        self.messages.push_loss(out, place, loss, shown);
    }
}

/// Sum of all values, whose only purpose is to make every value necessary.
#[derive(Debug, Clone)]
struct ValueSum(u64);

impl Sink for ValueSum {
    #[inline]
    fn integer(&mut self, _: &Integer, value: u64) {
        self.0 = self.0.wrapping_add(value);
    }

    #[inline]
    fn enumeration(&mut self, kind: &Enumeration, value: u64) {
        self.integer(kind.integer(), value);
    }

    #[inline]
    fn float(&mut self, value: f64) {
        self.0 = self.0.wrapping_add(value.to_bits());
    }

    fn text(&mut self, bytes: &[u8]) {
        // Decoding has already read every byte to find the text's end.
        self.0 = self.0.wrapping_add(std::hint::black_box(bytes).len() as u64);
    }
}

impl EventSink for ValueSum {
    fn begin_scope(&mut self, _: Scope) {}
}
