//! Check that BPF programs use the same clock as traced programs and the recorder.

use std::os::unix::fs::MetadataExt as _;

use crate::error::RecordError;
use crate::kernel::error::kernel_error;

/// Returns an error if kernel events have another clock than traced programs and the recorder.
pub(crate) fn refuse_other_clock() -> Result<(), RecordError> {
    if has_own_clock() {
        let why = "this time namespace has a clock of its own, and the kernel's events another";
        return Err(kernel_error("cannot record kernel events", why));
    }
    Ok(())
}

/// Returns true if CLOCK_MONOTONIC of this process differs from the clock of BPF programs.
fn has_own_clock() -> bool {
    /// PROC_TIME_INIT_INO (include/linux/proc_ns.h).
    const FIRST: u64 = 0xeffffffa;
    // Kernels without time namespaces lack these files.
    let Ok(namespace) = std::fs::metadata("/proc/self/ns/time") else { return false };
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    namespace.ino() != FIRST && is_set_off(&offsets)
}

/// Returns true if the offsets, in the format of /proc/PID/timens_offsets, shift CLOCK_MONOTONIC.
fn is_set_off(offsets: &str) -> bool {
    let mut lines = offsets.lines().map(str::split_whitespace);
    lines.any(|mut words| words.next() == Some("monotonic") && words.any(|word| word != "0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_set_off_where_its_own_line_says_so() {
        assert!(is_set_off("monotonic        -100         0\nboottime            0         0\n"));
        assert!(is_set_off("monotonic           0         5\nboottime            0         0\n"));
        assert!(!is_set_off("monotonic           0         0\nboottime           7         0\n"));
    }
}
