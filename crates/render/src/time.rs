//! Times in babeltrace2's form, and the difference between an event and its predecessor.
//!
//! A difference has a sign: `+0.000001000`, or `-0.000001000` if time goes backward, as in a stream
//! whose clock is damaged. There babeltrace2 stops, or prints the difference modulo 2^64.

use crate::format::{DeltaSlot, Difference, LastShown, Stamp};
use crate::number::{nine_digits, push_decimal, push_short_text, two_digits};
use crate::options::PrettyOptions;

const NS_PER_SECOND: u64 = 1_000_000_000;
const SECONDS_PER_DAY: i64 = 86_400;
/// Length of a difference below ten seconds, the common case: `+0.000000000`.
const DIFFERENCE_BYTES: usize = 12;
/// Range of the fraction's digits in a difference of [`DIFFERENCE_BYTES`].
const FRACTION: std::ops::Range<usize> = 3..DIFFERENCE_BYTES;

/// A date and a time of day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct DateTime {
    pub year: i64,
    /// Month, 1 to 12.
    pub month: u8,
    /// Day of the month, 1 to 31.
    pub day: u8,
    pub hour: u8,
    pub minute: u8,
    /// Second, up to 60 in calendars with leap seconds.
    pub second: u8,
}

/// Returns the date and time of day in UTC at `seconds` since 1970; never `None`. (The proleptic
/// Gregorian calendar, by H. Hinnant's "chrono-compatible low-level date algorithms": years begin
/// in March.)
pub fn utc_date_time(seconds: i64) -> Option<DateTime> {
    let days = seconds.div_euclid(SECONDS_PER_DAY) + 719_468;
    let rest = seconds.rem_euclid(SECONDS_PER_DAY);
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    Some(DateTime {
        year: year_of_era + era * 400 + i64::from(month <= 2),
        month: month as u8,
        day: (day_of_year - (153 * shifted + 2) / 5 + 1) as u8,
        hour: (rest / 3600) as u8,
        minute: (rest / 60 % 60) as u8,
        second: (rest % 60) as u8,
    })
}

/// Returns the seconds since 1970 at a date and time of day in UTC: the inverse of
/// [`utc_date_time`]. Parts beyond their ranges carry over: January 32 is February 1.
pub fn unix_seconds_of(time: &DateTime) -> i64 {
    let (month, day) = (i64::from(time.month), i64::from(time.day));
    let year = time.year + (month - 1).div_euclid(12);
    let month = (month - 1).rem_euclid(12) + 1;
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let shifted = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * shifted + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = era * 146_097 + day_of_era - 719_468;
    let (hour, minute) = (i64::from(time.hour), i64::from(time.minute));
    days * SECONDS_PER_DAY + hour * 3600 + minute * 60 + i64::from(time.second)
}

/// Converts seconds since 1970 to a date and time of day, or returns `None` if it cannot:
/// [`utc_date_time`], or a function for local time.
pub trait Calendar: Fn(i64) -> Option<DateTime> + Clone + Send + Sync {}

impl<C: Fn(i64) -> Option<DateTime> + Clone + Send + Sync> Calendar for C {}

/// Writes times.
#[derive(Debug, Clone)]
pub(crate) struct TimeWriter<C> {
    calendar: C,
    options: PrettyOptions,
    /// Texts before the time, between the time and the difference, and after the difference.
    around: [&'static str; 3],
    /// The text that all times of one second share: most events have the second of the event
    /// before.
    second: Second,
}

/// The cached text of a second.
#[derive(Debug, Clone, Default)]
struct Second {
    /// Number of the second since the clock's origin; `u64::MAX` if no second is cached.
    number: u64,
    /// Text from the time to the difference, with zeros in place of the variable digits.
    text: Vec<u8>,
    fraction_at: usize,
    delta_at: usize,
}

impl<C: Calendar> TimeWriter<C> {
    pub(crate) fn new(options: &PrettyOptions, calendar: C) -> Self {
        let around = match (options.names.header, options.no_delta) {
            (false, false) => ["[", "] (", ") "],
            (false, true) => ["[", "] ", ""],
            (true, false) => ["timestamp = ", ", delta = ", ""],
            (true, true) => ["timestamp = ", "", ""],
        };
        Self {
            calendar,
            options: *options,
            around,
            second: Second { number: u64::MAX, ..Second::default() },
        }
    }

