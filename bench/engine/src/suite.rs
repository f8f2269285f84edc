//! The interface of suites: a suite has rows, and can measure one of them once.
//!
//! A suite has its tracers and its cases. [`crate::rounds`] alone decides when they take turns, in
//! which order, and how often, and handles those that fail, so that no suite can do it worse.

use crate::error::Result;
use crate::host::workspace::Workspace;
use crate::progress::Progress;
use crate::results::{Account, SuiteRows, Unit};
use crate::settings::Settings;

/// The description of a suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About {
    /// Its name on the command line and in `results.json`.
    pub name: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// The paper, and its figure or table, that the suite repeats.
    pub repeats: &'static str,
    /// The unit of its figures.
    pub unit: Unit,
    /// The meaning of rows' `x`, where they have one.
    pub x_axis: &'static str,
}

/// The means by which suites measure.
#[derive(Debug)]
pub struct SuiteContext<'a> {
    /// The workspace.
    pub workspace: &'a Workspace,
    /// The progress line.
    pub progress: &'a Progress,
    /// Settings of the user.
    pub settings: &'a Settings,
    /// CPUs that may be used.
    pub cpus: usize,
}

/// A row to measure.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Entry {
    /// The tracer; Trackway's begin with `trackway`.
    pub tracer: String,
    /// The case that the tracer runs.
    pub case: String,
    /// The case as a number, where it is one: threads, bytes, predicates.
    pub x: Option<f64>,
    /// The reason if it is not available here.
    pub absent: Option<String>,
    /// The reason if it failed though it is available.
    pub failed: Option<String>,
    /// The unit of its figure, where it differs from the suite's.
    pub unit: Option<Unit>,
    /// True if the tracer keeps events, which its own output must show.
    pub records: bool,
    /// The row that this one is compared with: by ratio and by difference.
    pub baseline: Option<usize>,
    /// True if the row measures the same thing as its baseline a second time: the difference
    /// between them is the noise of the measurement.
    pub is_control: bool,
    /// The command that does the same once.
    pub command: String,
}

impl Entry {
    /// Returns true if the row is neither absent nor failed.
    pub const fn can_be_measured(&self) -> bool {
        self.absent.is_none() && self.failed.is_none()
    }
}

/// A row, measured once.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sample {
    /// This round's figure, in the row's unit.
    pub figure: f64,
    /// Figures and their counts, where single events were measured.
    pub histogram: Vec<(f64, u64)>,
    /// The cost of measuring by itself, in the row's unit, measured in the same turn: a clock that
    /// is read around each event. It is in `figure` and in `histogram`; the engine subtracts it
    /// from both and reports it.
    pub measuring: Option<f64>,
    /// The account of the events by the tracer's own output; `None` if the output has none.
    pub account: Option<Account>,
    /// Extra figures: key and value. Over several rounds the report has the median, but the
    /// greatest for keys that begin with `greatest`, and the sum for keys that begin with `in all`.
    pub extra: Vec<(&'static str, f64)>,
}

/// Rows that are measured in turns.
///
/// `enter` comes first and `leave` last, also after failures; in between, any number of samples in
/// any order.
pub trait Suite {
    /// Returns the description of the suite.
    fn about(&self) -> About;

    /// Returns true if the suite runs only when it is named.
    fn is_only_by_name(&self) -> bool {
        false
    }

    /// Seconds that it takes about, by these settings; known before anything is measured.
    fn seconds(&self, settings: &Settings) -> f64;

    /// Returns the names of the tracers of its rows, including those that are not available here:
    /// the names for a selection. Nothing is measured or searched.
    fn tracers(&self) -> Vec<&'static str>;

    /// Returns its rows, in the order in which they are shown, each of one of [`Suite::tracers`],
    /// or of one with ` again`; starts the parts that all rows need.
    fn enter(&mut self, context: &SuiteContext<'_>) -> Result<Vec<Entry>>;

    /// Measures the `row`th once.
    fn sample(&mut self, context: &SuiteContext<'_>, row: usize) -> Result<Sample>;

    /// Adds to rows the figures that need several of them.
    fn complete(&self, _rows: &mut SuiteRows) {}

    /// Ends what `enter` started.
    fn leave(&mut self);
}
