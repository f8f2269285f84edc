//! The interface that every tracer is measured through.

use std::path::PathBuf;

pub use crate::host::availability::Availability;

use crate::case::{BatchPlan, BufferState, Case};
use crate::error::{Error, Result};
use crate::host::workload::{self, Batch};
use crate::host::workspace::Workspace;
use crate::results::Account;

/// Durations of the start of a program that is linked with a tracer.
#[derive(Debug, Clone, PartialEq)]
pub struct Starts {
    /// Fork, exec, run and wait, in µs, for each start.
    pub us: Vec<f64>,
    /// Threads in such a program.
    pub threads: u64,
}

/// The result of a run in which two threads emit as fast as they can, to files.
#[derive(Debug, Clone, PartialEq)]
pub struct Flow {
    /// Time during which the threads emitted.
    pub emitting_seconds: f64,
    /// From their first event until all that was recorded was written to files: these may be in
    /// the page cache.
    pub written_seconds: f64,
    /// Time from there until all of it was on the disk.
    pub fsync_seconds: f64,
    /// The account of the events.
    pub account: Account,
}

/// A tracer in one way of use, and how to drive it.
///
/// `set_up` comes first and `tear_down` last, also after failures; in between, any number of runs
/// in any order.
pub trait Tracer {
    /// Returns its row in the table.
    fn name(&self) -> &'static str;

    /// Checks, without starting anything, that the tracer can be measured on this machine.
    fn availability(&self, workspace: &Workspace) -> Availability;

    /// Returns true if the tracer can run `case`.
    fn supports(&self, case: &Case) -> bool;

    /// Events of one batch: a fraction of a millisecond or a few, so that most batches are not
    /// interrupted, even where others compete for the CPUs. Twenty batches go round the ring.
    fn batch_events(&self) -> u64;

    /// Compiles the workload, starts daemons.
    fn set_up(&mut self, workspace: &Workspace) -> Result<()>;

    /// Runs the workload in batches, traced in its first mode, and keeps the tracer's output.
    fn run(&mut self, workspace: &Workspace, case: &Case, plan: &BatchPlan) -> Result<Vec<Batch>> {
        let arguments = batch_arguments(self.work(case), case, plan, self.batch_events());
        let output = self.emit(workspace, case, BufferState::Overwrite, &arguments)?;
        let batches = workload::parse_batches(&output)?;
        self.remember(&workload::count_events_by_thread(&batches));
        Ok(batches)
    }

    /// Remembers how many events each thread of the latest run emitted, for
    /// [`Tracer::read_back`].
    fn remember(&mut self, _emitted: &[u64]) {}

    /// Reads the account of the latest run from the tracer's own output; `None` if it records
    /// nothing.
    fn read_back(&mut self, workspace: &Workspace) -> Result<Option<Account>>;

    /// Returns true if the set-up takes too long for a quick run over all tracers.
    fn is_slow_to_set_up(&self) -> bool {
        false
    }

    /// Returns true if the tracer keeps events, so that its own output must show them.
    fn records(&self) -> bool {
        true
    }

    /// Modes in which it is measured; none if it has no workload of `harness.h`, or only one.
    fn modes(&self) -> &'static [BufferState] {
        &[]
    }

    /// Returns the name of a case's work in its workload.
    fn work(&self, case: &Case) -> &'static str {
        case.payload.work()
    }

    /// Runs the workload with these arguments of `harness.h`, traced in one of its modes, and keeps
    /// the tracer's output; returns the workload's output.
    fn emit(
        &mut self,
        _: &Workspace,
        _: &Case,
        _: BufferState,
        _arguments: &[String],
    ) -> Result<String> {
        Err(Error::output(self.name(), "it has no workload of its own"))
    }

    /// Reads the account of that run from the tracer's own output, given the number of events of
    /// each thread; `None` if the tracer records nothing.
    fn account(&mut self, workspace: &Workspace, emitted: &[u64]) -> Result<Option<Account>> {
        self.remember(emitted);
        self.read_back(workspace)
    }

    /// Returns the path of the output of that run, if there is one: a file, or a folder of files.
    fn output(&self, _: &Workspace) -> Option<PathBuf> {
        None
    }

    /// Returns true if [`Tracer::stream`] gives a result.
    fn streams(&self) -> bool {
        false
    }

    /// Returns true if [`Tracer::starts`] gives a result.
    fn starts_programs(&self) -> bool {
        false
    }

    /// Runs two threads for a time, as fast as they can, to files, with buffers of `_bytes` for
    /// each CPU; returns the events that arrived.
    fn stream(&mut self, _: &Workspace, _bytes: u64, _milliseconds: u32) -> Result<Option<Flow>> {
        Ok(None)
    }

    /// Starts a program that has events, again and again.
    fn starts(&mut self, _place: &Workspace, _count: u32) -> Result<Option<Starts>> {
        Ok(None)
    }

    /// Ends what `set_up` started.
    fn tear_down(&mut self);
}

/// Arguments of a workload program that runs a case.
pub fn batch_arguments(work: &str, case: &Case, plan: &BatchPlan, events: u64) -> [String; 5] {
    let count = plan.warm_up + plan.batches;
    let [threads, count, events] =
        [case.threads.into(), count.into(), events].map(|number| number.to_string());
    ["batches".to_owned(), work.to_owned(), threads, count, events]
}
