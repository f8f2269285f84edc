//! Fields out of bits.
//!
//! One walk over a type serves everything: a [`Sink`] gets the values and makes text, a
//! [`super::Value`] or nothing of them. The walk is safe on any bytes: it never leaves the
//! content, and a budget of elements per packet bounds its work even where elements take no
//! space.

use super::error::DecodeError;
use super::types::{
    Array, Enumeration, Float, Integer, Member, ROLES, Role, Sequence, Struct, Type, Variant,
    VariantOption, in_range,
};

/// Takes decoded values, in the order of their bytes.
pub trait Sink {
    /// An integer; if it is signed, `value` is sign-extended two's complement.
    fn integer(&mut self, kind: &Integer, value: u64);
    /// An integer with labels; `value` as in [`Sink::integer`].
    fn enumeration(&mut self, kind: &Enumeration, value: u64);
    /// A floating-point number; 32-bit ones are widened.
    fn float(&mut self, value: f64);
    /// A string without its NUL: any bytes but NUL.
    fn text(&mut self, bytes: &[u8]);
    /// A structure begins.
    fn begin_struct(&mut self);
    /// A structure's next member; its value follows.
    fn member(&mut self, member: &Member);
    /// A structure ends.
    fn end_struct(&mut self);
    /// An array or a sequence begins.
    fn begin_array(&mut self);
    /// An array's next element; its value follows.
    fn element(&mut self, index: u64);
    /// An array ends.
    fn end_array(&mut self);
    /// A variant begins; its value follows.
    fn begin_variant(&mut self, option: &VariantOption);
    /// A variant ends.
    fn end_variant(&mut self);
}

/// Takes nothing.
pub(crate) struct Skip;

impl Sink for Skip {
    fn integer(&mut self, _: &Integer, _: u64) {}
    fn enumeration(&mut self, _: &Enumeration, _: u64) {}
    fn float(&mut self, _: f64) {}
    fn text(&mut self, _: &[u8]) {}
    fn begin_struct(&mut self) {}
    fn member(&mut self, _: &Member) {}
    fn end_struct(&mut self) {}
    fn begin_array(&mut self) {}
    fn element(&mut self, _: u64) {}
    fn end_array(&mut self) {}
    fn begin_variant(&mut self, _: &VariantOption) {}
    fn end_variant(&mut self) {}
}

/// What decoding leaves behind for later fields.
#[derive(Debug, Clone)]
pub(crate) struct State {
    /// Latest values of the fields that others depend on.
    pub(crate) slots: Vec<u64>,
    /// Latest value of the stream's clock.
    pub(crate) clock: u64,
    /// Latest values of the fields that tell about packets and events.
    pub(crate) roles: [Option<u64>; ROLES],
    /// How many more elements of arrays this packet may have.
    pub(crate) budget: u64,
}

impl State {
    pub(crate) fn new(slots: usize) -> Self {
        Self { slots: vec![0; slots], clock: 0, roles: [None; ROLES], budget: 0 }
    }

    pub(crate) fn role(&self, role: Role) -> Option<u64> {
        self.roles[role as usize]
    }

    /// What to do with an integer's value besides showing it.
    fn note(&mut self, integer: &Integer, value: u64) {
        if integer.role != Role::None {
            self.roles[integer.role as usize] = Some(value);
        }
        // The end of the packet is not the time of its first event.
        if integer.clock.is_some() && !integer.signed && integer.role != Role::TimestampEnd {
            self.clock = advanced(self.clock, value, integer.bits);
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

    fn slot(&self, slot: usize) -> u64 {
        self.slots.get(slot).copied().unwrap_or(0)
    }
}

/// The clock after its low `bits` are known to be `low`: it went forward, less than once round.
pub(crate) fn advanced(clock: u64, low: u64, bits: u32) -> u64 {
    if bits >= 64 {
        return low;
    }
    let mask = (1_u64 << bits) - 1;
    let high = if low < clock & mask { clock.wrapping_add(mask + 1) } else { clock };
    (high & !mask) | low
}

/// Where the walk is in a piece of a packet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'bytes> {
    bytes: &'bytes [u8],
    /// Bit in the packet at which `bytes` begin.
    origin: u64,
    /// Next bit, counted from `origin`.
    bit: u64,
    /// End of what may be read, counted from `origin`.
    end: u64,
}

impl<'bytes> Cursor<'bytes> {
    /// A cursor at `bit` of a packet whose content ends at `end`, of which `bytes` are the part
    /// that begins at byte `start`.
    pub(crate) fn new(bytes: &'bytes [u8], start: u64, bit: u64, end: u64) -> Self {
        let origin = start.saturating_mul(8);
        let end = end.saturating_sub(origin).min((bytes.len() as u64).saturating_mul(8));
        Self { bytes, origin, bit: bit.saturating_sub(origin), end }
    }

