//! libtrackway.so: the C interface over the agent.
//!
//! Exports the functions of include/trackway/abi/abi.h and include/trackway/dynamic.h,
//! [`trackway_abi_copy`], and functions of the C library whose calls it must observe: `vfork` and
//! `clone` (see [`vfork`]), `setuid`, `seteuid`, `setreuid` and `setresuid` (see
//! [`trackway_agent::setuid`]). Its constructor starts the agent. Linked with `-z nodelete`: a
//! restartable sequence may never be unmapped under a thread that runs it.
//!
//! Does not use std, which would load libgcc_s.so: that alone takes 90 µs of a program's start, as
//! much as everything else.
#![no_std]

use core::ffi::{c_char, c_int, c_uint, c_void};

use trackway_agent::abi::{Event, Field, Value};
use trackway_agent::app_contexts::{self, Context, SavedValue};
use trackway_agent::dynamic::{self, DynamicEvent};
use trackway_agent::{CloneArguments, THREAD_STAMP_OFFSET, THREAD_VFORK_OFFSET};

/// Registers a module's events; see include/trackway/abi/abi.h.
///
/// # Safety
/// The range holds pointers to events of a loaded module, or nulls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trackway_abi_register(begin: *const *mut Event, end: *const *mut Event) {
    // SAFETY: the caller upholds the same contract.
    unsafe { trackway_agent::register_events(begin, end) };
}

/// Requests snapshots of flight recorders; see include/trackway/abi/abi.h.
///
/// # Safety
/// `session` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trackway_abi_snapshot(session: *const c_char) -> c_int {
    // SAFETY: the caller upholds the same contract.
    unsafe { trackway_agent::snapshot::request_snapshots(session) as c_int }
}

/// Sets a context that is a number; see include/trackway/abi/abi.h.
///
/// # Safety
/// The contract of include/trackway/abi/abi.h applies.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trackway_abi_context_set(context: *const Context, bits: u64) {
    // SAFETY: the caller's context.
    if let Some(context) = unsafe { context.as_ref() } {
        app_contexts::set_number(context, bits);
    }
}

/// Sets a context that is a string; see include/trackway/abi/abi.h.
///
/// # Safety
/// The contract of include/trackway/abi/abi.h applies.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trackway_abi_context_set_text(
    context: *const Context,
    text: *const c_char,
    length: usize,
) {
    // SAFETY: the caller's context, and the caller's text.
    unsafe {
        if let Some(context) = context.as_ref() {
            app_contexts::set_text(context, text.cast(), length);
        }
    }
}

/// Clears a context's value; see include/trackway/abi/abi.h.
///
/// # Safety
/// The contract of include/trackway/abi/abi.h applies.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trackway_abi_context_clear(context: *const Context) {
    // SAFETY: the caller's context.
    if let Some(context) = unsafe { context.as_ref() } {
        app_contexts::clear_value(context);
    }
}

/// Reads a context's value; see include/trackway/abi/abi.h.
///
/// # Safety
/// The contract of include/trackway/abi/abi.h applies.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trackway_abi_context_get(context: *const Context, value: *mut SavedValue) {
    // SAFETY: the caller's context, and the caller's variable.
    unsafe {
        if let Some(context) = context.as_ref()
            && !value.is_null()
        {
            value.write(app_contexts::save_value(context));
        }
    }
}

/// Restores the value of [`trackway_abi_context_get`]; see include/trackway/abi/abi.h.
///
/// # Safety
/// The contract of include/trackway/abi/abi.h applies.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trackway_abi_context_put(
    context: *const Context,
    value: *const SavedValue,
) {
    // SAFETY: by contract, `context` and `value` are null or point to valid data of the caller.
    if let (Some(context), Some(value)) = unsafe { (context.as_ref(), value.as_ref()) } {
        app_contexts::restore_value(context, value);
    }
}

/// Describes an event at run time; see include/trackway/dynamic.h.
///
/// # Safety
/// The contract of include/trackway/dynamic.h applies.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trackway_dynamic_describe(
    provider: *const c_char,
    name: *const c_char,
    level: c_uint,
    fields: *const Field,
    field_count: c_uint,
    event: *mut *const DynamicEvent,
) -> c_int {
    // SAFETY: the caller upholds the same contract.
    let described = unsafe { dynamic::describe_event(provider, name, level, fields, field_count) };
    let (handle, result) = match described {
        Ok(described) => (&raw const *described, 0),
        Err(errno) => (core::ptr::null(), errno),
    };
    if !event.is_null() {
        // SAFETY: the caller's variable.
        unsafe { *event = handle };
    }
    result
}

