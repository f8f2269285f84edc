//! Allocates registers by a linear scan over the lines (Poletto, Sarkar: *Linear Scan Register
//! Allocation*, 1999). Jumps only go forward, so a value lives from the first line that computes it
//! to the last line that uses it, on every path.

use std::collections::BTreeMap;

use trackway_jit::insn::FRAME;

use super::line::Line;
use crate::graph::{Op, Value, Values};

/// Callee-saved registers: calls preserve them.
const SAVED_REGISTERS: [u8; 4] = [6, 7, 8, 9];
/// Register of the frame if the frame is needed after a call.
const SAVED_FRAME: u8 = SAVED_REGISTERS[0];
/// Caller-saved registers for values, without the registers of the frame (which some calls
/// preserve) and of the answer.
const DESTROYED_REGISTERS: [u8; 4] = [2, 3, 4, 5];
/// Scratch registers for values without a register; not allocated once such a value exists.
pub(super) const SCRATCH_REGISTERS: [u8; 2] = [5, 4];
/// Register of a call's result.
pub(super) const ANSWER_REGISTER: u8 = 0;
/// Register of a function's second argument, after the frame.
pub(super) const ITEM_REGISTER: u8 = 2;

/// Location of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Location {
    /// In a register.
    Register(u8),
    /// On the stack, at this (negative) offset from the stack's end.
    Stack(i16),
    /// Nowhere: one instruction computes the value again at each use.
    Again,
}

/// Locations of all values in a function.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    locations: BTreeMap<Value, Location>,
    /// The register of the frame.
    pub(super) frame: u8,
    /// True if the function makes no calls: then register 0 stays unchanged until the end.
    pub(super) is_leaf: bool,
    pub(super) stack_bytes: usize,
}

impl Plan {
    pub(super) fn location(&self, value: Value) -> Option<Location> {
        self.locations.get(&value).copied()
    }
}

/// The lines during which a value is live. Line `n` reads at `2n` and writes at `2n + 1`.
#[derive(Debug, Clone, Copy)]
struct LiveInterval {
    value: Value,
    from: usize,
    to: usize,
    /// Register that would save a move instruction.
    wish: Option<u8>,
    /// Value whose register would save a move instruction.
    like: Option<Value>,
}

/// Assigns a location to every value.
pub(super) fn allocate_registers(lines: &[Line], values: &Values) -> Plan {
    let calls: Vec<usize> = (0..lines.len())
        .filter(|&n| matches!(&lines[n], Line::Compute(value) if values.op(*value).is_call()))
        .map(|n| 2 * n)
        .collect();
    let destroying: Vec<usize> =
        calls.iter().copied().filter(|&call| !keeps_frame(&lines[call / 2], values)).collect();
    let lives = live_intervals(lines, values);
    let scan = |is_tight| {
        let end = last_frame_use(lines, values, is_tight);
        let mut scan = Scan {
            values,
            calls: &calls,
            is_frame_saved: end.is_some_and(|end| crosses_call(&destroying, 0, end)),
            keeps_scratch: is_tight,
            locations: BTreeMap::new(),
            active: Vec::new(),
            stack_bytes: 0,
            is_spilled: false,
        };
        lives.iter().for_each(|life| scan.place(life));
        scan
    };
    let mut done = scan(false);
    if done.is_spilled {
        done = scan(true);
    }
    Plan {
        locations: done.locations,
        frame: if done.is_frame_saved { SAVED_FRAME } else { FRAME },
        is_leaf: calls.is_empty(),
        stack_bytes: done.stack_bytes,
    }
}

/// Returns true if the call preserves the frame's register.
fn keeps_frame(line: &Line, values: &Values) -> bool {
    let Line::Compute(value) = line else { return true };
    match values.op(*value) {
        Op::Call(helper, _) | Op::Effect(helper, _, _) => helper.keeps_frame(),
        _ => true,
    }
}

fn crosses_call(calls: &[usize], from: usize, to: usize) -> bool {
    calls.iter().any(|&call| from < call && call < to)
}

/// Returns the last use of the frame: by a load, by a call, or by a repeated load if registers are
/// scarce.
fn last_frame_use(lines: &[Line], values: &Values, is_tight: bool) -> Option<usize> {
    let is_load = |value: &Value| values.op(*value).is_load();
    let uses_frame = |line: &Line| match line {
        Line::Compute(value) if is_load(value) || values.op(*value).is_call() => true,
        line => is_tight && values_read(line, values).0.iter().any(is_load),
    };
    lines.iter().rposition(uses_frame).map(|n| 2 * n)
}

