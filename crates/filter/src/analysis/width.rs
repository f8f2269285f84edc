//! Filters for integers without a sign whose width is not known.
//!
//! One of less than 64 bits counts with a sign, as it has room for one; one of 64 bits without. So
//! `a - b < 0` may be true of the former, and never of the latter. But only where arithmetic leaves
//! what both have alike: neither what is compared as it stands, nor a sum of such, depends on it.

use std::collections::BTreeSet;

use trackway_jit::Kind;

use crate::layout::Layout;
use crate::parse::{Binary, Parsed};
use crate::types::{Expr, Filter, Node, Root, Type, Widths, check_parsed};

/// The greatest value of an integer of less than 64 bits.
const NARROW_MAX: u128 = u32::MAX as u128;
/// The greatest that is the same with a sign and without.
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
    // (What is made a float was the same before.)
    if is_arithmetic && expr.of != Type::Float && upper_bound(expr, is_unsigned).is_none() {
        collect_unsigned_loads(expr, is_unsigned, needs);
    }
    expr.children()
        .into_iter()
        .for_each(|child| collect_width_sensitive_needs(child, is_unsigned, needs));
}

/// The unsigned ones that an expression loads.
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

/// The most that an expression can come to, if it is never less than 0, and the same with a sign
/// and without.
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
        // A word has 32 bits for it.
        Node::Length(_) => NARROW_MAX,
        // Whether something is so.
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
