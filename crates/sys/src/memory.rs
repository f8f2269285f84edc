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

    /// Unmaps it. For programs that opened a window to look at it, never for the agent.
    ///
    /// # Safety
    /// No reference into the mapping is used afterwards.
    pub unsafe fn unmap(self) {
        // SAFETY: the range is this mapping's, and the caller vouches for the rest.
        unsafe { libc::munmap(self.base.cast(), self.bytes as usize) };
    }
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
