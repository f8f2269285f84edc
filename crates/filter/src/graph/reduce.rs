//! Removes values and tests that are known on all paths to a block, and unused values.
//!
//! Edges only lead forward. So one pass in block order visits all predecessors before a block, and
//! one backward pass visits all successors first.

use std::collections::BTreeMap;

use trackway_jit::INSTRUCTIONS_MAX;

use super::{Block, End, Function, Op, Relation, Step, Test, Unsupported, Value};

/// Maximum number of passes for unused values; each pass shortens the function.
const ROUNDS_MAX: usize = 16;
/// Maximum number of test results remembered along a path.
const FACTS_MAX: usize = 64;

/// A set of values.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ValueSet(Vec<u64>);

impl ValueSet {
    fn new(count: usize) -> Self {
        Self(vec![0; count.div_ceil(64)])
    }

    fn insert(&mut self, value: Value) {
        self.0[value.index() / 64] |= 1 << (value.index() % 64);
    }

    fn remove(&mut self, value: Value) {
        self.0[value.index() / 64] &= !(1 << (value.index() % 64));
    }

    fn contains(&self, value: Value) -> bool {
        self.0[value.index() / 64] >> (value.index() % 64) & 1 != 0
    }

    fn intersect(&mut self, other: &Self) {
        for (mine, others) in self.0.iter_mut().zip(&other.0) {
            *mine &= others;
        }
    }

    fn unite(&mut self, other: &Self) {
        for (mine, others) in self.0.iter_mut().zip(&other.0) {
            *mine |= others;
        }
    }
}

/// Facts that hold at a point of the function.
#[derive(Debug, Clone)]
struct KnownFacts {
    /// Values that were computed.
    values: ValueSet,
    /// Results of tests, each in the form of [`without_negation`].
    facts: BTreeMap<Test, bool>,
}

/// Returns the test without its negation, and true if it was negated.
fn without_negation(test: Test) -> (Test, bool) {
    let is_negation = matches!(
        test.relation,
        Relation::NotEqual
            | Relation::Greater
            | Relation::GreaterEqual
            | Relation::SignedGreater
            | Relation::SignedGreaterEqual
    );
    if is_negation {
        (Test { relation: test.relation.negated(), ..test }, true)
    } else {
        (test, false)
    }
}

impl KnownFacts {
    fn meet(&mut self, other: &Self) {
        self.values.intersect(&other.values);
        self.facts.retain(|test, answer| other.facts.get(test) == Some(answer));
    }

    fn learn(&mut self, test: Test, answer: bool) {
        let (test, is_negation) = without_negation(test);
        if self.facts.len() < FACTS_MAX {
            self.facts.insert(test, answer != is_negation);
        }
    }

    /// Returns the test's result if it was tested before, or follows from a known equality.
    fn answer(&self, test: Test, function: &Function) -> Option<bool> {
        let (plain, is_negation) = without_negation(test);
        if let Some(answer) = self.facts.get(&plain) {
            return Some(answer != &is_negation);
        }
        let y = function.values.constant(test.b)?;
        let equal = |(fact, answer): (&Test, &bool)| {
            let is_it = *answer && fact.relation == Relation::Equal && fact.a == test.a;
            is_it.then(|| function.values.constant(fact.b)).flatten()
        };
        let x = self.facts.iter().find_map(equal)?;
        Some(test.relation.holds(x, y))
    }
}

/// Reduces a function.
pub(super) fn reduce_function(function: &mut Function) -> Result<(), Unsupported> {
    remove_known_steps(function);
    skip_empty_blocks(function);
    if function.blocks.len() > INSTRUCTIONS_MAX {
        return Err(too_long());
    }
    // A test whose two edges lead to the same block is removed, and then the values that only the
    // test used are removed.
    for _ in 0..ROUNDS_MAX {
        remove_unused_values(function);
        let before = function.blocks.len();
        skip_empty_blocks(function);
        if function.blocks.len() == before {
            break;
        }
    }
    Ok(())
}

/// Redirects edges past blocks that only jump.
fn skip_empty_blocks(function: &mut Function) {
    let jumps = final_targets(&function.blocks);
    for block in &mut function.blocks {
        redirect_end(&mut block.end, &jumps);
    }
    compact_blocks(function);
}

pub(crate) fn too_long() -> Unsupported {
    Unsupported(format!("the filter has more than {INSTRUCTIONS_MAX} instructions"))
}

