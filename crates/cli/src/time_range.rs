//! Times that users write, as babeltrace2 reads them: `2026-11-21 09:30:00.5`, `2026-11-21`,
//! `09:30:00.5`, `09:30`, or seconds since 1970.

use anyhow::Context as _;
use trackway_reader::Range;
use trackway_render::{DateTime, seconds_of, utc};

use crate::common::selection::SelectionArguments;
use crate::local_time;

const NS_PER_SECOND: i64 = 1_000_000_000;

/// A time that a user wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    /// Nanoseconds since 1970.
    Ns(i64),
    /// A date, and nanoseconds.
    Date(DateTime, i64),
    /// A time of the first event's day (whose date is not filled in), and nanoseconds.
    TimeOfDay(DateTime, i64),
}

/// Returns true if the requested range depends on the first event's day.
///
/// # Errors
///
/// If the request is no range.
pub(crate) fn needs_first(arguments: &SelectionArguments) -> anyhow::Result<bool> {
    let (begin, end) = bounds(arguments)?;
    Ok([begin, end].iter().any(|bound| matches!(bound, Some((_, Bound::TimeOfDay(..))))))
}

/// The requested range, in UTC if `gmt`; `first` gives the time of the first event.
pub(crate) fn of(
    arguments: &SelectionArguments,
    gmt: bool,
    first: impl Fn() -> Option<i64>,
) -> anyhow::Result<Range> {
    let (begin, end) = bounds(arguments)?;
    let ns = |(text, bound): Written<'_>| {
        resolve(bound, gmt, &first).with_context(|| format!("there is no time '{text}'"))
    };
    let range = Range { begin: begin.map(ns).transpose()?, end: end.map(ns).transpose()? };
    if let (Some(begin), Some(end)) = (range.begin, range.end) {
        anyhow::ensure!(begin <= end, "the time range ends before it begins");
    }
    Ok(range)
}

/// A bound, and how it was written.
type Written<'a> = (&'a str, Bound);

/// Returns the bounds of the requested range.
fn bounds(
    arguments: &SelectionArguments,
) -> anyhow::Result<(Option<Written<'_>>, Option<Written<'_>>)> {
    let (begin, end) = match &arguments.timerange {
        Some(range) => split(range).with_context(|| format!("'{range}' is not BEGIN,END"))?,
        None => (arguments.begin.as_deref(), arguments.end.as_deref()),
    };
    let read = |text| {
        let bound = parse(text).with_context(|| format!("'{text}' is not a time"))?;
        anyhow::Ok((text, bound))
    };
    Ok((begin.map(read).transpose()?, end.map(read).transpose()?))
}

/// `BEGIN,END`, perhaps in brackets.
fn split(range: &str) -> Option<(Option<&str>, Option<&str>)> {
    let range = range.strip_prefix('[').unwrap_or(range);
    let (begin, end) = range.split_once(',')?;
    let end = end.split(']').next().unwrap_or_default();
    (!begin.is_empty() && !end.is_empty()).then_some((Some(begin), Some(end)))
}

fn parse(text: &str) -> Option<Bound> {
    if let Some((date, time)) = text.split_once(' ') {
        let (time, ns) = time_of_day(time)?;
        let date = date_of(date)?;
        let DateTime { hour, minute, second, .. } = time;
        return Some(Bound::Date(DateTime { hour, minute, second, ..date }, ns));
    }
    if let Some(date) = date_of(text) {
        return Some(Bound::Date(date, 0));
    }
    if let Some((time, ns)) = time_of_day(text) {
        return Some(Bound::TimeOfDay(time, ns));
    }
    let (sign, rest) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let (seconds, ns) = with_fraction(rest)?;
    let seconds = digits(seconds, 1, 18)? as i64;
    // What lies beyond all times that a trace can hold is as good as the last of them.
    let total = seconds.saturating_mul(NS_PER_SECOND).saturating_add(ns);
    Some(Bound::Ns(sign * total))
}

