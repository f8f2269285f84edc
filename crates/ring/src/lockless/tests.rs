//! Tests of the paper's buffer: by hand, at random, and by threads.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use trackway_abi::record::{
    COMPACT_BYTES, EXTENDED_BYTES, TAG_BITS, TAG_EXTENDED, TAILROOM_BYTES, TIME_BITS,
};
use trackway_abi::region::{PAGE_SHIFT, SUB_HEADER_BYTES};
use trackway_testkit::random::Random;

use super::equations::{buffer_full, fully_committed, sub_buffer_ready, sub_buffer_written};
use super::{Buffer, Counters, Got, LossReason, Mode, Poll, Slot, Store, SubBuffer, header};
use crate::{Damage, Geometry, Memory};

/// Memory of which any thread may write any byte at any time, as in a window. In small pieces,
/// because Miri's cost of an access grows with the size of the allocation.
struct Bytes(Vec<Box<[AtomicU8]>>);

const PIECE: usize = 64;

impl Store for Bytes {
    unsafe fn store(&self, at: u64, source: &[u8]) {
        for (at, &value) in (at as usize..).zip(source) {
            self.byte(at).store(value, Ordering::Relaxed);
        }
    }
}

impl Memory for Bytes {
    fn load(&self, at: u64, into: &mut [u8]) -> Result<(), Damage> {
        into.copy_from_slice(&Bytes::load(self, at, into.len() as u64));
        Ok(())
    }
}

impl Bytes {
    fn new(bytes: usize) -> Self {
        let piece = |_| (0..PIECE).map(|_| AtomicU8::new(0xee)).collect();
        Self((0..bytes / PIECE).map(piece).collect())
    }

    fn byte(&self, at: usize) -> &AtomicU8 {
        &self.0[at / PIECE][at % PIECE]
    }

    fn load(&self, at: u64, bytes: u64) -> Vec<u8> {
        let bytes = at as usize..(at + bytes) as usize;
        bytes.map(|at| self.byte(at).load(Ordering::Relaxed)).collect()
    }
}

struct Setup {
    memory: Bytes,
    counters: Counters,
    sub_buffers: Vec<SubBuffer>,
    places: Vec<AtomicU32>,
    geometry: Geometry,
    mode: Mode,
    clock: AtomicU64,
}

/// A record that a reader found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Found {
    writer: u32,
    number: u32,
    timestamp: u64,
}

