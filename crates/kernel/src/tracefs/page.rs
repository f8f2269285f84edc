//! Pages of the kernel's ring buffer from `trace_pipe_raw` (kernel/trace/ring_buffer.c;
//! libtraceevent's kbuffer reads the same).
//!
//! ```text
//! page:    u64 timestamp | commit | data …
//!          commit: bytes of data in use; bit 31: events were lost before the page; bit 30: their
//!          number (u64) follows the data
//! data:    entry, entry, …
//! entry:   u32: type:5 (low), delta:27
//!          1–28  a record of 4 × type bytes, `delta` ns after the previous entry
//!          0     u32 length (with its own 4 bytes), then the record
//!          29    padding: u32 length as for 0; without delta, the rest of the page
//!          30    u32: `delta` ns more, and 2^27 of this
//!          31    u32: the time itself, composed as for 30, in its low 59 bits
//! ```
//!
//! `events/header_page` has the layout of the page's beginning; `events/header_event` confirms that
//! of entries.

use std::fmt;

/// Most bytes of a page. Since Linux 6.8, pages can be up to 128 times as large as usual.
pub const PAGE_BYTES_MAX: usize = 512 << 10;
/// Least bytes of a page: its header and a record.
const PAGE_BYTES_MIN: usize = 64;
/// Bits of a delta.
const DELTA_BITS: u32 = 27;
/// Bits of an absolute time; its upper bits are those of the previous time.
const ABSOLUTE_BITS: u32 = 59;
/// Types of entries.
const TYPE_LONG: u32 = 0;
const TYPE_PADDING: u32 = 29;
const TYPE_EXTEND: u32 = 30;
const TYPE_ABSOLUTE: u32 = 31;
/// Flags of a page's commit field.
const MISSED_EVENTS_FLAG: u64 = 1 << 31;
const MISSED_COUNT_STORED_FLAG: u64 = 1 << 30;
/// The bits of the commit field that contain the length.
const COMMIT_MASK: u64 = (1 << 27) - 1;

/// The layout of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageFormat {
    timestamp: usize,
    commit: usize,
    /// Bytes of the commit field: 8, or 4 on 32-bit kernels.
    commit_bytes: usize,
    data: usize,
    data_bytes: usize,
}

/// The reason why the recorder cannot read a kernel's pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageFormatError(&'static str);

impl fmt::Display for PageFormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "its ring buffer is not as expected: {}", self.0)
    }
}

impl std::error::Error for PageFormatError {}

impl PageFormat {
    /// Parses `events/header_page` and `events/header_event`.
    ///
    /// # Errors
    ///
    /// If the layout is unknown.
    pub fn parse(page: &str, event: &str) -> Result<Self, PageFormatError> {
        let field = |name: &str| {
            let line = page.lines().find(|line| {
                let declaration = line.split(';').next().unwrap_or_default();
                declaration.rsplit(' ').next() == Some(name)
            })?;
            let number = |prefix: &str| {
                let part = line.split(';').find_map(|part| part.trim().strip_prefix(prefix))?;
                part.parse::<usize>().ok().filter(|&number| number <= PAGE_BYTES_MAX)
            };
            Some((number("offset:")?, number("size:")?))
        };
        let of = |name, what| field(name).ok_or(PageFormatError(what));
        let (timestamp, timestamp_bytes) = of("timestamp", "pages have no time")?;
        let (commit, commit_bytes) = of("commit", "pages have no length")?;
        let (data, data_bytes) = of("data", "pages have no data")?;
        let format = Self { timestamp, commit, commit_bytes, data, data_bytes };
        let ends = [timestamp + 8, commit + commit_bytes];
        let is_known = timestamp_bytes == 8
            && matches!(commit_bytes, 4 | 8)
            && ends.iter().all(|&end| end <= data)
            && (PAGE_BYTES_MIN..=PAGE_BYTES_MAX).contains(&format.page_bytes());
        if !is_known {
            return Err(PageFormatError("the fields of pages are elsewhere"));
        }
        let words: Vec<&str> = event.split_whitespace().collect();
        let says = |wanted: &str| {
            let wanted: Vec<&str> = wanted.split(' ').collect();
            words.windows(wanted.len()).any(|found| found == wanted)
        };
        let is_known = cfg!(target_endian = "little")
            && says("type_len : 5 bits")
            && says("time_delta : 27 bits")
            && says("padding : type == 29")
            && says("time_extend : type == 30");
        is_known.then_some(format).ok_or(PageFormatError("entries are of another form"))
    }

    /// Returns the size of a page.
    pub const fn page_bytes(&self) -> usize {
        self.data + self.data_bytes
    }
}

/// An invalid place in a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageDamage {
    /// The offset of the invalid data in the page.
    pub at: usize,
    /// A description of the problem.
    pub what: &'static str,
}

/// The number of events that the kernel lost before a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissedEvents {
    /// The kernel reports no lost events.
    None,
    /// The kernel lost this number of events.
    Count(u64),
    /// The kernel lost an unknown number of events.
    Unknown,
}

