//! A staged event: a payload on the stack, with room for a header before it.

use trackway_abi::record::{HEADROOM_BYTES, TAILROOM_BYTES};

/// The id of all events.
pub(super) const ID: u32 = 1;
/// Bits of an event's number; the higher bits contain the thread's number.
pub(super) const NUMBER_BITS: u32 = 22;
/// Most threads with distinct numbers.
pub(super) const THREADS_MAX: usize = 1 << (32 - NUMBER_BITS);
/// Most bytes of a payload.
const BODY_BYTES_MAX: usize = 256;

/// The outcome of an event. The code that records returns it as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum RecordOutcome {
    /// The event found no space, and was counted as lost.
    Lost = 0,
    /// The event was recorded.
    Recorded = 1,
    /// The event was recorded, and opened a sub-buffer.
    Switched = 2,
}

/// A thread's staged event.
#[repr(C, align(64))]
pub(super) struct Staged {
    bytes: [u8; HEADROOM_BYTES + BODY_BYTES_MAX + TAILROOM_BYTES],
    /// Bytes of the payload.
    pub(super) body_bytes: usize,
    /// The thread's number.
    pub(super) thread: usize,
    /// Number of attempts that were aborted, or found all tried regions in use.
    pub(super) restarts: u64,
}

impl Staged {
    /// Least number of payload bytes, which contain the event's number.
    pub(super) const BODY_BYTES_MIN: usize = 4;

    /// Makes the staged event of a thread, with a payload length for all of its events.
    pub(super) fn new(thread: usize, body_bytes: usize) -> Self {
        let body_bytes = body_bytes.clamp(Self::BODY_BYTES_MIN, BODY_BYTES_MAX);
        let bytes = [0; HEADROOM_BYTES + BODY_BYTES_MAX + TAILROOM_BYTES];
        // The length must be hidden from the compiler, as in the library.
        Self { bytes, body_bytes: std::hint::black_box(body_bytes), thread, restarts: 0 }
    }

    /// Stages event `number`: eight fields, of which the first is the number, or only the first
    /// field. The remaining bytes of a longer payload do not change.
    #[inline(always)]
    pub(super) fn put(&mut self, number: u64) {
        let number = number as u32 & ((1 << NUMBER_BITS) - 1);
        let number = number | (self.thread as u32) << NUMBER_BITS;
        let body = &mut self.bytes[HEADROOM_BYTES..];
        body[..4].copy_from_slice(&number.to_le_bytes());
        if self.body_bytes > 4 {
            for field in 0..7 {
                body[4 + 4 * field..][..4].copy_from_slice(&number.to_le_bytes());
            }
        }
    }

    /// Returns the payload, with headroom before it and tailroom after it.
    #[inline(always)]
    pub(super) fn body(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr().wrapping_add(HEADROOM_BYTES)
    }
}
