//! Marks in ftrace's buffers, page by page, as the kernel returns them.
//!
//! ```text
//! page    time u64 | bytes of records, in 20 bits, of a long | records
//! record  type 5 bits, time 27 bits | …
//!         0: bytes u32, of it and what follows | event    1…28: event of 4 × type bytes
//!         29: padding of bytes u32; at the end of a page, of no time    30, 31: time u32
//! event   id u16 | …: fields, at offsets as the event's `format` says
//! ```
//! (Linux, `include/linux/ring_buffer.h` and `Documentation/trace/ring-buffer-design.rst`.)

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::tracefs::{Instance, page_bytes};

use super::KernelEvents;
use crate::trace_check::marks::{self, FoundMarks};

const HEADER_BYTES: usize = 16;
const COMMIT_MASK: u64 = (1 << 20) - 1;
/// Types of records.
const LONG: u32 = 0;
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;

/// A scanner of pages for marks.
#[derive(Debug, Default)]
pub(super) struct PageScanner {
    /// The entry event of a system call: its id, and the offsets of the call's number and first
    /// argument.
    call: Option<(u16, [usize; 2])>,
    /// The event of a thread's end: its id, and the offset of the thread's name.
    exit: Option<(u16, usize)>,
    pub(super) marks: FoundMarks,
}

impl PageScanner {
    /// Finds the fields of these events that marks need, from the formats in an instance.
    pub(super) fn new(instance: &Instance, events: KernelEvents) -> Result<Self> {
        let format = |event: &str, fields: &[&str]| {
            let path = instance.path(&format!("events/{event}/format"));
            let text =
                fs::read_to_string(&path).map_err(Error::io(format!("cannot read {path:?}")))?;
            let strange = || Error::output("ftrace", format_args!("{event} has another format"));
            parse_event_format(&text, fields).ok_or_else(strange)
        };
        let mut scanner = Self::default();
        let (id, at) = format("sched/sched_process_exit", &["comm[16]"])?;
        scanner.exit = Some((id, at[0]));
        if events == KernelEvents::Everything {
            let (id, at) = format("raw_syscalls/sys_enter", &["id", "args[6]"])?;
            scanner.call = Some((id, [at[0], at[1]]));
        }
        Ok(scanner)
    }

    /// Scans all pages of a file.
    pub(super) fn scan_file(&mut self, path: &Path) -> Result<()> {
        let what = || format!("cannot read {path:?}");
        let mut file = File::open(path).map_err(Error::io(what()))?;
        let page_bytes = page_bytes();
        let mut pages = vec![0; page_bytes << 6];
        loop {
            let mut filled = 0;
            while filled < pages.len() {
                match file.read(&mut pages[filled..]).map_err(Error::io(what()))? {
                    0 => break,
                    bytes => filled += bytes,
                }
            }
            if filled == 0 {
                return Ok(());
            }
            pages[..filled].chunks(page_bytes).for_each(|page| self.scan_page(page));
        }
    }

    /// Scans a page for marks; bytes that are not a page have no marks.
    pub(super) fn scan_page(&mut self, page: &[u8]) {
        let Some(commit) = read_array::<8>(page, 8).map(u64::from_le_bytes) else { return };
        let bytes = usize::try_from(commit & COMMIT_MASK).unwrap_or(0);
        let Some(records) = page.get(HEADER_BYTES..HEADER_BYTES + bytes) else { return };
        let mut at = 0;
        // Each step advances by at least four bytes.
        while let Some(head) = read_array::<4>(records, at).map(u32::from_le_bytes) {
            let long = read_array::<4>(records, at + 4).map_or(0, u32::from_le_bytes) as usize;
            let (event, size) = match head & 31 {
                LONG => (Some(at + 8), 4 + long.max(4)),
                PADDING if head >> 5 == 0 => return,
                PADDING => (None, 4 + long),
                TIME_EXTEND.. => (None, 8),
                words => (Some(at + 4), 4 + 4 * words as usize),
            };
            if let Some(event) = event.and_then(|event| records.get(event..at + size)) {
                self.scan_event(event);
            }
            at += size;
        }
    }

    fn scan_event(&mut self, event: &[u8]) {
        let id = read_array::<2>(event, 0).map(u16::from_le_bytes);
        let at = |at| read_array::<8>(event, at).map(u64::from_le_bytes);
        if let Some((_, [call, argument])) = self.call.filter(|one| Some(one.0) == id)
            && at(call) == Some(marks::CALL_NUMBER)
        {
            self.marks.add_call(at(argument).unwrap_or_default());
        }
        if let Some((_, name)) = self.exit.filter(|one| Some(one.0) == id)
            && let Some(name) = read_array::<16>(event, name)
        {
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            self.marks.add_exit(&String::from_utf8_lossy(name));
        }
    }
}

