//! Readings of the clock, and the clock line published for writers.

use std::sync::atomic::{Ordering, fence};

use trackway_abi::session::Clock;
use trackway_session::{Line, Reading};
use trackway_sys::clock::{monotonic_ns, read_tsc};

/// Number of clock samples; the one between the closest counter readings is used.
const SAMPLES: usize = 20;

/// Returns true if the processor's counter has one constant rate, in all sleep states.
pub(crate) fn counter_is_invariant() -> bool {
    // On AArch64, the system counter is invariant and common to all processors by architecture.
    if !cfg!(target_arch = "x86_64") {
        return trackway_sys::clock::HAS_COUNTER;
    }
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let Some(flags) = text.lines().find(|line| line.starts_with("flags")) else { return false };
    let has = |wanted: &str| flags.split_whitespace().any(|flag| flag == wanted);
    has("constant_tsc") && has("nonstop_tsc")
}

/// Reads the clock between two counter readings, several times. Returns the reading with the least
/// distance between them.
pub(crate) fn read_clock() -> Reading {
    let look = || {
        let before = read_tsc();
        let ns = monotonic_ns();
        let width = read_tsc().wrapping_sub(before);
        Reading { tsc: before.wrapping_add(width / 2), ns, width }
    };
    (1..SAMPLES)
        .map(|_| look())
        .fold(look(), |best, one| if one.width < best.width { one } else { best })
}

/// Publishes `line` and the epoch; with `None`, writers read the system clock.
pub(crate) fn publish_line(clock: &Clock, line: Option<Line>, epoch: u64) {
    let line = line.unwrap_or(Line { base_tsc: 0, multiplier: 0, base_ns: 0, span: 0 });
    // The count becomes odd, whatever value a dead recorder left.
    let sequence = clock.sequence.load(Ordering::Relaxed) | 1;
    clock.sequence.store(sequence, Ordering::Relaxed);
    // ORDERING: Release keeps the odd count before the values; it pairs with the Acquire fence of
    // readers, before their second load of the count.
    fence(Ordering::Release);
    clock.base_tsc.store(line.base_tsc, Ordering::Relaxed);
    clock.multiplier.store(line.multiplier, Ordering::Relaxed);
    clock.base_ns.store(line.base_ns, Ordering::Relaxed);
    clock.span.store(line.span, Ordering::Relaxed);
    clock.epoch.store(epoch, Ordering::Relaxed);
    // ORDERING: Release pairs with the Acquire of readers' first load of the count.
    clock.sequence.store(sequence.wrapping_add(1), Ordering::Release);
}
