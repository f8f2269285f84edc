//! bpftrace on a probe of <sys/sdt.h>: it counts, as its users have it do, and keeps no events.

use std::process::Command;

use super::ftrace::{PROBE_PROGRAM, probes};
use super::{batch_arguments, name};
use crate::case::{Case, Plan};
use crate::child;
use crate::error::{Error, Result};
use crate::place::{Place, has};
use crate::results::Account;
use crate::tracefs::Tracefs;
use crate::tracer::{Availability, Tracer};
use crate::workload::{self, Batch};

/// What it writes, in the scratch folder.
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

    fn availability(&self, _place: &Place) -> Availability {
        if !has("bpftrace") {
            return Availability::Missing("bpftrace is not installed".to_owned());
        }
        match Tracefs::find() {
            Err(_) => Availability::Missing("only root can use it, where tracefs is".to_owned()),
            Ok(_) => probes(),
        }
    }

    fn supports(&self, case: &Case) -> bool {
        *case == Case::SIMPLEST
    }

    fn batch_events(&self) -> u64 {
        1_000
    }

    fn set_up(&mut self, place: &Place) -> Result<()> {
        place.compile(PROBE_PROGRAM, &[]).map(|_| ())
    }

    fn run(&mut self, place: &Place, case: &Case, plan: &Plan) -> Result<Vec<Batch>> {
        let program = place.path(PROBE_PROGRAM).display().to_string();
        if program.contains([' ', '\t', ':', '"']) {
            let message = format!("it cannot be told of a program at '{program}'");
            return Err(Error::output(self.name(), message));
        }
        let script = format!("usdt:{program}:lab:number {{ @ = count(); }}");
        // What it is to run is one word to it, taken apart at spaces.
        let mut words = vec![program];
        words.extend(batch_arguments(case.payload.work(), case, plan, self.batch_events()));
        let mut command = Command::new("bpftrace");
        command.args(["-f", "json", "-e", &script, "-c", &words.join(" "), "-o"]);
        let finished = child::run(command.arg(place.path(OUTPUT)), self.name())?;
        // It says things of its own in between.
        let lines = finished.stdout.lines().filter(|line| line.starts_with("batch "));
        let batches = workload::batches(&lines.collect::<Vec<&str>>().join("\n"))?;
        self.emitted = batches.iter().map(|batch| batch.events).sum();
        Ok(batches)
    }

    fn read_back(&mut self, place: &Place) -> Result<Option<Account>> {
        let path = place.path(OUTPUT);
        let text = std::fs::read_to_string(&path);
        let text = text.map_err(Error::io("cannot read what bpftrace wrote"))?;
        // What the next run does not write must not be there.
        let _ = std::fs::remove_file(&path);
        let (recorded, lost) = counts(&text);
        Ok(Some(Account { emitted: self.emitted, recorded, lost, ..Account::default() }))
    }

    fn tear_down(&mut self) {}
}

/// What it counted, and what it says it has lost: lines of JSON.
fn counts(text: &str) -> (u64, u64) {
    let (mut counted, mut lost) = (0, 0);
    for line in text.lines() {
        let Ok(line) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        let data = &line["data"];
        counted += data["@"].as_u64().unwrap_or(0);
        lost += data["events"].as_u64().filter(|_| line["type"] == "lost_events").unwrap_or(0);
    }
    (counted, lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_map_is_read() {
        let text = "{\"type\": \"attached_probes\", \"data\": {\"probes\": 1}}\n\
                    {\"type\": \"map\", \"data\": {\"@\": 280000}}\n";
        assert_eq!(counts(text), (280_000, 0));
        assert_eq!(counts("{\"type\": \"lost_events\", \"data\": {\"events\": 3}}\n"), (0, 3));
        assert_eq!(counts("no JSON"), (0, 0));
    }
}
