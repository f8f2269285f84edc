//! The byte format of a block: all filters of a channel, as the recorder publishes them.
//!
//! ```text
//! block := "twb" version u8 (1) | entries u32 | entry*
//! entry := id u64 | rules u32 (bytes) | object u32 (bytes)
//!        | rules | pad with zeros to 8 | object | pad with zeros to 8
//! ```
//!
//! An entry's rules select the events to which the filter applies, in the format of
//! `trackway_schema::Rules`. The entry's object ([`crate::object`]) is the filter. An event is
//! recorded if all filters that apply to the event accept it. The id selects the filter's state: an
//! unchanged filter keeps its id in the next block, and ids are never reused. An entry without
//! rules applies to no event. It holds the meanings ([`crate::meaning`]) of the filter directly
//! before it, which has the same id.
//!
//! Readers treat a block as hostile: the results of [`Block::decode`] are inside the bytes, and
//! nothing else about them is checked.

use crate::object::DecodeError;

const MAGIC: [u8; 3] = *b"twb";
/// Version of the block format.
pub const VERSION: u8 = 1;
/// Maximum size of a block, in bytes: the agent reserves this much memory for its copy.
pub const BLOCK_BYTES_MAX: usize = 128 << 10;
/// Maximum number of entries in a block.
pub const ENTRIES_MAX: usize = 256;
/// Alignment of entries and objects, in bytes.
const ALIGNMENT: usize = 8;
const HEAD_BYTES: usize = 8;
const ENTRY_BYTES: usize = 16;

/// A block whose bytes were checked.
#[derive(Debug, Clone, Copy)]
pub struct Block<'a> {
    bytes: &'a [u8],
    entries: usize,
}

/// A filter in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Id that selects the filter's state; never 0.
    pub id: u64,
    /// Rules that select events, for `trackway_schema::Rules`.
    pub rules: &'a [u8],
    /// Bytes of the object.
    pub object: &'a [u8],
}

impl<'a> Entry<'a> {
    /// Creates the entry with the meanings of the filter with this id, which must be directly
    /// before it.
    pub fn of_meanings(id: u64, meanings: &'a [u8]) -> Self {
        Self { id, rules: b"", object: meanings }
    }

    /// Returns true if this entry holds the meanings of `filter`, the entry directly before it.
    pub fn is_of_meanings(&self, filter: &Self) -> bool {
        self.rules.is_empty() && !filter.rules.is_empty() && self.id == filter.id
    }
}

impl<'a> Block<'a> {
    /// Decodes a block. The time is proportional to the number of entries.
    ///
    /// # Errors
    /// Returns an error if the bytes are no block, or if bytes follow the block.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let error = |offset, reason| DecodeError { offset, reason };
        let head = bytes.first_chunk::<HEAD_BYTES>().ok_or(error(0, "the block is cut off"))?;
        if head[..3] != MAGIC || bytes.len() > BLOCK_BYTES_MAX {
            return Err(error(0, "no block of filters"));
        }
        if head[3] != VERSION {
            return Err(error(3, "a version of blocks that is not known here"));
        }
        let entries = u32_at(bytes, 4).unwrap_or(0) as usize;
        if entries > ENTRIES_MAX {
            return Err(error(4, "more filters than there may be"));
        }
        let mut at = HEAD_BYTES;
        for _ in 0..entries {
            let (_, next) = entry_at(bytes, at).ok_or(error(at, "the block is cut off"))?;
            at = next;
        }
        if at != bytes.len() {
            return Err(error(at, "something behind the block"));
        }
        Ok(Self { bytes, entries })
    }

    /// Returns the entries, in order.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'a>> + use<'a> {
        let (bytes, mut at) = (self.bytes, HEAD_BYTES);
        (0..self.entries).map_while(move |_| {
            let (entry, next) = entry_at(bytes, at)?;
            at = next;
            Some(entry)
        })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Returns the entry at `at`, and the offset of the next one.
