//! bpftrace on a probe of <sys/sdt.h>: it counts events, as its users do, and keeps none.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use trackway_bench_engine::case::{BatchPlan, Case};
use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::child;
use trackway_bench_engine::host::tracefs::Tracefs;
use trackway_bench_engine::host::workload::{self, Batch};
use trackway_bench_engine::host::workspace::{Workspace, has};
use trackway_bench_engine::results::Account;
use trackway_bench_engine::tracer::{Availability, Tracer};

use super::ftrace::{PROBE_PROGRAM, check_probe_support};
use super::{batch_arguments, name};

/// Output file of bpftrace, in the scratch folder.
const OUTPUT: &str = "bpftrace.json";

/// The adapter.
#[derive(Debug, Default)]
pub(crate) struct Bpftrace {
    emitted: u64,
}

impl Tracer for Bpftrace {
    fn name(&self) -> &'static str {
        name::BPFTRACE
    }

    fn availability(&self, _place: &Workspace) -> Availability {
        if !has("bpftrace") {
            return Availability::Missing("bpftrace is not installed".to_owned());
        }
        match Tracefs::find() {
            Err(_) => Availability::Missing("only root can use it, where tracefs is".to_owned()),
            Ok(_) => check_probe_support(),
        }
    }

    fn supports(&self, case: &Case) -> bool {
        *case == Case::SIMPLEST
    }

    fn batch_events(&self) -> u64 {
        1_000
    }

    fn set_up(&mut self, workspace: &Workspace) -> Result<()> {
        workspace.compile(PROBE_PROGRAM, &[]).map(|_| ())
    }

    fn run(&mut self, workspace: &Workspace, case: &Case, plan: &BatchPlan) -> Result<Vec<Batch>> {
        let program = workspace.path(PROBE_PROGRAM).display().to_string();
        if program.contains([' ', '\t', ':', '"']) {
            let message = format!("it cannot be told of a program at '{program}'");
            return Err(Error::output(self.name(), message));
        }
        let script = format!("usdt:{program}:lab:number {{ @ = count(); }}");
        let mut words = vec![program];
        words.extend(batch_arguments(case.payload.work(), case, plan, self.batch_events()));
        let mut command = build_command(&script, &words, &workspace.path(OUTPUT));
        let finished = child::run(&mut command, self.name())?;
        // bpftrace prints other lines between the batches.
        let lines = finished.stdout.lines().filter(|line| line.starts_with("batch "));
        let batches = workload::parse_batches(&lines.collect::<Vec<&str>>().join("\n"))?;
        self.emitted = batches.iter().map(|batch| batch.events).sum();
        Ok(batches)
    }

    fn read_back(&mut self, workspace: &Workspace) -> Result<Option<Account>> {
        let results = BpftraceOutput::read_and_remove(&workspace.path(OUTPUT))?;
        let (recorded, lost) = (results.count("@"), results.lost);
        Ok(Some(Account { emitted: self.emitted, recorded, lost, ..Account::default() }))
    }

    fn tear_down(&mut self) {}
}

/// Makes the command of bpftrace with a script; bpftrace runs the command `words`, split at spaces,
/// and writes lines of JSON.
pub(super) fn build_command(script: &str, words: &[String], output: &Path) -> Command {
    let mut command = Command::new("bpftrace");
    command.args(["-f", "json", "-e", script, "-c", &words.join(" "), "-o"]).arg(output);
    command
}

/// The output of bpftrace.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct BpftraceOutput {
    /// bpftrace's maps, by name.
    maps: serde_json::Map<String, Value>,
    /// Number of events that bpftrace reports as lost.
    pub(super) lost: u64,
}

impl BpftraceOutput {
    /// Reads and removes the file, so that the next run cannot leave it unchanged.
    pub(super) fn read_and_remove(file: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(file);
        let text = text.map_err(Error::io("cannot read what bpftrace wrote"))?;
        let _ = std::fs::remove_file(file);
        Ok(Self::of(&text))
    }

    /// Parses lines of JSON, ignoring other lines.
    pub(super) fn of(text: &str) -> Self {
        let mut results = Self::default();
        for line in text.lines() {
            let Ok(line) = serde_json::from_str::<Value>(line) else { continue };
            match (line["type"].as_str(), &line["data"]) {
                (Some("map"), Value::Object(maps)) => results.maps.extend(maps.clone()),
                (Some("lost_events"), data) => results.lost += data["events"].as_u64().unwrap_or(0),
                _ => {}
            }
        }
        results
    }

    /// Returns the count of a map without keys.
    pub(super) fn count(&self, map: &str) -> u64 {
        self.maps.get(map).and_then(Value::as_u64).unwrap_or(0)
    }

    /// Returns the counts of a map, by key.
    pub(super) fn counts(&self, map: &str) -> impl Iterator<Item = (&str, u64)> {
        let counts = self.maps.get(map).and_then(Value::as_object).into_iter().flatten();
        counts.filter_map(|(key, count)| Some((key.as_str(), count.as_u64()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_map_is_read() {
        let text = "{\"type\": \"attached_probes\", \"data\": {\"probes\": 1}}\n\
                    {\"type\": \"map\", \"data\": {\"@\": 280000}}\n";
        let results = BpftraceOutput::of(text);
        assert_eq!((results.count("@"), results.count("@none"), results.lost), (280_000, 0, 0));
        let results =
            BpftraceOutput::of("{\"type\": \"lost_events\", \"data\": {\"events\": 3}}\n");
        assert_eq!((results.count("@"), results.lost), (0, 3));
        assert_eq!(BpftraceOutput::of("no JSON"), BpftraceOutput::default());
    }
}
