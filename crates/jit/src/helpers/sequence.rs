//! Helpers that read the elements of sequences, by index and by iteration.

use core::cmp::Ordering;

use crate::ELEMENTS_MAX;
use crate::frame::Frame;

/// Types of the elements of a sequence. The codes are those of `schema::Scalar`, which are part of
/// the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scalar {
    Signed(u32),
    Unsigned(u32),
    F32,
    F64,
    Bool,
}

impl Scalar {
    fn from_code(code: u64) -> Option<Self> {
        Some(match code {
            1 => Self::Signed(8),
            2 => Self::Signed(16),
            3 => Self::Signed(32),
            4 => Self::Signed(64),
            5 | 9 => Self::Unsigned(8),
            6 | 10 => Self::Unsigned(16),
            7 | 11 => Self::Unsigned(32),
            8 | 12 => Self::Unsigned(64),
            13 => Self::F32,
            14 => Self::F64,
            15 => Self::Bool,
            _ => return None,
        })
    }

    fn size_bytes(self) -> usize {
        match self {
            Self::Signed(bits) | Self::Unsigned(bits) => bits as usize / 8,
            Self::Bool => 1,
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }

    /// Returns true if the type is an unsigned 64-bit integer.
    fn is_wide(self) -> bool {
        self == Self::Unsigned(64)
    }

    fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }

    /// Converts an element to a slot's value.
    fn value(self, element: &[u8]) -> u64 {
        let mut bytes = [0; 8];
        if let Some(there) = bytes.get_mut(..element.len()) {
            there.copy_from_slice(element);
        }
        // Records use the machine's byte order, and Trackway supports only little-endian machines.
        let bits = u64::from_le_bytes(bytes);
        match self {
            Self::Signed(width) => crate::alu::sign_extend(bits, width),
            Self::Unsigned(_) | Self::F64 => bits,
            Self::F32 => f64::from(f32::from_bits(bits as u32)).to_bits(),
            Self::Bool => u64::from(bits != 0),
        }
    }
}

impl Frame<'_> {
    /// Returns the element with this index; 0 beyond the end.
    pub(super) fn element(&self, word: u64, scalar: u64, index: u64) -> u64 {
        let Some(scalar) = Scalar::from_code(scalar) else { return 0 };
        let size = scalar.size_bytes();
        let elements = self.region(word, size);
        let start = usize::try_from(index).ok().and_then(|index| index.checked_mul(size));
        let element = start.and_then(|start| elements.get(start..)?.get(..size));
        element.map_or(0, |element| scalar.value(element))
    }

    /// Returns 1 if `test` returns a number other than 0 for one of the first [`ELEMENTS_MAX`]
    /// elements.
    pub(crate) fn any(&self, word: u64, scalar: u64, mut test: impl FnMut(u64) -> u64) -> u64 {
        let Some(scalar) = Scalar::from_code(scalar) else { return 0 };
        self.elements(word, scalar).any(|element| test(element) != 0).into()
    }

    /// Returns the sum of the first [`ELEMENTS_MAX`] elements, modulo 2^64; 0 for floats.
    pub(super) fn sum(&self, word: u64, scalar: u64) -> u64 {
        self.integers(word, scalar).map_or(0, |(_, all)| all.fold(0, u64::wrapping_add))
    }

    /// Returns the minimum or maximum of the elements; 0 for floats and without elements.
    pub(super) fn outermost(&self, word: u64, scalar: u64, which: Ordering) -> u64 {
        let Some((scalar, elements)) = self.integers(word, scalar) else { return 0 };
        let order = |a: u64, b: u64| match scalar.is_wide() {
            true => a.cmp(&b),
            // All other types, when extended to 64 bits, compare correctly as signed numbers.
            false => a.cast_signed().cmp(&b.cast_signed()),
        };
        elements.reduce(|a, b| if order(b, a) == which { b } else { a }).unwrap_or(0)
    }

    fn integers(&self, word: u64, code: u64) -> Option<(Scalar, impl Iterator<Item = u64>)> {
        let scalar = Scalar::from_code(code).filter(|scalar| !scalar.is_float())?;
        Some((scalar, self.elements(word, scalar)))
    }

    fn elements(&self, word: u64, scalar: Scalar) -> impl Iterator<Item = u64> {
        let size = scalar.size_bytes();
        let elements = self.region(word, size).chunks_exact(size).take(ELEMENTS_MAX);
        elements.map(move |element| scalar.value(element))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_as_slots_have_them() {
        for (code, bytes, value) in [
            (1, [0xff].as_slice(), u64::MAX),
            (2, &[0, 0x80], (-0x8000_i64) as u64),
            (3, &[0, 0, 0, 0x80], i32::MIN as i64 as u64),
            (4, &[1, 0, 0, 0, 0, 0, 0, 0x80], (i64::MIN + 1) as u64),
            (5, &[0xff], 255),
            (6, &[1, 2], 0x201),
            (7, &[1, 2, 3, 0xff], 0xff03_0201),
            (8, &[1, 0, 0, 0, 0, 0, 0, 0xff], 0xff00_0000_0000_0001),
            (9, &[0x80], 128),
            (12, &[0xff; 8], u64::MAX),
            (13, &1.5_f32.to_le_bytes(), 1.5_f64.to_bits()),
            (14, &(-2.5_f64).to_le_bytes(), (-2.5_f64).to_bits()),
            (15, &[7], 1),
            (15, &[0], 0),
        ] {
            let scalar = Scalar::from_code(code).expect("a scalar");
            assert_eq!(scalar.size_bytes(), bytes.len(), "{code}");
            assert_eq!(scalar.value(bytes), value, "{code}");
        }
        assert_eq!(Scalar::from_code(0), None);
        assert_eq!(Scalar::from_code(16), None);
    }
}
