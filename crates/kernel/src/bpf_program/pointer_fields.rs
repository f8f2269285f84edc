//! Fields for the data that a system call's pointers lead to: names, LTTng's if it has one, and the
//! step that writes each field.
//!
//! All sizes are bounded. A pointer stays a field of the entry, under its own name; its data
//! follows. When a call returns successfully, the program reads the data that the kernel has
//! written. Unreadable data is empty or zero, and a bit of the last field, `incomplete`, marks the
//! argument; the same bit marks data that was cut. A text that may be missing for other reasons is
//! a sequence of at most one text, because babeltrace2 2.0 shows an empty string as the string
//! before it.

use trackway_schema::{ARRAY_LENGTH_MAX, Field as Described, FieldKind, NAME_BYTES_MAX, Scalar};

use super::plan::{Step, VARIABLE_BYTES_MAX};
use crate::catalogue::model::{
    Field, FieldShape, Length, Meaning, Member, Phase, Pointee, Structure,
};
use crate::catalogue::{members, names};

/// Longest recorded user text, with its NUL.
pub const USER_TEXT_BYTES_MAX: u32 = 1024;
/// Most texts of one argument; most bytes of each text and of all texts, with their NULs.
pub const TEXTS_MAX: u32 = 64;
pub(super) const TEXTS_EACH_BYTES_MAX: u32 = 256;
pub(super) const TEXTS_BYTES_MAX: u32 = 2048;
/// Most structures of one argument.
pub const STRUCTURES_MAX: u32 = 16;
/// Most bytes that are read for the structures of one argument.
pub(super) const STRUCTURES_BYTES_MAX: u32 = 512;
/// Most bytes of a socket address: the size of a Unix address (`struct sockaddr_un`).
pub(super) const SOCKET_BYTES_MAX: u32 = 110;
/// Most bytes of a socket address of another family: the size of `struct sockaddr_ll`, the longest
/// address that readers decode.
pub(super) const SOCKET_OTHER_BYTES_MAX: u32 = 20;
/// Most recorded bytes of a socket address: family, port, four lengths, path with its NUL.
pub(super) const SOCKET_FIELDS_BYTES_MAX: u32 = 2 + 2 + 4 * 4 + SOCKET_BYTES_MAX;
/// The name of the field with the mask of incomplete arguments.
pub(super) const INCOMPLETE: &str = "incomplete";

/// The condition under which the program reads user memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadCondition {
    /// At the entry of the call.
    OnEntry,
    /// After the call has succeeded.
    OnSuccess,
    /// After a signal has interrupted the call.
    OnInterrupt,
}

/// A pointer among the arguments of a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserPointer {
    /// The offset of the pointer's register.
    pub at: u32,
    /// The condition under which the program reads the pointer's data.
    pub condition: ReadCondition,
}

/// The number of elements that a pointer leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementCount {
    /// A constant number.
    Fixed(u32),
    /// The lowest bytes of a register: its offset, and the number of bytes.
    Register(u32, u32),
    /// The 32-bit integer that the register at this offset points to.
    Pointed(u32),
    /// The call's result, at most the value in the register at this offset.
    Result(Option<u32>),
}

/// A recorded member of a structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordedMember {
    /// The offset of the member in the structure.
    pub offset: u32,
    /// The size of the member in bytes.
    pub bytes: u32,
    /// True if the member is text.
    pub is_text: bool,
}

/// The recorded part of a structure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedStructure {
    /// The size of the structure in bytes.
    pub bytes: u32,
    /// The recorded members of the structure.
    pub members: Vec<RecordedMember>,
    /// For a single structure: the number of its existing bytes, if the call gives that number.
    pub size: Option<ElementCount>,
}

impl RecordedStructure {
    /// Returns the total bytes of all recorded members.
    pub(super) fn members_bytes(&self) -> u32 {
        self.members.iter().map(|member| member.bytes).sum()
    }

