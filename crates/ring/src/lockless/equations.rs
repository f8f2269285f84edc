//! The paper's equations (1) to (4) on counters, which may have wrapped around.
//!
//! All arithmetic is modulo 2^64 (section 4.2).

use crate::Geometry;

/// Returns the bits of `count` from `low` on: the paper's mask from `low` to the word's end.
const fn high_bits(count: u64, low: u32) -> u64 {
    count & !((1 << low) - 1)
}

/// Returns the number of bits that number the sub-buffers: `nsbbits`.
const fn sub_buffer_bits(geometry: Geometry) -> u32 {
    geometry.sub_count().trailing_zeros()
}

/// Returns the bits of a commit counter that [`committed_before`] can have too: the paper's mask
/// from 0 to `wbits - nsbbits`.
const fn comparable_bits(geometry: Geometry, commit: u64) -> u64 {
    commit & u64::MAX >> sub_buffer_bits(geometry)
}

/// Returns the commit counter of a sub-buffer when all rounds before the round of `count` are
/// committed: each sub-buffer has an equal share of the bytes of these rounds.
pub const fn committed_before(geometry: Geometry, count: u64) -> u64 {
    high_bits(count, sub_buffer_bits(geometry) + geometry.sub_shift()) >> sub_buffer_bits(geometry)
}

/// Returns the number of rounds through the buffer at `count`, modulo 2^31: a reference's tag.
pub const fn round_of(geometry: Geometry, count: u64) -> u32 {
    (count >> (sub_buffer_bits(geometry) + geometry.sub_shift())) as u32 & 0x7fff_ffff
}

/// Returns true if less than a whole sub-buffer is free for writing: equation (1), *Buffer Full*.
pub const fn buffer_full(geometry: Geometry, write_count: u64, read_count: u64) -> bool {
    let shift = geometry.sub_shift();
    high_bits(write_count, shift).wrapping_sub(high_bits(read_count, shift))
        >= geometry.ring_bytes()
}

/// Returns true if the sub-buffer at `read_count`, whose commit seq is `read_commit`, is whole:
/// equation (2), *Sub-buffer Ready*.
pub const fn sub_buffer_ready(geometry: Geometry, read_count: u64, read_commit: u64) -> bool {
    let whole = read_commit.wrapping_sub(geometry.sub_bytes());
    committed_before(geometry, read_count) == comparable_bits(geometry, whole)
}

/// Returns true if all earlier rounds are committed in the sub-buffer at `write_count`, whose
/// commit seq is `write_commit`: equation (3), *Fully Committed*.
pub const fn fully_committed(geometry: Geometry, write_count: u64, write_commit: u64) -> bool {
    committed_before(geometry, write_count) == comparable_bits(geometry, write_commit)
}

/// Returns true if the sub-buffer at `read_count` is being written: equation (4).
pub const fn sub_buffer_written(geometry: Geometry, write_count: u64, read_count: u64) -> bool {
    let shift = geometry.sub_shift();
    high_bits(write_count, shift) == high_bits(read_count, shift)
}
