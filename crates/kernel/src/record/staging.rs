//! What is recorded of an event, and from where: the event's description, as traces have it, and
//! for each of its fields what a program does.

use trackway_schema::{ARRAY_LENGTH_MAX, EventDescription, FIELDS_MAX, FieldKind, Scalar};

use super::arguments::{self, Read};
use super::behind::{
    Call, Count, Group, INCOMPLETE, Pointer, SOCKET_FIELDS_BYTES_MAX, TEXTS_BYTES_MAX, Taken,
    USER_TEXT_BYTES_MAX,
};
use super::context::Contexts;
use super::release::Guard;
use super::scope::{self, Members};
use crate::catalogue::btf::{Btf, Class};
use crate::catalogue::model::{Behind, Event, Field, Kind, Location, Meaning, Phase, Source};

/// Longest text, with its NUL, and longest sequence, in bytes.
pub const VARIABLE_BYTES_MAX: u32 = 256;
/// LTTng's level of the kernel's events.
const LEVEL: u8 = 6;

/// What offsets of steps are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ground {
    /// The record that the tracepoint gives a program.
    Tracepoint,
    /// The registers of a system call, which its raw tracepoint gives one.
    Registers,
    /// The arguments of its raw tracepoint.
    Arguments,
}

/// An event as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staged {
    /// What offsets are in.
    pub ground: Ground,
    /// What stands in front of its fields: `tid` alone, unless there are others.
    pub contexts: Contexts,
    /// As traces describe it: by LTTng's name, which has no provider.
    pub description: EventDescription,
    /// What the fields of the description stand for, in their order.
    pub meanings: Vec<Meaning>,
    /// What a program does for each field, in order: one step for each.
    pub steps: Vec<Step>,
    /// Those of the steps that are numbers of threads that it is about.
    pub threads: Vec<Step>,
    /// Structures that steps take apart.
    pub taken: Vec<Taken>,
    /// Of a system call: where its arguments are.
    pub call: Option<Call>,
    /// Those threads whose call has texts that could not be read when
    /// it was entered. `None`: nobody remembers that.
    pub unread: Option<Members>,
    /// Names of fields that are not recorded; behind `*`, of what an argument leads to that is
    /// recorded as an address alone. (Bytes that are read and written, and the environment, are
    /// never recorded, and not among them.)
    pub left_out: Vec<String>,
    /// What keeps its program from being preempted, if it has to.
    pub guard: Option<Guard>,
    /// Which of the event's programs this is: only the one that the buffers name records
    /// ([`super::buffers::Buffers::set_version`]).
    pub version: u32,
}

/// What a program does for a field. Offsets are in the event's [`Ground`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Copies so many bytes.
    Copy {
        /// From where.
        offset: u32,
        /// How many.
        size: u32,
    },
    /// Copies the lowest bytes of a register.
    Register {
        /// Which.
        offset: u32,
        /// How many.
        size: u32,
    },
    /// Copies text out of so many bytes.
    Text {
        /// From where.
        offset: u32,
        /// At most so many, with the NUL.
        size: u32,
    },
    /// Copies text that the word at this offset says where it is.
    DynamicText(u32, Location),
    /// Likewise integers of so many bytes, behind their number.
    Dynamic(u32, Location, u32),
    /// Copies text of the program's, whose address is at this offset.
    UserText(u32),
    /// Likewise, when the call returns, if it could not be read when it was entered: one or none,
    /// behind their number.
    UserTextAgain(u32),
    /// Makes flags of the letters in so many bytes of text.
    Operation {
        /// From where.
        offset: u32,
        /// How many.
        size: u32,
    },
    /// Writes so many bytes that are zero, of a number that is not known.
    Unknown(u32),
    /// Reads what an argument is, or has behind it.
    Argument(Read),
    /// Copies texts whose addresses are there, up to one that is zero.
    UserTexts(Pointer),
    /// Copies so many bytes from there.
    User(Pointer, u32),
    /// Copies elements of so many bytes from there, behind their number.
    UserElements(Pointer, Count, u32),
    /// Takes a structure apart, the one with this number.
    Structure(Pointer, u8),
    /// Takes some of them apart: for each member, elements behind their number.
    Structures(Pointer, Count, u8),
    /// Takes apart a socket's address of so many bytes.
    SocketAddress(Pointer, Count),
    /// The same of one that a `struct msghdr` leads to.
    Message(Pointer),
    /// The step before has written it.
    Within,
    /// Says of which arguments something is missing.
    Incomplete,
}

