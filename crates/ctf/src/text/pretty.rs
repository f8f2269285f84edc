//! babeltrace2's text: time, difference to the event before, where it is from, and the fields;
//! and babeltrace2's warnings about what a tracer lost.

use super::fields::FieldWriter;
use super::format::{Head, Line, LineFormat, LossPlace, Shown, Stamp};
use super::number::{nine_digits, push_decimal, two_digits};
use crate::read::{
    DecodeError, EnvironmentValue, EventClass, Loss, Lost, Sink, StreamClass, StreamDecoder, Trace,
    Window,
};

const NS_PER_SECOND: u64 = 1_000_000_000;
/// Bytes of a difference below ten seconds, as of nearly all events: `0.000000000`.
const DIFFERENCE_BYTES: u8 = 11;

/// Writes lines as babeltrace2's `sink.text.pretty` does. `Local` gives the local time of day
/// (hours, minutes, seconds) at a time in seconds since 1970, or `None` if it cannot.
#[derive(Debug, Clone)]
pub struct Pretty<Local> {
    local: Local,
    /// A second, and how it is shown: most events share theirs with the one before.
    second: Option<(u64, [u8; 8])>,
}

impl<Local: Fn(i64) -> Option<[u8; 3]>> Pretty<Local> {
    /// The default format.
    pub const fn new(local: Local) -> Self {
        Self { local, second: None }
    }

    /// Appends an event's time and its difference to the one before.
    fn push_times(&mut self, out: &mut Vec<u8>, time: i64, previous: Option<i64>) -> Head {
        let difference = previous.map_or(0, |previous| time.wrapping_sub(previous) as u64);
        if let Some((second, clock)) = self.second
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
            return Head { difference_at: 23, difference_bytes: DIFFERENCE_BYTES, always: false };
        }
        let start = out.len();
        out.push(b'[');
        self.push_time(out, time, &mut Shown { negative: true, ..Shown::default() });
        out.extend_from_slice(b"] (+");
        let at = out.len();
        push_difference(out, Some(difference));
        let end = out.len();
        out.extend_from_slice(b") ");
        Head {
            difference_at: (at - start) as u8,
            difference_bytes: (end - at) as u8,
            always: time < 0 || previous.is_some_and(|previous| previous < 0),
        }
    }

    /// Appends a time of day, or for the first time before 1970, seconds: so does babeltrace2.
    fn push_time(&mut self, out: &mut Vec<u8>, time: i64, shown: &mut Shown) {
        let (seconds, fraction) =
            (time.unsigned_abs() / NS_PER_SECOND, time.unsigned_abs() % NS_PER_SECOND);
        let as_seconds = time < 0 && !std::mem::replace(&mut shown.negative, true);
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
        if let Some((shown, clock)) = self.second
            && shown == seconds
        {
            return Some(clock);
        }
        let [hour, minute, second] = (self.local)(i64::try_from(seconds).ok()?)?;
        let ([a, b], [c, d], [e, f]) = (two_digits(hour), two_digits(minute), two_digits(second));
        let clock = [a, b, b':', c, d, b':', e, f];
        self.second = Some((seconds, clock));
        Some(clock)
    }
}

/// Appends a difference; babeltrace2 takes one of -1 ns for none.
fn push_difference(out: &mut Vec<u8>, difference: Option<u64>) {
    match difference.filter(|&difference| difference != u64::MAX) {
        None => out.extend_from_slice(b"?.?????????"),
        Some(difference) => {
            push_decimal(out, difference / NS_PER_SECOND);
            out.push(b'.');
            out.extend_from_slice(&nine_digits(difference % NS_PER_SECOND));
        }
    }
}

impl<Local: Fn(i64) -> Option<[u8; 3]> + Clone + Send> LineFormat for Pretty<Local> {
    /// What stands before each event's name: `host:program:(pid) `, as far as known.
    fn stream_text(&self, trace: &Trace, _: &StreamClass) -> Vec<u8> {
        let pid = match trace.environment("vpid") {
            Some(EnvironmentValue::Number(pid)) => Some(format!("({pid})")),
            _ => None,
        };
        let host = trace.environment_text("hostname");
        let program = trace.environment_text("procname");
        let known: Vec<&str> = [host, program, pid.as_deref()].into_iter().flatten().collect();
        let mut text = known.join(":");
        if !known.is_empty() {
            text.push(' ');
        }
        text.into_bytes()
    }

