//! Evaluates a typed tree directly. Readers of traces use this evaluator; bytecode must give the
//! same answers.
//!
//! Values are read only when evaluation reaches them. A missing value (an element beyond the end)
//! makes the whole filter false, whatever surrounds it.

use std::cmp::Ordering;

use trackway_jit::ELEMENTS_MAX;

use crate::number;
use crate::types::{Expr, Filter, Fold, Node, Type};

/// Values of an event, by the indices of the filter's needs.
pub trait Values {
    /// Returns an integer, sign- or zero-extended to 64 bits, or a float's bits as an `f64`. Like
    /// the methods below, returns `None` if the value does not exist.
    fn number(&self, need: usize) -> Option<u64>;
    /// Returns a string.
    fn string(&self, need: usize) -> Option<&[u8]>;
    /// Returns the number of elements of a sequence or an array.
    fn length(&self, need: usize) -> Option<u64>;
    /// Returns an element, encoded like the result of [`Self::number`].
    fn element(&self, need: usize, index: u64) -> Option<u64>;
}

/// The runtime of a filter: time and random bits.
pub trait Runtime {
    /// Returns the time in nanoseconds; for a trace, the time of the event.
    fn time_ns(&mut self) -> u64;
    /// Returns 64 random bits.
    fn random(&mut self) -> u64;
}

/// The state that a filter keeps from one event to the next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    cells: Vec<Cell>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Cell {
    /// Previous value of `changed`, or current interval of `rate`.
    last: Option<u64>,
    /// Events counted so far, by `rate` in the current interval.
    count: u64,
}

impl State {
    /// Creates the state of a filter before its first event.
    pub fn new(filter: &Filter) -> Self {
        Self { cells: vec![Cell::default(); filter.cells] }
    }

    fn cell(&mut self, number: usize) -> &mut Cell {
        if self.cells.len() <= number {
            self.cells.resize(number + 1, Cell::default());
        }
        &mut self.cells[number]
    }

    /// Returns the number of earlier calls.
    pub fn count(&mut self, cell: usize) -> u64 {
        let cell = self.cell(cell);
        cell.count += 1;
        cell.count - 1
    }

    /// Returns true if the number differs from the previous call's, or there was no call.
    pub fn changed(&mut self, cell: usize, number: u64) -> bool {
        self.cell(cell).last.replace(number) != Some(number)
    }

    /// Returns true if fewer than `many` events have passed in the current interval. Intervals are
    /// aligned to the clock, not to an event.
    pub fn rate(&mut self, cell: usize, many: u64, interval_ns: u64, now_ns: u64) -> bool {
        let cell = self.cell(cell);
        let interval = now_ns.checked_div(interval_ns);
        if cell.last != interval {
            *cell = Cell { last: interval, count: 0 };
        }
        let is_free = cell.count < many;
        cell.count += u64::from(is_free);
        is_free
    }
}

/// Returns the hash of a string for `changed` (FNV-1a, 64 bits), equal to the helper `string_hash`.
pub fn string_hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Returns true if the filter accepts the event.
pub fn evaluate(
    filter: &Filter,
    values: &dyn Values,
    state: &mut State,
    runtime: &mut dyn Runtime,
) -> bool {
    let mut run = Run { values, state, runtime, item: 0, bound: Value::Number(0) };
    run.is_true(&filter.root).unwrap_or(false)
}

#[derive(Clone, Copy)]
enum Value<'a> {
    Number(u64),
    String(&'a [u8]),
}

struct Run<'a> {
    values: &'a dyn Values,
    state: &'a mut State,
    runtime: &'a mut dyn Runtime,
    /// Current element of the innermost `any`.
    item: u64,
    /// Value that the innermost `in` tests.
    bound: Value<'a>,
}

impl<'a> Run<'a> {
    fn is_true(&mut self, expr: &'a Expr) -> Option<bool> {
        Some(match &expr.node {
            Node::Not(of) => !self.is_true(of)?,
            Node::All(parts) => {
                for part in parts {
                    if !self.is_true(part)? {
                        return Some(false);
                    }
                }
                true
            }
            Node::Either(parts) => {
                for part in parts {
                    if self.is_true(part)? {
                        return Some(true);
                    }
                }
                false
            }
            Node::Compare(operator, a, b) => {
                let ordering = match a.of {
                    Type::Text => Some(self.string(a)?.cmp(self.string(b)?)),
                    _ => number::compare_numbers((self.number(a)?, a.of), (self.number(b)?, b.of)),
                };
                number::ordering_satisfies(*operator, ordering)
            }
            Node::Matches(of, text) => text.matches(self.string(of)?),
            Node::StringTest(test, string, part) => {
                let string = self.string(string)?;
                test.is_so(string, self.string(part)?)
            }
            Node::Ranges(of, ranges) => {
                let bits = self.number(of)?;
                let order = |a, b| number::compare_numbers((a, of.of), (b, of.of));
                ranges.iter().any(|&(first, last)| {
                    order(first, bits).is_some_and(|found| found.is_le())
                        && order(bits, last).is_some_and(|found| found.is_le())
                })
            }
            Node::Within(of, tests) => return self.within(of, tests),
            Node::Any(need, body) => return self.any(*need, body),
            Node::Sample(threshold) => self.runtime.random() < *threshold,
            Node::Rate { cell, many, interval_ns } => {
                let now_ns = self.runtime.time_ns();
                self.state.rate(*cell, *many, *interval_ns, now_ns)
            }
            Node::Changed(cell, of) => {
                let number = match of.of {
                    Type::Text => string_hash(self.string(of)?),
                    _ => self.number(of)?,
                };
                self.state.changed(*cell, number)
            }
            _ => number::is_true(self.number(expr)?, expr.of),
        })
    }

