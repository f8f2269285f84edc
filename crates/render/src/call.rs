//! System calls in C's notation: the data behind a pointer, if recorded, replaces the pointer.
//!
//! ```text
//! connect(3, {AF_INET, 127.0.0.1:80}, 16)
//! rt_sigaction(SIGINT, {sa_handler=SIG_DFL, sa_flags=SA_RESTORER, …, sa_mask=[]}, NULL, 8)
//! poll([{fd=3, events=POLLIN, revents=0}], 1, 100)
//! newfstatat = 0, { statbuf_st_dev = 65024, …, statbuf_st_mode = S_IFREG|0644, … }
//! ```
//!
//! Members `act_…` follow the argument `act` and hold the data behind that pointer; a socket
//! address consists of the members `family` to `path`. For unreadable data (`incomplete`), the
//! pointer is shown. Data that a call has written follows its result, but a failed call shows none.
//! (If the call got NULL for the data, zeros are shown: the exit event does not record the
//! pointer.)

use std::ops::Range;

use trackway_ctf::read::{
    Base, Enumeration, EventSink, Integer, Meaning, Member, Scope, Sink, Type, VariantOption,
};

use crate::address::AddressKind;
use crate::fields::{FieldWriter, push_integer};
use crate::meaning::{push_meaning, push_name};
use crate::socket::{SocketAddress, SocketPart};

/// Name of the last field, whose bits mark arguments with unread data.
const INCOMPLETE: &str = "incomplete";
/// Text of `incomplete` if all data was read; [`NOTHING`] is the text of an empty sequence.
const NOTHING_MISSING: &[u8] = b"incomplete = 0x0";
const NOTHING: &[u8] = b" = []";
/// Maximum number of elements that are collected from a sequence.
const CELLS_MAX: usize = 256;
/// Linux's number of an address family (linux/socket.h).
const AF_UNSPEC: u64 = 0;
/// Least negative number that stands for an error (MAX_ERRNO, linux/err.h).
const ERROR_LEAST: i64 = -4095;
/// Names of arguments whose pointer stays visible, because its value matters.
const UNCHANGED_POINTERS: [&str; 1] = ["uaddr"];
/// Name prefix of data that a call writes only if it is interrupted.
const WRITTEN_BY_INTERRUPTION: &str = "rmtp_";
/// Results of interrupted calls: `EINTR`, and the kernel's codes for restarting the call
/// (`ERESTARTSYS`, `ERESTARTNOINTR`, `ERESTARTNOHAND`, `ERESTART_RESTARTBLOCK`).
const INTERRUPTED: [i64; 5] = [-4, -512, -513, -514, -516];

/// The entry or exit of a system call, with the call's name.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Call<'name> {
    Entry(&'name str),
    Exit(&'name str),
}

impl<'name> Call<'name> {
    /// Returns the entry or exit that an event records, by LTTng's event names.
    pub(crate) fn of(event: &'name str) -> Option<Self> {
        // A 32-bit system call.
        let event = event.strip_prefix("compat_").unwrap_or(event);
        let entry = event.strip_prefix("syscall_entry_").map(Self::Entry);
        entry.or_else(|| event.strip_prefix("syscall_exit_").map(Self::Exit))
    }
}

/// The use of a member of a call's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum MemberUse {
    /// An argument or the result of the call.
    #[default]
    Argument,
    /// Data behind the previous argument.
    Pointee,
    /// A part of a socket address: behind the previous argument, or behind the result.
    Socket(SocketPart),
    /// Another value, shown after the call.
    Aside,
    /// A value that is not shown.
    Dropped,
}

/// A member that is data behind an argument.
#[derive(Debug)]
struct Column {
    /// Member's name without the argument's name.
    name: String,
    text: Vec<u8>,
    /// Ranges of the elements in the text, if the member is a sequence.
    cells: Option<Vec<Range<usize>>>,
}

/// Text that replaces a pointer.
#[derive(Debug)]
struct Followed {
    /// Range of the pointer's text in the output.
    pointer: Range<usize>,
    /// Number of the pointer's argument.
    number: u32,
    text: Vec<u8>,
}

