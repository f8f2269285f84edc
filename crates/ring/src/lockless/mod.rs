//! The 2012 paper's buffer: reserve by compare-and-swap, write, commit out of order.
//!
//! "Lockless multi-core high-throughput buffering scheme for kernel tracing" (Desnoyers, Dagenais),
//! section 4, in its own terms: the *producer* reserves *slots* in a *buffer* of *sub-buffers* by
//! moving *write count*, and commits them by adding to the sub-buffer's *commit count*. The *commit
//! seq* of a sub-buffer shows that all its bytes are committed; then the *consumer*, whose position
//! is *read count*, may take it. Trackway descends from this system, which is here for measurements
//! and for comparison with [`crate::Region`].
//!
//! | paper | here |
//! |---|---|
//! | equations (1) to (4) | [`equations`] |
//! | Algorithms 1 and 2, `TRYRESERVESLOT`, `RESERVESLOT` | [`Buffer::reserve`] |
//! | `PUSHREADER`, `SWITCHOLDSUBBUF`, `SWITCHNEWSUBBUF`, `ENDSWITCHCURRENT` | helpers of it |
//! | Algorithm 3, `COMMITSLOT` | [`Buffer::commit`] |
//! | Algorithm 4, `FORCESWITCH` | [`Buffer::force_switch`] |
//! | Algorithm 5, `READPOLL`; Algorithm 8, the periodic check | [`Buffer::poll`] |
//! | Algorithms 6 and 7, `READGETSUBBUF`, `READPUTSUBBUF` | [`Buffer::get`], [`Buffer::put`] |
//!
//! **What differs.** The paper's producers run on one processor with preemption disabled, so its
//! atomic operations are local ones, and a compiler barrier is enough between bytes and commit
//! count: the consumer makes a memory barrier of it by an interrupt (section 4.4). A thread of a
//! program can be moved to another processor between any two instructions: operations here are
//! those for several processors (the paper's footnote 2), with orderings in place of the
//! interrupt.
//!
//! **Invariant.** The bytes of a slot are its reserver's alone from the compare-and-swap that moved
//! write count over them until it adds them to the commit count. A sub-buffer's commit count
//! reaches a multiple of the sub-buffer's size when the last slot in it is committed, by any
//! producer; only then does its commit seq follow, and no producer reserves in its place again
//! before it has (equation (3)).
//!
//! **Writers.** Producers move `write_count` by compare-and-swap. The consumer and, in flight
//! recorder mode, overwriting producers move `read_count` by compare-and-swap. Producers add to
//! `commit_count` and `records`. The producer that committed the last slot stores `commit_seq`,
//! `delivered` and the reference, whose flag it clears. Other producers set the flag; the consumer
//! exchanges references without the flag.
//!
//! **Limits.** A producer that is killed between reserve and commit leaves a *hole*: its sub-buffer
//! is never whole, and nothing in it can be read. When the others have gone round once, equation
//! (3) refuses every slot in its place: all later events are lost, and counted
//! ([`Counters::lost_nested`]; in discard mode [`Counters::lost_full`]). A producer that is killed
//! after it committed the last slot, and before commit seq shows it, leaves a sub-buffer that is
//! whole and *undelivered*, with the same effect. [`Buffer::holes`] finds both; undelivered ones
//! can be read at the end ([`Buffer::get_undelivered`]). One committing store ([`crate::claim`],
//! [`crate::rseq`]) has no such states.

mod consumer;
pub mod equations;
mod producer;

pub use consumer::{Got, Hole, Poll, TryAgain};
pub use producer::{LossReason, Slot};

use crate::Geometry;
use crate::primitive::{AtomicU32, AtomicU64};

/// The behaviour when all sub-buffers are full (section 3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Events are lost, and counted.
    Discard,
    /// The oldest sub-buffer is overwritten.
    FlightRecorder,
}

/// A buffer's counters (section 4.1, figure 4).
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Counters {
    /// Bytes reserved, modulo 2^64.
    pub write_count: AtomicU64,
    /// Time of an earlier reserved slot, ns: of the last one, or slightly older.
    pub last_ts: AtomicU64,
    /// Events lost because the buffer was full (Algorithm 1, line 12) or has no memory.
    pub lost_full: AtomicU64,
    /// Events lost because slots of the round before are not committed (Algorithm 1, line 7).
    pub lost_nested: AtomicU64,
    padding: [AtomicU64; 4],
    /// Bytes consumed, modulo 2^64.
    pub read_count: AtomicU64,
    /// End of the memory of all sub-buffers, in bytes from the window's start.
    pub memory_end: AtomicU64,
    /// Not zero if a producer has reserved whose death cannot be detected.
    pub unnamed: AtomicU64,
    more_padding: [AtomicU64; 5],
}

