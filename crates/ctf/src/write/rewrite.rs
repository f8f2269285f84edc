//! Packets rewritten with only some of their events. The other events are cut out; the kept events
//! remain unchanged, bit by bit.
//!
//! The writer does not interpret values: it copies header, context and events field by field to
//! their new places, which differ where alignment requires it. Then it overwrites the fields that
//! describe the packet itself (sizes, times, numbers). So it can cut any packet, of any tracer and
//! any type, and loses nothing that this library does not know. (But where fields of different byte
//! orders share a byte, which CTF 1.8 forbids, they share bits.)
//!
//! A packet is written piece by piece: [`PacketRewriter::drain`] returns finished bytes. Only the
//! header is kept until the end, for its sizes.

use crate::read::{
    Cursor, DecodeError, DecodeState, Enumeration, Integer, Role, StreamClass, StreamDecoder,
    TextEnd, Trace, Type, WholeEvent, Window, charge_elements, decode_integer, read_wide_bytes,
    reverse_low_bits, select_option,
};

/// Maximum length of an array in a packet's header or context; real ones are shorter.
const HEADER_ELEMENTS_MAX: u64 = 1 << 12;

/// Properties of a rewritten packet that differ from those of the packet from which it was cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NewPacket {
    /// Clock at the packet's begin; `None`: unchanged.
    pub timestamp_begin: Option<u64>,
    /// Clock at the packet's end; `None`: unchanged.
    pub timestamp_end: Option<u64>,
    /// Number of the packet in the stream; `None`: unchanged.
    pub sequence: Option<u64>,
}

/// Writes one packet with some of the events of another packet.
#[derive(Debug, Clone)]
pub struct PacketRewriter<'trace> {
    class: &'trace StreamClass,
    /// Header and context of the packet.
    head: Vec<u8>,
    places: Vec<PacketField>,
    events: BitBuffer,
    reach_cycles: Option<u64>,
}

/// The place of a field that describes the packet.
#[derive(Debug, Clone, Copy)]
struct PacketField {
    role: Role,
    bit: u64,
    bits: u32,
    big_endian: bool,
}

impl<'trace> PacketRewriter<'trace> {
    /// Creates a packet without events, with the header and context of the packet that `decoder`
    /// has just begun. `window` is that packet's start.
    ///
    /// Returns `None` if the packet cannot be rewritten: it has no sizes, or has them after a field
    /// of unknown size (a string), or its first event does not begin at a byte.
    pub fn new(
        trace: &'trace Trace,
        decoder: &StreamDecoder<'trace>,
        window: Window<'_>,
    ) -> Option<Self> {
        let class = decoder.class()?;
        let header_bits = decoder.position_bits();
        let head_bytes = usize::try_from(header_bits / 8).ok()?;
        let head = window.bytes.get(..head_bytes).filter(|_| window.start == 0)?;
        let mut places = PacketFieldFinder { found: Vec::new(), bit: 0 };
        let kinds = [trace.packet_header.as_ref(), class.packet_context.as_ref()];
        // If the walk ends early, the places found so far are valid, and the checks below find a
        // missing size.
        let _ = kinds.into_iter().flatten().try_for_each(|kind| places.walk(kind));
        let has = |role| places.found.iter().any(|place| place.role == role);
        if !header_bits.is_multiple_of(8) || !has(Role::ContentSize) || !has(Role::PacketSize) {
            return None;
        }
        let events =
            BitBuffer { bytes: Vec::new(), origin: head_bytes as u64, position: header_bits };
        let header_clock_bits = class.event_header.as_ref().and_then(fewest_clock_bits);
        let reach_cycles = header_clock_bits.and_then(|bits| 1_u64.checked_shl(bits));
        Some(Self { class, head: head.to_vec(), places: places.found, events, reach_cycles })
    }

