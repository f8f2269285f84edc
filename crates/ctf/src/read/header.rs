//! Event headers read at known places: the decoder's fast path for the common part of all events.
//!
//! The headers of LTTng, Trackway and barectf hold an event's id and the low bits of its time.
//! Mostly a tag (an enumeration) selects one of two or three shapes. The parser compiles such a
//! header once into a [`HeaderPlan`]. Other headers, and headers near the end of the window, are
//! walked through like any structure.

use super::cursor::Cursor;
use super::decode::{DecodeState, advance_clock};
use crate::model::runs::NumberPlace;
use crate::model::types::{Enumeration, Integer, Member, Role, Struct, Type};

/// An event header whose numbers have known places.
#[derive(Debug, Clone)]
pub(crate) struct HeaderPlan {
    alignment: u64,
    /// Place and slot of the tag that selects the shape.
    tag: Option<(NumberPlace, usize)>,
    /// Number of bytes that the window must have from the header's start, for any shape.
    reach: usize,
    shapes: Vec<Shape>,
    /// Plan for the first shape, if the shape fits one word.
    word: Option<Word>,
}

/// A shape whose numbers are all in the header's first eight bytes. Nearly every event of LTTng and
/// Trackway has such a header.
#[derive(Debug, Clone, Copy)]
struct Word {
    big_endian: bool,
    tag: Bits,
    /// Tags that select the shape: `first`, and `further_tags` more.
    first: u64,
    further_tags: u64,
    bits: u64,
    /// Id of the event: the tag or another number; `None` if the stream has one event class.
    id: Option<Bits>,
    /// Low bits of the clock, and their number.
    clock: Bits,
    clock_bits: u32,
}

/// A number in a word.
#[derive(Debug, Clone, Copy)]
struct Bits {
    shift: u32,
    mask: u64,
}

impl Bits {
    #[inline]
    const fn of(self, word: u64) -> u64 {
        word >> self.shift & self.mask
    }
}

/// One of the shapes that a header may have.
#[derive(Debug, Clone)]
struct Shape {
    /// Tags that select the shape, from `first` to `last`.
    first: u64,
    last: u64,
    bits: u64,
    id: Id,
    /// Place of the clock's low bits, and their number.
    clock: Option<(NumberPlace, u32)>,
}

/// The source of an event's class id.
#[derive(Debug, Clone)]
enum Id {
    /// No source: the stream has one event class.
    None,
    /// The tag selects the class.
    Tag,
    /// Another number at this place.
    At(NumberPlace),
}