impl Step {
    /// Most bytes that it adds to a record; those of structures apart.
    pub const fn bytes_max(&self) -> u32 {
        match self {
            Self::Copy { size, .. } | Self::Text { size, .. } | Self::Register { size, .. } => {
                *size
            }
            // One more tells whether there is more.
            Self::DynamicText(..) => VARIABLE_BYTES_MAX + 1,
            Self::Dynamic(..) | Self::UserElements(..) => 4 + VARIABLE_BYTES_MAX,
            Self::UserText(_) => USER_TEXT_BYTES_MAX + 1,
            Self::UserTextAgain(_) => 4 + USER_TEXT_BYTES_MAX + 1,
            Self::UserTexts(_) => 4 + TEXTS_BYTES_MAX + 1,
            Self::User(_, size) => *size,
            Self::SocketAddress(..) | Self::Message(_) => SOCKET_FIELDS_BYTES_MAX,
            Self::Structure(..) | Self::Structures(..) | Self::Within => 0,
            Self::Incomplete => 1,
            Self::Argument(read) => read.bytes_max(),
            Self::Operation { .. } => 4,
            Self::Unknown(bytes) => *bytes,
        }
    }
}

impl Staged {
    /// Whether a field is text of a program's own memory, which may not be there to be read when
    /// the event is recorded, and then is unknown.
    pub fn may_be_unknown(&self, field: &str) -> bool {
        let mut fields = self.description.fields.iter().zip(&self.steps);
        fields.any(|(of, step)| of.name == field && matches!(step, Step::UserText(_)))
    }

    /// Fields that are zero, whatever they are.
    pub fn unknown_fields(&self) -> impl Iterator<Item = &str> {
        let fields = self.description.fields.iter().zip(&self.steps);
        let unknown = fields.filter(|(_, step)| matches!(step, Step::Unknown(_)));
        unknown.map(|(field, _)| field.name.as_str())
    }

    /// How an event is recorded, in so many bytes at most.
    pub fn new(event: &Event, payload_max: u32) -> Self {
        Self::with(event, payload_max, |step| !matches!(step, Step::Unknown(_)))
    }

    /// The same with numbers that its record does not have, which are zero then.
    pub fn with_unknown(event: &Event, payload_max: u32) -> Self {
        Self::with(event, payload_max, |_| true)
    }

    fn with(event: &Event, payload_max: u32, is_taken: impl Fn(&Step) -> bool) -> Self {
        let Source::Syscall { phase, .. } = event.source else {
            let mut staged = Self::of(event, Ground::Tracepoint, None);
            for field in &event.fields {
                let step = step_of(field).filter(|(_, step)| is_taken(step));
                let group = step.map(|(kind, step)| Group::one(&field.name, kind, step));
                staged.push(event, field, group, payload_max);
            }
            return staged;
        };
        let mut arguments = [None; 6];
        for field in event.fields.iter().filter(|field| field.size > 0) {
            let place = field.argument.and_then(|number| arguments.get_mut(usize::from(number)));
            place.into_iter().for_each(|place| *place = Some(field.offset));
        }
        let result = event.fields.first().map_or(0, |field| field.offset);
        Self::make(
            event,
            Ground::Tracepoint,
            payload_max,
            Call { phase, arguments, result, number: 0, is_compat: false },
        )
    }

