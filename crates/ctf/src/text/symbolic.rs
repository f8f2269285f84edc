//! Text that shows what values stand for: the lines of [`Pretty`], with numbers by name where the
//! trace has names for them, and system calls as they are written in C.
//!
//! ```text
//! … syscall_entry_openat: { cpu_id = 0 }, { tid = 7 }, openat(3, "/a", O_RDWR|O_CREAT, 0644)
//! … syscall_exit_openat: { cpu_id = 0 }, { tid = 7 }, openat = -13 (EACCES)
//! … syscall_entry_connect: { cpu_id = 0 }, { tid = 7 }, connect(3, 0x7FFC…, 16), { family = …
//! ```
//!
//! What a call's arguments point to, which the recorder puts behind each of them, is not among them
//! here, but behind the call.

use super::fields::{FieldWriter, push_integer, push_quoted};
use super::format::{Head, Line, LineFormat, LossPlace, Shown, Stamp, TraceName};
use super::number::{push_decimal, push_hexadecimal, push_signed};
use super::options::Names;
use super::pretty::Pretty;
use super::time::Calendar;
use crate::read::{
    Body, DecodeError, Enumeration, EventClass, EventSink, Integer, Loss, Meaning, Member, Scope,
    Sink, StreamClass, Trace, Type, VariantOption,
};

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

impl<C: Calendar> LineFormat for Symbolic<C> {
    fn stream_text(&self, trace: &Trace, name: TraceName<'_>, stream: &StreamClass) -> Vec<u8> {
        self.0.stream_text(trace, name, stream)
    }

    fn class_text(&self, trace: &Trace, stream: &StreamClass, event: &EventClass) -> Vec<u8> {
        self.0.class_text(trace, stream, event)
    }

    fn packet_sink(&self, out: &mut Vec<u8>) -> impl Sink {
        SymbolicWriter::new(FieldWriter::packet(out, self.0.names()), None)
    }

    fn event(
        &mut self,
        out: &mut Vec<u8>,
        line: Line<'_>,
        body: Body<'_, '_, '_>,
    ) -> Result<Head, DecodeError> {
        let head = self.0.push_head(out, &line);
        let call = Call::of(body.header.class.name().unwrap_or_default());
        let names: Names = self.0.names();
        let writer = FieldWriter::new(out, names, !line.packet_text.is_empty());
        body.read(&mut SymbolicWriter::new(writer, call))?;
        out.push(b'\n');
        Ok(head)
    }

    fn relate(
        &mut self,
        out: &mut Vec<u8>,
        line: &[u8],
        head: Head,
        stamp: Option<Stamp>,
        shown: &mut Shown,
    ) {
        self.0.relate(out, line, head, stamp, shown);
    }

    fn loss(&mut self, out: &mut Vec<u8>, place: LossPlace<'_>, loss: &Loss, shown: &mut Shown) {
        self.0.loss(out, place, loss, shown);
    }
}

/// A side of a system call, with its name.
#[derive(Debug, Clone, Copy)]
enum Call<'name> {
    Entry(&'name str),
    Exit(&'name str),
}

impl<'name> Call<'name> {
    /// That which an event is, by the names that LTTng has for them.
    fn of(event: &'name str) -> Option<Self> {
        let entry = event.strip_prefix("syscall_entry_").map(Self::Entry);
        entry.or_else(|| event.strip_prefix("syscall_exit_").map(Self::Exit))
    }
}

/// Appends values by what they stand for.
struct SymbolicWriter<'buffer, 'name> {
    plain: FieldWriter<'buffer>,
    call: Option<Call<'name>>,
    /// Whether the payload was begun.
    is_payload: bool,
    /// Structures that are open in it.
    depth: u32,
    /// Arguments of the call, or its result, that were written.
    shown: u32,
    /// The argument that was written last.
    argument: String,
    /// Whether it leads to the address of a socket, of which something was written.
    is_socket: bool,
    /// Where what is no argument begins, while it is written; and what was written of such.
    begun: Option<usize>,
    aside: Vec<u8>,
    /// Whether the next value is the length of what comes behind it.
    is_length: bool,
}

impl<'buffer, 'name> SymbolicWriter<'buffer, 'name> {
    const fn new(plain: FieldWriter<'buffer>, call: Option<Call<'name>>) -> Self {
        Self {
            plain,
            call,
            is_payload: false,
            depth: 0,
            shown: 0,
            argument: String::new(),
            is_socket: false,
            begun: None,
            aside: Vec::new(),
            is_length: false,
        }
    }

    /// The call, where its own arguments are at hand.
    fn call(&self) -> Option<Call<'name>> {
        self.call.filter(|_| self.is_payload && self.depth == 1)
    }

    /// Whether a member is none of the call's arguments, or not its result.
    fn is_aside(&mut self, call: Call<'_>, name: &str) -> bool {
        let Call::Entry(_) = call else { return name != "ret" || self.shown > 0 };
        // The length of an address is an argument, too.
        let behind = name.strip_prefix(&*self.argument).and_then(|rest| rest.strip_prefix('_'));
        let is_behind = self.shown > 0 && behind.is_some_and(|rest| rest != "len");
        // As LTTng names what is in an address; the first argument of socket(2) is called so, too.
        self.is_socket = match name {
            "family" => self.shown > 0,
            "dport" | "sport" | "v4addr" | "v6addr" | "path" => self.is_socket,
            _ => false,
        };
        is_behind || self.is_socket || name == INCOMPLETE
    }

    /// Puts what is no argument aside, once it is written; what says that nothing is there,
    /// nowhere.
    fn put_aside(&mut self) {
        let Some(begun) = self.begun.take() else { return };
        let out = &mut self.plain.out;
        let written = out.get(begun..).unwrap_or_default();
        if !NOTHING.iter().any(|nothing| written.ends_with(nothing)) {
            self.aside.extend_from_slice(written);
        }
        out.truncate(begun);
    }
}