    /// Appends an event of the stream.
    ///
    /// # Errors
    ///
    /// Returns an error if the event cannot be decoded, which cannot happen: it was decoded before.
    pub fn event(&mut self, event: WholeEvent<'_, '_>) -> Result<(), DecodeError> {
        let WholeEvent { class: event, mut cursor, mut state } = event;
        let class = self.class;
        let kinds = [&class.event_header, &class.event_context, &event.context, &event.fields];
        for kind in kinds.into_iter().flatten() {
            copy_field(kind, &mut cursor, &mut state, &mut self.events)?;
        }
        Ok(())
    }

    /// Returns the size of the packet so far in bytes, header and context included.
    pub const fn bytes(&self) -> u64 {
        self.events.position.div_ceil(8)
    }

    /// Returns the limit of the time between two consecutive events of the packet, in cycles of the
    /// clock. `None` means no limit: event headers have all bits of the time, or none.
    pub fn reach_cycles(&self) -> Option<u64> {
        self.reach_cycles
    }

    /// Returns the number of bytes that wait for [`PacketRewriter::drain`].
    pub const fn waiting_bytes(&self) -> usize {
        self.events.bytes.len()
    }

    /// Returns the size of the packet's header and context in bytes; only
    /// [`PacketRewriter::finish`] returns them.
    pub const fn head_bytes(&self) -> usize {
        self.head.len()
    }

    /// Appends to `out` the finished bytes after the packet's header and context.
    pub fn drain(&mut self, out: &mut Vec<u8>) {
        self.events.drain(out);
    }

    /// Ends the packet: appends its last bytes to `out` and returns its header and context. The
    /// packet's size is the size of its content in whole bytes.
    pub fn finish(mut self, new: &NewPacket, out: &mut Vec<u8>) -> Vec<u8> {
        let content_bits = self.events.position;
        let packet_bits = self.bytes() * 8;
        out.append(&mut self.events.bytes);
        for place in &self.places {
            let value = match place.role {
                Role::ContentSize => Some(content_bits),
                Role::PacketSize => Some(packet_bits),
                Role::TimestampBegin => new.timestamp_begin,
                Role::TimestampEnd => new.timestamp_end,
                Role::Sequence => new.sequence,
                _ => None,
            };
            if let Some(value) = value {
                store_bits(&mut self.head, place.bit, place.bits, place.big_endian, value);
            }
        }
        self.head
    }
}

/// Finds the places of the fields before which all fields have constant sizes.
struct PacketFieldFinder {
    found: Vec<PacketField>,
    bit: u64,
}

impl PacketFieldFinder {
    /// Walks over a field; returns `None` at the first field of unknown size.
    fn walk(&mut self, kind: &Type) -> Option<()> {
        match kind {
            Type::Integer(integer) => self.integer(integer),
            Type::Enumeration(enumeration) => self.integer(&enumeration.integer),
            Type::Float(float) => self.pass(float.alignment, float.bits.into()),
            Type::Struct(structure) => {
                self.pass(structure.alignment, 0)?;
                structure.members.iter().try_for_each(|member| self.walk(&member.kind))
            }
            Type::Array(array) if array.length <= HEADER_ELEMENTS_MAX => {
                self.pass(array.alignment, 0)?;
                (0..array.length).try_for_each(|_| self.walk(&array.element))
            }
            Type::Array(_)
            | Type::Text
            | Type::WideText(_)
            | Type::Sequence(_)
            | Type::Variant(_) => None,
        }
    }

    fn integer(&mut self, integer: &Integer) -> Option<()> {
        if integer.variable || integer.reversed && integer.role != Role::None {
            return None;
        }
        self.pass(integer.alignment, u64::from(integer.bits))?;
        if integer.role != Role::None {
            let bits = integer.bits;
            let (role, big_endian) = (integer.role, integer.big_endian);
            self.found.push(PacketField {
                role,
                bit: self.bit - u64::from(bits),
                bits,
                big_endian,
            });
        }
        Some(())
    }

    fn pass(&mut self, alignment: u64, bits: u64) -> Option<()> {
        self.bit = self.bit.checked_next_multiple_of(alignment.max(1))?.checked_add(bits)?;
        Some(())
    }
}

