//! The framer: copies the values that a filter needs from a staged payload to the frame.
//!
//! A payload holds its fields one after another, packed, little-endian (`include/trackway/abi`), so
//! a field's offset depends on the strings and sequences before it. A framer is built once for an
//! event and a filter's needs. For each need, it stores the field of variable size before it (its
//! *anchor*) and the distance from that field's end. For each event, it only finds the required
//! anchors, and reads one value for each need.

use trackway_schema::context::{COUNT, ContextType, PROCNAME, TABLE, index_of};
use trackway_schema::{FIELDS_MAX, FieldView, FieldViews, Scalar, Shape};

use crate::frame::Frame;
use crate::helper::Word;
pub use crate::scalar::scalar_at;
use crate::{Kind, SLOTS_MAX};

/// Maximum distance of a value from an anchor, in bytes: no payload is longer.
const DISTANCE_MAX: usize = 4096;
/// Size of the count before the elements of a sequence or the bytes of a text.
const COUNT_BYTES: usize = 4;

/// A filter's need: a path, and the kind that the filter expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WantedValue<'a> {
    /// A field name, with `[INDEX]` for an element, or `$ctx.` and a context name.
    pub path: &'a [u8],
    /// Kind that the filter expects.
    pub kind: Kind,
}

/// An application context in a process: its location in front of the payload. The value is stored
/// there before the frame is filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApplicationContext {
    /// Kind of the value.
    pub kind: Kind,
    /// Distance of the value before the payload, in bytes. The value is a number of eight bytes, or
    /// a NUL-terminated string.
    pub before: u16,
}

/// The reason why a filter does not apply to an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mismatch {
    /// The event has no value at this path: the need with this index.
    Lacks(usize),
    /// The value has another kind: the need with this index. No need is missing.
    IsOther(usize),
    /// The event's description is invalid, or longer than any payload.
    Description,
    /// There are more needs than slots.
    Needs,
}

/// Index of the thread name in [`TABLE`].
const PROCNAME_AT: u8 = index_of(PROCNAME) as u8;

/// Context values of the emitting thread in slot format: a 64-bit number, or the [`Word`] of a text
/// in the frame's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contexts {
    /// Values in the order of [`TABLE`].
    values: [u64; COUNT],
}

impl Contexts {
    /// Contexts that are all 0.
    pub const NONE: Self = Self { values: [0; COUNT] };

    /// Returns the contexts with this value of the context with this bit.
    #[inline]
    #[must_use]
    pub const fn with(mut self, bit: u32, value: u64) -> Self {
        let index = index_of(bit);
        if index < COUNT {
            self.values[index] = value;
        }
        self
    }

    /// Returns the contexts with a signed number as this context's value.
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

/// The method to skip the field of variable size that ends at an anchor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SkipMethod {
    /// A string, up to and including its NUL.
    Str,
    /// A count, then as many elements of this size in bytes.
    Counted(u8),
}

/// A step from one anchor to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnchorStep {
    /// Distance from the anchor to the field, in bytes.
    distance: u16,
    pass: SkipMethod,
}

/// The source of a slot's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    Scalar(Scalar),
    Str,
    /// A count, then as many bytes.
    Text,
    /// A count, then as many elements.
    Sequence(Scalar),
    /// A fixed number of elements.
    Array(Scalar, u16),
    /// An element of a sequence, with its index.
    Element(Scalar, u16),
    /// A context, by its index in [`TABLE`].
    Context(u8),
    /// A numeric application context, at this many bytes before the payload.
    BeforePayload(u16),
    /// A string application context, at this many bytes before the payload.
    StrBeforePayload(u16),
}

/// The location of a need's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValuePlace {
    value: Value,
    /// Index of the event's field; 0 for a context.
    field: u8,
    anchor: u8,
    /// Distance from the anchor, in bytes.
    distance: u16,
    /// Distance from the field's start, in bytes.
    within: u16,
}

/// The source of a slot's value if the fields are not in a payload, such as the arguments of a
/// tracepoint before staging.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A scalar at this offset in bytes from the field's start.
    Scalar(Scalar, u16),
    /// The word of a NUL-terminated string.
    Str,
    /// The word of a string with an explicit length.
    Text,
    /// The word of a sequence.
    Sequence(Scalar),
    /// The word of an array with this number of elements.
    Array(Scalar, u16),
    /// An element of a sequence, with its index. If the element is missing, the filter rejects the
    /// event.
    Element(Scalar, u16),
    /// A context with this value.
    Context(u64),
}

impl ValuePlace {
    /// Returns the index of the event's field, and the source of the need's value in this field.
    #[inline]
    pub fn source(&self, contexts: &Contexts) -> (usize, Source) {
        let source = match self.value {
            Value::Scalar(scalar) => Source::Scalar(scalar, self.within),
            Value::Str => Source::Str,
            Value::Text => Source::Text,
            Value::Sequence(scalar) => Source::Sequence(scalar),
            Value::Array(scalar, length) => Source::Array(scalar, length),
            Value::Element(scalar, index) => Source::Element(scalar, index),
            // Without a payload, there are no values in front of the payload.
            Value::Context(index) => Source::Context(contexts.value(index)),
            Value::BeforePayload(_) | Value::StrBeforePayload(_) => Source::Context(0),
        };
        (self.field.into(), source)
    }

    /// Returns the scalar that machine code loads, and its offset in the payload.
    pub(crate) const fn coded(&self) -> Option<(Scalar, usize)> {
        match self.value {
            Value::Scalar(scalar) if self.anchor == 0 => Some((scalar, self.distance as usize)),
            _ => None,
        }
    }
}

