//! Numbers of events, in the order of the tracer's own output, and the check that all are present.

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::results::Account;

/// Numbers of one thread's events that were found so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Numbers {
    events: u64,
    first: Option<u64>,
    last: Option<u64>,
    is_disordered: bool,
}

impl Numbers {
    /// Adds the next number.
    pub(crate) fn add(&mut self, number: u64) {
        self.events += 1;
        self.first = self.first.or(Some(number));
        self.is_disordered |= self.last.is_some_and(|last| last >= number);
        self.last = Some(number);
    }

    /// Returns the number of events.
    pub(crate) const fn events(&self) -> u64 {
        self.events
    }

    /// Returns the number of events missing after the first recorded one.
    pub(crate) fn missing(&self, emitted: u64) -> u64 {
        emitted.saturating_sub(self.first.unwrap_or(0)).saturating_sub(self.events)
    }

    /// Computes the account of the events, given the tracer's own count of missing events.
    ///
    /// # Errors
    ///
    /// If numbers are out of order, larger than the emitted ones, or missing without a reported
    /// loss.
    pub(crate) fn account(
        &self,
        tracer: &str,
        emitted: u64,
        lost: u64,
        overwritten: u64,
    ) -> Result<Account> {
        let wrong = |message: String| Err(Error::output(tracer, message));
        if self.is_disordered {
            return wrong("its events are not in the order of their numbers".to_owned());
        }
        if let Some(last) = self.last.filter(|&last| last >= emitted) {
            return wrong(format!("it has event {last} of {emitted}"));
        }
        let missing = self.missing(emitted);
        if missing > lost {
            return wrong(format!(
                "{missing} events are not there, and it says that {lost} are lost"
            ));
        }
        Ok(Account { emitted, recorded: self.events, lost, overwritten, record_bytes: 0 })
    }
}

/// Returns the number after `before` in a line: decimal, or hexadecimal after 0x.
pub(crate) fn number_after(line: &str, before: &str) -> Option<u64> {
    let rest = line.get(line.find(before)? + before.len()..)?;
    let (digits, radix) = rest.strip_prefix("0x").map_or((rest, 10), |hex| (hex, 16));
    let end = digits.find(|one: char| !one.is_digit(radix)).unwrap_or(digits.len());
    u64::from_str_radix(&digits[..end], radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_numbers(of: impl IntoIterator<Item = u64>) -> Numbers {
        let mut numbers = Numbers::default();
        of.into_iter().for_each(|number| numbers.add(number));
        numbers
    }

    #[test]
    fn all_numbers_must_be_there_or_accounted_for() {
        let whole = make_numbers(0..10).account("it", 10, 0, 0).expect("all");
        assert_eq!((whole.recorded, whole.is_complete()), (10, true));
        let newest = make_numbers(6..10).account("it", 10, 0, 6).expect("the newest");
        assert!(newest.is_complete());
        let lossy = make_numbers([0, 1, 5, 9]).account("it", 10, 6, 0).expect("what is left");
        assert!(lossy.is_complete());
        for (wrong, lost) in
            [(make_numbers([0, 1, 5, 9]), 5), (make_numbers(0..9), 0), (make_numbers([1, 0]), 0)]
        {
            assert!(wrong.account("it", 10, lost, 0).is_err(), "{wrong:?}");
        }
        assert!(make_numbers(0..11).account("it", 10, 0, 0).is_err());
        // The engine judges an account without recorded events.
        assert_eq!(make_numbers([]).account("it", 10, 10, 0).expect("none").recorded, 0);
    }

    #[test]
    fn numbers_are_found_in_lines() {
        let line = " usdt-1 [000] DBZff 59361.407989: number: (0x5634adfd1720) value=3304 x";
        assert_eq!(number_after(line, " value="), Some(3304));
        assert_eq!(number_after("lab_value(0x445bd);", "lab_value("), Some(0x445bd));
        assert_eq!(number_after("value=", "value="), None);
        assert_eq!(number_after("none", "value="), None);
    }
}