/// Appends values in symbolic form.
pub(crate) struct SymbolicWriter<'buffer, 'name> {
    plain: FieldWriter<'buffer>,
    call: Option<Call<'name>>,
    /// True once the payload has begun.
    is_payload: bool,
    /// Numbers of open structures and of open arrays in the payload.
    depth: u32,
    arrays: u32,
    /// The number that was written last; names may depend on it.
    before: u64,
    /// Number of written arguments and results of the call.
    shown: u32,
    /// Name of the last written argument, start of its text, and true if it is an address.
    argument: String,
    pointer_begin: usize,
    is_pointer: bool,
    is_null: bool,
    /// True if the call has failed.
    is_failed: bool,
    /// True if the call failed because it was interrupted.
    is_interrupted: bool,
    /// Use of the current member, and start of its text.
    place: MemberUse,
    begin: usize,
    /// True if the current member is a sequence; and the starts of its elements.
    is_sequence: bool,
    cells: Option<Vec<usize>>,
    /// Current member's name without the argument's name.
    name: String,
    columns: Vec<Column>,
    socket: Option<Box<SocketAddress>>,
    followed: Vec<Followed>,
    incomplete: u64,
    /// Text of members that are shown after the call.
    aside: Vec<u8>,
    /// True if the next value is the length of the member after it.
    is_length: bool,
    /// Kind and bytes of the current array, if the whole array is an address.
    address: Option<(AddressKind, Vec<u8>)>,
}

impl<'buffer, 'name> SymbolicWriter<'buffer, 'name> {
    pub(crate) const fn new(plain: FieldWriter<'buffer>, call: Option<Call<'name>>) -> Self {
        Self {
            plain,
            call,
            is_payload: false,
            depth: 0,
            arrays: 0,
            before: 0,
            shown: 0,
            argument: String::new(),
            pointer_begin: 0,
            is_pointer: false,
            is_null: false,
            is_failed: false,
            is_interrupted: false,
            place: MemberUse::Argument,
            begin: 0,
            is_sequence: false,
            cells: None,
            name: String::new(),
            columns: Vec::new(),
            socket: None,
            followed: Vec::new(),
            incomplete: 0,
            aside: Vec::new(),
            is_length: false,
            address: None,
        }
    }

