//! The cost of an event while other threads are traced at the same time: user events, and events of
//! a system call.
//!
//! ```text
//! events::which   user events: figures in ns per event
//! kernel          system call events: figures in ns per call
//! ```

mod kernel;

use trackway_bench_engine::error::Result;
use trackway_bench_engine::results::SuiteRows;
use trackway_bench_engine::settings::Settings;
use trackway_bench_engine::suite::{About, Entry, Sample, Suite, SuiteContext};

use crate::suites::events::Events;
use kernel::KernelRows;

/// The suite `scaling`.
pub(crate) struct Scaling {
    user: Events,
    /// Number of rows of user events; the kernel rows follow.
    of_user: usize,
    kernel: KernelRows,
}

impl Scaling {
    pub(crate) fn new() -> Self {
        Self { user: Events::scaling(), of_user: 0, kernel: KernelRows::default() }
    }
}

impl Suite for Scaling {
    fn about(&self) -> About {
        self.user.about()
    }

    fn seconds(&self, settings: &Settings) -> f64 {
        self.user.seconds(settings) + kernel::estimate_seconds(settings)
    }

    fn tracers(&self) -> Vec<&'static str> {
        let mut names = self.user.tracers();
        let others: Vec<&str> =
            kernel::tracer_names().filter(|name| !names.contains(name)).collect();
        names.extend(others);
        names
    }

    fn enter(&mut self, context: &SuiteContext<'_>) -> Result<Vec<Entry>> {
        let mut entries = self.user.enter(context)?;
        self.of_user = entries.len();
        entries.extend(self.kernel.enter(context, self.of_user)?);
        Ok(entries)
    }

    fn sample(&mut self, context: &SuiteContext<'_>, row: usize) -> Result<Sample> {
        match row.checked_sub(self.of_user) {
            Some(row) => self.kernel.sample(context, row),
            None => self.user.sample(context, row),
        }
    }

    fn complete(&self, rows: &mut SuiteRows) {
        kernel::add_thread_ratios(rows);
    }

    fn leave(&mut self) {
        self.user.leave();
        self.kernel = KernelRows::default();
    }
}
