//! The plan by which an event is recorded: its description in traces, and for each field the step
//! of a program that writes it.

use trackway_schema::{ARRAY_LENGTH_MAX, EventDescription, FIELDS_MAX, FieldKind, Scalar};

use super::arguments::{self, ArgumentRead};
use super::contexts::Contexts;
use super::kernel_version::PreemptionGuard;
use super::pointer_fields::{
    CallLayout, ElementCount, FieldGroup, INCOMPLETE, RecordedStructure, SOCKET_FIELDS_BYTES_MAX,
    TEXTS_BYTES_MAX, USER_TEXT_BYTES_MAX, UserPointer,
};
pub use super::registers::RegisterLayout;
use super::scope::{self, ScopeMaps};
use crate::catalogue::btf::Btf;
use crate::catalogue::model::{
    Event, Field, FieldShape, Location, Meaning, Phase, Pointee, Source,
};

/// Longest text with its NUL, and longest sequence, in bytes.
pub const VARIABLE_BYTES_MAX: u32 = 256;
/// LTTng's log level of kernel events.
const KERNEL_EVENT_LEVEL: u8 = 6;

/// The data that the offsets of steps refer to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataSource {
    /// The record that the tracepoint passes to a program.
    Tracepoint,
    /// The registers of a system call, from its raw tracepoint.
    Registers,
    /// The arguments of the raw tracepoint.
    Arguments,
}

/// The plan for recording an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventPlan {
    /// The data that the offsets of steps refer to.
    pub data_source: DataSource,
    /// Contexts before the fields: at least `tid`.
    pub contexts: Contexts,
    /// The event's description in traces: LTTng's name, without a provider.
    pub description: EventDescription,
    /// Meanings of the description's fields, in their order.
    pub meanings: Vec<Meaning>,
    /// The program's steps, one for each field, in order.
    pub steps: Vec<Step>,
    /// Steps that load the id of a thread that the event concerns.
    pub threads: Vec<Step>,
    /// Structures whose members steps record.
    pub structures: Vec<RecordedStructure>,
    /// The layout of a system call's arguments; `None` for other events.
    pub call: Option<CallLayout>,
    /// The set of threads whose current call has texts that were unreadable at its entry. `None`:
    /// the recording has no such set.
    pub unread_threads: Option<ScopeMaps>,
    /// Names of fields that are not recorded. `*NAME` is the pointee of an argument that is
    /// recorded as an address only. Byte buffers of read and write calls, and the environment, are
    /// never recorded and not listed.
    pub omitted_fields: Vec<String>,
    /// The guard against preemption, if the program needs one.
    pub guard: Option<PreemptionGuard>,
    /// The version of this program. Only the version that the buffers select records events
    /// ([`super::buffers::Buffers::set_version`]).
    pub version: u32,
}

/// The part of a program that records a field. Offsets refer to the event's [`DataSource`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Copies bytes.
    Copy {
        /// The offset of the data.
        offset: u32,
        /// The size in bytes.
        size: u32,
    },
    /// Copies the lowest bytes of a register.
    Register {
        /// The offset of the register.
        offset: u32,
        /// The size in bytes.
        size: u32,
    },
    /// Copies text from an array.
    Text {
        /// The offset of the data.
        offset: u32,
        /// Most bytes, with the NUL.
        size: u32,
    },
    /// Copies text from the location that the word at this offset gives.
    DynamicText(u32, Location),
    /// Writes a number of integers and copies the integers, of this size, from the location that
    /// the word at this offset gives.
    DynamicArray(u32, Location, u32),
    /// Copies user text whose address is at this offset.
    UserText(u32),
    /// At the exit, copies user text that was unreadable at the entry: a number, 0 or 1, and the
    /// text.
    UserTextRetry(u32),
    /// Converts the letters of a block request to flags.
    RequestFlags {
        /// The offset of the data.
        offset: u32,
        /// The size in bytes.
        size: u32,
    },
    /// Writes this many zero bytes, for a number that the data source does not have.
    Zeros(u32),
    /// Copies an argument, or a value that the argument points to.
    Argument(ArgumentRead),
    /// Copies texts whose addresses are in an array at the pointer, up to a null address.
    UserTexts(UserPointer),
    /// Copies this many bytes of user memory.
    UserBytes(UserPointer, u32),
    /// Writes the number of elements and copies the elements of this size.
    UserElements(UserPointer, ElementCount, u32),
    /// Copies the members of the structure with this index.
    Structure(UserPointer, u8),
    /// Copies the members of several structures: for each member, the number of elements and the
    /// elements.
    Structures(UserPointer, ElementCount, u8),
    /// Copies the parts of a socket address of this length.
    SocketAddress(UserPointer, ElementCount),
    /// Copies the parts of the socket address that a `struct msghdr` leads to.
    Message(UserPointer),
    /// Writes nothing: the previous step has written the field.
    PartOfPrevious,
    /// Writes a mask of the arguments whose data is incomplete.
    Incomplete,
}

