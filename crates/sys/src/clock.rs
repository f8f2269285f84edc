//! Clocks of the system and of the processor.

/// Returns CLOCK_MONOTONIC, in ns. Async-signal-safe; no system call if the vDSO provides it.
#[inline]
pub fn monotonic_ns() -> u64 {
    read_clock(libc::CLOCK_MONOTONIC)
}

/// Returns CLOCK_BOOTTIME, in ns: the clock of process start times.
pub fn boottime_ns() -> u64 {
    read_clock(libc::CLOCK_BOOTTIME)
}

/// Returns CLOCK_REALTIME, in ns since the epoch.
pub fn realtime_ns() -> u64 {
    read_clock(libc::CLOCK_REALTIME)
}

fn read_clock(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec of ours. These clocks exist on every kernel we run on.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// True if this machine has a counter that [`read_tsc`] reads.
pub const HAS_COUNTER: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));

/// Reads the processor's counter, unfenced: the time-stamp counter of x86-64, the virtual counter
/// of AArch64. Returns 0 on other machines, where no code uses it.
#[inline(always)]
pub fn read_tsc() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: RDTSC has no preconditions unless it is disabled (PR_TSC_SIGSEGV; a program that
    // disables it for itself accepts the signal).
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(target_arch = "aarch64")]
    {
        let count: u64;
        // SAFETY: Linux lets every program read the counter, as the vDSO does (or emulates the read
        // if that processor's counter is faulty). The counter is not memory: it may be read early
        // or late, like the time-stamp counter.
        unsafe {
            core::arch::asm!(
                "mrs {}, cntvct_el0", out(reg) count, options(nomem, nostack, preserves_flags)
            );
        }
        count
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    0
}

/// Waits until all preceding loads are done, so that a later read of the counter is not older than
/// the loaded values.
#[inline(always)]
pub fn wait_for_loads() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has LFENCE.
    unsafe {
        core::arch::x86_64::_mm_lfence();
    }
    // The loads complete before the data barrier does, and no instruction after the instruction
    // barrier begins earlier. Neither barrier alone keeps a read of the counter after a load (Arm's
    // Architecture Reference Manual, on CNTVCT_EL0).
    #[cfg(target_arch = "aarch64")]
    // SAFETY: barriers have no preconditions.
    unsafe {
        core::arch::asm!("dsb ishld", "isb", options(nostack, preserves_flags));
    }
    // Elsewhere clock_gettime(2) gives the time, and the kernel orders the read.
}

/// Sleeps for `ns`, or less if a signal comes.
pub fn sleep_ns(ns: u64) {
    let time = libc::timespec {
        tv_sec: (ns / 1_000_000_000).cast_signed(),
        tv_nsec: (ns % 1_000_000_000).cast_signed(),
    };
    // SAFETY: `time` is a timespec of ours; the remainder is not wanted.
    unsafe { libc::nanosleep(&time, core::ptr::null_mut()) };
}
