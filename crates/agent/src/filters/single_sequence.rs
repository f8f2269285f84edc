//! Filters that are asked in one restartable sequence: who is inside of one is not counted.
//!
//! Most filters on numbers are machine code that reads a payload and answers
//! ([`trackway_jit::x86::emit_direct`]). Such code is entered by a few instructions of ours that
//! *stay* at the beginning of the memory that is executed, and all that memory is one sequence, by
//! one description that never changes. So a visit to a CPU ends whoever is inside there, as it ends
//! who is about to be counted (`trackway_ring::inside`), and a thread that was preempted inside
//! goes on in this library's own text, however long it slept and whatever lies there by then.
//!
//! docs/design/0008-filters.md, "Asked in one sequence", has the argument.

use core::sync::atomic::{AtomicU32, Ordering};

use trackway_abi::session::SESSIONS_MAX;

use super::Link;
use crate::abi::Event;
use crate::payload::StagedPayload;
use crate::state::filter_links::place_of;
use crate::state::process::PROCESS;
use crate::state::thread;
pub(super) use sequence::{is_available, prepare};

/// What a filter says of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuickVerdict {
    /// It is recorded, by the decision of this number.
    Passes(u32),
    /// It is not.
    Fails,
    /// Nothing was asked: another way knows.
    Unknown,
    /// Nor will it be known here as long as nothing changes.
    Unsupported,
}

/// A filter's answers, and that there is none.
const FAILS: u64 = 0;
const PASSES: u64 = 1;
const NONE: u64 = 2;

/// An event and its payload, as `emit` has them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Emitted {
    pub(crate) event: *mut Event,
    pub(crate) payload: StagedPayload,
}

/// What filters say of an event in a session, if it is one filter that is asked in this way. Gives
/// the event back: so nothing has to be kept elsewhere while it asks.
///
/// # Safety
/// As [`crate::emit::fast_path::emit`]; `enabled` is the event's word.
#[inline(always)]
pub(crate) unsafe fn judge(
    session: usize,
    enabled: *const AtomicU32,
    emitted: Emitted,
) -> (QuickVerdict, Emitted) {
    // Where to look. (Whose the plan is that is found there, it says itself.)
    // SAFETY: the caller's event.
    let event = unsafe { (&raw const (*emitted.event).index).read_volatile() } as usize;
    let place = place_of(session, event);
    // ORDERING: Acquire pairs with the Release in `link`: the plan is there.
    let link = Link(place.load(Ordering::Acquire));
    // Of a decision of this process's own: a fork child has others than its parent.
    let tag = PROCESS.decisions[session % SESSIONS_MAX].link_tag.load(Ordering::Relaxed);
    if !link.has_tag(tag) {
        // Without a number there are no filters.
        return (if tag == 0 { QuickVerdict::Unsupported } else { QuickVerdict::Unknown }, emitted);
    }
    let Some(at) = link.quick_plan() else { return (QuickVerdict::Unsupported, emitted) };
    let stamp = thread::stamp();
    if stamp == 0 {
        return (QuickVerdict::Unknown, emitted);
    }
    // SAFETY: links are made when the library has started, for good.
    let stamp_word = unsafe { PROCESS.stamp_word().unwrap_unchecked() };
    let query = sequence::Query { emitted, place, link, at, enabled, stamp_word, stamp };
    // SAFETY: the caller's event; a link to such a plan is only made where the sequence is there.
    let Answer { answer, emitted, link } = unsafe { sequence::run(query) };
    match answer {
        FAILS => (QuickVerdict::Fails, emitted),
        PASSES => (QuickVerdict::Passes(link.tag()), emitted),
        _ => (QuickVerdict::Unknown, emitted),
    }
}

/// A filter's answer, or [`NONE`], with what was passed in.
struct Answer {
    answer: u64,
    emitted: Emitted,
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
    use super::{Answer, Emitted, NONE};
    use crate::payload::StagedPayload;

    /// Where the sequence is entered; null: it is not there.
    static ENTRY: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
    /// Of all memory behind that, up to its end.
    static DESCRIPTOR: Descriptor = Descriptor::none();
    /// Where threads' rseq areas are, in bytes from the thread pointer.
    static AREA: AtomicIsize = AtomicIsize::new(0);

