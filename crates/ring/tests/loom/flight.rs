//! Flight recorder: the reader copies, then checks that it was in time.

use loom::sync::Arc;
use loom::thread;
use trackway_ring::Drained;
use trackway_ring::claim::Claim;

use crate::fixture::{
    FIRST_RECORD, Fixture, Mistake, RECORD_BYTES, assert_model_fails, assert_model_holds,
};

/// The mistake that the reader or the writer makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FlightMistake {
    Nothing,
    /// The reader checks before it copies.
    AskedFirst,
    /// The reader trusts the sub-buffer that is next to be overwritten.
    TrustedNext,
    /// The writer has no fence between the commit before and its first store.
    Unfenced,
}

/// Makes one commit.
fn commit_record(fixture: &Fixture, claim: &Claim<'_>, value: Option<u32>, mistake: Mistake) {
    let (plan, bytes) = match value {
        Some(value) => fixture.plan(value, 50).map(|(plan, bytes, _)| (plan, bytes)),
        None => fixture.plan_switch(50),
    }
    .expect("a flight recorder has no limit");
    fixture.commit_claimed(claim, &plan, &bytes, mistake);
}

/// A ring of four sub-buffers with a record each; the writer continues and overwrites while the
/// reader copies the oldest.
fn model_overwrite(wrong: FlightMistake) -> impl Fn() + Sync + Send {
    move || {
        let fixture = Arc::new(Fixture::new(2, FIRST_RECORD, 1));
        let claim = Claim::take(fixture.region(), 1).expect("nobody else claims");
        for value in 0..4 {
            if value > 0 {
                commit_record(&fixture, &claim, None, Mistake::None);
            }
            commit_record(&fixture, &claim, Some(value), Mistake::None);
        }
        drop(claim);
        let writer = {
            let fixture = Arc::clone(&fixture);
            let mistake =
                if wrong == FlightMistake::Unfenced { Mistake::Unfenced } else { Mistake::None };
            thread::spawn(move || {
                let claim = Claim::take(fixture.region(), 2).expect("nobody else claims");
                commit_record(&fixture, &claim, None, mistake);
                commit_record(&fixture, &claim, None, mistake);
                commit_record(&fixture, &claim, Some(9), mistake);
            })
        };
        let reader = {
            let fixture = Arc::clone(&fixture);
            thread::spawn(move || read_oldest(&fixture, wrong))
        };
        writer.join().unwrap();
        reader.join().unwrap();
    }
}

fn read_oldest(fixture: &Fixture, wrong: FlightMistake) {
    let region = fixture.region();
    let snapshot = region.snapshot().expect("head is where a writer left it");
    let trusted = region.oldest_index(snapshot.head);
    let index = if wrong == FlightMistake::TrustedNext { trusted - 1 } else { trusted };
    let asked_first = region.still_valid(index);
    let from = Drained { position: index << 12, ..Drained::default() };
    let piece = region.next_piece(&fixture.memory, &from, &snapshot, true);
    let mut bytes = [0_u8; RECORD_BYTES as usize];
    if let Ok(Some(piece)) = &piece {
        let length = ((piece.end - piece.start) as usize).min(bytes.len());
        region.copy(&fixture.memory, piece, &mut bytes[..length]).unwrap();
    }
    let valid = match wrong {
        FlightMistake::AskedFirst => asked_first,
        FlightMistake::TrustedNext => index + 1 >= region.oldest_index(region.expected() >> 1),
        FlightMistake::Nothing | FlightMistake::Unfenced => region.still_valid(index),
    };
    if !valid {
        return;
    }
    let piece = piece.expect("whole headers").expect("a closed sub-buffer");
    assert_eq!((piece.events_before, piece.events), (index, index + 1), "another sub-buffer's");
    assert_eq!(bytes[4..8], (index as u32).to_le_bytes(), "another sub-buffer's record");
}

#[test]
fn what_is_still_valid_is_whole() {
    assert_model_holds(model_overwrite(FlightMistake::Nothing));
}

#[test]
fn asking_before_copying_is_caught() {
    assert_model_fails(model_overwrite(FlightMistake::AskedFirst));
}

#[test]
fn trusting_the_next_is_caught() {
    assert_model_fails(model_overwrite(FlightMistake::TrustedNext));
}

#[test]
fn an_unfenced_writer_is_caught() {
    assert_model_fails(model_overwrite(FlightMistake::Unfenced));
}
