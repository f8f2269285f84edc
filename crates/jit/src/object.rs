//! The byte format of an object: a filter's alternatives, as the recorder publishes them.
//!
//! Readers treat an object as hostile: [`Object::decode`] checks all of it once, and the results of
//! the views are inside the bytes. Decoding bounds the programs, but does not verify them.
//! docs/design/0008-filters.md shows the layout.

use core::fmt;

use crate::insn::{INSN_BYTES, Insn};
use crate::program::Program;
use crate::{CELLS_MAX, Kind, SLOTS_MAX};

const MAGIC: [u8; 3] = *b"twf";
/// Version of objects whose alternatives differ in kinds.
pub const VERSION: u8 = 1;
/// Version of objects with alternatives that differ only in meanings ([`crate::meaning`]). A reader
/// without meanings must reject such objects, instead of using the first alternative with matching
/// kinds.
pub const VERSION_OF_MEANINGS: u8 = 2;
/// Alignment of programs, from the object's beginning.
const ALIGNMENT: usize = 8;

/// A field or context that a filter reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need<'a> {
    /// Kind that the filter expects.
    pub kind: Kind,
    /// Name, preceded by the names of the enclosing structures.
    pub path: &'a str,
}

/// An object whose bytes were checked.
#[derive(Debug, Clone, Copy)]
pub struct Object<'a> {
    bytes: &'a [u8],
    alternatives: u8,
    cells: u8,
}

/// The filter for one combination of kinds.
#[derive(Debug, Clone, Copy)]
pub struct Alternative<'a> {
    needs: Cursor<'a>,
    needs_count: u8,
    constants: &'a [u8],
    programs: Cursor<'a>,
    programs_count: u8,
}

/// The error for bytes that are no object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeError {
    /// Offset of the problem.
    pub offset: usize,
    /// Description of the problem.
    pub reason: &'static str,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.reason, self.offset)
    }
}

impl core::error::Error for DecodeError {}

/// A cursor in bytes.
#[derive(Debug, Clone, Copy)]
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn error(&self, reason: &'static str) -> DecodeError {
        DecodeError { offset: self.at, reason }
    }

    fn take(&mut self, size: usize) -> Result<&'a [u8], DecodeError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let taken = rest.get(..size).ok_or(self.error("the object is cut off"))?;
        self.at += size;
        Ok(taken)
    }

    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let bytes = self.take(N)?;
        bytes.try_into().map_err(|_| self.error("the object is cut off"))
    }

    fn need(&mut self) -> Result<Need<'a>, DecodeError> {
        let [kind, length] = self.chunk()?;
        let kind = Kind::from_code(kind).ok_or(self.error("a need of no kind"))?;
        let path = core::str::from_utf8(self.take(length.into())?);
        let path = path.map_err(|_| self.error("a path that is no text"))?;
        if path.is_empty() {
            return Err(self.error("a need without a path"));
        }
        Ok(Need { kind, path })
    }

    fn program(&mut self) -> Result<Program<'a>, DecodeError> {
        let count = u32::from_le_bytes(self.chunk()?);
        if self.chunk()? != [0; 4] {
            return Err(self.error("something where zeros belong"));
        }
        let size = (count as usize).saturating_mul(INSN_BYTES);
        let bytes = self.take(size)?;
        Program::new(bytes).ok_or(self.error("a program without, or with too many instructions"))
    }

    fn pad(&mut self) -> Result<(), DecodeError> {
        let zeros = self.take(self.at.next_multiple_of(ALIGNMENT) - self.at)?;
        if zeros.iter().any(|&byte| byte != 0) {
            return Err(self.error("something where zeros belong"));
        }
        Ok(())
    }

    fn alternative(&mut self) -> Result<Alternative<'a>, DecodeError> {
        let [needs_count, programs_count, low, high] = self.chunk()?;
        if usize::from(needs_count) > SLOTS_MAX {
            return Err(self.error("more needs than slots"));
        }
        if programs_count == 0 {
            return Err(self.error("an alternative without a program"));
        }
        let needs = *self;
        for _ in 0..needs_count {
            self.need()?;
        }
        let constants = self.take(u16::from_le_bytes([low, high]).into())?;
        self.pad()?;
        let programs = *self;
        for _ in 0..programs_count {
            self.program()?;
        }
        Ok(Alternative { needs, needs_count, constants, programs, programs_count })
    }
}

