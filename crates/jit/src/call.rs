//! Calls of machine code that was made at run time, for those who unwind from within.
//!
//! A profiler's signal handler, or a crash reporter's, finds callers by the unwind information
//! (DWARF CFI) of the code that it has interrupted. Code that was not there when the program was
//! linked has none but that of the memory which it is put into: one description for all of it
//! (`agent::filters::executable_memory`). It says that rbp points to the caller's rbp, behind which
//! is where to return to. That holds at every instruction of every program, because
//!
//! - it is called from here, where rbp is made to point there;
//! - a function of it leaves rbp alone, or saves it and makes it point to where it was saved,
//!   behind which is where to return to ([`crate::x86`]). Before it has done so, and at its end,
//!   rbp is that of who has called it, so that unwinding just leaves one function out;
//! - what it calls gives rbp back, and calls functions of the program from here.
//!
//! Other registers that belong to a caller are saved here, too, where the description says that
//! they are: a program saves those that it changes, but each in another place. (Who unwinds to go
//! on in a caller needs them: pthread_cancel(3).)
#![expect(unsafe_code, reason = "it is made of instructions")]

/// Calls a program, or a function of it, with two arguments; its answer.
///
/// # Safety
/// `code` is what [`crate::x86::emit_program`] has made, or the address of a function in it, and
/// takes these arguments.
#[cfg(all(target_arch = "x86_64", unix))]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn call_program(
    slots: *const u64,
    element: u64,
    code: *const (),
) -> u64 {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp,-16",
        "mov rbp,rsp",
        ".cfi_def_cfa_register rbp",
        "push rbx",
        ".cfi_offset rbx,-24",
        "push r13",
        ".cfi_offset r13,-32",
        "push r14",
        ".cfi_offset r14,-40",
        "push r15",
        ".cfi_offset r15,-48",
        "call rdx",
        // They are what they were, by contract: so it is but the stack that is left.
        "leave",
        ".cfi_restore rbp",
        ".cfi_def_cfa rsp,8",
        "ret",
        ".cfi_endproc",
    )
}

/// Stands for the call on machines for which no machine code is made.
///
/// # Safety
/// As above; it is never called.
#[cfg(not(all(target_arch = "x86_64", unix)))]
pub(crate) unsafe extern "C" fn call_program(
    slots: *const u64,
    element: u64,
    code: *const (),
) -> u64 {
    type Code = unsafe extern "C" fn(*const u64, u64) -> u64;
    // SAFETY: by contract.
    unsafe { core::mem::transmute::<*const (), Code>(code)(slots, element) }
}
