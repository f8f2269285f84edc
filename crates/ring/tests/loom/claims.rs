//! Claims: two claimers, a reader, death between any two steps, and the recorder that frees a dead
//! claimer's region.

use loom::sync::Arc;
use loom::sync::atomic::{Ordering, fence};
use loom::thread;
use trackway_ring::claim::Claim;

use crate::fixture::{
    FIRST_RECORD, Fixture, Mistake, NEVER_DIES, Reader, assert_model_fails, assert_model_holds,
};

/// Number of steps of a commit of one record: two words, two of a slot, the commit word.
const STEPS: usize = 5;

/// The mistake that a claimer or the recorder makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClaimMistake {
    Nothing,
    /// The owner word is released before the commit.
    ReleasedEarly,
    /// The recorder frees the region of a living owner.
    FreedAlive,
}

/// Takes the region and records `value` by the claim's own code. Returns true if it did.
fn record_value(fixture: &Fixture, owner: u64, value: u32) -> bool {
    let Some(claim) = Claim::take(fixture.region(), owner) else { return false };
    let (plan, bytes, is_record) = fixture.plan(value, 100).expect("there is no limit");
    assert!(is_record);
    fixture.commit_claimed(&claim, &plan, &bytes, Mistake::None);
    true
}

/// Records `value` in steps, by a thread that dies after `steps` of them, owning the region. The
/// first step is the claim. Returns true if it committed.
fn record_and_die(
    fixture: &Fixture,
    owner: u64,
    value: u32,
    steps: usize,
    wrong: ClaimMistake,
) -> bool {
    let Some(claim) = Claim::take(fixture.region(), owner) else { return false };
    let (plan, bytes, _) = fixture.plan(value, 50).expect("there is no limit");
    if wrong == ClaimMistake::ReleasedEarly {
        drop(claim);
        return fixture.commit(&plan, &bytes, Mistake::Unchecked, NEVER_DIES);
    }
    let committed = fixture.commit(&plan, &bytes, Mistake::None, steps);
    if steps == NEVER_DIES {
        drop(claim);
    } else {
        std::mem::forget(claim);
    }
    committed
}

/// Two claimers, of which one dies after `steps`; the recorder reads, frees, then records.
fn model_two_claimers(steps: usize, wrong: ClaimMistake) -> impl Fn() + Sync + Send {
    move || {
        let fixture = Arc::new(Fixture::new(1, FIRST_RECORD, 3));
        let spawn = |run: fn(&Fixture, usize, ClaimMistake) -> bool| {
            let fixture = Arc::clone(&fixture);
            thread::spawn(move || run(&fixture, steps, wrong))
        };
        let mortal = spawn(|fixture, steps, wrong| record_and_die(fixture, 1, 1, steps, wrong));
        let other = spawn(|fixture, _, _| record_value(fixture, 2, 2));
        let recorder = {
            let fixture = Arc::clone(&fixture);
            thread::spawn(move || {
                let mut reader = Reader::new(FIRST_RECORD);
                if wrong == ClaimMistake::FreedAlive {
                    Claim::free_dead(fixture.region(), 1);
                } else {
                    reader.drain(&fixture);
                }
                reader
            })
        };
        let mut expected = Vec::new();
        // The join proves the claimer's death.
        expected.extend(mortal.join().unwrap().then_some(1));
        Claim::free_dead(fixture.region(), 1);
        expected.extend(other.join().unwrap().then_some(2));
        let mut reader = recorder.join().unwrap();
        assert!(record_value(&fixture, 3, 3), "the region is free again");
        expected.push(3);
        reader.drain(&fixture);
        reader.assert_took(expected);
    }
}

#[test]
fn claims_survive_death_at_every_step() {
    for steps in 1..=STEPS + 1 {
        assert_model_holds(model_two_claimers(steps, ClaimMistake::Nothing));
    }
    assert_model_holds(model_two_claimers(NEVER_DIES, ClaimMistake::Nothing));
}

#[test]
fn an_early_release_is_caught() {
    assert_model_fails(model_two_claimers(NEVER_DIES, ClaimMistake::ReleasedEarly));
}

#[test]
fn freeing_the_living_is_caught() {
    assert_model_fails(model_two_claimers(NEVER_DIES, ClaimMistake::FreedAlive));
}

/// The recorder ends the session and gives the memory away, unless a claimer owns the region.
fn model_session_end(recheck: bool, fenced: bool) -> impl Fn() + Sync + Send {
    /// The new value of the memory after the recorder has given it away.
    const FOREIGN: u64 = 77;
    move || {
        let fixture = Arc::new(Fixture::new(1, FIRST_RECORD, 1));
        let claimer = {
            let fixture = Arc::clone(&fixture);
            thread::spawn(move || {
                let before = fixture.generation.load(Ordering::Acquire);
                let Some(claim) = Claim::take(fixture.region(), 1) else { return };
                // ORDERING: SeqCst, like the fence in the agent's `session_changed`.
                fence(Ordering::SeqCst);
                if recheck && fixture.generation.load(Ordering::Relaxed) != before {
                    return;
                }
                if before == 1 {
                    let (plan, bytes, _) = fixture.plan(1, 50).expect("there is no limit");
                    fixture.commit_claimed(&claim, &plan, &bytes, Mistake::None);
                }
            })
        };
        let recorder = {
            let fixture = Arc::clone(&fixture);
            thread::spawn(move || {
                // ORDERING: SeqCst, both, like the fences in the recorder's `raise_generation`.
                fixture.generation.fetch_add(1, Ordering::SeqCst);
                if fenced {
                    fence(Ordering::SeqCst);
                }
                let given = fixture.control.owner.load(Ordering::Acquire) == 0;
                if given {
                    fixture.memory.word(4096 + FIRST_RECORD).store(FOREIGN, Ordering::Relaxed);
                }
                given
            })
        };
        claimer.join().unwrap();
        let given = recorder.join().unwrap();
        let word = fixture.memory.word(4096 + FIRST_RECORD).load(Ordering::Relaxed);
        assert!(!given || word == FOREIGN, "wrote into foreign memory");
    }
}

#[test]
fn a_claim_keeps_its_memory() {
    assert_model_holds(model_session_end(true, true));
}

#[test]
fn a_generation_not_read_again_is_caught() {
    assert_model_fails(model_session_end(false, true));
}

/// For machines other than x86-64, where an addition consists of two halves.
#[test]
fn looking_for_claims_before_the_generation_is_seen_is_caught() {
    assert_model_fails(model_session_end(true, false));
}
