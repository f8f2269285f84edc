//! The framer: puts what a filter needs of a staged payload into its frame.
//!
//! A payload has its fields one after another, packed, little endian (`include/trackway/abi`):
//! where a field is depends on the strings and sequences before it. A framer is made once for an
//! event and a filter's needs. It knows, for each need, behind which field of variable size it is
//! (its *anchor*) and how far; so what it does for an event is to find the anchors that count, and
//! to read one value for each need.

use trackway_schema::context::{COUNT, ContextType, PROCNAME, TABLE, index_of};
use trackway_schema::{FIELDS_MAX, FieldView, FieldViews, Scalar, Shape};

use crate::frame::Frame;
use crate::helper::Word;
pub use crate::scalar::scalar_at;
use crate::{Kind, SLOTS_MAX};

/// Longest distance of a value from an anchor, in bytes: no payload is longer.
const DISTANCE_MAX: usize = 4096;
/// Bytes in front of the elements of sequences and of text: how many there are.
const COUNT_BYTES: usize = 4;

/// A filter's need: a path, and the kind that the filter expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WantedValue<'a> {
    /// A field's name, with `[INDEX]` behind it for an element; or `$ctx.` and a context's name.
    pub path: &'a [u8],
    /// The expected kind.
    pub kind: Kind,
}

/// An application's context in a process: where its value is put, for a filter that asks for it,
/// before the frame is filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApplicationContext {
    /// Kind of the value.
    pub kind: Kind,
    /// Distance of the value before the payload, in bytes: eight bytes of a number, or a string
    /// with its NUL.
    pub before: u16,
}

/// Why an event is not one for a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mismatch {
    /// It has nothing of this path: the need with this number.
    Lacks(usize),
    /// It has it, as something else, and lacks nothing.
    IsOther(usize),
    /// Its description makes no sense, or no payload is as long as it says.
    Description,
    /// There are more needs than slots.
    Needs,
}

/// Index of the thread's name in [`TABLE`].
const PROCNAME_AT: u8 = index_of(PROCNAME) as u8;

/// Values of the contexts of the thread that emits, each as a slot has it: a number of 64 bits, or
/// the [`Word`] of a text in the frame's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contexts {
    /// Values in the order of [`TABLE`].
    values: [u64; COUNT],
}

impl Contexts {
    /// All of them 0.
    pub const NONE: Self = Self { values: [0; COUNT] };

    /// The same, with this value of the context with this bit.
    #[inline]
    #[must_use]
    pub const fn with(mut self, bit: u32, value: u64) -> Self {
        let index = index_of(bit);
        if index < COUNT {
            self.values[index] = value;
        }
        self
    }

    /// The same, with a number that has a sign.
    #[inline]
    #[must_use]
    pub const fn with_signed(self, bit: u32, value: i32) -> Self {
        self.with(bit, (value as i64).cast_unsigned())
    }

    #[inline]
    fn value(&self, index: u8) -> u64 {
        self.values.get(usize::from(index)).copied().unwrap_or_default()
    }
}

/// The method for passing over the field before an anchor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SkipMethod {
    /// Up to and with a NUL.
    Str,
    /// A count, and so many times this many bytes.
    Counted(u8),
}

/// The way from one anchor to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnchorStep {
    /// From the anchor to the field, in bytes.
    distance: u16,
    pass: SkipMethod,
}

/// The source of a slot's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    Scalar(Scalar),
    Str,
    /// A count and that many bytes.
    Text,
    /// A count and that many elements.
    Sequence(Scalar),
    /// So many elements.
    Array(Scalar, u16),
    /// An element of a sequence: its number.
    Element(Scalar, u16),
    /// A context, by its index in [`TABLE`].
    Context(u8),
    /// An application's context that is a number: so many bytes before the payload.
    BeforePayload(u16),
    /// The same of a string.
    StrBeforePayload(u16),
}

/// The place of a need's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValuePlace {
    value: Value,
    /// The event's field that has it; 0 for a context.
    field: u8,
    anchor: u8,
    /// From the anchor, in bytes.
    distance: u16,
    /// From the field's beginning, in bytes.
    within: u16,
}