/// Returns the values whose registers a line reads. The flag is true if the result must not share
/// the register of the last one. Constants as left operands and arguments are not included: they
/// are materialized at their use, whether or not a register holds them.
fn values_read(line: &Line, values: &Values) -> (Vec<Value>, bool) {
    let is_read = |value: &Value| values.constant(*value).is_none();
    match line {
        Line::Compute(value) => match values.op(*value) {
            Op::Alu(alu, a, b) => {
                let uses = Some(*a).filter(is_read).into_iter().chain([*b]).collect();
                (uses, !alu.is_commutative())
            }
            op => (op.operands().into_iter().filter(is_read).collect(), false),
        },
        Line::JumpIf { a, b, .. } => (vec![*a, *b], false),
        _ => (Vec::new(), false),
    }
}

fn live_intervals(lines: &[Line], values: &Values) -> Vec<LiveInterval> {
    let mut lives: BTreeMap<Value, LiveInterval> = BTreeMap::new();
    for (n, line) in lines.iter().enumerate() {
        let (uses, keeps_last) = values_read(line, values);
        for value in &uses {
            // Constants without a live interval are immediates.
            if let Some(life) = lives.get_mut(value) {
                let is_kept = keeps_last && Some(value) == uses.last();
                life.to = life.to.max(2 * n + usize::from(is_kept));
            }
        }
        let (Line::Compute(value) | Line::Assign(value, _)) = line else { continue };
        let op = values.op(*value);
        let from = if *op == Op::Item { 0 } else { 2 * n + 1 };
        let wish = match op {
            Op::Item => Some(ITEM_REGISTER),
            op if op.is_call() => Some(ANSWER_REGISTER),
            _ => None,
        };
        let like = match op {
            Op::Alu(_, a, _) | Op::Negate(a) => Some(*a),
            _ => None,
        };
        let life = lives.entry(*value).or_insert(LiveInterval {
            value: *value,
            from,
            to: from,
            wish,
            like,
        });
        life.to = life.to.max(2 * n + 1);
    }
    let mut lives: Vec<LiveInterval> = lives.into_values().collect();
    // An item starts at 0: its register is occupied before any line.
    lives.sort_by_key(|life| life.from);
    lives
}

struct Scan<'lines> {
    values: &'lines Values,
    calls: &'lines [usize],
    is_frame_saved: bool,
    keeps_scratch: bool,
    locations: BTreeMap<Value, Location>,
    /// Live intervals that occupy a register and have not ended.
    active: Vec<(LiveInterval, u8)>,
    stack_bytes: usize,
    is_spilled: bool,
}

impl Scan<'_> {
    /// Returns the registers allowed for a live interval, best first.
    fn registers(&self, life: &LiveInterval) -> Vec<u8> {
        let saved =
            SAVED_REGISTERS.into_iter().filter(|&r| !(self.is_frame_saved && r == SAVED_FRAME));
        if crosses_call(self.calls, life.from, life.to) {
            return saved.collect();
        }
        let like = life.like.and_then(|like| match self.locations.get(&like) {
            Some(Location::Register(register)) => Some(*register),
            _ => None,
        });
        let mut registers: Vec<u8> = life.wish.into_iter().chain(like).collect();
        let is_scratch = |register: &u8| self.keeps_scratch && SCRATCH_REGISTERS.contains(register);
        registers.extend(DESTROYED_REGISTERS.into_iter().filter(|register| !is_scratch(register)));
        // Without calls, register 0 holds the answer "no" from the start.
        if !self.calls.is_empty() {
            registers.push(ANSWER_REGISTER);
        }
        registers.extend(saved);
        registers.retain(|register| !is_scratch(register));
        registers
    }

    fn place(&mut self, life: &LiveInterval) {
        self.active.retain(|(active, _)| active.to >= life.from);
        let registers = self.registers(life);
        let is_free = |register: &&u8| self.active.iter().all(|(_, taken)| taken != *register);
        if let Some(&register) = registers.iter().find(is_free) {
            self.take(*life, register);
            return;
        }
        // Spills values that are cheap to recompute first, then the longest-lived ones.
        let cost = |life: &LiveInterval| (self.is_cheap(life.value), life.to);
        let victim = (0..self.active.len())
            .filter(|&at| registers.contains(&self.active[at].1))
            .max_by_key(|&at| cost(&self.active[at].0));
        match victim {
            Some(at) if cost(&self.active[at].0) > cost(life) => {
                let (victim, register) = self.active.remove(at);
                self.spill(victim.value);
                self.take(*life, register);
            }
            _ => self.spill(life.value),
        }
    }

    fn take(&mut self, life: LiveInterval, register: u8) {
        self.locations.insert(life.value, Location::Register(register));
        self.active.push((life, register));
    }

    fn is_cheap(&self, value: Value) -> bool {
        let op = self.values.op(value);
        op.is_load() || matches!(op, Op::Constant(_))
    }

    fn spill(&mut self, value: Value) {
        self.is_spilled = true;
        let location = if self.is_cheap(value) {
            Location::Again
        } else {
            self.stack_bytes += 8;
            Location::Stack(-(self.stack_bytes as i16))
        };
        self.locations.insert(value, location);
    }
}
