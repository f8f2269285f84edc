//! A region: a ring of sub-buffers with one writer at a time.
//!
//! ```text
//! control lines, 256 bytes, then the sub-buffer table
//!   0  commit   u64   head << 1 | parity            the writer of the next record
//!   8  limit    u64   records end at or below it    the recorder
//!  16  slot[0]  last_ts u64, events u64             the writer, before it commits parity 0
//!  32  slot[1]  last_ts u64, events u64             the writer, before it commits parity 1
//!  48  owner    u64   claim regions: owner word      claimers, the recorder
//!  56  asked    u64   not 0: a record found no memory in this region    any writer
//!  64  discarded u64  records that did not fit      any writer, atomically
//!  72  hopeless u64   discarded records that a larger ring would not have kept    likewise
//!  80  unmapped u64   hopeless records of processes that have not mapped all memory    likewise
//!  88  oversized_bytes u64  the largest record that no sub-buffer can hold    likewise
//! 128  drain    u64   which of the two below is valid    the recorder
//! 136  drained[2]     position, file bytes, packets, last_ts, events
//! 216  file[2]  u64   number of the stream's file, plus one, for each of drained[2]; 0: one file
//! 232  tracefile_bytes u64   most bytes of each file of the stream; 0: one file
//! 240  tracefile_count u64   most files of the stream; 0: all are kept
//! 248  forgotten u64  records lost before the latest clear of the session
//! 256  table    u32 × sub-buffers: place of each, in pages of the window; 0: no memory
//! ```
//!
//! `head` counts bytes and never wraps (2^63 bytes are 800 years at 360 MB/s). Position `p` of
//! the ring is byte `p mod sub_bytes` of sub-buffer slot `(p / sub_bytes) mod count`.
//!
//! A sub-buffer begins with [`SUB_HEADER_BYTES`] bytes, the size of a CTF packet header, with these
//! fields:
//!
//! ```text
//!   0  index    u64   number of the sub-buffer since the region began
//!   8  begin    u64   time when the sub-buffer was opened, ns
//!  16  prev_end u64   time of the last record of the previous sub-buffer, ns
//!  24  prev_content u64  end of the content of the previous sub-buffer (a position)
//!  32  prev_events  u64  events of the region before the sub-buffer
//!  40  discarded u64  records discarded before the sub-buffer was opened
//!  48  epoch    u64   clock epoch
//! ```
//!
//! Values that complete a sub-buffer are in the header of the next one, beyond `head`; the store
//! that opens the next sub-buffer publishes them. So a switch needs no space in the old sub-buffer
//! and leaves no hole.

/// Size of a lockless buffer's counters, in bytes. The counters of each sub-buffer follow, then the
/// places.
///
/// ```text
///   0  write_count, last_ts, lost_full, lost_nested   u64 each   producers
///  64  read_count, memory_end                         u64 each   the recorder, producers
/// 128  commit_count, commit_seq, reference, records, delivered
///                                                     u64 each, for each sub-buffer
///      places                                         u32 each: one more than sub-buffers
/// ```
pub const LOCKLESS_COUNTERS_BYTES: usize = 128;
/// Size of the counters of one sub-buffer of a lockless buffer, in bytes.
pub const LOCKLESS_SUB_BYTES: usize = 40;
/// Distance between the counters of two lockless buffers, in bytes.
pub const LOCKLESS_STRIDE: usize =
    (LOCKLESS_COUNTERS_BYTES + SUB_COUNT_MAX * LOCKLESS_SUB_BYTES + 4 * (SUB_COUNT_MAX + 1))
        .next_multiple_of(64);
/// Size of a region's control lines, in bytes; the sub-buffer table follows.
pub const CONTROL_BYTES: usize = 256;
/// Most sub-buffers of a region.
pub const SUB_COUNT_MAX: usize = 256;
/// Size of the smallest sub-buffer, as a power of two of bytes.
pub const SUB_SHIFT_MIN: u32 = 12;
/// Size of the largest sub-buffer, as a power of two of bytes.
pub const SUB_SHIFT_MAX: u32 = 30;
/// Size of a page in the sub-buffer table, as a power of two of bytes.
pub const PAGE_SHIFT: u32 = 12;
/// Size of the header of a sub-buffer, in bytes: a CTF packet header and packet context.
pub const SUB_HEADER_BYTES: usize = 84;
/// Number of regions for each CPU: one for restartable sequences, two for claims.
pub const REGIONS_PER_CPU: usize = 3;
/// Number of claim regions for each CPU.
pub const CLAIM_REGIONS_PER_CPU: usize = 2;

/// Offsets of the fields of a sub-buffer's header, in bytes.
#[expect(missing_docs, reason = "the module's drawing explains them")]
pub mod sub_header {
    pub const INDEX: usize = 0;
    pub const BEGIN: usize = 8;
    pub const PREV_END: usize = 16;
    pub const PREV_CONTENT: usize = 24;
    pub const PREV_EVENTS: usize = 32;
    pub const DISCARDED: usize = 40;
    pub const EPOCH: usize = 48;
    /// End of the fields, in bytes; the following bytes of the header are zero.
    pub const END: usize = 56;
}

/// Distance between the control lines of two regions whose tables have `sub_count` entries.
pub const fn control_stride_bytes(sub_count: usize) -> usize {
    (CONTROL_BYTES + 4 * sub_count).next_multiple_of(64)
}

const _: () = assert!(sub_header::END <= SUB_HEADER_BYTES);
