//! What was measured, in the form in which it is kept.

use serde::{Deserialize, Serialize};

use crate::case::Case;
use crate::machine::Machine;
use crate::stats::Spread;

/// Version of the JSON form: raised when a member changes its meaning or goes.
pub(crate) const FORMAT: u32 = 1;

/// Everything that a run of the lab found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Version of this form.
    pub format: u32,
    /// Where it was measured.
    pub machine: Machine,
    /// How many rounds there were.
    pub rounds: u32,
    /// The table.
    pub cells: Vec<Cell>,
    /// Starts of linked processes.
    pub startup: Vec<Startup>,
    /// Recording at full speed.
    pub flows: Vec<Flow>,
    /// Memory of idle sessions.
    pub memory: Vec<Memory>,
    /// The bars, as they stand with these figures.
    pub bars: Vec<Bar>,
    /// What was skipped or failed, and why.
    pub notes: Vec<Note>,
}

/// One tracer in one case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The tracer.
    pub tracer: String,
    /// The case.
    pub case: Case,
    /// ns per event: the median of each round's batches, over the rounds.
    pub rounds_ns: Spread,
    /// ns per event of all batches of all rounds.
    pub batches_ns: Spread,
    /// What became of the events, over all rounds; `None` for tracers that record nothing.
    pub account: Option<Account>,
}

impl Cell {
    /// Whether every event is accounted for, where the tracer records any.
    pub fn is_complete(&self) -> bool {
        self.account.is_none_or(|account| account.is_complete())
    }
}

/// What became of the events, by the tracer's own output.
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
    /// Whether every event is accounted for.
    pub const fn is_complete(&self) -> bool {
        self.recorded + self.lost + self.overwritten == self.emitted
    }

    /// Bytes of one event.
    pub fn bytes_per_event(&self) -> Option<f64> {
        let known = self.recorded > 0 && self.record_bytes > 0;
        known.then(|| self.record_bytes as f64 / self.recorded as f64)
    }

    /// Adds another run.
    pub(crate) const fn add(&mut self, other: &Self) {
        self.emitted += other.emitted;
        self.recorded += other.recorded;
        self.lost += other.lost;
        self.overwritten += other.overwritten;
        self.record_bytes += other.record_bytes;
    }

    /// In words, for people who want to know what is missing.
    pub(crate) fn words(&self) -> String {
        format!(
            "{} emitted, {} recorded, {} lost, {} overwritten",
            self.emitted, self.recorded, self.lost, self.overwritten
        )
    }
}

/// Starts of a program linked with a tracer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Startup {
    /// The tracer; the empty loop for none.
    pub tracer: String,
    /// Fork, exec, run and wait, in µs.
    pub us: Spread,
    /// What that is beyond the empty loop's: between the fastest of each turn, turn by turn.
    pub added_us: Option<Spread>,
    /// Threads in the program.
    pub threads: u64,
}

/// Recording at full speed from two threads, to a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// The tracer.
    pub tracer: String,
    /// How long the threads emitted, in seconds.
    pub seconds: f64,
    /// Buffer memory of each CPU, in bytes.
    pub buffer_bytes: u64,
    /// What became of the events.
    pub account: Account,
}

/// Memory of a session in which nothing was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// The tracer.
    pub tracer: String,
    /// Bytes of shared memory.
    pub bytes: u64,
    /// Buffer memory of each CPU that was asked for, in bytes.
    pub buffer_bytes: u64,
}

/// Something that Trackway set out to reach.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bar {
    /// What is asked, in words, with the bound.
    pub what: String,
    /// What was measured, in words.
    pub measured: String,
    /// Whether it holds.
    pub verdict: Verdict,
}

/// How a bar stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It is reached.
    Holds,
    /// It is not.
    Misses,
    /// Something that it needs was not measured.
    Unknown,
}

/// Something that was skipped or failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Which tracer or part.
    pub about: String,
    /// What, in words: `skipped, because …`.
    pub text: String,
    /// Whether it is a failure: something that should have worked.
    pub is_failure: bool,
}

impl Results {
    /// The cell of a tracer in a case.
    pub fn cell(&self, tracer: &str, case: &Case) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.tracer == tracer && cell.case == *case)
    }

    /// The median cost of an event, in ns; `None` also where events are missing, because a figure
    /// of a tracer that did not do its work says nothing.
    pub fn median_ns(&self, tracer: &str, case: &Case) -> Option<f64> {
        let cell = self.cell(tracer, case)?;
        cell.is_complete().then_some(cell.rounds_ns.median)
    }

    /// Whether anything that should have worked did not.
    pub fn has_failures(&self) -> bool {
        self.notes.iter().any(|note| note.is_failure)
    }

    /// As JSON, for programs.
    ///
    /// # Errors
    ///
    /// None that is known: all of it can be written as JSON.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }

    /// From JSON.
    ///
    /// # Errors
    ///
    /// If `text` is not what [`Results::to_json`] writes.
    pub fn from_json(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Results with one figure of each kind.
    pub(crate) fn example() -> Results {
        let spread = |median: f64| Spread::of(&[median - 0.5, median, median + 0.5]).unwrap();
        let account =
            Account { emitted: 1000, recorded: 400, lost: 0, overwritten: 600, record_bytes: 3200 };
        let cell = |tracer: &str, case: Case, ns: f64, account: Option<Account>| Cell {
            tracer: tracer.to_owned(),
            case,
            rounds_ns: spread(ns),
            batches_ns: spread(ns),
            account,
        };
        let (one, two) = (Case::SIMPLEST, Case::SIMPLEST.with_threads(2));
        Results {
            format: FORMAT,
            machine: Machine::default(),
            rounds: 3,
            cells: vec![
                cell("rdtsc", one, 15.5, None),
                cell("rdtsc", two, 16.0, None),
                cell("Trackway", one, 21.25, Some(account)),
                cell("Trackway", two, 22.0, Some(account)),
                cell("LTTng-UST", one, 127.5, Some(Account { record_bytes: 4000, ..account })),
            ],
            startup: vec![Startup {
                tracer: "empty loop".to_owned(),
                us: spread(450.0),
                added_us: None,
                threads: 1,
            }],
            flows: vec![Flow {
                tracer: "Trackway".to_owned(),
                seconds: 2.0,
                buffer_bytes: 4 << 20,
                account: Account { lost: 600, overwritten: 0, ..account },
            }],
            memory: vec![Memory {
                tracer: "Trackway".to_owned(),
                bytes: 12 << 20,
                buffer_bytes: 4 << 20,
            }],
            bars: Vec::new(),
            notes: vec![Note {
                about: "LTTng-UST, off".to_owned(),
                text: "skipped, because lttng is not installed".to_owned(),
                is_failure: false,
            }],
        }
    }

    #[test]
    fn json_goes_round() {
        let results = example();
        let text = results.to_json().expect("text");
        assert_eq!(Results::from_json(&text).expect("results"), results);
        assert!(text.contains(r#""payload": "number""#), "{text}");
    }

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
