//! A packet without a size: it grows with its file.
//!
//! Only decoding the packet from its beginning shows how far it is complete. The packet is decoded
//! again as its file grows, but so rarely that this takes a small share of the time, whatever its
//! length.

use std::time::Duration;

use trackway_ctf::read::{
    ByteSource, Damage, DecodeError, ResumeState, Skip, SourceStream, StreamDecoder, StreamError,
    Trace,
};

use super::diagnostic_log::CONFIRMATION_TIME;
use super::growth::skip_event;
use crate::folder::TraceFile;

/// Minimum time between two decodings.
const DECODE_PERIOD: Duration = Duration::from_millis(500);
/// Maximum number of bytes decoded per second: a small part of a processor's capacity.
const BYTES_PER_SECOND: u64 = 8 << 20;

/// The state of a packet that is still being written.
pub(super) struct OpenPacket {
    /// State after all packets before.
    before: ResumeState,
    /// Length of the file.
    pub(super) length: u64,
    /// Length of the file at the latest decoding.
    decoded: u64,
    /// Instant from which the packet may be decoded again.
    due: Duration,
    /// Number of complete events; `u64::MAX` if the event after them is damaged.
    pub(super) events: u64,
    /// Time of the latest complete event that has one.
    pub(super) end: Option<i64>,
    /// Instant since which the event after them is unreadable.
    wrong: Option<Duration>,
    /// Number of written events.
    pub(super) written: u64,
}

impl OpenPacket {
    /// Creates the state of a packet that was not decoded yet.
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

    /// Decodes the packet at offset and number `at` of `file`, if due at the instant `now`.
    pub(super) fn update(
        &mut self,
        trace: &Trace,
        file: &TraceFile,
        at: (u64, u64),
        now: Duration,
    ) {
        self.length = file.length();
        // Known events are written first, or else they would wait for later ones.
        if self.length != self.decoded && self.events <= self.written && now >= self.due {
            self.decode(trace, file, at, now);
            let bytes_ms = self.length.saturating_sub(at.0).saturating_mul(1000);
            self.due = now + DECODE_PERIOD.max(Duration::from_millis(bytes_ms / BYTES_PER_SECOND));
        }
        // Like in other packets, unreadable data may be half written.
        if self.wrong.is_some_and(|since| now.saturating_sub(since) >= CONFIRMATION_TIME) {
            self.events = u64::MAX;
        }
    }

    /// Counts the complete events.
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
                    // The instant is kept while the same event is unreadable.
                    let since = wrong.filter(|_| self.events == events).unwrap_or(now);
                    self.wrong = is_damage(&error).then_some(since);
                    return;
                }
            }
        }
    }

    /// Returns true if there is unwritten or unreadable data.
    pub(super) fn is_waiting(&self) -> bool {
        self.length != self.decoded || self.events > self.written || self.is_doubtful()
    }

    /// Returns true if no further event up to `time` is expected in this packet.
    pub(super) fn is_past(&self, time: i64) -> bool {
        self.length == self.decoded || self.end.is_some_and(|end| end >= time)
    }

    /// Returns true if there is unreadable data that may be half written.
    pub(super) fn is_doubtful(&self) -> bool {
        self.wrong.is_some() && self.events != u64::MAX
    }

    /// Marks the complete events as written, if there are new ones and all are before the horizon;
    /// returns true if so.
    pub(super) fn take(&mut self, horizon: i64) -> bool {
        let is_due = self.end.is_none_or(|end| end <= horizon) && self.events > self.written;
        if is_due {
            self.written = self.events;
        }
        is_due
    }
}

/// Returns true unless only the rest of an event is missing.
fn is_damage(error: &StreamError) -> bool {
    let is_cut =
        matches!(error.damage, Damage::Packet(DecodeError::Truncated { .. }) | Damage::Missing(_));
    !is_cut
}