/// Returns true if a session records an event that was described; see include/trackway/dynamic.h.
///
/// # Safety
/// `event` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trackway_dynamic_enabled(event: *const DynamicEvent) -> c_int {
    // SAFETY: handles are in a static table.
    unsafe { event.as_ref() }.is_some_and(DynamicEvent::is_enabled).into()
}

/// Records an event that was described; see include/trackway/dynamic.h.
///
/// # Safety
/// The contract of include/trackway/dynamic.h applies.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trackway_dynamic_record(
    event: *const DynamicEvent,
    values: *const Value,
    count: c_uint,
) -> c_int {
    // SAFETY: handles are in a static table; the caller vouches for the values.
    unsafe { event.as_ref().map_or(0, |event| dynamic::record_event(event, values, count)) }
}

/// Allocator that refuses every request. The agent does not allocate, but crates that it shares
/// with the readers could, so there must be an allocator.
struct RefusingAllocator;

// SAFETY: a null pointer means that there is no memory; no memory is ever handed out.
unsafe impl core::alloc::GlobalAlloc for RefusingAllocator {
    unsafe fn alloc(&self, _: core::alloc::Layout) -> *mut u8 {
        core::ptr::null_mut()
    }

    unsafe fn dealloc(&self, _: *mut u8, _: core::alloc::Layout) {}
}

#[global_allocator]
static ALLOCATOR: RefusingAllocator = RefusingAllocator;

/// Aborts the process: the agent panics only on a bug of ours, and cannot continue.
#[cfg(not(test))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    trackway_agent::abort()
}

// core's precompiled unwinding tables refer to this symbol; panics abort, so nothing reads the
// tables. Hidden, so that no other Rust library in the process uses it.
core::arch::global_asm!(
    ".globl rust_eh_personality",
    ".hidden rust_eh_personality",
    "rust_eh_personality:",
    #[cfg(target_arch = "x86_64")]
    "ud2",
    #[cfg(target_arch = "aarch64")]
    "udf #0",
    #[cfg(target_arch = "riscv64")]
    "unimp",
);

extern "C" fn start_agent() {
    // If the library is loaded twice, under two paths, the copy whose symbols are found wraps the
    // program's calls. The other copy stays inactive, because it cannot detect vfork children, in
    // which it would use the parent's rseq area.
    if trackway_agent::is_first_copy(c"trackway_abi_copy", start_agent as *const c_void) {
        trackway_agent::start();
    }
}

/// A symbol by which copies of the library find each other: no other code refers to it, so its
/// address is in the first copy. (The address of a function may be in a program that lies at a
/// fixed address and calls it.)
#[unsafe(no_mangle)]
pub static trackway_abi_copy: u8 = 0;

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = start_agent;

/// Wraps clone(2): see [`trackway_agent::clone`]. The last three arguments of the C function are
/// variadic, which are passed like any others (on x86-64, AArch64 and RISC-V, if they are no longer
/// than a register).
///
/// # Safety
/// The contract of clone(2) applies.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clone(
    function: *mut c_void,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent_tid: *mut c_void,
    tls: *mut c_void,
    child_tid: *mut c_void,
) -> c_int {
    let arguments = CloneArguments { function, stack, flags, argument, parent_tid, tls, child_tid };
    // SAFETY: the caller upholds the same contract.
    unsafe { trackway_agent::clone(&arguments) }
}

/// Defines a set*id function: calls the C library's function, then moves the agent to the new user.
/// `users` are the real, effective and saved user that root gets by this call.
macro_rules! set_user {
    ($name:ident, $wrapped:ident, ($($user:ident),+), $users:expr) => {
        /// Wraps the C library's function of this name.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($user: u32),+) -> c_int {
            type Function = extern "C" fn($($user: u32),+) -> c_int;
            let address = trackway_agent::setuid::$wrapped.address();
            // SAFETY: the C library's function of this name has this type; null is no function.
            let function: Option<Function> = unsafe { core::mem::transmute(address) };
            let Some(function) = function else { return -1 };
            // Users that root gets; (uid_t) -1 leaves a user unchanged.
            let users: [u32; 3] = $users;
            let users = users.map(|user| (user != u32::MAX).then_some(user));
            let mut change = trackway_agent::setuid::UserChange::begin(users);
            let result = function($($user),+);
            if result == 0 {
                change.complete();
            }
            result
        }
    };
}

set_user!(setuid, SETUID, (user), [user; 3]);
set_user!(seteuid, SETEUID, (effective), [u32::MAX, effective, u32::MAX]);
set_user!(setreuid, SETREUID, (real, effective), [real, effective, effective]);
set_user!(setresuid, SETRESUID, (real, effective, saved), [real, effective, saved]);

