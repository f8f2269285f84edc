//! The control-flow graph between tree and bytecode.
//!
//! A filter is a graph of blocks that ends in yes or no (McCanne, Jacobson: *The BSD Packet
//! Filter*, 1993, section 3.1): `&&` and `||` are edges, not values. A frame does not change while
//! a filter runs, so an expression without effects has the same value everywhere, and one number in
//! [`Values`]. A value computed on all paths to a block is not computed again there, a test is not
//! repeated, and unused values are removed ([`reduce`]).
//!
//! Blocks are numbered in layout order, and edges lead to later blocks only.

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

/// A 64-bit arithmetic operation.
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

/// The operation that yields a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    /// A constant.
    Constant(u64),
    /// The word of a constant string, by the string's number.
    Text(usize),
    /// The address of a function, by the function's number.
    Function(usize),
    /// A slot of the frame.
    Slot(usize),
    /// The lower half of a slot, as an unsigned number: the offset of a string.
    Offset(usize),
    /// The upper half of a slot, as an unsigned number: a length.
    Length(usize),
    /// The second argument of a function that tests an element; the first is the frame.
    Item,
    /// Arithmetic.
    Alu(Alu, Value, Value),
    /// `-a`.
    Negate(Value),
    /// The result of a helper that depends only on its arguments; the frame is not listed.
    Call(Helper, Vec<Value>),
    /// The result of a helper with effects; the number distinguishes the calls.
    Effect(Helper, Vec<Value>, usize),
    /// A variable that blocks assign before its use.
    Variable(usize),
}

impl Op {
    /// Returns the operands of the operation.
    pub(crate) fn operands(&self) -> Vec<Value> {
        match self {
            Self::Alu(_, a, b) => vec![*a, *b],
            Self::Negate(a) => vec![*a],
            Self::Call(_, arguments) | Self::Effect(_, arguments, _) => arguments.clone(),
            _ => Vec::new(),
        }
    }

    /// Returns true if one instruction loads the value from the frame.
    pub(crate) fn is_load(&self) -> bool {
        matches!(self, Self::Slot(_) | Self::Offset(_) | Self::Length(_))
    }

    pub(crate) fn is_call(&self) -> bool {
        matches!(self, Self::Call(..) | Self::Effect(..))
    }
}

/// A comparison relation of two values.
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

/// The condition at the end of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Test {
    pub(crate) relation: Relation,
    pub(crate) a: Value,
    pub(crate) b: Value,
}

/// A step of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Computes a value.
    Compute(Value),
    /// Assigns a constant to a variable.
    Assign(Value, u64),
}

/// The end of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Jumps to a block.
    Jump(usize),
    /// Jumps to the first block if the test holds, else to the second.
    Branch(Test, usize, usize),
    /// Returns the function's answer.
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

/// A basic block: steps without a jump between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) steps: Vec<Step>,
    pub(crate) end: End,
}

/// A function: the filter, or the condition on each element. It begins with block 0.
#[derive(Debug, Clone)]
pub(crate) struct Function {
    pub(crate) values: Values,
    pub(crate) blocks: Vec<Block>,
}

/// A filter as graphs.
#[derive(Debug, Clone)]
pub(crate) struct Graph {
    /// The filter, then the functions that test elements.
    pub(crate) functions: Vec<Function>,
    /// Constant strings.
    pub(crate) texts: Vec<Vec<u8>>,
}

/// An expression that bytecode does not support.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unsupported(pub(crate) String);

/// Builds the reduced graphs of a filter.
pub(crate) fn build_graph(filter: &Filter) -> Result<Graph, Unsupported> {
    let mut graph = lower::lower_filter(filter)?;
    for function in &mut graph.functions {
        reduce::reduce_function(function)?;
    }
    Ok(graph)
}
