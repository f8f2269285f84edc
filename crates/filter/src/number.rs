//! Evaluates operators on numbers: for constant folding, the evaluator and tests.
//!
//! Integers have 64 bits and wrap. Division by zero yields 0, and the remainder by zero is the
//! dividend, like the eBPF instructions (RFC 9669, 4.1). Floats are stored as the bits of an `f64`.

use std::cmp::Ordering;

use crate::parse::Binary;
use crate::value_type::Type;

/// Computes integer arithmetic; shift counts are modulo 64. `operator` must not be a comparison.
pub fn integer_arithmetic(operator: Binary, is_signed: bool, a: u64, b: u64) -> u64 {
    let (x, y) = (a as i64, b as i64);
    match operator {
        Binary::Add => a.wrapping_add(b),
        Binary::Subtract => a.wrapping_sub(b),
        Binary::Multiply => a.wrapping_mul(b),
        Binary::Divide if b == 0 => 0,
        Binary::Remainder if b == 0 => a,
        Binary::Divide if is_signed => x.wrapping_div(y) as u64,
        Binary::Remainder if is_signed => x.wrapping_rem(y) as u64,
        Binary::Divide => a / b,
        Binary::Remainder => a % b,
        Binary::And => a & b,
        Binary::Or => a | b,
        Binary::Xor => a ^ b,
        Binary::ShiftLeft => a << (b & 63),
        Binary::ShiftRight if is_signed => (x >> (b & 63)) as u64,
        Binary::ShiftRight => a >> (b & 63),
        comparison => u64::from(ordering_satisfies(comparison, Some(a.cmp(&b)))),
    }
}

/// Computes float arithmetic. Filters support only these four operations.
pub fn float_arithmetic(operator: Binary, a: u64, b: u64) -> u64 {
    let (a, b) = (f64::from_bits(a), f64::from_bits(b));
    let value = match operator {
        Binary::Add => a + b,
        Binary::Subtract => a - b,
        Binary::Multiply => a * b,
        _ => a / b,
    };
    value.to_bits()
}

/// Compares two numbers of these types numerically; returns `None` if one is NaN.
pub fn compare_numbers((a, of_a): (u64, Type), (b, of_b): (u64, Type)) -> Option<Ordering> {
    match (of_a, of_b) {
        (Type::Float, Type::Float) => f64::from_bits(a).partial_cmp(&f64::from_bits(b)),
        _ => Some(widen_to_i128(a, of_a).cmp(&widen_to_i128(b, of_b))),
    }
}

fn widen_to_i128(bits: u64, of: Type) -> i128 {
    if of == Type::Unsigned { bits.into() } else { (bits as i64).into() }
}

/// Returns true if the comparison holds for this ordering; for `None`, only `!=` holds.
pub fn ordering_satisfies(comparison: Binary, ordering: Option<Ordering>) -> bool {
    let Some(ordering) = ordering else { return comparison == Binary::NotEqual };
    match comparison {
        Binary::Equal => ordering.is_eq(),
        Binary::NotEqual => ordering.is_ne(),
        Binary::Less => ordering.is_lt(),
        Binary::LessEqual => ordering.is_le(),
        Binary::Greater => ordering.is_gt(),
        _ => ordering.is_ge(),
    }
}

/// Converts an integer to a float's bits.
pub fn to_float(bits: u64, of: Type) -> u64 {
    match of {
        Type::Unsigned => bits as f64,
        _ => bits as i64 as f64,
    }
    .to_bits()
}

/// Returns true if a number of this type is true: not zero.
pub fn is_true(bits: u64, of: Type) -> bool {
    if of == Type::Float { f64::from_bits(bits) != 0.0 } else { bits != 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divisions_are_those_of_the_instructions() {
        let minus_one = u64::MAX;
        let least = i64::MIN as u64;
        for (operator, is_signed, a, b, expected) in [
            (Binary::Divide, true, 7, 0, 0),
            (Binary::Remainder, false, 7, 0, 7),
            (Binary::Divide, true, least, minus_one, least),
            (Binary::Remainder, true, least, minus_one, 0),
            (Binary::Divide, true, -7_i64 as u64, 2, -3_i64 as u64),
            (Binary::Remainder, true, -7_i64 as u64, 2, minus_one),
            (Binary::Divide, false, minus_one, 2, i64::MAX as u64),
            (Binary::ShiftRight, true, minus_one, 3, minus_one),
            (Binary::ShiftRight, false, minus_one, 63, 1),
            (Binary::ShiftLeft, true, 1, 65, 2),
        ] {
            assert_eq!(
                integer_arithmetic(operator, is_signed, a, b),
                expected,
                "{operator:?} {a} {b}"
            );
        }
    }

    #[test]
    fn signs_do_not_confuse_comparisons() {
        let minus_one = (u64::MAX, Type::Signed);
        assert_eq!(compare_numbers(minus_one, (0, Type::Unsigned)), Some(Ordering::Less));
        assert_eq!(compare_numbers(minus_one, (u64::MAX, Type::Unsigned)), Some(Ordering::Less));
        assert_eq!(compare_numbers((5, Type::Signed), (5, Type::Unsigned)), Some(Ordering::Equal));
        let nan = (f64::NAN.to_bits(), Type::Float);
        assert_eq!(compare_numbers(nan, nan), None);
        assert!(
            ordering_satisfies(Binary::NotEqual, None)
                && !ordering_satisfies(Binary::GreaterEqual, None)
        );
    }
}
