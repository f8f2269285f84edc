//! Filters on tracefs records. The recorder interprets the usual filter objects on frames that it
//! fills from converted records.
//!
//! Invariant: a filter has a verdict for any bytes. If it reads a missing value, such as an element
//! beyond the end, it rejects the event.

use std::cell::Cell as ThreadCell;
use std::hash::{BuildHasher as _, Hasher as _};

use trackway_jit::frame::{Cell, Environment, Frame};
use trackway_jit::framer::scalar_at;
use trackway_jit::helper::Word;
use trackway_jit::interpret;
use trackway_jit::object::{Alternative, Object};
use trackway_jit::verify::{Rules, State, Verified, verify};
use trackway_jit::{CELLS_MAX, Kind};
use trackway_schema::{FIELDS_MAX, FieldKind, Scalar};

use super::contexts::{CommonFields, Context};
use crate::bpf_program::filter::{FilterError, kind_at, split_index};
use crate::bpf_program::plan::{EventPlan, Step};

/// Size in bytes of the length before a text or sequence.
const COUNT_BYTES: usize = 4;

/// A filter prepared for one event.
#[derive(Debug, Clone)]
pub struct Filter {
    /// The index of the filter, which selects its state; all events share the state of a filter.
    pub(super) number: usize,
    /// The number of cells of the filter's state.
    pub(super) cells: usize,
    programs: Vec<Verified<'static>>,
    constants: &'static [u8],
    /// Steps that skip fields, up to the last field that is read.
    skips: Vec<FieldSkip>,
    slots: Vec<SlotSource>,
}

/// The way to skip a field of a converted record.
#[derive(Debug, Clone, Copy)]
enum FieldSkip {
    Bytes(usize),
    /// A text, up to its NUL, inclusive.
    Str,
    /// A count, followed by elements of this size in bytes.
    Counted(usize),
}

/// The source of a slot's value.
#[derive(Debug, Clone, Copy)]
enum SlotSource {
    Context(Context),
    /// The value of the field with this index.
    Field(usize, FieldValue),
}

#[derive(Debug, Clone, Copy)]
enum FieldValue {
    /// A scalar at this offset in the field.
    Scalar(Scalar, usize),
    Str,
    /// A count, followed by bytes or elements.
    Counted,
    Array(u32),
    Element(Scalar, u32),
}

/// A converted record, with the CPU and time of its event, for a filter.
#[derive(Debug, Clone, Copy)]
pub(super) struct FilteredRecord<'a> {
    /// A converted record; its fields begin at `begin`.
    pub(super) bytes: &'a [u8],
    pub(super) begin: usize,
    pub(super) common_fields: CommonFields,
    pub(super) occurrence: Occurrence,
}

/// The CPU and time of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Occurrence {
    /// The CPU on which the event occurred.
    pub cpu: u32,
    /// The time of the event on CLOCK_MONOTONIC, in ns.
    pub time_ns: u64,
}

/// Returns the fields of the plan that tracefs records have. Fields from user memory are missing.
pub fn available_fields(plan: &EventPlan) -> Vec<bool> {
    let mut is_given = true;
    let given = plan.steps.iter().map(|step| {
        // `PartOfPrevious` keeps the answer for the previous step's field.
        if *step != Step::PartOfPrevious {
            is_given = !step.reads_user_memory() && !matches!(step, Step::Zeros(_));
        }
        is_given
    });
    given.collect()
}

