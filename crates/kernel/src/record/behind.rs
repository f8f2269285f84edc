//! What lies behind the pointers that a system call gets: which fields that makes, by LTTng's names
//! where it has them, and which step writes them.
//!
//! Everything is bounded. A pointer stays a field of the entry, under its own name; what is behind
//! it follows. When the call returns, what the kernel has written is read, where it succeeded. What
//! could not be read is empty, or zero, and a bit of the last field (`incomplete`) says of which
//! argument; so it does where something was cut. A text that may be missing for other reasons is a
//! sequence of one or none. (babeltrace2 2.0 shows an empty string as the one before it.)

use trackway_schema::{ARRAY_LENGTH_MAX, Field as Described, FieldKind, NAME_BYTES_MAX, Scalar};

use super::staging::{Step, VARIABLE_BYTES_MAX};
use crate::catalogue::model::{Behind, Field, Kind, Length, Meaning, Member, Phase, Structure};
use crate::catalogue::{members, names};

/// Longest text of a program's that is recorded, with its NUL.
pub const USER_TEXT_BYTES_MAX: u32 = 1024;
/// Most texts behind one argument, and most bytes of one and of all of them, with their NULs.
pub const TEXTS_MAX: u32 = 64;
pub(super) const TEXTS_EACH_BYTES_MAX: u32 = 256;
pub(super) const TEXTS_BYTES_MAX: u32 = 2048;
/// Most structures behind one argument.
pub const STRUCTURES_MAX: u32 = 16;
/// Most bytes that are read of one argument, to be taken apart.
pub(super) const TAKEN_BYTES_MAX: u32 = 512;
/// Most bytes of a socket's address: those of a path (`struct sockaddr_un`).
pub(super) const SOCKET_BYTES_MAX: u32 = 110;
/// Most bytes of an address of none of the families that have fields of their own: those of
/// `struct sockaddr_ll`, the longest of them that are taken apart when they are shown.
pub(super) const SOCKET_OTHER_BYTES_MAX: u32 = 20;
/// Most bytes of what is recorded of it: family, port, four lengths, path with its NUL.
pub(super) const SOCKET_FIELDS_BYTES_MAX: u32 = 2 + 2 + 4 * 4 + SOCKET_BYTES_MAX;
/// Name of the field that says of which arguments something is missing.
pub(super) const INCOMPLETE: &str = "incomplete";

/// When something is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// When the call is entered.
    Entered,
    /// When it has succeeded.
    Succeeded,
    /// When a signal has interrupted it.
    Interrupted,
}

/// A pointer that a call gets: in which register, and when what is behind it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pointer {
    /// Where the register is.
    pub at: u32,
    /// When.
    pub when: When,
}

/// How many elements there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// So many.
    Fixed(u32),
    /// As the register there says, in its lowest so many bytes.
    Register(u32, u32),
    /// As the 32-bit integer that the register there points to.
    Pointed(u32),
    /// As the result, and no more than the register there says.
    Result(Option<u32>),
}

/// A structure, as far as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// Its size in bytes.
    pub bytes: u32,
    /// Members: where, of how many bytes, and whether they are text.
    pub members: Vec<(u32, u32, bool)>,
    /// Of one: how many of its bytes there are, if a call says that.
    pub size: Option<Count>,
}

impl Taken {
    /// Most bytes of the members of one.
    pub(super) fn members_bytes(&self) -> u32 {
        self.members.iter().map(|(_, bytes, _)| bytes).sum()
    }

    /// Whether the members are the structure's first bytes, each right behind the one before.
    pub(super) fn is_packed(&self) -> bool {
        let mut end = 0;
        self.members.iter().all(|(offset, bytes, is_text)| {
            let is_next = *offset == end && !is_text;
            end += bytes;
            is_next
        })
    }

    /// How many are read at once.
    pub(super) fn count_max(&self) -> u32 {
        (TAKEN_BYTES_MAX / self.bytes).min(STRUCTURES_MAX)
    }
}

