//! A region under threads that the system, or Miri, schedules freely: writers that claim it in
//! turn, and a concurrent recorder. Memory is atomics as everywhere here, so the tests check that
//! the orderings keep records whole: loom checks a few steps, these tests a whole session.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use trackway_testkit::{Random, Records};

use super::simulator::Pages;
use crate::claim::Claim;
use crate::{Control, Drained, Geometry, Piece, Refusal, Region, write_header};

const WRITERS: u32 = 3;
const EVENTS: u32 = if cfg!(miri) { 12 } else { 20_000 };
/// Longest header, and free bytes after a record.
const LONGEST_HEADER: usize = 13;
const FREE_BEHIND: usize = 8;

struct Fixture {
    control: Control,
    table: Vec<AtomicU32>,
    pages: Pages,
    geometry: Geometry,
    clock: AtomicU64,
    overwrite: bool,
}

impl Fixture {
    fn new(overwrite: bool) -> Self {
        let geometry = Geometry::new(12, 2).expect("sizes");
        let fixture = Self {
            control: Control::new(),
            table: (1..=geometry.sub_count() as u32).map(AtomicU32::new).collect(),
            pages: Pages::new(geometry.ring_bytes() + geometry.sub_bytes()),
            geometry,
            clock: AtomicU64::new(1 << 40),
            overwrite,
        };
        fixture.region().raise_limit(if overwrite { u64::MAX } else { geometry.ring_bytes() });
        fixture
    }

    fn region(&self) -> Region<'_> {
        Region { control: &self.control, table: &self.table, geometry: self.geometry }
    }

    /// Records `words` words, each with writer and number. Returns true if there was space.
    fn emit(&self, writer: u32, number: u32, words: u32) -> bool {
        let claim = loop {
            match Claim::take(self.region(), u64::from(writer) + 1) {
                Some(claim) => break claim,
                None => std::thread::yield_now(),
            }
        };
        loop {
            let region = claim.region();
            let expected = region.expected();
            let now = self.clock.fetch_add(3, Ordering::Relaxed);
            match region.plan_record(expected, now, words, 8 * words as usize) {
                Ok((plan, header_bytes)) => {
                    let mut staged = vec![0; LONGEST_HEADER];
                    let word = (u64::from(writer) << 32 | u64::from(number)).to_le_bytes();
                    (0..words).for_each(|_| staged.extend_from_slice(&word));
                    let end = staged.len();
                    staged.resize(end + FREE_BEHIND, 0);
                    // SAFETY: the longest header fits before the body, and a whole word after it.
                    unsafe {
                        let body = staged.as_mut_ptr().add(LONGEST_HEADER);
                        write_header(body, words, plan.timestamp, header_bytes);
                        let start = staged.as_ptr().add(LONGEST_HEADER - header_bytes);
                        let bytes = header_bytes + 8 * words as usize;
                        claim.commit(&plan, &self.pages, start, bytes);
                    }
                    return true;
                }
                Err(Refusal::Switch) => match region.plan_switch(expected, now, 0) {
                    // SAFETY: a header has whole words after it.
                    Ok((plan, header)) => unsafe {
                        let bytes = trackway_abi::region::SUB_HEADER_BYTES;
                        claim.commit(&plan, &self.pages, header.as_ptr(), bytes);
                    },
                    Err(_) => break,
                },
                Err(_) => break,
            }
        }
        self.control.count_discarded(crate::Discard::Full);
        false
    }

    /// Returns writer and number of each record in a piece, and checks their times. `None`: a
    /// flight recorder overwrote them meanwhile.
    fn records(&self, piece: &Piece) -> Option<Vec<(u32, u32)>> {
        let region = self.region();
        let mut bytes = vec![0; (piece.end - piece.start) as usize];
        region.copy(&self.pages, piece, &mut bytes).expect("memory");
        if self.overwrite && !region.still_valid(self.geometry.index_of(piece.start)) {
            return None;
        }
        let mut last = piece.begin_ts;
        let mut records = Records::new(&bytes, piece.begin_ts, |id, _| Some(8 * id as usize));
        let mut found = Vec::new();
        for record in records.by_ref() {
            let word = |at: usize| &record.body[8 * at..8 * at + 8];
            assert!((1..record.header.id as usize).all(|at| word(at) == word(0)), "a torn record");
            let word = u64::from_le_bytes(word(0).try_into().expect("8 bytes"));
            assert!(last <= record.header.timestamp_ns, "time goes back");
            last = record.header.timestamp_ns;
            found.push(((word >> 32) as u32, word as u32));
        }
        assert!(records.is_whole() && last <= piece.end_ts);
        assert_eq!(found.len() as u64, piece.events - piece.events_before);
        Some(found)
    }

    /// Reads everything from `from` on, and gives the memory that was read back to writers.
    fn drain(&self, from: &mut Drained, partial: bool) -> Vec<(u32, u32)> {
        let region = self.region();
        let mut found = Vec::new();
        let snapshot = region.snapshot().expect("a head where a writer left it");
        while let Some(piece) =
            region.next_piece(&self.pages, from, &snapshot, partial).expect("whole")
        {
            found.extend(self.records(&piece).expect("nobody overwrites what was not drained"));
            from.position = piece.resume;
            from.last_ts = piece.end_ts;
            from.events = piece.events;
            self.control.set_drained(*from);
        }
        let read = from.position & !(self.geometry.sub_bytes() - 1);
        region.raise_limit(read + self.geometry.ring_bytes());
        found
    }

    /// Reads the content of a flight recorder at some moment.
    fn read_snapshot(&self) -> Vec<(u32, u32)> {
        let region = self.region();
        let snapshot = region.snapshot().expect("a head where a writer left it");
        let oldest = region.oldest_index(snapshot.head);
        let mut from =
            Drained { position: oldest * self.geometry.sub_bytes(), ..Drained::default() };
        let mut found = Vec::new();
        while from.position < snapshot.head {
            let index = self.geometry.index_of(from.position);
            let piece = region.next_piece(&self.pages, &from, &snapshot, true);
            if !region.still_valid(index) {
                // The writers have gone round; the records found so far are older.
                break;
            }
            // The times of an open sub-buffer may be missing if writers are too fast.
            let Some(piece) = piece.expect("whole") else { break };
            let Some(records) = self.records(&piece) else { break };
            found.extend(records);
            from.position = piece.resume;
        }
        found
    }
}

