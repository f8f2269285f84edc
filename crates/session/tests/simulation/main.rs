//! Simulates thousands of histories of sessions, each from a seed. The recorder's decisions
//! (`trackway_session::machine`) are real; window, writers, files and users are simulated, and
//! anything may happen between two steps.
//!
//! The checks, after every step or at the end, are design §3 (no uncounted losses, no harm to
//! processes), docs/design/0007-sessions.md (what each change may lose or double), and the
//! machine's documented invariants. The checks use the real history ([`ledger`]); the simulated
//! parts cannot read it. [`mistakes`] break rules deliberately, and the checks must detect each
//! mistake.
//!
//! `TRACKWAY_SIMULATION_SEED=n` plays one history and prints it; `TRACKWAY_SIMULATION_RUNS=n` plays
//! n histories, beginning with seed `TRACKWAY_SIMULATION_FROM=n`.

mod ledger;
mod mistakes;
mod recorder;
mod requests;
mod session;
mod simulation;
mod window;
mod writer;

use mistakes::Mistake;
use simulation::{Facts, Simulation};

/// Default number of histories.
const HISTORIES: u64 = 2000;
/// Number of histories that must detect each mistake: some mistakes need a thread that sleeps
/// through two lives of a slot.
const MISTAKEN_RUNS: u64 = 10_000;
/// Number of lines that are printed of a failed history.
const LOG_LINES: usize = 50;

fn read_env_number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The seed of the current history, which is printed if the machine panics.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("TRACKWAY_SIMULATION_SEED={}", self.0);
        }
    }
}

fn play_history(seed: u64, mistake: Option<Mistake>) -> Result<Facts, String> {
    let _seed = Seed(seed);
    let mut world = Simulation::new(seed, mistake, false);
    world.play().map(|()| world.facts.clone())
}

/// Plays a history again and returns its log.
fn replay_with_log(seed: u64, mistake: Option<Mistake>, lines: usize) -> String {
    let mut world = Simulation::new(seed, mistake, true);
    let result = world.play();
    let log = world.log.unwrap_or_default();
    let from = log.len().saturating_sub(lines);
    let result = result.err().unwrap_or_else(|| "everything held".into());
    format!("{}\n{result}\nTRACKWAY_SIMULATION_SEED={seed}", log[from..].join("\n"))
}

#[test]
fn histories_keep_the_invariants() {
    if let Some(seed) = read_env_number("TRACKWAY_SIMULATION_SEED") {
        println!("{}", replay_with_log(seed, None, usize::MAX));
        assert!(play_history(seed, None).is_ok(), "see above");
        return;
    }
    let runs = read_env_number("TRACKWAY_SIMULATION_RUNS").unwrap_or(HISTORIES);
    let mut all = Vec::new();
    let from = read_env_number("TRACKWAY_SIMULATION_FROM").unwrap_or(0);
    for seed in from..from.saturating_add(runs) {
        match play_history(seed, None) {
            Ok(facts) => all.push(facts),
            Err(_) => panic!("{}", replay_with_log(seed, None, LOG_LINES)),
        }
    }
    let sum = |of: fn(&Facts) -> u64| all.iter().map(of).sum::<u64>();
    // The situations to test must occur in some histories.
    for (what, count) in [
        ("commits", sum(|facts| facts.commits)),
        ("records discarded", sum(|facts| facts.discards)),
        ("records overwritten", sum(|facts| facts.overwritten)),
        ("sequences that were restarted", sum(|facts| facts.restarts)),
        ("bits moved", sum(|facts| facts.moved)),
        ("successors followed", sum(|facts| facts.followed)),
        ("emissions due in one place", sum(|facts| facts.due)),
        ("of which excused", sum(|facts| facts.excused)),
        ("words taken for what they were", sum(|facts| facts.mistaken)),
        ("bits set for another life of a slot", sum(|facts| facts.stray)),
        ("records that found no room before, and looked again", sum(|facts| facts.spared)),
        ("claims outlived", sum(|facts| facts.outlived)),
        ("full disks", sum(|facts| facts.disk_full)),
        ("channels left to a recovery", sum(|facts| facts.left)),
        ("slots recovered", sum(|facts| facts.recovered)),
        ("requests without a free slot", sum(|facts| facts.no_slot)),
        ("channels cleared", sum(|facts| facts.cleared)),
        ("events in snapshots", sum(|facts| facts.snapshot_events)),
        ("recorders killed", sum(|facts| facts.killed)),
        ("sessions taken over", sum(|facts| facts.lost)),
        ("effects", sum(|facts| facts.effects)),
        ("answers", sum(|facts| facts.answers)),
        ("refusals", sum(|facts| facts.refusals)),
    ] {
        println!("{count:9} {what}");
        assert!(count > 0 || runs < HISTORIES, "no history has {what}");
    }
}

#[test]
fn mistakes_are_caught() {
    let mut unseen = Vec::new();
    for mistake in mistakes::ALL {
        let caught = (0..MISTAKEN_RUNS)
            .find_map(|seed| Some((seed, play_history(seed, Some(mistake)).err()?)));
        match caught {
            Some((seed, why)) => println!("{mistake:?}, by history {seed}: {why}"),
            None => unseen.push(mistake),
        }
    }
    assert!(unseen.is_empty(), "no history sees {unseen:?}");
}
