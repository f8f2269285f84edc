//! Writes the instructions of a function after register allocation.

use trackway_jit::helper::Helper;
use trackway_jit::insn::{
    CALL, EXIT, FRAME, Insn, LDDW, LDDW_FUNCTION, STACK_END, alu, class, jump, mode, size, source,
};

use super::line::{JumpCondition, Line};
use super::register::{ANSWER_REGISTER, ITEM_REGISTER, Location, Plan, SCRATCH_REGISTERS};
use super::{Constants, is_immediate};
use crate::graph::{Alu, Op, Relation, Value, Values};

const MOV: u8 = class::ALU64 | alu::MOV;
const LOAD: u8 = class::LDX | size::DW | mode::MEM;
const STORE: u8 = class::STX | size::DW | mode::MEM;
/// Loads 32 bits. Frames and bytecode are little-endian: the upper half follows the lower half.
const LOAD_HALF: u8 = class::LDX | size::W | mode::MEM;
const SLOT_BYTES: usize = 8;
const HALF_BYTES: usize = SLOT_BYTES / 2;

/// Shared output of the functions of a program.
pub(super) struct Output<'a, 'graph> {
    pub(super) instructions: &'a mut Vec<Insn>,
    /// Instructions that still need the distance to a function, with the function's number.
    pub(super) addresses: &'a mut Vec<(usize, usize)>,
    pub(super) constants: &'a mut Constants<'graph>,
}

/// Appends a function's instructions.
pub(super) fn write_instructions(
    lines: &[Line],
    values: &Values,
    plan: &Plan,
    output: &mut Output<'_, '_>,
) {
    let labels = lines.iter().filter(|line| matches!(line, Line::Label(_))).count();
    let mut writer = Writer {
        values,
        plan,
        instructions: output.instructions,
        addresses: output.addresses,
        constants: output.constants,
        labels: vec![0; labels],
        jumps: Vec::new(),
        end_jumps: Vec::new(),
    };
    writer.enter(lines);
    for (number, line) in lines.iter().enumerate() {
        writer.line(line, &lines[number + 1..]);
    }
    writer.leave();
}

struct Writer<'a, 'graph> {
    values: &'a Values,
    plan: &'a Plan,
    instructions: &'a mut Vec<Insn>,
    addresses: &'a mut Vec<(usize, usize)>,
    constants: &'a mut Constants<'graph>,
    /// Starts of blocks.
    labels: Vec<usize>,
    /// Jumps, each with its target block.
    jumps: Vec<(usize, usize)>,
    /// Jumps to the function's end.
    end_jumps: Vec<usize>,
}

/// An argument of a call.
#[derive(Clone, Copy)]
enum Argument {
    Frame,
    Value(Value),
}

impl Writer<'_, '_> {
    fn push(&mut self, insn: Insn) {
        self.instructions.push(insn);
    }

    fn mov(&mut self, dst: u8, src: u8) {
        if dst != src {
            self.push(Insn { op: MOV | source::X, dst, src, ..Insn::default() });
        }
    }

    fn constant(&mut self, dst: u8, bits: u64) {
        if is_immediate(bits) {
            self.push(Insn { op: MOV, dst, immediate: bits as i32, ..Insn::default() });
        } else {
            self.wide(dst, 0, bits);
        }
    }

    fn wide(&mut self, dst: u8, src: u8, bits: u64) {
        self.push(Insn { op: LDDW, dst, src, immediate: bits as i32, ..Insn::default() });
        self.push(Insn { immediate: (bits >> 32) as i32, ..Insn::default() });
    }

    fn load(&mut self, dst: u8, src: u8, offset: i16) {
        self.push(Insn { op: LOAD, dst, src, offset, ..Insn::default() });
    }

    /// Loads from the frame.
    fn load_op(&mut self, dst: u8, load: &Op) {
        let (op, at) = match load {
            Op::Offset(slot) => (LOAD_HALF, slot * SLOT_BYTES),
            Op::Length(slot) => (LOAD_HALF, slot * SLOT_BYTES + HALF_BYTES),
            Op::Slot(slot) => (LOAD, slot * SLOT_BYTES),
            _ => return,
        };
        self.push(Insn { op, dst, src: self.plan.frame, offset: at as i16, ..Insn::default() });
    }

    /// Moves a function's arguments to their allocated locations.
    fn enter(&mut self, lines: &[Line]) {
        let has_no = lines.contains(&Line::Return(false));
        if self.plan.is_leaf && has_no {
            self.constant(ANSWER_REGISTER, 0);
        }
        if self.plan.frame != FRAME {
            self.mov(self.plan.frame, FRAME);
        }
        let item = lines.iter().find_map(|line| match line {
            Line::Compute(value) if *self.values.op(*value) == Op::Item => Some(*value),
            _ => None,
        });
        match item.and_then(|item| self.plan.location(item)) {
            Some(Location::Register(register)) => self.mov(register, ITEM_REGISTER),
            Some(Location::Stack(offset)) => self.store(offset, ITEM_REGISTER),
            Some(Location::Again) | None => {}
        }
    }

