//! Thousands of histories of sessions, each from a seed: the recorder's decisions
//! (`trackway_session::machine`) as they are, and around them a world that stands in for window,
//! writers, files and users, in which anything may happen between any two steps.
//!
//! The checks, after every step or at the end, are design §3 (nothing lost that is not counted, no
//! process harmed), docs/design/0007-sessions.md (what each change may lose or double), and the
//! promises in the machine's own head. The checks know the real history ([`ledger`]); the world
//! does not. [`mistakes`] are rules broken on purpose, which the checks must find.
//!
//! `TRACKWAY_SIMULATION_SEED=n` plays one history and prints it; `TRACKWAY_SIMULATION_RUNS=n` plays
//! as many, from `TRACKWAY_SIMULATION_FROM=n` on.

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

/// Histories, unless told otherwise.
const HISTORIES: u64 = 2000;
/// Histories in which each mistake must be seen: some need a thread that sleeps through two lives
/// of a slot.
const MISTAKEN_RUNS: u64 = 10_000;
/// Lines of a history that are printed where it fails.
const LOG_LINES: usize = 50;

fn read_env_number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Says which history it was, should the machine panic in it.
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

/// Plays it again, for a person.
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
    // What a history is about must happen in some of them.
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
