//! The clocks that stamp records: the product's clock, and a clock that costs nothing.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use trackway_abi::session::Clock as ClockLine;
use trackway_sys::clock::{monotonic_ns, read_tsc, sleep_ns};

/// A clock that stamps events.
pub(super) trait Clock: Sync {
    /// Returns the time in ns.
    fn now(&self) -> u64;

    /// Returns the time, read after all earlier loads.
    fn now_in_order(&self) -> u64;
}

/// CLOCK_MONOTONIC from the processor's counter and a clock line under a sequence count. The agent
/// reads it in the same way (`agent::emit::timestamp`, which the bench may not import: only the
/// agent's library contains it).
pub(super) struct CounterClock(ClockLine);

/// Time for which the counter is compared with the system's clock, in ns.
const CALIBRATION_NS: u64 = 10_000_000;

impl CounterClock {
    /// Makes a clock line for this machine's counter. Without a counter, all readings use the
    /// system's clock, as in the agent.
    pub(super) fn calibrated() -> Self {
        let (base_tsc, base_ns) = (read_tsc(), monotonic_ns());
        sleep_ns(CALIBRATION_NS);
        let ticks = read_tsc().wrapping_sub(base_tsc);
        let ns = monotonic_ns() - base_ns;
        let multiplier = (ns << 32).checked_div(ticks).unwrap_or(0);
        Self::new(base_tsc, base_ns, multiplier, if ticks == 0 { 0 } else { u64::MAX >> 1 })
    }

    /// Makes a clock line that hardly advances, for single steps, which take a thousand times as
    /// long.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn slow() -> Self {
        let counter = read_tsc();
        Self::new(counter, monotonic_ns(), 1, if counter == 0 { 0 } else { u64::MAX >> 1 })
    }

    /// Copies the clock line: each writer has one, as each session has.
    pub(super) fn duplicate(&self) -> Self {
        let value = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let line = &self.0;
        let (base_tsc, base_ns) = (value(&line.base_tsc), value(&line.base_ns));
        Self::new(base_tsc, base_ns, value(&line.multiplier), value(&line.span))
    }

    fn new(base_tsc: u64, base_ns: u64, multiplier: u64, span: u64) -> Self {
        let line = ClockLine::default();
        line.base_tsc.store(base_tsc, Ordering::Relaxed);
        line.base_ns.store(base_ns, Ordering::Relaxed);
        line.multiplier.store(multiplier, Ordering::Relaxed);
        line.span.store(span, Ordering::Relaxed);
        Self(line)
    }

    /// Returns the ticks of the counter per ns; `None` without a counter.
    pub(super) fn ticks_per_ns(&self) -> Option<f64> {
        let multiplier = self.0.multiplier.load(Ordering::Relaxed);
        (multiplier != 0).then(|| (1_u64 << 32) as f64 / multiplier as f64)
    }

    #[inline(always)]
    fn read(&self) -> Option<u64> {
        let line = &self.0;
        // ORDERING: as in the agent: Acquire, fence and second load pair with a recorder that
        // renews the line. No recorder does so here, but the loads are part of the cost.
        let sequence = line.sequence.load(Ordering::Acquire);
        let base_tsc = line.base_tsc.load(Ordering::Relaxed);
        let multiplier = line.multiplier.load(Ordering::Relaxed);
        let base_ns = line.base_ns.load(Ordering::Relaxed);
        let span = line.span.load(Ordering::Relaxed);
        let ticks = read_tsc().wrapping_sub(base_tsc);
        if ticks > span {
            return None;
        }
        fence(Ordering::Acquire);
        if sequence & 1 != 0 || line.sequence.load(Ordering::Relaxed) != sequence {
            return None;
        }
        let scaled = (u128::from(ticks) * u128::from(multiplier)) >> 32;
        Some(base_ns.wrapping_add(scaled as u64))
    }
}

impl Clock for CounterClock {
    #[inline(always)]
    fn now(&self) -> u64 {
        self.read().unwrap_or_else(monotonic_ns)
    }

    #[inline(always)]
    fn now_in_order(&self) -> u64 {
        load_fence();
        self.now()
    }
}

/// The counter clock without the fence that keeps times in the order of slots. It is not fit for
/// use, but shows the cost of the fence.
pub(super) struct UnfencedClock(pub(super) CounterClock);

impl Clock for UnfencedClock {
    #[inline(always)]
    fn now(&self) -> u64 {
        self.0.now()
    }

    #[inline(always)]
    fn now_in_order(&self) -> u64 {
        self.0.now()
    }
}

/// A constant clock, which costs one load: the remaining cost of an event is the buffer's.
pub(super) struct ConstantClock(AtomicU64);

impl ConstantClock {
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(monotonic_ns()))
    }
}

impl Clock for ConstantClock {
    #[inline(always)]
    fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn now_in_order(&self) -> u64 {
        self.now()
    }
}

/// Prevents later loads from being executed before earlier loads.
#[inline(always)]
pub(super) fn load_fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has this instruction.
    unsafe {
        core::arch::x86_64::_mm_lfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    fence(Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_follows_the_systems_clock() {
        let line = CounterClock::calibrated();
        let before = monotonic_ns();
        let read = line.now_in_order();
        let after = monotonic_ns();
        // A calibration over 10 ms is accurate to some microseconds.
        assert!(read + 1_000_000 > before && read < after + 1_000_000, "{before} {read} {after}");
        assert!(UnfencedClock(line.duplicate()).now_in_order() + 1_000_000 > before);
    }

    #[test]
    fn the_still_clock_stands() {
        let still = ConstantClock::new();
        assert_eq!(still.now(), still.now_in_order());
    }
}
