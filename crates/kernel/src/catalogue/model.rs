//! The data model of kernel events, sufficient to generate a program that records an event, and to
//! print its records. Neighbouring modules fill it in.

use std::borrow::Cow;
use std::sync::Arc;

use trackway_schema::Scalar;

/// An event of the running kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The event's folder in tracefs.
    pub subsystem: String,
    /// The event's name in the folder, which is also the tracepoint's name.
    pub name: String,
    /// The event's id in tracefs records, if tracefs has the event.
    pub id: Option<u16>,
    /// The source of the event.
    pub source: Source,
    /// The event's fields, without common fields (`common_*`).
    pub fields: Vec<Field>,
}

impl Event {
    /// Returns `subsystem:name`.
    pub fn full_name(&self) -> String {
        format!("{}:{}", self.subsystem, self.name)
    }

    /// Returns LTTng's name of the event, which may equal the kernel's name.
    pub fn lttng_name(&self) -> Cow<'_, str> {
        super::lttng::event_name(&self.subsystem, &self.name)
    }
}

/// The source of an event, to which a program attaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A raw tracepoint with the event's name; BTF describes its arguments.
    RawTracepoint {
        /// The arguments in the order of the program's context, 8 bytes each.
        arguments: Vec<Argument>,
    },
    /// A tracepoint whose record only the event's format describes.
    Tracepoint,
    /// `raw_syscalls:sys_enter` or `sys_exit`, for system calls of this number.
    Syscall {
        /// The system call number; `None`: the table does not have the call.
        number: Option<u32>,
        /// The phase of the call: entry or exit.
        phase: Phase,
        /// True if the number is a 32-bit call number.
        is_compat: bool,
    },
}

/// The entry or the exit of a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The entry, before the call.
    Enter,
    /// The exit, when the call's result is known.
    Exit,
}

/// An argument of a raw tracepoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// The argument's name in the kernel's source, if BTF has the name.
    pub name: Option<String>,
    /// The argument's type in C, as far as type names are known.
    pub type_text: String,
    /// The contents of the argument's 8 bytes.
    pub kind: ArgumentKind,
}

/// The contents of an argument's 8 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentKind {
    /// An integer, in the lowest bytes.
    Integer(Scalar),
    /// The address of a value with this BTF type id (0: unknown).
    Pointer(u32),
    /// A structure or union with this BTF type id.
    Value(u32),
}

/// A field of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// The field's name in the kernel.
    pub name: String,
    /// The field's type in C, as the kernel writes the type.
    pub type_text: String,
    /// The shape of the field's recorded value.
    pub kind: FieldShape,
    /// The field's offset in a tracefs record, in bytes.
    pub offset: u32,
    /// The field's size in a tracefs record, in bytes; 0: tracefs lacks the field.
    pub size: u32,
    /// The meaning of the value, which decides its display.
    pub meaning: Meaning,
    /// The argument that the field shows. For a system call: the register. For a raw tracepoint:
    /// the only argument of the field's name, size and sign; kernel sources almost always follow
    /// this rule, but nothing enforces it.
    pub argument: Option<u8>,
    /// For a system call: the data that the argument points to.
    pub pointee: Option<Pointee>,
}

impl Field {
    /// Returns LTTng's name of this field, which may equal the kernel's name.
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
    /// Text in an array of this size in bytes, up to a NUL or the end.
    Text(u32),
    /// This many bytes of a structure, a union or another type.
    Bytes(u32),
    /// A variable number of integers, elsewhere in the record.
    Dynamic(Scalar, Location),
    /// NUL-terminated text, elsewhere in the record.
    DynamicText(Location),
    /// A set of bits, mostly CPUs, as 64-bit words, elsewhere in the record.
    Bitmask(Location),
    /// Integers up to the record's end.
    Trailing(Scalar),
    /// Text up to the record's end.
    TrailingText,
    /// Flags of a block request in 32 bits, converted from letters in a text of this size.
    RequestFlags(u32),
}