/// `2026-11-21`
fn date_of(text: &str) -> Option<DateTime> {
    let mut parts = text.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    Some(DateTime {
        year: digits(year, 4, 4)?.try_into().ok()?,
        month: number_between(month, 1, 12)?,
        day: number_between(day, 1, 31)?,
        hour: 0,
        minute: 0,
        second: 0,
    })
}

/// `09:30`, `09:30:00` or `09:30:00.5`
fn time_of_day(text: &str) -> Option<(DateTime, i64)> {
    let mut parts = text.split(':');
    let (hour, minute) = (parts.next()?, parts.next()?);
    let (second, ns) = parts.next().map_or(Some(("00", 0)), with_fraction)?;
    if parts.next().is_some() {
        return None;
    }
    let time = DateTime {
        year: 1970,
        month: 1,
        day: 1,
        hour: number_between(hour, 0, 23)?,
        minute: number_between(minute, 0, 59)?,
        // A leap second is one.
        second: number_between(second, 0, 60)?,
    };
    Some((time, ns))
}

/// Two digits of a part of a date or a time. (babeltrace2 takes 25:00, and prints nothing.)
fn number_between(text: &str, first: u8, last: u8) -> Option<u8> {
    let number = u8::try_from(digits(text, 2, 2)?).ok()?;
    (first..=last).contains(&number).then_some(number)
}

/// Splits off a fraction of up to nine digits, in nanoseconds.
fn with_fraction(text: &str) -> Option<(&str, i64)> {
    let Some((whole, fraction)) = text.split_once('.') else { return Some((text, 0)) };
    let ns = digits(fraction, 1, 9)? * 10_u64.pow(9 - fraction.len() as u32);
    Some((whole, ns.try_into().ok()?))
}

/// A number of `least` to `most` digits.
fn digits(text: &str, least: usize, most: usize) -> Option<u64> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || !(least..=most).contains(&text.len()) {
        return None;
    }
    text.parse().ok()
}

/// Nanoseconds since 1970.
fn resolve(bound: Bound, gmt: bool, first: impl Fn() -> Option<i64>) -> Option<i64> {
    let (date, ns) = match bound {
        Bound::Ns(ns) => return Some(ns),
        Bound::Date(date, ns) => (date, ns),
        Bound::TimeOfDay(time, ns) => {
            let seconds = first()?.div_euclid(NS_PER_SECOND);
            let day = if gmt { utc(seconds) } else { local_time::local(seconds) }?;
            let DateTime { hour, minute, second, .. } = time;
            (DateTime { hour, minute, second, ..day }, ns)
        }
    };
    let seconds = if gmt { Some(seconds_of(&date)) } else { local_time::seconds_of_local(&date) }?;
    seconds.checked_mul(NS_PER_SECOND)?.checked_add(ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_babeltrace2_reads_them() {
        let day = DateTime { year: 2026, month: 11, day: 21, hour: 0, minute: 0, second: 0 };
        let time = DateTime { hour: 9, minute: 30, second: 5, ..day };
        assert_eq!(parse("2026-11-21"), Some(Bound::Date(day, 0)));
        assert_eq!(parse("2026-11-21 09:30:05.5"), Some(Bound::Date(time, 500_000_000)));
        let early = DateTime { year: 1970, month: 1, day: 1, hour: 9, minute: 30, second: 0 };
        assert_eq!(parse("09:30"), Some(Bound::TimeOfDay(early, 0)));
        assert_eq!(parse("-1.000000001"), Some(Bound::Ns(-1_000_000_001)));
        assert_eq!(parse("12"), Some(Bound::Ns(12_000_000_000)));
        assert_eq!(parse("9999999999"), Some(Bound::Ns(i64::MAX)));
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
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        assert_eq!(split("[1,2]"), Some((Some("1"), Some("2"))));
        assert_eq!(split("1,2"), Some((Some("1"), Some("2"))));
        assert_eq!(split("1,"), None);
        let resolved =
            |text: &str| resolve(parse(text)?, true, || Some(1_795_228_670 * NS_PER_SECOND));
        assert_eq!(resolved("2026-11-21 02:37:50"), Some(1_795_228_670 * NS_PER_SECOND));
        assert_eq!(resolved("02:37:50.1"), Some(1_795_228_670_100_000_000));
    }
}
