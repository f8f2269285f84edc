//! The control-flow graph between tree and bytecode.
//!
//! A filter is a graph of blocks that ends in yes or no (McCanne, Jacobson: *The BSD Packet
//! Filter*, 1993, section 3.1): `&&` and `||` are edges, not values. A frame never changes while a
//! filter looks at it, so an expression without effects has one value wherever it is computed, and
//! one number: [`Values`] gives it. A value computed on all ways to a block is not computed again
//! there, a test is not repeated, and unused values are left out ([`reduce`]).
//!
//! Blocks are numbered in the order in which they are laid out, and edges lead to later ones only.

mod lower;
mod reduce;
mod text;
mod value;

use trackway_jit::helper::Helper;

use crate::types::Filter;

pub(crate) use reduce::too_long;
pub(crate) use value::{Values, is_immediate};

/// Number of a value in a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Value(pub(crate) u32);

impl Value {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Arithmetic of 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Alu {
    Add,
    Subtract,
    Multiply,
    Divide,
    DivideSigned,
    Remainder,
    RemainderSigned,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
    ShiftRightSigned,
}

impl Alu {
    pub(crate) fn is_commutative(self) -> bool {
        matches!(self, Self::Add | Self::Multiply | Self::And | Self::Or | Self::Xor)
    }
}

/// The origin of a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    /// A constant.
    Constant(u64),
    /// The word of a constant string, by its number.
    Text(usize),
    /// A function's address, by its number.
    Function(usize),
    /// A slot of the frame.
    Slot(usize),
    /// The lower half of a slot, as a number without a sign: where a string begins.
    Offset(usize),
    /// The upper half of a slot, as a number without a sign: a length.
    Length(usize),
    /// The second argument of a function that tests an element; the first is the frame.
    Item,
    /// Arithmetic.
    Alu(Alu, Value, Value),
    /// `-a`.
    Negate(Value),
    /// The answer of a helper that depends on its arguments alone; the frame is not among these.
    Call(Helper, Vec<Value>),
    /// The answer of another helper; the number distinguishes calls.
    Effect(Helper, Vec<Value>, usize),
    /// A variable that blocks assign before it is used.
    Variable(usize),
}

impl Op {
    /// The values that it is made of.
    pub(crate) fn operands(&self) -> Vec<Value> {
        match self {
            Self::Alu(_, a, b) => vec![*a, *b],
            Self::Negate(a) => vec![*a],
            Self::Call(_, arguments) | Self::Effect(_, arguments, _) => arguments.clone(),
            _ => Vec::new(),
        }
    }

    /// Returns true if it is read from the frame, in one instruction.
    pub(crate) fn is_load(&self) -> bool {
        matches!(self, Self::Slot(_) | Self::Offset(_) | Self::Length(_))
    }

    pub(crate) fn is_call(&self) -> bool {
        matches!(self, Self::Call(..) | Self::Effect(..))
    }
}

/// The relation of two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Relation {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    SignedLess,
    SignedLessEqual,
    SignedGreater,
    SignedGreaterEqual,
}

impl Relation {
    pub(crate) fn negated(self) -> Self {
        match self {
            Self::Equal => Self::NotEqual,
            Self::NotEqual => Self::Equal,
            Self::Less => Self::GreaterEqual,
            Self::LessEqual => Self::Greater,
            Self::Greater => Self::LessEqual,
            Self::GreaterEqual => Self::Less,
            Self::SignedLess => Self::SignedGreaterEqual,
            Self::SignedLessEqual => Self::SignedGreater,
            Self::SignedGreater => Self::SignedLessEqual,
            Self::SignedGreaterEqual => Self::SignedLess,
        }
    }

    pub(crate) fn mirrored(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessEqual => Self::GreaterEqual,
            Self::Greater => Self::Less,
            Self::GreaterEqual => Self::LessEqual,
            Self::SignedLess => Self::SignedGreater,
            Self::SignedLessEqual => Self::SignedGreaterEqual,
            Self::SignedGreater => Self::SignedLess,
            Self::SignedGreaterEqual => Self::SignedLessEqual,
            same => same,
        }
    }

    pub(crate) fn holds(self, a: u64, b: u64) -> bool {
        let (x, y) = (a as i64, b as i64);
        match self {
            Self::Equal => a == b,
            Self::NotEqual => a != b,
            Self::Less => a < b,
            Self::LessEqual => a <= b,
            Self::Greater => a > b,
            Self::GreaterEqual => a >= b,
            Self::SignedLess => x < y,
            Self::SignedLessEqual => x <= y,
            Self::SignedGreater => x > y,
            Self::SignedGreaterEqual => x >= y,
        }
    }
}

/// A question at the end of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Test {
    pub(crate) relation: Relation,
    pub(crate) a: Value,
    pub(crate) b: Value,
}

/// Something that a block does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Works a value out.
    Compute(Value),
    /// Gives a variable this constant.
    Assign(Value, u64),
}

/// The end of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// There.
    Jump(usize),
    /// There if the test holds, or there.
    Branch(Test, usize, usize),
    /// The function's answer.
    Return(bool),
}

impl End {
    pub(crate) fn targets(&self) -> Vec<usize> {
        match *self {
            Self::Jump(to) => vec![to],
            Self::Branch(_, then, otherwise) => vec![then, otherwise],
            Self::Return(_) => Vec::new(),
        }
    }
}

/// Steps without a jump between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) steps: Vec<Step>,
    pub(crate) end: End,
}

/// A function: the filter, or what is asked of each element. It begins with block 0.
#[derive(Debug, Clone)]
pub(crate) struct Function {
    pub(crate) values: Values,
    pub(crate) blocks: Vec<Block>,
}

/// A filter as graphs.
#[derive(Debug, Clone)]
pub(crate) struct Graph {
    /// The filter, then what it has elements asked.
    pub(crate) functions: Vec<Function>,
    /// Constant strings.
    pub(crate) texts: Vec<Vec<u8>>,
}

/// A feature that bytecode does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unsupported(pub(crate) String);

/// Makes the graphs of a filter.
pub(crate) fn build_graph(filter: &Filter) -> Result<Graph, Unsupported> {
    let mut graph = lower::lower_filter(filter)?;
    for function in &mut graph.functions {
        reduce::reduce_function(function)?;
    }
    Ok(graph)
}
