//! The consumer: Algorithms 5 to 8, and sub-buffers that dead producers left.

use super::equations::{
    buffer_full, committed_before, round_of, sub_buffer_ready, sub_buffer_written,
};
use super::{Buffer, Mode, Reference, header};
use crate::Memory;
use crate::primitive::Ordering;

/// The state of the oldest sub-buffer (Algorithm 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Poll {
    /// No sub-buffer is ready.
    Nothing,
    /// A sub-buffer is ready.
    Ready,
    /// A sub-buffer is ready, and the buffer is full: the consumer must hurry.
    Urgent,
}

/// Error: no sub-buffer is whole, or a producer was faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TryAgain;

/// A sub-buffer that the consumer owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Got {
    /// Position of the sub-buffer: read count.
    pub position: u64,
    /// Place of the sub-buffer's memory, in bytes from the window's start.
    pub at: u64,
    /// Index of that memory in [`Buffer::places`].
    pub place: u32,
}

/// A sub-buffer with an uncommitted reservation, or a whole sub-buffer that was not delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hole {
    /// Position of the sub-buffer.
    pub position: u64,
    /// Number of missing bytes; 0: the sub-buffer is whole, and undelivered.
    pub bytes: u64,
    /// Number of committed records in the sub-buffer, which cannot be told from the missing bytes.
    pub records: u64,
}

