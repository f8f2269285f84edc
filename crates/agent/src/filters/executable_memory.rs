//! Executable memory: one file without a name, mapped twice when the library starts, so that later
//! filters need no system call, which a sandbox might forbid.
//!
//! No other process can write to it: the file is closed at once, and fork children do not get the
//! writable mapping. (Fork children interpret filters: the executable mapping is their parent's,
//! too.)
//!
//! The executable mapping lies in the library's own memory, in place of zeros. Unwinders find their
//! data for an address through its module, in a table that the linker made. So this memory has
//! unwind information as the library's text has. Nothing is registered at run time, which would
//! take locks and memory and slow the program's exceptions. One description must hold at each
//! instruction of all code that will ever lie there. So there are two kinds of code, each with a
//! description and memory of its own: [`CodeKind`].

#[cfg(target_arch = "x86_64")]
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicPtr, Ordering};

use trackway_jit::frame::{Entry, Fill};

use super::arena::{self, PARTS};
use super::{linker, single_sequence};

/// Bytes before all parts, for code that is never replaced ([`single_sequence`]).
const PERMANENT_BYTES: usize = 4096;
/// Bytes for code of each kind in each part.
const PART_BYTES: usize = 128 << 10;
/// Bytes for permanent code and all leaf code ([`CodeKind::Leaf`]).
const LEAVES_BYTES: usize = PERMANENT_BYTES + PARTS * PART_BYTES;
const TOTAL_BYTES: usize = LEAVES_BYTES + PARTS * PART_BYTES;

/// Stack use of machine code, as unwinders need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CodeKind {
    /// No stack use: rsp points to the return address, and registers are the caller's. Leaf code is
    /// the permanent code, code that fills frames, programs that read payloads, and other programs
    /// that call nothing and save nothing.
    Leaf,
    /// Any stack use, within the frame of `trackway_jit::call`, which must call the code.
    Program,
}

/// Number of kinds of code.
pub(super) const CODE_KINDS: usize = 2;

// The executable mapping: memory of the linked module, with the two descriptions.
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .bss.trackway_code,\"aw\",@nobits",
    ".balign 4096",
    ".globl trackway_code",
    ".hidden trackway_code",
    ".type trackway_code,@object",
    ".size trackway_code,{leaves}+{programs}",
    "trackway_code:",
    // Unwind state of a function's first instruction.
    ".cfi_startproc",
    ".zero {leaves}",
    ".cfi_endproc",
    // rbp points to the caller's rbp, which the return address follows.
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
    programs = const TOTAL_BYTES - LEAVES_BYTES,
);

/// Pages for code, which no thread reads before they hold code.
#[cfg(target_arch = "x86_64")]
#[repr(C, align(4096))]
struct Pages(UnsafeCell<[u8; TOTAL_BYTES]>);

// SAFETY: only the kernel changes this memory, and only instruction fetches read it.
#[cfg(target_arch = "x86_64")]
unsafe impl Sync for Pages {}

#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    #[link_name = "trackway_code"]
    static PAGES: Pages;
}

static WRITABLE: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
static EXECUTABLE: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());

/// Returns the pages for code, if the compiler exists for this processor.
#[cfg(target_arch = "x86_64")]
fn executable_pages() -> Option<*mut u8> {
    // SAFETY: the assembly above defines the memory.
    Some(unsafe { PAGES.0.get() }.cast())
}

#[cfg(not(target_arch = "x86_64"))]
const fn executable_pages() -> Option<*mut u8> {
    None
}

/// Maps the memory, if the compiler exists for this processor. Without it all filters are
/// interpreted.
pub(crate) fn map_code_memory() {
    let Some(executed) = executable_pages() else { return };
    // SAFETY: whole pages of zeros, which nothing has used.
    let written = unsafe { trackway_sys::memory::map_executable(executed, TOTAL_BYTES) };
    let Some(written) = written else { return };
    // SAFETY: the memory was just mapped, with as many bytes, and stays.
    unsafe {
        let permanent = core::slice::from_raw_parts_mut(written, PERMANENT_BYTES);
        single_sequence::install_entry(permanent, executed, LEAVES_BYTES);
    }
    // SAFETY: the handler may run at any time; neither it nor this library is ever removed.
    unsafe {
        libc::pthread_atfork(Some(pin_before_fork), None, Some(replace_mapping_in_fork_child))
    };
    EXECUTABLE.store(executed, Ordering::Relaxed);
    WRITABLE.store(written, Ordering::Relaxed);
}

