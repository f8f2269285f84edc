//! Exclusive access by restartable sequence (rseq(2)): move 3 on the CPU that owns the region.
//!
//! The kernel moves a thread that was preempted, migrated or interrupted by a signal inside the
//! sequence to its abort handler. So at most one sequence is under way on a CPU. A sequence cannot
//! be suspended half way, and is atomic for every other sequence on that CPU. For readers on other
//! CPUs the order of its stores counts, and the commit store is the last.
//!
//! Abort handlers stand in the function itself, after a jump, at the place where it gives up
//! anyway. A signal handler finds an interrupted thread there. If the handler unwinds (a
//! profiler's, for example), it uses the function's own unwind information. Code elsewhere could
//! have none, because the place of the frame depends on the function into which the sequence is
//! inlined.
//!
//! The sequence exists for x86-64 (a store is a Release, a load an Acquire) and for AArch64, with a
//! barrier before the first store and a Release as the last one: docs/design/0006-weak-memory.md
//! has the argument. On other machines [`AVAILABLE`] is false and writers claim.

use crate::Region;
use crate::primitive::{AtomicU64, Ordering};
use crate::writer::Plan;

/// True if this library has the sequence for this machine.
pub const AVAILABLE: bool =
    cfg!(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(loom), not(miri)));

/// The words that must not have changed when a sequence commits, in addition to the commit word.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Gate {
    /// The session's generation, in the window.
    pub generation: *const u64,
    /// Value of the generation when this process decided to take part.
    pub expected: u64,
}

/// A thread's rseq area: `struct rseq` of linux/rseq.h, registered by the C library.
#[derive(Debug, Clone, Copy)]
pub struct Area(*mut u8);

/// Offset of `cpu_id` in `struct rseq`.
pub const CPU_ID: usize = 4;
/// Offset of `rseq_cs` in `struct rseq`.
pub const SEQUENCE: usize = 8;

impl Area {
    /// Makes the area from the `struct rseq` at `pointer`.
    ///
    /// # Safety
    /// `pointer` is the calling thread's registered `struct rseq`, used on this thread only.
    #[inline(always)]
    pub const unsafe fn new(pointer: *mut u8) -> Self {
        Self(pointer)
    }

    /// Returns the CPU that this thread runs on; `None` while the area is not registered.
    #[inline(always)]
    pub fn cpu(self) -> Option<u32> {
        // SAFETY: the area is this thread's (see `new`); the kernel writes it, hence volatile.
        let cpu = unsafe { self.0.add(CPU_ID).cast::<u32>().read_volatile() };
        // -1: not registered, -2: registration failed.
        (cpu.cast_signed() >= 0).then_some(cpu)
    }
}

/// Descriptor of a sequence whose place is known only when the program runs: `struct rseq_cs` of
/// linux/rseq.h. Zeroed: no sequence.
///
/// The kernel reads the descriptor when a preempted thread continues, after any length of time. So
/// the descriptor must never change once a thread may have entered the sequence.
#[repr(C, align(32))]
#[derive(Debug)]
pub struct Descriptor([AtomicU64; 4]);

impl Descriptor {
    /// Creates the descriptor of no sequence.
    #[cfg(not(loom))]
    pub const fn none() -> Self {
        Self([const { AtomicU64::new(0) }; 4])
    }

    /// Describes `bytes` bytes of code from `start` on. An aborted thread continues at `abort`,
    /// which lies elsewhere, after the signature that glibc registered. Must be called before any
    /// thread enters.
    pub fn describe(&self, start: *const u8, bytes: usize, abort: *const u8) {
        let [version_and_flags, rest @ ..] = &self.0;
        version_and_flags.store(0, Ordering::Relaxed);
        for (word, value) in rest.iter().zip([start.addr(), bytes, abort.addr()]) {
            word.store(value as u64, Ordering::Relaxed);
        }
    }
}

