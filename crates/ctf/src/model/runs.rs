//! Places of fields that are known without reading the fields: the decoder's fast path.
//!
//! Most structures are runs of numbers whose places follow from the place of the first number. A
//! [`Run`] holds these places, computed once, when the metadata is read. The decoder then checks
//! bounds once for a run and extracts each number from one 8-byte load. Where a run does not apply
//! (numbers across nine bytes, bytes near the end of the window, strings, …), the general walk in
//! `decode.rs` decodes the fields. A test compares the results of both.

use std::sync::Arc;

use super::scope::{SCOPES, Scope};
use super::types::{Array, Enumeration, Float, Integer, Member, Struct, Type};

/// The place of a number in a run, and how to extract it from the 8 bytes there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NumberPlace {
    byte: u32,
    /// Number of bits by which the 8-byte word is shifted right to move the number to its low end.
    shift: u8,
    big_endian: bool,
    /// Mask of the number's bits.
    mask: u64,
    /// The number's highest bit if it is a sign, else 0.
    sign: u64,
}

impl NumberPlace {
    /// Returns the place of a number of `bits` (1 to 64) at `bit` from the run's start; `None` if
    /// the number is not within 8 bytes.
    pub(crate) fn new(bit: u64, bits: u32, signed: bool, big_endian: bool) -> Option<Self> {
        let before = (bit % 8) as u32;
        let after = 64_u32.checked_sub(before + bits)?;
        Some(Self {
            byte: u32::try_from(bit / 8).ok()?,
            shift: if big_endian { after } else { before } as u8,
            big_endian,
            mask: u64::MAX >> (64 - bits),
            sign: u64::from(signed) << (bits - 1),
        })
    }

    pub(crate) const fn is_big_endian(self) -> bool {
        self.big_endian
    }

    pub(crate) const fn mask(self) -> u64 {
        self.mask
    }

    /// Returns the number of bits by which the run's first eight bytes are shifted right to move
    /// the number to their low end. Returns `None` if it is not within them or has a sign.
    pub(crate) fn shift_in_first_word(self) -> Option<u32> {
        let (shift, before) = (u32::from(self.shift), self.byte.checked_mul(8)?);
        let bits = self.mask.count_ones();
        match (self.sign, self.big_endian) {
            (0, false) => Some(shift + before).filter(|shift| shift + bits <= 64),
            (0, true) => shift.checked_sub(before),
            _ => None,
        }
    }

    /// Returns the end of the number's 8-byte word, in bytes from the run's start.
    pub(crate) const fn reach(self) -> usize {
        self.byte as usize + 8
    }

    /// Reads the number, sign-extended if it is signed. `run` must be at least as long as the
    /// place's reach.
    #[inline]
    pub(crate) fn read(&self, run: &[u8]) -> u64 {
        let start = self.byte as usize;
        let Some(Ok(word)) = run.get(start..start + 8).map(<[u8; 8]>::try_from) else { return 0 };
        let word =
            if self.big_endian { u64::from_be_bytes(word) } else { u64::from_le_bytes(word) };
        let number = word >> self.shift & self.mask;
        // Extends the sign, if there is one.
        (number ^ self.sign).wrapping_sub(self.sign)
    }
}

/// Consecutive members of a structure that are numbers at known places.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    /// Number of members between this run and the previous run, or the structure's start.
    pub(crate) before: usize,
    /// Alignment of the run's start, in bits: at least 8.
    pub(crate) alignment: u64,
    /// Size from the run's start to the end of its last number, in bits.
    pub(crate) bits: u64,
    /// Number of bytes that the window must have from the run's start.
    pub(crate) reach: usize,
    /// Places of the run's members.
    pub(crate) places: Vec<NumberPlace>,
}

/// The layout of an array of numbers: each begins at a byte boundary if the first does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ElementLayout {
    pub(crate) place: NumberPlace,
    /// Distance between the starts of two consecutive elements, in bytes.
    pub(crate) stride: usize,
}

/// The leading numbers of an event's contexts and payload, whose places follow from the place of
/// the first number. They are the whole of most events; other events add mostly a string or two.
#[derive(Debug, Clone)]
pub(crate) struct FlatLayout {
    /// Alignment of the first number's start, in bits: at least 8.
    pub(crate) alignment: u64,
    pub(crate) bits: u64,
    pub(crate) reach: usize,
    /// Parts of the event; the first `count` are used.
    parts: [FlatPart; SCOPES],
    count: usize,
    /// Number of scopes that the runs describe or that are absent. The decoder walks through later
    /// scopes field by field.
    pub(crate) scopes: usize,
}