impl Filter {
    /// Prepares the filter of this object for an event; `number` selects the filter's state.
    /// `None`: the event lacks a field that the filter reads.
    ///
    /// # Errors
    ///
    /// If the filter object is invalid.
    pub fn new(
        object: &[u8],
        number: usize,
        plan: &EventPlan,
    ) -> Result<Option<Self>, FilterError> {
        let none = |why: String| FilterError::Object(why);
        // The verified program refers to these bytes while the recording lasts, which is as long as
        // the process.
        let object: &'static [u8] = Box::leak(object.into());
        let object = Object::decode(object).map_err(|why| none(why.to_string()))?;
        let given = available_fields(plan);
        for alternative in object.alternatives() {
            let Some(slots) = slot_sources(alternative, plan, &given) else { continue };
            let programs = (0..).zip(alternative.programs()).map(|(number, program)| {
                let rules = Rules { number, ..Rules::new(slots.len()) };
                let verified = verify(program, rules, &mut vec![State::FREE; program.len() + 1]);
                verified.map_err(|rejection| none(rejection.to_string()))
            });
            let programs = programs.collect::<Result<Vec<_>, _>>()?;
            if programs.is_empty() {
                return Err(none("it has no program".into()));
            }
            let last = slots.iter().filter_map(|source| match source {
                SlotSource::Field(field, _) => Some(*field),
                SlotSource::Context(_) => None,
            });
            let fields = plan.description.fields.iter().take(last.max().unwrap_or(0));
            return Ok(Some(Self {
                number,
                cells: object.cells().min(CELLS_MAX),
                programs,
                constants: alternative.constants(),
                skips: fields.map(|field| skip_of(&field.kind)).collect(),
                slots,
            }));
        }
        Ok(None)
    }

    /// Returns true if the filter, with the state in `cells`, passes the event.
    pub(super) fn passes(&self, record: &FilteredRecord<'_>, cells: &[Cell]) -> bool {
        let Some(offsets) = self.field_offsets(record) else { return false };
        let environment = Environment::new(self.constants, cells, time_ns, next_random);
        let mut frame = Frame::new(&environment, record.bytes);
        let filled = self.slots.iter().all(|source| {
            let value = match *source {
                SlotSource::Context(context) => {
                    Some(context.value(&record.common_fields, record.occurrence.cpu))
                }
                SlotSource::Field(field, value) => {
                    offsets.get(field).and_then(|&at| value_at(record.bytes, at, value))
                }
            };
            value.is_some_and(|value| frame.push(value))
        });
        TIME_NS.set(record.occurrence.time_ns);
        filled && interpret::run(&self.programs, &frame).is_ok_and(|outcome| outcome.answer != 0)
    }

    /// Returns the offsets of a record's fields, up to the last field that the filter reads.
    fn field_offsets(&self, record: &FilteredRecord<'_>) -> Option<[usize; FIELDS_MAX + 1]> {
        let mut offsets = [0; FIELDS_MAX + 1];
        let mut at = record.begin;
        offsets[0] = at;
        for (skip, offset) in self.skips.iter().zip(&mut offsets[1..]) {
            at = at.checked_add(match *skip {
                FieldSkip::Bytes(bytes) => bytes,
                FieldSkip::Str => text_length(record.bytes, at)? + 1,
                FieldSkip::Counted(size) => {
                    let count = count_at(record.bytes, at)? as usize;
                    count.checked_mul(size)?.checked_add(COUNT_BYTES)?
                }
            })?;
            *offset = at;
        }
        Some(offsets)
    }
}

/// Returns the sources of a frame's slots; `None`: the event lacks a field of the filter.
fn slot_sources(of: Alternative<'_>, plan: &EventPlan, given: &[bool]) -> Option<Vec<SlotSource>> {
    let slot = |need: trackway_jit::object::Need<'_>| {
        if let Some(name) = need.path.strip_prefix("$ctx.") {
            let context = Context::find_by_name(name)?;
            let is = if context.scalar().is_signed() { Kind::Signed } else { Kind::Unsigned };
            return (is == need.kind).then_some(SlotSource::Context(context));
        }
        let (name, index) = split_index(need.path);
        let fields = &plan.description.fields;
        let number = fields.iter().position(|field| field.name == name)?;
        let kind = &fields.get(number)?.kind;
        let is_it = given.get(number) == Some(&true) && kind_at(kind, index) == Some(need.kind);
        is_it.then_some(())?;
        Some(SlotSource::Field(number, value_of(kind, index)?))
    };
    of.needs().map(slot).collect()
}