/// The bytes that a commit copies.
#[derive(Debug, Clone, Copy)]
pub struct Bytes {
    /// Address of `Plan::at`.
    pub target: *mut u8,
    /// The bytes to copy.
    pub source: *const u8,
    /// Number of bytes to copy; copied in words of eight bytes.
    pub count: usize,
}

/// Commits `plan` (move 3) if this thread runs on `cpu`, the gate is open and the commit word is
/// the expected one; else does nothing. Returns true if it committed.
///
/// # Safety
/// `bytes.source` has `bytes.count` readable bytes (rounded up to eight); `bytes.target` is where
/// `plan.at` is mapped, with as many writable bytes; `gate.generation` is mapped.
// Longer than 70 lines: one restartable sequence, in assembly with its comments.
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
#[inline(always)]
pub unsafe fn commit(
    area: Area,
    cpu: u32,
    gate: &Gate,
    region: Region<'_>,
    plan: &Plan,
    bytes: Bytes,
) -> bool {
    const _: () = assert!(size_of::<crate::Control>() == 256 && size_of::<Gate>() == 16);
    let control: *const crate::Control = region.control;
    let committed: u64;
    // SAFETY: the caller vouches for source, target and gate. The control lines are mapped, and
    // other writers touch them only under the same exclusion. The sequence calls nothing, makes
    // no system call and stores to the rseq area's `rseq_cs` only.
    unsafe {
        core::arch::asm!(
            // Descriptor of the sequence: version, flags, start, length, abort handler.
            ".pushsection __rseq_cs,\"aw\"",
            ".balign 32",
            "33:",
            ".long 0,0",
            ".quad 22f,(55f-22f),66f",
            ".popsection",
            "lea rax,[rip+33b]",
            "mov [{area}+8],rax",
            "22:",
            "cmp dword ptr [{area}+4],{cpu:e}",
            "jne 66f",
            "mov rax,[{gate}]",
            "mov rcx,[{gate}+8]",
            "cmp [rax],rcx",
            "jne 66f",
            "cmp [{control}],{expected}",
            "jne 66f",
            // Copies the record in words of eight bytes; free bytes follow it.
            "xor ecx,ecx",
            "77:",
            "mov rax,[{source}+rcx]",
            "mov [{target}+rcx],rax",
            "add rcx,8",
            "cmp rcx,{bytes}",
            "jb 77b",
            // Fills the slot that the present parity does not name.
            "mov eax,{next:e}",
            "and eax,1",
            "shl eax,4",
            "mov [{control}+rax+16],{timestamp}",
            "mov [{control}+rax+24],{events}",
            // The one committing store.
            "mov [{control}],{next}",
            "55:",
            "mov eax,1",
            "jmp 88f",
            // Abort handler, after the signature that glibc registered (RSEQ_SIG): see the module.
            ".byte 0x0f,0xb9,0x3d",
            ".long 0x53053053",
            "66:",
            "xor eax,eax",
            "88:",
            // No descriptor may stay registered: the code could be unmapped later.
            "mov qword ptr [{area}+8],0",
            area = in(reg) area.0,
            cpu = in(reg) cpu,
            gate = in(reg) gate,
            control = in(reg) control,
            expected = in(reg) plan.expected,
            next = in(reg) plan.next,
            source = in(reg) bytes.source,
            target = in(reg) bytes.target,
            bytes = in(reg) bytes.count,
            timestamp = in(reg) plan.timestamp,
            events = in(reg) plan.events,
            out("rax") committed,
            out("rcx") _,
            options(nostack),
        );
    }
    committed != 0
}

