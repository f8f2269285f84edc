//! Type-checks comparisons, labels of enumerations, and `in`, a series of comparisons of one value.

use trackway_schema::Label;

use super::check::{Checker, TypedExpr, describe_type, to_float, type_error};
use super::name::unknown_name_error;
use super::{Expr, Node, Type};
use crate::error::{Error, Topic};
use crate::number;
use crate::parse::{Binary, Item, Node as Parsed, Tree};
use crate::span::Span;
use crate::text::{Shape, Text};

impl<'layout> Checker<'layout> {
    pub(super) fn check_comparison(
        &mut self,
        operator: Binary,
        a: &Tree,
        b: &Tree,
    ) -> Result<Expr, Error> {
        // A string literal may be a pattern or a label, depending on the other side.
        match (&a.node, &b.node) {
            (Parsed::Text(text), _) if !matches!(b.node, Parsed::Text(_)) => {
                let right = self.check(b)?;
                self.with_text(mirror_comparison(operator), right, b.span, text, a.span)
            }
            (_, Parsed::Text(text)) => {
                let left = self.check(a)?;
                self.with_text(operator, left, a.span, text, b.span)
            }
            _ => {
                let left = self.check(a)?.expr;
                let right = self.check(b)?.expr;
                self.check_value_comparison(operator, (left, a.span), (right, b.span))
            }
        }
    }

    /// Checks a comparison of two values that are not string literals.
    fn check_value_comparison(
        &self,
        operator: Binary,
        (a, a_span): (Expr, Span),
        (b, b_span): (Expr, Span),
    ) -> Result<Expr, Error> {
        for (of, span) in [(a.of, a_span), (b.of, b_span)] {
            if of == Type::Sequence {
                return Err(self.whole_sequence(span));
            }
        }
        if (a.of == Type::Text) != (b.of == Type::Text) {
            let message =
                format!("{} is not compared with {}", describe_type(a.of), describe_type(b.of));
            return type_error(Span { from: a_span.from, to: b_span.to }, message);
        }
        Ok(comparison_expr(operator, a, b))
    }

    /// Checks a comparison of a string, or of an enumeration's label, with a string literal.
    fn with_text(
        &self,
        operator: Binary,
        value: TypedExpr<'layout>,
        value_span: Span,
        text: &Text,
        text_span: Span,
    ) -> Result<Expr, Error> {
        let is_equality = matches!(operator, Binary::Equal | Binary::NotEqual);
        match value.expr.of {
            Type::Text => {}
            Type::Sequence => return Err(self.whole_sequence(value_span)),
            _ if value.labels.is_empty() => {
                let message =
                    format!("{} is not compared with a string", describe_type(value.expr.of));
                let span = Span {
                    from: value_span.from.min(text_span.from),
                    to: value_span.to.max(text_span.to),
                };
                return type_error(span, message);
            }
            _ if !is_equality => {
                let error = Error::new(Topic::Type, text_span, "labels have no order");
                return Err(error.with_hint("compare with a number, or by == and in"));
            }
            of => {
                let ranges = label_ranges(value.labels, text, text_span, of)?;
                return Ok(negate_if(
                    operator == Binary::NotEqual,
                    ranges_expr(value.expr, ranges),
                ));
            }
        }
        if is_equality {
            return Ok(negate_if(operator == Binary::NotEqual, match_expr(value.expr, text)));
        }
        let literal = exact_text_expr(text, text_span)?;
        Ok(comparison_expr(operator, value.expr, literal))
    }

    pub(super) fn membership(&mut self, tree: &Tree, items: &[Item]) -> Result<Expr, Error> {
        let value = self.check(tree)?;
        let of = value.expr.of;
        if of == Type::Sequence {
            let hint = "any(xs in (…)) asks for each element";
            return Err(self.whole_sequence(tree.span).with_hint(hint));
        }
        let mut tests: Vec<Expr> = Vec::new();
        for item in items {
            let bound = TypedExpr { expr: Expr { node: Node::Bound, of }, labels: value.labels };
            let test = match item {
                Item::One(one) => self.one(bound, one)?,
                Item::Range(low, high) => self.range(bound, low, high)?,
            };
            match (tests.last_mut().map(|last| &mut last.node), test.node) {
                // Adjacent constants form one set, however they are written.
                (Some(Node::Ranges(_, ranges)), Node::Ranges(_, more)) => {
                    ranges.extend(more);
                    *ranges = merge_ranges(std::mem::take(ranges), of);
                }
                (_, node) => tests.push(Expr { node, of: test.of }),
            }
        }
        if let [Expr { node: Node::Ranges(_, ranges), .. }] = &mut tests[..] {
            let ranges = std::mem::take(ranges);
            return Ok(ranges_expr(value.expr, ranges));
        }
        Ok(Expr::truth(Node::Within(Box::new(value.expr), tests)))
    }