    fn within(&mut self, of: &'a Expr, tests: &'a [Expr]) -> Option<bool> {
        let value = match of.of {
            Type::Text => Value::String(self.string(of)?),
            _ => Value::Number(self.number(of)?),
        };
        let outer = std::mem::replace(&mut self.bound, value);
        let mut is_in = Some(false);
        for test in tests {
            is_in = self.is_true(test);
            if is_in != Some(false) {
                break;
            }
        }
        self.bound = outer;
        is_in
    }

    fn any(&mut self, need: usize, body: &'a Expr) -> Option<bool> {
        let count = self.values.length(need)?.min(ELEMENTS_MAX as u64);
        for index in 0..count {
            self.item = self.values.element(need, index)?;
            if self.is_true(body)? {
                return Some(true);
            }
        }
        Some(false)
    }

    /// Folds all elements of the given type into one number.
    fn fold(&self, fold: Fold, need: usize, of: Type) -> Option<u64> {
        let count = self.values.length(need)?.min(ELEMENTS_MAX as u64);
        let mut elements = (0..count).map(|index| self.values.element(need, index));
        let is_less =
            |a: u64, b: u64| number::compare_numbers((a, of), (b, of)).is_some_and(Ordering::is_lt);
        let first = elements.next();
        let join = |a: u64, b: Option<u64>| {
            let b = b?;
            Some(match fold {
                Fold::Sum => a.wrapping_add(b),
                Fold::Least => {
                    if is_less(b, a) {
                        b
                    } else {
                        a
                    }
                }
                Fold::Greatest => {
                    if is_less(a, b) {
                        b
                    } else {
                        a
                    }
                }
            })
        };
        match (first, fold) {
            (None, Fold::Sum) => Some(0),
            (None, Fold::Least | Fold::Greatest) => None,
            (Some(first), _) => elements.try_fold(first?, join),
        }
    }

    fn number(&mut self, expr: &'a Expr) -> Option<u64> {
        Some(match &expr.node {
            Node::Number(bits) => *bits,
            Node::Load(need) => self.values.number(*need)?,
            Node::Element(need, index) => {
                let index = self.number(index)?;
                if index >= self.values.length(*need)? {
                    return None;
                }
                self.values.element(*need, index)?
            }
            Node::Absent => return None,
            Node::Length(of) => match (&of.node, of.of) {
                (Node::Load(need), Type::Sequence) => self.values.length(*need)?,
                _ => self.string(of)?.len() as u64,
            },
            Node::Fold(fold, need) => self.fold(*fold, *need, expr.of)?,
            Node::Item => self.item,
            Node::Bound => match self.bound {
                Value::Number(bits) => bits,
                Value::String(_) => return None,
            },
            Node::Negate(of) if expr.of == Type::Float => self.number(of)? ^ 1 << 63,
            Node::Negate(of) => self.number(of)?.wrapping_neg(),
            Node::Complement(of) => !self.number(of)?,
            Node::ToFloat(of) => number::to_float(self.number(of)?, of.of),
            Node::Arithmetic(operator, a, b) => {
                let (a, b) = (self.number(a)?, self.number(b)?);
                match expr.of {
                    Type::Float => number::float_arithmetic(*operator, a, b),
                    of => number::integer_arithmetic(*operator, of == Type::Signed, a, b),
                }
            }
            Node::Count(cell) => self.state.count(*cell),
            _ => self.is_true(expr)?.into(),
        })
    }

    fn string(&mut self, expr: &'a Expr) -> Option<&'a [u8]> {
        match &expr.node {
            Node::Text(bytes) => Some(bytes),
            Node::Load(need) => self.values.string(*need),
            Node::Bound => match self.bound {
                Value::String(bytes) => Some(bytes),
                Value::Number(_) => None,
            },
            _ => None,
        }
    }
}
