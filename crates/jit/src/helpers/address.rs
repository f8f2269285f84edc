//! Helpers as machine code calls them: C functions whose first argument is the frame's slots.
#![expect(unsafe_code, reason = "machine code has nothing but a pointer to the slots")]

use crate::call;
use crate::frame::Frame;
use crate::helper::Helper;

/// A helper with the most arguments; those with fewer do not look at the others.
type HelperFunction = unsafe extern "C" fn(slots: *const u64, a: u64, b: u64, c: u64) -> u64;

/// A helper that is like the others: by a number that is known when this is compiled, so that of
/// [`Frame::help`] nothing but what it does is left. Registers that a helper has no arguments in
/// may hold anything.
///
/// # Safety
/// `slots` must be what the program's entry was given.
unsafe extern "C" fn call_helper<const NUMBER: i32>(
    slots: *const u64,
    a: u64,
    b: u64,
    c: u64,
) -> u64 {
    // SAFETY: who called the entry has lent the frame until the program's end.
    let frame = unsafe { Frame::of_slots(slots) };
    Helper::from_number(NUMBER).map_or(0, |helper| frame.help(helper, a, b, c))
}

/// `any`, with the address of a function.
///
/// # Safety
/// `slots` must be what the program's entry was given, and `function` a function of the program.
unsafe extern "C" fn call_any(slots: *const u64, word: u64, scalar: u64, function: u64) -> u64 {
    // SAFETY: who called the entry has lent the frame until the program's end.
    let frame = unsafe { Frame::of_slots(slots) };
    let function = core::ptr::with_exposed_provenance::<()>(function as usize);
    // SAFETY: the verifier lets nothing but a function of the program through, which was verified
    // for frame and element; it is the program's own frame.
    frame.any(word, scalar, |element| unsafe { call::call_program(slots, element, function) })
}

/// The address of a helper; `tail_call` is no function, its callers jump.
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
