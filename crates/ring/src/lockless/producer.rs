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
    /// Position of the slot in the buffer.
    pub position: u64,
    /// Size of the slot, the record's header included, in bytes.
    pub bytes: u64,
    /// Size of the record's header, in bytes.
    pub header_bytes: usize,
    /// Place of the slot's memory, in bytes from the window's start.
    pub at: u64,
    /// Time of the record, ns.
    pub timestamp: u64,
    /// True if the slot enters, leaves or ends a sub-buffer, which is rare.
    pub switched: bool,
}

/// The reason why an event has no slot. The event was counted, unless the session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossReason {
    /// The buffer is full (discard mode).
    Full,
    /// Slots of the round before are not committed: others wrote a whole round while a producer was
    /// between reserve and commit, or a producer died there.
    Nested,
    /// The buffer has no memory. Counted as if the buffer were full.
    NotBacked,
    /// The session ended; this event is not counted.
    Ended,
}

/// Maximum number of attempts to move a counter that others move. Each failed attempt means that
/// another producer succeeded; but a process that overwrites the counters could prolong this.
const TRIES_MAX: usize = 10_000;

/// The reason why there is no slot at a write count.
enum ReserveRefusal {
    /// Write count has changed meanwhile.
    TryAgain,
    /// No slot is available.
    Lost(LossReason),
}

/// The further actions of a reservation after taking a slot: the paper's `buffer_switch_flags`.
#[derive(Clone, Copy)]
struct Switch {
    /// The reservation leaves a sub-buffer before its end.
    old: bool,
    /// The reservation enters a sub-buffer.
    new: bool,
    /// The slot ends at the end of a sub-buffer.
    end: bool,
}

/// Outcome of one attempt to reserve space (Algorithm 1 of the 2012 paper).
struct TriedReservation {
    /// Write count on which the reservation rests.
    write_count: u64,
    /// Start of the slot: write count, or the end of the next sub-buffer's header.
    position: u64,
    /// End of the slot.
    end: u64,
    header_bytes: usize,
    timestamp: u64,
    switch: Switch,
}

