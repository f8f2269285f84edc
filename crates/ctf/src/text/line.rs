//! Whole lines: time, difference to the event before, where it is from, and the fields; and
//! babeltrace2's warnings about what a tracer lost.

use super::fields::FieldWriter;
use super::number::{nine_digits, push_decimal, two_digits};
use crate::read::{
    Clock, DecodeError, EnvironmentValue, EventHeader, Loss, Lost, StreamDecoder, Trace, Window,
};

const NS_PER_SECOND: u64 = 1_000_000_000;

/// What a trace's lines and warnings call it.
#[derive(Debug, Clone)]
pub struct TraceNames {
    /// What stands before each event's name: `host:program:(pid) `, as far as known.
    prefix: Vec<u8>,
    /// The trace's name in warnings and its place among others: its host and its folder.
    name: String,
    uuid: Option<[u8; 16]>,
}

impl TraceNames {
    /// The names in a trace's environment; `folder` is where the trace was found, relative to
    /// where the search began, or empty if it was there.
    pub fn new(trace: &Trace, folder: &str) -> Self {
        let pid = match trace.environment("vpid") {
            Some(EnvironmentValue::Number(pid)) => Some(format!("({pid})")),
            _ => None,
        };
        let host = trace.environment_text("hostname");
        let program = trace.environment_text("procname");
        let known: Vec<&str> = [host, program, pid.as_deref()].into_iter().flatten().collect();
        let mut prefix = known.join(":");
        if !known.is_empty() {
            prefix.push(' ');
        }
        Self {
            prefix: prefix.into_bytes(),
            name: [host.unwrap_or_default(), folder]
                .iter()
                .filter(|part| !part.is_empty())
                .copied()
                .collect::<Vec<_>>()
                .join("/"),
            uuid: trace.uuid().copied(),
        }
    }

    /// The trace's name in warnings.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Writes lines, one event after another. `Local` gives the local time of day (hours, minutes,
/// seconds) at a time in seconds since 1970, or `None` if it cannot.
pub struct LineWriter<Local> {
    local: Local,
    /// A second, and how it is shown: most events share theirs with the one before.
    shown: Option<(u64, [u8; 8])>,
    last: Option<i64>,
    warned_of_negative: bool,
}

impl<Local: FnMut(i64) -> Option<[u8; 3]>> LineWriter<Local> {
    /// A writer before its first event.
    pub const fn new(local: Local) -> Self {
        Self { local, shown: None, last: None, warned_of_negative: false }
    }

