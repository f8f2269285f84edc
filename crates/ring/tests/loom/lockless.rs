//! The paper's buffer: slots committed in any order, and the exchange with the consumer.

use std::collections::BTreeMap;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use trackway_abi::region::SUB_HEADER_BYTES;
use trackway_ring::Geometry;
use trackway_ring::lockless::equations::sub_buffer_ready;
use trackway_ring::lockless::{
    Buffer, Counters, Got, LossReason, Mode, Reference, Store, SubBuffer, TryAgain, header,
};

use super::fixture::{assert_model_fails, assert_model_holds};

/// Record size for sub-buffers with space for one record, or for two.
const SLOT_BYTES: usize = 3000;
const PAIR_RECORD_BYTES: usize = 1900;
/// Place of the value in a slot, and of its check.
const VALUE: u64 = 16;
const CHECK: u64 = 24;

/// Shared words at the few places that a model uses. Others are not there.
struct Words(BTreeMap<u64, AtomicU64>);

impl Store for Words {
    unsafe fn store(&self, at: u64, source: &[u8]) {
        for (place, chunk) in source.chunks_exact(8).enumerate() {
            if let Some(word) = self.0.get(&(at + 8 * place as u64)) {
                let value = u64::from_le_bytes(chunk.try_into().unwrap());
                word.store(value, Ordering::Relaxed);
            }
        }
    }
}

/// Two sub-buffers and the consumer's place.
struct Fixture {
    memory: Words,
    counters: Counters,
    sub_buffers: Vec<SubBuffer>,
    places: Vec<AtomicU32>,
    geometry: Geometry,
    mode: Mode,
    clock: AtomicU64,
}

/// The mistakes that the two sides may make.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mistake {
    None,
    /// The producer commits before it writes.
    CommitFirst,
    /// The consumer does not check commit seq.
    NotReady,
    /// The consumer reads commit seq without Acquire.
    Relaxed,
    /// The consumer takes a sub-buffer that a producer uses.
    InUse,
    /// The consumer takes without exchanging.
    InPlace,
    /// The producer checks that the session goes on before it reads write count.
    AskedBefore,
    /// The recorder frees a buffer without holes, and does not move write count on.
    NotRetired,
}

impl Fixture {
    /// Makes a buffer; `slots` are the sizes of the records that a sub-buffer will hold.
    fn new(mode: Mode, slots: &[usize]) -> Self {
        let geometry = Geometry::new(12, 1).unwrap();
        let mut words = BTreeMap::new();
        for place in 1..=3_u64 {
            let base = place << 12;
            for at in [header::POSITION, header::CONTENT] {
                words.insert(base + at as u64, AtomicU64::new(0));
            }
            let mut at = base + SUB_HEADER_BYTES as u64;
            for bytes in slots {
                words.insert(at + VALUE, AtomicU64::new(0));
                words.insert(at + CHECK, AtomicU64::new(0));
                at += 4 + *bytes as u64;
            }
        }
        let fixture = Self {
            memory: Words(words),
            counters: Counters::new(),
            sub_buffers: (0..2).map(|_| SubBuffer::new()).collect(),
            places: (1..=3).map(AtomicU32::new).collect(),
            geometry,
            mode,
            clock: AtomicU64::new(1),
        };
        fixture.buffer().reset(0);
        fixture
    }