/// Commits `plan` (move 3) on AArch64, like the function for x86-64.
///
/// Other sequences on this CPU need no barrier: they run on the same processor, or did so before a
/// switch of threads. Readers on other CPUs need two orders, and no others:
///
/// - a thread that observes any store of the sequence observes at least the commit word on which
///   the plan rests (`dmb ishst`; the counterpart of the Release fence in
///   [`crate::claim::Claim::commit`]). The barrier stands before the sequence, which is shorter so:
///   that commit word was stored before move 1, on this processor;
/// - a thread that observes the new commit word observes all stores before it (`stlr`).
///
/// A store is not done before the branches that it depends on are decided, so none precedes the
/// comparisons. The comparisons need no Acquire: a thread that changes the meaning of their words
/// has visited this CPU, or runs on it.
///
/// # Safety
/// `bytes.source` has `bytes.count` readable bytes (rounded up to eight); `bytes.target` is where
/// `plan.at` is mapped, with as many writable bytes; `gate.generation` is mapped.
// Longer than 70 lines: one restartable sequence, in assembly with its comments.
#[cfg(all(target_arch = "aarch64", not(loom), not(miri)))]
#[inline(always)]
pub unsafe fn commit(
    area: Area,
    cpu: u32,
    gate: &Gate,
    region: Region<'_>,
    plan: &Plan,
    bytes: Bytes,
) -> bool {
    const _: () = assert!(size_of::<crate::Control>() == 256 && size_of::<Gate>() == 16);
    let control: *const crate::Control = region.control;
    let committed: u64;
    // SAFETY: the argument of the function for x86-64 holds for the same accesses here.
    unsafe {
        core::arch::asm!(
            // Descriptor of the sequence: version, flags, start, length, abort handler.
            ".pushsection __rseq_cs,\"aw\"",
            ".balign 32",
            "33:",
            ".long 0,0",
            ".quad 22f,(55f-22f),66f",
            ".popsection",
            // Release for readers: the commit word `expected` before the stores below.
            "dmb ishst",
            "adrp {one},33b",
            "add {one},{one},:lo12:33b",
            "str {one},[{area},#8]",
            "22:",
            "ldr {one:w},[{area},#4]",
            "cmp {one:w},{cpu:w}",
            "b.ne 66f",
            "ldp {one},{other},[{gate}]",
            "ldr {one},[{one}]",
            "cmp {one},{other}",
            "b.ne 66f",
            "ldr {one},[{control}]",
            "cmp {one},{expected}",
            "b.ne 66f",
            // Copies the record in words of eight bytes; free bytes follow it.
            "mov {other},#0",
            "77:",
            "ldr {one},[{source},{other}]",
            "str {one},[{target},{other}]",
            "add {other},{other},#8",
            "cmp {other},{bytes}",
            "b.lo 77b",
            // Fills the slot that the present parity does not name.
            "and {one},{next},#1",
            "add {one},{control},{one},lsl #4",
            "stp {timestamp},{events},[{one},#16]",
            // The one committing store; Release: all stores above before it.
            "stlr {next},[{control}]",
            "55:",
            "mov {one},#1",
            "b 88f",
            // Abort handler, after the signature that glibc registered (RSEQ_SIG): a `brk`.
            ".inst 0xd428bc00",
            "66:",
            "mov {one},#0",
            "88:",
            // No descriptor may stay registered: the code could be unmapped later.
            "str xzr,[{area},#8]",
            area = in(reg) area.0,
            cpu = in(reg) cpu,
            gate = in(reg) gate,
            control = in(reg) control,
            expected = in(reg) plan.expected,
            next = in(reg) plan.next,
            source = in(reg) bytes.source,
            target = in(reg) bytes.target,
            bytes = in(reg) bytes.count,
            timestamp = in(reg) plan.timestamp,
            events = in(reg) plan.events,
            one = out(reg) committed,
            other = out(reg) _,
            options(nostack),
        );
    }
    committed != 0
}

/// Never commits, because this machine has no sequence for move 3: the caller claims.
///
/// # Safety
/// No obligation; the signature equals that of the real function.
// Longer than 70 lines: one restartable sequence, in assembly with its comments.
#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(loom), not(miri))))]
pub unsafe fn commit(
    _area: Area,
    _cpu: u32,
    _gate: &Gate,
    _region: Region<'_>,
    _plan: &Plan,
    _bytes: Bytes,
) -> bool {
    false
}

