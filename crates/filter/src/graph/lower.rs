//! Lowers a typed tree to a graph: conditions become edges, all other expressions values.
//!
//! Longer than 600 lines: one pass with an arm for each kind of node.

use trackway_jit::Kind;
use trackway_jit::helper::{Helper, Word};

use super::value::{Known, Values, is_immediate};
use super::{Alu, Block, End, Function, Graph, Op, Relation, Step, Test, Unsupported, Value};
use crate::number;
use crate::parse::Binary;
use crate::text::{Shape, Text};
use crate::types::{Elements, Expr, Filter, Fold, Node, StringTest, Type};

/// Minimum number of ranges for which a set of small numbers is tested with a bit mask.
const BITS_FROM_RANGES: usize = 4;

pub(super) fn lower_filter(filter: &Filter) -> Result<Graph, Unsupported> {
    let mut shared = LoweringState { filter, texts: Vec::new(), functions: vec![None], effects: 0 };
    let function = FunctionLowering::new(&mut shared).function(&filter.root)?;
    shared.functions[0] = Some(function);
    let functions = shared.functions.into_iter().flatten().collect();
    Ok(Graph { functions, texts: shared.texts })
}

/// The data that the functions of a filter share.
pub(super) struct LoweringState<'filter> {
    filter: &'filter Filter,
    pub(super) texts: Vec<Vec<u8>>,
    /// Functions of the filter; `None` for functions that are not lowered yet.
    functions: Vec<Option<Function>>,
    effects: usize,
}

/// A block that edges can refer to before it is laid out.
pub(super) type Label = usize;

const YES_LABEL: Label = 0;
const NO_LABEL: Label = 1;

pub(super) struct FunctionLowering<'shared, 'filter> {
    pub(super) shared: &'shared mut LoweringState<'filter>,
    pub(super) values: Values,
    /// Blocks by label; `None` for blocks that are not finished.
    blocks: Vec<Option<Block>>,
    /// Labels in layout order.
    order: Vec<Label>,
    /// Steps of the current block, which is the last one in `order`.
    steps: Vec<Step>,
    /// Values that `in` tests, the innermost last.
    bound: Vec<Value>,
    variables: usize,
}

impl<'shared, 'filter> FunctionLowering<'shared, 'filter> {
    fn new(shared: &'shared mut LoweringState<'filter>) -> Self {
        Self {
            shared,
            values: Values::default(),
            blocks: vec![None, None],
            order: Vec::new(),
            steps: Vec::new(),
            bound: Vec::new(),
            variables: 0,
        }
    }

    fn function(mut self, root: &Expr) -> Result<Function, Unsupported> {
        let entry = self.label();
        self.begin(entry);
        self.branch_on(root, YES_LABEL, NO_LABEL)?;
        for (label, answer) in [(YES_LABEL, true), (NO_LABEL, false)] {
            self.begin(label);
            self.end(End::Return(answer));
        }
        let mut place = vec![0; self.blocks.len()];
        for (at, &label) in self.order.iter().enumerate() {
            place[label] = at;
        }
        let mut blocks = Vec::with_capacity(self.order.len());
        for &label in &self.order {
            let Some(block) = self.blocks[label].take() else { continue };
            let end = match block.end {
                End::Jump(to) => End::Jump(place[to]),
                End::Branch(test, then, otherwise) => {
                    End::Branch(test, place[then], place[otherwise])
                }
                end @ End::Return(_) => end,
            };
            blocks.push(Block { end, ..block });
        }
        Ok(Function { values: self.values, blocks })
    }

    fn label(&mut self) -> Label {
        self.blocks.push(None);
        self.blocks.len() - 1
    }

    fn begin(&mut self, label: Label) {
        self.order.push(label);
    }

    /// Ends the current block.
    pub(super) fn end(&mut self, end: End) {
        let steps = std::mem::take(&mut self.steps);
        if let Some(&label) = self.order.last() {
            self.blocks[label] = Some(Block { steps, end });
        }
    }

