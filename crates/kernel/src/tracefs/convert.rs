//! Converts tracefs records to records of BPF programs ([`crate::bpf_program::codegen`]), with
//! equal descriptions and bytes. tracefs lacks user memory, so fields from user memory are empty
//! and listed ([`Converter::empty_fields`]).
//!
//! One plan serves both kernel backends: [`EventPlan`] has the fields and their sources. This
//! module runs the plan's steps in Rust, on the record that the event's `format` describes. For a
//! system call, the record of `sys_enter_…` or `sys_exit_…` takes the place of the registers.

use trackway_jit::frame::Cell;
use trackway_schema::{EventDescription, Field as Described, FieldKind};

use super::contexts::{CommonFields, CommonLayout, Context};
use super::filter::{Filter, FilteredRecord, Occurrence, available_fields};
use crate::bpf_program::plan::{EventPlan, RegisterLayout, Step, VARIABLE_BYTES_MAX};
use crate::bpf_program::request_flags;
use crate::catalogue::model::{Event, Location, Meaning, Phase, Source};

/// The conversion of an event's records.
#[derive(Debug, Clone)]
struct Conversion {
    id: u16,
    steps: Vec<(FieldKind, Step)>,
    /// A mask of the arguments of which the record has only the pointer.
    incomplete: u8,
    /// Filters that must all pass the event; `None`: no filter is selected, so the converter drops
    /// the event.
    filters: Option<Vec<Filter>>,
}

/// Converts records of some events.
#[derive(Debug, Clone)]
pub struct Converter {
    common: CommonLayout,
    /// Most bytes of an event's fields.
    payload_max: u32,
    /// Contexts of records, with their total size.
    contexts: Vec<Context>,
    contexts_bytes: usize,
    /// The number of cells of each filter, by its index.
    cells: Vec<usize>,
    /// Conversions by the converter's event number.
    conversions: Vec<Conversion>,
    /// Pairs of tracefs event id and converter's event number, sorted by tracefs event id.
    numbers: Vec<(u16, u16)>,
    descriptions: Vec<EventDescription>,
    meanings: Vec<Vec<Meaning>>,
    /// Names of events that tracefs lacks.
    pub missing_events: Vec<String>,
    /// Pairs of event and field that the converter does not record.
    pub omitted_fields: Vec<(String, String)>,
    /// Pairs of event and field that is always empty.
    pub empty_fields: Vec<(String, String)>,
}

/// The state of all filters, by filter index.
#[derive(Debug)]
pub struct FilterState {
    cells: Vec<Vec<Cell>>,
}

/// A converted record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Converted {
    /// The converter's event number.
    pub event: u16,
    /// The record's common fields.
    pub common_fields: CommonFields,
}

/// Plans an event with at most `payload_max` bytes of payload. Plans a system call like a BPF
/// program that reads registers, but at the offsets of its record.
pub fn plan_event(event: &Event, payload_max: u32) -> EventPlan {
    let call = EventPlan::from_registers(event, &record_layout(event), payload_max);
    call.unwrap_or_else(|| EventPlan::from_record_with_unknown(event, payload_max))
}

impl Converter {
    /// Creates a converter for these events with at most `payload_max` bytes of payload.
    pub fn new(events: &[Event], common: CommonLayout, payload_max: u32) -> Self {
        let events = events.iter().map(|event| (event, Vec::new()));
        Self::with_filters(events, common, payload_max, vec![Context::Tid])
    }

    /// Creates a converter for these events with their filters and these contexts.
    pub fn with_filters<'e>(
        events: impl Iterator<Item = (&'e Event, Vec<Filter>)>,
        common: CommonLayout,
        payload_max: u32,
        contexts: Vec<Context>,
    ) -> Self {
        let mut converter = Self {
            common,
            payload_max,
            contexts_bytes: contexts.iter().map(|one| one.scalar().size_bytes()).sum(),
            contexts,
            cells: Vec::new(),
            conversions: Vec::new(),
            numbers: Vec::new(),
            descriptions: Vec::new(),
            meanings: Vec::new(),
            missing_events: Vec::new(),
            omitted_fields: Vec::new(),
            empty_fields: Vec::new(),
        };
        for (event, filters) in events {
            let _ = converter.add(event, filters);
        }
        converter
    }

