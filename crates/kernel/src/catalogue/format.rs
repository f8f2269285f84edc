//! Format files of tracefs (Documentation/trace/events.rst): the layout of an event's record.
//!
//! ```text
//! name: sched_wakeup
//! ID: 310
//! format:
//! →field:unsigned short common_type;→offset:0;→size:2;→signed:0;
//! …
//!
//! →field:char comm[16];→offset:8;→size:16;→signed:0;
//! …
//!
//! print fmt: "comm=%s …", REC->comm, …
//! ```
//!
//! The parser is strict: it rejects any other shape, with the line. Only for the print format,
//! which is C, it is tolerant ([`super::print`]): if a part is unknown, a field has no value names.

use std::fmt;
use std::sync::Arc;

use trackway_schema::Scalar;

use super::ctype;
use super::model::{Field, FieldShape, Location, Meaning, Symbols};
use super::print;

/// Longest format, in bytes. (Linux 6.18: 5.5 KB.)
pub const FORMAT_BYTES_MAX: usize = 256 << 10;
/// Most fields of an event, with common fields. (Linux 6.18: 24.)
const FIELDS_MAX: usize = 256;
/// Longest record, in bytes: the size of the ring buffer's sub-buffers.
const RECORD_BYTES_MAX: u32 = 64 << 10;
/// Most dimensions of an array.
const DIMENSIONS_MAX: usize = 4;

/// A lookup of names that formats use, from BTF.
pub trait NameLookup {
    /// Returns the value of an enumerator.
    fn enumerator(&self, name: &str) -> Option<u64>;
    /// Returns the values of an enumeration, by its tag.
    fn enumeration(&self, tag: &str) -> Option<Arc<Symbols>>;
    /// Returns the integer that represents a type.
    fn integer(&self, type_name: &str) -> Option<Scalar>;
}

/// A lookup that finds no names.
#[derive(Debug, Clone, Copy)]
pub struct EmptyLookup;

impl NameLookup for EmptyLookup {
    fn enumerator(&self, _: &str) -> Option<u64> {
        None
    }

    fn enumeration(&self, _: &str) -> Option<Arc<Symbols>> {
        None
    }

    fn integer(&self, _: &str) -> Option<Scalar> {
        None
    }
}

/// A parsed format file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Format<'text> {
    /// The event's name.
    pub name: &'text str,
    /// The event's id in tracefs records.
    pub id: u16,
    /// The common fields of all events.
    pub common: Vec<Field>,
    /// The event's own fields.
    pub fields: Vec<Field>,
    /// The print format, as unparsed C.
    pub print: &'text str,
}

/// The error that a text is not a format file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FormatError {
    /// The number of the invalid line, from 1 on.
    pub line: usize,
    /// A description of the problem.
    pub what: &'static str,
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for FormatError {}

/// Parses a format file.
///
/// # Errors
///
/// If the text is invalid or too long.
pub fn parse<'text>(
    text: &'text str,
    names: &dyn NameLookup,
) -> Result<Format<'text>, FormatError> {
    let at = |line: usize, what| FormatError { line, what };
    if text.len() > FORMAT_BYTES_MAX {
        return Err(at(1, "longer than formats are"));
    }
    let (head, print) = text.split_once("\nprint fmt:").unwrap_or((text, ""));
    let mut lines = (1..).zip(head.lines());
    let mut heading = |prefix: &str, what| {
        let (line, text) = lines.next().unwrap_or((1, ""));
        text.strip_prefix(prefix).ok_or(at(line, what))
    };
    let name = heading("name: ", "'name: ' is expected")?;
    if !is_name(name) {
        return Err(at(1, "not a name"));
    }
    let id = heading("ID: ", "'ID: ' is expected")?;
    let id = id.parse().map_err(|_| at(2, "the ID is not a number of 16 bits"))?;
    heading("format:", "'format:' is expected")?;
    let (mut common, mut fields) = (Vec::new(), Vec::new());
    for (line, text) in lines {
        if text.is_empty() {
            continue;
        }
        let field = parse_field(text, names).map_err(|what| at(line, what))?;
        if common.len() + fields.len() == FIELDS_MAX {
            return Err(at(line, "more fields than events have"));
        }
        let is_common = fields.is_empty() && field.name.starts_with("common_");
        if is_common { common.push(field) } else { fields.push(field) }
    }
    let print = print.trim();
    print::apply_print_format(print, &mut fields, names);
    Ok(Format { name, id, common, fields, print })
}

