//! The data of kernel events, enough to generate a program that records an event, and to print its
//! records. Neighbouring modules fill it in.

use std::borrow::Cow;
use std::sync::Arc;

use trackway_schema::Scalar;

/// An event of the running kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The event's folder in tracefs.
    pub subsystem: String,
    /// The name in that folder, which is the tracepoint's, too.
    pub name: String,
    /// The number in tracefs records, if tracefs has the event.
    pub id: Option<u16>,
    /// The source of the event.
    pub source: Source,
    /// The fields, without the common ones (`common_*`).
    pub fields: Vec<Field>,
}

impl Event {
    /// Returns `subsystem:name`.
    pub fn full_name(&self) -> String {
        format!("{}:{}", self.subsystem, self.name)
    }

    /// Returns LTTng's name, which may be the same.
    pub fn lttng_name(&self) -> Cow<'_, str> {
        super::lttng::event_name(&self.subsystem, &self.name)
    }
}

/// The source of an event, to which a program attaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The raw tracepoint of the event's name; BTF describes its arguments.
    RawTracepoint {
        /// The arguments in the order of the program's context, 8 bytes each.
        arguments: Vec<Argument>,
    },
    /// A tracepoint; only the event's format describes its record.
    Tracepoint,
    /// `raw_syscalls:sys_enter` or `sys_exit`, for calls of this number.
    Syscall {
        /// The number; `None`: the table does not have it.
        number: Option<u32>,
        /// Entry or exit.
        phase: Phase,
        /// True for 32-bit numbers.
        is_compat: bool,
    },
}

/// The entry or the exit of a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Before the call.
    Enter,
    /// When its result is known.
    Exit,
}

/// An argument of a raw tracepoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// The name in the kernel's source, if BTF has it.
    pub name: Option<String>,
    /// The type in C, as far as names are known.
    pub type_text: String,
    /// The contents of its 8 bytes.
    pub kind: ArgumentKind,
}

/// The contents of an argument's 8 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentKind {
    /// An integer, in the lowest bytes.
    Integer(Scalar),
    /// An address of a value with this BTF type (0: unknown).
    Pointer(u32),
    /// A structure or union of this type.
    Value(u32),
}

/// A field of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// The kernel's name.
    pub name: String,
    /// The type in C, as the kernel writes it.
    pub type_text: String,
    /// The shape of the recorded value.
    pub kind: FieldShape,
    /// The offset in a tracefs record, in bytes.
    pub offset: u32,
    /// The size in a tracefs record; 0: tracefs lacks the field.
    pub size: u32,
    /// The display form.
    pub meaning: Meaning,
    /// The argument that the field shows. For a system call: the register. For a raw tracepoint:
    /// the only argument of this name, size and sign; kernel sources almost always follow this
    /// rule, but nothing enforces it.
    pub argument: Option<u8>,
    /// For a system call: the data that the argument points to.
    pub pointee: Option<Pointee>,
}

impl Field {
    /// Returns LTTng's name of this field, which may be the same.
    pub fn lttng_name(&self, event: &Event) -> &str {
        super::lttng::field_name(&event.subsystem, &event.name, &self.name)
    }
}

/// The shape of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldShape {
    /// An integer.
    Integer(Scalar),
    /// An array of this many integers.
    Array(Scalar, u32),
    /// Text in an array of this size, up to a NUL or the end.
    Text(u32),
    /// Bytes of a structure, a union or another type.
    Bytes(u32),
    /// A variable number of integers, elsewhere in the record.
    Dynamic(Scalar, Location),
    /// NUL-terminated text, elsewhere in the record.
    DynamicText(Location),
    /// A set of bits, mostly of CPUs, as words of 64 bits, elsewhere in the record.
    Bitmask(Location),
    /// Integers up to the record's end.
    Trailing(Scalar),
    /// Text up to the record's end.
    TrailingText,
    /// Flags of a block request in 32 bits, from letters in a text of this size.
    RequestFlags(u32),
}

/// The reference point of a field of 4 bytes, `length << 16 | offset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Location {
    /// The record's beginning (`__data_loc`).
    Absolute,
    /// The field's end (`__rel_loc`).
    Relative,
}