    /// Returns true if the members are the first bytes of the structure, without gaps.
    pub(super) fn is_packed(&self) -> bool {
        let mut end = 0;
        self.members.iter().all(|member| {
            let is_next = member.offset == end && !member.is_text;
            end += member.bytes;
            is_next
        })
    }

    /// Returns the most structures that one step reads.
    pub(super) fn count_max(&self) -> u32 {
        (STRUCTURES_BYTES_MAX / self.bytes).min(STRUCTURES_MAX)
    }
}

/// The layout of a system call's arguments and result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallLayout {
    /// The phase of the call: entry or exit.
    pub phase: Phase,
    /// Offsets of the existing arguments.
    pub arguments: [Option<u32>; 6],
    /// The offset of the call's result.
    pub result: u32,
    /// The offset of the call's number.
    pub number: u32,
    /// True if registers and addresses have 32 bits.
    pub is_compat: bool,
}

/// The fields that one step writes.
pub(super) struct FieldGroup {
    pub(super) fields: Vec<Described>,
    /// Meanings of the first fields; the list may be shorter than the fields.
    pub(super) meanings: Vec<Meaning>,
    pub(super) step: Step,
    pub(super) structure: Option<RecordedStructure>,
    /// Names of members for which there is no room or no field kind.
    pub(super) omitted: Vec<String>,
}

impl FieldGroup {
    pub(super) fn single(name: &str, kind: FieldKind, step: Step) -> Self {
        let fields = vec![Described { name: name.into(), kind }];
        Self { fields, meanings: Vec::new(), step, structure: None, omitted: Vec::new() }
    }

    fn with_meaning(self, meaning: Meaning) -> Self {
        Self { meanings: vec![meaning], ..self }
    }

    /// Returns the fields of a socket address; families have symbolic names.
    fn socket_address(event: &str, step: Step) -> Self {
        let family = names::find_set("family").map_or(Meaning::Plain, Meaning::Symbols);
        let (fields, meanings) = (socket_fields(event), vec![family]);
        Self { fields, meanings, step, structure: None, omitted: Vec::new() }
    }
}

impl CallLayout {
    fn argument_offset(&self, number: u8) -> Option<u32> {
        *self.arguments.get(usize::from(number))?
    }

    fn element_count(&self, event: &[Field], length: Length) -> Option<ElementCount> {
        Some(match length {
            Length::Fixed(count) => ElementCount::Fixed(count),
            Length::Argument(number) => {
                let of = event.iter().find(|field| field.argument == Some(number));
                let bytes = match of.map(|field| field.kind) {
                    Some(FieldShape::Integer(scalar)) => scalar.size_bytes() as u32,
                    // At the exit, numeric arguments are not fields any more.
                    _ => 4,
                };
                ElementCount::Register(self.argument_offset(number)?, bytes)
            }
            Length::Pointed(number) => ElementCount::Pointed(self.argument_offset(number)?),
            Length::Result(limit) => ElementCount::Result(match limit {
                Some(number) => Some(self.argument_offset(number)?),
                None => None,
            }),
        })
    }

