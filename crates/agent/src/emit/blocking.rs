//! Waiting for memory, in programs that allow it: with `TRACKWAY_ALLOW_BLOCKING` in their
//! environment, set to anything but `0`.
//!
//! In other programs, a record without memory is counted as discarded at once. Here, in a session
//! with a blocking timeout, the record waits for the recorder in short sleeps. The recorder cannot
//! wake a writer, because it has no list of writers. Invariant: a record waits no longer than the
//! timeout, nor for a recorder whose lease has run out, nor in a session that has changed.

use core::sync::atomic::{AtomicBool, Ordering};

use trackway_abi::session::Session;
use trackway_sys::clock::{monotonic_ns, sleep_ns};
use trackway_window::lease_is_over;

/// First sleep, in ns: about the time in which a recorder gives back one sub-buffer.
const SLEEP_NS: u64 = 100_000;
/// Longest sleep, in ns. Recorders poll some tens of times a second, so longer sleeps would not
/// cost noticeably less, and shorter ones would not find memory noticeably earlier.
const SLEEP_NS_MAX: u64 = 1_000_000;

static IS_ALLOWED: AtomicBool = AtomicBool::new(false);

/// Stores the setting from the program's environment. The thread that loads the library calls this
/// once.
pub(crate) fn set_allowed(value: Option<&core::ffi::CStr>) {
    IS_ALLOWED.store(value.is_some_and(|value| value != c"0"), Ordering::Relaxed);
}

/// The time that a record may still wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitBudget {
    until_ns: u64,
    sleep_ns: u64,
}

impl WaitBudget {
    /// Returns the budget of one record in this session: none, unless program and session both
    /// allow waiting.
    pub(crate) fn for_session(session: &Session) -> Self {
        let allowed = IS_ALLOWED.load(Ordering::Relaxed);
        let timeout = if allowed { session.blocking_ns.load(Ordering::Relaxed) } else { 0 };
        let until_ns = if timeout == 0 { 0 } else { monotonic_ns().saturating_add(timeout) };
        Self { until_ns, sleep_ns: SLEEP_NS }
    }

    /// Sleeps briefly; returns false without a sleep if no time is left. Async-signal-safe; changes
    /// errno if a signal comes.
    pub(crate) fn wait(&mut self, session: &Session) -> bool {
        if self.until_ns == 0 {
            return false;
        }
        let now = monotonic_ns();
        let lease = session.lease_until_ns.load(Ordering::Relaxed);
        if now >= self.until_ns || lease_is_over(lease, now, &session.clock) {
            return false;
        }
        sleep_ns(self.sleep_ns.min(self.until_ns - now));
        self.sleep_ns = (self.sleep_ns * 2).min(SLEEP_NS_MAX);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_program_and_a_session_that_ask_wait_and_not_for_ever() {
        // SAFETY: a session is made of atomics, for which zeros are valid.
        let session: Session = unsafe { core::mem::zeroed() };
        session.lease_until_ns.store(u64::MAX, Ordering::Relaxed);
        let waits = |timeout: u64| {
            session.blocking_ns.store(timeout, Ordering::Relaxed);
            let mut budget = WaitBudget::for_session(&session);
            let count = (0..10).filter(|_| budget.wait(&session)).count();
            (count, budget.sleep_ns)
        };
        assert_eq!(waits(u64::MAX), (0, SLEEP_NS), "the program has not asked");
        set_allowed(Some(c"0"));
        assert_eq!(waits(u64::MAX).0, 0);
        set_allowed(Some(c"1"));
        assert_eq!(waits(0).0, 0, "the session has not asked");
        assert_eq!(waits(u64::MAX), (10, SLEEP_NS_MAX));
        assert!((1..10).contains(&waits(SLEEP_NS).0), "until the time is over");
        session.lease_until_ns.store(0, Ordering::Relaxed);
        assert_eq!(waits(u64::MAX).0, 0, "nobody will come");
        set_allowed(None);
    }
}
