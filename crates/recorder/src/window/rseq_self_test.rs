//! Test of restartable sequences: whether they abort on this machine as they must. Run once for
//! each window, because everything rests on it: under some emulators and debuggers they do not.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::Builder;
use std::time::{Duration, Instant};

use trackway_sys::thread::{CpuSet, current_cpu, rseq_area};
use trackway_window::Window;

/// The window's `rseq_works`: yes.
const WORKS: u32 = 1;
/// The window's `rseq_works`: no.
pub(crate) const BROKEN: u32 = 2;

/// Longest wait for an abort.
const PATIENCE: Duration = Duration::from_millis(200);

/// Runs the test, unless it has been run, and publishes the result in the window. Without sequences
/// of its own (glibc.pthread.rseq=0) the process cannot test; the writers' checks remain.
pub(crate) fn run(window: &Window) {
    let result = &window.header().rseq_works;
    if result.load(Ordering::Relaxed) != 0 || rseq_area().is_null() {
        return;
    }
    if let Some(works) = sequences_abort() {
        result.store(if works { WORKS } else { BROKEN }, Ordering::Relaxed);
    }
}

/// Runs a thread that spins inside a sequence on one CPU, and preempts it there. `None` where it
/// may not choose its CPU, or there can be no other thread.
pub(crate) fn sequences_abort() -> Option<bool> {
    /// States of the thread: nothing yet, about to enter, aborted, left when stopped.
    const STARTED: u32 = 1;
    const ABORTED: u32 = 2;
    const LEFT: u32 = 3;
    let before = CpuSet::current().ok()?;
    let here = CpuSet::only(current_cpu());
    let (state, stop) = (AtomicU32::new(0), AtomicU32::new(0));
    let reached = |wanted: u32, limit: Duration| {
        let start = Instant::now();
        while state.load(Ordering::Relaxed) < wanted && start.elapsed() < limit {
            // Sleeping leaves the CPU to the thread; waking preempts it.
            std::thread::sleep(Duration::from_micros(200));
        }
        state.load(Ordering::Relaxed) >= wanted
    };
    let result = std::thread::scope(|scope| {
        let spin = || {
            if here.apply().is_err() || rseq_area().is_null() {
                state.store(LEFT, Ordering::Relaxed);
                return;
            }
            state.store(STARTED, Ordering::Relaxed);
            // SAFETY: it is this thread's registered area, and `stop` outlives the scope.
            let aborted = unsafe { spin_in_sequence(rseq_area(), &stop) };
            state.store(if aborted { ABORTED } else { LEFT }, Ordering::Relaxed);
        };
        Builder::new().spawn_scoped(scope, spin).ok()?;
        let pinned = here.apply().is_ok();
        let done = reached(STARTED, PATIENCE) && reached(ABORTED, PATIENCE);
        stop.store(1, Ordering::Relaxed);
        reached(ABORTED, PATIENCE);
        pinned.then(|| done && state.load(Ordering::Relaxed) == ABORTED)
    });
    let _ = before.apply();
    result
}

/// Spins inside a restartable sequence until the kernel aborts it (true) or `stop` is not zero.
///
/// # Safety
/// `area` is the calling thread's registered `struct rseq`.
#[cfg(target_arch = "x86_64")]
unsafe fn spin_in_sequence(area: *mut u8, stop: &AtomicU32) -> bool {
    let aborted: u64;
    // SAFETY: the sequence reads `stop` and stores to the area's `rseq_cs` only.
    unsafe {
        core::arch::asm!(
            ".pushsection __rseq_cs,\"aw\"",
            ".balign 32",
            "33:",
            ".long 0,0",
            ".quad 22f,(55f-22f),44f",
            ".popsection",
            "lea rax,[rip+33b]",
            "mov [{area}+8],rax",
            "22:",
            "77:",
            "pause",
            "cmp dword ptr [{stop}],0",
            "je 77b",
            "55:",
            "xor eax,eax",
            "jmp 88f",
            ".pushsection __rseq_failure,\"ax\"",
            ".byte 0x0f,0xb9,0x3d",
            ".long 0x53053053",
            "44:",
            "jmp 66f",
            ".popsection",
            "66:",
            "mov eax,1",
            "88:",
            "mov qword ptr [{area}+8],0",
            area = in(reg) area,
            stop = in(reg) stop.as_ptr(),
            out("rax") aborted,
            options(nostack),
        );
    }
    aborted != 0
}

/// See the x86-64 version.
///
/// # Safety
/// See the x86-64 version.
#[cfg(target_arch = "aarch64")]
unsafe fn spin_in_sequence(area: *mut u8, stop: &AtomicU32) -> bool {
    let aborted: u64;
    // SAFETY: as above.
    unsafe {
        core::arch::asm!(
            ".pushsection __rseq_cs,\"aw\"",
            ".balign 32",
            "33:",
            ".long 0,0",
            ".quad 22f,(55f-22f),44f",
            ".popsection",
            "adrp {aborted},33b",
            "add {aborted},{aborted},:lo12:33b",
            "str {aborted},[{area},#8]",
            "22:",
            "77:",
            "yield",
            "ldr {aborted:w},[{stop}]",
            "cbz {aborted:w},77b",
            "55:",
            "mov {aborted},#0",
            "b 88f",
            ".pushsection __rseq_failure,\"ax\"",
            ".inst 0xd428bc00",
            "44:",
            "b 66f",
            ".popsection",
            "66:",
            "mov {aborted},#1",
            "88:",
            "str xzr,[{area},#8]",
            area = in(reg) area,
            stop = in(reg) stop.as_ptr(),
            aborted = out(reg) aborted,
            options(nostack),
        );
    }
    aborted != 0
}

/// Fails: there are no sequences for this machine.
///
/// # Safety
/// None needed; the signature is that of the real one.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn spin_in_sequence(_area: *mut u8, _stop: &AtomicU32) -> bool {
    false
}

#[cfg(test)]
mod tests {
    #[test]
    fn sequences_abort_here_or_cannot_be_tested() {
        if trackway_sys::thread::rseq_area().is_null() {
            trackway_testkit::report_skipped("the C library registered no rseq area");
            return;
        }
        assert_eq!(super::sequences_abort(), Some(true));
    }
}