/// Returns the least size in bits of an integer in `kind` that sets a clock.
fn fewest_clock_bits(kind: &Type) -> Option<u32> {
    match kind {
        Type::Integer(integer) | Type::Enumeration(Enumeration { integer, .. }) => {
            integer.clock.is_some().then_some(integer.bits)
        }
        Type::Float(_) | Type::Text | Type::WideText(_) => None,
        Type::Struct(structure) => {
            structure.members.iter().filter_map(|member| fewest_clock_bits(&member.kind)).min()
        }
        Type::Array(array) => fewest_clock_bits(&array.element),
        Type::Sequence(sequence) => fewest_clock_bits(&sequence.element),
        Type::Variant(variant) => {
            variant.options.iter().filter_map(|option| fewest_clock_bits(&option.kind)).min()
        }
    }
}

/// Copies the field at `cursor` to the end of `out`.
fn copy_field(
    kind: &Type,
    cursor: &mut Cursor<'_>,
    state: &mut DecodeState,
    out: &mut BitBuffer,
) -> Result<(), DecodeError> {
    match kind {
        Type::Integer(integer) => copy_integer(integer, cursor, state, out)?,
        Type::Enumeration(enumeration) => {
            copy_integer(&enumeration.integer, cursor, state, out)?;
        }
        Type::Float(float) => {
            cursor.align(float.alignment)?;
            out.align(float.alignment);
            out.put(float.bits, float.big_endian, cursor.take(float.bits, float.big_endian)?);
        }
        Type::Text => {
            let text = cursor.string()?;
            out.align(8);
            out.put_bytes(text);
            out.put_bytes(&[0]);
        }
        Type::WideText(text) => {
            let bytes = read_wide_bytes(*text, cursor, state)?;
            out.align(8);
            out.put_bytes(bytes);
            if text.end == TextEnd::Nul {
                out.put_bytes(&[0; 4][..text.encoding.unit_bytes()]);
            }
        }
        Type::Struct(structure) => {
            cursor.align(structure.alignment)?;
            out.align(structure.alignment);
            for member in &structure.members {
                copy_field(&member.kind, cursor, state, out)?;
            }
        }
        Type::Array(array) => {
            let length = array.length;
            copy_elements(
                &array.element,
                (array.alignment, length, array.text),
                cursor,
                state,
                out,
            )?;
        }
        Type::Sequence(sequence) => {
            let length = state.slot(sequence.slot);
            let form = (sequence.alignment, length, sequence.text);
            copy_elements(&sequence.element, form, cursor, state, out)?;
        }
        Type::Variant(variant) => {
            if let Some(option) = select_option(variant, cursor, state)? {
                copy_field(&option.kind, cursor, state, out)?;
            }
        }
    }
    Ok(())
}

fn copy_integer(
    integer: &Integer,
    cursor: &mut Cursor<'_>,
    state: &mut DecodeState,
    out: &mut BitBuffer,
) -> Result<(), DecodeError> {
    let start = cursor.position().next_multiple_of(8);
    let value = decode_integer(integer, cursor, state)?;
    out.align(integer.alignment);
    if integer.variable {
        let bytes = cursor.position().saturating_sub(start) / 8;
        put_leb128(value, integer.signed, bytes, out);
    } else {
        let value = if integer.reversed { reverse_low_bits(value, integer.bits) } else { value };
        out.put(integer.bits, integer.big_endian, value);
    }
    Ok(())
}

/// Writes an integer of variable length with its original number of bytes, which may be more than
/// it needs.
fn put_leb128(value: u64, signed: bool, bytes: u64, out: &mut BitBuffer) {
    let mut rest = if signed { i128::from(value as i64) } else { i128::from(value) };
    for left in (0..bytes).rev() {
        let low = (rest & 0x7f) as u8;
        out.put_bytes(&[if left > 0 { low | 0x80 } else { low }]);
        rest >>= 7;
    }
}

