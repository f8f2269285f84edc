//! Numbers values: equal expressions get equal numbers, and constants are folded.

use std::collections::{HashMap, HashSet};

use trackway_jit::helper::Helper;

use super::{Alu, Op, Relation, Test, Value};
use crate::number;
use crate::parse::Binary;
use crate::types::Type;

/// Result of the helper `float_compare` if one of its arguments is NaN.
const UNORDERED: u64 = 2;

/// The values of a function.
#[derive(Debug, Clone, Default)]
pub(crate) struct Values {
    ops: Vec<Op>,
    numbers: HashMap<Op, Value>,
    /// Slots and elements that hold unsigned numbers narrower than 64 bits.
    natural: HashSet<Value>,
}

/// Returns true if a constant fits an immediate: 32 bits, sign-extended.
pub(crate) fn is_immediate(bits: u64) -> bool {
    i32::try_from(bits as i64).is_ok()
}

/// The result of a test at compile time.
pub(crate) enum Known {
    Always(bool),
    Open(Test),
}

impl Values {
    pub(crate) fn op(&self, value: Value) -> &Op {
        &self.ops[value.index()]
    }

    pub(crate) fn count(&self) -> usize {
        self.ops.len()
    }

    pub(crate) fn constant(&self, value: Value) -> Option<u64> {
        match self.op(value) {
            Op::Constant(bits) => Some(*bits),
            _ => None,
        }
    }

    /// Returns the constant operand of `op` that fits no immediate and needs a register.
    pub(super) fn constant_in_register(&self, op: &Op) -> Option<Value> {
        let Op::Alu(_, _, b) = op else { return None };
        self.constant(*b).is_some_and(|bits| !is_immediate(bits)).then_some(*b)
    }

    /// Returns the number of the value that `op` yields.
    pub(super) fn number(&mut self, op: Op) -> Value {
        if let Some(value) = self.numbers.get(&op) {
            return *value;
        }
        let value = Value(self.ops.len() as u32);
        self.ops.push(op.clone());
        self.numbers.insert(op, value);
        value
    }

    pub(super) fn of_constant(&mut self, bits: u64) -> Value {
        self.number(Op::Constant(bits))
    }

    /// Records that the value is at least 0 as a signed number.
    pub(super) fn set_natural(&mut self, value: Value) {
        self.natural.insert(value);
    }

    /// Returns true if the value is at least 0 as a signed number.
    fn is_natural(&self, value: Value) -> bool {
        match self.op(value) {
            Op::Constant(bits) => *bits as i64 >= 0,
            Op::Offset(_) | Op::Length(_) => true,
            _ if self.natural.contains(&value) => true,
            Op::Alu(Alu::ShiftRight, _, by) => self.constant(*by).is_some_and(|by| by & 63 != 0),
            Op::Alu(Alu::And, a, b) => self.is_natural(*a) || self.is_natural(*b),
            Op::Alu(Alu::Or | Alu::Xor | Alu::Divide | Alu::Remainder, a, b) => {
                self.is_natural(*a) && self.is_natural(*b)
            }
            // The listed helpers return 0 or 1. Other numeric helpers return any number, such as an
            // element.
            Op::Call(helper, _) => matches!(
                helper,
                Helper::StringMatches
                    | Helper::StringStartsWith
                    | Helper::StringEndsWith
                    | Helper::StringContains
                    | Helper::StringEdges8
                    | Helper::StringEdges4
                    | Helper::StringEdges2
                    | Helper::StringEdges1
                    | Helper::Any
            ),
            // No counter reaches 2^63.
            Op::Effect(helper, ..) => {
                matches!(helper, Helper::Count | Helper::Changed | Helper::Rate)
            }
            _ => false,
        }
    }

    /// Returns `a op b` in its simplest form.
    pub(super) fn alu(&mut self, op: Alu, a: Value, b: Value) -> Value {
        let (a, b) = match (self.constant(a), self.constant(b)) {
            (Some(x), Some(y)) => {
                let bits = constant_alu(op, x, y);
                return self.of_constant(bits);
            }
            (Some(_), None) if op.is_commutative() => (b, a),
            _ => (a, b),
        };
        match self.constant(b) {
            Some(y) => self.alu_by(op, a, b, y),
            None if a == b && matches!(op, Alu::Subtract | Alu::Xor) => self.of_constant(0),
            None if a == b && matches!(op, Alu::And | Alu::Or) => a,
            None => self.number(Op::Alu(op, a, b)),
        }
    }

    /// Returns `a op y`, where `b` is the constant `y`.
    fn alu_by(&mut self, op: Alu, a: Value, b: Value, y: u64) -> Value {
        let is_natural = self.is_natural(a) && y as i64 >= 0;
        match (op, y) {
            (Alu::Divide | Alu::DivideSigned, 0) => self.of_constant(0),
            (Alu::Add | Alu::Subtract | Alu::Or | Alu::Xor, 0)
            | (Alu::Remainder | Alu::RemainderSigned, 0)
            | (Alu::ShiftLeft | Alu::ShiftRight | Alu::ShiftRightSigned, 0)
            | (Alu::Multiply | Alu::Divide | Alu::DivideSigned, 1)
            | (Alu::And, u64::MAX) => a,
            (Alu::Multiply | Alu::And, 0) | (Alu::Remainder | Alu::RemainderSigned, 1) => {
                self.of_constant(0)
            }
            (Alu::Or, u64::MAX) => b,
            (Alu::Subtract, _) => {
                let minus = self.of_constant(y.wrapping_neg());
                self.alu(Alu::Add, a, minus)
            }
            (Alu::DivideSigned, _) if is_natural => self.alu(Alu::Divide, a, b),
            (Alu::RemainderSigned, _) if is_natural => self.alu(Alu::Remainder, a, b),
            (Alu::ShiftRightSigned, _) if self.is_natural(a) => self.alu(Alu::ShiftRight, a, b),
            (Alu::Multiply, _) if y.is_power_of_two() => {
                let by = self.of_constant(y.trailing_zeros().into());
                self.alu(Alu::ShiftLeft, a, by)
            }
            (Alu::Divide, _) if y.is_power_of_two() => {
                let by = self.of_constant(y.trailing_zeros().into());
                self.alu(Alu::ShiftRight, a, by)
            }
            (Alu::Remainder, _) if y.is_power_of_two() => {
                let mask = self.of_constant(y - 1);
                self.alu(Alu::And, a, mask)
            }
            _ => self.regrouped(op, a, b, y),
        }
    }

