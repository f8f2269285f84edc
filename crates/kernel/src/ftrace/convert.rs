//! Records of tracefs, turned into those that BPF programs make ([`crate::record::program`]): the
//! same description, the same bytes, but for what is behind a program's pointers, which tracefs
//! does not give. Those fields are empty, and named ([`Converter::empty`]).
//!
//! One reading of an event serves both ways: [`Staged`] says what is recorded, from where. Here its
//! steps are done in Rust, on the record that the event's `format` describes; of a system call the
//! record of `sys_enter_…` and `sys_exit_…` has the place of its registers.

use trackway_jit::frame::Cell;
use trackway_schema::{EventDescription, Field as Described, FieldKind};

use super::context::{Circumstances, Common, Context};
use super::filter::{Asked, Filter, Moment, gives};
use crate::catalogue::model::{Event, Location, Meaning, Phase, Source};
use crate::record::operation;
use crate::record::staging::{Registers, Staged, Step, VARIABLE_BYTES_MAX};

/// What is done with the records of an event.
#[derive(Debug, Clone)]
struct Plan {
    id: u16,
    steps: Vec<(FieldKind, Step)>,
    /// Of which of its arguments nothing but the pointer is known: a bit for each.
    incomplete: u8,
    /// All of which must take it; `None`: one of them never does.
    filters: Option<Vec<Filter>>,
}

/// Turns records of some events.
#[derive(Debug, Clone)]
pub struct Converter {
    common: Common,
    /// Most bytes of an event's fields.
    payload_max: u32,
    /// What records say besides, and how many bytes that is.
    contexts: Vec<Context>,
    contexts_bytes: usize,
    /// How much filters remember, in cells, by their numbers.
    cells: Vec<usize>,
    /// By their numbers here.
    plans: Vec<Plan>,
    /// Number here of the event with this number in tracefs, sorted by the latter.
    numbers: Vec<(u16, u16)>,
    descriptions: Vec<EventDescription>,
    meanings: Vec<Vec<Meaning>>,
    /// Names of events that tracefs does not give.
    pub left_out: Vec<String>,
    /// Events and their fields that are not recorded.
    pub left_out_fields: Vec<(String, String)>,
    /// Events and their fields that are always empty.
    pub empty: Vec<(String, String)>,
}

/// What filters remember from one record to the next, by their numbers.
#[derive(Debug)]
pub struct Memory {
    cells: Vec<Vec<Cell>>,
}

/// A record that was turned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Converted {
    /// Of which event, by its number here.
    pub event: u16,
    /// What else its record said.
    pub circumstances: Circumstances,
}

/// How an event is recorded, in so many bytes of payload at most: a system call as BPF does it from
/// registers, which its record has elsewhere.
pub fn staged(event: &Event, payload_max: u32) -> Staged {
    let call = Staged::of_call(event, &places_of(event), payload_max);
    call.unwrap_or_else(|| Staged::with_unknown(event, payload_max))
}

impl Converter {
    /// For these events, with so many bytes of payload at most.
    pub fn new(events: &[Event], common: Common, payload_max: u32) -> Self {
        let events = events.iter().map(|event| (event, Vec::new()));
        Self::asking(events, common, payload_max, vec![Context::Tid])
    }

    /// The same of events with what is asked of each, and records that say this besides.
    pub fn asking<'e>(
        events: impl Iterator<Item = (&'e Event, Vec<Filter>)>,
        common: Common,
        payload_max: u32,
        contexts: Vec<Context>,
    ) -> Self {
        let mut converter = Self {
            common,
            payload_max,
            contexts_bytes: contexts.iter().map(|one| one.scalar().size_bytes()).sum(),
            contexts,
            cells: Vec::new(),
            plans: Vec::new(),
            numbers: Vec::new(),
            descriptions: Vec::new(),
            meanings: Vec::new(),
            left_out: Vec::new(),
            left_out_fields: Vec::new(),
            empty: Vec::new(),
        };
        for (event, filters) in events {
            let _ = converter.add(event, filters);
        }
        converter
    }

    /// Adds an event, whose number is the next, and what is asked of it: that number. `None`:
    /// tracefs does not give it.
    pub fn add(&mut self, event: &Event, filters: Vec<Filter>) -> Option<u16> {
        let number = u16::try_from(self.plans.len());
        let (Some(id), Ok(number)) = (event.id, number) else {
            self.left_out.push(event.full_name());
            return None;
        };
        let staged = staged(event, self.payload_max);
        let fields = &staged.description.fields;
        let steps: Vec<_> =
            fields.iter().map(|field| field.kind.clone()).zip(staged.steps.clone()).collect();
        for (field, is_given) in fields.iter().zip(gives(&staged)) {
            if !is_given {
                self.empty.push((staged.description.name.clone(), field.name.clone()));
            }
        }
        let name = &staged.description.name;
        self.left_out_fields.extend(staged.left_out.iter().map(|of| (name.clone(), of.clone())));
        let incomplete = staged.arguments_followed();
        self.plans.push(Plan { id, steps, incomplete, filters: None });
        self.ask(number, Some(filters));
        // (Two with one number are none that the kernel has.)
        let place = self.numbers.partition_point(|&(other, _)| other < id);
        self.numbers.insert(place, (id, number));
        self.descriptions.push(staged.description);
        self.meanings.push(staged.meanings);
        Some(number)
    }

