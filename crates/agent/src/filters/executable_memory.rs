//! Memory that is executed: one file without a name, mapped twice when the library starts, so that
//! later filters need no system call, which a sandbox might forbid.
//!
//! Nobody else can write there: the file is closed at once, and fork children do not get the
//! mapping that is written through. (They keep_programs: what is executed is their parent's, too.)
//!
//! Where it is executed, it lies in the library's own memory, in place of zeros. Unwinders find
//! what they need of an address by the module that it is in, in a table that was made when that was
//! linked. So this memory has unwind information as the library's text has; nothing is registered,
//! which would take locks and memory, and cost the program at each exception. One description has
//! to hold for all code that will ever lie there, at each instruction; there are two, for two kinds
//! of code, each of which has memory of its own: [`Kind`].

#[cfg(target_arch = "x86_64")]
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicPtr, Ordering};

use trackway_jit::frame::{Entry, Fill};

use super::arena::{self, PARTS};
use super::{linker, single_sequence};

/// Room in front of all parts for code that has_stayed, in bytes: [`single_sequence`].
const STAYING_BYTES: usize = 4096;
/// Room for code of each kind in each part, in bytes.
const PART_BYTES: usize = 128 << 10;
/// Bytes of all code that leaves the stack alone, and of all that there is.
const LEAVES_BYTES: usize = STAYING_BYTES + PARTS * PART_BYTES;
const BYTES: usize = LEAVES_BYTES + PARTS * PART_BYTES;

/// What code does with the stack, as unwinders are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing: rsp points to where it returns to, and registers are its caller's. What has_stayed,
    /// what fills frames, programs that read payloads, and others that call nothing and save
    /// nothing.
    Leaf,
    /// Anything, within what `trackway_jit::call` sets up, which is where it must be called from.
    Program,
}

/// How many kinds there are.
pub(super) const KINDS: usize = 2;

// Where code is executed: memory of the module that this is linked into, with the two descriptions.
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .bss.trackway_code,\"aw\",@nobits",
    ".balign 4096",
    ".globl trackway_code",
    ".hidden trackway_code",
    ".type trackway_code,@object",
    ".size trackway_code,{leaves}+{programs}",
    "trackway_code:",
    // As everywhere at a function's beginning.
    ".cfi_startproc",
    ".zero {leaves}",
    ".cfi_endproc",
    // rbp points to its caller's, behind which is where to return to.
    ".cfi_startproc",
    ".cfi_def_cfa rbp,16",
    ".cfi_offset rbp,-16",
    ".cfi_offset rbx,-24",
    ".cfi_offset r13,-32",
    ".cfi_offset r14,-40",
    ".cfi_offset r15,-48",
    ".zero {programs}",
    ".cfi_endproc",
    ".popsection",
    leaves = const LEAVES_BYTES,
    programs = const BYTES - LEAVES_BYTES,
);

/// Whole pages, which nobody looks at before code is there.
#[cfg(target_arch = "x86_64")]
#[repr(C, align(4096))]
struct Pages(UnsafeCell<[u8; BYTES]>);

// SAFETY: the kernel alone changes what is there, and instructions alone look at it.
#[cfg(target_arch = "x86_64")]
unsafe impl Sync for Pages {}

#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    #[link_name = "trackway_code"]
    static PAGES: Pages;
}

static WRITTEN: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
static EXECUTED: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());

/// These pages, if machine code is made for this processor.
#[cfg(target_arch = "x86_64")]
fn pages() -> Option<*mut u8> {
    // SAFETY: the memory is there (above).
    Some(unsafe { PAGES.0.get() }.cast())
}

#[cfg(not(target_arch = "x86_64"))]
const fn pages() -> Option<*mut u8> {
    None
}

/// Takes the memory, where machine code is made for this processor. Without it all is interpreted.
pub(crate) fn prepare() {
    let Some(executed) = pages() else { return };
    // SAFETY: it is whole pages, of zeros that nobody has asked for.
    let written = unsafe { trackway_sys::memory::executable(executed, BYTES) };
    let Some(written) = written else { return };
    // SAFETY: the memory was just mapped, with as much room, and has_stayed.
    unsafe {
        let staying = core::slice::from_raw_parts_mut(written, STAYING_BYTES);
        single_sequence::prepare(staying, executed, LEAVES_BYTES);
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
    if crate::state::thread::is_in_filter() {
        arena::pin_occupied();
    }
}

/// A handler that has interrupted who makes a link may fork, too. In the child, which does not have
/// what he writes through, it is memory of the child's own.
unsafe extern "C" fn in_fork_child() {
    let written = WRITTEN.load(Ordering::Relaxed);
    if linker::is_interrupted() && !written.is_null() {
        // SAFETY: a fork child has nothing there.
        unsafe { trackway_sys::memory::put_zeros(written, BYTES) };
    }
}

/// Forgets it, in a fork child, which does not have the mapping that is written through.
pub(super) fn reset_in_fork_child() {
    WRITTEN.store(core::ptr::null_mut(), Ordering::Relaxed);
}

/// Whether there is such memory.
pub(super) fn is_available() -> bool {
    !WRITTEN.load(Ordering::Relaxed).is_null()
}

/// A part's room for code of a kind, from `used` bytes on.
///
/// # Safety
/// Nobody else has it, and nobody is in code there.
pub(super) unsafe fn free_code<'r>(kind: Kind, part: usize, used: usize) -> Option<&'r mut [u8]> {
    let written = WRITTEN.load(Ordering::Relaxed);
    let length = PART_BYTES.checked_sub(used)?;
    if written.is_null() || part >= PARTS {
        return None;
    }
    let begin = written.wrapping_add(place(kind, part, used));
    // SAFETY: the mapping has room for all parts and has_stayed; it is the caller's alone.
    Some(unsafe { core::slice::from_raw_parts_mut(begin, length) })
}

/// The code of a program that was written `used` bytes from the beginning of a part.
///
/// # Safety
/// It is code there, made by `trackway_jit::x86::emit`.
pub(super) unsafe fn entry(kind: Kind, part: usize, used: usize) -> Entry {
    // SAFETY: an address of code that has this type.
    unsafe { core::mem::transmute::<*mut u8, Entry>(executed(kind, part, used)) }
}

/// The code of a framer that was written there.
///
/// # Safety
/// It is code there, made by `trackway_jit::x86::emit_fill`.
pub(super) unsafe fn fill(part: usize, used: usize) -> Fill {
    // SAFETY: an address of code that has this type.
    unsafe { core::mem::transmute::<*mut u8, Fill>(executed(Kind::Leaf, part, used)) }
}

/// The code of a program that was written there to run on payloads.
///
/// # Safety
/// It is code there, made by `trackway_jit::x86::emit_direct`.
pub(super) unsafe fn direct(part: usize, used: usize) -> *const u8 {
    executed(Kind::Leaf, part, used)
}

fn executed(kind: Kind, part: usize, used: usize) -> *mut u8 {
    EXECUTED.load(Ordering::Relaxed).wrapping_add(place(kind, part, used))
}

/// Where that is, in bytes from the beginning.
const fn place(kind: Kind, part: usize, used: usize) -> usize {
    let begin = match kind {
        Kind::Leaf => STAYING_BYTES,
        Kind::Program => LEAVES_BYTES,
    };
    begin + part * PART_BYTES + used
}
