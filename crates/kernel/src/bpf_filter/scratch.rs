//! The scratch area of a filter in the kernel: its frame, its state, and memory for helpers.
//!
//! ```text
//! slots | cells | length of bytes, length of constants | helper state | … | result
//! | bytes | constants | a chunk | letters
//! ```
//!
//! Register 1 of the filter points to the beginning of the area, where the filter reads its slots.
//! Helpers get the same pointer and find all other parts at constant offsets. Helpers keep loop
//! state in the area: the verifier assumes nothing about values loaded from memory, so it walks a
//! loop's body once. Helpers read texts by chunks; a chunk that begins with the last constant byte
//! ends after the constants. Letters are for a [search](crate::bpf_filter::search) with an unknown
//! pattern.

use trackway_jit::helper::Word;
use trackway_jit::{CELLS_MAX, SLOTS_MAX};

/// Most bytes of texts and sequences, and most bytes of constants. A power of two.
pub const REGION_BYTES: usize = 4096;
/// Size of a scratch area in bytes.
pub const AREA_BYTES: usize = AREA_BYTES_PLAIN + 4 * (REGION_BYTES + 1);
/// Size in bytes of a scratch area without letters.
pub(crate) const AREA_BYTES_PLAIN: usize = LETTERS_AT as usize;

/// Offset of the cells.
pub(crate) const CELLS_AT: i16 = 8 * SLOTS_MAX as i16;
/// Offset of the word with the length of the bytes.
pub(crate) const BYTES_LENGTH_AT: i16 = CELLS_AT + 8 * CELLS_MAX as i16;
/// Offset of the word with the length of the constants.
pub(crate) const CONSTANTS_LENGTH_AT: i16 = BYTES_LENGTH_AT + 8;
/// Offset of the state of string helpers, followed by the state of `any`, whose function may use
/// strings.
pub(crate) const HELPER_STATE_AT: i16 = CONSTANTS_LENGTH_AT + 8;
/// Offset of the filter's result.
pub(crate) const RESULT_AT: i16 = BYTES_AT - 8;
/// Offset of the bytes; the constants follow the bytes.
pub(crate) const BYTES_AT: i16 = 2048;
/// Bytes of text that a helper reads at a time. A power of two.
pub(crate) const CHUNK_BYTES: usize = 8;
/// Offset of a pattern's letters: four bytes for each letter, and for the pattern's end.
pub(crate) const LETTERS_AT: i16 = BYTES_AT + (2 * REGION_BYTES + CHUNK_BYTES) as i16;

/// A scratch area, which contains a filter's frame.
#[derive(Debug, Clone)]
pub struct ScratchArea {
    bytes: Vec<u8>,
}

/// The error that a value exceeds the area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AreaOverflow;

impl ScratchArea {
    /// Creates the scratch area of a filter with these constants and initial state.
    ///
    /// # Errors
    ///
    /// If there are more than [`REGION_BYTES`] bytes of constants.
    pub fn new(constants: &[u8]) -> Result<Self, AreaOverflow> {
        let mut area = Self { bytes: vec![0; AREA_BYTES] };
        if constants.len() > REGION_BYTES {
            return Err(AreaOverflow);
        }
        area.write(CONSTANTS_LENGTH_AT as usize, &(constants.len() as u64).to_le_bytes());
        area.write(BYTES_AT as usize + REGION_BYTES, constants);
        Ok(area)
    }

    /// Fills the frame: the slots, and the bytes to which words in slots refer. The filter's state
    /// stays.
    ///
    /// # Errors
    ///
    /// If there are more than [`SLOTS_MAX`] slots, or more than [`REGION_BYTES`] bytes.
    pub fn fill(&mut self, slots: &[u64], bytes: &[u8]) -> Result<(), AreaOverflow> {
        if slots.len() > SLOTS_MAX || bytes.len() > REGION_BYTES {
            return Err(AreaOverflow);
        }
        let slots: Vec<u8> = slots.iter().flat_map(|slot| slot.to_le_bytes()).collect();
        self.write(0, &slots);
        self.write(BYTES_LENGTH_AT as usize, &(bytes.len() as u64).to_le_bytes());
        self.write(BYTES_AT as usize, bytes);
        Ok(())
    }

    /// Returns the filter's last result; if it is nonzero, the filter passes the event.
    pub fn result(&self) -> u64 {
        let result = self.bytes.get(RESULT_AT as usize..).and_then(|bytes| bytes.first_chunk());
        result.map_or(0, |result| u64::from_le_bytes(*result))
    }

    /// Returns the cell of the filter's state with this index.
    pub fn cell(&self, number: usize) -> Option<u64> {
        let at = (number < CELLS_MAX).then_some(CELLS_AT as usize + 8 * number)?;
        Some(u64::from_le_bytes(*self.bytes.get(at..)?.first_chunk()?))
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Returns the whole scratch area, of [`AREA_BYTES`] bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the whole scratch area, so that the caller can copy it from a map.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

/// Bits of a word's offset. The next bit marks constants.
pub(crate) const OFFSET_BITS: i32 =
    Word { offset: u32::MAX, length: 0, is_constant: false }.to_bits().count_ones() as i32;
