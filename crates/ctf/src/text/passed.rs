//! Events passed over, not decoded: to count them.

use super::format::{Head, Line, LineFormat, LossPlace, Shown, Stamp, TraceName};
use super::pretty::Pretty;
use super::time::Calendar;
use crate::read::{
    DecodeError, EventClass, Loss, Sink, Skip, StreamClass, StreamDecoder, Trace, Window,
};

/// Writes nothing, and reads no more of an event than it takes to find the next. Losses are told
/// as [`Pretty`] tells them.
#[derive(Debug, Clone)]
pub struct Passed<C> {
    messages: Pretty<C>,
}

impl<C> Passed<C> {
    /// The format; `messages` tells of losses.
    pub const fn new(messages: Pretty<C>) -> Self {
        Self { messages }
    }
}

impl<C: Calendar> LineFormat for Passed<C> {
    fn stream_text(&self, _: &Trace, _: TraceName<'_>, _: &StreamClass) -> Vec<u8> {
        Vec::new()
    }

    fn class_text(&self, _: &Trace, _: &StreamClass, _: &EventClass) -> Vec<u8> {
        Vec::new()
    }

    fn packet_sink(&self, _: &mut Vec<u8>) -> impl Sink {
        Skip
    }

    #[inline]
    fn event(
        &mut self,
        _: &mut Vec<u8>,
        line: Line<'_>,
        decoder: &mut StreamDecoder<'_>,
        window: Window<'_>,
    ) -> Result<Head, DecodeError> {
        decoder.skip_body(window, line.class)?;
        Ok(Head::default())
    }

    fn relate(&mut self, _: &mut Vec<u8>, _: &[u8], _: Head, _: Option<Stamp>, _: &mut Shown) {}

    fn loss(&mut self, out: &mut Vec<u8>, place: LossPlace<'_>, loss: &Loss, shown: &mut Shown) {
        self.messages.loss(out, place, loss, shown);
    }
}
