//! Filters on records of tracefs, asked when those are converted: the same objects as everywhere,
//! interpreted on frames that are filled from what a record became.
//!
//! Invariant: whatever the bytes are, a filter gives an answer; one that asks for what is not there
//! (an element beyond the end) says no.

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

use super::context::{Circumstances, Context};
use crate::record::filter::{FilterError, kind_at, split_index};
use crate::record::staging::{Staged, Step};

/// Bytes in front of what has a length of its own: that.
const COUNT_BYTES: usize = 4;

/// A filter of one event.
#[derive(Debug, Clone)]
pub struct Filter {
    /// Which of all filters it is: what it remembers is the same for all events.
    pub(super) number: usize,
    /// How many cells it remembers things in.
    pub(super) cells: usize,
    programs: Vec<Verified<'static>>,
    constants: &'static [u8],
    /// How fields are passed over, up to the last one that counts.
    passes: Vec<Pass>,
    slots: Vec<Take>,
}

/// How a field is passed over.
#[derive(Debug, Clone, Copy)]
enum Pass {
    Bytes(usize),
    /// Up to and with a NUL.
    Str,
    /// A count, and so many times this many bytes.
    Counted(usize),
}

/// What a slot is filled with.
#[derive(Debug, Clone, Copy)]
enum Take {
    Context(Context),
    /// Of the field with this number.
    Field(usize, Value),
}

#[derive(Debug, Clone, Copy)]
enum Value {
    /// So many bytes from the field's beginning.
    Scalar(Scalar, usize),
    Str,
    /// A count, and bytes or elements.
    Counted,
    Array(u32),
    Element(Scalar, u32),
}

/// What a filter is asked about.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    /// A converted record; its fields begin behind so many bytes.
    pub(super) bytes: &'a [u8],
    pub(super) begin: usize,
    pub(super) circumstances: Circumstances,
    pub(super) moment: Moment,
}

/// When and where an event has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// On which CPU.
    pub cpu: u32,
    /// CLOCK_MONOTONIC, in ns.
    pub time_ns: u64,
}

/// Whether tracefs gives what each of these steps writes: what programs point to it does not.
pub fn gives(staged: &Staged) -> Vec<bool> {
    let mut is_given = true;
    let given = staged.steps.iter().map(|step| {
        // What is within belongs to the step before.
        if *step != Step::Within {
            is_given = !step.is_users() && !matches!(step, Step::Unknown(_));
        }
        is_given
    });
    given.collect()
}

impl Filter {
    /// The filter of this object, which is the one with this number, for an event; `None`: the
    /// event lacks what it asks for.
    ///
    /// # Errors
    ///
    /// If it makes no sense.
    pub fn new(object: &[u8], number: usize, staged: &Staged) -> Result<Option<Self>, FilterError> {
        let none = |why: String| FilterError::Object(why);
        // What is verified speaks of these bytes, for as long as the recording goes on, which is as
        // long as this process runs.
        let object: &'static [u8] = Box::leak(object.into());
        let object = Object::decode(object).map_err(|why| none(why.to_string()))?;
        let given = gives(staged);
        for alternative in object.alternatives() {
            let Some(slots) = slots(alternative, staged, &given) else { continue };
            let programs = (0..).zip(alternative.programs()).map(|(number, program)| {
                let rules = Rules { number, ..Rules::new(slots.len()) };
                let verified = verify(program, rules, &mut vec![State::FREE; program.len() + 1]);
                verified.map_err(|rejection| none(rejection.to_string()))
            });
            let programs = programs.collect::<Result<Vec<_>, _>>()?;
            if programs.is_empty() {
                return Err(none("it has no program".into()));
            }
            let last = slots.iter().filter_map(|take| match take {
                Take::Field(field, _) => Some(*field),
                Take::Context(_) => None,
            });
            let fields = staged.description.fields.iter().take(last.max().unwrap_or(0));
            return Ok(Some(Self {
                number,
                cells: object.cells().min(CELLS_MAX),
                programs,
                constants: alternative.constants(),
                passes: fields.map(|field| pass(&field.kind)).collect(),
                slots,
            }));
        }
        Ok(None)
    }