/// Where a call has its arguments and its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// Which side of it this is.
    pub phase: Phase,
    /// Arguments, as far as they are there.
    pub arguments: [Option<u32>; 6],
    /// The result, when it returns.
    pub result: u32,
    /// Where its number is.
    pub number: u32,
    /// Whether registers have 32 bits for it, and addresses in memory, too.
    pub is_compat: bool,
}

/// Fields that one step writes.
pub(super) struct Group {
    pub(super) fields: Vec<Described>,
    /// What they stand for, each in its place; there may be fewer.
    pub(super) meanings: Vec<Meaning>,
    pub(super) step: Step,
    pub(super) taken: Option<Taken>,
    /// Names of fields that there is no room for, or no kind.
    pub(super) left_out: Vec<String>,
}

impl Group {
    pub(super) fn one(name: &str, kind: FieldKind, step: Step) -> Self {
        let fields = vec![Described { name: name.into(), kind }];
        Self { fields, meanings: Vec::new(), step, taken: None, left_out: Vec::new() }
    }

    fn meaning(self, meaning: Meaning) -> Self {
        Self { meanings: vec![meaning], ..self }
    }

    /// The address of a socket, whose family has names.
    fn socket(event: &str, step: Step) -> Self {
        let family = names::set("family").map_or(Meaning::Plain, Meaning::Symbols);
        let (fields, meanings) = (socket(event), vec![family]);
        Self { fields, meanings, step, taken: None, left_out: Vec::new() }
    }
}

impl Call {
    fn argument(&self, number: u8) -> Option<u32> {
        *self.arguments.get(usize::from(number))?
    }

    fn count(&self, event: &[Field], length: Length) -> Option<Count> {
        Some(match length {
            Length::Fixed(count) => Count::Fixed(count),
            Length::Argument(number) => {
                let of = event.iter().find(|field| field.argument == Some(number));
                let bytes = match of.map(|field| field.kind) {
                    Some(Kind::Integer(scalar)) => scalar.size_bytes() as u32,
                    // When it returns, numbers are not fields any more.
                    _ => 4,
                };
                Count::Register(self.argument(number)?, bytes)
            }
            Length::Pointed(number) => Count::Pointed(self.argument(number)?),
            Length::Returned(limit) => Count::Result(match limit {
                Some(number) => Some(self.argument(number)?),
                None => None,
            }),
        })
    }

    /// What is recorded of what lies behind an argument, with room for so many fields; which
    /// structure it would be is `index`. `None`: nothing.
    pub(super) fn behind(
        &self,
        event: &str,
        fields: &[Field],
        field: &Field,
        (room, index): (usize, usize),
    ) -> Option<Group> {
        let at = self.argument(field.argument?)?;
        let when = match self.phase {
            Phase::Enter => When::Entered,
            // What is left of the time, when a sleep was interrupted.
            Phase::Exit if field.name == "rmtp" => When::Interrupted,
            Phase::Exit => When::Succeeded,
        };
        let pointer = Pointer { at, when };
        let is_entry = self.phase == Phase::Enter;
        match field.behind.as_ref()? {
            Behind::Text if is_entry => {
                Some(Group::one(&field.name, FieldKind::Str, Step::UserText(at)))
            }
            Behind::Text => {
                Some(Group::one(&field.name, FieldKind::Strings, Step::UserTextAgain(at)))
            }
            // The environment is long, and may say what nobody is to know.
            Behind::Texts if is_entry && field.name != "envp" => {
                Some(Group::one(&field.name, FieldKind::Strings, Step::UserTexts(pointer)))
            }
            Behind::SocketAddress(length) => {
                let count = self.count(fields, *length)?;
                Some(Group::socket(event, Step::SocketAddress(pointer, count)))
            }
            Behind::Message => Some(Group::socket(event, Step::Message(pointer))),
            Behind::Vectors(length) if is_entry => {
                let count = self.count(fields, *length)?;
                structures(field, pointer, count, &vector(self.is_compat), (room, index))
            }
            Behind::Structures(of, Length::Fixed(1)) => {
                structure(field, pointer, (of, None), (room, index))
            }
            Behind::Sized(of, length) => {
                let size = self.count(fields, *length)?;
                structure(field, pointer, (of, Some(size)), (room, index))
            }
            Behind::Structures(of, length) => {
                let count = self.count(fields, *length)?;
                structures(field, pointer, count, of, (room, index))
            }
            Behind::Integers(scalar, length) => {
                let count = self.count(fields, *length)?;
                Some(integers(field, pointer, *scalar, count))
            }
            Behind::Bytes(_) | Behind::Texts | Behind::Vectors(_) => None,
        }
    }
}

