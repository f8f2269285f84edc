//! The interpreter: runs filters where machine code is unavailable; the reference for machine code.

use core::fmt;
use core::ops::Range;

use crate::alu;
use crate::frame::Frame;
use crate::helper::Helper;
use crate::insn::{
    CALL, EXIT, INSN_BYTES, Insn, LDDW, LDDW_FUNCTION, STACK_END, call, class, mode, size, source,
};
use crate::verify::{Function, Verified, jump_distance, referenced_function, size_bytes};
use crate::{DEPTH_MAX, STACK_BYTES};

/// Virtual address of the frame.
const FRAME_ADDRESS: u64 = 1 << 28;
/// Virtual address of the stack's end.
const STACK_ADDRESS: u64 = 2 << 28;
/// Virtual address of functions; the offset is the instruction's index.
const FUNCTION_ADDRESS: u64 = 3 << 28;

/// Loads a slot.
const LOAD_SLOT: u8 = class::LDX | mode::MEM | size::DW;
/// Loads half a slot: a string's length or offset.
const LOAD_HALF_SLOT: u8 = class::LDX | mode::MEM | size::W;

/// The outcome of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Result of the program; nonzero accepts the event.
    pub answer: u64,
    /// Number of executed instructions.
    pub steps: u64,
}

/// A fault that a verified program cannot cause; a bug of verifier or interpreter. The event is not
/// recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// There is no program, or the frame has fewer slots than the program was verified for.
    NotReady,
    /// The instruction with this index is invalid, or leads outside the program.
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

/// Runs the first program of an alternative, and the programs that it tail-calls.
///
/// # Errors
/// Returns an error if the frame does not fit. Other errors would be bugs.
pub fn run(programs: &[Verified<'_>], frame: &Frame<'_>) -> Result<Outcome, Fault> {
    let slots = frame.slots();
    let mut steps = 0;
    let mut number = 0;
    // Tail calls only go to later programs, so the loop ends.
    loop {
        let verified = programs.get(number).ok_or(Fault::NotReady)?;
        if verified.rules.slots > slots.len() {
            return Err(Fault::NotReady);
        }
        let programs = programs.len();
        let machine =
            Machine { verified, frame, slots, programs, number, stack: &mut [], steps: &mut steps };
        let end = match verified.summary.stack_bytes {
            0 => machine.begin()?,
            _ => machine.begin_with_stack()?,
        };
        match end {
            FunctionEnd::Answer(answer) => return Ok(Outcome { answer, steps }),
            FunctionEnd::Tail(next) => number = next,
        }
    }
}

/// The end of a function.
enum FunctionEnd {
    Answer(u64),
    /// A tail call to another program.
    Tail(usize),
}

/// The execution of a program.
struct Machine<'a, 'p> {
    verified: &'a Verified<'p>,
    frame: &'a Frame<'a>,
    /// Slots of the frame.
    slots: &'a [u64],
    programs: usize,
    number: usize,
    /// [`STACK_BYTES`] bytes, or an empty slice for a program without a stack.
    stack: &'a mut [u8],
    steps: &'a mut u64,
}

/// The registers, padded to 16 so that a four-bit number needs no bounds check.
struct Registers([u64; 16]);

impl Registers {
    #[inline(always)]
    fn get(&self, register: u8) -> u64 {
        self.0[usize::from(register & 15)]
    }

    #[inline(always)]
    fn set(&mut self, register: u8, value: u64) {
        self.0[usize::from(register & 15)] = value;
    }

    /// Returns the second operand of arithmetic or of a jump.
    #[inline(always)]
    fn operand(&self, insn: Insn) -> u64 {
        if insn.op & source::X != 0 { self.get(insn.src) } else { insn.immediate as i64 as u64 }
    }
}

/// The remaining instructions of a function. The slice only shrinks, so functions end.
type Code<'a> = &'a [[u8; INSN_BYTES]];

/// The execution of a function.
struct Call<'a> {
    function: &'a Function,
    registers: Registers,
    depth: usize,
    /// Number of skipped instructions and second halves: the count of executed ones derives from
    /// it.
    skipped: usize,
}

impl<'a> Call<'a> {
    /// Creates the call of a function whose stack ends at `stack_end`, with its arguments.
    #[inline(always)]
    fn new(function: &'a Function, arguments: [u64; 5], stack_end: u64, depth: usize) -> Self {
        let [a, b, c, d, e] = arguments;
        let registers = [0, a, b, c, d, e, 0, 0, 0, 0, stack_end, 0, 0, 0, 0, 0];
        Self { function, registers: Registers(registers), depth, skipped: 0 }
    }

