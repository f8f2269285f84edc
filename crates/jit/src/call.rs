//! Calls JIT-compiled code in such a way that signal handlers can unwind through it.
//!
//! The signal handler of a profiler or crash reporter finds callers by the unwind information
//! (DWARF CFI) of the interrupted code. Code generated at run time has only the description of the
//! memory that contains it (`agent::filters::executable_memory`). That description states that rbp
//! points to the caller's saved rbp, which the return address follows. This holds at every
//! instruction of every program, because
//!
//! - this module calls the program, and sets up rbp accordingly;
//! - a function of the program either leaves rbp alone, or saves it and lets it point to the saved
//!   value, before the return address ([`crate::x86`]). Before the prologue and after the epilogue,
//!   rbp still belongs to the caller, so that unwinding only skips one function;
//! - helpers preserve rbp, and call functions of the program through this module.
//!
//! This module also saves the other callee-saved registers, where the description expects them: a
//! program saves only those that it changes, at varying offsets. Unwinders that resume in a caller
//! need these registers (pthread_cancel(3)).
#![expect(unsafe_code, reason = "it is made of instructions")]

/// Calls a program, or one of its functions, with two arguments; returns the answer.
///
/// # Safety
/// `code` must be the result of [`crate::x86::emit_program`], or the address of a function in that
/// code, and must take these arguments.
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
        // By contract, the program restored these registers, so only the stack is released.
        "leave",
        ".cfi_restore rbp",
        ".cfi_def_cfa rsp,8",
        "ret",
        ".cfi_endproc",
    )
}

/// Replaces the call on machines without a code generator.
///
/// # Safety
/// Same contract as the x86-64 version; never called.
#[cfg(not(all(target_arch = "x86_64", unix)))]
pub(crate) unsafe extern "C" fn call_program(
    slots: *const u64,
    element: u64,
    code: *const (),
) -> u64 {
    type Code = unsafe extern "C" fn(*const u64, u64) -> u64;
    // SAFETY: by this function's contract.
    unsafe { core::mem::transmute::<*const (), Code>(code)(slots, element) }
}