impl Step {
    /// Returns the most bytes that the step adds to a record, without bytes of structures.
    pub const fn bytes_max(&self) -> u32 {
        match self {
            Self::Copy { size, .. } | Self::Text { size, .. } | Self::Register { size, .. } => {
                *size
            }
            // One byte more than recorded shows whether the text is longer.
            Self::DynamicText(..) => VARIABLE_BYTES_MAX + 1,
            Self::DynamicArray(..) | Self::UserElements(..) => 4 + VARIABLE_BYTES_MAX,
            Self::UserText(_) => USER_TEXT_BYTES_MAX + 1,
            Self::UserTextRetry(_) => 4 + USER_TEXT_BYTES_MAX + 1,
            Self::UserTexts(_) => 4 + TEXTS_BYTES_MAX + 1,
            Self::UserBytes(_, size) => *size,
            Self::SocketAddress(..) | Self::Message(_) => SOCKET_FIELDS_BYTES_MAX,
            Self::Structure(..) | Self::Structures(..) | Self::PartOfPrevious => 0,
            Self::Incomplete => 1,
            Self::Argument(read) => read.bytes_max(),
            Self::RequestFlags { .. } => 4,
            Self::Zeros(bytes) => *bytes,
        }
    }
}

impl EventPlan {
    /// Returns true if a field is text in user memory, which may be unreadable when the event is
    /// recorded.
    pub fn may_be_unknown(&self, field: &str) -> bool {
        let mut fields = self.description.fields.iter().zip(&self.steps);
        fields.any(|(of, step)| of.name == field && matches!(step, Step::UserText(_)))
    }

    /// Returns the fields of the plan that are always zero.
    pub fn unknown_fields(&self) -> impl Iterator<Item = &str> {
        let fields = self.description.fields.iter().zip(&self.steps);
        let unknown = fields.filter(|(_, step)| matches!(step, Step::Zeros(_)));
        unknown.map(|(field, _)| field.name.as_str())
    }

    /// Plans an event from its tracepoint's record, with at most `payload_max` bytes of payload.
    pub fn from_record(event: &Event, payload_max: u32) -> Self {
        Self::from_record_steps(event, payload_max, |step| !matches!(step, Step::Zeros(_)))
    }

    /// Plans an event like [`Self::from_record`], with additional fields that the record does not
    /// have: these fields are zero.
    pub fn from_record_with_unknown(event: &Event, payload_max: u32) -> Self {
        Self::from_record_steps(event, payload_max, |_| true)
    }

