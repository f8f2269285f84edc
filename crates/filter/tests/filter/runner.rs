//! A slow bytecode runner for tests. It panics on invalid actions of a filter, such as reads of
//! unwritten memory or backward jumps. The production runners are in crate `jit`.

use trackway_filter::evaluate::{Runtime, State, string_hash};
use trackway_filter::number;
use trackway_filter::object::Alternative;
use trackway_filter::types::Type;
use trackway_jit::STACK_BYTES;
use trackway_jit::helper::{Helper, Word};
use trackway_jit::insn::{
    CALL, EXIT, Insn, LDDW, LDDW_FUNCTION, alu, class, jump, mode, size, source,
};
use trackway_schema::Scalar;

use super::frame::Frame;

/// The content of a register or of a stack slot.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Content {
    Nothing,
    Number(u64),
    Frame,
    StackEnd,
    Function(usize),
}

pub(crate) struct Runner<'a> {
    pub(crate) alternative: &'a Alternative,
    pub(crate) frame: &'a Frame,
    pub(crate) state: &'a mut State,
    pub(crate) runtime: &'a mut dyn Runtime,
}

impl Runner<'_> {
    /// Runs the filter and returns its answer.
    pub(crate) fn run(&mut self) -> bool {
        self.function(0, Content::Nothing) != 0
    }

    // Longer than 70 lines: an arm for each kind of instruction.
    fn function(&mut self, start: usize, item: Content) -> u64 {
        let program = self.alternative.programs[0].clone();
        let mut registers = [Content::Nothing; 11];
        registers[1] = Content::Frame;
        registers[2] = item;
        registers[10] = Content::StackEnd;
        let mut stack = [Content::Nothing; STACK_BYTES / 8];
        let mut at = start;
        loop {
            let insn = program[at];
            let (dst, src) = (usize::from(insn.dst), usize::from(insn.src));
            at += 1;
            match (insn.class(), insn.op) {
                (_, EXIT) => return number_of(registers[0]),
                (_, CALL) => {
                    let answer = self.helper(insn.immediate, &registers);
                    let helper = Helper::from_number(insn.immediate).expect("a helper");
                    let lost = if helper.keeps_frame() { 2..6 } else { 1..6 };
                    registers[lost].fill(Content::Nothing);
                    registers[0] = Content::Number(answer);
                }
                (_, LDDW) if insn.src == LDDW_FUNCTION => {
                    let target = at as i64 + i64::from(insn.immediate);
                    assert!(target > start as i64, "functions are behind the filter");
                    registers[dst] = Content::Function(target as usize);
                    at += 1;
                }
                (_, LDDW) => {
                    let high = u64::from(program[at].immediate as u32) << 32;
                    assert_eq!(program[at].op, 0);
                    registers[dst] = Content::Number(high | u64::from(insn.immediate as u32));
                    at += 1;
                }
                (class::LDX, op) if op == class::LDX | size::W | mode::MEM => {
                    assert_eq!((registers[src], insn.offset % 4), (Content::Frame, 0), "a half");
                    let slot = self.frame.slots()[insn.offset as usize / 8].to_le_bytes();
                    let half = slot[insn.offset as usize % 8..].first_chunk().expect("a half");
                    registers[dst] = Content::Number(u32::from_le_bytes(*half).into());
                }
                (class::LDX, op) => {
                    assert_eq!(op, class::LDX | size::DW | mode::MEM);
                    assert_eq!(insn.offset % 8, 0);
                    registers[dst] = match registers[src] {
                        Content::Frame => {
                            Content::Number(self.frame.slots()[insn.offset as usize / 8])
                        }
                        Content::StackEnd => stack[stack_index(insn.offset)],
                        held => panic!("a load from {held:?}"),
                    };
                    assert_ne!(registers[dst], Content::Nothing, "the stack was not written");
                }
                (class::STX, op) => {
                    assert_eq!(op, class::STX | size::DW | mode::MEM);
                    assert_eq!(registers[dst], Content::StackEnd);
                    assert_ne!(registers[src], Content::Nothing);
                    stack[stack_index(insn.offset)] = registers[src];
                }
                (class::JMP, op) => {
                    assert!(insn.offset >= 0, "jumps go forward");
                    let is_taken = op & 0xf0 == jump::JA
                        || is_jump_taken(
                            op,
                            number_of(registers[dst]),
                            source_operand(insn, &registers),
                        );
                    at += if is_taken { insn.offset as usize } else { 0 };
                }
                (class::ALU64, op) => registers[dst] = compute_alu(insn, op, &registers),
                (_, op) => panic!("no instruction of filters: {op:#x}"),
            }
        }
    }

    fn bytes(&self, word: u64, width: usize) -> &[u8] {
        let word = Word::from_bits(word);
        let bytes = if word.is_constant { &self.alternative.constants } else { self.frame.bytes() };
        let from = word.offset as usize;
        bytes.get(from..from + word.length as usize * width).unwrap_or_default()
    }

    fn element(&self, word: u64, scalar: u64, index: u64) -> Option<u64> {
        let scalar = Scalar::from_code(scalar as u8).expect("a scalar");
        let width = scalar.size_bytes();
        let bytes = self.bytes(word, width);
        let bytes = bytes.chunks(width).nth(index as usize)?;
        let mut wide = [0; 8];
        wide[..width].copy_from_slice(bytes);
        let bits = u64::from_le_bytes(wide);
        let shift = 64 - 8 * width as u32;
        Some(match scalar {
            Scalar::F32 => f64::from(f32::from_bits(bits as u32)).to_bits(),
            scalar if scalar.is_signed() => ((bits << shift) as i64 >> shift) as u64,
            _ => bits,
        })
    }

    // Longer than 70 lines: an arm for each helper.
    fn helper(&mut self, number: i32, registers: &[Content; 11]) -> u64 {
        use trackway_filter::parse::Binary;
        let helper = Helper::from_number(number).expect("a helper");
        assert_eq!(registers[1], Content::Frame, "{} gets the frame", helper.name());
        let argument = |index: usize| number_of(registers[index + 1]);
        let string = |index: usize| self.bytes(argument(index), 1);
        let float = |operator| number::float_arithmetic(operator, argument(1), argument(2));
        match helper {
            Helper::StringCompare => string(1).cmp(string(2)) as i64 as u64,
            Helper::StringMatches => matches_glob(string(2), string(1)).into(),
            Helper::StringStartsWith => string(1).starts_with(string(2)).into(),
            Helper::StringEndsWith => string(1).ends_with(string(2)).into(),
            Helper::StringContains => {
                let (whole, part) = (string(1), string(2));
                (0..=whole.len()).any(|at| whole[at..].starts_with(part)).into()
            }
            Helper::StringHash => string_hash(string(1)),
            Helper::StringEdges8 => compare_edges(string(1), 8, argument(2), argument(3)),
            Helper::StringEdges4 => compare_edges(string(1), 4, argument(2), argument(3)),
            Helper::StringEdges2 => compare_edges(string(1), 2, argument(2), argument(3)),
            Helper::StringEdges1 => compare_edges(string(1), 1, argument(2), argument(3)),
            Helper::Element => self.element(argument(1), argument(2), argument(3)).unwrap_or(0),
            Helper::Any => {
                let Content::Function(start) = registers[4] else { panic!("no function") };
                let (word, scalar) = (argument(1), argument(2));
                let count = u64::from(Word::from_bits(word).length);
                (0..count)
                    .any(|index| {
                        let element = self.element(word, scalar, index).expect("an element");
                        self.function(start, Content::Number(element)) != 0
                    })
                    .into()
            }
            Helper::Sum | Helper::Least | Helper::Greatest => {
                let (word, scalar) = (argument(1), argument(2));
                let count = u64::from(Word::from_bits(word).length);
                let of = |index| self.element(word, scalar, index).expect("an element");
                let is_wide = matches!(Scalar::from_code(scalar as u8), Some(Scalar::U64));
                // Widened according to the sign, so that all elements compare by value.
                let wide = |bits: u64| if is_wide { bits.into() } else { i128::from(bits as i64) };
                let all = (0..count).map(|index| wide(of(index)));
                let folded = match helper {
                    Helper::Sum => all.sum(),
                    Helper::Least => all.min().unwrap_or(0),
                    _ => all.max().unwrap_or(0),
                };
                folded as u64
            }
            Helper::FloatCompare => {
                let [a, b] = [(argument(1), Type::Float), (argument(2), Type::Float)];
                number::compare_numbers(a, b).map_or(2, |ordering| ordering as i64 as u64)
            }
            Helper::FloatAdd => float(Binary::Add),
            Helper::FloatSubtract => float(Binary::Subtract),
            Helper::FloatMultiply => float(Binary::Multiply),
            Helper::FloatDivide => float(Binary::Divide),
            Helper::FloatFromSigned => number::to_float(argument(1), Type::Signed),
            Helper::FloatFromUnsigned => number::to_float(argument(1), Type::Unsigned),
            Helper::TimeNs => self.runtime.time_ns(),
            Helper::Random => self.runtime.random(),
            Helper::Count => self.state.count(argument(1) as usize),
            Helper::Changed => self.state.changed(argument(1) as usize, argument(2)).into(),
            Helper::Rate => {
                let now_ns = self.runtime.time_ns();
                let cell = argument(1) as usize;
                self.state.rate(cell, argument(2), argument(3), now_ns).into()
            }
            Helper::TailCall => panic!("there is one program"),
            // All other helpers compare bytes with numbers.
            _ => {
                let count = helper.compared_bytes().expect("one of those");
                let offset = argument(1) as u32 as usize;
                let bytes = self.frame.bytes().get(offset..offset + usize::from(count));
                let last = if helper.arguments() > 3 { argument(3) } else { 0 };
                bytes.map_or(1, |bytes| bytes_differ(bytes, argument(2), last).into())
            }
        }
    }
}