/// The source of a slot's value if fields do not lie one after another, such as the arguments of a
/// tracepoint before they are staged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The scalar that lies so many bytes behind the field's beginning.
    Scalar(Scalar, u16),
    /// The word of a string that ends with a NUL.
    Str,
    /// The word of a string of a length of its own.
    Text,
    /// The word of a sequence of as many elements as there are.
    Sequence(Scalar),
    /// The word of so many elements.
    Array(Scalar, u16),
    /// An element of a sequence, by its number; if it is not there, the event is not one for the
    /// filter.
    Element(Scalar, u16),
    /// Not of a field: of this value.
    Context(u64),
}

impl ValuePlace {
    /// Returns the index of the event's field, and the value that the need takes of it.
    #[inline]
    pub fn source(&self, contexts: &Contexts) -> (usize, Source) {
        let source = match self.value {
            Value::Scalar(scalar) => Source::Scalar(scalar, self.within),
            Value::Str => Source::Str,
            Value::Text => Source::Text,
            Value::Sequence(scalar) => Source::Sequence(scalar),
            Value::Array(scalar, length) => Source::Array(scalar, length),
            Value::Element(scalar, index) => Source::Element(scalar, index),
            // (Who has no payload has no values before it.)
            Value::Context(index) => Source::Context(contexts.value(index)),
            Value::BeforePayload(_) | Value::StrBeforePayload(_) => Source::Context(0),
        };
        (self.field.into(), source)
    }

    /// The scalar that machine code takes, and where it is in a payload.
    pub(crate) const fn coded(&self) -> Option<(Scalar, usize)> {
        match self.value {
            Value::Scalar(scalar) if self.anchor == 0 => Some((scalar, self.distance as usize)),
            _ => None,
        }
    }
}

/// Fills frames of one filter for one event, wherever its steps are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FramerView<'a> {
    /// The way past what has no fixed size.
    pub legs: &'a [AnchorStep],
    /// Sources of the slots' values.
    pub takes: &'a [ValuePlace],
}

/// A slot that machine code ([`crate::x86::emit_fill`]) does not fill, with its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemainingSlot {
    slot: u8,
    take: ValuePlace,
}

/// A framer, made of an event's description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Framer {
    legs: [AnchorStep; FIELDS_MAX],
    takes: [ValuePlace; SLOTS_MAX],
    /// Number of legs that are walked: those before the last anchor that a need has.
    legs_count: u8,
    takes_count: u8,
}

