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
#[derive(Debug)]
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
            is_given = !step.is_users();
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