/// Wraps vfork(2), so that the agent detects the child. The child shares its parent's memory,
/// thread-local storage included, while the kernel has dropped its rseq registration. Its events
/// must not use the parent's rseq area, whose CPU number is stale: in a measurement, a third of
/// them were lost silently.
///
/// The child runs on the parent's stack and returns first, so the return address cannot stay on
/// the stack, and nothing may be pushed: hence assembly.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub extern "C" fn vfork() -> i32 {
    core::arch::naked_asm!(
        "pop rdi",
        "mov rsi, qword ptr [rip + trackway_thread@GOTTPOFF]",
        "mov qword ptr fs:[rsi + {stamp}], 0",
        "inc dword ptr fs:[rsi + {depth}]",
        "mov eax, 58", // SYS_vfork
        "syscall",
        "push rdi",
        "test rax, rax",
        "jz 2f", // the child
        "dec dword ptr fs:[rsi + {depth}]",
        "cmp rax, -4095",
        "jae 3f",
        "2:",
        "ret",
        "3:",
        "mov edi, eax",
        "jmp {failed}",
        stamp = const THREAD_STAMP_OFFSET,
        depth = const THREAD_VFORK_OFFSET,
        failed = sym vfork_failed,
    )
}

/// Wraps vfork(2) on AArch64, like the function for x86-64. AArch64 has clone(2) with these flags
/// instead. The return address is in a register, which the kernel keeps for both processes.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub extern "C" fn vfork() -> i32 {
    core::arch::naked_asm!(
        "hint #34", // bti c
        "adrp x9, :gottprel:trackway_thread",
        "ldr x9, [x9, :gottprel_lo12:trackway_thread]",
        "mrs x10, tpidr_el0",
        "add x9, x9, x10",
        "str xzr, [x9, {stamp}]",
        "ldr w10, [x9, {depth}]",
        "add w10, w10, #1",
        "str w10, [x9, {depth}]",
        "mov x0, {flags}",
        "mov x1, #0", // stack of the child: the same
        "mov x2, #0",
        "mov x3, #0",
        "mov x4, #0",
        "mov x8, {clone}",
        "svc #0",
        "cbz x0, 2f", // the child
        "ldr w10, [x9, {depth}]",
        "sub w10, w10, #1",
        "str w10, [x9, {depth}]",
        "cmn x0, #4095",
        "b.hs 3f",
        "2:",
        "ret",
        "3:",
        "b {failed}",
        stamp = const THREAD_STAMP_OFFSET,
        depth = const THREAD_VFORK_OFFSET,
        flags = const VFORK_FLAGS,
        clone = const SYS_CLONE,
        failed = sym vfork_failed,
    )
}

/// Wraps vfork(2) on RISC-V, with the same registers as on AArch64.
#[cfg(target_arch = "riscv64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub extern "C" fn vfork() -> i32 {
    core::arch::naked_asm!(
        "la.tls.ie t0, trackway_thread",
        "add t0, t0, tp",
        "sd zero, {stamp}(t0)",
        "lw t1, {depth}(t0)",
        "addiw t1, t1, 1",
        "sw t1, {depth}(t0)",
        "li a0, {flags}",
        "li a1, 0", // stack of the child: the same
        "li a2, 0",
        "li a3, 0",
        "li a4, 0",
        "li a7, {clone}",
        "ecall",
        "beqz a0, 2f", // the child
        "lw t1, {depth}(t0)",
        "addiw t1, t1, -1",
        "sw t1, {depth}(t0)",
        "li t1, -4095",
        "bgeu a0, t1, 3f",
        "2:",
        "ret",
        "3:",
        "tail {failed}",
        stamp = const THREAD_STAMP_OFFSET,
        depth = const THREAD_VFORK_OFFSET,
        flags = const VFORK_FLAGS,
        clone = const SYS_CLONE,
        failed = sym vfork_failed,
    )
}

/// CLONE_VFORK, CLONE_VM, and SIGCHLD when the child ends (clone(2)).
#[cfg(not(target_arch = "x86_64"))]
const VFORK_FLAGS: c_int = 0x4000 | 0x100 | 17;
/// Number of clone(2) on machines with the system calls of asm-generic/unistd.h.
#[cfg(not(target_arch = "x86_64"))]
const SYS_CLONE: c_int = 220;

extern "C" fn vfork_failed(negative_errno: i32) -> i32 {
    trackway_agent::Errno(-negative_errno).set();
    -1
}