impl Framer {
    /// The framer of the event with these fields, for these needs.
    ///
    /// # Errors
    ///
    /// If the event is not one for the filter.
    pub fn new<'a>(
        fields: &FieldViews<'_>,
        needs: impl Iterator<Item = WantedValue<'a>>,
    ) -> Result<Self, Mismatch> {
        let mut framer = Self::EMPTY;
        framer.build_in_place(fields, needs)?;
        Ok(framer)
    }

    /// The framer of an event and a filter without needs.
    pub const EMPTY: Self = Self {
        legs: [AnchorStep { distance: 0, pass: SkipMethod::Str }; FIELDS_MAX],
        takes: [ValuePlace { value: Value::Str, field: 0, anchor: 0, distance: 0, within: 0 };
            SLOTS_MAX],
        legs_count: 0,
        takes_count: 0,
    };

    /// Makes it the framer of the event with these fields, for these needs: in place, because it is
    /// large.
    ///
    /// # Errors
    ///
    /// As [`Self::new`]; then it is one of no use.
    pub fn build_in_place<'a>(
        &mut self,
        fields: &FieldViews<'_>,
        needs: impl Iterator<Item = WantedValue<'a>>,
    ) -> Result<(), Mismatch> {
        self.build_in_place_with(fields, needs, |_| None)
    }

    /// The same in a process that has these contexts of applications, by name (`provider:name`).
    ///
    /// # Errors
    ///
    /// As [`Self::build_in_place`].
    pub fn build_in_place_with<'a>(
        &mut self,
        fields: &FieldViews<'_>,
        needs: impl Iterator<Item = WantedValue<'a>>,
        mut application: impl FnMut(&[u8]) -> Option<ApplicationContext>,
    ) -> Result<(), Mismatch> {
        (self.legs_count, self.takes_count) = (0, 0);
        let mut other = None;
        for (number, need) in needs.enumerate() {
            let taken = match need.path.strip_prefix(b"$app.") {
                Some(name) => application(name)
                    .ok_or(Mismatch::Lacks(number))
                    .and_then(|found| app_value(found, need.kind, number)),
                None => self.find_need(fields, need, number),
            };
            let take = match taken {
                // Perhaps it lacks another: that says more.
                Err(unfit @ Mismatch::IsOther(_)) => {
                    other.get_or_insert(unfit);
                    continue;
                }
                taken => taken?,
            };
            *self.takes.get_mut(number).ok_or(Mismatch::Needs)? = take;
            self.takes_count = number as u8 + 1;
            self.legs_count = self.legs_count.max(take.anchor);
        }
        other.map_or(Ok(()), Err)
    }

    /// Returns the number of slots that the framer fills.
    pub const fn slots(&self) -> usize {
        self.takes_count as usize
    }

    /// Finds a need, and notes the legs on the way there.
    fn find_need(
        &mut self,
        fields: &FieldViews<'_>,
        need: WantedValue<'_>,
        number: usize,
    ) -> Result<ValuePlace, Mismatch> {
        if let Some(context) = need.path.strip_prefix(b"$ctx.") {
            return context_value(context, need.kind, number);
        }
        let (name, index) = split_index(need.path).ok_or(Mismatch::Lacks(number))?;
        let (mut anchor, mut distance) = (0_u8, 0_usize);
        let mut fields = fields.clone();
        let mut which = 0_u8;
        for field in fields.by_ref() {
            if field.name == name {
                let (value, offset) = value_of(&field, index, need.kind, number)?;
                let (distance, within) =
                    (checked_distance(distance + offset)?, checked_distance(offset)?);
                return Ok(ValuePlace { value, field: which, anchor, distance, within });
            }
            which = which.saturating_add(1);
            match size_of_field(&field) {
                Ok(size) => distance += size,
                Err(pass) => {
                    let leg = AnchorStep { distance: checked_distance(distance)?, pass };
                    *self.legs.get_mut(usize::from(anchor)).ok_or(Mismatch::Description)? = leg;
                    (anchor, distance) = (anchor + 1, 0);
                }
            }
        }
        Err(if fields.is_whole() { Mismatch::Lacks(number) } else { Mismatch::Description })
    }

    /// Its steps, as many as there are.
    pub fn view(&self) -> FramerView<'_> {
        FramerView {
            legs: &self.legs[..usize::from(self.legs_count)],
            takes: &self.takes[..usize::from(self.takes_count)],
        }
    }

    /// See [`FramerView::fill`].
    pub fn fill(&self, frame: &mut Frame<'_>, begin: usize, contexts: &Contexts) -> bool {
        self.view().fill(frame, begin, contexts)
    }
}

impl FramerView<'_> {
    /// Returns true if a need is the thread's name.
    pub fn takes_procname(&self) -> bool {
        self.takes.iter().any(|take| take.value == Value::Context(PROCNAME_AT))
    }

    /// Returns the slots that machine code fills: scalars after fields of fixed size only. Slot,
    /// type, distance from the payload's beginning in bytes.
    pub fn coded(&self) -> impl Iterator<Item = (usize, Scalar, usize)> {
        self.takes.iter().enumerate().filter_map(|(slot, take)| {
            let (scalar, distance) = take.coded()?;
            Some((slot, scalar, distance))
        })
    }

    /// Returns the least size of a payload from which machine code fills slots, in bytes.
    pub fn coded_bytes(&self) -> usize {
        let ends = self.coded().map(|(_, scalar, distance)| distance + scalar.size_bytes());
        ends.max().unwrap_or(0)
    }

    /// Returns the slots that machine code does not fill.
    pub fn rest(&self) -> impl Iterator<Item = RemainingSlot> {
        let rest = self.takes.iter().zip(0..).filter(|(take, _)| take.coded().is_none());
        rest.map(|(&take, slot)| RemainingSlot { slot, take })
    }

    /// Sets the slots of a frame that machine code leaves, as [`Self::fill`] fills them.
    pub fn fill_rest(
        legs: &[AnchorStep],
        rest: &[RemainingSlot],
        frame: &mut Frame<'_>,
        begin: usize,
        contexts: &Contexts,
    ) -> bool {
        let bytes = frame.bytes();
        let Some(anchors) = (FramerView { legs, takes: &[] }).anchors(bytes, begin) else {
            return false;
        };
        rest.iter().all(|RemainingSlot { slot, take }| {
            let at = anchors[usize::from(take.anchor)] as usize + usize::from(take.distance);
            let value = value_at(bytes, at, take.value, contexts);
            value.is_some_and(|value| frame.set((*slot).into(), value))
        })
    }

    /// Fills a frame from the payload that lies in its bytes from `begin` on; false if something
    /// is not there (an element beyond the end, a payload that is not as described): then the event
    /// is not one for the filter.
    #[inline]
    pub fn fill(&self, frame: &mut Frame<'_>, begin: usize, contexts: &Contexts) -> bool {
        if self.legs.is_empty() {
            // Nothing is behind anything: there is one anchor.
            return self.fill_from(frame, contexts, |_| begin);
        }
        let Some(anchors) = self.anchors(frame.bytes(), begin) else { return false };
        self.fill_from(frame, contexts, |anchor| anchors[usize::from(anchor)] as usize)
    }

    #[inline]
    fn fill_from(
        &self,
        frame: &mut Frame<'_>,
        contexts: &Contexts,
        anchor: impl Fn(u8) -> usize,
    ) -> bool {
        let bytes = frame.bytes();
        self.takes.iter().all(|take| {
            let at = anchor(take.anchor) + usize::from(take.distance);
            value_at(bytes, at, take.value, contexts).is_some_and(|value| frame.push(value))
        })
    }

    fn anchors(&self, bytes: &[u8], begin: usize) -> Option<[u32; FIELDS_MAX + 1]> {
        let mut anchors = [0; FIELDS_MAX + 1];
        let mut at = begin;
        anchors[0] = at as u32;
        for (leg, anchor) in self.legs.iter().zip(&mut anchors[1..]) {
            at = field_end(bytes, at + usize::from(leg.distance), leg.pass)?;
            *anchor = at as u32;
        }
        Some(anchors)
    }
}

