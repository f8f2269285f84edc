//! Filters that run in one restartable sequence, without counting the thread as a reader.
//!
//! Most filters on numbers are machine code that reads a payload and answers
//! ([`trackway_jit::x86::emit_direct`]). A few permanent instructions at the beginning of the
//! executable memory enter such code. All executable memory is one sequence, with one description
//! that never changes. So a visit to a CPU ends every run there, as it ends a thread's attempt to
//! be counted (`trackway_ring::inside`). A thread that was preempted inside continues in this
//! library's own text, however long it slept and whatever the memory holds by then.
//!
//! docs/design/0008-filters.md, "Filters in one sequence", has the argument.

use core::sync::atomic::{AtomicU32, Ordering};

use trackway_abi::session::SESSIONS_MAX;

use super::Link;
use crate::abi::Event;
use crate::payload::StagedPayload;
use crate::state::filter_links::place_of;
use crate::state::process::PROCESS;
use crate::state::thread;
pub(super) use sequence::{install_entry, is_available};

/// The verdict of a filter in one sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuickVerdict {
    /// The event is recorded, by the decision with this tag.
    Passes(u32),
    /// The event is not recorded.
    Fails,
    /// No filter ran: the ordinary filter path gives the verdict.
    Unknown,
    /// No filter ran, and no filter can run in a sequence until something changes.
    Unsupported,
}

/// Answers of a filter; `NONE` stands for no answer.
const FAILS: u64 = 0;
const PASSES: u64 = 1;
const NONE: u64 = 2;

/// The arguments of `emit`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EmitArguments {
    pub(crate) event: *mut Event,
    pub(crate) payload: StagedPayload,
}

/// Judges an event in a session, if its only filter runs in a sequence. Returns the arguments, too,
/// so that the caller needs no other copy while the filter runs.
///
/// # Safety
/// The contract of [`crate::emit::fast_path::emit`] applies; `enabled` is the event's word.
#[inline(always)]
pub(crate) unsafe fn judge_in_sequence(
    session: usize,
    enabled: *const AtomicU32,
    arguments: EmitArguments,
) -> (QuickVerdict, EmitArguments) {
    // The index is a hint: the plan at that place identifies its event itself.
    // SAFETY: the caller's event.
    let event = unsafe { (&raw const (*arguments.event).index).read_volatile() } as usize;
    let place = place_of(session, event);
    // ORDERING: Acquire pairs with the Release in `linker`: the plan is there.
    let link = Link(place.load(Ordering::Acquire));
    // The tag of a decision of this process: a fork child's tags differ from its parent's tags.
    let tag = PROCESS.decisions[session % SESSIONS_MAX].link_tag.load(Ordering::Relaxed);
    if !link.has_tag(tag) {
        // Tag 0: the session has no filters.
        return (
            if tag == 0 { QuickVerdict::Unsupported } else { QuickVerdict::Unknown },
            arguments,
        );
    }
    let Some(at) = link.quick_plan() else { return (QuickVerdict::Unsupported, arguments) };
    let stamp = thread::thread_stamp();
    if stamp == 0 {
        return (QuickVerdict::Unknown, arguments);
    }
    // SAFETY: a link exists, so the library has started and the stamp word exists for good.
    let stamp_word = unsafe { PROCESS.stamp_word().unwrap_unchecked() };
    let query = sequence::SequenceQuery { arguments, place, link, at, enabled, stamp_word, stamp };
    // SAFETY: the caller's event; a link to a quick plan exists only if the sequence is installed.
    let SequenceAnswer { answer, arguments, link } = unsafe { sequence::run(query) };
    match answer {
        FAILS => (QuickVerdict::Fails, arguments),
        PASSES => (QuickVerdict::Passes(link.tag()), arguments),
        _ => (QuickVerdict::Unknown, arguments),
    }
}

/// A filter's answer, or [`NONE`], with the arguments of the query.
struct SequenceAnswer {
    answer: u64,
    arguments: EmitArguments,
    link: Link,
}

#[cfg(target_arch = "x86_64")]
mod sequence {
    use core::arch::{asm, global_asm};
    use core::mem::offset_of;
    use core::sync::atomic::{AtomicIsize, AtomicPtr, AtomicU32, AtomicU64, Ordering};

    use trackway_ring::rseq::{CPU_ID, Descriptor, SEQUENCE};

    use super::super::Link;
    use super::super::arena;
    use super::super::plan::Plan;
    use super::{EmitArguments, NONE, SequenceAnswer};
    use crate::payload::StagedPayload;

