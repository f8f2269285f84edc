//! Machine code of a program without a frame: what loads a slot loads the field, from where that
//! lies in the payload. Payload in rdi; the answer, in rax, is 0 or 1.
//!
//! For programs that do nothing but load slots, compare, jump and calculate: most that people write
//! about numbers. Their code calls nothing, does not touch the stack, and changes no register that
//! belongs to its caller; so it may run in a restartable sequence.

use trackway_schema::Scalar;

use super::chunk::{Chunk, RAX, RDI, Reg, Width, map_register};
use super::{EmitError, emit_with_framer, is_leaf};
use crate::framer::FramerView;
use crate::insn::{FRAME, Insn, class, mode, size, source};
use crate::verify::Verified;

/// Makes code of a program that runs on payloads for which `framer` is made, in the beginning of
/// `buffer`: its size in bytes, the code being what [`crate::frame::Direct`] says. `None`: it is
/// none of those.
///
/// # Errors
/// As [`super::emit_program`].
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

/// Returns true if the only use of the frame in an instruction is to load a whole slot that is a
/// scalar at a known place.
fn uses_only_slot_loads(insn: Insn, framer: FramerView<'_>) -> bool {
    let by_register = insn.op & source::X != 0;
    match insn.class() {
        class::LDX => {
            insn.dst != FRAME && insn.src == FRAME && loaded_field(insn, framer).is_some()
        }
        // Its second half has register 0.
        class::LD => insn.dst != FRAME && insn.src == 0,
        class::ALU | class::ALU64 | class::JMP | class::JMP32 => {
            insn.dst != FRAME && !(by_register && insn.src == FRAME)
        }
        _ => false,
    }
}

/// The scalar that a load of a slot is about, and where it lies in the payload.
fn loaded_field(insn: Insn, framer: FramerView<'_>) -> Option<(Scalar, i32)> {
    let is_whole = insn.op & (size::DW | 0xe0) == size::DW | mode::MEM;
    let offset = usize::try_from(insn.offset).ok()?;
    if !is_whole || !offset.is_multiple_of(8) {
        return None;
    }
    let (scalar, distance) = framer.takes.get(offset / 8)?.coded()?;
    // Only helpers do anything with a float.
    (scalar != Scalar::F32).then_some((scalar, distance as i32))
}

/// The load of a slot.
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

/// Makes of the program's answer, which is any number, 0 or 1.
pub(super) fn emit_boolean_answer(chunk: &mut Chunk) {
    // cmp rax, 1; sbb eax, eax; inc eax: less than 1 without a sign is 0 alone.
    chunk.raw(&[0x48, 0x83, 0xf8, 0x01, 0x19, 0xc0, 0xff, 0xc0]);
}