fn checked_distance(distance: usize) -> Result<u16, Mismatch> {
    if distance > DISTANCE_MAX { Err(Mismatch::Description) } else { Ok(distance as u16) }
}

/// A context's value: where it is does not depend on the event.
fn context_value(context: &[u8], kind: Kind, number: usize) -> Result<ValuePlace, Mismatch> {
    let found = TABLE.iter().position(|known| known.name.as_bytes() == context);
    let index = found.ok_or(Mismatch::Lacks(number))?;
    let is = match TABLE[index].of {
        ContextType::Scalar(Scalar::F32 | Scalar::F64) => Kind::Float,
        ContextType::Scalar(scalar) if scalar.is_signed() => Kind::Signed,
        ContextType::Scalar(_) => Kind::Unsigned,
        ContextType::Text(_) => Kind::String,
    };
    if kind != is {
        return Err(Mismatch::IsOther(number));
    }
    let value = Value::Context(index as u8);
    Ok(ValuePlace { value, field: 0, anchor: 0, distance: 0, within: 0 })
}

/// The same of an application's context.
const fn app_value(
    found: ApplicationContext,
    kind: Kind,
    number: usize,
) -> Result<ValuePlace, Mismatch> {
    if kind as u8 != found.kind as u8 {
        return Err(Mismatch::IsOther(number));
    }
    let value = match kind {
        Kind::String => Value::StrBeforePayload(found.before),
        _ => Value::BeforePayload(found.before),
    };
    Ok(ValuePlace { value, field: 0, anchor: 0, distance: 0, within: 0 })
}

/// A path's name and index: `ids[3]`.
pub(crate) fn split_index(path: &[u8]) -> Option<(&[u8], Option<u16>)> {
    let Some(inner) = path.strip_suffix(b"]") else { return Some((path, None)) };
    let open = inner.iter().rposition(|&byte| byte == b'[')?;
    let (name, index) = (inner.get(..open)?, inner.get(open + 1..)?);
    let index = core::str::from_utf8(index).ok()?.parse().ok()?;
    Some((name, Some(index)))
}

