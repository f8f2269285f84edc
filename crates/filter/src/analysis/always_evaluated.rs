//! Tests whether every evaluation of a filter that ends in true reads a given need.
//!
//! The code that fills a frame reads array elements before the filter runs; if an element is
//! missing, the event fails the filter. The typed tree reads an element only on reaching it, and
//! then fails. Both agree if every path to "true" reads the element, and no path changes state.

use crate::number;
use crate::types::{Expr, Filter, Node};

/// Returns true if the result of the filter does not depend on when the need is read.
pub(crate) fn is_surely_asked(filter: &Filter, need: usize) -> bool {
    filter.cells == 0 && is_asked(&filter.root, need, true)
}

/// Returns true if all paths to this answer read the need.
fn is_asked(expr: &Expr, need: usize, answer: bool) -> bool {
    match &expr.node {
        Node::Not(of) => is_asked(of, need, !answer),
        Node::All(parts) => is_asked_in(parts, need, (true, answer)),
        Node::Either(parts) => is_asked_in(parts, need, (false, answer)),
        // A constant has no path to the opposite answer.
        Node::Number(bits) => number::is_true(*bits, expr.of) != answer,
        Node::Load(own) => *own == need,
        // `in` stops at the first alternative that matches, so only its value is always read.
        Node::Within(of, _) => is_asked_ever(of, need),
        // `any` never evaluates its condition for an empty sequence.
        Node::Any(..) => false,
        _ => expr.children().into_iter().any(|child| is_asked_ever(child, need)),
    }
}

fn is_asked_ever(expr: &Expr, need: usize) -> bool {
    is_asked(expr, need, true) && is_asked(expr, need, false)
}

/// Returns true if all paths of a short-circuit chain to `answer` read the need. Evaluation
/// continues with the next part while each part yields `goes_on`.
fn is_asked_in(parts: &[Expr], need: usize, (goes_on, answer): (bool, bool)) -> bool {
    if answer == goes_on {
        return parts.iter().any(|part| is_asked(part, need, goes_on));
    }
    // Any part may be the last one that is evaluated.
    for part in parts {
        if !is_asked(part, need, !goes_on) {
            return false;
        }
        if is_asked(part, need, goes_on) {
            return true;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use trackway_schema::Scalar;

    use super::*;
    use crate::layout::{Layout, Member, Type};
    use crate::types::check_text;

    fn is_sure(text: &str) -> bool {
        let array = Type::Array(Box::new(Scalar::I32.into()), 8);
        let of = [("z", array), ("a", Scalar::I32.into()), ("b", Scalar::I32.into())];
        let fields = of.map(|(name, of)| Member { name: name.into(), of }).into();
        let filter = check_text(text, &Layout { fields, ..Layout::default() }).expect(text);
        let need = filter.needs.iter().position(|need| need.path == "z[3]").expect(text);
        is_surely_asked(&filter, need)
    }

    #[test]
    fn what_every_way_to_yes_leads_through_is_surely_asked() {
        for text in [
            "z[3] > 0",
            "a > 0 && z[3] > 0 && b > 0",
            "!(a > 0 || z[3] > 0)",
            "z[3] > 0 || a > 0",
            "a > 0 && z[3] > 0 || b > 0 && 5 < z[3]",
            "a + z[3] * 2 in (1, 5..7)",
            "false || z[3] == 1",
            "(a > 0 && z[3] > 0 || z[3] < 0) + b > 1",
        ] {
            assert!(is_sure(text), "{text}");
        }
        for text in [
            "a > 0 || z[3] > 0",
            "!(a > 0 && z[3] > 0)",
            "a > 0 && (b > 0 || z[3] > 0)",
            "(a > 0 && z[3] > 0) + b > 0",
            "a in (1, z[3])",
            "any(z > z[3])",
            "count() > 3 && z[3] > 0",
        ] {
            assert!(!is_sure(text), "{text}");
        }
    }
}