    fn from_record_steps(
        event: &Event,
        payload_max: u32,
        is_taken: impl Fn(&Step) -> bool,
    ) -> Self {
        let Source::Syscall { phase, .. } = event.source else {
            let mut plan = Self::empty(event, DataSource::Tracepoint, None);
            for field in &event.fields {
                let step = step_for(field).filter(|(_, step)| is_taken(step));
                let group = step.map(|(kind, step)| FieldGroup::single(&field.name, kind, step));
                plan.add_group(event, field, group, payload_max);
            }
            return plan;
        };
        let mut arguments = [None; 6];
        for field in event.fields.iter().filter(|field| field.size > 0) {
            let place = field.argument.and_then(|number| arguments.get_mut(usize::from(number)));
            place.into_iter().for_each(|place| *place = Some(field.offset));
        }
        let result = event.fields.first().map_or(0, |field| field.offset);
        Self::from_call(
            event,
            DataSource::Tracepoint,
            payload_max,
            CallLayout { phase, arguments, result, number: 0, is_compat: false },
        )
    }

    /// Plans a system call from its registers. `None`: the event is not a system call, or has no
    /// number.
    pub fn from_registers(
        event: &Event,
        registers: &RegisterLayout,
        payload_max: u32,
    ) -> Option<Self> {
        let Source::Syscall { number: Some(_), phase, is_compat } = event.source else {
            return None;
        };
        let arguments =
            if is_compat { registers.compat_arguments } else { registers.arguments }.map(Some);
        let (result, number) = (registers.result, registers.number);
        let call = CallLayout { phase, arguments, result, number, is_compat };
        let plan = Self::from_call(event, DataSource::Registers, payload_max, call);
        Some(Self { guard: registers.guard, ..plan })
    }

    /// Plans an event from the arguments of its raw tracepoint, with all fields that
    /// [`Self::from_record`] describes. `None`: the sources of some fields in the arguments are
    /// unknown.
    pub fn from_arguments(event: &Event, btf: &Btf, payload_max: u32) -> Option<Self> {
        let mut reads = arguments::find_reads(event, btf)?.into_iter();
        let mut plan = Self::empty(event, DataSource::Arguments, None);
        plan.guard = PreemptionGuard::find_if_needed(btf).ok()?;
        for field in &event.fields {
            let read = reads.next();
            let group = step_for(field).zip(read).map(|((kind, _), read)| {
                FieldGroup::single(&field.name, kind, Step::Argument(read))
            });
            plan.add_group(event, field, group, payload_max);
        }
        plan.omitted_fields.is_empty().then_some(plan)
    }

    fn empty(event: &Event, data_source: DataSource, call: Option<CallLayout>) -> Self {
        Self {
            data_source,
            contexts: Contexts::default(),
            description: EventDescription {
                provider: String::new(),
                name: event.lttng_name().into_owned(),
                level: KERNEL_EVENT_LEVEL,
                fields: Vec::new(),
            },
            meanings: Vec::new(),
            steps: Vec::new(),
            threads: Vec::new(),
            structures: Vec::new(),
            call,
            unread_threads: None,
            omitted_fields: Vec::new(),
            guard: None,
            version: 0,
        }
    }

    fn from_call(
        event: &Event,
        data_source: DataSource,
        payload_max: u32,
        call: CallLayout,
    ) -> Self {
        let mut plan = Self::empty(event, data_source, Some(call));
        // The last step, `incomplete`, may add one byte.
        let payload_max = payload_max.saturating_sub(1);
        // Bytes that a call has read are not recorded; the call's entry has recorded their address.
        let is_bytes = |field: &&Field| {
            let bytes = matches!(field.pointee, Some(Pointee::Bytes(_) | Pointee::Vectors(_)));
            bytes && call.phase == Phase::Exit
        };
        for field in event.fields.iter().filter(|field| !is_bytes(field)) {
            let room = (FIELDS_MAX - 1).saturating_sub(plan.steps.len() + 1);
            let room = (room, plan.structures.len());
            let pointee = call.pointee_group(&event.name, &event.fields, field, room);
            let takes_its_place = call.phase == Phase::Exit
                || matches!(field.pointee, Some(Pointee::Text | Pointee::Texts));
            if pointee.is_none() || !takes_its_place {
                let own = register_group(&call, field);
                plan.add_group(event, field, own, payload_max);
            }
            match (pointee, &field.pointee) {
                (Some(group), _) => plan.add_group(event, field, Some(group), payload_max),
                (None, Some(Pointee::Bytes(_) | Pointee::Texts) | None) => {}
                (None, Some(_)) if call.phase == Phase::Exit => {}
                (None, Some(_)) => plan.omitted_fields.push(format!("*{}", field.name)),
            }
        }
        if plan.steps.iter().any(Step::reads_user_memory) {
            let kind = FieldKind::Scalar(Scalar::X8);
            let name = INCOMPLETE.to_owned();
            plan.description.fields.push(trackway_schema::Field { name, kind });
            plan.meanings.push(Meaning::Plain);
            plan.steps.push(Step::Incomplete);
        }
        plan
    }

