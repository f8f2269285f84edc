//! Events that an ELF file describes in the data of the header or the crate
//! (`include/trackway/abi/abi.h`), read without running the file.
//!
//! So filters are checked against a program before its first run, and after each build. Files may
//! be hostile: invalid data describes no event.

use std::collections::HashMap;

use object::elf::{R_AARCH64_RELATIVE, R_RISCV_RELATIVE, R_X86_64_RELATIVE};
use object::endian::Endianness;
use object::read::elf::ElfFile64;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, ReadRef, RelocationFlags};
use object::{ObjectSymbolTable, RelocationTarget};
use trackway_schema::{
    EventDescription, FIELDS_MAX, Field, FieldKind, LABELS_MAX, Label, NAME_BYTES_MAX, Scalar,
    Shape,
};

/// Name of the section of pointers to events.
const SECTION: &str = "trackway_events";
/// Most events in a file: the capacity of a window.
const EVENTS_MAX: usize = trackway_abi::window::EVENTS_MAX;
const POINTER_BYTES: u64 = 8;
/// Most segments of a file that are loaded; usually there are four or five.
const PIECES_MAX: usize = 64;
/// Upper bound of a file's addresses, so that no sum of addresses and offsets wraps.
const ADDRESS_MAX: u64 = 1 << 56;
/// Value of `TRACKWAY_ABI_VERSION`.
const VERSION: u16 = 1;

/// Offsets of the members of `struct trackway_abi_event`, in bytes.
mod event {
    pub(super) const VERSION: u64 = 24;
    pub(super) const LEVEL: u64 = 28;
    pub(super) const FIELD_COUNT: u64 = 29;
    pub(super) const PROVIDER: u64 = 32;
    pub(super) const NAME: u64 = 40;
    pub(super) const FIELDS: u64 = 48;
}

/// Offsets of the members of `struct trackway_abi_field`, in bytes.
mod field {
    pub(super) const BYTES: u64 = 24;
    pub(super) const NAME: u64 = 0;
    pub(super) const LABELS: u64 = 8;
    pub(super) const SCALAR: u64 = 16;
    pub(super) const SHAPE: u64 = 17;
    pub(super) const LENGTH: u64 = 18;
}

/// Offsets of the members of `struct trackway_abi_label`, in bytes.
mod label {
    pub(super) const BYTES: u64 = 24;
    pub(super) const FIRST: u64 = 0;
    pub(super) const LAST: u64 = 8;
    pub(super) const NAME: u64 = 16;
}

/// Reads the events that a file describes; `None` if an event cannot be read.
pub(crate) fn read_events<'data, R: ReadRef<'data>>(
    file: &ElfFile64<'data, Endianness, R>,
) -> Option<Vec<EventDescription>> {
    let Some(section) = file.section_by_name(SECTION) else { return Some(Vec::new()) };
    let image = Image::of(file);
    let count = (section.size() / POINTER_BYTES).min(EVENTS_MAX as u64);
    let pointer = |number| image.pointer(section.address().checked_add(number * POINTER_BYTES)?);
    let pointers: Vec<u64> = (0..count).map(pointer).collect::<Option<_>>()?;
    let there = pointers.into_iter().filter(|event| *event != 0);
    there.map(|event| image.event(event)).collect()
}

/// A file as loaded into memory, at the addresses in its program headers.
struct Image<'data> {
    /// Loaded segments of the file: address and contents.
    pieces: Vec<(u64, &'data [u8])>,
    /// Values of pointers that the dynamic loader fills in, by the pointer's address.
    relocated: HashMap<u64, u64>,
}

