//! Growth of the ring and its end: table entries and limit, memory that moves to later places,
//! memory that is given away while a writer holds an old plan.

use loom::sync::Arc;
use loom::sync::atomic::Ordering;
use loom::thread;
use trackway_ring::Refusal;

use crate::fixture::{
    FIRST_RECORD, Fixture, Mistake, NEVER_DIES, ROOM_FOR_ONE, Reader, assert_model_fails,
    assert_model_holds,
};

/// The mistake that the recorder makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LimitMistake {
    Nothing,
    /// The limit is raised before the table entry is there.
    LimitFirst,
    /// Memory is given to a later place before its records were copied.
    RecycledEarly,
}

/// Commits plans until a record of `value` is in, or the limit stops it. Returns true if it is in.
fn write_value(fixture: &Fixture, value: u32) -> bool {
    for _ in 0..3 {
        match fixture.plan(value, 50) {
            Ok((plan, bytes, is_record)) => {
                assert!(
                    fixture.commit(&plan, &bytes, Mistake::None, NEVER_DIES),
                    "the only writer"
                );
                if is_record {
                    return true;
                }
            }
            Err(Refusal::Full) => return false,
            Err(refusal) => panic!("no memory below the limit: {refusal:?}"),
        }
    }
    panic!("a switch opened nothing");
}

/// One writer; the recorder prepares memory and gives it to the second sub-buffer meanwhile.
fn model_growth(wrong: LimitMistake) -> impl Fn() + Sync + Send {
    move || {
        let fixture = Arc::new(Fixture::new(1, ROOM_FOR_ONE, 1));
        let place = fixture.region().sub_buffer_offset(1).unwrap();
        fixture.region().back(1, 0);
        fixture.region().raise_limit(4096);
        let writer = {
            let fixture = Arc::clone(&fixture);
            thread::spawn(move || [1, 2].map(|value| (value, write_value(&fixture, value))))
        };
        let recorder = {
            let fixture = Arc::clone(&fixture);
            thread::spawn(move || {
                let region = fixture.region();
                if wrong == LimitMistake::LimitFirst {
                    region.raise_limit(8192);
                }
                // Zeroed memory arrives: without ordering, it would erase a record.
                fixture.memory.store(place + FIRST_RECORD, &[0; 16]);
                region.back(1, place);
                region.raise_limit(8192);
                let mut reader = Reader::new(ROOM_FOR_ONE);
                reader.drain(&fixture);
                reader
            })
        };
        let written = writer.join().unwrap();
        let mut reader = recorder.join().unwrap();
        reader.drain(&fixture);
        reader.assert_took(written.iter().filter(|(_, done)| *done).map(|(value, _)| *value));
    }
}

/// A ring of two: the first sub-buffer's memory becomes the third's once it is drained.
fn model_recycling(wrong: LimitMistake) -> impl Fn() + Sync + Send {
    move || {
        let fixture = Arc::new(Fixture::new(1, ROOM_FOR_ONE, 1));
        fixture.region().raise_limit(8192);
        let writer = {
            let fixture = Arc::clone(&fixture);
            thread::spawn(move || {
                let first = write_value(&fixture, 1);
                // Closes the second sub-buffer after its only record.
                let second = write_value(&fixture, 2);
                let third = fixture.plan_switch(60).is_ok_and(|(plan, bytes)| {
                    fixture.commit(&plan, &bytes, Mistake::None, NEVER_DIES)
                        && write_value(&fixture, 3)
                });
                [(1, first), (2, second), (3, third)]
            })
        };
        let recorder = {
            let fixture = Arc::clone(&fixture);
            thread::spawn(move || {
                let region = fixture.region();
                let raise = || {
                    region.back(2, 4096);
                    region.raise_limit(3 * 4096);
                };
                if wrong == LimitMistake::RecycledEarly {
                    raise();
                }
                let mut reader = Reader::new(ROOM_FOR_ONE);
                reader.drain(&fixture);
                if wrong == LimitMistake::Nothing && reader.drained.position >= 4096 {
                    raise();
                }
                reader
            })
        };
        let written = writer.join().unwrap();
        let mut reader = recorder.join().unwrap();
        reader.drain(&fixture);
        reader.assert_took(written.iter().filter(|(_, done)| *done).map(|(value, _)| *value));
    }
}

