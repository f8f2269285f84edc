//! Signals that end a recording while its command continues.
//!
//! Signals are meant for the command, and nearly always end it. A command that ignores SIGTERM, or
//! is stopped, must not keep the recording. So a second signal ends the recording, or [`GRACE`]
//! after the first. The command continues, like after strace(1).
//!
//! SIGHUP and SIGQUIT alone end nothing: daemons reload their configuration at SIGHUP, Java prints
//! its threads at SIGQUIT, and nohup(1) ignores SIGHUP. A signal that the recorder was started to
//! ignore ends nothing either. Interactive programs use keys (Ctrl-C) for other purposes. So only
//! [`KEYS`] keys within [`KEYS_TIME`] end the recording, and no elapsed time does.

use std::time::{Duration, Instant};

use trackway_sys::signal;

use crate::command::launch::ForwardedSignal;

/// Time from the first signal until the recording ends, if the command has not ended.
pub(crate) const GRACE: Duration = Duration::from_secs(10);
/// Time from the first signal until a notice that the command has not ended.
const WARN_AFTER: Duration = Duration::from_secs(1);
/// Number of keys that end a recording, within [`KEYS_TIME`].
const KEYS: u32 = 3;
const KEYS_TIME: Duration = Duration::from_secs(2);

/// Action that the signals so far require.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    GoOn,
    /// The command has not ended after this signal; the recording ends in this time. Reported once.
    Warn(i32, Duration),
    /// This signal ends the recording; the command continues.
    End(i32),
}

/// Signals so far that request an end.
#[derive(Debug, Default)]
pub(crate) struct EndSignals {
    /// First signal that another process sent, with its time.
    sent: Option<(i32, Instant)>,
    has_warned: bool,
    /// Number of keys in a row, with the time of the first.
    keys: Option<(u32, Instant)>,
    ended_by: Option<i32>,
}

impl EndSignals {
    /// Notes a signal that arrived at `now`, unless this process was started to ignore it.
    pub(crate) fn receive(&mut self, received: ForwardedSignal, now: Instant) {
        if !signal::is_ignored(received.signal()) {
            self.count(received, now);
        }
    }

    fn count(&mut self, received: ForwardedSignal, now: Instant) {
        let ends = if received.is_key() {
            let row = self.keys.filter(|(_, first)| now.duration_since(*first) < KEYS_TIME);
            let (count, first) = row.unwrap_or((0, now));
            self.keys = Some((count + 1, first));
            count + 1 >= KEYS
        } else if self.sent.is_some() {
            received.confirms_end()
        } else {
            self.sent = received.requests_end().then(|| (received.signal(), now));
            false
        };
        if ends {
            self.ended_by.get_or_insert(received.signal());
        }
    }

    /// Returns the action that is due at `now`, while the command runs.
    pub(crate) fn verdict(&mut self, now: Instant) -> Verdict {
        if let Some(signal) = self.ended_by {
            return Verdict::End(signal);
        }
        let Some((signal, since)) = self.sent else { return Verdict::GoOn };
        let elapsed = now.duration_since(since);
        if elapsed >= GRACE {
            self.ended_by = Some(signal);
            return Verdict::End(signal);
        }
        if elapsed >= WARN_AFTER && !std::mem::replace(&mut self.has_warned, true) {
            return Verdict::Warn(signal, GRACE - elapsed);
        }
        Verdict::GoOn
    }

    /// Returns the time until [`Self::verdict`] may change, in ns.
    pub(crate) fn due_in_ns(&self, now: Instant) -> u64 {
        let Some((_, since)) = self.sent else { return u64::MAX };
        let due = since + if self.has_warned { GRACE } else { WARN_AFTER };
        u64::try_from(due.saturating_duration_since(now).as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn sent_signal(signal: i32) -> ForwardedSignal {
        ForwardedSignal::new(signal, false)
    }

    fn interrupt_key() -> ForwardedSignal {
        ForwardedSignal::new(libc::SIGINT, true)
    }

    #[test]
    fn a_second_signal_ends_it() {
        let (mut ending, now) = (EndSignals::default(), Instant::now());
        assert_eq!((ending.verdict(now), ending.due_in_ns(now)), (Verdict::GoOn, u64::MAX));
        ending.count(sent_signal(libc::SIGUSR1), now);
        ending.count(sent_signal(libc::SIGUSR1), now);
        ending.count(sent_signal(libc::SIGTERM), now);
        assert_eq!(ending.verdict(now), Verdict::GoOn);
        assert_eq!(ending.due_in_ns(now), 1_000_000_000);
        ending.count(sent_signal(libc::SIGHUP), now + 5 * MS);
        assert_eq!(ending.verdict(now + 5 * MS), Verdict::End(libc::SIGHUP));
    }

    #[test]
    fn so_does_time_after_a_warning() {
        let (mut ending, now) = (EndSignals::default(), Instant::now());
        ending.count(sent_signal(libc::SIGTERM), now);
        assert_eq!(ending.verdict(now + 999 * MS), Verdict::GoOn);
        let warned = now + 1500 * MS;
        assert_eq!(ending.verdict(warned), Verdict::Warn(libc::SIGTERM, 8500 * MS));
        assert_eq!(ending.verdict(warned), Verdict::GoOn, "once");
        assert_eq!(ending.due_in_ns(warned), 8_500_000_000);
        assert_eq!(ending.verdict(now + GRACE), Verdict::End(libc::SIGTERM));
        assert_eq!(ending.verdict(now + GRACE), Verdict::End(libc::SIGTERM), "it stays so");
    }

    #[test]
    fn reloads_and_hangups_do_not() {
        let (mut ending, now) = (EndSignals::default(), Instant::now());
        for signal in [libc::SIGHUP, libc::SIGQUIT, libc::SIGHUP] {
            ending.count(sent_signal(signal), now);
        }
        ending.count(ForwardedSignal::new(libc::SIGHUP, true), now);
        assert_eq!((ending.verdict(now), ending.due_in_ns(now)), (Verdict::GoOn, u64::MAX));
        ending.count(sent_signal(libc::SIGTERM), now);
        ending.count(sent_signal(libc::SIGUSR1), now);
        assert_eq!(ending.verdict(now), Verdict::GoOn);
        ending.count(sent_signal(libc::SIGHUP), now);
        assert_eq!(ending.verdict(now), Verdict::End(libc::SIGHUP));
    }

    #[test]
    fn keys_end_it_when_they_come_fast() {
        let (mut ending, now) = (EndSignals::default(), Instant::now());
        for second in 0..10 {
            ending.count(interrupt_key(), now + 1200 * MS * second);
        }
        let later = now + 1200 * MS * 10;
        assert_eq!((ending.verdict(later), ending.due_in_ns(later)), (Verdict::GoOn, u64::MAX));
        let again = later + 5000 * MS;
        (0..2).for_each(|n| ending.count(interrupt_key(), again + 100 * MS * n));
        assert_eq!(ending.verdict(again), Verdict::GoOn);
        ending.count(interrupt_key(), again + 200 * MS);
        assert_eq!(ending.verdict(again + 200 * MS), Verdict::End(libc::SIGINT));
    }
}