/// Removes known values and tests. Unreachable blocks lose their steps.
fn remove_known_steps(function: &mut Function) {
    let nothing =
        KnownFacts { values: ValueSet::new(function.values.count()), facts: BTreeMap::new() };
    let mut at: BTreeMap<usize, KnownFacts> = BTreeMap::from([(0, nothing)]);
    for number in 0..function.blocks.len() {
        let Some(mut known) = at.remove(&number) else {
            // The block is unreachable, so its end does not matter.
            function.blocks[number] = Block { steps: Vec::new(), end: End::Return(false) };
            continue;
        };
        function.blocks[number].steps.retain(|step| match step {
            Step::Compute(value) if known.values.contains(*value) => false,
            Step::Compute(value) => {
                known.values.insert(*value);
                true
            }
            Step::Assign(..) => true,
        });
        let mut end = function.blocks[number].end;
        if let End::Branch(test, then, otherwise) = end
            && let Some(answer) = known.answer(test, function)
        {
            end = End::Jump(if answer { then } else { otherwise });
        }
        function.blocks[number].end = end;
        match end {
            End::Return(_) => {}
            End::Jump(to) => merge_known_facts(&mut at, to, known),
            End::Branch(test, then, otherwise) => {
                let mut other = known.clone();
                known.learn(test, true);
                other.learn(test, false);
                merge_known_facts(&mut at, then, known);
                merge_known_facts(&mut at, otherwise, other);
            }
        }
    }
}

fn merge_known_facts(at: &mut BTreeMap<usize, KnownFacts>, to: usize, known: KnownFacts) {
    match at.get_mut(&to) {
        Some(before) => before.meet(&known),
        None => {
            at.insert(to, known);
        }
    }
}

/// Returns the final target of a jump to each block, past blocks that only jump.
fn final_targets(blocks: &[Block]) -> Vec<usize> {
    let mut jumps: Vec<usize> = (0..blocks.len()).collect();
    for number in (0..blocks.len()).rev() {
        if let (End::Jump(to), []) = (blocks[number].end, blocks[number].steps.as_slice()) {
            jumps[number] = jumps[to];
        }
    }
    jumps
}

fn redirect_end(end: &mut End, jumps: &[usize]) {
    *end = match *end {
        End::Jump(to) => End::Jump(jumps[to]),
        End::Branch(_, then, otherwise) if jumps[then] == jumps[otherwise] => {
            End::Jump(jumps[then])
        }
        End::Branch(test, then, otherwise) => End::Branch(test, jumps[then], jumps[otherwise]),
        end @ End::Return(_) => end,
    };
}

/// Removes unreachable blocks, and merges each block with its only predecessor.
fn compact_blocks(function: &mut Function) {
    let mut comes_from = vec![0_usize; function.blocks.len()];
    comes_from[0] = 1;
    for number in 0..function.blocks.len() {
        if comes_from[number] > 0 {
            for to in function.blocks[number].end.targets() {
                comes_from[to] += 1;
            }
        }
    }
    let mut number_of = vec![0; function.blocks.len()];
    let mut kept: Vec<Block> = Vec::new();
    for (number, block) in std::mem::take(&mut function.blocks).into_iter().enumerate() {
        match kept.last_mut() {
            _ if comes_from[number] == 0 => continue,
            // The preceding block is the only predecessor, and ends in a plain jump.
            Some(before) if comes_from[number] == 1 && before.end == End::Jump(number) => {
                before.steps.extend(block.steps);
                before.end = block.end;
            }
            _ => kept.push(block),
        }
        number_of[number] = kept.len() - 1;
    }
    for block in &mut kept {
        block.end = match block.end {
            End::Jump(to) => End::Jump(number_of[to]),
            End::Branch(test, then, otherwise) => {
                End::Branch(test, number_of[then], number_of[otherwise])
            }
            end @ End::Return(_) => end,
        };
    }
    function.blocks = kept;
}

/// Removes unused values, except for effects.
fn remove_unused_values(function: &mut Function) {
    let values = &function.values;
    let mut used_at: Vec<ValueSet> = vec![ValueSet::new(0); function.blocks.len()];
    for number in (0..function.blocks.len()).rev() {
        let mut used = ValueSet::new(values.count());
        for to in function.blocks[number].end.targets() {
            used.unite(&used_at[to]);
        }
        if let End::Branch(test, ..) = function.blocks[number].end {
            used.insert(test.a);
            used.insert(test.b);
        }
        let mut kept = Vec::new();
        for step in function.blocks[number].steps.drain(..).rev() {
            let (Step::Compute(value) | Step::Assign(value, _)) = step;
            let is_effect = matches!(values.op(value), Op::Effect(..));
            if !is_effect && !used.contains(value) {
                continue;
            }
            used.remove(value);
            if let Step::Compute(_) = step {
                for operand in values.op(value).operands() {
                    used.insert(operand);
                }
            }
            kept.push(step);
        }
        kept.reverse();
        function.blocks[number].steps = kept;
        used_at[number] = used;
    }
}
