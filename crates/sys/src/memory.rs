//! Memory mappings.

use crate::Errno;
use crate::file::Fd;

/// A shared mapping of a file. It is never unmapped, because writers may be anywhere in it.
///
/// Its first part is readable and writable, the rest is address space without access, kept for
/// [`Mapping::extend`].
#[derive(Debug, Clone, Copy)]
pub struct Mapping {
    base: *mut u8,
    bytes: u64,
    reserved: u64,
}

// SAFETY: a mapping is an address range; its content is accessed by atomics and raw copies.
unsafe impl Send for Mapping {}
// SAFETY: a mapping is an address range; its content is accessed by atomics and raw copies.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `reserved` bytes of `fd`, shared, of which `bytes` (whole pages, at most
    /// `reserved`) are readable and writable. The file may be shorter: bytes after its end must not
    /// be touched.
    ///
    /// Core dumps omit the mapping (`MADV_DONTDUMP`).
    pub fn new(fd: &Fd, bytes: u64, reserved: u64) -> Result<Self, Errno> {
        let bytes = bytes.min(reserved);
        let access = if bytes == reserved { WRITABLE } else { libc::PROT_NONE };
        // SAFETY: a new mapping at an address that the kernel chooses touches nothing of ours.
        let base = unsafe {
            libc::mmap(core::ptr::null_mut(), reserved as usize, access, SHARED, fd.raw(), 0)
        };
        if base == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        let mapping = Self { base: base.cast(), bytes, reserved };
        if bytes < reserved
            && let Err(errno) = mapping.extend(bytes)
        {
            // SAFETY: no other code has seen the mapping.
            unsafe { mapping.unmap() };
            return Err(errno);
        }
        // SAFETY: the range is this mapping's. If the call fails, core dumps are only larger.
        unsafe { libc::madvise(base, reserved as usize, libc::MADV_DONTDUMP) };
        Ok(mapping)
    }

    /// Recreates a mapping of [`Mapping::new`], with `bytes` readable and writable bytes.
    ///
    /// # Safety
    ///
    /// `base` and `reserved` belong to a mapping that is never unmapped, and its first `bytes`
    /// bytes stay accessible.
    pub const unsafe fn from_parts(base: *mut u8, bytes: u64, reserved: u64) -> Self {
        Self { base, bytes, reserved }
    }

    /// Makes the first `bytes` bytes readable and writable (mprotect(2)). Any thread.
    ///
    /// # Errors
    ///
    /// Fails if more is not reserved, or if the system refuses: then the access is unchanged.
    pub fn extend(&self, bytes: u64) -> Result<(), Errno> {
        if bytes > self.reserved {
            return Err(Errno(libc::ENOMEM));
        }
        // SAFETY: the range is this mapping's; access is added only.
        let result = unsafe { libc::mprotect(self.base.cast(), bytes as usize, WRITABLE) };
        Errno::check(i64::from(result)).map(drop)
    }

    /// Returns the start of the mapping.
    #[inline(always)]
    pub const fn base(&self) -> *mut u8 {
        self.base
    }

    /// Returns the size of the readable and writable part, in bytes from the mapping's start.
    #[inline(always)]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the address space that the mapping takes, in bytes.
    #[inline(always)]
    pub const fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Replaces `[from, from + bytes)` of the mapping by zero pages of this process's own, which
    /// are mapped at every moment. The pages take no memory before they are written, and are
    /// writable where the mapping is; only up to `needed` (bytes of the mapping), if the system
    /// promises no more memory than it has (overcommit_memory 2).
    ///
    /// # Errors
    ///
    /// Fails if the system has no such memory: then nothing has changed, or a first part.
    pub fn blank(&self, from: u64, bytes: u64, needed: u64) -> Result<(), Errno> {
        let length = bytes.min(self.reserved.saturating_sub(from));
        let [writable, needed] =
            [self.bytes, needed].map(|end| end.saturating_sub(from).min(length));
        let target: *mut libc::c_void = self.base.wrapping_add(from as usize).cast();
        let Some(mut zeros) = ZeroPages::new(length, writable, needed) else {
            // The address space is too small for mapping and zeros (RLIMIT_AS).
            let flags =
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
            // SAFETY: the target is part of this mapping, whose users read atomics or raw bytes
            // only: zeros are as good as any bytes to them.
            let result = unsafe { libc::mmap(target, length as usize, WRITABLE, flags, -1, 0) };
            return if result == libc::MAP_FAILED { Err(Errno::last()) } else { Ok(()) };
        };
        let rest = Self { base: target.cast(), bytes: writable, reserved: length };
        rest.blank_by(&mut zeros, length)
    }

    /// Replaces the mapping up to `end` by `zeros`, which are as long as the mapping. Begins where
    /// an earlier call with these zeros ended.
    ///
    /// # Errors
    ///
    /// Fails like [`Self::blank`], or if the zeros are shorter.
    pub fn blank_by(&self, zeros: &mut ZeroPages, end: u64) -> Result<(), Errno> {
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let end = end.min(self.reserved);
        if end > zeros.length {
            return Err(Errno(libc::EINVAL));
        }
        for to in [zeros.writable.min(end), end] {
            let (at, bytes) =
                (zeros.moved_bytes as usize, to.saturating_sub(zeros.moved_bytes) as usize);
            // SAFETY: the target is part of this mapping, whose users read atomics or raw bytes
            // only: zeros are as good as any bytes to them. The zeros have no other user.
            unsafe {
                let target: *mut libc::c_void = self.base.wrapping_add(at).cast();
                if bytes > 0
                    && libc::mremap(zeros.base.wrapping_add(at), bytes, bytes, flags, target)
                        == libc::MAP_FAILED
                {
                    return Err(Errno::last());
                }
            }
            zeros.moved_bytes = zeros.moved_bytes.max(to);
        }
        Ok(())
    }

    /// Maps `fd` in place of this mapping. Users of the mapping continue in the file.
    pub fn refill(&self, fd: &Fd) -> Result<(), Errno> {
        let parts = [(0, self.bytes, WRITABLE), (self.bytes, self.reserved, libc::PROT_NONE)];
        for (from, to, access) in parts.into_iter().filter(|(from, to, _)| from < to) {
            let at = self.base.wrapping_add(from as usize).cast();
            let (bytes, offset) = ((to - from) as usize, from as libc::off_t);
            // SAFETY: the range is this mapping's, whose users read atomics or raw bytes only, in
            // the first part.
            let result = unsafe {
                let flags = SHARED | libc::MAP_FIXED;
                libc::mmap(at, bytes, access, flags, fd.raw(), offset)
            };
            if result == libc::MAP_FAILED {
                return Err(Errno::last());
            }
            // SAFETY: the range is this mapping's.
            unsafe { libc::madvise(at, bytes, libc::MADV_DONTDUMP) };
        }
        Ok(())
    }

    /// Unmaps the mapping. For programs that only inspect a window, never for the agent.
    ///
    /// # Safety
    /// No reference into the mapping is used afterwards.
    pub unsafe fn unmap(self) {
        // SAFETY: the range is this mapping's, and the caller vouches for the rest.
        unsafe { libc::munmap(self.base.cast(), self.reserved as usize) };
    }
}

