//! Memory of a filter in the kernel: its frame, its state, what its helpers work with.
//!
//! ```text
//! slots | cells | length of bytes, length of constants | scratch | … | answer | bytes | constants
//! | a chunk | letters
//! ```
//!
//! Register 1 of the filter points to its beginning, so that slots are where the filter reads them.
//! Helpers are given the same pointer, and find the rest at constant distances. What they keep
//! between the turns of a loop is in the scratch: of what comes from there the kernel's verifier
//! knows nothing, so that one look at a loop's body is enough for it. Texts are read by chunks: one
//! that begins with a constant's last byte ends behind it. Letters are there where something is
//! [searched](crate::bpf_filter::search) that is not known beforehand.

use trackway_jit::helper::Word;
use trackway_jit::{CELLS_MAX, SLOTS_MAX};

/// Most bytes that words of the frame speak of, and most bytes of constants. A power of two.
pub const REGION_BYTES: usize = 4096;
/// Bytes of an area.
pub const AREA_BYTES: usize = AREA_BYTES_PLAIN + 4 * (REGION_BYTES + 1);
/// Bytes of one without letters.
pub(crate) const AREA_BYTES_PLAIN: usize = LETTERS_AT as usize;

/// Where the cells are, in bytes from the beginning.
pub(crate) const CELLS_AT: i16 = 8 * SLOTS_MAX as i16;
/// Where the length of the bytes is.
pub(crate) const BYTES_LENGTH_AT: i16 = CELLS_AT + 8 * CELLS_MAX as i16;
/// Where the length of the constants is.
pub(crate) const CONSTANTS_LENGTH_AT: i16 = BYTES_LENGTH_AT + 8;
/// Where the scratch of helpers on strings is, and that of `any` behind it: what that calls may use
/// strings.
pub(crate) const SCRATCH_AT: i16 = CONSTANTS_LENGTH_AT + 8;
/// Where the filter's answer is put, all of it.
pub(crate) const ANSWER_AT: i16 = BYTES_AT - 8;
/// Where the bytes are, and the constants right behind them.
pub(crate) const BYTES_AT: i16 = 2048;
/// How many bytes of a text are read at a time. A power of two.
pub(crate) const CHUNK_BYTES: usize = 8;
/// Where a pattern's letters are, four bytes for each, and for what is behind them.
pub(crate) const LETTERS_AT: i16 = BYTES_AT + (2 * REGION_BYTES + CHUNK_BYTES) as i16;

/// A frame of a filter in the kernel.
#[derive(Debug, Clone)]
pub struct Area {
    bytes: Vec<u8>,
}

/// That something is longer than an area has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoRoom;

impl Area {
    /// The area of a filter with these constants; its state is as if nothing had happened yet.
    ///
    /// # Errors
    ///
    /// If there are more than [`REGION_BYTES`].
    pub fn new(constants: &[u8]) -> Result<Self, NoRoom> {
        let mut area = Self { bytes: vec![0; AREA_BYTES] };
        if constants.len() > REGION_BYTES {
            return Err(NoRoom);
        }
        area.put(CONSTANTS_LENGTH_AT as usize, &(constants.len() as u64).to_le_bytes());
        area.put(BYTES_AT as usize + REGION_BYTES, constants);
        Ok(area)
    }

    /// Fills the frame: its slots, and the bytes that words in them speak of. State stays.
    ///
    /// # Errors
    ///
    /// If there are more than [`SLOTS_MAX`] slots, or [`REGION_BYTES`].
    pub fn fill(&mut self, slots: &[u64], bytes: &[u8]) -> Result<(), NoRoom> {
        if slots.len() > SLOTS_MAX || bytes.len() > REGION_BYTES {
            return Err(NoRoom);
        }
        let slots: Vec<u8> = slots.iter().flat_map(|slot| slot.to_le_bytes()).collect();
        self.put(0, &slots);
        self.put(BYTES_LENGTH_AT as usize, &(bytes.len() as u64).to_le_bytes());
        self.put(BYTES_AT as usize, bytes);
        Ok(())
    }

    /// What the filter has answered last: not zero takes the event.
    pub fn answer(&self) -> u64 {
        let answer = self.bytes.get(ANSWER_AT as usize..).and_then(|bytes| bytes.first_chunk());
        answer.map_or(0, |answer| u64::from_le_bytes(*answer))
    }

    /// What it remembers, by the numbers of cells.
    pub fn cell(&self, number: usize) -> Option<u64> {
        let at = (number < CELLS_MAX).then_some(CELLS_AT as usize + 8 * number)?;
        Some(u64::from_le_bytes(*self.bytes.get(at..)?.first_chunk()?))
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// All of it, [`AREA_BYTES`].
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The same, for who fills it from a map.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

/// Bits of a word that say that it is of the constants; what is left of it is an offset.
pub(crate) const OFFSET_BITS: i32 =
    Word { offset: u32::MAX, length: 0, is_constant: false }.to_bits().count_ones() as i32;
