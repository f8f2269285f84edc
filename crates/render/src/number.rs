//! Numbers in the form of C's printf.

use std::io::Write as _;

/// Appends `value` in decimal.
#[inline]
pub fn push_decimal(out: &mut Vec<u8>, value: u64) {
    if value < 10 {
        out.push(b'0' + value as u8);
    } else if value < EIGHT_DIGITS {
        push_first_digits(out, value);
    } else {
        push_long_decimal(out, value);
    }
}

/// Appends `value`, which has more than eight digits.
#[inline(never)]
fn push_long_decimal(out: &mut Vec<u8>, value: u64) {
    push_decimal(out, value / EIGHT_DIGITS);
    out.extend_from_slice(&eight_digits(value % EIGHT_DIGITS).to_le_bytes());
}

/// Appends `value`, which is not 0 and has at most eight digits.
#[inline]
fn push_first_digits(out: &mut Vec<u8>, value: u64) {
    let digits = eight_digits(value);
    // The number of leading zeros, which are digits whose low half is 0.
    let zeros = (digits & DIGITS_LOW).trailing_zeros() / 8;
    let end = out.len() + 8 - zeros as usize;
    // Appends a whole word, which is one store, and cuts off the surplus bytes.
    out.extend_from_slice(&(digits >> (8 * zeros)).to_le_bytes());
    out.truncate(end);
}

/// 10^8.
const EIGHT_DIGITS: u64 = 100_000_000;
/// Mask of the low half of each ASCII digit.
const DIGITS_LOW: u64 = 0x0f0f_0f0f_0f0f_0f0f;

