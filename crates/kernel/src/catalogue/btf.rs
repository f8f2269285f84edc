//! The kernel's types, as it tells them (Documentation/bpf/btf.rst): read, where
//! `crate::bpf_sys::btf` makes.
//!
//! `header | types | strings`; a type is `name u32 | kind, count u32 | size or type u32`, with more
//! behind it by its kind; its number is its place in order, from 1 on. One pass finds where each
//! type is; all else is looked up in the bytes when it is asked for, with every number checked: no
//! bytes are so wrong that anything here panics, or goes round for ever.
//!
//! Our own, because what there is does more and takes longer: aya-obj 0.3 copies each type into a
//! tree of its own (it relocates programs, which we do not need), btf-rs is LGPL, btf 0.5 reads a
//! file of one type at a time.

use std::fmt;
use std::sync::Arc;
use std::sync::OnceLock;

use trackway_schema::Scalar;

use super::format::Names;
use super::model::{Member, Structure, Symbol, Symbols};

/// Where the running kernel's types are.
pub const VMLINUX: &str = "/sys/kernel/btf/vmlinux";
/// Longest file that is read. (Linux 6.18 here: 5.5 MB; of distributions 6 to 12 MB.)
pub const BTF_BYTES_MAX: u64 = 256 << 20;

const MAGIC: u16 = 0xeb9f;
const HEADER_BYTES: usize = 24;
const TYPE_BYTES: usize = 12;
/// Longest chain of names and qualifiers in front of a type that is followed.
const CHAIN_MAX: usize = 32;
/// Longest name that is believed, in bytes.
const NAME_BYTES_MAX: usize = 512;
/// Most members of a structure that are looked at, those of structures in it included.
const MEMBERS_MAX: usize = 4096;
/// Deepest structure in structures that is looked into.
const DEPTH_MAX: usize = 8;
/// Longest name of a member in structures, in bytes.
const PATH_BYTES_MAX: usize = 1024;

/// What a type is.
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

    /// Bytes behind a type with so many parts.
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

/// Why bytes are no types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BtfError {
    /// Where, in bytes.
    pub offset: usize,
    /// What is wrong there.
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
    /// Where the strings are.
    strings: (usize, usize),
    /// Where each type is, from number 1 on.
    offsets: Vec<u32>,
    /// Numbers of named types, by the hash of the name.
    by_name: OnceLock<Vec<(u32, u32)>>,
    /// Values of enumerators, by the hash of the name: hash, type, place in it.
    enumerators: OnceLock<Vec<(u32, u32, u32)>>,
}

/// A type.
#[derive(Debug, Clone, Copy)]
pub struct Type<'btf> {
    /// Its number.
    pub id: u32,
    /// What it is.
    pub class: Class,
    /// Its name, or nothing.
    pub name: &'btf str,
    /// Its size in bytes, or the type that it is of, by class.
    pub size_or_type: u32,
    /// What that means depends on the class.
    flag: bool,
    extra: &'btf [u8],
}

/// A member of a structure, as it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawMember<'btf> {
    /// Its name, or nothing.
    pub name: &'btf str,
    /// Its type.
    pub type_id: u32,
    /// Where it begins.
    pub bit_offset: u32,
    /// Of a bit field, how many bits; else 0.
    pub bits: u32,
}

/// A variable in a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// The variable's type number.
    pub type_id: u32,
    /// Where it is in the section.
    pub offset: u32,
    /// Its size in bytes.
    pub size: u32,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*word))
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    let (words, _) = bytes.as_chunks::<4>();
    words.iter().map(|word| u32::from_le_bytes(*word))
}

