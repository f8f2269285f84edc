//! Type-checks expressions: operators and their operands.

use trackway_jit::Kind;
use trackway_schema::Label;

use super::compare::label_value;
use super::name::describe_layout_type;
use super::{Elements, Expr, Filter, Need, Node, Type, Widths};
use crate::error::{Error, Topic, Warning};
use crate::layout::{self, Layout};
use crate::number;
use crate::parse::{Binary, Node as Parsed, Tree, Unary};
use crate::span::Span;
use crate::token::Number;

/// An expression, and the labels of its values.
pub(super) struct TypedExpr<'layout> {
    pub(super) expr: Expr,
    pub(super) labels: &'layout [Label],
}

impl From<Expr> for TypedExpr<'_> {
    fn from(expr: Expr) -> Self {
        Self { expr, labels: &[] }
    }
}

/// Meaning of a sequence's name in the current context.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SequenceUse {
    /// The whole sequence, as in `length( )`; invalid elsewhere.
    AsWhole,
    /// Each of its elements, as in `any( )`.
    Any,
}

pub(super) struct Checker<'layout> {
    pub(super) layout: &'layout Layout,
    pub(super) widths: Widths<'layout>,
    pub(super) needs: Vec<Need>,
    pub(super) cells: usize,
    pub(super) warnings: Vec<Warning>,
    pub(super) sequence_use: SequenceUse,
    /// Inside `any( )`: the need of the iterated sequence, once known.
    pub(super) item: Option<usize>,
}

pub(super) fn type_error<T>(span: Span, message: impl Into<String>) -> Result<T, Error> {
    Err(Error::new(Topic::Type, span, message))
}

/// Describes a type for messages.
pub(super) fn describe_type(of: Type) -> &'static str {
    match of {
        Type::Signed | Type::Unsigned => "an integer",
        Type::Float => "a floating-point number",
        Type::Text => "a string",
        Type::Sequence => "a sequence",
    }
}

impl<'layout> Checker<'layout> {
    pub(super) fn new(
        layout: &'layout Layout,
        widths: Widths<'layout>,
        warnings: Vec<Warning>,
    ) -> Self {
        Self {
            layout,
            widths,
            needs: Vec::new(),
            cells: 0,
            warnings,
            sequence_use: SequenceUse::AsWhole,
            item: None,
        }
    }

    pub(super) fn finish(self, root: Expr) -> Filter {
        Filter { needs: self.needs, cells: self.cells, root, warnings: self.warnings }
    }

    pub(super) fn warn(&mut self, span: Span, message: impl Into<String>) {
        self.warnings.push(Error::new(Topic::Type, span, message));
    }

    /// Checks a condition; a number is true if it is not 0.
    pub(super) fn truth(&mut self, tree: &Tree) -> Result<Expr, Error> {
        let expr = self.check(tree)?.expr;
        match expr.of {
            Type::Signed | Type::Unsigned | Type::Float => Ok(expr),
            Type::Text => {
                Err(Error::new(Topic::Type, tree.span, "a string is neither true nor false")
                    .with_hint(
                        "compare it (name == \"…\"), or ask for its length: length(name) > 0",
                    ))
            }
            Type::Sequence => Err(self.whole_sequence(tree.span)),
        }
    }

    pub(super) fn whole_sequence(&self, span: Span) -> Error {
        Error::new(Topic::Type, span, "a sequence as a whole has no value").with_hint(
            "ask for elements: any(xs > 3), all(…), none(…), xs[0], sum(xs), max(xs), or for \
                 length(xs)",
        )
    }

    /// Checks a number.
    pub(super) fn number(&mut self, tree: &Tree) -> Result<Expr, Error> {
        let expr = self.check(tree)?.expr;
        match expr.of {
            Type::Signed | Type::Unsigned | Type::Float => Ok(expr),
            Type::Text => type_error(tree.span, "a number is expected here, not a string"),
            Type::Sequence => Err(self.whole_sequence(tree.span)),
        }
    }

    /// Checks an integer.
    pub(super) fn integer(&mut self, tree: &Tree) -> Result<Expr, Error> {
        let expr = self.number(tree)?;
        if expr.of == Type::Float {
            return type_error(
                tree.span,
                "an integer is expected here, not a floating-point number",
            );
        }
        Ok(expr)
    }