/// The reference point of the offset in a 4-byte field `length << 16 | offset`.
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
    /// Names of values, of bits, or of both, compared without sign extension.
    Symbols(Arc<Symbols>),
    /// A device number of the kernel: 12 bits major, 20 bits minor.
    Device,
    /// A UUID of 16 bytes.
    Uuid,
    /// A MAC address of 6 bytes.
    Mac,
    /// An internet address of 4 or 16 bytes, or a `sockaddr` of 16 or 28 bytes.
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
    /// Names that depend on the previous field's value, which is in the upper half of each name's
    /// value.
    DependentSymbols(Arc<Symbols>),
    /// A set of signals, with the first signal in the lowest bit.
    SignalSet,
    /// A status of wait(2).
    WaitStatus,
    /// A signal handler's address, or a special value with a name.
    Handler,
    /// An ioctl(2) request: direction, size, type, number.
    Request,
    /// The result of a system call: on success of this kind, else a negative error number.
    Result(ResultKind),
}

/// The kind of a system call's result on success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultKind {
    /// Zero.
    Zero,
    /// A count of any things.
    Number,
    /// The number of bytes read or written.
    Bytes,
    /// A file descriptor.
    Descriptor,
    /// A process or thread id.
    Process,
    /// A user or group id.
    Owner,
    /// An address.
    Address,
    /// No result: the call does not return.
    Never,
}

/// Names of a field's values: the bits in `choice_mask` contain one of `choices`; other bits are
/// `flags`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Symbols {
    /// The bits of choices: no bits for plain flags, all bits for plain enumerations.
    pub choice_mask: u64,
    /// Names of values of the bits in `choice_mask`.
    pub choices: Vec<Symbol>,
    /// Names of the other bits; the first match wins.
    pub flags: Vec<Symbol>,
    /// Bits that are not displayed.
    pub hidden: u64,
}

/// A name of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    /// The named value.
    pub value: u64,
    /// The name of the value.
    pub name: Cow<'static, str>,
}

impl Symbols {
    /// Returns true if each value of this size has exactly one name.
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
            // The name of zero, if zero has a name.
            let none = self.flags.iter().find(|symbol| symbol.value == 0);
            return none.map_or_else(|| "0".into(), |symbol| symbol.name.clone().into_owned());
        }
        if rest != 0 {
            parts.push(Cow::Owned(format!("{rest:#x}")));
        }
        parts.join("|")
    }

    /// Returns all names, of choices and flags.
    pub fn iter(&self) -> impl Iterator<Item = &Symbol> {
        self.choices.iter().chain(&self.flags)
    }
}

/// The data in user memory that an argument of a system call points to. A pointee in an entry's
/// field is read at the entry, in an exit's field at the exit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pointee {
    /// NUL-terminated text.
    Text,
    /// An array of text addresses, up to a null address.
    Texts,
    /// A buffer of this many bytes.
    Bytes(Length),
    /// A `struct sockaddr` of this size.
    SocketAddress(Length),
    /// An array of `struct iovec`, which point to buffers.
    Vectors(Length),
    /// A `struct msghdr`, which points to an address and to vectors.
    Message,
    /// An array of integers.
    Integers(Scalar, Length),
    /// An array of structures.
    Structures(Arc<Structure>, Length),
    /// One structure, of which the program passes this many bytes: the size in the version that the
    /// program uses.
    SizedStructure(Arc<Structure>, Length),
}

/// The length of data in user memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// A constant length.
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
    /// The structure's name.
    pub name: String,
    /// The structure's size in bytes; 0: unknown, without BTF.
    pub bytes: u32,
    /// The structure's members that are integers or arrays of integers.
    pub members: Vec<Member>,
}

/// A member of a structure: an integer, or an array of integers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The member's name.
    pub name: String,
    /// The member's offset in bytes.
    pub offset: u32,
    /// The type of the member's integers.
    pub scalar: Scalar,
    /// The number of the member's integers.
    pub count: u32,
}
