//! Mappings.

use crate::Errno;
use crate::file::Fd;

/// A shared mapping of a file that is never unmapped: writers may be anywhere in it.
#[derive(Debug, Clone, Copy)]
pub struct Mapping {
    base: *mut u8,
    bytes: u64,
}

// SAFETY: a mapping is an address range; what is in it is accessed by atomics and raw copies.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `bytes` bytes of `fd`, readable and writable, shared. The file may be
    /// shorter: what lies behind its end must not be touched.
    pub fn new(fd: &Fd, bytes: u64) -> Result<Self, Errno> {
        // SAFETY: a new mapping at an address that the kernel chooses touches nothing of ours.
        let base = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                bytes as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                fd.raw(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        Ok(Self { base: base.cast(), bytes })
    }

    /// Where it begins.
    #[inline(always)]
    pub const fn base(&self) -> *mut u8 {
        self.base
    }

    /// Its length, in bytes.
    #[inline(always)]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Puts zero pages of this process's own in place of `[from, from + bytes)` of the mapping: at
    /// no moment is there nothing. They take no memory before they are written, and are writable
    /// up to `needed` (bytes of the mapping) at least: all of them, unless the system promises no
    /// more memory than it has (overcommit_memory 2).
    ///
    /// # Errors
    ///
    /// If there is no such memory to be had: then nothing has changed, or a first part.
    pub fn blank(&self, from: u64, bytes: u64, needed: u64) -> Result<(), Errno> {
        let length = bytes.min(self.bytes.saturating_sub(from)) as usize;
        let needed = (needed.saturating_sub(from) as usize).min(length);
        let target: *mut libc::c_void = self.base.wrapping_add(from as usize).cast();
        let Some((spare, writable)) = zeros(length, needed) else {
            // No address space for both (RLIMIT_AS).
            let flags =
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
            // SAFETY: the target is part of this mapping, whose users read atomics or raw bytes
            // only: zeros are as good as any bytes to them.
            let result = unsafe { libc::mmap(target, length, WRITABLE, flags, -1, 0) };
            return if result == libc::MAP_FAILED { Err(Errno::last()) } else { Ok(()) };
        };
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        for (at, bytes) in [(0, writable), (writable, length - writable)] {
            // SAFETY: as above; and the spare is new, and nobody else's.
            unsafe {
                if bytes > 0
                    && libc::mremap(spare.add(at), bytes, bytes, flags, target.add(at))
                        == libc::MAP_FAILED
                {
                    let errno = Errno::last();
                    libc::munmap(spare.add(at), length - at);
                    return Err(errno);
                }
            }
        }
        Ok(())
    }

    /// Maps `fd` in the place of this mapping. Whoever uses it goes on in the file.
    pub fn refill(&self, fd: &Fd) -> Result<(), Errno> {
        // SAFETY: the range is this mapping's, whose users read atomics or raw bytes only.
        let result = unsafe {
            libc::mmap(
                self.base.cast(),
                self.bytes as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED,
                fd.raw(),
                0,
            )
        };
        if result == libc::MAP_FAILED { Err(Errno::last()) } else { Ok(()) }
    }

    /// Unmaps it. For programs that opened a window to look at it, never for the agent.
    ///
    /// # Safety
    /// No reference into the mapping is used afterwards.
    pub unsafe fn unmap(self) {
        // SAFETY: the range is this mapping's, and the caller vouches for the rest.
        unsafe { libc::munmap(self.base.cast(), self.bytes as usize) };
    }
}

const WRITABLE: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

/// `length` bytes of zero pages, and how many of them are writable: all, or `needed`.
///
/// Private ones; or, where the program may have no more data (RLIMIT_DATA), shared ones, which that
/// limit does not count.
fn zeros(length: usize, needed: usize) -> Option<(*mut libc::c_void, usize)> {
    for kind in [libc::MAP_PRIVATE, libc::MAP_SHARED] {
        let flags = kind | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: the spare is new, and nobody else's.
        unsafe {
            // mlockall(2) may say that new memory is to be filled at once, which is taken back here
            // before there is access that would do it.
            let spare = libc::mmap(core::ptr::null_mut(), length, libc::PROT_NONE, flags, -1, 0);
            if spare == libc::MAP_FAILED {
                continue;
            }
            libc::munlock(spare, length);
            for writable in [length, needed] {
                if libc::mprotect(spare, writable, WRITABLE) == 0 {
                    return Some((spare, writable));
                }
            }
            libc::munmap(spare, length);
        }
    }
    None
}

/// One page that a fork child finds zeroed (MADV_WIPEONFORK, madvise(2)), or `None` where the
/// kernel cannot.
pub fn wiped_on_fork() -> Option<*mut u64> {
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