/// A part of an event: a structure that begins with numbers at known places.
// The event's class holds all data that decides what is decoded. The class can seldom be predicted,
// and each pointer that must be followed before a misprediction is detected costs time again.
#[derive(Debug, Clone, Default)]
pub(crate) struct FlatPart {
    pub(crate) scope: Scope,
    // All are shared, or else each event class would have a copy of its stream's context.
    /// First members, which are numbers.
    pub(crate) numbers: Arc<[PlacedNumber]>,
    /// Strings directly after the numbers; only an event's last part has any.
    pub(crate) texts: Arc<[Member]>,
    /// Members after the strings; only an event's last part has any.
    pub(crate) rest: Arc<[Member]>,
    /// Runs among the members of `rest`.
    pub(crate) runs: Arc<[Run]>,
}

/// A number and its place. The member is a copy, so that all data about the number is adjacent.
#[derive(Debug)]
pub(crate) struct PlacedNumber {
    pub(crate) place: NumberPlace,
    pub(crate) member: Member,
}

impl FlatLayout {
    /// Returns the layout that all events of a stream share, whatever their class. `context` is the
    /// stream's context.
    pub(crate) fn of_stream(context: Option<&Type>) -> Option<Self> {
        let flat = Self {
            alignment: 0,
            bits: 0,
            reach: 0,
            parts: Default::default(),
            count: 0,
            scopes: 0,
        };
        flat.with(Scope::StreamContext, context)
    }

    /// Extends the stream's layout to the events of a class; `None` if no places are known.
    pub(crate) fn of_class(&self, context: Option<&Type>, fields: Option<&Type>) -> Option<Self> {
        let flat = self.clone().with(Scope::EventContext, context)?.with(Scope::Fields, fields)?;
        Some(flat).filter(|flat| flat.count > 0)
    }

    /// Returns the event's parts.
    #[inline]
    pub(crate) fn parts(&self) -> &[FlatPart] {
        self.parts.get(..self.count).unwrap_or_default()
    }

    /// Returns the layout with another part, if there is one; `None` if no place in it can be
    /// known.
    fn with(mut self, scope: Scope, part: Option<&Type>) -> Option<Self> {
        if self.parts().iter().any(FlatPart::is_open) {
            return Some(self);
        }
        self.scopes += 1;
        let Some(part) = part else { return Some(self) };
        if self.count == 0 {
            self.alignment = part.alignment();
        }
        let Type::Struct(Struct { members, alignment, shown: true, .. }) = part else {
            return None;
        };
        if self.alignment < 8.max(*alignment) {
            return None;
        }
        let mut run = Run {
            before: 0,
            alignment: self.alignment,
            bits: self.bits.next_multiple_of(*alignment),
            reach: self.reach,
            places: Vec::new(),
        };
        let known = members.iter().take_while(|member| {
            number_layout(&member.kind)
                .and_then(|number| extend_run(Some(&mut run), number))
                .is_some()
        });
        let (known, rest) = members.split_at(known.count());
        let is_text = |member: &&Member| matches!(member.kind, Type::Text) && !member.hidden;
        let (texts, others) = rest.split_at(rest.iter().take_while(is_text).count());
        let placed = |(place, member): (NumberPlace, &Member)| PlacedNumber {
            place,
            member: member.clone(),
        };
        *self.parts.get_mut(self.count)? = FlatPart {
            scope,
            numbers: run.places.into_iter().zip(known).map(placed).collect(),
            texts: texts.into(),
            rest: others.into(),
            runs: find_runs(others, 1).into(),
        };
        self.count += 1;
        (self.bits, self.reach) = (run.bits, run.reach);
        Some(self)
    }
}

impl FlatPart {
    /// Returns true if the part ends with fields of unknown size.
    fn is_open(&self) -> bool {
        !self.texts.is_empty() || !self.rest.is_empty()
    }
}

/// Returns size, alignment, sign and byte order of a number with the usual representation.
fn number_layout(kind: &Type) -> Option<(u32, u64, bool, bool)> {
    match kind {
        Type::Integer(integer) | Type::Enumeration(Enumeration { integer, .. }) => {
            let Integer { bits, alignment, signed, big_endian, .. } = *integer;
            let is_usual = !integer.reversed && !integer.variable;
            is_usual.then_some((bits, alignment, signed, big_endian))
        }
        Type::Float(Float { bits, alignment, big_endian, reversed: false }) => {
            Some((*bits, *alignment, false, *big_endian))
        }
        _ => None,
    }
}