impl<'a> Object<'a> {
    /// Decodes an object. The time is proportional to its size.
    ///
    /// # Errors
    /// Returns an error if the bytes are no object, or if bytes follow the object.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut cursor = Cursor { bytes, at: 0 };
        if cursor.chunk()? != MAGIC {
            return Err(DecodeError { offset: 0, reason: "no object of a filter" });
        }
        let [version, alternatives, cells] = cursor.chunk()?;
        if ![VERSION, VERSION_OF_MEANINGS].contains(&version) {
            return Err(cursor.error("a version of objects that is not known here"));
        }
        if alternatives == 0 {
            return Err(cursor.error("an object without an alternative"));
        }
        if usize::from(cells) > CELLS_MAX {
            return Err(cursor.error("more cells than there may be"));
        }
        for _ in 0..alternatives {
            cursor.alternative()?;
        }
        if cursor.at != bytes.len() {
            return Err(cursor.error("something behind the object"));
        }
        Ok(Self { bytes, alternatives, cells })
    }

    /// Returns the number of state cells that the programs share.
    pub fn cells(&self) -> usize {
        self.cells.into()
    }

    /// Returns the alternatives. The first one whose needs an event meets is the event's filter.
    pub fn alternatives(&self) -> impl Iterator<Item = Alternative<'a>> {
        let mut cursor = Cursor { bytes: self.bytes, at: MAGIC.len() + 3 };
        (0..self.alternatives).map_while(move |_| cursor.alternative().ok())
    }
}

impl<'a> Alternative<'a> {
    /// Returns the needs, in the order of the frame's slots; at most [`SLOTS_MAX`].
    pub fn needs(&self) -> impl Iterator<Item = Need<'a>> + use<'a> {
        let mut cursor = self.needs;
        (0..self.needs_count).map_while(move |_| cursor.need().ok())
    }

    /// Returns the number of needs.
    pub fn needs_count(&self) -> usize {
        self.needs_count.into()
    }

    /// Returns the strings and patterns that the programs refer to.
    pub fn constants(&self) -> &'a [u8] {
        self.constants
    }

    /// Returns the programs; the first is the entry.
    pub fn programs(&self) -> impl Iterator<Item = Program<'a>> + use<'a> {
        let mut cursor = self.programs;
        (0..self.programs_count).map_while(move |_| cursor.program().ok())
    }

    /// Returns the number of programs.
    pub fn programs_count(&self) -> usize {
        self.programs_count.into()
    }
}

/// An alternative to encode.
#[derive(Debug, Clone, Copy)]
pub struct AlternativeParts<'a> {
    /// Needs: see [`Alternative::needs`].
    pub needs: &'a [Need<'a>],
    /// Constants: see [`Alternative::constants`]; at most 65,535 bytes.
    pub constants: &'a [u8],
    /// Programs: see [`Alternative::programs`]; at most 255.
    pub programs: &'a [&'a [Insn]],
}

/// The reason why an object was not encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncodeError {
    /// The buffer is too small.
    NoRoom,
    /// The result would be invalid: a part is missing, or too large.
    Invalid(DecodeError),
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRoom => f.write_str("the buffer is too small for the object"),
            Self::Invalid(error) => write!(f, "this is no object: {error}"),
        }
    }
}

impl core::error::Error for EncodeError {}

/// A writer that fills a buffer from its beginning.
struct Writer<'b> {
    buffer: &'b mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        let end = self.at.checked_add(bytes.len()).ok_or(EncodeError::NoRoom)?;
        self.buffer.get_mut(self.at..end).ok_or(EncodeError::NoRoom)?.copy_from_slice(bytes);
        self.at = end;
        Ok(())
    }

    /// Converts a count or a size to the smaller type of the format.
    fn narrow<T: TryFrom<usize>>(&self, count: usize) -> Result<T, EncodeError> {
        let error = DecodeError { offset: self.at, reason: "more than can be counted" };
        T::try_from(count).map_err(|_| EncodeError::Invalid(error))
    }

    fn alternative(&mut self, parts: &AlternativeParts<'_>) -> Result<(), EncodeError> {
        let [low, high] = self.narrow::<u16>(parts.constants.len())?.to_le_bytes();
        let (needs, programs) = (self.narrow(parts.needs.len())?, parts.programs.len());
        self.put(&[needs, self.narrow(programs)?, low, high])?;
        for need in parts.needs {
            self.put(&[need.kind as u8, self.narrow(need.path.len())?])?;
            self.put(need.path.as_bytes())?;
        }
        self.put(parts.constants)?;
        let zeros = self.at.next_multiple_of(ALIGNMENT) - self.at;
        self.put(&[0; ALIGNMENT][..zeros])?;
        for program in parts.programs {
            self.put(&self.narrow::<u32>(program.len())?.to_le_bytes())?;
            self.put(&[0; 4])?;
            program.iter().try_for_each(|insn| self.put(&insn.encode()))?;
        }
        Ok(())
    }
}

/// Encodes an object at the beginning of `buffer`; returns its size in bytes.
///
/// # Errors
/// Returns an error if the buffer is too small, or if the result could not be decoded.
pub fn encode(
    cells: u8,
    alternatives: &[AlternativeParts<'_>],
    buffer: &mut [u8],
) -> Result<usize, EncodeError> {
    let mut writer = Writer { buffer, at: 0 };
    writer.put(&MAGIC)?;
    let count = writer.narrow(alternatives.len())?;
    writer.put(&[VERSION, count, cells])?;
    for parts in alternatives {
        writer.alternative(parts)?;
    }
    let size = writer.at;
    let encoded = buffer.get(..size).unwrap_or_default();
    Object::decode(encoded).map(|_| size).map_err(EncodeError::Invalid)
}