    pub(super) fn check(&mut self, tree: &Tree) -> Result<TypedExpr<'layout>, Error> {
        Ok(match &tree.node {
            Parsed::Number(number) => match *number {
                Number::Float(value) => Expr::number(value.to_bits(), Type::Float),
                Number::Integer(value) | Number::Time(value) => {
                    let is_wide = value > i64::MAX as u64;
                    Expr::number(value, if is_wide { Type::Unsigned } else { Type::Signed })
                }
            }
            .into(),
            Parsed::Truth(is_true) => Expr::number(u64::from(*is_true), Type::Signed).into(),
            Parsed::Text(text) => {
                let Some(bytes) = text.as_bytes() else {
                    let message = "'*' stands for anything only with ==, != and in";
                    let error = Error::new(Topic::Type, tree.span, message);
                    return Err(error.with_hint("a star itself is written \\*"));
                };
                Expr { node: Node::Text(bytes.to_vec()), of: Type::Text }.into()
            }
            Parsed::Name(_) | Parsed::Context(_) | Parsed::Application(_) | Parsed::Member(..) => {
                let found = self.resolve(tree)?;
                self.load_member(found, tree.span)?
            }
            Parsed::Index(of, index) => self.index(of, index, tree.span)?,
            Parsed::Unary(operator, operand) => self.unary(*operator, operand)?.into(),
            Parsed::Binary(operator, left, right) if operator.is_comparison() => {
                self.check_comparison(*operator, left, right)?.into()
            }
            Parsed::Binary(operator, left, right) => {
                self.arithmetic(*operator, left, right)?.into()
            }
            Parsed::All(parts) => Expr::truth(Node::All(self.truths(parts)?)).into(),
            Parsed::Either(parts) => Expr::truth(Node::Either(self.truths(parts)?)).into(),
            Parsed::In(value, items) => self.membership(value, items)?.into(),
            Parsed::Call(name, name_span, arguments) => {
                self.check_call(name, *name_span, arguments, tree.span)?.into()
            }
        })
    }

    fn truths(&mut self, parts: &[Tree]) -> Result<Vec<Expr>, Error> {
        parts.iter().map(|part| self.truth(part)).collect()
    }

    /// Checks a sequence's name without an index: its meaning depends on the enclosing call.
    pub(super) fn sequence(
        &mut self,
        need: usize,
        elements: Elements,
        labels: &'layout [Label],
        span: Span,
    ) -> Result<TypedExpr<'layout>, Error> {
        if self.sequence_use != SequenceUse::Any {
            return Ok(Expr { node: Node::Load(need), of: Type::Sequence }.into());
        }
        if *self.item.get_or_insert(need) != need {
            let first = self.item.map_or("", |item| &self.needs[item].path);
            let message = format!("two sequences are gone through at once, this and '{first}'");
            return type_error(span, message);
        }
        Ok(TypedExpr { expr: Expr { node: Node::Item, of: elements.of }, labels })
    }

    fn index(&mut self, of: &Tree, index: &Tree, span: Span) -> Result<TypedExpr<'layout>, Error> {
        let found = self.resolve(of)?;
        let (element, count) = match found.of {
            layout::Type::Array(element, count) => (&**element, Some(*count)),
            layout::Type::Sequence(element) => (&**element, None),
            _ => return Err(Self::no_elements(&found, span)),
        };
        let at = self.integer(index)?;
        let numbers = Self::elements_of_type(element);
        match (at.constant(), count, numbers) {
            (Some(at), Some(count), _) if at < count => {
                self.load_member(found.element(at, element), span)
            }
            // Evaluation reports a missing element; `any` only supports elements that always exist.
            (Some(at), None, None)
                if at <= i64::MAX as u64 && self.sequence_use != SequenceUse::Any =>
            {
                self.load_member(found.element(at, element), span)
            }
            (constant, count, Some((elements, labels))) => {
                let is_none = constant.is_some_and(|at| at > i64::MAX as u64);
                let never =
                    is_none || constant.is_some_and(|at| count.is_some_and(|count| at >= count));
                if self.sequence_use == SequenceUse::Any {
                    let message = "inside any(), all() and none() an element is chosen by a \
                                   constant, from an array that has it";
                    return type_error(span, message);
                }
                if never {
                    let there = match count {
                        Some(count) => format!("it has {count}, from 0"),
                        None => "they are counted from 0".into(),
                    };
                    let message = format!("{} never has this element: {there}", found.place);
                    self.warn(index.span, message);
                }
                let need =
                    self.find_or_add_need(found.place, Kind::Sequence, Some(elements), span)?;
                // A constant index beyond an array's end is also read at run time, so that the
                // filter is correct for events with a longer array.
                let node = if is_none { Node::Absent } else { Node::Element(need, Box::new(at)) };
                Ok(TypedExpr { expr: Expr { node, of: elements.of }, labels })
            }
            (Some(_), None, None) if self.sequence_use == SequenceUse::Any => {
                let message = "inside any(), all() and none() an element is chosen from an array \
                               that has it";
                type_error(span, message)
            }
            (None, ..) => type_error(
                index.span,
                format!(
                    "which of these elements, each {}, must be a constant",
                    describe_layout_type(element)
                ),
            ),
            (Some(_), count, None) => {
                let count = count.unwrap_or(0);
                type_error(index.span, format!("{} has {count} elements, from 0", found.place))
            }
        }
    }

    fn unary(&mut self, operator: Unary, tree: &Tree) -> Result<Expr, Error> {
        if operator == Unary::Not {
            let operand = self.truth(tree)?;
            if let Some(bits) = operand.constant() {
                let is_true = number::is_true(bits, operand.of);
                return Ok(Expr::number(u64::from(!is_true), Type::Signed));
            }
            return Ok(Expr::truth(Node::Not(Box::new(operand))));
        }
        let operand = match operator {
            Unary::Complement => self.integer(tree)?,
            _ => self.number(tree)?,
        };
        let of = operand.of;
        Ok(match (operator, operand.constant()) {
            (Unary::Plus, _) => operand,
            (Unary::Complement, Some(bits)) => Expr::number(!bits, of),
            (Unary::Complement, None) => Expr { node: Node::Complement(Box::new(operand)), of },
            (_, Some(bits)) if of == Type::Float => Expr::number(bits ^ 1 << 63, of),
            // The smallest signed number is written as the negation of an unsigned literal.
            (_, Some(bits)) if bits == 1 << 63 => Expr::number(bits, Type::Signed),
            (_, Some(_)) if of == Type::Unsigned => {
                return type_error(tree.span, "this is less than any number of 64 bits");
            }
            (_, Some(bits)) => Expr::number(bits.wrapping_neg(), of),
            (_, None) => Expr { node: Node::Negate(Box::new(operand)), of },
        })
    }

    fn arithmetic(&mut self, operator: Binary, a: &Tree, b: &Tree) -> Result<Expr, Error> {
        let is_shift = matches!(operator, Binary::ShiftLeft | Binary::ShiftRight);
        let is_bitwise = matches!(operator, Binary::And | Binary::Or | Binary::Xor);
        let (left, right) = match (&a.node, &b.node) {
            (_, Parsed::Text(text)) if operator == Binary::And => {
                let value = self.labelled(a)?;
                let bits = label_value(value.labels, text, b.span)?;
                (value.expr, bits)
            }
            (Parsed::Text(text), _) if operator == Binary::And => {
                let value = self.labelled(b)?;
                (label_value(value.labels, text, a.span)?, value.expr)
            }
            _ => (self.operand(operator, a)?, self.operand(operator, b)?),
        };
        if left.of == Type::Float || right.of == Type::Float {
            if is_shift || is_bitwise || operator == Binary::Remainder {
                let span = if left.of == Type::Float { a.span } else { b.span };
                let symbol = operator.symbol();
                let message = format!("'{symbol}' is for integers, not floating-point numbers");
                return type_error(span, message);
            }
            let (left, right) = (to_float(left), to_float(right));
            if let (Some(a), Some(b)) = (left.constant(), right.constant()) {
                return Ok(Expr::number(number::float_arithmetic(operator, a, b), Type::Float));
            }
            let node = Node::Arithmetic(operator, Box::new(left), Box::new(right));
            return Ok(Expr { node, of: Type::Float });
        }
        if is_shift && right.constant().is_some_and(|count| count > 63) {
            return type_error(b.span, "a shift is by 0 to 63 bits");
        }
        let is_unsigned = left.of == Type::Unsigned || !is_shift && right.of == Type::Unsigned;
        let of = if is_unsigned { Type::Unsigned } else { Type::Signed };
        if let (Some(a), Some(b)) = (left.constant(), right.constant()) {
            return Ok(Expr::number(number::integer_arithmetic(operator, !is_unsigned, a, b), of));
        }
        Ok(Expr { node: Node::Arithmetic(operator, Box::new(left), Box::new(right)), of })
    }

    /// Checks a number whose bits have labels.
    fn labelled(&mut self, tree: &Tree) -> Result<TypedExpr<'layout>, Error> {
        let value = self.check(tree)?;
        match value.expr.of {
            Type::Signed | Type::Unsigned if !value.labels.is_empty() => Ok(value),
            Type::Sequence => Err(self.whole_sequence(tree.span)),
            of => {
                let message =
                    format!("{} has no labels, of which '&' could test one", describe_type(of));
                type_error(tree.span, message)
            }
        }
    }

    fn operand(&mut self, operator: Binary, tree: &Tree) -> Result<Expr, Error> {
        let expr = self.check(tree)?.expr;
        match expr.of {
            Type::Text => {
                let message = format!("'{}' is for numbers, not strings", operator.symbol());
                type_error(tree.span, message)
            }
            Type::Sequence => Err(self.whole_sequence(tree.span)),
            _ => Ok(expr),
        }
    }
}

/// Converts a number to a float.
pub(super) fn to_float(expr: Expr) -> Expr {
    if expr.of == Type::Float {
        return expr;
    }
    match expr.constant() {
        Some(bits) => Expr::number(number::to_float(bits, expr.of), Type::Float),
        None => Expr { node: Node::ToFloat(Box::new(expr)), of: Type::Float },
    }
}
