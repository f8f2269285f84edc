//! Code that reads payloads returns the interpreter's answers for frames filled from the payloads.

mod common;

use common::asm::{
    EXIT_INSN, alu_immediate, alu_register, call_helper, jump_if, jump_if_register, load_memory,
    mov_immediate, mov_register,
};
use common::generate::Dice;
use common::{encode_insns, format_listing, verify_program};
use trackway_jit::Kind;
use trackway_jit::frame::{Direct, Environment, Frame};
use trackway_jit::framer::{Contexts, Framer, WantedValue};
use trackway_jit::helper::Helper;
use trackway_jit::insn::{Insn, alu, class, jump, size, source};
use trackway_jit::interpret;
use trackway_jit::verify::Rules;
use trackway_jit::x86::{INSN_CODE_BYTES_MAX, emit_direct};
use trackway_schema::context::{VPID, VTID};
use trackway_schema::{Encoder, FieldViews, Scalar, Shape};
use trackway_testkit::{Executable, GuardedBytes};

const CONTEXTS: Contexts = Contexts::NONE.with(VPID, 7).with(VTID, 8);
/// Registers that direct programs may use for numbers.
const NUMBER_REGISTERS: [u8; 5] = [0, 2, 3, 4, 5];

extern "C" fn return_zero() -> u64 {
    0
}

/// Builds the framer of an event with these scalars, whose needs are all its fields.
fn build_framer(scalars: &[Scalar]) -> Framer {
    let mut buffer = [0; 4096];
    let mut encoder = Encoder::new(&mut buffer, b"test", b"event", 6).expect("room");
    for (number, &scalar) in scalars.iter().enumerate() {
        let name = format!("f{number}");
        encoder.add_field(name.as_bytes(), Shape::Scalar, Some(scalar), 0, 0).expect("room");
    }
    let encoded = encoder.finish().to_vec();
    let fields = FieldViews::new(&encoded).expect("a description");
    let needs: Vec<(String, Kind)> = scalars
        .iter()
        .enumerate()
        .map(|(number, scalar)| {
            let kind = match scalar {
                _ if scalar.is_float() => Kind::Float,
                _ if scalar.is_signed() => Kind::Signed,
                _ => Kind::Unsigned,
            };
            (format!("f{number}"), kind)
        })
        .collect();
    let wanted =
        needs.iter().map(|(path, kind)| WantedValue { path: path.as_bytes(), kind: *kind });
    Framer::new(&fields, wanted).expect("its fields")
}

/// Generates a random program that reads only the first `slots` slots of its frame.
fn random_program(dice: &mut Dice, slots: u64) -> Vec<Insn> {
    const OPERATIONS: [u8; 12] = [
        alu::ADD,
        alu::SUB,
        alu::MUL,
        alu::DIV,
        alu::OR,
        alu::AND,
        alu::LSH,
        alu::RSH,
        alu::MOD,
        alu::XOR,
        alu::MOV,
        alu::ARSH,
    ];
    const JUMPS: [u8; 11] = [
        jump::JEQ,
        jump::JGT,
        jump::JGE,
        jump::JSET,
        jump::JNE,
        jump::JSGT,
        jump::JSGE,
        jump::JLT,
        jump::JLE,
        jump::JSLT,
        jump::JSLE,
    ];
    let mut insns: Vec<Insn> =
        NUMBER_REGISTERS.iter().map(|&to| mov_immediate(to, dice.roll() as i32)).collect();
    let items = 1 + dice.next_below(30);
    for left in (0..items).rev() {
        let (to, from) = (dice.of(&NUMBER_REGISTERS), dice.of(&NUMBER_REGISTERS));
        let (immediate, ahead) = (dice.number() as i32, dice.next_below(left.min(3) + 1) as i16);
        let mut insn = match dice.next_below(6) {
            0 | 1 => load_memory(size::DW, to, 1, 8 * dice.next_below(slots) as i16),
            2 => alu_immediate(dice.of(&OPERATIONS), to, immediate),
            3 => alu_register(dice.of(&OPERATIONS), to, from),
            4 => jump_if(dice.of(&JUMPS), to, immediate, ahead),
            _ => jump_if_register(dice.of(&JUMPS), to, from, ahead),
        };
        let operation = insn.op & 0xf0;
        if matches!(insn.class(), class::ALU64) && insn.op & source::X == 0 {
            match operation {
                alu::LSH | alu::RSH | alu::ARSH => insn.immediate &= 31,
                _ => {}
            }
        }
        // Half of the arithmetic and comparisons use 32 bits.
        if dice.next_below(2) == 0 {
            match insn.class() {
                class::ALU64 => insn.op = insn.op & !7 | class::ALU,
                class::JMP => insn.op = insn.op & !7 | class::JMP32,
                _ => {}
            }
        }
        insns.push(insn);
    }
    insns.extend([alu_immediate(alu::AND, 0, 1), EXIT_INSN]);
    insns
}

