//! The producer: Algorithms 1 to 4.

use trackway_abi::record::EXTENDED_BYTES;
use trackway_abi::region::SUB_HEADER_BYTES;

use super::equations::{buffer_full, committed_before, fully_committed, round_of};
use super::{Buffer, Mode, Reference, Store, SubBuffer, USED, header};
use crate::primitive::Ordering;
use crate::writer::header_bytes;

/// A reserved slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Its position in the buffer.
    pub position: u64,
    /// Its size, the record's header included, in bytes.
    pub bytes: u64,
    /// Size of the record's header.
    pub header_bytes: usize,
    /// The place of its bytes, in bytes from the window's start.
    pub at: u64,
    /// Its time, ns.
    pub timestamp: u64,
    /// True if it enters, leaves or ends a sub-buffer: once in a while.
    pub switched: bool,
}

/// Why an event has no slot. It was counted, unless the session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossReason {
    /// The buffer is full (discard mode).
    Full,
    /// Slots of the round before are not committed: so much was written while a producer was
    /// between reserve and commit, or one died there.
    Nested,
    /// There is no memory. Counted as if it were full.
    NotBacked,
    /// The session ended; this event is not counted.
    Ended,
}

/// Attempts to move a counter that others move. In each attempt but the last another producer
/// succeeded, so this ends; but a process that overwrites the counters could make it last.
const TRIES_MAX: usize = 10_000;

/// Why there is no slot at a write count.
enum ReserveRefusal {
    /// Write count is another by now.
    TryAgain,
    /// There is none to be had.
    Lost(LossReason),
}

/// The further actions of a reservation after taking a slot: the paper's `buffer_switch_flags`.
#[derive(Clone, Copy)]
struct Switch {
    /// Leaves a sub-buffer before its end.
    old: bool,
    /// Enters a sub-buffer.
    new: bool,
    /// Ends where a sub-buffer does.
    end: bool,
}

/// A reservation that was tried: the result of Algorithm 1.
struct TriedReservation {
    /// Write count on which it rests.
    write_count: u64,
    /// Start of the slot: write count, or the end of the next sub-buffer's header.
    position: u64,
    /// Its end.
    end: u64,
    header_bytes: usize,
    timestamp: u64,
    switch: Switch,
}

