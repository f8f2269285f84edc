//! The lease, which decides whether a recorder is alive if no other evidence exists.
//!
//! A lease ends at a time of the recorder's CLOCK_MONOTONIC. In a time namespace
//! (time_namespaces(7)), for example of a container that was moved from another machine, that clock
//! differs by hours or days. The processor's counter does not differ, and the session's clock line
//! converts it to the session's time. But the counter may have continued during a suspend, unlike
//! the clock. So a lease is over only if both clocks agree. Giving up a live recorder silently
//! loses all later events; keeping a dead one only costs time.
//!
//! Without a usable counter (no constant rate, or no counter at all), there is no clock line, and
//! processes whose clock is ahead of the recorder's give up too early. No other clock helps: people
//! set the system clocks that do not belong to a namespace.

use core::sync::atomic::{Ordering, fence};

use trackway_abi::session::Clock;
use trackway_sys::clock::{HAS_COUNTER, read_tsc};

/// Returns true if a lease until `until_ns` is over, in a session with this clock, at time `now_ns`
/// of CLOCK_MONOTONIC.
pub fn lease_is_over(until_ns: u64, now_ns: u64, clock: &Clock) -> bool {
    if until_ns >= now_ns {
        return false;
    }
    // ORDERING: Acquire pairs with the recorder's Release of the even count: the line belongs to
    // it. The fence below keeps the line's loads before the second load of the count.
    let sequence = clock.sequence.load(Ordering::Acquire);
    let base_tsc = clock.base_tsc.load(Ordering::Relaxed);
    let multiplier = clock.multiplier.load(Ordering::Relaxed);
    let base_ns = clock.base_ns.load(Ordering::Relaxed);
    let span = clock.span.load(Ordering::Relaxed);
    fence(Ordering::Acquire);
    if sequence & 1 != 0 || clock.sequence.load(Ordering::Relaxed) != sequence {
        return false; // the recorder is updating the line
    }
    let ticks = read_tsc().wrapping_sub(base_tsc);
    // An expired line is precise enough here. A counter below the line's base restarted with the
    // machine.
    if !HAS_COUNTER || span == 0 || ticks > u64::MAX / 2 {
        return true;
    }
    let scaled = (u128::from(ticks) * u128::from(multiplier)) >> 32;
    u128::from(until_ns) < u128::from(base_ns) + scaled
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a clock with a line of two ticks per nanosecond, on which the time is now `now_ns`.
    fn clock_with_line(now_ns: u64) -> Clock {
        let clock = Clock::default();
        clock.base_tsc.store(read_tsc(), Ordering::Relaxed);
        clock.multiplier.store(1 << 31, Ordering::Relaxed);
        clock.base_ns.store(now_ns, Ordering::Relaxed);
        clock.span.store(1, Ordering::Relaxed);
        clock
    }

    const HOUR_NS: u64 = 3_600_000_000_000;

    #[test]
    fn a_lease_is_over_where_clock_and_counter_say_so() {
        if !HAS_COUNTER {
            assert!(lease_is_over(1, 2, &clock_with_line(0)));
            return;
        }
        let now = 100 * HOUR_NS;
        let over = |until, clock: &Clock| lease_is_over(until, now, clock);
        assert!(over(now - HOUR_NS, &clock_with_line(now)));
        assert!(!over(now + HOUR_NS, &clock_with_line(now)));
        assert!(
            !over(now - HOUR_NS, &clock_with_line(now - 2 * HOUR_NS)),
            "the namespace is ahead"
        );
        assert!(
            !over(now + HOUR_NS, &clock_with_line(now + 2 * HOUR_NS)),
            "the counter went on in its sleep"
        );
        assert!(
            !over(now - HOUR_NS, &clock_with_line(now - HOUR_NS / 2 * 3)),
            "however old the line is"
        );
    }

    #[test]
    fn without_a_line_the_clock_decides_and_who_draws_one_is_alive() {
        assert!(lease_is_over(1, 2, &Clock::default()));
        assert!(!lease_is_over(2, 2, &Clock::default()));
        let clock = clock_with_line(0);
        clock.base_tsc.store(read_tsc().wrapping_add(1 << 62), Ordering::Relaxed);
        assert!(lease_is_over(1, 2, &clock), "its counter began anew");
        clock.sequence.store(1, Ordering::Relaxed);
        assert!(!lease_is_over(1, 2, &clock));
    }
}
