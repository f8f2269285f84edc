//! Helpers for tests that run programs: memory pages, frames, interpreter and machine code.
#![allow(dead_code, reason = "each test binary uses a part")]

pub(crate) mod asm;
pub(crate) mod generate;

use std::cell::Cell as Local;
use std::sync::atomic::Ordering;

use trackway_jit::frame::{Cell, Entry, Environment, Frame};
use trackway_jit::insn::Insn;
use trackway_jit::interpret::{self, Fault, Outcome};
use trackway_jit::listing::Listing;
use trackway_jit::program::Program;
use trackway_jit::verify::{Rejection, Rules, State, Verified, verify};
use trackway_jit::x86::{self, INSN_CODE_BYTES_MAX};
use trackway_testkit::{Executable, GuardedBytes, GuardedValue};

/// Encodes a program.
pub(crate) fn encode_insns(insns: &[Insn]) -> Vec<u8> {
    insns.iter().flat_map(|insn| insn.encode()).collect()
}

/// Verifies a program, with as much memory as it may need.
pub(crate) fn verify_program(bytes: &[u8], rules: Rules) -> Result<Verified<'_>, Rejection> {
    let program = Program::new(bytes).expect("1 to 4096 instructions");
    let mut memory = vec![State::FREE; program.len()];
    verify(program, rules, &mut memory)
}

/// Formats a program for the message of a failed test.
pub(crate) fn format_listing(bytes: &[u8]) -> String {
    Program::new(bytes).map_or(String::new(), |program| Listing(program).to_string())
}

thread_local! {
    /// Last values of the clock and the random source; both advance by a step at each call.
    static TIME_NS: Local<u64> = const { Local::new(0) };
    static RANDOM: Local<u64> = const { Local::new(0) };
}

extern "C" fn time_ns() -> u64 {
    TIME_NS.set(TIME_NS.get() + 7);
    TIME_NS.get()
}

extern "C" fn next_random() -> u64 {
    RANDOM.set(RANDOM.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    RANDOM.get()
}

/// Input of a program.
#[derive(Debug, Clone, Default)]
pub(crate) struct Input {
    pub(crate) slots: Vec<u64>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) constants: Vec<u8>,
    pub(crate) cells: Vec<u64>,
}

impl Input {
    pub(crate) fn of_slots(slots: &[u64]) -> Self {
        Self { slots: slots.to_vec(), ..Self::default() }
    }
}

/// The observable effect of a run: the answer, and the contents of the cells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Effect {
    pub(crate) answer: u64,
    pub(crate) cells: Vec<u64>,
}

fn prepare_cells(input: &Input) -> Vec<Cell> {
    TIME_NS.set(1_000_000);
    RANDOM.set(42);
    input.cells.iter().map(|&cell| Cell::new(cell)).collect()
}

fn collect_effect(answer: u64, cells: &[Cell]) -> Effect {
    Effect { answer, cells: cells.iter().map(|cell| cell.load(Ordering::Relaxed)).collect() }
}

fn fill_frame<'a>(environment: &'a Environment<'a>, input: &'a Input) -> Frame<'a> {
    let mut frame = Frame::new(environment, &input.bytes);
    for &slot in &input.slots {
        assert!(frame.push(slot), "at most 64 slots");
    }
    frame
}