    /// The same of a system call, from its registers; `None` if it is none, or has no number.
    pub fn of_call(event: &Event, registers: &Registers, payload_max: u32) -> Option<Self> {
        let Source::Syscall { number: Some(_), phase, is_compat } = event.source else {
            return None;
        };
        let arguments =
            if is_compat { registers.compat_arguments } else { registers.arguments }.map(Some);
        let (result, number) = (registers.result, registers.number);
        let call = Call { phase, arguments, result, number, is_compat };
        let staged = Self::make(event, Ground::Registers, payload_max, call);
        Some(Self { guard: registers.guard, ..staged })
    }

    /// The same of any event from the arguments of its raw tracepoint: all of its fields, as
    /// [`Self::new`] describes them. `None`: it is not known where they are.
    pub fn of_arguments(event: &Event, btf: &Btf, payload_max: u32) -> Option<Self> {
        let mut reads = arguments::of(event, btf)?.into_iter();
        let mut staged = Self::of(event, Ground::Arguments, None);
        staged.guard = Guard::needed(btf).ok()?;
        for field in &event.fields {
            let read = reads.next();
            let group = step_of(field)
                .zip(read)
                .map(|((kind, _), read)| Group::one(&field.name, kind, Step::Argument(read)));
            staged.push(event, field, group, payload_max);
        }
        staged.left_out.is_empty().then_some(staged)
    }

    fn of(event: &Event, ground: Ground, call: Option<Call>) -> Self {
        Self {
            ground,
            contexts: Contexts::default(),
            description: EventDescription {
                provider: String::new(),
                name: event.lttng_name().into_owned(),
                level: LEVEL,
                fields: Vec::new(),
            },
            meanings: Vec::new(),
            steps: Vec::new(),
            threads: Vec::new(),
            taken: Vec::new(),
            call,
            unread: None,
            left_out: Vec::new(),
            guard: None,
            version: 0,
        }
    }

    fn make(event: &Event, ground: Ground, payload_max: u32, call: Call) -> Self {
        let mut staged = Self::of(event, ground, Some(call));
        // There may be one more in the end.
        let payload_max = payload_max.saturating_sub(1);
        // Bytes that were read are not recorded, and where they are was said when it was entered.
        let is_bytes = |field: &&Field| {
            let bytes = matches!(field.behind, Some(Behind::Bytes(_) | Behind::Vectors(_)));
            bytes && call.phase == Phase::Exit
        };
        for field in event.fields.iter().filter(|field| !is_bytes(field)) {
            let room = (FIELDS_MAX - 1).saturating_sub(staged.steps.len() + 1);
            let room = (room, staged.taken.len());
            let behind = call.behind(&event.name, &event.fields, field, room);
            let takes_its_place = call.phase == Phase::Exit
                || matches!(field.behind, Some(Behind::Text | Behind::Texts));
            if behind.is_none() || !takes_its_place {
                let own = register(&call, field);
                staged.push(event, field, own, payload_max);
            }
            match (behind, &field.behind) {
                (Some(behind), _) => staged.push(event, field, Some(behind), payload_max),
                (None, Some(Behind::Bytes(_) | Behind::Texts) | None) => {}
                (None, Some(_)) if call.phase == Phase::Exit => {}
                (None, Some(_)) => staged.left_out.push(format!("*{}", field.name)),
            }
        }
        if staged.steps.iter().any(Step::is_users) {
            let kind = FieldKind::Scalar(Scalar::X8);
            let name = INCOMPLETE.to_owned();
            staged.description.fields.push(trackway_schema::Field { name, kind });
            staged.meanings.push(Meaning::Plain);
            staged.steps.push(Step::Incomplete);
        }
        staged
    }

