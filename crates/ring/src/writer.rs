//! Moves 1 and 2 of a writer: read the commit word, and plan. They do not change shared memory.

use trackway_abi::record::{
    COMPACT_BYTES, EXTENDED_BYTES, MEDIUM_BYTES, TAG_BITS, TAG_EXTENDED, TAG_MEDIUM,
    TAILROOM_BYTES, TIME_BITS,
};
use trackway_abi::region::{PAGE_SHIFT, SUB_HEADER_BYTES, sub_header};

use crate::Region;
use crate::primitive::Ordering;

/// The steps of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Commit word on which the plan rests.
    pub expected: u64,
    /// Commit word that the plan stores.
    pub next: u64,
    /// Place of the record's bytes, in bytes from the window's start.
    pub at: u64,
    /// Time of the record, ns; goes to the slot that belongs to `next`.
    pub timestamp: u64,
    /// Number of records after the commit; goes to the slot that belongs to `next`.
    pub events: u64,
}

/// The reason why a plan could not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The open sub-buffer has no room (or none is open): switch, then plan again.
    Switch,
    /// The next sub-buffer must not be written yet: count the record as discarded.
    Full,
    /// The table has no memory for this place: count the record as discarded.
    NotBacked,
}

/// The bytes that open a sub-buffer: `SUB_HEADER_BYTES` are copied, the rest can be read by a copy
/// in whole words.
pub type SubHeader = [u8; SUB_HEADER_BYTES + TAILROOM_BYTES];

/// Returns the size of the header of a record with this id, `delta` ns after the last record.
#[inline(always)]
pub(crate) const fn header_bytes(id: u32, delta: u64) -> usize {
    if delta >> TIME_BITS != 0 || id > u16::MAX as u32 {
        EXTENDED_BYTES
    } else if id < TAG_MEDIUM {
        COMPACT_BYTES
    } else {
        MEDIUM_BYTES
    }
}

/// Writes the header of a record into the bytes that end at `end`, and returns its size.
///
/// The size that [`Region::plan_record`] chose determines which of the three forms it has.
///
/// # Safety
/// The `EXTENDED_BYTES` bytes before `end` are writable and have no other user.
#[inline(always)]
pub unsafe fn write_header(end: *mut u8, id: u32, timestamp: u64, bytes: usize) {
    let time = (timestamp as u32) << TAG_BITS;
    // SAFETY: `bytes` is at most EXTENDED_BYTES, which the caller owns before `end`.
    unsafe {
        let start = end.sub(bytes);
        match bytes {
            COMPACT_BYTES => start.cast::<u32>().write_unaligned(time | id),
            MEDIUM_BYTES => {
                start.cast::<u32>().write_unaligned(time | TAG_MEDIUM);
                start.add(4).cast::<u16>().write_unaligned(id as u16);
            }
            _ => {
                start.write(TAG_EXTENDED as u8);
                start.add(1).cast::<u32>().write_unaligned(id);
                start.add(5).cast::<u64>().write_unaligned(timestamp);
            }
        }
    }
}