    /// Computes a value in the current block.
    pub(super) fn compute(&mut self, value: Value) -> Value {
        // Constants need no computation, and variables have been assigned.
        let is_there = matches!(
            self.values.op(value),
            Op::Constant(_) | Op::Text(_) | Op::Function(_) | Op::Variable(_)
        );
        if !is_there {
            let op = self.values.op(value);
            if let Some(operand) = self.values.constant_in_register(op) {
                self.steps.push(Step::Compute(operand));
            }
            self.steps.push(Step::Compute(value));
        }
        value
    }

    pub(super) fn constant(&mut self, bits: u64) -> Value {
        self.values.of_constant(bits)
    }

    pub(super) fn alu(&mut self, op: Alu, a: Value, b: Value) -> Value {
        let value = self.values.alu(op, a, b);
        self.compute(value)
    }

    pub(super) fn alu_by(&mut self, op: Alu, a: Value, by: u64) -> Value {
        let by = self.constant(by);
        self.alu(op, a, by)
    }

    pub(super) fn call(&mut self, helper: Helper, arguments: Vec<Value>) -> Value {
        let value = self.values.call(helper, arguments);
        self.compute(value)
    }

    fn effect(&mut self, helper: Helper, arguments: Vec<Value>) -> Value {
        self.shared.effects += 1;
        let value = self.values.number(Op::Effect(helper, arguments, self.shared.effects));
        self.compute(value)
    }

    /// Ends the block with a test.
    fn branch(&mut self, relation: Relation, a: Value, b: Value, then: Label, otherwise: Label) {
        let mut known = self.values.test(Test { relation, a, b });
        if let Known::Open(test) = known {
            let test = self.values.isolate(test);
            known = self.values.test(test);
        }
        match known {
            Known::Always(holds) => self.end(End::Jump(if holds { then } else { otherwise })),
            Known::Open(test) => {
                let constant = self.values.constant(test.b);
                if constant.is_some_and(|bits| !is_immediate(bits)) {
                    self.steps.push(Step::Compute(test.b));
                }
                self.end(End::Branch(test, then, otherwise));
            }
        }
    }

    pub(super) fn branch_by(
        &mut self,
        relation: Relation,
        a: Value,
        by: u64,
        then: Label,
        otherwise: Label,
    ) {
        let by = self.constant(by);
        self.branch(relation, a, by, then, otherwise);
    }

    /// Branches to `then` if the test holds; otherwise continues in a new block.
    pub(super) fn leave_if(&mut self, relation: Relation, a: Value, b: Value, then: Label) {
        let next = self.label();
        self.branch(relation, a, b, then, next);
        self.begin(next);
    }

    /// Ends the block with a branch: to `then` if the expression is true, else to `otherwise`.
    fn branch_on(&mut self, expr: &Expr, then: Label, otherwise: Label) -> Result<(), Unsupported> {
        match &expr.node {
            Node::Not(of) => self.branch_on(of, otherwise, then)?,
            Node::All(parts) => {
                for part in parts {
                    let next = self.label();
                    self.branch_on(part, next, otherwise)?;
                    self.begin(next);
                }
                self.end(End::Jump(then));
            }
            Node::Either(parts) => {
                for part in parts {
                    let next = self.label();
                    self.branch_on(part, then, next)?;
                    self.begin(next);
                }
                self.end(End::Jump(otherwise));
            }
            Node::Compare(operator, a, b) => {
                let of = (a.of, b.of);
                let (a, b) = (self.value(a)?, self.value(b)?);
                match of {
                    (Type::Text, _) => self.compare_strings(*operator, (a, b), then, otherwise),
                    (Type::Float, _) => self.compare_floats(*operator, a, b, then, otherwise),
                    _ => self.compare_integers(*operator, (a, of.0), (b, of.1), then, otherwise),
                }
            }
            Node::Matches(of, text) if text.shape() == Shape::Anything => {
                self.value(of)?;
                self.end(End::Jump(then));
            }
            Node::Ranges(of, ranges) => {
                let value = self.value(of)?;
                self.test_ranges(value, of.of, ranges, then, otherwise);
            }
            Node::Within(of, tests) => {
                let value = self.value(of)?;
                self.bound.push(value);
                for test in tests {
                    let next = self.label();
                    self.branch_on(test, then, next)?;
                    self.begin(next);
                }
                self.bound.pop();
                self.end(End::Jump(otherwise));
            }
            Node::Sample(threshold) => {
                let random = self.effect(Helper::Random, Vec::new());
                self.branch_by(Relation::Less, random, *threshold, then, otherwise);
            }
            _ if self.test_edge(expr, then, otherwise)? => {}
            _ => {
                let value = self.value(expr)?;
                if expr.of == Type::Float {
                    let zero = self.constant(0);
                    self.compare_floats(Binary::NotEqual, value, zero, then, otherwise);
                } else {
                    self.branch_by(Relation::NotEqual, value, 0, then, otherwise);
                }
            }
        }
        Ok(())
    }

