//! Text that shows what values stand for: the lines of [`Pretty`], with numbers by name where the
//! trace has names for them, and system calls as they are written in C.
//!
//! ```text
//! … syscall_entry_openat: { cpu_id = 0 }, { tid = 7 }, openat(3, "/a", O_RDWR|O_CREAT, 0644)
//! … syscall_exit_openat: { cpu_id = 0 }, { tid = 7 }, openat = -13 (EACCES)
//! … syscall_entry_connect: { cpu_id = 0 }, { tid = 7 }, connect(3, {AF_INET, 127.0.0.1:80}, 16)
//! ```

use trackway_ctf::read::{
    Body, DecodeError, EventClass, Integer, Loss, Meaning, Sink, StreamClass, Trace,
};

use crate::call::{Call, SymbolicWriter};
use crate::fields::{FieldWriter, push_integer, push_quoted};
use crate::format::{
    DeltaSlot, EventEncoder, LastShown, Line, LineFormat, LossPlace, Stamp, TraceName,
};
use crate::number::{push_decimal, push_hexadecimal, push_signed};
use crate::options::Names;
use crate::pretty::Pretty;
use crate::time::Calendar;

/// Bits of a device number that say which device of its driver's it is.
const MINOR_BITS: u32 = 20;

/// Writes lines that show what values stand for.
#[derive(Debug, Clone)]
pub struct Symbolic<C>(Pretty<C>);

impl<C> Symbolic<C> {
    /// The format that, but for what values stand for, is `pretty`.
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
        SymbolicWriter::new(FieldWriter::packet(out, self.0.names()), None)
    }

    fn event(
        &mut self,
        out: &mut Vec<u8>,
        line: Line<'_>,
        body: Body<'_, '_, '_>,
    ) -> Result<DeltaSlot, DecodeError> {
        let head = self.0.push_head(out, &line);
        let call = Call::of(body.header.class.name().unwrap_or_default());
        let names: Names = self.0.names();
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

    fn loss(
        &mut self,
        out: &mut Vec<u8>,
        place: LossPlace<'_>,
        loss: &Loss,
        shown: &mut LastShown,
    ) {
        self.0.loss(out, place, loss, shown);
    }
}

/// Appends what a value stands for, which stands behind another one: what has no name is a number.
pub(crate) fn push_meaning(
    out: &mut Vec<u8>,
    meaning: &Meaning,
    kind: &Integer,
    (before, value): (u64, u64),
) {
    match meaning {
        Meaning::Result { is_address, .. } => {
            let mut error = None;
            meaning.labels(kind, (0, value), &mut |name| error = Some(name));
            match (error, is_address) {
                (None, true) => push_bits(out, value),
                _ => push_signed(out, value.cast_signed()),
            }
            if let Some(name) = error {
                out.extend_from_slice(b" (");
                push_name(out, true, name);
                out.push(b')');
            }
        }
        Meaning::Octal => push_octal(out, value),
        Meaning::Status(_) => {
            push_integer(out, kind, value);
            let fate = meaning.fate(value).unwrap_or_default();
            out.extend_from_slice(format!(" ({fate})").as_bytes());
        }
        Meaning::Signals(_) => push_signals(out, meaning, kind, value),
        Meaning::Device => {
            push_decimal(out, value >> MINOR_BITS);
            out.push(b':');
            push_decimal(out, value & ((1 << MINOR_BITS) - 1));
        }
        // Of an array as a whole.
        Meaning::Internet | Meaning::Hardware | Meaning::Uuid => push_integer(out, kind, value),
        Meaning::Names(_)
        | Meaning::NamesBehind(_)
        | Meaning::Folder
        | Meaning::Mode(_)
        | Meaning::Address(_) => {
            let mut is_first = true;
            let rest = meaning.labels(kind, (before, value), &mut |name| {
                push_name(out, is_first, name);
                is_first = false;
            });
            match (is_first, rest) {
                (true, _) if matches!(meaning, Meaning::Address(_)) => push_bits(out, rest),
                (true, _) if matches!(meaning, Meaning::Mode(_)) => push_octal(out, rest),
                (false, _) if matches!(meaning, Meaning::Mode(_)) => {
                    out.push(b'|');
                    push_octal(out, rest);
                }
                (true, 0) => out.push(b'0'),
                (true, rest) => push_integer(out, kind, rest_of(meaning, value, rest)),
                (false, 0) => {}
                (false, rest) => {
                    out.push(b'|');
                    push_bits(out, rest);
                }
            }
        }
    }
}

/// What is shown of a value of which nothing has a name: all, but for what is about something else.
fn rest_of(meaning: &Meaning, value: u64, rest: u64) -> u64 {
    // The sign of a number is not among its own bits.
    if meaning.hides() { rest } else { value }
}

fn push_octal(out: &mut Vec<u8>, value: u64) {
    if value == 0 {
        out.push(b'0');
    } else {
        out.extend_from_slice(format!("0{value:o}").as_bytes());
    }
}

/// Appends a set of signals as strace does: `[INT TERM]`, or, of most, `~[KILL STOP]`.
fn push_signals(out: &mut Vec<u8>, meaning: &Meaning, kind: &Integer, value: u64) {
    let are_most = value.count_ones() > u64::BITS / 2;
    let shown = if are_most { !value } else { value };
    out.extend_from_slice(if are_most { b"~[" } else { b"[" });
    let mut is_first = true;
    meaning.labels(kind, (0, shown), &mut |name| {
        if !std::mem::take(&mut is_first) {
            out.push(b' ');
        }
        out.extend_from_slice(name.strip_prefix("SIG").unwrap_or(name).as_bytes());
    });
    out.push(b']');
}

fn push_bits(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(b"0x");
    push_hexadecimal(out, value);
}

/// Appends a name, behind others; in quotes if it is none that could be in a program.
pub(crate) fn push_name(out: &mut Vec<u8>, is_first: bool, name: &str) {
    if !is_first {
        out.push(b'|');
    }
    let is_plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'+' | b'-' | b'|');
    if !name.is_empty() && name.bytes().all(is_plain) {
        out.extend_from_slice(name.as_bytes());
    } else {
        push_quoted(out, name.as_bytes());
    }
}