/// A borrowed framer: fills frames of one filter for one event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FramerView<'a> {
    /// Steps past the fields of variable size.
    pub legs: &'a [AnchorStep],
    /// Locations of the slots' values.
    pub takes: &'a [ValuePlace],
}

/// A slot that machine code ([`crate::x86::emit_fill`]) does not fill, with its value's location.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemainingSlot {
    slot: u8,
    take: ValuePlace,
}

/// A framer, built from an event's description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Framer {
    legs: [AnchorStep; FIELDS_MAX],
    takes: [ValuePlace; SLOTS_MAX],
    /// Number of steps to take: up to the last anchor that a need uses.
    legs_count: u8,
    takes_count: u8,
}

impl Framer {
    /// Creates the framer for these needs of the event with these fields.
    ///
    /// # Errors
    ///
    /// Returns an error if the filter does not apply to the event.
    pub fn new<'a>(
        fields: &FieldViews<'_>,
        needs: impl Iterator<Item = WantedValue<'a>>,
    ) -> Result<Self, Mismatch> {
        let mut framer = Self::EMPTY;
        framer.build_in_place(fields, needs)?;
        Ok(framer)
    }

    /// An empty framer, for a filter without needs.
    pub const EMPTY: Self = Self {
        legs: [AnchorStep { distance: 0, pass: SkipMethod::Str }; FIELDS_MAX],
        takes: [ValuePlace { value: Value::Str, field: 0, anchor: 0, distance: 0, within: 0 };
            SLOTS_MAX],
        legs_count: 0,
        takes_count: 0,
    };

    /// Builds the framer for these needs of the event with these fields. Works in place, because a
    /// framer is large.
    ///
    /// # Errors
    ///
    /// Fails like [`Self::new`]; the framer is unusable then.
    pub fn build_in_place<'a>(
        &mut self,
        fields: &FieldViews<'_>,
        needs: impl Iterator<Item = WantedValue<'a>>,
    ) -> Result<(), Mismatch> {
        self.build_in_place_with(fields, needs, |_| None)
    }

    /// Builds the framer in a process with application contexts, by name (`provider:name`).
    ///
    /// # Errors
    ///
    /// Fails like [`Self::build_in_place`].
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
                // Continues, since a missing need is the more useful error.
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

    /// Finds the value of a need, and stores the steps to its anchor.
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

    /// Returns a view of the used steps and locations.
    pub fn view(&self) -> FramerView<'_> {
        FramerView {
            legs: &self.legs[..usize::from(self.legs_count)],
            takes: &self.takes[..usize::from(self.takes_count)],
        }
    }

    /// Fills a frame like [`FramerView::fill`].
    pub fn fill(&self, frame: &mut Frame<'_>, begin: usize, contexts: &Contexts) -> bool {
        self.view().fill(frame, begin, contexts)
    }
}

impl FramerView<'_> {
    /// Returns true if a need is the thread name.
    pub fn takes_procname(&self) -> bool {
        self.takes.iter().any(|take| take.value == Value::Context(PROCNAME_AT))
    }

    /// Returns the slots that machine code fills: scalars after fields of fixed size only. Each
    /// item has the slot, the type, and the offset in the payload in bytes.
    pub fn coded(&self) -> impl Iterator<Item = (usize, Scalar, usize)> {
        self.takes.iter().enumerate().filter_map(|(slot, take)| {
            let (scalar, distance) = take.coded()?;
            Some((slot, scalar, distance))
        })
    }

    /// Returns the minimum payload size in bytes for which machine code may fill slots.
    pub fn coded_bytes(&self) -> usize {
        let ends = self.coded().map(|(_, scalar, distance)| distance + scalar.size_bytes());
        ends.max().unwrap_or(0)
    }

    /// Returns the slots that machine code does not fill.
    pub fn rest(&self) -> impl Iterator<Item = RemainingSlot> {
        let rest = self.takes.iter().zip(0..).filter(|(take, _)| take.coded().is_none());
        rest.map(|(&take, slot)| RemainingSlot { slot, take })
    }

    /// Sets the slots that machine code does not fill, like [`Self::fill`].
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

    /// Fills a frame from the payload at offset `begin` in the frame's bytes. Returns false, and so
    /// rejects the event, if a value is missing: an element beyond the end, or a payload that does
    /// not match the description.
    #[inline]
    pub fn fill(&self, frame: &mut Frame<'_>, begin: usize, contexts: &Contexts) -> bool {
        if self.legs.is_empty() {
            // All values have the first anchor, the start of the payload.
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

/// Returns the location of a context's value, which is the same for all events.
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

/// Returns the location of an application context's value.
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

/// Splits a path into name and index: `ids[3]`.
pub(crate) fn split_index(path: &[u8]) -> Option<(&[u8], Option<u16>)> {
    let Some(inner) = path.strip_suffix(b"]") else { return Some((path, None)) };
    let open = inner.iter().rposition(|&byte| byte == b'[')?;
    let (name, index) = (inner.get(..open)?, inner.get(open + 1..)?);
    let index = core::str::from_utf8(index).ok()?.parse().ok()?;
    Some((name, Some(index)))
}

/// Returns the source of a slot's value in a field, and its offset in the field.
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

/// Returns a field's fixed size in bytes, or the method to skip it.
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

/// Returns the end of the variable-size field at `at`.
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

/// Returns the NUL-terminated string at `at`, without its NUL. Searches eight bytes at a time: this
/// search dominates the cost of a frame with strings.
#[inline]
fn length_of_str(bytes: &[u8], at: usize) -> Option<usize> {
    const LOW: u64 = 0x0101_0101_0101_0101;
    let rest = bytes.get(at..)?;
    let (words, tail) = rest.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        // The lowest set bit marks the first zero byte: a borrow only affects higher bytes.
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