/// The recorder lowers the limit and gives the open sub-buffer's memory away. A writer may hold a
/// plan for it; only the generation, raised before the visit, stops the plan.
fn model_memory_release(raise_generation: bool, visit: bool) -> impl Fn() + Sync + Send {
    const FOREIGN: u64 = 77;
    move || {
        let fixture = Arc::new(Fixture::new(1, FIRST_RECORD, 1));
        let writer = {
            let fixture = Arc::clone(&fixture);
            thread::spawn(move || {
                let gate = fixture.generation.load(Ordering::Acquire);
                let Ok((plan, bytes, _)) = fixture.plan(1, 50) else { return };
                let sequence = fixture.cpu.lock().unwrap();
                if fixture.generation.load(Ordering::Relaxed) == gate {
                    fixture.commit(&plan, &bytes, Mistake::None, NEVER_DIES);
                }
                drop(sequence);
            })
        };
        let recorder = {
            let fixture = Arc::clone(&fixture);
            thread::spawn(move || {
                fixture.region().raise_limit(0);
                if raise_generation {
                    fixture.generation.store(2, Ordering::Release);
                }
                if visit {
                    // The recorder visits that CPU: a sequence is over, or will restart.
                    drop(fixture.cpu.lock().unwrap());
                }
                fixture.memory.word(4096 + FIRST_RECORD).store(FOREIGN, Ordering::Relaxed);
            })
        };
        writer.join().unwrap();
        recorder.join().unwrap();
        let word = fixture.memory.word(4096 + FIRST_RECORD).load(Ordering::Relaxed);
        assert_eq!(word, FOREIGN, "wrote into foreign memory");
    }
}

/// The open sub-buffer loses its memory and gets other memory: a writer that may write there finds
/// the new memory.
fn model_memory_return() -> impl Fn() + Sync + Send {
    const FOREIGN_OFFSET: u64 = 2 * 4096;
    move || {
        let fixture = Arc::new(Fixture::new(1, FIRST_RECORD, 1));
        fixture.region().lower_limit(0);
        let writer = {
            let fixture = Arc::clone(&fixture);
            thread::spawn(move || match fixture.plan(1, 50) {
                Ok((plan, ..)) => {
                    assert_eq!(plan.at, FOREIGN_OFFSET + FIRST_RECORD, "it is another's")
                }
                Err(Refusal::Full) => {}
                Err(refusal) => panic!("no memory below the limit: {refusal:?}"),
            })
        };
        let recorder = {
            let fixture = Arc::clone(&fixture);
            thread::spawn(move || {
                let region = fixture.region();
                region.back(0, 0);
                region.back(0, FOREIGN_OFFSET);
                region.raise_limit(4096);
            })
        };
        writer.join().unwrap();
        recorder.join().unwrap();
    }
}

#[test]
fn memory_is_there_below_the_limit() {
    assert_model_holds(model_growth(LimitMistake::Nothing));
}

#[test]
fn a_limit_before_its_memory_is_caught() {
    assert_model_fails(model_growth(LimitMistake::LimitFirst));
}

#[test]
fn drained_memory_moves_on() {
    assert_model_holds(model_recycling(LimitMistake::Nothing));
}

#[test]
fn memory_that_moves_on_undrained_is_caught() {
    assert_model_fails(model_recycling(LimitMistake::RecycledEarly));
}

#[test]
fn memory_is_given_back_behind_a_generation_and_a_visit() {
    assert_model_holds(model_memory_release(true, true));
}

#[test]
fn a_visit_without_a_generation_is_caught() {
    assert_model_fails(model_memory_release(false, true));
}

#[test]
fn a_generation_without_a_visit_is_caught() {
    assert_model_fails(model_memory_release(true, false));
}

#[test]
fn memory_that_comes_back_is_found_where_it_is() {
    assert_model_holds(model_memory_return());
}
