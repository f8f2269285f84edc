//! Copies records like the sequence does, for writers without a sequence.

use core::sync::atomic::{Ordering, compiler_fence};

/// Copies into a buffer by words, like the sequence, and not by memcpy(). ThreadSanitizer replaces
/// memcpy(). It does not know how writers here exclude each other, and would report races that are
/// none.
///
/// # Safety
/// The contract of [`core::ptr::copy_nonoverlapping`] applies.
#[inline]
pub unsafe fn copy_by_words(source: *const u8, target: *mut u8, bytes: usize) {
    const WORD: usize = size_of::<u64>();
    // ORDERING: none among threads. It keeps the compiler from replacing the loop by memcpy().
    let keep = || compiler_fence(Ordering::SeqCst);
    let whole = bytes / WORD * WORD;
    for at in (0..whole).step_by(WORD) {
        // SAFETY: the caller's bytes, below `bytes`.
        unsafe {
            let word = source.add(at).cast::<u64>().read_unaligned();
            target.add(at).cast::<u64>().write_unaligned(word);
        }
        keep();
    }
    for at in whole..bytes {
        // SAFETY: the caller's bytes, below `bytes`.
        unsafe { target.add(at).write(source.add(at).read()) };
        keep();
    }
}
