//! Detects filters whose result depends on the width of unsigned integers.
//!
//! An unsigned integer narrower than 64 bits counts as signed; a 64-bit integer counts as unsigned.
//! So `a - b < 0` may be true for narrow integers, and never for 64-bit ones. The width matters
//! only if arithmetic leaves the range that both types share: plain comparisons and comparisons of
//! sums do not depend on it.

use std::collections::BTreeSet;

use trackway_jit::Kind;

use crate::layout::Layout;
use crate::parse::{Binary, Parsed};
use crate::types::{Expr, Filter, Node, Root, Type, Widths, check_parsed};

/// Largest value of an unsigned integer narrower than 64 bits.
const NARROW_MAX: u128 = u32::MAX as u128;
/// Largest value that is equal as a signed and as an unsigned integer.
const SAME_MAX: u128 = i64::MAX as u128;

/// Returns the fields whose width may change the result of an expression for an event with these
/// fields, whatever widths they have in another event.
pub(crate) fn width_sensitive_fields(parsed: &Parsed, layout: &Layout) -> BTreeSet<String> {
    let Ok(narrow) = check_parsed(parsed, layout, Widths::Narrow) else { return BTreeSet::new() };
    let needs = width_sensitive_needs(&narrow).into_iter().map(|need| &narrow.needs[need].place);
    needs.filter(|place| place.root == Root::Field).map(|place| place.name.clone()).collect()
}

/// Returns the needs for which 64-bit values may change the result of the filter, which was
/// compiled for narrower integers.
fn width_sensitive_needs(filter: &Filter) -> BTreeSet<usize> {
    let is_unsigned =
        |need: usize| filter.needs.get(need).is_some_and(|need| need.kind == Kind::Unsigned);
    let mut needs = BTreeSet::new();
    collect_width_sensitive_needs(&filter.root, &is_unsigned, &mut needs);
    needs
}

fn collect_width_sensitive_needs(
    expr: &Expr,
    is_unsigned: &dyn Fn(usize) -> bool,
    needs: &mut BTreeSet<usize>,
) {
    let is_arithmetic =
        matches!(expr.node, Node::Arithmetic(..) | Node::Negate(_) | Node::Complement(_));
    // Floats do not depend on the width: each integer is converted before the float arithmetic.
    if is_arithmetic && expr.of != Type::Float && upper_bound(expr, is_unsigned).is_none() {
        collect_unsigned_loads(expr, is_unsigned, needs);
    }
    expr.children()
        .into_iter()
        .for_each(|child| collect_width_sensitive_needs(child, is_unsigned, needs));
}

/// Collects the unsigned needs that an expression loads.
fn collect_unsigned_loads(
    expr: &Expr,
    is_unsigned: &dyn Fn(usize) -> bool,
    needs: &mut BTreeSet<usize>,
) {
    if let Node::Load(need) = expr.node
        && is_unsigned(need)
    {
        needs.insert(need);
    }
    expr.children().into_iter().for_each(|child| collect_unsigned_loads(child, is_unsigned, needs));
}

/// Returns the largest value of an expression. Returns `None` if the value may be negative or
/// differ between signed and unsigned arithmetic.
fn upper_bound(expr: &Expr, is_unsigned: &dyn Fn(usize) -> bool) -> Option<u128> {
    let of = |expr: &Expr| upper_bound(expr, is_unsigned);
    let value = match &expr.node {
        Node::Number(bits) => u128::from(*bits),
        Node::Load(need) => is_unsigned(*need).then_some(NARROW_MAX)?,
        Node::Arithmetic(operation, a, b) => {
            let (a, b) = (of(a)?, of(b)?);
            match operation {
                Binary::Add => a + b,
                Binary::Multiply => a * b,
                Binary::Divide | Binary::Remainder | Binary::ShiftRight => a,
                Binary::And => a.min(b),
                Binary::Or | Binary::Xor => (a.max(b) + 1).next_power_of_two() - 1,
                _ => return None,
            }
        }
        // A word holds the length in 32 bits.
        Node::Length(_) => NARROW_MAX,
        // Predicates yield 0 or 1.
        Node::Not(_)
        | Node::Any(..)
        | Node::Sample(_)
        | Node::Rate { .. }
        | Node::Changed(..)
        | Node::Compare(..)
        | Node::Matches(..)
        | Node::StringTest(..)
        | Node::Ranges(..)
        | Node::Within(..)
        | Node::All(_)
        | Node::Either(_) => 1,
        _ => return None,
    };
    (value <= SAME_MAX).then_some(value)
}

#[cfg(test)]
mod tests {
    use trackway_schema::Scalar;

    use super::*;
    use crate::layout::Member;
    use crate::types::check_text;

    fn width_sensitive_paths(text: &str) -> Vec<String> {
        let of = [("a", Scalar::U32), ("b", Scalar::U32), ("i", Scalar::I32), ("f", Scalar::F64)];
        let member = |(name, of): (&str, Scalar)| Member { name: name.into(), of: of.into() };
        let fields = of.into_iter().map(member).collect();
        let filter = check_text(text, &Layout { fields, ..Layout::default() }).expect(text);
        let needs = width_sensitive_needs(&filter);
        needs.into_iter().map(|need| filter.needs[need].path.clone()).collect()
    }

    #[test]
    fn widths_count_where_something_can_be_less_than_nothing() {
        for (text, expected) in [
            ("a - b < 0", &["a", "b"][..]),
            ("-a < 0 && b > 5", &["a"]),
            ("~a == 7", &["a"]),
            ("a + i < 0", &["a"]),
            ("a + -5 < 0 || b == 0", &["a"]),
            ("a << b == 0", &["a", "b"]),
            ("(a * b) * (a * b) > 1", &["a", "b"]),
            ("f * a > 1.5", &[]),
            ("(a - 1) / 2 > b", &["a"]),
        ] {
            assert_eq!(width_sensitive_paths(text), expected, "{text}");
        }
        for text in
            ["a > 5", "a < i", "a + b > 5", "a & 1", "a % 4 == i", "a * 8 + 1 > b", "i - 1 < 0"]
        {
            assert_eq!(width_sensitive_paths(text), [""; 0], "{text}");
        }
    }
}