    /// Has an event that was added asked this; `None`: it is not to be taken.
    pub fn ask(&mut self, number: u16, filters: Option<Vec<Filter>>) {
        for filter in filters.iter().flatten() {
            if self.cells.len() <= filter.number {
                self.cells.resize(filter.number + 1, 0);
            }
            let cells = &mut self.cells[filter.number];
            *cells = filter.cells.max(*cells);
        }
        if let Some(plan) = self.plans.get_mut(usize::from(number)) {
            plan.filters = filters;
        }
    }

    /// The same events, of which none is taken until it is asked something ([`Self::ask`]).
    #[must_use]
    pub fn unasked(&self) -> Self {
        let mut unasked = Self { cells: Vec::new(), ..self.clone() };
        unasked.plans.iter_mut().for_each(|plan| plan.filters = None);
        unasked
    }

    /// What traces say of the events, by their numbers here.
    pub fn descriptions(&self) -> &[EventDescription] {
        &self.descriptions
    }

    /// What the fields of each of them stand for.
    pub fn meanings(&self) -> &[Vec<Meaning>] {
        &self.meanings
    }

    /// What records say besides, as traces describe it.
    pub fn contexts(&self) -> Vec<Described> {
        self.contexts.iter().map(|context| context.field()).collect()
    }

    /// Turns a record: its contexts and payload go behind what is in `into`. `None`: of no event
    /// that is recorded here, or cut short.
    pub fn convert(&self, record: &[u8], into: &mut Vec<u8>) -> Option<Converted> {
        let id = u16::from_ne_bytes(bytes_at(record, self.common.id)?);
        let at = self.numbers.binary_search_by_key(&id, |&(id, _)| id).ok()?;
        let event = self.numbers.get(at)?.1;
        let plan = self.plans.get(usize::from(event)).filter(|plan| plan.id == id)?;
        let circumstances = self.common.circumstances(record)?;
        self.contexts.iter().for_each(|context| context.write(&circumstances, into));
        for step in &plan.steps {
            run(step, plan.incomplete, record, into);
        }
        Some(Converted { event, circumstances })
    }

    /// Whether filters remember something from one record to the next: then they are to be asked in
    /// the order of time.
    pub fn remembers(&self) -> bool {
        self.cells.iter().any(|&cells| cells > 0)
    }

    /// Memory for filters that were asked nothing yet.
    pub fn memory(&self) -> Memory {
        let mut memory = Memory { cells: Vec::new() };
        self.extend(&mut memory);
        memory
    }

    /// Makes room for filters that came with events that were added.
    pub fn extend(&self, memory: &mut Memory) {
        memory.cells.resize_with(self.cells.len().max(memory.cells.len()), Vec::new);
        for (cells, &count) in memory.cells.iter_mut().zip(&self.cells) {
            cells.resize_with(count.max(cells.len()), Cell::default);
        }
    }

    /// Whether something is asked of any event.
    pub fn asks_any(&self) -> bool {
        self.plans.iter().any(|plan| plan.filters.as_ref().is_none_or(|all| !all.is_empty()))
    }

    /// Whether all filters about its event take a record that was turned into these bytes.
    pub fn takes(
        &self,
        converted: &Converted,
        bytes: &[u8],
        moment: Moment,
        memory: &Memory,
    ) -> bool {
        let Some(plan) = self.plans.get(usize::from(converted.event)) else { return false };
        let (begin, circumstances) = (self.contexts_bytes, converted.circumstances);
        let asked = Asked { bytes, begin, circumstances, moment };
        plan.filters.as_ref().is_some_and(|filters| {
            filters.iter().all(|filter| {
                let cells = memory.cells.get(filter.number).map_or(&[][..], Vec::as_slice);
                filter.takes(&asked, cells)
            })
        })
    }
}

/// Where a call's record has what BPF programs find in registers: its arguments, its result.
fn places_of(event: &Event) -> Registers {
    // A call that returns has them nowhere.
    let arguments = std::array::from_fn(|number| u32::MAX - number as u32);
    let mut places = Registers {
        arguments,
        compat_arguments: [0; 6],
        result: 0,
        number: 0,
        task: (0, 0),
        guard: None,
    };
    let Source::Syscall { phase, .. } = event.source else { return places };
    for field in event.fields.iter().filter(|field| field.size > 0) {
        let argument = field.argument.map(usize::from).filter(|_| phase == Phase::Enter);
        if let Some(place) = argument.and_then(|argument| places.arguments.get_mut(argument)) {
            *place = field.offset;
        } else if field.name == "ret" {
            places.result = field.offset;
        }
    }
    places
}

