//! Reads a region that is being written: pieces of whole records, with their times and counts.
//!
//! Readers trust no value that they have not bounded: a region lies in memory that a faulty process
//! may overwrite. So positions and headers are compared with their valid values, and a
//! contradiction is a [`Damage`], never a panic or a loop.

use trackway_abi::region::{SUB_HEADER_BYTES, sub_header};

use crate::primitive::{Ordering, fence};
use crate::{Drained, Memory, Region};

/// Maximum number of attempts at a snapshot; afterwards the reader uses complete sub-buffers alone.
const SNAPSHOT_TRIES: usize = 1000;

/// A consistent copy of a region's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snapshot {
    /// End of the committed bytes, a position.
    pub head: u64,
    /// Time of the last record, ns; `None` if writers were too fast to read it.
    pub last_ts: Option<u64>,
    /// Number of records so far; `None` if writers were too fast to read it.
    pub events: Option<u64>,
    /// Number of records discarded so far.
    pub discarded: u64,
}

/// A run of whole records within one sub-buffer: the content of one CTF packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Start of the first record, a position.
    pub start: u64,
    /// End of the last record, a position.
    pub end: u64,
    /// Start of the next piece: `end`, or the start of the next sub-buffer.
    pub resume: u64,
    /// Base time of the first compact header, ns.
    pub begin_ts: u64,
    /// Time of the last record, ns.
    pub end_ts: u64,
    /// Number of records before the piece.
    pub events_before: u64,
    /// Number of records up to the end of the piece.
    pub events: u64,
    /// Number of records discarded when the sub-buffer was opened. Includes records lost for lack
    /// of space before the first record, but none lost after the last record.
    pub discarded_before: u64,
    /// Number of records discarded when the next sub-buffer was opened, or so far. Includes records
    /// that found no space after the last record.
    pub discarded: u64,
    /// Clock epoch of the sub-buffer.
    pub epoch: u64,
}

/// A contradiction in a region's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Damage {
    /// The commit position is one that no writer stores.
    Head(u64),
    /// The header of this sub-buffer is not one that a writer stores.
    Header(u64),
    /// The table has no memory for this sub-buffer, or memory outside the window.
    Table(u64),
    /// The recorder's progress is one that no recorder stores.
    Drained(u64),
}

impl core::fmt::Display for Damage {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Head(head) => write!(formatter, "impossible commit position {head}"),
            Self::Header(index) => write!(formatter, "damaged header of sub-buffer {index}"),
            Self::Table(index) => write!(formatter, "no memory behind sub-buffer {index}"),
            Self::Drained(position) => write!(formatter, "impossible drained position {position}"),
        }
    }
}

impl core::error::Error for Damage {}

/// The fields of a sub-buffer's header.
struct Header {
    begin: u64,
    prev_end: u64,
    prev_content: u64,
    prev_events: u64,
    discarded: u64,
    epoch: u64,
}

