//! Index files of streams in LTTng's format: offsets and times of packets.
//!
//! ```text
//! magic u32, major u32, minor u32, bytes of an entry u32         all big endian
//! entry: offset of the packet in bytes u64, its size and its content in bits u64 each,
//!        its begin and end u64 each (the stream's clock), events discarded u64, and more
//! ```
//!
//! An index locates packets without reading all earlier ones: after damage, and if only a range of
//! time is requested. It is not trusted: an entry applies only if the stream has the same packet
//! there. The index is not kept in memory; searches read the file.

use std::fmt;

use trackway_console::IoError;
use trackway_ctf::read::{ByteSource, Packet};

const MAGIC: u32 = 0xC1F1_DCC1;
const MAJOR: u32 = 1;
const HEADER_BYTES: usize = 16;
/// Number of bytes of an entry that are read.
const ENTRY_BYTES: usize = 48;
/// Maximum plausible size of an entry in bytes.
const ENTRY_BYTES_MAX: u32 = 4096;

/// An index file.
#[derive(Debug)]
pub struct Index<B> {
    bytes: B,
    entry_bytes: u64,
    entries: u64,
}

/// Reason why an index file is unusable.
#[derive(Debug)]
#[non_exhaustive]
pub enum IndexError {
    /// The file cannot be read.
    Read(IoError),
    /// The file does not begin with the header of a known version.
    Header,
    /// The file ends within an entry.
    CutOff,
}

impl fmt::Display for IndexError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => write!(formatter, "{error}"),
            Self::Header => formatter.write_str("not an index of packets, as version 1 has it"),
            Self::CutOff => formatter.write_str("index of packets: its last entry is cut off"),
        }
    }
}

impl std::error::Error for IndexError {}

/// A packet's entry in an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    /// Number of the packet in the file, from 0.
    pub(crate) number: u64,
    /// Start of the packet in bytes.
    pub(crate) offset: u64,
    packet_bits: u64,
    content_bits: u64,
    begin: u64,
    /// Clock at the packet's end.
    pub(crate) end: u64,
}

impl IndexEntry {
    /// Returns true if sizes and times of `packet` equal those of the entry.
    pub(crate) fn matches_packet(&self, packet: &Packet) -> bool {
        packet.packet_bits == Some(self.packet_bits)
            && packet.content_bits == Some(self.content_bits)
            && packet.timestamp_begin == Some(self.begin)
            && packet.timestamp_end == Some(self.end)
    }
}

impl<B: ByteSource> Index<B> {
    /// Opens the index in `bytes`.
    ///
    /// # Errors
    ///
    /// Returns an error if the index is damaged.
    pub fn open(bytes: B) -> Result<Self, IndexError> {
        let mut header = [0; HEADER_BYTES];
        if bytes.fill_at(&mut header, 0).map_err(|error| IndexError::Read(error.into()))?
            < HEADER_BYTES
        {
            return Err(IndexError::Header);
        }
        let word = |at: usize| {
            let word = header.get(at..).and_then(|rest| rest.first_chunk::<4>());
            word.map_or(0, |word| u32::from_be_bytes(*word))
        };
        let entry_bytes = word(12);
        let is_sane = (ENTRY_BYTES as u32..=ENTRY_BYTES_MAX).contains(&entry_bytes);
        if word(0) != MAGIC || word(4) != MAJOR || !is_sane {
            return Err(IndexError::Header);
        }
        let entry_bytes = u64::from(entry_bytes);
        let rest = bytes.length().saturating_sub(HEADER_BYTES as u64);
        if !rest.is_multiple_of(entry_bytes) {
            return Err(IndexError::CutOff);
        }
        Ok(Self { bytes, entry_bytes, entries: rest / entry_bytes })
    }

