//! A record's time: from a session's clock line, or from the system's clock if the line is stale.

use core::sync::atomic::{Ordering, fence};

use trackway_abi::session::Clock;

/// Returns CLOCK_MONOTONIC in ns, computed from the processor's counter and the session's clock
/// line. `None` while the recorder changes the line, or if the line is older than its span.
#[inline(always)]
pub(crate) fn from_line(clock: &Clock) -> Option<u64> {
    // A counter that stands still would fit every line, even one that was never written.
    if !trackway_sys::clock::HAS_COUNTER {
        return None;
    }
    // ORDERING: Acquire pairs with the recorder's Release of the even count: the line belongs to
    // that count. The fence below keeps the line's loads before the second load of the count.
    let sequence = clock.sequence.load(Ordering::Acquire);
    let base_tsc = clock.base_tsc.load(Ordering::Relaxed);
    let multiplier = clock.multiplier.load(Ordering::Relaxed);
    let base_ns = clock.base_ns.load(Ordering::Relaxed);
    let span = clock.span.load(Ordering::Relaxed);
    let ticks = trackway_sys::clock::read_tsc().wrapping_sub(base_tsc);
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

/// Returns CLOCK_MONOTONIC in ns, by the clock line, or else by clock_gettime(2).
pub(crate) fn from_line_or_system(clock: &Clock) -> u64 {
    const TRIES: usize = 3;
    for _ in 0..TRIES {
        if let Some(now) = from_line(clock) {
            return now;
        }
    }
    trackway_sys::clock::monotonic_ns()
}

/// Returns the time after all preceding loads. Without the wait, the processor may read its counter
/// early.
pub(crate) fn read_after_loads(clock: &Clock) -> u64 {
    trackway_sys::clock::wait_for_loads();
    from_line_or_system(clock)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock_line(base_tsc: u64, span: u64) -> Clock {
        let clock = Clock::default();
        clock.base_tsc.store(base_tsc, Ordering::Relaxed);
        clock.multiplier.store(1 << 31, Ordering::Relaxed); // two ticks a nanosecond
        clock.base_ns.store(5_000, Ordering::Relaxed);
        clock.span.store(span, Ordering::Relaxed);
        clock
    }

    #[test]
    fn a_line_is_followed_while_it_holds() {
        if !trackway_sys::clock::HAS_COUNTER {
            assert_eq!(from_line(&clock_line(0, 1 << 40)), None);
            return;
        }
        let now = trackway_sys::clock::read_tsc();
        let before = trackway_sys::clock::read_tsc();
        let read = from_line(&clock_line(now, 1 << 40)).expect("a fresh line");
        let after = trackway_sys::clock::read_tsc();
        assert!(read >= 5_000 + (before - now) / 2 && read <= 5_000 + (after - now) / 2);
    }

    #[test]
    fn a_line_that_is_stale_absent_or_in_the_making_is_not_followed() {
        let now = trackway_sys::clock::read_tsc();
        let older = now.wrapping_sub(1 << 33); // perhaps older than the machine's uptime
        assert_eq!(from_line(&clock_line(older, 1 << 32)), None, "older than its span");
        assert_eq!(from_line(&clock_line(now + (1 << 40), 1 << 32)), None, "from the future");
        assert_eq!(from_line(&Clock::default()), None, "no calibration");
        let changing = clock_line(now, 1 << 40);
        changing.sequence.store(1, Ordering::Relaxed);
        assert_eq!(from_line(&changing), None, "being written");
        let system = trackway_sys::clock::monotonic_ns();
        assert!(from_line_or_system(&changing) >= system);
    }
}