    /// Adds what a step writes of a field, if there is room.
    fn push(&mut self, event: &Event, field: &Field, group: Option<Group>, payload_max: u32) {
        let group = group.filter(|group| {
            let taken: Vec<Taken> = self.taken.iter().chain(&group.taken).cloned().collect();
            let bytes: u32 = self.steps.iter().map(|step| step.all_bytes(&taken)).sum();
            let fields_max = if self.call.is_some() { FIELDS_MAX - 1 } else { FIELDS_MAX };
            self.steps.len() + group.fields.len() <= fields_max
                && bytes + group.step.all_bytes(&taken) <= payload_max
        });
        let Some(Group { fields, meanings, step, taken, left_out }) = group else {
            let has_address = self.description.fields.iter().any(|one| one.name == field.name);
            let front = if has_address { "*" } else { "" };
            self.left_out.push(format!("{front}{}", field.name));
            return;
        };
        self.taken.extend(taken);
        self.left_out.extend(left_out);
        for (number, mut described) in fields.into_iter().enumerate() {
            if described.name == field.name {
                described.name = field.lttng_name(event).to_owned();
            }
            self.description.fields.push(described);
            let is_itself = !step.is_users() && number == 0;
            let meaning = if is_itself { Some(&field.meaning) } else { meanings.get(number) };
            self.meanings.push(meaning.cloned().unwrap_or(Meaning::Plain));
            if is_itself && scope::is_thread(event, field) {
                self.threads.push(step);
            }
            self.steps.push(if number == 0 { step } else { Step::Within });
        }
    }

    /// Which arguments have something behind them that steps read, as the field `incomplete` has
    /// them: a bit for each.
    pub fn arguments_followed(&self) -> u8 {
        let arguments = self.call.map_or([None; 6], |call| call.arguments);
        let followed = self.steps.iter().filter_map(Step::follows);
        let numbers = followed.filter_map(|at| arguments.iter().position(|of| *of == Some(at)));
        numbers.fold(0, |bits, number| bits | 1 << number)
    }

    /// Most bytes of contexts and payload, with those that steps need beside what they add.
    pub fn bytes_max(&self) -> u32 {
        let steps = self.steps.iter().map(|step| step.all_bytes(&self.taken));
        self.contexts.bytes_max() + steps.sum::<u32>()
    }
}

impl Step {
    /// Most bytes of a record that it may write to.
    pub(super) fn all_bytes(&self, taken: &[Taken]) -> u32 {
        let own = match self {
            Self::Structure(..) | Self::Structures(..) => self.taken_bytes(taken),
            _ => self.bytes_max(),
        };
        own + self.aside_bytes(taken)
    }

    /// Whether it reads a program's memory.
    pub const fn is_users(&self) -> bool {
        self.follows().is_some()
    }

    /// Where the pointer is, if it reads a program's memory.
    pub const fn follows(&self) -> Option<u32> {
        match self {
            Self::Copy { .. } | Self::Register { .. } | Self::Text { .. } => None,
            Self::DynamicText(..) | Self::Dynamic(..) | Self::Within | Self::Incomplete => None,
            Self::Argument(_) | Self::Operation { .. } | Self::Unknown(_) => None,
            Self::UserText(at) | Self::UserTextAgain(at) => Some(*at),
            Self::UserTexts(pointer) | Self::User(pointer, _) => Some(pointer.at),
            Self::UserElements(pointer, ..) | Self::Message(pointer) => Some(pointer.at),
            Self::Structure(pointer, _) | Self::Structures(pointer, ..) => Some(pointer.at),
            Self::SocketAddress(pointer, _) => Some(pointer.at),
        }
    }
}

/// An argument as it stands in a register, or the result.
fn register(call: &Call, field: &Field) -> Option<Group> {
    let Kind::Integer(scalar) = field.kind else { return None };
    let offset = match call.phase {
        Phase::Enter => (*call.arguments.get(usize::from(field.argument?))?)?,
        Phase::Exit if field.name == "ret" => call.result,
        Phase::Exit => return None,
    };
    let size = scalar.size_bytes() as u32;
    let kind = FieldKind::Scalar(shown(scalar, &field.meaning));
    Some(Group::one(&field.name, kind, Step::Register { offset, size }))
}

/// Where registers are in `struct pt_regs`, in bytes; of x86-64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registers {
    /// Those of a call's arguments.
    pub arguments: [u32; 6],
    /// The same of one by its number of 32 bits: their lower halves.
    pub compat_arguments: [u32; 6],
    /// That of its result.
    pub result: u32,
    /// That of its number, which stays until it returns.
    pub number: u32,
    /// In `task_struct`: the thread's number, and what tells calls by the numbers that programs of
    /// 32 bits have.
    pub task: (u32, u32),
    /// What programs that read them have to have.
    pub guard: Option<Guard>,
}

