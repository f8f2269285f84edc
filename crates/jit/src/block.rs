//! The bytes of a block: all filters of a channel, as its recorder publishes them.
//!
//! ```text
//! block := "twb" version u8 (1) | entries u32 | entry*
//! entry := id u64 | rules u32 (bytes) | object u32 (bytes)
//!        | rules | pad with zeros to 8 | object | pad with zeros to 8
//! ```
//!
//! An entry's rules say which events it is about, as `trackway_schema::Rules` reads them; its
//! object ([`crate::object`]) is the filter. An event is recorded if all entries that are about it
//! say so. The id says whose state a filter goes on with: one that stays the same has the same id
//! in the next block, and no other has it. An entry without rules, and so about no event, has what
//! the filter before it, which has the same id, relies on ([`crate::meaning`]).
//!
//! Who reads a block takes it for hostile: what comes out of [`Block::decode`] is inside the bytes,
//! and nothing else is known of it.

use crate::object::DecodeError;

const MAGIC: [u8; 3] = *b"twb";
/// The version of blocks.
pub const VERSION: u8 = 1;
/// Largest block, in bytes: the room that an agent has for a copy.
pub const BLOCK_BYTES_MAX: usize = 128 << 10;
/// Most entries of a block.
pub const ENTRIES_MAX: usize = 256;
/// The alignment of entries and objects.
const ALIGNMENT: usize = 8;
const HEAD_BYTES: usize = 8;
const ENTRY_BYTES: usize = 16;

/// A block whose bytes are checked.
#[derive(Debug, Clone, Copy)]
pub struct Block<'a> {
    bytes: &'a [u8],
    entries: usize,
}

/// A filter in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The id that selects the filter's state; not 0.
    pub id: u64,
    /// The rules that select events, for `trackway_schema::Rules`.
    pub rules: &'a [u8],
    /// The object's bytes.
    pub object: &'a [u8],
}

impl<'a> Entry<'a> {
    /// Returns the entry with the meanings that the filter with this id, directly before it, relies
    /// on.
    pub fn of_meanings(id: u64, meanings: &'a [u8]) -> Self {
        Self { id, rules: b"", object: meanings }
    }

    /// Returns true if this entry has the meanings that `filter`, directly before it, relies on.
    pub fn is_of_meanings(&self, filter: &Self) -> bool {
        self.rules.is_empty() && !filter.rules.is_empty() && self.id == filter.id
    }
}

impl<'a> Block<'a> {
    /// The block of these bytes. The time is in proportion to the entries.
    ///
    /// # Errors
    /// If they are none, or have something behind it.
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

    /// Returns the filters, in order.
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
    // No number above exceeds 32 bits, and no block is that long: nothing wraps.
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

/// Encodes a block into the beginning of `buffer`; returns its size in bytes. `None`: it does not
/// fit, is longer than [`BLOCK_BYTES_MAX`], or has too many entries.
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
    fn what_does_not_fit_is_not_encoded() {
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
