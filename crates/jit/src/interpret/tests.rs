//! Programs that the verifier rejects, to test the interpreter's own checks of each access. Also
//! tests the step limit, which the interpreter does not count at each step.

extern crate std;

use std::vec;
use std::vec::Vec;

use super::{Fault, Outcome, run};
use crate::frame::{Environment, Frame};
use crate::insn::{EXIT, INSN_BYTES, Insn, LDDW, alu, class, jump, mode, size, source};
use crate::program::Program;
use crate::verify::{Rules, State, Verified, verify};

const MOV: u8 = class::ALU64 | source::K | alu::MOV;
const STORE: u8 = class::ST | mode::MEM | size::DW;
const EXIT_INSN: Insn = make_insn(EXIT, 0, 0, 0, 0);

const fn make_insn(op: u8, dst: u8, src: u8, offset: i16, immediate: i32) -> Insn {
    Insn { op, dst, src, offset, immediate }
}

const fn load_insn(size: u8, src: u8, offset: i16) -> Insn {
    make_insn(class::LDX | mode::MEM | size, 0, src, offset, 0)
}

const fn jump_insn(offset: i16) -> Insn {
    make_insn(class::JMP | jump::JA, 0, 0, offset, 0)
}

extern "C" fn return_zero() -> u64 {
    0
}

/// Runs unverified bytes in place of a verified program of the same length. The stack has 8 bytes
/// if `has_stack` is set.
fn run_unverified(bytes: &[u8], has_stack: bool) -> Result<Outcome, Fault> {
    let first = if has_stack { make_insn(STORE, 10, 0, -8, 1) } else { make_insn(MOV, 1, 0, 0, 1) };
    let mut other = vec![make_insn(MOV, 0, 0, 0, 0); bytes.len() / INSN_BYTES];
    other[0] = first;
    other.extend([make_insn(MOV, 0, 0, 0, 1), EXIT_INSN]);
    let other: Vec<u8> = other.iter().flat_map(|insn| insn.encode()).collect();
    let program = Program::new(&other).expect("a program");
    let verified = verify(program, Rules::new(2), &mut [State::FREE; 4]).expect("accepted");
    // Keeps the original instructions after `bytes`: the function's length is fixed.
    let bytes = [bytes, &other[bytes.len()..]].concat();
    let verified = Verified { program: Program::new(&bytes).expect("a program"), ..verified };
    let environment = Environment::new(&[], &[], return_zero, return_zero);
    let mut frame = Frame::new(&environment, &[]);
    let _ = [0x1122_3344_5566_7788, 2].map(|slot| frame.push(slot));
    run(&[verified], &frame)
}

fn run_insns(insns: &[Insn], has_stack: bool) -> Result<Outcome, Fault> {
    let bytes: Vec<u8> = insns.iter().flat_map(|insn| insn.encode()).collect();
    run_unverified(&bytes, has_stack)
}

#[test]
fn steps_are_those_that_were_taken() {
    let half = make_insn(0, 0, 0, 0, 0);
    for (insns, steps) in [
        (vec![make_insn(MOV, 0, 0, 0, 1), EXIT_INSN], 2),
        (vec![make_insn(LDDW, 0, 0, 0, 1), half, EXIT_INSN], 2),
        (vec![jump_insn(2), EXIT_INSN, EXIT_INSN, make_insn(MOV, 0, 0, 0, 1), EXIT_INSN], 3),
        (
            vec![jump_insn(0), make_insn(class::JMP | jump::JNE, 0, 0, 1, 0), EXIT_INSN, EXIT_INSN],
            3,
        ),
        (vec![make_insn(class::JMP | jump::JEQ, 0, 0, 1, 0), EXIT_INSN, EXIT_INSN], 2),
    ] {
        assert_eq!(run_insns(&insns, false).map(|outcome| outcome.steps), Ok(steps), "{insns:?}");
    }
}

#[test]
fn loads_are_within_the_frame_and_aligned() {
    for (load, answer) in [
        (load_insn(size::DW, 1, 8), Some(2)),
        (load_insn(size::W, 1, 4), Some(0x1122_3344)),
        (load_insn(size::H, 1, 2), Some(0x5566)),
        (load_insn(size::B, 1, 7), Some(0x11)),
        (load_insn(size::DW, 1, 16), None),
        (load_insn(size::DW, 1, 4), None),
        (load_insn(size::DW, 1, 1), None),
        (load_insn(size::DW, 1, -8), None),
        (load_insn(size::W, 1, 2), None),
        (load_insn(size::W, 1, 6), None),
        (load_insn(size::H, 1, 7), None),
        (load_insn(size::B, 1, 16), None),
        (load_insn(size::B, 1, -1), None),
        (load_insn(size::DW, 2, 0), None),
        (load_insn(size::DW, 15, 0), None),
        (load_insn(size::DW, 10, -8), None),
    ] {
        let result = run_insns(&[load, EXIT_INSN], false);
        assert_eq!(result.map(|outcome| outcome.answer), answer.ok_or(Fault::At(0)), "{load:?}");
    }
}

#[test]
fn stores_are_within_the_stack_of_programs_that_have_one() {
    for (register, offset, has_stack, is_done) in [
        (10, -8, true, true),
        (10, -8, false, false),
        (10, -16, true, false),
        (10, -4, true, false),
        (10, 0, true, false),
        (1, 0, true, false),
        (0, 0, true, false),
    ] {
        let result = run_insns(&[make_insn(STORE, register, 0, offset, 7), EXIT_INSN], has_stack);
        assert_eq!(result.is_ok(), is_done, "r{register} {offset} {has_stack}");
    }
}

#[test]
fn nothing_goes_backward_or_beyond_the_end() {
    for distance in [-1, -2, i16::MIN, 5, i16::MAX] {
        let program = [make_insn(MOV, 0, 0, 0, 1), jump_insn(distance), EXIT_INSN];
        assert_eq!(run_insns(&program, false), Err(Fault::At(1)), "{distance}");
    }
    let far = [make_insn(class::JMP32 | jump::JA, 0, 0, 0, -1), EXIT_INSN];
    assert_eq!(run_insns(&far, false), Err(Fault::At(0)));
}

/// The interpreter ends without a panic for any bytes.
#[test]
fn any_bytes_end() {
    let mut state = 1_u64;
    let mut roll = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.rotate_left(32)
    };
    let mut done = 0;
    for round in 0..100_000 {
        let mut bytes: Vec<u8> = (0..6).flat_map(|_| roll().to_le_bytes()).collect();
        for insn in bytes.chunks_exact_mut(INSN_BYTES) {
            // Usually stays close to valid instructions, so that programs run for a while.
            if roll() % 4 != 0 {
                insn[1] &= 0x11;
                insn[2..4].copy_from_slice(&(roll() as i16 % 12).to_le_bytes());
                insn[4..].copy_from_slice(&(roll() as i32 % 24).to_le_bytes());
            }
        }
        done += usize::from(run_unverified(&bytes, round % 2 == 0).is_ok());
    }
    assert!(done > 1000, "{done}");
}