fn value_of(kind: &FieldKind, index: Option<u32>) -> Option<FieldValue> {
    Some(match (kind, index) {
        (FieldKind::Scalar(scalar) | FieldKind::Enumeration(scalar, _), None) => {
            FieldValue::Scalar(*scalar, 0)
        }
        (FieldKind::Array(scalar, _), Some(index)) => {
            FieldValue::Scalar(*scalar, index as usize * scalar.size_bytes())
        }
        (FieldKind::Array(_, length), None) => FieldValue::Array((*length).into()),
        (FieldKind::Sequence(scalar), Some(index)) => FieldValue::Element(*scalar, index),
        (FieldKind::Sequence(_) | FieldKind::Text, None) => FieldValue::Counted,
        (FieldKind::Str, None) => FieldValue::Str,
        _ => return None,
    })
}

fn skip_of(kind: &FieldKind) -> FieldSkip {
    match kind {
        FieldKind::Scalar(scalar) | FieldKind::Enumeration(scalar, _) => {
            FieldSkip::Bytes(scalar.size_bytes())
        }
        FieldKind::Array(scalar, length) => {
            FieldSkip::Bytes(scalar.size_bytes() * usize::from(*length))
        }
        FieldKind::Str => FieldSkip::Str,
        // Arrays of texts are user memory, so records have none.
        FieldKind::Text | FieldKind::Strings => FieldSkip::Counted(1),
        FieldKind::Sequence(scalar) => FieldSkip::Counted(scalar.size_bytes()),
    }
}

fn value_at(bytes: &[u8], at: usize, value: FieldValue) -> Option<u64> {
    let word = |offset: usize, length: usize| {
        let (offset, length) = (u32::try_from(offset).ok()?, u32::try_from(length).ok()?);
        Some(Word { offset, length, is_constant: false }.to_bits())
    };
    match value {
        FieldValue::Scalar(scalar, within) => scalar_at(bytes, at.checked_add(within)?, scalar),
        FieldValue::Str => word(at, text_length(bytes, at)?),
        FieldValue::Counted => word(at.checked_add(COUNT_BYTES)?, count_at(bytes, at)? as usize),
        FieldValue::Array(length) => word(at, length as usize),
        FieldValue::Element(scalar, index) => {
            let is_there = index < count_at(bytes, at)?;
            let within = COUNT_BYTES + index as usize * scalar.size_bytes();
            is_there.then(|| scalar_at(bytes, at.checked_add(within)?, scalar))?
        }
    }
}

fn text_length(bytes: &[u8], at: usize) -> Option<usize> {
    bytes.get(at..)?.iter().position(|&byte| byte == 0)
}

fn count_at(bytes: &[u8], at: usize) -> Option<u32> {
    let count = bytes.get(at..at.checked_add(COUNT_BYTES)?)?;
    Some(u32::from_ne_bytes(count.try_into().ok()?))
}

thread_local! {
    /// The event's time, for helper functions of the filter that runs on this thread.
    static TIME_NS: ThreadCell<u64> = const { ThreadCell::new(0) };
    /// The state of the random number generator.
    static SEED: ThreadCell<u64> = ThreadCell::new(
        std::hash::RandomState::new().build_hasher().finish()
    );
}

extern "C" fn time_ns() -> u64 {
    TIME_NS.get()
}