    /// Adds an event with its filters; returns its number, the next one. `None`: tracefs lacks the
    /// event.
    pub fn add(&mut self, event: &Event, filters: Vec<Filter>) -> Option<u16> {
        let number = u16::try_from(self.conversions.len());
        let (Some(id), Ok(number)) = (event.id, number) else {
            self.missing_events.push(event.full_name());
            return None;
        };
        let plan = plan_event(event, self.payload_max);
        let fields = &plan.description.fields;
        let steps: Vec<_> =
            fields.iter().map(|field| field.kind.clone()).zip(plan.steps.clone()).collect();
        for (field, is_given) in fields.iter().zip(available_fields(&plan)) {
            if !is_given {
                self.empty_fields.push((plan.description.name.clone(), field.name.clone()));
            }
        }
        let name = &plan.description.name;
        self.omitted_fields.extend(plan.omitted_fields.iter().map(|of| (name.clone(), of.clone())));
        let incomplete = plan.followed_arguments_mask();
        self.conversions.push(Conversion { id, steps, incomplete, filters: None });
        self.set_filters(number, Some(filters));
        // In the kernel, event ids are unique.
        let place = self.numbers.partition_point(|&(other, _)| other < id);
        self.numbers.insert(place, (id, number));
        self.descriptions.push(plan.description);
        self.meanings.push(plan.meanings);
        Some(number)
    }

    /// Replaces the filters of an event; `None`: the converter drops the event's records.
    pub fn set_filters(&mut self, number: u16, filters: Option<Vec<Filter>>) {
        for filter in filters.iter().flatten() {
            if self.cells.len() <= filter.number {
                self.cells.resize(filter.number + 1, 0);
            }
            let cells = &mut self.cells[filter.number];
            *cells = filter.cells.max(*cells);
        }
        if let Some(conversion) = self.conversions.get_mut(usize::from(number)) {
            conversion.filters = filters;
        }
    }

    /// Returns a converter for the same events that drops each event until the event gets filters
    /// ([`Self::set_filters`]).
    #[must_use]
    pub fn without_filters(&self) -> Self {
        let mut converter = Self { cells: Vec::new(), ..self.clone() };
        converter.conversions.iter_mut().for_each(|conversion| conversion.filters = None);
        converter
    }

    /// Returns the descriptions of the events, by number.
    pub fn descriptions(&self) -> &[EventDescription] {
        &self.descriptions
    }

    /// Returns the meanings of the events' fields, by number.
    pub fn meanings(&self) -> &[Vec<Meaning>] {
        &self.meanings
    }

    /// Returns the descriptions of the contexts.
    pub fn contexts(&self) -> Vec<Described> {
        self.contexts.iter().map(|context| context.field()).collect()
    }

    /// Converts a record: appends its contexts and payload to `into`. `None`: the converter does
    /// not have the record's event, or the record is too short.
    pub fn convert(&self, record: &[u8], into: &mut Vec<u8>) -> Option<Converted> {
        let id = u16::from_ne_bytes(bytes_at(record, self.common.id)?);
        let at = self.numbers.binary_search_by_key(&id, |&(id, _)| id).ok()?;
        let event = self.numbers.get(at)?.1;
        let conversion =
            self.conversions.get(usize::from(event)).filter(|conversion| conversion.id == id)?;
        let common_fields = self.common.read(record)?;
        self.contexts.iter().for_each(|context| context.write(&common_fields, into));
        for step in &conversion.steps {
            run_step(step, conversion.incomplete, record, into);
        }
        Some(Converted { event, common_fields })
    }

    /// Returns true if filters have state. Such filters must receive records in the order of time.
    pub fn has_state(&self) -> bool {
        self.cells.iter().any(|&cells| cells > 0)
    }

    /// Creates the initial state of all filters.
    pub fn new_state(&self) -> FilterState {
        let mut state = FilterState { cells: Vec::new() };
        self.extend_state(&mut state);
        state
    }

