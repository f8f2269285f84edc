//! Event headers read at known places: the decoder's fast path for what every event has.
//!
//! The headers of LTTng, Trackway and barectf are an event's id and the low bits of its time;
//! mostly a tag (an enumeration) says in which of two or three shapes they come. Such a header
//! is worked out once, when metadata is read, into a [`HeaderPlan`]; what is none is walked
//! through as any other structure, and so is a header near the end of the bytes at hand.

use super::cursor::Cursor;
use super::decode::{State, advanced};
use super::runs::Place;
use super::types::{Enumeration, Integer, Member, Role, Struct, Type};

/// An event header whose numbers have known places.
#[derive(Debug, Clone)]
pub(crate) struct HeaderPlan {
    alignment: u64,
    /// The number that says which shape it is, and its slot.
    tag: Option<(Place, usize)>,
    /// How many bytes from the header's start must be at hand for any shape.
    reach: usize,
    shapes: Vec<Shape>,
}

/// One of the forms that a header may have.
#[derive(Debug, Clone)]
struct Shape {
    /// The tags that select it.
    first: u64,
    last: u64,
    bits: u64,
    id: Id,
    /// Low bits of the clock, and how many.
    clock: Option<(Place, u32)>,
}

/// What tells the event's class.
#[derive(Debug, Clone)]
enum Id {
    /// Nothing: the stream has one class of events.
    None,
    /// The tag.
    Tag,
    /// Another number.
    At(Place),
}

impl HeaderPlan {
    /// The plan of a header, if it has one.
    pub(crate) fn new(header: &Type) -> Option<Self> {
        let Type::Struct(Struct { members, alignment, .. }) = header else { return None };
        let alignment = (*alignment).max(8);
        let is_aligned = header.alignment() == alignment;
        let (choice, numbers) = match members.split_last().filter(|_| is_aligned)? {
            (Member { kind: Type::Variant(choice), .. }, numbers) => (Some(choice), numbers),
            _ => (None, &members[..]),
        };
        let Some(choice) = choice else {
            let mut shape = Shape::new(0, u64::MAX);
            numbers.iter().try_for_each(|member| shape.add(&member.kind, None))?;
            let reach = shape.reach();
            return Some(Self { alignment, tag: None, reach, shapes: vec![shape] });
        };
        let [Member { kind: Type::Enumeration(Enumeration { integer: tag, .. }), .. }] = numbers
        else {
            return None;
        };
        let slot = tag.slot.filter(|&slot| slot == choice.slot && !tag.signed)?;
        let place = Place::new(0, tag.bits, false, tag.big_endian)?;
        let mut shapes = Vec::new();
        for option in &choice.options {
            let Type::Struct(Struct { members, alignment: within, .. }) = &option.kind else {
                return None;
            };
            // Beyond the header's own alignment, places depend on where the header is.
            if *within > alignment {
                return None;
            }
            for &(first, last) in &option.ranges {
                let mut shape = Shape::new(first, last);
                shape.add(&numbers[0].kind, Some(slot))?;
                shape.bits = shape.bits.next_multiple_of(*within);
                members.iter().try_for_each(|member| shape.add(&member.kind, None))?;
                shapes.push(shape);
            }
        }
        let reach = shapes.iter().map(Shape::reach).max()?.max(place.reach());
        Some(Self { alignment, tag: Some((place, slot)), reach, shapes })
    }

    /// Reads the header that comes next, and goes behind it: the event's id, if it has one. `None`,
    /// with nothing changed, if it must be walked through.
    #[inline]
    pub(crate) fn read(&self, cursor: &mut Cursor<'_>, state: &mut State) -> Option<Option<u64>> {
        let (bytes, rest) = cursor.at_hand(self.alignment, self.reach)?;
        let tag = match &self.tag {
            Some((place, _)) => place.read(bytes),
            None => 0,
        };
        let mut shapes = self.shapes.iter();
        let shape = shapes.find(|shape| (shape.first..=shape.last).contains(&tag))?;
        if shape.bits > rest {
            return None;
        }
        cursor.pass(self.alignment, shape.bits);
        if let Some((_, slot)) = self.tag {
            state.set_slot(slot, tag);
        }
        if let Some((place, bits)) = &shape.clock {
            state.clock = advanced(state.clock, place.read(bytes), *bits);
        }
        Some(match &shape.id {
            Id::None => None,
            Id::Tag => Some(tag),
            Id::At(place) => Some(place.read(bytes)),
        })
    }
}

impl Shape {
    const fn new(first: u64, last: u64) -> Self {
        Self { first, last, bits: 0, id: Id::None, clock: None }
    }

    /// Adds the next number; `None` if there is more to it than an id or a clock.
    fn add(&mut self, kind: &Type, tag: Option<usize>) -> Option<()> {
        let (Type::Integer(integer) | Type::Enumeration(Enumeration { integer, .. })) = kind else {
            return None;
        };
        let Integer { bits, alignment, signed, big_endian, .. } = *integer;
        if integer.reversed || integer.variable {
            return None;
        }
        let at = self.bits.checked_next_multiple_of(alignment)?;
        let place = Place::new(at, bits, signed, big_endian)?;
        self.bits = at + u64::from(bits);
        match integer.role {
            // Of events nobody asks for the latter.
            Role::None | Role::TimestampBegin => {}
            // Of several ids the last counts.
            Role::EventClass => self.id = if tag.is_some() { Id::Tag } else { Id::At(place) },
            _ => return None,
        }
        if integer.clock.is_some() {
            if signed || self.clock.is_some() {
                return None;
            }
            self.clock = Some((place, bits));
        }
        (integer.slot == tag).then_some(())
    }

    fn reach(&self) -> usize {
        let id = match &self.id {
            Id::At(place) => place.reach(),
            Id::None | Id::Tag => 0,
        };
        self.clock.map_or(0, |(place, _)| place.reach()).max(id)
    }
}
