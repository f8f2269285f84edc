//! Decoding of fields from bits.
//!
//! One walk over a type serves all uses: a [`Sink`] gets the values and turns them into text, into
//! [`super::Value`]s or into nothing. The walk is safe on any bytes. It never leaves the content,
//! and a budget of elements per packet bounds its work even if elements take no space.

use std::slice::Iter;

use super::cursor::Cursor;
use super::error::DecodeError;
use crate::model::runs::{ElementLayout, NumberPlace, Run};
use crate::model::types::{
    Array, Encoding, Enumeration, Float, Integer, Member, ROLES, Role, Sequence, Struct, TextEnd,
    Type, Variant, VariantOption, WideText, in_range,
};

/// A receiver of decoded values, in the order of their bytes. A sink that needs only values can
/// ignore the methods for structures.
pub trait Sink {
    /// An integer; if it is signed, `value` is sign-extended two's complement.
    fn integer(&mut self, kind: &Integer, value: u64);
    /// An integer with labels; for `value` see [`Sink::integer`].
    fn enumeration(&mut self, kind: &Enumeration, value: u64);
    /// A floating-point number, widened to 64 bits.
    fn float(&mut self, value: f64);
    /// A string without its NUL: any bytes but NUL.
    fn text(&mut self, bytes: &[u8]);
    /// A BLOB (CTF 2); `byte` is the type of its bytes.
    fn blob(&mut self, byte: &Integer, bytes: &[u8]) {
        self.begin_array();
        for (index, &value) in bytes.iter().enumerate() {
            self.element(index as u64);
            self.integer(byte, value.into());
        }
        self.end_array();
    }
    /// A structure begins.
    fn begin_struct(&mut self) {}
    /// The next member of a structure; its value follows.
    fn member(&mut self, _member: &Member) {}
    /// A structure ends.
    fn end_struct(&mut self) {}
    /// An array or a sequence begins.
    fn begin_array(&mut self) {}
    /// The next element of an array; its value follows.
    fn element(&mut self, _index: u64) {}
    /// An array ends.
    fn end_array(&mut self) {}
    /// A variant begins; its value follows.
    fn begin_variant(&mut self, _option: &VariantOption) {}
    /// A variant ends.
    fn end_variant(&mut self) {}
    /// The absence of an optional field (CTF 2), in place of its value.
    fn nothing(&mut self) {}
}

/// A sink that ignores all values.
#[derive(Debug, Clone, Copy)]
pub struct Skip;

impl Sink for Skip {
    fn integer(&mut self, _: &Integer, _: u64) {}
    fn enumeration(&mut self, _: &Enumeration, _: u64) {}
    fn float(&mut self, _: f64) {}
    fn text(&mut self, _: &[u8]) {}
}

/// State that decoding a field leaves for later fields.
#[derive(Debug, Clone)]
pub(crate) struct DecodeState {
    /// Latest values of the fields that other fields depend on.
    pub(crate) slots: Vec<u64>,
    /// Latest value of the stream's clock.
    pub(crate) clock: u64,
    /// Latest values of the fields that describe packets and events.
    pub(crate) roles: [Option<u64>; ROLES],
    /// Number of further elements that arrays of this packet may have.
    pub(crate) budget: u64,
}

/// Decoding results that must be restored if an event cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    clock: u64,
    budget: u64,
}

impl DecodeState {
    pub(crate) const fn counts(&self) -> Counts {
        Counts { clock: self.clock, budget: self.budget }
    }

    pub(crate) const fn restore(&mut self, counts: Counts) {
        Counts { clock: self.clock, budget: self.budget } = counts;
    }

    pub(crate) fn new(slots: usize) -> Self {
        Self { slots: vec![0; slots], clock: 0, roles: [None; ROLES], budget: 0 }
    }

    pub(crate) fn role(&self, role: Role) -> Option<u64> {
        self.roles[role as usize]
    }

    /// Uses an integer's value for all purposes except showing it.
    fn note(&mut self, integer: &Integer, value: u64, bits: u32) {
        if integer.role != Role::None {
            self.roles[integer.role as usize] = Some(value);
        }
        // The end time of the packet is not the time of its first event.
        if integer.clock.is_some() && !integer.signed && integer.role != Role::TimestampEnd {
            self.clock = advance_clock(self.clock, value, bits);
        }
        if let Some(slot) = integer.slot {
            self.set_slot(slot, value);
        }
    }

    pub(crate) fn set_slot(&mut self, slot: usize, value: u64) {
        if let Some(slot) = self.slots.get_mut(slot) {
            *slot = value;
        }
    }

    pub(crate) fn slot(&self, slot: usize) -> u64 {
        self.slots.get(slot).copied().unwrap_or(0)
    }
}

