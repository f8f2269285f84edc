//! Symbolic output: the lines of [`Pretty`], with named values where the trace has names, and with
//! system calls in C's notation.
//!
//! ```text
//! … syscall_entry_openat: { cpu_id = 0 }, { tid = 7 }, openat(3, "/a", O_RDWR|O_CREAT, 0644)
//! … syscall_exit_openat: { cpu_id = 0 }, { tid = 7 }, openat = -13 (EACCES)
//! … syscall_entry_connect: { cpu_id = 0 }, { tid = 7 }, connect(3, {AF_INET, 127.0.0.1:80}, 16)
//! ```

use trackway_ctf::read::{DecodeError, EventBody, EventClass, Loss, Sink, StreamClass, Trace};

use crate::call::{Call, SymbolicWriter};
use crate::fields::FieldWriter;
use crate::format::{
    DeltaSlot, EventEncoder, LastShown, Line, LineFormat, LossPlace, Stamp, TraceName,
};
use crate::options::ShownNames;
use crate::pretty::Pretty;
use crate::time::Calendar;

/// Writes lines with symbolic values.
#[derive(Debug, Clone)]
pub struct Symbolic<C>(Pretty<C>);

impl<C> Symbolic<C> {
    /// Creates the format; apart from symbolic values, its lines are those of `pretty`.
    pub const fn new(pretty: Pretty<C>) -> Self {
        Self(pretty)
    }
}

impl<C: Calendar> EventEncoder for Symbolic<C> {
    fn stream_prefix(&self, trace: &Trace, name: TraceName<'_>, stream: &StreamClass) -> Vec<u8> {
        self.0.stream_prefix(trace, name, stream)
    }

    fn class_prefix(&self, trace: &Trace, stream: &StreamClass, event: &EventClass) -> Vec<u8> {
        self.0.class_prefix(trace, stream, event)
    }

    fn packet_sink(&self, out: &mut Vec<u8>) -> impl Sink {
        SymbolicWriter::new(FieldWriter::for_packet(out, self.0.names()), None)
    }

    fn push_event(
        &mut self,
        out: &mut Vec<u8>,
        line: Line<'_>,
        body: EventBody<'_, '_, '_>,
    ) -> Result<DeltaSlot, DecodeError> {
        let head = self.0.push_head(out, &line);
        let call = Call::of(body.header.class.name().unwrap_or_default());
        let names: ShownNames = self.0.names();
        let writer = FieldWriter::new(out, names, !line.packet_prefix.is_empty());
        body.read(&mut SymbolicWriter::new(writer, call))?;
        out.push(b'\n');
        Ok(head)
    }

    fn push_text(&self, out: &mut Vec<u8>, text: &[u8]) {
        self.0.push_text(out, text);
    }
}

impl<C: Calendar> LineFormat for Symbolic<C> {
    fn patch_delta(
        &mut self,
        out: &mut Vec<u8>,
        line: &[u8],
        head: DeltaSlot,
        stamp: Option<Stamp>,
        shown: &mut LastShown,
    ) {
        self.0.patch_delta(out, line, head, stamp, shown);
    }

    fn push_loss(
        &mut self,
        out: &mut Vec<u8>,
        place: LossPlace<'_>,
        loss: &Loss,
        shown: &mut LastShown,
    ) {
        self.0.push_loss(out, place, loss, shown);
    }
}
