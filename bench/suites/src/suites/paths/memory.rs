//! Buffers in private memory with the layout of the window (control lines, then sub-buffers), and
//! the search for records in these buffers.
//!
//! Main invariant: no writer's own count is trusted. After each run, the records are searched in
//! the bytes of the buffers.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use trackway_abi::record::{COMPACT_BYTES, EXTENDED_BYTES, TAG_BITS, TAG_EXTENDED, TAG_MEDIUM};
use trackway_abi::region::{
    CONTROL_BYTES, LOCKLESS_COUNTERS_BYTES, LOCKLESS_STRIDE, LOCKLESS_SUB_BYTES, SUB_COUNT_MAX,
    SUB_HEADER_BYTES, control_stride_bytes,
};
use trackway_bench_engine::error::{Error, Result};
use trackway_ring::lockless::{Buffer, Counters, Mode, Store, SubBuffer, header};
use trackway_ring::{Control, Damage, Drained, Geometry, Memory, Region, claim, copy_by_words};

use super::staged::{ID, NUMBER_BITS, Staged};

/// Number of bytes before the sub-buffers, for control lines and tables.
const HEAD_BYTES: usize = 16 << 10;

const _: () = assert!(
    LOCKLESS_STRIDE <= HEAD_BYTES && control_stride_bytes(SUB_COUNT_MAX) <= HEAD_BYTES,
    "control lines and tables fit in front of the sub-buffers"
);

/// Shared memory of this process and its children, in small pages, like the window's.
pub(super) struct SharedMapping {
    base: *mut u8,
    bytes: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread; it is used through atomics and raw
// copies according to the buffers' own rules.
unsafe impl Send for SharedMapping {}
// SAFETY: as above.
unsafe impl Sync for SharedMapping {}

impl SharedMapping {
    /// Maps zeroed memory, and touches all of its pages.
    fn new(bytes: usize) -> Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        // SAFETY: a new mapping, anywhere.
        let base = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            return Err(Error::io(format!("cannot have {bytes} bytes for a buffer"))(error));
        }
        Ok(Self { base: base.cast(), bytes })
    }

    /// Returns the address of the byte at offset `at`.
    #[inline(always)]
    pub(super) fn at(&self, at: u64) -> *mut u8 {
        self.base.wrapping_add(at as usize)
    }

    /// Returns true if `bytes` bytes at offset `at` are within the memory.
    #[inline(always)]
    pub(super) fn holds(&self, at: u64, bytes: usize) -> bool {
        at.checked_add(bytes as u64).is_some_and(|end| end <= self.bytes as u64)
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and every reference into it borrows from its owner.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}

impl Memory for SharedMapping {
    fn load(&self, at: u64, into: &mut [u8]) -> std::result::Result<(), Damage> {
        if !self.holds(at, into.len()) {
            return Err(Damage::Table(at));
        }
        // SAFETY: the range is mapped; writers have ended, or the copy is checked afterwards.
        unsafe { ptr::copy_nonoverlapping(self.at(at), into.as_mut_ptr(), into.len()) };
        Ok(())
    }
}

impl Store for SharedMapping {
    #[inline(always)]
    unsafe fn store(&self, at: u64, source: &[u8]) {
        // The bounds are checked, as in the window, where the positions are in shared memory.
        if self.holds(at, source.len()) {
            // SAFETY: the range is mapped, and the caller's slot.
            unsafe { copy_by_words(source.as_ptr(), self.at(at), source.len()) };
        }
    }
}

impl claim::Copy for SharedMapping {
    #[inline(always)]
    unsafe fn copy(&self, at: u64, source: *const u8, bytes: usize) {
        // SAFETY: the caller bounded the plan's target, with room for whole words after it, and has
        // as many bytes of source.
        unsafe { copy_by_words(source, self.at(at), bytes.next_multiple_of(8)) };
    }
}

/// The content of a buffer after a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct FoundRecords {
    /// Number of records by the buffer's own counters.
    pub(super) counted: u64,
    /// Number of records in the buffer after the run.
    pub(super) records: u64,
    /// Number of records whose number does not follow the previous record's.
    pub(super) gaps: u64,
    /// Number of the last record.
    pub(super) last: Option<u32>,
}