/// Returns true if a text is a C identifier.
fn is_name(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !text.is_empty()
        && text.len() <= 128
        && text.chars().all(is_word)
        && !text.starts_with(|c: char| c.is_ascii_digit())
}

fn parse_field(line: &str, names: &dyn NameLookup) -> Result<Field, &'static str> {
    let line = line.strip_prefix("\tfield:").ok_or("a field is expected")?;
    let mut parts = line.split(';');
    let declaration = parts.next().unwrap_or_default();
    let mut number = |prefix: &str| {
        let digits = parts.next()?.strip_prefix('\t')?.strip_prefix(prefix)?;
        // Some formats contain a sign, which is not allowed here.
        digits.parse::<u32>().ok()
    };
    let offset = number("offset:").ok_or("no offset")?;
    let size = number("size:").ok_or("no size")?;
    let is_signed = match number("signed:") {
        Some(signed @ 0..=1) => signed == 1,
        _ => return Err("neither signed nor unsigned"),
    };
    if parts.next() != Some("") || parts.next().is_some() {
        return Err("something behind the field");
    }
    if offset.checked_add(size).is_none_or(|end| end > RECORD_BYTES_MAX) {
        return Err("beyond the end of any record");
    }
    let declaration = Declaration::parse(declaration)?;
    let kind = declaration.shape(size, is_signed, names)?;
    Ok(Field {
        name: declaration.name.to_owned(),
        type_text: declaration.type_text(),
        meaning: type_meaning(&declaration, kind, names),
        kind,
        offset,
        size,
        argument: None,
        pointee: None,
    })
}

/// A parsed C declaration.
struct Declaration<'text> {
    name: &'text str,
    /// The type; for arrays, the type of one element.
    element: &'text str,
    /// The array dimensions in brackets after the name.
    dimensions: Vec<&'text str>,
    location: Option<Location>,
}

impl<'text> Declaration<'text> {
    fn parse(text: &'text str) -> Result<Self, &'static str> {
        let (mut rest, mut dimensions) = (text.trim(), Vec::new());
        while let Some(open) = rest.strip_suffix(']') {
            let (before, dimension) = open.rsplit_once('[').ok_or("a bracket too many")?;
            if dimensions.len() == DIMENSIONS_MAX {
                return Err("an array of more dimensions than arrays have");
            }
            dimensions.insert(0, dimension.trim());
            rest = before.trim_end();
        }
        let split = rest.rfind([' ', '*', '\t', ']']).ok_or("a type and a name are expected")?;
        let (element, name) = rest.split_at(split + 1);
        if !is_name(name) {
            return Err("not a name");
        }
        let mut element = element.trim();
        let locations = [("__data_loc ", Location::Absolute), ("__rel_loc ", Location::Relative)];
        let mut location = None;
        for (prefix, of_prefix) in locations {
            if let Some(rest) = element.strip_prefix(prefix) {
                (element, location) = (rest.trim(), Some(of_prefix));
            }
        }
        if location.is_some() {
            element = element.strip_suffix("[]").unwrap_or(element).trim_end();
        }
        if element.is_empty() || element.len() > 256 {
            return Err("no type");
        }
        Ok(Self { name, element, dimensions, location })
    }

    /// Returns the type of the declaration in C, without the name.
    fn type_text(&self) -> String {
        let mut text = self.element.to_owned();
        if self.location.is_some() {
            text.push_str("[]");
        }
        for dimension in &self.dimensions {
            text.push_str(&format!("[{dimension}]"));
        }
        text
    }

    fn scalar(&self, names: &dyn NameLookup) -> Option<Scalar> {
        match self.element.contains('*') {
            true => Some(Scalar::U64),
            false => ctype::scalar_of_type(self.element).or_else(|| names.integer(self.element)),
        }
    }

    fn shape(
        &self,
        size: u32,
        is_signed: bool,
        names: &dyn NameLookup,
    ) -> Result<FieldShape, &'static str> {
        let is_char = matches!(self.element, "char" | "const char");
        if let Some(location) = self.location {
            return match self.element {
                _ if size != 4 || !self.dimensions.is_empty() => Err("a place is 4 bytes"),
                _ if is_char => Ok(FieldShape::DynamicText(location)),
                element if element.contains("cpumask") => Ok(FieldShape::Bitmask(location)),
                // Elements of unknown types are recorded as bytes.
                _ => Ok(FieldShape::Dynamic(self.scalar(names).unwrap_or(Scalar::U8), location)),
            };
        }
        if self.dimensions.is_empty() {
            let scalar = ctype::integer_scalar(size, is_signed);
            return match scalar {
                Some(_) if ctype::is_aggregate(self.element) => Ok(FieldShape::Bytes(size)),
                Some(Scalar::U8) if self.scalar(names) == Some(Scalar::Bool) => {
                    Ok(FieldShape::Integer(Scalar::Bool))
                }
                Some(scalar) => Ok(FieldShape::Integer(scalar)),
                None if size == 0 => Err("a field without bytes"),
                None => Ok(FieldShape::Bytes(size)),
            };
        }
        self.array_shape(size, is_signed, names)
    }

