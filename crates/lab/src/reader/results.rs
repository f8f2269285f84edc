//! What was measured of readers, in the form in which it is kept.

use serde::{Deserialize, Serialize};

use super::tools::{Tool, Work};
use crate::machine::Machine;
use crate::results::{Bar, Note};
use crate::stats::Spread;

/// Version of the JSON form: raised when a member changes its meaning or goes.
pub(super) const FORMAT: u32 = 1;

/// Everything that a run of the lab found about readers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReadingResults {
    /// Version of this form.
    pub format: u32,
    /// Where it was measured.
    pub machine: Machine,
    /// Version of babeltrace2, if it is installed.
    pub babeltrace2: Option<String>,
    /// How many rounds there were.
    pub rounds: u32,
    /// The traces that were read.
    pub traces: Vec<TraceMeasured>,
    /// Speed and memory on the large traces.
    pub speeds: Vec<Speed>,
    /// What depends on the size of a trace, or should not.
    pub sizes: Vec<Size>,
    /// Whether both readers print the same.
    pub agreements: Vec<Agreement>,
    /// The bars, as they stand with these figures.
    pub bars: Vec<Bar>,
    /// What was skipped or failed, and why.
    pub notes: Vec<Note>,
}

/// Whose traces, and of what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceKind {
    /// As Trackway writes them: one `u32` and the thread's id.
    Numbers,
    /// As Trackway writes them: numbers, requests with a path, messages.
    Strings,
    /// Recorded by LTTng-UST: one `u32` and the thread's id.
    Lttng,
}

impl TraceKind {
    /// Its name, as a file's name has it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Numbers => "numbers",
            Self::Strings => "strings",
            Self::Lttng => "lttng",
        }
    }

    /// In words.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Numbers => "Trackway's, u32",
            Self::Strings => "Trackway's, strings",
            Self::Lttng => "LTTng's, u32",
        }
    }
}

/// A trace that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceMeasured {
    /// Whose, and of what.
    pub kind: TraceKind,
    /// Events in it.
    pub events: u64,
    /// Bytes of its streams.
    pub bytes: u64,
}

/// One reader at one work on so many CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Speed {
    /// The reader.
    pub tool: Tool,
    /// What it was asked to do.
    pub work: Work,
    /// On which trace: the large one of its kind.
    pub trace: TraceKind,
    /// CPUs that it could use.
    pub cpus: usize,
    /// Events of the trace, divided by the time of a run.
    pub events_per_s: Spread,
    /// From before the program's start until its end.
    pub seconds: Spread,
    /// Time of all of its threads on CPUs.
    pub cpu_seconds: Spread,
    /// Most memory that it had at once, in bytes.
    pub peak_bytes: Spread,
}

/// One reader on a trace of one size, printing text, with all CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Size {
    /// The reader.
    pub tool: Tool,
    /// Whose trace, and of what.
    pub trace: TraceKind,
    /// Events in it.
    pub events: u64,
    /// Most memory that it had at once, in bytes.
    pub peak_bytes: Spread,
    /// From before the program's start until its first line could be read from a pipe, in ms.
    pub first_line_ms: Spread,
}

/// What readers printed of the small trace of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreement {
    /// Whose trace, and of what.
    pub trace: TraceKind,
    /// Events in it.
    pub events: u64,
    /// Lines that the first reader printed.
    pub lines: u64,
    /// Bytes that it printed.
    pub bytes: u64,
    /// How many readers were compared.
    pub compared: usize,
    /// Whether all of them printed the same bytes.
    pub is_equal: bool,
}

impl ReadingResults {
    /// The figure of a reader in a case.
    pub fn speed(&self, tool: Tool, work: Work, trace: TraceKind, cpus: usize) -> Option<&Speed> {
        self.speeds.iter().find(|speed| {
            (speed.tool, speed.work, speed.trace, speed.cpus) == (tool, work, trace, cpus)
        })
    }