/// A record in a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'page> {
    /// The time of the record on the buffer's clock, in ns.
    pub timestamp: u64,
    /// The bytes of the record, which the event's format describes.
    pub bytes: &'page [u8],
}

/// An iterator over the records of a page. Invalid data ends it.
#[derive(Debug, Clone)]
pub struct Page<'page> {
    bytes: &'page [u8],
    at: usize,
    end: usize,
    timestamp: u64,
    /// The number of events that the kernel lost before the page.
    pub missed: MissedEvents,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

impl<'page> Page<'page> {
    /// Reads the header of a page.
    ///
    /// # Errors
    ///
    /// If the length of the page's data exceeds the page.
    pub fn new(format: &PageFormat, bytes: &'page [u8]) -> Result<Self, PageDamage> {
        let damage = |at, what| PageDamage { at, what };
        let timestamp = u64_at(bytes, format.timestamp).ok_or(damage(0, "no time"))?;
        let commit = match format.commit_bytes {
            8 => u64_at(bytes, format.commit),
            _ => u32_at(bytes, format.commit).map(u64::from),
        };
        let commit = commit.ok_or(damage(format.commit, "no length"))?;
        let length = (commit & COMMIT_MASK) as usize;
        let end = format.data + length;
        if end > bytes.len() || length > format.data_bytes {
            return Err(damage(format.commit, "longer than a page"));
        }
        let missed =
            match (commit & MISSED_EVENTS_FLAG != 0, commit & MISSED_COUNT_STORED_FLAG != 0) {
                (false, _) => MissedEvents::None,
                (true, false) => MissedEvents::Unknown,
                (true, true) => {
                    u64_at(bytes, end).map_or(MissedEvents::Unknown, MissedEvents::Count)
                }
            };
        Ok(Self { bytes, at: format.data, end, timestamp, missed })
    }

    /// Reads entries up to the next record.
    fn advance(&mut self) -> Result<Option<Record<'page>>, PageDamage> {
        let bytes = &self.bytes[..self.end];
        // Each entry has at least four bytes.
        while self.at < self.end {
            let begin = self.at;
            let damage = |what| PageDamage { at: begin, what };
            let word = u32_at(bytes, begin).ok_or(damage("half an entry"))?;
            let (kind, delta) = (word & 31, u64::from(word >> 5));
            let second = || u32_at(bytes, begin + 4).ok_or(damage("half an entry"));
            match kind {
                TYPE_EXTEND => {
                    let more = (u64::from(second()?) << DELTA_BITS) + delta;
                    self.timestamp = self.timestamp.wrapping_add(more);
                    self.at = begin + 8;
                }
                TYPE_ABSOLUTE => {
                    let low = (u64::from(second()?) << DELTA_BITS) + delta;
                    let high = self.timestamp >> ABSOLUTE_BITS << ABSOLUTE_BITS;
                    self.timestamp = high | low;
                    self.at = begin + 8;
                }
                // Padding without delta fills the rest of the page.
                TYPE_PADDING if delta == 0 => self.at = self.end,
                TYPE_PADDING => {
                    let length = second()? as usize;
                    self.timestamp = self.timestamp.wrapping_add(delta);
                    self.at = begin.saturating_add(4).saturating_add(length);
                    if self.at > self.end {
                        return Err(damage("padding beyond the page's end"));
                    }
                }
                TYPE_LONG => {
                    let length = (second()? as usize).checked_sub(4);
                    let length = length.ok_or(damage("a record shorter than nothing"))?;
                    return self.take_record(begin, (begin + 8, length), delta).map(Some);
                }
                words => {
                    let length = 4 * words as usize;
                    return self.take_record(begin, (begin + 4, length), delta).map(Some);
                }
            }
        }
        Ok(None)
    }

    fn take_record(
        &mut self,
        entry: usize,
        (at, length): (usize, usize),
        delta: u64,
    ) -> Result<Record<'page>, PageDamage> {
        let end = at.checked_add(length).filter(|&end| end <= self.end);
        let end = end.ok_or(PageDamage { at: entry, what: "a record beyond the page's end" })?;
        self.timestamp = self.timestamp.wrapping_add(delta);
        self.at = end;
        Ok(Record { timestamp: self.timestamp, bytes: &self.bytes[at..end] })
    }
}

