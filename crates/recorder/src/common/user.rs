//! User ids: the id of this process's user, and the ids of named users.

use std::ffi::CString;

use trackway_sys::users::user_called;

/// Returns the effective user id of this process.
pub(crate) fn effective_uid() -> u32 {
    // SAFETY: geteuid has no preconditions.
    unsafe { libc::geteuid() }
}

/// Returns true if this process has the rights of root.
pub fn is_root() -> bool {
    effective_uid() == 0
}

/// Returns the id of a user given by name or number.
pub(crate) fn uid_of(user: &str) -> Option<u32> {
    // 4294967295 is no user: setresuid(2) takes it for "unchanged".
    match user.parse::<u32>() {
        Ok(number) => (number != u32::MAX).then_some(number),
        Err(_) => user_called(&CString::new(user).ok()?),
    }
}
