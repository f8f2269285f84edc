//! The torture test: processes, threads, a storm of signals, kills at random moments and tiny
//! buffers; then every committed event must be in the trace once and in order, and the rest
//! counted.
//!
//! ```text
//! scripts/torture            ten minutes
//! scripts/torture HOURS      so many hours
//! scripts/torture short      what `make test` runs: a fixed set of seeds
//! scripts/torture seed N…    these rounds again
//! ```
//!
//! A round is drawn from its seed. The kernel's scheduling is not, so a seed that failed once may
//! need a few more runs to fail again.

mod check;
mod plan;
#[allow(dead_code, reason = "shared with tests/recover.rs; each needs a part")]
mod shared;
mod trace;

use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use check::Totals;
use plan::{Mode, Plan, Way};
use shared::{Group, Shared, Word};
use trace::Complaints;
use trackway_tests::{Summary, World, has, skipped};

/// Rounds of the short form: chosen so that every mode and way is among them.
const SHORT_SEEDS: std::ops::Range<u64> = 1..15;
/// How long a round's program records: of the short form, of the long one.
const SHORT_MS: u64 = 500;
const LONG_MS: u64 = 1500;
/// Most time that a round's program and recorder may take.
const ROUND_LIMIT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut torture = Torture::new();
    match words[..] {
        ["short"] => SHORT_SEEDS.for_each(|seed| torture.round(seed, SHORT_MS)),
        ["seed", ref seeds @ ..] => {
            for seed in seeds {
                torture.round(seed.parse().expect("a seed is a number"), LONG_MS);
            }
        }
        [] => torture.run_for(Duration::from_secs(600)),
        [hours] => match hours.parse::<f64>() {
            Ok(hours) if hours > 0.0 => torture.run_for(Duration::from_secs_f64(hours * 3600.0)),
            _ => return usage(),
        },
        _ => return usage(),
    }
    torture.finish()
}

fn usage() -> ExitCode {
    eprintln!("usage: scripts/torture [HOURS | short | seed N...]");
    ExitCode::from(2)
}

/// The rounds so far.
struct Torture {
    world: World,
    program: PathBuf,
    started: Instant,
    rounds: u64,
    killed: u64,
    processes: u64,
    overwritten: u64,
    sum: Totals,
    failed: Vec<u64>,
}

/// What one round came to.
struct Outcome {
    totals: Totals,
    overwritten: u64,
    complaint: Option<String>,
}

impl Torture {
    fn new() -> Self {
        let world = World::new("torture");
        let program = shared::compile_workload(&world);
        if !has("babeltrace2") {
            skipped("babeltrace2 is not installed: traces are read by our own reader only");
        }
        Self {
            world,
            program,
            started: Instant::now(),
            rounds: 0,
            killed: 0,
            processes: 0,
            overwritten: 0,
            sum: Totals::default(),
            failed: Vec::new(),
        }
    }

    fn run_for(&mut self, duration: Duration) {
        let since_1970 = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let first = since_1970.as_secs() * 1000;
        for seed in first.. {
            if self.started.elapsed() >= duration {
                return;
            }
            self.round(seed, LONG_MS);
        }
    }

    fn round(&mut self, seed: u64, duration_ms: u64) {
        let plan = Plan::new(seed, duration_ms);
        println!("seed {seed}: {}", plan.describe());
        let shared = Shared::new(&self.world, &plan.orders);
        let outcome = self.record_and_check(&plan, &shared);
        self.rounds += 1;
        self.killed += shared.get(Word::Killed);
        self.processes += shared.get(Word::Started) + 1;
        self.overwritten += outcome.overwritten;
        let Totals { started, recorded, lost, .. } = outcome.totals;
        self.sum.started += started;
        self.sum.recorded += recorded;
        self.sum.lost += lost;
        println!(
            "  {started} emitted: {recorded} recorded, {lost} lost, {} overwritten; {} processes, \
             {} killed",
            outcome.overwritten,
            shared.get(Word::Started) + 1,
            shared.get(Word::Killed),
        );
        if let Some(complaint) = outcome.complaint {
            self.failed.push(seed);
            println!("  FAILED\n{complaint}");
        }
    }

    fn record_and_check(&self, plan: &Plan, shared: &Shared) -> Outcome {
        let folder = self.world.path("trace");
        let _ = std::fs::remove_dir_all(&folder);
        let messages = match self.record(plan, shared, &folder) {
            Ok(messages) => messages,
            Err(complaint) => {
                let totals = check::totals(&[], &shared.lanes());
                return Outcome { totals, overwritten: 0, complaint: Some(complaint) };
            }
        };
        let summary = Summary::parse(&messages);
        let lanes = shared.lanes();
        let wrong = &mut Complaints::default();
        let streams = trace::read(&trace::folder_of(&folder), &lanes, plan.body_max, wrong);
        let totals = check::totals(&streams, &lanes);
        check::once_and_in_order(&streams, wrong);
        check::sums_agree(&totals, summary.overwritten, wrong);
        wrong.unless((summary.recorded, summary.lost) == (totals.recorded, totals.lost), || {
            format!("the summary says {summary:?}, the trace {totals:?}")
        });
        match plan.mode {
            Mode::Discard => {
                wrong.unless(summary.overwritten == 0, || format!("overwritten: {summary:?}"));
            }
            Mode::Overwrite => check::newest_kept(&streams, &lanes, totals.lost, wrong),
            Mode::Roomy => {
                wrong.unless(totals.lost == 0, || format!("lost with room to spare: {totals:?}"));
                check::all_there(&streams, &lanes, wrong);
            }
        }
        trace::babeltrace_agrees(&self.world, &folder, &totals, wrong);
        let complaint = wrong.text().map(|text| format!("{text}\nrecorder: {messages}"));
        Outcome { totals, overwritten: summary.overwritten, complaint }
    }

    /// Runs the program under `trackway record`; the recorder's messages.
    fn record(&self, plan: &Plan, shared: &Shared, folder: &Path) -> Result<String, String> {
        let mut command = self.world.trackway(&["record", "-o"]);
        let log = self.world.path("messages");
        let messages = std::fs::File::create(&log).expect("a file for messages");
        command.arg(folder).args(plan.options()).arg("--").stderr(messages).stdin(Stdio::null());
        command.args(shared::workload(&self.program, shared, "main", plan.way == Way::Claim));
        let mut group = Group::start(&mut command, Some(shared));
        let pause = Duration::from_millis(plan.pause_ms);
        if !pause.is_zero() {
            std::thread::sleep(Duration::from_millis(LONG_MS / 3));
            group.signal_all(libc::SIGSTOP);
            std::thread::sleep(pause);
            // The recorder first: it must renew its lease before the program looks at it.
            group.signal(libc::SIGCONT);
            std::thread::sleep(Duration::from_millis(500));
            group.signal_all(libc::SIGCONT);
        }
        let status = group.wait(ROUND_LIMIT);
        let messages = std::fs::read_to_string(log).unwrap_or_default();
        match status {
            Some(status) if status.success() => Ok(messages),
            Some(status) => Err(format!("{status}: {messages}")),
            None => Err(format!("did not end within {ROUND_LIMIT:?}: {messages}")),
        }
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
        if self.failed.is_empty() {
            return ExitCode::SUCCESS;
        }
        let seeds: Vec<String> = self.failed.iter().map(u64::to_string).collect();
        println!("torture: FAILED; again with: scripts/torture seed {}", seeds.join(" "));
        ExitCode::FAILURE
    }
}
