//! Memory that is executed: one file without a name, mapped twice when the library starts, so that
//! later filters need no system call, which a sandbox might forbid.
//!
//! Nobody else can write there: the file is closed at once, and fork children do not get the
//! mapping that is written through. (They interpret: what is executed is their parent's, too.)

use core::sync::atomic::{AtomicPtr, Ordering};

use trackway_jit::frame::{Entry, Fill};

use super::store::{self, PARTS};
use super::{link, quick};

/// Room in front of all parts for code that stays, in bytes: [`quick`].
const STAYING_BYTES: usize = 4096;
/// Room for code in each part, in bytes.
const PART_BYTES: usize = 128 << 10;
const BYTES: usize = STAYING_BYTES + PARTS * PART_BYTES;

static WRITTEN: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
static EXECUTED: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());

/// Takes the memory, where machine code is made for this processor. Without it all is interpreted.
pub(crate) fn prepare() {
    if cfg!(not(target_arch = "x86_64")) {
        return;
    }
    let Some((written, executed)) = trackway_sys::memory::executable(BYTES) else { return };
    // SAFETY: the memory was just mapped, with as much room, and stays.
    unsafe {
        let staying = core::slice::from_raw_parts_mut(written, STAYING_BYTES);
        quick::prepare(staying, executed, BYTES);
    }
    // SAFETY: the handler may run at any time; it is never taken away, nor is this library.
    unsafe { libc::pthread_atfork(Some(before_fork), None, Some(in_fork_child)) };
    EXECUTED.store(executed, Ordering::Relaxed);
    WRITTEN.store(written, Ordering::Relaxed);
}

/// A signal handler that has interrupted a filter may fork. Its child goes on in the same code,
/// which the parent must not write over; who of the two comes out when is not known to both. (Who
/// forks there by clone(2) itself is not seen.)
unsafe extern "C" fn before_fork() {
    if crate::thread::is_in_filter() {
        store::pin();
    }
}

/// A handler that has interrupted who makes a link may fork, too. In the child, which does not have
/// what he writes through, it is memory of the child's own.
unsafe extern "C" fn in_fork_child() {
    let written = WRITTEN.load(Ordering::Relaxed);
    if link::is_interrupted() && !written.is_null() {
        // SAFETY: a fork child has nothing there.
        unsafe { trackway_sys::memory::put_zeros(written, BYTES) };
    }
}

/// Forgets it, in a fork child, which does not have the mapping that is written through.
pub(super) fn forget() {
    WRITTEN.store(core::ptr::null_mut(), Ordering::Relaxed);
}

/// Whether there is such memory.
pub(super) fn is_there() -> bool {
    !WRITTEN.load(Ordering::Relaxed).is_null()
}

/// A part's room for code, from `used` bytes on.
///
/// # Safety
/// Nobody else has it, and nobody is in code there.
pub(super) unsafe fn room<'r>(part: usize, used: usize) -> Option<&'r mut [u8]> {
    let written = WRITTEN.load(Ordering::Relaxed);
    let length = PART_BYTES.checked_sub(used)?;
    if written.is_null() || part >= PARTS {
        return None;
    }
    let begin = written.wrapping_add(STAYING_BYTES + part * PART_BYTES + used);
    // SAFETY: the mapping has room for all parts and stays; it is the caller's alone.
    Some(unsafe { core::slice::from_raw_parts_mut(begin, length) })
}

/// The code of a program that was written `used` bytes from the beginning of a part.
///
/// # Safety
/// It is code there, made by `trackway_jit::x86::emit`.
pub(super) unsafe fn entry(part: usize, used: usize) -> Entry {
    // SAFETY: an address of code that has this type.
    unsafe { core::mem::transmute::<*mut u8, Entry>(executed(part, used)) }
}

/// The code of a framer that was written there.
///
/// # Safety
/// It is code there, made by `trackway_jit::x86::emit_fill`.
pub(super) unsafe fn fill(part: usize, used: usize) -> Fill {
    // SAFETY: an address of code that has this type.
    unsafe { core::mem::transmute::<*mut u8, Fill>(executed(part, used)) }
}

/// The code of a program that was written there to run on payloads.
///
/// # Safety
/// It is code there, made by `trackway_jit::x86::emit_direct`.
pub(super) unsafe fn direct(part: usize, used: usize) -> *const u8 {
    executed(part, used)
}

fn executed(part: usize, used: usize) -> *mut u8 {
    let at = STAYING_BYTES + part * PART_BYTES + used;
    EXECUTED.load(Ordering::Relaxed).wrapping_add(at)
}