/// Returns the source of a slot's value in a field, and its distance from the field's beginning.
fn value_of(
    field: &FieldView<'_>,
    index: Option<u16>,
    kind: Kind,
    number: usize,
) -> Result<(Value, usize), Mismatch> {
    let scalar = field.scalar.ok_or(Mismatch::IsOther(number));
    let (value, is, offset) = match (field.shape, index) {
        (Shape::Scalar | Shape::Enumeration, None) => {
            (Value::Scalar(scalar?), kind_of_scalar(scalar?), 0)
        }
        (Shape::Str, None) => (Value::Str, Kind::String, 0),
        (Shape::Text, None) => (Value::Text, Kind::String, 0),
        (Shape::Sequence, None) => (Value::Sequence(scalar?), Kind::Sequence, 0),
        (Shape::Array, None) => (Value::Array(scalar?, field.length), Kind::Sequence, 0),
        (Shape::Array, Some(index)) if index < field.length => {
            let offset = usize::from(index) * scalar?.size_bytes();
            (Value::Scalar(scalar?), kind_of_scalar(scalar?), offset)
        }
        (Shape::Sequence, Some(index)) => {
            (Value::Element(scalar?, index), kind_of_scalar(scalar?), 0)
        }
        _ => return Err(Mismatch::IsOther(number)),
    };
    if is == kind { Ok((value, offset)) } else { Err(Mismatch::IsOther(number)) }
}

const fn kind_of_scalar(scalar: Scalar) -> Kind {
    match scalar {
        _ if scalar.is_float() => Kind::Float,
        _ if scalar.is_signed() => Kind::Signed,
        _ => Kind::Unsigned,
    }
}

/// A field's size in bytes, or how it is passed over.
fn size_of_field(field: &FieldView<'_>) -> Result<usize, SkipMethod> {
    let scalar_bytes = field.scalar.map_or(1, Scalar::size_bytes);
    match field.shape {
        Shape::Scalar | Shape::Enumeration => Ok(scalar_bytes),
        Shape::Array => Ok(scalar_bytes * usize::from(field.length)),
        Shape::Str => Err(SkipMethod::Str),
        Shape::Text => Err(SkipMethod::Counted(1)),
        Shape::Sequence => Err(SkipMethod::Counted(scalar_bytes as u8)),
    }
}

/// Returns the end of the field at `at`.
#[inline]
fn field_end(bytes: &[u8], at: usize, pass: SkipMethod) -> Option<usize> {
    match pass {
        SkipMethod::Str => Some(at + length_of_str(bytes, at)? + 1),
        SkipMethod::Counted(size) => {
            let count = count_at(bytes, at)? as usize;
            let end = count.checked_mul(usize::from(size))?.checked_add(at + COUNT_BYTES)?;
            (end <= bytes.len()).then_some(end)
        }
    }
}

/// Bytes of the NUL-terminated string at `at`, without its NUL. Eight at a time: this is most of
/// what a frame of strings costs.
#[inline]
fn length_of_str(bytes: &[u8], at: usize) -> Option<usize> {
    const LOW: u64 = 0x0101_0101_0101_0101;
    let rest = bytes.get(at..)?;
    let (words, tail) = rest.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        // The lowest bit set is that of the first zero: a borrow goes upward only.
        let zeros = word.wrapping_sub(LOW) & !word & LOW << 7;
        if zeros != 0 {
            return Some(8 * index + zeros.trailing_zeros() as usize / 8);
        }
    }
    let end = tail.iter().position(|&byte| byte == 0)?;
    Some(8 * words.len() + end)
}

fn count_at(bytes: &[u8], at: usize) -> Option<u32> {
    let count = bytes.get(at..at.checked_add(COUNT_BYTES)?)?;
    Some(u32::from_le_bytes(count.try_into().ok()?))
}

#[inline]
fn value_at(bytes: &[u8], at: usize, value: Value, contexts: &Contexts) -> Option<u64> {
    let word = |offset: usize, length: usize| {
        let (offset, length) = (offset as u32, length as u32);
        Some(Word { offset, length, is_constant: false }.to_bits())
    };
    match value {
        Value::Scalar(scalar) => scalar_at(bytes, at, scalar),
        Value::Str => word(at, length_of_str(bytes, at)?),
        Value::Text | Value::Sequence(_) => word(at + COUNT_BYTES, count_at(bytes, at)? as usize),
        Value::Array(_, length) => word(at, usize::from(length)),
        Value::Element(scalar, index) => {
            if u32::from(index) >= count_at(bytes, at)? {
                return None;
            }
            let offset = COUNT_BYTES + usize::from(index) * scalar.size_bytes();
            scalar_at(bytes, at + offset, scalar)
        }
        Value::Context(index) => Some(contexts.value(index)),
        Value::BeforePayload(before) => {
            scalar_at(bytes, at.checked_sub(usize::from(before))?, Scalar::U64)
        }
        Value::StrBeforePayload(before) => {
            let at = at.checked_sub(usize::from(before))?;
            word(at, length_of_str(bytes, at)?)
        }
    }
}
