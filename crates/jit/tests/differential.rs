//! Compares interpreter and machine code on random programs: answers and state are equal, and the
//! steps stay within the verifier's limit. Valid generated programs are accepted. Of damaged
//! programs and random bytes, those that the verifier accepts run, too, with guard pages beside the
//! frame and beside the bytes of its words.

mod common;

use common::generate::{
    Dialect, Dice, SLOTS, damage_program, random_input, random_program, random_program_in,
};
use common::{
    encode_insns, execute_programs, format_listing, interpret_programs, run_both, verify_program,
};
use trackway_jit::insn::{INSN_BYTES, alu, class};
use trackway_jit::verify::Rules;

/// Returns rules without a step limit. The verifier counts 4,096 elements for each `any`, far more
/// than the sequences here have.
fn rules_without_step_limit() -> Rules {
    Rules { steps_max: u64::MAX, ..Rules::new(SLOTS as usize) }
}

#[test]
fn random_programs_do_the_same_in_both_ways() {
    for seed in 0..1500 {
        let mut dice = Dice::new(seed);
        let bytes = encode_insns(&random_program(&mut dice));
        let verified =
            verify_program(&bytes, rules_without_step_limit()).unwrap_or_else(|rejection| {
                panic!("seed {seed}: {rejection}\n{}", format_listing(&bytes));
            });
        for _ in 0..3 {
            run_both(&[verified], &random_input(&mut dice));
        }
    }
}

/// The comparison detects a single instruction with a changed meaning.
#[test]
fn a_difference_is_seen() {
    let mut seen = 0;
    for seed in 0..200 {
        let mut dice = Dice::new(seed);
        let right = random_program(&mut dice);
        let mut wrong = right.clone();
        let last = wrong.iter_mut().rev().find(|insn| insn.op == class::ALU64 | alu::MUL);
        last.expect("programs end in some").op = class::ALU64 | alu::XOR;
        let (right, wrong) = (encode_insns(&right), encode_insns(&wrong));
        let [right, wrong] = [&right, &wrong]
            .map(|bytes| verify_program(bytes, rules_without_step_limit()).expect("accepted"));
        let input = random_input(&mut dice);
        let (expected, _) = interpret_programs(&[right], &input);
        seen += u64::from(interpret_programs(&[wrong], &input).0 != expected);
        if cfg!(target_arch = "x86_64") {
            assert_eq!(execute_programs(&[right], &input), expected, "seed {seed}");
            assert_eq!(execute_programs(&[wrong], &input), interpret_programs(&[wrong], &input).0);
        }
    }
    assert!(seen > 100, "{seen} of 200");
}

/// Another interpreter yields the same results for the instructions that it supports.
#[test]
fn another_interpreter_says_the_same() {
    for seed in 0..1000 {
        let mut dice = Dice::new(seed + 1_000_000);
        let bytes = encode_insns(&random_program_in(Dialect::Old, &mut dice));
        let verified = verify_program(&bytes, rules_without_step_limit()).expect("accepted");
        let other = rbpf::EbpfVmRaw::new(Some(&bytes)).expect("a program");
        for _ in 0..3 {
            let input = random_input(&mut dice);
            let answer = run_both(&[verified], &input).answer;
            let mut frame: Vec<u8> =
                input.slots.iter().flat_map(|slot| slot.to_le_bytes()).collect();
            let expected = other.execute_program(&mut frame).expect("an answer");
            assert_eq!(answer, expected, "seed {seed}\n{}", format_listing(&bytes));
        }
    }
}

#[test]
fn damaged_programs_are_rejected_or_do_the_same_in_both_ways() {
    let mut accepted = 0;
    let mut rejected = 0;
    for seed in 0..6000 {
        let mut dice = Dice::new(seed << 32);
        let bytes = damage_program(&encode_insns(&random_program(&mut dice)), &mut dice);
        match verify_program(&bytes, rules_without_step_limit()) {
            Ok(verified) => {
                run_both(&[verified], &random_input(&mut dice));
                accepted += 1;
            }
            Err(rejection) => {
                assert!(rejection.insn < bytes.len() / INSN_BYTES);
                assert!(!rejection.to_string().is_empty());
                rejected += 1;
            }
        }
    }
    assert!(accepted > 500 && rejected > 500, "{accepted} accepted, {rejected} rejected");
}

#[test]
fn random_bytes_are_rejected_or_do_the_same_in_both_ways() {
    const OPERATIONS: [u8; 10] = [0x79, 0x7b, 0xb7, 0xbf, 0x0f, 0x07, 0x15, 0x85, 0x61, 0x95];
    let mut accepted = 0;
    for seed in 0..60_000 {
        let mut dice = Dice::new(!seed);
        let count = 1 + dice.next_below(6);
        let mut bytes = Vec::new();
        for _ in 0..count {
            let (registers, offset) = (dice.next_below(3), dice.next_below(4) * 8);
            let op = if dice.next_below(8) == 0 { dice.roll() as u8 } else { dice.of(&OPERATIONS) };
            bytes.extend([op, (registers | dice.next_below(2) << 4) as u8]);
            let offset = if dice.next_below(2) == 0 { 0 } else { offset as i16 - 8 };
            bytes.extend(offset.to_le_bytes());
            bytes.extend(if dice.next_below(2) == 0 {
                [0; 4]
            } else {
                [dice.next_below(24) as u8, 0, 0, 0]
            });
        }
        // Appends an exit, so that the program can end.
        bytes.extend([0xb7, 0, 0, 0, 1, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0]);
        if let Ok(verified) = verify_program(&bytes, rules_without_step_limit()) {
            run_both(&[verified], &random_input(&mut dice));
            accepted += 1;
        }
    }
    assert!(accepted > 500, "{accepted} accepted");
}