impl Region<'_> {
    /// Returns the commit word: move 1.
    #[inline(always)]
    pub fn expected(&self) -> u64 {
        // ORDERING: Acquire pairs with the Release of the commit that stored this word; the slot
        // that belongs to it was filled before.
        self.control.commit.load(Ordering::Acquire)
    }

    /// Plans a record of `body_bytes` (contexts and payload) after the commit word `expected`, at
    /// time `now` (ns, read after `expected`): move 2. Returns the plan and the size of the header
    /// to write. The caller has checked that the record can fit a sub-buffer at all: the *longest*
    /// header and the body, at most [`crate::Geometry::record_bytes_max`].
    #[inline(always)]
    pub fn plan_record(
        &self,
        expected: u64,
        now: u64,
        id: u32,
        body_bytes: usize,
    ) -> Result<(Plan, usize), Refusal> {
        let geometry = self.geometry;
        let head = expected >> 1;
        let parity = (expected & 1) as usize;
        let within = geometry.within(head);
        // The longest header is assumed, so that one bound suffices; at most nine bytes of a
        // sub-buffer stay unused. `within` zero (no sub-buffer is open yet) wraps around and is
        // refused by the same comparison.
        let needed = (EXTENDED_BYTES + TAILROOM_BYTES + body_bytes) as u64;
        debug_assert!(needed + SUB_HEADER_BYTES as u64 <= geometry.sub_bytes());
        if within.wrapping_sub(1) >= geometry.sub_bytes() - needed {
            return Err(Refusal::Switch);
        }
        // ORDERING: Acquire pairs with the Release in `raise_limit`. As a rule the memory of the
        // open sub-buffer was there before it was opened; but the recorder may have taken it and
        // given other memory.
        if head + needed > self.control.limit.load(Ordering::Acquire) {
            return Err(Refusal::Full);
        }
        let slot = &self.control.slots[parity];
        let last_ts = slot.last_ts.load(Ordering::Relaxed);
        let timestamp = now.max(last_ts);
        let header_bytes = header_bytes(id, timestamp - last_ts);
        let base = self.sub_buffer_offset(geometry.index_of(head)).ok_or(Refusal::NotBacked)?;
        let plan = Plan {
            expected,
            next: commit_word(head + (header_bytes + body_bytes) as u64, expected),
            at: base + within,
            timestamp,
            events: slot.events.load(Ordering::Relaxed).wrapping_add(1),
        };
        Ok((plan, header_bytes))
    }

    /// Plans the opening of the next sub-buffer (the first, if none was opened): move 2. Returns
    /// the plan and the bytes to write.
    ///
    /// The new sub-buffer's header, beyond `head`, contains everything that closes the sub-buffer
    /// before: the committing store publishes both.
    #[cold]
    #[inline(never)]
    pub fn plan_switch(
        &self,
        expected: u64,
        now: u64,
        epoch: u64,
    ) -> Result<(Plan, SubHeader), Refusal> {
        let geometry = self.geometry;
        let head = expected >> 1;
        let slot = &self.control.slots[(expected & 1) as usize];
        let last_ts = slot.last_ts.load(Ordering::Relaxed);
        let events = slot.events.load(Ordering::Relaxed);
        let begin = now.max(last_ts);
        let index = if head == 0 { 0 } else { geometry.index_of(head) + 1 };
        let start = index << geometry.sub_shift();
        // ORDERING: Acquire pairs with the Release in `raise_limit`: the table entry and the
        // memory behind it were ready before.
        let limit = self.control.limit.load(Ordering::Acquire);
        // A position has 63 bits: a corrupt head at their end means full, whatever the limit is.
        if start + geometry.sub_bytes() > limit.min(1 << 63) {
            return Err(Refusal::Full);
        }
        let base = self.sub_buffer_offset(index).ok_or(Refusal::NotBacked)?;
        let header = sub_header_of(&[
            (sub_header::INDEX, index),
            (sub_header::BEGIN, begin),
            (sub_header::PREV_END, last_ts),
            (sub_header::PREV_CONTENT, head),
            (sub_header::PREV_EVENTS, events),
            (sub_header::DISCARDED, self.control.discarded.load(Ordering::Relaxed)),
            (sub_header::EPOCH, epoch),
        ]);
        let next = commit_word(start + SUB_HEADER_BYTES as u64, expected);
        Ok((Plan { expected, next, at: base, timestamp: begin, events }, header))
    }

    /// Returns the place of sub-buffer `index`, in bytes of the window; `None` if the table has
    /// none.
    #[inline(always)]
    pub fn sub_buffer_offset(&self, index: u64) -> Option<u64> {
        let page = self.table.get(self.geometry.slot_of(index))?.load(Ordering::Relaxed);
        (page != 0).then_some(u64::from(page) << PAGE_SHIFT)
    }

    /// Returns the bytes that open sub-buffer `index` again, in other memory, after everything
    /// written in it so far was drained. Readers continue after the header, and check only its
    /// index. `begin`: the time of the last drained record, ns.
    pub fn header_again(index: u64, begin: u64, epoch: u64) -> SubHeader {
        sub_header_of(&[
            (sub_header::INDEX, index),
            (sub_header::BEGIN, begin),
            (sub_header::PREV_END, begin),
            (sub_header::EPOCH, epoch),
        ])
    }

    /// Gives the memory at `offset` (bytes of the window, whole pages) to sub-buffer `index`, for
    /// use once the limit allows it. Only the recorder calls this, and only for a place that no
    /// writer may write and no reader needs: above the limit, with a whole ring below it drained.
    pub fn back(&self, index: u64, offset: u64) {
        let page = u32::try_from(offset >> PAGE_SHIFT).unwrap_or(0);
        if let Some(entry) = self.table.get(self.geometry.slot_of(index)) {
            entry.store(page, Ordering::Relaxed);
        }
    }

    /// Allows writers to go up to `limit`. Only the recorder calls this.
    pub fn raise_limit(&self, limit: u64) {
        // ORDERING: Release pairs with the Acquire in `plan_switch`; it publishes table entries.
        self.control.limit.store(limit, Ordering::Release);
    }

    /// Keeps writers from going beyond `limit`, after a new generation *and then* a grace period
    /// (and, where claims are taken, when no claimer is left). Before that, the memory beyond the
    /// limit and the table must not be touched. Only the recorder calls this.
    ///
    /// The grace period alone is not enough: it ends sequences, but a plan made outside them
    /// outlives it, and the plan's commit word may still be the present one.
    pub fn lower_limit(&self, limit: u64) {
        // The generation publishes the limit: a process that decides again observes it.
        self.control.limit.store(limit, Ordering::Relaxed);
    }

    /// Returns true if nothing can be written beyond the head: no sub-buffer has memory, not even
    /// the open one. (A full sub-buffer ends before its limit: its tail stays free.)
    pub fn has_no_memory(&self) -> bool {
        self.control.limit.load(Ordering::Relaxed) <= self.expected() >> 1
    }
}

/// Returns a sub-buffer's header with these fields, and zeros.
fn sub_header_of(fields: &[(usize, u64)]) -> SubHeader {
    let mut header = [0; SUB_HEADER_BYTES + TAILROOM_BYTES];
    for (at, value) in fields {
        header[*at..*at + 8].copy_from_slice(&value.to_le_bytes());
    }
    header
}

/// Returns the commit word for `head`, with the other parity than `previous`.
#[inline(always)]
const fn commit_word(head: u64, previous: u64) -> u64 {
    head << 1 | ((previous & 1) ^ 1)
}