    /// Appends an event's time and its difference to the previous event.
    #[inline]
    pub(crate) fn push_event_time(
        &mut self,
        out: &mut Vec<u8>,
        stamp: Stamp,
        before: Option<Stamp>,
    ) -> DeltaSlot {
        // A negative difference wraps to far more than a second, so that the fast path does not
        // write it.
        let difference = before.map_or(0, |before| match before.time {
            ..0 => u64::MAX,
            _ => stamp.time.wrapping_sub(before.time) as u64,
        });
        let second = &self.second;
        if second.number == stamp.time as u64 / NS_PER_SECOND
            && difference < NS_PER_SECOND
            && stamp.time >= 0
        {
            // The common case: copying the cached text and setting its digits is much faster.
            let start = out.len();
            push_short_text(out, &second.text);
            let text = out.get_mut(start..).unwrap_or_default();
            let fraction = second.fraction_at..second.fraction_at + 9;
            if let Some(digits) = text.get_mut(fraction) {
                digits.copy_from_slice(&nine_digits(stamp.time as u64 % NS_PER_SECOND));
            }
            let delta_at = second.delta_at;
            if self.options.no_delta {
                return DeltaSlot { at: delta_at as u8, ..DeltaSlot::default() };
            }
            let digits = delta_at + FRACTION.start..delta_at + FRACTION.end;
            if let Some(digits) = text.get_mut(digits) {
                digits.copy_from_slice(&nine_digits(difference));
            }
            return DeltaSlot { at: delta_at as u8, bytes: DIFFERENCE_BYTES as u8, always: false };
        }
        self.push_uncached(out, stamp, before)
    }

    #[cold]
    fn push_uncached(
        &mut self,
        out: &mut Vec<u8>,
        stamp: Stamp,
        before: Option<Stamp>,
    ) -> DeltaSlot {
        let mut shown = LastShown { last: before, negative: true, ..LastShown::default() };
        if before.is_none() {
            shown.difference = Some(Difference::default());
        }
        let mut head = self.push_whole(out, stamp, &mut shown);
        let is_negative = !self.options.clock_cycles && stamp.time < 0;
        let follows_none = before.is_some_and(|before| self.number(before) == u64::MAX);
        head.always = is_negative || follows_none;
        if stamp.time >= 0 && !self.options.clock_cycles {
            self.cache_second(stamp.time as u64 / NS_PER_SECOND);
        }
        head
    }

    /// Returns the number whose differences are shown.
    fn number(&self, stamp: Stamp) -> u64 {
        if self.options.clock_cycles { stamp.clock } else { stamp.time as u64 }
    }

    /// Appends the head of a line, for an event that follows the state `shown`.
    fn push_whole(&mut self, out: &mut Vec<u8>, stamp: Stamp, shown: &mut LastShown) -> DeltaSlot {
        let start = out.len();
        self.note(stamp, shown);
        out.extend_from_slice(self.around[0].as_bytes());
        if self.options.clock_cycles {
            out.extend_from_slice(format!("{:020}", stamp.clock).as_bytes());
        } else {
            self.push_time(out, stamp.time, shown);
        }
        out.extend_from_slice(self.around[1].as_bytes());
        let at = out.len();
        if !self.options.no_delta {
            self.push_difference(out, shown.difference);
        }
        let end = out.len();
        out.extend_from_slice(self.around[2].as_bytes());
        let delta_at = (at - start) as u8;
        DeltaSlot { at: delta_at, bytes: (end - at) as u8, always: false }
    }

    /// Records the event that is shown next. Like babeltrace2, treats a time of -1 as no time.
    fn note(&self, stamp: Stamp, shown: &mut LastShown) {
        if let Some(last) = shown.last.filter(|&last| self.number(last) != u64::MAX) {
            shown.difference = Some(self.difference(stamp, last));
        }
        shown.last = Some(stamp);
    }