    /// How many times as fast as babeltrace2 Trackway is, by the medians.
    pub fn times(&self, work: Work, trace: TraceKind, cpus: usize) -> Option<f64> {
        let median = |tool| {
            let speed = self.speed(tool, work, trace, cpus)?;
            Some(speed.events_per_s.median).filter(|&rate| rate > 0.0)
        };
        Some(median(Tool::Trackway)? / median(Tool::Babeltrace2)?)
    }

    /// Kinds of traces with figures, in the order of their measurement.
    pub(super) fn kinds(&self) -> Vec<TraceKind> {
        let mut kinds: Vec<TraceKind> = self.speeds.iter().map(|speed| speed.trace).collect();
        kinds.dedup();
        kinds
    }

    /// Numbers of CPUs with figures, from the smallest.
    pub(super) fn cpu_counts(&self) -> Vec<usize> {
        let mut counts: Vec<usize> = self.speeds.iter().map(|speed| speed.cpus).collect();
        counts.sort_unstable();
        counts.dedup();
        counts
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
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Results with figures made up.
    pub(in crate::reader) fn example() -> ReadingResults {
        let spread = |median: f64| Spread::of(&[median * 0.9, median, median * 1.1]).unwrap();
        let speed = |tool, work, cpus, rate: f64| Speed {
            tool,
            work,
            trace: TraceKind::Numbers,
            cpus,
            events_per_s: spread(rate),
            seconds: spread(2e7 / rate),
            cpu_seconds: spread(2e7 / rate),
            peak_bytes: spread(f64::from(20 << 20)),
        };
        let size = |tool, events, peak: f64, first: f64| Size {
            tool,
            trace: TraceKind::Numbers,
            events,
            peak_bytes: spread(peak * f64::from(1 << 20)),
            first_line_ms: spread(first),
        };
        let (ours, theirs) = (Tool::Trackway, Tool::Babeltrace2);
        let (small, large) = (2_000_000, 20_000_000);
        ReadingResults {
            format: FORMAT,
            machine: Machine::default(),
            babeltrace2: Some("2.0.4".to_owned()),
            rounds: 3,
            traces: vec![
                TraceMeasured { kind: TraceKind::Numbers, events: small, bytes: 24 << 20 },
                TraceMeasured { kind: TraceKind::Numbers, events: large, bytes: 240 << 20 },
            ],
            speeds: vec![
                speed(ours, Work::Text, 1, 8e6),
                speed(theirs, Work::Text, 1, 0.64e6),
                speed(ours, Work::Decode, 1, 25e6),
                speed(theirs, Work::Decode, 1, 3.125e6),
                speed(ours, Work::Text, 2, 15e6),
            ],
            sizes: vec![
                size(ours, small, 19.0, 10.0),
                size(ours, large, 20.0, 11.0),
                size(theirs, small, 15.0, 30.0),
                size(theirs, large, 15.0, 150.0),
            ],
            agreements: vec![Agreement {
                trace: TraceKind::Numbers,
                events: small,
                lines: small,
                bytes: 170 << 20,
                compared: 2,
                is_equal: true,
            }],
            bars: Vec::new(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn json_goes_round() {
        let results = example();
        let text = results.to_json().expect("text");
        assert_eq!(serde_json::from_str::<ReadingResults>(&text).expect("results"), results);
        assert!(text.contains(r#""work": "decode""#), "{text}");
    }

    #[test]
    fn ratios_need_both_readers() {
        let results = example();
        assert_eq!(results.times(Work::Text, TraceKind::Numbers, 1), Some(12.5));
        assert_eq!(results.times(Work::Decode, TraceKind::Numbers, 1), Some(8.0));
        assert_eq!(results.times(Work::Text, TraceKind::Numbers, 2), None);
        assert_eq!(results.cpu_counts(), [1, 2]);
        assert_eq!(results.kinds(), [TraceKind::Numbers]);
    }
}