/// Returns the clock's value after its low `bits` became `low`: it advanced by less than one wrap.
pub(crate) fn advance_clock(clock: u64, low: u64, bits: u32) -> u64 {
    if bits >= 64 {
        return low;
    }
    let mask = (1_u64 << bits) - 1;
    let high = if low < clock & mask { clock.wrapping_add(mask + 1) } else { clock };
    (high & !mask) | low
}

/// Decodes one field into `sink`.
pub(crate) fn decode_field<S: Sink>(
    kind: &Type,
    cursor: &mut Cursor<'_>,
    state: &mut DecodeState,
    sink: &mut S,
) -> Result<(), DecodeError> {
    match kind {
        Type::Integer(integer) => {
            let value = decode_integer(integer, cursor, state)?;
            sink.integer(integer, value);
        }
        Type::Enumeration(enumeration) => {
            let value = decode_integer(&enumeration.integer, cursor, state)?;
            sink.enumeration(enumeration, value);
        }
        Type::Float(kind) => sink.float(float_from_bits(*kind, decode_float_bits(*kind, cursor)?)),
        Type::Text => sink.text(cursor.string()?),
        Type::Struct(structure) => decode_struct(structure, cursor, state, sink)?,
        Type::Array(array) => decode_array(array, cursor, state, sink)?,
        Type::Sequence(sequence) => decode_sequence(sequence, cursor, state, sink)?,
        Type::Variant(variant) => decode_variant(variant, cursor, state, sink)?,
        Type::WideText(text) => decode_wide_text(*text, cursor, state, sink)?,
    }
    Ok(())
}

/// Decodes the next integer, sign-extended, and notes its value for dependent fields.
#[inline]
pub(crate) fn decode_integer(
    integer: &Integer,
    cursor: &mut Cursor<'_>,
    state: &mut DecodeState,
) -> Result<u64, DecodeError> {
    if integer.variable {
        return decode_variable_integer(integer, cursor, state);
    }
    cursor.align(integer.alignment)?;
    let mut value = cursor.take(integer.bits, integer.big_endian)?;
    if integer.reversed {
        value = reverse_low_bits(value, integer.bits);
    }
    if integer.signed {
        value = extend_sign(value, integer.bits);
    }
    if !integer.plain {
        state.note(integer, value, integer.bits);
    }
    Ok(value)
}

/// Decodes an integer of variable length (LEB128): every byte but the last has its highest bit set.
fn decode_variable_integer(
    integer: &Integer,
    cursor: &mut Cursor<'_>,
    state: &mut DecodeState,
) -> Result<u64, DecodeError> {
    cursor.align(8)?;
    let too_long = DecodeError::Integer { bit: cursor.position() };
    let (mut wide, mut bits) = (0_u128, 0);
    loop {
        let byte = cursor.take(8, false)?;
        wide |= u128::from(byte & 0x7f) << bits;
        bits += 7;
        if byte < 0x80 {
            break;
        }
        if bits >= VARIABLE_BITS_MAX {
            return Err(too_long);
        }
    }
    let value = if integer.signed {
        let spare = 128 - bits;
        i64::try_from(((wide << spare) as i128) >> spare).map(|value| value as u64).ok()
    } else {
        u64::try_from(wide).ok()
    };
    let value = value.ok_or(too_long)?;
    if !integer.plain {
        state.note(integer, value, bits);
    }
    Ok(value)
}

/// Maximum number of bits, seven per byte, of an integer of variable length: enough for 64.
const VARIABLE_BITS_MAX: u32 = 70;

/// Returns the lowest `bits` (1 to 64), sign-extended from the highest of them.
fn extend_sign(value: u64, bits: u32) -> u64 {
    let spare = 64 - bits;
    (((value << spare) as i64) >> spare) as u64
}

/// Returns the lowest `bits` (1 to 64) in reverse order.
pub(crate) fn reverse_low_bits(value: u64, bits: u32) -> u64 {
    value.reverse_bits() >> (64 - bits)
}

fn decode_float_bits(float: Float, cursor: &mut Cursor<'_>) -> Result<u64, DecodeError> {
    cursor.align(float.alignment)?;
    let value = cursor.take(float.bits, float.big_endian)?;
    Ok(if float.reversed { reverse_low_bits(value, float.bits) } else { value })
}

/// Returns the IEEE 754 number encoded by `bits`.
fn float_from_bits(kind: Float, bits: u64) -> f64 {
    match kind.bits {
        64 => f64::from_bits(bits),
        32 => f64::from(f32::from_bits(bits as u32)),
        _ => half_from_bits(bits as u16),
    }
}

/// Decodes a number of 16 bits: sign, five bits of exponent, ten of fraction.
fn half_from_bits(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    let magnitude = match exponent {
        0 => fraction * 2_f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2_f64.powi(exponent - 25),
    };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}

