//! Parses times of users in the forms of babeltrace2: `2026-11-21 09:30:00.5`, `2026-11-21`,
//! `09:30:00.5`, `09:30`, or seconds since 1970.

use anyhow::Context as _;
use trackway_reader::Range;
use trackway_render::{DateTime, unix_seconds_of, utc_date_time};

use crate::common::selection::SelectionArguments;
use crate::local_time;

const NS_PER_SECOND: i64 = 1_000_000_000;

/// A bound of a time range, as the user wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimeBound {
    /// A time in nanoseconds since 1970.
    Ns(i64),
    /// A date and time, with nanoseconds.
    Date(DateTime, i64),
    /// A time on the day of the first event (the date is not filled in), with nanoseconds.
    TimeOfDay(DateTime, i64),
}

/// Returns true if the requested range depends on the first event's day.
///
/// # Errors
///
/// If the options are not a valid range.
pub(crate) fn needs_first_event(arguments: &SelectionArguments) -> anyhow::Result<bool> {
    let (begin, end) = parse_bounds(arguments)?;
    Ok([begin, end].iter().any(|bound| matches!(bound, Some((_, TimeBound::TimeOfDay(..))))))
}

/// Returns the requested range, in UTC if `gmt` is true; `first` returns the time of the first
/// event.
pub(crate) fn resolve_range(
    arguments: &SelectionArguments,
    gmt: bool,
    first: impl Fn() -> Option<i64>,
) -> anyhow::Result<Range> {
    let (begin, end) = parse_bounds(arguments)?;
    let ns = |(text, bound): WrittenBound<'_>| {
        resolve_bound(bound, gmt, &first).with_context(|| format!("there is no time '{text}'"))
    };
    let range = Range { begin: begin.map(ns).transpose()?, end: end.map(ns).transpose()? };
    if let (Some(begin), Some(end)) = (range.begin, range.end) {
        anyhow::ensure!(begin <= end, "the time range ends before it begins");
    }
    Ok(range)
}

/// A bound with its original text.
type WrittenBound<'a> = (&'a str, TimeBound);

/// Returns the bounds of the requested range.
fn parse_bounds(
    arguments: &SelectionArguments,
) -> anyhow::Result<(Option<WrittenBound<'_>>, Option<WrittenBound<'_>>)> {
    let (begin, end) = match &arguments.timerange {
        Some(range) => split_range(range).with_context(|| format!("'{range}' is not BEGIN,END"))?,
        None => (arguments.begin.as_deref(), arguments.end.as_deref()),
    };
    let read = |text| {
        let bound = parse_bound(text).with_context(|| format!("'{text}' is not a time"))?;
        anyhow::Ok((text, bound))
    };
    Ok((begin.map(read).transpose()?, end.map(read).transpose()?))
}

/// Splits `BEGIN,END`, optionally in brackets.
fn split_range(range: &str) -> Option<(Option<&str>, Option<&str>)> {
    let range = range.strip_prefix('[').unwrap_or(range);
    let (begin, end) = range.split_once(',')?;
    let end = end.split(']').next().unwrap_or_default();
    (!begin.is_empty() && !end.is_empty()).then_some((Some(begin), Some(end)))
}

fn parse_bound(text: &str) -> Option<TimeBound> {
    if let Some((date, time)) = text.split_once(' ') {
        let (time, ns) = parse_time_of_day(time)?;
        let date = parse_date(date)?;
        let DateTime { hour, minute, second, .. } = time;
        return Some(TimeBound::Date(DateTime { hour, minute, second, ..date }, ns));
    }
    if let Some(date) = parse_date(text) {
        return Some(TimeBound::Date(date, 0));
    }
    if let Some((time, ns)) = parse_time_of_day(text) {
        return Some(TimeBound::TimeOfDay(time, ns));
    }
    let (sign, rest) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let (seconds, ns) = split_fraction(rest)?;
    let seconds = parse_digits(seconds, 1, 18)? as i64;
    // Clamps times beyond those that a trace can contain.
    let total = seconds.saturating_mul(NS_PER_SECOND).saturating_add(ns);
    Some(TimeBound::Ns(sign * total))
}

/// Parses a date: `2026-11-21`.
fn parse_date(text: &str) -> Option<DateTime> {
    let mut parts = text.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    Some(DateTime {
        year: parse_digits(year, 4, 4)?.try_into().ok()?,
        month: parse_two_digits(month, 1, 12)?,
        day: parse_two_digits(day, 1, 31)?,
        hour: 0,
        minute: 0,
        second: 0,
    })
}

