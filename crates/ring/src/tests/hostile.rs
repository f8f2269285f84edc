//! Bytes that no writer wrote: the reader reports them or returns data within bounds. It does not
//! panic (these tests run with overflow checks), and it ends.

use std::sync::atomic::Ordering;

use trackway_testkit::Random;

use super::simulator::{Fate, Simulator, Step};
use crate::{Damage, Drained, Refusal, Snapshot};

/// Number of damaged regions to read; fewer where Miri interprets them.
const CASES: u64 = if cfg!(miri) { 4 } else { 6000 };

/// Returns a number that may break something.
fn hostile_number(random: &mut Random) -> u64 {
    match random.next_below(6) {
        0 => random.next(),
        1 => 1 << random.next_below(64),
        2 => (1_u64 << random.next_below(64)).wrapping_sub(1 + random.next_below(100)),
        3 => random.next_below(40_000),
        4 => u64::MAX - random.next_below(10_000),
        _ => random.next_below(20) << 12,
    }
}

/// Makes a region with some records.
fn fill_region(random: &mut Random) -> Simulator {
    let overwrite = random.once_in(2);
    let mut simulator = Simulator::new(12, 2, 4, overwrite);
    for id in 0..random.next_below(20) as u32 {
        let body_bytes = 6 + random.next_below(1500) as usize;
        simulator.run(&Step::Record { id, body_bytes, gap: 10, fate: Fate::Committed });
    }
    simulator
}

/// Writes random values into some of the shared words.
fn corrupt_region(simulator: &Simulator, random: &mut Random) {
    let control = &simulator.control;
    for _ in 0..=random.next_below(4) {
        let value = hostile_number(random);
        match random.next_below(7) {
            0 => control.commit.store(value, Ordering::Relaxed),
            1 => control.limit.store(value, Ordering::Relaxed),
            2 => {
                let slot = random.pick(&control.slots);
                slot.last_ts.store(value, Ordering::Relaxed);
                slot.events.store(hostile_number(random), Ordering::Relaxed);
            }
            3 => control.discarded.store(value, Ordering::Relaxed),
            4 => random.pick(&simulator.table).store(value as u32, Ordering::Relaxed),
            _ => {
                // A field of a sub-buffer's header, or a byte anywhere.
                let place = (1 + random.next_below(4)) << 12;
                let at = if random.once_in(2) {
                    random.next_below(7) * 8
                } else {
                    random.next_below(4088)
                };
                simulator.pages.store(place + at, &value.to_le_bytes());
            }
        }
    }
}

/// Returns a recorder's progress, plausible or not.
fn random_drained(random: &mut Random) -> Drained {
    if random.once_in(3) {
        return Drained::default();
    }
    Drained {
        position: hostile_number(random),
        last_ts: hostile_number(random),
        events: hostile_number(random),
        ..Drained::default()
    }
}

/// Reads all pieces like a recorder, and checks their number.
fn read_all_pieces(simulator: &Simulator, snapshot: &Snapshot, mut from: Drained) {
    let region = simulator.region();
    let most = region.geometry.sub_count() + 1;
    let mut pieces = 0;
    while let Ok(Some(piece)) = region.next_piece(&simulator.pages, &from, snapshot, true) {
        pieces += 1;
        assert!(pieces <= most, "a piece for each header at most");
        let length = (piece.end - piece.start) as usize;
        assert!(length < region.geometry.sub_bytes() as usize);
        assert!(piece.resume > from.position && piece.resume >= piece.end);
        assert!(piece.begin_ts <= piece.end_ts && piece.events_before <= piece.events);
        let mut bytes = vec![0; length];
        if region.copy(&simulator.pages, &piece, &mut bytes).is_err() {
            return;
        }
        let _ = region.still_valid(region.geometry.index_of(piece.start));
        from =
            Drained { position: piece.resume, last_ts: piece.end_ts, events: piece.events, ..from };
    }
}

#[test]
fn a_reader_survives_any_bytes() {
    for seed in 0..CASES {
        let mut random = Random::new(seed);
        let simulator = fill_region(&mut random);
        corrupt_region(&simulator, &mut random);
        let Ok(snapshot) = simulator.region().snapshot() else { continue };
        read_all_pieces(&simulator, &snapshot, random_drained(&mut random));
        let oldest = simulator.region().oldest_index(snapshot.head);
        let position = oldest << simulator.geometry.sub_shift();
        read_all_pieces(&simulator, &snapshot, Drained { position, ..Drained::default() });
    }
}

