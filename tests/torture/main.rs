//! The torture test: processes, threads, a storm of signals, kills at random moments and tiny
//! buffers. Afterwards, every committed event must be in the trace once and in order, and all other
//! events counted.
//!
//! ```text
//! scripts/torture                      ten minutes
//! scripts/torture HOURS                this number of hours
//! scripts/torture [HOURS] from SEED    this number of hours, beginning with the round of SEED
//! scripts/torture short                what `make test` runs: a fixed set of seeds
//! scripts/torture seed N…              the rounds of these seeds
//! ```
//!
//! A round is drawn from its seed, including the sizes of each thread's records; seeds count up
//! from the first round's. The kernel's scheduling is not drawn, so a seed that failed once may
//! need a few more runs to fail again. `TRACKWAY_TORTURE_KEEP=DIR` keeps traces of failed rounds.

mod check;
mod plan;
mod round;
#[allow(dead_code, reason = "shared with tests/recover.rs; each needs a part")]
mod shared;
mod trace;
#[allow(dead_code, reason = "shared with tests/recover.rs; each needs a part")]
mod window;

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use check::RoundTotals;
use plan::{BufferMode, RoundEnd, RoundPlan, WriterPath};
use round::{Round, RoundOutcome};
use shared::{SharedFile, SharedWord};
use trackway_tests::{Fixture, has, report_skipped};

/// Seeds of the short form, chosen so that they include every mode, writer path and end.
const SHORT_SEEDS: std::ops::Range<u64> = 459..473;
/// Durations of a round's program, in the short form and in the long form.
const SHORT_ROUND_MS: u64 = 500;
const LONG_ROUND_MS: u64 = 1500;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let hours = |text: &str| {
        let hours = text.parse::<f64>().ok().filter(|&hours| hours > 0.0 && hours < 1e6);
        hours.map(|hours| Duration::from_secs_f64(hours * 3600.0))
    };
    let (limit, first) = match words[..] {
        ["short"] => {
            let mut torture = Torture::new();
            check_variety();
            SHORT_SEEDS.for_each(|seed| torture.round(seed, SHORT_ROUND_MS));
            return torture.finish();
        }
        ["seed", ref seeds @ ..] if !seeds.is_empty() => {
            let seeds: Result<Vec<u64>, _> = seeds.iter().map(|seed| seed.parse()).collect();
            let Ok(seeds) = seeds else { return print_usage() };
            let mut torture = Torture::new();
            seeds.into_iter().for_each(|seed| torture.round(seed, LONG_ROUND_MS));
            return torture.finish();
        }
        [] => (hours("0.16667"), Some(seed_from_time())),
        ["from", seed] => (hours("0.16667"), seed.parse().ok()),
        [limit] => (hours(limit), Some(seed_from_time())),
        [limit, "from", seed] => (hours(limit), seed.parse().ok()),
        _ => (None, None),
    };
    let (Some(limit), Some(first)) = (limit, first) else { return print_usage() };
    let mut torture = Torture::new();
    println!("torture: from seed {first}; the same rounds again: scripts/torture from {first}");
    for seed in first.. {
        if torture.started.elapsed() >= limit {
            break;
        }
        torture.round(seed, LONG_ROUND_MS);
    }
    torture.finish()
}

fn print_usage() -> ExitCode {
    eprintln!("usage: scripts/torture [[HOURS] [from SEED] | short | seed N...]");
    ExitCode::from(2)
}

fn seed_from_time() -> u64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs() * 1000
}

/// Checks that the short form includes every mode, writer path and end, and kills for each writer
/// path.
fn check_variety() {
    let plans: Vec<RoundPlan> =
        SHORT_SEEDS.map(|seed| RoundPlan::new(seed, SHORT_ROUND_MS)).collect();
    let has = |what: &dyn Fn(&RoundPlan) -> bool| plans.iter().any(what);
    assert!(
        BufferMode::ALL.iter().all(|mode| has(&|plan| plan.mode == *mode)),
        "a mode is missing"
    );
    assert!(RoundEnd::ALL.iter().all(|end| has(&|plan| plan.end == *end)), "an end is missing");
    let killed = |writer_path| has(&|plan| plan.writer_path == writer_path && plan.kills());
    assert!(
        WriterPath::ALL.iter().all(|writer_path| killed(*writer_path)),
        "a way is missing, or nobody killed in it"
    );
}

