//! Type-checks a tree: names become needs, and operators get the meaning of their types.
//!
//! The checker reports every error of an expression; a typed tree always has a value. It also folds
//! constants, since they decide whether other parts are valid: shift counts, signs, elements.

mod check;
mod children;
mod compare;
mod function;
mod name;
mod suggest;

use std::collections::BTreeSet;

use trackway_jit::Kind;
use trackway_schema::Scalar;

use crate::error::{Error, Warning};
use crate::layout::Layout;
use crate::parse::{Binary, Parsed, Tree, parse};
use crate::text::Text;

pub(crate) use name::describe_layout_type;
pub use suggest::closest_name;

pub use crate::member_path::{MemberPath, Root, Step};
pub use crate::value_type::Type;

/// Numeric elements of a sequence or an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elements {
    /// Type of each element in expressions.
    pub of: Type,
    /// Scalar type of each element in a record; `None` if bytecode cannot read it.
    pub scalar: Option<Scalar>,
}

/// A need of a filter: a slot of its frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// Path as text: the name of the need for programs that run the filter.
    pub path: String,
    /// Kind of the slot.
    pub kind: Kind,
    /// Path for readers of traces.
    pub place: MemberPath,
    /// Elements of a sequence or an array, if the need is one.
    pub elements: Option<Elements>,
}

impl Need {
    /// Returns true for an element that is a string: an event may lack an element with this index.
    pub fn is_text_element(&self) -> bool {
        self.kind == Kind::String && matches!(self.place.steps.last(), Some(Step::Element(_)))
    }
}

/// A test of two strings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum StringTest {
    StartsWith,
    EndsWith,
    Contains,
}

/// A function of all elements of a sequence or an array of integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fold {
    /// Sum of the elements, modulo 2^64.
    Sum,
    /// Minimum; without elements, the filter's answer is no.
    Least,
    /// Maximum; without elements, the filter's answer is no.
    Greatest,
}

impl Fold {
    /// Returns the function's name in expressions.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Least => "min",
            Self::Greatest => "max",
        }
    }
}

/// An expression with its type.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    /// Node of the expression.
    pub node: Node,
    /// Type of the value; conditions are [`Type::Signed`], 1 or 0.
    pub of: Type,
}

/// A node of an expression. Plain numbers in a variant are indices of needs, unless stated.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    /// A number: the bits of its type.
    Number(u64),
    /// A string without stars.
    Text(Vec<u8>),
    /// The value of a need.
    Load(usize),
    /// An element of a need; without such an element, the filter's answer is no.
    Element(usize, Box<Expr>),
    /// An element that never exists: the filter's answer is no.
    Absent,
    /// The length of a string in bytes, or of a sequence in elements.
    Length(Box<Expr>),
    /// The current element of the innermost [`Node::Any`].
    Item,
    /// The value that the innermost [`Node::Within`] tests.
    Bound,
    /// `-a`, for integers and floats.
    Negate(Box<Expr>),
    /// `~a`.
    Complement(Box<Expr>),
    /// `!a`.
    Not(Box<Expr>),
    /// An integer as a float.
    ToFloat(Box<Expr>),
    /// Arithmetic; both sides are integers, or both floats.
    Arithmetic(Binary, Box<Expr>, Box<Expr>),
    /// A comparison; both sides are floats, strings, or integers (compared by value, not by sign).
    Compare(Binary, Box<Expr>, Box<Expr>),
    /// True if a string matches the pattern.
    Matches(Box<Expr>, Text),
    /// A test of two strings.
    StringTest(StringTest, Box<Expr>, Box<Expr>),
    /// True if an integer is in one of these ranges (first, last), which are sorted and disjoint.
    Ranges(Box<Expr>, Vec<(u64, u64)>),
    /// True if one of the conditions on a value is true; they refer to it as [`Node::Bound`].
    Within(Box<Expr>, Vec<Expr>),
    /// Conjunction, from left to right, until a part is false.
    All(Vec<Expr>),
    /// Disjunction, from left to right, until a part is true.
    Either(Vec<Expr>),
    /// True if the condition is true for one element of the need.
    Any(usize, Box<Expr>),
    /// A function of all elements of the need.
    Fold(Fold, usize),
    /// True with this probability, scaled by 2^64.
    Sample(u64),
    /// True for a limited number of events per interval; uses a state cell.
    Rate {
        /// Index of the cell.
        cell: usize,
        /// Maximum number of events per interval.
        many: u64,
        /// Length of the interval in nanoseconds.
        interval_ns: u64,
    },
    /// The number of earlier evaluations; uses a state cell.
    Count(usize),
    /// True if the value differs from the previous evaluation's; uses a state cell.
    Changed(usize, Box<Expr>),
}

impl Expr {
    pub(crate) fn truth(node: Node) -> Self {
        Self { node, of: Type::Signed }
    }

    pub(crate) fn number(bits: u64, of: Type) -> Self {
        Self { node: Node::Number(bits), of }
    }

    /// Returns the value, if the expression is a constant number.
    pub fn constant(&self) -> Option<u64> {
        match self.node {
            Node::Number(bits) => Some(bits),
            _ => None,
        }
    }
}

/// A filter, checked against a layout.
#[derive(Debug, Clone, PartialEq)]
pub struct Filter {
    /// Needs of the filter, in the order of their first use.
    pub needs: Vec<Need>,
    /// Number of state cells.
    pub cells: usize,
    /// The condition.
    pub root: Expr,
    /// Warnings.
    pub warnings: Vec<Warning>,
}

/// The widths assumed for fields that are unsigned integers, so that a filter can serve events with
/// different widths. Elements of sequences always have their own width.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Widths<'names> {
    /// The widths of the layout.
    #[default]
    Own,
    /// All fields are narrower than 64 bits.
    Narrow,
    /// Fields of these names are narrower than 64 bits, all others have 64.
    NarrowOnly(&'names BTreeSet<String>),
}

/// Type-checks `text` against the members of an event.
///
/// # Errors
///
/// Returns the first error, with its position in `text`.
pub fn check_text(text: &str, layout: &Layout) -> Result<Filter, Error> {
    check_parsed(&parse(text)?, layout, Widths::Own)
}

/// Checks a parsed expression like [`check_text()`].
pub(crate) fn check_parsed(
    parsed: &Parsed,
    layout: &Layout,
    widths: Widths<'_>,
) -> Result<Filter, Error> {
    let mut checker = check::Checker::new(layout, widths, parsed.warnings.clone());
    let root = checker.truth(&parsed.tree)?;
    Ok(checker.finish(root))
}

/// Checks that a subexpression, on its own, is a condition on an event.
pub(crate) fn check_part(part: &Tree, layout: &Layout) -> Result<(), Error> {
    check::Checker::new(layout, Widths::Own, Vec::new()).truth(part).map(|_| ())
}

/// Checks that a subexpression, on its own, is a value of an event, whatever its use.
pub(crate) fn check_value(part: &Tree, layout: &Layout) -> Result<(), Error> {
    check::Checker::new(layout, Widths::Own, Vec::new()).check(part).map(|_| ())
}