    /// Extends the state for filters that were added.
    pub fn extend_state(&self, state: &mut FilterState) {
        state.cells.resize_with(self.cells.len().max(state.cells.len()), Vec::new);
        for (cells, &count) in state.cells.iter_mut().zip(&self.cells) {
            cells.resize_with(count.max(cells.len()), Cell::default);
        }
    }

    /// Returns true if any event has a filter.
    pub fn has_filters(&self) -> bool {
        self.conversions
            .iter()
            .any(|conversion| conversion.filters.as_ref().is_none_or(|all| !all.is_empty()))
    }

    /// Returns true if all filters of the event pass the converted record.
    pub fn passes(
        &self,
        converted: &Converted,
        bytes: &[u8],
        occurrence: Occurrence,
        state: &FilterState,
    ) -> bool {
        let Some(conversion) = self.conversions.get(usize::from(converted.event)) else {
            return false;
        };
        let (begin, common_fields) = (self.contexts_bytes, converted.common_fields);
        let asked = FilteredRecord { bytes, begin, common_fields, occurrence };
        conversion.filters.as_ref().is_some_and(|filters| {
            filters.iter().all(|filter| {
                let cells = state.cells.get(filter.number).map_or(&[][..], Vec::as_slice);
                filter.passes(&asked, cells)
            })
        })
    }
}

/// Returns the layout of a system call's record in place of registers: arguments and result.
fn record_layout(event: &Event) -> RegisterLayout {
    // The record of a call's exit has no arguments.
    let arguments = std::array::from_fn(|number| u32::MAX - number as u32);
    let mut layout = RegisterLayout {
        arguments,
        compat_arguments: [0; 6],
        result: 0,
        number: 0,
        task_tid: 0,
        task_status: 0,
        guard: None,
    };
    let Source::Syscall { phase, .. } = event.source else { return layout };
    for field in event.fields.iter().filter(|field| field.size > 0) {
        let argument = field.argument.map(usize::from).filter(|_| phase == Phase::Enter);
        if let Some(place) = argument.and_then(|argument| layout.arguments.get_mut(argument)) {
            *place = field.offset;
        } else if field.name == "ret" {
            layout.result = field.offset;
        }
    }
    layout
}

