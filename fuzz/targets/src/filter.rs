//! An object's bytes, as a traced program gets them: decoded, verified, interpreted, and run as
//! machine code, with the same result.
//!
//! The frame and the data of its words end directly before a guard page.

use trackway_jit::block::Block;
use trackway_jit::frame::{Cell, Entry, Environment, Frame};
use trackway_jit::interpret;
use trackway_jit::object::{Alternative, Object};
use trackway_jit::program::Program;
use trackway_jit::verify::{Rules, State, Verified, verify};
use trackway_jit::x86::{self, EmitError, INSN_CODE_BYTES_MAX};
use trackway_jit::{SLOTS_MAX, STEPS_MAX};
use trackway_testkit::{Executable, GuardedBytes, GuardedValue, Random};

use crate::Bound;

/// Limit of steps: a program has at least 16 bytes.
pub(crate) const STEPS: Bound = Bound { per_byte: STEPS_MAX / 16, base: 0 };
/// Limit of memory: a verifier state and code for each instruction. A program's memory is released
/// before the next program.
pub(crate) const MEMORY: Bound = Bound { per_byte: 256, base: 4 << 20 };
pub(crate) const ALLOCATIONS: Bound = Bound { per_byte: 4, base: 16 };
/// Number of bytes that words refer to.
const WORD_DATA_BYTES: usize = 256;

/// Decodes and runs an object, or all objects of a block. The work is the number of steps.
pub fn run_filters(bytes: &[u8]) -> u64 {
    match Block::decode(bytes) {
        Ok(block) => block.entries().map(|entry| run_object(entry.object)).sum(),
        Err(error) => {
            assert!(error.offset <= bytes.len() && !error.to_string().is_empty());
            run_object(bytes)
        }
    }
}

fn run_object(bytes: &[u8]) -> u64 {
    let object = match Object::decode(bytes) {
        Ok(object) => object,
        Err(error) => {
            assert!(error.offset <= bytes.len() && !error.to_string().is_empty());
            return 0;
        }
    };
    object.alternatives().map(|alternative| run_alternative(&object, &alternative)).sum()
}

/// Runs an alternative's entry program, if all of the alternative's programs are accepted.
fn run_alternative(object: &Object<'_>, alternative: &Alternative<'_>) -> u64 {
    let slots = alternative.needs_count();
    let programs = (0..).zip(alternative.programs()).map(|(number, program)| {
        let rules = Rules { number, ..Rules::new(slots) };
        verify_program(program, rules)
    });
    let Some(programs) = programs.collect::<Option<Vec<_>>>() else { return 0 };
    let (interpreted, steps) = interpret_programs(&programs, object, alternative);
    let most: u64 = programs.iter().map(|program| program.summary().steps).sum();
    assert!(steps <= most, "{steps} steps of {most}");
    if let Some(executed) = execute_programs(&programs, object, alternative) {
        assert_eq!(executed, interpreted, "left: machine code; right: interpreter");
    }
    steps
}

fn verify_program(program: Program<'_>, rules: Rules) -> Option<Verified<'_>> {
    let mut memory = vec![State::FREE; program.len()];
    match verify(program, rules, &mut memory) {
        Ok(verified) => Some(verified),
        Err(rejection) => {
            assert!(rejection.insn < program.len() && !rejection.to_string().is_empty());
            None
        }
    }
}

/// Answer of a program, and the cells after its run.
type Effect = (u64, Vec<u64>);

fn collect_effect(answer: u64, cells: Vec<Cell>) -> Effect {
    (answer, cells.into_iter().map(Cell::into_inner).collect())
}

fn make_cells(object: &Object<'_>) -> Vec<Cell> {
    (0..object.cells()).map(|_| Cell::new(0)).collect()
}

extern "C" fn return_constant() -> u64 {
    0x0123_4567_89ab_cdef
}

/// Returns bytes for words, and slots, half of which are valid words.
fn random_input() -> (Vec<u8>, [u64; SLOTS_MAX]) {
    let mut random = Random::new(0);
    let bytes = (0..WORD_DATA_BYTES).map(|_| *random.pick(b"aab*/\0")).collect();
    let slots = std::array::from_fn(|slot| match slot % 2 {
        0 => random.next_below(WORD_DATA_BYTES as u64) | random.next_below(32) << 32,
        _ => random.next() >> random.next_below(64),
    });
    (bytes, slots)
}

fn fill_frame<'a>(environment: &'a Environment<'a>, bytes: &'a [u8], slots: &[u64]) -> Frame<'a> {
    let mut frame = Frame::new(environment, bytes);
    for &slot in slots {
        assert!(frame.push(slot), "no more than there may be");
    }
    frame
}

fn interpret_programs(
    programs: &[Verified<'_>],
    object: &Object<'_>,
    alternative: &Alternative<'_>,
) -> (Effect, u64) {
    let cells = make_cells(object);
    let environment =
        Environment::new(alternative.constants(), &cells, return_constant, return_constant);
    let (bytes, slots) = random_input();
    let frame = fill_frame(&environment, &bytes, &slots[..alternative.needs_count()]);
    let outcome = interpret::run(programs, &frame).expect("verified programs have no faults");
    (collect_effect(outcome.answer, cells), outcome.steps)
}

/// Runs the machine code; returns `None` on processors without machine code.
#[expect(unsafe_code, reason = "machine code runs")]
fn execute_programs(
    programs: &[Verified<'_>],
    object: &Object<'_>,
    alternative: &Alternative<'_>,
) -> Option<Effect> {
    let code: Vec<Executable> = programs.iter().map(compile_program).collect::<Option<_>>()?;
    let entry = |code: &Executable| {
        // SAFETY: the pages start with the machine code of a program.
        Some(unsafe { std::mem::transmute::<*const u8, Entry>(code.start()) })
    };
    let entries: Vec<Option<Entry>> = code.iter().map(entry).collect();
    let cells = make_cells(object);
    let (bytes, slots) = random_input();
    let (bytes, constants) =
        (GuardedBytes::new(&bytes), GuardedBytes::new(alternative.constants()));
    let environment = Environment::new(constants.bytes(), &cells, return_constant, return_constant);
    // SAFETY: the entries are the programs' own code, verified for the frame's slots, and live
    // until the end of this function.
    let environment = unsafe { environment.with_entries(&entries) };
    let slots = &slots[..alternative.needs_count()];
    let frame = GuardedValue::new(fill_frame(&environment, bytes.bytes(), slots));
    // SAFETY: the code belongs to a program verified for this many slots.
    let answer = unsafe { frame.get().run(entries.first().copied()??, programs[0].rules().slots) };
    Some(collect_effect(answer, cells))
}

fn compile_program(program: &Verified<'_>) -> Option<Executable> {
    let len = program.program().len();
    let (mut code, mut places) = (vec![0; len * INSN_CODE_BYTES_MAX], vec![0; len + 1]);
    match x86::emit_program(program, &mut code, &mut places) {
        Ok(emitted) => Some(Executable::new(&code[..emitted.size_bytes])),
        Err(EmitError::Unsupported) => None,
        Err(EmitError::NoRoom) => panic!("there is room for as much as there can be"),
    }
}
