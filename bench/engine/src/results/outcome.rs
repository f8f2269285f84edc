//! Parts common to all results: accounts of events, goals, notes.

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::stats::Ratio;

/// The account of events, from the tracer's own output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Events that the workload emitted.
    pub emitted: u64,
    /// Events in the trace.
    pub recorded: u64,
    /// Events that the tracer counted as discarded.
    pub lost: u64,
    /// Events that newer ones overwrote.
    pub overwritten: u64,
    /// Bytes of the recorded events, without the packets' headers; 0 if no trace was found.
    pub record_bytes: u64,
}

impl Account {
    /// Returns true if every event is accounted for.
    pub const fn is_complete(&self) -> bool {
        self.recorded + self.lost + self.overwritten == self.emitted
    }

    /// Returns the bytes of one recorded event; `None` if they are unknown.
    pub fn bytes_per_event(&self) -> Option<f64> {
        let known = self.recorded > 0 && self.record_bytes > 0;
        known.then(|| self.record_bytes as f64 / self.recorded as f64)
    }

    /// Returns the bytes of `events` recorded events.
    pub fn bytes_of(&self, events: u64) -> u64 {
        let bytes = u128::from(self.record_bytes) * u128::from(events);
        u64::try_from(bytes / u128::from(self.recorded.max(1))).unwrap_or(u64::MAX)
    }

    /// Adds the account of another run.
    pub const fn add(&mut self, other: &Self) {
        self.emitted += other.emitted;
        self.recorded += other.recorded;
        self.lost += other.lost;
        self.overwritten += other.overwritten;
        self.record_bytes += other.record_bytes;
    }

    /// Returns the account in words.
    pub fn words(&self) -> String {
        format!(
            "{} emitted, {} recorded, {} lost, {} overwritten",
            self.emitted, self.recorded, self.lost, self.overwritten
        )
    }
}

/// A goal of Trackway.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bar {
    /// The suite that shows the goal.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub suite: String,
    /// The requirement, in words, with the bound.
    pub what: String,
    /// The figure, in words, with its interval.
    pub measured: String,
    /// The figure as a number, if it comes from rounds and is not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figure: Option<Ratio>,
    /// Number of rounds behind the figure.
    #[serde(default)]
    pub rounds: usize,
    /// Verdict on the bar: whether the measured figure meets it.
    pub verdict: Verdict,
    /// The reason for a withdrawn verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Bar {
    /// Makes a goal without a figure.
    pub fn not_measured(what: &str) -> Self {
        Self {
            suite: String::new(),
            what: what.to_owned(),
            measured: "not measured".to_owned(),
            figure: None,
            rounds: 0,
            verdict: Verdict::Unknown,
            reason: None,
        }
    }

    /// Withdraws the verdict, and stores the reason.
    pub fn withdraw_verdict(&mut self, reason: String) {
        if matches!(self.verdict, Verdict::Holds | Verdict::Misses) {
            self.verdict = Verdict::Undecided;
            self.reason = Some(reason);
        }
    }

    /// Returns the verdict in words; empty without a verdict. The figure of one round decides
    /// nothing.
    pub fn standing(&self) -> String {
        match (self.verdict, &self.reason) {
            (Verdict::Holds, _) => "holds".to_owned(),
            (Verdict::Misses, _) => "misses".to_owned(),
            (Verdict::Undecided, Some(reason)) => format!("not decided: {reason}"),
            (Verdict::Undecided, None) if self.rounds > 1 => {
                format!("not decided ({} rounds)", self.rounds)
            }
            (Verdict::Undecided | Verdict::Unknown, _) => String::new(),
        }
    }
}

/// The verdict on a goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The goal is certainly reached.
    Holds,
    /// The goal is certainly missed.
    Misses,
    /// The interval of the figure contains the bound, or there are too few rounds, or the verdict
    /// was withdrawn.
    Undecided,
    /// A row that the goal needs was not measured, or the goal has no bound.
    Unknown,
}

/// A note on a tracer or part that was skipped or failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The tracer or part.
    pub about: String,
    /// The note, in words: `skipped, because …`.
    pub text: String,
    /// True if the note is about a failure of something that should have worked.
    pub is_failure: bool,
}

impl Note {
    /// Makes a note about a failure.
    pub fn failed(about: &str, error: &Error) -> Self {
        let text = format!("failed: {error}");
        Self { about: about.to_owned(), text, is_failure: true }
    }

    /// Makes a note about something that this machine lacks.
    pub fn skipped(about: &str, reason: &str) -> Self {
        let text = format!("skipped, because {reason}");
        Self { about: about.to_owned(), text, is_failure: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_add_up() {
        let mut account = Account { emitted: 10, recorded: 4, lost: 1, ..Account::default() };
        assert!(!account.is_complete());
        account.overwritten = 5;
        assert!(account.is_complete());
        assert_eq!(account.bytes_per_event(), None);
        account.add(&Account { record_bytes: 32, ..account });
        assert_eq!((account.emitted, account.bytes_per_event()), (20, Some(4.0)));
    }
}
