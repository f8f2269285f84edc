//! Restartable sequences: two threads on one CPU, whose moves 3 are atomic for each other, and a
//! reader on another CPU. Includes the sub-buffer switch.

use loom::sync::Arc;
use loom::thread::{self, JoinHandle};

use crate::fixture::{
    FIRST_RECORD, Fixture, Mistake, NEVER_DIES, ROOM_FOR_ONE, Reader, assert_model_fails,
    assert_model_holds,
};

/// A writer's thread: plans outside the sequence, commits inside. The first sequence is aborted
/// after `aborted_after` steps.
fn write_value(fixture: &Fixture, value: u32, now: u64, mistake: Mistake, aborted_after: usize) {
    let mut steps = aborted_after;
    // At most: one abort, a record and a switch of the other writer, one's own switch.
    for _ in 0..5 {
        let (plan, bytes, is_record) = fixture.plan(value, now).expect("there is no limit");
        let sequence = fixture.cpu.lock().unwrap();
        let committed = fixture.commit(&plan, &bytes, mistake, steps);
        drop(sequence);
        steps = NEVER_DIES;
        if committed && is_record {
            return;
        }
    }
    panic!("a writer restarted without a reason");
}

/// A reader's thread, on another CPU.
fn spawn_reader(fixture: &Arc<Fixture>, within: u64) -> JoinHandle<Reader> {
    let fixture = Arc::clone(fixture);
    thread::spawn(move || {
        let mut reader = Reader::new(within);
        reader.drain(&fixture);
        reader
    })
}

/// Two writers, of which one is aborted in its first sequence, and a concurrent reader.
fn model_two_writers(
    within: u64,
    mistake: Mistake,
    aborted_after: usize,
) -> impl Fn() + Sync + Send {
    move || {
        let fixture = Arc::new(Fixture::new(1, within, 2));
        let writers =
            [(1, 100, aborted_after), (2, 50, NEVER_DIES)].map(|(value, now, aborted_after)| {
                let fixture = Arc::clone(&fixture);
                thread::spawn(move || write_value(&fixture, value, now, mistake, aborted_after))
            });
        let reader = spawn_reader(&fixture, within);
        for writer in writers {
            writer.join().unwrap();
        }
        let mut reader = reader.join().unwrap();
        reader.drain(&fixture);
        reader.assert_took([1, 2]);
    }
}

/// One writer of two records, and a concurrent reader: everything that needs a reader's orderings.
fn model_one_writer(within: u64, mistake: Mistake) -> impl Fn() + Sync + Send {
    move || {
        let fixture = Arc::new(Fixture::new(1, within, 2));
        let writer = {
            let fixture = Arc::clone(&fixture);
            thread::spawn(move || {
                write_value(&fixture, 1, 100, mistake, NEVER_DIES);
                write_value(&fixture, 2, 50, mistake, NEVER_DIES);
            })
        };
        let reader = spawn_reader(&fixture, within);
        writer.join().unwrap();
        let mut reader = reader.join().unwrap();
        reader.drain(&fixture);
        assert_eq!(reader.values, [1, 2]);
    }
}

#[test]
fn records_come_out_whole_and_once() {
    // Aborts before the first store, between the record's words, or between slot and commit.
    for aborted_after in [1, 2, 5] {
        assert_model_holds(model_two_writers(FIRST_RECORD, Mistake::None, aborted_after));
    }
    assert_model_holds(model_one_writer(FIRST_RECORD, Mistake::None));
}

#[test]
fn a_commit_on_a_word_that_changed_is_caught() {
    assert_model_fails(model_two_writers(FIRST_RECORD, Mistake::Unchecked, NEVER_DIES));
}

#[test]
fn a_commit_before_its_bytes_is_caught() {
    assert_model_fails(model_one_writer(FIRST_RECORD, Mistake::CommitFirst));
}

#[test]
fn a_commit_without_release_is_caught() {
    assert_model_fails(model_one_writer(FIRST_RECORD, Mistake::CommitRelaxed));
}

#[test]
fn the_slot_of_the_same_parity_is_caught() {
    assert_model_fails(model_one_writer(FIRST_RECORD, Mistake::SameSlot));
}

#[test]
fn a_switch_publishes_both_sub_buffers() {
    assert_model_holds(model_two_writers(ROOM_FOR_ONE, Mistake::None, 4));
    assert_model_holds(model_one_writer(ROOM_FOR_ONE, Mistake::None));
}

#[test]
fn a_switch_before_its_header_is_caught() {
    assert_model_fails(model_one_writer(ROOM_FOR_ONE, Mistake::CommitFirst));
}

#[test]
fn two_switches_on_one_word_are_caught() {
    assert_model_fails(model_two_writers(ROOM_FOR_ONE, Mistake::Unchecked, NEVER_DIES));
}