    fn class_text(&self, _: &Trace, _: &StreamClass, event: &EventClass) -> Vec<u8> {
        format!("{}: ", event.name().unwrap_or("<unknown>")).into_bytes()
    }

    fn packet_sink(&self, out: &mut Vec<u8>) -> impl Sink {
        FieldWriter::new(out, false)
    }

    #[inline]
    fn event(
        &mut self,
        out: &mut Vec<u8>,
        line: Line<'_>,
        decoder: &mut StreamDecoder<'_>,
        window: Window<'_>,
    ) -> Result<Head, DecodeError> {
        let previous = line.previous.map(|stamp| stamp.time);
        let head =
            line.stamp.map_or(Head::default(), |stamp| self.push_times(out, stamp.time, previous));
        out.extend_from_slice(line.stream_text);
        out.extend_from_slice(line.class_text);
        out.extend_from_slice(line.packet_text);
        let mut sink = FieldWriter::new(out, !line.packet_text.is_empty());
        decoder.event_body(window, line.class, &mut sink)?;
        out.push(b'\n');
        Ok(head)
    }

    #[inline]
    fn relate(
        &mut self,
        out: &mut Vec<u8>,
        line: &[u8],
        head: Head,
        stamp: Option<Stamp>,
        shown: &mut Shown,
    ) {
        let Some(stamp) = stamp else {
            out.extend_from_slice(line);
            return;
        };
        // babeltrace2 takes a time of -1 ns for none.
        if let Some(last) = shown.last.filter(|last| last.time != -1) {
            shown.difference = Some(stamp.time.wrapping_sub(last.time) as u64);
        }
        shown.last = Some(stamp);
        let at = usize::from(head.difference_at);
        if head.difference_bytes == DIFFERENCE_BYTES
            && let Some(difference) = shown.difference
            && difference < 10 * NS_PER_SECOND
            && !head.always
        {
            let start = out.len() + at;
            out.extend_from_slice(line);
            if let Some(digits) = out.get_mut(start..start + usize::from(DIFFERENCE_BYTES)) {
                digits[0] = b'0' + (difference / NS_PER_SECOND) as u8;
                digits[2..].copy_from_slice(&nine_digits(difference % NS_PER_SECOND));
            }
            return;
        }
        if head.always {
            out.push(b'[');
            self.push_time(out, stamp.time, shown);
            out.extend_from_slice(b"] (+");
        } else {
            out.extend_from_slice(line.get(..at).unwrap_or_default());
        }
        push_difference(out, shown.difference);
        let rest = line.get(at + usize::from(head.difference_bytes)..);
        out.extend_from_slice(rest.unwrap_or_default());
    }

    fn loss(&mut self, out: &mut Vec<u8>, place: LossPlace<'_>, loss: &Loss, shown: &mut Shown) {
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
        let times = loss.between.zip(place.clock).and_then(|((begin, end), clock)| {
            clock.ns_from_origin(begin).ok().zip(clock.ns_from_origin(end).ok())
        });
        match times {
            Some((begin, end)) => {
                out.extend_from_slice(b"between [");
                self.push_time(out, begin, shown);
                out.extend_from_slice(b"] and [");
                self.push_time(out, end, shown);
                out.push(b']');
            }
            None => out.extend_from_slice(b"(unknown time range)"),
        }
        let uuid = place.uuid.map_or_else(
            || "(no UUID)".to_owned(),
            |uuid| format!("(UUID: {})", crate::write::Uuid(uuid)),
        );
        let text = format!(
            " in trace \"{}\" {uuid} within stream \"{}\" (stream class ID: {}, stream ID: {}).\n",
            place.trace_name, place.stream_name, place.class_id, place.stream_id
        );
        out.extend_from_slice(text.as_bytes());
    }
}