    /// Adds the fields that a step writes, if there is room.
    fn add_group(
        &mut self,
        event: &Event,
        field: &Field,
        group: Option<FieldGroup>,
        payload_max: u32,
    ) {
        let group = group.filter(|group| {
            let structures: Vec<RecordedStructure> =
                self.structures.iter().chain(&group.structure).cloned().collect();
            let bytes: u32 = self.steps.iter().map(|step| step.total_bytes_max(&structures)).sum();
            let fields_max = if self.call.is_some() { FIELDS_MAX - 1 } else { FIELDS_MAX };
            self.steps.len() + group.fields.len() <= fields_max
                && bytes + group.step.total_bytes_max(&structures) <= payload_max
        });
        let Some(FieldGroup { fields, meanings, step, structure, omitted }) = group else {
            let has_address = self.description.fields.iter().any(|one| one.name == field.name);
            let front = if has_address { "*" } else { "" };
            self.omitted_fields.push(format!("{front}{}", field.name));
            return;
        };
        self.structures.extend(structure);
        self.omitted_fields.extend(omitted);
        for (number, mut described) in fields.into_iter().enumerate() {
            if described.name == field.name {
                described.name = field.lttng_name(event).to_owned();
            }
            self.description.fields.push(described);
            let is_itself = !step.reads_user_memory() && number == 0;
            let meaning = if is_itself { Some(&field.meaning) } else { meanings.get(number) };
            self.meanings.push(meaning.cloned().unwrap_or(Meaning::Plain));
            if is_itself && scope::is_thread_id(event, field) {
                self.threads.push(step);
            }
            self.steps.push(if number == 0 { step } else { Step::PartOfPrevious });
        }
    }

    /// Returns a mask of the arguments whose pointees steps read, in the format of field
    /// `incomplete`.
    pub fn followed_arguments_mask(&self) -> u8 {
        let arguments = self.call.map_or([None; 6], |call| call.arguments);
        let followed = self.steps.iter().filter_map(Step::pointer_offset);
        let numbers = followed.filter_map(|at| arguments.iter().position(|of| *of == Some(at)));
        numbers.fold(0, |bits, number| bits | 1 << number)
    }

    /// Returns the most bytes of contexts and payload, including the scratch bytes of steps.
    pub fn bytes_max(&self) -> u32 {
        let steps = self.steps.iter().map(|step| step.total_bytes_max(&self.structures));
        self.contexts.bytes_max() + steps.sum::<u32>()
    }
}

impl Step {
    /// Returns the most bytes of a record that the step may write to.
    pub(super) fn total_bytes_max(&self, structures: &[RecordedStructure]) -> u32 {
        let own = match self {
            Self::Structure(..) | Self::Structures(..) => self.structure_bytes(structures),
            _ => self.bytes_max(),
        };
        own + self.scratch_bytes(structures)
    }

    /// Returns true if the step reads user memory.
    pub const fn reads_user_memory(&self) -> bool {
        self.pointer_offset().is_some()
    }