    fn buffer(&self) -> Buffer<'_> {
        Buffer {
            counters: &self.counters,
            sub_buffers: &self.sub_buffers,
            places: &self.places,
            geometry: self.geometry,
            mode: self.mode,
        }
    }

    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    fn emit(&self, value: u64, bytes: usize, mistake: Mistake) -> Result<u64, LossReason> {
        let slot = self.buffer().reserve(&self.memory, || self.now(), || true, (1, bytes, 0))?;
        if mistake == Mistake::CommitFirst {
            self.buffer().commit(&self.memory, &slot);
        }
        let value = value << 32 | slot.timestamp;
        for (at, value) in [(VALUE, value), (CHECK, !value)] {
            // SAFETY: both words are in the slot.
            unsafe { self.memory.store(slot.at + at, &value.to_le_bytes()) };
        }
        if mistake != Mistake::CommitFirst {
            self.buffer().commit(&self.memory, &slot);
        }
        Ok(slot.timestamp)
    }

    /// Gets a sub-buffer by Algorithm 6, or with a mistake in it.
    fn get(&self, own: &mut u32, mistake: Mistake) -> Result<Got, TryAgain> {
        if matches!(mistake, Mistake::None | Mistake::CommitFirst) {
            return self.buffer().get(own);
        }
        let position = self.counters.read_count.load(Ordering::Relaxed);
        let sub_buffer = &self.sub_buffers[(position >> 12) as usize % 2];
        let relaxed = mistake == Mistake::Relaxed;
        let acquire = if relaxed { Ordering::Relaxed } else { Ordering::Acquire };
        let word = sub_buffer.reference.load(acquire);
        let commit = sub_buffer.commit_seq.load(acquire);
        let write_count = self.counters.write_count.load(Ordering::Relaxed);
        let is_ready = sub_buffer_ready(self.geometry, position, commit);
        if !is_ready && mistake != Mistake::NotReady || write_count >> 12 == position >> 12 {
            return Err(TryAgain);
        }
        let place = word as u32;
        if self.mode == Mode::FlightRecorder && mistake != Mistake::InPlace {
            // With a mistake, the reference's word has no flag or round that could have changed.
            let given = Reference { place: *own, is_used: false, round: 0 };
            let round = word >> 33 << 33;
            sub_buffer.reference.store(round | u64::from(given.place), Ordering::Release);
            *own = place;
        }
        Ok(Got { position, at: u64::from(place + 1) << 12, place })
    }

    /// Reads all whole sub-buffers. Returns values and their times.
    fn drain(&self, own: &mut u32, slots: &[usize], mistake: Mistake) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        while let Ok(got) = self.get(own, mistake) {
            let word = |at: u64| self.memory.0[&(got.at + at)].load(Ordering::Relaxed);
            assert_eq!(word(header::POSITION as u64), got.position, "not its sub-buffer");
            let content = word(header::CONTENT as u64) - got.position;
            let mut at = SUB_HEADER_BYTES as u64;
            for bytes in slots {
                if at >= content {
                    break;
                }
                let (value, check) = (word(at + VALUE), word(at + CHECK));
                assert_eq!(value, !check, "a torn record");
                found.push((value >> 32, value & 0xffff_ffff));
                at += 4 + *bytes as u64;
            }
            self.buffer().put(got);
        }
        assert!(found.is_sorted_by_key(|&(_, time)| time), "time went backward");
        found
    }
}

/// Two producers whose slots lie in one sub-buffer, and commit in any order; a consumer that tries
/// to read early.
fn model_two_producers(mistake: Mistake) -> impl Fn() + Sync + Send + 'static {
    move || {
        let slots = [PAIR_RECORD_BYTES, PAIR_RECORD_BYTES];
        let fixture = Arc::new(Fixture::new(Mode::Discard, &slots));
        let producer = {
            let fixture = fixture.clone();
            loom::thread::spawn(move || fixture.emit(1, PAIR_RECORD_BYTES, mistake).unwrap())
        };
        let consumer = {
            let fixture = fixture.clone();
            loom::thread::spawn(move || {
                fixture.buffer().force_switch(&fixture.memory, || fixture.now());
                fixture.drain(&mut 2, &slots, mistake)
            })
        };
        // This thread is the other producer: one thread more would take loom six times as long.
        fixture.emit(2, PAIR_RECORD_BYTES, mistake).unwrap();
        producer.join().unwrap();
        let mut found = consumer.join().unwrap();
        fixture.buffer().force_switch(&fixture.memory, || fixture.now());
        found.extend(fixture.drain(&mut 2, &slots, Mistake::None));
        let mut values: Vec<_> = found.iter().map(|&(value, _)| value).collect();
        values.sort_unstable();
        assert_eq!(values, [1, 2], "each once");
        assert_eq!(fixture.buffer().holes().count(), 0);
    }
}

/// A full flight recorder, a producer that overwrites, and a consumer that reads the overwritten
/// sub-buffer.
fn model_overwrite(mistake: Mistake) -> impl Fn() + Sync + Send + 'static {
    move || {
        let slots = [SLOT_BYTES];
        let fixture = Arc::new(Fixture::new(Mode::FlightRecorder, &slots));
        for value in [1, 2] {
            fixture.emit(value, SLOT_BYTES, Mistake::None).unwrap();
        }
        fixture.buffer().force_switch(&fixture.memory, || fixture.now());
        let producer = {
            let fixture = fixture.clone();
            loom::thread::spawn(move || fixture.emit(3, SLOT_BYTES, mistake).unwrap())
        };
        let consumer = {
            let fixture = fixture.clone();
            loom::thread::spawn(move || {
                let mut own = 2;
                (fixture.drain(&mut own, &slots, mistake), own)
            })
        };
        producer.join().unwrap();
        let (mut found, mut own) = consumer.join().unwrap();
        fixture.buffer().force_switch(&fixture.memory, || fixture.now());
        found.extend(fixture.drain(&mut own, &slots, Mistake::None));
        let values: Vec<_> = found.iter().map(|&(value, _)| value).collect();
        // The first record may have been overwritten before it was read.
        assert!(values == [1, 2, 3] || values == [2, 3], "{values:?}");
    }
}

