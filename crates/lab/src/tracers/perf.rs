//! `perf record` of a uprobe event on a probe of <sys/sdt.h>: drained to a file while it records.

use std::path::PathBuf;
use std::process::Command;

use super::ftrace::{PROBE_PROGRAM, probe, uprobes};
use super::numbers::{Numbers, number_after};
use super::{RING_BYTES, batch_arguments, name};
use crate::case::{Case, Mode, Plan};
use crate::child;
use crate::error::{Error, Result};
use crate::place::{Place, has};
use crate::results::Account;
use crate::tracefs::{Tracefs, Uprobe};
use crate::tracer::{Availability, Tracer};
use crate::workload::{self, Batch};

/// What it writes, in the scratch folder.
const OUTPUT: &str = "perf.data";
/// Bytes of a page, of which its buffers are counted.
const PAGE_BYTES: u64 = 4096;

/// The adapter.
#[derive(Debug, Default)]
pub(crate) struct Perf {
    emitted: u64,
    uprobe: Option<Uprobe>,
    tracefs: Option<Tracefs>,
}

impl Perf {
    /// The workload with these arguments, recorded: what it printed.
    fn record(&self, place: &Place, arguments: &[String]) -> Result<String> {
        let Some(uprobe) = &self.uprobe else {
            return Err(Error::output(name::PERF, "it is not set up"));
        };
        let output = place.path(OUTPUT);
        // It would keep another one's beside its own.
        let _ = std::fs::remove_file(&output);
        let pages = (RING_BYTES / PAGE_BYTES).to_string();
        let mut command = Command::new("perf");
        command.args(["record", "-q", "-N", "-B", "-m", &pages, "-e", &uprobe.for_perf(), "-o"]);
        command.arg(output).arg("--").arg(place.path(PROBE_PROGRAM)).args(arguments);
        Ok(child::run(&mut command, "perf record")?.stdout)
    }

    /// What became of so many events.
    fn found(place: &Place, emitted: u64) -> Result<Account> {
        let mut stats = Command::new("perf");
        stats.args(["report", "--stats", "-i"]).arg(place.path(OUTPUT));
        let stats = child::run(&mut stats, "perf report")?.stdout;
        let (samples, lost) = counts(&stats)
            .ok_or_else(|| Error::output("perf report --stats", "there are no samples"))?;
        let mut script = Command::new("perf");
        script.args(["script", "-F", "trace", "-i"]).arg(place.path(OUTPUT));
        // It shows what was recorded on one CPU and then on another by their times, which it may
        // take for the wrong order where a thread moves: all must be there, each once.
        let shown = child::run(&mut script, "perf script")?.stdout;
        let mut found: Vec<u64> =
            shown.lines().filter_map(|line| number_after(line, " value=")).collect();
        found.sort_unstable();
        let mut numbers = Numbers::default();
        found.into_iter().for_each(|number| numbers.add(number));
        if numbers.events() != samples {
            let (shown, said) = (numbers.events(), samples);
            let message = format!("it shows {shown} events, and says that there are {said}");
            return Err(Error::output(name::PERF, message));
        }
        numbers.account(name::PERF, emitted, lost, 0)
    }
}

impl Tracer for Perf {
    fn name(&self) -> &'static str {
        name::PERF
    }

    fn availability(&self, _place: &Place) -> Availability {
        if !has("perf") {
            return Availability::Missing("perf is not installed".to_owned());
        }
        match Tracefs::find() {
            // perf would mount it, and leave it so.
            Ok(tracefs) if !tracefs.is_mounted() => {
                Availability::Missing("tracefs is not mounted, where perf looks".to_owned())
            }
            _ => uprobes(),
        }
    }

    fn supports(&self, case: &Case) -> bool {
        *case == Case::SIMPLEST
    }

    fn batch_events(&self) -> u64 {
        500
    }

    fn set_up(&mut self, place: &Place) -> Result<()> {
        let tracefs = Tracefs::find().map_err(|reason| Error::output(name::PERF, reason))?;
        self.uprobe = Some(probe(place, &tracefs, "perf")?);
        self.tracefs = Some(tracefs);
        Ok(())
    }

    fn run(&mut self, place: &Place, case: &Case, plan: &Plan) -> Result<Vec<Batch>> {
        let arguments = batch_arguments(case.payload.work(), case, plan, self.batch_events());
        let batches = workload::batches(&self.record(place, &arguments)?)?;
        self.emitted = batches.iter().map(|batch| batch.events).sum();
        Ok(batches)
    }

    fn read_back(&mut self, place: &Place) -> Result<Option<Account>> {
        Self::found(place, self.emitted).map(Some)
    }

    fn emit(
        &mut self,
        place: &Place,
        _case: &Case,
        _mode: Mode,
        arguments: &[String],
    ) -> Result<String> {
        self.record(place, arguments)
    }

    fn account(&mut self, place: &Place, emitted: &[u64]) -> Result<Option<Account>> {
        self.emitted = emitted.iter().sum();
        self.read_back(place)
    }

    fn output(&self, place: &Place) -> Option<PathBuf> {
        Some(place.path(OUTPUT))
    }

    fn tear_down(&mut self) {
        self.uprobe = None;
        self.tracefs = None;
    }
}

/// Samples, and lost ones, of `perf report --stats`: lines `NAME events: COUNT`, first of all
/// events, then of each under a heading of its own.
fn counts(stats: &str) -> Option<(u64, u64)> {
    let count = |name: &str| {
        let lines = stats.lines().filter_map(|line| {
            let rest = line.trim().strip_prefix(name)?.strip_prefix(" events:")?;
            rest.split_whitespace().next()?.parse::<u64>().ok()
        });
        lines.max()
    };
    // Since Linux 6.0 the kernel counts lost ones of each event; before, it says so in between.
    let lost = count("LOST_SAMPLES").or_else(|| count("LOST")).unwrap_or(0);
    Some((count("SAMPLE")?, lost))
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
        assert_eq!(counts(text), Some((280_000, 21_504)));
        assert_eq!(counts("Aggregated stats:\n   TOTAL events:  3\n"), None);
    }
}