/// Adds one to `counter` if this thread runs on `cpu` and `word` has the value `expected`; else
/// does nothing. Returns true if it added. For [`crate::inside`].
///
/// # Safety
/// `word` and `counter` are mapped. Only such sequences on this CPU change `counter`.
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
#[inline(always)]
pub unsafe fn add_one(
    area: Area,
    cpu: u32,
    word: *const u64,
    expected: u64,
    counter: *mut u64,
) -> bool {
    let added: u64;
    // SAFETY: the caller vouches for word and counter. The sequence calls nothing, makes no system
    // call and stores to the rseq area's `rseq_cs` only.
    unsafe {
        core::arch::asm!(
            ".pushsection __rseq_cs,\"aw\"",
            ".balign 32",
            "33:",
            ".long 0,0",
            ".quad 22f,(55f-22f),66f",
            ".popsection",
            "lea rax,[rip+33b]",
            "mov [{area}+8],rax",
            "22:",
            "cmp dword ptr [{area}+4],{cpu:e}",
            "jne 66f",
            "cmp [{word}],{expected}",
            "jne 66f",
            "inc qword ptr [{counter}]",
            "55:",
            "mov eax,1",
            "jmp 88f",
            // Abort handler, as in `commit`.
            ".byte 0x0f,0xb9,0x3d",
            ".long 0x53053053",
            "66:",
            "xor eax,eax",
            "88:",
            "mov qword ptr [{area}+8],0",
            area = in(reg) area.0,
            cpu = in(reg) cpu,
            word = in(reg) word,
            expected = in(reg) expected,
            counter = in(reg) counter,
            out("rax") added,
            options(nostack),
        );
    }
    added != 0
}

/// Adds one to `counter` on AArch64. Reads before the call are complete before other threads
/// observe the count (`stlr`), so a counted exit is over. Entries need no barrier: the thread that
/// reuses the memory has had this CPU visited, which is a barrier.
///
/// # Safety
/// `word` and `counter` are mapped. Only such sequences on this CPU change `counter`.
#[cfg(all(target_arch = "aarch64", not(loom), not(miri)))]
#[inline(always)]
pub unsafe fn add_one(
    area: Area,
    cpu: u32,
    word: *const u64,
    expected: u64,
    counter: *mut u64,
) -> bool {
    let added: u64;
    // SAFETY: the argument of the function for x86-64 holds for the same accesses here.
    unsafe {
        core::arch::asm!(
            ".pushsection __rseq_cs,\"aw\"",
            ".balign 32",
            "33:",
            ".long 0,0",
            ".quad 22f,(55f-22f),66f",
            ".popsection",
            "adrp {one},33b",
            "add {one},{one},:lo12:33b",
            "str {one},[{area},#8]",
            "22:",
            "ldr {one:w},[{area},#4]",
            "cmp {one:w},{cpu:w}",
            "b.ne 66f",
            "ldr {one},[{word}]",
            "cmp {one},{expected}",
            "b.ne 66f",
            "ldr {one},[{counter}]",
            "add {one},{one},#1",
            "stlr {one},[{counter}]",
            "55:",
            "mov {one},#1",
            "b 88f",
            // Abort handler, as in `commit`.
            ".inst 0xd428bc00",
            "66:",
            "mov {one},#0",
            "88:",
            "str xzr,[{area},#8]",
            area = in(reg) area.0,
            cpu = in(reg) cpu,
            word = in(reg) word,
            expected = in(reg) expected,
            counter = in(reg) counter,
            one = out(reg) added,
            options(nostack),
        );
    }
    added != 0
}

/// Never adds where there is no sequence, so that the caller counts by atomic instructions.
///
/// # Safety
/// No obligation; the signature equals that of the real function.
#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(loom), not(miri))))]
pub unsafe fn add_one(
    _area: Area,
    _cpu: u32,
    _word: *const u64,
    _expected: u64,
    _counter: *mut u64,
) -> bool {
    false
}