#[test]
fn slots_are_committed_in_any_order() {
    assert_model_holds(model_two_producers(Mistake::None));
}

#[test]
fn a_commit_before_the_bytes_is_caught() {
    assert_model_fails(model_two_producers(Mistake::CommitFirst));
}

#[test]
fn a_consumer_that_does_not_look_at_commit_seq_is_caught() {
    assert_model_fails(model_two_producers(Mistake::NotReady));
}

#[test]
fn a_commit_seq_read_without_acquire_is_caught() {
    assert_model_fails(model_two_producers(Mistake::Relaxed));
}

#[test]
fn an_overwritten_sub_buffer_is_read_whole_or_not() {
    assert_model_holds(model_overwrite(Mistake::None));
}

#[test]
fn a_consumer_that_takes_what_is_used_is_caught() {
    assert_model_fails(model_overwrite(Mistake::InUse));
}

#[test]
fn a_consumer_that_does_not_exchange_is_caught() {
    assert_model_fails(model_overwrite(Mistake::InPlace));
}

/// A session ends, and its memory is given back, while a producer reserves.
fn model_session_end(mistake: Mistake) -> impl Fn() + Sync + Send + 'static {
    move || {
        let fixture = Arc::new(Fixture::new(Mode::Discard, &[SLOT_BYTES]));
        let generation = Arc::new(AtomicU64::new(1));
        let freed = Arc::new(AtomicU64::new(0));
        let writer = {
            let (fixture, generation, freed) = (fixture.clone(), generation.clone(), freed.clone());
            loom::thread::spawn(move || {
                let ask = || generation.load(Ordering::Relaxed) == 1;
                let before = ask();
                let goes_on = || if mistake == Mistake::AskedBefore { before } else { ask() };
                let slot = fixture.buffer().reserve(
                    &fixture.memory,
                    || fixture.now(),
                    goes_on,
                    (1, SLOT_BYTES, 0),
                );
                if let Ok(slot) = slot {
                    assert_eq!(freed.load(Ordering::SeqCst), 0, "a slot in what is given back");
                    fixture.buffer().commit(&fixture.memory, &slot);
                }
            })
        };
        generation.store(2, Ordering::SeqCst);
        loom::sync::atomic::fence(Ordering::SeqCst);
        let is_free = match mistake {
            Mistake::NotRetired => fixture.buffer().holes().next().is_none(),
            _ => fixture.buffer().retire(),
        };
        if is_free {
            freed.store(1, Ordering::SeqCst);
        }
        writer.join().unwrap();
    }
}

#[test]
fn nobody_has_a_slot_in_what_is_given_back() {
    assert_model_holds(model_session_end(Mistake::None));
}

#[test]
fn who_asks_before_he_reads_write_count_is_caught() {
    assert_model_fails(model_session_end(Mistake::AskedBefore));
}

#[test]
fn a_recorder_that_does_not_move_write_count_on_is_caught() {
    assert_model_fails(model_session_end(Mistake::NotRetired));
}

/// A reader counts undelivered records while the last of them is delivered.
fn model_undelivered_count(in_order: bool) -> impl Fn() + Sync + Send {
    move || {
        let shared = Arc::new(SubBuffer::new());
        let producer = {
            let shared = Arc::clone(&shared);
            loom::thread::spawn(move || {
                shared.records.fetch_add(1, Ordering::Relaxed);
                // ORDERING: Release, like the store in `deliver`.
                shared.delivered.store(1, Ordering::Release);
            })
        };
        let undelivered = if in_order {
            shared.undelivered()
        } else {
            let delivered = shared.delivered.load(Ordering::Relaxed);
            shared.records.load(Ordering::Relaxed).wrapping_sub(delivered)
        };
        assert!(undelivered <= 1, "{undelivered} records");
        producer.join().unwrap();
    }
}

#[test]
fn what_is_undelivered_is_not_below_zero() {
    assert_model_holds(model_undelivered_count(true));
}

#[test]
fn counting_out_of_order_is_caught() {
    assert_model_fails(model_undelivered_count(false));
}
