//! An independent decoder of records, to check the bytes that writers leave.
//!
//! ```text
//! tag 0–29   | time:27 tag:5 |                      4 bytes; the tag is the id
//! tag 30     | time:27 tag:5 | id u16 |             6 bytes
//! tag 31     | tag u8 | id u32 | time u64 |        13 bytes
//! ```

/// A decoded header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The event's id.
    pub id: u32,
    /// Full time, ns.
    pub timestamp_ns: u64,
    /// Size of the header, in bytes.
    pub bytes: usize,
}

impl Header {
    /// Decodes the header that `bytes` begin with; the preceding record has the time `previous_ns`.
    /// `None`: too few bytes.
    pub fn decode(bytes: &[u8], previous_ns: u64) -> Option<Self> {
        let tag = bytes.first()? & 31;
        if tag == 31 {
            let id = u32::from_le_bytes(bytes.get(1..5)?.try_into().ok()?);
            let timestamp_ns = u64::from_le_bytes(bytes.get(5..13)?.try_into().ok()?);
            return Some(Self { id, timestamp_ns, bytes: 13 });
        }
        let word = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?);
        // The clock's low 27 bits went round at most once since the record before.
        let low = u64::from(word >> 5);
        let passed = low.wrapping_sub(previous_ns) & ((1 << 27) - 1);
        let timestamp_ns = previous_ns.wrapping_add(passed);
        if tag < 30 {
            return Some(Self { id: u32::from(tag), timestamp_ns, bytes: 4 });
        }
        let id = u16::from_le_bytes(bytes.get(4..6)?.try_into().ok()?);
        Some(Self { id: u32::from(id), timestamp_ns, bytes: 6 })
    }
}

/// A decoded record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'bytes> {
    /// Header of the record.
    pub header: Header,
    /// Contexts and payload.
    pub body: &'bytes [u8],
}

/// Iterator over adjacent records. Ends at the end of the bytes, or, with [`Records::is_whole`]
/// false, at bytes that are no record.
#[derive(Debug, Clone)]
pub struct Records<'bytes, BodyBytes> {
    bytes: &'bytes [u8],
    previous_ns: u64,
    body_bytes: BodyBytes,
    whole: bool,
}

impl<'bytes, BodyBytes> Records<'bytes, BodyBytes>
where
    BodyBytes: FnMut(u32, &'bytes [u8]) -> Option<usize>,
{
    /// Makes a decoder of `bytes`; the first compact time counts from `previous_ns`. `body_bytes`
    /// returns the length of a body, from the event's id and the bytes that begin with the body.
    pub const fn new(bytes: &'bytes [u8], previous_ns: u64, body_bytes: BodyBytes) -> Self {
        Self { bytes, previous_ns, body_bytes, whole: true }
    }

    /// Returns true if everything so far was whole records.
    pub const fn is_whole(&self) -> bool {
        self.whole
    }

    fn decode(&mut self) -> Option<Record<'bytes>> {
        let header = Header::decode(self.bytes, self.previous_ns)?;
        let behind = self.bytes.get(header.bytes..)?;
        let length = (self.body_bytes)(header.id, behind)?;
        let body = behind.get(..length)?;
        self.bytes = &behind[length..];
        self.previous_ns = header.timestamp_ns;
        Some(Record { header, body })
    }
}

impl<'bytes, BodyBytes> Iterator for Records<'bytes, BodyBytes>
where
    BodyBytes: FnMut(u32, &'bytes [u8]) -> Option<usize>,
{
    type Item = Record<'bytes>;

    fn next(&mut self) -> Option<Record<'bytes>> {
        if self.bytes.is_empty() || !self.whole {
            return None;
        }
        let record = self.decode();
        self.whole = record.is_some();
        record
    }
}

#[cfg(test)]
mod tests {
    use super::{Header, Records};

    #[test]
    fn rebuilds_the_time_around_the_wrap() {
        let compact = |low: u32| (low << 5 | 3).to_le_bytes();
        let at = |low, previous| Header::decode(&compact(low), previous).unwrap().timestamp_ns;
        assert_eq!(at(5, 5), 5);
        assert_eq!(at(4, 5), (1 << 27) + 4);
        assert_eq!(at((1 << 27) - 1, 0), (1 << 27) - 1);
        assert_eq!(at(0, (7 << 27) + 1), 8 << 27);
    }

    #[test]
    fn decodes_all_three_forms_and_stops_at_a_torn_one() {
        // Times 9 and 10, moved up by the five bits of the tag.
        let mut bytes = vec![0x22, 1, 0, 0, 0xaa];
        bytes.extend([0x5e, 1, 0, 0, 0x34, 0x12, 0xbb]);
        bytes.extend([31, 1, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 1, 0xcc]);
        let whole: Vec<_> = Records::new(&bytes, 0, |_, _| Some(1))
            .map(|record| (record.header.id, record.header.timestamp_ns, record.body[0]))
            .collect();
        assert_eq!(whole, [(2, 9, 0xaa), (0x1234, 10, 0xbb), (0x1_0001, (1 << 56) + 9, 0xcc)]);
        bytes.pop();
        let mut torn = Records::new(&bytes, 0, |_, _| Some(1));
        assert_eq!(torn.by_ref().count(), 2);
        assert!(!torn.is_whole());
    }
}