    fn compare_floats(
        &mut self,
        operator: Binary,
        a: Value,
        b: Value,
        then: Label,
        otherwise: Label,
    ) {
        let ordering = self.call(Helper::FloatCompare, vec![a, b]);
        let (relation, by) = match operator {
            Binary::Equal => (Relation::Equal, 0),
            Binary::NotEqual => (Relation::NotEqual, 0),
            Binary::Less => (Relation::Equal, u64::MAX),
            // Accepts -1 and 0, but not 2, the result for unordered floats.
            Binary::LessEqual => (Relation::SignedLessEqual, 0),
            Binary::Greater => (Relation::Equal, 1),
            // Accepts 0 and 1: as an unsigned number, -1 is larger.
            _ => (Relation::LessEqual, 1),
        };
        self.branch_by(relation, ordering, by, then, otherwise);
    }

    /// Compares integers by their numeric values, whatever their signs.
    fn compare_integers(
        &mut self,
        operator: Binary,
        (a, of_a): (Value, Type),
        (b, of_b): (Value, Type),
        then: Label,
        otherwise: Label,
    ) {
        if of_a == of_b {
            return self.branch(integer_relation(operator, of_a), a, b, then, otherwise);
        }
        // A negative signed number is less than any unsigned one.
        let (signed, other, is_swapped) =
            if of_a == Type::Signed { (a, b, false) } else { (b, a, true) };
        let ordering =
            if is_swapped { std::cmp::Ordering::Greater } else { std::cmp::Ordering::Less };
        let target = |ordering| {
            if number::ordering_satisfies(operator, Some(ordering)) { then } else { otherwise }
        };
        if self.values.constant(other).is_some_and(|bits| bits as i64 <= -1) {
            // The unsigned constant exceeds every signed number.
            return self.end(End::Jump(target(ordering)));
        }
        let zero = self.constant(0);
        self.leave_if(Relation::SignedLess, signed, zero, target(ordering));
        self.branch(integer_relation(operator, Type::Unsigned), a, b, then, otherwise);
    }

    fn test_ranges(
        &mut self,
        value: Value,
        of: Type,
        ranges: &[(u64, u64)],
        then: Label,
        otherwise: Label,
    ) {
        if let (Some(&(least, _)), Some(&(_, most))) = (ranges.first(), ranges.last())
            && ranges.len() >= BITS_FROM_RANGES
            && most.wrapping_sub(least) < 64
        {
            return self.test_bit_set(value, least, ranges, then, otherwise);
        }
        let (min, max) = match of {
            Type::Unsigned => (0, u64::MAX),
            _ => (i64::MIN as u64, i64::MAX as u64),
        };
        for &(first, last) in ranges {
            if first == last {
                let by = self.constant(first);
                self.leave_if(Relation::Equal, value, by, then);
                continue;
            }
            if first != min {
                // Ranges are sorted: a value below this range is in no later one.
                let by = self.constant(first);
                self.leave_if(integer_relation(Binary::Less, of), value, by, otherwise);
            }
            if last == max {
                return self.end(End::Jump(then));
            }
            let by = self.constant(last);
            self.leave_if(integer_relation(Binary::LessEqual, of), value, by, then);
        }
        self.end(End::Jump(otherwise));
    }

