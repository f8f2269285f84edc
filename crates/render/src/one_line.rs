//! One-line output: a name in a trace may contain a line end, which on a terminal would begin a
//! line that looks like another event or a message.

use trackway_ctf::read::{DecodeError, EventBody, EventClass, Loss, Sink, StreamClass, Trace};

use crate::format::{
    DeltaSlot, EventEncoder, LastShown, Line, LineFormat, LossPlace, Stamp, TraceName,
};

/// A wrapper of a format that, if enabled, escapes the line ends within its lines.
#[derive(Debug, Clone)]
pub struct OneLine<F> {
    format: F,
    is_escaped: bool,
}

impl<F> OneLine<F> {
    /// Creates the wrapper; it passes lines unchanged unless `is_escaped`.
    pub const fn new(format: F, is_escaped: bool) -> Self {
        Self { format, is_escaped }
    }

    /// Escapes the line ends from `start` on, except the last byte.
    fn escape(&self, out: &mut Vec<u8>, start: usize) {
        let is_inner =
            |bytes: &[u8]| bytes.split_last().is_some_and(|(_, line)| has_line_end(line));
        if self.is_escaped && out.get(start..).is_some_and(is_inner) {
            let mut line = out.split_off(start);
            let last = line.pop();
            push_escaped(out, &line);
            out.extend(last);
        }
    }
}

fn has_line_end(bytes: &[u8]) -> bool {
    memchr::memchr(b'\n', bytes).is_some()
}

fn push_escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    for (index, piece) in bytes.split(|&byte| byte == b'\n').enumerate() {
        if index > 0 {
            out.extend_from_slice(b"\\n");
        }
        out.extend_from_slice(piece);
    }
}

impl<F: LineFormat> EventEncoder for OneLine<F> {
    const HAS_BYTES: bool = F::HAS_BYTES;

    fn stream_prefix(&self, trace: &Trace, name: TraceName<'_>, stream: &StreamClass) -> Vec<u8> {
        self.format.stream_prefix(trace, name, stream)
    }

    fn class_prefix(&self, trace: &Trace, stream: &StreamClass, event: &EventClass) -> Vec<u8> {
        self.format.class_prefix(trace, stream, event)
    }

    fn packet_sink(&self, out: &mut Vec<u8>) -> impl Sink {
        self.format.packet_sink(out)
    }

    #[inline]
    fn push_event(
        &mut self,
        out: &mut Vec<u8>,
        line: Line<'_>,
        body: EventBody<'_, '_, '_>,
    ) -> Result<DeltaSlot, DecodeError> {
        let start = out.len();
        let head = self.format.push_event(out, line, body)?;
        self.escape(out, start);
        Ok(head)
    }

    fn push_text(&self, out: &mut Vec<u8>, text: &[u8]) {
        let mut inner = Vec::new();
        self.format.push_text(&mut inner, text);
        match self.is_escaped {
            true => push_escaped(out, &inner),
            false => out.extend_from_slice(&inner),
        }
    }
}

impl<F: LineFormat> LineFormat for OneLine<F> {
    fn preamble(&self) -> Vec<u8> {
        self.format.preamble()
    }

    #[inline]
    fn patch_delta(
        &mut self,
        out: &mut Vec<u8>,
        line: &[u8],
        head: DeltaSlot,
        stamp: Option<Stamp>,
        shown: &mut LastShown,
    ) {
        self.format.patch_delta(out, line, head, stamp, shown);
    }

    fn push_loss(
        &mut self,
        out: &mut Vec<u8>,
        place: LossPlace<'_>,
        loss: &Loss,
        shown: &mut LastShown,
    ) {
        let start = out.len();
        self.format.push_loss(out, place, loss, shown);
        self.escape(out, start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_ends_within_a_line_are_escaped() {
        let escaped = |is_escaped, line: &[u8]| {
            let mut out = b"before\n".to_vec();
            let start = out.len();
            out.extend_from_slice(line);
            OneLine::new((), is_escaped).escape(&mut out, start);
            out
        };
        assert_eq!(escaped(true, b"a\n\nb\n"), b"before\na\\n\\nb\n");
        assert_eq!(escaped(false, b"a\nb\n"), b"before\na\nb\n");
        assert_eq!(escaped(true, b"a\n"), b"before\na\n");
        assert_eq!(escaped(true, b""), b"before\n");
    }
}
