//! What suites found, in the form in which it is kept: `results.json`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::names::SUITES;
use super::outcome::{Account, Bar, Note};
use crate::host::machine::Machine;
use crate::settings::Settings;
use crate::stats::{Ratio, Spread, Tail};

/// Version of the JSON form: raised when a member changes its meaning or goes.
pub const FORMAT: u32 = 2;

/// What of [`Report::versions`] tells builds of Trackway apart, which may have the same version.
pub const BUILDS: [&str; 2] = ["build of trackway", "build of libtrackway.so"];

/// Everything that a run found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Version of this form.
    pub format: u32,
    /// When it began, in ns since the epoch.
    pub begun_ns: u64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Whether it ended before everything was measured.
    pub is_partial: bool,
    /// The command, word by word.
    pub command: Vec<String>,
    /// What was asked for.
    pub settings: Settings,
    /// Where it was measured.
    pub machine: Machine,
    /// Versions of tracers and tools, as they say themselves; of ours, also the builds.
    pub versions: BTreeMap<String, String>,
    /// What each suite found.
    pub suites: BTreeMap<String, SuiteRows>,
    /// What Trackway set out to reach, as it stands with these figures.
    pub bars: Vec<Bar>,
    /// What disturbed it.
    pub notes: Vec<Note>,
}

/// What a suite found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SuiteRows {
    /// Its heading.
    pub title: String,
    /// What of which paper it repeats.
    pub repeats: String,
    /// What rows' `x` is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub x_axis: String,
    /// The command that measures it again.
    pub command: String,
    /// How many rounds there were.
    pub rounds: u32,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Whether it ended before everything was measured.
    pub is_partial: bool,
    /// Why there are no more rounds.
    pub ended: Ended,
    /// All rows.
    pub rows: Vec<Row>,
}

/// Why a suite has no more rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// All ratios are as sure as they are to be.
    Sure,
    /// As many as were asked for.
    Rounds,
    /// There was no more time.
    Time,
    /// The user stopped it.
    Interrupted,
    /// Nothing was left to be measured.
    Nothing,
}

/// What a figure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Nanoseconds of an event.
    #[serde(rename = "ns/event")]
    NsPerEvent,
    /// Nanoseconds of a call.
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
    /// Bytes of an event.
    #[serde(rename = "bytes/event")]
    BytesPerEvent,
    /// Instructions of an event.
    #[serde(rename = "instructions/event")]
    InstructionsPerEvent,
    /// Events a second.
    #[serde(rename = "events/s")]
    EventsPerSecond,
    /// Requests a second.
    #[serde(rename = "requests/s")]
    RequestsPerSecond,
    /// Megabytes a second.
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
    /// As it is written behind a figure.
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

    /// Whether more is better.
    pub const fn more_is_better(self) -> bool {
        matches!(self, Self::EventsPerSecond | Self::RequestsPerSecond | Self::MbPerSecond)
    }

    /// That in words.
    pub const fn which_is_better(self) -> &'static str {
        if self.more_is_better() { "more is better" } else { "less is better" }
    }
}

/// Whether a row was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowStatus {
    /// It was; if the tracer keeps events, its own output shows them.
    Measured,
    /// It cannot be had here.
    Absent,
    /// It should have worked.
    Failed,
}

/// A tracer in a case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The tracer; ours begin with `trackway`.
    pub tracer: String,
    /// What it does.
    pub case: String,
    /// The case as a number, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x: Option<f64>,
    /// Whether it was measured.
    pub status: RowStatus,
    /// Why not, or why not in all rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Rounds in which it failed, which are in none of its figures.
    #[serde(default, skip_serializing_if = "is_nought")]
    pub failed_rounds: usize,
    /// What figures are in.
    pub unit: Unit,
    /// Events that the workload emitted; all of these over all rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emitted: Option<u64>,
    /// Events in the tracer's output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<u64>,
    /// Events that the tracer says it has lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
    /// Events that newer ones overwrote, as was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overwritten: Option<u64>,
    /// Bytes of an event in the tracer's output, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_event: Option<f64>,
    /// The figure of each round; `None` where it was not measured.
    pub samples: Vec<Option<f64>>,
    /// Those, in short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
    /// How often which figure was seen, where single events were measured; of all rounds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub histogram: Vec<(f64, u64)>,
    /// That, in short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<Tail>,
    /// What measuring takes by itself, which is not in any of the figures: the median over the
    /// rounds, in each of which what was measured then was subtracted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measuring: Option<f64>,
    /// Position of the row that this one is told in terms of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<usize>,
    /// The figure in terms of that row's in the same round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<Ratio>,
    /// What it is beyond that row's in the same round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added: Option<Ratio>,
    /// What else there is to know of it: medians over the rounds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, f64>,
    /// Those of each round; `None` where there was none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra_samples: BTreeMap<String, Vec<Option<f64>>>,
    /// Whether it is `beside` again, so that the difference must be nil.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_control: bool,
    /// The command that does the same once.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command: String,
}