impl Counters {
    /// Creates counters that are all zero, like fresh memory.
    pub fn new() -> Self {
        let word = || AtomicU64::new(0);
        Self {
            write_count: word(),
            last_ts: word(),
            lost_full: word(),
            lost_nested: word(),
            padding: core::array::from_fn(|_| word()),
            read_count: word(),
            memory_end: word(),
            unnamed: word(),
            more_padding: core::array::from_fn(|_| word()),
        }
    }
}

impl Default for Counters {
    fn default() -> Self {
        Self::new()
    }
}

/// A sub-buffer's counters.
#[repr(C)]
#[derive(Debug)]
pub struct SubBuffer {
    /// Bytes committed in the sub-buffer, modulo 2^64.
    pub commit_count: AtomicU64,
    /// Value of `commit_count` when the sub-buffer was last whole.
    pub commit_seq: AtomicU64,
    /// Word of the [`Reference`] to the sub-buffer's memory.
    pub reference: AtomicU64,
    /// Records committed in the sub-buffer, in all rounds.
    pub records: AtomicU64,
    /// Value of `records` when the sub-buffer was last delivered.
    pub delivered: AtomicU64,
}

impl SubBuffer {
    /// Creates counters that are all zero, like fresh memory.
    pub fn new() -> Self {
        let word = || AtomicU64::new(0);
        Self {
            commit_count: word(),
            commit_seq: word(),
            reference: word(),
            records: word(),
            delivered: word(),
        }
    }

    /// Returns the number of records committed since the sub-buffer was last delivered.
    pub fn undelivered(&self) -> u64 {
        use crate::primitive::Ordering::{Acquire, Relaxed};
        // `delivered`, which is stored last, is loaded first, so that the difference is not below
        // zero.
        // ORDERING: Acquire keeps that order where processors do not, and pairs with the Release in
        // `deliver`: if the difference is zero, the header has the number of records.
        let delivered = self.delivered.load(Acquire);
        self.records.load(Relaxed).wrapping_sub(delivered)
    }
}

impl Default for SubBuffer {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(not(loom))]
const _: () = {
    use trackway_abi::region::{LOCKLESS_COUNTERS_BYTES, LOCKLESS_SUB_BYTES};
    assert!(size_of::<Counters>() == LOCKLESS_COUNTERS_BYTES);
    assert!(size_of::<SubBuffer>() == LOCKLESS_SUB_BYTES);
    assert!(core::mem::offset_of!(Counters, read_count) == 64);
};

/// "The reference to the sub-buffer consists of three values packed within a single word, updated
/// atomically" (section 4.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reference {
    /// Memory of the sub-buffer: an index of [`Buffer::places`].
    pub place: u32,
    /// True if a producer is using the sub-buffer.
    pub is_used: bool,
    /// Number of rounds through the buffer when the sub-buffer was whole, modulo 2^31.
    pub round: u32,
}

/// Flag in a reference's word: the sub-buffer is used.
const USED: u64 = 1 << 32;

impl Reference {
    pub(crate) const fn to_word(self) -> u64 {
        let used = if self.is_used { USED } else { 0 };
        (self.round as u64) << 33 | used | self.place as u64
    }

    /// Decodes the reference in a word.
    pub const fn from_word(word: u64) -> Self {
        Self { place: word as u32, is_used: word & USED != 0, round: (word >> 33) as u32 }
    }
}

/// A buffer: its counters, and the places of its memory. Each sub-buffer has a place; one more
/// belongs to the consumer.
#[derive(Clone, Copy)]
pub struct Buffer<'window> {
    /// Counters of the whole buffer.
    pub counters: &'window Counters,
    /// Counters of each sub-buffer.
    pub sub_buffers: &'window [SubBuffer],
    /// Memory for sub-buffers, in pages of the window; 0: none.
    pub places: &'window [AtomicU32],
    /// Sizes of the buffer.
    pub geometry: Geometry,
    /// The behaviour when the buffer is full.
    pub mode: Mode,
}

/// Memory that producers write, addressed in bytes from the window's start.
///
/// Implementations are raw copies: other processes may write the same bytes at any time, so no
/// reference to them may exist.
pub trait Store {
    /// Copies `source` to `at`, and not a byte more: the next bytes belong to another producer.
    ///
    /// # Safety
    /// The bytes at `at` are a slot, or a sub-buffer's header, that the caller has reserved.
    unsafe fn store(&self, at: u64, source: &[u8]);
}

