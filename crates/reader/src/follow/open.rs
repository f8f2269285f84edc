//! A packet that does not say its size: it goes on as long as its file.
//!
//! How far it is whole is only known by decoding it from its beginning. It is decoded again as its
//! file grows, but so seldom that this takes a small share of the time, however long it becomes.

use std::time::Duration;

use trackway_ctf::read::{
    ByteSource, Damage, DecodeError, ResumeState, Skip, SourceStream, StreamDecoder, StreamError,
    Trace,
};

use super::diagnostic_log::CONFIRMATION_TIME;
use super::growth::skip_event;
use crate::folder::TraceFile;

/// Least time between two decodings.
const DECODE_PERIOD: Duration = Duration::from_millis(500);
/// Most bytes that are decoded in a second: a small part of what a processor can.
const BYTES_PER_SECOND: u64 = 8 << 20;

/// The state of the packet that is being written.
pub(super) struct OpenPacket {
    /// The state that the packets before leave.
    before: ResumeState,
    /// Length of the file.
    pub(super) length: u64,
    /// Its length when it was decoded.
    decoded: u64,
    /// When it may be decoded again.
    due: Duration,
    /// Number of complete events; all, if the one after them is wrong.
    pub(super) events: u64,
    /// When the last of them was, if it has a time.
    pub(super) end: Option<i64>,
    /// Since when the event after them cannot be read.
    wrong: Option<Duration>,
    /// Number of events that were written.
    pub(super) written: u64,
}

impl OpenPacket {
    /// One of which nothing is known.
    pub(super) fn new(before: ResumeState) -> Self {
        Self {
            before,
            length: 0,
            decoded: 0,
            due: Duration::ZERO,
            events: 0,
            end: None,
            wrong: None,
            written: 0,
        }
    }

    /// Reads the packet, which begins `at` this place of `file`, at the instant `now`.
    pub(super) fn update(
        &mut self,
        trace: &Trace,
        file: &TraceFile,
        at: (u64, u64),
        now: Duration,
    ) {
        self.length = file.length();
        // What was found before is written first: else it would wait for what follows it.
        if self.length != self.decoded && self.events <= self.written && now >= self.due {
            self.decode(trace, file, at, now);
            let bytes_ms = self.length.saturating_sub(at.0).saturating_mul(1000);
            self.due = now + DECODE_PERIOD.max(Duration::from_millis(bytes_ms / BYTES_PER_SECOND));
        }
        // As of other packets: what is wrong may be half written.
        if self.wrong.is_some_and(|since| now.saturating_sub(since) >= CONFIRMATION_TIME) {
            self.events = u64::MAX;
        }
    }

    /// Counts the events that are there.
    fn decode(&mut self, trace: &Trace, file: &TraceFile, at: (u64, u64), now: Duration) {
        self.decoded = self.length;
        let (events, wrong) = (self.events, self.wrong.take());
        self.events = 0;
        let mut source = SourceStream::new(file);
        source.go_to(at.0, at.1);
        let mut decoder = StreamDecoder::resume(trace, self.before);
        if source.begin_packet(&mut decoder, &mut Skip, |_| {}).is_err() {
            return;
        }
        loop {
            match skip_event(&mut source, &mut decoder) {
                Ok(Some(time)) => {
                    self.events += 1;
                    self.end = time.max(self.end);
                }
                Ok(None) => return,
                Err(error) => {
                    // As long as it is the same event.
                    let since = wrong.filter(|_| self.events == events).unwrap_or(now);
                    self.wrong = is_damage(&error).then_some(since);
                    return;
                }
            }
        }
    }

    /// Returns true if there is data that is not written yet, or may be damaged.
    pub(super) fn is_waiting(&self) -> bool {
        self.length != self.decoded || self.events > self.written || self.is_doubtful()
    }

    /// Returns true if no event up to `time` is to come from this packet.
    pub(super) fn is_past(&self, time: i64) -> bool {
        self.length == self.decoded || self.end.is_some_and(|end| end >= time)
    }

    /// Returns true if there is unreadable data that may be half written.
    pub(super) fn is_doubtful(&self) -> bool {
        self.wrong.is_some() && self.events != u64::MAX
    }

    /// Takes its events to be written, if there are new ones, and all are before the horizon.
    pub(super) fn take(&mut self, horizon: i64) -> bool {
        let is_due = self.end.is_none_or(|end| end <= horizon) && self.events > self.written;
        if is_due {
            self.written = self.events;
        }
        is_due
    }
}

/// Returns true unless just the rest of an event is missing.
fn is_damage(error: &StreamError) -> bool {
    let is_cut =
        matches!(error.damage, Damage::Packet(DecodeError::Truncated { .. }) | Damage::Missing(_));
    !is_cut
}