/// For what is only told if there is some.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_nought(count: &usize) -> bool {
    *count == 0
}

impl Row {
    /// The median of its rounds, if it was measured.
    pub fn median(&self) -> Option<f64> {
        self.spread.map(|spread| spread.median)
    }

    /// What became of it, if there is a reason, in words to stand before that.
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

    /// What became of the events.
    pub fn set_account(&mut self, account: &Account) {
        self.emitted = Some(account.emitted);
        self.recorded = Some(account.recorded);
        self.lost = Some(account.lost);
        self.overwritten = Some(account.overwritten);
        self.bytes_per_event = account.bytes_per_event();
    }
}

impl SuiteRows {
    /// The row of a tracer in a case.
    pub fn row(&self, tracer: &str, case: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.tracer == tracer && row.case == case)
    }

    /// Units of what was measured, in the order of the rows.
    pub fn units(&self) -> Vec<Unit> {
        let mut units = Vec::new();
        for row in self.rows.iter().filter(|row| row.spread.is_some()) {
            if !units.contains(&row.unit) {
                units.push(row.unit);
            }
        }
        units
    }

    /// What was measured in a unit.
    pub fn measured_in(&self, unit: Unit) -> Vec<&Row> {
        self.rows.iter().filter(|row| row.spread.is_some() && row.unit == unit).collect()
    }

    /// Why rows have no figure, or not of all rounds: each tracer and reason once, with how many
    /// rows it costs.
    pub fn reasons(&self) -> Vec<(&Row, usize)> {
        let mut said: Vec<(&Row, usize)> = Vec::new();
        for row in self.rows.iter().filter(|row| row.reason.is_some()) {
            let is_same = |other: &Row| {
                let is_one = row.tracer == other.tracer && row.status == other.status;
                // Which case failed matters; what is absent is so in all.
                is_one && row.reason == other.reason && row.status == RowStatus::Absent
            };
            match said.iter_mut().find(|one| is_same(one.0)) {
                Some(one) => one.1 += 1,
                None => said.push((row, 1)),
            }
        }
        said
    }

    /// What else is known of some row.
    pub fn extras<'a>(rows: &[&'a Row]) -> Vec<&'a str> {
        let mut names: Vec<&str> = Vec::new();
        for name in rows.iter().flat_map(|row| row.extra.keys()) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        names
    }

    /// Rows that were to be measured and were not.
    pub fn failures(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.status == RowStatus::Failed)
    }
}

impl Report {
    /// Its suites with their names, in the order in which they are measured.
    pub fn ordered(&self) -> impl Iterator<Item = (&str, &SuiteRows)> {
        let place = |name: &str| SUITES.iter().position(|suite| *suite == name);
        let mut found: Vec<(&str, &SuiteRows)> =
            self.suites.iter().map(|(name, suite)| (name.as_str(), suite)).collect();
        found.sort_by_key(|(name, _)| place(name).unwrap_or(usize::MAX));
        found.into_iter()
    }

    /// Whether anything that should have worked did not.
    pub fn has_failures(&self) -> bool {
        self.suites.values().any(|suite| suite.failures().next().is_some())
            || self.notes.iter().any(|note| note.is_failure)
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
    /// If `text` is not what [`Report::to_json`] writes, or of another version.
    pub fn from_json(text: &str) -> serde_json::Result<Self> {
        let report: Self = serde_json::from_str(text)?;
        if report.format == FORMAT {
            return Ok(report);
        }
        let message = format!("it is of version {}, not {FORMAT}", report.format);
        Err(serde::de::Error::custom(message))
    }
}