impl Setup {
    fn new(mode: Mode, count_shift: u32, start: u64) -> Self {
        let geometry = Geometry::new(12, count_shift).expect("sizes");
        let count = geometry.sub_count() as u32;
        let setup = Self {
            memory: Bytes::new((count as usize + 2) << PAGE_SHIFT),
            counters: Counters::new(),
            sub_buffers: (0..count).map(|_| SubBuffer::new()).collect(),
            places: (0..=count).map(|place| AtomicU32::new(place + 1)).collect(),
            geometry,
            mode,
            clock: AtomicU64::new(1 << 40),
        };
        setup.buffer().reset(start);
        if start != 0 {
            // Sets counter bits that no equation reads, so that commit counters wrap later.
            for sub_buffer in &setup.sub_buffers {
                for counter in [&sub_buffer.commit_count, &sub_buffer.commit_seq] {
                    let bits = u64::MAX << (64 - count_shift);
                    counter.fetch_or(bits, Ordering::Relaxed);
                }
            }
        }
        setup
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

    fn reserve(&self, words: u32) -> Result<Slot, LossReason> {
        let now = || self.clock.fetch_add(3, Ordering::SeqCst);
        self.buffer().reserve(&self.memory, now, || true, (words, 8 * words as usize, 7))
    }

    /// Writes a record whose id is the number of its words, each with writer and number.
    fn write(&self, slot: &Slot, words: u32, writer: u32, number: u32) {
        let mut bytes = [0; EXTENDED_BYTES + 8 * 29 + TAILROOM_BYTES];
        // SAFETY: the longest header fits before the body.
        unsafe {
            let end = bytes.as_mut_ptr().add(EXTENDED_BYTES);
            crate::write_header(end, words, slot.timestamp, slot.header_bytes);
        }
        for word in 0..words as usize {
            let value = u64::from(writer) << 32 | u64::from(number);
            bytes[EXTENDED_BYTES + 8 * word..][..8].copy_from_slice(&value.to_le_bytes());
        }
        let from = EXTENDED_BYTES - slot.header_bytes;
        assert_eq!(slot.bytes as usize, slot.header_bytes + 8 * words as usize);
        // SAFETY: the slot is reserved.
        unsafe { self.memory.store(slot.at, &bytes[from..from + slot.bytes as usize]) };
    }

    fn emit(&self, words: u32, writer: u32, number: u32) -> Result<(), LossReason> {
        let slot = self.reserve(words)?;
        self.write(&slot, words, writer, number);
        self.buffer().commit(&self.memory, &slot);
        Ok(())
    }

    /// Returns the records of a sub-buffer, after checking them.
    fn records(&self, got: &Got) -> Vec<Found> {
        let content = self.memory.load(got.at + header::CONTENT as u64, 8);
        let content = u64::from_le_bytes(content.try_into().expect("8 bytes"));
        let bytes = content.wrapping_sub(got.position).min(self.geometry.sub_bytes());
        let bytes = self.memory.load(got.at, bytes);
        let field = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        assert_eq!((field(header::POSITION), field(header::EPOCH)), (got.position, 7));
        let content = field(header::CONTENT).wrapping_sub(got.position);
        assert!(content <= self.geometry.sub_bytes(), "{content}");
        let (mut at, mut last, mut found) = (SUB_HEADER_BYTES, field(header::BEGIN), Vec::new());
        while at < content as usize {
            let tag = u32::from(bytes[at]) & ((1 << TAG_BITS) - 1);
            let (words, timestamp, header_bytes) = if tag == TAG_EXTENDED {
                let id = u32::from_le_bytes(bytes[at + 1..at + 5].try_into().expect("4 bytes"));
                (id, field(at + 5), EXTENDED_BYTES)
            } else {
                let word = u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
                let mask = (1 << TIME_BITS) - 1;
                let low = u64::from(word >> TAG_BITS);
                let next = if low < last & mask { last + mask + 1 } else { last };
                (tag, (next & !mask) | low, COMPACT_BYTES)
            };
            assert!(last <= timestamp && timestamp <= field(header::END), "times go forward");
            let first = field(at + header_bytes);
            for word in 0..words as usize {
                assert_eq!(field(at + header_bytes + 8 * word), first, "a torn record");
            }
            found.push(Found { writer: (first >> 32) as u32, number: first as u32, timestamp });
            at += header_bytes + 8 * words as usize;
            last = timestamp;
        }
        assert_eq!(at as u64, content, "the last record ends with the content");
        assert_eq!(found.len() as u64, field(header::RECORDS));
        found
    }

    /// Reads all whole sub-buffers.
    fn drain(&self, own: &mut u32) -> Vec<Found> {
        let mut found = Vec::new();
        while let Ok(got) = self.buffer().get(own) {
            found.extend(self.records(&got));
            self.buffer().put(got);
        }
        found
    }

    fn own_place(&self) -> u32 {
        self.geometry.sub_count() as u32
    }

    fn force_switch(&self) -> bool {
        let now = || self.clock.fetch_add(3, Ordering::SeqCst);
        self.buffer().force_switch(&self.memory, now)
    }

    fn lost(&self) -> u64 {
        let Counters { lost_full, lost_nested, .. } = &self.counters;
        lost_full.load(Ordering::Relaxed) + lost_nested.load(Ordering::Relaxed)
    }
}

/// Start values of counters: zero, and a value with which all counters wrap: write count after one
/// buffer, commit counters at the same time.
const STARTS: [u64; 2] = [0, 0_u64.wrapping_sub(64 << 10)];

#[test]
fn every_event_is_read_once_and_in_order_or_counted() {
    const EVENTS: u32 = if cfg!(miri) { 250 } else { 20_000 };
    /// The buffer must be full at times.
    const DRAINED_ONCE_IN: u64 = if cfg!(miri) { 120 } else { 60 };
    for mode in [Mode::Discard, Mode::FlightRecorder] {
        for start in STARTS {
            let setup = Setup::new(mode, 2, start);
            let (mut random, mut own) = (Random::new(start ^ 5), setup.own_place());
            let (mut found, mut emitted) = (Vec::new(), 0);
            for number in 0..EVENTS {
                emitted += 1;
                let _ = setup.emit(1 + random.next_below(29) as u32, 1, number);
                if random.next_below(100) == 0 {
                    setup.force_switch();
                }
                if random.next_below(DRAINED_ONCE_IN) == 0 {
                    found.extend(setup.drain(&mut own));
                }
                // Long gaps cause long headers.
                setup.clock.fetch_add(u64::from(random.once_in(50)) << 28, Ordering::SeqCst);
            }
            setup.force_switch();
            found.extend(setup.drain(&mut own));
            assert!(found.is_sorted_by_key(|record| record.number));
            assert!(found.is_sorted_by_key(|record| record.timestamp));
            let delivered = setup.buffer().records();
            assert_eq!(delivered + setup.lost(), emitted);
            match mode {
                Mode::Discard => {
                    assert_eq!(found.len() as u64, delivered);
                    assert!(setup.lost() > 0, "it was full at times");
                }
                Mode::FlightRecorder => {
                    assert_eq!(setup.lost(), 0);
                    assert!((found.len() as u64) < delivered, "some were overwritten");
                    assert_eq!(found.last().map(|record| record.number), Some(EVENTS - 1));
                }
            }
            assert_eq!(setup.buffer().holes().count(), 0);
        }
    }
}

#[test]
fn slots_may_be_committed_in_any_order() {
    let setup = Setup::new(Mode::Discard, 1, 0);
    let mut own = setup.own_place();
    let [a, b, c] = [1, 2, 3].map(|words| setup.reserve(words).expect("a slot"));
    setup.write(&c, 3, 1, 2);
    setup.buffer().commit(&setup.memory, &c);
    setup.force_switch();
    assert_eq!((setup.buffer().poll(), setup.drain(&mut own)), (Poll::Nothing, vec![]));
    setup.write(&a, 1, 1, 0);
    setup.buffer().commit(&setup.memory, &a);
    assert_eq!(setup.drain(&mut own), []);
    setup.write(&b, 2, 1, 1);
    setup.buffer().commit(&setup.memory, &b);
    assert_eq!(setup.buffer().poll(), Poll::Ready);
    let numbers: Vec<_> = setup.drain(&mut own).iter().map(|record| record.number).collect();
    assert_eq!(numbers, [0, 1, 2]);
}

/// Section 4.2: equation (3) detects that a whole buffer was written between a producer's reserve
/// and commit.
#[test]
fn whoever_comes_round_before_a_commit_is_refused() {
    for mode in [Mode::Discard, Mode::FlightRecorder] {
        let setup = Setup::new(mode, 2, STARTS[1]);
        let mut own = setup.own_place();
        let slot = setup.reserve(4).expect("a slot");
        let (mut read, mut number) = (0, 1);
        while setup.emit(29, 1, number).is_ok() {
            number += 1;
            read += setup.drain(&mut own).len();
            assert!(number < 1000, "it must end");
        }
        // Nothing can be read before the missing slot is committed.
        assert_eq!(read, 0);
        let holes: Vec<_> = setup.buffer().holes().collect();
        assert_eq!((holes.len(), holes[0].bytes), (1, slot.bytes));
        assert_eq!(holes[0].position, STARTS[1]);
        setup.write(&slot, 4, 1, 0);
        setup.buffer().commit(&setup.memory, &slot);
        let found = setup.drain(&mut own);
        assert_eq!(found.first().map(|record| record.number), Some(0));
        assert!(setup.emit(29, 1, number).is_ok(), "and everything goes on");
    }
}

/// The known weakness: a producer that dies between reserve and commit.
#[test]
fn a_dead_producer_leaves_a_hole_that_is_found_and_all_later_events_are_counted() {
    const EVENTS: u32 = if cfg!(miri) { 500 } else { 2000 };
    for mode in [Mode::Discard, Mode::FlightRecorder] {
        let setup = Setup::new(mode, 2, 0);
        let mut own = setup.own_place();
        for number in 0..10 {
            setup.emit(5, 1, number).expect("a slot");
        }
        let dead = setup.reserve(20).expect("a slot");
        for number in 10..EVENTS {
            let _ = setup.emit(5, 1, number);
        }
        assert_eq!(setup.drain(&mut own), [], "nothing is torn, and nothing comes out");
        let holes: Vec<_> = setup.buffer().holes().filter(|hole| hole.position == 0).collect();
        assert_eq!((holes.len(), holes[0].bytes), (1, dead.bytes));
        assert!(holes[0].records >= 10);
        assert_eq!(setup.buffer().records() + setup.lost(), EVENTS.into());
    }
}

/// The next weakness: a producer that dies during delivery.
#[test]
fn what_a_dead_producer_did_not_deliver_is_read_at_the_end() {
    for (mode, stores) in
        [Mode::Discard, Mode::FlightRecorder].into_iter().zip(0..3).cycle().take(6)
    {
        let setup = Setup::new(mode, 1, 0);
        let sub_buffer = &setup.sub_buffers[0];
        let mut emitted = 0;
        while sub_buffer.commit_seq.load(Ordering::Relaxed) == 0 {
            setup.emit(5, 1, emitted).expect("a slot");
            emitted += 1;
        }
        let delivered = u64::from(emitted) - 1;
        // Reverts to the state after the first `stores` stores of `deliver`.
        sub_buffer.commit_seq.store(0, Ordering::Relaxed);
        if stores < 2 {
            sub_buffer.reference.fetch_or(super::USED, Ordering::Relaxed);
        }
        if stores < 1 {
            sub_buffer.delivered.store(0, Ordering::Relaxed);
            // SAFETY: a place of this memory, and there are no threads.
            unsafe { setup.memory.store((1 << PAGE_SHIFT) + header::RECORDS as u64, &[0; 8]) };
        }
        assert_eq!(setup.drain(&mut setup.own_place()), []);
        let holes: Vec<_> = setup.buffer().holes().collect();
        assert_eq!(holes.len(), 1, "{holes:?}");
        assert_eq!((holes[0].position, holes[0].bytes), (0, 0));
        let (got, records) = setup.buffer().get_undelivered(&setup.memory).expect("it is whole");
        assert_eq!((got.position, records), (0, delivered));
        setup.buffer().put(got);
        assert_eq!(setup.buffer().get_undelivered(&setup.memory), None);
        assert_eq!(setup.buffer().holes().count(), 1, "it stays as it is");
    }
}

/// The earlier weakness: a producer that dies between its reservation and the reader's push.
#[test]
fn the_reader_is_pushed_for_a_dead_producer() {
    let setup = Setup::new(Mode::FlightRecorder, 1, STARTS[1]);
    setup.buffer().push_for_the_dead();
    assert_eq!(setup.counters.read_count.load(Ordering::Relaxed), STARTS[1], "nothing to push off");
    let mut number = 0;
    let sub = setup.geometry.sub_bytes();
    // Fills the buffer with whole sub-buffers, before the dead producer's reservation.
    while setup.counters.write_count.load(Ordering::Relaxed).wrapping_sub(STARTS[1]) < sub + 1 {
        setup.emit(29, 1, number).expect("a slot");
        number += 1;
    }
    let in_the_first = number - 1;
    assert!(setup.force_switch());
    let end = setup.counters.write_count.load(Ordering::Relaxed);
    assert_eq!(end.wrapping_sub(STARTS[1]), 2 * sub);
    let reserved = end.wrapping_add(SUB_HEADER_BYTES as u64 + 100);
    setup.counters.write_count.store(reserved, Ordering::Relaxed);
    setup.sub_buffers[0].reference.fetch_or(super::USED, Ordering::Relaxed);
    assert_eq!(setup.drain(&mut setup.own_place()), [], "the first is taken, and not pushed off");
    setup.buffer().push_for_the_dead();
    let found = setup.drain(&mut setup.own_place());
    assert_eq!(found.first().map(|record| record.number), Some(in_the_first));
    assert_eq!(
        setup.counters.read_count.load(Ordering::Relaxed),
        end,
        "the next one is the hole's"
    );
    setup.buffer().push_for_the_dead();
    assert_eq!(setup.counters.read_count.load(Ordering::Relaxed), end);
    assert_eq!(setup.buffer().holes().map(|hole| hole.position).collect::<Vec<_>>(), [end]);
}

#[test]
fn nothing_is_reserved_after_the_end() {
    let setup = Setup::new(Mode::Discard, 1, 0);
    setup.emit(1, 1, 0).expect("a slot");
    let now = || setup.clock.fetch_add(3, Ordering::SeqCst);
    let ended = setup.buffer().reserve(&setup.memory, now, || false, (1, 8, 7));
    assert_eq!(ended, Err(LossReason::Ended));
    setup.force_switch();
    assert_eq!((setup.drain(&mut setup.own_place()).len(), setup.lost()), (1, 0));
    assert_eq!(setup.buffer().holes().count(), 0);
}

/// A producer that read the generation before the end and sleeps before its compare-and-swap.
#[test]
fn who_sleeps_through_the_end_gets_nothing_in_the_next_session_either() {
    let setup = Setup::new(Mode::Discard, 1, 0);
    setup.emit(1, 1, 0).expect("a slot");
    let generation = Cell::new(1);
    let looks = Cell::new(0);
    let now = || {
        // After the loads of write count and generation: the session ends, another begins.
        if looks.get() == 1 {
            generation.set(2);
            assert!(setup.buffer().retire());
            assert_eq!(setup.buffer().holes().count(), 0);
            assert!(setup.buffer().retire(), "and again");
        }
        setup.clock.fetch_add(3, Ordering::SeqCst)
    };
    let goes_on = || {
        looks.set(looks.get() + 1);
        generation.get() == 1
    };
    let ended = setup.buffer().reserve(&setup.memory, now, goes_on, (1, 8, 7));
    assert_eq!((ended, looks.get()), (Err(LossReason::Ended), 2));
    setup.emit(1, 1, 1).expect("a slot of the next session");
    setup.force_switch();
    assert_eq!(setup.drain(&mut setup.own_place()).len(), 1);
    assert_eq!(setup.buffer().holes().count(), 0);
}

#[test]
fn a_buffer_in_which_somebody_has_a_slot_is_not_retired() {
    let setup = Setup::new(Mode::Discard, 1, 0);
    let slot = setup.reserve(4).expect("a slot");
    assert!(!setup.buffer().retire());
    setup.write(&slot, 4, 1, 0);
    setup.buffer().commit(&setup.memory, &slot);
    assert!(setup.buffer().retire());
}

/// The recorder passed the sub-buffer of a sleeping producer, which now continues.
#[test]
fn a_reader_that_is_ahead_is_not_pushed() {
    let setup = Setup::new(Mode::FlightRecorder, 1, STARTS[1]);
    let ahead = STARTS[1].wrapping_add(64 * setup.geometry.sub_bytes());
    setup.counters.read_count.store(ahead, Ordering::Relaxed);
    for number in 0..1000 {
        setup.emit(29, 1, number).expect("a slot");
    }
    assert_eq!(setup.counters.read_count.load(Ordering::Relaxed), ahead);
    // The distance does not matter.
    setup.counters.write_count.store(1 << 62, Ordering::Relaxed);
    setup.buffer().push_for_the_dead();
    assert!(setup.counters.read_count.load(Ordering::Relaxed) >= (1 << 62) - (2 << 12));
}

#[test]
fn another_session_begins_beyond_the_one_before() {
    let setup = Setup::new(Mode::Discard, 1, 0);
    setup.emit(1, 1, 0).expect("a slot");
    setup.buffer().begin_session();
    let begin = setup.counters.write_count.load(Ordering::Relaxed);
    assert!(begin > 4096 && begin.is_multiple_of(setup.geometry.ring_bytes()));
    assert_eq!(setup.drain(&mut setup.own_place()), []);
    assert_eq!(setup.buffer().memory_end(), 0);
    for place in 1..=setup.places.len() as u64 {
        assert_eq!(setup.buffer().give_memory(place << PAGE_SHIFT), place);
    }
    assert_eq!(setup.buffer().memory_end(), (1 + setup.places.len() as u64) << PAGE_SHIFT);
    setup.emit(1, 1, 1).expect("a slot");
    setup.force_switch();
    assert_eq!(setup.drain(&mut setup.own_place()).len(), 1);
    assert_eq!(setup.buffer().holes().count(), 0);
}

#[test]
fn what_finds_no_memory_is_counted_and_holds_nobody_up() {
    let setup = Setup::new(Mode::Discard, 1, 0);
    for place in &setup.places {
        place.store(0, Ordering::Relaxed);
    }
    for number in 0..1000 {
        assert!(matches!(setup.emit(20, 1, number), Err(LossReason::NotBacked | LossReason::Full)));
    }
    assert_eq!((setup.lost(), setup.buffer().holes().count()), (1000, 0));
}

#[test]
fn a_switch_is_forced_only_where_there_is_something() {
    let setup = Setup::new(Mode::Discard, 1, 0);
    let mut own = setup.own_place();
    assert!(!setup.force_switch());
    setup.emit(1, 1, 0).expect("a slot");
    assert!(setup.force_switch());
    assert!(!setup.force_switch());
    assert_eq!(setup.drain(&mut own).len(), 1);
    // The buffer is full while one of its two sub-buffers is not read.
    setup.emit(1, 1, 1).expect("a slot");
    setup.force_switch();
    setup.emit(1, 1, 2).expect("a slot");
    setup.force_switch();
    assert_eq!(setup.emit(1, 1, 3), Err(LossReason::Full));
    assert_eq!(setup.buffer().poll(), Poll::Urgent);
    assert_eq!(setup.drain(&mut own).len(), 2);
    assert_eq!(setup.emit(1, 1, 4), Ok(()));
}

/// Runs four producers and a consumer, scheduled freely by the system.
#[test]
fn threads_lose_and_tear_nothing() {
    const WRITERS: u32 = 4;
    const EVENTS: u32 = if cfg!(miri) { 12 } else { 60_000 };
    for (mode, start) in [(Mode::Discard, STARTS[1]), (Mode::FlightRecorder, STARTS[1])] {
        let setup = Setup::new(mode, 2, start);
        let stop = AtomicBool::new(false);
        let (found, emitted) = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let setup = &setup;
                    scope.spawn(move || {
                        let mut random = Random::new(u64::from(writer));
                        (0..EVENTS)
                            .filter(|&number| {
                                let words = 1 + random.next_below(29) as u32;
                                setup.emit(words, writer, number).is_ok()
                            })
                            .count()
                    })
                })
                .collect();
            let (setup, stop) = (&setup, &stop);
            let reader = scope.spawn(move || {
                let (mut found, mut own) = (Vec::new(), setup.own_place());
                while !stop.load(Ordering::Acquire) {
                    found.extend(setup.drain(&mut own));
                    std::thread::yield_now();
                }
                setup.force_switch();
                found.extend(setup.drain(&mut own));
                found
            });
            let emitted: usize =
                writers.into_iter().map(|writer| writer.join().expect("a writer")).sum();
            stop.store(true, Ordering::Release);
            (reader.join().expect("the reader"), emitted)
        });
        assert!(found.is_sorted_by_key(|record| record.timestamp), "times go forward");
        for writer in 0..WRITERS {
            let numbers: Vec<_> = found.iter().filter(|record| record.writer == writer).collect();
            assert!(numbers.is_sorted_by(|a, b| a.number < b.number), "each once, in order");
        }
        let delivered = setup.buffer().records();
        assert_eq!(delivered, emitted as u64);
        assert_eq!(delivered + setup.lost(), u64::from(WRITERS * EVENTS));
        assert!(!found.is_empty());
        if mode == Mode::Discard {
            assert_eq!(found.len(), emitted);
        }
        assert_eq!(setup.buffer().holes().count(), 0);
    }
}

