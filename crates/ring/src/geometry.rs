//! Sizes of a region, checked once, used everywhere.

use trackway_abi::record::{EXTENDED_BYTES, RECORD_BYTES_MAX, TAILROOM_BYTES};
use trackway_abi::region::{SUB_COUNT_MAX, SUB_HEADER_BYTES, SUB_SHIFT_MAX, SUB_SHIFT_MIN};

/// Sub-buffers of a region: `2^count_shift` of `2^sub_shift` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Geometry {
    sub_shift: u32,
    count_shift: u32,
}

/// Sizes that no region may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GeometryError;

impl Geometry {
    /// Creates a ring of at least 2 and at most 256 sub-buffers of 4 KiB to 1 GiB.
    pub const fn new(sub_shift: u32, count_shift: u32) -> Result<Self, GeometryError> {
        if sub_shift < SUB_SHIFT_MIN
            || sub_shift > SUB_SHIFT_MAX
            || count_shift < 1
            || count_shift > SUB_COUNT_MAX.ilog2()
        {
            return Err(GeometryError);
        }
        Ok(Self { sub_shift, count_shift })
    }

    /// Encodes the geometry as one word, for caches.
    pub const fn to_word(self) -> u64 {
        (self.sub_shift as u64) << 32 | self.count_shift as u64
    }

    /// Decodes a word that [`Geometry::to_word`] made. Other words give an arbitrary geometry,
    /// never undefined behaviour.
    #[inline(always)]
    pub const fn from_word(word: u64) -> Self {
        Self { sub_shift: (word >> 32) as u32 & 31, count_shift: word as u32 & 15 }
    }

    /// Returns the size of a sub-buffer, in bytes.
    #[inline(always)]
    pub const fn sub_bytes(self) -> u64 {
        1 << self.sub_shift
    }

    /// Returns the size of a sub-buffer, as a power of two.
    pub const fn sub_shift(self) -> u32 {
        self.sub_shift
    }

    /// Returns the number of sub-buffers.
    #[inline(always)]
    pub const fn sub_count(self) -> u64 {
        1 << self.count_shift
    }

    /// Returns the size of the ring, in bytes.
    pub const fn ring_bytes(self) -> u64 {
        self.sub_bytes() << self.count_shift
    }

    /// Returns the number, since the region began, of the sub-buffer that `position` lies in.
    #[inline(always)]
    pub const fn index_of(self, position: u64) -> u64 {
        position >> self.sub_shift
    }

    /// Returns the place in the table of sub-buffer `index`.
    #[inline(always)]
    pub const fn slot_of(self, index: u64) -> usize {
        (index & (self.sub_count() - 1)) as usize
    }

    /// Returns the distance of `position` from the start of its sub-buffer, in bytes.
    #[inline(always)]
    pub const fn within(self, position: u64) -> u64 {
        position & (self.sub_bytes() - 1)
    }

    /// Returns the maximum size of a record (header, contexts and payload) in a sub-buffer, in
    /// bytes.
    pub const fn record_bytes_max(self) -> usize {
        let room = self.sub_bytes() as usize - SUB_HEADER_BYTES - TAILROOM_BYTES;
        if room < RECORD_BYTES_MAX { room } else { RECORD_BYTES_MAX }
    }
}

const _: () = assert!(SUB_HEADER_BYTES + EXTENDED_BYTES + TAILROOM_BYTES < 1 << SUB_SHIFT_MIN);
