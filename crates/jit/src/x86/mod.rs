//! Machine code for x86-64: each instruction becomes what does the same, and nothing is moved,
//! joined or left out. What there is to optimise has been optimised in the bytecode.
//!
//! Registers are mapped as the kernel maps them, so that a call is a call:
//!
//! | eBPF | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 | 10 |
//! |---|---|---|---|---|---|---|---|---|---|---|---|
//! | x86 | rax | rdi | rsi | rdx | rcx | r8 | rbx | r13 | r14 | r15 | rbp |
//!
//! r9, r10 and r11 are free for what one instruction needs between its beginning and its end.
//!
//! **Code is laid down from its end.** Jumps and calls of a verified program go forward only. The
//! emitter begins with the last instruction, so it knows the distance of each jump, and takes the
//! shortest one: one pass, no table of open jumps.
//!
//! The code does not depend on where it lies: it may be written at one address and executed at
//! another. Each function saves what it changes of what belongs to its caller, and has a stack of
//! its own if it uses any; the entry, and what `any` calls, begin with `endbr64`, as where indirect
//! branches are tracked (IBT) they must.

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

/// Most bytes of code that one instruction becomes. A buffer with as many for each instruction is
/// always large enough; 6 for each is usual.
pub const INSN_CODE_BYTES_MAX: usize = chunk::BYTES_MAX;

/// The emitted code.
#[derive(Debug, Clone, Copy)]
pub struct Code<'m> {
    /// Its size in bytes, from the buffer's beginning, which is the entry: see
    /// [`crate::frame::Entry`].
    pub size_bytes: usize,
    starts: &'m [u32],
}

impl Code<'_> {
    /// The code of the instruction with this index, in bytes from the beginning. That of a
    /// function's first has in front of it what the function saves.
    pub fn range(&self, insn: usize) -> Option<Range<usize>> {
        let end = *self.starts.get(insn.checked_add(1)?)?;
        Some(*self.starts.get(insn)? as usize..end as usize)
    }
}

/// Why nothing was emitted: then the program is interpreted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmitError {
    /// This processor is not known here.
    Unsupported,
    /// The buffer for the code, or that for its places, is too small.
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

/// Makes machine code of a program. `places` gets the place of each instruction's code: one entry
/// for each of them, and one.
///
/// # Errors
/// If there is no room, or if this is no x86-64 with the System V calling convention.
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

/// Returns true if a program's code leaves the stack alone, and all registers that belong to its
/// caller; and if it makes no tail call to one that does not.
pub fn is_leaf(verified: &Verified<'_>) -> bool {
    let [function] = verified.functions() else { return false };
    function.saved == 0 && !function.has_stack && !function.has_calls
}

/// The same, of a program whose slots are in a frame, or where this framer says.
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
    // Until now places were counted from the end.
    places.iter_mut().for_each(|place| *place = size as u32 - *place);
    Ok(Code { size_bytes: size, starts: places })
}

/// Code that grows towards its beginning.
struct Emitter<'a, 'p> {
    verified: &'a Verified<'p>,
    /// Places of slots in the payload, if register 1 points to the payload: [`direct`].
    framer: Option<FramerView<'a>>,
    buffer: &'a mut [u8],
    /// Start of each instruction's code, in bytes from the end of all code.
    places: &'a mut [u32],
    /// Bytes that are laid down.
    laid: usize,
}

impl Emitter<'_, '_> {
    /// A function, its last instruction first.
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

    /// Puts code in front of what is there.
    fn prepend_chunk(&mut self, chunk: &Chunk) -> Result<(), EmitError> {
        let code = chunk.code().ok_or(EmitError::NoRoom)?;
        let laid = self.laid + code.len();
        let start = self.buffer.len().checked_sub(laid).ok_or(EmitError::NoRoom)?;
        self.buffer[start..start + code.len()].copy_from_slice(code);
        self.laid = laid;
        Ok(())
    }

    /// Returns the distance to the code of another instruction, from the end of the next code.
    fn distance(&self, target: i64) -> i32 {
        let place = usize::try_from(target).ok().and_then(|target| self.places.get(target));
        self.laid as i32 - place.map_or(0, |&place| place as i32)
    }

    /// Returns the code of one instruction.
    fn insn(&self, function: &Function, index: usize) -> Chunk {
        let mut chunk = Chunk::new();
        let insn = self.verified.program().insn(index);
        match insn.class() {
            // The second half of a load has operation 0, and is done with the first.
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
