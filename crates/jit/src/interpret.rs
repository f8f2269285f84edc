//! The interpreter: where no machine code is to be had, and what machine code is held against.
//!
//! No unsafe code: pointers are numbers that only this file understands, and each access is looked
//! at again, although the verifier has done so. What helpers do is not said twice: they are the
//! same functions that machine code calls.

use core::fmt;
use core::ops::Range;

use crate::alu;
use crate::frame::Frame;
use crate::helper::Helper;
use crate::insn::{
    CALL, EXIT, Insn, LDDW, LDDW_FUNCTION, REGISTERS, STACK_END, call, class, mode, source,
};
use crate::verify::{Function, Verified, jump_target, size_bytes, target};
use crate::{DEPTH_MAX, SLOTS_MAX, STACK_BYTES};

/// Where the frame is.
const FRAME_ADDRESS: u64 = 1 << 40;
/// Where the stack ends.
const STACK_ADDRESS: u64 = 2 << 40;
/// Where functions are: so many instructions behind this.
const FUNCTION_ADDRESS: u64 = 3 << 40;

/// What a program came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Its answer: not zero records.
    pub answer: u64,
    /// Instructions that were carried out.
    pub steps: u64,
}

/// What a verified program does not do. If it happens, verifier or interpreter are wrong; the event
/// is not recorded then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// There is no program, or the frame has fewer slots than the program was verified for.
    NotReady,
    /// This instruction of the program is none, or goes where nothing is.
    At(usize),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReady => f.write_str("no program for a frame with these slots"),
            Self::At(insn) => write!(f, "instruction {insn} does what verified programs do not"),
        }
    }
}

impl core::error::Error for Fault {}

/// Runs the first of an alternative's programs, and those that it makes tail calls to.
///
/// # Errors
/// If the frame does not fit; nothing else, as long as verifier and interpreter agree.
pub fn run(programs: &[Verified<'_>], frame: &Frame<'_>) -> Result<Outcome, Fault> {
    let mut steps = 0;
    let mut number = 0;
    // A tail call goes to a later program only.
    loop {
        let verified = programs.get(number).ok_or(Fault::NotReady)?;
        if verified.rules().slots > frame.slots().len() {
            return Err(Fault::NotReady);
        }
        let programs = programs.len();
        let mut machine =
            Machine { verified, frame, programs, number, stack: [0; STACK_BYTES], steps };
        let first = verified.functions().first().ok_or(Fault::NotReady)?;
        let end = machine.function(first, [FRAME_ADDRESS, 0, 0, 0, 0], STACK_ADDRESS, 1)?;
        steps = machine.steps;
        match end {
            End::Answer(answer) => return Ok(Outcome { answer, steps }),
            End::Tail(next) => number = next,
        }
    }
}

/// How a function ends.
enum End {
    Answer(u64),
    /// With another program.
    Tail(usize),
}

/// One program at work.
struct Machine<'a, 'p> {
    verified: &'a Verified<'p>,
    frame: &'a Frame<'a>,
    programs: usize,
    number: usize,
    stack: [u8; STACK_BYTES],
    steps: u64,
}

/// A function at work.
struct Call<'f> {
    function: &'f Function,
    registers: [u64; REGISTERS],
    depth: usize,
}

impl Call<'_> {
    fn get(&self, register: u8) -> u64 {
        self.registers.get(usize::from(register)).copied().unwrap_or(0)
    }

    fn set(&mut self, register: u8, value: u64) {
        if let Some(there) = self.registers.get_mut(usize::from(register)) {
            *there = value;
        }
    }

    /// The place in the stack of what is at an address, if that is the function's own.
    fn stack(&self, address: u64, size: usize) -> Option<Range<usize>> {
        let end = self.get(STACK_END);
        let below = usize::try_from(end.checked_sub(address)?).ok()?;
        let own = size <= below && below <= self.function.stack_bytes.into();
        let above = usize::try_from(STACK_ADDRESS.checked_sub(end)?).ok()?;
        let start = STACK_BYTES.checked_sub(above.checked_add(below)?)?;
        own.then_some(start..start + size)
    }

    /// The second operand of arithmetic or a jump.
    fn operand(&self, insn: Insn) -> u64 {
        if insn.op & source::X != 0 { self.get(insn.src) } else { insn.immediate as i64 as u64 }
    }
}