    /// Returns the fields for the data that an argument points to. `None`: there is no such data.
    /// `room` limits the fields; `index` is the index of a structure that this function may add.
    pub(super) fn pointee_group(
        &self,
        event: &str,
        fields: &[Field],
        field: &Field,
        (room, index): (usize, usize),
    ) -> Option<FieldGroup> {
        let at = self.argument_offset(field.argument?)?;
        let condition = match self.phase {
            Phase::Enter => ReadCondition::OnEntry,
            // `rmtp` receives the remaining time of an interrupted sleep.
            Phase::Exit if field.name == "rmtp" => ReadCondition::OnInterrupt,
            Phase::Exit => ReadCondition::OnSuccess,
        };
        let pointer = UserPointer { at, condition };
        let is_entry = self.phase == Phase::Enter;
        match field.pointee.as_ref()? {
            Pointee::Text if is_entry => {
                Some(FieldGroup::single(&field.name, FieldKind::Str, Step::UserText(at)))
            }
            Pointee::Text => {
                Some(FieldGroup::single(&field.name, FieldKind::Strings, Step::UserTextRetry(at)))
            }
            // The environment is long and may contain secrets.
            Pointee::Texts if is_entry && field.name != "envp" => {
                Some(FieldGroup::single(&field.name, FieldKind::Strings, Step::UserTexts(pointer)))
            }
            Pointee::SocketAddress(length) => {
                let count = self.element_count(fields, *length)?;
                Some(FieldGroup::socket_address(event, Step::SocketAddress(pointer, count)))
            }
            Pointee::Message => Some(FieldGroup::socket_address(event, Step::Message(pointer))),
            Pointee::Vectors(length) if is_entry => {
                let count = self.element_count(fields, *length)?;
                structure_array_group(
                    field,
                    pointer,
                    count,
                    &iovec_structure(self.is_compat),
                    (room, index),
                )
            }
            Pointee::Structures(of, Length::Fixed(1)) => {
                structure_group(field, pointer, (of, None), (room, index))
            }
            Pointee::SizedStructure(of, length) => {
                let size = self.element_count(fields, *length)?;
                structure_group(field, pointer, (of, Some(size)), (room, index))
            }
            Pointee::Structures(of, length) => {
                let count = self.element_count(fields, *length)?;
                structure_array_group(field, pointer, count, of, (room, index))
            }
            Pointee::Integers(scalar, length) => {
                let count = self.element_count(fields, *length)?;
                Some(integer_group(field, pointer, *scalar, count))
            }
            Pointee::Bytes(_) | Pointee::Texts | Pointee::Vectors(_) => None,
        }
    }
}