/// Pins parts before a fork in a signal handler that interrupted a filter. The child continues in
/// the same code, which the parent must not overwrite; neither process detects when the other
/// leaves the code. (A direct clone(2) in the handler stays undetected.)
unsafe extern "C" fn pin_before_fork() {
    if crate::state::thread::is_in_filter() {
        arena::pin_occupied();
    }
}

/// Maps zeros for a fork child whose thread was making a link: the child does not have the writable
/// mapping.
unsafe extern "C" fn replace_mapping_in_fork_child() {
    let written = WRITABLE.load(Ordering::Relaxed);
    if linker::is_interrupted() && !written.is_null() {
        // SAFETY: a fork child has nothing there.
        unsafe { trackway_sys::memory::map_zeros(written, TOTAL_BYTES) };
    }
}

/// Clears the address of the writable mapping in a fork child, which lacks the mapping.
pub(super) fn reset_in_fork_child() {
    WRITABLE.store(core::ptr::null_mut(), Ordering::Relaxed);
}

/// Returns true if there is executable memory.
pub(super) fn is_available() -> bool {
    !WRITABLE.load(Ordering::Relaxed).is_null()
}

/// Returns a part's free memory for code of a kind, from `used` bytes on.
///
/// # Safety
/// No other thread uses that memory or executes code there.
pub(super) unsafe fn free_code<'r>(
    kind: CodeKind,
    part: usize,
    used: usize,
) -> Option<&'r mut [u8]> {
    let written = WRITABLE.load(Ordering::Relaxed);
    let length = PART_BYTES.checked_sub(used)?;
    if written.is_null() || part >= PARTS {
        return None;
    }
    let begin = written.wrapping_add(code_offset(kind, part, used));
    // SAFETY: the mapping holds all parts and stays; this memory is the caller's alone.
    Some(unsafe { core::slice::from_raw_parts_mut(begin, length) })
}

/// Returns the code of a program that was written `used` bytes from the beginning of a part.
///
/// # Safety
/// `trackway_jit::x86::emit_program` made the code at that place.
pub(super) unsafe fn program_entry(kind: CodeKind, part: usize, used: usize) -> Entry {
    // SAFETY: an address of code that has this type.
    unsafe { core::mem::transmute::<*mut u8, Entry>(code_address(kind, part, used)) }
}

/// Returns the code of a framer that was written `used` bytes from the beginning of a part.
///
/// # Safety
/// `trackway_jit::x86::emit_fill` made the code at that place.
pub(super) unsafe fn fill_entry(part: usize, used: usize) -> Fill {
    // SAFETY: an address of code that has this type.
    unsafe { core::mem::transmute::<*mut u8, Fill>(code_address(CodeKind::Leaf, part, used)) }
}

/// Returns the code of a program on payloads, written `used` bytes from the beginning of a part.
///
/// # Safety
/// `trackway_jit::x86::emit_direct` made the code at that place.
pub(super) unsafe fn direct_entry(part: usize, used: usize) -> *const u8 {
    code_address(CodeKind::Leaf, part, used)
}

fn code_address(kind: CodeKind, part: usize, used: usize) -> *mut u8 {
    EXECUTABLE.load(Ordering::Relaxed).wrapping_add(code_offset(kind, part, used))
}

/// Returns the offset of code from the beginning of the memory, in bytes.
const fn code_offset(kind: CodeKind, part: usize, used: usize) -> usize {
    let begin = match kind {
        CodeKind::Leaf => PERMANENT_BYTES,
        CodeKind::Program => LEAVES_BYTES,
    };
    begin + part * PART_BYTES + used
}
