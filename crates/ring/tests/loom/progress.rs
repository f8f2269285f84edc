//! Values that must match: a commit word and its slot, the recorder's progress.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;
use trackway_ring::claim::Claim;
use trackway_ring::{Control, Drained};

use crate::fixture::{
    BEGIN_TIME, FIRST_RECORD, Fixture, Mistake, RECORD_BYTES, assert_model_fails,
    assert_model_holds,
};

/// A writer of three records and a concurrent snapshot, whose values belong to one moment.
fn model_snapshot(mistake: Mistake, recheck: bool) -> impl Fn() + Sync + Send {
    move || {
        let fixture = Arc::new(Fixture::new(1, FIRST_RECORD, 3));
        let writer = {
            let fixture = Arc::clone(&fixture);
            thread::spawn(move || {
                let claim = Claim::take(fixture.region(), 1).expect("nobody else claims");
                for value in 1..4 {
                    let now = BEGIN_TIME + u64::from(value);
                    let (plan, bytes, _) = fixture.plan(value, now).expect("there is no limit");
                    fixture.commit_claimed(&claim, &plan, &bytes, mistake);
                }
            })
        };
        let reader = {
            let fixture = Arc::clone(&fixture);
            thread::spawn(move || read_progress(&fixture, recheck))
        };
        writer.join().unwrap();
        reader.join().unwrap();
    }
}

fn read_progress(fixture: &Fixture, recheck: bool) {
    let (head, last_ts, events) = if recheck {
        let snapshot = fixture.region().snapshot().expect("head is where a writer left it");
        (snapshot.head, snapshot.last_ts.unwrap(), snapshot.events.unwrap())
    } else {
        let word = fixture.region().expected();
        let slot = &fixture.control.slots[(word & 1) as usize];
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        (word >> 1, load(&slot.last_ts), load(&slot.events))
    };
    let expected = (head - FIRST_RECORD) / RECORD_BYTES;
    assert_eq!((last_ts, events), (BEGIN_TIME + expected, expected), "a slot of another moment");
}

#[test]
fn a_snapshot_is_of_one_moment() {
    assert_model_holds(model_snapshot(Mistake::None, true));
}

#[test]
fn a_snapshot_not_checked_is_caught() {
    assert_model_fails(model_snapshot(Mistake::None, false));
}

#[test]
fn a_slot_filled_without_a_fence_is_caught() {
    assert_model_fails(model_snapshot(Mistake::Unfenced, true));
}

fn make_progress(number: u64) -> Drained {
    Drained {
        position: number,
        file_bytes: number,
        packets: number,
        file: number,
        last_ts: number,
        events: number,
    }
}

/// A recorder that publishes its progress, and a concurrent reader.
#[test]
fn progress_is_of_one_moment() {
    assert_model_holds(|| {
        let control = Arc::new(Control::new());
        let recorder = {
            let control = Arc::clone(&control);
            thread::spawn(move || {
                (1..3).for_each(|number| control.set_drained(make_progress(number)))
            })
        };
        let reader = {
            let control = Arc::clone(&control);
            thread::spawn(move || {
                let seen = control.drained();
                assert_eq!(seen, make_progress(seen.position));
            })
        };
        recorder.join().unwrap();
        reader.join().unwrap();
        assert_eq!(control.drained(), make_progress(2));
    });
}

/// The mistake that a recorder makes when it publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProgressMistake {
    Nothing,
    /// There is one side only, changed in place.
    InPlace,
    /// The side is named before it is filled.
    NamedFirst,
    /// The stores may pass the store that named the other side.
    Unfenced,
}

/// `Control::set_drained` in steps, with two values a side, by a recorder that dies after `steps`.
struct Sides {
    current: AtomicU64,
    sides: [[AtomicU64; 2]; 2],
}

impl Sides {
    fn new() -> Self {
        let side = || [AtomicU64::new(0), AtomicU64::new(0)];
        Self { current: AtomicU64::new(0), sides: [side(), side()] }
    }

    fn set(&self, value: u64, wrong: ProgressMistake, steps: &mut usize) {
        let mut lives_on = || {
            *steps = steps.saturating_sub(1);
            *steps > 0
        };
        let next = self.current.load(Ordering::Relaxed) + 1;
        let side =
            &self.sides[if wrong == ProgressMistake::InPlace { 0 } else { next as usize & 1 }];
        if wrong != ProgressMistake::Unfenced {
            fence(Ordering::Release);
        }
        if wrong == ProgressMistake::NamedFirst && lives_on() {
            self.current.store(next, Ordering::Release);
        }
        for word in side {
            if lives_on() {
                word.store(value, Ordering::Relaxed);
            }
        }
        if !matches!(wrong, ProgressMistake::NamedFirst | ProgressMistake::InPlace) && lives_on() {
            self.current.store(next, Ordering::Release);
        }
    }

    fn get(&self) -> [u64; 2] {
        let side = &self.sides[(self.current.load(Ordering::Acquire) & 1) as usize];
        [side[0].load(Ordering::Relaxed), side[1].load(Ordering::Relaxed)]
    }
}

/// A recorder that dies after `steps`, then a recovery.
fn model_recovery(wrong: ProgressMistake, steps: usize) -> impl Fn() + Sync + Send {
    move || {
        let shared = Arc::new(Sides::new());
        let recorder = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let mut steps = steps;
                (1..4).for_each(|value| shared.set(value, wrong, &mut steps));
            })
        };
        recorder.join().unwrap();
        let [first, second] = shared.get();
        assert_eq!(first, second, "half of a change");
    }
}

#[test]
fn progress_survives_death_at_every_step() {
    for steps in 1..=10 {
        assert_model_holds(model_recovery(ProgressMistake::Nothing, steps));
    }
}

#[test]
fn progress_changed_in_place_is_caught() {
    assert_model_fails(model_recovery(ProgressMistake::InPlace, 2));
}

#[test]
fn progress_named_before_it_is_filled_is_caught() {
    assert_model_fails(model_recovery(ProgressMistake::NamedFirst, 3));
}

/// The reason why `Control::set_drained` begins with a fence: without it, a later change may become
/// visible before the store that moved readers away from the changed side.
fn model_overtaking(wrong: ProgressMistake) -> impl Fn() + Sync + Send {
    move || {
        let shared = Arc::new(Sides::new());
        let recorder = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let mut steps = usize::MAX;
                (1..4).for_each(|value| shared.set(value, wrong, &mut steps));
            })
        };
        let reader = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let named = shared.current.load(Ordering::Acquire);
                let [first, second] = shared.get();
                fence(Ordering::Acquire);
                if shared.current.load(Ordering::Relaxed) == named {
                    assert_eq!(first, second, "half of a change");
                }
            })
        };
        recorder.join().unwrap();
        reader.join().unwrap();
    }
}

#[test]
fn a_change_that_overtakes_is_caught() {
    assert_model_holds(model_overtaking(ProgressMistake::Nothing));
    assert_model_fails(model_overtaking(ProgressMistake::Unfenced));
}