/// Steele, Lea, Flood: Fast splittable pseudorandom number generators (2014): SplitMix64.
extern "C" fn next_random() -> u64 {
    let seed = SEED.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    SEED.set(seed);
    let mixed = (seed ^ seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests {
    use trackway_filter::compile::compile;
    use trackway_filter::layout::{Layout, Member, Type};

    use super::*;
    use crate::catalogue::model::{Event, Field, FieldShape as Of, Location, Meaning, Source};

    /// Returns a plan with a field of each kind that records have.
    fn build_plan() -> EventPlan {
        let field = |name: &str, kind, offset, size| Field {
            name: name.into(),
            type_text: String::new(),
            kind,
            offset,
            size,
            meaning: Meaning::Plain,
            argument: None,
            pointee: None,
        };
        let fields = vec![
            field("comm", Of::Text(16), 8, 16),
            field("prio", Of::Integer(Scalar::I32), 24, 4),
            field("name", Of::DynamicText(Location::Absolute), 28, 4),
            field("values", Of::Dynamic(Scalar::U16, Location::Absolute), 32, 4),
            field("words", Of::Array(Scalar::U32, 3), 36, 12),
            field("last", Of::Integer(Scalar::U8), 48, 1),
        ];
        let event = Event {
            subsystem: "made".into(),
            name: "up".into(),
            id: Some(300),
            source: Source::Tracepoint,
            fields,
        };
        EventPlan::from_record(&event, 3500)
    }

    fn compile_filter(text: &str, number: usize) -> Filter {
        let plan = build_plan();
        let fields = plan.description.fields.iter();
        let layout = Layout {
            event: "made_up".into(),
            fields: fields
                .map(|field| Member { name: field.name.clone(), of: (&field.kind).into() })
                .collect(),
            contexts: Context::ALL
                .map(|(name, context)| Member { name: name.into(), of: context.scalar().into() })
                .into(),
            applications: Vec::new(),
        };
        assert!(layout.fields.iter().all(|field| !matches!(field.of, Type::Other(_))));
        let compiled = compile(text, &layout).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        let object = compiled.into_object().encode().expect("an object");
        Filter::new(&object, number, &plan).expect("a filter").expect("it has all")
    }

    /// Returns a payload with the fields of `build_plan`, after a thread's id.
    fn build_payload() -> Vec<u8> {
        let mut bytes = 77_u32.to_ne_bytes().to_vec();
        bytes.extend(b"sh\0");
        bytes.extend((-5_i32).to_ne_bytes());
        bytes.extend(b"a name\0");
        bytes.extend(3_u32.to_ne_bytes());
        [7_u16, 8, 9].iter().for_each(|value| bytes.extend(value.to_ne_bytes()));
        [1_u32, 2, 0xffff_ffff].iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
        bytes.push(200);
        bytes
    }

    fn filter_passes(filter: &Filter, bytes: &[u8]) -> bool {
        let common_fields = CommonFields { tid: 77, flags: 1, preempt_count: 0 };
        let occurrence = Occurrence { cpu: 2, time_ns: 1_500_000_000 };
        let cells: Vec<Cell> = (0..filter.cells).map(|_| Cell::default()).collect();
        filter.passes(&FilteredRecord { bytes, begin: 4, common_fields, occurrence }, &cells)
    }

    #[test]
    fn filters_read_each_kind_of_field_and_context() {
        let payload = build_payload();
        for (text, is_so) in [
            ("comm == \"sh\" && prio == -5", true),
            ("name == \"a*e\" && values[2] == 9 && last > 199", true),
            ("words[2] == 0xffffffff && length(words) == 3", true),
            ("any(values == 8) && length(values) == 3", true),
            // A missing element: the filter rejects the event.
            ("values[3] == 0", false),
            ("!(values[3] == 0)", false),
            ("$ctx.tid == 77 && $ctx.cpu_id == 2", true),
            ("$ctx.interruptible == 0 && $ctx.preemptible == 1", true),
            ("$ctx.need_reschedule", false),
            ("prio * 0.5 < -2.4", true),
            ("sample(1) && rate(1/s)", true),
        ] {
            assert_eq!(filter_passes(&compile_filter(text, 0), &payload), is_so, "{text}");
        }
    }

    #[test]
    fn truncated_and_invalid_records_are_rejected() {
        let of_last = compile_filter("last >= 0", 0);
        let payload = build_payload();
        for end in 0..payload.len() {
            assert!(!filter_passes(&of_last, &payload[..end]), "{end}");
        }
        let mut wrong = payload;
        wrong[18..22].fill(0xff);
        assert!(!filter_passes(&of_last, &wrong));
        assert!(!filter_passes(&compile_filter("any(values == 1)", 0), &wrong));
    }

    #[test]
    fn events_that_lack_something_have_no_filter() {
        let of = |path: &str| {
            let layout = Layout {
                fields: vec![Member { name: path.into(), of: Scalar::I32.into() }],
                ..Layout::default()
            };
            let compiled = compile(&format!("{path} == 1"), &layout).expect("it makes sense");
            let object = compiled.into_object().encode().expect("an object");
            Filter::new(&object, 0, &build_plan()).expect("a filter").is_some()
        };
        assert!(of("prio"));
        // `last` has another kind; `other` does not exist.
        assert!(!of("last") && !of("other"));
    }
}