    /// Tests a set of numbers within 64 of each other with one bit for each number.
    fn test_bit_set(
        &mut self,
        value: Value,
        least: u64,
        ranges: &[(u64, u64)],
        then: Label,
        otherwise: Label,
    ) {
        let mut bits = 0_u64;
        let mut span = 0;
        for &(first, last) in ranges {
            let (from, to) = (first.wrapping_sub(least), last.wrapping_sub(least));
            bits |= u64::MAX >> (63 - (to - from)) << from;
            span = to;
        }
        let index = self.alu_by(Alu::Subtract, value, least);
        let most = self.constant(span);
        self.leave_if(Relation::Greater, index, most, otherwise);
        let bits = self.constant(bits);
        let shifted = self.alu(Alu::ShiftRight, bits, index);
        let bit = self.alu_by(Alu::And, shifted, 1);
        self.branch_by(Relation::NotEqual, bit, 0, then, otherwise);
    }

    /// Lowers an expression to a value: a number's bits, or a word.
    pub(super) fn value(&mut self, expr: &Expr) -> Result<Value, Unsupported> {
        Ok(match &expr.node {
            Node::Number(bits) => self.constant(*bits),
            Node::Text(bytes) => self.text(bytes.clone()),
            Node::Load(need) => {
                let value = self.slot(*need);
                let kind = self.shared.filter.needs[*need].kind;
                if (kind, expr.of) == (Kind::Unsigned, Type::Signed) {
                    self.values.set_natural(value);
                }
                let value = self.compute(value);
                if self.shared.filter.needs[*need].is_text_element() {
                    let absent = self.constant(Word::ABSENT);
                    self.leave_if(Relation::Equal, value, absent, NO_LABEL);
                }
                value
            }
            Node::Element(need, index) => self.element(*need, index)?,
            Node::Fold(fold, need) => self.fold(*fold, *need)?,
            Node::Absent => {
                self.end(End::Jump(NO_LABEL));
                let next = self.label();
                self.begin(next);
                self.constant(0)
            }
            Node::Length(of) => {
                let word = self.value(of)?;
                self.length(word)
            }
            Node::Item => {
                let value = self.values.number(Op::Item);
                self.compute(value)
            }
            Node::Bound => match self.bound.last() {
                Some(value) => *value,
                None => return Err(Unsupported("a value that nothing binds".into())),
            },
            Node::Negate(_) | Node::Complement(_) | Node::ToFloat(_) | Node::Arithmetic(..) => {
                self.operated(expr)?
            }
            _ => self.lower_predicate(expr)?,
        })
    }

    /// Lowers an operator on numbers.
    fn operated(&mut self, expr: &Expr) -> Result<Value, Unsupported> {
        Ok(match &expr.node {
            Node::Negate(of) => {
                let value = self.value(of)?;
                if expr.of == Type::Float {
                    self.alu_by(Alu::Xor, value, 1 << 63)
                } else {
                    let value = self.values.negate(value);
                    self.compute(value)
                }
            }
            Node::Complement(of) => {
                let value = self.value(of)?;
                self.alu_by(Alu::Xor, value, u64::MAX)
            }
            Node::ToFloat(of) => {
                let helper = match of.of {
                    Type::Unsigned => Helper::FloatFromUnsigned,
                    _ => Helper::FloatFromSigned,
                };
                let value = self.value(of)?;
                self.call(helper, vec![value])
            }
            Node::Arithmetic(operator, a, b) => {
                let (a, b) = (self.value(a)?, self.value(b)?);
                self.arithmetic(*operator, expr.of, a, b)
            }
            _ => self.lower_predicate(expr)?,
        })
    }