/// As LTTng has them of connect(2) and accept(2), what is behind the family of an address of
/// AF_NETLINK, AF_PACKET or AF_VSOCK, and the path of one that is a file.
fn socket(event: &str) -> Vec<Described> {
    let is_to = ["connect", "sendto", "sendmsg", "getpeername"];
    let is_to = is_to.iter().any(|call| event.ends_with(&format!("_{call}")));
    let field = |name: &str, kind| Described { name: name.into(), kind };
    vec![
        field("family", FieldKind::Scalar(Scalar::U16)),
        field(if is_to { "dport" } else { "sport" }, FieldKind::Scalar(Scalar::U16)),
        field("v4addr", FieldKind::Sequence(Scalar::U8)),
        field("v6addr", FieldKind::Sequence(Scalar::X8)),
        field("sa_data", FieldKind::Sequence(Scalar::X8)),
        field("path", FieldKind::Strings),
    ]
}

/// `struct iovec`; of 32 bits, `struct compat_iovec`.
fn vector(is_compat: bool) -> Structure {
    let (address, length) =
        if is_compat { (Scalar::X32, Scalar::U32) } else { (Scalar::X64, Scalar::U64) };
    let bytes = address.size_bytes() as u32;
    let member = |name: &str, offset, scalar| {
        let name = name.to_owned();
        Member { name, offset, scalar, count: 1 }
    };
    Structure {
        name: "iovec".into(),
        bytes: 2 * bytes,
        members: vec![member("iov_base", 0, address), member("iov_len", bytes, length)],
    }
}