impl Btf {
    /// Takes types, little-endian ones.
    ///
    /// # Errors
    ///
    /// If the bytes are none.
    pub fn parse(bytes: Vec<u8>) -> Result<Self, BtfError> {
        let at = |offset, what| BtfError { offset, what };
        let magic = bytes.first_chunk::<2>().map(|magic| u16::from_le_bytes(*magic));
        if magic != Some(MAGIC) || bytes.get(2) != Some(&1) {
            return Err(at(0, "not types of this byte order and version"));
        }
        if bytes.len() as u64 > BTF_BYTES_MAX {
            return Err(at(0, "longer than a kernel's types are"));
        }
        let header = word(&bytes, 4).unwrap_or(0) as usize;
        if header < HEADER_BYTES {
            return Err(at(4, "a header that is too short"));
        }
        let section = |field: usize| -> Option<(usize, usize)> {
            let from = header.checked_add(word(&bytes, field)? as usize)?;
            let to = from.checked_add(word(&bytes, field + 4)? as usize)?;
            (to <= bytes.len()).then_some((from, to))
        };
        let types = section(8).ok_or(at(8, "types beyond the end"))?;
        let strings = section(16).ok_or(at(16, "strings beyond the end"))?;
        let mut offsets = Vec::with_capacity((types.1 - types.0) / 32);
        let mut offset = types.0;
        while offset < types.1 {
            let extra = Head::read(&bytes[..types.1], offset)
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

    /// How many types there are.
    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// The string at this offset; nothing where there is none.
    fn string(&self, offset: u32) -> &str {
        let strings = &self.bytes[self.strings.0..self.strings.1];
        let bytes = strings.get(offset as usize..).unwrap_or_default();
        let bytes = &bytes[..bytes.len().min(NAME_BYTES_MAX)];
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(0);
        std::str::from_utf8(&bytes[..end]).unwrap_or_default()
    }

    /// The type of this number.
    pub fn get(&self, id: u32) -> Option<Type<'_>> {
        let offset = *self.offsets.get((id as usize).checked_sub(1)?)? as usize;
        let head = Head::read(&self.bytes, offset)?;
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

    /// All types.
    pub fn types(&self) -> impl Iterator<Item = Type<'_>> {
        (1..=self.offsets.len() as u32).filter_map(|id| self.get(id))
    }

    /// The first type of this class and name.
    pub fn find(&self, class: Class, name: &str) -> Option<Type<'_>> {
        let index = self.by_name.get_or_init(|| {
            let named = self.types().filter(|of| !of.name.is_empty());
            let mut index: Vec<_> = named.map(|of| (hash(of.name), of.id)).collect();
            index.sort_unstable();
            index
        });
        let wanted = hash(name);
        let first = index.partition_point(|&(hash, _)| hash < wanted);
        index[first..]
            .iter()
            .take_while(|&&(hash, _)| hash == wanted)
            .filter_map(|&(_, id)| self.get(id))
            .find(|of| of.class == class && of.name == name)
    }

    /// What a type is without names and qualifiers in front; `None` for void, and for chains that
    /// do not end.
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

    /// Members of a structure or union.
    pub fn members<'btf>(&'btf self, of: &Type<'btf>) -> impl Iterator<Item = RawMember<'btf>> {
        let is_aggregate = matches!(of.class, Class::Struct | Class::Union);
        let has_bits = of.flag;
        let (parts, _) = if is_aggregate { of.extra } else { &[] }.as_chunks::<12>();
        parts.iter().map(move |part| {
            let mut words = words(part);
            let mut next = || words.next().unwrap_or_default();
            let (name, type_id, place) = (next(), next(), next());
            let bits = if has_bits { place >> 24 } else { 0 };
            let bit_offset = if has_bits { place & 0xff_ffff } else { place };
            RawMember { name: self.string(name), type_id, bit_offset, bits }
        })
    }

