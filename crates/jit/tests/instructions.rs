//! Compares each instruction with each kind of operands, in interpreter and machine code, with a
//! second, simple implementation of the standard.

mod common;

use common::asm::{
    EXIT_INSN, alu_immediate, alu_register, jump_if, load_immediate_64, load_memory, mov_immediate,
    mov_register, store_immediate, store_register,
};
use common::{Input, Machine, verify_and_run};
use trackway_jit::insn::{FRAME, Insn, alu, class, jump, mode, size, source};
use trackway_jit::verify::Rules;

/// Boundary values of operands.
const NUMBERS: [u64; 22] = [
    0,
    1,
    2,
    7,
    63,
    64,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0x8000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    0x1234_5678_9abc_def0,
    i64::MAX as u64,
    i64::MIN as u64,
    -1_i64 as u64,
    -2_i64 as u64,
    -128_i64 as u64,
    i32::MIN as i64 as u64,
];

/// A simple model of an operation: code, offset, and results in 64 and 32 bits.
type Model = (u8, i16, fn(u64, u64) -> u64, fn(u32, u32) -> u32);

const MODELS: [Model; 14] = [
    (alu::ADD, 0, u64::wrapping_add, u32::wrapping_add),
    (alu::SUB, 0, u64::wrapping_sub, u32::wrapping_sub),
    (alu::MUL, 0, u64::wrapping_mul, u32::wrapping_mul),
    (alu::DIV, 0, |a, b| a.checked_div(b).unwrap_or(0), |a, b| a.checked_div(b).unwrap_or(0)),
    (alu::MOD, 0, |a, b| a.checked_rem(b).unwrap_or(a), |a, b| a.checked_rem(b).unwrap_or(a)),
    (alu::DIV, 1, signed_div, |a, b| signed_div(sign_extend_32(a), sign_extend_32(b)) as u32),
    (alu::MOD, 1, signed_mod, |a, b| signed_mod(sign_extend_32(a), sign_extend_32(b)) as u32),
    (alu::OR, 0, |a, b| a | b, |a, b| a | b),
    (alu::AND, 0, |a, b| a & b, |a, b| a & b),
    (alu::XOR, 0, |a, b| a ^ b, |a, b| a ^ b),
    (alu::MOV, 0, |_, b| b, |_, b| b),
    (alu::LSH, 0, |a, b| a.wrapping_shl(b as u32), u32::wrapping_shl),
    (alu::RSH, 0, |a, b| a.wrapping_shr(b as u32), u32::wrapping_shr),
    (
        alu::ARSH,
        0,
        |a, b| (a as i64).wrapping_shr(b as u32) as u64,
        |a, b| (a as i32).wrapping_shr(b) as u32,
    ),
];

fn sign_extend_32(number: u32) -> u64 {
    number as i32 as i64 as u64
}

fn signed_div(a: u64, b: u64) -> u64 {
    let quotient = i128::from(a as i64).checked_div(i128::from(b as i64));
    quotient.unwrap_or(0) as u64
}

fn signed_mod(a: u64, b: u64) -> u64 {
    let remainder = i128::from(a as i64).checked_rem(i128::from(b as i64));
    remainder.map_or(a, |remainder| remainder as u64)
}

/// A verified program with its machine code, for repeated runs.
struct Runner {
    bytes: Vec<u8>,
    machine: Option<Machine>,
}

impl Runner {
    fn new(insns: &[Insn]) -> Self {
        let bytes = common::encode_insns(insns);
        let rejected = |rejection| panic!("{rejection}\n{}", common::format_listing(&bytes));
        let verified = common::verify_program(&bytes, Rules::new(SLOTS)).unwrap_or_else(rejected);
        let machine = cfg!(target_arch = "x86_64").then(|| Machine::new(&verified));
        Self { bytes, machine }
    }

    /// Runs the program in interpreter and machine code; returns the common answer.
    fn run(&self, slots: &[u64; SLOTS]) -> u64 {
        let verified = common::verify_program(&self.bytes, Rules::new(SLOTS)).expect("as before");
        let input = Input::of_slots(slots);
        let (interpreted, _) = common::interpret_programs(&[verified], &input);
        if let Some(machine) = &self.machine {
            let answer = machine.run(&input);
            let shown = || common::format_listing(&self.bytes);
            assert_eq!(answer, interpreted.answer, "{slots:#x?}\n{}", shown());
        }
        interpreted.answer
    }
}

