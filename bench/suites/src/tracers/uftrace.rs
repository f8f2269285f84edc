//! uftrace: a function with one number, compiled with -pg. uftrace records its entry, argument and
//! exit in one buffer for each thread; a separate process drains the buffers to a file.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::Command;

use trackway_bench_engine::case::{BufferState, Case};
use trackway_bench_engine::error::Result;
use trackway_bench_engine::host::child;
use trackway_bench_engine::host::workspace::{Workspace, has};
use trackway_bench_engine::results::Account;
use trackway_bench_engine::tracer::{Availability, Tracer};

use super::baseline::check_compiler;
use super::{RING_BYTES, name};
use crate::trace_check::numbers::{Numbers, number_after};

/// Name of the workload.
const PROGRAM: &str = "functions";
/// Output folder of uftrace, in the scratch folder.
const OUTPUT: &str = "uftrace.data";
/// Name of the traced function.
const FUNCTION: &str = "lab_value";

/// The adapter.
#[derive(Debug, Default)]
pub(crate) struct Uftrace {
    emitted: u64,
}

impl Uftrace {
    /// Records the workload with these arguments; returns the workload's output.
    fn record(workspace: &Workspace, arguments: &[String]) -> Result<String> {
        workspace.clear(OUTPUT);
        let mut command = Command::new("uftrace");
        command.args(["record", "--no-pager", "--no-libcall", "--no-event", "--no-sched"]);
        command.args(["-b", &RING_BYTES.to_string(), "-F", FUNCTION]);
        command.args(["-A", &format!("{FUNCTION}@arg1/u32"), "-d"]).arg(workspace.path(OUTPUT));
        command.arg(workspace.path(PROGRAM)).args(arguments);
        Ok(child::run(&mut command, "uftrace record")?.stdout)
    }

    /// Computes the account of the events.
    fn read_account(workspace: &Workspace, emitted: u64) -> Result<Account> {
        let mut replay = Command::new("uftrace");
        replay.args(["replay", "--no-pager", "--color=no", "-f", "none", "-F", FUNCTION, "-d"]);
        let finished = child::run(replay.arg(workspace.path(OUTPUT)), "uftrace replay")?;
        account_of_replay(&finished.stdout, emitted)
    }
}

impl Tracer for Uftrace {
    fn name(&self) -> &'static str {
        name::UFTRACE
    }

    fn availability(&self, _place: &Workspace) -> Availability {
        if has("uftrace") {
            check_compiler(has("cc"))
        } else {
            Availability::Missing("uftrace is not installed".to_owned())
        }
    }

    fn supports(&self, case: &Case) -> bool {
        *case == Case::SIMPLEST
    }

    fn batch_events(&self) -> u64 {
        1_000
    }

    fn set_up(&mut self, workspace: &Workspace) -> Result<()> {
        workspace.compile(PROGRAM, &["-pg"]).map(|_| ())
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
        Self::record(workspace, arguments)
    }

    fn output(&self, workspace: &Workspace) -> Option<PathBuf> {
        Some(workspace.path(OUTPUT))
    }

    fn tear_down(&mut self) {}
}

/// Computes the account of calls from a replay.
fn account_of_replay(replay: &str, emitted: u64) -> Result<Account> {
    let (numbers, records_lost) = parse_calls(replay);
    // A call has several records, and is missing if one of them is lost: the missing calls cannot
    // outnumber the lost records.
    let lost = numbers.missing(emitted).min(records_lost);
    numbers.account(name::UFTRACE, emitted, lost, 0)
}

/// Parses the calls of a replay, and the number of records that uftrace reports as lost: lines
/// `lab_value(17);` and `/* LOST 3 records!! */`. A report without a number does not count.
fn parse_calls(replay: &str) -> (Numbers, u64) {
    let (mut numbers, mut lost) = (Numbers::default(), 0_u64);
    for line in BufReader::new(replay.as_bytes()).lines().map_while(|line| line.ok()) {
        if let Some(number) = number_after(&line, &format!("{FUNCTION}(")) {
            numbers.add(number);
        }
        lost = lost.saturating_add(number_after(&line, "LOST ").unwrap_or(0));
    }
    (numbers, lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_with_their_numbers() {
        let (numbers, lost) = parse_calls("lab_value(0);\nlab_value(0x1);\n  lab_value(2);\n");
        let whole = numbers.account("uftrace", 3, 0, 0).expect("all");
        assert_eq!((whole.recorded, lost), (3, 0));
        let replay = "lab_value(0);\n/* LOST 3 records!! */\nlab_value(2);\n/* LOST 4 records!! */";
        let (numbers, lost) = parse_calls(replay);
        assert_eq!((numbers.missing(3), lost), (1, 7));
        assert_eq!(parse_calls("/* LOST some records */\n").1, 0);
    }

    #[test]
    fn what_is_lost_excuses_no_more_calls_than_records() {
        let replay = "lab_value(0);\n/* LOST 3 records!! */\n";
        let found = account_of_replay(replay, 4).expect("three calls and three records");
        assert_eq!((found.recorded, found.lost, found.is_complete()), (1, 3, true));
        let error = account_of_replay(replay, 1000).unwrap_err().to_string();
        assert!(error.contains("999 events are not there"), "{error}");
    }
}