/// Compares the equations with the paper's text, in numbers that do not wrap.
#[test]
fn equations_say_what_the_text_says() {
    let mut random = Random::new(3);
    let seen = Cell::new([false; 8]);
    for _ in 0..if cfg!(miri) { 1000 } else { 20_000 } {
        let geometry = Geometry::new(12, 1 + random.next_below(3) as u32).expect("sizes");
        let (sub, count) = (geometry.sub_bytes(), geometry.sub_count());
        // Number of consumed and produced sub-buffers, and an origin near the wrap.
        let origin = 0_u64.wrapping_sub(random.next_below(6) * geometry.ring_bytes());
        let consumed = random.next_below(40);
        let produced = consumed + random.next_below(2 * count + 2);
        let count_at = |number: u64| origin.wrapping_add(number * sub);
        let write = count_at(produced).wrapping_add(random.next_below(sub));
        let read = count_at(consumed).wrapping_add(random.next_below(sub));
        // Number of times that each sub-buffer was filled.
        let filled = random.next_below(44 / count + 2);
        let shift = count.trailing_zeros();
        let commit = (origin >> shift).wrapping_add(filled * sub);
        let says = [
            buffer_full(geometry, write, read) == (produced - consumed >= count),
            sub_buffer_ready(geometry, read, commit) == (filled == consumed / count + 1),
            fully_committed(geometry, write, commit) == (filled == produced / count),
            sub_buffer_written(geometry, write, read) == (produced == consumed),
        ];
        assert_eq!(says, [true; 4], "{produced} {consumed} {filled} of {count}");
        let mut any = seen.get();
        for (at, is) in [
            buffer_full(geometry, write, read),
            sub_buffer_ready(geometry, read, commit),
            fully_committed(geometry, write, commit),
            sub_buffer_written(geometry, write, read),
        ]
        .into_iter()
        .enumerate()
        {
            any[2 * at + usize::from(is)] = true;
        }
        seen.set(any);
    }
    assert_eq!(seen.get(), [true; 8], "each was true at times, and not at others");
}