/// Returns the eight ASCII digits of `value` (below 10^8), the first digit in the lowest byte. It
/// computes two halves, then four quarters, then eight digits, in parallel in one word.
/// Multiplications replace divisions by 100 and 10; they are exact for such small numbers (Warren,
/// "Hacker's Delight", chapter 10).
#[inline]
const fn eight_digits(value: u64) -> u64 {
    let halves = (value / 10_000) | (value % 10_000) << 32;
    let hundreds = ((halves * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let quarters = hundreds | (halves - 100 * hundreds) << 16;
    let tens = ((quarters * 103) >> 10) & 0x000f_000f_000f_000f;
    let digits = tens | (quarters - 10 * tens) << 8;
    digits | (DIGITS_LOW / 0x0f * 0x30)
}

/// Appends a short text: for most texts, a call into the C library costs more than the copy. Two
/// pieces of constant size, which may overlap, cover every length in between.
#[inline]
pub(crate) fn push_short_text(out: &mut Vec<u8>, text: &[u8]) {
    match text.len() {
        ..4 => out.extend(text),
        4..8 => push_pieces::<4>(out, text),
        8..16 => push_pieces::<8>(out, text),
        16..32 => push_pieces::<16>(out, text),
        32..64 => push_pieces::<32>(out, text),
        _ => out.extend_from_slice(text),
    }
}

/// Appends a text of `PIECE` to twice `PIECE` bytes.
#[inline]
fn push_pieces<const PIECE: usize>(out: &mut Vec<u8>, text: &[u8]) {
    if let (Some(first), Some(last)) = (text.first_chunk::<PIECE>(), text.last_chunk::<PIECE>()) {
        let end = out.len() + text.len();
        out.extend_from_slice(first);
        out.truncate(end - PIECE);
        out.extend_from_slice(last);
    }
}

/// Appends `value` in decimal, with its sign.
pub(crate) fn push_signed(out: &mut Vec<u8>, value: i64) {
    if value < 0 {
        out.push(b'-');
    }
    push_decimal(out, value.unsigned_abs());
}

/// Returns nine digits: the fraction of a second, in nanoseconds (below 10^9).
#[inline]
pub(crate) fn nine_digits(nanoseconds: u64) -> [u8; 9] {
    let [b, c, d, e, f, g, h, i] = eight_digits(nanoseconds % EIGHT_DIGITS).to_le_bytes();
    [b'0' + (nanoseconds / EIGHT_DIGITS % 10) as u8, b, c, d, e, f, g, h, i]
}

/// Returns the two digits of a value below 100, with a leading zero.
pub(crate) const fn two_digits(value: u8) -> [u8; 2] {
    [b'0' + value / 10 % 10, b'0' + value % 10]
}

/// Appends `value` in upper-case hexadecimal, without leading zeros.
pub(crate) fn push_hexadecimal(out: &mut Vec<u8>, value: u64) {
    let nibbles = (64 - value.leading_zeros()).div_ceil(4).max(1);
    for nibble in (0..nibbles).rev() {
        let digit = (value >> (4 * nibble) & 15) as u8;
        out.push(if digit < 10 { b'0' + digit } else { b'A' + digit - 10 });
    }
}

/// Number of significant digits of `%g`.
const PRECISION: usize = 6;

/// Appends `value` in the form of `printf("%g")`.
pub fn push_general_float(out: &mut Vec<u8>, value: f64) {
    if !value.is_finite() {
        let text = if value.is_nan() { "nan" } else { "inf" };
        let sign = if value.is_sign_negative() { "-" } else { "" };
        // Writing to a vector cannot fail, here and below.
        let _ = write!(out, "{sign}{text}");
        return;
    }
    if value.is_sign_negative() {
        out.push(b'-');
    }
    // The digits and the exponent after rounding, e.g. `9.99999e5`. Formatting is the expensive
    // step, so plain notation reuses these digits.
    let mut text = ArrayWriter::default();
    let _ = write!(text, "{:.*e}", PRECISION - 1, value.abs());
    let (mantissa, exponent) = text.split_at_exponent();
    let mut digits = [b'0'; PRECISION];
    digits.iter_mut().zip(mantissa.iter().filter(|&&byte| byte != b'.')).for_each(|(to, from)| {
        *to = *from;
    });
    match usize::try_from(exponent) {
        Ok(whole) if whole < PRECISION => {
            let (whole, fraction) = digits.split_at(whole + 1);
            push_trimmed(out, whole, b"", fraction);
        }
        Err(_) if exponent >= -4 => {
            let zeros = [b'0'; 3];
            let zeros = zeros.get(..exponent.unsigned_abs() as usize - 1).unwrap_or_default();
            push_trimmed(out, b"0", zeros, &digits);
        }
        _ => {
            let (whole, fraction) = digits.split_at(1);
            push_trimmed(out, whole, b"", fraction);
            let sign = if exponent < 0 { '-' } else { '+' };
            let _ = write!(out, "e{sign}{:02}", exponent.unsigned_abs());
        }
    }
}

/// A buffer for the output of `{:e}` with [`PRECISION`] digits, without an allocation.
#[derive(Default)]
struct ArrayWriter {
    bytes: [u8; 16],
    length: usize,
}

impl std::io::Write for ArrayWriter {
    fn write(&mut self, from: &[u8]) -> std::io::Result<usize> {
        let room = self.bytes.get_mut(self.length..).unwrap_or_default();
        let count = room.len().min(from.len());
        room[..count].copy_from_slice(&from[..count]);
        self.length += count;
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl ArrayWriter {
    /// Returns the digits with their point, and the exponent.
    fn split_at_exponent(&self) -> (&[u8], i32) {
        let text = self.bytes.get(..self.length).unwrap_or_default();
        let end = text.iter().rposition(|&byte| byte == b'e').unwrap_or(text.len());
        let (mantissa, exponent) = text.split_at(end);
        let exponent = exponent.get(1..).and_then(|text| std::str::from_utf8(text).ok());
        (mantissa, exponent.and_then(|text| text.parse().ok()).unwrap_or(0))
    }
}

/// Appends a number without trailing zeros in its fraction, and without the point if the fraction
/// is empty.
fn push_trimmed(out: &mut Vec<u8>, whole: &[u8], zeros: &[u8], digits: &[u8]) {
    out.extend_from_slice(whole);
    let length = digits.iter().rposition(|&digit| digit != b'0').map_or(0, |last| last + 1);
    if length > 0 {
        out.push(b'.');
        out.extend_from_slice(zeros);
        out.extend_from_slice(digits.get(..length).unwrap_or_default());
    }
}

/// Formats a number for people, with its digits in groups of three.
pub fn format_grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format_general(value: f64) -> String {
        let mut out = b"x".to_vec();
        push_general_float(&mut out, value);
        String::from_utf8(out).expect("ASCII").split_off(1)
    }

    // Expected texts are the output of glibc's printf("%g").
    #[test]
    fn floats_are_written_as_printf_does() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-1.85, "-1.85"),
            (0.1, "0.1"),
            (123_456.0, "123456"),
            (1_234_567.0, "1.23457e+06"),
            (999_999.5, "1e+06"),
            (999_999.4, "999999"),
            (0.000_1, "0.0001"),
            (0.000_012_345, "1.2345e-05"),
            (1e100, "1e+100"),
            (f64::MIN_POSITIVE, "2.22507e-308"),
            (5e-324, "4.94066e-324"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
            (100_000.0, "100000"),
            (0.5, "0.5"),
            (2.5e-5, "2.5e-05"),
        ] {
            assert_eq!(format_general(value), expected, "{value:e}");
        }
    }

    #[test]
    fn short_texts_are_copied_whole() {
        let text: Vec<u8> = (0..200).collect();
        for length in 0..text.len() {
            let mut out = b"before".to_vec();
            push_short_text(&mut out, &text[..length]);
            assert_eq!(out, [b"before", &text[..length]].concat(), "{length}");
        }
    }

    #[test]
    fn integers_are_written_whole() {
        let mut out = Vec::new();
        for power in (0..20).map(|exponent| 10_u64.pow(exponent)) {
            for value in [power - 1, power, power + power / 2] {
                out.clear();
                push_decimal(&mut out, value);
                assert_eq!(out, value.to_string().as_bytes());
            }
        }
        for value in (0..100_000).chain((0..2_000_000_000).step_by(9973)) {
            out.clear();
            push_decimal(&mut out, value);
            out.push(b' ');
            out.extend(nine_digits(value % 1_000_000_000));
            assert_eq!(out, format!("{value} {:09}", value % 1_000_000_000).as_bytes());
        }
        out.clear();
        push_decimal(&mut out, 0);
        out.push(b' ');
        push_decimal(&mut out, u64::MAX);
        out.push(b' ');
        push_signed(&mut out, i64::MIN);
        out.push(b' ');
        push_hexadecimal(&mut out, 0);
        out.push(b' ');
        push_hexadecimal(&mut out, 0x0fed_cba9_8765_4321);
        out.push(b' ');
        out.extend(nine_digits(120));
        let expected = "0 18446744073709551615 -9223372036854775808 0 FEDCBA987654321 000000120";
        assert_eq!(String::from_utf8(out).as_deref(), Ok(expected));
    }

    #[test]
    fn large_numbers_are_grouped() {
        let grouped = [0, 999, 1000, 1_234_567].map(super::format_grouped);
        assert_eq!(grouped, ["0", "999", "1,000", "1,234,567"]);
    }
}
