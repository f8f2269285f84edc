//! A reader of the kernel's types (Documentation/bpf/btf.rst). `crate::bpf_sys::btf` writes types.
//!
//! `header | types | strings`; a type is `name u32 | kind, count u32 | size or type u32`, followed
//! by data of its kind; its id is its position, from 1 on. One pass finds the offset of each type;
//! lookups read the bytes on demand and check every number. So no input makes this module panic or
//! loop forever.
//!
//! Other crates do more and are slower: aya-obj 0.3 copies each type into a tree (to relocate
//! programs, which the recorder does not need), btf-rs is LGPL, btf 0.5 reads a file one type at a
//! time.

use std::fmt;
use std::sync::Arc;
use std::sync::OnceLock;

use trackway_schema::Scalar;

use super::format::NameLookup;
use super::model::{Member, Structure, Symbol, Symbols};

/// The file with the running kernel's types.
pub const VMLINUX: &str = "/sys/kernel/btf/vmlinux";
/// Longest BTF file, in bytes. (Linux 6.18 here: 5.5 MB; distributions: 6 to 12 MB.)
pub const BTF_BYTES_MAX: u64 = 256 << 20;

const MAGIC: u16 = 0xeb9f;
const HEADER_BYTES: usize = 24;
const TYPE_BYTES: usize = 12;
/// Longest chain of type names and qualifiers before a type.
const CHAIN_MAX: usize = 32;
/// Longest name, in bytes; the reader truncates longer names.
const NAME_BYTES_MAX: usize = 512;
/// Most visited members of a structure, including members of nested structures.
const MEMBERS_MAX: usize = 4096;
/// Deepest visited nesting of structures.
const DEPTH_MAX: usize = 8;
/// Longest path of a nested member, in bytes.
const PATH_BYTES_MAX: usize = 1024;

/// The class of a BTF type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the format's")]
pub enum Class {
    Int,
    Pointer,
    Array,
    Struct,
    Union,
    Enum,
    Forward,
    Typedef,
    Volatile,
    Const,
    Restrict,
    Func,
    FuncProto,
    Var,
    Datasec,
    Float,
    DeclTag,
    TypeTag,
    Enum64,
}

impl Class {
    const ALL: [Self; 19] = [
        Self::Int,
        Self::Pointer,
        Self::Array,
        Self::Struct,
        Self::Union,
        Self::Enum,
        Self::Forward,
        Self::Typedef,
        Self::Volatile,
        Self::Const,
        Self::Restrict,
        Self::Func,
        Self::FuncProto,
        Self::Var,
        Self::Datasec,
        Self::Float,
        Self::DeclTag,
        Self::TypeTag,
        Self::Enum64,
    ];

    /// Returns the size of the data that follows a type with `count` parts.
    const fn extra_bytes(self, count: usize) -> usize {
        match self {
            Self::Int | Self::Var | Self::DeclTag => 4,
            Self::Array => 12,
            Self::Struct | Self::Union | Self::Datasec | Self::Enum64 => 12 * count,
            Self::Enum | Self::FuncProto => 8 * count,
            _ => 0,
        }
    }

    const fn is_qualifier(self) -> bool {
        matches!(
            self,
            Self::Typedef | Self::Volatile | Self::Const | Self::Restrict | Self::TypeTag
        )
    }
}

/// The error that bytes are not valid BTF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BtfError {
    /// The offset of the invalid data.
    pub offset: usize,
    /// A description of the problem.
    pub what: &'static str,
}

impl fmt::Display for BtfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: {}", self.offset, self.what)
    }
}

impl std::error::Error for BtfError {}

/// All types of a kernel.
#[derive(Debug)]
pub struct Btf {
    bytes: Vec<u8>,
    /// Offsets of the beginning and end of the strings.
    strings: (usize, usize),
    /// The offset of each type, from id 1 on.
    offsets: Vec<u32>,
    /// Ids of named types, sorted by the hash of the name.
    by_name: OnceLock<Vec<(u32, u32)>>,
    /// Enumerators sorted by the hash of the name: hash, type id, index in the type.
    enumerators: OnceLock<Vec<(u32, u32, u32)>>,
}

