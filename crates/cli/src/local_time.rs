//! Local time from the C library: the only module of the command that needs `unsafe`.

use trackway_render::DateTime;

/// Converts seconds since 1970 to date and time of day in the local time zone (`TZ`).
pub(crate) fn to_local_date_time(seconds: i64) -> Option<DateTime> {
    let time: libc::time_t = seconds;
    let mut parts = std::mem::MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both pointers are to live variables of the right types; localtime_r reads the
    // environment, which nothing in this program changes while it prints; on success it has filled
    // `parts`, and zeroed bytes were a valid `tm` before.
    let parts = unsafe {
        if libc::localtime_r(&raw const time, parts.as_mut_ptr()).is_null() {
            return None;
        }
        parts.assume_init()
    };
    let part = |value: libc::c_int| u8::try_from(value).ok();
    Some(DateTime {
        year: i64::from(parts.tm_year) + 1900,
        month: part(parts.tm_mon + 1)?,
        day: part(parts.tm_mday)?,
        hour: part(parts.tm_hour)?,
        minute: part(parts.tm_min)?,
        second: part(parts.tm_sec)?,
    })
}

/// Converts a date and time of day in the local time zone to seconds since 1970. In the repeated
/// hour of a clock change, the C library selects one of the two times.
pub(crate) fn from_local_date_time(time: &DateTime) -> Option<i64> {
    // SAFETY: zeroed bytes are a valid `tm`.
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    parts.tm_year = i32::try_from(time.year - 1900).ok()?;
    parts.tm_mon = i32::from(time.month) - 1;
    parts.tm_mday = time.day.into();
    parts.tm_hour = time.hour.into();
    parts.tm_min = time.minute.into();
    parts.tm_sec = time.second.into();
    parts.tm_isdst = -1;
    // SAFETY: `parts` is a live variable; nothing in this program changes the environment
    // meanwhile.
    let seconds = unsafe { libc::mktime(&raw mut parts) };
    (seconds >= 0).then_some(seconds)
}
