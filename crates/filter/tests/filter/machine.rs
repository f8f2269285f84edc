//! Runs filters like traced programs: decoded from bytes, verified, interpreted, and as machine
//! code where supported.

use std::cell::RefCell;
use std::sync::atomic::AtomicU64;

use trackway_filter::evaluate::Runtime as _;
use trackway_filter::object::{Alternative, Object};
use trackway_jit::frame::{Cell, Entry, Environment, Frame};
use trackway_jit::interpret;
use trackway_jit::object::Object as Read;
use trackway_jit::verify::{Rules, State, Verified, verify};
use trackway_jit::x86::{INSN_CODE_BYTES_MAX, emit_program};
use trackway_testkit::pages::Executable;

use super::event::Script;
use super::frame;

thread_local! {
    /// Script that provides the results of runtime helpers.
    static CURRENT_SCRIPT: RefCell<Script> = RefCell::new(Script::default());
}

extern "C" fn time_ns() -> u64 {
    CURRENT_SCRIPT.with(|runtime| runtime.borrow_mut().time_ns())
}

extern "C" fn random_bits() -> u64 {
    CURRENT_SCRIPT.with(|runtime| runtime.borrow_mut().random())
}

/// A filter decoded from its bytes, with separate state for interpreter and machine code.
pub(crate) struct Machine {
    bytes: Vec<u8>,
    code: Option<Executable>,
    cells: [Vec<Cell>; 2],
    runtimes: [Script; 2],
}

impl Machine {
    /// Prepares an object with one alternative to run with this script.
    pub(crate) fn new(cells: usize, alternative: &Alternative, runtime: &Script) -> Self {
        let object = Object { cells, alternatives: vec![alternative.clone()] };
        let bytes = object.encode().expect("an object");
        let state = || (0..cells).map(|_| AtomicU64::new(0)).collect();
        let mut machine = Self {
            bytes,
            code: None,
            cells: [state(), state()],
            runtimes: [runtime.clone(), runtime.clone()],
        };
        machine.code = machine.verified(|_, verified| compile_to_machine_code(verified));
        machine
    }

    fn verified<T>(&self, act: impl FnOnce(&[u8], &Verified<'_>) -> T) -> T {
        let object = Read::decode(&self.bytes).expect("an object");
        let alternative = object.alternatives().next().expect("an alternative");
        let program = alternative.programs().next().expect("a program");
        let mut states = vec![State::FREE; program.len() + 1];
        let verified = verify(program, Rules::new(alternative.needs_count()), &mut states);
        let verified = verified.unwrap_or_else(|rejection| panic!("{rejection}"));
        act(alternative.constants(), &verified)
    }

    /// Returns the answers of the interpreter and of the machine code, if there is any.
    pub(crate) fn answers(&mut self, frame: &frame::Frame, now: usize) -> [bool; 2] {
        let first = self.run_with_frame(0, frame, now, |verified, frame, _| {
            let outcome = interpret::run(std::slice::from_ref(verified), frame);
            outcome.expect("verified").answer != 0
        });
        let second = self.run_with_frame(1, frame, now, |verified, frame, code| match code {
            // SAFETY: `code` was emitted for this program, and starts with its entry function.
            Some(code) => unsafe {
                let entry = std::mem::transmute::<*const u8, Entry>(code.start());
                frame.run(entry, verified.rules().slots) != 0
            },
            None => first,
        });
        [first, second]
    }

    fn run_with_frame(
        &mut self,
        which: usize,
        from: &frame::Frame,
        now: usize,
        run: impl FnOnce(&Verified<'_>, &Frame<'_>, Option<&Executable>) -> bool,
    ) -> bool {
        self.runtimes[which].now = now;
        CURRENT_SCRIPT.with(|runtime| runtime.replace(self.runtimes[which].clone()));
        let answer = self.verified(|constants, verified| {
            let environment = Environment::new(constants, &self.cells[which], time_ns, random_bits);
            let mut frame = Frame::new(&environment, from.bytes());
            from.slots().iter().for_each(|slot| assert!(frame.push(*slot)));
            run(verified, &frame, self.code.as_ref())
        });
        self.runtimes[which] = CURRENT_SCRIPT.with(RefCell::take);
        answer
    }
}

/// Returns machine code of a program, if the processor is supported.
fn compile_to_machine_code(verified: &Verified<'_>) -> Option<Executable> {
    let count = verified.program().len();
    let mut buffer = vec![0; count * INSN_CODE_BYTES_MAX];
    let mut places = vec![0; count + 1];
    let size = emit_program(verified, &mut buffer, &mut places).ok()?.size_bytes;
    Some(Executable::new(&buffer[..size]))
}
