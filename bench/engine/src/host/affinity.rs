//! CPU affinity and CPU time of the calling thread.

use trackway_sys::thread::CpuSet;

use crate::error::{Error, Result};

fn affinity_error(error: impl std::fmt::Display) -> Error {
    Error::output("sched_setaffinity", error)
}

/// Makes the calling thread stay on `cpu`.
pub fn pin_thread_to_cpu(cpu: usize) -> Result<()> {
    CpuSet::only(cpu as u32).apply().map_err(affinity_error)
}

/// Runs `work` on one CPU, then restores the previous affinity of the thread.
pub fn run_on_cpu<T>(cpu: usize, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let before = CpuSet::current().map_err(affinity_error)?;
    pin_thread_to_cpu(cpu)?;
    let done = work();
    before.apply().map_err(affinity_error)?;
    done
}

/// Returns the CPU time of the calling thread, in ns.
pub fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is ours, and every thread has that clock.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}