impl Registers {
    /// As the kernel's types say; `None` where they say something else.
    pub fn of(btf: &Btf) -> Option<Self> {
        let all = btf.find(Class::Struct, "pt_regs")?;
        let at = |name: &str| Some(btf.place(all.id, name)?.bit_offset / 8);
        let all_at = |names: [&str; 6]| -> Option<[u32; 6]> {
            let mut places = [0; 6];
            for (place, name) in places.iter_mut().zip(names) {
                *place = at(name)?;
            }
            Some(places)
        };
        // The conventions of syscall(2) on x86-64 and i386.
        let arguments = all_at(["di", "si", "dx", "r10", "r8", "r9"])?;
        let compat_arguments = all_at(["bx", "cx", "dx", "si", "di", "bp"])?;
        let (result, number) = (at("ax")?, at("orig_ax")?);
        let thread = btf.find(Class::Struct, "task_struct")?;
        let of_thread = |name: &str| Some(btf.place(thread.id, name)?.bit_offset / 8);
        let task = (of_thread("pid")?, of_thread("thread_info.status")?);
        let guard = Guard::needed(btf).ok()?;
        Some(Self { arguments, compat_arguments, result, number, task, guard })
    }
}

/// `None`: it cannot be recorded.
fn step_of(field: &Field) -> Option<(FieldKind, Step)> {
    let &Field { offset, size, .. } = field;
    let copy = Step::Copy { offset, size };
    let elements = |scalar: Scalar, count: u32| {
        let count =
            u16::try_from(count).ok().filter(|count| (1..=ARRAY_LENGTH_MAX).contains(count));
        let is_so_long = |count: &u16| u32::from(*count) * scalar.size_bytes() as u32 == size;
        Some((FieldKind::Array(scalar, count.filter(is_so_long)?), copy))
    };
    match field.kind {
        Kind::Integer(scalar) if size == 0 => {
            let kind = FieldKind::Scalar(shown(scalar, &field.meaning));
            Some((kind, Step::Unknown(scalar.size_bytes() as u32)))
        }
        Kind::Operation(size) => {
            Some((FieldKind::Scalar(Scalar::X32), Step::Operation { offset, size }))
        }
        // What is a flag to the kernel is a number of bytes to us.
        _ if size == 0 => None,
        Kind::Integer(scalar) if scalar.size_bytes() as u32 <= size => {
            let size = scalar.size_bytes() as u32;
            Some((FieldKind::Scalar(shown(scalar, &field.meaning)), Step::Copy { offset, size }))
        }
        Kind::Array(scalar, count) => elements(shown(scalar, &field.meaning), count),
        Kind::Bytes(count) => elements(Scalar::X8, count),
        Kind::Text(size) if size <= VARIABLE_BYTES_MAX => {
            Some((FieldKind::Str, Step::Text { offset, size }))
        }
        Kind::DynamicText(location) => Some((FieldKind::Str, Step::DynamicText(offset, location))),
        Kind::Dynamic(scalar, location) => {
            let step = Step::Dynamic(offset, location, scalar.size_bytes() as u32);
            Some((FieldKind::Sequence(shown(scalar, &field.meaning)), step))
        }
        Kind::Bitmask(location) => {
            Some((FieldKind::Sequence(Scalar::X64), Step::Dynamic(offset, location, 8)))
        }
        Kind::Integer(_) | Kind::Text(_) | Kind::Trailing(_) | Kind::TrailingText => None,
    }
}