/// Name of the last field, which says of which arguments something is missing.
const INCOMPLETE: &str = "incomplete";
/// That nothing is missing, and that a text was not read again.
const NOTHING: [&[u8]; 2] = [b"incomplete = 0x0", b" = [ ]"];

/// Whether a member says how long the next one is, as LTTng names such.
fn is_length(member: &Member) -> bool {
    let Type::Integer(integer) = member.kind() else { return false };
    let name = member.name();
    integer.slot.is_some() && name.starts_with('_') && name.ends_with("_length")
}

impl EventSink for SymbolicWriter<'_, '_> {
    fn begin_scope(&mut self, scope: Scope) {
        self.is_payload = scope == Scope::Fields;
        self.plain.begin_scope(scope);
    }
}

impl Sink for SymbolicWriter<'_, '_> {
    fn integer(&mut self, kind: &Integer, value: u64) {
        if std::mem::take(&mut self.is_length) {
            return;
        }
        match kind.meaning() {
            Some(meaning) => push_meaning(self.plain.out, meaning, kind, value),
            None => self.plain.integer(kind, value),
        }
    }

    fn enumeration(&mut self, kind: &Enumeration, value: u64) {
        let mut labels = kind.labels_of(value).peekable();
        if labels.peek().is_none() {
            return push_integer(self.plain.out, kind.integer(), value);
        }
        for (index, label) in labels.enumerate() {
            push_name(self.plain.out, index == 0, label);
        }
    }

    fn blob(&mut self, kind: &Integer, bytes: &[u8]) {
        self.plain.blob(kind, bytes);
    }

    fn float(&mut self, value: f64) {
        self.plain.float(value);
    }

    fn text(&mut self, bytes: &[u8]) {
        self.plain.text(bytes);
    }

    fn begin_struct(&mut self) {
        self.depth += 1;
        match self.call() {
            None => self.plain.begin_struct(),
            Some(Call::Entry(name)) => {
                self.plain.out.extend_from_slice(name.as_bytes());
                self.plain.out.push(b'(');
            }
            Some(Call::Exit(name)) => self.plain.out.extend_from_slice(name.as_bytes()),
        }
    }

    fn member(&mut self, member: &Member) {
        let Some(call) = self.call() else { return self.plain.member(member) };
        if is_length(member) {
            self.is_length = true;
            return;
        }
        self.put_aside();
        let name = member.name();
        if self.is_aside(call, name) {
            let out = &mut self.plain.out;
            self.begun = Some(out.len());
            out.extend_from_slice(b", ");
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b" = ");
            return;
        }
        let before: &[u8] = match (call, self.shown) {
            (Call::Exit(_), _) => b" = ",
            (Call::Entry(_), 0) => b"",
            (Call::Entry(_), _) => b", ",
        };
        self.plain.out.extend_from_slice(before);
        self.argument.clear();
        self.argument.push_str(name);
        self.shown += 1;
    }

    fn end_struct(&mut self) {
        let call = self.call();
        if call.is_some() {
            self.put_aside();
        }
        match call {
            None => self.plain.end_struct(),
            Some(Call::Entry(_)) => self.plain.out.push(b')'),
            Some(Call::Exit(_)) => {}
        }
        if let (Some(_), Some(aside)) = (call, self.aside.get(2..)) {
            let out = &mut self.plain.out;
            out.extend_from_slice(b", { ");
            out.extend_from_slice(aside);
            out.extend_from_slice(b" }");
        }
        self.depth = self.depth.saturating_sub(1);
    }

    fn begin_array(&mut self) {
        self.plain.begin_array();
    }

    fn element(&mut self, index: u64) {
        self.plain.element(index);
    }

    fn end_array(&mut self) {
        self.plain.end_array();
    }

    fn begin_variant(&mut self, option: &VariantOption) {
        self.plain.begin_variant(option);
    }

    fn end_variant(&mut self) {
        self.plain.end_variant();
    }

    fn nothing(&mut self) {
        self.plain.nothing();
    }
}

/// Appends what a value stands for: what has no name is a number.
pub(super) fn push_meaning(out: &mut Vec<u8>, meaning: &Meaning, kind: &Integer, value: u64) {
    match meaning {
        Meaning::Result { is_address, .. } => {
            let mut error = None;
            meaning.labels(kind, value, &mut |name| error = Some(name));
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
        Meaning::Octal if value == 0 => out.push(b'0'),
        Meaning::Octal => out.extend_from_slice(format!("0{value:o}").as_bytes()),
        Meaning::Device => {
            push_decimal(out, value >> MINOR_BITS);
            out.push(b':');
            push_decimal(out, value & ((1 << MINOR_BITS) - 1));
        }
        Meaning::Names(_) | Meaning::Folder => {
            let mut is_first = true;
            let rest = meaning.labels(kind, value, &mut |name| {
                push_name(out, is_first, name);
                is_first = false;
            });
            match (is_first, rest) {
                (true, 0) => out.push(b'0'),
                (true, _) => push_integer(out, kind, value),
                (false, 0) => {}
                (false, rest) => {
                    out.push(b'|');
                    push_bits(out, rest);
                }
            }
        }
    }
}

fn push_bits(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(b"0x");
    push_hexadecimal(out, value);
}

/// Appends a name, behind others; in quotes if it is none that could be in a program.
fn push_name(out: &mut Vec<u8>, is_first: bool, name: &str) {
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
