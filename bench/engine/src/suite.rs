//! The interface of suites: a suite has rows, and can measure one of them once.
//!
//! A suite has its tracers and its cases. [`crate::rounds`] alone decides the order and the number
//! of turns, and handles tracers that fail, for all suites alike.

use crate::error::Result;
use crate::host::workspace::Workspace;
use crate::progress::Progress;
use crate::results::{Account, SuiteRows, Unit};
use crate::settings::Settings;

/// The description of a suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About {
    /// Name of the suite on the command line and in `results.json`.
    pub name: &'static str,
    /// Heading of the suite.
    pub title: &'static str,
    /// The paper, and its figure or table, that the suite repeats.
    pub repeats: &'static str,
    /// The unit of the suite's figures.
    pub unit: Unit,
    /// The meaning of rows' `x`, if they have one.
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
    /// The tracer; names of Trackway's variants begin with `trackway`.
    pub tracer: String,
    /// The case that the tracer runs.
    pub case: String,
    /// The case as a number, if it is one: threads, bytes, predicates.
    pub x: Option<f64>,
    /// The reason if the tracer is not available on this machine.
    pub absent: Option<String>,
    /// The reason if the preparation failed although the tracer is available.
    pub failed: Option<String>,
    /// The unit of the row's figure, if it differs from the suite's.
    pub unit: Option<Unit>,
    /// True if the tracer keeps events, which its own output must show.
    pub records: bool,
    /// Index of the row that this row is compared with, by ratio and by difference.
    pub baseline: Option<usize>,
    /// True if the row measures the same thing as its baseline a second time: the difference
    /// between them is the noise of the measurement.
    pub is_control: bool,
    /// The command that runs the same work once.
    pub command: String,
}

impl Entry {
    /// Returns true if the row is neither absent nor failed.
    pub const fn can_be_measured(&self) -> bool {
        self.absent.is_none() && self.failed.is_none()
    }
}

/// One measurement of a row.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sample {
    /// This round's figure, in the row's unit.
    pub figure: f64,
    /// Figures of single events and their counts, if single events were measured.
    pub histogram: Vec<(f64, u64)>,
    /// The cost of measuring by itself, in the row's unit, measured in the same turn: a clock that
    /// is read around each event. `figure` and `histogram` include this cost; the engine subtracts
    /// it from both and reports it.
    pub measuring: Option<f64>,
    /// The account of the events from the tracer's own output; `None` if the output has none.
    pub account: Option<Account>,
    /// Extra figures: key and value. Over several rounds the report has the median, but the
    /// greatest for keys that begin with `greatest`, and the sum for keys that begin with `in all`.
    pub extra: Vec<(&'static str, f64)>,
}

/// A set of rows that are measured in turns.
///
/// `enter` is called first and `leave` last, even after failures; in between, samples are taken in
/// any order.
pub trait Suite {
    /// Returns the description of the suite.
    fn about(&self) -> About;

    /// Returns true if the suite runs only if the user names it.
    fn is_only_by_name(&self) -> bool {
        false
    }

    /// Returns the approximate duration of the suite in seconds, under these settings; known before
    /// the measurement.
    fn seconds(&self, settings: &Settings) -> f64;

    /// Returns the names of the tracers of the suite's rows, including tracers that are not
    /// available on this machine. Users select tracers by these names. Nothing is measured or
    /// searched.
    fn tracers(&self) -> Vec<&'static str>;

    /// Starts the parts that all rows need. Returns the suite's rows in the order of the report.
    /// Each row's tracer is one of [`Suite::tracers`], or one of them followed by ` again`.
    fn enter(&mut self, context: &SuiteContext<'_>) -> Result<Vec<Entry>>;

    /// Measures row number `row` once.
    fn sample(&mut self, context: &SuiteContext<'_>, row: usize) -> Result<Sample>;

    /// Adds the figures that are computed from several rows.
    fn complete(&self, _rows: &mut SuiteRows) {}

    /// Ends the parts that `enter` started.
    fn leave(&mut self);
}
