//! Growth and its end: table entries and limit, memory that moves to later places, memory that is
//! given away while a writer holds an old plan.

use loom::sync::Arc;
use loom::sync::atomic::Ordering;
use loom::thread;
use trackway_ring::Refusal;

use crate::fixture::{ALIVE, FIRST, Fixture, LAST, Mistake, Reader, fails, holds};

/// The mistake that the recorder makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Nothing,
    /// The limit is raised before the table entry is there.
    LimitFirst,
    /// Memory is given to a later place before its records were copied.
    RecycledEarly,
}

/// Commits `plan`s until a record of `value` is in, or the limit stops it; whether it is in.
fn write(fixture: &Fixture, value: u32) -> bool {
    for _ in 0..3 {
        match fixture.plan(value, 50) {
            Ok((plan, bytes, is_record)) => {
                assert!(fixture.commit(&plan, &bytes, Mistake::None, ALIVE), "the only writer");
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

/// One writer; the recorder gives the second sub-buffer its memory meanwhile, which it prepared.
fn growth(wrong: Wrong) -> impl Fn() + Sync + Send {
    move || {
        let fixture = Arc::new(Fixture::new(1, LAST, 1));
        let place = fixture.region().sub_buffer_offset(1).unwrap();
        fixture.region().back(1, 0);
        fixture.region().raise_limit(4096);
        let writer = {
            let fixture = Arc::clone(&fixture);
            thread::spawn(move || [1, 2].map(|value| (value, write(&fixture, value))))
        };
        let recorder = {
            let fixture = Arc::clone(&fixture);
            thread::spawn(move || {
                let region = fixture.region();
                if wrong == Wrong::LimitFirst {
                    region.raise_limit(8192);
                }
                // Zeroed memory arrives: were this unordered, it would wipe out a record.
                fixture.memory.store(place + FIRST, &[0; 16]);
                region.back(1, place);
                region.raise_limit(8192);
                let mut reader = Reader::new(LAST);
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
fn recycling(wrong: Wrong) -> impl Fn() + Sync + Send {
    move || {
        let fixture = Arc::new(Fixture::new(1, LAST, 1));
        fixture.region().raise_limit(8192);
        let writer = {
            let fixture = Arc::clone(&fixture);
            thread::spawn(move || {
                let first = write(&fixture, 1);
                // Close the second sub-buffer after its one record.
                let second = write(&fixture, 2);
                let third = fixture.plan_switch(60).is_ok_and(|(plan, bytes)| {
                    fixture.commit(&plan, &bytes, Mistake::None, ALIVE) && write(&fixture, 3)
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
                if wrong == Wrong::RecycledEarly {
                    raise();
                }
                let mut reader = Reader::new(LAST);
                reader.drain(&fixture);
                if wrong == Wrong::Nothing && reader.drained.position >= 4096 {
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
fn giving_back(raise_generation: bool, visit: bool) -> impl Fn() + Sync + Send {
    const FOREIGN: u64 = 77;
    move || {
        let fixture = Arc::new(Fixture::new(1, FIRST, 1));
        let writer = {
            let fixture = Arc::clone(&fixture);
            thread::spawn(move || {
                let gate = fixture.generation.load(Ordering::Acquire);
                let Ok((plan, bytes, _)) = fixture.plan(1, 50) else { return };
                let sequence = fixture.cpu.lock().unwrap();
                if fixture.generation.load(Ordering::Relaxed) == gate {
                    fixture.commit(&plan, &bytes, Mistake::None, ALIVE);
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
                    // The recorder on that CPU: a sequence is over, or will start again.
                    drop(fixture.cpu.lock().unwrap());
                }
                fixture.memory.word(4096 + FIRST).store(FOREIGN, Ordering::Relaxed);
            })
        };
        writer.join().unwrap();
        recorder.join().unwrap();
        let word = fixture.memory.word(4096 + FIRST).load(Ordering::Relaxed);
        assert_eq!(word, FOREIGN, "wrote into foreign memory");
    }
}

/// The open sub-buffer's memory went, and other memory comes: a writer that may write there finds
/// that.
fn coming_back() -> impl Fn() + Sync + Send {
    const FOREIGN_OFFSET: u64 = 2 * 4096;
    move || {
        let fixture = Arc::new(Fixture::new(1, FIRST, 1));
        fixture.region().lower_limit(0);
        let writer = {
            let fixture = Arc::clone(&fixture);
            thread::spawn(move || match fixture.plan(1, 50) {
                Ok((plan, ..)) => assert_eq!(plan.at, FOREIGN_OFFSET + FIRST, "it is another's"),
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
    holds(growth(Wrong::Nothing));
}

#[test]
fn a_limit_before_its_memory_is_caught() {
    fails(growth(Wrong::LimitFirst));
}

#[test]
fn drained_memory_moves_on() {
    holds(recycling(Wrong::Nothing));
}

#[test]
fn memory_that_moves_on_undrained_is_caught() {
    fails(recycling(Wrong::RecycledEarly));
}

#[test]
fn memory_is_given_back_behind_a_generation_and_a_visit() {
    holds(giving_back(true, true));
}

#[test]
fn a_visit_without_a_generation_is_caught() {
    fails(giving_back(false, true));
}

#[test]
fn a_generation_without_a_visit_is_caught() {
    fails(giving_back(true, false));
}

#[test]
fn memory_that_comes_back_is_found_where_it_is() {
    holds(coming_back());
}