impl<'page> Iterator for Page<'page> {
    type Item = Result<Record<'page>, PageDamage>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = self.advance().transpose();
        if matches!(found, Some(Err(_))) {
            self.at = self.end;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER_PAGE: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
        \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
        \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
        \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";
    const HEADER_EVENT: &str = "# compressed entry header\n\ttype_len    :    5 bits\n\
        \ttime_delta  :   27 bits\n\tarray       :   32 bits\n\n\tpadding     : type == 29\n\
        \ttime_extend : type == 30\n\ttime_stamp : type == 31\n\tdata max type_len  == 28\n";

    fn parse_format() -> PageFormat {
        PageFormat::parse(HEADER_PAGE, HEADER_EVENT).expect("a format")
    }

    /// Returns a page of 32-bit words that begins at this time.
    fn build_page(timestamp: u64, flags: u64, words: &[u32]) -> Vec<u8> {
        let mut bytes = timestamp.to_le_bytes().to_vec();
        bytes.extend((flags | (4 * words.len() as u64)).to_le_bytes());
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        bytes.resize(4096, 0);
        bytes
    }

    fn entry_header(kind: u32, delta: u32) -> u32 {
        delta << 5 | kind
    }

    fn read_records(bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let page = Page::new(&parse_format(), bytes).expect("a page");
        page.map(|record| record.map(|record| (record.timestamp, record.bytes.to_vec())))
            .collect::<Result<_, PageDamage>>()
            .expect("records")
    }

    #[test]
    fn pages_are_where_the_kernel_says() {
        assert_eq!(parse_format().page_bytes(), 4096);
        let narrow = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
            \tfield: local_t commit;\toffset:8;\tsize:4;\tsigned:1;\n\
            \tfield: char data;\toffset:12;\tsize:4084;\tsigned:0;\n";
        let narrow = PageFormat::parse(narrow, HEADER_EVENT).expect("of 32 bits");
        assert_eq!((narrow.data, narrow.commit_bytes), (12, 4));
        for (page, event) in [
            ("", HEADER_EVENT),
            (HEADER_PAGE, ""),
            (&HEADER_PAGE.replace("4080", "99999999999"), HEADER_EVENT),
            (&HEADER_PAGE.replace("size:4080", "size:9999999"), HEADER_EVENT),
            (&HEADER_PAGE.replace("offset:16", "offset:12"), HEADER_EVENT),
            (HEADER_PAGE, &HEADER_EVENT.replace("27", "28")),
        ] {
            assert!(PageFormat::parse(page, event).is_err(), "{page}{event}");
        }
    }

    #[test]
    fn records_of_all_forms_are_read_with_their_times() {
        let words = [
            entry_header(2, 5),
            0x0101,
            0x0202,
            // A long record: 12 bytes with the length itself.
            entry_header(TYPE_LONG, 1),
            12,
            3,
            4,
            entry_header(TYPE_EXTEND, 7),
            2,
            entry_header(1, 0),
            5,
            // A discarded record of eight bytes with the length itself.
            entry_header(TYPE_PADDING, 1),
            8,
            0xdead,
            entry_header(TYPE_ABSOLUTE, 9),
            1 << 20,
            entry_header(1, 1),
            6,
            entry_header(TYPE_PADDING, 0),
            0xffff_ffff,
        ];
        let begin = (3 << 59) + 1000;
        let extended = begin + 6 + 7 + (2 << 27);
        let absolute = (3 << 59) + (1 << 47) + 9;
        let bytes = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let expected: Vec<(u64, Vec<u8>)> = vec![
            (begin + 5, bytes(&[0x0101, 0x0202])),
            (begin + 6, bytes(&[3, 4])),
            (extended, bytes(&[5])),
            (absolute + 1, bytes(&[6])),
        ];
        assert_eq!(read_records(&build_page(begin, 0, &words)), expected);
    }

    #[test]
    fn pages_say_what_was_lost_before_them() {
        let of = |flags, words: &[u32]| {
            let bytes = build_page(1, flags, words);
            Page::new(&parse_format(), &bytes).expect("a page").missed
        };
        assert_eq!(of(0, &[]), MissedEvents::None);
        assert_eq!(of(MISSED_EVENTS_FLAG, &[]), MissedEvents::Unknown);
        let mut bytes =
            build_page(1, MISSED_EVENTS_FLAG | MISSED_COUNT_STORED_FLAG, &[entry_header(1, 0), 7]);
        bytes[24..32].copy_from_slice(&77_u64.to_le_bytes());
        let page = Page::new(&parse_format(), &bytes).expect("a page");
        assert_eq!((page.missed, page.count()), (MissedEvents::Count(77), 1));
    }

    #[test]
    fn invalid_pages_end_at_the_error() {
        let of = |words: &[u32]| -> Vec<Option<usize>> {
            let bytes = build_page(1, 0, words);
            let page = Page::new(&parse_format(), &bytes).expect("a page");
            page.map(|record| record.err().map(|damage| damage.at)).collect()
        };
        for words in [
            &[entry_header(28, 1), 1][..],
            &[entry_header(TYPE_LONG, 1), 3],
            &[entry_header(TYPE_LONG, 1), u32::MAX],
            &[entry_header(TYPE_LONG, 1)],
            &[entry_header(TYPE_EXTEND, 1)],
            &[entry_header(TYPE_PADDING, 1), u32::MAX],
            &[entry_header(TYPE_PADDING, 1)],
        ] {
            let good = [entry_header(1, 1), 9];
            let found = of(&[&good, words].concat());
            assert_eq!(found, [None, Some(24)], "{words:?}");
        }
        // Lengths of the page itself, and truncated bytes.
        let whole = build_page(1, 0, &[entry_header(1, 1), 9]);
        let mut long = whole.clone();
        long[8..16].copy_from_slice(&4081_u64.to_le_bytes());
        assert!(Page::new(&parse_format(), &long).is_err());
        for end in 0..40 {
            let page = Page::new(&parse_format(), &whole[..end]);
            assert_eq!(page.is_ok(), end >= 24, "{end}");
        }
    }
}