    fn one(&mut self, bound: TypedExpr<'layout>, tree: &Tree) -> Result<Expr, Error> {
        if let Parsed::Text(text) = &tree.node {
            return self.with_text(Binary::Equal, bound, tree.span, text, tree.span);
        }
        let of = bound.expr.of;
        let item = self.check(tree)?.expr;
        if let (Some(bits), Type::Signed | Type::Unsigned) = (item.constant(), of)
            && item.of != Type::Float
        {
            return Ok(ranges_expr(
                bound.expr,
                constant_range((bits, item.of), (bits, item.of), of),
            ));
        }
        self.check_value_comparison(Binary::Equal, (bound.expr, tree.span), (item, tree.span))
    }

    fn range(&mut self, bound: TypedExpr<'layout>, low: &Tree, high: &Tree) -> Result<Expr, Error> {
        let of = bound.expr.of;
        let span = Span { from: low.span.from, to: high.span.to };
        let (first, last) = (self.check(low)?.expr, self.check(high)?.expr);
        if let (Some(a), Some(b)) = (first.constant(), last.constant()) {
            let (a, b) = ((a, first.of), (b, last.of));
            let is_backward =
                |a, b| number::compare_numbers(a, b).is_some_and(|order| order.is_gt());
            if first.of != Type::Float && last.of != Type::Float {
                if is_backward(a, b) {
                    self.warn(span, "there is nothing in this range");
                }
                if matches!(of, Type::Signed | Type::Unsigned) {
                    return Ok(ranges_expr(bound.expr, constant_range(a, b, of)));
                }
            }
        }
        let above = self.check_value_comparison(
            Binary::GreaterEqual,
            (bound.expr.clone(), low.span),
            (first, low.span),
        )?;
        let below = self.check_value_comparison(
            Binary::LessEqual,
            (bound.expr, high.span),
            (last, high.span),
        )?;
        Ok(Expr::truth(Node::All(vec![above, below])))
    }
}

/// Returns the operator for swapped operands.
fn mirror_comparison(operator: Binary) -> Binary {
    match operator {
        Binary::Less => Binary::Greater,
        Binary::LessEqual => Binary::GreaterEqual,
        Binary::Greater => Binary::Less,
        Binary::GreaterEqual => Binary::LessEqual,
        other => other,
    }
}

fn negate_if(is_negated: bool, expr: Expr) -> Expr {
    match (is_negated, expr.constant()) {
        (false, _) => expr,
        (true, Some(bits)) => Expr::number(u64::from(bits == 0), Type::Signed),
        (true, None) => Expr::truth(Node::Not(Box::new(expr))),
    }
}

/// Builds a comparison of values with compatible types.
fn comparison_expr(operator: Binary, a: Expr, b: Expr) -> Expr {
    let (mut a, mut b) = (a, b);
    if a.of == Type::Float || b.of == Type::Float {
        (a, b) = (to_float(a), to_float(b));
    }
    if let (Node::Text(left), Node::Text(right)) = (&a.node, &b.node) {
        let is_so = number::ordering_satisfies(operator, Some(left.cmp(right)));
        return Expr::number(u64::from(is_so), Type::Signed);
    }
    if let (Some(left), Some(right)) = (a.constant(), b.constant()) {
        let is_so = number::ordering_satisfies(
            operator,
            number::compare_numbers((left, a.of), (right, b.of)),
        );
        return Expr::number(u64::from(is_so), Type::Signed);
    }
    // A small literal takes the signedness of the other side.
    let (a_of, b_of) = (a.of, b.of);
    for (one, other) in [(&mut a, b_of), (&mut b, a_of)] {
        let is_small = one.constant().is_some_and(|bits| bits <= i64::MAX as u64);
        if is_small && one.of == Type::Signed && other == Type::Unsigned {
            one.of = Type::Unsigned;
        }
    }
    Expr::truth(Node::Compare(operator, Box::new(a), Box::new(b)))
}

/// Returns a string literal that is compared byte by byte.
pub(super) fn exact_text_expr(text: &Text, span: Span) -> Result<Expr, Error> {
    let Some(bytes) = text.as_bytes() else {
        let error = "'*' stands for anything only with ==, != and in";
        let error = Error::new(Topic::Type, span, error);
        return Err(error.with_hint("a star itself is written \\*"));
    };
    Ok(Expr { node: Node::Text(bytes.to_vec()), of: Type::Text })
}

/// Tests whether a string matches a literal, with the simplest possible test.
fn match_expr(value: Expr, text: &Text) -> Expr {
    if let Node::Text(bytes) = &value.node {
        return Expr::number(u64::from(text.matches(bytes)), Type::Signed);
    }
    let literal = |bytes: &[u8]| Expr { node: Node::Text(bytes.to_vec()), of: Type::Text };
    if let Shape::Exact(bytes) = text.shape() {
        return comparison_expr(Binary::Equal, value, literal(bytes));
    }
    Expr::truth(Node::Matches(Box::new(value), text.clone()))
}