/// Number of slots: one with the initial value of each register.
const SLOTS: usize = 10;

/// Builds a runner that loads each register from its slot, runs `body`, and returns register `dst`.
fn build_runner(dst: u8, body: &[Insn]) -> Runner {
    let end = [mov_register(0, dst), EXIT_INSN];
    Runner::new(&[&load_all_registers(), body, &end].concat())
}

/// Builds a runner like [`build_runner`] that returns the sum of all registers except `dst`.
fn build_runner_of_others(dst: u8, body: &[Insn]) -> Runner {
    let mut end = Vec::new();
    for other in (1..10).filter(|&other| other != dst) {
        let is_first = dst == 0 && end.is_empty();
        end.push(if is_first { mov_register(0, other) } else { alu_register(alu::ADD, 0, other) });
    }
    end.push(EXIT_INSN);
    Runner::new(&[&load_all_registers(), body, &end].concat())
}

fn load_all_registers() -> Vec<Insn> {
    // The frame's register is loaded last.
    let registers = (0..10).filter(|&register| register != FRAME).chain([FRAME]);
    registers
        .map(|register| load_memory(size::DW, register, FRAME, 8 * i16::from(register)))
        .collect()
}

/// Fills slots with `a` and `b` for two registers, and with distinctive values for the others.
fn fill_slots(dst: u8, a: u64, src: u8, b: u64) -> [u64; SLOTS] {
    let mut slots = std::array::from_fn(|slot| 0x0101_0101_0101_0101 << slot);
    slots[usize::from(src)] = b;
    slots[usize::from(dst)] = a;
    slots
}

/// Returns a model's instruction classes, each with its result function.
fn models_by_class(model: &Model) -> [(u8, impl Fn(u64, u64) -> u64); 2] {
    let &(_, _, wide, narrow) = model;
    [class::ALU64, class::ALU].map(|class| {
        (class, move |a: u64, b: u64| match class {
            class::ALU64 => wide(a, b),
            _ => narrow(a as u32, b as u32).into(),
        })
    })
}

#[test]
fn arithmetic_of_registers_is_what_the_model_says() {
    for model in &MODELS {
        for (class, expected) in models_by_class(model) {
            let (operation, offset) = (model.0, model.1);
            let op = class | source::X | operation;
            let runner = build_runner(2, &[Insn { op, dst: 2, src: 3, offset, immediate: 0 }]);
            for (a, b) in number_pairs() {
                let answer = runner.run(&fill_slots(2, a, 3, b));
                assert_eq!(answer, expected(a, b), "{op:#x} {offset} {a:#x} {b:#x}");
            }
        }
    }
}

fn number_pairs() -> impl Iterator<Item = (u64, u64)> {
    NUMBERS.into_iter().flat_map(|a| NUMBERS.map(|b| (a, b)))
}

/// Division needs two fixed registers, and shifts one, whatever the operands' registers are.
#[test]
fn every_register_serves_and_no_other_changes() {
    const SOME: [(u64, u64); 6] = [
        (0x1234_5678_9abc_def0, 7),
        (i64::MIN as u64, u64::MAX),
        (i32::MIN as u32 as u64, 0xffff_ffff),
        (u64::MAX, 0),
        (5, 0x8000_0000_0000_0001),
        (0xffff_ffff_0000_0000, 0x40),
    ];
    for model in &MODELS {
        for (class, expected) in models_by_class(model) {
            for (dst, src) in (0..10).flat_map(|dst| (0..10).map(move |src| (dst, src))) {
                let op = class | source::X | model.0;
                let body = [Insn { op, dst, src, offset: model.1, immediate: 0 }];
                let (of_dst, of_others) =
                    (build_runner(dst, &body), build_runner_of_others(dst, &body));
                for (a, b) in SOME {
                    let slots = fill_slots(dst, a, src, b);
                    let b = if dst == src { a } else { b };
                    let case = format!("{op:#x} r{dst} r{src} {a:#x} {b:#x}");
                    assert_eq!(of_dst.run(&slots), expected(a, b), "{case}");
                    let others = (0..10).filter(|&other| other != usize::from(dst));
                    let sum = others.fold(0_u64, |sum, other| sum.wrapping_add(slots[other]));
                    assert_eq!(of_others.run(&slots), sum, "{case}");
                }
            }
        }
    }
}