    /// Returns the number of executed instructions, up to the last one before `code`.
    fn steps(&self, code: Code<'_>) -> u64 {
        let passed = self.function.range().len().wrapping_sub(code.len());
        passed.wrapping_sub(self.skipped) as u64
    }

    /// Returns the index of the instruction before `code`.
    #[inline(always)]
    fn index(&self, code: Code<'_>) -> usize {
        usize::from(self.function.end).wrapping_sub(code.len() + 1)
    }

    /// Returns the stack range of an address, if it is in the function's own stack.
    fn stack(&self, address: u64, size: usize) -> Option<Range<usize>> {
        let end = self.registers.get(STACK_END);
        let below = usize::try_from(end.checked_sub(address)?).ok()?;
        let own = size <= below && below <= self.function.stack_bytes.into();
        let above = usize::try_from(STACK_ADDRESS.checked_sub(end)?).ok()?;
        let start = STACK_BYTES.checked_sub(above.checked_add(below)?)?;
        own.then_some(start..start + size)
    }
}

/// Executes an instruction by the [`step`](Machine::step) for its operation. There are 254 such
/// operations, most of them invalid. The caller of the macro handles calls and exits.
macro_rules! carry_out {
    ($machine:ident, $instruction:tt, CALL => $on_call:expr, EXIT => $on_exit:expr) => {
        carry_out!(
            $machine, $instruction, $on_call, $on_exit;
            0x00 0x01 0x02 0x03 0x04 0x05 0x06 0x07 0x08 0x09 0x0a 0x0b 0x0c 0x0d 0x0e 0x0f
            0x10 0x11 0x12 0x13 0x14 0x15 0x16 0x17 0x18 0x19 0x1a 0x1b 0x1c 0x1d 0x1e 0x1f
            0x20 0x21 0x22 0x23 0x24 0x25 0x26 0x27 0x28 0x29 0x2a 0x2b 0x2c 0x2d 0x2e 0x2f
            0x30 0x31 0x32 0x33 0x34 0x35 0x36 0x37 0x38 0x39 0x3a 0x3b 0x3c 0x3d 0x3e 0x3f
            0x40 0x41 0x42 0x43 0x44 0x45 0x46 0x47 0x48 0x49 0x4a 0x4b 0x4c 0x4d 0x4e 0x4f
            0x50 0x51 0x52 0x53 0x54 0x55 0x56 0x57 0x58 0x59 0x5a 0x5b 0x5c 0x5d 0x5e 0x5f
            0x60 0x61 0x62 0x63 0x64 0x65 0x66 0x67 0x68 0x69 0x6a 0x6b 0x6c 0x6d 0x6e 0x6f
            0x70 0x71 0x72 0x73 0x74 0x75 0x76 0x77 0x78 0x79 0x7a 0x7b 0x7c 0x7d 0x7e 0x7f
            0x80 0x81 0x82 0x83 0x84 0x86 0x87 0x88 0x89 0x8a 0x8b 0x8c 0x8d 0x8e 0x8f
            0x90 0x91 0x92 0x93 0x94 0x96 0x97 0x98 0x99 0x9a 0x9b 0x9c 0x9d 0x9e 0x9f
            0xa0 0xa1 0xa2 0xa3 0xa4 0xa5 0xa6 0xa7 0xa8 0xa9 0xaa 0xab 0xac 0xad 0xae 0xaf
            0xb0 0xb1 0xb2 0xb3 0xb4 0xb5 0xb6 0xb7 0xb8 0xb9 0xba 0xbb 0xbc 0xbd 0xbe 0xbf
            0xc0 0xc1 0xc2 0xc3 0xc4 0xc5 0xc6 0xc7 0xc8 0xc9 0xca 0xcb 0xcc 0xcd 0xce 0xcf
            0xd0 0xd1 0xd2 0xd3 0xd4 0xd5 0xd6 0xd7 0xd8 0xd9 0xda 0xdb 0xdc 0xdd 0xde 0xdf
            0xe0 0xe1 0xe2 0xe3 0xe4 0xe5 0xe6 0xe7 0xe8 0xe9 0xea 0xeb 0xec 0xed 0xee 0xef
            0xf0 0xf1 0xf2 0xf3 0xf4 0xf5 0xf6 0xf7 0xf8 0xf9 0xfa 0xfb 0xfc 0xfd 0xfe 0xff
        )
    };
    (
        $machine:ident, ($bytes:ident, $code:ident, $call:ident), $on_call:expr, $on_exit:expr;
        $($op:literal)*
    ) => {
        match $bytes[0] {
            EXIT => $on_exit,
            CALL => $on_call,
            $($op => $machine.step::<$op>($bytes, &mut $code, $call),)*
        }
    };
}