    // The entry, to be copied: it jumps nowhere but into itself and to what a register says.
    // Between the store of the descriptor and the next instruction nothing can come: where the
    // thread is interrupted behind the store, it is in the sequence.
    //
    //   rsi payload | r10 its size | rdi the link's place | rdx what it must hold | r9 its plan
    //   r11 the process stamp's place | rax what it must be | rcx AREA | r8 descriptor
    //   at rsp - 8 the event's enable word
    global_asm!(
        ".pushsection .text.trackway_quick,\"ax\",@progbits",
        ".balign 64",
        ".globl trackway_quick_begin",
        ".hidden trackway_quick_begin",
        "trackway_quick_begin:",
        "endbr64",
        // Not where there are no sequences, which would not be aborted.
        "cmp dword ptr fs:[rcx+{cpu}],0",
        "jl 22f",
        "mov qword ptr fs:[rcx+{sequence}],r8",
        ".globl trackway_quick_start",
        ".hidden trackway_quick_start",
        "trackway_quick_start:",
        // The plan is there, and what it says, until the sequence ends.
        "cmp qword ptr [rdi],rdx",
        "jne 22f",
        // Nor is this a fork child, which has come into being since: the code is its parent's.
        "cmp qword ptr [r11],rax",
        "jne 22f",
        // It is this event's in this window, and of the generation that there is.
        "mov rcx,qword ptr [rsp-8]",
        "cmp rcx,qword ptr [r9+{enabled}]",
        "jne 22f",
        "mov rcx,qword ptr [r9+{generation}]",
        "mov r8,qword ptr [r9+{expected}]",
        "cmp qword ptr [rcx],r8",
        "jne 22f",
        // With a sign: of a record that was cut, which is to be counted, the size is below 0.
        "cmp r10,qword ptr [r9+{bytes}]",
        "jl 22f",
        // Payload in rdi, the answer in rax. It ends by `ret`, which leaves the sequence.
        "mov rdi,rsi",
        "jmp qword ptr [r9+{direct}]",
        "22:",
        "mov eax,{none}",
        "ret",
        ".globl trackway_quick_end",
        ".hidden trackway_quick_end",
        "trackway_quick_end:",
        ".popsection",
        // Abort handler, behind the signature that glibc registered (RSEQ_SIG). Nothing in the
        // sequence moves the stack, so it returns to who has called the entry; and so does who
        // unwinds in a signal handler, which finds an interrupted thread here.
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

    /// Puts the entry into the beginning of memory that is executed at `executed`, so many bytes.
    ///
    /// # Safety
    /// `written` is the beginning of that memory, and has_stayed as it is from now on.
    pub(in super::super) unsafe fn prepare(written: &mut [u8], executed: *mut u8, bytes: usize) {
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
        // Whoever enters has found a link, which is stored with Release, later.
        ENTRY.store(executed, Ordering::Relaxed);
    }

    /// Whether the sequence is there.
    pub(in super::super) fn is_available() -> bool {
        !ENTRY.load(Ordering::Relaxed).is_null()
    }

    /// What is asked about, and what must hold.
    pub(super) struct Query {
        pub(super) emitted: Emitted,
        pub(super) place: &'static AtomicU64,
        pub(super) link: Link,
        pub(super) at: u32,
        pub(super) enabled: *const AtomicU32,
        pub(super) stamp_word: &'static AtomicU64,
        pub(super) stamp: u64,
    }

    /// The filter's answer, or [`NONE`]: something did not hold, or the thread was interrupted; and
    /// what was asked about.
    ///
    /// # Safety
    /// The link says that there is a plan for this at `at`; the payload is the event's. The thread
    /// is no vfork child's.
    #[inline(always)]
    pub(super) unsafe fn run(query: Query) -> Answer {
        let (answer, event, start, size_and_flags, link);
        // SAFETY: where the link holds, in the sequence, the plan is what was put there, with code
        // of `emit_direct` for the event, which reads so many bytes of the payload, changes
        // no memory and no register but those that calls change, and leaves the stack alone.
        unsafe {
            asm!(
                // Below the stack pointer, which has_stayed: where it is, is said by unwind
                // information that knows nothing of this. Signal handlers leave 128 bytes there
                // alone, and so does what is called here, which keeps nothing on the stack but
                // where to return.
                "mov qword ptr [rsp-16],rcx",
                "mov qword ptr [rsp-24],rdx",
                "mov qword ptr [rsp-32],r10",
                "mov qword ptr [rsp-40],rsi",
                "mov qword ptr [rsp-48],r8",
                "mov rcx,qword ptr [rip+{area}]",
                "lea r8,[rip+{descriptor}]",
                "call qword ptr [rip+{entry}]",
                // No descriptor has_stayed behind.
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
                inlateout("rsi") query.emitted.payload.start => start,
                inlateout("rdi") query.place.as_ptr() => _,
                inlateout("r8") query.emitted.event => event,
                inlateout("r9") arena::address_of(query.at) => _,
                inlateout("r10") query.emitted.payload.size_and_flags => size_and_flags,
                inlateout("r11") query.stamp_word.as_ptr() => _,
            );
        }
        let payload = StagedPayload::new(start, size_and_flags);
        Answer { answer, emitted: Emitted { event, payload }, link: Link(link) }
    }
}

/// Where no machine code is made, there are no such plans.
#[cfg(not(target_arch = "x86_64"))]
mod sequence {
    use core::sync::atomic::{AtomicU32, AtomicU64};

    use super::super::Link;
    use super::{Answer, Emitted, NONE};

    #[expect(dead_code, reason = "nobody is asked")]
    pub(super) struct Query {
        pub(super) emitted: Emitted,
        pub(super) place: &'static AtomicU64,
        pub(super) link: Link,
        pub(super) at: u32,
        pub(super) enabled: *const AtomicU32,
        pub(super) stamp_word: &'static AtomicU64,
        pub(super) stamp: u64,
    }

    pub(super) const unsafe fn run(query: Query) -> Answer {
        Answer { answer: NONE, emitted: query.emitted, link: query.link }
    }

    pub(in super::super) const unsafe fn prepare(_: &mut [u8], _: *mut u8, _: usize) {}

    pub(in super::super) const fn is_available() -> bool {
        false
    }
}
