//! Records copied as the sequence copies them, by who writes without one.

use core::sync::atomic::{Ordering, compiler_fence};

/// Copies into a buffer: by words, as the sequence does, and not by memcpy(). A program under
/// ThreadSanitizer has one of its own, which does not know how writers here keep apart, and tells
/// the user of races that are none.
///
/// # Safety
/// As that of [`core::ptr::copy_nonoverlapping`].
#[inline]
pub unsafe fn copy_by_words(source: *const u8, target: *mut u8, bytes: usize) {
    const WORD: usize = size_of::<u64>();
    // ORDERING: none among threads. It keeps the compiler from making a call of memcpy() of a loop.
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
        // SAFETY: likewise.
        unsafe { target.add(at).write(source.add(at).read()) };
        keep();
    }
}