    /// Returns the difference between an event and its predecessor. Cycles of different clocks may
    /// go backward while time does not; then the difference is babeltrace2's, modulo 2^64.
    fn difference(&self, stamp: Stamp, last: Stamp) -> Difference {
        let (number, before) = (self.number(stamp), self.number(last));
        let is_negative = stamp.time < last.time && (!self.options.clock_cycles || number < before);
        let magnitude =
            if is_negative { before.wrapping_sub(number) } else { number.wrapping_sub(before) };
        Difference { is_negative, magnitude }
    }

    /// Appends a difference with its sign. Like babeltrace2, treats 2^64 - 1 as no difference.
    fn push_difference(&self, out: &mut Vec<u8>, difference: Option<Difference>) {
        let is_negative = difference.is_some_and(|difference| difference.is_negative);
        out.push(if is_negative { b'-' } else { b'+' });
        let magnitude = difference.map(|difference| difference.magnitude);
        let magnitude = magnitude.filter(|&magnitude| is_negative || magnitude != u64::MAX);
        match (magnitude, self.options.clock_cycles) {
            (None, true) => out.extend_from_slice(b"????????????"),
            (Some(cycles), true) => out.extend_from_slice(format!("{cycles:012}").as_bytes()),
            (None, false) => out.extend_from_slice(b"?.?????????"),
            (Some(ns), false) => {
                push_decimal(out, ns / NS_PER_SECOND);
                out.push(b'.');
                out.extend_from_slice(&nine_digits(ns % NS_PER_SECOND));
            }
        }
    }

    /// Appends a time. Like babeltrace2, shows the first time before the clock's origin in seconds.
    pub(crate) fn push_time(&self, out: &mut Vec<u8>, time: i64, shown: &mut LastShown) {
        let (seconds, fraction) =
            (time.unsigned_abs() / NS_PER_SECOND, time.unsigned_abs() % NS_PER_SECOND);
        self.push_second(out, seconds, time < 0, shown);
        out.push(b'.');
        out.extend_from_slice(&nine_digits(fraction));
    }

    fn push_second(
        &self,
        out: &mut Vec<u8>,
        seconds: u64,
        is_negative: bool,
        shown: &mut LastShown,
    ) {
        let is_calendar = !self.options.clock_seconds;
        let is_first = is_calendar && is_negative && !std::mem::replace(&mut shown.negative, true);
        let time = i64::try_from(seconds).ok().filter(|_| is_calendar && !is_first);
        let Some(time) = time.and_then(|seconds| (self.calendar)(seconds)) else {
            if is_negative {
                out.push(b'-');
            }
            push_decimal(out, seconds);
            return;
        };
        if self.options.clock_date {
            let DateTime { year, month, day, .. } = time;
            out.extend_from_slice(format!("{year}-{month:02}-{day:02} ").as_bytes());
        }
        let ([a, b], [c, d]) = (two_digits(time.hour), two_digits(time.minute));
        let [e, f] = two_digits(time.second);
        out.extend_from_slice(&[a, b, b':', c, d, b':', e, f]);
    }

    /// Caches the text of a second.
    fn cache_second(&mut self, number: u64) {
        let mut text = std::mem::take(&mut self.second.text);
        text.clear();
        text.extend_from_slice(self.around[0].as_bytes());
        self.push_second(&mut text, number, false, &mut LastShown::default());
        text.push(b'.');
        let fraction_at = text.len();
        text.extend_from_slice(b"000000000");
        text.extend_from_slice(self.around[1].as_bytes());
        let delta_at = text.len();
        if !self.options.no_delta {
            text.extend_from_slice(b"+0.000000000");
        }
        text.extend_from_slice(self.around[2].as_bytes());
        self.second = Second { number, text, fraction_at, delta_at };
    }