/// Copies elements; `form` is their alignment, their number, and true if they are text.
fn copy_elements(
    element: &Type,
    form: (u64, u64, bool),
    cursor: &mut Cursor<'_>,
    state: &mut DecodeState,
    out: &mut BitBuffer,
) -> Result<(), DecodeError> {
    let (alignment, length, is_text) = form;
    cursor.align(alignment)?;
    out.align(alignment);
    if is_text {
        out.put_bytes(cursor.bytes(length)?);
        return Ok(());
    }
    charge_elements(length, cursor, state)?;
    (0..length).try_for_each(|_| copy_field(element, cursor, state, out))
}

/// A part of a packet that grows bit by bit.
#[derive(Debug, Clone)]
struct BitBuffer {
    bytes: Vec<u8>,
    /// Start of `bytes` in the packet, in bytes.
    origin: u64,
    /// Next bit, counted from the packet's start.
    position: u64,
}

impl BitBuffer {
    fn align(&mut self, alignment: u64) {
        self.position = self.position.next_multiple_of(alignment.max(1));
        self.extend();
    }

    /// Extends the bytes up to the position.
    fn extend(&mut self) {
        let length = self.position.div_ceil(8) - self.origin;
        self.bytes.resize(length as usize, 0);
    }

    fn put(&mut self, bits: u32, big_endian: bool, value: u64) {
        let at = self.position - self.origin * 8;
        self.position += u64::from(bits);
        self.extend();
        store_bits(&mut self.bytes, at, bits, big_endian, value);
    }

    /// Appends bytes; the position must be at a byte boundary, which strings and text guarantee.
    fn put_bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.position += bytes.len() as u64 * 8;
    }

    /// Moves all complete bytes to `out`; a byte with free bits stays.
    fn drain(&mut self, out: &mut Vec<u8>) {
        let whole = (self.position / 8 - self.origin) as usize;
        out.extend(self.bytes.drain(..whole));
        self.origin += whole as u64;
    }
}

/// Writes the low `bits` (1 to 64) of `value` to `bytes`, from bit `at` on. Bits of a byte are
/// numbered from the lowest, or, if `big_endian`, from the highest (CTF 1.8, §4.1.2).
fn store_bits(bytes: &mut [u8], at: u64, bits: u32, big_endian: bool, value: u64) {
    let (mut at, mut left) = (at, bits);
    while left > 0 {
        let offset = (at % 8) as u32;
        let count = left.min(8 - offset);
        let (from, to) = match big_endian {
            true => (left - count, 8 - offset - count),
            false => (bits - left, offset),
        };
        let mask = ((1_u32 << count) - 1) as u8;
        let part = (value >> from) as u8 & mask;
        if let Some(byte) = bytes.get_mut((at / 8) as usize) {
            *byte = *byte & !(mask << to) | part << to;
        }
        at += u64::from(count);
        left -= count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_what_is_taken() {
        let mut value = 0x0123_4567_89ab_cdef_u64;
        for bits in 1..=64_u32 {
            for at in 0..9 {
                for big_endian in [false, true] {
                    value = value.rotate_left(7) ^ u64::from(bits);
                    let mut bytes = [0x5a_u8; 10];
                    store_bits(&mut bytes, at, bits, big_endian, value);
                    let mut cursor = Cursor::new(&bytes, 0, at, 80);
                    let expected = value & (u64::MAX >> (64 - bits));
                    assert_eq!(cursor.take(bits, big_endian), Ok(expected), "{bits} at {at}");
                    // No other bit has changed.
                    store_bits(&mut bytes, at, bits, big_endian, 0);
                    let mut untouched = [0x5a_u8; 10];
                    store_bits(&mut untouched, at, bits, big_endian, 0);
                    assert_eq!(bytes, untouched);
                    let is_zero = |index: u64| {
                        let mut bit = Cursor::new(&untouched, 0, index, 80);
                        bit.take(1, big_endian)
                    };
                    let mut original = Cursor::new(&[0x5a_u8; 10], 0, 0, 80);
                    for index in 0..80 {
                        let before = original.take(1, big_endian);
                        let is_inside = (at..at + u64::from(bits)).contains(&index);
                        let expected = if is_inside { Ok(0) } else { before };
                        assert_eq!(is_zero(index), expected);
                    }
                }
            }
        }
    }
}