/// Members of a structure that are recorded, and what their fields are called: no padding, none
/// that `is_taken` does not take, and no more than there is room for. Behind them, others, which
/// are left out.
fn told<'s>(
    field: &Field,
    of: &'s Structure,
    room: usize,
    is_taken: impl Fn(&Member) -> bool,
) -> (Vec<(String, &'s Member)>, Vec<String>) {
    let is_padding = |member: &&Member| {
        let inner = member.name.rsplit('.').next().unwrap_or_default();
        inner.starts_with("__") || inner.contains("spare") || inner.is_empty() || member.count == 0
    };
    let is_within = |member: &Member| {
        let end = member.offset.checked_add(member.scalar.size_bytes() as u32 * member.count);
        u32::from(ARRAY_LENGTH_MAX) >= member.count && end <= Some(of.bytes)
    };
    let (mut told, mut left_out) = (Vec::new(), Vec::new());
    for member in of.members.iter().filter(|member| !is_padding(member)) {
        let name = format!("{}_{}", field.name, member.name.replace('.', "_"));
        let has_room = told.len() < room && name.len() <= NAME_BYTES_MAX;
        match has_room && is_within(member) && is_taken(member) {
            true => told.push((name, member)),
            false => left_out.push(name),
        }
    }
    (told, left_out)
}

/// One structure: a field for each member.
fn structure(
    field: &Field,
    pointer: Pointer,
    (of, size): (&Structure, Option<Count>),
    (room, index): (usize, usize),
) -> Option<Group> {
    if !(1..=TAKEN_BYTES_MAX).contains(&of.bytes) {
        return None;
    }
    let (mut fields, mut meanings, mut taken) = (Vec::new(), Vec::new(), Vec::new());
    let (told, left_out) = told(field, of, room, |_| true);
    for (name, member) in told {
        let bytes = member.scalar.size_bytes() as u32 * member.count;
        // Others have numbers in arrays of bytes.
        let is_text = member.count > 1 && of.name.ends_with("utsname");
        let kind = match member.count {
            1 => FieldKind::Scalar(member.scalar),
            _ if is_text => FieldKind::Str,
            count => FieldKind::Array(member.scalar, count as u16),
        };
        fields.push(Described { name, kind });
        meanings.push(members::meaning(of, member));
        taken.push((member.offset, bytes, is_text));
    }
    let step = Step::Structure(pointer, u8::try_from(index).ok()?);
    let taken = Some(Taken { bytes: of.bytes, members: taken, size });
    (!fields.is_empty()).then_some(Group { fields, meanings, step, taken, left_out })
}

/// Some structures: for each member, a sequence of what all of them have there.
fn structures(
    field: &Field,
    pointer: Pointer,
    count: Count,
    of: &Structure,
    (room, index): (usize, usize),
) -> Option<Group> {
    if !(1..=TAKEN_BYTES_MAX).contains(&of.bytes) {
        return None;
    }
    let (mut fields, mut meanings, mut taken) = (Vec::new(), Vec::new(), Vec::new());
    let (told, left_out) = told(field, of, room, |member| member.count == 1);
    for (name, member) in told {
        fields.push(Described { name, kind: FieldKind::Sequence(member.scalar) });
        meanings.push(members::meaning(of, member));
        taken.push((member.offset, member.scalar.size_bytes() as u32, false));
    }
    let step = Step::Structures(pointer, count, u8::try_from(index).ok()?);
    let taken = Some(Taken { bytes: of.bytes, members: taken, size: None });
    (!fields.is_empty()).then_some(Group { fields, meanings, step, taken, left_out })
}

/// Integers: when the call returns they are what the argument is, as LTTng has it; before, the
/// pointer is.
fn integers(field: &Field, pointer: Pointer, scalar: Scalar, count: Count) -> Group {
    let bytes = scalar.size_bytes() as u32;
    let (kind, step, many) = match count {
        Count::Fixed(1) => (FieldKind::Scalar(scalar), Step::User(pointer, bytes), ""),
        Count::Fixed(count) if count <= 16 => {
            let kind = FieldKind::Array(scalar, count as u16);
            (kind, Step::User(pointer, bytes * count), "s")
        }
        _ => (FieldKind::Sequence(scalar), Step::UserElements(pointer, count, bytes), "s"),
    };
    let group = match pointer.when {
        When::Entered => Group::one(&format!("{}_value{many}", field.name), kind, step),
        _ => Group::one(&field.name, kind, step),
    };
    match &*field.name {
        "stat_addr" => group.meaning(Meaning::WaitStatus),
        _ if field.type_text.contains("sigset_t") => group.meaning(Meaning::SignalSet),
        _ => group,
    }
}

impl Step {
    /// Most bytes that it needs beyond what it adds to the record.
    pub(super) fn aside_bytes(&self, taken: &[Taken]) -> u32 {
        match self {
            Self::Structure(_, index) | Self::Structures(_, _, index) => {
                let of = taken.get(usize::from(*index));
                of.map_or(0, |of| if self.is_one() { of.bytes } else { of.count_max() * of.bytes })
            }
            Self::SocketAddress(..) | Self::Message(_) => SOCKET_BYTES_MAX + 2,
            _ => 0,
        }
    }

    const fn is_one(&self) -> bool {
        matches!(self, Self::Structure(..))
    }

    /// Most bytes that it adds to a record.
    pub(super) fn taken_bytes(&self, taken: &[Taken]) -> u32 {
        match self {
            Self::Structure(_, index) => {
                taken.get(usize::from(*index)).map_or(0, Taken::members_bytes)
            }
            Self::Structures(_, _, index) => taken
                .get(usize::from(*index))
                .map_or(0, |of| 4 * of.members.len() as u32 + of.count_max() * of.members_bytes()),
            Self::UserElements(..) => 4 + VARIABLE_BYTES_MAX,
            _ => 0,
        }
    }
}