/// The state and the sums of the rounds so far.
struct Torture {
    fixture: Fixture,
    program: PathBuf,
    started: Instant,
    rounds: u64,
    killed: u64,
    processes: u64,
    overwritten: u64,
    /// Number of rounds whose memory stays because a dead process cannot be proved dead.
    kept: u64,
    sum: RoundTotals,
    failed: Vec<u64>,
}

impl Torture {
    fn new() -> Self {
        let fixture = Fixture::new("torture");
        let program = shared::compile_workload(&fixture);
        if !has("babeltrace2") {
            report_skipped("babeltrace2 is not installed: traces are read by our own reader only");
        }
        Self {
            fixture,
            program,
            started: Instant::now(),
            rounds: 0,
            killed: 0,
            processes: 0,
            overwritten: 0,
            kept: 0,
            sum: RoundTotals::default(),
            failed: Vec::new(),
        }
    }

    fn round(&mut self, seed: u64, duration_ms: u64) {
        let plan = RoundPlan::new(seed, duration_ms);
        println!("seed {seed}: {}", plan.describe());
        let shared = SharedFile::new(&self.fixture, &plan.orders);
        let round = Round {
            fixture: &self.fixture,
            program: &self.program,
            plan: &plan,
            shared: &shared,
            folder: self.fixture.path("trace"),
        };
        let RoundOutcome { totals, overwritten, keeps, complaint } = round.run();
        let killed = shared.get(SharedWord::Killed) + u64::from(plan.end != RoundEnd::ByItself);
        let processes = shared.get(SharedWord::Started) + 1;
        self.rounds += 1;
        self.killed += killed;
        self.processes += processes;
        self.overwritten += overwritten;
        let RoundTotals { started, recorded, lost, .. } = totals;
        self.sum.started += started;
        self.sum.recorded += recorded;
        self.sum.lost += lost;
        println!(
            "  {started} emitted: {recorded} recorded, {lost} lost, {overwritten} overwritten; \
             {processes} processes, {killed} killed"
        );
        if let Some(complaint) = complaint {
            self.failed.push(seed);
            println!("  FAILED\n{complaint}\n  again with: scripts/torture seed {seed}");
            self.keep(seed);
            self.begin_anew();
        } else if keeps {
            println!("  the session keeps its memory: somebody cannot be proved dead");
            self.kept += 1;
            self.begin_anew();
        }
    }

    /// Removes the leftovers of a round, so that they do not make later rounds fail.
    fn begin_anew(&mut self) {
        self.fixture = Fixture::new("torture");
        self.program = shared::compile_workload(&self.fixture);
    }

    /// Copies the files of a failed round to a folder for inspection, if the environment names one.
    fn keep(&self, seed: u64) {
        let Some(folder) = std::env::var_os("TRACKWAY_TORTURE_KEEP") else { return };
        let folder = PathBuf::from(folder).join(format!("seed-{seed}"));
        let found = ["trace", "messages", "shared"].map(|name| self.fixture.path(name));
        let copied = std::fs::create_dir_all(&folder).is_ok()
            && found
                .iter()
                .all(|from| Command::new("cp").arg("-r").arg(from).arg(&folder).status().is_ok());
        println!("  {} {}", if copied { "kept in" } else { "cannot be kept in" }, folder.display());
    }

    fn finish(&self) -> ExitCode {
        println!(
            "torture: {} rounds in {} s: {} events emitted, {} recorded, {} lost, {} overwritten; \
             {} processes, {} of them killed",
            self.rounds,
            self.started.elapsed().as_secs(),
            self.sum.started,
            self.sum.recorded,
            self.sum.lost,
            self.overwritten,
            self.processes,
            self.killed,
        );
        if self.kept > 0 {
            println!("torture: {} sessions keep their memory", self.kept);
        }
        if self.failed.is_empty() {
            return ExitCode::SUCCESS;
        }
        let seeds: Vec<String> = self.failed.iter().map(u64::to_string).collect();
        println!("torture: FAILED; again with: scripts/torture seed {}", seeds.join(" "));
        ExitCode::FAILURE
    }
}