impl FoundRecords {
    /// Counts the records in `content`, which must be whole, each with `body_bytes` of body.
    fn take(&mut self, content: &[u8], body_bytes: usize) -> Result<u64> {
        let wrong = |message: &str| Err(Error::output("a buffer", message));
        let mut rest = content;
        let mut records = 0;
        while let Some(first) = rest.first_chunk() {
            let tag = u32::from_le_bytes(*first) & ((1 << TAG_BITS) - 1);
            let header_bytes = match tag {
                ID => COMPACT_BYTES,
                TAG_EXTENDED => EXTENDED_BYTES,
                _ => return wrong("a record has the header of no event"),
            };
            let body = rest.get(header_bytes..header_bytes + body_bytes);
            let Some(number) = body.and_then(|body| body.first_chunk()) else {
                return wrong("a record does not end where its sub-buffer's content does");
            };
            let number = u32::from_le_bytes(*number);
            self.gaps += u64::from(self.last.is_some_and(|last| !is_next_number(last, number)));
            self.last = Some(number);
            records += 1;
            rest = &rest[header_bytes + body_bytes..];
        }
        if !rest.is_empty() {
            return wrong("there are bytes behind the last record");
        }
        self.records += records;
        Ok(records)
    }

    /// Adds the records of another buffer.
    pub(super) fn add(&mut self, other: &Self) {
        self.counted += other.counted;
        self.records += other.records;
        self.gaps += other.gaps;
    }
}

const _: () = assert!(ID < TAG_MEDIUM && Staged::BODY_BYTES_MIN >= 4);

/// Returns true if `number` follows `last` in a thread's sequence of numbers.
const fn is_next_number(last: u32, number: u32) -> bool {
    let mask = (1 << NUMBER_BITS) - 1;
    last & !mask == number & !mask && last.wrapping_add(1) & mask == number & mask
}

/// A buffer that writers record into.
pub(super) trait Ring: Sync + Sized {
    /// Makes an empty buffer in the mode of a flight recorder, which is never full.
    fn new(geometry: Geometry) -> Result<Self>;

    /// Searches the buffer for records while nothing writes; all of their bodies have `body_bytes`.
    fn find(&self, body_bytes: usize) -> Result<FoundRecords>;
}

/// A region with its sub-buffers.
pub(super) struct RegionRing {
    map: SharedMapping,
    geometry: Geometry,
}

impl RegionRing {
    /// Returns the memory of the region.
    #[inline(always)]
    pub(super) fn map(&self) -> &SharedMapping {
        &self.map
    }

    /// Returns the region.
    #[inline(always)]
    pub(super) fn region(&self) -> Region<'_> {
        let table = self.map.at(CONTROL_BYTES as u64).cast::<AtomicU32>();
        // SAFETY: `new` made the memory large enough for both; zeroed memory is a control block
        // and a table, which are atomics; the mapping is as long-lived as the borrow.
        unsafe {
            Region {
                control: &*self.map.at(0).cast::<Control>(),
                table: core::slice::from_raw_parts(table, self.geometry.sub_count() as usize),
                geometry: self.geometry,
            }
        }
    }
}

impl Ring for RegionRing {
    fn new(geometry: Geometry) -> Result<Self> {
        let map = SharedMapping::new(HEAD_BYTES + geometry.ring_bytes() as usize)?;
        let ring = Self { map, geometry };
        let region = ring.region();
        for index in 0..geometry.sub_count() {
            region.back(index, HEAD_BYTES as u64 + index * geometry.sub_bytes());
        }
        region.raise_limit(u64::MAX);
        Ok(ring)
    }

    fn find(&self, body_bytes: usize) -> Result<FoundRecords> {
        let damaged = |damage| Error::output("a region", damage);
        let region = self.region();
        let snapshot = region.snapshot().map_err(damaged)?;
        // Nothing writes, so the slot is stable.
        let counted = snapshot.events.ok_or_else(|| Error::output("a region", "it changes"))?;
        let mut found = FoundRecords { counted, ..FoundRecords::default() };
        let oldest = region.oldest_index(snapshot.head);
        let mut from =
            Drained { position: oldest << self.geometry.sub_shift(), ..Drained::default() };
        while let Some(piece) =
            region.next_piece(&self.map, &from, &snapshot, true).map_err(damaged)?
        {
            let mut content = vec![0; (piece.end - piece.start) as usize];
            region.copy(&self.map, &piece, &mut content).map_err(damaged)?;
            let records = found.take(&content, body_bytes)?;
            if records != piece.events - piece.events_before {
                return Err(Error::output("a region", "it has not the records that it says"));
            }
            from.position = piece.resume;
            (from.last_ts, from.events) = (piece.end_ts, piece.events);
        }
        Ok(found)
    }
}

/// A buffer of the 2012 paper, with its sub-buffers.
pub(super) struct LocklessRing {
    map: SharedMapping,
    geometry: Geometry,
    /// The consumer's position.
    own: AtomicU32,
}