    /// Appends a line begun by [`TimeWriter::push_event_time`], corrected for the events in
    /// `shown`.
    #[inline]
    pub(crate) fn patch_delta(
        &mut self,
        out: &mut Vec<u8>,
        line: &[u8],
        head: DeltaSlot,
        stamp: Stamp,
        shown: &mut LastShown,
    ) {
        let at = usize::from(head.at);
        let bytes = usize::from(head.bytes);
        if head.always {
            self.push_whole(out, stamp, shown);
            let rest = line.get(at + bytes + self.around[2].len()..);
            out.extend_from_slice(rest.unwrap_or_default());
            return;
        }
        self.note(stamp, shown);
        let difference = shown.difference;
        if bytes == DIFFERENCE_BYTES
            && let Some(Difference { is_negative: false, magnitude: ns }) = difference
            && ns < 10 * NS_PER_SECOND
        {
            let start = out.len() + at;
            out.extend_from_slice(line);
            if let Some(text) = out.get_mut(start..start + DIFFERENCE_BYTES) {
                text[0] = b'+';
                text[1] = b'0' + (ns / NS_PER_SECOND) as u8;
                text[FRACTION].copy_from_slice(&nine_digits(ns % NS_PER_SECOND));
            }
            return;
        }
        out.extend_from_slice(line.get(..at).unwrap_or_default());
        if bytes > 0 {
            self.push_difference(out, difference);
        }
        out.extend_from_slice(line.get(at + bytes..).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the head of an event's line after the event `before`; in cycles if `cycles`.
    fn format_head(cycles: bool, before: Stamp, stamp: Stamp) -> String {
        let options = PrettyOptions { clock_cycles: cycles, ..PrettyOptions::default() };
        let mut writer = TimeWriter::new(&options, utc_date_time);
        let mut line = Vec::new();
        // The line is made without a predecessor, and then patched to follow `before`.
        let head = writer.push_event_time(&mut line, stamp, None);
        let mut shown = LastShown { last: Some(before), negative: true, ..LastShown::default() };
        let mut out = Vec::new();
        writer.patch_delta(&mut out, &line, head, stamp, &mut shown);
        let mut pushed = Vec::new();
        writer.push_event_time(&mut pushed, stamp, Some(before));
        assert_eq!(out, pushed);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn a_difference_is_negative_where_time_goes_backward() {
        let at = |time, clock| Stamp { time, clock };
        for (before, after, shown) in [
            (5, 7, "+0.000000002"),
            (7, 5, "-0.000000002"),
            (1_000_000_000, 999_999_999, "-0.000000001"),
            (12_000_000_007, 5, "-12.000000002"),
            (i64::MAX, 0, "-9223372036.854775807"),
            (3, -4, "-0.000000007"),
            (-4, 3, "+0.000000007"),
        ] {
            let head = format_head(false, at(before, 0), at(after, 0));
            assert!(head.contains(&format!("] ({shown}) ")), "{before}, {after}: {head}");
        }
        let cycles = |before, after| format_head(true, before, after);
        assert_eq!(cycles(at(7, 70), at(5, 50)), "[00000000000000000050] (-000000000020) ");
        assert_eq!(cycles(at(5, 50), at(7, 70)), "[00000000000000000070] (+000000000020) ");
        // The cycles are of another clock; time does not go backward.
        let other = cycles(at(5, 50), at(7, 40));
        assert_eq!(other, format!("[00000000000000000040] (+{}) ", u64::MAX - 9));
    }

    #[test]
    fn days_are_counted_right() {
        let parts = |seconds| {
            let time = utc_date_time(seconds).expect("a date");
            assert_eq!(unix_seconds_of(&time), seconds);
            (time.year, time.month, time.day, time.hour, time.minute, time.second)
        };
        assert_eq!(parts(0), (1970, 1, 1, 0, 0, 0));
        assert_eq!(parts(951_782_399), (2000, 2, 28, 23, 59, 59));
        assert_eq!(parts(951_782_400), (2000, 2, 29, 0, 0, 0));
        assert_eq!(parts(4_107_542_400), (2100, 3, 1, 0, 0, 0));
        assert_eq!(parts(-1), (1969, 12, 31, 23, 59, 59));
        assert_eq!(parts(1_795_228_670), (2026, 11, 21, 2, 37, 50));
    }
}