/// Tests whether an integer is in one of the ranges.
fn ranges_expr(value: Expr, ranges: Vec<(u64, u64)>) -> Expr {
    if let Some(bits) = value.constant() {
        let is_in = ranges.iter().any(|&(first, last)| {
            let order = |a, b| number::compare_numbers((a, value.of), (b, value.of));
            order(first, bits).is_some_and(|o| o.is_le())
                && order(bits, last).is_some_and(|o| o.is_le())
        });
        return Expr::number(u64::from(is_in), Type::Signed);
    }
    Expr::truth(Node::Ranges(Box::new(value), ranges))
}

/// Returns the parts of a range of constants that a value of type `of` can have.
fn constant_range(first: (u64, Type), last: (u64, Type), of: Type) -> Vec<(u64, u64)> {
    let (least, most) = match of {
        Type::Unsigned => (0, u64::MAX),
        _ => (i64::MIN as u64, i64::MAX as u64),
    };
    let is_less = |a, b| number::compare_numbers(a, b).is_some_and(|order| order.is_lt());
    if is_less(last, first) || is_less(last, (least, of)) || is_less((most, of), first) {
        return Vec::new();
    }
    let first = if is_less(first, (least, of)) { least } else { first.0 };
    let last = if is_less((most, of), last) { most } else { last.0 };
    vec![(first, last)]
}

/// Sorts the ranges, and merges adjacent and overlapping ones.
fn merge_ranges(mut ranges: Vec<(u64, u64)>, of: Type) -> Vec<(u64, u64)> {
    let key = |bits: u64| if of == Type::Unsigned { bits } else { bits ^ 1 << 63 };
    ranges.sort_by_key(|&(first, _)| key(first));
    let mut together: Vec<(u64, u64)> = Vec::new();
    for (first, last) in ranges {
        match together.last_mut() {
            Some((_, end)) if key(first) <= key(*end).saturating_add(1) => {
                if key(last) > key(*end) {
                    *end = last;
                }
            }
            _ => together.push((first, last)),
        }
    }
    together
}

/// Returns the number of a label.
pub(super) fn label_value(labels: &[Label], text: &Text, span: Span) -> Result<Expr, Error> {
    let is_it = |label: &&Label| text.as_bytes().is_some_and(|text| text == label.name.as_bytes());
    match labels.iter().find(is_it) {
        Some(label) => Ok(Expr::number(label.first as u64, Type::Signed)),
        None => Err(unknown_label_error(labels, text, span)),
    }
}

/// Returns the values whose labels match `text`.
fn label_ranges(
    labels: &[Label],
    text: &Text,
    span: Span,
    of: Type,
) -> Result<Vec<(u64, u64)>, Error> {
    let chosen: Vec<(u64, u64)> = labels
        .iter()
        .filter(|label| text.matches(label.name.as_bytes()))
        .map(|label| (label.first as u64, label.last as u64))
        .collect();
    if chosen.is_empty() {
        return Err(unknown_label_error(labels, text, span));
    }
    let is_forward = |&(first, last): &(u64, u64)| {
        number::compare_numbers((first, of), (last, of)).is_some_and(|order| order.is_le())
    };
    Ok(merge_ranges(chosen.into_iter().filter(is_forward).collect(), of))
}

fn unknown_label_error(labels: &[Label], text: &Text, span: Span) -> Error {
    let names: Vec<&str> = labels.iter().map(|label| label.name.as_str()).collect();
    let quoted = text.quoted();
    let Some(bytes) = text.as_bytes() else {
        let error = Error::new(Topic::Unknown, span, format!("no label is like {quoted}"));
        return error.with_hint(format!("there is: {}", names.join(", ")));
    };
    let name = String::from_utf8_lossy(bytes);
    unknown_name_error(span, format!("unknown label {quoted}"), &name, &names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_are_one() {
        let minus = |n: i64| (-n) as u64;
        let ranges = vec![(5, 9), (minus(2), minus(1)), (0, 3), (4, 4), (11, 12), (6, 7)];
        assert_eq!(merge_ranges(ranges, Type::Signed), [(minus(2), 9), (11, 12)]);
        let ranges = vec![(u64::MAX, u64::MAX), (0, 0)];
        assert_eq!(merge_ranges(ranges, Type::Unsigned), [(0, 0), (u64::MAX, u64::MAX)]);
    }

    #[test]
    fn constants_are_cut_to_what_a_value_can_be() {
        let minus_one = (u64::MAX, Type::Signed);
        let most = (u64::MAX, Type::Unsigned);
        assert_eq!(constant_range(minus_one, (5, Type::Signed), Type::Unsigned), [(0, 5)]);
        assert_eq!(constant_range(minus_one, minus_one, Type::Unsigned), []);
        assert_eq!(constant_range((3, Type::Signed), most, Type::Signed), [(3, i64::MAX as u64)]);
        assert_eq!(constant_range(most, most, Type::Signed), []);
    }
}