#[test]
fn arithmetic_with_immediates_is_what_the_model_says() {
    for model in &MODELS {
        for (class, expected) in models_by_class(model) {
            for immediate in edge_immediates() {
                // rax has its own encodings; division and shifts need rdx and rcx.
                for dst in [0, 3, 4, 8] {
                    let op = class | source::K | model.0;
                    let body = [Insn { op, dst, src: 0, offset: model.1, immediate }];
                    let (runner, others) =
                        (build_runner(dst, &body), build_runner_of_others(dst, &body));
                    for a in NUMBERS {
                        let slots = fill_slots(dst, a, dst, a);
                        let b = immediate as i64 as u64;
                        let case = format!("{op:#x} {a:#x} {immediate}");
                        assert_eq!(runner.run(&slots), expected(a, b), "{case}");
                    }
                    let slots = fill_slots(dst, 77, dst, 77);
                    let kept = (0..10).filter(|&other| other != usize::from(dst));
                    let sum = kept.fold(0_u64, |sum, other| sum.wrapping_add(slots[other]));
                    assert_eq!(others.run(&slots), sum, "{op:#x} {immediate}");
                }
            }
        }
    }
}

fn edge_immediates() -> impl Iterator<Item = i32> {
    [0, 1, 2, 3, 31, 32, 63, 64, 127, 128, -1, -128, -129, i32::MAX, i32::MIN].into_iter()
}

#[test]
fn negation_and_byte_orders() {
    type Unary = (u8, i32, fn(u64) -> u64);
    const ALU_X: u8 = class::ALU | source::X;
    const CASES: [Unary; 11] = [
        (class::ALU64 | alu::NEG, 0, u64::wrapping_neg),
        (class::ALU | alu::NEG, 0, |a| (a as u32).wrapping_neg().into()),
        (class::ALU | alu::END, 16, |a| a & 0xffff),
        (class::ALU | alu::END, 32, |a| a & 0xffff_ffff),
        (class::ALU | alu::END, 64, |a| a),
        (ALU_X | alu::END, 16, |a| (a as u16).swap_bytes().into()),
        (ALU_X | alu::END, 32, |a| (a as u32).swap_bytes().into()),
        (ALU_X | alu::END, 64, u64::swap_bytes),
        (class::ALU64 | alu::END, 16, |a| (a as u16).swap_bytes().into()),
        (class::ALU64 | alu::END, 32, |a| (a as u32).swap_bytes().into()),
        (class::ALU64 | alu::END, 64, u64::swap_bytes),
    ];
    for (op, immediate, expected) in CASES {
        for dst in 0..10 {
            let runner = build_runner(dst, &[Insn { op, dst, src: 0, offset: 0, immediate }]);
            for a in NUMBERS {
                let answer = runner.run(&fill_slots(dst, a, dst, a));
                assert_eq!(answer, expected(a), "{op:#x} {immediate} {a:#x}");
            }
        }
    }
}

#[test]
fn moves_that_extend_by_the_sign() {
    type Extend = (u8, i16, fn(u64) -> u64);
    const CASES: [Extend; 5] = [
        (class::ALU64, 8, |b| b as i8 as i64 as u64),
        (class::ALU64, 16, |b| b as i16 as i64 as u64),
        (class::ALU64, 32, |b| b as i32 as i64 as u64),
        (class::ALU, 8, |b| u64::from(b as i8 as i32 as u32)),
        (class::ALU, 16, |b| u64::from(b as i16 as i32 as u32)),
    ];
    for (class, offset, expected) in CASES {
        for (dst, src) in (0..10).flat_map(|dst| [(dst, 9 - dst), (dst, dst), (0, dst)]) {
            let op = class | source::X | alu::MOV;
            let runner = build_runner(dst, &[Insn { op, dst, src, offset, immediate: 0 }]);
            for b in NUMBERS {
                assert_eq!(
                    runner.run(&fill_slots(dst, b, src, b)),
                    expected(b),
                    "{op:#x} {offset}"
                );
            }
        }
    }
}

