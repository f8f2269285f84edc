//! State of a trace that temporarily cannot be written: notices, and the time of the next attempt.
//!
//! Main invariant: each error is reported once, however often it occurs. Its end is reported only
//! when a packet has been written: a poll that had nothing to write proves nothing.

use trackway_sys::clock::monotonic_ns;

use crate::error::RecordError;
use crate::notices::Notices;

/// Time from a write error until the next attempt, in ns.
pub(crate) const STALL_NS: u64 = 200_000_000;

/// Error that prevents writing of a trace, if any.
#[derive(Debug, Default)]
pub(crate) struct WriteStall(Option<StallReason>);

#[derive(Debug)]
struct StallReason {
    why: String,
    /// Size of the trace in bytes when the error was reported.
    bytes: u64,
    /// Time of the next attempt, in ns.
    due_ns: u64,
}

impl WriteStall {
    /// Returns true if no error prevents writing, as far as is known.
    pub(crate) const fn is_over(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the time until the next attempt, in ns; zero if it is due.
    pub(crate) fn retry_in_ns(&self) -> u64 {
        self.0.as_ref().map_or(0, |reason| reason.due_ns.saturating_sub(monotonic_ns()))
    }

    /// Notes that the trace, which has `bytes` bytes, cannot be written; reports a new error. Each
    /// line of the report begins with `prefix`.
    pub(crate) fn note_error(
        &mut self,
        error: &RecordError,
        bytes: u64,
        prefix: &str,
        notices: &Notices,
    ) {
        let (why, due_ns) = (error.to_string(), monotonic_ns() + STALL_NS);
        match &mut self.0 {
            Some(reason) if reason.why == why => reason.due_ns = due_ns,
            _ => {
                notices
                    .report(format_args!("{prefix}{why}: events are lost once buffers are full"));
                if let Some(hint) = error.hint() {
                    notices.hint(format_args!("{hint}"));
                }
                self.0 = Some(StallReason { why, bytes, due_ns });
            }
        }
    }

    /// Notes that a poll had no error; reports the end of a stall if the trace has grown.
    pub(crate) fn note_success(&mut self, bytes: u64, prefix: &str, notices: &Notices) {
        if self.0.take_if(|reason| bytes > reason.bytes).is_some() {
            notices.report(format_args!("{prefix}events are written again"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_said_once_and_its_end_when_something_was_written() {
        let (mut stall, notices) = (WriteStall::default(), Notices::in_memory());
        let (full, gone) = (RecordError::Lost("full"), RecordError::Lost("gone"));
        assert!(stall.is_over() && stall.retry_in_ns() == 0);
        stall.note_error(&full, 7, "ann: ", &notices);
        stall.note_error(&full, 7, "ann: ", &notices);
        assert!(!stall.is_over() && (1..=STALL_NS).contains(&stall.retry_in_ns()));
        stall.note_success(7, "ann: ", &notices);
        assert!(!stall.is_over());
        stall.note_error(&gone, 7, "ann: ", &notices);
        stall.note_success(8, "ann: ", &notices);
        assert!(stall.is_over());
        let lost = "events are lost once buffers are full";
        let said = ["full", "gone"].map(|why| format!("ann: recording ended: {why}: {lost}"));
        assert_eq!(notices.lines()[..2], said);
        assert_eq!(notices.lines()[2..], ["ann: events are written again"]);
    }
}