    /// Lowers a predicate to a number: a helper's result, or a materialized test.
    fn lower_predicate(&mut self, expr: &Expr) -> Result<Value, Unsupported> {
        Ok(match &expr.node {
            Node::StringTest(test, string, part) => {
                let arguments = vec![self.value(string)?, self.value(part)?];
                self.call(string_test_helper(*test), arguments)
            }
            Node::Matches(of, text) if text.shape() != Shape::Anything => {
                let word = self.value(of)?;
                self.matches(word, text)
            }
            Node::Any(need, body) => self.any(*need, body)?,
            Node::Count(cell) => {
                let cell = self.constant(*cell as u64);
                self.effect(Helper::Count, vec![cell])
            }
            Node::Changed(cell, of) => {
                let mut value = self.value(of)?;
                if of.of == Type::Text {
                    value = self.call(Helper::StringHash, vec![value]);
                }
                let cell = self.constant(*cell as u64);
                self.effect(Helper::Changed, vec![cell, value])
            }
            Node::Rate { cell, many, interval_ns } => {
                let arguments = [*cell as u64, *many, *interval_ns].map(|bits| self.constant(bits));
                self.effect(Helper::Rate, arguments.into())
            }
            _ => self.materialized(expr)?,
        })
    }

    /// Materializes a condition as 1 or 0.
    fn materialized(&mut self, expr: &Expr) -> Result<Value, Unsupported> {
        self.variables += 1;
        let variable = self.values.number(Op::Variable(self.variables));
        let [yes, no, after] = [self.label(), self.label(), self.label()];
        self.branch_on(expr, yes, no)?;
        for (label, bits) in [(yes, 1), (no, 0)] {
            self.begin(label);
            self.steps.push(Step::Assign(variable, bits));
            self.end(End::Jump(after));
        }
        self.begin(after);
        Ok(variable)
    }

    fn slot(&mut self, need: usize) -> Value {
        self.values.number(Op::Slot(need))
    }

    fn text(&mut self, bytes: Vec<u8>) -> Value {
        let texts = &mut self.shared.texts;
        let at = texts.iter().position(|text| *text == bytes).unwrap_or_else(|| {
            texts.push(bytes);
            texts.len() - 1
        });
        self.values.number(Op::Text(at))
    }

    fn matches(&mut self, word: Value, text: &Text) -> Value {
        let (helper, bytes) = match text.shape() {
            Shape::Prefix(bytes) => (Helper::StringStartsWith, bytes.to_vec()),
            Shape::Suffix(bytes) => (Helper::StringEndsWith, bytes.to_vec()),
            Shape::Infix(bytes) => (Helper::StringContains, bytes.to_vec()),
            _ => (Helper::StringMatches, text.to_pattern()),
        };
        let pattern = self.text(bytes);
        self.call(helper, vec![word, pattern])
    }

    /// Returns the scalar code of a sequence's elements.
    fn scalar(&mut self, need: usize) -> Result<Value, Unsupported> {
        let need = &self.shared.filter.needs[need];
        match need.elements {
            Some(Elements { scalar: Some(scalar), .. }) => {
                Ok(self.values.of_constant(scalar as u64))
            }
            _ => Err(Unsupported(format!(
                "elements of '{}' have a width that only a trace's reader knows",
                need.path
            ))),
        }
    }

    fn element(&mut self, need: usize, index: &Expr) -> Result<Value, Unsupported> {
        let index = self.value(index)?;
        let word = self.slot(need);
        let word = self.compute(word);
        let length = self.length(word);
        // A negative index is a large unsigned number.
        self.leave_if(Relation::GreaterEqual, index, length, NO_LABEL);
        let scalar = self.scalar(need)?;
        let element = self.values.call(Helper::Element, vec![word, scalar, index]);
        if self.shared.filter.needs[need].elements.is_some_and(is_natural) {
            self.values.set_natural(element);
        }
        Ok(self.compute(element))
    }