    /// Whether it takes an event, with what it remembers.
    pub(super) fn takes(&self, asked: &Asked<'_>, cells: &[Cell]) -> bool {
        let Some(places) = self.places(asked) else { return false };
        let environment = Environment::new(self.constants, cells, time_ns, random);
        let mut frame = Frame::new(&environment, asked.bytes);
        let filled = self.slots.iter().all(|take| {
            let value = match *take {
                Take::Context(context) => {
                    Some(context.value(&asked.circumstances, asked.moment.cpu))
                }
                Take::Field(field, value) => {
                    places.get(field).and_then(|&at| value_at(asked.bytes, at, value))
                }
            };
            value.is_some_and(|value| frame.push(value))
        });
        TIME_NS.set(asked.moment.time_ns);
        filled && interpret::run(&self.programs, &frame).is_ok_and(|outcome| outcome.answer != 0)
    }

    /// Where fields begin, as far as one of them counts.
    fn places(&self, asked: &Asked<'_>) -> Option<[usize; FIELDS_MAX + 1]> {
        let mut places = [0; FIELDS_MAX + 1];
        let mut at = asked.begin;
        places[0] = at;
        for (pass, place) in self.passes.iter().zip(&mut places[1..]) {
            at = at.checked_add(match *pass {
                Pass::Bytes(bytes) => bytes,
                Pass::Str => length_of_text(asked.bytes, at)? + 1,
                Pass::Counted(size) => {
                    let count = count_at(asked.bytes, at)? as usize;
                    count.checked_mul(size)?.checked_add(COUNT_BYTES)?
                }
            })?;
            *place = at;
        }
        Some(places)
    }
}

/// What slots are filled with; `None`: the event lacks something.
fn slots(of: Alternative<'_>, staged: &Staged, given: &[bool]) -> Option<Vec<Take>> {
    let slot = |need: trackway_jit::object::Need<'_>| {
        if let Some(name) = need.path.strip_prefix("$ctx.") {
            let context = Context::named(name)?;
            let is = if context.scalar().is_signed() { Kind::Signed } else { Kind::Unsigned };
            return (is == need.kind).then_some(Take::Context(context));
        }
        let (name, index) = split_index(need.path);
        let fields = &staged.description.fields;
        let number = fields.iter().position(|field| field.name == name)?;
        let kind = &fields.get(number)?.kind;
        let is_it = given.get(number) == Some(&true) && kind_at(kind, index) == Some(need.kind);
        is_it.then_some(())?;
        Some(Take::Field(number, value(kind, index)?))
    };
    of.needs().map(slot).collect()
}

fn value(kind: &FieldKind, index: Option<u32>) -> Option<Value> {
    Some(match (kind, index) {
        (FieldKind::Scalar(scalar) | FieldKind::Enumeration(scalar, _), None) => {
            Value::Scalar(*scalar, 0)
        }
        (FieldKind::Array(scalar, _), Some(index)) => {
            Value::Scalar(*scalar, index as usize * scalar.size_bytes())
        }
        (FieldKind::Array(_, length), None) => Value::Array((*length).into()),
        (FieldKind::Sequence(scalar), Some(index)) => Value::Element(*scalar, index),
        (FieldKind::Sequence(_) | FieldKind::Text, None) => Value::Counted,
        (FieldKind::Str, None) => Value::Str,
        _ => return None,
    })
}

fn pass(kind: &FieldKind) -> Pass {
    match kind {
        FieldKind::Scalar(scalar) | FieldKind::Enumeration(scalar, _) => {
            Pass::Bytes(scalar.size_bytes())
        }
        FieldKind::Array(scalar, length) => Pass::Bytes(scalar.size_bytes() * usize::from(*length)),
        FieldKind::Str => Pass::Str,
        // (Of several texts there are none: they are programs'.)
        FieldKind::Text | FieldKind::Strings => Pass::Counted(1),
        FieldKind::Sequence(scalar) => Pass::Counted(scalar.size_bytes()),
    }
}

