//! Flight recorder: the reader copies, then asks whether it was in time.

use loom::sync::Arc;
use loom::thread;
use trackway_abi::region::sub_header;
use trackway_ring::Drained;
use trackway_ring::claim::Claim;

use crate::world::{FIRST, Mistake, RECORD_BYTES, Reader, World, fails, holds};

/// What reader or writer do wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Nothing,
    /// The reader asks before it copies.
    AskedFirst,
    /// The reader trusts the sub-buffer that is next to be overwritten.
    TrustedNext,
    /// The writer has no fence between the commit before and its first store.
    Unfenced,
}

/// Makes one commit.
fn commit(world: &World, claim: &Claim<'_>, value: Option<u32>, mistake: Mistake) {
    let (plan, bytes) = match value {
        Some(value) => world.plan(value, 50).map(|(plan, bytes, _)| (plan, bytes)),
        None => world.plan_switch(50),
    }
    .expect("a flight recorder has no limit");
    world.commit_claimed(claim, &plan, &bytes, mistake);
}

/// A ring of four, filled with a record each; the writer goes on and overwrites while the reader
/// copies the oldest.
fn overwriting(wrong: Wrong) -> impl Fn() + Sync + Send {
    move || {
        let world = Arc::new(World::new(2, FIRST, 1));
        let claim = Claim::take(world.region(), 1).expect("nobody else claims");
        for value in 0..4 {
            if value > 0 {
                commit(&world, &claim, None, Mistake::None);
            }
            commit(&world, &claim, Some(value), Mistake::None);
        }
        drop(claim);
        let writer = {
            let world = Arc::clone(&world);
            let mistake = if wrong == Wrong::Unfenced { Mistake::Unfenced } else { Mistake::None };
            thread::spawn(move || {
                let claim = Claim::take(world.region(), 2).expect("nobody else claims");
                commit(&world, &claim, None, mistake);
                commit(&world, &claim, None, mistake);
                commit(&world, &claim, Some(9), mistake);
            })
        };
        let reader = {
            let world = Arc::clone(&world);
            thread::spawn(move || read_oldest(&world, wrong))
        };
        writer.join().unwrap();
        reader.join().unwrap();
    }
}

fn read_oldest(world: &World, wrong: Wrong) {
    let region = world.region();
    let snapshot = region.snapshot().expect("head is where a writer left it");
    let trusted = region.oldest_index(snapshot.head);
    let index = if wrong == Wrong::TrustedNext { trusted - 1 } else { trusted };
    let asked_first = region.still_valid(index);
    let mut reader = Reader::new(0);
    reader.drained = Drained { position: index << 12, ..Drained::default() };
    // Whatever the bytes are, the reader's own checks may stumble over them only if it was late.
    let region_bytes = (4096 * (index % 4 + 1), region.geometry);
    let mut bytes = [0_u8; (FIRST + RECORD_BYTES) as usize];
    let load = |at: u64, into: &mut [u8]| {
        trackway_ring::Memory::load(&world.memory, region_bytes.0 + at, into).unwrap();
    };
    load(0, &mut bytes[..8]);
    load(FIRST, &mut bytes[FIRST as usize..]);
    let valid = match wrong {
        Wrong::AskedFirst => asked_first,
        Wrong::TrustedNext => {
            let head = world.region().expected() >> 1;
            index + 1 >= region.oldest_index(head)
        }
        _ => region.still_valid(index),
    };
    if valid {
        let at = sub_header::INDEX;
        let header = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!(header, index, "another sub-buffer's header");
        let value = &bytes[FIRST as usize + 4..][..4];
        assert_eq!(value, (index as u32).to_le_bytes(), "another sub-buffer's record");
        reader.values.push(index as u32);
    }
}

#[test]
fn what_is_still_valid_is_whole() {
    holds(overwriting(Wrong::Nothing));
}

#[test]
fn asking_before_copying_is_caught() {
    fails(overwriting(Wrong::AskedFirst));
}

#[test]
fn trusting_the_next_is_caught() {
    fails(overwriting(Wrong::TrustedNext));
}

#[test]
fn an_unfenced_writer_is_caught() {
    fails(overwriting(Wrong::Unfenced));
}
