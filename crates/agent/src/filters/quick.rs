//! Filters that are asked in one restartable sequence: who is inside of one is not counted.
//!
//! Most filters on numbers are machine code that reads a payload and answers
//! ([`trackway_jit::x86::emit_direct`]). Such code is entered by a few instructions of ours that
//! *stay* at the beginning of the memory that is executed, and all that memory is one sequence, by
//! one description that never changes. So a visit to a CPU ends whoever is inside there, as it ends
//! who is about to be counted (`trackway_ring::inside`), and a thread that was preempted inside
//! goes on at [`ABORTED`], in this library, however long it slept and whatever lies there by then.
//!
//! docs/design/0008-filters.md, "Asked in one sequence", has the argument.

#[cfg(target_arch = "x86_64")]
pub(super) use sequence::{is_there, prepare};

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use trackway_abi::record::PAYLOAD_BYTES_MAX;
use trackway_abi::window::EVENTS_MAX;
use trackway_ring::rseq::Area;
use trackway_window::Window;

use super::{Link, place_of};
use crate::decision::PROCESS;
use crate::{slow, thread};

/// What a filter says of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtOnce {
    /// It is recorded, in this generation of the session.
    Passes(u64),
    /// It is not.
    Fails,
    /// Nothing was asked: another way knows.
    Unknown,
    /// Nor will it be known here as long as nothing changes.
    NotHere,
}

/// A filter's answers, and that there is none.
const FAILS: u64 = 0;
const PASSES: u64 = 1;
const NONE: u64 = 2;

/// What filters say of an event in a session, if it is one filter that is asked in this way.
///
/// # Safety
/// As [`crate::record::emit`]; `enabled` is the event's word.
#[inline(always)]
pub(crate) unsafe fn judge(
    session: usize,
    enabled: *const AtomicU32,
    payload: *const u8,
    size: usize,
) -> AtOnce {
    let Some(stamp_word) = PROCESS.stamp_word() else { return AtOnce::Unknown };
    // SAFETY: the line is the calling thread's. Its stamp is zero until it was filled in.
    let stamp = unsafe { (*thread::current()).stamp };
    // (Of a record that was cut, which is counted, the size is more than any.)
    if stamp == 0 || size > PAYLOAD_BYTES_MAX {
        return AtOnce::Unknown;
    }
    let decision = &PROCESS.decisions[session];
    // ORDERING: Acquire pairs with the Release in `Decision::publish`.
    let sequence = decision.sequence.load(Ordering::Acquire);
    let (base, number) =
        (decision.base.load(Ordering::Relaxed), decision.links.load(Ordering::Relaxed));
    let generation = decision.generation.load(Ordering::Relaxed);
    if !decision.unchanged_since(sequence) {
        return AtOnce::Unknown;
    }
    if number == 0 {
        return AtOnce::NotHere;
    }
    // What is recorded is checked when it is committed; what is not, only here.
    // SAFETY: a decision with links names a window, mapped for good; the index is below 32.
    let now = unsafe { AtomicU64::from_ptr(slow::generation_of(base, session).cast_mut()) };
    if now.load(Ordering::Relaxed) != generation {
        return AtOnce::Unknown;
    }
    let event = Window::event_at(base, enabled);
    if event >= EVENTS_MAX {
        return AtOnce::Unknown; // the decision is about another window
    }
    let place = place_of(session, event);
    // ORDERING: Acquire pairs with the Release in `link`: the plan is there.
    let link = Link(place.load(Ordering::Acquire));
    if !link.is_of(number) {
        return AtOnce::Unknown;
    }
    let Some(at) = link.quick_plan() else { return AtOnce::NotHere };
    let area = trackway_sys::thread::rseq_area();
    if area.is_null() {
        return AtOnce::NotHere;
    }
    // SAFETY: glibc registered this thread's area; a vfork child, which has none, has no stamp.
    let area = unsafe { Area::new(area) };
    if area.cpu().is_none() {
        return AtOnce::NotHere;
    }
    let asked = sequence::Asked { payload, size, place, link, at, stamp_word, stamp };
    // SAFETY: the caller's payload; the area is registered; a link to such a plan is only made
    // where the sequence is there.
    match unsafe { sequence::ask(area, &asked) } {
        FAILS => AtOnce::Fails,
        PASSES => AtOnce::Passes(generation),
        _ => AtOnce::Unknown,
    }
}

#[cfg(target_arch = "x86_64")]
mod sequence {
    use core::arch::{asm, global_asm};
    use core::mem::offset_of;
    use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

    use trackway_ring::rseq::{Area, Descriptor, SEQUENCE};

    use super::super::Link;
    use super::super::plan::Plan;
    use super::super::store;
    use super::NONE;

    /// Where the sequence is entered; null: it is not there.
    static ENTRY: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
    /// Of all memory behind that, up to its end.
    static DESCRIPTOR: Descriptor = Descriptor::none();

