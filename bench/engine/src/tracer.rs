//! The interface between suites and tracers.

use std::path::PathBuf;

pub use crate::host::availability::Availability;

use crate::case::{BatchPlan, BufferState, Case};
use crate::error::{Error, Result};
use crate::host::workload::{self, Batch};
use crate::host::workspace::Workspace;
use crate::results::Account;

/// Durations of the starts of a program that is linked with a tracer.
#[derive(Debug, Clone, PartialEq)]
pub struct Starts {
    /// Time of fork, exec, run and wait for each start, in µs.
    pub us: Vec<f64>,
    /// Number of threads in the program.
    pub threads: u64,
}

/// The result of a run in which two threads emit as fast as they can, to files.
#[derive(Debug, Clone, PartialEq)]
pub struct Flow {
    /// Time during which the threads emitted events.
    pub emitting_seconds: f64,
    /// Time from the threads' first event until all recorded events were written to files, which
    /// may still be in the page cache.
    pub written_seconds: f64,
    /// Time from then until all recorded events were on the disk.
    pub fsync_seconds: f64,
    /// The account of the events.
    pub account: Account,
}

/// A tracer in one way of use, and the methods that operate it.
///
/// `set_up` is called first and `tear_down` last, even after failures; in between, runs follow in
/// any order.
pub trait Tracer {
    /// Returns the name of the tracer's row.
    fn name(&self) -> &'static str;

    /// Checks, without starting anything, that the tracer can be measured on this machine.
    fn availability(&self, workspace: &Workspace) -> Availability;

    /// Returns true if the tracer can run `case`.
    fn supports(&self, case: &Case) -> bool;

    /// Returns the number of events of one batch: a fraction of a millisecond or a few, so that
    /// most batches are not interrupted, even if other processes compete for the CPUs. Twenty
    /// batches fill the ring once.
    fn batch_events(&self) -> u64;

    /// Compiles the workload, and starts daemons.
    fn set_up(&mut self, workspace: &Workspace) -> Result<()>;

    /// Runs the workload in batches, traced in its first mode, and keeps the tracer's output.
    fn run(&mut self, workspace: &Workspace, case: &Case, plan: &BatchPlan) -> Result<Vec<Batch>> {
        let arguments = batch_arguments(self.work(case), case, plan, self.batch_events());
        let output = self.emit(workspace, case, BufferState::Overwrite, &arguments)?;
        let batches = workload::parse_batches(&output)?;
        self.remember(&workload::count_events_by_thread(&batches));
        Ok(batches)
    }

    /// Stores the number of events that each thread of the latest run emitted, for
    /// [`Tracer::read_back`].
    fn remember(&mut self, _emitted: &[u64]) {}

    /// Reads the account of the latest run from the tracer's own output; `None` if the tracer
    /// records nothing.
    fn read_back(&mut self, workspace: &Workspace) -> Result<Option<Account>>;

    /// Returns true if the set-up takes too long for a quick run over all tracers.
    fn is_slow_to_set_up(&self) -> bool {
        false
    }

    /// Returns true if the tracer keeps events, so that its own output must show them.
    fn records(&self) -> bool {
        true
    }

    /// Returns the buffer states in which the tracer is measured; none if it has no workload of
    /// `harness.h`, or only one state.
    fn modes(&self) -> &'static [BufferState] {
        &[]
    }

    /// Returns the name of a case's work in its workload.
    fn work(&self, case: &Case) -> &'static str {
        case.payload.work()
    }

    /// Runs the workload with these arguments of `harness.h`, traced in the given buffer state, and
    /// keeps the tracer's output; returns the workload's output.
    fn emit(
        &mut self,
        _: &Workspace,
        _: &Case,
        _: BufferState,
        _arguments: &[String],
    ) -> Result<String> {
        Err(Error::output(self.name(), "it has no workload of its own"))
    }

    /// Reads the account of the latest `emit` from the tracer's own output, given the number of
    /// events of each thread; `None` if the tracer records nothing.
    fn account(&mut self, workspace: &Workspace, emitted: &[u64]) -> Result<Option<Account>> {
        self.remember(emitted);
        self.read_back(workspace)
    }

    /// Returns the path of the output of the latest `emit`, if it exists: a file, or a folder of
    /// files.
    fn output(&self, _: &Workspace) -> Option<PathBuf> {
        None
    }

    /// Returns true if [`Tracer::stream`] returns a result.
    fn streams(&self) -> bool {
        false
    }

    /// Returns true if [`Tracer::starts`] measures this tracer: how long programs with events take
    /// to start.
    fn starts_programs(&self) -> bool {
        false
    }

    /// Runs two threads at full speed for a time, to files, with buffers of `_bytes` for each CPU;
    /// returns the events that reached the files.
    fn stream(&mut self, _: &Workspace, _bytes: u64, _milliseconds: u32) -> Result<Option<Flow>> {
        Ok(None)
    }

    /// Starts a program with events `_count` times; returns how long each start took.
    fn starts(&mut self, _place: &Workspace, _count: u32) -> Result<Option<Starts>> {
        Ok(None)
    }

    /// Ends the parts that `set_up` started.
    fn tear_down(&mut self);
}

/// Returns the arguments of a workload program that runs a case.
pub fn batch_arguments(work: &str, case: &Case, plan: &BatchPlan, events: u64) -> [String; 5] {
    let count = plan.warm_up + plan.batches;
    let [threads, count, events] =
        [case.threads.into(), count.into(), events].map(|number| number.to_string());
    ["batches".to_owned(), work.to_owned(), threads, count, events]
}
