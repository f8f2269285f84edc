//! The interface of suites: what has rows, and can measure one of them once.
//!
//! A suite knows its tracers and its cases; when they take turns, in which order, how often, and
//! what becomes of those that fail is for [`crate::rounds`] alone, so that no suite can do it
//! worse.

use crate::error::Result;
use crate::host::workspace::Place;
use crate::progress::Progress;
use crate::results::{Account, SuiteRows, Unit};
use crate::settings::Settings;

/// What a suite is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About {
    /// Its name on the command line and in `results.json`.
    pub name: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// What of which paper it repeats.
    pub repeats: &'static str,
    /// What its figures are.
    pub unit: Unit,
    /// What rows' `x` is, where they have one.
    pub x_axis: &'static str,
}

/// What suites measure with.
#[derive(Debug)]
pub struct SuiteContext<'a> {
    /// Where they work.
    pub place: &'a Place,
    /// Who is told what is being done.
    pub progress: &'a Progress,
    /// What the user asked for.
    pub settings: &'a Settings,
    /// CPUs that may be used.
    pub cpus: usize,
}

/// A row that is to be measured.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Entry {
    /// The tracer; ours begin with `trackway`.
    pub tracer: String,
    /// What it does.
    pub case: String,
    /// The case as a number, where it is one: threads, bytes, predicates.
    pub x: Option<f64>,
    /// Why it cannot be measured here, if it cannot.
    pub absent: Option<String>,
    /// Why it cannot be measured though it is here, if it cannot.
    pub failed: Option<String>,
    /// What its figure is, where it is not what the suite's are.
    pub unit: Option<Unit>,
    /// Whether the tracer keeps events, which its own output must show.
    pub records: bool,
    /// The row that this one's figure is told in terms of, and beyond.
    pub beside: Option<usize>,
    /// Whether it is the same thing as `beside`, measured a second time: what differs between
    /// them is what measuring itself differs by.
    pub is_control: bool,
    /// The command that does the same once.
    pub command: String,
}

impl Entry {
    /// Whether there is nothing against it so far.
    pub const fn can_be_measured(&self) -> bool {
        self.absent.is_none() && self.failed.is_none()
    }
}

/// A row, measured once.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sample {
    /// This round's figure, in the row's unit.
    pub figure: f64,
    /// How often which figure was seen, where single events were measured.
    pub histogram: Vec<(f64, u64)>,
    /// What measuring takes by itself, in the row's unit, measured in the same turn: a clock that
    /// is read around each event. It is in `figure` and in `histogram`; the engine takes it out of
    /// both, and says how much it was.
    pub measuring: Option<f64>,
    /// What became of the events, by the tracer's own output; `None` if it did not say.
    pub account: Option<Account>,
    /// What else there is to know of it: what, and how much. Of several rounds it is the median;
    /// of what begins with `greatest` the greatest, and of what begins with `in all` the sum.
    pub extra: Vec<(&'static str, f64)>,
}

/// Rows that are measured in turns.
///
/// `enter` comes first and `leave` last, also after failures; in between, any number of samples in
/// any order.
pub trait Suite {
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
    fn enter(&mut self, context: &SuiteContext<'_>) -> Result<Vec<Entry>>;

    /// Measures the `row`th once.
    fn sample(&mut self, context: &SuiteContext<'_>, row: usize) -> Result<Sample>;

    /// Adds to rows what only several of them tell together.
    fn complete(&self, _rows: &mut SuiteRows) {}

    /// Ends what `enter` started.
    fn leave(&mut self);
}