/// Finds the runs of a structure that begins at a multiple of `alignment` bits.
pub(crate) fn find_runs(members: &[Member], alignment: u64) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut before = 0;
    // The alignment, in bits, that the next member's start has at least.
    let mut known = alignment;
    let mut open: Option<Run> = None;
    for member in members {
        let placed = number_layout(&member.kind).and_then(|number| {
            extend_run(open.as_mut(), number).or_else(|| begin_run(number, known))
        });
        match placed {
            Some(RunUpdate::Same) => {}
            Some(RunUpdate::New(run)) => {
                runs.extend(open.replace(Run { before, ..run }));
                before = 0;
            }
            None => {
                runs.extend(open.take());
                before += 1;
            }
        }
        known = if ends_at_byte(&member.kind) { 8 } else { 1 };
    }
    runs.extend(open);
    runs
}

enum RunUpdate {
    Same,
    New(Run),
}

/// Adds a number to a run, if its place in the run is known.
fn extend_run(run: Option<&mut Run>, number: (u32, u64, bool, bool)) -> Option<RunUpdate> {
    let (bits, alignment, signed, big_endian) = number;
    let run = run.filter(|run| alignment <= run.alignment)?;
    let at = run.bits.next_multiple_of(alignment);
    let place = NumberPlace::new(at, bits, signed, big_endian)?;
    run.bits = at + u64::from(bits);
    run.reach = run.reach.max(place.reach());
    run.places.push(place);
    Some(RunUpdate::Same)
}

/// Begins a run with `number`, if the number starts at a byte boundary.
fn begin_run(number: (u32, u64, bool, bool), known: u64) -> Option<RunUpdate> {
    let (bits, alignment, signed, big_endian) = number;
    let alignment = alignment.max(known);
    let place = NumberPlace::new(0, bits, signed, big_endian).filter(|_| alignment >= 8)?;
    let (bits, reach) = (u64::from(bits), place.reach());
    Some(RunUpdate::New(Run { before: 0, alignment, bits, reach, places: vec![place] }))
}

/// Returns true if a field after one of type `kind` always begins at a byte boundary.
fn ends_at_byte(kind: &Type) -> bool {
    match kind {
        Type::Text | Type::WideText(_) => true,
        Type::Integer(integer) => integer.variable,
        Type::Array(array) => array.text,
        Type::Sequence(sequence) => sequence.text,
        _ => false,
    }
}

/// Returns the layout of an array whose elements have type `element`, if it is known.
pub(crate) fn element_layout(element: &Type) -> Option<ElementLayout> {
    let (bits, alignment, signed, big_endian) = number_layout(element)?;
    let is_plain = match element {
        Type::Integer(integer) | Type::Enumeration(Enumeration { integer, .. }) => integer.plain,
        _ => true,
    };
    // There must be no padding between elements, because the last element would not have it.
    if !bits.is_multiple_of(8) || !u64::from(bits).is_multiple_of(alignment) || !is_plain {
        return None;
    }
    let place = NumberPlace::new(0, bits, signed, big_endian)?;
    Some(ElementLayout { place, stride: bits as usize / 8 })
}

/// Returns the size of a field from an aligned start, in bits, if it depends on no other field and
/// no other field depends on its value. The decoder skips such a field without reading it.
pub(crate) fn fixed_bits(kind: &Type) -> Option<u64> {
    match kind {
        Type::Integer(integer) | Type::Enumeration(Enumeration { integer, .. }) => {
            (integer.plain && !integer.variable).then_some(u64::from(integer.bits))
        }
        Type::Float(float) => Some(u64::from(float.bits)),
        Type::Struct(Struct { members, .. }) => members.iter().try_fold(0_u64, |at, member| {
            let at = at.checked_next_multiple_of(member.kind.alignment())?;
            at.checked_add(fixed_bits(&member.kind)?)
        }),
        Type::Array(Array { element, length, .. }) => {
            // `decode` must count elements that are structures or arrays, so their size is not
            // fixed here.
            number_layout(element)?;
            let bits = fixed_bits(element)?;
            let Some(others) = length.checked_sub(1) else { return Some(0) };
            let stride = bits.next_multiple_of(element.alignment());
            others.checked_mul(stride)?.checked_add(bits)
        }
        Type::Text | Type::WideText(_) | Type::Sequence(_) | Type::Variant(_) => None,
    }
}