fn bytes_at<const N: usize>(record: &[u8], at: usize) -> Option<[u8; N]> {
    record.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// Runs a step of a plan. For a short record, the step writes zeros or nothing.
fn run_step((kind, step): &(FieldKind, Step), incomplete: u8, record: &[u8], into: &mut Vec<u8>) {
    match *step {
        Step::Copy { offset, size } | Step::Register { offset, size } => {
            let from = record.get(offset as usize..).unwrap_or_default();
            let from = &from[..from.len().min(size as usize)];
            into.extend_from_slice(from);
            into.resize(into.len() + size as usize - from.len(), 0);
        }
        Step::Text { offset, size } => {
            append_text(record.get(offset as usize..).unwrap_or_default(), size, into);
        }
        Step::DynamicText(offset, location) => {
            append_text(located_data(record, offset, location), VARIABLE_BYTES_MAX, into);
        }
        Step::DynamicArray(offset, location, size) => {
            let size = size.max(1) as usize;
            let from = located_data(record, offset, location);
            let count = from.len().min(VARIABLE_BYTES_MAX as usize) / size;
            into.extend((count as u32).to_ne_bytes());
            into.extend_from_slice(&from[..count * size]);
        }
        Step::RequestFlags { offset, size } => {
            let from = record.get(offset as usize..).unwrap_or_default();
            let letters = &from[..from.len().min(size as usize)];
            into.extend(request_flags::flags_of_letters(letters).to_ne_bytes());
        }
        Step::Incomplete => into.push(incomplete),
        _ => append_empty(kind, into),
    }
}

/// Appends text of at most `bytes_max` bytes, including its NUL.
fn append_text(from: &[u8], bytes_max: u32, into: &mut Vec<u8>) {
    let from = &from[..from.len().min((bytes_max as usize).saturating_sub(1))];
    let end = from.iter().position(|&byte| byte == 0).unwrap_or(from.len());
    into.extend_from_slice(&from[..end]);
    into.push(0);
}

/// Returns the data that the word at `offset` refers to, up to the end of the record.
fn located_data(record: &[u8], offset: u32, location: Location) -> &[u8] {
    let Some(word) = bytes_at(record, offset as usize).map(u32::from_ne_bytes) else { return &[] };
    let (mut begin, length) = ((word & 0xffff) as usize, (word >> 16) as usize);
    if location == Location::Relative {
        begin = begin.saturating_add(offset as usize + 4);
    }
    let from = record.get(begin..).unwrap_or_default();
    &from[..from.len().min(length)]
}

/// Appends an empty field of this kind.
fn append_empty(kind: &FieldKind, into: &mut Vec<u8>) {
    let bytes = match kind {
        FieldKind::Scalar(scalar) | FieldKind::Enumeration(scalar, _) => scalar.size_bytes(),
        FieldKind::Array(scalar, count) => scalar.size_bytes() * usize::from(*count),
        FieldKind::Str => 1,
        // The length, which is zero.
        FieldKind::Text | FieldKind::Sequence(_) | FieldKind::Strings => 4,
    };
    into.resize(into.len() + bytes, 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::calls::{self, Structures};
    use crate::catalogue::format::{self, EmptyLookup};

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

    fn build_event() -> (CommonLayout, Event) {
        let format = format::parse(FORMAT, &EmptyLookup).expect("a format");
        let common = CommonLayout::find(&format.common).expect("what all have");
        let event = Event {
            subsystem: "made".into(),
            name: "made_up".into(),
            id: Some(format.id),
            source: Source::Tracepoint,
            fields: format.fields,
        };
        (common, event)
    }

    fn build_record() -> Vec<u8> {
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
        let (common, event) = build_event();
        let converter = Converter::new(&[event], common, 4000);
        let names: Vec<&str> =
            converter.descriptions()[0].fields.iter().map(|field| &*field.name).collect();
        assert_eq!(names, ["comm", "prio", "name", "values"]);
        let mut into = b"before".to_vec();
        let converted = converter.convert(&build_record(), &mut into).expect("one of ours");
        assert_eq!((converted.event, converted.common_fields.tid), (0, 77));
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
        // A record of another event.
        let mut other = build_record();
        other[0] ^= 1;
        assert_eq!(converter.convert(&other, &mut Vec::new()), None);
    }

    #[test]
    fn short_records_have_empty_fields() {
        let (common, event) = build_event();
        let converter = Converter::new(&[event], common, 4000);
        for end in 0..build_record().len() {
            let mut into = Vec::new();
            let converted = converter.convert(&build_record()[..end], &mut into);
            assert_eq!(converted.is_some(), end >= 8, "{end}");
            let least = 4 + 1 + 4 + 1 + 4;
            assert!(into.is_empty() || (least..=4 + 3 + 4 + 4 + 8).contains(&into.len()), "{end}");
        }
        // Lengths that exceed the record.
        let mut wrong = build_record();
        wrong[28..36].fill(0xff);
        let mut into = Vec::new();
        assert!(converter.convert(&wrong, &mut into).is_some());
        assert_eq!(into.len(), 4 + 3 + 4 + 1 + 4);
    }

    #[test]
    fn texts_are_cut_where_programs_cut_them() {
        let cut = |bytes: &[u8], max| {
            let mut into = Vec::new();
            append_text(bytes, max, &mut into);
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
        let format = format::parse(entry, &EmptyLookup).expect("a format");
        let common = CommonLayout::find(&format.common).expect("what all have");
        let mut structures = Structures::default();
        let call = calls::describe_call(
            "openat",
            Phase::Enter,
            Some(&format.fields),
            None,
            &mut structures,
        );
        let call = Event { id: Some(9), ..call };
        let converter = Converter::new(&[call], common, 4000);
        let nothing = ("syscall_entry_openat".to_owned(), "filename".to_owned());
        assert_eq!(converter.empty_fields, [nothing]);
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
        let (common, event) = build_event();
        let event = Event { id: None, ..event };
        let converter = Converter::new(&[event], common, 4000);
        assert_eq!(converter.missing_events, ["made:made_up"]);
        assert!(converter.descriptions().is_empty());
    }
}