/// The meaning of a value, which decides its display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meaning {
    /// A plain number.
    Plain,
    /// A number in base 16.
    Hexadecimal,
    /// A number in base 8.
    Octal,
    /// An address in the kernel or in the program.
    Address,
    /// An address of code.
    Code,
    /// Names of values, of bits, or of both. They are compared without sign extension.
    Symbols(Arc<Symbols>),
    /// A device number of the kernel: 12 bits major, 20 bits minor.
    Device,
    /// A UUID of 16 bytes.
    Uuid,
    /// A MAC address of 6 bytes.
    Mac,
    /// An internet address of 4 or 16 bytes, or a `sockaddr` of 16 or 28.
    Internet,
    /// The address of NUL-terminated text in read-only kernel memory.
    KernelText,
    /// A file descriptor.
    Descriptor,
    /// A file descriptor of a folder, or `AT_FDCWD`.
    Folder,
    /// A process or thread id.
    Process,
    /// A user id.
    User,
    /// A group id.
    Group,
    /// Permissions in base 8, and the name of the file type.
    Mode,
    /// Names that depend on the previous field, whose value is in the upper half of each name's
    /// value.
    DependentSymbols(Arc<Symbols>),
    /// A set of signals, the first one in the lowest bit.
    SignalSet,
    /// A status of wait(2).
    WaitStatus,
    /// A signal handler's address, or a special value with a name.
    Handler,
    /// An ioctl(2) request: direction, size, type, number.
    Request,
    /// The result of a system call: on success as described, else a negative error number.
    Result(ResultKind),
}

/// The kind of a system call's result on success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultKind {
    /// Zero.
    Zero,
    /// A count.
    Number,
    /// Bytes read or written.
    Bytes,
    /// A file descriptor.
    Descriptor,
    /// A process or thread.
    Process,
    /// A user or group id.
    Owner,
    /// An address.
    Address,
    /// The call does not return.
    Never,
}

/// Names of a field's values: the bits in `choice_mask` are one of `choices`; other bits are
/// `flags`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Symbols {
    /// The bits of the choices: none for plain flags, all for plain enumerations.
    pub choice_mask: u64,
    /// Names of values of those bits.
    pub choices: Vec<Symbol>,
    /// Names of other bits; the first match wins.
    pub flags: Vec<Symbol>,
    /// Bits that are not displayed.
    pub hidden: u64,
}

/// A name of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    /// The value.
    pub value: u64,
    /// Its name.
    pub name: Cow<'static, str>,
}

impl Symbols {
    /// Returns true if a value of this size is exactly one name.
    pub(crate) fn is_enumeration(&self, bytes: usize) -> bool {
        let all_bits = u64::MAX >> (64 - 8 * bytes);
        self.flags.is_empty() && self.choice_mask >= all_bits.min(u32::MAX.into())
    }

    /// Formats a value with its names, as in C: `O_RDWR|O_CLOEXEC`. Bits without a name become a
    /// number.
    pub fn show(&self, value: u64) -> String {
        let mut parts: Vec<Cow<'_, str>> = Vec::new();
        let value = value & !self.hidden;
        let chosen = value & self.choice_mask;
        let mut rest = value & !self.choice_mask;
        if let Some(symbol) = self.choices.iter().find(|symbol| symbol.value == chosen) {
            parts.push(Cow::Borrowed(&symbol.name));
        } else {
            rest |= chosen;
        }
        for symbol in &self.flags {
            if symbol.value != 0 && rest & symbol.value == symbol.value {
                parts.push(Cow::Borrowed(&symbol.name));
                rest &= !symbol.value;
            }
        }
        if parts.is_empty() && rest == 0 {
            // The name of zero, if any.
            let none = self.flags.iter().find(|symbol| symbol.value == 0);
            return none.map_or_else(|| "0".into(), |symbol| symbol.name.clone().into_owned());
        }
        if rest != 0 {
            parts.push(Cow::Owned(format!("{rest:#x}")));
        }
        parts.join("|")
    }

    /// Returns all names.
    pub fn iter(&self) -> impl Iterator<Item = &Symbol> {
        self.choices.iter().chain(&self.flags)
    }
}

/// The data in user memory that an argument of a system call points to. An entry field is read at
/// the entry, an exit field at the exit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pointee {
    /// NUL-terminated text.
    Text,
    /// Addresses of texts, up to a zero address.
    Texts,
    /// Bytes.
    Bytes(Length),
    /// A `struct sockaddr` of this size.
    SocketAddress(Length),
    /// An array of `struct iovec`, which lead to bytes.
    Vectors(Length),
    /// A `struct msghdr`, which leads to an address and to vectors.
    Message,
    /// An array of integers.
    Integers(Scalar, Length),
    /// An array of structures.
    Structures(Arc<Structure>, Length),
    /// One structure, of which the program passes this many bytes: those of the version that it
    /// knows.
    SizedStructure(Arc<Structure>, Length),
}

/// The length of user data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// A constant.
    Fixed(u32),
    /// The value of the argument with this index.
    Argument(u8),
    /// The 32-bit integer that the argument with this index points to.
    Pointed(u8),
    /// The call's result, limited by the argument with this index, if any.
    Result(Option<u8>),
}

/// A structure that the kernel and programs share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Structure {
    /// Its name.
    pub name: String,
    /// The size in bytes; 0: unknown, without BTF.
    pub bytes: u32,
    /// The members that are integers or arrays of integers.
    pub members: Vec<Member>,
}

/// A member of a structure: an integer, or an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// The offset in bytes.
    pub offset: u32,
    /// The integer's type.
    pub scalar: Scalar,
    /// The number of integers.
    pub count: u32,
}