/// A BTF type.
#[derive(Debug, Clone, Copy)]
pub struct Type<'btf> {
    /// The type's id.
    pub id: u32,
    /// The type's class.
    pub class: Class,
    /// The type's name, or an empty string.
    pub name: &'btf str,
    /// The type's size in bytes, or the id of another type, by class.
    pub size_or_type: u32,
    /// The type's kind flag, whose meaning depends on the class.
    flag: bool,
    extra: &'btf [u8],
}

/// A member of a structure, as in BTF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawMember<'btf> {
    /// The member's name, or an empty string.
    pub name: &'btf str,
    /// The id of the member's type.
    pub type_id: u32,
    /// The member's offset in bits.
    pub bit_offset: u32,
    /// The number of bits if the member is a bit field; else 0.
    pub bits: u32,
}

/// A variable in an ELF section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SectionVariable {
    /// The id of the variable's type.
    pub type_id: u32,
    /// The variable's offset in the section.
    pub offset: u32,
    /// The variable's size in bytes.
    pub size: u32,
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*word))
}

fn read_u32s(bytes: &[u8]) -> impl Iterator<Item = u32> {
    let (words, _) = bytes.as_chunks::<4>();
    words.iter().map(|word| u32::from_le_bytes(*word))
}

impl Btf {
    /// Parses little-endian BTF.
    ///
    /// # Errors
    ///
    /// If the bytes are invalid.
    pub fn parse(bytes: Vec<u8>) -> Result<Self, BtfError> {
        let at = |offset, what| BtfError { offset, what };
        let magic = bytes.first_chunk::<2>().map(|magic| u16::from_le_bytes(*magic));
        if magic != Some(MAGIC) || bytes.get(2) != Some(&1) {
            return Err(at(0, "not types of this byte order and version"));
        }
        if bytes.len() as u64 > BTF_BYTES_MAX {
            return Err(at(0, "longer than a kernel's types are"));
        }
        let header = read_u32(&bytes, 4).unwrap_or(0) as usize;
        if header < HEADER_BYTES {
            return Err(at(4, "a header that is too short"));
        }
        let section = |field: usize| -> Option<(usize, usize)> {
            let from = header.checked_add(read_u32(&bytes, field)? as usize)?;
            let to = from.checked_add(read_u32(&bytes, field + 4)? as usize)?;
            (to <= bytes.len()).then_some((from, to))
        };
        let types = section(8).ok_or(at(8, "types beyond the end"))?;
        let strings = section(16).ok_or(at(16, "strings beyond the end"))?;
        let mut offsets = Vec::with_capacity((types.1 - types.0) / 32);
        let mut offset = types.0;
        while offset < types.1 {
            let extra = TypeHeader::read(&bytes[..types.1], offset)
                .map(|head| head.class.extra_bytes(head.count as usize))
                .ok_or(at(offset, "a type of no kind, or cut off"))?;
            offsets.push(offset as u32);
            offset += TYPE_BYTES + extra;
        }
        if offset != types.1 {
            return Err(at(types.1, "a type that is cut off"));
        }
        let (by_name, enumerators) = (OnceLock::new(), OnceLock::new());
        Ok(Self { bytes, strings, offsets, by_name, enumerators })
    }

    /// Returns the number of types.
    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    /// Returns true if there are no types.
    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// Returns the string at an offset, or an empty string if the offset is invalid.
    fn string(&self, offset: u32) -> &str {
        let strings = &self.bytes[self.strings.0..self.strings.1];
        let bytes = strings.get(offset as usize..).unwrap_or_default();
        let bytes = &bytes[..bytes.len().min(NAME_BYTES_MAX)];
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(0);
        std::str::from_utf8(&bytes[..end]).unwrap_or_default()
    }

