//! A uprobe event on a probe of <sys/sdt.h>, recorded by `perf record` and drained to a file.

use std::path::{Path, PathBuf};
use std::process::Command;

use trackway_bench_engine::case::{BufferState, Case};
use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::child;
use trackway_bench_engine::host::tracefs::{Tracefs, Uprobe};
use trackway_bench_engine::host::workspace::{Workspace, has};
use trackway_bench_engine::results::Account;
use trackway_bench_engine::tracer::{Availability, Tracer};

use super::ftrace::{PROBE_PROGRAM, check_uprobe_support, create_uprobe};
use super::{RING_BYTES, name};
use crate::trace_check::numbers::{Numbers, number_after};

/// Output file of perf, in the scratch folder.
pub(super) const OUTPUT: &str = "perf.data";
/// One event in so many may occur twice in perf's output: about ten times the observed share of
/// repeated events.
const TWICE_SHARE_MIN: usize = 500;

/// The adapter.
#[derive(Debug, Default)]
pub(crate) struct Perf {
    emitted: u64,
    uprobe: Option<Uprobe>,
    tracefs: Option<Tracefs>,
}

impl Perf {
    /// Records the workload with these arguments; returns the workload's output.
    fn record(&self, workspace: &Workspace, arguments: &[String]) -> Result<String> {
        let Some(uprobe) = &self.uprobe else {
            return Err(Error::output(name::PERF, "it is not set up"));
        };
        let output = workspace.path(OUTPUT);
        // perf would keep an old file next to the new one.
        let _ = std::fs::remove_file(&output);
        let mut command = record_command(RING_BYTES, &output);
        command
            .args(["-e", &uprobe.for_perf()])
            .arg("--")
            .arg(workspace.path(PROBE_PROGRAM))
            .args(arguments);
        Ok(child::run(&mut command, "perf record")?.stdout)
    }

    /// Computes the account of the events.
    pub(super) fn read_account(workspace: &Workspace, emitted: u64) -> Result<Account> {
        let (samples, lost) = count_samples(&workspace.path(OUTPUT))?;
        let mut script = Command::new("perf");
        script.args(["script", "-F", "trace", "-i"]).arg(workspace.path(OUTPUT));
        // perf orders events of several CPUs by their times, and may detect a wrong order if a
        // thread moves. All events must occur, each once.
        let shown = child::run(&mut script, "perf script")?.stdout;
        let found: Vec<u64> =
            shown.lines().filter_map(|line| number_after(line, " value=")).collect();
        let shown = found.len() as u64;
        if shown != samples {
            let message = format!("it shows {shown} events, and says that there are {samples}");
            return Err(Error::output(name::PERF, message));
        }
        deduplicate_numbers(found)?.account(name::PERF, emitted, lost, 0)
    }
}

impl Tracer for Perf {
    fn name(&self) -> &'static str {
        name::PERF
    }

    fn availability(&self, _place: &Workspace) -> Availability {
        if !has("perf") {
            return Availability::Missing("perf is not installed".to_owned());
        }
        match Tracefs::find() {
            // perf would mount tracefs, and leave it mounted.
            Ok(tracefs) if !tracefs.is_mounted() => {
                Availability::Missing("tracefs is not mounted, where perf looks".to_owned())
            }
            _ => check_uprobe_support(),
        }
    }

    fn supports(&self, case: &Case) -> bool {
        *case == Case::SIMPLEST
    }

    fn batch_events(&self) -> u64 {
        500
    }

    fn set_up(&mut self, workspace: &Workspace) -> Result<()> {
        let tracefs = Tracefs::find().map_err(|reason| Error::output(name::PERF, reason))?;
        self.uprobe = Some(create_uprobe(workspace, &tracefs, "perf")?);
        self.tracefs = Some(tracefs);
        Ok(())
    }

    fn remember(&mut self, emitted: &[u64]) {
        self.emitted = emitted.iter().sum();
    }

    fn read_back(&mut self, workspace: &Workspace) -> Result<Option<Account>> {
        Self::read_account(workspace, self.emitted).map(Some)
    }

    fn emit(
        &mut self,
        workspace: &Workspace,
        _case: &Case,
        _mode: BufferState,
        arguments: &[String],
    ) -> Result<String> {
        self.record(workspace, arguments)
    }

    fn output(&self, workspace: &Workspace) -> Option<PathBuf> {
        Some(workspace.path(OUTPUT))
    }

    fn tear_down(&mut self) {
        self.uprobe = None;
        self.tracefs = None;
    }
}

