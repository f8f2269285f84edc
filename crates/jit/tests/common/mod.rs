//! Helpers of the tests that run programs: pages, frames, and both ways to run.
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

/// A program's bytes.
pub(crate) fn encode_insns(insns: &[Insn]) -> Vec<u8> {
    insns.iter().flat_map(|insn| insn.encode()).collect()
}

/// Verifies with as much memory as can be needed.
pub(crate) fn verify_program(bytes: &[u8], rules: Rules) -> Result<Verified<'_>, Rejection> {
    let program = Program::new(bytes).expect("1 to 4096 instructions");
    let mut memory = vec![State::FREE; program.len()];
    verify(program, rules, &mut memory)
}

/// Returns the program as text, for the message of a failed test.
pub(crate) fn format_listing(bytes: &[u8]) -> String {
    Program::new(bytes).map_or(String::new(), |program| Listing(program).to_string())
}

thread_local! {
    /// Last values of clock and dice; both advance by a step each time.
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

/// The input of programs.
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

/// The effect of a run, and the contents of the cells after it.
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

/// The same, if the frame is one for these programs.
pub(crate) fn try_interpret_programs(
    programs: &[Verified<'_>],
    input: &Input,
) -> Result<(Effect, Outcome), Fault> {
    let cells = prepare_cells(input);
    let environment = Environment::new(&input.constants, &cells, time_ns, next_random);
    let outcome = interpret::run(programs, &fill_frame(&environment, input))?;
    Ok((collect_effect(outcome.answer, &cells), outcome))
}

/// A program's machine code, with the place of each instruction's.
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

    /// Runs it on a frame that nothing is around.
    pub(crate) fn run(&self, input: &Input) -> u64 {
        self.run_of(input.slots.len(), input)
    }

    /// The same, for a program of so many slots.
    pub(crate) fn run_of(&self, slots: usize, input: &Input) -> u64 {
        let cells = prepare_cells(input);
        let environment = Environment::new(&input.constants, &cells, time_ns, next_random);
        let frame = fill_frame(&environment, input);
        // SAFETY: the program's own code; its callers have verified it for this many slots.
        unsafe { frame.run(self.entry(), slots) }
    }

    pub(crate) fn entry(&self) -> Entry {
        let start = self.pages.start();
        // SAFETY: the pages hold the machine code of a program from its beginning.
        unsafe { std::mem::transmute::<*const u8, Entry>(start) }
    }
}

/// Runs an alternative's programs as machine code. The frame ends where a page without access
/// begins, and so do the bytes that its words speak of.
pub(crate) fn execute_programs(programs: &[Verified<'_>], input: &Input) -> Effect {
    let machines: Vec<Machine> = programs.iter().map(Machine::new).collect();
    let entries: Vec<Option<Entry>> =
        machines.iter().map(|machine| Some(machine.entry())).collect();
    let cells = prepare_cells(input);
    let (bytes, constants) = (GuardedBytes::new(&input.bytes), GuardedBytes::new(&input.constants));
    let environment = Environment::new(constants.bytes(), &cells, time_ns, next_random);
    // SAFETY: the entries are the programs' own code, and stay until the end of this function.
    let environment = unsafe { environment.with_entries(&entries) };
    let input = Input { bytes: Vec::new(), ..input.clone() };
    let mut frame = Frame::new(&environment, bytes.bytes());
    for &slot in &input.slots {
        assert!(frame.push(slot), "at most 64 slots");
    }
    let frame = GuardedValue::new(frame);
    let slots = programs[0].rules().slots;
    // SAFETY: the code of the first program, verified for so many slots.
    let answer = unsafe { frame.get().run(machines[0].entry(), slots) };
    collect_effect(answer, &cells)
}

/// Verifies and runs a program in both ways; its answer, which is the same.
///
/// # Panics
/// If it is rejected, or if the ways differ.
#[track_caller]
pub(crate) fn verify_and_run(insns: &[Insn], input: &Input) -> u64 {
    let bytes = encode_insns(insns);
    let verified = match verify_program(&bytes, Rules::new(input.slots.len())) {
        Ok(verified) => verified,
        Err(rejection) => panic!("{rejection}\n{}", format_listing(&bytes)),
    };
    run_both(&[verified], input).answer
}

/// Runs programs in both ways; what came of it, which is the same.
///
/// # Panics
/// If the ways differ, or if there were more steps than the verifier has said.
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