impl HeaderPlan {
    /// Compiles a header; `None` if its numbers have no known places.
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
            let (reach, word) = (shape.reach(), Word::new(None, &shape));
            return Some(Self { alignment, tag: None, reach, shapes: vec![shape], word });
        };
        let [Member { kind: Type::Enumeration(Enumeration { integer: tag, .. }), .. }] = numbers
        else {
            return None;
        };
        let slot = tag.slot.filter(|&slot| slot == choice.slot && !tag.signed)?;
        let place = NumberPlace::new(0, tag.bits, false, tag.big_endian)?;
        let mut shapes = Vec::new();
        for option in &choice.options {
            let Type::Struct(Struct { members, alignment: within, .. }) = &option.kind else {
                return None;
            };
            // With a larger alignment than the header's, places depend on where the header begins.
            if *within > alignment {
                return None;
            }
            // A range that ends before it begins contains no tag.
            for &(first, last) in option.ranges.iter().filter(|(first, last)| first <= last) {
                let mut shape = Shape::new(first, last);
                shape.add(&numbers[0].kind, Some(slot))?;
                shape.bits = shape.bits.next_multiple_of(*within);
                members.iter().try_for_each(|member| shape.add(&member.kind, None))?;
                shapes.push(shape);
            }
        }
        let reach = shapes.iter().map(Shape::reach).max()?.max(place.reach());
        let word = shapes.first().and_then(|shape| Word::new(Some(place), shape));
        Some(Self { alignment, tag: Some((place, slot)), reach, shapes, word })
    }

    /// Reads the next header and moves behind it; returns the event's id, if it has one. Returns
    /// `None`, with nothing changed, if the caller must walk through the header.
    #[inline]
    pub(crate) fn read(
        &self,
        cursor: &mut Cursor<'_>,
        state: &mut DecodeState,
    ) -> Option<Option<u64>> {
        self.read_word(cursor, state).or_else(|| self.read_shape(cursor, state))
    }

    /// Reads a header that fits one word.
    #[inline]
    fn read_word(&self, cursor: &mut Cursor<'_>, state: &mut DecodeState) -> Option<Option<u64>> {
        let word = self.word?;
        let (bytes, rest) = cursor.at_hand(self.alignment, 8)?;
        let bytes = <[u8; 8]>::try_from(bytes).ok()?;
        let read =
            if word.big_endian { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) };
        let tag = word.tag.of(read);
        if tag.wrapping_sub(word.first) > word.further_tags || word.bits > rest {
            return None;
        }
        cursor.pass(self.alignment, word.bits);
        if let Some((_, slot)) = self.tag {
            state.set_slot(slot, tag);
        }
        state.clock = advance_clock(state.clock, word.clock.of(read), word.clock_bits);
        Some(word.id.map(|id| id.of(read)))
    }

    /// Reads a header of any shape.
    #[inline(never)]
    fn read_shape(&self, cursor: &mut Cursor<'_>, state: &mut DecodeState) -> Option<Option<u64>> {
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
            state.clock = advance_clock(state.clock, place.read(bytes), *bits);
        }
        Some(match &shape.id {
            Id::None => None,
            Id::Tag => Some(tag),
            Id::At(place) => Some(place.read(bytes)),
        })
    }
}

impl Word {
    /// Compiles the shape that `tag` selects, if it has a clock and fits one word.
    fn new(tag: Option<NumberPlace>, shape: &Shape) -> Option<Self> {
        let (clock, clock_bits) = shape.clock?;
        let big_endian = clock.is_big_endian();
        let bits = |place: NumberPlace| {
            let shift = place.shift_in_first_word().filter(|_| place.is_big_endian() == big_endian);
            Some(Bits { shift: shift?, mask: place.mask() })
        };
        Some(Self {
            big_endian,
            tag: tag.map_or(Some(Bits { shift: 0, mask: 0 }), bits)?,
            first: tag.map_or(0, |_| shape.first),
            further_tags: tag.map_or(u64::MAX, |_| shape.last.wrapping_sub(shape.first)),
            bits: shape.bits,
            id: match &shape.id {
                Id::None => None,
                Id::Tag => Some(bits(tag?)?),
                Id::At(place) => Some(bits(*place)?),
            },
            clock: bits(clock)?,
            clock_bits,
        })
    }
}

impl Shape {
    const fn new(first: u64, last: u64) -> Self {
        Self { first, last, bits: 0, id: Id::None, clock: None }
    }

    /// Adds the next number; `None` if the reader uses it for more than an id or a clock.
    fn add(&mut self, kind: &Type, tag: Option<usize>) -> Option<()> {
        let (Type::Integer(integer) | Type::Enumeration(Enumeration { integer, .. })) = kind else {
            return None;
        };
        let Integer { bits, alignment, signed, big_endian, .. } = *integer;
        if integer.reversed || integer.variable {
            return None;
        }
        let at = self.bits.checked_next_multiple_of(alignment)?;
        let place = NumberPlace::new(at, bits, signed, big_endian)?;
        self.bits = at + u64::from(bits);
        match integer.role {
            // The begin time of a packet has no use in an event header.
            Role::None | Role::TimestampBegin => {}
            // If there are several ids, the last one applies.
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
