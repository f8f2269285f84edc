//! Test of restartable sequences: they must abort when preempted, but do not under some emulators
//! and debuggers. The test runs once for each window, because all of recording depends on it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::Builder;
use std::time::{Duration, Instant};

use trackway_sys::thread::{CpuSet, current_cpu, rseq_area};
use trackway_window::Window;

/// Value of the window's `rseq_works` if sequences work.
const WORKS: u32 = 1;
/// Value of the window's `rseq_works` if sequences do not work.
pub(crate) const BROKEN: u32 = 2;

/// Longest wait for an abort.
const PATIENCE: Duration = Duration::from_millis(200);

/// Runs the test unless the window has a result, and publishes the result in the window. A process
/// without restartable sequences (glibc.pthread.rseq=0) cannot test; the writers' checks remain.
pub(crate) fn run(window: &Window) {
    let result = &window.header().rseq_works;
    if result.load(Ordering::Relaxed) != 0 || rseq_area().is_null() {
        return;
    }
    if let Some(works) = sequences_abort() {
        result.store(if works { WORKS } else { BROKEN }, Ordering::Relaxed);
    }
}

/// Runs a thread that spins in a sequence on one CPU, and preempts it. Returns true if the sequence
/// aborted; `None` if the thread cannot be started or bound to a CPU.
pub(crate) fn sequences_abort() -> Option<bool> {
    /// States of the thread: about to enter the sequence, aborted, left after the stop. 0: not
    /// started.
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
            // SAFETY: the area is this thread's registered area, and `stop` outlives the scope.
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

/// Spins inside a restartable sequence. Returns true if the kernel aborted it, false once `stop` is
/// not zero.
///
/// # Safety
/// `area` is the calling thread's registered `struct rseq`.
#[cfg(target_arch = "x86_64")]
unsafe fn spin_in_sequence(area: *mut u8, stop: &AtomicU32) -> bool {
    let aborted: u64;
    // SAFETY: the sequence only reads `stop` and writes the area's `rseq_cs`.
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

/// Spins inside a restartable sequence, like the x86-64 version.
///
/// # Safety
/// `area` is the calling thread's registered `struct rseq`.
#[cfg(target_arch = "aarch64")]
unsafe fn spin_in_sequence(area: *mut u8, stop: &AtomicU32) -> bool {
    let aborted: u64;
    // SAFETY: the sequence only reads `stop` and writes the area's `rseq_cs`.
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

/// Returns a failure: this architecture has no restartable sequences.
///
/// # Safety
/// No requirement; the signature matches the versions for other architectures.
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