    // The entry, to be copied: it jumps nowhere but into itself and to what a register says. Between
    // the store of the descriptor and the next instruction nothing can come: where the thread is
    // interrupted behind the store, it is in the sequence.
    //
    //   rdi payload | r10 its size | rsi the link's place | rdx what it must hold | r9 its plan
    //   r11 the process stamp's place | rax what it must be | rcx area | r8 descriptor
    global_asm!(
        ".pushsection .text.trackway_quick,\"ax\",@progbits",
        ".balign 64",
        ".globl trackway_quick_begin",
        ".hidden trackway_quick_begin",
        "trackway_quick_begin:",
        "endbr64",
        "mov qword ptr [rcx+{sequence}],r8",
        ".globl trackway_quick_start",
        ".hidden trackway_quick_start",
        "trackway_quick_start:",
        // The plan is there, and what it says, until the sequence ends.
        "cmp qword ptr [rsi],rdx",
        "jne 22f",
        // Nor is this a fork child, which has come into being since: the code is its parent's.
        "cmp qword ptr [r11],rax",
        "jne 22f",
        "cmp r10,qword ptr [r9+{bytes}]",
        "jb 22f",
        // It ends by `ret`, which leaves the sequence.
        "jmp qword ptr [r9+{direct}]",
        "22:",
        "mov eax,{none}",
        "ret",
        ".globl trackway_quick_end",
        ".hidden trackway_quick_end",
        "trackway_quick_end:",
        ".popsection",
        // Abort handler, behind the signature that glibc registered (RSEQ_SIG). Nothing in the
        // sequence moves the stack, so it returns to who has called the entry.
        ".pushsection __rseq_failure,\"ax\"",
        ".byte 0x0f,0xb9,0x3d",
        ".long 0x53053053",
        ".globl trackway_quick_aborted",
        ".hidden trackway_quick_aborted",
        "trackway_quick_aborted:",
        "mov eax,{none}",
        "ret",
        ".popsection",
        sequence = const SEQUENCE,
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
    /// `written` is the beginning of that memory, and stays as it is from now on.
    pub(in super::super) unsafe fn prepare(written: &mut [u8], executed: *mut u8, bytes: usize) {
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
        // Whoever enters has found a link, which is stored with Release, later.
        ENTRY.store(executed, Ordering::Relaxed);
    }

    /// Whether the sequence is there.
    pub(in super::super) fn is_there() -> bool {
        !ENTRY.load(Ordering::Relaxed).is_null()
    }

    /// What is asked about, and what must hold.
    pub(super) struct Asked {
        pub(super) payload: *const u8,
        pub(super) size: usize,
        pub(super) place: &'static AtomicU64,
        pub(super) link: Link,
        pub(super) at: u32,
        pub(super) stamp_word: &'static AtomicU64,
        pub(super) stamp: u64,
    }

    /// The filter's answer, or [`NONE`]: something did not hold, or the thread was interrupted.
    ///
    /// # Safety
    /// The calling thread's area, registered. The link says that there is a plan for this at `at`,
    /// and the payload is one of its event.
    #[inline(always)]
    pub(super) unsafe fn ask(area: Area, asked: &Asked) -> u64 {
        let answer: u64;
        // SAFETY: where the link holds, in the sequence, the plan is what was put there, with code
        // of `emit_direct` for the event, which reads so many bytes of the payload, changes
        // no memory and no register but those that calls change, and leaves the stack alone.
        unsafe {
            asm!(
                "call {entry}",
                entry = in(reg) ENTRY.load(Ordering::Relaxed),
                inlateout("rax") asked.stamp => answer,
                in("rcx") area.as_ptr(),
                in("rdx") asked.link.0,
                in("rsi") asked.place.as_ptr(),
                in("rdi") asked.payload,
                in("r8") &raw const DESCRIPTOR,
                in("r9") store::address_of(asked.at),
                in("r10") asked.size,
                in("r11") asked.stamp_word.as_ptr(),
                clobber_abi("C"),
            );
        }
        area.leave();
        answer
    }
}

/// Where no machine code is made, there are no such plans.
#[cfg(not(target_arch = "x86_64"))]
mod sequence {
    use core::sync::atomic::AtomicU64;

    use trackway_ring::rseq::Area;

    use super::super::Link;
    use super::NONE;

    #[expect(dead_code, reason = "nobody is asked")]
    pub(super) struct Asked {
        pub(super) payload: *const u8,
        pub(super) size: usize,
        pub(super) place: &'static AtomicU64,
        pub(super) link: Link,
        pub(super) at: u32,
        pub(super) stamp_word: &'static AtomicU64,
        pub(super) stamp: u64,
    }

    pub(super) const unsafe fn ask(_: Area, _: &Asked) -> u64 {
        NONE
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) const unsafe fn prepare(_: &mut [u8], _: *mut u8, _: usize) {}

#[cfg(not(target_arch = "x86_64"))]
pub(super) const fn is_there() -> bool {
    false
}
