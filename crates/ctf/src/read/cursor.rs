//! A cursor that takes bits from a part of a packet, field by field, never beyond its content.

use super::error::DecodeError;
use crate::model::runs::ElementLayout;

/// The state of a walk through a part of a packet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'bytes> {
    bytes: &'bytes [u8],
    /// Start of `bytes` in the packet, in bits.
    origin: u64,
    /// Next bit, counted from `origin`.
    bit: u64,
    /// End of the readable bits, counted from `origin`.
    end: u64,
}

impl<'bytes> Cursor<'bytes> {
    /// Creates a cursor at `bit` of a packet whose content ends at bit `end`. `bytes` are a part of
    /// the packet that begins at byte `start`.
    pub(crate) fn new(bytes: &'bytes [u8], start: u64, bit: u64, end: u64) -> Self {
        let origin = start.saturating_mul(8);
        // The number of bits of a slice always fits 64 bits.
        let end = end.saturating_sub(origin).min(bytes.len() as u64 * 8);
        Self { bytes, origin, bit: bit.saturating_sub(origin), end }
    }

    /// Returns a cursor at `bit` of the same packet.
    pub(crate) fn at(&self, bit: u64) -> Self {
        Self { bit: bit.saturating_sub(self.origin), ..*self }
    }

    /// Returns the next bit, counted from the packet's start.
    pub(crate) fn position(&self) -> u64 {
        self.origin + self.bit
    }

    pub(crate) fn truncated(&self) -> DecodeError {
        DecodeError::Truncated { bit: self.position() }
    }

    #[inline]
    pub(crate) fn align(&mut self, alignment: u64) -> Result<(), DecodeError> {
        if alignment > 1 {
            // Alignments are powers of two; windows begin at multiples of the greatest alignment.
            let aligned = (self.bit + (alignment - 1)) & !(alignment - 1);
            if aligned > self.end {
                return Err(self.truncated());
            }
            self.bit = aligned;
        }
        Ok(())
    }

    /// Returns the next `reach` bytes from a multiple of `alignment` bits (at least 8) on, and the
    /// number of content bits from there. Returns `None` if the window ends earlier.
    #[inline]
    pub(crate) fn at_hand(&self, alignment: u64, reach: usize) -> Option<(&'bytes [u8], u64)> {
        let start = (self.bit + (alignment - 1)) & !(alignment - 1);
        let bytes = self.bytes.get((start / 8) as usize..)?.get(..reach)?;
        Some((bytes, self.end.checked_sub(start)?))
    }

    /// Returns the next `reach` bytes from a multiple of `alignment` bits (at least 8) on, and
    /// moves behind the first `bits`. Returns `None` if the window or the content ends earlier.
    #[inline]
    pub(crate) fn run(&mut self, alignment: u64, bits: u64, reach: usize) -> Option<&'bytes [u8]> {
        let (bytes, _) = self.at_hand(alignment, reach).filter(|&(_, rest)| bits <= rest)?;
        self.pass(alignment, bits);
        Some(bytes)
    }

    /// Moves to a multiple of `alignment` bits, and `bits` further; the caller has checked that
    /// they exist.
    #[inline]
    pub(crate) fn pass(&mut self, alignment: u64, bits: u64) {
        self.bit = ((self.bit + (alignment - 1)) & !(alignment - 1)) + bits;
    }

    /// Moves to a multiple of `alignment` bits, and `bits` further, if they exist.
    #[inline]
    pub(crate) fn skip(&mut self, alignment: u64, bits: u64) -> Option<()> {
        self.align(alignment).ok()?;
        self.bit = self.bit.checked_add(bits).filter(|&bit| bit <= self.end)?;
        Some(())
    }

    /// Passes to `each` the leading elements of an array of `length` whose words are in the window,
    /// and moves behind them. Returns their number: none, or all but the last few.
    #[inline]
    pub(crate) fn run_of(
        &mut self,
        places: ElementLayout,
        length: u64,
        mut each: impl FnMut(u64, u64),
    ) -> u64 {
        if !self.bit.is_multiple_of(8) {
            return 0;
        }
        let ElementLayout { place, stride } = places;
        let (rest, reach) = (self.rest(), place.reach());
        let mut index = 0;
        let mut at = 0;
        while let Some(bytes) = rest.get(at..at + reach).filter(|_| index < length) {
            each(index, place.read(bytes));
            index += 1;
            at += stride;
        }
        self.bit += 8 * at as u64;
        index
    }

    /// Takes the next `bits` (1 to 64), without sign extension.
    #[inline]
    pub(crate) fn take(&mut self, bits: u32, big_endian: bool) -> Result<u64, DecodeError> {
        let (start, end) = (self.bit, self.bit + u64::from(bits));
        if end > self.end {
            return Err(self.truncated());
        }
        self.bit = end;
        let first = (start / 8) as usize;
        let offset = (start % 8) as u32;
        let mask = u64::MAX >> (64 - bits);
        if !big_endian && offset + bits <= 64 {
            // The common case, and the only one in traces that this library writes.
            let rest = self.bytes.get(first..).unwrap_or_default();
            if let Some(word) = rest.first_chunk::<8>() {
                return Ok(u64::from_le_bytes(*word) >> offset & mask);
            }
        }
        let past = end.div_ceil(8) as usize;
        let bytes = self.bytes.get(first..past).unwrap_or_default();
        // `wide` holds at most nine bytes.
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

    /// Returns the bytes up to a NUL, and moves behind the NUL.
    #[inline]
    pub(crate) fn string(&mut self) -> Result<&'bytes [u8], DecodeError> {
        self.align(8)?;
        let rest = self.rest();
        let length = memchr::memchr(0, rest).ok_or_else(|| self.truncated())?;
        self.bit += 8 * (length as u64 + 1);
        Ok(rest.get(..length).unwrap_or_default())
    }

    /// Returns the bytes up to a code unit of `unit` bytes (2 or 4) that are all 0, and moves
    /// behind that unit.
    pub(crate) fn wide_string(&mut self, unit: usize) -> Result<&'bytes [u8], DecodeError> {
        let rest = self.rest();
        let mut units = rest.chunks_exact(unit);
        let length = units.position(|unit| unit.iter().all(|&byte| byte == 0));
        let length = unit * length.ok_or_else(|| self.truncated())?;
        self.bit += 8 * (length + unit) as u64;
        Ok(rest.get(..length).unwrap_or_default())
    }

    /// Takes `length` bytes; the cursor must be at a byte boundary.
    pub(crate) fn bytes(&mut self, length: u64) -> Result<&'bytes [u8], DecodeError> {
        let length = usize::try_from(length).map_err(|_| self.truncated())?;
        let taken = self.rest().get(..length).ok_or_else(|| self.truncated())?;
        self.bit += 8 * length as u64;
        Ok(taken)
    }

    fn rest(&self) -> &'bytes [u8] {
        self.bytes.get((self.bit / 8) as usize..(self.end / 8) as usize).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