    /// Returns the call if the current member is directly in its payload.
    fn call(&self) -> Option<Call<'name>> {
        self.call.filter(|_| self.is_payload && self.depth == 1)
    }

    /// Returns the use of a member, and its name without its argument's name.
    fn place<'member>(&self, call: Call<'_>, member: &'member Member) -> (MemberUse, &'member str) {
        let name = member.name();
        let part = SocketPart::of(name)
            .filter(|part| *part == SocketPart::Family || self.socket.is_some());
        match (call, part) {
            // The first argument of socket(2) is also named `family`.
            _ if self.shown == 0 => (MemberUse::Argument, name),
            (_, Some(part)) => (MemberUse::Socket(part), name),
            (Call::Exit(_), None) => {
                let has_result = match name.starts_with(WRITTEN_BY_INTERRUPTION) {
                    true => self.is_interrupted,
                    false => !self.is_failed,
                };
                let is_written = is_texts(member) || has_result;
                (if is_written { MemberUse::Aside } else { MemberUse::Dropped }, name)
            }
            (Call::Entry(_), None) => {
                let rest = name.strip_prefix(&*self.argument).and_then(|it| it.strip_prefix('_'));
                // The length of an address is an argument, too.
                match rest.filter(|rest| *rest != "len") {
                    _ if name == INCOMPLETE => (MemberUse::Aside, name),
                    None => (MemberUse::Argument, name),
                    Some(_)
                        if UNCHANGED_POINTERS.contains(&&*self.argument) || !self.is_pointer =>
                    {
                        (if self.is_null { MemberUse::Dropped } else { MemberUse::Aside }, name)
                    }
                    Some(rest) => (MemberUse::Pointee, rest),
                }
            }
        }
    }

    /// Moves the text of the finished member to its place.
    fn end_member(&mut self) {
        let begin = self.begin.min(self.plain.out.len());
        match self.place {
            MemberUse::Argument | MemberUse::Socket(_) => {}
            MemberUse::Dropped => self.plain.out.truncate(begin),
            MemberUse::Aside => {
                let written = self.plain.out.get(begin..).unwrap_or_default();
                let is_nothing = written.ends_with(NOTHING_MISSING)
                    || self.is_sequence && written.ends_with(NOTHING);
                if !is_nothing {
                    self.aside.extend_from_slice(written);
                }
                self.plain.out.truncate(begin);
            }
            MemberUse::Pointee => {
                let text = self.plain.out.split_off(begin);
                // An element ends where the separator before the next one begins.
                let cells = self.cells.take().map(|begins| {
                    let next = begins.iter().skip(1).map(|next| next.saturating_sub(2));
                    let ends = next.chain([text.len().saturating_sub(1)]);
                    begins.iter().zip(ends).map(|(begin, end)| *begin..end).collect()
                });
                self.columns.push(Column { name: std::mem::take(&mut self.name), text, cells });
            }
        }
        // The next event may be the structure's end.
        self.place = MemberUse::Argument;
    }

    /// Replaces an argument's pointer by the data behind it, after all of the data was written.
    fn end_behind(&mut self) {
        if let Some(socket) = self.socket.take() {
            self.end_socket(&socket);
        }
        let columns = std::mem::take(&mut self.columns);
        if columns.is_empty() || self.is_null {
            return;
        }
        let mut text = Vec::new();
        match &*columns {
            [Column { name, text: value, .. }] if name == "value" => {
                // Signal sets already have brackets.
                let is_set = value.ends_with(b"]");
                text.extend_from_slice(if is_set { b"" } else { b"[" });
                text.extend_from_slice(value);
                text.extend_from_slice(if is_set { b"" } else { b"]" });
            }
            [Column { name, text: value, .. }] if name == "values" => text.extend_from_slice(value),
            _ if columns.iter().all(|of| of.cells.is_some()) => push_rows(&mut text, &columns),
            _ => {
                let members = columns.iter().map(|of| (&*of.name, &*of.text));
                push_members(&mut text, members);
            }
        }
        self.follow(text);
    }

    fn end_socket(&mut self, socket: &SocketAddress) {
        let mut text = Vec::new();
        match self.call {
            Some(Call::Entry(_)) if self.is_pointer => {
                // A message may have no address.
                let is_message = self.argument == "msg";
                if self.is_null || is_message && socket.family == AF_UNSPEC {
                    return;
                }
                text.extend_from_slice(if is_message { b"{msg_name=" } else { b"" });
                socket.push(&mut text);
                text.extend_from_slice(if is_message { b"}" } else { b"" });
                self.follow(text);
            }
            Some(Call::Exit(_)) if self.is_failed || socket.family == AF_UNSPEC => {}
            _ => {
                self.aside.extend_from_slice(b", address = ");
                socket.push(&mut self.aside);
            }
        }
    }

    /// Records the text that replaces the last argument.
    fn follow(&mut self, text: Vec<u8>) {
        let pointer = self.pointer_begin..self.plain.out.len();
        let number = self.shown.saturating_sub(1);
        self.followed.push(Followed { pointer, number, text });
    }

    /// Replaces the pointers whose data was read completely.
    fn put_followed(&mut self) {
        for Followed { pointer, number, text } in
            std::mem::take(&mut self.followed).into_iter().rev()
        {
            let is_whole = self.incomplete.checked_shr(number).is_none_or(|bits| bits & 1 == 0);
            if is_whole && pointer.end <= self.plain.out.len() && pointer.start <= pointer.end {
                self.plain.out.splice(pointer, text);
            }
        }
    }

    /// Updates the state that depends on a number's value.
    fn number(&mut self, kind: &Integer, value: u64) {
        self.before = value;
        let is_own = self.call().is_some() && self.arrays == 0;
        match self.place {
            MemberUse::Argument if is_own => {
                let is_address = matches!(kind.meaning(), Some(Meaning::Address(_)));
                self.is_pointer = is_address || kind.base() == Base::Hexadecimal;
                self.is_null = value == 0;
                self.is_failed = (ERROR_LEAST..0).contains(&value.cast_signed());
                self.is_interrupted = INTERRUPTED.contains(&value.cast_signed());
            }
            MemberUse::Aside if is_own && self.name == INCOMPLETE => self.incomplete = value,
            MemberUse::Socket(part) => {
                let Some(socket) = &mut self.socket else { return };
                match part {
                    SocketPart::Family => socket.family = value,
                    SocketPart::Port => socket.port = value,
                    SocketPart::Internet | SocketPart::Internet6
                        if socket.address.len() < CELLS_MAX =>
                    {
                        socket.address.push(value as u8);
                    }
                    SocketPart::Data if socket.data.len() < CELLS_MAX => {
                        socket.data.push(value as u8)
                    }
                    SocketPart::Internet
                    | SocketPart::Internet6
                    | SocketPart::Data
                    | SocketPart::Path => {}
                }
            }
            _ => {}
        }
    }
}