    fn array_shape(
        &self,
        size: u32,
        is_signed: bool,
        names: &dyn NameLookup,
    ) -> Result<FieldShape, &'static str> {
        let is_char = matches!(self.element, "char" | "const char");
        if size == 0 {
            return match self.scalar(names) {
                _ if is_char => Ok(FieldShape::TrailingText),
                Some(scalar) => Ok(FieldShape::Trailing(scalar)),
                None => Ok(FieldShape::Trailing(Scalar::U8)),
            };
        }
        if is_char {
            return Ok(FieldShape::Text(size));
        }
        // A dimension may be a constant's name.
        let counts = self.dimensions.iter().map(|dimension| dimension.parse::<u32>().ok());
        let count = counts.product::<Option<u32>>().filter(|&count| count > 0);
        let of_count = count
            .filter(|count| size.is_multiple_of(*count))
            .and_then(|count| ctype::integer_scalar(size / count, is_signed));
        let of_name = || {
            let bytes = self.scalar(names)?.size_bytes() as u32;
            ctype::integer_scalar(bytes, is_signed).filter(|_| size.is_multiple_of(bytes))
        };
        match of_count.or_else(of_name) {
            Some(scalar) if !ctype::is_aggregate(self.element) => {
                Ok(FieldShape::Array(scalar, size / scalar.size_bytes() as u32))
            }
            _ => Ok(FieldShape::Bytes(size)),
        }
    }
}

/// Returns the meaning that the declared type implies.
fn type_meaning(
    declaration: &Declaration<'_>,
    kind: FieldShape,
    names: &dyn NameLookup,
) -> Meaning {
    if !matches!(kind, FieldShape::Integer(_)) {
        return Meaning::Plain;
    }
    let element = declaration.element.trim_start_matches("const ").trim();
    match element {
        _ if element.contains('*') => Meaning::Address,
        "dev_t" => Meaning::Device,
        "umode_t" => Meaning::Mode,
        _ => {
            let tag = element.strip_prefix("enum ").map(str::trim);
            let symbols = tag.and_then(|tag| names.enumeration(tag));
            let symbols = symbols.map(|symbols| truncate_symbols(symbols, kind));
            symbols.map_or(Meaning::Plain, Meaning::Symbols)
        }
    }
}

/// Truncates values of symbols if the field has fewer bits than the enumeration.
fn truncate_symbols(symbols: Arc<Symbols>, kind: FieldShape) -> Arc<Symbols> {
    let FieldShape::Integer(scalar) = kind else { return symbols };
    let bits = ctype::value_mask(scalar);
    if symbols.iter().all(|symbol| symbol.value <= bits) {
        return symbols;
    }
    let mut symbols = Arc::unwrap_or_clone(symbols);
    symbols.choices.iter_mut().for_each(|symbol| symbol.value &= bits);
    Arc::new(symbols)
}