/// A writer that plans over damaged words stays inside the sub-buffer that the table names; the
/// owner of the mapping checks the place of that sub-buffer.
#[test]
fn a_writer_stays_inside_a_sub_buffer() {
    for seed in 0..CASES {
        let mut random = Random::new(seed);
        let simulator = fill_region(&mut random);
        corrupt_region(&simulator, &mut random);
        let region = simulator.region();
        let body_bytes = random.next_below(3992);
        let (now, id) = (hostile_number(&mut random), random.next() as u32);
        let expected = region.expected();
        let record = region.plan_record(expected, now, id, body_bytes as usize);
        if let Ok((plan, header_bytes)) = record {
            let within = plan.at % 4096;
            assert!(within + header_bytes as u64 + body_bytes + 8 <= 4096);
        }
        if let Ok((plan, _)) = region.plan_switch(expected, now, 0) {
            assert_eq!(plan.at % 4096, 0);
        }
    }
}

#[test]
fn each_contradiction_has_a_name() {
    let damaged = |damage: &dyn Fn(&Simulator), from: u64| {
        let mut simulator = Simulator::new(12, 1, 2, false);
        let record = Step::Record { id: 1, body_bytes: 1900, gap: 10, fate: Fate::Committed };
        for _ in 0..3 {
            simulator.run(&record);
        }
        damage(&simulator);
        let snapshot = simulator.region().snapshot()?;
        let from = Drained { position: from, ..Drained::default() };
        simulator.region().next_piece(&simulator.pages, &from, &snapshot, true)
    };
    let place = |simulator: &Simulator, index| simulator.region().sub_buffer_offset(index).unwrap();
    let words = |index: u64, at: u64, value: u64| {
        move |simulator: &Simulator| {
            simulator.pages.store(place(simulator, index) + at, &value.to_le_bytes());
        }
    };
    assert!(damaged(&|_| {}, 0).unwrap().is_some());
    assert_eq!(damaged(&words(0, 0, 1), 0), Err(Damage::Header(0)));
    assert_eq!(damaged(&words(1, 0, 3), 0), Err(Damage::Header(1)));
    // Content that ends in another sub-buffer, or before its beginning, in position or time.
    assert_eq!(damaged(&words(1, 24, 4096), 0), Err(Damage::Header(0)));
    assert_eq!(damaged(&words(1, 24, 83), 0), Err(Damage::Header(0)));
    assert_eq!(damaged(&words(1, 16, 1), 0), Err(Damage::Header(0)));
    assert_eq!(damaged(&words(0, 32, 9), 0), Err(Damage::Header(0)));
    assert_eq!(damaged(&|_| {}, 83), Err(Damage::Drained(83)));
    assert_eq!(damaged(&|_| {}, 4097), Err(Damage::Drained(4097)));
    let commit = |word: u64| {
        move |simulator: &Simulator| simulator.control.commit.store(word, Ordering::Relaxed)
    };
    assert_eq!(damaged(&commit(83 << 1), 0), Err(Damage::Head(83)));
    assert_eq!(damaged(&commit(4096 << 1), 0), Err(Damage::Head(4096)));
    let unbacked = |simulator: &Simulator| simulator.table[1].store(0, Ordering::Relaxed);
    assert_eq!(damaged(&unbacked, 0), Err(Damage::Table(1)));
    let outside = |simulator: &Simulator| simulator.table[0].store(u32::MAX, Ordering::Relaxed);
    assert_eq!(damaged(&outside, 0), Err(Damage::Table(u64::from(u32::MAX) << 12)));
}

/// The last possible positions mean full, and do not wrap around.
#[test]
fn positions_do_not_wrap() {
    let simulator = Simulator::new(12, 1, 2, true);
    let region = simulator.region();
    let last = ((1_u64 << 63) - 100) << 1;
    simulator.control.commit.store(last, Ordering::Relaxed);
    assert_eq!(region.plan_switch(last, 1, 0).unwrap_err(), Refusal::Full);
    assert!(region.snapshot().is_ok());
    let huge = u64::MAX;
    simulator.control.commit.store(huge, Ordering::Relaxed);
    assert!(region.plan_record(huge, 1, 1, 4).is_err());
    assert_eq!(region.plan_switch(huge, 1, 0).unwrap_err(), Refusal::Full);
    assert!(!region.still_valid(0));
}
