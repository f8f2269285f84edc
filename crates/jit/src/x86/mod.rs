//! Machine code for x86-64: each instruction is translated on its own, without reordering, fusion
//! or elimination. The compiler has already optimized the bytecode.
//!
//! Registers are mapped like in the kernel, so that an eBPF call is a native call:
//!
//! | eBPF | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 | 10 |
//! |---|---|---|---|---|---|---|---|---|---|---|---|
//! | x86 | rax | rdi | rsi | rdx | rcx | r8 | rbx | r13 | r14 | r15 | rbp |
//!
//! r9, r10 and r11 are scratch registers within one instruction.
//!
//! **Code is emitted backward.** Jumps and calls of a verified program only go forward. The emitter
//! begins with the last instruction, so it knows the distance of each jump, and uses the shortest
//! encoding: one pass, no fixups.
//!
//! The code is position-independent: it may be written at one address and executed at another. Each
//! function saves the callee-saved registers that it changes, and has its own stack frame if it
//! uses the stack. The entry and the callbacks of `any` begin with `endbr64`, as indirect branch
//! tracking (IBT) requires.

mod arithmetic;
mod chunk;
mod control;
mod direct;
mod fill;
mod memory;
mod text;

use core::fmt;
use core::ops::Range;

use crate::framer::FramerView;
use crate::insn::class;
use crate::verify::{Function, Verified};
use chunk::Chunk;
pub use direct::emit_direct;
pub use fill::{SLOT_CODE_BYTES_MAX, emit_fill};

/// Maximum code size of an instruction, in bytes. A buffer with this size for each instruction is
/// always large enough; 6 bytes per instruction are typical.
pub const INSN_CODE_BYTES_MAX: usize = chunk::BYTES_MAX;

/// The emitted code.
#[derive(Debug, Clone, Copy)]
pub struct Code<'m> {
    /// Size in bytes, from the buffer's beginning, which is the entry: see [`crate::frame::Entry`].
    pub size_bytes: usize,
    starts: &'m [u32],
}

impl Code<'_> {
    /// Returns the code range of the instruction with this index, in bytes from the beginning. The
    /// range of a function's first instruction includes the prologue.
    pub fn range(&self, insn: usize) -> Option<Range<usize>> {
        let end = *self.starts.get(insn.checked_add(1)?)?;
        Some(*self.starts.get(insn)? as usize..end as usize)
    }
}

/// The reason why no code was emitted: the program is interpreted instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmitError {
    /// The processor is not supported.
    Unsupported,
    /// The buffer for the code or for the instruction offsets is too small.
    NoRoom,
}

impl fmt::Display for EmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unsupported => "no machine code is made for this processor",
            Self::NoRoom => "the buffer is too small for the machine code",
        })
    }
}

impl core::error::Error for EmitError {}

/// Emits machine code of a program. `places` receives the offset of each instruction's code and of
/// the end: one entry more than there are instructions.
///
/// # Errors
/// Returns an error if a buffer is too small, or on other machines than x86-64 with System V calls.
pub fn emit_program<'m>(
    verified: &Verified<'_>,
    buffer: &mut [u8],
    places: &'m mut [u32],
) -> Result<Code<'m>, EmitError> {
    if cfg!(not(all(target_arch = "x86_64", unix))) {
        return Err(EmitError::Unsupported);
    }
    emit_with_framer(verified, None, buffer, places)
}

/// Returns true if a program's code uses neither the stack nor callee-saved registers. The programs
/// that it tail-calls must have this property, too.
pub fn is_leaf(verified: &Verified<'_>) -> bool {
    let [function] = verified.functions() else { return false };
    function.saved == 0 && !function.has_stack && !function.has_calls
}

/// Emits machine code of a program that reads slots from a frame, or from a payload if `framer` is
/// set.
fn emit_with_framer<'m>(
    verified: &Verified<'_>,
    framer: Option<FramerView<'_>>,
    buffer: &mut [u8],
    places: &'m mut [u32],
) -> Result<Code<'m>, EmitError> {
    let len = verified.program().len();
    let places = places.get_mut(..=len).ok_or(EmitError::NoRoom)?;
    let mut emitter = Emitter { verified, framer, buffer, places, laid: 0 };
    emitter.places[len] = 0;
    for function in verified.functions().iter().rev() {
        emitter.function(function)?;
    }
    let size = emitter.laid;
    let start = buffer.len() - size;
    buffer.copy_within(start.., 0);
    // Converts the offsets from the end to offsets from the beginning.
    places.iter_mut().for_each(|place| *place = size as u32 - *place);
    Ok(Code { size_bytes: size, starts: places })
}

/// An emitter for code that grows backward.
struct Emitter<'a, 'p> {
    verified: &'a Verified<'p>,
    /// Locations of slots in the payload, if register 1 points to the payload: [`direct`].
    framer: Option<FramerView<'a>>,
    buffer: &'a mut [u8],
    /// Start of each instruction's code, in bytes from the end of all code.
    places: &'a mut [u32],
    /// Number of bytes emitted.
    laid: usize,
}

impl Emitter<'_, '_> {
    /// Emits a function, its last instruction first.
    fn function(&mut self, function: &Function) -> Result<(), EmitError> {
        for index in function.range().rev() {
            let chunk = self.insn(function, index);
            self.prepend_chunk(&chunk)?;
            if index == function.range().start {
                self.prepend_chunk(&control::build_prologue(function, index == 0))?;
            }
            self.places[index] = self.laid as u32;
        }
        Ok(())
    }

    /// Puts code in front of the emitted code.
    fn prepend_chunk(&mut self, chunk: &Chunk) -> Result<(), EmitError> {
        let code = chunk.code().ok_or(EmitError::NoRoom)?;
        let laid = self.laid + code.len();
        let start = self.buffer.len().checked_sub(laid).ok_or(EmitError::NoRoom)?;
        self.buffer[start..start + code.len()].copy_from_slice(code);
        self.laid = laid;
        Ok(())
    }

    /// Returns the distance to another instruction's code, from the end of the current instruction.
    fn distance(&self, target: i64) -> i32 {
        let place = usize::try_from(target).ok().and_then(|target| self.places.get(target));
        self.laid as i32 - place.map_or(0, |&place| place as i32)
    }

    /// Returns the code of one instruction.
    fn insn(&self, function: &Function, index: usize) -> Chunk {
        let mut chunk = Chunk::new();
        let insn = self.verified.program().insn(index);
        match insn.class() {
            // The second half of a wide load has operation 0, and needs no code.
            class::LD if insn.op != 0 => self.wide(&mut chunk, index, insn),
            class::LD => {}
            class::LDX => match self.framer {
                None => memory::emit_load(&mut chunk, insn),
                Some(framer) => direct::emit_field_load(&mut chunk, insn, framer),
            },
            class::ST | class::STX => memory::emit_store(&mut chunk, insn),
            class::ALU | class::ALU64 => arithmetic::emit_arithmetic(&mut chunk, insn),
            _ => self.control(&mut chunk, function, index, insn),
        }
        chunk
    }
}
