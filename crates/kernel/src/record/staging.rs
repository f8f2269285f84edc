//! What is recorded of an event, and from where: the event's description, as traces have it, and
//! for each of its fields what a program does.

use trackway_schema::{ARRAY_LENGTH_MAX, EventDescription, FIELDS_MAX, FieldKind, Label, Scalar};

use super::arguments::{self, Read};
use super::context::Contexts;
use super::release::Guard;
use super::scope;
use crate::catalogue::btf::{Btf, Class};
use crate::catalogue::model::Symbols;
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
    /// What a program does for each field, in order.
    pub steps: Vec<Step>,
    /// Those of the steps that are numbers of threads that it is about.
    pub threads: Vec<Step>,
    /// Names of fields that are not recorded.
    pub left_out: Vec<String>,
    /// What keeps its program from being preempted, if it has to.
    pub guard: Option<Guard>,
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
    /// Reads what an argument is, or has behind it.
    Argument(Read),
}

impl Step {
    /// Most bytes that it adds to a record.
    pub const fn bytes_max(&self) -> u32 {
        match self {
            Self::Copy { size, .. } | Self::Text { size, .. } | Self::Register { size, .. } => {
                *size
            }
            Self::DynamicText(..) | Self::UserText(_) => VARIABLE_BYTES_MAX,
            Self::Dynamic(..) => 4 + VARIABLE_BYTES_MAX,
            Self::Argument(read) => read.bytes_max(),
        }
    }
}

impl Staged {
    /// How an event is recorded, in so many bytes at most.
    pub fn new(event: &Event, payload_max: u32) -> Self {
        let is_entry = matches!(event.source, Source::Syscall { phase: Phase::Enter, .. });
        let of = |field: &Field| step_of(field, is_entry);
        Self::make(event, Ground::Tracepoint, payload_max, of)
    }

    /// The same of a system call, from its registers; `None` if it is none, or has no number.
    pub fn of_call(event: &Event, registers: &Registers, payload_max: u32) -> Option<Self> {
        let Source::Syscall { number: Some(_), phase } = event.source else { return None };
        let of = |field: &Field| registers.step_of(field, phase);
        let staged = Self::make(event, Ground::Registers, payload_max, of);
        Some(Self { guard: registers.guard, ..staged })
    }

    /// The same of any event from the arguments of its raw tracepoint: all of its fields, as
    /// [`Self::new`] describes them. `None`: it is not known where they are.
    pub fn of_arguments(event: &Event, btf: &Btf, payload_max: u32) -> Option<Self> {
        let mut reads = arguments::of(event, btf)?.into_iter();
        let of = |field: &Field, read: Option<Read>| {
            let (kind, _) = step_of(field, false)?;
            Some((kind, Step::Argument(read?)))
        };
        let guard = Guard::needed(btf).ok()?;
        let staged =
            Self::make(event, Ground::Arguments, payload_max, |field| of(field, reads.next()));
        staged.left_out.is_empty().then_some(Self { guard, ..staged })
    }

    fn make(
        event: &Event,
        ground: Ground,
        payload_max: u32,
        mut step_of: impl FnMut(&Field) -> Option<(FieldKind, Step)>,
    ) -> Self {
        let mut staged = Self {
            ground,
            contexts: Contexts::default(),
            description: EventDescription {
                provider: String::new(),
                name: event.lttng_name().into_owned(),
                level: LEVEL,
                fields: Vec::new(),
            },
            meanings: Vec::new(),
            threads: Vec::new(),
            steps: Vec::new(),
            left_out: Vec::new(),
            guard: None,
        };
        let mut bytes = 0;
        for field in &event.fields {
            let made = step_of(field).filter(|(_, step)| {
                staged.steps.len() < FIELDS_MAX && bytes + step.bytes_max() <= payload_max
            });
            let Some((kind, step)) = made else {
                staged.left_out.push(field.name.clone());
                continue;
            };
            bytes += step.bytes_max();
            let name = field.lttng_name(event).to_owned();
            staged.description.fields.push(trackway_schema::Field { name, kind });
            staged.meanings.push(field.meaning.clone());
            if scope::is_thread(event, field) {
                staged.threads.push(step);
            }
            staged.steps.push(step);
        }
        staged
    }

