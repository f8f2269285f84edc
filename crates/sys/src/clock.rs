//! Clocks.

/// CLOCK_MONOTONIC, in ns. Async-signal-safe; no system call where the vDSO serves.
#[inline]
pub fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// CLOCK_BOOTTIME, in ns: the clock in which process start times are given.
pub fn boottime_ns() -> u64 {
    read(libc::CLOCK_BOOTTIME)
}

/// CLOCK_REALTIME, in ns since the epoch.
pub fn realtime_ns() -> u64 {
    read(libc::CLOCK_REALTIME)
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec of ours. These clocks exist on every kernel we run on.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// The time-stamp counter, unfenced; 0 on machines without one.
#[inline(always)]
pub fn tsc() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: RDTSC has no preconditions where it is not disabled (PR_TSC_SIGSEGV; a program that
    // did that to itself gets what it asked for).
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    0
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