    /// Returns the type with this id.
    pub fn get(&self, id: u32) -> Option<Type<'_>> {
        let offset = *self.offsets.get((id as usize).checked_sub(1)?)? as usize;
        let head = TypeHeader::read(&self.bytes, offset)?;
        let extra = self.bytes.get(offset + TYPE_BYTES..)?;
        let extra = extra.get(..head.class.extra_bytes(head.count as usize))?;
        Some(Type {
            id,
            class: head.class,
            name: self.string(head.name),
            size_or_type: head.size_or_type,
            flag: head.flag,
            extra,
        })
    }

    /// Returns all types.
    pub fn types(&self) -> impl Iterator<Item = Type<'_>> {
        (1..=self.offsets.len() as u32).filter_map(|id| self.get(id))
    }

    /// Returns the first type of this class and name.
    pub fn find(&self, class: Class, name: &str) -> Option<Type<'_>> {
        let index = self.by_name.get_or_init(|| {
            let named = self.types().filter(|of| !of.name.is_empty());
            let mut index: Vec<_> = named.map(|of| (hash_name(of.name), of.id)).collect();
            index.sort_unstable();
            index
        });
        let wanted = hash_name(name);
        let first = index.partition_point(|&(hash, _)| hash < wanted);
        index[first..]
            .iter()
            .take_while(|&&(hash, _)| hash == wanted)
            .filter_map(|&(_, id)| self.get(id))
            .find(|of| of.class == class && of.name == name)
    }

    /// Skips type names and qualifiers before a type; `None` for void and for endless chains.
    pub fn resolve(&self, mut id: u32) -> Option<Type<'_>> {
        for _ in 0..CHAIN_MAX {
            let of = self.get(id)?;
            if !of.class.is_qualifier() {
                return Some(of);
            }
            id = of.size_or_type;
        }
        None
    }

    /// Returns the members of a structure or union.
    pub fn members<'btf>(&'btf self, of: &Type<'btf>) -> impl Iterator<Item = RawMember<'btf>> {
        let is_aggregate = matches!(of.class, Class::Struct | Class::Union);
        let has_bits = of.flag;
        let (parts, _) = if is_aggregate { of.extra } else { &[] }.as_chunks::<12>();
        parts.iter().map(move |part| {
            let mut words = read_u32s(part);
            let mut next = || words.next().unwrap_or_default();
            let (name, type_id, place) = (next(), next(), next());
            let bits = if has_bits { place >> 24 } else { 0 };
            let bit_offset = if has_bits { place & 0xff_ffff } else { place };
            RawMember { name: self.string(name), type_id, bit_offset, bits }
        })
    }

    /// Finds a member by a path: member names separated by dots, through nested structures, named
    /// or anonymous, but not through pointers.
    pub fn find_member(&self, id: u32, path: &str) -> Option<RawMember<'_>> {
        let mut place = RawMember { name: "", type_id: id, bit_offset: 0, bits: 0 };
        let mut left = MEMBERS_MAX;
        for name in path.split('.') {
            let inside = self.find_direct_member(place.type_id, name, 0, &mut left)?;
            let bit_offset = place.bit_offset.checked_add(inside.bit_offset)?;
            place = RawMember { bit_offset, ..inside };
        }
        Some(place)
    }

    fn find_direct_member(
        &self,
        id: u32,
        name: &str,
        depth: usize,
        left: &mut usize,
    ) -> Option<RawMember<'_>> {
        let of = self.resolve(id).filter(|_| depth < DEPTH_MAX)?;
        for member in self.members(&of) {
            *left = left.checked_sub(1)?;
            if member.name == name {
                return Some(member);
            }
            if !member.name.is_empty() {
                continue;
            }
            if let Some(inside) = self.find_direct_member(member.type_id, name, depth + 1, left) {
                let bit_offset = member.bit_offset.checked_add(inside.bit_offset)?;
                return Some(RawMember { bit_offset, ..inside });
            }
        }
        None
    }

    /// Returns the enumerators of an enumeration: names, and 64-bit values (sign-extended if
    /// signed).
    pub fn enumerators<'btf>(
        &'btf self,
        of: &Type<'btf>,
    ) -> impl Iterator<Item = (&'btf str, u64)> {
        let (bytes, is_signed) = (of.extra, of.flag);
        let step = match of.class {
            Class::Enum => 8,
            Class::Enum64 => 12,
            _ => usize::MAX,
        };
        bytes.chunks_exact(step).map(move |part| {
            let mut words = read_u32s(part);
            let mut next = || words.next().unwrap_or_default();
            let (name, low) = (next(), next());
            let value = match (step, is_signed) {
                (12, _) => u64::from(next()) << 32 | u64::from(low),
                (_, true) => i64::from(low.cast_signed()).cast_unsigned(),
                (_, false) => low.into(),
            };
            (self.string(name), value)
        })
    }

    /// Returns the parameters of a function prototype: names, which may be empty, and types.
    pub fn parameters<'btf>(&'btf self, of: &Type<'btf>) -> impl Iterator<Item = (&'btf str, u32)> {
        let (parts, _) = if of.class == Class::FuncProto { of.extra } else { &[] }.as_chunks::<8>();
        parts.iter().map(|part| {
            let mut words = read_u32s(part);
            let name = words.next().unwrap_or_default();
            (self.string(name), words.next().unwrap_or_default())
        })
    }

    /// Returns the variables in a section.
    pub fn section_variables(&self, of: &Type<'_>) -> impl Iterator<Item = SectionVariable> {
        let (parts, _) = if of.class == Class::Datasec { of.extra } else { &[] }.as_chunks::<12>();
        parts.iter().map(|part| {
            let mut words = read_u32s(part);
            let mut next = || words.next().unwrap_or_default();
            SectionVariable { type_id: next(), offset: next(), size: next() }
        })
    }

    /// Returns the element type and the length of an array.
    pub fn elements(&self, of: &Type<'_>) -> Option<(u32, u32)> {
        let is_array = of.class == Class::Array;
        let mut words = read_u32s(of.extra).take_while(|_| is_array);
        let element = words.next()?;
        Some((element, words.nth(1)?))
    }

    /// Returns the integer that represents a type: an `int`, an enumeration or a pointer, under any
    /// name.
    pub fn scalar(&self, id: u32) -> Option<Scalar> {
        /// The word after an integer type contains its bits, their offset and their encoding.
        const SIGNED: u32 = 1;
        const BOOL: u32 = 4;
        let of = self.resolve(id)?;
        let sized = super::ctype::integer_scalar;
        match of.class {
            Class::Pointer => Some(Scalar::U64),
            Class::Enum | Class::Enum64 => sized(of.size_or_type, of.flag),
            Class::Int => {
                let about = read_u32(of.extra, 0)?;
                let encoding = about >> 24 & 0xf;
                let is_whole = about & 0xff == of.size_or_type.checked_mul(8)?;
                match encoding {
                    BOOL if of.size_or_type == 1 => Some(Scalar::Bool),
                    _ if !is_whole => None,
                    _ => sized(of.size_or_type, encoding & SIGNED != 0),
                }
            }
            _ => None,
        }
    }

    /// Returns the C declaration of a type.
    pub fn type_text(&self, id: u32) -> String {
        let (mut front, mut back, mut id) = (String::new(), String::new(), id);
        for _ in 0..CHAIN_MAX {
            let Some(of) = self.get(id) else {
                return format_declaration(&front, "", "void", &back);
            };
            let word = match of.class {
                Class::Pointer => {
                    back.insert(0, '*');
                    ""
                }
                Class::Const => {
                    // `const` qualifies the pointee or the pointer.
                    if back.starts_with('*') || back.is_empty() { "const " } else { "" }
                }
                Class::Volatile | Class::Restrict | Class::TypeTag => "",
                Class::Struct => return format_declaration(&front, "struct ", of.name, &back),
                Class::Union => return format_declaration(&front, "union ", of.name, &back),
                Class::Forward if of.flag => {
                    return format_declaration(&front, "union ", of.name, &back);
                }
                Class::Forward => return format_declaration(&front, "struct ", of.name, &back),
                Class::Enum | Class::Enum64 => {
                    return format_declaration(&front, "enum ", of.name, &back);
                }
                Class::FuncProto => return format_declaration(&front, "", "function", &back),
                Class::Array => return format_declaration(&front, "", "array", &back),
                _ => return format_declaration(&front, "", of.name, &back),
            };
            if !front.contains(word) {
                front.push_str(word);
            }
            id = of.size_or_type;
        }
        "?".into()
    }

    /// Returns a structure or union of the kernel's user-space ABI, with its integer members.
    pub fn structure(&self, name: &str) -> Option<Structure> {
        let of = self.find(Class::Struct, name).or_else(|| self.find(Class::Union, name));
        let alias = || self.find(Class::Typedef, name).and_then(|of| self.resolve(of.id));
        let of = of.or_else(alias).filter(|of| matches!(of.class, Class::Struct | Class::Union))?;
        let mut found = MemberCollector { all: Vec::new(), left: MEMBERS_MAX };
        self.push_members(&of, "", 0, &mut found);
        Some(Structure { name: name.into(), bytes: of.size_or_type, members: found.all })
    }

    fn push_members(&self, of: &Type<'_>, prefix: &str, base: u32, into: &mut MemberCollector) {
        for member in self.members(of) {
            let Some(offset) = base.checked_add(member.bit_offset / 8) else { continue };
            let is_deep = prefix.matches('.').count() >= DEPTH_MAX || prefix.len() > PATH_BYTES_MAX;
            let Some(left) = into.left.checked_sub(1).filter(|_| !is_deep) else { return };
            into.left = left;
            if member.bits != 0 {
                continue;
            }
            let name = match (prefix, member.name) {
                (prefix, "") => prefix.to_owned(),
                ("", name) => name.to_owned(),
                (prefix, name) => format!("{prefix}.{name}"),
            };
            let Some(inner) = self.resolve(member.type_id) else { continue };
            if let Some(scalar) = self.scalar(member.type_id) {
                into.all.push(Member { name, offset, scalar, count: 1 });
            } else if let Some((element, count)) = self.elements(&inner) {
                if let Some(scalar) = self.scalar(element) {
                    into.all.push(Member { name, offset, scalar, count });
                }
            } else if inner.class == Class::Struct {
                self.push_members(&inner, &name, offset, into);
            }
        }
    }
}