impl<'a> Machine<'a, '_> {
    /// Runs a function whose stack ends at `stack_end`.
    fn function(
        &mut self,
        function: &'a Function,
        arguments: [u64; 5],
        stack_end: u64,
        depth: usize,
    ) -> Result<End, Fault> {
        if depth > DEPTH_MAX {
            return Err(Fault::At(function.start.into()));
        }
        let mut call = Call { function, registers: [0; REGISTERS], depth };
        call.registers[1..=5].copy_from_slice(&arguments);
        call.set(STACK_END, stack_end);
        let mut index = usize::from(function.start);
        // Each turn goes forward within the function.
        while function.range().contains(&index) {
            let insn = self.verified.program().insn(index);
            self.steps += 1;
            match insn.op {
                EXIT => return Ok(End::Answer(call.get(0))),
                CALL => {
                    if let Some(tail) = self.call(index, insn, &mut call)? {
                        return Ok(End::Tail(tail));
                    }
                    index += 1;
                }
                _ => index = self.step(index, insn, &mut call).ok_or(Fault::At(index))?,
            }
        }
        Err(Fault::At(index))
    }

    /// Carries out an instruction; the index of the next.
    fn step(&mut self, index: usize, insn: Insn, call: &mut Call<'_>) -> Option<usize> {
        let mut next = index + insn.width();
        match insn.class() {
            class::LD if insn.op == LDDW => {
                let value = match insn.src {
                    LDDW_FUNCTION => FUNCTION_ADDRESS.checked_add_signed(target(index, insn)?)?,
                    _ => self.verified.program().wide(index),
                };
                call.set(insn.dst, value);
            }
            class::LDX => {
                let address = call.get(insn.src).wrapping_add(insn.offset as u64);
                let value = self.load(call, address, size_bytes(insn))?;
                let is_signed = insn.op & 0xe0 == mode::MEMSX;
                let bits = 8 * u32::from(size_bytes(insn));
                call.set(insn.dst, if is_signed { alu::extend(value, bits) } else { value });
            }
            class::ST | class::STX => {
                let is_register = insn.class() == class::STX;
                let immediate = insn.immediate as i64 as u64;
                let value = if is_register { call.get(insn.src) } else { immediate };
                let address = call.get(insn.dst).wrapping_add(insn.offset as u64);
                let size = size_bytes(insn).into();
                let value = value.to_le_bytes();
                let place = call.stack(address, size)?;
                self.stack.get_mut(place)?.copy_from_slice(value.get(..size)?);
            }
            class::ALU | class::ALU64 => {
                let value = alu::arithmetic(insn, call.get(insn.dst), call.operand(insn))?;
                call.set(insn.dst, value);
            }
            class::JMP | class::JMP32 => {
                if alu::is_taken(insn, call.get(insn.dst), call.operand(insn))? {
                    next = usize::try_from(jump_target(index, insn)).ok()?;
                }
            }
            _ => return None,
        }
        (next > index).then_some(next)
    }

    fn load(&self, call: &Call<'_>, address: u64, size: u8) -> Option<u64> {
        let size = usize::from(size);
        let mut value = [0; 8];
        let loaded = value.get_mut(..size)?;
        let frame = address.checked_sub(FRAME_ADDRESS).and_then(|o| usize::try_from(o).ok());
        if let Some(offset) = frame.filter(|&offset| offset < 8 * SLOTS_MAX) {
            let slot = self.frame.slots().get(offset / 8)?.to_le_bytes();
            loaded.copy_from_slice(slot.get(offset % 8..offset % 8 + size)?);
        } else {
            loaded.copy_from_slice(self.stack.get(call.stack(address, size)?)?);
        }
        Some(u64::from_le_bytes(value))
    }

    /// Calls a helper or a function; the program that goes on in this one's place, if there is one.
    fn call(
        &mut self,
        index: usize,
        insn: Insn,
        call: &mut Call<'_>,
    ) -> Result<Option<usize>, Fault> {
        let fault = Fault::At(index);
        let arguments = [1, 2, 3, 4, 5].map(|register| call.get(register));
        let [_, a, b, c, _] = arguments;
        let mut keeps_frame = false;
        let answer = if insn.src == call::FUNCTION {
            let start = target(index, insn).and_then(|start| usize::try_from(start).ok());
            self.enter(start.ok_or(fault)?, arguments, call, fault)?
        } else {
            match Helper::from_number(insn.immediate).ok_or(fault)? {
                Helper::Any => self.any([a, b, c], call, fault)?,
                Helper::TailCall => {
                    let later = (self.number as u64) < a && a < self.programs as u64;
                    match usize::try_from(a) {
                        Ok(number) if later => return Ok(Some(number)),
                        _ => 0,
                    }
                }
                helper => {
                    keeps_frame = helper.keeps_frame();
                    self.frame.help(helper, a, b, c)
                }
            }
        };
        // What calls lose is not left for anybody to find.
        let lost = if keeps_frame { 2..=5 } else { 1..=5 };
        call.registers[lost].fill(0);
        call.set(0, answer);
        Ok(None)
    }

    /// Runs the function that begins at `start`, below the stack of who calls it.
    fn enter(
        &mut self,
        start: usize,
        arguments: [u64; 5],
        caller: &Call<'_>,
        fault: Fault,
    ) -> Result<u64, Fault> {
        let verified = self.verified;
        let function = verified.functions.at(start).and_then(|at| verified.functions().get(at));
        let stack_end = caller.get(STACK_END) - u64::from(caller.function.stack_bytes);
        let function = function.ok_or(fault)?;
        match self.function(function, arguments, stack_end, caller.depth + 1)? {
            End::Answer(answer) => Ok(answer),
            End::Tail(_) => Err(fault),
        }
    }

    fn any(
        &mut self,
        [word, scalar, function]: [u64; 3],
        caller: &Call<'_>,
        fault: Fault,
    ) -> Result<u64, Fault> {
        let start = function.checked_sub(FUNCTION_ADDRESS).ok_or(fault)? as usize;
        let mut failed = None;
        let frame = self.frame;
        let answer = frame.any(word, scalar, |element| {
            let arguments = [FRAME_ADDRESS, element, 0, 0, 0];
            self.enter(start, arguments, caller, fault).unwrap_or_else(|fault| {
                failed = Some(fault);
                1
            })
        });
        failed.map_or(Ok(answer), Err)
    }
}