    fn entry(&self, number: u64) -> Option<IndexEntry> {
        let mut entry = [0; ENTRY_BYTES];
        let at = HEADER_BYTES as u64 + number.checked_mul(self.entry_bytes)?;
        if number >= self.entries || self.bytes.fill_at(&mut entry, at).ok()? < ENTRY_BYTES {
            return None;
        }
        let mut words = entry.chunks_exact(8).map_while(|word| word.first_chunk::<8>());
        let mut next = || words.next().map(|word| u64::from_be_bytes(*word));
        let (offset, packet_bits, content_bits) = (next()?, next()?, next()?);
        Some(IndexEntry { number, offset, packet_bits, content_bits, begin: next()?, end: next()? })
    }

    /// Returns the last of the leading entries for which `is_before` holds. Checks entries one by
    /// one, because times may go backward.
    pub(crate) fn last(&self, is_before: impl Fn(&IndexEntry) -> bool) -> Option<IndexEntry> {
        let mut entries = (0..self.entries).map_while(|number| self.entry(number));
        let mut last = None;
        while let Some(entry) = entries.next().filter(&is_before) {
            last = Some(entry);
        }
        last
    }

    /// Returns the entry of the packet directly after the packet at byte `offset`. Returns `None`
    /// if the index lacks one of them or has a gap between them: an incomplete index must not hide
    /// packets.
    pub(crate) fn entry_after(&self, offset: u64) -> Option<IndexEntry> {
        let next = self.entry(self.count(|entry| entry.offset <= offset)?)?;
        let here = self.entry(next.number.checked_sub(1)?)?;
        let end = here.offset.checked_add(here.packet_bits / 8);
        (here.offset == offset && end == Some(next.offset)).then_some(next)
    }

    /// Returns the number of leading entries that have a property; later entries must not have it.
    /// Returns `None` if the index cannot be read.
    fn count(&self, has: impl Fn(&IndexEntry) -> bool) -> Option<u64> {
        let (mut from, mut to) = (0, self.entries);
        while from < to {
            let middle = from + (to - from) / 2;
            if has(&self.entry(middle)?) { from = middle + 1 } else { to = middle }
        }
        Some(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trackway_ctf::write::{PacketFields, index_entry, index_header};

    fn build_index() -> Vec<u8> {
        let mut bytes = index_header().to_vec();
        for number in 0..10 {
            let fields = PacketFields {
                timestamp_begin: 100 * number,
                timestamp_end: 100 * number + 50,
                packet_bytes: 4096,
                ..PacketFields::default()
            };
            bytes.extend(index_entry(4096 * number, &fields));
        }
        bytes
    }

    #[test]
    fn packets_are_found() {
        let bytes = build_index();
        let index = Index::open(&bytes[..]).expect("an index");
        let last = |end| index.last(|entry| entry.end < end).map(|entry| entry.number);
        assert_eq!(index.last(|entry| entry.number != 2).map(|entry| entry.number), Some(1));
        assert_eq!((last(0), last(51), last(250), last(9999)), (None, Some(0), Some(1), Some(9)));
        let after = |offset| index.entry_after(offset).map(|entry| (entry.number, entry.offset));
        assert_eq!((after(0), after(4096)), (Some((1, 4096)), Some((2, 8192))));
        assert_eq!((after(4095), after(9 * 4096)), (None, None));
        // An index without one packet has no entry directly after the packet before it.
        let gap = [&bytes[..HEADER_BYTES + 72], &bytes[HEADER_BYTES + 2 * 72..]].concat();
        let index = Index::open(&gap[..]).expect("an index");
        let after = |offset| index.entry_after(offset).map(|entry| entry.offset);
        assert_eq!((after(0), after(4096), after(8192)), (None, None, Some(3 * 4096)));
    }

    #[test]
    fn damage_is_found() {
        let bytes = build_index();
        for length in 0..bytes.len() {
            let opened = Index::open(&bytes[..length]);
            assert_eq!(opened.is_ok(), length >= 16 && (length - 16) % 72 == 0, "{length} bytes");
        }
        for at in [0, 4, 12] {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x80;
            assert!(matches!(Index::open(&bytes[..]), Err(IndexError::Header)), "byte {at}");
        }
    }
}