/// Appends `{a=1, b=2}`.
fn push_members<'column>(
    out: &mut Vec<u8>,
    members: impl Iterator<Item = (&'column str, &'column [u8])>,
) {
    out.push(b'{');
    for (index, (name, text)) in members.enumerate() {
        out.extend_from_slice(if index > 0 { b", " } else { b"" });
        out.extend_from_slice(name.as_bytes());
        out.push(b'=');
        out.extend_from_slice(text);
    }
    out.push(b'}');
}

/// Appends `[{a=1, b=2}, {a=3, b=4}]`; each sequence in `columns` holds one member of all rows.
fn push_rows(out: &mut Vec<u8>, columns: &[Column]) {
    let cells = |of: &Column| of.cells.as_ref().map_or(0, Vec::len);
    let rows = columns.iter().map(cells).max().unwrap_or(0);
    out.push(b'[');
    for row in 0..rows {
        out.extend_from_slice(if row > 0 { b", " } else { b"" });
        let members = columns.iter().filter_map(|of| {
            let cell = of.cells.as_ref()?.get(row)?.clone();
            Some((&*of.name, of.text.get(cell)?))
        });
        push_members(out, members);
    }
    out.push(b']');
}

/// Returns true if a member is a sequence of texts.
fn is_texts(member: &Member) -> bool {
    matches!(member.kind(), Type::Sequence(of) if matches!(of.element(), Type::Text))
}

/// Returns true if a member is the length of the next one, by LTTng's names.
fn is_length(member: &Member) -> bool {
    let Type::Integer(integer) = member.kind() else { return false };
    let name = member.name();
    integer.slot().is_some() && name.starts_with('_') && name.ends_with("_length")
}

impl EventSink for SymbolicWriter<'_, '_> {
    fn begin_scope(&mut self, scope: Scope) {
        self.is_payload = scope == Scope::Fields;
        self.plain.begin_scope(scope);
    }
}

/// Returns the buffer for a member's text. Parts of a socket address are written together later.
fn out_of<'out>(
    place: MemberUse,
    socket: Option<&'out mut SocketAddress>,
    plain: &'out mut Vec<u8>,
    nowhere: &'out mut Vec<u8>,
) -> &'out mut Vec<u8> {
    match (place, socket) {
        (MemberUse::Socket(SocketPart::Family), Some(socket)) => &mut socket.family_text,
        (MemberUse::Socket(_), _) => nowhere,
        _ => plain,
    }
}

impl Sink for SymbolicWriter<'_, '_> {
    fn integer(&mut self, kind: &Integer, value: u64) {
        if std::mem::take(&mut self.is_length) {
            return;
        }
        if let Some((_, bytes)) = &mut self.address {
            if bytes.len() < CELLS_MAX {
                bytes.push(value as u8);
            }
            return;
        }
        let before = self.before;
        self.number(kind, value);
        let mut nowhere = Vec::new();
        let out = out_of(self.place, self.socket.as_deref_mut(), self.plain.out, &mut nowhere);
        match kind.meaning() {
            Some(meaning) => push_meaning(out, meaning, kind, (before, value)),
            None => push_integer(out, kind, value),
        }
    }

