//! Converts scalars of a staged payload to slot values.

use trackway_schema::Scalar;

/// Returns the scalar at `at` as a slot's value; `None` if it exceeds the bytes.
#[inline]
pub fn scalar_at(bytes: &[u8], at: usize, scalar: Scalar) -> Option<u64> {
    let signed = |value: i64| Some(value.cast_unsigned());
    match scalar {
        Scalar::I8 => signed(i8::from_le_bytes(array_at(bytes, at)?).into()),
        Scalar::I16 => signed(i16::from_le_bytes(array_at(bytes, at)?).into()),
        Scalar::I32 => signed(i32::from_le_bytes(array_at(bytes, at)?).into()),
        Scalar::U8 | Scalar::X8 => Some(u8::from_le_bytes(array_at(bytes, at)?).into()),
        Scalar::Bool => Some(u64::from(u8::from_le_bytes(array_at(bytes, at)?) != 0)),
        Scalar::U16 | Scalar::X16 => Some(u16::from_le_bytes(array_at(bytes, at)?).into()),
        Scalar::U32 | Scalar::X32 => Some(u32::from_le_bytes(array_at(bytes, at)?).into()),
        Scalar::I64 | Scalar::U64 | Scalar::X64 | Scalar::F64 => {
            Some(u64::from_le_bytes(array_at(bytes, at)?))
        }
        Scalar::F32 => Some(f64::from(f32::from_le_bytes(array_at(bytes, at)?)).to_bits()),
    }
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}
