//! The local time zone, from the C library: the one place in the command that needs `unsafe`.

/// Hours, minutes and seconds of the local time zone (`TZ`) at `seconds` since 1970.
pub(crate) fn of_day(seconds: i64) -> Option<[u8; 3]> {
    let time: libc::time_t = seconds;
    let mut parts = std::mem::MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both pointers are to live variables of the right types; localtime_r reads the
    // environment, which nothing in this program changes while it prints; if it answers, it has
    // filled `parts`, and zeroed bytes were a valid `tm` before.
    let parts = unsafe {
        if libc::localtime_r(&raw const time, parts.as_mut_ptr()).is_null() {
            return None;
        }
        parts.assume_init()
    };
    let part = |value: libc::c_int| u8::try_from(value).ok();
    Some([part(parts.tm_hour)?, part(parts.tm_min)?, part(parts.tm_sec)?])
}
