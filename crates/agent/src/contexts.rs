//! Contexts: values that a session records before each payload. Application contexts lie between
//! these values and the payload ([`crate::app_contexts`]).

use trackway_abi::record::context::{PROCNAME, PROCNAME_BYTES, VPID, VTID};
use trackway_jit::framer::Contexts;
use trackway_jit::helper::Word;

/// Writes the contexts of `wanted` so that they end at `end`. Returns their size in bytes. A record
/// has them in the order vpid, vtid, procname, so this function writes backward.
///
/// # Safety
/// The headroom of a staged payload lies before `end`; `name` has `PROCNAME_BYTES` bytes.
#[inline(always)]
pub(crate) unsafe fn write_contexts(
    end: *mut u8,
    wanted: u32,
    pid: u32,
    tid: u32,
    name: *const u8,
) -> usize {
    let mut at = end;
    // SAFETY: the headroom holds all contexts and the longest header (asserted in
    // `trackway_abi::record`).
    unsafe {
        if wanted == VTID {
            end.sub(4).cast::<u32>().write_unaligned(tid);
            return 4;
        }
        if wanted & PROCNAME != 0 {
            at = at.sub(PROCNAME_BYTES);
            core::ptr::copy_nonoverlapping(name, at, PROCNAME_BYTES);
        }
        if wanted & VTID != 0 {
            at = at.sub(4);
            at.cast::<u32>().write_unaligned(tid);
        }
        if wanted & VPID != 0 {
            at = at.sub(4);
            at.cast::<u32>().write_unaligned(pid);
        }
        end.offset_from_unsigned(at)
    }
}

/// Returns contexts for filters; `name` refers to the thread's name in a frame's bytes.
#[inline(always)]
pub(crate) const fn filter_contexts(pid: u32, tid: u32, name: Word) -> Contexts {
    Contexts::NONE
        .with_signed(VPID, pid.cast_signed())
        .with_signed(VTID, tid.cast_signed())
        .with(PROCNAME, name.to_bits())
}