/// Returns the fields of a socket address: LTTng's fields of connect(2) and accept(2), the data
/// after the family of AF_NETLINK, AF_PACKET and AF_VSOCK addresses, and the path of a Unix socket.
fn socket_fields(event: &str) -> Vec<Described> {
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

/// Returns the layout of `struct iovec` or `struct compat_iovec`.
fn iovec_structure(is_compat: bool) -> Structure {
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

/// Selects the recorded members of a structure, with their field names. Skips padding. Lists
/// members as omitted if `is_taken` returns false or there is no room.
fn select_members<'s>(
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
    let (mut selected, mut omitted) = (Vec::new(), Vec::new());
    for member in of.members.iter().filter(|member| !is_padding(member)) {
        let name = format!("{}_{}", field.name, member.name.replace('.', "_"));
        let has_room = selected.len() < room && name.len() <= NAME_BYTES_MAX;
        match has_room && is_within(member) && is_taken(member) {
            true => selected.push((name, member)),
            false => omitted.push(name),
        }
    }
    (selected, omitted)
}

/// Returns a field for each member of one structure.
fn structure_group(
    field: &Field,
    pointer: UserPointer,
    (of, size): (&Structure, Option<ElementCount>),
    (room, index): (usize, usize),
) -> Option<FieldGroup> {
    if !(1..=STRUCTURES_BYTES_MAX).contains(&of.bytes) {
        return None;
    }
    let (mut fields, mut meanings, mut members) = (Vec::new(), Vec::new(), Vec::new());
    let (selected, omitted) = select_members(field, of, room, |_| true);
    for (name, member) in selected {
        let bytes = member.scalar.size_bytes() as u32 * member.count;
        // In other structures, byte arrays contain numbers.
        let is_text = member.count > 1 && of.name.ends_with("utsname");
        let kind = match member.count {
            1 => FieldKind::Scalar(member.scalar),
            _ if is_text => FieldKind::Str,
            count => FieldKind::Array(member.scalar, count as u16),
        };
        fields.push(Described { name, kind });
        meanings.push(members::member_meaning(of, member));
        members.push(RecordedMember { offset: member.offset, bytes, is_text });
    }
    let step = Step::Structure(pointer, u8::try_from(index).ok()?);
    let structure = Some(RecordedStructure { bytes: of.bytes, members, size });
    (!fields.is_empty()).then_some(FieldGroup { fields, meanings, step, structure, omitted })
}

/// Returns a sequence for each member of several structures.
fn structure_array_group(
    field: &Field,
    pointer: UserPointer,
    count: ElementCount,
    of: &Structure,
    (room, index): (usize, usize),
) -> Option<FieldGroup> {
    if !(1..=STRUCTURES_BYTES_MAX).contains(&of.bytes) {
        return None;
    }
    let (mut fields, mut meanings, mut members) = (Vec::new(), Vec::new(), Vec::new());
    let (selected, omitted) = select_members(field, of, room, |member| member.count == 1);
    for (name, member) in selected {
        fields.push(Described { name, kind: FieldKind::Sequence(member.scalar) });
        meanings.push(members::member_meaning(of, member));
        let bytes = member.scalar.size_bytes() as u32;
        members.push(RecordedMember { offset: member.offset, bytes, is_text: false });
    }
    let step = Step::Structures(pointer, count, u8::try_from(index).ok()?);
    let structure = Some(RecordedStructure { bytes: of.bytes, members, size: None });
    (!fields.is_empty()).then_some(FieldGroup { fields, meanings, step, structure, omitted })
}

/// Returns fields for integers. At the exit they have the argument's name, as in LTTng; at the
/// entry, the pointer has that name.
fn integer_group(
    field: &Field,
    pointer: UserPointer,
    scalar: Scalar,
    count: ElementCount,
) -> FieldGroup {
    let bytes = scalar.size_bytes() as u32;
    let (kind, step, many) = match count {
        ElementCount::Fixed(1) => (FieldKind::Scalar(scalar), Step::UserBytes(pointer, bytes), ""),
        ElementCount::Fixed(count) if count <= 16 => {
            let kind = FieldKind::Array(scalar, count as u16);
            (kind, Step::UserBytes(pointer, bytes * count), "s")
        }
        _ => (FieldKind::Sequence(scalar), Step::UserElements(pointer, count, bytes), "s"),
    };
    let group = match pointer.condition {
        ReadCondition::OnEntry => {
            FieldGroup::single(&format!("{}_value{many}", field.name), kind, step)
        }
        _ => FieldGroup::single(&field.name, kind, step),
    };
    match &*field.name {
        "stat_addr" => group.with_meaning(Meaning::WaitStatus),
        _ if field.type_text.contains("sigset_t") => group.with_meaning(Meaning::SignalSet),
        _ => group,
    }
}

impl Step {
    /// Returns the most scratch bytes that the step needs after its output.
    pub(super) fn scratch_bytes(&self, structures: &[RecordedStructure]) -> u32 {
        match self {
            Self::Structure(_, index) | Self::Structures(_, _, index) => {
                let of = structures.get(usize::from(*index));
                of.map_or(0, |of| if self.is_one() { of.bytes } else { of.count_max() * of.bytes })
            }
            Self::SocketAddress(..) | Self::Message(_) => SOCKET_BYTES_MAX + 2,
            _ => 0,
        }
    }

    const fn is_one(&self) -> bool {
        matches!(self, Self::Structure(..))
    }

    /// Returns the most bytes of structures or elements that the step adds to a record.
    pub(super) fn structure_bytes(&self, structures: &[RecordedStructure]) -> u32 {
        match self {
            Self::Structure(_, index) => {
                structures.get(usize::from(*index)).map_or(0, RecordedStructure::members_bytes)
            }
            Self::Structures(_, _, index) => structures
                .get(usize::from(*index))
                .map_or(0, |of| 4 * of.members.len() as u32 + of.count_max() * of.members_bytes()),
            Self::UserElements(..) => 4 + VARIABLE_BYTES_MAX,
            _ => 0,
        }
    }
}