/// Makes the command `perf record` to a file, with per-CPU buffers of `buffer_bytes`; the caller
/// adds the events and the program. perf keeps no list of programs' files, like the other tracers.
pub(super) fn record_command(buffer_bytes: u64, output: &Path) -> Command {
    let mut command = Command::new("perf");
    command.args(["record", "-q", "-N", "-B", "-m", &format!("{buffer_bytes}B"), "-o"]).arg(output);
    command
}

/// Returns the numbers in perf's output, each once. Of 100,000 hits of a uprobe, perf shows a few
/// twice, at the same nanosecond (Linux 6.18; the authors of Orbit also observed this).
fn deduplicate_numbers(mut found: Vec<u64>) -> Result<Numbers> {
    let shown = found.len();
    found.sort_unstable();
    found.dedup();
    let twice = shown - found.len();
    if twice > shown / TWICE_SHARE_MIN {
        let message = format!("of {shown} events that it shows, {twice} were there before");
        return Err(Error::output(name::PERF, message));
    }
    let mut numbers = Numbers::default();
    found.into_iter().for_each(|number| numbers.add(number));
    Ok(numbers)
}

/// Returns the number of samples in a file of perf, and the number of lost samples that perf
/// reports.
pub(super) fn count_samples(file: &Path) -> Result<(u64, u64)> {
    let mut report = Command::new("perf");
    report.args(["report", "--stats", "-i"]).arg(file);
    let stats = child::run(&mut report, "perf report")?.stdout;
    parse_report_stats(&stats)
        .ok_or_else(|| Error::output("perf report --stats", "there are no samples"))
}

/// Parses `perf report --stats`: lines `NAME events: COUNT`, first for all events, then for each
/// event under a separate heading.
fn parse_report_stats(stats: &str) -> Option<(u64, u64)> {
    let is_of_one = |line: &&str| line.ends_with(" stats:") && !line.starts_with("Aggregated");
    let (mut samples, mut lost) = (None, 0);
    for line in stats.lines().take_while(|line| !is_of_one(line)) {
        let Some((name, rest)) = line.trim().split_once(" events:") else { continue };
        let count: u64 = rest.split_whitespace().next()?.parse().ok()?;
        match name {
            "SAMPLE" => samples = Some(count),
            // A loss record may stand for many samples; the number of samples follows below, for
            // each event.
            "LOST_SAMPLES" | "LOST" => lost = lost.max(count),
            _ => {}
        }
    }
    // The kernel counts lost samples for each event (since Linux 6.0).
    let of_each: u64 = stats
        .lines()
        .skip_while(|line| !is_of_one(line))
        .filter_map(|line| line.trim().strip_prefix("LOST_SAMPLES events:"))
        .filter_map(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
        .sum();
    Some((samples?, lost.max(of_each)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_and_lost_ones_are_read() {
        let text = "\nAggregated stats:\n           TOTAL events:     280053\n          \
                    SAMPLE events:     280000  (100.0%)\n  FINISHED_ROUND events:         39\n\
                    trackway_lab_1:perf stats:\n          SAMPLE events:     280000\n    \
                    LOST_SAMPLES events:      21504\n";
        assert_eq!(parse_report_stats(text), Some((280_000, 21_504)));
        assert_eq!(parse_report_stats("Aggregated stats:\n   TOTAL events:  3\n"), None);
    }

    #[test]
    fn few_events_may_be_shown_twice() {
        let few = (0..2000).chain([7, 1998]).collect();
        let numbers = deduplicate_numbers(few).expect("as it does");
        let account = numbers.account("perf", 2000, 0, 0).expect("all are there");
        assert_eq!((account.recorded, account.is_complete()), (2000, true));
        assert!(deduplicate_numbers((0..2000).chain(0..5).collect()).is_err());
        // Even without repetitions, no number may be missing.
        let gap =
            deduplicate_numbers((0..1000).chain(1001..2000).chain([7]).collect()).expect("few");
        assert!(gap.account("perf", 2000, 0, 0).is_err());
    }

    #[test]
    fn samples_of_perf_are_counted_once() {
        let text = "\nAggregated stats:\n           TOTAL events:         30\n            \
                    LOST events:         12  ( 0.0%)\n          \
                    SAMPLE events:         18  (98.5%)\n\
                    sched:sched_stat_runtime stats:\n          SAMPLE events:      10\n    \
                    LOST_SAMPLES events:      21504\nsched:sched_switch stats:\n          \
                    SAMPLE events:      8\n    LOST_SAMPLES events:      2\n";
        assert_eq!(parse_report_stats(text), Some((18, 21506)));
        assert_eq!(parse_report_stats("nothing"), None);
    }
}
