//! Entry points of helpers for machine code: C functions whose first argument is the frame's slots.
#![expect(unsafe_code, reason = "machine code has nothing but a pointer to the slots")]

use crate::call;
use crate::frame::Frame;
use crate::helper::Helper;

/// A helper with the maximum number of arguments; other helpers ignore the extra ones.
type HelperFunction = unsafe extern "C" fn(slots: *const u64, a: u64, b: u64, c: u64) -> u64;

/// Calls the helper with this number. The number is a constant, so that only this helper's part of
/// [`Frame::help`] is compiled in. Registers beyond the helper's arguments may hold any value.
///
/// # Safety
/// `slots` must be the argument of the program's entry.
unsafe extern "C" fn call_helper<const NUMBER: i32>(
    slots: *const u64,
    a: u64,
    b: u64,
    c: u64,
) -> u64 {
    // SAFETY: the entry's caller lends the frame until the program's end.
    let frame = unsafe { Frame::of_slots(slots) };
    Helper::from_number(NUMBER).map_or(0, |helper| frame.help(helper, a, b, c))
}

/// Calls the helper `any` with the address of a function.
///
/// # Safety
/// `slots` must be the argument of the program's entry, and `function` a function of the program.
unsafe extern "C" fn call_any(slots: *const u64, word: u64, scalar: u64, function: u64) -> u64 {
    // SAFETY: the entry's caller lends the frame until the program's end.
    let frame = unsafe { Frame::of_slots(slots) };
    let function = core::ptr::with_exposed_provenance::<()>(function as usize);
    // SAFETY: the verifier accepts only a function of the program here, and verified it for a frame
    // and an element. The frame is the program's own.
    frame.any(word, scalar, |element| unsafe { call::call_program(slots, element, function) })
}

/// Returns the address of a helper; `None` for `tail_call`, which is a jump.
pub(crate) fn helper_address(helper: Helper) -> Option<u64> {
    /// Matches helpers that need no special case, by number.
    macro_rules! plain {
        ($($helper:ident)*) => {
            match helper {
                $(Helper::$helper => call_helper::<{ Helper::$helper as i32 }>,)*
                Helper::Any => call_any,
                Helper::TailCall => return None,
            }
        };
    }
    let function: HelperFunction = plain!(
        StringCompare StringMatches StringStartsWith StringEndsWith StringContains StringHash
        Element FloatCompare FloatAdd FloatSubtract FloatMultiply FloatDivide FloatFromSigned
        FloatFromUnsigned TimeNs Random Count Changed Rate StringEdges8 StringEdges4 StringEdges2
        StringEdges1 BytesDiffer1 BytesDiffer2 BytesDiffer3 BytesDiffer4 BytesDiffer5
        BytesDiffer6 BytesDiffer7 BytesDiffer8 BytesDiffer9 BytesDiffer10 BytesDiffer11
        BytesDiffer12 BytesDiffer13 BytesDiffer14 BytesDiffer15 BytesDiffer16 Sum Least Greatest
    );
    Some(function as usize as u64)
}