impl LocklessRing {
    /// Returns the memory of the buffer.
    #[inline(always)]
    pub(super) fn map(&self) -> &SharedMapping {
        &self.map
    }

    /// Returns the buffer as its writers use it.
    #[inline(always)]
    pub(super) fn buffer(&self) -> Buffer<'_> {
        const SUB_BUFFERS_AT: u64 = LOCKLESS_COUNTERS_BYTES as u64;
        const PLACES_AT: u64 = SUB_BUFFERS_AT + (SUB_COUNT_MAX * LOCKLESS_SUB_BYTES) as u64;
        let count = self.geometry.sub_count() as usize;
        let sub_buffers = self.map.at(SUB_BUFFERS_AT).cast::<SubBuffer>();
        let places = self.map.at(PLACES_AT).cast::<AtomicU32>();
        // SAFETY: as in `OurRing::region`.
        unsafe {
            Buffer {
                counters: &*self.map.at(0).cast::<Counters>(),
                sub_buffers: core::slice::from_raw_parts(sub_buffers, count),
                places: core::slice::from_raw_parts(places, count + 1),
                geometry: self.geometry,
                mode: Mode::FlightRecorder,
            }
        }
    }
}

impl Ring for LocklessRing {
    fn new(geometry: Geometry) -> Result<Self> {
        let bytes = geometry.ring_bytes() + geometry.sub_bytes();
        let map = SharedMapping::new(HEAD_BYTES + bytes as usize)?;
        let ring = Self { map, geometry, own: AtomicU32::new(geometry.sub_count() as u32) };
        let buffer = ring.buffer();
        buffer.reset(0);
        for place in 0..=geometry.sub_count() {
            buffer.give_memory(HEAD_BYTES as u64 + place * geometry.sub_bytes());
        }
        Ok(ring)
    }

    fn find(&self, body_bytes: usize) -> Result<FoundRecords> {
        let buffer = self.buffer();
        if let Some(hole) = buffer.holes().next() {
            return Err(Error::output("the paper's buffer", format_args!("it has a {hole:?}")));
        }
        buffer.force_switch(&self.map, trackway_sys::clock::monotonic_ns);
        let mut found = FoundRecords { counted: buffer.records(), ..FoundRecords::default() };
        let mut own = self.own.load(Ordering::Relaxed);
        let mut field = [0; 8];
        while let Ok(got) = buffer.get(&mut own) {
            let damaged = |damage| Error::output("the paper's buffer", damage);
            self.map.load(got.at + header::CONTENT as u64, &mut field).map_err(damaged)?;
            let start = got.position + SUB_HEADER_BYTES as u64;
            let content = u64::from_le_bytes(field).checked_sub(start).unwrap_or(u64::MAX);
            if content > self.geometry.sub_bytes() {
                return Err(Error::output("the paper's buffer", "a header is damaged"));
            }
            let mut bytes = vec![0; content as usize];
            self.map.load(got.at + SUB_HEADER_BYTES as u64, &mut bytes).map_err(damaged)?;
            found.take(&bytes, body_bytes)?;
            buffer.put(got);
            // The consumer's sub-buffer was exchanged for the sub-buffer that was read.
            self.own.store(own, Ordering::Relaxed);
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a record in its memory layout.
    fn record_bytes(number: u32) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&(7 << TAG_BITS | ID).to_le_bytes());
        bytes[4..].copy_from_slice(&number.to_le_bytes());
        bytes
    }

    #[test]
    fn records_are_found_and_their_numbers_compared() {
        let mut found = FoundRecords::default();
        let content = [record_bytes(3), record_bytes(4), record_bytes(6)].concat();
        assert_eq!(found.take(&content, 4).expect("records"), 3);
        assert_eq!((found.records, found.gaps, found.last), (3, 1, Some(6)));
        // Each thread has its own sequence of numbers, which wraps around.
        let thread = 5 << NUMBER_BITS;
        let last = thread | ((1 << NUMBER_BITS) - 1);
        assert!(is_next_number(last, thread) && !is_next_number(last, thread + (1 << NUMBER_BITS)));
    }

    #[test]
    fn what_is_no_record_is_an_error() {
        let cut = |content: &[u8]| FoundRecords::default().take(content, 4).is_err();
        assert!(cut(&record_bytes(3)[..7]) && cut(&record_bytes(3)[..3]));
        assert!(cut(&[0xff; 8]) && cut(&[ID as u8 + 1, 0, 0, 0, 0, 0, 0, 0]));
    }
}