/// Parses a time of day: `09:30`, `09:30:00` or `09:30:00.5`.
fn parse_time_of_day(text: &str) -> Option<(DateTime, i64)> {
    let mut parts = text.split(':');
    let (hour, minute) = (parts.next()?, parts.next()?);
    let (second, ns) = parts.next().map_or(Some(("00", 0)), split_fraction)?;
    if parts.next().is_some() {
        return None;
    }
    let time = DateTime {
        year: 1970,
        month: 1,
        day: 1,
        hour: parse_two_digits(hour, 0, 23)?,
        minute: parse_two_digits(minute, 0, 59)?,
        // A leap second has number 60.
        second: parse_two_digits(second, 0, 60)?,
    };
    Some((time, ns))
}

/// Parses two digits of a date or a time. (babeltrace2 accepts 25:00, and prints nothing.)
fn parse_two_digits(text: &str, first: u8, last: u8) -> Option<u8> {
    let number = u8::try_from(parse_digits(text, 2, 2)?).ok()?;
    (first..=last).contains(&number).then_some(number)
}

/// Splits off a fraction of up to nine digits, in nanoseconds.
fn split_fraction(text: &str) -> Option<(&str, i64)> {
    let Some((whole, fraction)) = text.split_once('.') else { return Some((text, 0)) };
    let ns = parse_digits(fraction, 1, 9)? * 10_u64.pow(9 - fraction.len() as u32);
    Some((whole, ns.try_into().ok()?))
}

/// Parses a number of `least` to `most` digits.
fn parse_digits(text: &str, least: usize, most: usize) -> Option<u64> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || !(least..=most).contains(&text.len()) {
        return None;
    }
    text.parse().ok()
}

/// Returns a bound in nanoseconds since 1970.
fn resolve_bound(bound: TimeBound, gmt: bool, first: impl Fn() -> Option<i64>) -> Option<i64> {
    let (date, ns) = match bound {
        TimeBound::Ns(ns) => return Some(ns),
        TimeBound::Date(date, ns) => (date, ns),
        TimeBound::TimeOfDay(time, ns) => {
            let seconds = first()?.div_euclid(NS_PER_SECOND);
            let day =
                if gmt { utc_date_time(seconds) } else { local_time::to_local_date_time(seconds) }?;
            let DateTime { hour, minute, second, .. } = time;
            (DateTime { hour, minute, second, ..day }, ns)
        }
    };
    let seconds =
        if gmt { Some(unix_seconds_of(&date)) } else { local_time::from_local_date_time(&date) }?;
    seconds.checked_mul(NS_PER_SECOND)?.checked_add(ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_babeltrace2_reads_them() {
        let day = DateTime { year: 2026, month: 11, day: 21, hour: 0, minute: 0, second: 0 };
        let time = DateTime { hour: 9, minute: 30, second: 5, ..day };
        assert_eq!(parse_bound("2026-11-21"), Some(TimeBound::Date(day, 0)));
        assert_eq!(parse_bound("2026-11-21 09:30:05.5"), Some(TimeBound::Date(time, 500_000_000)));
        let early = DateTime { year: 1970, month: 1, day: 1, hour: 9, minute: 30, second: 0 };
        assert_eq!(parse_bound("09:30"), Some(TimeBound::TimeOfDay(early, 0)));
        assert_eq!(parse_bound("-1.000000001"), Some(TimeBound::Ns(-1_000_000_001)));
        assert_eq!(parse_bound("12"), Some(TimeBound::Ns(12_000_000_000)));
        assert_eq!(parse_bound("9999999999"), Some(TimeBound::Ns(i64::MAX)));
        for wrong in [
            "",
            "9:30",
            "09:30:5",
            "1.",
            "1.1234567890",
            "26-11-21",
            "x",
            "1e3",
            "25:00",
            "09:60",
            "2026-13-01",
        ] {
            assert_eq!(parse_bound(wrong), None, "{wrong}");
        }
        assert_eq!(split_range("[1,2]"), Some((Some("1"), Some("2"))));
        assert_eq!(split_range("1,2"), Some((Some("1"), Some("2"))));
        assert_eq!(split_range("1,"), None);
        let resolved = |text: &str| {
            resolve_bound(parse_bound(text)?, true, || Some(1_795_228_670 * NS_PER_SECOND))
        };
        assert_eq!(resolved("2026-11-21 02:37:50"), Some(1_795_228_670 * NS_PER_SECOND));
        assert_eq!(resolved("02:37:50.1"), Some(1_795_228_670_100_000_000));
    }
}
