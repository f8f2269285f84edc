//! The time of a record: a session's clock line, or the system's clock where the line is stale.

use core::sync::atomic::{Ordering, fence};

use trackway_abi::session::Clock;

/// CLOCK_MONOTONIC ns from the processor's counter by the session's line; `None` while the
/// recorder changes the line, or when it is older than it may be.
#[inline(always)]
pub(crate) fn from_line(clock: &Clock) -> Option<u64> {
    // ORDERING: Acquire pairs with the recorder's Release of the even count: the line belongs to
    // it. The fence below keeps the line's loads before the second look.
    let sequence = clock.sequence.load(Ordering::Acquire);
    let base_tsc = clock.base_tsc.load(Ordering::Relaxed);
    let multiplier = clock.multiplier.load(Ordering::Relaxed);
    let base_ns = clock.base_ns.load(Ordering::Relaxed);
    let span = clock.span.load(Ordering::Relaxed);
    let ticks = trackway_sys::clock::tsc().wrapping_sub(base_tsc);
    // A counter before the base wraps around to more than any span.
    if ticks > span {
        return None;
    }
    fence(Ordering::Acquire);
    if sequence & 1 != 0 || clock.sequence.load(Ordering::Relaxed) != sequence {
        return None;
    }
    let scaled = (u128::from(ticks) * u128::from(multiplier)) >> 32;
    Some(base_ns.wrapping_add(scaled as u64))
}

/// CLOCK_MONOTONIC ns by the line, or else by clock_gettime(2).
pub(crate) fn from_line_or_system(clock: &Clock) -> u64 {
    const TRIES: usize = 3;
    for _ in 0..TRIES {
        if let Some(now) = from_line(clock) {
            return now;
        }
    }
    trackway_sys::clock::monotonic_ns()
}
