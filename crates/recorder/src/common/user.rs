//! The user of this process.

/// Returns the user of this process.
pub(crate) fn user() -> u32 {
    // SAFETY: geteuid has no preconditions.
    unsafe { libc::geteuid() }
}

/// Returns true if this process has the rights of root.
pub fn is_root() -> bool {
    user() == 0
}
