//! The local time zone, from the C library.

/// Returns the date and time of day at `seconds` since 1970, in the local time zone (`TZ`), in the
/// form of folder names: `20261121-093000`.
pub fn format_timestamp(seconds: i64) -> Option<String> {
    let time: libc::time_t = seconds;
    let mut parts = std::mem::MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both pointers are to live variables of the right types; localtime_r reads the
    // environment, which nothing in this program changes; if it answers, it has filled `parts`, and
    // zeroed bytes were a valid `tm` before.
    let parts = unsafe {
        if libc::localtime_r(&raw const time, parts.as_mut_ptr()).is_null() {
            return None;
        }
        parts.assume_init()
    };
    let (year, month, day) = (parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday);
    let (hour, minute, second) = (parts.tm_hour, parts.tm_min, parts.tm_sec);
    Some(format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_has_the_form_of_folder_names() {
        let stamp = format_timestamp(1_795_000_000).expect("a date");
        let is_digit = |letter: char| letter.is_ascii_digit();
        let (date, time) = stamp.split_once('-').expect("both");
        assert!(date.starts_with("2026") && date.len() == 8 && date.chars().all(is_digit));
        assert!(time.len() == 6 && time.chars().all(is_digit), "{stamp}");
    }
}
