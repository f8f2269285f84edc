//! Checks for disturbances of measurements on this machine, with their remedies.
//!
//! ```text
//! system_files     the kernel's files, read from any root
//! settings         configuration of the machine
//! other_processes  other processes that use the CPUs, and other tracers
//! programs         needs of adapters
//! noise            the same loop again and again for a second
//! ```
//!
//! As in `trackway doctor`, a check consists of an observation, which changes nothing, and a
//! judgement, a pure function of the observation.

mod noise;
mod other_processes;
mod programs;
mod settings;
mod system_files;

use std::io::{self, Write};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use trackway_console::{Style, Target, escape_unprintable};

use super::requirements::Requirements;
use system_files::SystemFiles;

/// Time for which other processes, and a loop of the bench, are observed.
const OBSERVATION_TIME: Duration = Duration::from_secs(1);

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckResult {
    /// Nothing disturbs measurements.
    Good,
    /// The finding makes figures vary, or shifts them.
    Disturbs,
    /// A program is not installed, or may not be used: rows will be absent.
    Missing,
}

impl CheckResult {
    /// Returns the result as a word of the output.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Disturbs => "disturbs",
            Self::Missing => "missing",
        }
    }

    const fn style(self) -> Style {
        match self {
            Self::Good => Style::Good,
            Self::Disturbs => Style::Loss,
            Self::Missing => Style::Error,
        }
    }
}

/// The outcome of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckOutcome {
    /// The name of the check.
    pub name: String,
    /// Its result.
    pub result: CheckResult,
    /// The observation, in a line.
    pub fact: String,
    /// Its effect, in a line.
    pub why: Option<String>,
    /// The remedy, in a line.
    pub hint: Option<String>,
}

impl CheckOutcome {
    fn good(name: &str, fact: impl Into<String>) -> Self {
        let result = CheckResult::Good;
        Self { name: name.to_owned(), result, fact: fact.into(), why: None, hint: None }
    }

    /// Makes a disturbance, with its effect and its remedy.
    fn disturbance(
        name: &str,
        fact: impl Into<String>,
        why: &str,
        hint: impl Into<String>,
    ) -> Self {
        Self { result: CheckResult::Disturbs, ..Self::good(name, fact).with(why, hint) }
    }

    fn missing(name: &str, fact: impl Into<String>, why: &str, hint: impl Into<String>) -> Self {
        Self { result: CheckResult::Missing, ..Self::good(name, fact).with(why, hint) }
    }

    fn with(self, why: &str, hint: impl Into<String>) -> Self {
        Self { why: Some(why.to_owned()), hint: Some(hint.into()), ..self }
    }
}

/// Makes all checks: it takes two seconds, in which other processes and a loop of the bench are
/// observed.
pub fn run_all_checks(requirements: &Requirements) -> Vec<CheckOutcome> {
    let system = SystemFiles::of_this_machine();
    let mut found = settings::run_checks(&system);
    found.extend(other_processes::run_checks(&system, OBSERVATION_TIME));
    found.push(noise::Noise::of(OBSERVATION_TIME).judge());
    found.extend(programs::run_checks(requirements, &system));
    found
}

/// Returns the number of checks that found a disturbance.
pub fn count_disturbances(found: &[CheckOutcome]) -> usize {
    found.iter().filter(|one| one.result == CheckResult::Disturbs).count()
}

/// Writes the findings to `output`, in colours if it supports them.
///
/// # Errors
///
/// Errors of `output`.
pub fn print_findings(found: &[CheckOutcome], output: &mut dyn Write) -> io::Result<()> {
    let width = found.iter().map(|one| one.name.len()).max().unwrap_or(0);
    let indent = width + 2 + CheckResult::Disturbs.word().len() + 2;
    for one in found {
        let word = one.result.word();
        let (on, off) = Target::Output.marks(one.result.style());
        // Padded by hand: colour sequences have no width.
        let pad = indent - 2 - width - word.len();
        let (name, fact) = (&one.name, escape_unprintable(&one.fact));
        writeln!(output, "{name:width$}  {on}{word}{off}{:pad$}{fact}", "")?;
        for (head, words) in [("why", &one.why), ("hint", &one.hint)] {
            if let Some(words) = words {
                writeln!(output, "{:indent$}{head}: {}", "", escape_unprintable(words))?;
            }
        }
    }
    match count_disturbances(found) {
        0 => writeln!(output, "\nnothing that is known disturbs measurements here"),
        1 => writeln!(output, "\n1 thing disturbs measurements here"),
        many => writeln!(output, "\n{many} things disturb measurements here"),
    }
}

#[cfg(test)]
mod tests;
