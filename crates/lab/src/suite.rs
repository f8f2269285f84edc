//! The interface of suites: what has rows, and can measure one of them once.
//!
//! A suite knows its tracers and its cases; when they take turns, in which order, how often, and
//! what becomes of those that fail is for [`crate::rounds`] alone, so that no suite can do it
//! worse.

use crate::error::Result;
use crate::place::Place;
use crate::progress::Progress;
use crate::results::Account;
use crate::rows::{SuiteRows, Unit};
use crate::tracer_names;

/// What a suite is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct About {
    /// Its name on the command line and in `results.json`.
    pub(crate) name: &'static str,
    /// Its heading.
    pub(crate) title: &'static str,
    /// What of which paper it repeats.
    pub(crate) repeats: &'static str,
    /// What its figures are.
    pub(crate) unit: Unit,
    /// What rows' `x` is, where they have one.
    pub(crate) x_axis: &'static str,
}

/// What suites measure with.
#[derive(Debug)]
pub(crate) struct Hall<'a> {
    /// Where they work.
    pub(crate) place: &'a Place,
    /// Who is told what is being done.
    pub(crate) progress: &'a Progress,
    /// What the user asked for.
    pub(crate) settings: &'a Settings,
    /// CPUs that may be used.
    pub(crate) cpus: usize,
}

/// What the user asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Settings {
    /// Seconds instead of minutes: to see that all works, not for figures.
    pub quick: bool,
    /// So many rounds; else until the figures are sure enough, or there is no more time.
    pub rounds: Option<u32>,
    /// Only tracers that have one of these names, or one that begins so with `-` behind it, in
    /// whatever case; all, if there is none. What others are measured against is always there.
    pub tracers: Vec<String>,
    /// What draws the order of turns: the same order for the same number.
    pub seed: u64,
}

impl Settings {
    /// Whether a tracer is wanted.
    pub(crate) fn wants(&self, tracer: &str) -> bool {
        tracer_names::chosen(&self.tracers, tracer)
    }

    /// The command that measures a suite in this way again, in the same order, as a shell takes it.
    pub(crate) fn command(&self, suite: &str) -> String {
        let mut command = format!("trackway bench {suite}");
        if self.quick {
            command += " --quick";
        }
        if let Some(rounds) = self.rounds {
            command += &format!(" --rounds {rounds}");
        }
        if !self.tracers.is_empty() {
            command += &format!(" --tracers {}", quoted(&self.tracers.join(",")));
        }
        command + &format!(" --seed {}", self.seed)
    }
}

/// A word that a shell leaves as it is.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_+.,/".contains(letter);
    if word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// A row that is to be measured.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Entry {
    /// The tracer; ours begin with `trackway`.
    pub(crate) tracer: String,
    /// What it does.
    pub(crate) case: String,
    /// The case as a number, where it is one: threads, bytes, predicates.
    pub(crate) x: Option<f64>,
    /// Why it cannot be measured here, if it cannot.
    pub(crate) absent: Option<String>,
    /// Why it cannot be measured though it is here, if it cannot.
    pub(crate) failed: Option<String>,
    /// What its figure is, where it is not what the suite's are.
    pub(crate) unit: Option<Unit>,
    /// Whether the tracer keeps events, which its own output must show.
    pub(crate) records: bool,
    /// The row that this one's figure is told in terms of, and beyond.
    pub(crate) beside: Option<usize>,
    /// Whether it is the same thing as `beside`, measured a second time: what differs between
    /// them is what measuring itself differs by.
    pub(crate) is_control: bool,
    /// The command that does the same once.
    pub(crate) command: String,
}

impl Entry {
    /// Whether there is nothing against it so far.
    pub(crate) const fn can_be_measured(&self) -> bool {
        self.absent.is_none() && self.failed.is_none()
    }
}

/// A row, measured once.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Sample {
    /// This round's figure, in the row's unit.
    pub(crate) figure: f64,
    /// How often which figure was seen, where single events were measured.
    pub(crate) histogram: Vec<(f64, u64)>,
    /// What measuring takes by itself, in the row's unit, measured in the same turn: a clock that
    /// is read around each event. It is in `figure` and in `histogram`; the engine takes it out of
    /// both, and says how much it was.
    pub(crate) measuring: Option<f64>,
    /// What became of the events, by the tracer's own output; `None` if it did not say.
    pub(crate) account: Option<Account>,
    /// What else there is to know of it: what, and how much. Of several rounds it is the median;
    /// of what begins with `greatest` the greatest, and of what begins with `in all` the sum.
    pub(crate) extra: Vec<(&'static str, f64)>,
}

/// Rows that are measured in turns.
///
/// `enter` comes first and `leave` last, also after failures; in between, any number of samples in
/// any order.
pub(crate) trait Suite {
    /// What it is about.
    fn about(&self) -> About;

    /// Whether it is left out where no suite is named.
    fn is_only_by_name(&self) -> bool {
        false
    }

    /// Seconds that it takes about, by these settings; known before anything is measured.
    fn seconds(&self, settings: &Settings) -> f64;

    /// Names of the tracers that its rows are of, also of those that cannot be had here: what there
    /// is to choose among. Nothing is measured or looked for.
    fn tracers(&self) -> Vec<&'static str>;

    /// Its rows, in the order in which they are shown, each of one of [`Suite::tracers`], or of one
    /// ` again`; starts what they all need.
    fn enter(&mut self, hall: &Hall<'_>) -> Result<Vec<Entry>>;

    /// Measures the `row`th once.
    fn sample(&mut self, hall: &Hall<'_>, row: usize) -> Result<Sample>;

    /// Adds to rows what only several of them tell together.
    fn complete(&self, _rows: &mut SuiteRows) {}

    /// Ends what `enter` started.
    fn leave(&mut self);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_say_all_that_was_asked_for() {
        let settings = Settings { seed: 7, ..Settings::default() };
        assert_eq!(settings.command("drain"), "trackway bench drain --seed 7");
        let tracers = ["trackway-c++".to_owned(), " it's".to_owned()].to_vec();
        let settings = Settings { quick: true, rounds: Some(3), tracers, seed: 1 };
        assert_eq!(
            settings.command("size"),
            "trackway bench size --quick --rounds 3 --tracers 'trackway-c++, it'\\''s' --seed 1"
        );
    }
}
