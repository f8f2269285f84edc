//! Finds the source line of an instruction in the debug information of `clang -g`
//! (Documentation/bpf/btf.rst), which includes the text of the lines. Only messages use it, so
//! invalid data is skipped.

/// Line information of one file.
#[derive(Debug, Default)]
pub(super) struct Lines<'d> {
    /// String table: NUL-terminated strings, referenced by offset.
    strings: &'d [u8],
    /// `record size u32 | (section name u32 | count u32 | record*)*`
    infos: &'d [u8],
}

const MAGIC: [u8; 2] = [0x9f, 0xeb];
/// Minimum size of a record: `insn u32 (bytes) | file name u32 | text u32 | line and column u32`.
const RECORD_BYTES: usize = 16;
/// Number of bits of the column, below the bits of the line.
const COLUMN_BITS: u32 = 10;

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Reads the part of a section that the two fields at `at` in the header describe: its offset from
/// the end of the header, and its length.
fn read_part(section: &[u8], at: usize) -> Option<&[u8]> {
    section.starts_with(&MAGIC).then_some(())?;
    let header = u32_at(section, 4)? as usize;
    let start = header.checked_add(u32_at(section, at)? as usize)?;
    section.get(start..start.checked_add(u32_at(section, at + 4)? as usize)?)
}

impl<'d> Lines<'d> {
    /// Creates the line information from the sections `.BTF` and `.BTF.ext`.
    pub(super) fn new(types: &'d [u8], more: &'d [u8]) -> Self {
        let strings = read_part(types, 16).unwrap_or_default();
        Self { strings, infos: read_part(more, 16).unwrap_or_default() }
    }

    fn string(&self, at: u32) -> Option<&'d str> {
        let rest = self.strings.get(at as usize..)?;
        std::str::from_utf8(rest.split(|&byte| byte == 0).next()?).ok()
    }

    /// Returns `file:line: text` of the instruction at byte offset `byte` of a section.
    pub(super) fn find(&self, section: &str, byte: usize) -> Option<String> {
        let size = u32_at(self.infos, 0)? as usize;
        (size >= RECORD_BYTES).then_some(())?;
        let mut at = 4;
        // Each iteration skips the records of one section.
        loop {
            let name = self.string(u32_at(self.infos, at)?)?;
            let count = u32_at(self.infos, at + 4)? as usize;
            let records = self.infos.get(at + 8..)?.get(..count.checked_mul(size)?)?;
            if name == section {
                return self.line(records.chunks_exact(size), byte);
            }
            at += 8 + records.len();
        }
    }

    /// Returns the last record that begins at or before the instruction.
    fn line(&self, mut records: std::slice::ChunksExact<'_, u8>, byte: usize) -> Option<String> {
        let at = |record: &&[u8]| u32_at(record, 0).is_some_and(|at| at as usize <= byte);
        let record = records.rfind(at)?;
        let file = self.string(u32_at(record, 4)?)?;
        let text = self.string(u32_at(record, 8)?)?.trim();
        let line = u32_at(record, 12)? >> COLUMN_BITS;
        let file = file.rsplit('/').next().unwrap_or(file);
        let shown: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        Some(format!("{file}:{line}: {shown}"))
    }
}
