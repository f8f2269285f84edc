//! Generates random programs that follow the verifier's rules, from a seed.
//!
//! The same facts hold between any two *items* of a function: register 6 is the frame, all other
//! registers except 10 are numbers, and the stack holds numbers down to −64 and the frame at −72.
//! So a jump from an item to any later item is a verifiable path. At its end, a function adds up
//! all its registers and stack slots, so that every difference affects the result.

use trackway_jit::helper::{Helper, Word};
use trackway_jit::insn::{Insn, alu, class, mode, size, source};
use trackway_testkit::Random;

use super::Input;
use super::asm::{
    EXIT_INSN, alu_immediate, alu_register, call_function, call_helper, load_function_address,
    load_immediate_64, load_memory, mov_immediate, mov_register, store_immediate, store_register,
};

/// A source of random numbers for generated programs.
pub(crate) struct Dice(Random);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Random::new(seed))
    }

    pub(crate) fn roll(&mut self) -> u64 {
        self.0.next()
    }

    pub(crate) fn next_below(&mut self, bound: u64) -> u64 {
        self.0.next_below(bound)
    }

    pub(crate) fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        *self.0.pick(choices)
    }

    /// Returns a random 64-bit number, often a boundary value.
    pub(crate) fn number(&mut self) -> u64 {
        let number = self.roll();
        match self.next_below(6) {
            0 => number & 0xff,
            1 => number >> self.next_below(64),
            2 => (number as i64 >> self.next_below(64)) as u64,
            3 => 1 << (number % 64),
            4 => (1 << (number % 64)) - 1,
            _ => number,
        }
    }
}

/// Number of frame slots for generated programs.
pub(crate) const SLOTS: u64 = 64;
const CELLS: u64 = 4;
const NUMBER_REGISTERS: [u8; 9] = [0, 1, 2, 3, 4, 5, 7, 8, 9];
const SIZES: [(u8, u64); 4] = [(size::B, 1), (size::H, 2), (size::W, 4), (size::DW, 8)];
const FRAME_REGISTER: u8 = 6;
const SPILL_OFFSET: i16 = -72;

/// Returns random bytes for words: text with matches and repetitions, and numbers.
pub(crate) fn random_input(dice: &mut Dice) -> Input {
    let text = |dice: &mut Dice| (0..64).map(|_| dice.of(b"aab*\\\0")).collect();
    let slots =
        (0..SLOTS).map(|_| if dice.next_below(3) == 0 { random_word(dice) } else { dice.number() });
    let slots = slots.collect();
    Input { slots, bytes: text(dice), constants: text(dice), cells: vec![0; CELLS as usize] }
}

/// Returns a random word, mostly a valid one.
fn random_word(dice: &mut Dice) -> u64 {
    let (offset, length) = (dice.next_below(66) as u32, dice.next_below(20) as u32);
    Word { offset, length, is_constant: dice.next_below(2) == 0 }.to_bits()
}

/// The instructions that generated programs may contain.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// All instructions.
    All,
    /// One function without calls, using only instructions from before RFC 9669 whose meaning all
    /// implementations agree on.
    Old,
}

/// Generates a program of one to five functions.
pub(crate) fn random_program(dice: &mut Dice) -> Vec<Insn> {
    random_program_in(Dialect::All, dice)
}

/// Generates a program of a dialect.
pub(crate) fn random_program_in(dialect: Dialect, dice: &mut Dice) -> Vec<Insn> {
    let count = if dialect == Dialect::Old { 1 } else { 1 + dice.next_below(5) as usize };
    let items = 1 + dice.next_below(30);
    let mut insns = Vec::new();
    // Call instructions by index, resolved once all functions have their places.
    let mut calls = Vec::new();
    let mut starts = Vec::new();
    // True for functions that `any` may run, which must not contain `any`.
    let mut in_any = vec![false; count];
    for index in 0..count {
        // Functions only call the next function. If no function calls this one, it is not
        // generated.
        if index != 0 && !calls.iter().any(|&(_, callee)| callee == index) {
            break;
        }
        starts.push(insns.len());
        let body =
            FunctionBuilder { dialect, dice, index, count, in_any: &mut in_any, calls: Vec::new() };
        let (body, made) = body.make(items);
        calls.extend(made.into_iter().map(|(at, callee)| (at + insns.len(), callee)));
        insns.extend(body);
    }
    for (at, callee) in calls {
        insns[at].immediate = (starts[callee] - at - 1) as i32;
    }
    insns
}