/// Interprets an alternative's programs.
pub(crate) fn interpret_programs(programs: &[Verified<'_>], input: &Input) -> (Effect, Outcome) {
    try_interpret_programs(programs, input).expect("no fault")
}

/// Interprets programs like [`interpret_programs`], and returns an error if the frame does not fit.
pub(crate) fn try_interpret_programs(
    programs: &[Verified<'_>],
    input: &Input,
) -> Result<(Effect, Outcome), Fault> {
    let cells = prepare_cells(input);
    let environment = Environment::new(&input.constants, &cells, time_ns, next_random);
    let outcome = interpret::run(programs, &fill_frame(&environment, input))?;
    Ok((collect_effect(outcome.answer, &cells), outcome))
}

/// Machine code of a program, with the offset of each instruction's code.
pub(crate) struct Machine {
    pub(crate) code: Vec<u8>,
    pub(crate) places: Vec<u32>,
    pages: Executable,
}

impl Machine {
    pub(crate) fn new(verified: &Verified<'_>) -> Self {
        let len = verified.program().len();
        let mut code = vec![0xcc; len * INSN_CODE_BYTES_MAX];
        let mut places = vec![0; len + 1];
        let size = x86::emit_program(verified, &mut code, &mut places).expect("room").size_bytes;
        code.truncate(size);
        let pages = Executable::new(&code);
        Self { code, places, pages }
    }

    /// Runs the code on a frame without surrounding guard pages.
    pub(crate) fn run(&self, input: &Input) -> u64 {
        self.run_of(input.slots.len(), input)
    }

    /// Runs the code like [`Self::run`], for a program verified for `slots` slots.
    pub(crate) fn run_of(&self, slots: usize, input: &Input) -> u64 {
        let cells = prepare_cells(input);
        let environment = Environment::new(&input.constants, &cells, time_ns, next_random);
        let frame = fill_frame(&environment, input);
        // SAFETY: the code belongs to the program, which the callers verified for this many slots.
        unsafe { frame.run(self.entry(), slots) }
    }

    pub(crate) fn entry(&self) -> Entry {
        let start = self.pages.start();
        // SAFETY: the pages hold the machine code of a program from its beginning.
        unsafe { std::mem::transmute::<*const u8, Entry>(start) }
    }
}

/// Runs an alternative's programs as machine code. The frame ends at a guard page, and so do the
/// bytes that its words refer to.
pub(crate) fn execute_programs(programs: &[Verified<'_>], input: &Input) -> Effect {
    let machines: Vec<Machine> = programs.iter().map(Machine::new).collect();
    let entries: Vec<Option<Entry>> =
        machines.iter().map(|machine| Some(machine.entry())).collect();
    let cells = prepare_cells(input);
    let (bytes, constants) = (GuardedBytes::new(&input.bytes), GuardedBytes::new(&input.constants));
    let environment = Environment::new(constants.bytes(), &cells, time_ns, next_random);
    // SAFETY: the entries are the programs' own code, and live until the end of this function.
    let environment = unsafe { environment.with_entries(&entries) };
    let input = Input { bytes: Vec::new(), ..input.clone() };
    let mut frame = Frame::new(&environment, bytes.bytes());
    for &slot in &input.slots {
        assert!(frame.push(slot), "at most 64 slots");
    }
    let frame = GuardedValue::new(frame);
    let slots = programs[0].rules().slots;
    // SAFETY: the code belongs to the first program, which was verified for this many slots.
    let answer = unsafe { frame.get().run(machines[0].entry(), slots) };
    collect_effect(answer, &cells)
}

/// Verifies a program, runs it in interpreter and machine code, and returns the common answer.
///
/// # Panics
/// Panics if the program is rejected, or if the answers differ.
#[track_caller]
pub(crate) fn verify_and_run(insns: &[Insn], input: &Input) -> u64 {
    let bytes = encode_insns(insns);
    let verified = match verify_program(&bytes, Rules::new(input.slots.len())) {
        Ok(verified) => verified,
        Err(rejection) => panic!("{rejection}\n{}", format_listing(&bytes)),
    };
    run_both(&[verified], input).answer
}

/// Runs programs in interpreter and machine code, and returns the common effect.
///
/// # Panics
/// Panics if the effects differ, or if more steps run than the verifier computed.
#[track_caller]
pub(crate) fn run_both(programs: &[Verified<'_>], input: &Input) -> Effect {
    let (interpreted, outcome) = interpret_programs(programs, input);
    let steps: u64 = programs.iter().map(|program| program.summary().steps).sum();
    assert!(outcome.steps <= steps, "{} steps of {steps}", outcome.steps);
    if cfg!(target_arch = "x86_64") {
        let shown = || format_listing(programs[0].program().bytes());
        let executed = execute_programs(programs, input);
        assert_eq!(executed, interpreted, "left: machine code; right: interpreter\n{}", shown());
    }
    interpreted
}
