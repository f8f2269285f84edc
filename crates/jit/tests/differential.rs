//! Random programs, interpreted and as machine code: same answers, same state behind them, steps
//! within what the verifier has said. Programs that keep the rules by their making are accepted;
//! of damaged ones, and of random bytes, whatever is accepted runs, with pages without access
//! beside the frame and beside what its words speak of.

mod common;

use common::generate::{Dialect, Dice, SLOTS, damaged, input, program, program_in};
use common::{bytes, executed, interpreted, listing, run_both, verified};
use trackway_jit::insn::{INSN_BYTES, alu, class};
use trackway_jit::verify::Rules;

/// Rules for programs whose steps are counted with 4,096 elements for each `any`, which their
/// sequences have not.
fn rules() -> Rules {
    Rules { steps_max: u64::MAX, ..Rules::new(SLOTS as usize) }
}

#[test]
fn random_programs_do_the_same_in_both_ways() {
    for seed in 0..1500 {
        let mut dice = Dice::new(seed);
        let bytes = bytes(&program(&mut dice));
        let verified = verified(&bytes, rules()).unwrap_or_else(|rejection| {
            panic!("seed {seed}: {rejection}\n{}", listing(&bytes));
        });
        for _ in 0..3 {
            run_both(&[verified], &input(&mut dice));
        }
    }
}

/// With one instruction of another meaning in one of the two, the comparison above must differ.
#[test]
fn a_difference_is_seen() {
    let mut seen = 0;
    for seed in 0..200 {
        let mut dice = Dice::new(seed);
        let right = program(&mut dice);
        let mut wrong = right.clone();
        let last = wrong.iter_mut().rev().find(|insn| insn.op == class::ALU64 | alu::MUL);
        last.expect("programs end in some").op = class::ALU64 | alu::XOR;
        let (right, wrong) = (bytes(&right), bytes(&wrong));
        let [right, wrong] =
            [&right, &wrong].map(|bytes| verified(bytes, rules()).expect("accepted"));
        let input = input(&mut dice);
        let (expected, _) = interpreted(&[right], &input);
        seen += u64::from(interpreted(&[wrong], &input).0 != expected);
        if cfg!(target_arch = "x86_64") {
            assert_eq!(executed(&[right], &input), expected, "seed {seed}");
            assert_eq!(executed(&[wrong], &input), interpreted(&[wrong], &input).0);
        }
    }
    assert!(seen > 100, "{seen} of 200");
}

/// Results of another interpreter are the same for the instructions that it supports.
#[test]
fn another_interpreter_says_the_same() {
    for seed in 0..1000 {
        let mut dice = Dice::new(seed + 1_000_000);
        let bytes = bytes(&program_in(Dialect::Old, &mut dice));
        let verified = verified(&bytes, rules()).expect("accepted");
        let other = rbpf::EbpfVmRaw::new(Some(&bytes)).expect("a program");
        for _ in 0..3 {
            let input = input(&mut dice);
            let answer = run_both(&[verified], &input).answer;
            let mut frame: Vec<u8> =
                input.slots.iter().flat_map(|slot| slot.to_le_bytes()).collect();
            let expected = other.execute_program(&mut frame).expect("an answer");
            assert_eq!(answer, expected, "seed {seed}\n{}", listing(&bytes));
        }
    }
}

#[test]
fn damaged_programs_are_rejected_or_do_the_same_in_both_ways() {
    let mut accepted = 0;
    let mut rejected = 0;
    for seed in 0..6000 {
        let mut dice = Dice::new(seed << 32);
        let bytes = damaged(&bytes(&program(&mut dice)), &mut dice);
        match verified(&bytes, rules()) {
            Ok(verified) => {
                run_both(&[verified], &input(&mut dice));
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
        // Nothing ends without an end.
        bytes.extend([0xb7, 0, 0, 0, 1, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0]);
        if let Ok(verified) = verified(&bytes, rules()) {
            run_both(&[verified], &input(&mut dice));
            accepted += 1;
        }
    }
    assert!(accepted > 500, "{accepted} accepted");
}
