//! Type-checks functions: of strings, of sequences, and with state.

use trackway_jit::CELLS_MAX;

use super::check::{Checker, SequenceUse, type_error};
use super::compare::exact_text_expr;
use super::name::unknown_name_error;
use super::{Expr, Fold, Node, StringTest, Type};
use crate::error::{Error, Topic};
use crate::parse::{Binary, Node as Parsed, Tree};
use crate::span::Span;
use crate::token::Number;

/// Names of the functions, each with its number of arguments and an example.
const FUNCTIONS: [(&str, usize, &str); 14] = [
    ("starts_with", 2, "starts_with(name, \"…\")"),
    ("ends_with", 2, "ends_with(name, \"…\")"),
    ("contains", 2, "contains(name, \"…\")"),
    ("length", 1, "length(name)"),
    ("any", 1, "any(xs > 3)"),
    ("all", 1, "all(xs > 3)"),
    ("none", 1, "none(xs > 3)"),
    ("sum", 1, "sum(xs)"),
    ("min", 1, "min(xs)"),
    ("max", 1, "max(xs)"),
    ("sample", 1, "sample(1/1000)"),
    ("rate", 1, "rate(100/s)"),
    ("count", 0, "count()"),
    ("changed", 1, "changed(status)"),
];

/// Maximum events per interval for `rate`: a cell counts no further.
const RATE_MAX: u64 = (1 << 28) - 1;
/// Units of time for `rate(100/s)`, in nanoseconds.
const INTERVALS: [(&str, u64); 5] =
    [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000), ("min", 60_000_000_000)];