    /// Returns the offset of the step's pointer, if the step reads user memory.
    pub const fn pointer_offset(&self) -> Option<u32> {
        match self {
            Self::Copy { .. } | Self::Register { .. } | Self::Text { .. } => None,
            Self::DynamicText(..)
            | Self::DynamicArray(..)
            | Self::PartOfPrevious
            | Self::Incomplete => None,
            Self::Argument(_) | Self::RequestFlags { .. } | Self::Zeros(_) => None,
            Self::UserText(at) | Self::UserTextRetry(at) => Some(*at),
            Self::UserTexts(pointer) | Self::UserBytes(pointer, _) => Some(pointer.at),
            Self::UserElements(pointer, ..) | Self::Message(pointer) => Some(pointer.at),
            Self::Structure(pointer, _) | Self::Structures(pointer, ..) => Some(pointer.at),
            Self::SocketAddress(pointer, _) => Some(pointer.at),
        }
    }
}

/// Returns the field of an argument in a register, or of the call's result.
fn register_group(call: &CallLayout, field: &Field) -> Option<FieldGroup> {
    let FieldShape::Integer(scalar) = field.kind else { return None };
    let offset = match call.phase {
        Phase::Enter => (*call.arguments.get(usize::from(field.argument?))?)?,
        Phase::Exit if field.name == "ret" => call.result,
        Phase::Exit => return None,
    };
    let size = scalar.size_bytes() as u32;
    let kind = FieldKind::Scalar(displayed_scalar(scalar, &field.meaning));
    Some(FieldGroup::single(&field.name, kind, Step::Register { offset, size }))
}

/// Returns the kind and the step of a field; `None`: the field cannot be recorded.
fn step_for(field: &Field) -> Option<(FieldKind, Step)> {
    let &Field { offset, size, .. } = field;
    let copy = Step::Copy { offset, size };
    let elements = |scalar: Scalar, count: u32| {
        let count =
            u16::try_from(count).ok().filter(|count| (1..=ARRAY_LENGTH_MAX).contains(count));
        let is_so_long = |count: &u16| u32::from(*count) * scalar.size_bytes() as u32 == size;
        Some((FieldKind::Array(scalar, count.filter(is_so_long)?), copy))
    };
    match field.kind {
        FieldShape::Integer(scalar) if size == 0 => {
            let kind = FieldKind::Scalar(displayed_scalar(scalar, &field.meaning));
            Some((kind, Step::Zeros(scalar.size_bytes() as u32)))
        }
        FieldShape::RequestFlags(size) => {
            Some((FieldKind::Scalar(Scalar::X32), Step::RequestFlags { offset, size }))
        }
        // A size of zero marks a field without data.
        _ if size == 0 => None,
        FieldShape::Integer(scalar) if scalar.size_bytes() as u32 <= size => {
            let size = scalar.size_bytes() as u32;
            Some((
                FieldKind::Scalar(displayed_scalar(scalar, &field.meaning)),
                Step::Copy { offset, size },
            ))
        }
        FieldShape::Array(scalar, count) => {
            elements(displayed_scalar(scalar, &field.meaning), count)
        }
        FieldShape::Bytes(count) => elements(Scalar::X8, count),
        FieldShape::Text(size) if size <= VARIABLE_BYTES_MAX => {
            Some((FieldKind::Str, Step::Text { offset, size }))
        }
        FieldShape::DynamicText(location) => {
            Some((FieldKind::Str, Step::DynamicText(offset, location)))
        }
        FieldShape::Dynamic(scalar, location) => {
            let step = Step::DynamicArray(offset, location, scalar.size_bytes() as u32);
            Some((FieldKind::Sequence(displayed_scalar(scalar, &field.meaning)), step))
        }
        FieldShape::Bitmask(location) => {
            Some((FieldKind::Sequence(Scalar::X64), Step::DynamicArray(offset, location, 8)))
        }
        FieldShape::Integer(_)
        | FieldShape::Text(_)
        | FieldShape::Trailing(_)
        | FieldShape::TrailingText => None,
    }
}

