//! What is known of a kernel event: enough to make a program that records it, and to print what was
//! recorded. Plain data; how each part of it is found out is in the modules beside this one.

use std::borrow::Cow;
use std::sync::Arc;

use trackway_schema::Scalar;

/// An event of the running kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Folder of tracefs that it is in.
    pub subsystem: String,
    /// Its name there, which is also the tracepoint's.
    pub name: String,
    /// Its number in records of tracefs, if that has such records.
    pub id: Option<u16>,
    /// What a program attaches to.
    pub source: Source,
    /// What it says. Without what all events say (`common_*`).
    pub fields: Vec<Field>,
}

impl Event {
    /// `subsystem:name`.
    pub fn full_name(&self) -> String {
        format!("{}:{}", self.subsystem, self.name)
    }

    /// What LTTng calls it, which may be the same.
    pub fn lttng_name(&self) -> Cow<'_, str> {
        super::lttng::event_name(&self.subsystem, &self.name)
    }
}

/// What a program attaches to, to see an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A raw tracepoint of the event's name: BTF knows the arguments.
    RawTracepoint {
        /// In the order of the program's context, 8 bytes each.
        arguments: Vec<Argument>,
    },
    /// A tracepoint whose record only the event's format describes.
    Tracepoint,
    /// `raw_syscalls:sys_enter` or `sys_exit`, for calls of this number.
    Syscall {
        /// As programs call it; `None` where our table does not have it.
        number: Option<u32>,
        /// Which of the two.
        phase: Phase,
        /// Whether the number is one of those that programs of 32 bits use.
        is_compat: bool,
    },
}

/// A side of a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Before anything is done.
    Enter,
    /// When its result is known.
    Exit,
}

/// An argument of a raw tracepoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// As the kernel's source has it, where BTF says so.
    pub name: Option<String>,
    /// In C, as far as a name is known.
    pub type_text: String,
    /// What is in its 8 bytes.
    pub kind: ArgumentKind,
}

/// What is in the 8 bytes of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentKind {
    /// An integer, in the lowest bytes.
    Integer(Scalar),
    /// An address, of what has this type in BTF (0: of nobody knows what).
    Pointer(u32),
    /// A structure or union itself, of this type.
    Value(u32),
}

/// Something that an event says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// The kernel's name for it.
    pub name: String,
    /// Its type in C, as the kernel writes it.
    pub type_text: String,
    /// What is recorded.
    pub kind: Kind,
    /// Where it is in a record of tracefs, in bytes.
    pub offset: u32,
    /// How many bytes it has there; 0 of what tracefs does not have.
    pub size: u32,
    /// How it is shown.
    pub meaning: Meaning,
    /// The argument that it is: of a system call, the register; of a raw tracepoint, the only
    /// argument of the same name, size and sign. (The latter is what the kernel's sources do almost
    /// without exception, but nothing says that they must.)
    pub argument: Option<u8>,
    /// Of a system call: what it points to.
    pub behind: Option<Behind>,
}

impl Field {
    /// What LTTng calls this field of `event`, which may be the same.
    pub fn lttng_name(&self, event: &Event) -> &str {
        super::lttng::field_name(&event.subsystem, &event.name, &self.name)
    }
}

/// The shape of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One integer.
    Integer(Scalar),
    /// So many integers.
    Array(Scalar, u32),
    /// Text in an array of so many bytes, which ends at a NUL or with the array.
    Text(u32),
    /// Bytes of something else: a structure, a union.
    Bytes(u32),
    /// As many integers as there are, elsewhere in the record.
    Dynamic(Scalar, Location),
    /// NUL-terminated text, elsewhere in the record.
    DynamicText(Location),
    /// A set of bits (of CPUs, mostly), as words of 64, elsewhere in the record.
    Bitmask(Location),
    /// Integers from here to the record's end.
    Trailing(Scalar),
    /// Text from here to the record's end.
    TrailingText,
    /// What a block request is to do, as 32 flags, from the letters in so many bytes of text.
    Operation(u32),
}

/// How a field of 4 bytes, `length << 16 | offset`, says where its data is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Location {
    /// The offset is from the record's beginning (`__data_loc`).
    Absolute,
    /// It is from the field's end (`__rel_loc`).
    Relative,
}