    /// The next bit, counted from the packet's start.
    pub(crate) fn position(&self) -> u64 {
        self.origin + self.bit
    }

    fn truncated(&self) -> DecodeError {
        DecodeError::Truncated { bit: self.position() }
    }

    fn align(&mut self, alignment: u64) -> Result<(), DecodeError> {
        if alignment > 1 {
            // Alignments are powers of two, and pieces begin at multiples of the greatest.
            let aligned = (self.bit + (alignment - 1)) & !(alignment - 1);
            if aligned > self.end {
                return Err(self.truncated());
            }
            self.bit = aligned;
        }
        Ok(())
    }

    /// Takes a compact event header, if that comes next: see `StreamClass::compact_tags`.
    pub(crate) fn compact_header(&mut self, tags: u32) -> Option<(u64, u64)> {
        let aligned = self.bit.next_multiple_of(8);
        let word = self.bytes.get((aligned / 8) as usize..)?.first_chunk::<4>()?;
        let word = u32::from_le_bytes(*word);
        let tag = word & 31;
        if tag > tags || aligned + 32 > self.end {
            return None;
        }
        self.bit = aligned + 32;
        Some((u64::from(tag), u64::from(word >> 5)))
    }

    /// The next `bits` (1 to 64), without their sign.
    #[inline]
    fn take(&mut self, bits: u32, big_endian: bool) -> Result<u64, DecodeError> {
        let (start, end) = (self.bit, self.bit + u64::from(bits));
        if end > self.end {
            return Err(self.truncated());
        }
        self.bit = end;
        let first = (start / 8) as usize;
        let offset = (start % 8) as u32;
        let mask = u64::MAX >> (64 - bits);
        if !big_endian && offset + bits <= 64 {
            // The common case, and the only one in what this library writes.
            let rest = self.bytes.get(first..).unwrap_or_default();
            if let Some(word) = rest.first_chunk::<8>() {
                return Ok(u64::from_le_bytes(*word) >> offset & mask);
            }
        }
        let past = end.div_ceil(8) as usize;
        let bytes = self.bytes.get(first..past).unwrap_or_default();
        // At most nine bytes.
        let mut wide: u128 = 0;
        let value = if big_endian {
            bytes.iter().for_each(|&byte| wide = wide << 8 | u128::from(byte));
            wide >> (8 * bytes.len() as u32 - offset - bits)
        } else {
            bytes.iter().rev().for_each(|&byte| wide = wide << 8 | u128::from(byte));
            wide >> offset
        };
        Ok(value as u64 & mask)
    }

    /// Bytes up to a NUL, which is passed over.
    fn string(&mut self) -> Result<&'bytes [u8], DecodeError> {
        self.align(8)?;
        let rest = self.rest();
        let length = rest.iter().position(|&byte| byte == 0).ok_or_else(|| self.truncated())?;
        self.bit += 8 * (length as u64 + 1);
        Ok(rest.get(..length).unwrap_or_default())
    }

    /// `length` bytes; the cursor is at a byte's start.
    fn bytes(&mut self, length: u64) -> Result<&'bytes [u8], DecodeError> {
        let length = usize::try_from(length).map_err(|_| self.truncated())?;
        let taken = self.rest().get(..length).ok_or_else(|| self.truncated())?;
        self.bit += 8 * length as u64;
        Ok(taken)
    }

    fn rest(&self) -> &'bytes [u8] {
        self.bytes.get((self.bit / 8) as usize..(self.end / 8) as usize).unwrap_or_default()
    }
}

/// Decodes one field into `sink`.
pub(crate) fn decode<S: Sink>(
    kind: &Type,
    cursor: &mut Cursor<'_>,
    state: &mut State,
    sink: &mut S,
) -> Result<(), DecodeError> {
    match kind {
        Type::Integer(integer) => {
            let value = integer_value(integer, cursor, state)?;
            sink.integer(integer, value);
        }
        Type::Enumeration(enumeration) => {
            let value = integer_value(&enumeration.integer, cursor, state)?;
            sink.enumeration(enumeration, value);
        }
        Type::Float(float) => sink.float(float_value(*float, cursor)?),
        Type::Text => sink.text(cursor.string()?),
        Type::Struct(structure) => decode_struct(structure, cursor, state, sink)?,
        Type::Array(array) => decode_array(array, cursor, state, sink)?,
        Type::Sequence(sequence) => decode_sequence(sequence, cursor, state, sink)?,
        Type::Variant(variant) => decode_variant(variant, cursor, state, sink)?,
    }
    Ok(())
}