    /// Rewrites `(x op c) op y` to `x op (c op y)` for commutative operations.
    fn regrouped(&mut self, op: Alu, a: Value, b: Value, y: u64) -> Value {
        if let Op::Alu(inner, x, c) = *self.op(a)
            && inner == op
            && op.is_commutative()
            && let Some(c) = self.constant(c)
        {
            let both = self.of_constant(constant_alu(op, c, y));
            return self.alu(op, x, both);
        }
        self.number(Op::Alu(op, a, b))
    }

    pub(super) fn negate(&mut self, a: Value) -> Value {
        match *self.op(a) {
            Op::Constant(bits) => self.of_constant(bits.wrapping_neg()),
            Op::Negate(inner) => inner,
            _ => self.number(Op::Negate(a)),
        }
    }

    /// Returns the result of a helper; folds float conversions and comparisons of constants.
    pub(super) fn call(&mut self, helper: Helper, arguments: Vec<Value>) -> Value {
        let constants: Option<Vec<u64>> =
            arguments.iter().map(|argument| self.constant(*argument)).collect();
        let known = match (helper, constants.as_deref()) {
            (Helper::FloatFromSigned, Some([bits])) => Some(number::to_float(*bits, Type::Signed)),
            (Helper::FloatFromUnsigned, Some([bits])) => {
                Some(number::to_float(*bits, Type::Unsigned))
            }
            (Helper::FloatCompare, Some([a, b])) => {
                let ordering = number::compare_numbers((*a, Type::Float), (*b, Type::Float));
                Some(ordering.map_or(UNORDERED, |ordering| ordering as i64 as u64))
            }
            _ => None,
        };
        match known {
            Some(bits) => self.of_constant(bits),
            None => self.number(Op::Call(helper, arguments)),
        }
    }

    /// Simplifies a test, with constants on the right.
    pub(super) fn test(&self, test: Test) -> Known {
        let Test { mut relation, mut a, mut b } = test;
        if self.constant(a).is_some() {
            (a, b, relation) = (b, a, relation.mirrored());
        }
        if let (Some(x), Some(y)) = (self.constant(a), self.constant(b)) {
            return Known::Always(relation.holds(x, y));
        }
        if a == b {
            return Known::Always(relation.holds(0, 0));
        }
        let Some(y) = self.constant(b) else { return Known::Open(Test { relation, a, b }) };
        let is_natural = self.is_natural(a);
        match (relation, y as i64) {
            (Relation::Less, 0) => return Known::Always(false),
            (Relation::GreaterEqual, 0) => return Known::Always(true),
            (Relation::LessEqual, 0) => relation = Relation::Equal,
            (Relation::Greater, 0) => relation = Relation::NotEqual,
            (Relation::SignedLess, ..=0) | (Relation::SignedLessEqual, ..0) if is_natural => {
                return Known::Always(false);
            }
            (Relation::SignedGreaterEqual, ..=0) | (Relation::SignedGreater, ..0) if is_natural => {
                return Known::Always(true);
            }
            (Relation::Equal, ..0) if is_natural => return Known::Always(false),
            (Relation::NotEqual, ..0) if is_natural => return Known::Always(true),
            _ => {}
        }
        Known::Open(Test { relation, a, b })
    }

    /// Rewrites `x + c == y` to `x == y - c`, and `x ^ c == y` to `x == y ^ c`.
    pub(super) fn isolate(&mut self, test: Test) -> Test {
        let mut test = test;
        while matches!(test.relation, Relation::Equal | Relation::NotEqual)
            && let Some(y) = self.constant(test.b)
            && let Op::Alu(op @ (Alu::Add | Alu::Xor), x, c) = *self.op(test.a)
            && let Some(c) = self.constant(c)
        {
            let y = if op == Alu::Add { y.wrapping_sub(c) } else { y ^ c };
            test = Test { a: x, b: self.of_constant(y), ..test };
        }
        test
    }
}

fn constant_alu(op: Alu, a: u64, b: u64) -> u64 {
    let (operator, is_signed) = match op {
        Alu::Add => (Binary::Add, false),
        Alu::Subtract => (Binary::Subtract, false),
        Alu::Multiply => (Binary::Multiply, false),
        Alu::Divide => (Binary::Divide, false),
        Alu::DivideSigned => (Binary::Divide, true),
        Alu::Remainder => (Binary::Remainder, false),
        Alu::RemainderSigned => (Binary::Remainder, true),
        Alu::And => (Binary::And, false),
        Alu::Or => (Binary::Or, false),
        Alu::Xor => (Binary::Xor, false),
        Alu::ShiftLeft => (Binary::ShiftLeft, false),
        Alu::ShiftRight => (Binary::ShiftRight, false),
        Alu::ShiftRightSigned => (Binary::ShiftRight, true),
    };
    number::integer_arithmetic(operator, is_signed, a, b)
}