/// How a value is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meaning {
    /// As what it is.
    Plain,
    /// In base 16.
    Hexadecimal,
    /// In base 8.
    Octal,
    /// An address in the kernel, or in the program.
    Address,
    /// An address of code.
    Code,
    /// By name: one of some values, some bits, or both. They are compared with the value's own
    /// bits, not extended by its sign.
    Symbols(Arc<Symbols>),
    /// A device number: 12 bits major, 20 minor, as the kernel has it.
    Device,
    /// 16 bytes of a UUID.
    Uuid,
    /// 6 bytes of a network card's address.
    Mac,
    /// An internet address of 4 or 16 bytes, or a `sockaddr` of 16 or 28.
    Internet,
    /// The address of NUL-terminated text in the kernel's read-only memory.
    KernelText,
    /// A file descriptor.
    Descriptor,
    /// A file descriptor of a folder, or `AT_FDCWD`.
    Folder,
    /// A process or thread.
    Process,
    /// A user.
    User,
    /// A group.
    Group,
    /// Permissions, in base 8, and the type of a file by name.
    Mode,
    /// By names that depend on the value of the field before, which is in the upper half of each
    /// name's value.
    SymbolsBehind(Arc<Symbols>),
    /// A set of signals, the first in the lowest bit.
    SignalSet,
    /// What wait(2) tells of how a process ended or stopped.
    WaitStatus,
    /// The address of a handler of signals, or one of those that have names.
    Handler,
    /// A request of ioctl(2): direction, size, type, number.
    Request,
    /// The result of a system call: this, or an error's negative number.
    Result(Returned),
}

/// What a system call returns when it succeeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Returned {
    /// Zero.
    Nothing,
    /// A number of something.
    Number,
    /// Bytes read or written.
    Bytes,
    /// A file descriptor.
    Descriptor,
    /// A process or thread.
    Process,
    /// A user or group.
    Owner,
    /// An address.
    Address,
    /// It does not return.
    Never,
}

/// Names of values: of one field, what is in `choice_mask` is one of `choices`, and each other bit
/// may be one of `flags`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Symbols {
    /// Bits that together say one of the choices: none of them for plain flags, all for plain
    /// enumerations.
    pub choice_mask: u64,
    /// Values of those bits.
    pub choices: Vec<Symbol>,
    /// Bits, the first that fit taken first.
    pub flags: Vec<Symbol>,
    /// Bits that are about something else, and are not shown.
    pub hidden: u64,
}

/// A value's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    /// The value.
    pub value: u64,
    /// Its name.
    pub name: Cow<'static, str>,
}

impl Symbols {
    /// Whether a name is all that a value of so many bytes stands for.
    pub(crate) fn is_enumeration(&self, bytes: usize) -> bool {
        let all_bits = u64::MAX >> (64 - 8 * bytes);
        self.flags.is_empty() && self.choice_mask >= all_bits.min(u32::MAX.into())
    }

    /// Writes `value` with its names, as C would: `O_RDWR|O_CLOEXEC`. What has no name is a number.
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
            // What nothing is called, if anything.
            let none = self.flags.iter().find(|symbol| symbol.value == 0);
            return none.map_or_else(|| "0".into(), |symbol| symbol.name.clone().into_owned());
        }
        if rest != 0 {
            parts.push(Cow::Owned(format!("{rest:#x}")));
        }
        parts.join("|")
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Symbol> {
        self.choices.iter().chain(&self.flags)
    }
}

/// What an argument of a system call points to, in the program's memory. It is read when the call
/// is entered if the field is of the entry, else when it returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Behind {
    /// NUL-terminated text.
    Text,
    /// Addresses of such texts, the last one zero.
    Texts,
    /// Bytes.
    Bytes(Length),
    /// A `struct sockaddr` of so many bytes.
    SocketAddress(Length),
    /// So many `struct iovec`, which lead to bytes.
    Vectors(Length),
    /// A `struct msghdr`, which leads to an address and to vectors.
    Message,
    /// So many of these integers.
    Integers(Scalar, Length),
    /// So many structures.
    Structures(Arc<Structure>, Length),
    /// One structure, of which so many bytes are there: those of the version that a program knows.
    Sized(Arc<Structure>, Length),
}

/// How much there is behind a pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// So much.
    Fixed(u32),
    /// As the argument of this index says.
    Argument(u8),
    /// As the 32-bit integer says that the argument of this index points to.
    Pointed(u8),
    /// As much as the call returns, and no more than the argument of this index says, if any.
    Returned(Option<u8>),
}

/// A structure, as the kernel and programs share it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Structure {
    /// Its name.
    pub name: String,
    /// Its size in bytes; 0 where it is not known (without BTF).
    pub bytes: u32,
    /// Its members, as far as they are integers or arrays of those.
    pub members: Vec<Member>,
}

/// An integer in a structure, or some of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Where it is, in bytes.
    pub offset: u32,
    /// What it is.
    pub scalar: Scalar,
    /// How many there are.
    pub count: u32,
}