impl Buffer<'_> {
    /// Polls the oldest sub-buffer: Algorithm 5, `READPOLL`, and the check of Algorithm 8, without
    /// the wait, which is the caller's task.
    pub fn poll(&self) -> Poll {
        let geometry = self.geometry;
        let read_count = self.counters.read_count.load(Ordering::Relaxed);
        let commit = self.sub_buffer(read_count).commit_seq.load(Ordering::Relaxed);
        let write_count = self.counters.write_count.load(Ordering::Relaxed);
        if !sub_buffer_ready(geometry, read_count, commit)
            || sub_buffer_written(geometry, write_count, read_count)
        {
            Poll::Nothing
        } else if buffer_full(geometry, write_count, read_count) {
            Poll::Urgent
        } else {
            Poll::Ready
        }
    }

    /// Gets the sub-buffer at read count for the consumer alone: Algorithm 6, `READGETSUBBUF`. In
    /// flight recorder mode, exchanges its memory for `own`, the consumer's place; the sub-buffer's
    /// old place becomes the consumer's.
    ///
    /// One consumer at a time ("the daemon takes a user-space mutex", section 4.3.2).
    pub fn get(&self, own: &mut u32) -> Result<Got, TryAgain> {
        let (got, word) = self.oldest()?;
        if self.mode == Mode::FlightRecorder {
            let given = Reference { place: *own, ..Reference::from_word(word) };
            // ORDERING: Acquire: no producer wrote to the place between the load in `oldest` and
            // this; Release pairs with the Acquire in `use_place`: the consumer does not read `own`
            // any more.
            self.sub_buffer(got.position)
                .reference
                .compare_exchange(word, given.to_word(), Ordering::AcqRel, Ordering::Relaxed)
                .map_err(|_| TryAgain)?;
            *own = got.place;
        }
        Ok(got)
    }

    /// Gets the next sub-buffer like [`Buffer::get`], at the session's end, when no producer begins
    /// any more. Leaves it in its place, so that another consumer finds it if this one is killed.
    pub fn get_in_place(&self) -> Result<Got, TryAgain> {
        self.oldest().map(|(got, _)| got)
    }

    /// Returns the sub-buffer at read count, if it is whole, and the word of its reference.
    fn oldest(&self) -> Result<(Got, u64), TryAgain> {
        let geometry = self.geometry;
        let position = self.counters.read_count.load(Ordering::Relaxed);
        let sub_buffer = self.sub_buffer(position);
        // ORDERING: Acquire pairs with the Release in `deliver`, which stores the reference's
        // round.
        let word = sub_buffer.reference.load(Ordering::Acquire);
        // ORDERING: Acquire pairs with the Release in `deliver`: all bytes of the sub-buffer are
        // there. Replaces lines 3 to 5 of the algorithm.
        let commit = sub_buffer.commit_seq.load(Ordering::Acquire);
        let write_count = self.counters.write_count.load(Ordering::Relaxed);
        if !sub_buffer_ready(geometry, position, commit) {
            return Err(TryAgain);
        }
        // Then the sub-buffer at read count belongs to the round before, or is not begun.
        if sub_buffer_written(geometry, write_count, position) {
            return Err(TryAgain);
        }
        let reference = Reference::from_word(word);
        let at = self.place(reference.place).ok_or(TryAgain)?;
        let is_of_round = !reference.is_used && reference.round == round_of(geometry, position);
        if self.mode == Mode::FlightRecorder && !is_of_round {
            return Err(TryAgain);
        }
        Ok((Got { position, at, place: reference.place }, word))
    }

    /// Returns the sub-buffer at the read count, if all of its records are committed and no
    /// producer has delivered it, and its number of records, which its header may lack.
    ///
    /// Called at the session's end, when no producer begins a reservation. The call changes nothing
    /// in the buffer: a producer that was only preempted before its delivery can continue. The
    /// sub-buffer remains among [`Buffer::holes`].
    pub fn get_undelivered(&self, memory: &impl Memory) -> Option<(Got, u64)> {
        let position = self.counters.read_count.load(Ordering::Relaxed);
        let sub_buffer = self.sub_buffer(position);
        if !self.is_undelivered(position) {
            return None;
        }
        let Reference { place, .. } =
            Reference::from_word(sub_buffer.reference.load(Ordering::Relaxed));
        let at = self.place(place)?;
        // If `delivered` is up to date, the header has the number of records.
        let records = match sub_buffer.undelivered() {
            0 => {
                let mut bytes = [0; 8];
                memory.load(at + header::RECORDS as u64, &mut bytes).ok()?;
                u64::from_le_bytes(bytes)
            }
            records => records,
        };
        Some((Got { position, at, place }, records))
    }

    /// Ends the buffer for producers that have not reserved yet: moves all counters to values that
    /// never come again, if there are no holes. Returns true if no producer has a slot, or ever
    /// will in this session.
    ///
    /// The recorder calls this once the session's generation has been raised and everything is
    /// read. A producer that reads write count afterwards finds another generation; one that read
    /// it before fails.
    pub fn retire(&self) -> bool {
        // ORDERING: Acquire pairs with the Release of the reservation that stored this count: the
        // search for holes comes after it.
        let write_count = self.counters.write_count.load(Ordering::Acquire);
        if self.holes().next().is_some() {
            return false;
        }
        let next = Self::next_session_count(write_count);
        // ORDERING: Release pairs with the Acquire in `try_reserve`: the generation was raised.
        let moved = self.counters.write_count.compare_exchange(
            write_count,
            next,
            Ordering::Release,
            Ordering::Relaxed,
        );
        if moved.is_ok() {
            // Later queries of the other counters must describe an empty buffer.
            self.reset(next);
        }
        moved.is_ok()
    }

    /// Returns true if all producers that may have a slot can be found in the table of processes.
    pub fn all_are_named(&self) -> bool {
        self.counters.unnamed.load(Ordering::Relaxed) == 0
    }

    /// Pushes the reader for the last reserver, which may have died before its push. For the
    /// session's end: otherwise read count stays on a sub-buffer that is taken and has no hole.
    pub fn push_for_the_dead(&self) {
        let write_count = self.counters.write_count.load(Ordering::Relaxed);
        let read_count = self.counters.read_count.load(Ordering::Relaxed);
        // Otherwise everything is read, and the sub-buffer that was reserved last is behind read
        // count.
        if write_count.wrapping_sub(read_count).cast_signed() > 0 {
            self.push_reader(write_count.wrapping_sub(1) & !(self.geometry.sub_bytes() - 1));
        }
    }

    /// Returns true if the sub-buffer at `position` is whole, but its commit seq does not show it.
    fn is_undelivered(&self, position: u64) -> bool {
        let sub_buffer = self.sub_buffer(position);
        // ORDERING: Acquire pairs with the Release of the addition in `commit_bytes`: the bytes are
        // there.
        let committed = sub_buffer.commit_count.load(Ordering::Acquire);
        sub_buffer_ready(self.geometry, position, committed)
            && sub_buffer.commit_seq.load(Ordering::Relaxed) != committed
    }

    /// Releases the sub-buffer that the consumer got: Algorithm 7, `READPUTSUBBUF`. A producer may
    /// have moved read count meanwhile, with the same effect.
    pub fn put(&self, got: Got) {
        let next = got.position.wrapping_add(self.geometry.sub_bytes());
        // ORDERING: Release pairs with the Acquire in `may_enter`: the bytes were read before.
        let _ = self.counters.read_count.compare_exchange(
            got.position,
            next,
            Ordering::Release,
            Ordering::Relaxed,
        );
    }

    /// Returns sub-buffers with reserved, uncommitted slots, and whole sub-buffers that are
    /// undelivered. They are holes if no producer is left that could continue in them.
    pub fn holes(&self) -> impl Iterator<Item = Hole> {
        let geometry = self.geometry;
        let write_count = self.counters.write_count.load(Ordering::Relaxed);
        let shares = (0..geometry.sub_count()).map(move |back| {
            // Position at which each sub-buffer was begun last.
            let start = write_count.wrapping_sub(1) & !(geometry.sub_bytes() - 1);
            let position = start.wrapping_sub(back * geometry.sub_bytes());
            let reserved = write_count.wrapping_sub(position).min(geometry.sub_bytes());
            (position, committed_before(geometry, position).wrapping_add(reserved))
        });
        shares.filter_map(move |(position, expected)| {
            let sub_buffer = self.sub_buffer(position);
            let committed = sub_buffer.commit_count.load(Ordering::Relaxed);
            let bits = geometry.sub_count().trailing_zeros();
            let bytes = (expected.wrapping_sub(committed)) & u64::MAX >> bits;
            let records = sub_buffer.undelivered();
            (bytes != 0 || self.is_undelivered(position)).then_some(Hole {
                position,
                bytes,
                records,
            })
        })
    }
}