/// Extends a loaded value to 64 bits.
#[inline(always)]
fn extend_loaded_value(insn: Insn, value: u64) -> u64 {
    let is_signed = insn.op & 0xe0 == mode::MEMSX;
    if is_signed { alu::sign_extend(value, 8 * u32::from(size_bytes(insn))) } else { value }
}

impl<'a> Machine<'a, '_> {
    /// Runs the program's first function.
    fn begin(mut self) -> Result<FunctionEnd, Fault> {
        let first = self.verified.functions().first().ok_or(Fault::NotReady)?;
        self.run_function(&mut Call::new(first, [FRAME_ADDRESS, 0, 0, 0, 0], STACK_ADDRESS, 1))
    }

    /// Runs a program that has a stack. Other programs need no stack memory.
    #[inline(never)]
    fn begin_with_stack(self) -> Result<FunctionEnd, Fault> {
        let mut stack = [0; STACK_BYTES];
        Machine { stack: &mut stack, ..self }.begin()
    }

    /// Runs a function from its beginning.
    #[inline(never)] // it is called from itself
    fn run_function(&mut self, call: &mut Call<'_>) -> Result<FunctionEnd, Fault> {
        let start = usize::from(call.function.start);
        let code = self.verified.program.code().get(..call.function.end.into());
        let depth = call.depth <= DEPTH_MAX;
        let (Some(code), true) = (code, depth) else { return Err(Fault::At(start)) };
        let mut code = code.get(start..).unwrap_or_default();
        while let Some((bytes, next)) = code.split_first() {
            code = next;
            // In most filters, every other instruction is a load. A separate, well-predicted branch
            // costs less than the indirect jump, whose target changes each time.
            if bytes[0] == LOAD_SLOT {
                if self.step::<LOAD_SLOT>(bytes, &mut code, call).is_none() {
                    return Err(Fault::At(call.index(code)));
                }
                continue;
            }
            if bytes[0] == LOAD_HALF_SLOT {
                if self.step::<LOAD_HALF_SLOT>(bytes, &mut code, call).is_none() {
                    return Err(Fault::At(call.index(code)));
                }
                continue;
            }
            let done = carry_out!(self, (bytes, code, call),
                CALL => {
                    if let Some(tail) = self.call(call.index(code), call)? {
                        *self.steps += call.steps(code);
                        return Ok(FunctionEnd::Tail(tail));
                    }
                    Some(())
                },
                EXIT => {
                    *self.steps += call.steps(code);
                    return Ok(FunctionEnd::Answer(call.registers.get(0)));
                }
            );
            if done.is_none() {
                return Err(Fault::At(call.index(code)));
            }
        }
        Err(Fault::At(call.function.end.into()))
    }

    /// Executes the instruction with operation `OP`, which precedes `code`, and leaves the next
    /// instructions in `code`. Conditions on the operation are resolved at compile time.
    // Without optimization, each copy would add its locals to the caller's stack frame.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn step<const OP: u8>(
        &mut self,
        bytes: &[u8; INSN_BYTES],
        code: &mut Code<'_>,
        call: &mut Call<'_>,
    ) -> Option<()> {
        let insn = Insn { op: OP, ..Insn::decode(*bytes) };
        let registers = &mut call.registers;
        match insn.class() {
            class::LD if OP == LDDW => {
                let (&half, behind) = code.split_first()?;
                let value = match insn.src {
                    LDDW_FUNCTION => {
                        let function = referenced_function(call.index(code), insn)?;
                        FUNCTION_ADDRESS.checked_add_signed(function)?
                    }
                    _ => {
                        let high = u64::from(Insn::decode(half).immediate as u32);
                        high << 32 | u64::from(insn.immediate as u32)
                    }
                };
                call.registers.set(insn.dst, value);
                call.skipped += 1;
                *code = behind;
            }
            class::LDX => {
                let address = registers.get(insn.src).wrapping_add(insn.offset as u64);
                let size = size_bytes(insn);
                match self.slot(address, size) {
                    Some(value) => registers.set(insn.dst, extend_loaded_value(insn, value)),
                    None => self.load(call, bytes)?,
                }
            }
            class::ST | class::STX => {
                let is_register = insn.class() == class::STX;
                let immediate = insn.immediate as i64 as u64;
                let value = if is_register { registers.get(insn.src) } else { immediate };
                let address = registers.get(insn.dst).wrapping_add(insn.offset as u64);
                self.store(call, address, size_bytes(insn), value)?;
            }
            class::ALU | class::ALU64 => {
                let operand = registers.operand(insn);
                let value = alu::compute_alu(insn, registers.get(insn.dst), operand)?;
                registers.set(insn.dst, value);
            }
            class::JMP | class::JMP32 => {
                let operand = registers.operand(insn);
                if alu::is_jump_taken(insn, registers.get(insn.dst), operand)? {
                    // The interpreter never jumps backward, whatever the verifier accepted.
                    let distance = usize::try_from(jump_distance(insn)).ok()?;
                    *code = code.get(distance..)?;
                    call.skipped += distance;
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// Loads a value from the frame's slots, if the address is inside the frame and aligned.
    #[inline(always)]
    fn slot(&self, address: u64, size: u8) -> Option<u64> {
        let offset = address.wrapping_sub(FRAME_ADDRESS);
        if size == 8 {
            // One check covers both: rotating an unaligned offset makes it too large.
            return self.slots.get(usize::try_from(offset.rotate_right(3)).ok()?).copied();
        }
        let slot = self.slots.get(usize::try_from(offset / 8).ok()?)?;
        let value = slot >> (8 * (offset % 8));
        let mask = (1 << (8 * size)) - 1;
        offset.is_multiple_of(size.into()).then_some(value & mask)
    }

    /// Loads a value from the stack.
    #[inline(never)]
    fn load(&self, call: &mut Call<'_>, bytes: &[u8; INSN_BYTES]) -> Option<()> {
        let insn = Insn::decode(*bytes);
        let address = call.registers.get(insn.src).wrapping_add(insn.offset as u64);
        let mut value = [0; 8];
        let size = size_bytes(insn).into();
        let place = call.stack(address, size)?;
        value.get_mut(..size)?.copy_from_slice(self.stack.get(place)?);
        call.registers.set(insn.dst, extend_loaded_value(insn, u64::from_le_bytes(value)));
        Some(())
    }

    /// Stores a value to the stack.
    #[inline(never)]
    fn store(&mut self, call: &Call<'_>, address: u64, size: u8, value: u64) -> Option<()> {
        let size = usize::from(size);
        let place = call.stack(address, size)?;
        self.stack.get_mut(place)?.copy_from_slice(value.to_le_bytes().get(..size)?);
        Some(())
    }

    /// Calls a helper or a function; returns the program of a tail call, if there is one.
    #[inline(never)]
    fn call(&mut self, index: usize, call: &mut Call<'_>) -> Result<Option<usize>, Fault> {
        let insn = self.verified.program.insn(index);
        let fault = Fault::At(index);
        let arguments = [1, 2, 3, 4, 5].map(|register| call.registers.get(register));
        let [_, a, b, c, _] = arguments;
        let mut keeps_frame = false;
        let answer = if insn.src == call::FUNCTION {
            let start =
                referenced_function(index, insn).and_then(|start| usize::try_from(start).ok());
            self.enter_function(start.ok_or(fault)?, arguments, call, fault)?
        } else {
            match Helper::from_number(insn.immediate).ok_or(fault)? {
                Helper::Any => self.run_any_helper([a, b, c], call, fault)?,
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
        // Clears the registers that calls lose.
        let lost = if keeps_frame { 2..=5 } else { 1..=5 };
        call.registers.0[lost].fill(0);
        call.registers.set(0, answer);
        Ok(None)
    }

    /// Runs the function that begins at `start`, below the caller's stack.
    fn enter_function(
        &mut self,
        start: usize,
        arguments: [u64; 5],
        caller: &Call<'_>,
        fault: Fault,
    ) -> Result<u64, Fault> {
        let verified = self.verified;
        let function = verified.functions.at(start).and_then(|at| verified.functions().get(at));
        let stack_end = caller.registers.get(STACK_END);
        let stack_end = stack_end.wrapping_sub(caller.function.stack_bytes.into());
        let function = function.ok_or(fault)?;
        let call = &mut Call::new(function, arguments, stack_end, caller.depth + 1);
        match self.run_function(call)? {
            FunctionEnd::Answer(answer) => Ok(answer),
            FunctionEnd::Tail(_) => Err(fault),
        }
    }

    #[inline(never)]
    fn run_any_helper(
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
            self.enter_function(start, arguments, caller, fault).unwrap_or_else(|fault| {
                failed = Some(fault);
                1
            })
        });
        failed.map_or(Ok(answer), Err)
    }
}

#[cfg(test)]
mod tests;