/// A function under construction.
struct FunctionBuilder<'a> {
    dialect: Dialect,
    dice: &'a mut Dice,
    index: usize,
    count: usize,
    in_any: &'a mut Vec<bool>,
    calls: Vec<(usize, usize)>,
}

impl FunctionBuilder<'_> {
    fn make(mut self, items: u64) -> (Vec<Insn>, Vec<(usize, usize)>) {
        let mut insns = self.beginning();
        let mut starts = Vec::new();
        // Jumps by index, each with its target item.
        let mut jumps = Vec::new();
        for item in 0..items {
            starts.push(insns.len());
            if self.dice.next_below(4) == 0 {
                jumps.push((insns.len(), item + 1 + self.dice.next_below(items - item)));
                insns.push(self.jump());
            } else {
                let at = insns.len();
                let item = self.item(at);
                insns.extend(item);
            }
        }
        starts.push(insns.len());
        for (at, item) in jumps {
            insns[at].offset = (starts[item as usize] - at - 1) as i16;
        }
        insns.extend(Self::ending());
        (insns, self.calls)
    }

    /// Establishes the facts that hold between items. A function's arguments are the frame and, in
    /// register 2, a number.
    fn beginning(&mut self) -> Vec<Insn> {
        let mut insns =
            vec![mov_register(FRAME_REGISTER, 1), store_register(size::DW, 10, SPILL_OFFSET, 1)];
        insns.push(if self.index == 0 { self.frame_load(2) } else { mov_register(2, 2) });
        for register in [0, 1, 3, 4, 5, 7, 8, 9] {
            let number = self.dice.number();
            let wide = load_immediate_64(register, number);
            match self.dice.next_below(3) {
                0 => insns.push(self.frame_load(register)),
                1 => insns.push(mov_immediate(register, number as i32)),
                _ => insns.extend(wide),
            }
        }
        for slot in 1..=8 {
            let register = self.dice.of(&NUMBER_REGISTERS);
            insns.push(store_register(size::DW, 10, -8 * slot, register));
        }
        insns
    }

    fn ending() -> Vec<Insn> {
        let mut insns = Vec::new();
        for slot in 1..=8 {
            insns.push(alu_immediate(alu::MUL, 0, 31));
            insns.push(load_memory(size::DW, 1, 10, -8 * slot));
            insns.push(alu_register(alu::ADD, 0, 1));
        }
        for register in [2, 3, 4, 5, 7, 8, 9] {
            insns.push(alu_immediate(alu::MUL, 0, 31));
            insns.push(alu_register(alu::ADD, 0, register));
        }
        insns.push(EXIT_INSN);
        insns
    }

    fn frame_load(&mut self, dst: u8) -> Insn {
        let (size, bytes) = self.dice.of(&SIZES);
        let offset = self.dice.next_below(SLOTS * 8 / bytes) * bytes;
        let signed = size != size::DW && self.is_new() && self.dice.next_below(3) == 0;
        let insn = load_memory(size, dst, FRAME_REGISTER, offset as i16);
        Insn { op: if signed { class::LDX | mode::MEMSX | size } else { insn.op }, ..insn }
    }

    fn is_new(&self) -> bool {
        self.dialect == Dialect::All
    }

    /// Generates a jump whose distance is filled in later.
    fn jump(&mut self) -> Insn {
        let conditions = (1..=13).filter(|number| ![8, 9].contains(number)).collect::<Vec<u8>>();
        let class = self.dice.of(&[class::JMP, class::JMP32]);
        let source = self.dice.of(&[source::K, source::X]);
        let op = class | source | self.dice.of(&conditions) << 4;
        let (dst, src) = (self.dice.of(&NUMBER_REGISTERS), self.dice.of(&NUMBER_REGISTERS));
        // Some implementations zero-extend the immediate of 64-bit comparisons; the standard and
        // the kernel sign-extend it.
        let mask = if self.is_new() { -1 } else { i32::MAX };
        let immediate = self.dice.number() as i32 & mask;
        match source {
            source::K => Insn { op, dst, src: 0, offset: 0, immediate },
            _ => Insn { op, dst, src, offset: 0, immediate: 0 },
        }
    }

    fn item(&mut self, at: usize) -> Vec<Insn> {
        match self.dice.next_below(12) {
            0 => vec![self.frame_load_number()],
            1 => self.stack(),
            2 => self.by_copies(),
            3 if self.is_new() => self.helper(),
            4 if self.index + 1 < self.count => self.call(at),
            5 if self.index + 1 < self.count && !self.in_any[self.index] => self.any(at),
            _ => vec![self.arithmetic()],
        }
    }

    fn frame_load_number(&mut self) -> Insn {
        let dst = self.dice.of(&NUMBER_REGISTERS);
        self.frame_load(dst)
    }

    fn arithmetic(&mut self) -> Insn {
        let class = self.dice.of(&[class::ALU, class::ALU64]);
        let operation = self.dice.next_below(14) as u8 * 16;
        let (dst, src) = (self.dice.of(&NUMBER_REGISTERS), self.dice.of(&NUMBER_REGISTERS));
        let immediate = self.dice.number() as i32;
        let by_register = self.dice.next_below(2) == 0;
        let source = if by_register { source::X } else { source::K };
        let class = match operation {
            // Older implementations lack `bswap`, and keep the upper half on 32-bit division by 0.
            alu::END if !self.is_new() => class::ALU,
            alu::MOD if !self.is_new() => class::ALU64,
            _ => class,
        };
        let signs: &[i16] = if self.is_new() { &[0, 1] } else { &[0] };
        let extends: &[i16] = match class {
            _ if !self.is_new() => &[0],
            class::ALU => &[0, 8, 16],
            _ => &[0, 8, 16, 32],
        };
        let (source, src, offset, immediate) = match operation {
            alu::NEG => (source::K, 0, 0, 0),
            alu::END => {
                let source = if class == class::ALU { source } else { source::K };
                (source, 0, 0, self.dice.of(&[16, 32, 64]))
            }
            alu::MOV if by_register => (source, src, self.dice.of(extends), 0),
            alu::DIV | alu::MOD if by_register => (source, src, self.dice.of(signs), 0),
            alu::DIV | alu::MOD => (source, 0, self.dice.of(signs), immediate),
            _ if by_register => (source, src, 0, 0),
            _ => (source, 0, 0, immediate),
        };
        Insn { op: class | source | operation, dst, src, offset, immediate }
    }

    /// Generates a store to the stack, or a load from the stack.
    fn stack(&mut self) -> Vec<Insn> {
        let (size, bytes) = self.dice.of(&SIZES);
        let offset = -64 + (self.dice.next_below(64 / bytes) * bytes) as i16;
        let register = self.dice.of(&NUMBER_REGISTERS);
        vec![match self.dice.next_below(3) {
            0 => store_register(size, 10, offset, register),
            1 => store_immediate(size, 10, offset, self.dice.number() as i32),
            _ => load_memory(size, register, 10, offset),
        }]
    }

    /// Generates a load through a pointer copy that was moved or spilled to the stack.
    fn by_copies(&mut self) -> Vec<Insn> {
        let copied = self.dice.of(&[1, 3, 7, 9]);
        let moved = self.dice.next_below(4096) as i32 - 2048;
        let (base, offset) = match self.dice.next_below(3) {
            0 => (mov_register(copied, 10), -(8 * (1 + self.dice.next_below(8)) as i32)),
            1 => (mov_register(copied, FRAME_REGISTER), 8 * self.dice.next_below(SLOTS) as i32),
            _ => (
                load_memory(size::DW, copied, 10, SPILL_OFFSET),
                8 * self.dice.next_below(SLOTS) as i32,
            ),
        };
        let moves = self
            .dice
            .of(&[alu_immediate(alu::ADD, copied, moved), alu_immediate(alu::SUB, copied, -moved)]);
        let dst = self.dice.of(&NUMBER_REGISTERS);
        let mut insns =
            vec![base, moves, load_memory(size::DW, dst, copied, (offset - moved) as i16)];
        if dst != copied {
            insns.push(mov_immediate(copied, moved));
        }
        insns
    }

    /// Assigns new numbers to the registers that a call loses.
    fn after_call(&mut self) -> Vec<Insn> {
        let mut insns = Vec::new();
        for register in 1..=5 {
            let other = self.dice.of(&[0, 7, 8, 9]);
            let offset = -8 * (1 + self.dice.next_below(8) as i16);
            insns.push(match self.dice.next_below(3) {
                0 => mov_register(register, other),
                1 => load_memory(size::DW, register, 10, offset),
                _ => mov_immediate(register, self.dice.number() as i32),
            });
        }
        insns
    }

    fn helper(&mut self) -> Vec<Insn> {
        let helper = self.dice.of(Helper::ALL);
        if matches!(helper, Helper::Any | Helper::TailCall) {
            return Vec::new();
        }
        let mut insns = vec![mov_register(1, FRAME_REGISTER)];
        for register in 2..=helper.arguments() as u8 {
            insns.extend(match (helper, register) {
                (Helper::Count | Helper::Changed | Helper::Rate, 2) => {
                    vec![mov_immediate(2, self.dice.next_below(CELLS + 1) as i32)]
                }
                (Helper::Element, 3) => vec![mov_immediate(3, self.dice.next_below(17) as i32)],
                (Helper::Sum | Helper::Least | Helper::Greatest, 3) => {
                    vec![mov_immediate(3, self.dice.next_below(17) as i32)]
                }
                (Helper::Element, 4) => vec![mov_immediate(4, self.dice.next_below(8) as i32)],
                _ => self.word_or_number(register),
            });
        }
        insns.push(call_helper(helper));
        insns.extend(self.after_call());
        insns
    }

    fn word_or_number(&mut self, register: u8) -> Vec<Insn> {
        let offset = 8 * self.dice.next_below(SLOTS) as i16;
        match self.dice.next_below(3) {
            0 => load_immediate_64(register, random_word(self.dice)).to_vec(),
            1 => vec![load_memory(size::DW, register, FRAME_REGISTER, offset)],
            _ => load_immediate_64(register, self.dice.number()).to_vec(),
        }
    }

    /// Generates a call of the next function, so that no function is skipped.
    fn call(&mut self, at: usize) -> Vec<Insn> {
        let callee = self.index + 1;
        let mut insns = vec![mov_register(1, FRAME_REGISTER)];
        self.calls.push((at + insns.len(), callee));
        self.in_any[callee] |= self.in_any[self.index];
        insns.push(call_function(0));
        insns.extend(self.after_call());
        insns
    }

    fn any(&mut self, at: usize) -> Vec<Insn> {
        let callee = self.index + 1;
        let mut insns = vec![mov_register(1, FRAME_REGISTER)];
        insns.extend(self.word_or_number(2));
        insns.push(mov_immediate(3, 1 + self.dice.next_below(16) as i32));
        self.calls.push((at + insns.len(), callee));
        self.in_any[callee] = true;
        insns.extend(load_function_address(4, 0));
        insns.push(call_helper(Helper::Any));
        insns.extend(self.after_call());
        insns
    }
}

/// Damages a program in one to three places.
pub(crate) fn damage_program(bytes: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..1 + dice.next_below(3) {
        let at = dice.next_below(bytes.len() as u64 / 8) as usize * 8;
        match dice.next_below(5) {
            // Changes registers, offset or immediate, copies an instruction, or changes any byte.
            0 => bytes[at + 1] = dice.next_below(11) as u8 | (dice.next_below(11) as u8) << 4,
            1 => {
                let near = dice.of(&[-584, -520, -80, -72, 0, 504, 508, 512, 1]);
                let offset = if dice.next_below(2) == 0 { near } else { dice.number() as i16 };
                bytes[at + 2..at + 4].copy_from_slice(&offset.to_le_bytes());
            }
            2 => bytes[at + 4..at + 8].copy_from_slice(&(dice.number() as i32).to_le_bytes()),
            3 => {
                let from = dice.next_below(bytes.len() as u64 / 8) as usize * 8;
                bytes.copy_within(from..from + 8, at);
            }
            _ => bytes[at + dice.next_below(8) as usize] = dice.roll() as u8,
        }
    }
    bytes
}