/// Matches a glob pattern by the simplest method.
fn matches_glob(pattern: &[u8], string: &[u8]) -> bool {
    match pattern {
        [] => string.is_empty(),
        [b'*', rest @ ..] => (0..=string.len()).any(|at| matches_glob(rest, &string[at..])),
        [b'\\', byte, rest @ ..] | [byte, rest @ ..] => {
            string.first() == Some(byte) && matches_glob(rest, &string[1..])
        }
    }
}

fn stack_index(offset: i16) -> usize {
    assert!(offset % 8 == 0 && (-(STACK_BYTES as i16)..0).contains(&offset));
    (STACK_BYTES as i16 + offset) as usize / 8
}

fn number_of(held: Content) -> u64 {
    match held {
        Content::Number(bits) => bits,
        held => panic!("{held:?} is no number"),
    }
}

fn source_operand(insn: Insn, registers: &[Content; 11]) -> u64 {
    if insn.op & source::X != 0 {
        assert_eq!(insn.immediate, 0);
        number_of(registers[usize::from(insn.src)])
    } else {
        assert_eq!(insn.src, 0);
        i64::from(insn.immediate) as u64
    }
}

fn is_jump_taken(op: u8, a: u64, b: u64) -> bool {
    let (x, y) = (a as i64, b as i64);
    match op & 0xf0 {
        jump::JEQ => a == b,
        jump::JNE => a != b,
        jump::JGT => a > b,
        jump::JGE => a >= b,
        jump::JLT => a < b,
        jump::JLE => a <= b,
        jump::JSET => a & b != 0,
        jump::JSGT => x > y,
        jump::JSGE => x >= y,
        jump::JSLT => x < y,
        jump::JSLE => x <= y,
        code => panic!("no jump: {code:#x}"),
    }
}