/// Runs the writers, and `side_task` until they are done. Returns the number of recorded events.
fn run(fixture: &Fixture, mut side_task: impl FnMut() + Send) -> u64 {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn(move || {
                    let mut random = Random::new(u64::from(writer));
                    let mut emit = |&number: &u32| {
                        fixture.emit(writer, number, 1 + random.next_below(29) as u32)
                    };
                    (0..EVENTS).filter(|number| emit(number)).count() as u64
                })
            })
            .collect();
        let stop = &stop;
        let reader = scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                side_task();
                std::thread::yield_now();
            }
        });
        let recorded = writers.into_iter().map(|writer| writer.join().expect("a writer")).sum();
        stop.store(true, Ordering::Relaxed);
        reader.join().expect("the reader");
        recorded
    })
}

fn expect_order(found: &[(u32, u32)]) {
    for writer in 0..WRITERS {
        let numbers = found.iter().filter(|(of, _)| *of == writer).map(|(_, number)| *number);
        assert!(numbers.is_sorted_by(|a, b| a < b), "each once, in order");
    }
}

#[test]
fn claimers_and_a_recorder_lose_and_tear_nothing() {
    let fixture = Fixture::new(false);
    let (mut from, mut found) = (Drained::default(), Vec::new());
    let mut turn = 0;
    let recorded = run(&fixture, || {
        turn += 1;
        found.extend(fixture.drain(&mut from, turn % 3 == 0));
    });
    found.extend(fixture.drain(&mut from, true));
    expect_order(&found);
    assert_eq!(found.len() as u64, recorded);
    let discarded = fixture.region().snapshot().expect("a head").discarded;
    assert_eq!(recorded + discarded, u64::from(WRITERS * EVENTS));
}

#[test]
fn what_a_flight_recorder_holds_is_whole_while_claimers_overwrite_it() {
    let fixture = Fixture::new(true);
    let mut seen = 0;
    let recorded = run(&fixture, || {
        let found = fixture.read_snapshot();
        expect_order(&found);
        seen += found.len();
    });
    assert_eq!(recorded, u64::from(WRITERS * EVENTS));
    let newest = fixture.read_snapshot();
    expect_order(&newest);
    for writer in 0..WRITERS {
        let last = newest.iter().rev().find(|(of, _)| *of == writer);
        // A writer that ended long before the others may be overwritten.
        assert!(last.is_none_or(|(_, number)| *number == EVENTS - 1), "{last:?}");
    }
    assert!(!newest.is_empty());
}
