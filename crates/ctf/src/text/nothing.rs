//! Events not shown: decoded, to find damage and to measure decoding alone, or only counted.

use super::format::{Head, Line, LineFormat, LossPlace, Shown, Stamp, TraceName};
use super::pretty::Pretty;
use super::time::Calendar;
use crate::read::{
    Body, DecodeError, Enumeration, EventClass, EventSink, Integer, Loss, Scope, Sink, StreamClass,
    Trace,
};

/// Writes nothing of events. Losses are told as [`Pretty`] tells them.
#[derive(Debug, Clone)]
pub struct Nothing<C> {
    messages: Pretty<C>,
    sum: Sum,
    is_decoded: bool,
}

impl<C> Nothing<C> {
    /// A format that decodes every field of every event; `messages` tells of losses.
    pub const fn new(messages: Pretty<C>) -> Self {
        Self { messages, sum: Sum(0), is_decoded: true }
    }

    /// The same that reads no more of an event than it takes to find the next: to count them.
    pub const fn passing(messages: Pretty<C>) -> Self {
        Self { messages, sum: Sum(0), is_decoded: false }
    }
}

impl<C: Calendar> LineFormat for Nothing<C> {
    const HAS_LINES: bool = false;

    fn stream_text(&self, _: &Trace, _: TraceName<'_>, _: &StreamClass) -> Vec<u8> {
        Vec::new()
    }

    fn class_text(&self, _: &Trace, _: &StreamClass, _: &EventClass) -> Vec<u8> {
        Vec::new()
    }

    fn packet_sink(&self, _: &mut Vec<u8>) -> impl Sink {
        Sum(0)
    }

    #[inline]
    fn event(
        &mut self,
        _: &mut Vec<u8>,
        _: Line<'_>,
        body: Body<'_, '_, '_>,
    ) -> Result<Head, DecodeError> {
        if !self.is_decoded {
            body.skip()?;
            return Ok(Head::default());
        }
        body.read(&mut self.sum)?;
        // Somebody might look at it, as far as the compiler knows: no value may be left out.
        std::hint::black_box(&self.sum);
        Ok(Head::default())
    }

    fn push_text(&self, out: &mut Vec<u8>, text: &[u8]) {
        out.extend_from_slice(text);
    }

    fn relate(&mut self, _: &mut Vec<u8>, _: &[u8], _: Head, _: Option<Stamp>, _: &mut Shown) {}

    fn loss(&mut self, out: &mut Vec<u8>, place: LossPlace<'_>, loss: &Loss, shown: &mut Shown) {
        self.messages.loss(out, place, loss, shown);
    }
}

/// The sum of all values, of no use but that each is needed for it.
#[derive(Debug, Clone)]
struct Sum(u64);

impl Sink for Sum {
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

impl EventSink for Sum {
    fn begin_scope(&mut self, _: Scope) {}
}