#[test]
fn jumps_are_taken_as_the_model_says() {
    type Jump = (u8, fn(u64, u64) -> bool, fn(u32, u32) -> bool);
    const JUMPS: [Jump; 11] = [
        (jump::JEQ, |a, b| a == b, |a, b| a == b),
        (jump::JNE, |a, b| a != b, |a, b| a != b),
        (jump::JGT, |a, b| a > b, |a, b| a > b),
        (jump::JGE, |a, b| a >= b, |a, b| a >= b),
        (jump::JLT, |a, b| a < b, |a, b| a < b),
        (jump::JLE, |a, b| a <= b, |a, b| a <= b),
        (jump::JSET, |a, b| a & b != 0, |a, b| a & b != 0),
        (jump::JSGT, |a, b| a as i64 > b as i64, |a, b| a as i32 > b as i32),
        (jump::JSGE, |a, b| a as i64 >= b as i64, |a, b| a as i32 >= b as i32),
        (jump::JSLT, |a, b| (a as i64) < b as i64, |a, b| (a as i32) < b as i32),
        (jump::JSLE, |a, b| a as i64 <= b as i64, |a, b| a as i32 <= b as i32),
    ];
    let program =
        |insn: Insn| Runner::new(&[&load_all_registers(), &[insn][..], &ONE_OR_ZERO].concat());
    for (operation, wide, narrow) in JUMPS {
        for class in [class::JMP, class::JMP32] {
            let expected = |a: u64, b: u64| match class {
                class::JMP => u64::from(wide(a, b)),
                _ => u64::from(narrow(a as u32, b as u32)),
            };
            for (dst, src) in [(2, 3), (0, 9), (8, 8), (6, 5)] {
                let op = class | source::X | operation;
                let runner = program(Insn { op, dst, src, offset: 2, immediate: 0 });
                for (a, b) in number_pairs() {
                    let b = if dst == src { a } else { b };
                    assert_eq!(runner.run(&fill_slots(dst, a, src, b)), expected(a, b), "{op:#x}");
                }
            }
            for (dst, immediate) in edge_immediates().flat_map(|i| [(0, i), (1, i), (9, i)]) {
                let op = class | source::K | operation;
                let runner = program(Insn { op, dst, src: 0, offset: 2, immediate });
                for a in NUMBERS {
                    let b = immediate as i64 as u64;
                    assert_eq!(
                        runner.run(&fill_slots(dst, a, dst, a)),
                        expected(a, b),
                        "{op:#x} {b}"
                    );
                }
            }
        }
    }
}

/// Instructions that return 0, followed by instructions that return 1.
const ONE_OR_ZERO: [Insn; 4] = [mov_immediate(0, 0), EXIT_INSN, mov_immediate(0, 1), EXIT_INSN];

#[test]
fn jumps_of_every_distance_arrive() {
    // Distances around the longest short jump (127 bytes), and one for the long form of JA.
    for between in (0..70).chain([3000]) {
        for (op, dst) in [(class::JMP | jump::JA, 0), (class::JMP32 | jump::JA, 0), (0x15, 6)] {
            let is_long = op == class::JMP32 | jump::JA;
            let (offset, immediate) = if is_long { (0, between) } else { (between as i16, 0) };
            let jump = Insn { op, dst, src: 0, offset, immediate };
            // A jump over the unconditional jump makes the code after it reachable.
            let mut insns =
                vec![mov_immediate(6, 0), mov_immediate(7, 0), jump_if(jump::JNE, 6, 0, 1), jump];
            insns.extend((0..between).map(|_| alu_immediate(alu::ADD, 7, 1)));
            insns.extend([mov_register(0, 7), EXIT_INSN]);
            assert_eq!(verify_and_run(&insns, &Input::default()), 0, "{op:#x} over {between}");
        }
    }
}

