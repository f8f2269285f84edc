//! Durations as users write them: `10ms`, `1.5s`, `2m`, `1h`.

use core::time::Duration;

/// The error that a text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DurationError;

impl core::fmt::Display for DurationError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("a time is a number with us, ms, s, m or h, such as 10ms, 1.5s or 2m")
    }
}

impl core::error::Error for DurationError {}

/// Units, with their lengths in ns. A unit that ends like another unit precedes it.
const UNITS: [(&str, u64); 6] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Parses a duration: a number, with or without decimals, and a unit. A number without a unit is an
/// error, because other tools interpret it as microseconds or seconds.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let text = text.trim();
    let unit = UNITS.iter().find_map(|(unit, ns)| Some((text.strip_suffix(unit)?, *ns)));
    let (number, unit_ns) = unit.ok_or(DurationError)?;
    let number = number.trim_end();
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    let are_digits =
        |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    if !are_digits(whole) || !are_digits(decimals) || decimals.len() > 9 {
        return Err(DurationError);
    }
    let whole: u64 = whole.parse().map_err(|_| DurationError)?;
    let part: u64 = decimals.parse().map_err(|_| DurationError)?;
    let scale = 10_u64.pow(decimals.len() as u32);
    let part_ns = u128::from(part) * u128::from(unit_ns) / u128::from(scale);
    let ns = u128::from(whole) * u128::from(unit_ns) + part_ns;
    u64::try_from(ns).map(Duration::from_nanos).map_err(|_| DurationError)
}

/// A duration in the form that [`parse_duration`] accepts, in the largest unit that leaves no
/// remainder.
#[derive(Debug, Clone, Copy)]
pub struct Time(pub Duration);

impl core::fmt::Display for Time {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let ns = self.0.as_nanos();
        let (unit, unit_ns) = UNITS
            .iter()
            .rev()
            .find(|(_, unit_ns)| ns != 0 && ns.is_multiple_of(u128::from(*unit_ns)))
            .unwrap_or(&("s", 1_000_000_000));
        write!(formatter, "{}{unit}", ns / u128::from(*unit_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_are_read() {
        for (text, ns) in [
            ("10ms", 10_000_000),
            ("1.5s", 1_500_000_000),
            ("0.25 s", 250_000_000),
            ("3m", 180_000_000_000),
            ("1h", 3_600_000_000_000),
            ("7us", 7_000),
            ("0s", 0),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_nanos(ns)), "{text}");
        }
        for text in [
            "",
            "s",
            "2",
            "10000",
            "-1s",
            "1.s",
            ".5s",
            "1d",
            "1.0000000001s",
            "99999999999h",
            "1 2s",
        ] {
            assert_eq!(parse_duration(text), Err(DurationError), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(ns: u64) {
            let ns = ns >> (ns % 64);
            let time = Duration::from_nanos(ns);
            prop_assert_eq!(parse_duration(&Time(time).to_string()), Ok(time));
        }

        #[test]
        fn nothing_panics(text in ".{0,20}") {
            let _ = parse_duration(&text);
        }
    }
}