    fn enumeration(&mut self, kind: &Enumeration, value: u64) {
        self.number(kind.integer(), value);
        let mut nowhere = Vec::new();
        let out = out_of(self.place, self.socket.as_deref_mut(), self.plain.out, &mut nowhere);
        let mut labels = kind.labels_of(value).peekable();
        if labels.peek().is_none() {
            return push_integer(out, kind.integer(), value);
        }
        for (index, label) in labels.enumerate() {
            push_name(out, index == 0, label);
        }
    }

    fn blob(&mut self, kind: &Integer, bytes: &[u8]) {
        self.plain.blob(kind, bytes);
    }

    fn float(&mut self, value: f64) {
        self.plain.float(value);
    }

    fn text(&mut self, bytes: &[u8]) {
        match (self.place, &mut self.socket) {
            (MemberUse::Socket(SocketPart::Path), Some(socket)) => {
                socket.path = Some(bytes.to_vec())
            }
            (MemberUse::Socket(_), _) => {}
            _ => self.plain.text(bytes),
        }
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
        self.address = AddressKind::of(member).map(|kind| (kind, Vec::new()));
        let Some(call) = self.call() else { return self.plain.member(member) };
        if is_length(member) {
            self.is_length = true;
            return;
        }
        self.end_member();
        let (place, name) = self.place(call, member);
        if matches!(place, MemberUse::Argument | MemberUse::Aside | MemberUse::Dropped) {
            self.end_behind();
        }
        self.place = place;
        self.begin = self.plain.out.len();
        self.is_sequence = matches!(member.kind(), Type::Sequence(_));
        self.name.clear();
        self.name.push_str(name);
        let out = &mut *self.plain.out;
        match place {
            MemberUse::Argument => {
                out.extend_from_slice(match (call, self.shown) {
                    (Call::Exit(_), _) => b" = ",
                    (Call::Entry(_), 0) => b"",
                    (Call::Entry(_), _) => b", ",
                });
                self.pointer_begin = out.len();
                self.is_pointer = false;
                self.argument.clear();
                self.argument.push_str(name);
                self.shown += 1;
            }
            MemberUse::Aside => {
                out.extend_from_slice(b", ");
                out.extend_from_slice(name.as_bytes());
                out.extend_from_slice(b" = ");
            }
            MemberUse::Socket(SocketPart::Family) => {
                // A second socket address may follow directly.
                self.end_behind();
                self.socket = Some(Box::default());
            }
            MemberUse::Socket(_) | MemberUse::Pointee | MemberUse::Dropped => {}
        }
    }

    fn end_struct(&mut self) {
        let call = self.call();
        if call.is_some() {
            self.end_member();
            self.end_behind();
            self.put_followed();
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
        self.arrays += 1;
        match self.place {
            _ if self.address.is_some() => {}
            _ if self.call().is_none() => self.plain.begin_array(),
            MemberUse::Socket(_) => {}
            _ => {
                let is_behind = self.place == MemberUse::Pointee && self.is_sequence;
                let is_outer = is_behind && self.arrays == 1;
                self.cells = is_outer.then(Vec::new);
                self.plain.out.push(b'[');
            }
        }
    }

    fn element(&mut self, index: u64) {
        match self.place {
            _ if self.address.is_some() => {}
            _ if self.call().is_none() => self.plain.element(index),
            MemberUse::Socket(_) => {}
            _ => {
                self.plain.truncate_line();
                if index > 0 {
                    self.plain.out.extend_from_slice(b", ");
                }
                let at = self.plain.out.len().saturating_sub(self.begin);
                let cells = self.cells.as_mut().filter(|cells| cells.len() < CELLS_MAX);
                if let Some(cells) = cells.filter(|_| self.arrays == 1) {
                    cells.push(at);
                }
            }
        }
    }

    fn end_array(&mut self) {
        self.arrays = self.arrays.saturating_sub(1);
        if let Some((kind, bytes)) = self.address.take() {
            return kind.push(self.plain.out, &bytes);
        }
        match self.place {
            _ if self.call().is_none() => self.plain.end_array(),
            MemberUse::Socket(_) => {}
            _ => self.plain.out.push(b']'),
        }
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
