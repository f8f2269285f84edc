//! Events not shown: decoded, to find damage and to measure decoding alone, or only counted.

use trackway_ctf::read::{
    DecodeError, Enumeration, EventBody, EventClass, EventSink, Integer, Loss, Scope, Sink,
    StreamClass, Trace,
};

use crate::format::{
    DeltaSlot, EventEncoder, LastShown, Line, LineFormat, LossPlace, Stamp, TraceName,
};
use crate::pretty::Pretty;
use crate::time::Calendar;

/// Writes nothing of events. Losses are reported as by [`Pretty`].
#[derive(Debug, Clone)]
pub struct Discard<C> {
    messages: Pretty<C>,
    sum: ValueSum,
    is_decoded: bool,
}

impl<C> Discard<C> {
    /// A format that decodes every field of every event; `messages` reports losses.
    pub const fn new(messages: Pretty<C>) -> Self {
        Self { messages, sum: ValueSum(0), is_decoded: true }
    }

    /// The same that reads no more of an event than it takes to find the next: to count them.
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
        // The compiler must assume that the sum is used: no value may be left out.
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

/// The sum of all values, of no use but that each is needed for it.
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
        // The search for its end looked at every byte.
        self.0 = self.0.wrapping_add(std::hint::black_box(bytes).len() as u64);
    }
}

impl EventSink for ValueSum {
    fn begin_scope(&mut self, _: Scope) {}
}