fn bytes_at<const N: usize>(record: &[u8], at: usize) -> Option<[u8; N]> {
    record.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// Does a step. A record that is too short for it has zeros there, or nothing.
fn run((kind, step): &(FieldKind, Step), incomplete: u8, record: &[u8], into: &mut Vec<u8>) {
    match *step {
        Step::Copy { offset, size } | Step::Register { offset, size } => {
            let from = record.get(offset as usize..).unwrap_or_default();
            let from = &from[..from.len().min(size as usize)];
            into.extend_from_slice(from);
            into.resize(into.len() + size as usize - from.len(), 0);
        }
        Step::Text { offset, size } => {
            text(record.get(offset as usize..).unwrap_or_default(), size, into);
        }
        Step::DynamicText(offset, location) => {
            text(located(record, offset, location), VARIABLE_BYTES_MAX, into);
        }
        Step::Dynamic(offset, location, size) => {
            let size = size.max(1) as usize;
            let from = located(record, offset, location);
            let count = from.len().min(VARIABLE_BYTES_MAX as usize) / size;
            into.extend((count as u32).to_ne_bytes());
            into.extend_from_slice(&from[..count * size]);
        }
        Step::Operation { offset, size } => {
            let from = record.get(offset as usize..).unwrap_or_default();
            let letters = &from[..from.len().min(size as usize)];
            into.extend(operation::flags(letters).to_ne_bytes());
        }
        Step::Incomplete => into.push(incomplete),
        _ => nothing(kind, into),
    }
}

/// Text of at most so many bytes with its NUL.
fn text(from: &[u8], bytes_max: u32, into: &mut Vec<u8>) {
    let from = &from[..from.len().min((bytes_max as usize).saturating_sub(1))];
    let end = from.iter().position(|&byte| byte == 0).unwrap_or(from.len());
    into.extend_from_slice(&from[..end]);
    into.push(0);
}

/// What the word at `offset` speaks of, as far as the record goes.
fn located(record: &[u8], offset: u32, location: Location) -> &[u8] {
    let Some(word) = bytes_at(record, offset as usize).map(u32::from_ne_bytes) else { return &[] };
    let (mut begin, length) = ((word & 0xffff) as usize, (word >> 16) as usize);
    if location == Location::Relative {
        begin = begin.saturating_add(offset as usize + 4);
    }
    let from = record.get(begin..).unwrap_or_default();
    &from[..from.len().min(length)]
}

/// A field of this kind without anything in it.
fn nothing(kind: &FieldKind, into: &mut Vec<u8>) {
    let bytes = match kind {
        FieldKind::Scalar(scalar) | FieldKind::Enumeration(scalar, _) => scalar.size_bytes(),
        FieldKind::Array(scalar, count) => scalar.size_bytes() * usize::from(*count),
        FieldKind::Str => 1,
        // Their length.
        FieldKind::Text | FieldKind::Sequence(_) | FieldKind::Strings => 4,
    };
    into.resize(into.len() + bytes, 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::calls::{self, Structures};
    use crate::catalogue::format::{self, NoNames};

    const FORMAT: &str = "name: made_up\nID: 300\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
        \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
        \tfield:int prio;\toffset:24;\tsize:4;\tsigned:1;\n\
        \tfield:__data_loc char[] name;\toffset:28;\tsize:4;\tsigned:0;\n\
        \tfield:__rel_loc u16[] values;\toffset:32;\tsize:4;\tsigned:0;\n\n\
        print fmt: \"%s\", REC->comm\n";

    fn made_up() -> (Common, Event) {
        let format = format::parse(FORMAT, &NoNames).expect("a format");
        let common = Common::of(&format.common).expect("what all have");
        let event = Event {
            subsystem: "made".into(),
            name: "made_up".into(),
            id: Some(format.id),
            source: Source::Tracepoint,
            fields: format.fields,
        };
        (common, event)
    }

    fn record() -> Vec<u8> {
        let mut record = Vec::new();
        record.extend(300_u16.to_ne_bytes());
        record.extend([0, 0]);
        record.extend(77_u32.to_ne_bytes());
        record.extend(*b"sh\0rest of it is");
        record.extend((-5_i32).to_ne_bytes());
        record.extend((4_u32 << 16 | 36).to_ne_bytes());
        record.extend((5_u32 << 16 | 4).to_ne_bytes());
        record.extend(*b"abc\0");
        record.extend([1, 0, 2, 0, 3]);
        record
    }

    #[test]
    fn records_become_those_of_programs() {
        let (common, event) = made_up();
        let converter = Converter::new(&[event], common, 4000);
        let names: Vec<&str> =
            converter.descriptions()[0].fields.iter().map(|field| &*field.name).collect();
        assert_eq!(names, ["comm", "prio", "name", "values"]);
        let mut into = b"before".to_vec();
        let converted = converter.convert(&record(), &mut into).expect("one of ours");
        assert_eq!((converted.event, converted.circumstances.tid), (0, 77));
        let expected = [
            &b"before"[..],
            &77_u32.to_ne_bytes(),
            b"sh\0",
            &(-5_i32).to_ne_bytes(),
            b"abc\0",
            &2_u32.to_ne_bytes(),
            &[1, 0, 2, 0],
        ];
        assert_eq!(into, expected.concat());
        // Of somebody else.
        let mut other = record();
        other[0] ^= 1;
        assert_eq!(converter.convert(&other, &mut Vec::new()), None);
    }

    #[test]
    fn records_that_end_early_have_nothing_there() {
        let (common, event) = made_up();
        let converter = Converter::new(&[event], common, 4000);
        for end in 0..record().len() {
            let mut into = Vec::new();
            let converted = converter.convert(&record()[..end], &mut into);
            assert_eq!(converted.is_some(), end >= 8, "{end}");
            let least = 4 + 1 + 4 + 1 + 4;
            assert!(into.is_empty() || (least..=4 + 3 + 4 + 4 + 8).contains(&into.len()), "{end}");
        }
        // Lengths that lead nowhere.
        let mut wrong = record();
        wrong[28..36].fill(0xff);
        let mut into = Vec::new();
        assert!(converter.convert(&wrong, &mut into).is_some());
        assert_eq!(into.len(), 4 + 3 + 4 + 1 + 4);
    }

    #[test]
    fn texts_are_cut_where_programs_cut_them() {
        let cut = |bytes: &[u8], max| {
            let mut into = Vec::new();
            text(bytes, max, &mut into);
            into
        };
        assert_eq!(cut(b"abcd", 4), b"abc\0");
        assert_eq!(cut(b"abc\0", 4), b"abc\0");
        assert_eq!(cut(b"", 4), b"\0");
        assert_eq!(cut(&[b'x'; 300], VARIABLE_BYTES_MAX).len(), 256);
    }

    #[test]
    fn calls_have_their_numbers_and_no_texts() {
        let entry = "name: sys_enter_openat\nID: 9\nformat:\n\
            \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
            \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
            \tfield:int __syscall_nr;\toffset:8;\tsize:4;\tsigned:1;\n\
            \tfield:int dfd;\toffset:16;\tsize:8;\tsigned:0;\n\
            \tfield:const char * filename;\toffset:24;\tsize:8;\tsigned:0;\n\
            \tfield:int flags;\toffset:32;\tsize:8;\tsigned:0;\n\
            \tfield:umode_t mode;\toffset:40;\tsize:8;\tsigned:0;\n\nprint fmt: \"\"\n";
        let format = format::parse(entry, &NoNames).expect("a format");
        let common = Common::of(&format.common).expect("what all have");
        let mut structures = Structures::default();
        let call =
            calls::event("openat", Phase::Enter, Some(&format.fields), None, &mut structures);
        let call = Event { id: Some(9), ..call };
        let converter = Converter::new(&[call], common, 4000);
        let nothing = ("syscall_entry_openat".to_owned(), "filename".to_owned());
        assert_eq!(converter.empty, [nothing]);
        let mut record = vec![9, 0, 0, 0, 5, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0];
        for argument in [0xffff_ff9c_u64, 0x7f00_1234_5678, 0o2000000, 0o644] {
            record.extend(argument.to_ne_bytes());
        }
        let mut into = Vec::new();
        assert_eq!(converter.convert(&record, &mut into).map(|of| of.event), Some(0));
        let description = &converter.descriptions()[0];
        let sizes: usize = description
            .fields
            .iter()
            .map(|field| match &field.kind {
                FieldKind::Scalar(scalar) | FieldKind::Enumeration(scalar, _) => {
                    scalar.size_bytes()
                }
                _ => 1,
            })
            .sum();
        assert_eq!(into.len(), 4 + sizes, "{description:?}");
        assert_eq!(into[..9], [5, 0, 0, 0, 0x9c, 0xff, 0xff, 0xff, 0]);
    }

    #[test]
    fn events_that_tracefs_does_not_have_are_named() {
        let (common, event) = made_up();
        let event = Event { id: None, ..event };
        let converter = Converter::new(&[event], common, 4000);
        assert_eq!(converter.left_out, ["made:made_up"]);
        assert!(converter.descriptions().is_empty());
    }
}