/// Collected members, and the number of members that may still be visited.
struct MemberCollector {
    all: Vec<Member>,
    left: usize,
}

fn format_declaration(front: &str, tag: &str, name: &str, back: &str) -> String {
    let name = if name.is_empty() { "(no name)" } else { name };
    let space = if back.is_empty() { "" } else { " " };
    format!("{front}{tag}{name}{space}{back}")
}

/// Returns the 32-bit FNV-1a hash of a name; lookups compare names with equal hashes.
fn hash_name(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// The three words at the beginning of a type.
struct TypeHeader {
    name: u32,
    class: Class,
    count: u32,
    flag: bool,
    size_or_type: u32,
}

impl TypeHeader {
    fn read(bytes: &[u8], offset: usize) -> Option<Self> {
        let head = bytes.get(offset..)?.first_chunk::<TYPE_BYTES>()?;
        let mut words = read_u32s(head);
        let (name, info, size_or_type) = (words.next()?, words.next()?, words.next()?);
        let class = Class::ALL.get((info >> 24 & 0x1f).checked_sub(1)? as usize)?;
        Some(Self {
            name,
            class: *class,
            count: info & 0xffff,
            flag: info >> 31 == 1,
            size_or_type,
        })
    }
}

impl NameLookup for Btf {
    fn enumerator(&self, name: &str) -> Option<u64> {
        let index = self.enumerators.get_or_init(|| {
            let mut index = Vec::new();
            for of in self.types() {
                let each = (0..).zip(self.enumerators(&of));
                index.extend(each.map(|(place, (name, _))| (hash_name(name), of.id, place)));
            }
            index.sort_unstable();
            index
        });
        let wanted = hash_name(name);
        let first = index.partition_point(|&(hash, ..)| hash < wanted);
        index[first..].iter().take_while(|&&(hash, ..)| hash == wanted).find_map(
            |&(_, id, place)| {
                let of = self.get(id)?;
                let (found, value) = self.enumerators(&of).nth(place as usize)?;
                (found == name).then_some(value)
            },
        )
    }

    fn enumeration(&self, tag: &str) -> Option<Arc<Symbols>> {
        let of = self.find(Class::Enum, tag).or_else(|| self.find(Class::Enum64, tag))?;
        let choices = self
            .enumerators(&of)
            .map(|(name, value)| Symbol { value, name: name.to_owned().into() });
        let choices: Vec<Symbol> = choices.collect();
        let symbols = Symbols { choice_mask: u64::MAX, choices, ..Symbols::default() };
        (!symbols.choices.is_empty()).then(|| Arc::new(symbols))
    }

    fn integer(&self, type_name: &str) -> Option<Scalar> {
        let name = type_name.trim_start_matches("const ").trim();
        let of = self.find(Class::Typedef, name)?;
        self.scalar(of.id)
    }
}