    /// Most bytes of contexts and payload.
    pub fn bytes_max(&self) -> u32 {
        self.contexts.bytes_max() + self.steps.iter().map(Step::bytes_max).sum::<u32>()
    }
}

/// Where registers are in `struct pt_regs`, in bytes; of x86-64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registers {
    /// Those of a call's arguments.
    pub arguments: [u32; 6],
    /// That of its result.
    pub result: u32,
    /// That of its number, which stays until it returns.
    pub number: u32,
    /// That which tells programs of 32 bits, whose calls have other numbers.
    pub code_segment: u32,
    /// What programs that read them have to have.
    pub guard: Option<Guard>,
}

impl Registers {
    /// As the kernel's types say; `None` where they say something else.
    pub fn of(btf: &Btf) -> Option<Self> {
        let all = btf.find(Class::Struct, "pt_regs")?;
        let at = |name: &str| Some(btf.place(all.id, name)?.bit_offset / 8);
        // x86-64 syscall(2) convention.
        let mut arguments = [0; 6];
        for (argument, name) in arguments.iter_mut().zip(["di", "si", "dx", "r10", "r8", "r9"]) {
            *argument = at(name)?;
        }
        let (result, number, code_segment) = (at("ax")?, at("orig_ax")?, at("cs")?);
        let guard = Guard::needed(btf).ok()?;
        Some(Self { arguments, result, number, code_segment, guard })
    }

    fn step_of(&self, field: &Field, phase: Phase) -> Option<(FieldKind, Step)> {
        let Kind::Integer(scalar) = field.kind else { return None };
        let offset = match phase {
            Phase::Enter => *self.arguments.get(usize::from(field.argument?))?,
            Phase::Exit if field.name == "ret" => self.result,
            Phase::Exit => return None,
        };
        if phase == Phase::Enter && matches!(field.behind, Some(Behind::Text)) {
            return Some((FieldKind::Str, Step::UserText(offset)));
        }
        let size = scalar.size_bytes() as u32;
        Some((kind_of(scalar, &field.meaning), Step::Register { offset, size }))
    }
}

/// `None`: it cannot be recorded.
fn step_of(field: &Field, is_entry: bool) -> Option<(FieldKind, Step)> {
    let &Field { offset, size, .. } = field;
    let copy = Step::Copy { offset, size };
    let elements = |scalar: Scalar, count: u32| {
        let count =
            u16::try_from(count).ok().filter(|count| (1..=ARRAY_LENGTH_MAX).contains(count));
        let is_so_long = |count: &u16| u32::from(*count) * scalar.size_bytes() as u32 == size;
        Some((FieldKind::Array(scalar, count.filter(is_so_long)?), copy))
    };
    match field.kind {
        // What is a flag to the kernel is a number of bytes to us.
        _ if size == 0 => None,
        Kind::Integer(_) if is_entry && matches!(field.behind, Some(Behind::Text)) => {
            Some((FieldKind::Str, Step::UserText(offset)))
        }
        // Of an argument of a system call, which has a register, the lowest bytes.
        Kind::Integer(scalar) if scalar.size_bytes() as u32 <= size => {
            let size = scalar.size_bytes() as u32;
            Some((kind_of(scalar, &field.meaning), Step::Copy { offset, size }))
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

fn kind_of(scalar: Scalar, meaning: &Meaning) -> FieldKind {
    match meaning {
        Meaning::Symbols(symbols) => match labels_of(symbols) {
            Some(labels) => FieldKind::Enumeration(scalar, labels),
            None => FieldKind::Scalar(hexadecimal(scalar)),
        },
        _ => FieldKind::Scalar(shown(scalar, meaning)),
    }
}

/// Of a plain enumeration.
fn labels_of(symbols: &Symbols) -> Option<Vec<Label>> {
    let is_plain = symbols.flags.is_empty() && (1..=64).contains(&symbols.choices.len());
    let label = |symbol: &crate::catalogue::model::Symbol| {
        let value = symbol.value.cast_signed();
        Label { name: symbol.name.clone().into_owned(), first: value, last: value }
    };
    is_plain.then(|| symbols.choices.iter().map(label).collect())
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