impl Region<'_> {
    /// Copies the region's state.
    ///
    /// The slot that a commit word names is stable until the second commit after it, so the copy
    /// is good if the commit word has not changed meanwhile.
    pub fn snapshot(&self) -> Result<Snapshot, Damage> {
        for _ in 0..SNAPSHOT_TRIES {
            // ORDERING: Acquire pairs with the Release of the commit.
            let word = self.control.commit.load(Ordering::Acquire);
            let slot = &self.control.slots[(word & 1) as usize];
            let last_ts = slot.last_ts.load(Ordering::Relaxed);
            let events = slot.events.load(Ordering::Relaxed);
            let discarded = self.control.discarded.load(Ordering::Relaxed);
            // ORDERING: Acquire keeps the loads above before the load below. It pairs with the
            // Release fence at the start of a commit: a writer that changes this slot has observed
            // the commit after `word`, so a reader that observes the change observes that commit,
            // too. (A slot is stored before its own commit, so the Release of that commit is no
            // partner.)
            fence(Ordering::Acquire);
            if self.control.commit.load(Ordering::Relaxed) == word {
                let head = self.checked_head(word)?;
                return Ok(Snapshot {
                    head,
                    last_ts: Some(last_ts),
                    events: Some(events),
                    discarded,
                });
            }
        }
        // ORDERING: Acquire pairs with the Release of the commit.
        let head = self.checked_head(self.control.commit.load(Ordering::Acquire))?;
        let discarded = self.control.discarded.load(Ordering::Relaxed);
        Ok(Snapshot { head, last_ts: None, events: None, discarded })
    }

    /// Returns the index of the oldest sub-buffer that a flight recorder with this head may still
    /// hold. Excludes the next sub-buffer to be overwritten: its writer may have begun already.
    pub fn oldest_index(&self, head: u64) -> u64 {
        (self.geometry.index_of(head) + 2).saturating_sub(self.geometry.sub_count())
    }

    /// Returns true if sub-buffer `index` was still whole during all loads before this call: call
    /// it after copying. Only a flight recorder overwrites sub-buffers.
    pub fn still_valid(&self, index: u64) -> bool {
        // ORDERING: Acquire keeps the copying loads before the load of the commit word; it pairs
        // with the Release fence of a writer before its first store into the sub-buffer.
        fence(Ordering::Acquire);
        let head = self.control.commit.load(Ordering::Relaxed) >> 1;
        index >= self.oldest_index(head)
    }

    /// Returns the next piece after the drained position `from`, in the state of `snapshot`. With
    /// `partial`, an open sub-buffer is a piece, too. `None`: there is no piece yet.
    ///
    /// A piece may be empty (its sub-buffer closed without another record): then only `resume`
    /// counts. `discarded` may be lower than in an earlier partial piece: the writer of a switch
    /// reads the count when it plans, the reader when it takes a piece. Packets carry the highest
    /// count so far. In a flight recorder, a piece or a [`Damage`] is valid only if the sub-buffer
    /// is [`Self::still_valid`] afterwards.
    pub fn next_piece(
        &self,
        memory: &impl Memory,
        from: &Drained,
        snapshot: &Snapshot,
        partial: bool,
    ) -> Result<Option<Piece>, Damage> {
        let geometry = self.geometry;
        if from.position >= snapshot.head {
            return Ok(None);
        }
        let index = geometry.index_of(from.position);
        let open_index = geometry.index_of(snapshot.head);
        if index == open_index && !partial {
            return Ok(None);
        }
        let header = self.header(memory, index)?;
        let sub_start = index << geometry.sub_shift();
        let fresh = from.position == sub_start;
        if !fresh && geometry.within(from.position) < SUB_HEADER_BYTES as u64 {
            return Err(Damage::Drained(from.position));
        }
        let (start, begin_ts, events_before) = if fresh {
            (sub_start + SUB_HEADER_BYTES as u64, header.begin, header.prev_events)
        } else {
            (from.position, from.last_ts, from.events)
        };
        let piece = if index == open_index {
            let (Some(end_ts), Some(events)) = (snapshot.last_ts, snapshot.events) else {
                return Ok(None);
            };
            Piece {
                start,
                end: snapshot.head,
                resume: snapshot.head,
                begin_ts,
                end_ts,
                events_before,
                events,
                discarded_before: header.discarded,
                discarded: snapshot.discarded,
                epoch: header.epoch,
            }
        } else {
            let next = self.header(memory, index + 1)?;
            Piece {
                start,
                end: next.prev_content,
                resume: (index + 1) << geometry.sub_shift(),
                begin_ts,
                end_ts: next.prev_end,
                events_before,
                events: next.prev_events,
                discarded_before: header.discarded,
                discarded: next.discarded,
                epoch: header.epoch,
            }
        };
        let inside = piece.start <= piece.end && geometry.index_of(piece.end) == index;
        let in_order = piece.begin_ts <= piece.end_ts && piece.events_before <= piece.events;
        if inside && in_order { Ok(Some(piece)) } else { Err(Damage::Header(index)) }
    }

    /// Copies the bytes of `piece` into `into`, which has `piece.end - piece.start` bytes.
    pub fn copy(&self, memory: &impl Memory, piece: &Piece, into: &mut [u8]) -> Result<(), Damage> {
        let index = self.geometry.index_of(piece.start);
        let base = self.sub_buffer_offset(index).ok_or(Damage::Table(index))?;
        memory.load(base + self.geometry.within(piece.start), into)
    }

    fn checked_head(&self, word: u64) -> Result<u64, Damage> {
        let head = word >> 1;
        let within = self.geometry.within(head);
        if head != 0 && within < SUB_HEADER_BYTES as u64 {
            Err(Damage::Head(head))
        } else {
            Ok(head)
        }
    }

    fn header(&self, memory: &impl Memory, index: u64) -> Result<Header, Damage> {
        let base = self.sub_buffer_offset(index).ok_or(Damage::Table(index))?;
        let mut bytes = [0; sub_header::END];
        memory.load(base, &mut bytes)?;
        let get = |at: usize| {
            let mut value = [0; 8];
            value.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(value)
        };
        if get(sub_header::INDEX) != index {
            return Err(Damage::Header(index));
        }
        Ok(Header {
            begin: get(sub_header::BEGIN),
            prev_end: get(sub_header::PREV_END),
            prev_content: get(sub_header::PREV_CONTENT),
            prev_events: get(sub_header::PREV_EVENTS),
            discarded: get(sub_header::DISCARDED),
            epoch: get(sub_header::EPOCH),
        })
    }
}
