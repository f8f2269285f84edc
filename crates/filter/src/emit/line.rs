//! Linearizes the blocks of a function: drops needless jumps and picks each test's direction.

use std::collections::HashMap;

use crate::graph::{Alu, End, Function, Op, Relation, Step, Test, Value};

/// The condition of a jump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JumpCondition {
    /// A comparison.
    Compare(Relation),
    /// True if both values have a set bit in common.
    Bits,
}

/// A position-independent line of code, which becomes instructions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Line {
    /// The beginning of a block.
    Label(usize),
    /// Computes a value.
    Compute(Value),
    /// Assigns a constant to a variable.
    Assign(Value, u64),
    /// Jumps to a block if the condition holds.
    JumpIf { ask: JumpCondition, a: Value, b: Value, to: usize },
    /// Jumps to a block.
    Jump(usize),
    /// Returns the answer, at the end of the function.
    Return(bool),
}

/// Builds the lines of a function.
pub(super) fn build_lines(function: &Function) -> Vec<Line> {
    let uses = count_uses(function);
    let mut lines = Vec::new();
    for (number, block) in function.blocks.iter().enumerate() {
        lines.push(Line::Label(number));
        let from = lines.len();
        lines.extend(block.steps.iter().map(|step| match step {
            Step::Compute(value) => Line::Compute(*value),
            Step::Assign(value, bits) => Line::Assign(*value, *bits),
        }));
        match block.end {
            End::Jump(to) if to == number + 1 => {}
            End::Jump(to) => lines.push(Line::Jump(to)),
            End::Return(answer) => lines.push(Line::Return(answer)),
            End::Branch(test, then, otherwise) => {
                let (test, to, or) = if then == number + 1 {
                    (Test { relation: test.relation.negated(), ..test }, otherwise, then)
                } else {
                    (test, then, otherwise)
                };
                let jump = build_jump(function, &uses, &mut lines, from, test, to);
                lines.push(jump);
                if or != number + 1 {
                    lines.push(Line::Jump(or));
                }
            }
        }
    }
    lines
}

/// Builds the jump for a test. A jump if bits are set needs no computed `&`, provided that nothing
/// else uses the `&`; a jump if no bit is set does.
fn build_jump(
    function: &Function,
    uses: &HashMap<Value, usize>,
    lines: &mut Vec<Line>,
    from: usize,
    test: Test,
    to: usize,
) -> Line {
    let values = &function.values;
    if test.relation == Relation::NotEqual
        && values.constant(test.b) == Some(0)
        && let Op::Alu(Alu::And, a, b) = *values.op(test.a)
        && uses.get(&test.a) == Some(&1)
        && let Some(at) = lines[from..].iter().position(|line| *line == Line::Compute(test.a))
    {
        lines.remove(from + at);
        return Line::JumpIf { ask: JumpCondition::Bits, a, b, to };
    }
    Line::JumpIf { ask: JumpCondition::Compare(test.relation), a: test.a, b: test.b, to }
}

/// Counts the uses of each value.
fn count_uses(function: &Function) -> HashMap<Value, usize> {
    let mut uses = HashMap::new();
    let mut used = |value: Value| *uses.entry(value).or_insert(0) += 1;
    for block in &function.blocks {
        for step in &block.steps {
            if let Step::Compute(value) = step {
                function.values.op(*value).operands().into_iter().for_each(&mut used);
            }
        }
        if let End::Branch(test, ..) = block.end {
            used(test.a);
            used(test.b);
        }
    }
    uses
}
