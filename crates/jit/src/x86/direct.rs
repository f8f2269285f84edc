//! Machine code of a program without a frame: each slot load becomes a load of the field from the
//! payload. The payload is in rdi; the answer in rax is 0 or 1.
//!
//! Applies to programs that only load slots, compare, jump and calculate, as most filters on
//! numbers do. The code makes no calls, and changes neither the stack nor callee-saved registers,
//! so it may run in a restartable sequence.

use trackway_schema::Scalar;

use super::chunk::{Chunk, RAX, RDI, Reg, Width, map_register};
use super::{EmitError, emit_with_framer, is_leaf};
use crate::framer::FramerView;
use crate::insn::{FRAME, Insn, class, mode, size, source};
use crate::verify::Verified;

/// Emits code for a program that runs on payloads with the layout of `framer`, at the beginning of
/// `buffer`. Returns the size in bytes of code like [`crate::frame::Direct`]; `None` if the program
/// is not suitable.
///
/// # Errors
/// Fails like [`super::emit_program`].
pub fn emit_direct(
    verified: &Verified<'_>,
    framer: FramerView<'_>,
    buffer: &mut [u8],
    places: &mut [u32],
) -> Result<Option<usize>, EmitError> {
    if cfg!(not(all(target_arch = "x86_64", unix))) {
        return Err(EmitError::Unsupported);
    }
    if !can_emit_direct(verified, framer) {
        return Ok(None);
    }
    emit_with_framer(verified, Some(framer), buffer, places).map(|code| Some(code.size_bytes))
}

fn can_emit_direct(verified: &Verified<'_>, framer: FramerView<'_>) -> bool {
    is_leaf(verified)
        && verified.summary().helpers == 0
        && verified.program().insns().all(|(_, insn)| uses_only_slot_loads(insn, framer))
}

/// Returns true if the instruction uses the frame at most to load a whole slot that is a scalar at
/// a fixed offset.
fn uses_only_slot_loads(insn: Insn, framer: FramerView<'_>) -> bool {
    let by_register = insn.op & source::X != 0;
    match insn.class() {
        class::LDX => {
            insn.dst != FRAME && insn.src == FRAME && loaded_field(insn, framer).is_some()
        }
        // The second half of the load has destination 0.
        class::LD => insn.dst != FRAME && insn.src == 0,
        class::ALU | class::ALU64 | class::JMP | class::JMP32 => {
            insn.dst != FRAME && !(by_register && insn.src == FRAME)
        }
        _ => false,
    }
}

/// Returns the scalar that a slot load reads, and its offset in the payload.
fn loaded_field(insn: Insn, framer: FramerView<'_>) -> Option<(Scalar, i32)> {
    let is_whole = insn.op & (size::DW | 0xe0) == size::DW | mode::MEM;
    let offset = usize::try_from(insn.offset).ok()?;
    if !is_whole || !offset.is_multiple_of(8) {
        return None;
    }
    let (scalar, distance) = framer.takes.get(offset / 8)?.coded()?;
    // Floats are excluded: only helpers use them.
    (scalar != Scalar::F32).then_some((scalar, distance as i32))
}

/// Appends the load of a slot from the payload.
pub(super) fn emit_field_load(chunk: &mut Chunk, insn: Insn, framer: FramerView<'_>) {
    let Some((scalar, distance)) = loaded_field(insn, framer) else { return };
    let (dst, at) = (map_register(insn.dst), (RDI, distance));
    let (width, operation): (_, &[u8]) = match scalar {
        Scalar::I8 => (Width::Wide, &[0x0f, 0xbe]),
        Scalar::I16 => (Width::Wide, &[0x0f, 0xbf]),
        Scalar::I32 => (Width::Wide, &[0x63]),
        Scalar::U8 | Scalar::X8 => (Width::Narrow, &[0x0f, 0xb6]),
        Scalar::U16 | Scalar::X16 => (Width::Narrow, &[0x0f, 0xb7]),
        Scalar::U32 | Scalar::X32 => (Width::Narrow, &[0x8b]),
        Scalar::Bool => {
            // cmp byte [rdi + distance], 0; setne; movzx
            chunk.memory(Width::Narrow, &[0x80], Reg::EXTENSION_7, at);
            chunk.byte(0);
            chunk.registers_byte(Width::Narrow, &[0x0f, 0x95], RAX, dst);
            return chunk.registers_byte(Width::Narrow, &[0x0f, 0xb6], dst, dst);
        }
        _ => (Width::Wide, &[0x8b]),
    };
    chunk.memory(width, operation, dst, at);
}

/// Appends code that converts any answer to 0 or 1.
pub(super) fn emit_boolean_answer(chunk: &mut Chunk) {
    // cmp rax, 1; sbb eax, eax; inc eax: only 0 is less than 1 unsigned.
    chunk.raw(&[0x48, 0x83, 0xf8, 0x01, 0x19, 0xc0, 0xff, 0xc0]);
}