const WRITABLE: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;
const SHARED: libc::c_int = libc::MAP_SHARED | libc::MAP_NORESERVE;

/// Zero pages that replace the pages of a mapping: see [`Mapping::blank_by`].
///
/// The pages are private; or shared, if the program may have no more data (RLIMIT_DATA), because
/// that limit does not count shared pages.
#[derive(Debug)]
pub struct ZeroPages {
    base: *mut libc::c_void,
    length: u64,
    /// Size of the writable part, in bytes.
    writable: u64,
    /// True if memory for a larger writable part was refused.
    is_least: bool,
    /// Bytes from the start that have been moved elsewhere.
    moved_bytes: u64,
}

impl ZeroPages {
    /// Maps `length` bytes, of which the first `writable` are writable; or, if there is no such
    /// memory, the first `needed`. `None`: the system has not even that memory.
    pub fn new(length: u64, writable: u64, needed: u64) -> Option<Self> {
        let bytes = length as usize;
        for kind in [libc::MAP_PRIVATE, libc::MAP_SHARED] {
            let flags = kind | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            // SAFETY: the mapping is new, and has no other user.
            unsafe {
                // After mlockall(2), the kernel may fill new memory at once. munlock(2) prevents
                // that before the memory is accessible.
                let base = libc::mmap(core::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0);
                if base == libc::MAP_FAILED {
                    continue;
                }
                libc::munlock(base, bytes);
                for (writable, is_least) in [(writable, false), (needed, true)] {
                    if libc::mprotect(base, writable as usize, WRITABLE) == 0 {
                        return Some(Self { base, length, writable, is_least, moved_bytes: 0 });
                    }
                }
                libc::munmap(base, bytes);
            }
        }
        None
    }
}