    /// The entry of the sequence; null: there is none.
    static ENTRY: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
    /// Sequence descriptor for all executable memory after the entry.
    static DESCRIPTOR: Descriptor = Descriptor::none();
    /// Offset of threads' rseq areas from the thread pointer, in bytes.
    static AREA: AtomicIsize = AtomicIsize::new(0);

    // The entry, to be copied: it jumps only within itself and to addresses in registers. No
    // interruption is possible between the store of the descriptor and the next instruction: a
    // thread that is interrupted after the store is in the sequence.
    //
    //   rsi payload | r10 its size | rdi the link's place | rdx its required value | r9 its plan
    //   r11 the process stamp's place | rax its required value | rcx AREA | r8 descriptor
    //   at rsp - 8 the event's enable word
    global_asm!(
        ".pushsection .text.trackway_quick,\"ax\",@progbits",
        ".balign 64",
        ".globl trackway_quick_begin",
        ".hidden trackway_quick_begin",
        "trackway_quick_begin:",
        "endbr64",
        // Without restartable sequences, this code would not be aborted.
        "cmp dword ptr fs:[rcx+{cpu}],0",
        "jl 22f",
        "mov qword ptr fs:[rcx+{sequence}],r8",
        ".globl trackway_quick_start",
        ".hidden trackway_quick_start",
        "trackway_quick_start:",
        // The plan and its contents stay valid until the sequence ends.
        "cmp qword ptr [rdi],rdx",
        "jne 22f",
        // Not in a fork child made since then: the code belongs to its parent.
        "cmp qword ptr [r11],rax",
        "jne 22f",
        // The plan is for this event in this window, and for the present generation.
        "mov rcx,qword ptr [rsp-8]",
        "cmp rcx,qword ptr [r9+{enabled}]",
        "jne 22f",
        "mov rcx,qword ptr [r9+{generation}]",
        "mov r8,qword ptr [r9+{expected}]",
        "cmp qword ptr [rcx],r8",
        "jne 22f",
        // Signed: a record that was cut, which must be counted, has a size below 0.
        "cmp r10,qword ptr [r9+{bytes}]",
        "jl 22f",
        // Payload in rdi, the answer in rax. The code ends by `ret`, which leaves the sequence.
        "mov rdi,rsi",
        "jmp qword ptr [r9+{direct}]",
        "22:",
        "mov eax,{none}",
        "ret",
        ".globl trackway_quick_end",
        ".hidden trackway_quick_end",
        "trackway_quick_end:",
        ".popsection",
        // Abort handler, after the signature that glibc registered (RSEQ_SIG). Nothing in the
        // sequence moves the stack, so the handler returns to the entry's caller; and so does an
        // unwinder in a signal handler, which finds an interrupted thread here.
        ".pushsection .text.trackway_quick,\"ax\",@progbits",
        ".byte 0x0f,0xb9,0x3d",
        ".long 0x53053053",
        ".globl trackway_quick_aborted",
        ".hidden trackway_quick_aborted",
        "trackway_quick_aborted:",
        ".cfi_startproc",
        "mov eax,{none}",
        "ret",
        ".cfi_endproc",
        ".popsection",
        cpu = const CPU_ID,
        sequence = const SEQUENCE,
        enabled = const offset_of!(Plan, enabled),
        generation = const offset_of!(Plan, generation),
        expected = const offset_of!(Plan, expected),
        bytes = const offset_of!(Plan, direct_bytes),
        direct = const offset_of!(Plan, direct),
        none = const NONE,
    );

    unsafe extern "C" {
        static trackway_quick_begin: u8;
        static trackway_quick_start: u8;
        static trackway_quick_end: u8;
        static trackway_quick_aborted: u8;
    }

    /// Copies the entry to the beginning of the `bytes` bytes of executable memory at `executed`.
    ///
    /// # Safety
    /// `written` is the beginning of that memory, and is not changed from now on.
    pub(in super::super) unsafe fn install_entry(
        written: &mut [u8],
        executed: *mut u8,
        bytes: usize,
    ) {
        let Some(area) = trackway_sys::thread::rseq_offset() else { return };
        let (begin, start, end) = (
            &raw const trackway_quick_begin,
            &raw const trackway_quick_start,
            &raw const trackway_quick_end,
        );
        let (length, before) = (end.addr() - begin.addr(), start.addr() - begin.addr());
        let Some(place) = written.get_mut(..length) else { return };
        // SAFETY: the assembly above, in this library's text.
        place.copy_from_slice(unsafe { core::slice::from_raw_parts(begin, length) });
        let start = executed.wrapping_add(before);
        DESCRIPTOR.describe(start, bytes - before, &raw const trackway_quick_aborted);
        AREA.store(area, Ordering::Relaxed);
        // A thread that enters has found a link, which is stored with Release, later.
        ENTRY.store(executed, Ordering::Relaxed);
    }