    /// Ends the function, and resolves its jumps.
    fn leave(&mut self) {
        let end = self.instructions.len();
        self.push(Insn { op: EXIT, ..Insn::default() });
        let ends = std::mem::take(&mut self.end_jumps).into_iter().map(|at| (at, end));
        let jumps = std::mem::take(&mut self.jumps);
        let jumps = jumps.into_iter().map(|(at, label)| (at, self.labels[label]));
        for (at, to) in ends.chain(jumps) {
            self.instructions[at].offset = (to - at - 1) as i16;
        }
    }

    fn store(&mut self, offset: i16, src: u8) {
        self.push(Insn { op: STORE, dst: STACK_END, src, offset, ..Insn::default() });
    }

    /// Returns a register that holds the value: its own, or `scratch`.
    fn read(&mut self, value: Value, scratch: u8) -> u8 {
        match self.plan.location(value) {
            Some(Location::Register(register)) => register,
            _ => {
                self.read_to(value, scratch);
                scratch
            }
        }
    }

    /// Copies a value to a register. A constant may not be in a register yet.
    fn read_to(&mut self, value: Value, dst: u8) {
        match (self.plan.location(value), self.values.op(value)) {
            (_, Op::Constant(bits)) => self.constant(dst, *bits),
            (Some(Location::Register(register)), _) => self.mov(dst, register),
            (Some(Location::Stack(offset)), _) => self.load(dst, STACK_END, offset),
            (_, op) if op.is_load() => self.load_op(dst, op),
            (_, Op::Text(text)) => {
                let word = self.constants.word(*text);
                self.wide(dst, 0, word.to_bits());
            }
            (_, Op::Function(function)) => {
                self.addresses.push((self.instructions.len(), *function));
                self.wide(dst, LDDW_FUNCTION, 0);
            }
            // All other values have had a location since they were computed.
            _ => {}
        }
    }

    fn line(&mut self, line: &Line, rest: &[Line]) {
        match line {
            Line::Label(label) => self.labels[*label] = self.instructions.len(),
            Line::Compute(value) => self.compute(*value),
            Line::Assign(value, bits) => self.assign(*value, *bits),
            Line::Jump(label) => {
                self.jumps.push((self.instructions.len(), *label));
                self.push(Insn { op: class::JMP | jump::JA, ..Insn::default() });
            }
            Line::JumpIf { ask, a, b, to } => self.jump_if(*ask, *a, *b, *to),
            Line::Return(answer) => self.answer(*answer, rest),
        }
    }

    /// Writes the answer to register 0. Without calls, register 0 holds "no" from the start.
    fn answer(&mut self, answer: bool, rest: &[Line]) {
        if answer || !self.plan.is_leaf {
            self.constant(ANSWER_REGISTER, answer.into());
        }
        let is_last = match rest {
            [] => true,
            [Line::Label(_), Line::Return(false)] => self.plan.is_leaf,
            _ => false,
        };
        if !is_last {
            self.end_jumps.push(self.instructions.len());
            self.push(Insn { op: class::JMP | jump::JA, ..Insn::default() });
        }
    }

    fn assign(&mut self, value: Value, bits: u64) {
        match self.plan.location(value) {
            Some(Location::Register(register)) => self.constant(register, bits),
            Some(Location::Stack(offset)) => {
                self.constant(SCRATCH_REGISTERS[0], bits);
                self.store(offset, SCRATCH_REGISTERS[0]);
            }
            Some(Location::Again) | None => {}
        }
    }

    fn compute(&mut self, value: Value) {
        let location = self.plan.location(value);
        if location == Some(Location::Again) {
            return;
        }
        let target = match location {
            Some(Location::Register(register)) => register,
            _ => SCRATCH_REGISTERS[0],
        };
        match self.values.op(value) {
            Op::Call(helper, arguments) | Op::Effect(helper, arguments, _) => {
                self.call(*helper, arguments);
                match location {
                    Some(Location::Register(register)) => self.mov(register, ANSWER_REGISTER),
                    Some(Location::Stack(offset)) => self.store(offset, ANSWER_REGISTER),
                    Some(Location::Again) | None => {}
                }
                return;
            }
            // Items and variables are already at their locations.
            Op::Item | Op::Variable(_) => return,
            op @ (Op::Slot(_) | Op::Offset(_) | Op::Length(_)) => self.load_op(target, op),
            Op::Constant(bits) => self.constant(target, *bits),
            Op::Text(_) | Op::Function(_) => self.read_to(value, target),
            Op::Negate(a) => {
                self.read_to(*a, target);
                let op = class::ALU64 | alu::NEG;
                self.push(Insn { op, dst: target, ..Insn::default() });
            }
            Op::Alu(operation, a, b) => self.alu(*operation, *a, *b, target),
        }
        if let Some(Location::Stack(offset)) = location {
            self.store(offset, target);
        }
    }