impl Buffer<'_> {
    /// Notes a reservation by a producer that is not in the table of processes: nothing will detect
    /// its death.
    pub fn note_unnamed(&self) {
        let unnamed = &self.counters.unnamed;
        if unnamed.load(Ordering::Relaxed) == 0 {
            // Every process that observes the reservation, whose exchange is a Release, observes
            // this.
            unnamed.store(1, Ordering::Relaxed);
        }
    }

    /// Reserves a slot for a record with `body_bytes` of contexts and payload: Algorithm 2,
    /// `RESERVESLOT`. With the longest header, the record has at most
    /// [`crate::Geometry::record_bytes_max`]. `now` reads the clock, ns; `epoch` is for the header
    /// of a sub-buffer. `goes_on` returns true while the session goes on, and is called after each
    /// load of write count: then the loaded value belongs to this session, and the compare-and-swap
    /// fails once [`Buffer::retire`] has moved write count.
    ///
    /// Until the slot is committed, nothing in its sub-buffer can be read, and the caller must not
    /// be killed.
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
            // A process that overwrites the counters could prolong this loop for ever.
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
            // ORDERING: Release pairs with the Acquire in `try_reserve`: the next reserver has
            // observed this reservation before it reads the clock. Acquire stands in for the
            // Acquire of that load.
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
            // This buffer has no memory, like the buffer of a CPU that came later. The reserved
            // bytes are committed as they are, or the buffer would stand still.
            self.commit_bytes(memory, position, end.wrapping_sub(position), 0);
            self.counters.lost_full.fetch_add(1, Ordering::Relaxed);
            return Err(LossReason::NotBacked);
        };
        let at = place + self.geometry.within(position);
        let bytes = end.wrapping_sub(position);
        Ok(Slot { position, bytes, header_bytes, at, timestamp, switched })
    }

    /// Tries a reservation: Algorithm 1, `TRYRESERVESLOT`. Its only effect is to count a lost
    /// event.
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
        // after that reservation, and times are in the order of slots.
        let write_count = self.counters.write_count.load(Ordering::Acquire);
        if !goes_on() {
            return Err(ReserveRefusal::Lost(LossReason::Ended));
        }
        // Time of an earlier slot, if the compare-and-swap succeeds.
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
        // The record opens its sub-buffer, at its own time.
        let record = header_bytes(id, 0);
        let position = start.wrapping_add(SUB_HEADER_BYTES as u64);
        let end = position.wrapping_add((record + body_bytes) as u64);
        debug_assert!(
            SUB_HEADER_BYTES + EXTENDED_BYTES + body_bytes <= geometry.sub_bytes() as usize
        );
        let switch = Switch { old: within != 0, new: true, end: geometry.within(end) == 0 };
        Ok(TriedReservation { write_count, position, end, header_bytes: record, timestamp, switch })
    }

    /// Returns the start of the next sub-buffer, or `position` itself if it is a start.
    fn position_after(&self, position: u64) -> u64 {
        let into = self.geometry.sub_bytes() - 1;
        position.wrapping_add(into) & !into
    }

    /// Checks that a producer that read `write_count` may write the sub-buffer at `start`:
    /// Algorithm 1, lines 5 to 16.
    ///
    /// Not in the paper: before an event is lost, write count is read again. If others have moved
    /// it meanwhile, perhaps by a whole round, the other counters belong to a later write count,
    /// and an event would be lost although there is space (found by the model in tests/loom).
    #[cold]
    fn may_enter(&self, write_count: u64, start: u64) -> Result<(), ReserveRefusal> {
        // ORDERING: Acquire pairs with the Release that declared the round before whole: all its
        // bytes are written before the new ones.
        let commit = self.sub_buffer(start).commit_seq.load(Ordering::Acquire);
        // ORDERING: Acquire pairs with the Release in `put`: the consumer has read the old bytes.
        let read_count = self.counters.read_count.load(Ordering::Acquire);
        let (count, lost) = if !fully_committed(self.geometry, start, commit) {
            (&self.counters.lost_nested, LossReason::Nested)
        } else if self.mode == Mode::Discard && buffer_full(self.geometry, start, read_count) {
            (&self.counters.lost_full, LossReason::Full)
        } else {
            return Ok(());
        };
        // After the two Acquires: the threads that stored those values had observed, or made, the
        // reservations from which the values follow.
        if self.counters.write_count.load(Ordering::Relaxed) != write_count {
            return Err(ReserveRefusal::TryAgain);
        }
        count.fetch_add(1, Ordering::Relaxed);
        Err(ReserveRefusal::Lost(lost))
    }

    /// Marks the sub-buffer as used: Algorithm 2, line 8. Returns the place of its memory, which
    /// stays until the whole sub-buffer is committed.
    #[inline(always)]
    fn use_place(&self, position: u64) -> Option<u64> {
        let reference = &self.sub_buffer(position).reference;
        // ORDERING: Acquire pairs with the consumer's Release in `get`: the consumer does not read
        // any more the memory that it gave in exchange.
        let mut word = reference.load(Ordering::Acquire);
        if word & USED == 0 {
            word = reference.fetch_or(USED, Ordering::AcqRel);
        }
        self.place(Reference::from_word(word).place)
    }

    /// Completes a reservation that enters, leaves or ends a sub-buffer: Algorithm 2, lines 7 and 9
    /// to 11.
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

    /// Moves read count off the sub-buffer at `start`, in flight recorder mode: `PUSHREADER`.
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
            // Equation (1) also holds if read count is ahead of `start`: a producer slept here
            // while the recorder passed its sub-buffer.
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

    /// Writes the header of the sub-buffer at `start` and commits it: `SWITCHNEWSUBBUF`.
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
            // SAFETY: the bytes are part of the reservation.
            unsafe {
                memory.store(place, &fields);
                // The fields in between belong to the closing producer, which may have written
                // first.
                memory.store(place + header::RECORDS as u64, &[0; 8]);
            }
        }
        self.commit_bytes(memory, start, SUB_HEADER_BYTES as u64, 0);
    }

    /// Writes into the header of a sub-buffer that its content ends at `content`, a position in it
    /// or its end: the first half of `SWITCHOLDSUBBUF`, and `ENDSWITCHCURRENT`.
    fn close(&self, memory: &impl Store, content: u64, timestamp: u64) {
        let within = content.wrapping_sub(1);
        if let Some(place) = self.use_place(within) {
            let mut fields = [0; header::RECORDS - header::END];
            fields[..8].copy_from_slice(&timestamp.to_le_bytes());
            fields[8..].copy_from_slice(&content.to_le_bytes());
            // SAFETY: only the producer that closes the sub-buffer writes the fields, once, and it
            // has uncommitted bytes there.
            unsafe { memory.store(place + header::END as u64, &fields) };
        }
    }

    /// Commits a written slot: Algorithm 3, `COMMITSLOT`.
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
        // that commits the last slot observes those of all others, whose additions precede its own.
        let before = sub_buffer.commit_count.fetch_add(bytes, Ordering::AcqRel);
        let commit_count = before.wrapping_add(bytes);
        // Equation (3) for the position one round later, by its lowest bits alone: a sub-buffer has
        // no other bytes than those of this round.
        if self.geometry.within(commit_count) == 0 {
            self.deliver(memory, position, sub_buffer, commit_count);
        }
    }

    /// Delivers a whole sub-buffer: Algorithm 3, lines 3 to 8.
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
        // A producer killed from here on leaves the sub-buffer to the consumer: `get_undelivered`.
        if let Some(at) = self.place(place) {
            let new = records.wrapping_sub(delivered).to_le_bytes();
            // SAFETY: no other producer accesses a sub-buffer that is whole and not yet declared
            // whole.
            unsafe { memory.store(at + header::RECORDS as u64, &new) };
        }
        // ORDERING: Release: the header has its records before this, even if no store follows.
        sub_buffer.delivered.store(records, Ordering::Release);
        // The flag is cleared first: a producer may use the sub-buffer once it is declared whole.
        let reference =
            Reference { place, is_used: false, round: round_of(self.geometry, position) };
        // ORDERING: Release pairs with the consumer's Acquire of the reference.
        sub_buffer.reference.store(reference.to_word(), Ordering::Release);
        let mut seq = sub_buffer.commit_seq.load(Ordering::Relaxed);
        // The paper's "less" means "behind" modulo 2^64.
        while commit_count.wrapping_sub(seq) as i64 > 0 {
            // ORDERING: Release pairs with the Acquire of the consumer, and of the next round's
            // producers.
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

    /// Ends the sub-buffer that is being written, if it has any records, so that it can be read
    /// soon: Algorithm 4, `FORCESWITCH`. Returns true if it did.
    ///
    /// The next reserver opens the next sub-buffer (the paper's line 7), so that no header takes an
    /// event's space for a sub-buffer without records.
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