impl<'data> Image<'data> {
    fn of<R: ReadRef<'data>>(file: &ElfFile64<'data, Endianness, R>) -> Self {
        // Segments do not overlap in a file that a linker has made, so their sum is bounded by the
        // file.
        let mut left = file.data().len().unwrap_or(0);
        let piece = |segment: object::read::elf::ElfSegment64<'data, '_, Endianness, R>| {
            left = left.checked_sub(segment.file_range().1)?;
            Some((segment.address(), segment.data().ok()?))
        };
        let pieces = file.segments().take(PIECES_MAX).filter_map(piece).collect();
        Self { pieces, relocated: compute_relocations(file) }
    }

    fn bytes(&self, at: u64) -> Option<&'data [u8]> {
        self.pieces.iter().find_map(|(begin, data)| {
            let offset = usize::try_from(at.checked_sub(*begin)?).ok()?;
            data.get(offset..).filter(|rest| !rest.is_empty())
        })
    }

    fn number<const N: usize>(&self, at: u64) -> Option<[u8; N]> {
        self.bytes(at)?.first_chunk().copied()
    }

    fn byte(&self, at: u64) -> Option<u8> {
        self.number::<1>(at).map(|[byte]| byte)
    }

    fn pointer(&self, at: u64) -> Option<u64> {
        let there = || self.number(at).map(u64::from_le_bytes);
        self.relocated.get(&at).copied().or_else(there).filter(|place| *place < ADDRESS_MAX)
    }

    /// Reads the text to which the pointer at address `at` points.
    fn text(&self, at: u64) -> Option<String> {
        let bytes = self.bytes(self.pointer(at)?)?;
        let length = bytes.iter().take(NAME_BYTES_MAX + 1).position(|&byte| byte == 0)?;
        String::from_utf8(bytes[..length].to_vec()).ok()
    }

    fn event(&self, at: u64) -> Option<EventDescription> {
        let is_ours = u16::from_le_bytes(self.number(at + event::VERSION)?) == VERSION;
        let fields = self.pointer(at + event::FIELDS)?;
        let count = self.byte(at + event::FIELD_COUNT).filter(|_| is_ours)?;
        if usize::from(count) > FIELDS_MAX {
            return None;
        }
        let field = |number: u8| self.field(fields.checked_add(u64::from(number) * field::BYTES)?);
        Some(EventDescription {
            provider: self.text(at + event::PROVIDER)?,
            name: self.text(at + event::NAME)?,
            level: self.byte(at + event::LEVEL)?,
            fields: (0..count).map(field).collect::<Option<_>>()?,
        })
    }

    fn field(&self, at: u64) -> Option<Field> {
        let scalar = Scalar::from_code(self.byte(at + field::SCALAR)?);
        let length = u16::from_le_bytes(self.number(at + field::LENGTH)?);
        let kind = match Shape::from_code(self.byte(at + field::SHAPE)?)? {
            Shape::Scalar => FieldKind::Scalar(scalar?),
            Shape::Str => FieldKind::Str,
            Shape::Text => FieldKind::Text,
            Shape::Array => FieldKind::Array(scalar?, length),
            Shape::Sequence => FieldKind::Sequence(scalar?),
            Shape::Enumeration => {
                let labels = self.labels(self.pointer(at + field::LABELS)?, length)?;
                FieldKind::Enumeration(scalar?, labels)
            }
        };
        Some(Field { name: self.text(at + field::NAME)?, kind })
    }

    fn labels(&self, labels: u64, count: u16) -> Option<Vec<Label>> {
        let of = |number: u16| {
            let at = labels.checked_add(u64::from(number) * label::BYTES)?;
            Some(Label {
                name: self.text(at + label::NAME)?,
                first: i64::from_le_bytes(self.number(at + label::FIRST)?),
                last: i64::from_le_bytes(self.number(at + label::LAST)?),
            })
        };
        if usize::from(count) > LABELS_MAX {
            return None;
        }
        (0..count).map(of).collect()
    }
}

/// Returns the values that the dynamic loader would fill in if it loaded the file at its own
/// addresses. (Packed values, for example of DT_RELR, are already in the data.)
fn compute_relocations<'data>(
    file: &ElfFile64<'data, Endianness, impl ReadRef<'data>>,
) -> HashMap<u64, u64> {
    let symbols = file.dynamic_symbol_table();
    let relocations = file.dynamic_relocations().into_iter().flatten();
    let value = |relocation: &object::Relocation| {
        let RelocationFlags::Elf { r_type } = relocation.flags() else { return None };
        let addend = relocation.addend().cast_unsigned();
        match relocation.target() {
            RelocationTarget::Symbol(index) => {
                let symbol = symbols.as_ref()?.symbol_by_index(index).ok()?;
                symbol.is_definition().then(|| symbol.address().wrapping_add(addend))
            }
            _ if matches!(r_type, R_X86_64_RELATIVE | R_AARCH64_RELATIVE | R_RISCV_RELATIVE) => {
                Some(addend)
            }
            _ => None,
        }
    };
    relocations.filter_map(|(at, relocation)| Some((at, value(&relocation)?))).collect()
}