    /// Where `path` is in a structure: names of members with dots between them, through structures
    /// in it, named or not, but through no pointer.
    pub fn place(&self, id: u32, path: &str) -> Option<RawMember<'_>> {
        let mut place = RawMember { name: "", type_id: id, bit_offset: 0, bits: 0 };
        let mut left = MEMBERS_MAX;
        for name in path.split('.') {
            let inside = self.member(place.type_id, name, 0, &mut left)?;
            let bit_offset = place.bit_offset.checked_add(inside.bit_offset)?;
            place = RawMember { bit_offset, ..inside };
        }
        Some(place)
    }

    fn member(&self, id: u32, name: &str, depth: usize, left: &mut usize) -> Option<RawMember<'_>> {
        let of = self.resolve(id).filter(|_| depth < DEPTH_MAX)?;
        for member in self.members(&of) {
            *left = left.checked_sub(1)?;
            if member.name == name {
                return Some(member);
            }
            if !member.name.is_empty() {
                continue;
            }
            if let Some(inside) = self.member(member.type_id, name, depth + 1, left) {
                let bit_offset = member.bit_offset.checked_add(inside.bit_offset)?;
                return Some(RawMember { bit_offset, ..inside });
            }
        }
        None
    }

    /// Enumerators of an enumeration: names, and values as 64 bits (signed ones extended).
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
            let mut words = words(part);
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

    /// Parameters of a prototype: names, where there are any, and types.
    pub fn parameters<'btf>(&'btf self, of: &Type<'btf>) -> impl Iterator<Item = (&'btf str, u32)> {
        let (parts, _) = if of.class == Class::FuncProto { of.extra } else { &[] }.as_chunks::<8>();
        parts.iter().map(|part| {
            let mut words = words(part);
            let name = words.next().unwrap_or_default();
            (self.string(name), words.next().unwrap_or_default())
        })
    }

    /// What is in a section.
    pub fn placed(&self, of: &Type<'_>) -> impl Iterator<Item = Placed> {
        let (parts, _) = if of.class == Class::Datasec { of.extra } else { &[] }.as_chunks::<12>();
        parts.iter().map(|part| {
            let mut words = words(part);
            let mut next = || words.next().unwrap_or_default();
            Placed { type_id: next(), offset: next(), size: next() }
        })
    }

    /// Elements of an array: of which type, and how many.
    pub fn elements(&self, of: &Type<'_>) -> Option<(u32, u32)> {
        let is_array = of.class == Class::Array;
        let mut words = words(of.extra).take_while(|_| is_array);
        let element = words.next()?;
        Some((element, words.nth(1)?))
    }

    /// The integer that a type is: an `int`, an enumeration, a pointer, under whatever name.
    pub fn scalar(&self, id: u32) -> Option<Scalar> {
        /// In the word behind an integer: its bits, where they begin, and what they mean.
        const SIGNED: u32 = 1;
        const BOOL: u32 = 4;
        let of = self.resolve(id)?;
        let sized = super::ctype::sized;
        match of.class {
            Class::Pointer => Some(Scalar::U64),
            Class::Enum | Class::Enum64 => sized(of.size_or_type, of.flag),
            Class::Int => {
                let about = word(of.extra, 0)?;
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

    /// What C calls a type.
    pub fn type_text(&self, id: u32) -> String {
        let (mut front, mut back, mut id) = (String::new(), String::new(), id);
        for _ in 0..CHAIN_MAX {
            let Some(of) = self.get(id) else {
                return named(&front, "", "void", &back);
            };
            let word = match of.class {
                Class::Pointer => {
                    back.insert(0, '*');
                    ""
                }
                Class::Const => {
                    // What is constant may be what a pointer points to, or the pointer.
                    if back.starts_with('*') || back.is_empty() { "const " } else { "" }
                }
                Class::Volatile | Class::Restrict | Class::TypeTag => "",
                Class::Struct => return named(&front, "struct ", of.name, &back),
                Class::Union => return named(&front, "union ", of.name, &back),
                Class::Forward if of.flag => return named(&front, "union ", of.name, &back),
                Class::Forward => return named(&front, "struct ", of.name, &back),
                Class::Enum | Class::Enum64 => return named(&front, "enum ", of.name, &back),
                Class::FuncProto => return named(&front, "", "function", &back),
                Class::Array => return named(&front, "", "array", &back),
                _ => return named(&front, "", of.name, &back),
            };
            if !front.contains(word) {
                front.push_str(word);
            }
            id = of.size_or_type;
        }
        "?".into()
    }

    /// A structure that programs share with the kernel, with the integers in it.
    pub fn structure(&self, name: &str) -> Option<Structure> {
        let of = self.find(Class::Struct, name).or_else(|| self.find(Class::Union, name));
        let alias = || self.find(Class::Typedef, name).and_then(|of| self.resolve(of.id));
        let of = of.or_else(alias).filter(|of| matches!(of.class, Class::Struct | Class::Union))?;
        let mut found = Members { all: Vec::new(), left: MEMBERS_MAX };
        self.push_members(&of, "", 0, &mut found);
        Some(Structure { name: name.into(), bytes: of.size_or_type, members: found.all })
    }

    fn push_members(&self, of: &Type<'_>, prefix: &str, base: u32, into: &mut Members) {
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

/// Members that were found, and how many more may be looked at.
struct Members {
    all: Vec<Member>,
    left: usize,
}

fn named(front: &str, tag: &str, name: &str, back: &str) -> String {
    let name = if name.is_empty() { "(no name)" } else { name };
    let space = if back.is_empty() { "" } else { " " };
    format!("{front}{tag}{name}{space}{back}")
}

/// FNV-1a, 32 bits: names need to be told apart quickly, and are compared afterwards.
fn hash(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// The three words of a type.
struct Head {
    name: u32,
    class: Class,
    count: u32,
    flag: bool,
    size_or_type: u32,
}

impl Head {
    fn read(bytes: &[u8], offset: usize) -> Option<Self> {
        let head = bytes.get(offset..)?.first_chunk::<TYPE_BYTES>()?;
        let mut words = words(head);
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

impl Names for Btf {
    fn enumerator(&self, name: &str) -> Option<u64> {
        let index = self.enumerators.get_or_init(|| {
            let mut index = Vec::new();
            for of in self.types() {
                let each = (0..).zip(self.enumerators(&of));
                index.extend(each.map(|(place, (name, _))| (hash(name), of.id, place)));
            }
            index.sort_unstable();
            index
        });
        let wanted = hash(name);
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
