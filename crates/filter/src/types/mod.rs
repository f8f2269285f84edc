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

pub(crate) use name::article;
pub use suggest::closest;

pub use crate::place::{Place, Root, Step};
pub use crate::value_type::Type;

/// Numbers in a sequence or an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elements {
    /// How each is used.
    pub of: Type,
    /// What each is in a record; `None` if bytecode cannot read it.
    pub scalar: Option<Scalar>,
}

/// What a filter asks an event for: a slot of its frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// Where it is, as text: its name to those who run the filter.
    pub path: String,
    /// What it is taken for.
    pub kind: Kind,
    /// Where it is, for those who read traces.
    pub place: Place,
    /// Of a sequence: its elements.
    pub elements: Option<Elements>,
}

impl Need {
    /// Whether it is an element that is a string: an event may have none of that number.
    pub fn is_text_element(&self) -> bool {
        self.kind == Kind::String && matches!(self.place.steps.last(), Some(Step::Element(_)))
    }
}

/// What is asked of two strings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum StringTest {
    StartsWith,
    EndsWith,
    Contains,
}

/// What is made of all elements of a sequence or an array of integers.
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
    /// What it is called in expressions.
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
    /// What it is.
    pub node: Node,
    /// Type of its value; what is true or false is [`Type::Signed`], 1 or 0.
    pub of: Type,
}

/// What an expression is. Numbers in it are needs' indices, unless it says otherwise.
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
    /// The value that the innermost [`Node::Within`] asks about.
    Bound,
    /// `-a`, of integers and floats.
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
    /// Whether a string is as the pattern says.
    Matches(Box<Expr>, Text),
    /// What is asked of two strings.
    StringTest(StringTest, Box<Expr>, Box<Expr>),
    /// Whether an integer is in one of these ranges, first and last, in order, apart.
    Ranges(Box<Expr>, Vec<(u64, u64)>),
    /// Whether one of these is true of a value, which they call [`Node::Bound`].
    Within(Box<Expr>, Vec<Expr>),
    /// All, from left to right, until one is not true.
    All(Vec<Expr>),
    /// One of them, from left to right, until one is true.
    Either(Vec<Expr>),
    /// Whether it is true of one element of the need.
    Any(usize, Box<Expr>),
    /// What is made of all elements of the need.
    Fold(Fold, usize),
    /// True with this probability, times 2^64.
    Sample(u64),
    /// True so many times in so many nanoseconds, by a cell.
    Rate {
        /// Number of the cell.
        cell: usize,
        /// How many times.
        many: u64,
        /// In how many nanoseconds.
        interval_ns: u64,
    },
    /// How often it was asked before, by a cell.
    Count(usize),
    /// Whether the value is not that of the time before, by a cell.
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
    /// What it asks the event for, in the order in which the expression names it.
    pub needs: Vec<Need>,
    /// Cells of state.
    pub cells: usize,
    /// The expression.
    pub root: Expr,
    /// What is perhaps not meant.
    pub warnings: Vec<Warning>,
}

/// How wide fields are taken for that are integers without a sign: for a filter that serves events
/// in which they have different widths. (What a sequence has is read as what it is.)
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Widths<'names> {
    /// As the layout says.
    #[default]
    Own,
    /// All for less than 64 bits.
    Narrow,
    /// Those of these names for less than 64 bits, all others for 64.
    NarrowOnly(&'names BTreeSet<String>),
}

/// Checks `text` against what an event has.
///
/// # Errors
///
/// The first thing that is wrong, with its place in `text`.
pub fn check(text: &str, layout: &Layout) -> Result<Filter, Error> {
    check_parsed(&parse(text)?, layout, Widths::Own)
}

/// As [`check()`], of what was parsed.
pub(crate) fn check_parsed(
    parsed: &Parsed,
    layout: &Layout,
    widths: Widths<'_>,
) -> Result<Filter, Error> {
    let mut checker = check::Checker::new(layout, widths, parsed.warnings.clone());
    let root = checker.truth(&parsed.tree)?;
    Ok(checker.finish(root))
}

/// Whether a part of an expression, by itself, is true or false of an event.
pub(crate) fn check_part(part: &Tree, layout: &Layout) -> Result<(), Error> {
    check::Checker::new(layout, Widths::Own, Vec::new()).truth(part).map(|_| ())
}

/// Whether a part of an expression, by itself, is something of an event, whatever is done with it.
pub(crate) fn check_value(part: &Tree, layout: &Layout) -> Result<(), Error> {
    check::Checker::new(layout, Widths::Own, Vec::new()).check(part).map(|_| ())
}