impl Checker<'_> {
    pub(super) fn check_call(
        &mut self,
        name: &str,
        name_span: Span,
        arguments: &[Tree],
        span: Span,
    ) -> Result<Expr, Error> {
        let Some((_, count, form)) = FUNCTIONS.into_iter().find(|(known, ..)| *known == name)
        else {
            let names = FUNCTIONS.map(|(name, ..)| name);
            return Err(unknown_name_error(
                name_span,
                format!("unknown function '{name}'"),
                name,
                &names,
            ));
        };
        if arguments.len() != count {
            let arguments = if count == 1 { "argument" } else { "arguments" };
            let message = format!("{name} has {count} {arguments}: {form}");
            return type_error(span, message);
        }
        match name {
            "starts_with" => self.string_test(StringTest::StartsWith, arguments),
            "ends_with" => self.string_test(StringTest::EndsWith, arguments),
            "contains" => self.string_test(StringTest::Contains, arguments),
            "length" => self.length(&arguments[0]),
            "any" => self.any(name, &arguments[0], span),
            "none" => Ok(negation_expr(self.any(name, &arguments[0], span)?)),
            "all" => {
                let mut any = self.any(name, &arguments[0], span)?;
                if let Node::Any(_, body) = &mut any.node {
                    let inner = std::mem::replace(&mut **body, Expr::number(0, Type::Signed));
                    **body = negation_expr(inner);
                }
                Ok(negation_expr(any))
            }
            "sum" => self.fold(Fold::Sum, &arguments[0], span),
            "min" => self.fold(Fold::Least, &arguments[0], span),
            "max" => self.fold(Fold::Greatest, &arguments[0], span),
            "sample" => self.sample(&arguments[0], span),
            "rate" => self.rate(&arguments[0], span),
            "count" => {
                let cell = self.cell(span)?;
                Ok(Expr::truth(Node::Count(cell)))
            }
            _ => self.changed(&arguments[0], span),
        }
    }

    fn string(&mut self, tree: &Tree) -> Result<Expr, Error> {
        if let Parsed::Text(text) = &tree.node {
            return exact_text_expr(text, tree.span);
        }
        let expr = self.check(tree)?.expr;
        match expr.of {
            Type::Text => Ok(expr),
            Type::Sequence => Err(self.whole_sequence(tree.span)),
            _ => type_error(tree.span, "a string is expected here, not a number"),
        }
    }

    fn string_test(&mut self, test: StringTest, arguments: &[Tree]) -> Result<Expr, Error> {
        let [string, part] = [self.string(&arguments[0])?, self.string(&arguments[1])?];
        if let (Node::Text(string), Node::Text(part)) = (&string.node, &part.node) {
            let is_so = test.is_so(string, part);
            return Ok(Expr::number(u64::from(is_so), Type::Signed));
        }
        Ok(Expr::truth(Node::StringTest(test, Box::new(string), Box::new(part))))
    }

    fn length(&mut self, tree: &Tree) -> Result<Expr, Error> {
        let sequence_use = std::mem::replace(&mut self.sequence_use, SequenceUse::AsWhole);
        let expr = self.check(tree);
        self.sequence_use = sequence_use;
        let expr = expr?.expr;
        match (&expr.node, expr.of) {
            (Node::Text(bytes), _) => Ok(Expr::number(bytes.len() as u64, Type::Signed)),
            (_, Type::Text | Type::Sequence) => Ok(Expr::truth(Node::Length(Box::new(expr)))),
            _ => type_error(tree.span, "a number has no length"),
        }
    }

    fn any(&mut self, name: &str, tree: &Tree, span: Span) -> Result<Expr, Error> {
        if self.sequence_use == SequenceUse::Any {
            let message = format!("{name}() cannot be inside any(), all() or none()");
            return type_error(span, message);
        }
        let sequence_use = std::mem::replace(&mut self.sequence_use, SequenceUse::Any);
        let item = self.item.take();
        let body = self.truth(tree);
        self.sequence_use = sequence_use;
        let found = std::mem::replace(&mut self.item, item);
        let body = body?;
        match found {
            Some(need) => Ok(Expr::truth(Node::Any(need, Box::new(body)))),
            None => Err(Error::new(
                Topic::Type,
                tree.span,
                format!("{name}() goes through a sequence or an array, and there is none here"),
            )),
        }
    }

    /// Checks a fold over all elements of a sequence.
    fn fold(&mut self, fold: Fold, tree: &Tree, span: Span) -> Result<Expr, Error> {
        let name = fold.name();
        if self.sequence_use == SequenceUse::Any {
            let message = format!("{name}() cannot be inside any(), all() or none()");
            return type_error(span, message);
        }
        let expr = self.check(tree)?.expr;
        let (Node::Load(need), Type::Sequence) = (&expr.node, expr.of) else {
            let error = Error::new(
                Topic::Type,
                tree.span,
                format!("{name}() is of the elements of a sequence or an array, by its name"),
            );
            return Err(error);
        };
        match self.needs[*need].elements {
            Some(elements) if elements.of != Type::Float => {
                Ok(Expr { node: Node::Fold(fold, *need), of: elements.of })
            }
            _ => type_error(tree.span, format!("{name}() is of integers, and these are not")),
        }
    }

    /// Allocates a state cell for the function at `span`.
    fn cell(&mut self, span: Span) -> Result<usize, Error> {
        self.refuse_in_any(span)?;
        if self.cells == CELLS_MAX {
            let message = format!("a filter remembers at most {CELLS_MAX} things");
            return Err(Error::new(Topic::Limit, span, message));
        }
        self.cells += 1;
        Ok(self.cells - 1)
    }

    fn refuse_in_any(&self, span: Span) -> Result<(), Error> {
        if self.sequence_use == SequenceUse::Any {
            let message = "what remembers or chooses cannot be inside any(), all() or none()";
            return type_error(span, message);
        }
        Ok(())
    }

    fn sample(&mut self, tree: &Tree, span: Span) -> Result<Expr, Error> {
        self.refuse_in_any(span)?;
        let share = constant_share(tree).filter(|share| (0.0..=1.0).contains(share));
        let Some(share) = share else {
            let message = "how many of all must be a constant from 0 to 1: sample(1/1000)";
            return type_error(tree.span, message);
        };
        // The cast saturates: 2^64 becomes the largest integer.
        let threshold = (share * 2_f64.powi(64)) as u64;
        Ok(match threshold {
            0 => Expr::number(0, Type::Signed),
            u64::MAX => Expr::number(1, Type::Signed),
            threshold => Expr::truth(Node::Sample(threshold)),
        })
    }

    fn rate(&mut self, tree: &Tree, span: Span) -> Result<Expr, Error> {
        let (many, interval) = match &tree.node {
            Parsed::Binary(Binary::Divide, many, interval) => (&**many, Some(&**interval)),
            _ => (tree, None),
        };
        let interval_ns = match interval.map(|interval| &interval.node) {
            None => Some(1_000_000_000),
            Some(Parsed::Name(unit)) => {
                INTERVALS.into_iter().find(|(name, _)| name == unit).map(|(_, ns)| ns)
            }
            Some(Parsed::Number(Number::Time(ns))) => Some(*ns),
            Some(_) => None,
        };
        let many = match &many.node {
            Parsed::Number(Number::Integer(many)) => Some(*many),
            _ => None,
        };
        match (many, interval_ns) {
            (Some(many @ 1..=RATE_MAX), Some(interval_ns @ 1..)) => {
                let cell = self.cell(span)?;
                Ok(Expr::truth(Node::Rate { cell, many, interval_ns }))
            }
            (Some(_), Some(_)) => {
                let message = format!("a rate is of 1 to {RATE_MAX} in a time of 1 ns or more");
                Err(Error::new(Topic::Type, tree.span, message))
            }
            _ => {
                let message = "how many in which time must be constants, as in rate(100/s)";
                let error = Error::new(Topic::Type, tree.span, message);
                Err(error.with_hint("times are ns, us, ms, s, min, or a number with a unit: 10ms"))
            }
        }
    }

    fn changed(&mut self, tree: &Tree, span: Span) -> Result<Expr, Error> {
        let cell = self.cell(span)?;
        let expr = self.check(tree)?.expr;
        if expr.of == Type::Sequence {
            return Err(self.whole_sequence(tree.span));
        }
        Ok(Expr::truth(Node::Changed(cell, Box::new(expr))))
    }
}

impl StringTest {
    /// Returns the result of the test for two strings.
    pub fn is_so(self, string: &[u8], part: &[u8]) -> bool {
        match self {
            Self::StartsWith => string.starts_with(part),
            Self::EndsWith => string.ends_with(part),
            Self::Contains => crate::text::find_bytes(string, part).is_some(),
        }
    }
}

fn negation_expr(expr: Expr) -> Expr {
    Expr::truth(Node::Not(Box::new(expr)))
}

/// Returns a constant fraction such as `1/1000`, computed without integer division.
fn constant_share(tree: &Tree) -> Option<f64> {
    match &tree.node {
        Parsed::Number(Number::Float(value)) => Some(*value),
        Parsed::Number(Number::Integer(value)) => Some(*value as f64),
        Parsed::Binary(Binary::Divide, a, b) => Some(constant_share(a)? / constant_share(b)?),
        Parsed::Binary(Binary::Multiply, a, b) => Some(constant_share(a)? * constant_share(b)?),
        _ => None,
    }
}