/// Offsets of the fields at the start of a sub-buffer, in bytes. The fields are meaningless before
/// the bytes of the header are committed.
pub mod header {
    /// Position in the buffer at which the sub-buffer begins.
    pub const POSITION: usize = 0;
    /// Time at which the sub-buffer was opened, ns.
    pub const BEGIN: usize = 8;
    /// Number of events lost when the sub-buffer was opened.
    pub const LOST: usize = 16;
    /// Clock epoch.
    pub const EPOCH: usize = 24;
    /// Time at which the sub-buffer was closed, ns: no record in it is younger.
    pub const END: usize = 32;
    /// Position at which the sub-buffer's content ends, and padding begins.
    pub const CONTENT: usize = 40;
    /// Number of records in the sub-buffer.
    pub const RECORDS: usize = 48;
    /// End of the fields.
    pub const BYTES: usize = 56;
}

const _: () = assert!(header::BYTES <= trackway_abi::region::SUB_HEADER_BYTES);

impl Buffer<'_> {
    /// Resets the buffer to the state before the first event of another session, without memory.
    /// Counters begin beyond their old values, so that the compare-and-swap of a producer that has
    /// slept since its load fails. The recorder calls this when no producer can have a slot any
    /// more.
    pub fn begin_session(&self) {
        use crate::primitive::Ordering::Relaxed;
        for place in self.places {
            place.store(0, Relaxed);
        }
        self.counters.memory_end.store(0, Relaxed);
        self.counters.unnamed.store(0, Relaxed);
        self.reset(Self::next_session_count(self.counters.write_count.load(Relaxed)));
    }

    /// Returns the first counter of another session.
    const fn next_session_count(write_count: u64) -> u64 {
        // Size of the largest possible buffer.
        const STEP: u64 =
            (trackway_abi::region::SUB_COUNT_MAX as u64) << trackway_abi::region::SUB_SHIFT_MAX;
        (write_count | (STEP - 1)).wrapping_add(1)
    }

    /// Resets the buffer to the state before the first event, with counters that begin at `start`
    /// (whole buffers). The recorder calls this while it is alone.
    pub fn reset(&self, start: u64) {
        use crate::primitive::Ordering::Relaxed;
        let geometry = self.geometry;
        let start = start & !(geometry.ring_bytes() - 1);
        let committed = equations::committed_before(geometry, start);
        for counter in [&self.counters.write_count, &self.counters.read_count] {
            counter.store(start, Relaxed);
        }
        let Counters { last_ts, lost_full, lost_nested, .. } = self.counters;
        for counter in [last_ts, lost_full, lost_nested] {
            counter.store(0, Relaxed);
        }
        for (place, sub_buffer) in (0..).zip(self.sub_buffers) {
            sub_buffer.commit_count.store(committed, Relaxed);
            sub_buffer.commit_seq.store(committed, Relaxed);
            sub_buffer.records.store(0, Relaxed);
            sub_buffer.delivered.store(0, Relaxed);
            let round = equations::round_of(geometry, start.wrapping_sub(1));
            let reference = Reference { place, is_used: false, round };
            sub_buffer.reference.store(reference.to_word(), Relaxed);
        }
    }

    /// Gives the memory at `offset` (bytes of the window, whole pages) to the next place without
    /// memory. Returns the number of places with memory. The recorder calls this before any
    /// producer may write.
    pub fn give_memory(&self, offset: u64) -> u64 {
        use crate::primitive::Ordering::Relaxed;
        let page = u32::try_from(offset >> trackway_abi::region::PAGE_SHIFT).unwrap_or(0);
        let mut backed = 0;
        let end = offset.saturating_add(self.geometry.sub_bytes());
        self.counters.memory_end.fetch_max(end, Relaxed);
        for place in self.places {
            backed += 1;
            if place.load(Relaxed) == 0 {
                place.store(page, Relaxed);
                break;
            }
        }
        backed
    }

    /// Returns the end of the memory of all sub-buffers, in bytes from the window's start. A
    /// producer that cannot write up to there reserves nothing.
    #[inline]
    pub fn memory_end(&self) -> u64 {
        self.counters.memory_end.load(crate::primitive::Ordering::Relaxed)
    }

    /// Returns the number of committed records, also of those that were read or overwritten.
    pub fn records(&self) -> u64 {
        use crate::primitive::Ordering::Relaxed;
        let records = self.sub_buffers.iter().map(|sub_buffer| sub_buffer.records.load(Relaxed));
        records.fold(0, u64::wrapping_add)
    }

    /// Returns the sub-buffer that `position` lies in.
    fn sub_buffer(&self, position: u64) -> &SubBuffer {
        &self.sub_buffers[self.geometry.slot_of(self.geometry.index_of(position))]
    }

    /// Returns the memory of a place, in bytes of the window.
    fn place(&self, place: u32) -> Option<u64> {
        use crate::primitive::Ordering::Relaxed;
        let page = self.places.get(place as usize)?.load(Relaxed);
        (page != 0).then_some(u64::from(page) << trackway_abi::region::PAGE_SHIFT)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
