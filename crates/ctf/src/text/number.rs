//! Numbers as C's printf writes them.

use std::io::Write as _;

/// The numbers 00 to 99: two digits at a time halve the divisions.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut number = 0;
    while number < pairs.len() {
        pairs[number] = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
        number += 1;
    }
    pairs
};

/// Appends `value` in decimal.
pub fn push_decimal(out: &mut Vec<u8>, mut value: u64) {
    // 2^64 has 20 digits.
    let mut digits = [0_u8; 20];
    let mut first = digits.len();
    while value >= 100 {
        first -= 2;
        digits[first..first + 2].copy_from_slice(&PAIRS[(value % 100) as usize]);
        value /= 100;
    }
    let [tens, ones] = PAIRS[value as usize];
    first -= 1;
    digits[first] = ones;
    if value >= 10 {
        first -= 1;
        digits[first] = tens;
    }
    out.extend_from_slice(&digits[first..]);
}

/// Appends `value` in decimal, with its sign.
pub(crate) fn push_signed(out: &mut Vec<u8>, value: i64) {
    if value < 0 {
        out.push(b'-');
    }
    push_decimal(out, value.unsigned_abs());
}

/// Nine digits: the fraction of a second, in nanoseconds (below 10^9).
pub(crate) fn nine_digits(nanoseconds: u64) -> [u8; 9] {
    let pair = |divisor: u64| PAIRS[(nanoseconds / divisor % 100) as usize];
    let first = b'0' + (nanoseconds / 100_000_000 % 10) as u8;
    let ([b, c], [d, e], [f, g], [h, i]) = (pair(1_000_000), pair(10_000), pair(100), pair(1));
    [first, b, c, d, e, f, g, h, i]
}

/// Two digits (for values below 100), as clocks show them.
pub(crate) fn two_digits(value: u8) -> [u8; 2] {
    PAIRS[usize::from(value % 100)]
}

/// Appends `value` in upper-case hexadecimal, without leading zeros.
pub(crate) fn push_hexadecimal(out: &mut Vec<u8>, value: u64) {
    let nibbles = (64 - value.leading_zeros()).div_ceil(4).max(1);
    for nibble in (0..nibbles).rev() {
        let digit = (value >> (4 * nibble) & 15) as u8;
        out.push(if digit < 10 { b'0' + digit } else { b'A' + digit - 10 });
    }
}

/// Significant digits of `%g`.
const PRECISION: i32 = 6;

/// Appends `value` as `printf("%g")` does.
pub fn push_general(out: &mut Vec<u8>, value: f64) {
    if !value.is_finite() {
        let text = if value.is_nan() { "nan" } else { "inf" };
        let sign = if value.is_sign_negative() { "-" } else { "" };
        // Writing into a vector cannot fail; so below.
        let _ = write!(out, "{sign}{text}");
        return;
    }
    let start = out.len();
    let _ = write!(out, "{value:.*e}", (PRECISION - 1) as usize);
    // The exponent after rounding, e.g. of `9.99999e5`.
    let mantissa_end = out.iter().rposition(|&byte| byte == b'e').unwrap_or(start);
    let exponent = out.get(mantissa_end + 1..).and_then(|text| std::str::from_utf8(text).ok());
    let exponent = exponent.and_then(|text| text.parse::<i32>().ok()).unwrap_or(0);
    if (-4..PRECISION).contains(&exponent) {
        out.truncate(start);
        let _ = write!(out, "{value:.*}", (PRECISION - 1 - exponent) as usize);
        trim_zeros(out, start);
    } else {
        out.truncate(mantissa_end);
        trim_zeros(out, start);
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(out, "e{sign}{:02}", exponent.unsigned_abs());
    }
}

/// Takes trailing zeros off the fraction that ends `out`, and its point if nothing is left.
fn trim_zeros(out: &mut Vec<u8>, start: usize) {
    if !out.get(start..).is_some_and(|number| number.contains(&b'.')) {
        return;
    }
    while out.last() == Some(&b'0') {
        out.pop();
    }
    if out.last() == Some(&b'.') {
        out.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn general(value: f64) -> String {
        let mut out = b"x".to_vec();
        push_general(&mut out, value);
        String::from_utf8(out).expect("ASCII").split_off(1)
    }

    // What glibc's printf("%g") gives.
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
            assert_eq!(general(value), expected, "{value:e}");
        }
    }

    #[test]
    fn integers_are_written_whole() {
        let mut out = Vec::new();
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
}
