//! From a tree to a typed tree: names become needs, operators get the meaning that types give them.
//!
//! Everything that can be wrong with an expression is found here; what comes out always has an
//! answer. Constant arithmetic is done, too, since it decides what else is right: shift counts,
//! signs, elements.

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

/// Numbers in a sequence or an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elements {
    /// The use of each element.
    pub of: Type,
    /// The scalar of each in a record; `None` if bytecode cannot read it.
    pub scalar: Option<Scalar>,
}

/// A need of a filter: a slot of its frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// Its place, as text: its name for programs that run the filter.
    pub path: String,
    /// Its kind.
    pub kind: Kind,
    /// Its place, for readers of traces.
    pub place: MemberPath,
    /// The elements of a sequence.
    pub elements: Option<Elements>,
}

impl Need {
    /// Returns true if it is an element that is a string: an event may have none of that number.
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
    /// Their sum, of which 64 bits stay.
    Sum,
    /// The least of them; if there is none, the filter's answer is no.
    Least,
    /// The greatest of them, likewise.
    Greatest,
}

impl Fold {
    /// Returns its name in expressions.
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
    /// The node.
    pub node: Node,
    /// Type of its value; what is true or false is [`Type::Signed`], 1 or 0.
    pub of: Type,
}

/// A node of an expression. Numbers in it are needs' indices, unless it says otherwise.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    /// A number: bits as its type has them.
    Number(u64),
    /// A string without stars.
    Text(Vec<u8>),
    /// A need's value.
    Load(usize),
    /// An element of a need; if it has no such element, the filter's answer is no.
    Element(usize, Box<Expr>),
    /// An element that there never is: the filter's answer is no.
    Absent,
    /// Bytes of a string, elements of a sequence.
    Length(Box<Expr>),
    /// The element that the innermost [`Node::Any`] is at.
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
    /// A comparison; both sides are integers (as numbers, whatever their signs), floats or strings.
    Compare(Binary, Box<Expr>, Box<Expr>),
    /// True if a string matches the pattern.
    Matches(Box<Expr>, Text),
    /// A test of two strings.
    StringTest(StringTest, Box<Expr>, Box<Expr>),
    /// True if an integer is in one of these ranges, first and last, in order, apart.
    Ranges(Box<Expr>, Vec<(u64, u64)>),
    /// True if one of these is true for a value, which they call [`Node::Bound`].
    Within(Box<Expr>, Vec<Expr>),
    /// All, from left to right, until one is not true.
    All(Vec<Expr>),
    /// One of them, from left to right, until one is true.
    Either(Vec<Expr>),
    /// True if it is true for one element of the need.
    Any(usize, Box<Expr>),
    /// A function of all elements of the need.
    Fold(Fold, usize),
    /// True with this probability, times 2^64.
    Sample(u64),
    /// True so many times in so many nanoseconds, by a cell.
    Rate {
        /// Number of the cell.
        cell: usize,
        /// Their number.
        many: u64,
        /// In how many nanoseconds.
        interval_ns: u64,
    },
    /// The number of earlier evaluations, by a cell.
    Count(usize),
    /// True if the value differs from that of the time before, by a cell.
    Changed(usize, Box<Expr>),
}

impl Expr {
    pub(crate) fn truth(node: Node) -> Self {
        Self { node, of: Type::Signed }
    }

    pub(crate) fn number(bits: u64, of: Type) -> Self {
        Self { node: Node::Number(bits), of }
    }

    /// Its value, if it is a constant number.
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
    /// Its needs, in the order in which the expression names them.
    pub needs: Vec<Need>,
    /// Cells of state.
    pub cells: usize,
    /// The expression.
    pub root: Expr,
    /// Warnings.
    pub warnings: Vec<Warning>,
}

/// The widths that fields are taken for that are integers without a sign: for a filter that serves
/// events in which they have different widths. (Elements of a sequence are read by their own
/// width.)
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Widths<'names> {
    /// The widths of the layout.
    #[default]
    Own,
    /// All for less than 64 bits.
    Narrow,
    /// Less than 64 bits for fields of these names, 64 for all others.
    NarrowOnly(&'names BTreeSet<String>),
}

/// Checks `text` against what an event has.
///
/// # Errors
///
/// The first thing that is wrong, with its place in `text`.
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

/// Checks that a part of an expression, by itself, is true or false for an event.
pub(crate) fn check_part(part: &Tree, layout: &Layout) -> Result<(), Error> {
    check::Checker::new(layout, Widths::Own, Vec::new()).truth(part).map(|_| ())
}

/// Checks that a part of an expression, by itself, is a value of an event, whatever is done with
/// it.
pub(crate) fn check_value(part: &Tree, layout: &Layout) -> Result<(), Error> {
    check::Checker::new(layout, Widths::Own, Vec::new()).check(part).map(|_| ())
}
