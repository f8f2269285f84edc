//! Clocks.

/// CLOCK_MONOTONIC, in ns. Async-signal-safe; no system call where the vDSO serves.
#[inline]
pub fn monotonic_ns() -> u64 {
    read_clock(libc::CLOCK_MONOTONIC)
}

/// CLOCK_BOOTTIME, in ns: the clock in which process start times are given.
pub fn boottime_ns() -> u64 {
    read_clock(libc::CLOCK_BOOTTIME)
}

/// CLOCK_REALTIME, in ns since the epoch.
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
/// of AArch64. Returns 0 on other machines, where it is not used.
#[inline(always)]
pub fn read_tsc() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: RDTSC has no preconditions where it is not disabled (PR_TSC_SIGSEGV; a program that
    // did that to itself gets what it asked for).
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(target_arch = "aarch64")]
    {
        let count: u64;
        // SAFETY: Linux lets every program read it, as the vDSO does (or reads it for the program
        // where that processor's has a fault). It is not memory: it may be read early or late, as
        // the time-stamp counter may.
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

/// Waits until all loads before it are done, so that a reading of the counter behind it is not
/// older than what they saw.
#[inline(always)]
pub fn wait_for_loads() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has it.
    unsafe {
        core::arch::x86_64::_mm_lfence();
    }
    // The loads complete before the data barrier does, and nothing behind the instruction barrier
    // is begun before that: alone, neither keeps a counter's reading behind a load (Arm's
    // Architecture Reference Manual, on CNTVCT_EL0).
    #[cfg(target_arch = "aarch64")]
    // SAFETY: barriers have no preconditions.
    unsafe {
        core::arch::asm!("dsb ishld", "isb", options(nostack, preserves_flags));
    }
    // Where time is clock_gettime(2)'s, that is the kernel's business.
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
