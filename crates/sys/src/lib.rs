//! Safe wrappers over the functions of Linux and of the processor that Trackway needs.
//!
//! No policy and no state: each function is one system call or one instruction with its unsafety
//! discharged. Nothing here allocates unless its name indicates that, because the library inside
//! traced processes uses it too. Errors are errno values.
#![no_std]

pub mod clock;
pub mod file;
pub mod inotify;
pub mod leaving;
pub mod memory;
pub mod mount;
pub mod process;
pub mod signal;
pub mod thread;
pub mod users;
pub mod valgrind;
pub mod wait;

/// An errno value, as errno(3) lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// Returns the calling thread's errno.
    pub fn last() -> Self {
        // SAFETY: errno's address is valid for the calling thread.
        Self(unsafe { *libc::__errno_location() })
    }

    /// Sets the calling thread's errno to this value.
    pub fn set(self) {
        // SAFETY: errno's address is valid for the calling thread.
        unsafe { *libc::__errno_location() = self.0 };
    }

    /// Converts the result of a system call that returns -1 on failure.
    pub(crate) fn check(result: i64) -> Result<i64, Self> {
        if result < 0 { Err(Self::last()) } else { Ok(result) }
    }
}

impl core::fmt::Display for Errno {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        // SAFETY: strerror returns a NUL-terminated string; only the command line prints errors,
        // from one thread.
        let text = unsafe { core::ffi::CStr::from_ptr(libc::strerror(self.0)) };
        formatter.write_str(text.to_str().unwrap_or("unknown error"))
    }
}

impl core::error::Error for Errno {}