fn value_at(bytes: &[u8], at: usize, value: Value) -> Option<u64> {
    let word = |offset: usize, length: usize| {
        let (offset, length) = (u32::try_from(offset).ok()?, u32::try_from(length).ok()?);
        Some(Word { offset, length, is_constant: false }.to_bits())
    };
    match value {
        Value::Scalar(scalar, within) => scalar_at(bytes, at.checked_add(within)?, scalar),
        Value::Str => word(at, length_of_text(bytes, at)?),
        Value::Counted => word(at.checked_add(COUNT_BYTES)?, count_at(bytes, at)? as usize),
        Value::Array(length) => word(at, length as usize),
        Value::Element(scalar, index) => {
            let is_there = index < count_at(bytes, at)?;
            let within = COUNT_BYTES + index as usize * scalar.size_bytes();
            is_there.then(|| scalar_at(bytes, at.checked_add(within)?, scalar))?
        }
    }
}

fn length_of_text(bytes: &[u8], at: usize) -> Option<usize> {
    bytes.get(at..)?.iter().position(|&byte| byte == 0)
}

fn count_at(bytes: &[u8], at: usize) -> Option<u32> {
    let count = bytes.get(at..at.checked_add(COUNT_BYTES)?)?;
    Some(u32::from_ne_bytes(count.try_into().ok()?))
}

thread_local! {
    /// What helpers ask the world for, while a filter runs on this thread: when the event was.
    static TIME_NS: ThreadCell<u64> = const { ThreadCell::new(0) };
    /// What random numbers come from.
    static SEED: ThreadCell<u64> = ThreadCell::new(
        std::hash::RandomState::new().build_hasher().finish()
    );
}

extern "C" fn time_ns() -> u64 {
    TIME_NS.get()
}

/// Steele, Lea, Flood: Fast splittable pseudorandom number generators (2014): SplitMix64.
extern "C" fn random() -> u64 {
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
    use crate::catalogue::model::{Event, Field, Kind as Of, Location, Meaning, Source};

    /// An event with a field of each kind that a record may have.
    fn staged() -> Staged {
        let field = |name: &str, kind, offset, size| Field {
            name: name.into(),
            type_text: String::new(),
            kind,
            offset,
            size,
            meaning: Meaning::Plain,
            argument: None,
            behind: None,
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
        Staged::new(&event, 3500)
    }

    fn filter(text: &str, number: usize) -> Filter {
        let staged = staged();
        let fields = staged.description.fields.iter();
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
        Filter::new(&object, number, &staged).expect("a filter").expect("it has all")
    }

    /// What such a record becomes, behind a thread's number.
    fn payload() -> Vec<u8> {
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

    fn takes(filter: &Filter, bytes: &[u8]) -> bool {
        let circumstances = Circumstances { tid: 77, flags: 1, preempt_count: 0 };
        let moment = Moment { cpu: 2, time_ns: 1_500_000_000 };
        let cells: Vec<Cell> = (0..filter.cells).map(|_| Cell::default()).collect();
        filter.takes(&Asked { bytes, begin: 4, circumstances, moment }, &cells)
    }

    #[test]
    fn filters_read_each_kind_of_field_and_context() {
        let payload = payload();
        for (text, is_so) in [
            ("comm == \"sh\" && prio == -5", true),
            ("name == \"a*e\" && values[2] == 9 && last > 199", true),
            ("words[2] == 0xffffffff && length(words) == 3", true),
            ("any(values == 8) && length(values) == 3", true),
            // Not there: no.
            ("values[3] == 0", false),
            ("!(values[3] == 0)", false),
            ("$ctx.tid == 77 && $ctx.cpu_id == 2", true),
            ("$ctx.interruptible == 0 && $ctx.preemptible == 1", true),
            ("$ctx.need_reschedule", false),
            ("prio * 0.5 < -2.4", true),
            ("sample(1) && rate(1/s)", true),
        ] {
            assert_eq!(takes(&filter(text, 0), &payload), is_so, "{text}");
        }
    }

    #[test]
    fn what_is_cut_short_or_makes_no_sense_is_not_taken() {
        let of_last = filter("last >= 0", 0);
        let payload = payload();
        for end in 0..payload.len() {
            assert!(!takes(&of_last, &payload[..end]), "{end}");
        }
        let mut wrong = payload;
        wrong[18..22].fill(0xff);
        assert!(!takes(&of_last, &wrong));
        assert!(!takes(&filter("any(values == 1)", 0), &wrong));
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
            Filter::new(&object, 0, &staged()).expect("a filter").is_some()
        };
        assert!(of("prio"));
        // Of another kind; not there at all.
        assert!(!of("last") && !of("other"));
    }
}
