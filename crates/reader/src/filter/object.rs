//! Filters in C on events of a trace: their bytecode is interpreted, as in traced programs, on a
//! frame that is filled with decoded values.

use std::cell::Cell as ThreadCell;

use trackway_ctf::write::application_member;
use trackway_filter::evaluate::{Runtime as _, Values as _};
use trackway_filter::layout::{Float, Layout, Type};
use trackway_filter::types::{MemberPath, Root, Step};
use trackway_jit::Kind;
use trackway_jit::frame::{Cell, Environment, Frame};
use trackway_jit::helper::Word;
use trackway_jit::interpret;
use trackway_jit::object::{Alternative, Object};
use trackway_jit::verify::{Rules, State, Verified, verify};
use trackway_schema::Scalar;

use super::gather::{Gather, Plan};
use super::{FilterError, FilterRuntime};

/// Size limit of a frame's bytes: words hold offsets in 31 bits.
const BYTES_MAX: usize = i32::MAX as usize;

/// A verified object. Its bytes are never freed, because the verified programs refer to them and
/// are shared by all decoding threads.
#[derive(Debug, Clone)]
pub(super) struct VerifiedObject {
    alternatives: Vec<VerifiedAlternative>,
    cells: usize,
}

/// A verified alternative of an object.
#[derive(Debug, Clone)]
struct VerifiedAlternative {
    alternative: Alternative<'static>,
    programs: Vec<Verified<'static>>,
    /// Place and kind of each needed value.
    needs: Vec<(MemberPath, Kind)>,
}

impl VerifiedObject {
    /// Verifies an object's bytes.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes are no object, or one of its programs is refused.
    pub(super) fn new(bytes: &'static [u8]) -> Result<Self, FilterError> {
        let object = Object::decode(bytes).map_err(|error| FilterError(error.to_string()))?;
        let alternatives =
            object.alternatives().map(VerifiedAlternative::new).collect::<Result<_, _>>()?;
        Ok(Self { alternatives, cells: object.cells() })
    }

    /// Returns the filter of a class: the first alternative whose needs the class meets.
    /// Application contexts depend on the record, so an alternative that needs some is followed by
    /// others.
    pub(super) fn of_class(&self, layout: &Layout) -> Option<ObjectClassFilter> {
        let mut places: Vec<MemberPath> = Vec::new();
        let mut alternatives = Vec::new();
        for of_kinds in &self.alternatives {
            let Some(alternative) = of_kinds.of_class(layout, &mut places) else { continue };
            let is_sure = alternative.applications.is_empty();
            alternatives.push(alternative);
            if is_sure {
                break;
            }
        }
        let plan = Plan::new(places.iter());
        (!alternatives.is_empty()).then_some(ObjectClassFilter {
            plan,
            alternatives,
            cells: self.cells,
        })
    }

    /// Returns the needs of all alternatives, as text for people.
    pub(super) fn needs(&self) -> String {
        let of = |alternative: &VerifiedAlternative| {
            let mut needs: Vec<String> = Vec::new();
            for (place, kind) in &alternative.needs {
                let need = format!("{place} ({})", format!("{kind:?}").to_lowercase());
                if !needs.contains(&need) {
                    needs.push(need);
                }
            }
            needs.join(", ")
        };
        self.alternatives.iter().map(of).collect::<Vec<_>>().join("; or ")
    }
}

impl VerifiedAlternative {
    fn new(alternative: Alternative<'static>) -> Result<Self, FilterError> {
        let needs = alternative.needs().map(|need| {
            let no_path = || FilterError(format!("{} is no path", need.path));
            Ok((MemberPath::parse(need.path).ok_or_else(no_path)?, need.kind))
        });
        let programs = (0..).zip(alternative.programs()).map(|(number, program)| {
            let rules = Rules { number, ..Rules::new(alternative.needs_count()) };
            let verified = verify(program, rules, &mut vec![State::FREE; program.len() + 1]);
            verified.map_err(|rejection| FilterError(rejection.to_string()))
        });
        let (needs, programs) =
            (needs.collect::<Result<_, _>>()?, programs.collect::<Result<_, _>>()?);
        Ok(Self { alternative, programs, needs })
    }

    /// Returns the alternative for events of a class, if the class has all needed values; adds
    /// their places to `places`.
    fn of_class(&self, layout: &Layout, places: &mut Vec<MemberPath>) -> Option<ClassAlternative> {
        let is_there = |name: &str| {
            let member = application_member(name);
            layout.contexts.iter().any(|context| context.name == member)
        };
        let (mut slots, mut applications) = (Vec::new(), Vec::new());
        for (place, kind) in &self.needs {
            let take = match place.root {
                Root::Application => {
                    SlotSource::of_application(*kind).filter(|_| is_there(&place.name))
                }
                _ => SlotSource::of(layout.find(place)?, *kind).map(|take| take.at(place)),
            }?;
            let known = places.iter().position(|known| known == place);
            let at = known.unwrap_or_else(|| {
                places.push(place.clone());
                places.len() - 1
            });
            slots.push((at, take));
            if place.root == Root::Application {
                applications.push((at, *kind));
            }
        }
        let (programs, constants) = (self.programs.clone(), self.alternative.constants());
        Some(ClassAlternative { slots, applications, programs, constants })
    }
}

/// The source of a slot's value.
#[derive(Debug, Clone, Copy)]
enum SlotSource {
    Number,
    String,
    /// Text of an array element; the array may be shorter.
    TextElement,
    /// Array elements of this scalar type.
    Elements(Scalar),
}

