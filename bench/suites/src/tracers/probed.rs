//! ftrace, perf and bpftrace around any program with the workloads' probe; their output contains
//! the probe's numbers.

use std::path::Path;
use std::process::Command;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::child;
use trackway_bench_engine::host::tracefs::{Instance, Tracefs};
use trackway_bench_engine::host::workspace::Workspace;
use trackway_bench_engine::results::Account;
use trackway_bench_engine::tracer::{Availability, Tracer as _};

use super::bpftrace::{self, Bpftrace, BpftraceOutput};
use super::ftrace::{self, Ftrace};
use super::name;
use super::perf::{self, Perf};
use crate::trace_check::numbers::Numbers;

/// Name of the event and of the instance.
const NAME: &str = "whole";
/// Output file of bpftrace, in the scratch folder.
const OUTPUT: &str = "probed.json";

/// The tracer that attaches to the probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prober {
    /// ftrace, by a uprobe event in a private instance.
    Ftrace,
    /// perf record, by a uprobe event.
    Perf,
    /// bpftrace, which counts events.
    Bpftrace,
}

/// The program with the probe, its arguments, and the words of a command before it, if there are
/// any.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProbedCommand<'a> {
    pub(crate) before: &'a [String],
    pub(crate) words: &'a [String],
    /// Number of times that the program reaches the probe; the probe's number counts from 0.
    pub(crate) emitted: u64,
    /// Size of the per-CPU buffers, in KiB.
    pub(crate) buffer_kib: u64,
}

impl Prober {
    /// Returns the name of the tracer's row.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ftrace => name::FTRACE_UPROBE,
            Self::Perf => name::PERF,
            Self::Bpftrace => name::BPFTRACE,
        }
    }

    /// Returns the reason if the tracer is not available.
    pub(crate) fn absence(self, workspace: &Workspace) -> Option<String> {
        let found = match self {
            Self::Ftrace => Ftrace::uprobe().availability(workspace),
            Self::Perf => Perf::default().availability(workspace),
            Self::Bpftrace => Bpftrace::default().availability(workspace),
        };
        match found {
            Availability::Missing(reason) => Some(reason),
            Availability::Ready => None,
        }
    }

    /// Runs the command under the tracer; returns the program's output, and the account of the
    /// probe's numbers.
    pub(crate) fn run(
        self,
        workspace: &Workspace,
        probed: &ProbedCommand<'_>,
    ) -> Result<(String, Account)> {
        match self {
            Self::Ftrace => run_ftrace(probed),
            Self::Perf => run_perf(workspace, probed),
            Self::Bpftrace => run_bpftrace(workspace, probed),
        }
    }
}

impl ProbedCommand<'_> {
    fn program(&self) -> &Path {
        Path::new(self.words.first().map_or("", String::as_str))
    }

    /// Runs the command `words`, after the words in `before`.
    fn run(&self, words: &[String], what: &str) -> Result<String> {
        let words = [self.before, words].concat();
        let mut command = Command::new(&words[0]);
        Ok(child::run(command.args(&words[1..]), what)?.stdout)
    }
}

fn find_tracefs(tracer: &'static str) -> Result<Tracefs> {
    Tracefs::find().map_err(|reason| Error::output(tracer, reason))
}

fn run_ftrace(probed: &ProbedCommand<'_>) -> Result<(String, Account)> {
    let tracefs = find_tracefs(name::FTRACE_UPROBE)?;
    // Drop order: an event cannot be removed while an instance has it enabled.
    let uprobe = ftrace::create_uprobe_of(probed.program(), &tracefs, NAME)?;
    let instance = Instance::new(&tracefs, NAME, probed.buffer_kib)?;
    instance.write(&uprobe.enable(), "1")?;
    let stdout = probed.run(probed.words, name::FTRACE_UPROBE)?;
    instance.write("tracing_on", "0")?;
    let stats = instance.stats()?;
    let mut numbers = Numbers::default();
    ftrace::read_numbers(&instance.path("trace"), &mut numbers)?;
    let (lost, overwritten) = (stats.dropped, stats.overrun);
    let account = numbers.account(name::FTRACE_UPROBE, probed.emitted, lost, overwritten)?;
    Ok((stdout, account))
}

fn run_perf(workspace: &Workspace, probed: &ProbedCommand<'_>) -> Result<(String, Account)> {
    let tracefs = find_tracefs(name::PERF)?;
    let uprobe = ftrace::create_uprobe_of(probed.program(), &tracefs, NAME)?;
    let output = workspace.path(perf::OUTPUT);
    // perf would keep an old file next to the new one.
    let _ = std::fs::remove_file(&output);
    let mut command = perf::record_command(probed.buffer_kib << 10, &output);
    command.args(["-e", &uprobe.for_perf()]).arg("--").args(probed.words);
    let stdout = probed.run(&command_words(&command), "perf record")?;
    Ok((stdout, Perf::read_account(workspace, probed.emitted)?))
}

fn run_bpftrace(workspace: &Workspace, probed: &ProbedCommand<'_>) -> Result<(String, Account)> {
    let output = workspace.path(OUTPUT);
    let script = format!("usdt:{}:lab:number {{ @ = count(); }}", probed.program().display());
    let command = bpftrace::build_command(&script, probed.words, &output);
    let stdout = probed.run(&command_words(&command), name::BPFTRACE)?;
    let results = BpftraceOutput::read_and_remove(&output)?;
    // bpftrace adds empty lines to the program's output.
    let stdout = stdout.trim().to_owned();
    let (emitted, recorded, lost) = (probed.emitted, results.count("@"), results.lost);
    Ok((stdout, Account { emitted, recorded, lost, ..Account::default() }))
}

/// Returns a command word by word.
fn command_words(command: &Command) -> Vec<String> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect()
}