    /// Appends the line of the event whose header `decoder` just read; `packet_context` is the
    /// text of its packet's context. After an error, `out` is as it was.
    pub fn event(
        &mut self,
        out: &mut Vec<u8>,
        names: &TraceNames,
        packet_context: &[u8],
        header: &EventHeader<'_>,
        decoder: &mut StreamDecoder<'_>,
        window: Window<'_>,
    ) -> Result<(), DecodeError> {
        let start = out.len();
        let last = self.last;
        if let Some(time) = header.time {
            self.push_times(out, time);
        }
        out.extend_from_slice(&names.prefix);
        out.extend_from_slice(header.class.name().unwrap_or("<unknown>").as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(packet_context);
        let mut sink = FieldWriter::new(out, !packet_context.is_empty());
        if let Err(error) = decoder.event_body(window, header.class, &mut sink) {
            out.truncate(start);
            self.last = last;
            return Err(error);
        }
        out.push(b'\n');
        Ok(())
    }

    /// Appends an event's time and its difference to the one before.
    fn push_times(&mut self, out: &mut Vec<u8>, time: i64) {
        let difference = self.last.map(|last| time.wrapping_sub(last) as u64);
        if let (Some((second, clock)), Some(difference)) = (self.shown, difference)
            && second == time as u64 / NS_PER_SECOND
            && difference < NS_PER_SECOND
            && time >= 0
        {
            // Nearly always: in one piece, which is a good deal quicker.
            let mut text = *b"[00:00:00.000000000] (+0.000000000) ";
            text[1..9].copy_from_slice(&clock);
            text[10..19].copy_from_slice(&nine_digits(time as u64 % NS_PER_SECOND));
            text[25..34].copy_from_slice(&nine_digits(difference));
            out.extend_from_slice(&text);
            self.last = Some(time);
            return;
        }
        out.push(b'[');
        self.push_time(out, time);
        out.extend_from_slice(b"] (+");
        self.push_difference(out, time);
        out.extend_from_slice(b") ");
    }

    fn push_difference(&mut self, out: &mut Vec<u8>, time: i64) {
        match self.last.replace(time) {
            None => out.extend_from_slice(b"?.?????????"),
            Some(last) => {
                let difference = time.wrapping_sub(last) as u64;
                push_decimal(out, difference / NS_PER_SECOND);
                out.push(b'.');
                out.extend_from_slice(&nine_digits(difference % NS_PER_SECOND));
            }
        }
    }

    /// Appends a time of day, or for the first time before 1970, seconds: so does babeltrace2.
    fn push_time(&mut self, out: &mut Vec<u8>, time: i64) {
        let (seconds, fraction) =
            (time.unsigned_abs() / NS_PER_SECOND, time.unsigned_abs() % NS_PER_SECOND);
        let as_seconds = time < 0 && !std::mem::replace(&mut self.warned_of_negative, time < 0);
        let clock = if as_seconds { None } else { self.time_of_day(seconds) };
        match clock {
            Some(clock) => out.extend_from_slice(&clock),
            None => {
                if time < 0 {
                    out.push(b'-');
                }
                push_decimal(out, seconds);
            }
        }
        out.push(b'.');
        out.extend_from_slice(&nine_digits(fraction));
    }

    fn time_of_day(&mut self, seconds: u64) -> Option<[u8; 8]> {
        if let Some((shown, clock)) = self.shown
            && shown == seconds
        {
            return Some(clock);
        }
        let [hour, minute, second] = (self.local)(i64::try_from(seconds).ok()?)?;
        let ([a, b], [c, d], [e, f]) = (two_digits(hour), two_digits(minute), two_digits(second));
        let clock = [a, b, b':', c, d, b':', e, f];
        self.shown = Some((seconds, clock));
        Some(clock)
    }

    /// Appends babeltrace2's warning about a loss in the stream that it calls `stream_name`,
    /// with its class's and its own id.
    pub fn loss(
        &mut self,
        out: &mut Vec<u8>,
        names: &TraceNames,
        clock: Option<&Clock>,
        loss: &Loss,
        stream: (&str, u64, u64),
    ) {
        let what = match loss.what {
            Lost::Events => "event",
            Lost::Packets => "packet",
        };
        match loss.count {
            None => out.extend_from_slice(
                format!("WARNING: Tracer may have discarded {what}s ").as_bytes(),
            ),
            Some(count) => {
                let plural = if count == 1 { "" } else { "s" };
                let text = format!("WARNING: Tracer discarded {count} {what}{plural} ");
                out.extend_from_slice(text.as_bytes());
            }
        }
        let times = loss.between.zip(clock).and_then(|((begin, end), clock)| {
            clock.ns_from_origin(begin).ok().zip(clock.ns_from_origin(end).ok())
        });
        match times {
            Some((begin, end)) => {
                out.extend_from_slice(b"between [");
                self.push_time(out, begin);
                out.extend_from_slice(b"] and [");
                self.push_time(out, end);
                out.push(b']');
            }
            None => out.extend_from_slice(b"(unknown time range)"),
        }
        let (name, class_id, id) = stream;
        let uuid = names.uuid.map_or_else(
            || "(no UUID)".to_owned(),
            |uuid| format!("(UUID: {})", crate::write::Uuid(&uuid)),
        );
        let text = format!(
            " in trace \"{}\" {uuid} within stream \"{name}\" (stream class ID: {class_id}, \
             stream ID: {id}).\n",
            names.name
        );
        out.extend_from_slice(text.as_bytes());
    }
}