impl Buffer<'_> {
    /// Notes a reservation by a producer that is not in the table of processes: its death will not
    /// be noticed.
    pub fn note_unnamed(&self) {
        let unnamed = &self.counters.unnamed;
        if unnamed.load(Ordering::Relaxed) == 0 {
            // Seen by every process that sees the reservation, whose exchange is a Release.
            unnamed.store(1, Ordering::Relaxed);
        }
    }

    /// Algorithm 2, `RESERVESLOT`: a slot for a record with `body_bytes` of contexts and payload,
    /// at most [`crate::Geometry::record_bytes_max`] with the longest header. `now` reads the
    /// clock, ns; `epoch` is for the header of a sub-buffer. `goes_on` is asked whether the session
    /// goes on, each time after write count was read: then that was write count's value in this
    /// session, and the compare-and-swap fails once [`Buffer::retire`] has moved it on.
    ///
    /// Until the slot is committed, nothing that is in its sub-buffer can be read, and the caller
    /// must not be ended.
    #[inline]
    pub fn reserve(
        &self,
        memory: &impl Store,
        mut now: impl FnMut() -> u64,
        goes_on: impl Fn() -> bool,
        (id, body_bytes, epoch): (u32, usize, u64),
    ) -> Result<Slot, LossReason> {
        let mut tries = 0;
        let tried = loop {
            // A process that writes over the counters could go on for ever.
            tries += 1;
            if tries > TRIES_MAX {
                self.counters.lost_full.fetch_add(1, Ordering::Relaxed);
                return Err(LossReason::Full);
            }
            let tried = match self.try_reserve(&mut now, &goes_on, id, body_bytes) {
                Ok(tried) => tried,
                Err(ReserveRefusal::TryAgain) => continue,
                Err(ReserveRefusal::Lost(lost)) => return Err(lost),
            };
            // ORDERING: Release pairs with the Acquire in `try_reserve`: who reserves behind us has
            // seen our reservation before it reads the clock. Acquire is that load's, which this
            // one stands in for.
            let exchanged = self.counters.write_count.compare_exchange_weak(
                tried.write_count,
                tried.end,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            if exchanged.is_ok() {
                break tried;
            }
        };
        let TriedReservation { position, end, header_bytes, timestamp, switch, .. } = tried;
        self.counters.last_ts.store(timestamp, Ordering::Relaxed);
        let place = self.use_place(position);
        let switched = switch.old || switch.new || switch.end;
        if switched {
            self.switch(memory, &tried, epoch);
        }
        let Some(place) = place else {
            // This buffer got no memory, as that of a processor that came later. What was reserved
            // is given away as it is, or the buffer would stand still.
            self.commit_bytes(memory, position, end.wrapping_sub(position), 0);
            self.counters.lost_full.fetch_add(1, Ordering::Relaxed);
            return Err(LossReason::NotBacked);
        };
        let at = place + self.geometry.within(position);
        let bytes = end.wrapping_sub(position);
        Ok(Slot { position, bytes, header_bytes, at, timestamp, switched })
    }

    /// Algorithm 1, `TRYRESERVESLOT`: no effect but to count an event that is lost.
    #[inline(always)]
    fn try_reserve(
        &self,
        now: &mut impl FnMut() -> u64,
        goes_on: &impl Fn() -> bool,
        id: u32,
        body_bytes: usize,
    ) -> Result<TriedReservation, ReserveRefusal> {
        let geometry = self.geometry;
        // ORDERING: Acquire pairs with the Release of the reservation before: so the clock is read
        // after it, and times are in the order of slots.
        let write_count = self.counters.write_count.load(Ordering::Acquire);
        if !goes_on() {
            return Err(ReserveRefusal::Lost(LossReason::Ended));
        }
        // Of a slot before this one, if the compare-and-swap succeeds.
        let last_ts = self.counters.last_ts.load(Ordering::Relaxed);
        let timestamp = now().max(last_ts);
        let within = geometry.within(write_count);
        let record = header_bytes(id, timestamp - last_ts);
        let bytes = (record + body_bytes) as u64;
        if within != 0 && within + bytes <= geometry.sub_bytes() {
            let end = write_count.wrapping_add(bytes);
            let switch = Switch { old: false, new: false, end: geometry.within(end) == 0 };
            return Ok(TriedReservation {
                write_count,
                position: write_count,
                end,
                header_bytes: record,
                timestamp,
                switch,
            });
        }
        let start = self.position_after(write_count);
        self.may_enter(write_count, start)?;
        // Its sub-buffer is opened at its own time.
        let record = header_bytes(id, 0);
        let position = start.wrapping_add(SUB_HEADER_BYTES as u64);
        let end = position.wrapping_add((record + body_bytes) as u64);
        debug_assert!(
            SUB_HEADER_BYTES + EXTENDED_BYTES + body_bytes <= geometry.sub_bytes() as usize
        );
        let switch = Switch { old: within != 0, new: true, end: geometry.within(end) == 0 };
        Ok(TriedReservation { write_count, position, end, header_bytes: record, timestamp, switch })
    }

    /// Start of the sub-buffer behind `position`: of the one there, if it is a start.
    fn position_after(&self, position: u64) -> u64 {
        let into = self.geometry.sub_bytes() - 1;
        position.wrapping_add(into) & !into
    }

    /// Algorithm 1, lines 5 to 16: whether the sub-buffer at `start` may be written, by who read
    /// `write_count`.
    ///
    /// Not in the paper: before an event is lost, write count is read again. If others have gone on
    /// since it was read, and perhaps round, the other counters belong to a later one, and an event
    /// would be lost although there is room (found by the model in tests/loom).
    #[cold]
    fn may_enter(&self, write_count: u64, start: u64) -> Result<(), ReserveRefusal> {
        // ORDERING: Acquire pairs with the Release with which the round before was declared whole:
        // its bytes are all written before ours.
        let commit = self.sub_buffer(start).commit_seq.load(Ordering::Acquire);
        // ORDERING: Acquire pairs with the Release in `put`: the consumer has read what was there.
        let read_count = self.counters.read_count.load(Ordering::Acquire);
        let (count, lost) = if !fully_committed(self.geometry, start, commit) {
            (&self.counters.lost_nested, LossReason::Nested)
        } else if self.mode == Mode::Discard && buffer_full(self.geometry, start, read_count) {
            (&self.counters.lost_full, LossReason::Full)
        } else {
            return Ok(());
        };
        // Behind the two Acquires: who stored those values had seen, or made, the reservations that
        // they follow from.
        if self.counters.write_count.load(Ordering::Relaxed) != write_count {
            return Err(ReserveRefusal::TryAgain);
        }
        count.fetch_add(1, Ordering::Relaxed);
        Err(ReserveRefusal::Lost(lost))
    }

    /// Algorithm 2, line 8: marks the sub-buffer as used. Where its memory is, from now on and
    /// until all of it is committed.
    #[inline(always)]
    fn use_place(&self, position: u64) -> Option<u64> {
        let reference = &self.sub_buffer(position).reference;
        // ORDERING: Acquire pairs with the consumer's Release in `get`: the memory that it gave in
        // exchange is not read any more.
        let mut word = reference.load(Ordering::Acquire);
        if word & USED == 0 {
            word = reference.fetch_or(USED, Ordering::AcqRel);
        }
        self.place(Reference::from_word(word).place)
    }

    /// Algorithm 2, lines 7 and 9 to 11: what is to be done after a reservation that enters, leaves
    /// or ends a sub-buffer.
    #[cold]
    #[inline(never)]
    fn switch(&self, memory: &impl Store, tried: &TriedReservation, epoch: u64) {
        let TriedReservation { write_count, end, timestamp, switch, .. } = *tried;
        let start = self.position_after(write_count);
        if switch.new {
            self.push_reader(start);
        }
        if switch.old {
            self.close(memory, write_count, timestamp);
            self.commit_bytes(memory, write_count, start.wrapping_sub(write_count), 0);
        }
        if switch.new {
            self.open(memory, start, timestamp, epoch);
        }
        if switch.end {
            self.close(memory, end, timestamp);
        }
    }

    /// `PUSHREADER`: in flight recorder mode, moves read count off the sub-buffer at `start`.
    pub(super) fn push_reader(&self, start: u64) {
        if self.mode == Mode::Discard {
            return;
        }
        let read_count = &self.counters.read_count;
        let ring = self.geometry.ring_bytes();
        // The oldest sub-buffer that is not overwritten.
        let next = start.wrapping_sub(ring).wrapping_add(self.geometry.sub_bytes());
        let mut read = read_count.load(Ordering::Relaxed);
        for _ in 0..TRIES_MAX {
            // Equation (1) holds also where read count is ahead: of a producer that slept here
            // while the recorder passed over its sub-buffer.
            let behind = next.wrapping_sub(read).cast_signed();
            if behind <= 0 || !buffer_full(self.geometry, start, read) {
                return;
            }
            match read_count.compare_exchange_weak(read, next, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => read = now,
            }
        }
    }

    /// `SWITCHNEWSUBBUF`: writes the header of the sub-buffer at `start` and commits it.
    fn open(&self, memory: &impl Store, start: u64, timestamp: u64, epoch: u64) {
        if let Some(place) = self.use_place(start) {
            let lost = [&self.counters.lost_full, &self.counters.lost_nested];
            let lost = lost.map(|count| count.load(Ordering::Relaxed));
            let mut fields = [0; header::END - header::POSITION];
            for (at, value) in [
                (header::POSITION, start),
                (header::BEGIN, timestamp),
                (header::LOST, lost[0].wrapping_add(lost[1])),
                (header::EPOCH, epoch),
            ] {
                fields[at..at + 8].copy_from_slice(&value.to_le_bytes());
            }
            // SAFETY: the bytes are part of what the reservation took.
            unsafe {
                memory.store(place, &fields);
                // What lies between belongs to who closes it, who may have been here before us.
                memory.store(place + header::RECORDS as u64, &[0; 8]);
            }
        }
        self.commit_bytes(memory, start, SUB_HEADER_BYTES as u64, 0);
    }

    /// The first half of `SWITCHOLDSUBBUF`, and `ENDSWITCHCURRENT`: writes into the header of a
    /// sub-buffer that its content ends at `content`, a position in it or its end.
    fn close(&self, memory: &impl Store, content: u64, timestamp: u64) {
        let within = content.wrapping_sub(1);
        if let Some(place) = self.use_place(within) {
            let mut fields = [0; header::RECORDS - header::END];
            fields[..8].copy_from_slice(&timestamp.to_le_bytes());
            fields[8..].copy_from_slice(&content.to_le_bytes());
            // SAFETY: the fields are written by the producer that closes the sub-buffer, once, and
            // it has bytes there that are not committed.
            unsafe { memory.store(place + header::END as u64, &fields) };
        }
    }

    /// Algorithm 3, `COMMITSLOT`: gives a slot away, which is written.
    #[inline]
    pub fn commit(&self, memory: &impl Store, slot: &Slot) {
        self.commit_bytes(memory, slot.position, slot.bytes, 1);
    }

    #[inline(always)]
    fn commit_bytes(&self, memory: &impl Store, position: u64, bytes: u64, records: u64) {
        let sub_buffer = self.sub_buffer(position);
        if records > 0 {
            sub_buffer.records.fetch_add(records, Ordering::Relaxed);
        }
        // ORDERING: Release: the bytes, and the records, before the count; Acquire: the producer
        // that commits the last slot sees those of all others, whose additions its own follows.
        let before = sub_buffer.commit_count.fetch_add(bytes, Ordering::AcqRel);
        let commit_count = before.wrapping_add(bytes);
        // Equation (3) for the position one round later, told by its lowest bits: there are no
        // other bytes in the sub-buffer than those of this round, or of none.
        if self.geometry.within(commit_count) == 0 {
            self.deliver(memory, position, sub_buffer, commit_count);
        }
    }

    /// Algorithm 3, lines 3 to 8: the sub-buffer is whole.
    #[cold]
    #[inline(never)]
    fn deliver(
        &self,
        memory: &impl Store,
        position: u64,
        sub_buffer: &SubBuffer,
        commit_count: u64,
    ) {
        debug_assert_eq!(
            committed_before(self.geometry, position).wrapping_add(self.geometry.sub_bytes())
                << (self.geometry.sub_count().trailing_zeros()),
            commit_count << (self.geometry.sub_count().trailing_zeros())
        );
        let records = sub_buffer.records.load(Ordering::Relaxed);
        let delivered = sub_buffer.delivered.load(Ordering::Relaxed);
        let word = sub_buffer.reference.load(Ordering::Relaxed);
        let place = Reference::from_word(word).place;
        // A producer that is killed from here on leaves it to the consumer: `get_undelivered`.
        if let Some(at) = self.place(place) {
            let new = records.wrapping_sub(delivered).to_le_bytes();
            // SAFETY: no other producer has anything to do in a sub-buffer that is whole and not
            // yet declared so.
            unsafe { memory.store(at + header::RECORDS as u64, &new) };
        }
        // ORDERING: Release: the header has its records before; also if there is nothing after.
        sub_buffer.delivered.store(records, Ordering::Release);
        // The flag first: once the sub-buffer is declared whole, a producer may be in it again.
        let reference =
            Reference { place, is_used: false, round: round_of(self.geometry, position) };
        // ORDERING: Release pairs with the consumer's Acquire of the reference.
        sub_buffer.reference.store(reference.to_word(), Ordering::Release);
        let mut seq = sub_buffer.commit_seq.load(Ordering::Relaxed);
        // "Less" in the paper; modulo 2^64 it is: behind.
        while commit_count.wrapping_sub(seq) as i64 > 0 {
            // ORDERING: Release pairs with the Acquire of the consumer, and of who goes round.
            match sub_buffer.commit_seq.compare_exchange_weak(
                seq,
                commit_count,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => seq = now,
            }
        }
    }

    /// Algorithm 4, `FORCESWITCH`: ends the sub-buffer that is being written, if there is anything
    /// in it, so that it can be read soon. Whether it did.
    ///
    /// Opening the next one, the paper's line 7, is left to who reserves next: it does not need an
    /// event's space for a header that may stay alone.
    pub fn force_switch(&self, memory: &impl Store, mut now: impl FnMut() -> u64) -> bool {
        let geometry = self.geometry;
        for _ in 0..TRIES_MAX {
            // ORDERING: as in `try_reserve` and `reserve`.
            let write_count = self.counters.write_count.load(Ordering::Acquire);
            if geometry.within(write_count) <= SUB_HEADER_BYTES as u64 {
                return false;
            }
            let last_ts = self.counters.last_ts.load(Ordering::Relaxed);
            let timestamp = now().max(last_ts);
            let start = self.position_after(write_count);
            let exchanged = self.counters.write_count.compare_exchange_weak(
                write_count,
                start,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            if exchanged.is_ok() {
                self.counters.last_ts.store(timestamp, Ordering::Relaxed);
                self.close(memory, write_count, timestamp);
                self.commit_bytes(memory, write_count, start.wrapping_sub(write_count), 0);
                return true;
            }
        }
        false
    }
}