#[inline]
fn integer_value(
    integer: &Integer,
    cursor: &mut Cursor<'_>,
    state: &mut State,
) -> Result<u64, DecodeError> {
    cursor.align(integer.alignment)?;
    let mut value = cursor.take(integer.bits, integer.big_endian)?;
    if integer.signed {
        let spare = 64 - integer.bits;
        value = (((value << spare) as i64) >> spare) as u64;
    }
    if !integer.plain {
        state.note(integer, value);
    }
    Ok(value)
}

fn float_value(float: Float, cursor: &mut Cursor<'_>) -> Result<f64, DecodeError> {
    cursor.align(float.alignment)?;
    if float.double {
        Ok(f64::from_bits(cursor.take(64, float.big_endian)?))
    } else {
        Ok(f64::from(f32::from_bits(cursor.take(32, float.big_endian)? as u32)))
    }
}

/// Decodes a structure.
pub(crate) fn decode_struct<S: Sink>(
    structure: &Struct,
    cursor: &mut Cursor<'_>,
    state: &mut State,
    sink: &mut S,
) -> Result<(), DecodeError> {
    cursor.align(structure.alignment)?;
    sink.begin_struct();
    for member in &structure.members {
        if member.hidden {
            decode(&member.kind, cursor, state, &mut Skip)?;
        } else {
            sink.member(member);
            decode(&member.kind, cursor, state, sink)?;
        }
    }
    sink.end_struct();
    Ok(())
}

fn decode_array<S: Sink>(
    array: &Array,
    cursor: &mut Cursor<'_>,
    state: &mut State,
    sink: &mut S,
) -> Result<(), DecodeError> {
    cursor.align(array.alignment)?;
    if array.text {
        text(cursor.bytes(array.length)?, sink);
        return Ok(());
    }
    elements(&array.element, array.length, cursor, state, sink)
}

fn decode_sequence<S: Sink>(
    sequence: &Sequence,
    cursor: &mut Cursor<'_>,
    state: &mut State,
    sink: &mut S,
) -> Result<(), DecodeError> {
    cursor.align(sequence.alignment)?;
    let length = state.slot(sequence.slot);
    if sequence.text {
        text(cursor.bytes(length)?, sink);
        return Ok(());
    }
    elements(&sequence.element, length, cursor, state, sink)
}

/// Text ends at its first NUL, if it has one.
fn text<S: Sink>(bytes: &[u8], sink: &mut S) {
    let length = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    sink.text(bytes.get(..length).unwrap_or_default());
}

fn elements<S: Sink>(
    element: &Type,
    length: u64,
    cursor: &mut Cursor<'_>,
    state: &mut State,
    sink: &mut S,
) -> Result<(), DecodeError> {
    let too_long = DecodeError::Length { bit: cursor.position(), length };
    state.budget = state.budget.checked_sub(length).ok_or(too_long)?;
    sink.begin_array();
    for index in 0..length {
        sink.element(index);
        decode(element, cursor, state, sink)?;
    }
    sink.end_array();
    Ok(())
}

fn decode_variant<S: Sink>(
    variant: &Variant,
    cursor: &mut Cursor<'_>,
    state: &mut State,
    sink: &mut S,
) -> Result<(), DecodeError> {
    let tag = state.slot(variant.slot);
    let chosen = variant.options.iter().find(|option| {
        option.ranges.iter().any(|&(first, last)| in_range(tag, first, last, variant.signed))
    });
    let option = chosen.ok_or(DecodeError::Tag { bit: cursor.position(), tag })?;
    sink.begin_variant(option);
    decode(&option.kind, cursor, state, sink)?;
    sink.end_variant();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_goes_round_once_at_most() {
        assert_eq!(advanced(0x0fff_fff0, 0x7ff_fff8, 27), 0x0fff_fff8);
        assert_eq!(advanced(0x0fff_fff0, 0x000_0001, 27), 0x1000_0001);
        assert_eq!(advanced(5, 5, 27), 5);
        assert_eq!(advanced(7, 3, 64), 3);
        assert_eq!(advanced(u64::MAX, 0, 27), 0);
    }

    #[test]
    fn bits_come_from_the_right_end() {
        let bytes = [0b1010_0101, 0x12, 0x34];
        let mut little = Cursor::new(&bytes, 0, 0, 24);
        assert_eq!((little.take(5, false), little.take(3, false)), (Ok(0b00101), Ok(0b101)));
        assert_eq!(little.take(16, false), Ok(0x3412));
        assert_eq!(little.take(1, false), Err(DecodeError::Truncated { bit: 24 }));
        let mut big = Cursor::new(&bytes, 0, 0, 24);
        assert_eq!((big.take(5, true), big.take(3, true)), (Ok(0b10100), Ok(0b101)));
        assert_eq!(big.take(16, true), Ok(0x1234));
    }
}
