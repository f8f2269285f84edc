//! The calling thread: its id, its CPU, its rseq area.

use crate::Errno;

/// Returns the calling thread's id: gettid(2).
#[inline]
pub fn current_tid() -> u32 {
    // SAFETY: gettid has no preconditions.
    (unsafe { libc::syscall(libc::SYS_gettid) }) as u32
}

/// Returns the CPU that the thread runs on, from getcpu(2); 0 if it is unknown.
pub fn current_cpu() -> u32 {
    // SAFETY: sched_getcpu has no preconditions.
    unsafe { libc::sched_getcpu() }.max(0).cast_unsigned()
}

/// Returns the distance of threads' `struct rseq` from their thread pointers, in bytes; `None` if
/// the C library registers none. (Even then a thread may lack one.)
#[inline(always)]
pub fn rseq_offset() -> Option<isize> {
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_env = "gnu"))]
    {
        unsafe extern "C" {
            static __rseq_offset: isize;
            static __rseq_size: u32;
        }
        // SAFETY: glibc defines both, constant since start-up.
        let (offset, size) = unsafe { (__rseq_offset, __rseq_size) };
        (size != 0).then_some(offset)
    }
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_env = "gnu")))]
    None
}

/// Returns the calling thread's `struct rseq`, registered by the C library (glibc 2.35 and later),
/// or null if it registers none (`glibc.pthread.rseq=0`, musl).
#[inline(always)]
pub fn rseq_area() -> *mut u8 {
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_env = "gnu"))]
    {
        let Some(offset) = rseq_offset() else { return core::ptr::null_mut() };
        let thread_pointer: *mut u8;
        #[cfg(target_arch = "x86_64")]
        // SAFETY: on x86-64 the word at fs:0 is the thread pointer (ELF TLS ABI).
        unsafe {
            core::arch::asm!(
                "mov {}, fs:0", out(reg) thread_pointer,
                options(nostack, preserves_flags, readonly, pure)
            );
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: on AArch64 the thread pointer is a register that every program may read (ELF TLS
        // ABI).
        unsafe {
            core::arch::asm!(
                "mrs {}, tpidr_el0", out(reg) thread_pointer,
                options(nostack, preserves_flags, nomem, pure)
            );
        }
        thread_pointer.wrapping_offset(offset)
    }
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_env = "gnu")))]
    core::ptr::null_mut()
}

/// Returns true if the kernel has restartable sequences (rseq(2), Linux 4.18). Returns false if a
/// sandbox answers instead of the kernel.
pub fn kernel_has_sequences() -> bool {
    /// Flags that do not exist: the kernel refuses them before it changes anything.
    const NO_SUCH_FLAGS: libc::c_int = !1;
    let null = core::ptr::null_mut::<u8>();
    // SAFETY: nothing is registered: the kernel answers EINVAL to the flags.
    let result = unsafe { libc::syscall(libc::SYS_rseq, null, 0, NO_SUCH_FLAGS, 0) };
    Errno::check(result) == Err(Errno(libc::EINVAL))
}

/// A set of CPUs as sched_setaffinity(2) takes it.
#[derive(Clone, Copy)]
pub struct CpuSet(libc::cpu_set_t);

impl CpuSet {
    /// Returns the CPUs on which the calling thread may run.
    pub fn current() -> Result<Self, Errno> {
        // SAFETY: an all-zero cpu_set_t is the empty set.
        let mut set: libc::cpu_set_t = unsafe { core::mem::zeroed() };
        // SAFETY: `set` is ours and its size is given.
        let result = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) };
        Errno::check(result.into()).map(|_| Self(set))
    }

    /// Makes a set with `cpu` alone.
    pub fn only(cpu: u32) -> Self {
        // SAFETY: an all-zero cpu_set_t is the empty set.
        let mut set: libc::cpu_set_t = unsafe { core::mem::zeroed() };
        if (cpu as usize) < libc::CPU_SETSIZE as usize {
            // SAFETY: the index was bounded.
            unsafe { libc::CPU_SET(cpu as usize, &mut set) };
        }
        Self(set)
    }

    /// Returns true if the set contains `cpu`.
    pub fn contains(&self, cpu: u32) -> bool {
        (cpu as usize) < libc::CPU_SETSIZE as usize
            // SAFETY: the index was bounded.
            && unsafe { libc::CPU_ISSET(cpu as usize, &self.0) }
    }

    /// Makes the calling thread run on these CPUs, before the call returns.
    pub fn apply(&self) -> Result<(), Errno> {
        // SAFETY: the set is ours and its size is given.
        let result = unsafe { libc::sched_setaffinity(0, size_of_val(&self.0), &self.0) };
        Errno::check(result.into()).map(|_| ())
    }
}
