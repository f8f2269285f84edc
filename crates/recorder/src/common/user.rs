//! User ids: that of this process, and those of users that are given by name.

use std::ffi::CString;

use trackway_sys::users::user_called;

/// Returns the user of this process.
pub(crate) fn effective_uid() -> u32 {
    // SAFETY: geteuid has no preconditions.
    unsafe { libc::geteuid() }
}

/// Returns true if this process has the rights of root.
pub fn is_root() -> bool {
    effective_uid() == 0
}

/// Returns the id of a user that is given by name or number.
pub(crate) fn uid_of(user: &str) -> Option<u32> {
    // 4294967295 is no user: setresuid(2) takes it for "as it is".
    match user.parse::<u32>() {
        Ok(number) => (number != u32::MAX).then_some(number),
        Err(_) => user_called(&CString::new(user).ok()?),
    }
}