impl SlotSource {
    /// Returns the source for an application context of this kind.
    fn of_application(kind: Kind) -> Option<Self> {
        match kind {
            Kind::Signed | Kind::Unsigned | Kind::Float => Some(Self::Number),
            Kind::String => Some(Self::String),
            Kind::Sequence => None,
        }
    }

    /// Returns the source for a value at `place`.
    fn at(self, place: &MemberPath) -> Self {
        match (self, place.steps.last()) {
            (Self::String, Some(Step::Element(_))) => Self::TextElement,
            (take, _) => take,
        }
    }

    /// Returns the source for a value of type `of`, if the type has this kind.
    fn of(of: &Type, kind: Kind) -> Option<Self> {
        let (take, is) = match of {
            Type::Integer(integer) if integer.is_signed => (Self::Number, Kind::Signed),
            Type::Integer(_) => (Self::Number, Kind::Unsigned),
            Type::Float(_) => (Self::Number, Kind::Float),
            Type::String => (Self::String, Kind::String),
            Type::Array(element, _) | Type::Sequence(element) => {
                let scalar = match &**element {
                    Type::Integer(integer) => integer.scalar?,
                    Type::Float(Float::F32) => Scalar::F32,
                    Type::Float(Float::F64) => Scalar::F64,
                    _ => return None,
                };
                (Self::Elements(scalar), Kind::Sequence)
            }
            Type::Structure(_) | Type::Other(_) => return None,
        };
        (is == kind).then_some(take)
    }
}

/// The filter object for one event class.
pub(super) struct ObjectClassFilter {
    pub(super) plan: Plan,
    /// Alternatives; the first whose needs a record meets decides.
    alternatives: Vec<ClassAlternative>,
    pub(super) cells: usize,
}

/// An alternative of the object for one event class.
struct ClassAlternative {
    /// For each slot, index of its need in the plan, and source of its value.
    slots: Vec<(usize, SlotSource)>,
    /// Application contexts, each with the kind that it must have in a record.
    applications: Vec<(usize, Kind)>,
    programs: Vec<Verified<'static>>,
    constants: &'static [u8],
}

thread_local! {
    /// Environment for the helpers of the program that runs on this thread.
    static CURRENT_RUNTIME: ThreadCell<FilterRuntime> =
        const { ThreadCell::new(FilterRuntime { time_ns: 0, seed: 0 }) };
}

extern "C" fn time_ns() -> u64 {
    CURRENT_RUNTIME.get().time_ns
}

extern "C" fn next_random() -> u64 {
    let mut moment = CURRENT_RUNTIME.get();
    let number = moment.random();
    CURRENT_RUNTIME.set(moment);
    number
}

impl ObjectClassFilter {
    /// Returns true if the filter accepts an event; `cells` is the filter's state.
    pub(super) fn takes(
        &self,
        values: &Gather,
        cells: &[Cell],
        moment: &mut FilterRuntime,
    ) -> bool {
        let is_one = |one: &&ClassAlternative| {
            one.applications.iter().all(|&(need, kind)| values.kind(need) == Some(kind))
        };
        let alternative = self.alternatives.iter().find(is_one);
        alternative.is_some_and(|one| one.takes(values, cells, moment))
    }
}

impl ClassAlternative {
    fn takes(&self, values: &Gather, cells: &[Cell], moment: &mut FilterRuntime) -> bool {
        let mut bytes = Vec::new();
        let environment = Environment::new(self.constants, cells, time_ns, next_random);
        let slots = self.slots.iter().map(|slot| slot_value(*slot, values, &mut bytes));
        let Some(slots) = slots.collect::<Option<Vec<u64>>>() else { return false };
        let mut frame = Frame::new(&environment, &bytes);
        if !slots.into_iter().all(|slot| frame.push(slot)) {
            return false;
        }
        CURRENT_RUNTIME.set(*moment);
        let outcome = interpret::run(&self.programs, &frame);
        *moment = CURRENT_RUNTIME.get();
        outcome.is_ok_and(|outcome| outcome.answer != 0)
    }
}

/// Returns a slot's value, and appends the data to which a word refers to `bytes`. Returns `None`
/// if the event lacks the value.
fn slot_value(
    (need, take): (usize, SlotSource),
    values: &Gather,
    bytes: &mut Vec<u8>,
) -> Option<u64> {
    let offset = u32::try_from(bytes.len()).ok()?;
    let length = match take {
        SlotSource::Number => return values.number(need),
        SlotSource::String | SlotSource::TextElement => {
            let string = match (values.string(need), take) {
                (None, SlotSource::TextElement) => return Some(Word::ABSENT),
                (string, _) => string?,
            };
            bytes.extend_from_slice(string);
            string.len()
        }
        SlotSource::Elements(scalar) => {
            let size = scalar.size_bytes();
            for index in 0..values.length(need)? {
                let value = values.element(need, index)?;
                let value = match scalar {
                    Scalar::F32 => (f64::from_bits(value) as f32).to_bits().into(),
                    _ => value,
                };
                bytes.extend_from_slice(value.to_le_bytes().get(..size)?);
            }
            (bytes.len() - offset as usize) / size
        }
    };
    let is_within = bytes.len() <= BYTES_MAX;
    let word = Word { offset, length: u32::try_from(length).ok()?, is_constant: false };
    is_within.then_some(word.to_bits())
}
