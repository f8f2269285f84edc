//! Compares strings: first their lengths, then up to 32 bytes as numbers, and only then by a call.
//!
//! Up to sixteen bytes are compared as one or two numbers: the first and the last bytes. Each
//! number covers the largest fitting power of two, at most eight bytes; the two may overlap.

use trackway_jit::helper::Helper;

use super::lower::{FunctionLowering, Label};
use super::{Alu, End, Op, Relation, Unsupported, Value};
use crate::parse::Binary;
use crate::text::Shape;
use crate::types::{Expr, Node, StringTest};

/// Bit position of the length of a string or sequence in a word.
const LENGTH_SHIFT: u64 = 32;
/// Maximum number of bytes that one call compares as numbers.
const COMPARED_BYTES: usize = 16;

/// The end of a string at which a part is compared.
#[derive(Clone, Copy)]
enum Edge {
    Start,
    End,
}

impl FunctionLowering<'_, '_> {
    /// Ends the block with a comparison of two strings.
    pub(super) fn compare_strings(
        &mut self,
        operator: Binary,
        (a, b): (Value, Value),
        then: Label,
        otherwise: Label,
    ) {
        let relation = match operator {
            Binary::Equal => return self.equal_strings(a, b, then, otherwise),
            Binary::NotEqual => return self.equal_strings(a, b, otherwise, then),
            Binary::Less => Relation::SignedLess,
            Binary::LessEqual => Relation::SignedLessEqual,
            Binary::Greater => Relation::SignedGreater,
            _ => Relation::SignedGreaterEqual,
        };
        let ordering = self.call(Helper::StringCompare, vec![a, b]);
        self.branch_by(relation, ordering, 0, then, otherwise);
    }

    fn equal_strings(&mut self, a: Value, b: Value, same: Label, other: Label) {
        let (a, b) = if self.text_of(a).is_some() { (b, a) } else { (a, b) };
        let (a_length, b_length) = (self.length(a), self.length(b));
        self.leave_if(Relation::NotEqual, a_length, b_length, other);
        if self.values.constant(b_length) == Some(0) {
            return self.end(End::Jump(same));
        }
        if let (&Op::Slot(slot), Some(bytes)) = (self.values.op(a), self.text_of(b)) {
            let start = self.values.number(Op::Offset(slot));
            let start = self.compute(start);
            if bytes.len() <= COMPARED_BYTES {
                let differ = self.differ(start, &bytes);
                return self.branch_by(Relation::Equal, differ, 0, same, other);
            }
            let rest = bytes.len() - COMPARED_BYTES;
            let differ = self.differ(start, &bytes[..COMPARED_BYTES]);
            let zero = self.constant(0);
            self.leave_if(Relation::NotEqual, differ, zero, other);
            let behind = self.alu_by(Alu::Add, start, rest as u64);
            let differ = self.differ(behind, &bytes[rest..]);
            if rest <= COMPARED_BYTES {
                return self.branch_by(Relation::Equal, differ, 0, same, other);
            }
            self.leave_if(Relation::NotEqual, differ, zero, other);
        }
        let ordering = self.call(Helper::StringCompare, vec![a, b]);
        self.branch_by(Relation::Equal, ordering, 0, same, other);
    }

    /// Ends the block if the expression tests up to 16 bytes at the start or end of a field.
    /// Returns true if it does.
    pub(super) fn test_edge(
        &mut self,
        expr: &Expr,
        then: Label,
        otherwise: Label,
    ) -> Result<bool, Unsupported> {
        let (edge, string, bytes) = match &expr.node {
            Node::StringTest(test, string, part) => match (test, &part.node) {
                (StringTest::StartsWith, Node::Text(bytes)) => (Edge::Start, string, &bytes[..]),
                (StringTest::EndsWith, Node::Text(bytes)) => (Edge::End, string, &bytes[..]),
                _ => return Ok(false),
            },
            Node::Matches(string, text) => match text.shape() {
                Shape::Prefix(bytes) => (Edge::Start, string, bytes),
                Shape::Suffix(bytes) => (Edge::End, string, bytes),
                _ => return Ok(false),
            },
            _ => return Ok(false),
        };
        if !(1..=COMPARED_BYTES).contains(&bytes.len()) {
            return Ok(false);
        }
        let word = self.value(string)?;
        let Op::Slot(slot) = *self.values.op(word) else { return Ok(false) };
        let length = self.length(word);
        let size = self.constant(bytes.len() as u64);
        self.leave_if(Relation::Less, length, size, otherwise);
        let start = self.values.number(Op::Offset(slot));
        let start = self.compute(start);
        let start = match edge {
            Edge::Start => start,
            Edge::End => {
                let end = self.alu(Alu::Add, start, length);
                self.alu_by(Alu::Subtract, end, bytes.len() as u64)
            }
        };
        let differ = self.differ(start, bytes);
        self.branch_by(Relation::Equal, differ, 0, then, otherwise);
        Ok(true)
    }

    /// Returns zero if the 1 to 16 bytes at `start` in the event equal `bytes`.
    fn differ(&mut self, start: Value, bytes: &[u8]) -> Value {
        let helper = Helper::ALL
            .iter()
            .find(|helper| helper.compared_bytes().is_some_and(|n| usize::from(n) == bytes.len()))
            .copied()
            .unwrap_or(Helper::BytesDiffer16);
        let (first, last) = Helper::number_bytes(bytes.len() as u8);
        let mut number = |bytes: &[u8]| {
            let number = bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte));
            // Four-byte numbers become immediates: the helper ignores the upper bits.
            self.constant(if bytes.len() == 4 { number as u32 as i32 as u64 } else { number })
        };
        let mut arguments = vec![start, number(&bytes[..usize::from(first)])];
        if last > 0 {
            arguments.push(number(&bytes[bytes.len() - usize::from(last)..]));
        }
        self.call(helper, arguments)
    }

    /// Returns the bytes of a constant string.
    fn text_of(&self, word: Value) -> Option<Vec<u8>> {
        match self.values.op(word) {
            Op::Text(text) => Some(self.shared.texts[*text].clone()),
            _ => None,
        }
    }

    /// Returns the length of a word in bytes or elements.
    pub(super) fn length(&mut self, word: Value) -> Value {
        match *self.values.op(word) {
            Op::Text(text) => {
                let length = self.shared.texts[text].len() as u64;
                self.constant(length)
            }
            Op::Slot(slot) => {
                let length = self.values.number(Op::Length(slot));
                self.compute(length)
            }
            _ => self.alu_by(Alu::ShiftRight, word, LENGTH_SHIFT),
        }
    }
}