/// Returns the bytes from the position `at`, if there are enough.
fn read_array<const BYTES: usize>(bytes: &[u8], at: usize) -> Option<[u8; BYTES]> {
    bytes.get(at..at.checked_add(BYTES)?)?.try_into().ok()
}

/// Parses the id of an event and the offsets of these fields from the event's `format`.
fn parse_event_format(format: &str, fields: &[&str]) -> Option<(u16, Vec<usize>)> {
    let id = format.lines().find_map(|line| line.strip_prefix("ID: "))?.trim().parse().ok()?;
    let offset = |name: &&str| {
        let is_it = |line: &&str| {
            let declared =
                line.trim().strip_prefix("field:").and_then(|line| line.split(';').next());
            declared.and_then(|declared| declared.split(' ').next_back()) == Some(name)
        };
        let line = format.lines().find(is_it)?;
        line.split("offset:").nth(1)?.split(';').next()?.parse().ok()
    };
    Some((id, fields.iter().map(offset).collect::<Option<_>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a record that contains this event.
    fn record_of_event(event: &[u8]) -> Vec<u8> {
        assert!(event.len().is_multiple_of(4));
        [&((event.len() / 4) as u32 | 5 << 5).to_le_bytes(), event].concat()
    }

    fn page_of_records(records: &[Vec<u8>]) -> Vec<u8> {
        let records = records.concat();
        let mut page = [0_u64.to_le_bytes(), (records.len() as u64).to_le_bytes()].concat();
        page.extend(records);
        page.resize(page_bytes(), 0xff);
        page
    }

    fn make_scanner() -> PageScanner {
        PageScanner {
            call: Some((443, [8, 16])),
            exit: Some((369, 8)),
            marks: FoundMarks::default(),
        }
    }

    fn call_event(argument: u64) -> Vec<u8> {
        let mut event = vec![0; 64];
        event[..2].copy_from_slice(&443_u16.to_le_bytes());
        event[8..16].copy_from_slice(&marks::CALL_NUMBER.to_le_bytes());
        event[16..24].copy_from_slice(&argument.to_le_bytes());
        event
    }

    #[test]
    fn marks_are_found_among_records_of_all_types() {
        let mut exit = vec![0; 36];
        exit[..2].copy_from_slice(&369_u16.to_le_bytes());
        exit[8..20].copy_from_slice(b"mark-20000-2");
        let long = call_event(0x4e20_0003);
        let long = [&[0; 4], &(4 + long.len() as u32).to_le_bytes()[..], &long].concat();
        let time = [&30_u32.to_le_bytes()[..], &[0; 4]].concat();
        let discarded =
            [&(29_u32 | 1 << 5).to_le_bytes()[..], &8_u32.to_le_bytes(), &[0; 4]].concat();
        let end = [&29_u32.to_le_bytes()[..], &record_of_event(&call_event(0x4e20_0009))].concat();
        let mut found = make_scanner();
        found.scan_page(&page_of_records(&[
            record_of_event(&call_event(0x4e20_0001)),
            time,
            discarded,
            record_of_event(&exit),
            long,
            end,
        ]));
        let mut expected = FoundMarks::default();
        [0x4e20_0001, 0x4e20_0003].into_iter().for_each(|argument| expected.add_call(argument));
        expected.add_exit("mark-20000-2");
        assert_eq!(found.marks, expected);
    }

    #[test]
    fn what_is_cut_off_or_no_page_has_none() {
        let whole = page_of_records(&[record_of_event(&call_event(0x4e20_0001))]);
        for bytes in [0, 7, 15, 16, 20, 40] {
            let mut found = make_scanner();
            found.scan_page(&whole[..bytes]);
            assert_eq!(found.marks, FoundMarks::default(), "{bytes}");
        }
        let mut found = make_scanner();
        found.scan_page(&vec![0xff; page_bytes()]);
        assert_eq!(found.marks, FoundMarks::default());
    }

    #[test]
    fn offsets_are_those_of_the_format() {
        let text = "name: sys_enter\nID: 443\nformat:\n\
                    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
                    \tfield:long id;\toffset:8;\tsize:8;\tsigned:1;\n\
                    \tfield:unsigned long args[6];\toffset:16;\tsize:48;\tsigned:0;\n";
        assert_eq!(parse_event_format(text, &["id", "args[6]"]), Some((443, vec![8, 16])));
        assert_eq!(parse_event_format(text, &["comm[16]"]), None);
    }
}