impl ZeroPages {
    /// Returns true if the pages can replace those that [`Self::new`] would make.
    pub const fn suffice(&self, length: u64, writable: u64, needed: u64) -> bool {
        let end = if self.is_least { needed } else { writable };
        self.length == length && self.writable >= end
    }

    /// Returns true if no part of the pages has been moved.
    pub const fn are_whole(&self) -> bool {
        self.moved_bytes == 0
    }
}

impl Drop for ZeroPages {
    fn drop(&mut self) {
        let (moved_bytes, length) = (self.moved_bytes as usize, self.length as usize);
        if moved_bytes < length {
            // SAFETY: that part of the range is still ours, and no other code has seen it.
            unsafe { libc::munmap(self.base.wrapping_add(moved_bytes), length - moved_bytes) };
        }
    }
}

/// Maps one page that a fork child finds zeroed (MADV_WIPEONFORK, madvise(2)). `None`: the kernel
/// cannot.
pub fn map_wiped_on_fork() -> Option<*mut u64> {
    const PAGE: usize = 4096;
    // SAFETY: a new private mapping touches nothing of ours.
    unsafe {
        let page = libc::mmap(
            core::ptr::null_mut(),
            PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if page == libc::MAP_FAILED {
            return None;
        }
        if libc::madvise(page, PAGE, libc::MADV_WIPEONFORK) != 0 {
            libc::munmap(page, PAGE);
            return None;
        }
        Some(page.cast())
    }
}

/// Maps executable memory twice: executable at `at`, in place of the present pages; and writable at
/// the returned address. `None`: the system refuses (SELinux's execmem, seccomp,
/// `vm.memfd_noexec`).
///
/// The memory is a file without a name (memfd_create(2)) that is closed here, so no process can
/// open it; fork children get only the executable mapping (MADV_DONTFORK). Takes no memory before
/// it is written.
///
/// # Safety
/// `bytes` bytes from `at` on are whole pages, and their content is not needed.
pub unsafe fn map_executable(at: *mut u8, bytes: usize) -> Option<*mut u8> {
    /// Flag for an executable file, required since Linux 6.3; older kernels refuse it.
    const MFD_EXEC: libc::c_uint = 0x10;
    let create = |flags| {
        // SAFETY: the name is a C string.
        let fd = unsafe { libc::memfd_create(c"trackway-filters".as_ptr(), flags) };
        (fd >= 0).then(|| Fd::adopt(fd))
    };
    let fd = create(libc::MFD_CLOEXEC | MFD_EXEC).or_else(|| create(libc::MFD_CLOEXEC))?;
    fd.lengthen(bytes as u64).ok()?;
    // SAFETY: the descriptor is ours; a new mapping touches nothing of ours, and the memory that
    // the fixed one replaces has no user, by contract.
    unsafe {
        let map = |at: *mut u8, protection, fixed| {
            let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | fixed;
            let at = libc::mmap(at.cast(), bytes, protection, flags, fd.raw(), 0);
            (at != libc::MAP_FAILED).then_some(at)
        };
        let written = map(core::ptr::null_mut(), WRITABLE, 0)?;
        let is_kept = libc::madvise(written, bytes, libc::MADV_DONTFORK) == 0
            && map(at, libc::PROT_READ | libc::PROT_EXEC, libc::MAP_FIXED).is_some();
        if !is_kept {
            libc::munmap(written, bytes);
        }
        is_kept.then_some(written.cast())
    }
}

/// Maps private zeros at `at`, in place of nothing or of pages that the process no longer needs. If
/// the system refuses, nothing has changed.
///
/// # Safety
/// The content of the mapped pages is not needed.
pub unsafe fn map_zeros(at: *mut u8, bytes: usize) {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    // SAFETY: by contract.
    unsafe { libc::mmap(at.cast(), bytes, WRITABLE, flags, -1, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that may have no file of that size gets no such memory, and survives (SIGXFSZ
    /// would kill it).
    #[test]
    fn memory_that_is_executed_is_a_file_of_a_size_that_is_allowed() {
        // SAFETY: the child makes system calls only, and ends by one.
        let status = unsafe {
            let child = libc::fork();
            if child == 0 {
                let limit = libc::rlimit { rlim_cur: 4096, rlim_max: 4096 };
                let is_set = libc::setrlimit(libc::RLIMIT_FSIZE, &limit) == 0;
                let zeros = ZeroPages::new(8192, 8192, 8192);
                let Some(zeros) = zeros else { libc::_exit(2) };
                let executable = map_executable(zeros.base.cast(), 8192);
                libc::_exit(i32::from(!is_set || executable.is_some()));
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            status
        };
        assert_eq!(status, 0, "the child's end");
    }
}