    /// Returns true if the sequence is installed.
    pub(in super::super) fn is_available() -> bool {
        !ENTRY.load(Ordering::Relaxed).is_null()
    }

    /// The arguments of a run, and the values that must be unchanged in the sequence.
    pub(super) struct SequenceQuery {
        pub(super) arguments: EmitArguments,
        pub(super) place: &'static AtomicU64,
        pub(super) link: Link,
        pub(super) at: u32,
        pub(super) enabled: *const AtomicU32,
        pub(super) stamp_word: &'static AtomicU64,
        pub(super) stamp: u64,
    }

    /// Runs the filter. Returns the arguments and the filter's answer, or [`NONE`] if a value has
    /// changed or the thread was interrupted.
    ///
    /// # Safety
    /// The link refers to a quick plan for this event at `at`; the payload is the event's. The
    /// thread does not belong to a vfork child.
    #[inline(always)]
    pub(super) unsafe fn run(query: SequenceQuery) -> SequenceAnswer {
        let (answer, event, start, size_and_flags, link);
        // SAFETY: while the link holds, in the sequence, the plan is unchanged, with code of
        // `emit_direct` for the event. That code reads so many bytes of the payload, changes no
        // memory and only caller-saved registers, and leaves the stack alone.
        unsafe {
            asm!(
                // Registers are saved below the stack pointer, which must not move: unwind
                // information describes its place. Signal handlers leave 128 bytes there alone, and
                // so does the called code, which keeps only its return address on the stack.
                "mov qword ptr [rsp-16],rcx",
                "mov qword ptr [rsp-24],rdx",
                "mov qword ptr [rsp-32],r10",
                "mov qword ptr [rsp-40],rsi",
                "mov qword ptr [rsp-48],r8",
                "mov rcx,qword ptr [rip+{area}]",
                "lea r8,[rip+{descriptor}]",
                "call qword ptr [rip+{entry}]",
                // No descriptor stays behind.
                "mov rcx,qword ptr [rip+{area}]",
                "mov qword ptr fs:[rcx+{sequence}],0",
                "mov rdx,qword ptr [rsp-24]",
                "mov r10,qword ptr [rsp-32]",
                "mov rsi,qword ptr [rsp-40]",
                "mov r8,qword ptr [rsp-48]",
                area = sym AREA,
                descriptor = sym DESCRIPTOR,
                entry = sym ENTRY,
                sequence = const SEQUENCE,
                inlateout("rax") query.stamp => answer,
                inlateout("rcx") query.enabled => _,
                inlateout("rdx") query.link.0 => link,
                inlateout("rsi") query.arguments.payload.start => start,
                inlateout("rdi") query.place.as_ptr() => _,
                inlateout("r8") query.arguments.event => event,
                inlateout("r9") arena::address_of(query.at) => _,
                inlateout("r10") query.arguments.payload.size_and_flags => size_and_flags,
                inlateout("r11") query.stamp_word.as_ptr() => _,
            );
        }
        let payload = StagedPayload::new(start, size_and_flags);
        SequenceAnswer { answer, arguments: EmitArguments { event, payload }, link: Link(link) }
    }
}

/// Stub for processors without a compiler, on which no plan is quick.
#[cfg(not(target_arch = "x86_64"))]
mod sequence {
    use core::sync::atomic::{AtomicU32, AtomicU64};

    use super::super::Link;
    use super::{EmitArguments, NONE, SequenceAnswer};

    #[expect(dead_code, reason = "nobody is asked")]
    pub(super) struct SequenceQuery {
        pub(super) arguments: EmitArguments,
        pub(super) place: &'static AtomicU64,
        pub(super) link: Link,
        pub(super) at: u32,
        pub(super) enabled: *const AtomicU32,
        pub(super) stamp_word: &'static AtomicU64,
        pub(super) stamp: u64,
    }

    pub(super) const unsafe fn run(query: SequenceQuery) -> SequenceAnswer {
        SequenceAnswer { answer: NONE, arguments: query.arguments, link: query.link }
    }

    pub(in super::super) const unsafe fn install_entry(_: &mut [u8], _: *mut u8, _: usize) {}

    pub(in super::super) const fn is_available() -> bool {
        false
    }
}
