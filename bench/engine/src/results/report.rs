//! The results of suites, as stored in `results.json`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::names::SUITES;
use super::outcome::{Account, Bar, Note};
use crate::host::machine::Machine;
use crate::settings::Settings;
use crate::stats::{Ratio, Spread, Tail};

/// Version of the JSON format; it increases when a member changes its meaning or is removed.
pub const REPORT_FORMAT: u32 = 2;

/// Keys in [`Report::versions`] that identify builds of Trackway, which may have the same version.
pub const BUILD_KEYS: [&str; 2] = ["build of trackway", "build of libtrackway.so"];

/// The results of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Version of the JSON format.
    pub format: u32,
    /// Start time of the run, in ns since the epoch.
    pub begun_ns: u64,
    /// Duration of the run, in seconds.
    pub seconds: f64,
    /// True if the run ended before everything was measured.
    pub is_partial: bool,
    /// The command of the run, word by word.
    pub command: Vec<String>,
    /// Settings of the user.
    pub settings: Settings,
    /// The machine of the run.
    pub machine: Machine,
    /// Versions of tracers and tools, from their own output; for Trackway, also the builds.
    pub versions: BTreeMap<String, String>,
    /// The results of each suite.
    pub suites: BTreeMap<String, SuiteRows>,
    /// Trackway's goals, judged by these figures.
    pub bars: Vec<Bar>,
    /// Disturbances of the measurement.
    pub notes: Vec<Note>,
}

/// The results of a suite.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SuiteRows {
    /// Heading of the suite.
    pub title: String,
    /// The paper, and its figure or table, that the suite repeats.
    pub repeats: String,
    /// The meaning of rows' `x`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub x_axis: String,
    /// The command that repeats the measurement of the suite.
    pub command: String,
    /// Number of rounds.
    pub rounds: u32,
    /// Duration of the suite, in seconds.
    pub seconds: f64,
    /// True if the suite ended before everything was measured.
    pub is_partial: bool,
    /// The reason for the end of the rounds.
    pub ended: EndReason,
    /// All rows.
    pub rows: Vec<Row>,
}

/// The reason for the end of a suite's rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// All ratios are certain enough.
    Sure,
    /// The requested number of rounds is complete.
    Rounds,
    /// The time limit was reached.
    Time,
    /// The user stopped the run.
    Interrupted,
    /// No row was left to measure.
    Nothing,
}

/// The unit of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Nanoseconds per event.
    #[serde(rename = "ns/event")]
    NsPerEvent,
    /// Nanoseconds per call.
    #[serde(rename = "ns/call")]
    NsPerCall,
    /// Nanoseconds.
    #[serde(rename = "ns")]
    Ns,
    /// Microseconds.
    #[serde(rename = "µs")]
    Us,
    /// Milliseconds.
    #[serde(rename = "ms")]
    Ms,
    /// Bytes per event.
    #[serde(rename = "bytes/event")]
    BytesPerEvent,
    /// Instructions per event.
    #[serde(rename = "instructions/event")]
    InstructionsPerEvent,
    /// Events per second.
    #[serde(rename = "events/s")]
    EventsPerSecond,
    /// Requests per second.
    #[serde(rename = "requests/s")]
    RequestsPerSecond,
    /// Megabytes per second.
    #[serde(rename = "MB/s")]
    MbPerSecond,
    /// Percent of one CPU.
    #[serde(rename = "% of a CPU")]
    PercentOfCpu,
    /// KiB of memory.
    #[serde(rename = "KiB")]
    Kib,
}

impl Unit {
    /// Returns the text of the unit after a figure.
    pub const fn words(self) -> &'static str {
        match self {
            Self::NsPerEvent => "ns/event",
            Self::NsPerCall => "ns/call",
            Self::Ns => "ns",
            Self::Us => "µs",
            Self::Ms => "ms",
            Self::BytesPerEvent => "bytes/event",
            Self::InstructionsPerEvent => "instructions/event",
            Self::EventsPerSecond => "events/s",
            Self::RequestsPerSecond => "requests/s",
            Self::MbPerSecond => "MB/s",
            Self::PercentOfCpu => "% of a CPU",
            Self::Kib => "KiB",
        }
    }

    /// Returns true if larger figures are better.
    pub const fn more_is_better(self) -> bool {
        matches!(self, Self::EventsPerSecond | Self::RequestsPerSecond | Self::MbPerSecond)
    }

    /// Returns the better direction in words.
    pub const fn which_is_better(self) -> &'static str {
        if self.more_is_better() { "more is better" } else { "less is better" }
    }
}

/// The state of a row after the suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowStatus {
    /// The row was measured; if the tracer keeps events, its own output shows them.
    Measured,
    /// The tracer is not available on this machine.
    Absent,
    /// The row failed although it should have worked.
    Failed,
}