#[test]
fn loads_and_stores_of_every_size() {
    let number = 0x8182_8384_8586_8788_u64;
    for (size, bytes) in [(size::B, 1), (size::H, 2), (size::W, 4), (size::DW, 8)] {
        let mask = u64::MAX >> (64 - 8 * bytes);
        for start in (0..8).step_by(bytes as usize) {
            let part = number >> (8 * start) & mask;
            for register in 0..10 {
                let at = start as i16 + 8;
                let insns =
                    [load_memory(size, register, FRAME, at), mov_register(0, register), EXIT_INSN];
                assert_eq!(verify_and_run(&insns, &Input::of_slots(&[0, number])), part);
                // Also to the stack, through a copy of its end in another register.
                let base = if register == 5 { 6 } else { 5 };
                let insns = [
                    load_memory(size::DW, register, FRAME, 0),
                    mov_register(base, 10),
                    store_immediate(size::DW, base, -16, 0),
                    store_register(size, base, start as i16 - 16, register),
                    load_memory(size::DW, 0, 10, -16),
                    EXIT_INSN,
                ];
                let stored = verify_and_run(&insns, &Input::of_slots(&[number]));
                assert_eq!(stored, (number & mask) << (8 * start), "{size:#x} r{register}");
            }
            if bytes < 8 {
                let op = class::LDX | mode::MEMSX | size;
                let signed = Insn { op, dst: 0, src: FRAME, offset: start as i16, immediate: 0 };
                let unused = 64 - 8 * bytes;
                let expected = ((part << unused) as i64 >> unused) as u64;
                let input = Input::of_slots(&[number]);
                assert_eq!(verify_and_run(&[signed, EXIT_INSN], &input), expected);
            }
        }
        for immediate in edge_immediates() {
            let insns = [
                mov_immediate(0, -1),
                store_register(size::DW, 10, -8, 0),
                store_immediate(size, 10, -8, immediate),
                load_memory(size::DW, 0, 10, -8),
                EXIT_INSN,
            ];
            let expected = !mask | (immediate as i64 as u64 & mask);
            assert_eq!(
                verify_and_run(&insns, &Input::default()),
                expected,
                "{size:#x} {immediate}"
            );
        }
    }
}

#[test]
fn numbers_of_every_size_are_loaded() {
    for number in NUMBERS {
        for dst in 0..10 {
            let insns =
                [&load_immediate_64(dst, number)[..], &[mov_register(0, dst), EXIT_INSN]].concat();
            assert_eq!(verify_and_run(&insns, &Input::default()), number);
        }
    }
}

/// Some base registers need longer encodings than others.
#[test]
fn every_register_is_a_base() {
    let input = Input::of_slots(&[11, 22]);
    for base in 1..10 {
        for (offset, expected) in [(0, 11), (8, 22)] {
            let from_frame =
                [mov_register(base, FRAME), load_memory(size::DW, 0, base, offset), EXIT_INSN];
            assert_eq!(verify_and_run(&from_frame, &input), expected, "r{base} + {offset}");
            for at in [-8, -256, -512] {
                let insns = [
                    mov_register(base, 10),
                    alu_immediate(alu::ADD, base, at - i32::from(offset)),
                    store_immediate(size::W, base, offset, 33),
                    store_immediate(size::W, base, offset + 4, 44),
                    load_memory(size::DW, 0, 10, at as i16),
                    EXIT_INSN,
                ];
                assert_eq!(verify_and_run(&insns, &input), 44 << 32 | 33, "r{base} + {offset}");
            }
        }
    }
}

#[test]
fn frames_that_lack_slots_record_nothing() {
    let insns = [mov_immediate(0, 1), EXIT_INSN];
    let bytes = common::encode_insns(&insns);
    let verified = common::verify_program(&bytes, Rules::new(2)).expect("accepted");
    for (slots, expected) in [(0, 0), (1, 0), (2, 1), (3, 1)] {
        let input = Input { slots: vec![0; slots], ..Input::default() };
        assert_eq!(common::try_interpret_programs(&[verified], &input).is_ok(), expected == 1);
        if cfg!(target_arch = "x86_64") {
            assert_eq!(Machine::new(&verified).run_of(2, &input), expected, "{slots} slots");
        }
    }
}