/// Returns the bytes of a text of wide characters, without its terminator.
pub(crate) fn read_wide_bytes<'bytes>(
    kind: WideText,
    cursor: &mut Cursor<'bytes>,
    state: &DecodeState,
) -> Result<&'bytes [u8], DecodeError> {
    cursor.align(8)?;
    match kind.end {
        TextEnd::Nul => cursor.wide_string(kind.encoding.unit_bytes()),
        TextEnd::Bytes(length) => cursor.bytes(length),
        TextEnd::Slot(slot) => cursor.bytes(state.slot(slot)),
    }
}

/// Decodes text of wide characters to UTF-8. Invalid characters become U+FFFD.
fn decode_wide_text<S: Sink>(
    kind: WideText,
    cursor: &mut Cursor<'_>,
    state: &DecodeState,
    sink: &mut S,
) -> Result<(), DecodeError> {
    let unit_bytes = kind.encoding.unit_bytes();
    let bytes = read_wide_bytes(kind, cursor, state)?;
    let units = bytes.chunks_exact(unit_bytes).map(|unit| match (kind.encoding, unit) {
        (Encoding::Utf16Be, &[a, b]) => u32::from(u16::from_be_bytes([a, b])),
        (Encoding::Utf16Le, &[a, b]) => u32::from(u16::from_le_bytes([a, b])),
        (Encoding::Utf32Be, &[a, b, c, d]) => u32::from_be_bytes([a, b, c, d]),
        (Encoding::Utf32Le, &[a, b, c, d]) => u32::from_le_bytes([a, b, c, d]),
        _ => 0,
    });
    let units = units.take_while(|&unit| unit != 0);
    let text: String = if unit_bytes == 2 {
        let decoded = char::decode_utf16(units.map(|unit| unit as u16));
        decoded.map(|character| character.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    } else {
        units.map(|unit| char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    };
    sink.text(text.as_bytes());
    Ok(())
}

/// Decodes a structure.
pub(crate) fn decode_struct<S: Sink>(
    structure: &Struct,
    cursor: &mut Cursor<'_>,
    state: &mut DecodeState,
    sink: &mut S,
) -> Result<(), DecodeError> {
    cursor.align(structure.alignment)?;
    sink.begin_struct();
    decode_members(&structure.members, &structure.runs, cursor, state, sink)?;
    sink.end_struct();
    Ok(())
}

/// Decodes members of a structure; `runs` are the runs among them.
#[inline]
pub(crate) fn decode_members<S: Sink>(
    members: &[Member],
    runs: &[Run],
    cursor: &mut Cursor<'_>,
    state: &mut DecodeState,
    sink: &mut S,
) -> Result<(), DecodeError> {
    let mut members = members.iter();
    for run in runs {
        for member in members.by_ref().take(run.before) {
            decode_member(member, cursor, state, sink)?;
        }
        decode_run(run, &mut members, cursor, state, sink)?;
    }
    members.try_for_each(|member| decode_member(member, cursor, state, sink))
}

#[inline]
fn decode_member<S: Sink>(
    member: &Member,
    cursor: &mut Cursor<'_>,
    state: &mut DecodeState,
    sink: &mut S,
) -> Result<(), DecodeError> {
    if member.hidden {
        return decode_field(&member.kind, cursor, state, &mut Skip);
    }
    sink.member(member);
    // The most frequent type between runs of numbers, decoded without a call.
    if let Type::Text = member.kind {
        sink.text(cursor.string()?);
        return Ok(());
    }
    decode_field(&member.kind, cursor, state, sink)
}

/// Decodes the members of a run, with one check of bounds if the window has its bytes.
#[inline]
fn decode_run<S: Sink>(
    run: &Run,
    members: &mut Iter<'_, Member>,
    cursor: &mut Cursor<'_>,
    state: &mut DecodeState,
    sink: &mut S,
) -> Result<(), DecodeError> {
    match cursor.run(run.alignment, run.bits, run.reach) {
        Some(bytes) => {
            for (place, member) in run.places.iter().zip(members) {
                emit_placed_number(member, place, bytes, state, sink);
            }
            Ok(())
        }
        None => members
            .take(run.places.len())
            .try_for_each(|member| decode_member(member, cursor, state, sink)),
    }
}

/// Passes a number at a known place to `sink`.
#[inline]
pub(crate) fn emit_placed_number<S: Sink>(
    member: &Member,
    place: &NumberPlace,
    run: &[u8],
    state: &mut DecodeState,
    sink: &mut S,
) {
    let value = place.read(run);
    if let Type::Integer(integer) | Type::Enumeration(Enumeration { integer, .. }) = &member.kind
        && !integer.plain
    {
        state.note(integer, value, integer.bits);
    }
    if !member.hidden {
        sink.member(member);
        emit_number(&member.kind, value, sink);
    }
}

/// Passes a number to `sink`; `value` holds its bits.
#[inline]
fn emit_number<S: Sink>(kind: &Type, value: u64, sink: &mut S) {
    match kind {
        Type::Integer(integer) => sink.integer(integer, value),
        Type::Enumeration(enumeration) => sink.enumeration(enumeration, value),
        Type::Float(kind) => sink.float(float_from_bits(*kind, value)),
        // The other types are no numbers.
        _ => {}
    }
}

fn decode_array<S: Sink>(
    array: &Array,
    cursor: &mut Cursor<'_>,
    state: &mut DecodeState,
    sink: &mut S,
) -> Result<(), DecodeError> {
    cursor.align(array.alignment)?;
    if array.text {
        emit_text(cursor.bytes(array.length)?, sink);
        return Ok(());
    }
    if array.blob {
        return emit_blob(&array.element, cursor.bytes(array.length)?, sink);
    }
    decode_elements(&array.element, array.elements, array.length, cursor, state, sink)
}

fn decode_sequence<S: Sink>(
    sequence: &Sequence,
    cursor: &mut Cursor<'_>,
    state: &mut DecodeState,
    sink: &mut S,
) -> Result<(), DecodeError> {
    cursor.align(sequence.alignment)?;
    let length = state.slot(sequence.slot);
    if sequence.text {
        emit_text(cursor.bytes(length)?, sink);
        return Ok(());
    }
    if sequence.blob {
        return emit_blob(&sequence.element, cursor.bytes(length)?, sink);
    }
    decode_elements(&sequence.element, sequence.elements, length, cursor, state, sink)
}

/// Passes text to `sink`, up to its first NUL, if any.
fn emit_text<S: Sink>(bytes: &[u8], sink: &mut S) {
    let length = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    sink.text(bytes.get(..length).unwrap_or_default());
}

fn emit_blob<S: Sink>(element: &Type, bytes: &[u8], sink: &mut S) -> Result<(), DecodeError> {
    if let Type::Integer(byte) = element {
        sink.blob(byte, bytes);
    }
    Ok(())
}

fn decode_elements<S: Sink>(
    element: &Type,
    places: Option<ElementLayout>,
    length: u64,
    cursor: &mut Cursor<'_>,
    state: &mut DecodeState,
    sink: &mut S,
) -> Result<(), DecodeError> {
    charge_elements(length, cursor, state)?;
    sink.begin_array();
    let mut first = 0;
    if let Some(places) = places {
        first = cursor.run_of(places, length, |index, value| {
            sink.element(index);
            emit_number(element, value, sink);
        });
    }
    for index in first..length {
        sink.element(index);
        decode_field(element, cursor, state, sink)?;
    }
    sink.end_array();
    Ok(())
}

/// Deducts `length` elements from the packet's budget.
pub(crate) fn charge_elements(
    length: u64,
    cursor: &Cursor<'_>,
    state: &mut DecodeState,
) -> Result<(), DecodeError> {
    let too_long = DecodeError::Length { bit: cursor.position(), length };
    state.budget = state.budget.checked_sub(length).ok_or(too_long)?;
    Ok(())
}

fn decode_variant<S: Sink>(
    variant: &Variant,
    cursor: &mut Cursor<'_>,
    state: &mut DecodeState,
    sink: &mut S,
) -> Result<(), DecodeError> {
    let Some(option) = select_option(variant, cursor, state)? else {
        sink.nothing();
        return Ok(());
    };
    sink.begin_variant(option);
    decode_field(&option.kind, cursor, state, sink)?;
    sink.end_variant();
    Ok(())
}

/// Returns the option that a variant's tag selects; `None` if an optional variant is empty.
pub(crate) fn select_option<'v>(
    variant: &'v Variant,
    cursor: &Cursor<'_>,
    state: &DecodeState,
) -> Result<Option<&'v VariantOption>, DecodeError> {
    let tag = state.slot(variant.slot);
    let chosen = variant.options.iter().find(|option| {
        option.ranges.iter().any(|&(first, last)| in_range(tag, first, last, variant.signed))
    });
    if chosen.is_none() && !variant.optional {
        return Err(DecodeError::Tag { bit: cursor.position(), tag });
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_goes_round_once_at_most() {
        assert_eq!(advance_clock(0x0fff_fff0, 0x7ff_fff8, 27), 0x0fff_fff8);
        assert_eq!(advance_clock(0x0fff_fff0, 0x000_0001, 27), 0x1000_0001);
        assert_eq!(advance_clock(5, 5, 27), 5);
        assert_eq!(advance_clock(7, 3, 64), 3);
        assert_eq!(advance_clock(u64::MAX, 0, 27), 0);
    }
}