/// A tracer in a case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The tracer; names of Trackway's variants begin with `trackway`.
    pub tracer: String,
    /// The case that the tracer runs.
    pub case: String,
    /// The case as a number, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x: Option<f64>,
    /// Measured, absent or failed.
    pub status: RowStatus,
    /// The reason for missing rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Number of failed rounds, which are in no figure of the row.
    #[serde(default, skip_serializing_if = "is_nought")]
    pub failed_rounds: usize,
    /// The unit of the row's figures.
    pub unit: Unit,
    /// Events that the workload emitted; this count and the next ones are sums over all rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emitted: Option<u64>,
    /// Events in the tracer's output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<u64>,
    /// Events that the tracer reports as lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
    /// Events that newer ones overwrote, as configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overwritten: Option<u64>,
    /// Bytes of an event in the tracer's output, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_event: Option<f64>,
    /// The figure of each round; `None` for rounds in which the row was not measured.
    pub samples: Vec<Option<f64>>,
    /// The summary of the samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
    /// Figures of single events and their counts in all rounds, if single events were measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub histogram: Vec<(f64, u64)>,
    /// The summary of the histogram.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<Tail>,
    /// The median cost of measuring over the rounds. The cost of each round was subtracted from the
    /// figures of that round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measuring: Option<f64>,
    /// Index of the baseline row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "beside")]
    pub baseline: Option<usize>,
    /// The ratio to the baseline in the same round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<Ratio>,
    /// The difference to the baseline in the same round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added: Option<Ratio>,
    /// Extra figures: medians over the rounds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, f64>,
    /// Extra figures of each round; `None` for rounds without the figure.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra_samples: BTreeMap<String, Vec<Option<f64>>>,
    /// True if the row repeats its baseline, so that the difference must be zero.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_control: bool,
    /// The command that runs the same work once.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command: String,
}

/// Returns true if a count is zero; zero counts are left out of the file.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_nought(count: &usize) -> bool {
    *count == 0
}

impl Row {
    /// Returns the median of the row's rounds, if the row was measured.
    pub fn median(&self) -> Option<f64> {
        self.spread.map(|spread| spread.median)
    }

    /// Returns the row's state in words, to be written before the reason.
    pub fn fate(&self) -> String {
        match (self.status, self.failed_rounds) {
            (RowStatus::Absent, _) => "absent".to_owned(),
            (RowStatus::Failed, _) => "FAILED".to_owned(),
            (RowStatus::Measured, 0) => "not measured to the end".to_owned(),
            (RowStatus::Measured, 1) => "measured, but for a round that failed".to_owned(),
            (RowStatus::Measured, failed) => {
                format!("measured, but for {failed} rounds that failed")
            }
        }
    }

    /// Stores the account of the events.
    pub fn set_account(&mut self, account: &Account) {
        self.emitted = Some(account.emitted);
        self.recorded = Some(account.recorded);
        self.lost = Some(account.lost);
        self.overwritten = Some(account.overwritten);
        self.bytes_per_event = account.bytes_per_event();
    }
}

impl SuiteRows {
    /// Returns the row of a tracer in a case.
    pub fn row(&self, tracer: &str, case: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.tracer == tracer && row.case == case)
    }

    /// Returns the units of measured rows, in the order of the rows.
    pub fn units(&self) -> Vec<Unit> {
        let mut units = Vec::new();
        for row in self.rows.iter().filter(|row| row.spread.is_some()) {
            if !units.contains(&row.unit) {
                units.push(row.unit);
            }
        }
        units
    }

    /// Returns the rows that were measured in a unit.
    pub fn measured_in(&self, unit: Unit) -> Vec<&Row> {
        self.rows.iter().filter(|row| row.spread.is_some() && row.unit == unit).collect()
    }

    /// Returns the reasons for missing figures: each tracer and reason once, with the number of its
    /// rows.
    pub fn reasons(&self) -> Vec<(&Row, usize)> {
        let mut said: Vec<(&Row, usize)> = Vec::new();
        for row in self.rows.iter().filter(|row| row.reason.is_some()) {
            let is_same = |other: &Row| {
                let is_one = row.tracer == other.tracer && row.status == other.status;
                // For a failure, the case matters; the absence of a tracer applies to all cases.
                is_one && row.reason == other.reason && row.status == RowStatus::Absent
            };
            match said.iter_mut().find(|one| is_same(one.0)) {
                Some(one) => one.1 += 1,
                None => said.push((row, 1)),
            }
        }
        said
    }

    /// Returns the keys of the rows' extra figures.
    pub fn extra_names<'a>(rows: &[&'a Row]) -> Vec<&'a str> {
        let mut names: Vec<&str> = Vec::new();
        for name in rows.iter().flat_map(|row| row.extra.keys()) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        names
    }

    /// Returns the rows that failed.
    pub fn failures(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.status == RowStatus::Failed)
    }
}

impl Report {
    /// Returns the suites with their names, in the order in which they are measured.
    pub fn ordered(&self) -> impl Iterator<Item = (&str, &SuiteRows)> {
        let place = |name: &str| SUITES.iter().position(|suite| *suite == name);
        let mut found: Vec<(&str, &SuiteRows)> =
            self.suites.iter().map(|(name, suite)| (name.as_str(), suite)).collect();
        found.sort_by_key(|(name, _)| place(name).unwrap_or(usize::MAX));
        found.into_iter()
    }

    /// Returns true if something that should have worked has failed.
    pub fn has_failures(&self) -> bool {
        self.suites.values().any(|suite| suite.failures().next().is_some())
            || self.notes.iter().any(|note| note.is_failure)
    }

    /// Returns the report as JSON, for programs.
    ///
    /// # Errors
    ///
    /// No error is known: all members can be written as JSON.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }

    /// Parses JSON.
    ///
    /// # Errors
    ///
    /// If `text` is not written by [`Report::to_json`], or has another version.
    pub fn from_json(text: &str) -> serde_json::Result<Self> {
        let report: Self = serde_json::from_str(text)?;
        if report.format == REPORT_FORMAT {
            return Ok(report);
        }
        let message = format!("it is of version {}, not {REPORT_FORMAT}", report.format);
        Err(serde::de::Error::custom(message))
    }
}