#[test]
fn answers_are_those_of_a_frame() {
    let mut dice = Dice::new(20_261_123);
    let all: Vec<Scalar> = (1..=15).filter_map(Scalar::from_code).collect();
    let (mut yes, mut no) = (0, 0);
    for _ in 0..3000 {
        let scalars: Vec<Scalar> = (0..1 + dice.next_below(9)).map(|_| dice.of(&all)).collect();
        let framer = build_framer(&scalars);
        let insns = random_program(&mut dice, scalars.len() as u64);
        let code_bytes = encode_insns(&insns);
        let rules = Rules::new(scalars.len());
        let program = verify_program(&code_bytes, rules).expect("it keeps the rules");
        let mut buffer = vec![0; insns.len() * INSN_CODE_BYTES_MAX];
        let mut places = vec![0; insns.len() + 1];
        let emitted = emit_direct(&program, framer.view(), &mut buffer, &mut places);
        if cfg!(not(target_arch = "x86_64")) {
            assert!(emitted.is_err());
            continue;
        }
        let loads_float = program.program().insns().any(|(_, insn)| {
            insn.class() == class::LDX && scalars[insn.offset as usize / 8] == Scalar::F32
        });
        let size = emitted.expect("room");
        assert_eq!(size.is_none(), loads_float, "{}", format_listing(&code_bytes));
        let Some(size) = size else { continue };
        let code = Executable::new(&buffer[..size]);
        let payload: Vec<u8> = (0..framer.view().coded_bytes().div_ceil(8))
            .flat_map(|_| dice.number().to_le_bytes())
            .take(framer.view().coded_bytes())
            .collect();
        let environment = Environment::new(&[], &[], return_zero, return_zero);
        let mut frame = Frame::new(&environment, &payload);
        assert!(framer.fill(&mut frame, 0, &CONTEXTS));
        let expected = interpret::run(&[program], &frame).expect("it ends").answer != 0;
        // Guard pages surround the payload.
        let guarded = GuardedBytes::new(&payload);
        // SAFETY: the code belongs to a verified program, and the payload has all bytes that it
        // reads.
        let answer = unsafe {
            std::mem::transmute::<*const u8, Direct>(code.start())(guarded.bytes().as_ptr())
        };
        assert_eq!(answer, u64::from(expected), "{}", format_listing(&code_bytes));
        (yes, no) = (yes + u32::from(expected), no + u32::from(!expected));
    }
    assert!(cfg!(not(target_arch = "x86_64")) || (yes > 500 && no > 500), "{yes} and {no}");
}

/// Other uses of the frame need a real frame; callee-saved registers need a stack.
#[test]
fn what_needs_a_frame_is_not_made_for_payloads() {
    let scalars = [Scalar::U64, Scalar::F32, Scalar::U32];
    let framer = build_framer(&scalars);
    let made = |insns: &[Insn]| {
        let code = encode_insns(insns);
        let program = verify_program(&code, Rules::new(scalars.len())).expect("it keeps the rules");
        let (mut buffer, mut places) = (vec![0; 4096], vec![0; insns.len() + 1]);
        let emitted = emit_direct(&program, framer.view(), &mut buffer, &mut places);
        emitted.ok().flatten().is_some()
    };
    let is_there = cfg!(target_arch = "x86_64");
    assert_eq!(made(&[load_memory(size::DW, 0, 1, 0), EXIT_INSN]), is_there);
    assert_eq!(made(&[load_memory(size::DW, 0, 1, 16), EXIT_INSN]), is_there);
    assert!(!made(&[load_memory(size::DW, 0, 1, 8), EXIT_INSN]), "a float that is to be extended");
    assert!(!made(&[load_memory(size::W, 0, 1, 0), EXIT_INSN]), "half a slot");
    assert!(!made(&[load_memory(size::W, 0, 1, 4), EXIT_INSN]), "the other half");
    assert!(
        !made(&[mov_register(2, 1), load_memory(size::DW, 0, 2, 0), EXIT_INSN]),
        "by another register"
    );
    assert!(
        !made(&[load_memory(size::DW, 6, 1, 0), mov_register(0, 6), EXIT_INSN]),
        "its caller's register"
    );
    assert!(
        !made(&[mov_immediate(2, 1), mov_register(1, 2), mov_register(0, 1), EXIT_INSN]),
        "not the frame any more"
    );
    assert!(!made(&[call_helper(Helper::Random), EXIT_INSN]), "a call");
}