fn compute_alu(insn: Insn, op: u8, registers: &[Content; 11]) -> Content {
    let held = registers[usize::from(insn.dst)];
    if op & 0xf0 == alu::MOV {
        let is_register = op & source::X != 0;
        let moved = registers[usize::from(insn.src)];
        assert!(!is_register || moved != Content::Nothing, "what is moved was not written");
        return if is_register { moved } else { Content::Number(source_operand(insn, registers)) };
    }
    let a = number_of(held);
    if op & 0xf0 == alu::NEG {
        return Content::Number(a.wrapping_neg());
    }
    let b = source_operand(insn, registers);
    let is_signed = insn.offset == 1;
    let (x, y) = (a as i64, b as i64);
    let is_division = matches!(op & 0xf0, alu::DIV | alu::MOD);
    assert!(insn.offset == 0 || is_signed && is_division);
    assert!(!is_division || op & source::X != 0 || b != 0, "the kernel refuses this");
    Content::Number(match op & 0xf0 {
        alu::ADD => a.wrapping_add(b),
        alu::SUB => a.wrapping_sub(b),
        alu::MUL => a.wrapping_mul(b),
        alu::DIV if b == 0 => 0,
        alu::MOD if b == 0 => a,
        alu::DIV if is_signed => x.wrapping_div(y) as u64,
        alu::MOD if is_signed => x.wrapping_rem(y) as u64,
        alu::DIV => a / b,
        alu::MOD => a % b,
        alu::AND => a & b,
        alu::OR => a | b,
        alu::XOR => a ^ b,
        alu::LSH => a << (b & 63),
        alu::RSH => a >> (b & 63),
        alu::ARSH => (x >> (b & 63)) as u64,
        code => panic!("no arithmetic: {code:#x}"),
    })
}