fn entry_at(bytes: &[u8], at: usize) -> Option<(Entry<'_>, usize)> {
    let id = u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?);
    let rules_bytes = u32_at(bytes, at + 8)? as usize;
    let object_bytes = u32_at(bytes, at + 12)? as usize;
    // The sizes have at most 32 bits and are bounded by the block's, so the sums do not overflow.
    let rules_at = at + ENTRY_BYTES;
    let rules_end = rules_at + rules_bytes;
    let object_at = rules_end.next_multiple_of(ALIGNMENT);
    let object_end = object_at + object_bytes;
    let next = object_end.next_multiple_of(ALIGNMENT);
    let is_whole = id != 0 && next <= bytes.len();
    let entry = Entry {
        id,
        rules: bytes.get(rules_at..rules_end)?,
        object: bytes.get(object_at..object_end)?,
    };
    is_whole.then_some((entry, next))
}

/// Encodes a block at the beginning of `buffer`; returns its size in bytes. Returns `None` if the
/// block does not fit, exceeds [`BLOCK_BYTES_MAX`], or has too many entries.
pub fn encode<'e>(
    entries: impl ExactSizeIterator<Item = Entry<'e>>,
    buffer: &mut [u8],
) -> Option<usize> {
    let mut at = 0;
    let mut put = |bytes: &[u8], pad: bool| {
        let end = at + bytes.len();
        buffer.get_mut(at..end)?.copy_from_slice(bytes);
        at = if pad { end.next_multiple_of(ALIGNMENT) } else { end };
        buffer.get_mut(end..at)?.fill(0);
        Some(at)
    };
    let mut size = put(&MAGIC, false).and_then(|_| put(&[VERSION], false))?;
    size = size.max(put(&u32::try_from(entries.len()).ok()?.to_le_bytes(), false)?);
    for entry in entries {
        put(&entry.id.to_le_bytes(), false)?;
        put(&u32::try_from(entry.rules.len()).ok()?.to_le_bytes(), false)?;
        put(&u32::try_from(entry.object.len()).ok()?.to_le_bytes(), false)?;
        put(entry.rules, true)?;
        size = put(entry.object, true)?;
    }
    Block::decode(buffer.get(..size)?).ok().map(|_| size)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRIES: [Entry<'_>; 3] = [
        Entry { id: 7, rules: b"myapp:*", object: b"object" },
        Entry { id: 8, rules: b"", object: b"" },
        Entry { id: u64::MAX, rules: b"*\n-a:b", object: &[1; 100] },
    ];

    #[test]
    fn what_was_encoded_comes_back() {
        let mut buffer = [0xff; 1024];
        let size = encode(ENTRIES.into_iter(), &mut buffer).expect("room");
        let block = Block::decode(&buffer[..size]).expect("a block");
        assert!(block.entries().eq(ENTRIES));
        assert!(size.is_multiple_of(8));
        let none = encode(core::iter::empty(), &mut buffer).expect("room");
        assert_eq!(Block::decode(&buffer[..none]).expect("a block").entries().count(), 0);
    }

    #[test]
    fn a_block_larger_than_its_buffer_is_not_encoded() {
        let mut buffer = [0; 1024];
        let size = encode(ENTRIES.into_iter(), &mut buffer).expect("room");
        for less in 0..size {
            assert_eq!(encode(ENTRIES.into_iter(), &mut buffer[..less]), None, "{less}");
        }
        let nameless = Entry { id: 0, ..ENTRIES[0] };
        assert_eq!(encode([nameless].into_iter(), &mut buffer), None);
    }

    #[test]
    fn what_is_cut_or_changed_is_refused_or_inside_the_bytes() {
        let mut buffer = [0; 1024];
        let size = encode(ENTRIES.into_iter(), &mut buffer).expect("room");
        for less in 0..size {
            assert!(Block::decode(&buffer[..less]).is_err(), "{less}");
        }
        assert!(Block::decode(&buffer[..size + 8]).is_err());
        for at in 0..size {
            for bit in 0..8 {
                buffer[at] ^= 1 << bit;
                if let Ok(block) = Block::decode(&buffer[..size]) {
                    assert!(block.entries().count() <= 3);
                }
                buffer[at] ^= 1 << bit;
            }
        }
    }
}