    fn alu(&mut self, operation: Alu, a: Value, b: Value, target: u8) {
        let is_b_there = self.plan.location(b) == Some(Location::Register(target));
        let is_a_there = self.plan.location(a) == Some(Location::Register(target));
        // If the operation is not commutative, the plan keeps the target apart from `b`.
        let (a, b) = if is_b_there && !is_a_there { (b, a) } else { (a, b) };
        let immediate = self.immediate(b);
        let src = match immediate {
            Some(_) => 0,
            None => self.read(b, SCRATCH_REGISTERS[1]),
        };
        self.read_to(a, target);
        let (code, is_signed) = alu_code(operation);
        let op = class::ALU64 | code | if immediate.is_some() { source::K } else { source::X };
        let immediate = immediate.unwrap_or(0);
        self.push(Insn { op, dst: target, src, offset: is_signed.into(), immediate });
    }

    /// Returns the value if it is a constant that fits an immediate.
    fn immediate(&self, value: Value) -> Option<i32> {
        let bits = self.values.constant(value)?;
        is_immediate(bits).then_some(bits as i32)
    }

    fn jump_if(&mut self, ask: JumpCondition, a: Value, b: Value, to: usize) {
        let dst = self.read(a, SCRATCH_REGISTERS[0]);
        let immediate = self.immediate(b);
        let src = match immediate {
            Some(_) => 0,
            None => self.read(b, SCRATCH_REGISTERS[1]),
        };
        let code = match ask {
            JumpCondition::Bits => jump::JSET,
            JumpCondition::Compare(relation) => jump_code(relation),
        };
        let op = class::JMP | code | if immediate.is_some() { source::K } else { source::X };
        self.jumps.push((self.instructions.len(), to));
        self.push(Insn { op, dst, src, immediate: immediate.unwrap_or(0), ..Insn::default() });
    }

    fn call(&mut self, helper: Helper, arguments: &[Value]) {
        let arguments: Vec<Argument> = std::iter::once(Argument::Frame)
            .chain(arguments.iter().map(|value| Argument::Value(*value)))
            .collect();
        let mut moves: Vec<(u8, u8)> = Vec::new();
        for (dst, argument) in (FRAME..).zip(&arguments) {
            let src = match argument {
                Argument::Frame => Some(self.plan.frame),
                Argument::Value(value) => self.register_of(*value),
            };
            moves.extend(src.filter(|src| *src != dst).map(|src| (dst, src)));
        }
        self.moves(moves);
        // Arguments without a register are loaded last. The loads read only the frame's register,
        // which is register 1 or a saved one, so they overwrite no source.
        for (dst, argument) in (FRAME..).zip(&arguments) {
            if let Argument::Value(value) = argument
                && self.register_of(*value).is_none()
            {
                self.read_to(*value, dst);
            }
        }
        let immediate = helper as i32;
        self.push(Insn { op: CALL, immediate, ..Insn::default() });
    }

    /// Returns the register of an argument, if it has one.
    fn register_of(&self, value: Value) -> Option<u8> {
        match self.plan.location(value) {
            Some(Location::Register(register)) => {
                self.values.constant(value).is_none().then_some(register)
            }
            _ => None,
        }
    }

    /// Performs all moves as if at once. Each register is the target of at most one move.
    fn moves(&mut self, mut moves: Vec<(u8, u8)>) {
        while !moves.is_empty() {
            let free = moves.iter().position(|(dst, _)| moves.iter().all(|(_, src)| src != dst));
            if let Some(at) = free {
                let (dst, src) = moves.swap_remove(at);
                self.mov(dst, src);
                continue;
            }
            // Only cycles are left. No cycle contains register 0: it is no target, and moves from
            // register 0 are done. So register 0 can break a cycle.
            let (_, src) = moves[0];
            self.mov(ANSWER_REGISTER, src);
            for (_, from) in moves.iter_mut().filter(|(_, from)| *from == src) {
                *from = ANSWER_REGISTER;
            }
        }
    }
}

/// Returns the code of an operation, and true if it is the signed variant.
fn alu_code(operation: Alu) -> (u8, bool) {
    match operation {
        Alu::Add => (alu::ADD, false),
        Alu::Subtract => (alu::SUB, false),
        Alu::Multiply => (alu::MUL, false),
        Alu::Divide => (alu::DIV, false),
        Alu::DivideSigned => (alu::DIV, true),
        Alu::Remainder => (alu::MOD, false),
        Alu::RemainderSigned => (alu::MOD, true),
        Alu::And => (alu::AND, false),
        Alu::Or => (alu::OR, false),
        Alu::Xor => (alu::XOR, false),
        Alu::ShiftLeft => (alu::LSH, false),
        Alu::ShiftRight => (alu::RSH, false),
        Alu::ShiftRightSigned => (alu::ARSH, false),
    }
}

fn jump_code(relation: Relation) -> u8 {
    match relation {
        Relation::Equal => jump::JEQ,
        Relation::NotEqual => jump::JNE,
        Relation::Less => jump::JLT,
        Relation::LessEqual => jump::JLE,
        Relation::Greater => jump::JGT,
        Relation::GreaterEqual => jump::JGE,
        Relation::SignedLess => jump::JSLT,
        Relation::SignedLessEqual => jump::JSLE,
        Relation::SignedGreater => jump::JSGT,
        Relation::SignedGreaterEqual => jump::JSGE,
    }
}