/// A scalar as its meaning has it shown.
fn shown(scalar: Scalar, meaning: &Meaning) -> Scalar {
    match meaning {
        Meaning::Hexadecimal
        | Meaning::Address
        | Meaning::Code
        | Meaning::KernelText
        | Meaning::Uuid
        | Meaning::Mac
        | Meaning::Internet
        | Meaning::Request => hexadecimal(scalar),
        // Numbers, as LTTng's, which analyses reckon with; what they are called is said beside
        // them. Of an enumeration in CTF readers get the names, and no number.
        Meaning::Symbols(symbols) if !symbols.is_enumeration(scalar.size_bytes()) => {
            hexadecimal(scalar)
        }
        // Mostly an address.
        Meaning::SymbolsBehind(_) if scalar == Scalar::U64 => Scalar::X64,
        _ => scalar,
    }
}

const fn hexadecimal(scalar: Scalar) -> Scalar {
    match scalar.size_bytes() {
        1 => Scalar::X8,
        2 => Scalar::X16,
        4 => Scalar::X32,
        _ => Scalar::X64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::model::{Length, Member, Structure};

    fn field(name: &str, kind: Kind, size: u32) -> Field {
        Field {
            name: name.into(),
            type_text: String::new(),
            kind,
            offset: 0,
            size,
            meaning: Meaning::Plain,
            argument: None,
            behind: None,
        }
    }

    fn event(source: Source, fields: Vec<Field>) -> Event {
        Event { subsystem: "made".into(), name: "made_up".into(), id: None, source, fields }
    }

    #[test]
    fn each_field_is_recorded_or_named_among_those_left_out() {
        let number = || Kind::Integer(Scalar::U32);
        let mut fields = vec![field("rest", Kind::TrailingText, 0), field("some", number(), 4)];
        fields.push(field("long", Kind::Text(VARIABLE_BYTES_MAX + 1), VARIABLE_BYTES_MAX + 1));
        fields.push(field("end", Kind::Trailing(Scalar::U8), 1));
        fields.extend((0..FIELDS_MAX).map(|at| field(&format!("n{at}"), number(), 4)));
        let count = fields.len();
        let staged = Staged::new(&event(Source::Tracepoint, fields.clone()), 3500);
        assert_eq!(staged.description.fields.len(), FIELDS_MAX);
        let last = format!("n{}", FIELDS_MAX - 1);
        assert_eq!(staged.left_out, ["rest", "long", "end", &last]);
        let staged = Staged::new(&event(Source::Tracepoint, fields), 40);
        assert_eq!(staged.description.fields.len(), 10);
        assert_eq!(staged.left_out.len(), count - 10);
    }

    /// RUN a call with a structure that has a member too many, and one that is too large. EXPECT
    /// both named, the latter as what its address leads to.
    #[test]
    fn what_is_left_out_behind_an_address_is_named_too() {
        let member = |at: u32| Member {
            name: format!("m{at}"),
            offset: 4 * at,
            scalar: Scalar::U32,
            count: 1,
        };
        let count = FIELDS_MAX as u32;
        let structure = |bytes| {
            let members = (0..count).map(member).collect();
            let of = Structure { name: "made".into(), bytes, members };
            Some(Behind::Structures(of.into(), Length::Fixed(1)))
        };
        let argument = |name: &str, number, bytes| Field {
            argument: Some(number),
            behind: structure(bytes),
            ..field(name, Kind::Integer(Scalar::U64), 8)
        };
        let source = Source::Syscall { number: Some(1), phase: Phase::Enter, is_compat: false };
        let large = 4 * crate::record::behind::TAKEN_BYTES_MAX;
        let made = event(source, vec![argument("a", 0, large), argument("b", 1, 4 * count)]);
        let staged = Staged::new(&made, 3500);
        let fields = &staged.description.fields;
        assert_eq!((&*fields[0].name, &*fields[1].name, &*fields[2].name), ("a", "b", "b_m0"));
        // Two addresses, and what says of which something is missing.
        let there = FIELDS_MAX - 3;
        let left_out: Vec<String> = (there..FIELDS_MAX).map(|at| format!("b_m{at}")).collect();
        assert_eq!((fields.len(), &staged.left_out[0]), (FIELDS_MAX, &"*a".to_owned()));
        assert_eq!(staged.left_out[1..], left_out);
    }
}