/// Returns the scalar in which readers display a value of this meaning well.
fn displayed_scalar(scalar: Scalar, meaning: &Meaning) -> Scalar {
    match meaning {
        Meaning::Hexadecimal
        | Meaning::Address
        | Meaning::Code
        | Meaning::KernelText
        | Meaning::Uuid
        | Meaning::Mac
        | Meaning::Internet
        | Meaning::Request => hexadecimal_of(scalar),
        // Plain numbers, as in LTTng, because analyses calculate with them. For a CTF enumeration,
        // readers would get only the names; the trace stores the names next to the numbers.
        Meaning::Symbols(symbols) if !symbols.is_enumeration(scalar.size_bytes()) => {
            hexadecimal_of(scalar)
        }
        // A 64-bit value with dependent symbols is usually an address.
        Meaning::DependentSymbols(_) if scalar == Scalar::U64 => Scalar::X64,
        _ => scalar,
    }
}

const fn hexadecimal_of(scalar: Scalar) -> Scalar {
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

    fn build_field(name: &str, kind: FieldShape, size: u32) -> Field {
        Field {
            name: name.into(),
            type_text: String::new(),
            kind,
            offset: 0,
            size,
            meaning: Meaning::Plain,
            argument: None,
            pointee: None,
        }
    }

    fn build_event(source: Source, fields: Vec<Field>) -> Event {
        Event { subsystem: "made".into(), name: "made_up".into(), id: None, source, fields }
    }

    #[test]
    fn each_field_is_recorded_or_omitted() {
        let number = || FieldShape::Integer(Scalar::U32);
        let mut fields = vec![
            build_field("rest", FieldShape::TrailingText, 0),
            build_field("some", number(), 4),
        ];
        fields.push(build_field(
            "long",
            FieldShape::Text(VARIABLE_BYTES_MAX + 1),
            VARIABLE_BYTES_MAX + 1,
        ));
        fields.push(build_field("end", FieldShape::Trailing(Scalar::U8), 1));
        fields.extend((0..FIELDS_MAX).map(|at| build_field(&format!("n{at}"), number(), 4)));
        let count = fields.len();
        let plan = EventPlan::from_record(&build_event(Source::Tracepoint, fields.clone()), 3500);
        assert_eq!(plan.description.fields.len(), FIELDS_MAX);
        let last = format!("n{}", FIELDS_MAX - 1);
        assert_eq!(plan.omitted_fields, ["rest", "long", "end", &last]);
        let plan = EventPlan::from_record(&build_event(Source::Tracepoint, fields), 40);
        assert_eq!(plan.description.fields.len(), 10);
        assert_eq!(plan.omitted_fields.len(), count - 10);
    }

    /// RUN a call with a structure with one member too many, and a structure that is too large.
    /// EXPECT both in the list of omitted fields, the large structure as a pointee.
    #[test]
    fn omitted_pointees_are_listed() {
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
            Some(Pointee::Structures(of.into(), Length::Fixed(1)))
        };
        let argument = |name: &str, number, bytes| Field {
            argument: Some(number),
            pointee: structure(bytes),
            ..build_field(name, FieldShape::Integer(Scalar::U64), 8)
        };
        let source = Source::Syscall { number: Some(1), phase: Phase::Enter, is_compat: false };
        let large = 4 * crate::bpf_program::pointer_fields::STRUCTURES_BYTES_MAX;
        let made = build_event(source, vec![argument("a", 0, large), argument("b", 1, 4 * count)]);
        let plan = EventPlan::from_record(&made, 3500);
        let fields = &plan.description.fields;
        assert_eq!((&*fields[0].name, &*fields[1].name, &*fields[2].name), ("a", "b", "b_m0"));
        // Two addresses and the mask take three fields.
        let there = FIELDS_MAX - 3;
        let omitted_fields: Vec<String> =
            (there..FIELDS_MAX).map(|at| format!("b_m{at}")).collect();
        assert_eq!((fields.len(), &plan.omitted_fields[0]), (FIELDS_MAX, &"*a".to_owned()));
        assert_eq!(plan.omitted_fields[1..], omitted_fields);
    }
}