    fn fold(&mut self, fold: Fold, need: usize) -> Result<Value, Unsupported> {
        let helper = match fold {
            Fold::Sum => Helper::Sum,
            Fold::Least => Helper::Least,
            Fold::Greatest => Helper::Greatest,
        };
        let word = self.slot(need);
        let word = self.compute(word);
        if fold != Fold::Sum {
            let (length, zero) = (self.length(word), self.constant(0));
            self.leave_if(Relation::Equal, length, zero, NO_LABEL);
        }
        let scalar = self.scalar(need)?;
        let folded = self.values.call(helper, vec![word, scalar]);
        // With the maximum number of 32-bit elements, the sum stays far below 2^63.
        if self.shared.filter.needs[need].elements.is_some_and(is_natural) {
            self.values.set_natural(folded);
        }
        Ok(self.compute(folded))
    }

    fn any(&mut self, need: usize, body: &Expr) -> Result<Value, Unsupported> {
        let number = self.shared.functions.len();
        self.shared.functions.push(None);
        let is_natural = self.shared.filter.needs[need].elements.is_some_and(is_natural);
        let mut lower = FunctionLowering::new(self.shared);
        if is_natural {
            let item = lower.values.number(Op::Item);
            lower.values.set_natural(item);
        }
        let function = lower.function(body)?;
        self.shared.functions[number] = Some(function);
        let word = self.slot(need);
        let word = self.compute(word);
        let scalar = self.scalar(need)?;
        let function = self.values.number(Op::Function(number));
        Ok(self.call(Helper::Any, vec![word, scalar, function]))
    }

    fn arithmetic(&mut self, operator: Binary, of: Type, a: Value, b: Value) -> Value {
        if of == Type::Float {
            let helper = match operator {
                Binary::Add => Helper::FloatAdd,
                Binary::Subtract => Helper::FloatSubtract,
                Binary::Multiply => Helper::FloatMultiply,
                _ => Helper::FloatDivide,
            };
            return self.call(helper, vec![a, b]);
        }
        let is_signed = of == Type::Signed;
        let op = match operator {
            Binary::Add => Alu::Add,
            Binary::Subtract => Alu::Subtract,
            Binary::Multiply => Alu::Multiply,
            Binary::Divide if is_signed => Alu::DivideSigned,
            Binary::Divide => Alu::Divide,
            Binary::Remainder if is_signed => Alu::RemainderSigned,
            Binary::Remainder => Alu::Remainder,
            Binary::And => Alu::And,
            Binary::Or => Alu::Or,
            Binary::Xor => Alu::Xor,
            Binary::ShiftLeft => Alu::ShiftLeft,
            _ if is_signed => Alu::ShiftRightSigned,
            _ => Alu::ShiftRight,
        };
        self.alu(op, a, b)
    }
}

/// Returns true if the elements are never negative as signed numbers.
fn is_natural(elements: Elements) -> bool {
    elements.of == Type::Signed && elements.scalar.is_some_and(|scalar| !scalar.is_signed())
}

fn string_test_helper(test: StringTest) -> Helper {
    match test {
        StringTest::StartsWith => Helper::StringStartsWith,
        StringTest::EndsWith => Helper::StringEndsWith,
        StringTest::Contains => Helper::StringContains,
    }
}

/// Returns the relation for comparing integers that both have this type.
fn integer_relation(operator: Binary, of: Type) -> Relation {
    let is_signed = of != Type::Unsigned;
    match operator {
        Binary::Equal => Relation::Equal,
        Binary::NotEqual => Relation::NotEqual,
        Binary::Less if is_signed => Relation::SignedLess,
        Binary::Less => Relation::Less,
        Binary::LessEqual if is_signed => Relation::SignedLessEqual,
        Binary::LessEqual => Relation::LessEqual,
        Binary::Greater if is_signed => Relation::SignedGreater,
        Binary::Greater => Relation::Greater,
        _ if is_signed => Relation::SignedGreaterEqual,
        _ => Relation::GreaterEqual,
    }
}