/// Checks static properties: jumps go forward to instructions, constant shift counts are below 64,
/// and functions end properly.
pub(crate) fn check_program(program: &[Insn]) {
    let mut is_start = vec![true; program.len()];
    let mut at = 0;
    while at < program.len() {
        if program[at].op == LDDW {
            at += 1;
            is_start[at] = false;
        }
        at += 1;
    }
    for (at, insn) in program.iter().enumerate().filter(|(at, _)| is_start[*at]) {
        let is_jump = insn.class() == class::JMP && insn.op != CALL && insn.op != EXIT;
        if is_jump {
            assert!(insn.offset >= 0);
            assert!(is_start[at + 1 + insn.offset as usize]);
        }
        let code = insn.op & 0xf0;
        let is_shift = matches!(code, alu::LSH | alu::RSH | alu::ARSH);
        if insn.class() == class::ALU64 && is_shift && insn.op & source::X == 0 {
            assert!((1..64).contains(&insn.immediate));
        }
    }
    assert_eq!(program.last().map(|insn| insn.op), Some(EXIT));
    let reached = find_reachable(program);
    let all = (0..program.len()).all(|at| reached[at] || !is_start[at]);
    assert!(all, "the kernel refuses what is never reached");
}

/// Returns, for each instruction, whether it is reachable.
fn find_reachable(program: &[Insn]) -> Vec<bool> {
    let mut reached = vec![false; program.len()];
    reached[0] = true;
    // Jumps and function addresses lead forward, so one pass finds all.
    for (at, insn) in program.iter().enumerate() {
        if !reached[at] || insn.op == EXIT {
            continue;
        }
        let next = at + 1;
        match insn.op {
            LDDW => {
                reached[next + 1] = true;
                if insn.src == LDDW_FUNCTION {
                    reached[next + insn.immediate as usize] = true;
                }
            }
            op if op == class::JMP | jump::JA => reached[next + insn.offset as usize] = true,
            op => {
                reached[next] = true;
                if op & 7 == class::JMP && op != CALL {
                    reached[next + insn.offset as usize] = true;
                }
            }
        }
    }
    reached
}

/// Computes the result of `string_edges` for a field byte by byte.
fn compare_edges(string: &[u8], size: usize, first: u64, last: u64) -> u64 {
    let is_at = |start: usize, number: u64| {
        (0..size).all(|at| u64::from(string[start + at]) == number >> (8 * at) & 0xff)
    };
    u64::from(string.len() >= size && is_at(0, first) && is_at(string.len() - size, last))
}

/// Returns true if the bytes differ from the two numbers, each of which covers one end.
fn bytes_differ(bytes: &[u8], first: u64, last: u64) -> bool {
    let (begin, end) = Helper::number_bytes(bytes.len() as u8);
    let behind = bytes.len() - usize::from(end);
    bytes.iter().enumerate().any(|(at, &byte)| {
        let is_begin = at < begin.into();
        let number = if is_begin { first >> (8 * at) } else { last >> (8 * (at - behind)) };
        number as u8 != byte
    })
}
